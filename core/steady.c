/* steady.c - variants that serve an interval of a symbol: what follows the symbol, and where one variant ends and the
 * next begins. */
#include "core/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/check.h"

/* A variant for several values is taken where the kernels that serve all of them cost at most so much more, for each
 * value that is looked at, than those that one would make for it alone. */
#define LOSS_MAX 1.03
/* The same where kernels take numbers at run time: no schedule is the best one for all values. */
#define CASES_LOSS_MAX 1.10
/* More variants than so many, and those with cases are looked for. */
#define WITHOUT_CASES_MAX 8u
/* So many values at most have cases in one variant: every one of them is looked at. */
#define CASES_VALUES_MAX 1024
/* Some kernel has no cases in so many trials of one piece: no others are made. */
#define UNSTEADY_MAX 5u
#define UNSTEADY_LOW 64
/* Where so many values in a row have a variant each, the others get one each without a trial. */
#define ALONE_MAX 3u

static bool is_same(const sx_pipe_point *a, const sx_pipe_point *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static void put_probe(sx_pipe_steady *steady, int64_t value, int64_t other)
{
    const sx_pipe_point probe = {{value, other}};
    bool there = is_same(&probe, &(sx_pipe_point){{steady->high[0], steady->high[1]}});
    for (uint32_t k = 0; k < steady->count && !there; k++) {
        there = is_same(&probe, &steady->value[k]);
    }
    if (!there) {
        SX_ASSERT(steady->count < SX_PIPE_PROBES_MAX);
        steady->value[steady->count++] = probe;
    }
}

/* The ends and the middle. Of one symbol the values beside the ends, too; of two what their ends have together. */
static void put_probes(sx_pipe_steady *steady)
{
    const int64_t *low = steady->low, *high = steady->high;
    int64_t middle[SX_PIPE_STEADY_MAX];
    for (uint32_t k = 0; k < SX_PIPE_STEADY_MAX; k++) {
        middle[k] = low[k] + (high[k] - low[k]) / 2;
    }
    if (steady->symbol_count == 1) {
        put_probe(steady, high[0] - 1, 0);
        put_probe(steady, low[0], 0);
        put_probe(steady, low[0] + 1, 0);
    } else {
        put_probe(steady, low[0], low[1]);
        put_probe(steady, low[0], high[1]);
        put_probe(steady, high[0], low[1]);
    }
    put_probe(steady, middle[0], middle[1]);
}

sx_code sx_pipe_steady_make(sx_ctx *cx, sx_pipe *pipe)
{
    const sx_pipe_variants *variants = pipe->variants;
    uint32_t symbol[SX_PIPE_STEADY_MAX];
    sx_pipe_piece piece[SX_PIPE_STEADY_MAX];
    uint32_t count = sx_pipe_variant_pieces(variants, pipe->variant, symbol, piece);
    pipe->steady = NULL;
    if (count == 0) {
        return SX_OK;
    }
    sx_pipe_steady *steady = SX_NEW(cx, sx_pipe_steady);
    sx_binding *binding = SX_NEW_ARRAY(cx, sx_binding, variants->symbol_count + 1);
    if (steady == NULL || binding == NULL) {
        return cx->error.code;
    }
    *steady = (sx_pipe_steady){
        .symbol_count = count, .cases = count > 1 || pipe->target->shape != NULL, .most = 0};
    for (uint32_t k = 0; k < count; k++) {
        steady->cases = steady->cases || piece[k].cases;
        steady->symbol[k] = symbol[k];
        steady->low[k] = piece[k].low;
        steady->high[k] = piece[k].high;
    }
    const sx_pipe_values *values = &variants->symbol[symbol[0]];
    for (uint32_t k = 0; k < values->count; k++) {
        steady->most = sx_max_i64(steady->most, values->piece[k].high);
    }
    put_probes(steady);
    memcpy(binding, pipe->binding, variants->symbol_count * sizeof(*binding));
    for (uint32_t k = 0; k < steady->count; k++) {
        for (uint32_t i = 0; i < count; i++) {
            binding[symbol[i]].value = steady->value[k].value[i];
        }
        SX_TRY(sx_graph_bind(cx, pipe->better, binding, variants->symbol_count, &steady->graph[k]));
        SX_ASSERT(steady->graph[k]->node_count == pipe->better->node_count);
    }
    pipe->steady = steady;
    return SX_OK;
}

sx_code sx_pipe_unsteady(sx_ctx *cx, sx_pipe *pipe, const char *name, const char *why)
{
    pipe->unsteady = true;
    return SX_FAIL(cx, SX_COMPILE, "kernel %s does not serve an interval: %s", name, why);
}

bool sx_pipe_follow(const sx_pipe_steady *steady, const sx_kernel *high, const sx_kernel *near,
                    sx_pipe_follows follows)
{
    bool fits = high->part_count == near->part_count && high->buffer_count == near->buffer_count;
    bool depends = false, any = false;
    int64_t top = steady->high[0], next = steady->value[0].value[0];
    SX_ASSERT(steady->count > 0 && steady->symbol_count == 1 && next + 1 == top);
    memset(follows, 0, sizeof(sx_pipe_follows));
    for (uint32_t p = 0; p < high->part_count && fits; p++) {
        for (uint32_t d = 0; d < 3 && fits; d++) {
            int64_t here = high->part[p].grid[d], there = near->part[p].grid[d];
            if (here != there) {
                any = true;
                follows[p][d] = here / top;
                fits = follows[p][d] > 0 && follows[p][d] * top == here &&
                       follows[p][d] * next == there;
            }
        }
    }
    for (uint32_t k = 0; k < high->buffer_count && fits; k++) {
        depends = depends || (high->buffer[k].role != SX_BUFFER_WORKSPACE &&
                              high->buffer[k].size != near->buffer[k].size);
    }
    return fits && (any || !depends);
}

sx_code sx_pipe_regrid(sx_ctx *cx, const sx_pipe_steady *steady, uint32_t probe,
                       const sx_kernel *high, const sx_kernel *there, sx_pipe_follows follows,
                       sx_kernel **kernel)
{
    SX_ASSERT(probe < steady->count);
    int64_t value = steady->value[probe].value[0];
    if (high->buffer_count != there->buffer_count || high->numerics != there->numerics) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s is another one for %lld", high->name,
                       (long long)value);
    }
    sx_kernel *out = SX_NEW(cx, sx_kernel);
    sx_part *part = SX_NEW_ARRAY(cx, sx_part, high->part_count);
    if (out == NULL || part == NULL) {
        return cx->error.code;
    }
    *out = *high;
    out->part = part;
    memcpy(out->buffer, there->buffer, sizeof(out->buffer));
    for (uint32_t p = 0; p < high->part_count; p++) {
        part[p] = high->part[p];
        for (uint32_t d = 0; d < 3; d++) {
            int64_t scale = follows[p][d];
            part[p].grid[d] = scale > 0 ? scale * value : part[p].grid[d];
        }
    }
    for (uint32_t k = 0; k < high->buffer_count; k++) { /* the workspace is that of the module */
        if (high->buffer[k].role == SX_BUFFER_WORKSPACE) {
            out->buffer[k] = high->buffer[k];
        } else if (there->buffer[k].size > high->buffer[k].size) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "kernel %s: a tensor is larger for %lld than for %lld", high->name,
                           (long long)value, (long long)steady->high[0]);
        }
    }
    *kernel = out;
    return SX_OK;
}

bool sx_pipe_is_cheap(const sx_pipe_steady *steady)
{
    double most = steady->cases ? CASES_LOSS_MAX : LOSS_MAX;
    bool cheap = true;
    for (uint32_t k = 0; k <= steady->count; k++) {
        cheap = cheap && steady->cost_ns[k] <= most * steady->best_ns[k];
    }
    return cheap;
}

void sx_pipe_put_follows(sx_pipe *pipe, uint32_t part, const int64_t follows[3])
{
    for (uint32_t d = 0; d < 3; d++) {
        if (follows[d] > 0) {
            SX_ASSERT(pipe->steady != NULL);
            sx_module_extent row = {.what = SX_EXTENT_PART,
                                    .index = part,
                                    .dimension = d,
                                    .symbol = pipe->steady->symbol[0],
                                    .scale = follows[d],
                                    .divisor = 1,
                                    .other = SX_MODULE_NONE};
            sx_buf_put(&pipe->part_extent, &row, sizeof(row));
        }
    }
}

void sx_pipe_follows_of(const sx_pipe *pipe, uint32_t part, int64_t follows[3])
{
    const sx_module_extent *row = (const sx_module_extent *)(const void *)pipe->part_extent.ptr;
    size_t count = pipe->part_extent.len / sizeof(*row);
    memset(follows, 0, 3 * sizeof(*follows));
    for (size_t i = 0; i < count; i++) {
        if (row[i].index == part) {
            follows[row[i].dimension] = row[i].scale;
        }
    }
}

/* ---- cutting ---- */

/* The variants with one piece for the symbol. */
static sx_code try_piece(sx_ctx *cx, const sx_pipe_variants *from, uint32_t symbol,
                         sx_pipe_piece piece, const sx_pipe_trial *trial, bool *does,
                         bool *unsteady)
{
    sx_pipe_variants one = *from;
    one.symbol = SX_NEW_ARRAY(cx, sx_pipe_values, from->symbol_count);
    if (one.symbol == NULL) {
        return cx->error.code;
    }
    memcpy(one.symbol, from->symbol, from->symbol_count * sizeof(*one.symbol));
    one.symbol[symbol].piece = &piece;
    SX_ASSERT(one.symbol[symbol].count == 1);
    return trial->serves(cx, trial->self, &one, does, unsteady);
}

/* The longest piece from `low` on, of those whose length is the rest halved some times. */
static sx_code find_piece(sx_ctx *cx, const sx_pipe_variants *from, uint32_t symbol,
                          sx_pipe_piece rest, const sx_pipe_trial *trial, sx_pipe_piece *piece)
{
    bool does = false, unsteady;
    *piece = rest;
    while (piece->high > piece->low && !does) {
        SX_TRY(try_piece(cx, from, symbol, *piece, trial, &does, &unsteady));
        if (!does) {
            piece->high = piece->low + (piece->high - piece->low) / 2;
        }
    }
    return SX_OK;
}

static sx_code cut_up(sx_ctx *cx, const sx_pipe_variants *from, const sx_pipe_trial *trial,
                      sx_pipe_variants *cut)
{
    uint32_t its[SX_PIPE_STEADY_MAX];
    sx_pipe_piece pieces[SX_PIPE_STEADY_MAX];
    *cut = *from;
    if (sx_pipe_variant_pieces(from, 0, its, pieces) == 0) {
        return SX_OK;
    }
    uint32_t symbol = its[0];
    sx_pipe_piece rest = pieces[0];
    uint32_t most = SX_PIPE_VARIANTS_MAX / from->count, count = 0, alone = 0;
    sx_pipe_piece *piece = SX_NEW_ARRAY(cx, sx_pipe_piece, most + 1);
    cut->symbol = SX_NEW_ARRAY(cx, sx_pipe_values, from->symbol_count);
    if (piece == NULL || cut->symbol == NULL) {
        return cx->error.code;
    }
    const sx_pipe_piece whole = rest;
    while (rest.low <= rest.high) {
        if (count == most || (alone > ALONE_MAX && rest.high - rest.low >= most - count)) {
            return SX_FAIL(
                cx, SX_LIMIT,
                "symbol \"%s\": the interval %lld..%lld makes more than %u variants, as few "
                "of its values have the same code",
                sx_short_name(from->symbol[symbol].name).text, (long long)whole.low,
                (long long)whole.high, SX_PIPE_VARIANTS_MAX);
        }
        piece[count] = (sx_pipe_piece){.low = rest.low, .high = rest.low};
        if (alone <= ALONE_MAX) {
            SX_TRY(find_piece(cx, from, symbol, rest, trial, &piece[count]));
        }
        alone = piece[count].high > piece[count].low ? 0 : alone + 1;
        rest.low = piece[count++].high + 1;
    }
    memcpy(cut->symbol, from->symbol, from->symbol_count * sizeof(*cut->symbol));
    cut->symbol[symbol].piece = piece;
    cut->symbol[symbol].count = count;
    cut->count = from->count * count;
    return SX_OK;
}

/* Is the code text, whose numbers come at run time (sx_target.shape)? */
static bool has_text(const sx_pipe_variants *variants)
{
    return variants->machine[0].target->shape != NULL;
}

/* The longest piece up to rest.high of those that begin at its low end, or at twice a begin. *none: there is no such
 * piece, as it seems after some trials. */
static sx_code find_piece_down(sx_ctx *cx, const sx_pipe_variants *from, uint32_t symbol,
                               sx_pipe_piece rest, const sx_pipe_trial *trial, sx_pipe_piece *piece,
                               bool *none)
{
    bool does = false, unsteady;
    uint32_t failed = 0;
    *piece = (sx_pipe_piece){.low = rest.low, .high = rest.high, .cases = true};
    piece->low = sx_max_i64(piece->low, piece->high - CASES_VALUES_MAX + 1);
    while (piece->low < piece->high && !does && failed < UNSTEADY_MAX) {
        SX_TRY(try_piece(cx, from, symbol, *piece, trial, &does, &unsteady));
        failed += unsteady ? 1 : 0;
        if (!does) { /* in large steps where dear trials say nothing about cost */
            int64_t times = unsteady && piece->low < UNSTEADY_LOW ? 8 : 2;
            piece->low = sx_min_i64(times * piece->low, piece->high);
        }
    }
    *none = !does && failed == UNSTEADY_MAX;
    return SX_OK;
}

/* The same where the code is text. A piece of a single value would be one of many, so the longest is taken at any price
 * where only prices are against it. */
static sx_code find_text_down(sx_ctx *cx, const sx_pipe_variants *from, uint32_t symbol,
                              sx_pipe_piece rest, const sx_pipe_trial *trial, sx_pipe_piece *piece,
                              bool *none)
{
    bool does = rest.low == rest.high, unsteady = false;
    int64_t longest = sx_max_i64(rest.low, rest.high - CASES_VALUES_MAX + 1);
    uint32_t failed = 0;
    *piece = (sx_pipe_piece){.low = longest, .high = rest.high, .cases = true};
    while (piece->low < piece->high && !does && failed < UNSTEADY_MAX) {
        SX_TRY(try_piece(cx, from, symbol, *piece, trial, &does, &unsteady));
        failed += unsteady ? 1 : 0;
        piece->low = does ? piece->low : 2 * piece->low;
    }
    if (!does && failed == 0) {
        piece->low = longest;
        *trial->any_price = true;
        SX_TRY(try_piece(cx, from, symbol, *piece, trial, &does, &unsteady));
        *trial->any_price = false;
    }
    *none = !does;
    return SX_OK;
}

/* The same where each piece is for all values of another symbol, too: even one of a single value is tried. */
static sx_code find_piece_of_two(sx_ctx *cx, const sx_pipe_variants *from, uint32_t symbol,
                                 sx_pipe_piece rest, const sx_pipe_trial *trial,
                                 sx_pipe_piece *piece, bool *none)
{
    bool does = false, unsteady;
    *piece = (sx_pipe_piece){.low = rest.low, .high = rest.high, .cases = true};
    piece->low = sx_max_i64(piece->low, piece->high - CASES_VALUES_MAX + 1);
    for (*none = false; !does && !*none;) {
        SX_TRY(try_piece(cx, from, symbol, *piece, trial, &does, &unsteady));
        *none = !does && piece->low == piece->high;
        piece->low = does ? piece->low : sx_min_i64(2 * piece->low, piece->high);
    }
    return SX_OK;
}

/* Pieces with cases, from the highest value down. *done false: there would be more than `most`. */
static sx_code cut_down(sx_ctx *cx, const sx_pipe_variants *from, const sx_pipe_trial *trial,
                        uint32_t most, sx_pipe_variants *cut, bool *done)
{
    uint32_t its[SX_PIPE_STEADY_MAX], count = 0;
    sx_pipe_piece pieces[SX_PIPE_STEADY_MAX];
    uint32_t several = sx_pipe_variant_pieces(from, 0, its, pieces), symbol = its[0];
    sx_pipe_piece rest = pieces[0];
    SX_ASSERT(several >= 1 && most >= 1);
    sx_pipe_piece *piece = SX_NEW_ARRAY(cx, sx_pipe_piece, most);
    *cut = *from;
    cut->symbol = SX_NEW_ARRAY(cx, sx_pipe_values, from->symbol_count);
    if (piece == NULL || cut->symbol == NULL) {
        return cx->error.code;
    }
    bool none = false;
    for (*done = true; rest.low <= rest.high && *done; rest.high = piece[most - count].low - 1) {
        SX_TRY((several > 1      ? find_piece_of_two
                : has_text(from) ? find_text_down
                                 : find_piece_down)(cx, from, symbol, rest, trial,
                                                    &piece[most - ++count], &none));
        *done = !none && (count < most || piece[0].low == rest.low);
    }
    memcpy(cut->symbol, from->symbol, from->symbol_count * sizeof(*cut->symbol));
    cut->symbol[symbol].piece = piece + (most - count);
    cut->symbol[symbol].count = count;
    cut->count = from->count * count;
    return SX_OK;
}

/* A variant serves one value of the symbol. */
static sx_code part_symbol(sx_ctx *cx, const sx_pipe_variants *from, uint32_t symbol,
                           sx_pipe_piece whole, sx_pipe_variants *apart)
{
    int64_t count = whole.high - whole.low + 1;
    if (count > SX_PIPE_VARIANTS_MAX / from->count) {
        return SX_FAIL(cx, SX_LIMIT,
                       "symbol \"%s\": the interval %lld..%lld makes more than %u variants",
                       sx_short_name(from->symbol[symbol].name).text, (long long)whole.low,
                       (long long)whole.high, SX_PIPE_VARIANTS_MAX);
    }
    *apart = *from;
    apart->symbol = SX_NEW_ARRAY(cx, sx_pipe_values, from->symbol_count);
    sx_pipe_piece *piece = SX_NEW_ARRAY(cx, sx_pipe_piece, (size_t)count);
    if (apart->symbol == NULL || piece == NULL) {
        return cx->error.code;
    }
    for (int64_t k = 0; k < count; k++) {
        piece[k] = (sx_pipe_piece){.low = whole.low + k, .high = whole.low + k};
    }
    memcpy(apart->symbol, from->symbol, from->symbol_count * sizeof(*apart->symbol));
    apart->symbol[symbol].piece = piece;
    apart->symbol[symbol].count = (uint32_t)count;
    apart->count = from->count * (uint32_t)count;
    return SX_OK;
}

/* A variant for each value of the first symbol, where no code serves several. */
static sx_code cut_apart(sx_ctx *cx, const sx_pipe_variants *from, const sx_pipe_trial *trial,
                         sx_pipe_variants *cut)
{
    uint32_t symbol[SX_PIPE_STEADY_MAX];
    sx_pipe_piece whole[SX_PIPE_STEADY_MAX];
    bool done;
    if (sx_pipe_variant_pieces(from, 0, symbol, whole) == 0) {
        *cut = *from;
        return SX_OK;
    }
    SX_TRY(cut_down(cx, from, trial, SX_PIPE_VARIANTS_MAX / from->count, cut, &done));
    if (done) {
        return SX_OK;
    }
    sx_code code = part_symbol(cx, from, symbol[0], whole[0], cut);
    if (code == SX_LIMIT && trial->why[0] != '\0') {
        size_t used = strlen(cx->error.text);
        (void)snprintf(cx->error.text + used, sizeof(cx->error.text) - used, ": %s", trial->why);
    }
    return code;
}

static sx_code cut_one(sx_ctx *cx, const sx_pipe_variants *from, const sx_pipe_trial *trial,
                       sx_pipe_variants *cut)
{
    if (has_text(from)) {
        return cut_apart(cx, from, trial, cut);
    }
    uint32_t symbol[SX_PIPE_STEADY_MAX];
    sx_pipe_piece whole[SX_PIPE_STEADY_MAX];
    sx_code code = cut_up(cx, from, trial, cut);
    if ((code != SX_OK && code != SX_LIMIT) ||
        sx_pipe_variant_pieces(from, 0, symbol, whole) == 0) {
        return code;
    }
    uint32_t most =
        code == SX_OK ? cut->symbol[symbol[0]].count : SX_PIPE_VARIANTS_MAX / from->count;
    if (code == SX_OK && most <= WITHOUT_CASES_MAX) {
        return SX_OK;
    }
    const sx_error error = cx->error;
    sx_pipe_variants with;
    bool done;
    sx_ctx_reset_error(cx);
    SX_TRY(cut_down(cx, from, trial, most, &with, &done));
    if (done) {
        *cut = with;
        return SX_OK;
    }
    cx->error = error;
    if (trial->why[0] != '\0') {
        size_t used = strlen(cx->error.text);
        (void)snprintf(cx->error.text + used, sizeof(cx->error.text) - used, ": %s", trial->why);
    }
    return code;
}

sx_code sx_pipe_cut(sx_ctx *cx, const sx_pipe_variants *from, const sx_pipe_trial *trial,
                    sx_pipe_variants *cut)
{
    uint32_t symbol[SX_PIPE_STEADY_MAX];
    sx_pipe_piece whole[SX_PIPE_STEADY_MAX];
    sx_pipe_variants apart = *from;
    bool done;
    if (sx_pipe_variant_pieces(from, 0, symbol, whole) == 2) {
        sx_pipe_variants with = *from;
        with.symbol = SX_NEW_ARRAY(cx, sx_pipe_values, from->symbol_count);
        if (with.symbol == NULL) {
            return cx->error.code;
        }
        memcpy(with.symbol, from->symbol, from->symbol_count * sizeof(*with.symbol));
        sx_pipe_piece all = whole[1];
        all.cases = true;
        with.symbol[symbol[1]].piece = &all;
        SX_TRY(cut_down(cx, &with, trial, SX_PIPE_VARIANTS_MAX / from->count, cut, &done));
        if (done) {
            cut->symbol[symbol[1]].piece = from->symbol[symbol[1]].piece;
            cut->symbol[symbol[1]].piece->cases = true;
            return SX_OK;
        }
        SX_TRY(part_symbol(cx, from, symbol[1], whole[1], &apart));
    }
    return cut_one(cx, &apart, trial, cut);
}
