#include "core/tile/layout.h"

static const char *const home_names[SX_HOME_COUNT] = {"reg", "lane", "warp", "rank"};

const char *sx_home_name(sx_home home)
{
    SX_ASSERT(home < SX_HOME_COUNT);
    return home_names[home];
}

static void print_at(uint32_t at, sx_buf *out)
{
    if (at == 0) {
        sx_buf_put_text(out, " 0");
        return;
    }
    sx_buf_put_text(out, " ");
    if (sx_at_row(at) != 0) {
        sx_buf_print(out, "r%u", sx_at_row(at));
    }
    if (sx_at_column(at) != 0) {
        sx_buf_print(out, "c%u", sx_at_column(at));
    }
}

void sx_layout_print(const sx_layout *layout, sx_buf *out)
{
    SX_ASSERT(layout->mode_count <= SX_LAYOUT_MODES_MAX);
    sx_buf_print(out, "tile %ux%u", 1U << layout->side_bits[0], 1U << layout->side_bits[1]);
    for (uint32_t home = 0, at = 0; home < SX_HOME_COUNT; home++) {
        if (layout->bits[home] != 0) {
            sx_buf_print(out, " %s", home_names[home]);
        }
        for (uint32_t i = 0; i < layout->bits[home]; i++) {
            print_at(layout->column[at++], out);
        }
    }
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        const sx_layout_mode *mode = &layout->mode[i];
        sx_buf_print(out, " mode %u %s", mode->extent, home_names[mode->home]);
        print_at(SX_AT(mode->row, mode->column), out);
    }
}

/* ---- parser: words with blanks between them ---- */

typedef struct {
    sx_ctx *cx;
    sx_span text;
    size_t at;
    sx_span word; /* empty at the end */
} reader;

static void next(reader *in)
{
    while (in->at < in->text.len && in->text.ptr[in->at] == ' ') {
        in->at++;
    }
    size_t start = in->at;
    while (in->at < in->text.len && in->text.ptr[in->at] != ' ') {
        in->at++;
    }
    in->word = (sx_span){in->text.ptr + start, in->at - start};
}

static sx_code unexpected(reader *in, const char *wanted)
{
    return SX_FAIL(in->cx, SX_INPUT, "layout: expected %s at byte %zu, found '%.*s'", wanted,
                   in->at - in->word.len, (int)(in->word.len < 40 ? in->word.len : 40),
                   (const char *)in->word.ptr);
}

/* Digits from `*at` on, at most `max`. */
static bool read_number(sx_span word, size_t *at, uint32_t max, uint32_t *value)
{
    size_t start = *at;
    *value = 0;
    while (*at < word.len && word.ptr[*at] >= '0' && word.ptr[*at] <= '9') {
        *value = *value * 10 + (uint32_t)(word.ptr[(*at)++] - '0');
        if (*value > max) {
            return false;
        }
    }
    return *at > start;
}

/* "0", "r8", "c2" or "r8c2". */
static bool read_at(sx_span word, uint32_t *at)
{
    size_t i = 0;
    uint32_t row = 0, column = 0;
    bool read = true;
    if (sx_span_is(word, "0")) {
        *at = 0;
        return true;
    }
    if (word.len > 0 && word.ptr[0] == 'r') {
        i = 1;
        read = read_number(word, &i, SX_LAYOUT_SIDE_MAX, &row) && row != 0;
    }
    if (read && i < word.len && word.ptr[i] == 'c') {
        i++;
        read = read_number(word, &i, SX_LAYOUT_SIDE_MAX, &column) && column != 0;
    }
    *at = SX_AT(row, column);
    return read && i == word.len && *at != 0;
}

static sx_code read_tile(reader *in, sx_layout *layout)
{
    if (!sx_span_is(in->word, "tile")) {
        return unexpected(in, "'tile'");
    }
    next(in);
    uint32_t side[2];
    size_t i = 0;
    bool read = read_number(in->word, &i, SX_LAYOUT_SIDE_MAX, &side[0]) && i < in->word.len &&
                in->word.ptr[i++] == 'x' &&
                read_number(in->word, &i, SX_LAYOUT_SIDE_MAX, &side[1]) && i == in->word.len;
    if (!read || __builtin_popcount(side[0]) != 1 || __builtin_popcount(side[1]) != 1) {
        return unexpected(in, "two powers of two as in 16x8");
    }
    layout->side_bits[0] = (uint8_t)__builtin_ctz(side[0]);
    layout->side_bits[1] = (uint8_t)__builtin_ctz(side[1]);
    next(in);
    return SX_OK;
}

static sx_code read_mode(reader *in, sx_layout *layout)
{
    if (layout->mode_count == SX_LAYOUT_MODES_MAX) {
        return SX_FAIL(in->cx, SX_LIMIT, "layout: more than %d modes", SX_LAYOUT_MODES_MAX);
    }
    sx_layout_mode *mode = &layout->mode[layout->mode_count++];
    uint32_t extent, at;
    size_t i = 0;
    next(in);
    if (!read_number(in->word, &i, SX_LAYOUT_SIDE_MAX, &extent) || i != in->word.len) {
        return unexpected(in, "the extent of a mode");
    }
    next(in);
    for (mode->home = 0; mode->home < SX_HOME_COUNT; mode->home++) {
        if (sx_span_is(in->word, home_names[mode->home])) {
            break;
        }
    }
    if (mode->home == SX_HOME_COUNT) {
        return unexpected(in, "reg, warp or rank");
    }
    next(in);
    if (!read_at(in->word, &at)) {
        return unexpected(in, "a step as in r8, c8 or 0");
    }
    mode->extent = (uint16_t)extent;
    mode->row = (uint16_t)sx_at_row(at);
    mode->column = (uint16_t)sx_at_column(at);
    next(in);
    return SX_OK;
}

sx_code sx_layout_parse(sx_ctx *cx, sx_span text, sx_layout *layout)
{
    reader in = {.cx = cx, .text = text};
    sx_layout read = {.mode_count = 0};
    uint32_t count = 0, at;
    next(&in);
    SX_TRY(read_tile(&in, &read));
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        if (!sx_span_is(in.word, home_names[home])) {
            continue;
        }
        for (next(&in); read_at(in.word, &at); next(&in)) {
            if (count == SX_LAYOUT_BITS_MAX) {
                return SX_FAIL(cx, SX_LIMIT, "layout: more than %d columns", SX_LAYOUT_BITS_MAX);
            }
            read.column[count++] = at;
            read.bits[home]++;
        }
    }
    while (sx_span_is(in.word, "mode")) {
        SX_TRY(read_mode(&in, &read));
    }
    if (in.word.len != 0) {
        return unexpected(&in, "a column, reg, lane, warp, rank (in this order), mode or the end");
    }
    SX_TRY(sx_layout_check(cx, &read));
    SX_ASSERT(sx_layout_input_bits(&read) == count);
    *layout = read;
    return SX_OK;
}
