#include "client/verify/moved.h"

#include <string.h>

#include "core/eval/cell.h"
#include "core/ir/num.h"

bool sxv_jumps(sx_op op, sx_dtype from, sx_dtype to)
{
    sx_op_class op_class = sx_op_info_of(op)->op_class;
    if (op_class == SX_OPCLASS_REGION || op_class == SX_OPCLASS_FUSED) {
        return true;
    }
    if (sx_dtype_class_of(from) != SX_CLASS_FLOAT) {
        return false;
    }
    return op == SX_OP_FLOOR || op == SX_OP_CEIL || op == SX_OP_ROUND || op == SX_OP_SIGN ||
           op == SX_OP_REMAINDER || sx_dtype_class_of(to) != SX_CLASS_FLOAT;
}

double sxv_element(sx_dtype dtype, const void *memory, int64_t element)
{
    float narrow;
    SX_ASSERT(memory != NULL && element >= 0);
    if (dtype == SX_F32) {
        memcpy(&narrow, (const uint8_t *)memory + element * 4, sizeof(narrow));
        return (double)narrow;
    }
    sx_cell cell = sx_cell_load(SX_EVAL_F64, dtype, memory, element);
    return sx_dtype_class_of(dtype) == SX_CLASS_FLOAT ? cell.f : (double)cell.i;
}

static int64_t elements_behind(const sx_type *type, uint32_t axis)
{
    int64_t inner = 1;
    for (uint32_t d = axis + 1; d < type->rank; d++) {
        inner *= type->dim[d].scale;
    }
    return inner;
}

static double gathered(const sx_attr *attr, const sx_type *type, const sx_span *raw, int64_t at)
{
    int64_t picks = sx_tensor_elements(&type[1]);
    int64_t extent = type[0].dim[attr->axis].scale;
    int64_t inner = elements_behind(&type[0], (uint32_t)attr->axis);
    sx_cell cell = sx_cell_load(SX_EVAL_F64, type[1].dtype, raw[1].ptr, at / inner % picks);
    int64_t pick = cell.i < 0 ? cell.i + extent : cell.i;
    pick = sx_max_i64(0, sx_min_i64(pick, extent - 1));
    return sxv_element(type[0].dtype, raw[0].ptr,
                       (at / inner / picks * extent + pick) * inner + at % inner);
}

static double concatenated(const sx_node *node, const sx_attr *attr, const sx_type *type,
                           const sx_span *raw, int64_t at)
{
    uint32_t axis = (uint32_t)attr->axis;
    int64_t inner = elements_behind(&node->type, axis);
    int64_t extent = node->type.dim[axis].scale;
    int64_t along = at / inner % extent;
    uint32_t k = 0;
    while (along >= type[k].dim[axis].scale) {
        along -= type[k++].dim[axis].scale;
        SX_ASSERT(k < node->input_count);
    }
    int64_t from = (at / inner / extent * type[k].dim[axis].scale + along) * inner + at % inner;
    return sxv_element(type[k].dtype, raw[k].ptr, from);
}

/* Pads and reverses: the place in the operand follows from that in the result, one dimension after the other. */
static double placed(const sx_node *node, const sx_attr *attr, const sx_type *type,
                     const sx_span *raw, int64_t at)
{
    int64_t from = 0;
    int64_t stride = 1;
    uint32_t reversed = 0;
    for (uint32_t k = 0; node->op == SX_OP_REVERSE && k < attr->dims.count; k++) {
        reversed |= 1u << attr->dims.v[k];
    }
    for (uint32_t d = node->type.rank; d-- > 0;) {
        int64_t extent = type[0].dim[d].scale;
        int64_t i = at % node->type.dim[d].scale;
        at /= node->type.dim[d].scale;
        if (node->op == SX_OP_PAD) {
            int64_t step = attr->interior.v[d] + 1;
            i -= attr->low.v[d];
            if (i < 0 || i % step != 0 || i / step >= extent) {
                return sxv_element(type[1].dtype, raw[1].ptr, 0);
            }
            i /= step;
        } else if ((reversed & 1u << d) != 0) {
            i = extent - 1 - i;
        }
        from += i * stride;
        stride *= extent;
    }
    return sxv_element(type[0].dtype, raw[0].ptr, from);
}

bool sxv_moved_at(const sx_node *node, const sx_attr *attr, const sx_type *type, const sx_span *raw,
                  const int64_t *position, uint32_t count, double *value)
{
    if (node->op != SX_OP_GATHER && node->op != SX_OP_CONCATENATE && node->op != SX_OP_PAD &&
        node->op != SX_OP_REVERSE) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        SX_ASSERT(position[i] >= 0 && position[i] < sx_tensor_elements(&node->type));
        value[i] = node->op == SX_OP_GATHER ? gathered(attr, type, raw, position[i])
                   : node->op == SX_OP_CONCATENATE
                       ? concatenated(node, attr, type, raw, position[i])
                       : placed(node, attr, type, raw, position[i]);
    }
    return true;
}
