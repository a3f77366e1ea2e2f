#include "client/verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/verify/execute.h"
#include "core/base/rng.h"
#include "core/ir/fused.h"
#include "core/ir/num.h"

#define KERNEL_POINTS 48u
#define KERNEL_POINTS_REUSED \
    4u /* of code that was compared with the interpreter when it was made */
#define KERNEL_POINTS_MAX 4096u
#define EMULATED_INSTRUCTIONS_MAX UINT64_C(4000000)
#define VALUE_MAX 1e18 /* its square is below the largest f32 */

/* ---- random tensors ---- */

void sxr_fill_random(const sx_module_tensor *tensor, void *memory, uint64_t seed)
{
    sx_rng rng = {seed};
    uint64_t count = tensor->size / tensor->element_bytes;
    float scale = tensor->rank >= 2 ? sqrtf(3.0F / (float)tensor->dim[tensor->rank - 2]) : 1.0F;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t *at = (uint8_t *)memory + i * tensor->element_bytes;
        if (tensor->dtype == SX_F32) {
            float value = sx_rng_f32(&rng) * (tensor->place == SX_TENSOR_WEIGHT ? scale : 1.0F);
            memcpy(at, &value, sizeof(value));
        } else if (tensor->dtype == SX_F64) {
            double value = (double)sx_rng_f32(&rng);
            memcpy(at, &value, sizeof(value));
        } else {
            uint64_t value = sx_rng_below(&rng, tensor->dtype == SX_BOOL ? 2 : 16);
            memcpy(at, &value, tensor->element_bytes);
        }
    }
}

/* ---- comparing ---- */

typedef struct {
    double
        error; /* largest absolute difference; infinite where one side is not finite and the other differs */
    double scale; /* largest finite magnitude of the reference */
    uint64_t points;
    uint64_t worst;   /* element with the largest difference */
    double got, want; /* there */
} comparison;

#define ROUNDING_SPREAD 64.0 /* a kernel may round this often what the interpreter rounds once */

/* `want` is computed in double precision, `typed` with each result rounded to its element type. Where they agree an element is
 * certain; where rounding alone moves it (cancellation, a range left on the way), it is as uncertain as their difference. */
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

static double element_value(const sx_type *type, const void *memory, uint64_t element)
{
    const uint8_t *at = (const uint8_t *)memory + element * sx_dtype_bytes(type->dtype);
    float f32;
    double f64;
    int64_t i64;
    int32_t i32;
    switch (type->dtype) {
    case SX_F32: memcpy(&f32, at, 4); return (double)f32;
    case SX_F64: memcpy(&f64, at, 8); return f64;
    case SX_I64: memcpy(&i64, at, 8); return (double)i64;
    case SX_I32: memcpy(&i32, at, 4); return (double)i32;
    case SX_I8: return (double)(int8_t)*at;
    case SX_U8:
    case SX_BOOL: return (double)*at;
    case SX_BF16:
    case SX_F16:
    case SX_F8E4M3:
    case SX_F8E5M2:
        return sx_num_decode(type->dtype, sx_num_load(type->dtype, memory, (size_t)element));
    case SX_DTYPE_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* ---- kernels at sampled elements ---- */

typedef struct {
    sx_ctx *cx;
    sxr_program *program;
    sxr_executor executor;
    uint8_t *result,
        *touched; /* of an emulated launch: what it made, and which bytes of that it stored */
    size_t result_bytes; /* room in each */
    const sx_module *module;
    const sx_graph *graph; /* the optimised program with its extents bound */
    sx_rng rng;
    uint32_t points;
    uint64_t emulated_max; /* instructions of a launch */
    sx_image *image;
    bool
        replaced; /* some result was, at least in part, by random numbers: the outputs are not those of the program */
} verifier;

/* The tensor that an argument was packed from, or the argument itself. */
static uint32_t unpacked(const sx_module *module, uint32_t tensor)
{
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        if (module->kernel[launch->kernel].kind == SX_MODULE_PACK &&
            module->arg[launch->arg_first + 1] == tensor) {
            return module->arg[launch->arg_first];
        }
    }
    return tensor;
}

static void sample(verifier *v, int64_t elements, int64_t *position, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        position[i] = (int64_t)sx_rng_below(&v->rng, (uint64_t)elements);
    }
    position[0] = 0; /* tails: the first and the last element are always among them */
    position[count - 1] = elements - 1;
}

static sx_code reference_at(verifier *v, sx_eval_mode mode, const sx_node *node,
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
        return sx_fused_eval_at(v->cx, attr, mode, type, raw, node->input_count, position, count,
                                value);
    }
    sx_tensor input[SX_INPUTS_MAX], result;
    for (uint32_t k = 0; k < node->input_count; k++) {
        SX_TRY(sx_tensor_unpack(v->cx, &type[k], mode, raw[k], &input[k]));
    }
    SX_TRY(
        sx_node_eval(v->cx, node->op, attr, mode, input, node->input_count, &node->type, &result));
    bool is_float = sx_dtype_class_of(node->type.dtype) == SX_CLASS_FLOAT;
    for (uint32_t i = 0; i < count; i++) {
        value[i] = is_float ? ((const double *)result.data)[position[i]]
                            : (double)((const int64_t *)result.data)[position[i]];
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

/* Emulates a launch beside its result's memory, which may hold what the reference still reads. Large launches are emulated in part:
 * the rest of the result is random. `whole` false: only where v->touched is set may it be compared. */
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

/* Numbers so large that the next contraction overflows verify nothing: they are replaced by random ones, as if they were inputs. */
static void replace_overflow(verifier *v, uint32_t index, const sx_type *type)
{
    const sx_module_tensor *tensor = &v->module->tensor[index];
    void *memory = sxr_memory(v->program, index);
    bool large = false;
    for (int64_t i = 0; type->dtype == SX_F32 && i < sx_tensor_elements(type) && !large; i++) {
        large = fabs(element_value(type, memory, (uint64_t)i)) > VALUE_MAX;
    }
    if (large) {
        sxr_fill_random(tensor, memory, sx_rng_next(&v->rng));
        v->replaced = true;
    }
}

/* Runs one launch and compares it. The reference comes first: a result may take the place of a tensor that only an earlier pack
 * launch had to read. */
static sx_code verify_launch(verifier *v, uint32_t index)
{
    const sx_module_launch *launch = &v->module->launch[index];
    const sx_module_kernel *kernel = &v->module->kernel[launch->kernel];
    sx_span name = sx_module_string(v->module, kernel->name);
    if (kernel->kind == SX_MODULE_PACK || kernel->node >= v->graph->node_count) {
        /* a pack is compared through its contraction, a copied output through the program */
        return run_launch(v, index);
    }
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
    sample(v, elements, position, count);
    if (!whole) {
        sample_touched(v, &node->type, position, count);
    }
    SX_TRY(reference_at(v, SX_EVAL_F64, node, launch, position, count, value));
    SX_TRY(reference_at(v, SX_EVAL_TYPED, node, launch, position, count, typed));
    if (!emulated) {
        SX_TRY(run_launch(v, index));
    }
    uint32_t result = v->module->arg[launch->arg_first + launch->arg_count - 1];
    void *memory = sxr_memory(v->program, result);
    if (emulated) {
        memcpy(memory, v->result, (size_t)v->module->tensor[result].size);
        v->replaced = v->replaced || !whole;
    }
    comparison c = {0};
    for (uint32_t i = 0; i < count; i++) {
        double got = element_value(&node->type, memory, (uint64_t)position[i]);
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
    sx_image_add_check(v->image, text, true, c.points, relative(&c), SXR_KERNEL_TOLERANCE);
    replace_overflow(v, result, &node->type);
    return SX_OK;
}

/* ---- the whole program ---- */

/* A text of the module as a graph with the module's extents bound. */
static sx_code bound_graph(sx_ctx *cx, const sx_module *module, const char *text, uint64_t size,
                           sx_graph **bound)
{
    sx_graph *graph;
    SX_TRY(sx_graph_parse(cx, (sx_span){(const uint8_t *)text, (size_t)size}, &graph));
    sx_binding binding[SX_SYMBOLS_MAX];
    if (module->symbol_count > SX_SYMBOLS_MAX) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %llu symbols, at most %u",
                       (unsigned long long)module->symbol_count, SX_SYMBOLS_MAX);
    }
    for (uint64_t i = 0; i < module->symbol_count; i++) {
        binding[i] =
            (sx_binding){sx_module_string(module, module->symbol[i].name), module->symbol[i].value};
    }
    graph->sharding = NULL; /* one device holds everything */
    return sx_graph_bind(cx, graph, binding, (uint32_t)module->symbol_count, bound);
}

static sx_code gather_arguments(sx_ctx *cx, const sxr_program *program, const sx_graph *graph,
                                sx_eval_mode mode, sx_tensor *argument, uint32_t *count)
{
    *count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        if (node->op != SX_OP_PARAMETER) {
            continue;
        }
        const sx_attr *attr = sx_graph_attr(graph, node);
        uint32_t tensor =
            sxr_find(program, attr->weight ? SX_TENSOR_WEIGHT : SX_TENSOR_INPUT, attr->name);
        size_t size = (size_t)sx_tensor_elements(&node->type) * sx_dtype_bytes(node->type.dtype);
        if (tensor == UINT32_MAX || sxr_module(program)->tensor[tensor].size != size ||
            sxr_memory(program, tensor) == NULL) {
            return SX_FAIL(cx, SX_CORRUPT,
                           "module: parameter %.*s of the program has no tensor of %zu bytes",
                           (int)attr->name.len, (const char *)attr->name.ptr, size);
        }
        sx_span raw = {sxr_memory(program, tensor), size};
        SX_TRY(sx_tensor_unpack(cx, &node->type, mode, raw, &argument[(*count)++]));
    }
    return SX_OK;
}

static double tensor_value(const sx_tensor *tensor, int64_t i)
{
    bool is_float = sx_dtype_class_of(tensor->type.dtype) == SX_CLASS_FLOAT;
    return is_float ? ((const double *)tensor->data)[i]
                    : (double)((const int64_t *)tensor->data)[i];
}

/* `typed` NULL: not computed. */
static sx_code compare_output(sx_ctx *cx, const sxr_program *program, const sx_output *output,
                              const sx_tensor *want, const sx_tensor *typed, comparison *c)
{
    uint32_t tensor = sxr_find(program, SX_TENSOR_OUTPUT, output->name);
    size_t size = (size_t)sx_tensor_elements(&want->type) * sx_dtype_bytes(want->type.dtype);
    if (tensor == UINT32_MAX || sxr_memory(program, tensor) == NULL ||
        sxr_module(program)->tensor[tensor].size != size) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module: output %.*s of the program has no tensor of %zu bytes",
                       (int)output->name.len, (const char *)output->name.ptr, size);
    }
    *c = (comparison){0};
    for (int64_t i = 0; i < sx_tensor_elements(&want->type); i++) {
        double value = tensor_value(want, i);
        compare(c, (uint64_t)i,
                element_value(&want->type, sxr_memory(program, tensor), (uint64_t)i), value,
                typed != NULL ? tensor_value(typed, i) : value);
    }
    return SX_OK;
}

static sx_code evaluate(sx_ctx *cx, const sxr_program *program, const sx_graph *graph,
                        sx_eval_mode mode, sx_tensor **result)
{
    sx_tensor *argument = SX_NEW_ARRAY(cx, sx_tensor, graph->node_count + 1);
    *result = SX_NEW_ARRAY(cx, sx_tensor, graph->output_count + 1);
    if (argument == NULL || *result == NULL) {
        return cx->error.code;
    }
    uint32_t count;
    SX_TRY(gather_arguments(cx, program, graph, mode, argument, &count));
    return sx_graph_eval(cx, graph, mode, argument, count, *result, graph->output_count);
}

sx_code sxr_check_program(sx_ctx *cx, const sxr_program *program, sx_module_check *check)
{
    const sx_module *module = sxr_module(program);
    *check = (sx_module_check){.passed = 1, .tolerance = SXR_PROGRAM_TOLERANCE};
    sx_graph *graph;
    sx_tensor *want, *typed = NULL;
    SX_TRY(bound_graph(cx, module, module->program, module->program_count, &graph));
    SX_TRY(evaluate(cx, program, graph, SX_EVAL_F64, &want));
    for (uint32_t k = 0; k < graph->output_count; k++) {
        const sx_output *output = &graph->output[k];
        comparison c;
        SX_TRY(compare_output(cx, program, output, &want[k], NULL, &c));
        if (!(relative(&c) <=
              check->tolerance)) { /* is it rounding? the slow question comes second */
            if (typed == NULL) {
                SX_TRY(evaluate(cx, program, graph, SX_EVAL_TYPED, &typed));
            }
            SX_TRY(compare_output(cx, program, output, &want[k], &typed[k], &c));
        }
        check->points += c.points;
        check->error = fmax(check->error, relative(&c));
        if (!(relative(&c) <= check->tolerance)) {
            check->passed = 0;
            return SX_FAIL(
                cx, SX_MISMATCH,
                "output %.*s: element %llu is %.9g, the interpreter has %.9g (error %.2e, "
                "allowed %.0e)",
                (int)output->name.len, (const char *)output->name.ptr, (unsigned long long)c.worst,
                c.got, c.want, relative(&c), check->tolerance);
        }
    }
    return SX_OK;
}

/* ---- verification of a fresh module ---- */

static sx_code bind_random(sx_ctx *cx, sxr_program *program, uint64_t seed)
{
    const sx_module *module = sxr_module(program);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        if (tensor->place != SX_TENSOR_INPUT && tensor->place != SX_TENSOR_OUTPUT &&
            tensor->place != SX_TENSOR_WEIGHT) {
            continue;
        }
        void *memory = sx_alloc(cx, (size_t)tensor->size);
        if (memory == NULL) {
            return cx->error.code;
        }
        sxr_fill_random(tensor, memory, seed + i);
        SX_TRY(sxr_bind(cx, program, i, memory, tensor->size));
    }
    return SX_OK;
}

static sx_code verify_launches(verifier *v)
{
    for (uint32_t phase = 2; phase-- > 0;) { /* prologue, then run */
        for (uint32_t i = 0; i < v->module->launch_count; i++) {
            if (v->module->launch[i].prologue == phase) {
                SX_TRY(verify_launch(v, i));
            }
        }
    }
    return SX_OK;
}

static sx_code verify_program(verifier *v, const sxr_verify_options *options)
{
    static const char name[] = "program against the interpreter";
    if (v->replaced || v->module->info->flops > options->program_flops) {
        char why[160];
        if (v->module->info->flops > options->program_flops) {
            (void)snprintf(why, sizeof(why), "%s: %.4g MFLOP, interpreted are at most %.4g", name,
                           v->module->info->flops / 1e6, fmax(0, options->program_flops) / 1e6);
        } else {
            (void)snprintf(why, sizeof(why),
                           "%s: random inputs overflow on the way, or the emulator ran a part only",
                           name);
        }
        sx_image_add_check(v->image, why, false, 0, 0, SXR_PROGRAM_TOLERANCE);
        return SX_OK;
    }
    sx_module_check check;
    sx_code code = sxr_check_program(v->cx, v->program, &check);
    if (code == SX_MISMATCH) {
        v->cx->error.code = SX_INTERNAL; /* a wrong module is our fault, not an answer */
        return SX_INTERNAL;
    }
    if (code == SX_OK) {
        sx_image_add_check(v->image, name, true, check.points, check.error, check.tolerance);
    }
    return code;
}

sx_code sxr_verify(sx_ctx *cx, sx_span module, const sxr_verify_options *options, sx_image *image)
{
    uint32_t points = options->kernel_points == 0 ? KERNEL_POINTS : options->kernel_points;
    verifier v = {.cx = cx,
                  .rng = {options->seed},
                  .points = points < KERNEL_POINTS_MAX ? points : KERNEL_POINTS_MAX,
                  .emulated_max = options->emulated_max == 0 ? EMULATED_INSTRUCTIONS_MAX
                                                             : options->emulated_max,
                  .image = image};
    sxr_options open = {.threads = 1, .any_level = true};
    SX_TRY(sxr_open_bytes(cx, module, &open, &v.program));
    v.module = sxr_module(v.program);
    sx_graph *graph;
    sx_code code =
        bound_graph(cx, v.module, v.module->optimized, v.module->optimized_count, &graph);
    v.graph = graph;
    code = code == SX_OK ? sxr_executor_make(cx, v.program, &v.executor) : code;
    image->emulated = v.executor.emulator != NULL;
    code = code == SX_OK ? bind_random(cx, v.program, options->seed) : code;
    code = code == SX_OK ? verify_launches(&v) : code;
    code = code == SX_OK ? verify_program(&v, options) : code;
    sxr_close(v.program);
    free(v.result);
    free(v.touched);
    return code;
}

static sx_code compile_once(sx_ctx *cx, const sx_core_request *request,
                            const sxr_verify_options *options, sx_buf *module)
{
    sx_image image;
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, request, &image);
    code = code == SX_OK ? sx_image_encode(cx, &image, module) : code;
    sxr_verify_options how = *options;
    if (request->library != NULL && request->library->reused && how.kernel_points == 0) {
        how.kernel_points = KERNEL_POINTS_REUSED;
    }
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
