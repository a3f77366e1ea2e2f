/* What is extracted is what is compiled; the same request gives the same bytes; every part of the key counts. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/compiled.h"

#define BYTES_MAX ((size_t)1 << 26)

/* FUNCTION(A @ B + bias) with the names of the inner values given. */
static const char *matmul(const char *function, const char *product, const char *sum)
{
    static char text[2048];
    (void)snprintf(text, sizeof(text),
                   "sx 1\ngraph \"g\" (batch in [1, 4096]) {\n"
                   "  %%a = parameter {name = \"a\", weight = 0} : f32[batch, 64]\n"
                   "  %%b = parameter {name = \"b\", weight = 1} : f32[64, 48]\n"
                   "  %%bias = parameter {name = \"bias\", weight = 1} : f32[48]\n"
                   "  %%%s = dot_general(%%a, %%b) {lhs_contract = [1], rhs_contract = [0]} : "
                   "f32[batch, 48]\n"
                   "  %%wide = broadcast_in_dim(%%bias) {dims = [1]} : f32[batch, 48]\n"
                   "  %%%s = add(%%%s, %%wide) : f32[batch, 48]\n"
                   "  %%last = %s(%%%s) : f32[batch, 48]\n"
                   "  return %%last as \"y\"\n}\n",
                   product, sum, product, function, sum);
    return text;
}

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};

START_TEST(test_one_kernel)
{
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_test_request request = {
        .text = matmul("relu", "0", "1"), .target = targets[_i], .batch = 33};
    sxr_program *program = sx_test_run(&cx, &request, 2);
    const sx_module *module = sxr_module(program);
    uint32_t packs = sx_test_kernels(module, SX_MODULE_PACK);
    ck_assert_uint_le(packs, 1);
    ck_assert_uint_eq(module->kernel_count, 1 + packs);
    ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_CONTRACTION), 1);
    sx_span what = sx_module_string(module, module->kernel[packs].what);
    ck_assert_msg(sx_span_is(what, "dot add relu") || sx_span_is(what, "dot add maximum"), "%.*s",
                  (int)what.len, (const char *)what.ptr);
    sxr_close(program);
    sx_ctx_fini(&cx);
}
END_TEST

/* Without the rule that fuses epilogues there are more kernels, and the result is still right. */
START_TEST(test_disabled_rule)
{
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_test_request request = {.text = matmul("relu", "0", "1"),
                               .target = targets[_i],
                               .batch = 33,
                               .disabled = "fuse-epilogue"};
    sxr_program *program = sx_test_run(&cx, &request, 2);
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_CONTRACTION), 1);
    ck_assert_uint_ge(sx_test_kernels(module, SX_MODULE_MAP), 1);
    sxr_close(program);
    /* nothing is fused: one kernel for each operation but the parameters */
    request.disabled = "fuse-epilogue,fuse-producer,fuse-view,fuse-same,fuse-value";
    program = sx_test_run(&cx, &request, 2);
    module = sxr_module(program);
    ck_assert_uint_eq(module->kernel_count - sx_test_kernels(module, SX_MODULE_PACK), 4);
    sxr_close(program);
    sx_ctx_fini(&cx);
}
END_TEST

/* For the largest batch the space of this contraction has 2^44 points, more than a tensor may have elements;
 * for 2 it is small. */
START_TEST(test_large_space)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_test_request request = {
        .text = "sx 1\ngraph \"g\" (batch in [1, 1048576]) {\n"
                "  %a = parameter {name = \"a\", weight = 0} : f32[batch, 4096]\n"
                "  %b = parameter {name = \"b\", weight = 1} : f32[4096, 4096]\n"
                "  %y = dot_general(%a, %b) {lhs_contract = [1], rhs_contract = [0]} : "
                "f32[batch, 4096]\n  return %y as \"y\"\n}\n",
        .target = targets[_i],
        .batch = 2};
    sx_buf module;
    sx_buf_init(&module, BYTES_MAX);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
}
END_TEST

/* Dimensions of extent 1 cost nothing, until a contraction has more than a kernel can walk: another form is taken. */
START_TEST(test_ranks_that_grow)
{
    static const char text[] =
        "sx 1\ngraph \"g\" {\n"
        "  %0 = parameter {name = \"x\", weight = 0} : f32[1, 5, 1, 7]\n"
        "  %1 = log_softmax(%0) {axis = 0} : f32[1, 5, 1, 7]\n"
        "  %2 = transpose(%1) {perm = [0, 1, 3, 2]} : f32[1, 5, 7, 1]\n"
        "  %3 = dot_general(%1, %2) {lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract = [3], "
        "rhs_contract = [2]} : f32[1, 5, 1, 1]\n"
        "  return %3 as \"y\"\n}\n";
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf module;
    sx_buf_init(&module, BYTES_MAX);
    sx_test_request request = {.text = text, .target = targets[_i]};
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
}
END_TEST

/* Concatenate and gather are kernels of their own, for every element type and in the prologue too. */
START_TEST(test_copies)
{
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    static const char *const dtypes[] = {"f32", "f64", "f16", "bf16", "f8e4m3", "i64",
                                         "i32", "i16", "i8",  "u8",   "bool"};
    for (uint32_t t = 0; t < SX_COUNT(dtypes); t++) {
        const char *d = dtypes[t];
        char text[2048];
        (void)snprintf(text, sizeof(text),
                       "sx 1\ngraph \"g\" (batch in [1, 64]) {\n"
                       "%%t = parameter {name = \"t\", weight = 1} : %s[40, 13]\n"
                       "%%k = parameter {name = \"k\", weight = 1} : i64[5]\n"
                       "%%i = parameter {name = \"i\", weight = 0} : i32[batch, 3]\n"
                       "%%x = parameter {name = \"x\", weight = 0} : %s[batch, 3, 7]\n"
                       "%%a = gather(%%t, %%i) {axis = 0} : %s[batch, 3, 13]\n"
                       "%%b = concatenate(%%a, %%x) {axis = 2} : %s[batch, 3, 20]\n"
                       "%%c = gather(%%t, %%k) {axis = 1} : %s[40, 5]\n"
                       "return %%b as \"b\", %%c as \"c\"\n}\n",
                       d, d, d, d, d);
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_test_request request = {.text = text, .target = targets[_i], .batch = 9};
        sxr_program *program = sx_test_run(&cx, &request, 2);
        const sx_module *module = sxr_module(program);
        ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_COPY), 4); /* with that to output c */
        bool prologue = false;
        for (uint64_t i = 0; i < module->launch_count; i++) {
            const sx_module_launch *launch = &module->launch[i];
            prologue = prologue || (launch->prologue != 0 &&
                                    module->kernel[launch->kernel].kind == SX_MODULE_COPY);
        }
        ck_assert(prologue); /* %c depends on weights alone */
        sxr_close(program);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* A grid point of pad and reverse walks many rows, however short they are: each point is a call. */
START_TEST(test_short_rows)
{
    static const char text[] =
        "sx 1 graph \"g\" {\n"
        "%x = parameter {name = \"x\", weight = 0} : f32[8, 64, 12, 12]\n"
        "%0 = constant {data = 0} : f32[]\n"
        "%y = pad(%x, %0) {low = [0, 0, 1, 1], high = [0, 0, 1, 1], interior = [0, 0, 0, 0]} : "
        "f32[8, 64, 14, 14]\n"
        "%z = reverse(%x) {dims = [2, 3]} : f32[8, 64, 12, 12]\n"
        "return %y as \"y\", %z as \"z\" }\n";
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_test_request request = {.text = text, .target = targets[_i]};
    sxr_program *program = sx_test_run(&cx, &request, 2);
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_COPY), 2);
    for (uint64_t i = 0; i < module->part_count; i++) {
        const int64_t *grid = module->part[i].grid;
        ck_assert_int_le(grid[0] * grid[1] * grid[2], 16); /* of 6144 rows, 64 KiB each, about */
    }
    sxr_close(program);
    sx_ctx_fini(&cx);
}
END_TEST

typedef struct {
    sx_buf bytes;
    uint8_t *code, *key;
    size_t code_size;
} built;

static built build(sx_ctx *cx, const sx_test_request *request)
{
    built b = {.code = NULL};
    sx_buf_init(&b.bytes, BYTES_MAX);
    ck_sx_ok(cx, sx_test_compile(cx, request, &b.bytes));
    void *copy = sx_alloc(cx, b.bytes.len + 64);
    ck_assert_ptr_nonnull(copy);
    uint8_t *aligned = (uint8_t *)(((uintptr_t)copy + 63) & ~(uintptr_t)63);
    memcpy(aligned, b.bytes.ptr, b.bytes.len);
    sx_module module;
    ck_sx_ok(cx, sx_module_decode(cx, (sx_span){aligned, b.bytes.len}, true, &module));
    b.code = aligned + (module.code - aligned);
    b.code_size = (size_t)module.code_count;
    b.key = sx_alloc(cx, SX_KEY_BYTES);
    memcpy(b.key, module.info->key, SX_KEY_BYTES);
    return b;
}

static bool same_code(const built *a, const built *b)
{
    return a->code_size == b->code_size && memcmp(a->code, b->code, a->code_size) == 0;
}

START_TEST(test_text_to_code)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_test_request request = {.target = targets[_i], .batch = 8};
    request.text = matmul("relu", "0", "1");
    built relu = build(&cx, &request);
    request.text = matmul("tanh", "0", "1");
    built tanh = build(&cx, &request);
    request.text = matmul("relu", "product", "sum");
    built renamed = build(&cx, &request);
    ck_assert_uint_gt(relu.code_size, 0);
    ck_assert(!same_code(&relu, &tanh));
    ck_assert_mem_ne(relu.key, tanh.key, SX_KEY_BYTES);
    ck_assert(same_code(&relu, &renamed));
    ck_assert_mem_eq(relu.key, renamed.key, SX_KEY_BYTES);
    sx_buf_fini(&relu.bytes);
    sx_buf_fini(&tanh.bytes);
    sx_buf_fini(&renamed.bytes);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_same_bytes)
{
    sx_ctx cx[2];
    built b[2];
    sx_test_request request = {
        .text = matmul("gelu", "0", "1"), .target = targets[_i], .batch = 100};
    for (uint32_t k = 0; k < 2; k++) {
        sx_ctx_init(&cx[k], SX_ARENA_DEFAULT);
        cx[k].seed = k; /* the seed must not leak into the module */
        b[k] = build(&cx[k], &request);
    }
    ck_assert_uint_eq(b[0].bytes.len, b[1].bytes.len);
    ck_assert_mem_eq(b[0].bytes.ptr, b[1].bytes.ptr, b[0].bytes.len);
    for (uint32_t k = 0; k < 2; k++) {
        sx_buf_fini(&b[k].bytes);
        sx_ctx_fini(&cx[k]);
    }
}
END_TEST

#define TWO_SYMBOLS                                             \
    "sx 1\ngraph \"g\" (a in [1, 64], b in [1, 64]) {\n"        \
    "  %x = parameter {name = \"x\", weight = 0} : f32[a, b]\n" \
    "  %y = negate(%x) : f32[a, b]\n  return %y as \"y\"\n}\n"
#define OTHER_PROGRAM                                           \
    "sx 1\ngraph \"g\" (a in [1, 64], b in [1, 64]) {\n"        \
    "  %x = parameter {name = \"x\", weight = 0} : f32[a, b]\n" \
    "  %y = abs(%x) : f32[a, b]\n  return %y as \"y\"\n}\n"

/* Each part changed alone changes the key, and only that part. */
START_TEST(test_key_parts)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    const sx_binding ab[] = {{SX_SPAN_LITERAL("a"), 3}, {SX_SPAN_LITERAL("b"), 4}};
    const sx_binding ba[] = {{SX_SPAN_LITERAL("b"), 4}, {SX_SPAN_LITERAL("a"), 3}};
    const sx_binding swapped[] = {{SX_SPAN_LITERAL("a"), 4}, {SX_SPAN_LITERAL("b"), 3}};
    const sx_binding larger[] = {{SX_SPAN_LITERAL("a"), 3}, {SX_SPAN_LITERAL("b"), 5}};
    const sx_core_request base = {.ir = SX_SPAN_LITERAL(TWO_SYMBOLS),
                                  .target = SX_SPAN_LITERAL("x86-64-v3"),
                                  .binding = ab,
                                  .binding_count = 2};
    struct {
        sx_core_request request;
        sx_core_part part; /* that differs; SX_PART_COUNT: none */
    } list[14];
    for (uint32_t i = 0; i < SX_COUNT(list); i++) {
        list[i].request = base;
        list[i].part = SX_PART_OPTIONS;
    }
    list[0].request.binding = ba;
    list[0].part = SX_PART_COUNT;
    list[1].request.binding = swapped;
    list[1].part = SX_PART_EXTENTS;
    list[2].request.binding = larger;
    list[2].part = SX_PART_EXTENTS;
    list[3].request.target = SX_SPAN_LITERAL("x86-64-v4");
    list[3].part = SX_PART_TARGET;
    list[4].request.ir = SX_SPAN_LITERAL(OTHER_PROGRAM);
    list[4].part = SX_PART_PROGRAM;
    list[5].request.no_reassociate = true;
    list[6].request.allow_approximate = true;
    list[7].request.disabled_rules = SX_SPAN_LITERAL("relu");
    list[8].request.disabled_rules = SX_SPAN_LITERAL("silu");
    list[9].request.unfused = true;
    list[10].request.range_any = true;
    list[11].request.verify_flops = 5000000000000;
    list[12].request.verify_bytes = 5000000000;
    const sx_interval wide = {SX_SPAN_LITERAL("b"), 4, 9};
    list[13].request.binding_count = list[13].request.interval_count = 1;
    list[13].request.interval = &wide;
    list[13].part = SX_PART_EXTENTS;
    sx_key key[SX_COUNT(list) + 1];
    sx_span part[SX_COUNT(list) + 1][SX_PART_COUNT];
    ck_sx_ok(&cx, sx_core_key(&cx, &base, &key[SX_COUNT(list)], part[SX_COUNT(list)]));
    for (uint32_t i = 0; i < SX_COUNT(list); i++) {
        ck_sx_ok(&cx, sx_core_key(&cx, &list[i].request, &key[i], part[i]));
        bool same = memcmp(key[i].byte, key[SX_COUNT(list)].byte, SX_KEY_BYTES) == 0;
        ck_assert_msg(same == (list[i].part == SX_PART_COUNT), "request %u", i);
        for (uint32_t p = 0; p < SX_PART_COUNT; p++) {
            bool equal = sx_span_equal(part[i][p], part[SX_COUNT(list)][p]);
            ck_assert_msg(equal == (p != (uint32_t)list[i].part), "request %u: part %s", i,
                          sx_core_part_name((sx_core_part)p));
        }
        for (uint32_t j = 0; j < i; j++) {
            ck_assert_msg(memcmp(key[i].byte, key[j].byte, SX_KEY_BYTES) != 0, "%u and %u", i, j);
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.pipeline");
    TCase *cases = tcase_create("pipeline");
    tcase_add_loop_test(cases, test_one_kernel, 0, 2);
    tcase_add_loop_test(cases, test_disabled_rule, 0, 2);
    tcase_add_loop_test(cases, test_ranks_that_grow, 0, 2);
    tcase_add_loop_test(cases, test_large_space, 0, 2);
    tcase_add_loop_test(cases, test_copies, 0, 2);
    tcase_add_loop_test(cases, test_short_rows, 0, 2);
    tcase_add_loop_test(cases, test_text_to_code, 0, 2);
    tcase_add_loop_test(cases, test_same_bytes, 0, 2);
    tcase_add_test(cases, test_key_parts);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
