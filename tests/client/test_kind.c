/* Files that are no programs are refused by what they are; programs of both forms are let through. */
#include "tests/lib/test.h"

#include "client/kind.h"

static sx_span span(const char *bytes, size_t size)
{
    return (sx_span){(const uint8_t *)bytes, size};
}

#define BYTES(text) span(text, sizeof(text) - 1)

static void check_refused(sx_span head, const char *what)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sxc_kind kind;
    ck_sx_fails(&cx, sxc_kind_of(&cx, "thing.bin", head, &kind), SX_INPUT, what);
    ck_sx_fails(&cx, sxc_kind_of(&cx, "thing.bin", head, &kind), SX_INPUT,
                "thing.bin: neither an ONNX model nor a .sx program");
    sx_ctx_fini(&cx);
}

static void check_kind(sx_span head, sxc_kind want)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sxc_kind kind;
    ck_sx_ok(&cx, sxc_kind_of(&cx, "thing", head, &kind));
    ck_assert_int_eq((int)kind, (int)want);
    sx_ctx_fini(&cx);
}

START_TEST(test_what_is_no_program)
{
    check_refused(BYTES("PK\x03\x04\x14\0\0\0"), "PyTorch");
    check_refused(BYTES("\x80\x02}q\0"), "pickle");
    check_refused(BYTES("\x89PNG\r\n\x1a\n"), "a PNG picture");
    check_refused(BYTES("\x93NUMPY\x01\0"), "NumPy array");
    check_refused(BYTES("\x40\0\0\0\0\0\0\0{\"w\":"), "safetensors");
    check_refused(BYTES("SXMODULE\2\0\0\0"), "compiled module");
    check_refused(BYTES("\x7f"
                        "ELF\2\1\1"),
                  "ELF");
    check_refused(BYTES("version https://git-lfs.github.com/spec/v1\n"), "Git LFS");
    check_refused(BYTES("# a README\n"), "a text that does not begin with");
    check_refused(BYTES("       {\"json\": 1}"), "a text");
    check_refused(BYTES("\0\1\2\3"), "thing.bin");
    check_refused(BYTES("\x0b\1"), "thing.bin"); /* field 1 as a group */
}
END_TEST

START_TEST(test_programs)
{
    check_kind(BYTES("sx 1\ngraph"), SXC_KIND_TEXT);
    check_kind(BYTES("// a comment\n\n  // another\nsx 1\n"), SXC_KIND_TEXT);
    check_kind(BYTES("sx 1 \0\1"), SXC_KIND_TEXT); /* damaged: the parser says where */
    check_kind(BYTES("\x08\x08\x12\x07pytorch"), SXC_KIND_ONNX);
    check_kind(BYTES("\x3a\x10"), SXC_KIND_ONNX); /* a graph first */
    check_kind(BYTES("\xa2\x01\x00"), SXC_KIND_ONNX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kind");
    TCase *all = tcase_create("all");
    tcase_add_test(all, test_what_is_no_program);
    tcase_add_test(all, test_programs);
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
