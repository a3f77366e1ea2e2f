/* draw.h - seeded random inputs on which a program means something.
 *
 * What a parameter is used for decides what is drawn: weights of a sum of n terms are scaled by sqrt(3 / n),
 * so that results keep their order of magnitude through any depth; what comes under a root or a logarithm is
 * in [0.5, 1.5), what comes under a fraction is that with either sign; indices of a gather lie
 * below its extent, those of a scatter and the starts of dynamic slices mostly so; everything else
 * is in [-1, 1), integers in [0, 16), bools 0 or 1. Without this the
 * variances of a batch normalisation are negative half of the time, and every result behind them is NaN,
 * whatever the code does.
 */
#ifndef SX_CLIENT_VERIFY_DRAW_H
#define SX_CLIENT_VERIFY_DRAW_H
#include "client/runtime/pool.h"
#include "core/ir/ir.h"

#define SXV_DRAW_PARTS 8
typedef struct {
    /* The name of the parameter. */
    sx_span name;
    /* Floats are in [low, low + width), and with `either_sign` half of them are negated. */
    double low, width;
    bool either_sign;
    /* The tensor is cut in SXV_DRAW_PARTS runs of elements, and each run is multiplied by 2^-126 to 2^126,
     * or as far as the type has normal numbers. */
    bool wide;
    /* Integers are below this. */
    uint64_t integers;
} sxv_recipe;
/* One for each parameter of a static graph, in node order; memory in cx's arena. */
sx_code sxv_draw_recipes(sx_ctx *cx, const sx_graph *graph, sxv_recipe **recipe, uint32_t *count);
/* That of the parameter `name`; of a tensor that the program does not know, one that suits any. */
sxv_recipe sxv_recipe_of(const sxv_recipe *recipe, uint32_t count, sx_span name);
/* Fills `elements` elements; the same seed and recipe give the same ones with any pool. */
void sxv_draw(sxr_pool *pool, const sxv_recipe *recipe, sx_dtype dtype, int64_t elements,
              uint64_t seed, void *memory);
#endif
