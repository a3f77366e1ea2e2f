/* The reader of cubins, on cubins that a script wrote by the layout of the assemblers (tests/fuzz/cubin_seed.py):
 * what they say is read, and each altered byte is refused or makes another record, never more. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/ptx/limits.h"

static sx_ctx cx;
static sx_buf file;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_buf_init(&file, (size_t)1 << 20);
}

static void teardown(void)
{
    sx_buf_fini(&file);
    sx_ctx_fini(&cx);
}

static const sx_cubin *read_seed(const char *name)
{
    char path[512];
    sx_cubin *cubin;
    (void)snprintf(path, sizeof(path), SX_SOURCE_DIR "/tests/fuzz/seeds/fuzz_cubin/%s.cubin", name);
    sx_buf_clear(&file);
    sx_test_read_file(path, &file);
    ck_sx_ok(&cx, sx_cubin_read(&cx, sx_buf_span(&file), &cubin));
    return cubin;
}

static const sx_cubin_kernel *kernel_of(const sx_cubin *cubin, const char *name)
{
    const sx_cubin_kernel *kernel = sx_cubin_find(cubin, sx_span_of(name));
    ck_assert_msg(kernel != NULL, "no kernel %s", name);
    return kernel;
}

static void ck_dim(sx_cubin_dim dim, uint32_t x, uint32_t y, uint32_t z)
{
    ck_assert_msg(dim.x == x && dim.y == y && dim.z == z, "%u,%u,%u is not %u,%u,%u", dim.x, dim.y,
                  dim.z, x, y, z);
}

/* The record of the seed "hopper", which has one of everything. */
START_TEST(test_record_of_a_new_cubin)
{
    static const sx_cubin_param wanted[] = {{0, 8}, {64, 128}, {192, 20000}};
    const sx_cubin *cubin = read_seed("hopper");
    char target[SX_CUBIN_TARGET_MAX];
    sx_cubin_target(cubin, target);
    ck_assert_str_eq(target, "sm_90a");
    ck_assert_str_eq(cubin->tool, "ptxas");
    ck_assert_str_eq(cubin->toolkit, "13.0.88");
    ck_assert_uint_eq(cubin->abi, 8);
    ck_assert_uint_eq(cubin->kernel_count, 2);
    ck_assert(sx_span_is(cubin->kernel[0].name, "ring"));
    ck_assert(sx_cubin_find(cubin, sx_span_of("helper")) == NULL);
    const sx_cubin_kernel *k = kernel_of(cubin, "ring");
    ck_assert_uint_eq(k->registers, 154);
    ck_assert_uint_eq(k->registers_max, 224);
    ck_assert_uint_eq(k->frame_bytes, 16);
    ck_assert_uint_eq(k->stack_bytes, 24);
    ck_assert_uint_eq(k->spill_count, 3);
    ck_assert_uint_eq(k->shared_bytes, 4104);
    ck_assert_uint_eq(k->shared_reserved_bytes, 1024);
    ck_assert_uint_eq(k->barriers, 5);
    ck_assert_uint_eq(k->mbarriers, 2);
    ck_assert_uint_eq(k->code_bytes, 896);
    ck_assert(k->cluster_explicit);
    ck_dim(k->block, 96, 3, 1);
    ck_dim(k->block_max, 0, 0, 0);
    ck_dim(k->cluster, 2, 1, 1);
    ck_assert_uint_eq(k->param_count, SX_COUNT(wanted));
    ck_assert_uint_eq(k->param_bytes, 20192);
    for (uint32_t i = 0; i < SX_COUNT(wanted); i++) {
        ck_assert_uint_eq(k->param[i].offset, wanted[i].offset);
        ck_assert_uint_eq(k->param[i].size, wanted[i].size);
    }
    k = kernel_of(cubin, "z_second");
    ck_assert_uint_eq(k->registers, 4);
    ck_assert_uint_eq(k->param_count + k->spill_count + k->barriers, 0);
    ck_assert_uint_eq(k->shared_bytes, 0);
    ck_dim(k->block_max, 256, 1, 1);
}
END_TEST

START_TEST(test_record_of_an_older_cubin)
{
    const sx_cubin *cubin = read_seed("ampere");
    char target[SX_CUBIN_TARGET_MAX];
    sx_cubin_target(cubin, target);
    ck_assert_str_eq(target, "sm_80");
    ck_assert_str_eq(cubin->tool, "");
    ck_assert_str_eq(cubin->toolkit, "12.9");
    const sx_cubin_kernel *k = kernel_of(cubin, "plain");
    ck_assert_uint_eq(k->barriers, 3);
    ck_assert_uint_eq(k->shared_bytes, 4096);
    ck_assert_uint_eq(k->shared_reserved_bytes, 0);
    ck_assert_uint_eq(k->cluster_max, 4);
    ck_assert(!k->cluster_explicit);
    ck_assert_uint_eq(read_seed("empty")->kernel_count, 0);
}
END_TEST

/* ---- what is refused ---- */

/* The seed with `size` bytes at `at` replaced by a value. */
static sx_code read_changed(const char *name, size_t at, uint64_t value, size_t size)
{
    sx_cubin *cubin;
    (void)read_seed(name);
    ck_assert(at + size <= file.len);
    for (size_t i = 0; i < size; i++) {
        file.ptr[at + i] = (uint8_t)(value >> (8 * i));
    }
    return sx_cubin_read(&cx, sx_buf_span(&file), &cubin);
}

/* Where the bytes stand for the `count`-th time in the seed. */
static size_t place_of(const char *name, const void *bytes, size_t size, uint32_t count)
{
    (void)read_seed(name);
    for (size_t at = 0; at + size <= file.len; at++) {
        if (memcmp(file.ptr + at, bytes, size) == 0 && --count == 0) {
            return at;
        }
    }
    ck_abort_msg("%s has no such bytes", name);
    return 0;
}

START_TEST(test_what_is_no_cubin)
{
    sx_cubin *cubin;
    ck_sx_fails(&cx, sx_cubin_read(&cx, SX_SPAN_LITERAL(""), &cubin), SX_INPUT, "no cubin");
    ck_sx_fails(&cx, sx_cubin_read(&cx, SX_SPAN_LITERAL("\177ELF"), &cubin), SX_INPUT, "no cubin");
    ck_sx_fails(&cx, read_changed("hopper", 4, 1, 1), SX_INPUT, "no cubin");   /* 32 bits */
    ck_sx_fails(&cx, read_changed("hopper", 18, 62, 2), SX_INPUT, "no cubin"); /* x86-64 */
    ck_sx_fails(&cx, read_changed("hopper", 16, 1, 2), SX_INPUT, "not linked");
    ck_sx_fails(&cx, read_changed("hopper", 8, 9, 1), SX_UNIMPLEMENTED, "version 9");
    ck_sx_fails(&cx, read_changed("hopper", 7, 0x33, 1), SX_UNIMPLEMENTED, "51 version 8");
}
END_TEST

START_TEST(test_what_contradicts_itself)
{
    static const uint8_t registers[] = {4, 0x2f, 8, 0}, barriers[] = {2, 0x4c, 5, 0};
    static const uint8_t large[] = {4, 0x45, 12, 0}, small[] = {4, 0x17, 12, 0};
    static const uint8_t block[] = {4, 0x10, 12, 0}, bytes[] = {3, 0x19};
    size_t count = place_of("hopper", registers, 4, 1), entry = 0;
    ck_sx_fails(&cx, read_changed("hopper", 40, UINT64_MAX - 64, 8), SX_CORRUPT, "headers");
    ck_sx_fails(&cx, read_changed("hopper", 60, 0xffff, 2), SX_CORRUPT, "headers");
    ck_sx_fails(&cx, read_changed("hopper", 62, 13, 2), SX_CORRUPT, "headers");
    ck_sx_fails(&cx, read_changed("hopper", 62, 2, 2), SX_CORRUPT, "no name");
    ck_sx_fails(&cx, read_changed("hopper", count + 4, 99, 4), SX_CORRUPT, "0x2f"); /* symbol */
    ck_sx_fails(&cx, read_changed("hopper", count + 8, 0, 4), SX_CORRUPT, "0x2f");
    ck_sx_fails(&cx, read_changed("hopper", count + 1, 0x2e, 1), SX_CORRUPT,
                "kernel z_second has no record of its registers");
    ck_sx_fails(&cx, read_changed("hopper", count + 8, 256, 4), SX_CORRUPT, "0x2f");
    ck_sx_fails(&cx, read_changed("hopper", count + 2, 0xfffc, 2), SX_CORRUPT, "0x2f");
    ck_sx_fails(&cx, read_changed("hopper", count, 5, 1), SX_CORRUPT, ".nv.info");
    ck_sx_fails(&cx, read_changed("hopper", place_of("hopper", barriers, 4, 1), 3, 1), SX_CORRUPT,
                "0x4c");
    entry = place_of("hopper", large, 4, 1);
    ck_sx_fails(&cx, read_changed("hopper", entry + 8, 3, 2), SX_CORRUPT, "0x45"); /* ordinal */
    ck_sx_fails(&cx, read_changed("hopper", entry + 8, 1, 2), SX_CORRUPT, "0x17"); /* twice */
    ck_sx_fails(&cx, read_changed("hopper", entry + 12, 20001, 4), SX_CORRUPT, "0x45");
    entry = place_of("hopper", small, 4, 1);
    ck_sx_fails(&cx, read_changed("hopper", entry + 12, 0, 4), SX_CORRUPT, "0x17");
    ck_sx_fails(&cx, read_changed("hopper", place_of("hopper", bytes, 2, 1) + 2, 191, 2),
                SX_CORRUPT, "0x");
    ck_sx_fails(&cx, read_changed("hopper", place_of("hopper", block, 4, 1) + 4, 0, 4), SX_CORRUPT,
                "0x10");
    /* A name that would move the cursor of a terminal, and one that is not that of the section. */
    entry = place_of("hopper", "\0ring", 6, 1) + 1;
    ck_sx_fails(&cx, read_changed("hopper", entry, 27, 1), SX_CORRUPT, "no name");
    ck_sx_fails(&cx, read_changed("hopper", entry, 's', 1), SX_CORRUPT, "no section of code");
    entry = place_of("hopper", ".nv.info.ring", 13, 1) + 9;
    ck_sx_fails(&cx, read_changed("hopper", entry, 's', 1), SX_CORRUPT, "belongs to kernel ring");
    entry = place_of("hopper", "\0.symtab", 8, 1) + 1; /* names do not make a table: kinds do */
    ck_sx_ok(&cx, read_changed("hopper", entry, 'x', 1));
}
END_TEST

/* Flips of bits, and numbers that are often off by one, at random places: no crash, and no read outside. */
START_TEST(test_altered_bytes)
{
    static const char *const name[] = {"hopper", "ampere", "empty"};
    sx_rng rng = {sx_test_seed()};
    uint32_t trials = sx_test_trials(40000), refused = 0;
    for (uint32_t t = 0; t < trials; t++) {
        if (t % 64 == 0) {
            sx_ctx_fini(&cx);
            sx_ctx_init(&cx, (size_t)1 << 26);
            (void)read_seed(name[t / 64 % SX_COUNT(name)]);
        }
        uint8_t *copy = malloc(file.len); /* of its size, so that a sanitizer sees its end */
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, file.ptr, file.len);
        for (uint64_t n = 1 + sx_rng_below(&rng, 3); n > 0; n--) {
            uint8_t *byte = &copy[sx_rng_below(&rng, file.len)];
            *byte = sx_rng_below(&rng, 2) == 0 ? *byte ^ (uint8_t)(1u << sx_rng_below(&rng, 8))
                                               : (uint8_t)sx_rng_next(&rng);
        }
        size_t size = sx_rng_below(&rng, 8) == 0 ? sx_rng_below(&rng, file.len) : file.len;
        sx_cubin *cubin;
        sx_code code = sx_cubin_read(&cx, (sx_span){copy, size}, &cubin);
        ck_assert_msg(code == SX_OK || code == SX_INPUT || code == SX_CORRUPT ||
                          code == SX_UNIMPLEMENTED,
                      "%s", cx.error.text);
        refused += code != SX_OK;
        sx_ctx_reset_error(&cx);
        free(copy);
    }
    /* A third to two thirds of the bytes are code, padding and attributes that nothing reads. */
    ck_assert_msg(refused > trials / 8, "%u of %u were refused", refused, trials);
}
END_TEST

START_TEST(test_memory_that_ends)
{
    (void)read_seed("hopper");
    sx_cubin *cubin;
    sx_code code = SX_NOMEM;
    for (size_t limit = 0; code != SX_OK && limit < ((size_t)1 << 16); limit += 64) {
        sx_ctx small;
        sx_ctx_init(&small, limit);
        code = sx_cubin_read(&small, sx_buf_span(&file), &cubin);
        ck_assert_msg(code == SX_OK || code == SX_NOMEM, "%s", small.error.text);
        sx_ctx_fini(&small);
    }
    ck_assert_int_eq(code, SX_OK);
}
END_TEST

/* ---- launches ---- */

static const sx_device *device_of(const char *name)
{
    const sx_device *device;
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(name), &device));
    return device;
}

/* The figures are those of research on 128x256x64 tiles: three stages and a slab fit on Hopper, four do not. */
START_TEST(test_shared_memory_of_a_launch)
{
    const sx_device *h100 = device_of("h100");
    const sx_cubin_kernel *k = kernel_of(read_seed("hopper"), "ring");
    sx_cubin_launch launch = {.dynamic_shared_bytes = 214016 - 4104};
    sx_cubin_need need;
    ck_sx_ok(&cx, sx_cubin_check_launch(&cx, k, h100, &launch, &need));
    ck_assert_uint_eq(need.threads, 288);
    ck_assert_uint_eq(need.shared_bytes, 214016);
    ck_assert_uint_eq(need.registers, 288 * 154);
    ck_assert_uint_eq(need.resident_blocks, 1);
    launch.dynamic_shared_bytes = 232448 - 4104;
    ck_sx_ok(&cx, sx_cubin_check_launch(&cx, k, h100, &launch, &need));
    launch.dynamic_shared_bytes++;
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, k, h100, &launch, &need), SX_LIMIT,
                "4104 bytes of shared memory and 228345 at the launch, a block of h100 has at most "
                "232448");
    launch.dynamic_shared_bytes = UINT64_MAX;
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, k, h100, &launch, &need), SX_LIMIT, "at most");
}
END_TEST

START_TEST(test_registers_of_a_launch)
{
    const sx_device *h100 = device_of("h100");
    sx_cubin_kernel k = *kernel_of(read_seed("hopper"), "z_second");
    sx_cubin_launch launch = {.block = {0}};
    sx_cubin_need need;
    k.block_max = (sx_cubin_dim){0};
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need), SX_INPUT, "is none");
    k.registers = 168; /* of 65536, 384 threads may have 170, in steps of 8: 168 */
    launch.block = (sx_cubin_dim){384, 1, 1};
    ck_sx_ok(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need));
    k.registers = 169;
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need), SX_LIMIT,
                "384 threads of 169 registers, h100 has room for 168");
    k.registers = 80; /* 800 threads may have 81; 801 fill 26 warps, which may have 78, so 72 */
    launch.block = (sx_cubin_dim){800, 1, 1};
    ck_sx_ok(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need));
    launch.block = (sx_cubin_dim){801, 1, 1};
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need), SX_LIMIT, "room for 72");
    k.registers = 4;
    launch.block = (sx_cubin_dim){1, 1025, 1};
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need), SX_LIMIT,
                "a block of 1025 threads, h100 has at most 1024");
    launch.block = (sx_cubin_dim){UINT32_MAX, UINT32_MAX, UINT32_MAX};
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need), SX_LIMIT, "at most");
    k.block_max = (sx_cubin_dim){256, 1, 1};
    launch.block = (sx_cubin_dim){257, 1, 1};
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need), SX_INPUT,
                "a block of 257 threads, compiled for 256");
}
END_TEST

START_TEST(test_blocks_and_clusters_of_a_launch)
{
    const sx_device *h100 = device_of("h100"), *a100 = device_of("a100");
    sx_cubin_kernel k = *kernel_of(read_seed("hopper"), "ring");
    sx_cubin_launch launch = {.block = {288, 1, 1}};
    sx_cubin_need need;
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need), SX_INPUT,
                "a block of 288x1x1 threads, it requires 96x3x1");
    launch.block = (sx_cubin_dim){96, 3, 1};
    ck_sx_ok(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need));
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, &k, a100, &launch, &need), SX_LIMIT,
                "a cluster of 2 blocks, a100 has at most 1");
    launch.cluster = (sx_cubin_dim){4, 1, 1};
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need), SX_INPUT,
                "a cluster of 4x1x1 blocks, it requires 2x1x1");
    k.cluster = (sx_cubin_dim){0};
    k.cluster_max = 3;
    ck_sx_fails(&cx, sx_cubin_check_launch(&cx, &k, h100, &launch, &need), SX_INPUT,
                "a cluster of 4 blocks, compiled for 3");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cubin");
    TCase *tcase = tcase_create("cubin");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_record_of_a_new_cubin);
    tcase_add_test(tcase, test_record_of_an_older_cubin);
    tcase_add_test(tcase, test_what_is_no_cubin);
    tcase_add_test(tcase, test_what_contradicts_itself);
    tcase_add_test(tcase, test_altered_bytes);
    tcase_add_test(tcase, test_memory_that_ends);
    tcase_add_test(tcase, test_shared_memory_of_a_launch);
    tcase_add_test(tcase, test_registers_of_a_launch);
    tcase_add_test(tcase, test_blocks_and_clusters_of_a_launch);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
