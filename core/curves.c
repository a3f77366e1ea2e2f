/* curves.c - numbers that follow one symbol or two, as cases of a module.
 *
 * A number is looked at along an axis: the value of a symbol, or the product of both. The values of an axis fall into
 * classes by their remainder for some period, and a class into runs, in which the number is affine: a run is a case.
 * Every point is looked at, so that a run is no guess about what lies between points. */
#include "core/curves.h"

#include <stdlib.h>
#include <string.h>

#define PERIOD_MAX 128
_Static_assert(SX_CURVES_NUMBERS <= SX_MODULE_NUMBERS_MAX, "the module has room for all numbers");

#define NOWHERE UINT32_MAX

/* Values of a class, one behind the other, in which each number of a group is affine. */
typedef struct {
    uint32_t first, last; /* places in the axis; NOWHERE: there is none */
    int64_t step[SX_CURVES_NUMBERS];
} run;

/* Numbers with cases of their own. */
typedef struct {
    uint32_t axis, period;
    bool constant; /* the numbers are the same for all values */
    bool presence; /* for exactly the values that have the part; else for them at least */
    uint32_t number[SX_CURVES_NUMBERS];
    uint32_t count;
} group;

typedef struct {
    sx_ctx *cx;
    const sx_points *points;
    const sx_curves *curves;
    /* [axis][value] a point of the part that has the value, by number among its points; NOWHERE: none has. */
    uint32_t *some[SX_CURVES_AXES];
    group group[2 * SX_CURVES_NUMBERS];
    uint32_t group_count;
    uint32_t presence; /* the axes that say which points have the part, a set of 1 << axis */
    run run[PERIOD_MAX];
    uint32_t part;
    sx_pipe_cases *cases;
} fitting;

/* ---- points ---- */

sx_pipe_point sx_points_at(const sx_points *points, uint32_t index)
{
    const sx_pipe_steady *steady = points->steady;
    int64_t few = steady->symbol_count > 1 ? steady->high[1] - steady->low[1] + 1 : 1;
    SX_ASSERT(index < points->count);
    return (sx_pipe_point){{steady->high[0] - index / few, steady->high[1] - index % few}};
}

static int64_t key_of(const sx_points *points, uint32_t which, uint32_t point)
{
    const sx_pipe_point p = sx_points_at(points, point);
    return which < 2 ? p.value[which] : p.value[0] * p.value[1];
}

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

static sx_code make_axis(sx_ctx *cx, sx_points *points, uint32_t which)
{
    sx_curves_axis *a = &points->axis[which];
    uint32_t count = points->count;
    keyed *all = SX_NEW_ARRAY(cx, keyed, count);
    a->key = SX_NEW_ARRAY(cx, int64_t, count);
    a->place = SX_NEW_ARRAY(cx, uint32_t, count);
    if (all == NULL || a->key == NULL || a->place == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        all[i] = (keyed){key_of(points, which, i), i};
    }
    qsort(all, count, sizeof(*all), compare_keyed);
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || all[i].key != all[i - 1].key) {
            a->key[a->count++] = all[i].key;
        }
        a->place[all[i].point] = a->count - 1;
    }
    return SX_OK;
}

sx_code sx_points_make(sx_ctx *cx, const sx_pipe_steady *steady, sx_points *points)
{
    int64_t count = 1;
    *points = (sx_points){.steady = steady};
    for (uint32_t k = 0; k < steady->symbol_count; k++) {
        int64_t product, values = steady->high[k] - steady->low[k] + 1;
        if (!sx_mul_i64(count, values, &product) || product > SX_POINTS_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "more than %u values, or pairs of values", SX_POINTS_MAX);
        }
        count = product;
    }
    points->count = (uint32_t)count;
    points->axis_count = steady->symbol_count == 1 ? 1 : SX_CURVES_AXES;
    for (uint32_t k = 0; k < points->axis_count; k++) {
        SX_TRY(make_axis(cx, points, k));
    }
    return SX_OK;
}

/* For each value of the axes a point of the part. */
static sx_code find_some(fitting *f)
{
    const sx_curves *curves = f->curves;
    for (uint32_t which = 0; which < f->points->axis_count; which++) {
        const sx_curves_axis *a = &f->points->axis[which];
        uint32_t *some = SX_NEW_ARRAY(f->cx, uint32_t, a->count);
        if (some == NULL) {
            return f->cx->error.code;
        }
        memset(some, 0xff, a->count * sizeof(*some));
        for (uint32_t i = 0; i < curves->count; i++) {
            some[a->place[curves->point[i]]] = i;
        }
        f->some[which] = some;
    }
    return SX_OK;
}

/* Is the number the same at all points with the same value of the axis? */
static bool is_along(const fitting *f, uint32_t number, uint32_t which)
{
    const int64_t *of = f->curves->number[number];
    const uint32_t *place = f->points->axis[which].place;
    bool same = true;
    for (uint32_t i = 0; i < f->curves->count && same; i++) {
        same = of[f->some[which][place[f->curves->point[i]]]] == of[i];
    }
    return same;
}

/* ---- runs ---- */

/* Does the value at `place` belong to the run? */
static bool goes_on(const fitting *f, const group *g, run *r, uint32_t place)
{
    const sx_curves_axis *a = &f->points->axis[g->axis];
    const uint32_t *some = f->some[g->axis];
    int64_t steps = (a->key[place] - a->key[r->first]) / g->period;
    bool fits = true;
    for (uint32_t k = 0; k < g->count && fits; k++) {
        const int64_t *number = f->curves->number[g->number[k]];
        int64_t by = number[some[place]] - number[some[r->first]];
        int64_t step = r->first == r->last ? by / steps : r->step[k], product;
        fits = sx_mul_i64(step, steps, &product) && product == by;
        r->step[k] = fits ? step : r->step[k];
    }
    return fits;
}

/* The run as a case: values from `low` to `high` of the axis. */
static sx_code put_run(fitting *f, uint32_t index, const run *r, int64_t low, int64_t high)
{
    const group *g = &f->group[index];
    const uint32_t *some = f->some[g->axis];
    int64_t there, product, offset;
    sx_pipe_cases *cases = f->cases;
    if (cases->count == cases->capacity ||
        cases->number_count + g->count > cases->number_capacity) {
        return SX_FAIL(f->cx, SX_LIMIT, "more than %u cases", cases->capacity);
    }
    uint32_t slot = 0;
    for (uint32_t k = 0; k < index; k++) {
        slot += f->group[k].count;
    }
    const uint32_t *symbol = f->points->steady->symbol;
    cases->row[cases->count++] =
        (sx_module_case){.part = f->part,
                         .group = index,
                         .slot = slot,
                         .number_count = g->count,
                         .symbol = symbol[g->axis == 1 ? 1 : 0],
                         .other = g->axis == 2 ? symbol[1] : SX_MODULE_NONE,
                         .number_first = cases->number_count,
                         .low = low,
                         .high = high,
                         .modulus = g->period,
                         .remainder = low % g->period};
    for (uint32_t k = 0; k < g->count; k++) { /* number + (value - low) / period * step */
        int64_t number = f->curves->number[g->number[k]][some[r->first]];
        int64_t step = r->first == r->last ? 0 : r->step[k];
        if (!sx_mul_i64(number, g->period, &there) || !sx_mul_i64(step, low, &product) ||
            !sx_add_i64(there, -product, &offset)) {
            return SX_FAIL(f->cx, SX_LIMIT, "a number is too large");
        }
        cases->number[cases->number_count++] = (sx_module_number){step, offset};
    }
    return SX_OK;
}

static sx_code end_run(fitting *f, uint32_t index, bool put, run *r)
{
    const int64_t *key = f->points->axis[f->group[index].axis].key;
    bool there = r->first != NOWHERE;
    SX_TRY(there && put ? put_run(f, index, r, key[r->first], key[r->last]) : SX_OK);
    r->first = NOWHERE;
    return SX_OK;
}

/* Goes along the axis; `put`: each run becomes a case, else they are counted, as far as `most`. */
static sx_code walk_runs(fitting *f, uint32_t index, bool put, uint32_t most, uint32_t *count)
{
    const group *g = &f->group[index];
    const sx_curves_axis *a = &f->points->axis[g->axis];
    SX_ASSERT(g->period >= 1 && g->period <= PERIOD_MAX);
    for (uint32_t k = 0; k < g->period; k++) {
        f->run[k].first = NOWHERE;
    }
    *count = 0;
    uint32_t k = 0;
    for (; k < a->count && *count <= most; k++) {
        run *r = &f->run[a->key[k] % g->period];
        bool part = f->some[g->axis][k] != NOWHERE;
        bool goes = part && r->first != NOWHERE && goes_on(f, g, r, k);
        if (!goes && (part || g->presence)) {
            SX_TRY(end_run(f, index, put, r));
        }
        *count += part && !goes ? 1 : 0;
        r->first = part && !goes ? k : r->first;
        r->last = part ? k : r->last;
    }
    SX_TRY(sx_spend(f->cx, k / 4 + 1));
    for (uint32_t i = 0; i < g->period && put; i++) {
        SX_TRY(end_run(f, index, put, &f->run[i]));
    }
    return SX_OK;
}

/* One case for all values. */
static sx_code put_constants(fitting *f, uint32_t index)
{
    const sx_pipe_steady *steady = f->points->steady;
    const group *g = &f->group[index];
    run whole = {0};
    SX_ASSERT(g->constant && g->axis == 0 && g->period == 1);
    while (f->some[0][whole.first] == NOWHERE) {
        whole.first++;
    }
    whole.last = whole.first;
    return put_run(f, index, &whole, steady->low[0], steady->high[0]);
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
    const int64_t *of = f->curves->number[number];
    uint32_t i = 1;
    while (i < f->curves->count && of[i] == of[0]) {
        i++;
    }
    return i >= f->curves->count;
}

/* Do the axes of the set tell which points have the part? Those that have it are among those of which they say so. */
static bool tells_presence(const fitting *f, uint32_t set)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->points->count && count <= f->curves->count; i++) {
        bool said = true;
        for (uint32_t k = 0; k < f->points->axis_count; k++) {
            said =
                said && ((set >> k & 1) == 0 || f->some[k][f->points->axis[k].place[i]] != NOWHERE);
        }
        count += said ? 1 : 0;
    }
    return count == f->curves->count;
}

static sx_code put_presence(fitting *f)
{
    static const uint32_t sets[] = {1, 2, 4, 3};
    uint32_t set = 0;
    for (uint32_t i = 0; i < SX_COUNT(sets) && set == 0; i++) {
        bool fits = sets[i] < 1u << f->points->axis_count && tells_presence(f, sets[i]);
        set = fits ? sets[i] : 0;
    }
    if (set == 0) {
        return SX_FAIL(f->cx, SX_UNIMPLEMENTED, "a part that is there for values of both symbols");
    }
    f->presence = set;
    for (uint32_t k = 0; k < f->points->axis_count; k++) {
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
    const uint32_t count = f->points->axis_count;
    uint32_t first = f->presence == 1u << 2 ? 2 : 0, k = 0; /* few points may lie on any axis */
    for (g->axis = first; k < count && !is_along(f, number, g->axis); k++) {
        g->axis = (g->axis + 1) % count;
    }
    if (k == count) {
        return SX_FAIL(f->cx, SX_UNIMPLEMENTED, "a number that follows both symbols");
    }
    return find_period(f, g);
}

/* The groups: those that say for which values there is the part, those of the grid, and the others. */
static sx_code put_groups(fitting *f, uint32_t *place)
{
    uint32_t first = 0;
    SX_TRY(put_presence(f));
    for (uint32_t n = 0; n < f->curves->number_count; n++) {
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

sx_code sx_curves_put(sx_ctx *cx, const sx_points *points, const sx_curves *curves, uint32_t part,
                      sx_pipe_cases *cases, uint32_t *place)
{
    uint32_t count, first = cases->count;
    fitting *f = SX_NEW(cx, fitting);
    SX_ASSERT(curves->count > 0 && curves->number_count >= SX_CURVES_GRID);
    if (f == NULL) {
        return cx->error.code;
    }
    *f = (fitting){.cx = cx, .points = points, .curves = curves, .part = part, .cases = cases};
    SX_TRY(find_some(f));
    SX_TRY(put_groups(f, place));
    for (uint32_t k = 0; k < f->group_count; k++) {
        SX_TRY(f->group[k].constant ? put_constants(f, k)
                                    : walk_runs(f, k, true, UINT32_MAX, &count));
    }
    return sx_curves_check(cx, points, curves, cases, first, place);
}

/* ---- what a loader makes of them ---- */

/* The row of each value of an axis, for one group: the first one that holds. */
static uint32_t mark_rows(const sx_curves_axis *a, const sx_pipe_cases *cases, uint32_t first,
                          uint32_t *row_of)
{
    uint32_t row = first;
    memset(row_of, 0xff, a->count * sizeof(*row_of));
    for (; row < cases->count && cases->row[row].group == cases->row[first].group; row++) {
        const sx_module_case *its = &cases->row[row];
        uint32_t low = 0, high = a->count;
        while (low < high) { /* the first value that is not below the case */
            uint32_t middle = low + (high - low) / 2;
            low = a->key[middle] < its->low ? middle + 1 : low;
            high = a->key[middle] < its->low ? high : middle;
        }
        for (; low < a->count && a->key[low] <= its->high; low++) {
            bool holds = row_of[low] == NOWHERE && sx_module_case_holds(its, a->key[low]);
            row_of[low] = holds ? row : row_of[low];
        }
    }
    return row;
}

static uint32_t axis_of(const sx_pipe_steady *steady, const sx_module_case *row)
{
    return row->other != SX_MODULE_NONE ? 2 : row->symbol == steady->symbol[0] ? 0 : 1;
}

/* Is there a group for each number? */
static bool gives_all(const sx_pipe_cases *cases, uint32_t first, uint32_t number_count)
{
    uint32_t next = 0, slot = 0;
    for (uint32_t row = first; row < cases->count; row++) {
        const sx_module_case *its = &cases->row[row];
        if (row == first || its->group != its[-1].group) {
            if (its->group != next || its->slot != slot) {
                return false;
            }
            next++;
            slot += its->number_count;
        }
    }
    return slot == number_count;
}

/* Does the row give its numbers at point `at` of the part? number_at[k] is number k of the cases among the curves. */
static bool gives(const sx_curves *curves, uint32_t at, const sx_pipe_cases *cases,
                  const sx_module_case *row, int64_t key, const uint32_t *number_at)
{
    bool same = true;
    for (uint32_t k = 0; k < row->number_count && same; k++) {
        const sx_module_number *number = &cases->number[row->number_first + k];
        int64_t product, sum;
        same = sx_mul_i64(number->scale, key, &product) &&
               sx_add_i64(product, number->offset, &sum) && sum % row->modulus == 0 &&
               sum / row->modulus == curves->number[number_at[row->slot + k]][at];
    }
    return same;
}

sx_code sx_curves_check(sx_ctx *cx, const sx_points *points, const sx_curves *curves,
                        const sx_pipe_cases *cases, uint32_t first, const uint32_t *place)
{
    uint32_t number_at[SX_CURVES_NUMBERS] = {0, 1, 2};
    uint32_t *at =
        SX_NEW_ARRAY(cx, uint32_t, points->count); /* of a point among those of the part */
    bool *right = SX_NEW_ARRAY(cx, bool, points->count),
         *all = SX_NEW_ARRAY(cx, bool, points->count);
    uint32_t *row_of = SX_NEW_ARRAY(cx, uint32_t, points->count);
    if (at == NULL || right == NULL || all == NULL || row_of == NULL) {
        return cx->error.code;
    }
    for (uint32_t k = SX_CURVES_GRID; k < curves->number_count; k++) {
        number_at[place[k - SX_CURVES_GRID] + SX_CURVES_GRID] = k;
    }
    memset(at, 0xff, points->count * sizeof(*at));
    for (uint32_t i = 0; i < curves->count; i++) {
        at[curves->point[i]] = i;
    }
    for (uint32_t i = 0; i < points->count; i++) {
        all[i] = gives_all(cases, first, curves->number_count);
        right[i] = true;
    }
    for (uint32_t row = first; row < cases->count;) {
        const sx_curves_axis *a = &points->axis[axis_of(points->steady, &cases->row[row])];
        row = mark_rows(a, cases, row, row_of);
        for (uint32_t i = 0; i < points->count; i++) {
            uint32_t its = row_of[a->place[i]];
            all[i] = all[i] && its != NOWHERE;
            right[i] = right[i] && (at[i] == NOWHERE || its == NOWHERE ||
                                    gives(curves, at[i], cases, &cases->row[its],
                                          a->key[a->place[i]], number_at));
        }
    }
    for (uint32_t i = 0; i < points->count; i++) {
        if (all[i] != (at[i] != NOWHERE) || !right[i]) {
            const sx_pipe_point p = sx_points_at(points, i);
            return SX_FAIL(cx, SX_INTERNAL, "cases that do not hold at %lld, %lld",
                           (long long)p.value[0], (long long)p.value[1]);
        }
    }
    return SX_OK;
}
