#include "core/eval/eval.h"
#include "core/ir/extent.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/fused.h"
#include "core/ir/ir.h"
#include "tests/lib/gen_graph.h"

#define GRAPHS 300 /* per randomised test */

static void print_text(sx_ctx *cx, const sx_graph *graph, sx_buf *text)
{
    sx_buf_init(text, 16 << 20);
    ck_sx_ok(cx, sx_graph_print(cx, graph, text));
}

/* Equal node by node, with numbers of nodes and symbols as they are. */
static void expect_equal(const sx_graph *a, const sx_graph *b)
{
    ck_assert(sx_span_equal(a->name, b->name));
    ck_assert_uint_eq(a->node_count, b->node_count);
    ck_assert_uint_eq(a->symbol_count, b->symbol_count);
    ck_assert_uint_eq(a->output_count, b->output_count);
    for (uint32_t i = 0; i < a->symbol_count; i++) {
        ck_assert(sx_span_equal(a->symbol[i].name, b->symbol[i].name));
        ck_assert_int_eq(a->symbol[i].low, b->symbol[i].low);
        ck_assert_int_eq(a->symbol[i].high, b->symbol[i].high);
    }
    for (uint32_t i = 0; i < a->node_count; i++) {
        const sx_node *x = &a->node[i];
        const sx_node *y = &b->node[i];
        ck_assert_msg(x->op == y->op && x->input_count == y->input_count, "node %u", i);
        ck_assert_msg(sx_attr_equal(sx_graph_attr(a, x), sx_graph_attr(b, y)), "node %u: %s", i,
                      sx_op_info_of(x->op)->name);
        ck_assert_msg(sx_type_equal(&x->type, &y->type), "node %u", i);
        for (uint32_t k = 0; k < x->input_count; k++) {
            ck_assert_uint_eq(sx_graph_input(a, x, k).i, sx_graph_input(b, y, k).i);
        }
    }
    for (uint32_t i = 0; i < a->output_count; i++) {
        ck_assert(sx_span_equal(a->output[i].name, b->output[i].name));
        ck_assert_uint_eq(a->output[i].node.i, b->output[i].node.i);
    }
}

START_TEST(test_random_round_trip)
{
    uint64_t seed = sx_test_seed();
    uint32_t seen[SX_OP_COUNT] = {0};
    for (uint32_t i = 0; i < GRAPHS; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 256 << 20);
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.ops = sx_gen_all_ops();
        options.sums = i % 2 == 1;
        options.symbols = i % 4;
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        sx_buf text;
        print_text(&cx, graph, &text);
        sx_graph *back;
        sx_code code = sx_graph_parse(&cx, sx_buf_span(&text), &back);
        ck_assert_msg(code == SX_OK, "seed %llu graph %u: %s\n%.*s", (unsigned long long)seed, i,
                      cx.error.text, (int)text.len, (const char *)text.ptr);
        expect_equal(graph, back);
        sx_buf again;
        print_text(&cx, back, &again);
        ck_assert(sx_span_equal(sx_buf_span(&text), sx_buf_span(&again)));
        for (uint32_t n = 0; n < graph->node_count; n++) {
            seen[graph->node[n].op]++;
        }
        sx_buf_fini(&text);
        sx_buf_fini(&again);
        sx_ctx_fini(&cx);
    }
    for (uint32_t op = 0; op < SX_OP_COUNT; op++) { /* the generator reaches every operation */
        ck_assert_msg(seen[op] > 0, "%s never drawn", sx_op_info_of((sx_op)op)->name);
    }
}
END_TEST

START_TEST(test_canon_of_disguise)
{
    uint64_t seed = sx_test_seed();
    for (uint32_t i = 0; i < GRAPHS; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 512 << 20);
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.ops = sx_gen_all_ops();
        options.sums = i % 2 == 1;
        options.symbols = i % 4;
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        sx_graph *other = sx_gen_disguise(&cx, &rng, graph);
        sx_graph *a;
        sx_graph *b;
        ck_sx_ok(&cx, sx_graph_canon(&cx, graph, &a));
        ck_sx_ok(&cx, sx_graph_canon(&cx, other, &b));
        ck_sx_ok(&cx, sx_graph_check(&cx, a));
        sx_buf text;
        sx_buf text_other;
        print_text(&cx, a, &text);
        print_text(&cx, b, &text_other);
        ck_assert_msg(sx_span_equal(sx_buf_span(&text), sx_buf_span(&text_other)),
                      "seed %llu graph %u:\n%.*s\n%.*s", (unsigned long long)seed, i, (int)text.len,
                      (const char *)text.ptr, (int)text_other.len, (const char *)text_other.ptr);
        sx_key key;
        sx_key key_other;
        ck_sx_ok(&cx, sx_graph_key(&cx, graph, &key));
        ck_sx_ok(&cx, sx_graph_key(&cx, other, &key_other));
        ck_assert(sx_key_equal(&key, &key_other));
        sx_graph *twice; /* the canonical form is its own */
        ck_sx_ok(&cx, sx_graph_canon(&cx, a, &twice));
        expect_equal(a, twice);
        sx_buf_fini(&text);
        sx_buf_fini(&text_other);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_bind)
{
    uint64_t seed = sx_test_seed();
    for (uint32_t i = 0; i < GRAPHS; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 256 << 20);
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.ops = sx_gen_all_ops();
        options.sums = i % 2 == 1;
        options.symbols = 1 + i % 3;
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        sx_binding binding[3];
        ck_assert_uint_eq(sx_gen_binding(&rng, graph, binding), options.symbols);
        sx_graph *bound;
        ck_sx_ok(&cx, sx_graph_bind(&cx, graph, binding, options.symbols, &bound));
        ck_sx_ok(&cx, sx_graph_check(&cx, bound));
        ck_assert_uint_eq(bound->symbol_count, 0);
        ck_assert_uint_eq(bound->node_count, graph->node_count);
        int64_t value[SX_SYMBOLS_MAX] = {0};
        for (uint32_t s = 0; s < options.symbols; s++) {
            value[s] = binding[s].value;
        }
        sx_symbols_derive(graph->symbol, graph->symbol_count, value);
        for (uint32_t n = 0; n < graph->node_count; n++) {
            const sx_type *from = &graph->node[n].type;
            const sx_type *to = &bound->node[n].type;
            ck_assert(to->dtype == from->dtype && to->rank == from->rank && sx_type_is_static(to));
            for (uint32_t d = 0; d < from->rank; d++) {
                int64_t extent = sx_dim_is_constant(from->dim[d]) ? 1 : value[from->dim[d].symbol];
                ck_assert_int_eq(to->dim[d].scale, from->dim[d].scale * extent);
            }
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_bad_bindings)
{
    static const char text[] = "sx 1 graph \"g\" (b in [2, 8], n in [1, 3]) {"
                               "%x = parameter {name = \"x\", weight = 0} : f32[b, n]"
                               "return %x as \"y\"}";
    static const struct {
        const char *name[3];
        int64_t value[3];
        uint32_t count;
        const char *error;
    } cases[] = {
        {{"b"}, {2}, 1, "symbol \"n\" has no value, within [1, 3]"},
        {{"b", "n"}, {9, 1}, 2, "symbol \"b\" is 9, within [2, 8]"},
        {{"b", "n"}, {2, 0}, 2, "symbol \"n\" is 0, within [1, 3]"},
        {{"b", "n", "b"}, {2, 1, 2}, 3, "symbol \"b\" is bound twice"},
        {{"b", "n", "batch"},
         {2, 1, 2},
         3,
         "symbol \"batch\" is unknown; the graph has those named \"b\", \"n\""},
        {{NULL}, {0}, 0, "symbol \"b\" has no value"},
    };
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    sx_graph *graph;
    sx_graph *bound;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    for (uint32_t i = 0; i < SX_COUNT(cases); i++) {
        sx_binding binding[3];
        for (uint32_t k = 0; k < cases[i].count; k++) {
            binding[k] = (sx_binding){sx_span_of(cases[i].name[k]), cases[i].value[k]};
        }
        ck_sx_fails(&cx, sx_graph_bind(&cx, graph, binding, cases[i].count, &bound), SX_INPUT,
                    cases[i].error);
    }
    sx_binding both[2] = {{sx_span_of("n"), 3}, {sx_span_of("b"), 8}};
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, both, 2, &bound));
    sx_ctx_fini(&cx);
}
END_TEST

/* Residues, or 0 and 1, for one parameter of a static graph. */
static sx_tensor random_tensor(sx_ctx *cx, sx_rng *rng, const sx_type *type)
{
    int64_t count = sx_tensor_elements(type);
    uint64_t *data = SX_NEW_ARRAY(cx, uint64_t, (size_t)count);
    ck_assert_ptr_nonnull(data);
    for (int64_t i = 0; i < count; i++) {
        data[i] = sx_rng_below(rng, type->dtype == SX_BOOL ? 2 : INT32_MAX);
    }
    return (sx_tensor){*type, data};
}

/* The canonical form computes what the program computes; the interpreter in exact arithmetic says so. */
START_TEST(test_canon_keeps_the_meaning)
{
    uint64_t seed = sx_test_seed();
    for (uint32_t i = 0; i < GRAPHS; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 512 << 20);
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.ops = sx_gen_all_ops();
        options.sums = i % 2 == 1;
        for (uint32_t op = 0; op < SX_OP_COUNT; op++) { /* what one rank computes */
            if (sx_op_info_of((sx_op)op)->op_class == SX_OPCLASS_COLLECTIVE) {
                sx_bits_drop(&options.ops, op);
            }
        }
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        sx_graph *canonical;
        ck_sx_ok(&cx, sx_graph_canon(&cx, sx_gen_disguise(&cx, &rng, graph), &canonical));
        sx_binding binding[3];
        uint32_t symbols = sx_gen_binding(&rng, graph, binding);
        sx_graph *a;
        sx_graph *b;
        ck_sx_ok(&cx, sx_graph_bind(&cx, graph, binding, symbols, &a));
        ck_sx_ok(&cx, sx_graph_bind(&cx, canonical, binding, symbols, &b));
        sx_tensor argument[512];
        uint32_t count = 0;
        for (uint32_t n = 0; n < a->node_count; n++) {
            if (a->node[n].op == SX_OP_PARAMETER) {
                ck_assert_uint_lt(count, SX_COUNT(argument));
                argument[count++] = random_tensor(&cx, &rng, &a->node[n].type);
            }
        }
        sx_tensor x[3];
        sx_tensor y[3];
        ck_assert_uint_eq(a->output_count, b->output_count);
        ck_sx_ok(&cx, sx_graph_eval(&cx, a, SX_EVAL_MODP, argument, count, x, a->output_count));
        ck_sx_ok(&cx, sx_graph_eval(&cx, b, SX_EVAL_MODP, argument, count, y, b->output_count));
        for (uint32_t k = 0; k < a->output_count; k++) {
            ck_assert(sx_type_equal(&x[k].type, &y[k].type));
            size_t size = (size_t)sx_tensor_elements(&x[k].type) * 8;
            ck_assert_msg(memcmp(x[k].data, y[k].data, size) == 0, "seed %llu graph %u output %u",
                          (unsigned long long)seed, i, k);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/text");
    TCase *tcase = tcase_create("text");
    tcase_add_test(tcase, test_random_round_trip);
    tcase_add_test(tcase, test_canon_of_disguise);
    tcase_add_test(tcase, test_bind);
    tcase_add_test(tcase, test_bad_bindings);
    tcase_add_test(tcase, test_canon_keeps_the_meaning);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
