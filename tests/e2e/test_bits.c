/* The numerics contract: batch element 0 has the same bits whatever the batch size, the threads and the vector
 * width; kernels with equal numerics ids give equal bits. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ir/ir.h"
#include "tests/lib/compiled.h"
#include "tests/lib/model.h"

#define BYTES_MAX ((size_t)1 << 28)
static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
static const int64_t batches[] = {1, 3, 8, 64};

/* Results of the first configuration; the others are compared with it. */
typedef struct {
    const char *name;
    float *output; /* batch element 0 of output 0 */
    uint64_t elements;
    uint64_t numerics[64]; /* of the kernels, in order */
    uint64_t kernels;
    bool have;
} reference;

/* Elements of batch element 0: dimension `axis` is the batch. */
static float *batch_zero(sx_ctx *cx, const sx_module_tensor *tensor, const void *memory,
                         uint32_t axis, uint64_t *count)
{
    uint64_t inner = 1, outer = 1, extent = (uint64_t)tensor->dim[axis];
    for (uint32_t d = 0; d < tensor->rank; d++) {
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : (uint64_t)tensor->dim[d];
    }
    float *all = SX_NEW_ARRAY(cx, float, inner *outer);
    ck_assert_ptr_nonnull(all);
    for (uint64_t o = 0; o < outer; o++) {
        memcpy(all + o * inner, (const uint8_t *)memory + o * inner * extent * 4, inner * 4);
    }
    *count = inner * outer;
    return all;
}

static void compare(sx_ctx *cx, reference *r, const sxr_program *program, uint32_t axis,
                    const char *label)
{
    const sx_module *module = sxr_module(program);
    uint32_t index = 0;
    while (module->tensor[index].place != SX_TENSOR_OUTPUT) {
        index++;
    }
    uint64_t count;
    float *row = batch_zero(cx, &module->tensor[index], sxr_memory(program, index), axis, &count);
    if (!r->have) {
        *r = (reference){.name = r->name, .have = true, .elements = count};
        r->output = malloc(count * sizeof(float));
        ck_assert_ptr_nonnull(r->output);
        memcpy(r->output, row, count * sizeof(float));
        return;
    }
    ck_assert_uint_eq(count, r->elements);
    for (uint64_t i = 0; i < count; i++) {
        ck_assert_msg(memcmp(&row[i], &r->output[i], 4) == 0,
                      "%s, %s: element %llu is %.9g (%a), it was %.9g (%a)", r->name, label,
                      (unsigned long long)i, (double)row[i], (double)row[i], (double)r->output[i],
                      (double)r->output[i]);
    }
}

/* The bits of the outputs of both runs are equal, so equal ids are borne out only where ids are equal: the
 * sequence of numerics ids of the kernels must not depend on the batch. */
static void compare_numerics(reference *r, const sx_module *module, const char *label)
{
    uint64_t id[64];
    uint64_t count = 0;
    for (uint64_t k = 0; k < module->kernel_count; k++) {
        if (module->kernel[k].kind != SX_MODULE_PACK) {
            ck_assert_uint_lt(count, SX_COUNT(id));
            id[count++] = module->kernel[k].numerics;
        }
    }
    if (r->kernels == 0) {
        memcpy(r->numerics, id, count * sizeof(id[0]));
        r->kernels = count;
    }
    ck_assert_msg(count == r->kernels, "%s, %s: %llu kernels", r->name, label,
                  (unsigned long long)count);
    for (uint64_t k = 0; k < count; k++) {
        ck_assert_msg(id[k] == r->numerics[k], "%s, %s: kernel %llu has another numerics id",
                      r->name, label, (unsigned long long)k);
    }
}

static void run_threads(sx_ctx *cx, reference *r, sx_span module, const char *target, int64_t batch,
                        uint32_t axis)
{
    for (uint32_t threads = 1; threads <= 2; threads++) {
        char label[96];
        (void)snprintf(label, sizeof(label), "%s, batch %lld, %u threads", target, (long long)batch,
                       threads);
        sxr_program *program = sx_test_open(cx, module, threads, SX_FILL_SMOOTH);
        ck_sx_ok(cx, sxr_run(cx, program, NULL));
        compare(cx, r, program, axis, label);
        compare_numerics(r, sxr_module(program), label);
        sxr_close(program);
    }
}

static void check_text(const char *name, const char *text, uint32_t axis)
{
    reference r = {.name = name};
    for (uint32_t i = 0; i < SX_COUNT(batches) * 2; i++) {
        bool first = i == 0; /* runs wherever the others do, and they must give its bits */
        if (!first && !sx_test_can_run(targets[i % 2])) {
            continue;
        }
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)2 << 30);
        sx_buf module;
        sx_buf_init(&module, BYTES_MAX);
        sx_test_request request = {.text = text, .target = targets[i % 2], .batch = batches[i / 2]};
        sx_code code = sx_test_compile(&cx, &request, &module);
        ck_assert_msg(code == SX_OK, "%s: %s", name, cx.error.text);
        run_threads(&cx, &r, sx_buf_span(&module), targets[i % 2], batches[i / 2], axis);
        sx_buf_fini(&module);
        sx_ctx_fini(&cx);
    }
    ck_assert(r.have);
    free(r.output);
}

static const char *const models[] = {"mlp", "encoder", "cnn"};
START_TEST(test_models)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    ck_sx_ok(&cx, sx_test_model_text(&cx, models[_i], &text));
    sx_buf_put_u8(&text, 0);
    check_text(models[_i], (const char *)text.ptr, 0);
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

/* Programs in one line each: parameters x (f32[batch, S]) and constants of the template, the body, the batch
 * axis of the result. */
typedef struct {
    const char *name;
    const char *parameters;
    const char *body;
    uint32_t axis;
} small;
#define X3 "%x = parameter {name = \"x\", weight = 0} : f32[batch, 17, 40]\n"
#define X2 "%x = parameter {name = \"x\", weight = 0} : f32[batch, 200]\n"
#define XI "%x = parameter {name = \"x\", weight = 0} : f32[batch, 6, 9, 11]\n"
#define KERNEL(shape) "%w = parameter {name = \"w\", weight = 1} : f32[" shape "]\n"
#define XT "%x = parameter {name = \"x\", weight = 0} : f32[37, batch]\n"
#define XM "%x = parameter {name = \"x\", weight = 0} : f32[17, batch, 40]\n"
#define VEC(name, n) "%" name " = parameter {name = \"" name "\", weight = 1} : f32[" n "]\n"
#define MAT(name, k, n) \
    "%" name " = parameter {name = \"" name "\", weight = 1} : f32[" k ", " n "]\n"
static const small list[] = {
    {"dot", X2 MAT("w", "200", "51"),
     "%y = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 51]\n", 0},
    {"dot bias gelu", X2 MAT("w", "200", "33") VEC("b", "33"),
     "%d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 33]\n"
     "%v = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 33]\n"
     "%s = add(%d, %v) : f32[batch, 33]\n%y = gelu(%s) : f32[batch, 33]\n",
     0},
    {"dot narrow", X2 MAT("w", "200", "1"),
     "%y = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 1]\n", 0},
    {"dot transposed weight", X2 MAT("w", "70", "200"),
     "%y = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [1]} : f32[batch, 70]\n", 0},
    {"dot transposed input", XT MAT("w", "37", "45"),
     "%y = dot_general(%x, %w) {lhs_contract = [0], rhs_contract = [0]} : f32[batch, 45]\n", 0},
    {"dot batch last", XT MAT("w", "29", "37"),
     "%y = dot_general(%w, %x) {lhs_contract = [1], rhs_contract = [0]} : f32[29, batch]\n", 1},
    {"dot batched", X3,
     "%y = dot_general(%x, %x) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], "
     "rhs_contract = [2]} : f32[batch, 17, 17]\n",
     0},
    {"dot two weights", X2 MAT("w", "200", "60") MAT("u", "60", "9"),
     "%d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 60]\n"
     "%t = tanh(%d) : f32[batch, 60]\n"
     "%y = dot_general(%t, %u) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 9]\n",
     0},
    {"attention to weights, the batch is its rows", X2 MAT("k", "90", "200") MAT("v", "90", "24"),
     "%s = dot_general(%x, %k) {lhs_contract = [1], rhs_contract = [1]} : f32[batch, 90]\n"
     "%p = softmax(%s) {axis = 1} : f32[batch, 90]\n"
     "%y = dot_general(%p, %v) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 24]\n",
     0},
    {"attention to itself", X3,
     "%s = dot_general(%x, %x) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], "
     "rhs_contract = [2]} : f32[batch, 17, 17]\n"
     "%p = softmax(%s) {axis = 2} : f32[batch, 17, 17]\n"
     "%y = dot_general(%p, %x) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], "
     "rhs_contract = [1]} : f32[batch, 17, 40]\n",
     0},
    {"softmax", X3, "%y = softmax(%x) {axis = 2} : f32[batch, 17, 40]\n", 0},
    {"softmax of a middle axis", X3, "%y = softmax(%x) {axis = 1} : f32[batch, 17, 40]\n", 0},
    {"softmax of columns", XT, "%y = softmax(%x) {axis = 0} : f32[37, batch]\n", 1},
    {"log_softmax", X2, "%y = log_softmax(%x) {axis = 1} : f32[batch, 200]\n", 0},
    {"layer_norm", X3 VEC("s", "40") VEC("b", "40"),
     "%y = layer_norm(%x, %s, %b) {axis = 2, eps = 1e-5} : f32[batch, 17, 40]\n", 0},
    {"layer_norm of two axes", X3 MAT("s", "17", "40") MAT("b", "17", "40"),
     "%y = layer_norm(%x, %s, %b) {axis = 1, eps = 1e-5} : f32[batch, 17, 40]\n", 0},
    {"rms_norm", X2 VEC("s", "200"),
     "%y = rms_norm(%x, %s) {axis = 1, eps = 1e-6} : f32[batch, 200]\n", 0},
    {"gelu", X2, "%y = gelu(%x) : f32[batch, 200]\n", 0},
    {"gelu_tanh", XT, "%y = gelu_tanh(%x) : f32[37, batch]\n", 1},
    {"silu", X3, "%y = silu(%x) : f32[batch, 17, 40]\n", 0},
    {"reduce the last axis", X3, "%y = reduce(%x) {dims = [2], reducer = add} : f32[batch, 17]\n",
     0},
    {"reduce the middle axis", X3, "%y = reduce(%x) {dims = [1], reducer = add} : f32[batch, 40]\n",
     0},
    {"reduce both axes", X3, "%y = reduce(%x) {dims = [1, 2], reducer = add} : f32[batch]\n", 0},
    {"reduce columns", XT, "%y = reduce(%x) {dims = [0], reducer = multiply} : f32[batch]\n", 0},
    {"reduce around the batch", XM, "%y = reduce(%x) {dims = [0, 2], reducer = add} : f32[batch]\n",
     0},
    {"reduce transposed", XM,
     "%t = transpose(%x) {perm = [1, 0, 2]} : f32[batch, 17, 40]\n"
     "%y = reduce(%t) {dims = [1, 2], reducer = add} : f32[batch]\n",
     0},
    {"layer_norm transposed", XM MAT("s", "17", "40") MAT("b", "17", "40"),
     "%t = transpose(%x) {perm = [1, 0, 2]} : f32[batch, 17, 40]\n"
     "%y = layer_norm(%t, %s, %b) {axis = 1, eps = 1e-5} : f32[batch, 17, 40]\n",
     0},
    {"softmax before a batch in the middle", XM,
     "%y = softmax(%x) {axis = 0} : f32[17, batch, 40]\n", 1},
    {"reduce maximum", X3, "%y = reduce(%x) {dims = [2], reducer = maximum} : f32[batch, 17]\n", 0},
    {"transpose", X3, "%y = transpose(%x) {perm = [2, 0, 1]} : f32[40, batch, 17]\n", 1},
    {"convolution", XI KERNEL("5, 6, 3, 3"),
     "%y = convolution(%x, %w) {stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], "
     "groups = 1} : f32[batch, 5, 9, 11]\n",
     0},
    {"convolution with groups, batch_norm", XI KERNEL("4, 3, 3, 2") VEC("c", "4"),
     "%d = convolution(%x, %w) {stride = [2, 1], low = [0, 0], high = [1, 0], dilation = [1, 2], "
     "groups = 2} : f32[batch, 4, 4, 9]\n"
     "%v = multiply(%c, %c) : f32[4]\n"
     "%n = batch_norm(%d, %c, %c, %c, %v) {axis = 1, eps = 1e-5} : f32[batch, 4, 4, 9]\n"
     "%y = relu(%n) : f32[batch, 4, 4, 9]\n",
     0},
    {"convolution by channel", XI KERNEL("6, 1, 3, 3"),
     "%y = convolution(%x, %w) {stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], "
     "groups = 6} : f32[batch, 6, 9, 11]\n",
     0},
    {"transposed convolution", XI KERNEL("5, 6, 3, 3"),
     "%z = constant {data = 0} : f32[]\n"
     "%p = pad(%x, %z) {low = [0, 0, 0, 0], high = [0, 0, 0, 0], interior = [0, 0, 1, 1]} : "
     "f32[batch, 6, 17, 21]\n"
     "%y = convolution(%p, %w) {stride = [1, 1], low = [1, 1], high = [2, 2], dilation = [1, 1], "
     "groups = 1} : f32[batch, 5, 18, 22]\n",
     0},
    {"convolution of joined channels, the mean of its places",
     XI KERNEL("4, 6, 3, 3") "%u = parameter {name = \"u\", weight = 1} : f32[7, 10, 3, 3]\n"
                             "%h = parameter {name = \"h\", weight = 1} : f32[5, 7, 1, 1]\n",
     "%a = convolution(%x, %w) {stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], "
     "groups = 1} : f32[batch, 4, 9, 11]\n"
     "%s = silu(%a) : f32[batch, 4, 9, 11]\n"
     "%c = concatenate(%x, %s) {axis = 1} : f32[batch, 10, 9, 11]\n"
     "%d = convolution(%c, %u) {stride = [1, 1], low = [2, 2], high = [2, 2], dilation = [2, 2], "
     "groups = 1} : f32[batch, 7, 9, 11]\n"
     "%e = convolution(%d, %h) {stride = [1, 1], low = [0, 0], high = [0, 0], dilation = [1, 1], "
     "groups = 1} : f32[batch, 5, 9, 11]\n"
     "%y = reduce(%e) {dims = [2, 3], reducer = add} : f32[batch, 5]\n",
     0},
    {"windows", XI,
     "%a = reduce_window(%x) {stride = [1, 1, 2, 2], low = [0, 0, 1, 1], high = [0, 0, 1, 1], "
     "window = [1, 1, 3, 3], dilation = [1, 1, 1, 1], reducer = maximum} : f32[batch, 6, 5, 6]\n"
     "%y = reduce_window(%a) {stride = [1, 1, 1, 1], low = [0, 0, 0, 0], high = [0, 0, 0, 0], "
     "window = [1, 1, 2, 2], dilation = [1, 1, 1, 1], reducer = add} : f32[batch, 6, 4, 5]\n",
     0},
    {"attention", X3, "%y = attention(%x, %x, %x) {scale = 0.15811388} : f32[batch, 17, 40]\n", 0},
};

START_TEST(test_small)
{
    const small *s = &list[_i];
    char text[4096];
    (void)snprintf(text, sizeof(text),
                   "sx 1\ngraph \"g\" (batch in [1, 4096]) {\n%s%sreturn %%y as \"y\"\n}\n",
                   s->parameters, s->body);
    check_text(s->name, text, s->axis);
}
END_TEST

/* Contractions of one input merged along their columns keep every bit: the sum of an element does not know how
 * many columns there are. */
static const char three_projections[] =
    "sx 1\ngraph \"g\" (batch in [1, 4096]) {\n" X2 MAT("w0", "200", "33") VEC("b0", "33")
        MAT("w1", "200", "33") MAT("w2", "200", "33") VEC("b1", "33")
            VEC("b2", "33") "%d0 = dot_general(%x, %w0) {lhs_contract = [1], rhs_contract = [0]} : "
                            "f32[batch, 33]\n"
                            "%d1 = dot_general(%x, %w1) {lhs_contract = [1], rhs_contract = [0]} : "
                            "f32[batch, 33]\n"
                            "%d2 = dot_general(%x, %w2) {lhs_contract = [1], rhs_contract = [0]} : "
                            "f32[batch, 33]\n"
                            "%v0 = broadcast_in_dim(%b0) {dims = [1]} : f32[batch, 33]\n"
                            "%v1 = broadcast_in_dim(%b1) {dims = [1]} : f32[batch, 33]\n"
                            "%v2 = broadcast_in_dim(%b2) {dims = [1]} : f32[batch, 33]\n"
                            "%s0 = add(%d0, %v0) : f32[batch, 33]\n"
                            "%s1 = add(%d1, %v1) : f32[batch, 33]\n"
                            "%s2 = add(%d2, %v2) : f32[batch, 33]\n"
                            "%m = multiply(%s0, %s1) : f32[batch, 33]\n"
                            "%y = maximum(%m, %s2) : f32[batch, 33]\n"
                            "return %y as \"y\"\n}\n";

static uint32_t contractions_run(const sx_module *module)
{
    uint32_t count = 0;
    for (uint64_t k = 0; k < module->launch_count; k++) {
        count += module->kernel[module->launch[k].kernel].kind == SX_MODULE_CONTRACTION ? 1 : 0;
    }
    return count;
}

START_TEST(test_merged_columns)
{
    static const char *const disabled[] = {"dot-swap", "dot-swap,dot-merge-right"};
    reference r = {.name = "three projections"};
    for (uint32_t i = 0; i < 2 * SX_COUNT(targets); i++) {
        if (i != 0 && !sx_test_can_run(targets[i / 2])) {
            continue;
        }
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)2 << 30);
        sx_buf module;
        sx_buf_init(&module, BYTES_MAX);
        sx_test_request request = {.text = three_projections,
                                   .target = targets[i / 2],
                                   .batch = 5,
                                   .disabled = disabled[i % 2]};
        ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
        sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 1, SX_FILL_SMOOTH);
        ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
        ck_assert_uint_eq(contractions_run(sxr_module(program)), i % 2 == 0 ? 1 : 3);
        compare(&cx, &r, program, 0, disabled[i % 2]);
        sxr_close(program);
        sx_buf_fini(&module);
        sx_ctx_fini(&cx);
    }
    ck_assert(r.have);
    free(r.output);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.bits");
    TCase *cases = tcase_create("bits");
    tcase_set_timeout(cases, 400);
    tcase_add_loop_test(cases, test_models, 0, (int)SX_COUNT(models));
    tcase_add_loop_test(cases, test_small, 0, (int)SX_COUNT(list));
    tcase_add_test(cases, test_merged_columns);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
