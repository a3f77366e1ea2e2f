/* Bodies of scan, while and cond: what is refused and how it is told, what makes two of them equal, and what
 * becomes of them when a graph is bound, adopted or stored. */
#include <stdio.h>
#include <string.h>

#include "core/ir/program.h"
#include "tests/lib/region.h"
#include "tests/lib/test.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)64 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

#define HEAD                                                \
    "sx 1 graph \"g\" (n in [1, 9], m in [1, 9]) {"         \
    "%s = parameter {name = \"s\", weight = 0} : f32[4]"    \
    "%x = parameter {name = \"x\", weight = 0} : f32[7, 4]" \
    "%y = parameter {name = \"y\", weight = 0} : f32[6, 4]" \
    "%b = parameter {name = \"b\", weight = 0} : bool[]"
#define P(name, type) "%" name " = parameter {name = \"" name "\", weight = 0} : " type " "
#define SUM P("a", "f32[4]") P("c", "f32[4]") "%d = add(%a, %c) : f32[4] "
#define STEP "graph {" SUM "return %d as \"d\", %d as \"e\"}"
#define SCAN "carried = 1, sliced = 1"
#define KEEP "graph {" P("a", "f32[4]") "return %a as \"a\"}"
#define TRUE "graph {" P("a", "f32[4]") "%t = constant {data = true} : bool[] return %t as \"t\"}"

static const struct {
    const char *statement;
    sx_code code;
    const char *error;
} refused[] = {
    {"%r = scan(%s, %x) {" SCAN ", step = graph {" P("a", "f32[5]")
         P("c", "f32[4]") "return %a as \"a\"}} : f32[4]",
     SX_INPUT, "result 0 of step is f32[5], carried operand 0 is f32[4]"},
    {"%r = scan(%s, %x) {" SCAN ", step = graph {" P("a", "f32[4]")
         P("c", "f32[3]") "return %a as \"a\"}} : f32[4]",
     SX_INPUT, "parameter 1 of step is f32[3], a slice of operand 1 is f32[4]"},
    {"%r = scan(%s, %x, %b) {" SCAN ", step = graph {" P("a", "f32[4]") P("c", "f32[4]")
         P("d", "i32[]") "return %a as \"a\"}} : f32[4]",
     SX_INPUT, "parameter 2 of step is i32[], operand 2 is bool[]"},
    {"%r = scan(%s, %x) {" SCAN ", step = " KEEP "} : f32[4]", SX_INPUT,
     "step has 1 parameters for 2 operands"},
    {"%r = scan(%s, %x) {" SCAN ", result = 2, step = " STEP "} : f32[4]", SX_INPUT,
     "scan: result 2 of 2"},
    {"%r = scan(%s, %x) {" SCAN ", result = -1, step = " STEP "} : f32[4]", SX_INPUT,
     "scan: result -1 of 2"},
    {"%r = scan(%s, %x) {carried = 1, sliced = 0, step = " STEP "} : f32[4]", SX_INPUT,
     "0 of 2 operands are sliced"},
    {"%r = scan(%s, %x) {carried = 2, sliced = 1, step = " STEP "} : f32[4]", SX_INPUT,
     "2 of 2 operands are carried"},
    {"%r = scan(%s, %x) {carried = -1, sliced = 1, step = " STEP "} : f32[4]", SX_INPUT,
     "-1 of 2 operands are carried"},
    {"%r = scan(%x, %y) {carried = 0, sliced = 2, step = " STEP "} : f32[4]", SX_INPUT,
     "operand 1 is f32[6, 4], to be sliced along axis 0 as operand 0, f32[7, 4]"},
    {"%r = scan(%b) {carried = 0, sliced = 1, step = " KEEP "} : f32[4]", SX_INPUT,
     "operand 0 is bool[], to be sliced"},
    {"%r = scan(%s, %x) {carried = 1, step = " STEP "} : f32[4]", SX_INPUT,
     "attribute sliced is missing"},
    {"%r, %q = scan(%s, %x) {" SCAN ", result = 0, step = " STEP "} : f32[4], f32[7, 4]", SX_INPUT,
     "2 values and the attribute result"},
    {"%r, %q, %z = scan(%s, %x) {" SCAN ", step = " STEP "} : f32[4], f32[7, 4], f32[4]", SX_INPUT,
     "scan: result 2 of 2"},
    {"%r, %q = scan(%s, %x) {" SCAN ", step = " STEP "} : f32[4], f32[4]", SX_INPUT,
     "f32[4] is written, the operation gives f32[7, 4]"},
    {"%r, %r = scan(%s, %x) {" SCAN ", step = " STEP "} : f32[4], f32[7, 4]", SX_INPUT,
     "value %r is defined twice"},
    {"%r, %q = add(%s, %s) : f32[4], f32[4]", SX_INPUT, "add has one result, 2 values"},
    /* a body sees nothing but its parameters */
    {"%r = scan(%s, %x) {" SCAN ", step = graph {" P("a", "f32[4]")
         P("c", "f32[4]") "%d = add(%a, %s) : f32[4] return %d as \"d\"}} : f32[4]",
     SX_INPUT, "value %s is not defined above"},
    {"%r = scan(%s, %x) {" SCAN ", step = graph {" P("a", "f32[4]")
         P("a", "f32[4]") "return %a as \"a\"}} : f32[4]",
     SX_INPUT, "value %a is defined twice"},
    {"%r = scan(%s, %x) {" SCAN ", step = graph {"
     "%a = parameter {name = \"w\", weight = 1} : f32[4]" P(
         "c", "f32[4]") "return %a as \"a\"}} : f32[4]",
     SX_INPUT, "parameter \"w\" of a program inside is a weight"},
    {"%r = scan(%s, %x) {" SCAN ", step = graph {" P("a", "f32[4]")
         P("c", "f32[q]") "return %a as \"a\"}} : f32[4]",
     SX_INPUT, "symbol \"q\" is not declared"},
    {"%r = scan(%s, %x) {" SCAN ", step = graph {" SUM "}} : f32[4]", SX_INPUT, "expected"},
    {"%r = scan(%s, %x) {" SCAN ", step = {" SUM "return %d as \"d\"}} : f32[4]", SX_INPUT,
     "expected graph"},
    {"%r = while(%s) {carried = 1, rounds = 0, condition = " TRUE ", step = " KEEP "} : f32[4]",
     SX_INPUT, "0 rounds, 1 to"},
    {"%r = while(%s) {carried = 1, condition = " TRUE ", step = " KEEP "} : f32[4]", SX_INPUT,
     "attribute rounds is missing"},
    {"%r = while(%s) {carried = 1, rounds = 3, condition = " KEEP ", step = " KEEP "} : f32[4]",
     SX_INPUT, "condition gives f32[4], not bool[]"},
    {"%r = while(%s) {carried = 0, rounds = 3, condition = " TRUE ", step = " KEEP "} : f32[4]",
     SX_INPUT, "step has 1 results, 0 operands are carried"},
    {"%r = while(%s) {carried = 1, rounds = 3, condition = " TRUE
     ", step = graph {" P("a", "f32[4]") "%d = convert(%a) : f64[4] return %d as \"d\"}} : f32[4]",
     SX_INPUT, "result 0 of step is f64[4], carried operand 0 is f32[4]"},
    {"%r = cond(%s, %s) {then = " KEEP ", otherwise = " KEEP "} : f32[4]", SX_INPUT,
     "operand 0 is f32[4], not bool[]"},
    {"%r = cond(%b, %s) {then = " KEEP ", otherwise = " TRUE "} : f32[4]", SX_INPUT,
     "result 0 of otherwise is bool[], that of then, result 0 is f32[4]"},
    {"%r = cond(%b, %s) {then = " KEEP "} : f32[4]", SX_INPUT, "attribute otherwise is missing"},
    {"%r = cond(%b, %b) {then = " KEEP ", otherwise = " KEEP "} : f32[4]", SX_INPUT,
     "parameter 0 of then is f32[4], operand 1 is bool[]"},
};

START_TEST(is_refused)
{
    sx_buf text;
    sx_graph *graph;
    sx_buf_init(&text, 1 << 20);
    sx_buf_put_text(&text, HEAD);
    sx_buf_put_text(&text, refused[_i].statement);
    sx_buf_put_text(&text, " return %s as \"s\"}");
    ck_sx_fails(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph), refused[_i].code,
                refused[_i].error);
    sx_buf_fini(&text);
}
END_TEST

/* `depth` programs inside each other. */
static void nest(sx_buf *text, uint32_t depth)
{
    if (depth == 0) {
        sx_buf_put_text(text, "return %a as \"a\"");
        return;
    }
    sx_buf_put_text(text,
                    "%b = while(%a) {carried = 1, rounds = 1, condition = graph {" P(
                        "a", "bool[]") "return %a as \"a\"}, step = graph {" P("a", "bool[]"));
    nest(text, depth - 1);
    sx_buf_put_text(text, "}} : bool[] return %b as \"b\"");
}

START_TEST(depth_is_limited)
{
    for (uint32_t depth = SX_PROGRAM_DEPTH_MAX; depth <= 2000; depth += 1992) {
        sx_buf text;
        sx_graph *graph;
        sx_buf_init(&text, 1 << 20);
        sx_buf_put_text(&text, "sx 1 graph \"g\" {" P("a", "bool[]"));
        nest(&text, depth);
        sx_buf_put_text(&text, "}");
        if (depth == SX_PROGRAM_DEPTH_MAX) {
            ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph));
        } else {
            ck_sx_fails(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph), SX_LIMIT,
                        "more than 8 programs inside each other");
        }
        sx_buf_fini(&text);
    }
}
END_TEST

/* ---- equal bodies ---- */

#define WITH(step)                                                                        \
    HEAD "%r, %q = scan(%s, %x) {" SCAN ", step = graph {" step "}} : f32[4], f32[7, 4] " \
         "return %r as \"r\", %q as \"q\"}"

static void key_of(const char *text, sx_key *key)
{
    ck_sx_ok(&cx, sx_graph_key(&cx, sx_test_parse(&cx, text), key));
}

START_TEST(equal_by_content)
{
    sx_key key;
    sx_key renamed;
    sx_key other;
    key_of(WITH(SUM "return %d as \"d\", %d as \"e\""), &key);
    key_of(
        WITH(P("state", "f32[4]") "%dead = iota {axis = 0} : f32[3]" P(
            "row", "f32[4]") "%twin = add(%state, %row) : f32[4] %sum = add(%state, %row) : f32[4]"
                             "return %sum as \"next\", %twin as \"out\""),
        &renamed);
    key_of(WITH(SUM "return %d as \"d\", %a as \"e\""), &other);
    ck_assert(memcmp(&key, &renamed, sizeof(key)) == 0);
    ck_assert(memcmp(&key, &other, sizeof(key)) != 0);
}
END_TEST

START_TEST(one_attribute_for_equal_bodies)
{
    sx_graph *graph =
        sx_test_parse(&cx, HEAD "%r = scan(%s, %x) {" SCAN ", step = " STEP "} : f32[4]"
                                "%q = scan(%r, %x) {" SCAN ", step = graph {" P("u", "f32[4]")
                                    P("v", "f32[4]") "%d = add(%u, %v) : f32[4] return %d as "
                                                     "\"first\", %d as \"second\"}} : f32[4]"
                                                     "return %q as \"q\"}");
    ck_assert_uint_eq(graph->node[4].attr.i, graph->node[5].attr.i);
    ck_assert(graph->node[4].op == SX_OP_SCAN && graph->node[5].op == SX_OP_SCAN);
}
END_TEST

/* ---- symbols ---- */

static const char symbolic[] = "sx 1 graph \"g\" (n in [1, 9], m in [2, 9]) {" P("s", "f32[m]")
    P("x", "f32[n, m]") "%r, %q = scan(%s, %x) {" SCAN ", step = graph {" P("a", "f32[m]")
        P("b", "f32[m]") "%c = constant {data = 2} : f32[m] %d = multiply(%a, %c) : f32[m] %e = "
                         "add(%d, %b) : f32[m] "
                         "return %e as \"e\", %d as \"d\"}} : f32[m], f32[n, m] return %r as "
                         "\"r\", %q as \"q\"}";

START_TEST(binding_goes_inside)
{
    const sx_binding binding[] = {{sx_span_of("n"), 3}, {sx_span_of("m"), 5}};
    sx_graph *bound;
    ck_sx_ok(&cx, sx_graph_bind(&cx, sx_test_parse(&cx, symbolic), binding, 2, &bound));
    ck_sx_ok(&cx, sx_graph_check(&cx, bound));
    const sx_node *node = sx_graph_node(bound, bound->output[0].node);
    const sx_graph *step = sx_graph_attr(bound, node)->step->graph;
    ck_assert_uint_eq(step->symbol_count, 0);
    ck_assert_int_eq(step->node[0].type.dim[0].scale, 5);
    ck_assert_int_eq(sx_graph_node(bound, bound->output[1].node)->type.dim[0].scale, 3);
}
END_TEST

/* The canonical form orders symbols by name: m before n, inside too. */
START_TEST(symbols_are_renumbered_inside)
{
    sx_graph *canonical;
    sx_graph *again;
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    ck_sx_ok(&cx, sx_graph_canon(&cx, sx_test_parse(&cx, symbolic), &canonical));
    ck_sx_ok(&cx, sx_graph_check(&cx, canonical));
    ck_assert(sx_span_is(canonical->symbol[0].name, "m"));
    const sx_node *node = sx_graph_node(canonical, canonical->output[0].node);
    const sx_graph *step = sx_graph_attr(canonical, node)->step->graph;
    ck_assert_uint_eq(step->node[0].type.dim[0].symbol, 0);
    ck_sx_ok(&cx, sx_graph_print(&cx, canonical, &text));
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &again));
    sx_buf_fini(&text);
}
END_TEST

START_TEST(a_body_of_other_symbols)
{
    sx_graph *graph = sx_test_parse(&cx, symbolic);
    const sx_node *node = sx_graph_node(graph, graph->output[0].node);
    sx_attr attr = *sx_graph_attr(graph, node);
    const sx_node_id input[] = {{0}, {1}};
    sx_graph *other;
    sx_node_id id;
    uint32_t symbol;
    ck_sx_ok(&cx, sx_graph_make(&cx, sx_span_of("other"), NULL, &other));
    ck_sx_ok(&cx, sx_graph_add_symbol(&cx, other, sx_span_of("u"), 1, 9, &symbol));
    ck_sx_ok(&cx, sx_graph_add_symbol(&cx, other, sx_span_of("v"), 2, 9, &symbol));
    for (uint32_t k = 0; k < 2; k++) {
        ck_sx_ok(&cx, sx_build_parameter(&cx, other, k == 0 ? "s" : "x", false,
                                         &graph->node[k].type, &id));
    }
    ck_sx_fails(&cx, sx_graph_add(&cx, other, SX_OP_SCAN, &attr, input, 2, &id), SX_INPUT,
                "symbol 0 of step is \"n\", which the graph around it does not have");
    ck_sx_ok(&cx, sx_attr_over(&cx, other, &attr)); /* paired by number */
    ck_sx_ok(&cx, sx_graph_add(&cx, other, SX_OP_SCAN, &attr, input, 2, &id));
    ck_sx_ok(&cx, sx_graph_adopt(&cx, graph, other, &other));
    ck_sx_ok(&cx, sx_graph_check(&cx, other));
}
END_TEST

/* ---- bytes ---- */

START_TEST(bytes_that_are_no_program)
{
    static const char *const texts[] = {
        "", "sx 1 graph", "sx 1\ngraph \"\" {\n    %0 = constant {data = 1} : f32[]\n}\n",
        /* right, but not as it is printed */
        "sx 1 graph \"\" {%0 = constant {data = 1} : f32[] return %0 as \"r0\"}",
        "sx 1\ngraph \"\" {\n    %0 = constant {data = 1} : f32[]\n    return %0 as \"y\"\n}\n"};
    sx_graph *graph =
        sx_test_parse(&cx, HEAD "%r = cond(%b, %s) {then = " KEEP ", otherwise = " KEEP
                                "} : f32[4] return %r as \"r\"}");
    sx_attr attr = *sx_graph_attr(graph, sx_graph_node(graph, graph->output[0].node));
    sx_attr read;
    for (uint32_t i = 0; i <= SX_COUNT(texts); i++) {
        sx_program other = *attr.then;
        sx_attr wrong = attr;
        sx_buf bytes;
        sx_buf_init(&bytes, 1 << 20);
        if (i < SX_COUNT(texts)) {
            other.text = sx_span_of(texts[i]);
            wrong.then = &other;
        }
        sx_attr_encode(&wrong, &bytes);
        sx_span rest = sx_buf_span(&bytes);
        if (i < SX_COUNT(texts)) {
            ck_sx_fails(&cx, sx_attr_decode(&cx, &rest, 2, &read), SX_CORRUPT, "attribute");
        } else {
            ck_sx_ok(&cx, sx_attr_decode(&cx, &rest, 2, &read));
            ck_assert(sx_attr_equal(&attr, &read) && rest.len == 0);
        }
        sx_buf_fini(&bytes);
    }
}
END_TEST

START_TEST(siblings)
{
    sx_graph *graph = sx_test_parse(
        &cx, HEAD "%r, %q = scan(%s, %x) {" SCAN ", step = " STEP "} : f32[4], f32[7, 4]"
                  "%z = scan(%s, %x) {" SCAN ", result = 1, step = graph {" SUM
                  "return %d as \"d\", %a as \"e\"}} : f32[7, 4] return %r as \"r\"}");
    const sx_attr *r = sx_graph_attr(graph, &graph->node[4]);
    const sx_attr *q = sx_graph_attr(graph, &graph->node[5]);
    const sx_attr *z = sx_graph_attr(graph, &graph->node[6]);
    ck_assert(sx_attr_is_sibling(r, q) && sx_attr_is_sibling(q, r) && !sx_attr_is_sibling(r, z));
    ck_assert(!sx_attr_is_sibling(sx_graph_attr(graph, &graph->node[0]), r));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/region");
    TCase *tcase = tcase_create("bodies");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, is_refused, 0, SX_COUNT(refused));
    tcase_add_test(tcase, depth_is_limited);
    tcase_add_test(tcase, equal_by_content);
    tcase_add_test(tcase, one_attribute_for_equal_bodies);
    tcase_add_test(tcase, binding_goes_inside);
    tcase_add_test(tcase, symbols_are_renumbered_inside);
    tcase_add_test(tcase, a_body_of_other_symbols);
    tcase_add_test(tcase, bytes_that_are_no_program);
    tcase_add_test(tcase, siblings);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
