/* extents.c - for which extents a variant is compared. */
#include "client/verify/verifier.h"

#define TRIES_MAX 4096u /* values that are tried to find some for which a variant runs */
#define TOGETHER \
    3u /* of the extents that are compared: those for which all symbols are at the same end */

/* Values of a symbol that are tried for a variant, the first ones at both ends and in the middle of what it serves. */
typedef struct {
    int64_t *value;
    uint32_t count;
} tries;

/* A value that the symbol may have, and that is not there yet. */
static void put_value(const sx_module *module, uint32_t symbol, tries *t, int64_t value)
{
    bool there = !sx_module_symbol_has(module, symbol, value);
    for (uint32_t i = 0; i < t->count && !there; i++) {
        there = t->value[i] == value;
    }
    if (!there) {
        t->value[t->count++] = value;
    }
}

static void put_span(const sx_module *module, uint32_t symbol, tries *t, int64_t low, int64_t high)
{
    put_value(module, symbol, t, high);
    put_value(module, symbol, t, low);
    put_value(module, symbol, t, low + (high - low) / 2);
}

static sx_code collect(sxv_verifier *v, uint32_t symbol, tries *t)
{
    const sx_module *module = v->module;
    const sx_module_variant *variant = &module->variant[v->variant];
    const sx_module_range *range = &module->range[module->symbol[symbol].range_first];
    uint32_t ranges = module->symbol[symbol].range_count;
    bool alone = false;
    *t =
        (tries){.value = SX_NEW_ARRAY(v->cx, int64_t, 3 * ((size_t)variant->guard_count + ranges))};
    if (t->value == NULL) {
        return v->cx->error.code;
    }
    for (uint32_t i = 0; i < variant->guard_count; i++) {
        const sx_module_guard *guard = &module->guard[variant->guard_first + i];
        bool equal = guard->kind == SX_GUARD_EQUAL;
        if (guard->subject == symbol && (equal || guard->kind == SX_GUARD_RANGE)) {
            put_span(module, symbol, t, guard->low, equal ? guard->low : guard->high);
            alone = alone || equal;
        }
    }
    for (uint32_t r = 0; r < ranges && (!alone || t->count == 0); r++) {
        put_span(module, symbol, t, range[r].low, range[r].high);
    }
    return SX_OK;
}

/* The ends and the middle of all symbols together, and one end of some with the other end of others; then, if none of
 * them will do, one after the other. */
static uint32_t choose(const tries *list, uint32_t symbol, uint64_t n)
{
    if (n < SXV_EXTENTS) {
        uint64_t k = n < TOGETHER ? n : (n + symbol) % 2;
        return k < list[symbol].count ? (uint32_t)k : list[symbol].count - 1;
    }
    uint64_t digits = n - SXV_EXTENTS;
    for (uint32_t s = 0; s < symbol; s++) {
        digits /= list[s].count;
    }
    return (uint32_t)(digits % list[symbol].count);
}

sx_code sxv_next_extents(sxv_verifier *v, uint64_t *n, bool *found)
{
    const sx_module *module = v->module;
    tries *list = SX_NEW_ARRAY(v->cx, tries, (size_t)module->symbol_count + 1);
    if (list == NULL) {
        return v->cx->error.code;
    }
    /* How many tries there are, how many of the first ones differ, and how many symbols have several values. */
    uint64_t most = 1, same = 1, several = 0;
    for (uint32_t s = 0; s < module->symbol_count; s++) {
        SX_TRY(collect(v, s, &list[s]));
        SX_ASSERT(list[s].count > 0); /* a symbol has ranges */
        most = most > TRIES_MAX ? most : most * list[s].count;
        same = list[s].count > same ? list[s].count : same;
        several += list[s].count > 1 ? 1 : 0;
    }
    same = several > 1 ? SXV_EXTENTS : same < TOGETHER ? same : TOGETHER;
    bool first = *n == 0;
    *found = false;
    while (!*found && *n < (first ? most + SXV_EXTENTS : SXV_EXTENTS) && *n < TRIES_MAX) {
        bool again = *n < SXV_EXTENTS && *n >= same;
        for (uint32_t s = 0; s < module->symbol_count && !again; s++) {
            SX_TRY(sxr_set_extent(v->cx, v->program,
                                  sx_module_string(module, module->symbol[s].name),
                                  list[s].value[choose(list, s, *n)]));
        }
        (*n)++;
        *found = !again && sxr_variant(v->program) == v->variant;
    }
    return SX_OK;
}
