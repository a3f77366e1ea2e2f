/* Programs without negative padding, and without tensors that have no elements. */
#include "core/ir/plain.h"

#include <math.h>

#include "core/ir/effect.h"
#include "core/ir/extent.h"
#include "core/ir/num.h"
#include "core/ir/origin.h"
#include "core/ir/shard.h"

static bool has_negative(const sx_ints *list)
{
    SX_ASSERT(list->count <= SX_RANK_MAX);
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->v[i] < 0) {
            return true;
        }
    }
    return false;
}

bool sx_padding_is_plain(sx_op op, const sx_attr *attr)
{
    bool pads = op == SX_OP_PAD || op == SX_OP_REDUCE_WINDOW || op == SX_OP_CONVOLUTION;
    return !pads || (!has_negative(&attr->low) && !has_negative(&attr->high));
}

bool sx_type_is_empty(const sx_type *type)
{
    SX_ASSERT(type->rank <= SX_RANK_MAX);
    for (uint32_t d = 0; d < type->rank; d++) {
        if (type->dim[d].scale == 0) {
            return true;
        }
    }
    return false;
}

bool sx_node_is_plain(sx_op op, const sx_attr *attr, const sx_type *input, uint32_t input_count,
                      const sx_type *result)
{
    if (op == SX_OP_PARAMETER || op == SX_OP_CONSTANT) {
        return true;
    }
    bool empty = sx_type_is_empty(result);
    for (uint32_t k = 0; k < input_count; k++) {
        empty = empty || sx_type_is_empty(&input[k]);
    }
    bool is_region = sx_op_info_of(op)->op_class == SX_OPCLASS_REGION;
    return (!empty || is_region) && sx_padding_is_plain(op, attr);
}

/* ---- constants, and one dimension ---- */

/* The element of what a reduction over nothing gives, in a graph. */
static sx_code add_neutral(sx_ctx *cx, sx_graph *to, sx_reducer reducer, const sx_type *type,
                           sx_node_id *id)
{
    SX_ASSERT(reducer < SX_REDUCER_COUNT);
    if (reducer == SX_SUM || reducer == SX_PRODUCT) {
        return sx_build_scalar(cx, to, type, reducer == SX_PRODUCT ? 1 : 0, id);
    }
    if (sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT) {
        double infinity = reducer == SX_MAX ? -HUGE_VAL : HUGE_VAL;
        return sx_build_scalar(cx, to, type, sx_round(type->dtype, infinity), id);
    }
    uint8_t bytes[8];
    int64_t value = reducer == SX_MAX ? sx_num_int_min(type->dtype) : sx_num_int_max(type->dtype);
    sx_num_store(type->dtype, bytes, 0, sx_num_int_encode(type->dtype, value));
    sx_attr attr = {.present = SX_A(data) | SX_A(type),
                    .data = {bytes, sx_dtype_bytes(type->dtype)},
                    .type = *type};
    return sx_graph_add(cx, to, SX_OP_CONSTANT, &attr, NULL, 0, id);
}

/* What stays of `extent` elements, `step` apart, that are padded by *low and *high: those from *first up to *limit;
 * none if that is not more. The numbers become the padding of what stays. */
static void crop(int64_t extent, int64_t step, int64_t *low, int64_t *high, int64_t *first,
                 int64_t *limit)
{
    SX_ASSERT(extent >= 0 && step >= 1);
    *first = *limit = 0;
    if (extent == 0) {
        return;
    }
    int64_t reach = (extent - 1) * step; /* of the last element, from the first */
    int64_t last = reach + sx_min_i64(*high, 0);
    int64_t cut = -sx_min_i64(*low, 0);
    *first = (cut + step - 1) / step;
    *limit = last < 0 ? 0 : last / step + 1;
    if (*first < *limit) {
        *low += *first * step;
        *high += reach - (*limit - 1) * step;
        SX_ASSERT(*low >= 0 && *high >= 0);
    }
}

/* ---- nodes ---- */

/* pad(x, value) of any padding, as a slice of x with the rest of it, or as the value alone. */
static sx_code add_pad(sx_ctx *cx, sx_graph *to, const sx_attr *pad, const sx_type *result,
                       const sx_node_id input[2], sx_node_id *id)
{
    sx_type x = to->node[input[0].i].type;
    sx_attr rest = *pad;
    sx_attr slice = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
    bool pads = false;
    slice.start.count = slice.limit.count = slice.stride.count = x.rank;
    for (uint32_t d = 0; d < x.rank; d++) {
        slice.stride.v[d] = 1;
        slice.limit.v[d] = -1;
        if (!sx_dim_is_constant(x.dim[d])) {
            continue; /* has no padding */
        }
        int64_t *start = &slice.start.v[d];
        int64_t *limit = &slice.limit.v[d];
        crop(x.dim[d].scale, pad->interior.v[d] + 1, &rest.low.v[d], &rest.high.v[d], start, limit);
        if (*start >= *limit) {
            sx_attr all = {.present = SX_A(dims) | SX_A(type), .type = *result};
            return sx_graph_add(cx, to, SX_OP_BROADCAST, &all, &input[1], 1, id);
        }
        rest.interior.v[d] = *limit - *start > 1 ? rest.interior.v[d] : 0;
        pads = pads || rest.low.v[d] > 0 || rest.high.v[d] > 0 || rest.interior.v[d] > 0;
    }
    sx_node_id both[2] = {input[0], input[1]};
    SX_TRY(sx_graph_add(cx, to, SX_OP_SLICE, &slice, input, 1, &both[0]));
    *id = both[0];
    return pads ? sx_graph_add(cx, to, SX_OP_PAD, &rest, both, 2, id) : SX_OK;
}

/* A window that slides over dimensions `first` and later of operand 0: negative padding of it is one of the operand.
 * Where nothing of the operand is left, all padding becomes the operand's, of what the window finds in it. */
static sx_code add_window(sx_ctx *cx, sx_graph *to, const sx_node *node, const sx_attr *attr,
                          uint32_t first, sx_node_id *input, sx_node_id *id)
{
    sx_type x = to->node[input[0].i].type;
    sx_type scalar = {.dtype = x.dtype};
    sx_attr rest = *attr;
    sx_attr pad = {.present = SX_A(low) | SX_A(high) | SX_A(interior)};
    pad.low.count = pad.high.count = pad.interior.count = x.rank;
    SX_ASSERT(attr->low.count + first == x.rank);
    for (uint32_t k = 0; k < attr->low.count; k++) {
        uint32_t d = first + k;
        int64_t low = sx_min_i64(attr->low.v[k], 0);
        int64_t high = sx_min_i64(attr->high.v[k], 0);
        bool gone = sx_dim_is_constant(x.dim[d]) && low + high + x.dim[d].scale < 1;
        pad.low.v[d] = gone ? attr->low.v[k] : low;
        pad.high.v[d] = gone ? attr->high.v[k] : high;
        rest.low.v[k] -= pad.low.v[d];
        rest.high.v[k] -= pad.high.v[d];
        if (sx_dim_is_constant(x.dim[d])) {
            x.dim[d].scale += pad.low.v[d] + pad.high.v[d];
        }
    }
    sx_node_id both[2] = {input[0]};
    sx_reducer reducer = node->op == SX_OP_CONVOLUTION ? SX_SUM : attr->reducer;
    SX_TRY(add_neutral(cx, to, reducer, &scalar, &both[1]));
    SX_TRY(add_pad(cx, to, &pad, &x, both, &input[0]));
    return sx_graph_add(cx, to, node->op, &rest, input, node->input_count, id);
}

/* ---- without elements ---- */

static sx_code add_plain(sx_ctx *cx, sx_graph *to, const sx_node *node, const sx_attr *attr,
                         sx_node_id *input, sx_node_id *id);

/* Operands with elements alone. */
static sx_code add_concatenate(sx_ctx *cx, sx_graph *to, const sx_node *node, const sx_attr *attr,
                               const sx_node_id *input, sx_node_id *id)
{
    sx_node_id kept[SX_INPUTS_MAX];
    uint32_t count = 0;
    for (uint32_t k = 0; k < node->input_count; k++) {
        if (!sx_type_is_empty(&to->node[input[k].i].type)) {
            kept[count++] = input[k];
        }
    }
    SX_ASSERT(count > 0);
    *id = kept[0];
    return count == 1 ? SX_OK : sx_graph_add(cx, to, node->op, attr, kept, count, id);
}

/* A composite of operands without elements: its decomposition, node by node. */
static sx_code add_decomposed(sx_ctx *cx, sx_graph *to, const sx_node *node, const sx_attr *attr,
                              const sx_node_id *input, sx_node_id *id)
{
    static const char *const name[] = {"a", "b", "c", "d", "e"};
    sx_graph *parts;
    sx_node_id own[SX_COUNT(name)];
    sx_node_id made;
    SX_ASSERT(node->input_count <= SX_COUNT(name));
    SX_TRY(sx_graph_make(cx, (sx_span){0}, NULL, &parts));
    SX_TRY(sx_graph_copy_symbols(cx, to->symbol, to->symbol_count, parts));
    for (uint32_t k = 0; k < node->input_count; k++) {
        SX_TRY(sx_build_parameter(cx, parts, name[k], false, &to->node[input[k].i].type, &own[k]));
    }
    SX_TRY(sx_decompose(cx, parts, node->op, attr, own, node->input_count, &made));
    uint32_t *image = SX_NEW_ARRAY(cx, uint32_t, parts->node_count);
    if (image == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < parts->node_count; n++) {
        const sx_node *part = &parts->node[n];
        sx_node_id operand[SX_INPUTS_MAX];
        sx_node_id added;
        if (n < node->input_count) {
            image[n] = input[n].i;
            continue;
        }
        for (uint32_t k = 0; k < part->input_count; k++) {
            operand[k].i = image[sx_graph_input(parts, part, k).i];
        }
        SX_TRY(add_plain(cx, to, part, sx_graph_attr(parts, part), operand, &added));
        image[n] = added.i;
    }
    id->i = image[made.i];
    return SX_OK;
}

/* A node with a result that has elements, and an operand that has none. */
static sx_code add_of_nothing(sx_ctx *cx, sx_graph *to, const sx_node *node, const sx_attr *attr,
                              sx_node_id *input, sx_node_id *id)
{
    bool of_x = sx_type_is_empty(&to->node[input[0].i].type);
    switch (sx_op_info_of(node->op)->op_class) {
    case SX_OPCLASS_CONCAT: return add_concatenate(cx, to, node, attr, input, id);
    case SX_OPCLASS_REDUCE:
    case SX_OPCLASS_WINDOW: return add_neutral(cx, to, attr->reducer, &node->type, id);
    case SX_OPCLASS_DOT: return add_neutral(cx, to, SX_SUM, &node->type, id);
    case SX_OPCLASS_COMPOSITE: return add_decomposed(cx, to, node, attr, input, id);
    case SX_OPCLASS_MOVE: return add_pad(cx, to, attr, &node->type, input, id);
    case SX_OPCLASS_CONV:
        if (!sx_type_is_empty(&to->node[input[1].i].type)) { /* padding alone */
            return add_window(cx, to, node, attr, 2, input, id);
        }
        return add_neutral(cx, to, SX_SUM, &node->type, id);
    case SX_OPCLASS_SCATTER:
    case SX_OPCLASS_DYNAMIC: /* x without updates */
        if (of_x) {
            break;
        }
        *id = input[0];
        return SX_OK;
    case SX_OPCLASS_LEAF:
    case SX_OPCLASS_UNARY:
    case SX_OPCLASS_BINARY:
    case SX_OPCLASS_COMPARE:
    case SX_OPCLASS_SELECT:
    case SX_OPCLASS_CONVERT:
    case SX_OPCLASS_VIEW:
    case SX_OPCLASS_GATHER:
    case SX_OPCLASS_SORT:
    case SX_OPCLASS_REGION:
    case SX_OPCLASS_COLLECTIVE:
    case SX_OPCLASS_FUSED: break;
    }
    SX_UNREACHABLE();
}

/* What the rounds of a scan leave that has none: the carried values; the others are tensors without elements. */
static bool has_no_rounds(const sx_graph *to, const sx_node *node, const sx_attr *attr,
                          const sx_node_id *input)
{
    return node->op == SX_OP_SCAN && attr->result < attr->carried &&
           to->node[input[attr->carried].i].type.dim[0].scale == 0;
}

static sx_code add_plain(sx_ctx *cx, sx_graph *to, const sx_node *node, const sx_attr *attr,
                         sx_node_id *input, sx_node_id *id)
{
    bool is_leaf = node->op == SX_OP_PARAMETER || node->op == SX_OP_CONSTANT;
    bool is_region = sx_op_info_of(node->op)->op_class == SX_OPCLASS_REGION;
    bool of_nothing = false;
    for (uint32_t k = 0; k < node->input_count; k++) {
        of_nothing = of_nothing || sx_type_is_empty(&to->node[input[k].i].type);
    }
    if (sx_type_is_empty(&node->type) && !is_leaf) {
        return sx_build_scalar(cx, to, &node->type, 0, id);
    }
    if (is_region && has_no_rounds(to, node, attr, input)) {
        *id = input[attr->result];
        return SX_OK;
    }
    if (of_nothing && !is_region) {
        return add_of_nothing(cx, to, node, attr, input, id);
    }
    if (sx_padding_is_plain(node->op, attr)) {
        return sx_graph_add(cx, to, node->op, attr, input, node->input_count, id);
    }
    if (node->op == SX_OP_PAD) {
        return add_pad(cx, to, attr, &node->type, input, id);
    }
    return add_window(cx, to, node, attr, node->op == SX_OP_CONVOLUTION ? 2 : 0, input, id);
}

/* ---- whole programs ---- */

static bool is_plain(const sx_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        bool leaf = node->op == SX_OP_PARAMETER || node->op == SX_OP_CONSTANT;
        bool plain = sx_padding_is_plain(node->op, sx_graph_attr(graph, node)) &&
                     (leaf || !sx_type_is_empty(&node->type));
        for (uint32_t k = 0; k < node->input_count && plain; k++) {
            plain = !sx_type_is_empty(&sx_graph_node(graph, sx_graph_input(graph, node, k))->type);
        }
        if (!plain) { /* a region may stay as it is: one too many is made again */
            return false;
        }
    }
    return true;
}

static sx_code copy_nodes(sx_ctx *cx, const sx_graph *graph, sx_graph *to, uint32_t *image)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        sx_node_id input[SX_INPUTS_MAX];
        sx_node_id id;
        SX_ASSERT(node->input_count <= SX_INPUTS_MAX);
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k].i = image[sx_graph_input(graph, node, k).i];
        }
        SX_TRY(add_plain(cx, to, node, sx_graph_attr(graph, node), input, &id));
        SX_ASSERT(sx_type_equal(&to->node[id.i].type, &node->type));
        image[n] = id.i;
        const sx_origin *origin = sx_origin_find(graph->origins, n);
        if (origin != NULL) {
            SX_TRY(sx_graph_set_origin(cx, to, id.i, origin));
        }
    }
    return SX_OK;
}

sx_code sx_graph_plain(sx_ctx *cx, const sx_graph *graph, const sx_graph **plain)
{
    *plain = graph;
    if (is_plain(graph)) {
        return SX_OK;
    }
    sx_graph *to;
    SX_TRY(sx_graph_make(cx, graph->name, NULL, &to));
    uint32_t *image = SX_NEW_ARRAY(cx, uint32_t, graph->node_count);
    if (image == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_graph_copy_symbols(cx, graph->symbol, graph->symbol_count, to));
    SX_TRY(copy_nodes(cx, graph, to, image));
    for (uint32_t k = 0; k < graph->output_count; k++) {
        sx_node_id node = {image[graph->output[k].node.i]};
        SX_TRY(sx_graph_add_output(cx, to, graph->output[k].name, node));
    }
    SX_TRY(sx_effects_copy(cx, graph, image, to));
    SX_TRY(sx_sharding_copy(cx, graph, image, to));
    *plain = to;
    return SX_OK;
}
