/* Machine code of loop kernels against the interpreter, bit for bit, on both instruction sets, between guard pages. */
#include <stdio.h>

#include "tests/core/x64/random_kernel.h"

#define KERNELS 300

static void random_kernels(uint32_t lanes)
{
    uint64_t seed = sx_test_seed();
    static maker g;
    memset(&g, 0, sizeof(g));
    g.rng.state = seed;
    uint32_t limits = 0;
    uint32_t constants = 0;
    uint32_t slots = 0;
    uint32_t spills = 0;
    for (uint32_t k = 0; k < KERNELS; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 28);
        sx_kernel *kernel = make_kernel(&g, &cx, lanes, k);
        sx_x64_kernel code;
        uint64_t input_seed = seed + k;
        sx_code result = machine_check(&cx, kernel, &code, random_input, &input_seed);
        ck_assert_msg(result == SX_OK || result == SX_LIMIT, "%s", cx.error.text);
        limits += result == SX_LIMIT;
        ck_assert(result == SX_LIMIT || code.spill_count == 0);
        if (result == SX_LIMIT || k % 4 == 0) {
            sx_ctx_reset_error(&cx);
            ck_sx_ok(&cx, machine_check_by(sx_x64_emit_spilling, &cx, kernel, &code, random_input,
                                           &input_seed));
            spills += code.spill_count > 0;
        }
        constants += code.constant_count > 0;
        slots += code.slot_count > 0;
        sx_ctx_fini(&cx);
    }
    printf("%u lanes: %u kernels, %u need too many registers, %u with constants in memory, %u with "
           "integers on the stack, %u spilled\n",
           lanes, KERNELS, limits, constants, slots, spills);
    ck_assert_uint_gt(constants, KERNELS / 20);
    ck_assert_uint_gt(slots, KERNELS / 20);
    ck_assert_uint_lt(limits, lanes == 16 ? KERNELS / 3 : KERNELS / 2);
    ck_assert_uint_gt(spills, KERNELS / 30);
    for (uint32_t lop = 0; lop < SX_LOP_COUNT; lop++) {
        bool other = lop == SX_LOP_STORES; /* of lanes that are threads */
        ck_assert_msg(g.used[lop] != other, "instruction %s was never made",
                      sx_lop_info_of((sx_lop)lop)->name);
    }
}

START_TEST(random_kernels_avx2)
{
    random_kernels(8);
}
END_TEST

START_TEST(random_kernels_avx512)
{
    random_kernels(16);
}
END_TEST

/* Multiples of 1/32 near the constants of the grid below. */
static void small_floats(void *self, uint32_t k, uint8_t *bytes, size_t size)
{
    uint64_t *seed = self;
    sx_rng rng = {*seed + k};
    for (size_t i = 0; i + 4 <= size; i += 4) {
        float value = (float)sx_rng_below(&rng, 5) * 0.03125f - 1.0f;
        memcpy(bytes + i, &value, 4);
    }
}

/* ---- every instruction with every choice of operands in memory ---- */
typedef struct {
    sx_loop_builder b;
    uint32_t stores, constants;
} grid_maker;

static uint32_t fresh_constant(grid_maker *g, sx_lop lop)
{
    g->constants++;
    if (g->constants % 3 == 0 || lop == SX_LOP_ICMP) { /* iota: whole vectors in the pool */
        return sx_loop_op(&g->b, SX_LOP_IOTA, SX_NO_REG, NULL, 0, 0, 0,
                          lop == SX_LOP_ICMP ? g->constants % 7 : 0x3F800000 + 1000 * g->constants,
                          0);
    }
    return sx_loop_set(&g->b, (float)g->constants * 0.03125f - 2.0f);
}

/* One instruction: bit k of `in_memory` makes operand k a constant, `same` says which operand is overwritten
 * (3: none). */
static void one_case(grid_maker *g, sx_lop lop, uint32_t count, uint32_t in_memory, uint32_t same,
                     uint32_t imm)
{
    uint32_t lanes = g->b.kernel->lanes;
    uint32_t source[3] = {0};
    for (uint32_t k = 0; k < count; k++) {
        sx_addr a = {.buffer = 0, .offset = 64 * (int64_t)k, .index_reg = SX_NO_REG};
        a.coef[3] = 192;
        source[k] = (in_memory >> k & 1) != 0
                        ? fresh_constant(g, lop)
                        : sx_loop_op(&g->b, SX_LOP_LOAD, SX_NO_REG, &a, 0, 0, 0, lanes, 0);
        if ((in_memory >> k & 1) == 0) { /* a second definition, so that the load is not folded */
            (void)sx_loop_op(&g->b, SX_LOP_MOV, source[k], NULL, source[k], 0, 0, 0, 0);
        }
    }
    uint32_t dst = same < count ? source[same] : SX_NO_REG;
    uint32_t result;
    if (lop == SX_LOP_CMP || lop == SX_LOP_ICMP) {
        uint32_t m = sx_loop_op(&g->b, lop, SX_NO_REG, NULL, source[0], source[1], 0, imm, 0);
        result = sx_loop_op(&g->b, SX_LOP_BLEND, SX_NO_REG, NULL, m, source[0], source[1], 0, 0);
    } else if (lop == SX_LOP_BLEND) {
        uint32_t m =
            sx_loop_op(&g->b, SX_LOP_CMP, SX_NO_REG, NULL, source[0], source[1], 0, SX_LT, 0);
        result = sx_loop_op(&g->b, lop, dst, NULL, m, source[0], source[1], 0, 0);
    } else {
        result = sx_loop_op(&g->b, lop, dst, NULL, source[0], source[1], source[2], imm, 0);
    }
    sx_addr to = {.buffer = 1, .offset = 64 * (int64_t)g->stores++, .index_reg = SX_NO_REG};
    (void)sx_loop_op(&g->b, SX_LOP_STORE, 0, &to, result, 0, 0, 1 + g->stores % lanes, 0);
}

static void all_cases(grid_maker *g, sx_lop lop, uint32_t count, uint32_t imm)
{
    for (uint32_t in_memory = 0; in_memory < 1U << count; in_memory++) {
        for (uint32_t same = 0; same <= count; same++) {
            if (same == count || (in_memory >> same & 1) == 0) {
                one_case(g, lop, count, in_memory, same, imm);
            }
        }
    }
}

/* Sums that fill every register and are used more often than anything else, so that the rest lives on the stack. */
static void add_ballast(grid_maker *g, uint32_t *sum, uint32_t count)
{
    for (uint32_t round = 0; round < 8; round++) {
        for (uint32_t i = 0; i < count; i++) {
            (void)sx_loop_op(&g->b, SX_LOP_SUB, sum[i], NULL, sum[i], sum[(i + round) % count], 0,
                             0, 0);
        }
    }
}

static void operand_grid(uint32_t lanes, bool floats, bool crowded)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 28);
    sx_kernel *kernel;
    ck_sx_ok(&cx, sx_kernel_make(&cx, "grid", lanes, 4, &kernel));
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, 2 * 192);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, 64 * 1024);
    grid_maker g = {.stores = 0};
    sx_loop_begin_part(&g.b, &cx, kernel, 1, 1, 1);
    uint32_t sum[32];
    for (uint32_t i = 0; i < 2 * lanes; i++) {
        sum[i] = crowded ? sx_loop_set(&g.b, (float)i) : 0;
    }
    (void)sx_loop_open(&g.b, 2);
    if (crowded) {
        add_ballast(&g, sum, 2 * lanes);
    }
    static const sx_lop two[] = {SX_LOP_ADD, SX_LOP_SUB, SX_LOP_MUL,  SX_LOP_DIV,
                                 SX_LOP_MAX, SX_LOP_MIN, SX_LOP_BLEND};
    static const sx_lop ints[] = {SX_LOP_AND,  SX_LOP_OR,   SX_LOP_XOR,  SX_LOP_IADD,
                                  SX_LOP_ISUB, SX_LOP_SHLV, SX_LOP_SHRV, SX_LOP_SARV};
    static const sx_lop one[] = {SX_LOP_MOV, SX_LOP_SQRT, SX_LOP_F2I, SX_LOP_BCAST0};
    for (uint32_t k = 0; k < SX_COUNT(two) && floats; k++) {
        all_cases(&g, two[k], 2, 0);
    }
    for (uint32_t k = 0; k < SX_COUNT(ints) && !floats; k++) {
        all_cases(&g, ints[k], 2, 0);
    }
    for (uint32_t k = 0; k < SX_COUNT(one) && floats; k++) {
        all_cases(&g, one[k], 1, 0);
    }
    all_cases(&g, floats ? SX_LOP_FMA : SX_LOP_I2F, floats ? 3 : 1, 0);
    all_cases(&g, floats ? SX_LOP_FNMA : SX_LOP_SHL, floats ? 3 : 1, floats ? 0 : 3);
    all_cases(&g, floats ? SX_LOP_ROUND : SX_LOP_SAR, 1, 3);
    all_cases(&g, floats ? SX_LOP_SWAP : SX_LOP_SHR, 1, 4);
    for (uint32_t how = 0; how < SX_DIRECTION_COUNT && floats; how++) {
        all_cases(&g, SX_LOP_CMP, 2, how);
    }
    if (!floats) {
        all_cases(&g, SX_LOP_ICMP, 2, SX_EQ);
        all_cases(&g, SX_LOP_ICMP, 2, SX_GT);
    }
    sx_loop_close(&g.b);
    for (uint32_t i = 0; i < 2 * lanes && crowded; i++) {
        sx_addr to = {.buffer = 1, .offset = 64 * (int64_t)g.stores++, .index_reg = SX_NO_REG};
        (void)sx_loop_op(&g.b, SX_LOP_STORE, 0, &to, sum[i], 0, 0, lanes, 0);
    }
    ck_sx_ok(&cx, sx_loop_end_part(&g.b));
    sx_x64_kernel code;
    uint64_t seed = 7; /* few distinct values, so that comparisons meet equal ones */
    ck_sx_ok(&cx, machine_check_by(crowded ? sx_x64_emit_spilling : sx_x64_emit, &cx, kernel, &code,
                                   floats ? small_floats : random_input, &seed));
    ck_assert_uint_gt(code.constant_count, floats ? 60U : 5U);
    ck_assert(crowded ? code.spill_count > 60 : code.spill_count == 0);
    sx_ctx_fini(&cx);
}

START_TEST(operands_in_memory)
{
    operand_grid(_i % 2 == 0 ? 8 : 16, _i / 2 % 2 == 0, _i >= 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("x64.codegen");
    TCase *tcase = tcase_create("codegen");
    tcase_set_timeout(tcase, 400);
    tcase_add_loop_test(tcase, operands_in_memory, 0, 8);
    tcase_add_test(tcase, random_kernels_avx2);
    tcase_add_test(tcase, random_kernels_avx512);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
