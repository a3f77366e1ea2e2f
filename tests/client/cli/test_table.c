/* Columns of text: widths, alignment, and cells that would like to move the cursor. */
#include "client/cli/table.h"

#include <string.h>

#include "tests/lib/test.h"

START_TEST(columns_fit_their_cells)
{
    sx_ctx cx;
    sxc_table table;
    sx_buf out;
    sx_ctx_init(&cx, (size_t)1 << 20);
    sx_buf_init(&out, 65536);
    sxc_table_init(&table, &cx, "NAME|>BYTES|WHAT");
    sxc_table_put(&table, "%s", "a");
    sxc_table_put(&table, "%d", 7);
    sxc_table_put_span(&table, SX_SPAN_LITERAL("\x1b[31mred\n\x7f"));
    sxc_table_put(&table, "%s", "\xc3\xa9t\xc3\xa9 long"); /* two letters of two bytes */
    sxc_table_put(&table, "%d", 1234567);
    sxc_table_put_span(&table, (sx_span){NULL, 0});
    ck_sx_ok(&cx, sxc_table_print(&table, &out));
    sx_buf_put_u8(&out, 0);
    ck_assert_str_eq((const char *)out.ptr, "NAME        BYTES  WHAT\n"
                                            "a               7  ?[31mred??\n"
                                            "\xc3\xa9t\xc3\xa9 long  1234567  \n");
    sx_buf_fini(&out);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(no_memory_is_told)
{
    sx_ctx cx;
    sxc_table table;
    sx_buf out;
    sx_ctx_init(&cx, 256);
    sx_buf_init(&out, 65536);
    sxc_table_init(&table, &cx, "ONE");
    for (int i = 0; i < 1000; i++) {
        sxc_table_put(&table, "%d", i);
    }
    ck_sx_fails(&cx, sxc_table_print(&table, &out), SX_NOMEM, "");
    ck_assert_uint_eq(out.len, 0);
    sx_buf_fini(&out);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("table");
    TCase *all = tcase_create("all");
    tcase_add_test(all, columns_fit_their_cells);
    tcase_add_test(all, no_memory_is_told);
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
