/* analysis.c - which part each dimension of a fused body plays. */
#include <math.h>
#include <string.h>

#include "core/kernel/work.h"

/* ---- what varies along what ---- */

void sx_analysis_find_varies(sx_analysis *a)
{
    const sx_body *body = a->body;
    const sx_view *view = &a->view;
    uint32_t *varies = a->varies;
    uint32_t reduced = 0, inner = 0;
    for (uint32_t d = 0; d < view->rank; d++) {
        reduced |= view->reduced[d] ? 1u << d : 0;
        inner |= view->inner[d] ? 1u << d : 0;
    }
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        const uint32_t operand[] = {in->x, in->y, in->z};
        uint32_t set = 0;
        for (uint32_t k = 0; k < sx_body_operand_count(in); k++) {
            set |= varies[operand[k]];
        }
        if (in->kind == SX_BODY_ARG) {
            for (uint32_t d = 0; d < view->rank; d++) {
                set |= view->stride[in->x][d] != 0 ? 1u << d : 0;
            }
        } else if (in->kind == SX_BODY_INDEX && view->view_dim[in->x] != SX_NO_DIM) {
            set = 1u << view->view_dim[in->x];
        } else if (sx_body_combines(in)) {
            bool nested = body->inner != 0 && sx_body_summed(body, in) == body->inner;
            set &= ~(nested ? inner : reduced);
        }
        varies[i] = set;
    }
}

/* ---- map and row kernels ---- */

static void analyse_map(sx_analysis *a)
{
    sx_view_merge(a->body, &a->view);
    uint32_t rank = a->view.rank;
    /* boxes of a padded result can have no dimension that is contiguous there: element by element */
    a->lane = rank > 0 && a->view.out_stride[rank - 1] == 1 ? rank - 1 : SX_NO_DIM;
    for (uint32_t d = 0; d < rank; d++) {
        a->role[d] = d == a->lane ? SX_ROLE_COLUMN : SX_ROLE_ROW;
    }
    a->column = a->lane;
}

/* Lanes run along the last dimension. The form follows from the space alone, whatever the extents of kept
 * dimensions are (a batch of 1 is a dimension too), and reduced dimensions are never merged (whether strides
 * allow it may depend on kept extents). */
static void analyse_row(sx_analysis *a)
{
    for (uint32_t d = 0; d < a->view.rank; d++) {
        a->view.klass[d] = a->view.reduced[d] ? 1 + d : 0;
    }
    sx_view_merge(a->body, &a->view);
    uint32_t last = a->view.rank - 1;
    a->along = a->view.last_reduced;
    a->lane = a->view.rank > 0 && a->view.reduced[last] == a->along ? last : SX_NO_DIM;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        a->role[d] = a->view.reduced[d]          ? SX_ROLE_SUM
                     : !a->along && d == a->lane ? SX_ROLE_COLUMN
                                                 : SX_ROLE_ROW;
    }
    a->column = a->along ? SX_NO_DIM : a->lane;
}

/* ---- contractions ---- */

static bool only_left_has(const sx_analysis *a, uint32_t d)
{
    return !a->view.reduced[d] && a->view.stride[a->lhs][d] != 0 && a->view.stride[a->rhs][d] == 0;
}

/* Dimensions of one class may be merged: batch that both operands have, and kept dimensions that none has, are
 * different ones. */
static void classify(sx_analysis *a)
{
    for (uint32_t d = 0; d < a->view.rank; d++) {
        bool left = a->view.stride[a->lhs][d] != 0;
        bool right = a->view.stride[a->rhs][d] != 0;
        a->view.klass[d] = a->view.reduced[d] ? 4 : (left ? 1u : 0) | (right ? 2u : 0);
    }
}

/* The right argument must be read by the contraction alone: panels have another order. */
static bool is_packable(const sx_analysis *a)
{
    const sx_body *body = a->body;
    uint32_t readers = 0;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        readers += body->instr[i].kind == SX_BODY_ARG && body->instr[i].x == a->rhs;
    }
    return readers == 1 && a->lhs != a->rhs;
}

/* The roles that follow from rows and columns. */
static void give_roles(sx_analysis *a)
{
    a->rhs_copies = 1;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        a->role[d] = a->view.reduced[d] ? SX_ROLE_SUM
                     : d == a->row      ? SX_ROLE_ROW
                     : d == a->column   ? SX_ROLE_COLUMN
                                        : SX_ROLE_BATCH;
        bool again = !a->view.reduced[d] && d != a->column && a->view.stride[a->rhs][d] != 0;
        a->rhs_copies *= again ? a->view.extent[d] : 1;
    }
}

/* The last dimension of the result runs across the lanes; the largest one that only the left argument has
 * gives the rows of blocks. */
static void analyse_dot(sx_analysis *a)
{
    const sx_body *body = a->body;
    a->lhs = body->instr[body->instr[a->dot].x].x;
    a->rhs = body->instr[body->instr[a->dot].y].x;
    classify(a);
    sx_view_merge(body, &a->view);
    for (uint32_t d = 0; d < a->view.rank; d++) {
        a->lane = a->view.reduced[d] ? a->lane : d;
    }
    if (a->lane != SX_NO_DIM && only_left_has(a, a->lane)) {
        uint32_t left = a->lhs;
        a->lhs = a->rhs;
        a->rhs = left;
        a->swapped = true;
    }
    a->column = a->lane;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        bool row = d != a->lane && only_left_has(a, d);
        if (row && (a->row == SX_NO_DIM || a->view.extent[d] >= a->view.extent[a->row])) {
            a->row = d;
        }
    }
    give_roles(a);
    a->lhs_by_lane = a->lane != SX_NO_DIM && a->view.stride[a->lhs][a->lane] != 0;
    a->rhs_packable = is_packable(a);
    a->rhs_direct = a->lane == SX_NO_DIM || a->view.stride[a->rhs][a->lane] == 1;
}

/* ---- online sums ---- */

static void find_scores(sx_analysis *a)
{
    const sx_body *body = a->body;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        if (in->kind == SX_BODY_ONLINE) {
            a->scores = in->x;
            bool weighs = body->instr[in->y].kind == SX_BODY_ARG;
            a->value = weighs ? body->instr[in->y].x : a->value;
        }
    }
    for (uint32_t d = 0; d < a->view.rank; d++) {
        bool key = a->view.reduced[d] && !a->view.inner[d];
        if (key && a->keys != SX_NO_DIM) {
            a->refusal = "online sum over two dimensions";
        }
        a->keys = key ? d : a->keys;
    }
}

void sx_analysis_add_product(sx_analysis *a, uint32_t dot)
{
    const sx_body *body = a->body;
    const sx_view *view = &a->view;
    sx_inner_product p = {dot, body->instr[body->instr[dot].x].x,
                          body->instr[body->instr[dot].y].x};
    bool left = false, right = false;
    for (uint32_t d = 0; d < view->rank; d++) {
        bool key = view->reduced[d] && !view->inner[d];
        left = left || (key && view->stride[p.lhs][d] != 0);
        right = right || (key && view->stride[p.rhs][d] != 0);
    }
    if (left) {
        uint32_t argument = p.lhs;
        p.lhs = p.rhs;
        p.rhs = argument;
    }
    if (left && right) {
        a->refusal = "both operands of the scores run along the keys";
    }
    if (a->product_count == 0) {
        a->dot = dot;
        a->lhs = p.lhs;
        a->rhs = p.rhs;
        a->swapped = left;
    }
    a->product[a->product_count++] = p;
}

bool sx_analysis_is_turned(const sx_analysis *a, uint32_t argument, uint32_t dim)
{
    return a->row != SX_NO_DIM && dim != SX_NO_DIM && a->view.stride[argument][a->row] > 1 &&
           a->view.stride[argument][dim] == 1;
}

static double points_read(const sx_analysis *a, uint32_t argument)
{
    double points = 1;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        points *= a->view.stride[argument][d] != 0 ? (double)a->view.extent[d] : 1;
    }
    return points;
}

#define LINE_BYTES 64.0

/* Elements of maps and rows that are read lane by lane: those that lie apart along the lanes. Where several lie on one
 * line of the cache, each counts as its share of the line. */
static double apart_along_lanes(const sx_analysis *a)
{
    double sum = 0;
    for (uint32_t k = 0; k < a->body->arg_count && a->lane != SX_NO_DIM; k++) {
        int64_t stride = a->view.stride[k][a->lane];
        double line = (double)stride * sx_dtype_bytes(a->input[k].dtype) / LINE_BYTES;
        sum += stride > 1 ? points_read(a, k) * fmin(1, line) : 0;
    }
    return sum;
}

#define WARP_LANES 32
#define WARP_SQUARES 2 /* that the threads of a warp hold at once: 32 registers of each */

uint32_t sx_analysis_turned_rows(const sx_analysis *a, uint32_t lanes)
{
    const sx_view *view = &a->view;
    uint32_t last = view->rank - 1;
    if (a->kind != SX_KERNEL_MAP || a->lane == SX_NO_DIM || view->rank < 2 || a->lane != last ||
        a->lane_bytes != 4 || a->scattered == 0) {
        return SX_NO_DIM;
    }
    uint32_t row = last - 1, turned = 0;
    bool warp = lanes == WARP_LANES;
    for (uint32_t k = 0; k < a->body->arg_count; k++) {
        bool apart = view->stride[k][last] > 1;
        bool fits = warp || sx_dtype_bytes(a->input[k].dtype) == 4;
        turned += apart ? 1 : 0;
        if (apart && (view->stride[k][row] != 1 || !fits || (warp && turned > WARP_SQUARES))) {
            return SX_NO_DIM;
        }
    }
    bool fills = view->extent[row] >= lanes && view->extent[last] >= lanes;
    return fills ? row : SX_NO_DIM;
}

uint32_t sx_schedule_turned_rows(const sx_analysis *a, const sx_schedule *s)
{
    uint32_t lanes = sx_schedule_lanes(s);
    uint32_t row = sx_analysis_turned_rows(a, lanes);
    if (row == SX_NO_DIM || a->steady || sx_schedule_width(s) > 1) {
        return SX_NO_DIM;
    }
    int64_t rows = sx_schedule_step(s, SX_ROLE_ROW, SX_BIND_GRID, 0);
    int64_t columns = sx_schedule_step(s, SX_ROLE_COLUMN, SX_BIND_GRID, 0);
    bool whole = lanes == WARP_LANES ? rows == lanes && columns == lanes /* a square each */
                                     : rows % lanes == 0 && (columns % lanes == 0 ||
                                                             columns >= a->view.extent[a->lane]);
    return whole ? row : SX_NO_DIM;
}

/* Elements that are read lane by lane: those that lie apart along the rows and do not lie along the keys or
 * the inner dimension. */
static double scattered_elements(const sx_analysis *a)
{
    double sum = 0;
    uint32_t first_inner = SX_NO_DIM;
    for (uint32_t d = a->view.rank; d-- > 0;) {
        first_inner = a->view.inner[d] ? d : first_inner;
    }
    for (uint32_t k = 0; k < a->body->arg_count; k++) {
        bool query = false;
        for (uint32_t p = 0; p < a->product_count; p++) {
            query = query || k == a->product[p].lhs;
        }
        bool apart = a->row != SX_NO_DIM && a->view.stride[k][a->row] > 1;
        bool turned = sx_analysis_is_turned(a, k, query ? first_inner : a->keys);
        sum += apart && !turned ? points_read(a, k) : 0;
    }
    return sum;
}

/* Along that dimension of the view, does one of the factors that are read key by key vary? */
static bool any_key_varies(const sx_analysis *a, uint32_t d)
{
    bool varies = false;
    for (uint32_t k = 0; k < a->product_count; k++) {
        varies = varies || a->view.stride[a->product[k].rhs][d] != 0;
    }
    return varies;
}

void sx_analysis_find_rows_and_columns(sx_analysis *a)
{
    uint32_t scores = a->varies[a->scores];
    for (uint32_t d = 0; d < a->view.rank; d++) {
        bool value = a->value != SX_NO_INSTR && a->view.stride[a->value][d] != 0;
        if (a->view.reduced[d]) {
            continue;
        }
        if ((scores >> d & 1) != 0 && !any_key_varies(a, d) && !value &&
            (a->row == SX_NO_DIM || a->view.extent[d] >= a->view.extent[a->row])) {
            a->row = d;
        }
        if ((scores >> d & 1) == 0 && value) {
            a->column = d;
        }
    }
    a->lane = a->row;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        a->role[d] = a->view.inner[d]     ? SX_ROLE_INNER
                     : a->view.reduced[d] ? SX_ROLE_SUM
                     : d == a->row        ? SX_ROLE_ROW
                     : d == a->column     ? SX_ROLE_COLUMN
                                          : SX_ROLE_BATCH;
    }
    a->scattered = scattered_elements(a);
}

static void analyse_online(sx_analysis *a)
{
    uint32_t dot = a->dot;
    sx_view_merge(a->body, &a->view);
    sx_analysis_find_varies(a);
    find_scores(a);
    if (dot != SX_NO_INSTR) {
        sx_analysis_add_product(a, dot);
    }
    sx_analysis_find_rows_and_columns(a);
}

/* ---- all kinds ---- */

static void collect(sx_analysis *a)
{
    for (uint32_t r = 0; r < SX_ROLE_COUNT; r++) {
        a->extent[r] = 1;
    }
    for (uint32_t d = 0; d < a->view.rank; d++) {
        a->extent[a->role[d]] *= a->view.extent[d]; /* within SX_SPACE_MAX: the view was checked */
        a->reduced |= a->view.reduced[d] ? 1u << d : 0;
        a->full = a->full || (a->view.reduced[d] && a->view.out_stride[d] != 0);
    }
    for (uint32_t s = 0; s < a->fused->type.rank; s++) {
        uint32_t d = a->view.view_dim[s];
        a->space_role[s] = d == SX_NO_DIM ? SX_ROLE_BATCH : a->role[d];
    }
}

static uint32_t lane_bytes(const sx_analysis *a)
{
    bool wide = sx_body_is_wide(a->body);
    for (uint32_t k = 0; k < a->result_count; k++) {
        wide = wide || sx_dtype_bytes(a->root_dtype[k]) == 8;
    }
    for (uint32_t k = 0; k < a->input_count; k++) {
        wide = wide || sx_dtype_bytes(a->input[k].dtype) == 8;
    }
    return wide ? 8 : 4;
}

/* That of a node: its last instruction. */
static void one_result(sx_analysis *a, sx_dtype dtype)
{
    SX_ASSERT(a->body->instr_count > 0);
    a->result_count = 1;
    a->root[0] = a->body->instr_count - 1;
    a->root_dtype[0] = dtype;
}

void sx_analysis_of_box(const sx_body *body, sx_analysis *a)
{
    a->body = body;
    a->kind = SX_KERNEL_MAP;
    one_result(a, body->instr[body->instr_count - 1].dtype);
    a->lane_bytes = sx_dtype_bytes(body->instr[0].dtype) == 8 ? 8 : 4;
    a->row = a->keys = SX_NO_DIM;
    a->dot = a->lhs = a->rhs = a->scores = a->value = a->outer = SX_NO_INSTR;
    analyse_map(a);
    sx_analysis_find_varies(a);
}

void sx_analysis_swap(sx_analysis *a)
{
    uint32_t argument = a->lhs, dim = a->row;
    SX_ASSERT(a->kind == SX_KERNEL_DOT && !a->lhs_by_lane);
    a->lhs = a->rhs;
    a->rhs = argument;
    a->row = a->column;
    a->column = dim;
    give_roles(a);
    collect(a);
}

void sx_analysis_of_blocks(const sx_analysis *a, sx_analysis *blocks)
{
    SX_ASSERT(a->kind == SX_KERNEL_DOT);
    *blocks = *a;
    if (!a->lhs_by_lane) {
        return;
    }
    blocks->lhs_by_lane = false;
    blocks->column = SX_NO_DIM;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        bool right = a->view.stride[a->lhs][d] == 0 && a->view.stride[a->rhs][d] != 0;
        if (right &&
            (blocks->column == SX_NO_DIM || a->view.extent[d] >= a->view.extent[blocks->column])) {
            blocks->column = d;
        }
    }
    give_roles(blocks);
    collect(blocks);
    SX_ASSERT(blocks->extent[SX_ROLE_SUM] == a->extent[SX_ROLE_SUM]);
}

/* Which results have the reduced dimensions; of several the strides in the view are those of the largest. */
static void find_full_results(sx_analysis *a)
{
    uint32_t reduced = 0;
    bool any = false;
    sx_analysis_find_varies(a);
    for (uint32_t d = 0; d < a->view.rank; d++) {
        reduced |= a->view.reduced[d] ? 1u << d : 0;
    }
    for (uint32_t k = 0; k < a->result_count; k++) {
        a->root_full[k] = reduced == 0 || (a->varies[a->root[k]] & reduced) != 0;
        any = any || a->root_full[k];
    }
    if (a->result_count > 1) {
        sx_view_result_strides(&a->view, any, a->view.out_stride);
    }
}

int64_t sx_analysis_elements(const sx_analysis *a, uint32_t result)
{
    SX_ASSERT(result < a->result_count);
    if (a->result_count == 1) {
        return sx_tensor_elements(&a->result);
    }
    int64_t elements = 1;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        elements *= a->root_full[result] || !a->view.reduced[d] ? a->view.extent[d] : 1;
    }
    return elements;
}

/* What follows from the node and its results, which are there. */
static sx_code analyse(sx_ctx *cx, const int64_t *symbol_value, sx_analysis *a)
{
    const sx_body *body = a->body;
    a->kind = sx_body_kernel_kind(body);
    a->lane_bytes = lane_bytes(a);
    a->lane = a->row = a->column = a->keys = SX_NO_DIM;
    a->dot = a->lhs = a->rhs = a->scores = a->value = a->outer = SX_NO_INSTR;
    SX_TRY(sx_view_make(cx, a->fused, a->input, a->input_count, symbol_value, &a->view));
    find_full_results(a);
    for (uint32_t i = 0; i < body->instr_count; i++) {
        a->dot = body->instr[i].kind == SX_BODY_DOT ? i : a->dot;
    }
    switch (a->kind) {
    case SX_KERNEL_MAP: analyse_map(a); break;
    case SX_KERNEL_ROW: analyse_row(a); break;
    case SX_KERNEL_DOT: analyse_dot(a); break;
    case SX_KERNEL_ONLINE: analyse_online(a); break;
    case SX_KERNEL_NESTED: sx_analysis_of_nested(a); break;
    }
    if (a->kind == SX_KERNEL_ONLINE && a->lane_bytes == 8) {
        a->refusal = "online sum beside f64 or i64";
    }
    if (a->kind == SX_KERNEL_NESTED && a->lane_bytes == 8) {
        a->refusal = "contraction of contractions beside f64 or i64";
    }
    sx_analysis_find_varies(a);
    collect(a);
    if (a->kind == SX_KERNEL_MAP || a->kind == SX_KERNEL_ROW) {
        a->scattered = apart_along_lanes(a);
    }
    sx_analysis_count_work(a);
    return SX_OK;
}

sx_code sx_analysis_of_checked(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                               uint32_t input_count, const sx_type *result,
                               const int64_t *symbol_value, sx_analysis *a)
{
    memset(a, 0, sizeof(*a));
    a->fused = fused;
    a->body = fused->body;
    a->input = input;
    a->input_count = input_count;
    a->result = *result;
    one_result(a, result->dtype);
    return analyse(cx, symbol_value, a);
}

sx_code sx_analysis_of_results(sx_ctx *cx, const sx_attr *whole, const sx_type *input,
                               uint32_t input_count, const uint32_t *root, const sx_dtype *dtype,
                               uint32_t count, sx_analysis *a)
{
    SX_ASSERT(count > 0 && count <= SX_FUSED_RESULTS_MAX);
    SX_ASSERT(sx_body_kernel_kind(whole->body) == SX_KERNEL_MAP ||
              sx_body_kernel_kind(whole->body) == SX_KERNEL_ROW);
    memset(a, 0, sizeof(*a));
    a->fused = whole;
    a->body = whole->body;
    a->input = input;
    a->input_count = input_count;
    a->result = whole->type;
    a->result.dtype = dtype[0];
    a->result_count = count;
    for (uint32_t k = 0; k < count; k++) {
        SX_ASSERT(root[k] < whole->body->instr_count);
        a->root[k] = root[k];
        a->root_dtype[k] = dtype[k];
    }
    return analyse(cx, NULL, a);
}

sx_code sx_analysis_make(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                         uint32_t input_count, sx_analysis *a)
{
    sx_type result;
    SX_TRY(sx_fused_infer(cx, fused, input, input_count, &result));
    return sx_analysis_of_checked(cx, fused, input, input_count, &result, NULL, a);
}
