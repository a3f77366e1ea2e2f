/* cases.c - a kernel for all values of an interval: the kernels that the lowering makes for each of them, put together.
 * Parts that are the same but for numbers are one part, and their numbers come when it is launched. */
#include "core/lowered.h"

#include <stdio.h>
#include <string.h>

#include "core/loop/between.h"

#define SHAPES_MAX 64u /* parts of one kernel; a set of them is a u64 */
_Static_assert(SHAPES_MAX <= SX_PARTS_MAX, "each shape is a part");
#define CASES_MAX 4096u              /* of one kernel, */
#define NUMBERS_MAX (16 * CASES_MAX) /* and numbers of all of them */
#define TELL_EVERY 256u              /* points: about 20 ms */

/* A number of a part, and the slot in which it comes; slot 0: it is the same for all values so far. */
typedef struct {
    sx_comes_kind kind;
    uint32_t at, variable, slot;
    int64_t here; /* for the value for which the part of the shape was lowered */
} place;

/* Parts that differ in numbers alone. */
typedef struct {
    uint64_t hash;
    /* For the first point that has it. Where its code says what is alike, only what comes is kept of it. */
    sx_part part;
    sx_span text; /* of its code (sx_target_shape), if that says so */
    sx_pipe_point value;
    uint32_t at; /* which part of the kernel it is there */
    place *place;
    uint32_t place_count;
    /* The points that have it, by number, ascending. */
    uint32_t *point;
    uint32_t count, capacity;
    /* At each of these the grid. And of slots 1 .. slot_count: how far their numbers are from those of `part`. */
    int64_t *grid[SX_CURVES_GRID];
    uint32_t slot_count;
    int64_t *moved[SX_COMES_SLOTS_MAX + 1];
} shape;

typedef struct {
    sx_ctx *cx;
    const sx_pipe *pipe;
    sx_points points;
    uint32_t now; /* the point whose kernel is being added, by number */
    shape *shape;
    uint32_t shape_count;
    uint64_t *parts;   /* [points] the shapes that a point has, a set of 1 << shape */
    int64_t workspace; /* the largest */
    /* Bytes of the other buffers for the highest values, which the module has room for. */
    int64_t size[SX_LOOP_BUFFERS_MAX];
} collection;

/* ---- what parts are alike ---- */

#define HASH_ITEMS 32u /* that are hashed at once */
#define HASH_WORDS 4u

/* Of what makes parts alike that costs little to read. */
static uint64_t hash_of(const sx_part *part)
{
    uint64_t hash = (uint64_t)part->item_count << 32 | part->addr_count;
    uint64_t word[HASH_ITEMS * HASH_WORDS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        bool op = item->kind == SX_ITEM_OP;
        word[count++] = (uint64_t)item->kind << 32 | (uint64_t)item->dst;
        word[count++] = op ? (uint64_t)item->op << 32 | (uint64_t)item->imm : 0u;
        word[count++] = op && !sx_lop_has_number(item->op) ? (uint64_t)item->imm2 : 0u;
        word[count++] = op ? (uint64_t)item->src[0] << 32 | item->src[1] : 0u;
        if (count == SX_COUNT(word) || i + 1 == part->item_count) {
            size_t bytes = count * sizeof(*word);
            hash = sx_hash64((sx_span){(const uint8_t *)word, bytes}, hash);
            count = 0;
        }
    }
    return hash;
}

static bool same_item(const sx_item *a, const sx_item *b)
{
    if (a->kind != b->kind || a->dst != b->dst || a->warps != b->warps) {
        return false;
    }
    if (a->kind != SX_ITEM_OP) {
        return a->kind == SX_ITEM_END || a->trip == b->trip || (a->any_trip && b->any_trip) ||
               (a->trip > 1 && b->trip > 1 && !a->any_trip && !b->any_trip);
    }
    return a->op == b->op && a->mem == b->mem && a->addr == b->addr && a->imm == b->imm &&
           (a->imm2 == b->imm2 || sx_lop_has_number(a->op)) &&
           memcmp(a->src, b->src, sizeof(a->src)) == 0;
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

/* A part of the kernel of a point, and its code if that says what is alike. */
typedef struct {
    const sx_part *part;
    uint32_t at;
    sx_target_shape code;
} member;

static int64_t number_at(const member *m, const place *p)
{
    switch (p->kind) {
    case SX_COMES_OFFSET: return m->part->addr[p->at].offset;
    case SX_COMES_COEF: return m->part->addr[p->at].coef[p->variable];
    case SX_COMES_TRIP: return m->part->item[p->at].trip;
    case SX_COMES_NUMBER: return m->part->item[p->at].imm2;
    case SX_COMES_CODE:
    case SX_COMES_CODE_OFFSET: return m->code.number[p->at];
    }
    SX_UNREACHABLE();
}

/* Does what comes add to the number of the program or text? */
static bool is_offset(const place *p)
{
    return p->kind == SX_COMES_OFFSET || p->kind == SX_COMES_CODE_OFFSET;
}

/* ---- a new shape ---- */

static void put_place(shape *s, const member *m, sx_comes_kind kind, uint32_t at, uint32_t variable)
{
    place p = {.kind = kind, .at = at, .variable = variable};
    p.here = number_at(m, &p);
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
    if (part->item_count > 0) { /* programs of blocks have none */
        memcpy(copy->item, part->item, part->item_count * sizeof(*part->item));
    }
    if (part->addr_count > 0) {
        memcpy(copy->addr, part->addr, part->addr_count * sizeof(*part->addr));
    }
    copy->item_capacity = part->item_count;
    copy->addr_capacity = part->addr_count;
    return SX_OK;
}

/* The places of a program's numbers. */
static sx_code put_places(sx_ctx *cx, const member *m, shape *s)
{
    const sx_part *part = m->part;
    size_t count = part->addr_count;
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        bool number = item->kind == SX_ITEM_OP && sx_lop_has_number(item->op);
        count += item->kind == SX_ITEM_LOOP || number ? 1 : 0;
    }
    for (uint32_t i = 0; i < part->addr_count * SX_LOOP_VARS_MAX; i++) {
        count += part->addr[i / SX_LOOP_VARS_MAX].coef[i % SX_LOOP_VARS_MAX] != 0 ? 1 : 0;
    }
    s->place = SX_NEW_ARRAY(cx, place, count + 1);
    if (s->place == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < part->item_count; i++) {
        if (part->item[i].kind == SX_ITEM_LOOP) {
            put_place(s, m, SX_COMES_TRIP, i, 0);
        } else if (part->item[i].kind == SX_ITEM_OP && sx_lop_has_number(part->item[i].op)) {
            put_place(s, m, SX_COMES_NUMBER, i, 0);
        }
    }
    for (uint32_t i = 0; i < part->addr_count; i++) {
        put_place(s, m, SX_COMES_OFFSET, i, 0);
        for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
            if (part->addr[i].coef[v] != 0) {
                put_place(s, m, SX_COMES_COEF, i, v);
            }
        }
    }
    return SX_OK;
}

/* Text and places of the numbers of its code. */
static sx_code put_code(sx_ctx *cx, const member *m, shape *s)
{
    uint8_t *text = sx_alloc(cx, m->code.text.len + 1);
    s->place = SX_NEW_ARRAY(cx, place, (size_t)m->code.count + 1);
    if (text == NULL || s->place == NULL) {
        return cx->error.code;
    }
    memcpy(text, m->code.text.ptr, m->code.text.len);
    s->text = (sx_span){text, m->code.text.len};
    s->part = (sx_part){.var_count = m->part->var_count};
    for (uint32_t i = 0; i < m->code.count; i++) {
        put_place(s, m, m->code.offset[i] ? SX_COMES_CODE_OFFSET : SX_COMES_CODE, i, 0);
    }
    return SX_OK;
}

static sx_code add_shape(collection *c, const member *m, uint64_t hash, shape **added)
{
    if (c->shape_count == SHAPES_MAX) {
        return SX_FAIL(c->cx, SX_LIMIT, "more than %u parts", SHAPES_MAX);
    }
    shape *s = &c->shape[c->shape_count];
    *s = (shape){.hash = hash, .value = sx_points_at(&c->points, c->now), .at = m->at};
    if (m->code.text.ptr != NULL) {
        SX_TRY(put_code(c->cx, m, s));
    } else {
        SX_TRY(copy_part(c->cx, m->part, &s->part));
        SX_TRY(put_places(c->cx, m, s));
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
    *slot = ++s->slot_count;
    s->moved[*slot] = SX_NEW_ARRAY(c->cx, int64_t, s->capacity);
    if (s->moved[*slot] == NULL) {
        return c->cx->error.code;
    }
    if (from != 0) {
        memcpy(s->moved[*slot], s->moved[from], s->count * sizeof(int64_t));
    }
    return SX_OK;
}

static sx_code grow_numbers(sx_ctx *cx, int64_t **number, uint32_t capacity, uint32_t need)
{
    if (capacity >= need) {
        return SX_OK;
    }
    void *array = *number;
    SX_TRY(sx_grow(cx, &array, &capacity, need, sizeof(**number)));
    *number = array;
    return SX_OK;
}

/* One more point that has the part; its other numbers come later. */
static sx_code put_point(collection *c, shape *s, const int64_t grid[SX_CURVES_GRID])
{
    uint32_t need = s->count + 1, before = s->capacity;
    void *point = s->point;
    SX_TRY(sx_grow(c->cx, &point, &s->capacity, need, sizeof(*s->point)));
    s->point = point;
    for (uint32_t d = 0; d < SX_CURVES_GRID; d++) {
        SX_TRY(grow_numbers(c->cx, &s->grid[d], before, need));
        s->grid[d][s->count] = grid[d];
    }
    for (uint32_t k = 1; k <= s->slot_count; k++) {
        SX_TRY(grow_numbers(c->cx, &s->moved[k], before, need));
    }
    s->point[s->count++] = c->now;
    c->parts[c->now] |= UINT64_C(1) << (s - c->shape);
    return SX_OK;
}

/* The place of a point among those of the shape, which ascend; their count: it is none of them. */
static uint32_t find_point(const shape *s, uint32_t point)
{
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        low = s->point[middle] < point ? middle + 1 : low;
        high = s->point[middle] < point ? high : middle;
    }
    return low < s->count && s->point[low] == point ? low : s->count;
}

static sx_code add_numbers(collection *c, shape *s, const member *m)
{
    parting parted[SX_COMES_SLOTS_MAX + 1];
    bool seen[SX_COMES_SLOTS_MAX + 1] = {false};
    uint32_t parted_count = 0, before = s->slot_count, now = s->count;
    SX_TRY(put_point(c, s, m->part->grid));
    for (uint32_t k = 0; k < s->place_count; k++) {
        place *p = &s->place[k];
        int64_t moved = number_at(m, p) - p->here;
        if (p->slot == 0 ? moved == 0 : seen[p->slot] && s->moved[p->slot][now] == moved) {
            continue;
        }
        if (p->slot != 0 && !seen[p->slot]) {
            seen[p->slot] = true;
            s->moved[p->slot][now] = moved;
            continue;
        }
        const parting wanted = {p->slot, 0, p->kind, p->slot == 0 && !is_offset(p) ? p->here : 0,
                                moved};
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
    return SX_OK;
}

static bool is_alike(const shape *s, const member *m)
{
    return m->code.text.ptr != NULL ? sx_span_equal(s->text, m->code.text)
                                    : same_shape(&s->part, m->part);
}

static sx_code add_part(collection *c, const member *m)
{
    bool code = m->code.text.ptr != NULL;
    uint64_t hash = code ? sx_hash64(m->code.text, 0) : hash_of(m->part);
    shape *found = NULL;
    for (uint32_t k = 0; k < c->shape_count && found == NULL; k++) {
        shape *s = &c->shape[k];
        bool taken = s->point[s->count - 1] == c->now; /* by another part of this kernel */
        found = s->hash == hash && !taken && is_alike(s, m) ? s : NULL;
    }
    SX_TRY(found == NULL ? add_shape(c, m, hash, &found) : SX_OK);
    SX_ASSERT(found != NULL);
    return add_numbers(c, found, m);
}

/* ---- the kernels of all values ---- */

/* The largest workspace. Tensors are as large as they are for the highest values. */
static sx_code add_sizes(collection *c, const sx_kernel *kernel)
{
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        int64_t size = kernel->buffer[k].size;
        if (kernel->buffer[k].role == SX_BUFFER_WORKSPACE) {
            c->workspace = sx_max_i64(c->workspace, size);
            continue;
        }
        c->size[k] = c->now == 0 ? size : c->size[k];
        if (size > c->size[k]) {
            const sx_pipe_point p = sx_points_at(&c->points, c->now);
            return SX_FAIL(c->cx, SX_UNIMPLEMENTED,
                           "a tensor is larger for %lld than for the highest value",
                           (long long)p.value[0]);
        }
    }
    return SX_OK;
}

/* Tells who listens how many values, or pairs of them, have been lowered, of all kernels. */
static void tell(const sx_ctx *cx, const sx_pipe *pipe, const sx_points *points, uint32_t point)
{
    const sx_pipe_memory *memory = pipe->memory;
    uint64_t done = memory->kernel_done, kernels = memory->kernel_count;
    kernels = kernels > done ? kernels : done + 1;
    if (cx->progress != NULL && point % TELL_EVERY == 0) {
        cx->progress(cx->progress_self, points->axis_count > 1 ? "pairs" : "values",
                     done * points->count + point, kernels * points->count);
    }
}

/* The parts of an earlier point, with its numbers, or those on the way to another one. */
static sx_code add_like(collection *c, const sx_lowered *l)
{
    uint64_t set = c->parts[l->like];
    bool between = l->of != 0;
    SX_ASSERT(set != 0 && set == c->parts[l->other]);
    for (uint32_t k = 0; set != 0; k++, set >>= 1) {
        shape *s = &c->shape[k];
        int64_t grid[SX_CURVES_GRID];
        if ((set & 1) == 0) {
            continue;
        }
        uint32_t from = find_point(s, l->like), to = find_point(s, l->other);
        SX_ASSERT(from < s->count && to < s->count);
        for (uint32_t d = 0; d < SX_CURVES_GRID; d++) {
            int64_t a = s->grid[d][from], b = s->grid[d][to];
            grid[d] = between ? sx_loop_on_way(a, b, l->at, l->of) : a;
        }
        grid[0] = l->own > 0 ? l->own : grid[0];
        SX_TRY(put_point(c, s, grid));
        for (uint32_t i = 1; i <= s->slot_count; i++) {
            int64_t *moved = s->moved[i], a = moved[from], b = moved[to];
            moved[s->count - 1] = between ? sx_loop_on_way(a, b, l->at, l->of) : a;
        }
    }
    return SX_OK;
}

/* Adds the kernel of a point. */
static sx_code add_point(void *self, const sx_lowered *lowered)
{
    collection *c = self;
    const sx_kernel *kernel = lowered->kernel;
    bool anew = lowered->like == SX_LOWERED_ANEW;
    c->now = lowered->point;
    tell(c->cx, c->pipe, &c->points, c->now);
    SX_TRY(anew ? add_sizes(c, kernel) : SX_OK);
    if (!anew) {
        return add_like(c, lowered);
    }
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        member m = {.part = &kernel->part[p], .at = p};
        m.code = lowered->shape != NULL ? lowered->shape[p] : m.code;
        SX_TRY(add_part(c, &m));
    }
    return SX_OK;
}

/* ---- cases ---- */

/* What a slot holds: for an offset what is added to that of the part, else the number itself, which lies `here` from
 * what was collected. */
static void move_slots(shape *s)
{
    bool done[SX_COMES_SLOTS_MAX + 1] = {false};
    for (uint32_t k = 0; k < s->place_count; k++) {
        const place *p = &s->place[k];
        if (p->slot == 0 || is_offset(p) || done[p->slot]) {
            continue;
        }
        done[p->slot] = true;
        for (uint32_t i = 0; i < s->count; i++) {
            s->moved[p->slot][i] += p->here;
        }
    }
}

static sx_code put_comes(sx_ctx *cx, shape *s, const uint32_t *slot)
{
    sx_comes *comes = SX_NEW_ARRAY(cx, sx_comes, s->place_count + 1);
    if (comes == NULL) {
        return cx->error.code;
    }
    s->part.comes = comes;
    s->part.comes_count = 0;
    s->part.slot_count = s->slot_count;
    for (uint32_t k = 0; k < s->place_count; k++) {
        const place *p = &s->place[k];
        if (p->slot != 0) {
            comes[s->part.comes_count++] =
                (sx_comes){p->kind, p->at, p->variable, slot[p->slot - 1]};
        }
    }
    return SX_OK;
}

static sx_code put_cases(sx_ctx *cx, collection *c, sx_pipe_cases *cases)
{
    uint32_t slot[SX_COMES_SLOTS_MAX];
    for (uint32_t k = 0; k < c->shape_count; k++) {
        shape *s = &c->shape[k];
        sx_curves curves = {
            .point = s->point, .count = s->count, .number_count = SX_CURVES_GRID + s->slot_count};
        move_slots(s);
        for (uint32_t d = 0; d < SX_CURVES_GRID; d++) {
            curves.number[d] = s->grid[d];
        }
        for (uint32_t i = 1; i <= s->slot_count; i++) {
            curves.number[SX_CURVES_GRID + i - 1] = s->moved[i];
        }
        SX_TRY(sx_curves_put(cx, &c->points, &curves, k, cases, slot));
        SX_TRY(put_comes(cx, s, slot));
    }
    return SX_OK;
}

/* Is the kernel the same one for all values? */
static bool is_same_for_all(const collection *c)
{
    bool same = true;
    for (uint32_t k = 0; k < c->shape_count && same; k++) {
        const shape *s = &c->shape[k];
        same = s->slot_count == 0 && s->count == c->points.count;
        for (uint32_t i = 0; i < s->count && same; i++) {
            for (uint32_t d = 0; d < SX_CURVES_GRID; d++) {
                same = same && s->grid[d][i] == s->grid[d][0];
            }
        }
    }
    return same;
}

/* ---- proofs ---- */

static sx_code judge_settled(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                             const sx_schedule *schedule, const sx_pipe_subject *there,
                             const sx_kernel *kernel, sx_verdict *verdict)
{
    if (s->packs) {
        const sx_judge_facts facts = sx_judge_facts_of(schedule, there->analysis->kind);
        return sx_judge_pack(pipe->judge, there->analysis->fused, there->type, s->count, &facts,
                             kernel, verdict);
    }
    return s->moves
               ? sx_judge_move(pipe->judge, sx_graph_node(pipe->graph, (sx_node_id){s->node})->op,
                               there->attr, there->type, s->count, there->result, kernel, verdict)
               : sx_pipe_judge(cx, pipe, there, schedule, kernel, verdict);
}

/* Is the kernel for the value proven? */
static sx_code judge_at(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                        const sx_schedule *schedule, const sx_pipe_point *value, bool *proven)
{
    sx_pipe_subject there;
    sx_kernel *kernel, *settled;
    sx_verdict verdict = {.proven = false};
    SX_TRY(sx_lowered_at(cx, pipe, s, schedule, value, &there, &kernel));
    SX_TRY(sx_kernel_settle(cx, kernel, &settled));
    SX_TRY(sx_kernel_check(cx, settled));
    SX_TRY(judge_settled(cx, pipe, s, schedule, &there, settled, &verdict));
    *proven = verdict.proven;
    return SX_OK;
}

/* At the ends and in between, and where each shape comes from. */
static sx_code judge_cases(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                           const sx_schedule *schedule, const collection *c, bool *proven)
{
    sx_pipe_point value[SHAPES_MAX + SX_PIPE_PROBES_MAX + 1];
    uint32_t count = pipe->steady->count;
    sx_pipe here = *pipe;
    SX_TRY(
        sx_judge_make(cx, &here.judge)); /* whose memory is given up with that of the collection */
    memcpy(value, pipe->steady->value, count * sizeof(*value));
    value[count++] = sx_points_at(&c->points, 0); /* the highest */
    for (uint32_t k = 0; k < c->shape_count; k++) {
        value[count++] = c->shape[k].value;
    }
    *proven = true;
    for (uint32_t k = 0; k < count && *proven; k++) {
        bool again = false;
        for (uint32_t i = 0; i < k && !again; i++) {
            again = memcmp(&value[i], &value[k], sizeof(*value)) == 0;
        }
        if (!again) {
            SX_TRY(judge_at(cx, &here, s, schedule, &value[k], proven));
        }
    }
    return SX_OK;
}

/* ---- what is kept ---- */

/* What came of a candidate of a node. */
struct sx_pipe_kept {
    const sx_pipe_kept *before;
    uint32_t node;
    bool packs; /* as of the subject */
    const sx_target *target;
    /* For each symbol of the request the lowest value and the highest one, by which it is known. */
    int64_t *range;
    size_t range_count;
    sx_schedule schedule;
    bool serves;
    sx_pipe_cases cases;
    /* NULL: the kernel is the same one for all values. Where code says what is alike, each part is lowered again where
     * it is used: as part at[p] of the kernel for value[p]. */
    sx_part *part;
    sx_pipe_point *value;
    uint32_t *at;
    uint32_t part_count;
    int64_t workspace;
};

static sx_pipe_kept *new_kept(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                              const sx_schedule *schedule)
{
    const sx_pipe_steady *steady = pipe->steady;
    uint32_t count = pipe->variants->symbol_count;
    sx_pipe_kept *kept = SX_NEW(cx, sx_pipe_kept);
    int64_t *range = SX_NEW_ARRAY(cx, int64_t, 2 * (size_t)count + 1);
    if (kept == NULL || range == NULL) {
        return NULL;
    }
    for (uint32_t k = 0; k < count; k++) {
        range[2 * k] = range[2 * k + 1] = pipe->binding[k].value;
    }
    for (uint32_t k = 0; k < steady->symbol_count; k++) {
        range[2 * steady->symbol[k]] = steady->low[k];
        range[2 * steady->symbol[k] + 1] = steady->high[k];
    }
    *kept = (sx_pipe_kept){.node = s->node,
                           .packs = s->packs,
                           .target = pipe->target,
                           .range = range,
                           .range_count = 2 * (size_t)count,
                           .schedule = *schedule};
    return kept;
}

static const sx_pipe_kept *find_kept(const sx_pipe *pipe, const sx_pipe_kept *like)
{
    const sx_pipe_kept *kept = pipe->memory->last;
    size_t size = like->range_count * sizeof(*like->range);
    while (kept != NULL &&
           (kept->node != like->node || kept->packs != like->packs ||
            kept->target != like->target || kept->range_count != like->range_count ||
            memcmp(kept->range, like->range, size) != 0 ||
            !sx_schedule_equal(&kept->schedule, &like->schedule))) {
        kept = kept->before;
    }
    return kept;
}

/* Cases and parts in memory of cx. */
static sx_code keep(sx_ctx *cx, const sx_pipe_cases *from, const collection *c, sx_pipe_kept *kept)
{
    kept->part = SX_NEW_ARRAY(cx, sx_part, c->shape_count + 1);
    kept->value = SX_NEW_ARRAY(cx, sx_pipe_point, c->shape_count + 1);
    kept->at = SX_NEW_ARRAY(cx, uint32_t, c->shape_count + 1);
    kept->part_count = c->shape_count;
    kept->workspace = c->workspace;
    kept->cases = *from;
    kept->cases.row = SX_NEW_ARRAY(cx, sx_module_case, from->count + 1);
    kept->cases.number = SX_NEW_ARRAY(cx, sx_module_number, from->number_count + 1);
    if (kept->part == NULL || kept->value == NULL || kept->at == NULL || kept->cases.row == NULL ||
        kept->cases.number == NULL) {
        return cx->error.code;
    }
    memcpy(kept->cases.row, from->row, from->count * sizeof(*from->row));
    memcpy(kept->cases.number, from->number, from->number_count * sizeof(*from->number));
    for (uint32_t p = 0; p < c->shape_count; p++) {
        const sx_part *part = &c->shape[p].part;
        sx_comes *comes = SX_NEW_ARRAY(cx, sx_comes, part->comes_count + 1);
        SX_TRY(copy_part(cx, part, &kept->part[p]));
        if (comes == NULL) {
            return cx->error.code;
        }
        memcpy(comes, part->comes, part->comes_count * sizeof(*comes));
        kept->part[p].comes = comes;
        kept->value[p] = c->shape[p].value;
        kept->at[p] = c->shape[p].at;
    }
    return SX_OK;
}

/* The parts of a kernel whose code said what is alike, each as it is lowered where it comes from. */
static sx_code lower_kept(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                          const sx_pipe_kept *kept, sx_part **parts)
{
    sx_part *part = *parts = SX_NEW_ARRAY(cx, sx_part, (size_t)kept->part_count + 1);
    for (uint32_t p = 0; part != NULL && p < kept->part_count; p++) {
        sx_pipe_subject there;
        sx_kernel *kernel;
        SX_TRY(sx_lowered_at(cx, pipe, s, &kept->schedule, &kept->value[p], &there, &kernel));
        SX_ASSERT(kept->at[p] < kernel->part_count);
        part[p] = kernel->part[kept->at[p]];
        part[p].comes = kept->part[p].comes;
        part[p].comes_count = kept->part[p].comes_count;
        part[p].slot_count = kept->part[p].slot_count;
    }
    return cx->error.code;
}

/* The kernel of all shapes, and its cases. */
static sx_code take_kept(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                         const sx_pipe_kept *kept, sx_kernel **kernel, sx_pipe_cases *cases)
{
    if (!kept->serves || kept->part == NULL) {
        return SX_OK;
    }
    sx_kernel *out = SX_NEW(cx, sx_kernel);
    if (out == NULL) {
        return cx->error.code;
    }
    *out = **kernel; /* for the highest values */
    out->part = kept->part;
    out->part_count = kept->part_count;
    SX_TRY(pipe->target->shape != NULL ? lower_kept(cx, pipe, s, kept, &out->part) : SX_OK);
    if (out->buffer[out->buffer_count - 1].role == SX_BUFFER_WORKSPACE) {
        out->buffer[out->buffer_count - 1].size = kept->workspace;
    }
    *kernel = out;
    *cases = kept->cases;
    return SX_OK;
}

/* The cases of a candidate, in memory of an arena that is given up, and what of them is kept, in that of `to`. */
static sx_code make_cases(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                          const sx_schedule *schedule, sx_arena *to, sx_pipe_kept *kept)
{
    collection all = {.cx = cx, .pipe = pipe, .shape = SX_NEW_ARRAY(cx, shape, SHAPES_MAX)};
    sx_pipe_cases cases = {.row = SX_NEW_ARRAY(cx, sx_module_case, CASES_MAX),
                           .number = SX_NEW_ARRAY(cx, sx_module_number, NUMBERS_MAX),
                           .capacity = CASES_MAX,
                           .number_capacity = NUMBERS_MAX};
    if (all.shape == NULL || cases.row == NULL || cases.number == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_points_make(cx, pipe->steady, &all.points));
    all.parts = SX_NEW_ARRAY(cx, uint64_t, all.points.count);
    SX_TRY(cx->error.code);
    SX_TRY(sx_lowered_each(cx, pipe, s, schedule, &all.points, add_point, &all));
    kept->serves = true;
    if (is_same_for_all(&all)) {
        return SX_OK;
    }
    SX_TRY(put_cases(cx, &all, &cases));
    SX_TRY(judge_cases(cx, pipe, s, schedule, &all, &kept->serves));
    if (!kept->serves) {
        return SX_OK;
    }
    sx_arena inner = cx->arena;
    cx->arena = *to;
    sx_code code = keep(cx, &cases, &all, kept);
    *to = cx->arena;
    cx->arena = inner;
    return code;
}

/* *known is what came of this candidate, now or before. */
static sx_code try_cases(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                         const sx_schedule *schedule, const sx_pipe_kept **known)
{
    sx_pipe_memory *memory = pipe->memory;
    sx_arena outer = cx->arena;
    cx->arena = memory->arena;
    sx_pipe_kept *kept = new_kept(cx, pipe, s, schedule);
    memory->arena = cx->arena;
    cx->arena = outer;
    *known = kept != NULL ? find_kept(pipe, kept) : NULL;
    if (kept == NULL || *known != NULL) {
        return cx->error.code;
    }
    sx_arena_init(&cx->arena, outer.limit_bytes - outer.used_bytes);
    sx_code code = make_cases(cx, pipe, s, schedule, &memory->arena, kept);
    sx_arena_fini(&cx->arena);
    cx->arena = outer;
    if (code == SX_LIMIT || code == SX_UNIMPLEMENTED || code == SX_INPUT) { /* the next candidate */
        (void)snprintf(memory->no_cases, sizeof(memory->no_cases), "%.150s", cx->error.text);
        sx_ctx_reset_error(cx);
        code = SX_OK;
        kept->serves = false;
    } else if (!kept->serves) {
        (void)snprintf(memory->no_cases, sizeof(memory->no_cases), "not proven for all values");
    }
    kept->before = memory->last;
    memory->last = kept;
    *known = kept;
    return code;
}

sx_code sx_pipe_make_cases(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                           sx_pipe_choice *c, bool *serves)
{
    const sx_schedule *schedule = &c->candidate->schedule;
    const sx_pipe_kept *kept;
    c->cases = c->packing_cases = (sx_pipe_cases){.count = 0};
    c->packing = NULL;
    *serves = true;
    if (sx_pipe_packs(schedule) && !c->rhs_constant) {
        sx_pipe_subject packs = *s;
        packs.packs = true;
        (void)snprintf(packs.name, sizeof(packs.name), "pack_%u", s->node);
        const sx_lowering what = {.kind = SX_LOWER_PACK,
                                  .name = packs.name,
                                  .schedule = schedule,
                                  .analysis = s->analysis};
        SX_TRY(try_cases(cx, pipe, &packs, schedule, &kept));
        SX_TRY(kept->serves ? sx_target_lower(cx, pipe->target, &what, &c->packing) : SX_OK);
        SX_TRY(take_kept(cx, pipe, &packs, kept, &c->packing, &c->packing_cases));
        *serves = kept->serves;
    }
    if (*serves) {
        SX_TRY(try_cases(cx, pipe, s, schedule, &kept));
        SX_TRY(take_kept(cx, pipe, s, kept, &c->kernel, &c->cases));
        *serves = kept->serves;
    }
    return SX_OK;
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

int64_t sx_pipe_largest(const sx_pipe_cases *cases, uint32_t part, uint32_t number)
{
    int64_t largest = 0;
    for (uint32_t k = 0; k < cases->count; k++) {
        const sx_module_case *row = &cases->row[k];
        if (row->part == part && row->slot <= number && number - row->slot < row->number_count) {
            const sx_module_number *n = &cases->number[row->number_first + number - row->slot];
            int64_t low = (n->scale * row->low + n->offset) / row->modulus;
            int64_t high = (n->scale * row->high + n->offset) / row->modulus;
            largest = sx_max_i64(largest, sx_max_i64(low, high));
        }
    }
    return largest;
}
