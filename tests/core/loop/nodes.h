/* nodes.h - fused nodes made by lifting and inlining operations, their inputs, the interpreter's answer, and kernels run on them. */
#ifndef SX_TESTS_CORE_LOOP_NODES_H
#define SX_TESTS_CORE_LOOP_NODES_H
#include "tests/core/loop/harness.h"

typedef struct {
    sx_attr fused;
    sx_type input[SX_FUSED_ARGS_MAX];
    uint32_t count;
    sx_type result;
    uint8_t *raw[SX_FUSED_ARGS_MAX]; /* little-endian elements */
} node;

SX_UNUSED static sx_type type_of(sx_dtype dtype, uint32_t rank, const int64_t *extent)
{
    sx_type type = {.dtype = dtype, .rank = rank};
    for (uint32_t d = 0; d < rank; d++) {
        type.dim[d] = sx_dim_of(extent[d]);
    }
    return type;
}
#define TYPE(dtype, ...)                                                     \
    type_of(dtype, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
            (const int64_t[]){__VA_ARGS__})

SX_UNUSED static node lift(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *input,
                           uint32_t count)
{
    node n = {.count = count};
    for (uint32_t k = 0; k < count; k++) {
        n.input[k] = input[k];
    }
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, op, attr, input, count, &n.result));
    ck_sx_ok(cx, sx_fused_lift(cx, op, attr, input, count, &n.result, &n.fused));
    return n;
}

/* consumer(..., producer(...), ...) as one node; the producer stands for argument `a`. */
SX_UNUSED static node inlined(sx_ctx *cx, const node *consumer, uint32_t a, const node *producer)
{
    node n = {.result = consumer->result};
    bool ok = false;
    ck_sx_ok(cx, sx_fused_inline(cx, &consumer->fused, a, &producer->fused, &producer->result,
                                 &n.fused, &ok));
    ck_assert(ok);
    for (uint32_t k = 0; k < consumer->count; k++) {
        if (k != a) {
            n.input[n.count++] = consumer->input[k];
        }
    }
    for (uint32_t k = 0; k < producer->count; k++) {
        n.input[n.count++] = producer->input[k];
    }
    return n;
}

SX_UNUSED static node unary(sx_ctx *cx, sx_op op, const node *x)
{
    sx_attr none = {.present = 0};
    node n = lift(cx, op, &none, &x->result, 1);
    return inlined(cx, &n, 0, x);
}

/* op(x, y) with y a tensor of type `y` broadcast along the dimensions it lacks (its dimensions are the last ones of x). */
SX_UNUSED static node with_tensor(sx_ctx *cx, sx_op op, const node *x, sx_type y)
{
    sx_attr attr = {.present = SX_A(dims) | SX_A(type)};
    attr.type = x->result;
    attr.type.dtype = y.dtype;
    attr.dims.count = y.rank;
    for (uint32_t d = 0; d < y.rank; d++) {
        attr.dims.v[d] = x->result.rank - y.rank + d;
    }
    node view = lift(cx, SX_OP_BROADCAST, &attr, &y, 1);
    sx_attr none = {.present = 0};
    sx_type both[2] = {x->result, view.result};
    node n = lift(cx, op, &none, both, 2);
    n = inlined(cx, &n, 1, &view);
    return inlined(cx, &n, 0, x);
}

SX_UNUSED static uint32_t bytes_of(const sx_type *type)
{
    return (uint32_t)(sx_tensor_elements(type) * sx_dtype_bytes(type->dtype));
}

/* Inputs: f32 in [-1, 1), or integers -4 .. 4 if `exact`; bool 0 or 1; i32 small. */
SX_UNUSED static void fill_inputs(sx_ctx *cx, node *n, sx_rng *rng, bool exact)
{
    for (uint32_t k = 0; k < n->count; k++) {
        int64_t elements = sx_tensor_elements(&n->input[k]);
        n->raw[k] = sx_alloc(cx, bytes_of(&n->input[k]) + 4);
        ck_assert_ptr_nonnull(n->raw[k]);
        for (int64_t i = 0; i < elements; i++) {
            float f = exact ? (float)((int)sx_rng_below(rng, 9) - 4) : sx_rng_f32(rng);
            int32_t w = (int32_t)sx_rng_below(rng, 9) - 4;
            if (n->input[k].dtype == SX_BOOL) {
                n->raw[k][i] = sx_rng_below(rng, 2) != 0;
            } else {
                memcpy(n->raw[k] + 4 * i, n->input[k].dtype == SX_F32 ? (void *)&f : (void *)&w, 4);
            }
        }
    }
}

/* The interpreter's answer in double precision. */
SX_UNUSED static sx_tensor oracle(sx_ctx *cx, const node *n)
{
    sx_tensor in[SX_FUSED_ARGS_MAX];
    sx_tensor out;
    for (uint32_t k = 0; k < n->count; k++) {
        ck_sx_ok(cx, sx_tensor_unpack(cx, &n->input[k], SX_EVAL_F64,
                                      (sx_span){n->raw[k], bytes_of(&n->input[k])}, &in[k]));
    }
    ck_sx_ok(cx,
             sx_node_eval(cx, SX_OP_FUSED, &n->fused, SX_EVAL_F64, in, n->count, &n->result, &out));
    return out;
}

typedef void (*runner)(sx_ctx *cx, const sx_kernel *kernel, void *const *buffer, void *self);

SX_UNUSED static void run_eval(sx_ctx *cx, const sx_kernel *kernel, void *const *buffer, void *self)
{
    (void)self;
    ck_sx_ok(cx, sx_kernel_eval(cx, kernel, buffer));
}

static void *exact_buffer(sx_ctx *cx, int64_t size)
{
    uint8_t *p = sx_alloc(cx, (size_t)size + 16);
    ck_assert_ptr_nonnull(p);
    memset(p, 0xCC, (size_t)size + 16);
    return p;
}

/* Lowers `n` with `plan` and runs it on its inputs; the packing kernel first where the plan wants one. */
SX_UNUSED static void *run_node(sx_ctx *cx, const node *n, const sx_lower_plan *plan, runner run,
                                void *self, sx_kernel **made)
{
    sx_kernel *kernel;
    ck_sx_ok(cx, sx_lower_fused(cx, "node", &n->fused, n->input, n->count, plan, &kernel));
    void *buffer[SX_LOOP_BUFFERS_MAX] = {NULL};
    for (uint32_t k = 0; k < n->count; k++) {
        buffer[k] = n->raw[k];
    }
    if (plan->packed_b && sx_body_kernel_kind(n->fused.body) == SX_KERNEL_DOT) {
        sx_kernel *pack;
        sx_dot_shape shape;
        int64_t size;
        ck_sx_ok(cx, sx_dot_shape_of(cx, &n->fused, n->input, n->count, &shape));
        ck_sx_ok(cx, sx_lower_pack(cx, "pack", &n->fused, n->input, n->count, plan, &pack, &size));
        void *two[2] = {n->raw[shape.rhs], exact_buffer(cx, size)};
        run(cx, pack, two, self);
        buffer[shape.rhs] = two[1];
    }
    uint8_t *out = NULL;
    int64_t size = 0;
    for (uint32_t k = n->count; k < kernel->buffer_count; k++) {
        buffer[k] = exact_buffer(cx, kernel->buffer[k].size);
        if (kernel->buffer[k].role == SX_BUFFER_OUT) {
            out = buffer[k];
            size = kernel->buffer[k].size;
        }
    }
    run(cx, kernel, buffer, self);
    for (uint32_t i = 0; i < 16; i++) {
        ck_assert_msg(out[size + i] == 0xCC, "byte %u behind the result is written", i);
    }
    if (made != NULL) {
        *made = kernel;
    }
    return out;
}

/* Largest |got - exact| / (1 + |exact|); fails beyond `tolerance` (0: equal). */
SX_UNUSED static void compare_result(const node *n, const void *got, const sx_tensor *exact,
                                     double tolerance, const char *what)
{
    int64_t elements = sx_tensor_elements(&n->result);
    for (int64_t i = 0; i < elements; i++) {
        double g, e;
        if (n->result.dtype == SX_F32) {
            float f;
            memcpy(&f, (const uint8_t *)got + 4 * i, 4);
            g = (double)f;
            e = ((const double *)exact->data)[i];
        } else if (n->result.dtype == SX_BOOL) {
            g = ((const uint8_t *)got)[i];
            e = (double)((const int64_t *)exact->data)[i];
        } else {
            int32_t w;
            memcpy(&w, (const uint8_t *)got + 4 * i, 4);
            g = w;
            e = (double)((const int64_t *)exact->data)[i];
        }
        ck_assert_msg(fabs(g - e) <= tolerance * (1 + fabs(e)) || (isnan(g) && isnan(e)) || g == e,
                      "%s: element %lld is %.9g, exact %.9g", what, (long long)i, g, e);
    }
}
#endif
