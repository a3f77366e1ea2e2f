#include "core/proof/certificate_eval.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/ir/extent.h"
#include "core/ir/fused.h"
#include "core/ir/num.h"

#define DRAWS 2u
#define SIZES 44u /* classes of memory: 2^k elements */

/* A program being evaluated, node by node. */
typedef struct {
    sx_ctx *cx;            /* errors */
    sx_ctx *values;        /* memory of the values */
    const sx_graph *graph; /* static */
    sx_tensor *value;
    bool *known;        /* has a value: it and all below it were within the limits */
    uint8_t *undefined; /* set of BY_*: of the node and of all below it */
    uint32_t *last_use; /* node after which the value is not read any more; UINT32_MAX: kept */
    void *free[SIZES];  /* lists of memory, linked by their first word */
    uint64_t work;      /* operations left */
    uint32_t draw;
    double near; /* what values may deviate by */
} runner;

/* ---- arguments: the same for parameters of one name ---- */

static double draw_float(sx_rng *rng, uint32_t draw, double scale)
{
    double x = (double)sx_rng_f32(rng);
    return scale * (draw == 0 ? 2 * x : 0.25 + 1.75 * fabs(x));
}

static void draw_argument(const sx_attr *attr, uint32_t draw, sx_tensor *tensor)
{
    const sx_type *type = &tensor->type;
    sx_rng rng = {sx_hash64(attr->name, 1 + draw)};
    int64_t count = sx_tensor_elements(type);
    int64_t longest = 1;
    for (uint32_t d = 0; d < type->rank; d++) {
        longest = type->dim[d].scale > longest ? type->dim[d].scale : longest;
    }
    bool is_float = sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
    /* sums of products with a matrix of weights are then of the magnitude of what they are taken of */
    double scale = attr->weight && type->rank >= 2 ? 1 / sqrt((double)longest) : 1;
    double *f = tensor->data;
    int64_t *i = tensor->data;
    for (int64_t k = 0; k < count; k++) {
        if (is_float) {
            f[k] = sx_num_round(type->dtype, draw_float(&rng, draw, scale));
        } else if (type->dtype == SX_BOOL) {
            i[k] = (int64_t)sx_rng_below(&rng, 2);
        } else {
            bool negative = draw == 0 && sx_num_int_min(type->dtype) < 0;
            i[k] = (int64_t)sx_rng_below(&rng, 12) - (negative ? 4 : 0);
        }
    }
}

/* ---- memory ---- */

static uint32_t size_class(int64_t elements)
{
    uint32_t k = 0;
    while (k + 1 < SIZES && (INT64_C(1) << k) < elements) {
        k++;
    }
    return k;
}

static void *take_values(runner *r, int64_t elements)
{
    uint32_t k = size_class(elements);
    void *memory = r->free[k];
    if (memory != NULL) {
        memcpy(&r->free[k], memory, sizeof(void *));
        return memory;
    }
    return sx_alloc_array(r->values, (size_t)1 << k, sizeof(double));
}

static void give_values(runner *r, uint32_t node)
{
    uint32_t k = size_class(sx_tensor_elements(&r->value[node].type));
    memcpy(r->value[node].data, &r->free[k], sizeof(void *));
    r->free[k] = r->value[node].data;
    r->value[node].data = NULL;
}

/* ---- nodes ---- */

static bool has_float(const sx_tensor *tensor, bool (*is)(double x))
{
    int64_t count = sx_tensor_elements(&tensor->type);
    const double *x = tensor->data;
    bool found = false;
    for (int64_t k = 0; !found && k < count; k++) {
        found = is(x[k]);
    }
    return found && sx_dtype_class_of(tensor->type.dtype) == SX_CLASS_FLOAT;
}

static bool any_float(const sx_tensor *tensor, uint32_t count, bool (*is)(double x))
{
    bool found = false;
    for (uint32_t k = 0; !found && k < count; k++) {
        found = has_float(&tensor[k], is);
    }
    return found;
}

static bool is_zero(double x)
{
    return x == 0;
}

static bool is_nan(double x)
{
    return isnan(x);
}

static bool is_infinite(double x)
{
    return isinf(x);
}

/* Values are doubles here; numbers that an f32 holds with fewer digits, or not at all, are folded to others. */
static bool leaves_f32(double x)
{
    return x != 0 && !isnan(x) && !isinf(x) &&
           (fabs(x) < (double)FLT_MIN || fabs(x) > (double)FLT_MAX);
}

/* Rounding decides what a function that jumps gives where its argument is next to the jump, and what is left of a
 * difference that is much smaller than its operands. `near` is what values may deviate by. */
static bool near_whole(double x, double near)
{
    return x != nearbyint(x) && fabs(x - nearbyint(x)) <= near * (1 + fabs(x));
}

static bool is_close(sx_op op, double x, double y, double near)
{
    double large = fmax(fabs(x), fabs(y));
    double gap = op == SX_OP_ADD ? fabs(x + y) : fabs(x - y);
    return op == SX_OP_REMAINDER ? near_whole(x / y, near)
                                 : isfinite(large) && gap != 0 && gap <= near * large;
}

/* An argument so large that one rounding of an f32 turns it by more than values may deviate by. */
static bool turns_far(double x, double near)
{
    return isfinite(x) && fabs(x) * (double)FLT_EPSILON / 2 > near;
}

static bool jumps_at(sx_op op, double x, double y, double near)
{
    switch ((int)op) {
    case SX_OP_ADD:
    case SX_OP_SUBTRACT:
    case SX_OP_COMPARE:
    case SX_OP_REMAINDER: return is_close(op, x, y, near);
    case SX_OP_ROUND: return near_whole(x + 0.5, near);
    case SX_OP_SIGN: return x != 0 && fabs(x) <= near;
    case SX_OP_SIN:
    case SX_OP_COS: return turns_far(x, near);
    default: return near_whole(x, near); /* floor, ceil, convert to a whole number */
    }
}

/* Kernels are evaluated whole: where one jumps inside, it is not known how near. */
static bool kernel_jumps(const sx_body *body)
{
    bool found = false;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        bool floats = in->kind == SX_BODY_APPLY &&
                      sx_dtype_class_of(body->instr[in->x].dtype) == SX_CLASS_FLOAT;
        bool jump = in->op == SX_OP_FLOOR || in->op == SX_OP_CEIL || in->op == SX_OP_ROUND ||
                    in->op == SX_OP_SIGN || in->op == SX_OP_REMAINDER || in->op == SX_OP_COMPARE ||
                    (in->op == SX_OP_CONVERT && sx_dtype_class_of(in->dtype) != SX_CLASS_FLOAT);
        found = found || (floats && jump);
    }
    return found;
}

/* Is some element of the arguments next to a jump of the operation? */
static bool jumps(sx_op op, const sx_tensor *input, const sx_tensor *result, double near)
{
    bool to_whole = op == SX_OP_CONVERT && sx_dtype_class_of(result->type.dtype) != SX_CLASS_FLOAT;
    bool two =
        op == SX_OP_ADD || op == SX_OP_SUBTRACT || op == SX_OP_COMPARE || op == SX_OP_REMAINDER;
    bool one = op == SX_OP_FLOOR || op == SX_OP_CEIL || op == SX_OP_ROUND || op == SX_OP_SIGN ||
               op == SX_OP_SIN || op == SX_OP_COS;
    if ((!to_whole && !two && !one) || sx_dtype_class_of(input[0].type.dtype) != SX_CLASS_FLOAT) {
        return false;
    }
    const double *x = input[0].data;
    const double *y = two ? input[1].data : input[0].data;
    int64_t count = sx_tensor_elements(&input[0].type);
    bool found = false;
    for (int64_t k = 0; !found && k < count; k++) {
        found = jumps_at(op, x[k], y[k], near);
    }
    return found;
}

/* Why the value of a node depends on the order of operands and operations: it divides by zero; it
 * leaves the range of its type, orders a NaN, or is next to a jump. */
#define BY_ZERO 1u
#define BY_RANGE 2u

static uint8_t undefined_by(sx_op op, const sx_tensor *input, uint32_t input_count,
                            const sx_tensor *result, double near)
{
    uint8_t by = 0;
    switch ((int)op) {
    case SX_OP_CONSTANT: return 0;
    case SX_OP_DIVIDE: by = has_float(&input[1], is_zero) ? BY_ZERO : 0; break;
    case SX_OP_RSQRT:
    case SX_OP_POWER: by = has_float(&input[0], is_zero) ? BY_ZERO : 0; break;
    case SX_OP_MAXIMUM:
    case SX_OP_MINIMUM:
    case SX_OP_RELU:
    case SX_OP_REDUCE:
    case SX_OP_REDUCE_WINDOW: by = any_float(input, input_count, is_nan) ? BY_RANGE : 0; break;
    default: break;
    }
    bool wide = result->type.dtype == SX_F64;
    bool leaves = has_float(result, is_infinite) && !any_float(input, input_count, is_infinite);
    if (by == 0 && jumps(op, input, result, near)) {
        by = BY_RANGE;
    }
    if (by == 0 && (leaves || (!wide && has_float(result, leaves_f32)))) {
        by = BY_RANGE;
    }
    return by;
}

/* Operations that the interpreter needs at least; UINT64_MAX: too many to count. */
static uint64_t least_work(const runner *r, const sx_node *node)
{
    const sx_attr *attr = sx_graph_attr(r->graph, node);
    double work = (double)sx_tensor_elements(&node->type);
    if (node->op == SX_OP_FUSED) { /* its type is the space it walks */
        work = (double)sx_tensor_elements(&attr->type);
    } else if (node->op == SX_OP_DOT_GENERAL) {
        const sx_type *left = &sx_graph_node(r->graph, sx_graph_input(r->graph, node, 0))->type;
        for (uint32_t i = 0; i < attr->lhs_contract.count; i++) {
            work *= (double)left->dim[attr->lhs_contract.v[i]].scale;
        }
    } else if (node->op == SX_OP_CONVOLUTION) {
        const sx_type *kernel = &sx_graph_node(r->graph, sx_graph_input(r->graph, node, 1))->type;
        for (uint32_t d = 1; d < kernel->rank; d++) {
            work *= (double)kernel->dim[d].scale;
        }
    }
    return work < 1e18 ? (uint64_t)work : UINT64_MAX;
}

static sx_code run_node(runner *r, uint32_t n)
{
    const sx_node *node = &r->graph->node[n];
    const sx_attr *attr = sx_graph_attr(r->graph, node);
    int64_t elements = sx_tensor_elements(&node->type);
    sx_tensor input[SX_INPUTS_MAX], result;
    sx_ctx scratch;
    r->value[n] = (sx_tensor){.type = node->type};
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t of = sx_graph_input(r->graph, node, k).i;
        if (!r->known[of]) {
            return SX_OK;
        }
        input[k] = r->value[of];
        r->undefined[n] |= r->undefined[of];
    }
    if (least_work(r, node) > r->work || (size_t)elements > SX_PROOF_BYTES / sizeof(double)) {
        return SX_OK;
    }
    sx_ctx_init(&scratch, SX_PROOF_BYTES);
    scratch.fuel = r->work;
    sx_code code = SX_OK;
    if (node->op != SX_OP_PARAMETER) {
        code = sx_node_eval(&scratch, node->op, attr, SX_EVAL_F64, input, node->input_count,
                            &node->type, &result);
    }
    bool over = code == SX_QUOTA || code == SX_NOMEM; /* too large: not evaluated */
    if (code == SX_OK) {
        r->value[n].data = take_values(r, elements);
        r->known[n] = r->value[n].data != NULL;
    }
    if (r->known[n] && node->op == SX_OP_PARAMETER) {
        draw_argument(attr, r->draw, &r->value[n]);
    } else if (r->known[n]) {
        memcpy(r->value[n].data, result.data, (size_t)elements * sizeof(double));
        r->undefined[n] |= node->op == SX_OP_FUSED && kernel_jumps(attr->body) ? BY_RANGE : 0;
        r->undefined[n] |= undefined_by(node->op, input, node->input_count, &result, r->near);
    }
    uint64_t spent = r->work - scratch.fuel + (uint64_t)elements;
    r->work -= spent < r->work ? spent : r->work;
    if (code != SX_OK && !over) {
        code = SX_FAIL(r->cx, code, "certificate: evaluating node %u: %s", n, scratch.error.text);
    }
    sx_ctx_fini(&scratch);
    return over ? SX_OK : code;
}

static void release_value(runner *r, uint32_t of, uint32_t n)
{
    if (r->last_use[of] == n && r->known[of] && r->value[of].data != NULL) {
        give_values(r, of);
    }
}

/* The memory of what is not read after node n. */
static void release(runner *r, uint32_t n)
{
    const sx_node *node = &r->graph->node[n];
    for (uint32_t k = 0; k < node->input_count; k++) {
        release_value(r, sx_graph_input(r->graph, node, k).i, n);
    }
    release_value(r, n, n);
}

static sx_code runner_init(sx_ctx *cx, sx_ctx *values, const sx_graph *graph, uint32_t draw,
                           uint64_t work, runner *r)
{
    *r = (runner){.cx = cx, .values = values, .graph = graph, .work = work, .draw = draw};
    r->value = SX_NEW_ARRAY(cx, sx_tensor, graph->node_count + 1);
    r->known = SX_NEW_ARRAY(cx, bool, graph->node_count + 1);
    r->undefined = SX_NEW_ARRAY(cx, uint8_t, graph->node_count + 1);
    r->last_use = SX_NEW_ARRAY(cx, uint32_t, graph->node_count + 1);
    if (r->value == NULL || r->known == NULL || r->undefined == NULL || r->last_use == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        r->last_use[n] = n;
        for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
            r->last_use[sx_graph_input(graph, &graph->node[n], k).i] = n;
        }
    }
    return SX_OK;
}

/* ---- comparing ---- */

typedef struct {
    double gap;  /* the greatest deviation */
    int64_t at;  /* where */
    bool finite; /* an element is a number on both sides */
} comparison;

static double float_gap(double x, double y, double scale)
{
    if (x == y || (isnan(x) && isnan(y))) {
        return 0;
    }
    return isfinite(x) && isfinite(y) ? fabs(x - y) / (1 + scale) : HUGE_VAL;
}

static comparison compare_values(const sx_tensor *a, const sx_tensor *b)
{
    comparison c = {0};
    int64_t count = sx_tensor_elements(&a->type);
    const double *x = a->data;
    const double *y = b->data;
    double scale = 0;
    if (!sx_type_equal(&a->type, &b->type)) {
        return (comparison){.gap = HUGE_VAL};
    }
    bool is_float = sx_dtype_class_of(a->type.dtype) == SX_CLASS_FLOAT;
    for (int64_t k = 0; is_float && k < count; k++) {
        scale = isfinite(x[k]) && fabs(x[k]) > scale ? fabs(x[k]) : scale;
        scale = isfinite(y[k]) && fabs(y[k]) > scale ? fabs(y[k]) : scale;
    }
    for (int64_t k = 0; k < count; k++) {
        bool same = memcmp(&x[k], &y[k], sizeof(*x)) == 0;
        double gap = is_float ? float_gap(x[k], y[k], scale) : same ? 0 : HUGE_VAL;
        c.finite = c.finite || !is_float || (isfinite(x[k]) && isfinite(y[k]));
        if (gap > c.gap) {
            c.gap = gap;
            c.at = k;
        }
    }
    return c;
}

static double shown(const sx_tensor *t, int64_t at)
{
    bool is_float = sx_dtype_class_of(t->type.dtype) == SX_CLASS_FLOAT;
    return is_float ? ((const double *)t->data)[at] : (double)((const int64_t *)t->data)[at];
}

/* What the values of a part may deviate by. */
static double allowance(const sx_graph *graph, const sx_proof_claim *claim, uint32_t claim_count)
{
    double place = 0x1p-21;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        switch ((int)graph->node[n].type.dtype) {
        case SX_F16: place = fmax(place, 0x1p-12); break;
        case SX_BF16: place = fmax(place, 0x1p-9); break;
        case SX_F8E4M3: place = fmax(place, 0x1p-5); break;
        case SX_F8E5M2: place = fmax(place, 0x1p-4); break;
        default: break;
        }
    }
    for (uint32_t i = 0; i < claim_count; i++) {
        if (sx_rule_class_of(claim[i].rule) == SX_RULE_APPROXIMATE) {
            place = fmax(place, 0x1p-10);
        }
    }
    return 64 * place;
}

/* ---- a part ---- */

typedef struct {
    sx_ctx *cx;
    const sx_graph *input, *output, *terms;
    const sx_proof_claim *claim;
    uint32_t claim_count;
    bool *seen;        /* [claim] both terms had numbers at one of the draws */
    bool *output_seen; /* [output] */
    double allowed;
    sx_evaluation *done;
} trial;

static void note(trial *t, const comparison *c)
{
    t->done->worst = c->gap > t->done->worst ? c->gap : t->done->worst;
}

/* Where the left side of a rule is defined, does its right side divide by zero? */
static bool divides_anew(const runner *r, const sx_proof_claim *claim)
{
    uint32_t right = claim->left == claim->from ? claim->to : claim->from;
    bool known = claim->left == claim->from || claim->left == claim->to;
    return known && r->undefined[claim->left] == 0 && r->undefined[right] == BY_ZERO;
}

static sx_code judge_claim(trial *t, runner *r, uint32_t i)
{
    const sx_proof_claim *claim = &t->claim[i];
    const sx_tensor *from = &r->value[claim->from];
    const sx_tensor *to = &r->value[claim->to];
    if (!r->known[claim->from] || !r->known[claim->to]) {
        return SX_OK;
    }
    bool defined = r->undefined[claim->from] == 0 && r->undefined[claim->to] == 0;
    comparison c = {0};
    if (defined || divides_anew(r, claim)) {
        c = compare_values(from, to);
    }
    if (c.gap > t->allowed) {
        return SX_FAIL(t->cx, SX_INTERNAL,
                       "certificate: step %u, %s: evaluated, its terms differ: element %lld is "
                       "%.9g and %.9g, allowed is a deviation of %.2g",
                       i + 1, sx_rule_name(claim->rule), (long long)c.at, shown(from, c.at),
                       shown(to, c.at), t->allowed);
    }
    t->seen[i] = t->seen[i] || c.finite;
    note(t, &c);
    return SX_OK;
}

/* Steps in the order of their later term; `head` and `next` are lists of those that can be judged after a term. */
static sx_code run_terms(trial *t, sx_ctx *values, const sx_graph *terms, uint32_t draw)
{
    runner r;
    SX_TRY(runner_init(t->cx, values, terms, draw, t->done->work, &r));
    r.near = t->allowed;
    uint32_t *head = SX_NEW_ARRAY(t->cx, uint32_t, terms->node_count + 1);
    uint32_t *next = SX_NEW_ARRAY(t->cx, uint32_t, t->claim_count + 1);
    if (head == NULL || next == NULL) {
        return t->cx->error.code;
    }
    for (uint32_t i = t->claim_count; i-- > 0;) {
        uint32_t from = t->claim[i].from;
        uint32_t to = t->claim[i].to;
        uint32_t later = from > to ? from : to;
        SX_ASSERT(later < terms->node_count);
        next[i] = head[later];
        head[later] = i + 1;
        r.last_use[from] = r.last_use[from] > later ? r.last_use[from] : later;
        r.last_use[to] = r.last_use[to] > later ? r.last_use[to] : later;
    }
    for (uint32_t n = 0; n < terms->node_count; n++) {
        SX_TRY(run_node(&r, n));
        for (uint32_t i = head[n]; i != 0; i = next[i - 1]) {
            SX_TRY(judge_claim(t, &r, i - 1));
        }
        for (uint32_t i = head[n]; i != 0; i = next[i - 1]) {
            release_value(&r, t->claim[i - 1].from, n);
            release_value(&r, t->claim[i - 1].to, n);
        }
        release(&r, n);
    }
    t->done->work = r.work;
    return SX_OK;
}

static sx_code run_program(trial *t, sx_ctx *values, const sx_graph *graph, uint32_t draw,
                           runner *r)
{
    SX_TRY(runner_init(t->cx, values, graph, draw, t->done->work, r));
    r->near = t->allowed;
    for (uint32_t i = 0; i < graph->output_count; i++) {
        r->last_use[graph->output[i].node.i] = UINT32_MAX;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        SX_TRY(run_node(r, n));
        release(r, n);
    }
    t->done->work = r->work;
    return SX_OK;
}

static sx_code run_programs(trial *t, sx_ctx *values, const sx_graph *input, const sx_graph *output,
                            uint32_t draw)
{
    runner a, b;
    SX_TRY(run_program(t, values, input, draw, &a));
    SX_TRY(run_program(t, values, output, draw, &b));
    if (SX_NEVER(input->output_count != output->output_count)) {
        return SX_FAIL(t->cx, SX_INTERNAL, "certificate: %u outputs became %u", input->output_count,
                       output->output_count);
    }
    for (uint32_t i = 0; i < input->output_count; i++) {
        uint32_t x = input->output[i].node.i;
        uint32_t y = output->output[i].node.i;
        if (!a.known[x] || !b.known[y] || a.undefined[x] != 0 || b.undefined[y] != 0) {
            continue;
        }
        comparison c = compare_values(&a.value[x], &b.value[y]);
        if (c.gap > t->allowed) {
            return SX_FAIL(t->cx, SX_INTERNAL,
                           "certificate: output '%.*s', evaluated, differs: element %lld is %.9g, "
                           "then %.9g, allowed is a deviation of %.2g",
                           (int)input->output[i].name.len, (const char *)input->output[i].name.ptr,
                           (long long)c.at, shown(&a.value[x], c.at), shown(&b.value[y], c.at),
                           t->allowed);
        }
        t->output_seen[i] = t->output_seen[i] || c.finite;
        note(t, &c);
    }
    return SX_OK;
}

/* Both draws bind symbols to small values inside their intervals, no two symbols to the same where there is room. */
static sx_code bind_small(sx_ctx *cx, const sx_graph *graph, uint32_t draw, const sx_graph **bound)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    sx_graph *made;
    uint32_t count = 0;
    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        const sx_symbol *symbol = &graph->symbol[s];
        if (!sx_symbol_is_declared(symbol)) {
            continue;
        }
        int64_t more = draw == 0 ? 1 + (int64_t)s % 3 : 0;
        int64_t room = symbol->high - symbol->low;
        binding[count++] = (sx_binding){symbol->name, symbol->low + (more < room ? more : room)};
    }
    *bound = graph;
    if (graph->symbol_count > 0) {
        SX_TRY(sx_graph_bind(cx, graph, binding, count, &made));
        SX_ASSERT(made->node_count == graph->node_count);
        *bound = made;
    }
    return SX_OK;
}

static sx_code run_draw(trial *t, uint32_t draw)
{
    const sx_graph *input, *output, *terms = NULL;
    sx_ctx values;
    SX_TRY(bind_small(t->cx, t->input, draw, &input));
    SX_TRY(bind_small(t->cx, t->output, draw, &output));
    if (t->terms != NULL) {
        SX_TRY(bind_small(t->cx, t->terms, draw, &terms));
    }
    sx_ctx_init(&values, SX_PROOF_BYTES);
    sx_code code = run_programs(t, &values, input, output, draw);
    sx_ctx_fini(&values);
    if (code == SX_OK && terms != NULL) {
        sx_ctx_init(&values, SX_PROOF_BYTES);
        code = run_terms(t, &values, terms, draw);
        sx_ctx_fini(&values);
    }
    return code;
}

sx_code sx_proof_evaluate(sx_ctx *cx, const sx_graph *input, const sx_graph *output,
                          const sx_graph *terms, const sx_proof_claim *claim, uint32_t claim_count,
                          sx_evaluation *done)
{
    trial t = {.cx = cx,
               .input = input,
               .output = output,
               .terms = terms,
               .claim = claim,
               .claim_count = claim_count,
               .done = done};
    t.seen = SX_NEW_ARRAY(cx, bool, claim_count + 1);
    t.output_seen = SX_NEW_ARRAY(cx, bool, input->output_count + 1);
    if (t.seen == NULL || t.output_seen == NULL) {
        return cx->error.code;
    }
    t.allowed = allowance(terms != NULL ? terms : input, claim, claim_count);
    done->allowed = t.allowed > done->allowed ? t.allowed : done->allowed;
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        SX_TRY(run_draw(&t, draw));
    }
    done->step_count += claim_count;
    done->output_count += input->output_count;
    for (uint32_t i = 0; i < claim_count; i++) {
        done->step_evaluated += t.seen[i] ? 1 : 0;
    }
    for (uint32_t i = 0; i < input->output_count; i++) {
        done->output_evaluated += t.output_seen[i] ? 1 : 0;
    }
    return SX_OK;
}
