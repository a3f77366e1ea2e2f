/* Plain programs: equal to what they are made of, to the bit, and a fixed point of the canonical form. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/egraph/tensor.h"
#include "core/eval/eval.h"
#include "core/ir/effect.h"
#include "core/ir/origin.h"
#include "core/ir/plain.h"
#include "core/ir/shard.h"
#include "tests/lib/gen_graph.h"
#include "tests/lib/ir.h"

static sx_graph *parse(sx_ctx *cx, const char *text)
{
    sx_graph *graph;
    sx_code code = sx_graph_parse(cx, sx_span_of(text), &graph);
    ck_assert_msg(code == SX_OK, "%s\n%s", cx->error.text, text);
    return graph;
}

static bool has_elements(const sx_graph *graph, sx_node_id node)
{
    const sx_type *type = &sx_graph_node(graph, node)->type;
    bool some = true;
    for (uint32_t d = 0; d < type->rank; d++) {
        some = some && type->dim[d].scale > 0;
    }
    return some;
}

static bool is_plain(const sx_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        const sx_attr *attr = sx_graph_attr(graph, node);
        bool leaf = node->op == SX_OP_PARAMETER || node->op == SX_OP_CONSTANT;
        for (uint32_t k = 0; k < node->input_count; k++) {
            if (!has_elements(graph, sx_graph_input(graph, node, k))) {
                return false;
            }
        }
        if (!leaf && !has_elements(graph, (sx_node_id){n})) {
            return false;
        }
        bool pads = (attr->present & SX_A(low)) != 0;
        for (uint32_t d = 0; pads && d < attr->low.count; d++) {
            if (attr->low.v[d] < 0 || attr->high.v[d] < 0) {
                return false;
            }
        }
    }
    return true;
}

static uint32_t count_op(const sx_graph *graph, sx_op op)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        count += graph->node[n].op == op;
    }
    return count;
}

static void print_canonical(sx_ctx *cx, const sx_graph *graph, sx_buf *text)
{
    sx_graph *canonical;
    sx_buf_init(text, SX_TEXT_BYTES_MAX);
    ck_sx_ok(cx, sx_graph_canon(cx, graph, &canonical));
    ck_sx_ok(cx, sx_graph_check(cx, canonical));
    ck_assert(is_plain(canonical));
    ck_sx_ok(cx, sx_graph_print(cx, canonical, text));
}

/* The canonical form of a static graph has its values, and is its own canonical form. */
static void expect_equal(sx_ctx *cx, sx_rng *rng, const sx_graph *graph, sx_eval_mode mode)
{
    sx_buf text, again;
    sx_graph *canonical;
    sx_tensor *x = SX_NEW_ARRAY(cx, sx_tensor, graph->node_count);
    sx_tensor a[4], b[4];
    uint32_t count = 0;
    print_canonical(cx, graph, &text);
    ck_sx_ok(cx, sx_graph_parse(cx, sx_buf_span(&text), &canonical));
    print_canonical(cx, canonical, &again);
    ck_assert(sx_span_equal(sx_buf_span(&text), sx_buf_span(&again)));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->node[n].op == SX_OP_PARAMETER) {
            sx_test_tensor(cx, rng, mode, &graph->node[n].type, &x[count++]);
        }
    }
    ck_assert_uint_le(graph->output_count, SX_COUNT(a));
    ck_sx_ok(cx, sx_graph_eval(cx, graph, mode, x, count, a, graph->output_count));
    ck_sx_ok(cx, sx_graph_eval(cx, canonical, mode, x, count, b, graph->output_count));
    for (uint32_t k = 0; k < graph->output_count; k++) {
        sx_test_tensor_equal(&a[k], &b[k], (const char *)text.ptr);
    }
    sx_buf_fini(&text);
    sx_buf_fini(&again);
}

/* How much is taken away: elements, or all of them. */
static bool takes_all(const sx_test_op *t)
{
    uint32_t first = t->op == SX_OP_CONVOLUTION ? 2 : 0;
    bool all = false;
    for (uint32_t k = 0; k < t->attr.low.count; k++) {
        int64_t extent = t->input[0].dim[first + k].scale;
        int64_t reach = (extent - 1) * (t->op == SX_OP_PAD ? t->attr.interior.v[k] + 1 : 1) + 1;
        all = all || -t->attr.low.v[k] >= reach || -t->attr.high.v[k] >= reach;
    }
    return all;
}

/* Windows of the widest range of paddings, one node each. */
START_TEST(one_node)
{
    static const sx_op ops[] = {SX_OP_PAD, SX_OP_REDUCE_WINDOW, SX_OP_CONVOLUTION};
    sx_rng rng = {sx_test_seed()};
    uint32_t cropped = 0, gone = 0;
    for (uint32_t round = 0; round < 600; round++) {
        sx_ctx cx;
        sx_test_op t;
        sx_graph *graph;
        sx_node_id input[2], id;
        sx_ctx_init(&cx, (size_t)64 << 20);
        sx_test_op_make(&cx, &rng, ops[_i], &t);
        for (uint32_t d = 0; d < t.attr.low.count; d++) {
            int64_t more = (int64_t)sx_rng_below(&rng, 9) - 4;
            t.attr.low.v[d] -= more;
            t.attr.high.v[d] += more;
        }
        ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("one"), NULL, &graph));
        ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "x", false, &t.input[0], &input[0]));
        if (t.input_count > 1) {
            ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "y", false, &t.input[1], &input[1]));
        }
        ck_sx_ok(&cx, sx_graph_add(&cx, graph, t.op, &t.attr, input, t.input_count, &id));
        ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, SX_SPAN_LITERAL("z"), id));
        cropped += !is_plain(graph);
        gone += takes_all(&t);
        bool sums = t.op == SX_OP_CONVOLUTION || t.attr.reducer < SX_MAX;
        expect_equal(&cx, &rng, graph, sums && round % 2 == 0 ? SX_EVAL_MODP : SX_EVAL_TYPED);
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(cropped, 300);
    ck_assert_uint_gt(gone, 30);
}
END_TEST

/* Round 0 of the loop crops, round 1 has tensors without elements too. */
START_TEST(programs)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t cropped = 0;
    for (uint32_t round = 0; round < 300; round++) {
        sx_ctx cx;
        sx_binding binding[SX_SYMBOLS_MAX];
        sx_ctx_init(&cx, (size_t)256 << 20);
        sx_gen_options options = sx_gen_default();
        options.crops = true;
        options.empties = _i == 1;
        options.symbols = round % 3;
        options.sums = options.symbols > 0 && round % 2 == 0;
        options.dtypes = 1u << SX_F32 | 1u << SX_I16 | 1u << SX_BOOL;
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        cropped += !is_plain(graph);
        uint32_t symbols = sx_gen_binding(&rng, graph, binding);
        sx_key one, two;
        ck_sx_ok(&cx, sx_graph_key(&cx, graph, &one));
        ck_sx_ok(&cx, sx_graph_key(&cx, sx_gen_disguise(&cx, &rng, graph), &two));
        ck_assert(sx_key_equal(&one, &two));
        sx_graph *bound;
        ck_sx_ok(&cx, sx_graph_bind(&cx, graph, binding, symbols, &bound));
        expect_equal(&cx, &rng, bound, SX_EVAL_TYPED);
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(cropped, _i == 1 ? 150 : 20);
}
END_TEST

/* What a reduction over nothing gives, for every type that reductions have. */
START_TEST(nothing_left)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t dtype = 0; dtype < SX_DTYPE_COUNT; dtype++) {
        for (uint32_t r = 0; r < SX_REDUCER_COUNT; r++) {
            sx_ctx cx;
            sx_graph *graph;
            sx_node_id x, y;
            sx_type type = {.dtype = (sx_dtype)dtype, .rank = 1, .dim = {sx_dim_of(3)}};
            sx_attr attr = {.present = sx_op_info_of(SX_OP_REDUCE_WINDOW)->attrs,
                            .stride = {1, {1}},
                            .low = {1, {-4}},
                            .high = {1, {5}},
                            .window = {1, {2}},
                            .dilation = {1, {1}},
                            .reducer = (sx_reducer)r};
            sx_ctx_init(&cx, (size_t)64 << 20);
            ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("none"), NULL, &graph));
            ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "x", false, &type, &x));
            if (sx_graph_add(&cx, graph, SX_OP_REDUCE_WINDOW, &attr, &x, 1, &y) == SX_OK) {
                ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, SX_SPAN_LITERAL("y"), y));
                expect_equal(&cx, &rng, graph, SX_EVAL_TYPED);
            } else {
                ck_assert(dtype == SX_BOOL && r >= SX_MAX);
            }
            sx_ctx_fini(&cx);
        }
    }
}
END_TEST

static const char cropped_text[] =
    "sx 1\ngraph \"cut\" (b in [1, 8]) mesh (dp = 2) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[b, 8] {dp = S(0)}\n"
    "%s = parameter {name = \"s\", weight = 0} : f32[b, 7] state = 0.5\n"
    "%z = constant {data = 0} : f32[]\n"
    "%c = pad(%x, %z) {low = [0, -2], high = [0, 1], interior = [0, 0]} : f32[b, 7] from \"crop\" "
    "\"Pad\" 18\n"
    "%n = add(%c, %s) : f32[b, 7]\n"
    "return %c as \"y\", %n as \"s\" into \"s\"\n}\n";
static const char sliced_text[] =
    "sx 1\ngraph \"cut\" (b in [1, 8]) mesh (dp = 2) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[b, 8] {dp = S(0)}\n"
    "%s = parameter {name = \"s\", weight = 0} : f32[b, 7] state = 0.5\n"
    "%z = constant {data = 0} : f32[]\n"
    "%t = slice(%x) {start = [0, 2], limit = [-1, 8], stride = [1, 1]} : f32[b, 6]\n"
    "%c = pad(%t, %z) {low = [0, 0], high = [0, 1], interior = [0, 0]} : f32[b, 7]\n"
    "%n = add(%c, %s) : f32[b, 7]\n"
    "return %c as \"y\", %n as \"s\" into \"s\"\n}\n";

/* The key is that of the slice; what stands beside a graph stays, and a plain graph is left as it is. */
START_TEST(slices)
{
    sx_ctx cx;
    sx_key one, two;
    sx_ctx_init(&cx, (size_t)64 << 20);
    sx_graph *cropped = parse(&cx, cropped_text);
    sx_graph *sliced = parse(&cx, sliced_text);
    ck_sx_ok(&cx, sx_graph_key(&cx, cropped, &one));
    ck_sx_ok(&cx, sx_graph_key(&cx, sliced, &two));
    ck_assert(sx_key_equal(&one, &two));
    const sx_graph *plain;
    ck_sx_ok(&cx, sx_graph_plain(&cx, sliced, &plain));
    ck_assert_ptr_eq(plain, sliced);
    ck_sx_ok(&cx, sx_graph_plain(&cx, cropped, &plain));
    ck_sx_ok(&cx, sx_graph_check(&cx, plain));
    ck_assert_ptr_nonnull(plain->sharding);
    ck_assert_uint_eq(plain->effects->update_count, 1);
    sx_graph *canonical;
    sx_origins *origins;
    ck_sx_ok(&cx, sx_graph_canon_origins(&cx, cropped, &canonical, &origins));
    ck_assert_uint_eq(count_op(canonical, SX_OP_SLICE), 1);
    uint32_t named = 0;
    for (uint32_t n = 0; n < canonical->node_count; n++) {
        const sx_origin *origin = sx_origin_find(origins, n);
        named += origin != NULL && canonical->node[n].op == SX_OP_PAD &&
                 sx_span_is(origin->name, "crop");
    }
    ck_assert_uint_eq(named, 1);
    sx_tensors t; /* whatever it was read from: no rule sees it */
    uint32_t in_egraph[8];
    ck_assert_uint_le(cropped->node_count, SX_COUNT(in_egraph));
    ck_sx_ok(&cx, sx_tensors_init(&cx, &t, cropped));
    ck_assert_uint_eq(sx_tensors_import(&cx, &t, cropped, in_egraph), SX_INPUT);
    ck_assert_str_eq(cx.error.text, "pad: negative padding or no elements: no rule knows of it");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.ir.plain");
    TCase *cases = tcase_create("plain");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, one_node, 0, 3);
    tcase_add_loop_test(cases, programs, 0, 2);
    tcase_add_test(cases, nothing_left);
    tcase_add_test(cases, slices);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
