/* conv_phase.c - a convolution of an image with zeros between its elements, as transposed convolutions and the slopes
 * of strided ones are: one of the image without them, with output channels for each place between, which are then put
 * side by side (Shi 2016, sub-pixel convolution). One dimension of n elements, s apart, and a window of m s steps:
 * place q s + r of the result is the sum over t < m of x[q + t + 1 - m] w[t s + s - 1 - r], in the same order. */
#include "core/rules/conv.h"

typedef struct {
    sx_attr conv;     /* of the image without zeros */
    sx_type w, y;     /* of the convolution that is there */
    uint32_t spatial; /* dimensions */
    sx_ints step;     /* s: how far elements of the image lie apart */
    sx_ints taps;     /* m: steps of the window behind one another, of one phase */
    sx_ints places;   /* q that are computed */
    sx_ints first;    /* of what is computed, the first place of the result */
} phases;

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0 ? 1 : 0);
}

/* False where nothing lies between elements, or extents are not known. */
static bool find_phases(sx_rewrite *rw, phases *p)
{
    sx_attr pad = sx_rewrite_attr(rw, 1);
    p->conv = sx_rewrite_attr(rw, 0);
    p->w = *sx_rewrite_type(rw, rw->var[1]);
    p->y = *sx_rewrite_type(rw, rw->node[0]);
    p->spatial = p->conv.stride.count;
    p->step = p->taps = p->places = p->first = sx_ints_of(p->spatial, 1);
    if (p->w.rank + p->spatial > SX_RANK_MAX || !sx_ints_are(&p->conv.stride, 1) ||
        !sx_ints_are(&p->conv.dilation, 1)) {
        return false;
    }
    bool apart = false, fits = true;
    for (uint32_t d = 0; d < 2; d++) {
        fits = fits && pad.low.v[d] == 0 && pad.high.v[d] == 0 && pad.interior.v[d] == 0;
        fits = fits && sx_dim_is_constant(p->w.dim[d]);
    }
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    for (uint32_t d = 0; fits && d < p->spatial; d++) {
        fits = sx_dim_is_constant(x.dim[2 + d]) && sx_dim_is_constant(p->w.dim[2 + d]) &&
               sx_dim_is_constant(p->y.dim[2 + d]) && p->y.dim[2 + d].scale > 0;
        int64_t s = pad.interior.v[2 + d] + 1;
        int64_t m = (p->w.dim[2 + d].scale + s - 1) / s;
        int64_t start = m * s - 1 - (p->conv.low.v[d] + pad.low.v[2 + d]);
        int64_t last = floor_div(start + p->y.dim[2 + d].scale - 1, s);
        int64_t low = sx_max_i64(0, m - 1 - floor_div(start, s));
        int64_t high = sx_max_i64(0, last + 1 - x.dim[2 + d].scale);
        p->step.v[d] = s;
        p->taps.v[d] = m;
        p->places.v[d] = x.dim[2 + d].scale + low + high - m + 1;
        p->first.v[d] = start - (m - 1 - low) * s;
        p->conv.low.v[d] = low;
        p->conv.high.v[d] = high;
        apart = apart || s > 1;
    }
    return fits && apart;
}

/* w [o, c, m s ..] as [o s .., c, m ..], the steps of a phase from the last to the first. */
static sx_code weights_of(sx_rewrite *rw, const phases *p, uint32_t *node)
{
    uint32_t n = p->spatial;
    sx_ints none = sx_ints_of(n + 2, 0), high = none;
    sx_type apart = {p->w.dtype, 2 + 2 * n, {p->w.dim[0], p->w.dim[1]}};
    sx_type made = {p->w.dtype, 2 + n, {p->w.dim[0], p->w.dim[1]}};
    sx_attr turn = {.present = SX_A(dims)}, order = {.present = SX_A(perm)};
    order.perm = (sx_ints){2 + 2 * n, {0}};
    order.perm.v[1 + n] = 1;
    for (uint32_t d = 0; d < n; d++) {
        high.v[2 + d] = p->taps.v[d] * p->step.v[d] - p->w.dim[2 + d].scale;
        apart.dim[2 + 2 * d] = made.dim[2 + d] = sx_dim_of(p->taps.v[d]);
        apart.dim[3 + 2 * d] = sx_dim_of(p->step.v[d]);
        made.dim[0].scale *= p->step.v[d];
        turn.dims.v[turn.dims.count++] = 3 + 2 * d;
        order.perm.v[1 + d] = 3 + 2 * d;
        order.perm.v[2 + n + d] = 2 + 2 * d;
    }
    *node = rw->var[1];
    if (!sx_ints_are(&high, 0)) {
        SX_TRY(sx_rewrite_pad(rw, *node, 0, &none, &high, node));
    }
    SX_TRY(sx_rewrite_reshape(rw, *node, &apart, node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REVERSE, &turn, node, 1, node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &order, node, 1, node));
    return sx_rewrite_reshape(rw, *node, &made, node);
}

/* [n, o s .., q ..] as [n, o, q s ..], and of that the places of the result. */
static sx_code side_by_side(sx_rewrite *rw, const phases *p, uint32_t *node)
{
    uint32_t n = p->spatial;
    sx_type apart = {p->y.dtype, 2 + 2 * n, {p->y.dim[0], p->y.dim[1]}};
    sx_type made = {p->y.dtype, 2 + n, {p->y.dim[0], p->y.dim[1]}};
    sx_attr order = {.present = SX_A(perm)};
    order.perm = (sx_ints){2 + 2 * n, {0, 1}};
    for (uint32_t d = 0; d < n; d++) {
        apart.dim[2 + d] = sx_dim_of(p->step.v[d]);
        apart.dim[2 + n + d] = sx_dim_of(p->places.v[d]);
        made.dim[2 + d] = sx_dim_of(p->step.v[d] * p->places.v[d]);
        order.perm.v[2 + 2 * d] = 2 + n + d;
        order.perm.v[3 + 2 * d] = 2 + d;
    }
    SX_TRY(sx_rewrite_reshape(rw, *node, &apart, node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &order, node, 1, node));
    SX_TRY(sx_rewrite_reshape(rw, *node, &made, node));
    for (uint32_t d = 0; d < n; d++) {
        SX_TRY(sx_rewrite_cut(rw, *node, 2 + d, p->first.v[d], p->y.dim[2 + d].scale, node));
    }
    return SX_OK;
}

sx_code sx_rule_conv_phases(sx_rewrite *rw)
{
    phases p;
    if (!find_phases(rw, &p)) {
        return SX_OK;
    }
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    SX_TRY(weights_of(rw, &p, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONVOLUTION, &p.conv, child, 2, &node));
    SX_TRY(side_by_side(rw, &p, &node));
    return sx_rewrite_emit(rw, node);
}
