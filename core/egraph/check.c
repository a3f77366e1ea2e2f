#include "core/egraph/egraph.h"

#include <string.h>

static sx_code check_node(sx_ctx *cx, const sx_eg *eg, uint32_t n)
{
    const sx_eg_node *node = &eg->node[n];
    uint32_t child[SX_EG_ARITY_MAX];
    for (uint32_t k = 0; k < node->arity; k++) {
        child[k] = sx_eg_made_child(eg, n, k);
        if (child[k] >= n) {
            return SX_FAIL(cx, SX_INTERNAL, "e-node %u: child %u is node %u, made later", n, k,
                           child[k]);
        }
    }
    uint32_t found = sx_eg_lookup(eg, node->op, node->attr, child, node->arity);
    if (found != n) {
        return SX_FAIL(cx, SX_INTERNAL, "e-node %u: the hash table finds %u in its place", n,
                       found);
    }
    return SX_OK;
}

/* The live links in the parent list of class c; each must name c. A link has one successor, so that no list
 * can share one. */
static sx_code check_parents(sx_ctx *cx, const sx_eg *eg, uint32_t c, uint64_t *links)
{
    uint64_t steps = 0;
    uint64_t most = (uint64_t)eg->node_count * SX_EG_INLINE + eg->wide_count;
    for (uint32_t l = sx_eg_parent_first(eg, c); l != SX_EG_LINK_END;
         l = sx_eg_parent_next(eg, l)) {
        uint32_t n = sx_eg_parent_node(eg, l);
        if (steps++ > most) {
            return SX_FAIL(cx, SX_INTERNAL, "class %u: its parent list is a ring", c);
        }
        if (eg->node[n].dead == 0) {
            if (sx_eg_child(eg, n, sx_eg_parent_slot(eg, l)) != c) {
                return SX_FAIL(cx, SX_INTERNAL, "class %u: node %u is no parent of it", c, n);
            }
            (*links)++;
        }
    }
    return SX_OK;
}

static sx_code check_members(sx_ctx *cx, const sx_eg *eg, uint32_t c, uint32_t *counted)
{
    uint8_t ops = 0;
    uint32_t n = c;
    do {
        if (sx_eg_find(eg, n) != c || *counted > eg->node_count) {
            return SX_FAIL(cx, SX_INTERNAL, "class %u: member %u belongs to another", c, n);
        }
        ops |= (uint8_t)(1u << (eg->node[n].op & 7));
        (*counted)++;
        n = eg->node[n].member;
    } while (n != c);
    if (ops != eg->node[c].ops) {
        return SX_FAIL(cx, SX_INTERNAL, "class %u: wrong set of operations", c);
    }
    return SX_OK;
}

static sx_code check_record(sx_ctx *cx, const sx_eg *eg, uint32_t n)
{
    uint64_t fresh[32];
    uint64_t held[32];
    SX_ASSERT(eg->analysis.size <= sizeof(fresh));
    memset(fresh, 0, sizeof(fresh));
    SX_TRY(eg->analysis.make(cx, eg->analysis.self, eg, n, fresh));
    memcpy(held, sx_eg_record(eg, n), eg->analysis.size);
    bool changed = false;
    SX_TRY(eg->analysis.join(cx, eg->analysis.self, held, fresh, &changed));
    if (changed) {
        return SX_FAIL(cx, SX_INTERNAL, "e-node %u: its class does not know what the node tells",
                       n);
    }
    return SX_OK;
}

sx_code sx_eg_check(sx_ctx *cx, const sx_eg *eg)
{
    uint32_t classes = 0;
    uint32_t members = 0;
    uint32_t live = 0;
    uint64_t edges = 0;
    uint64_t links = 0;
    if (!sx_eg_is_rebuilt(eg)) {
        return SX_FAIL(cx, SX_INTERNAL, "e-graph is not rebuilt");
    }
    for (uint32_t n = 0; n < eg->node_count; n++) {
        if (sx_eg_is_class(eg, n)) {
            classes++;
            SX_TRY(check_members(cx, eg, n, &members));
            SX_TRY(check_parents(cx, eg, n, &links));
        } else if (eg->node[n].tie >= n) {
            return SX_FAIL(cx, SX_INTERNAL, "class %u is not named by its smallest node", n);
        }
        if (eg->node[n].dead == 0) {
            live++;
            edges += eg->node[n].arity;
            SX_TRY(check_node(cx, eg, n));
            if (eg->analysis.size > 0) {
                SX_TRY(check_record(cx, eg, n));
            }
        }
    }
    if (members != eg->node_count || classes != eg->class_count || live != eg->live_count) {
        return SX_FAIL(cx, SX_INTERNAL, "e-graph counts %u classes and %u nodes, found %u and %u",
                       eg->class_count, eg->live_count, classes, live);
    }
    if (edges != links) {
        return SX_FAIL(cx, SX_INTERNAL, "e-graph: %llu edges, the parent lists hold %llu",
                       (unsigned long long)edges, (unsigned long long)links);
    }
    return SX_OK;
}
