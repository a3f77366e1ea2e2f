/* Concatenate and gather against the interpreter, over shapes, element types and plans. */
#include "tests/core/loop/nodes.h"

static const test_tiles plans[] = {
    {.lanes = 16, .tile_m = 1},
    {.lanes = 8, .tile_m = 3, .tile_n = 50},
    {.lanes = 16, .tile_m = 1000, .tile_n = 1},
    {.lanes = 32, .tile_m = 2, .tile_n = 70},
};

/* Raw bytes of the interpreter's answer. */
static void expect(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *input,
                   uint8_t *const *raw, uint32_t count, const sx_type *result, sx_buf *bytes)
{
    sx_tensor in[SX_INPUTS_MAX];
    sx_tensor out;
    for (uint32_t k = 0; k < count; k++) {
        ck_sx_ok(cx, sx_tensor_unpack(cx, &input[k], SX_EVAL_F64,
                                      (sx_span){raw[k], bytes_of(&input[k])}, &in[k]));
    }
    ck_sx_ok(cx, sx_node_eval(cx, op, attr, SX_EVAL_F64, in, count, result, &out));
    ck_sx_ok(cx, sx_tensor_pack(cx, &out, bytes));
}

static uint8_t *random_bytes(sx_ctx *cx, sx_rng *rng, const sx_type *type)
{
    uint8_t *p = sx_alloc(cx, bytes_of(type) + 1);
    int64_t elements = sx_tensor_elements(type);
    for (int64_t i = 0; i < elements; i++) {
        float f = sx_rng_f32(rng);
        int64_t w = (int64_t)sx_rng_below(rng, 2);
        memcpy(p + i * sx_dtype_bytes(type->dtype), type->dtype == SX_F32 ? (void *)&f : (void *)&w,
               sx_dtype_bytes(type->dtype));
    }
    return p;
}

static void prove(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *input, uint32_t count,
                  const sx_type *result, const sx_kernel *kernel)
{
    sx_judge *judge;
    sx_verdict verdict;
    ck_sx_ok(cx, sx_judge_make(cx, &judge));
    ck_sx_ok(cx, sx_judge_move(judge, op, attr, input, count, result, kernel, &verdict));
    if (!verdict.proven) {
        sx_buf text;
        sx_buf_init(&text, 1 << 24);
        sx_judge_print(judge, &text);
        (void)sx_kernel_print(cx, kernel, &text);
        sx_buf_put(&text, "", 1);
        (void)fprintf(stderr, "%.8000s\n", (const char *)text.ptr);
        sx_buf_fini(&text);
    }
    ck_assert_msg(verdict.proven, "%s: %s", sx_op_info_of(op)->name, verdict.text);
}

static void check(sx_ctx *cx, const sx_kernel *kernel, uint8_t *const *raw, uint32_t count,
                  const sx_buf *expected)
{
    void *buffer[SX_LOOP_BUFFERS_MAX];
    for (uint32_t k = 0; k < count; k++) {
        buffer[k] = raw[k];
    }
    uint8_t *out = exact_buffer(cx, (int64_t)expected->len);
    buffer[count] = out;
    ck_sx_ok(cx, sx_kernel_eval(cx, kernel, buffer));
    ck_assert_mem_eq(out, expected->ptr, expected->len);
    ck_assert_uint_eq(out[expected->len], 0xCC);
}

START_TEST(test_concatenate)
{
    static const sx_dtype dtypes[] = {SX_F32, SX_I64, SX_BOOL, SX_I32};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 40; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr attr = {.present = SX_A(axis), .axis = round % 3};
        int64_t extent[3];
        for (uint32_t d = 0; d < 3; d++) {
            extent[d] = 1 + (int64_t)sx_rng_below(&rng, round % 5 == 4 ? 70 : 9);
        }
        sx_type input[SX_INPUTS_MAX];
        uint8_t *raw[SX_INPUTS_MAX];
        uint32_t count = round < 3 ? SX_INPUTS_MAX : 1 + (uint32_t)sx_rng_below(&rng, 4);
        for (uint32_t k = 0; k < count; k++) {
            extent[attr.axis] = 1 + (int64_t)sx_rng_below(&rng, count > 4 ? 9 : 80);
            input[k] = type_of(dtypes[round % 4], 3, extent);
            raw[k] = random_bytes(&cx, &rng, &input[k]);
        }
        sx_type result;
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, SX_OP_CONCATENATE, &attr, input, count, &result));
        sx_buf bytes;
        sx_buf_init(&bytes, 1 << 24);
        expect(&cx, SX_OP_CONCATENATE, &attr, input, raw, count, &result, &bytes);
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            sx_kernel *kernel;
            ck_sx_ok(&cx, sx_lower_concatenate(&cx, "c", &attr, input, count, &result,
                                               move_schedule(&cx, &plans[p]), &kernel));
            prove(&cx, SX_OP_CONCATENATE, &attr, input, count, &result, kernel);
            check(&cx, kernel, raw, count, &bytes);
        }
        sx_buf_fini(&bytes);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_gather)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 40; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr attr = {.present = SX_A(axis), .axis = round % 3};
        int64_t extent[3];
        for (uint32_t d = 0; d < 3; d++) {
            extent[d] = 1 + (int64_t)sx_rng_below(&rng, round % 5 == 4 ? 70 : 9);
        }
        sx_type input[2] = {type_of(round % 4 == 3 ? SX_I64 : SX_F32, 3, extent),
                            TYPE(round % 2 == 0 ? SX_I32 : SX_I64, 1 + round % 7, 3)};
        uint8_t *raw[2] = {random_bytes(&cx, &rng, &input[0]), sx_alloc(&cx, bytes_of(&input[1]))};
        int64_t n = extent[attr.axis];
        for (int64_t i = 0; i < sx_tensor_elements(&input[1]); i++) {
            int64_t index = (int64_t)sx_rng_below(&rng, (uint64_t)(4 * n + 2)) - 2 * n - 1;
            memcpy(raw[1] + i * sx_dtype_bytes(input[1].dtype), &index,
                   sx_dtype_bytes(input[1].dtype));
        }
        sx_type result;
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, SX_OP_GATHER, &attr, input, 2, &result));
        sx_buf bytes;
        sx_buf_init(&bytes, 1 << 24);
        expect(&cx, SX_OP_GATHER, &attr, input, raw, 2, &result, &bytes);
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            sx_kernel *kernel;
            ck_sx_ok(&cx, sx_lower_gather(&cx, "g", &attr, input, 2, &result,
                                          move_schedule(&cx, &plans[p]), &kernel));
            prove(&cx, SX_OP_GATHER, &attr, input, 2, &result, kernel);
            check(&cx, kernel, raw, 2, &bytes);
        }
        sx_buf_fini(&bytes);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Even or odd places of many short rows, as the gradient of a stack of two along the last dimension has them: all rows
 * are one walk, which the grid cuts anywhere. */
static void interleave(sx_rng *rng, uint32_t rank, int64_t extent[4], sx_attr *attr)
{
    for (uint32_t d = 0; d + 1 < rank; d++) {
        extent[d] = 2 + (int64_t)sx_rng_below(rng, 20);
        attr->low.v[d] = attr->high.v[d] = attr->interior.v[d] = 0;
    }
    extent[rank - 1] = 2 << sx_rng_below(rng, 4);
    attr->interior.v[rank - 1] = 1;
    attr->low.v[rank - 1] = (int64_t)sx_rng_below(rng, 2);
    attr->high.v[rank - 1] = 1 - attr->low.v[rank - 1];
}

/* Ranks 0 to 4, every kind of padding, vectors that end in the middle; reversed dimensions inside and outside. */
START_TEST(test_pad_and_reverse)
{
    static const sx_dtype dtypes[] = {SX_F32, SX_I32, SX_BOOL};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 150; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr attr = {0};
        int64_t extent[4];
        uint32_t rank = (uint32_t)sx_rng_below(&rng, 5);
        bool pads = round % 3 != 0;
        attr.low.count = attr.high.count = attr.interior.count = pads ? rank : 0;
        for (uint32_t d = 0; d < rank; d++) {
            extent[d] = 1 + (int64_t)sx_rng_below(&rng, d + 1 == rank ? 70 : 5);
            attr.low.v[d] = pads && round % 2 == 0 ? (int64_t)sx_rng_below(&rng, 4) : 0;
            attr.high.v[d] = pads ? (int64_t)sx_rng_below(&rng, 4) : 0;
            attr.interior.v[d] = pads ? (int64_t)sx_rng_below(&rng, 5) / 3 : 0;
            if (!pads && sx_rng_below(&rng, 2) == 0) {
                attr.dims.v[attr.dims.count++] = d;
            }
        }
        if (pads && rank > 1 && round % 5 == 0) {
            interleave(&rng, rank, extent, &attr);
        }
        sx_op op = pads ? SX_OP_PAD : SX_OP_REVERSE;
        attr.present = sx_op_info_of(op)->attrs;
        sx_type input[2] = {type_of(dtypes[round / 3 % 3], rank, extent)};
        input[1] = (sx_type){.dtype = input[0].dtype};
        uint32_t count = pads ? 2 : 1;
        uint8_t *raw[2] = {random_bytes(&cx, &rng, &input[0]), random_bytes(&cx, &rng, &input[1])};
        sx_type result;
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, op, &attr, input, count, &result));
        sx_buf bytes;
        sx_buf_init(&bytes, 1 << 24);
        expect(&cx, op, &attr, input, raw, count, &result, &bytes);
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            sx_kernel *kernel;
            ck_sx_ok(&cx, pads ? sx_lower_pad(&cx, "p", &attr, input, &result,
                                              move_schedule(&cx, &plans[p]), &kernel)
                               : sx_lower_reverse(&cx, "r", &attr, input, &result,
                                                  move_schedule(&cx, &plans[p]), &kernel));
            prove(&cx, op, &attr, input, count, &result, kernel);
            check(&cx, kernel, raw, count, &bytes);
        }
        sx_buf_fini(&bytes);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_attr attr = {.present = SX_A(axis), .axis = 0};
    sx_type input[] = {TYPE(SX_F32, 1, 2), TYPE(SX_F32, 1, 2)};
    sx_type result = TYPE(SX_F32, 3, 2);
    sx_kernel *kernel;
    ck_sx_fails(&cx,
                sx_lower_concatenate(&cx, "c", &attr, input, 2, &result, move_schedule(&cx, plans),
                                     &kernel),
                SX_INPUT, "inputs of 16 bytes, result of 24");
    ck_sx_fails(
        &cx,
        sx_lower_gather(&cx, "g", &attr, input, 2, &result, move_schedule(&cx, plans), &kernel),
        SX_UNIMPLEMENTED, "indices of f32");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.move");
    TCase *cases = tcase_create("move");
    tcase_add_test(cases, test_concatenate);
    tcase_add_test(cases, test_gather);
    tcase_add_test(cases, test_pad_and_reverse);
    tcase_add_test(cases, test_refused);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
