/* online.h - attention by blocks of threads: nodes, schedules, and answers that share no code with the compiler. */
#ifndef SX_TESTS_CORE_NVIDIA_ONLINE_H
#define SX_TESTS_CORE_NVIDIA_ONLINE_H
#include "core/tile/online.h"
#include "tests/core/nvidia/tiles.h"

/* q [batch, heads, rows, d], k and v [batch, heads, keys, ..], or without heads where all of a batch share them. */
typedef struct {
    sx_dtype dtype;
    int64_t batch, heads, rows, keys, d, columns;
    bool grouped;    /* k and v have no heads */
    bool mask;       /* [rows, keys] of f32 is added to the scores */
    bool keys_inner; /* k lies as [.., d, keys] */
    /* Keys are hidden by positions and not by a tensor: those of which row + ahead >= key is false, or another
     * direction if it is not SX_EQ, or with the key in front, or those of which it is true. */
    bool causal;
    int64_t ahead;
    sx_direction direction;
    bool turned, hidden;
} online_case;
enum { ONLINE_Q, ONLINE_K, ONLINE_V, ONLINE_MASK, ONLINE_INPUTS };

typedef struct {
    node n;
    uint32_t at[ONLINE_INPUTS]; /* which input of the node */
    double *value[ONLINE_INPUTS];
} online_node;

static inline sx_type online_type(const online_case *c, uint32_t which)
{
    sx_type type = TYPE(SX_F32, c->rows, c->keys);
    if (which != ONLINE_MASK) {
        bool turned = which == ONLINE_K && c->keys_inner;
        int64_t rows = which == ONLINE_Q ? c->rows : c->keys;
        int64_t width = which == ONLINE_V ? c->columns : c->d;
        type = TYPE(c->dtype, c->batch, c->heads, turned ? width : rows, turned ? rows : width);
    }
    if ((which == ONLINE_K || which == ONLINE_V) && c->grouped) {
        type.dim[1] = type.dim[2];
        type.dim[2] = type.dim[3];
        type.rank = 3;
    }
    return type;
}

/* `producer` stands for input `which`, whose only input it has. */
static inline void online_read(sx_ctx *cx, online_node *o, uint32_t which, const node *producer)
{
    uint32_t from = o->at[which];
    for (uint32_t i = 0; i < ONLINE_INPUTS; i++) {
        o->at[i] -= o->at[i] > from && o->at[i] != UINT32_MAX ? 1 : 0;
    }
    o->at[which] = o->n.count - 1;
    o->n = inlined(cx, &o->n, from, producer);
}

/* An input widened and, where heads share it, repeated. */
static inline void online_widen(sx_ctx *cx, const online_case *c, online_node *o, uint32_t which)
{
    sx_type own = online_type(c, which), wide = own;
    wide.dtype = SX_F32;
    if (wide.rank == 3) {
        sx_attr attr = {.present = SX_A(dims) | SX_A(type), .dims = {3, {0, 2, 3}}};
        attr.type = o->n.input[o->at[which]];
        node repeat = lift(cx, SX_OP_BROADCAST, &attr, &wide, 1);
        online_read(cx, o, which, &repeat);
    }
    sx_attr to = {.present = SX_A(type), .type = wide};
    node convert = lift(cx, SX_OP_CONVERT, &to, &own, 1);
    online_read(cx, o, which, &convert);
}

static inline sx_attr online_dot(uint32_t lhs, uint32_t rhs)
{
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){2, {0, 1}};
    attr.lhs_contract = (sx_ints){1, {lhs}};
    attr.rhs_contract = (sx_ints){1, {rhs}};
    return attr;
}

/* The last input is a number. */
static inline void online_constant(sx_ctx *cx, node *n, uint32_t input, double number)
{
    sx_attr with;
    ck_assert_uint_eq(input, n->count - 1);
    ck_sx_ok(cx, sx_fused_inline_splat(cx, &n->fused, input, number, &with));
    n->fused = with;
    n->count--;
}

static inline sx_direction online_direction(const online_case *c)
{
    return c->direction == SX_EQ ? SX_GE : c->direction;
}

/* Is the key hidden by the positions? */
static inline bool online_hides(const online_case *c, int64_t row, int64_t key)
{
    int64_t x = c->turned ? key : row + c->ahead, y = c->turned ? row + c->ahead : key;
    sx_direction d = online_direction(c);
    bool is = d == SX_GE   ? x >= y
              : d == SX_GT ? x > y
              : d == SX_LE ? x <= y
              : d == SX_LT ? x < y
                           : x != y;
    return is == c->hidden;
}

/* [rows, keys]: minus infinity where the key is hidden, else 0. */
static inline node online_positions(sx_ctx *cx, const online_case *c)
{
    sx_attr attr = {.present = SX_A(axis) | SX_A(type), .type = TYPE(SX_I32, c->rows, c->keys)};
    sx_type whole = attr.type;
    node row = lift(cx, SX_OP_IOTA, &attr, NULL, 0);
    attr.axis = 1;
    node key = lift(cx, SX_OP_IOTA, &attr, NULL, 0);
    sx_attr none = {.present = 0};
    sx_attr how = {.present = SX_A(direction), .direction = online_direction(c)};
    sx_type both[2] = {whole, whole};
    node far = lift(cx, SX_OP_ADD, &none, both, 2);
    online_constant(cx, &far, 1, (double)c->ahead);
    far = inlined(cx, &far, 0, &row);
    node sees = lift(cx, SX_OP_COMPARE, &how, both, 2);
    sees = inlined(cx, &sees, 1, c->turned ? &far : &key);
    sees = inlined(cx, &sees, 0, c->turned ? &key : &far);
    sx_type choice[3] = {whole, whole, whole};
    choice[0].dtype = SX_BOOL;
    choice[1].dtype = choice[2].dtype = SX_F32;
    node mask = lift(cx, SX_OP_SELECT, &none, choice, 3);
    online_constant(cx, &mask, 2, c->hidden ? 0 : -HUGE_VAL);
    online_constant(cx, &mask, 1, c->hidden ? -HUGE_VAL : 0);
    return inlined(cx, &mask, 0, &sees);
}

/* softmax(q k^T + mask) v */
static inline online_node online_make(sx_ctx *cx, const online_case *c)
{
    online_node o = {.at = {UINT32_MAX, UINT32_MAX, 1, UINT32_MAX}};
    sx_type x[2] = {TYPE(SX_F32, c->batch, c->heads, c->rows, c->keys),
                    TYPE(SX_F32, c->batch, c->heads, c->keys, c->columns)};
    sx_attr attr = online_dot(3, 2);
    attr.present |= SX_A(form);
    attr.form = 1;
    o.n = (node){.count = 2, .input = {x[0], x[1]}};
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, SX_OP_ONLINE_DOT, &attr, x, 2, &o.n.result));
    ck_sx_ok(cx, sx_fused_lift_online(cx, &attr, x, 2, &o.n.result, &o.n.fused));
    sx_type qk[2] = {TYPE(SX_F32, c->batch, c->heads, c->rows, c->d),
                     c->keys_inner ? TYPE(SX_F32, c->batch, c->heads, c->d, c->keys)
                                   : TYPE(SX_F32, c->batch, c->heads, c->keys, c->d)};
    attr = online_dot(3, c->keys_inner ? 2 : 3);
    node scores = lift(cx, SX_OP_DOT_GENERAL, &attr, qk, 2);
    o.at[ONLINE_Q] = 0;
    o.at[ONLINE_K] = 1;
    if (c->causal) {
        node positions = online_positions(cx, c);
        scores = with_tensor(cx, SX_OP_ADD, &scores, positions.result);
        scores = inlined(cx, &scores, 0, &positions);
    }
    if (c->mask) { /* inputs: what is added, then those of the contraction */
        scores = with_tensor(cx, SX_OP_ADD, &scores, online_type(c, ONLINE_MASK));
        o.at[ONLINE_MASK] = 0;
        o.at[ONLINE_Q]++;
        o.at[ONLINE_K]++;
    }
    for (uint32_t i = 0; i < ONLINE_INPUTS; i++) { /* behind the values */
        o.at[i] += i == ONLINE_V || o.at[i] == UINT32_MAX ? 0 : 1;
    }
    o.at[ONLINE_V] = 0;
    o.n = inlined(cx, &o.n, 0, &scores);
    for (uint32_t i = ONLINE_Q; i <= ONLINE_V; i++) {
        online_widen(cx, c, &o, i);
    }
    const sx_analysis *a = analysis_of(cx, &o.n);
    ck_assert(a->lhs == o.at[ONLINE_Q] && a->rhs == o.at[ONLINE_K] && a->value == o.at[ONLINE_V]);
    return o;
}

static inline double *online_doubles(sx_ctx *cx, int64_t count)
{
    double *made = SX_NEW_ARRAY(cx, double, (size_t)count);
    ck_assert_ptr_nonnull(made);
    return made;
}

static inline void online_set(sx_ctx *cx, online_node *o, uint32_t which, int64_t i, double value)
{
    node *n = &o->n;
    const sx_type *type = &n->input[o->at[which]];
    uint32_t bytes = sx_dtype_bytes(type->dtype);
    if (n->raw[o->at[which]] == NULL) {
        n->raw[o->at[which]] = sx_alloc(cx, bytes_of(type) + 16);
        o->value[which] = online_doubles(cx, sx_tensor_elements(type));
        ck_assert_ptr_nonnull(n->raw[o->at[which]]);
    }
    uint64_t bits = sx_num_encode(type->dtype, value);
    memcpy(n->raw[o->at[which]] + bytes * i, &bits, bytes);
    o->value[which][i] = sx_num_decode(type->dtype, bits);
}

/* The score of a key, in double. */
static inline double online_score(const online_case *c, const online_node *o, int64_t head,
                                  int64_t row, int64_t key)
{
    int64_t own = c->grouped ? head / c->heads : head;
    double sum = 0;
    for (int64_t d = 0; d < c->d; d++) {
        int64_t k =
            c->keys_inner ? (own * c->d + d) * c->keys + key : (own * c->keys + key) * c->d + d;
        sum += o->value[ONLINE_Q][(head * c->rows + row) * c->d + d] * o->value[ONLINE_K][k];
    }
    sum = c->causal && online_hides(c, row, key) ? -HUGE_VAL : sum;
    return c->mask ? sum + o->value[ONLINE_MASK][row * c->keys + key] : sum;
}

/* A row of the result by the definition: all scores first, then the sums; `weight` has room for the keys. */
static inline void online_row(const online_case *c, const online_node *o, int64_t head, int64_t row,
                              double *weight, double *result)
{
    int64_t own = c->grouped ? head / c->heads : head;
    double maximum = -HUGE_VAL, total = 0;
    for (int64_t k = 0; k < c->keys; k++) {
        weight[k] = online_score(c, o, head, row, k);
        maximum = fmax(maximum, weight[k]);
    }
    for (int64_t k = 0; k < c->keys; k++) {
        weight[k] = exp(weight[k] - maximum);
        total += weight[k];
    }
    for (int64_t n = 0; n < c->columns; n++) {
        result[n] = 0;
        for (int64_t k = 0; k < c->keys; k++) {
            result[n] += weight[k] * o->value[ONLINE_V][(own * c->keys + k) * c->columns + n];
        }
        result[n] /= total;
    }
}

static inline sx_code online_lower(sx_ctx *cx, const sx_target *target, const node *n, int64_t rows,
                                   int64_t keys, uint32_t depth, sx_kernel **kernel)
{
    const sx_analysis *a = analysis_of(cx, n);
    sx_online_blocks blocks = {.matrix_rows = 16,
                               .matrix_columns = 8,
                               .matrix_steps = 16,
                               .rows = rows,
                               .warp_rows = 16,
                               .keys = keys,
                               .depth = depth,
                               .query = a->lhs,
                               .key = a->rhs,
                               .value = a->value};
    sx_schedule s;
    sx_schedule_online_blocks(&blocks, &s);
    sx_lowering what = {.kind = SX_LOWER_FUSED, .name = "online", .analysis = a, .schedule = &s};
    return sx_target_lower(cx, target, &what, kernel);
}
#endif
