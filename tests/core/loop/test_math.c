/* The instruction sequences of math.c against libm in double precision: the error bounds stated at the head of
 * that file. */
#include <fenv.h>
#include <float.h>

#include "tests/core/loop/harness.h"

#define COUNT (SX_SANITIZED ? 16000 : 160000) /* arguments of each function */

typedef double (*reference)(double x, double y);
static double ref_exp(double x, double y)
{
    (void)y;
    return exp(x);
}
static double ref_log(double x, double y)
{
    (void)y;
    return x < 0 ? (double)NAN : log(x);
}
static double ref_sqrt(double x, double y)
{
    (void)y;
    return sqrt(x);
}
static double ref_rsqrt(double x, double y)
{
    (void)y;
    return 1.0 / sqrt(x);
}
static double ref_tanh(double x, double y)
{
    (void)y;
    return tanh(x);
}
static double ref_erf(double x, double y)
{
    (void)y;
    return erf(x);
}
static double ref_logistic(double x, double y)
{
    (void)y;
    return 1.0 / (1.0 + exp(-x));
}
static double ref_sin(double x, double y)
{
    (void)y;
    return fabs(x) <= 0x1p20 ? sin(x) : (double)NAN;
}
static double ref_cos(double x, double y)
{
    (void)y;
    return fabs(x) <= 0x1p20 ? cos(x) : (double)NAN;
}
static double ref_floor(double x, double y)
{
    (void)y;
    return floor(x);
}
static double ref_ceil(double x, double y)
{
    (void)y;
    return ceil(x);
}
static double ref_round(double x, double y)
{
    (void)y;
    return rint(x);
}
static double ref_sign(double x, double y)
{
    (void)y;
    return x > 0 ? 1 : x < 0 ? -1 : x;
}
static double ref_negate(double x, double y)
{
    (void)y;
    return -x;
}
static double ref_abs(double x, double y)
{
    (void)y;
    return fabs(x);
}
static double ref_relu(double x, double y)
{
    (void)y;
    return 0 > x ? 0 : x;
}
static double ref_gelu(double x, double y)
{
    (void)y;
    return isinf(x) && x < 0 ? (double)NAN : x * 0.5 * (1 + erf(x / sqrt(2.0)));
}
static double ref_gelu_tanh(double x, double y)
{
    (void)y;
    double inner = x + 0.044715 * x * x * x;
    return isinf(x) && x < 0 ? (double)NAN
                             : x * 0.5 * (1 + tanh(sqrt(2 / 3.14159265358979324) * inner));
}
static double ref_silu(double x, double y)
{
    (void)y;
    return isinf(x) && x < 0 ? (double)NAN : x / (1.0 + exp(-x));
}
static double ref_add(double x, double y)
{
    return x + y;
}
static double ref_subtract(double x, double y)
{
    return x - y;
}
static double ref_multiply(double x, double y)
{
    return x * y;
}
static double ref_divide(double x, double y)
{
    return x / y;
}
static double ref_maximum(double x, double y)
{
    return isnan(x) || x > y ? x : y;
}
static double ref_minimum(double x, double y)
{
    return isnan(x) || x < y ? x : y;
}

static double ref_power(double x, double y)
{
    return pow(x, y);
}

typedef struct {
    sx_op op;
    reference exact;
    double ulps;     /* allowed error in units of the last place ... */
    double absolute; /* ... or absolute, whichever is larger */
} row;
static const row rows[] = {
    {SX_OP_EXP, ref_exp, 1.1, 0},
    {SX_OP_LOG, ref_log, 1.1, 0},
    {SX_OP_SQRT, ref_sqrt, 0.5001, 0},
    {SX_OP_RSQRT, ref_rsqrt, 1.5, 0},
    {SX_OP_TANH, ref_tanh, 6, 0},
    {SX_OP_ERF, ref_erf, 6, 0},
    {SX_OP_LOGISTIC, ref_logistic, 2.5, 0x1p-126},
    {SX_OP_SIN, ref_sin, 0, 2e-7},
    {SX_OP_COS, ref_cos, 0, 2e-7},
    {SX_OP_FLOOR, ref_floor, 0, 0},
    {SX_OP_CEIL, ref_ceil, 0, 0},
    {SX_OP_ROUND, ref_round, 0, 0},
    {SX_OP_SIGN, ref_sign, 0, 0},
    {SX_OP_NEGATE, ref_negate, 0, 0},
    {SX_OP_ABS, ref_abs, 0, 0},
    {SX_OP_RELU, ref_relu, 0, 0},
    {SX_OP_GELU, ref_gelu, 7, 1.2e-6},
    {SX_OP_GELU_TANH, ref_gelu_tanh, 7, 2e-6},
    {SX_OP_SILU, ref_silu, 4, 0x1p-119},
    {SX_OP_ADD, ref_add, 0.5001, 0},
    {SX_OP_SUBTRACT, ref_subtract, 0.5001, 0},
    {SX_OP_MULTIPLY, ref_multiply, 0.5001, 0},
    {SX_OP_DIVIDE, ref_divide, 0.5001, 0},
    {SX_OP_MAXIMUM, ref_maximum, 0, 0},
    {SX_OP_MINIMUM, ref_minimum, 0, 0},
    {SX_OP_POWER, ref_power, 4, 0},
};

static float in_x[COUNT], in_y[COUNT], out_16[COUNT], out_8[COUNT];

static void fill(sx_rng *rng, float *x)
{
    static const float special[] = {0.0f,    -0.0f,    1.0f,      -1.0f,     0.5f,      -0.5f,
                                    1e-45f,  -1e-45f,  1.17e-38f, 1.2e-38f,  3.4e38f,   -3.4e38f,
                                    88.722f, 88.7229f, -87.33f,   -103.97f,  -103.98f,  104.0f,
                                    -150.0f, 89.0f,    9.0f,      -9.01f,    3.92f,     4.0f,
                                    0.7071f, 1.41421f, 8388608.f, 8388607.f, 1048576.f, 1.5f};
    for (uint32_t i = 0; i < COUNT; i++) {
        float v = sx_rng_f32(rng);
        switch (i % 5) {
        case 0: v *= 105.0f; break;
        case 1: v *= 4.5f; break;
        case 2: v *= 1.0f + (float)(i % 7) * 1e4f; break;
        case 3: {
            uint32_t u = (uint32_t)sx_rng_next(rng);
            memcpy(&v, &u, 4);
            break;
        }
        default: v = ldexpf(v, (int)sx_rng_below(rng, 30) - 20); break;
        }
        x[i] = v;
    }
    for (uint32_t i = 0; i < 2 * SX_COUNT(special); i++) {
        x[i * 3] = special[i % SX_COUNT(special)];
    }
    x[200] = INFINITY;
    x[201] = -INFINITY;
    x[202] = NAN;
}

/* y = op(x, y) over COUNT elements. */
static sx_kernel *make(sx_ctx *cx, sx_op op, uint32_t lanes)
{
    sx_kernel *kernel;
    ck_sx_ok(cx, sx_kernel_make(cx, "math", lanes, 4, &kernel));
    sx_addr a[3] = {{.index_reg = SX_NO_REG}, {.index_reg = SX_NO_REG}, {.index_reg = SX_NO_REG}};
    for (uint32_t k = 0; k < 3; k++) {
        a[k].buffer =
            sx_kernel_add_buffer(kernel, k == 2 ? SX_BUFFER_OUT : SX_BUFFER_IN, 4 * COUNT);
        a[k].coef[0] = 4 * (int64_t)lanes;
    }
    sx_loop_builder b;
    sx_loop_begin_part(&b, cx, kernel, COUNT / lanes, 1, 1);
    uint32_t x = sx_loop_op(&b, SX_LOP_LOAD, SX_NO_REG, &a[0], 0, 0, 0, lanes, 0);
    uint32_t y = sx_loop_op(&b, SX_LOP_LOAD, SX_NO_REG, &a[1], 0, 0, 0, lanes, 0);
    uint32_t r = sx_loop_apply(&b, op, SX_EQ, x, y, SX_NO_REG);
    (void)sx_loop_op(&b, SX_LOP_STORE, 0, &a[2], r, 0, 0, lanes, 0);
    ck_sx_ok(cx, sx_loop_end_part(&b));
    return kernel;
}

/* The error of `got` in units of the last place of the exact value rounded to f32. */
static double error_ulps(float got, double exact)
{
    int exponent;
    (void)frexp(exact, &exponent);
    double ulp = ldexp(1.0, exponent - 24 < -149 ? -149 : exponent - 24);
    return fabs((double)got - exact) / ulp;
}

START_TEST(test_accuracy)
{
    const row *r = &rows[_i];
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    fill(&rng, in_x);
    fill(&rng, in_y);
    void *list[] = {in_x, in_y, out_16};
    ck_sx_ok(&cx, sx_kernel_eval(&cx, make(&cx, r->op, 16), list));
    list[2] = out_8;
    ck_sx_ok(&cx, sx_kernel_eval(&cx, make(&cx, r->op, 8), list));
    double worst = 0;
    double worst_absolute = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        ck_assert(harness_same(&out_8[i], &out_16[i]));
        double exact = r->exact((double)in_x[i], (double)in_y[i]);
        float got = out_16[i];
        if (isnan(exact) || isinf((float)exact)) {
            ck_assert_msg(isnan(exact) ? isnan(got) : got == (float)exact || fabs(exact) < 3.403e38,
                          "%s(%a, %a) is %a, exact %a", sx_op_info_of(r->op)->name, (double)in_x[i],
                          (double)in_y[i], (double)got, exact);
            continue;
        }
        double absolute = fabs((double)got - exact);
        double ulps = error_ulps(got, exact);
        ck_assert_msg(ulps <= r->ulps || absolute <= r->absolute,
                      "%s(%a, %a) is %a, exact %a: %.3f ulp, %.3g absolute",
                      sx_op_info_of(r->op)->name, (double)in_x[i], (double)in_y[i], (double)got,
                      exact, ulps, absolute);
        worst = absolute <= r->absolute ? worst : fmax(worst, ulps);
        worst_absolute = fmax(worst_absolute, absolute);
    }
    printf("%s: %.3f ulp, %.3g absolute\n", sx_op_info_of(r->op)->name, worst, worst_absolute);
    sx_ctx_fini(&cx);
}
END_TEST

static float one(sx_op op, float x)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    in_x[0] = x;
    void *list[] = {in_x, in_y, out_16};
    ck_sx_ok(&cx, sx_kernel_eval(&cx, make(&cx, op, 16), list));
    sx_ctx_fini(&cx);
    return out_16[0];
}

/* Masked softmax relies on these. */
START_TEST(test_exact_values)
{
    ck_assert(one(SX_OP_EXP, -INFINITY) == 0.0f && !signbit(one(SX_OP_EXP, -INFINITY)));
    ck_assert(one(SX_OP_EXP, -3e38f) == 0.0f);
    ck_assert(one(SX_OP_EXP, 0.0f) == 1.0f);
    ck_assert(one(SX_OP_EXP, -0.0f) == 1.0f);
    ck_assert(isinf(one(SX_OP_EXP, INFINITY)));
    ck_assert(one(SX_OP_LOG, 1.0f) == 0.0f);
    ck_assert(one(SX_OP_LOG, 0.0f) == -INFINITY);
    ck_assert(one(SX_OP_TANH, 30.0f) == 1.0f && one(SX_OP_TANH, -INFINITY) == -1.0f);
    ck_assert(one(SX_OP_ERF, 30.0f) == 1.0f && one(SX_OP_ERF, -INFINITY) == -1.0f);
    ck_assert(signbit(one(SX_OP_TANH, -0.0f)) && signbit(one(SX_OP_RELU, -0.0f)));
    ck_assert(one(SX_OP_ROUND, 2.5f) == 2.0f && one(SX_OP_ROUND, -3.5f) == -4.0f);
}
END_TEST

/* A product that underflows on the way to 0 costs a processor a hundred cycles: what is masked must not have one. */
START_TEST(test_masked_without_underflow)
{
    static const float masked[] = {-INFINITY, -FLT_MAX, -1e9f, -10000.0f, -200.0f, -176.0f};
    for (uint32_t i = 0; i < SX_COUNT(masked); i++) {
        feclearexcept(FE_ALL_EXCEPT);
        ck_assert(one(SX_OP_EXP, masked[i]) == 0.0f);
        ck_assert_msg(!fetestexcept(FE_UNDERFLOW), "exp(%g) underflows", (double)masked[i]);
    }
    feclearexcept(FE_ALL_EXCEPT);
    ck_assert(one(SX_OP_EXP, -104.0f) == 0.0f && fetestexcept(FE_UNDERFLOW));
}
END_TEST

/* Every pair of special arguments of power has the value and the sign of libm. */
START_TEST(test_power_cases)
{
    static const float special[] = {
        0.0f,      -0.0f,      1.0f,        -1.0f,       2.0f,   -2.0f,   3.0f,   0.5f,
        -0.5f,     INFINITY,   -INFINITY,   NAN,         1e-45f, -1e-45f, 3e38f,  -3e38f,
        0.999999f, 1.0000001f, 16777215.0f, 16777216.0f, -3.0f,  1e10f,   -1e10f, 33554431.0f};
    uint32_t n = SX_COUNT(special);
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    for (uint32_t i = 0; i < n * n; i++) {
        in_x[i] = special[i / n];
        in_y[i] = special[i % n];
    }
    void *list[] = {in_x, in_y, out_16};
    ck_sx_ok(&cx, sx_kernel_eval(&cx, make(&cx, SX_OP_POWER, 16), list));
    for (uint32_t i = 0; i < n * n; i++) {
        float exact = (float)pow((double)in_x[i], (double)in_y[i]);
        float got = out_16[i];
        bool same = isnan(exact) ? isnan(got)
                                 : signbit(got) == signbit(exact) &&
                                       (got == exact || fabsf(got - exact) <= 2e-7f * fabsf(exact));
        ck_assert_msg(same, "power(%g, %g) is %g, exact %g", (double)in_x[i], (double)in_y[i],
                      (double)got, (double)exact);
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_kernel *kernel;
    sx_loop_builder b;
    ck_sx_ok(&cx, sx_kernel_make(&cx, "math", 8, 4, &kernel));
    sx_loop_begin_part(&b, &cx, kernel, 1, 1, 1);
    uint32_t x = sx_loop_set(&b, 1.0f);
    (void)sx_loop_apply(&b, SX_OP_REMAINDER, SX_EQ, x, x, SX_NO_REG);
    ck_sx_fails(&cx, sx_loop_end_part(&b), SX_UNIMPLEMENTED, "remainder on f32");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.math");
    TCase *cases = tcase_create("math");
    tcase_add_loop_test(cases, test_accuracy, 0, (int)SX_COUNT(rows));
    tcase_add_test(cases, test_exact_values);
    tcase_add_test(cases, test_masked_without_underflow);
    tcase_add_test(cases, test_power_cases);
    tcase_add_test(cases, test_refused);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
