#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "tests/lib/gen_module.h"

static uint8_t *aligned_copy(sx_span bytes)
{
    size_t size = (bytes.len + 63) / 64 * 64;
    uint8_t *copy = aligned_alloc(64, size > 0 ? size : 64);
    ck_assert_ptr_nonnull(copy);
    if (bytes.len > 0) {
        memcpy(copy, bytes.ptr, bytes.len);
    }
    return copy;
}

START_TEST(test_round_trip)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_buf bytes, again;
    sx_buf_init(&bytes, 1 << 24);
    sx_buf_init(&again, 1 << 24);
    sx_gen_module(&cx, &bytes);
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    sx_module module;
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module));
    ck_assert_uint_eq(module.tensor_count, 3);
    ck_assert(sx_span_is(sx_module_string(&module, module.tensor[0].name), "x"));
    ck_sx_ok(&cx, sx_module_encode(&cx, &module, &again));
    ck_assert(sx_span_equal(sx_buf_span(&bytes), sx_buf_span(&again)));
    free(copy);
    sx_buf_fini(&bytes);
    sx_buf_fini(&again);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_every_truncation_is_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module(&cx, &bytes);
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    sx_module module;
    for (size_t size = 0; size < bytes.len; size++) {
        ck_assert_int_eq(sx_module_decode(&cx, (sx_span){copy, size}, true, &module), SX_CORRUPT);
        sx_ctx_reset_error(&cx);
    }
    free(copy);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_every_flipped_payload_bit_is_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module(&cx, &bytes);
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    sx_module module;
    sx_rng rng = {sx_test_seed()};
    uint32_t refused = 0;
    for (uint32_t round = 0; round < 4000; round++) {
        size_t at = (size_t)sx_rng_below(&rng, bytes.len);
        uint8_t bit = (uint8_t)(1u << sx_rng_below(&rng, 8));
        copy[at] ^= bit;
        sx_code code = sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module);
        ck_assert(code == SX_OK ||
                  code == SX_CORRUPT); /* padding between sections may change unseen */
        refused += code == SX_CORRUPT;
        sx_ctx_reset_error(&cx);
        copy[at] ^= bit;
    }
    ck_assert_uint_gt(refused, 0);
    free(copy);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* Faults behind correct checksums: the table checks must find them. */
typedef void (*fault)(sx_gen_module_tables *tables);
static void tensor_outside_arena(sx_gen_module_tables *t)
{
    t->tensor[2].place = SX_TENSOR_TEMPORARY;
    t->tensor[2].offset = 64;
}
static void tensor_too_small(sx_gen_module_tables *t)
{
    t->tensor[0].size = 8;
}
static void tensor_dim_overflow(sx_gen_module_tables *t)
{
    t->tensor[0].dim[0] = INT64_MAX;
}
static void tensor_zero_dim(sx_gen_module_tables *t)
{
    t->tensor[0].dim[0] = 0;
}
static void tensor_misaligned(sx_gen_module_tables *t)
{
    t->tensor[1].offset = 4;
}
static void tensor_rank(sx_gen_module_tables *t)
{
    t->tensor[0].rank = 9;
}
static void name_outside(sx_gen_module_tables *t)
{
    t->tensor[0].name.offset = 1 << 20;
}
static void part_entry(sx_gen_module_tables *t)
{
    t->part[0].entry = 1 << 20;
}
static void part_grid(sx_gen_module_tables *t)
{
    t->part[0].grid[1] = 0;
}
static void part_grid_overflow(sx_gen_module_tables *t)
{
    t->part[0].grid[0] = INT64_MAX;
    t->part[0].grid[1] = 2;
}
static void kernel_parts(sx_gen_module_tables *t)
{
    t->kernel[0].part_count = 2;
}
static void launch_kernel(sx_gen_module_tables *t)
{
    t->launch[0].kernel = 1;
}
static void launch_args(sx_gen_module_tables *t)
{
    t->launch[0].arg_count = 3;
}
static void arg_tensor(sx_gen_module_tables *t)
{
    t->arg[0] = 77;
}
static void isa_level(sx_gen_module_tables *t)
{
    t->info.isa = 9;
}

START_TEST(test_consistent_faults_are_refused)
{
    static const fault faults[] = {tensor_outside_arena, tensor_too_small,  tensor_dim_overflow,
                                   tensor_zero_dim,      tensor_misaligned, tensor_rank,
                                   name_outside,         part_entry,        part_grid,
                                   part_grid_overflow,   kernel_parts,      launch_kernel,
                                   launch_args,          arg_tensor,        isa_level};
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_gen_module_tables tables;
    sx_gen_module_make(&tables);
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    faults[_i](&tables);
    sx_gen_module_encode(&cx, &tables, &bytes);
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    sx_module module;
    sx_code code = sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module);
    ck_assert_msg(code == SX_CORRUPT, "fault %d: %s", _i, sx_code_name(code));
    free(copy);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("protocol.module");
    TCase *cases = tcase_create("module");
    tcase_add_test(cases, test_round_trip);
    tcase_add_test(cases, test_every_truncation_is_refused);
    tcase_add_test(cases, test_every_flipped_payload_bit_is_refused);
    tcase_add_loop_test(cases, test_consistent_faults_are_refused, 0, 15);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
