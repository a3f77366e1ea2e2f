/* Programs beyond the limits of the comparison of whole programs, here made small by small limits: what the record
 * says of them, and that faults are refused all the same. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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

static void fixture_make_for(fixture *f, const char *text, const char *target, int64_t batch)
{
    sx_ctx_init(&f->cx, SX_ARENA_DEFAULT);
    sx_buf_init(&f->bytes, (size_t)1 << 26);
    sx_image_init(&f->image);
    sx_test_request request = {.text = text, .target = target, .batch = batch};
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

static void fixture_make(fixture *f, const char *text, int64_t batch)
{
    fixture_make_for(f, text, "x86-64-v3", batch);
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
    /* Where there is no other way the whole is compared, whatever it takes: a wrong rewrite is found. */
    const sxr_verify_options whole = {
        .seed = 1, .program_flops = 5e5, .fixed_flops = 1e30, .reference_bytes = 16 << 10};
    fixture_make(&f, text, 0);
    ck_sx_ok(&f.cx, verify(&f, text, &whole));
    ck_assert_uint_eq(row(&f, "program as sent, all outputs")->passed, SX_CHECK_PASSED);
    ck_assert_uint_eq(row(&f, "program as sent, all outputs")->points, 2 * BATCH * 64);
    fixture_fini(&f);
    fixture_make(&f, text, 0);
    const char *other = replaced(&cx, text, "add(%y, %c)", "subtract(%y, %c)");
    ck_assert_int_eq(verify(&f, other, &whole), SX_INTERNAL);
    fixture_fini(&f);
    /* With symbols it is compared at smaller extents, as before. */
    fixture_make(&f, right_text, BATCH);
    ck_sx_ok(&f.cx, verify(&f, right_text, &whole));
    ck_assert_uint_eq(row(&f, reduced_row)->passed, SX_CHECK_PASSED);
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

/* ---- code that is emulated in part ---- */

/* Code of another machine: `most` is what the processor may be taken for. */
static const struct {
    const char *target, *most;
    double flops;
    const char *proxy;
    uint64_t points;
} foreign[] = {
    {"x86-64-v4", "x86-64-v3", 1e12, "on this processor", UINT64_C(2) * BATCH * 64},
    {"h100", "x86-64-v3", 1e12, "on this processor", UINT64_C(2) * BATCH * 64},
    {"h100", "x86-64-v3", 5e5, "on this processor at batch=3", UINT64_C(2) * 3 * 64},
    {"x86-64-v4", "none", 1e12, "at batch=3", UINT64_C(2) * 3 * 64},
};

static sx_code verify_foreign(fixture *f, int i, const char *text)
{
    sxr_verify_options options = {
        .seed = 1, .program_flops = foreign[i].flops, .emulated_max = 20000};
    fixture_make_for(f, text, foreign[i].target, BATCH);
    ck_assert_int_eq(setenv("SYMPLEX_ISA_MAX", foreign[i].most, 1), 0);
    sx_code code = verify(f, right_text, &options);
    ck_assert_int_eq(unsetenv("SYMPLEX_ISA_MAX"), 0);
    return code;
}

/* The emulator ran a part: what level 1 made of the program is compared all the same. */
START_TEST(test_foreign)
{
    static fixture f;
    char name[128];
    ck_sx_ok(&f.cx, verify_foreign(&f, _i, right_text));
    const char *why = foreign[_i].flops < 1e6 ? "more operations" : "the emulator ran a part only";
    (void)snprintf(name, sizeof(name), "program as sent, all outputs: %s", why);
    ck_assert_uint_eq(row(&f, name)->passed, SX_CHECK_ABSENT);
    (void)snprintf(name, sizeof(name), "optimised program %s against program as sent, all outputs",
                   foreign[_i].proxy);
    ck_assert_uint_eq(row(&f, name)->passed, SX_CHECK_PASSED);
    ck_assert_uint_eq(row(&f, name)->points, foreign[_i].points);
    fixture_fini(&f);
}
END_TEST

START_TEST(test_foreign_rewrite)
{
    static fixture f;
    sx_ctx cx;
    char message[128];
    sx_ctx_init(&cx, 1 << 20);
    for (size_t i = 0; i < SX_COUNT(rewrites); i++) {
        const char *wrong = replaced(&cx, right_text, rewrites[i][0], rewrites[i][1]);
        sx_code code = verify_foreign(&f, _i, wrong);
        (void)snprintf(message, sizeof(message), "optimised program %s: output z",
                       foreign[_i].proxy);
        ck_sx_fails(&f.cx, code, SX_INTERNAL, message);
        fixture_fini(&f);
    }
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

/* ---- limits that a request raises ---- */

static sx_code compile_verified(sx_ctx *cx, const char *text, const sxr_verify_options *options,
                                uint64_t flops, uint64_t bytes, sx_buf *module)
{
    sx_binding batch = {SX_SPAN_LITERAL("batch"), BATCH};
    sx_core_request request = {.ir = sx_span_of(text),
                               .target = SX_SPAN_LITERAL("x86-64-v3"),
                               .binding = &batch,
                               .binding_count = 1,
                               .verify_flops = flops,
                               .verify_bytes = bytes};
    return sxr_compile_verified(cx, &request, options, module);
}

/* The row of the whole program in the record of a module that was compiled so. */
static sx_module_check whole_row(uint64_t flops, uint64_t bytes)
{
    static const sxr_verify_options small = {
        .seed = 1, .program_flops = 5e5, .reference_bytes = 16 << 10};
    sx_ctx cx;
    sx_buf bytes_of;
    sx_module module;
    sx_module_check found = {.passed = UINT32_MAX};
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&bytes_of, (size_t)1 << 26);
    ck_sx_ok(&cx, compile_verified(&cx, right_text, &small, flops, bytes, &bytes_of));
    void *copy = aligned_alloc(64, (bytes_of.len + 63) & ~(size_t)63);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes_of.ptr, bytes_of.len);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes_of.len}, true, &module));
    for (uint64_t i = 0; i < module.check_count; i++) {
        sx_span name = sx_module_string(&module, module.check[i].name);
        if (name.len >= 28 && memcmp(name.ptr, "program as sent, all outputs", 28) == 0) {
            found = module.check[i];
        }
    }
    free(copy);
    sx_buf_fini(&bytes_of);
    sx_ctx_fini(&cx);
    return found;
}

START_TEST(test_raised)
{
    ck_assert_uint_eq(whole_row(0, 0).passed, SX_CHECK_ABSENT);
    ck_assert_uint_eq(whole_row(100000000, 0).passed, SX_CHECK_ABSENT); /* memory is short, still */
    ck_assert_uint_eq(whole_row(0, 1 << 20).passed, SX_CHECK_ABSENT);
    ck_assert_uint_eq(whole_row(100000000, 1 << 20).passed, SX_CHECK_PASSED);
    ck_assert_uint_eq(whole_row(100000000, 1 << 20).points, 2 * BATCH * 64);
}
END_TEST

/* More memory than there is, is refused before anything is compiled. */
START_TEST(test_memory_that_is_not_there)
{
    sx_ctx cx;
    sx_buf module;
    const sxr_verify_options usual = SXR_VERIFY_DEFAULT;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&module, (size_t)1 << 26);
    ck_sx_fails(&cx, compile_verified(&cx, right_text, &usual, 0, UINT64_C(1) << 50, &module),
                SX_LIMIT, "1073741824 MiB of memory wanted, the machine has");
    if (!SX_SANITIZED) { /* these need more address space than any machine has */
        struct rlimit space = {(rlim_t)3 << 30, (rlim_t)3 << 30};
        ck_assert_int_eq(setrlimit(RLIMIT_AS, &space), 0);
        ck_sx_fails(&cx,
                    compile_verified(&cx, right_text, &usual, 0, (UINT64_C(3) << 30) + 1, &module),
                    SX_LIMIT, "3072 MiB of memory wanted, this process may have 3072");
    }
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
}
END_TEST

typedef struct {
    uint64_t calls, last, total, stop_at, passes;
} watching;

static void watch(void *self, const char *stage, uint64_t done, uint64_t total)
{
    watching *w = self;
    if (strcmp(stage, "verify") == 0 && total > 0) {
        w->passes += done < w->last ? 1 : 0; /* rounded, and in double precision if need be */
        ck_assert_uint_le(w->passes, 1);
        ck_assert_uint_le(done, total);
        w->calls++;
        w->last = done;
        w->total = total;
    }
}

static bool stops(void *self)
{
    const watching *w = self;
    return w->stop_at > 0 && w->calls >= w->stop_at;
}

/* A comparison says how far it is, and ends when it is told to. */
START_TEST(test_progress)
{
    sx_ctx cx;
    sx_buf module;
    sx_buf text;
    const sxr_verify_options usual = SXR_VERIFY_DEFAULT;
    watching w = {.stop_at = _i == 0 ? 0 : 5};
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&module, (size_t)1 << 26);
    sx_buf_init(&text, (size_t)1 << 20);
    sx_buf_print(&text, "sx 1\ngraph \"g\" (batch in [1, 4096]) {\n"
                        "%%x0 = parameter {name = \"x\", weight = 0} : f32[batch, 128]\n"
                        "%%w = parameter {name = \"w\", weight = 1} : f32[128, 128]\n");
    for (uint32_t i = 0; i < 20; i++) {
        sx_buf_print(&text,
                     "%%d%u = dot_general(%%x%u, %%w) " CONTRACT " : f32[batch, 128]\n"
                     "%%x%u = tanh(%%d%u) : f32[batch, 128]\n",
                     i, i, i + 1, i);
    }
    sx_buf_print(&text, "return %%x20 as \"y\"\n}\n");
    cx.progress = watch;
    cx.progress_self = &w;
    cx.cancelled = stops;
    cx.cancelled_self = &w;
    sx_code code =
        compile_verified(&cx, sx_alloc_text(&cx, sx_buf_span(&text)), &usual, 0, 0, &module);
    if (_i == 0) {
        ck_sx_ok(&cx, code);
        ck_assert_uint_ge(w.calls, 20);
        ck_assert_uint_eq(w.last, w.total);
    } else {
        ck_sx_fails(&cx, code, SX_CANCELLED, "cancelled");
        ck_assert_uint_eq(w.calls, 5);
        ck_assert_uint_lt(w.last, w.total);
    }
    sx_buf_fini(&text);
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
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
    tcase_add_loop_test(cases, test_foreign, 0, (int)SX_COUNT(foreign));
    tcase_add_loop_test(cases, test_foreign_rewrite, 0, (int)SX_COUNT(foreign));
    tcase_add_test(cases, test_epilogue);
    tcase_add_test(cases, test_tile);
    tcase_add_test(cases, test_copy);
    tcase_add_test(cases, test_raised);
    tcase_add_test(cases, test_memory_that_is_not_there);
    tcase_add_loop_test(cases, test_progress, 0, 2);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
