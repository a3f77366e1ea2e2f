/* parts.c - a program of equal layers: each distinct part is optimised once, then the whole is put together
 * (optimize.h). */
#include "core/optimize/optimizer.h"

#include <string.h>

#include "core/base/bits.h"
#include "core/egraph/pattern.h"
#include "core/ir/extent.h"
#include "core/optimize/ahead.h"
#include "core/optimize/fragments.h"
#include "core/optimize/keep.h"
#include "core/shard/plan.h"
#include "core/store/wiring.h"

#define EXTRACT_FUEL_MIN 10000u          /* of one part */
#define PRICES_BYTES ((size_t)256 << 20) /* of a program */
#define PART_FUEL_SHARE 3u /* of its share of the fuel: more has not been worth its time */
#define WEIGHTY 4.0      /* a part that is so many times less than the whole is worth all effort, */
#define EFFORT_LEAST 0.2 /* one that is almost nothing of it so much */

typedef struct {
    sx_ctx *cx;
    const sx_device *device;
    const sx_optimize_options *options;
    const sx_pieces *pieces;
    const sx_fragment *met; /* [pieces->count] which of them have met a stored part, or NULL */
    sx_optimize_report *report;
    size_t bytes_start;
    uint32_t spent_nodes;
    uint64_t spent_fuel;
    bool searched; /* some part was saturated */
    sx_optimize_part *part;
    uint32_t part_count, part_capacity;
    sx_ahead ahead;   /* what was worked on side by side */
    double *weight;   /* [pieces->count] how much of the whole program a piece makes */
    uint32_t *number; /* [pieces->count] of the part a piece became; UINT32_MAX: none yet */
} divider;

static sx_code optimise_piece(divider *d, uint32_t piece, uint64_t extract_fuel, uint32_t *number);

static sx_code put_part(divider *d, sx_optimize_part part, uint32_t *number)
{
    void *array = d->part;
    SX_TRY(sx_grow(d->cx, &array, &d->part_capacity, d->part_count + 1, sizeof(part)));
    d->part = array;
    *number = d->part_count;
    d->part[d->part_count++] = part;
    return SX_OK;
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
    limits.nodes -= d->spent_nodes < limits.nodes ? d->spent_nodes : limits.nodes;
    limits.fuel -= d->spent_fuel < limits.fuel ? d->spent_fuel : limits.fuel;
    return limits;
}

static void add_report(divider *d, const sx_optimize_report *one)
{
    sx_optimize_report *sum = d->report;
    bool first = !d->searched;
    d->searched = true;
    d->spent_nodes += one->nodes;
    d->spent_fuel += one->fuel;
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

/* A part that is a small share of the program is worth less: what is found in it counts as little. */
static double effort_of(const divider *d, uint32_t piece)
{
    double effort = d->weight[piece] * WEIGHTY;
    return effort < EFFORT_LEAST ? EFFORT_LEAST : effort < 1 ? effort : 1;
}

/* How a piece is saturated, with what is left now. */
static sx_optimize_options options_of(const divider *d, uint32_t piece, uint64_t extract_fuel)
{
    sx_optimize_options options = *d->options;
    options.limits = left_limits(d, extract_fuel);
    options.snapshot = NULL;
    options.effort = effort_of(d, piece);
    options.extract_fuel = (uint64_t)((double)(extract_fuel / PART_FUEL_SHARE) * options.effort);
    return options;
}

static sx_code put_saturated(divider *d, uint32_t piece, const sx_graph *better,
                             const sx_optimize_report *one, uint32_t *number)
{
    const sx_graph *program = d->pieces->piece[piece].program;
    add_report(d, one);
    sx_optimize_part part = one->part[0];
    part.program = program;
    SX_TRY(sx_graph_adopt(d->cx, better, program, &part.better));
    part.use_count = 0;
    return put_part(d, part, number);
}

static sx_code saturate_piece(divider *d, uint32_t piece, uint64_t extract_fuel, uint32_t *number)
{
    const sx_piece *p = &d->pieces->piece[piece];
    const sx_optimize_options options = options_of(d, piece, extract_fuel);
    const sx_ahead_part *done = sx_ahead_take(d->cx, &d->ahead, piece, &options.limits);
    if (done != NULL) {
        if (done->keeps) {
            sx_keep_snapshot(options.keeper, &p->key, &done->snapshot);
        }
        return put_saturated(d, piece, done->better, done->report, number);
    }
    sx_optimize_report *one = SX_NEW(d->cx, sx_optimize_report);
    sx_graph *alone, *better;
    if (one == NULL) {
        return d->cx->error.code;
    }
    SX_TRY(sx_ahead_detach(d->cx, p->program, &alone));
    SX_TRY(sx_keep_optimized(d->cx, alone, &p->key, d->device, &options, &better, one));
    return put_saturated(d, piece, better, one, number);
}

/* A piece that is not cut as what was extracted for the stored part it met. */
static sx_code take_stored(divider *d, uint32_t piece, uint32_t *number)
{
    const sx_graph *program = d->pieces->piece[piece].program;
    const sx_meeting *meeting = d->met[piece].meeting;
    sx_optimize_report *report = d->report;
    sx_optimize_part part = {.program = program,
                             .certificate = meeting->certificate,
                             .stop = SX_STOP_SATURATED,
                             .rounds = meeting->rounds,
                             .nodes = meeting->nodes,
                             .classes = meeting->classes,
                             .fuel = meeting->fuel,
                             .meeting = meeting,
                             .which = d->met[piece].which};
    SX_TRY(sx_graph_adopt(d->cx, meeting->better, program, &part.better));
    report->rounds = part.rounds > report->rounds ? part.rounds : report->rounds;
    report->nodes += part.nodes;
    report->classes += part.classes;
    report->fuel += part.fuel;
    report->met_count++;
    report->met_nodes += part.nodes;
    return put_part(d, part, number);
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

/* The fuel of extraction is shared out by the number of operations. */
static uint64_t share_of(const sx_roll *roll, uint32_t p, uint64_t extract_fuel)
{
    uint64_t operations = 1;
    for (uint32_t i = 0; i < roll->part_count; i++) {
        operations += roll->part[i].node_count;
    }
    uint64_t fuel = extract_fuel / operations * (roll->part[p].node_count + 1);
    return fuel > EXTRACT_FUEL_MIN ? fuel : EXTRACT_FUEL_MIN;
}

/* ---- side by side ---- */

static bool is_listed(const divider *d, uint32_t piece)
{
    bool listed = false;
    for (uint32_t i = 0; i < d->ahead.count && !listed; i++) {
        listed = d->ahead.part[i].piece == piece;
    }
    return listed;
}

/* The pieces that will be saturated, each as it is met first. Depth is bounded by SX_PIECES_DEPTH_MAX. */
static sx_code list_pieces(divider *d, uint32_t piece, uint64_t extract_fuel)
{
    const sx_piece *p = &d->pieces->piece[piece];
    sx_ahead *ahead = &d->ahead;
    uint32_t *order;
    if (p->roll != NULL) {
        SX_TRY(order_parts(&ahead->cx, p->roll, &order));
        for (uint32_t i = 0; i < p->roll->part_count; i++) {
            uint64_t fuel = share_of(p->roll, order[i], extract_fuel);
            SX_TRY(list_pieces(d, p->inner[order[i]], fuel));
        }
        return SX_OK;
    }
    if (is_listed(d, piece) || (d->met != NULL && d->met[piece].met)) {
        return SX_OK;
    }
    const sx_optimize_keeper *keeper = d->options->keeper;
    sx_ahead_part *part;
    SX_TRY(sx_ahead_add(ahead, &part));
    part->piece = piece;
    part->program = p->program;
    part->options = options_of(d, piece, extract_fuel);
    part->keeps = keeper != NULL && sx_keep_place(keeper, &p->key) != NULL;
    return SX_OK;
}

/* Several pieces and several threads: all pieces at once. Searches in steps leave what the next piece reads. */
static void work_ahead(divider *d)
{
    const sx_team *team = d->cx->team;
    if (team != NULL && team->threads > 1 && d->options->memory == NULL &&
        list_pieces(d, 0, d->options->extract_fuel) == SX_OK && d->ahead.count > 1) {
        sx_ahead_run(&d->ahead, d->cx);
    }
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

/* Whether the use after `u` reads an elementwise kernel of it. Equal parts in a row have been cut where this
 * costs least. */
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
    uint32_t number;
    if (one == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_roll_join(cx, v->roll, u, &outer, &inner));
    SX_TRY(sx_roll_expand(cx, inner, v->better, &stitched));
    options.limits = left_limits(d, extract_fuel);
    options.limits.rounds = 0; /* the rules have had their turn: kernels are fused, nothing else */
    options.snapshot = NULL;
    options.keeper = NULL;
    options.extract_fuel = extract_fuel;
    SX_TRY(sx_optimize_whole(cx, stitched, d->device, &options, &better, one));
    one->stop = SX_STOP_SATURATED;
    add_report(d, one);
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
    SX_TRY(put_part(d, part, &number));
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

/* How the pieces make `piece`, in terms of what is stored of them; nothing is kept where one of them is not. */
static sx_code keep_wiring(divider *d, uint32_t piece)
{
    const sx_piece *whole = &d->pieces->piece[piece];
    uint32_t count = whole->roll->part_count;
    sx_optimize_keeper *keeper = d->options->keeper;
    sx_library_info info = {.program = whole->key};
    if (keeper == NULL || (d->met != NULL && d->met[piece].met)) {
        return SX_OK;
    }
    sx_wired_part *part = SX_NEW_ARRAY(d->cx, sx_wired_part, (size_t)count + 1);
    if (part == NULL) {
        return d->cx->error.code;
    }
    for (uint32_t p = 0; p < count; p++) {
        uint32_t inner = whole->inner[p];
        const sx_piece *of = &d->pieces->piece[inner];
        const sx_optimize_place *place = sx_keep_place(keeper, &of->key);
        bool met = d->met != NULL && d->met[inner].met;
        if (place == NULL || (!met && !sx_keep_has(keeper, &of->key))) {
            return SX_OK;
        }
        part[p].as.program = met ? d->met[inner].program : of->key;
        part[p].as.family = place->family;
        part[p].parameter_of = met ? d->met[inner].meeting->parameter_of : NULL;
        part[p].output_of = met ? d->met[inner].meeting->output_of : NULL;
    }
    return sx_keep_wiring(d->cx, keeper, whole->roll, part, &info, &d->options->snapshot_rules);
}

static sx_code divide_piece(divider *d, uint32_t piece, uint64_t extract_fuel, uint32_t *number)
{
    sx_ctx *cx = d->cx;
    const sx_piece *from = &d->pieces->piece[piece];
    const sx_roll *roll = from->roll;
    uint32_t *order;
    division v = {0};
    sx_graph *whole;
    SX_TRY(order_parts(cx, roll, &order));
    SX_TRY(division_grow(cx, &v, roll, 0));
    for (uint32_t i = 0; i < roll->part_count; i++) {
        uint32_t p = order[i];
        SX_TRY(optimise_piece(d, from->inner[p], share_of(roll, p, extract_fuel), &v.piece[p]));
        v.better[p] = d->part[v.piece[p]].better;
    }
    SX_TRY(join_seams(d, &v, extract_fuel / SEAM_FUEL_SHARE + EXTRACT_FUEL_MIN));
    SX_TRY(sx_roll_expand(cx, v.roll, v.better, &whole));
    SX_TRY(keep_wiring(d, piece));
    sx_optimize_part part = {.program = from->program,
                             .better = whole,
                             .roll = v.roll,
                             .piece = v.piece,
                             .stitched = whole};
    if (d->met != NULL && d->met[piece].met) {
        part.meeting = d->met[piece].meeting;
        part.which = d->met[piece].which;
    }
    return put_part(d, part, number);
}

/* Depth is bounded by SX_PIECES_DEPTH_MAX. */
static sx_code optimise_piece(divider *d, uint32_t piece, uint64_t extract_fuel, uint32_t *number)
{
    if (d->number[piece] == UINT32_MAX) {
        bool met = d->met != NULL && d->met[piece].met;
        SX_TRY(d->pieces->piece[piece].roll != NULL
                   ? divide_piece(d, piece, extract_fuel, &d->number[piece])
               : met ? take_stored(d, piece, &d->number[piece])
                     : saturate_piece(d, piece, extract_fuel, &d->number[piece]));
    }
    *number = d->number[piece];
    return SX_OK;
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

/* Operations without a kernel of their own (some of them always): what must be taken instead may cost more
 * than their estimate. */
static bool lacks_kernels(const sx_graph *graph)
{
    static const sx_op lacking[] = {SX_OP_ATTENTION, SX_OP_ONLINE_DOT, SX_OP_CONVOLUTION,
                                    SX_OP_REDUCE_WINDOW, SX_OP_SORT};
    sx_bits ops = {0};
    bool lacks = false;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        sx_bits_add(&ops, graph->node[i].op);
    }
    for (size_t k = 0; k < SX_COUNT(lacking); k++) {
        lacks = lacks || sx_bits_has(&ops, lacking[k]);
    }
    return lacks;
}

static void begin_report(divider *d)
{
    *d->report = (sx_optimize_report){.stop = SX_STOP_SATURATED};
    d->bytes_start = d->cx->arena.used_bytes;
}

static sx_code cost_of(divider *d, const sx_graph *graph, const sx_objective *objective,
                       double *cost)
{
    return sx_optimizer_cost(d->cx, graph, d->device, objective, d->options->prices, cost);
}

/* Costs before and after, and the parts. */
static sx_code report_whole(divider *d, const sx_graph *in, const sx_graph *whole)
{
    sx_optimize_report *report = d->report;
    const sx_objective time = {.time = 1};
    const sx_objective *objective = &d->options->objective;
    count_uses(d);
    SX_TRY(cost_of(d, in, &time, &report->cost_before_ns));
    SX_TRY(cost_of(d, whole, &time, &report->cost_after_ns));
    report->objective_before = report->cost_before_ns;
    report->objective_after = report->cost_after_ns;
    if (!sx_objective_is_time(objective)) {
        SX_TRY(cost_of(d, in, objective, &report->objective_before));
        SX_TRY(cost_of(d, whole, objective, &report->objective_after));
    }
    report->bound_ns =
        report->proven && sx_objective_is_time(objective) ? report->cost_after_ns : 0;
    report->part = d->part;
    report->part_count = d->part_count;
    return SX_OK;
}

/* A piece makes as much of the whole as all its uses have operations. */
static sx_code weigh(divider *d)
{
    d->weight = SX_NEW_ARRAY(d->cx, double, (size_t)d->pieces->count + 1);
    if (d->weight == NULL) {
        return d->cx->error.code;
    }
    d->weight[0] = 1;
    for (uint32_t i = 0; i < d->pieces->count; i++) {
        const sx_piece *piece = &d->pieces->piece[i];
        double sum = 0;
        for (uint32_t p = 0; piece->roll != NULL && p < piece->roll->part_count; p++) {
            sum += (double)piece->roll->part[p].node_count * piece->roll->part[p].use_count;
        }
        for (uint32_t p = 0; piece->roll != NULL && p < piece->roll->part_count; p++) {
            const sx_roll_part *part = &piece->roll->part[p];
            d->weight[piece->inner[p]] += d->weight[i] * part->node_count * part->use_count / sum;
        }
    }
    return SX_OK;
}

/* Plans of the rules, if several parts are going to be searched. */
static sx_code make_plans(divider *d, const sx_trigger **plans)
{
    uint32_t searched = 0;
    for (uint32_t i = 0; i < d->pieces->count; i++) {
        searched += d->met == NULL || !d->met[i].met ? 1 : 0;
    }
    if (searched < 2 || d->options->limits.rounds == 0 || d->options->limits.stamps) {
        return SX_OK;
    }
    bool enabled[SX_RULE_COUNT];
    sx_tensors *none = SX_NEW(d->cx, sx_tensors);
    sx_eg_ruleset *set = SX_NEW(d->cx, sx_eg_ruleset);
    if (none == NULL || set == NULL) {
        return d->cx->error.code;
    }
    SX_TRY(sx_optimize_rules(d->cx, d->options, enabled));
    SX_TRY(sx_rules_set(d->cx, none, set));
    for (uint32_t r = 0; r < set->rule_count; r++) {
        set->rule[r].enabled = enabled[r];
    }
    sx_trigger *made;
    SX_TRY(sx_trigger_make(d->cx, set, &made));
    *plans = made;
    return SX_OK;
}

static sx_code divide(sx_ctx *cx, const sx_device *device, const sx_optimize_options *options,
                      const sx_pieces *pieces, sx_graph **out, sx_optimize_report *report)
{
    divider d = {.cx = cx,
                 .device = device,
                 .options = options,
                 .pieces = pieces,
                 .met = options->fragments != NULL ? options->fragments->of : NULL,
                 .report = report,
                 .number = SX_NEW_ARRAY(cx, uint32_t, (size_t)pieces->count + 1)};
    uint32_t last;
    if (d.number == NULL) {
        return cx->error.code;
    }
    SX_TRY(weigh(&d));
    memset(d.number, 0xff, pieces->count * sizeof(*d.number));
    begin_report(&d);
    sx_optimize_options planned = *options;
    SX_TRY(make_plans(&d, &planned.limits.plans));
    d.options = &planned;
    sx_ahead_init(&d.ahead, cx, device);
    work_ahead(&d);
    sx_code code = optimise_piece(&d, 0, options->extract_fuel, &last);
    sx_ahead_fini(&d.ahead);
    SX_TRY(code);
    SX_ASSERT(last == d.part_count - 1);
    *out = d.part[last].better;
    report->proven = report->proven && report->met_count == 0;
    return report_whole(&d, pieces->piece[0].program, *out);
}

/* Put together from its parts the program came out dearer than it was: it is searched once more as a whole,
 * with what they have left of the limits; the report counts both. */
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
    report->extract_fuel += parts->extract_fuel;
    report->rounds = parts->rounds > report->rounds ? parts->rounds : report->rounds;
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        report->match_count[r] += parts->match_count[r];
        report->union_count[r] += parts->union_count[r];
    }
    return SX_OK;
}

/* ---- on a mesh: parts lie as the plan of the whole says ---- */

#define PLAN_FUEL_SHARE 2u /* problems of many placements for each value */

static double plan_ns(const sx_plan *plan)
{
    return plan->compute_ns + plan->collective_ns;
}

/* Where each value lies in the end: with the collectives that its readers want. */
static sx_code find_places(sx_ctx *cx, const sx_graph *graph, const sx_plan *plan,
                           sx_places **places)
{
    *places = SX_NEW_ARRAY(cx, sx_places, (size_t)graph->node_count + 1);
    if (*places == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        (*places)[n] = sx_graph_places(graph, n);
    }
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const sx_plan_step *step = &plan->step[i];
        bool given = graph->node[step->node].op == SX_OP_PARAMETER;
        (*places)[step->node] = given ? (*places)[step->node] : step->places;
    }
    return SX_OK;
}

static sx_code whole_on_mesh(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                             const sx_optimize_options *options, sx_graph **out,
                             sx_optimize_report *report)
{
    SX_TRY(sx_optimize_whole(cx, in, device, options, out, report));
    return sx_sharding_restore(cx, in, *out);
}

static sx_code optimize_on_mesh(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                                const sx_optimize_options *options, sx_graph **out,
                                sx_optimize_report *report)
{
    uint64_t fuel = PLAN_FUEL_SHARE * options->extract_fuel;
    sx_plan *before, *after;
    sx_places *places;
    sx_pieces pieces;
    if (options->whole) {
        return whole_on_mesh(cx, in, device, options, out, report);
    }
    SX_TRY(sx_plan_make(cx, in, device, fuel, &before));
    SX_TRY(find_places(cx, in, before, &places));
    SX_TRY(sx_pieces_find_placed(cx, in, places, &pieces));
    if (pieces.piece[0].roll == NULL) {
        return whole_on_mesh(cx, in, device, options, out, report);
    }
    SX_TRY(divide(cx, device, options, &pieces, out, report));
    SX_TRY(sx_sharding_restore(cx, in, *out));
    SX_TRY(sx_plan_make(cx, *out, device, fuel, &after));
    if (plan_ns(after) > plan_ns(before)) { /* never worse than the input */
        return whole_on_mesh(cx, in, device, options, out, report);
    }
    report->mesh_before_ns = plan_ns(before);
    report->mesh_after_ns = plan_ns(after);
    return SX_OK;
}

static sx_code optimize(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                        const sx_optimize_options *options, sx_graph **out,
                        sx_optimize_report *report)
{
    size_t bytes_start = cx->arena.used_bytes;
    sx_optimize_options again = *options;
    sx_pieces pieces;
    if (in->sharding != NULL && options->unfused) {
        return optimize_on_mesh(cx, in, device, options, out, report);
    }
    if (options->whole) {
        return sx_optimize_whole(cx, in, device, options, out, report);
    }
    if (options->fragments != NULL) {
        pieces = options->fragments->pieces;
        SX_ASSERT(pieces.piece[0].program == in);
    } else if (options->keeper != NULL) {
        SX_TRY(sx_pieces_find(cx, in, &pieces));
    } else {
        SX_TRY(sx_pieces_cut(cx, in, &pieces));
    }
    bool met = options->fragments != NULL && options->fragments->of[0].met;
    if (pieces.piece[0].roll == NULL && !met) {
        return sx_keep_optimized(cx, in, &pieces.piece[0].key, device, options, out, report);
    }
    SX_TRY(divide(cx, device, options, &pieces, out, report));
    /* values that were shared across layers may have been computed in each: never worse than the input */
    if (report->objective_after <= report->objective_before || lacks_kernels(in) ||
        options->unfused) {
        return SX_OK;
    }
    if (options->keeper != NULL) {
        sx_keep_clear(options->keeper);
    }
    again.fragments = NULL;
    return report->met_count > 0 ? optimize(cx, in, device, &again, out, report)
                                 : search_again(cx, in, device, options,
                                                cx->arena.used_bytes - bytes_start, out, report);
}

sx_code sx_optimize(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                    const sx_optimize_options *options, sx_graph **out, sx_optimize_report *report)
{
    SX_ASSERT(in != NULL && device != NULL);
    sx_optimize_options shared = *options;
    if (shared.prices != NULL) {
        return optimize(cx, in, device, options, out, report);
    }
    sx_ctx prices; /* memory of a table that parts share, on whatever thread they are worked on */
    sx_ctx_init_task(&prices, cx);
    prices.arena.limit_bytes = PRICES_BYTES;
    prices.team = cx->team;
    sx_code code = sx_prices_make(&prices, sx_device_class(device), in->symbol, in->symbol_count,
                                  &shared.prices);
    code = code == SX_OK ? optimize(cx, in, device, &shared, out, report)
                         : SX_FAIL(cx, code, "%s", prices.error.text);
    sx_ctx_fini(&prices);
    return code;
}

/* ---- the certificate of the whole ---- */

static sx_code put_program(sx_ctx *cx, const char *name, const sx_graph *graph, sx_buf *text)
{
    sx_buf program;
    sx_buf_init(&program, SX_TEXT_BYTES_MAX);
    sx_graph plain = *graph;
    plain.sharding = NULL; /* no part of what it computes */
    plain.effects = NULL;
    sx_code code = sx_graph_print(cx, &plain, &program);
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
    SX_ASSERT(text->len == 0);
    sx_buf_print(text, "symplex-proof 1\nparts %u\n", count);
    sx_buf_put_span(text, sx_buf_span(&parts));
    sx_buf_put_text(text, "end\n");
    sx_buf_fini(&parts);
    return code == SX_OK ? sx_buf_check(cx, text, "certificate") : code;
}
