/* The reference of verification is the interpreter, only faster: every operation in both modes, random
 * programs, and contractions large enough to have several panels, blocks and threads. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/verify/narrow.h"
#include "client/verify/reference.h"
#include "tests/lib/gen_graph.h"
#include "tests/lib/ir.h"

#define OUTPUTS_MAX 8
typedef struct {
    sx_ctx *cx;
    sx_buf raw[64]; /* of the parameters, in their order */
    uint32_t taken;
    const sx_graph *graph;
    sx_tensor exact[OUTPUTS_MAX], typed[OUTPUTS_MAX];
} fixture;

static sx_code give_parameter(sx_ctx *cx, void *self, const sx_attr *attr, const sx_type *type,
                              sx_span *raw)
{
    fixture *f = self;
    (void)cx;
    (void)attr;
    (void)type;
    *raw = sx_buf_span(&f->raw[f->taken++]);
    return SX_OK;
}

static sx_tensor copy_of(const fixture *f, const sx_type *type, const sx_cell *cell,
                         const float *raw)
{
    size_t count = (size_t)sx_tensor_elements(type);
    sx_cell *copy = SX_NEW_ARRAY(f->cx, sx_cell, count + 1);
    ck_assert_ptr_nonnull(copy);
    for (size_t i = 0; i < count; i++) {
        copy[i] = cell != NULL ? cell[i] : (sx_cell){.f = (double)raw[i]};
    }
    return (sx_tensor){*type, copy};
}

static sx_code take_output(sx_ctx *cx, void *self, const sx_output *output, const sxv_pair *pair)
{
    fixture *f = self;
    (void)cx;
    ck_assert((pair->typed_f32 != NULL) == (pair->type->dtype == SX_F32));
    for (uint32_t k = 0; k < f->graph->output_count; k++) {
        if (sx_span_equal(f->graph->output[k].name, output->name)) {
            f->typed[k] = copy_of(f, pair->type, pair->typed, pair->typed_f32);
            if (pair->exact != NULL) {
                f->exact[k] = copy_of(f, pair->type, pair->exact, NULL);
            }
        }
    }
    return SX_OK;
}

/* Doubles that differ by no more than what a fused multiply-add saves in a sum of `length` terms below 10. */
static void near(const sx_tensor *a, const sx_tensor *b, double length, const char *what)
{
    const double *x = a->data;
    const double *y = b->data;
    for (int64_t i = 0; i < sx_tensor_elements(&a->type); i++) {
        bool same = x[i] == y[i] || (isnan(x[i]) && isnan(y[i]));
        ck_assert_msg(same || fabs(x[i] - y[i]) <= 100 * length * length * 0x1p-53,
                      "%s: element %lld is %.17g, the interpreter has %.17g", what, (long long)i,
                      x[i], y[i]);
    }
}

/* Both modes against the interpreter; `length` 0: exact, too, to the bit. */
static void compare(sx_ctx *cx, sx_rng *rng, const sx_graph *graph, uint32_t threads, double length,
                    const char *what)
{
    fixture f = {.cx = cx, .graph = graph};
    sx_tensor argument[64], want[OUTPUTS_MAX];
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->node[n].op == SX_OP_PARAMETER) {
            sx_test_tensor(cx, rng, SX_EVAL_TYPED, &graph->node[n].type, &argument[count]);
            sx_buf_init(&f.raw[count], (size_t)1 << 28);
            ck_sx_ok(cx, sx_tensor_pack(cx, &argument[count], &f.raw[count]));
            ck_sx_ok(cx, sx_tensor_unpack(cx, &graph->node[n].type, SX_EVAL_TYPED,
                                          sx_buf_span(&f.raw[count]), &argument[count]));
            count++;
        }
    }
    sxv_reference reference = {.bytes_max = (size_t)1 << 30};
    sxv_reader reader = {&f, give_parameter, take_output};
    ck_sx_ok(cx, sxr_pool_new(cx, threads, &reference.pool));
    ck_sx_ok(cx,
             sx_graph_eval(cx, graph, SX_EVAL_TYPED, argument, count, want, graph->output_count));
    for (uint32_t both = 0; both < 2;
         both++) { /* the rounded results are the same with and without the exact ones */
        reference.exact = both == 1;
        f.taken = 0;
        ck_sx_ok(cx, sxv_reference_run(cx, &reference, graph, &reader));
        for (uint32_t k = 0; k < graph->output_count; k++) {
            sx_test_tensor_equal(&f.typed[k], &want[k], what);
        }
    }
    sxr_pool_free(reference.pool);
    ck_sx_ok(cx, sx_graph_eval(cx, graph, SX_EVAL_F64, argument, count, want, graph->output_count));
    for (uint32_t k = 0; k < graph->output_count; k++) {
        if (length == 0 || sx_dtype_class_of(want[k].type.dtype) != SX_CLASS_FLOAT) {
            sx_test_tensor_equal(&f.exact[k], &want[k], what);
        } else {
            near(&f.exact[k], &want[k], length, what);
        }
    }
    for (uint32_t k = 0; k < count; k++) {
        sx_buf_fini(&f.raw[k]);
    }
}

static sx_graph *graph_of_op(sx_ctx *cx, const sx_test_op *made)
{
    sx_graph *graph;
    sx_node_id input[SX_TEST_INPUTS_MAX], id;
    static const char *const name[] = {"a", "b", "c", "d", "e"};
    ck_sx_ok(cx, sx_graph_make(cx, SX_SPAN_LITERAL("g"), NULL, &graph));
    for (uint32_t k = 0; k < made->input_count; k++) {
        ck_sx_ok(cx, sx_build_parameter(cx, graph, name[k], false, &made->input[k], &input[k]));
    }
    ck_sx_ok(cx, sx_graph_add(cx, graph, made->op, &made->attr, input, made->input_count, &id));
    ck_sx_ok(cx, sx_graph_add_output(cx, graph, SX_SPAN_LITERAL("y"), id));
    return graph;
}

#define INSTANCES 40
START_TEST(test_operations)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t op = 0; op < SX_OP_COUNT; op++) {
        if (op == SX_OP_PARAMETER || op == SX_OP_FUSED) {
            continue;
        }
        bool sums =
            op == SX_OP_DOT_GENERAL || op == SX_OP_CONVOLUTION || sx_op_is_composite((sx_op)op);
        for (uint32_t i = 0; i < INSTANCES; i++) {
            sx_ctx cx;
            sx_test_op made;
            sx_ctx_init(&cx, SX_ARENA_DEFAULT);
            sx_test_op_make(&cx, &rng, (sx_op)op, &made);
            compare(&cx, &rng, graph_of_op(&cx, &made), 1 + i % 3, sums ? 100 : 0,
                    sx_op_info_of((sx_op)op)->name);
            sx_ctx_fini(&cx);
        }
    }
}
END_TEST

/* Typed results are the interpreter's to the bit; in double precision a fused multiply-add may turn a
 * comparison, so that is not asked of whole programs. */
#define GRAPHS 150
START_TEST(test_programs)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t g = 0; g < GRAPHS; g++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_gen_options options = sx_gen_default();
        options.symbols = 0;
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        compare(&cx, &rng, graph, 1 + g % 3, (double)INFINITY, "program");
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Prime extents beyond one block of rows, one panel of columns and one strip of steps. */
static const char *const large[] = {
    "%x = parameter {name = \"x\", weight = 0} : f32[2, 29, 601]\n"
    "%w = parameter {name = \"w\", weight = 0} : f32[2, 601, 67]\n"
    "%y = dot_general(%x, %w) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract "
    "= [1]} : f32[2, 29, 67]\n",
    "%x = parameter {name = \"x\", weight = 0} : f32[37, 5, 61]\n"
    "%w = parameter {name = \"w\", weight = 0} : f32[61, 71, 5]\n"
    "%y = dot_general(%x, %w) {lhs_contract = [2, 1], rhs_contract = [0, 2]} : f32[37, 71]\n",
    "%x = parameter {name = \"x\", weight = 0} : f32[2, 6, 23, 19]\n"
    "%w = parameter {name = \"w\", weight = 0} : f32[10, 3, 5, 3]\n"
    "%y = convolution(%x, %w) {stride = [2, 1], low = [2, 1], high = [1, 2], dilation = [1, 2], "
    "groups = 2} : f32[2, 10, 11, 18]\n",
    "%x = parameter {name = \"x\", weight = 0} : f32[1, 131, 23]\n"
    "%w = parameter {name = \"w\", weight = 0} : f32[19, 131, 3]\n"
    "%y = convolution(%x, %w) {stride = [1], low = [1], high = [1], dilation = [1], groups = 1} : "
    "f32[1, 19, 23]\n",
};

START_TEST(test_large)
{
    sx_ctx cx;
    sx_rng rng = {sx_test_seed()};
    char text[1024];
    sx_graph *graph;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    (void)snprintf(text, sizeof(text), "sx 1\ngraph \"g\" () {\n%sreturn %%y as \"y\"\n}\n",
                   large[_i]);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    for (uint32_t threads = 1; threads <= 3; threads++) {
        compare(&cx, &rng, graph, threads, 601, "large");
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* What is alive at once counts, not what was ever there; beyond the limit it says so. */
START_TEST(test_memory)
{
    sx_ctx cx;
    sx_graph *graph;
    char text[8192];
    size_t used = (size_t)snprintf(
        text, sizeof(text),
        "sx 1\ngraph \"g\" () {\n%%0 = parameter {name = \"x\", weight = 0} : f32[4096]\n");
    for (uint32_t i = 1; i <= 100; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "%%%u = tanh(%%%u) : f32[4096]\n", i, i - 1);
    }
    (void)snprintf(text + used, sizeof(text) - used, "return %%100 as \"y\"\n}\n");
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    fixture f = {.cx = &cx, .graph = graph};
    sxv_reader reader = {&f, give_parameter, take_output};
    sxv_reference reference = {.bytes_max = (size_t)2 * 4096 * (4 + 8), .exact = true};
    sx_buf_init(&f.raw[0], 1 << 20);
    for (uint32_t i = 0; i < 4096; i++) {
        sx_buf_put(&f.raw[0], &(float){0.5F}, sizeof(float));
    }
    ck_sx_ok(&cx, sxr_pool_new(&cx, 1, &reference.pool));
    ck_sx_ok(&cx, sxv_reference_run(&cx, &reference, graph, &reader));
    reference.bytes_max = (size_t)2 * 4096 * 4;
    f.taken = 0;
    ck_sx_fails(&cx, sxv_reference_run(&cx, &reference, graph, &reader), SX_LIMIT, "alive at once");
    reference.exact = false; /* two thirds of the memory are those of double precision */
    f.taken = 0;
    sx_ctx_reset_error(&cx);
    ck_sx_ok(&cx, sxv_reference_run(&cx, &reference, graph, &reader));
    sxr_pool_free(reference.pool);
    sx_buf_fini(&f.raw[0]);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- operations on f32 that are carried out in f32 ---- */

/* What the C library says of doubles, rounded once. */
static float by_library(sx_op op, double x, double y)
{
    switch ((int)op) {
    case SX_OP_NEGATE: return (float)-x;
    case SX_OP_ABS: return (float)fabs(x);
    case SX_OP_SQRT: return (float)sqrt(x);
    case SX_OP_ADD: return (float)(x + y);
    case SX_OP_SUBTRACT: return (float)(x - y);
    case SX_OP_MULTIPLY: return (float)(x * y);
    case SX_OP_DIVIDE: return (float)(x / y);
    case SX_OP_EXP: return (float)exp(x);
    case SX_OP_LOGISTIC: return (float)(1 / (1 + exp(-x)));
    case SX_OP_ERF: return (float)erf(x);
    case SX_OP_TANH: return (float)tanh(x);
    default: ck_abort_msg("operation %d", (int)op);
    }
    return 0;
}

/* Of any exponent, or near one; now and then one of the ends of the range. */
static float draw_float(sx_rng *rng, uint32_t kind)
{
    static const float ends[] = {
        0, -0.0F, 1, -1, 0x1p-149F, 0x1p-126F, 0x1.fffffep-127F, 0x1.fffffep127F, 4, 9.0625F, 80};
    uint32_t bits = (uint32_t)sx_rng_next(rng);
    float value;
    memcpy(&value, &bits, sizeof(value));
    if (kind == 0) {
        return value;
    }
    if (kind == 1) {
        return ends[bits % SX_COUNT(ends)] * (bits >> 31 != 0 ? -1.0F : 1.0F);
    }
    return sx_rng_f32(rng) * (kind == 2 ? 4.5F : 20.0F);
}

#define NARROW (1 << 18)
#define NARROW_ROW 1001
START_TEST(test_narrow)
{
    static const sx_op op[] = {SX_OP_NEGATE,   SX_OP_ABS,      SX_OP_SQRT,   SX_OP_ADD,
                               SX_OP_SUBTRACT, SX_OP_MULTIPLY, SX_OP_DIVIDE, SX_OP_EXP,
                               SX_OP_LOGISTIC, SX_OP_ERF,      SX_OP_TANH};
    static sxv_narrow narrow;
    float x[NARROW_ROW], y[NARROW_ROW], got[NARROW_ROW];
    sx_rng rng = {sx_test_seed()};
    ck_assert(sxv_narrow_make(op[_i], &narrow));
    for (uint32_t n = 0; n < sx_test_trials(NARROW / NARROW_ROW); n++) {
        for (uint32_t i = 0; i < NARROW_ROW; i++) {
            x[i] = draw_float(&rng, (n + i) % 8 < 2 ? (n + i) % 8 : 2 + n % 2);
            y[i] = draw_float(&rng, i % 3);
        }
        sxv_narrow_run(&narrow, x, y, NARROW_ROW, got);
        for (uint32_t i = 0; i < NARROW_ROW; i++) {
            float want = by_library(op[_i], (double)x[i], (double)y[i]);
            bool same = memcmp(&got[i], &want, sizeof(want)) == 0 || (isnan(want) && isnan(got[i]));
            ck_assert_msg(same, "%s(%a, %a) is %a, the library has %a", sx_op_info_of(op[_i])->name,
                          (double)x[i], (double)y[i], (double)got[i], (double)want);
        }
    }
    ck_assert(!sxv_narrow_make(SX_OP_LOG, &narrow) && !sxv_narrow_make(SX_OP_MAXIMUM, &narrow));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verify.reference");
    TCase *cases = tcase_create("reference");
    tcase_add_test(cases, test_operations);
    tcase_add_test(cases, test_programs);
    tcase_add_loop_test(cases, test_large, 0, (int)SX_COUNT(large));
    tcase_add_test(cases, test_memory);
    tcase_add_loop_test(cases, test_narrow, 0, 11);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
