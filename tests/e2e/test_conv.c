/* Convolutions, windows, padding and reversal compiled and run, against the interpreter: random instances of
 * every rank, and what becomes of whole programs. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "client/verify/verify.h"
#include "core/ir/ir.h"
#include "tests/lib/compiled.h"
#include "tests/lib/ir.h"

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};

/* The operation between an elementwise one and another, so that there is something to fuse. */
static void build(sx_ctx *cx, sx_rng *rng, const sx_test_op *t, sx_graph **graph)
{
    sx_node_id input[SX_TEST_INPUTS_MAX];
    sx_node_id id;
    ck_sx_ok(cx, sx_graph_make(cx, SX_SPAN_LITERAL("one"), NULL, graph));
    for (uint32_t k = 0; k < t->input_count; k++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "p%u", k);
        ck_sx_ok(cx, sx_build_parameter(cx, *graph, name, k > 0 && sx_rng_below(rng, 2) == 0,
                                        &t->input[k], &input[k]));
    }
    if (sx_rng_below(rng, 2) == 0) {
        ck_sx_ok(cx, sx_build_unary(cx, *graph, SX_OP_NEGATE, input[0], &input[0]));
    }
    ck_sx_ok(cx, sx_graph_add(cx, *graph, t->op, &t->attr, input, t->input_count, &id));
    if (sx_rng_below(rng, 2) == 0) {
        ck_sx_ok(cx, sx_build_unary(cx, *graph, SX_OP_RELU, id, &id));
    }
    ck_sx_ok(cx, sx_graph_add_output(cx, *graph, SX_SPAN_LITERAL("y"), id));
}

static void run_one(sx_rng *rng, sx_op op, const char *target)
{
    sx_ctx cx;
    sx_test_op t;
    sx_graph *graph;
    sx_buf text;
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    do {
        sx_test_op_make(&cx, rng, op, &t);
    } while (t.input[0].dtype != SX_F32);
    build(&cx, rng, &t, &graph);
    ck_sx_ok(&cx, sx_graph_print(&cx, graph, &text));
    sx_buf_put_u8(&text, 0);
    sx_test_request request = {.text = (const char *)text.ptr, .target = target};
    sx_buf module;
    sx_buf_init(&module, (size_t)1 << 28);
    sx_code code = sx_test_compile(&cx, &request, &module);
    ck_assert_msg(code == SX_OK, "%s\n%s", cx.error.text, request.text);
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 2, SX_FILL_DRAWN);
    sx_module_check check;
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    code = sxr_check_program(&cx, program, 0, &check);
    ck_assert_msg(code == SX_OK, "%s\n%s", cx.error.text, request.text);
    sxr_close(program);
    sx_buf_fini(&module);
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}

static const sx_op ops[] = {SX_OP_CONVOLUTION, SX_OP_REDUCE_WINDOW, SX_OP_PAD, SX_OP_REVERSE,
                            SX_OP_BATCH_NORM};
START_TEST(random_instances)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 24; k++) {
        if (sx_test_can_run(targets[k % 2])) {
            run_one(&rng, ops[_i], targets[k % 2]);
        }
    }
}
END_TEST

/* Three spatial dimensions, with and without groups, for any batch. */
START_TEST(deep)
{
    static const char *const text =
        "sx 1\ngraph \"deep\" (batch in [1, 64]) {\n"
        "%x = parameter {name = \"x\", weight = 0} : f32[batch, 4, 7, 6, 9]\n"
        "%w = parameter {name = \"w\", weight = 1} : f32[6, 4, 3, 2, 3]\n"
        "%u = parameter {name = \"u\", weight = 1} : f32[4, 3, 2, 3, 2]\n"
        "%a = convolution(%x, %w) {stride = [2, 1, 1], low = [1, 0, 1], high = [1, 0, 1], "
        "dilation = [1, 2, 1], groups = 1} : f32[batch, 6, 4, 4, 9]\n"
        "%b = convolution(%a, %u) {stride = [1, 1, 2], low = [0, 1, 0], high = [1, 1, 0], "
        "dilation = [2, 1, 1], groups = 2} : f32[batch, 4, 3, 4, 4]\n"
        "%y = reduce_window(%b) {stride = [1, 1, 1, 2, 2], low = [0, 0, 0, 0, 0], high = [0, 0, 1, "
        "0, "
        "0], window = [1, 1, 2, 2, 2], dilation = [1, 1, 1, 1, 1], reducer = maximum} : "
        "f32[batch, 4, 3, 2, 2]\n"
        "return %y as \"y\"\n}\n";
    for (uint32_t k = 0; k < 4; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 30);
        sx_test_request request = {.text = text, .target = targets[k % 2], .batch = 1 + k / 2 * 3};
        if (sx_test_can_run(targets[k % 2])) {
            sxr_close(sx_test_run(&cx, &request, 2));
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* A transposed convolution multiplies none of the zeros that its definition has between elements: nothing writes an
 * image with them, and there is a quarter of the products. */
START_TEST(transposed)
{
    static const char *const text =
        "sx 1\ngraph \"transposed\" (batch in [1, 64]) {\n"
        "%x = parameter {name = \"x\", weight = 0} : f32[batch, 16, 12, 10]\n"
        "%w = parameter {name = \"w\", weight = 1} : f32[8, 16, 2, 2]\n"
        "%z = constant {data = 0} : f32[]\n"
        "%p = pad(%x, %z) {low = [0, 0, 0, 0], high = [0, 0, 0, 0], interior = [0, 0, 1, 1]} : "
        "f32[batch, 16, 23, 19]\n"
        "%y = convolution(%p, %w) {stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, "
        "1], "
        "groups = 1} : f32[batch, 8, 24, 20]\n"
        "return %y as \"y\"\n}\n";
    for (uint32_t k = 0; k < 4; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 30);
        sx_test_request request = {.text = text, .target = targets[k % 2], .batch = 1 + k / 2 * 3};
        if (sx_test_can_run(targets[k % 2])) {
            sxr_program *program = sx_test_run(&cx, &request, 2);
            const sx_module *module = sxr_module(program);
            double flops = 0;
            for (uint64_t i = 0; i < module->launch_count; i++) {
                const sx_module_kernel *kernel = &module->kernel[module->launch[i].kernel];
                bool once = module->launch[i].prologue != 0;
                ck_assert(once || kernel->kind != SX_MODULE_COPY);
                flops += once ? 0 : kernel->flops;
            }
            ck_assert_double_le(flops, 2.0 * (double)request.batch * 16 * 12 * 10 * 8 * 4);
            sxr_close(program);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* What becomes of whole programs (tests/golden/egraph): one contraction at run time, besides it only the
 * padding of its input, and one kernel that does what follows and brings output channels to order where lanes ran
 * along them. */
static const struct {
    const char *name;
    uint64_t pads;
} single[] = {{"conv_norm_relu", 1}, {"fire_module", 1}, {"rep_block", 1}, {"norm_conv", 0}};

START_TEST(one_kernel)
{
    for (uint32_t k = 0; k < 4; k++) {
        sx_ctx cx;
        sx_buf text;
        char path[512];
        sx_ctx_init(&cx, (size_t)1 << 30);
        (void)snprintf(path, sizeof(path), "%s/tests/golden/egraph/%s.sx", SX_SOURCE_DIR,
                       single[_i].name);
        sx_buf_init(&text, 1 << 20);
        sx_test_read_file(path, &text);
        sx_buf_put_u8(&text, 0);
        sx_test_request request = {.text = (const char *)text.ptr,
                                   .target = targets[k % 2],
                                   .batch = 1 + k / 2 * 4,
                                   .drawn = true};
        if (sx_test_can_run(targets[k % 2])) {
            sxr_program *program = sx_test_run(&cx, &request, 2);
            const sx_module *module = sxr_module(program);
            uint32_t run[SX_MODULE_KERNEL_KIND_COUNT] = {0};
            uint64_t all = 0;
            for (uint64_t i = 0; i < module->launch_count; i++) {
                bool once = module->launch[i].prologue != 0;
                run[module->kernel[module->launch[i].kernel].kind] += once ? 0 : 1;
                all += once ? 0 : 1;
            }
            ck_assert_uint_eq(run[SX_MODULE_CONTRACTION], 1);
            ck_assert_uint_eq(run[SX_MODULE_COPY], single[_i].pads);
            ck_assert_uint_le(run[SX_MODULE_MAP], 1);
            ck_assert_uint_eq(all, 1 + single[_i].pads + run[SX_MODULE_MAP]);
            sxr_close(program);
        }
        sx_buf_fini(&text);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.conv");
    TCase *cases = tcase_create("conv");
    tcase_set_timeout(cases, 400);
    tcase_add_loop_test(cases, random_instances, 0, (int)SX_COUNT(ops));
    tcase_add_test(cases, deep);
    tcase_add_test(cases, transposed);
    tcase_add_loop_test(cases, one_kernel, 0, (int)SX_COUNT(single));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
