/* sort.c - the operation `sort`: elements along an axis in order, by merging runs. */
#include "core/eval/cell.h"

typedef struct {
    sx_eval_mode mode;
    sx_dtype_class of;
    bool falls; /* the largest first */
    const sx_cell *from;
    int64_t step; /* from one element of a row to the next */
    int64_t *order, *spare;
} sorting;

/* -1, 0 or 1 as a is smaller than b, equal or larger; NaN is larger than all numbers. */
static int order_of(const sorting *s, sx_cell a, sx_cell b)
{
    if (s->of == SX_CLASS_FLOAT && !sx_mode_is_exact(s->mode)) {
        bool a_nan = a.f != a.f, b_nan = b.f != b.f;
        return a_nan || b_nan ? (int)a_nan - (int)b_nan : (int)(a.f > b.f) - (int)(a.f < b.f);
    }
    bool exact = s->of != SX_CLASS_BOOL && sx_mode_is_exact(s->mode);
    int64_t x = exact ? sx_exact_balanced(s->mode, a.u) : a.i;
    int64_t y = exact ? sx_exact_balanced(s->mode, b.u) : b.i;
    return (int)(x > y) - (int)(x < y);
}

/* May the element with index a, from a run before that of b, stay before it? Of equals it does. */
static bool stays(const sorting *s, int64_t a, int64_t b)
{
    int order = order_of(s, s->from[a * s->step], s->from[b * s->step]);
    return s->falls ? order >= 0 : order <= 0;
}

/* The sorted runs [first, middle) and [middle, end) of `order` as one in `spare`. */
static void merge(const sorting *s, int64_t first, int64_t middle, int64_t end)
{
    int64_t left = first, right = middle;
    SX_ASSERT(first <= middle && middle <= end);
    for (int64_t k = first; k < end; k++) {
        bool take_left =
            left < middle && (right == end || stays(s, s->order[left], s->order[right]));
        s->spare[k] = s->order[take_left ? left++ : right++];
    }
}

static void sort_row(sorting *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        s->order[i] = i;
    }
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t first = 0; first < n; first += 2 * run) {
            merge(s, first, sx_min_i64(first + run, n), sx_min_i64(first + 2 * run, n));
        }
        int64_t *sorted = s->spare;
        s->spare = s->order;
        s->order = sorted;
    }
}

sx_code sx_eval_sort(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                     sx_tensor *result)
{
    const sx_type *type = &input->type;
    const sx_cell *from = input->data;
    sx_cell *to = result->data;
    int64_t n = type->dim[attr->axis].scale, taken = result->type.dim[attr->axis].scale;
    int64_t inner = 1, rounds = 1;
    SX_ASSERT(taken >= 1 && taken <= n && attr->result <= 1);
    for (uint32_t d = (uint32_t)attr->axis + 1; d < type->rank; d++) {
        inner *= type->dim[d].scale;
    }
    for (int64_t run = 1; run < n; run *= 2) {
        rounds++;
    }
    int64_t rows = sx_tensor_elements(type) / n;
    SX_TRY(sx_spend(cx, (uint64_t)(rows * n * rounds)));
    sorting s = {.mode = mode,
                 .of = sx_dtype_class_of(type->dtype),
                 .falls = attr->direction == SX_GT,
                 .step = inner,
                 .order = SX_NEW_ARRAY(cx, int64_t, (size_t)n),
                 .spare = SX_NEW_ARRAY(cx, int64_t, (size_t)n)};
    if (s.order == NULL || s.spare == NULL) {
        return cx->error.code;
    }
    for (int64_t row = 0; row < rows; row++) {
        s.from = &from[row / inner * n * inner + row % inner];
        sort_row(&s, n);
        for (int64_t k = 0; k < taken; k++) {
            sx_cell *place = &to[(row / inner * taken + k) * inner + row % inner];
            *place = attr->result == 1
                         ? sx_cell_of_int(mode, SX_I64, s.order[k])
                         : sx_reduce_close(mode, type->dtype, s.from[s.order[k] * inner]);
        }
    }
    return SX_OK;
}
