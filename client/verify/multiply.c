#include "client/verify/multiply.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "client/runtime/cpu.h"
#include "client/verify/fast.h"

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

/* ---- the product: the left operand packed as a whole, panels of the right one by whoever multiplies them ---- */
typedef struct {
    const sxv_product *p;
    blocks block;
    int64_t row_blocks, columns, bands; /* columns of a panel */
    union {
        void *any;
        double *f64;
        float *f32;
    } left; /* [batch][row block][k][ROWS], zeros beyond the last row */
} product;

/* Blocks [first, last) of all batches. */
SXV_LEVELS static void pack_left(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const product *w = self;
    const sxv_product *p = w->p;
    double row[ROWS] = {0};
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t start = i % w->row_blocks * ROWS;
        int64_t count = sx_min_i64(ROWS, p->rows - start);
        int64_t at = i * p->length * ROWS;
        for (int64_t k = 0; k < p->length; k++, at += ROWS) {
            p->load_left(p->left, i / w->row_blocks, k, start, count, row);
            for (int64_t r = 0; r < ROWS; r++) {
                if (p->narrow) {
                    w->left.f32[at + r] = (float)row[r];
                } else {
                    w->left.f64[at + r] = row[r];
                }
            }
        }
    }
}

/* One tile of the result, in doubles, from or to the narrow or wide sums. */
#define EXCHANGE(element)                                                       \
    for (int64_t i = 0; i < rows; i++) {                                        \
        for (int64_t j = 0; j < columns; j++) {                                 \
            if (out) {                                                          \
                to[i * stride + j] = (double)((element *)tile)[i * width + j];  \
            } else {                                                            \
                ((element *)tile)[i * width + j] = (element)to[i * stride + j]; \
            }                                                                   \
        }                                                                       \
    }
SXV_LEVELS static void exchange(bool narrow, bool out, int64_t rows, int64_t columns, int64_t width,
                                void *tile, double *to, int64_t stride)
{
    if (narrow) {
        EXCHANGE(float)
    } else {
        EXCHANGE(double)
    }
}

/* All rows of one panel through the steps that it holds. */
static void multiply_panel(const product *w, int64_t batch, int64_t column, int64_t k,
                           int64_t steps, const void *panel)
{
    const sxv_product *p = w->p;
    int64_t columns = sx_min_i64(w->columns, p->columns - column);
    for (int64_t b = 0; b < w->row_blocks; b++) {
        double tile[ROWS * COLUMNS_MAX] = {0}; /* as floats where sums are narrow */
        int64_t rows = sx_min_i64(ROWS, p->rows - b * ROWS);
        int64_t left = ((batch * w->row_blocks + b) * p->length + k) * ROWS;
        double *to = p->result + (batch * p->rows + b * ROWS) * p->columns + column;
        if (k > 0) {
            exchange(p->narrow, false, rows, columns, w->columns, tile, to, p->columns);
        }
        if (p->narrow) {
            w->block.f32(steps, w->left.f32 + left, panel, (float *)tile);
        } else {
            w->block.f64(steps, w->left.f64 + left, panel, tile);
        }
        exchange(p->narrow, true, rows, columns, w->columns, tile, to, p->columns);
    }
}

/* Panels of one batch that lie side by side. They are packed together: steps of the right operand are far from each
 * other in memory, and each is read in one piece then. */
#define BAND 8
typedef struct {
    union {
        double f64[BAND][STEPS * COLUMNS_MAX / 2];
        float f32[BAND][STEPS * COLUMNS_MAX];
    };
} band;

SXV_LEVELS static void pack_band(const product *w, int64_t batch, int64_t column, int64_t k,
                                 int64_t steps, band *to)
{
    const sxv_product *p = w->p;
    double row[BAND * COLUMNS_MAX] = {0};
    int64_t count = sx_min_i64(BAND * w->columns, p->columns - column);
    int64_t panels = sx_ceil_div_i64(count, w->columns);
    for (int64_t s = 0; s < steps; s++) {
        p->load_right(p->right, batch, k + s, column, count, row);
        for (int64_t n = 0; n < panels; n++) {
            const double *from = row + n * w->columns;
            for (int64_t j = 0; p->narrow && j < w->columns; j++) {
                to->f32[n][s * w->columns + j] = (float)from[j];
            }
            for (int64_t j = 0; !p->narrow && j < w->columns; j++) {
                to->f64[n][s * w->columns + j] = from[j];
            }
        }
    }
}

/* Bands [first, last) of all batches. */
static void run_bands(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const product *w = self;
    const sxv_product *p = w->p;
    band packed;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t batch = i / w->bands;
        int64_t column = i % w->bands * BAND * w->columns;
        for (int64_t k = 0; k < p->length; k += STEPS) {
            int64_t steps = sx_min_i64(STEPS, p->length - k);
            pack_band(w, batch, column, k, steps, &packed);
            for (int64_t n = 0; n < BAND && column + n * w->columns < p->columns; n++) {
                multiply_panel(w, batch, column + n * w->columns, k, steps,
                               p->narrow ? (const void *)packed.f32[n]
                                         : (const void *)packed.f64[n]);
            }
        }
    }
}

sx_code sxv_multiply(sx_ctx *cx, sxr_pool *pool, const sxv_product *p)
{
    product w = {.p = p, .block = blocks_here()};
    SX_ASSERT(p->batch > 0 && p->rows > 0 && p->columns > 0 && p->length > 0);
    w.row_blocks = sx_ceil_div_i64(p->rows, ROWS);
    w.columns = p->narrow ? w.block.columns_f32 : w.block.columns_f64;
    w.bands = sx_ceil_div_i64(p->columns, w.columns * BAND);
    SX_ASSERT(w.columns <= (p->narrow ? COLUMNS_MAX : COLUMNS_MAX / 2));
    size_t element = p->narrow ? sizeof(float) : sizeof(double);
    size_t count = (size_t)(p->batch * w.row_blocks * p->length) * ROWS;
    w.left.any = malloc(count * element);
    if (w.left.any == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "reference: no memory for %zu elements", count);
    }
    sxr_pool_run(pool, pack_left, &w, p->batch * w.row_blocks);
    sxr_pool_run(pool, run_bands, &w, p->batch * w.bands);
    free(w.left.any);
    return SX_OK;
}
