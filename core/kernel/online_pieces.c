/* online_pieces.c - an online sum whose keys are cut in pieces, as two nodes. */
#include "core/kernel/online_pieces.h"

#include <math.h>
#include <string.h>

#include "core/ir/fused_body.h"

/* The dimension of the space that counts the keys, or SX_NO_DIM: several, or one key. */
static uint32_t key_dim(const sx_attr *fused)
{
    const sx_body *body = fused->body;
    uint32_t found = SX_NO_DIM;
    for (uint32_t d = 0; d < fused->type.rank; d++) {
        if (((body->axes & ~body->inner) >> d & 1) != 0 && fused->type.dim[d].scale != 1) {
            if (found != SX_NO_DIM) {
                return SX_NO_DIM;
            }
            found = d;
        }
    }
    return found;
}

/* Keys and values are read by the sums alone: the node that combines does not have them. */
static bool is_read_apart(const sx_analysis *a)
{
    for (uint32_t i = 0; i < a->body->instr_count; i++) {
        const sx_instr *in = &a->body->instr[i];
        const uint32_t operand[] = {in->x, in->y, in->z};
        bool sums = i == a->dot || in->kind == SX_BODY_ONLINE;
        for (uint32_t k = 0; !sums && k < sx_body_operand_count(in); k++) {
            const sx_instr *from = &a->body->instr[operand[k]];
            if (from->kind == SX_BODY_ARG && (from->x == a->rhs || from->x == a->value)) {
                return false;
            }
        }
    }
    return a->lhs != a->rhs && a->lhs != a->value && a->rhs != a->value;
}

static bool is_constant(const sx_analysis *a)
{
    bool constant = true;
    for (uint32_t d = 0; d < a->fused->type.rank; d++) {
        constant = constant && sx_dim_is_constant(a->fused->type.dim[d]);
    }
    return constant;
}

/* What stands in place of the sums, and of the number of a key wherever it is read, are at most so many instructions.
 * */
#define SUMS_INSTRUCTIONS 24
#define INDEX_INSTRUCTIONS 4

static bool has_room(const sx_body *body)
{
    uint32_t count = body->instr_count + SUMS_INSTRUCTIONS;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        count += body->instr[i].kind == SX_BODY_INDEX ? INDEX_INSTRUCTIONS : 0;
    }
    return count <= SX_FUSED_INSTRS_MAX;
}

int64_t sx_online_piece(const sx_analysis *a)
{
    if (a->kind != SX_KERNEL_ONLINE || a->refusal != NULL || a->statistic != NULL ||
        a->dot == SX_NO_INSTR || a->value == SX_NO_INSTR || a->lane_bytes != 4 ||
        a->extent[SX_ROLE_ROW] > SX_PIECE_ROWS_MAX || a->fused->type.rank >= SX_RANK_MAX ||
        key_dim(a->fused) == SX_NO_DIM || !has_room(a->body) || !is_constant(a) ||
        !is_read_apart(a)) {
        return 0;
    }
    int64_t keys = a->extent[SX_ROLE_SUM];
    for (int64_t p = SX_PIECE_KEYS_LEAST; p <= SX_PIECE_KEYS_MAX; p += SX_PIECE_KEYS_UNIT) {
        if (keys % p == 0 && keys / p > 1) {
            return p;
        }
    }
    return 0;
}

/* ---- bodies ---- */
static uint32_t put(sx_body *body, sx_instr in)
{
    SX_ASSERT(body->instr_count < SX_FUSED_INSTRS_MAX);
    body->instr[body->instr_count] = in;
    return body->instr_count++;
}

static uint32_t apply(sx_body *body, sx_op op, uint32_t x, uint32_t y, uint32_t z)
{
    return put(
        body, (sx_instr){.kind = SX_BODY_APPLY, .op = op, .dtype = SX_F32, .x = x, .y = y, .z = z});
}

static uint32_t immediate(sx_body *body, sx_dtype dtype, double value)
{
    return put(body, (sx_instr){.kind = SX_BODY_IMM, .dtype = dtype, .imm = value});
}

/* Is it minus infinity? */
static uint32_t is_empty(sx_body *body, uint32_t x)
{
    uint32_t least = immediate(body, SX_F32, -HUGE_VAL);
    return put(body, (sx_instr){.kind = SX_BODY_APPLY,
                                .op = SX_OP_COMPARE,
                                .direction = SX_EQ,
                                .dtype = SX_BOOL,
                                .x = x,
                                .y = least});
}

static uint32_t reduce(sx_body *body, sx_reducer reducer, uint32_t x)
{
    return put(body,
               (sx_instr){.kind = SX_BODY_REDUCE, .reducer = reducer, .dtype = SX_F32, .x = x});
}

/* What is written, and where instructions of the online sum are in it. */
typedef struct {
    const sx_analysis *a;
    sx_body *body;
    uint32_t to[SX_FUSED_INSTRS_MAX];
    bool needed[SX_FUSED_INSTRS_MAX];
} writing;

/* Marks what instruction `root` is made of. `sums`: sums and what stands before them, or nothing but what follows. */
static void need(writing *w, uint32_t root, bool sums)
{
    w->needed[root] = true;
    for (uint32_t i = root + 1; i-- > 0;) {
        const sx_instr *in = &w->a->body->instr[i];
        const uint32_t operand[] = {in->x, in->y, in->z};
        bool ends = !sums && sx_body_combines(in);
        for (uint32_t k = 0; w->needed[i] && !ends && k < sx_body_operand_count(in); k++) {
            w->needed[operand[k]] = true;
        }
    }
}

static void renumber(const writing *w, sx_instr *in)
{
    if (sx_body_operand_count(in) > 0) {
        in->x = w->to[in->x];
        in->y = w->to[in->y];
        in->z = w->to[in->z];
    }
}

/* ---- the pieces ---- */
/* The number of a key is that of its piece times `piece`, and its own one in there. */
static uint32_t put_key(writing *w, const sx_instr *index, uint32_t dim, int64_t piece)
{
    sx_instr in = *index;
    in.x = 0;
    uint32_t from = put(w->body, in);
    uint32_t length = immediate(w->body, in.dtype, (double)piece);
    from = apply(w->body, SX_OP_MULTIPLY, from, length, 0);
    w->body->instr[from].dtype = in.dtype;
    in.x = dim;
    uint32_t own = put(w->body, in);
    uint32_t sum = apply(w->body, SX_OP_ADD, from, own, 0);
    w->body->instr[sum].dtype = in.dtype;
    return sum;
}

/* Instructions up to the scores; `dim` is where each dimension of the space is in the new one. */
static void put_scores(writing *w, const sx_online_pieces *p, const uint32_t *dim, int64_t piece)
{
    uint32_t key = key_dim(w->a->fused);
    need(w, w->a->scores, true);
    for (uint32_t i = 0; i <= w->a->scores; i++) {
        sx_instr in = w->a->body->instr[i];
        if (!w->needed[i]) {
            continue;
        }
        if (in.kind == SX_BODY_INDEX && in.x == key) {
            w->to[i] = put_key(w, &in, dim[key], piece);
            continue;
        }
        if (in.kind == SX_BODY_INDEX) {
            in.x = dim[in.x];
        } else if (in.kind == SX_BODY_ARG) {
            uint32_t at = 0;
            while (p->argument[at] != in.x) {
                at++;
            }
            in.x = at;
        }
        renumber(w, &in);
        w->to[i] = put(w->body, in);
    }
}

/* Values, keys, queries, and then what else scores are made of. */
static void find_arguments(const sx_analysis *a, sx_online_pieces *p)
{
    writing w = {.a = a};
    need(&w, a->scores, true);
    p->argument[SX_PIECE_VALUE] = a->value;
    p->argument[SX_PIECE_KEY] = a->rhs;
    p->argument[SX_PIECE_QUERY] = a->lhs;
    p->argument_count = SX_PIECE_OTHER;
    for (uint32_t i = 0; i <= a->scores; i++) {
        const sx_instr *in = &a->body->instr[i];
        bool known = in->kind != SX_BODY_ARG || !w.needed[i];
        for (uint32_t k = 0; !known && k < p->argument_count; k++) {
            known = p->argument[k] == in->x;
        }
        if (!known) {
            p->argument[p->argument_count++] = in->x;
        }
    }
    for (uint32_t k = 0; k < p->argument_count; k++) {
        p->partial_input[k] = a->input[p->argument[k]];
    }
}

/* Do columns run along that dimension of the space? */
static bool is_column(const sx_analysis *a, uint32_t d)
{
    return a->column != SX_NO_DIM && a->view.view_dim[d] == a->column;
}

/* The space with pieces as its first dimension, with or without the columns; *dim says where its dimensions are. */
static void make_space(const sx_analysis *a, const sx_online_pieces *p, bool columns, int64_t piece,
                       sx_attr *attr, sx_body *body, uint32_t dim[SX_RANK_MAX])
{
    const sx_attr *fused = a->fused;
    uint32_t key = key_dim(fused);
    *attr = *fused;
    attr->body = body;
    attr->type = (sx_type){.dtype = SX_F32, .rank = 1};
    attr->type.dim[0] = sx_dim_of(a->extent[SX_ROLE_SUM] / piece);
    *body = (sx_body){.arg_count = p->argument_count};
    for (uint32_t k = 0; k < p->argument_count; k++) {
        const sx_access *from = &a->body->access[p->argument[k]];
        body->access[k].offset = from->offset;
        for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
            body->access[k].stride[d] = sx_dim_of(0);
        }
        body->access[k].stride[0] = sx_dim_of(from->stride[key].scale * piece);
    }
    for (uint32_t d = 0; d < fused->type.rank; d++) {
        bool kept = (a->body->axes >> d & 1) == 0;
        dim[d] = SX_NO_DIM;
        if (!columns && kept && is_column(a, d)) {
            continue;
        }
        uint32_t to = dim[d] = attr->type.rank++;
        attr->type.dim[to] = d == key ? sx_dim_of(piece) : fused->type.dim[d];
        body->axes |= kept ? 0 : 1U << to;
        body->inner |= (a->body->inner >> d & 1) << to;
        for (uint32_t k = 0; k < p->argument_count; k++) {
            body->access[k].stride[to] = a->body->access[p->argument[k]].stride[d];
        }
    }
}

static uint32_t weigh(sx_body *body, uint32_t scores, uint32_t value)
{
    return put(body, (sx_instr){.kind = SX_BODY_ONLINE, .dtype = SX_F32, .x = scores, .y = value});
}

static void make_partial(const sx_analysis *a, int64_t piece, sx_online_pieces *p)
{
    uint32_t dim[SX_RANK_MAX];
    writing w = {.a = a, .body = &p->partial_body};
    make_space(a, p, true, piece, &p->partial, w.body, dim);
    put_scores(&w, p, dim, piece);
    uint32_t scores = w.to[a->scores];
    uint32_t value = put(
        w.body,
        (sx_instr){.kind = SX_BODY_ARG, .dtype = a->input[a->value].dtype, .x = SX_PIECE_VALUE});
    uint32_t sum = weigh(w.body, scores, value);
    uint32_t total = weigh(w.body, scores, immediate(w.body, SX_F32, 1));
    (void)apply(w.body, SX_OP_DIVIDE, sum, total, 0);
}

static void make_statistic(const sx_analysis *a, int64_t piece, sx_online_pieces *p)
{
    uint32_t dim[SX_RANK_MAX];
    writing w = {.a = a, .body = &p->statistic_body};
    make_space(a, p, false, piece, &p->statistic, w.body, dim);
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) { /* values are not read */
        w.body->access[SX_PIECE_VALUE].stride[d] = sx_dim_of(0);
    }
    put_scores(&w, p, dim, piece);
    uint32_t scores = w.to[a->scores];
    uint32_t maximum = reduce(w.body, SX_MAX, scores);
    uint32_t total = weigh(w.body, scores, immediate(w.body, SX_F32, 1));
    uint32_t logarithm = apply(w.body, SX_OP_LOG, total, 0, 0);
    uint32_t sum = apply(w.body, SX_OP_ADD, maximum, logarithm, 0);
    uint32_t empty = is_empty(w.body, maximum);
    (void)apply(w.body, SX_OP_SELECT, empty, maximum, sum);
}

/* ---- what combines them ---- */
/* Sums of the pieces, in the place of those of the online sum. */
typedef struct {
    uint32_t maximum, total, sum;
} combined;

static combined put_combined(const sx_analysis *a, sx_body *body)
{
    combined c;
    uint32_t statistic = put(body, (sx_instr){.kind = SX_BODY_ARG, .dtype = SX_F32, .x = a->rhs});
    uint32_t value = put(body, (sx_instr){.kind = SX_BODY_ARG, .dtype = SX_F32, .x = a->value});
    uint32_t empty = is_empty(body, statistic), zero = immediate(body, SX_F32, 0);
    c.maximum = reduce(body, SX_MAX, statistic);
    uint32_t weight = apply(body, SX_OP_SUBTRACT, statistic, c.maximum, 0);
    weight = apply(body, SX_OP_EXP, weight, 0, 0);
    weight = apply(body, SX_OP_SELECT, empty, zero, weight);
    value = apply(body, SX_OP_SELECT, empty, zero, value);
    c.total = reduce(body, SX_SUM, weight);
    c.sum = reduce(body, SX_SUM, apply(body, SX_OP_MULTIPLY, weight, value, 0));
    uint32_t one = apply(body, SX_OP_DIVIDE, c.total, c.total, 0); /* or not a number */
    c.total = apply(body, SX_OP_MULTIPLY, c.total, one, 0);
    c.sum = apply(body, SX_OP_MULTIPLY, c.sum, one, 0);
    return c;
}

static void combine_program(const sx_analysis *a, const uint32_t *dim, sx_body *body)
{
    writing w = {.a = a, .body = body};
    combined c = put_combined(a, body);
    uint32_t root = a->body->instr_count - 1;
    need(&w, root, false);
    for (uint32_t i = 0; i <= root; i++) {
        sx_instr in = a->body->instr[i];
        if (!w.needed[i]) {
            continue;
        }
        if (in.kind == SX_BODY_REDUCE) {
            w.to[i] = c.maximum;
        } else if (in.kind == SX_BODY_ONLINE) {
            const sx_instr *y = &a->body->instr[in.y];
            bool one = y->kind == SX_BODY_IMM && y->imm == 1;
            w.to[i] =
                y->kind == SX_BODY_ARG ? c.sum
                : one                  ? c.total
                      : apply(body, SX_OP_MULTIPLY, c.total, immediate(body, SX_F32, y->imm), 0);
        } else {
            in.x = in.kind == SX_BODY_INDEX ? dim[in.x] : in.x;
            renumber(&w, &in);
            w.to[i] = put(body, in);
        }
    }
}

/* Pieces are the last dimension, along which lanes run. */
static void make_combine(const sx_analysis *a, int64_t pieces, sx_online_pieces *p)
{
    const sx_type *space = &a->fused->type;
    uint32_t dim[SX_RANK_MAX] = {0};
    sx_body *body = &p->combine_body;
    p->combine = *a->fused;
    p->combine.body = body;
    p->combine.type = (sx_type){.dtype = space->dtype};
    *body = (sx_body){.arg_count = a->body->arg_count};
    for (uint32_t i = 0; i < a->input_count; i++) {
        body->access[i] = (sx_access){.offset = a->body->access[i].offset};
        for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
            body->access[i].stride[d] = sx_dim_of(0);
        }
        p->combine_input[i] = a->input[i];
    }
    sx_access *sums = &body->access[a->value], *statistics = &body->access[a->rhs];
    for (uint32_t d = 0; d < space->rank; d++) {
        if ((a->body->axes >> d & 1) == 0) {
            dim[d] = p->combine.type.rank++;
            p->combine.type.dim[dim[d]] = space->dim[d];
            for (uint32_t i = 0; i < a->input_count; i++) {
                body->access[i].stride[dim[d]] = a->body->access[i].stride[d];
            }
        }
    }
    int64_t elements = 1, rows = 1;
    sums->offset = statistics->offset = sx_dim_of(0);
    for (uint32_t d = space->rank; d-- > 0;) {
        if ((a->body->axes >> d & 1) == 0) {
            bool column = is_column(a, d);
            sums->stride[dim[d]] = sx_dim_of(elements);
            statistics->stride[dim[d]] = sx_dim_of(column ? 0 : rows);
            elements *= space->dim[d].scale;
            rows *= column ? 1 : space->dim[d].scale;
        }
    }
    uint32_t last = p->combine.type.rank++;
    p->combine.type.dim[last] = sx_dim_of(pieces);
    sums->stride[last] = sx_dim_of(elements);
    statistics->stride[last] = sx_dim_of(rows);
    body->axes = 1U << last;
    p->result[SX_PIECE_SUM] =
        (sx_type){.dtype = SX_F32, .rank = 1, .dim = {sx_dim_of(elements * pieces)}};
    p->result[SX_PIECE_STATISTIC] =
        (sx_type){.dtype = SX_F32, .rank = 1, .dim = {sx_dim_of(rows * pieces)}};
    p->combine_input[a->value] = p->result[SX_PIECE_SUM];
    p->combine_input[a->rhs] = p->result[SX_PIECE_STATISTIC];
    combine_program(a, dim, body);
}

sx_code sx_online_pieces_of_price(sx_ctx *cx, const sx_analysis *a, int64_t piece,
                                  sx_online_pieces *p)
{
    SX_ASSERT(piece >= 1 && piece == sx_online_piece(a));
    sx_type sums, whole;
    find_arguments(a, p);
    make_partial(a, piece, p);
    make_combine(a, a->extent[SX_ROLE_SUM] / piece, p);
    sx_body_shape(&p->partial.type, &p->partial_body, &sums);
    sx_body_shape(&p->combine.type, &p->combine_body, &whole);
    SX_TRY(sx_analysis_of_checked(cx, &p->partial, p->partial_input, p->argument_count, &sums, NULL,
                                  &p->partial_analysis));
    return sx_analysis_of_checked(cx, &p->combine, p->combine_input, a->input_count, &whole, NULL,
                                  &p->combine_analysis);
}

sx_code sx_online_pieces_make(sx_ctx *cx, const sx_analysis *a, int64_t piece, sx_online_pieces *p)
{
    SX_ASSERT(piece >= 1 && piece == sx_online_piece(a));
    sx_type statistic;
    find_arguments(a, p);
    make_partial(a, piece, p);
    make_statistic(a, piece, p);
    make_combine(a, a->extent[SX_ROLE_SUM] / piece, p);
    uint32_t count = p->argument_count;
    SX_TRY(sx_fused_infer(cx, &p->statistic, p->partial_input, count, &statistic));
    SX_TRY(sx_analysis_make(cx, &p->partial, p->partial_input, count, &p->partial_analysis));
    SX_TRY(
        sx_analysis_make(cx, &p->combine, p->combine_input, a->input_count, &p->combine_analysis));
    p->partial_analysis.statistic = &p->statistic;
    p->partial_analysis.statistic_result = statistic;
    p->partial_analysis.result_count = SX_PIECE_RESULTS;
    p->partial_analysis.root_dtype[SX_PIECE_STATISTIC] = SX_F32;
    SX_ASSERT(p->partial_analysis.kind == SX_KERNEL_ONLINE && p->combine_analysis.along);
    SX_ASSERT(sx_tensor_elements(&statistic) == sx_tensor_elements(&p->result[SX_PIECE_STATISTIC]));
    return SX_OK;
}
