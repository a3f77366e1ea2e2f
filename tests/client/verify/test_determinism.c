/* The numerics contract, kernel by kernel: an element has the same bits however many rows and columns are computed
 * beside it, at every position, under every schedule of one numerics plan and in every order of the grid's points.
 * Contractions in the three layouts of training, reductions of rows and attention, on machines of each family. */
#include "client/verify/trial.h"
#include "core/search/search.h"
#include "core/ir/num.h"
#include "core/kernel/online_blocks.h"
#include "core/loop/lower.h"
#include "core/search/search.h"
#include "tests/core/loop/nodes.h"

static sx_ctx cx;

static uint64_t seed;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    cx.fuel = UINT64_MAX;
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- nodes ---- */

#define ROWS 83 /* the rows of a base, odd like the other extents */

static node dot(sx_dtype dtype, sx_type lhs, sx_type rhs, int64_t lhs_contract,
                int64_t rhs_contract)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    sx_type x[2] = {lhs, rhs};
    attr.lhs_contract = (sx_ints){1, {lhs_contract}};
    attr.rhs_contract = (sx_ints){1, {rhs_contract}};
    SX_ASSERT(lhs.dtype == dtype && rhs.dtype == dtype);
    return lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

/* y = relu(x w + b); dw = the transpose of x times dy, summed over the rows; dx = dy times the transpose of w. */
static node forward(sx_dtype t)
{
    node d = dot(t, TYPE(t, ROWS, 37), TYPE(t, 37, 21), 1, 0);
    d = with_tensor(&cx, SX_OP_ADD, &d, TYPE(t, 21));
    return unary(&cx, SX_OP_RELU, &d);
}

static node gradient_of_weight(sx_dtype t)
{
    return dot(t, TYPE(t, 65, ROWS), TYPE(t, 65, 19), 0, 0);
}

static node gradient_of_input(sx_dtype t)
{
    return dot(t, TYPE(t, ROWS, 43), TYPE(t, 23, 43), 1, 1);
}

static node batched(sx_dtype t)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    sx_type x[2] = {TYPE(t, 5, ROWS, 17), TYPE(t, 5, 29, 17)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = attr.rhs_contract = (sx_ints){1, {2}};
    return lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

/* A matrix times a vector in batches: one row of it is a batch of single products. */
static node batched_by_column(sx_dtype t)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    sx_type x[2] = {TYPE(t, 5, ROWS, 17), TYPE(t, 5, 1, 17)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = attr.rhs_contract = (sx_ints){1, {2}};
    return lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

/* The result turned so that its last dimension is the batch. */
static node batch_innermost(sx_dtype t)
{
    node product = batched(t);
    sx_attr attr = {.present = SX_A(perm), .perm = {3, {1, 2, 0}}};
    node turned = lift(&cx, SX_OP_TRANSPOSE, &attr, &product.result, 1);
    return inlined(&cx, &turned, 0, &product);
}

/* Two dimensions are summed over, and the rows lie between them: with one row they are as good as one. */
static node sums_around_row(sx_dtype t)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    sx_type x[2] = {TYPE(t, 3, ROWS, 17), TYPE(t, 3, 17, 8)};
    attr.lhs_contract = (sx_ints){2, {0, 2}};
    attr.rhs_contract = (sx_ints){2, {0, 1}};
    return lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

static node normed(sx_op op, sx_dtype t, int64_t rows, int64_t length, int64_t axis)
{
    sx_type x[3] = {TYPE(t, rows, length), TYPE(t, length), TYPE(t, length)};
    sx_attr attr = {.present = SX_A(axis), .axis = axis, .eps = 1e-5};
    uint32_t count = op == SX_OP_LAYER_NORM ? 3 : op == SX_OP_RMS_NORM ? 2 : 1;
    attr.present |= count > 1 ? SX_A(eps) : 0;
    return lift(&cx, op, &attr, x, count);
}

static node softmax(sx_dtype t)
{
    return normed(SX_OP_SOFTMAX, t, ROWS, 75, 1);
}
static node softmax_of_columns(sx_dtype t)
{
    return normed(SX_OP_SOFTMAX, t, 21, ROWS, 0);
}
static node layer_norm(sx_dtype t)
{
    return normed(SX_OP_LAYER_NORM, t, ROWS, 70, 1);
}
static node rms_norm(sx_dtype t)
{
    return normed(SX_OP_RMS_NORM, t, ROWS, 130, 1);
}

static node sum_of_rows(sx_dtype t)
{
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .dims = {1, {1}}, .reducer = SX_SUM};
    sx_type x = TYPE(t, ROWS, 141);
    return lift(&cx, SX_OP_REDUCE, &attr, &x, 1);
}

static node gelu(sx_dtype t)
{
    sx_type x = TYPE(t, ROWS, 45);
    sx_attr none = {.present = 0};
    return lift(&cx, SX_OP_GELU, &none, &x, 1);
}

/* Attention with its scores made inside: 90 keys are more than a block of the plan. */
static node attention(sx_dtype t)
{
    sx_type x[2] = {TYPE(t, 2, ROWS, 90), TYPE(t, 2, 90, 5)};
    sx_type qk[2] = {TYPE(t, 2, ROWS, 3), TYPE(t, 2, 90, 3)};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_ONLINE_DOT)->attrs, .form = 1};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {2}};
    attr.rhs_contract = (sx_ints){1, {1}};
    node n = lift(&cx, SX_OP_ONLINE_DOT, &attr, x, 2);
    attr.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs;
    attr.form = 0;
    attr.rhs_contract = (sx_ints){1, {2}};
    node scores = lift(&cx, SX_OP_DOT_GENERAL, &attr, qk, 2);
    return inlined(&cx, &n, 0, &scores);
}

/* ... with heads of 20, and of a narrow type whole: on GPUs by matrix instructions. */
static node attention_of_type(sx_dtype t)
{
    sx_type x[2] = {TYPE(SX_F32, 2, ROWS, 70), TYPE(SX_F32, 2, 70, 12)};
    sx_type qk[2] = {TYPE(SX_F32, 2, ROWS, 20), TYPE(SX_F32, 2, 70, 20)};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_ONLINE_DOT)->attrs, .form = 1};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {2}};
    attr.rhs_contract = (sx_ints){1, {1}};
    node n = lift(&cx, SX_OP_ONLINE_DOT, &attr, x, 2);
    attr.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs;
    attr.form = 0;
    attr.rhs_contract = (sx_ints){1, {2}};
    node scores = lift(&cx, SX_OP_DOT_GENERAL, &attr, qk, 2);
    n = inlined(&cx, &n, 0, &scores);
    for (uint32_t k = 0; k < 3 && t != SX_F32; k++) { /* the first one moves behind the others */
        sx_attr to = {.present = SX_A(type), .type = n.input[0]};
        sx_type narrow = n.input[0];
        narrow.dtype = t;
        node widen = lift(&cx, SX_OP_CONVERT, &to, &narrow, 1);
        n = inlined(&cx, &n, 0, &widen);
    }
    sx_attr to = {.present = SX_A(type), .type = n.result};
    to.type.dtype = t;
    node round = lift(&cx, SX_OP_CONVERT, &to, &n.result, 1);
    return t == SX_F32 ? n : inlined(&cx, &round, 0, &n);
}

static const struct {
    const char *name;
    node (*make)(sx_dtype dtype);
    /* Every extent from 1 to 80 on. */
    bool dense;
    uint32_t types; /* so many of `types` */
    /* The largest extent of f32 on x86-64-v4, and elsewhere. */
    int64_t most, most_elsewhere;
} cases[] = {
    {"x w + b", forward, true, 4, 4096, 4096},
    {"gradient of a weight", gradient_of_weight, true, 4, 4096, 4096},
    {"gradient of an input", gradient_of_input, true, 4, 4096, 4096},
    {"batched", batched, false, 4, 4096, 4096},
    {"batched by a column", batched_by_column, false, 4, 4096, 129},
    {"batch innermost", batch_innermost, false, 4, 4096, 129},
    {"sums around a row", sums_around_row, false, 4, 4096, 129},
    {"softmax", softmax, true, 4, 4096, 80},
    {"softmax of columns", softmax_of_columns, false, 4, 4096, 80},
    {"layer_norm", layer_norm, false, 4, 4096, 80},
    {"rms_norm", rms_norm, false, 4, 4096, 80},
    {"sum of rows", sum_of_rows, false, 4, 4096, 80},
    {"gelu", gelu, false, 4, 4096, 4096},
    {"attention", attention, false, 1, 257, 65},
    {"attention of one type", attention_of_type, false, 3, 128, SX_SANITIZED ? 65 : 128},
};
/* ---- what the copy engine of an H100 can read, and what it cannot ---- */

static node batched_by_engine(sx_dtype t)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    sx_type x[2] = {TYPE(t, 3, ROWS, 24), TYPE(t, 3, 24, 16)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {2}};
    attr.rhs_contract = (sx_ints){1, {1}};
    return lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

static node forward_by_engine(sx_dtype t)
{
    node d = dot(t, TYPE(t, ROWS, 88), TYPE(t, 88, 24), 1, 0);
    d = with_tensor(&cx, SX_OP_ADD, &d, TYPE(t, 24));
    return unary(&cx, SX_OP_RELU, &d);
}

static node turned_by_engine(sx_dtype t)
{
    return dot(t, TYPE(t, ROWS, 40), TYPE(t, 23, 40), 1, 1);
}

/* x^T dy, where rows lie side by side: the engine reads them, or a copy where their number is odd. */
static node rows_inside(sx_dtype t)
{
    return dot(t, TYPE(t, 40, 64), TYPE(t, 40, 24), 0, 0);
}

static node odd_rows_inside(sx_dtype t)
{
    return dot(t, TYPE(t, 41, ROWS), TYPE(t, 41, 24), 0, 0);
}

/* The gradient of the other factor, dy w^T. */
static node backward_by_engine(sx_dtype t)
{
    return dot(t, TYPE(t, ROWS, 24), TYPE(t, 40, 24), 1, 1);
}

/* A sum in slices, which one block makes in turn or several side by side. */
static node sliced_by_engine(sx_dtype t)
{
    return dot(t, TYPE(t, ROWS, 8192), TYPE(t, 8192, 8), 1, 0);
}

/* The product of one row and one column, by heads, in a dimension of one element that no argument varies with. */
static node within_one(sx_dtype t)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    sx_type x[2] = {TYPE(t, 3, 4, 24), TYPE(t, 3, 16, 24)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = attr.rhs_contract = (sx_ints){1, {2}};
    node product = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    sx_attr to = {.present = SX_A(type) | SX_A(dims), .dims = {3, {1, 2, 3}}};
    to.type = TYPE(t, 1, 3, 4, 16);
    node within = lift(&cx, SX_OP_BROADCAST, &to, &product.result, 1);
    return inlined(&cx, &within, 0, &product);
}

static const struct {
    const char *name;
    node (*make)(sx_dtype dtype);
    bool engine;
    int64_t most;      /* rows */
    uint64_t products; /* of a trial of a schedule */
} engine_cases[] = {{"x w + b", forward_by_engine, true, 4096, 1000},
                    {"x times w turned", turned_by_engine, true, 4096, 1000},
                    {"batched", batched_by_engine, true, 4096, 1000},
                    {"a long sum", sliced_by_engine, true, 80, 500000},
                    {"rows side by side", rows_inside, true, 4096, 1000},
                    {"odd rows side by side", odd_rows_inside, true, 4096, 1000},
                    {"dy times w turned", backward_by_engine, true, 4096, 1000},
                    {"within one", within_one, true, 4096, 1000},
                    {"odd extents", forward, false, 4096, 1000}};

static const sx_dtype types[] = {SX_F32, SX_BF16, SX_F16, SX_F64};
static const char *const devices[] = {"x86-64-v3", "x86-64-v4", "a100"};

/* Elements in (-1, 1) of every magnitude down to 2^-8, so that another order of a sum shows. */
static void fill(node *n, sx_rng *rng)
{
    for (uint32_t k = 0; k < n->count; k++) {
        sx_dtype dtype = n->input[k].dtype;
        n->raw[k] = sx_alloc(&cx, bytes_of(&n->input[k]) + 8);
        ck_assert_ptr_nonnull(n->raw[k]);
        for (int64_t i = 0; i < sx_tensor_elements(&n->input[k]); i++) {
            double value = (double)sx_rng_f32(rng) * ldexp(1, -(int)sx_rng_below(rng, 8));
            sx_num_store(dtype, n->raw[k], (size_t)i, sx_num_encode(dtype, value));
        }
    }
}

static sxv_subject subject_of(node *n, const char *device_name, const void **argument)
{
    sxv_subject s = {.fused = &n->fused, .input = n->input, .input_count = n->count};
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(device_name), &s.device));
    s.target = sx_target_find(NULL, s.device->target);
    ck_assert_ptr_nonnull(s.target);
    for (uint32_t k = 0; k < n->count; k++) {
        argument[k] = n->raw[k];
    }
    s.argument = argument;
    return s;
}

/* 1 to 80, then around the powers of two; or some of them; the last one is `most`. */
static uint32_t sweep(int64_t extent[100], bool dense, int64_t most)
{
    static const int64_t few[] = {1, 2, 7, 16, 33, 63, 64, 65};
    static const int64_t far[] = {127, 128, 129, 256, 513, 1024, 2049};
    uint32_t count = 0;
    for (uint32_t i = 0; dense ? i < 80 : i < SX_COUNT(few); i++) {
        extent[count++] = dense ? (int64_t)i + 1 : few[i];
    }
    for (uint32_t i = 0; dense && i < SX_COUNT(far) && far[i] < most; i++) {
        extent[count++] = far[i];
    }
    extent[count++] = most;
    return count;
}

#define SCHEDULES_LEAST (SX_SANITIZED ? 3U : 4U) /* that are tried */

static sxv_trials trials_of(const int64_t *extent, uint32_t count)
{
    return (sxv_trials){.extent = extent,
                        .extent_count = count,
                        .schedules = SX_SANITIZED ? 7 : 12,
                        .seed = seed,
                        .trial_wish = 1000,
                        .trial_max = 1000000,
                        .total_max = UINT64_MAX / 4};
}

/* ---- the contract ---- */

static void hold(uint32_t which, sx_dtype dtype, const char *device, bool dense)
{
    bool far = !SX_SANITIZED && dtype == SX_F32 && strcmp(device, "x86-64-v4") == 0;
    int64_t most = far ? cases[which].most : cases[which].most_elsewhere;
    int64_t extent[100];
    const void *argument[SX_FUSED_ARGS_MAX];
    sx_rng rng = {seed};
    node n = cases[which].make(dtype);
    fill(&n, &rng);
    sxv_subject s = subject_of(&n, device, argument);
    sxv_base base;
    sxv_evidence e;
    sxv_trials trials = trials_of(extent, sweep(extent, dense, most));
    ck_sx_ok(&cx, sxv_base_make(&cx, &s, &base));
    ck_sx_ok(&cx, sxv_try(&cx, &s, &base, &trials, &e));
    ck_assert_msg(!e.differs, "%s of %s for %s: %s", cases[which].name, sx_dtype_name(dtype),
                  device, e.difference);
    ck_assert_msg(e.left_out == 0 && e.extents >= trials.extent_count &&
                      e.schedules >= SCHEDULES_LEAST && e.positions >= 1,
                  "%s of %s for %s: %u extents, %u schedules, %u positions", cases[which].name,
                  sx_dtype_name(dtype), device, e.extents, e.schedules, e.positions);
    if (getenv("SX_SHOW") != NULL) {
        (void)fprintf(stderr, "%s %s %s: %u %u %u of %u, left %u, %llu instr, %s\n",
                      cases[which].name, sx_dtype_name(dtype), device, e.extents, e.positions,
                      e.schedules, e.other_plans, e.left_out, (unsigned long long)e.instructions,
                      e.tried);
    }
}

/* Products by groups of warps (wgmma) hold the contract as those of warps do, and the same ones are by groups whatever
 * the rows, the batch and the position are: the plan of every trial is that of the base. */
START_TEST(test_products_by_the_copy_engine)
{
    int64_t extent[100];
    const void *argument[SX_FUSED_ARGS_MAX];
    sx_rng rng = {seed};
    sx_dtype dtype = _i % 2 == 0 ? SX_BF16 : SX_F16;
    node n = engine_cases[_i / 2].make(dtype);
    fill(&n, &rng);
    sxv_subject s = subject_of(&n, "h100", argument);
    const sx_analysis *a = analysis_of(&cx, &n);
    const sx_matrix_instruction *matrix =
        sx_search_matrix(a, s.target->matrix, s.target->matrix_count);
    sxv_base base;
    sxv_evidence e;
    sxv_trials trials =
        trials_of(extent, sweep(extent, false, SX_SANITIZED ? 129 : engine_cases[_i / 2].most));
    trials.trial_wish = engine_cases[_i / 2].products;
    ck_assert_ptr_nonnull(matrix);
    ck_assert_msg((matrix->warps > 1) == engine_cases[_i / 2].engine, "%s: %s",
                  engine_cases[_i / 2].name, matrix->name);
    ck_sx_ok(&cx, sxv_base_make(&cx, &s, &base));
    ck_sx_ok(&cx, sxv_try(&cx, &s, &base, &trials, &e));
    ck_assert_msg(!e.differs, "%s: %s", engine_cases[_i / 2].name, e.difference);
    ck_assert_msg(e.left_out == 0 && e.extents >= trials.extent_count &&
                      e.schedules >= SCHEDULES_LEAST && e.positions >= 1,
                  "%s: %u extents, %u schedules, %u positions", engine_cases[_i / 2].name,
                  e.extents, e.schedules, e.positions);
}
END_TEST

START_TEST(test_kernels_keep_their_bits)
{
    const char *device = devices[(uint32_t)_i % SX_COUNT(devices)];
    uint32_t which = (uint32_t)_i / SX_COUNT(devices);
    uint32_t count = SX_SANITIZED ? 2 : SX_COUNT(types); /* ten times slower there */
    for (uint32_t t = 0; t < count; t++) {
        if (t < cases[which].types) {
            bool dense =
                !SX_SANITIZED && cases[which].dense && t == 0 && strcmp(device, "x86-64-v4") == 0;
            hold(which, types[t], device, dense);
        }
    }
}
END_TEST

/* ---- more points than y and z of a launch have ---- */

static node tiny_products(sx_dtype t, int64_t batch)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    sx_type x[2] = {TYPE(t, batch, 2, 8), TYPE(t, batch, 8, 8)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {2}};
    attr.rhs_contract = (sx_ints){1, {1}};
    return lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

/* The plan of every schedule that is kept is that of the first one of a single product. */
static void hold_plan(sx_dtype t, int64_t batch, const char *device, uint64_t *plan)
{
    const void *argument[SX_FUSED_ARGS_MAX];
    node n = tiny_products(t, batch);
    n.raw[0] = n.raw[1] = sx_alloc(&cx, 16 * 8 * sizeof(double)); // not read
    sxv_subject s = subject_of(&n, device, argument);
    sx_search_result found;
    uint64_t numerics;
    ck_sx_ok(&cx,
             sx_search_kernel(&cx, analysis_of(&cx, &n), s.device, false, SX_SEARCH_KEEP, &found));
    ck_assert_uint_gt(found.matrix_count, 0);
    for (uint32_t i = 0; i < found.matrix_count; i++) {
        ck_sx_ok(&cx, sxv_numerics_of(&cx, &s, &found.best[i].schedule, &numerics));
        *plan = *plan == 0 ? numerics : *plan;
        ck_assert_msg(numerics == *plan, "%s: %s in a batch of %lld: another plan", device,
                      sx_dtype_name(t), (long long)batch);
    }
}

START_TEST(test_plans_beyond_a_launch)
{
    static const int64_t batch[] = {1, 65535, 65536, 70000, 16777216};
    static const char *const gpus[] = {"a100", "h100"};
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t plan = 0;
        for (uint32_t k = 0; k < SX_COUNT(batch); k++) {
            hold_plan(i % 2 == 0 ? SX_BF16 : SX_F16, batch[k], gpus[i / 2], &plan);
        }
    }
}
END_TEST

/* More products than blocks along z: the bits of each alone, at places on both sides of the last block along z. */
START_TEST(test_batches_beyond_a_launch)
{
    int64_t one = 1;
    const void *argument[SX_FUSED_ARGS_MAX];
    sx_rng rng = {seed};
    node n = tiny_products(SX_BF16, SX_SANITIZED ? 5000 : 65600); /* ten times slower there */
    fill(&n, &rng);
    sxv_subject s = subject_of(&n, "a100", argument);
    sxv_base base;
    sxv_evidence e;
    ck_sx_ok(&cx, sxv_base_make(&cx, &s, &base));
    sxv_trials trials = trials_of(&one, 1);
    trials.schedules = 0;
    for (uint32_t i = 0; i < 24; i++) {
        trials.seed = seed + i; /* other places */
        ck_sx_ok(&cx, sxv_try(&cx, &s, &base, &trials, &e));
        ck_assert_msg(!e.differs && e.left_out == 0 && e.extents == 3 && e.positions >= 1, "%s",
                      e.difference);
    }
}
END_TEST

/* ---- elements narrower than f32: the f32 kernel on what they widen to, rounded once at the end ---- */

static node product(sx_dtype t, int64_t m, int64_t k, int64_t n)
{
    return dot(t, TYPE(t, m, k), TYPE(t, k, n), 1, 0);
}

/* The same values as f32. */
static void widen(const node *narrow, node *wide)
{
    for (uint32_t k = 0; k < narrow->count; k++) {
        sx_dtype dtype = narrow->input[k].dtype;
        wide->raw[k] = sx_alloc(&cx, bytes_of(&wide->input[k]) + 8);
        ck_assert_ptr_nonnull(wide->raw[k]);
        for (int64_t i = 0; i < sx_tensor_elements(&narrow->input[k]); i++) {
            float value =
                (float)sx_num_decode(dtype, sx_num_load(dtype, narrow->raw[k], (size_t)i));
            memcpy(wide->raw[k] + 4 * i, &value, 4);
        }
    }
}

static void round_once(sx_dtype dtype, const char *device, int64_t m, int64_t k, int64_t n)
{
    const void *argument[2][SX_FUSED_ARGS_MAX];
    sx_rng rng = {seed};
    node narrow = product(dtype, m, k, n), wide = product(SX_F32, m, k, n);
    fill(&narrow, &rng);
    widen(&narrow, &wide);
    sxv_subject typed = subject_of(&narrow, device, argument[0]);
    sxv_subject full = subject_of(&wide, device, argument[1]);
    sxv_base got, want;
    ck_sx_ok(&cx, sxv_base_make(&cx, &typed, &got));
    ck_sx_ok(&cx, sxv_base_make(&cx, &full, &want));
    ck_assert_uint_ne(got.numerics, want.numerics);
    for (int64_t i = 0; i < m * n; i++) {
        float sum;
        memcpy(&sum, want.bits + 4 * i, 4);
        ck_assert_msg(sx_num_load(dtype, got.bits, (size_t)i) == sx_num_encode(dtype, (double)sum),
                      "%s for %s, %lldx%lldx%lld: element %lld", sx_dtype_name(dtype), device,
                      (long long)m, (long long)k, (long long)n, (long long)i);
    }
}

START_TEST(test_narrow_types_are_rounded_once)
{
    static const int64_t shape[][3] = {{8, 384, 1},  {64, 384, 80}, {65, 8, 127},   {33, 96, 128},
                                       {7, 100, 33}, {31, 768, 17}, {128, 2560, 1}, {3, 384, 129}};
    for (uint32_t i = 0; i < SX_COUNT(shape); i++) {
        const char *device = devices[i % 2]; /* matrix instructions have plans of their own */
        round_once(SX_BF16, device, shape[i][0], shape[i][1], shape[i][2]);
        round_once(SX_F16, device, shape[i][0], shape[i][1], shape[i][2]);
    }
}
END_TEST

/* ---- planted faults: machines that break the contract ---- */

static bool stores(const sx_item *item)
{
    return item->kind == SX_ITEM_OP && sx_lop_info_of(item->op)->result == '-';
}

/* The loop that begins at `first` goes over its summands from the last to the first. */
static void turn_loop(sx_part *part, uint32_t first, uint32_t last)
{
    uint32_t variable = part->item[first].dst;
    int64_t trip = part->item[first].trip;
    for (uint32_t i = first; i < last; i++) {
        const sx_item *item = &part->item[i];
        const char *operands = item->kind == SX_ITEM_OP ? sx_lop_info_of(item->op)->operands : "";
        if (strchr(operands, 'A') != NULL) {
            sx_addr *addr = &part->addr[item->addr];
            addr->offset += addr->coef[variable] * (trip - 1);
            addr->coef[variable] = -addr->coef[variable];
        }
    }
}

/* Turns the loops that add products and store nothing. */
static void turn_sums(sx_kernel *kernel)
{
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        sx_part *part = &kernel->part[p];
        for (uint32_t i = 0; i < part->item_count; i++) {
            uint32_t depth = 0, end = i;
            bool adds = false, ends = false;
            do {
                depth += part->item[end].kind == SX_ITEM_LOOP ? 1 : 0;
                depth -= part->item[end].kind == SX_ITEM_END ? 1 : 0;
                adds = adds ||
                       (part->item[end].kind == SX_ITEM_OP && part->item[end].op == SX_LOP_FMA);
                ends = ends || stores(&part->item[end]);
                end++;
            } while (depth > 0 && end < part->item_count);
            if (part->item[i].kind == SX_ITEM_LOOP && adds && !ends) {
                turn_loop(part, i, end);
            }
        }
    }
}

typedef enum { ORDER_BY_ROWS, ORDER_BY_TILE, ID_BY_ROWS, FAULT_COUNT } fault;
static fault planted;

static sx_code lower_wrongly(sx_ctx *inner, const sx_target *target, const sx_lowering *what,
                             sx_kernel **kernel)
{
    sx_block_tiles tiles;
    if (sx_block_tiles_of(what->schedule, &tiles)) {
        return SX_FAIL(inner, SX_UNIMPLEMENTED, "no blocks");
    }
    SX_TRY(sx_loop_lower(inner, &target->vectors, what, kernel));
    if (what->kind != SX_LOWER_FUSED) {
        return SX_OK;
    }
    int64_t rows = what->analysis->extent[SX_ROLE_ROW];
    int64_t block = sx_schedule_step(what->schedule, SX_ROLE_ROW, SX_BIND_LOOP, 0);
    if ((planted == ORDER_BY_ROWS && rows >= 64) || (planted == ORDER_BY_TILE && block % 2 == 1)) {
        turn_sums(*kernel);
    }
    (*kernel)->numerics += planted == ID_BY_ROWS && rows >= 64 ? 1 : 0;
    return SX_OK;
}

START_TEST(test_planted_faults_are_found)
{
    static const char *const said[] = {
        [ORDER_BY_ROWS] = " m = ", [ORDER_BY_TILE] = "under grid", [ID_BY_ROWS] = "is chosen"};
    int64_t extent[100];
    const void *argument[SX_FUSED_ARGS_MAX];
    sx_rng rng = {seed};
    const char *device = devices[(uint32_t)_i % SX_COUNT(devices)];
    planted = (fault)((uint32_t)_i / SX_COUNT(devices));
    node n = forward(SX_F32);
    fill(&n, &rng);
    sxv_subject s = subject_of(&n, device, argument);
    sx_target faulty = *s.target;
    faulty.lower = lower_wrongly;
    s.target = &faulty;
    sxv_base base;
    sxv_evidence e;
    sxv_trials trials = trials_of(extent, sweep(extent, false, 128));
    trials.schedules = planted == ORDER_BY_TILE ? 40 : 0;
    ck_sx_ok(&cx, sxv_base_make(&cx, &s, &base));
    ck_sx_ok(&cx, sxv_try(&cx, &s, &base, &trials, &e));
    ck_assert_msg(e.differs && strstr(e.difference, said[planted]) != NULL, "%s: fault %d: '%s'",
                  device, (int)planted, e.difference);
}
END_TEST

/* Attention by blocks of threads whose stages have fewer keys beside many rows, under the id of the other plan. */
static const sx_target *right_target;

static sx_code lower_fewer_keys(sx_ctx *inner, const sx_target *target, const sx_lowering *what,
                                sx_kernel **kernel)
{
    sx_online_blocks blocks;
    sx_schedule schedule;
    sx_lowering other = *what;
    (void)target;
    SX_TRY(right_target->lower(inner, right_target, what, kernel));
    if (what->kind != SX_LOWER_FUSED || !sx_online_blocks_of(what->schedule, &blocks) ||
        what->analysis->extent[SX_ROLE_ROW] < 64) {
        return SX_OK;
    }
    uint64_t numerics = (*kernel)->numerics;
    blocks.keys /= 2;
    sx_schedule_online_blocks(&blocks, &schedule);
    other.schedule = &schedule;
    SX_TRY(right_target->lower(inner, right_target, &other, kernel));
    ck_assert_uint_ne((*kernel)->numerics, numerics);
    (*kernel)->numerics = numerics;
    return SX_OK;
}

#define ATTENTION_DRAWS 12
START_TEST(test_planted_fault_of_attention_is_found)
{
    int64_t extent[100];
    const void *argument[SX_FUSED_ARGS_MAX];
    sx_rng rng = {seed};
    node n = attention_of_type(_i == 0 ? SX_BF16 : SX_F16);
    sxv_base base;
    sxv_evidence e = {.differs = false};
    sxv_trials trials = trials_of(extent, sweep(extent, false, 128));
    trials.schedules = 0;
    /* Narrow results are often the same after all: other numbers, then. */
    for (uint32_t draw = 0; draw < ATTENTION_DRAWS && !e.differs; draw++) {
        fill(&n, &rng);
        sxv_subject s = subject_of(&n, "h100", argument);
        sx_target faulty = *s.target;
        right_target = s.target;
        faulty.lower = lower_fewer_keys;
        s.target = &faulty;
        ck_sx_ok(&cx, sxv_base_make(&cx, &s, &base));
        ck_sx_ok(&cx, sxv_try(&cx, &s, &base, &trials, &e));
    }
    ck_assert_msg(e.differs, "after %d draws", ATTENTION_DRAWS);
}
END_TEST

int main(void)
{
    seed = sx_test_seed();
    Suite *suite = suite_create("client.verify.determinism");
    TCase *tests = tcase_create("determinism");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, test_kernels_keep_their_bits, 0,
                        (int)(SX_COUNT(cases) * SX_COUNT(devices)));
    tcase_add_loop_test(tests, test_products_by_the_copy_engine, 0,
                        2 * (int)SX_COUNT(engine_cases));
    tcase_add_test(tests, test_narrow_types_are_rounded_once);
    tcase_add_loop_test(tests, test_planted_faults_are_found, 0,
                        (int)(FAULT_COUNT * SX_COUNT(devices)));
    tcase_add_loop_test(tests, test_planted_fault_of_attention_is_found, 0, 2);
    suite_add_tcase(suite, tests);
    tests = tcase_create("beyond");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_plans_beyond_a_launch);
    tcase_add_test(tests, test_batches_beyond_a_launch);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
