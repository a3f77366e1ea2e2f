/* Programs of several ranks: every collective element by element against its definition, the order of sums, scans
 * whose steps have collectives, and ranks that do not fit together. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/eval/eval.h"
#include "core/ir/collective.h"
#include "core/ir/shard.h"
#include "core/base/rng.h"
#include "tests/lib/region.h"
#include "tests/lib/test.h"

#define RANKS_MAX 24u
#define DRAWS 400u

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)256 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- definitions, over i64 ---- */

typedef struct {
    uint32_t size[3]; /* of the mesh */
    uint32_t axes, along, ranks;
    int64_t extent[3];
    uint32_t axis, split;
    sx_op op;
    sx_reducer reducer;
    sx_rank_pair pair[4];
    uint32_t pair_count;
    int64_t *x[RANKS_MAX];
} drawn;

/* The coordinate of a rank along each axis, the last axis fastest; and back. */
static void place_of(const drawn *d, uint32_t rank, uint32_t place[3])
{
    for (uint32_t a = d->axes; a-- > 0;) {
        place[a] = rank % d->size[a];
        rank /= d->size[a];
    }
}

static uint32_t rank_at(const drawn *d, const uint32_t place[3])
{
    uint32_t rank = 0;
    for (uint32_t a = 0; a < d->axes; a++) {
        rank = rank * d->size[a] + place[a];
    }
    return rank;
}

/* Element of what the k-th rank that takes part with `rank` holds. */
static int64_t held(const drawn *d, uint32_t rank, uint32_t k, const int64_t at[3])
{
    uint32_t place[3];
    place_of(d, rank, place);
    place[d->along] = k;
    return d->x[rank_at(d, place)][(at[0] * d->extent[1] + at[1]) * d->extent[2] + at[2]];
}

static int64_t combined(const drawn *d, uint32_t rank, const int64_t at[3])
{
    int64_t sum = held(d, rank, 0, at);
    for (uint32_t k = 1; k < d->size[d->along]; k++) {
        int64_t x = held(d, rank, k, at);
        sum = d->reducer == SX_SUM       ? sum + x
              : d->reducer == SX_PRODUCT ? sum * x
              : d->reducer == SX_MAX     ? (x > sum ? x : sum)
                                         : (x < sum ? x : sum);
    }
    return sum;
}

/* The element of the result on `rank` at `at`. */
static int64_t defined(const drawn *d, uint32_t rank, const int64_t at[3])
{
    uint32_t place[3];
    uint32_t n = d->size[d->along];
    int64_t from[3] = {at[0], at[1], at[2]};
    place_of(d, rank, place);
    uint32_t self = place[d->along];
    int64_t each = d->extent[d->axis]; /* of what one rank gives, along `axis` */
    switch ((int)d->op) {
    case SX_OP_ALL_REDUCE: return combined(d, rank, at);
    case SX_OP_ALL_GATHER:
        from[d->axis] = at[d->axis] % each;
        return held(d, rank, (uint32_t)(at[d->axis] / each), from);
    case SX_OP_REDUCE_SCATTER: from[d->axis] += self * (each / n); return combined(d, rank, from);
    case SX_OP_ALL_TO_ALL:
        each = d->split == d->axis ? each / n : each;
        from[d->axis] = at[d->axis] % each;
        from[d->split] += self * (d->extent[d->split] / n);
        return held(d, rank, (uint32_t)(at[d->axis] / each), from);
    case SX_OP_PERMUTE:
        for (uint32_t i = 0; i < d->pair_count; i++) {
            if (d->pair[i].target == (int64_t)self) {
                return held(d, rank, (uint32_t)d->pair[i].source, at);
            }
        }
        return 0;
    default: return self;
    }
}

/* Some ranks send to some others, sources ascending. */
static void draw_pairs(sx_rng *rng, drawn *d)
{
    uint32_t n = d->size[d->along];
    uint32_t taken = 0;
    for (uint32_t source = 0; source < n; source++) {
        uint32_t target = (uint32_t)sx_rng_below(rng, n);
        if (sx_rng_below(rng, 3) > 0 && (taken >> target & 1) == 0) {
            taken |= 1u << target;
            d->pair[d->pair_count++] = (sx_rank_pair){source, target};
        }
    }
}

static void draw(sx_rng *rng, drawn *d)
{
    static const sx_op op[] = {SX_OP_ALL_REDUCE, SX_OP_ALL_GATHER, SX_OP_REDUCE_SCATTER,
                               SX_OP_ALL_TO_ALL, SX_OP_PERMUTE,    SX_OP_AXIS_INDEX};
    *d = (drawn){.axes = 1 + (uint32_t)sx_rng_below(rng, 3), .ranks = 1};
    for (uint32_t a = 0; a < d->axes; a++) {
        d->size[a] = 1 + (uint32_t)sx_rng_below(rng, a == 0 ? 4 : a == 1 ? 3 : 2);
        d->ranks *= d->size[a];
    }
    d->along = (uint32_t)sx_rng_below(rng, d->axes);
    d->op = op[sx_rng_below(rng, SX_COUNT(op))];
    d->reducer = (sx_reducer)sx_rng_below(rng, SX_REDUCER_COUNT);
    d->axis = (uint32_t)sx_rng_below(rng, 3);
    d->split = (uint32_t)sx_rng_below(rng, 3);
    uint32_t cut = d->op == SX_OP_ALL_TO_ALL ? d->split : d->axis;
    for (uint32_t k = 0; k < 3; k++) {
        int64_t least = sx_rng_below(rng, 20) > 0 ? 1 : 0;
        d->extent[k] = (least + (int64_t)sx_rng_below(rng, 3)) * (k == cut ? d->size[d->along] : 1);
    }
    draw_pairs(rng, d);
    int64_t count = d->extent[0] * d->extent[1] * d->extent[2];
    for (uint32_t r = 0; r < d->ranks; r++) {
        d->x[r] = SX_NEW_ARRAY(&cx, int64_t, (size_t)count);
        for (int64_t i = 0; i < count; i++) {
            d->x[r][i] = (int64_t)sx_rng_below(rng, 2001) - 1000;
        }
    }
}

static sx_graph *graph_of(const drawn *d)
{
    static const char *const name[] = {"a", "b", "c"};
    sx_graph *graph;
    sx_node_id x;
    sx_node_id y;
    sx_type type = {.dtype = SX_I64, .rank = 3};
    sx_attr attr = {.present = sx_op_info_of(d->op)->attrs,
                    .axis = d->axis,
                    .split = d->split,
                    .reducer = d->reducer,
                    .along = sx_span_of(name[d->along]),
                    .ranks = d->size[d->along],
                    .pairs = {d->pair, d->pair_count}};
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("g"), NULL, &graph));
    for (uint32_t a = 0; a < d->axes; a++) {
        ck_sx_ok(&cx, sx_mesh_add_axis(&cx, graph, sx_span_of(name[a]), d->size[a]));
    }
    for (uint32_t k = 0; k < 3; k++) {
        type.dim[k] = sx_dim_of(d->extent[k]);
    }
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "x", false, &type, &x));
    ck_sx_ok(&cx, sx_graph_add(&cx, graph, d->op, &attr, &x, sx_op_info_of(d->op)->input_max, &y));
    ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, SX_SPAN_LITERAL("y"), y));
    ck_sx_ok(&cx, sx_graph_check(&cx, graph));
    return graph;
}

START_TEST(test_definitions)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    drawn d;
    draw(&rng, &d);
    const sx_graph *graph = graph_of(&d);
    const sx_graph *each[RANKS_MAX];
    sx_tensor argument[RANKS_MAX];
    sx_tensor result[RANKS_MAX];
    for (uint32_t r = 0; r < d.ranks; r++) {
        each[r] = graph;
        argument[r] = (sx_tensor){graph->node[0].type, d.x[r]};
    }
    ck_sx_ok(&cx, sx_graph_eval_mesh(&cx, each, d.ranks, SX_EVAL_TYPED, argument, 1, result, 1));
    const sx_type *type = &graph->node[1].type;
    for (uint32_t r = 0; r < d.ranks; r++) {
        const int64_t *y = result[r].data;
        int64_t extent[3] = {1, 1, 1};
        ck_assert(sx_type_equal(&result[r].type, type));
        for (uint32_t k = 0; k < type->rank; k++) {
            extent[k] = type->dim[k].scale;
        }
        for (int64_t i = 0; i < extent[0] * extent[1] * extent[2]; i++) {
            int64_t at[3] = {i / extent[2] / extent[1], i / extent[2] % extent[1], i % extent[2]};
            ck_assert_msg(y[i] == defined(&d, r, at), "%s: rank %u, element %lld: %lld, not %lld",
                          sx_op_info_of(d.op)->name, r, (long long)i, (long long)y[i],
                          (long long)defined(&d, r, at));
        }
    }
    if (d.size[d.along] == 1) { /* one rank takes part: the interpreter of one program knows it */
        sx_tensor alone;
        ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, argument, 1, &alone, 1));
        ck_assert_int_eq(
            memcmp(alone.data, result[0].data, (size_t)sx_tensor_elements(type) * sizeof(int64_t)),
            0);
    } else {
        ck_sx_fails(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, argument, 1, result, 1), SX_INPUT,
                    "ranks take part, and one is evaluated");
    }
}
END_TEST

/* ---- sums ---- */

#define REDUCE(type, op)                                                                        \
    "sx 1 graph \"g\" mesh (dp = 4) { %x = parameter {name = \"x\", weight = 0} : " type "[4] " \
    "%y = " op " return %y as \"y\" }"

static void reduce_four(const char *text, const double value[4], double expected)
{
    const sx_graph *graph = sx_test_parse(&cx, text);
    const sx_graph *each[4] = {graph, graph, graph, graph};
    double x[4][4];
    sx_tensor argument[4];
    sx_tensor result[4];
    for (uint32_t r = 0; r < 4; r++) {
        argument[r] = (sx_tensor){graph->node[0].type, x[r]};
        for (uint32_t i = 0; i < 4; i++) {
            x[r][i] = value[r];
        }
    }
    ck_sx_ok(&cx, sx_graph_eval_mesh(&cx, each, 4, SX_EVAL_TYPED, argument, 1, result, 1));
    for (uint32_t r = 0; r < 4; r++) {
        double y = *(double *)result[r].data;
        ck_assert_msg(y == expected || (isnan(y) && isnan(expected)), "rank %u: %a, not %a", r, y,
                      expected);
    }
}

START_TEST(test_order_and_rounding)
{
    static const char sum[] =
        REDUCE("f32", "all_reduce(%x) {reducer = add, along = \"dp\", ranks = 4} : f32[4]");
    static const char part[] = REDUCE(
        "f32", "reduce_scatter(%x) {axis = 0, reducer = add, along = \"dp\", ranks = 4} : f32[1]");
    static const char narrow[] =
        REDUCE("bf16", "all_reduce(%x) {reducer = add, along = \"dp\", ranks = 4} : bf16[4]");
    static const char greatest[] =
        REDUCE("f32", "all_reduce(%x) {reducer = maximum, along = \"dp\", ranks = 4} : f32[4]");
    /* ((2^24 + 1) + 1) - 2^24 is 0 in f32 from rank 0 on; in any order in which 1 + 1 comes first it is 2. */
    const double order[4] = {0x1p24, 1, 1, -0x1p24};
    /* The same from the other end: -2^24 first, then all is exact. */
    const double back[4] = {0x1p24, -0x1p24, 1, 1};
    /* In bf16 each 1 would be lost beside 256; in f32 they are not, and 259 is rounded once, to 260. */
    const double once[4] = {256, 1, 1, 1};
    const double nan[4] = {1, (double)NAN, 3, 2};
    reduce_four(sum, order, 0);
    reduce_four(part, order, 0);
    reduce_four(sum, back, 2);
    reduce_four(narrow, once, 260);
    reduce_four(greatest, nan, (double)NAN);
}
END_TEST

/* Over one rank every collective is its operand, to the bit, as the canonical form has it: -0 stays -0. */
START_TEST(test_one_rank)
{
    static const char *const op[] = {"all_reduce(%x) {reducer = add, ",
                                     "all_reduce(%x) {reducer = multiply, ",
                                     "all_reduce(%x) {reducer = maximum, ",
                                     "all_gather(%x) {axis = 0, ",
                                     "reduce_scatter(%x) {axis = 0, reducer = add, ",
                                     "all_to_all(%x) {split = 0, axis = 0, ",
                                     "permute(%x) {pairs = [[0, 0]], "};
    double x[4] = {-0.0, 0.0, (double)INFINITY, -3};
    for (uint32_t i = 0; i < SX_COUNT(op); i++) {
        char text[512];
        sx_graph *canon;
        sx_tensor result[2];
        (void)snprintf(
            text, sizeof(text),
            "sx 1 graph \"g\" mesh (dp = 1) { %%x = parameter {name = \"x\", weight = 0} "
            ": f32[4] %%y = %salong = \"dp\", ranks = 1} : f32[4] return %%y as \"y\" }",
            op[i]);
        const sx_graph *graph = sx_test_parse(&cx, text);
        sx_tensor argument = {graph->node[0].type, x};
        ck_sx_ok(&cx, sx_graph_canon(&cx, graph, &canon));
        ck_assert_uint_eq(canon->node_count, 1);
        ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, &argument, 1, &result[0], 1));
        ck_sx_ok(&cx, sx_graph_eval(&cx, canon, SX_EVAL_TYPED, &argument, 1, &result[1], 1));
        ck_assert_msg(memcmp(result[0].data, x, sizeof(x)) == 0, "%s", op[i]);
        ck_assert_mem_eq(result[1].data, x, sizeof(x));
    }
}
END_TEST

/* ---- scans ---- */

/* s is summed over the ranks in each round, with a slice of x on top; ranks have their own. */
START_TEST(test_scan)
{
    const sx_graph *graph = sx_test_parse(
        &cx, "sx 1 graph \"g\" mesh (tp = 3) { %s = parameter {name = \"s\", weight = 0} : i64[] "
             "%x = parameter {name = \"x\", weight = 0} : i64[5] "
             "%last, %rows = scan(%s, %x) {carried = 1, sliced = 1, step = graph { "
             "%s = parameter {name = \"s\", weight = 0} : i64[] "
             "%x = parameter {name = \"x\", weight = 0} : i64[] %t = add(%s, %x) : i64[] "
             "%u = all_reduce(%t) {reducer = add, along = \"tp\", ranks = 3} : i64[] "
             "%i = axis_index {along = \"tp\", ranks = 3} : i64[] %v = add(%u, %i) : i64[] "
             "return %v as \"v\", %t as \"t\" }} : i64[], i64[5] return %last as \"last\", %rows "
             "as \"rows\" }");
    const sx_graph *each[3] = {graph, graph, graph};
    int64_t s[3] = {1, 2, 3};
    int64_t x[3][5];
    sx_tensor argument[6];
    sx_tensor result[6];
    for (uint32_t r = 0; r < 3; r++) {
        for (int64_t i = 0; i < 5; i++) {
            x[r][i] = 10 * (r + 1) + i;
        }
        argument[2 * r] = (sx_tensor){graph->node[0].type, &s[r]};
        argument[2 * r + 1] = (sx_tensor){graph->node[1].type, x[r]};
    }
    ck_sx_ok(&cx, sx_graph_eval_mesh(&cx, each, 3, SX_EVAL_TYPED, argument, 2, result, 2));
    int64_t now[3] = {1, 2, 3};
    for (int64_t i = 0; i < 5; i++) {
        int64_t sum = 0;
        for (uint32_t r = 0; r < 3; r++) {
            ck_assert_int_eq(((int64_t *)result[2 * r + 1].data)[i], now[r] + x[r][i]);
            sum += now[r] + x[r][i];
        }
        for (uint32_t r = 0; r < 3; r++) {
            now[r] = sum + r;
        }
    }
    for (uint32_t r = 0; r < 3; r++) {
        ck_assert_int_eq(*(int64_t *)result[2 * r].data, now[r]);
    }
}
END_TEST

/* ---- ranks that do not fit together ---- */

static const char symbolic[] =
    "sx 1 graph \"g\" (n in [1, 9]) mesh (dp = 2, tp = 2) { "
    "%x = parameter {name = \"x\", weight = 0} : f32[n, 2] %e = negate(%x) : f32[n, 2] "
    "%y = all_gather(%e) {axis = 1, along = \"tp\", ranks = 2} : f32[n, 4] return %y as \"y\" }";

static const sx_graph *bound_to(const sx_graph *graph, int64_t n)
{
    sx_graph *bound;
    const sx_binding binding = {SX_SPAN_LITERAL("n"), n};
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, &binding, 1, &bound));
    return bound;
}

/* Along tp ranks 0, 1 and ranks 2, 3 take part: extents may differ between the pairs, not within one. */
START_TEST(test_shapes)
{
    const sx_graph *graph = sx_test_parse(&cx, symbolic);
    const sx_graph *two = bound_to(graph, 2);
    const sx_graph *three = bound_to(graph, 3);
    const sx_graph *fit[4] = {two, two, three, three};
    const sx_graph *unfit[4] = {two, two, three, two};
    const sx_graph *open[4] = {graph, graph, graph, graph};
    double x[6] = {1, 2, 3, 4, 5, 6};
    sx_tensor argument[4];
    sx_tensor result[4];
    for (uint32_t r = 0; r < 4; r++) {
        argument[r] = (sx_tensor){fit[r]->node[0].type, x};
    }
    ck_sx_ok(&cx, sx_graph_eval_mesh(&cx, fit, 4, SX_EVAL_F64, argument, 1, result, 1));
    ck_assert(sx_type_equal(&result[0].type, &two->node[2].type));
    ck_assert(sx_type_equal(&result[3].type, &three->node[2].type));
    argument[3].type = two->node[0].type;
    ck_sx_fails(&cx, sx_graph_eval_mesh(&cx, unfit, 4, SX_EVAL_F64, argument, 1, result, 1),
                SX_INPUT,
                "node 2 (all_gather along \"tp\"): the operand is f32[3, 2] on rank 2, f32[2, 2] "
                "on rank 3");
    ck_sx_fails(&cx, sx_graph_eval_mesh(&cx, fit, 4, SX_EVAL_F64, argument, 1, result, 1), SX_INPUT,
                "rank 3: parameter 0: the argument's type differs");
    ck_sx_fails(&cx, sx_graph_eval_mesh(&cx, fit, 4, SX_EVAL_F64, argument, 2, result, 1), SX_INPUT,
                "rank 0: 2 arguments for 1 parameters");
    ck_sx_fails(&cx, sx_graph_eval_mesh(&cx, fit, 3, SX_EVAL_F64, argument, 1, result, 1), SX_INPUT,
                "3 ranks and 1 results, it has 4 and 1");
    ck_sx_fails(&cx, sx_graph_eval_mesh(&cx, open, 4, SX_EVAL_F64, argument, 1, result, 1),
                SX_INPUT, "node 0: a symbolic dimension has no value");
}
END_TEST

START_TEST(test_programs)
{
    double x[8] = {0};
    sx_tensor result[2];
    const sx_graph *graph[2] = {
        sx_test_parse(
            &cx,
            "sx 1 graph \"g\" mesh (dp = 2) { %x = parameter {name = \"x\", weight = 0} : f32[8] "
            "%y = negate(%x) : f32[8] return %y as \"y\" }"),
        sx_test_parse(
            &cx,
            "sx 1 graph \"g\" mesh (dp = 2) { %x = parameter {name = \"x\", weight = 0} : f32[8] "
            "%y = abs(%x) : f32[8] return %y as \"y\" }")};
    const sx_graph *placed = sx_test_parse(&cx, "sx 1 graph \"g\" mesh (dp = 2) { %x = parameter "
                                                "{name = \"x\", weight = 0} : f32[8] {dp = S(0)} "
                                                "return %x as \"y\" }");
    const sx_graph *alone =
        sx_test_parse(&cx, "sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : f32[8] "
                           "return %x as \"y\" }");
    sx_tensor argument[2] = {{graph[0]->node[0].type, x}, {graph[0]->node[0].type, x}};
    ck_sx_fails(&cx, sx_graph_eval_mesh(&cx, graph, 2, SX_EVAL_F64, argument, 1, result, 1),
                SX_INPUT, "rank 1 has another program than rank 0");
    ck_sx_fails(&cx, sx_graph_eval_mesh(&cx, &placed, 1, SX_EVAL_F64, argument, 1, result, 1),
                SX_INPUT, "it has placements");
    ck_sx_fails(&cx, sx_graph_eval_mesh(&cx, &alone, 1, SX_EVAL_F64, argument, 1, result, 1),
                SX_INPUT, "it has no mesh");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("eval/mesh");
    TCase *tcase = tcase_create("mesh");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_definitions, 0, (int)DRAWS);
    tcase_add_test(tcase, test_order_and_rounding);
    tcase_add_test(tcase, test_one_rank);
    tcase_add_test(tcase, test_scan);
    tcase_add_test(tcase, test_shapes);
    tcase_add_test(tcase, test_programs);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
