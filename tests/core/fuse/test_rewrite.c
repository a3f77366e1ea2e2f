/* Rewrites of fused nodes keep their meaning: random nodes grow by absorbing views, inlining producers,
 * becoming the producer of an epilogue, splats and merged arguments, and every step is compared with the
 * operations evaluated one by one. Values are compared bit for bit, also in the rounding modes: no rewrite may
 * change the order of a sum. */
#include <stdio.h>
#include <string.h>

#include "core/fuse/fuse.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

/* ---- counting what was tried ---- */
typedef enum {
    ABSORB_RESHAPE,
    ABSORB_TRANSPOSE,
    ABSORB_BROADCAST,
    ABSORB_SLICE,
    MAP_INTO_MAP,
    MAP_INTO_ROW,
    MAP_INTO_DOT,
    INDEX_INTO_ANY,
    ROW_EPILOGUE,
    DOT_EPILOGUE,
    ROW_EPILOGUE_MOVED, /* through views */
    DOT_EPILOGUE_MOVED,
    SPLAT,
    MERGE,
    KIND_COUNT
} kind;
static const char *const kind_name[KIND_COUNT] = {"absorb reshape",
                                                  "absorb transpose",
                                                  "absorb broadcast",
                                                  "absorb slice",
                                                  "map into map",
                                                  "map into row",
                                                  "map into dot",
                                                  "index into any",
                                                  "row epilogue",
                                                  "dot epilogue",
                                                  "row epilogue through views",
                                                  "dot epilogue through views",
                                                  "splat",
                                                  "merge"};
typedef struct {
    uint32_t tried[KIND_COUNT];
    uint32_t done[KIND_COUNT];
} tally;

static void count(tally *t, kind k, bool ok)
{
    t->tried[k]++;
    t->done[k] += ok;
}

/* ---- a node with its inputs and the value it must have ---- */
typedef struct {
    sx_ctx *cx;
    sx_rng *rng;
    sx_eval_mode mode;
    tally *tally;
    sx_attr fused;
    sx_tensor input[SX_FUSED_ARGS_MAX];
    uint32_t input_count;
    sx_tensor value;
} node;

static uint32_t below(sx_rng *rng, uint32_t bound)
{
    return (uint32_t)sx_rng_below(rng, bound);
}

static void check_node(const node *n, const char *what)
{
    sx_tensor found =
        sx_test_eval(n->cx, SX_OP_FUSED, &n->fused, n->mode, n->input, n->input_count);
    sx_test_tensor_equal(&n->value, &found, what);
}

static void lift_into(node *n, const sx_test_op *t)
{
    n->input_count = t->input_count;
    ck_sx_ok(n->cx, sx_fused_lift(n->cx, t->op, &t->attr, t->input, t->input_count, &t->result,
                                  &n->fused));
}

static const sx_op views[] = {SX_OP_RESHAPE, SX_OP_TRANSPOSE, SX_OP_BROADCAST, SX_OP_SLICE};

static kind kind_of_view(sx_op op)
{
    switch ((int)op) {
    case SX_OP_RESHAPE: return ABSORB_RESHAPE;
    case SX_OP_TRANSPOSE: return ABSORB_TRANSPOSE;
    case SX_OP_BROADCAST: return ABSORB_BROADCAST;
    }
    return ABSORB_SLICE;
}

/* ---- operations on a given operand type ---- */
/* An operation whose operand `a` has type `type`; maps only if `map`. */
static void make_consumer(sx_rng *rng, const sx_type *type, bool map, sx_test_op *t, uint32_t *a)
{
    memset(t, 0, sizeof(*t));
    bool is_float = sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
    uint32_t choice = below(rng, map || type->rank == 0 ? 3 : is_float ? 7 : 5);
    t->input_count = 1;
    t->input[0] = *type;
    t->attr.axis = type->rank > 0 ? below(rng, type->rank) : 0;
    *a = 0;
    if (choice == 0) {
        t->op = SX_OP_ABS;
    } else if (choice == 1 || choice == 2) {
        t->op = choice == 1 ? SX_OP_SUBTRACT : SX_OP_MAXIMUM;
        t->input_count = 2;
        t->input[1] = *type;
        *a = below(rng, 2);
    } else if (choice == 3) {
        t->op = SX_OP_REDUCE;
        t->attr.reducer = (sx_reducer)below(rng, SX_REDUCER_COUNT);
        for (uint32_t d = 0; d < type->rank; d++) {
            if (d == (uint32_t)t->attr.axis || below(rng, 3) == 0) {
                t->attr.dims.v[t->attr.dims.count++] = d;
            }
        }
    } else if (choice == 4) {
        t->op = SX_OP_DOT_GENERAL;
        t->input_count = 2;
        *a = below(rng, 2);
        t->input[1 - *a] = (sx_type){type->dtype, 2, {{4, SX_NO_SYMBOL}, type->dim[t->attr.axis]}};
        t->input[*a] = *type;
        t->attr.lhs_contract = (sx_ints){1, {*a == 0 ? t->attr.axis : 1}};
        t->attr.rhs_contract = (sx_ints){1, {*a == 0 ? 1 : t->attr.axis}};
    } else if (choice == 5) {
        t->op = SX_OP_SOFTMAX;
    } else {
        t->op = SX_OP_RMS_NORM;
        t->attr.eps = 0.125;
        t->input_count = 2;
        t->input[1] = (sx_type){.dtype = type->dtype, .rank = type->rank - (uint32_t)t->attr.axis};
        memcpy(t->input[1].dim, type->dim + t->attr.axis, t->input[1].rank * sizeof(sx_dim));
    }
    sx_attr kept = {.present = sx_op_info_of(t->op)->attrs};
#define SX_ATTR(name, k, help)              \
    if ((kept.present & SX_A(name)) != 0) { \
        kept.name = t->attr.name;           \
    }
#include "core/ir/attrs.def"
#undef SX_ATTR
    t->attr = kept;
}

static sx_type infer(sx_ctx *cx, const sx_test_op *t)
{
    sx_type type;
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, t->op, &t->attr, t->input, t->input_count, &type));
    return type;
}

/* ---- steps ---- */
#define CHAIN_MAX 3
/* Random views of `source`: their attributes, and the value after each. */
typedef struct {
    uint32_t count;
    sx_op op[CHAIN_MAX];
    sx_attr attr[CHAIN_MAX];
    sx_tensor value[CHAIN_MAX + 1];
} chain;

static void make_chain(node *n, const sx_tensor *source, uint32_t length, chain *c)
{
    c->count = 0;
    c->value[0] = *source;
    for (uint32_t k = 0; k < length; k++) {
        sx_op op = views[below(n->rng, 4)];
        sx_type type;
        if (op == SX_OP_BROADCAST && c->value[k].type.rank > 3) {
            op = SX_OP_RESHAPE;
        }
        sx_test_view_make(n->cx, n->rng, op, &c->value[k].type, &c->attr[k], &type);
        c->op[k] = op;
        c->value[k + 1] = sx_test_eval(n->cx, op, &c->attr[k], n->mode, &c->value[k], 1);
        c->count++;
    }
}

/* Absorbs the chain from its end into argument `a`; false where a view is refused, the node then reads what is left. */
static bool absorb_chain(node *n, uint32_t a, const chain *c)
{
    bool affine = true; // no reshape yet: then nothing but a changed result shape may refuse
    for (uint32_t k = c->count; k-- > 0;) {
        bool ok;
        sx_attr absorbed;
        ck_sx_ok(n->cx,
                 sx_fused_absorb_view(n->cx, &n->fused, a, c->op[k], &c->attr[k], &c->value[k].type,
                                      &c->value[k + 1].type, &absorbed, &ok));
        count(n->tally, kind_of_view(c->op[k]), ok);
        bool row = sx_body_kernel_kind(n->fused.body) == SX_KERNEL_ROW;
        affine = affine && c->op[k] != SX_OP_RESHAPE;
        ck_assert_msg(ok || row || !affine, "%s is refused", kind_name[kind_of_view(c->op[k])]);
        if (!ok) {
            return false;
        }
        n->fused = absorbed;
        n->input[a] = c->value[k];
        check_node(n, kind_name[kind_of_view(c->op[k])]);
    }
    return true;
}

/* The node becomes the operand of a consumer, seen through views. */
static void step_consumer(node *n)
{
    chain c;
    sx_test_op t;
    uint32_t a;
    make_chain(n, &n->value, below(n->rng, 3), &c);
    const sx_tensor *seen = &c.value[c.count];
    sx_kernel_kind producer = sx_body_kernel_kind(n->fused.body);
    make_consumer(n->rng, &seen->type, producer != SX_KERNEL_MAP, &t, &a);
    t.result = infer(n->cx, &t);
    if (t.result.rank + 2 > SX_RANK_MAX) {
        return;
    }
    node consumer = *n;
    for (uint32_t k = 0; k < t.input_count; k++) {
        sx_test_tensor(n->cx, n->rng, n->mode, &t.input[k], &consumer.input[k]);
    }
    consumer.input[a] = *seen;
    lift_into(&consumer, &t);
    consumer.value =
        sx_test_eval(n->cx, t.op, &t.attr, n->mode, consumer.input, consumer.input_count);
    check_node(&consumer, "consumer");
    if (!absorb_chain(&consumer, a, &c)) {
        return;
    }
    bool ok;
    sx_attr grown;
    ck_sx_ok(n->cx,
             sx_fused_inline(n->cx, &consumer.fused, a, &n->fused, &n->value.type, &grown, &ok));
    kind into = sx_body_kernel_kind(consumer.fused.body) == SX_KERNEL_DOT   ? MAP_INTO_DOT
                : sx_body_kernel_kind(consumer.fused.body) == SX_KERNEL_ROW ? MAP_INTO_ROW
                                                                            : MAP_INTO_MAP;
    kind k = producer == SX_KERNEL_MAP   ? into
             : producer == SX_KERNEL_ROW ? (c.count > 0 ? ROW_EPILOGUE_MOVED : ROW_EPILOGUE)
                                         : (c.count > 0 ? DOT_EPILOGUE_MOVED : DOT_EPILOGUE);
    count(n->tally, k, ok);
    bool fits = consumer.input_count - 1 + n->input_count <= SX_FUSED_ARGS_MAX;
    bool straight = k == ROW_EPILOGUE || k == DOT_EPILOGUE || k == MAP_INTO_MAP;
    ck_assert_msg(ok || !straight || !fits || c.count > 0, "%s is refused", kind_name[k]);
    if (!ok) {
        return;
    }
    uint32_t used = 0;
    for (uint32_t i = 0; i < consumer.input_count; i++) {
        if (i != a) {
            consumer.input[used++] = consumer.input[i];
        }
    }
    memcpy(&consumer.input[used], n->input, n->input_count * sizeof(n->input[0]));
    consumer.input_count = used + n->input_count;
    consumer.fused = grown;
    check_node(&consumer, kind_name[k]);
    *n = consumer;
}

/* An operation whose result has type `type`. */
static void make_producer(node *n, const sx_type *type, sx_test_op *t)
{
    uint32_t choice = below(n->rng, type->rank > 0 ? 5 : 2);
    memset(t, 0, sizeof(*t));
    t->input[0] = *type;
    t->input[1] = *type;
    t->input_count = choice == 1 ? 2 : 1;
    if (choice <= 1) {
        t->op = choice == 0 ? SX_OP_NEGATE : SX_OP_MULTIPLY;
    } else if (choice == 2 && type->dtype != SX_BOOL) {
        t->op = SX_OP_IOTA;
        t->input_count = 0;
        t->attr.type = *type;
        t->attr.axis = below(n->rng, type->rank);
    } else if (choice == 3) {
        t->op = SX_OP_TRANSPOSE;
        uint32_t turn = below(n->rng, type->rank);
        t->attr.perm.count = type->rank;
        for (uint32_t d = 0; d < type->rank; d++) {
            t->attr.perm.v[d] = (d + turn) % type->rank;
            t->input[0].dim[(d + turn) % type->rank] = type->dim[d];
        }
    } else {
        t->op = SX_OP_BROADCAST;
        uint32_t left_out = below(n->rng, type->rank);
        t->attr.type = *type;
        t->input[0].rank = 0;
        for (uint32_t d = 0; d < type->rank; d++) {
            if (d != left_out) {
                t->attr.dims.v[t->attr.dims.count++] = d;
                t->input[0].dim[t->input[0].rank++] = type->dim[d];
            }
        }
    }
    t->attr.present = sx_op_info_of(t->op)->attrs;
    t->result = infer(n->cx, t);
}

/* Argument `a` gets a producer, which is then inlined. */
static void step_producer(node *n)
{
    if (n->input_count == 0) {
        return;
    }
    uint32_t a = below(n->rng, n->input_count);
    sx_test_op t;
    make_producer(n, &n->input[a].type, &t);
    node producer = *n;
    for (uint32_t k = 0; k < t.input_count; k++) {
        sx_test_tensor(n->cx, n->rng, n->mode, &t.input[k], &producer.input[k]);
    }
    lift_into(&producer, &t);
    n->input[a] = sx_test_eval(n->cx, t.op, &t.attr, n->mode, producer.input, t.input_count);
    n->value = sx_test_eval(n->cx, SX_OP_FUSED, &n->fused, n->mode, n->input, n->input_count);
    sx_attr grown;
    bool ok;
    ck_sx_ok(n->cx,
             sx_fused_inline(n->cx, &n->fused, a, &producer.fused, &n->input[a].type, &grown, &ok));
    sx_kernel_kind into = sx_body_kernel_kind(n->fused.body);
    kind k = t.op == SX_OP_IOTA      ? INDEX_INTO_ANY
             : into == SX_KERNEL_DOT ? MAP_INTO_DOT
             : into == SX_KERNEL_ROW ? MAP_INTO_ROW
                                     : MAP_INTO_MAP;
    count(n->tally, k, ok);
    if (!ok) {
        return;
    }
    for (uint32_t i = a; i + 1 < n->input_count; i++) {
        n->input[i] = n->input[i + 1];
    }
    memcpy(&n->input[n->input_count - 1], producer.input, t.input_count * sizeof(sx_tensor));
    n->input_count += t.input_count - 1;
    n->fused = grown;
    check_node(n, kind_name[k]);
}

static void remove_input(node *n, uint32_t a)
{
    n->input_count--;
    for (uint32_t i = a; i < n->input_count; i++) {
        n->input[i] = n->input[i + 1];
    }
}

static void step_splat(node *n)
{
    if (n->input_count == 0) {
        return;
    }
    uint32_t a = below(n->rng, n->input_count);
    sx_attr attr = {.present = SX_A(data) | SX_A(type), .type = n->input[a].type};
    uint8_t raw[8] = {0, 0, 0x40, 0x40}; // 3 as f32
    double imm = 3;
    if (sx_dtype_class_of(attr.type.dtype) == SX_CLASS_INT) {
        raw[0] = 5;
        raw[2] = raw[3] = 0;
        imm = 5;
    }
    attr.data = (sx_span){raw, sx_dtype_bytes(attr.type.dtype)};
    n->input[a] = sx_test_eval(n->cx, SX_OP_CONSTANT, &attr, n->mode, NULL, 0);
    n->value = sx_test_eval(n->cx, SX_OP_FUSED, &n->fused, n->mode, n->input, n->input_count);
    sx_attr grown;
    sx_code code = sx_fused_inline_splat(n->cx, &n->fused, a, imm, &grown);
    ck_assert(code == SX_OK || code == SX_UNIMPLEMENTED);
    sx_ctx_reset_error(n->cx);
    count(n->tally, SPLAT, code == SX_OK);
    if (code == SX_OK) {
        n->fused = grown;
        remove_input(n, a);
        check_node(n, "splat");
    }
}

static void step_merge(node *n)
{
    if (n->input_count < 2) {
        return;
    }
    uint32_t keep = below(n->rng, n->input_count - 1);
    uint32_t drop = keep + 1 + below(n->rng, n->input_count - 1 - keep);
    if (!sx_type_equal(&n->input[keep].type, &n->input[drop].type)) {
        return;
    }
    sx_attr grown;
    bool ok;
    n->input[drop] = n->input[keep];
    n->value = sx_test_eval(n->cx, SX_OP_FUSED, &n->fused, n->mode, n->input, n->input_count);
    ck_sx_ok(n->cx, sx_fused_merge_args(n->cx, &n->fused, keep, drop, &grown, &ok));
    count(n->tally, MERGE, ok);
    if (ok) {
        n->fused = grown;
        remove_input(n, drop);
        check_node(n, "merge");
    }
}

/* One node from birth through `steps` rewrites. */
static void grow_node(sx_ctx *cx, sx_rng *rng, tally *t, uint32_t steps)
{
    node n = {.cx = cx, .rng = rng, .tally = t};
    static const sx_eval_mode modes[] = {SX_EVAL_MODP, SX_EVAL_MODP, SX_EVAL_TYPED, SX_EVAL_F64};
    n.mode = modes[below(rng, 4)];
    sx_type type = sx_test_type(rng, below(rng, 4) == 0 ? SX_I32 : SX_F32, 3, 6);
    sx_test_op op;
    uint32_t a;
    make_consumer(rng, &type, false, &op, &a);
    op.result = infer(cx, &op);
    for (uint32_t k = 0; k < op.input_count; k++) {
        sx_test_tensor(cx, rng, n.mode, &op.input[k], &n.input[k]);
    }
    lift_into(&n, &op);
    n.value = sx_test_eval(cx, op.op, &op.attr, n.mode, n.input, op.input_count);
    check_node(&n, "lift");
    for (uint32_t k = 0; k < steps; k++) {
        uint32_t choice = below(rng, 8);
        if (choice < 4) {
            step_consumer(&n);
        } else if (choice < 6) {
            step_producer(&n);
        } else if (choice == 6) {
            step_splat(&n);
        } else {
            step_merge(&n);
        }
    }
}

START_TEST(random_growth)
{
    sx_rng rng = {sx_test_seed()};
    tally t = {{0}, {0}};
    for (uint32_t k = 0; k < 2000; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)256 << 20);
        grow_node(&cx, &rng, &t, 5);
        sx_ctx_fini(&cx);
    }
    for (kind k = 0; k < KIND_COUNT; k++) {
        printf("%-28s %5u of %5u\n", kind_name[k], t.done[k], t.tried[k]);
        ck_assert_msg(t.done[k] > 10, "%s: done %u of %u", kind_name[k], t.done[k], t.tried[k]);
        bool always = k == ABSORB_RESHAPE || k == DOT_EPILOGUE || k == ROW_EPILOGUE;
        ck_assert_msg(!always || t.done[k] * 10 >= t.tried[k] * 9, "%s: done %u of %u",
                      kind_name[k], t.done[k], t.tried[k]);
    }
}
END_TEST

/* ---- symbols ---- */
static sx_dim bound_dim(sx_dim dim, int64_t value)
{
    return sx_dim_is_constant(dim) ? dim : sx_dim_of(dim.scale * value);
}

static sx_type bound_type(const sx_type *type, int64_t value)
{
    sx_type bound = *type;
    for (uint32_t d = 0; d < type->rank; d++) {
        bound.dim[d] = bound_dim(type->dim[d], value);
    }
    return bound;
}

static sx_attr bound_fused(sx_ctx *cx, const sx_attr *fused, int64_t value)
{
    sx_attr bound = *fused;
    sx_body *body = SX_NEW(cx, sx_body);
    ck_assert_ptr_nonnull(body);
    sx_body_copy(body, fused->body);
    for (uint32_t a = 0; a < body->arg_count; a++) {
        for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
            body->access[a].stride[d] = bound_dim(body->access[a].stride[d], value);
        }
        body->access[a].offset = bound_dim(body->access[a].offset, value);
    }
    bound.type = bound_type(&fused->type, value);
    bound.body = body;
    return bound;
}

#define BATCH ((sx_dim){1, 0})
#define DIM(extent) ((sx_dim){extent, SX_NO_SYMBOL})

static sx_attr type_attr(const sx_type *type)
{
    return (sx_attr){.present = SX_A(type), .type = *type};
}

/* x [6 batch, 8] . w [8, 12], seen as [batch, 6, 4, 3], transposed to heads [batch, 4, 6, 3]: one contraction. */
START_TEST(symbolic_heads)
{
    sx_ctx cx;
    sx_rng rng = {sx_test_seed()};
    sx_ctx_init(&cx, (size_t)64 << 20);
    sx_symbol symbol = {SX_SPAN_LITERAL("batch"), 1, 64, NULL};
    sx_type input[2] = {{SX_F32, 2, {{6, 0}, DIM(8)}}, {SX_F32, 2, {DIM(8), DIM(12)}}};
    sx_type flat = {SX_F32, 2, {{6, 0}, DIM(12)}};
    sx_type split = {SX_F32, 4, {BATCH, DIM(6), DIM(4), DIM(3)}};
    sx_type heads = {SX_F32, 4, {BATCH, DIM(4), DIM(6), DIM(3)}};
    sx_attr dot = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    sx_attr reshape = type_attr(&split);
    sx_attr turn = {.present = SX_A(perm), .perm = {4, {0, 2, 1, 3}}};
    sx_attr producer;
    sx_attr copy;
    sx_attr joined;
    sx_attr grown;
    sx_type type;
    bool ok;
    dot.lhs_contract = (sx_ints){1, {1}};
    dot.rhs_contract = (sx_ints){1, {0}};
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_DOT_GENERAL, &dot, input, 2, &flat, &producer));
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_TRANSPOSE, &turn, &split, 1, &heads, &copy));
    ck_sx_ok(&cx, sx_fused_absorb_view(&cx, &copy, 0, SX_OP_RESHAPE, &reshape, &flat, &split,
                                       &joined, &ok));
    ck_assert(ok);
    ck_sx_ok(&cx, sx_fused_inline(&cx, &joined, 0, &producer, &flat, &grown, &ok));
    ck_assert(ok);
    ck_sx_ok(&cx, sx_infer_type(&cx, &symbol, 1, SX_OP_FUSED, &grown, input, 2, &type));
    ck_assert(sx_type_equal(&type, &heads));
    ck_assert_int_eq(sx_body_kernel_kind(grown.body), SX_KERNEL_DOT);
    for (int64_t batch = 1; batch < 4; batch++) {
        sx_tensor operand[2];
        for (uint32_t k = 0; k < 2; k++) {
            type = bound_type(&input[k], batch);
            sx_test_tensor(&cx, &rng, SX_EVAL_MODP, &type, &operand[k]);
        }
        type = bound_type(&split, batch);
        sx_attr shape = type_attr(&type);
        sx_attr bound = bound_fused(&cx, &grown, batch);
        sx_tensor y = sx_test_eval(&cx, SX_OP_DOT_GENERAL, &dot, SX_EVAL_MODP, operand, 2);
        y = sx_test_eval(&cx, SX_OP_RESHAPE, &shape, SX_EVAL_MODP, &y, 1);
        y = sx_test_eval(&cx, SX_OP_TRANSPOSE, &turn, SX_EVAL_MODP, &y, 1);
        sx_tensor found = sx_test_eval(&cx, SX_OP_FUSED, &bound, SX_EVAL_MODP, operand, 2);
        sx_test_tensor_equal(&y, &found, "heads");
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Slices of [3, batch, 8]: the offset of the third is 16 batch, through a reshape too. One that begins at
 * 8 batch + 2 cannot be written. The access one batch further is not inside. */
START_TEST(symbolic_offset)
{
    sx_ctx cx;
    sx_rng rng = {sx_test_seed()};
    sx_ctx_init(&cx, (size_t)64 << 20);
    sx_symbol symbol = {SX_SPAN_LITERAL("batch"), 1, 64, NULL};
    sx_type x = {SX_F32, 3, {DIM(3), BATCH, DIM(8)}};
    sx_type part = {SX_F32, 3, {DIM(1), BATCH, DIM(8)}};
    sx_type heads = {SX_F32, 3, {BATCH, DIM(2), DIM(4)}};
    sx_attr slice = {.present = sx_op_info_of(SX_OP_SLICE)->attrs,
                     .start = {3, {2, 0, 0}},
                     .limit = {3, {3, -1, 8}},
                     .stride = {3, {1, 1, 1}}};
    sx_attr reshape = type_attr(&heads);
    sx_attr none = {.present = 0};
    sx_attr consumer, joined, grown;
    sx_type type;
    bool ok;
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_ABS, &none, &heads, 1, &heads, &consumer));
    ck_sx_ok(&cx, sx_fused_absorb_view(&cx, &consumer, 0, SX_OP_RESHAPE, &reshape, &part, &heads,
                                       &joined, &ok));
    ck_assert(ok);
    ck_sx_ok(&cx,
             sx_fused_absorb_view(&cx, &joined, 0, SX_OP_SLICE, &slice, &x, &part, &grown, &ok));
    ck_assert(ok);
    ck_sx_ok(&cx, sx_infer_type(&cx, &symbol, 1, SX_OP_FUSED, &grown, &x, 1, &type));
    ck_assert(sx_dim_equal(grown.body->access[0].offset, ((sx_dim){16, 0})));
    for (int64_t batch = 1; batch < 4; batch++) {
        sx_tensor operand;
        type = bound_type(&x, batch);
        sx_test_tensor(&cx, &rng, SX_EVAL_MODP, &type, &operand);
        sx_attr bound = bound_fused(&cx, &grown, batch), shape = type_attr(&heads);
        shape.type = bound_type(&heads, batch);
        slice.limit.v[1] = batch;
        sx_tensor y = sx_test_eval(&cx, SX_OP_SLICE, &slice, SX_EVAL_MODP, &operand, 1);
        y = sx_test_eval(&cx, SX_OP_RESHAPE, &shape, SX_EVAL_MODP, &y, 1);
        y = sx_test_eval(&cx, SX_OP_ABS, &none, SX_EVAL_MODP, &y, 1);
        sx_tensor found = sx_test_eval(&cx, SX_OP_FUSED, &bound, SX_EVAL_MODP, &operand, 1);
        sx_test_tensor_equal(&y, &found, "slice");
    }
    sx_body *far = SX_NEW(&cx, sx_body);
    ck_assert_ptr_nonnull(far);
    sx_body_copy(far, grown.body);
    far->access[0].offset.scale = 24;
    grown.body = far;
    ck_sx_fails(&cx, sx_infer_type(&cx, &symbol, 1, SX_OP_FUSED, &grown, &x, 1, &type), SX_INPUT,
                "not shown to stay inside");
    slice.start.v[0] = 1;
    slice.start.v[2] = 2;
    part = (sx_type){SX_F32, 3, {DIM(2), BATCH, DIM(6)}};
    ck_sx_fails(&cx, sx_fused_lift(&cx, SX_OP_SLICE, &slice, &x, 1, &part, &grown),
                SX_UNIMPLEMENTED, "slice");
    sx_ctx_fini(&cx);
}
END_TEST

/* Two symbols in one shape: [batch, length, 6] has strides, though its number of elements cannot be written. x
 * . w + x, with the reshape of w absorbed on the way. */
START_TEST(two_symbols)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)64 << 20);
    sx_symbol symbol[2] = {{SX_SPAN_LITERAL("batch"), 1, 64, NULL},
                           {SX_SPAN_LITERAL("length"), 1, 64, NULL}};
    sx_type x = {SX_F32, 3, {BATCH, {1, 1}, DIM(6)}};
    sx_type square = {SX_F32, 2, {DIM(6), DIM(6)}};
    sx_type stored = {SX_F32, 1, {DIM(36)}};
    sx_type operand[2] = {x, square};
    sx_type both[2] = {x, x};
    sx_attr dot = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    sx_attr reshape = type_attr(&square);
    sx_attr producer;
    sx_attr absorbed;
    sx_attr add;
    sx_attr grown;
    sx_type type;
    bool ok;
    dot.lhs_contract = (sx_ints){1, {2}};
    dot.rhs_contract = (sx_ints){1, {0}};
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_DOT_GENERAL, &dot, operand, 2, &x, &producer));
    ck_sx_ok(&cx, sx_fused_absorb_view(&cx, &producer, 1, SX_OP_RESHAPE, &reshape, &stored, &square,
                                       &absorbed, &ok));
    ck_assert(ok);
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_ADD, &(sx_attr){0}, both, 2, &x, &add));
    ck_sx_ok(&cx, sx_fused_inline(&cx, &add, 0, &absorbed, &x, &grown, &ok));
    ck_assert(ok);
    sx_type input[3] = {x, x, stored};
    ck_sx_ok(&cx, sx_infer_type(&cx, symbol, 2, SX_OP_FUSED, &grown, input, 3, &type));
    ck_assert(sx_type_equal(&type, &x));
    sx_type turned = {SX_F32, 3, {{1, 1}, BATCH, DIM(6)}};
    sx_attr turn = {.present = SX_A(perm), .perm = {3, {1, 0, 2}}};
    sx_attr copy;
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_TRANSPOSE, &turn, &x, 1, &turned, &copy));
    ck_sx_ok(&cx, sx_fused_inline(&cx, &copy, 0, &grown, &x, &absorbed, &ok));
    ck_assert(ok);
    ck_sx_ok(&cx, sx_infer_type(&cx, symbol, 2, SX_OP_FUSED, &absorbed, input, 3, &type));
    ck_assert(sx_type_equal(&type, &turned));
    ck_assert_int_eq(sx_body_kernel_kind(absorbed.body), SX_KERNEL_DOT);
    sx_ctx_fini(&cx);
}
END_TEST

/* A transposed tensor seen flat is not affine. */
START_TEST(not_affine)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)64 << 20);
    sx_type source = {SX_F32, 2, {BATCH, DIM(6)}};
    sx_type turned = {SX_F32, 2, {DIM(6), BATCH}};
    sx_type flat = {SX_F32, 1, {{6, 0}}};
    sx_attr turn = {.present = SX_A(perm), .perm = {2, {1, 0}}};
    sx_attr reshape = type_attr(&flat);
    sx_attr copy;
    sx_attr through;
    sx_attr out;
    bool ok;
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_ABS, &(sx_attr){0}, &flat, 1, &flat, &copy));
    ck_sx_ok(&cx, sx_fused_absorb_view(&cx, &copy, 0, SX_OP_RESHAPE, &reshape, &turned, &flat,
                                       &through, &ok));
    ck_assert(ok);
    ck_sx_ok(&cx, sx_fused_absorb_view(&cx, &through, 0, SX_OP_TRANSPOSE, &turn, &source, &turned,
                                       &out, &ok));
    ck_assert(!ok);
    sx_ctx_fini(&cx);
}
END_TEST

/* `inner`, an operation on floats, and `outer` on its result and, if `two`, on a parameter: may they
 * be one kernel? */
static bool may_share(sx_op inner, sx_op outer, sx_direction direction, sx_dtype result, bool two)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)64 << 20);
    sx_type x = {SX_F32, 2, {DIM(5), DIM(6)}};
    sx_type through = inner == SX_OP_REDUCE ? (sx_type){SX_F32, 1, {DIM(5)}} : x;
    sx_type to = through;
    to.dtype = result;
    sx_type both[2] = {through, through};
    sx_attr first = {.present = sx_op_info_of(inner)->attrs, .dims = {1, {1}}};
    first.reducer = direction == SX_NE ? SX_MAX : SX_SUM;
    sx_attr second = {.present = sx_op_info_of(outer)->attrs, .type = to, .direction = direction};
    sx_attr producer, consumer, grown;
    bool ok;
    ck_sx_ok(&cx, sx_fused_lift(&cx, inner, &first, &x, 1, &through, &producer));
    ck_sx_ok(&cx, sx_fused_lift(&cx, outer, &second, both, two ? 2 : 1, &to, &consumer));
    ck_sx_ok(&cx, sx_fused_inline(&cx, &consumer, 0, &producer, &through, &grown, &ok));
    sx_ctx_fini(&cx);
    return ok;
}

/* What would have other bits in a kernel with something else stays in one of its own (fused_bits.c). */
START_TEST(bits_stay)
{
    ck_assert(!may_share(SX_OP_TANH, SX_OP_CONVERT, SX_EQ, SX_F64, false));
    ck_assert(!may_share(SX_OP_TANH, SX_OP_CONVERT, SX_EQ, SX_I64, false));
    ck_assert(may_share(SX_OP_TANH, SX_OP_CONVERT, SX_EQ, SX_F16, false));
    ck_assert(may_share(SX_OP_ABS, SX_OP_CONVERT, SX_EQ, SX_F64, false));
    ck_assert(!may_share(SX_OP_REDUCE, SX_OP_CONVERT, SX_EQ, SX_F64, false)); /* a sum */
    ck_assert(may_share(SX_OP_REDUCE, SX_OP_CONVERT, SX_NE, SX_F64, false));  /* a maximum */
    ck_assert(!may_share(SX_OP_TANH, SX_OP_COMPARE, SX_EQ, SX_BOOL, true));
    ck_assert(!may_share(SX_OP_TANH, SX_OP_COMPARE, SX_NE, SX_BOOL, true));
    ck_assert(may_share(SX_OP_TANH, SX_OP_COMPARE, SX_LT, SX_BOOL, true));
    ck_assert(may_share(SX_OP_ABS, SX_OP_COMPARE, SX_EQ, SX_BOOL, true));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rewrite");
    TCase *tcase = tcase_create("rewrite");
    tcase_add_test(tcase, random_growth);
    tcase_add_test(tcase, symbolic_heads);
    tcase_add_test(tcase, symbolic_offset);
    tcase_add_test(tcase, two_symbols);
    tcase_add_test(tcase, not_affine);
    tcase_add_test(tcase, bits_stay);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
