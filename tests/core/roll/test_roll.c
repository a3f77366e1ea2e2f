/* Rolling: equal layers are found whatever surrounds them, the pieces put together again are the program, word
 * for word, and where nothing repeats nothing is done. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/roll/roll.h"
#include "tests/lib/gen_graph.h"
#include "tests/lib/gen_stack.h"
#include "tests/lib/gen_transformer.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const sx_roll *roll_of(const sx_graph *graph)
{
    const sx_roll *roll;
    ck_sx_ok(&cx, sx_roll_find(&cx, graph, NULL, &roll));
    if (roll != NULL && getenv("SX_SHOW") != NULL) {
        for (uint32_t u = 0; u < roll->use_count; u++) {
            printf("%u(%u) ", roll->use[u].part, roll->part[roll->use[u].part].node_count);
        }
        printf("of %u nodes\n", graph->node_count);
    }
    return roll;
}

/* The parts as they are give the program back, and every part is a program. */
static void check_whole(const sx_roll *roll)
{
    const sx_graph **program = SX_NEW_ARRAY(&cx, const sx_graph *, roll->part_count);
    sx_graph *whole;
    sx_key key[2];
    uint32_t uses = 0;
    for (uint32_t p = 0; p < roll->part_count; p++) {
        program[p] = roll->part[p].program;
        ck_sx_ok(&cx, sx_graph_check(&cx, program[p]));
        uses += roll->part[p].use_count;
    }
    ck_assert_uint_eq(uses, roll->use_count);
    ck_sx_ok(&cx, sx_roll_expand(&cx, roll, program, &whole));
    ck_sx_ok(&cx, sx_graph_check(&cx, whole));
    ck_sx_ok(&cx, sx_graph_key(&cx, roll->whole, &key[0]));
    ck_sx_ok(&cx, sx_graph_key(&cx, whole, &key[1]));
    ck_assert(sx_key_equal(&key[0], &key[1]));
}

static uint32_t most_used(const sx_roll *roll)
{
    uint32_t best = 0;
    for (uint32_t p = 0; roll != NULL && p < roll->part_count; p++) {
        bool body = roll->part[p].node_count >= SX_ROLL_BODY_NODES_MIN;
        best = body && roll->part[p].use_count > best ? roll->part[p].use_count : best;
    }
    return best;
}

/* Operations of all distinct parts together. */
static uint32_t distinct(const sx_roll *roll)
{
    uint32_t sum = 0;
    for (uint32_t p = 0; p < roll->part_count; p++) {
        sum += roll->part[p].node_count;
    }
    return sum;
}

static const sx_roll *roll_transformer(const sx_transformer *options)
{
    sx_graph *graph;
    ck_sx_ok(&cx, sx_transformer_make(&cx, options, &graph));
    const sx_roll *roll = roll_of(graph);
    if (roll != NULL) {
        check_whole(roll);
    }
    return roll;
}

START_TEST(test_layers)
{
    static const struct {
        bool layer_norm, glu, causal, post_norm;
    } kind[] = {{false, true, true, false},
                {true, false, true, false},
                {false, true, false, false},
                {true, false, false, true},
                {false, true, true, true}};
    uint32_t size[3];
    for (uint32_t i = 0; i < 3; i++) {
        static const uint32_t layers[] = {2, 7, 32};
        sx_transformer options = sx_transformer_default(layers[i]);
        options.layer_norm = kind[_i].layer_norm;
        options.glu = kind[_i].glu;
        options.causal = kind[_i].causal;
        options.post_norm = kind[_i].post_norm;
        const sx_roll *roll = roll_transformer(&options);
        ck_assert_ptr_nonnull(roll);
        ck_assert_uint_eq(most_used(roll), layers[i]);
        ck_assert_uint_le(roll->part_count, 3);
        size[i] = distinct(roll);
    }
    ck_assert_uint_eq(size[0], size[1]);
    ck_assert_uint_eq(size[1], size[2]);
}
END_TEST

/* A mask that all layers read is made in each of them, where something may be known of it, and not handed to them. */
START_TEST(test_masks_are_copied)
{
    sx_transformer options = sx_transformer_default(4);
    const sx_roll *roll = roll_transformer(&options);
    ck_assert_ptr_nonnull(roll);
    for (uint32_t p = 0; p < roll->part_count; p++) {
        const sx_graph *program = roll->part[p].program;
        uint32_t positions = 0;
        for (uint32_t n = 0; n < program->node_count; n++) {
            const sx_type *type = &program->node[n].type;
            bool square = type->rank >= 2 &&
                          sx_dim_equal(type->dim[type->rank - 1], sx_dim_of(options.seq)) &&
                          sx_dim_equal(type->dim[type->rank - 2], sx_dim_of(options.seq));
            positions += program->node[n].op == SX_OP_IOTA ? 1 : 0;
            ck_assert(program->node[n].op != SX_OP_PARAMETER || !square);
        }
        ck_assert(roll->part[p].use_count < options.layers || positions > 0);
    }
}
END_TEST

START_TEST(test_one_layer)
{
    sx_transformer options = sx_transformer_default(1);
    ck_assert_ptr_null(roll_transformer(&options));
}
END_TEST

/* A B A B: the body is both. */
START_TEST(test_alternating)
{
    sx_transformer options = sx_transformer_default(8);
    options.alternate = true;
    ck_assert_uint_eq(most_used(roll_transformer(&options)), 4);
}
END_TEST

/* One layer of another width splits the stack; both halves are one part. */
START_TEST(test_odd_layer)
{
    sx_transformer options = sx_transformer_default(9);
    options.odd_layer = 4;
    const sx_roll *roll = roll_transformer(&options);
    ck_assert_uint_eq(most_used(roll), 8);
    ck_assert_uint_le(roll->part_count, 4);
}
END_TEST

START_TEST(test_two_stacks)
{
    sx_transformer options = sx_transformer_default(6);
    options.encoder_layers = 5;
    const sx_roll *roll = roll_transformer(&options);
    uint32_t body[2] = {0, 0};
    for (uint32_t p = 0; p < roll->part_count; p++) {
        body[0] += roll->part[p].use_count == 5 ? 1 : 0;
        body[1] += roll->part[p].use_count == 6 ? 1 : 0;
    }
    ck_assert_uint_eq(body[0], 1);
    ck_assert_uint_eq(body[1], 1);
}
END_TEST

/* A value inside one layer is also an output: that layer is a part of its own, the others stay equal. */
START_TEST(test_tapped)
{
    for (uint32_t layer = 0; layer < 6; layer += 5) {
        sx_transformer options = sx_transformer_default(6);
        options.tapped = layer;
        ck_assert_uint_eq(most_used(roll_transformer(&options)), 5);
    }
    sx_transformer options = sx_transformer_default(6);
    options.tapped = 2;
    ck_assert_uint_eq(most_used(roll_transformer(&options)), 5);
    options.tapped = SX_TRANSFORMER_NONE;
    options.caches = true;
    ck_assert_uint_eq(most_used(roll_transformer(&options)), 6);
}
END_TEST

/* Two stacks side by side, layers written in turn or not: one is on the longest path, the other is left whole,
 * to be cut in its turn. */
START_TEST(test_towers)
{
    sx_transformer options = sx_transformer_default(5);
    options.towers = true;
    const sx_roll *roll = roll_transformer(&options);
    ck_assert_uint_ge(most_used(roll),
                      4); /* the first layers share what their norms have in common */
    uint32_t inner = 0;
    for (uint32_t p = 0; p < roll->part_count; p++) {
        const sx_roll *below = roll_of(roll->part[p].program);
        if (below != NULL) {
            check_whole(below);
            inner += most_used(below);
        }
    }
    ck_assert_uint_ge(inner, 4);
}
END_TEST

/* Order of the text, duplicates and dead code change nothing once the program is canonical. */
START_TEST(test_disguised)
{
    uint64_t seed = sx_test_seed();
    sx_rng rng = {seed};
    sx_transformer options = sx_transformer_default(5);
    sx_graph *graph;
    sx_graph *canonical;
    ck_sx_ok(&cx, sx_transformer_make(&cx, &options, &graph));
    ck_sx_ok(&cx, sx_graph_canon(&cx, sx_gen_disguise(&cx, &rng, graph), &canonical));
    const sx_roll *roll = roll_of(canonical);
    check_whole(roll);
    ck_assert_uint_eq(most_used(roll), 5);
}
END_TEST

/* Short repetitions are left to the rules. */
START_TEST(test_chains)
{
    sx_graph *graph;
    sx_node_id x;
    sx_node_id one;
    sx_type type = {.dtype = SX_F32, .rank = 1, .dim = {sx_dim_of(8)}};
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("chain"), NULL, &graph));
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "x", false, &type, &x));
    ck_sx_ok(&cx, sx_build_scalar(&cx, graph, &type, 1, &one));
    for (uint32_t i = 0; i < 200; i++) {
        ck_sx_ok(&cx, sx_build_binary(&cx, graph, SX_OP_ADD, x, one, &x));
    }
    ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, SX_SPAN_LITERAL("y"), x));
    ck_assert_ptr_null(roll_of(graph));
}
END_TEST

START_TEST(test_random_stacks)
{
    uint64_t seed = sx_test_seed();
    uint32_t rolled = 0;
    for (uint32_t i = 0; i < 400; i++) {
        sx_rng rng = {seed + i};
        sx_graph *graph = sx_gen_stack(&cx, &rng);
        if (i % 2 == 0) {
            ck_sx_ok(&cx, sx_graph_canon(&cx, graph, &graph));
        }
        const sx_roll *roll = roll_of(graph);
        if (roll != NULL) {
            check_whole(roll);
            rolled++;
        }
    }
    ck_assert_uint_gt(rolled, 100);
}
END_TEST

/* Random programs: whatever is cut comes together again. */
START_TEST(test_random)
{
    uint64_t seed = sx_test_seed();
    for (uint32_t i = 0; i < 150; i++) {
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.node_count = 10 + (uint32_t)sx_rng_below(&rng, 150);
        options.symbols = (uint32_t)sx_rng_below(&rng, 2);
        const sx_roll *roll = roll_of(sx_gen_graph(&cx, &rng, &options));
        if (roll != NULL) {
            check_whole(roll);
        }
    }
}
END_TEST

/* Two neighbours as one part, anywhere, twice over: the same program. */
START_TEST(test_joined)
{
    sx_transformer options = sx_transformer_default(4);
    options.encoder_layers = (uint32_t)_i;
    options.caches = true;
    const sx_roll *roll = roll_transformer(&options);
    for (uint32_t u = 0; u + 1 < roll->use_count; u++) {
        const sx_roll *outer;
        const sx_roll *inner;
        ck_sx_ok(&cx, sx_roll_join(&cx, roll, u, &outer, &inner));
        ck_assert_uint_eq(outer->use_count, roll->use_count - 1);
        ck_assert_uint_eq(outer->part_count, roll->part_count + 1);
        ck_assert_ptr_eq(outer->part[roll->part_count].program, inner->whole);
        check_whole(outer);
        check_whole(inner);
        if (u + 1 < outer->use_count) {
            const sx_roll *wider;
            ck_sx_ok(&cx, sx_roll_join(&cx, outer, u, &wider, &inner));
            check_whole(wider);
            check_whole(inner);
        }
    }
}
END_TEST

START_TEST(test_wrong_interface)
{
    sx_transformer options = sx_transformer_default(3);
    const sx_roll *roll = roll_transformer(&options);
    const sx_graph *program[8];
    sx_graph *whole;
    ck_assert_uint_le(roll->part_count, 8);
    for (uint32_t p = 0; p < roll->part_count; p++) {
        program[p] = roll->part[0].program;
    }
    ck_sx_fails(&cx, sx_roll_expand(&cx, roll, program, &whole), SX_INPUT, "part 1");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("roll");
    TCase *tcase = tcase_create("roll");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_layers, 0, 5);
    tcase_add_test(tcase, test_masks_are_copied);
    tcase_add_test(tcase, test_one_layer);
    tcase_add_test(tcase, test_alternating);
    tcase_add_test(tcase, test_odd_layer);
    tcase_add_test(tcase, test_two_stacks);
    tcase_add_test(tcase, test_tapped);
    tcase_add_test(tcase, test_towers);
    tcase_add_test(tcase, test_disguised);
    tcase_add_test(tcase, test_chains);
    tcase_add_test(tcase, test_random);
    tcase_add_test(tcase, test_random_stacks);
    tcase_add_loop_test(tcase, test_joined, 0, 3);
    tcase_add_test(tcase, test_wrong_interface);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
