/* Gradients of programs that every rank runs, against values of the program on all ranks: the sum over the ranks of
 * cotangent times output is moved along a direction that moves all ranks' parameters. Polynomials modulo 2^31 - 1,
 * exactly; maxima, which are linear where nobody changes places, in doubles in which every step is exact. */
#include <stdio.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/grad/grad.h"
#include "core/ir/collective.h"
#include "core/ir/shard.h"
#include "tests/lib/region.h"
#include "tests/lib/slope.h"
#include "tests/lib/test.h"

#define PRIME UINT64_C(2147483647)
#define RANKS 6u
#define PARAMETERS 2u
#define DEGREE 8u
#define PROGRAMS 150u
#define STEPS 7u

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static uint64_t power_mod(uint64_t x, uint64_t n)
{
    uint64_t result = 1;
    for (; n > 0; n >>= 1) {
        result = (n & 1) != 0 ? result * x % PRIME : result;
        x = x * x % PRIME;
    }
    return result;
}

/* ---- values on all ranks; x + t v, and cotangents c ---- */

typedef struct {
    const sx_graph *each[RANKS]; /* of the program, then of its gradient */
    sx_eval_mode mode;
    sx_tensor x[RANKS][PARAMETERS], v[RANKS][PARAMETERS], c[RANKS];
} trial;

static sx_tensor drawn(sx_rng *rng, sx_eval_mode mode, const sx_type *type)
{
    int64_t count = sx_tensor_elements(type);
    sx_tensor t = {*type, SX_NEW_ARRAY(&cx, uint64_t, (size_t)count)};
    ck_assert_ptr_nonnull(t.data);
    for (int64_t i = 0; i < count; i++) {
        if (mode == SX_EVAL_MODP) {
            ((uint64_t *)t.data)[i] = sx_rng_below(rng, PRIME);
        } else { /* whole numbers, of which few are equal */
            ((double *)t.data)[i] = (double)sx_rng_below(rng, 4001) - 2000;
        }
    }
    return t;
}

static void begin(trial *t, sx_rng *rng, const sx_graph *graph, sx_eval_mode mode)
{
    *t = (trial){.mode = mode};
    for (uint32_t r = 0; r < RANKS; r++) {
        t->each[r] = graph;
        for (uint32_t k = 0; k < PARAMETERS; k++) {
            t->x[r][k] = drawn(rng, mode, &graph->node[k].type);
            t->v[r][k] = drawn(rng, mode, &graph->node[k].type);
        }
        t->c[r] = drawn(rng, mode, &graph->node[graph->output[0].node.i].type);
    }
}

static uint64_t exact_product(const sx_tensor *a, const sx_tensor *b)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < sx_tensor_elements(&a->type); i++) {
        sum = (sum + ((uint64_t *)a->data)[i] * ((uint64_t *)b->data)[i]) % PRIME;
    }
    return sum;
}

static double real_product(const sx_tensor *a, const sx_tensor *b)
{
    double sum = 0;
    for (int64_t i = 0; i < sx_tensor_elements(&a->type); i++) {
        sum += ((double *)a->data)[i] * ((double *)b->data)[i];
    }
    return sum;
}

/* The sum over all ranks of c y at x + step v. */
static void value_at(const trial *t, double step, uint64_t *exact, double *real)
{
    sx_tensor argument[RANKS * PARAMETERS];
    sx_tensor result[RANKS];
    *exact = 0;
    *real = 0;
    for (uint32_t i = 0; i < RANKS * PARAMETERS; i++) {
        const sx_tensor *x = &t->x[i / PARAMETERS][i % PARAMETERS];
        const sx_tensor *v = &t->v[i / PARAMETERS][i % PARAMETERS];
        int64_t count = sx_tensor_elements(&x->type);
        argument[i] = (sx_tensor){x->type, SX_NEW_ARRAY(&cx, uint64_t, (size_t)count)};
        for (int64_t k = 0; k < count; k++) {
            if (t->mode == SX_EVAL_MODP) {
                ((uint64_t *)argument[i].data)[k] =
                    (((uint64_t *)x->data)[k] + (uint64_t)step * ((uint64_t *)v->data)[k]) % PRIME;
            } else {
                ((double *)argument[i].data)[k] =
                    ((double *)x->data)[k] + step * ((double *)v->data)[k];
            }
        }
    }
    ck_sx_ok(&cx,
             sx_graph_eval_mesh(&cx, t->each, RANKS, t->mode, argument, PARAMETERS, result, 1));
    for (uint32_t r = 0; r < RANKS; r++) {
        if (t->mode == SX_EVAL_MODP) {
            *exact = (*exact + exact_product(&t->c[r], &result[r])) % PRIME;
        } else {
            *real += real_product(&t->c[r], &result[r]);
        }
    }
}

/* L'(0) of a polynomial of degree DEGREE at most: the sum of (-1)^(k + 1) / k times its k-th forward difference. */
static uint64_t exact_slope(const trial *t)
{
    uint64_t value[DEGREE + 1];
    uint64_t slope = 0;
    double none;
    for (uint32_t i = 0; i <= DEGREE; i++) {
        value_at(t, i, &value[i], &none);
    }
    for (uint32_t k = 1; k <= DEGREE; k++) {
        for (uint32_t i = 0; i + k <= DEGREE; i++) {
            value[i] = (value[i + 1] + PRIME - value[i]) % PRIME;
        }
        uint64_t term = value[0] * power_mod(k, PRIME - 2) % PRIME;
        slope = (slope + (k % 2 == 1 ? term : PRIME - term)) % PRIME;
    }
    return slope;
}

/* The sum over all ranks of v times grad(P), which the gradient gives behind the output. */
static void gradient_slope(trial *t, const sx_graph *gradient, uint64_t *exact, double *real)
{
    sx_tensor argument[RANKS * (PARAMETERS + 1)];
    sx_tensor result[RANKS * (PARAMETERS + 1)];
    *exact = 0;
    *real = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        t->each[r] = gradient;
        for (uint32_t k = 0; k <= PARAMETERS; k++) {
            argument[r * (PARAMETERS + 1) + k] = k < PARAMETERS ? t->x[r][k] : t->c[r];
        }
    }
    ck_sx_ok(&cx, sx_graph_eval_mesh(&cx, t->each, RANKS, t->mode, argument, PARAMETERS + 1, result,
                                     PARAMETERS + 1));
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t k = 0; k < PARAMETERS; k++) {
            const sx_tensor *g = &result[r * (PARAMETERS + 1) + 1 + k];
            if (t->mode == SX_EVAL_MODP) {
                *exact = (*exact + exact_product(&t->v[r][k], g)) % PRIME;
            } else {
                *real += real_product(&t->v[r][k], g);
            }
        }
    }
}

static bool agrees_exactly(sx_rng *rng, const sx_graph *program, const sx_graph *gradient)
{
    trial t;
    uint64_t given;
    double none;
    begin(&t, rng, program, SX_EVAL_MODP);
    uint64_t expected = exact_slope(&t);
    gradient_slope(&t, gradient, &given, &none);
    return given == expected;
}

/* ---- random programs: two parameters, collectives along both axes, products ---- */

static bool add_step(sx_rng *rng, sx_graph *graph, sx_node_id *now, uint32_t *products)
{
    static const sx_op op[] = {SX_OP_ALL_REDUCE, SX_OP_ALL_GATHER, SX_OP_REDUCE_SCATTER,
                               SX_OP_ALL_TO_ALL, SX_OP_PERMUTE,    SX_OP_MULTIPLY,
                               SX_OP_ADD};
    sx_op drawn_op = op[sx_rng_below(rng, SX_COUNT(op))];
    bool second = sx_rng_below(rng, 2) == 1;
    sx_rank_pair pair[3];
    sx_attr attr = {.present = sx_op_info_of(drawn_op)->attrs,
                    .axis = (int64_t)sx_rng_below(rng, 2),
                    .split = (int64_t)sx_rng_below(rng, 2),
                    .along = second ? SX_SPAN_LITERAL("b") : SX_SPAN_LITERAL("a"),
                    .ranks = second ? 3 : 2,
                    .pairs = {pair, 0}};
    uint32_t turn = (uint32_t)sx_rng_below(rng, 3);
    for (uint32_t source = 0; source < attr.ranks; source++) {
        if (sx_rng_below(rng, 4) > 0) {
            pair[attr.pairs.count++] = (sx_rank_pair){source, (source + turn) % attr.ranks};
        }
    }
    sx_node_id input[2] = {*now, *now};
    uint32_t count = sx_op_info_of(drawn_op)->input_max;
    if (count == 2) {
        uint32_t other = (uint32_t)sx_rng_below(rng, graph->node_count);
        bool same = sx_type_equal(&graph->node[other].type, &graph->node[now->i].type);
        input[1].i = same ? other : now->i;
        if (drawn_op == SX_OP_MULTIPLY && (*products)++ == 2) { /* degree 8 */
            return false;
        }
        attr.present = 0;
    }
    bool added = sx_graph_add(&cx, graph, drawn_op, &attr, input, count, now) == SX_OK;
    sx_ctx_reset_error(&cx);
    bool large = sx_tensor_elements(&graph->node[graph->node_count - 1].type) > 1000;
    return added && !large;
}

static sx_graph *random_program(sx_rng *rng)
{
    const sx_type type = {SX_F32, 2, {{6, SX_NO_SYMBOL}, {6, SX_NO_SYMBOL}}};
    sx_graph *graph;
    sx_node_id x;
    sx_node_id w;
    sx_node_id now;
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("g"), NULL, &graph));
    ck_sx_ok(&cx, sx_mesh_add_axis(&cx, graph, SX_SPAN_LITERAL("a"), 2));
    ck_sx_ok(&cx, sx_mesh_add_axis(&cx, graph, SX_SPAN_LITERAL("b"), 3));
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "x", false, &type, &x));
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "w", false, &type, &w));
    ck_sx_ok(&cx, sx_build_binary(&cx, graph, SX_OP_ADD, x, w, &now));
    uint32_t products = 0;
    for (uint32_t k = 0; k < STEPS; k++) {
        if (!add_step(rng, graph, &now, &products)) {
            break;
        }
    }
    now.i = graph->node_count - 1;
    ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, SX_SPAN_LITERAL("y"), now));
    ck_sx_ok(&cx, sx_graph_check(&cx, graph));
    return graph;
}

START_TEST(test_random_programs)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    const sx_graph *program = random_program(&rng);
    const sx_graph *gradient = sx_slope_gradient(&cx, program, 0);
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    ck_sx_ok(&cx, sx_graph_print(&cx, program, &text));
    ck_assert_msg(agrees_exactly(&rng, program, gradient), "%.*s", (int)text.len,
                  (const char *)text.ptr);
    sx_buf_fini(&text);
}
END_TEST

/* ---- maxima ---- */

#define HEAD                                                                                     \
    "sx 1 graph \"g\" mesh (a = 2, b = 3) { %x = parameter {name = \"x\", weight = 0} : f64[6] " \
    "%w = parameter {name = \"w\", weight = 0} : f64[6] "
static const char *const extremes[] = {
    HEAD "%m = all_reduce(%x) {reducer = maximum, along = \"b\", ranks = 3} : f64[6] "
         "%y = add(%m, %w) : f64[6] return %y as \"y\" }",
    HEAD "%m = all_reduce(%x) {reducer = minimum, along = \"a\", ranks = 2} : f64[6] "
         "%y = subtract(%w, %m) : f64[6] return %y as \"y\" }",
    HEAD "%s = add(%x, %w) : f64[6] "
         "%y = reduce_scatter(%s) {axis = 0, reducer = maximum, along = \"b\", ranks = 3} : f64[2] "
         "return %y as \"y\" }",
    HEAD "%s = add(%x, %w) : f64[6] "
         "%y = reduce_scatter(%s) {axis = 0, reducer = minimum, along = \"a\", ranks = 2} : f64[3] "
         "return %y as \"y\" }",
};

/* Values are whole numbers below 2^12 and differ by 1 at least or are equal; a step of 2^-14 times directions below
 * 2^11 brings none beyond another, and everything is exact. Equal ones share: the mean of both sides. */
START_TEST(test_extremes)
{
    const double h = 0x1p-14;
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    const sx_graph *program = sx_test_parse(&cx, extremes[(uint32_t)_i % SX_COUNT(extremes)]);
    const sx_graph *gradient = sx_slope_gradient(&cx, program, 0);
    trial t;
    uint64_t none;
    double ahead;
    double behind;
    double given;
    begin(&t, &rng, program, SX_EVAL_F64);
    for (uint32_t r = 0; r < RANKS;
         r++) { /* no equal ones: three would share in thirds, and two of them move */
        for (uint32_t i = 0; i < 6; i++) {
            ((double *)t.x[r][0].data)[i] = 8 * ((double *)t.x[r][0].data)[i] + r;
            ((double *)t.x[r][1].data)[i] *= 8;
        }
    }
    value_at(&t, h, &none, &ahead);
    value_at(&t, -h, &none, &behind);
    gradient_slope(&t, gradient, &none, &given);
    ck_assert_msg((ahead - behind) / (2 * h) == given, "%.17g, not %.17g", given,
                  (ahead - behind) / (2 * h));
}
END_TEST

/* Where ranks are equal they share alike. */
START_TEST(test_equal_ranks)
{
    const sx_graph *gradient = sx_slope_gradient(&cx, sx_test_parse(&cx, extremes[0]), 0);
    double x[6] = {1, 2, 3, 4, 5, 6};
    double c[6] = {6, 6, 6, 6, 6, 6};
    const sx_graph *each[RANKS];
    sx_tensor argument[3 * RANKS];
    sx_tensor result[3 * RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        each[r] = gradient;
        argument[3 * r] = argument[3 * r + 1] = (sx_tensor){gradient->node[0].type, x};
        argument[3 * r + 2] = (sx_tensor){gradient->node[0].type, c};
    }
    ck_sx_ok(&cx, sx_graph_eval_mesh(&cx, each, RANKS, SX_EVAL_F64, argument, 3, result, 3));
    for (uint32_t r = 0; r < RANKS; r++) { /* three ranks have c = 6 each, and share 18 */
        ck_assert(((double *)result[3 * r + 1].data)[0] == 6);
        ck_assert(((double *)result[3 * r + 2].data)[0] == 6);
    }
}
END_TEST

/* ---- the judge sees faults; what is refused ---- */

START_TEST(test_faults)
{
    sx_rng rng = {sx_test_seed()};
#define BODY(op)                                                                                 \
    "sx 1 graph \"g\" mesh (a = 2, b = 3) { %x = parameter {name = \"x\", weight = 0} : f32[6] " \
    "%w = parameter {name = \"w\", weight = 0} : f32[6] %s = multiply(%x, %w) : f32[6] " op
    const sx_graph *program = sx_test_parse(
        &cx, BODY("%y = permute(%s) {along = \"b\", ranks = 3, pairs = [[0, 1], [1, 2]]} : f32[6] "
                  "return %y as \"y\" }"));
#define BACK(pairs)                                                                             \
    BODY("%c = parameter {name = \"c\", weight = 0} : f32[6] "                                  \
         "%g = permute(%c) {along = \"b\", ranks = 3, pairs = " pairs "} : f32[6] "             \
         "%gx = multiply(%g, %w) : f32[6] %gw = multiply(%g, %x) : f32[6] return %s as \"y\", " \
         "%gx as \"grad(x)\", %gw as \"grad(w)\" }")
    ck_assert(agrees_exactly(&rng, program, sx_test_parse(&cx, BACK("[[1, 0], [2, 1]]"))));
    ck_assert(!agrees_exactly(&rng, program, sx_test_parse(&cx, BACK("[[0, 1], [1, 2]]"))));
    ck_assert(!agrees_exactly(&rng, program, sx_test_parse(&cx, BACK("[[0, 2], [1, 0], [2, 1]]"))));
}
END_TEST

/* A step that sends in each round, forth and back: of degree 7 in x and w. */
START_TEST(test_scan)
{
    sx_rng rng = {sx_test_seed()};
    const sx_graph *program = sx_test_parse(
        &cx,
        "sx 1 graph \"g\" mesh (a = 2, b = 3) { %x = parameter {name = \"x\", weight = 0} : f32[6] "
        "%w = parameter {name = \"w\", weight = 0} : f32[6] "
        "%y = scan(%x, %w) {carried = 1, sliced = 1, step = graph { "
        "%s = parameter {name = \"s\", weight = 0} : f32[6] "
        "%f = parameter {name = \"f\", weight = 0} : f32[] "
        "%r = broadcast_in_dim(%f) : f32[6] %t = multiply(%s, %r) : f32[6] "
        "%u = all_reduce(%t) {reducer = add, along = \"b\", ranks = 3} : f32[6] "
        "%v = all_to_all(%u) {split = 0, axis = 0, along = \"a\", ranks = 2} : f32[6] "
        "return %v as \"v\" }} : f32[6] return %y as \"y\" }");
    ck_assert(agrees_exactly(&rng, program, sx_slope_gradient(&cx, program, 0)));
}
END_TEST

START_TEST(test_refused)
{
    sx_gradient made;
    const sx_span wrt = SX_SPAN_LITERAL("x");
    const sx_grad_request request = {.wrt = &wrt, .wrt_count = 1};
    const sx_graph *product = sx_test_parse(
        &cx, BODY("%y = all_reduce(%s) {reducer = multiply, along = \"b\", ranks = 3} : f32[6] "
                  "return %y as \"y\" }"));
    const sx_graph *placed = sx_test_parse(&cx, "sx 1 graph \"g\" mesh (a = 2) { %x = parameter "
                                                "{name = \"x\", weight = 0} : f32[6] {a = S(0)} "
                                                "return %x as \"y\" }");
    ck_sx_fails(&cx, sx_grad_make(&cx, product, &request, &made), SX_UNIMPLEMENTED,
                "node 3 (all_reduce): gradient of all_reduce by multiply");
    ck_sx_fails(&cx, sx_grad_make(&cx, placed, &request, &made), SX_UNIMPLEMENTED,
                "gradient of a program with placements");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grad/mesh");
    TCase *tcase = tcase_create("mesh");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_random_programs, 0, (int)PROGRAMS);
    tcase_add_loop_test(tcase, test_extremes, 0, 40);
    tcase_add_test(tcase, test_equal_ranks);
    tcase_add_test(tcase, test_faults);
    tcase_add_test(tcase, test_scan);
    tcase_add_test(tcase, test_refused);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
