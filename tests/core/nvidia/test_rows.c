/* Rows whose lanes have two elements side by side: the bits of the numerics plan whatever the form, proven by the
 * judge; the same for a row in every batch; rows that registers hold are read once. */
#include "core/ir/num.h"
#include "core/search/search.h"
#include "tests/core/nvidia/rows.h"

#include <math.h>

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 29);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

typedef enum { CASE_SOFTMAX, CASE_NORM, CASE_SUM, CASE_MAX, CASE_COUNT } row_case;

static node case_node(row_case which, sx_dtype dtype, int64_t rows, int64_t length)
{
    sx_type x[3] = {TYPE(dtype, rows, length), TYPE(dtype, length), TYPE(dtype, length)};
    sx_attr attr = {.present = SX_A(axis), .axis = 1, .eps = 1e-5};
    if (which == CASE_SOFTMAX || which == CASE_NORM) {
        attr.present |= which == CASE_NORM ? SX_A(eps) : 0;
        return lift(&cx, which == CASE_NORM ? SX_OP_LAYER_NORM : SX_OP_SOFTMAX, &attr, x,
                    which == CASE_NORM ? 3 : 1);
    }
    attr = (sx_attr){.present = sx_op_info_of(SX_OP_REDUCE)->attrs,
                     .reducer = which == CASE_SUM ? SX_SUM : SX_MAX};
    attr.dims = (sx_ints){1, {1}};
    return lift(&cx, SX_OP_REDUCE, &attr, x, 1);
}

/* The row in double precision, in one pass after another. `scale`: of the error that a rounding may have made. */
static double reference(row_case which, const node *n, int64_t length, int64_t i, double *scale)
{
    sx_dtype dtype = n->input[0].dtype;
    bool full = which == CASE_SOFTMAX || which == CASE_NORM;
    int64_t row = full ? i / length : i;
    double most = -HUGE_VAL, sum = 0, size = 0, exps = 0, squares = 0;
    for (int64_t k = 0; k < length; k++) {
        double x = at(n->raw[0], dtype, row * length + k);
        most = fmax(most, x);
        sum += x;
        size += fabs(x);
    }
    double mean = sum / (double)length;
    for (int64_t k = 0; k < length; k++) {
        double x = at(n->raw[0], dtype, row * length + k);
        exps += exp(x - most);
        squares += (x - mean) * (x - mean);
    }
    double x = at(n->raw[0], dtype, i);
    *scale = size;
    switch (which) {
    case CASE_SUM: return sum;
    case CASE_MAX: return most;
    case CASE_SOFTMAX: *scale = exp(x - most) / exps; return *scale;
    default: break;
    }
    double one = (x - mean) / sqrt(squares / (double)length + 1e-5);
    double weight = at(n->raw[1], dtype, i % length), bias = at(n->raw[2], dtype, i % length);
    *scale = fabs(one * weight) + fabs(bias) + fabs(weight);
    return one * weight + bias;
}

/* Sums of n terms by 64 chains: n / 64 + 6 roundings of what is summed, and some of functions and of the result. */
static void expect_near(row_case which, const node *n, int64_t length, const uint8_t *got)
{
    sx_dtype dtype = n->result.dtype;
    double unit = dtype == SX_F32 ? ldexp(1, -24) : dtype == SX_F16 ? ldexp(1, -11) : ldexp(1, -8);
    int64_t all = sx_tensor_elements(&n->result);
    for (int64_t i = 0; i<all; i += all> 2048 ? all / 29 : 1) { /* some of a long row */
        double scale;
        double want = reference(which, n, length, i, &scale);
        double allowed = scale * (unit * 8 + ldexp((double)length / 64 + 16, -24)) + ldexp(1, -24);
        double error = fabs(at(got, dtype, i) - want);
        ck_assert_msg(error <= allowed, "case %d of %s, length %lld, element %lld: %g, not %g",
                      which, sx_dtype_name(dtype), (long long)length, (long long)i,
                      at(got, dtype, i), want);
    }
}

/* The bits of the plan by another form of it: 16 lanes, in the interpreter of the loop IR. */
static void expect_plan(const node *n, const uint8_t *got)
{
    sx_schedule s;
    sx_kernel *kernel;
    void *buffer[SX_LOOP_BUFFERS_MAX];
    sx_schedule_row(16, 4, true, 1, 1, &s);
    ck_sx_ok(&cx, sx_lower_fused(&cx, sx_test_unit(&s), "plan", analysis_of(&cx, n), &s, &kernel));
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        buffer[k] = k < n->count ? n->raw[k] : sx_alloc(&cx, (size_t)kernel->buffer[k].size);
    }
    ck_sx_ok(&cx, sx_kernel_eval(&cx, kernel, buffer));
    ck_assert_mem_eq(got, buffer[n->count], bytes_of(&n->result));
}

static const int64_t lengths[] = {2, 15, 63, 64, 65, 200, 330};

START_TEST(test_forms)
{
    static const sx_dtype dtypes[] = {SX_F32, SX_BF16, SX_F16};
    const sx_target *target = sx_target_find(NULL, "sm_80");
    uint64_t seed = sx_test_seed();
    row_case which = (row_case)((uint32_t)_i / SX_COUNT(dtypes));
    sx_judge *judge;
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    for (uint32_t t = 0; t < SX_COUNT(lengths); t++) {
        sx_dtype dtype = dtypes[(uint32_t)_i % SX_COUNT(dtypes)];
        int64_t length = lengths[t];
        node n = case_node(which, dtype, 3, length);
        fill(&cx, &n, seed + t);
        uint32_t whole = (uint32_t)sx_ceil_div_i64(length, 64);
        const uint32_t chunks[] = {whole, 2, 1}; /* held, and in lines of a loop */
        for (uint32_t k = 0; k < SX_COUNT(chunks); k++) {
            sx_schedule s;
            sx_buf text;
            sx_buf_init(&text, (size_t)1 << 24);
            sx_schedule_row_wide(2, chunks[k], &s);
            char form[96];
            (void)snprintf(form, sizeof(form), "%s, rows of %lld in lines of %u chunks",
                           sx_dtype_name(dtype), (long long)length, chunks[k]);
            expect_proven(&cx, judge, &n, &s, form);
            const uint8_t *got = run_on(&cx, target, &n, &s, &text);
            expect_plan(&n, got);
            expect_near(which, &n, length, got);
            ck_assert(length < 64 ||
                      has(&text, "ld", dtype == SX_F32 ? "global.v2.b32" : "global.b32") ||
                      length % 2 != 0);
            sx_buf_fini(&text);
        }
    }
}
END_TEST

/* Long rows by one warp, and by the warps of a block with one piece of the plan each, or two: the bits of the plan. */
START_TEST(test_warps)
{
    static const int64_t long_rows[] = {4097, 5000, 8192, 33001};
    static const sx_dtype dtypes[] = {SX_F32, SX_BF16, SX_F32, SX_F16};
    const sx_target *target = sx_target_find(NULL, "sm_90");
    row_case which = (row_case)((uint32_t)_i / SX_COUNT(long_rows));
    uint32_t k = (uint32_t)_i % SX_COUNT(long_rows);
    int64_t length = long_rows[k];
    sx_row_pieces cut = sx_row_cut(length, 4);
    node n = case_node(which, dtypes[k], 2, length);
    sx_judge *judge;
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    fill(&cx, &n, sx_test_seed());
    for (uint32_t form = 0; form < 4; form++) {
        uint32_t warps = form == 0 ? 0 : (uint32_t)cut.count / (form == 1 ? 2 : 1);
        sx_schedule s;
        sx_buf text;
        sx_buf_init(&text, (size_t)1 << 24);
        if (form == 3) {
            sx_schedule_row(32, 4, true, 1, 1, &s);
        } else {
            sx_schedule_row_wide(1, 8, &s);
        }
        if (warps > 0) {
            sx_schedule_row_warps(&cut, warps, &s);
        }
        char name[96];
        (void)snprintf(name, sizeof(name), "%s, rows of %lld by %u warps", sx_dtype_name(dtypes[k]),
                       (long long)length, warps);
        expect_proven(&cx, judge, &n, &s, name);
        const uint8_t *got = run_on(&cx, target, &n, &s, &text);
        expect_plan(&n, got);
        expect_near(which, &n, length, got);
        ck_assert((warps > 0) == has(&text, "bar", "sync"));
        sx_buf_fini(&text);
    }
}
END_TEST

/* A row's bits in batches of every size, by what the search takes for each. */
START_TEST(test_batches)
{
    static const int64_t batches[] = {1, 2, 5, 64};
    const sx_device *device;
    const sx_target *target = sx_target_find(NULL, "sm_90");
    int64_t length = _i == 2 ? 5000 : 200 + _i;
    uint8_t *first = NULL;
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of("h100"), &device));
    for (uint32_t k = 0; k < SX_COUNT(batches); k++) {
        node n = case_node(CASE_SOFTMAX, SX_F32, batches[k], length);
        fill(&cx, &n, 7);
        sx_search_result found;
        sx_buf text;
        sx_buf_init(&text, (size_t)1 << 24);
        ck_sx_ok(&cx, sx_search_kernel(&cx, analysis_of(&cx, &n), device, false, 1, &found));
        ck_assert_uint_eq(sx_schedule_width(&found.best[0].schedule), 2);
        const uint8_t *got = run_on(&cx, target, &n, &found.best[0].schedule, &text);
        first = k == 0 ? (uint8_t *)(uintptr_t)got : first;
        ck_assert_mem_eq(got, first, (size_t)length * 4);
        sx_buf_fini(&text);
    }
}
END_TEST

/* What the search takes for rows of models: held rows are loaded once, few long ones are the work of blocks, and the
 * assembler spills nothing. */
START_TEST(test_search)
{
    static const int64_t widths[] = {768, 2048, 16384, 65536};
    static const char *const devices[] = {"a100", "h100"};
    int64_t length = widths[_i / 2];
    const sx_device *device;
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(devices[_i % 2]), &device));
    for (row_case c = CASE_SOFTMAX; c < CASE_SUM; c++) {
        node n = case_node(c, SX_F32, length > 16384 ? 16 : 4096, length);
        sx_search_result found;
        sx_lowering what = {.kind = SX_LOWER_FUSED, .name = "k", .analysis = analysis_of(&cx, &n)};
        const sx_target *target = sx_target_find(NULL, device->target);
        sx_kernel *kernel;
        sx_target_code code;
        sx_buf text;
        ck_sx_ok(&cx, sx_search_kernel(&cx, what.analysis, device, false, 1, &found));
        what.schedule = &found.best[0].schedule;
        ck_assert_uint_eq(sx_schedule_width(what.schedule), 2);
        ck_sx_ok(&cx, sx_target_lower(&cx, target, &what, &kernel));
        sx_buf_init(&text, (size_t)1 << 24);
        ck_sx_ok(&cx, target->emit(&cx, target, kernel, false, &text, &code));
        int64_t warp = sx_schedule_step(what.schedule, SX_ROLE_SUM, SX_BIND_WARP, 0);
        ck_assert(length == 16384 || (warp > 0) == (length > SX_ROW_CUT));
        bool held = sx_schedule_step(what.schedule, SX_ROLE_SUM, SX_BIND_LOOP, 0) >= length;
        ck_assert(held == (length <= 2048));
        uint32_t arguments = c == CASE_NORM ? 3 : 1;
        ck_assert(!held || count_of(&text, "ld.global") == arguments * (uint32_t)length / 64);
        expect_registers(&cx, &text, _i % 2 == 0 ? "sm_80" : "sm_90a", 255);
        sx_buf_fini(&text);
    }
}
END_TEST

/* Each instruction in which lanes meet or memory is touched, with a fault: the judge proves none of these programs. */
START_TEST(test_faults)
{
    uint32_t planted = 0;
    sx_judge *judge;
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    bool by_warps = _i == 2;
    node n = case_node(CASE_SOFTMAX, SX_F32, 3, by_warps ? 5000 : 200 + _i);
    sx_row_pieces cut = sx_row_cut(5000, 4);
    sx_schedule s;
    sx_schedule_row_wide(1, _i == 0 ? 4 : 2, &s);
    if (by_warps) {
        sx_schedule_row_warps(&cut, 4, &s);
    }
    for (uint32_t fault = 0; fault < FAULTS; fault++) {
        planted += fault != FAULT_PIECE ? plant_all(&cx, judge, &n, &s, fault) : 0;
    }
    ck_assert_uint_ge(planted, 30);
}
END_TEST

/* Each barrier of a block left out: warps that read sums before they are there are seen. Behind the others nothing is
 * read that was stored before: at the start of a loop, because reductions have places of their own, and at the end. */
START_TEST(test_barriers)
{
    static const char barrier[] = "bar.sync 0;";
    static const bool needed[] = {false, true, false, true, false, false};
    const sx_target *target = sx_target_find(NULL, "sm_90");
    node n = case_node(CASE_SOFTMAX, SX_F32, 2, 8192);
    sx_row_pieces cut = sx_row_cut(8192, 4);
    sx_schedule s;
    sx_target_code code;
    sx_buf text;
    const uint8_t *result;
    fill(&cx, &n, 3);
    sx_buf_init(&text, (size_t)1 << 24);
    sx_schedule_row_wide(1, 8, &s);
    sx_schedule_row_warps(&cut, 8, &s);
    const sx_kernel *kernel = emit_on(&cx, target, &n, &s, &text, &code);
    ck_sx_ok(&cx, run_text(&cx, target, &n, kernel, &code, &text, &result));
    uint32_t count = 0;
    for (char *p = (char *)text.ptr; (p = strstr(p, barrier)) != NULL; p++, count++) {
        ck_assert_uint_lt(count, SX_COUNT(needed));
        memset(p, ' ', sizeof(barrier) - 1);
        sx_code ran = run_text(&cx, target, &n, kernel, &code, &text, &result);
        ck_assert_msg((ran == SX_OK) == !needed[count], "barrier %u: %s", count, cx.error.text);
        sx_ctx_reset_error(&cx);
        memcpy(p, barrier, sizeof(barrier) - 1);
    }
    ck_assert_uint_eq(count, SX_COUNT(needed));
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rows");
    TCase *tcase = tcase_create("rows");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_forms, 0, 3 * CASE_COUNT);
    tcase_add_loop_test(tcase, test_batches, 0, 3);
    tcase_add_loop_test(tcase, test_search, 0, 8);
    tcase_add_loop_test(tcase, test_faults, 0, 3);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("warps");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_warps, 0, 4 * CASE_COUNT);
    tcase_add_test(tcase, test_barriers);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
