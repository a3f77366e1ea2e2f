/* Attributes as bytes read back equal, whatever the operation; cut or altered bytes are refused or read as
 * some attribute. */
#include "core/fuse/fuse.h"
#include "tests/lib/test.h"

#include <string.h>

#include "tests/lib/ir.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static void check_attr(const sx_attr *attr, sx_rng *rng)
{
    sx_buf bytes;
    sx_attr read;
    sx_buf_init(&bytes, (size_t)1 << 20);
    sx_attr_encode(attr, &bytes);
    sx_span rest = sx_buf_span(&bytes);
    ck_sx_ok(&cx, sx_attr_decode(&cx, &rest, 0, &read));
    ck_assert_uint_eq(rest.len, 0);
    ck_assert(sx_attr_equal(attr, &read));
    rest = (sx_span){bytes.ptr, sx_rng_below(rng, bytes.len)};
    ck_sx_fails(&cx, sx_attr_decode(&cx, &rest, 0, &read), SX_CORRUPT, "attribute");
    bytes.ptr[sx_rng_below(rng, bytes.len)] = (uint8_t)sx_rng_next(rng);
    rest = sx_buf_span(&bytes);
    (void)sx_attr_decode(&cx, &rest, 0, &read);
    sx_ctx_reset_error(&cx);
    sx_buf_fini(&bytes);
}

START_TEST(test_every_operation)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t op = 0; op < SX_OP_COUNT; op++) {
        for (uint32_t trial = 0; trial < 20 && op != SX_OP_PARAMETER && op != SX_OP_FUSED;
             trial++) {
            sx_test_op made;
            sx_attr fused;
            sx_test_op_make(&cx, &rng, (sx_op)op, &made);
            sx_attr_table table;
            sx_attr_id id;
            ck_sx_ok(&cx, sx_attr_table_init(&cx, &table));
            ck_sx_ok(&cx, sx_attr_intern(&cx, &table, &made.attr, &id));
            check_attr(sx_attr_get(&table, id), &rng);
            if (sx_fused_lift(&cx, (sx_op)op, &made.attr, made.input, made.input_count,
                              &made.result, &fused) == SX_OK) {
                check_attr(&fused, &rng);
            }
            sx_ctx_reset_error(&cx);
        }
    }
}
END_TEST

START_TEST(test_parameter)
{
    sx_rng rng = {sx_test_seed()};
    sx_attr attr = {.present = SX_A(name) | SX_A(weight) | SX_A(type),
                    .name = SX_SPAN_LITERAL("weights"),
                    .weight = 1,
                    .type = {.dtype = SX_F32, .rank = 1, .dim = {{4, SX_NO_SYMBOL}}}};
    check_attr(&attr, &rng);
    sx_buf bytes;
    sx_attr read;
    attr.type.dim[0].symbol = 2;
    sx_buf_init(&bytes, 4096);
    sx_attr_encode(&attr, &bytes);
    sx_span rest = sx_buf_span(&bytes);
    ck_sx_ok(&cx, sx_attr_decode(&cx, &rest, 3, &read));
    rest = sx_buf_span(&bytes);
    ck_sx_fails(&cx, sx_attr_decode(&cx, &rest, 2, &read), SX_CORRUPT,
                "attribute"); /* no such symbol */
    sx_buf_fini(&bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attr_bytes");
    TCase *tc = tcase_create("attr_bytes");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_every_operation);
    tcase_add_test(tc, test_parameter);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
