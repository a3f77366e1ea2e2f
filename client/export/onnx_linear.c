/* onnx_linear.c - contractions, convolutions, windows. */
#include "client/export/onnx_writer.h"

static bool is_real(sx_dtype dtype)
{
    return dtype == SX_F16 || dtype == SX_F32 || dtype == SX_F64;
}

/* ---- dot_general ---- */

/* Dimensions of one operand in the order that MatMul wants them, batch first. */
typedef struct {
    sx_ints order;
    uint32_t batch, free, contract; /* how many of each */
    bool moved;                     /* the order is not the operand's */
} operand;

static bool in_list(const sx_ints *list, int64_t value)
{
    bool found = false;
    for (uint32_t i = 0; i < list->count; i++) {
        found = found || list->v[i] == value;
    }
    return found;
}

static void put_list(sx_ints *order, const sx_ints *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        order->v[order->count++] = list->v[i];
    }
}

static operand arrange(const sx_ints *batch, const sx_ints *contract, uint32_t rank, bool left)
{
    operand a = {.batch = batch->count, .contract = contract->count};
    put_list(&a.order, batch);
    if (!left) {
        put_list(&a.order, contract);
    }
    for (uint32_t d = 0; d < rank; d++) {
        if (!in_list(batch, d) && !in_list(contract, d)) {
            a.order.v[a.order.count++] = d;
            a.free++;
        }
    }
    if (left) {
        put_list(&a.order, contract);
    }
    for (uint32_t d = 0; d < rank; d++) {
        a.moved = a.moved || a.order.v[d] != d;
    }
    return a;
}

static sx_span in_order(sx_ow *w, uint32_t k, const operand *a)
{
    if (!a->moved) {
        return sx_ow_value(w, k);
    }
    sx_span name = sx_ow_fresh(w);
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, k));
    sx_pb_attr_ints(&w->part, "perm", a->order.v, a->order.count);
    sx_ow_end(w, "Transpose", name);
    return name;
}

static sx_code write_einsum(sx_ow *w)
{
    const sx_attr *attr = sx_ow_attr(w);
    const sx_ints *batch[2] = {&attr->lhs_batch, &attr->rhs_batch};
    const sx_ints *contract[2] = {&attr->lhs_contract, &attr->rhs_contract};
    char label[2][SX_RANK_MAX + 1] = {{0}};
    char equation[4 * SX_RANK_MAX + 8];
    char next = 'a';
    sx_buf text;
    sx_buf_init(&text, sizeof(equation) - 1);
    for (uint32_t i = 0; i < batch[0]->count; i++, next++) {
        label[0][batch[0]->v[i]] = label[1][batch[1]->v[i]] = next;
    }
    for (uint32_t i = 0; i < contract[0]->count; i++, next++) {
        label[0][contract[0]->v[i]] = label[1][contract[1]->v[i]] = next;
    }
    char free_from = next;
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t d = 0; d < sx_ow_type(w, k)->rank; d++) {
            label[k][d] = label[k][d] == 0 ? next++ : label[k][d];
        }
        sx_buf_print(&text, "%s%s", k > 0 ? "," : "", label[k]);
    }
    sx_buf_put_text(&text, "->");
    for (uint32_t i = 0; i < batch[0]->count; i++) {
        sx_buf_put_u8(&text, (uint8_t)label[0][batch[0]->v[i]]);
    }
    for (char c = free_from; c < next; c++) {
        sx_buf_put_u8(&text, (uint8_t)c);
    }
    sx_code code = sx_buf_check(w->cx, &text, "equation");
    const char *copy = sx_alloc_text(w->cx, sx_buf_span(&text));
    sx_buf_fini(&text);
    SX_TRY(code);
    w->name[w->at] = sx_ow_result(w);
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, 0));
    sx_ow_input(w, sx_ow_value(w, 1));
    sx_pb_attr_text(&w->part, "equation", copy);
    sx_ow_end(w, "Einsum", w->name[w->at]);
    return SX_OK;
}

/* MatMul where each side has one free and one contracted dimension, or there is no batch and the right side
 * has; else Einsum. */
sx_code sx_ow_dot(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_DOT_GENERAL);
    const sx_attr *attr = sx_ow_attr(w);
    sx_dtype dtype = sx_ow_type(w, 0)->dtype;
    operand a = arrange(&attr->lhs_batch, &attr->lhs_contract, sx_ow_type(w, 0)->rank, true);
    operand b = arrange(&attr->rhs_batch, &attr->rhs_contract, sx_ow_type(w, 1)->rank, false);
    bool product = a.contract == 1 && b.free == 1 && (a.free == 1 || (a.batch == 0 && a.free > 0));
    bool wide_int = dtype == SX_I64 || dtype == SX_I32;
    if (!is_real(dtype) && !wide_int && !(product && dtype == SX_BF16)) {
        return SX_OW_FAIL(w, "no operator of opset %d for %s in this form", SX_ONNX_WRITE_OPSET,
                          sx_dtype_name(dtype));
    }
    if (!product) {
        return write_einsum(w);
    }
    sx_span left = in_order(w, 0, &a);
    sx_span right = in_order(w, 1, &b);
    w->name[w->at] = sx_ow_result(w);
    sx_ow_begin(w);
    sx_ow_input(w, left);
    sx_ow_input(w, right);
    sx_ow_end(w, "MatMul", w->name[w->at]);
    return SX_OK;
}

/* ---- convolution ---- */

static void put_window(sx_ow *w, const int64_t *low, const int64_t *high, const int64_t *stride,
                       const int64_t *dilation, uint32_t rank)
{
    int64_t pads[2 * SX_RANK_MAX];
    for (uint32_t d = 0; d < rank; d++) {
        pads[d] = low[d];
        pads[rank + d] = high[d];
    }
    sx_pb_attr_ints(&w->part, "pads", pads, 2 * rank);
    sx_pb_attr_ints(&w->part, "strides", stride, rank);
    sx_pb_attr_ints(&w->part, "dilations", dilation, rank);
}

sx_code sx_ow_convolution(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_CONVOLUTION);
    const sx_attr *attr = sx_ow_attr(w);
    sx_dtype dtype = sx_ow_type(w, 0)->dtype;
    if (!is_real(dtype)) {
        return SX_OW_FAIL(w, "no operator of opset %d for %s", SX_ONNX_WRITE_OPSET,
                          sx_dtype_name(dtype));
    }
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, 0));
    sx_ow_input(w, sx_ow_value(w, 1));
    put_window(w, attr->low.v, attr->high.v, attr->stride.v, attr->dilation.v,
               sx_ow_node(w)->type.rank - 2);
    sx_pb_attr_int(&w->part, "group", attr->groups);
    w->name[w->at] = sx_ow_result(w);
    sx_ow_end(w, "Conv", w->name[w->at]);
    return SX_OK;
}

/* ---- reduce_window ---- */

/* The dimensions before the window, as many as it leaves alone, but at most two. */
static uint32_t leading(const sx_attr *attr, uint32_t rank)
{
    uint32_t d = 0;
    while (d < 2 && d < rank && attr->window.v[d] == 1 && attr->stride.v[d] == 1 &&
           attr->low.v[d] == 0 && attr->high.v[d] == 0) {
        d++;
    }
    return d;
}

/* Padding as wide as the window: places that see no element, which pools do not define. */
static bool has_empty_places(const sx_attr *attr, uint32_t rank)
{
    bool empty = false;
    for (uint32_t d = 0; d < rank; d++) {
        empty =
            empty || attr->low.v[d] >= attr->window.v[d] || attr->high.v[d] >= attr->window.v[d];
    }
    return empty;
}

static void put_pool(sx_ow *w, const char *type, sx_span x, uint32_t lead, bool counted,
                     sx_span result)
{
    const sx_attr *attr = sx_ow_attr(w);
    uint32_t rank = sx_ow_node(w)->type.rank - lead;
    sx_ow_begin(w);
    sx_ow_input(w, x);
    sx_pb_attr_ints(&w->part, "kernel_shape", attr->window.v + lead, rank);
    put_window(w, attr->low.v + lead, attr->high.v + lead, attr->stride.v + lead,
               attr->dilation.v + lead, rank);
    if (counted) {
        sx_pb_attr_int(&w->part, "count_include_pad", 1);
    }
    sx_ow_end(w, type, result);
}

/* The number of elements under the window, of the element type of the operand. */
static sx_span window_size(sx_ow *w)
{
    const sx_attr *attr = sx_ow_attr(w);
    int64_t size = 1;
    static const int64_t none = 0;
    for (uint32_t d = 0; d < sx_ow_node(w)->type.rank; d++) {
        size = sx_mul_i64(size, attr->window.v[d], &size) ? size : none;
    }
    sx_span whole = sx_ow_ints(w, &size, 1);
    sx_span real = sx_ow_fresh(w);
    sx_ow_begin(w);
    sx_ow_input(w, whole);
    sx_pb_attr_int(&w->part, "to", sx_pb_dtype(sx_ow_node(w)->type.dtype));
    sx_ow_end(w, "Cast", real);
    return real;
}

sx_code sx_ow_window(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_REDUCE_WINDOW);
    const sx_attr *attr = sx_ow_attr(w);
    const sx_type *type = &sx_ow_node(w)->type;
    sx_reducer reducer = attr->reducer;
    uint32_t lead = leading(attr, type->rank);
    uint32_t spatial = type->rank - lead;
    bool small_int = type->dtype == SX_I8 || type->dtype == SX_U8;
    if (!is_real(type->dtype) && !(reducer == SX_MAX && small_int)) {
        return SX_OW_FAIL(w, "no pool of opset %d for %s", SX_ONNX_WRITE_OPSET,
                          sx_dtype_name(type->dtype));
    }
    if (reducer == SX_PRODUCT || spatial == 0 || spatial > 3 ||
        has_empty_places(attr, type->rank)) {
        return SX_OW_FAIL(w, "%s over windows of %u dimensions is no pool",
                          sx_reducer_name(reducer), spatial);
    }
    sx_span x = sx_ow_value(w, 0);
    static const int64_t axes[2] = {0, 1};
    uint32_t added = 2 - lead;
    if (added > 0) {
        x = sx_ow_apply(w, "Unsqueeze", x, sx_ow_ints(w, axes, added));
    }
    if (reducer == SX_MIN) {
        x = sx_ow_apply(w, "Neg", x, (sx_span){0});
    }
    bool plain = reducer == SX_MAX && added == 0;
    sx_span y = plain ? sx_ow_result(w) : sx_ow_fresh(w);
    put_pool(w, reducer == SX_SUM ? "AveragePool" : "MaxPool", x, lead, reducer == SX_SUM, y);
    if (reducer == SX_MIN) {
        y = sx_ow_apply(w, "Neg", y, (sx_span){0});
    } else if (reducer == SX_SUM) {
        y = sx_ow_apply(w, "Mul", y, window_size(w));
    }
    if (added > 0) {
        y = sx_ow_apply(w, "Squeeze", y, sx_ow_ints(w, axes, added));
    }
    w->name[w->at] = y;
    return SX_OK;
}
