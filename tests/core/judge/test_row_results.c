/* Row kernels with several results: what sx_fused_join makes of nodes that read the same rows, the bits of its kernel,
 * faults planted in it, and what it refuses. */
#include "tests/core/judge/try.h"

#define NODES_MAX SX_FUSED_RESULTS_MAX
#define SUM "sx 1 graph \"g\" { %0 = parameter {name = \"x\", weight = 0} : "

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Programs of fused nodes; each has its parameters first, and all its nodes are to share a kernel. */
static const struct {
    const char *name, *text;
} programs[] = {
    {"mean, norm, sum of squares, root of the variance, which stands over the rows",
     SUM "f32[5, 150] "
         "%1 = fused(%0) {type = f32[5, 150], body = {args = [[150, 1]], axes = [1], code = [arg "
         "0, reduce add 0, imm 150, divide 1 2]}} : f32[5] "
         "%2 = fused(%0, %1) {type = f32[5, 150], body = {args = [[150, 1], [1, 0]], axes = [1], "
         "code = [arg 0, arg 1, subtract 0 1, multiply 2 2, reduce add 3]}} : f32[5] "
         "%3 = fused(%2) {type = f32[5], body = {args = [[1]], code = [arg 0, imm 150, divide 0 1, "
         "rsqrt 2]}} : f32[5] "
         "%4 = fused(%0, %1, %3) {type = f32[5, 150], body = {args = [[150, 1], [1, 0], [1, 0]], "
         "code = [arg 0, arg 1, subtract 0 1, arg 2, multiply 2 3]}} : f32[5, 150] "
         "return %1 as \"a\", %2 as \"b\", %3 as \"c\", %4 as \"d\" }"},
    {"maximum and its index, whose lanes are wider",
     SUM "f32[5, 150] "
         "%1 = fused(%0) {type = f32[5, 150], body = {args = [[150, 1]], axes = [1], code = [arg "
         "0, reduce maximum 0]}} : f32[5] "
         "%2 = fused(%0, %1) {type = i64[5, 150], body = {args = [[150, 1], [1, 0]], axes = [1], "
         "code = [arg 0 : f32, arg 1 : f32, compare eq 0 1 : bool, index 1, imm 150, select 2 3 4, "
         "reduce minimum 5]}} : i64[5] "
         "return %1 as \"a\", %2 as \"b\" }"},
    {"the same of rows that end one element behind what the accumulators take",
     SUM "f32[5, 33] "
         "%1 = fused(%0) {type = f32[5, 33], body = {args = [[33, 1]], axes = [1], code = [arg "
         "0, reduce maximum 0]}} : f32[5] "
         "%2 = fused(%0, %1) {type = i64[5, 33], body = {args = [[33, 1], [1, 0]], axes = [1], "
         "code = [arg 0 : f32, arg 1 : f32, compare eq 0 1 : bool, index 1, imm 33, select 2 3 4, "
         "reduce minimum 5]}} : i64[5] "
         "return %1 as \"a\", %2 as \"b\" }"},
    {"softmax, its logarithm of the sum, its maximum",
     SUM "f32[5, 150] "
         "%1 = fused(%0) {type = f32[5, 150], body = {args = [[150, 1]], axes = [1], code = [arg "
         "0, reduce maximum 0]}} : f32[5] "
         "%2 = fused(%0, %1) {type = f32[5, 150], body = {args = [[150, 1], [1, 0]], axes = [1], "
         "code = [arg 0, arg 1, subtract 0 1, exponential 2, reduce add 3, divide 3 4]}} : f32[5, "
         "150] "
         "%3 = fused(%0, %1) {type = f32[5, 150], body = {args = [[150, 1], [1, 0]], axes = [1], "
         "code = [arg 0, arg 1, subtract 0 1, exponential 2, reduce add 3, log 4, add 5 1]}} : "
         "f32[5] "
         "return %1 as \"a\", %2 as \"b\", %3 as \"c\" }"},
    {"a sum of two as large as the rows, rows of it in bf16",
     SUM "f32[5, 150] %1 = parameter {name = \"y\", weight = 0} : f32[5, 150] "
         "%2 = fused(%0, %1) {type = f32[5, 150], body = {args = [[150, 1], [150, 1]], code = [arg "
         "0, arg 1, add 0 1]}} : f32[5, 150] "
         "%3 = fused(%2) {type = bf16[5, 150], body = {args = [[150, 1]], axes = [1], code = [arg "
         "0 : f32, multiply 0 0 : f32, reduce add 1 : f32, rsqrt 2 : f32, multiply 0 3 : f32, "
         "convert 4]}} : bf16[5, 150] "
         "%4 = fused(%2) {type = f32[5, 150], body = {args = [[150, 1]], axes = [1], code = [arg "
         "0, reduce minimum 0]}} : f32[5] "
         "return %2 as \"a\", %3 as \"b\", %4 as \"c\" }"},
    {"across the rows: mean of columns, and what differs from it",
     SUM "f32[150, 37] "
         "%1 = fused(%0) {type = f32[150, 37], body = {args = [[37, 1]], axes = [0], code = [arg "
         "0, reduce add 0, imm 150, divide 1 2]}} : f32[37] "
         "%2 = fused(%0, %1) {type = f32[150, 37], body = {args = [[37, 1], [0, 1]], code = [arg "
         "0, arg 1, subtract 0 1]}} : f32[150, 37] "
         "%3 = fused(%2) {type = f32[150, 37], body = {args = [[37, 1]], axes = [0], code = [arg "
         "0, multiply 0 0, reduce add 1]}} : f32[37] "
         "return %1 as \"a\", %2 as \"b\", %3 as \"c\" }"},
};

typedef struct {
    const sx_graph *graph;
    uint32_t member[NODES_MAX], count;
    sx_join join;
    bool ok;
    sx_analysis *a;
    sx_type input[SX_FUSED_ARGS_MAX];
    uint32_t inputs;
} rows;

static rows *parse(const char *text)
{
    rows *r = SX_NEW(&cx, rows);
    sx_graph *graph;
    ck_assert_ptr_nonnull(r);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    r->graph = graph;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->node[n].op == SX_OP_FUSED) {
            ck_assert_uint_lt(r->count, NODES_MAX);
            r->member[r->count++] = n;
        }
    }
    ck_sx_ok(&cx, sx_fused_join_nodes(&cx, graph, r->member, r->count, &r->join, &r->ok));
    return r;
}

static rows *make_rows(uint32_t which)
{
    rows *r = parse(programs[which].text);
    sx_dtype dtype[NODES_MAX];
    ck_assert_msg(r->ok, "%s", programs[which].name);
    r->inputs = r->join.whole.body->arg_count;
    for (uint32_t k = 0; k < r->inputs; k++) {
        r->input[k] = r->graph->node[r->join.tensor[k]].type;
    }
    for (uint32_t k = 0; k < r->count; k++) {
        dtype[k] = r->join.member[k].type.dtype;
    }
    r->a = SX_NEW(&cx, sx_analysis);
    ck_assert_ptr_nonnull(r->a);
    ck_sx_ok(&cx, sx_analysis_of_results(&cx, &r->join.whole, r->input, r->inputs, r->join.root,
                                         dtype, r->count, r->a));
    return r;
}

static sx_kernel *lower(const rows *r, uint32_t lanes)
{
    sx_kernel *kernel;
    test_tiles tiles = {.lanes = lanes, .tile_m = 2};
    sx_schedule s = schedule_of(r->a, &tiles);
    ck_sx_ok(&cx, sx_lower_fused(&cx, sx_test_unit_of(lanes), "rows", r->a, &s, &kernel));
    return kernel;
}

static sx_verdict judged(const rows *r, const sx_kernel *kernel)
{
    const sx_attr *member[NODES_MAX];
    sx_judge *judge;
    sx_verdict verdict;
    for (uint32_t k = 0; k < r->count; k++) {
        member[k] = &r->join.member[k];
    }
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    ck_sx_ok(&cx, sx_judge_results(judge, member, r->count, r->input, r->inputs, kernel, &verdict));
    return verdict;
}

/* Nothing is read but the parameters. */
START_TEST(test_join)
{
    const rows *r = make_rows((uint32_t)_i);
    for (uint32_t k = 0; k < r->inputs; k++) {
        ck_assert_uint_eq(r->graph->node[r->join.tensor[k]].op, SX_OP_PARAMETER);
    }
    for (uint32_t k = 0; k < r->count; k++) {
        const sx_type *type = &r->graph->node[r->member[k]].type;
        ck_assert_int_eq(sx_analysis_elements(r->a, k), sx_tensor_elements(type));
    }
}
END_TEST

/* The bits of each result are those of a kernel that computes its node from what the others gave. */
START_TEST(test_bits)
{
    static const uint32_t lanes[] = {8, 16, 32};
    const uint32_t which = (uint32_t)_i / SX_COUNT(lanes), width = lanes[_i % (int)SX_COUNT(lanes)];
    const rows *r = make_rows(which);
    const sx_graph *graph = r->graph;
    sx_rng rng = {sx_test_seed()};
    uint8_t *value[8] = {NULL};
    void *buffer[SX_LOOP_BUFFERS_MAX] = {NULL};
    test_tiles tiles = {.lanes = width, .tile_m = 2};
    ck_assert_uint_le(graph->node_count, SX_COUNT(value));
    for (uint32_t t = 0; t < graph->node_count; t++) {
        const sx_node *n = &graph->node[t];
        uint32_t size = bytes_of(&n->type);
        value[t] = sx_alloc(&cx, size + 64u);
        ck_assert_ptr_nonnull(value[t]);
        for (uint32_t i = 0; i < size / 4 && n->op == SX_OP_PARAMETER; i++) {
            float x = (float)((int)sx_rng_below(&rng, 33) - 16) / 8; /* some of them are equal */
            memcpy(value[t] + (size_t)4 * i, &x, sizeof(x));
        }
        if (n->op != SX_OP_FUSED) {
            continue;
        }
        sx_type input[SX_FUSED_ARGS_MAX];
        sx_kernel *one;
        sx_analysis *a = SX_NEW(&cx, sx_analysis);
        for (uint32_t k = 0; k < n->input_count; k++) {
            uint32_t in = sx_graph_input(graph, n, k).i;
            input[k] = graph->node[in].type;
            buffer[k] = value[in];
        }
        ck_sx_ok(&cx, sx_analysis_make(&cx, sx_graph_attr(graph, n), input, n->input_count, a));
        sx_schedule s = schedule_of(a, &tiles);
        ck_sx_ok(&cx, sx_lower_fused(&cx, sx_test_unit_of(width), "one", a, &s, &one));
        for (uint32_t k = n->input_count; k < one->buffer_count; k++) {
            buffer[k] = one->buffer[k].role == SX_BUFFER_OUT
                            ? value[t]
                            : exact_buffer(&cx, one->buffer[k].size);
        }
        ck_sx_ok(&cx, sx_kernel_eval(&cx, one, buffer));
    }
    sx_kernel *kernel = lower(r, width);
    sx_verdict verdict = judged(r, kernel);
    ck_assert_msg(verdict.proven, "%s: %s", programs[which].name, verdict.text);
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        bool in = kernel->buffer[k].role == SX_BUFFER_IN;
        buffer[k] = in ? value[r->join.tensor[k]] : exact_buffer(&cx, kernel->buffer[k].size);
    }
    ck_sx_ok(&cx, sx_kernel_eval(&cx, kernel, buffer));
    for (uint32_t k = 0; k < r->count; k++) {
        const sx_type *type = &graph->node[r->member[k]].type;
        ck_assert_int_eq(kernel->buffer[r->inputs + k].size, bytes_of(type));
        ck_assert_msg(memcmp(buffer[r->inputs + k], value[r->member[k]], bytes_of(type)) == 0,
                      "%s: result %u has other bits (lanes %u)", programs[which].name, k, width);
    }
}
END_TEST

/* The number of the last item of a part that stores to the buffer, or UINT32_MAX. */
static uint32_t store_of(const sx_part *part, uint32_t buffer)
{
    for (uint32_t i = part->item_count; i-- > 0;) {
        const sx_item *item = &part->item[i];
        bool stores =
            item->kind == SX_ITEM_OP && (item->op == SX_LOP_STORE || item->op == SX_LOP_STORES);
        if (stores && part->addr[item->addr].buffer == buffer) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* One store is missing: of each result of each program in turn. */
START_TEST(test_dropped)
{
    const rows *r = make_rows((uint32_t)_i);
    for (uint32_t k = 0; k < r->count; k++) {
        sx_kernel *kernel = lower(r, 8);
        sx_part *part = &kernel->part[0];
        uint32_t at = store_of(part, r->inputs + k);
        ck_assert_uint_ne(at, UINT32_MAX);
        memmove(part->item + at, part->item + at + 1,
                (part->item_count - at - 1) * sizeof(*part->item));
        part->item_count--;
        sx_verdict verdict = judged(r, kernel);
        ck_assert_msg(!verdict.proven, "%s: result %u lacks a store", programs[_i].name, k);
    }
}
END_TEST

/* Two results of one type change places. */
START_TEST(test_swapped)
{
    const rows *r = make_rows(0);
    sx_kernel *kernel = lower(r, 8);
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        sx_part *part = &kernel->part[p];
        for (uint32_t i = 0; i < part->addr_count; i++) {
            uint32_t *buffer = &part->addr[i].buffer;
            bool one = *buffer == r->inputs || *buffer == r->inputs + 1;
            *buffer = one ? 2 * r->inputs + 1 - *buffer : *buffer;
        }
    }
    sx_verdict verdict = judged(r, kernel);
    ck_assert(!verdict.proven);
    ck_assert_ptr_nonnull(strstr(verdict.text, "holds another value"));
}
END_TEST

/* The statistics of one row are stored as those of the next. */
START_TEST(test_next_row)
{
    const rows *r = make_rows(0);
    sx_kernel *kernel = lower(r, 8);
    sx_part *part = &kernel->part[0];
    ck_assert_uint_gt(kernel->part_count, 1); /* the last row is of another part */
    uint32_t at = store_of(part, r->inputs + 1);
    part->addr[part->item[at].addr].offset += 4;
    ck_assert(!judged(r, kernel).proven);
}
END_TEST

/* What cannot be joined. */
static const struct {
    const char *why, *text;
} refused[] = {
    {"other dimensions are reduced",
     SUM "f32[5, 5] "
         "%1 = fused(%0) {type = f32[5, 5], body = {args = [[5, 1]], axes = [1], code = [arg 0, "
         "reduce add 0]}} : f32[5] "
         "%2 = fused(%0) {type = f32[5, 5], body = {args = [[5, 1]], axes = [0], code = [arg 0, "
         "reduce add 0]}} : f32[5] "
         "return %1 as \"a\", %2 as \"b\" }"},
    {"the mean of another row is read",
     SUM "f32[5, 5] "
         "%1 = fused(%0) {type = f32[5, 5], body = {args = [[5, 1]], axes = [1], code = [arg 0, "
         "reduce add 0]}} : f32[5] "
         "%2 = fused(%0, %1) {type = f32[5, 5], body = {args = [[5, 1], [0, 1]], code = [arg 0, "
         "arg 1, subtract 0 1]}} : f32[5, 5] "
         "return %1 as \"a\", %2 as \"b\" }"},
    {"the result of a row is repeated along it, so that the kernel would store one value",
     SUM "f32[5, 6] "
         "%1 = fused(%0) {type = f32[5, 6], body = {args = [[6, 1]], axes = [1], code = [arg 0, "
         "reduce add 0]}} : f32[5] "
         "%2 = fused(%1) {type = f32[5, 6], body = {args = [[1, 0]], code = [arg 0, negate 0]}} : "
         "f32[5, 6] "
         "return %1 as \"a\", %2 as \"b\" }"},
    {"a map over the rows that needs nothing of them",
     SUM "f32[5, 6] %1 = parameter {name = \"y\", weight = 0} : f32[5] "
         "%2 = fused(%0) {type = f32[5, 6], body = {args = [[6, 1]], axes = [1], code = [arg 0, "
         "reduce add 0]}} : f32[5] "
         "%3 = fused(%1) {type = f32[5], body = {args = [[1]], code = [arg 0, negate 0]}} : f32[5] "
         "return %2 as \"a\", %3 as \"b\" }"},
    {"a sum of f32 beside values of 8 bytes, which has other bits there",
     SUM "f32[5, 6] "
         "%1 = fused(%0) {type = f32[5, 6], body = {args = [[6, 1]], axes = [1], code = [arg 0, "
         "reduce add 0]}} : f32[5] "
         "%2 = fused(%0) {type = f64[5, 6], body = {args = [[6, 1]], axes = [1], code = [arg 0 "
         ": f32, convert 0, reduce add 1]}} : f64[5] "
         "return %1 as \"a\", %2 as \"b\" }"},
};

START_TEST(test_refused)
{
    const rows *r = parse(refused[_i].text);
    ck_assert_msg(!r->ok, "%s", refused[_i].why);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.judge.row_results");
    TCase *cases = tcase_create("rows");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_join, 0, SX_COUNT(programs));
    tcase_add_loop_test(cases, test_bits, 0, 3 * SX_COUNT(programs));
    tcase_add_loop_test(cases, test_dropped, 0, SX_COUNT(programs));
    tcase_add_test(cases, test_swapped);
    tcase_add_test(cases, test_next_row);
    tcase_add_loop_test(cases, test_refused, 0, SX_COUNT(refused));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
