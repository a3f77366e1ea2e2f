/* What PTX instructions compute from floating-point numbers. f32 and f64 are held against the machine under its four
 * roundings, 16-bit types against the nearest of all their numbers in wide integers, conversions against core/ir. */
#include <fenv.h>
#include <math.h>

#include "core/ir/num.h"
#include "core/simt/alu_inside.h"
#include "tests/core/simt/alu_insn.h"

__extension__ typedef __int128 s128;

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
}

static void teardown(void)
{
    ck_assert_int_eq(fesetround(FE_TONEAREST), 0);
    sx_ctx_fini(&cx);
}

static double f64_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint64_t bits_of_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* ---- f32 and f64 against the machine ---- */
static const char *const op_text[] = {"add", "sub", "mul", "div", "fma", "rcp", "sqrt"};
static const char *const mode_text[] = {"rn", "rz", "rm", "rp"};
static const int mode[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

static uint64_t machine_f32(uint32_t op, const uint64_t in[3])
{
    volatile float x = sx_ptx_f32(in[0]), y = sx_ptx_f32(in[1]), z = sx_ptx_f32(in[2]);
    volatile float d = 0.0F, one = 1.0F;
    switch (op) {
    case 0: d = x + y; break;
    case 1: d = x - y; break;
    case 2: d = x * y; break;
    case 3: d = x / y; break;
    case 4: d = fmaf(x, y, z); break;
    case 5: d = one / x; break;
    default: d = sqrtf(x); break;
    }
    return d != d ? 0x7FFFFFFF : sx_ptx_f32_bits(d);
}

static uint64_t machine_f64(uint32_t op, const uint64_t in[3])
{
    volatile double x = f64_of(in[0]), y = f64_of(in[1]), z = f64_of(in[2]);
    volatile double d = 0.0, one = 1.0;
    switch (op) {
    case 0: d = x + y; break;
    case 1: d = x - y; break;
    case 2: d = x * y; break;
    case 3: d = x / y; break;
    case 4: d = fma(x, y, z); break;
    case 5: d = one / x; break;
    default: d = sqrt(x); break;
    }
    return d != d ? UINT64_C(0xFFF8000000000000) : bits_of_f64(d);
}

/* Special values, numbers near each other, and any bits. */
static uint64_t operand(sx_rng *rng, uint32_t bits, uint32_t fraction_bits)
{
    uint64_t sign = UINT64_C(1) << (bits - 1), low = (sign - 1) | sign;
    uint64_t infinity = (sign - 1) >> fraction_bits << fraction_bits;
    uint64_t one = (infinity >> fraction_bits >> 1) << fraction_bits;
    const uint64_t edge[] = {0,
                             1,
                             2,
                             (UINT64_C(1) << fraction_bits) - 1,
                             UINT64_C(1) << fraction_bits,
                             infinity - 1,
                             infinity,
                             infinity + 1,
                             sign - 1,
                             one,
                             one + 1,
                             one - 1};
    uint64_t pick = sx_rng_below(rng, 3);
    uint64_t random = sx_rng_next(rng);
    uint64_t span = UINT64_C(6) << fraction_bits;
    uint64_t value = pick == 0   ? edge[sx_rng_below(rng, SX_COUNT(edge))]
                     : pick == 1 ? one - span / 2 + random % span
                                 : random;
    return (value ^ (sx_rng_next(rng) & sign)) & low;
}

static uint64_t flush32(bool ftz, uint64_t bits)
{
    return ftz && (bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits;
}

static uint64_t saturate32(bool saturate, uint64_t bits)
{
    float value = sx_ptx_f32(bits);
    return !saturate ? bits : value >= 1.0F ? 0x3F800000 : value > 0.0F ? bits : 0;
}

START_TEST(test_arithmetic_of_the_machine)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t op = (uint32_t)_i / 4, rounding = (uint32_t)_i % 4;
    for (uint32_t form = 0; form < 5; form++) {
        bool f64 = form == 4, ftz = (form & 1) != 0 && !f64,
             sat = (form & 2) != 0 && op != 3 && op < 5;
        char insn[128];
        const char *r = f64 ? "d" : "r";
        (void)snprintf(insn, sizeof(insn), "%s.%s%s%s.%s %%%s0, %%%s1", op_text[op],
                       mode_text[rounding], ftz ? ".ftz" : "", sat ? ".sat" : "",
                       f64 ? "f64" : "f32", r, r);
        for (uint32_t k = 2; k <= (op >= 5 ? 1U : op == 4 ? 3U : 2U); k++) {
            size_t n = strlen(insn);
            (void)snprintf(&insn[n], sizeof(insn) - n, ", %%%s%u", r, k);
        }
        sx_ptx_alu alu = alu_insn(&cx, insn);
        for (uint32_t i = 0; i < sx_test_trials(4000); i++) {
            uint64_t in[3], flushed[3];
            for (uint32_t k = 0; k < 3; k++) {
                in[k] = f64 ? operand(&rng, 64, 52) : operand(&rng, 32, 23);
                flushed[k] = flush32(ftz, in[k]);
            }
            ck_assert_int_eq(fesetround(mode[rounding]), 0);
            uint64_t want = f64 ? machine_f64(op, in) : machine_f32(op, flushed);
            ck_assert_int_eq(fesetround(FE_TONEAREST), 0);
            want = saturate32(sat && !f64, flush32(ftz, want));
            uint64_t got = alu_one(&alu, in);
            ck_assert_msg(got == want, "%s of %#llx %#llx %#llx: %#llx, not %#llx", insn,
                          (unsigned long long)in[0], (unsigned long long)in[1],
                          (unsigned long long)in[2], (unsigned long long)got,
                          (unsigned long long)want);
        }
    }
}
END_TEST

/* ---- 16 bits ---- */
/* A finite number of f16 or bf16 times 2^scale, an integer; tiny numbers of bf16 are cut. */
static s128 scaled(sx_dtype dtype, uint64_t bits, int scale)
{
    double value = sx_num_decode(dtype, bits);
    double size = ldexp(fabs(value), scale);
    ck_assert(size < 0x1p120);
    double upper = floor(size * 0x1p-60);
    s128 whole = (s128)(int64_t)upper * ((s128)1 << 60) + (s128)(int64_t)(size - upper * 0x1p60);
    return value < 0.0 ? -whole : whole;
}

/* The number of the type nearest to value / 2^scale, by bisection over all of them; `negative` is the sign of zero. */
static uint64_t nearest16(sx_dtype dtype, s128 value, int scale, bool negative)
{
    uint64_t sign = value < 0 || (value == 0 && negative) ? 0x8000 : 0;
    uint64_t infinity = dtype == SX_F16 ? 0x7C00 : 0x7F80, low = 0, high = infinity - 1;
    s128 size = value < 0 ? -value : value;
    if (size == 0 || (dtype == SX_F16 && size >= (s128)65520 << scale)) {
        return sign | (size == 0 ? 0 : infinity);
    }
    while (low < high) { /* the largest that is not above */
        uint64_t middle = (low + high + 1) / 2;
        bool far = sx_num_decode(dtype, middle) >= ldexp(1.0, 118 - scale);
        if (!far && scaled(dtype, middle, scale) <= size) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    if (low == infinity - 1) {
        return sign | low; /* below the limit of overflow */
    }
    s128 below = size - scaled(dtype, low, scale), above = scaled(dtype, low + 1, scale) - size;
    bool up = above < below || (above == below && (low & 1) != 0);
    return sign | (low + (up ? 1 : 0));
}

static uint64_t infinite16(sx_dtype dtype, uint32_t op, const uint64_t in[3])
{
    double x = sx_num_decode(dtype, in[0]), y = sx_num_decode(dtype, in[1]);
    double z = sx_num_decode(dtype, in[2]);
    double d = op == 0 ? x + y : op == 1 ? x - y : op == 2 ? x * y : x * y + z;
    return d != d ? 0x7FFF : sx_num_encode(dtype, d);
}

/* Numbers of bf16 whose products and sums fit the wide integers. */
static uint64_t operand16(sx_rng *rng, sx_dtype dtype)
{
    uint64_t bits = operand(rng, 16, dtype == SX_F16 ? 10 : 7);
    uint64_t exponent = bits >> 7 & 0xFF;
    bool fits = dtype == SX_F16 || exponent == 0xFF || (bits & 0x7FFF) == 0;
    return fits ? bits : (bits & 0x807F) | (112 + exponent % 20) << 7;
}

START_TEST(test_arithmetic_of_16_bits)
{
    sx_rng rng = {sx_test_seed()};
    sx_dtype dtype = _i % 2 == 0 ? SX_F16 : SX_BF16;
    const char *type = dtype == SX_F16 ? "f16" : "bf16";
    const char *ops[] = {"add.rn", "sub.rn", "mul.rn", "fma.rn", "fma.rn.relu"};
    for (uint32_t op = 0; op < SX_COUNT(ops); op++) {
        char insn[2][128];
        const char *third[2] = {op >= 3 ? ", %h3" : "", op >= 3 ? ", %r3" : ""};
        (void)snprintf(insn[0], sizeof(insn[0]), "%s.%s %%h0, %%h1, %%h2%s", ops[op], type,
                       third[0]);
        (void)snprintf(insn[1], sizeof(insn[1]), "%s.%sx2 %%r0, %%r1, %%r2%s", ops[op], type,
                       third[1]);
        sx_ptx_alu alu = alu_insn(&cx, insn[0]), packed = alu_insn(&cx, insn[1]);
        for (uint32_t i = 0; i < sx_test_trials(10000); i++) {
            uint64_t in[3] = {operand16(&rng, dtype), operand16(&rng, dtype),
                              operand16(&rng, dtype)};
            uint64_t infinity = dtype == SX_F16 ? 0x7C00 : 0x7F80, want;
            bool special = false, product_negative = ((in[0] ^ in[1]) & 0x8000) != 0;
            for (uint32_t k = 0; k < (op >= 3 ? 3 : 2); k++) {
                special = special || (in[k] & 0x7FFF) >= infinity;
            }
            if (special) {
                want = infinite16(dtype, op, in);
            } else {
                int scale = dtype == SX_F16 ? 48 : 80;
                s128 x = scaled(dtype, in[0], scale / 2), y = scaled(dtype, in[1], scale / 2);
                s128 x2 = scaled(dtype, in[0], scale), y2 = scaled(dtype, in[1], scale);
                s128 z2 = op >= 3 ? scaled(dtype, in[2], scale) : 0;
                bool nx = in[0] >= 0x8000, ny = in[1] >= 0x8000, nz = in[2] >= 0x8000;
                bool zero = op == 0   ? nx && ny
                            : op == 1 ? nx && !ny
                            : op == 2 ? product_negative
                                      : product_negative && nz;
                s128 d = op == 0 ? x2 + y2 : op == 1 ? x2 - y2 : op == 2 ? x * y : x * y + z2;
                want = nearest16(dtype, d, scale, zero);
            }
            want = op == 4 && want >= 0x8000 ? 0 : want;
            uint64_t both[3] = {in[0] << 16 | in[1], in[1] << 16 | in[0], in[2] << 16 | in[2]};
            uint64_t got = alu_one(&alu, in);
            ck_assert_msg(got == want, "%s of %#llx %#llx %#llx: %#llx, not %#llx", insn[0],
                          (unsigned long long)in[0], (unsigned long long)in[1],
                          (unsigned long long)in[2], (unsigned long long)got,
                          (unsigned long long)want);
            ck_assert_uint_eq(alu_one(&packed, both) >> 16, want);
        }
    }
}
END_TEST

/* ---- by tables ---- */
#define NAN32 0x7FFFFFFF
#define INF32 0x7F800000
#define NEG 0x80000000

static const struct {
    const char *insn;
    uint64_t in[3], want;
} row[] = {
    {"add.f32 %r0, %r1, %r2", {0x7FC12345, 0}, NAN32},
    {"add.sat.f32 %r0, %r1, %r2", {0xFFC00000, 0}, 0},
    {"mul.sat.f32 %r0, %r1, %r2", {NEG, 0x3F800000}, 0},
    {"add.sat.f16 %h0, %h1, %h2", {0x3C00, 0x3C00}, 0x3C00},
    {"add.ftz.f16 %h0, %h1, %h2", {0x8001, 0x8000}, 0x8000},
    {"fma.rn.ftz.sat.f16 %h0, %h1, %h2, %h3", {0x7E01, 0, 0}, 0},
    {"sub.rm.f32 %r0, %r1, %r2", {0x3F800000, 0x3F800000}, NEG},
    {"fma.rn.f32 %r0, %r1, %r2, %r3", {0x3F800800, 0x3F800800, 0x0D800000}, 0x3F801001},
    {"fma.rn.f32 %r0, %r1, %r2, %r3", {0x3F800800, 0x3F800800, 0x8D800000}, 0x3F801000},
    {"min.f32 %r0, %r1, %r2", {0, NEG}, NEG},
    {"min.f32 %r0, %r1, %r2", {NEG, 0}, NEG},
    {"max.f32 %r0, %r1, %r2", {NEG, 0}, 0},
    {"max.f32 %r0, %r1, %r2", {0, NEG}, 0},
    {"max.f32 %r0, %r1, %r2", {0x7FC00001, 0xC0000000}, 0xC0000000},
    {"max.f32 %r0, %r1, %r2", {0x3F800000, 0x7FC00001}, 0x3F800000},
    {"max.f32 %r0, %r1, %r2", {0xFFC00000, 0x7FC00001}, NAN32},
    {"max.NaN.f32 %r0, %r1, %r2", {0x3F800000, 0x7FC00001}, NAN32},
    {"min.ftz.f32 %r0, %r1, %r2", {1, 0x80000001}, NEG},
    {"min.f32 %r0, %r1, %r2", {0xC0000000, 0xBF800000}, 0xC0000000},
    {"max.f32 %r0, %r1, %r2", {0xC0000000, 0xBF800000}, 0xBF800000},
    {"max.NaN.bf16x2 %r0, %r1, %r2", {0x3F80FF80, 0x7FC00000}, 0x7FFF0000},
    {"min.f16 %h0, %h1, %h2", {0x8000, 0}, 0x8000},
    {"max.f64 %d0, %d1, %d2", {UINT64_C(0x8000000000000000), 0}, 0},
    {"abs.f32 %r0, %r1", {0xFF800000}, INF32},
    {"abs.ftz.f32 %r0, %r1", {0x80000001}, 0},
    {"neg.f16x2 %r0, %r1", {0x00008000}, 0x80000000},
    {"neg.f64 %d0, %d1", {0}, UINT64_C(0x8000000000000000)},
    {"copysign.f32 %r0, %r1, %r2", {0x80000001, 0x3F800000}, 0xBF800000},
    {"copysign.f64 %d0, %d1, %d2", {1, UINT64_C(0xBFF0000000000000)}, UINT64_C(0x3FF0000000000000)},
    {"div.approx.f32 %r0, %r1, %r2", {INF32, 0x7F000000}, NAN32},
    {"div.approx.f32 %r0, %r1, %r2", {0x7F7FFFFF, 0x7F000000}, 0},
    {"div.full.f32 %r0, %r1, %r2", {0x7F000000, 0x7F000000}, 0x3F800000},
    {"rcp.approx.f32 %r0, %r1", {NEG}, 0xFF800000},
    {"rcp.approx.ftz.f32 %r0, %r1", {0x80000001}, 0xFF800000},
    {"rcp.approx.ftz.f32 %r0, %r1", {0x7F000000}, 0},
    {"rcp.approx.f32 %r0, %r1", {0xFF800000}, NEG},
    {"sqrt.approx.f32 %r0, %r1", {NEG}, NEG},
    {"sqrt.approx.f32 %r0, %r1", {0xBF800000}, NAN32},
    {"sqrt.approx.ftz.f32 %r0, %r1", {0x80000001}, NEG},
    {"rsqrt.approx.f32 %r0, %r1", {NEG}, 0xFF800000},
    {"rsqrt.approx.f32 %r0, %r1", {0}, INF32},
    {"rsqrt.approx.f32 %r0, %r1", {INF32}, 0},
    {"rsqrt.approx.f32 %r0, %r1", {0x40800000}, 0x3F000000},
    {"rsqrt.approx.f32 %r0, %r1", {0x80000001}, NAN32},
    {"sin.approx.f32 %r0, %r1", {NEG}, NEG},
    {"sin.approx.f32 %r0, %r1", {INF32}, NAN32},
    {"sin.approx.ftz.f32 %r0, %r1", {0x80000001}, NEG},
    {"sin.approx.f32 %r0, %r1", {0x80000001}, 0x80000001},
    {"cos.approx.f32 %r0, %r1", {0x80000001}, 0x3F800000},
    {"cos.approx.f32 %r0, %r1", {0xFF800000}, NAN32},
    {"lg2.approx.f32 %r0, %r1", {NEG}, 0xFF800000},
    {"lg2.approx.ftz.f32 %r0, %r1", {1}, 0xFF800000},
    {"lg2.approx.f32 %r0, %r1", {1}, 0xC3150000},
    {"lg2.approx.f32 %r0, %r1", {0xBF800000}, NAN32},
    {"lg2.approx.f32 %r0, %r1", {INF32}, INF32},
    {"ex2.approx.f32 %r0, %r1", {0xFF800000}, 0},
    {"ex2.approx.f32 %r0, %r1", {NEG}, 0x3F800000},
    {"ex2.approx.f32 %r0, %r1", {0x43000000}, INF32},
    {"ex2.approx.f32 %r0, %r1", {0xC3150000}, 1},
    {"ex2.approx.f32 %r0, %r1", {0xC3160000}, 0},
    {"ex2.approx.ftz.f32 %r0, %r1", {0xC3150000}, 0},
    {"tanh.approx.f32 %r0, %r1", {0xFF800000}, 0xBF800000},
    {"tanh.approx.f32 %r0, %r1", {NEG}, NEG},
    {"tanh.approx.f32 %r0, %r1", {0x7FC00000}, NAN32},
    {"cvt.rzi.s32.f32 %r0, %r1", {0x7FC00000}, 0},
    {"cvt.rzi.s64.f32 %d0, %r1", {0x7FC00000}, UINT64_C(0x8000000000000000)},
    {"cvt.rzi.u32.f64 %r0, %d1", {UINT64_C(0x7FF8000000000000)}, 0x80000000},
    {"cvt.rzi.u32.f32 %r0, %r1", {0xBF800000}, 0},
    {"cvt.rzi.s32.f32 %r0, %r1", {0x4F000000}, 0x7FFFFFFF},
    {"cvt.rzi.s8.f32 %r0, %r1", {0xC3800000}, 0xFFFFFF80},
    {"cvt.rpi.s32.f32 %r0, %r1", {1}, 1},
    {"cvt.rpi.ftz.s32.f32 %r0, %r1", {1}, 0},
    {"cvt.rni.f32.f32 %r0, %r1", {0xBE800000}, NEG},
    {"cvt.rmi.f32.f32 %r0, %r1", {0xBE800000}, 0xBF800000},
    {"cvt.sat.f32.f32 %r0, %r1", {0x40000000}, 0x3F800000},
    {"cvt.s32.s8 %r0, %r1", {0x80}, 0xFFFFFF80},
    {"cvt.u32.s8 %r0, %h1", {0x1FF}, 0xFFFFFFFF},
    {"cvt.u64.u32 %d0, %r1", {0xFFFFFFFF}, 0xFFFFFFFF},
    {"cvt.sat.u8.s32 %r0, %r1", {0xFFFFFFFF}, 0},
    {"cvt.sat.s8.s32 %r0, %r1", {0x7FFF}, 127},
    {"cvt.u16.u32 %h0, %r1", {0x12345678}, 0x5678},
    {"cvt.rna.tf32.f32 %r0, %r1", {0x3F801000}, 0x3F802000},
    {"cvt.rna.tf32.f32 %r0, %r1", {0x3F800FFF}, 0x3F800000},
    {"cvt.rna.tf32.f32 %r0, %r1", {0x7FC00000}, NAN32},
    {"cvt.rn.relu.f16.f32 %h0, %r1", {0xBF800000}, 0},
    {"cvt.rn.f16x2.f32 %r0, %r1, %r2", {0x3F800000, 0x40000000}, 0x3C004000},
    {"cvt.rz.bf16x2.f32 %r0, %r1, %r2", {0x7F7FFFFF, 0x3F80FFFF}, 0x7F7F3F80},
    {"cvt.rn.bf16x2.f32 %r0, %r1, %r2", {0x7F7FFFFF, 0x3F80FFFF}, 0x7F803F81},
    {"cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2", {0x3F800000, 0xFF800000}, 0x38FE},
    {"cvt.rn.satfinite.e5m2x2.f32 %h0, %r1, %r2", {0x7F7FFFFF, 0x7FC00000}, 0x7B7F},
    {"cvt.rn.satfinite.relu.e4m3x2.f32 %h0, %r1, %r2", {0xBF800000, 0x3F800000}, 0x0038},
    {"cvt.rn.f16x2.e4m3x2 %r0, %h1", {0x387F}, 0x3C007FFF},
    {"cvt.rn.f16x2.e5m2x2 %r0, %h1", {0xFC01}, 0xFC000100},
    {"cvt.rn.f16.f64 %h0, %d1", {UINT64_C(0x3FF0020000000001)}, 0x3C01},
    {"cvt.rn.f32.u64 %r0, %d1", {UINT64_C(0xFFFFFFFFFFFFFFFF)}, 0x5F800000},
    {"cvt.rz.f32.u64 %r0, %d1", {UINT64_C(0xFFFFFFFFFFFFFFFF)}, 0x5F7FFFFF},
};

START_TEST(test_special_values)
{
    sx_ptx_alu alu = alu_insn(&cx, row[_i].insn);
    uint64_t got = alu_one(&alu, row[_i].in);
    ck_assert_msg(got == row[_i].want, "%s: %#llx, not %#llx", row[_i].insn,
                  (unsigned long long)got, (unsigned long long)row[_i].want);
}
END_TEST

/* ---- functions ---- */
/* The library's functions with 64 digits, and the slow way of every operand that is tried. */
START_TEST(test_functions)
{
    static const struct {
        const char *insn;
        sx_ptx_handler handler;
        long double (*exact)(long double);
        double most; /* of the operand's size that is tried */
    } function[] = {{"sin.approx.f32 %r0, %r1", SX_PTX_RUN_SIN, sinl, 0x1p127},
                    {"cos.approx.f32 %r0, %r1", SX_PTX_RUN_COS, cosl, 0x1p127},
                    {"lg2.approx.f32 %r0, %r1", SX_PTX_RUN_LG2, log2l, 0x1p127},
                    {"ex2.approx.f32 %r0, %r1", SX_PTX_RUN_EX2, exp2l, 130.0},
                    {"tanh.approx.f32 %r0, %r1", SX_PTX_RUN_TANH, tanhl, 20.0}};
    sx_rng rng = {sx_test_seed()};
    sx_ptx_alu alu = alu_insn(&cx, function[_i].insn);
    for (uint32_t i = 0; i < sx_test_trials(8000); i++) {
        uint64_t bits = operand(&rng, 32, 23);
        float x = sx_ptx_f32(bits);
        bool positive = function[_i].handler == SX_PTX_RUN_LG2;
        if (!(fabs((double)x) <= function[_i].most) || (positive && !(x > 0.0F)) || x == 0.0F) {
            continue;
        }
        uint64_t want = sx_ptx_f32_bits((float)function[_i].exact((long double)x));
        uint64_t got = alu_one(&alu, &bits);
        uint64_t slow = sx_ptx_f32_bits(sx_ptx_approx_slowly(function[_i].handler, x));
        ck_assert_msg(got == want && slow == want, "%s of %#llx: %#llx, slowly %#llx, not %#llx",
                      function[_i].insn, (unsigned long long)bits, (unsigned long long)got,
                      (unsigned long long)slow, (unsigned long long)want);
    }
}
END_TEST

/* ---- comparisons ---- */
START_TEST(test_setp_of_floats)
{
    static const char *const compare[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                          "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
    static const char *const type[] = {"f32", "f64", "f16"};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t c = 0; c < SX_COUNT(compare); c++) {
        for (uint32_t t = 0; t < 3; t++) {
            char insn[128];
            const char *r = t == 0 ? "r" : t == 1 ? "d" : "h";
            (void)snprintf(insn, sizeof(insn), "setp.%s.%s %%p0, %%%s1, %%%s2", compare[c], type[t],
                           r, r);
            sx_ptx_alu alu = alu_insn(&cx, insn);
            sx_dtype dtype = t == 0 ? SX_F32 : t == 1 ? SX_F64 : SX_F16;
            for (uint32_t i = 0; i < 1000; i++) {
                uint32_t fraction_bits = t == 0   ? 23
                                         : t == 1 ? 52
                                                  : 10,
                         bits = t == 0   ? 32
                                : t == 1 ? 64
                                         : 16;
                uint64_t in[2] = {operand(&rng, bits, fraction_bits),
                                  operand(&rng, bits, fraction_bits)};
                in[1] = i % 3 == 0 ? in[0] : in[1];
                double x = sx_num_decode(dtype, in[0]), y = sx_num_decode(dtype, in[1]);
                bool either = isnan(x) || isnan(y);
                const bool truth[] = {x == y,    !either && x != y, x<y, x <= y, x> y,
                                      x >= y,    either || x == y,  x != y,
                                      !(x >= y), !(x > y),          !(x <= y),
                                      !(x < y),  !either,           either};
                ck_assert_msg(alu_one(&alu, in) == truth[c], "%s", insn);
            }
        }
    }
}
END_TEST

/* ---- conversions ---- */
static const char *const integer_text[] = {"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"};

/* Between integers and floats: through long double, which holds them all. */
START_TEST(test_conversions_of_integers)
{
    sx_rng rng = {sx_test_seed()};
    static const char *const round_text[] = {"rni", "rzi", "rmi", "rpi"};
    uint32_t bits = 8U << (_i / 2);
    bool is_signed = _i % 2 == 1;
    const char *r = bits == 64 ? "d" : "r";
    for (uint32_t m = 0; m < 4; m++) {
        for (uint32_t f64 = 0; f64 < 2; f64++) {
            char to[128], from[128];
            const char *float_type = f64 != 0 ? "f64" : "f32",
                       *float_register = f64 != 0 ? "d" : "r";
            (void)snprintf(to, sizeof(to), "cvt.%s.%s.%s %%%s0, %%%s1", round_text[m],
                           integer_text[_i], float_type, r, float_register);
            (void)snprintf(from, sizeof(from), "cvt.%s.%s.%s %%%s0, %%%s1", mode_text[m],
                           float_type, integer_text[_i], float_register, r);
            sx_ptx_alu down = alu_insn(&cx, to), up = alu_insn(&cx, from);
            for (uint32_t i = 0; i < sx_test_trials(2000); i++) {
                uint64_t x = sx_rng_next(&rng) >> sx_rng_below(&rng, 64);
                x |= 1; /* compilers may convert 0 rounded down to -0 */
                int64_t whole = (int64_t)(x << (64 - bits)) >> (64 - bits);
                uint64_t part = x << (64 - bits) >> (64 - bits);
                ck_assert_int_eq(fesetround(mode[m]), 0);
                volatile float narrow = is_signed ? (float)whole : (float)part;
                volatile double broad = is_signed ? (double)whole : (double)part;
                ck_assert_int_eq(fesetround(FE_TONEAREST), 0);
                ck_assert_uint_eq(alu_one(&up, &x),
                                  f64 != 0 ? bits_of_f64(broad) : sx_ptx_f32_bits(narrow));

                uint64_t in = f64 != 0 ? operand(&rng, 64, 52) : operand(&rng, 32, 23);
                in += f64 != 0 ? UINT64_C(52) << 44 : 0;
                long double value =
                    f64 != 0 ? (long double)f64_of(in) : (long double)sx_ptx_f32(in);
                if (isnan(value)) {
                    continue;
                }
                value = m == 0   ? nearbyintl(value)
                        : m == 1 ? truncl(value)
                        : m == 2 ? floorl(value)
                                 : ceill(value);
                long double least = is_signed ? -ldexpl(1.0L, (int)bits - 1) : 0.0L;
                long double most = ldexpl(1.0L, (int)bits - (is_signed ? 1 : 0)) - 1.0L;
                value = value < least ? least : value > most ? most : value;
                uint64_t want = value < 0.0L ? (uint64_t)(int64_t)value : (uint64_t)value;
                want = bits == 64 ? want : want & UINT32_MAX;
                ck_assert_msg(alu_one(&down, &in) == want, "%s of %#llx", to,
                              (unsigned long long)in);
            }
        }
    }
}
END_TEST

/* f32 to every narrower type, to nearest, against core/ir; all 65536 numbers of 16 bits up and back. */
START_TEST(test_conversions_of_floats)
{
    sx_rng rng = {sx_test_seed()};
    sx_ptx_alu f16 = alu_insn(&cx, "cvt.rn.f16.f32 %h0, %r1");
    sx_ptx_alu bf16 = alu_insn(&cx, "cvt.rn.bf16.f32 %h0, %r1");
    sx_ptx_alu f32 = alu_insn(&cx, "cvt.rn.f32.f64 %r0, %d1");
    sx_ptx_alu e4m3 = alu_insn(&cx, "cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2");
    sx_ptx_alu e5m2 = alu_insn(&cx, "cvt.rn.satfinite.e5m2x2.f32 %h0, %r1, %r2");
    sx_ptx_alu from_f16 = alu_insn(&cx, "cvt.f32.f16 %r0, %h1");
    sx_ptx_alu from_bf16 = alu_insn(&cx, "cvt.f32.bf16 %r0, %h1");
    for (uint32_t i = 0; i < sx_test_trials(8000); i++) {
        uint64_t in[2] = {operand(&rng, 32, 23), 0}, wide = operand(&rng, 64, 52);
        in[0] = i % 2 == 0 ? in[0] : (in[0] & 0x807FFFFF) | (100 + in[0] % 50) << 23;
        double x = (double)sx_ptx_f32(in[0]);
        if (isnan(x) || isnan(f64_of(wide))) {
            continue;
        }
        ck_assert_uint_eq(alu_one(&f16, in), sx_num_encode(SX_F16, x));
        ck_assert_uint_eq(alu_one(&bf16, in), sx_num_encode(SX_BF16, x));
        ck_assert_uint_eq(alu_one(&f32, &wide), sx_ptx_f32_bits((float)f64_of(wide)));
        ck_assert_uint_eq(alu_one(&e4m3, in) >> 8,
                          sx_num_encode(SX_F8E4M3, sx_round(SX_F8E4M3, x)));
        ck_assert_uint_eq(alu_one(&e5m2, in) >> 8,
                          sx_num_encode(SX_F8E5M2, sx_round(SX_F8E5M2, x)));
    }
    for (uint64_t half = 0; half < 65536; half += SX_SANITIZED ? 17 : 1) {
        double x = sx_num_decode(SX_F16, half), y = sx_num_decode(SX_BF16, half);
        uint64_t a = alu_one(&from_f16, &half), b = alu_one(&from_bf16, &half);
        ck_assert_uint_eq(a, isnan(x) ? NAN32 : sx_ptx_f32_bits((float)x));
        ck_assert_uint_eq(b, isnan(y) ? NAN32 : sx_ptx_f32_bits((float)y));
        ck_assert_uint_eq(alu_one(&f16, &a), isnan(x) ? 0x7FFF : half);
        ck_assert_uint_eq(alu_one(&bf16, &b), isnan(y) ? 0x7FFF : half);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("alu_float");
    TCase *tcase = tcase_create("alu_float");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_arithmetic_of_the_machine, 0, 28);
    tcase_add_loop_test(tcase, test_arithmetic_of_16_bits, 0, 2);
    tcase_add_loop_test(tcase, test_special_values, 0, (int)SX_COUNT(row));
    tcase_add_loop_test(tcase, test_functions, 0, 5);
    tcase_add_test(tcase, test_setp_of_floats);
    tcase_add_loop_test(tcase, test_conversions_of_integers, 0, 8);
    tcase_add_test(tcase, test_conversions_of_floats);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
