/* Equal layers with weights of their own: the same kernel is launched for each, weights are windows on one run of
 * random elements and are packed when they are read. A fault in one layer in the middle is found all the same. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/verify/verify.h"
#include "tests/lib/compiled.h"

#define LAYERS 5
#define THIRD 2 /* its number */
#define ARGS_MAX 256

typedef struct {
    sx_ctx cx;
    sx_buf bytes;
    void *copy;
    sx_module module;
    sx_module_tensor tensor[128];
    uint32_t arg[ARGS_MAX];
} fixture;

/* x + tanh(x w), so often; weights of 1 MiB. With `sums` each is the sum of two parameters, and the prologue is two
 * launches for each. */
static char *layers(sx_ctx *cx, bool sums)
{
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 20);
    sx_buf_print(&text, "sx 1\ngraph \"layers\" () {\n"
                        "%%x0 = parameter {name = \"x\", weight = 0} : f32[48, 512]\n");
    for (uint32_t i = 0; i < LAYERS; i++) {
        sx_buf_print(&text, "%%%c%u = parameter {name = \"w%u\", weight = 1} : f32[512, 512]\n",
                     sums ? 'u' : 'w', i, i);
    }
    for (uint32_t i = 0; i < LAYERS && sums; i++) {
        sx_buf_print(&text,
                     "%%v%u = parameter {name = \"v%u\", weight = 1} : f32[512, 512]\n"
                     "%%w%u = add(%%u%u, %%v%u) : f32[512, 512]\n",
                     i, i, i, i, i);
    }
    for (uint32_t i = 0; i < LAYERS; i++) {
        sx_buf_print(&text,
                     "%%d%u = dot_general(%%x%u, %%w%u) {lhs_contract = [1], rhs_contract = [0]} "
                     ": f32[48, 512]\n%%t%u = tanh(%%d%u) : f32[48, 512]\n"
                     "%%x%u = add(%%t%u, %%x%u) : f32[48, 512]\n",
                     i, i, i, i, i, i + 1, i, i);
    }
    sx_buf_print(&text, "return %%x%u as \"y\"\n}\n", LAYERS);
    char *copy = sx_alloc_text(cx, sx_buf_span(&text));
    sx_buf_fini(&text);
    return copy;
}

static void fixture_make(fixture *f, bool sums)
{
    sx_ctx_init(&f->cx, SX_ARENA_DEFAULT);
    sx_buf_init(&f->bytes, (size_t)1 << 26);
    sx_test_request request = {.text = layers(&f->cx, sums), .target = "x86-64-v3"};
    ck_sx_ok(&f->cx, sx_test_compile(&f->cx, &request, &f->bytes));
    f->copy = aligned_alloc(64, (f->bytes.len + 63) & ~(size_t)63);
    ck_assert_ptr_nonnull(f->copy);
    memcpy(f->copy, f->bytes.ptr, f->bytes.len);
    ck_sx_ok(&f->cx, sx_module_decode(&f->cx, (sx_span){f->copy, f->bytes.len}, true, &f->module));
    sx_module *m = &f->module;
    ck_assert_uint_le(m->tensor_count, SX_COUNT(f->tensor));
    ck_assert_uint_le(m->arg_count, SX_COUNT(f->arg));
    memcpy(f->tensor, m->tensor, m->tensor_count * sizeof(*m->tensor));
    memcpy(f->arg, m->arg, m->arg_count * sizeof(*m->arg));
    m->tensor = f->tensor;
    m->arg = f->arg;
}

static void fixture_fini(fixture *f)
{
    free(f->copy);
    sx_buf_fini(&f->bytes);
    sx_ctx_fini(&f->cx);
}

/* How many rows of the record say so much of a kernel. */
static uint32_t rows_of(const sx_image *image, uint64_t points)
{
    const sx_module_check *check = (const void *)image->check.ptr;
    uint32_t rows = 0;
    for (size_t i = 0; i < image->check.len / sizeof(*check); i++) {
        const uint8_t *name = image->strings.ptr + check[i].name.offset;
        rows += memcmp(name, "kernel dot", 10) == 0 && check[i].points == points ? 1 : 0;
    }
    return rows;
}

/* Of a right module: further launches of a kernel are compared at fewer elements, but only where all outputs are
 * compared. */
static sx_code verify(fixture *f, bool with_whole)
{
    sx_image image;
    sx_image_init(&image);
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    options.program_flops = with_whole ? options.program_flops : -1;
    sx_buf_clear(&f->bytes);
    ck_sx_ok(&f->cx, sx_module_encode(&f->cx, &f->module, &f->bytes));
    sx_code code = sxr_verify(&f->cx, sx_buf_span(&f->bytes), &options, &image);
    if (code == SX_OK) {
        const sx_module_check *check = (const void *)image.check.ptr;
        const sx_module_check *last = &check[image.check.len / sizeof(*check) - 1];
        ck_assert_uint_eq(last->passed, with_whole ? SX_CHECK_PASSED : SX_CHECK_ABSENT);
        ck_assert_uint_eq(last->points, with_whole ? 48 * 512 : 0);
        ck_assert_uint_eq(rows_of(&image, 48), with_whole ? 1 : LAYERS);
        ck_assert_uint_eq(rows_of(&image, 8), with_whole ? LAYERS - 1 : 0);
    }
    sx_image_fini(&image);
    return code;
}

/* The launches of one kind in order. */
static const sx_module_launch *launch_of(const fixture *f, sx_module_kernel_kind kind,
                                         uint32_t number)
{
    for (uint32_t l = 0; l < f->module.launch_count; l++) {
        const sx_module_kernel *kernel = sx_module_kernel_of(&f->module, l);
        if (kernel != NULL && kernel->kind == (uint32_t)kind && number-- == 0) {
            return &f->module.launch[l];
        }
    }
    ck_abort_msg("no launch of this kind");
    return NULL;
}

START_TEST(test_right)
{
    static fixture f;
    fixture_make(&f, _i == 1);
    ck_sx_ok(&f.cx, verify(&f, true));
    ck_sx_ok(&f.cx, verify(&f, false));
    const sx_module_launch *first = launch_of(&f, SX_MODULE_CONTRACTION, 0);
    for (uint32_t i = 0; i < LAYERS; i++) { /* or these tests show nothing */
        ck_assert_uint_eq(launch_of(&f, SX_MODULE_CONTRACTION, i)->kernel, first->kernel);
        ck_assert_uint_eq(launch_of(&f, SX_MODULE_PACK, i)->arg_count, 2);
    }
    fixture_fini(&f);
}
END_TEST

/* The third launch of a kernel reads, or writes, what is not its own: each of its arguments in turn is that of the
 * launch before, or of the next. */
START_TEST(test_argument)
{
    static fixture f;
    fixture_make(&f, false);
    const sx_module_launch *third = launch_of(&f, SX_MODULE_CONTRACTION, THIRD);
    uint32_t from = _i % 2 == 0 ? THIRD - 1 : THIRD + 1;
    const sx_module_launch *other = launch_of(&f, SX_MODULE_CONTRACTION, from);
    uint32_t k = (uint32_t)_i / 2;
    ck_assert_uint_ge(third->arg_count, 3); /* what came in, the panels, what goes out */
    if (k < third->arg_count) {
        ck_assert_uint_ne(f.arg[third->arg_first + k], f.arg[other->arg_first + k]);
        f.arg[third->arg_first + k] = f.arg[other->arg_first + k];
        ck_sx_fails(&f.cx, verify(&f, true), SX_INTERNAL, "");
    }
    fixture_fini(&f);
}
END_TEST

/* The weight of the third layer is packed from that of the second. */
START_TEST(test_pack)
{
    static fixture f;
    fixture_make(&f, false);
    const sx_module_launch *pack = launch_of(&f, SX_MODULE_PACK, THIRD);
    f.arg[pack->arg_first] = f.arg[launch_of(&f, SX_MODULE_PACK, THIRD - 1)->arg_first];
    ck_sx_fails(&f.cx, verify(&f, true), SX_INTERNAL, "output y");
    fixture_fini(&f);
}
END_TEST

/* The plan of memory puts two packed weights in one place, or the panels of one over the end of the other. */
START_TEST(test_overlap)
{
    static fixture f;
    fixture_make(&f, false);
    uint32_t one = f.arg[launch_of(&f, SX_MODULE_PACK, THIRD)->arg_first + 1];
    uint32_t other = f.arg[launch_of(&f, SX_MODULE_PACK, THIRD + 1)->arg_first + 1];
    ck_assert_uint_lt(f.tensor[one].offset, f.tensor[other].offset);
    f.tensor[other].offset = _i == 0 ? f.tensor[one].offset : f.tensor[other].offset - 4096;
    ck_sx_fails(&f.cx, verify(&f, true), SX_INTERNAL, "kernel dot");
    fixture_fini(&f);
}
END_TEST

/* Panels are made of the sum of another layer, or a sum is that of another weight. */
START_TEST(test_chain)
{
    static fixture f;
    sx_module_kernel_kind kind = _i == 0 ? SX_MODULE_PACK : SX_MODULE_MAP;
    fixture_make(&f, true);
    const sx_module_launch *third = launch_of(&f, kind, THIRD);
    const sx_module_launch *other = launch_of(&f, kind, THIRD + 1);
    ck_assert_uint_eq(third->prologue, 1);
    ck_assert_uint_ne(f.arg[third->arg_first], f.arg[other->arg_first]);
    f.arg[third->arg_first] = f.arg[other->arg_first];
    ck_sx_fails(&f.cx, verify(&f, true), SX_INTERNAL, "output y");
    fixture_fini(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verify.layers");
    TCase *cases = tcase_create("layers");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, test_right, 0, 2);
    tcase_add_loop_test(cases, test_argument, 0, 8);
    tcase_add_test(cases, test_pack);
    tcase_add_loop_test(cases, test_overlap, 0, 2);
    tcase_add_loop_test(cases, test_chain, 0, 2);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
