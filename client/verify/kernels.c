/* kernels.c - single kernels of a module on random inputs, compared with the interpreter at sampled elements. */
#include "client/verify/verifier.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/runtime/pages.h"
#include "client/verify/compare.h"
#include "client/verify/moved.h"
#include "client/verify/rounded.h"
#include "client/verify/verify.h"
#include "core/eval/cell.h"
#include "core/fuse/fuse.h"
#include "core/ir/fused.h"

#define ROW_SHARE 4u    /* elements that are sampled in one row of a kernel that reduces rows */
#define POINTS_AGAIN 8u /* elements of a kernel that was compared before: two rows */
#define PATTERN \
    0x7E /* in every byte of what is not written yet: 8e37 in f32, no bool, no small integer */

/* ---- comparing ---- */

typedef struct {
    /* largest absolute difference; infinite where one side is not finite and the other differs */
    double error;
    double scale; /* largest finite magnitude of the reference */
    uint64_t points;
    uint64_t worst;   /* element with the largest difference */
    double got, want; /* there */
} comparison;

#define ROUNDING_SPREAD 64.0 /* a kernel may round this often what the interpreter rounds once */

/* `want` is computed in double precision, `typed` with each result rounded to its element type. Where they
 * agree an element is certain; where rounding alone moves it (cancellation, a range left on the way), it is as
 * uncertain as their difference. */
static double difference_of(double got, double want, double typed, double moved)
{
    bool as_want = got == want || (isnan(got) && isnan(want));
    bool as_typed = got == typed || (isnan(got) && isnan(typed));
    if (as_want || as_typed || (isfinite(want) && !isfinite(typed) && !isfinite(got))) {
        return 0;
    }
    if (!isfinite(got) || !isfinite(want)) {
        return (double)INFINITY;
    }
    double spread = isfinite(typed) ? fabs(want - typed) : 0;
    return fmax(0, fabs(got - want) - ROUNDING_SPREAD * fmax(spread, moved));
}

/* `moved`: how far other roundings were seen to move the element, 0: nobody looked. */
static void compare(comparison *c, uint64_t element, double got, double want, double typed,
                    double moved)
{
    c->points++;
    double difference = difference_of(got, want, typed, moved);
    if (isfinite(want) && isfinite(typed) && fabs(want) > c->scale) {
        c->scale = fabs(want);
    }
    if (difference > c->error || c->points == 1) {
        c->error = difference;
        c->worst = element;
        c->got = got;
        c->want = want;
    }
}

static double relative(const comparison *c)
{
    return c->error == 0 ? 0 : c->error / (c->scale > 0 ? c->scale : 1);
}

/* ---- sampling ---- */

/* The launch that packs into a tensor, or NULL; *result is which of its results the tensor is. */
static const sx_module_launch *packing_of(const sx_module *module, uint32_t tensor,
                                          uint32_t *result)
{
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        const sx_module_kernel *kernel = sx_module_kernel_of(module, i);
        uint32_t results = kernel != NULL ? kernel->result_count : 0;
        uint32_t first = launch->arg_first + launch->arg_count - results;
        for (*result = 0; *result < results && kernel->kind == SX_MODULE_PACK; (*result)++) {
            if (module->arg[first + *result] == tensor) {
                return launch;
            }
        }
    }
    return NULL;
}

uint32_t sxv_unpacked(const sx_module *module, uint32_t tensor)
{
    uint32_t result;
    for (uint64_t i = 0; i < module->launch_count; i++) { /* rows apart, then sums of slices */
        const sx_module_launch *packing = packing_of(module, tensor, &result);
        if (packing == NULL) {
            break;
        }
        tensor = module->arg[packing->arg_first + result];
    }
    return tensor;
}

/* Elements of a result, the first and the last always among them. `row` above 1: ROW_SHARE elements of one row of this
 * length cost little more than one of them, because all need its reductions. */
static void sample(sxv_verifier *v, int64_t elements, int64_t row, int64_t *position,
                   uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        position[i] = (int64_t)sx_rng_below(&v->rng, (uint64_t)elements);
    }
    position[0] = 0;
    position[count - 1] = elements - 1;
    for (uint32_t i = 0; i < count && row > 1; i++) {
        uint32_t first = i - i % ROW_SHARE;
        bool is_last = first + ROW_SHARE >= count;
        position[i] = position[is_last ? count - 1 : first] / row * row + position[i] % row;
    }
}

/* How many elements of a launch are compared. Where all outputs will be compared, too, launches of a kernel that was
 * compared before in this variant get fewer: code and shapes are the same, so what could still be wrong with them is
 * where they read and write. */
static uint32_t points_of(const sxv_verifier *v, uint32_t kernel)
{
    bool few = v->with_whole && !v->replaced && v->seen[kernel];
    return few && v->points > POINTS_AGAIN ? POINTS_AGAIN : v->points;
}

/* A result of a launch, and the node that says what it holds. */
typedef struct {
    const sx_module_launch *launch;
    const sx_node *node;
    /* The kernel computes several nodes: all of them over the arguments of the launch, and which one this is; else
     * NULL. */
    const sx_join *join;
    uint32_t which;
    uint32_t tensor;
    size_t at; /* in the memory of all results, where the launch is emulated */
    /* The elements that are compared, and what they have to be: in double precision, and with the range and rounding
     * of the element types. */
    uint32_t count;
    int64_t *position;
    double *value, *typed;
    /* How far other roundings move each of them, and seven of eight of them at most; 0: not measured. */
    double *moved, usual;
    /* Nothing rounds it, or what it answers to a rounding is a jump; the launch stores over its operands. */
    bool certain, overwritten;
    /* It rounds these two arguments before it multiplies them, and so does `typed`. */
    bool rounds;
    uint32_t factor[2];
} subject;

/* Moves each of `count` stored elements of f64 or f32 by a unit in the last place, up or down at random. */
static void move_by_units(sx_dtype dtype, void *raw, int64_t count, sx_rng rng)
{
    double *wide = raw;
    float *narrow = raw;
    for (int64_t i = 0; i < count; i++) {
        bool up = (sx_rng_next(&rng) & 1) != 0;
        if (dtype == SX_F64) {
            wide[i] *= up ? 1 + 0x1p-52 : 1 - 0x1p-53;
        } else {
            narrow[i] *= up ? 1 + 0x1p-23F : 1 - 0x1p-24F;
        }
    }
}

/* The stored elements of operand k: rounded where the kernel rounds factors, moved where `moved` is a seed, not 0. */
static sx_code operand_at(sx_ctx *cx, sx_eval_mode mode, const subject *s, uint32_t k,
                          const sx_type *type, uint64_t moved, sx_span *raw)
{
    bool factor = s->rounds && (k == s->factor[0] || k == s->factor[1]);
    bool rounds = factor && mode == SX_EVAL_TYPED;
    bool moves = moved != 0 && (type->dtype == SX_F64 || type->dtype == SX_F32);
    if (!rounds && !moves) {
        return SX_OK;
    }
    void *copy = sx_alloc(cx, raw->len);
    if (copy == NULL) {
        return cx->error.code;
    }
    memcpy(copy, raw->ptr, raw->len);
    if (moves) {
        move_by_units(type->dtype, copy, sx_tensor_elements(type), (sx_rng){moved + k});
    }
    if (rounds) {
        sxv_round_tf32(copy, sx_tensor_elements(type));
    }
    raw->ptr = copy;
    return SX_OK;
}

static sx_code reference_at(const sxv_verifier *v, sx_ctx *cx, sx_eval_mode mode, const subject *s,
                            const int64_t *position, uint32_t count, uint64_t moved, double *value)
{
    const sx_node *node = s->node;
    sx_type type[SX_INPUTS_MAX];
    sx_span raw[SX_INPUTS_MAX];
    uint32_t inputs = s->join != NULL ? s->join->whole.body->arg_count : node->input_count;
    for (uint32_t k = 0; k < inputs; k++) {
        sx_node_id from =
            s->join != NULL ? (sx_node_id){s->join->tensor[k]} : sx_graph_input(v->graph, node, k);
        type[k] = sx_graph_node(v->graph, from)->type;
        uint32_t tensor = sxv_unpacked(v->module, v->module->arg[s->launch->arg_first + k]);
        size_t size = (size_t)sx_tensor_elements(&type[k]) * sx_dtype_bytes(type[k].dtype);
        SX_ASSERT(size <= v->module->tensor[tensor].size);
        raw[k] = (sx_span){sxv_memory(v, tensor), size};
        SX_TRY(operand_at(cx, mode, s, k, &type[k], moved, &raw[k]));
    }
    const sx_attr *attr =
        s->join != NULL ? &s->join->member[s->which] : sx_graph_attr(v->graph, node);
    if (node->op == SX_OP_FUSED) {
        return sx_fused_eval_at(cx, attr, mode, type, raw, inputs, position, count, value);
    }
    if (sxv_moved_at(node, attr, type, raw, position, count, value)) {
        return SX_OK;
    }
    sx_tensor input[SX_INPUTS_MAX], result;
    for (uint32_t k = 0; k < node->input_count; k++) {
        SX_TRY(sx_tensor_unpack(cx, &type[k], mode, raw[k], &input[k]));
    }
    SX_TRY(sx_node_eval(cx, node->op, attr, mode, input, node->input_count, &node->type, &result));
    bool is_float = sx_dtype_class_of(node->type.dtype) == SX_CLASS_FLOAT;
    for (uint32_t i = 0; i < count; i++) {
        value[i] = is_float ? ((const double *)result.data)[position[i]]
                            : (double)((const int64_t *)result.data)[position[i]];
    }
    return SX_OK;
}

/* Sampled elements of a launch by the interpreter, in both modes, some elements on each thread. */
#define SAMPLE_PARTS_MAX 16u
typedef struct {
    const sxv_verifier *v;
    const subject *s;
    const int64_t *position;
    uint32_t count, parts;
    double *value[2];                     /* in double precision, and rounded */
    sx_error error[2 * SAMPLE_PARTS_MAX]; /* of each task */
} sampling;

static void run_samples(void *self, uint32_t thread, int64_t first, int64_t last)
{
    static const sx_eval_mode mode[2] = {SX_EVAL_F64, SX_EVAL_TYPED};
    sampling *s = self;
    uint32_t each = (s->count + s->parts - 1) / s->parts;
    each = (each + ROW_SHARE - 1) / ROW_SHARE * ROW_SHARE; /* rows are not divided */
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        sx_ctx own;
        uint32_t from = (uint32_t)(i / 2) * each;
        uint32_t count = from < s->count ? s->count - from : 0;
        sx_ctx_init(&own, s->v->cx->arena.limit_bytes);
        own.fuel = UINT64_MAX;
        if (count > 0 &&
            reference_at(s->v, &own, mode[i % 2], s->s, s->position + from,
                         count < each ? count : each, 0, s->value[i % 2] + from) != SX_OK) {
            s->error[i] = own.error;
        }
        sx_ctx_fini(&own);
    }
}

/* `modes`: 1 in double precision alone, 2 both. */
static sx_code sample_reference(sxv_verifier *v, const subject *of, const int64_t *position,
                                uint32_t count, uint32_t modes, double *value, double *typed)
{
    uint32_t threads = sxr_pool_threads(v->pool);
    sampling s = {.v = v,
                  .s = of,
                  .position = position,
                  .count = count,
                  .parts = threads < SAMPLE_PARTS_MAX ? threads : SAMPLE_PARTS_MAX,
                  .value = {value, typed}};
    SX_ASSERT(modes == 1 || modes == 2);
    s.parts = of->node->op == SX_OP_FUSED && modes == 2 ? s.parts : 1;
    if (modes == 1) {
        run_samples(&s, 0, 0, 1);
    } else {
        sxr_pool_run(v->pool, run_samples, &s, 2 * (int64_t)s.parts);
    }
    for (uint32_t i = 0; i < 2 * s.parts; i++) {
        if (s.error[i].code != SX_OK) {
            v->cx->error = s.error[i];
            return s.error[i].code;
        }
    }
    return SX_OK;
}

/* An element that is small beside what it is made of, as a sum that cancels, is as uncertain as roundings make it, and
 * the one rounded reference may lie beside the exact one by chance; of f64 both are one. So where an element is off,
 * the operands are moved by units in their last places, which rounds everything in between in another way: Monte Carlo
 * arithmetic (Parker 1997). An element is as uncertain as it moves, or as seven of eight of them do: where no more than
 * a unit of what cancelled is left, the eight results of a single one are all equal about once in 256 times. Kernels
 * that jump are left out: where floor is asked about a whole number, a unit would excuse any other. */
#define MOVED_RUNS 8u

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Puts how far each element moves into s->moved, and what is usual into s->usual. */
static sx_code measure_moved(const sxv_verifier *v, subject *s)
{
    double *got = calloc((size_t)s->count + 1, sizeof(*got));
    sx_code code =
        got != NULL ? SX_OK : SX_FAIL(v->cx, SX_NOMEM, "no memory for %u elements", s->count);
    for (uint64_t run = 1; run <= MOVED_RUNS && code == SX_OK; run++) {
        sx_ctx own;
        sx_ctx_init(&own, v->cx->arena.limit_bytes);
        own.fuel = UINT64_MAX;
        code = reference_at(v, &own, SX_EVAL_TYPED, s, s->position, s->count, run << 40, got);
        if (code != SX_OK) {
            v->cx->error = own.error;
        }
        for (uint32_t i = 0; i < s->count && code == SX_OK; i++) {
            double far = fabs(got[i] - s->value[i]);
            s->moved[i] = isfinite(far) ? fmax(s->moved[i], far) : s->moved[i];
        }
        sx_ctx_fini(&own);
    }
    if (code == SX_OK && s->count > 0) {
        memcpy(got, s->moved, s->count * sizeof(*got));
        qsort(got, s->count, sizeof(*got), ascending);
        s->usual = got[s->count - 1 - s->count / 8];
    }
    free(got);
    return code;
}

/* Does the node, or any part of the kernel that it is, jump? */
static bool jumps(const sxv_verifier *v, const subject *s)
{
    const sx_node *node = s->node;
    bool any = false;
    if (node->op != SX_OP_FUSED) {
        for (uint32_t k = 0; k < node->input_count; k++) {
            sx_dtype from = sx_graph_node(v->graph, sx_graph_input(v->graph, node, k))->type.dtype;
            any = any || sxv_jumps(node->op, from, node->type.dtype);
        }
        return any;
    }
    const sx_attr *attr =
        s->join != NULL ? &s->join->member[s->which] : sx_graph_attr(v->graph, node);
    for (uint32_t i = 0; i < attr->body->instr_count; i++) {
        const sx_instr *at = &attr->body->instr[i];
        any = any || (at->kind == SX_BODY_APPLY &&
                      sxv_jumps(at->op, attr->body->instr[at->x].dtype, at->dtype));
    }
    return any;
}

/* Does a launch store where the reference of its results reads? */
static bool overwrites(const sxv_verifier *v, const sx_module_launch *launch)
{
    const uint32_t *arg = v->module->arg + launch->arg_first;
    uint32_t first = launch->arg_count - sx_module_results(v->module, launch);
    for (uint32_t k = 0; k < first; k++) {
        uint32_t tensor = sxv_unpacked(v->module, arg[k]);
        const uint8_t *from = sxv_memory(v, tensor);
        for (uint32_t r = first; r < launch->arg_count; r++) {
            const uint8_t *to = sxv_memory(v, arg[r]);
            if (from < to + sxr_size(v->program, arg[r]) &&
                to < from + sxr_size(v->program, tensor)) {
                return true;
            }
        }
    }
    return false;
}

sx_code sxv_run_launch(sxv_verifier *v, uint32_t index)
{
    const sx_module_launch *launch = &v->module->launch[index];
    void *buffer[65];
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        buffer[k] = sxv_memory(v, v->module->arg[launch->arg_first + k]);
    }
    return sxr_execute(&v->executor, index, buffer);
}

/* Emulates a launch beside its results' memory, which may hold what the reference still reads. Large launches
 * are emulated in part: the rest of the results is random. Not `whole`: only where v->touched is set may they
 * be compared. */
static sx_code emulate_launch(sxv_verifier *v, uint32_t index, const sx_type *result,
                              sxr_emulated *emulated)
{
    const sx_module_launch *launch = &v->module->launch[index];
    uint32_t results = sx_module_results(v->module, launch), first = launch->arg_count - results;
    void *buffer[65];
    size_t offset[SX_MODULE_RESULTS_MAX];
    size_t room = sxr_results_room(&v->executor, index, offset);
    if (room > v->result_bytes) {
        free(v->result);
        free(v->touched);
        v->result_bytes = room;
        v->result = malloc(v->result_bytes);
        v->touched = malloc(v->result_bytes);
        if (v->result == NULL || v->touched == NULL) {
            return SX_FAIL(v->cx, SX_NOMEM, "no memory for a result of %zu bytes", v->result_bytes);
        }
    }
    memset(v->touched, 0, room);
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        uint32_t tensor = v->module->arg[launch->arg_first + k];
        buffer[k] = k < first ? sxv_memory(v, tensor) : v->result + offset[k - first];
        if (k >= first) { /* draws nothing: as where code is executed */
            sxr_fill_random(&v->module->tensor[tensor], buffer[k], v->rng.state);
        }
    }
    uint64_t bytes = (uint64_t)sx_tensor_elements(result) * sx_dtype_bytes(result->dtype);
    return sxr_execute_covering(&v->executor, index, buffer, bytes, v->emulated_max, v->touched,
                                emulated);
}

/* Elements of a result that was emulated in part: each drawn one, or the next behind it that was stored. */
static void sample_touched(sxv_verifier *v, const subject *s, int64_t *position, uint32_t count)
{
    const sx_type *type = &s->node->type;
    const uint8_t *touched = v->touched + s->at;
    int64_t elements = sx_tensor_elements(type);
    size_t bytes = sx_dtype_bytes(type->dtype);
    for (uint32_t i = 0; i < count; i++) {
        int64_t tries = elements;
        while (touched[(size_t)position[i] * bytes] == 0 && tries-- > 0) {
            position[i] = position[i] + 1 < elements ? position[i] + 1 : 0;
        }
    }
}

/* What a block program that was emulated in part stored is compared in runs of neighbours, which share what they read,
 * and not all of them where that takes too long. */
#define STORED_STEPS_MAX 1e7
#define RUN 8
typedef struct {
    int64_t run, every; /* elements: so many of so many that were stored */
} stored_runs;

static stored_runs runs_of(const sx_node *node, const sx_attr *attr, int64_t row, double stored)
{
    stored_runs r = {.run = RUN};
    double steps = 1;
    for (uint32_t d = 0; node->op == SX_OP_FUSED && d < attr->type.rank; d++) {
        steps *= (attr->body->axes >> d & 1) != 0 ? (double)attr->type.dim[d].scale : 1;
    }
    if (row > 1) { /* scores are made once for a row: whole ones, an odd number apart */
        r.run = row;
        r.every = ((int64_t)(stored / (double)row * 2 * steps / STORED_STEPS_MAX) | 1) * row;
    } else { /* an odd distance, so that no column of a tile is left out */
        r.every = (int64_t)(stored * steps / STORED_STEPS_MAX) * RUN | 1;
    }
    r.every = r.every > r.run ? r.every : 1;
    return r;
}

/* Are the scores of a row's elements made once for the row, so that whole rows are compared? */
static bool has_scores(const sx_module_kernel *kernel)
{
    return kernel->kind == SX_MODULE_ONLINE || kernel->kind == SX_MODULE_NESTED;
}

/* `row` above 1: the length of the rows of a kernel that has scores. */
static sx_code compare_stored(sxv_verifier *v, const subject *s, int64_t row, comparison *c)
{
    const sx_node *node = s->node;
    SX_ASSERT(s->join == NULL && s->at == 0); /* a block program */
    size_t bytes = sx_dtype_bytes(node->type.dtype);
    int64_t elements = sx_tensor_elements(&node->type), stored = 0, seen = 0;
    int64_t position[SXV_KERNEL_POINTS_MAX];
    double value[SXV_KERNEL_POINTS_MAX], typed[SXV_KERNEL_POINTS_MAX];
    for (int64_t i = 0; i < elements; i++) {
        stored += v->touched[(size_t)i * bytes] != 0 ? 1 : 0;
    }
    stored_runs r = runs_of(node, sx_graph_attr(v->graph, node), row, (double)stored);
    for (int64_t i = 0; i < elements;) {
        uint32_t count = 0;
        for (; i < elements && count < SXV_KERNEL_POINTS_MAX; i++) {
            if (v->touched[(size_t)i * bytes] != 0 && (seen++ % r.every < r.run)) {
                position[count++] = i;
            }
        }
        SX_TRY(count > 0 ? sample_reference(v, s, position, count, 2, value, typed) : SX_OK);
        for (uint32_t k = 0; k < count; k++) {
            compare(c, (uint64_t)position[k], sxv_element(node->type.dtype, v->result, position[k]),
                    value[k], typed[k], s->usual);
        }
    }
    return SX_OK;
}

void sxv_write_pattern(void *self, uint32_t thread, int64_t first, int64_t last)
{
    (void)thread;
    for (int64_t end; first < last; first = end) {
        end = sx_min_i64(first + (int64_t)SXR_TOUCH_BYTES, last);
        sxr_pages_touch((uint8_t *)self + first, (size_t)(end - first));
        memset((uint8_t *)self + first, PATTERN, (size_t)(end - first));
    }
}

/* Can one see what this launch stores in its result `r`? Not where it lies over an operand, nor in single bytes. */
static bool is_watched(const sxv_verifier *v, const sx_module_launch *launch, uint32_t r)
{
    const uint32_t *arg = v->module->arg + launch->arg_first;
    uint32_t first = launch->arg_count - sx_module_results(v->module, launch);
    uint32_t result = arg[first + r];
    const uint8_t *to = sxv_memory(v, result);
    bool apart = v->module->tensor[result].element_bytes > 1;
    for (uint32_t k = 0; k < first; k++) {
        const uint8_t *from = sxv_memory(v, arg[k]);
        apart = apart && (from + sxr_size(v->program, arg[k]) <= to ||
                          to + sxr_size(v->program, result) <= from);
    }
    return apart;
}

/* Is each of the elements of a result written that began as a pattern? */
static sx_code find_unwritten(sxv_verifier *v, uint32_t index, uint32_t result, uint64_t elements)
{
    const uint64_t pattern = UINT64_C(0x0101010101010101) * PATTERN;
    size_t bytes = v->module->tensor[result].element_bytes;
    const uint8_t *memory = sxv_memory(v, result);
    SX_ASSERT(bytes <= sizeof(pattern));
    for (uint64_t i = 0; i < elements; i++) {
        if (memcmp(memory + i * bytes, &pattern, bytes) == 0) {
            return SX_FAIL(v->cx, SX_INTERNAL,
                           "launch %u: element %llu of tensor %u is not written", index,
                           (unsigned long long)i, result);
        }
    }
    v->written += elements;
    return SX_OK;
}

/* Runs a launch; of a large program every element of its results must be written. */
static sx_code run_watched(sxv_verifier *v, uint32_t index, const subject *s, uint32_t results)
{
    const sx_module_launch *launch = &v->module->launch[index];
    uint64_t elements[SX_MODULE_RESULTS_MAX] = {0};
    SX_ASSERT(results <= SX_MODULE_RESULTS_MAX);
    for (uint32_t r = 0; r < results && v->large; r++) {
        size_t bytes = v->module->tensor[s[r].tensor].element_bytes;
        uint64_t all = sxr_size(v->program, s[r].tensor) / bytes;
        uint64_t most = (uint64_t)sx_tensor_elements(&s[r].node->type);
        if (is_watched(v, launch, r)) { /* a temporary has room for the largest extents */
            elements[r] = most < all ? most : all;
            sxr_pool_run(v->pool, sxv_write_pattern, sxv_memory(v, s[r].tensor),
                         (int64_t)(elements[r] * bytes));
        }
    }
    SX_TRY(sxv_run_launch(v, index));
    for (uint32_t r = 0; r < results; r++) {
        SX_TRY(find_unwritten(v, index, s[r].tensor, elements[r]));
    }
    return SX_OK;
}

/* Attention and its gradients by blocks of threads, of all keys or of pieces that the kernel puts together, round their
 * weights to the type of their values, which is that of their result: it may be as many units of the type off as an
 * output may. */
#define WEIGHT_UNITS 4
static double tolerance_of(const sx_module *module, const sx_module_launch *launch, sx_dtype dtype)
{
    const sx_module_kernel *kernel = &module->kernel[launch->kernel];
    SX_ASSERT(kernel->part_count > 0);
    bool blocks = module->part[kernel->part_first].threads > 0;
    for (uint32_t a = 0; a + kernel->result_count < launch->arg_count; a++) {
        uint32_t tensor = module->arg[launch->arg_first + a];
        blocks = blocks || sxv_unpacked(module, tensor) != tensor;
    }
    bool rounds = has_scores(kernel) && blocks;
    return SXR_KERNEL_TOLERANCE + (rounds ? WEIGHT_UNITS * sxv_unit(dtype) : 0);
}

/* Which result of a kernel with several it is; nothing of another. */
#define RESULT_TEXT 40
static void print_result(const subject *s, char text[RESULT_TEXT])
{
    text[0] = '\0';
    if (s->join != NULL) {
        (void)snprintf(text, RESULT_TEXT, " (result %u of %u)", s->which, s->join->count);
    }
}

/* The row of a kernel that is right, with what was run of it. */
static void add_passed(sxv_verifier *v, sx_span name, const subject *s, const sxr_emulated *ran,
                       const comparison *c, double tolerance)
{
    char text[256], result[RESULT_TEXT];
    print_result(s, result);
    int used = snprintf(text, sizeof(text), "kernel %.*s%s at sampled elements", (int)name.len,
                        (const char *)name.ptr, result);
    SX_ASSERT(c->points > 0 && (ran->whole || ran->ran > 0));
    if (!ran->whole && used > 0 && (size_t)used < sizeof(text)) {
        (void)snprintf(text + used, sizeof(text) - (size_t)used, " of %lld of its %lld %s%s",
                       (long long)ran->ran, (long long)ran->points,
                       ran->blocks ? "blocks" : "points",
                       ran->covers ? ", which the others are like" : "");
    }
    sxv_add_check(v, text, SX_CHECK_PASSED, c->points, relative(c), tolerance);
}

/* Draws elements of a result and computes what they have to be. */
static sx_code expect(sxv_verifier *v, const sx_module_kernel *kernel, bool whole, subject *s)
{
    const sx_node *node = s->node;
    int64_t elements = sx_tensor_elements(&node->type);
    uint32_t points = whole ? points_of(v, s->launch->kernel) : v->points;
    s->count = elements < points ? (uint32_t)elements : points;
    s->position = calloc((size_t)s->count + 1, sizeof(*s->position));
    s->value = calloc((size_t)s->count + 1, sizeof(*s->value));
    s->typed = calloc((size_t)s->count + 1, sizeof(*s->typed));
    s->moved = calloc((size_t)s->count + 1, sizeof(*s->moved));
    if (s->position == NULL || s->value == NULL || s->typed == NULL || s->moved == NULL) {
        return SX_FAIL(v->cx, SX_NOMEM, "no memory for %u elements", s->count);
    }
    bool in_rows = (kernel->kind == SX_MODULE_ROW || has_scores(kernel)) && node->type.rank > 0;
    sample(v, elements, in_rows ? node->type.dim[node->type.rank - 1].scale : 1, s->position,
           s->count);
    if (!whole) {
        sample_touched(v, s, s->position, s->count);
    }
    sx_op_class op_class = sx_op_info_of(node->op)->op_class;
    bool moves = op_class == SX_OPCLASS_GATHER || op_class == SX_OPCLASS_CONCAT ||
                 op_class == SX_OPCLASS_DYNAMIC ||
                 op_class == SX_OPCLASS_MOVE; /* and none is rounded */
    SX_TRY(sample_reference(v, s, s->position, s->count, moves ? 1 : 2, s->value, s->typed));
    if (moves) {
        memcpy(s->typed, s->value, s->count * sizeof(*s->typed));
    }
    s->certain = moves || sx_dtype_class_of(node->type.dtype) != SX_CLASS_FLOAT || jumps(v, s);
    s->overwritten = overwrites(v, s->launch);
    /* what is overwritten is gone when it is found to be off; of f64 nothing else says what rounding does */
    bool before = s->overwritten && !s->certain && node->type.dtype == SX_F64;
    return before ? measure_moved(v, s) : SX_OK;
}

/* All elements of a result that are compared. */
static sx_code compare_all(sxv_verifier *v, const sx_module_kernel *kernel, const sxr_emulated *ran,
                           const subject *s, comparison *c)
{
    const sx_node *node = s->node;
    const void *memory = sxv_memory(v, s->tensor);
    *c = (comparison){0};
    for (uint32_t i = 0; i < s->count; i++) {
        double got = sxv_element(node->type.dtype, memory, s->position[i]);
        compare(c, (uint64_t)s->position[i], got, s->value[i], s->typed[i],
                fmax(s->moved[i], s->usual));
    }
    if (!ran->whole && ran->blocks) {
        bool rows = has_scores(kernel) && node->type.rank > 0;
        int64_t row = rows ? node->type.dim[node->type.rank - 1].scale : 1;
        SX_TRY(compare_stored(v, s, row, c));
    }
    return SX_OK;
}

/* Compares a result of a launch that was run. */
static sx_code judge(sxv_verifier *v, const sx_module_kernel *kernel, const sxr_emulated *ran,
                     subject *s)
{
    const sx_node *node = s->node;
    sx_span name = sx_module_string(v->module, kernel->name);
    comparison c;
    SX_TRY(compare_all(v, kernel, ran, s, &c));
    double tolerance = tolerance_of(v->module, s->launch, node->type.dtype);
    if (!(relative(&c) <= tolerance) && !s->certain) {
        SX_TRY(s->overwritten ? SX_OK : measure_moved(v, s));
        SX_TRY(compare_all(v, kernel, ran, s, &c));
    }
    if (!(relative(&c) <= tolerance)) {
        char result[RESULT_TEXT];
        print_result(s, result);
        return SX_FAIL(v->cx, SX_INTERNAL,
                       "kernel %.*s%s: element %llu is %.9g, the interpreter has %.9g (error %.2e, "
                       "allowed %.0e)",
                       (int)name.len, (const char *)name.ptr, result, (unsigned long long)c.worst,
                       c.got, c.want, relative(&c), tolerance);
    }
    add_passed(v, name, s, ran, &c, tolerance);
    return SX_OK;
}

/* The results of a launch, each with its node. */
static sx_code find_subjects(sxv_verifier *v, const sx_module_launch *launch,
                             const sx_module_kernel *kernel, subject *s)
{
    uint32_t count = kernel->result_count, member[SX_MODULE_RESULTS_MAX];
    sx_join *join = NULL;
    for (uint32_t r = 0; r < count; r++) {
        member[r] = r == 0 ? kernel->node : kernel->other[r - 1];
        if (member[r] >= v->graph->node_count) {
            return SX_FAIL(v->cx, SX_CORRUPT, "kernel %u: result %u is node %u of %u",
                           launch->kernel, r, member[r], v->graph->node_count);
        }
    }
    if (count > 1) {
        bool ok;
        join = SX_NEW(v->cx, sx_join);
        SX_TRY(join != NULL ? sx_fused_join_nodes(v->cx, v->graph, member, count, join, &ok)
                            : v->cx->error.code);
        if (!ok || join->whole.body->arg_count + count != launch->arg_count) {
            return SX_FAIL(v->cx, SX_CORRUPT,
                           "kernel %u: its %u nodes have not the %u arguments of its launch",
                           launch->kernel, count, launch->arg_count - count);
        }
    }
    for (uint32_t r = 0; r < count; r++) {
        s[r] =
            (subject){.launch = launch,
                      .node = sx_graph_node(v->graph, (sx_node_id){member[r]}),
                      .join = join,
                      .which = r,
                      .tensor = v->module->arg[launch->arg_first + launch->arg_count - count + r]};
        s[r].rounds = sxv_rounds_factors(v->cx, v->module, launch, s[r].factor);
    }
    return SX_OK;
}

/* Runs one launch and compares it. The reference comes first: a result may take the place of a tensor that
 * only an earlier pack launch had to read. */
static sx_code verify_results(sxv_verifier *v, uint32_t index, const sx_module_kernel *kernel,
                              subject *s)
{
    bool emulated = v->executor.emulator != NULL;
    sx_span name = sx_module_string(v->module, kernel->name);
    sxr_emulated ran = {.whole = true};
    size_t offset[SX_MODULE_RESULTS_MAX];
    (void)sxr_results_room(&v->executor, index, offset);
    const sx_type *last = &s[kernel->result_count - 1].node->type;
    SX_TRY(emulated ? emulate_launch(v, index, last, &ran) : SX_OK);
    if (ran.covers && !ran.partition) {
        return SX_FAIL(v->cx, SX_INTERNAL,
                       "kernel %.*s: its blocks do not store each byte of the result once",
                       (int)name.len, (const char *)name.ptr);
    }
    for (uint32_t r = 0; r < kernel->result_count; r++) {
        s[r].at = offset[r];
        SX_TRY(expect(v, kernel, ran.whole, &s[r]));
    }
    if (!emulated) {
        SX_TRY(run_watched(v, index, s, kernel->result_count));
    }
    for (uint32_t r = 0; r < kernel->result_count; r++) {
        if (emulated) {
            memcpy(sxv_memory(v, s[r].tensor), v->result + offset[r],
                   (size_t)sxr_size(v->program, s[r].tensor));
            v->replaced = v->replaced || !ran.whole;
        }
        SX_TRY(judge(v, kernel, &ran, &s[r]));
    }
    v->seen[s->launch->kernel] = true;
    return SX_OK;
}

sx_code sxv_verify_launch(sxv_verifier *v, uint32_t index)
{
    const sx_module_launch *launch = &v->module->launch[index];
    const sx_module_kernel *kernel = sx_module_kernel_of(v->module, index);
    if (kernel == NULL || kernel->kind == SX_MODULE_PACK || kernel->node >= v->graph->node_count) {
        /* a pack is compared through its contraction, what is only moved through the program */
        return sxv_run_launch(v, index);
    }
    subject s[SX_MODULE_RESULTS_MAX];
    SX_TRY(find_subjects(v, launch, kernel, s));
    sx_code code = verify_results(v, index, kernel, s);
    for (uint32_t r = 0; r < kernel->result_count; r++) {
        free(s[r].position);
        free(s[r].value);
        free(s[r].typed);
        free(s[r].moved);
    }
    return code;
}
