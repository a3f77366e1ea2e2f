/* All interleavings of roles on rings. Each role is unrolled into its waits and arrivals; how many of them each role
 * has done decides the state of every barrier, so that a state of the search is one index for each role. */
#include "core/tile/ring.h"

#include <string.h>

#define TILES 2U

/* A wait or an arrival. */
typedef struct {
    uint8_t op; /* SX_STEP_ACQUIRE, PUBLISH, WAIT or RELEASE */
    uint8_t ring;
    uint32_t number; /* use of the ring */
} event;

typedef struct {
    const char *name;
    event *events;
    uint32_t count, capacity;
    /* By ring, over all events: how many of each. */
    uint32_t acquired[SX_RINGS_MAX], published[SX_RINGS_MAX], waited[SX_RINGS_MAX],
        released[SX_RINGS_MAX];
    /* Reads in the order in which they began: the use that each one reads, and how many are done. */
    uint32_t *reads;
    uint32_t read_count, read_capacity, settled;
    uint8_t *read_ring;
    uint32_t ring_capacity;
} actor;

typedef struct {
    sx_ctx *cx;
    const sx_ring *ring;
    uint32_t rings;
    actor *roles;
    uint32_t count;
    uint32_t trips;
} search;

/* ---- unrolling ---- */

static sx_code push(search *s, actor *a, uint8_t op, uint32_t ring, uint32_t number)
{
    SX_TRY(sx_grow(s->cx, (void **)&a->events, &a->capacity, a->count + 1, sizeof(event)));
    a->events[a->count++] = (event){.op = op, .ring = (uint8_t)ring, .number = number};
    return SX_OK;
}

static sx_code begin_read(search *s, actor *a, const sx_step *step)
{
    if (a->waited[step->ring] == a->released[step->ring]) {
        return SX_FAIL(s->cx, SX_INPUT, "role %s: reads ring %u without a stage", a->name,
                       step->ring);
    }
    SX_TRY(
        sx_grow(s->cx, (void **)&a->reads, &a->read_capacity, a->read_count + 1, sizeof(uint32_t)));
    SX_TRY(sx_grow(s->cx, (void **)&a->read_ring, &a->ring_capacity, a->read_count + 1, 1));
    a->reads[a->read_count] = a->waited[step->ring] - 1;
    a->read_ring[a->read_count++] = step->ring;
    return SX_OK;
}

static sx_code release(search *s, actor *a, const sx_step *step, uint32_t waited_before)
{
    uint32_t in_tile = a->waited[step->ring] - waited_before;
    if (in_tile <= step->back) {
        return SX_OK; // as many steps back there was none
    }
    uint32_t number = a->waited[step->ring] - 1 - step->back;
    if (number != a->released[step->ring]) {
        return SX_FAIL(s->cx, SX_INPUT,
                       "role %s: releases use %u of ring %u, the next to release is %u", a->name,
                       number, step->ring, a->released[step->ring]);
    }
    for (uint32_t i = a->settled; i < a->read_count; i++) {
        if (a->read_ring[i] == step->ring && a->reads[i] == number) {
            return SX_FAIL(s->cx, SX_INPUT, "role %s: releases use %u of ring %u while it is read",
                           a->name, number, step->ring);
        }
    }
    a->released[step->ring]++;
    return push(s, a, SX_STEP_RELEASE, step->ring, number);
}

static sx_code unroll_step(search *s, actor *a, const sx_step *step, const uint32_t *waited_before)
{
    uint32_t ring = step->ring;
    SX_ASSERT(ring < s->rings);
    switch ((sx_step_op)step->op) {
    case SX_STEP_ACQUIRE: return push(s, a, SX_STEP_ACQUIRE, ring, a->acquired[ring]++);
    case SX_STEP_PUBLISH:
        if (a->published[ring] == a->acquired[ring]) {
            return SX_FAIL(s->cx, SX_INPUT, "role %s: publishes ring %u without a stage", a->name,
                           ring);
        }
        return push(s, a, SX_STEP_PUBLISH, ring, a->published[ring]++);
    case SX_STEP_WAIT: return push(s, a, SX_STEP_WAIT, ring, a->waited[ring]++);
    case SX_STEP_READ: return begin_read(s, a, step);
    case SX_STEP_SETTLE:
        if (a->read_count - a->settled > step->back) {
            a->settled = a->read_count - step->back;
        }
        return SX_OK;
    case SX_STEP_RELEASE: return release(s, a, step, waited_before[ring]);
    }
    SX_UNREACHABLE();
}

static sx_code unroll(search *s, const sx_role_steps *role, actor *a)
{
    a->name = role->name;
    for (uint32_t tile = 0; tile < TILES; tile++) {
        uint32_t waited_before[SX_RINGS_MAX];
        memcpy(waited_before, a->waited, sizeof(waited_before));
        for (uint32_t k = 0; k < s->trips; k++) {
            for (uint32_t i = 0; i < role->body_count; i++) {
                SX_TRY(unroll_step(s, a, &role->body[i], waited_before));
            }
        }
        for (uint32_t i = 0; i < role->tail_count; i++) {
            SX_TRY(unroll_step(s, a, &role->tail[i], waited_before));
        }
    }
    for (uint32_t r = 0; r < s->rings; r++) {
        if (a->acquired[r] != a->published[r] || a->waited[r] != a->released[r]) {
            return SX_FAIL(
                s->cx, SX_INPUT,
                "role %s: of ring %u %u acquired, %u published, %u waited for, %u released "
                "in %u tiles of %u steps",
                a->name, r, a->acquired[r], a->published[r], a->waited[r], a->released[r], TILES,
                s->trips);
        }
    }
    return SX_OK;
}

/* ---- barriers, out of how far each role is ---- */

/* How often `a` has arrived, before event `upto`, at the barrier where events `op` on the stage of `number` arrive. */
static uint32_t arrivals_of(const search *s, const actor *a, uint32_t upto, uint8_t op,
                            uint32_t ring, uint32_t number)
{
    uint32_t depth = s->ring[ring].depth, count = 0;
    for (uint32_t i = 0; i < upto; i++) {
        const event *e = &a->events[i];
        count += e->op == op && e->ring == ring && e->number % depth == number % depth;
    }
    return count;
}

static uint32_t arrivals(const search *s, const uint32_t *at, uint8_t op, uint32_t ring,
                         uint32_t number)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        count += arrivals_of(s, &s->roles[i], at[i], op, ring, number);
    }
    return count;
}

/* Has every role that ever does `op` on this ring (and there is one) done it for use `number`? */
static bool all_did(const search *s, const uint32_t *at, uint8_t op, uint32_t ring, uint32_t number)
{
    bool any = false;
    for (uint32_t i = 0; i < s->count; i++) {
        const actor *a = &s->roles[i];
        uint32_t total = op == SX_STEP_PUBLISH ? a->published[ring] : a->released[ring], done = 0;
        for (uint32_t k = 0; k < at[i]; k++) {
            const event *e = &a->events[k];
            done += e->op == op && e->ring == ring && e->number <= number;
        }
        any |= total > 0;
        if (total > 0 && done < number + 1) {
            return false;
        }
    }
    return any;
}

/* May role `i` do its next event? Fails where the barrier answers something else than what is meant. */
static sx_code may_move(const search *s, const uint32_t *at, uint32_t i, bool *may)
{
    const event *e = &s->roles[i].events[at[i]];
    const sx_ring *ring = &s->ring[e->ring];
    bool consumer = e->op == SX_STEP_WAIT || e->op == SX_STEP_PUBLISH; // the full barrier
    uint8_t arrival = consumer ? SX_STEP_PUBLISH : SX_STEP_RELEASE;
    uint32_t expected = consumer ? ring->full_arrivals : ring->empty_arrivals;
    uint32_t phase = arrivals(s, at, arrival, e->ring, e->number) / expected; // the current one
    if (e->op == SX_STEP_PUBLISH || e->op == SX_STEP_RELEASE) {
        if (phase != e->number / ring->depth) {
            return SX_FAIL(
                s->cx, SX_INPUT,
                "role %s: arrives for use %u of ring %u in phase %u, which is not its own",
                s->roles[i].name, e->number, e->ring, phase);
        }
        *may = true;
        return SX_OK;
    }
    uint32_t parity =
        consumer ? sx_ring_full_parity(ring, e->number) : sx_ring_empty_parity(ring, e->number);
    bool first = !consumer && e->number < ring->depth; // nothing was there before
    bool ready =
        first || all_did(s, at, arrival, e->ring, consumer ? e->number : e->number - ring->depth);
    *may = phase % 2 != parity;
    if (*may && !ready) {
        return SX_FAIL(s->cx, SX_INPUT,
                       "role %s: passes to use %u of ring %u before all have %s it",
                       s->roles[i].name, e->number, e->ring, consumer ? "published" : "released");
    }
    if (!*may && ready) {
        return SX_FAIL(
            s->cx, SX_INPUT,
            "role %s: waits for use %u of ring %u, which all have %s (phase %u, parity %u)",
            s->roles[i].name, e->number, e->ring, consumer ? "published" : "released", phase,
            parity);
    }
    return SX_OK;
}

/* ---- the search ---- */

static sx_code explore(search *s)
{
    uint32_t at[SX_ROLES_MAX], size[SX_ROLES_MAX];
    uint64_t states = 1;
    for (uint32_t i = 0; i < s->count; i++) {
        size[i] = s->roles[i].count + 1;
        states *= size[i];
        if (states > SX_RING_STATES_MAX) {
            return SX_FAIL(s->cx, SX_LIMIT, "rings: more than %u states of the roles",
                           SX_RING_STATES_MAX);
        }
    }
    uint8_t *reached = sx_alloc(s->cx, states);
    if (reached == NULL) {
        return s->cx->error.code;
    }
    reached[0] = 1;
    /* Every event raises the number of its state, so that one pass in order meets each state after all before it. */
    for (uint64_t state = 0; state < states; state++) {
        if (reached[state] == 0) {
            continue;
        }
        SX_TRY(sx_spend(s->cx, 1));
        uint64_t rest = state, step = 1;
        for (uint32_t i = 0; i < s->count; i++) {
            at[i] = (uint32_t)(rest % size[i]);
            rest /= size[i];
        }
        bool moved = state + 1 == states; // all are done
        for (uint32_t i = 0; i < s->count; step *= size[i], i++) {
            bool may = false;
            if (at[i] < s->roles[i].count) {
                SX_TRY(may_move(s, at, i, &may));
            }
            if (may) {
                reached[state + step] = 1;
                moved = true;
            }
        }
        if (!moved) {
            uint32_t i = 0;
            while (at[i] == s->roles[i].count) {
                i++;
            }
            const event *e = &s->roles[i].events[at[i]];
            return SX_FAIL(s->cx, SX_INPUT,
                           "rings: deadlock in %u tiles of %u steps: role %s waits for use %u of "
                           "ring %u",
                           TILES, s->trips, s->roles[i].name, e->number, e->ring);
        }
    }
    return SX_OK;
}

static sx_code check_trips(search *s, const sx_role_steps *role, uint32_t roles)
{
    actor actors[SX_ROLES_MAX];
    memset(actors, 0, sizeof(actors));
    s->roles = actors;
    s->count = roles;
    for (uint32_t i = 0; i < roles; i++) {
        SX_TRY(unroll(s, &role[i], &actors[i]));
    }
    return explore(s);
}

sx_code sx_rings_check(sx_ctx *cx, const sx_ring *ring, uint32_t rings, const sx_role_steps *role,
                       uint32_t roles)
{
    SX_ASSERT(rings > 0 && rings <= SX_RINGS_MAX && roles > 0 && roles <= SX_ROLES_MAX);
    uint32_t depth = 1;
    for (uint32_t r = 0; r < rings; r++) {
        if (ring[r].depth == 0 || ring[r].depth > SX_RING_DEPTH_MAX || ring[r].full_arrivals == 0 ||
            ring[r].empty_arrivals == 0) {
            return SX_FAIL(cx, SX_INPUT, "ring %u: depth is %u (from 1 to %d), arrivals %u and %u",
                           r, ring[r].depth, SX_RING_DEPTH_MAX, ring[r].full_arrivals,
                           ring[r].empty_arrivals);
        }
        depth = ring[r].depth > depth ? ring[r].depth : depth;
    }
    uint32_t trips[] = {0, 1, depth - 1, depth, depth + 1};
    for (uint32_t i = 0; i < SX_COUNT(trips); i++) {
        search s = {.cx = cx, .ring = ring, .rings = rings, .trips = trips[i]};
        SX_TRY(check_trips(&s, role, roles));
    }
    return SX_OK;
}
