/* Reductions across the rows, whose lanes hold a row each: the bits of the numerics plan in lines of the chain, by one
 * warp and by blocks that walk the pieces of a long one, proven by the judge; what the search takes for them. */
#include "core/search/search.h"
#include "tests/core/nvidia/rows.h"

#include <math.h>

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Rows of [planes, length, columns] added up, or their maximum, or that of a product, along the middle. */
typedef enum { ACROSS_SUM, ACROSS_MAX, ACROSS_PRODUCT, ACROSS_COUNT } across_case;

static node across_node(across_case which, sx_dtype dtype, const int64_t extent[3])
{
    sx_type x[2] = {TYPE(dtype, extent[0], extent[1], extent[2]),
                    TYPE(dtype, extent[0], extent[1], extent[2])};
    sx_attr none = {.present = 0};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_REDUCE)->attrs,
                    .reducer = which == ACROSS_MAX ? SX_MAX : SX_SUM,
                    .dims = {1, {1}}};
    node sums = lift(&cx, SX_OP_REDUCE, &attr, x, 1);
    node product = lift(&cx, SX_OP_MULTIPLY, &none, x, 2);
    return which == ACROSS_PRODUCT ? inlined(&cx, &sums, 0, &product) : sums;
}

/* The value of a row in steps `first` to `end` - 1, in ascending order, every one rounded to f32. */
static float chain_of(across_case which, const node *n, int64_t from, int64_t apart, int64_t first,
                      int64_t end)
{
    sx_dtype dtype = n->input[0].dtype;
    float chain = which == ACROSS_MAX ? -HUGE_VALF : 0;
    for (int64_t k = first; k < end; k++) {
        float x = (float)at(n->raw[0], dtype, from + k * apart);
        float y = n->count > 1 ? (float)at(n->raw[1], dtype, from + k * apart) : 1;
        float product = x * y;
        chain = which == ACROSS_MAX ? fmaxf(chain, product) : chain + product;
    }
    return chain;
}

/* One chain, of more than 4096 steps those of its pieces, which are added in ascending order: these bits and no
 * others. */
static void expect_chain(across_case which, const node *n, const int64_t extent[3],
                         const uint8_t *got)
{
    sx_dtype dtype = n->result.dtype;
    int64_t length = extent[1], count = length > 4096 ? 32 : 1;
    while (count > 1 && length / count < 1024) {
        count /= 2;
    }
    int64_t piece = count > 1 ? length / count / 64 * 64 : length;
    for (int64_t i = 0; i < extent[0] * extent[2]; i++) {
        int64_t from = i / extent[2] * length * extent[2] + i % extent[2];
        float all = which == ACROSS_MAX ? -HUGE_VALF : 0;
        for (int64_t k = 0; k < length; k = k < count * piece ? k + piece : length) {
            int64_t end = k < count * piece ? k + piece : length;
            float chain = chain_of(which, n, from, extent[2], k, end);
            all = which == ACROSS_MAX ? fmaxf(all, chain) : all + chain;
        }
        uint64_t want = sx_num_encode(dtype, (double)all);
        ck_assert_msg(memcmp(&want, got + i * sx_dtype_bytes(dtype), sx_dtype_bytes(dtype)) == 0,
                      "case %d, length %lld, element %lld: %g, not %g", which, (long long)length,
                      (long long)i, at(got, dtype, i), (double)all);
    }
}

/* Across the rows, in lines of a chain and without: proven, and the same bits; what a line reads is loaded before it is
 * used. */
START_TEST(test_lines)
{
    static const int64_t chains[] = {5, 64, 70, 203};
    static const char *const targets[] = {"sm_80", "sm_86", "sm_89", "sm_90"};
    across_case which = (across_case)(_i % ACROSS_COUNT);
    sx_dtype dtype = _i < ACROSS_COUNT || which == ACROSS_PRODUCT ? SX_F32 : SX_BF16;
    sx_judge *judge;
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    for (uint32_t t = 0; t < SX_COUNT(chains); t++) {
        const int64_t extent[3] = {2, chains[t], 40};
        static const uint32_t lines[] = {1, 8, 64};
        node n = across_node(which, dtype, extent);
        fill(&cx, &n, sx_test_seed() + t);
        for (uint32_t k = 0; k < SX_COUNT(lines); k++) {
            sx_schedule s;
            sx_buf text;
            char form[64];
            sx_buf_init(&text, (size_t)1 << 24);
            sx_schedule_row(32, 4, false, 1, 32, &s);
            if (lines[k] > 1) {
                sx_schedule_row_line(lines[k], &s);
            }
            (void)snprintf(form, sizeof(form), "%lld rows in lines of %u", (long long)chains[t],
                           lines[k]);
            expect_proven(&cx, judge, &n, &s, form);
            const uint8_t *got = run_on(&cx, sx_target_find(NULL, targets[t]), &n, &s, &text);
            expect_chain(which, &n, extent, got);
            char *use = strstr((char *)text.ptr, "add.rn");
            ck_assert((use != NULL) == (which != ACROSS_MAX));
            if (use != NULL) {
                *use = '\0';
            }
            uint32_t loads = count_of(&text, "ld.global");
            uint32_t least = chains[t] >= lines[k] ? lines[k] : (uint32_t)chains[t];
            ck_assert_msg(lines[k] == 1 || loads >= least * n.count, "%s: %u loads", form, loads);
            sx_buf_fini(&text);
        }
    }
}
END_TEST

/* What the search takes for sums of a gradient over all tokens: no more than twice the floor, and nothing spills. */
START_TEST(test_lines_search)
{
    static const char *const devices[] = {"a100", "h100", "h200", "rtx3090", "rtx4090"};
    const int64_t extent[3] = {1, 8192, 4096};
    const sx_device *device;
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(devices[_i]), &device));
    for (across_case c = ACROSS_SUM; c < ACROSS_COUNT; c++) {
        node n = across_node(c, SX_F32, extent);
        const sx_analysis *a = analysis_of(&cx, &n);
        sx_search_result found;
        sx_target_code code;
        sx_buf text;
        sx_buf_init(&text, (size_t)1 << 24);
        ck_sx_ok(&cx, sx_search_kernel(&cx, a, device, false, 1, &found));
        const sx_schedule *s = &found.best[0].schedule;
        ck_assert_int_gt(sx_schedule_step(s, SX_ROLE_SUM, SX_BIND_LOOP, 0), 1);
        double floor_ns = sx_cost_floor(device, a);
        double ns = sx_cost_schedule(device, a, s, false);
        ck_assert_msg(ns >= floor_ns && ns <= 2 * floor_ns + device->launch_ns, "%s: %g us over %g",
                      devices[_i], ns / 1e3, floor_ns / 1e3);
        (void)emit_on(&cx, sx_target_find(NULL, device->target), &n, s, &text, &code);
        expect_registers(&cx, &text, device->target, 255);
        sx_buf_fini(&text);
    }
}
END_TEST

/* Schedules across the rows: by one warp where `warps` is 0. */
static void across_schedule(const sx_row_pieces *cut, uint32_t line, uint32_t warps, sx_schedule *s)
{
    sx_schedule_row(32, 4, false, 1, 32, s);
    if (line > 1) {
        sx_schedule_row_line(line, s);
    }
    if (warps > 0) {
        sx_schedule_row_warps(cut, warps, s);
    }
}

/* The bits by lanes of x86-64, in the interpreter of the loop IR. */
static void expect_lanes(const node *n, const uint8_t *got)
{
    sx_schedule s;
    sx_kernel *kernel;
    void *buffer[SX_LOOP_BUFFERS_MAX];
    sx_schedule_row(16, 4, false, 1, 64, &s);
    ck_sx_ok(&cx, sx_lower_fused(&cx, sx_test_unit(&s), "plan", analysis_of(&cx, n), &s, &kernel));
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        buffer[k] = k < n->count ? n->raw[k] : sx_alloc(&cx, (size_t)kernel->buffer[k].size);
    }
    ck_sx_ok(&cx, sx_kernel_eval(&cx, kernel, buffer));
    ck_assert_mem_eq(got, buffer[n->count],
                     (size_t)sx_tensor_elements(&n->result) * sx_dtype_bytes(n->result.dtype));
}

static const int64_t long_chains[] = {4097, 5000, 8192};

/* Chains that are cut, by one warp and by blocks whose warps have one piece each, or two: proven, and the same bits. */
START_TEST(test_pieces)
{
    across_case which = (across_case)(_i % ACROSS_COUNT);
    int64_t length = long_chains[_i / ACROSS_COUNT];
    const int64_t extent[3] = {2, length, 40};
    bool narrow = length == 5000 && which != ACROSS_PRODUCT;
    node n = across_node(which, narrow ? SX_BF16 : SX_F32, extent);
    const sx_row_pieces cut = sx_row_cut(length, 4);
    static const uint32_t lines[] = {1, 8, 64};
    sx_judge *judge;
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    fill(&cx, &n, sx_test_seed());
    for (uint32_t k = 0; k < SX_COUNT(lines); k++) {
        uint32_t warps = k == 0 ? 0 : (uint32_t)cut.count / k;
        sx_schedule s;
        sx_buf text;
        char form[64];
        sx_buf_init(&text, (size_t)1 << 24);
        across_schedule(&cut, lines[k], warps, &s);
        (void)snprintf(form, sizeof(form), "%lld rows by %u warps", (long long)length, warps);
        expect_proven(&cx, judge, &n, &s, form);
        const uint8_t *got = run_on(&cx, sx_target_find(NULL, "sm_90"), &n, &s, &text);
        expect_chain(which, &n, extent, got);
        expect_lanes(&n, got);
        ck_assert((warps > 0) == has(&text, "bar", "sync"));
        sx_buf_fini(&text);
    }
}
END_TEST

/* Softmax down long columns, three walks by the warps of a block, and sums in lanes of 8 bytes: proven, and the bits of
 * one warp. */
START_TEST(test_walks)
{
    bool softmax = _i == 0;
    sx_dtype dtype = softmax ? SX_F32 : SX_F64;
    uint32_t bytes = sx_dtype_bytes(dtype);
    sx_type x = TYPE(dtype, 5000, 33);
    sx_attr attr = {.present = SX_A(axis), .axis = 0};
    if (!softmax) {
        attr = (sx_attr){.present = sx_op_info_of(SX_OP_REDUCE)->attrs, .reducer = SX_SUM};
        attr.dims = (sx_ints){1, {0}};
    }
    node n = lift(&cx, softmax ? SX_OP_SOFTMAX : SX_OP_REDUCE, &attr, &x, 1);
    const sx_row_pieces cut = sx_row_cut(5000, bytes);
    const uint8_t *first = NULL;
    sx_judge *judge;
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    fill(&cx, &n, sx_test_seed());
    for (uint32_t warps = 0; warps <= cut.count; warps += (uint32_t)cut.count) {
        sx_schedule s;
        sx_buf text;
        sx_buf_init(&text, (size_t)1 << 24);
        sx_schedule_row(32, bytes, false, 1, 32, &s);
        if (warps > 0) {
            sx_schedule_row_warps(&cut, warps, &s);
        }
        expect_proven(&cx, judge, &n, &s, sx_dtype_name(dtype));
        const uint8_t *got = run_on(&cx, sx_target_find(NULL, "sm_80"), &n, &s, &text);
        first = warps == 0 ? got : first;
        ck_assert_mem_eq(got, first, (size_t)sx_tensor_elements(&n.result) * bytes);
        sx_buf_fini(&text);
    }
}
END_TEST

/* The bits of a sum follow from its length, whatever there is beside it, by what the search takes for each. */
START_TEST(test_beside)
{
    static const int64_t columns[] = {1, 8, 33, 200};
    const sx_device *device;
    const uint8_t *first = NULL;
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of("h100"), &device));
    for (uint32_t k = 0; k < SX_COUNT(columns); k++) {
        const int64_t extent[3] = {k + 1, 4500, columns[k]};
        node n = across_node(ACROSS_SUM, SX_F32, extent);
        sx_search_result found;
        sx_buf text;
        sx_buf_init(&text, (size_t)1 << 24);
        fill(&cx, &n, 3);
        for (int64_t i = 0; i < extent[1]; i++) { /* the first row is the same */
            memcpy(n.raw[0] + (size_t)(i * extent[2]) * 4, &(float){sinf((float)i)}, 4);
        }
        ck_sx_ok(&cx, sx_search_kernel(&cx, analysis_of(&cx, &n), device, false, 1, &found));
        const uint8_t *got =
            run_on(&cx, sx_target_find(NULL, "sm_90"), &n, &found.best[0].schedule, &text);
        first = k == 0 ? got : first;
        ck_assert_mem_eq(got, first, 4);
        sx_buf_fini(&text);
    }
}
END_TEST

/* What is touched with a fault: the judge proves none of these programs. */
START_TEST(test_faults)
{
    const int64_t extent[3] = {1, 4500, 64};
    node n = across_node(ACROSS_SUM, SX_F32, extent);
    const sx_row_pieces cut = sx_row_cut(4500, 4);
    uint32_t planted = 0;
    sx_judge *judge;
    sx_schedule s;
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    across_schedule(&cut, 8, 4, &s);
    for (uint32_t fault = 0; fault < FAULTS; fault++) {
        planted += plant_all(&cx, judge, &n, &s, fault);
    }
    ck_assert_uint_ge(planted, 20);
}
END_TEST

/* The barrier in front of the sums that other warps left is needed; so is the one before these are left again, for the
 * next rows. */
START_TEST(test_barriers)
{
    static const char barrier[] = "bar.sync 0;";
    const sx_target *target = sx_target_find(NULL, "sm_90");
    const int64_t extent[3] = {1, 8192, 64};
    node n = across_node(ACROSS_SUM, SX_F32, extent);
    const sx_row_pieces cut = sx_row_cut(8192, 4);
    sx_schedule s;
    sx_target_code code;
    sx_buf text;
    const uint8_t *result;
    uint32_t needed = 0;
    fill(&cx, &n, 3);
    sx_buf_init(&text, (size_t)1 << 24);
    sx_schedule_row(32, 4, false, 1, 64, &s); /* two vectors of rows, one after the other */
    sx_schedule_row_line(8, &s);
    sx_schedule_row_warps(&cut, 8, &s);
    const sx_kernel *kernel = emit_on(&cx, target, &n, &s, &text, &code);
    ck_sx_ok(&cx, run_text(&cx, target, &n, kernel, &code, &text, &result));
    for (char *p = (char *)text.ptr; (p = strstr(p, barrier)) != NULL; p++) {
        memset(p, ' ', sizeof(barrier) - 1);
        needed += run_text(&cx, target, &n, kernel, &code, &text, &result) != SX_OK ? 1 : 0;
        sx_ctx_reset_error(&cx);
        memcpy(p, barrier, sizeof(barrier) - 1);
    }
    ck_assert_uint_ge(needed, 1);
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("across");
    TCase *tcase = tcase_create("across");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_lines, 0, 2 * ACROSS_COUNT);
    tcase_add_loop_test(tcase, test_lines_search, 0, 5);
    tcase_add_test(tcase, test_beside);
    tcase_add_test(tcase, test_faults);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("pieces");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_pieces, 0, (int)SX_COUNT(long_chains) * ACROSS_COUNT);
    tcase_add_loop_test(tcase, test_walks, 0, 2);
    tcase_add_test(tcase, test_barriers);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
