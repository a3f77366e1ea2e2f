/* Products of a warpgroup in the interpreter, for every element type, swizzle and orientation of their operands: tiles
 * are laid out and described by core/tile, which has its own rules for both, and the result is that of scalar code.
 * Elements are small integers, so that every sum is exact. */
#include <math.h>
#include <stdio.h>

#include "core/base/rng.h"
#include "core/tile/descriptor.h"
#include "tests/core/simt/launches.h"

#define ROWS 64
#define COLUMNS_MAX 256
#define LINE_BYTES 128 /* of K: four instructions of 32 bytes */
#define SHARED_FIRST 1024
#define THREADS 128

static sx_ctx cx;
static sx_buf text;
static launches l;
static uint8_t image[(ROWS + COLUMNS_MAX) * LINE_BYTES], fragments[4][THREADS][16];
static int32_t a[ROWS][LINE_BYTES], b[COLUMNS_MAX][LINE_BYTES];
static uint32_t out[THREADS][COLUMNS_MAX / 2];

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
    sx_buf_init(&text, (size_t)1 << 22);
}

static void teardown(void)
{
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}

/* A type: how PTX names it, of how many bytes, with how many bits of exponent and fraction (0: an integer). */
typedef struct {
    const char *name, *result;
    sx_dtype element;
    uint32_t bytes, exponent_bits, fraction_bits;
    bool is_signed, transposes;
} type_row;

static const type_row types[] = {
    {"bf16", "f32", SX_BF16, 2, 8, 7, true, true},  {"f16", "f32", SX_F16, 2, 5, 10, true, true},
    {"tf32", "f32", SX_F32, 4, 8, 23, true, false}, {"e4m3", "f32", SX_I8, 1, 4, 3, true, false},
    {"e5m2", "f32", SX_I8, 1, 5, 2, true, false},   {"s8", "s32", SX_I8, 1, 0, 0, true, false},
    {"u8", "s32", SX_I8, 1, 0, 0, false, false},
};

static uint32_t encoded(const type_row *t, int32_t value)
{
    if (t->exponent_bits == 0 || value == 0) {
        return (uint32_t)value & 0xFF & (value == 0 ? 0 : UINT32_MAX);
    }
    uint32_t magnitude = (uint32_t)(value < 0 ? -value : value),
             e = 31U - (uint32_t)__builtin_clz(magnitude);
    uint32_t bias = (1U << (t->exponent_bits - 1)) - 1;
    uint32_t fraction =
        t->fraction_bits >= e ? (magnitude - (1U << e)) << (t->fraction_bits - e) : 99;
    ck_assert_uint_ne(fraction, 99);
    return (uint32_t)(value < 0) << (t->exponent_bits + t->fraction_bits) |
           (e + bias) << t->fraction_bits | fraction;
}

typedef struct {
    const type_row *type;
    sx_swizzle swizzle[2];
    sx_major major[2];
    bool in_registers; /* A */
    bool negates;      /* B is multiplied by -1 */
    uint32_t columns;
    uint64_t seed; /* of the launch; odd: lazy */
} example;

/* Lays a matrix of `mn` lines along K out at `base`; false: core/tile has no such operand. */
static bool lay(const example *x, uint32_t which, uint32_t base, uint32_t mn,
                sx_wgmma_operand *operand, int32_t (*value)[LINE_BYTES])
{
    uint32_t bytes = x->type->bytes, depth = LINE_BYTES / bytes;
    bool along_k = x->major[which] == SX_MAJOR_K;
    uint32_t width = sx_swizzle_bytes(x->swizzle[which]), rows = along_k ? mn : depth;
    uint32_t row_bytes = along_k ? LINE_BYTES : mn * bytes;
    sx_slot slot;
    if (row_bytes % width != 0 ||
        sx_slot_make(&cx, rows, row_bytes, width, width, x->swizzle[which], &slot) != SX_OK ||
        sx_wgmma_operand_make(&cx, &slot, x->type->element, x->major[which], operand) != SX_OK) {
        sx_ctx_reset_error(&cx);
        return false;
    }
    for (uint32_t i = 0; i < mn; i++) {
        for (uint32_t k = 0; k < depth; k++) {
            uint32_t bits = encoded(x->type, value[i][k]), row = along_k ? i : k;
            uint32_t at =
                sx_slot_address(&slot, base, row, (along_k ? k : i) * bytes) - SHARED_FIRST;
            ck_assert_uint_le(at + bytes, sizeof image);
            memcpy(image + at, &bits, bytes);
        }
    }
    return true;
}

/* A in registers: those of the matrix instructions of a warp, which the manual draws. */
static void lay_fragments(const example *x)
{
    uint32_t e = 4 / x->type->bytes, depth = 32 / x->type->bytes;
    for (uint32_t i = 0; i < 4 * THREADS * 4; i++) {
        uint32_t step = i / (THREADS * 4), thread = i / 4 % THREADS, r = i % 4, word = 0;
        for (uint32_t j = 0; j < e; j++) {
            uint32_t row = thread / 32 * 16 + thread % 32 / 4 + (r & 1) * 8;
            uint32_t k = step * depth + thread % 4 * e + j + (r >> 1) * 4 * e;
            word |= encoded(x->type, a[row][k]) << (32 / e * j);
        }
        memcpy(&fragments[step][thread][4 * r], &word, 4);
    }
}

static void print_kernel(const example *x, const sx_wgmma_operand *of, const uint32_t *base,
                         uint32_t bytes)
{
    uint32_t step = 32 / x->type->bytes;
    sx_buf_clear(&text);
    sx_buf_print(
        &text,
        ".version 8.4\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 tiles[];\n"
        ".visible .entry k(.param .u64 image, .param .u64 parts, .param .u64 out)\n{\n"
        ".reg .pred %%p<2>; .reg .b32 %%r<300>; .reg .b64 %%d<9>;\n"
        "mov.u32 %%r0, %%tid.x; ld.param.u64 %%d0, [image]; ld.param.u64 %%d1, [out]; ld.param.u64 "
        "%%d8, "
        "[parts];\n"
        "shl.b32 %%r1, %%r0, 4; mov.u32 %%r2, tiles; mul.wide.u32 %%d2, %%r1, 1; add.u64 %%d8, "
        "%%d8, %%d2;\n"
        "copy: mul.wide.u32 %%d2, %%r1, 1; add.u64 %%d2, %%d2, %%d0;\n"
        "ld.global.v4.b32 {%%r4, %%r5, %%r6, %%r7}, [%%d2]; add.u32 %%r3, %%r2, %%r1;\n"
        "st.shared.v4.b32 [%%r3], {%%r4, %%r5, %%r6, %%r7}; add.u32 %%r1, %%r1, 2048;\n"
        "setp.lt.u32 %%p0, %%r1, %u; @%%p0 bra copy;\nfence.proxy.async; bar.sync 0;\n",
        bytes);
    for (uint32_t i = 0; x->in_registers && i < 4; i++) {
        sx_buf_print(&text, "ld.global.v4.b32 {%%r%u, %%r%u, %%r%u, %%r%u}, [%%d8+%u];\n",
                     200 + 4 * i, 201 + 4 * i, 202 + 4 * i, 203 + 4 * i, 2048 * i);
    }
    sx_buf_print(&text, "wgmma.fence.sync.aligned;\n");
    for (uint32_t i = 0; i < 4; i++) {
        sx_buf_print(&text, "mov.u64 %%d4, %llu; mov.u64 %%d5, %llu;\n",
                     x->in_registers ? 0ULL
                                     : (unsigned long long)sx_wgmma_descriptor(
                                           &of[0], base[0] + sx_wgmma_offset(&of[0], 0, i * step)),
                     (unsigned long long)sx_wgmma_descriptor(
                         &of[1], base[1] + sx_wgmma_offset(&of[1], 0, i * step)));
        sx_buf_print(&text, "wgmma.mma_async.sync.aligned.m64n%uk%u.%s.%s.%s {", x->columns, step,
                     x->type->result, x->type->name, x->type->name);
        for (uint32_t r = 0; r < x->columns / 2; r++) {
            sx_buf_print(&text, "%s%%r%u", r == 0 ? "" : ", ", 16 + r);
        }
        if (x->in_registers) {
            sx_buf_print(&text, "}, {%%r%u, %%r%u, %%r%u, %%r%u}, %%d5, %u", 200 + 4 * i,
                         201 + 4 * i, 202 + 4 * i, 203 + 4 * i, i > 0);
        } else {
            sx_buf_print(&text, "}, %%d4, %%d5, %u", i > 0);
        }
        sx_buf_print(&text, "%s",
                     x->type->exponent_bits == 0 ? ""
                     : x->negates                ? ", 1, -1"
                                                 : ", 1, 1");
        if (x->type->transposes && !x->in_registers) {
            sx_buf_print(&text, ", %d", x->major[0] == SX_MAJOR_MN);
        }
        if (x->type->transposes) {
            sx_buf_print(&text, ", %d", x->major[1] == SX_MAJOR_MN);
        }
        sx_buf_print(&text, ";\n");
    }
    sx_buf_print(&text,
                 "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"
                 "mul.wide.u32 %%d6, %%r0, %u; add.u64 %%d6, %%d6, %%d1;\n",
                 COLUMNS_MAX / 2 * 4);
    for (uint32_t r = 0; r < x->columns / 2; r++) {
        sx_buf_print(&text, "st.global.b32 [%%d6+%u], %%r%u;\n", 4 * r, 16 + r);
    }
    sx_buf_print(&text, "ret;\n}\n");
}

static int32_t result_of(const type_row *t, uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return t->exponent_bits == 0 ? (int32_t)bits : (int32_t)lrintf(value);
}

static void check_results(const example *x)
{
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t n = 0; n < x->columns; n++) {
            int32_t sum = 0;
            for (uint32_t k = 0; k < LINE_BYTES / x->type->bytes; k++) {
                sum += a[row][k] * b[n][k];
            }
            uint32_t thread = row / 16 * 32 + row % 8 * 4 + n % 8 / 2;
            uint32_t r = n / 8 * 4 + row % 16 / 8 * 2 + n % 2;
            ck_assert_msg(result_of(x->type, out[thread][r]) == (x->negates ? -sum : sum),
                          "%s, N %u, swizzles %u %u, majors %d %d%s: element (%u, %u)",
                          x->type->name, x->columns, sx_swizzle_bytes(x->swizzle[0]),
                          sx_swizzle_bytes(x->swizzle[1]), x->major[0], x->major[1],
                          x->in_registers ? ", A in registers" : "", row, n);
        }
    }
}

/* false: there is no such operand. */
static bool check_example(const example *x)
{
    sx_wgmma_operand of[2] = {{0}};
    uint32_t base[2] = {SHARED_FIRST, SHARED_FIRST + ROWS * LINE_BYTES};
    uint32_t bytes = (ROWS + x->columns) * LINE_BYTES;
    sx_ptx_module *module;
    memset(image, 0, sizeof image);
    if (!lay(x, 0, base[0], ROWS, &of[0], a) || !lay(x, 1, base[1], x->columns, &of[1], b)) {
        return false;
    }
    lay_fragments(x);
    print_kernel(x, of, base, bytes);
    ck_sx_ok(&cx, sx_ptx_parse(&cx, sx_buf_span(&text), &module));
    launch_begin(&l, module, "k", (sx_ptx_dim){1, 1, 1}, (sx_ptx_dim){THREADS, 1, 1});
    launch_in(&l, "image", image, sizeof image);
    launch_in(&l, "parts", fragments, sizeof fragments);
    launch_out(&l, "out", out, sizeof out);
    l.launch.dynamic_shared_bytes = bytes;
    ck_sx_ok(&cx, launch_run(&cx, &l, x->seed, x->seed % 2 != 0));
    check_results(x);
    return true;
}

START_TEST(test_every_kind_of_operand)
{
    static const uint32_t columns[] = {8, 24, 64, 256};
    const type_row *t = &types[_i];
    sx_rng rng = {sx_test_seed()};
    uint32_t checked = 0;
    for (uint32_t i = 0; i < ROWS + COLUMNS_MAX; i++) {
        for (uint32_t k = 0; k < LINE_BYTES; k++) {
            int32_t value = (int32_t)sx_rng_below(&rng, 13) - (t->is_signed ? 6 : 0);
            *(i < ROWS ? &a[i][k] : &b[i - ROWS][k]) = value;
        }
    }
    for (uint32_t i = 0; i < SX_SWIZZLE_COUNT * 4 * 2; i++) {
        /* 8 and 24 columns where B lies along K, and without a swizzle. */
        uint32_t wide = i / 8 % 2 != 0 && (i + i / 4) % 4 != 0 ? 2 : 0;
        example x = {.type = t,
                     .columns = columns[wide + (i + i / 16) % (wide == 0 ? 4 : 2)],
                     .seed = i % 5,
                     .in_registers = i / 16 != 0,
                     .major = {i / 4 % 2 != 0 ? SX_MAJOR_MN : SX_MAJOR_K,
                               i / 8 % 2 != 0 ? SX_MAJOR_MN : SX_MAJOR_K},
                     .swizzle = {(sx_swizzle)(i % 4), (sx_swizzle)((i + i / 4) % 4)},
                     .negates = i % 3 == 0 && t->exponent_bits != 0};
        bool transposed = x.major[0] == SX_MAJOR_MN || x.major[1] == SX_MAJOR_MN;
        if ((t->transposes || !transposed) && !(x.in_registers && x.major[0] == SX_MAJOR_MN)) {
            checked += check_example(&x);
        }
    }
    ck_assert_uint_eq(checked, t->transposes ? 24 : 8);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ptx wgmma");
    TCase *tests = tcase_create("wgmma");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, test_every_kind_of_operand, 0, (int)SX_COUNT(types));
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
