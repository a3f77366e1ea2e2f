/* Sorts by a network of comparisons: lowered kernels against the interpreter, bit for bit, and proven; planted faults
 * are not. */
#include <math.h>

#include "core/ir/num.h"
#include "core/ir/sort.h"
#include "tests/core/loop/nodes.h"

typedef struct {
    sx_attr attr;
    sx_type input, result;
    uint8_t *raw;
    sx_buf expected;
} trial;

/* Few different elements, so that many are equal, and what is special about floats; or any bits. */
static void fill(sx_ctx *cx, sx_rng *rng, trial *t)
{
    static const double special[] = {(double)NAN, HUGE_VAL, -HUGE_VAL, -0.0, 0.0};
    const sx_dtype dtype = t->input.dtype;
    const uint64_t style = sx_rng_below(rng, 3);
    t->raw = sx_alloc(cx, bytes_of(&t->input) + 1);
    for (int64_t k = 0; k < sx_tensor_elements(&t->input); k++) {
        uint64_t which = sx_rng_below(rng, style == 0 ? 8 : 64);
        int64_t small = (int64_t)sx_rng_below(rng, 9) - 4;
        uint64_t bits = sx_rng_next(rng);
        if (dtype == SX_BOOL) {
            bits = small > 0;
        } else if (style < 2 && sx_dtype_class_of(dtype) == SX_CLASS_FLOAT) {
            double value = which < SX_COUNT(special) ? special[which] : (double)small / 2;
            bool lacks = dtype == SX_F8E4M3 && isinf(value);
            bits = sx_num_encode(dtype, lacks ? copysign(448, value) : value);
        } else if (style < 2) {
            small = dtype == SX_U8 ? small + 4 : which == 0 ? sx_num_int_min(dtype) : small;
            bits = sx_num_int_encode(dtype,
                                     which == 1 && dtype != SX_U8 ? ~sx_num_int_min(dtype) : small);
        }
        sx_num_store(dtype, t->raw, (size_t)k, bits);
    }
}

static void expect(sx_ctx *cx, trial *t)
{
    sx_tensor in, out;
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, SX_OP_SORT, &t->attr, &t->input, 1, &t->result));
    ck_sx_ok(cx, sx_tensor_unpack(cx, &t->input, SX_EVAL_TYPED,
                                  (sx_span){t->raw, bytes_of(&t->input)}, &in));
    ck_sx_ok(cx, sx_node_eval(cx, SX_OP_SORT, &t->attr, SX_EVAL_TYPED, &in, 1, &t->result, &out));
    sx_buf_init(&t->expected, bytes_of(&t->result) + 16);
    ck_sx_ok(cx, sx_tensor_pack(cx, &out, &t->expected));
}

/* All places, or some of them: few, many, or one less than all. */
static void make(sx_ctx *cx, sx_rng *rng, uint32_t round, int64_t n, trial *t)
{
    const uint32_t rank = 1 + round % 3, axis = (uint32_t)sx_rng_below(rng, rank);
    int64_t extent[3], take[] = {-1, n, 1 + (int64_t)sx_rng_below(rng, (uint64_t)n),
                                 sx_min_i64(n, 9 + round % 60), sx_max_i64(1, n - 1)};
    for (uint32_t d = 0; d < rank; d++) {
        extent[d] = d == axis ? n : 1 + (int64_t)sx_rng_below(rng, 3);
    }
    *t = (trial){.attr = {.present = sx_op_info_of(SX_OP_SORT)->attrs, .axis = axis}};
    t->attr.direction = sx_rng_below(rng, 2) == 0 ? SX_LT : SX_GT;
    t->attr.count = take[sx_rng_below(rng, SX_COUNT(take))];
    t->attr.result = (int64_t)sx_rng_below(rng, 2);
    t->input = type_of((sx_dtype)(round % SX_DTYPE_COUNT), rank, extent);
    fill(cx, rng, t);
    expect(cx, t);
}

static sx_kernel *lowered(sx_ctx *cx, const trial *t, uint32_t lanes)
{
    bool wide = sx_move_lane_bytes(t->input.dtype) == 8;
    const test_tiles plan = {.lanes = wide && lanes < 32 ? lanes / 2 : lanes, .tile_m = 1};
    const sx_lowering what = {.kind = SX_LOWER_MOVE,
                              .name = "sorted",
                              .schedule = move_schedule(cx, &plan),
                              .op = SX_OP_SORT,
                              .attr = &t->attr,
                              .input = &t->input,
                              .input_count = 1,
                              .result = &t->result};
    sx_kernel *kernel;
    ck_sx_ok(cx, sx_lower_sort(cx, &what, &kernel));
    return kernel;
}

static bool is_proven(sx_ctx *cx, const trial *t, const sx_kernel *kernel, sx_verdict *verdict)
{
    sx_judge *judge;
    ck_sx_ok(cx, sx_judge_make(cx, &judge));
    ck_sx_ok(cx,
             sx_judge_move(judge, SX_OP_SORT, &t->attr, &t->input, 1, &t->result, kernel, verdict));
    return verdict->proven;
}

static bool is_nan(sx_dtype dtype, const uint8_t *at, int64_t k)
{
    return sx_dtype_class_of(dtype) == SX_CLASS_FLOAT &&
           isnan(sx_num_decode(dtype, sx_num_load(dtype, at, (size_t)k)));
}

/* The interpreter's elements, any NaN being one. */
static bool is_right(sx_ctx *cx, const trial *t, const sx_kernel *kernel)
{
    uint8_t *out = exact_buffer(cx, (int64_t)t->expected.len);
    void *buffer[] = {t->raw, out, exact_buffer(cx, kernel->buffer[2].size)};
    const sx_dtype dtype = t->result.dtype;
    const size_t size = sx_dtype_bytes(dtype);
    cx->fuel = UINT64_MAX;
    ck_sx_ok(cx, sx_kernel_eval(cx, kernel, buffer));
    ck_assert_uint_eq(out[t->expected.len], 0xCC);
    for (int64_t k = 0; k < sx_tensor_elements(&t->result); k++) {
        const uint8_t *want = t->expected.ptr + (size_t)k * size, *got = out + (size_t)k * size;
        if (memcmp(want, got, size) != 0 && !(is_nan(dtype, want, 0) && is_nan(dtype, got, 0))) {
            return false;
        }
    }
    return true;
}

static void try_one(sx_rng *rng, uint32_t round, int64_t n, uint32_t lanes)
{
    sx_ctx cx;
    trial t;
    sx_verdict verdict;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    make(&cx, rng, round, n, &t);
    const sx_kernel *kernel = lowered(&cx, &t, lanes);
    ck_assert_msg(is_right(&cx, &t, kernel), "round %u: %lld of %lld elements of %s, %u lanes",
                  round, (long long)t.attr.count, (long long)n, sx_dtype_name(t.input.dtype),
                  lanes);
    ck_assert_msg(is_proven(&cx, &t, kernel, &verdict), "round %u: %lld of %lld elements of %s: %s",
                  round, (long long)t.attr.count, (long long)n, sx_dtype_name(t.input.dtype),
                  verdict.text);
    sx_buf_fini(&t.expected);
    sx_ctx_fini(&cx);
}

static const uint32_t lanes_of[] = {8, 16, 32};

START_TEST(test_lowered)
{
    static const int64_t lengths[] = {1, 2, 3, 31, 32, 33, 64, 65, 100, 127, 128, 129, 300, 511};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < 8 * SX_DTYPE_COUNT; round++) {
        uint64_t which = sx_rng_below(&rng, 2 * SX_COUNT(lengths));
        int64_t n =
            which < SX_COUNT(lengths) ? lengths[which] : 1 + (int64_t)sx_rng_below(&rng, 700);
        try_one(&rng, round, n, lanes_of[_i]);
    }
    try_one(&rng, SX_F32, 4097, lanes_of[_i]);
    try_one(&rng, SX_I64, 4096, lanes_of[_i]);
}
END_TEST

/* So many comparisons as the price says: those that choices of keys follow. */
START_TEST(test_price)
{
    static const int64_t shapes[][2] = {
        {64, 64}, {1024, 1024}, {4096, 4096}, {4096, 16}, {1024, 100}};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    for (uint32_t k = 0; k < SX_COUNT(shapes); k++) {
        trial t = {.attr = {.present = sx_op_info_of(SX_OP_SORT)->attrs, .direction = SX_LT}};
        double pairs = 0;
        t.attr.count = shapes[k][1];
        t.input = TYPE(SX_I32, shapes[k][0]);
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, SX_OP_SORT, &t.attr, &t.input, 1, &t.result));
        const sx_kernel *kernel = lowered(&cx, &t, 16);
        const sx_part *part = kernel->part;
        int64_t rounds[SX_LOOP_VARS_MAX + 1] = {1};
        uint32_t depth = 0;
        for (uint32_t i = 0; i < part->item_count; i++) {
            const sx_item *item = &part->item[i];
            if (item->kind == SX_ITEM_LOOP) {
                rounds[depth + 1] = rounds[depth] * item->trip;
                depth++;
            } else if (item->kind == SX_ITEM_END) {
                depth--;
            } else if (item->op == SX_LOP_MOR) { /* partners in two vectors, or in one */
                bool inside =
                    part->item[i + 1].kind == SX_ITEM_OP && part->item[i + 1].op == SX_LOP_ICMP;
                pairs += (double)rounds[depth] * (inside ? 8 : 16);
            }
        }
        ck_assert_double_eq(pairs, sx_sort_comparisons(shapes[k][0], shapes[k][1], 16));
        ck_assert_double_eq(pairs, kernel->flops);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* One immediate, address or operand of an instruction changed. False: there is nothing to change. */
static bool plant(sx_kernel *kernel, sx_rng *rng)
{
    sx_part *part = &kernel->part[0];
    sx_item *item = &part->item[sx_rng_below(rng, part->item_count)];
    uint32_t x = item->src[1];
    if (item->kind == SX_ITEM_LOOP) {
        item->trip -= item->trip > 1;
        return true;
    }
    switch (item->kind == SX_ITEM_OP ? (int)item->op : -1) {
    case SX_LOP_SWAP: item->imm = item->imm > 1 ? item->imm / 2 : 2; return true;
    case SX_LOP_ICMP: item->imm = item->imm == SX_EQ ? SX_GT : SX_EQ; return true;
    case SX_LOP_BLEND:
        item->src[1] = item->src[2];
        item->src[2] = x;
        return true;
    case SX_LOP_MAND: item->op = SX_LOP_MOR; return true;
    case SX_LOP_MOR: item->op = SX_LOP_MAND; return true;
    case SX_LOP_MXOR: item->op = SX_LOP_MOR; return true;
    case SX_LOP_XOR: item->op = SX_LOP_OR; return true;
    case SX_LOP_SET: item->imm ^= 1u << sx_rng_below(rng, 31); return true;
    case SX_LOP_SMUL: item->imm2 /= 2; return true;
    case SX_LOP_SHR:
    case SX_LOP_SHL: item->imm ^= 1; return true;
    case SX_LOP_LOAD:
    case SX_LOP_STORE: {
        sx_addr *addr = &part->addr[item->addr];
        uint32_t v = 3 + (uint32_t)sx_rng_below(rng, 3);
        if (sx_rng_below(rng, 2) == 0 && addr->coef[v] != 0) {
            addr->coef[v] /= 2;
        } else {
            addr->offset += kernel->lane_bytes * (sx_rng_below(rng, 2) == 0 ? 1 : 16);
        }
        return true;
    }
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
        sx_verdict verdict;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        make(&cx, &rng, round, 2 + (int64_t)sx_rng_below(&rng, 200), &t);
        sx_kernel *kernel = lowered(&cx, &t, lanes_of[_i]);
        if (plant(kernel, &rng) && sx_kernel_check(&cx, kernel) == SX_OK) {
            bool proven = is_proven(&cx, &t, kernel, &verdict);
            bool right = is_right(&cx, &t, kernel);
            ck_assert_msg(right || !proven, "round %u: a fault is proven", round);
            refused += !proven;
            wrong += !right;
        }
        sx_buf_fini(&t.expected);
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(refused, 60);
    ck_assert_uint_gt(wrong, 30);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.sort");
    TCase *cases = tcase_create("sort");
    tcase_add_loop_test(cases, test_lowered, 0, SX_COUNT(lanes_of));
    tcase_add_loop_test(cases, test_planted, 0, SX_COUNT(lanes_of));
    tcase_add_test(cases, test_price);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
