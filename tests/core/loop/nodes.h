/* nodes.h - fused nodes made by lifting and inlining operations, their inputs, the interpreter's answer, and
 * kernels run on them. */
#ifndef SX_TESTS_CORE_LOOP_NODES_H
#define SX_TESTS_CORE_LOOP_NODES_H
#include "core/eval/eval.h"
#include "core/fuse/fuse.h"
#include "tests/core/loop/harness.h"

#include "core/judge/judge.h"
#include "tests/lib/unit.h"

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

/* op(x, y) with y a tensor of type `y` broadcast along the dimensions it lacks (its dimensions are the last
 * ones of x). */
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

/* The free numbers of a schedule of any kind of kernel, as tests like to write them; 0: a default. */
typedef struct {
    uint32_t lanes;    /* of 4 bytes; of 8 bytes half as many where they are no threads */
    uint32_t block_m;  /* rows of a register block; online: keys and columns */
    uint32_t block_nv; /* vectors of columns; online: of rows */
    int64_t tile_m;    /* rows of a grid point */
    int64_t tile_n;    /* columns of a grid point; online: keys per block */
    uint32_t unroll_k;
    bool packed_b;
} test_tiles;

SX_UNUSED static const sx_analysis *analysis_of(sx_ctx *cx, const node *n)
{
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    ck_assert_ptr_nonnull(a);
    ck_sx_ok(cx, sx_analysis_make(cx, &n->fused, n->input, n->count, a));
    return a;
}

SX_UNUSED static const sx_schedule *move_schedule(sx_ctx *cx, const test_tiles *t)
{
    sx_schedule *s = SX_NEW(cx, sx_schedule);
    ck_assert_ptr_nonnull(s);
    int64_t columns = t->tile_n > 0 ? t->tile_n : SX_EXTENT_MAX;
    sx_schedule_map(t->lanes, sx_max_i64(1, t->tile_m), columns, 4, s);
    return s;
}

SX_UNUSED static sx_schedule schedule_of(const sx_analysis *a, const test_tiles *t)
{
    sx_schedule s = {.level_count = 0};
    uint32_t lanes = sx_vector_unit_lanes(sx_test_unit_of(t->lanes), a->lane_bytes);
    int64_t rows = sx_max_i64(1, t->tile_m);
    int64_t columns = t->tile_n > 0 ? t->tile_n : SX_EXTENT_MAX;
    switch (a->kind) {
    case SX_KERNEL_MAP:
        sx_schedule_map(lanes, rows, columns, a->program_length <= 4 ? 4 : 2, &s);
        break;
    case SX_KERNEL_ROW: sx_schedule_row(lanes, a->lane_bytes, a->along, rows, columns, &s); break;
    case SX_KERNEL_DOT:
        sx_schedule_contraction(
            &(sx_contraction_tiles){.lanes = lanes,
                                    .block_rows = t->block_m,
                                    .block_vectors = t->block_nv,
                                    .tile_rows = rows,
                                    .tile_columns = columns,
                                    .unroll = t->unroll_k > 0 ? t->unroll_k : 1,
                                    .panels = t->packed_b ? a->rhs : UINT32_MAX},
            &s);
        break;
    case SX_KERNEL_ONLINE:
    case SX_KERNEL_NESTED:
        sx_schedule_online(
            &(sx_online_tiles){
                .lanes = lanes, .strip = t->block_m, .vectors = t->block_nv, .keys = t->tile_n},
            &s);
        break;
    }
    return s;
}

SX_UNUSED static sx_code lower_node(sx_ctx *cx, const char *name, const node *n,
                                    const test_tiles *tiles, sx_kernel **kernel)
{
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    if (a == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_analysis_make(cx, &n->fused, n->input, n->count, a));
    sx_schedule s = schedule_of(a, tiles);
    return sx_lower_fused(cx, sx_test_unit_of(tiles->lanes), name, a, &s, kernel);
}

SX_UNUSED static sx_code pack_node(sx_ctx *cx, const node *n, const test_tiles *tiles,
                                   sx_kernel **kernel, int64_t *size)
{
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    if (a == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_analysis_make(cx, &n->fused, n->input, n->count, a));
    sx_schedule s = schedule_of(a, tiles);
    return sx_lower_pack(cx, "pack", a, &s, kernel, size);
}

/* The judge proves the kernel, or the one that packs for it. */
SX_UNUSED static void prove_node(sx_ctx *cx, const node *n, const test_tiles *tiles,
                                 const sx_kernel *kernel, bool pack)
{
    sx_judge *judge;
    sx_verdict verdict;
    sx_kernel_kind kind = sx_body_kernel_kind(n->fused.body);
    sx_schedule schedule = schedule_of(analysis_of(cx, n), tiles);
    sx_judge_facts facts = sx_judge_facts_of(&schedule, kind);
    ck_sx_ok(cx, sx_judge_make(cx, &judge));
    ck_sx_ok(cx, (pack ? sx_judge_pack : sx_judge_kernel)(judge, &n->fused, n->input, n->count,
                                                          &facts, kernel, &verdict));
    if (!verdict.proven) {
        sx_buf text;
        sx_buf_init(&text, 1 << 24);
        sx_judge_print(judge, &text);
        (void)sx_kernel_print(cx, kernel, &text);
        sx_buf_put(&text, "", 1);
        (void)fprintf(stderr, "%.8000s\n", (const char *)text.ptr);
        sx_buf_fini(&text);
    }
    ck_assert_msg(verdict.proven, "%s of %u lanes: %s", pack ? "pack" : "kernel", tiles->lanes,
                  verdict.text);
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
SX_UNUSED static void *run_node(sx_ctx *cx, const node *n, const test_tiles *plan, runner run,
                                void *self, sx_kernel **made)
{
    sx_kernel *kernel;
    ck_sx_ok(cx, lower_node(cx, "node", n, plan, &kernel));
    void *buffer[SX_LOOP_BUFFERS_MAX] = {NULL};
    for (uint32_t k = 0; k < n->count; k++) {
        buffer[k] = n->raw[k];
    }
    if (plan->packed_b && sx_body_kernel_kind(n->fused.body) == SX_KERNEL_DOT) {
        sx_kernel *pack;
        int64_t size;
        uint32_t rhs = analysis_of(cx, n)->rhs;
        ck_sx_ok(cx, pack_node(cx, n, plan, &pack, &size));
        void *two[2] = {n->raw[rhs], exact_buffer(cx, size)};
        prove_node(cx, n, plan, pack, true);
        run(cx, pack, two, self);
        buffer[rhs] = two[1];
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
    prove_node(cx, n, plan, kernel, false);
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
