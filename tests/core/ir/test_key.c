/* The key: blind for what does not matter, changed by everything that does. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/ir/fused.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"
#include "core/ir/ir.h"
#include "tests/lib/gen_graph.h"

static sx_key key_of(sx_ctx *cx, sx_span text)
{
    sx_graph *graph;
    sx_code code = sx_graph_parse(cx, text, &graph);
    ck_assert_msg(code == SX_OK, "%s:\n%.*s", cx->error.text, (int)text.len,
                  (const char *)text.ptr);
    sx_key key;
    ck_sx_ok(cx, sx_graph_key(cx, graph, &key));
    return key;
}

/* `text` with the first `from` replaced by `to`. */
static void edit(const char *text, const char *from, const char *to, sx_buf *out)
{
    const char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "'%s' is not in the text", from);
    sx_buf_init(out, 1 << 20);
    sx_buf_put(out, text, (size_t)(at - text));
    sx_buf_put_text(out, to);
    sx_buf_put_text(out, at + strlen(from));
}

static const char program[] =
    "sx 1\n"
    "graph \"g\" (b in [2, 8], c in [2, 8]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[b, 4, 4]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[4, 4]\n"
    "%s = softmax(%x) {axis = 1} : f32[b, 4, 4]\n"
    "%i = iota {axis = 0} : i32[4, 4]\n"
    "%k = constant {data = 2.5} : f32[4]\n"
    "%t = transpose(%s) {perm = [0, 2, 1]} : f32[b, 4, 4]\n"
    "%br = broadcast_in_dim(%w) {dims = [1, 2]} : f32[4, 4, 4]\n"
    "%sl = slice(%t) {start = [0, 0, 0], limit = [-1, 3, 4], stride = [1, 2, 2]} : f32[b, 2, 2]\n"
    "%r = reduce(%t) {dims = [1], reducer = add} : f32[b, 4]\n"
    "%d = dot_general(%t, %br) {lhs_contract = [1], rhs_contract = [1]} : f32[b, 4, 4, 4]\n"
    "%e = dot_general(%br, %br) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [1], "
    "rhs_contract = "
    "[1]} : f32[4, 4, 4]\n"
    "%n = rms_norm(%r, %k) {axis = 1, eps = 1e-05} : f32[b, 4]\n"
    "%a = attention(%w, %w, %w) {scale = 0.5} : f32[4, 4]\n"
    "%c = compare(%r, %n) {direction = lt} : bool[b, 4]\n"
    "%g = gather(%w, %i) {axis = 0} : f32[4, 4, 4]\n"
    "%u = subtract(%r, %n) : f32[b, 4]\n"
    "%v = convert(%u) : f16[b, 4]\n"
    "%f = fused(%w, %k) {type = f32[4, 4], body = {args = [[4, 1], [1, 0]], axes = [1], code = "
    "[arg 0, "
    "arg 1, reduce maximum 0, subtract 1 2, index 0 : i32, convert 4, compare lt 3 5 : bool, imm "
    "2, select "
    "6 5 7]}} : f32[4]\n"
    "return %d as \"d\", %sl as \"sl\", %e as \"e\", %a as \"a\", %c as \"c\", %g as \"g\", %v as "
    "\"v\", "
    "%f as \"f\"\n}\n";

START_TEST(test_every_field)
{
    static const struct {
        const char *from;
        const char *to;
    } edits[] = {
        {"b in [2, 8]", "b in [3, 8]"},
        {"b in [2, 8]", "b in [2, 9]"},
        {"c in [2, 8]", "d in [2, 8]"},
        {"name = \"x\"", "name = \"y\""},
        {"name = \"x\", weight = 0", "name = \"x\", weight = 1"},
        {"%w = parameter {name = \"w\", weight = 1} : f32[4, 4]\n",
         "%w0 = parameter {name = \"z\", weight = 1} : f32[4, 4]\n"
         "%w = parameter {name = \"w\", weight = 1} : f32[4, 4]\n"},
        {"softmax(%x)", "log_softmax(%x)"},
        {"softmax(%x) {axis = 1}", "softmax(%x) {axis = 2}"},
        {"iota {axis = 0} : i32", "iota {axis = 1} : i32"},
        {"iota {axis = 0} : i32", "iota {axis = 0} : i64"},
        {"data = 2.5", "data = 2.25"},
        {"data = 2.5", "data = [2.5, 2.5, 2.5, 2.25]"},
        {"perm = [0, 2, 1]", "perm = [0, 1, 2]"},
        {"dims = [1, 2]} : f32[4, 4, 4]", "dims = [0, 2]} : f32[4, 4, 4]"},
        {"start = [0, 0, 0]", "start = [0, 0, 1]"},
        {"limit = [-1, 3, 4], stride = [1, 2, 2]} : f32[b, 2, 2]",
         "limit = [-1, 4, 4], stride = [1, 2, 2]} : f32[b, 2, 2]"},
        {"limit = [-1, 3, 4], stride = [1, 2, 2]} : f32[b, 2, 2]",
         "limit = [2, 3, 4], stride = [1, 2, 2]} : f32[2, 2, 2]"},
        {"stride = [1, 2, 2]", "stride = [1, 2, 3]"},
        {"dims = [1], reducer", "dims = [2], reducer"},
        {"reducer = add", "reducer = multiply"},
        {"{lhs_contract = [1], rhs_contract = [1]}", "{lhs_contract = [2], rhs_contract = [1]}"},
        {"{lhs_contract = [1], rhs_contract = [1]}", "{lhs_contract = [1], rhs_contract = [2]}"},
        {"lhs_batch = [0], rhs_batch = [0], lhs_contract = [1]",
         "lhs_batch = [2], rhs_batch = [0], lhs_contract = [1]"},
        {"lhs_batch = [0], rhs_batch = [0], lhs_contract = [1]",
         "lhs_batch = [0], rhs_batch = [2], lhs_contract = [1]"},
        {"eps = 1e-05", "eps = 1.0000000000000002e-05"},
        {"scale = 0.5", "scale = -0.5"},
        {"direction = lt", "direction = le"},
        {"compare(%r, %n)", "compare(%n, %r)"},
        {"subtract(%r, %n)", "subtract(%n, %r)"},
        {"subtract(%r, %n)", "add(%r, %n)"},
        {"gather(%w, %i)", "gather(%a, %i)"},
        {"gather(%w, %i) {axis = 0}", "gather(%w, %i) {axis = 1}"},
        {"f16[b, 4]", "bf16[b, 4]"},
        {"args = [[4, 1], [1, 0]]", "args = [[1, 4], [1, 0]]"},
        {"args = [[4, 1], [1, 0]]", "args = [[4, 1], [0, 0]]"},
        {"args = [[4, 1], [1, 0]]", "args = [[4, 1], [0, 0] + 3]"},
        {"axes = [1]", "axes = [0, 1]"},
        {"reduce maximum", "reduce minimum"},
        {"subtract 1 2", "subtract 2 1"},
        {"subtract 1 2", "add 1 2"},
        {"index 0 : i32", "index 0 : i64"},
        {"compare lt 3", "compare gt 3"},
        {"imm 2", "imm 2.0000000000000004"},
        {"select 6 5 7", "select 6 7 5"},
        {"return %d as \"d\", %sl as \"sl\"", "return %sl as \"sl\", %d as \"d\""},
        {"return %d as \"d\"", "return %d as \"q\""},
        {"return %d as \"d\"", "return %e as \"d\""},
        {"return %d as \"d\",", "return"},
        {"%f as \"f\"", "%f as \"f\", %f as \"f2\""},
    };
    sx_ctx cx;
    sx_ctx_init(&cx, 64 << 20);
    sx_key seen[SX_COUNT(edits) + 1];
    seen[0] = key_of(&cx, sx_span_of(program));
    for (uint32_t i = 0; i < SX_COUNT(edits); i++) {
        sx_buf text;
        edit(program, edits[i].from, edits[i].to, &text);
        if (strcmp(edits[i].from, "axes = [1]") == 0) { /* the result is full then */
            sx_buf full;
            sx_buf_put_u8(&text, 0);
            edit((const char *)text.ptr, "}} : f32[4]", "}} : f32[4, 4]", &full);
            sx_buf_fini(&text);
            text = full;
        }
        seen[i + 1] = key_of(&cx, sx_buf_span(&text));
        for (uint32_t k = 0; k <= i; k++) {
            ck_assert_msg(!sx_key_equal(&seen[i + 1], &seen[k]), "'%s': same key as %u",
                          edits[i].to, k);
        }
        sx_buf_fini(&text);
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_what_does_not_matter)
{
    static const struct {
        const char *from;
        const char *to;
    } edits[] = {
        {"graph \"g\"", "graph \"another name\""},
        {"b in [2, 8], c in [2, 8]", "c in [2, 8], b in [2, 8]"},
        {"%s = softmax(%x)", "%dead = negate(%x) : f32[b, 4, 4] %s = softmax(%x)"},
        {"%t = transpose(%s) {perm = [0, 2, 1]} : f32[b, 4, 4]\n",
         "%s2 = softmax(%x) {axis = 1} : f32[b, 4, 4] %t = transpose(%s2) {perm = [0, 2, 1]} : "
         "f32[b, 4, "
         "4]\n"},
        {"data = 2.5", "data = [2.5, 2.5, 2.5, 2.5]"},
        {"data = 2.5", "data = 0x40200000"},
        {"%u = subtract(%r, %n)", "%r2 = reduce(%t) {dims = [1], reducer = add} : f32[b, 4]\n"
                                  "%u = subtract(%r2, %n)"}, /* %r has other users */
        {"iota {axis = 0}", "iota // comment\n {axis = 0}"},
    };
    sx_ctx cx;
    sx_ctx_init(&cx, 64 << 20);
    sx_key key = key_of(&cx, sx_span_of(program));
    for (uint32_t i = 0; i < SX_COUNT(edits); i++) {
        sx_buf text;
        edit(program, edits[i].from, edits[i].to, &text);
        sx_key other = key_of(&cx, sx_buf_span(&text));
        ck_assert_msg(sx_key_equal(&key, &other), "'%s' changes the key", edits[i].to);
        sx_buf_fini(&text);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- random: one field of one node that the outputs need, changed so that the graph still checks ---- */

static void change_type(sx_rng *rng, sx_type *type)
{
    if (type->rank > 0 && sx_rng_below(rng, 2) == 0) {
        type->dim[sx_rng_below(rng, type->rank)].scale++;
    } else {
        type->dtype = (sx_dtype)((type->dtype + 1) % SX_DTYPE_COUNT);
    }
}

static void change_ints(sx_rng *rng, sx_ints *ints)
{
    if (ints->count > 0) {
        ints->v[sx_rng_below(rng, ints->count)] += sx_rng_below(rng, 2) == 0 ? 1 : -1;
    }
}

static void change_extents(sx_rng *rng, sx_extents *extents)
{
    if (extents->count > 0) {
        extents->v[sx_rng_below(rng, extents->count)].scale++;
    }
}

static void change_body(sx_ctx *cx, sx_rng *rng, const sx_body **body)
{
    sx_body *copy = SX_NEW(cx, sx_body);
    ck_assert_ptr_nonnull(copy);
    *copy = **body;
    sx_instr *in = &copy->instr[sx_rng_below(rng, copy->instr_count)];
    switch (sx_rng_below(rng, 6)) {
    case 0: in->x++; break;
    case 1: in->imm += in->kind == SX_BODY_IMM ? 1.0 : 0.0; break;
    case 2:
        in->op = in->kind == SX_BODY_APPLY ? (sx_op)((in->op + 1) % SX_OP_COUNT) : in->op;
        break;
    case 3:
        if (copy->arg_count > 0) {
            copy->access[0].stride[0].scale = copy->access[0].stride[0].scale == 0 ? 1 : 0;
        }
        break;
    case 4: in->direction = (sx_direction)((in->direction + 1) % SX_DIRECTION_COUNT); break;
    default: in->reducer = (sx_reducer)((in->reducer + 1) % SX_REDUCER_COUNT); break;
    }
    *body = copy;
}

static void change_data(sx_ctx *cx, sx_rng *rng, sx_span *data)
{
    uint8_t *copy = sx_alloc(cx, data->len);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, data->ptr, data->len);
    copy[sx_rng_below(rng, data->len)] ^= 1;
    data->ptr = copy;
}

static void change_pairs(sx_rng *rng, sx_rank_pairs *pairs)
{
    pairs->count = pairs->count > 0 ? (uint32_t)sx_rng_below(rng, pairs->count) : 0;
}

/* The first result becomes another value of the same type, where there is one. */
static void change_program(sx_ctx *cx, sx_rng *rng, const sx_program **changed)
{
    sx_graph graph = *(*changed)->graph;
    sx_output output[SX_PROGRAM_RESULTS_MAX];
    memcpy(output, graph.output, graph.output_count * sizeof(*output));
    graph.output = output;
    const sx_type *type = sx_program_result(*changed, 0);
    uint32_t other = (uint32_t)sx_rng_below(rng, graph.node_count);
    if (sx_type_equal(&graph.node[other].type, type)) {
        output[0].node.i = other;
        ck_sx_ok(cx, sx_program_make(cx, &graph, changed));
    }
}

#define CHANGE_INT(field) attr->field ^= 1
#define CHANGE_INTS(field) change_ints(rng, &attr->field)
#define CHANGE_EXTENTS(field) change_extents(rng, &attr->field)
#define CHANGE_FLOAT(field) attr->field += 0.125
#define CHANGE_REDUCER(field) attr->field = (sx_reducer)((attr->field + 1) % SX_REDUCER_COUNT)
#define CHANGE_DIRECTION(field) attr->field = (sx_direction)((attr->field + 1) % SX_DIRECTION_COUNT)
#define CHANGE_TYPE(field) change_type(rng, &attr->field)
#define CHANGE_BYTES(field) change_data(cx, rng, &attr->field)
#define CHANGE_NAME(field) change_data(cx, rng, &attr->field)
#define CHANGE_BODY(field) change_body(cx, rng, &attr->field)
#define CHANGE_PAIRS(field) change_pairs(rng, &attr->field)
#define CHANGE_PROGRAM(field) change_program(cx, rng, &attr->field)

static void change_field(sx_ctx *cx, sx_rng *rng, uint32_t field, sx_attr *attr)
{
#define SX_ATTR(name_, kind, help)  \
    if (field == SX_ATTR_##name_) { \
        CHANGE_##kind(name_);       \
    }
#include "core/ir/attrs.def"
#undef SX_ATTR
}

/* `graph` with the attribute of one node replaced; NULL if that is no program. */
static sx_graph *rebuilt(sx_ctx *cx, const sx_graph *graph, uint32_t changed, const sx_attr *attr)
{
    sx_graph *to;
    ck_sx_ok(cx, sx_graph_make(cx, graph->name, NULL, &to));
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        uint32_t symbol;
        const sx_symbol *s = &graph->symbol[i];
        ck_sx_ok(cx, sx_graph_add_symbol(cx, to, s->name, s->low, s->high, &symbol));
    }
    sx_code code = SX_OK;
    for (uint32_t i = 0; i < graph->node_count && code == SX_OK; i++) {
        const sx_node *node = &graph->node[i];
        sx_node_id id;
        code = sx_graph_add(cx, to, node->op, i == changed ? attr : sx_graph_attr(graph, node),
                            node->input_count > 0 ? &graph->input[node->input_first] : NULL,
                            node->input_count, &id);
    }
    for (uint32_t i = 0; i < graph->output_count && code == SX_OK; i++) {
        code = sx_graph_add_output(cx, to, graph->output[i].name, graph->output[i].node);
    }
    code = code == SX_OK ? sx_sharding_copy(cx, graph, NULL, to) : code;
    code = code == SX_OK ? sx_graph_check(cx, to) : code;
    sx_ctx_reset_error(cx);
    return code == SX_OK ? to : NULL;
}

static void mark_needed(const sx_graph *graph, bool *needed)
{
    for (uint32_t i = 0; i < graph->output_count; i++) {
        needed[graph->output[i].node.i] = true;
    }
    for (uint32_t i = graph->node_count; i-- > 0;) {
        const sx_node *node = &graph->node[i];
        needed[i] = needed[i] || node->op == SX_OP_PARAMETER;
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t input = sx_graph_input(graph, node, k).i;
            needed[input] = needed[input] || needed[i];
        }
    }
}

/* Is the origin along dimension d the same number of elements from the front, where the numbers tell? Counting from the
 * other end makes no other crop where as many elements lie before the part as behind it. */
static bool same_place(const sx_type *from, const sx_attr *a, const sx_attr *b, uint32_t d)
{
    const sx_attr *of[] = {a, b};
    int64_t front[2];
    bool back[2] = {false, false}, whole = sx_dim_equal(from->dim[d], a->type.dim[d]);
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < of[k]->dims.count; i++) {
            back[k] = back[k] || of[k]->dims.v[i] == (int64_t)d;
        }
        sx_dim origin = of[k]->origin.v[d], part = of[k]->type.dim[d];
        front[k] = back[k] ? from->dim[d].scale - part.scale - origin.scale : origin.scale;
    }
    bool numbers = whole ? sx_dim_is_constant(a->origin.v[d]) && sx_dim_is_constant(b->origin.v[d])
                         : sx_dim_is_constant(from->dim[d]) && sx_dim_is_constant(a->origin.v[d]) &&
                               sx_dim_is_constant(b->origin.v[d]) &&
                               sx_dim_is_constant(a->type.dim[d]);
    return sx_dim_equal(a->type.dim[d], b->type.dim[d]) &&
           ((numbers && front[0] == front[1]) ||
            (back[0] == back[1] && sx_dim_equal(a->origin.v[d], b->origin.v[d])));
}

static bool same_crop(const sx_graph *graph, const sx_node *node, const sx_attr *a,
                      const sx_attr *b)
{
    bool same = node->op == SX_OP_CROP && a->origin.count == b->origin.count;
    for (uint32_t d = 0; same && d < a->origin.count; d++) {
        same = same_place(&graph->node[sx_graph_input(graph, node, 0).i].type, a, b, d);
    }
    return same;
}

START_TEST(test_random_changes)
{
    uint64_t seed = sx_test_seed();
    uint32_t compared[SX_ATTR_COUNT] = {0};
    for (uint32_t round = 0; round < 120; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 512 << 20);
        sx_rng rng = {seed + round};
        sx_gen_options options = sx_gen_default();
        options.ops = sx_gen_all_ops();
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        sx_key key;
        ck_sx_ok(&cx, sx_graph_key(&cx, graph, &key));
        bool *needed = SX_NEW_ARRAY(&cx, bool, graph->node_count);
        ck_assert_ptr_nonnull(needed);
        mark_needed(graph, needed);
        for (uint32_t i = 0; i < graph->node_count; i++) {
            const sx_attr *old = sx_graph_attr(graph, &graph->node[i]);
            for (uint32_t field = 0; field < SX_ATTR_COUNT; field++) {
                sx_attr attr = *old;
                if (!needed[i] || (attr.present >> field & 1) == 0) {
                    continue;
                }
                change_field(&cx, &rng, field, &attr);
                bool same =
                    sx_attr_equal(old, &attr) || same_crop(graph, &graph->node[i], old, &attr);
                sx_graph *changed = same ? NULL : rebuilt(&cx, graph, i, &attr);
                if (changed == NULL) {
                    continue;
                }
                sx_key other;
                ck_sx_ok(&cx, sx_graph_key(&cx, changed, &other));
                ck_assert_msg(!sx_key_equal(&key, &other), "seed %llu round %u node %u field %s",
                              (unsigned long long)seed, round, i,
                              sx_attr_info_of((sx_attr_field)field)->name);
                compared[field]++;
            }
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(compared[SX_ATTR_type], 0);
    ck_assert_uint_gt(compared[SX_ATTR_data], 0);
    ck_assert_uint_gt(compared[SX_ATTR_weight], 0);
    ck_assert_uint_gt(compared[SX_ATTR_name], 0);
    ck_assert_uint_gt(compared[SX_ATTR_direction], 0);
    ck_assert_uint_gt(compared[SX_ATTR_split] + compared[SX_ATTR_pairs], 0);
}
END_TEST

/* A chain of 200 thousand nodes: walked without recursion. */
START_TEST(test_depth)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_graph *graph;
    ck_sx_ok(&cx, sx_graph_make(&cx, sx_span_of("deep"), NULL, &graph));
    sx_type type = {SX_F32, 1, {sx_dim_of(4)}};
    sx_node_id id;
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "x", false, &type, &id));
    for (uint32_t i = 0; i < 200000; i++) {
        ck_sx_ok(&cx, sx_build_unary(&cx, graph, i % 2 == 0 ? SX_OP_NEGATE : SX_OP_TANH, id, &id));
    }
    ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, sx_span_of("y"), id));
    sx_key key;
    ck_sx_ok(&cx, sx_graph_key(&cx, graph, &key));
    sx_graph *canonical;
    ck_sx_ok(&cx, sx_graph_canon(&cx, graph, &canonical));
    ck_assert_uint_eq(canonical->node_count, graph->node_count);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/key");
    TCase *tcase = tcase_create("key");
    tcase_add_test(tcase, test_every_field);
    tcase_add_test(tcase, test_what_does_not_matter);
    tcase_add_test(tcase, test_random_changes);
    tcase_add_test(tcase, test_depth);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
