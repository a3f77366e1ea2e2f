/* Elementwise kernels whose lanes hold several elements side by side: the PTX has accesses of 16 bytes where rows are
 * aligned and narrower ones where they are not, the judge proves the kernels, and every element is what a reference
 * in the test computes, bit for bit. */
#include "core/ir/num.h"
#include "core/search/search.h"
#include "tests/core/nvidia/lanes.h"
#include "tests/core/simt/launches.h"

/* a + b + c, where c is one row for all rows: rows and columns cannot become one dimension. */
typedef struct {
    sx_dtype dtype;
    const char *access; /* of an element of whole lines */
    uint32_t width;     /* elements of 16 bytes */
} stream_type;

static const stream_type types[] = {
    {SX_F32, "global.v4.b32", 4}, {SX_I32, "global.v4.b32", 4}, {SX_BF16, "global.v4.b32", 8},
    {SX_F16, "global.v4.b32", 8}, {SX_F64, "global.v2.b64", 2}, {SX_I64, "global.v2.b64", 2},
    {SX_I8, "global.v4.b32", 16}, {SX_U8, "global.v4.b32", 16},
};

static sx_ctx cx;
static uint64_t seed;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
    seed = sx_test_seed();
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static bool is_float(sx_dtype dtype)
{
    return sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
}

static node sum_node(const stream_type *t, int64_t rows, int64_t columns)
{
    sx_type x[2] = {TYPE(t->dtype, rows, columns), TYPE(t->dtype, rows, columns)};
    sx_attr none = {.present = 0};
    node n = lift(&cx, SX_OP_ADD, &none, x, 2);
    n = with_tensor(&cx, SX_OP_ADD, &n, TYPE(t->dtype, columns));
    sx_rng rng = {seed};
    for (uint32_t k = 0; k < n.count; k++) {
        uint32_t size = sx_dtype_bytes(t->dtype);
        int64_t elements = sx_tensor_elements(&n.input[k]);
        n.raw[k] = sx_alloc(&cx, (size_t)elements * size);
        for (int64_t i = 0; i < elements; i++) {
            uint64_t bits = is_float(t->dtype)
                                ? sx_num_encode(t->dtype, (double)sx_rng_f32(&rng) * 3)
                                : (uint64_t)sx_rng_below(&rng, 60);
            memcpy(n.raw[k] + (size_t)i * size, &bits, size);
        }
    }
    return n;
}

static uint64_t bits_at(const uint8_t *raw, sx_dtype dtype, int64_t at)
{
    uint64_t bits = 0;
    uint32_t size = sx_dtype_bytes(dtype);
    memcpy(&bits, raw + (size_t)at * size, size);
    return bits;
}

/* x + y of a type, rounded or wrapped. */
static uint64_t sum_of(sx_dtype dtype, uint64_t x, uint64_t y)
{
    uint64_t mask = UINT64_MAX >> (64 - 8 * sx_dtype_bytes(dtype));
    return is_float(dtype) ? sx_num_encode(dtype, sx_num_decode(dtype, x) + sx_num_decode(dtype, y))
                           : (x + y) & mask;
}

static void expect_sums(const node *n, const uint8_t *got)
{
    sx_dtype dtype = n->result.dtype;
    int64_t columns = n->result.dim[1].scale;
    for (int64_t i = 0; i < sx_tensor_elements(&n->result); i++) {
        int64_t at[3] = {i, i, i % columns};
        uint64_t x[3];
        for (uint32_t k = 0; k < 3; k++) {
            bool row = n->input[k].rank == 1;
            x[k] = bits_at(n->raw[k], dtype, row ? at[2] : at[0]);
        }
        /* The operands of the first sum are those of full rank. */
        uint32_t bias = n->input[0].rank == 1 ? 0 : n->input[1].rank == 1 ? 1 : 2;
        uint64_t first = sum_of(dtype, x[(bias + 1) % 3], x[(bias + 2) % 3]);
        uint64_t want = sum_of(dtype, first, x[bias]);
        ck_assert_msg(bits_at(got, dtype, i) == want, "%s: element %lld of %lld (SX_SEED=%llu)",
                      sx_dtype_name(dtype), (long long)i, (long long)sx_tensor_elements(&n->result),
                      (unsigned long long)seed);
    }
}

/* Rows of whole pieces, of pieces and a rest, of an odd length, of an even one that is no multiple of 16 bytes. */
START_TEST(test_widths)
{
    const stream_type *t = &types[_i];
    const sx_target *target = sx_target_find(NULL, "sm_80");
    int64_t piece = 32 * (int64_t)t->width;
    const int64_t columns[] = {2 * piece, 2 * piece + t->width, piece + 1, 2 * piece + 2};
    sx_judge *judge;
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    for (uint32_t c = 0; c < SX_COUNT(columns); c++) {
        node n = sum_node(t, 4, columns[c]);
        bool aligned = columns[c] % t->width == 0;
        for (uint32_t copies = 1; copies <= 2 && copies * t->width <= 16; copies++) {
            sx_schedule s;
            sx_buf text;
            sx_buf_init(&text, (size_t)1 << 22);
            uint32_t lanes =
                sx_vector_unit_lanes(&target->vectors, analysis_of(&cx, &n)->lane_bytes);
            sx_schedule_map_wide(lanes, t->width, 2, piece * copies, copies, &s);
            expect_proven(&cx, judge, &n, &s, sx_dtype_name(t->dtype));
            expect_sums(&n, run_on(&cx, target, &n, &s, &text));
            bool whole = columns[c] >= piece * copies;
            ck_assert(!whole || has(&text, "ld", t->access)); /* c at least, which is one row */
            ck_assert(has(&text, "st", t->access) == (aligned && whole));
            sx_buf_fini(&text);
        }
    }
}
END_TEST

/* The search takes 16 bytes at a time where it may, and the assembler keeps everything in registers. */
START_TEST(test_search)
{
    static const char *const names[] = {"sm_80", "sm_90"};
    static const char *const devices[] = {"a100", "h100"};
    const stream_type *t = &types[_i];
    node n = sum_node(t, 8, 1024);
    for (uint32_t k = 0; k < 2; k++) {
        const sx_target *target = sx_target_find(NULL, names[k]);
        const sx_analysis *a = analysis_of(&cx, &n);
        const sx_device *device;
        sx_search_result found;
        ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(devices[k]), &device));
        ck_sx_ok(&cx, sx_search_kernel(&cx, a, device, false, 1, &found));
        ck_assert_uint_eq(sx_schedule_width(&found.best[0].schedule), t->width);
        sx_buf text;
        sx_buf_init(&text, (size_t)1 << 22);
        expect_sums(&n, run_on(&cx, target, &n, &found.best[0].schedule, &text));
        ck_assert(has(&text, "ld", t->access) && has(&text, "st", t->access));
        /* 8 blocks of 128 threads on a core */
        expect_registers(&cx, &text, k == 0 ? "sm_80" : "sm_90a", 64);
        sx_buf_fini(&text);
    }
}
END_TEST

/* ---- transposes: squares that a warp turns in registers ---- */
/* x turned, [b, m, n] of [b, n, m], and with a row added where `more`. */
static node turned_node(sx_dtype dtype, int64_t b, int64_t m, int64_t n, bool more)
{
    sx_type x = TYPE(dtype, b, n, m);
    sx_attr perm = {.present = SX_A(perm), .perm = {3, {0, 2, 1}}};
    node made = lift(&cx, SX_OP_TRANSPOSE, &perm, &x, 1);
    made = more ? with_tensor(&cx, SX_OP_ADD, &made, TYPE(dtype, n)) : made;
    sx_rng rng = {seed};
    for (uint32_t k = 0; k < made.count; k++) {
        uint32_t size = sx_dtype_bytes(dtype);
        int64_t elements = sx_tensor_elements(&made.input[k]);
        made.raw[k] = sx_alloc(&cx, (size_t)elements * size);
        for (int64_t i = 0; i < elements; i++) {
            uint64_t bits = is_float(dtype) ? sx_num_encode(dtype, (double)sx_rng_f32(&rng) * 3)
                                            : (uint64_t)sx_rng_below(&rng, 60);
            memcpy(made.raw[k] + (size_t)i * size, &bits, size);
        }
    }
    return made;
}

static void expect_turned(const node *made, int64_t m, int64_t n, bool more, const uint8_t *got)
{
    sx_dtype dtype = made->result.dtype;
    uint32_t matrix = made->input[0].rank == 3 ? 0 : 1;
    for (int64_t i = 0; i < sx_tensor_elements(&made->result); i++) {
        int64_t of = i / (m * n), row = i / n % m, column = i % n;
        uint64_t want = bits_at(made->raw[matrix], dtype, (of * n + column) * m + row);
        if (more) {
            want = sum_of(dtype, want, bits_at(made->raw[1 - matrix], dtype, column));
        }
        ck_assert_msg(bits_at(got, dtype, i) == want, "%s: element %lld of %lld x %lld",
                      sx_dtype_name(dtype), (long long)i, (long long)m, (long long)n);
    }
}

/* Of every type of at most 4 bytes, whole squares and the rest along both sides, in batches. */
START_TEST(test_squares)
{
    static const int64_t sides[][3] = {{1, 64, 96}, {3, 45, 70}, {2, 32, 33}, {1, 63, 32}};
    const stream_type *t = &types[_i];
    const sx_target *target = sx_target_find(NULL, "sm_80");
    sx_judge *judge;
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    for (uint32_t i = 0; i < 2 * SX_COUNT(sides); i++) {
        const int64_t *side = sides[i / 2];
        bool more = i % 2 != 0, turns = sx_dtype_bytes(t->dtype) <= 4;
        node n = turned_node(t->dtype, side[0], side[1], side[2], more);
        sx_schedule s;
        sx_buf text;
        sx_buf_init(&text, (size_t)1 << 24);
        uint32_t lanes = sx_vector_unit_lanes(&target->vectors, analysis_of(&cx, &n)->lane_bytes);
        sx_schedule_map(lanes, 32, 32, 1, &s);
        expect_proven(&cx, judge, &n, &s, sx_dtype_name(t->dtype));
        expect_turned(&n, side[1], side[2], more, run_on(&cx, target, &n, &s, &text));
        ck_assert(has(&text, "shfl", "sync") == turns);
        sx_buf_fini(&text);
    }
}
END_TEST

/* The lines that a kernel touches: sectors of 32 bytes, by instructions of a warp. */
static uint64_t sectors_of(const node *n, const sx_schedule *s)
{
    const sx_target *target = sx_target_find(NULL, "sm_80");
    sx_target_code code;
    sx_ptx_module *module;
    launches l;
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 24);
    const sx_kernel *kernel = emit_on(&cx, target, n, s, &text, &code);
    ck_assert_uint_eq(kernel->part_count, 1);
    const int64_t *grid = kernel->part[0].grid;
    uint32_t points = (uint32_t)(grid[0] * grid[1] * grid[2]);
    ck_sx_ok(&cx, sx_ptx_parse(&cx, sx_span_of((const char *)text.ptr), &module));
    launch_begin(&l, module, module->kernel[0].name, (sx_ptx_dim){points, 1, 1},
                 (sx_ptx_dim){32, 1, 1});
    launch_in(&l, "argument", n->raw[0], bytes_of(&n->input[0]));
    launch_out(&l, "result", exact_buffer(&cx, bytes_of(&n->result)), bytes_of(&n->result));
    launch_number(&l, 0);
    launch_number(&l, points);
    ck_sx_ok(&cx, launch_run(&cx, &l, 0, false));
    sx_buf_fini(&text);
    return l.outcome.statistics.global_sectors;
}

/* Each byte of a square is of one sector that is touched once; read where it lies, an element of f32 costs eight times
 * its bytes. The price says so, for what has more squares than the device has cores. */
START_TEST(test_lines)
{
    static const sx_dtype dtypes[] = {SX_F32, SX_BF16};
    sx_dtype dtype = dtypes[_i];
    sx_schedule squares, apart;
    sx_search_result found;
    const sx_device *device;
    node few = turned_node(dtype, 1, 128, 256, false);
    uint64_t least = 2 * bytes_of(&few.result) / 32;
    sx_schedule_map(32, 32, 32, 1, &squares);
    sx_schedule_map(32, 1, 128, 4, &apart);
    ck_assert_uint_eq(sectors_of(&few, &squares), least);
    ck_assert_uint_ge(sectors_of(&few, &apart), 4 * least);
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of("h100"), &device));
    sx_type x = TYPE(dtype, 1, 4096, 4096);
    sx_attr perm = {.present = SX_A(perm), .perm = {3, {0, 2, 1}}};
    node many = lift(&cx, SX_OP_TRANSPOSE, &perm, &x, 1);
    const sx_analysis *a = analysis_of(&cx, &many);
    ck_sx_ok(&cx, sx_search_kernel(&cx, a, device, false, 1, &found));
    ck_assert_uint_ne(sx_schedule_turned_rows(a, &found.best[0].schedule), SX_NO_DIM);
    double turned_ns = sx_cost_schedule(device, a, &squares, false);
    ck_assert_double_gt(sx_cost_schedule(device, a, &apart, false), 1.4 * turned_ns);
    sx_buf text;
    sx_target_code code;
    sx_buf_init(&text, (size_t)1 << 24);
    (void)emit_on(&cx, sx_target_find(NULL, "sm_90"), &many, &squares, &text, &code);
    expect_registers(&cx, &text, "sm_90a", 96);
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stream");
    TCase *tcase = tcase_create("stream");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_widths, 0, (int)SX_COUNT(types));
    tcase_add_loop_test(tcase, test_search, 0, (int)SX_COUNT(types));
    tcase_add_loop_test(tcase, test_squares, 0, (int)SX_COUNT(types));
    tcase_add_loop_test(tcase, test_lines, 0, 2);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
