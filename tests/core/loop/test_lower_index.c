/* Scatter, dynamic slices and updates: lowered kernels against the interpreter, bit for bit, and proven; planted faults
 * are not. */
#include "core/ir/num.h"
#include "tests/core/loop/nodes.h"

static const test_tiles plans[] = {
    {.lanes = 16, .tile_m = 1},
    {.lanes = 8, .tile_m = 3, .tile_n = 50},
    {.lanes = 16, .tile_m = 1000, .tile_n = 1},
    {.lanes = 32, .tile_m = 2, .tile_n = 70},
};

typedef struct {
    sx_op op;
    sx_attr attr;
    uint32_t count;
    sx_type input[6], result;
    uint8_t *raw[6];
    sx_buf expected;
} trial;

static uint8_t *random_bytes(sx_ctx *cx, sx_rng *rng, const sx_type *type)
{
    uint8_t *p = sx_alloc(cx, bytes_of(type) + 1);
    size_t size = sx_dtype_bytes(type->dtype);
    for (int64_t i = 0; i < sx_tensor_elements(type); i++) {
        uint64_t bits = sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT
                            ? sx_num_encode(type->dtype, (double)sx_rng_f32(rng))
                            : sx_rng_below(rng, 2);
        memcpy(p + (size_t)i * size, &bits, size);
    }
    return p;
}

/* Beyond `n` on both sides, and at the ends of the type, where 32 bits of it are small. */
static uint8_t *random_integers(sx_ctx *cx, sx_rng *rng, const sx_type *type, int64_t n)
{
    static const int64_t far[] = {INT64_MIN, INT64_MAX, INT64_C(1) << 32, -(INT64_C(1) << 32),
                                  (INT64_C(1) << 32) + 1};
    uint8_t *p = sx_alloc(cx, bytes_of(type) + 1);
    size_t size = sx_dtype_bytes(type->dtype);
    for (int64_t i = 0; i < sx_tensor_elements(type); i++) {
        int64_t value = (int64_t)sx_rng_below(rng, (uint64_t)(2 * n + 6)) - n - 3;
        if (sx_rng_below(rng, 8) == 0) {
            value = far[sx_rng_below(rng, SX_COUNT(far))];
            value = type->dtype == SX_I64 ? value : value < 0 ? INT32_MIN : INT32_MAX;
        }
        memcpy(p + (size_t)i * size, &value, size);
    }
    return p;
}

static sx_dtype random_integer(sx_rng *rng)
{
    return sx_rng_below(rng, 2) == 0 ? SX_I32 : SX_I64;
}

static void make_scatter(sx_ctx *cx, sx_rng *rng, uint32_t round, trial *t)
{
    sx_type *x = &t->input[0];
    bool many = round % 2 == 1; /* as many indices and rows as one pass over both wants */
    t->attr.axis = (int64_t)sx_rng_below(rng, x->rank);
    if (many) {
        bool last = (uint32_t)t->attr.axis + 1 == x->rank;
        int64_t least = last ? 32 : 4;
        for (uint32_t d = 0; d + 1 < x->rank; d++) {
            x->dim[d] = sx_dim_of(sx_min_i64(x->dim[d].scale, 2));
        }
        x->dim[t->attr.axis] = sx_dim_of(least + (int64_t)sx_rng_below(rng, 80));
    }
    t->attr.reducer = (sx_reducer)sx_rng_below(rng, SX_REPLACE + 1);
    bool order = t->attr.reducer == SX_MAX || t->attr.reducer == SX_MIN;
    x->dtype = order && x->dtype == SX_BOOL ? SX_I8 : x->dtype;
    t->count = 3;
    t->input[1] = TYPE(random_integer(rng), (many ? 8 : 1) + (int64_t)sx_rng_below(rng, 5),
                       1 + (int64_t)sx_rng_below(rng, 4));
    t->input[2] = (sx_type){.dtype = x->dtype};
    for (uint32_t d = 0; d < x->rank; d++) {
        bool axis = d == (uint32_t)t->attr.axis;
        for (uint32_t k = 0; k < (axis ? t->input[1].rank : 1); k++) {
            t->input[2].dim[t->input[2].rank++] = axis ? t->input[1].dim[k] : x->dim[d];
        }
    }
    t->raw[1] = random_integers(cx, rng, &t->input[1], x->dim[t->attr.axis].scale);
    t->raw[2] = random_bytes(cx, rng, &t->input[2]);
}

static void make_dynamic(sx_ctx *cx, sx_rng *rng, trial *t)
{
    sx_type *x = &t->input[0];
    sx_type box = *x;
    uint32_t first = t->op == SX_OP_DYNAMIC_UPDATE_SLICE ? 2 : 1;
    t->count = first;
    t->input[1] = (sx_type){0};
    for (uint32_t d = 0; d < x->rank; d++) {
        bool last = d + 1 == x->rank && t->count == first;
        if (last || sx_rng_below(rng, 2) == 0) {
            int64_t extent = x->dim[d].scale;
            int64_t size = 1 + (int64_t)sx_rng_below(rng, (uint64_t)extent);
            box.dim[d] = sx_dim_of(sx_rng_below(rng, 6) == 0 ? extent : size);
            t->attr.sizes.v[t->attr.sizes.count++] = box.dim[d].scale;
            t->attr.dims.v[t->attr.dims.count++] = d;
            t->input[t->count] = (sx_type){.dtype = random_integer(rng)};
            t->raw[t->count] = random_integers(cx, rng, &t->input[t->count], extent);
            t->count++;
        }
    }
    if (first == 2) {
        t->attr.sizes = (sx_ints){0};
        t->input[1] = box;
        t->raw[1] = random_bytes(cx, rng, &box);
    }
}

static void expect(sx_ctx *cx, trial *t)
{
    sx_tensor in[6], out;
    sx_eval_mode mode = SX_EVAL_TYPED;
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, t->op, &t->attr, t->input, t->count, &t->result));
    for (uint32_t k = 0; k < t->count; k++) {
        ck_sx_ok(cx, sx_tensor_unpack(cx, &t->input[k], mode,
                                      (sx_span){t->raw[k], bytes_of(&t->input[k])}, &in[k]));
    }
    ck_sx_ok(cx, sx_node_eval(cx, t->op, &t->attr, mode, in, t->count, &t->result, &out));
    sx_buf_init(&t->expected, 1 << 24);
    ck_sx_ok(cx, sx_tensor_pack(cx, &out, &t->expected));
}

static void make(sx_ctx *cx, sx_rng *rng, sx_op op, uint32_t round, trial *t)
{
    int64_t extent[4];
    uint32_t rank = 1 + (uint32_t)sx_rng_below(rng, 4);
    *t = (trial){.op = op, .attr = {.present = sx_op_info_of(op)->attrs}};
    for (uint32_t d = 0; d < rank; d++) {
        bool wide = d + 1 == rank && round % 3 == 0;
        extent[d] = 1 + (int64_t)sx_rng_below(rng, wide ? 90 : 6);
    }
    t->input[0] = type_of((sx_dtype)(round % SX_DTYPE_COUNT), rank, extent);
    if (op == SX_OP_SCATTER) {
        make_scatter(cx, rng, round, t);
    } else {
        make_dynamic(cx, rng, t);
    }
    t->raw[0] = random_bytes(cx, rng, &t->input[0]);
    expect(cx, t);
}

static sx_code lower(sx_ctx *cx, const trial *t, const test_tiles *tiles, sx_kernel **kernel)
{
    test_tiles plan = *tiles;
    bool wide = t->op == SX_OP_SCATTER && sx_move_lane_bytes(t->input[0].dtype) == 8;
    plan.lanes = wide && plan.lanes < 32 ? plan.lanes / 2 : plan.lanes;
    const sx_lowering what = {.kind = SX_LOWER_MOVE,
                              .name = "moved",
                              .schedule = move_schedule(cx, &plan),
                              .op = t->op,
                              .attr = &t->attr,
                              .input = t->input,
                              .input_count = t->count,
                              .result = &t->result};
    return t->op == SX_OP_SCATTER         ? sx_lower_scatter(cx, &what, kernel)
           : t->op == SX_OP_DYNAMIC_SLICE ? sx_lower_dynamic_slice(cx, &what, kernel)
                                          : sx_lower_dynamic_update(cx, &what, kernel);
}

static bool is_proven(sx_ctx *cx, const trial *t, const sx_kernel *kernel, bool show)
{
    sx_judge *judge;
    sx_verdict verdict;
    ck_sx_ok(cx, sx_judge_make(cx, &judge));
    ck_sx_ok(cx, sx_judge_move(judge, t->op, &t->attr, t->input, t->count, &t->result, kernel,
                               &verdict));
    if (!verdict.proven && show) {
        sx_buf text;
        sx_buf_init(&text, 1 << 24);
        sx_judge_print(judge, &text);
        (void)sx_kernel_print(cx, kernel, &text);
        sx_buf_put(&text, "", 1);
        (void)fprintf(stderr, "%s\n%.8000s\n", verdict.text, (const char *)text.ptr);
        sx_buf_fini(&text);
    }
    return verdict.proven;
}

/* Does the loop interpreter give what the tensor interpreter does? */
static bool is_right(sx_ctx *cx, const trial *t, const sx_kernel *kernel)
{
    void *buffer[8];
    for (uint32_t k = 0; k < t->count; k++) {
        buffer[k] = t->raw[k];
    }
    uint8_t *out = exact_buffer(cx, (int64_t)t->expected.len);
    buffer[t->count] = out;
    if (kernel->buffer_count > t->count + 1) { /* a workspace */
        buffer[t->count + 1] = exact_buffer(cx, kernel->buffer[t->count + 1].size);
    }
    ck_sx_ok(cx, sx_kernel_eval(cx, kernel, buffer));
    ck_assert_uint_eq(out[t->expected.len], 0xCC);
    return memcmp(out, t->expected.ptr, t->expected.len) == 0;
}

static const sx_op ops[] = {SX_OP_SCATTER, SX_OP_DYNAMIC_SLICE, SX_OP_DYNAMIC_UPDATE_SLICE};

START_TEST(test_lowered)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    uint32_t linear = 0; /* scatters with a workspace */
    for (uint32_t round = 0; round < 72; round++) {
        sx_ctx cx;
        trial t;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        make(&cx, &rng, ops[_i], round, &t);
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            sx_kernel *kernel;
            ck_sx_ok(&cx, lower(&cx, &t, &plans[p], &kernel));
            ck_assert_msg(is_right(&cx, &t, kernel), "round %u, plan %u: %s of %s %s", round, p,
                          sx_op_info_of(t.op)->name, sx_dtype_name(t.input[0].dtype),
                          sx_reducer_name(t.attr.reducer));
            ck_assert(is_proven(&cx, &t, kernel, true));
            linear += kernel->buffer_count > t.count + 1;
        }
        sx_buf_fini(&t.expected);
        sx_ctx_fini(&cx);
    }
    ck_assert(ops[_i] == SX_OP_SCATTER ? linear > 50 : linear == 0);
}
END_TEST

/* Two neighbours change places. */
static bool plant_order(sx_item *item)
{
    sx_item first = item[0];
    bool both = item[0].kind == SX_ITEM_OP && item[1].kind == SX_ITEM_OP;
    item[0] = both ? item[1] : item[0];
    item[1] = both ? first : item[1];
    return both;
}

/* A load or store of the part's own memory: without its index, or a lane further. */
static bool plant_place(const sx_kernel *kernel, sx_addr *addr, sx_rng *rng)
{
    if (addr->index_reg != SX_NO_REG && sx_rng_below(rng, 2) == 0) {
        addr->index_reg = SX_NO_REG;
    } else {
        addr->offset += kernel->lane_bytes;
    }
    return true;
}

/* One immediate, address or operand of an instruction changed. False: there is nothing to change. */
static bool plant(sx_kernel *kernel, sx_rng *rng)
{
    sx_part *part = &kernel->part[sx_rng_below(rng, kernel->part_count)];
    uint32_t at = (uint32_t)sx_rng_below(rng, part->item_count);
    sx_item *item = &part->item[at];
    if (sx_rng_below(rng, 8) == 0 && at + 1 < part->item_count) {
        return plant_order(item);
    }
    if (item->kind == SX_ITEM_LOOP) {
        item->trip -= item->trip > 1;
        return true;
    }
    switch (item->op) {
    case SX_LOP_SOFF:
    case SX_LOP_SWRAP: item->imm2 = item->imm2 > 1 ? item->imm2 - 1 : item->imm2 + 1; return true;
    case SX_LOP_SCLAMP: item->imm2 = item->imm2 > 1 ? item->imm2 - 1 : 2; return true;
    case SX_LOP_SMUL: item->imm2 /= 2; return true;
    case SX_LOP_ICMP: item->imm = item->imm == SX_EQ ? SX_GT : SX_EQ; return true;
    case SX_LOP_BLEND: {
        uint32_t x = item->src[1];
        item->src[1] = item->src[2];
        item->src[2] = x;
        return true;
    }
    case SX_LOP_ADD: item->op = SX_LOP_SUB; return true;
    case SX_LOP_LOAD: return plant_place(kernel, &part->addr[item->addr], rng);
    case SX_LOP_STORE:
        if (sx_rng_below(rng, 2) == 0) {
            return plant_place(kernel, &part->addr[item->addr], rng);
        }
        item->imm -= item->imm > 1;
        return true;
    case SX_LOP_SLOAD32:
    case SX_LOP_SLOAD64: part->addr[item->addr].coef[3] = 0; return true;
    default: return false;
    }
}

/* What is changed is refused, or the interpreter finds no difference. */
START_TEST(test_planted)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    uint32_t refused = 0, wrong = 0;
    for (uint32_t round = 0; round < 200; round++) {
        sx_ctx cx;
        trial t;
        sx_kernel *kernel;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        make(&cx, &rng, ops[_i], round, &t);
        ck_sx_ok(&cx, lower(&cx, &t, &plans[round % SX_COUNT(plans)], &kernel));
        if (plant(kernel, &rng) && sx_kernel_check(&cx, kernel) == SX_OK) {
            bool proven = is_proven(&cx, &t, kernel, false);
            bool right = is_right(&cx, &t, kernel);
            ck_assert_msg(right || !proven, "round %u: a fault is proven", round);
            refused += !proven;
            wrong += !right;
        }
        sx_buf_fini(&t.expected);
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(refused, 30);
    ck_assert_uint_gt(wrong, 15);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.index");
    TCase *cases = tcase_create("index");
    tcase_add_loop_test(cases, test_lowered, 0, SX_COUNT(ops));
    tcase_add_loop_test(cases, test_planted, 0, SX_COUNT(ops));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
