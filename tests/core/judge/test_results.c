/* Kernels with several results: what sx_fused_join makes of nodes, the bits of its kernel, faults planted in it. */
#include "tests/core/judge/try.h"

#define SPACE 3, 37
#define NODES 3u

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* tensors 0 x, 1 y, 2 b (the last dimension alone); 3 = x * y, 4 = tanh(x) + b, 5 = 3 - y. The second one is of bf16
 * if `narrow`. */
typedef struct {
    node node[NODES];
    uint32_t tensor[NODES][2];
    sx_join_node named[NODES];
    sx_type type[6];
    sx_join join;
    bool ok;
} nodes;

static void add(nodes *n, uint32_t k, const node *made, uint32_t first, uint32_t second)
{
    n->node[k] = *made;
    n->tensor[k][0] = first;
    n->tensor[k][1] = second;
    n->type[3 + k] = made->result;
    n->named[k] = (sx_join_node){.fused = &n->node[k].fused,
                                 .type = &n->node[k].result,
                                 .tensor = n->tensor[k],
                                 .result = 3 + k};
}

static nodes *make_nodes(bool narrow)
{
    nodes *n = SX_NEW(&cx, nodes);
    ck_assert_ptr_nonnull(n);
    const sx_attr none = {.present = 0};
    sx_type two[2] = {TYPE(SX_F32, SPACE), TYPE(SX_F32, SPACE)};
    n->type[0] = n->type[1] = two[0];
    n->type[2] = TYPE(SX_F32, 37);
    node product = lift(&cx, SX_OP_MULTIPLY, &none, two, 2);
    node function = lift(&cx, SX_OP_TANH, &none, two, 1);
    node sum = with_tensor(&cx, SX_OP_ADD, &function, n->type[2]);
    node difference = lift(&cx, SX_OP_SUBTRACT, &none, two, 2);
    if (narrow) {
        sx_attr to = {.present = SX_A(type), .type = {.dtype = SX_BF16}};
        node cast = lift(&cx, SX_OP_CONVERT, &to, &product.result, 1);
        sum = inlined(&cx, &cast, 0, &sum);
    }
    add(n, 0, &product, 0, 1);
    add(n, 1, &sum, 2, 0); /* the broadcast was inlined first */
    add(n, 2, &difference, 3, 1);
    if (n->node[1].input[0].rank == 2) {
        n->tensor[1][0] = 0;
        n->tensor[1][1] = 2;
    }
    ck_sx_ok(&cx, sx_fused_join(&cx, n->named, NODES, &n->join, &n->ok));
    return n;
}

static sx_kernel *lower(const nodes *n, uint32_t lanes, sx_type *input)
{
    sx_analysis *a = SX_NEW(&cx, sx_analysis);
    sx_dtype dtype[NODES];
    sx_kernel *kernel;
    for (uint32_t k = 0; k < n->join.whole.body->arg_count; k++) {
        input[k] = n->type[n->join.tensor[k]];
    }
    for (uint32_t k = 0; k < NODES; k++) {
        dtype[k] = n->node[k].result.dtype;
    }
    ck_sx_ok(&cx, sx_analysis_of_results(&cx, &n->join.whole, input, n->join.whole.body->arg_count,
                                         n->join.root, dtype, NODES, a));
    test_tiles tiles = {.lanes = lanes, .tile_m = 2};
    sx_schedule s = schedule_of(a, &tiles);
    ck_sx_ok(&cx, sx_lower_fused(&cx, sx_test_unit_of(lanes), "joint", a, &s, &kernel));
    return kernel;
}

static sx_verdict judged(const nodes *n, const sx_type *input, const sx_kernel *kernel)
{
    const sx_attr *member[NODES];
    sx_judge *judge;
    sx_verdict verdict;
    for (uint32_t k = 0; k < NODES; k++) {
        member[k] = &n->join.member[k];
    }
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    ck_sx_ok(&cx, sx_judge_results(judge, member, NODES, input, n->join.whole.body->arg_count,
                                   kernel, &verdict));
    return verdict;
}

/* Each tensor is read once, and a result that another one reads is not read at all. */
START_TEST(test_join)
{
    const nodes *n = make_nodes(false);
    ck_assert(n->ok);
    ck_assert_uint_eq(n->join.whole.body->arg_count, 3);
    for (uint32_t k = 0; k < 3; k++) {
        ck_assert_uint_lt(n->join.tensor[k], 3);
    }
    uint32_t products = 0;
    for (uint32_t i = 0; i < n->join.whole.body->instr_count; i++) {
        const sx_instr *in = &n->join.whole.body->instr[i];
        products += in->kind == SX_BODY_APPLY && in->op == SX_OP_MULTIPLY ? 1 : 0;
    }
    ck_assert_uint_eq(products, 1);
}
END_TEST

/* The bits of each result are those of a kernel that computes its node from what the others gave. */
START_TEST(test_bits)
{
    static const uint32_t lanes[] = {8, 16, 32};
    nodes *n = make_nodes(_i % 2 == 1);
    sx_rng rng = {sx_test_seed()};
    sx_type input[SX_FUSED_ARGS_MAX];
    uint8_t *value[6];
    void *buffer[SX_LOOP_BUFFERS_MAX] = {NULL};
    test_tiles tiles = {.lanes = lanes[_i / 2], .tile_m = 2};
    ck_assert(n->ok);
    for (uint32_t t = 0; t < 6; t++) {
        uint32_t size = bytes_of(&n->type[t]);
        value[t] = sx_alloc(&cx, size + 64u);
        ck_assert_ptr_nonnull(value[t]);
        for (uint32_t i = 0; i < size / 4 && t < 3; i++) {
            float x = sx_rng_f32(&rng);
            memcpy(value[t] + (size_t)4 * i, &x, sizeof(x));
        }
    }
    for (uint32_t k = 0; k < NODES; k++) {
        sx_kernel *one;
        ck_sx_ok(&cx, lower_node(&cx, "one", &n->node[k], &tiles, &one));
        for (uint32_t a = 0; a < n->node[k].count; a++) {
            buffer[a] = value[n->tensor[k][a]];
        }
        buffer[n->node[k].count] = value[3 + k];
        ck_sx_ok(&cx, sx_kernel_eval(&cx, one, buffer));
    }
    sx_kernel *kernel = lower(n, lanes[_i / 2], input);
    sx_verdict verdict = judged(n, input, kernel);
    ck_assert_msg(verdict.proven && verdict.once, "%s", verdict.text);
    uint32_t inputs = n->join.whole.body->arg_count;
    for (uint32_t a = 0; a < inputs; a++) {
        buffer[a] = value[n->join.tensor[a]];
    }
    for (uint32_t k = 0; k < NODES; k++) {
        buffer[inputs + k] = exact_buffer(&cx, kernel->buffer[inputs + k].size);
    }
    ck_sx_ok(&cx, sx_kernel_eval(&cx, kernel, buffer));
    for (uint32_t k = 0; k < NODES; k++) {
        ck_assert_msg(memcmp(buffer[inputs + k], value[3 + k], bytes_of(&n->type[3 + k])) == 0,
                      "result %u has other bits", k);
    }
}
END_TEST

/* The number of the item that stores to the buffer, from the end of part 0. */
static uint32_t store_of(const sx_kernel *kernel, uint32_t buffer)
{
    const sx_part *part = &kernel->part[0];
    for (uint32_t i = part->item_count; i-- > 0;) {
        const sx_item *item = &part->item[i];
        bool stores = item->kind == SX_ITEM_OP && item->op == SX_LOP_STORE;
        if (stores && part->addr[item->addr].buffer == buffer) {
            return i;
        }
    }
    ck_abort_msg("nothing is stored to buffer %u", buffer);
    return 0;
}

/* Two results change places: their stores go to each other's buffers. */
START_TEST(test_swapped)
{
    nodes *n = make_nodes(false);
    sx_type input[SX_FUSED_ARGS_MAX];
    sx_kernel *kernel = lower(n, 8, input);
    uint32_t inputs = n->join.whole.body->arg_count;
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        sx_part *part = &kernel->part[p];
        for (uint32_t i = 0; i < part->addr_count; i++) {
            uint32_t *buffer = &part->addr[i].buffer;
            *buffer = *buffer == inputs ? inputs + 2 : *buffer == inputs + 2 ? inputs : *buffer;
        }
    }
    sx_verdict verdict = judged(n, input, kernel);
    ck_assert(!verdict.proven);
    ck_assert_ptr_nonnull(strstr(verdict.text, "result 0 of 3"));
    ck_assert_ptr_nonnull(strstr(verdict.text, "holds another value"));
}
END_TEST

/* One store is missing; each result in turn. */
START_TEST(test_dropped)
{
    nodes *n = make_nodes(false);
    sx_type input[SX_FUSED_ARGS_MAX];
    sx_kernel *kernel = lower(n, 8, input);
    sx_part *part = &kernel->part[0];
    uint32_t at = store_of(kernel, n->join.whole.body->arg_count + (uint32_t)_i);
    memmove(part->item + at, part->item + at + 1,
            (part->item_count - at - 1) * sizeof(*part->item));
    part->item_count--;
    sx_verdict verdict = judged(n, input, kernel);
    ck_assert(!verdict.proven);
    ck_assert_ptr_nonnull(strstr(verdict.text, "are stored"));
}
END_TEST

/* A result may lie over an argument as long as its store stands behind all reads of the element. */
START_TEST(test_order)
{
    nodes *n = make_nodes(false);
    sx_type input[SX_FUSED_ARGS_MAX];
    sx_kernel *kernel = lower(n, 8, input);
    uint32_t inputs = n->join.whole.body->arg_count, broadcast = UINT32_MAX;
    for (uint32_t a = 0; a < inputs; a++) {
        bool whole = n->join.tensor[a] < 2;
        broadcast = whole ? broadcast : a;
        for (uint32_t k = 0; k < NODES && whole; k++) {
            ck_assert(sx_judge_reads_first(kernel, a, inputs + k));
        }
    }
    ck_assert_uint_ne(broadcast, UINT32_MAX); /* its elements are read by many points */
    ck_assert(!sx_judge_reads_first(kernel, broadcast, inputs));
    for (uint32_t p = 0; p < kernel->part_count; p++) { /* the last store of a part comes first */
        sx_part *part = &kernel->part[p];
        for (uint32_t i = part->item_count; i-- > 0;) {
            sx_item store = part->item[i];
            bool stores = store.kind == SX_ITEM_OP && store.op == SX_LOP_STORE;
            if (stores && part->addr[store.addr].buffer == inputs + 1) {
                memmove(part->item + 1, part->item, i * sizeof(store));
                part->item[0] = store;
                break;
            }
        }
    }
    for (uint32_t a = 0; a < inputs; a++) {
        ck_assert(!sx_judge_reads_first(kernel, a, inputs + 1));
        ck_assert(a == broadcast || sx_judge_reads_first(kernel, a, inputs));
    }
}
END_TEST

/* What cannot be joined: another space, a result that is read at other elements. */
START_TEST(test_refused)
{
    nodes *n = make_nodes(false);
    sx_type other[2] = {TYPE(SX_F32, 37, 3), TYPE(SX_F32, 37, 3)};
    const sx_attr none = {.present = 0};
    sx_attr turn = {.present = SX_A(perm), .perm = {2, {1, 0}}};
    node turned = lift(&cx, SX_OP_TRANSPOSE, &turn, &n->type[3], 1);
    node square = lift(&cx, SX_OP_NEGATE, &none, &other[0], 1);
    node read = inlined(&cx, &square, 0, &turned);
    sx_join join;
    bool ok;
    sx_join_node two[2] = {n->named[0], n->named[1]};
    ck_sx_ok(&cx, sx_fused_join(&cx, two, 2, &join, &ok));
    ck_assert(ok);
    uint32_t tensor = 3;
    two[1] = (sx_join_node){
        .fused = &square.fused, .type = &square.result, .tensor = &tensor, .result = 4};
    ck_sx_ok(&cx, sx_fused_join(&cx, two, 2, &join, &ok));
    ck_assert(!ok); /* [37, 3] */
    sx_type equal[2] = {TYPE(SX_F32, 5, 5), TYPE(SX_F32, 5, 5)};
    node product = lift(&cx, SX_OP_MULTIPLY, &none, equal, 2);
    turned = lift(&cx, SX_OP_TRANSPOSE, &turn, equal, 1);
    square = lift(&cx, SX_OP_NEGATE, &none, equal, 1);
    read = inlined(&cx, &square, 0, &turned);
    two[0] = (sx_join_node){.fused = &product.fused,
                            .type = &product.result,
                            .tensor = (const uint32_t[]){0, 1},
                            .result = 3};
    two[1] =
        (sx_join_node){.fused = &read.fused, .type = &read.result, .tensor = &tensor, .result = 4};
    ck_sx_ok(&cx, sx_fused_join(&cx, two, 2, &join, &ok));
    ck_assert(!ok); /* it reads 3 turned */
    tensor = 0;
    ck_sx_ok(&cx, sx_fused_join(&cx, two, 2, &join, &ok));
    ck_assert(ok); /* an operand may be read in two ways: as two arguments */
    ck_assert_uint_eq(join.whole.body->arg_count, 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.judge.results");
    TCase *cases = tcase_create("results");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_join);
    tcase_add_loop_test(cases, test_bits, 0, 6);
    tcase_add_test(cases, test_swapped);
    tcase_add_loop_test(cases, test_dropped, 0, NODES);
    tcase_add_test(cases, test_order);
    tcase_add_test(cases, test_refused);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
