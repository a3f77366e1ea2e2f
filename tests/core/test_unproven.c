/* Where no schedule of a fused kernel can be proven, the program is extracted again without that kernel, runs right
 * and says so. The judge of this program is a stub before the real one (ld --wrap), which refuses every schedule
 * of one kind of kernel. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/judge/judge.h"
#include "tests/lib/compiled.h"

typedef enum { NONE, EPILOGUES, ONLINE_SUMS, CONTRACTIONS } refused_kind;
static refused_kind refused;
static uint32_t refusals;

sx_code __real_sx_judge_kernel(sx_judge *judge, const sx_attr *fused, const sx_type *input,
                               uint32_t input_count, const sx_judge_facts *facts,
                               const sx_kernel *kernel, sx_verdict *verdict);
sx_code __wrap_sx_judge_kernel(sx_judge *judge, const sx_attr *fused, const sx_type *input,
                               uint32_t input_count, const sx_judge_facts *facts,
                               const sx_kernel *kernel, sx_verdict *verdict);
sx_code __wrap_sx_judge_kernel(sx_judge *judge, const sx_attr *fused, const sx_type *input,
                               uint32_t input_count, const sx_judge_facts *facts,
                               const sx_kernel *kernel, sx_verdict *verdict)
{
    const sx_body *body = fused->body;
    sx_kernel_kind kind = sx_body_kernel_kind(body);
    bool more = body->instr[body->instr_count - 1].kind != SX_BODY_DOT;
    bool refuse = (refused == EPILOGUES && kind == SX_KERNEL_DOT && more) ||
                  (refused == ONLINE_SUMS && kind == SX_KERNEL_ONLINE) ||
                  (refused == CONTRACTIONS && kind == SX_KERNEL_DOT);
    if (refuse) {
        refusals++;
        *verdict = (sx_verdict){.proven = false, .text = "not proven: the test says so"};
        return SX_OK;
    }
    return __real_sx_judge_kernel(judge, fused, input, input_count, facts, kernel, verdict);
}

static const char dense[] = "sx 1\ngraph \"g\" (batch in [1, 4096]) {\n"
                            "  %a = parameter {name = \"a\", weight = 0} : f32[batch, 64]\n"
                            "  %b = parameter {name = \"b\", weight = 1} : f32[64, 48]\n"
                            "  %c = parameter {name = \"c\", weight = 1} : f32[48]\n"
                            "  %0 = dot_general(%a, %b) {lhs_contract = [1], rhs_contract = [0]} : "
                            "f32[batch, 48]\n"
                            "  %1 = broadcast_in_dim(%c) {dims = [1]} : f32[batch, 48]\n"
                            "  %2 = add(%0, %1) : f32[batch, 48]\n"
                            "  %3 = relu(%2) : f32[batch, 48]\n"
                            "  return %3 as \"y\"\n}\n";
static const char attention[] =
    "sx 1\ngraph \"g\" (batch in [1, 64]) {\n"
    "  %q = parameter {name = \"q\", weight = 0} : f32[batch, 40, 16]\n"
    "  %k = parameter {name = \"k\", weight = 0} : f32[batch, 48, 16]\n"
    "  %v = parameter {name = \"v\", weight = 0} : f32[batch, 48, 16]\n"
    "  %0 = dot_general(%q, %k) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], "
    "rhs_contract = [2]} : f32[batch, 40, 48]\n"
    "  %1 = softmax(%0) {axis = 2} : f32[batch, 40, 48]\n"
    "  %2 = dot_general(%1, %v) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], "
    "rhs_contract = [1]} : f32[batch, 40, 16]\n"
    "  return %2 as \"y\"\n}\n";

static const char target[] = "x86-64-v3";

static bool says_so(const sx_module *module)
{
    sx_span stop = sx_module_string(module, module->search->stop);
    char text[200];
    (void)snprintf(text, sizeof(text), "%.*s", (int)stop.len, (const char *)stop.ptr);
    return strstr(text, "extracted again without") != NULL;
}

START_TEST(test_epilogue)
{
    sx_ctx cx;
    sx_test_request request = {.text = dense, .target = target, .batch = 5};
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sxr_program *program = sx_test_run(&cx, &request, 2); /* compares with the interpreter */
    ck_assert_uint_eq(sx_test_kernels(sxr_module(program), SX_MODULE_MAP), 0);
    ck_assert(!says_so(sxr_module(program)));
    sxr_close(program);
    refused = EPILOGUES;
    program = sx_test_run(&cx, &request, 2);
    const sx_module *module = sxr_module(program);
    ck_assert_uint_gt(refusals, 0);
    ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_CONTRACTION), 1);
    ck_assert_uint_ge(sx_test_kernels(module, SX_MODULE_MAP), 1);
    ck_assert(says_so(module));
    sxr_close(program);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_online)
{
    sx_ctx cx;
    sx_test_request request = {.text = attention, .target = target, .batch = 2};
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sxr_program *program = sx_test_run(&cx, &request, 2);
    ck_assert_uint_eq(sx_test_kernels(sxr_module(program), SX_MODULE_ONLINE), 1);
    sxr_close(program);
    refused = ONLINE_SUMS;
    program = sx_test_run(&cx, &request, 2);
    const sx_module *module = sxr_module(program);
    ck_assert_uint_gt(refusals, 0);
    ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_ONLINE), 0);
    ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_CONTRACTION), 2);
    ck_assert(says_so(module));
    sxr_close(program);
    sx_ctx_fini(&cx);
}
END_TEST

/* Nothing else computes a contraction: that is an error which names the node and the reason. */
START_TEST(test_nothing_left)
{
    sx_ctx cx;
    sx_buf module;
    sx_test_request request = {.text = dense, .target = target, .batch = 5};
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&module, (size_t)1 << 26);
    refused = CONTRACTIONS;
    ck_assert_int_eq(sx_test_compile(&cx, &request, &module), SX_COMPILE);
    ck_assert_msg(strstr(cx.error.text, "the test says so") != NULL, "%s", cx.error.text);
    ck_assert_msg(strstr(cx.error.text, "dot_general") != NULL, "%s", cx.error.text);
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.unproven");
    TCase *cases = tcase_create("unproven");
    tcase_add_test(cases, test_epilogue);
    tcase_add_test(cases, test_online);
    tcase_add_test(cases, test_nothing_left);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
