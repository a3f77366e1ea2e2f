/* Programs beyond the limits of the comparison of whole programs, here made small by small limits: what the record
 * says of them, and that faults are refused all the same. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/verify/verify.h"
#include "tests/lib/compiled.h"

#define CONTRACT "{lhs_contract = [1], rhs_contract = [0]}"
#define BATCH 96
static const char right_text[] = "sx 1\ngraph \"g\" (batch in [1, 4096]) {\n"
                                 "%x = parameter {name = \"x\", weight = 0} : f32[batch, 64]\n"
                                 "%c = parameter {name = \"c\", weight = 0} : f32[batch, 64]\n"
                                 "%w = parameter {name = \"w\", weight = 1} : f32[64, 128]\n"
                                 "%v = parameter {name = \"v\", weight = 1} : f32[128, 64]\n"
                                 "%b = parameter {name = \"b\", weight = 1} : f32[128]\n"
                                 "%h = dot_general(%x, %w) " CONTRACT " : f32[batch, 128]\n"
                                 "%r = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 128]\n"
                                 "%s = add(%h, %r) : f32[batch, 128]\n"
                                 "%t = tanh(%s) : f32[batch, 128]\n"
                                 "%y = dot_general(%t, %v) " CONTRACT " : f32[batch, 64]\n"
                                 "%z = add(%y, %c) : f32[batch, 64]\n"
                                 "return %z as \"z\", %c as \"same\"\n}\n";
static const sxr_verify_options by_flops = {.seed = 1, .program_flops = 5e5};

typedef struct {
    sx_ctx cx;
    sx_buf bytes;
    void *copy;
    sx_module module;
    sx_module_part part[64];
    sx_module_launch launch[32];
    uint32_t arg[128];
    sx_image image;
} fixture;

static char *replaced(sx_ctx *cx, const char *text, const char *from, const char *to)
{
    size_t size = strlen(text) + strlen(to) + 1;
    const char *at = strstr(text, from);
    ck_assert_ptr_nonnull(at);
    char *out = sx_alloc(cx, size);
    ck_assert_ptr_nonnull(out);
    (void)snprintf(out, size, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static void fixture_make(fixture *f, const char *text, int64_t batch)
{
    sx_ctx_init(&f->cx, SX_ARENA_DEFAULT);
    sx_buf_init(&f->bytes, (size_t)1 << 26);
    sx_image_init(&f->image);
    sx_test_request request = {.text = text, .target = "x86-64-v3", .batch = batch};
    ck_sx_ok(&f->cx, sx_test_compile(&f->cx, &request, &f->bytes));
    f->copy = aligned_alloc(64, (f->bytes.len + 63) & ~(size_t)63);
    ck_assert_ptr_nonnull(f->copy);
    memcpy(f->copy, f->bytes.ptr, f->bytes.len);
    ck_sx_ok(&f->cx, sx_module_decode(&f->cx, (sx_span){f->copy, f->bytes.len}, true, &f->module));
    sx_module *m = &f->module;
    ck_assert_uint_le(m->part_count, SX_COUNT(f->part));
    ck_assert_uint_le(m->launch_count, SX_COUNT(f->launch));
    ck_assert_uint_le(m->arg_count, SX_COUNT(f->arg));
    memcpy(f->part, m->part, m->part_count * sizeof(*m->part));
    memcpy(f->launch, m->launch, m->launch_count * sizeof(*m->launch));
    memcpy(f->arg, m->arg, m->arg_count * sizeof(*m->arg));
    m->part = f->part;
    m->launch = f->launch;
    m->arg = f->arg;
}

static void fixture_fini(fixture *f)
{
    free(f->copy);
    sx_image_fini(&f->image);
    sx_buf_fini(&f->bytes);
    sx_ctx_fini(&f->cx);
}

/* The module as it is now, against `sent`. */
static sx_code verify(fixture *f, const char *sent, const sxr_verify_options *how)
{
    sxr_verify_options options = *how;
    options.program = sx_span_of(sent);
    sx_buf_clear(&f->bytes);
    ck_sx_ok(&f->cx, sx_module_encode(&f->cx, &f->module, &f->bytes));
    return sxr_verify(&f->cx, sx_buf_span(&f->bytes), &options, &f->image);
}

/* The row of the record whose name begins so. */
static const sx_module_check *row(const fixture *f, const char *name)
{
    const sx_module_check *check = (const void *)f->image.check.ptr;
    for (size_t i = 0; i < f->image.check.len / sizeof(*check); i++) {
        const uint8_t *text = f->image.strings.ptr + check[i].name.offset;
        if (check[i].name.size >= strlen(name) && memcmp(text, name, strlen(name)) == 0) {
            return &check[i];
        }
    }
    ck_abort_msg("no row %s", name);
    return NULL;
}

static const char reduced_row[] =
    "optimised program at batch=3 against program as sent, all outputs";

/* Too many operations: nothing is left out of the record, and nothing is said that was not done. */
START_TEST(test_operations)
{
    static fixture f;
    fixture_make(&f, right_text, BATCH);
    ck_sx_ok(&f.cx, verify(&f, right_text, &by_flops));
    ck_assert_uint_eq(row(&f, "program as sent, all outputs: more operations")->passed,
                      SX_CHECK_ABSENT);
    ck_assert_uint_eq(row(&f, reduced_row)->passed, SX_CHECK_PASSED);
    ck_assert_uint_eq(row(&f, reduced_row)->points, 2 * 3 * 64);
    ck_assert_uint_eq(row(&f, "every element of what kernels compute is written")->points,
                      BATCH * (128 + 64));
    ck_assert_uint_eq(row(&f, "outputs that are copies")->points, BATCH * 64);
    fixture_fini(&f);
}
END_TEST

START_TEST(test_memory)
{
    static fixture f;
    const sxr_verify_options by_memory = {
        .seed = 1, .program_flops = 1e12, .reference_bytes = 16 << 10};
    fixture_make(&f, right_text, BATCH);
    ck_sx_ok(&f.cx, verify(&f, right_text, &by_memory));
    ck_assert_uint_eq(row(&f, "program as sent, all outputs: reference: tensors")->passed,
                      SX_CHECK_ABSENT);
    ck_assert_uint_eq(row(&f, reduced_row)->passed, SX_CHECK_PASSED);
    ck_assert_uint_eq(row(&f, "every element of what kernels compute is written")->points,
                      BATCH * (128 + 64));
    fixture_fini(&f);
}
END_TEST

/* Without symbols there are no smaller extents, and the record says so. */
START_TEST(test_fixed_extents)
{
    static fixture f;
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    char *text = replaced(&cx, right_text, " (batch in [1, 4096])", " ()");
    while (strstr(text, "[batch") != NULL) {
        text = replaced(&cx, text, "[batch", "[96");
    }
    fixture_make(&f, text, 0);
    ck_sx_ok(&f.cx, verify(&f, text, &by_flops));
    ck_assert_uint_eq(
        row(&f, "optimised program at smaller extents: all its extents are fixed")->passed,
        SX_CHECK_ABSENT);
    fixture_fini(&f);
    sx_ctx_fini(&cx);
}
END_TEST

/* Level 1 that gives another program. */
static const char *const rewrites[][2] = {
    {"add(%y, %c)", "subtract(%y, %c)"},
    {"tanh(%s)", "tanh(%h)"},
    {"add(%y, %c)", "add(%y, %x)"},
};
START_TEST(test_rewrite)
{
    static fixture f;
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    fixture_make(&f, replaced(&cx, right_text, rewrites[_i][0], rewrites[_i][1]), BATCH);
    ck_sx_fails(&f.cx, verify(&f, right_text, &by_flops), SX_INTERNAL, "at batch=3: output z");
    fixture_fini(&f);
    sx_ctx_fini(&cx);
}
END_TEST

/* The code of another epilogue under the programs of the right module. */
START_TEST(test_epilogue)
{
    static fixture f, wrong;
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    fixture_make(&f, right_text, BATCH);
    fixture_make(&wrong, replaced(&cx, right_text, "add(%h, %r)", "subtract(%h, %r)"), BATCH);
    wrong.module.optimized = f.module.optimized;
    wrong.module.optimized_count = f.module.optimized_count;
    ck_sx_fails(&wrong.cx, verify(&wrong, right_text, &by_flops), SX_INTERNAL, "kernel dot");
    fixture_fini(&wrong);
    fixture_fini(&f);
    sx_ctx_fini(&cx);
}
END_TEST

/* Tiles in the middle of a contraction are not computed: those of its first part, where another one follows. Few
 * elements are sampled, so that only what is written tells. */
START_TEST(test_tile)
{
    static fixture f;
    sxr_verify_options options = by_flops;
    bool found = false;
    options.kernel_points = 2; /* the first element and the last */
    fixture_make(&f, right_text, BATCH + 1);
    for (uint32_t k = 0; k < f.module.kernel_count && !found; k++) {
        const sx_module_kernel *kernel = &f.module.kernel[k];
        sx_module_part *part = &f.part[kernel->part_first];
        for (uint32_t d = 0; d < 3 && kernel->part_count > 1 && !found; d++) {
            found = kernel->kind == SX_MODULE_CONTRACTION && part->grid[d] > 1;
            part->grid[d] -= found ? 1 : 0;
        }
    }
    ck_assert(found);
    ck_sx_fails(&f.cx, verify(&f, right_text, &options), SX_INTERNAL, "is not written");
    fixture_fini(&f);
}
END_TEST

/* An output that is a parameter is copied from another one. */
START_TEST(test_copy)
{
    static fixture f;
    uint32_t input[2] = {0};
    fixture_make(&f, right_text, BATCH);
    for (uint32_t i = 0; i < f.module.tensor_count; i++) {
        sx_span name = sx_module_string(&f.module, f.module.tensor[i].name);
        if (f.module.tensor[i].place == SX_TENSOR_INPUT) {
            input[sx_span_is(name, "c") ? 1 : 0] = i;
        }
    }
    bool found = false;
    for (uint32_t l = 0; l < f.module.launch_count; l++) {
        const sx_module_launch *launch = &f.launch[l];
        uint32_t *arg = &f.arg[launch->arg_first];
        uint32_t to = arg[launch->arg_count - 1];
        if (launch->arg_count == 2 && arg[0] == input[1] &&
            sx_span_is(sx_module_string(&f.module, f.module.tensor[to].name), "same")) {
            arg[0] = input[0];
            found = true;
        }
    }
    ck_assert(found);
    ck_sx_fails(&f.cx, verify(&f, right_text, &by_flops), SX_INTERNAL, "output same");
    fixture_fini(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verify.large");
    TCase *cases = tcase_create("large");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, test_operations);
    tcase_add_test(cases, test_memory);
    tcase_add_test(cases, test_fixed_extents);
    tcase_add_loop_test(cases, test_rewrite, 0, (int)SX_COUNT(rewrites));
    tcase_add_test(cases, test_epilogue);
    tcase_add_test(cases, test_tile);
    tcase_add_test(cases, test_copy);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
