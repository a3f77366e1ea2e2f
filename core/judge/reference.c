/* reference.c - a fused node as strides and terms at a position. */
#include "core/judge/reference.h"

#include <string.h>

#include "core/ir/num.h"

/* ---- the space ---- */
static bool index_used(const sx_reference *r, uint32_t dim)
{
    for (uint32_t i = 0; i < r->body->instr_count; i++) {
        const sx_instr *in = &r->body->instr[i];
        if (in->kind == SX_BODY_INDEX && r->space.of[in->x] == dim) {
            return true;
        }
    }
    return false;
}

static bool walks_as_one(const sx_reference *r, uint32_t d)
{
    const sx_body_space *s = &r->space;
    int64_t inner = s->extent[d + 1];
    bool ok = !s->reduced[d] && !s->reduced[d + 1] && !index_used(r, d) && !index_used(r, d + 1) &&
              s->out_stride[d] == s->out_stride[d + 1] * inner;
    for (uint32_t a = 0; ok && a < r->input_count; a++) {
        ok = s->stride[a][d] == s->stride[a][d + 1] * inner;
    }
    return ok;
}

static void take_as_one(sx_reference *r, uint32_t d)
{
    sx_body_space *s = &r->space;
    s->extent[d] *= s->extent[d + 1];
    for (uint32_t e = d; e + 1 < s->rank; e++) {
        uint32_t from = e + 1;
        if (e > d) {
            s->extent[e] = s->extent[from];
        }
        s->out_stride[e] = s->out_stride[from];
        s->reduced[e] = s->reduced[from];
        s->inner[e] = s->inner[from];
        for (uint32_t a = 0; a < r->input_count; a++) {
            s->stride[a][e] = s->stride[a][from];
        }
    }
    s->rank--;
    for (uint32_t k = 0; k < SX_RANK_MAX; k++) {
        if (s->of[k] != UINT32_MAX && s->of[k] > d) {
            s->of[k]--;
        }
    }
}

uint32_t sx_reference_summed(const sx_reference *r, const sx_instr *in)
{
    const sx_body_space *s = &r->space;
    bool of_arguments = in->kind == SX_BODY_DOT && r->body->instr[in->x].kind == SX_BODY_ARG;
    bool inside = of_arguments && r->body->inner != 0;
    uint32_t dims = 0;
    for (uint32_t d = 0; d < s->rank; d++) {
        dims |= s->reduced[d] && s->inner[d] == inside ? 1u << d : 0;
    }
    return dims;
}

static void find_varying(sx_reference *r)
{
    const sx_body_space *s = &r->space;
    r->reduced = 0;
    for (uint32_t d = 0; d < s->rank; d++) {
        r->reduced |= s->reduced[d] ? 1u << d : 0;
    }
    for (uint32_t i = 0; i < r->body->instr_count; i++) {
        const sx_instr *in = &r->body->instr[i];
        uint32_t set = 0;
        uint32_t operands = in->kind == SX_BODY_APPLY    ? sx_op_info_of(in->op)->input_max
                            : in->kind == SX_BODY_REDUCE ? 1
                            : in->kind == SX_BODY_DOT || in->kind == SX_BODY_ONLINE ? 2
                                                                                    : 0;
        const uint32_t operand[] = {in->x, in->y, in->z};
        for (uint32_t k = 0; k < operands; k++) {
            set |= r->varies[operand[k]];
        }
        for (uint32_t d = 0; in->kind == SX_BODY_ARG && d < s->rank; d++) {
            set |= s->stride[in->x][d] != 0 ? 1u << d : 0;
        }
        if (in->kind == SX_BODY_INDEX && s->of[in->x] != UINT32_MAX) {
            set = 1u << s->of[in->x];
        }
        bool sums =
            in->kind == SX_BODY_REDUCE || in->kind == SX_BODY_DOT || in->kind == SX_BODY_ONLINE;
        r->varies[i] = sums ? set & ~sx_reference_summed(r, in) : set;
    }
}

static sx_code make_space(sx_ctx *cx, sx_reference *r)
{
    const sx_type *type = &r->fused->type;
    sx_body_space *s = &r->space;
    memset(s, 0, sizeof(*s));
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t extent = type->dim[d].scale;
        bool reduced = (r->body->axes >> d & 1) != 0;
        if (!sx_dim_is_constant(type->dim[d]) || extent < 1) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "fused: dimension %u of the space is %s", d,
                           extent < 1 ? "empty" : "symbolic");
        }
        s->along = reduced && (s->along || extent > 1);
        s->of[d] = extent > 1 ? s->rank : UINT32_MAX;
        if (extent == 1) {
            continue;
        }
        s->extent[s->rank] = extent;
        s->reduced[s->rank] = reduced;
        s->inner[s->rank] = (r->body->inner >> d & 1) != 0;
        for (uint32_t a = 0; a < r->input_count; a++) {
            if (!sx_dim_is_constant(r->body->access[a].stride[d])) {
                return SX_FAIL(cx, SX_INPUT, "fused: argument %u has a symbolic stride", a);
            }
            s->stride[a][s->rank] = r->body->access[a].stride[d].scale;
        }
        s->rank++;
    }
    for (uint32_t a = 0; a < r->input_count; a++) {
        if (!sx_dim_is_constant(r->body->access[a].offset)) {
            return SX_FAIL(cx, SX_INPUT, "fused: argument %u has a symbolic offset", a);
        }
        s->offset[a] = r->body->access[a].offset.scale;
    }
    find_varying(r);
    bool full = (r->varies[r->body->instr_count - 1] & r->reduced) != 0;
    int64_t stride = 1;
    for (uint32_t d = s->rank; d-- > 0;) {
        bool has = full || !s->reduced[d];
        s->out_stride[d] = has ? stride : 0;
        if (has && !sx_mul_i64(stride, s->extent[d], &stride)) {
            return SX_FAIL(cx, SX_LIMIT, "fused: the result is too large");
        }
    }
    for (uint32_t d = 0; d + 1 < s->rank;) {
        if (walks_as_one(r, d)) {
            take_as_one(r, d);
        } else {
            d++;
        }
    }
    find_varying(r);
    return SX_OK;
}

/* Columns are the last kept dimension; where the left argument alone varies along it, it is the right one. */
static void find_panels(sx_reference *r)
{
    r->columns = SX_RANK_MAX;
    r->packed = UINT32_MAX;
    for (uint32_t d = 0; d < r->space.rank; d++) {
        r->columns = r->space.reduced[d] ? r->columns : d;
    }
    for (uint32_t i = 0; r->facts.panel > 0 && i < r->body->instr_count; i++) {
        const sx_instr *in = &r->body->instr[i];
        if (in->kind == SX_BODY_DOT && r->body->inner == 0) {
            uint32_t left = r->body->instr[in->x].x;
            uint32_t right = r->body->instr[in->y].x;
            bool swapped = r->columns != SX_RANK_MAX && r->space.stride[left][r->columns] != 0 &&
                           r->space.stride[right][r->columns] == 0;
            r->packed = swapped ? left : right;
        }
    }
    if (r->facts.panel > 0 && r->packed != r->facts.argument) {
        (void)sx_refuse(r->g, "argument %u is said to come in panels", r->facts.argument);
    }
}

/* Lanes of 4 bytes hold no f64 and no i64. */
static void find_wide(sx_reference *r)
{
    bool wide = sx_dtype_bytes(r->result_dtype) == 8;
    for (uint32_t a = 0; a < r->input_count; a++) {
        wide = wide || sx_dtype_bytes(r->input[a].dtype) == 8;
    }
    for (uint32_t i = 0; i < r->body->instr_count; i++) {
        wide = wide || sx_dtype_bytes(r->body->instr[i].dtype) == 8;
    }
    if (wide && !r->g->wide) {
        (void)sx_refuse(r->g, "elements of 8 bytes in lanes of 4");
    }
}

sx_code sx_reference_begin(sx_ctx *cx, sx_reference *r, sx_algebra *g, const sx_attr *fused,
                           const sx_type *input, uint32_t input_count, const sx_judge_facts *facts)
{
    sx_type result;
    SX_TRY(sx_fused_infer(cx, fused, input, input_count, &result));
    if (fused->body->arg_count != input_count || input_count > SX_FUSED_ARGS_MAX) {
        return SX_FAIL(cx, SX_INPUT, "fused: %u arguments for %u inputs", fused->body->arg_count,
                       input_count);
    }
    r->g = g;
    r->fused = fused;
    r->body = fused->body;
    r->input = input;
    r->input_count = input_count;
    r->facts = *facts;
    r->result_dtype = result.dtype;
    r->result_bytes = sx_tensor_elements(&result) * sx_dtype_bytes(result.dtype);
    r->online = (sx_online_state){0};
    r->online_kind = sx_body_kernel_kind(fused->body) == SX_KERNEL_ONLINE;
    r->epoch = r->point = r->step = r->holes = 0;
    memset(r->memo_epoch, 0, sizeof(r->memo_epoch));
    SX_TRY(make_space(cx, r));
    find_panels(r);
    find_wide(r);
    return SX_OK;
}

void sx_reference_move(sx_reference *r)
{
    r->point = ++r->epoch;
    r->step = r->point;
}

/* ---- addresses ---- */
bool sx_panel_strides(const sx_reference *r, int64_t stride[SX_RANK_MAX], int64_t *size)
{
    const sx_body_space *s = &r->space;
    bool ok = true;
    *size = r->facts.panel;
    memset(stride, 0, SX_RANK_MAX * sizeof(stride[0]));
    for (uint32_t d = s->rank; d-- > 0;) {
        if (s->reduced[d]) {
            stride[d] = *size;
            ok = ok && sx_mul_i64(*size, s->extent[d], size);
        }
    }
    int64_t n = r->columns == SX_RANK_MAX ? 1 : s->extent[r->columns];
    if (r->columns != SX_RANK_MAX) {
        stride[r->columns] = *size;
    }
    ok = ok && sx_mul_i64(*size, sx_ceil_div_i64(n, r->facts.panel), size);
    for (uint32_t d = s->rank; d-- > 0;) {
        if (!s->reduced[d] && d != r->columns && s->stride[r->packed][d] != 0) {
            stride[d] = *size;
            ok = ok && sx_mul_i64(*size, s->extent[d], size);
        }
    }
    return ok && *size <= SX_LOOP_BYTES_MAX / (r->g->wide ? 8 : 4);
}

/* The packed element: the column number splits in panel and column of it, as the variables do. */
static uint32_t panel_address(sx_reference *r)
{
    sx_algebra *g = r->g;
    int64_t stride[SX_RANK_MAX], size;
    sx_lin lin;
    sx_lin_init(&lin, 0);
    if (!sx_panel_strides(r, stride, &size)) {
        return sx_refuse(g, "the panels are too large");
    }
    for (uint32_t d = 0; d < r->space.rank; d++) {
        sx_lin at, digit[2];
        sx_lin_get(g, r->position[d], &at);
        if (d != r->columns || stride[d] == r->facts.panel) { /* one step: panels are rows */
            sx_lin_add_lin(g, &lin, &at, d == r->columns ? 1 : stride[d]);
            continue;
        }
        const int64_t unit[2] = {1, r->facts.panel};
        const int64_t count[2] = {r->facts.panel,
                                  sx_ceil_div_i64(r->space.extent[d], r->facts.panel)};
        if (!sx_decode(g, &at, unit, count, 2, digit)) {
            return sx_refuse(g, "columns that do not stay in one panel");
        }
        sx_lin_add_lin(g, &lin, &digit[0], 1);
        sx_lin_add_lin(g, &lin, &digit[1], stride[d]);
    }
    sx_lin bytes;
    sx_lin_init(&bytes, 0);
    sx_lin_add_lin(g, &bytes, &lin, g->wide ? 8 : 4);
    return sx_form_put(g, &bytes);
}

uint32_t sx_reference_address(sx_reference *r, uint32_t a)
{
    sx_algebra *g = r->g;
    if (a == r->packed) {
        return panel_address(r);
    }
    sx_lin lin;
    sx_lin_init(&lin, r->space.offset[a]);
    for (uint32_t d = 0; d < r->space.rank; d++) {
        if (r->space.stride[a][d] != 0) {
            sx_lin at;
            sx_lin_get(g, r->position[d], &at);
            sx_lin_add_lin(g, &lin, &at, r->space.stride[a][d]);
        }
    }
    sx_lin bytes;
    sx_lin_init(&bytes, 0);
    sx_lin_add_lin(g, &bytes, &lin, sx_dtype_bytes(r->input[a].dtype));
    return sx_form_put(g, &bytes);
}

/* ---- values ---- */
static uint32_t argument(sx_reference *r, uint32_t a)
{
    sx_dtype dtype = r->input[a].dtype;
    uint32_t address = sx_reference_address(r, a);
    if (a == r->packed) { /* panels hold lanes */
        return sx_term_element(r->g, a, SX_MEM_LANE, address, 0);
    }
    sx_mem mem = sx_loop_mem(dtype, r->g->wide ? 8 : 4);
    return sx_reference_decode(r, dtype, sx_term_element(r->g, a, (uint8_t)mem, address, 0));
}

uint32_t sx_reference_constant(sx_reference *r, sx_dtype dtype, double value)
{
    sx_algebra *g = r->g;
    uint64_t bits = 0;
    switch (sx_dtype_class_of(dtype)) {
    case SX_CLASS_FLOAT:
        bits = sx_num_encode(g->wide ? SX_F64 : SX_F32, sx_num_round(dtype, value));
        break;
    case SX_CLASS_INT: bits = sx_num_int_encode(g->wide ? SX_I64 : SX_I32, (int64_t)value); break;
    case SX_CLASS_BOOL: bits = value != 0; break;
    }
    return sx_term_constant(g, bits);
}

static uint32_t index_of(sx_reference *r, const sx_instr *in)
{
    uint32_t d = r->space.of[in->x];
    if (d == UINT32_MAX) {
        return sx_reference_constant(r, in->dtype, 0);
    }
    uint32_t operand[3] = {sx_term_int(r->g, r->position[d]), 0, 0};
    sx_loop_step step = sx_loop_index_step(r->space.extent[d], in->dtype, r->g->wide ? 8 : 4);
    return sx_reference_typed(r, &step, operand);
}

uint32_t sx_reference_value(sx_reference *r, uint32_t instr)
{
    const sx_instr *in = &r->body->instr[instr];
    uint32_t epoch = (r->varies[instr] & r->reduced) != 0 ? r->step : r->point;
    if (r->g->refused) {
        return 0;
    }
    if (r->memo_epoch[instr] == epoch) {
        return r->memo[instr];
    }
    uint32_t value = 0;
    switch (in->kind) {
    case SX_BODY_ARG: value = argument(r, in->x); break;
    case SX_BODY_IMM: value = sx_reference_constant(r, in->dtype, in->imm); break;
    case SX_BODY_INDEX: value = index_of(r, in); break;
    case SX_BODY_REDUCE:
        value = r->online_kind ? sx_reference_online(r, in) : sx_reference_reduce(r, in);
        break;
    case SX_BODY_DOT: value = sx_reference_dot(r, in); break;
    case SX_BODY_ONLINE: value = sx_reference_online(r, in); break;
    case SX_BODY_APPLY: {
        uint32_t operand[3] = {0, 0, 0};
        const uint32_t number[] = {in->x, in->y, in->z};
        for (uint32_t k = 0; k < sx_op_info_of(in->op)->input_max; k++) {
            operand[k] = sx_reference_value(r, number[k]);
        }
        value = sx_reference_apply(r, in, operand);
        break;
    }
    }
    r->memo[instr] = value;
    r->memo_epoch[instr] = epoch;
    return value;
}

uint32_t sx_reference_result(sx_reference *r)
{
    uint32_t last = r->body->instr_count - 1;
    sx_reference_move(r);
    uint32_t value = sx_reference_value(r, last);
    return sx_reference_encode(r, r->result_dtype, value);
}
