/* lower_sort.c - the first elements along an axis in order, or their places: a network of comparisons.
 *
 * A grid point has a row. Its elements become pairs of integers that are all different (sort_order.c), which lie in the
 * workspace: the keys, and behind them the tags. Pairs that the network names are compared and exchanged, the smaller
 * one to the lower place; which ones follows from the length of the row alone. The network is Batcher's for bitonic
 * sequences in the form that always has the smaller pair in the lower place (Knuth, volume 3, 5.3.4, exercise 10):
 *
 *   sort     runs of k/2 become runs of k: place i meets the mirrored one, k - 1 - i; then, in halves, quarters and so
 *            on, i meets i + k/4, i + k/8 .. i + 1. Runs begin with 1 element, and end with K, a power of two that is
 *            at least a vector and at least the places that are asked for
 *   prune    of two runs, s apart, one is left: place i of the first meets place K - 1 - i of the second, which has the
 *            K smallest of both in the first run, as a bitonic sequence; it is sorted as above. s is K, 2 K, 4 K ..
 *
 * A row ends somewhere: it is filled up to whole vectors with pairs behind all others, and whoever has no partner
 * stays. Partners a vector or more apart are compared vector by vector, those inside of one by exchanges of lanes. So
 * n elements take about n (log K)^2 / 4 comparisons, and n for what is pruned.
 */
#include "core/ir/sort.h"
#include "core/loop/lower.h"

#include <string.h>

typedef struct {
    sx_kernel *kernel;
    sx_loop_builder b;
    sx_dtype dtype;
    bool falls;
    /* The result has places, not elements. */
    bool places;
    /* Of a row: its elements, the same up to whole vectors, and how many come out. */
    int64_t elements, padded, count;
    /* K */
    int64_t run;
    /* Of a vector. */
    int64_t lanes;
    /* Rows are [outer, axis, inner]; the parts of the grid are the other two. */
    int64_t outer, inner;
    /* Registers: bit k of the lane's number, and 0. */
    uint32_t bit[SX_TURN_STAGES], zero;
} sorter;

/* Positions of both partners, as they are walked: `groups` of `blocks` of `count` vectors. */
typedef struct {
    int64_t groups, group_step, blocks, block_step, count;
    /* From vector to vector. */
    int64_t low_step, high_step;
    sx_affine low, high;
    uint32_t opened;
} pass;

/* ---- pairs in the workspace ---- */
static sx_addr place_of(const sorter *s, const sx_affine *at, int64_t offset, bool tag)
{
    const int64_t bytes = s->kernel->lane_bytes;
    sx_addr addr = {.buffer = 2, .index_reg = SX_NO_REG};
    addr.offset = (at->constant + offset + (tag ? s->padded : 0)) * bytes;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        addr.coef[v] = at->coef[v] * bytes;
    }
    return addr;
}

static sx_loop_pair load_lanes(sorter *s, const sx_affine *at, int64_t offset, int64_t lanes)
{
    uint32_t reg[2];
    for (uint32_t k = 0; k < 2; k++) {
        sx_addr from = place_of(s, at, offset, k == 1);
        reg[k] =
            sx_loop_access(&s->b, SX_LOP_LOAD, SX_MEM_LANE, &from, SX_NO_REG, (uint32_t)lanes, 0);
    }
    return (sx_loop_pair){reg[0], reg[1]};
}

static sx_loop_pair load_pair(sorter *s, const sx_affine *at, int64_t offset)
{
    return load_lanes(s, at, offset, s->lanes);
}

static void store_pair(sorter *s, const sx_affine *at, int64_t offset, sx_loop_pair pair)
{
    for (uint32_t k = 0; k < 2; k++) {
        sx_addr to = place_of(s, at, offset, k == 1);
        (void)sx_loop_access(&s->b, SX_LOP_STORE, SX_MEM_LANE, &to, k == 1 ? pair.tag : pair.key,
                             (uint32_t)s->lanes, 0);
    }
}

static uint32_t op3(sorter *s, sx_lop op, uint32_t x, uint32_t y, uint32_t z, uint32_t imm)
{
    return sx_loop_op(&s->b, op, SX_NO_REG, NULL, x, y, z, imm, 0);
}

/* A mask: x is the larger pair. */
static uint32_t is_larger(sorter *s, sx_loop_pair x, sx_loop_pair y)
{
    uint32_t none = SX_NO_REG;
    uint32_t key = op3(s, SX_LOP_ICMP, x.key, y.key, none, SX_GT);
    uint32_t equal = op3(s, SX_LOP_ICMP, x.key, y.key, none, SX_EQ);
    uint32_t tag = op3(s, SX_LOP_ICMP, x.tag, y.tag, none, SX_GT);
    return op3(s, SX_LOP_MOR, key, op3(s, SX_LOP_MAND, equal, tag, none, 0), none, 0);
}

static sx_loop_pair chosen(sorter *s, uint32_t mask, sx_loop_pair x, sx_loop_pair y)
{
    return (sx_loop_pair){op3(s, SX_LOP_BLEND, mask, x.key, y.key, 0),
                          op3(s, SX_LOP_BLEND, mask, x.tag, y.tag, 0)};
}

static void exchange(sorter *s, sx_loop_pair *low, sx_loop_pair *high)
{
    uint32_t wrong = is_larger(s, *low, *high);
    sx_loop_pair least = chosen(s, wrong, *high, *low);
    *high = chosen(s, wrong, *low, *high);
    *low = least;
}

/* ---- inside of a vector ---- */
static sx_loop_pair swapped(sorter *s, sx_loop_pair pair, uint32_t apart)
{
    return (sx_loop_pair){op3(s, SX_LOP_SWAP, pair.key, SX_NO_REG, SX_NO_REG, apart),
                          op3(s, SX_LOP_SWAP, pair.tag, SX_NO_REG, SX_NO_REG, apart)};
}

/* Lane i is lane i ^ (lanes - 1) of each group of `lanes`. */
static sx_loop_pair mirrored(sorter *s, sx_loop_pair pair, uint32_t lanes)
{
    for (uint32_t apart = lanes / 2; apart > 0; apart /= 2) {
        pair = swapped(s, pair, apart);
    }
    return pair;
}

/* Lanes whose number has bit `bit` are the upper partners. */
static sx_loop_pair exchange_lanes(sorter *s, sx_loop_pair own, sx_loop_pair other, uint32_t bit)
{
    uint32_t larger = is_larger(s, own, other);
    uint32_t upper = op3(s, SX_LOP_ICMP, s->bit[bit], s->zero, SX_NO_REG, SX_GT);
    uint32_t wrong = op3(s, SX_LOP_MXOR, larger, upper, SX_NO_REG, 0);
    return chosen(s, wrong, other, own);
}

/* Partners 2^bit apart, and then those nearer. */
static sx_loop_pair clean_lanes(sorter *s, sx_loop_pair pair, uint32_t bits)
{
    while (bits-- > 0) {
        pair = exchange_lanes(s, pair, swapped(s, pair, 1u << bits), bits);
    }
    return pair;
}

static uint32_t lane_bits(const sorter *s)
{
    return (uint32_t)__builtin_ctzll((uint64_t)s->lanes);
}

static sx_loop_pair sort_lanes(sorter *s, sx_loop_pair pair)
{
    for (uint32_t bit = 0; bit < lane_bits(s); bit++) {
        pair = exchange_lanes(s, pair, mirrored(s, pair, 2u << bit), bit);
        pair = clean_lanes(s, pair, bit);
    }
    return pair;
}

static void make_bits(sorter *s)
{
    uint32_t none = SX_NO_REG;
    uint32_t lane = op3(s, SX_LOP_IOTA, none, none, none, 0);
    s->zero = sx_loop_bits(&s->b, 0);
    for (uint32_t k = 0; k < lane_bits(s); k++) {
        s->bit[k] = op3(s, SX_LOP_AND, lane, sx_loop_bits(&s->b, UINT64_C(1) << k), none, 0);
    }
}

/* ---- walks ---- */
static void move_by(pass *p, uint32_t variable, int64_t low, int64_t high)
{
    p->low.coef[variable] = low;
    p->high.coef[variable] = high;
}

static void open_pass(sorter *s, pass *p)
{
    int64_t *trip[] = {&p->groups, &p->blocks, &p->count};
    const int64_t low[] = {p->group_step, p->block_step, p->low_step};
    const int64_t high[] = {p->group_step, p->block_step, p->high_step};
    p->opened = 0;
    for (uint32_t k = 0; k < 3; k++) {
        if (*trip[k] > 1) {
            move_by(p, sx_loop_open(&s->b, *trip[k]), low[k], high[k]);
            p->opened++;
        }
    }
}

static void close_pass(sorter *s, const pass *p)
{
    for (uint32_t k = 0; k < p->opened; k++) {
        sx_loop_close(&s->b);
    }
}

/* Blocks that follow each other, `length` elements each, of which `count` vectors are walked. */
static pass blocks_of(const sorter *s, int64_t base, int64_t blocks, int64_t length, int64_t count)
{
    return (pass){.groups = 1,
                  .blocks = blocks,
                  .block_step = length,
                  .count = count,
                  .low_step = s->lanes,
                  .high_step = s->lanes,
                  .low = {.constant = base}};
}

/* Each place meets the mirrored one. `prunes`: the upper one is not needed any more. `last`: what follows is inside
 * of vectors. */
static void meet_mirrored(sorter *s, pass *p, int64_t high, bool prunes, bool last)
{
    if (p->blocks < 1 || p->count < 1) {
        return;
    }
    p->high.constant = high;
    p->high_step = -s->lanes;
    open_pass(s, p);
    sx_loop_pair x = load_pair(s, &p->low, 0);
    sx_loop_pair y = mirrored(s, load_pair(s, &p->high, 0), (uint32_t)s->lanes);
    if (prunes) {
        x = chosen(s, is_larger(s, x, y), y, x);
    } else {
        exchange(s, &x, &y);
        y = mirrored(s, y, (uint32_t)s->lanes);
        y = last ? clean_lanes(s, y, lane_bits(s)) : y;
        store_pair(s, &p->high, 0, y);
    }
    store_pair(s, &p->low, 0, last ? clean_lanes(s, x, lane_bits(s)) : x);
    close_pass(s, p);
}

/* Each place meets the one `apart` behind; `twice`: and then the one at half the distance. */
static void meet_straight(sorter *s, pass *p, int64_t apart, bool twice, bool last)
{
    const uint32_t count = twice ? 4 : 2;
    const int64_t step = twice ? apart / 2 : apart;
    sx_loop_pair x[4];
    if (p->groups < 1 || p->blocks < 1 || p->count < 1) {
        return;
    }
    open_pass(s, p);
    for (uint32_t k = 0; k < count; k++) {
        x[k] = load_pair(s, &p->low, k * step);
    }
    for (uint32_t k = 0; k < count / 2; k++) {
        exchange(s, &x[k], &x[k + count / 2]);
    }
    for (uint32_t k = 0; twice && k < count; k += 2) {
        exchange(s, &x[k], &x[k + 1]);
    }
    for (uint32_t k = 0; k < count; k++) {
        store_pair(s, &p->low, k * step, last ? clean_lanes(s, x[k], lane_bits(s)) : x[k]);
    }
    close_pass(s, p);
}

/* Machines with vectors of so many bytes have registers for four pairs, and what comparing them takes. */
#define TWICE_BYTES 64

/* What is left of a merge: `groups` of `length` places from `base` on, partners `apart` and nearer. */
static void clean(sorter *s, int64_t groups, int64_t group_step, int64_t base, int64_t length,
                  int64_t apart)
{
    for (; length > 0 && groups > 0; apart /= 2) {
        if (apart < s->lanes) {
            pass p = blocks_of(s, base, 1, 0, length / s->lanes);
            p.groups = groups, p.group_step = group_step;
            open_pass(s, &p);
            sx_loop_pair x = load_pair(s, &p.low, 0);
            store_pair(s, &p.low, 0, clean_lanes(s, x, lane_bits(s)));
            close_pass(s, &p);
            return;
        }
        const int64_t whole = length / (2 * apart), rest = length % (2 * apart);
        int64_t q = apart, left = (int64_t)__builtin_ctzll((uint64_t)(apart / s->lanes)) + 1;
        while (whole > 0 && left > 0) { /* two distances in one go, but for an odd first one */
            bool twice = left % 2 == 0 && sx_kernel_vector_bytes(s->kernel) >= TWICE_BYTES;
            pass p = blocks_of(s, base, whole * (apart / q), 2 * q, (twice ? q / 2 : q) / s->lanes);
            p.groups = groups, p.group_step = group_step;
            left -= twice ? 2 : 1;
            meet_straight(s, &p, q, twice, left == 0);
            q /= twice ? 4 : 2;
        }
        base += whole * 2 * apart;
        length = rest;
        pass p = blocks_of(s, base, 1, 0, (rest - apart) / s->lanes);
        p.groups = groups, p.group_step = group_step;
        meet_straight(s, &p, apart, false, false);
    }
}

/* Runs of half of `run` become runs of it. */
static void merge_runs(sorter *s, int64_t run)
{
    const int64_t whole = s->padded / run, rest = s->padded % run, v = s->lanes;
    const bool last = run == 2 * v;
    pass all = blocks_of(s, 0, whole, run, run / 2 / v);
    meet_mirrored(s, &all, run - v, false, last);
    if (!last) {
        clean(s, 1, 0, 0, whole * run, run / 4);
    }
    if (rest > run / 2) {
        pass few = blocks_of(s, whole * run + run - rest, 1, 0, (rest - run / 2) / v);
        meet_mirrored(s, &few, s->padded - v, false, false);
    }
    clean(s, 1, 0, whole * run, rest, run / 4);
}

/* Of the runs at 0, 2 * apart, .. and those `apart` behind them the first ones are left. */
static void prune_runs(sorter *s, int64_t apart)
{
    const int64_t v = s->lanes, k = s->run, both = s->padded - apart - k;
    const int64_t whole = both < 0 ? 0 : both / (2 * apart) + 1;
    const int64_t rest = s->padded - whole * 2 * apart - apart; /* of the last one's partner */
    pass all = blocks_of(s, 0, whole, 2 * apart, k / v);
    meet_mirrored(s, &all, apart + k - v, true, false);
    if (rest > 0) {
        SX_ASSERT(rest < k);
        pass few = blocks_of(s, whole * 2 * apart + k - rest, 1, 0, rest / v);
        meet_mirrored(s, &few, s->padded - v, true, false);
    }
    clean(s, whole + (rest > 0), 2 * apart, 0, k, k / 2);
}

/* ---- in and out ---- */
static sx_addr row_address(const sorter *s, uint32_t buffer, int64_t row, uint32_t bytes,
                           const sx_affine *at)
{
    sx_addr addr = {.buffer = buffer, .index_reg = SX_NO_REG};
    addr.coef[0] = s->outer > 1 ? row * s->inner * bytes : 0;
    addr.coef[1] = s->inner > 1 ? bytes : 0;
    addr.offset = at->constant * s->inner * bytes;
    for (uint32_t v = 3; v < SX_LOOP_VARS_MAX; v++) {
        addr.coef[v] = at->coef[v] * s->inner * bytes;
    }
    return addr;
}

/* The places of the lanes along the axis. */
static uint32_t places_at(sorter *s, const sx_affine *at)
{
    uint32_t none = SX_NO_REG;
    uint32_t place = op3(s, SX_LOP_IOTA, none, none, none, (uint32_t)at->constant);
    for (uint32_t v = 3; v < SX_LOOP_VARS_MAX; v++) {
        if (at->coef[v] != 0) {
            uint32_t n = sx_loop_op(&s->b, SX_LOP_SVAR, none, NULL, none, none, none, v, 0);
            n = sx_loop_op(&s->b, SX_LOP_SMUL, none, NULL, n, none, none, 0, at->coef[v]);
            n = op3(s, SX_LOP_S2V, n, none, none, 0);
            place = op3(s, SX_LOP_IADD, place, n, none, 0);
        }
    }
    return place;
}

/* Vectors from `first` on, `valid` lanes of each: sorted, to the workspace. */
static void enter(sorter *s, int64_t first, int64_t vectors, int64_t valid)
{
    if (vectors < 1) {
        return;
    }
    const uint32_t bytes = sx_dtype_bytes(s->dtype);
    const sx_mem mem = sx_loop_mem(s->dtype, s->kernel->lane_bytes);
    pass p = blocks_of(s, first, 1, 0, vectors);
    open_pass(s, &p);
    sx_addr from = row_address(s, 0, s->elements, bytes, &p.low);
    uint32_t raw = sx_loop_access(&s->b, s->inner == 1 ? SX_LOP_LOAD : SX_LOP_LOADS, mem, &from,
                                  SX_NO_REG, (uint32_t)valid, s->inner == 1 ? 0 : s->inner * bytes);
    uint32_t place = places_at(s, &p.low);
    sx_loop_pair pair = sx_loop_sort_enter(&s->b, s->dtype, s->falls, raw, place);
    if (valid < s->lanes) {
        uint32_t none = SX_NO_REG;
        uint32_t lane = op3(s, SX_LOP_IOTA, none, none, none, 0);
        uint32_t inside =
            op3(s, SX_LOP_ICMP, sx_loop_bits(&s->b, (uint64_t)valid), lane, none, SX_GT);
        pair.key = op3(s, SX_LOP_BLEND, inside, pair.key, sx_loop_sort_last(&s->b), 0);
    }
    store_pair(s, &p.low, 0, sort_lanes(s, pair));
    close_pass(s, &p);
}

/* Vectors from `first` on, `valid` lanes of each; or single elements. */
static void leave(sorter *s, int64_t first, int64_t vectors, int64_t valid)
{
    if (vectors < 1) {
        return;
    }
    const uint32_t lane_bytes = s->kernel->lane_bytes;
    const uint32_t bytes = s->places ? 8 : sx_dtype_bytes(s->dtype);
    pass p = blocks_of(s, first, 1, 0, vectors);
    p.low_step = valid;
    open_pass(s, &p);
    sx_addr to = row_address(s, 1, s->count, bytes, &p.low);
    sx_loop_pair pair = load_lanes(s, &p.low, 0, valid < s->lanes && valid > 1 ? s->lanes : valid);
    uint32_t value = s->places ? sx_loop_sort_place(&s->b, s->dtype, pair)
                               : sx_loop_sort_value(&s->b, s->dtype, s->falls, pair);
    sx_mem mem = s->places ? SX_MEM_LANE : sx_loop_mem(s->dtype, lane_bytes);
    const bool halves = s->places && lane_bytes == 4; /* the upper half of an i64 is 0 */
    const bool strided = (halves || s->inner > 1) && valid > 1;
    for (uint32_t k = 0; k <= halves; k++) {
        (void)sx_loop_access(&s->b, strided ? SX_LOP_STORES : SX_LOP_STORE, mem, &to, value,
                             (uint32_t)valid, strided ? s->inner * bytes : 0);
        to.offset += 4;
        value = halves && k == 0 ? sx_loop_bits(&s->b, 0) : value;
    }
    close_pass(s, &p);
}

/* Vectors whose elements do not lie side by side in the result are stored by threads alone. */
static void leave_all(sorter *s)
{
    const bool apart = s->inner > 1 || (s->places && s->kernel->lane_bytes == 4);
    const int64_t v = apart && s->lanes < SX_LOOP_LANES_MAX ? 1 : s->lanes;
    leave(s, 0, s->count / v, v);
    leave(s, s->count / v * v, s->count % v > 0, s->count % v);
}

/* ---- ---- */
static int64_t power_above(int64_t n)
{
    int64_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

static sx_code begin(sorter *s, sx_ctx *cx, const sx_lowering *w)
{
    const sx_type *x = &w->input[0];
    const uint32_t axis = (uint32_t)w->attr->axis;
    SX_ASSERT(w->op == SX_OP_SORT && w->input_count == 1);
    sx_dim all;
    if (!sx_type_is_static(x) || !sx_type_elements(x, &all) || all.scale < 1) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: shape is symbolic or empty", w->name);
    }
    *s = (sorter){.dtype = x->dtype,
                  .falls = w->attr->direction == SX_GT,
                  .places = w->attr->result == 1,
                  .elements = x->dim[axis].scale,
                  .count = w->result->dim[axis].scale,
                  .outer = 1,
                  .inner = 1};
    if (s->elements > SX_SORT_NETWORK_MAX) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: axis of %lld elements, at most %d",
                       w->name, (long long)s->elements, SX_SORT_NETWORK_MAX);
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        s->outer *= d < axis ? x->dim[d].scale : 1;
        s->inner *= d > axis ? x->dim[d].scale : 1;
    }
    SX_TRY(sx_lower_match_map(cx, w->schedule, w->name));
    uint32_t lane_bytes = sx_move_lane_bytes(x->dtype);
    SX_TRY(sx_kernel_make(cx, w->name, sx_schedule_lanes(w->schedule), lane_bytes, &s->kernel));
    s->lanes = s->kernel->lanes;
    s->padded = (s->elements + s->lanes - 1) / s->lanes * s->lanes;
    s->run = power_above(sx_max_i64(s->count, s->lanes));
    for (uint32_t k = 0; k < 2; k++) {
        const sx_type *type = k == 0 ? x : w->result;
        int64_t size = sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
        (void)sx_kernel_add_buffer(s->kernel, k == 0 ? SX_BUFFER_IN : SX_BUFFER_OUT, size);
        s->kernel->bytes += (double)size;
    }
    (void)sx_kernel_add_buffer(s->kernel, SX_BUFFER_WORKSPACE, 2 * s->padded * lane_bytes);
    s->kernel->flops =
        (double)(s->outer * s->inner) * sx_sort_comparisons(s->elements, s->count, s->lanes);
    s->kernel->numerics = sx_hash64(SX_SPAN_LITERAL("sort"), x->dtype); // rounds nothing
    return SX_OK;
}

sx_code sx_lower_sort(sx_ctx *cx, const sx_lowering *w, sx_kernel **kernel)
{
    sorter *s = SX_NEW(cx, sorter);
    if (s == NULL) {
        return cx->error.code;
    }
    SX_TRY(begin(s, cx, w));
    const int64_t v = s->lanes, network = power_above(s->padded);
    sx_loop_begin_part(&s->b, cx, s->kernel, s->outer, s->inner, 1);
    make_bits(s);
    enter(s, 0, s->elements / v, v);
    enter(s, s->elements / v * v, s->elements % v > 0, s->elements % v);
    for (int64_t run = 2 * v; run <= s->run && run <= network; run *= 2) {
        merge_runs(s, run);
    }
    for (int64_t apart = s->run; apart < s->padded; apart *= 2) {
        prune_runs(s, apart);
    }
    leave_all(s);
    SX_TRY(sx_loop_end_part(&s->b));
    SX_TRY(sx_kernel_check(cx, s->kernel));
    *kernel = s->kernel;
    return SX_OK;
}
