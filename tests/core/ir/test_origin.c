/* Origins: the text carries them, keys do not know them, and nodes of an optimised program are traced to those
 * of the original. What is not supported is told at once. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/origin.h"
#include "core/ir/refusals.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_graph *parse(const char *text)
{
    sx_graph *graph;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    return graph;
}

#define TWO_LAYERS(from_1, from_2, from_3)                     \
    "sx 1\ngraph \"g\" {\n"                                    \
    "    %0 = parameter {name = \"x\", weight = 0} : f32[4]\n" \
    "    %1 = tanh(%0) : f32[4]" from_1 "\n"                   \
    "    %2 = add(%1, %0) : f32[4]" from_2 "\n"                \
    "    %3 = add(%1, %0) : f32[4]" from_3 "\n"                \
    "    %4 = multiply(%2, %3) : f32[4]\n"                     \
    "    return %4 as \"y\"\n}\n"

static void check_name(const sx_origins *origins, uint32_t node, const char *name)
{
    const sx_origin *origin = sx_origin_find(origins, node);
    ck_assert_msg(origin != NULL && sx_span_is(origin->name, name), "node %u is not %s", node,
                  name);
}

START_TEST(test_text_carries_origins)
{
    const char *text =
        TWO_LAYERS(" from \"/a \\\"b\\\"\" \"Tanh\" 17", "", " from \"/c\" \"Add\" -1");
    sx_graph *graph = parse(text);
    check_name(graph->origins, 1, "/a \"b\"");
    check_name(graph->origins, 3, "/c");
    ck_assert_int_eq(sx_origin_find(graph->origins, 1)->opset, 17);
    ck_assert_ptr_null(sx_origin_find(graph->origins, 2));
    ck_assert_ptr_null(sx_origin_find(graph->origins, 4));
    sx_buf out;
    sx_buf_init(&out, 65536);
    ck_sx_ok(&cx, sx_graph_print(&cx, graph, &out));
    ck_assert(sx_span_is(sx_buf_span(&out), text));
    sx_buf_fini(&out);
    sx_graph *none;
    ck_sx_fails(&cx, sx_graph_parse(&cx, sx_span_of(TWO_LAYERS(" from \"/a\" 17", "", "")), &none),
                SX_INPUT, "line 4");
}
END_TEST

START_TEST(test_keys_do_not_know_origins)
{
    sx_graph *plain = parse(TWO_LAYERS("", "", ""));
    sx_graph *named = parse(TWO_LAYERS(" from \"/a\" \"Tanh\" 17", " from \"/b\" \"Add\" 17", ""));
    sx_key key[2];
    ck_sx_ok(&cx, sx_graph_key(&cx, plain, &key[0]));
    ck_sx_ok(&cx, sx_graph_key(&cx, named, &key[1]));
    ck_assert(sx_key_equal(&key[0], &key[1]));
    sx_graph *canonical;
    ck_sx_ok(&cx, sx_graph_canon(&cx, named, &canonical));
    ck_assert_ptr_null(canonical->origins);
}
END_TEST

/* %2 and %3 are one node of the canonical form: it has the name of the first. */
START_TEST(test_canonical_nodes_keep_names)
{
    sx_graph *named = parse(TWO_LAYERS(" from \"/a\" \"Tanh\" 17", " from \"/b\" \"Add\" 17",
                                       " from \"/c\" \"Add\" 17"));
    sx_graph *canonical;
    sx_origins *origins;
    ck_sx_ok(&cx, sx_graph_canon_origins(&cx, named, &canonical, &origins));
    ck_assert_uint_eq(canonical->node_count, 4);
    check_name(origins, 1, "/a");
    check_name(origins, 2, "/b");
    ck_assert_ptr_null(sx_origin_find(origins, 3));
    ck_sx_ok(&cx, sx_graph_parse_named(
                      &cx, sx_span_of(TWO_LAYERS("", " from \"/b\" \"Add\" 17", "")), &named));
    check_name(named->origins, 1, "%1");
    check_name(named->origins, 2, "/b");
    ck_assert_ptr_null(sx_origin_find(named->origins, 0));
}
END_TEST

/* ---- from an optimised program to the original ---- */

#define HEAD                                                  \
    "sx 1\ngraph \"g\" {\n"                                   \
    "%x = parameter {name = \"x\", weight = 0} : f32[4, 4]\n" \
    "%w = parameter {name = \"w\", weight = 1} : f32[4, 4]\n" \
    "%q = parameter {name = \"q\", weight = 1} : f32[4, 4]\n" \
    "%k = parameter {name = \"k\", weight = 1} : f32[4, 4]\n"
#define DOT(to, a, b, type)                                                   \
    "%" to " = dot_general(%" a ", %" b ") {lhs_batch = [], rhs_batch = [], " \
    "lhs_contract = [1], rhs_contract = [0]} : f32" type "\n"

static uint32_t root_of(const sx_descent *descent, uint32_t node)
{
    return descent->root[node];
}

static void check_cover(const sx_descent *descent, uint32_t node, const uint32_t *want,
                        uint32_t count)
{
    uint32_t first = descent->cover_first[node];
    ck_assert_uint_eq(descent->cover_first[node + 1] - first, count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(descent->cover[first + i], want[i]);
    }
}

/* Nodes are merged, dropped and reordered; each is traced to what it computes. */
START_TEST(test_descent)
{
    sx_graph *original = parse(HEAD DOT("4", "x", "w", "[4, 4]") /* 4 */
                               "%5 = negate(%4) : f32[4, 4]\n"
                               "%6 = negate(%5) : f32[4, 4]\n" /* 4 again: rewritten away */
                               "%7 = relu(%6) : f32[4, 4]\n"   /* 7 */
                               DOT("8", "7", "q", "[4, 4]")    /* 8 and 9 are merged */
                               DOT("9", "7", "k", "[4, 4]") "%10 = tanh(%8) : f32[4, 4]\n" /* 10 */
                                                            "%11 = exponential(%9) : f32[4, 4]\n"
                                                            "%12 = add(%10, %11) : f32[4, 4]\n"
                                                            "return %12 as \"y\"\n}\n");
    sx_graph *better = parse(
        HEAD DOT("4", "x", "w", "[4, 4]") "%5 = relu(%4) : f32[4, 4]\n"
                                          "%6 = concatenate(%q, %k) {axis = 1} : f32[4, 8]\n" DOT(
                                              "7", "5", "6",
                                              "[4, 8]") "%8 = slice(%7) {start = [0, 0], limit = "
                                                        "[4, 4], stride = [1, 1]} : f32[4, 4]\n"
                                                        "%9 = slice(%7) {start = [0, 4], limit = "
                                                        "[4, 8], stride = [1, 1]} : f32[4, 4]\n"
                                                        "%10 = tanh(%8) : f32[4, 4]\n"
                                                        "%11 = exponential(%9) : f32[4, 4]\n"
                                                        "%12 = add(%10, %11) : f32[4, 4]\n"
                                                        "return %12 as \"y\"\n}\n");
    sx_descent descent;
    ck_sx_ok(&cx, sx_descent_find(&cx, original, better, &descent));
    ck_assert_uint_eq(root_of(&descent, 0), SX_ORIGIN_NONE); /* a parameter */
    ck_assert_uint_eq(root_of(&descent, 4), 4);
    ck_assert_uint_eq(root_of(&descent, 5), 7);
    check_cover(&descent, 5, (const uint32_t[]){5, 6, 7}, 3);
    ck_assert_uint_eq(root_of(&descent, 12), 12);
    /* the merged contraction stands for whatever its weights allow: both contractions are in it */
    uint32_t first = descent.cover_first[7], count = descent.cover_first[8] - first;
    bool q = false, k = false;
    for (uint32_t i = 0; i < count; i++) {
        q = q || descent.cover[first + i] == 8;
        k = k || descent.cover[first + i] == 9;
    }
    ck_assert(q && k);
    ck_assert_uint_eq(root_of(&descent, 6), root_of(&descent, 7)); /* prepared for it */
}
END_TEST

/* A program is what it was: every node is its own origin. */
START_TEST(test_descent_of_itself)
{
    sx_graph *same = parse(HEAD DOT("4", "x", "w", "[4, 4]") "%5 = relu(%4) : f32[4, 4]\n" DOT(
        "6", "5", "q",
        "[4, 4]") "%7 = transpose(%6) {perm = [1, 0]} : f32[4, 4]\n" DOT("8", "7", "k",
                                                                         "[4, 4]") "return %8 as "
                                                                                   "\"y\"\n}\n");
    sx_descent descent;
    ck_sx_ok(&cx, sx_descent_find(&cx, same, same, &descent));
    for (uint32_t i = 4; i < same->node_count; i++) {
        ck_assert_uint_eq(root_of(&descent, i), i);
        check_cover(&descent, i, &i, 1);
    }
}
END_TEST

/* ---- all refusals at once ---- */

static void refuse(sx_refusals *all, const char *name, const char *op, const char *why)
{
    sx_origin origin = {sx_span_of(name), sx_span_of(op), 17};
    (void)SX_FAIL(&cx, SX_UNIMPLEMENTED, "%s", why);
    ck_sx_ok(&cx, sx_refusals_add(&cx, all, &origin));
    ck_assert_int_eq((int)cx.error.code, (int)SX_OK);
}

START_TEST(test_refusals)
{
    sx_refusals all = {0};
    ck_sx_ok(&cx, sx_refusals_end(&cx, &all));
    refuse(&all, "/a", "Gather", "no i64");
    ck_sx_fails(&cx, sx_refusals_end(&cx, &all), SX_UNIMPLEMENTED,
                "node '/a' (Gather, opset 17): no i64");
    refuse(&all, "/l", "Loop", "no loops");
    refuse(&all, "/b", "Gather", "no i64");
    refuse(&all, "/b", "Gather", "no i64"); /* the same again */
    refuse(&all, "/c", "Gather", "no i64");
    refuse(&all, "/d", "Gather", "no i64");
    ck_sx_fails(
        &cx, sx_refusals_end(&cx, &all), SX_UNIMPLEMENTED,
        "5 nodes are not supported at opset 17: Gather (4: '/a', '/b', '/c' and 1 more): no i64; "
        "Loop (1: '/l'): no loops");
}
END_TEST

/* Longer than a message can be: what fits is there, the count is of all, and the end says that there is more. */
START_TEST(test_many_refusals)
{
    sx_refusals all = {0};
    char name[64], why[64];
    for (uint32_t i = 0; i < 200; i++) {
        (void)snprintf(name, sizeof(name), "/layer.%u/Op", i);
        (void)snprintf(why, sizeof(why), "reason number %u", i);
        refuse(&all, name, "Op", why);
    }
    ck_assert_int_eq((int)sx_refusals_end(&cx, &all), (int)SX_UNIMPLEMENTED);
    const char *text = cx.error.text;
    ck_assert_ptr_nonnull(strstr(text, "200 nodes are not supported"));
    ck_assert_uint_lt(strlen(text), SX_ERROR_TEXT_MAX);
    ck_assert_str_eq(text + strlen(text) - 3, "...");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("origin");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, test_text_carries_origins);
    tcase_add_test(all, test_keys_do_not_know_origins);
    tcase_add_test(all, test_canonical_nodes_keep_names);
    tcase_add_test(all, test_descent);
    tcase_add_test(all, test_descent_of_itself);
    tcase_add_test(all, test_refusals);
    tcase_add_test(all, test_many_refusals);
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
