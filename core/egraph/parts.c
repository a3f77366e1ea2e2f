/* parts.c - a program of equal layers: each distinct part is optimised once, then the whole is put together (optimize.h). */
#include "core/egraph/optimize.h"

#include "core/egraph/bundle.h"
#include "core/ir/shard.h"

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
    bool nested;  /* some part was cut again: neither stored nor looked for */
    sx_bundle_part *
        stored; /* where the snapshot of each part went in options->snapshot, or NULL; [PLACES_MAX] */
    /* where the parts are looked for in a stored program: */
    const sx_bundle *bundle;    /* NULL: they are saturated */
    const sx_meeting **meeting; /* by number of part; [PLACES_MAX] */
    uint32_t *met_with;         /* number of the stored part likewise */
    uint32_t place;             /* the use, here and there, that is looked at */
    uint32_t wanted;            /* the stored part to look in next */
    bool missed;                /* some part did not meet */
} divider;
#define PLACES_MAX (SX_ROLL_PARTS_MAX + 1) /* of what comes of one cut */

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

/* What is left for the next part; or its share, which is that of its fuel of extraction. */
static sx_eg_limits left_limits(const divider *d, uint64_t extract_fuel)
{
    const sx_optimize_options *options = d->options;
    sx_eg_limits limits = options->limits;
    size_t bytes = d->cx->arena.used_bytes - d->bytes_start;
    limits.bytes -= bytes < limits.bytes ? bytes : limits.bytes;
    if (options->fair) {
        double share = (double)extract_fuel / ((double)options->extract_fuel + 1);
        share = share < 1 ? share : 1;
        limits.nodes = (uint32_t)(limits.nodes * share);
        limits.fuel = (uint64_t)((double)limits.fuel * share);
        return limits;
    }
    limits.nodes -= d->report->nodes < limits.nodes ? d->report->nodes : limits.nodes;
    limits.fuel -= d->report->fuel < limits.fuel ? d->report->fuel : limits.fuel;
    return limits;
}

static void add_report(sx_optimize_report *sum, const sx_optimize_report *one, bool first)
{
    sum->stop = sum->stop == SX_STOP_SATURATED ? one->stop : sum->stop;
    sum->rounds = one->rounds > sum->rounds ? one->rounds : sum->rounds;
    sum->nodes += one->nodes;
    sum->classes += one->classes;
    sum->fuel += one->fuel;
    sum->extract_fuel += one->extract_fuel;
    sum->unproved = sum->unproved == NULL ? one->unproved : sum->unproved;
    sum->proven = (first || sum->proven) && one->proven;
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        sum->match_count[r] += one->match_count[r];
        sum->union_count[r] += one->union_count[r];
    }
}

/* The snapshot of part `number` behind those before it. */
static void keep_snapshot(divider *d, sx_buf *snapshot, uint32_t number)
{
    sx_buf *bundle = d->options->snapshot;
    if (snapshot->len == 0) {
        d->stored = NULL; /* too large: nothing is stored */
        return;
    }
    sx_buf_pad(bundle, SX_SNAPSHOT_PAGE);
    d->stored[number] = (sx_bundle_part){bundle->len, snapshot->len};
    sx_buf_put_span(bundle, sx_buf_span(snapshot));
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
    options.limits = left_limits(d, extract_fuel);
    options.extract_fuel = extract_fuel;
    sx_buf snapshot;
    bool stores = d->stored != NULL && !d->nested && d->part_count < PLACES_MAX;
    sx_buf_init(&snapshot, stores ? d->options->snapshot->limit : 0);
    options.snapshot = stores ? &snapshot : NULL;
    sx_code code = sx_optimize_whole(d->cx, program, d->device, &options, &better, one);
    if (stores && code == SX_OK) {
        keep_snapshot(d, &snapshot, d->part_count);
    }
    sx_buf_fini(&snapshot);
    SX_TRY(code);
    add_report(d->report, one, d->part_count == 0);
    sx_optimize_part part = one->part[0];
    part.use_count = 0;
    return put_part(d, key, part, number);
}

/* The part looked for in the stored one at its place. Not there: it stands for itself, and d->missed. */
static sx_code meet_part(divider *d, const sx_graph *program, const sx_key *key, uint32_t *number)
{
    sx_ctx *cx = d->cx;
    sx_library_graph *graph = SX_NEW(cx, sx_library_graph);
    sx_meeting *meeting = SX_NEW(cx, sx_meeting);
    bool enabled[SX_RULE_COUNT];
    sx_optimize_part part = {.program = program, .stop = SX_STOP_SATURATED};
    if (graph == NULL || meeting == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_optimize_rules(cx, d->options, enabled));
    SX_TRY(sx_library_load(cx, sx_bundle_snapshot(d->bundle, d->wanted),
                           &d->options->snapshot_rules,
                           sx_meet_kernels(program, d->options->with_certificate), graph));
    SX_TRY(sx_bundle_names(cx, d->bundle, d->place, program, graph));
    SX_TRY(sx_meet(cx, graph, program, enabled, d->options->with_certificate, meeting));
    d->missed = d->missed || !meeting->met || d->part_count >= PLACES_MAX;
    SX_TRY(sx_graph_adopt(cx, meeting->met ? meeting->better : program, program, &part.better));
    part.certificate = meeting->certificate;
    part.rounds = meeting->rounds;
    part.nodes = meeting->nodes;
    part.classes = meeting->classes;
    part.fuel = meeting->fuel;
    d->report->rounds = part.rounds > d->report->rounds ? part.rounds : d->report->rounds;
    d->report->nodes += part.nodes;
    d->report->classes += part.classes;
    d->report->fuel += part.fuel;
    if (!d->missed) {
        d->meeting[d->part_count] = meeting;
        d->met_with[d->part_count] = d->wanted;
    }
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

/* A division of a program while it is being worked on. */
typedef struct {
    const sx_roll *roll;
    uint32_t *piece;         /* [roll->part_count] */
    const sx_graph **better; /* what came of them */
} division;

static sx_code division_grow(sx_ctx *cx, division *v, const sx_roll *roll, uint32_t known)
{
    uint32_t *piece = SX_NEW_ARRAY(cx, uint32_t, roll->part_count);
    const sx_graph **better = SX_NEW_ARRAY(cx, const sx_graph *, roll->part_count);
    if (piece == NULL || better == NULL) {
        return cx->error.code;
    }
    for (uint32_t p = 0; p < known; p++) {
        piece[p] = v->piece[p];
        better[p] = v->better[p];
    }
    *v = (division){roll, piece, better};
    return SX_OK;
}

/* ---- seams: where a kernel of one part could have been computed in a kernel of the next ---- */

#define SEAMS_MAX 4u
#define SEAM_FUEL_SHARE 64u /* of the fuel of extraction: only kernels are left to choose from */

/* The node of output `index` of what part `p` became. */
static const sx_node *result_node(const division *v, uint32_t p, uint32_t index)
{
    return sx_graph_node(v->better[p], v->better[p]->output[index].node);
}

/* Whether the use after `u` reads an elementwise kernel of it. Equal parts in a row have been cut where this costs least. */
static bool is_seam(const division *v, uint32_t u)
{
    const sx_roll_use *use = v->roll->use;
    const sx_graph *next = v->roll->part[use[u + 1].part].program;
    uint32_t k = 0;
    if (v->roll->part[use[u].part].use_count > 1 && v->roll->part[use[u + 1].part].use_count > 1) {
        return false;
    }
    for (uint32_t n = 0; n < next->node_count; n++) {
        const sx_node *node = &next->node[n];
        if (node->op != SX_OP_PARAMETER) {
            continue;
        }
        sx_roll_value value = use[u + 1].argument[k++];
        if (value.use != u || sx_graph_attr(next, node)->weight != 0) {
            continue;
        }
        const sx_node *made = result_node(v, use[u].part, value.index);
        const sx_attr *attr = sx_graph_attr(v->better[use[u].part], made);
        if (made->op == SX_OP_FUSED && sx_body_kernel_kind(attr->body) == SX_KERNEL_MAP) {
            return true;
        }
    }
    return false;
}

/* Both uses as one part whose kernels are fused once more; *gained false where that is no cheaper. */
static sx_code join_seam(divider *d, division *v, uint32_t u, uint64_t extract_fuel, bool *gained)
{
    sx_ctx *cx = d->cx;
    const sx_roll *outer;
    const sx_roll *inner;
    sx_graph *stitched;
    sx_graph *better;
    sx_optimize_options options = *d->options;
    sx_optimize_report *one = SX_NEW(cx, sx_optimize_report);
    sx_key key;
    uint32_t number;
    if (one == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_roll_join(cx, v->roll, u, &outer, &inner));
    SX_TRY(sx_roll_expand(cx, inner, v->better, &stitched));
    options.limits = left_limits(d, extract_fuel);
    options.limits.rounds = 0; /* the rules have had their turn: kernels are fused, nothing else */
    options.snapshot = NULL;
    options.extract_fuel = extract_fuel;
    SX_TRY(sx_optimize_whole(cx, stitched, d->device, &options, &better, one));
    one->stop = SX_STOP_SATURATED;
    add_report(d->report, one, false);
    *gained = one->objective_after < one->objective_before;
    if (!*gained) {
        return SX_OK;
    }
    sx_optimize_part part = one->part[0];
    part.program = inner->whole;
    part.stop = SX_STOP_SATURATED;
    part.roll = inner;
    part.piece = v->piece;
    part.stitched = stitched;
    part.use_count = 0;
    SX_TRY(sx_graph_key(cx, part.program, &key));
    SX_TRY(put_part(d, &key, part, &number));
    SX_TRY(division_grow(cx, v, outer, inner->part_count));
    v->piece[inner->part_count] = number;
    v->better[inner->part_count] = better;
    return SX_OK;
}

static sx_code join_seams(divider *d, division *v, uint64_t extract_fuel)
{
    uint32_t tried = 0;
    for (uint32_t u = 0; u + 1 < v->roll->use_count && tried < SEAMS_MAX; u++) {
        bool gained;
        if (is_seam(v, u)) {
            tried++;
            SX_TRY(join_seam(d, v, u, extract_fuel, &gained));
        }
    }
    return SX_OK;
}

/* ---- a program in pieces ---- */

/* The stored part at the first place where part p is used. */
static uint32_t stored_part(divider *d, const sx_roll *roll, uint32_t p)
{
    const sx_bundle *b = d->bundle;
    uint32_t u = 0;
    while (u < roll->use_count && roll->use[u].part != p) {
        u++;
    }
    d->missed = d->missed || u >= b->header.use_count;
    d->place = u;
    return d->missed ? 0 : b->word[b->use_first[u]];
}

static sx_code divide_part(divider *d, const sx_graph *program, const sx_roll *roll,
                           const sx_key *key, uint32_t depth, uint64_t extract_fuel,
                           uint32_t *number)
{
    sx_ctx *cx = d->cx;
    uint32_t *order;
    uint64_t operations = 1;
    division v = {0};
    sx_graph *whole;
    SX_TRY(order_parts(cx, roll, &order));
    SX_TRY(division_grow(cx, &v, roll, 0));
    for (uint32_t p = 0; p < roll->part_count; p++) {
        operations += roll->part[p].node_count;
    }
    for (uint32_t i = 0; i < roll->part_count; i++) {
        uint32_t p = order[i];
        uint64_t fuel = extract_fuel / operations * (roll->part[p].node_count + 1);
        if (d->bundle != NULL) {
            d->wanted = stored_part(d, roll, p);
            if (d->missed) {
                return SX_OK;
            }
        }
        SX_TRY(optimise_part(d, roll->part[p].program, depth + 1,
                             fuel > EXTRACT_FUEL_MIN ? fuel : EXTRACT_FUEL_MIN, &v.piece[p]));
        if (d->missed) {
            return SX_OK;
        }
        v.better[p] = d->part[v.piece[p]].better;
    }
    SX_TRY(join_seams(d, &v, extract_fuel / SEAM_FUEL_SHARE + EXTRACT_FUEL_MIN));
    SX_TRY(sx_roll_expand(cx, v.roll, v.better, &whole));
    sx_optimize_part part = {
        .program = program, .better = whole, .roll = v.roll, .piece = v.piece, .stitched = whole};
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
    d->nested = d->nested || roll != NULL;
    if (d->bundle != NULL) {
        d->missed = d->missed || d->nested;
        return d->missed ? SX_OK : meet_part(d, program, &key, number);
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

/* Operations without a kernel of their own (some of them always): what must be taken instead may cost more than their estimate. */
static bool lacks_kernels(const sx_graph *graph)
{
    const uint64_t lacking = UINT64_C(1) << SX_OP_ATTENTION | UINT64_C(1) << SX_OP_ONLINE_DOT |
                             UINT64_C(1) << SX_OP_CONVOLUTION | UINT64_C(1) << SX_OP_REDUCE_WINDOW;
    uint64_t ops = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        ops |= UINT64_C(1) << graph->node[i].op;
    }
    return (ops & lacking) != 0;
}

static void begin_report(divider *d)
{
    *d->report = (sx_optimize_report){.stop = SX_STOP_SATURATED};
    d->bytes_start = d->cx->arena.used_bytes;
}

/* Costs before and after, and the parts. */
static sx_code report_whole(divider *d, const sx_graph *in, const sx_graph *whole)
{
    sx_ctx *cx = d->cx;
    sx_optimize_report *report = d->report;
    const sx_objective time = {.time = 1};
    const sx_objective *objective = &d->options->objective;
    count_uses(d);
    SX_TRY(sx_optimize_cost(cx, in, d->device, &time, &report->cost_before_ns));
    SX_TRY(sx_optimize_cost(cx, whole, d->device, &time, &report->cost_after_ns));
    SX_TRY(sx_optimize_cost(cx, in, d->device, objective, &report->objective_before));
    SX_TRY(sx_optimize_cost(cx, whole, d->device, objective, &report->objective_after));
    report->bound_ns =
        report->proven && sx_objective_is_time(objective) ? report->cost_after_ns : 0;
    report->part = d->part;
    report->part_count = d->part_count;
    return SX_OK;
}

/* What was kept of the parts becomes a bundle, or nothing is stored. */
static sx_code end_bundle(divider *d, const sx_graph *in, const sx_roll *roll,
                          const uint32_t *piece)
{
    sx_ctx *cx = d->cx;
    sx_buf *bytes = d->options->snapshot;
    sx_library_info info = {.cost_before_ns = d->report->cost_before_ns,
                            .cost_after_ns = d->report->cost_after_ns};
    sx_bundle_part *part = SX_NEW_ARRAY(cx, sx_bundle_part, roll->part_count + 1);
    if (part == NULL) {
        return cx->error.code;
    }
    if (d->stored == NULL || d->nested) {
        sx_buf_clear(bytes);
        return SX_OK;
    }
    for (uint32_t p = 0; p < roll->part_count; p++) {
        part[p] = d->stored[piece[p]];
    }
    SX_TRY(sx_graph_key(cx, in, &info.program));
    sx_code code = sx_bundle_end(cx, roll, part, &info, &d->options->snapshot_rules, bytes);
    if (code == SX_LIMIT) {
        sx_ctx_reset_error(cx);
        sx_buf_clear(bytes);
        return SX_OK;
    }
    return code;
}

static sx_code begin_bundle(divider *d, const sx_roll *roll)
{
    d->stored = SX_NEW_ARRAY(d->cx, sx_bundle_part, PLACES_MAX);
    if (d->stored == NULL) {
        return d->cx->error.code;
    }
    sx_code code = sx_bundle_begin(d->cx, roll, d->options->snapshot);
    if (code == SX_LIMIT) {
        sx_ctx_reset_error(d->cx);
        d->stored = NULL;
        return SX_OK;
    }
    return code;
}

/* Put together from its parts the program came out dearer than it was: it is searched once more as a whole, with what they have left of
 * the limits; the report counts both. */
static sx_code search_again(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                            const sx_optimize_options *options, size_t spent_bytes, sx_graph **out,
                            sx_optimize_report *report)
{
    sx_optimize_options left = *options;
    sx_optimize_report *parts = SX_NEW(cx, sx_optimize_report);
    if (parts == NULL) {
        return cx->error.code;
    }
    *parts = *report;
    left.limits.nodes -= parts->nodes < left.limits.nodes ? parts->nodes : left.limits.nodes;
    left.limits.fuel -= parts->fuel < left.limits.fuel ? parts->fuel : left.limits.fuel;
    left.limits.bytes -= spent_bytes < left.limits.bytes ? spent_bytes : left.limits.bytes;
    SX_TRY(sx_optimize_whole(cx, in, device, &left, out, report));
    report->searched_again = true;
    report->nodes += parts->nodes;
    report->classes += parts->classes;
    report->fuel += parts->fuel;
    report->rounds = parts->rounds > report->rounds ? parts->rounds : report->rounds;
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        report->match_count[r] += parts->match_count[r];
        report->union_count[r] += parts->union_count[r];
    }
    return SX_OK;
}

sx_code sx_optimize(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                    const sx_optimize_options *options, sx_graph **out, sx_optimize_report *report)
{
    size_t bytes_start = cx->arena.used_bytes;
    const sx_roll *roll = NULL;
    bool on_mesh = in->sharding != NULL && options->unfused; /* parts do not know how values lie */
    if (!options->whole && !on_mesh) {
        SX_TRY(sx_roll_find(cx, in, &roll));
    }
    if (on_mesh) {
        SX_TRY(sx_optimize_whole(cx, in, device, options, out, report));
        return sx_sharding_restore(cx, in, *out);
    }
    if (roll == NULL) {
        return sx_optimize_whole(cx, in, device, options, out, report);
    }
    divider d = {.cx = cx, .device = device, .options = options, .report = report};
    uint32_t last;
    begin_report(&d);
    SX_TRY(options->snapshot != NULL ? begin_bundle(&d, roll) : SX_OK);
    SX_TRY(divide_part(&d, in, roll, &(sx_key){{0}}, 0, options->extract_fuel, &last));
    sx_graph *whole = d.part[last].better;
    SX_TRY(report_whole(&d, in, whole));
    /* values that were shared across layers may have been computed in each: never worse than the input */
    if (report->objective_after > report->objective_before && !lacks_kernels(in) &&
        !options->unfused) {
        if (options->snapshot != NULL) {
            sx_buf_clear(options->snapshot);
        }
        return search_again(cx, in, device, options, cx->arena.used_bytes - bytes_start, out,
                            report);
    }
    SX_TRY(options->snapshot != NULL ? end_bundle(&d, in, roll, d.part[last].piece) : SX_OK);
    *out = whole;
    return SX_OK;
}

/* ---- looking for the parts in a stored program ---- */

/* Parts as they met, to the whole. *alike false: other parts, or wired in another way. */
static sx_code pair_whole(divider *d, const sx_roll *roll, const uint32_t *piece, sx_meeting *whole,
                          bool *alike)
{
    sx_ctx *cx = d->cx;
    const sx_bundle *b = d->bundle;
    const sx_meeting **meeting = SX_NEW_ARRAY(cx, const sx_meeting *, roll->part_count + 1);
    if (meeting == NULL) {
        return cx->error.code;
    }
    *alike = b->header.use_count == roll->use_count;
    for (uint32_t u = 0; u < roll->use_count && *alike; u++) {
        *alike = b->word[b->use_first[u]] == d->met_with[piece[roll->use[u].part]];
    }
    for (uint32_t p = 0; p < roll->part_count && *alike; p++) {
        meeting[p] = d->meeting[piece[p]];
        whole->inserted += meeting[p]->inserted;
        for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
            whole->used[r] = whole->used[r] || meeting[p]->used[r];
        }
    }
    return *alike ? sx_bundle_wired(cx, b, roll, meeting, whole, alike) : SX_OK;
}

sx_code sx_optimize_meet(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                         const sx_optimize_options *options, sx_span bytes,
                         sx_optimize_report *report, sx_meeting *meeting)
{
    const sx_roll *roll = NULL;
    sx_bundle bundle;
    bool alike;
    uint32_t last = 0;
    *meeting = (sx_meeting){0};
    SX_TRY(sx_bundle_open(cx, bytes, &options->snapshot_rules, &bundle));
    SX_TRY(sx_roll_find(cx, in, &roll));
    if (roll == NULL || roll->use_count != bundle.header.use_count) {
        return SX_OK;
    }
    divider d = {.cx = cx,
                 .device = device,
                 .options = options,
                 .report = report,
                 .bundle = &bundle,
                 .meeting = SX_NEW_ARRAY(cx, const sx_meeting *, PLACES_MAX),
                 .met_with = SX_NEW_ARRAY(cx, uint32_t, PLACES_MAX)};
    if (d.meeting == NULL || d.met_with == NULL) {
        return cx->error.code;
    }
    begin_report(&d);
    SX_TRY(divide_part(&d, in, roll, &(sx_key){{0}}, 0, options->extract_fuel, &last));
    if (d.missed) {
        return SX_OK;
    }
    SX_TRY(pair_whole(&d, roll, d.part[last].piece, meeting, &alike));
    SX_TRY(report_whole(&d, in, d.part[last].better));
    bool worse = report->objective_after > report->objective_before && !lacks_kernels(in) &&
                 !options->unfused;
    if (!alike || worse || report->unproved != NULL) {
        return SX_OK;
    }
    meeting->met = true;
    meeting->better = d.part[last].better;
    meeting->rounds = report->rounds;
    meeting->nodes = report->nodes;
    meeting->classes = report->classes;
    meeting->fuel = report->fuel;
    return sx_meeting_name_rules(cx, meeting);
}

/* ---- the certificate of the whole ---- */

static sx_code put_program(sx_ctx *cx, const char *name, const sx_graph *graph, sx_buf *text)
{
    sx_buf program;
    sx_buf_init(&program, SX_TEXT_BYTES_MAX);
    sx_code code = sx_graph_print(cx, graph, &program);
    code = code == SX_OK ? sx_buf_check(cx, &program, name) : code;
    sx_buf_print(text, "%s %zu\n", name, program.len);
    sx_buf_put_span(text, sx_buf_span(&program));
    sx_buf_fini(&program);
    return code;
}

static void put_value(sx_roll_value value, sx_buf *text)
{
    sx_buf_print(text, value.use == SX_ROLL_PARAMETER ? " parameter" : " %u", value.use);
    sx_buf_print(text, " %u", value.index);
}

/* A part that was cut again: how its pieces, by their numbers in the certificate, make it. */
static sx_code put_divided(sx_ctx *cx, const sx_optimize_part *part, const uint32_t *number,
                           sx_buf *text)
{
    const sx_roll *roll = part->roll;
    sx_buf_put_text(text, "part divided\n");
    SX_TRY(put_program(cx, "input", part->program, text));
    SX_TRY(put_program(cx, "output", part->stitched, text));
    sx_buf_print(text, "uses %u\n", roll->use_count);
    for (uint32_t i = 0; i < roll->use_count; i++) {
        const sx_roll_use *use = &roll->use[i];
        const sx_graph *program = roll->part[use->part].program;
        sx_buf_print(text, "use %u", number[part->piece[use->part]]);
        for (uint32_t k = 0, p = 0; k < program->node_count; k++) {
            if (program->node[k].op == SX_OP_PARAMETER) {
                put_value(use->argument[p++], text);
            }
        }
        sx_buf_put_text(text, "\n");
    }
    sx_buf_put_text(text, "outputs");
    for (uint32_t i = 0; i < part->program->output_count; i++) {
        put_value(roll->output[i], text);
    }
    sx_buf_put_text(text, "\n");
    return SX_OK;
}

/* Writes what shows part->program equal to part->better; *count parts are written before it and after it. */
static sx_code put_part_proof(sx_ctx *cx, const sx_optimize_part *part, const uint32_t *number,
                              uint32_t *count, sx_buf *text)
{
    uint32_t first = *count;
    if (part->roll != NULL) {
        SX_TRY(put_divided(cx, part, number, text));
        ++*count;
    }
    if (part->roll == NULL || part->stitched != part->better) {
        sx_buf_put_text(text, "part proved\n");
        sx_buf_put_span(text, part->certificate);
        ++*count;
    }
    if (*count == first + 2) {
        sx_buf_print(text, "part chained %u %u\n", first, first + 1);
        ++*count;
    }
    return SX_OK;
}

sx_code sx_optimize_certificate(sx_ctx *cx, const sx_optimize_report *report, sx_buf *text)
{
    uint32_t *number = SX_NEW_ARRAY(cx, uint32_t, report->part_count + 1);
    uint32_t count = 0;
    sx_buf parts;
    if (number == NULL || report->unproved != NULL) {
        return report->unproved != NULL ? SX_OK : cx->error.code;
    }
    sx_buf_init(&parts, text->limit);
    sx_code code = SX_OK;
    for (uint32_t i = 0; i < report->part_count && code == SX_OK; i++) {
        code = put_part_proof(cx, &report->part[i], number, &count, &parts);
        number[i] = count - 1;
    }
    code = code == SX_OK ? sx_buf_check(cx, &parts, "certificate") : code;
    sx_buf_print(text, "symplex-proof 1\nparts %u\n", count);
    sx_buf_put_span(text, sx_buf_span(&parts));
    sx_buf_put_text(text, "end\n");
    sx_buf_fini(&parts);
    return code == SX_OK ? sx_buf_check(cx, text, "certificate") : code;
}
