#include "client/verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/runtime/pages.h"
#include "client/verify/draw.h"
#include "client/verify/execute.h"
#include "client/verify/moved.h"
#include "client/verify/reduced.h"
#include "client/verify/whole.h"
#include "core/base/rng.h"
#include "core/ir/eval.h"
#include "core/ir/fused.h"
#include "core/ir/num.h"

#define KERNEL_POINTS 48u
#define ROW_SHARE 4u /* elements that are sampled in one row of a kernel that reduces rows */
#define KERNEL_POINTS_MAX 4096u
#define EMULATED_INSTRUCTIONS_MAX UINT64_C(4000000)
#define WIDE_FLOPS 1e7 /* programs up to this size are tried on all magnitudes, too, */
#define WIDE_DRAWS 4   /* so often */
#define MACHINES_MAX 16
#define INTERFACE_ALIGN 64u
#define DRAWS 3        /* of a program that rounding alone may lead elsewhere: */
#define AMPLIFIED 1e-5 /* it jumps, or rounding makes more than this of the largest magnitude */
#define PATTERN \
    0x7E /* in every byte of what is not written yet: 8e37 in f32, no bool, no small integer */

/* ---- random tensors ---- */

void sxr_fill_random(const sx_module_tensor *tensor, void *memory, uint64_t seed)
{
    sx_rng rng = {seed};
    SX_ASSERT(memory != NULL && tensor->element_bytes > 0);
    uint64_t count = tensor->size / tensor->element_bytes;
    float scale = tensor->rank >= 2 ? sqrtf(3.0F / (float)tensor->dim[tensor->rank - 2]) : 1.0F;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t *at = (uint8_t *)memory + i * tensor->element_bytes;
        if (tensor->dtype == SX_F32) {
            float value = sx_rng_f32(&rng) * (tensor->place == SX_TENSOR_WEIGHT ? scale : 1.0F);
            memcpy(at, &value, sizeof(value));
        } else if (sx_dtype_class_of((sx_dtype)tensor->dtype) == SX_CLASS_FLOAT) {
            double value =
                (double)(sx_rng_f32(&rng) * (tensor->place == SX_TENSOR_WEIGHT ? scale : 1.0F));
            uint64_t bits = sx_num_encode((sx_dtype)tensor->dtype, value);
            sx_num_store((sx_dtype)tensor->dtype, at, 0, bits);
        } else {
            uint64_t value = sx_rng_below(&rng, tensor->dtype == SX_BOOL ? 2 : 16);
            memcpy(at, &value, tensor->element_bytes);
        }
    }
}

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
static double difference_of(double got, double want, double typed)
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
    return fmax(0, fabs(got - want) - ROUNDING_SPREAD * spread);
}

static void compare(comparison *c, uint64_t element, double got, double want, double typed)
{
    c->points++;
    double difference = difference_of(got, want, typed);
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

/* ---- kernels at sampled elements ---- */

typedef struct {
    sx_ctx *cx;
    sxr_program *program;
    sxr_executor executor;
    /* of an emulated launch: what it made, and which bytes of that it stored */
    uint8_t *result, *touched;
    size_t result_bytes; /* room in each */
    const sx_module *module;
    const sx_graph *graph; /* the optimised program with its extents bound */
    sx_rng rng;
    uint32_t points;
    uint64_t emulated_max; /* instructions of a launch */
    size_t reference_bytes;
    sx_image *image;
    uint32_t variant; /* the one that is verified */
    uint32_t level;   /* of the machine that the executor was made for */
    sxr_pool *pool;
    /* Memory of the interface, one place for each of its tensors, NULL for the others: [tensor_count] */
    void **bound;
    uint8_t *interface;
    size_t interface_bytes;
    /* part of some result was not emulated: the outputs are not those of the program */
    bool replaced;
    /* The program is too large to be compared whole: `written` elements were seen to be stored. */
    bool large;
    uint64_t written;
    /* This is the module at smaller extents of another one (reduced.h). */
    bool reduced;
} verifier;

/* The tensor that an argument was packed from, or the argument itself. */
static uint32_t unpacked(const sx_module *module, uint32_t tensor)
{
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        const sx_module_kernel *kernel = sx_module_kernel_of(module, i);
        if (kernel != NULL && kernel->kind == SX_MODULE_PACK &&
            module->arg[launch->arg_first + 1] == tensor) {
            return module->arg[launch->arg_first];
        }
    }
    return tensor;
}

/* Elements of a result. `row` above 1: elements of one row of this length cost little more than one of them, because
 * all need its reductions. */
/* Adds a row to the record; of a module with several variants it says of which. */
static void add_check(verifier *v, const char *name, sx_module_verdict verdict, uint64_t points,
                      double error, double tolerance)
{
    char text[400];
    sx_span variant = sx_module_string(v->module, v->module->variant[v->variant].name);
    bool several = v->module->variant_count > 1;
    (void)snprintf(text, sizeof(text), "%.*s%s%.250s", several ? (int)variant.len : 0,
                   (const char *)variant.ptr, several ? ": " : "", name);
    sx_image_add_check(v->image, text, verdict, points, error, tolerance);
}

static void sample(verifier *v, int64_t elements, int64_t row, int64_t *position, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        position[i] = (int64_t)sx_rng_below(&v->rng, (uint64_t)elements);
    }
    for (uint32_t i = 0; i < count && row > 1; i++) { /* four of each row that is drawn */
        position[i] = position[i - i % ROW_SHARE] / row * row + position[i] % row;
    }
    position[0] = 0; /* tails: the first and the last element are always among them */
    position[count - 1] = elements - 1;
}

static sx_code reference_at(const verifier *v, sx_ctx *cx, sx_eval_mode mode, const sx_node *node,
                            const sx_module_launch *launch, const int64_t *position, uint32_t count,
                            double *value)
{
    sx_type type[SX_INPUTS_MAX];
    sx_span raw[SX_INPUTS_MAX];
    for (uint32_t k = 0; k < node->input_count; k++) {
        type[k] = sx_graph_node(v->graph, sx_graph_input(v->graph, node, k))->type;
        uint32_t tensor = unpacked(v->module, v->module->arg[launch->arg_first + k]);
        size_t size = (size_t)sx_tensor_elements(&type[k]) * sx_dtype_bytes(type[k].dtype);
        SX_ASSERT(size <= v->module->tensor[tensor].size);
        raw[k] = (sx_span){sxr_memory(v->program, tensor), size};
    }
    const sx_attr *attr = sx_graph_attr(v->graph, node);
    if (node->op == SX_OP_FUSED) {
        return sx_fused_eval_at(cx, attr, mode, type, raw, node->input_count, position, count,
                                value);
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
    const verifier *v;
    const sx_node *node;
    const sx_module_launch *launch;
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
            reference_at(s->v, &own, mode[i % 2], s->node, s->launch, s->position + from,
                         count < each ? count : each, s->value[i % 2] + from) != SX_OK) {
            s->error[i] = own.error;
        }
        sx_ctx_fini(&own);
    }
}

/* `modes`: 1 in double precision alone, 2 both. */
static sx_code sample_reference(verifier *v, const sx_node *node, const sx_module_launch *launch,
                                const int64_t *position, uint32_t count, uint32_t modes,
                                double *value, double *typed)
{
    uint32_t threads = sxr_pool_threads(v->pool);
    sampling s = {.v = v,
                  .node = node,
                  .launch = launch,
                  .position = position,
                  .count = count,
                  .parts = threads < SAMPLE_PARTS_MAX ? threads : SAMPLE_PARTS_MAX,
                  .value = {value, typed}};
    SX_ASSERT(modes == 1 || modes == 2);
    s.parts = node->op == SX_OP_FUSED && modes == 2 ? s.parts : 1;
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

static sx_code run_launch(verifier *v, uint32_t index)
{
    const sx_module_launch *launch = &v->module->launch[index];
    void *buffer[65];
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        buffer[k] = sxr_memory(v->program, v->module->arg[launch->arg_first + k]);
    }
    return sxr_execute(&v->executor, index, buffer);
}

/* Emulates a launch beside its result's memory, which may hold what the reference still reads. Large launches
 * are emulated in part: the rest of the result is random. `whole` false: only where v->touched is set may it
 * be compared. */
static sx_code emulate_launch(verifier *v, uint32_t index, bool *whole)
{
    const sx_module_launch *launch = &v->module->launch[index];
    void *buffer[65];
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        buffer[k] = sxr_memory(v->program, v->module->arg[launch->arg_first + k]);
    }
    const sx_module_tensor *tensor =
        &v->module->tensor[v->module->arg[launch->arg_first + launch->arg_count - 1]];
    if (tensor->size > v->result_bytes) {
        free(v->result);
        free(v->touched);
        v->result_bytes = (size_t)tensor->size;
        v->result = malloc(v->result_bytes);
        v->touched = malloc(v->result_bytes);
        if (v->result == NULL || v->touched == NULL) {
            return SX_FAIL(v->cx, SX_NOMEM, "no memory for a result of %zu bytes", v->result_bytes);
        }
    }
    sxr_fill_random(tensor, v->result, v->rng.state); /* draws nothing: as where code is executed */
    memset(v->touched, 0, (size_t)tensor->size);
    buffer[launch->arg_count - 1] = v->result;
    return sxr_execute_some(&v->executor, index, buffer, v->emulated_max, v->touched, whole);
}

/* Elements of a result that was emulated in part: each drawn one, or the next behind it that was stored. */
static void sample_touched(verifier *v, const sx_type *type, int64_t *position, uint32_t count)
{
    int64_t elements = sx_tensor_elements(type);
    size_t bytes = sx_dtype_bytes(type->dtype);
    for (uint32_t i = 0; i < count; i++) {
        int64_t tries = elements;
        while (v->touched[(size_t)position[i] * bytes] == 0 && tries-- > 0) {
            position[i] = position[i] + 1 < elements ? position[i] + 1 : 0;
        }
    }
}

static void write_pattern(void *self, uint32_t thread, int64_t first, int64_t last)
{
    (void)thread;
    memset((uint8_t *)self + first, PATTERN, (size_t)(last - first));
}

/* Can one see what this launch stores? Not where its result lies over an operand, nor in single bytes. */
static bool is_watched(const verifier *v, const sx_module_launch *launch)
{
    const uint32_t *arg = v->module->arg + launch->arg_first;
    uint32_t result = arg[launch->arg_count - 1];
    const uint8_t *to = sxr_memory(v->program, result);
    bool apart = v->module->tensor[result].element_bytes > 1;
    for (uint32_t k = 0; k + 1 < launch->arg_count; k++) {
        const uint8_t *from = sxr_memory(v->program, arg[k]);
        apart = apart && (from + sxr_size(v->program, arg[k]) <= to ||
                          to + sxr_size(v->program, result) <= from);
    }
    return apart;
}

/* Runs a launch; of a large program every element must be written that is to be written. */
static sx_code run_watched(verifier *v, uint32_t index)
{
    const sx_module_launch *launch = &v->module->launch[index];
    uint32_t result = v->module->arg[launch->arg_first + launch->arg_count - 1];
    size_t bytes = v->module->tensor[result].element_bytes;
    uint64_t elements = sxr_size(v->program, result) / bytes;
    const uint8_t *memory = sxr_memory(v->program, result);
    const uint64_t pattern = UINT64_C(0x0101010101010101) * PATTERN;
    if (!v->large || !is_watched(v, launch)) {
        return run_launch(v, index);
    }
    SX_ASSERT(bytes <= sizeof(pattern));
    sxr_pool_run(v->pool, write_pattern, sxr_memory(v->program, result),
                 (int64_t)(elements * bytes));
    SX_TRY(run_launch(v, index));
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

/* Runs one launch and compares it. The reference comes first: a result may take the place of a tensor that
 * only an earlier pack launch had to read. */
static sx_code verify_launch(verifier *v, uint32_t index)
{
    const sx_module_launch *launch = &v->module->launch[index];
    const sx_module_kernel *kernel = sx_module_kernel_of(v->module, index);
    if (kernel == NULL || kernel->kind == SX_MODULE_PACK || kernel->node >= v->graph->node_count) {
        /* a pack is compared through its contraction, what is only moved through the program */
        return run_launch(v, index);
    }
    sx_span name = sx_module_string(v->module, kernel->name);
    const sx_node *node = sx_graph_node(v->graph, (sx_node_id){kernel->node});
    int64_t elements = sx_tensor_elements(&node->type);
    uint32_t count = elements < v->points ? (uint32_t)elements : v->points;
    int64_t position[KERNEL_POINTS_MAX];
    double value[KERNEL_POINTS_MAX];
    double typed[KERNEL_POINTS_MAX]; /* with the range and rounding of the element types */
    bool emulated = v->executor.emulator != NULL;
    bool whole = true;
    if (emulated) {
        SX_TRY(emulate_launch(v, index, &whole));
    }
    bool in_rows =
        (kernel->kind == SX_MODULE_ROW || kernel->kind == SX_MODULE_ONLINE) && node->type.rank > 0;
    int64_t row = in_rows ? node->type.dim[node->type.rank - 1].scale : 1;
    sample(v, elements, row, position, count);
    if (!whole) {
        sample_touched(v, &node->type, position, count);
    }
    sx_op_class op_class = sx_op_info_of(node->op)->op_class;
    bool moves = op_class == SX_OPCLASS_GATHER || op_class == SX_OPCLASS_CONCAT ||
                 op_class == SX_OPCLASS_MOVE; /* and none is rounded */
    SX_TRY(sample_reference(v, node, launch, position, count, moves ? 1 : 2, value, typed));
    if (moves) {
        memcpy(typed, value, count * sizeof(*typed));
    }
    if (!emulated) {
        SX_TRY(run_watched(v, index));
    }
    uint32_t result = v->module->arg[launch->arg_first + launch->arg_count - 1];
    void *memory = sxr_memory(v->program, result);
    if (emulated) {
        memcpy(memory, v->result, (size_t)sxr_size(v->program, result));
        v->replaced = v->replaced || !whole;
    }
    comparison c = {0};
    for (uint32_t i = 0; i < count; i++) {
        double got = sxv_element(node->type.dtype, memory, position[i]);
        compare(&c, (uint64_t)position[i], got, value[i], typed[i]);
    }
    if (!(relative(&c) <= SXR_KERNEL_TOLERANCE)) {
        return SX_FAIL(v->cx, SX_INTERNAL,
                       "kernel %.*s: element %llu is %.9g, the interpreter has %.9g (error %.2e, "
                       "allowed %.0e)",
                       (int)name.len, (const char *)name.ptr, (unsigned long long)c.worst, c.got,
                       c.want, relative(&c), SXR_KERNEL_TOLERANCE);
    }
    char text[128];
    (void)snprintf(text, sizeof(text), "kernel %.*s at sampled elements", (int)name.len,
                   (const char *)name.ptr);
    add_check(v, text, SX_CHECK_PASSED, c.points, relative(&c), SXR_KERNEL_TOLERANCE);
    return SX_OK;
}

/* ---- the whole program ---- */

static sxv_reference reference_of(sxr_pool *pool, size_t bytes_max)
{
    return (sxv_reference){.pool = pool,
                           .bytes_max = bytes_max > 0 ? bytes_max : SXR_REFERENCE_BYTES};
}

static const char whole_name[] = "program as sent, all outputs";

/* Programs have no state and no loops: what a module does with them has nothing to be compared with. */
static sx_code refuse_effects(sx_ctx *cx, const sx_module *module)
{
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == SX_TENSOR_STATE ||
            module->tensor[i].alias != SX_MODULE_NONE) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "tensor %llu is state, or lies in place of an input: no comparison with "
                           "a program is known",
                           (unsigned long long)i);
        }
    }
    for (uint64_t i = 0; i < module->launch_count; i++) {
        if (module->launch[i].kind == SX_LAUNCH_LOOP) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "launch %llu is a loop: no comparison with a program is known",
                           (unsigned long long)i);
        }
    }
    return SX_OK;
}

sx_code sxr_check_program(sx_ctx *cx, const sxr_program *program, sx_module_check *check)
{
    const sx_module *module = sxr_module(program);
    sx_span text = {(const uint8_t *)module->program, (size_t)module->program_count};
    sx_graph *graph;
    sxr_pool *pool;
    sxv_whole whole;
    *check = (sx_module_check){.passed = 1};
    SX_TRY(refuse_effects(cx, module));
    SX_TRY(sxv_bound_graph(cx, program, text, &graph));
    SX_TRY(sxr_pool_new(cx, sxr_threads(program), &pool));
    sxv_reference reference = reference_of(pool, 0);
    sx_code code = sxv_whole_compare(cx, program, graph, &reference, false, &whole);
    sxr_pool_free(pool);
    check->points = whole.points;
    check->error = whole.error;
    check->tolerance = whole.bound;
    if (code == SX_OK && sxv_whole_says_nothing(&whole)) {
        sx_hint(cx, "Other inputs may give numbers: --random draws some on which the program means "
                    "something.");
        code = SX_FAIL(cx, SX_INPUT,
                       "nothing was compared: on these inputs all %llu elements of the outputs are "
                       "NaN in the program as sent",
                       (unsigned long long)whole.points);
    }
    check->passed = code == SX_OK ? 1 : 0;
    return code;
}

/* ---- verification of a fresh module ---- */

/* Random inputs and weights on which the program means something (draw.h). Whatever is to be written shall be
 * seen to be written: outputs and the module's own tensors begin as a pattern. */
static bool is_given(const sx_module_tensor *tensor)
{
    return tensor->place == SX_TENSOR_INPUT || tensor->place == SX_TENSOR_WEIGHT;
}

/* Places for inputs, weights and outputs of every variant, in one mapping. */
static sx_code make_interface(verifier *v)
{
    size_t count = (size_t)v->module->tensor_count;
    v->bound = calloc(count + 1, sizeof(*v->bound));
    if (v->bound == NULL) {
        return SX_FAIL(v->cx, SX_NOMEM, "no memory for a list of tensors");
    }
    for (uint32_t pass = 0; pass < 2; pass++) { /* first how much, then where */
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            const sx_module_tensor *tensor = &v->module->tensor[i];
            if (!is_given(tensor) && tensor->place != SX_TENSOR_OUTPUT) {
                continue;
            }
            if (pass == 1) {
                v->bound[i] = v->interface + at;
            }
            at += ((size_t)tensor->size + INTERFACE_ALIGN) & ~(size_t)(INTERFACE_ALIGN - 1);
        }
        v->interface_bytes = at;
        if (pass == 0 && at > 0) {
            v->interface = sxr_pages(at);
            if (v->interface == NULL) {
                return SX_FAIL(v->cx, SX_NOMEM, "no memory for tensors of %zu bytes", at);
            }
        }
    }
    return SX_OK;
}

static sx_code bind_random(verifier *v, const sx_graph *sent, uint64_t seed, bool wide)
{
    sxv_recipe *recipe;
    uint32_t count;
    SX_TRY(sxv_draw_recipes(v->cx, sent, &recipe, &count));
    for (uint32_t i = 0; i < v->module->tensor_count; i++) {
        const sx_module_tensor *tensor = &v->module->tensor[i];
        sx_span name = sx_module_string(v->module, tensor->name);
        uint64_t size = sxr_size(v->program, i);
        if (tensor->place == SX_TENSOR_TEMPORARY || tensor->place == SX_TENSOR_PERSISTENT) {
            sxr_pool_run(v->pool, write_pattern, sxr_memory(v->program, i), (int64_t)tensor->size);
        }
        void *memory = v->bound[i];
        if (memory == NULL) {
            continue;
        }
        if (is_given(tensor)) {
            sxv_recipe any = sxv_recipe_of(recipe, count, name);
            any.wide = wide;
            sxv_draw(v->pool, &any, (sx_dtype)tensor->dtype,
                     (int64_t)(size / tensor->element_bytes), seed, memory);
        } else {
            sxr_pool_run(v->pool, write_pattern, memory, (int64_t)size);
        }
        SX_TRY(sxr_bind(v->cx, v->program, i, memory, size));
    }
    return SX_OK;
}

static sx_code each_launch(verifier *v, sx_code (*work)(verifier *v, uint32_t launch))
{
    const sx_module_variant *variant = &v->module->variant[v->variant];
    for (uint32_t phase = 2; phase-- > 0;) { /* prologue, then run */
        for (uint32_t i = 0; i < variant->launch_count; i++) {
            if (v->module->launch[variant->launch_first + i].prologue == phase) {
                SX_TRY(work(v, variant->launch_first + i));
            }
        }
    }
    return SX_OK;
}

static sx_code verify_launches(verifier *v)
{
    return each_launch(v, verify_launch);
}

/* Does some operation on floats jump? Then an element may fall on the other side of a step by rounding alone. */
static bool jumps(const sx_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        bool floats =
            node->input_count > 0 &&
            sx_dtype_class_of(sx_graph_node(graph, sx_graph_input(graph, node, 0))->type.dtype) ==
                SX_CLASS_FLOAT;
        bool to_whole =
            node->op == SX_OP_CONVERT && sx_dtype_class_of(node->type.dtype) != SX_CLASS_FLOAT;
        bool step = node->op == SX_OP_COMPARE || node->op == SX_OP_FLOOR ||
                    node->op == SX_OP_CEIL || node->op == SX_OP_ROUND || node->op == SX_OP_SIGN ||
                    node->op == SX_OP_REMAINDER;
        if (floats && (step || to_whole)) {
            return true;
        }
    }
    return false;
}

/* ---- programs that are too large to be compared whole ---- */

static sx_node_id root_of(const sx_graph *graph, uint32_t output)
{
    sx_node_id id = graph->output[output].node;
    while (sx_graph_node(graph, id)->op == SX_OP_RESHAPE) {
        id = sx_graph_input(graph, sx_graph_node(graph, id), 0);
    }
    return id;
}

/* The tensor that an output is a copy of: a parameter, or an earlier output; UINT32_MAX: of none. */
static uint32_t copied_from(const verifier *v, uint32_t output)
{
    const sx_graph *graph = v->graph;
    sx_node_id root = root_of(graph, output);
    const sx_node *node = sx_graph_node(graph, root);
    if (node->op == SX_OP_PARAMETER) {
        const sx_attr *attr = sx_graph_attr(graph, node);
        return sxr_find(v->program, attr->weight ? SX_TENSOR_WEIGHT : SX_TENSOR_INPUT, attr->name);
    }
    for (uint32_t k = 0; k < output; k++) {
        if (root_of(graph, k).i == root.i) {
            return sxr_find(v->program, SX_TENSOR_OUTPUT, graph->output[k].name);
        }
    }
    return UINT32_MAX;
}

/* Outputs that are copies, all of their elements. What kernels compute is sampled. */
static sx_code verify_copies(verifier *v)
{
    uint64_t copied = 0;
    for (uint32_t k = 0; k < v->graph->output_count; k++) {
        sx_span name = v->graph->output[k].name;
        uint32_t to = sxr_find(v->program, SX_TENSOR_OUTPUT, name);
        uint32_t from = copied_from(v, k);
        if (from == UINT32_MAX) {
            continue;
        }
        size_t size = (size_t)sxr_size(v->program, from);
        if (to == UINT32_MAX || sxr_size(v->program, to) != size ||
            memcmp(sxr_memory(v->program, to), sxr_memory(v->program, from), size) != 0) {
            return SX_FAIL(v->cx, SX_INTERNAL, "output %.*s is not the copy that it should be",
                           (int)name.len, (const char *)name.ptr);
        }
        copied += size / v->module->tensor[from].element_bytes;
    }
    if (v->written > 0) {
        add_check(v, "every element of what kernels compute is written", SX_CHECK_PASSED,
                  v->written, 0, 0);
    }
    if (copied > 0) {
        add_check(v, "outputs that are copies", SX_CHECK_PASSED, copied, 0, 0);
    }
    return SX_OK;
}

/* The row of the whole program, in a record of its own. */
static const sx_module_check *whole_row(const sx_image *image, sx_span *name)
{
    const sx_module_check *check = (const void *)image->check.ptr;
    const sx_module_check *found = NULL;
    for (size_t i = 0; i < image->check.len / sizeof(*check); i++) {
        *name = (sx_span){image->strings.ptr + check[i].name.offset, check[i].name.size};
        if (name->len >= sizeof(whole_name) - 1 &&
            memcmp(name->ptr, whole_name, sizeof(whole_name) - 1) == 0) {
            found = &check[i];
            break;
        }
    }
    return found;
}

static sx_code verify_module(sx_ctx *cx, sx_span module, const sxr_verify_options *options,
                             bool reduced, sx_image *image);

/* The optimised program at smaller extents against the program as sent. */
static sx_code compare_reduced(verifier *v, sx_ctx *own, const sxr_verify_options *options,
                               sx_span text, sxv_reduced *reduced, sx_buf *module, sx_image *image)
{
    sxr_verify_options how = *options;
    how.program = text;
    sx_code code = sxv_reduced_compile(own, v->program, text, options->program_flops,
                                       options->targets, module, reduced);
    if (code != SX_OK && code != SX_NOMEM) { /* no extents, then: the module is as good as it was */
        (void)snprintf(reduced->text, sizeof(reduced->text), "%.90s", own->error.text);
        sx_ctx_reset_error(own);
        reduced->found = false;
        code = SX_OK;
    }
    return code == SX_OK && reduced->found
               ? verify_module(own, sx_buf_span(module), &how, true, image)
               : code;
}

static sx_code verify_reduced(verifier *v, const sxr_verify_options *options, sx_span text)
{
    sx_ctx own;
    sx_buf module;
    sx_image image;
    sxv_reduced reduced;
    sx_span name;
    char row[300];
    sx_ctx_init(&own, v->cx->arena.limit_bytes);
    sx_buf_init(&module, (size_t)1 << 30);
    sx_image_init(&image);
    own.fuel = v->cx->fuel;
    sx_code code = compare_reduced(v, &own, options, text, &reduced, &module, &image);
    const sx_module_check *check = code == SX_OK ? whole_row(&image, &name) : NULL;
    if (check != NULL) {
        (void)snprintf(row, sizeof(row), "optimised program at %s against %.*s", reduced.text,
                       (int)name.len, (const char *)name.ptr);
        add_check(v, row, (sx_module_verdict)check->passed, check->points, check->error,
                  check->tolerance);
    } else if (code == SX_OK) {
        (void)snprintf(row, sizeof(row), "optimised program at smaller extents: %s", reduced.text);
        add_check(v, row, SX_CHECK_ABSENT, 0, 0, 0);
    } else {
        v->cx->error = own.error;
        code = sx_fail_in(v->cx, "at %s", reduced.text);
    }
    sx_image_fini(&image);
    sx_buf_fini(&module);
    sx_ctx_fini(&own);
    return code;
}

/* One draw: inputs, every launch, all outputs. */
static sx_code verify_draw(verifier *v, const sx_graph *sent, uint64_t seed, bool with_whole,
                           bool *amplifies)
{
    *amplifies = false;
    SX_TRY(bind_random(v, sent, seed, false));
    SX_TRY(verify_launches(v));
    if (!with_whole || v->replaced) {
        char why[160];
        (void)snprintf(why, sizeof(why), "%s: %s", whole_name,
                       with_whole ? "the emulator ran a part only"
                                  : "more operations than verification may take");
        add_check(v, why, SX_CHECK_ABSENT, 0, 0, 0);
        return SX_OK;
    }
    sxv_reference reference = reference_of(v->pool, v->reference_bytes);
    sxv_whole whole;
    sx_code code = sxv_whole_compare(v->cx, v->program, sent, &reference, false, &whole);
    *amplifies = whole.spread > AMPLIFIED;
    if (code == SX_LIMIT) { /* the reason is the name of the row */
        char text[256];
        v->large = true;
        (void)snprintf(text, sizeof(text), "%s: %.200s", whole_name, v->cx->error.text);
        sx_ctx_reset_error(v->cx);
        add_check(v, text, SX_CHECK_ABSENT, 0, 0, 0);
        return SX_OK;
    }
    if (code == SX_OK && sxv_whole_says_nothing(&whole)) {
        char text[160];
        (void)snprintf(text, sizeof(text), "%s: every element is NaN on random inputs", whole_name);
        add_check(v, text, SX_CHECK_ABSENT, 0, 0, 0);
        return SX_OK;
    }
    if (code == SX_OK) {
        char text[160];
        bool coarse = whole.imprecise || whole.error > SXR_PRECISE;
        int used = snprintf(text, sizeof(text), "%s", whole_name);
        if (coarse) {
            used += snprintf(text + used, sizeof(text) - (size_t)used,
                             "; rounding alone is off by %.1e", whole.spread);
        }
        if (whole.finite < whole.points) {
            (void)snprintf(text + used, sizeof(text) - (size_t)used, "; %llu are not finite",
                           (unsigned long long)(whole.points - whole.finite));
        }
        add_check(v, text, coarse ? SX_CHECK_IMPRECISE : SX_CHECK_PASSED, whole.points, whole.error,
                  whole.bound);
    }
    return code;
}

static sx_code run_launches(verifier *v)
{
    return each_launch(v, run_launch);
}

/* Magnitudes that differ from part to part of every input and weight, over the whole range of f32. What is
 * found is a warning: the module is right where the numbers stay near to one, but leaves the range, or loses
 * digits, where the program as sent does not. */
static sx_code verify_wide(verifier *v, const sx_graph *sent, uint64_t seed)
{
    sxv_reference reference = reference_of(v->pool, v->reference_bytes);
    sxv_whole whole = {0};
    uint64_t points = 0;
    char text[160] = "magnitudes from 1e-38 to 1e38";
    for (uint64_t draw = 0; draw < WIDE_DRAWS && whole.wrong == 0; draw++) {
        SX_TRY(bind_random(v, sent, seed + draw, true));
        SX_TRY(run_launches(v));
        sx_code code = sxv_whole_compare(v->cx, v->program, sent, &reference, true, &whole);
        if (code == SX_LIMIT) { /* more memory than there is: said of the whole, too */
            sx_ctx_reset_error(v->cx);
            return SX_OK;
        }
        SX_TRY(code);
        points += whole.points;
    }
    if (whole.wrong > 0) {
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof(text) - used,
                       "; %llu elements are not those of the program as sent",
                       (unsigned long long)whole.wrong);
    }
    add_check(v, text, whole.wrong > 0 ? SX_CHECK_IMPRECISE : SX_CHECK_PASSED, points,
              whole.wrong > 0 ? whole.error : 0, whole.bound);
    return SX_OK;
}

static sx_code verify_program(verifier *v, const sxr_verify_options *options)
{
    const sx_module *module = v->module;
    sx_span text = options->program.len > 0
                       ? options->program
                       : (sx_span){(const uint8_t *)module->program, (size_t)module->program_count};
    sx_span optimized = {(const uint8_t *)module->optimized, (size_t)module->optimized_count};
    sx_graph *sent, *graph;
    SX_TRY(sxv_bound_graph(v->cx, v->program, optimized, &graph));
    SX_TRY(sxv_bound_graph(v->cx, v->program, text, &sent));
    v->graph = graph;
    bool with_whole = sxv_reference_flops(sent) <= options->program_flops;
    if (sxv_reference_flops(sent) <= fmin(WIDE_FLOPS, options->program_flops)) {
        SX_TRY(verify_wide(v, sent, options->seed));
    }
    size_t checks = v->image->check.len;
    bool amplifies;
    v->large = !with_whole && options->program_flops >= 0 && !v->reduced;
    sx_code code = verify_draw(v, sent, options->seed, with_whole, &amplifies);
    for (uint64_t i = 1; code == SX_MISMATCH && i < DRAWS && (amplifies || jumps(sent)); i++) {
        sx_ctx_reset_error(v->cx); /* a fault stays one on other numbers */
        v->image->check.len = checks;
        code = verify_draw(v, sent, options->seed + i, with_whole, &amplifies);
    }
    if (code == SX_OK && v->large && !v->reduced && v->executor.emulator == NULL) {
        SX_TRY(verify_copies(v));
        code = verify_reduced(v, options, text);
    }
    if (code == SX_MISMATCH) {
        v->cx->error.code = SX_INTERNAL; /* a wrong module is our fault, not an answer */
        return SX_INTERNAL;
    }
    return code;
}

#define TRIES_MAX 4096u /* values that are tried to find some for which a variant runs */

/* Gives the symbols values for which the variant runs, out of the ends of their ranges. */
static sx_code choose_extents(verifier *v, bool *found)
{
    const sx_module *module = v->module;
    uint64_t tries = 1;
    for (uint32_t s = 0; s < module->symbol_count; s++) {
        tries = tries > TRIES_MAX ? tries : tries * 2 * module->symbol[s].range_count;
    }
    *found = false;
    for (uint64_t n = 0; n < tries && n < TRIES_MAX && !*found; n++) {
        uint64_t digits = n;
        for (uint32_t s = 0; s < module->symbol_count; s++) {
            const sx_module_symbol *symbol = &module->symbol[s];
            const sx_module_range *range =
                &module->range[symbol->range_first + digits / 2 % symbol->range_count];
            SX_TRY(sxr_set_extent(v->cx, v->program, sx_module_string(module, symbol->name),
                                  digits % 2 == 0 ? range->low : range->high));
            digits /= 2 * (uint64_t)symbol->range_count;
        }
        *found = sxr_variant(v->program) == v->variant;
    }
    return SX_OK;
}

/* The variant runs as on the least machine that has what it needs: another may take a variant before it. Where the
 * processor is less than that, the variant is emulated. */
static sx_code choose_variant(verifier *v, const sxr_verify_options *options, bool *found)
{
    const sx_module *module = v->module;
    const sx_module_variant *variant = &module->variant[v->variant];
    uint32_t level = module->info->level;
    for (uint32_t i = 0; i < variant->guard_count; i++) {
        const sx_module_guard *guard = &module->guard[variant->guard_first + i];
        bool machine = guard->kind == SX_GUARD_MACHINE && guard->subject == module->info->arch;
        level = machine && guard->low > level ? (uint32_t)guard->low : level;
    }
    SX_TRY(sxr_choose_machine(v->cx, v->program, level));
    SX_TRY(choose_extents(v, found));
    if (v->executor.program == NULL || v->level != level) {
        SX_TRY(sxr_executor_make(v->cx, options->targets, v->program, &v->executor));
        v->level = level;
    }
    v->image->emulated = v->executor.emulator != NULL;
    return SX_OK;
}

static sx_code verify_variants(verifier *v, const sxr_verify_options *options)
{
    SX_TRY(refuse_effects(v->cx, v->module));
    for (v->variant = 0; v->variant < v->module->variant_count; v->variant++) {
        bool found;
        v->replaced = false;
        SX_TRY(choose_variant(v, options, &found));
        if (found) {
            SX_TRY(verify_program(v, options));
        } else {
            add_check(v, "no extents were found for which it runs here", SX_CHECK_ABSENT, 0, 0, 0);
        }
    }
    return SX_OK;
}

static sx_code verify_module(sx_ctx *cx, sx_span module, const sxr_verify_options *options,
                             bool reduced, sx_image *image)
{
    uint32_t points = options->kernel_points == 0 ? KERNEL_POINTS : options->kernel_points;
    verifier v = {.cx = cx,
                  .rng = {options->seed},
                  .points = points < KERNEL_POINTS_MAX ? points : KERNEL_POINTS_MAX,
                  .emulated_max = options->emulated_max == 0 ? EMULATED_INSTRUCTIONS_MAX
                                                             : options->emulated_max,
                  .reference_bytes = options->reference_bytes,
                  .image = image,
                  .reduced = reduced};
    const sx_targets *targets = options->targets != NULL ? options->targets : sx_targets_all();
    const sx_machine *machine[MACHINES_MAX];
    const sx_machines machines = {machine, targets->count};
    SX_ASSERT(targets->count <= MACHINES_MAX);
    for (uint32_t i = 0; i < targets->count; i++) {
        machine[i] = targets->row[i]->machine;
    }
    sxr_options open = {.threads = options->threads, .any_level = true, .machines = &machines};
    uint64_t fuel = cx->fuel; /* what is left is for the compiler, should it have to start again */
    uint32_t stage = sx_stage_begin(cx, "verify");
    SX_TRY(sxr_open_bytes(cx, module, &open, &v.program));
    v.module = sxr_module(v.program);
    sx_code code = sxr_pool_new(cx, sxr_threads(v.program), &v.pool);
    code = code == SX_OK ? make_interface(&v) : code;
    code = code == SX_OK ? verify_variants(&v, options) : code;
    sx_stage_end(cx, stage, code == SX_OK ? "done" : "failed",
                 v.image->check.len / sizeof(sx_module_check));
    cx->fuel = fuel;
    sxr_pool_free(v.pool);
    sxr_close(v.program);
    free(v.result);
    free(v.touched);
    free(v.bound);
    sxr_pages_free(v.interface, v.interface_bytes);
    return code;
}

sx_code sxr_verify(sx_ctx *cx, sx_span module, const sxr_verify_options *options, sx_image *image)
{
    SX_ASSERT(options != NULL && image != NULL);
    return verify_module(cx, module, options, false, image);
}

static sx_code compile_once(sx_ctx *cx, const sx_core_request *request,
                            const sxr_verify_options *options, sx_buf *module)
{
    sx_image image;
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, request, &image);
    code = code == SX_OK ? sx_image_encode(cx, &image, module) : code;
    sxr_verify_options how = *options;
    how.program = request->ir;
    how.targets = request->targets;
    code = code == SX_OK ? sxr_verify(cx, sx_buf_span(module), &how, &image) : code;
    if (code == SX_OK) {
        sx_buf_clear(module);
        code = sx_image_encode(cx, &image, module);
    }
    sx_image_fini(&image);
    return code;
}

sx_code sxr_compile_verified(sx_ctx *cx, const sx_core_request *request,
                             const sxr_verify_options *options, sx_buf *module)
{
    sx_code code = compile_once(cx, request, options, module);
    sx_core_library *library = request->library;
    if (code == SX_INTERNAL && library != NULL && library->parts_met > 0) {
        /* what came of a stored program is not what it should be: from nothing, then */
        sx_ctx_reset_error(cx);
        sx_buf_clear(module);
        library->candidate_count = library->parts_met = 0;
        library->met = library->reused = false;
        return compile_once(cx, request, options, module);
    }
    return code;
}
