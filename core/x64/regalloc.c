/* regalloc.c - linear scan (Poletto and Sarkar 1999): intervals in order of start; without a free register the
 * lightest interval that may live in memory does, for all of its range. */
#include "core/x64/gen.h"

#include <stdlib.h>

typedef struct {
    uint32_t start, index;
} entry;

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    if (x->start != y->start) {
        return x->start < y->start ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

typedef struct {
    sx_live_set *set;
    uint32_t active[32]; /* interval in each register, or NONE */
    uint32_t free;       /* set of registers */
} scan;

static void expire(scan *s, uint32_t start)
{
    for (uint32_t reg = 0; reg < 32; reg++) {
        if (s->active[reg] != SX_GEN_NONE && s->set->live[s->active[reg]].end <= start) {
            s->active[reg] = SX_GEN_NONE;
            s->free |= 1U << reg;
        }
    }
}

static uint32_t pick_free(const scan *s, const sx_live *live)
{
    for (uint32_t i = 0; i < SX_COUNT(live->hint); i++) {
        if (live->hint[i] == SX_GEN_NONE) {
            continue;
        }
        const sx_live *other = &s->set->live[live->hint[i]];
        if (other->end == live->start && other->reg >= 0 && (s->free >> other->reg & 1) != 0) {
            return (uint32_t)other->reg;
        }
    }
    if (live->want != SX_GEN_NONE && (s->free >> live->want & 1) != 0) {
        return live->want;
    }
    return (uint32_t)__builtin_ctz(s->free);
}

/* The register of the lightest active interval that may move to memory and is lighter than `weight`; NONE if
 * there is none. */
static uint32_t pick_victim(const scan *s, uint64_t weight, bool may_keep)
{
    uint32_t best = SX_GEN_NONE;
    uint64_t least = weight;
    bool any = may_keep; /* the new interval itself may go: only lighter ones are victims */
    for (uint32_t reg = 0; reg < 32; reg++) {
        if (s->active[reg] == SX_GEN_NONE) {
            continue;
        }
        const sx_live *live = &s->set->live[s->active[reg]];
        if (live->spillable && (!any || live->weight < least)) {
            best = reg;
            least = live->weight;
            any = true;
        }
    }
    return best;
}

static sx_code place(const sx_gen *g, scan *s, uint32_t index, const char *what)
{
    sx_live *live = &s->set->live[index];
    expire(s, live->start);
    if (s->free == 0) {
        uint32_t reg = pick_victim(s, live->weight, live->spillable);
        if (reg == SX_GEN_NONE && live->spillable) {
            live->reg = -1;
            return SX_OK;
        }
        if (reg == SX_GEN_NONE) {
            return SX_FAIL(g->cx, SX_LIMIT,
                           "kernel %s: part %u: item %u: more than %d %s registers in use",
                           g->kernel->name, g->part_index, live->start / 2,
                           __builtin_popcount(s->set->allowed), what);
        }
        s->set->live[s->active[reg]].reg = -1;
        s->active[reg] = SX_GEN_NONE;
        s->free |= 1U << reg;
    }
    uint32_t reg = pick_free(s, live);
    live->reg = (int32_t)reg;
    s->active[reg] = index;
    s->free &= ~(1U << reg);
    s->set->used |= 1U << reg;
    return SX_OK;
}

sx_code sx_gen_allocate(const sx_gen *g, sx_live_set *set, const char *what)
{
    set->used = 0;
    uint32_t count = 0;
    entry *order = SX_NEW_ARRAY(g->cx, entry, (size_t)set->count + 1);
    if (order == NULL) {
        return g->cx->error.code;
    }
    for (uint32_t i = 0; i < set->count; i++) {
        set->live[i].reg = -1;
        if (set->live[i].start != SX_GEN_NONE) {
            order[count++] = (entry){set->live[i].start, i};
        }
    }
    qsort(order, count, sizeof(*order), compare_entries);
    scan s = {.set = set, .free = set->allowed};
    for (uint32_t reg = 0; reg < 32; reg++) {
        s.active[reg] = SX_GEN_NONE;
    }
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(place(g, &s, order[i].index, what));
    }
    return SX_OK;
}
