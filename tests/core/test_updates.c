/* Programs that keep state, compiled and run over several steps: every state and output as in the interpreter, to the
 * bit (integers, whose arithmetic wraps in both). */
#include "tests/lib/test.h"

#include <string.h>

#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/ir/effect.h"
#include "tests/lib/compiled.h"

#define TARGET "x86-64-v3"
#define STEPS 4u
#define SIDE 6
#define ELEMENTS (SIDE * SIDE)
#define TENSORS_MAX 16u

static sx_ctx cx;
static const char *program_text; /* of the program that is compared */

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* What the interpreter has of each parameter. */
typedef struct {
    sx_graph *graph;
    sx_tensor argument[TENSORS_MAX], result[TENSORS_MAX];
    uint32_t argument_count;
} oracle;

static void oracle_make(oracle *o, const char *text, const sxr_program *program)
{
    *o = (oracle){.graph = NULL};
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &o->graph));
    for (uint32_t n = 0; n < o->graph->node_count; n++) {
        const sx_node *node = &o->graph->node[n];
        if (node->op != SX_OP_PARAMETER) {
            continue;
        }
        sx_tensor *argument = &o->argument[o->argument_count++];
        *argument = (sx_tensor){.type = node->type};
        if (sx_graph_role(o->graph, n) != SX_KEEP_STATE) {
            uint32_t tensor =
                sxr_find(program, SX_TENSOR_INPUT, sx_graph_attr(o->graph, node)->name);
            ck_assert_uint_ne(tensor, UINT32_MAX);
            sx_span raw = {sxr_memory(program, tensor), (size_t)sxr_size(program, tensor)};
            ck_sx_ok(&cx, sx_tensor_unpack(&cx, &node->type, SX_EVAL_TYPED, raw, argument));
        }
    }
}

static void ck_same(const char *what, sx_span name, const sx_tensor *want, const void *got,
                    size_t size)
{
    sx_buf raw;
    sx_buf_init(&raw, 1 << 20);
    ck_sx_ok(&cx, sx_tensor_pack(&cx, want, &raw));
    ck_assert_uint_eq(raw.len, size);
    ck_assert_msg(memcmp(raw.ptr, got, size) == 0, "%s %.*s differs:\n%s", what, (int)name.len,
                  (const char *)name.ptr, program_text);
    sx_buf_fini(&raw);
}

/* One run of both; donated inputs are given again before each. */
static void step(oracle *o, sxr_program *program)
{
    const sx_graph *graph = o->graph;
    const sx_module *module = sxr_module(program);
    uint8_t saved[TENSORS_MAX][ELEMENTS * 4];
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == SX_TENSOR_INPUT) {
            memcpy(saved[i % TENSORS_MAX], sxr_memory(program, i), (size_t)sxr_size(program, i));
        }
    }
    ck_sx_ok(&cx, sx_graph_eval_steps(&cx, graph, SX_EVAL_TYPED, 1, o->argument, o->argument_count,
                                      o->result, graph->output_count));
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    for (uint32_t k = 0; k < graph->output_count; k++) {
        uint32_t into = sx_graph_into(graph, k);
        bool state = into != SX_NOWHERE && sx_graph_role(graph, into) == SX_KEEP_STATE;
        uint32_t tensor = sxr_find(program, SX_TENSOR_OUTPUT, graph->output[k].name);
        ck_assert_int_eq(tensor == UINT32_MAX, state); /* what goes into a state is no output */
        if (!state) {
            ck_same("output", graph->output[k].name, &o->result[k], sxr_memory(program, tensor),
                    (size_t)sxr_size(program, tensor));
        }
    }
    for (uint32_t n = 0, a = 0; n < graph->node_count; n++) {
        sx_span name = sx_graph_attr(graph, &graph->node[n])->name;
        uint8_t got[ELEMENTS * 4];
        if (graph->node[n].op != SX_OP_PARAMETER) {
            continue;
        }
        if (sx_graph_role(graph, n) == SX_KEEP_STATE) {
            uint32_t tensor = sxr_find(program, SX_TENSOR_STATE, name);
            size_t size = (size_t)sxr_size(program, tensor);
            ck_sx_ok(&cx, sxr_state_read(&cx, program, tensor, got, size));
            ck_same("state", name, &o->argument[a], got, size);
        }
        a++;
    }
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == SX_TENSOR_INPUT) {
            memcpy(sxr_memory(program, i), saved[i % TENSORS_MAX], (size_t)sxr_size(program, i));
        }
    }
}

/* Compiles, runs and compares; the program is left open. */
static sxr_program *run_steps(const char *text)
{
    sx_test_request request = {.text = text, .target = TARGET};
    sx_buf module;
    oracle o;
    program_text = text;
    sx_buf_init(&module, (size_t)1 << 26);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 2, SX_FILL_EXACT);
    sx_buf_fini(&module);
    oracle_make(&o, text, program);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(&o, program);
    }
    return program;
}

#define T " : i32[6, 6] "
#define IN(name) "%" name " = parameter {name = \"" name "\", weight = 0}" T

static const char *const programs[] = {
    /* two states change places, and an output has an old version */
    "sx 1 graph \"swap\" { " IN("a") "state = 3 " IN("b") "state = 5 " IN(
        "x") "%c = add(%a, %x)" T
             "return %a as \"old\", %b as \"a\" into \"a\", %c as \"b\" into \"b\" }",
    /* a state is reversed, another one transposed, into itself */
    "sx 1 graph \"turn\" { " IN("a") "state = 1 " IN("b") "state = 0 " IN(
        "x") "%c = add(%a, %x)" T "%r = reverse(%c) {dims = [0, 1]}" T "%d = add(%b, %x)" T
             "%t = transpose(%d) {perm = [1, 0]}" T
             "return %r as \"a\" into \"a\", %t as \"b\" into \"b\" }",
    /* an old version is read behind what makes the new one */
    "sx 1 graph \"late\" { " IN("a") "state = 1 " IN(
        "x") "%n = multiply(%a, %x)" T "%s = reduce(%n) {dims = [0], reducer = add} : i32[6] "
             "%w = broadcast_in_dim(%s) {dims = [0]}" T "%y = add(%w, %a)" T
             "return %n as \"a\" into \"a\", %y as \"y\" }",
    /* a state that nothing changes, one that nothing reads, one that becomes itself */
    "sx 1 graph \"still\" { " IN("a") "state = 4 " IN("b") "state = 6 " IN("c") "state = 8 " IN(
        "x") "%y = add(%a, %x)" T "return %y as \"b\" into \"b\", %c as \"c\" into \"c\" }",
    /* one value for a state, a donated input and an output */
    "sx 1 graph \"thrice\" { " IN("a") "state = 4 " IN(
        "d") "donated "
             "%y = add(%a, %d)" T "%z = reverse(%y) {dims = [0]}" T
             "return %z as \"y\", %z as \"a\" into \"a\", %z as \"e\" into \"d\" }",
    /* two donated inputs change places */
    "sx 1 graph \"give\" { " IN("d") "donated " IN(
        "e") "donated "
             "return %d as \"p\" into \"e\", %e as \"q\" into \"d\" }",
    /* a constant becomes a state */
    "sx 1 graph \"reset\" { " IN("a") "state = 4 %c = iota {axis = 1}" T
                                      "return %c as \"a\" into \"a\", %a as \"y\" }",
};

START_TEST(test_programs)
{
    sxr_close(run_steps(programs[_i]));
}
END_TEST

/* ---- random programs ---- */
#define VALUES_MAX 20u

static void random_program(sx_rng *rng, sx_buf *text)
{
    static const char *const operation[] = {"add", "subtract", "multiply", "maximum", "minimum"};
    uint32_t parameters = 3 + (uint32_t)sx_rng_below(rng, 3), count = parameters;
    uint32_t more = 1 + (uint32_t)sx_rng_below(rng, 8);
    sx_buf_put_text(text, "sx 1\ngraph \"random\" {\n");
    for (uint32_t i = 0; i < parameters; i++) { /* 0 is plain, 1 donated, the others are state */
        sx_buf_print(text, "%%v%u = parameter {name = \"v%u\", weight = 0}" T, i, i);
        sx_buf_print(text, i == 0 ? "\n" : i == 1 ? "donated\n" : "state = %u\n", i);
    }
    for (; count < parameters + more; count++) {
        uint32_t a = (uint32_t)sx_rng_below(rng, count), b = (uint32_t)sx_rng_below(rng, count);
        uint32_t kind = (uint32_t)sx_rng_below(rng, SX_COUNT(operation) + 2);
        if (kind < SX_COUNT(operation)) {
            sx_buf_print(text, "%%v%u = %s(%%v%u, %%v%u)" T "\n", count, operation[kind], a, b);
        } else if (kind == SX_COUNT(operation)) {
            sx_buf_print(text, "%%v%u = transpose(%%v%u) {perm = [1, 0]}" T "\n", count, a);
        } else {
            sx_buf_print(text, "%%v%u = reverse(%%v%u) {dims = [1]}" T "\n", count, a);
        }
    }
    sx_buf_print(text, "return %%v%u as \"y\"", (uint32_t)sx_rng_below(rng, count));
    for (uint32_t i = 1; i < parameters; i++) {
        if (sx_rng_below(rng, 5) > 0) {
            sx_buf_print(text, ", %%v%u as \"o%u\" into \"v%u\"",
                         (uint32_t)sx_rng_below(rng, count), i, i);
        }
    }
    sx_buf_put_text(text, "\n}\n");
}

START_TEST(test_random)
{
    sx_rng seeds = {sx_test_seed()};
    for (uint32_t i = 0; i < sx_test_trials(60); i++) {
        sx_rng rng = {sx_rng_next(&seeds)};
        sx_buf text;
        sx_buf_init(&text, 1 << 16);
        random_program(&rng, &text);
        sx_buf_put_u8(&text, 0);
        sxr_close(run_steps((const char *)text.ptr));
        sx_buf_fini(&text);
        teardown();
        setup();
    }
}
END_TEST

/* ---- what cannot be compiled ---- */

/* The memory of a state is that of one shape. */
START_TEST(test_refused)
{
    static const char text[] = "sx 1 graph \"g\" (batch in [1, 8]) { "
                               "%s = parameter {name = \"s\", weight = 0} : f32[batch] state = 0 "
                               "%y = negate(%s) : f32[batch] return %y as \"s\" into \"s\" }";
    sx_binding binding[] = {{SX_SPAN_LITERAL("batch"), 2}, {SX_SPAN_LITERAL("batch"), 4}};
    sx_core_request request = {.ir = sx_span_of(text),
                               .target = sx_span_of(TARGET),
                               .binding = binding,
                               .binding_count = 2};
    sx_image image;
    sx_image_init(&image);
    ck_sx_fails(&cx, sx_core_compile(&cx, &request, &image), SX_UNIMPLEMENTED,
                "a state has an extent that follows \"batch\": give it one value");
    sx_image_fini(&image);
    sx_image_init(&image);
    request.binding_count = 1;
    ck_sx_ok(&cx, sx_core_compile(&cx, &request, &image));
    sx_image_fini(&image);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.updates");
    TCase *cases = tcase_create("updates");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_programs, 0, SX_COUNT(programs));
    tcase_add_test(cases, test_random);
    tcase_add_test(cases, test_refused);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
