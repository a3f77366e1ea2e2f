/* Collectives: what is refused and how it is told, what of them is in the key, and that of one rank nothing is left. */
#include <string.h>

#include "core/ir/collective.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"
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

#define P(name, type) "%" name " = parameter {name = \"" name "\", weight = 0} : " type " "
#define HEAD "sx 1 graph \"g\" (n in [1, 9]) mesh (dp = 2, tp = 4) {"
#define X P("x", "f32[8, 6]")
#define TP "along = \"tp\", ranks = 4"
#define SUM "all_reduce(%a) {reducer = add, " TP "}"
#define RETURN " return %x as \"y\" }"

static const struct {
    const char *text;
    sx_code code;
    const char *error;
} refused[] = {
    {"sx 1 graph \"g\" {" X "%y = all_reduce(%x) {reducer = add, " TP "} : f32[8, 6]" RETURN,
     SX_INPUT, "node 1 (all_reduce): along \"tp\", and the graph has no mesh"},
    {HEAD X "%y = all_reduce(%x) {reducer = add, along = \"pp\", ranks = 4} : f32[8, 6]" RETURN,
     SX_INPUT, "node 1 (all_reduce): mesh axis \"pp\" is not declared"},
    {HEAD X "%y = axis_index {along = \"tp\", ranks = 2} : i64[]" RETURN, SX_INPUT,
     "node 1 (axis_index): 2 ranks along \"tp\", the mesh has 4"},
    {HEAD X "%y = axis_index {along = \"tp\", ranks = 0} : i64[]" RETURN, SX_INPUT,
     "axis_index: 0 ranks, 1 to 1048576"},
    {HEAD X "%y = axis_index {along = \"\", ranks = 4} : i64[]" RETURN, SX_INPUT,
     "axis_index: along of 0 bytes, 1 to 255"},
    {HEAD P("b", "bool[4]") "%y = all_reduce(%b) {reducer = maximum, " TP
                            "} : bool[4] return %b as \"b\" }",
     SX_INPUT, "all_reduce: "},
    {HEAD X "%y = all_reduce(%x) {reducer = set, " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "all_reduce: reducer "},
    {HEAD X "%y = all_gather(%x) {axis = 2, " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "all_gather: axis 2 of a tensor of rank 2"},
    {HEAD X "%y = reduce_scatter(%x) {axis = 1, reducer = add, " TP "} : f32[8, 6]" RETURN,
     SX_INPUT, "reduce_scatter: dimension 1 of extent 6, which cannot be cut into 4 equal pieces"},
    {HEAD P("x", "f32[2*n]") "%y = reduce_scatter(%x) {axis = 0, reducer = add, " TP
                             "} : f32[n]" RETURN,
     SX_UNIMPLEMENTED,
     "reduce_scatter: dimension 0 of extent 2*n, of which it is not known that it can be cut into "
     "4"},
    {HEAD X "%y = all_to_all(%x) {split = 1, axis = 0, " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "all_to_all: dimension 1 of extent 6, which cannot be cut into 4 equal pieces"},
    {HEAD X "%y = all_to_all(%x) {split = 2, axis = 0, " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "all_to_all: split 2 of a tensor of rank 2"},
    {HEAD X "%y = all_to_all(%x) {split = -1, axis = 0, " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "all_to_all: split -1 of a tensor of rank 2"},
    {HEAD X "%y = all_to_all(%x) {axis = 0, " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "all_to_all: attribute split is missing"},
    {HEAD P("x", "f32[4194304, 1048576]") "%y = all_gather(%x) {axis = 0, " TP
                                          "} : f32[16777216, 1048576]" RETURN,
     SX_LIMIT, "all_gather: result: more than"},
    {HEAD X "%y = permute(%x) {pairs = [[0, 4]], " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "permute: pair 0 has target 4, of 4 ranks"},
    {HEAD X "%y = permute(%x) {pairs = [[-1, 0]], " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "permute: pair 0 has source -1, of 4 ranks"},
    {HEAD X "%y = permute(%x) {pairs = [[0, 1], [0, 2]], " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "permute: pair 1 has source 0 behind 0; sources ascend"},
    {HEAD X "%y = permute(%x) {pairs = [[0, 1], [2, 1]], " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "permute: pairs 0 and 1 have target 1"},
    {HEAD X "%y = permute(%x) {pairs = [0, 1], " TP "} : f32[8, 6]" RETURN, SX_INPUT,
     "expected '['"},
    /* placements speak of whole tensors */
    {HEAD "%x = parameter {name = \"x\", weight = 0} : f32[8, 6] {tp = S(0)} "
          "%y = all_reduce(%x) {reducer = add, " TP "} : f32[8, 6]" RETURN,
     SX_INPUT, "parameter \"x\" is placed and node 1 is all_reduce"},
    {HEAD X "%y = all_reduce(%x) {reducer = add, " TP "} : f32[8, 6] return %y as \"y\" {tp = R} }",
     SX_INPUT, "output \"y\" is placed and node 1 is all_reduce"},
    /* ways that ranks choose for themselves */
    {HEAD P("p", "bool[]") X "%y = cond(%p, %x) {then = graph {" P(
         "a", "f32[8, 6]") "%b = " SUM
                           " : f32[8, 6] return %b as \"b\"}, otherwise = graph {" P(
                               "a", "f32[8, 6]") "return %a as \"a\"}} : f32[8, 6]" RETURN,
     SX_INPUT, "cond: then has all_reduce along \"tp\", which not every rank may reach"},
    {HEAD P("p", "bool[]") X "%y = cond(%p, %x) {then = graph {" P(
         "a", "f32[8, 6]") "return %a as \"a\"}, otherwise = graph "
                           "{" P("a", "f32[8, 6]") "%b = " SUM " : f32[8, 6] return %b "
                                                   "as \"b\"}} : f32[8, "
                                                   "6]" RETURN,
     SX_INPUT, "cond: otherwise has all_reduce along \"tp\""},
    {HEAD P("x", "bool[]") "%y = while(%x) {carried = 1, rounds = 3, condition = graph {" P(
         "a", "bool[]") "%b = permute(%a) {" TP
                        "} : bool[] return %b as \"b\"}, step = graph {" P(
                            "a", "bool[]") "return %a as \"a\"}} : bool[]" RETURN,
     SX_INPUT, "while: condition has permute along \"tp\""},
    /* the step of a scan has the mesh of the program around it, and stays inside of none of the others */
    {HEAD X "%y = scan(%x) {carried = 0, sliced = 1, step = graph {" P(
         "a", "f32[6]") "%b = all_reduce(%a) {reducer = add, along = \"tp\", ranks = 3} : f32[6] "
                        "return %b as \"b\"}} : "
                        "f32[8, 6]" RETURN,
     SX_INPUT, "node 1 (all_reduce): 3 ranks along \"tp\", the mesh has 4"},
    {HEAD P("x", "f32[2]") "%y = while(%x) {carried = 1, rounds = 3, condition = graph {" P(
         "a", "f32[2]") "%t = constant {data = false} : bool[] return %t as \"t\"}, step = graph "
                        "{" P("a",
                              "f32[2]") "%y = scan(%a) {carried = 0, sliced = 1, step = graph "
                                        "{" P("a",
                                              "f32[]") "%b = " SUM
                                                       " : f32[] return %b as \"b\"}} : f32[2] "
                                                       "return %y as \"y\"}} : f32[2]" RETURN,
     SX_INPUT, "while: step has all_reduce along \"tp\""},
};

START_TEST(is_refused)
{
    sx_graph *graph;
    ck_sx_fails(&cx, sx_graph_parse(&cx, sx_span_of(refused[_i].text), &graph), refused[_i].code,
                refused[_i].error);
}
END_TEST

/* ---- keys ---- */

static void key_of(const char *text, sx_key *key)
{
    ck_sx_ok(&cx, sx_graph_key(&cx, sx_test_parse(&cx, text), key));
}

static bool same_key(const char *a, const char *b)
{
    sx_key key[2];
    key_of(a, &key[0]);
    key_of(b, &key[1]);
    return memcmp(&key[0], &key[1], sizeof(key[0])) == 0;
}

#define PERMUTE(pairs) \
    HEAD X "%y = permute(%x) {pairs = " pairs ", " TP "} : f32[8, 6] return %y as \"y\" }"
#define GATHER(along)                                                                            \
    "sx 1 graph \"g\" mesh (a = 2, b = 2) {" X "%y = all_gather(%x) {axis = 0, along = \"" along \
    "\", ranks = 2} : f32[16, 6] return %y as \"y\" }"

START_TEST(keys_tell_them_apart)
{
    ck_assert(same_key(PERMUTE("[[0, 1]]"), PERMUTE("[[0, 1]]")));
    ck_assert(!same_key(PERMUTE("[[0, 1]]"), PERMUTE("[[0, 2]]")));
    ck_assert(!same_key(PERMUTE("[[0, 1]]"), PERMUTE("[[0, 1], [1, 0]]")));
    ck_assert(!same_key(PERMUTE("[[0, 1]]"), PERMUTE("[]")));
    ck_assert(!same_key(GATHER("a"), GATHER("b")));
}
END_TEST

/* Equal collectives are one value. */
START_TEST(equal_ones_are_one)
{
    sx_graph *canon;
    const sx_graph *graph =
        sx_test_parse(&cx, HEAD X "%a = all_reduce(%x) {reducer = add, " TP "} : f32[8, 6] "
                                  "%b = all_reduce(%x) {reducer = add, " TP
                                  "} : f32[8, 6] %y = multiply(%a, %b) : "
                                  "f32[8, 6] return %y as \"y\" }");
    ck_sx_ok(&cx, sx_graph_canon(&cx, graph, &canon));
    ck_assert_uint_eq(canon->node_count, 3);
}
END_TEST

/* One rank: each is its operand, a place is 0, and what nobody sends is zeros; in steps of a scan too. */
START_TEST(one_rank_is_folded)
{
#define ALONE "along = \"tp\", ranks = 1"
    static const char with[] =
        "sx 1 graph \"g\" mesh (tp = 1) {" X "%a = all_reduce(%x) {reducer = add, " ALONE
        "} : f32[8, 6] %b = all_gather(%a) {axis = 0, " ALONE "} : f32[8, 6] "
        "%c = reduce_scatter(%b) {axis = 1, reducer = maximum, " ALONE "} : f32[8, 6] "
        "%d = all_to_all(%c) {split = 1, axis = 0, " ALONE "} : f32[8, 6] "
        "%e = permute(%d) {pairs = [[0, 0]], " ALONE "} : f32[8, 6] "
        "%f = permute(%e) {" ALONE "} : f32[8, 6] %i = axis_index {" ALONE "} : i64[] "
        "%s = scan(%e) {carried = 0, sliced = 1, step = graph {" P(
            "r", "f32[6]") "%t = all_reduce(%r) {reducer = add, " ALONE
                           "} : f32[6] return %t as \"t\"}} : f32[8, 6] "
                           "return %e as \"e\", %f as \"f\", %i as \"i\", %s as \"s\" }";
    static const char without[] =
        "sx 1 graph \"g\" mesh (tp = 1) {" X "%f = constant {data = 0} : f32[8, 6] "
        "%i = constant {data = 0} : i64[] "
        "%s = scan(%x) {carried = 0, sliced = 1, step = graph {" P(
            "r", "f32[6]") "return %r as \"t\"}} : f32[8, 6] "
                           "return %x as \"e\", %f as \"f\", %i as \"i\", %s as \"s\" }";
    sx_collective found;
    sx_graph *canon;
    sx_graph *again;
    ck_assert(same_key(with, without));
    ck_sx_ok(&cx, sx_graph_canon(&cx, sx_test_parse(&cx, with), &canon));
    ck_assert(!sx_collective_find(canon, &found));
    ck_sx_ok(&cx, sx_graph_canon(&cx, canon, &again));
    ck_assert_uint_eq(again->node_count, canon->node_count);
}
END_TEST

START_TEST(is_found_inside)
{
    sx_collective found;
    const sx_graph *graph = sx_test_parse(
        &cx, HEAD X "%y = scan(%x) {carried = 0, sliced = 1, step = graph {" P(
                 "a", "f32[6]") "%b = " SUM
                                " : f32[6] return %b as \"b\"}} : f32[8, 6] return %y as \"y\" }");
    ck_assert(sx_collective_find(graph, &found));
    ck_assert_uint_eq(found.node, 1);
    ck_assert_int_eq(found.op, SX_OP_ALL_REDUCE);
    ck_assert_int_eq(found.attr->ranks, 4);
    ck_assert(sx_graph_attr(graph, &graph->node[1])->step->collective);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/collective");
    TCase *tcase = tcase_create("collective");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, is_refused, 0, (int)SX_COUNT(refused));
    tcase_add_test(tcase, keys_tell_them_apart);
    tcase_add_test(tcase, equal_ones_are_one);
    tcase_add_test(tcase, one_rank_is_folded);
    tcase_add_test(tcase, is_found_inside);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
