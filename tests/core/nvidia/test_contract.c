/* The numerics contract of products, for every element type and for all three of a training step: y = x W^T, dx = dy
 * W and dW = x^T dy. A row has the same bits in a product of 1 to 4096 rows, wherever it stands, under every schedule
 * that the search keeps, on either side of the instruction; and a narrow result is the f32 sum, rounded once. */
#include "core/search/search.h"
#include "tests/core/nvidia/tiles.h"

enum { FORWARD, BY_INPUT, BY_WEIGHT, PRODUCTS };

static const struct {
    sx_dtype dtype;
    const char *device;
    int64_t n, k;
    bool exact; /* sums of integers, as i32 */
} types[] = {
    {SX_BF16, "rtx3090", 40, 96, false},  {SX_BF16, "h100", 40, 384, false},
    {SX_F16, "rtx4090", 24, 200, false},  {SX_F16, "h200", 80, 96, false},
    {SX_F32, "rtx4090", 16, 40, false},   {SX_F32, "rtx3090+tf32", 24, 96, false},
    {SX_F32, "h100+tf32", 24, 72, false}, {SX_I8, "h100", 40, 200, true},
};
#define KEPT 4

typedef struct {
    sx_ctx cx;
    const sx_device *device;
    const sx_target *target;
    tiles_case c;
    sx_rng rng;
    uint64_t numerics; /* 0: none yet */
} sweep;

static void begin(sweep *s, uint32_t type, uint32_t product)
{
    *s = (sweep){.rng = {sx_test_seed() + type * PRODUCTS + product}};
    sx_ctx_init(&s->cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&s->cx, sx_device_find(&s->cx, sx_span_of(types[type].device), &s->device));
    s->target = sx_target_find(NULL, s->device->target);
    s->c = (tiles_case){.dtype = types[type].dtype,
                        .b = 1,
                        .n = types[type].n,
                        .k = types[type].k,
                        .left_turned = product == BY_WEIGHT,
                        .right_turned = product == FORWARD,
                        .widened = types[type].exact};
}

/* The best schedules of a product, all of one numerics plan. */
static uint32_t schedules_of(sweep *s, const node *n, sx_block_tiles plan[KEPT])
{
    const sx_analysis *a = analysis_of(&s->cx, n);
    sx_search_result found;
    const sx_matrix_instruction *matrix =
        sx_search_matrix(a, s->target->matrix, sx_search_matrices(s->device, s->target));
    ck_assert(s->c.dtype == SX_F32 || matrix != NULL);
    ck_sx_ok(&s->cx, sx_search_block(&s->cx, a, s->device, matrix, SX_SIDES_BOTH, KEPT, &found));
    ck_assert_uint_ge(found.best_count, 1);
    for (uint32_t i = 0; i < found.best_count; i++) {
        ck_assert(sx_block_tiles_of(&found.best[i].schedule, &plan[i]) && !plan[i].apart);
    }
    return found.best_count;
}

static uint8_t *run(sweep *s, const node *n, const sx_block_tiles *plan)
{
    sx_kernel *kernel;
    sx_code code = tiles_lower(&s->cx, s->target, n, *plan, &kernel);
    ck_assert_msg(code == SX_OK, "%s", s->cx.error.text);
    ck_assert(s->numerics == 0 || s->numerics == kernel->numerics);
    s->numerics = kernel->numerics;
    uint8_t *out = exact_buffer(&s->cx, bytes_of(&n->result));
    uint32_t level = s->target->machine->level;
    code = tiles_run(&s->cx, kernel, tiles_module(&s->cx, kernel, level), n, 1, false, out, NULL);
    ck_assert_msg(code == SX_OK, "%s", s->cx.error.text);
    return out;
}

/* The product of rows `first` .. `first` + m of `all`. */
static node rows_of(sweep *s, const node *all, int64_t first, int64_t m)
{
    int64_t whole = s->c.m, bytes = sx_dtype_bytes(s->c.dtype);
    s->c.m = m;
    node n = tiles_node(&s->cx, &s->c);
    s->c.m = whole;
    uint32_t left = 0, right = 1;
    n.raw[left] = sx_alloc(&s->cx, bytes_of(&n.input[left]) + 16);
    ck_assert_ptr_nonnull(n.raw[left]);
    n.raw[right] = all->raw[right];
    for (int64_t k = 0; k < s->c.k; k++) {
        for (int64_t i = 0; i < m; i++) {
            int64_t to = s->c.left_turned ? k * m + i : i * s->c.k + k;
            int64_t from = s->c.left_turned ? k * whole + first + i : (first + i) * s->c.k + k;
            memcpy(n.raw[left] + to * bytes, all->raw[left] + from * bytes, (size_t)bytes);
        }
    }
    return n;
}

static void check_rows(sweep *s, const node *all, const uint8_t *want, int64_t first, int64_t m)
{
    sx_block_tiles plan[KEPT];
    node n = rows_of(s, all, first, m);
    uint32_t count = schedules_of(s, &n, plan);
    size_t row = bytes_of(&n.result) / (size_t)m;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *got = run(s, &n, &plan[i]);
        ck_assert_msg(memcmp(got, want + row * (size_t)first, bytes_of(&n.result)) == 0,
                      "%s, rows %lld to %lld, schedule %u: other bits", s->device->name,
                      (long long)first, (long long)(first + m), i);
    }
}

START_TEST(test_rows)
{
    static const int64_t rows[] = {1, 8, 16, 64, 128, 511, 512, 513, 1024, 1025, 2048};
    sweep s;
    sx_block_tiles plan[KEPT];
    begin(&s, (uint32_t)_i / PRODUCTS, (uint32_t)_i % PRODUCTS);
    s.c.m = 4096;
    node all = tiles_node(&s.cx, &s.c);
    tiles_fill(&s.cx, &all, &s.rng, false);
    (void)schedules_of(&s, &all, plan);
    uint8_t *want = run(&s, &all, &plan[0]);
    for (uint32_t r = 0; r < SX_COUNT(rows); r++) {
        /* rows that lie side by side are copied to multiples of 8 where the copy engine reads them: client/verify */
        if (s.c.left_turned && rows[r] % 8 != 0 && plan[0].matrix_rows == SX_GROUP_ROWS) {
            continue;
        }
        int64_t first = (int64_t)sx_rng_below(&s.rng, (uint64_t)(4096 - rows[r] + 1));
        if (rows[r] <= 513) {
            check_rows(&s, &all, want, r % 2 == 0 ? 0 : first, rows[r]);
        } else {
            node n = rows_of(&s, &all, first, rows[r]);
            (void)schedules_of(&s, &n, plan);
            size_t row = bytes_of(&n.result) / (size_t)rows[r];
            ck_assert_msg(
                memcmp(run(&s, &n, &plan[0]), want + row * (size_t)first, bytes_of(&n.result)) == 0,
                "%s, %lld rows from %lld on: other bits", s.device->name, (long long)rows[r],
                (long long)first);
        }
    }
    sx_ctx_fini(&s.cx);
}
END_TEST

/* A narrow result is that of the same sums in f32, rounded once to nearest, ties to even. */
START_TEST(test_typed)
{
    static const int64_t rows[] = {1, 17, 64, 130};
    sweep s;
    begin(&s, (uint32_t)_i / PRODUCTS, (uint32_t)_i % PRODUCTS);
    for (uint32_t r = 0; r < SX_COUNT(rows); r++) {
        sx_block_tiles plan[KEPT];
        s.c.m = s.c.left_turned ? (rows[r] + 7) / 8 * 8 : rows[r];
        s.c.widened = false;
        node narrow = tiles_node(&s.cx, &s.c);
        tiles_fill(&s.cx, &narrow, &s.rng, false);
        s.c.widened = true;
        node wide = tiles_node(&s.cx, &s.c);
        wide.raw[0] = narrow.raw[0];
        wide.raw[1] = narrow.raw[1];
        s.numerics = 0;
        (void)schedules_of(&s, &wide, plan);
        uint8_t *sums = run(&s, &wide, &plan[0]);
        s.numerics = 0;
        (void)schedules_of(&s, &narrow, plan);
        uint8_t *got = run(&s, &narrow, &plan[0]);
        for (int64_t i = 0; i < s.c.m * s.c.n; i++) {
            float sum;
            memcpy(&sum, sums + 4 * i, 4);
            ck_assert_uint_eq(sx_num_load(s.c.dtype, got, (size_t)i),
                              sx_num_encode(s.c.dtype, (double)sum));
        }
    }
    sx_ctx_fini(&s.cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("contract");
    TCase *tcase = tcase_create("contract");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test_rows, 0, (int)SX_COUNT(types) * PRODUCTS);
    tcase_add_loop_test(tcase, test_typed, 0, 4 * PRODUCTS); /* bf16 and f16 */
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
