/* parts.c - a program of equal layers: each distinct part is optimised once, then the whole is put together (optimize.h). */
#include <string.h>

#include "core/egraph/optimize.h"

#define EXTRACT_FUEL_MIN 10000u /* of one part */

typedef struct {
    sx_ctx *cx;
    const sx_device *device;
    const sx_optimize_options *options;
    sx_optimize_report *report;
    size_t bytes_start;
    sx_key *key;
    uint32_t key_capacity;
    sx_optimize_part *part;
    uint32_t part_count, part_capacity;
    sx_idmap map; /* of `part` by key */
} divider;

static sx_code optimise_part(divider *d, const sx_graph *program, uint32_t depth,
                             uint64_t extract_fuel, uint32_t *number);

static bool same_key(const void *self, uint32_t id, const void *probe)
{
    const divider *d = self;
    return sx_key_equal(&d->key[id], probe);
}

static uint64_t key_hash(const sx_key *key)
{
    return sx_hash64((sx_span){key->byte, sizeof(key->byte)}, 0);
}

static sx_code put_part(divider *d, const sx_key *key, sx_optimize_part part, uint32_t *number)
{
    void *array = d->part;
    SX_TRY(sx_grow(d->cx, &array, &d->part_capacity, d->part_count + 1, sizeof(part)));
    d->part = array;
    array = d->key;
    SX_TRY(sx_grow(d->cx, &array, &d->key_capacity, d->part_count + 1, sizeof(*key)));
    d->key = array;
    *number = d->part_count;
    d->part[d->part_count] = part;
    d->key[d->part_count++] = *key;
    return sx_idmap_put(d->cx, &d->map, key_hash(key), *number);
}

/* What is left for the next part. */
static sx_eg_limits left_limits(const divider *d)
{
    sx_eg_limits limits = d->options->limits;
    size_t bytes = d->cx->arena.used_bytes - d->bytes_start;
    limits.nodes -= d->report->nodes < limits.nodes ? d->report->nodes : limits.nodes;
    limits.fuel -= d->report->fuel < limits.fuel ? d->report->fuel : limits.fuel;
    limits.bytes -= bytes < limits.bytes ? bytes : limits.bytes;
    return limits;
}

static void add_report(sx_optimize_report *sum, const sx_optimize_report *one, bool first)
{
    sum->stop = sum->stop == SX_STOP_SATURATED ? one->stop : sum->stop;
    sum->rounds = one->rounds > sum->rounds ? one->rounds : sum->rounds;
    sum->nodes += one->nodes;
    sum->classes += one->classes;
    sum->fuel += one->fuel;
    sum->proven = (first || sum->proven) && one->proven;
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        sum->match_count[r] += one->match_count[r];
        sum->union_count[r] += one->union_count[r];
    }
}

static sx_code saturate_part(divider *d, const sx_graph *program, const sx_key *key,
                             uint64_t extract_fuel, uint32_t *number)
{
    sx_optimize_options options = *d->options;
    sx_optimize_report *one = SX_NEW(d->cx, sx_optimize_report);
    sx_graph *better;
    if (one == NULL) {
        return d->cx->error.code;
    }
    options.limits = left_limits(d);
    options.extract_fuel = extract_fuel;
    SX_TRY(sx_optimize_whole(d->cx, program, d->device, &options, &better, one));
    add_report(d->report, one, d->part_count == 0);
    sx_optimize_part part = one->part[0];
    part.use_count = 0;
    return put_part(d, key, part, number);
}

/* Parts by how much of the program they make, so that limits hurt last where it matters most. */
static sx_code order_parts(sx_ctx *cx, const sx_roll *roll, uint32_t **order)
{
    *order = SX_NEW_ARRAY(cx, uint32_t, roll->part_count);
    if (*order == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < roll->part_count; i++) {
        uint64_t weight = (uint64_t)roll->part[i].use_count * roll->part[i].node_count;
        uint32_t at = i;
        while (at > 0) {
            const sx_roll_part *before = &roll->part[(*order)[at - 1]];
            if ((uint64_t)before->use_count * before->node_count >= weight) {
                break;
            }
            (*order)[at] = (*order)[at - 1];
            at--;
        }
        (*order)[at] = i;
    }
    return SX_OK;
}

static sx_code divide_part(divider *d, const sx_graph *program, const sx_roll *roll,
                           const sx_key *key, uint32_t depth, uint64_t extract_fuel,
                           uint32_t *number)
{
    sx_ctx *cx = d->cx;
    uint32_t *order;
    uint32_t *piece = SX_NEW_ARRAY(cx, uint32_t, roll->part_count);
    const sx_graph **better = SX_NEW_ARRAY(cx, const sx_graph *, roll->part_count);
    uint64_t operations = 1;
    sx_graph *whole;
    SX_TRY(order_parts(cx, roll, &order));
    if (piece == NULL || better == NULL) {
        return cx->error.code;
    }
    for (uint32_t p = 0; p < roll->part_count; p++) {
        operations += roll->part[p].node_count;
    }
    for (uint32_t i = 0; i < roll->part_count; i++) {
        uint32_t p = order[i];
        uint64_t fuel = extract_fuel / operations * (roll->part[p].node_count + 1);
        SX_TRY(optimise_part(d, roll->part[p].program, depth + 1,
                             fuel > EXTRACT_FUEL_MIN ? fuel : EXTRACT_FUEL_MIN, &piece[p]));
        better[p] = d->part[piece[p]].better;
    }
    SX_TRY(sx_roll_expand(cx, roll, better, &whole));
    sx_optimize_part part = {.program = program, .better = whole, .roll = roll, .piece = piece};
    return put_part(d, key, part, number);
}

static sx_code optimise_part(divider *d, const sx_graph *program, uint32_t depth,
                             uint64_t extract_fuel, uint32_t *number)
{
    sx_key key;
    const sx_roll *roll = NULL;
    SX_TRY(sx_graph_key(d->cx, program, &key));
    uint32_t known = sx_idmap_find(&d->map, key_hash(&key), same_key, d, &key);
    if (known != SX_IDMAP_NONE) {
        *number = known;
        return SX_OK;
    }
    if (depth < SX_OPTIMIZE_DEPTH_MAX) {
        SX_TRY(sx_roll_find(d->cx, program, &roll));
    }
    return roll == NULL ? saturate_part(d, program, &key, extract_fuel, number)
                        : divide_part(d, program, roll, &key, depth, extract_fuel, number);
}

/* How often each part is in the whole: the last part once, pieces as often as what they are pieces of uses them. */
static void count_uses(divider *d)
{
    d->part[d->part_count - 1].use_count = 1;
    for (uint32_t i = d->part_count; i-- > 0;) {
        const sx_optimize_part *part = &d->part[i];
        for (uint32_t p = 0; part->roll != NULL && p < part->roll->part_count; p++) {
            SX_ASSERT(part->piece[p] < i);
            d->part[part->piece[p]].use_count += part->use_count * part->roll->part[p].use_count;
        }
    }
}

/* Operations without a kernel of their own: what must be taken instead may cost more than their estimate. */
static bool has_attention(const sx_graph *graph)
{
    bool found = false;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        found =
            found || graph->node[i].op == SX_OP_ATTENTION || graph->node[i].op == SX_OP_ONLINE_DOT;
    }
    return found;
}

sx_code sx_optimize(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                    const sx_optimize_options *options, sx_graph **out, sx_optimize_report *report)
{
    const sx_roll *roll = NULL;
    if (!options->whole && options->certificate == NULL) {
        SX_TRY(sx_roll_find(cx, in, &roll));
    }
    if (roll == NULL) {
        return sx_optimize_whole(cx, in, device, options, out, report);
    }
    *report = (sx_optimize_report){.stop = SX_STOP_SATURATED};
    divider d = {.cx = cx,
                 .device = device,
                 .options = options,
                 .report = report,
                 .bytes_start = cx->arena.used_bytes};
    uint32_t last;
    SX_TRY(divide_part(&d, in, roll, &(sx_key){{0}}, 0, options->extract_fuel, &last));
    count_uses(&d);
    sx_graph *whole = d.part[last].better;
    SX_TRY(sx_optimize_cost(cx, in, device, &report->cost_before_ns));
    SX_TRY(sx_optimize_cost(cx, whole, device, &report->cost_after_ns));
    /* values that were shared across layers may have been computed in each: never worse than the input */
    if (report->cost_after_ns > report->cost_before_ns && !has_attention(in)) {
        return sx_optimize_whole(cx, in, device, options, out, report);
    }
    report->part = d.part;
    report->part_count = d.part_count;
    *out = whole;
    return SX_OK;
}
