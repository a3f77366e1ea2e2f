/* Parts for a block of warps: the text reads back; programs in which warps take something from each other are
 * refused. */
#include "tests/core/loop/harness.h"

static const char legal[] = "kernel \"k\" lanes 32 numerics 0x0000000000000000 flops 0 bytes 0 {\n"
                            "  buffer in 4096\n"
                            "  buffer out 4096\n"
                            "  buffer workspace 32\n"
                            "  part 2 1 1 warps 4 registers 3 0 0 {\n"
                            "    loop v3 4 warps {\n"
                            "      x0 = set 0x00000000\n"
                            "      loop v4 4 {\n"
                            "        x1 = load b0[0 + 2048*v0 + 512*v3 + 128*v4], 32\n"
                            "        x0 = add x0, x1\n"
                            "      }\n"
                            "      store b2[0 + 4*v3], x0, 1\n"
                            "    }\n"
                            "    x2 = loadb b2[12]\n"
                            "    loop v3 1 warps {\n"
                            "      store b2[16], x2, 1\n"
                            "    }\n"
                            "    loop v3 4 warps {\n"
                            "      x1 = load b1[0 + 2048*v0 + 512*v3], 32\n"
                            "      store b1[384 + 2048*v0 + 512*v3], x2, 32\n"
                            "    }\n"
                            "  }\n"
                            "}\n";

typedef struct {
    const char *from, *to, *error;
} fault;
static const fault faults[] = {
    /* registers of one iteration in another, and behind the loop */
    {"    loop v3 4 warps {\n      x0 = set",
     "    x0 = set 0x00000000\n    loop v3 4 warps {\n      x2 = set", "register v0 read before"},
    {"x2 = loadb b2[12]", "x2 = add x0, x0", "register v0 read before"},
    /* bytes that another iteration stores */
    {"store b2[0 + 4*v3], x0, 1", "store b2[0 + 4*v3], x0, 2",
     "iterations of warps meet in buffer 2"},
    {"store b2[0 + 4*v3]", "store b2[0 + 2*v3]", "iterations of warps meet in buffer 2"},
    {"store b2[0 + 4*v3]", "store b2[0]", "iterations of warps meet in buffer 2"},
    {"load b1[0 + 2048*v0 + 512*v3]", "load b1[0 + 2048*v0]",
     "move with their iterations in different ways"},
    {"store b1[384 + 2048*v0", "store b1[0 + 1024*v0",
     "move with their iterations in different ways"},
    {"store b1[384 + 2048*v0 + 512*v3]", "store b1[512 + 2048*v0 + 448*v3]",
     "move with their iterations in different ways"},
    {"x1 = load b0[0 + 2048*v0 + 512*v3 + 128*v4], 32", "x1 = load b2[0 + 4*v4], 1",
     "buffer 2, which warps store to, move with their iterations in different ways"},
    /* what all warps would do */
    {"x2 = loadb b2[12]", "x2 = loadb b2[12] store b2[28], x2, 1",
     "all warps of a block store the same"},
    {"loop v3 1 warps {", "loop v3 1 {", "all warps of a block store the same"},
    {"warps 4 registers", "warps 2 registers", "a loop over 4 warps of 2"},
    {"warps 4 registers", "registers", "a loop over 4 warps of 0"},
    {"      store b2[0 + 4*v3]", "loop v4 1 warps { x1 = mov x0 }      store b2[0 + 4*v3]",
     "a loop over warps inside of another"},
    {"warps 4 registers", "warps 33 registers", "33"},
};

static sx_code check_text(sx_ctx *cx, const char *text, sx_kernel **kernel)
{
    SX_TRY(sx_kernel_parse(cx, sx_span_of(text), kernel));
    return sx_kernel_check(cx, *kernel);
}

START_TEST(test_legal_reads_back)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_kernel *kernel;
    sx_buf text;
    ck_sx_ok(&cx, check_text(&cx, legal, &kernel));
    sx_buf_init(&text, 1 << 16);
    ck_sx_ok(&cx, sx_kernel_print(&cx, kernel, &text));
    ck_assert_msg(text.len == strlen(legal), "%.*s", (int)text.len, (const char *)text.ptr);
    ck_assert_mem_eq(text.ptr, legal, text.len);
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_fault_is_refused)
{
    const fault *f = &faults[_i];
    const char *at = strstr(legal, f->from);
    char text[2048];
    sx_ctx cx;
    sx_kernel *kernel;
    sx_ctx_init(&cx, 1 << 22);
    ck_assert_msg(at != NULL, "%s", f->from);
    (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - legal), legal, f->to,
                   at + strlen(f->from));
    ck_assert_msg(check_text(&cx, text, &kernel) != SX_OK, "accepted: %s", f->to);
    ck_assert_msg(strstr(cx.error.text, f->error) != NULL, "%s: %s", f->to, cx.error.text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.check_warps");
    TCase *tcase = tcase_create("check_warps");
    tcase_add_test(tcase, test_legal_reads_back);
    tcase_add_loop_test(tcase, test_fault_is_refused, 0, (int)SX_COUNT(faults));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
