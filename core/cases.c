/* cases.c - a kernel for all values of an interval: the kernels that the lowering makes for each of them, put together.
 * Parts that are the same but for numbers are one part, and their numbers come when it is launched. */
#include "core/kernels.h"

#include <string.h>

#define SHAPES_MAX 64u /* parts of one kernel; SX_PARTS_MAX */
_Static_assert(SHAPES_MAX <= SX_PARTS_MAX, "each shape is a part");
#define CASES_MAX 4096u /* of one kernel */
#define PERIOD_MAX \
    64 /* of the values that have the same numbers but for what grows with the value */
#define GRID_RANK 3u
#define NUMBERS_MAX (GRID_RANK + SX_COMES_SLOTS_MAX)
_Static_assert(NUMBERS_MAX <= SX_MODULE_NUMBERS_MAX, "the module has room for all numbers");

/* A number of a part, and the slot in which it comes; slot 0: it is the same for all values so far. */
typedef struct {
    sx_comes_kind kind;
    uint32_t at, variable, slot;
    int64_t here; /* for the value for which the part of the shape was lowered */
} place;

/* Parts that differ in numbers alone. */
typedef struct {
    uint64_t hash;
    sx_part part; /* for the highest value that has it */
    int64_t value;
    place *place;
    uint32_t place_count;
    /* Slots 1 .. slot_count: how far their numbers are from those of `part`, for each value. */
    uint32_t slot_count;
    int64_t *moved[SX_COMES_SLOTS_MAX + 1]; /* [value - low] */
    int64_t (*grid)[GRID_RANK];             /* [value - low]; 0: the value has no such part */
} shape;

typedef struct {
    sx_ctx *cx;
    const sx_pipe_steady *steady;
    int64_t low, high;
    int64_t now; /* the value whose kernel is being added */
    shape *shape;
    uint32_t shape_count;
    int64_t workspace; /* the largest */
} collection;

/* ---- what parts are alike ---- */

static uint64_t hash_words(uint64_t hash, const uint64_t *word, size_t count)
{
    return sx_hash64((sx_span){(const uint8_t *)word, count * sizeof(*word)}, hash);
}

static uint64_t hash_of(const sx_part *part)
{
    uint64_t hash = hash_words(0, (const uint64_t[]){part->item_count, part->addr_count}, 2);
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        bool op = item->kind == SX_ITEM_OP;
        const uint64_t word[] = {item->kind, op ? item->op : 0u, item->dst, op ? item->imm : 0u,
                                 op ? (uint64_t)item->imm2 : 0u};
        hash = hash_words(hash, word, SX_COUNT(word));
    }
    return hash;
}

static bool same_item(const sx_item *a, const sx_item *b)
{
    if (a->kind != b->kind || a->dst != b->dst || a->warps != b->warps) {
        return false;
    }
    if (a->kind != SX_ITEM_OP) {
        return a->kind == SX_ITEM_END || a->trip == b->trip || (a->trip > 1 && b->trip > 1);
    }
    return a->op == b->op && a->mem == b->mem && a->addr == b->addr && a->imm == b->imm &&
           a->imm2 == b->imm2 && memcmp(a->src, b->src, sizeof(a->src)) == 0;
}

static bool same_address(const sx_addr *a, const sx_addr *b)
{
    bool same = a->buffer == b->buffer && a->index_reg == b->index_reg;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        same = same && (a->coef[v] == 0) == (b->coef[v] == 0);
    }
    return same;
}

static bool same_shape(const sx_part *a, const sx_part *b)
{
    bool same = a->item_count == b->item_count && a->addr_count == b->addr_count &&
                a->vector_count == b->vector_count && a->mask_count == b->mask_count &&
                a->scalar_count == b->scalar_count && a->var_count == b->var_count &&
                a->warps == 0 && b->warps == 0 && a->tile == NULL && b->tile == NULL;
    for (uint32_t i = 0; same && i < a->item_count; i++) {
        same = same_item(&a->item[i], &b->item[i]);
    }
    for (uint32_t i = 0; same && i < a->addr_count; i++) {
        same = same_address(&a->addr[i], &b->addr[i]);
    }
    return same;
}

static int64_t number_at(const sx_part *part, const place *p)
{
    switch (p->kind) {
    case SX_COMES_OFFSET: return part->addr[p->at].offset;
    case SX_COMES_COEF: return part->addr[p->at].coef[p->variable];
    case SX_COMES_TRIP: return part->item[p->at].trip;
    }
    SX_UNREACHABLE();
}

/* ---- a new shape ---- */

static void put_place(shape *s, sx_comes_kind kind, uint32_t at, uint32_t variable)
{
    place p = {.kind = kind, .at = at, .variable = variable};
    p.here = number_at(&s->part, &p);
    s->place[s->place_count++] = p;
}

static sx_code copy_part(sx_ctx *cx, const sx_part *part, sx_part *copy)
{
    *copy = *part;
    copy->item = SX_NEW_ARRAY(cx, sx_item, part->item_count + 1);
    copy->addr = SX_NEW_ARRAY(cx, sx_addr, part->addr_count + 1);
    if (copy->item == NULL || copy->addr == NULL) {
        return cx->error.code;
    }
    memcpy(copy->item, part->item, part->item_count * sizeof(*part->item));
    memcpy(copy->addr, part->addr, part->addr_count * sizeof(*part->addr));
    copy->item_capacity = part->item_count;
    copy->addr_capacity = part->addr_count;
    return SX_OK;
}

static sx_code add_shape(collection *c, const sx_part *part, uint64_t hash, shape **added)
{
    if (c->shape_count == SHAPES_MAX) {
        return SX_FAIL(c->cx, SX_LIMIT, "more than %u parts", SHAPES_MAX);
    }
    shape *s = &c->shape[c->shape_count];
    *s = (shape){.hash = hash, .value = c->now};
    SX_TRY(copy_part(c->cx, part, &s->part));
    size_t count = part->addr_count, values = (size_t)(c->high - c->low + 1);
    for (uint32_t i = 0; i < part->item_count; i++) {
        count += part->item[i].kind == SX_ITEM_LOOP ? 1 : 0;
    }
    for (uint32_t i = 0; i < part->addr_count * SX_LOOP_VARS_MAX; i++) {
        count += part->addr[i / SX_LOOP_VARS_MAX].coef[i % SX_LOOP_VARS_MAX] != 0 ? 1 : 0;
    }
    s->place = SX_NEW_ARRAY(c->cx, place, count + 1);
    s->grid = sx_alloc(c->cx, values * sizeof(*s->grid));
    if (s->place == NULL || s->grid == NULL) {
        return c->cx->error.code;
    }
    for (uint32_t i = 0; i < part->item_count; i++) {
        if (part->item[i].kind == SX_ITEM_LOOP) {
            put_place(s, SX_COMES_TRIP, i, 0);
        }
    }
    for (uint32_t i = 0; i < part->addr_count; i++) {
        put_place(s, SX_COMES_OFFSET, i, 0);
        for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
            if (part->addr[i].coef[v] != 0) {
                put_place(s, SX_COMES_COEF, i, v);
            }
        }
    }
    c->shape_count++;
    *added = s;
    return SX_OK;
}

/* ---- a part of a known shape ---- */

/* Places that move differently for the first time get a slot of their own. */
typedef struct {
    uint32_t from, slot;
    sx_comes_kind kind;
    int64_t here, moved;
} parting;

/* A new slot; so far its numbers have been those of slot `from`, or the same for all values. */
static sx_code split(collection *c, shape *s, uint32_t from, uint32_t *slot)
{
    if (s->slot_count == SX_COMES_SLOTS_MAX) {
        return SX_FAIL(c->cx, SX_LIMIT, "more than %u numbers", SX_COMES_SLOTS_MAX);
    }
    size_t bytes = (size_t)(c->high - c->low + 1) * sizeof(int64_t);
    *slot = ++s->slot_count;
    s->moved[*slot] = sx_alloc(c->cx, bytes);
    if (s->moved[*slot] == NULL) {
        return c->cx->error.code;
    }
    if (from != 0) {
        memcpy(s->moved[*slot], s->moved[from], bytes);
    }
    return SX_OK;
}

static sx_code add_numbers(collection *c, shape *s, const sx_part *part)
{
    parting parted[SX_COMES_SLOTS_MAX + 1];
    bool seen[SX_COMES_SLOTS_MAX + 1] = {false};
    uint32_t parted_count = 0, before = s->slot_count;
    size_t now = (size_t)(c->now - c->low);
    for (uint32_t k = 0; k < s->place_count; k++) {
        place *p = &s->place[k];
        int64_t moved = number_at(part, p) - p->here;
        if (p->slot == 0 ? moved == 0 : seen[p->slot] && s->moved[p->slot][now] == moved) {
            continue;
        }
        if (p->slot != 0 && !seen[p->slot]) {
            seen[p->slot] = true;
            s->moved[p->slot][now] = moved;
            continue;
        }
        const parting wanted = {p->slot, 0, p->kind,
                                p->slot == 0 && p->kind != SX_COMES_OFFSET ? p->here : 0, moved};
        uint32_t i = 0;
        while (i < parted_count &&
               (parted[i].from != wanted.from || parted[i].kind != wanted.kind ||
                parted[i].here != wanted.here || parted[i].moved != wanted.moved)) {
            i++;
        }
        if (i == parted_count) {
            parted[i] = wanted;
            SX_TRY(split(c, s, p->slot, &parted[i].slot));
            s->moved[parted[i].slot][now] = moved;
            parted_count++;
        }
        p->slot = parted[i].slot;
    }
    SX_ASSERT(s->slot_count == before + parted_count);
    memcpy(s->grid[now], part->grid, sizeof(s->grid[now]));
    return SX_OK;
}

static sx_code add_part(collection *c, const sx_part *part)
{
    uint64_t hash = hash_of(part);
    shape *found = NULL;
    for (uint32_t k = 0; k < c->shape_count && found == NULL; k++) {
        shape *s = &c->shape[k];
        bool taken = s->grid[c->now - c->low][0] != 0; /* by another part of this kernel */
        found = s->hash == hash && !taken && same_shape(&s->part, part) ? s : NULL;
    }
    SX_TRY(found == NULL ? add_shape(c, part, hash, &found) : SX_OK);
    SX_ASSERT(found != NULL);
    return add_numbers(c, found, part);
}

/* ---- the kernels of all values ---- */

/* The kernel of the subject for one value, in memory of cx. */
static sx_code lower_value(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                           const sx_schedule *schedule, int64_t value, sx_pipe_subject *there,
                           sx_kernel **kernel)
{
    SX_TRY(sx_pipe_subject_at(cx, pipe, s, value, there));
    sx_lowering what = {
        .kind = s->moves ? SX_LOWER_MOVE : SX_LOWER_FUSED, .name = s->name, .schedule = schedule};
    if (s->moves) {
        what.op = sx_graph_node(pipe->graph, (sx_node_id){s->node})->op;
        what.attr = there->attr;
        what.input = there->type;
        what.input_count = s->count;
        what.result = there->result;
    } else {
        what.analysis = there->analysis;
        SX_TRY(sx_schedule_check(cx, schedule, there->analysis));
    }
    return sx_target_lower(cx, pipe->target, &what, kernel);
}

/* Lowers the kernel for the value c->now in an arena of its own, and adds it. */
static sx_code add_value(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                         const sx_schedule *schedule, collection *c)
{
    sx_arena outer = cx->arena;
    sx_pipe_subject there;
    sx_kernel *kernel;
    sx_arena_init(&cx->arena, outer.limit_bytes - outer.used_bytes);
    sx_code code = lower_value(cx, pipe, s, schedule, c->now, &there, &kernel);
    sx_arena inner = cx->arena;
    cx->arena = outer;
    for (uint32_t p = 0; code == SX_OK && p < kernel->part_count; p++) {
        code = add_part(c, &kernel->part[p]);
    }
    if (code == SX_OK && kernel->buffer[kernel->buffer_count - 1].role == SX_BUFFER_WORKSPACE) {
        c->workspace = sx_max_i64(c->workspace, kernel->buffer[kernel->buffer_count - 1].size);
    }
    sx_arena_fini(&inner);
    return code;
}

/* ---- cases ---- */

/* The numbers of a case for a value: the grid, then those that come. */
static uint32_t numbers_of(const collection *c, const shape *s, int64_t value,
                           int64_t number[NUMBERS_MAX])
{
    size_t at = (size_t)(value - c->low);
    memcpy(number, s->grid[at], sizeof(s->grid[at]));
    for (uint32_t k = 1; k <= s->slot_count; k++) {
        number[GRID_RANK + k - 1] = s->moved[k][at];
    }
    return GRID_RANK + s->slot_count;
}

static bool has(const collection *c, const shape *s, int64_t value)
{
    return value >= c->low && value <= c->high && s->grid[value - c->low][0] != 0;
}

/* The last of the values from `first` on, `period` apart, whose numbers grow by the same from each to the next. */
static int64_t end_of_run(const collection *c, const shape *s, int64_t first, int64_t period,
                          int64_t step[NUMBERS_MAX])
{
    int64_t a[NUMBERS_MAX], b[NUMBERS_MAX];
    uint32_t count = numbers_of(c, s, first, a);
    int64_t last = first;
    memset(step, 0, NUMBERS_MAX * sizeof(*step));
    for (int64_t next = first + period; has(c, s, next); next += period) {
        (void)numbers_of(c, s, next, b);
        for (uint32_t k = 0; k < count; k++) {
            step[k] = last == first ? b[k] - a[k] : step[k];
            if (b[k] - a[k] != step[k]) {
                return last;
            }
        }
        memcpy(a, b, sizeof(a));
        last = next;
    }
    return last;
}

static bool is_in_earlier_run(const int64_t *until, int64_t value, int64_t period)
{
    return until[value % period] >= value;
}

/* How many runs there are with the period. */
static uint32_t count_runs(const collection *c, const shape *s, int64_t period)
{
    int64_t until[PERIOD_MAX] = {0}, step[NUMBERS_MAX];
    uint32_t runs = 0;
    for (int64_t value = c->low; value <= c->high; value++) {
        if (has(c, s, value) && !is_in_earlier_run(until, value, period)) {
            until[value % period] = end_of_run(c, s, value, period, step);
            runs++;
        }
    }
    return runs;
}

static sx_code put_case(sx_ctx *cx, const collection *c, const shape *s, uint32_t part,
                        int64_t first, int64_t period, sx_pipe_cases *cases, int64_t *last)
{
    int64_t step[NUMBERS_MAX], number[NUMBERS_MAX], product, offset, there;
    uint32_t count = numbers_of(c, s, first, number);
    *last = end_of_run(c, s, first, period, step);
    SX_ASSERT(cases->count < cases->capacity);
    sx_module_case *row = &cases->row[cases->count++];
    *row = (sx_module_case){.part = part,
                            .symbol = c->steady->symbol,
                            .low = first,
                            .high = *last,
                            .modulus = period,
                            .remainder = first % period,
                            .number_first = cases->number_count,
                            .number_count = count};
    for (uint32_t k = 0; k < count; k++) { /* number + (value - first) / period * step */
        if (!sx_mul_i64(number[k], period, &there) || !sx_mul_i64(step[k], first, &product) ||
            !sx_add_i64(there, -product, &offset)) {
            return SX_FAIL(cx, SX_LIMIT, "a number is too large");
        }
        cases->number[cases->number_count++] = (sx_module_number){step[k], offset};
    }
    return SX_OK;
}

/* What a slot holds: for an offset what is added to that of the part, else the number itself. */
static void make_absolute(const collection *c, shape *s)
{
    bool done[SX_COMES_SLOTS_MAX + 1] = {false};
    for (uint32_t k = 0; k < s->place_count; k++) {
        const place *p = &s->place[k];
        if (p->slot == 0 || p->kind == SX_COMES_OFFSET || done[p->slot]) {
            continue;
        }
        done[p->slot] = true;
        for (int64_t value = c->low; value <= c->high; value++) {
            s->moved[p->slot][value - c->low] += p->here;
        }
    }
}

static sx_code put_comes(sx_ctx *cx, shape *s)
{
    sx_comes *comes = SX_NEW_ARRAY(cx, sx_comes, s->place_count + 1);
    if (comes == NULL) {
        return cx->error.code;
    }
    s->part.comes = comes;
    s->part.slot_count = s->slot_count;
    for (uint32_t k = 0; k < s->place_count; k++) {
        const place *p = &s->place[k];
        if (p->slot != 0) {
            comes[s->part.comes_count++] = (sx_comes){p->kind, p->at, p->variable, p->slot - 1};
        }
    }
    return SX_OK;
}

static uint32_t best_period(const collection *c, const shape *s, uint32_t *runs)
{
    uint32_t best = 1;
    *runs = count_runs(c, s, 1);
    for (uint32_t period = 2; period <= PERIOD_MAX; period++) {
        uint32_t its = count_runs(c, s, period);
        if (its < *runs) {
            best = period;
            *runs = its;
        }
    }
    return best;
}

static sx_code put_cases(sx_ctx *cx, collection *c, sx_pipe_cases *cases)
{
    uint32_t period[SHAPES_MAX], runs, count = 0, numbers = 0;
    for (uint32_t k = 0; k < c->shape_count; k++) {
        make_absolute(c, &c->shape[k]);
        SX_TRY(put_comes(cx, &c->shape[k]));
        period[k] = best_period(c, &c->shape[k], &runs);
        SX_TRY(sx_spend(cx, (uint64_t)PERIOD_MAX * (uint64_t)(c->high - c->low + 1)));
        count += runs;
        numbers += runs * (GRID_RANK + c->shape[k].slot_count);
    }
    if (count > CASES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "%u cases, at most %u", count, CASES_MAX);
    }
    *cases = (sx_pipe_cases){.row = SX_NEW_ARRAY(cx, sx_module_case, count + 1),
                             .number = SX_NEW_ARRAY(cx, sx_module_number, numbers + 1),
                             .capacity = count};
    if (cases->row == NULL || cases->number == NULL) {
        return cx->error.code;
    }
    for (uint32_t k = 0; k < c->shape_count; k++) {
        int64_t until[PERIOD_MAX] = {0};
        for (int64_t value = c->low; value <= c->high; value++) {
            if (has(c, &c->shape[k], value) && !is_in_earlier_run(until, value, period[k])) {
                SX_TRY(put_case(cx, c, &c->shape[k], k, value, period[k], cases,
                                &until[value % period[k]]));
            }
        }
    }
    SX_ASSERT(cases->count == count && cases->number_count == numbers);
    return SX_OK;
}

/* Is the kernel the same one for all values? */
static bool is_same_for_all(const collection *c, const sx_pipe_cases *cases)
{
    bool same = cases->count == c->shape_count;
    for (uint32_t k = 0; same && k < cases->count; k++) {
        const sx_module_case *row = &cases->row[k];
        same = row->low == c->low && row->high == c->high && row->modulus == 1 &&
               row->number_count == GRID_RANK;
        for (uint32_t i = 0; same && i < GRID_RANK; i++) {
            same = cases->number[row->number_first + i].scale == 0;
        }
    }
    return same;
}

/* The kernel of all shapes; grids are the largest. */
static sx_code put_together(sx_ctx *cx, const collection *c, const sx_kernel *high,
                            sx_kernel **kernel)
{
    sx_kernel *out = SX_NEW(cx, sx_kernel);
    sx_part *part = SX_NEW_ARRAY(cx, sx_part, c->shape_count + 1);
    if (out == NULL || part == NULL) {
        return cx->error.code;
    }
    *out = *high;
    out->part = part;
    out->part_count = c->shape_count;
    for (uint32_t k = 0; k < c->shape_count; k++) {
        part[k] = c->shape[k].part;
    }
    if (out->buffer[out->buffer_count - 1].role == SX_BUFFER_WORKSPACE) {
        out->buffer[out->buffer_count - 1].size = c->workspace;
    }
    *kernel = out;
    return SX_OK;
}

/* ---- proofs ---- */

/* Is the kernel for the value proven? */
static sx_code judge_at(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                        const sx_schedule *schedule, int64_t value, bool *proven)
{
    sx_pipe_subject there;
    sx_kernel *kernel;
    sx_verdict verdict = {.proven = false};
    SX_TRY(lower_value(cx, pipe, s, schedule, value, &there, &kernel));
    SX_TRY(s->moves
               ? sx_judge_move(pipe->judge, sx_graph_node(pipe->graph, (sx_node_id){s->node})->op,
                               there.attr, there.type, s->count, there.result, kernel, &verdict)
               : sx_pipe_judge(cx, pipe, &there, schedule, kernel, &verdict));
    *proven = verdict.proven;
    return SX_OK;
}

/* At the ends and in between, and where each shape comes from. */
static sx_code judge_cases(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                           const sx_schedule *schedule, const collection *c, bool *proven)
{
    int64_t value[SHAPES_MAX + SX_PIPE_PROBES_MAX];
    uint32_t count = pipe->steady->count;
    sx_pipe here = *pipe;
    SX_TRY(
        sx_judge_make(cx, &here.judge)); /* whose memory is given up with that of the collection */
    memcpy(value, pipe->steady->value, count * sizeof(*value));
    for (uint32_t k = 0; k < c->shape_count; k++) {
        value[count++] = c->shape[k].value;
    }
    *proven = true;
    for (uint32_t k = 0; k < count && *proven; k++) {
        bool again = value[k] == pipe->steady->high; /* which was judged already */
        for (uint32_t i = 0; i < k && !again; i++) {
            again = value[i] == value[k];
        }
        if (!again) {
            SX_TRY(judge_at(cx, &here, s, schedule, value[k], proven));
        }
    }
    return SX_OK;
}

/* Cases and parts, of which *kernel is made, in memory of the caller's. */
static sx_code keep(sx_ctx *cx, const sx_pipe_cases *from, const sx_kernel *made,
                    sx_pipe_cases *cases, sx_kernel **kernel)
{
    sx_kernel *out = SX_NEW(cx, sx_kernel);
    sx_part *part = SX_NEW_ARRAY(cx, sx_part, made->part_count);
    *cases = *from;
    cases->row = SX_NEW_ARRAY(cx, sx_module_case, from->count + 1);
    cases->number = SX_NEW_ARRAY(cx, sx_module_number, from->number_count + 1);
    if (out == NULL || part == NULL || cases->row == NULL || cases->number == NULL) {
        return cx->error.code;
    }
    memcpy(cases->row, from->row, from->count * sizeof(*from->row));
    memcpy(cases->number, from->number, from->number_count * sizeof(*from->number));
    *out = *made;
    out->part = part;
    for (uint32_t p = 0; p < made->part_count; p++) {
        uint32_t count = made->part[p].comes_count;
        sx_comes *comes = SX_NEW_ARRAY(cx, sx_comes, count + 1);
        SX_TRY(copy_part(cx, &made->part[p], &part[p]));
        if (comes == NULL) {
            return cx->error.code;
        }
        memcpy(comes, made->part[p].comes, count * sizeof(*comes));
        part[p].comes = comes;
    }
    *kernel = out;
    return SX_OK;
}

/* *made NULL: the kernel is the same one for all values. */
static sx_code make_cases(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                          const sx_pipe_choice *c, sx_pipe_cases *cases, sx_kernel **made,
                          bool *serves)
{
    const sx_schedule *schedule = &c->candidate->schedule;
    collection all = {.cx = cx,
                      .steady = pipe->steady,
                      .low = pipe->steady->low,
                      .high = pipe->steady->high,
                      .shape = SX_NEW_ARRAY(cx, shape, SHAPES_MAX)};
    *made = NULL;
    if (all.shape == NULL) {
        return cx->error.code;
    }
    for (all.now = all.high; all.now >= all.low; all.now--) {
        SX_TRY(add_value(cx, pipe, s, schedule, &all));
    }
    SX_TRY(put_cases(cx, &all, cases));
    if (is_same_for_all(&all, cases)) {
        return SX_OK;
    }
    SX_TRY(judge_cases(cx, pipe, s, schedule, &all, serves));
    return *serves ? put_together(cx, &all, c->kernel, made) : SX_OK;
}

sx_code sx_pipe_make_cases(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                           sx_pipe_choice *c, bool *serves)
{
    c->cases = (sx_pipe_cases){.count = 0};
    *serves = c->rhs_constant || !sx_pipe_packs(&c->candidate->schedule);
    if (!*serves) {
        return SX_OK;
    }
    sx_pipe_cases cases;
    sx_kernel *made = NULL;
    sx_arena outer = cx->arena;
    sx_arena_init(&cx->arena, outer.limit_bytes - outer.used_bytes);
    sx_code code = make_cases(cx, pipe, s, c, &cases, &made, serves);
    sx_arena inner = cx->arena;
    cx->arena = outer;
    if (code == SX_OK && *serves && made != NULL) {
        code = keep(cx, &cases, made, &c->cases, &c->kernel);
    }
    sx_arena_fini(&inner);
    if (code == SX_LIMIT || code == SX_UNIMPLEMENTED || code == SX_INPUT) { /* the next candidate */
        sx_ctx_reset_error(cx);
        *serves = false;
        return SX_OK;
    }
    return code;
}

/* ---- in the module ---- */

sx_code sx_pipe_put_cases(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_cases *cases,
                          uint32_t part_first)
{
    sx_image *image = pipe->image;
    uint32_t first = (uint32_t)(image->number.len / sizeof(sx_module_number));
    for (uint32_t k = 0; k < cases->count; k++) {
        sx_module_case row = cases->row[k];
        row.part += part_first;
        row.number_first += first;
        sx_buf_put(&image->cases, &row, sizeof(row));
    }
    sx_buf_put(&image->number, cases->number, cases->number_count * sizeof(*cases->number));
    SX_TRY(sx_buf_check(cx, &image->number, "numbers"));
    return sx_buf_check(cx, &image->cases, "cases");
}

void sx_pipe_largest_grid(const sx_pipe_cases *cases, uint32_t part, int64_t grid[3])
{
    memset(grid, 0, 3 * sizeof(*grid));
    for (uint32_t k = 0; k < cases->count; k++) {
        const sx_module_case *row = &cases->row[k];
        for (uint32_t d = 0; row->part == part && d < GRID_RANK; d++) {
            const sx_module_number *number = &cases->number[row->number_first + d];
            int64_t low = (number->scale * row->low + number->offset) / row->modulus;
            int64_t high = (number->scale * row->high + number->offset) / row->modulus;
            grid[d] = sx_max_i64(grid[d], sx_max_i64(low, high));
        }
    }
}
