/* .npz files: what is written reads back; every file that is cut short or has a byte changed is read as what it was, or
 * refused. What NumPy writes and reads: tests/client/test_state.py. */
#include "client/cli/npz.h"

#include <string.h>

#include "core/base/rng.h"
#include "tests/lib/test.h"

static sx_ctx cx;
static void setup(void)
{
    sx_ctx_init(&cx, (size_t)256 << 20);
}
static void teardown(void)
{
    sx_ctx_fini(&cx);
}

#define ARRAYS 3
static const char *const names[ARRAYS] = {"w", "layer/m", "count"};

static void make(sx_rng *rng, sxc_npz_array array[ARRAYS], sx_buf *bytes)
{
    sxc_npz archive = {array, ARRAYS};
    for (uint32_t i = 0; i < ARRAYS; i++) {
        size_t size = 1 + (size_t)sx_rng_below(rng, 90);
        uint8_t *file = sx_alloc(&cx, size);
        ck_assert_ptr_nonnull(file);
        for (size_t k = 0; k < size; k++) {
            file[k] = (uint8_t)sx_rng_next(rng);
        }
        array[i] = (sxc_npz_array){sx_span_of(names[i]), {file, size}};
    }
    sx_buf_init(bytes, (size_t)1 << 20);
    ck_sx_ok(&cx, sxc_npz_print(&cx, &archive, bytes));
}

static bool same(const sxc_npz *archive, const sxc_npz_array array[ARRAYS])
{
    bool equal = archive->count == ARRAYS;
    for (uint32_t i = 0; equal && i < ARRAYS; i++) {
        equal = sx_span_equal(archive->array[i].name, array[i].name) &&
                sx_span_equal(archive->array[i].file, array[i].file);
    }
    return equal;
}

START_TEST(round_trip)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < 100; i++) {
        sxc_npz_array array[ARRAYS];
        sxc_npz archive;
        sx_buf bytes;
        make(&rng, array, &bytes);
        ck_sx_ok(&cx, sxc_npz_parse(&cx, "it", sx_buf_span(&bytes), &archive));
        ck_assert(same(&archive, array));
        ck_assert_ptr_eq(sxc_npz_find(&archive, sx_span_of("count")), &archive.array[2]);
        ck_assert_ptr_null(sxc_npz_find(&archive, sx_span_of("coun")));
        sx_buf_fini(&bytes);
    }
}
END_TEST

/* A copy of exactly this size, so that a sanitizer sees a read beyond it. */
static sx_code parse_copy(const uint8_t *bytes, size_t size, sxc_npz *archive)
{
    uint8_t *copy = sx_alloc(&cx, size);
    ck_assert_ptr_nonnull(copy);
    if (size > 0) {
        memcpy(copy, bytes, size);
    }
    return sxc_npz_parse(&cx, "it", (sx_span){copy, size}, archive);
}

START_TEST(damaged)
{
    sx_rng rng = {sx_test_seed()};
    sxc_npz_array array[ARRAYS];
    sxc_npz archive;
    sx_buf bytes;
    uint32_t taken = 0;
    make(&rng, array, &bytes);
    for (size_t size = 0; size < bytes.len; size++) {
        ck_sx_fails(&cx, parse_copy(bytes.ptr, size, &archive), SX_INPUT, "it: ");
    }
    for (size_t i = 0; i < bytes.len; i++) {
        uint8_t before = bytes.ptr[i];
        bytes.ptr[i] ^= (uint8_t)(1u << sx_rng_below(&rng, 8));
        if (parse_copy(bytes.ptr, bytes.len, &archive) == SX_OK) {
            /* dates, versions, names in the directory: never other elements */
            for (uint32_t k = 0; k < archive.count; k++) {
                ck_assert(sx_span_equal(archive.array[k].file, array[k].file));
            }
            taken++;
        }
        sx_ctx_reset_error(&cx);
        bytes.ptr[i] = before;
    }
    ck_assert_uint_lt(taken, bytes.len);
    sx_buf_fini(&bytes);
}
END_TEST

START_TEST(refused)
{
    sxc_npz_array twice[2] = {{sx_span_of("a"), {(const uint8_t *)"x", 1}},
                              {sx_span_of("a"), {(const uint8_t *)"y", 1}}};
    sxc_npz archive = {twice, 2}, none = {twice, 0}, read;
    sx_buf bytes;
    sx_buf_init(&bytes, 4096);
    ck_sx_ok(&cx, sxc_npz_print(&cx, &archive, &bytes));
    ck_sx_fails(&cx, sxc_npz_parse(&cx, "it", sx_buf_span(&bytes), &read), SX_INPUT,
                "it: two members are called a.npy");
    sx_buf_clear(&bytes);
    ck_sx_ok(&cx, sxc_npz_print(&cx, &none, &bytes));
    ck_sx_ok(&cx, sxc_npz_parse(&cx, "it", sx_buf_span(&bytes), &read));
    ck_assert_uint_eq(read.count, 0);
    sx_buf_fini(&bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client.cli.npz");
    TCase *cases = tcase_create("npz");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, round_trip);
    tcase_add_test(cases, damaged);
    tcase_add_test(cases, refused);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
