/* walk_state.c - memory that a loop carries, by induction over its iterations.
 *
 * The places that every iteration stores anew after it has read them are tables. In the body a table holds
 * states: what each place held at the start of the iteration, not known. What a place holds at the end of the
 * body is its step, a term over states; what it held before the loop is its first value. Both together are a
 * recurrence (recur.c). All other memory must not be carried: a read of what stands from before the loop meets
 * no store of the body outside the tables (walk.c checks that). */
#include <string.h>

#include "core/judge/walk.h"

static void set_ranges(sx_algebra *g, const sx_record *r)
{
    for (uint32_t k = 0; k < r->dims; k++) {
        g->low[SX_VAR_STORE + k] = 0;
        g->high[SX_VAR_STORE + k] = r->count[k] - 1;
    }
}

static bool same_places(const sx_record *a, const sx_record *b)
{
    return a->buffer == b->buffer && a->width == b->width && a->address == b->address &&
           a->dims == b->dims && memcmp(a->count, b->count, a->dims * sizeof(a->count[0])) == 0;
}

/* Did the body read what these places held before the loop? */
static bool was_read(sx_walk *w, const sx_walk_loop *loop, const sx_record *store)
{
    for (uint32_t k = loop->first_read; k < w->reads.count; k++) {
        const sx_record *read = &w->reads.record[k];
        if (read->from < loop->first_record &&
            !sx_records_apart(w->g, read, store, loop->var, loop->trip, SX_VAR_FREE)) {
            return true;
        }
    }
    return false;
}

void sx_walk_find_places(sx_walk *w, const sx_walk_loop *loop)
{
    sx_algebra *g = w->g;
    for (uint32_t i = loop->first_record; i < w->stores.count && !g->refused; i++) {
        const sx_record *store = &w->stores.record[i];
        bool moves = (g->form[store->address].vars & SX_VAR_BIT(loop->var)) != 0;
        bool known = moves || !was_read(w, loop, store);
        for (uint32_t k = 0; !known && k < w->places_count; k++) {
            const sx_carried_places *p = &w->places[k];
            known = p->item == loop->item && same_places(&p->places, store);
        }
        void *array = w->places;
        if (known || !sx_walk_room(w, &array, &w->places_capacity, w->places_count + 1,
                                   sizeof(sx_carried_places))) {
            continue;
        }
        w->places = array;
        w->places[w->places_count++] = (sx_carried_places){loop->item, *store};
    }
}

sx_read sx_walk_content(sx_walk *w, const sx_record *r, uint32_t first, uint32_t end,
                        uint32_t *value, uint32_t *from)
{
    sx_algebra *g = w->g;
    SX_ASSERT(end <= w->stores.count);
    for (uint32_t k = end; k-- > first && !g->refused;) {
        const sx_record *store = &w->stores.record[k];
        if (sx_records_apart(g, r, store, SX_VAR_COUNT, 1, SX_VAR_SAME)) {
            continue;
        }
        set_ranges(g, r);
        *from = k;
        bool covered = sx_record_read(g, store, r->address, r->width, value) == SX_READ_COVERED;
        return covered ? SX_READ_COVERED : SX_READ_UNKNOWN;
    }
    return g->refused ? SX_READ_UNKNOWN : SX_READ_APART;
}

static bool open_table(sx_walk *w, const sx_walk_loop *loop, const sx_record *places)
{
    sx_table t = {.places = *places};
    uint32_t from;
    void *array = w->table;
    for (uint32_t k = loop->first_table; k < w->table_count; k++) {
        if (!sx_records_apart(w->g, &w->table[k].places, places, SX_VAR_COUNT, 1, SX_VAR_SAME)) {
            return false;
        }
    }
    if (sx_walk_content(w, places, 0, loop->first_record, &t.first, &from) != SX_READ_COVERED ||
        !sx_walk_room(w, &array, &w->table_capacity, w->table_count + 1, sizeof(sx_table))) {
        return false;
    }
    w->table = array;
    if (w->open > 0) { /* a loop around answers for this read */
        sx_record read = *places;
        read.value = 0;
        read.from = from;
        sx_records_push(w->g, &w->reads, &read);
    }
    t.places.value = sx_term_state(w->g, w->table_count, places->address);
    w->table[w->table_count++] = t;
    return !w->g->refused;
}

bool sx_walk_open_states(sx_walk *w, sx_walk_loop *loop)
{
    bool ok = true;
    loop->first_table = w->table_count;
    for (uint32_t k = 0; ok && k < w->places_count; k++) {
        if (w->places[k].item == loop->item) {
            ok = open_table(w, loop, &w->places[k].places);
        }
    }
    loop->end_table = w->table_count;
    for (uint32_t k = loop->first_table; ok && k < loop->end_table; k++) {
        sx_records_push(w->g, &w->stores, &w->table[k].places);
    }
    return ok && !w->g->refused;
}

typedef struct {
    sx_walk *w;
    const sx_walk_loop *loop;
} asked_loop;

/* A state of a table, at whatever place of it. */
static bool define_state(void *self, uint32_t state, uint32_t *first, uint32_t *step)
{
    const asked_loop *a = self;
    sx_algebra *g = a->w->g;
    const uint32_t number = g->term[state].imm;
    const uint32_t place = g->term[state].form;
    if (number < a->loop->first_table || number >= a->loop->end_table) {
        return false;
    }
    const sx_table *t = &a->w->table[number];
    sx_record r = t->places;
    r.value = t->first;
    if (sx_record_read(g, &r, place, r.width, first) != SX_READ_COVERED) {
        return false;
    }
    r.value = t->step;
    return sx_record_read(g, &r, place, r.width, step) == SX_READ_COVERED;
}

bool sx_walk_close_states(sx_walk *w, const sx_walk_loop *loop)
{
    sx_algebra *g = w->g;
    asked_loop asked = {w, loop};
    uint32_t count = loop->end_table - loop->first_table;
    uint32_t from;
    for (uint32_t k = loop->first_table; k < loop->end_table; k++) {
        sx_table *t = &w->table[k];
        sx_read end = sx_walk_content(w, &t->places, loop->first_record + count, w->stores.count,
                                      &t->step, &from);
        t->step = end == SX_READ_APART ? t->places.value : t->step;
        if (end == SX_READ_UNKNOWN) {
            return false;
        }
    }
    for (uint32_t k = loop->first_table; k < loop->end_table; k++) {
        sx_table *t = &w->table[k];
        set_ranges(g, &t->places);
        t->behind = sx_term_recur(g, t->places.value, define_state, &asked, loop->var, loop->trip);
        if (t->behind == 0) {
            return false;
        }
    }
    return !g->refused;
}

void sx_walk_leave_states(sx_walk *w, const sx_walk_loop *loop, uint32_t outer_first)
{
    SX_ASSERT(w->table_count == loop->end_table);
    for (uint32_t k = loop->first_table; k < loop->end_table && !w->g->refused; k++) {
        sx_record r = w->table[k].places;
        r.value = w->table[k].behind;
        sx_buffer_again(w->g, r.buffer);
        sx_records_put(w->g, &w->stores, outer_first, &r);
    }
    w->table_count = loop->first_table;
}
