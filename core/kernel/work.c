/* work.c - operations and bytes of a kernel, counted over its program and accesses. */
#include "core/kernel/work.h"

#include <math.h>
#include <string.h>

/* A scatter is linear from so many indices and rows on: below, what it copies costs more than it saves. Lanes run along
 * the row; where a row is one element the other form has lanes along the axis, and the linear one has none. */
#define SCATTER_PICKS 8
#define SCATTER_ROWS 4
#define SCATTER_ROWS_ALONG 32
#define SCATTER_WORKSPACE_BYTES \
    (INT64_C(1) << 28)     /* of a thread, where its columns are one vector */
#define SCATTERED_READ 1.5 /* bytes fetched per byte used where rows are not read in order */

double sx_op_weight(sx_op op)
{
    switch ((int)op) {
    case SX_OP_EXP: return 14;
    case SX_OP_LOG: return 18;
    case SX_OP_TANH: return 22;
    case SX_OP_ERF: return 26;
    case SX_OP_LOGISTIC: return 22;
    case SX_OP_SIN:
    case SX_OP_COS: return 24;
    case SX_OP_POWER: return 40;
    case SX_OP_REMAINDER: return 12;
    case SX_OP_RANDOM_BITS: return 100;
    case SX_OP_DIVIDE:
    case SX_OP_SQRT: return 8;
    case SX_OP_RSQRT: return 12;
    case SX_OP_GELU: return 30;
    case SX_OP_GELU_TANH: return 30;
    case SX_OP_SILU: return 23;
    case SX_OP_SOFTMAX: return 26;
    case SX_OP_LOG_SOFTMAX: return 20;
    case SX_OP_LAYER_NORM: return 10;
    case SX_OP_RMS_NORM: return 6;
    case SX_OP_BATCH_NORM: return 4 + 12;
    default: return 1;
    }
}

bool sx_op_is_long(sx_op op)
{
    switch ((int)op) {
    case SX_OP_EXP:
    case SX_OP_LOG:
    case SX_OP_TANH:
    case SX_OP_ERF:
    case SX_OP_LOGISTIC:
    case SX_OP_SIN:
    case SX_OP_COS:
    case SX_OP_POWER:
    case SX_OP_RANDOM_BITS:
    case SX_OP_GELU:
    case SX_OP_GELU_TANH:
    case SX_OP_SILU: return true;
    default: return false;
    }
}

static double points_of(const sx_analysis *a, uint32_t set)
{
    double points = 1;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        points *= (set >> d & 1) != 0 ? (double)a->view.extent[d] : 1;
    }
    return points;
}

/* Points of a step of a contraction: a plain one walks the whole space. */
static double pairs_of(const sx_analysis *a, const sx_instr *in)
{
    bool whole = in->kind == SX_BODY_DOT && a->body->inner == 0;
    return points_of(a, whole ? UINT32_MAX : a->varies[in->x] | a->varies[in->y]);
}

static double flops_of(const sx_analysis *a)
{
    const sx_body *body = a->body;
    double flops = 0;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        if (in->kind == SX_BODY_DOT || in->kind == SX_BODY_ONLINE) {
            flops += 2 * pairs_of(a, in);
        } else if (in->kind == SX_BODY_REDUCE) {
            flops += points_of(a, a->varies[in->x]);
        } else if (in->kind == SX_BODY_APPLY) {
            flops += points_of(a, a->varies[i]);
        }
    }
    return flops;
}

/* A weighted sum: for each score a maximum, a power and an addition, once in the program; a multiply-add for
 * each score and column. */
static double work_of(const sx_analysis *a)
{
    const sx_body *body = a->body;
    double work = 0;
    bool first_sum = true;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        if (in->kind == SX_BODY_DOT) {
            work += 2 * pairs_of(a, in);
        } else if (in->kind == SX_BODY_ONLINE) {
            double scores = points_of(a, a->varies[in->x]);
            work += first_sum ? scores * (sx_op_weight(SX_OP_EXP) + 2) : 0;
            work += body->instr[in->y].kind == SX_BODY_ARG ? 2 * pairs_of(a, in) : 0;
            first_sum = false;
        } else if (in->kind == SX_BODY_REDUCE && a->kind != SX_KERNEL_ONLINE) {
            work += points_of(a, UINT32_MAX);
        } else if (in->kind == SX_BODY_APPLY) {
            work += points_of(a, a->varies[i]) * sx_op_weight(in->op);
        }
    }
    return work;
}

/* Distinct elements an argument's access touches: at most all of it. */
static double touched(const sx_analysis *a, uint32_t argument)
{
    double product = 1, last = 0;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        int64_t stride = a->view.stride[argument][d];
        product *= stride != 0 ? (double)a->view.extent[d] : 1;
        last += (double)stride * (double)(a->view.extent[d] - 1);
    }
    return product < last + 1 ? product : last + 1;
}

/* What the values that are `inside` need at each element of the row: the set of their arguments, and which
 * instructions. No value comes behind instruction `last`. */
static uint32_t needs(const sx_analysis *a, uint32_t last, bool inside[SX_FUSED_INSTRS_MAX])
{
    const sx_body *body = a->body;
    uint32_t set = 0;
    for (uint32_t i = last + 1; i-- > 0;) {
        const sx_instr *in = &body->instr[i];
        if (!inside[i] || (a->varies[i] & a->reduced) == 0) {
            inside[i] = false;
            continue;
        }
        const uint32_t operand[] = {in->x, in->y, in->z};
        set |= in->kind == SX_BODY_ARG ? 1u << in->x : 0;
        for (uint32_t k = 0; in->kind == SX_BODY_APPLY && k < sx_body_operand_count(in); k++) {
            inside[operand[k]] = true;
        }
    }
    return set;
}

/* What a walk over the row makes: what a reduction takes, or, behind the last instruction, all full results. False: it
 * is no walk. */
static bool begin_walk(const sx_analysis *a, uint32_t instr, bool inside[SX_FUSED_INSTRS_MAX])
{
    const sx_body *body = a->body;
    memset(inside, 0, SX_FUSED_INSTRS_MAX * sizeof(bool));
    if (instr < body->instr_count) {
        inside[body->instr[instr].x] = body->instr[instr].kind == SX_BODY_REDUCE;
        return inside[body->instr[instr].x];
    }
    for (uint32_t r = 0; r < a->result_count; r++) {
        inside[a->root[r]] = inside[a->root[r]] || a->root_full[r];
    }
    return a->full;
}

static sx_row_passes passes_of(const sx_analysis *a)
{
    const sx_body *body = a->body;
    sx_row_passes p = {0};
    uint32_t once = 0, again = 0;
    bool made[SX_FUSED_INSTRS_MAX] = {false};
    uint32_t last = body->instr_count - 1;
    SX_ASSERT(a->kind == SX_KERNEL_ROW && body->arg_count <= 32);
    for (uint32_t i = 0; i <= last + 1; i++) {
        bool inside[SX_FUSED_INSTRS_MAX];
        if (!begin_walk(a, i, inside)) {
            continue;
        }
        uint32_t set = needs(a, last, inside);
        p.passes += set != 0;
        p.reductions += i <= last;
        for (uint32_t k = 0; k < body->arg_count; k++) {
            bool repeats = (once & set) >> k & 1;
            p.bytes_again += repeats ? touched(a, k) * sx_dtype_bytes(a->input[k].dtype) : 0;
        }
        again |= once & set;
        once |= set;
        for (uint32_t k = 0; k <= last; k++) {
            const sx_instr *of = &body->instr[k];
            bool is_long = inside[k] && of->kind == SX_BODY_APPLY && sx_op_is_long(of->op);
            p.makes_again = p.makes_again || (is_long && made[k]);
            made[k] = made[k] || is_long;
        }
    }
    p.arguments_again = (uint32_t)__builtin_popcount(again);
    return p;
}

/* Is the argument read along its rows? Else a vector load gathers, and lines are fetched in part. */
static bool is_contiguous(const sx_analysis *a, uint32_t argument)
{
    bool moves = false;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        int64_t stride = a->view.stride[argument][d];
        if (stride == 1) {
            return true;
        }
        moves = moves || stride != 0;
    }
    return !moves;
}

/* Kernels that compute with floats and count with integers are kernels of floats. */
static sx_dtype arithmetic_of(const sx_analysis *a)
{
    static const sx_dtype widest_first[] = {SX_F64, SX_I64, SX_F32};
    const sx_body *body = a->body;
    if (a->dot != SX_NO_INSTR) {
        return body->instr[body->instr[a->dot].x].dtype;
    }
    uint32_t seen = 0;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        seen |= 1u << body->instr[i].dtype;
    }
    for (uint32_t k = 0; k < SX_COUNT(widest_first); k++) {
        if ((seen >> widest_first[k] & 1) != 0) {
            return widest_first[k];
        }
    }
    return body->instr[body->instr_count - 1].dtype;
}

void sx_analysis_count_work(sx_analysis *a)
{
    const sx_body *body = a->body;
    a->passes = a->kind == SX_KERNEL_ROW ? passes_of(a) : (sx_row_passes){0};
    a->arithmetic = arithmetic_of(a);
    a->flops = flops_of(a);
    a->work = work_of(a);
    a->bytes = 0;
    for (uint32_t k = 0; k < a->result_count; k++) {
        double result = 1;
        for (uint32_t d = 0; d < a->view.rank; d++) {
            bool has = a->root_full[k] ? a->view.out_stride[d] != 0 : !a->view.reduced[d];
            result *= has ? (double)a->view.extent[d] : 1;
        }
        a->bytes += result * sx_dtype_bytes(a->root_dtype[k]);
    }
    a->effort = a->bytes;
    for (uint32_t k = 0; k < body->arg_count; k++) {
        double read = touched(a, k) * sx_dtype_bytes(a->input[k].dtype);
        a->bytes += read;
        a->effort += is_contiguous(a, k) ? read : read * SCATTERED_READ;
    }
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        a->program_length += in->kind == SX_BODY_APPLY && sx_op_is_long(in->op) ? 8 : 1;
    }
}

bool sx_scatter_is_linear(int64_t rows, int64_t row, int64_t picks, bool threads)
{
    SX_ASSERT(rows >= 0 && row >= 0 && picks >= 0);
    const int64_t least = row == 1 ? SCATTER_ROWS_ALONG : SCATTER_ROWS;
    const int64_t most = SCATTER_WORKSPACE_BYTES / (row == 1 ? 8 : 64) - 2;
    return !threads && picks >= SCATTER_PICKS && rows >= least && rows <= most;
}

double sx_sort_comparisons(int64_t n, int64_t count, int64_t lanes)
{
    SX_ASSERT(n >= 1 && count >= 1 && count <= n && lanes >= 1);
    const double padded = (double)((n + lanes - 1) / lanes * lanes);
    double run = 1, steps = 0, merges = 0;
    for (; run < padded && (run < (double)count || run < (double)lanes); run *= 2) {
        steps += ++merges; /* of which each compares all of the row, in pairs */
    }
    double pairs = padded / 2 * steps;
    return pairs + (ceil(padded / run) - 1) * run * (1 + merges / 2); /* of two runs one is left */
}
