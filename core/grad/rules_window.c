/* rules_window.c - windows that slide: reduce_window and convolution. */
#include "core/grad/sweep.h"

/* Beyond this the cotangent of a maximum over windows would be too many slices. */
#define WINDOW_ELEMENTS_MAX 1024

/* One dimension of a sliding window: the place p covers the elements p stride + k dilation - low, k < window. */
typedef struct {
    int64_t extent, places, window, stride, dilation, low;
} lane;

/* ---- the sum of what slides over an element ----
 * The element i gets g of the place p through k where i = p stride + k dilation - low. So with the elements of g
 * stride apart (`spread` of them, zeros between), i + low - k dilation is an index of g: a window of step 1 over it.
 * It needs `before` zeros in front and `behind` zeros at the end; a negative number is elements that no window of
 * step 1 reads. */
typedef struct {
    int64_t spread, before, behind;
} gap;

static gap gap_of(const lane *at)
{
    int64_t reach = (at->window - 1) * at->dilation;
    int64_t spread = (at->places - 1) * at->stride + 1;
    return (gap){spread, reach - at->low, at->extent - spread + at->low};
}

/* g with its elements `stride` apart in the dimensions from `first` on, without those that nobody reads; `low` and
 * `high` are left to be padded. False: nothing is left. */
static bool spread_places(sx_sweep *s, sx_node_id g, uint32_t first, const lane *at, uint32_t count,
                          sx_ints *low, sx_ints *high, sx_node_id *spread)
{
    sx_attr pad = sx_no_padding(first + count);
    *low = *high = (sx_ints){.count = count};
    sx_type type = sx_step_type(s, g);
    for (uint32_t d = 0; d < count; d++) {
        pad.interior.v[first + d] = at[d].places > 1 ? at[d].stride - 1 : 0;
        if (sx_dim_is_constant(type.dim[first + d])) {
            type.dim[first + d] = sx_dim_of(gap_of(&at[d]).spread);
        }
    }
    sx_attr slice = sx_whole_slice(&type);
    for (uint32_t d = 0; d < count; d++) {
        if (!sx_dim_is_constant(type.dim[first + d])) {
            continue; /* a window of one element in steps of one */
        }
        gap room = gap_of(&at[d]);
        low->v[d] = room.before > 0 ? room.before : 0;
        high->v[d] = room.behind > 0 ? room.behind : 0;
        slice.start.v[first + d] = room.before < 0 ? -room.before : 0;
        slice.limit.v[first + d] = room.spread + (room.behind < 0 ? room.behind : 0);
        if (slice.start.v[first + d] >= slice.limit.v[first + d]) {
            return false;
        }
    }
    *spread = sx_step_slice(s, sx_step_pad(s, g, &pad, 0), &slice);
    return true;
}

/* ---- reduce_window ---- */

/* A window over x and its result y with cotangent g. */
typedef struct {
    sx_node_id x, y, g;
    sx_type type; /* of x */
    lane lane[SX_RANK_MAX];
} window;

/* A symbolic dimension in steps is steps times a known rest, over which the window lies at one place: two dimensions,
 * so that only windows of one element slide over symbolic extents. */
static void split_symbolic(sx_sweep *s, const sx_site *at, window *w)
{
    sx_type from = sx_step_type(s, at->x[0]);
    sx_type places = {.dtype = from.dtype};
    w->type = (sx_type){.dtype = from.dtype};
    for (uint32_t d = 0; d < from.rank; d++) {
        lane one = {1,
                    1,
                    at->attr.window.v[d],
                    at->attr.stride.v[d],
                    at->attr.dilation.v[d],
                    at->attr.low.v[d]};
        bool split = !sx_dim_is_constant(from.dim[d]) && one.stride > 1;
        if (w->type.rank + (split ? 1 : 0) >= SX_RANK_MAX) {
            s->code =
                SX_FAIL(s->cx, SX_UNIMPLEMENTED,
                        "gradient of reduce_window in steps along symbolic dimension %u at rank %u",
                        d, from.rank);
            return;
        }
        if (split) {
            w->lane[w->type.rank] = (lane){1, 1, 1, 1, 1, 0};
            w->type.dim[w->type.rank++] = at->type.dim[d];
            places.dim[places.rank++] = at->type.dim[d];
            one.extent = one.stride;
        } else if (sx_dim_is_constant(from.dim[d])) {
            one.extent = from.dim[d].scale;
            one.places = at->type.dim[d].scale;
        }
        places.dim[places.rank++] = split ? sx_dim_of(1) : at->type.dim[d];
        w->lane[w->type.rank] = one;
        w->type.dim[w->type.rank++] = split ? sx_dim_of(one.stride) : from.dim[d];
    }
    w->x = sx_step_reshape(s, at->x[0], &w->type);
    w->y = sx_step_reshape(s, at->y, &places);
    w->g = sx_step_reshape(s, at->g, &places);
}

/* False: no window reads any element of x. */
static bool window_sum(sx_sweep *s, const window *w, sx_node_id *sum)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_REDUCE_WINDOW)->attrs, .reducer = SX_SUM};
    sx_node_id spread;
    if (!spread_places(s, w->g, 0, w->lane, w->type.rank, &attr.low, &attr.high, &spread)) {
        return false;
    }
    attr.stride.count = attr.window.count = attr.dilation.count = w->type.rank;
    for (uint32_t d = 0; d < w->type.rank; d++) {
        attr.stride.v[d] = 1;
        attr.window.v[d] = w->lane[d].window;
        attr.dilation.v[d] = w->lane[d].dilation;
    }
    *sum = sx_step(s, SX_OP_REDUCE_WINDOW, &attr, &spread, 1);
    return true;
}

/* What one element of the window reads: the places at which it lies inside x, and the elements there. */
typedef struct {
    sx_attr places, elements;
    sx_attr around_places, around_elements; /* the padding that puts such a slice back */
} tap;

/* The k-th element of the window, numbered in row-major order; false: it lies in the padding at every place. */
static bool tap_of(sx_sweep *s, const window *w, int64_t k, tap *made)
{
    sx_type places = sx_step_type(s, w->y);
    made->places = sx_whole_slice(&places);
    made->elements = sx_whole_slice(&w->type);
    made->around_places = made->around_elements = sx_no_padding(places.rank);
    for (uint32_t d = places.rank; d-- > 0;) {
        const lane *at = &w->lane[d];
        int64_t offset = k % at->window * at->dilation - at->low;
        k /= at->window;
        if (!sx_dim_is_constant(places.dim[d])) {
            continue;
        }
        int64_t first = offset >= 0 ? 0 : (-offset + at->stride - 1) / at->stride;
        int64_t room = at->extent - 1 - offset;
        int64_t last = room < 0 ? -1 : room / at->stride;
        last = last < at->places - 1 ? last : at->places - 1;
        if (first > last) {
            return false;
        }
        int64_t start = first * at->stride + offset;
        int64_t limit = last * at->stride + offset + 1;
        made->places.start.v[d] = first;
        made->places.limit.v[d] = last + 1;
        made->around_places.low.v[d] = first;
        made->around_places.high.v[d] = at->places - 1 - last;
        made->elements.start.v[d] = start;
        made->elements.limit.v[d] = limit;
        made->elements.stride.v[d] = last > first ? at->stride : 1;
        made->around_elements.low.v[d] = start;
        made->around_elements.high.v[d] = at->extent - limit;
        made->around_elements.interior.v[d] = last > first ? at->stride - 1 : 0;
    }
    return true;
}

/* The sum so far and one part more. */
static void add_part(sx_sweep *s, bool *any, sx_node_id *sum, sx_node_id part)
{
    *sum = *any ? sx_step_binary(s, SX_OP_ADD, *sum, part) : part;
    *any = true;
}

/* At which places the elements of a tap equal the result. */
static sx_node_id tap_equal(sx_sweep *s, const window *w, const tap *t)
{
    sx_node_id x = sx_step_slice(s, w->x, &t->elements);
    sx_node_id y = sx_step_slice(s, w->y, &t->places);
    return sx_step_compare(s, SX_EQ, x, y);
}

/* First the elements of each window that equal the result are counted, then each of them gets its share of g. */
static bool window_shares(sx_sweep *s, const window *w, int64_t elements, sx_node_id *sum)
{
    bool counted = false;
    bool any = false;
    sx_node_id count = {0};
    tap t;
    for (int64_t k = 0; k < elements; k++) {
        if (tap_of(s, w, k, &t)) {
            sx_node_id equal = tap_equal(s, w, &t);
            sx_type type = sx_step_type(s, equal);
            type.dtype = w->type.dtype;
            sx_node_id one = sx_step_constant(s, &type, 1);
            sx_node_id hit = sx_step_keep(s, equal, true, one);
            add_part(s, &counted, &count, sx_step_pad(s, hit, &t.around_places, 0));
        }
    }
    if (!counted) {
        return false;
    }
    sx_node_id share = sx_step_binary(s, SX_OP_DIVIDE, w->g, count);
    for (int64_t k = 0; k < elements; k++) {
        if (tap_of(s, w, k, &t)) {
            sx_node_id part = sx_step_slice(s, share, &t.places);
            part = sx_step_keep(s, tap_equal(s, w, &t), true, part);
            add_part(s, &any, sum, sx_step_pad(s, part, &t.around_elements, 0));
        }
    }
    return any;
}

void sx_grad_reduce_window(sx_sweep *s, const sx_site *at)
{
    window w = {0};
    sx_node_id sum = {0};
    sx_type from = sx_step_type(s, at->x[0]);
    int64_t elements = 1;
    for (uint32_t d = 0; d < from.rank; d++) {
        if (!sx_mul_i64(elements, at->attr.window.v[d], &elements)) {
            elements = INT64_MAX;
        }
    }
    bool is_sum = at->attr.reducer == SX_SUM;
    if (at->attr.reducer == SX_PRODUCT) {
        s->code = SX_FAIL(s->cx, SX_UNIMPLEMENTED, "gradient of reduce_window by multiply");
    } else if (!is_sum && elements > WINDOW_ELEMENTS_MAX) {
        s->code =
            SX_FAIL(s->cx, SX_UNIMPLEMENTED,
                    "gradient of reduce_window by %s over %lld elements, at most %d",
                    sx_reducer_name(at->attr.reducer), (long long)elements, WINDOW_ELEMENTS_MAX);
    } else {
        split_symbolic(s, at, &w);
    }
    if (s->code != SX_OK) {
        return;
    }
    if (is_sum ? window_sum(s, &w, &sum) : window_shares(s, &w, elements, &sum)) {
        sx_give(s, at, 0, sx_step_reshape(s, sum, &from));
    }
}

/* ---- convolution ---- */

/* x [n, groups * in, extent ..], w [groups * out, in, window ..], y [n, groups * out, places ..] */
typedef struct {
    sx_type x, w;
    int64_t groups;
    sx_dim out; /* output channels of a group */
    uint32_t spatial;
    lane lane[3];
} conv;

static void conv_of(sx_sweep *s, const sx_site *at, conv *c)
{
    c->x = sx_step_type(s, at->x[0]);
    c->w = sx_step_type(s, at->x[1]);
    c->groups = at->attr.groups;
    c->out = c->w.dim[0];
    c->out.scale /= c->groups;
    c->spatial = c->x.rank - 2;
    SX_ASSERT(c->spatial >= 1 && c->spatial <= SX_COUNT(c->lane));
    for (uint32_t d = 0; d < c->spatial; d++) {
        c->lane[d] = (lane){c->x.dim[2 + d].scale, at->type.dim[2 + d].scale, c->w.dim[2 + d].scale,
                            at->attr.stride.v[d],  at->attr.dilation.v[d],    at->attr.low.v[d]};
    }
}

/* ---- windows side by side: the elements of each place are dimensions of their own, and products contractions ---- */

/* The elements from the first to the last of the window of a lane. */
static int64_t span_of(const lane *at)
{
    return (at->window - 1) * at->dilation + 1;
}

/* Along a symbolic dimension windows never overlap (docs/IR.md), and there is no padding; then all others have to be so
 * too. False: there is no symbolic dimension, or an error. */
static bool side_by_side(sx_sweep *s, const sx_site *at, const conv *c)
{
    uint32_t symbolic = 0;
    uint32_t apart = 0;
    for (uint32_t d = 0; d < c->spatial; d++) {
        const lane *l = &c->lane[d];
        sx_dim covered;
        bool whole = sx_dim_multiply(at->type.dim[2 + d], sx_dim_of(l->stride), &covered) &&
                     sx_dim_equal(covered, c->x.dim[2 + d]);
        apart += whole && l->low == 0 && at->attr.high.v[d] == 0 && span_of(l) <= l->stride ? 1 : 0;
        symbolic = sx_dim_is_constant(c->x.dim[2 + d]) ? symbolic : 2 + d;
    }
    if (symbolic != 0 && (apart < c->spatial || 3 + 2 * c->spatial > SX_RANK_MAX)) {
        s->code = SX_FAIL(s->cx, SX_UNIMPLEMENTED,
                          "gradient of a convolution along symbolic dimension %u with %s", symbolic,
                          apart < c->spatial ? "windows that overlap or padding along another"
                                             : "three spatial dimensions");
    }
    return symbolic != 0 && s->code == SX_OK;
}

/* x as [n, groups, in, places, stride, ..]. */
static sx_type tiles_of(const sx_site *at, const conv *c)
{
    sx_type tiles = sx_type_with(&c->x, 1, sx_dim_of(c->groups));
    tiles.dim[2].scale /= c->groups;
    tiles.rank = 3;
    for (uint32_t d = 0; d < c->spatial; d++) {
        tiles.dim[tiles.rank++] = at->type.dim[2 + d];
        tiles.dim[tiles.rank++] = sx_dim_of(c->lane[d].stride);
    }
    return tiles;
}

/* Contracts g over the batch and all places with the elements of the windows there. */
static void give_weights_of_tiles(sx_sweep *s, const sx_site *at, const conv *c, sx_node_id g)
{
    sx_type tiles = tiles_of(at, c);
    sx_attr slice = sx_whole_slice(&tiles);
    sx_attr dot = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs,
                   .lhs_batch = {1, {1}},
                   .rhs_batch = {1, {1}},
                   .lhs_contract = {1, {0}},
                   .rhs_contract = {1, {0}}};
    for (uint32_t d = 0; d < c->spatial; d++) {
        slice.limit.v[4 + 2 * d] = span_of(&c->lane[d]);
        slice.stride.v[4 + 2 * d] = c->lane[d].dilation;
        dot.lhs_contract.v[dot.lhs_contract.count++] = 3 + d;
        dot.rhs_contract.v[dot.rhs_contract.count++] = 3 + 2 * d;
    }
    sx_node_id x = sx_step_reshape(s, at->x[0], &tiles);
    sx_node_id input[2] = {g, sx_step_slice(s, x, &slice)};
    sx_give(s, at, 1, sx_step_reshape(s, sx_step(s, SX_OP_DOT_GENERAL, &dot, input, 2), &c->w));
}

/* Each element of x lies in the window of one place, or of none. */
static void give_input_of_tiles(sx_sweep *s, const sx_site *at, const conv *c, sx_node_id g,
                                sx_node_id w)
{
    sx_attr dot = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs,
                   .lhs_batch = {1, {1}},
                   .rhs_batch = {1, {0}},
                   .lhs_contract = {1, {2}},
                   .rhs_contract = {1, {1}}};
    sx_node_id input[2] = {g, w};
    sx_ints perm = {3, {1, 0, 2 + c->spatial}}; /* of [groups, n, places .., in, window ..] */
    sx_attr pad = sx_no_padding(3 + 2 * c->spatial);
    for (uint32_t d = 0; d < c->spatial; d++) {
        perm.v[perm.count++] = 2 + d;
        perm.v[perm.count++] = 3 + c->spatial + d;
        pad.interior.v[4 + 2 * d] = c->lane[d].window > 1 ? c->lane[d].dilation - 1 : 0;
        pad.high.v[4 + 2 * d] = c->lane[d].stride - span_of(&c->lane[d]);
    }
    sx_node_id part = sx_step(s, SX_OP_DOT_GENERAL, &dot, input, 2);
    part = sx_step_pad(s, sx_step_transpose(s, part, &perm), &pad, 0);
    sx_give(s, at, 0, sx_step_reshape(s, part, &c->x));
}

static void give_tiles(sx_sweep *s, const sx_site *at, const conv *c)
{
    sx_type w = sx_type_with(&c->w, 0, sx_dim_of(c->groups));
    sx_type g = sx_type_with(&at->type, 1, sx_dim_of(c->groups));
    w.dim[1] = g.dim[2] = c->out;
    sx_node_id above = sx_step_reshape(s, at->g, &g);
    if (sx_wants(s, at, 0)) {
        give_input_of_tiles(s, at, c, above, sx_step_reshape(s, at->x[1], &w));
    }
    if (sx_wants(s, at, 1)) {
        give_weights_of_tiles(s, at, c, above);
    }
}

/* ---- windows that overlap: convolutions ---- */

/* The dimensions `first` .. of `a` exchanged with those behind: [.., i, j, ..] becomes [.., j, i, ..]. */
static sx_node_id exchange(sx_sweep *s, sx_node_id a, uint32_t i, uint32_t j)
{
    sx_ints perm = sx_other_dims(sx_step_type(s, a).rank, &(sx_ints){0});
    perm.v[i] = j;
    perm.v[j] = i;
    return sx_step_transpose(s, a, &perm);
}

/* `a` [.., groups * part, ..] as [.., groups, part, ..], with d the dimension of the groups. */
static sx_node_id split_groups(sx_sweep *s, sx_node_id a, uint32_t d, int64_t groups)
{
    sx_type type = sx_step_type(s, a);
    type.dim[d].scale /= groups;
    type = sx_type_with(&type, d, sx_dim_of(groups));
    return sx_step_reshape(s, a, &type);
}

static sx_node_id join_groups(sx_sweep *s, sx_node_id a, uint32_t d)
{
    sx_type type = sx_step_type(s, a);
    SX_ASSERT(sx_dim_is_constant(type.dim[d]) && type.rank > d + 1);
    type.dim[d + 1].scale *= type.dim[d].scale;
    for (uint32_t i = d; i + 1 < type.rank; i++) {
        type.dim[i] = type.dim[i + 1];
    }
    type.rank--;
    return sx_step_reshape(s, a, &type);
}

/* w [groups * out, in, ..] as [groups * in, out, ..] with the window reversed. */
static sx_node_id turned_weights(sx_sweep *s, const conv *c, sx_node_id w)
{
    sx_node_id turned = split_groups(s, w, 0, c->groups);
    turned = join_groups(s, exchange(s, turned, 1, 2), 0);
    sx_attr reverse = {.present = SX_A(dims)};
    for (uint32_t d = 0; d < c->spatial; d++) {
        if (c->lane[d].window > 1) {
            reverse.dims.v[reverse.dims.count++] = 2 + d;
        }
    }
    return reverse.dims.count == 0 ? turned : sx_step(s, SX_OP_REVERSE, &reverse, &turned, 1);
}

static void give_input(sx_sweep *s, const sx_site *at, const conv *c)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_CONVOLUTION)->attrs, .groups = c->groups};
    sx_node_id input[2];
    if (!spread_places(s, at->g, 2, c->lane, c->spatial, &attr.low, &attr.high, &input[0])) {
        return;
    }
    attr.stride.count = attr.dilation.count = c->spatial;
    for (uint32_t d = 0; d < c->spatial; d++) {
        attr.stride.v[d] = 1;
        attr.dilation.v[d] = c->lane[d].dilation;
    }
    input[1] = turned_weights(s, c, at->x[1]);
    sx_give(s, at, 0, sx_step(s, SX_OP_CONVOLUTION, &attr, input, 2));
}

/* An element of w at k meets x at p stride + k dilation - low and g at p, for all p and all of the batch: x and g with
 * batch and channels exchanged, a window of all places that moves by the dilation. */
static void give_weights(sx_sweep *s, const sx_site *at, const conv *c)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_CONVOLUTION)->attrs, .groups = c->groups};
    attr.stride.count = attr.low.count = attr.high.count = attr.dilation.count = c->spatial;
    sx_attr slice = sx_whole_slice(&c->x);
    for (uint32_t d = 0; d < c->spatial; d++) {
        const lane *l = &c->lane[d];
        int64_t read = (l->window - 1) * l->dilation + (l->places - 1) * l->stride + 1 - l->low;
        attr.stride.v[d] = l->dilation;
        attr.dilation.v[d] = l->stride;
        attr.low.v[d] = l->low;
        attr.high.v[d] = read > l->extent ? read - l->extent : 0;
        slice.limit.v[2 + d] = read < l->extent ? read : l->extent;
        if (slice.limit.v[2 + d] <= 0) {
            return; /* all windows lie in the padding */
        }
    }
    sx_node_id input[2];
    input[0] = sx_step_slice(s, at->x[0], &slice);
    if (c->groups > 1) { /* [n, groups * in, ..] as [in, groups * n, ..] */
        input[0] = split_groups(s, input[0], 1, c->groups);
        input[0] = join_groups(s, exchange(s, input[0], 0, 2), 1);
    } else {
        input[0] = exchange(s, input[0], 0, 1);
    }
    input[1] = exchange(s, at->g, 0, 1);
    sx_node_id made = sx_step(s, SX_OP_CONVOLUTION, &attr, input, 2);
    sx_give(s, at, 1, exchange(s, made, 0, 1));
}

void sx_grad_convolution(sx_sweep *s, const sx_site *at)
{
    conv c = {.groups = 0};
    conv_of(s, at, &c);
    if (side_by_side(s, at, &c)) {
        give_tiles(s, at, &c);
        return;
    }
    if (s->code == SX_OK && sx_wants(s, at, 0)) {
        give_input(s, at, &c);
    }
    if (s->code == SX_OK && sx_wants(s, at, 1)) {
        give_weights(s, at, &c);
    }
}
