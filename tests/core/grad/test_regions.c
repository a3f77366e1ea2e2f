/* Gradients of scan and cond: recurrences, exactly and in doubles, with symbolic extents; random programs as bodies,
 * inside each other; what a while may and may not; and faults that are planted in the way back, each of which must be
 * seen. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/grad/grad.h"
#include "core/ir/origin.h"
#include "core/ir/program.h"
#include "tests/lib/gen_graph.h"
#include "tests/lib/slope.h"
#include "tests/lib/sweep.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_graph *parse(const char *text)
{
    sx_graph *graph;
    sx_code code = sx_graph_parse_named(&cx, sx_span_of(text), &graph);
    ck_assert_msg(code == SX_OK, "%s\n%s", cx.error.text, text);
    return graph;
}

/* ---- recurrences ---- */

#define IN(name, type) " %" name " = parameter {name = \"" name "\", weight = 0} : " type
typedef struct {
    const char *name;
    bool exact; /* a polynomial */
    const char *text;
} recurrence;
static const recurrence recurrences[] = {
    {"linear", true,
     "(rounds in [1, 5], batch in [1, 3]) {" IN("c", "f64[batch, 2]") IN("x",
                                                                         "f64[rounds, batch, 2]")
         IN("w", "f64[2, 2]") " %l, %s = scan(%c, %x, %w) {carried = 1, sliced = 1, step = graph "
                              "{" IN("c", "f64[batch, 2]") IN("x", "f64[batch, 2]")
                                  IN("w", "f64[2, 2]") " %0 = dot_general(%c, %w) {lhs_contract = "
                                                       "[1], rhs_contract = [0]} : f64[batch, 2]"
                                                       " %1 = add(%0, %x) : f64[batch, 2] %2 = "
                                                       "multiply(%1, %c) : f64[batch, 2]"
                                                       " return %1 as \"c\", %2 as \"s\" }} : "
                                                       "f64[batch, 2], f64[rounds, batch, 2]"
                                                       " return %s as \"s\", %l as \"l\" }"},
    /* The first carried value gets a cotangent in the second round before the last alone; the third, none. */
    {"late", true,
     "(rounds in [1, 5]) {" IN("a", "f64[2]") IN("b", "f64[2]") IN("d", "f64[2]")
         IN("x",
            "f64[rounds, 2]") " %0, %1, %2 = scan(%a, %b, %d, %x) {carried = 3, sliced = 1, step = "
                              "graph {" IN("a", "f64[2]") IN("b", "f64[2]") IN("d", "f64[2]")
                                  IN("x",
                                     "f64[2]") " %0 = multiply(%a, %x) : f64[2] %1 = multiply(%a, "
                                               "%b) : f64[2] %2 = add(%d, %a) : f64[2]"
                                               " return %0 as \"a\", %1 as \"b\", %2 as \"d\" }} : "
                                               "f64[2], f64[2], f64[2]"
                                               " return %1 as \"b\", %0 as \"a\", %2 as \"d\" }"},
    /* A counter of integers says which row of a whole operand is read; two results that nobody reads. */
    {"counter", true,
     "(rounds in [1, 4]) {" IN("x", "f64[rounds, 2]") IN("t", "f64[7, 2]") IN("k", "i64[]")
         IN("c", "f64[2]") " %0, %1, %2, %3 = scan(%k, %c, %x, %t) {carried = 2, sliced = 1, step "
                           "= graph {" IN("k", "i64[]") IN("c", "f64[2]") IN("x", "f64[2]") IN(
                               "t", "f64[7, 2]") " %one = constant {data = 1} : i64[] %n = add(%k, "
                                                 "%one) : i64[]"
                                                 " %r = dynamic_slice(%t, %k) {dims = [0], sizes = "
                                                 "[1]} : f64[1, 2] %v = reshape(%r) : f64[2]"
                                                 " %p = multiply(%v, %x) : f64[2] %s = add(%p, %c) "
                                                 ": f64[2] %m = multiply(%s, %x) : f64[2]"
                                                 " return %n as \"k\", %s as \"c\", %m as \"m\", "
                                                 "%k as \"at\" }} :"
                                                 " i64[], f64[2], f64[rounds, 2], i64[rounds]"
                                                 " return %1 as \"c\" }"},
    /* What is carried never enters a product: nothing is read slice by slice on the way back. */
    {"sum", true,
     "(rounds in [1, 4]) {" IN("c", "f64[2]") IN("w", "f64[2]")
         IN("x", "f64[rounds, 3]") " %0 = scan(%c, %x, %w) {carried = 1, sliced = 1, step = graph "
                                   "{" IN("c", "f64[2]") IN("x", "f64[3]")
                                       IN("w", "f64[2]") " %0 = add(%c, %w) : f64[2] return %0 as "
                                                         "\"c\" }} : f64[2] return %0 as \"c\" }"},
    /* No carried value at all, and a result that is the operand itself. */
    {"map", true,
     "(rounds in [1, 4]) {" IN("x", "f64[rounds, 3]")
         IN("w", "f64[3]") " %0, %1 = scan(%x, %w) {carried = 0, sliced = 1, step = graph {" IN(
             "x", "f64[3]")
             IN("w", "f64[3]") " %0 = multiply(%x, %w) : f64[3] return %0 as \"p\", %x as \"x\" }} "
                               ": f64[rounds, 3], f64[rounds, 3]"
                               " %2 = multiply(%0, %1) : f64[rounds, 3] return %2 as \"y\" }"},
    /* A scan over the columns in each round of one over the rows. */
    {"nested", true,
     "(rounds in [1, 3], more in [1, 2]) {" IN("x", "f64[rounds, more, 2]") IN("c", "f64[2]")
         IN("w", "f64[2]") " %l, %s = scan(%c, %x, %w) {carried = 1, sliced = 1, step = graph {" IN(
             "c", "f64[2]") IN("x", "f64[more, 2]")
             IN("w", "f64[2]") " %l, %s = scan(%c, %x, %w) {carried = 1, sliced = 1, step = graph "
                               "{" IN("c", "f64[2]") IN("x", "f64[2]")
                                   IN("w", "f64[2]") " %0 = multiply(%c, %w) : f64[2] %1 = add(%0, "
                                                     "%x) : f64[2] %2 = multiply(%1, %x) : f64[2]"
                                                     " return %1 as \"c\", %2 as \"s\" }} : "
                                                     "f64[2], f64[more, 2]"
                                                     " %0 = reduce(%s) {dims = [0], reducer = add} "
                                                     ": f64[2] %1 = multiply(%l, %w) : f64[2]"
                                                     " return %1 as \"c\", %0 as \"s\" }} : "
                                                     "f64[2], f64[rounds, 2]"
                                                     " return %s as \"s\", %l as \"l\" }"},
    /* One of two functions, of which each leaves an operand alone. */
    {"cond", true,
     "(batch in [1, 3]) {" IN("p", "bool[]") IN("x", "f64[batch, 2]") IN("y", "f64[batch, 2]") IN(
         "z", "f64[2]") " %0, %1 = cond(%p, %x, %y, %z) {then = graph {" IN("x", "f64[batch, 2]")
         IN("y", "f64[batch, 2]") IN(
             "z", "f64[2]") " %0 = multiply(%x, %x) : f64[batch, 2] %1 = multiply(%0, %y) : "
                            "f64[batch, 2]"
                            " return %1 as \"a\", %y as \"b\" }, otherwise = graph {" IN(
                                "x", "f64[batch, 2]") IN("y", "f64[batch, 2]")
                                IN("z",
                                   "f64[2]") " %0 = broadcast_in_dim(%z) {dims = [1]} : f64[batch, "
                                             "2] %1 = multiply(%0, %x) : f64[batch, 2]"
                                             " return %0 as \"a\", %1 as \"b\" }} : f64[batch, 2], "
                                             "f64[batch, 2]"
                                             " %2 = multiply(%0, %1) : f64[batch, 2] return %2 as "
                                             "\"y\" }"},
    /* In each round one of two functions, by a condition that is read slice by slice. */
    {"cond in scan", true,
     "(rounds in [1, 5]) {" IN("p", "bool[rounds]") IN("x", "f64[rounds, 2]")
         IN("c", "f64[2]") " %l, %s = scan(%c, %x, %p) {carried = 1, sliced = 2, step = graph {" IN(
             "c", "f64[2]") IN("x", "f64[2]")
             IN("p", "bool[]") " %0, %1 = cond(%p, %c, %x) {then = graph {" IN("c", "f64[2]")
                 IN("x", "f64[2]") " %0 = multiply(%c, %x) : f64[2] return %0 as \"c\", %x as "
                                   "\"s\" }, otherwise = graph {" IN("c", "f64[2]") IN(
                                       "x", "f64[2]") " %0 = add(%c, %x) : f64[2] %1 = "
                                                      "multiply(%x, %x) : f64[2] return %0 as "
                                                      "\"c\", %1 as \"s\" }} : f64[2], f64[2]"
                                                      " return %0 as \"c\", %1 as \"s\" }} : "
                                                      "f64[2], f64[rounds, 2]"
                                                      " %0 = reduce(%s) {dims = [0], reducer = "
                                                      "add} : f64[2] %1 = multiply(%0, %l) : f64[2]"
                                                      " return %1 as \"y\" }"},
    {"scan in cond", true,
     "{" IN("p", "bool[]") IN("x", "f64[3, 2]") IN(
         "c", "f64[2]") " %0 = cond(%p, %c, %x) {then = graph {" IN("c", "f64[2]")
         IN("x", "f64[3, 2]") " %0 = scan(%c, %x) {carried = 1, sliced = 1, step = graph {" IN(
             "c", "f64[2]")
             IN("x",
                "f64[2]") " %0 = multiply(%c, %x) : f64[2] return %0 as \"c\" }} : f64[2] return "
                          "%0 as \"c\" },"
                          " otherwise = graph {" IN("c", "f64[2]") IN(
                              "x",
                              "f64[3, 2]") " %0 = reduce(%x) {dims = [0], reducer = add} : f64[2] "
                                           "return %0 as \"c\" }} : f64[2] return %0 as \"y\" }"},
    /* Composites in the step, and operands that are the same value. */
    {"smooth", false,
     "(rounds in [1, 4], batch in [1, 2]) {" IN("c", "f64[batch, 3]") IN(
         "x",
         "f64[rounds, batch, 3]") " %l, %s = scan(%c, %x, %x, %c) {carried = 1, sliced = 2, step = "
                                  "graph {" IN("c", "f64[batch, 3]") IN("x", "f64[batch, 3]")
                                      IN("z", "f64[batch, 3]") IN(
                                          "w",
                                          "f64[batch, 3]") " %0 = add(%c, %x) : f64[batch, 3] %1 = "
                                                           "softmax(%0) {axis = 1} : f64[batch, 3]"
                                                           " %2 = tanh(%z) : f64[batch, 3] %3 = "
                                                           "multiply(%1, %2) : f64[batch, 3] %4 = "
                                                           "silu(%w) : f64[batch, 3]"
                                                           " %5 = add(%3, %4) : f64[batch, 3] "
                                                           "return %5 as \"c\", %1 as \"s\" }} : "
                                                           "f64[batch, 3], f64[rounds, batch, 3]"
                                                           " %0 = broadcast_in_dim(%l) {dims = [1, "
                                                           "2]} : f64[rounds, batch, 3] %1 = "
                                                           "multiply(%0, %s) : f64[rounds, batch, "
                                                           "3]"
                                                           " return %1 as \"y\" }"},
};

static sx_graph *program_of(const recurrence *r)
{
    size_t room = strlen(r->text) + 64;
    char *text = malloc(room);
    ck_assert_ptr_nonnull(text);
    (void)snprintf(text, room, "sx 1 graph \"g\" %s", r->text);
    sx_graph *graph = parse(text);
    free(text);
    return graph;
}

/* Both are bound to the same values of the symbols. */
static sx_slope judge(const sx_graph *program, const sx_graph *gradient, bool exact, sx_rng *rng,
                      sx_slope_case *at)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    sx_graph *bound[2];
    (void)sx_gen_binding(rng, program, binding);
    ck_sx_ok(&cx, sx_graph_bind(&cx, program, binding, program->symbol_count, &bound[0]));
    ck_sx_ok(&cx, sx_graph_bind(&cx, gradient, binding, program->symbol_count, &bound[1]));
    at->program = bound[0];
    at->gradient = bound[1];
    return exact ? sx_slope_exact(rng, at) : sx_slope_real(rng, at);
}

START_TEST(recurrent)
{
    sx_rng rng = {sx_test_seed()};
    const recurrence *r = &recurrences[_i];
    sx_graph *program = program_of(r);
    uint32_t same = 0;
    uint32_t tried = 0;
    for (uint32_t output = 0; output < program->output_count; output++) {
        const sx_graph *gradient = sx_slope_gradient(&cx, program, output);
        for (uint32_t trial = 0; trial < 12; trial++, tried++) {
            sx_slope_case at = {.output = output};
            sx_slope slope = judge(program, gradient, r->exact && trial % 2 == 0, &rng, &at);
            ck_assert_msg(slope != SX_SLOPE_DIFFERENT, "%s: %s", r->name, at.text);
            same += slope == SX_SLOPE_SAME ? 1 : 0;
        }
    }
    ck_assert_msg(same * 4 >= tried * 3, "%s: %u of %u decided", r->name, same, tried);
}
END_TEST

/* The gradient of a gradient, with respect to everything: a scan over a scan back. */
START_TEST(second)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < SX_COUNT(recurrences); k++) {
        const recurrence *r = &recurrences[k];
        const sx_graph *once = sx_slope_gradient(&cx, program_of(r), 0);
        uint32_t output = once->output_count - 1;
        uint32_t same = 0;
        const sx_graph *twice = sx_slope_gradient(&cx, once, output);
        for (uint32_t trial = 0; trial < 4; trial++) {
            sx_slope_case at = {.output = output};
            sx_slope slope = judge(once, twice, r->exact, &rng, &at);
            ck_assert_msg(slope != SX_SLOPE_DIFFERENT, "%s: %s", r->name, at.text);
            same += slope == SX_SLOPE_SAME ? 1 : 0;
        }
        ck_assert_msg(same > 0, "%s: none decided", r->name);
    }
}
END_TEST

/* ---- while ---- */

#define COUNTED                                                                                   \
    " %k, %r = while(%zero, %v, %n) {carried = 2, rounds = 9, condition = graph {" IN(            \
        "k", "i64[]") IN("r", "f64[2]")                                                           \
        IN("n", "i64[]") " %0 = compare(%k, %n) {direction = lt} : bool[] return %0 as \"more\" " \
                         "}, step = graph {" IN("k", "i64[]") IN("r", "f64[2]") IN(               \
                             "n", "i64[]") " %one = constant {data = 1} : i64[] %0 = add(%k, "    \
                                           "%one) : i64[] %1 = multiply(%r, %r) : f64[2]"         \
                                           " return %0 as \"k\", %1 as \"r\" }} : i64[], f64[2] "

static void check_while(const char *text, const char *wrt, const char *refused)
{
    sx_gradient made;
    sx_span name = sx_span_of(wrt);
    sx_grad_request request = {.output = sx_span_of("y"), .wrt = &name, .wrt_count = 1};
    sx_graph *graph = parse(text);
    if (refused != NULL) {
        ck_sx_fails(&cx, sx_grad_make(&cx, graph, &request, &made), SX_UNIMPLEMENTED, refused);
    } else {
        ck_sx_ok(&cx, sx_grad_make(&cx, graph, &request, &made));
    }
}

#define WHILE                                                           \
    "sx 1 graph \"g\" {" IN("x", "f64[2]") IN("v", "f64[2]")            \
        IN("n", "i64[]") " %zero = constant {data = 0} : i64[]" COUNTED \
                         " %y = multiply(%r, %x) : f64[2] return %y as \"y\" }"
#define SUMMED                                                                           \
    "sx 1 graph \"g\" {" IN("x", "f64[2]") IN("v", "f64[2]")                             \
        IN("n", "i64[]") " %zero = constant {data = 0} : i64[]" COUNTED                  \
                         " %z = multiply(%r, %x) : f64[2] %y = reduce(%z) {dims = [0], " \
                         "reducer = add} : f64[] return %y as \"y\" }"
#define INSIDE                                                                                 \
    "sx 1 graph \"g\" {" IN("x", "f64[3, 2]") IN("v", "f64[2]")                                \
        IN("n", "i64[]") " %y = scan(%v, %x, %n) {carried = 1, sliced = 1, step = graph {" IN( \
            "v", "f64[2]") IN("x", "f64[2]")                                                   \
            IN("n", "i64[]") " %zero = constant {data = 0} : i64[]" COUNTED                    \
                             " %y = multiply(%r, %x) : f64[2] return %y as \"y\" }} : f64[2] " \
                             "return %y as \"y\" }"

/* (v^2)^2.. n times is v to the power of 2^n: of powers of two all of it is exact. Beyond the rounds nothing is a
 * number. */
START_TEST(powers)
{
    sx_gradient made;
    sx_span name = SX_SPAN_LITERAL("v");
    const sx_grad_request request = {.output = SX_SPAN_LITERAL("y"), .wrt = &name, .wrt_count = 1};
    double x[2] = {1, 3};
    double v[2] = {2, 0.5};
    ck_sx_ok(&cx, sx_grad_make(&cx, parse(SUMMED), &request, &made));
    for (int64_t n = 0; n <= 10; n++) {
        sx_tensor result[2];
        const sx_tensor argument[3] = {{{.dtype = SX_F64, .rank = 1, .dim = {sx_dim_of(2)}}, x},
                                       {{.dtype = SX_F64, .rank = 1, .dim = {sx_dim_of(2)}}, v},
                                       {{.dtype = SX_I64}, &n}};
        ck_assert_uint_eq(made.graph->output_count, 2);
        ck_sx_ok(&cx, sx_graph_eval(&cx, made.graph, SX_EVAL_F64, argument, 3, result, 2));
        const double *value = result[0].data, *slope = result[1].data;
        double sum = 0;
        for (uint32_t i = 0; i < 2; i++) {
            double power = ldexp(1, (i == 0 ? 1 : -1) * (1 << n));
            double want = x[i] * ldexp(power / v[i], (int)n);
            ck_assert_msg(n < 10 ? slope[i] == want : isnan(slope[i]), "n = %lld: %g, not %g",
                          (long long)n, slope[i], want);
            sum += x[i] * power;
        }
        ck_assert_msg(n < 10 ? *value == sum : isnan(*value), "n = %lld: y = %g", (long long)n,
                      *value);
    }
}
END_TEST

/* A while that may have more rounds than are kept for its gradient is refused, where a slope depends on it. */
START_TEST(whiles)
{
    char text[4096];
    const char *rounds = strstr(WHILE, "rounds = 9");
    (void)snprintf(text, sizeof(text), "%.*srounds = 4097%s", (int)(rounds - WHILE), WHILE,
                   rounds + strlen("rounds = 9"));
    check_while(text, "x", NULL);
    check_while(text, "v",
                "node '%r' (while): gradient of while: 4097 rounds of 2 carried values, "
                "at most 4096 of 31 are kept for it; say less in `rounds`");
    check_while(WHILE, "x", NULL);
    check_while(WHILE, "v", NULL);
    check_while(INSIDE, "v", NULL);
    check_while(INSIDE, "x", NULL);
    /* a value that a round makes by a while and no other round sees */
    check_while(
        "sx 1 graph \"g\" {" IN("x", "f64[3, 2]") IN("v", "f64[3, 2]")
            IN("n", "i64[]") " %y = scan(%x, %v, %n) {carried = 0, sliced = 2, step = graph {" IN(
                "x", "f64[2]") IN("v", "f64[2]")
                IN("n", "i64[]") " %zero = constant {data = 0} : i64[]" COUNTED
                                 " %y = multiply(%r, %x) : f64[2] return %y as \"y\" }} : f64[3, 2]"
                                 " return %y as \"y\" }",
        "x", NULL);
}
END_TEST

/* What the steps of scans read back is what is stacked, and no more: a sum over rounds reads nothing. */
START_TEST(stacked)
{
    static const struct {
        const char *name;
        uint32_t scans, results; /* results of all steps */
    } row[] = {{"sum", 3, 5}, {"map", 4, 8}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        const recurrence *r = recurrences;
        while (strcmp(r->name, row[i].name) != 0) {
            r++;
        }
        const sx_graph *gradient = sx_slope_gradient(&cx, program_of(r), 0);
        uint32_t scans = 0;
        uint32_t results = 0;
        for (uint32_t n = 0; n < gradient->node_count; n++) {
            if (gradient->node[n].op == SX_OP_SCAN) {
                scans++;
                results += sx_graph_attr(gradient, &gradient->node[n])->step->graph->output_count;
            }
        }
        ck_assert_msg(scans == row[i].scans && results == row[i].results,
                      "%s: %u scans, %u results", r->name, scans, results);
    }
}
END_TEST

/* ---- planted faults ---- */

typedef enum { TURN_LOST, CHAIN_LOST, SUM_LOST, BRANCHES_SWAPPED, FAULT_COUNT } fault;

/* A step whose result `which` is its parameter of that number: what a round adds is lost. */
static const sx_program *without_part(const sx_program *step, uint32_t which)
{
    sx_graph graph = *step->graph;
    const sx_program *made;
    graph.output = SX_NEW_ARRAY(&cx, sx_output, graph.output_count);
    ck_assert_ptr_nonnull(graph.output);
    memcpy(graph.output, step->graph->output, graph.output_count * sizeof(graph.output[0]));
    graph.output[which].node.i = which;
    ck_sx_ok(&cx, sx_program_make(&cx, &graph, &made));
    return made;
}

/* The gradient with a fault in its last scans or conds, which are those of the way back. */
static sx_graph *with_fault(const sx_graph *graph, fault kind)
{
    sx_graph *made;
    bool planted = false;
    sx_node_id *image = SX_NEW_ARRAY(&cx, sx_node_id, graph->node_count);
    ck_assert_ptr_nonnull(image);
    ck_sx_ok(&cx, sx_graph_make(&cx, graph->name, NULL, &made));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        sx_node_id input[SX_INPUTS_MAX];
        sx_attr attr = *sx_graph_attr(graph, node);
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = image[sx_graph_input(graph, node, k).i];
        }
        if (kind == TURN_LOST && node->op == SX_OP_REVERSE && !planted) {
            image[n] = input[0];
            planted = true;
            continue;
        }
        if (kind == BRANCHES_SWAPPED && node->op == SX_OP_COND && attr.then->parameter_count > 2) {
            const sx_program *then = attr.then;
            attr.then = attr.otherwise;
            attr.otherwise = then;
            planted = true;
        }
        uint32_t which = kind == SUM_LOST ? 1 : 0;
        if ((kind == CHAIN_LOST || kind == SUM_LOST) && node->op == SX_OP_SCAN &&
            attr.carried > 1) {
            attr.step = without_part(attr.step, which);
            planted = true;
        }
        ck_sx_ok(&cx,
                 sx_graph_add(&cx, made, node->op, &attr, input, node->input_count, &image[n]));
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        sx_node_id node = image[graph->output[k].node.i];
        ck_sx_ok(&cx, sx_graph_add_output(&cx, made, graph->output[k].name, node));
    }
    ck_assert(planted);
    return made;
}

START_TEST(planted)
{
    static const char *const cond = "sx 1 graph \"g\" {" IN("p", "bool[]") IN("x", "f64[2]")
        IN("y", "f64[2]") " %0 = cond(%p, %x, %y) {then = graph {" IN("x", "f64[2]")
            IN("y", "f64[2]") " %0 = multiply(%x, %y) : f64[2] return %0 as \"r\" }, otherwise = "
                              "graph {" IN("x", "f64[2]")
                                  IN("y", "f64[2]") " %0 = multiply(%x, %x) : f64[2] return %0 as "
                                                    "\"r\" }} : f64[2] return %0 as \"y\" }";
    static const char *const scan = "sx 1 graph \"g\" {" IN("c", "f64[2]") IN("x", "f64[3, 2]")
        IN("w", "f64[2]") " %0 = scan(%c, %x, %w) {carried = 1, sliced = 1, step = graph {" IN(
            "c", "f64[2]") IN("x", "f64[2]")
            IN("w", "f64[2]") " %0 = multiply(%c, %w) : f64[2] %1 = add(%0, %x) : f64[2] return %1 "
                              "as \"c\" }} : f64[2]"
                              " return %0 as \"y\" }";
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < FAULT_COUNT; k++) {
        sx_slope_case at = {.program = parse(k == BRANCHES_SWAPPED ? cond : scan)};
        const sx_graph *right = sx_slope_gradient(&cx, at.program, 0);
        const sx_graph *wrong = with_fault(right, (fault)k);
        bool seen = false;
        for (uint32_t trial = 0; trial < 8;
             trial++) { /* where a value is zero a fault may not show */
            at.gradient = right;
            ck_assert_msg(sx_slope_exact(&rng, &at) == SX_SLOPE_SAME, "fault %u, not planted: %s",
                          k, at.text);
            at.gradient = wrong;
            seen = seen || sx_slope_exact(&rng, &at) == SX_SLOPE_DIFFERENT;
        }
        ck_assert_msg(seen, "fault %u: %s", k, at.text);
    }
}
END_TEST

/* ---- limits, and memory that ends ---- */

/* A scan with 40 carried values: with those at the start of each round it has more than 64 results. */
START_TEST(limits)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_buf_print(&text, "%s", "sx 1 graph \"g\" {" IN("x", "f64[3]"));
    for (uint32_t inside = 0; inside < 2; inside++) {
        if (inside == 1) {
            sx_buf_print(&text, " %%y = scan(");
            for (uint32_t k = 0; k < 40; k++) {
                sx_buf_print(&text, "%%c%u, ", k);
            }
            sx_buf_print(&text, "%%x) {carried = 40, sliced = 1, step = graph {");
        }
        for (uint32_t k = 0; k < 40; k++) {
            sx_buf_print(&text, " %%c%u = parameter {name = \"c%u\", weight = 0} : f64[]", k, k);
        }
    }
    sx_buf_print(&text, "%s", IN("x", "f64[]"));
    for (uint32_t k = 0; k < 40; k++) {
        sx_buf_print(&text, " %%m%u = multiply(%%c%u, %%c%u) : f64[]", k, k, (k + 1) % 40);
    }
    for (uint32_t k = 0; k < 40; k++) {
        sx_buf_print(&text, "%s %%m%u as \"m%u\"", k == 0 ? " return" : ",", k, k);
    }
    sx_buf_print(&text, " }} : f64[] return %%y as \"y\" }");
    sx_gradient made;
    sx_span name = SX_SPAN_LITERAL("c3");
    sx_grad_request request = {.wrt = &name, .wrt_count = 1};
    sx_graph *graph;
    ck_sx_ok(&cx, sx_graph_parse_named(&cx, sx_buf_span(&text), &graph));
    ck_sx_fails(&cx, sx_grad_make(&cx, graph, &request, &made), SX_LIMIT, "node '%y' (scan): ");
    sx_buf_fini(&text);
}
END_TEST

static sx_code work(sx_ctx *own, void *self)
{
    sx_gradient made;
    sx_graph *graph;
    sx_span x = SX_SPAN_LITERAL("x");
    sx_grad_request request = {.wrt = &x, .wrt_count = 1};
    SX_TRY(sx_graph_parse(own, sx_span_of(self), &graph));
    return sx_grad_make(own, graph, &request, &made);
}

START_TEST(memory)
{
    char text[2048] = "sx 1 graph \"g\" ";
    for (uint32_t k = 0; k < SX_COUNT(recurrences); k++) {
        if (strcmp(recurrences[k].name, "cond in scan") == 0) {
            (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s",
                           recurrences[k].text);
        }
    }
    sx_test_oom(&(sx_test_sweep){.name = "grad of regions", .work = work, .self = text});
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gradients of regions");
    TCase *tests = tcase_create("regions");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, recurrent, 0, (int)SX_COUNT(recurrences));
    tcase_add_test(tests, second);
    tcase_add_test(tests, whiles);
    tcase_add_test(tests, powers);
    tcase_add_test(tests, stacked);
    tcase_add_test(tests, planted);
    tcase_add_test(tests, limits);
    tcase_add_test(tests, memory);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
