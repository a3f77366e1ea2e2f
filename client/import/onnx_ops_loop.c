/* onnx_ops_loop.c - operators with a body that is repeated: Scan and Loop.
 *
 * Scan is a scan, with its axes moved to the front and back and reversed where it asks for that. A Loop whose number of
 * rounds is known before the run is a scan over the numbers of its rounds; else it is a while, and has no outputs of
 * each round. What the body names from outside is an operand that is seen whole. */
#include "client/import/onnx_import.h"
#include "core/ir/program.h"

/* Parameters of a body that are its own, in the order of the operands. */
typedef struct {
    const sx_onnx_graph *graph;
    uint32_t count;
    sx_type type[SX_INPUTS_MAX];
    uint32_t input[SX_INPUTS_MAX]; /* which input of the subgraph it is */
    uint32_t first_result;         /* outputs of the subgraph before it are no results */
    /* Loop: input 1 of the subgraph is true; does output 0 stay so? */
    bool condition_is_true, stays_true;
    /* Loop as while: behind the number of the round, the condition and the state there is a trip count. */
    bool has_trips;
    sx_node_id node[SX_INPUTS_MAX]; /* of the parameters */
} round_of;

static sx_code declare_true(sx_ox *im, sx_span name)
{
    sx_dim *known = SX_NEW(im->cx, sx_dim);
    if (known == NULL) {
        return im->code = im->cx->error.code;
    }
    *known = sx_dim_of(1);
    const sx_ox_value value = {
        .name = name, .type = {.dtype = SX_BOOL}, .known = known, .known_count = 1};
    return sx_ox_declare(im, &value);
}

static sx_code add_parameter(sx_ox *im, round_of *r, uint32_t k, sx_span name)
{
    const sx_attr attr = {
        .present = SX_A(name) | SX_A(weight) | SX_A(type), .name = name, .type = r->type[k]};
    SX_ASSERT(k < SX_INPUTS_MAX);
    r->node[k] = sx_ox_add(im, SX_OP_PARAMETER, &attr, NULL, 0);
    return im->code;
}

static sx_code begin_round(sx_ox *im, void *self)
{
    round_of *r = self;
    SX_ASSERT(r->count <= SX_INPUTS_MAX && im->is_body);
    for (uint32_t k = 0; k < r->count; k++) {
        const sx_onnx_value_info *info = &r->graph->input[r->input[k]];
        sx_dtype dtype = r->type[k].dtype;
        if (info->kind == SX_ONNX_TYPE_TENSOR && info->data_type != SX_ONNX_UNDEFINED) {
            SX_TRY(sx_ox_dtype(im, info->data_type, &dtype));
        }
        if (dtype != r->type[k].dtype) {
            return SX_OX_FAIL(im, SX_INPUT, "input %u of the body is declared %s, it is %s",
                              r->input[k], sx_dtype_name(dtype), sx_dtype_name(r->type[k].dtype));
        }
        SX_TRY(add_parameter(im, r, k, info->name));
        if (r->condition_is_true && r->input[k] == 1) { /* it is declared below, as what it is */
            continue;
        }
        const sx_ox_value value = {
            .name = info->name, .type = r->type[k], .has_node = true, .node = r->node[k]};
        SX_TRY(sx_ox_declare(im, &value));
    }
    if (r->has_trips) {
        SX_TRY(add_parameter(im, r, r->count, SX_SPAN_LITERAL("trips")));
    }
    return r->condition_is_true ? declare_true(im, r->graph->input[1].name) : SX_OK;
}

/* Output 0 of the subgraph of a Loop. */
static sx_ox_value *condition_after(sx_ox *im, round_of *r)
{
    sx_ox_value *truth = sx_ox_output_of(im, r->graph, 0);
    r->stays_true = r->condition_is_true && truth != NULL && truth->known != NULL &&
                    truth->known_count == 1 && sx_dim_is_constant(truth->known[0]) &&
                    truth->known[0].scale != 0;
    return truth;
}

static sx_code end_round(sx_ox *im, void *self)
{
    round_of *r = self;
    if (r->condition_is_true) {
        (void)condition_after(im, r);
    }
    SX_TRY(im->code);
    return sx_ox_add_results(im, r->graph, r->first_result);
}

/* What goes from round to round keeps its type. */
static sx_code check_state(sx_ox *im, const sx_attr *attr, const sx_node_id *input)
{
    for (uint32_t k = 0; k < attr->carried; k++) {
        const sx_type *before = sx_ox_type(im, input[k]);
        const sx_type *after = sx_program_result(attr->step, k);
        if (!sx_type_equal(before, after)) {
            return SX_OX_FAIL(im, before->dtype != after->dtype ? SX_INPUT : SX_UNIMPLEMENTED,
                              "operand %u of the rounds is %s of rank %u, and %s of rank %u, with "
                              "other extents, after a round",
                              k, sx_dtype_name(before->dtype), before->rank,
                              sx_dtype_name(after->dtype), after->rank);
        }
    }
    return SX_OK;
}

/* ---- Scan ---- */

typedef struct {
    uint32_t states, slices, stacks; /* how many */
    int64_t axis[2][SX_INPUTS_MAX];  /* of inputs, of outputs */
    bool reverse[2][SX_INPUTS_MAX];
} scan;

static sx_code read_ints(sx_ox *im, const char *name, uint32_t wanted, int64_t value[SX_INPUTS_MAX])
{
    uint32_t count;
    for (uint32_t k = 0; k < SX_INPUTS_MAX; k++) {
        value[k] = 0;
    }
    SX_TRY(sx_ox_attr_ints(im, name, value, SX_INPUTS_MAX, &count));
    if (count != UINT32_MAX && count != wanted) {
        return SX_OX_FAIL(im, SX_INPUT, "%s: %u, %u are wanted", name, count, wanted);
    }
    return SX_OK;
}

static sx_code read_scan(sx_ox *im, const sx_onnx_graph *graph, scan *s)
{
    static const char *const axes[] = {"scan_input_axes", "scan_output_axes"};
    static const char *const directions[] = {"scan_input_directions", "scan_output_directions"};
    int64_t slices;
    SX_TRY(sx_ox_attr_int(im, "num_scan_inputs", 0, &slices));
    if (slices < 1 || slices > (int64_t)im->input_count) {
        return SX_OX_FAIL(im, SX_INPUT, "num_scan_inputs is %lld of %u inputs, at least 1",
                          (long long)slices, im->input_count);
    }
    s->slices = (uint32_t)slices;
    s->states = im->input_count - s->slices;
    if (graph->input_count != im->input_count || graph->output_count != im->node->output_count ||
        graph->output_count < s->states || graph->output_count > SX_INPUTS_MAX) {
        return SX_OX_FAIL(im, SX_INPUT,
                          "body: %u inputs, %u wanted; %u outputs, %u wanted, at least %u",
                          graph->input_count, im->input_count, graph->output_count,
                          im->node->output_count, s->states);
    }
    s->stacks = graph->output_count - s->states;
    for (uint32_t side = 0; side < 2; side++) {
        int64_t back[SX_INPUTS_MAX];
        uint32_t wanted = side == 0 ? s->slices : s->stacks;
        SX_TRY(read_ints(im, axes[side], wanted, s->axis[side]));
        SX_TRY(read_ints(im, directions[side], wanted, back));
        for (uint32_t k = 0; k < wanted; k++) {
            if (back[k] != 0 && back[k] != 1) {
                return SX_OX_FAIL(im, SX_INPUT, "%s: %lld, 0 or 1 wanted", directions[side],
                                  (long long)back[k]);
            }
            s->reverse[side][k] = back[k] == 1;
        }
    }
    return SX_OK;
}

/* Dimension `from` becomes dimension `to`; the order of the others stays. */
static sx_node_id moved(sx_ox *im, sx_node_id a, uint32_t from, uint32_t to)
{
    if (im->code != SX_OK || from == to) {
        return a;
    }
    sx_ints perm = {sx_ox_type(im, a)->rank, {0}};
    SX_ASSERT(from < perm.count && to < perm.count);
    for (uint32_t k = 0, next = 0; k < perm.count; k++) {
        next += next == from ? 1 : 0;
        perm.v[k] = k == to ? from : next++;
    }
    return sx_ox_transpose(im, a, &perm);
}

static sx_node_id turned(sx_ox *im, sx_node_id a)
{
    const sx_attr attr = {.present = SX_A(dims), .dims = {1, {0}}};
    return sx_ox_add(im, SX_OP_REVERSE, &attr, &a, 1);
}

/* Scan input k with its axis in front. */
static sx_node_id sliced_input(sx_ox *im, const scan *s, uint32_t k)
{
    uint32_t axis;
    sx_node_id a = sx_ox_in(im, s->states + k);
    if (im->code != SX_OK ||
        sx_ox_axis(im, s->axis[0][k], sx_ox_type(im, a)->rank, &axis) != SX_OK) {
        return SX_OX_NONE;
    }
    a = moved(im, a, axis, 0);
    return s->reverse[0][k] ? turned(im, a) : a;
}

static sx_code scan_operands(sx_ox *im, const scan *s, sx_node_id *input, round_of *r)
{
    for (uint32_t k = 0; k < im->input_count; k++) {
        if (sx_ox_input(im, k) == NULL) {
            return SX_OX_FAIL(im, SX_INPUT, "input %u is left out", k);
        }
        bool slice = k >= s->states;
        input[k] = slice ? sliced_input(im, s, k - s->states) : sx_ox_in(im, k);
        SX_TRY(im->code);
        sx_type type = *sx_ox_type(im, input[k]);
        sx_dim length = type.dim[0], first = sx_ox_type(im, input[slice ? s->states : k])->dim[0];
        if (slice && !sx_dim_equal(length, first)) {
            char one[SX_OX_DIM_TEXT], other[SX_OX_DIM_TEXT];
            bool constant = sx_dim_is_constant(length) && sx_dim_is_constant(first);
            return SX_OX_FAIL(im, constant ? SX_INPUT : SX_UNIMPLEMENTED,
                              "input %u has %s slices, input %u has %s", k,
                              sx_ox_dim_text(im, length, one), s->states,
                              sx_ox_dim_text(im, first, other));
        }
        for (uint32_t d = 1; slice && d <= type.rank; d++) {
            type.dim[d - 1] = d < type.rank ? type.dim[d] : (sx_dim){0};
        }
        type.rank -= slice ? 1 : 0;
        r->type[k] = type;
        r->input[k] = k;
    }
    r->count = im->input_count;
    return SX_OK;
}

sx_code sx_ox_scan(sx_ox *im)
{
    sx_onnx_graph graph;
    sx_node_id input[SX_INPUTS_MAX];
    scan s = {0};
    round_of r = {.graph = &graph};
    SX_TRY(sx_ox_read_subgraph(im, "body", &graph));
    SX_TRY(read_scan(im, &graph, &s));
    SX_TRY(scan_operands(im, &s, input, &r));
    SX_ASSERT(r.count == s.states + s.slices);
    uint32_t count = r.count;
    sx_attr attr = {.present = sx_op_info_of(SX_OP_SCAN)->attrs};
    attr.carried = s.states;
    attr.sliced = s.slices;
    const sx_ox_captures *c = sx_ox_capture(im, input, &count);
    SX_TRY(im->code);
    const sx_ox_body body = {&graph, c, begin_round, end_round, &r};
    SX_TRY(sx_ox_add_body(im, &body, &attr.step));
    SX_TRY(check_state(im, &attr, input));
    for (uint32_t k = 0; k < graph.output_count; k++) {
        if (!sx_ox_wants(im, k)) {
            continue;
        }
        attr.result = k;
        sx_node_id node = sx_ox_add(im, SX_OP_SCAN, &attr, input, count);
        SX_TRY(im->code);
        if (k >= s.states) {
            uint32_t axis, rank = sx_ox_type(im, node)->rank;
            SX_TRY(sx_ox_axis(im, s.axis[1][k - s.states], rank, &axis));
            node = s.reverse[1][k - s.states] ? turned(im, node) : node;
            node = moved(im, node, 0, axis);
        }
        SX_TRY(sx_ox_set(im, k, node));
    }
    return im->code;
}

/* ---- Loop ---- */

typedef struct {
    sx_onnx_graph graph;
    uint32_t states;
    bool stacks; /* there are outputs of each round */
    /* Of the trip count and of the condition: given; and known. */
    bool has_trips, trips_known, has_condition, condition_known, condition;
    sx_dim trips;
} loop;

static sx_code read_loop(sx_ox *im, loop *l)
{
    const sx_ox_value *trips = sx_ox_input(im, 0), *truth = sx_ox_input(im, 1);
    SX_TRY(sx_ox_read_subgraph(im, "body", &l->graph));
    l->states = im->input_count > 2 ? im->input_count - 2 : 0;
    if (l->states + 2 != l->graph.input_count ||
        l->graph.output_count != im->node->output_count + 1 || im->node->output_count < l->states ||
        im->node->output_count >= SX_INPUTS_MAX) {
        return SX_OX_FAIL(im, SX_INPUT,
                          "body: %u inputs, %u wanted; %u outputs, %u wanted, at least %u",
                          l->graph.input_count, l->states + 2, l->graph.output_count,
                          im->node->output_count + 1, l->states + 1);
    }
    for (uint32_t k = 0; k < l->states; k++) {
        if (sx_ox_input(im, k + 2) == NULL) {
            return SX_OX_FAIL(im, SX_INPUT, "input %u is left out", k + 2);
        }
    }
    l->stacks = im->node->output_count > l->states;
    l->has_trips = trips != NULL;
    l->has_condition = truth != NULL;
    l->trips_known = trips != NULL && trips->known != NULL && trips->known_count == 1;
    l->trips = l->trips_known ? trips->known[0] : sx_dim_of(0);
    l->condition_known = truth == NULL || (truth->known != NULL && truth->known_count == 1 &&
                                           sx_dim_is_constant(truth->known[0]));
    l->condition = truth == NULL || (l->condition_known && truth->known[0].scale != 0);
    return SX_OK;
}

/* Is the number of rounds known, if the condition stays true? */
static bool is_counted(const loop *l)
{
    bool in_range =
        !sx_dim_is_constant(l->trips) || (l->trips.scale >= 1 && l->trips.scale <= SX_EXTENT_MAX);
    return l->trips_known && in_range && l->condition_known && l->condition;
}

static sx_code state_operands(sx_ox *im, const loop *l, uint32_t from, sx_node_id *input,
                              round_of *r)
{
    for (uint32_t k = 0; k < l->states; k++) {
        input[from + k] = sx_ox_in(im, k + 2);
        SX_TRY(im->code);
        r->type[from + k] = *sx_ox_type(im, input[from + k]);
        r->input[from + k] = k + 2;
    }
    return SX_OK;
}

/* *done: false where the condition may become false. */
static sx_code loop_as_scan(sx_ox *im, const loop *l, bool *done)
{
    const sx_type rounds = {.dtype = SX_I64, .rank = 1, .dim = {l->trips}};
    sx_node_id input[SX_INPUTS_MAX];
    round_of r = {.graph = &l->graph, .first_result = 1, .condition_is_true = true};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_SCAN)->attrs};
    uint32_t count = l->states + 1;
    SX_TRY(state_operands(im, l, 0, input, &r));
    input[l->states] = sx_ox_iota(im, &rounds, SX_I64, 0);
    r.type[l->states] = (sx_type){.dtype = SX_I64};
    r.input[l->states] = 0;
    r.count = count;
    attr.carried = l->states;
    attr.sliced = 1;
    const sx_ox_captures *c = sx_ox_capture(im, input, &count);
    SX_TRY(im->code);
    const sx_ox_body body = {&l->graph, c, begin_round, end_round, &r};
    SX_TRY(sx_ox_add_body(im, &body, &attr.step));
    *done = r.stays_true;
    if (!r.stays_true) {
        return SX_OK;
    }
    SX_TRY(check_state(im, &attr, input));
    for (uint32_t k = 0; k < im->node->output_count; k++) {
        attr.result = k;
        if (sx_ox_wants(im, k)) {
            SX_TRY(sx_ox_set(im, k, sx_ox_add(im, SX_OP_SCAN, &attr, input, count)));
        }
    }
    return im->code;
}

/* The body of a while: the number of the next round, the condition, the state. */
static sx_code end_step(sx_ox *im, void *self)
{
    round_of *r = self;
    sx_ox_value *truth = condition_after(im, r);
    SX_TRY(im->code);
    SX_TRY(sx_ox_add_result(im, r->graph->output_count, sx_ox_with(im, SX_OP_ADD, r->node[0], 1)));
    sx_node_id more = sx_ox_node_of(im, truth);
    more = sx_ox_one(im, more, SX_BOOL, "condition of the body");
    SX_TRY(im->code);
    SX_TRY(sx_ox_add_result(im, 0, more));
    return sx_ox_add_results(im, r->graph, 1);
}

typedef struct {
    const sx_node_id *input;
    uint32_t count;
    bool has_trips;
    uint32_t trips; /* which operand is the trip count */
    const sx_ox *outer;
} condition_of;

static sx_code end_condition(sx_ox *im, void *self)
{
    const condition_of *c = self;
    sx_node_id node[SX_INPUTS_MAX];
    SX_ASSERT(c->count >= 2 && c->count <= SX_INPUTS_MAX);
    for (uint32_t k = 0; k < c->count; k++) {
        const sx_attr attr = {.present = SX_A(name) | SX_A(weight) | SX_A(type),
                              .name = SX_SPAN_LITERAL("operand"),
                              .type = *sx_ox_type(c->outer, c->input[k])};
        node[k] = sx_ox_add(im, SX_OP_PARAMETER, &attr, NULL, 0);
        SX_TRY(im->code);
    }
    sx_node_id more = node[1];
    if (c->has_trips) {
        more = sx_ox_bin(im, SX_OP_AND, more, sx_ox_cmp(im, SX_LT, node[0], node[c->trips]));
    }
    SX_TRY(im->code);
    return sx_ox_add_result(im, 0, more);
}

static sx_code while_operands(sx_ox *im, const loop *l, sx_node_id *input, round_of *r)
{
    const sx_type number = {.dtype = SX_I64}, truth = {.dtype = SX_BOOL};
    r->count = l->states + 2;
    if (r->count >= SX_INPUTS_MAX) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "%u values in a loop", r->count);
    }
    input[0] = sx_ox_splat(im, &number, 0);
    input[1] = l->has_condition ? sx_ox_one(im, sx_ox_in(im, 1), SX_BOOL, "condition")
                                : sx_ox_splat(im, &truth, 1);
    SX_TRY(im->code);
    SX_TRY(state_operands(im, l, 2, input, r));
    r->type[0] = number;
    r->type[1] = truth;
    r->input[0] = 0;
    r->input[1] = 1;
    if (l->has_trips) {
        input[r->count] = sx_ox_one(im, sx_ox_in(im, 0), SX_I64, "trip count");
        r->type[r->count] = number;
        r->has_trips = true;
    }
    return im->code;
}

static sx_code loop_as_while(sx_ox *im, const loop *l)
{
    sx_node_id input[SX_INPUTS_MAX];
    round_of r = {.graph = &l->graph, .condition_is_true = !l->has_condition};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_WHILE)->attrs, .rounds = SX_PROGRAM_ROUNDS_MAX};
    SX_TRY(while_operands(im, l, input, &r));
    uint32_t count = r.count + (r.has_trips ? 1 : 0);
    if (l->trips_known && sx_dim_is_constant(l->trips)) {
        attr.rounds = sx_max_i64(1, sx_min_i64(l->trips.scale, SX_PROGRAM_ROUNDS_MAX));
    }
    attr.carried = r.count;
    const sx_ox_captures *c = sx_ox_capture(im, input, &count);
    SX_TRY(im->code);
    const sx_ox_body step = {&l->graph, c, begin_round, end_step, &r};
    condition_of more = {input, count, r.has_trips, r.count, im};
    sx_ox outer = *im;
    more.outer = &outer;
    const sx_ox_body condition = {.end = end_condition, .self = &more};
    SX_TRY(sx_ox_add_body(im, &step, &attr.step));
    if (!l->has_condition &&
        !r.stays_true) { /* ONNX says that it does not count; engines count it */
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "no condition, and a body that gives one");
    }
    SX_TRY(sx_ox_add_body(im, &condition, &attr.condition));
    SX_TRY(check_state(im, &attr, input));
    for (uint32_t k = 0; k < l->states; k++) {
        attr.result = k + 2;
        if (sx_ox_wants(im, k)) {
            SX_TRY(sx_ox_set(im, k, sx_ox_add(im, SX_OP_WHILE, &attr, input, count)));
        }
    }
    return im->code;
}

sx_code sx_ox_loop(sx_ox *im)
{
    loop l = {0};
    bool done = false;
    SX_TRY(read_loop(im, &l));
    if (is_counted(&l)) {
        SX_TRY(loop_as_scan(im, &l, &done));
    }
    SX_ASSERT(!done || l.trips_known);
    if (done) {
        return SX_OK;
    }
    if (l.stacks) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED,
                          "outputs of each round, of a number of rounds that is not known, or 0");
    }
    return loop_as_while(im, &l);
}
