#include "core/egraph/egraph.h"

#include <string.h>

static sx_code check_node(sx_ctx *cx, const sx_eg *eg, uint32_t n)
{
    const sx_eg_node *node = &eg->node[n];
    for (uint32_t k = 0; k < node->arity; k++) {
        uint32_t child = eg->child[node->edge + k];
        if (eg->up[child] != child) {
            return SX_FAIL(cx, SX_INTERNAL, "e-node %u: child %u is class %u, absorbed", n, k,
                           child);
        }
        if (eg->owner[node->edge + k] != n) {
            return SX_FAIL(cx, SX_INTERNAL, "e-node %u: edge %u has another owner", n, k);
        }
    }
    uint32_t found = sx_eg_lookup(eg, node->op, node->attr, &eg->child[node->edge], node->arity);
    if (found != n) {
        return SX_FAIL(cx, SX_INTERNAL, "e-node %u: the hash table finds %u in its place", n,
                       found);
    }
    return SX_OK;
}

/* Every live edge hangs in the parent list of its child, once. `seen` counts per edge. */
static sx_code check_parents(sx_ctx *cx, const sx_eg *eg, uint8_t *seen)
{
    for (uint32_t c = 0; c < eg->node_count; c++) {
        if (eg->up[c] != c) {
            continue;
        }
        uint32_t steps = 0;
        for (uint32_t e = eg->parent_head[c]; e != SX_EG_NONE; e = eg->edge_next[e]) {
            if (steps++ > eg->edge_count || seen[e] != 0) {
                return SX_FAIL(cx, SX_INTERNAL, "class %u: its parent list holds an edge twice", c);
            }
            seen[e] = 1;
            if (eg->node[eg->owner[e]].dead == 0 && sx_eg_find(eg, eg->child[e]) != c) {
                return SX_FAIL(cx, SX_INTERNAL, "class %u: edge %u is no parent of it", c, e);
            }
        }
    }
    for (uint32_t e = 0; e < eg->edge_count; e++) {
        if (eg->node[eg->owner[e]].dead == 0 && seen[e] == 0) {
            return SX_FAIL(cx, SX_INTERNAL, "e-node %u: missing from a parent list", eg->owner[e]);
        }
    }
    return SX_OK;
}

static sx_code check_members(sx_ctx *cx, const sx_eg *eg, uint32_t c, uint32_t *counted)
{
    uint64_t ops = 0;
    uint32_t n = c;
    do {
        if (sx_eg_find(eg, n) != c || *counted > eg->node_count) {
            return SX_FAIL(cx, SX_INTERNAL, "class %u: member %u belongs to another", c, n);
        }
        ops |= UINT64_C(1) << eg->node[n].op;
        (*counted)++;
        n = eg->member_next[n];
    } while (n != c);
    if (ops != eg->ops[c]) {
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
    if (eg->absorbed_count != 0 || eg->learnt_count != 0) {
        return SX_FAIL(cx, SX_INTERNAL, "e-graph is not rebuilt");
    }
    for (uint32_t n = 0; n < eg->node_count; n++) {
        if (eg->up[n] > n) {
            return SX_FAIL(cx, SX_INTERNAL, "class %u is not named by its smallest node", n);
        }
        if (eg->up[n] == n) {
            classes++;
            SX_TRY(check_members(cx, eg, n, &members));
        }
        if (eg->node[n].dead == 0) {
            live++;
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
    if (eg->edge_count == 0) {
        return SX_OK;
    }
    uint8_t *seen = SX_NEW_ARRAY(cx, uint8_t, eg->edge_count);
    if (seen == NULL) {
        return cx->error.code;
    }
    return check_parents(cx, eg, seen);
}
