/* Layouts out of layouts: transposes, slices, products, quotients, and what a conversion takes. */
#include "core/tile/layout.h"

#include <string.h>

static sx_side mode_side(const sx_layout_mode *mode)
{
    return mode->row != 0 ? SX_SIDE_ROW : SX_SIDE_COLUMN;
}

static uint32_t mode_step(const sx_layout_mode *mode)
{
    return mode->row != 0 ? mode->row : mode->column;
}

static bool has_modes(const sx_layout *layout, sx_side side)
{
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        if (mode_step(&layout->mode[i]) != 0 && mode_side(&layout->mode[i]) == side) {
            return true;
        }
    }
    return false;
}

static uint32_t side_of(uint32_t at, sx_side side)
{
    return side == SX_SIDE_ROW ? sx_at_row(at) : sx_at_column(at);
}

sx_layout sx_layout_transpose(const sx_layout *layout)
{
    sx_layout out = *layout;
    out.side_bits[0] = layout->side_bits[1];
    out.side_bits[1] = layout->side_bits[0];
    uint32_t bits = sx_layout_input_bits(layout);
    SX_ASSERT(layout->mode_count <= SX_LAYOUT_MODES_MAX);
    for (uint32_t i = 0; i < bits; i++) {
        out.column[i] = SX_AT(sx_at_column(layout->column[i]), sx_at_row(layout->column[i]));
    }
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        out.mode[i].row = layout->mode[i].column;
        out.mode[i].column = layout->mode[i].row;
    }
    return out;
}

sx_layout sx_layout_rename(const sx_layout *layout, const sx_linear *map)
{
    sx_layout out = *layout;
    sx_linear old = sx_layout_linear(layout);
    SX_ASSERT(map->input_bits == old.output_bits && map->output_bits == old.output_bits);
    sx_linear renamed = sx_linear_compose(map, &old);
    uint32_t bits = layout->side_bits[SX_SIDE_COLUMN];
    for (uint32_t i = 0; i < renamed.input_bits; i++) {
        out.column[i] = SX_AT(renamed.column[i] >> bits, renamed.column[i] & ((1U << bits) - 1U));
    }
    return out;
}

sx_layout sx_layout_slice(const sx_layout *layout, sx_side side)
{
    uint32_t keep = side == SX_SIDE_ROW ? SX_AT(0, 0xffff) : SX_AT(0xffff, 0);
    sx_layout rest = *layout;
    uint32_t bits = sx_layout_input_bits(layout);
    for (uint32_t i = 0; i < bits; i++) {
        rest.column[i] &= keep;
    }
    rest.side_bits[side] = 0;
    rest.mode_count = 0;
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        sx_layout_mode mode = layout->mode[i];
        bool along = mode_step(&mode) != 0 && mode_side(&mode) == side;
        mode.row = along ? 0 : mode.row;
        mode.column = along ? 0 : mode.column;
        if (mode.row != 0 || mode.column != 0 || mode.home != SX_HOME_REGISTER) {
            rest.mode[rest.mode_count++] = mode;
        }
    }
    /* Registers whose column lower registers give already hold what those hold. */
    sx_linear map = sx_layout_linear(&rest);
    uint32_t pivots = sx_linear_pivots(&map), count = 0;
    sx_layout out = rest;
    out.bits[SX_HOME_REGISTER] = 0;
    for (uint32_t i = 0; i < bits; i++) {
        bool held = i < rest.bits[SX_HOME_REGISTER];
        if (!held || (pivots >> i & 1U) != 0) {
            out.column[count++] = rest.column[i];
            out.bits[SX_HOME_REGISTER] = (uint8_t)(out.bits[SX_HOME_REGISTER] + (held ? 1 : 0));
        }
    }
    memset(out.column + count, 0, (SX_LAYOUT_BITS_MAX - count) * sizeof(out.column[0]));
    SX_ASSERT(count == sx_layout_input_bits(&out) && sx_layout_side(&out, side) == 1);
    return out;
}

static void remove_mode(sx_layout *layout, uint32_t at)
{
    layout->mode_count--;
    memmove(&layout->mode[at], &layout->mode[at + 1],
            (layout->mode_count - at) * sizeof(layout->mode[0]));
    memset(&layout->mode[layout->mode_count], 0, sizeof(layout->mode[0]));
}

/* A column of `home` above its others. */
static void append_column(sx_layout *layout, sx_home home, uint32_t at)
{
    uint32_t bits = sx_layout_input_bits(layout);
    uint32_t place = sx_layout_first(layout, home) + layout->bits[home];
    SX_ASSERT(bits < SX_LAYOUT_BITS_MAX);
    memmove(&layout->column[place + 1], &layout->column[place],
            (bits - place) * sizeof(layout->column[0]));
    layout->column[place] = at;
    layout->bits[home]++;
}

/* One factor of two of mode `at` becomes a bit; false where there is none, or no room. */
static bool fold_bit(sx_layout *layout, uint32_t at)
{
    sx_layout_mode *mode = &layout->mode[at];
    sx_side side = mode_side(mode);
    uint32_t step = mode_step(mode);
    if (mode->extent % 2 != 0 || sx_layout_input_bits(layout) == SX_LAYOUT_BITS_MAX ||
        (step != 0 && (step != 1U << layout->side_bits[side] ||
                       layout->side_bits[side] == SX_LAYOUT_SIDE_BITS_MAX))) {
        return false;
    }
    append_column(layout, (sx_home)mode->home, SX_AT(mode->row, mode->column));
    layout->side_bits[side] = (uint8_t)(layout->side_bits[side] + (step != 0 ? 1 : 0));
    mode->extent /= 2;
    mode->row = (uint16_t)(mode->row * 2);
    mode->column = (uint16_t)(mode->column * 2);
    if (mode->extent == 1) {
        remove_mode(layout, at);
    }
    return true;
}

/* Is there no mode of the same home before this one? */
static bool lowest_of_home(const sx_layout *layout, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++) {
        if (layout->mode[i].home == layout->mode[at].home) {
            return false;
        }
    }
    return true;
}

/* Two modes in a row of one home, of which the second goes on where the first ends, are one. */
static bool merge_modes(sx_layout *layout, uint32_t at)
{
    if (at + 1 >= layout->mode_count) {
        return false;
    }
    sx_layout_mode *low = &layout->mode[at], *high = &layout->mode[at + 1];
    if (low->home != high->home || high->row != low->row * low->extent ||
        high->column != low->column * low->extent ||
        (uint32_t)low->extent * high->extent > UINT16_MAX) {
        return false;
    }
    low->extent = (uint16_t)(low->extent * high->extent);
    remove_mode(layout, at + 1);
    return true;
}

/* `reorder`: also modes that have others of their home below them, which renumbers registers. */
static sx_layout fold(const sx_layout *layout, bool reorder)
{
    sx_layout out = *layout;
    for (uint32_t i = 0; i < out.mode_count;) {
        bool may = reorder || lowest_of_home(&out, i);
        i = merge_modes(&out, i) || (may && fold_bit(&out, i)) ? 0 : i + 1;
    }
    return out;
}

sx_layout sx_layout_normal(const sx_layout *layout)
{
    sx_layout out = fold(layout, false);
    SX_ASSERT(sx_layout_side(&out, SX_SIDE_ROW) == sx_layout_side(layout, SX_SIDE_ROW));
    SX_ASSERT(sx_layout_side(&out, SX_SIDE_COLUMN) == sx_layout_side(layout, SX_SIDE_COLUMN));
    return out;
}

sx_code sx_layout_product(sx_ctx *cx, const sx_layout *atom, const sx_layout *repeats,
                          sx_layout *product)
{
    uint32_t side[2] = {sx_layout_side(atom, SX_SIDE_ROW), sx_layout_side(atom, SX_SIDE_COLUMN)};
    sx_layout out = {.mode_count = atom->mode_count};
    uint32_t bits = sx_layout_input_bits(atom) + sx_layout_input_bits(repeats), at = 0;
    if (bits > SX_LAYOUT_BITS_MAX || atom->mode_count + repeats->mode_count > SX_LAYOUT_MODES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "layout product: %u bits and %u modes, at most %d and %d",
                       bits, atom->mode_count + repeats->mode_count, SX_LAYOUT_BITS_MAX,
                       SX_LAYOUT_MODES_MAX);
    }
    for (uint32_t s = 0; s < 2; s++) {
        if (has_modes(atom, (sx_side)s) && repeats->side_bits[s] != 0) {
            return SX_FAIL(cx, SX_INPUT,
                           "layout product: the %s of the atom are %u by a mode, "
                           "the repeats along them are 2^%u by bits",
                           s == 0 ? "rows" : "columns", side[s], repeats->side_bits[s]);
        }
        uint64_t whole = (uint64_t)side[s] * sx_layout_side(repeats, (sx_side)s);
        if (whole > SX_LAYOUT_SIDE_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "layout product: a side of %llu, at most %d",
                           (unsigned long long)whole, SX_LAYOUT_SIDE_MAX);
        }
        out.side_bits[s] = (uint8_t)(atom->side_bits[s] + repeats->side_bits[s]);
    }
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        uint32_t low = sx_layout_first(atom, (sx_home)home);
        uint32_t high = sx_layout_first(repeats, (sx_home)home);
        for (uint32_t i = 0; i < atom->bits[home]; i++) {
            out.column[at++] = atom->column[low + i];
        }
        for (uint32_t i = 0; i < repeats->bits[home]; i++) {
            uint32_t step = repeats->column[high + i];
            out.column[at++] = SX_AT(sx_at_row(step) * side[0], sx_at_column(step) * side[1]);
        }
        out.bits[home] = (uint8_t)(atom->bits[home] + repeats->bits[home]);
    }
    memcpy(out.mode, atom->mode, sizeof(out.mode));
    for (uint32_t i = 0; i < repeats->mode_count; i++) {
        sx_layout_mode mode = repeats->mode[i];
        mode.row = (uint16_t)(mode.row * side[0]);
        mode.column = (uint16_t)(mode.column * side[1]);
        out.mode[out.mode_count++] = mode;
    }
    SX_TRY(sx_layout_check(cx, &out));
    *product = out;
    return SX_OK;
}

/* ---- quotients ---- */

/* `at` in units of the atom; false where it lies inside one. */
static bool divide_at(const sx_layout *atom, uint32_t at, uint32_t *quotient)
{
    uint32_t side[2];
    for (uint32_t s = 0; s < 2; s++) {
        uint32_t extent = sx_layout_side(atom, (sx_side)s), offset = side_of(at, (sx_side)s);
        if (offset % extent != 0) {
            return false;
        }
        side[s] = offset / extent;
    }
    *quotient = SX_AT(side[0], side[1]);
    return true;
}

/* The lanes, warps or ranks of the atom are the low ones of the layout; the others repeat it. */
static bool divide_home(const sx_layout *layout, const sx_layout *atom, sx_home home,
                        sx_layout *repeats, uint32_t *count)
{
    uint32_t whole = sx_layout_first(layout, home), low = sx_layout_first(atom, home);
    if (atom->bits[home] > layout->bits[home]) {
        return false;
    }
    for (uint32_t i = 0; i < layout->bits[home]; i++) {
        uint32_t at = layout->column[whole + i];
        if (i < atom->bits[home] ? at != atom->column[low + i]
                                 : !divide_at(atom, at, &repeats->column[(*count)++])) {
            return false;
        }
    }
    repeats->bits[home] = (uint8_t)(layout->bits[home] - atom->bits[home]);
    return true;
}

/* Registers may come in any order. */
static bool divide_registers(const sx_layout *layout, const sx_layout *atom, sx_quotient *quotient,
                             uint32_t *count)
{
    uint32_t used = 0;
    for (uint32_t k = 0; k < atom->bits[SX_HOME_REGISTER]; k++) {
        uint32_t i = 0;
        while (i < layout->bits[SX_HOME_REGISTER] &&
               ((used >> i & 1U) != 0 || layout->column[i] != atom->column[k])) {
            i++;
        }
        if (i == layout->bits[SX_HOME_REGISTER]) {
            return false;
        }
        used |= 1U << i;
        quotient->atom_bit[k] = (uint8_t)i;
    }
    for (uint32_t i = 0; i < layout->bits[SX_HOME_REGISTER]; i++) {
        if ((used >> i & 1U) == 0) {
            quotient->repeat_bit[*count] = (uint8_t)i;
            if (!divide_at(atom, layout->column[i], &quotient->repeats.column[(*count)++])) {
                return false;
            }
        }
    }
    quotient->repeats.bits[SX_HOME_REGISTER] = (uint8_t)*count;
    return true;
}

static bool divide_modes(const sx_layout *layout, const sx_layout *atom, sx_layout *repeats)
{
    if (atom->mode_count > layout->mode_count) {
        return false;
    }
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        const sx_layout_mode *mode = &layout->mode[i], *own = &atom->mode[i];
        if (i < atom->mode_count) {
            if (mode->home != own->home || mode->extent != own->extent || mode->row != own->row ||
                mode->column != own->column) {
                return false;
            }
            continue;
        }
        uint32_t row = sx_layout_side(atom, SX_SIDE_ROW);
        uint32_t column = sx_layout_side(atom, SX_SIDE_COLUMN);
        if (mode->row % row != 0 || mode->column % column != 0) {
            return false;
        }
        repeats->mode[repeats->mode_count++] =
            (sx_layout_mode){.home = mode->home,
                             .extent = mode->extent,
                             .row = (uint16_t)(mode->row / row),
                             .column = (uint16_t)(mode->column / column)};
    }
    return true;
}

static bool divide(const sx_layout *layout, const sx_layout *atom, sx_quotient *quotient)
{
    sx_quotient out = {.repeats = {.mode_count = 0}};
    uint32_t count = 0;
    for (uint32_t s = 0; s < 2; s++) {
        if (atom->side_bits[s] > layout->side_bits[s]) {
            return false;
        }
        out.repeats.side_bits[s] = (uint8_t)(layout->side_bits[s] - atom->side_bits[s]);
        if (has_modes(atom, (sx_side)s) && out.repeats.side_bits[s] != 0) {
            return false;
        }
    }
    if (!divide_registers(layout, atom, &out, &count) ||
        !divide_home(layout, atom, SX_HOME_LANE, &out.repeats, &count) ||
        !divide_home(layout, atom, SX_HOME_WARP, &out.repeats, &count) ||
        !divide_home(layout, atom, SX_HOME_RANK, &out.repeats, &count) ||
        !divide_modes(layout, atom, &out.repeats)) {
        return false;
    }
    *quotient = out;
    return true;
}

bool sx_layout_divide(const sx_layout *layout, const sx_layout *atom, sx_quotient *quotient)
{
    SX_ASSERT(sx_layout_input_bits(layout) <= SX_LAYOUT_BITS_MAX);
    if (divide(layout, atom, quotient)) {
        return true;
    }
    sx_layout whole = sx_layout_normal(layout), small = sx_layout_normal(atom);
    return divide(&whole, &small, quotient);
}

/* ---- conversions ---- */

const char *sx_convert_name(sx_convert convert)
{
    static const char *const name[] = {"none", "moves", "shuffle", "shared", "cluster"};
    SX_ASSERT(convert < SX_COUNT(name));
    return name[convert];
}

/* Same modes in any order? */
static bool same_modes(const sx_layout *a, const sx_layout *b)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < a->mode_count; i++) {
        uint32_t j = 0;
        while (j < b->mode_count &&
               ((used >> j & 1U) != 0 || a->mode[i].home != b->mode[j].home ||
                a->mode[i].extent != b->mode[j].extent || a->mode[i].row != b->mode[j].row ||
                a->mode[i].column != b->mode[j].column)) {
            j++;
        }
        if (j == b->mode_count) {
            return false;
        }
        used |= 1U << j;
    }
    return a->mode_count == b->mode_count;
}

/* Can each thread of `to` take its values from places of `from` that differ from its own in `homes` alone? */
static bool within(const sx_layout *from, const sx_layout *to, uint32_t homes)
{
    sx_linear source = sx_layout_linear(from), target = sx_layout_linear(to);
    uint32_t inputs = 0, found;
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        uint32_t bits = (homes >> home & 1U) != 0 ? (1U << from->bits[home]) - 1U : 0;
        inputs |= bits << sx_layout_first(from, (sx_home)home);
    }
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        bool chosen = (homes >> home & 1U) != 0;
        for (uint32_t i = 0; i < to->bits[home]; i++) {
            uint32_t want = target.column[sx_layout_first(to, (sx_home)home) + i];
            want ^= chosen ? 0 : source.column[sx_layout_first(from, (sx_home)home) + i];
            if (homes == SX_HOMES_THREAD && !chosen && want != 0) {
                return false; // which register depends on the thread
            }
            if (!sx_linear_solve(&source, inputs, want, &found)) {
                return false;
            }
        }
    }
    return true;
}

sx_code sx_layout_convert(sx_ctx *cx, const sx_layout *from, const sx_layout *to,
                          sx_convert *convert)
{
    for (uint32_t s = 0; s < 2; s++) {
        uint32_t a = sx_layout_side(from, (sx_side)s), b = sx_layout_side(to, (sx_side)s);
        if (a != b) {
            return SX_FAIL(cx, SX_INPUT, "layout conversion: %u %s become %u", a,
                           s == 0 ? "rows" : "columns", b);
        }
    }
    for (uint32_t home = SX_HOME_LANE; home < SX_HOME_COUNT; home++) {
        uint32_t a = sx_layout_count(from, (sx_home)home), b = sx_layout_count(to, (sx_home)home);
        if (a != b) {
            return SX_FAIL(cx, SX_INPUT, "layout conversion: %s of %u become %u",
                           sx_home_name((sx_home)home), a, b);
        }
    }
    if (!sx_layout_covers(from)) {
        return SX_FAIL(cx, SX_INPUT, "layout conversion: the source does not hold the whole tile");
    }
    sx_layout source = sx_layout_normal(from), target = sx_layout_normal(to);
    if (sx_layout_equal(&source, &target)) {
        *convert = SX_CONVERT_NONE;
        return SX_OK;
    }
    source = fold(from, true);
    target = fold(to, true);
    if (memcmp(source.bits + 1, target.bits + 1, SX_HOME_COUNT - 1) != 0 ||
        memcmp(source.side_bits, target.side_bits, sizeof(source.side_bits)) != 0 ||
        !same_modes(&source, &target)) {
        bool ranks = sx_layout_count(from, SX_HOME_RANK) > 1;
        *convert = ranks ? SX_CONVERT_CLUSTER : SX_CONVERT_SHARED;
        return SX_OK;
    }
    *convert = within(&source, &target, SX_HOMES_THREAD)  ? SX_CONVERT_MOVES
               : within(&source, &target, SX_HOMES_WARP)  ? SX_CONVERT_SHUFFLE
               : within(&source, &target, SX_HOMES_BLOCK) ? SX_CONVERT_SHARED
                                                          : SX_CONVERT_CLUSTER;
    SX_ASSERT(within(&source, &target, SX_HOMES_ALL));
    return SX_OK;
}
