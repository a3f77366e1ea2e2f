/* lines.c - which kernels need not be lowered.
 *
 * A lowering is a function of what it reads. It cuts extents in pieces of the schedule's steps, compares them, adds and
 * multiplies. So where numbers grow along a line, with the same remainders for all steps, each quotient grows by as
 * much from one reading to the next, a comparison changes its answer once, and the program is the same one, whose
 * numbers lie on a line themselves, until that happens. Whether it does is seen at the ends. */
#include "core/lines.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/idmap.h"
#include "core/base/rewind.h"
#include "core/loop/between.h"

#define NONE UINT32_MAX
/* Quotients by the period that are told apart: extents of few blocks have programs of their own. */
#define FEW_BLOCKS 4
/* Lines among readings with equal remainders; what lies on none of them is lowered. */
#define LINES_MAX 8u

/* ---- which readings lie on a line ---- */

typedef struct {
    sx_ctx *cx;
    const sx_reading *reading;
    uint32_t count;
    int64_t period;
    sx_idmap map; /* readings that begin the first line of their class */
    /* A line by its first reading: the second one, how many it has, the next of its class, and the number that tells
     * its readings apart. [reading] */
    struct {
        uint32_t second, count, other, number;
    } * line;
    uint32_t *line_of; /* [reading], by its first one; NONE: it is on none */
} sorting;

static int64_t number_of(const sx_reading *r, uint32_t k)
{
    SX_ASSERT(k < r->number_count);
    return (int64_t)r->word[r->count - r->number_count + k];
}

/* What readings of one class have in common of a number. */
static uint64_t class_of(int64_t number, int64_t period)
{
    int64_t rest = number % period, blocks = number / period;
    blocks = sx_max_i64(-FEW_BLOCKS, sx_min_i64(blocks, FEW_BLOCKS));
    return (uint64_t)rest * (2 * FEW_BLOCKS + 1) + (uint64_t)(blocks + FEW_BLOCKS);
}

static uint64_t hash_of(const sorting *s, const sx_reading *r)
{
    size_t exact = r->count - r->number_count;
    uint64_t hash = sx_hash64((sx_span){(const uint8_t *)r->word, exact * sizeof(*r->word)}, 0);
    for (uint32_t k = 0; k < r->number_count; k++) {
        uint64_t word = class_of(number_of(r, k), s->period);
        hash = sx_hash64((sx_span){(const uint8_t *)&word, sizeof(word)}, hash);
    }
    return hash;
}

static bool same_class(const void *self, uint32_t id, const void *probe)
{
    const sorting *s = self;
    const sx_reading *a = &s->reading[id], *b = probe;
    size_t exact = a->count - a->number_count;
    bool same = a->count == b->count && a->number_count == b->number_count &&
                memcmp(a->word, b->word, exact * sizeof(*a->word)) == 0;
    for (uint32_t k = 0; same && k < a->number_count; k++) {
        same = class_of(number_of(a, k), s->period) == class_of(number_of(b, k), s->period);
    }
    return same;
}

/* The first number in which they differ; readings are not equal. */
static uint32_t first_other(const sx_reading *a, const sx_reading *b)
{
    uint32_t k = 0;
    while (number_of(a, k) == number_of(b, k)) {
        k++;
    }
    return k;
}

/* Are all numbers where the line has them? */
static bool lies(const sorting *s, uint32_t first, uint32_t second, uint32_t number,
                 const sx_reading *r)
{
    const sx_reading *a = &s->reading[first], *b = &s->reading[second];
    int64_t up = number_of(b, number) - number_of(a, number);
    int64_t by = number_of(r, number) - number_of(a, number);
    bool fits = true;
    for (uint32_t k = 0; k < r->number_count && fits; k++) {
        int64_t here = number_of(r, k) - number_of(a, k), whole = number_of(b, k) - number_of(a, k);
        int64_t x, y;
        fits = here == 0 ? whole == 0 || by == 0
                         : sx_mul_i64(here, up, &x) && sx_mul_i64(whole, by, &y) && x == y;
    }
    return fits;
}

/* Puts a reading on a line of its class, or begins one. */
static sx_code sort_reading(sorting *s, uint32_t index)
{
    const sx_reading *r = &s->reading[index];
    uint64_t hash = hash_of(s, r);
    uint32_t line = sx_idmap_find(&s->map, hash, same_class, s, r), lines = 0, last = NONE;
    s->line[index].second = s->line[index].other = NONE;
    s->line[index].count = 1;
    s->line_of[index] = index;
    if (line == SX_IDMAP_NONE) {
        return sx_idmap_put(s->cx, &s->map, hash, index);
    }
    for (; line != NONE; line = s->line[line].other, lines++) {
        bool second = s->line[line].count == 1;
        if (second) {
            s->line[line].second = index;
            s->line[line].number = first_other(&s->reading[line], r);
        }
        if (second || lies(s, line, s->line[line].second, s->line[line].number, r)) {
            s->line[line].count++;
            s->line_of[index] = line;
            return SX_OK;
        }
        last = line;
    }
    if (lines < LINES_MAX) {
        s->line[last].other = index;
    } else {
        s->line_of[index] = NONE;
    }
    return SX_OK;
}

static int compare_members(const void *a, const void *b)
{
    const sx_line_member *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* The readings of each line that has enough of them. */
static sx_code gather(sorting *s, sx_lines *lines)
{
    sx_line **line = SX_NEW_ARRAY(s->cx, sx_line *, (size_t)s->count + 1);
    lines->line = SX_NEW_ARRAY(s->cx, sx_line, s->count / SX_LINE_MEMBERS_MIN + 1);
    if (line == NULL || lines->line == NULL) {
        return s->cx->error.code;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t first = s->line_of[i];
        if (first == NONE || s->line[first].count < SX_LINE_MEMBERS_MIN) {
            continue;
        }
        if (line[first] == NULL) {
            line[first] = &lines->line[lines->line_count++];
            line[first]->member = SX_NEW_ARRAY(s->cx, sx_line_member, s->line[first].count);
            if (line[first]->member == NULL) {
                return s->cx->error.code;
            }
        }
        sx_line *its = line[first];
        its->member[its->count++] =
            (sx_line_member){number_of(&s->reading[i], s->line[first].number), i};
    }
    for (uint32_t k = 0; k < lines->line_count; k++) {
        sx_line *its = &lines->line[k];
        qsort(its->member, its->count, sizeof(*its->member), compare_members);
        for (uint32_t i = 1; i < its->count; i++) {
            its->unit = sx_gcd_i64(its->unit, its->member[i].value - its->member[0].value);
        }
        SX_ASSERT(its->unit > 0);
    }
    return SX_OK;
}

sx_code sx_lines_make(sx_ctx *cx, const sx_reading *reading, uint32_t count, int64_t period,
                      sx_lines *lines)
{
    sorting s = {.cx = cx, .reading = reading, .count = count, .period = period};
    SX_ASSERT(period > 0);
    *lines = (sx_lines){.reading = reading, .count = count};
    s.line = sx_alloc_array(cx, (size_t)count + 1, sizeof(*s.line));
    s.line_of = SX_NEW_ARRAY(cx, uint32_t, (size_t)count + 1);
    if (s.line == NULL || s.line_of == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(sort_reading(&s, i));
    }
    return gather(&s, lines);
}

/* ---- which kernels lie on a line ---- */

#define PICKS 9u

/* Members first .. last - 1 of a line. */
typedef struct {
    uint32_t first, last;
} stretch;

typedef struct {
    sx_ctx *cx;
    const sx_lines *lines;
    const sx_line *line;
    const sx_line_lowering *lowering;
    sx_way *way;
} walking;

/* The members with the two earliest points, `early[0]` first. */
static void find_early(const walking *w, stretch s, uint32_t early[2])
{
    early[0] = early[1] = NONE;
    for (uint32_t i = s.first; i < s.last; i++) {
        uint32_t reading = w->line->member[i].reading;
        bool first = early[0] == NONE || reading < w->line->member[early[0]].reading;
        bool second = !first && (early[1] == NONE || reading < w->line->member[early[1]].reading);
        early[1] = first ? early[0] : second ? i : early[1];
        early[0] = first ? i : early[0];
    }
}

/* Is there a kernel for the member? What a lowering refuses has none. */
static sx_code lower_member(walking *w, uint32_t member, sx_kernel **kernel)
{
    const sx_reading *r = &w->lines->reading[w->line->member[member].reading];
    sx_code code = w->lowering->lower(w->lowering->self, w->cx, r, kernel);
    if (code == SX_UNIMPLEMENTED || code == SX_LIMIT || code == SX_INPUT || code == SX_COMPILE) {
        sx_ctx_reset_error(w->cx);
        *kernel = NULL;
        code = SX_OK;
    }
    return code;
}

/* Do the kernels of a stretch lie on a line, as far as they are looked at? */
static sx_code look(walking *w, stretch s, const uint32_t early[2], bool *fits)
{
    uint32_t count = s.last - s.first;
    const uint32_t pick[PICKS] = {s.first,
                                  s.last - 1,
                                  s.first + 1,
                                  s.last - 2,
                                  s.first + count / 2,
                                  s.first + count / 3,
                                  s.last - 1 - count / 5,
                                  early[0],
                                  early[1]};
    sx_on_line end[2];
    *fits = true;
    for (uint32_t k = 0; k < PICKS && *fits; k++) {
        sx_kernel *kernel;
        SX_TRY(lower_member(w, pick[k], &kernel));
        const sx_on_line its = {kernel, w->line->member[pick[k]].value};
        if (k < 2) {
            end[k] = its;
        }
        *fits =
            kernel != NULL && (k == 0 || sx_loop_between(&end[0], &its, &end[1], w->line->unit));
    }
    return SX_OK;
}

/* All but the two earliest and the ends, whose kernels are the largest and the smallest. */
static void set_ways(const walking *w, stretch s, const uint32_t early[2])
{
    const sx_line_member *from = &w->line->member[early[0]], *to = &w->line->member[early[1]];
    for (uint32_t i = s.first + 1; i + 1 < s.last; i++) {
        const sx_line_member *its = &w->line->member[i];
        if (i != early[0] && i != early[1]) {
            w->way[its->reading] = (sx_way){.from = w->lines->reading[from->reading].point,
                                            .to = w->lines->reading[to->reading].point,
                                            .at = its->value - from->value,
                                            .of = to->value - from->value};
        }
    }
}

sx_code sx_line_walk(sx_ctx *cx, const sx_lines *lines, uint32_t line,
                     const sx_line_lowering *lowering, sx_way *way)
{
    walking w = {cx, lines, &lines->line[line], lowering, way};
    stretch open[64]; /* halves, so that so many are enough */
    uint32_t count = 1;
    open[0] = (stretch){0, w.line->count};
    while (count > 0) {
        stretch s = open[--count];
        uint32_t early[2], middle = s.first + (s.last - s.first) / 2;
        bool fits;
        if (s.last - s.first < SX_LINE_MEMBERS_MIN) {
            continue;
        }
        find_early(&w, s, early);
        SX_TRY(look(&w, s, early, &fits));
        sx_arena_rewind(&cx->arena);
        if (fits) {
            set_ways(&w, s, early);
            continue;
        }
        SX_ASSERT(count + 2 <= SX_COUNT(open));
        open[count++] = (stretch){s.first, middle};
        open[count++] = (stretch){middle, s.last};
    }
    return SX_OK;
}
