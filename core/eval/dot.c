#include <math.h>

#include "core/eval/cell.h"

/* The operands as matrices: left [batch][rows][length], right [batch][length][columns]. */
typedef struct {
    int64_t batch, rows, columns, length;
    sx_cell *left, *right;
} matrices;

/* Where the dimensions of an operand go, listed in the order of the matrix. */
typedef struct {
    uint32_t count;
    uint32_t dim[SX_RANK_MAX];
} order;

static void list_dims(const sx_ints *dims, order *o)
{
    for (uint32_t k = 0; k < dims->count; k++) {
        SX_ASSERT(o->count < SX_RANK_MAX);
        o->dim[o->count++] = (uint32_t)dims->v[k];
    }
}

/* Dimensions of the operand that are neither batch nor contracted, ascending; returns their product. */
static int64_t list_free(const sx_type *type, const sx_ints *batch, const sx_ints *contract,
                         order *o)
{
    uint32_t taken = 0;
    int64_t product = 1;
    for (uint32_t k = 0; k < batch->count; k++) {
        taken |= 1u << batch->v[k];
    }
    for (uint32_t k = 0; k < contract->count; k++) {
        taken |= 1u << contract->v[k];
    }
    for (uint32_t d = 0; d < type->rank; d++) {
        if ((taken & 1u << d) == 0) {
            o->dim[o->count++] = d;
            product *= type->dim[d].scale;
        }
    }
    return product;
}

static int64_t product_of(const sx_type *type, const sx_ints *dims)
{
    int64_t product = 1;
    for (uint32_t k = 0; k < dims->count; k++) {
        product *= type->dim[dims->v[k]].scale;
    }
    return product;
}

/* The elements of `tensor` in row-major order of the listed dimensions. */
static sx_code reordered(sx_ctx *cx, const sx_tensor *tensor, const order *o, sx_cell **cells)
{
    int64_t stride[SX_RANK_MAX] = {0};
    int64_t index[SX_RANK_MAX] = {0};
    int64_t step = 1;
    const sx_cell *from = tensor->data;
    int64_t elements = sx_tensor_elements(&tensor->type);
    SX_TRY(sx_spend(cx, (uint64_t)elements));
    *cells = SX_NEW_ARRAY(cx, sx_cell, (size_t)elements);
    if (*cells == NULL) {
        return cx->error.code;
    }
    for (uint32_t d = tensor->type.rank; d-- > 0;) {
        stride[d] = step;
        step *= tensor->type.dim[d].scale;
    }
    int64_t at = 0;
    for (int64_t k = 0; k < elements; k++) {
        (*cells)[k] = from[at];
        for (uint32_t p = o->count; p-- > 0;) {
            uint32_t d = o->dim[p];
            at += stride[d];
            if (++index[d] < tensor->type.dim[d].scale) {
                break;
            }
            at -= stride[d] * index[d];
            index[d] = 0;
        }
    }
    return SX_OK;
}

static sx_code make_matrices(sx_ctx *cx, const sx_attr *attr, const sx_tensor *input, matrices *m)
{
    order left = {0};
    order right = {0};
    m->batch = product_of(&input[0].type, &attr->lhs_batch);
    m->length = product_of(&input[0].type, &attr->lhs_contract);
    list_dims(&attr->lhs_batch, &left);
    m->rows = list_free(&input[0].type, &attr->lhs_batch, &attr->lhs_contract, &left);
    list_dims(&attr->lhs_contract, &left);
    list_dims(&attr->rhs_batch, &right);
    list_dims(&attr->rhs_contract, &right);
    m->columns = list_free(&input[1].type, &attr->rhs_batch, &attr->rhs_contract, &right);
    SX_TRY(reordered(cx, &input[0], &left, &m->left));
    return reordered(cx, &input[1], &right, &m->right);
}

/* sum[j] += x * y[j]; groups of eight so that compilers use vectors without being told of the trip count. */
static void multiply_add(sx_cell *restrict sum, double x, const sx_cell *restrict y, int64_t count)
{
    int64_t j = 0;
    for (; j + 8 <= count; j += 8) {
        for (int64_t k = 0; k < 8; k++) {
            sum[j + k].f += x * y[j + k].f;
        }
    }
    for (; j < count; j++) {
        sum[j].f += x * y[j].f;
    }
}

/* The same with a fused multiply-add in f32. */
static void chain_narrow(sx_cell *restrict sum, double x, const sx_cell *restrict y, int64_t count)
{
    for (int64_t j = 0; j < count; j++) {
        sum[j].f = (double)fmaf((float)x, (float)y[j].f, (float)sum[j].f);
    }
}

/* One row of the result: `y` has `columns` cells for each of the `length` steps. */
static void run_row(const matrices *m, sx_eval_mode mode, sx_dtype dtype, const sx_cell *x,
                    const sx_cell *y, sx_cell *row)
{
    bool is_float = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
    bool doubles = is_float && (mode == SX_EVAL_F64 || mode == SX_EVAL_POW2);
    bool floats = is_float && mode == SX_EVAL_TYPED && dtype != SX_F64;
    for (int64_t j = 0; j < m->columns; j++) {
        row[j] = sx_reduce_open(mode, SX_SUM, dtype);
    }
    for (int64_t k = 0; k < m->length; k++, y += m->columns) {
        if (doubles) {
            multiply_add(row, x[k].f, y, m->columns);
        } else if (floats) {
            chain_narrow(row, x[k].f, y, m->columns);
        } else {
            for (int64_t j = 0; j < m->columns; j++) {
                row[j] = sx_dot_step(mode, dtype, row[j], x[k], y[j]);
            }
        }
    }
    for (int64_t j = 0; j < m->columns; j++) {
        row[j] = sx_reduce_close(mode, dtype, row[j]);
    }
}

sx_code sx_eval_dot(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                    const sx_type *type, sx_tensor *result)
{
    matrices m;
    SX_TRY(make_matrices(cx, attr, input, &m));
    sx_cell *row = result->data;
    int64_t row_cost;
    if (!sx_mul_i64(m.length, m.columns, &row_cost)) {
        return SX_FAIL(cx, SX_LIMIT, "dot_general: a row takes more than 2^63 operations");
    }
    for (int64_t i = 0; i < m.batch * m.rows; i++, row += m.columns) {
        const sx_cell *y = m.right + i / m.rows * row_cost;
        SX_TRY(sx_spend(cx, (uint64_t)row_cost + 1));
        run_row(&m, mode, type->dtype, m.left + i * m.length, y, row);
    }
    return SX_OK;
}
