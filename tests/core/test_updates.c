/* Programs that keep state, compiled and run over several steps: every state and output as in the interpreter, to the
 * bit (integers, whose arithmetic wraps in both). */
#include "tests/lib/test.h"

#include <string.h>

#include "client/runtime/program.h"
#include "client/verify/verify.h"
#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/ir/effect.h"
#include "tests/lib/compiled.h"

#define TARGET "x86-64-v3"
#define STEPS 4u
#define TENSORS_MAX 64u

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
    uint8_t *saved[TENSORS_MAX] = {NULL};
    ck_assert_uint_le(module->tensor_count, TENSORS_MAX);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == SX_TENSOR_INPUT) {
            saved[i] = sx_alloc(&cx, (size_t)sxr_size(program, i));
            ck_assert_ptr_nonnull(saved[i]);
            memcpy(saved[i], sxr_memory(program, i), (size_t)sxr_size(program, i));
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
        if (graph->node[n].op != SX_OP_PARAMETER) {
            continue;
        }
        if (sx_graph_role(graph, n) == SX_KEEP_STATE) {
            uint32_t tensor = sxr_find(program, SX_TENSOR_STATE, name);
            size_t size = (size_t)sxr_size(program, tensor);
            uint8_t *got = sx_alloc(&cx, size);
            ck_assert_ptr_nonnull(got);
            ck_sx_ok(&cx, sxr_state_read(&cx, program, tensor, got, size));
            ck_same("state", name, &o->argument[a], got, size);
        }
        a++;
    }
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == SX_TENSOR_INPUT) {
            memcpy(sxr_memory(program, i), saved[i], (size_t)sxr_size(program, i));
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

/* ---- in place, or copied ---- */

/* Bytes that a run copies, as the report says. */
static uint64_t copied(const sx_module *module)
{
    for (uint32_t i = 0; i < module->stage_count; i++) {
        if (sx_span_is(sx_module_string(module, module->stage[i].name), "state")) {
            return module->stage[i].items;
        }
    }
    ck_abort_msg("nothing is said of state");
    return 0;
}

static uint64_t bytes_in(const sx_module *module, sx_module_place place)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        bytes += module->tensor[i].place == (uint32_t)place ? module->tensor[i].size : 0;
    }
    return bytes;
}

#define L " : i32[37, 53] "
#define LIN(name) "%" name " = parameter {name = \"" name "\", weight = 0}" L
#define F " : f32[48, 16] "
#define FIN(name) "%" name " = parameter {name = \"" name "\", weight = 0}" F
#define FILL(name, value) "%" name " = constant {data = " value "}" F

static const struct {
    const char *text;
    uint64_t copied;
    uint64_t temporaries; /* bytes, at most */
} memory[] = {
    /* element by element; the last one in text order reads what the first one makes new */
    {"sx 1 graph \"g\" { " LIN("a") "state = 2 " LIN("b") "state = 3 " LIN(
         "x") "%p = multiply(%a, %x)" L "%n = subtract(%p, %b)" L
              "%s = reduce(%b) {dims = [0], reducer = "
              "maximum} : i32[53] %w = broadcast_in_dim(%s) {dims = [1]}" L
              "%y = multiply(%w, %a)" L "%c = add(%b, %x)" L
              "return %n as \"a\" into \"a\", %c as \"b\" into \"b\", %y as \"y\" }",
     0, 37 * 53 * 4 + 53 * 4},
    /* the last reader of the old version needs the new one */
    {"sx 1 graph \"g\" { " LIN("a") "state = 2 " LIN(
         "x") "%n = multiply(%a, %x)" L "%s = reduce(%n) {dims = [0], reducer = maximum} : i32[53] "
              "%w = broadcast_in_dim(%s) {dims = [1]}" L "%y = multiply(%w, %a)" L
              "return %n as \"a\" into \"a\", %y as \"y\" }",
     37 * 53 * 4, 37 * 53 * 4 + 53 * 4},
    /* an epilogue of a product: an element is read once its sum is there */
    {"sx 1 graph \"g\" { " LIN(
         "w") "state = 2 %x = parameter {name = \"x\", weight = 0} : "
              "i32[19, 37] %e = parameter {name = \"e\", weight = 0} : i32[19, 53] "
              "%g = dot_general(%x, %e) {lhs_contract = [0], rhs_contract = [0]}" L
              "%n = subtract(%w, %g)" L "return %n as \"w\" into \"w\" }",
     0, 37 * 53 * 4},
    /* each needs the old version of the other: one of them is copied */
    {"sx 1 graph \"g\" { " LIN("a") "state = 2 " LIN(
         "b") "state = 3 %c = add(%a, %b)" L "%d = multiply(%a, %b)" L
              "return %c as \"a\" into \"a\", %d as \"b\" into \"b\" }",
     37 * 53 * 4, 37 * 53 * 4},
    /* of rows their maxima are made first; other places are read */
    {"sx 1 graph \"g\" { " LIN("a") "state = 2 " LIN(
         "x") "%b = add(%a, %x)" L "%s = reduce(%b) {dims = [1], reducer = maximum} : i32[37] "
              "%w = broadcast_in_dim(%s) {dims = [0]}" L "%n = subtract(%b, %w)" L
              "return %n as \"a\" into \"a\" }",
     0, 37 * 4},
    {"sx 1 graph \"g\" { " IN("a") "state = 2 " IN("x") "%t = transpose(%a) {perm = [1, 0]}" T
                                                        "%n = add(%t, %x)" T
                                                        "return %n as \"a\" into \"a\" }",
     144, 144},
    {"sx 1 graph \"g\" { " IN("a") "state = 2 " IN("x") "%t = transpose(%a) {perm = [1, 0]}" T
                                                        "%b = add(%t, %x)" T "%n = add(%b, %a)" T
                                                        "return %n as \"a\" into \"a\" }",
     144, 144},
    /* a cache, and a table: what is updated is read where it is stored, by the point that stores it */
    {"sx 1 graph \"g\" { " IN("a") "state = 2 %p = parameter {name = \"p\", weight = 0} : i64[] "
                                   "%u = parameter {name = \"u\", weight = 0} : i32[6, 1] "
                                   "%n = dynamic_update_slice(%a, %u, %p) {dims = [1]}" T
                                   "return %n as \"a\" into \"a\" }",
     0, 0},
    {"sx 1 graph \"g\" { " IN("a") "state = 2 %i = parameter {name = \"i\", weight = 0} : i32[3] "
                                   "%u = parameter {name = \"u\", weight = 0} : i32[3, 6] "
                                   "%n = scatter(%a, %i, %u) {axis = 0, reducer = add}" T
                                   "return %n as \"a\" into \"a\" }",
     0, 0},
    /* the updates are the old version: other rows are read */
    {"sx 1 graph \"g\" { " IN("a") "state = 2 %i = parameter {name = \"i\", weight = 0} : i32[6] "
                                   "%n = scatter(%a, %i, %a) {axis = 0, reducer = add}" T
                                   "return %n as \"a\" into \"a\" }",
     144, 144},
    {"sx 1 graph \"g\" { " IN("d") "donated " IN("x") "%n = add(%d, %x)" T
                                                      "return %n as \"y\" into \"d\" }",
     0, 0},
    /* a cache of keys: one row is new in each run, and where it goes is a state, which steps on behind its readers */
    {"sx 1 graph \"g\" { %q = parameter {name = \"q\", weight = 0} : i32[4, 8] "
     "%k = parameter {name = \"k\", weight = 0} : i32[4, 8] "
     "%p = parameter {name = \"p\", weight = 0} : i32[] state = 0 "
     "%c = parameter {name = \"c\", weight = 0} : i32[4, 16, 8] state = 0 "
     "%one = constant {data = 1} : i32[] %i = iota {axis = 1} : i32[4, 16, 8] "
     "%b = broadcast_in_dim(%p) {dims = []} : i32[4, 16, 8] "
     "%at = compare(%i, %b) {direction = eq} : bool[4, 16, 8] "
     "%w = broadcast_in_dim(%k) {dims = [0, 2]} : i32[4, 16, 8] "
     "%n = select(%at, %w, %c) : i32[4, 16, 8] %s = dot_general(%q, %n) {lhs_batch = [0], "
     "rhs_batch = [0], lhs_contract = [1], rhs_contract = [2]} : i32[4, 16] "
     "%m = add(%p, %one) : i32[] "
     "return %m as \"p\" into \"p\", %n as \"c\" into \"c\", %s as \"scores\" }",
     0, 3 * 4 * 16 * 8 * 4},
};

START_TEST(test_memory)
{
    sxr_program *program = run_steps(memory[_i].text);
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(copied(module), memory[_i].copied);
    ck_assert_uint_le(bytes_in(module, SX_TENSOR_TEMPORARY), memory[_i].temporaries);
    sxr_close(program);
}
END_TEST

/* Runs a program of floats and compares each run with the reference. */
static sxr_program *run_checked(const char *text)
{
    sx_test_request request = {.text = text, .target = TARGET};
    sx_module_check check;
    sx_buf module;
    sx_buf_init(&module, (size_t)1 << 26);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 2, SX_FILL_SMOOTH);
    for (uint32_t i = 0; i < STEPS; i++) {
        ck_sx_ok(&cx, sxr_remember(&cx, program));
        ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
        ck_sx_ok(&cx, sxr_check_program(&cx, program, 0, &check));
    }
    sxr_forget(program);
    ck_sx_fails(&cx, sxr_check_program(&cx, program, 0, &check), SX_USAGE, "is not remembered");
    sx_buf_fini(&module);
    return program;
}

/* One kernel reads a whole row for each of its elements: not in place. */
static const char *const rows[] = {
    "sx 1 graph \"rows\" { " FIN("a") "state = 0.5 " FIN("x") "%b = add(%a, %x)" F
                                                              "%n = softmax(%b) {axis = 1}" F
                                                              "return %n as \"a\" into \"a\" }",
    "sx 1 graph \"rows\" { " FIN("a") "state = 0.5 " FIN(
        "x") "%b = add(%a, %x)" F
             "%w = constant {data = 1} : f32[16] %n = rms_norm(%b, %w) {axis = 1, eps = 0.5}" F
             "return %n as \"a\" into \"a\" }",
};

START_TEST(test_rows)
{
    sxr_program *program = run_checked(rows[_i]);
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_ROW), 1);
    ck_assert_uint_eq(copied(module), 48 * 16 * 4);
    sxr_close(program);
}
END_TEST

/* A step of AdamW: parameters and both moments in place; nothing besides but the gradient. */
START_TEST(test_adamw)
{
    static const char text[] =
        "sx 1 graph \"adamw\" { %x = parameter {name = \"x\", weight = 0} : f32[32, 48] "
        "%y = parameter {name = \"y\", weight = 0} : f32[32, 16] " FIN("w") "state = 0.125 " FIN(
            "m") "state = 0 " FIN("v") "state = 0 "
                                       "%p = dot_general(%x, %w) {lhs_contract = [1], rhs_contract "
                                       "= [0]} : f32[32, 16] "
                                       "%e = subtract(%p, %y) : f32[32, 16] "
                                       "%g = dot_general(%x, %e) {lhs_contract = [0], rhs_contract "
                                       "= [0]}" F FILL("b1", "0.9") FILL("c1", "0.1") FILL("b2",
                                                                                           "0.999")
                                           FILL("c2", "0.001") FILL("eps", "1e-8") FILL(
                                               "rate",
                                               "0.01") "%m0 = multiply(%b1, %m)" F
                                                       "%m1 = multiply(%c1, %g)" F
                                                       "%m2 = add(%m0, %m1)" F
                                                       "%gg = multiply(%g, %g)" F
                                                       "%v0 = multiply(%b2, %v)" F
                                                       "%v1 = multiply(%c2, %gg)" F
                                                       "%v2 = add(%v0, %v1)" F "%r = sqrt(%v2)" F
                                                       "%re = add(%r, %eps)" F
                                                       "%q = divide(%m2, %re)" F
                                                       "%s = multiply(%rate, %q)" F
                                                       "%d = multiply(%c2, %w)" F
                                                       "%w1 = subtract(%w, %d)" F
                                                       "%w2 = subtract(%w1, %s)" F
                                                       "return %w2 as \"w\" into \"w\", %m2 as "
                                                       "\"m\" into \"m\", "
                                                       "%v2 as \"v\" into \"v\", %e as \"error\" }";
    sxr_program *program = run_checked(text);
    const sx_module *made = sxr_module(program);
    ck_assert_uint_eq(copied(made), 0);
    ck_assert_uint_eq(bytes_in(made, SX_TENSOR_STATE), 3 * 48 * 16 * 4);
    ck_assert_uint_eq(made->info->state_bytes, 3 * 48 * 16 * 4);
    ck_assert_uint_le(bytes_in(made, SX_TENSOR_TEMPORARY), 48 * 16 * 4); /* the gradient */
    ck_assert_uint_eq(sx_test_kernels(made, SX_MODULE_COPY), 0);
    sxr_close(program);
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
                "state \"s\" has an extent that follows \"batch\": give it one value");
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
    tcase_add_loop_test(cases, test_memory, 0, SX_COUNT(memory));
    tcase_add_loop_test(cases, test_rows, 0, SX_COUNT(rows));
    tcase_add_test(cases, test_adamw);
    tcase_add_test(cases, test_random);
    tcase_add_test(cases, test_refused);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
