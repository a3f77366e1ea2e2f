#include "client/verify/multiply.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "client/runtime/cpu.h"
#include "client/runtime/pages.h"
#include "core/base/fast.h"
#include "client/verify/rounded.h"

#define ROWS 6         /* of a block: with two vectors of columns its sums fill twelve registers */
#define COLUMNS_MAX 32 /* of a block: two vectors */
#define STEPS 256 /* of k that a panel holds at once, so that it stays in the first cache level */

/* ---- one block: tile[ROWS][columns] += left[steps][ROWS] * right[steps][columns] ---- */
typedef void (*block_f64)(int64_t steps, const double *left, const double *right, double *tile);
typedef void (*block_f32)(int64_t steps, const float *left, const float *right, float *tile);

#define BLOCK(name, feature, element, vector, lanes, load, store, repeat, fuse)            \
    __attribute__((target(feature))) static void name(int64_t steps, const element *left,  \
                                                      const element *right, element *tile) \
    {                                                                                      \
        vector sum[ROWS][2];                                                               \
        for (int i = 0; i < ROWS; i++) {                                                   \
            sum[i][0] = load(tile + 2 * i * (lanes));                                      \
            sum[i][1] = load(tile + (2 * i + 1) * (lanes));                                \
        }                                                                                  \
        for (int64_t k = 0; k < steps; k++, left += ROWS, right += 2 * (lanes)) {          \
            vector first = load(right);                                                    \
            vector second = load(right + (lanes));                                         \
            for (int i = 0; i < ROWS; i++) {                                               \
                vector x = repeat(left[i]);                                                \
                sum[i][0] = fuse(x, first, sum[i][0]);                                     \
                sum[i][1] = fuse(x, second, sum[i][1]);                                    \
            }                                                                              \
        }                                                                                  \
        for (int i = 0; i < ROWS; i++) {                                                   \
            store(tile + 2 * i * (lanes), sum[i][0]);                                      \
            store(tile + (2 * i + 1) * (lanes), sum[i][1]);                                \
        }                                                                                  \
    }

#if defined(__x86_64__)
BLOCK(wide_f64, "avx512f", double, __m512d, 8, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd,
      _mm512_fmadd_pd)
BLOCK(wide_f32, "avx512f", float, __m512, 16, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps,
      _mm512_fmadd_ps)
BLOCK(half_f64, "avx2,fma", double, __m256d, 4, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd,
      _mm256_fmadd_pd)
BLOCK(half_f32, "avx2,fma", float, __m256, 8, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps,
      _mm256_fmadd_ps)
#endif

#define PLAIN_COLUMNS 8
static void plain_f64(int64_t steps, const double *left, const double *right, double *tile)
{
    for (int64_t k = 0; k < steps; k++, left += ROWS, right += PLAIN_COLUMNS) {
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < PLAIN_COLUMNS; j++) {
                tile[i * PLAIN_COLUMNS + j] = fma(left[i], right[j], tile[i * PLAIN_COLUMNS + j]);
            }
        }
    }
}

static void plain_f32(int64_t steps, const float *left, const float *right, float *tile)
{
    for (int64_t k = 0; k < steps; k++, left += ROWS, right += PLAIN_COLUMNS) {
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < PLAIN_COLUMNS; j++) {
                tile[i * PLAIN_COLUMNS + j] = fmaf(left[i], right[j], tile[i * PLAIN_COLUMNS + j]);
            }
        }
    }
}

typedef struct {
    block_f64 f64;
    block_f32 f32;
    int64_t columns_f64, columns_f32; /* of a block */
} blocks;

static blocks blocks_here(void)
{
#if defined(__x86_64__)
    if (sxr_cpu_executes(&sx_machine_x86_64_v4)) {
        return (blocks){wide_f64, wide_f32, 16, 32};
    }
    if (sxr_cpu_executes(&sx_machine_x86_64_v3)) {
        return (blocks){half_f64, half_f32, 8, 16};
    }
#endif
    return (blocks){plain_f64, plain_f32, PLAIN_COLUMNS, PLAIN_COLUMNS};
}

/* ---- memory ---- */
void sxv_scratch_free(sxv_scratch *scratch)
{
    sxr_pages_free(scratch->memory, scratch->bytes);
    *scratch = (sxv_scratch){0};
}

static sx_code scratch_grow(sx_ctx *cx, sxv_scratch *scratch, size_t bytes)
{
    if (bytes > scratch->bytes) {
        sxv_scratch_free(scratch);
        scratch->memory = sxr_pages(bytes);
        if (scratch->memory == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "reference: no memory for %zu bytes", bytes);
        }
        scratch->bytes = bytes;
    }
    return SX_OK;
}

/* ---- the product: the left operand packed as a whole, panels of the right one by whoever multiplies them ---- */
#define BAND \
    8 /* panels that lie side by side are packed together: each step is read in one piece */
typedef struct {
    const sxv_product *p;
    blocks block;
    int64_t row_blocks, columns; /* columns of a panel */
    /* A task is some panels, of `parts` runs of row blocks one. */
    int64_t panels, bands, parts;
    union {
        void *any;
        double *f64;
        float *f32;
    } left; /* [batch][row block][k][ROWS], zeros beyond the last row */
} product;

static void round_loaded(const sxv_product *p, void *loaded, int64_t count)
{
    if (p->narrow && p->tf32) {
        sxv_round_tf32(loaded, count);
    }
}

/* Lines of k turned into one row for each k; lines that are not there are zeros. */
#define INTERLEAVE(element)                                                      \
    do {                                                                         \
        element line[ROWS][STEPS] = {{0}};                                       \
        element *to = (element *)out;                                            \
        for (int64_t r = 0; r < count; r++) {                                    \
            p->load_left(p->left, p->narrow, batch, k, row + r, steps, line[r]); \
            round_loaded(p, line[r], steps);                                     \
        }                                                                        \
        for (int64_t s = 0; s < steps; s++) {                                    \
            for (int64_t r = 0; r < ROWS; r++) {                                 \
                to[s * ROWS + r] = line[r][s];                                   \
            }                                                                    \
        }                                                                        \
    } while (0)
SX_LEVELS static void pack_rows(const sxv_product *p, int64_t batch, int64_t row, int64_t k,
                                int64_t steps, void *out)
{
    int64_t count = sx_min_i64(ROWS, p->rows - row);
    if (p->narrow) {
        INTERLEAVE(float);
    } else {
        INTERLEAVE(double);
    }
}

/* Blocks [first, last) of all batches. */
static void pack_left(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const product *w = self;
    const sxv_product *p = w->p;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        for (int64_t k = 0; k < p->length; k += STEPS) {
            int64_t at = (i * p->length + k) * ROWS;
            pack_rows(p, i / w->row_blocks, i % w->row_blocks * ROWS, k,
                      sx_min_i64(STEPS, p->length - k),
                      p->narrow ? (void *)(w->left.f32 + at) : (void *)(w->left.f64 + at));
        }
    }
}

/* One tile of the result, from or to the sums. */
typedef union {
    double *f64;
    float *f32;
} tile_memory;

SX_LEVELS static void exchange(const product *w, bool out, int64_t at, int64_t rows,
                               int64_t columns, tile_memory tile)
{
    const sxv_product *p = w->p;
    if (p->result_f32 != NULL) {
        for (int64_t i = 0; i < rows; i++) {
            float *to = p->result_f32 + at + i * p->columns;
            float *sum = tile.f32 + i * w->columns;
            memcpy(out ? to : sum, out ? sum : to, (size_t)columns * sizeof(*to));
        }
    } else if (!p->narrow) {
        for (int64_t i = 0; i < rows; i++) {
            double *to = p->result + at + i * p->columns;
            double *sum = tile.f64 + i * w->columns;
            memcpy(out ? to : sum, out ? sum : to, (size_t)columns * sizeof(*to));
        }
    } else {
        for (int64_t i = 0; i < rows; i++) {
            double *to = p->result + at + i * p->columns;
            float *sum = tile.f32 + i * w->columns;
            for (int64_t j = 0; out && j < columns; j++) {
                to[j] = (double)sum[j];
            }
            for (int64_t j = 0; !out && j < columns; j++) {
                sum[j] = (float)to[j];
            }
        }
    }
}

/* Row blocks [first, last) of one panel through the steps that it holds. */
static void multiply_panel(const product *w, int64_t batch, int64_t first, int64_t last,
                           int64_t column, int64_t k, int64_t steps, const void *panel)
{
    const sxv_product *p = w->p;
    int64_t columns = sx_min_i64(w->columns, p->columns - column);
    for (int64_t b = first; b < last; b++) {
        double sums[ROWS * COLUMNS_MAX / 2]; /* or twice as many floats */
        tile_memory tile = {sums};
        int64_t rows = sx_min_i64(ROWS, p->rows - b * ROWS);
        int64_t left = ((batch * w->row_blocks + b) * p->length + k) * ROWS;
        int64_t at = (batch * p->rows + b * ROWS) * p->columns + column;
        if (k == 0 || rows < ROWS || columns < w->columns) {
            memset(sums, 0, sizeof(sums));
        }
        if (k > 0) {
            exchange(w, false, at, rows, columns, tile);
        }
        if (p->narrow) {
            w->block.f32(steps, w->left.f32 + left, panel, tile.f32);
        } else {
            w->block.f64(steps, w->left.f64 + left, panel, tile.f64);
        }
        exchange(w, true, at, rows, columns, tile);
    }
}

typedef struct {
    union {
        double f64[BAND][STEPS * COLUMNS_MAX / 2];
        float f32[BAND][STEPS * COLUMNS_MAX];
    };
} band;

/* Steps [k, k + steps) of `panels` panels from `column`; columns beyond the last are zeros. */
SX_LEVELS static void pack_band(const product *w, int64_t batch, int64_t column, int64_t panels,
                                int64_t k, int64_t steps, band *to)
{
    const sxv_product *p = w->p;
    double row[BAND * COLUMNS_MAX / 2] = {0}; /* or twice as many floats */
    const size_t bytes = (size_t)w->columns * (p->narrow ? sizeof(float) : sizeof(double));
    int64_t count = sx_min_i64(panels * w->columns, p->columns - column);
    for (int64_t s = 0; s < steps; s++) {
        p->load_right(p->right, p->narrow, batch, k + s, column, count, row);
        round_loaded(p, row, count);
        for (int64_t n = 0; n < panels; n++) {
            uint8_t *panel = p->narrow ? (uint8_t *)to->f32[n] : (uint8_t *)to->f64[n];
            memcpy(panel + (size_t)s * bytes, (const uint8_t *)row + (size_t)n * bytes, bytes);
        }
    }
}

/* Tasks [first, last). */
static void run_tasks(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const product *w = self;
    const sxv_product *p = w->p;
    band packed;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t batch = i / w->parts / w->bands;
        int64_t column = i / w->parts % w->bands * w->panels * w->columns;
        int64_t part = i % w->parts;
        int64_t from = part * w->row_blocks / w->parts;
        int64_t to = (part + 1) * w->row_blocks / w->parts;
        int64_t panels = sx_min_i64(w->panels, sx_ceil_div_i64(p->columns - column, w->columns));
        for (int64_t k = 0; k < p->length; k += STEPS) {
            int64_t steps = sx_min_i64(STEPS, p->length - k);
            pack_band(w, batch, column, panels, k, steps, &packed);
            for (int64_t n = 0; n < panels; n++) {
                multiply_panel(w, batch, from, to, column + n * w->columns, k, steps,
                               p->narrow ? (const void *)packed.f32[n]
                                         : (const void *)packed.f64[n]);
            }
        }
    }
}

#define TASKS_PER_THREAD 4
#define ROW_BLOCKS_MIN 16 /* fewer are not worth a panel that is packed for them alone */

/* Few columns are cut in narrower bands, then the rows in parts, so that all threads have work. */
static void divide(product *w, uint32_t threads)
{
    int64_t wanted = sx_ceil_div_i64((int64_t)threads * TASKS_PER_THREAD, w->p->batch);
    int64_t panels = sx_ceil_div_i64(w->p->columns, w->columns);
    w->panels = sx_max_i64(1, sx_min_i64(BAND, panels / wanted));
    w->bands = sx_ceil_div_i64(panels, w->panels);
    int64_t parts = sx_min_i64(wanted / w->bands, w->row_blocks / ROW_BLOCKS_MIN);
    w->parts = threads > 1 ? sx_max_i64(1, parts) : 1;
}

sx_code sxv_multiply(sx_ctx *cx, sxr_pool *pool, const sxv_product *p)
{
    product w = {.p = p, .block = blocks_here()};
    SX_ASSERT(p->batch > 0 && p->rows > 0 && p->columns > 0 && p->length > 0);
    SX_ASSERT((p->result == NULL) != (p->result_f32 == NULL));
    SX_ASSERT(p->narrow || p->result != NULL);
    w.row_blocks = sx_ceil_div_i64(p->rows, ROWS);
    w.columns = p->narrow ? w.block.columns_f32 : w.block.columns_f64;
    SX_ASSERT(w.columns <= (p->narrow ? COLUMNS_MAX : COLUMNS_MAX / 2));
    divide(&w, sxr_pool_threads(pool));
    size_t element = p->narrow ? sizeof(float) : sizeof(double);
    size_t count = (size_t)(p->batch * w.row_blocks * p->length) * ROWS;
    SX_TRY(scratch_grow(cx, p->scratch, count * element));
    w.left.any = p->scratch->memory;
    sxr_pool_run(pool, pack_left, &w, p->batch * w.row_blocks);
    sxr_pool_run(pool, run_tasks, &w, p->batch * w.bands * w.parts);
    return SX_OK;
}
