/* Emulated kernels against the interpreter of core/loop, bit for bit, on every machine; what the emulator refuses. */
#include "tests/core/x64/random_kernel.h"

#include <stdio.h>

#include "core/x64/emulate.h"

#define KERNELS 150

/* All parts at all grid points, on regions of exactly the buffers' sizes. */
static sx_code emulate_kernel(sx_ctx *cx, const sx_kernel *kernel, const sx_x64_kernel *code,
                              const sx_buf *blob, uint8_t *const *memory, sx_x64_work *work)
{
    sx_x64_emulator *e;
    SX_TRY(sx_x64_emulator_make(cx, sx_buf_span(blob), code->entry, code->entry_count,
                                sx_x64_meanings, &e));
    sx_region region[SX_LOOP_BUFFERS_MAX];
    uint32_t count = kernel->buffer_count;
    for (uint32_t k = 0; k < count; k++) {
        const sx_loop_buffer *b = &kernel->buffer[k];
        region[k] = (sx_region){.name = "a buffer",
                                .memory = memory[k],
                                .size = (uint64_t)b->size,
                                .writable = b->role != SX_BUFFER_IN};
    }
    bool has_work = kernel->buffer[count - 1].role == SX_BUFFER_WORKSPACE;
    uint32_t outside = count - (has_work ? 1 : 0);
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const int64_t *grid = kernel->part[p].grid;
        for (int64_t i = 0; i < grid[0] * grid[1] * grid[2]; i++) {
            int64_t index[3] = {i / (grid[1] * grid[2]), i / grid[2] % grid[1], i % grid[2]};
            if (has_work) {
                memset(memory[outside], 0xA7, (size_t)region[outside].size);
            }
            SX_TRY(sx_x64_emulate(cx, e, code->entry[p], region, outside, index,
                                  has_work ? &region[outside] : NULL));
        }
    }
    *work = sx_x64_emulated(e);
    return SX_OK;
}

typedef struct {
    uint8_t *memory[SX_LOOP_BUFFERS_MAX];
} buffers;

static void fill(buffers *b, const sx_kernel *kernel, uint64_t seed)
{
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        size_t size = (size_t)kernel->buffer[k].size;
        b->memory[k] = calloc(1, size + 1);
        random_input(&seed, k, b->memory[k], size);
    }
}

static void empty(buffers *b, const sx_kernel *kernel)
{
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        free(b->memory[k]);
    }
}

static void compare_kernel(sx_ctx *cx, const sx_kernel *kernel, machine_emit emit, uint64_t seed,
                           sx_x64_work *sum)
{
    sx_buf blob;
    sx_buf_init(&blob, (size_t)1 << 24);
    sx_x64_kernel code;
    ck_sx_ok(cx, emit(cx, kernel, &blob, &code));
    buffers ours, theirs;
    fill(&ours, kernel, seed);
    fill(&theirs, kernel, seed);
    sx_x64_work work = {0};
    ck_sx_ok(cx, emulate_kernel(cx, kernel, &code, &blob, ours.memory, &work));
    ck_sx_ok(cx, sx_kernel_eval(cx, kernel, (void *const *)theirs.memory));
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        int64_t at =
            machine_compare(ours.memory[k], theirs.memory[k], (size_t)kernel->buffer[k].size);
        bool private = kernel->buffer[k].role == SX_BUFFER_WORKSPACE;
        ck_assert_msg(at < 0 || private, "kernel %s: buffer %u differs at byte %lld", kernel->name,
                      k, (long long)at);
    }
    sum->instructions += work.instructions;
    sum->lanes += work.lanes;
    empty(&ours, kernel);
    empty(&theirs, kernel);
    sx_buf_fini(&blob);
}

START_TEST(random_kernels_as_the_interpreter)
{
    uint32_t lanes = _i == 0 ? 8 : 16;
    uint64_t seed = sx_test_seed();
    static maker g;
    memset(&g, 0, sizeof(g));
    g.rng.state = seed;
    sx_x64_work work = {0};
    for (uint32_t k = 0; k < KERNELS; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 28);
        compare_kernel(&cx, make_kernel(&g, &cx, lanes, k), sx_x64_emit_spilling, seed + k, &work);
        sx_ctx_fini(&cx);
    }
    printf("%u lanes: %u kernels, %llu instructions, %llu lanes computed\n", lanes, KERNELS,
           (unsigned long long)work.instructions, (unsigned long long)work.lanes);
    for (uint32_t lop = 0; lop < SX_LOP_COUNT; lop++) {
        bool other = lop == SX_LOP_STORES; /* of lanes that are threads */
        ck_assert_msg(g.used[lop] != other, "instruction %s was never made",
                      sx_lop_info_of((sx_lop)lop)->name);
    }
}
END_TEST

/* A buffer that is one element short: the access that leaves it is named. */
START_TEST(short_buffers_are_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 28);
    sx_kernel *kernel;
    ck_sx_ok(&cx, sx_kernel_make(&cx, "copy", 16, 4, &kernel));
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, 52);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, 52);
    sx_loop_builder b;
    sx_loop_begin_part(&b, &cx, kernel, 1, 1, 1);
    sx_addr from = {.buffer = 0, .index_reg = SX_NO_REG};
    sx_addr to = {.buffer = 1, .index_reg = SX_NO_REG};
    uint32_t v = sx_loop_op(&b, SX_LOP_LOAD, SX_NO_REG, &from, 0, 0, 0, 13, 0);
    (void)sx_loop_op(&b, SX_LOP_STORE, 0, &to, v, 0, 0, 13, 0);
    ck_sx_ok(&cx, sx_loop_end_part(&b));
    sx_buf blob;
    sx_buf_init(&blob, (size_t)1 << 16);
    sx_x64_kernel code;
    ck_sx_ok(&cx, sx_x64_emit(&cx, kernel, &blob, &code));
    buffers m;
    fill(&m, kernel, 1);
    sx_x64_work work;
    ck_sx_ok(&cx, emulate_kernel(&cx, kernel, &code, &blob, m.memory, &work));
    ck_assert_mem_eq(m.memory[0], m.memory[1], 52); /* the other three lanes touch nothing */
    kernel->buffer[1].size = 48;
    ck_sx_fails(&cx, emulate_kernel(&cx, kernel, &code, &blob, m.memory, &work), SX_INPUT,
                "store of 4 bytes at byte 48 of a buffer, which has 48");
    kernel->buffer[1].size = 52;
    kernel->buffer[0].size = 51;
    ck_sx_fails(&cx, emulate_kernel(&cx, kernel, &code, &blob, m.memory, &work), SX_INPUT,
                "load of 4 bytes at byte 48 of a buffer, which has 51");
    kernel->buffer[0].size = 52;
    kernel->buffer[1].role = SX_BUFFER_IN;
    ck_sx_fails(&cx, emulate_kernel(&cx, kernel, &code, &blob, m.memory, &work), SX_INPUT,
                "which has 52 and is read only");
    empty(&m, kernel);
    sx_buf_fini(&blob);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- code by hand ---- */

static sx_code run_code(sx_ctx *cx, void (*put)(sx_x64_asm *as))
{
    sx_buf blob;
    sx_buf_init(&blob, (size_t)1 << 16);
    sx_x64_asm as;
    sx_x64_asm_init(&as, cx, SX_X64_AVX512, &blob);
    put(&as);
    ck_sx_ok(cx, sx_x64_finish(&as));
    uint32_t entry = 0;
    ck_sx_ok(cx, sx_x64_check(cx, sx_buf_span(&blob), SX_X64_AVX512, &entry, 1));
    uint8_t memory[64] = {0};
    sx_region buffer = {"buffer 0", memory, sizeof(memory), true, NULL};
    const int64_t index[3] = {0};
    sx_x64_emulator *e;
    sx_code code = sx_x64_emulator_make(cx, sx_buf_span(&blob), &entry, 1, sx_x64_meanings, &e);
    code = code == SX_OK ? sx_x64_emulate(cx, e, 0, &buffer, 1, index, NULL) : code;
    sx_buf_fini(&blob);
    return code;
}

static void lose_register(sx_x64_asm *as)
{
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_R12), sx_x64_imm(1));
    SX_X64_PUT0(as, RET);
}

static void read_undefined_flag(sx_x64_asm *as)
{
    uint32_t label = sx_x64_label_make(as);
    SX_X64_PUT(as, IMUL, sx_x64_r64(SX_RAX), sx_x64_r64(SX_RCX));
    SX_X64_PUT(as, JE, sx_x64_to(label));
    sx_x64_label_put(as, label);
    SX_X64_PUT0(as, RET);
}

static void run_for_ever(sx_x64_asm *as)
{
    uint32_t label = sx_x64_label_make(as);
    sx_x64_label_put(as, label);
    SX_X64_PUT(as, INC, sx_x64_r64(SX_RAX));
    SX_X64_PUT(as, JMP, sx_x64_to(label));
}

static void load_before_buffer(sx_x64_asm *as)
{
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_RAX), sx_x64_mem(SX_RDI, 0));
    SX_X64_PUT(as, VMOVUPS, sx_x64_reg(SX_X64_YMM, 1), sx_x64_mem(SX_RAX, -4));
    SX_X64_PUT0(as, RET);
}

static void load_far_away(sx_x64_asm *as)
{
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_RAX), sx_x64_imm(INT64_C(1) << 62));
    SX_X64_PUT(as, VMOVUPS, sx_x64_reg(SX_X64_YMM, 1), sx_x64_mem(SX_RAX, 0));
    SX_X64_PUT0(as, RET);
}

static void store_beside_vectors(sx_x64_asm *as) /* a permutation stores with its whole operand */
{
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_RAX), sx_x64_mem(SX_RDI, 0));
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_RCX), sx_x64_imm(1));
    SX_X64_PUT(as, KMOVW, sx_x64_k(1), sx_x64_r32(SX_RCX));
    SX_X64_PUT(as, VEXTRACTF32X4, sx_x64_masked(sx_x64_mem(SX_RAX, 60), 1, false),
               sx_x64_reg(SX_X64_ZMM, 1), sx_x64_imm(0));
    SX_X64_PUT0(as, RET);
}

static void read_index(sx_x64_asm *as) /* four numbers of three */
{
    SX_X64_PUT(as, VMOVUPS, sx_x64_reg(SX_X64_YMM, 1), sx_x64_mem(SX_RSI, 0));
    SX_X64_PUT0(as, RET);
}

static void load_unaligned(sx_x64_asm *as)
{
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_RAX), sx_x64_mem(SX_RDI, 0));
    SX_X64_PUT(as, VMOVAPS, sx_x64_reg(SX_X64_XMM, 1), sx_x64_mem(SX_RAX, 4));
    SX_X64_PUT0(as, RET);
}

START_TEST(bad_code_is_refused)
{
    static const struct {
        void (*put)(sx_x64_asm *as);
        sx_code code;
        const char *text;
    } cases[] = {
        {lose_register, SX_INPUT, "register 12 of the caller lost"},
        {read_undefined_flag, SX_INPUT, "at offset 4: reads a flag that is not defined"},
        {run_for_ever, SX_QUOTA, "fuel"},
        {load_before_buffer, SX_INPUT, "load of 32 bytes at byte -4 of buffer 0, which has 64"},
        {load_far_away, SX_INPUT, "load of 32 bytes at address 0x4000000000000000"},
        {store_beside_vectors, SX_INPUT, "store of 16 bytes at byte 60 of buffer 0"},
        {read_index, SX_INPUT, "load of 32 bytes at byte 0 of the index, which has 24"},
        {load_unaligned, SX_INPUT, "aligned access to an address that is not"},
    };
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 24);
    cx.fuel = 1000000;
    ck_sx_fails(&cx, run_code(&cx, cases[_i].put), cases[_i].code, cases[_i].text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("x64.emulate_kernels");
    TCase *tcase = tcase_create("kernels");
    tcase_set_timeout(tcase, 400);
    tcase_add_loop_test(tcase, random_kernels_as_the_interpreter, 0, 2);
    tcase_add_test(tcase, short_buffers_are_refused);
    tcase_add_loop_test(tcase, bad_code_is_refused, 0, 8);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
