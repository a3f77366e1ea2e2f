/* Kernels of 32 lanes: proven as they are lowered, and refused with a mask that is a lane short or long, an exchange
 * by another distance, or a lane too many or too few read or written. */
#include "tests/core/judge/try.h"

typedef struct {
    sx_ctx *cx;
    sx_judge *judge;
    const node *n;
    sx_op move; /* SX_OP_FUSED: none */
    const sx_attr *attr;
    sx_judge_facts facts;
    sx_kernel *kernel;
    /* Elements in the last vector of a row, of which one more changes the result; 0: it does not, as a sum of
     * one more adds the 0 behind a load. */
    uint32_t last;
    uint32_t masks, exchanges, writes, reads; /* faults that were planted */
} subject;

static sx_code judged(subject *s, sx_verdict *verdict)
{
    const node *n = s->n;
    return s->move == SX_OP_FUSED ? sx_judge_kernel(s->judge, &n->fused, n->input, n->count,
                                                    &s->facts, s->kernel, verdict)
                                  : sx_judge_move(s->judge, s->move, s->attr, n->input, n->count,
                                                  &n->result, s->kernel, verdict);
}

/* The item with another immediate is refused, by the checker or by the judge. */
static void refuse(subject *s, sx_item *item, uint32_t imm, uint32_t *planted, const char *what)
{
    sx_verdict verdict = {.proven = false};
    uint32_t before = item->imm;
    item->imm = imm;
    if (sx_kernel_check(s->cx, s->kernel) == SX_OK) {
        ck_sx_ok(s->cx, judged(s, &verdict));
    }
    sx_ctx_reset_error(s->cx);
    ck_assert_msg(!verdict.proven, "%s: %u instead of %u is proven", what, imm, before);
    item->imm = before;
    (*planted)++;
}

/* The item in front of `at` that wrote the vector register. */
static sx_item *writer_of(const sx_part *part, uint32_t at, uint32_t reg)
{
    while (at-- > 0) {
        sx_item *item = &part->item[at];
        if (item->kind == SX_ITEM_OP && sx_lop_info_of(item->op)->result == 'v' &&
            item->dst == reg) {
            return item;
        }
    }
    return NULL;
}

static void plant(subject *s, sx_part *part, uint32_t at)
{
    sx_item *item = &part->item[at];
    if (item->op == SX_LOP_ICMP && item->imm == SX_GT) { /* the first lanes: count > lane */
        sx_item *count = writer_of(part, at, item->src[0]);
        const sx_item *lane = writer_of(part, at, item->src[1]);
        if (count != NULL && count->op == SX_LOP_SET && lane != NULL && lane->op == SX_LOP_IOTA) {
            refuse(s, count, count->imm - 1, &s->masks, "a mask one lane short");
            if (count->imm == s->last) {
                refuse(s, count, count->imm + 1, &s->masks, "a mask one lane long");
            }
        }
    }
    for (uint32_t d = 1; d <= 32 && item->op == SX_LOP_SWAP; d *= 2) {
        if (d != item->imm) {
            refuse(s, item, d, &s->exchanges, "an exchange");
        }
    }
    if (item->op == SX_LOP_STORE) {
        refuse(s, item, item->imm + 1, &s->writes, "lanes written");
        refuse(s, item, item->imm - 1, &s->writes, "lanes written");
    }
    if (item->op == SX_LOP_LOAD) {
        refuse(s, item, item->imm - 1, &s->reads, "lanes read");
    }
}

static void try_all(subject *s, const char *what)
{
    sx_verdict verdict;
    ck_sx_ok(s->cx, sx_judge_make(s->cx, &s->judge));
    ck_sx_ok(s->cx, judged(s, &verdict));
    ck_assert_msg(verdict.proven, "%s: %s", what, verdict.text);
    ck_assert_uint_eq(s->kernel->lanes, 32);
    for (uint32_t p = 0; p < s->kernel->part_count; p++) {
        for (uint32_t i = 0; i < s->kernel->part[p].item_count; i++) {
            if (s->kernel->part[p].item[i].kind == SX_ITEM_OP) {
                plant(s, &s->kernel->part[p], i);
            }
        }
    }
}

static subject lowered(sx_ctx *cx, const node *n)
{
    subject s = {.cx = cx, .n = n, .move = SX_OP_FUSED};
    const test_tiles tiles = {.lanes = 32, .tile_m = 2, .tile_n = 64};
    const sx_analysis *a = analysis_of(cx, n);
    sx_schedule schedule = schedule_of(a, &tiles);
    s.facts = sx_judge_facts_of(&schedule, a->kind);
    ck_sx_ok(cx, lower_node(cx, "warp", n, &tiles, &s.kernel));
    return s;
}

static node sum_node(sx_ctx *cx, sx_dtype dtype, sx_reducer reducer, int64_t rows, int64_t length)
{
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .reducer = reducer};
    sx_type x = TYPE(dtype, rows, length);
    attr.dims = (sx_ints){1, {1}};
    return lift(cx, SX_OP_REDUCE, &attr, &x, 1);
}

/* Rows whose last elements fill a half of the lanes (of 8 bytes, a quarter) or a part of it, or all. */
START_TEST(test_rows)
{
    static const struct {
        sx_dtype dtype;
        int64_t length;
        uint32_t masks,
            exchanges; /* of a sum; 5 faults for each of 6 exchanges, of 8 bytes one fold less */
    } rows[] = {{SX_F32, 70, 2, 35},  {SX_F32, 80, 1, 35},  {SX_F32, 84, 1, 35},
                {SX_F32, 96, 0, 35},  {SX_F64, 45, 2, 25},  {SX_F64, 40, 1, 25},
                {SX_I32, 49, 1, 35},  {SX_BF16, 69, 2, 35}, {SX_I8, 131, 2, 35},
                {SX_I64, 100, 2, 25}, {SX_F64, 64, 0, 25}};
    for (uint32_t k = 0; k < 2 * SX_COUNT(rows); k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_reducer reducer = k % 2 == 0 ? SX_SUM : SX_MAX;
        node n = sum_node(&cx, rows[k / 2].dtype, reducer, 5, rows[k / 2].length);
        subject s = lowered(&cx, &n);
        s.last = reducer == SX_SUM ? 0 : (uint32_t)rows[k / 2].length % 32;
        try_all(&s, "row");
        ck_assert_msg(s.masks >= rows[k / 2].masks && s.exchanges >= rows[k / 2].exchanges,
                      "row %u: %u masks, %u exchanges", k / 2, s.masks, s.exchanges);
        ck_assert(s.writes >= 2 && s.reads >= 1);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Every reducer of every type of numbers is proven whatever a row ends with; the step of a product of i64 is several
 * instructions. */
START_TEST(test_ends)
{
    static const int64_t lengths[] = {7, 33, 64, 200, 255, 4100};
    sx_reducer reducer = (sx_reducer)_i;
    for (uint32_t t = 0; t < SX_DTYPE_COUNT; t++) {
        sx_ctx cx;
        sx_judge *judge;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
        for (uint32_t k = 0; t != SX_BOOL && k < SX_COUNT(lengths); k++) {
            node n = sum_node(&cx, (sx_dtype)t, reducer, 2, lengths[k]);
            sx_schedule s;
            char what[64];
            sx_schedule_row(32, analysis_of(&cx, &n)->lane_bytes, true, 1, 1, &s);
            (void)snprintf(what, sizeof(what), "%s, reducer %d, length %lld",
                           sx_dtype_name((sx_dtype)t), _i, (long long)lengths[k]);
            expect_proven(&cx, judge, &n, &s, what);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_softmax_and_norm)
{
    for (uint32_t k = 0; k < 3; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        node n = k == 2 ? row_node(&cx, SX_OP_LAYER_NORM, 3, 71, 1)
                        : row_node(&cx, SX_OP_SOFTMAX, 40, 70, k);
        subject s = lowered(&cx, &n);
        try_all(&s, "norm");
        ck_assert_uint_ge(s.exchanges, k == 0 ? 0 : 60);
        ck_assert_uint_ge(s.writes, 2);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_maps)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = map_node(&cx, 3, 5, 71);
    subject s = lowered(&cx, &n);
    try_all(&s, "map");
    ck_assert_uint_ge(s.writes, 4);
    ck_assert_uint_ge(s.reads, 4);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_moves)
{
    for (uint32_t k = 0; k < 4; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_op op = k < 2 ? SX_OP_CONCATENATE : SX_OP_REVERSE;
        sx_dtype dtype = k % 2 == 0 ? SX_F32 : SX_F64;
        sx_attr attr = {.present = sx_op_info_of(op)->attrs, .axis = 1, .dims = {1, {1}}};
        node n = {.count = k < 2 ? 2 : 1, .input = {TYPE(dtype, 3, 45), TYPE(dtype, 3, 33)}};
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, op, &attr, n.input, n.count, &n.result));
        subject s = {.cx = &cx, .n = &n, .move = op, .attr = &attr};
        const test_tiles tiles = {.lanes = 32, .tile_m = 2, .tile_n = 64};
        sx_lowering what = {.kind = SX_LOWER_MOVE,
                            .name = "warp",
                            .schedule = move_schedule(&cx, &tiles),
                            .op = op,
                            .attr = &attr,
                            .input = n.input,
                            .input_count = n.count,
                            .result = &n.result};
        ck_sx_ok(&cx, sx_loop_lower(&cx, &sx_test_warp, &what, &s.kernel));
        try_all(&s, "move");
        ck_assert_uint_ge(s.writes, 4);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge/warp");
    TCase *cases = tcase_create("warp");
    tcase_add_test(cases, test_rows);
    tcase_add_loop_test(cases, test_ends, 0, SX_REDUCER_COUNT);
    tcase_add_test(cases, test_softmax_and_norm);
    tcase_add_test(cases, test_maps);
    tcase_add_test(cases, test_moves);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
