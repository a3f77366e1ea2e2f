/* The structural walk: known bombs, the grammar, and agreement with msgpack-c on random bytes. */
#include "tests/lib/test.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "protocol/scan.h"

#define SCAN(cx, text) sx_scan((cx), SX_SPAN_LITERAL(text), NULL)

START_TEST(bombs)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    ck_sx_fails(&cx, SCAN(&cx, "\xdd\x10\x00\x00\x00"), SX_INPUT, "claims 268435456, 0 bytes");
    ck_sx_fails(&cx, SCAN(&cx, "\xdd\xff\xff\xff\xff"), SX_INPUT, "claims 4294967295");
    ck_sx_fails(&cx, SCAN(&cx, "\xdf\xff\xff\xff\xff"), SX_INPUT, "claims 8589934590");
    ck_sx_fails(&cx, SCAN(&cx, "\xc6\xff\xff\xff\xff"), SX_INPUT, "claims 4294967295");
    ck_sx_fails(&cx, SCAN(&cx, "\xdb\x00\x00\x00\x02x"), SX_INPUT, "1 bytes left");
    uint8_t nested[5 * 31];
    for (uint32_t i = 0; i < 31; i++) {
        memcpy(nested + 5 * i, "\xdd\x00\x10\x00\x00", 5);
    }
    ck_sx_fails(&cx, sx_scan(&cx, (sx_span){nested, sizeof(nested)}, NULL), SX_INPUT, "at byte 0");
    uint8_t deep[64];
    memset(deep, 0x91, sizeof(deep));
    deep[63] = 0xc0;
    ck_sx_fails(&cx, sx_scan(&cx, (sx_span){deep, sizeof(deep)}, NULL), SX_LIMIT, "deeper than 16");
    ck_sx_ok(&cx,
             sx_scan(&cx, (sx_span){deep + 63 - SX_SCAN_DEPTH_MAX, SX_SCAN_DEPTH_MAX + 1}, NULL));
    size_t many = (size_t)SX_SCAN_NODES_MAX + 5;
    uint8_t *wide = calloc(1, many);
    ck_assert_ptr_nonnull(wide);
    memcpy(wide, "\xdd\x00\x10\x00\x00", 5);
    ck_sx_fails(&cx, sx_scan(&cx, (sx_span){wide, many}, NULL), SX_LIMIT, "more than 1048576");
    free(wide);
    ck_assert_uint_eq(cx.arena.used_bytes, 0); /* the walk allocates nothing */
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(grammar)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    uint32_t nodes = 0;
    ck_sx_ok(&cx, sx_scan(&cx,
                          SX_SPAN_LITERAL("\x82\xa1"
                                          "a\x01\xa1"
                                          "b\x92\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\xc0"),
                          &nodes));
    ck_assert_uint_eq(nodes, 7);
    ck_sx_ok(&cx, SCAN(&cx, "\xd6\xff\x00\x00\x00\x01"));                 /* timestamp 32 */
    ck_sx_ok(&cx, SCAN(&cx, "\xd7\xff\x00\x00\x00\x00\x00\x00\x00\x01")); /* timestamp 64 */
    ck_sx_ok(&cx, SCAN(&cx, "\xc7\x0c\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"));
    ck_sx_fails(&cx, SCAN(&cx, "\xd6\x01\x00\x00\x00\x01"), SX_INPUT, "only timestamps");
    ck_sx_fails(&cx, SCAN(&cx, "\xc7\x01\xff\x00"), SX_INPUT, "only timestamps");
    ck_sx_fails(&cx, SCAN(&cx, "\xc1"), SX_INPUT, "type 0xc1 at byte 0");
    ck_sx_fails(&cx, SCAN(&cx, "\x92\x01\xc1"), SX_INPUT, "type 0xc1 at byte 2");
    ck_sx_fails(&cx, SCAN(&cx, ""), SX_INPUT, "empty");
    ck_sx_fails(&cx, SCAN(&cx, "\x01\x02"), SX_INPUT, "1 bytes behind");
    ck_sx_fails(&cx, SCAN(&cx, "\x92\x91\x01"), SX_INPUT, "within a container");
    ck_sx_fails(&cx, SCAN(&cx, "\xcd\x01"), SX_INPUT, "claims 2, 1 bytes left");
    sx_ctx_fini(&cx);
}
END_TEST

/* Random bytes biased to headers: whatever the walk accepts, msgpack-c decodes to the last byte; what
 * msgpack-c refuses, so does the walk. (The walk is stricter: extension types, depth.) */
START_TEST(agrees_with_msgpack)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t accepted = 0;
    for (uint32_t round = 0; round < 200000; round++) {
        uint8_t bytes[24];
        size_t len = 1 + sx_rng_below(&rng, sizeof(bytes));
        for (size_t i = 0; i < len; i++) {
            uint64_t kind = sx_rng_below(&rng, 4);
            uint64_t value = sx_rng_next(&rng);
            bytes[i] = (uint8_t)(kind == 0 ? 0xc0 + (value & 0x1f)
                                           : (kind == 1 ? 0x80 + (value & 0x23) : value & 7));
        }
        sx_ctx cx;
        sx_ctx_init(&cx, 1 << 12);
        if (sx_scan(&cx, (sx_span){bytes, len}, NULL) == SX_OK) {
            accepted++;
            msgpack_unpacked unpacked;
            msgpack_unpacked_init(&unpacked);
            size_t offset = 0;
            msgpack_unpack_return got =
                msgpack_unpack_next(&unpacked, (const char *)bytes, len, &offset);
            ck_assert_int_eq(got, MSGPACK_UNPACK_SUCCESS);
            ck_assert_uint_eq(offset, len);
            msgpack_unpacked_destroy(&unpacked);
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(accepted, 2000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scan");
    TCase *cases = tcase_create("scan");
    tcase_add_test(cases, bombs);
    tcase_add_test(cases, grammar);
    tcase_add_test(cases, agrees_with_msgpack);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
