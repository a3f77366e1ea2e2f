/* walk_named.c - places of the part's own memory that integers of the inputs name.
 *
 * A place is an address plus stride * i, where i is an integer that was clamped to 0 .. n - 1. A store of v there is a
 * store to all n places: place k gets v where i = k, and keeps what it holds elsewhere. So it is n records of known
 * places, in which loops and reads know their way, and a loop that updates named places carries memory like any other.
 *
 * What is read from such a place is known only where it comes to be stored to the same place again, with no store in
 * between: until then it is a state of its own, at the place that the variable SX_VAR_NAMED numbers, and whatever else
 * is made of it is refused. There i = k, so that it is what place k held.
 *
 * Not all n places need hold something alike before: the first and the last one, where indices out of range go, may
 * differ from those between them. */
#include "core/judge/walk.h"

/* The parts of an index: stride * clamped to 0 .. count - 1. */
typedef struct {
    uint32_t place;
    int64_t stride, count;
} named;

static bool find_named(sx_walk *w, uint32_t index, named *n)
{
    sx_algebra *g = w->g;
    const sx_term *t = &g->term[index];
    bool scaled = t->kind == SX_TERM_OP && t->op == SX_LOP_SMUL;
    const sx_term *c = scaled ? &g->term[t->child[0]] : t;
    if (!scaled || c->kind != SX_TERM_OP || c->op != SX_LOP_SCLAMP) {
        (void)sx_refuse(g, "item %u: a place that is not numbered", w->at);
        return false;
    }
    *n = (named){t->child[0], g->form[t->form].constant, g->form[c->form].constant};
    /* the number is compared in a lane, which may have 32 bits */
    if (n->stride < 1 || n->count < 1 || n->count > INT32_MAX) {
        (void)sx_refuse(g, "item %u: %lld places, %lld bytes apart", w->at, (long long)n->count,
                        (long long)n->stride);
        return false;
    }
    return true;
}

bool sx_walk_is_named(sx_walk *w, uint32_t value)
{
    sx_lanes lanes;
    bool found = false;
    lanes.count = 0;
    if (value != 0) {
        sx_walk_get(w, value, &lanes);
    }
    for (uint32_t k = 0; k < lanes.count; k++) {
        found = found || (w->g->term[lanes.term[k]].vars & SX_VAR_BIT(SX_VAR_NAMED)) != 0;
    }
    return found;
}

/* The number of the newest read of the place that no store is behind; UINT32_MAX: there is none. */
static uint32_t last_read(const sx_walk *w, uint32_t place)
{
    uint32_t k = w->named_count - 1; /* of several, any: there is one for each place */
    bool found = w->named_count > 0 && w->named[k].place == place &&
                 w->named[k].serial == w->serial && w->named[k].inner == w->inner;
    return found ? k : UINT32_MAX;
}

static uint32_t moved(sx_algebra *g, uint32_t form, uint32_t var, int64_t stride, int64_t first)
{
    sx_lin lin;
    sx_lin_get(g, form, &lin);
    sx_lin_add_constant(g, &lin, first * stride);
    if (var != SX_VAR_COUNT) {
        sx_lin_add(g, &lin, var, stride);
    }
    return sx_form_put(g, &lin);
}

uint32_t sx_walk_named_load(sx_walk *w, uint32_t form, uint32_t index)
{
    sx_algebra *g = w->g;
    named n;
    void *array = w->named;
    if (g->refused || !find_named(w, index, &n)) {
        return 0;
    }
    uint32_t number = last_read(w, n.place);
    if (number == UINT32_MAX) {
        if (!sx_walk_room(w, &array, &w->named_capacity, w->named_count + 1,
                          sizeof(sx_named_read))) {
            return 0;
        }
        w->named = array;
        number = w->named_count++;
        w->named[number] = (sx_named_read){n.place, w->serial, w->inner};
    }
    SX_ASSERT(number < SX_NAMED);
    return sx_term_state(g, SX_NAMED + number, moved(g, form, SX_VAR_NAMED, n.stride, 0));
}

/* A store to named places. `value` is what is stored, with `read` in the place of what was read. */
typedef struct {
    sx_record record;
    named n;
    uint32_t form, value, read;
} spread;

/* Gives the record what its places hold. False: no one record answers. */
static bool find_old(sx_walk *w, spread *p, int64_t first, int64_t count)
{
    sx_algebra *g = w->g;
    sx_record *r = &p->record;
    uint32_t from = 0;
    uint32_t var = count > 1 ? SX_VAR_STORE + r->dims : SX_VAR_COUNT;
    r->address = moved(g, p->form, var, p->n.stride, first);
    if (count > 1) {
        r->count[r->dims++] = count;
    }
    sx_bytes_reached(g, r->address, r->width, r->dims, r->count, &r->low, &r->end);
    if (g->refused ||
        sx_walk_content(w, r, 0, w->stores.count, &r->value, &from) != SX_READ_COVERED ||
        w->stores.record[from].mem != SX_MEM_LANE || r->value == 0) {
        return false;
    }
    r->from = from;
    return true;
}

/* The store to these places. */
static bool spread_store(sx_walk *w, const spread *all, int64_t first, int64_t count)
{
    sx_algebra *g = w->g;
    spread p = *all;
    sx_subst s;
    sx_lin number;
    if (!find_old(w, &p, first, count)) {
        return false;
    }
    sx_record *r = &p.record;
    uint32_t old = r->value;
    if (w->open > 0) { /* loops around answer for what was read */
        sx_record read = *r;
        read.value = 0;
        sx_records_push(g, &w->reads, &read);
    }
    sx_subst_begin(g, &s);
    s.state_count = 1;
    s.state[0] = p.read;
    s.part[0] = old;
    uint32_t stored = sx_term_subst(g, p.value, &s);
    sx_lin_init(&number, first);
    if (count > 1) {
        sx_lin_add(g, &number, SX_VAR_STORE + r->dims - 1, 1);
        g->low[SX_VAR_STORE + r->dims - 1] = 0;
        g->high[SX_VAR_STORE + r->dims - 1] = count - 1;
    }
    uint32_t named_one = sx_term_op(g, SX_LOP_S2V, 0, p.n.place, 0, 0);
    uint32_t own = sx_term_int(g, sx_form_put(g, &number));
    uint32_t is_own = sx_term_op(g, SX_LOP_ICMP, SX_EQ, named_one, own, 0);
    r->value = sx_term_op(g, SX_LOP_BLEND, 0, is_own, stored, old);
    r->from = 0;
    if (g->refused || !sx_record_normalise(g, r)) {
        return false;
    }
    sx_buffer_again(g, r->buffer);
    sx_records_push(g, &w->stores, r);
    return !g->refused;
}

void sx_walk_named_store(sx_walk *w, const sx_record *r, uint32_t form, uint32_t index,
                         uint32_t value, const sx_subst *s)
{
    sx_algebra *g = w->g;
    spread p = {.record = *r};
    sx_subst away;
    if (g->refused || !find_named(w, index, &p.n)) {
        return;
    }
    SX_ASSERT(r->dims <= 1 && w->kernel->buffer[r->buffer].role != SX_BUFFER_IN);
    p.form = sx_form_subst(g, form, s);
    p.value = sx_term_subst(g, value, s);
    p.read = sx_term_state(g, SX_NAMED - 1, 0); /* what no table is */
    uint32_t number = last_read(w, p.n.place);
    if (number != UINT32_MAX) {
        sx_subst_begin(g, &away);
        away.state_count = 1;
        away.state[0] =
            sx_term_state(g, SX_NAMED + number, moved(g, p.form, SX_VAR_NAMED, p.n.stride, 0));
        away.part[0] = p.read;
        p.value = sx_term_subst(g, p.value, &away);
    }
    const sx_term *v = &g->term[p.value];
    if ((v->vars & SX_VAR_BIT(SX_VAR_NAMED)) != 0 || v->holes || r->mem != SX_MEM_LANE) {
        (void)sx_refuse(
            g, "item %u: a store to a named place, of what is not known to belong there", w->at);
    }
    int64_t last = p.n.count - 1;
    bool done = !g->refused && spread_store(w, &p, 0, p.n.count);
    if (!done && !g->refused && last > 1) {
        done = spread_store(w, &p, 0, 1) && spread_store(w, &p, 1, last - 1) &&
               spread_store(w, &p, last, 1);
    }
    if (!done && !g->refused) {
        (void)sx_refuse(g, "item %u: named places that do not hold something alike", w->at);
    }
}
