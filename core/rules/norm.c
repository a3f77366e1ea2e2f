/* Composites recognised by their definition (core/ir/compose.c), and the spellings exporters use for their parts. */
#include "core/ir/extent.h"
#include "core/ir/sort.h"
#include "core/rules/rules.h"

#include <math.h>
#include <string.h>

/* ---- shapes of reductions and of what is repeated along them ---- */

/* Does `list` hold exactly the dimensions of a tensor of rank `rank` that are not in `dims`, in order? */
static bool is_complement(const sx_ints *list, const sx_ints *dims, uint32_t rank)
{
    uint32_t reduced = 0;
    for (uint32_t i = 0; i < dims->count; i++) {
        reduced |= 1u << dims->v[i];
    }
    uint32_t k = 0;
    for (uint32_t d = 0; d < rank; d++) {
        if ((reduced & 1u << d) == 0) {
            if (k >= list->count || list->v[k++] != d) {
                return false;
            }
        }
    }
    return k == list->count;
}

/* The dimensions first .. rank - 1, at least one. */
static bool is_suffix(const sx_ints *dims, uint32_t rank)
{
    for (uint32_t i = 0; i < dims->count; i++) {
        if (dims->v[i] != (int64_t)(rank - dims->count + i)) {
            return false;
        }
    }
    return dims->count > 0;
}

static bool same_ints(const sx_ints *a, const sx_ints *b)
{
    return a->count == b->count && memcmp(a->v, b->v, a->count * sizeof(a->v[0])) == 0;
}

/* Matched node `broadcast` repeats what matched node `reduce` (by `reducer` over `dims`) left. */
static bool is_row_value(const sx_rewrite *rw, uint32_t broadcast, uint32_t reduce,
                         sx_reducer reducer, const sx_ints *dims, uint32_t rank)
{
    sx_attr repeat = sx_rewrite_attr(rw, broadcast);
    sx_attr combine = sx_rewrite_attr(rw, reduce);
    return combine.reducer == reducer && same_ints(&combine.dims, dims) &&
           is_complement(&repeat.dims, dims, rank);
}

/* Number of elements along `dims`, if known. */
static bool count_elements(const sx_type *type, const sx_ints *dims, double *count)
{
    *count = 1;
    for (uint32_t i = 0; i < dims->count; i++) {
        if (!sx_dim_is_constant(type->dim[dims->v[i]])) {
            return false;
        }
        *count *= (double)type->dim[dims->v[i]].scale;
    }
    return true;
}

/* ---- spellings ---- */

/* sum * (1/n) = sum / n. */
sx_code sx_rule_mean(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr reduce = sx_rewrite_attr(rw, 1);
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    double count;
    if (reduce.reducer != SX_SUM || !sx_type_is_real(&type) ||
        !count_elements(sx_rewrite_type(rw, rw->var[0]), &reduce.dims, &count) || count < 2 ||
        !sx_rewrite_near(rw, rw->var[1], 1 / count)) {
        return SX_OK;
    }
    uint32_t child[2] = {rw->node[1], SX_EG_NONE};
    SX_TRY(sx_tensors_add_value(rw->cx, t, &type, count, &child[1]));
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DIVIDE, NULL, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- elementwise composites ---- */

/* f32 and f64 only: narrower types compute composites in f32, primitives round at each step. */
static sx_code emit_unary(sx_rewrite *rw, sx_op op, uint32_t x)
{
    if (!sx_type_is_real(sx_rewrite_type(rw, x))) {
        return SX_OK;
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, op, NULL, &x, 1, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reciprocal_root(sx_rewrite *rw)
{
    return emit_unary(rw, SX_OP_RSQRT, rw->var[0]);
}

sx_code sx_rule_relu(sx_rewrite *rw)
{
    return emit_unary(rw, SX_OP_RELU, rw->var[0]);
}

sx_code sx_rule_silu(sx_rewrite *rw)
{
    return emit_unary(rw, SX_OP_SILU, rw->var[0]);
}

/* The other factor (or addend, divisor order kept) where a member of `class_` is `op` of something and the
 * known value `value`. */
static bool split_value(const sx_rewrite *rw, uint32_t class_, sx_op op, double value,
                        uint32_t *other)
{
    const sx_eg *eg = &sx_rewrite_tensors(rw)->eg;
    uint32_t first = sx_eg_find(eg, class_);
    uint32_t n = first;
    do {
        if (eg->node[n].op == op && (eg->node[n].dead == 0 || rw->unguarded)) {
            for (uint32_t k = op == SX_OP_DIVIDE ? 1 : 0; k < 2; k++) {
                if (sx_rewrite_near(rw, sx_eg_child(eg, n, k), value) && sx_rewrite_pick(rw, n)) {
                    *other = sx_eg_child(eg, n, 1 - k);
                    return true;
                }
            }
        }
        n = sx_eg_member_next(eg, n);
    } while (n != first);
    return false;
}

/* The other operand where a member of `class_` is `op` of it and of `known`, in any order. */
static bool split_class(const sx_rewrite *rw, uint32_t class_, sx_op op, uint32_t known,
                        uint32_t *other)
{
    const sx_eg *eg = &sx_rewrite_tensors(rw)->eg;
    uint32_t first = sx_eg_find(eg, class_);
    uint32_t n = first;
    do {
        for (uint32_t k = 0;
             eg->node[n].op == op && (eg->node[n].dead == 0 || rw->unguarded) && k < 2; k++) {
            if (sx_eg_child(eg, n, k) == sx_eg_find(eg, known) && sx_rewrite_pick(rw, n)) {
                *other = sx_eg_child(eg, n, 1 - k);
                return true;
            }
        }
        n = sx_eg_member_next(eg, n);
    } while (n != first);
    return false;
}

static bool is_product_of(const sx_rewrite *rw, uint32_t class_, uint32_t a, uint32_t b)
{
    uint32_t other;
    return split_class(rw, class_, SX_OP_MULTIPLY, a, &other) &&
           other == sx_eg_find(&sx_rewrite_tensors(rw)->eg, b);
}

/* Is `class_` x^3, as (x x) x? (power is brought to products by power-three.) */
static bool is_cube(const sx_rewrite *rw, uint32_t class_, uint32_t x)
{
    uint32_t square;
    return split_class(rw, class_, SX_OP_MULTIPLY, x, &square) && is_product_of(rw, square, x, x);
}

/* sqrt(2/pi) (x + 0.044715 x^3) */
static bool is_tanh_argument(const sx_rewrite *rw, uint32_t class_, uint32_t x)
{
    static const double root = 0.79788456080286535588; // sqrt(2 / pi)
    uint32_t sum;
    uint32_t term;
    uint32_t cube;
    return split_value(rw, class_, SX_OP_MULTIPLY, root, &sum) &&
           split_class(rw, sum, SX_OP_ADD, x, &term) &&
           split_value(rw, term, SX_OP_MULTIPLY, 0.044715, &cube) && is_cube(rw, cube, x);
}

/* x / sqrt 2, spelled as a quotient or a product */
static bool is_erf_argument(const sx_rewrite *rw, uint32_t class_, uint32_t x)
{
    uint32_t inner;
    x = sx_eg_find(&sx_rewrite_tensors(rw)->eg, x);
    return (split_value(rw, class_, SX_OP_DIVIDE, 1.41421356237309504880, &inner) && inner == x) ||
           (split_value(rw, class_, SX_OP_MULTIPLY, 0.70710678118654752440, &inner) && inner == x);
}

/* Of every float type: narrow ones round once instead of at each step. */
static sx_code emit_gelu(sx_rewrite *rw, sx_op op)
{
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, op, NULL, &rw->var[0], 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* Some matched node is erf(s) or tanh(s); names: x and s. */
sx_code sx_rule_gelu(sx_rewrite *rw)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    for (uint32_t k = 1; k < 4; k++) {
        sx_op op = sx_tensors_op(t, rw->node[k]);
        if (op == SX_OP_ERF && is_erf_argument(rw, rw->var[1], rw->var[0])) {
            return emit_gelu(rw, SX_OP_GELU);
        }
        if (op == SX_OP_TANH && is_tanh_argument(rw, rw->var[1], rw->var[0])) {
            return emit_gelu(rw, SX_OP_GELU_TANH);
        }
    }
    return SX_OK;
}

/* ---- rows ---- */

/* A reshape that leaves rows as they are, of a softmax along them: heads that are split into groups. */
sx_code sx_rule_reshape_softmax(sx_rewrite *rw)
{
    const sx_type *x = sx_rewrite_type(rw, rw->var[0]);
    sx_type to = *sx_rewrite_type(rw, rw->node[0]);
    sx_attr attr = sx_rewrite_attr(rw, 1);
    uint32_t node;
    SX_ASSERT(x->rank >= 1 && attr.axis >= 0 && attr.axis < x->rank);
    if (attr.axis + 1 != x->rank || to.rank == 0 ||
        !sx_dim_equal(x->dim[x->rank - 1], to.dim[to.rank - 1])) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_reshape(rw, rw->var[0], &to, &node));
    attr.axis = (int64_t)to.rank - 1;
    SX_TRY(sx_rewrite_add(rw, SX_OP_SOFTMAX, &attr, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* softmax and log_softmax: matched nodes of the maximum's broadcast and reduce, of the sum's broadcast and reduce. */
static sx_code emit_softmax(sx_rewrite *rw, sx_op op, const uint32_t where[4])
{
    uint32_t x = rw->var[1];
    const sx_type *type = sx_rewrite_type(rw, x);
    sx_ints dims = sx_rewrite_attr(rw, where[1]).dims;
    if (!sx_type_is_real(type) || dims.count != 1 ||
        !is_row_value(rw, where[0], where[1], SX_MAX, &dims, type->rank) ||
        !is_row_value(rw, where[2], where[3], SX_SUM, &dims, type->rank)) {
        return SX_OK;
    }
    sx_attr attr = {.present = SX_A(axis), .axis = dims.v[0]};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, op, &attr, &x, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* matched: divide, exponential, subtract, broadcast, reduce, broadcast, reduce */
sx_code sx_rule_softmax(sx_rewrite *rw)
{
    return emit_softmax(rw, SX_OP_SOFTMAX, (const uint32_t[4]){3, 4, 5, 6});
}

/* matched: subtract, subtract, broadcast, reduce, broadcast, log, reduce, exponential */
sx_code sx_rule_log_softmax(sx_rewrite *rw)
{
    return emit_softmax(rw, SX_OP_LOG_SOFTMAX, (const uint32_t[4]){2, 3, 4, 6});
}

typedef struct {
    uint32_t x, eps, count[2];   /* classes; count: divisors of mean and variance */
    uint32_t mean[2], spread[2]; /* matched broadcast and reduce of each; mean[1] 0: none */
} norm;

/* Checks statistics over a suffix of the dimensions and gives the attribute of the norm. */
static bool norm_attr(const sx_rewrite *rw, const norm *n, sx_attr *attr)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_type *type = sx_rewrite_type(rw, n->x);
    sx_ints dims = sx_rewrite_attr(rw, n->spread[1]).dims;
    double count;
    if (!sx_type_is_real(type) || !is_suffix(&dims, type->rank) ||
        !count_elements(type, &dims, &count) ||
        !is_row_value(rw, n->spread[0], n->spread[1], SX_SUM, &dims, type->rank)) {
        return false;
    }
    if (n->mean[1] != 0 && !is_row_value(rw, n->mean[0], n->mean[1], SX_SUM, &dims, type->rank)) {
        return false;
    }
    for (uint32_t i = 0; i < 2; i++) {
        const sx_fact *fact = sx_tensors_fact(t, n->count[i]);
        if (fact->has_value == 0 || fact->value != count) {
            return false;
        }
    }
    const sx_fact *eps = sx_tensors_fact(t, n->eps);
    if (eps->has_value == 0 || !(eps->value >= 0)) {
        return false;
    }
    *attr = (sx_attr){.present = SX_A(axis) | SX_A(eps), .eps = eps->value};
    attr->axis = type->rank - dims.count;
    return true;
}

/* A factor or addend of the norm: matched broadcast `k` of class `v` along the dimensions axis and later. */
static bool is_row_vector(const sx_rewrite *rw, uint32_t k, uint32_t v, const sx_attr *attr,
                          const sx_type *type)
{
    sx_attr repeat = sx_rewrite_attr(rw, k);
    const sx_type *vector = sx_rewrite_type(rw, v);
    if (vector->rank != type->rank - (uint32_t)attr->axis) {
        return false;
    }
    for (uint32_t i = 0; i < vector->rank; i++) {
        if (repeat.dims.v[i] != attr->axis + i ||
            !sx_dim_equal(vector->dim[i], type->dim[attr->axis + i])) {
            return false;
        }
    }
    return true;
}

/* Matched nodes as the text reads: 4 broadcast and 6 reduce of the mean, 7 broadcast and 11 reduce of the
 * variance, 13 broadcast of the scale, 14 of the bias; names: d x n k eps scale bias. */
sx_code sx_rule_layer_norm(sx_rewrite *rw)
{
    norm n = {.x = rw->var[1], .eps = rw->var[4], .count = {rw->var[2], rw->var[3]}};
    n.mean[0] = 4;
    n.mean[1] = 6;
    n.spread[0] = 7;
    n.spread[1] = 11;
    sx_attr attr;
    const sx_type *type = sx_rewrite_type(rw, n.x);
    if (!norm_attr(rw, &n, &attr) || !is_row_vector(rw, 13, rw->var[5], &attr, type) ||
        !is_row_vector(rw, 14, rw->var[6], &attr, type)) {
        return SX_OK;
    }
    uint32_t child[3] = {n.x, rw->var[5], rw->var[6]};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_LAYER_NORM, &attr, child, 3, &node));
    return sx_rewrite_emit(rw, node);
}

/* Matched nodes: 2 broadcast and 4 reduce of the mean, 5 and 9 of the variance. Scale 1 and bias -0 change no bit. */
sx_code sx_rule_layer_norm_plain(sx_rewrite *rw)
{
    norm n = {.x = rw->var[1], .eps = rw->var[4], .count = {rw->var[2], rw->var[3]}};
    n.mean[0] = 2;
    n.mean[1] = 4;
    n.spread[0] = 5;
    n.spread[1] = 9;
    sx_attr attr;
    if (!norm_attr(rw, &n, &attr)) {
        return SX_OK;
    }
    sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_type *type = sx_rewrite_type(rw, n.x);
    sx_type row = {.dtype = type->dtype};
    for (uint32_t d = (uint32_t)attr.axis; d < type->rank; d++) {
        row.dim[row.rank++] = type->dim[d];
    }
    uint32_t child[3] = {n.x, SX_EG_NONE, SX_EG_NONE};
    SX_TRY(sx_tensors_add_value(rw->cx, t, &row, 1, &child[1]));
    SX_TRY(sx_tensors_add_value(rw->cx, t, &row, -0.0, &child[2]));
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_LAYER_NORM, &attr, child, 3, &node));
    return sx_rewrite_emit(rw, node);
}

/* Matched nodes: 2 broadcast and 6 reduce of the mean square, 8 broadcast of the scale; names: x k eps scale. */
sx_code sx_rule_rms_norm(sx_rewrite *rw)
{
    norm n = {.x = rw->var[0], .eps = rw->var[2], .count = {rw->var[1], rw->var[1]}};
    n.spread[0] = 2;
    n.spread[1] = 6;
    sx_attr attr;
    const sx_type *type = sx_rewrite_type(rw, n.x);
    if (!norm_attr(rw, &n, &attr) || !is_row_vector(rw, 8, rw->var[3], &attr, type)) {
        return SX_OK;
    }
    uint32_t child[2] = {n.x, rw->var[3]};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_RMS_NORM, &attr, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* Matched nodes: 1 broadcast and 5 reduce of the mean square; names: x k eps. A scale of 1 changes no bit. */
sx_code sx_rule_rms_norm_plain(sx_rewrite *rw)
{
    norm n = {.x = rw->var[0], .eps = rw->var[2], .count = {rw->var[1], rw->var[1]}};
    n.spread[0] = 1;
    n.spread[1] = 5;
    sx_attr attr;
    if (!norm_attr(rw, &n, &attr)) {
        return SX_OK;
    }
    const sx_type *type = sx_rewrite_type(rw, n.x);
    sx_type row = {.dtype = type->dtype};
    for (uint32_t d = (uint32_t)attr.axis; d < type->rank; d++) {
        row.dim[row.rank++] = type->dim[d];
    }
    uint32_t child[2] = {n.x, SX_EG_NONE};
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &row, 1, &child[1]));
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_RMS_NORM, &attr, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* Matched nodes: 2 broadcast of the scale, 3 broadcast and 7 reduce of the mean square; names: x scale k eps. */
sx_code sx_rule_rms_norm_gain_first(sx_rewrite *rw)
{
    norm n = {.x = rw->var[0], .eps = rw->var[3], .count = {rw->var[2], rw->var[2]}};
    n.spread[0] = 3;
    n.spread[1] = 7;
    sx_attr attr;
    const sx_type *type = sx_rewrite_type(rw, n.x);
    if (!norm_attr(rw, &n, &attr) || !is_row_vector(rw, 2, rw->var[1], &attr, type)) {
        return SX_OK;
    }
    uint32_t child[2] = {n.x, rw->var[1]};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_RMS_NORM, &attr, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- composites by their decomposition, so that their parts can be fused ---- */

sx_code sx_rule_definition(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_op op = sx_tensors_op(t, rw->node[0]);
    sx_graph *graph;
    SX_TRY(sx_graph_make(rw->cx, SX_SPAN_LITERAL("definition"), t->attrs, &graph));
    SX_TRY(sx_graph_copy_symbols(rw->cx, t->symbol, t->symbol_count, graph));
    sx_node_id input[4];
    uint32_t known[4];
    uint32_t arity = t->eg.node[rw->node[0]].arity;
    SX_ASSERT(arity <= 4);
    for (uint32_t k = 0; k < arity; k++) {
        static const char *const name[] = {"a", "b", "c", "d"};
        known[k] = sx_eg_child(&t->eg, rw->node[0], k);
        sx_type type = *sx_tensors_type(t, known[k]);
        SX_TRY(sx_build_parameter(rw->cx, graph, name[k], false, &type, &input[k]));
    }
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_node_id result;
    SX_TRY(sx_decompose(rw->cx, graph, op, &attr, input, arity, &result));
    uint32_t *node = SX_NEW_ARRAY(rw->cx, uint32_t, graph->node_count);
    if (node == NULL) {
        return rw->cx->error.code;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *n = &graph->node[i];
        uint32_t child[SX_EG_ARITY_MAX];
        for (uint32_t k = 0; k < n->input_count; k++) {
            child[k] = node[graph->input[n->input_first + k].i];
        }
        if (i < arity) {
            node[i] = known[i];
            continue;
        }
        sx_attr inner = *sx_attr_get(t->attrs, n->attr);
        SX_TRY(sx_rewrite_add(rw, n->op, &inner, child, n->input_count, &node[i]));
    }
    return sx_rewrite_emit(rw, node[result.i]);
}

/* Rows that a kernel sorts are left to it: their definition is a space of the square of their length. */
sx_code sx_rule_sort_definition(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr attr = sx_rewrite_attr(rw, 0);
    const sx_type *x = sx_tensors_type(t, sx_eg_child(&t->eg, rw->node[0], 0));
    return sx_sort_is_network(&attr, x) && !rw->unguarded ? SX_OK : sx_rule_definition(rw);
}

/* Where the gain follows from weights the norm itself is the form to keep: opened, each of its parts meets
 * every rule. A row of symbolic length has no decomposition. */
sx_code sx_rule_norm_definition(sx_rewrite *rw)
{
    bool is_weight = sx_tensors_fact(sx_rewrite_tensors(rw), rw->var[1])->is_weight != 0;
    const sx_type *type = sx_rewrite_type(rw, rw->var[0]);
    bool known = true;
    for (uint32_t d = (uint32_t)sx_rewrite_attr(rw, 0).axis; d < type->rank; d++) {
        known = known && sx_dim_is_constant(type->dim[d]);
    }
    return known && (!is_weight || rw->unguarded) ? sx_rule_definition(rw) : SX_OK;
}
