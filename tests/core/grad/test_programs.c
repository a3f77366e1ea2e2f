/* Gradients of whole programs: random ones with symbolic extents, as they are and as bodies of
 * scans and conds, exactly and in doubles; golden text; what is refused;
 * and faults that are planted in gradients, each of which must be seen. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/grad/grad.h"
#include "core/ir/effect.h"
#include "core/ir/num.h"
#include "core/ir/origin.h"
#include "tests/lib/gen_graph.h"
#include "tests/lib/slope.h"
#include "tests/lib/sweep.h"
#include "tests/lib/wrap.h"

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
    ck_sx_ok(&cx, sx_graph_parse_named(&cx, sx_span_of(text), &graph));
    return graph;
}

static const char *print(const sx_graph *graph)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    ck_sx_ok(&cx, sx_graph_print(&cx, graph, &text));
    const char *kept = sx_alloc_text(&cx, sx_buf_span(&text));
    sx_buf_fini(&text);
    ck_assert_ptr_nonnull(kept);
    return kept;
}

/* ---- random programs ---- */

static const sx_op polynomial[] = {
    SX_OP_NEGATE,      SX_OP_ADD,           SX_OP_SUBTRACT, SX_OP_RESHAPE,
    SX_OP_TRANSPOSE,   SX_OP_BROADCAST,     SX_OP_SLICE,    SX_OP_CONCATENATE,
    SX_OP_REVERSE,     SX_OP_PAD,           SX_OP_MULTIPLY, SX_OP_DOT_GENERAL,
    SX_OP_CONVOLUTION, SX_OP_DYNAMIC_SLICE, SX_OP_GATHER,   SX_OP_DYNAMIC_UPDATE_SLICE,
    SX_OP_CROP};
static const sx_op smooth[] = {
    SX_OP_EXP,         SX_OP_TANH,          SX_OP_ERF,       SX_OP_LOGISTIC,   SX_OP_SIN,
    SX_OP_COS,         SX_OP_GELU,          SX_OP_GELU_TANH, SX_OP_SILU,       SX_OP_SOFTMAX,
    SX_OP_LOG_SOFTMAX, SX_OP_LAYER_NORM,    SX_OP_RMS_NORM,  SX_OP_BATCH_NORM, SX_OP_ATTENTION,
    SX_OP_DIVIDE,      SX_OP_MAXIMUM,       SX_OP_MINIMUM,   SX_OP_ABS,        SX_OP_REDUCE,
    SX_OP_RELU,        SX_OP_REDUCE_WINDOW, SX_OP_FLOOR};

static bool has_product_window(const sx_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        if (node->op == SX_OP_REDUCE_WINDOW && sx_graph_attr(graph, node)->reducer == SX_PRODUCT) {
            return true;
        }
    }
    return false;
}

/* Constants that swallow what is added to them, or make a function turn within one step, tell nothing in doubles. */
static bool has_extreme_constant(const sx_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        sx_span data = sx_graph_attr(graph, node)->data;
        if (node->op != SX_OP_CONSTANT || node->type.dtype != SX_F64) {
            continue;
        }
        for (size_t i = 0; i < data.len / 8; i++) {
            double value = fabs(sx_num_decode(SX_F64, sx_num_load(SX_F64, data.ptr, i)));
            if (!(value < 1e3) || (value != 0 && value < 1e-3)) {
                return true;
            }
        }
    }
    return false;
}

/* Programs inside others, up to three of them; as it is where no dimension more has room. */
static sx_graph *within(sx_rng *rng, sx_graph *program, bool bounded)
{
    for (uint32_t level = 0; level < 3; level++) {
        bool fits = program->node[0].op == SX_OP_PARAMETER;
        uint64_t kind = sx_rng_below(rng, 4);
        for (uint32_t n = 0; n < program->node_count; n++) {
            fits = fits && program->node[n].type.rank < SX_RANK_MAX;
        }
        if (fits && kind < 2) {
            program = kind == 0 ? sx_wrap_scan(&cx, rng, program, level, bounded)
                                : sx_wrap_cond(&cx, rng, program, level);
        }
    }
    return program;
}

typedef struct {
    uint32_t same, undecided, refused;
} tally;

/* One random program with symbols: the gradient is made before they are bound, and judged after. */
static void one_program(sx_rng *rng, bool exact, tally *count)
{
    sx_gen_options options = sx_gen_default();
    options.node_count = exact ? 16 : 10;
    options.crops = true;
    options.empties = sx_rng_below(rng, 4) == 0;
    options.sums = sx_rng_below(rng, 4) == 0;
    options.rank_max = 3;
    options.extent_max = 4;
    options.elements_max = 200;
    options.dtypes = 1u << SX_F64;
    options.ops = (sx_bits){{0}};
    for (uint32_t k = 0; k < SX_COUNT(polynomial); k++) {
        sx_bits_add(&options.ops, polynomial[k]);
    }
    for (uint32_t k = 0; k < SX_COUNT(smooth) && !exact; k++) {
        sx_bits_add(&options.ops, smooth[k]);
    }
    sx_graph *program = sx_gen_graph(&cx, rng, &options);
    sx_binding binding[SX_SYMBOLS_MAX];
    sx_graph *bound[2];
    if (has_product_window(program) || (!exact && has_extreme_constant(program))) {
        return;
    }
    program = within(rng, program, !exact);
    sx_gradient made;
    sx_span name[64];
    sx_grad_request request = {.output = program->output[0].name, .wrt = name};
    for (uint32_t n = 0; n < program->node_count && request.wrt_count < SX_COUNT(name); n++) {
        if (program->node[n].op == SX_OP_PARAMETER && program->node[n].type.dtype == SX_F64) {
            name[request.wrt_count++] = sx_graph_attr(program, &program->node[n])->name;
        }
    }
    sx_type type = sx_graph_node(program, program->output[0].node)->type;
    if (request.wrt_count == 0 || type.dtype != SX_F64) {
        return;
    }
    if (sx_grad_make(&cx, program, &request, &made) == SX_UNIMPLEMENTED) {
        ck_assert_msg(strstr(cx.error.text, "symbol") != NULL, "%s", cx.error.text);
        sx_ctx_reset_error(&cx);
        count->refused++;
        return;
    }
    ck_assert_msg(cx.error.code == SX_OK, "%s", cx.error.text);
    uint32_t symbols = sx_gen_binding(rng, program, binding);
    ck_sx_ok(&cx, sx_graph_bind(&cx, program, binding, symbols, &bound[0]));
    ck_sx_ok(&cx, sx_graph_bind(&cx, made.graph, binding, symbols, &bound[1]));
    sx_slope_case at = {.program = bound[0], .gradient = bound[1]};
    sx_slope slope = exact ? sx_slope_exact(rng, &at) : sx_slope_real(rng, &at);
    ck_assert_msg(slope != SX_SLOPE_DIFFERENT, "%s\n%s\n%s", at.text, print(bound[0]),
                  print(bound[1]));
    count->same += slope == SX_SLOPE_SAME ? 1 : 0;
    count->undecided += slope == SX_SLOPE_UNDECIDED ? 1 : 0;
}

static void many_programs(bool exact)
{
    sx_rng rng = {sx_test_seed()};
    tally count = {0, 0, 0};
    const char *asked = getenv("SX_PROGRAMS");
    uint32_t trials = asked != NULL ? (uint32_t)strtoul(asked, NULL, 10) : sx_test_trials(500);
    while (count.same + count.undecided + count.refused < trials) {
        sx_ctx_fini(&cx);
        setup();
        one_program(&rng, exact, &count);
    }
    printf("%u programs: %u the same, %u undecided, %u refused\n", trials, count.same,
           count.undecided, count.refused);
    ck_assert_uint_gt(count.same * 2, trials);
    ck_assert_uint_lt(count.refused * 10, trials);
}

START_TEST(random_exact)
{
    many_programs(true);
}
END_TEST

START_TEST(random_real)
{
    many_programs(false);
}
END_TEST

/* ---- along symbolic extents ---- */

#define FLOATS(name, type) " %" name " = parameter {name = \"" name "\", weight = 0} : f64" type
#define START(name, type) " %" name " = parameter {name = \"" name "\", weight = 0} : " type "[]"
#define ALONG(type, head)                                                      \
    "sx 1 graph \"g\" " head " : f64" type " %z = multiply(%y, %y) : f64" type \
    " return %z as \"z\" }"
static const char *const along[] = {
    ALONG("[3*n, 4]",
          "(n in [1, 4]) {" FLOATS("x", "[3*n, 4]") FLOATS("u", "[2*n, 3]") START("i", "i32")
              START("j", "i64") " %y = dynamic_update_slice(%x, %u, %i, %j) {dims = [0, 1]}"),
    ALONG("[2, 6]", "(n in [1, 3]) {" FLOATS("x", "[2, 6]") FLOATS("u", "[2, n]")
                        START("i", "i8") " %y = dynamic_update_slice(%x, %u, %i) {dims = [1]}"),
    ALONG("[b, 6, n, n]",
          "(b in [1, 2], n in [1, 3]) {" FLOATS("x", "[b, 4, 5*n, n]")
              FLOATS("w", "[6, 2, 2, 1]") " %y = convolution(%x, %w) {stride = [5, 1], low = [0, "
                                          "0], high = [0, 0], dilation = [3, 1], groups = 2}"),
    ALONG("[2, 2, n]", "(n in [1, 3]) {" FLOATS("x", "[2, 3, 2*n]") FLOATS(
                           "w", "[2, 3, 2]") " %y = convolution(%x, %w) {stride = [2], low = [0], "
                                             "high = [0], dilation = [1], groups = 1}"),
    ALONG("[2, 2, 2, n]",
          "(n in [1, 3]) {" FLOATS("x", "[2, 3, 6, n]")
              FLOATS("w", "[2, 3, 2, 1]") " %y = convolution(%x, %w) {stride = [3, 1], low = [0, "
                                          "0], high = [0, 0], dilation = [1, 1], groups = 1}"),
    ALONG("[2, n + m + 3]",
          "(n in [1, 4], m in [1, 4]) {" FLOATS("x", "[2, n]") FLOATS("u", "[2, m + 1]")
              FLOATS("v", "[2, 2]") " %y = concatenate(%x, %u, %v) {axis = 1}"),
    ALONG("[n*m]", "(n in [1, 4], m in [1, 4]) {" FLOATS("x", "[n, m]") " %y = reshape(%x)"),
};

/* Squares, so that the cotangent differs from element to element; starts are drawn from both sides of what fits. */
START_TEST(symbolic)
{
    sx_rng rng = {sx_test_seed()};
    sx_graph *program = parse(along[_i]);
    const sx_graph *gradient = sx_slope_gradient(&cx, program, 0);
    for (uint32_t trial = 0; trial < 40; trial++) {
        sx_binding binding[SX_SYMBOLS_MAX];
        sx_graph *bound[2];
        uint32_t symbols = sx_gen_binding(&rng, program, binding);
        ck_sx_ok(&cx, sx_graph_bind(&cx, program, binding, symbols, &bound[0]));
        ck_sx_ok(&cx, sx_graph_bind(&cx, gradient, binding, symbols, &bound[1]));
        sx_slope_case at = {.program = bound[0], .gradient = bound[1]};
        ck_assert_msg(sx_slope_exact(&rng, &at) == SX_SLOPE_SAME, "%s: %s", along[_i], at.text);
    }
}
END_TEST

/* ---- text ---- */

static const char *const layer =
    "sx 1 graph \"layer\" (batch in [1, 64]) {"
    " %x = parameter {name = \"x\", weight = 0} : f32[batch, 8]"
    " %w = parameter {name = \"w\", weight = 1} : f32[8, 4]"
    " %b = parameter {name = \"b\", weight = 1} : f32[4]"
    " %unused = parameter {name = \"unused\", weight = 1} : f32[2]"
    " %count = parameter {name = \"count\", weight = 1} : i64[2]"
    " %0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 4]"
    " %1 = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 4]"
    " %2 = add(%0, %1) : f32[batch, 4]"
    " %3 = tanh(%2) : f32[batch, 4]"
    " %4 = softmax(%3) {axis = 1} : f32[batch, 4]"
    " return %3 as \"y\", %4 as \"p\" }";

START_TEST(golden)
{
    sx_gradient made;
    sx_grad_request request = {.output = SX_SPAN_LITERAL("y"), .weights = true};
    ck_sx_ok(&cx, sx_grad_make(&cx, parse(layer), &request, &made));
    ck_assert_str_eq(
        print(made.graph),
        "sx 1\n"
        "graph \"layer\" (batch in [1, 64]) {\n"
        "    %0 = parameter {name = \"x\", weight = 0} : f32[batch, 8]\n"
        "    %1 = parameter {name = \"w\", weight = 1} : f32[8, 4]\n"
        "    %2 = parameter {name = \"b\", weight = 1} : f32[4]\n"
        "    %3 = parameter {name = \"unused\", weight = 1} : f32[2]\n"
        "    %4 = parameter {name = \"count\", weight = 1} : i64[2]\n"
        "    %5 = parameter {name = \"cotangent(y)\", weight = 0} : f32[batch, 4]\n"
        "    %6 = dot_general(%0, %1) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 4]\n"
        "    %7 = broadcast_in_dim(%2) {dims = [1]} : f32[batch, 4]\n"
        "    %8 = add(%6, %7) : f32[batch, 4]\n"
        "    %9 = tanh(%8) : f32[batch, 4]\n"
        "    %10 = softmax(%9) {axis = 1} : f32[batch, 4]\n"
        "    %11 = constant {data = 1} : f32[batch, 4]\n"
        "    %12 = multiply(%9, %9) : f32[batch, 4]\n"
        "    %13 = subtract(%11, %12) : f32[batch, 4]\n"
        "    %14 = multiply(%5, %13) : f32[batch, 4]\n"
        "    %15 = dot_general(%14, %0) {lhs_contract = [0], rhs_contract = [0]} : f32[4, 8]\n"
        "    %16 = transpose(%15) {perm = [1, 0]} : f32[8, 4]\n"
        "    %17 = reduce(%14) {dims = [0], reducer = add} : f32[4]\n"
        "    %18 = constant {data = 0} : f32[2]\n"
        "    return %9 as \"y\", %10 as \"p\", %16 as \"grad(w)\", %17 as \"grad(b)\", %18 as "
        "\"grad(unused)\"\n"
        "}\n");
    ck_assert(sx_span_is(made.cotangent, "cotangent(y)"));
    ck_assert(made.zero_count == 1 && sx_span_is(made.zero[0], "unused"));
    ck_assert(made.skipped_count == 1 && sx_span_is(made.skipped[0], "count"));
}
END_TEST

/* The gradient of a gradient: its outputs have names of their own. */
START_TEST(second)
{
    sx_graph *cube = parse("sx 1 graph \"cube\" { %x = parameter {name = \"x\", weight = 0} : f64[]"
                           " %0 = multiply(%x, %x) : f64[] %1 = multiply(%0, %x) : f64[]"
                           " return %1 as \"y\" }");
    sx_gradient once, twice;
    sx_span x = SX_SPAN_LITERAL("x");
    sx_grad_request request = {.wrt = &x, .wrt_count = 1};
    ck_sx_ok(&cx, sx_grad_make(&cx, cube, &request, &once));
    request.output = SX_SPAN_LITERAL("grad(x)");
    ck_sx_ok(&cx, sx_grad_make(&cx, once.graph, &request, &twice));
    ck_assert(sx_span_is(twice.graph->output[2].name, "grad(grad(x), x)"));
    double value = 3;
    sx_tensor argument = {{.dtype = SX_F64}, &value};
    sx_tensor result[3];
    ck_sx_ok(&cx, sx_graph_eval(&cx, twice.graph, SX_EVAL_F64, &argument, 1, result, 3));
    ck_assert(((const double *)result[0].data)[0] == 27);
    ck_assert(((const double *)result[1].data)[0] == 27);
    ck_assert(((const double *)result[2].data)[0] == 18);
}
END_TEST

/* State stays state, and its first value and new version stay with it. */
START_TEST(effects)
{
    sx_gradient made;
    sx_span x = SX_SPAN_LITERAL("x");
    sx_grad_request request = {.output = SX_SPAN_LITERAL("y"), .wrt = &x, .wrt_count = 1};
    sx_graph *counter = parse("sx 1 graph \"counter\" {"
                              " %k = parameter {name = \"k\", weight = 0} : f64[3] state = 2"
                              " %x = parameter {name = \"x\", weight = 0} : f64[3]"
                              " %0 = multiply(%k, %x) : f64[3] %1 = add(%k, %x) : f64[3]"
                              " return %0 as \"y\", %1 as \"k\" into \"k\" }");
    ck_sx_ok(&cx, sx_grad_make(&cx, counter, &request, &made));
    const char *text = print(made.graph);
    ck_assert_msg(strstr(text, "{name = \"k\", weight = 0} : f64[3] state = 2") != NULL, "%s",
                  text);
    ck_assert_msg(strstr(text, " as \"k\" into \"k\", ") != NULL, "%s", text);
    ck_assert(sx_graph_version(made.graph, 0) == 1 && made.graph->output_count == 3);
}
END_TEST

/* ---- what is refused ---- */

static void check_refused(const char *text, const char *of, const char *wrt, sx_code code,
                          const char *part)
{
    sx_gradient made;
    sx_span name = sx_span_of(wrt);
    sx_grad_request request = {.output = sx_span_of(of), .wrt = &name, .wrt_count = 1};
    ck_sx_fails(&cx, sx_grad_make(&cx, parse(text), &request, &made), code, part);
}

START_TEST(refused)
{
    check_refused(layer, "", "w", SX_INPUT, "2 outputs: which one");
    check_refused(layer, "z", "w", SX_INPUT, "output \"z\": the program has none");
    check_refused(layer, "y", "v", SX_INPUT, "parameter \"v\": the program has none");
    check_refused(layer, "y", "count", SX_INPUT,
                  "parameter \"count\" is i64: gradients are of floats");
    check_refused("sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : f32[4]"
                  " %y = compare(%x, %x) {direction = eq} : bool[4] return %y as \"y\" }",
                  "y", "x", SX_INPUT, "output \"y\" is bool");
    const char *lookup = "sx 1 graph \"g\" { %t = parameter {name = \"t\", weight = 1} : f32[9, 4]"
                         " %i = parameter {name = \"i\", weight = 0} : i64[3]"
                         " %u = parameter {name = \"u\", weight = 0} : f32[3, 4]"
                         " %rows = scatter(%t, %i, %u) {axis = 0, reducer = maximum} : f32[9, 4] "
                         "%from return %rows as \"y\" }";
    char text[512];
    const char *from = strstr(lookup, "%from");
    (void)snprintf(text, sizeof(text), "%.*s%s", (int)(from - lookup), lookup, from + 5);
    check_refused(text, "y", "t", SX_UNIMPLEMENTED,
                  "node '%rows' (scatter): gradient of scatter by maximum");
    (void)snprintf(text, sizeof(text), "%.*s from \"/emb\" \"ScatterElements\" 18 %s",
                   (int)(from - lookup), lookup, from + 5);
    check_refused(text, "y", "t", SX_UNIMPLEMENTED,
                  "node '/emb' (ScatterElements, opset 18): gradient of scatter by maximum");
    check_refused("sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : f32[4]"
                  " %y = reduce_window(%x) {stride = [1], low = [0], high = [0], window = [2],"
                  " dilation = [1], reducer = multiply} : f32[3] return %y as \"y\" }",
                  "y", "x", SX_UNIMPLEMENTED,
                  "node '%y' (reduce_window): gradient of reduce_window by multiply");
    check_refused("sx 1 graph \"g\" (n in [1, 3]) { %x = parameter {name = \"x\", weight = 0} : "
                  "f32[1, 1, 4, n]"
                  " %w = parameter {name = \"w\", weight = 0} : f32[1, 1, 2, 1]"
                  " %y = convolution(%x, %w) {stride = [1, 1], low = [0, 0], high = [0, 0], "
                  "dilation = [1, 1],"
                  " groups = 1} : f32[1, 1, 3, n] return %y as \"y\" }",
                  "y", "x", SX_UNIMPLEMENTED,
                  "node '%y' (convolution): gradient of a convolution along symbolic");
    check_refused("sx 1 graph \"g\" mesh (dp = 2) { %x = parameter {name = \"x\", weight = 0} : "
                  "f32[4] {dp = S(0)}"
                  " %y = exponential(%x) : f32[4] return %y as \"y\" }",
                  "y", "x", SX_UNIMPLEMENTED, "with placements");
}
END_TEST

/* ---- memory ends ---- */

static sx_code work(sx_ctx *own, void *self)
{
    sx_gradient made;
    sx_graph *graph;
    sx_grad_request request = {.output = SX_SPAN_LITERAL("p"), .weights = true};
    SX_TRY(sx_graph_parse(own, sx_span_of(self), &graph));
    return sx_grad_make(own, graph, &request, &made);
}

START_TEST(memory)
{
    char text[2048];
    (void)snprintf(text, sizeof(text), "%s", layer);
    sx_test_oom(&(sx_test_sweep){.name = "grad", .work = work, .self = text});
}
END_TEST

/* ---- planted faults ---- */

typedef enum { SIGN_LOST, SUM_LOST, SHARE_LOST, ROUTE_SWAPPED, FAULT_COUNT } fault;

/* What a rule with a fault would have made of node n: another node in its place, or none. */
static bool plant(sx_graph *graph, fault kind, sx_op op, sx_node_id *input, sx_node_id *made)
{
    sx_type own = sx_graph_node(graph, input[0])->type;
    switch (kind) {
    case SIGN_LOST: *made = input[0]; return op == SX_OP_NEGATE;
    case SUM_LOST: /* the first element instead of the sum */
        if (op == SX_OP_REDUCE && own.rank == 1) {
            sx_attr slice = {.present = SX_A(start) | SX_A(limit) | SX_A(stride),
                             .start = {1, {0}},
                             .limit = {1, {1}},
                             .stride = {1, {1}}};
            sx_attr shape = {.present = SX_A(type), .type = {.dtype = own.dtype}};
            sx_node_id first;
            ck_sx_ok(&cx, sx_graph_add(&cx, graph, SX_OP_SLICE, &slice, input, 1, &first));
            ck_sx_ok(&cx, sx_graph_add(&cx, graph, SX_OP_RESHAPE, &shape, &first, 1, made));
            return true;
        }
        return false;
    case SHARE_LOST: *made = input[0]; return op == SX_OP_DIVIDE;
    case ROUTE_SWAPPED:
        if (op == SX_OP_SELECT) {
            sx_node_id swapped[3] = {input[0], input[2], input[1]};
            ck_sx_ok(&cx, sx_graph_add(&cx, graph, op, &(sx_attr){0}, swapped, 3, made));
            return true;
        }
        return false;
    case FAULT_COUNT: break;
    }
    SX_UNREACHABLE();
}

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
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = image[sx_graph_input(graph, node, k).i];
        }
        if (!planted && node->input_count > 0 && plant(made, kind, node->op, input, &image[n])) {
            planted = true;
            continue;
        }
        ck_sx_ok(&cx, sx_graph_add(&cx, made, node->op, sx_graph_attr(graph, node), input,
                                   node->input_count, &image[n]));
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
    static const struct {
        fault kind;
        bool exact;
        const char *text;
    } row[] = {
        {SIGN_LOST, true,
         "%a = parameter {name = \"a\", weight = 0} : f64[3] %b = parameter {name = \"b\", weight "
         "= 0} : f64[3]"
         " %y = subtract(%a, %b) : f64[3] return %y as \"y\" }"},
        {SUM_LOST, true,
         "%a = parameter {name = \"a\", weight = 0} : f64[]"
         " %y = broadcast_in_dim(%a) {dims = []} : f64[3] return %y as \"y\" }"},
        {SHARE_LOST, false,
         "%a = parameter {name = \"a\", weight = 0} : f64[3] %b = log(%a) : f64[3]"
         " return %b as \"y\" }"},
        {ROUTE_SWAPPED, false,
         "%a = parameter {name = \"a\", weight = 0} : f64[3] %b = parameter {name = \"b\", weight "
         "= 0} : f64[3]"
         " %y = maximum(%a, %b) : f64[3] return %y as \"y\" }"},
    };
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < SX_COUNT(row); k++) {
        char text[512];
        (void)snprintf(text, sizeof(text), "sx 1 graph \"g\" { %s", row[k].text);
        sx_slope_case at = {.program = parse(text), .positive = true};
        const sx_graph *right = sx_slope_gradient(&cx, at.program, 0);
        const sx_graph *wrong = with_fault(right, row[k].kind);
        bool seen = false;
        for (uint32_t trial = 0; trial < 8;
             trial++) { /* where a value is zero a fault may not show */
            at.gradient = right;
            sx_slope slope = row[k].exact ? sx_slope_exact(&rng, &at) : sx_slope_real(&rng, &at);
            ck_assert_msg(slope != SX_SLOPE_DIFFERENT, "fault %u, not planted: %s", k, at.text);
            at.gradient = wrong;
            slope = row[k].exact ? sx_slope_exact(&rng, &at) : sx_slope_real(&rng, &at);
            seen = seen || slope == SX_SLOPE_DIFFERENT;
        }
        ck_assert_msg(seen, "fault %u: %s", k, at.text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gradients of programs");
    TCase *tests = tcase_create("programs");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, random_exact);
    tcase_add_test(tests, random_real);
    tcase_add_loop_test(tests, symbolic, 0, (int)SX_COUNT(along));
    tcase_add_test(tests, golden);
    tcase_add_test(tests, second);
    tcase_add_test(tests, effects);
    tcase_add_test(tests, refused);
    tcase_add_test(tests, memory);
    tcase_add_test(tests, planted);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
