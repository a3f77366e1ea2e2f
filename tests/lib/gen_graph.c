#include "tests/lib/gen_graph.h"

#include <stdio.h>
#include <string.h>

#include "core/fuse/fuse.h"
#include "core/ir/check.h"
#include "core/ir/fused.h"
#include "core/ir/num.h"
#include "core/ir/plain.h"
#include "core/ir/shard.h"
#include "tests/lib/region.h"
#include "tests/lib/test.h"

typedef struct {
    sx_ctx *cx;
    sx_rng *rng;
    const sx_gen_options *options;
    sx_graph *graph;
    uint32_t name_count;
} gen;

static uint32_t below(gen *g, uint64_t bound)
{
    return bound == 0 ? 0 : (uint32_t)sx_rng_below(g->rng, bound);
}

static bool chance(gen *g, uint32_t one_in)
{
    return below(g, one_in) == 0;
}

sx_bits sx_gen_all_ops(void)
{
    sx_bits all = {0};
    for (uint32_t op = 0; op < SX_OP_COUNT; op++) {
        sx_bits_add(&all, op);
    }
    return all;
}

sx_gen_options sx_gen_default(void)
{
    sx_gen_options options = {.node_count = 24,
                              .symbols = 2,
                              .rank_max = 4,
                              .extent_max = 5,
                              .elements_max = 4096,
                              .dtypes = SX_GEN_ALL_DTYPES,
                              .ops = sx_gen_all_ops()};
    for (uint32_t op = 0; op < SX_OP_COUNT; op++) {
        sx_op_class of = sx_op_info_of((sx_op)op)->op_class;
        if (of == SX_OPCLASS_REGION || of == SX_OPCLASS_COLLECTIVE) {
            sx_bits_drop(&options.ops, op);
        }
    }
    return options;
}

/* ---- types ---- */

static int64_t upper(const sx_graph *graph, const sx_type *type)
{
    int64_t elements = 1;
    for (uint32_t i = 0; i < type->rank; i++) {
        sx_dim d = type->dim[i];
        elements *= d.scale * (sx_dim_is_constant(d) ? 1 : graph->symbol[d.symbol].high);
    }
    return elements;
}

static bool small_enough(const gen *g, const sx_type *type)
{
    return upper(g->graph, type) <= g->options->elements_max;
}

/* A sum over the declared symbols, which come first: s + 1, s t, .. */
static sx_dim random_sum(gen *g)
{
    sx_polynomial sum, product;
    sx_dim dim = {1, below(g, g->options->symbols)};
    ck_assert(sx_polynomial_of(g->graph->symbol, dim, &sum));
    dim.symbol = below(g, g->options->symbols);
    ck_assert(sx_polynomial_of(g->graph->symbol, chance(g, 2) ? dim : sx_dim_of(1), &product));
    ck_assert(chance(g, 2) ? sx_polynomial_add(&sum, &product, 1 + (int64_t)below(g, 2))
                           : sx_polynomial_multiply(&sum, &product, &sum));
    ck_sx_ok(g->cx, sx_graph_add_extent(g->cx, g->graph, &sum, &dim));
    return dim;
}

static sx_dim random_dim(gen *g)
{
    if (g->options->sums && chance(g, 3)) {
        return random_sum(g);
    }
    if (g->graph->symbol_count > 0 && chance(g, 3)) {
        return (sx_dim){1 + below(g, 2), below(g, g->graph->symbol_count)};
    }
    if (g->options->empties && chance(g, 6)) {
        return sx_dim_of(0);
    }
    return sx_dim_of(1 + (int64_t)below(g, (uint64_t)g->options->extent_max));
}

static sx_dtype random_dtype(gen *g)
{
    ck_assert((g->options->dtypes & SX_GEN_ALL_DTYPES) != 0);
    for (;;) {
        sx_dtype dtype = chance(g, 2) ? SX_F32 : (sx_dtype)below(g, SX_DTYPE_COUNT);
        if ((g->options->dtypes & (1u << dtype)) != 0) {
            return dtype;
        }
    }
}

static sx_type random_type(gen *g)
{
    sx_type type = {.dtype = random_dtype(g)};
    uint32_t rank = below(g, g->options->rank_max + 1);
    while (type.rank < rank) {
        type.dim[type.rank++] = random_dim(g);
        if (!small_enough(g, &type)) {
            type.rank--;
            break;
        }
    }
    for (uint32_t i = type.rank; i < SX_RANK_MAX; i++) {
        type.dim[i] = (sx_dim){0};
    }
    return type;
}

/* ---- leaves ---- */

static sx_node_id parameter(gen *g, const sx_type *type)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "p%u", g->name_count++);
    sx_node_id id;
    ck_sx_ok(g->cx, sx_build_parameter(g->cx, g->graph, name, chance(g, 2), type, &id));
    return id;
}

static uint64_t random_bits(gen *g, sx_dtype dtype)
{
    if (dtype == SX_BOOL) {
        return below(g, 2);
    }
    uint64_t bits = sx_rng_next(g->rng) >> (64 - 8 * sx_dtype_bytes(dtype));
    if (sx_dtype_class_of(dtype) == SX_CLASS_FLOAT && !chance(g, 8)) {
        return sx_num_encode(dtype, (double)sx_rng_f32(g->rng));
    }
    return bits; /* any integer; sometimes any pattern, with NaN and infinity among them */
}

static sx_node_id constant(gen *g, const sx_type *type)
{
    sx_dim elements;
    size_t count = 1;
    if (sx_type_elements(type, &elements) && sx_dim_is_constant(elements) && !chance(g, 3)) {
        count = (size_t)elements.scale;
    }
    size_t size = sx_dtype_bytes(type->dtype);
    uint8_t *bytes = sx_alloc(g->cx, count * size);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < count; i++) {
        sx_num_store(type->dtype, bytes, i, random_bits(g, type->dtype));
    }
    sx_attr attr = {
        .present = SX_A(data) | SX_A(type), .type = *type, .data = {bytes, count * size}};
    sx_node_id id;
    ck_sx_ok(g->cx, sx_graph_add(g->cx, g->graph, SX_OP_CONSTANT, &attr, NULL, 0, &id));
    return id;
}

/* A node of exactly this type: an old one if there is, else a new leaf. */
static sx_node_id node_of(gen *g, const sx_type *type)
{
    uint32_t count = g->graph->node_count;
    uint32_t first = below(g, count);
    for (uint32_t i = 0; i < count && !chance(g, 4); i++) {
        uint32_t k = (first + i) % count;
        if (sx_type_equal(&g->graph->node[k].type, type)) {
            return (sx_node_id){k};
        }
    }
    return chance(g, 3) ? constant(g, type) : parameter(g, type);
}

/* ---- one operation: operands and attribute for input[0] given; whether they fit is asked afterwards ---- */

typedef struct {
    sx_attr attr;
    sx_node_id input[SX_INPUTS_MAX];
    uint32_t input_count;
} draft;

static void push(draft *d, sx_node_id id)
{
    d->input[d->input_count++] = id;
}

static void draft_elementwise(gen *g, sx_op op, const sx_type *x, draft *d)
{
    d->attr.direction = (sx_direction)below(g, SX_DIRECTION_COUNT);
    d->attr.type.dtype = random_dtype(g);
    if (op == SX_OP_SELECT) {
        sx_type predicate = *x;
        predicate.dtype = SX_BOOL;
        d->input[0] = node_of(g, &predicate);
        push(d, node_of(g, x));
    }
    while (d->input_count < sx_op_info_of(op)->input_min) {
        push(d, node_of(g, x));
    }
}

static void draft_reshape(gen *g, const sx_type *x, draft *d)
{
    sx_type to = *x;
    for (uint32_t step = 0; step < 4; step++) {
        uint32_t at = below(g, to.rank + 1);
        sx_dim product;
        if (chance(g, 2) && at + 1 < to.rank &&
            sx_dim_multiply(to.dim[at], to.dim[at + 1], &product)) {
            to.dim[at] = product;
            memmove(&to.dim[at + 1], &to.dim[at + 2],
                    (size_t)(to.rank - at - 2) * sizeof(to.dim[0]));
            to.rank--;
        } else if (to.rank < 6) {
            int64_t factor = 1 + below(g, 4);
            if (at == to.rank || to.dim[at].scale % factor != 0) {
                factor = 1;
            } else {
                to.dim[at].scale /= factor;
            }
            memmove(&to.dim[at + 1], &to.dim[at], (size_t)(to.rank - at) * sizeof(to.dim[0]));
            to.dim[at] = sx_dim_of(factor);
            to.rank++;
        }
    }
    d->attr.type = to;
}

static void draft_transpose(gen *g, const sx_type *x, draft *d)
{
    d->attr.perm.count = x->rank;
    for (uint32_t i = 0; i < x->rank; i++) {
        uint32_t k = below(g, i + 1);
        d->attr.perm.v[i] = d->attr.perm.v[k];
        d->attr.perm.v[k] = i;
    }
}

static void draft_broadcast(gen *g, const sx_type *x, draft *d)
{
    sx_type to = {.dtype = x->dtype};
    d->attr.dims.count = x->rank;
    for (uint32_t i = 0; i <= x->rank; i++) {
        if (to.rank + (x->rank - i) < 6 && chance(g, 3)) {
            to.dim[to.rank++] = random_dim(g);
        }
        if (i < x->rank) {
            bool one = sx_dim_equal(x->dim[i], sx_dim_of(1));
            d->attr.dims.v[i] = to.rank;
            to.dim[to.rank++] = one && !chance(g, 3) ? random_dim(g) : x->dim[i];
        }
    }
    d->attr.type = to;
}

static void draft_slice(gen *g, const sx_type *x, draft *d)
{
    sx_attr *a = &d->attr;
    a->start.count = a->limit.count = a->stride.count = x->rank;
    for (uint32_t i = 0; i < x->rank; i++) {
        int64_t extent = x->dim[i].scale;
        bool whole = !sx_dim_is_constant(x->dim[i]);
        if (whole && chance(g, 3)) {
            extent *= g->graph->symbol[x->dim[i].symbol].low;
            whole = false;
        }
        a->stride.v[i] = 1 + below(g, 3);
        a->start.v[i] = whole ? 0 : below(g, (uint64_t)extent);
        a->limit.v[i] =
            whole ? -1 : a->start.v[i] + 1 + (int64_t)below(g, (uint64_t)(extent - a->start.v[i]));
        if (!whole && g->options->empties && (extent == 0 || chance(g, 8))) {
            a->limit.v[i] = a->start.v[i];
        }
    }
}

static void draft_concatenate(gen *g, const sx_type *x, draft *d)
{
    d->attr.axis = below(g, x->rank + 1);
    for (uint32_t more = below(g, 4); more > 0; more--) {
        sx_type other = *x;
        if (d->attr.axis < x->rank && chance(g, 2)) {
            bool none = g->options->empties && sx_dim_is_constant(x->dim[d->attr.axis]);
            other.dim[d->attr.axis].scale = none && chance(g, 2) ? 0 : 1 + below(g, 3);
        }
        push(d, node_of(g, &other));
    }
}

static void draft_reduce(gen *g, const sx_type *x, draft *d)
{
    d->attr.reducer = (sx_reducer)below(g, SX_REDUCER_COUNT);
    for (uint32_t i = 0; i < x->rank; i++) {
        if (chance(g, 2)) {
            d->attr.dims.v[d->attr.dims.count++] = i;
        }
    }
}

/* The right operand has the batch and contracted dimensions of the left one, in a random order, and some of its own. */
static void draft_dot(gen *g, const sx_type *x, draft *d)
{
    sx_attr *a = &d->attr;
    sx_type y = {.dtype = x->dtype};
    int64_t *mate[SX_RANK_MAX] = {
        NULL}; /* which entry of a rhs list says where dimension i of y is */
    uint32_t order = below(g, 24);
    for (uint32_t n = 0; n < x->rank; n++) {
        uint32_t i = (n + order) % x->rank;
        uint32_t role = below(g, 3);
        if (role == 0) {
            continue;
        }
        sx_ints *left = role == 1 ? &a->lhs_batch : &a->lhs_contract;
        sx_ints *right = role == 1 ? &a->rhs_batch : &a->rhs_contract;
        left->v[left->count++] = i;
        mate[y.rank] = &right->v[right->count++];
        y.dim[y.rank++] = x->dim[i];
    }
    for (uint32_t more = below(g, 3); more > 0 && y.rank < 6; more--) {
        uint32_t at = below(g, y.rank + 1);
        y.dim[y.rank] = y.dim[at];
        mate[y.rank] = mate[at];
        y.dim[at] = random_dim(g);
        mate[at] = NULL;
        y.rank++;
    }
    for (uint32_t i = 0; i < y.rank; i++) {
        if (mate[i] != NULL) {
            *mate[i] = i;
        }
    }
    push(d, small_enough(g, &y) ? node_of(g, &y) : d->input[0]);
}

static void draft_gather(gen *g, const sx_type *x, draft *d)
{
    sx_type index = random_type(g);
    index.rank = index.rank > 2 ? 2 : index.rank;
    index.dtype = chance(g, 2) ? SX_I64 : SX_I32;
    d->attr.axis = below(g, x->rank + 1);
    push(d, node_of(g, &index));
}

/* Updates of the type that gather would have. */
static void draft_scatter(gen *g, const sx_type *x, draft *d)
{
    static const sx_reducer any[] = {SX_SUM, SX_PRODUCT, SX_MAX, SX_MIN, SX_REPLACE};
    sx_type updates = {.dtype = x->dtype};
    draft_gather(g, x, d);
    sx_type index = g->graph->node[d->input[1].i].type;
    d->attr.reducer = any[below(g, SX_COUNT(any))];
    for (uint32_t i = 0; i < x->rank && x->rank - 1 + index.rank <= SX_RANK_MAX; i++) {
        if (i != (uint32_t)d->attr.axis) {
            updates.dim[updates.rank++] = x->dim[i];
            continue;
        }
        for (uint32_t k = 0; k < index.rank; k++) {
            updates.dim[updates.rank++] = index.dim[k];
        }
    }
    push(d, node_of(g, &updates));
}

/* A start for some dimensions, and sizes or an update that fit. */
static void draft_dynamic(gen *g, sx_op op, const sx_type *x, draft *d)
{
    sx_attr *a = &d->attr;
    sx_type box = *x;
    sx_type start = {.dtype = chance(g, 2) ? SX_I64 : SX_I32};
    for (uint32_t i = 0; i < x->rank; i++) {
        if (!chance(g, 2)) {
            continue;
        }
        sx_dim extent = x->dim[i];
        bool constant = sx_dim_is_constant(extent);
        int64_t least = extent.scale * (constant ? 1 : g->graph->symbol[extent.symbol].low);
        box.dim[i] = sx_dim_of(1 + below(g, (uint64_t)least));
        a->sizes.v[a->sizes.count++] = box.dim[i].scale;
        a->dims.v[a->dims.count++] = i;
    }
    a->sizes.count = op == SX_OP_DYNAMIC_SLICE ? a->sizes.count : 0;
    if (op == SX_OP_DYNAMIC_UPDATE_SLICE) {
        a->sizes = (sx_ints){0};
        push(d, node_of(g, &box));
    }
    for (uint32_t k = 0; k < a->dims.count; k++) {
        push(d, node_of(g, &start));
    }
}

/* Fewer elements of padding; more may go than there are. */
static void draft_crop(gen *g, int64_t *low, int64_t *high)
{
    if (g->options->crops && chance(g, 3)) {
        *low -= below(g, 4);
        *high -= below(g, 4);
    }
}

/* Paddings, steps and distances of `count` dimensions. */
static void draft_sliding(gen *g, uint32_t count, draft *d)
{
    sx_attr *a = &d->attr;
    a->stride.count = a->low.count = a->high.count = a->dilation.count = count;
    bool padded = chance(g, 2);
    for (uint32_t i = 0; i < count; i++) {
        a->stride.v[i] = 1 + (chance(g, 2) ? below(g, 3) : 0);
        a->low.v[i] = padded ? below(g, 3) : 0;
        a->high.v[i] = padded ? below(g, 3) : 0;
        draft_crop(g, &a->low.v[i], &a->high.v[i]);
        a->dilation.v[i] = chance(g, 3) ? 2 : 1;
    }
}

static void draft_window(gen *g, const sx_type *x, draft *d)
{
    draft_sliding(g, x->rank, d);
    d->attr.reducer = (sx_reducer)below(g, SX_REDUCER_COUNT);
    d->attr.window.count = x->rank;
    for (uint32_t i = 0; i < x->rank; i++) {
        bool slides = sx_dim_is_constant(x->dim[i]) && chance(g, 2);
        d->attr.window.v[i] = slides ? 1 + below(g, 3) : 1;
        if (!sx_dim_is_constant(x->dim[i])) {
            d->attr.low.v[i] = d->attr.high.v[i] = 0;
        }
    }
}

static void draft_convolution(gen *g, const sx_type *x, draft *d)
{
    if (x->rank < 3 || !sx_dim_is_constant(x->dim[1])) {
        push(d, d->input[0]);
        return;
    }
    draft_sliding(g, x->rank - 2, d);
    sx_type w = *x;
    int64_t groups = chance(g, 2) ? 1 : 1 + below(g, (uint64_t)x->dim[1].scale);
    groups = x->dim[1].scale % groups == 0 ? groups : x->dim[1].scale;
    d->attr.groups = groups;
    w.dim[0] = sx_dim_of(groups * (1 + (int64_t)below(g, 3)));
    w.dim[1].scale /= groups;
    for (uint32_t i = 2; i < x->rank; i++) {
        bool slides = sx_dim_is_constant(x->dim[i]);
        w.dim[i] = sx_dim_of(slides ? 1 + below(g, 3) : 1);
        if (!slides) {
            d->attr.low.v[i - 2] = d->attr.high.v[i - 2] = 0;
        }
    }
    push(d, node_of(g, &w));
}

static void draft_move(gen *g, sx_op op, const sx_type *x, draft *d)
{
    sx_attr *a = &d->attr;
    a->low.count = a->high.count = a->interior.count = a->origin.count = x->rank;
    a->type = *x;
    for (uint32_t i = 0; i < x->rank; i++) {
        bool constant = sx_dim_is_constant(x->dim[i]);
        int64_t least = x->dim[i].scale * (constant ? 1 : g->graph->symbol[x->dim[i].symbol].low);
        int64_t part = least > 0 ? 1 + (int64_t)below(g, (uint64_t)least) : 0;
        bool whole = !constant && chance(g, 2);
        a->type.dim[i] = whole ? x->dim[i] : sx_dim_of(part);
        a->origin.v[i] = sx_dim_of(whole ? 0 : (int64_t)below(g, (uint64_t)(least - part) + 1));
        bool padded = sx_dim_is_constant(x->dim[i]) && chance(g, 2);
        a->low.v[i] = padded ? below(g, 3) : 0;
        a->high.v[i] = padded ? below(g, 3) : 0;
        a->interior.v[i] = padded && chance(g, 3) ? 1 + below(g, 2) : 0;
        if (sx_dim_is_constant(x->dim[i])) {
            draft_crop(g, &a->low.v[i], &a->high.v[i]);
        }
        if (chance(g, 2)) {
            a->dims.v[a->dims.count++] = i;
        }
    }
    sx_type value = {.dtype = x->dtype};
    if (op == SX_OP_PAD) {
        push(d, node_of(g, &value));
    }
}

static void draft_composite(gen *g, sx_op op, const sx_type *x, draft *d)
{
    d->attr.axis = below(g, x->rank + 1);
    d->attr.eps = chance(g, 2) ? 1e-5 : (1 + (double)below(g, 100)) / 7.0;
    d->attr.scale = 1.0 / (1.0 + (double)below(g, 9));
    if (op == SX_OP_LAYER_NORM || op == SX_OP_RMS_NORM) {
        sx_type scale = {.dtype = x->dtype};
        for (uint32_t i = (uint32_t)d->attr.axis; i < x->rank; i++) {
            scale.dim[scale.rank++] = x->dim[i];
        }
        while (d->input_count < sx_op_info_of(op)->input_min) {
            push(d, node_of(g, &scale));
        }
    }
    if (op == SX_OP_ONLINE_DOT && x->rank >= 1) {
        d->attr.form = below(g, 2) * 2;
        d->attr.lhs_contract = (sx_ints){1, {below(g, x->rank)}};
        if (chance(g, 2)) {
            sx_type v = {.dtype = x->dtype, .rank = 2};
            v.dim[0] = x->dim[d->attr.lhs_contract.v[0]];
            v.dim[1] = random_dim(g);
            d->attr.rhs_contract = (sx_ints){1, {0}};
            d->attr.form /= 2;
            push(d, node_of(g, &v));
        }
    }
    if (op == SX_OP_BATCH_NORM && d->attr.axis < x->rank) {
        sx_type channel = {.dtype = x->dtype, .rank = 1, .dim = {x->dim[d->attr.axis]}};
        while (d->input_count < 5) {
            push(d, node_of(g, &channel));
        }
    }
    if (op == SX_OP_ATTENTION && x->rank >= 2) {
        sx_type t = *x;
        sx_dim keys = random_dim(g);
        t.dim[t.rank - 2] = keys;
        push(d, node_of(g, &t));
        t.dim[t.rank - 1] = random_dim(g);
        push(d, node_of(g, &t));
        if (chance(g, 2)) {
            t = *x;
            t.dim[t.rank - 1] = keys;
            push(d, node_of(g, &t));
        }
    }
}

static void draft_sort(gen *g, const sx_type *x, draft *d)
{
    d->attr.axis = below(g, x->rank + 1);
    d->attr.direction = chance(g, 2) ? SX_LT : SX_GT;
    d->attr.count = chance(g, 2) ? -1 : (int64_t)!g->options->empties + (int64_t)below(g, 4);
    d->attr.result = below(g, 2);
}

/* A kernel that is another node lifted, or two of them made one. */
static bool draft_fused(gen *g, sx_node_id from, draft *d)
{
    const sx_graph *graph = g->graph;
    const sx_node *node = &graph->node[from.i];
    sx_type operand[SX_INPUTS_MAX];
    d->input_count = 0;
    for (uint32_t k = 0; k < node->input_count; k++) {
        push(d, sx_graph_input(graph, node, k));
        operand[k] = graph->node[d->input[k].i].type;
    }
    if (node->op != SX_OP_FUSED) {
        return sx_fused_lift(g->cx, node->op, sx_graph_attr(graph, node), operand,
                             node->input_count, &node->type, &d->attr) == SX_OK;
    }
    for (uint32_t k = 0; k < node->input_count; k++) {
        const sx_node *producer = &graph->node[d->input[k].i];
        bool ok = false;
        if (producer->op != SX_OP_FUSED ||
            sx_fused_inline(g->cx, sx_graph_attr(graph, node), k, sx_graph_attr(graph, producer),
                            &producer->type, &d->attr, &ok) != SX_OK ||
            !ok) {
            continue;
        }
        memmove(&d->input[k], &d->input[k + 1], (d->input_count - k - 1) * sizeof(d->input[0]));
        d->input_count--;
        for (uint32_t i = 0; i < producer->input_count; i++) {
            push(d, sx_graph_input(graph, producer, i));
        }
        return true;
    }
    return false;
}

static bool draft_region(gen *g, sx_op op, const sx_type *x, draft *d)
{
    sx_type input[2];
    if (!sx_test_region(g->cx, g->rng, op, x, &d->attr, input)) {
        return false;
    }
    push(d, d->input[0]);
    d->input[0] = parameter(g, &input[0]);
    return true;
}

static const struct {
    const char *name;
    int64_t size;
} mesh_axis[] = {{"tp", 2}, {"odd \"axis\"", 3}};

static void draft_collective(gen *g, sx_op op, const sx_type *x, draft *d)
{
    uint32_t along = below(g, SX_COUNT(mesh_axis));
    uint32_t ranks = (uint32_t)mesh_axis[along].size;
    uint32_t turn = below(g, ranks);
    sx_rank_pair *pair = SX_NEW_ARRAY(g->cx, sx_rank_pair, ranks);
    ck_assert_ptr_nonnull(pair);
    d->attr.along = sx_span_of(mesh_axis[along].name);
    d->attr.ranks = ranks;
    d->attr.axis = x->rank > 0 ? below(g, x->rank) : 0;
    d->attr.split = x->rank > 0 ? below(g, x->rank) : 0;
    d->attr.reducer = (sx_reducer)below(g, SX_REDUCER_COUNT);
    for (uint32_t source = 0; source < ranks; source++) {
        if (chance(g, 2)) {
            pair[d->attr.pairs.count++] = (sx_rank_pair){source, (source + turn) % ranks};
        }
    }
    d->attr.pairs.pair = pair;
    d->input_count = sx_op_info_of(op)->input_max;
}

static bool fill_draft(gen *g, sx_op op, sx_node_id from, draft *d)
{
    sx_type x = g->graph->node[from.i].type;
    *d = (draft){.attr = {.present = sx_op_info_of(op)->attrs}};
    push(d, from);
    switch (sx_op_info_of(op)->op_class) {
    case SX_OPCLASS_LEAF: return false;
    case SX_OPCLASS_UNARY:
    case SX_OPCLASS_BINARY:
    case SX_OPCLASS_COMPARE:
    case SX_OPCLASS_SELECT:
    case SX_OPCLASS_CONVERT: draft_elementwise(g, op, &x, d); return true;
    case SX_OPCLASS_VIEW:
        if (op == SX_OP_RESHAPE) {
            draft_reshape(g, &x, d);
        } else if (op == SX_OP_TRANSPOSE) {
            draft_transpose(g, &x, d);
        } else if (op == SX_OP_BROADCAST) {
            draft_broadcast(g, &x, d);
        } else {
            draft_slice(g, &x, d);
        }
        return true;
    case SX_OPCLASS_CONCAT: draft_concatenate(g, &x, d); return true;
    case SX_OPCLASS_REDUCE: draft_reduce(g, &x, d); return true;
    case SX_OPCLASS_DOT: draft_dot(g, &x, d); return true;
    case SX_OPCLASS_GATHER: draft_gather(g, &x, d); return true;
    case SX_OPCLASS_SCATTER: draft_scatter(g, &x, d); return true;
    case SX_OPCLASS_DYNAMIC: draft_dynamic(g, op, &x, d); return true;
    case SX_OPCLASS_SORT: draft_sort(g, &x, d); return true;
    case SX_OPCLASS_MOVE: draft_move(g, op, &x, d); return true;
    case SX_OPCLASS_WINDOW: draft_window(g, &x, d); return true;
    case SX_OPCLASS_CONV: draft_convolution(g, &x, d); return true;
    case SX_OPCLASS_COMPOSITE: draft_composite(g, op, &x, d); return true;
    case SX_OPCLASS_REGION: return draft_region(g, op, &x, d);
    case SX_OPCLASS_COLLECTIVE: draft_collective(g, op, &x, d); return true;
    case SX_OPCLASS_FUSED: return draft_fused(g, from, d);
    }
    return false;
}

static bool draw_leaf(gen *g, sx_op op)
{
    sx_type type = random_type(g);
    if (op == SX_OP_PARAMETER) {
        (void)parameter(g, &type);
    } else if (op == SX_OP_CONSTANT) {
        (void)constant(g, &type);
    } else {
        sx_attr attr = {.present = SX_A(axis) | SX_A(type), .type = type};
        attr.axis = below(g, type.rank + 1);
        sx_node_id id;
        bool added = sx_graph_add(g->cx, g->graph, SX_OP_IOTA, &attr, NULL, 0, &id) == SX_OK;
        sx_ctx_reset_error(g->cx);
        return added;
    }
    return true;
}

/* Draws one operation; false if the draw does not fit together. */
static bool draw(gen *g)
{
    sx_op op = (sx_op)below(g, SX_OP_COUNT);
    if (!sx_bits_has(&g->options->ops, op)) {
        return false;
    }
    if (sx_op_info_of(op)->op_class == SX_OPCLASS_LEAF) {
        return draw_leaf(g, op);
    }
    uint32_t count = g->graph->node_count;
    uint32_t recent = count < 6 || chance(g, 3) ? count : 6;
    draft d;
    bool good = fill_draft(g, op, (sx_node_id){count - 1 - below(g, recent)}, &d);
    sx_type operand[SX_INPUTS_MAX];
    for (uint32_t k = 0; good && k < d.input_count; k++) {
        operand[k] = g->graph->node[d.input[k].i].type;
    }
    sx_type result;
    good = good &&
           (g->options->sums
                ? sx_infer_over(g->cx, g->graph, op, &d.attr, operand, d.input_count, &result)
                : sx_infer_type(g->cx, g->graph->symbol, g->graph->symbol_count, op, &d.attr,
                                operand, d.input_count, &result)) == SX_OK &&
           small_enough(g, &result) && (g->options->empties || !sx_type_is_empty(&result));
    sx_node_id id;
    good = good && sx_graph_add(g->cx, g->graph, op, &d.attr, d.input, d.input_count, &id) == SX_OK;
    ck_assert_msg(good || g->cx->error.code != SX_NOMEM, "%s", g->cx->error.text);
    sx_ctx_reset_error(g->cx);
    return good;
}

sx_graph *sx_gen_graph(sx_ctx *cx, sx_rng *rng, const sx_gen_options *options)
{
    static const struct {
        const char *name;
        int64_t low, high;
    } symbol[] = {{"batch", 1, 4}, {"n", 2, 3}, {"odd \"name\"\n", 3, 3}};
    gen g = {.cx = cx, .rng = rng, .options = options};
    ck_assert_uint_le(options->symbols, SX_COUNT(symbol));
    ck_assert_uint_le(options->rank_max, 5);
    ck_sx_ok(cx, sx_graph_make(cx, sx_span_of("random"), NULL, &g.graph));
    for (uint32_t i = 0; i < options->symbols; i++) {
        uint32_t id;
        ck_sx_ok(cx, sx_graph_add_symbol(cx, g.graph, sx_span_of(symbol[i].name), symbol[i].low,
                                         symbol[i].high, &id));
    }
    for (uint32_t a = 0; a < SX_COUNT(mesh_axis) && sx_bits_has(&options->ops, SX_OP_ALL_REDUCE);
         a++) {
        ck_sx_ok(cx,
                 sx_mesh_add_axis(cx, g.graph, sx_span_of(mesh_axis[a].name), mesh_axis[a].size));
    }
    sx_type first = random_type(&g);
    (void)parameter(&g, &first);
    uint32_t added = 0;
    for (uint32_t tries = 0; added < options->node_count && tries < 200 * options->node_count;
         tries++) {
        added += draw(&g) ? 1 : 0;
    }
    uint32_t output_count = 1 + below(&g, 3);
    for (uint32_t i = 0; i < output_count; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "y%u", i);
        uint32_t node = i == 0 ? g.graph->node_count - 1 : below(&g, g.graph->node_count);
        ck_sx_ok(cx, sx_graph_add_output(cx, g.graph, sx_span_of(name), (sx_node_id){node}));
    }
    ck_sx_ok(cx, sx_graph_check(cx, g.graph));
    return g.graph;
}

uint32_t sx_gen_binding(sx_rng *rng, const sx_graph *graph, sx_binding *binding)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        const sx_symbol *s = &graph->symbol[i];
        uint64_t span = (uint64_t)(s->high - s->low) + 1;
        if (sx_symbol_is_declared(s)) {
            binding[count++] = (sx_binding){s->name, s->low + (int64_t)sx_rng_below(rng, span)};
        }
    }
    return count;
}

/* ---- the same program in other words ---- */

/* Symbols in reverse order; `to` gives each its new number. */
static void reverse_symbols(sx_ctx *cx, const sx_graph *from, sx_graph *to, uint32_t *image)
{
    sx_dim dim[SX_SYMBOLS_MAX];
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = from->symbol_count; i-- > 0;) {
            const sx_symbol *s = &from->symbol[i];
            sx_polynomial sum;
            dim[i].scale = 1;
            if (round == 0 && sx_symbol_is_declared(s)) {
                ck_sx_ok(cx, sx_graph_add_symbol(cx, to, s->name, s->low, s->high, &dim[i].symbol));
            } else if (round == 1 && !sx_symbol_is_declared(s)) {
                ck_assert(sx_polynomial_rename(s->sum, dim, &sum));
                ck_sx_ok(cx, sx_graph_add_extent(cx, to, &sum, &dim[i]));
            }
            image[i] = dim[i].symbol;
        }
    }
}

static void renumber(sx_dim *dim, const uint32_t *image)
{
    sx_dim factor[2];
    if (sx_dim_factors(*dim, factor)) { /* a stride */
        int64_t scale = dim->scale;
        factor[0].symbol = image[factor[0].symbol];
        factor[1].symbol = image[factor[1].symbol];
        ck_assert(sx_dim_product(factor[0], factor[1], dim));
        dim->scale = scale;
    } else if (!sx_dim_is_constant(*dim) && dim->scale != 0) {
        dim->symbol = image[dim->symbol];
    }
}

/* Each node of the graph in two places, equal or not; users take either. */
typedef struct {
    sx_node_id one, two;
} twins;

static sx_node_id either(sx_rng *rng, const twins *place)
{
    return sx_rng_below(rng, 2) == 0 ? place->one : place->two;
}

static sx_node_id add_copy(sx_ctx *cx, sx_rng *rng, const sx_graph *from, uint32_t index,
                           sx_graph *to, const twins *place, const uint32_t *symbol)
{
    const sx_node *node = &from->node[index];
    sx_attr attr = *sx_graph_attr(from, node);
    for (uint32_t i = 0; i < attr.type.rank; i++) {
        renumber(&attr.type.dim[i], symbol);
    }
    if (attr.body != NULL) {
        sx_body *body = SX_NEW(cx, sx_body);
        ck_assert_ptr_nonnull(body);
        sx_body_copy(body, attr.body);
        for (uint32_t a = 0; a < body->arg_count; a++) {
            for (uint32_t i = 0; i < SX_RANK_MAX; i++) {
                renumber(&body->access[a].stride[i], symbol);
            }
            renumber(&body->access[a].offset, symbol);
        }
        attr.body = body;
    }
    sx_node_id input[SX_INPUTS_MAX];
    for (uint32_t k = 0; k < node->input_count; k++) {
        input[k] = either(rng, &place[sx_graph_input(from, node, k).i]);
    }
    sx_node_id id;
    ck_sx_ok(cx, sx_graph_add(cx, to, node->op, &attr, input, node->input_count, &id));
    return id;
}

static bool ready(const sx_graph *from, uint32_t index, const twins *place)
{
    const sx_node *node = &from->node[index];
    for (uint32_t k = 0; k < node->input_count; k++) {
        if (place[sx_graph_input(from, node, k).i].one.i == UINT32_MAX) {
            return false;
        }
    }
    for (uint32_t i = 0; node->op == SX_OP_PARAMETER && i < index; i++) {
        if (from->node[i].op == SX_OP_PARAMETER && place[i].one.i == UINT32_MAX) {
            return false;
        }
    }
    return true;
}

sx_graph *sx_gen_disguise(sx_ctx *cx, sx_rng *rng, const sx_graph *graph)
{
    sx_graph *to;
    ck_sx_ok(cx, sx_graph_make(cx, sx_span_of("disguised"), NULL, &to));
    uint32_t symbol[SX_SYMBOLS_MAX];
    reverse_symbols(cx, graph, to, symbol);
    twins *place = SX_NEW_ARRAY(cx, twins, graph->node_count);
    ck_assert_ptr_nonnull(place);
    memset(place, 0xff, graph->node_count * sizeof(*place));
    for (uint32_t left = graph->node_count; left > 0; left--) {
        uint32_t first = (uint32_t)sx_rng_below(rng, graph->node_count);
        uint32_t i = first;
        while (place[i].one.i != UINT32_MAX || !ready(graph, i, place)) {
            i = (i + 1) % graph->node_count;
            ck_assert_uint_ne(i, first);
        }
        bool twice = graph->node[i].op != SX_OP_PARAMETER && sx_rng_below(rng, 3) == 0;
        sx_node_id one = add_copy(cx, rng, graph, i, to, place, symbol);
        sx_node_id two = twice ? add_copy(cx, rng, graph, i, to, place, symbol) : one;
        place[i] = (twins){one, two};
        if (sx_rng_below(rng, 4) == 0) { /* dead code */
            sx_node_id dead;
            sx_ints perm = {.count = to->node[one.i].type.rank};
            for (uint32_t k = 0; k < perm.count; k++) {
                perm.v[k] = k;
            }
            ck_sx_ok(cx, sx_build_transpose(cx, to, one, &perm, &dead));
        }
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        sx_node_id node = either(rng, &place[graph->output[i].node.i]);
        ck_sx_ok(cx, sx_graph_add_output(cx, to, graph->output[i].name, node));
    }
    ck_sx_ok(cx, sx_sharding_copy(cx, graph, NULL, to)); /* a mesh, and nothing lies on it */
    ck_sx_ok(cx, sx_graph_check(cx, to));
    return to;
}
