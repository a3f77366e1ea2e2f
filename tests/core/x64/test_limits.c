/* Borders of the code generator: registers that do not suffice, far addresses, memory and blob limits, many of
 * everything. */
#include <stdio.h>

#include "tests/core/x64/machine.h"

static sx_addr at(uint32_t buffer, int64_t offset)
{
    return (sx_addr){.buffer = buffer, .offset = offset, .index_reg = SX_NO_REG};
}

/* `count` sums over one loop, all alive at once. */
static sx_kernel *sums(sx_ctx *cx, uint32_t lanes, uint32_t count)
{
    sx_kernel *kernel;
    sx_loop_builder b;
    ck_sx_ok(cx, sx_kernel_make(cx, "sums", lanes, 4, &kernel));
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, 64 * 8);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, 64 * (int64_t)count);
    sx_loop_begin_part(&b, cx, kernel, 1, 1, 1);
    uint32_t sum[64];
    for (uint32_t i = 0; i < count; i++) {
        sum[i] = sx_loop_set(&b, (float)i);
    }
    uint32_t v = sx_loop_open(&b, 8);
    sx_addr from = at(0, 0);
    from.coef[v] = 64;
    uint32_t x = sx_loop_op(&b, SX_LOP_LOAD, SX_NO_REG, &from, 0, 0, 0, lanes, 0);
    for (uint32_t i = 0; i < count; i++) {
        (void)sx_loop_op(&b, SX_LOP_FMA, sum[i], NULL, x, x, sum[i], 0, 0);
    }
    sx_loop_close(&b);
    for (uint32_t i = 0; i < count; i++) {
        sx_addr to = at(1, 64 * (int64_t)i);
        (void)sx_loop_op(&b, SX_LOP_STORE, 0, &to, sum[i], 0, 0, lanes, 0);
    }
    ck_sx_ok(cx, sx_loop_end_part(&b));
    return kernel;
}

static void simple_input(void *self, uint32_t k, uint8_t *bytes, size_t size)
{
    (void)self;
    for (size_t i = 0; i + 4 <= size; i += 4) {
        float value = (float)(i % 97) * 0.25f - (float)k;
        memcpy(bytes + i, &value, 4);
    }
}

START_TEST(as_many_sums_as_registers)
{
    for (uint32_t lanes = 8; lanes <= 16; lanes += 8) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 26);
        sx_x64_kernel code;
        uint32_t most = 2 * lanes - 1; /* and one for x */
        ck_sx_ok(&cx, machine_check(&cx, sums(&cx, lanes, most), &code, simple_input, NULL));
        ck_assert_uint_eq(code.vector_count, 2 * lanes);
        ck_assert_uint_eq(code.constant_count, 0);
        char text[64];
        (void)snprintf(text, sizeof(text), "more than %u vector registers in use", 2 * lanes);
        sx_kernel *over = sums(&cx, lanes, most + 1);
        ck_sx_fails(&cx, machine_check(&cx, over, &code, simple_input, NULL), SX_LIMIT, text);
        for (uint32_t count = most + 1; count <= 60; count += 7) {
            ck_sx_ok(&cx, machine_check_by(sx_x64_emit_spilling, &cx, sums(&cx, lanes, count),
                                           &code, simple_input, NULL));
            ck_assert_uint_ge(code.spill_count, count - most);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Masks have seven registers with 16 lanes. */
START_TEST(too_many_masks)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 26);
    for (uint32_t count = 7; count <= 8; count++) {
        sx_kernel *kernel;
        sx_loop_builder b;
        ck_sx_ok(&cx, sx_kernel_make(&cx, "masks", 16, 4, &kernel));
        (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, 64);
        (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, 64);
        sx_loop_begin_part(&b, &cx, kernel, 1, 1, 1);
        sx_addr from = at(0, 0);
        sx_addr to = at(1, 0);
        uint32_t x = sx_loop_op(&b, SX_LOP_LOAD, SX_NO_REG, &from, 0, 0, 0, 13, 0);
        uint32_t m[8];
        for (uint32_t i = 0; i < count; i++) {
            m[i] = sx_loop_op(&b, SX_LOP_CMP, SX_NO_REG, NULL, x, sx_loop_set(&b, (float)i), 0,
                              SX_LT, 0);
        }
        uint32_t y = x;
        for (uint32_t i = 0; i < count; i++) {
            y = sx_loop_op(&b, SX_LOP_BLEND, SX_NO_REG, NULL, m[i], y, sx_loop_set(&b, 5), 0, 0);
        }
        (void)sx_loop_op(&b, SX_LOP_STORE, 0, &to, y, 0, 0, 13, 0);
        ck_sx_ok(&cx, sx_loop_end_part(&b));
        sx_x64_kernel code;
        sx_code result = machine_check(&cx, kernel, &code, simple_input, NULL);
        /* seven masks leave no room for the mask of 13 lanes: it is made at each use, in a register that is
         * then missing */
        ck_assert_int_eq(result, SX_LIMIT);
        ck_assert_ptr_nonnull(strstr(cx.error.text, "mask registers in use"));
        sx_ctx_reset_error(&cx);
        ck_sx_ok(&cx,
                 machine_check_by(sx_x64_emit_spilling, &cx, kernel, &code, simple_input, NULL));
        ck_assert_uint_gt(code.spill_count, 0);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Offsets, strides and loop steps beyond 32 bits. */
START_TEST(far_addresses)
{
    const int64_t size = INT64_C(14) << 30;
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_kernel *kernel;
    sx_loop_builder b;
    uint32_t lanes = _i == 0 ? 8 : 16;
    ck_sx_ok(&cx, sx_kernel_make(&cx, "far", lanes, 4, &kernel));
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, size);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, 8 * 64);
    sx_loop_begin_part(&b, &cx, kernel, 2, 1, 1);
    uint32_t v = sx_loop_open(&b, 2);
    uint32_t w = sx_loop_open(&b, 2);
    sx_addr from = at(0, (INT64_C(1) << 33) + 4);
    from.coef[0] = (INT64_C(3) << 30) + 128;
    from.coef[v] = -((INT64_C(1) << 32) + 64);
    from.coef[w] = 4096;
    uint32_t x = sx_loop_op(&b, SX_LOP_LOAD, SX_NO_REG, &from, 0, 0, 0, lanes, 0);
    sx_addr spread = from;
    spread.offset = (INT64_C(1) << 32) + 64;
    uint32_t y = sx_loop_op(&b, SX_LOP_LOADS, SX_NO_REG, &spread, 0, 0, 0, 3, INT64_C(5) << 29);
    x = sx_loop_op(&b, SX_LOP_ADD, SX_NO_REG, NULL, x, y, 0, 0, 0);
    sx_addr to = at(1, 0);
    to.coef[0] = 256;
    to.coef[v] = 128;
    to.coef[w] = 64;
    (void)sx_loop_op(&b, SX_LOP_STORE, 0, &to, x, 0, 0, lanes, 0);
    sx_loop_close(&b);
    sx_loop_close(&b);
    ck_sx_ok(&cx, sx_loop_end_part(&b));
    sx_buf blob;
    sx_buf_init(&blob, 1 << 20);
    sx_x64_kernel code;
    ck_sx_ok(&cx, sx_x64_emit(&cx, kernel, &blob, &code));
    ck_sx_ok(&cx, sx_x64_check(&cx, sx_buf_span(&blob), code.level, code.entry, 1));
    uint8_t *in = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(in, MAP_FAILED);
    uint32_t word = 1;
    for (int64_t g = 0; g < 2; g++) {
        for (int64_t k = 0; k < 4; k++) {
            int64_t moved = g * from.coef[0] + k / 2 * from.coef[v] + k % 2 * from.coef[w];
            for (uint32_t i = 0; i < 16; i++) {
                float value = (float)word++;
                memcpy(in + from.offset + moved + 4 * i, &value, 4);
                if (i < 3) {
                    memcpy(in + spread.offset + moved + (INT64_C(5) << 29) * i, &value, 4);
                }
            }
        }
    }
    float ours[128] = {0};
    float theirs[128] = {0};
    ck_sx_ok(&cx, sx_kernel_eval(&cx, kernel, (void *[]){in, theirs}));
    if (machine_has(code.level)) {
        guarded text = code_make(&blob);
        machine_run(kernel, &code, text.ptr, (void *[]){in, ours});
        ck_assert_mem_eq(ours, theirs, sizeof(ours));
        (void)munmap(text.map, text.map_size);
    }
    (void)munmap(in, (size_t)size);
    sx_buf_fini(&blob);
    sx_ctx_fini(&cx);
}
END_TEST

/* Kernels of machines whose lanes are threads. */
START_TEST(vectors_of_other_machines)
{
    for (uint32_t bytes = 4; bytes <= 8; bytes += 4) {
        sx_ctx cx;
        sx_kernel *kernel;
        sx_loop_builder b;
        sx_buf blob;
        sx_x64_kernel code;
        sx_ctx_init(&cx, (size_t)1 << 26);
        sx_buf_init(&blob, 1 << 20);
        ck_sx_ok(&cx, sx_kernel_make(&cx, "warp", 32, bytes, &kernel));
        (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, 256);
        sx_loop_begin_part(&b, &cx, kernel, 1, 1, 1);
        sx_addr to = at(0, 0);
        uint32_t x = sx_loop_bits(&b, 1);
        (void)sx_loop_op(&b, SX_LOP_STORE, 0, &to, x, 0, 0, 32, 0);
        ck_sx_ok(&cx, sx_loop_end_part(&b));
        ck_sx_fails(&cx, sx_x64_emit(&cx, kernel, &blob, &code), SX_UNIMPLEMENTED,
                    "no vector register has 32 lanes");
        ck_assert_uint_eq(blob.len, 0);
        sx_buf_fini(&blob);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(more_pointers_than_registers)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_kernel *kernel;
    sx_loop_builder b;
    ck_sx_ok(&cx, sx_kernel_make(&cx, "pointers", 8, 4, &kernel));
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, 1 << 16);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, 1 << 16);
    sx_loop_begin_part(&b, &cx, kernel, 2, 2, 2);
    uint32_t v = sx_loop_open(&b, 3);
    uint32_t w = sx_loop_open(&b, 3);
    for (int64_t i = 0; i < 40; i++) {
        sx_addr a = at(0, 4 * i);
        a.coef[v] = 4 * i;
        a.coef[w] = 400 - 4 * i;
        a.coef[i % 3] = 64;
        uint32_t x = sx_loop_op(&b, SX_LOP_LOAD, SX_NO_REG, &a, 0, 0, 0, 1 + (uint32_t)i % 8, 0);
        a.buffer = 1;
        (void)sx_loop_op(&b, SX_LOP_STORE, 0, &a, x, 0, 0, 1 + (uint32_t)i % 8, 0);
    }
    sx_loop_close(&b);
    sx_loop_close(&b);
    ck_sx_ok(&cx, sx_loop_end_part(&b));
    sx_x64_kernel code;
    ck_sx_ok(&cx, machine_check(&cx, kernel, &code, simple_input, NULL));
    ck_assert_uint_gt(code.slot_count, 50);
    sx_loop_begin_part(&b, &cx, kernel, 1, 1, 1);
    (void)sx_loop_open(&b, 2);
    for (int64_t k = 0; k < 1100; k++) { /* more patterns than the limit */
        sx_addr a = at(0, 0);
        a.coef[3] = k;
        uint32_t x = sx_loop_op(&b, SX_LOP_LOAD, SX_NO_REG, &a, 0, 0, 0, 8, 0);
        a = at(1, 0);
        (void)sx_loop_op(&b, SX_LOP_STORE, 0, &a, x, 0, 0, 8, 0);
    }
    sx_loop_close(&b);
    ck_sx_ok(&cx, sx_loop_end_part(&b));
    ck_sx_fails(&cx, machine_check(&cx, kernel, &code, simple_input, NULL), SX_LIMIT,
                "more than 1024 address patterns");
    sx_ctx_fini(&cx);
}
END_TEST

/* Memory that ends anywhere during the work gives SX_NOMEM, never a crash. */
START_TEST(out_of_memory_everywhere)
{
    sx_ctx kernels;
    sx_ctx_init(&kernels, (size_t)1 << 26);
    sx_kernel *kernel = sums(&kernels, 16, 20);
    uint32_t failures = 0;
    for (size_t limit = 0;; limit += 160) {
        sx_ctx cx;
        sx_ctx_init(&cx, limit);
        sx_buf blob;
        sx_buf_init(&blob, 1 << 20);
        sx_x64_kernel code;
        sx_code result = sx_x64_emit(&cx, kernel, &blob, &code);
        if (result == SX_OK) {
            result = sx_x64_check(&cx, sx_buf_span(&blob), code.level, code.entry, 1);
        }
        ck_assert_msg(result == SX_OK || result == SX_NOMEM, "%s", cx.error.text);
        failures += result == SX_NOMEM;
        sx_buf_fini(&blob);
        sx_ctx_fini(&cx);
        if (result == SX_OK) {
            break;
        }
    }
    ck_assert_uint_gt(failures, 20);
    sx_ctx_fini(&kernels);
}
END_TEST

START_TEST(blob_limit_and_fuel)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_kernel *kernel = sums(&cx, 8, 10);
    sx_x64_kernel code;
    sx_buf blob;
    sx_buf_init(&blob, 200);
    ck_sx_fails(&cx, sx_x64_emit(&cx, kernel, &blob, &code), SX_LIMIT,
                "machine code: more than 200 bytes");
    sx_buf_fini(&blob);
    sx_buf_init(&blob, 1 << 20);
    sx_buf_put_u8(&blob, 1);
    sx_kernel *over = sums(&cx, 8, 20);
    ck_sx_fails(&cx, sx_x64_emit(&cx, over, &blob, &code), SX_LIMIT,
                "more than 16 vector registers");
    ck_assert_uint_eq(blob.len, 1);
    cx.fuel = 10;
    ck_sx_fails(&cx, sx_x64_emit(&cx, kernel, &blob, &code), SX_QUOTA, "");
    cx.fuel = SX_FUEL_DEFAULT;
    kernel->part[0].addr[0].buffer = 9;
    ck_sx_fails(&cx, sx_x64_emit(&cx, kernel, &blob, &code), SX_INPUT, "buffer 9 of 2");
    sx_buf_fini(&blob);
    sx_ctx_fini(&cx);
}
END_TEST

/* The same kernel gives the same bytes, behind whatever lies in the blob already. */
START_TEST(bytes_are_reproducible)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_kernel *kernel = sums(&cx, 16, 31);
    sx_buf blob;
    sx_buf_init(&blob, 1 << 20);
    sx_x64_kernel code[2];
    ck_sx_ok(&cx, sx_x64_emit(&cx, kernel, &blob, &code[0]));
    size_t size = blob.len;
    sx_buf_put_u8(&blob, 0xCC);
    ck_sx_ok(&cx, sx_x64_emit(&cx, kernel, &blob, &code[1]));
    ck_assert_uint_eq(code[0].entry[0] % 64, 0);
    ck_assert_uint_eq(code[1].entry[0] % 64, 0);
    ck_assert_uint_eq(blob.len - code[1].entry[0], size - code[0].entry[0]);
    ck_assert_mem_eq(blob.ptr + code[0].entry[0], blob.ptr + code[1].entry[0],
                     size - code[0].entry[0]);
    uint32_t entries[2] = {code[0].entry[0], code[1].entry[0]};
    ck_sx_ok(&cx, sx_x64_check(&cx, sx_buf_span(&blob), SX_X64_AVX512, entries, 2));
    sx_buf_fini(&blob);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("x64.limits");
    TCase *tcase = tcase_create("limits");
    tcase_set_timeout(tcase, 400);
    tcase_add_test(tcase, as_many_sums_as_registers);
    tcase_add_test(tcase, too_many_masks);
    tcase_add_loop_test(tcase, far_addresses, 0, 2);
    tcase_add_test(tcase, vectors_of_other_machines);
    tcase_add_test(tcase, more_pointers_than_registers);
    tcase_add_test(tcase, out_of_memory_everywhere);
    tcase_add_test(tcase, blob_limit_and_fuel);
    tcase_add_test(tcase, bytes_are_reproducible);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
