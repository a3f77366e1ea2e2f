/* onnx_ops_recurrent.c - LSTM, GRU and RNN as scans.
 *
 * All products with the input are one contraction before the scan. A round has the product with the last hidden state
 * and the gates; the weights of that product are seen whole. A direction is a scan of its own. */
#include "client/import/onnx_import.h"

#include "core/ir/extent.h"
#include "core/ir/program.h"

#define DIRECTIONS_MAX 2
#define GATES_MAX 4
#define ACTIVATIONS_MAX 3

typedef struct {
    sx_ox *im;
    sx_ox_recurrent kind;
    uint32_t gates, directions;
    bool reversed;   /* of a single direction */
    bool batchwise;  /* the batch is the first dimension */
    bool reset_last; /* GRU: linear_before_reset */
    sx_op activation[DIRECTIONS_MAX * ACTIVATIONS_MAX];
    sx_node_id x, w, r, b, h, c, p; /* inputs; SX_OX_NONE: left out */
    sx_dim steps, batch;
    int64_t hidden;
    sx_dtype dtype;
} recurrent;

static bool is_given(sx_node_id node)
{
    return node.i != SX_OX_NONE.i;
}

/* ---- attributes ---- */

static sx_code read_activations(recurrent *r, uint32_t each)
{
    static const struct {
        const char *name;
        sx_op op;
    } known[] = {{"Sigmoid", SX_OP_LOGISTIC}, {"Tanh", SX_OP_TANH}, {"Relu", SX_OP_RELU}};
    const sx_onnx_attr *attr = sx_ox_attr(r->im, "activations");
    for (uint32_t k = 0; k < r->directions * each; k++) {
        bool first = k % each == 0 && r->kind != SX_OX_RNN;
        r->activation[k] = first ? SX_OP_LOGISTIC : SX_OP_TANH;
    }
    if (attr == NULL) {
        return SX_OK;
    }
    if (attr->type != SX_ONNX_ATTR_STRINGS || attr->count != r->directions * each) {
        return SX_OX_FAIL(r->im, SX_INPUT, "activations: %u, %u are wanted", attr->count,
                          r->directions * each);
    }
    for (uint32_t k = 0; k < attr->count; k++) {
        uint32_t i = 0;
        while (i < SX_COUNT(known) && !sx_span_is(attr->strings[k], known[i].name)) {
            i++;
        }
        if (i == SX_COUNT(known)) {
            return SX_OX_FAIL(r->im, SX_UNIMPLEMENTED, "activation %.*s",
                              (int)sx_min_i64((int64_t)attr->strings[k].len, 40),
                              (const char *)attr->strings[k].ptr);
        }
        r->activation[k] = known[i].op;
    }
    return SX_OK;
}

static sx_code read_attributes(recurrent *r)
{
    sx_ox *im = r->im;
    sx_span direction;
    int64_t layout, before_reset = 0, forget = 0;
    SX_TRY(sx_ox_attr_text(im, "direction", "forward", &direction));
    SX_TRY(sx_ox_attr_int(im, "layout", 0, &layout));
    SX_TRY(sx_ox_attr_int(im, "hidden_size", -1, &r->hidden));
    if (r->kind == SX_OX_GRU) {
        SX_TRY(sx_ox_attr_int(im, "linear_before_reset", 0, &before_reset));
    } else if (r->kind == SX_OX_LSTM) {
        SX_TRY(sx_ox_attr_int(im, "input_forget", 0, &forget));
    }
    bool both = sx_span_is(direction, "bidirectional");
    r->reversed = sx_span_is(direction, "reverse");
    if (!both && !r->reversed && !sx_span_is(direction, "forward")) {
        return SX_OX_FAIL(im, SX_INPUT, "direction is none of forward, reverse, bidirectional");
    }
    r->directions = both ? 2 : 1;
    r->batchwise = layout != 0;
    r->reset_last = before_reset != 0;
    if (forget != 0 || sx_ox_attr(im, "clip") != NULL) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "%s", forget != 0 ? "input_forget" : "clip");
    }
    return read_activations(r, r->kind == SX_OX_LSTM ? 3 : (r->kind == SX_OX_GRU ? 2 : 1));
}

/* ---- inputs ---- */

static sx_node_id swap_first(sx_ox *im, sx_node_id a)
{
    sx_ints perm = {3, {1, 0, 2}};
    return is_given(a) ? sx_ox_transpose(im, a, &perm) : a;
}

/* All sequences have all steps. */
static sx_code check_lengths(const recurrent *r)
{
    const sx_dim *length;
    uint32_t count = 0;
    if (sx_ox_input(r->im, 4) != NULL) {
        SX_TRY(sx_ox_known(r->im, 4, "sequence_lens", &length, &count));
    }
    for (uint32_t k = 0; k < count; k++) {
        if (!sx_dim_equal(length[k], r->steps)) {
            return SX_OX_FAIL(r->im, SX_UNIMPLEMENTED, "sequences of different lengths");
        }
    }
    return SX_OK;
}

static sx_code read_inputs(recurrent *r)
{
    sx_ox *im = r->im;
    sx_node_id *const input[] = {&r->x, &r->w, &r->r, &r->b, NULL, &r->h, &r->c, &r->p};
    for (uint32_t k = 0; k < SX_COUNT(input); k++) {
        if (input[k] != NULL) {
            *input[k] = k < im->input_count ? sx_ox_in(im, k) : SX_OX_NONE;
        }
    }
    SX_TRY(im->code);
    const uint32_t rank[] = {3, 3, 3, 2, 0, 3, 3, 2};
    for (uint32_t k = 0; k < SX_COUNT(input); k++) {
        if (input[k] != NULL && is_given(*input[k]) && sx_ox_type(im, *input[k])->rank != rank[k]) {
            return SX_OX_FAIL(im, SX_INPUT, "input %u of rank %u, not %u", k,
                              sx_ox_type(im, *input[k])->rank, rank[k]);
        }
    }
    if (r->batchwise) {
        r->x = swap_first(im, r->x);
        r->h = swap_first(im, r->h);
        r->c = swap_first(im, r->c);
    }
    SX_TRY(im->code);
    sx_dim hidden = sx_ox_type(im, r->r)->dim[2];
    sx_dim directions = sx_ox_type(im, r->r)->dim[0];
    if (!sx_dim_is_constant(hidden) || (r->hidden >= 0 && r->hidden != hidden.scale) ||
        !sx_dim_equal(directions, sx_dim_of(r->directions))) {
        return SX_OX_FAIL(im, SX_INPUT, "weights of %lld directions and hidden size %lld",
                          (long long)directions.scale, (long long)hidden.scale);
    }
    r->hidden = hidden.scale;
    r->steps = sx_ox_type(im, r->x)->dim[0];
    r->batch = sx_ox_type(im, r->x)->dim[1];
    r->dtype = sx_ox_type(im, r->x)->dtype;
    return check_lengths(r);
}

/* Row `d` of the first dimension, without it. */
static sx_node_id row(sx_ox *im, sx_node_id a, uint32_t d)
{
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    sx_type type = *sx_ox_type(im, a);
    sx_node_id one = sx_ox_slice_axis(im, a, 0, d, (int64_t)d + 1, 1);
    for (uint32_t k = 1; k < type.rank; k++) {
        type.dim[k - 1] = type.dim[k];
    }
    type.rank--;
    return sx_ox_reshape(im, one, &type);
}

static sx_type state_type(const recurrent *r)
{
    return (sx_type){.dtype = r->dtype, .rank = 2, .dim = {r->batch, sx_dim_of(r->hidden)}};
}

/* Gate `k` of the last dimension, or of the only one. */
static sx_node_id gate(const recurrent *r, sx_node_id a, uint32_t k)
{
    if (r->im->code != SX_OK) {
        return SX_OX_NONE;
    }
    uint32_t last = sx_ox_type(r->im, a)->rank - 1;
    return sx_ox_slice_axis(r->im, a, last, k * r->hidden, (k + 1) * r->hidden, 1);
}

static sx_node_id product(sx_ox *im, sx_node_id a, int64_t axis, sx_node_id weights)
{
    sx_attr dims = {.lhs_contract = {1, {axis}}, .rhs_contract = {1, {1}}};
    return sx_ox_dot(im, a, weights, &dims);
}

/* ---- one round: parameters are the states, what the inputs give to the gates, the weights, and then, where there
 * are any, peepholes or the bias of the last gate ---- */

typedef struct {
    sx_node_id h, c, x, r, extra;
} cell;

static sx_node_id act(const recurrent *r, uint32_t which, sx_node_id a)
{
    return sx_ox_un(r->im, r->activation[which], a);
}

/* `first`: the first activation of this direction. */
static void build_lstm(const recurrent *r, const cell *in, uint32_t first, sx_node_id *h,
                       sx_node_id *c)
{
    sx_ox *im = r->im;
    sx_node_id sum = sx_ox_bin(im, SX_OP_ADD, product(im, in->h, 1, in->r), in->x);
    sx_node_id i = gate(r, sum, 0), o = gate(r, sum, 1), f = gate(r, sum, 2), g = gate(r, sum, 3);
    bool peeps = is_given(in->extra);
    if (peeps) {
        i = sx_ox_bin(im, SX_OP_ADD, i,
                      sx_ox_bin(im, SX_OP_MULTIPLY, in->c, gate(r, in->extra, 0)));
        f = sx_ox_bin(im, SX_OP_ADD, f,
                      sx_ox_bin(im, SX_OP_MULTIPLY, in->c, gate(r, in->extra, 2)));
    }
    sx_node_id kept = sx_ox_bin(im, SX_OP_MULTIPLY, act(r, first, f), in->c);
    sx_node_id in_gate = act(r, first, i), fresh = act(r, first + 1, g);
    sx_node_id added = sx_ox_bin(im, SX_OP_MULTIPLY, in_gate, fresh);
    *c = sx_ox_bin(im, SX_OP_ADD, kept, added);
    if (peeps) {
        o = sx_ox_bin(im, SX_OP_ADD, o, sx_ox_bin(im, SX_OP_MULTIPLY, *c, gate(r, in->extra, 1)));
    }
    sx_node_id out_gate = act(r, first, o), out = act(r, first + 2, *c);
    *h = sx_ox_bin(im, SX_OP_MULTIPLY, out_gate, out);
}

static sx_node_id rows_of(const recurrent *r, sx_node_id weights, uint32_t from, uint32_t to)
{
    return sx_ox_slice_axis(r->im, weights, 0, from * r->hidden, to * r->hidden, 1);
}

/* Gate `k` of both parts. */
static sx_node_id gate_sum(const recurrent *r, sx_node_id a, sx_node_id b, uint32_t k)
{
    sx_node_id one = gate(r, a, k), other = gate(r, b, k);
    return sx_ox_bin(r->im, SX_OP_ADD, one, other);
}

static void build_gru(const recurrent *r, const cell *in, uint32_t first, sx_node_id *h)
{
    sx_ox *im = r->im;
    sx_node_id both = product(im, in->h, 1, rows_of(r, in->r, 0, 2));
    sx_node_id z = act(r, first, gate_sum(r, both, in->x, 0));
    sx_node_id t = act(r, first, gate_sum(r, both, in->x, 1));
    sx_node_id of = r->reset_last ? in->h : sx_ox_bin(im, SX_OP_MULTIPLY, t, in->h);
    sx_node_id last = product(im, of, 1, rows_of(r, in->r, 2, 3));
    if (is_given(in->extra)) {
        last = sx_ox_bin(im, SX_OP_ADD, last, in->extra);
    }
    if (r->reset_last) {
        last = sx_ox_bin(im, SX_OP_MULTIPLY, t, last);
    }
    sx_node_id n = act(r, first + 1, sx_ox_bin(im, SX_OP_ADD, last, gate(r, in->x, 2)));
    sx_node_id fresh = sx_ox_bin(im, SX_OP_MULTIPLY, sx_ox_from(im, SX_OP_SUBTRACT, 1, z), n);
    *h = sx_ox_bin(im, SX_OP_ADD, fresh, sx_ox_bin(im, SX_OP_MULTIPLY, z, in->h));
}

static void build_rnn(const recurrent *r, const cell *in, uint32_t first, sx_node_id *h)
{
    sx_node_id sum = sx_ox_bin(r->im, SX_OP_ADD, product(r->im, in->h, 1, in->r), in->x);
    *h = act(r, first, sum);
}

static sx_node_id add_parameter(sx_ox *im, const char *name, const sx_type *type)
{
    sx_node_id id = SX_OX_NONE;
    if (im->code == SX_OK) {
        im->code = sx_build_parameter(im->cx, im->graph, name, false, type, &id);
    }
    return id;
}

/* The body into im->graph, which is a graph of its own meanwhile. Results: the states, and the hidden one once more. */
static sx_code build_round(const recurrent *r, const sx_type *x, const sx_type *weights,
                           const sx_type *extra, uint32_t first)
{
    sx_ox *im = r->im;
    sx_type state = state_type(r);
    cell in = {.c = SX_OX_NONE, .extra = SX_OX_NONE};
    sx_node_id h = SX_OX_NONE, c = SX_OX_NONE;
    in.h = add_parameter(im, "h", &state);
    in.c = r->kind == SX_OX_LSTM ? add_parameter(im, "c", &state) : SX_OX_NONE;
    in.x = add_parameter(im, "x", x);
    in.r = add_parameter(im, "r", weights);
    in.extra = extra != NULL ? add_parameter(im, "extra", extra) : SX_OX_NONE;
    SX_TRY(im->code);
    switch (r->kind) {
    case SX_OX_LSTM: build_lstm(r, &in, first, &h, &c); break;
    case SX_OX_GRU: build_gru(r, &in, first, &h); break;
    case SX_OX_RNN: build_rnn(r, &in, first, &h); break;
    }
    SX_TRY(im->code);
    SX_TRY(sx_graph_add_output(im->cx, im->graph, SX_SPAN_LITERAL("h"), h));
    if (r->kind == SX_OX_LSTM) {
        SX_TRY(sx_graph_add_output(im->cx, im->graph, SX_SPAN_LITERAL("c"), c));
    }
    return sx_graph_add_output(im->cx, im->graph, SX_SPAN_LITERAL("y"), h);
}

static sx_code make_round(const recurrent *r, const sx_type *x, const sx_type *weights,
                          const sx_type *extra, uint32_t first, const sx_program **step)
{
    sx_ox *im = r->im;
    sx_graph *outer = im->graph, *body;
    SX_TRY(sx_graph_make(im->cx, SX_SPAN_LITERAL("round"), NULL, &body));
    SX_TRY(sx_graph_copy_symbols(im->cx, outer->symbol, outer->symbol_count, body));
    im->graph = body;
    sx_code code = build_round(r, x, weights, extra, first);
    im->graph = outer;
    SX_TRY(code);
    return sx_program_make(im->cx, body, step);
}

/* ---- one direction ---- */

/* What the input gives to all gates in all steps, with the biases; *extra is what a round adds besides. */
static sx_node_id input_part(const recurrent *r, uint32_t d, sx_node_id *extra)
{
    sx_ox *im = r->im;
    sx_node_id x = product(im, r->x, 2, row(im, r->w, d));
    *extra = r->kind == SX_OX_LSTM && is_given(r->p) ? row(im, r->p, d) : SX_OX_NONE;
    if (is_given(r->b)) {
        sx_node_id all = row(im, r->b, d);
        int64_t size = r->gates * r->hidden;
        sx_node_id own = sx_ox_slice_axis(im, all, 0, 0, size, 1);
        sx_node_id other = sx_ox_slice_axis(im, all, 0, size, 2 * size, 1);
        if (r->kind == SX_OX_GRU && im->code == SX_OK) { /* the last one stays inside */
            sx_type none = {.dtype = r->dtype, .rank = 1, .dim = {sx_dim_of(r->hidden)}};
            *extra = gate(r, other, 2);
            sx_node_id part[2];
            part[0] = sx_ox_slice_axis(im, other, 0, 0, 2 * r->hidden, 1);
            part[1] = sx_ox_splat(im, &none, 0);
            other = sx_ox_concat(im, part, 2, 0);
        }
        x = sx_ox_bin(im, SX_OP_ADD, x, sx_ox_bin(im, SX_OP_ADD, own, other));
    }
    return x;
}

static sx_node_id turned(sx_ox *im, sx_node_id a)
{
    sx_attr attr = {.present = SX_A(dims), .dims = {1, {0}}};
    return sx_ox_add(im, SX_OP_REVERSE, &attr, &a, 1);
}

/* result[0]: all hidden states, [1]: the last one, [2]: the last cell state. */
static sx_code build_direction(const recurrent *r, uint32_t d, sx_node_id result[3])
{
    sx_ox *im = r->im;
    bool lstm = r->kind == SX_OX_LSTM, back = r->reversed || d == 1;
    uint32_t each = lstm ? 3 : (r->kind == SX_OX_GRU ? 2 : 1), count = 0;
    sx_type state = state_type(r);
    sx_node_id input[5], extra;
    sx_node_id x = input_part(r, d, &extra);
    input[count++] = is_given(r->h) ? row(im, r->h, d) : sx_ox_splat(im, &state, 0);
    if (lstm) {
        input[count++] = is_given(r->c) ? row(im, r->c, d) : sx_ox_splat(im, &state, 0);
    }
    input[count++] = back ? turned(im, x) : x;
    input[count++] = row(im, r->r, d);
    SX_TRY(im->code);
    const sx_type *more = is_given(extra) ? sx_ox_type(im, extra) : NULL;
    sx_type slice = {.dtype = r->dtype, .rank = 2};
    slice.dim[0] = r->batch;
    slice.dim[1] = sx_ox_type(im, x)->dim[2];
    sx_attr attr = {
        .present = sx_op_info_of(SX_OP_SCAN)->attrs, .carried = lstm ? 2 : 1, .sliced = 1};
    SX_TRY(make_round(r, &slice, sx_ox_type(im, input[count - 1]), more, d * each, &attr.step));
    if (more != NULL) {
        input[count++] = extra;
    }
    for (uint32_t k = 0; k < 3; k++) {
        attr.result = k == 0 ? attr.carried : (int64_t)k - 1;
        result[k] = k < 2 || lstm ? sx_ox_add(im, SX_OP_SCAN, &attr, input, count) : SX_OX_NONE;
    }
    result[0] = back ? turned(im, result[0]) : result[0];
    return im->code;
}

/* `part` of each direction with a dimension for these at `axis`. */
static sx_node_id joined(const recurrent *r, const sx_node_id *part, uint32_t axis)
{
    sx_node_id wide[DIRECTIONS_MAX];
    for (uint32_t d = 0; d < r->directions && r->im->code == SX_OK; d++) {
        sx_type type = *sx_ox_type(r->im, part[d]);
        for (uint32_t k = type.rank; k > axis; k--) {
            type.dim[k] = type.dim[k - 1];
        }
        type.dim[axis] = sx_dim_of(1);
        type.rank++;
        wide[d] = sx_ox_reshape(r->im, part[d], &type);
    }
    return r->im->code == SX_OK ? sx_ox_concat(r->im, wide, r->directions, axis) : SX_OX_NONE;
}

sx_code sx_ox_recurrence(sx_ox *im)
{
    static const uint32_t gates[] = {[SX_OX_LSTM] = 4, [SX_OX_GRU] = 3, [SX_OX_RNN] = 1};
    recurrent r = {.im = im, .kind = (sx_ox_recurrent)im->entry->arg};
    sx_node_id part[3][DIRECTIONS_MAX];
    r.gates = gates[r.kind];
    SX_TRY(read_attributes(&r));
    SX_TRY(read_inputs(&r));
    for (uint32_t d = 0; d < r.directions; d++) {
        sx_node_id result[3];
        SX_TRY(build_direction(&r, d, result));
        for (uint32_t k = 0; k < 3; k++) {
            part[k][d] = result[k];
        }
    }
    for (uint32_t k = 0; k < (r.kind == SX_OX_LSTM ? 3u : 2u); k++) {
        if (!sx_ox_wants(im, k)) {
            continue;
        }
        sx_node_id all = joined(&r, part[k], k == 0 ? 1 : 0);
        sx_ints perm = {4, {2, 0, 1, 3}};
        if (r.batchwise) {
            all = k == 0 ? sx_ox_transpose(im, all, &perm) : swap_first(im, all);
        }
        SX_TRY(sx_ox_set(im, k, all));
    }
    return im->code;
}
