/* docs/PROTOCOL.md holds the tables of messages.def as they are. SX_GOLDEN=update rewrites them. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/describe.h"

#define DOCUMENT SX_SOURCE_DIR "/docs/PROTOCOL.md"
#define BEGIN "<!-- begin: printed from protocol/messages.def -->\n"
#define END "<!-- end -->\n"

START_TEST(document_is_true)
{
    sx_buf document;
    sx_buf tables;
    sx_buf_init(&document, 1 << 20);
    sx_buf_init(&tables, 1 << 20);
    sx_test_read_file(DOCUMENT, &document);
    sx_buf_put_u8(&document, 0);
    sx_protocol_describe(&tables);
    ck_assert_int_eq(tables.code, SX_OK);
    const char *text = (const char *)document.ptr;
    const char *begin = strstr(text, BEGIN);
    ck_assert_ptr_nonnull(begin);
    begin += strlen(BEGIN);
    const char *end = strstr(begin, END);
    ck_assert_ptr_nonnull(end);
    const char *mode = getenv("SX_GOLDEN");
    if (mode != NULL && strcmp(mode, "update") == 0) {
        FILE *out = fopen(DOCUMENT ".new", "w");
        ck_assert_ptr_nonnull(out);
        (void)fwrite(text, 1, (size_t)(begin - text), out);
        (void)fwrite(tables.ptr, 1, tables.len, out);
        (void)fputs(end, out);
        ck_assert_int_eq(fclose(out), 0);
        ck_assert_int_eq(rename(DOCUMENT ".new", DOCUMENT), 0);
    } else {
        sx_span held = {(const uint8_t *)begin, (size_t)(end - begin)};
        ck_assert_msg(sx_span_equal(held, sx_buf_span(&tables)),
                      "docs/PROTOCOL.md is old; run this test with SX_GOLDEN=update");
    }
    sx_buf_fini(&tables);
    sx_buf_fini(&document);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("describe");
    TCase *cases = tcase_create("describe");
    tcase_add_test(cases, document_is_true);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
