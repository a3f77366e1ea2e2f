/* rules_region.c - scan and cond: the gradients of their programs are programs.
 *
 * The way back over a scan is a scan over the slices in reverse order. It carries the cotangents of what the scan
 * carries, and the sums of those of the operands that it sees whole; it reads slice by slice what its step needs: the
 * sliced operands, the values at the start of each round, which the scan stacks for it, and the cotangents of stacked
 * results; it stacks the cotangents of sliced operands. What a round computes in between is computed again. */
#include "core/grad/sweep.h"
#include "core/ir/extent.h"

#include <stdio.h>

static bool has(uint64_t set, uint32_t k)
{
    SX_ASSERT(k < 64);
    return (set >> k & 1) != 0;
}

/* ---- the gradient of a body ---- */

typedef struct {
    sx_sweep s;                               /* over the body */
    uint64_t wanted;                          /* parameters whose cotangents are asked for */
    uint64_t given;                           /* results that have one */
    sx_node_id above[SX_PROGRAM_RESULTS_MAX]; /* it, a parameter of s.graph */
    bool *needed;                             /* [nodes of s.graph] by the cotangents asked for */
} body;

static sx_node_id put_parameter(sx_sweep *s, const sx_type *type)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "at%u", s->graph->node_count);
    sx_attr attr = {.present = sx_op_info_of(SX_OP_PARAMETER)->attrs, .name = sx_span_of(name)};
    attr.type = *type;
    return sx_step(s, SX_OP_PARAMETER, &attr, NULL, 0);
}

/* The cotangent of parameter k, a node of s.graph; SX_GRAD_NONE: zero. */
static uint32_t below(const body *b, uint32_t k)
{
    return has(b->wanted, k) ? b->s.cotangent[b->s.image[k].i] : SX_GRAD_NONE;
}

static bool *reach(sx_ctx *cx, const sx_graph *graph, bool *reached)
{
    for (uint32_t n = reached != NULL ? graph->node_count : 0; n-- > 0;) {
        const sx_node *node = &graph->node[n];
        for (uint32_t k = 0; reached[n] && k < node->input_count; k++) {
            reached[sx_graph_input(graph, node, k).i] = true;
        }
    }
    SX_ASSERT(reached != NULL || cx->error.code != SX_OK);
    return reached;
}

static sx_code differentiate(sx_ctx *cx, const sx_program *program, uint64_t wanted, uint64_t given,
                             body *b)
{
    const sx_graph *graph = program->graph;
    bool *wrt = SX_NEW_ARRAY(cx, bool, graph->node_count);
    *b = (body){.s = {.cx = cx, .from = graph, .wrt = wrt, .body = true}};
    b->s.reached = SX_NEW_ARRAY(cx, bool, graph->node_count);
    if (wrt == NULL || b->s.reached == NULL) {
        return cx->error.code;
    }
    b->wanted = wanted;
    b->given = given;
    for (uint32_t k = 0; k < program->parameter_count; k++) {
        wrt[k] = has(wanted, k);
    }
    for (uint32_t r = 0; r < graph->output_count; r++) {
        b->s.reached[graph->output[r].node.i] |= has(given, r);
    }
    SX_TRY(sx_sweep_forward(&b->s));
    for (uint32_t r = 0; r < graph->output_count && b->s.code == SX_OK; r++) {
        if (has(given, r)) {
            b->above[r] = put_parameter(&b->s, sx_program_result(program, r));
            sx_put_cotangent(&b->s, b->s.image[graph->output[r].node.i], b->above[r]);
        }
    }
    SX_TRY(sx_sweep_back(&b->s));
    b->needed = SX_NEW_ARRAY(cx, bool, b->s.graph->node_count);
    for (uint32_t k = 0; b->needed != NULL && k < program->parameter_count; k++) {
        if (below(b, k) != SX_GRAD_NONE) {
            b->needed[below(b, k)] = true;
        }
    }
    return reach(cx, b->s.graph, b->needed) != NULL ? SX_OK : cx->error.code;
}

/* Does the gradient read parameter k of the body? */
static bool reads(const body *b, uint32_t k)
{
    return b->needed[b->s.image[k].i];
}

/* ---- a region that is made: its operands, and the body beside them ---- */

typedef struct {
    sx_sweep *s;
    sx_node_id operand[SX_INPUTS_MAX];
    uint32_t count;
    sx_sweep to; /* the body */
} region;

static sx_code open_region(region *r, sx_sweep *s)
{
    *r = (region){.s = s, .to = {.cx = s->cx}};
    SX_TRY(sx_graph_make(s->cx, (sx_span){0}, NULL, &r->to.graph));
    SX_TRY(sx_graph_copy_symbols(s->cx, s->graph->symbol, s->graph->symbol_count, r->to.graph));
    return SX_OK;
}

/* One operand more; its parameter of the body. */
static sx_node_id put_operand(region *r, sx_node_id operand, bool sliced)
{
    sx_type type = sx_step_type(r->s, operand);
    if (r->count == SX_INPUTS_MAX) {
        if (r->s->code == SX_OK) {
            r->s->code = SX_FAIL(r->s->cx, SX_LIMIT, "the gradient needs more than %d operands",
                                 SX_INPUTS_MAX);
        }
        return (sx_node_id){0};
    }
    for (uint32_t d = 1; sliced && d < type.rank; d++) {
        type.dim[d - 1] = type.dim[d];
    }
    type.rank -= sliced ? 1 : 0;
    r->operand[r->count++] = operand;
    return put_parameter(&r->to, &type);
}

/* The nodes of the gradient behind the parameters, whose images are there. */
static void copy_body(sx_sweep *to, const body *b, sx_node_id *image)
{
    const sx_graph *from = b->s.graph;
    for (uint32_t n = 0; n < from->node_count; n++) {
        const sx_node *node = &from->node[n];
        sx_node_id input[SX_INPUTS_MAX];
        if (!b->needed[n] || node->op == SX_OP_PARAMETER) {
            continue;
        }
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = image[sx_graph_input(from, node, k).i];
        }
        image[n] = sx_step(to, node->op, sx_graph_attr(from, node), input, node->input_count);
    }
}

/* The cotangent of parameter k of the body in the body that is made. */
static sx_node_id made_below(sx_sweep *to, const body *b, const sx_node_id *image, uint32_t k)
{
    const sx_type *type = &b->s.from->node[k].type;
    return below(b, k) != SX_GRAD_NONE ? image[below(b, k)] : sx_step_constant(to, type, 0);
}

static void put_result(sx_sweep *to, sx_node_id node)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "r%u", to->graph->output_count);
    if (to->code == SX_OK) {
        to->code = sx_graph_add_output(to->cx, to->graph, sx_span_of(name), node);
    }
}

static sx_code close_body(sx_sweep *to, const sx_program **program)
{
    SX_TRY(to->code);
    SX_ASSERT(to->graph->output_count > 0);
    SX_TRY(sx_drop_unread(to->cx, to->graph));
    return sx_program_make(to->cx, to->graph, program);
}

/* The cotangents of the results of a region, those of nodes that are the same result added; the set of those that are
 * there and of use. */
static uint64_t gather_cotangents(sx_sweep *s, const sx_site *at,
                                  sx_node_id cotangent[SX_PROGRAM_RESULTS_MAX])
{
    uint64_t given = 0;
    for (uint32_t m = at->y.i; m < s->forward_count; m = sx_sibling_next(s->graph, at->y.i, m)) {
        if (s->cotangent[m] == SX_GRAD_NONE || !s->wanted[m]) {
            continue;
        }
        int64_t r = sx_graph_attr(s->graph, &s->graph->node[m])->result;
        SX_ASSERT(r >= 0 && r < SX_PROGRAM_RESULTS_MAX);
        sx_node_id part = {s->cotangent[m]};
        cotangent[r] =
            has(given, (uint32_t)r) ? sx_step_binary(s, SX_OP_ADD, part, cotangent[r]) : part;
        given |= UINT64_C(1) << r;
    }
    return given;
}

/* ---- scan ---- */

/* `program` with results `keep` of the first `count`, and with the values of its first `carried` parameters. */
static sx_code with_results(sx_ctx *cx, const sx_program *program, uint64_t keep, uint32_t carried,
                            const sx_program **made)
{
    const sx_graph *from = program->graph;
    sx_graph graph = *from;
    graph.output = SX_NEW_ARRAY(cx, sx_output, from->output_count + carried);
    if (graph.output == NULL) {
        return cx->error.code;
    }
    graph.output_count = 0;
    for (uint32_t r = 0; r < from->output_count; r++) {
        if (has(keep, r)) {
            graph.output[graph.output_count++] = from->output[r];
        }
    }
    for (uint32_t k = 0; k < carried; k++) {
        char name[24];
        (void)snprintf(name, sizeof(name), "start%u", k);
        const char *copy = sx_alloc_text(cx, sx_span_of(name));
        if (copy == NULL) {
            return cx->error.code;
        }
        graph.output[graph.output_count++] = (sx_output){sx_span_of(copy), {k}};
    }
    return sx_program_make(cx, &graph, made);
}

sx_code sx_stack_carried(sx_ctx *cx, sx_attr *attr)
{
    return with_results(cx, attr->step, UINT64_MAX, (uint32_t)attr->carried, &attr->step);
}

/* Node n, which is a result of a scan, where the results `keep` of it stay. */
static sx_code renumber(sx_ctx *cx, sx_graph *graph, uint32_t n, uint64_t keep,
                        const sx_program *step)
{
    sx_attr attr = *sx_graph_attr(graph, &graph->node[n]);
    uint64_t before = keep & ((UINT64_C(1) << attr.result) - 1);
    SX_ASSERT(has(keep, (uint32_t)attr.result));
    attr.step = step;
    attr.result = 0;
    for (; before != 0; before &= before - 1) {
        attr.result++;
    }
    return sx_attr_intern(cx, graph->attrs, &attr, &graph->node[n].attr);
}

/* Node n is the first of those results of a scan that are reached. It and the others are not reached any more. */
static sx_code drop_beside(sx_ctx *cx, sx_graph *graph, bool *reached, uint32_t n)
{
    const sx_attr attr = *sx_graph_attr(graph, &graph->node[n]);
    uint32_t results = attr.step->graph->output_count;
    uint64_t keep = (UINT64_C(1) << attr.carried) - 1;
    const sx_program *step;
    for (uint32_t m = n; m < graph->node_count; m = sx_sibling_next(graph, n, m)) {
        keep |= reached[m] ? UINT64_C(1) << sx_graph_attr(graph, &graph->node[m])->result : 0;
    }
    bool all = keep == (results == 64 ? UINT64_MAX : (UINT64_C(1) << results) - 1);
    SX_TRY(all ? SX_OK : with_results(cx, attr.step, keep, 0, &step));
    for (uint32_t m = sx_sibling_next(graph, n, n); m < graph->node_count;
         m = sx_sibling_next(graph, n, m)) {
        SX_TRY(all || !reached[m] ? SX_OK : renumber(cx, graph, m, keep, step));
        reached[m] = false;
    }
    reached[n] = false;
    return all ? SX_OK : renumber(cx, graph, n, keep, step);
}

sx_code sx_drop_unread(sx_ctx *cx, sx_graph *graph)
{
    bool *reached = SX_NEW_ARRAY(cx, bool, graph->node_count);
    for (uint32_t k = 0; reached != NULL && k < graph->output_count; k++) {
        reached[graph->output[k].node.i] = true;
    }
    if (reach(cx, graph, reached) == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (reached[n] && graph->node[n].op == SX_OP_SCAN) {
            SX_TRY(drop_beside(cx, graph, reached, n));
        }
    }
    return SX_OK;
}

/* The way back over one scan. Sets are of operands, which are the parameters of its step, and of results. */
typedef struct {
    sx_sweep *s;
    const sx_site *at;
    uint32_t carried, whole, count; /* operands: where those that are sliced, seen whole, end */
    uint32_t results;               /* without the carried values that it stacks */
    sx_node_id above[SX_PROGRAM_RESULTS_MAX];
    uint64_t given;  /* results with a cotangent */
    uint64_t live;   /* carried values that have one in some round, and of which it is of use */
    uint64_t wanted; /* operands behind the carried ones whose cotangents are asked for */
    body b;
    region r;
    sx_node_id *image; /* [nodes of the gradient of the step] in the step that is made */
    sx_node_id sum[SX_INPUTS_MAX]; /* of a whole operand, before the round */
} way;

/* Carried values that depend on what is wanted, and on which a result with a cotangent depends in some round. */
static sx_code find_live(way *w)
{
    uint64_t sees[SX_PROGRAM_RESULTS_MAX];
    uint64_t stands_for[SX_INPUTS_MAX];
    uint64_t start = 0;
    uint64_t useful = 0;
    uint64_t before;
    for (uint32_t k = 0; k < w->count; k++) {
        start |= sx_wants(w->s, w->at, k) ? UINT64_C(1) << k : 0;
    }
    SX_TRY(sx_program_slopes(w->s->cx, w->at->attr.step, sees));
    sx_carried_slopes(w->carried, sees, stands_for);
    for (uint32_t k = 0; k < w->carried; k++) {
        bool is_float = sx_is_float(sx_program_parameter(w->at->attr.step, k));
        useful |= is_float && (stands_for[k] & start) != 0 ? UINT64_C(1) << k : 0;
    }
    w->wanted = start & ~((UINT64_C(1) << w->carried) - 1);
    w->live = w->given & useful;
    do {
        before = w->live;
        for (uint32_t r = 0; r < w->results; r++) {
            bool counts = r < w->carried ? has(w->live, r) : has(w->given, r);
            w->live |= counts ? sees[r] & useful : 0;
        }
    } while (w->live != before);
    return SX_OK;
}

static sx_node_id turned(sx_sweep *s, sx_node_id a)
{
    sx_attr attr = {.present = SX_A(dims), .dims = {1, {0}}};
    sx_dim rounds = sx_step_type(s, a).dim[0];
    return sx_dim_equal(rounds, sx_dim_of(1)) ? a : sx_step(s, SX_OP_REVERSE, &attr, &a, 1);
}

/* Carried value k at the start of each round. */
static sx_node_id starts_of(way *w, uint32_t k)
{
    sx_attr attr = w->at->attr;
    attr.result = w->results + k;
    if (sx_program_parameter(attr.step, k)->rank == SX_RANK_MAX && w->s->code == SX_OK) {
        w->s->code = SX_FAIL(w->s->cx, SX_UNIMPLEMENTED,
                             "gradient of scan: carried operand %u has rank %d, that of all rounds "
                             "has one more",
                             k, SX_RANK_MAX);
    }
    return sx_step(w->s, SX_OP_SCAN, &attr, w->at->x, w->count);
}

/* Carried operands: cotangents of carried values, and sums for operands seen whole. */
static uint32_t put_carried(way *w)
{
    for (uint32_t k = 0; k < w->carried; k++) {
        if (has(w->live, k)) {
            const sx_type *type = sx_program_parameter(w->at->attr.step, k);
            sx_node_id last = has(w->given, k) ? w->above[k] : sx_step_constant(w->s, type, 0);
            w->image[w->b.above[k].i] = put_operand(&w->r, last, false);
        }
    }
    for (uint32_t k = w->whole; k < w->count; k++) {
        if (below(&w->b, k) != SX_GRAD_NONE) {
            sx_type type = sx_step_type(w->s, w->at->x[k]);
            w->sum[k] = put_operand(&w->r, sx_step_constant(w->s, &type, 0), false);
        }
    }
    return w->r.count;
}

/* What the step reads slice by slice, last slice first; what it does not read is not there, but for one that says how
 * many rounds there are. */
static uint32_t put_sliced(way *w)
{
    uint32_t first = w->r.count;
    for (uint32_t k = 0; k < w->whole; k++) {
        if (reads(&w->b, k)) {
            sx_node_id slices = k < w->carried ? starts_of(w, k) : w->at->x[k];
            w->image[w->b.s.image[k].i] = put_operand(&w->r, turned(w->s, slices), true);
        }
    }
    for (uint32_t r = w->carried; r < w->results; r++) {
        if (has(w->given, r) && w->b.needed[w->b.above[r].i]) {
            w->image[w->b.above[r].i] = put_operand(&w->r, turned(w->s, w->above[r]), true);
        }
    }
    if (w->r.count == first) {
        (void)put_operand(&w->r, w->at->x[w->carried], true);
    }
    return w->r.count - first;
}

/* The results of the step, and of which operand each is the cotangent. */
static uint32_t put_results(way *w, uint32_t *of)
{
    sx_sweep *to = &w->r.to;
    uint32_t count = 0;
    for (uint32_t k = 0; k < w->carried; k++) {
        if (has(w->live, k)) {
            put_result(to, made_below(to, &w->b, w->image, k));
            of[count++] = k;
        }
    }
    for (uint32_t k = w->whole; k < w->count; k++) {
        if (below(&w->b, k) != SX_GRAD_NONE) {
            sx_node_id part = made_below(to, &w->b, w->image, k);
            put_result(to, sx_step_binary(to, SX_OP_ADD, w->sum[k], part));
            of[count++] = k;
        }
    }
    for (uint32_t k = w->carried; k < w->whole; k++) {
        if (below(&w->b, k) != SX_GRAD_NONE) {
            put_result(to, made_below(to, &w->b, w->image, k));
            of[count++] = k;
        }
    }
    return count;
}

static sx_code walk_rounds(way *w)
{
    sx_sweep *s = w->s;
    sx_attr attr = {.present = sx_op_info_of(SX_OP_SCAN)->attrs};
    uint32_t of[SX_INPUTS_MAX];
    SX_TRY(find_live(w));
    uint64_t stacked = w->given & ~((UINT64_C(1) << w->carried) - 1);
    SX_TRY(differentiate(s->cx, attr.step = w->at->attr.step, w->wanted | w->live,
                         w->live | stacked, &w->b));
    w->image = SX_NEW_ARRAY(s->cx, sx_node_id, w->b.s.graph->node_count);
    SX_TRY(w->image == NULL ? s->cx->error.code : open_region(&w->r, s));
    attr.carried = put_carried(w);
    attr.sliced = put_sliced(w);
    for (uint32_t k = w->whole; k < w->count; k++) {
        if (reads(&w->b, k)) {
            w->image[w->b.s.image[k].i] = put_operand(&w->r, w->at->x[k], false);
        }
    }
    SX_TRY(s->code);
    copy_body(&w->r.to, &w->b, w->image);
    uint32_t count = put_results(w, of);
    if (count == 0) {
        return w->r.to.code;
    }
    SX_TRY(close_body(&w->r.to, &attr.step));
    for (uint32_t k = 0; k < w->count; k++) { /* operands ascending */
        for (uint32_t i = 0; i < count; i++) {
            if (of[i] == k && sx_wants(s, w->at, k)) {
                attr.result = i;
                sx_node_id part = sx_step(s, SX_OP_SCAN, &attr, w->r.operand, w->r.count);
                bool sliced = k >= w->carried && k < w->whole;
                sx_give(s, w->at, k, sliced ? turned(s, part) : part);
            }
        }
    }
    return s->code;
}

void sx_grad_scan(sx_sweep *s, const sx_site *at)
{
    way w = {.s = s, .at = at, .carried = (uint32_t)at->attr.carried, .count = at->count};
    w.whole = w.carried + (uint32_t)at->attr.sliced;
    w.results = at->attr.step->graph->output_count - w.carried;
    SX_ASSERT(w.whole <= w.count && w.results >= w.carried);
    w.given = gather_cotangents(s, at, w.above);
    sx_code code = s->code == SX_OK ? walk_rounds(&w) : s->code;
    s->code = code;
}

/* ---- cond ---- */

/* Both programs of a cond in one: the cotangents asked for of both. */
typedef struct {
    body b[2];
    region r[2];
    sx_node_id *image[2];
} branches;

/* An operand of both programs: the parameter k, or the cotangent of result k. */
static void put_both(branches *c, sx_node_id operand, uint32_t k, bool is_cotangent)
{
    for (uint32_t i = 0; i < 2; i++) {
        sx_node_id from = is_cotangent ? c->b[i].above[k] : c->b[i].s.image[k];
        c->image[i][from.i] = put_operand(&c->r[i], operand, false);
    }
}

static sx_code open_branches(sx_sweep *s, const sx_site *at, branches *c, uint64_t wanted,
                             const sx_node_id *above, uint64_t given)
{
    const sx_program *program[2] = {at->attr.then, at->attr.otherwise};
    for (uint32_t i = 0; i < 2; i++) {
        SX_TRY(differentiate(s->cx, program[i], wanted, given, &c->b[i]));
        SX_TRY(open_region(&c->r[i], s));
        c->r[i].operand[c->r[i].count++] = at->x[0];
        c->image[i] = SX_NEW_ARRAY(s->cx, sx_node_id, c->b[i].s.graph->node_count);
        if (c->image[i] == NULL) {
            return s->cx->error.code;
        }
    }
    for (uint32_t k = 0; k + 1 < at->count; k++) {
        if (reads(&c->b[0], k) || reads(&c->b[1], k)) {
            put_both(c, at->x[k + 1], k, false);
        }
    }
    for (uint32_t r = 0; r < program[0]->graph->output_count; r++) {
        if (has(given, r)) {
            put_both(c, above[r], r, true);
        }
    }
    return s->code;
}

static sx_code choose_slopes(sx_sweep *s, const sx_site *at, const sx_node_id *above,
                             uint64_t given)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_COND)->attrs};
    uint64_t sees[SX_PROGRAM_RESULTS_MAX];
    uint64_t wanted = 0;
    branches c;
    SX_TRY(sx_region_slopes(s->cx, at->op, &at->attr, sees));
    for (uint32_t k = 1; k < at->count; k++) {
        for (uint32_t r = 0; r < at->attr.then->graph->output_count && sx_wants(s, at, k); r++) {
            wanted |= has(given, r) && has(sees[r], k) ? UINT64_C(1) << (k - 1) : 0;
        }
    }
    if (wanted == 0) {
        return SX_OK;
    }
    SX_TRY(open_branches(s, at, &c, wanted, above, given));
    for (uint32_t i = 0; i < 2; i++) {
        copy_body(&c.r[i].to, &c.b[i], c.image[i]);
        for (uint32_t k = 0; k + 1 < at->count; k++) {
            if (has(wanted, k)) {
                put_result(&c.r[i].to, made_below(&c.r[i].to, &c.b[i], c.image[i], k));
            }
        }
        SX_TRY(close_body(&c.r[i].to, i == 0 ? &attr.then : &attr.otherwise));
    }
    for (uint32_t k = 0; k + 1 < at->count; k++) {
        if (has(wanted, k)) {
            sx_give(s, at, k + 1, sx_step(s, at->op, &attr, c.r[0].operand, c.r[0].count));
            attr.result++;
        }
    }
    return s->code;
}

void sx_grad_cond(sx_sweep *s, const sx_site *at)
{
    sx_node_id above[SX_PROGRAM_RESULTS_MAX];
    uint64_t given = gather_cotangents(s, at, above);
    sx_code code = s->code == SX_OK ? choose_slopes(s, at, above, given) : s->code;
    s->code = code;
}

/* A while with a cotangent has become a scan on the way forward (bounded.c). */
void sx_grad_while(sx_sweep *s, const sx_site *at)
{
    (void)s, (void)at;
    SX_UNREACHABLE();
}
