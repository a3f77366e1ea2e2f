/* Parameters of two programs paired: against the plain search from every parameter over all of the other program's. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/store/pair.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Parameters of four types, names "<prefix><number>", in a random order. */
static sx_graph *program(sx_rng *rng, uint32_t count, const char *prefix)
{
    sx_graph *graph;
    uint32_t *number = SX_NEW_ARRAY(&cx, uint32_t, count);
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("p"), NULL, &graph));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (uint32_t)sx_rng_below(rng, i + 1);
        number[i] = number[at];
        number[at] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        sx_attr attr = {.present = SX_A(name) | SX_A(weight) | SX_A(type)};
        sx_node_id id;
        snprintf(name, sizeof(name), "%s%u", prefix, number[i]);
        attr.name = sx_span_of(sx_alloc_text(&cx, sx_span_of(name)));
        attr.weight = number[i] % 2;
        attr.type =
            (sx_type){.dtype = SX_F32, .rank = 1, .dim = {sx_dim_of(1 + number[i] % 4 / 2)}};
        ck_sx_ok(&cx, sx_graph_add(&cx, graph, SX_OP_PARAMETER, &attr, NULL, 0, &id));
    }
    return graph;
}

static sx_span name_of(const sx_graph *graph, uint32_t i)
{
    return sx_graph_attr(graph, &graph->node[i])->name;
}

/* The first of the kind, and of the name, that is not taken. */
static void plain(const sx_graph *a, const sx_graph *b, bool by_name, uint32_t *of)
{
    bool *taken = SX_NEW_ARRAY(&cx, bool, b->node_count);
    for (uint32_t i = 0; i < a->node_count; i++) {
        uint32_t j = 0;
        while (j + 1 < b->node_count &&
               (taken[j] || !sx_pair_same_kind(a, i, b, j) ||
                (by_name && !sx_span_equal(name_of(a, i), name_of(b, j))))) {
            j++;
        }
        taken[j] = true;
        of[i] = j;
    }
}

START_TEST(test_plain)
{
    sx_rng rng = {sx_test_seed()};
    static const uint32_t counts[] = {1, 2, 7, 100, 2000};
    for (uint32_t c = 0; c < SX_COUNT(counts); c++) {
        for (uint32_t named = 0; named < 2; named++) {
            sx_graph *a = program(&rng, counts[c], "p");
            sx_graph *b = program(&rng, counts[c], named == 1 ? "p" : "q");
            uint32_t *of, *expected = SX_NEW_ARRAY(&cx, uint32_t, counts[c]);
            bool paired;
            ck_sx_ok(&cx, sx_pair_parameters(&cx, a, b, NULL, true, &of, &paired));
            plain(a, b, named == 1, expected);
            ck_assert(paired);
            ck_assert(memcmp(of, expected, counts[c] * sizeof(*of)) == 0);
        }
    }
}
END_TEST

/* Each is found at once: the plain search would take minutes. */
START_TEST(test_many)
{
    sx_rng rng = {sx_test_seed()};
    const uint32_t count = 60000;
    sx_graph *a = program(&rng, count, "p");
    sx_graph *b = program(&rng, count, "p");
    uint32_t *of;
    bool paired;
    ck_sx_ok(&cx, sx_pair_parameters(&cx, a, b, NULL, true, &of, &paired));
    ck_assert(paired);
    uint32_t same = 0;
    for (uint32_t i = 0; i < count; i++) {
        same += sx_span_equal(name_of(a, i), name_of(b, of[i])) ? 1 : 0;
    }
    ck_assert_uint_eq(same, count);
}
END_TEST

static sx_graph *parsed(const char *text)
{
    sx_graph *graph, *canonical;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    ck_sx_ok(&cx, sx_graph_canon(&cx, graph, &canonical));
    return canonical;
}

#define IN(name) "%" name " = parameter {name = \"" name "\", weight = 1} : f32[8, 8]\n"
#define DOT(to, a, b) \
    "%" to " = dot_general(%" a ", %" b ") {lhs_contract = [1], rhs_contract = [0]} : f32[8, 8]\n"
#define ADD(to, a, b) "%" to " = add(%" a ", %" b ") : f32[8, 8]\n"

/* What stands alike is paired whatever the names and the order; programs of other parameters are not. */
START_TEST(test_marks)
{
    sx_graph *a = parsed("sx 1\ngraph \"a\" {\n" IN("x") IN("y") IN("z") DOT("0", "x", "y")
                             ADD("1", "0", "z") "return %1 as \"r\"\n}\n");
    sx_graph *b = parsed("sx 1\ngraph \"b\" {\n" IN("z") IN("q") IN("x") DOT("0", "q", "x")
                             ADD("1", "z", "0") "return %1 as \"r\"\n}\n");
    sx_graph *c = parsed("sx 1\ngraph \"c\" {\n" IN("z") IN("q") DOT("0", "q", "z")
                             ADD("1", "z", "0") "return %1 as \"r\"\n}\n");
    uint32_t *mark, *of;
    uint64_t x, y, z;
    bool paired;
    ck_sx_ok(&cx, sx_pair_marks(&cx, b, &mark));
    ck_sx_ok(&cx, sx_pair_parameters(&cx, a, b, mark, true, &of, &paired));
    ck_assert(paired && of[0] == 1 && of[1] == 2 && of[2] == 0);
    ck_sx_ok(&cx, sx_pair_parameters(&cx, a, b, NULL, false, &of, &paired));
    ck_assert(paired && of[0] == 0 && of[1] == 1 && of[2] == 2);
    ck_sx_ok(&cx, sx_pair_parameters(&cx, a, c, NULL, false, &of, &paired));
    ck_assert(!paired);
    ck_sx_ok(&cx, sx_pair_shape(&cx, a, &x));
    ck_sx_ok(&cx, sx_pair_shape(&cx, b, &y));
    ck_sx_ok(&cx, sx_pair_shape(&cx, c, &z));
    ck_assert(x == y && x != z);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pair");
    TCase *tc = tcase_create("pair");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_plain);
    tcase_add_test(tc, test_many);
    tcase_add_test(tc, test_marks);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
