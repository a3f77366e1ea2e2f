/* again.c - what a search that is one of several does besides: it takes up the program chosen
 * before, has kernels of drawn programs too, and leaves what it found to the next (optimize.h, memory.h). */
#include <string.h>

#include "core/base/rng.h"
#include "core/optimize/optimizer.h"

/* e-nodes that fusion made in an earlier search: where operations are wanted they are not there. */
sx_code sx_optimizer_known_kernels(sx_optimizer *o, bool **kernel)
{
    SX_ASSERT(o->known == NULL || o->known->node_count <= o->t->eg.node_count);
    const sx_memory_graph *known = o->known;
    *kernel = SX_NEW_ARRAY(o->cx, bool, o->t->eg.node_count + 1);
    if (*kernel == NULL) {
        return o->cx->error.code;
    }
    for (uint32_t i = 0; known != NULL && i < known->run_count; i++) {
        for (uint32_t n = known->run[i].first; n < known->run[i].end; n++) {
            (*kernel)[n] = sx_tensors_op(o->t, n) == SX_OP_FUSED;
        }
    }
    return SX_OK;
}

/* The program an earlier search chose, where it chose one. A node that died since has a living equal. */
void sx_optimizer_known_choice(const sx_optimizer *o, uint32_t *start)
{
    SX_ASSERT(o->known != NULL && o->known->node_count <= o->t->eg.node_count);
    const sx_eg *eg = &o->t->eg;
    const uint32_t *choice = o->known->graph.choice;
    for (uint32_t c = o->known->node_count; c-- > 0;) { /* of classes that became one, the first */
        uint32_t n = choice[c];
        uint32_t child[SX_EG_ARITY_MAX];
        if (n == SX_EG_NONE) {
            continue;
        }
        for (uint32_t k = 0; k < eg->node[n].arity; k++) {
            child[k] = sx_eg_child(eg, n, k);
        }
        n = sx_eg_lookup(eg, eg->node[n].op, eg->node[n].attr, child, eg->node[n].arity);
        if (n != SX_EG_NONE) {
            start[sx_eg_find(eg, c)] = n;
        }
    }
}

/* Costs off by a factor from a quarter to four, drawn for each node. */
static void draw_costs(const sx_optimizer *o, const uint64_t *cost, uint64_t seed, uint64_t *drawn)
{
    for (uint32_t n = 0; n < o->t->eg.node_count; n++) {
        sx_rng rng = {seed ^ (uint64_t)n << 32};
        uint64_t factor = UINT64_C(64) << sx_rng_below(&rng, 4);
        factor += sx_rng_below(&rng, factor);
        bool runs = cost[n] < SX_COST_LAST_RESORT;
        drawn[n] = runs ? cost[n] / 256 * factor + cost[n] % 256 * factor / 256 + 1 : cost[n];
    }
}

/* One program by costs a little off, in memory of its own: class, node, .. *count words. */
static sx_code draw_program(sx_optimizer *o, const uint64_t *cost, uint64_t seed, uint64_t fuel,
                            uint32_t **word, uint32_t *count)
{
    const sx_eg *eg = &o->t->eg;
    sx_ctx scratch;
    sx_extracted best;
    sx_optimizer apart = *o;
    apart.cx = &scratch;
    *word = NULL;
    *count = 0;
    sx_ctx_init(&scratch, o->cx->arena.limit_bytes - o->cx->arena.used_bytes);
    scratch.cancelled = o->cx->cancelled;
    scratch.cancelled_self = o->cx->cancelled_self;
    uint64_t *drawn = SX_NEW_ARRAY(&scratch, uint64_t, eg->node_count);
    sx_code code = drawn == NULL ? scratch.error.code : SX_OK;
    if (code == SX_OK) {
        draw_costs(o, cost, seed, drawn);
        code = sx_optimizer_extract(&apart, SX_COST_FORESEEN, drawn, fuel, &best);
    }
    uint32_t size = 0;
    for (uint32_t c = 0; code == SX_OK && c < eg->node_count; c++) {
        size += best.choice[c] != SX_EG_NONE ? 2 : 0;
    }
    *word = code == SX_OK ? SX_NEW_ARRAY(o->cx, uint32_t, size + 1) : NULL;
    for (uint32_t c = 0; *word != NULL && c < eg->node_count; c++) {
        if (best.choice[c] != SX_EG_NONE) {
            (*word)[(*count)++] = c;
            (*word)[(*count)++] = best.choice[c];
        }
    }
    if (code != SX_OK) {
        code = SX_FAIL(o->cx, code, "%s", scratch.error.text);
    } else if (*word == NULL) {
        code = o->cx->error.code;
    }
    sx_ctx_fini(&scratch);
    return code;
}

#define SAMPLED_NODES_MAX 400000u /* of all samples together: fewer of a larger graph */

/* Kernels of programs that are the best by costs a little off: what fuses best is not always what costs least
 * before. */
sx_code sx_optimizer_fuse_samples(sx_optimizer *o)
{
    SX_ASSERT(sx_eg_is_rebuilt(&o->t->eg));
    const sx_optimize_options *options = o->options;
    uint32_t nodes = o->t->eg.node_count;
    uint32_t most = SAMPLED_NODES_MAX / (nodes + 1) + 1;
    uint32_t count = options->samples < most ? options->samples : most;
    uint32_t **word = SX_NEW_ARRAY(o->cx, uint32_t *, count);
    uint32_t *size = SX_NEW_ARRAY(o->cx, uint32_t, count);
    uint64_t *cost[2];
    bool fresh;
    if (word == NULL || size == NULL) {
        return o->cx->error.code;
    }
    SX_TRY(sx_optimizer_costs(o, SX_COST_FORESEEN, &cost[0]));
    SX_TRY(sx_optimizer_costs(o, SX_COST_OPERATIONS, &cost[1]));
    for (uint32_t i = 0; i < count; i++) {
        uint64_t seed = sx_hash64((sx_span){NULL, 0}, options->sample_seed + i);
        SX_TRY(draw_program(o, cost[i % 2], seed, options->extract_fuel / 4 / count, &word[i],
                            &size[i]));
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *choice = SX_NEW_ARRAY(o->cx, uint32_t, o->t->eg.node_count);
        if (choice == NULL) {
            return o->cx->error.code;
        }
        memset(choice, 0xFF, o->t->eg.node_count * sizeof(uint32_t));
        for (uint32_t k = 0; k < size[i]; k += 2) {
            choice[word[i][k]] = word[i][k + 1];
        }
        SX_TRY(sx_optimizer_fuse(o, choice, true, NULL, &fresh));
    }
    return SX_OK;
}

/* What the next search goes on with. */
sx_code sx_optimizer_leave(sx_optimizer *o, const uint32_t *choice, uint32_t kernel_first)
{
    SX_ASSERT(o->options->memory != NULL && kernel_first <= o->t->eg.node_count);
    uint32_t known = o->known != NULL ? o->known->run_count : 0;
    sx_memory_run *run = SX_NEW_ARRAY(o->cx, sx_memory_run, known + 1);
    if (run == NULL) {
        return o->cx->error.code;
    }
    for (uint32_t i = 0; i < known; i++) {
        run[i] = o->known->run[i];
    }
    run[known] = (sx_memory_run){kernel_first, o->t->eg.node_count};
    sx_memory_source source = {.t = o->t,
                               .set = &o->set,
                               .program = o->in,
                               .node = o->input_node,
                               .choice = choice,
                               .run = run,
                               .run_count = known + 1,
                               .stop = o->report->stop};
    return sx_memory_put(o->cx, o->options->memory, &source);
}
