/* Two steps. First the dimensions that are rows, or a multiple of them, are marked: from the first result on, along
 * what each operation says of its operands' and its result's dimensions, until nothing changes. Then the graph is made
 * again with the symbol in every type that an attribute gives; all others are inferred. */
#include "core/ir/general.h"

#include <string.h>

#include "core/ir/effect.h"
#include "core/ir/extent.h"

/* The highest value of the symbol, and how many elements a tensor may have then: rewrites make larger ones. */
#define ROWS_MAX (INT64_C(1) << 30)
#define ELEMENTS_MAX (SX_ELEMENTS_MAX >> 6)

_Static_assert(SX_RANK_MAX <= 8, "a set of dimensions is a byte");

typedef struct {
    const sx_graph *graph;
    uint8_t *mark; /* [node_count] the set of 1 << dimension that are marked */
    /* Rows are the first of the dimensions that a reshape joins or splits, as they are in [batch, seq] -> [batch*seq],
     * a batch of one among them. False: the first that is not 1, as in [1, batch] -> [batch]. */
    bool first;
    /* Where nothing else tells which of several dimensions of a reshape are rows, one is chosen, once. */
    bool choose;
    bool changed;
} marking;

/* ---- marks ---- */

static const sx_type *type_of(const marking *m, uint32_t n)
{
    return &m->graph->node[n].type;
}

static void put_mark(marking *m, uint32_t n, uint32_t d)
{
    m->changed = m->changed || (m->mark[n] >> d & 1) == 0;
    m->mark[n] |= (uint8_t)(1u << d);
}

/* Dimension d of node a and e of node b are the same: if one is marked, both are. */
static void tie(marking *m, uint32_t a, uint32_t d, uint32_t b, uint32_t e)
{
    SX_ASSERT(d < type_of(m, a)->rank && e < type_of(m, b)->rank);
    bool same = sx_dim_equal(type_of(m, a)->dim[d], type_of(m, b)->dim[e]);
    if (same && ((m->mark[a] >> d | m->mark[b] >> e) & 1) != 0) {
        put_mark(m, a, d);
        put_mark(m, b, e);
    }
}

static void tie_all(marking *m, uint32_t a, uint32_t b)
{
    for (uint32_t d = 0; d < type_of(m, a)->rank && d < type_of(m, b)->rank; d++) {
        tie(m, a, d, b, d);
    }
}

static bool is_in(const sx_ints *list, uint32_t d)
{
    bool found = false;
    for (uint32_t i = 0; i < list->count; i++) {
        found = found || list->v[i] == (int64_t)d;
    }
    return found;
}

/* Neighbouring dimensions [first, end) of a node. */
typedef struct {
    uint32_t node, first, end;
} group;

static bool has_mark(const marking *m, const group *g)
{
    bool any = false;
    for (uint32_t d = g->first; d < g->end; d++) {
        any = any || (m->mark[g->node] >> d & 1) != 0;
    }
    return any;
}

/* Dimensions of a reshape with as many elements on both sides: what is rows on one side is on the other. */
static void mark_group(marking *m, const group *from, const group *to)
{
    if (!has_mark(m, from) || has_mark(m, to)) {
        return;
    }
    uint32_t d = to->first;
    if (to->end - to->first > 1) {
        while (!m->first && d + 1 < to->end && type_of(m, to->node)->dim[d].scale == 1) {
            d++;
        }
        if (!m->choose) {
            return;
        }
        m->choose = false;
    }
    put_mark(m, to->node, d);
}

/* A reshape joins and splits neighbours: groups of dimensions with as many elements on both sides, as small as they can
 * be. */
static void mark_reshape(marking *m, uint32_t x, uint32_t r)
{
    const sx_type *from = type_of(m, x), *to = type_of(m, r);
    group a = {.node = x}, b = {.node = r};
    while (a.end < from->rank && b.end < to->rank) {
        a.first = a.end;
        b.first = b.end;
        int64_t left = from->dim[a.end++].scale, right = to->dim[b.end++].scale;
        while (left != right && (left < right ? a.end < from->rank : b.end < to->rank)) {
            if (left < right) {
                left *= from->dim[a.end++].scale;
            } else {
                right *= to->dim[b.end++].scale;
            }
        }
        mark_group(m, &a, &b);
        mark_group(m, &b, &a);
    }
}

/* An extent of 1 is repeated; where the result has 1, too, nobody can tell, and the operand is left alone. */
static void mark_broadcast(marking *m, const sx_attr *attr, uint32_t x, uint32_t r)
{
    for (uint32_t d = 0; d < attr->dims.count; d++) {
        uint32_t e = (uint32_t)attr->dims.v[d];
        if (type_of(m, x)->dim[d].scale != 1) {
            tie(m, x, d, r, e);
        } else if ((m->mark[x] >> d & 1) != 0) {
            put_mark(m, r, e);
        }
    }
}

/* Result dimensions: batch, left free, right free. */
static void mark_dot(marking *m, const sx_attr *attr, uint32_t x, uint32_t y, uint32_t r)
{
    uint32_t at = attr->lhs_batch.count;
    for (uint32_t i = 0; i < at; i++) {
        tie(m, x, (uint32_t)attr->lhs_batch.v[i], r, i);
        tie(m, y, (uint32_t)attr->rhs_batch.v[i], r, i);
    }
    for (uint32_t i = 0; i < attr->lhs_contract.count; i++) {
        tie(m, x, (uint32_t)attr->lhs_contract.v[i], y, (uint32_t)attr->rhs_contract.v[i]);
    }
    for (uint32_t d = 0; d < type_of(m, x)->rank; d++) {
        if (!is_in(&attr->lhs_batch, d) && !is_in(&attr->lhs_contract, d)) {
            tie(m, x, d, r, at++);
        }
    }
    for (uint32_t d = 0; d < type_of(m, y)->rank; d++) {
        if (!is_in(&attr->rhs_batch, d) && !is_in(&attr->rhs_contract, d)) {
            tie(m, y, d, r, at++);
        }
    }
}

/* `taken` is what a gather of x at `index` gives: x before the axis, the index, x behind it. */
static void mark_gather(marking *m, uint32_t axis, uint32_t x, uint32_t index, uint32_t taken)
{
    uint32_t wide = type_of(m, index)->rank;
    for (uint32_t d = 0; d < type_of(m, x)->rank; d++) {
        if (d != axis) {
            tie(m, x, d, taken, d < axis ? d : d + wide - 1);
        }
    }
    for (uint32_t d = 0; d < wide; d++) {
        tie(m, index, d, taken, axis + d);
    }
}

/* Dimensions of x that are in no list of the attribute. */
static void mark_others(marking *m, const sx_ints *list, uint32_t x, uint32_t r, bool vanish)
{
    uint32_t e = 0;
    for (uint32_t d = 0; d < type_of(m, x)->rank; d++) {
        if (!is_in(list, d)) {
            tie(m, x, d, r, vanish ? e : d);
            e++;
        }
    }
}

/* Dimensions that a window or padding leaves alone: of one place that moves by one, with nothing around. */
static void mark_window(marking *m, const sx_attr *attr, uint32_t x, uint32_t r)
{
    for (uint32_t d = 0; d < type_of(m, x)->rank; d++) {
        bool plain = attr->low.v[d] == 0 && attr->high.v[d] == 0 &&
                     (attr->window.count == 0 || attr->window.v[d] == 1) &&
                     (attr->stride.count == 0 || attr->stride.v[d] == 1) &&
                     (attr->interior.count == 0 || attr->interior.v[d] == 0);
        if (plain) {
            tie(m, x, d, r, d);
        }
    }
}

/* q [.., s, d], k [.., t, d], v [.., t, e], mask [.., s, t], result [.., s, e] */
static void mark_attention(marking *m, const uint32_t *x, uint32_t count, uint32_t r)
{
    uint32_t s = type_of(m, r)->rank - 2, e = s + 1;
    for (uint32_t k = 0; k < count; k++) {
        for (uint32_t d = 0; d < s; d++) {
            tie(m, x[k], d, r, d);
        }
    }
    tie(m, x[0], s, r, s);
    tie(m, x[0], e, x[1], e);
    tie(m, x[1], s, x[2], s);
    tie(m, x[2], e, r, e);
    if (count > 3) {
        tie(m, x[3], s, r, s);
        tie(m, x[3], e, x[1], s);
    }
}

static void mark_composite(marking *m, const sx_node *node, const sx_attr *attr, const uint32_t *x,
                           uint32_t r)
{
    if (node->op == SX_OP_ATTENTION) {
        mark_attention(m, x, node->input_count, r);
        return;
    }
    if (node->op == SX_OP_ONLINE_DOT) {
        return;
    }
    tie_all(m, x[0], r);
    for (uint32_t k = 1; k < node->input_count;
         k++) { /* scales and the like, of the last dimensions or one */
        for (uint32_t d = 0; d < type_of(m, x[k])->rank; d++) {
            tie(m, x[k], d, r, (uint32_t)attr->axis + d);
        }
    }
}

static void mark_other_class(marking *m, const sx_node *node, const sx_attr *attr,
                             const uint32_t *x, uint32_t r)
{
    switch (node->op) {
    case SX_OP_TRANSPOSE:
        for (uint32_t d = 0; d < attr->perm.count; d++) {
            tie(m, x[0], (uint32_t)attr->perm.v[d], r, d);
        }
        break;
    case SX_OP_RESHAPE: mark_reshape(m, x[0], r); break;
    case SX_OP_BROADCAST: mark_broadcast(m, attr, x[0], r); break;
    case SX_OP_REDUCE: mark_others(m, &attr->dims, x[0], r, true); break;
    case SX_OP_DOT_GENERAL: mark_dot(m, attr, x[0], x[1], r); break;
    case SX_OP_GATHER: mark_gather(m, (uint32_t)attr->axis, x[0], x[1], r); break;
    case SX_OP_SCATTER:
        tie_all(m, x[0], r);
        mark_gather(m, (uint32_t)attr->axis, r, x[1], x[2]);
        break;
    case SX_OP_DYNAMIC_SLICE: mark_others(m, &attr->dims, x[0], r, false); break;
    case SX_OP_DYNAMIC_UPDATE_SLICE:
        tie_all(m, x[0], r);
        mark_others(m, &attr->dims, x[1], r, false);
        break;
    case SX_OP_SLICE: /* of equal extent: all of the dimension is taken */
    case SX_OP_SORT:
    case SX_OP_REVERSE: tie_all(m, x[0], r); break;
    case SX_OP_PAD:
    case SX_OP_REDUCE_WINDOW: mark_window(m, attr, x[0], r); break;
    case SX_OP_CONVOLUTION:
        tie(m, x[0], 0, r, 0);
        tie(m, x[1], 0, r, 1);
        break;
    default: break; /* parameters and constants; of others nothing is known */
    }
}

static void mark_node(marking *m, uint32_t n)
{
    const sx_node *node = &m->graph->node[n];
    const sx_attr *attr = sx_graph_attr(m->graph, node);
    uint32_t x[SX_INPUTS_MAX];
    SX_ASSERT(node->input_count <= SX_INPUTS_MAX);
    for (uint32_t k = 0; k < node->input_count; k++) {
        x[k] = sx_graph_input(m->graph, node, k).i;
    }
    if (sx_op_is_elementwise(node->op)) {
        for (uint32_t k = 0; k < node->input_count; k++) {
            tie_all(m, x[k], n);
        }
    } else if (node->op == SX_OP_CONCATENATE) {
        const sx_ints along = {1, {attr->axis}};
        for (uint32_t k = 0; k < node->input_count; k++) {
            mark_others(m, &along, x[k], n, false);
        }
    } else if (sx_op_info_of(node->op)->op_class == SX_OPCLASS_COMPOSITE) {
        mark_composite(m, node, attr, x, n);
    } else {
        mark_other_class(m, node, attr, x, n);
    }
}

/* There and back until nothing is new, which takes as many rounds as a path turns around; then a choice, and again. */
static sx_code mark_all(sx_ctx *cx, marking *m)
{
    const sx_graph *graph = m->graph;
    do { /* each round but the last of a kind marks at least one of 8 * node_count dimensions */
        m->choose = !m->changed;
        m->changed = false;
        SX_TRY(sx_spend(cx, 2 * (uint64_t)graph->node_count));
        for (uint32_t n = graph->node_count; n-- > 0;) {
            mark_node(m, n);
        }
        for (uint32_t n = 0; n < graph->node_count; n++) {
            mark_node(m, n);
        }
    } while (m->changed || !m->choose);
    return SX_OK;
}

/* ---- the symbol ---- */

static uint32_t count_marks(uint8_t mark)
{
    uint32_t count = 0;
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        count += mark >> d & 1u;
    }
    return count;
}

/* The largest number that all marked extents are multiples of; 0: one of them is 0. */
static int64_t count_rows(const marking *m)
{
    int64_t rows = 0;
    for (uint32_t n = 0; n < m->graph->node_count; n++) {
        const sx_type *type = type_of(m, n);
        for (uint32_t d = 0; d < type->rank; d++) {
            if ((m->mark[n] >> d & 1) == 0) {
                continue;
            }
            if (type->dim[d].scale == 0) {
                return 0;
            }
            rows = sx_gcd_i64(type->dim[d].scale, rows);
        }
    }
    return rows;
}

/* The largest power of two that the symbol may become: what a tensor has for each row decides. */
static int64_t highest(const marking *m, int64_t rows)
{
    int64_t high = ROWS_MAX;
    for (uint32_t n = 0; n < m->graph->node_count; n++) {
        uint32_t times = count_marks(m->mark[n]);
        double each = (double)sx_tensor_elements(type_of(m, n));
        for (uint32_t k = 0; k < times; k++) {
            each /= (double)rows;
        }
        for (bool fits = times == 0; !fits && high > 1;) {
            double all = each;
            for (uint32_t k = 0; k < times; k++) {
                all *= (double)high;
            }
            fits = all <= (double)ELEMENTS_MAX;
            high = fits ? high : high / 2;
        }
    }
    return high;
}

static sx_code add_node(sx_ctx *cx, const marking *m, uint32_t n, int64_t rows, sx_graph *to)
{
    const sx_graph *from = m->graph;
    const sx_node *node = &from->node[n];
    const sx_node_id *input = node->input_count > 0 ? &from->input[node->input_first] : NULL;
    sx_attr attr = *sx_graph_attr(from, node);
    for (uint32_t d = 0; d < node->type.rank; d++) {
        if ((m->mark[n] >> d & 1) == 0) {
            continue;
        }
        if ((attr.present & SX_A(type)) != 0 && node->op != SX_OP_CONVERT) {
            attr.type.dim[d] = (sx_dim){node->type.dim[d].scale / rows, 0};
        }
        if (node->op == SX_OP_SLICE) {
            attr.limit.v[d] = -1;
        }
        if (node->op == SX_OP_SORT && attr.axis == (int64_t)d) {
            attr.count = -1;
        }
    }
    sx_node_id id;
    SX_TRY(sx_graph_add(cx, to, node->op, &attr, input, node->input_count, &id));
    SX_ASSERT(id.i == n);
    return SX_OK;
}

/* Is it the program that it was made of where the symbol has the value? */
static sx_code check_types(sx_ctx *cx, const sx_graph *from, const sx_graph *to, int64_t rows)
{
    int64_t value[SX_SYMBOLS_MAX] = {rows};
    sx_symbols_derive(to->symbol, to->symbol_count, value);
    for (uint32_t n = 0; n < from->node_count; n++) {
        const sx_type *was = &from->node[n].type, *is = &to->node[n].type;
        SX_ASSERT(was->rank == is->rank && was->dtype == is->dtype);
        for (uint32_t d = 0; d < was->rank; d++) {
            sx_dim dim = is->dim[d];
            int64_t extent = dim.scale * (sx_dim_is_constant(dim) ? 1 : value[dim.symbol]);
            if (extent != was->dim[d].scale) {
                return SX_FAIL(cx, SX_INPUT, "node %u, dimension %u: %lld would be %lld", n, d,
                               (long long)was->dim[d].scale, (long long)extent);
            }
        }
    }
    return SX_OK;
}

static sx_code build(sx_ctx *cx, const marking *m, int64_t rows, sx_graph **general)
{
    const sx_graph *from = m->graph;
    sx_graph *to;
    uint32_t symbol;
    SX_TRY(sx_graph_make(cx, from->name, NULL, &to));
    SX_TRY(sx_graph_add_symbol(cx, to, SX_SPAN_LITERAL(SX_GENERAL_SYMBOL), 1, highest(m, rows),
                               &symbol));
    SX_ASSERT(symbol == 0);
    for (uint32_t n = 0; n < from->node_count; n++) {
        SX_TRY(add_node(cx, m, n, rows, to));
    }
    for (uint32_t k = 0; k < from->output_count; k++) {
        SX_TRY(sx_graph_add_output(cx, to, from->output[k].name, from->output[k].node));
    }
    SX_TRY(check_types(cx, from, to, rows));
    SX_TRY(sx_effects_copy(cx, from, NULL, to));
    to->origins = from->origins;
    SX_TRY(sx_graph_check(cx, to));
    *general = to;
    return SX_OK;
}

/* ---- what can be generalised ---- */

/* NULL: nothing is against it so far. */
static const char *refuse(const sx_graph *graph)
{
    if (graph->symbol_count > 0) {
        return "it has symbols";
    }
    if (graph->sharding != NULL) {
        return "it lies on a mesh of devices";
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        sx_op_class op_class = sx_op_info_of(graph->node[n].op)->op_class;
        if (op_class == SX_OPCLASS_REGION || op_class == SX_OPCLASS_COLLECTIVE ||
            op_class == SX_OPCLASS_FUSED) {
            return op_class == SX_OPCLASS_REGION ? "it has a program inside (scan, while, cond)"
                   : op_class == SX_OPCLASS_COLLECTIVE ? "it has collectives"
                                                       : "it has kernels";
        }
    }
    return NULL;
}

/* Marks the first dimension of the first result that has one, and all that are the same. */
static sx_code mark_from_results(sx_ctx *cx, marking *m, bool *any)
{
    const sx_graph *graph = m->graph;
    *any = false;
    for (uint32_t k = 0; k < graph->output_count && !*any; k++) {
        uint32_t root = graph->output[k].node.i;
        *any = type_of(m, root)->rank > 0;
        if (*any) {
            put_mark(m, root, 0);
        }
    }
    return *any ? mark_all(cx, m) : SX_OK;
}

/* NULL: an input has rows, and no weight. With `m->first` all inputs have the same number of them, which tells a
 * dimension of one row from a 1 in front of the rows. */
static const char *refuse_inputs(const marking *m, int64_t rows)
{
    bool any = false;
    for (uint32_t n = 0; n < m->graph->node_count; n++) {
        const sx_node *node = &m->graph->node[n];
        if (node->op != SX_OP_PARAMETER || m->mark[n] == 0) {
            continue;
        }
        if (sx_graph_attr(m->graph, node)->weight != 0) {
            return "the first dimension of its results is one of weights";
        }
        for (uint32_t d = 0; d < node->type.rank; d++) {
            if (m->first && (m->mark[n] >> d & 1) != 0 && node->type.dim[d].scale != rows) {
                return "its inputs have different numbers of rows";
            }
        }
        any = true;
    }
    return any ? NULL : "the first dimension of its results is one of no input";
}

static sx_code try_to_generalise(sx_ctx *cx, marking *m, sx_general *general)
{
    bool any;
    memset(m->mark, 0, m->graph->node_count);
    SX_TRY(mark_from_results(cx, m, &any));
    int64_t rows = count_rows(m);
    general->rows = rows;
    general->why = !any                      ? "its results are single numbers"
                   : rows == 0               ? "it has no rows"
                   : rows > highest(m, rows) ? "it has too many rows"
                                             : refuse_inputs(m, rows);
    if (general->why != NULL) {
        return SX_OK;
    }
    sx_code code = build(cx, m, rows, &general->graph);
    if (code == SX_INPUT || code == SX_LIMIT || code == SX_UNIMPLEMENTED) {
        general->graph = NULL;
        general->why = sx_alloc_text(cx, sx_span_of(cx->error.text));
        sx_ctx_reset_error(cx);
        return general->why != NULL ? SX_OK : cx->error.code;
    }
    return code;
}

sx_code sx_graph_generalise(sx_ctx *cx, const sx_graph *graph, sx_general *general)
{
    marking m = {.graph = graph, .mark = SX_NEW_ARRAY(cx, uint8_t, (size_t)graph->node_count + 1)};
    *general = (sx_general){.why = refuse(graph)};
    if (m.mark == NULL) {
        return cx->error.code;
    }
    if (general->why != NULL) {
        return SX_OK;
    }
    m.first = true;
    SX_TRY(try_to_generalise(cx, &m, general));
    m.first = false;
    return general->graph != NULL ? SX_OK : try_to_generalise(cx, &m, general);
}
