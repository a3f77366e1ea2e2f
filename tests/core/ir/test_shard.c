/* Meshes and placements in the text, the canonical form, the key and binding. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/ir/shard.h"
#include "tests/lib/gen_graph.h"

#define GRAPHS 200

static sx_code parse(sx_ctx *cx, const char *text, sx_graph **graph)
{
    return sx_graph_parse(cx, sx_span_of(text), graph);
}

static void print_text(sx_ctx *cx, const sx_graph *graph, sx_buf *text)
{
    sx_buf_init(text, 16 << 20);
    ck_sx_ok(cx, sx_graph_print(cx, graph, text));
}

/* The program around one parameter of this type and placement, its output wanted as `wanted` says. */
#define PROGRAM(mesh, placed, wanted)                                                              \
    "sx 1 graph \"\" (n in [6, 9]) " mesh " { %x = parameter {name = \"x\", weight = 0} : " placed \
    " %0 = negate(%x) : f32[4, n, 2*n] return %0 as \"y\" " wanted " }"
#define PLACED(mesh, place) PROGRAM(mesh, "f32[4, n, 2*n] " place, "")
#define WANTED(wanted) PROGRAM("mesh (a = 2, b = 4)", "f32[4, n, 2*n]", wanted)

static const struct {
    const char *text;
    const char *error; /* NULL: read */
} cases[] = {
    {PLACED("mesh (a = 2, b = 4)", "{a = S(0), b = S(1)}"), NULL},
    {PLACED("mesh (a = 2, b = 4)", "{}"), NULL},
    {PLACED("mesh (a = 2, b = 2)", "{a = S(0), b = S(0)}"), NULL},
    {WANTED("{a = P(sum), b = P(max)}"), NULL},
    {WANTED("{a = R, b = P(min)}"), NULL},
    {PLACED("mesh ()", ""), "expected a mesh axis"},
    {PLACED("mesh (a = 2, a = 4)", ""), "mesh axis \"a\" is declared twice"},
    {PLACED("mesh (a = 0)", ""), "mesh axis \"a\" of 0 devices, 1 to 1048576"},
    {PLACED("mesh (a = -3)", ""), "mesh axis \"a\" of -3 devices"},
    {PLACED("mesh (a = 1048577)", ""), "of 1048577 devices, 1 to 1048576"},
    {PLACED("mesh (a = 1024, b = 2048)", ""), "mesh of 2097152 devices, at most 1048576"},
    {PLACED("mesh (a = 1, b = 1, c = 1, d = 1, e = 1)", ""), "more than 4 axes"},
    {PLACED("mesh (a = 2)", "{b = S(0)}"), "mesh axis \"b\" is not declared"},
    {PLACED("mesh (a = 2)", "{a = S(0), a = R}"), "mesh axis \"a\" is placed twice"},
    {PLACED("mesh (a = 2)", "{a = S(3)}"), "mesh axis \"a\": S(3) of a tensor of rank 3"},
    {PLACED("mesh (a = 2)", "{a = S(8)}"), "dimension 8, 0 to 7"},
    {PLACED("mesh (a = 2)", "{a = S(-1)}"), "dimension -1, 0 to 7"},
    {PLACED("mesh (a = 3)", "{a = S(0)}"), "S(0) of extent 4, which 3 pieces do not divide"},
    {PLACED("mesh (a = 2, b = 4)", "{a = S(0), b = S(0)}"), "which 8 pieces do not divide"},
    {PLACED("mesh (a = 5)", "{a = S(1)}"), "S(1) of extent n, which 5 pieces do not divide"},
    {PLACED("mesh (a = 10)", "{a = S(2)}"), "S(2) of extent 2*n, which 10 pieces do not divide"},
    {PLACED("mesh (a = 14)", "{a = S(2)}"), NULL},
    {PLACED("mesh (a = 2)", "{a = P(sum)}"), "a parameter cannot be P"},
    {PLACED("mesh (a = 2)", "{a = P(mean)}"), "expected sum, max or min"},
    {PLACED("mesh (a = 2)", "{a = Q}"), "expected S(dimension), R or P(sum, max or min)"},
    {PLACED("", "{a = R}"), "a placement, and the graph has no mesh"},
    {PROGRAM("", "f32[4, n, 2*n]", "{}"), "a placement, and the graph has no mesh"},
    {"sx 1 graph \"\" mesh (a = 2) { %x = iota {axis = 0} : f32[4] {a = S(0)} return %x as \"y\" }",
     "a placement of what is no parameter"},
    {"sx 1 graph \"\" mesh (a = 2) { %x = iota {axis = 0} : i32[4] %0 = compare(%x, %x) "
     "{direction = eq} : bool[4] return %0 as \"y\" {a = P(sum)} }",
     "a bool cannot be P"},
};

START_TEST(test_text)
{
    for (size_t i = 0; i < SX_COUNT(cases); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 16 << 20);
        sx_graph *graph;
        sx_code code = parse(&cx, cases[i].text, &graph);
        if (cases[i].error == NULL) {
            ck_assert_msg(code == SX_OK, "%s: %s", cases[i].text, cx.error.text);
        } else {
            ck_assert_msg(code != SX_OK, "%s is read", cases[i].text);
            ck_assert_msg(strncmp(cx.error.text, "line 1:", 7) == 0 &&
                              strstr(cx.error.text, cases[i].error) != NULL,
                          "%s: %s", cases[i].text, cx.error.text);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

static sx_places random_places(sx_rng *rng, const sx_graph *graph, const sx_type *type,
                               bool may_be_partial)
{
    sx_places places = sx_places_none();
    int64_t pieces[SX_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (uint32_t a = 0; a < graph->sharding->axis_count; a++) {
        uint32_t place = (uint32_t)sx_rng_below(rng, may_be_partial ? SX_PLACE_COUNT : SX_PLACE_R);
        if (place < type->rank && sx_dim_is_constant(type->dim[place]) &&
            type->dim[place].scale % (pieces[place] * graph->sharding->axis[a].size) == 0) {
            places.at[a] = (sx_shard_place)place;
            pieces[place] *= graph->sharding->axis[a].size;
        } else if (place > SX_PLACE_R && type->dtype != SX_BOOL) {
            places.at[a] = (sx_shard_place)place;
        }
    }
    return places;
}

/* A mesh and placements on a graph that has none; how many are not R. */
static uint32_t decorate(sx_ctx *cx, sx_rng *rng, sx_graph *graph)
{
    static const char *const name[] = {"dp", "pp 2", "tp", "ep"};
    uint32_t axes = 1 + (uint32_t)sx_rng_below(rng, 4);
    const sx_places none = sx_places_none();
    uint32_t said = 0;
    for (uint32_t a = 0; a < axes; a++) {
        int64_t size = 1 + (int64_t)sx_rng_below(rng, 3);
        ck_sx_ok(cx, sx_mesh_add_axis(cx, graph, sx_span_of(name[a]), size));
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->node[n].op == SX_OP_PARAMETER) {
            sx_places places = random_places(rng, graph, &graph->node[n].type, false);
            ck_sx_ok(cx, sx_graph_place(cx, graph, (sx_node_id){n}, &places));
            said += sx_places_equal(&places, &none) ? 0 : 1;
        }
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        if (sx_rng_below(rng, 2) == 0) {
            const sx_type *type = &graph->node[graph->output[i].node.i].type;
            sx_places places = random_places(rng, graph, type, true);
            ck_sx_ok(cx, sx_graph_want(cx, graph, i, &places));
            said++;
        }
    }
    return said;
}

START_TEST(test_random_round_trip)
{
    uint64_t seed = sx_test_seed();
    uint32_t said = 0;
    for (uint32_t i = 0; i < GRAPHS; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 256 << 20);
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.symbols = i % 3;
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        sx_graph *back, *canon;
        sx_key plain, key, again;
        sx_buf text, second;
        ck_sx_ok(&cx, sx_graph_key(&cx, graph, &plain));
        said += decorate(&cx, &rng, graph);
        ck_sx_ok(&cx, sx_graph_check(&cx, graph));
        print_text(&cx, graph, &text);
        sx_code code = sx_graph_parse(&cx, sx_buf_span(&text), &back);
        ck_assert_msg(code == SX_OK, "seed %llu graph %u: %s\n%.*s", (unsigned long long)seed, i,
                      cx.error.text, (int)text.len, (const char *)text.ptr);
        print_text(&cx, back, &second);
        ck_assert(sx_span_equal(sx_buf_span(&text), sx_buf_span(&second)));
        ck_sx_ok(&cx, sx_graph_key(&cx, graph, &key));
        ck_sx_ok(&cx, sx_graph_canon(&cx, back, &canon));
        ck_sx_ok(&cx, sx_graph_key(&cx, canon, &again));
        ck_assert(sx_key_equal(&key, &again));
        ck_assert(!sx_key_equal(&key, &plain));
        back->sharding = NULL; /* no mesh: the key it always had */
        ck_sx_ok(&cx, sx_graph_key(&cx, back, &again));
        ck_assert(sx_key_equal(&again, &plain));
        ck_assert_uint_eq(canon->sharding->parameter_count, graph->sharding->parameter_count);
        ck_assert_uint_eq(canon->sharding->output_count, graph->sharding->output_count);
        sx_buf_fini(&text);
        sx_buf_fini(&second);
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(said, GRAPHS);
}
END_TEST

/* Each word of the sharding is in the key. */
START_TEST(test_key_changes)
{
    static const char *const variant[] = {
        PLACED("", ""),
        PLACED("mesh (a = 2)", ""),
        PLACED("mesh (b = 2)", ""),
        PLACED("mesh (a = 4)", ""),
        PLACED("mesh (a = 2, b = 2)", ""),
        PLACED("mesh (b = 2, a = 2)", ""),
        PLACED("mesh (a = 2)", "{a = S(0)}"),
        PLACED("mesh (a = 2)", "{a = S(1)}"),
        PROGRAM("mesh (a = 2)", "f32[4, n, 2*n]", "{}"),
        PROGRAM("mesh (a = 2)", "f32[4, n, 2*n]", "{a = S(0)}"),
        PROGRAM("mesh (a = 2)", "f32[4, n, 2*n]", "{a = P(sum)}"),
        PROGRAM("mesh (a = 2)", "f32[4, n, 2*n]", "{a = P(max)}"),
    };
    sx_ctx cx;
    sx_key key[SX_COUNT(variant)];
    sx_ctx_init(&cx, 64 << 20);
    for (size_t i = 0; i < SX_COUNT(variant); i++) {
        sx_graph *graph;
        ck_sx_ok(&cx, parse(&cx, variant[i], &graph));
        ck_sx_ok(&cx, sx_graph_key(&cx, graph, &key[i]));
        for (size_t k = 0; k < i; k++) {
            ck_assert_msg(!sx_key_equal(&key[i], &key[k]), "%s\n%s", variant[i], variant[k]);
        }
    }
    sx_graph *said, *unsaid;
    sx_key a, b;
    ck_sx_ok(&cx, parse(&cx, PLACED("mesh (a = 2)", "{a = R}"), &said));
    ck_sx_ok(&cx, parse(&cx, PLACED("mesh (a = 2)", ""), &unsaid));
    ck_sx_ok(&cx, sx_graph_key(&cx, said, &a));
    ck_sx_ok(&cx, sx_graph_key(&cx, unsaid, &b));
    ck_assert(sx_key_equal(&a, &b)); /* R is what a parameter is where nothing is said */
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_bind)
{
    sx_ctx cx;
    sx_graph *graph, *bound;
    sx_ctx_init(&cx, 16 << 20);
    ck_sx_ok(&cx, parse(&cx, PLACED("mesh (a = 4)", "{a = S(1)}"), &graph));
    int64_t multiple[SX_SYMBOLS_MAX];
    sx_sharding_multiples(graph, multiple);
    ck_assert_int_eq(multiple[0], 4);
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, &(sx_binding){sx_span_of("n"), 8}, 1, &bound));
    ck_assert_uint_eq(sx_graph_places(bound, 0).at[0], 1);
    ck_assert_int_eq(sx_graph_bind(&cx, graph, &(sx_binding){sx_span_of("n"), 6}, 1, &bound),
                     SX_INPUT);
    ck_assert_str_eq(
        cx.error.text,
        "parameter \"x\": mesh axis \"a\": S(1) of extent 6, which 4 pieces do not divide");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/shard");
    TCase *tcase = tcase_create("text");
    tcase_add_test(tcase, test_text);
    tcase_add_test(tcase, test_random_round_trip);
    tcase_add_test(tcase, test_key_changes);
    tcase_add_test(tcase, test_bind);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
