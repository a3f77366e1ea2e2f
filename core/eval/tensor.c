#include <math.h>

#include "core/eval/cell.h"
#include "core/ir/num.h"

sx_code sx_tensor_make(sx_ctx *cx, const sx_type *type, sx_tensor *tensor)
{
    int64_t elements = sx_tensor_elements(type);
    SX_ASSERT(elements >= 0);
    SX_TRY(sx_spend(cx, (uint64_t)elements));
    tensor->type = *type;
    tensor->data = SX_NEW_ARRAY(cx, sx_cell, (size_t)elements);
    return tensor->data == NULL ? cx->error.code : SX_OK;
}

sx_cell sx_cell_load(sx_eval_mode mode, sx_dtype dtype, const uint8_t *raw, int64_t index)
{
    uint64_t bits = sx_num_load(dtype, raw, (size_t)index);
    if (sx_dtype_class_of(dtype) != SX_CLASS_FLOAT) {
        return sx_cell_of_int(mode, dtype, sx_num_int_decode(dtype, bits));
    }
    double value = sx_num_decode(dtype, bits);
    return sx_mode_is_exact(mode) ? (sx_cell){.u = sx_exact_of(mode, value)}
                                  : (sx_cell){.f = value};
}

sx_code sx_tensor_unpack(sx_ctx *cx, const sx_type *type, sx_eval_mode mode, sx_span raw,
                         sx_tensor *tensor)
{
    SX_ASSERT(raw.ptr != NULL || raw.len == 0);
    uint32_t size = sx_dtype_bytes(type->dtype);
    int64_t elements = sx_tensor_elements(type);
    if (raw.len % size != 0 || raw.len / size != (uint64_t)elements) {
        return SX_FAIL(cx, SX_INPUT, "tensor: %zu bytes for %lld elements of %u bytes", raw.len,
                       (long long)elements, size);
    }
    SX_TRY(sx_tensor_make(cx, type, tensor));
    sx_cell *cell = tensor->data;
    for (int64_t k = 0; k < elements; k++) {
        cell[k] = sx_cell_load(mode, type->dtype, raw.ptr, k);
    }
    return SX_OK;
}

sx_code sx_tensor_pack(sx_ctx *cx, const sx_tensor *tensor, sx_buf *raw)
{
    const sx_cell *cell = tensor->data;
    sx_dtype dtype = tensor->type.dtype;
    bool is_float = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
    int64_t elements = sx_tensor_elements(&tensor->type);
    SX_TRY(sx_spend(cx, (uint64_t)elements));
    for (int64_t k = 0; k < elements; k++) {
        /* an infinity stays one where the type has it, though arithmetic would saturate */
        bool kept = is_float && isinf(cell[k].f) && dtype == SX_F8E5M2;
        double value = is_float && !kept ? sx_round(dtype, cell[k].f) : cell[k].f;
        uint64_t bits =
            is_float ? sx_num_encode(dtype, value) : sx_num_int_encode(dtype, cell[k].i);
        uint8_t byte[8];
        sx_num_store(dtype, byte, 0, bits);
        sx_buf_put(raw, byte, sx_dtype_bytes(dtype));
    }
    return sx_buf_check(cx, raw, "tensor");
}
