/* The instruction sequences of math_wide.c against libm in long double, whose significand has 64 bits: the error
 * bounds stated at the head of that file. An error of the reference of one unit of its own last place is 2^-11 units
 * of ours. */
#include "tests/core/loop/harness.h"

#include <fenv.h>
#include <float.h>

#define COUNT 60000
#define LANES 8u

_Static_assert(LDBL_MANT_DIG >= 64, "the reference has more digits than what it judges");

typedef long double (*reference)(long double x);
static long double ref_rsqrt(long double x)
{
    return 1 / sqrtl(x);
}
static long double ref_logistic(long double x)
{
    return 1 / (1 + expl(-x));
}
static long double ref_silu(long double x)
{
    return x / (1 + expl(-x));
}
static long double ref_log(long double x)
{
    return x < 0 ? (long double)NAN : logl(x);
}

static long double ref_sin(long double x)
{
    return fabsl(x) <= 0x1p24L ? sinl(x) : (long double)NAN;
}
static long double ref_cos(long double x)
{
    return fabsl(x) <= 0x1p24L ? cosl(x) : (long double)NAN;
}
static long double ref_gelu(long double x)
{
    return x / 2 * erfcl(-x / sqrtl(2));
}
static long double ref_gelu_tanh(long double x)
{
    const long double root = 0.797884560802865355879892119868763737L; /* of 2 / pi */
    return x / (1 + expl(-2 * root * (x + 0.044715L * x * x * x)));
}

typedef struct {
    sx_op op;
    reference exact;
    double ulps;     /* allowed error in units of the last place ... */
    double absolute; /* ... or this error, ... */
    double of_x;     /* ... or this times |x|, at most that at 40; whichever is the largest */
} row;
static const row rows[] = {
    {SX_OP_EXP, expl, 1.5, 0, 0},
    {SX_OP_LOG, ref_log, 1.5, 0, 0},
    {SX_OP_LOGISTIC, ref_logistic, 3, 0x1p-1022, 0},
    {SX_OP_SILU, ref_silu, 4, 0x1p-1014, 0},
    {SX_OP_TANH, tanhl, 4, 0, 0},
    {SX_OP_SQRT, sqrtl, 0.5005, 0, 0},
    {SX_OP_RSQRT, ref_rsqrt, 1.5, 0, 0},
    {SX_OP_ERF, erfl, 1.5, 0, 0},
    {SX_OP_SIN, ref_sin, 1.5, 0x1p-75, 0},
    {SX_OP_COS, ref_cos, 1.5, 0x1p-75, 0},
    /* x/2 (1 + f): f near -1 is off by 1.5 and 4 units of 2^-53, and by 0.5 and 1.5 more for its rounded argument;
     * half of |x| multiplies that. Below -40 f is -1. */
    {SX_OP_GELU, ref_gelu, 4, 0, 0x1p-53},
    {SX_OP_GELU_TANH, ref_gelu_tanh, 4, 0, 2.75 * 0x1p-53},
};

static double in[COUNT], second[COUNT], out[COUNT];

static void fill(sx_rng *rng)
{
    static const double special[] = {
        0.0,      -0.0,      1.0,         -1.0,    0x1p-1074, -0x1p-1074, 0x1p-1022,  DBL_MAX,
        -DBL_MAX, 709.78,    709.79,      -708.39, -745.13,   -745.14,    710.0,      -750.0,
        HUGE_VAL, -HUGE_VAL, (double)NAN, 22.0,    -22.5,     0.70710678, 1.41421356, 1e-300};
    for (uint32_t i = 0; i < COUNT; i++) {
        double v = 2 * ((double)(sx_rng_next(rng) >> 11) * 0x1p-53) - 1;
        uint64_t bits = sx_rng_next(rng);
        switch (i % 5) {
        case 0: v *= 760; break;
        case 1: v *= 4.5; break;
        case 2: v = 1 + v * 0x1p-6; break;
        case 3: memcpy(&v, &bits, sizeof(v)); break;
        default: v = ldexp(v, -(int)sx_rng_below(rng, 60)); break;
        }
        in[i] = i < SX_COUNT(special) ? special[i] : v;
    }
}

/* y = op(x, second) over COUNT elements of f64. */
static sx_kernel *make(sx_ctx *cx, sx_op op)
{
    sx_kernel *kernel;
    sx_loop_builder b;
    sx_addr a[3] = {{.index_reg = SX_NO_REG}, {.index_reg = SX_NO_REG}, {.index_reg = SX_NO_REG}};
    ck_sx_ok(cx, sx_kernel_make(cx, "wide", LANES, 8, &kernel));
    for (uint32_t k = 0; k < SX_COUNT(a); k++) {
        a[k].buffer =
            sx_kernel_add_buffer(kernel, k == 2 ? SX_BUFFER_OUT : SX_BUFFER_IN, sizeof(in));
        a[k].coef[0] = 8 * (int64_t)LANES;
    }
    sx_loop_begin_part(&b, cx, kernel, COUNT / LANES, 1, 1);
    uint32_t x = sx_loop_access(&b, SX_LOP_LOAD, SX_MEM_LANE, &a[0], 0, LANES, 0);
    uint32_t y = sx_loop_access(&b, SX_LOP_LOAD, SX_MEM_LANE, &a[1], 0, LANES, 0);
    uint32_t r = sx_loop_apply_wide(&b, op, x, y);
    (void)sx_loop_access(&b, SX_LOP_STORE, SX_MEM_LANE, &a[2], r, LANES, 0);
    ck_sx_ok(cx, sx_loop_end_part(&b));
    return kernel;
}

/* The error of `got` in units of the last place of the exact value rounded to f64. */
static double error_ulps(double got, long double exact)
{
    int exponent;
    (void)frexpl(exact, &exponent);
    long double ulp = ldexpl(1, exponent - 53 < -1074 ? -1074 : exponent - 53);
    return (double)(fabsl((long double)got - exact) / ulp);
}

START_TEST(test_accuracy)
{
    const row *r = &rows[_i];
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    fill(&rng);
    void *list[] = {in, second, out};
    ck_sx_ok(&cx, sx_kernel_eval(&cx, make(&cx, r->op), list));
    double worst = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        long double exact = r->exact((long double)in[i]);
        const char *name = sx_op_info_of(r->op)->name;
        if (isnan(exact)) {
            ck_assert_msg(isnan(out[i]), "%s(%a) is %a, not NaN", name, in[i], out[i]);
            continue;
        }
        if (isinf(
                (double)
                    exact)) { /* where it rounds to infinity, the largest number is an error of one unit */
            ck_assert_msg((isinf(out[i]) && signbit(out[i]) == signbit((double)exact)) ||
                              fabsl(exact) < 0x1.0p1024L,
                          "%s(%a) is %a, exact %La", name, in[i], out[i], exact);
            continue;
        }
        double ulps = error_ulps(out[i], exact);
        double allowed = fmax(r->absolute, r->of_x * fmin(fabs(in[i]), 40));
        bool small = fabsl((long double)out[i] - exact) <= (long double)allowed;
        ck_assert_msg(ulps <= r->ulps || small, "%s(%a) is %a, exact %La: %.3f units", name, in[i],
                      out[i], exact, ulps);
        worst = small ? worst : fmax(worst, ulps);
    }
    printf("%s: %.3f units\n", sx_op_info_of(r->op)->name, worst);
    sx_ctx_fini(&cx);
}
END_TEST

/* As math.c: what is masked has no product that underflows. */
START_TEST(test_masked_without_underflow)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    for (uint32_t i = 0; i < COUNT; i++) {
        in[i] = i % 3 == 0 ? -HUGE_VAL : i % 3 == 1 ? -DBL_MAX : -1418.0 - i;
    }
    void *list[] = {in, second, out};
    sx_kernel *kernel = make(&cx, SX_OP_EXP);
    feclearexcept(FE_ALL_EXCEPT);
    ck_sx_ok(&cx, sx_kernel_eval(&cx, kernel, list));
    ck_assert(!fetestexcept(FE_UNDERFLOW));
    for (uint32_t i = 0; i < COUNT; i++) {
        ck_assert_msg(out[i] == 0 && !signbit(out[i]), "exp(%g) is %g", in[i], out[i]);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Bases near 1 under exponents that bring the result to all magnitudes, whole exponents, and any bits. */
static void fill_for_powers(sx_rng *rng)
{
    static const double special[] = {0.0,     -0.0,  1.0,      -1.0,      2.0,         -2.0,
                                     0.5,     -3.0,  HUGE_VAL, -HUGE_VAL, (double)NAN, 3.0,
                                     0x1p-52, 1e300, -1e9,     2.5};
    for (uint32_t i = 0; i < COUNT; i++) {
        double x = ldexp(1 + (double)(sx_rng_next(rng) >> 11) * 0x1p-53, (int)(i % 7) - 3);
        double y = (2 * ((double)(sx_rng_next(rng) >> 11) * 0x1p-53) - 1) * 750 / log(x);
        uint64_t bits[2] = {sx_rng_next(rng), sx_rng_next(rng)};
        switch (i % 5) {
        case 0:
            x = 1 + ldexp(x, -(int)(i / 5 % 53));
            y = (y > 0 ? 1 : -1) * 700 / log(x);
            break;
        case 1:
            y = trunc(y);
            x = (i & 1) != 0 ? x : -x;
            break;
        case 2:
            memcpy(&x, &bits[0], sizeof(x));
            memcpy(&y, &bits[1], sizeof(y));
            break;
        case 3:
            memcpy(&x, &bits[0], sizeof(x));
            x = fabs(x);
            y = (2 * ((double)(bits[1] >> 11) * 0x1p-53) - 1) * 1.2;
            break;
        default: break;
        }
        uint32_t n = SX_COUNT(special);
        in[i] = i < n * n ? special[i / n] : x;
        second[i] = i < n * n ? special[i % n] : y;
    }
}

START_TEST(test_power)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    fill_for_powers(&rng);
    void *list[] = {in, second, out};
    ck_sx_ok(&cx, sx_kernel_eval(&cx, make(&cx, SX_OP_POWER), list));
    double worst = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        long double exact = powl((long double)in[i], (long double)second[i]);
        bool same = isnan(exact) ? isnan(out[i]) : out[i] == (double)exact;
        double ulps = same ? 0 : error_ulps(out[i], exact);
        ck_assert_msg(ulps <= 1.5 && (isnan(exact) || !signbit(out[i]) == !signbit(exact)),
                      "%a to the power %a is %a, exact %La: %.3f units", in[i], second[i], out[i],
                      exact, ulps);
        worst = fmax(worst, ulps);
    }
    printf("power: %.3f units\n", worst);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.math_wide");
    TCase *cases = tcase_create("math");
    tcase_set_timeout(cases, 400);
    tcase_add_loop_test(cases, test_accuracy, 0, (int)SX_COUNT(rows));
    tcase_add_test(cases, test_masked_without_underflow);
    tcase_add_test(cases, test_power);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
