/* onnx_ops.c - operations with an operator of the same meaning; which element types it takes. */
#include "client/export/onnx_writer.h"
#include "core/ir/num.h"

#define D(dtype) (1u << SX_##dtype)
#define REALS (D(F16) | D(F32) | D(F64))
#define FLOATS (REALS | D(BF16))
#define SIGNED (D(I64) | D(I32) | D(I16) | D(I8))
#define INTS (SIGNED | D(U8))
#define NUMBERS (FLOATS | INTS)
#define ANY (NUMBERS | D(BOOL))

static const struct {
    sx_op op;
    uint32_t dtypes; /* of the operands, as opset 20 has them */
    const char *type;
} plain[] = {{SX_OP_NEGATE, FLOATS | SIGNED, "Neg"},
             {SX_OP_ABS, NUMBERS, "Abs"},
             {SX_OP_EXP, FLOATS, "Exp"},
             {SX_OP_LOG, FLOATS, "Log"},
             {SX_OP_SQRT, FLOATS, "Sqrt"},
             {SX_OP_TANH, FLOATS, "Tanh"},
             {SX_OP_ERF, FLOATS, "Erf"},
             {SX_OP_LOGISTIC, FLOATS, "Sigmoid"},
             {SX_OP_SIN, REALS, "Sin"},
             {SX_OP_COS, REALS, "Cos"},
             {SX_OP_FLOOR, FLOATS, "Floor"},
             {SX_OP_CEIL, FLOATS, "Ceil"},
             {SX_OP_ROUND, REALS, "Round"},
             {SX_OP_SIGN, NUMBERS, "Sign"},
             {SX_OP_NOT, D(BOOL), "Not"},
             {SX_OP_NOT, INTS, "BitwiseNot"},
             {SX_OP_RELU, FLOATS | SIGNED, "Relu"},
             {SX_OP_ADD, NUMBERS, "Add"},
             {SX_OP_ADD, D(BOOL), "Or"},
             {SX_OP_SUBTRACT, NUMBERS, "Sub"},
             {SX_OP_MULTIPLY, NUMBERS, "Mul"},
             {SX_OP_MULTIPLY, D(BOOL), "And"},
             {SX_OP_DIVIDE, FLOATS, "Div"},
             {SX_OP_POWER, FLOATS, "Pow"},
             {SX_OP_MAXIMUM, NUMBERS, "Max"},
             {SX_OP_MINIMUM, NUMBERS, "Min"},
             {SX_OP_AND, D(BOOL), "And"},
             {SX_OP_AND, INTS, "BitwiseAnd"},
             {SX_OP_OR, D(BOOL), "Or"},
             {SX_OP_OR, INTS, "BitwiseOr"},
             {SX_OP_XOR, D(BOOL), "Xor"},
             {SX_OP_XOR, INTS, "BitwiseXor"},
             {SX_OP_SELECT, ANY, "Where"}};

static bool has(uint32_t dtypes, sx_dtype dtype)
{
    return (dtypes >> dtype & 1) != 0;
}

static sx_code refuse_dtype(sx_ow *w, sx_dtype dtype)
{
    return SX_OW_FAIL(w, "no operator of opset %d for %s", SX_ONNX_WRITE_OPSET,
                      sx_dtype_name(dtype));
}

/* What operand k is read as: itself, or a form that broadcasts to it. */
static sx_span read_operand(const sx_ow *w, uint32_t k)
{
    return sx_ow_reads_thin(w->graph, sx_ow_node(w), k) ? w->thin[sx_ow_child(w, k)]
                                                        : sx_ow_value(w, k);
}

static void write_all(sx_ow *w, const char *type, sx_span output)
{
    sx_ow_begin(w);
    for (uint32_t k = 0; k < sx_ow_node(w)->input_count; k++) {
        sx_ow_input(w, read_operand(w, k));
    }
    sx_ow_end(w, type, output);
    w->name[w->at] = output;
}

bool sx_ow_has_thin(const sx_graph *graph, uint32_t n)
{
    SX_ASSERT(n < graph->node_count);
    const sx_node *node = &graph->node[n];
    const sx_attr *attr = sx_graph_attr(graph, node);
    switch (node->op) {
    case SX_OP_CONSTANT:
        return node->type.rank > 0 && attr->data.len == sx_dtype_bytes(node->type.dtype);
    case SX_OP_BROADCAST:
    case SX_OP_IOTA: return true;
    default: return false;
    }
}

/* The result takes its shape from an operand read whole: the first if none has to be. */
bool sx_ow_reads_thin(const sx_graph *graph, const sx_node *node, uint32_t k)
{
    SX_ASSERT(k < node->input_count);
    if (!sx_op_is_elementwise(node->op) || node->input_count < 2 ||
        !sx_ow_has_thin(graph, sx_graph_input(graph, node, k).i)) {
        return false;
    }
    bool all = true;
    for (uint32_t i = 0; i < node->input_count; i++) {
        all = all && sx_ow_has_thin(graph, sx_graph_input(graph, node, i).i);
    }
    return !all || k > 0;
}

bool sx_ow_is_native(sx_op op, const sx_attr *attr, const sx_type *x)
{
    bool eps = (double)(float)attr->eps == attr->eps;
    switch (op) {
    case SX_OP_RELU:
    case SX_OP_SOFTMAX:
    case SX_OP_LOG_SOFTMAX: return has(FLOATS, x->dtype);
    case SX_OP_GELU:
    case SX_OP_GELU_TANH: return has(REALS, x->dtype);
    case SX_OP_LAYER_NORM: return eps && has(D(F16) | D(F32) | D(BF16), x->dtype);
    case SX_OP_BATCH_NORM: return eps && attr->axis == 1 && has(FLOATS, x->dtype);
    default: return false;
    }
}

/* ---- operators with attributes or of several parts ---- */

static sx_code write_compare(sx_ow *w)
{
    static const char *const type[SX_DIRECTION_COUNT] = {
        [SX_EQ] = "Equal",       [SX_NE] = "Equal",   [SX_LT] = "Less",
        [SX_LE] = "LessOrEqual", [SX_GT] = "Greater", [SX_GE] = "GreaterOrEqual"};
    sx_direction direction = sx_ow_attr(w)->direction;
    sx_dtype dtype = sx_ow_type(w, 0)->dtype;
    bool order = direction != SX_EQ && direction != SX_NE;
    if (!has(order ? NUMBERS : ANY, dtype)) {
        return refuse_dtype(w, dtype);
    }
    write_all(w, type[direction], direction == SX_NE ? sx_ow_fresh(w) : sx_ow_result(w));
    if (direction == SX_NE) {
        sx_span equal = w->name[w->at];
        w->name[w->at] = sx_ow_result(w);
        sx_ow_begin(w);
        sx_ow_input(w, equal);
        sx_ow_end(w, "Not", w->name[w->at]);
    }
    return SX_OK;
}

/* Integers are divided only by a constant of which no quotient is left open: not by 0 and -1. */
static bool divides_well(const sx_ow *w)
{
    const sx_node *by = &w->graph->node[sx_ow_child(w, 1)];
    sx_span data = sx_graph_attr(w->graph, by)->data;
    uint32_t size = sx_dtype_bytes(by->type.dtype);
    bool well = by->op == SX_OP_CONSTANT && data.len % size == 0;
    for (size_t i = 0; well && i < data.len; i += size) {
        uint8_t any = 0;
        uint8_t all = 255;
        for (uint32_t b = 0; b < size; b++) {
            any |= data.ptr[i + b];
            all &= data.ptr[i + b];
        }
        well = any != 0 && all != 255;
    }
    return well;
}

static sx_code write_divide(sx_ow *w)
{
    sx_dtype dtype = sx_ow_type(w, 0)->dtype;
    bool remainder = sx_ow_node(w)->op == SX_OP_REMAINDER;
    if (!has(NUMBERS, dtype)) {
        return refuse_dtype(w, dtype);
    }
    if (has(INTS, dtype) && !divides_well(w)) {
        return SX_OW_FAIL(w, "%s by what may be 0 or -1", sx_dtype_name(dtype));
    }
    sx_ow_begin(w);
    sx_ow_input(w, read_operand(w, 0));
    sx_ow_input(w, read_operand(w, 1));
    if (remainder) {
        sx_pb_attr_int(&w->part, "fmod", 1);
    }
    w->name[w->at] = sx_ow_result(w);
    sx_ow_end(w, remainder ? "Mod" : "Div", w->name[w->at]);
    return SX_OK;
}

/* The standard has shifts of numbers without a sign alone. */
static sx_code write_shift(sx_ow *w)
{
    sx_op op = sx_ow_node(w)->op;
    sx_dtype dtype = sx_ow_type(w, 0)->dtype;
    if (dtype != SX_U8 || op == SX_OP_SHIFT_RIGHT_ARITHMETIC) {
        return refuse_dtype(w, dtype);
    }
    sx_ow_begin(w);
    sx_ow_input(w, read_operand(w, 0));
    sx_ow_input(w, read_operand(w, 1));
    sx_pb_attr_text(&w->part, "direction", op == SX_OP_SHIFT_LEFT ? "LEFT" : "RIGHT");
    w->name[w->at] = sx_ow_result(w);
    sx_ow_end(w, "BitShift", w->name[w->at]);
    return SX_OK;
}

static sx_code write_rsqrt(sx_ow *w)
{
    if (!has(FLOATS, sx_ow_type(w, 0)->dtype)) {
        return refuse_dtype(w, sx_ow_type(w, 0)->dtype);
    }
    sx_span root = sx_ow_apply(w, "Sqrt", sx_ow_value(w, 0), (sx_span){0});
    w->name[w->at] = sx_ow_result(w);
    sx_ow_begin(w);
    sx_ow_input(w, root);
    sx_ow_end(w, "Reciprocal", w->name[w->at]);
    return SX_OK;
}

static sx_code write_convert(sx_ow *w)
{
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, 0));
    sx_pb_attr_int(&w->part, "to", sx_pb_dtype(sx_ow_node(w)->type.dtype));
    w->name[w->at] = sx_ow_result(w);
    sx_ow_end(w, "Cast", w->name[w->at]);
    return SX_OK;
}

static sx_code write_reduce(sx_ow *w)
{
    static const struct {
        const char *type;
        uint32_t dtypes;
    } by[SX_REDUCER_COUNT] = {[SX_SUM] = {"ReduceSum", FLOATS | D(I64) | D(I32)},
                              [SX_PRODUCT] = {"ReduceProd", FLOATS | D(I64) | D(I32)},
                              [SX_MAX] = {"ReduceMax", NUMBERS & ~D(I16)},
                              [SX_MIN] = {"ReduceMin", NUMBERS & ~D(I16)}};
    const sx_attr *attr = sx_ow_attr(w);
    sx_dtype dtype = sx_ow_type(w, 0)->dtype;
    if (!has(by[attr->reducer].dtypes, dtype)) {
        return refuse_dtype(w, dtype);
    }
    if (attr->dims.count == 0) {
        w->name[w->at] = sx_ow_value(w, 0);
        return SX_OK;
    }
    sx_span axes = sx_ow_ints(w, attr->dims.v, attr->dims.count);
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, 0));
    sx_ow_input(w, axes);
    sx_pb_attr_int(&w->part, "keepdims", 0);
    w->name[w->at] = sx_ow_result(w);
    sx_ow_end(w, by[attr->reducer].type, w->name[w->at]);
    return SX_OK;
}

static sx_code write_concatenate(sx_ow *w)
{
    if (!has(ANY, sx_ow_node(w)->type.dtype)) {
        return refuse_dtype(w, sx_ow_node(w)->type.dtype);
    }
    sx_ow_begin(w);
    for (uint32_t k = 0; k < sx_ow_node(w)->input_count; k++) {
        sx_ow_input(w, sx_ow_value(w, k));
    }
    sx_pb_attr_int(&w->part, "axis", sx_ow_attr(w)->axis);
    w->name[w->at] = sx_ow_result(w);
    sx_ow_end(w, "Concat", w->name[w->at]);
    return SX_OK;
}

/* Known indices that are clamped with us are errors there. */
static sx_code check_indices(sx_ow *w)
{
    const sx_node *index = &w->graph->node[sx_ow_child(w, 1)];
    sx_dim dim = sx_ow_type(w, 0)->dim[sx_ow_attr(w)->axis];
    int64_t extent = sx_dim_is_constant(dim) ? 1 : w->graph->symbol[dim.symbol].low;
    if (index->op != SX_OP_CONSTANT || !sx_mul_i64(extent, dim.scale, &extent)) {
        return SX_OK;
    }
    sx_span data = sx_graph_attr(w->graph, index)->data;
    uint32_t size = sx_dtype_bytes(index->type.dtype);
    for (size_t i = 0; i < data.len / size; i++) {
        int64_t value =
            sx_num_int_decode(index->type.dtype, sx_num_load(index->type.dtype, data.ptr, i));
        if (value >= extent || value < -extent) {
            return SX_OW_FAIL(w, "index %lld outside of %lld elements", (long long)value,
                              (long long)extent);
        }
    }
    return SX_OK;
}

static sx_code write_gather(sx_ow *w)
{
    sx_span index = sx_ow_value(w, 1);
    SX_TRY(check_indices(w));
    if (!has(ANY, sx_ow_node(w)->type.dtype)) {
        return refuse_dtype(w, sx_ow_node(w)->type.dtype);
    }
    if (!has(D(I32) | D(I64), sx_ow_type(w, 1)->dtype)) {
        sx_span wide = sx_ow_fresh(w);
        sx_ow_begin(w);
        sx_ow_input(w, index);
        sx_pb_attr_int(&w->part, "to", SX_ONNX_INT64);
        sx_ow_end(w, "Cast", wide);
        index = wide;
    }
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, 0));
    sx_ow_input(w, index);
    sx_pb_attr_int(&w->part, "axis", sx_ow_attr(w)->axis);
    w->name[w->at] = sx_ow_result(w);
    sx_ow_end(w, "Gather", w->name[w->at]);
    return SX_OK;
}

/* TopK has the same order of equals; both results get a name, the other one is nobody's. */
static sx_code write_sort(sx_ow *w)
{
    const sx_attr *attr = sx_ow_attr(w);
    const sx_type *x = sx_ow_type(w, 0);
    sx_span count;
    if (!has(REALS | INTS, x->dtype)) {
        return refuse_dtype(w, x->dtype);
    }
    SX_TRY(sx_ow_shape(w, &sx_ow_node(w)->type.dim[attr->axis], 1, &count));
    w->name[w->at] = sx_ow_result(w);
    sx_span other = sx_ow_fresh(w);
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, 0));
    sx_ow_input(w, count);
    sx_pb_attr_int(&w->part, "axis", attr->axis);
    sx_pb_attr_int(&w->part, "largest", attr->direction == SX_GT ? 1 : 0);
    sx_pb_bytes(&w->part, 2, attr->result == 0 ? w->name[w->at] : other);
    sx_ow_end(w, "TopK", attr->result == 0 ? other : w->name[w->at]);
    return SX_OK;
}

/* Composites that sx_ow_is_native admits. */
static sx_code write_composite(sx_ow *w)
{
    sx_op op = sx_ow_node(w)->op;
    const sx_attr *attr = sx_ow_attr(w);
    const char *type = op == SX_OP_SOFTMAX       ? "Softmax"
                       : op == SX_OP_LOG_SOFTMAX ? "LogSoftmax"
                       : op == SX_OP_LAYER_NORM  ? "LayerNormalization"
                       : op == SX_OP_BATCH_NORM  ? "BatchNormalization"
                                                 : "Gelu";
    sx_ow_begin(w);
    for (uint32_t k = 0; k < sx_ow_node(w)->input_count; k++) {
        sx_ow_input(w, sx_ow_value(w, k));
    }
    if (op == SX_OP_GELU || op == SX_OP_GELU_TANH) {
        sx_pb_attr_text(&w->part, "approximate", op == SX_OP_GELU ? "none" : "tanh");
    } else if (op != SX_OP_BATCH_NORM) {
        sx_pb_attr_int(&w->part, "axis", attr->axis);
    }
    if (op == SX_OP_LAYER_NORM || op == SX_OP_BATCH_NORM) {
        sx_pb_attr_float(&w->part, "epsilon", (float)attr->eps);
    }
    w->name[w->at] = sx_ow_result(w);
    sx_ow_end(w, type, w->name[w->at]);
    return SX_OK;
}

static sx_code write_plain(sx_ow *w)
{
    const sx_node *node = sx_ow_node(w);
    sx_dtype dtype = sx_ow_type(w, node->input_count - 1)->dtype; /* select: of the values */
    for (uint32_t i = 0; i < SX_COUNT(plain); i++) {
        if (plain[i].op == node->op && has(plain[i].dtypes, dtype)) {
            write_all(w, plain[i].type, sx_ow_result(w));
            return SX_OK;
        }
    }
    return refuse_dtype(w, dtype);
}

static sx_code write_move(sx_ow *w)
{
    sx_dtype dtype = sx_ow_node(w)->type.dtype;
    if (!has(ANY, dtype)) {
        return refuse_dtype(w, dtype);
    }
    switch (sx_ow_node(w)->op) {
    case SX_OP_IOTA: return sx_ow_iota(w);
    case SX_OP_RESHAPE: return sx_ow_reshape(w);
    case SX_OP_TRANSPOSE: return sx_ow_transpose(w);
    case SX_OP_BROADCAST: return sx_ow_broadcast(w);
    case SX_OP_SLICE: return sx_ow_slice(w);
    case SX_OP_REVERSE: return sx_ow_reverse(w);
    case SX_OP_PAD: return sx_ow_pad(w);
    default: SX_UNREACHABLE();
    }
}

sx_code sx_ow_write_node(sx_ow *w)
{
    SX_ASSERT(w->at < w->graph->node_count);
    for (uint32_t k = 0; k < sx_ow_node(w)->input_count; k++) { /* at most SX_INPUTS_MAX */
        uint32_t child = sx_ow_child(w, k);
        bool out_of_memory = w->cx->error.code != SX_OK; /* then names are empty */
        SX_ASSERT(w->name[child].len > 0 || w->thin[child].len > 0 || out_of_memory);
    }
    switch (sx_ow_node(w)->op) {
    case SX_OP_CONSTANT: return sx_ow_constant(w);
    case SX_OP_IOTA:
    case SX_OP_RESHAPE:
    case SX_OP_TRANSPOSE:
    case SX_OP_BROADCAST:
    case SX_OP_SLICE:
    case SX_OP_REVERSE:
    case SX_OP_PAD: return write_move(w);
    case SX_OP_COMPARE: return write_compare(w);
    case SX_OP_DIVIDE:
    case SX_OP_REMAINDER: return write_divide(w);
    case SX_OP_SHIFT_LEFT:
    case SX_OP_SHIFT_RIGHT_ARITHMETIC:
    case SX_OP_SHIFT_RIGHT_LOGICAL: return write_shift(w);
    case SX_OP_RSQRT: return write_rsqrt(w);
    case SX_OP_CONVERT: return write_convert(w);
    case SX_OP_REDUCE: return write_reduce(w);
    case SX_OP_CONCATENATE: return write_concatenate(w);
    case SX_OP_GATHER: return write_gather(w);
    case SX_OP_SORT: return write_sort(w);
    case SX_OP_DOT_GENERAL: return sx_ow_dot(w);
    case SX_OP_CONVOLUTION: return sx_ow_convolution(w);
    case SX_OP_REDUCE_WINDOW: return sx_ow_window(w);
    case SX_OP_SOFTMAX:
    case SX_OP_LOG_SOFTMAX:
    case SX_OP_LAYER_NORM:
    case SX_OP_BATCH_NORM:
    case SX_OP_GELU:
    case SX_OP_GELU_TANH: return write_composite(w);
    case SX_OP_FUSED: return SX_OW_FAIL(w, "a kernel is no operator");
    default: return write_plain(w);
    }
}
