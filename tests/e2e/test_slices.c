/* Strided reads in kernels of every kind: q, k and v as slices of one product whose offsets are multiples of
 * the batch, halves that are exchanged and concatenated (rotary embedding), every second element, the first row
 * of each batch (class token), and an offset that no multiple of a symbol is, which level 1 leaves alone. Each
 * program is run against the interpreter at several batches. A slice that begins one element off is refused by
 * the comparison with the program as sent. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/verify/verify.h"
#include "tests/lib/compiled.h"

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};

#define HEAD "sx 1\ngraph \"g\" (batch in [1, 64]) {\n"
#define X "%x = parameter {name = \"x\", weight = 0} : f32[batch, 17, 24]\n"
static const char map_text[] =
    HEAD X "%t = transpose(%x) {perm = [1, 0, 2]} : f32[17, batch, 24]\n"
           "%s = slice(%t) {start = [5, 0, 0], limit = [16, -1, 24], stride = [3, 1, 1]} "
           ": f32[4, batch, 24]\n"
           "%u = slice(%t) {start = [1, 0, 0], limit = [5, -1, 24], stride = [1, 1, 1]} "
           ": f32[4, batch, 24]\n"
           "%m = multiply(%s, %u) : f32[4, batch, 24]\n"
           "%y = tanh(%m) : f32[4, batch, 24]\nreturn %y as \"y\"\n}\n";
static const char halves_text[] =
    HEAD X "%a = slice(%x) {start = [0, 0, 0], limit = [-1, 17, 12], stride = [1, 1, 1]} "
           ": f32[batch, 17, 12]\n"
           "%b = slice(%x) {start = [0, 0, 12], limit = [-1, 17, 24], stride = [1, 1, 1]} "
           ": f32[batch, 17, 12]\n"
           "%n = negate(%b) : f32[batch, 17, 12]\n"
           "%c = concatenate(%n, %a) {axis = 2} : f32[batch, 17, 24]\n"
           "%y = add(%c, %x) : f32[batch, 17, 24]\nreturn %y as \"y\"\n}\n";
static const char row_text[] =
    HEAD X "%t = transpose(%x) {perm = [1, 0, 2]} : f32[17, batch, 24]\n"
           "%s = slice(%t) {start = [3, 0, 1], limit = [17, -1, 24], stride = [2, 1, 2]} "
           ": f32[7, batch, 12]\n"
           "%z = softmax(%s) {axis = 2} : f32[7, batch, 12]\n"
           "%r = slice(%t) {start = [2, 0, 0], limit = [3, -1, 24], stride = [1, 1, 1]} "
           ": f32[1, batch, 24]\n"
           "%y = softmax(%r) {axis = 2} : f32[1, batch, 24]\nreturn %y as \"y\", %z as \"z\"\n}\n";
static const char product_text[] = HEAD X
    "%w = parameter {name = \"w\", weight = 1} : f32[24, 40]\n"
    "%s = slice(%x) {start = [0, 0, 0], limit = [-1, 1, 24], stride = [1, 1, 1]} "
    ": f32[batch, 1, 24]\n"
    "%y = dot_general(%s, %w) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 1, 40]\n"
    "%u = slice(%w) {start = [0, 3], limit = [24, 36], stride = [1, 3]} : f32[24, 11]\n"
    "%z = dot_general(%x, %u) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 17, 11]\n"
    "return %y as \"y\", %z as \"z\"\n}\n";
/* The offset is 51 batch + 5. */
static const char left_text[] =
    HEAD "%x = parameter {name = \"x\", weight = 0} : f32[5, batch, 17]\n"
         "%s = slice(%x) {start = [3, 0, 5], limit = [5, -1, 12], stride = [1, 1, 3]} "
         ": f32[2, batch, 3]\n"
         "%y = negate(%s) : f32[2, batch, 3]\n"
         "%z = softmax(%s) {axis = 2} : f32[2, batch, 3]\n"
         "return %y as \"y\", %z as \"z\"\n}\n";
/* q, k and v as exporters of vision transformers take them out of one product. */
#define PART(name, from, to)                                            \
    "%" name "s = slice(%p) {start = [" from ", 0, 0, 0], limit = [" to \
    ", 17, -1, 32], stride = [1, 1, 1, 1]} : f32[1, 17, batch, 32]\n"   \
    "%" name "r = reshape(%" name "s) : f32[17, batch, 2, 16]\n"        \
    "%" name " = transpose(%" name "r) {perm = [1, 2, 0, 3]} : f32[batch, 2, 17, 16]\n"
static const char attention_text[] = HEAD X
    "%w = parameter {name = \"w\", weight = 1} : f32[24, 96]\n"
    "%d = dot_general(%x, %w) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 17, 96]\n"
    "%e = reshape(%d) : f32[batch, 17, 3, 32]\n"
    "%p = transpose(%e) {perm = [2, 1, 0, 3]} : f32[3, 17, batch, 32]\n" PART("q", "0", "1")
        PART("k", "1", "2") PART(
            "v", "2", "3") "%sc = dot_general(%q, %k) {lhs_batch = [0, 1], rhs_batch = [0, 1], "
                           "lhs_contract = [3], "
                           "rhs_contract = [3]} : f32[batch, 2, 17, 17]\n"
                           "%so = softmax(%sc) {axis = 3} : f32[batch, 2, 17, 17]\n"
                           "%y = dot_general(%so, %v) {lhs_batch = [0, 1], rhs_batch = [0, 1], "
                           "lhs_contract = [3], "
                           "rhs_contract = [2]} : f32[batch, 2, 17, 16]\nreturn %y as \"y\"\n}\n";

static const struct {
    const char *name, *text;
    /* what is kept of the slice, and the same slice one element later; NULL: none is planted */
    const char *from, *to;
} programs[] = {
    {"map", map_text, "start = [1, 0, 0], limit = [5,", "start = [2, 0, 0], limit = [6,"},
    {"halves", halves_text, "12], limit = [-1, 17, 24]", "11], limit = [-1, 17, 23]"},
    {"row", row_text, "start = [2, 0, 0], limit = [3,", "start = [3, 0, 0], limit = [4,"},
    {"product", product_text, "start = [0, 3], limit = [24, 36]",
     "start = [0, 4], limit = [24, 37]"},
    {"left", left_text, "0, 5], limit = [5, -1, 12]", "0, 6], limit = [5, -1, 13]"},
    {"attention", attention_text, "start = [2, 0, 0, 0], limit = [3,",
     "start = [1, 0, 0, 0], limit = [2,"}};

START_TEST(test_against_the_interpreter)
{
    for (uint32_t k = 0; k < 6; k++) {
        sx_ctx cx;
        sx_test_request request = {
            .text = programs[_i].text, .target = targets[k % 2], .batch = 1 + k / 2 * 3};
        sx_ctx_init(&cx, (size_t)1 << 30);
        if (sx_test_can_run(targets[k % 2])) {
            sxr_close(sx_test_run(&cx, &request, 2));
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Slices are read in place: no kernel copies one. */
START_TEST(test_slices_are_read_in_place)
{
    static const struct {
        const char *text;
        sx_module_kernel_kind kind[2];
        uint64_t kernels;
    } cases[] = {{map_text, {SX_MODULE_MAP}, 1},
                 {attention_text, {SX_MODULE_CONTRACTION, SX_MODULE_ONLINE}, 2}};
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 30);
    for (uint32_t k = 0; k < SX_COUNT(cases); k++) {
        sx_buf bytes;
        sx_module module;
        sx_buf_init(&bytes, (size_t)1 << 26);
        sx_test_request request = {.text = cases[k].text, .target = "x86-64-v4", .batch = 3};
        ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
        void *copy = aligned_alloc(64, (bytes.len + 63) & ~(size_t)63);
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, bytes.ptr, bytes.len);
        ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module));
        uint64_t packs = sx_test_kernels(&module, SX_MODULE_PACK);
        ck_assert_uint_eq(module.kernel_count, cases[k].kernels + packs);
        for (uint32_t i = 0; i < cases[k].kernels; i++) {
            ck_assert_uint_eq(sx_test_kernels(&module, cases[k].kind[i]), 1);
        }
        free(copy);
        sx_buf_fini(&bytes);
    }
    sx_ctx_fini(&cx);
}
END_TEST

static sx_code verify(sx_ctx *cx, const char *compiled, const char *sent)
{
    sx_buf bytes;
    sx_image image;
    sx_buf_init(&bytes, (size_t)1 << 26);
    sx_image_init(&image);
    sx_test_request request = {.text = compiled, .target = "x86-64-v3", .batch = 2};
    ck_sx_ok(cx, sx_test_compile(cx, &request, &bytes));
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    options.program = sx_span_of(sent);
    sx_code code = sxr_verify(cx, sx_buf_span(&bytes), &options, &image);
    sx_image_fini(&image);
    sx_buf_fini(&bytes);
    return code;
}

START_TEST(test_an_element_off_is_refused)
{
    sx_ctx cx;
    char wrong[4096];
    const char *text = programs[_i].text;
    const char *at = strstr(text, programs[_i].from);
    ck_assert_ptr_nonnull(at);
    (void)snprintf(wrong, sizeof(wrong), "%.*s%s%s", (int)(at - text), text, programs[_i].to,
                   at + strlen(programs[_i].from));
    sx_ctx_init(&cx, (size_t)1 << 30);
    ck_sx_ok(&cx, verify(&cx, text, text));
    ck_assert_int_ne(verify(&cx, wrong, text), SX_OK);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e/slices");
    TCase *cases = tcase_create("slices");
    tcase_set_timeout(cases, 400);
    tcase_add_loop_test(cases, test_against_the_interpreter, 0, (int)SX_COUNT(programs));
    tcase_add_test(cases, test_slices_are_read_in_place);
    tcase_add_loop_test(cases, test_an_element_off_is_refused, 0, (int)SX_COUNT(programs));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
