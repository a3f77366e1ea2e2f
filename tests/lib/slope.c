#include "tests/lib/slope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/grad/grad.h"
#include "core/ir/program.h"
#include "tests/lib/test.h"

#define P UINT64_C(2147483647)
#define DEGREE_MAX 48
#define ARGUMENTS_MAX 256

static uint64_t power_mod(uint64_t x, uint64_t n)
{
    uint64_t result = 1;
    for (; n > 0; n >>= 1) {
        result = (n & 1) != 0 ? result * x % P : result;
        x = x * x % P;
    }
    return result;
}

static bool is_float(const sx_type *type)
{
    return sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
}

const sx_graph *sx_slope_gradient(sx_ctx *cx, const sx_graph *program, uint32_t output)
{
    sx_span name[ARGUMENTS_MAX];
    sx_grad_request request = {.output = program->output[output].name, .wrt = name};
    for (uint32_t n = 0; n < program->node_count; n++) {
        const sx_node *node = &program->node[n];
        if (node->op == SX_OP_PARAMETER && is_float(&node->type)) {
            ck_assert_uint_lt(request.wrt_count, ARGUMENTS_MAX);
            name[request.wrt_count++] = sx_graph_attr(program, node)->name;
        }
    }
    sx_gradient made;
    sx_graph *read;
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    ck_sx_ok(cx, sx_grad_make(cx, program, &request, &made));
    ck_sx_ok(cx, sx_graph_check(cx, made.graph));
    ck_sx_ok(cx, sx_graph_print(cx, made.graph, &text));
    ck_sx_ok(cx, sx_graph_parse(cx, sx_buf_span(&text), &read));
    sx_buf_fini(&text);
    return read;
}

/* ---- one experiment ---- */

typedef struct {
    sx_slope_case *at;
    sx_eval_mode mode;
    sx_ctx cx; /* of the values x, v, c */
    sx_tensor x[ARGUMENTS_MAX], v[ARGUMENTS_MAX], c;
    uint32_t count;
} trial;

static double real_value(const sx_slope_case *at, sx_rng *rng)
{
    double r = (double)sx_rng_f32(rng);
    return at->positive ? 1.25 + 0.75 * r : 2 * r;
}

static void fill(trial *t, sx_rng *rng, const sx_type *type, bool is_direction, sx_tensor *tensor)
{
    int64_t count = sx_tensor_elements(type);
    uint64_t *word = SX_NEW_ARRAY(&t->cx, uint64_t, (size_t)count);
    double *number = (double *)(void *)word;
    ck_assert_ptr_nonnull(word);
    *tensor = (sx_tensor){*type, word};
    for (int64_t k = 0; k < count; k++) {
        if (type->dtype == SX_BOOL) {
            word[k] = sx_rng_below(rng, 2);
        } else if (!is_float(type)) { /* of a place: also from the end, and beyond both ends */
            int64_t place = (int64_t)sx_rng_below(rng, 15) - 7;
            place = type->dtype == SX_U8 ? llabs(place) : place;
            word[k] = t->mode == SX_EVAL_MODP && place < 0 ? P + (uint64_t)place : (uint64_t)place;
        } else if (t->mode == SX_EVAL_MODP) {
            word[k] = sx_rng_below(rng, 6) == 0 ? 0 : sx_rng_below(rng, P);
        } else if (is_direction) {
            number[k] = (double)sx_rng_f32(rng);
        } else {
            number[k] = real_value(t->at, rng);
        }
    }
}

/* The direction is a single element. */
static void one_element(trial *t)
{
    int64_t before = 0;
    for (uint32_t k = 0; k < t->count; k++) {
        int64_t count = is_float(&t->v[k].type) ? sx_tensor_elements(&t->v[k].type) : 0;
        for (int64_t i = 0; i < count; i++) {
            ((double *)t->v[k].data)[i] = before + i + 1 == t->at->element ? 1 : 0;
        }
        before += count;
    }
    ck_assert(t->at->element <= before);
}

static void begin(trial *t, sx_rng *rng, sx_slope_case *at, sx_eval_mode mode)
{
    *t = (trial){.at = at, .mode = mode};
    sx_ctx_init(&t->cx, (size_t)256 << 20);
    at->text[0] = '\0';
    const sx_graph *program = at->program;
    for (uint32_t n = 0; n < program->node_count; n++) {
        const sx_node *node = &program->node[n];
        if (node->op != SX_OP_PARAMETER) {
            continue;
        }
        ck_assert_uint_lt(t->count + 1, ARGUMENTS_MAX);
        fill(t, rng, &node->type, false, &t->x[t->count]);
        fill(t, rng, &node->type, true, &t->v[t->count++]);
    }
    fill(t, rng, &sx_graph_node(program, program->output[at->output].node)->type, true, &t->c);
    if (at->element > 0) {
        one_element(t);
    }
}

/* L(t), or with `size` the sum of |c y|, as a residue or the bits of a double. */
static double real_sum(const sx_tensor *c, const sx_tensor *y, bool size)
{
    double sum = 0;
    const double *a = c->data;
    const double *b = y->data;
    for (int64_t k = 0; k < sx_tensor_elements(&y->type); k++) {
        sum += size ? fabs(a[k] * b[k]) : a[k] * b[k];
    }
    return sum;
}

static uint64_t exact_sum(const sx_tensor *c, const sx_tensor *y)
{
    uint64_t sum = 0;
    const uint64_t *a = c->data;
    const uint64_t *b = y->data;
    for (int64_t k = 0; k < sx_tensor_elements(&y->type); k++) {
        sum = (sum + a[k] * b[k]) % P;
    }
    return sum;
}

/* Parameters at x + step v, in the memory of `cx`. */
static void move(trial *t, sx_ctx *cx, double step, sx_tensor *moved)
{
    for (uint32_t k = 0; k < t->count; k++) {
        moved[k] = t->x[k];
        if (!is_float(&t->x[k].type)) {
            continue;
        }
        int64_t count = sx_tensor_elements(&t->x[k].type);
        moved[k].data = SX_NEW_ARRAY(cx, uint64_t, (size_t)count);
        ck_assert_ptr_nonnull(moved[k].data);
        for (int64_t i = 0; i < count; i++) {
            if (t->mode == SX_EVAL_MODP) {
                uint64_t x = ((const uint64_t *)t->x[k].data)[i];
                uint64_t v = ((const uint64_t *)t->v[k].data)[i];
                ((uint64_t *)moved[k].data)[i] = (x + (uint64_t)step * v) % P;
            } else {
                double x = ((const double *)t->x[k].data)[i];
                double v = ((const double *)t->v[k].data)[i];
                ((double *)moved[k].data)[i] = x + step * v;
            }
        }
    }
}

static void value_at(trial *t, double step, uint64_t *exact, double *real, double *size)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)256 << 20);
    sx_tensor moved[ARGUMENTS_MAX];
    sx_tensor *result = SX_NEW_ARRAY(&cx, sx_tensor, t->at->program->output_count);
    ck_assert_ptr_nonnull(result);
    move(t, &cx, step, moved);
    ck_sx_ok(&cx, sx_graph_eval(&cx, t->at->program, t->mode, moved, t->count, result,
                                t->at->program->output_count));
    if (t->mode == SX_EVAL_MODP) {
        *exact = exact_sum(&t->c, &result[t->at->output]);
    } else {
        *real = real_sum(&t->c, &result[t->at->output], false);
        *size = real_sum(&t->c, &result[t->at->output], true);
    }
    sx_ctx_fini(&cx);
}

/* The sum of v times the gradients; *size: of its terms without their signs. */
static void slope_of(trial *t, uint64_t *exact, double *real, double *size)
{
    const sx_graph *graph = t->at->gradient;
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)256 << 20);
    sx_tensor argument[ARGUMENTS_MAX];
    sx_tensor *result = SX_NEW_ARRAY(&cx, sx_tensor, graph->output_count);
    ck_assert_ptr_nonnull(result);
    memcpy(argument, t->x, t->count * sizeof(argument[0]));
    argument[t->count] = t->c;
    uint32_t count = t->count + (t->c.type.rank > 0 ? 1 : 0);
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, t->mode, argument, count, result, graph->output_count));
    uint32_t next = t->at->program->output_count;
    *exact = 0;
    *real = *size = 0;
    for (uint32_t k = 0; k < t->count; k++) {
        if (!is_float(&t->x[k].type)) {
            continue;
        }
        ck_assert_uint_lt(next, graph->output_count);
        ck_assert(sx_type_equal(&result[next].type, &t->x[k].type));
        if (t->mode == SX_EVAL_MODP) {
            *exact = (*exact + exact_sum(&t->v[k], &result[next])) % P;
        } else {
            *real += real_sum(&t->v[k], &result[next], false);
            *size += real_sum(&t->v[k], &result[next], true);
        }
        next++;
    }
    ck_assert_uint_eq(next, graph->output_count);
    if (t->c.type.rank == 0) { /* the cotangent of a scalar is one */
        *exact = *exact * ((const uint64_t *)t->c.data)[0] % P;
        double c = t->mode == SX_EVAL_MODP ? 0 : ((const double *)t->c.data)[0];
        *real *= c;
        *size *= fabs(c);
    }
    sx_ctx_fini(&cx);
}

/* ---- exact ---- */

static uint64_t capped(uint64_t degree)
{
    return degree > DEGREE_MAX ? DEGREE_MAX + 1 : degree;
}

/* `degree` holds those of the operands of a region, and then of its results. */
static void degrees_of_region(sx_ctx *cx, const sx_node *node, const sx_attr *attr,
                              const sx_type *slices, uint64_t *degree);

/* The degree of each node in t, or DEGREE_MAX + 1. `given`: those of the parameters, or NULL: floats have 1. */
static uint64_t *degrees_of(sx_ctx *cx, const sx_graph *graph, const uint64_t *given)
{
    uint64_t *degree = SX_NEW_ARRAY(cx, uint64_t, graph->node_count);
    uint32_t parameters = 0;
    ck_assert_ptr_nonnull(degree);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        const sx_attr *attr = sx_graph_attr(graph, node);
        uint64_t each[SX_INPUTS_MAX + 1];
        uint64_t most = 0;
        uint64_t sum = 0;
        int64_t largest = 1;
        for (uint32_t k = 0; k < node->input_count; k++) {
            sx_node_id x = sx_graph_input(graph, node, k);
            each[k] = degree[x.i];
            most = each[k] > most ? each[k] : most;
            sum += each[k];
            int64_t elements = sx_tensor_elements(&sx_graph_node(graph, x)->type);
            largest = elements > largest ? elements : largest;
        }
        bool product = node->op == SX_OP_MULTIPLY || node->op == SX_OP_DOT_GENERAL ||
                       node->op == SX_OP_CONVOLUTION;
        bool several =
            (sx_op_info_of(node->op)->attrs & SX_A(reducer)) != 0 && attr->reducer == SX_PRODUCT;
        degree[n] = product ? sum : several ? most * (uint64_t)largest : most;
        if (node->op == SX_OP_PARAMETER) {
            degree[n] = given != NULL ? given[parameters] : is_float(&node->type) ? 1 : 0;
            parameters++;
        } else if (sx_op_info_of(node->op)->op_class == SX_OPCLASS_REGION) {
            uint32_t first = node->op == SX_OP_SCAN ? (uint32_t)attr->carried : 0;
            sx_node_id slices = sx_graph_input(graph, node, first);
            degrees_of_region(cx, node, attr, &sx_graph_node(graph, slices)->type, each);
            degree[n] = each[attr->result];
        }
        degree[n] = capped(degree[n]);
    }
    return degree;
}

static void degrees_of_results(sx_ctx *cx, const sx_program *program, const uint64_t *given,
                               uint64_t *result)
{
    const uint64_t *degree = degrees_of(cx, program->graph, given);
    for (uint32_t r = 0; r < program->graph->output_count; r++) {
        result[r] = degree[program->graph->output[r].node.i];
    }
}

static void degrees_of_region(sx_ctx *cx, const sx_node *node, const sx_attr *attr,
                              const sx_type *slices, uint64_t *degree)
{
    uint64_t result[SX_PROGRAM_RESULTS_MAX];
    uint64_t other[SX_PROGRAM_RESULTS_MAX];
    if (node->op == SX_OP_WHILE) { /* of any number of rounds */
        memset(degree, 0xff, (size_t)attr->carried * sizeof(*degree));
        return;
    }
    if (node->op == SX_OP_COND) { /* the predicate has degree 0 */
        degrees_of_results(cx, attr->then, &degree[1], result);
        degrees_of_results(cx, attr->otherwise, &degree[1], other);
        for (uint32_t r = 0; r < attr->then->graph->output_count; r++) {
            degree[r] = result[r] > other[r] ? result[r] : other[r];
        }
        return;
    }
    uint64_t most[SX_PROGRAM_RESULTS_MAX] = {0};
    uint32_t count = attr->step->graph->output_count;
    for (int64_t round = 0; round < slices->dim[0].scale; round++) {
        degrees_of_results(cx, attr->step, degree, result);
        memcpy(degree, result, (size_t)attr->carried * sizeof(*degree));
        for (uint32_t r = 0; r < count; r++) {
            bool last = r < attr->carried; /* of the others those of all rounds */
            most[r] = last || result[r] > most[r] ? result[r] : most[r];
        }
    }
    memcpy(degree, most, count * sizeof(*degree));
}

sx_slope sx_slope_exact(sx_rng *rng, sx_slope_case *at)
{
    trial t;
    begin(&t, rng, at, SX_EVAL_MODP);
    const uint64_t *degrees = degrees_of(&t.cx, at->program, NULL);
    uint32_t degree = (uint32_t)degrees[at->program->output[at->output].node.i];
    if (degree > DEGREE_MAX) {
        sx_ctx_fini(&t.cx);
        return SX_SLOPE_UNDECIDED;
    }
    uint64_t value[DEGREE_MAX + 1] = {0};
    uint64_t slope;
    uint64_t expected = 0;
    double unused;
    for (uint32_t k = 0; k <= degree; k++) {
        value_at(&t, k, &value[k], &unused, &unused);
    }
    /* Newton: L'(0) is the sum of (-1)^(k - 1) / k times the k-th forward difference */
    for (uint32_t k = 1; k <= degree; k++) {
        for (uint32_t i = 0; i + k <= degree; i++) {
            value[i] = (value[i + 1] + P - value[i]) % P;
        }
        uint64_t part = value[0] * power_mod(k, P - 2) % P;
        expected = (expected + (k % 2 == 1 ? part : P - part)) % P;
    }
    slope_of(&t, &slope, &unused, &unused);
    sx_ctx_fini(&t.cx);
    (void)snprintf(at->text, sizeof(at->text),
                   "degree %u: the slope is %llu, the gradients say %llu", degree,
                   (unsigned long long)expected, (unsigned long long)slope);
    return slope == expected ? SX_SLOPE_SAME : SX_SLOPE_DIFFERENT;
}

/* ---- real ---- */

sx_slope sx_slope_real(sx_rng *rng, sx_slope_case *at)
{
    trial t;
    begin(&t, rng, at, SX_EVAL_F64);
    double d[3];
    double bend[3]; /* how far the slopes on both sides are apart: h L'' where it is smooth */
    double here = 0;
    double largest = at->step > 0 ? at->step : 0x1p-12;
    double size = 0;
    double unit = ldexp(1, -53) * at->program->node_count;
    double slope;
    double terms;
    uint64_t unused;
    value_at(&t, 0, &unused, &here, &size);
    for (uint32_t k = 0; k < 3; k++) {
        double h = ldexp(largest, -(int)k);
        double high = 0;
        double low = 0;
        double sum = 0;
        value_at(&t, h, &unused, &high, &sum);
        size = fmax(size, sum);
        value_at(&t, -h, &unused, &low, &sum);
        size = fmax(size, sum);
        d[k] = (high - low) / (2 * h);
        bend[k] = (high - here - (here - low)) / h;
    }
    for (uint32_t k = 0; k < t.count; k++) {
        unit += ldexp(1, -53) * (double)sx_tensor_elements(&t.x[k].type);
    }
    slope_of(&t, &unused, &slope, &terms);
    sx_ctx_fini(&t.cx);
    double kink = fmax(fabs(bend[0] - 2 * bend[1]), fabs(bend[1] - 2 * bend[2]));
    double distance = fmax(fmax(fabs(d[1] - d[2]), fabs(d[0] - d[1]) / 4), kink);
    double allowed = 2 * distance + unit * (size * 4 / largest + terms) + 1e-12;
    double scale = terms + fabs(d[2]) + 1e-3;
    (void)snprintf(at->text, sizeof(at->text),
                   "the slope is %.12g, the gradients say %.12g, allowed are %.3g", d[2], slope,
                   allowed);
    if (terms * largest > 16 * (size + 1)) {
        return SX_SLOPE_UNDECIDED; /* a step is too long for the series: sin(1e9 x) turns many times in it */
    }
    if (!isfinite(d[2]) || !isfinite(slope) || !isfinite(allowed) || allowed > 1e-4 * scale) {
        return SX_SLOPE_UNDECIDED; /* the slope of an infinite value that a tanh hides is infinity times zero */
    }
    return fabs(slope - d[2]) <= allowed ? SX_SLOPE_SAME : SX_SLOPE_DIFFERENT;
}
