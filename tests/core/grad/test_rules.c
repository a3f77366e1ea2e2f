/* The derivative of each operation alone, on random instances: exactly, modulo a prime, where the operation is a
 * polynomial, else against central differences; and what is defined where there is no derivative. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/grad/grad.h"
#include "tests/lib/ir.h"
#include "tests/lib/slope.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static void make_f64(sx_type *type)
{
    type->dtype = sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT ? SX_F64 : type->dtype;
}

/* A random instance of `op` on parameters, of f64 or else as it came; false: it is not one of floats. */
static bool instance_of(sx_rng *rng, sx_op op, bool narrow, sx_graph **program, sx_attr *attr)
{
    sx_test_op t;
    sx_node_id input[SX_TEST_INPUTS_MAX];
    sx_node_id y;
    char name[16];
    sx_test_op_make(&cx, rng, op, &t);
    if (sx_dtype_class_of(t.result.dtype) != SX_CLASS_FLOAT ||
        (op == SX_OP_CONVERT && sx_dtype_class_of(t.input[0].dtype) != SX_CLASS_FLOAT)) {
        return false;
    }
    if (!narrow) {
        make_f64(&t.attr.type);
    }
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("one"), NULL, program));
    for (uint32_t k = 0; k < t.input_count; k++) {
        (void)snprintf(name, sizeof(name), "x%u", k);
        if (!narrow) {
            make_f64(&t.input[k]);
        }
        ck_sx_ok(&cx, sx_build_parameter(&cx, *program, name, false, &t.input[k], &input[k]));
    }
    ck_sx_ok(&cx, sx_graph_add(&cx, *program, op, &t.attr, input, t.input_count, &y));
    ck_sx_ok(&cx, sx_graph_add_output(&cx, *program, SX_SPAN_LITERAL("y"), y));
    *attr = t.attr;
    return true;
}

static bool instance(sx_rng *rng, sx_op op, sx_graph **program, sx_attr *attr)
{
    return instance_of(rng, op, false, program, attr);
}

static bool has_reducer(sx_op op)
{
    return op == SX_OP_REDUCE || op == SX_OP_REDUCE_WINDOW || op == SX_OP_SCATTER;
}

static void fail_with(sx_graph *program, const sx_graph *gradient, const char *why)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    (void)sx_graph_print(&cx, program, &text);
    (void)sx_graph_print(&cx, gradient, &text);
    sx_buf_put_u8(&text, 0);
    ck_abort_msg("%s\n%s", why, (const char *)text.ptr);
}

/* ---- polynomials ---- */

static const sx_op polynomial[] = {
    SX_OP_NEGATE,      SX_OP_ADD,           SX_OP_SUBTRACT,      SX_OP_MULTIPLY,
    SX_OP_SELECT,      SX_OP_RESHAPE,       SX_OP_TRANSPOSE,     SX_OP_BROADCAST,
    SX_OP_SLICE,       SX_OP_CONCATENATE,   SX_OP_REDUCE,        SX_OP_REVERSE,
    SX_OP_DOT_GENERAL, SX_OP_REDUCE_WINDOW, SX_OP_CONVOLUTION,   SX_OP_PAD,
    SX_OP_GATHER,      SX_OP_SCATTER,       SX_OP_DYNAMIC_SLICE, SX_OP_DYNAMIC_UPDATE_SLICE,
};

START_TEST(exact)
{
    sx_rng rng = {sx_test_seed()};
    sx_op op = polynomial[_i];
    uint32_t decided = 0;
    uint32_t tried = 0;
    while (tried < sx_test_trials(200)) {
        sx_graph *program;
        sx_attr attr;
        sx_ctx_fini(&cx);
        setup();
        if (!instance(&rng, op, &program, &attr)) {
            continue;
        }
        if (has_reducer(op) &&
            (attr.reducer > SX_PRODUCT || (op != SX_OP_REDUCE && attr.reducer != SX_SUM))) {
            continue;
        }
        tried++;
        sx_slope_case at = {.program = program, .gradient = sx_slope_gradient(&cx, program, 0)};
        sx_slope slope = sx_slope_exact(&rng, &at);
        decided += slope == SX_SLOPE_SAME ? 1 : 0;
        if (slope == SX_SLOPE_DIFFERENT) {
            fail_with(program, at.gradient, at.text);
        }
    }
    ck_assert_msg(decided * 2 > tried, "%s: %u of %u decided", sx_op_info_of(op)->name, decided,
                  tried);
}
END_TEST

/* ---- functions ---- */

typedef struct {
    sx_op op;
    bool positive;
} function;
static const function functions[] = {
    {SX_OP_ABS, false},         {SX_OP_EXP, false},        {SX_OP_LOG, true},
    {SX_OP_SQRT, true},         {SX_OP_RSQRT, true},       {SX_OP_TANH, false},
    {SX_OP_ERF, false},         {SX_OP_LOGISTIC, false},   {SX_OP_SIN, false},
    {SX_OP_COS, false},         {SX_OP_DIVIDE, true},      {SX_OP_POWER, true},
    {SX_OP_REMAINDER, true},    {SX_OP_MAXIMUM, false},    {SX_OP_MINIMUM, false},
    {SX_OP_CONVERT, false},     {SX_OP_REDUCE, false},     {SX_OP_REDUCE_WINDOW, false},
    {SX_OP_FLOOR, false},       {SX_OP_CEIL, false},       {SX_OP_ROUND, false},
    {SX_OP_SIGN, false},        {SX_OP_RELU, false},       {SX_OP_GELU, false},
    {SX_OP_GELU_TANH, false},   {SX_OP_SILU, false},       {SX_OP_SOFTMAX, false},
    {SX_OP_LOG_SOFTMAX, false}, {SX_OP_LAYER_NORM, false}, {SX_OP_RMS_NORM, false},
    {SX_OP_BATCH_NORM, true},   {SX_OP_ATTENTION, false},  {SX_OP_ONLINE_DOT, false},
    {SX_OP_SORT, false},
};

START_TEST(real)
{
    sx_rng rng = {sx_test_seed()};
    const function *f = &functions[_i];
    uint32_t decided = 0;
    uint32_t tried = 0;
    while (tried < sx_test_trials(60)) {
        sx_graph *program;
        sx_attr attr;
        sx_ctx_fini(&cx);
        setup();
        if (!instance(&rng, f->op, &program, &attr) ||
            (f->op == SX_OP_REDUCE_WINDOW && attr.reducer == SX_PRODUCT)) {
            continue;
        }
        tried++;
        sx_slope_case at = {.program = program, .positive = f->positive};
        at.gradient = sx_slope_gradient(&cx, program, 0);
        sx_slope slope = sx_slope_real(&rng, &at);
        decided += slope == SX_SLOPE_SAME ? 1 : 0;
        if (slope == SX_SLOPE_DIFFERENT) {
            fail_with(program, at.gradient, at.text);
        }
    }
    /* a window that covers nothing but padding is infinite */
    ck_assert_msg(decided * 10 > tried * (f->op == SX_OP_REDUCE_WINDOW ? 3 : 7),
                  "%s: %u of %u decided", sx_op_info_of(f->op)->name, decided, tried);
}
END_TEST

/* ---- narrow types ---- */

/* Every gradient has the type of its parameter, whatever was converted in between, and is evaluated in it. */
static void check_types(sx_rng *rng, sx_op op)
{
    for (uint32_t tried = 0; tried < sx_test_trials(24);) {
        sx_graph *program;
        sx_attr attr;
        sx_tensor argument[SX_TEST_INPUTS_MAX + 1];
        sx_tensor result[SX_TEST_INPUTS_MAX + 1];
        uint32_t count = 0;
        sx_ctx_fini(&cx);
        setup();
        if (!instance_of(rng, op, true, &program, &attr) ||
            (has_reducer(op) && op != SX_OP_REDUCE && attr.reducer != SX_SUM)) {
            continue;
        }
        tried++;
        const sx_graph *gradient = sx_slope_gradient(&cx, program, 0);
        for (uint32_t n = 0; n < gradient->node_count; n++) {
            const sx_node *node = &gradient->node[n];
            if (node->op == SX_OP_PARAMETER) {
                sx_test_tensor(&cx, rng, SX_EVAL_TYPED, &node->type, &argument[count++]);
            }
        }
        ck_sx_ok(&cx, sx_graph_eval(&cx, gradient, SX_EVAL_TYPED, argument, count, result,
                                    gradient->output_count));
        uint32_t next = 1;
        for (uint32_t n = 0; n < program->node_count; n++) {
            const sx_node *node = &program->node[n];
            bool is_float = sx_dtype_class_of(node->type.dtype) == SX_CLASS_FLOAT;
            if (node->op == SX_OP_PARAMETER && is_float) {
                ck_assert(sx_type_equal(&result[next++].type, &node->type));
            }
        }
        ck_assert_uint_eq(next, gradient->output_count);
    }
}

START_TEST(types)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < SX_COUNT(polynomial); k++) {
        check_types(&rng, polynomial[k]);
    }
    for (uint32_t k = 0; k < SX_COUNT(functions); k++) {
        check_types(&rng, functions[k].op);
    }
}
END_TEST

/* ---- where there is no derivative ---- */

/* `text` has the parameter x and the output y of f64. The gradient of the sum of `cotangent` times y at `x`. */
static void check_at(const char *text, const double *x, const double *cotangent,
                     const double *expected)
{
    sx_graph *program;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &program));
    const sx_graph *gradient = sx_slope_gradient(&cx, program, 0);
    sx_tensor argument[2];
    sx_tensor result[2];
    uint32_t count = 0;
    for (uint32_t n = 0; n < gradient->node_count; n++) {
        const sx_node *node = &gradient->node[n];
        if (node->op == SX_OP_PARAMETER) {
            double *data = SX_NEW_ARRAY(&cx, double, (size_t)sx_tensor_elements(&node->type));
            ck_assert_ptr_nonnull(data);
            memcpy(data, count == 0 ? x : cotangent,
                   (size_t)sx_tensor_elements(&node->type) * sizeof(double));
            argument[count++] = (sx_tensor){node->type, data};
        }
    }
    ck_assert_uint_eq(gradient->output_count, 2);
    ck_sx_ok(&cx, sx_graph_eval(&cx, gradient, SX_EVAL_F64, argument, count, result, 2));
    for (int64_t k = 0; k < sx_tensor_elements(&result[1].type); k++) {
        double got = ((const double *)result[1].data)[k];
        ck_assert_msg(got == expected[k], "%s: element %lld is %g, not %g", text, (long long)k, got,
                      expected[k]);
    }
}

#define UNARY(op)                                                           \
    "sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : f64[4]" \
    " %y = " op "(%x) : f64[4] return %y as \"y\" }"
#define X "sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : "

START_TEST(kinks)
{
    const double four[] = {-1, 0, 0, 2};
    const double c[] = {3, 5, 7, 11};
    check_at(UNARY("relu"), four, c, (const double[]){0, 0, 0, 11});
    check_at(UNARY("abs"), four, c, (const double[]){-3, 0, 0, 11});
    check_at(UNARY("floor"), four, c, (const double[]){0, 0, 0, 0});
    check_at(UNARY("sign"), four, c, (const double[]){0, 0, 0, 0});
    check_at(X "f64[4] %z = constant {data = 0} : f64[4] %y = maximum(%x, %z) : f64[4] return %y "
               "as \"y\" }",
             four, c, (const double[]){0, 5, 7, 11});
    check_at(X "f64[4] %z = constant {data = 0} : f64[4] %y = minimum(%z, %x) : f64[4] return %y "
               "as \"y\" }",
             four, c, (const double[]){3, 0, 0, 0});
    check_at(X "f64[4] %y = maximum(%x, %x) : f64[4] return %y as \"y\" }", four, c, c);
    check_at(X
             "f64[4] %y = reduce(%x) {dims = [0], reducer = maximum} : f64[] return %y as \"y\" }",
             (const double[]){2, 1, 2, 0}, c, (const double[]){0.5, 0, 0.5, 0});
    check_at(X
             "f64[4] %y = reduce(%x) {dims = [0], reducer = minimum} : f64[] return %y as \"y\" }",
             (const double[]){2, 0, 0, 0}, c, (const double[]){0, 1.0 / 3, 1.0 / 3, 1.0 / 3});
    check_at(X
             "f64[4] %y = reduce(%x) {dims = [0], reducer = multiply} : f64[] return %y as \"y\" }",
             (const double[]){2, 0, 3, 5}, c, (const double[]){0, 30, 0, 0});
    check_at(X
             "f64[4] %y = reduce(%x) {dims = [0], reducer = multiply} : f64[] return %y as \"y\" }",
             (const double[]){2, 0, 3, 0}, c, (const double[]){0, 0, 0, 0});
    /* windows {1, 1}, {1, 0}, {0, 2}: the first is shared */
    check_at(X "f64[4] %y = reduce_window(%x) {stride = [1], low = [0], high = [0], window = [2], "
               "dilation = [1], reducer = maximum} : f64[3] return %y as \"y\" }",
             (const double[]){1, 1, 0, 2}, c, (const double[]){1.5, 6.5, 0, 7});
    const double nothing =
        (double)-INFINITY; /* as great as nothing in the padding, which gets nothing */
    check_at(X "f64[4] %y = reduce_window(%x) {stride = [2], low = [1], high = [1], window = [2], "
               "dilation = [1], reducer = maximum} : f64[3] return %y as \"y\" }",
             (const double[]){nothing, 1, 1, nothing}, c, (const double[]){3, 2.5, 2.5, 7});
    check_at(X "f64[4] %b = constant {data = [0, 2, 0, 1]} : f64[4] %y = power(%x, %b) : f64[4] "
               "return %y as \"y\" }",
             four, c, (const double[]){0, 0, 0, 11});
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grad rules");
    TCase *tests = tcase_create("rules");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, exact, 0, (int)SX_COUNT(polynomial));
    tcase_add_loop_test(tests, real, 0, (int)SX_COUNT(functions));
    tcase_add_test(tests, types);
    tcase_add_test(tests, kinks);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
