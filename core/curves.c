/* curves.c - numbers that follow one symbol or two, as cases of a module.
 *
 * A number is looked at along an axis: the value of a symbol, or the product of both. The values of an axis fall into
 * classes by their remainder for some period, and a class into runs, in which the number is affine: a run is a case.
 * Not every product is a point. What decides a number is decided once along an axis (a comparison with an extent, a
 * remainder for the period), so that a run holds between points that agree; where points of a class do not agree, the
 * products between them are asked for, until the runs meet. */
#include "core/curves.h"

#include <stdlib.h>
#include <string.h>

#define PERIOD_MAX 128
#define AXES 3u /* two symbols, and their product */
#define NUMBERS_MAX (SX_CURVES_GRID + SX_COMES_SLOTS_MAX)
_Static_assert(NUMBERS_MAX <= SX_MODULE_NUMBERS_MAX, "the module has room for all numbers");
#define PRODUCTS_MAX (INT64_C(1) << 22)

/* The values of an axis that have a point, ascending, and of each a point that has the part, or NO_POINT. */
#define NO_POINT UINT32_MAX
typedef struct {
    int64_t *key;
    uint32_t *point;
    uint32_t count;
    /* Products that there are, by value; NULL: each value of the axis has a point. */
    const bool *there;
    int64_t high;
} axis;

/* Values of a class, one behind the other, in which each number of a group is affine. */
typedef struct {
    uint32_t first, last; /* places in the axis; NO_POINT: there is none */
    uint32_t behind;      /* the last place of the class that was looked at */
    int64_t step[NUMBERS_MAX];
} run;

/* Numbers with cases of their own. */
typedef struct {
    uint32_t axis, period;
    bool constant; /* the numbers are the same for all values */
    bool presence; /* for exactly the values that have the part; else for them at least */
    uint32_t number[NUMBERS_MAX];
    uint32_t count;
} group;

typedef struct {
    sx_ctx *cx;
    const sx_pipe_steady *steady;
    const sx_points *points;
    const int64_t *number[NUMBERS_MAX]; /* [point], the grid first */
    uint32_t number_count;
    axis axis[AXES];
    uint32_t axis_count;
    group group[2 * NUMBERS_MAX];
    uint32_t group_count;
    uint32_t presence; /* the axes that say which points have the part, a set of 1 << axis */
    run run[PERIOD_MAX];
    uint32_t part;
    sx_pipe_cases *cases;
    sx_points *wanted;
} fitting;

static int64_t key_of(const sx_pipe_point *p, uint32_t which)
{
    return which < 2 ? p->value[which] : p->value[0] * p->value[1];
}

static bool has_part(const fitting *f, uint32_t point)
{
    return f->number[0][point] != 0;
}

/* ---- axes ---- */

typedef struct {
    int64_t key;
    uint32_t point;
} keyed;

static int compare_keyed(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1)
                            : (x->point > y->point) - (x->point < y->point);
}

/* The products that the intervals have. */
static sx_code find_products(fitting *f, axis *a)
{
    const sx_pipe_steady *steady = f->steady;
    a->high = steady->high[0] * steady->high[1];
    if (a->high > PRODUCTS_MAX) {
        return SX_FAIL(f->cx, SX_LIMIT, "products up to %lld", (long long)a->high);
    }
    bool *there = SX_NEW_ARRAY(f->cx, bool, (size_t)a->high + 1);
    if (there == NULL) {
        return f->cx->error.code;
    }
    for (int64_t x = steady->low[0]; x <= steady->high[0]; x++) {
        for (int64_t y = steady->low[1]; y <= steady->high[1]; y++) {
            there[x * y] = true;
        }
    }
    a->there = there;
    return SX_OK;
}

static sx_code make_axis(fitting *f, uint32_t which)
{
    axis *a = &f->axis[which];
    uint32_t count = f->points->count;
    keyed *all = SX_NEW_ARRAY(f->cx, keyed, count);
    a->key = SX_NEW_ARRAY(f->cx, int64_t, count);
    a->point = SX_NEW_ARRAY(f->cx, uint32_t, count);
    if (all == NULL || a->key == NULL || a->point == NULL) {
        return f->cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        all[i] = (keyed){key_of(&f->points->at[i], which), i};
    }
    qsort(all, count, sizeof(*all), compare_keyed);
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || all[i].key != all[i - 1].key) {
            a->key[a->count] = all[i].key;
            a->point[a->count++] = NO_POINT;
        }
        uint32_t *point = &a->point[a->count - 1];
        *point = *point == NO_POINT && has_part(f, all[i].point) ? all[i].point : *point;
    }
    return which < 2 ? SX_OK : find_products(f, a);
}

/* The place of the largest value that is no more than `key`, as the first one is. */
static uint32_t find_place(const axis *a, int64_t key)
{
    uint32_t low = 0, high = a->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        low = a->key[middle] <= key ? middle : low;
        high = a->key[middle] <= key ? high : middle;
    }
    return low;
}

/* A point that has the part, for the value that another one has along the axis; NO_POINT: there is none. */
static uint32_t find_point(const fitting *f, uint32_t which, uint32_t other)
{
    const axis *a = &f->axis[which];
    int64_t key = key_of(&f->points->at[other], which);
    uint32_t at = find_place(a, key);
    SX_ASSERT(a->key[at] == key);
    return a->point[at];
}

/* Is the number the same at all points with the same value of the axis? */
static bool is_along(const fitting *f, uint32_t number, uint32_t which)
{
    bool same = true;
    for (uint32_t i = 0; i < f->points->count && same; i++) {
        same =
            !has_part(f, i) || f->number[number][find_point(f, which, i)] == f->number[number][i];
    }
    return same;
}

/* ---- runs ---- */

static bool goes_on(const fitting *f, const axis *a, const group *g, run *r, uint32_t place)
{
    int64_t steps = (a->key[place] - a->key[r->first]) / g->period;
    bool fits = true;
    for (uint32_t k = 0; k < g->count && fits; k++) {
        const int64_t *number = f->number[g->number[k]];
        int64_t by = number[a->point[place]] - number[a->point[r->first]];
        int64_t step = r->first == r->last ? by / steps : r->step[k], product;
        fits = sx_mul_i64(step, steps, &product) && product == by;
        r->step[k] = fits ? step : r->step[k];
    }
    return fits;
}

static sx_code put_run(fitting *f, const axis *a, uint32_t index, const run *r)
{
    const group *g = &f->group[index];
    int64_t low = a->key[r->first], there, product, offset;
    sx_pipe_cases *cases = f->cases;
    if (cases->count == cases->capacity ||
        cases->number_count + g->count > cases->number_capacity) {
        return SX_FAIL(f->cx, SX_LIMIT, "more than %u cases", cases->capacity);
    }
    uint32_t slot = 0;
    for (uint32_t k = 0; k < index; k++) {
        slot += f->group[k].count;
    }
    cases->row[cases->count++] =
        (sx_module_case){.part = f->part,
                         .group = index,
                         .slot = slot,
                         .number_count = g->count,
                         .symbol = f->steady->symbol[g->axis == 1 ? 1 : 0],
                         .other = g->axis == 2 ? f->steady->symbol[1] : SX_MODULE_NONE,
                         .number_first = cases->number_count,
                         .low = low,
                         .high = a->key[r->last],
                         .modulus = g->period,
                         .remainder = low % g->period};
    for (uint32_t k = 0; k < g->count; k++) { /* number + (value - low) / period * step */
        int64_t number = f->number[g->number[k]][a->point[r->first]];
        int64_t step = r->first == r->last ? 0 : r->step[k];
        if (!sx_mul_i64(number, g->period, &there) || !sx_mul_i64(step, low, &product) ||
            !sx_add_i64(there, -product, &offset)) {
            return SX_FAIL(f->cx, SX_LIMIT, "a number is too large");
        }
        cases->number[cases->number_count++] = (sx_module_number){step, offset};
    }
    return SX_OK;
}

static bool is_wanted(const fitting *f, const axis *a, int64_t value)
{
    bool known = value <= 0 || value > a->high || !a->there[value] ||
                 (value >= a->key[0] && a->key[find_place(a, value)] == value);
    for (uint32_t k = 0; k < f->wanted->count && !known; k++) {
        known = key_of(&f->wanted->at[k], 2) == value;
    }
    return !known;
}

/* Asks for a product between two values of a class, if there is one: the next one to the middle. */
static void want_between(fitting *f, const axis *a, int64_t period, int64_t low, int64_t high)
{
    const sx_pipe_steady *steady = f->steady;
    if (a->there == NULL || f->wanted->count == f->wanted->capacity) {
        return;
    }
    int64_t middle = low + (high - low) / 2 / period * period;
    for (int64_t by = 0; by <= high - low; by += period) {
        for (int64_t sign = -1; sign <= 1; sign += 2) {
            int64_t value = middle + sign * by;
            if (value <= low || value >= high || !is_wanted(f, a, value)) {
                continue;
            }
            int64_t x = sx_min_i64(steady->high[0], value);
            while (value % x != 0 || value / x < steady->low[1] || value / x > steady->high[1]) {
                x--;
            }
            f->wanted->at[f->wanted->count++] = (sx_pipe_point){{x, value / x}};
            return;
        }
    }
}

/* What lies between a run and the one before it in its class, or below the first. */
static void want_before(fitting *f, const axis *a, int64_t period, const run *r, uint32_t place)
{
    int64_t key = a->key[place];
    int64_t low = r->behind == NO_POINT ? key % period - period : a->key[r->behind];
    want_between(f, a, period, low, key);
}

static sx_code end_runs(fitting *f, uint32_t index)
{
    const group *g = &f->group[index];
    const axis *a = &f->axis[g->axis];
    for (uint32_t k = 0; k < g->period; k++) {
        run *r = &f->run[k];
        if (r->behind != NO_POINT) {
            int64_t key = a->key[r->behind];
            want_between(f, a, g->period, key,
                         key + (sx_max_i64(a->high - key, 0) / g->period + 1) * g->period);
        }
        SX_TRY(r->first != NO_POINT ? put_run(f, a, index, r) : SX_OK);
    }
    return SX_OK;
}

/* Goes along the axis; `put`: each run becomes a case, else they are counted, as far as `most`. */
static sx_code walk_runs(fitting *f, uint32_t index, bool put, uint32_t most, uint32_t *count)
{
    const group *g = &f->group[index];
    const axis *a = &f->axis[g->axis];
    SX_ASSERT(g->period >= 1 && g->period <= PERIOD_MAX);
    for (uint32_t k = 0; k < g->period; k++) {
        f->run[k].first = f->run[k].behind = NO_POINT;
    }
    *count = 0;
    uint32_t k = 0;
    for (; k < a->count && *count <= most; k++) {
        run *r = &f->run[a->key[k] % g->period];
        bool part = a->point[k] != NO_POINT;
        bool goes = part && r->first != NO_POINT && goes_on(f, a, g, r, k);
        if (!part && !g->presence) {
            continue;
        }
        bool changes = !goes && (part || r->first != NO_POINT);
        if (put && (changes || r->behind == NO_POINT)) {
            want_before(f, a, g->period, r, k);
        }
        if (!goes && r->first != NO_POINT) {
            SX_TRY(put ? put_run(f, a, index, r) : SX_OK);
            r->first = NO_POINT;
        }
        *count += part && !goes ? 1 : 0;
        r->first = part && !goes ? k : r->first;
        r->last = part ? k : r->last;
        r->behind = k;
    }
    SX_TRY(sx_spend(f->cx, k / 4 + 1));
    return put ? end_runs(f, index) : SX_OK;
}

/* One case for all values. */
static sx_code put_constants(fitting *f, uint32_t index)
{
    const group *g = &f->group[index];
    const axis *a = &f->axis[0];
    run whole = {0};
    while (!has_part(f, whole.last)) {
        whole.last++;
    }
    axis all = {.key = (int64_t[]){f->steady->low[0], f->steady->high[0]},
                .point = (uint32_t[]){whole.last, whole.last}};
    SX_ASSERT(g->constant && a->there == NULL);
    whole = (run){.first = 0, .last = 1};
    return put_run(f, &all, index, &whole);
}

/* The period with the fewest runs. */
static sx_code find_period(fitting *f, group *g)
{
    uint32_t best = UINT32_MAX, count;
    f->group[f->group_count] = *g;
    for (uint32_t period = 1; period <= PERIOD_MAX && best > period; period++) {
        f->group[f->group_count].period = period;
        SX_TRY(walk_runs(f, f->group_count, false, best, &count));
        g->period = count < best ? period : g->period;
        best = count < best ? count : best;
    }
    return SX_OK;
}

/* ---- groups ---- */

static bool is_constant(const fitting *f, uint32_t number)
{
    const int64_t *of = f->number[number];
    uint32_t first = NO_POINT;
    for (uint32_t i = 0; i < f->points->count; i++) {
        first = first == NO_POINT && has_part(f, i) ? i : first;
        if (has_part(f, i) && of[i] != of[first]) {
            return false;
        }
    }
    return true;
}

/* Do the axes of the set tell which points have the part? */
static bool tells_presence(const fitting *f, uint32_t set)
{
    bool tells = true;
    for (uint32_t i = 0; i < f->points->count && tells; i++) {
        bool said = true;
        for (uint32_t k = 0; k < f->axis_count; k++) {
            said = said && ((set >> k & 1) == 0 || find_point(f, k, i) != NO_POINT);
        }
        tells = said == has_part(f, i);
    }
    return tells;
}

static sx_code put_presence(fitting *f)
{
    static const uint32_t sets[] = {1, 2, 4, 3};
    uint32_t set = 0;
    for (uint32_t i = 0; i < SX_COUNT(sets) && set == 0; i++) {
        bool fits = sets[i] < 1u << f->axis_count && tells_presence(f, sets[i]);
        set = fits ? sets[i] : 0;
    }
    if (set == 0) {
        return SX_FAIL(f->cx, SX_UNIMPLEMENTED, "a part that is there for values of both symbols");
    }
    f->presence = set;
    for (uint32_t k = 0; k < f->axis_count; k++) {
        if ((set >> k & 1) != 0) {
            group g = {.axis = k, .period = 1, .presence = true};
            SX_TRY(find_period(f, &g));
            f->group[f->group_count++] = g;
        }
    }
    return SX_OK;
}

/* The axis and the period of a number. */
static sx_code place_number(fitting *f, uint32_t number, group *g)
{
    *g = (group){.axis = 0, .period = 1, .number = {number}, .count = 1};
    g->constant = is_constant(f, number);
    if (g->constant) {
        return SX_OK;
    }
    g->axis = f->presence == 1u << 2 ? 2 : 0; /* few points may lie on any axis */
    while (g->axis < f->axis_count && !is_along(f, number, g->axis)) {
        g->axis++;
    }
    if (g->axis == f->axis_count) {
        return SX_FAIL(f->cx, SX_UNIMPLEMENTED, "a number that follows both symbols");
    }
    return find_period(f, g);
}

/* The groups: those that say for which values there is the part, those of the grid, and the others. */
static sx_code put_groups(fitting *f, uint32_t *place)
{
    uint32_t first = 0;
    SX_TRY(put_presence(f));
    for (uint32_t n = 0; n < f->number_count; n++) {
        group g;
        SX_TRY(place_number(f, n, &g));
        if (n == 0 || n == SX_CURVES_GRID) {
            first = f->group_count;
        }
        uint32_t k = n < SX_CURVES_GRID && f->group_count > first ? f->group_count - 1 : first;
        while (k < f->group_count &&
               (f->group[k].axis != g.axis || f->group[k].period != g.period ||
                f->group[k].constant != g.constant)) {
            k++;
        }
        if (k == f->group_count) {
            f->group[f->group_count++] = g;
        } else {
            f->group[k].number[f->group[k].count++] = n;
        }
    }
    uint32_t slot = 0;
    for (uint32_t k = 0; k < f->group_count; k++) {
        for (uint32_t i = 0; i < f->group[k].count; i++, slot++) {
            uint32_t n = f->group[k].number[i];
            SX_ASSERT(n >= SX_CURVES_GRID || slot == n);
            if (n >= SX_CURVES_GRID) {
                place[n - SX_CURVES_GRID] = slot - SX_CURVES_GRID;
            }
        }
    }
    return SX_OK;
}

static sx_code take_numbers(fitting *f, const sx_curves *curves)
{
    for (uint32_t d = 0; d < SX_CURVES_GRID; d++) {
        int64_t *grid = SX_NEW_ARRAY(f->cx, int64_t, f->points->count);
        if (grid == NULL) {
            return f->cx->error.code;
        }
        for (uint32_t i = 0; i < f->points->count; i++) {
            grid[i] = curves->grid[i][d];
        }
        f->number[d] = grid;
    }
    for (uint32_t k = 0; k < curves->count; k++) {
        f->number[SX_CURVES_GRID + k] = curves->number[k];
    }
    f->number_count = SX_CURVES_GRID + curves->count;
    return SX_OK;
}

sx_code sx_curves_put(sx_ctx *cx, const sx_pipe_steady *steady, const sx_points *points,
                      const sx_curves *curves, uint32_t part, sx_pipe_cases *cases, uint32_t *place,
                      sx_points *wanted)
{
    uint32_t count;
    fitting *f = SX_NEW(cx, fitting);
    if (f == NULL) {
        return cx->error.code;
    }
    *f = (fitting){.cx = cx,
                   .steady = steady,
                   .points = points,
                   .axis_count = steady->symbol_count == 1 ? 1 : AXES,
                   .part = part,
                   .cases = cases,
                   .wanted = wanted};
    SX_TRY(take_numbers(f, curves));
    for (uint32_t k = 0; k < f->axis_count; k++) {
        SX_TRY(make_axis(f, k));
    }
    SX_TRY(put_groups(f, place));
    for (uint32_t k = 0; k < f->group_count; k++) {
        SX_TRY(f->group[k].constant ? put_constants(f, k)
                                    : walk_runs(f, k, true, UINT32_MAX, &count));
    }
    return SX_OK;
}
