/* nested.h - bodies of contractions of contractions, written by hand: the gradients of attention, and others like them
 * whose dimensions and layouts are drawn at random. */
#ifndef SX_TESTS_CORE_LOOP_NESTED_H
#define SX_TESTS_CORE_LOOP_NESTED_H
#include "core/ir/fused_body.h"
#include "core/ir/num.h"
#include "tests/core/loop/nodes.h"

/* Dimensions of the space, in the order of a shape that is not drawn. */
enum { N_BATCH, N_ROW, N_COLUMN, N_AROUND, N_KEY, N_INNER, N_INNER2, N_DIMS };
typedef struct {
    int64_t extent[N_DIMS]; /* 1: it is not there */
    uint32_t products;      /* 1 or 2 */
    bool causal;            /* scores of keys behind the row count as minus infinity */
    bool mask;              /* truth values of each row and key */
    bool by_key;            /* what is subtracted varies along the keys and not along the rows */
    bool narrow_weight;     /* weights become bf16 before they are summed */
    bool scaled;            /* the result is multiplied behind the sum */
    sx_dtype dtype[5];      /* of query 0, key 0, query 1, key 1, value */
    /* The dimensions of the space in their order: a permutation. And the seed of the layouts of arguments, 0: the
     * dimensions of each in the order of the space. */
    uint32_t order[N_DIMS];
    uint64_t layout;
} nested_shape;

typedef struct {
    sx_ctx *cx;
    const nested_shape *s;
    node *n;
    sx_body *body;
    uint32_t at[N_DIMS]; /* where each dimension stands in the space */
    sx_rng rng;
} nested_builder;

SX_UNUSED static uint32_t nested_put(nested_builder *b, sx_instr in)
{
    uint32_t number = 0;
    ck_assert(sx_body_put(b->body, &in, &number));
    return number;
}

SX_UNUSED static uint32_t nested_apply(nested_builder *b, sx_op op, sx_dtype dtype, uint32_t x,
                                       uint32_t y, uint32_t z)
{
    return nested_put(
        b, (sx_instr){.kind = SX_BODY_APPLY, .op = op, .dtype = dtype, .x = x, .y = y, .z = z});
}

SX_UNUSED static uint32_t nested_imm(nested_builder *b, double value)
{
    return nested_put(b, (sx_instr){.kind = SX_BODY_IMM, .dtype = SX_F32, .imm = value});
}

/* An argument over the dimensions in the set `dims`, a contiguous tensor. */
SX_UNUSED static uint32_t nested_arg(nested_builder *b, sx_dtype dtype, uint32_t dims)
{
    uint32_t list[N_DIMS], count = 0, a = b->body->arg_count++;
    for (uint32_t k = 0; k < N_DIMS; k++) {
        if ((dims >> b->s->order[k] & 1) != 0) {
            list[count++] = b->s->order[k];
        }
    }
    for (uint32_t k = count; b->s->layout != 0 && k > 1; k--) {
        uint32_t other = (uint32_t)sx_rng_below(&b->rng, k), dim = list[k - 1];
        list[k - 1] = list[other];
        list[other] = dim;
    }
    sx_type type = {.dtype = dtype, .rank = count};
    int64_t stride = 1;
    for (uint32_t k = count; k-- > 0;) {
        type.dim[k] = sx_dim_of(b->s->extent[list[k]]);
        b->body->access[a].stride[b->at[list[k]]] = sx_dim_of(stride);
        stride *= b->s->extent[list[k]];
    }
    for (uint32_t d = 0; d < N_DIMS; d++) {
        if ((dims >> d & 1) == 0) {
            b->body->access[a].stride[b->at[d]] = sx_dim_of(0);
        }
    }
    b->body->access[a].offset = sx_dim_of(0);
    b->n->input[b->n->count++] = type;
    return nested_put(b, (sx_instr){.kind = SX_BODY_ARG, .dtype = dtype, .x = a});
}

#define N_SET(d) (1u << (d))
SX_UNUSED static uint32_t nested_product(nested_builder *b, uint32_t which)
{
    uint32_t inner = N_SET(N_INNER) | N_SET(N_INNER2) | N_SET(N_BATCH);
    uint32_t x = nested_arg(b, b->s->dtype[2 * which], N_SET(N_ROW) | inner);
    uint32_t y = nested_arg(b, b->s->dtype[2 * which + 1], N_SET(N_AROUND) | N_SET(N_KEY) | inner);
    bool swap = b->s->layout % 2 != 0; /* factors stand in either order */
    return nested_put(
        b, (sx_instr){.kind = SX_BODY_DOT, .dtype = SX_F32, .x = swap ? y : x, .y = swap ? x : y});
}

/* e^(s scale - lse), 0 where it is masked. */
SX_UNUSED static uint32_t nested_power(nested_builder *b, uint32_t along)
{
    const nested_shape *s = b->s;
    double inner = (double)(s->extent[N_INNER] * s->extent[N_INNER2]);
    uint32_t score = nested_product(b, 0);
    score = nested_apply(b, SX_OP_MULTIPLY, SX_F32, score, nested_imm(b, 1 / inner), 0);
    score = nested_apply(b, SX_OP_SUBTRACT, SX_F32, score, nested_arg(b, SX_F32, along), 0);
    score = nested_apply(b, SX_OP_EXP, SX_F32, score, 0, 0);
    if (s->causal) {
        sx_instr index = {.kind = SX_BODY_INDEX, .dtype = SX_I32, .x = b->at[N_ROW]};
        uint32_t row = nested_put(b, index);
        index.x = b->at[N_KEY];
        uint32_t key = nested_put(b, index);
        uint32_t sees = nested_put(b, (sx_instr){.kind = SX_BODY_APPLY,
                                                 .op = SX_OP_COMPARE,
                                                 .direction = SX_GE,
                                                 .dtype = SX_BOOL,
                                                 .x = row,
                                                 .y = key});
        score = nested_apply(b, SX_OP_SELECT, SX_F32, sees, score, nested_imm(b, 0));
    }
    if (s->mask) {
        uint32_t sees = nested_arg(b, SX_BOOL, N_SET(N_ROW) | N_SET(N_KEY));
        score = nested_apply(b, SX_OP_SELECT, SX_F32, sees, score, nested_imm(b, 0));
    }
    return score;
}

SX_UNUSED static void nested_fill(sx_ctx *cx, node *n, sx_rng *rng)
{
    for (uint32_t k = 0; k < n->count; k++) {
        uint32_t bytes = sx_dtype_bytes(n->input[k].dtype);
        n->raw[k] = exact_buffer(cx, bytes_of(&n->input[k]));
        for (int64_t i = 0; i < sx_tensor_elements(&n->input[k]); i++) {
            uint64_t bits = n->input[k].dtype == SX_BOOL
                                ? sx_rng_below(rng, 2)
                                : sx_num_encode(n->input[k].dtype, (double)sx_rng_f32(rng));
            memcpy(n->raw[k] + bytes * i, &bits, bytes);
        }
    }
}

/* With two products (p - w) o p' as the gradients of queries and keys have it, with one that of values. */
SX_UNUSED static sx_code nested_try(sx_ctx *cx, const nested_shape *s, node *n)
{
    sx_body *body = SX_NEW(cx, sx_body);
    ck_assert_ptr_nonnull(body);
    *n = (node){.count = 0};
    nested_builder b = {.cx = cx, .s = s, .n = n, .body = body, .rng = {s->layout}};
    sx_type space = {.dtype = SX_F32, .rank = N_DIMS};
    for (uint32_t k = 0; k < N_DIMS; k++) {
        uint32_t d = s->order[k];
        b.at[d] = k;
        space.dim[k] = sx_dim_of(s->extent[d]);
        body->axes |= d >= N_AROUND ? 1u << k : 0;
        body->inner |= d >= N_INNER ? 1u << k : 0;
    }
    uint32_t keys = N_SET(N_AROUND) | N_SET(N_KEY), batch = N_SET(N_BATCH);
    uint32_t along = batch | (s->by_key ? keys : N_SET(N_ROW));
    uint32_t weight = nested_power(&b, along);
    if (s->products > 1) {
        double inner = (double)(s->extent[N_INNER] * s->extent[N_INNER2]);
        uint32_t other = nested_product(&b, 1);
        other = nested_apply(&b, SX_OP_MULTIPLY, SX_F32, other, nested_imm(&b, 1 / inner), 0);
        other = nested_apply(&b, SX_OP_SUBTRACT, SX_F32, other, nested_arg(&b, SX_F32, along), 0);
        weight = nested_apply(&b, SX_OP_MULTIPLY, SX_F32, weight, other, 0);
    }
    if (s->narrow_weight) {
        weight = nested_apply(&b, SX_OP_CONVERT, SX_BF16, weight, 0, 0);
    }
    uint32_t value = nested_arg(&b, s->dtype[4], batch | keys | N_SET(N_COLUMN));
    uint32_t sum =
        nested_put(&b, (sx_instr){.kind = SX_BODY_DOT, .dtype = SX_F32, .x = weight, .y = value});
    if (s->scaled) {
        uint32_t factor = nested_arg(&b, SX_F32, N_SET(N_COLUMN));
        sum = nested_apply(&b, SX_OP_MULTIPLY, SX_F32, sum, factor, 0);
    }
    sx_body_wrap(&space, body, &n->fused);
    return sx_infer_type(cx, NULL, 0, SX_OP_FUSED, &n->fused, n->input, n->count, &n->result);
}

SX_UNUSED static node nested_node(sx_ctx *cx, const nested_shape *s)
{
    node n;
    ck_sx_ok(cx, nested_try(cx, s, &n));
    ck_assert_int_eq(sx_body_kernel_kind(n.fused.body), SX_KERNEL_NESTED);
    return n;
}

/* The gradient of queries (keys are summed over), or that of keys. */
SX_UNUSED static nested_shape nested_gradient(int64_t batch, int64_t rows, int64_t keys,
                                              int64_t width, bool of_keys)
{
    nested_shape s = {.extent = {batch, rows, width, 1, keys, width, 1},
                      .products = 2,
                      .by_key = of_keys,
                      .dtype = {SX_F32, SX_F32, SX_F32, SX_F32, SX_F32}};
    for (uint32_t k = 0; k < N_DIMS; k++) {
        s.order[k] = k;
    }
    return s;
}
#endif
