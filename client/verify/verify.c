#include "client/verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/runtime/cpu.h"
#include "client/verify/places.h"
#include "client/verify/proxy.h"
#include "client/verify/ranks.h"
#include "client/verify/rounded.h"
#include "client/verify/team.h"
#include "client/verify/verifier.h"
#include "client/verify/whole.h"
#include "core/base/rng.h"
#include "core/ir/effect.h"
#include "core/ir/fused.h"
#include "core/ir/num.h"
#include "core/ir/program.h"

#define KERNEL_POINTS 48u
#define EMULATED_INSTRUCTIONS_MAX UINT64_C(4000000)
#define WIDE_FLOPS 1e7   /* programs up to this size are tried on all magnitudes, too, */
#define WIDE_DRAWS 4     /* so often */
#define PROXY_FLOPS 1e11 /* beyond it, some seconds, symbols become small in a proxy */
#define MACHINES_MAX 16
#define BRANCH_DRAWS 24 /* of a program with branches that were not taken so far, */
#define BRANCH_SEED UINT64_C(0x9E3779B97F4A7C15) /* with seeds far from each other */
#define DRAWS 3        /* of a program that rounding alone may lead elsewhere: */
#define AMPLIFIED 1e-5 /* it jumps, or rounding makes more than this of the largest magnitude */

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

void sxv_add_check(sxv_verifier *v, const char *name, sx_module_verdict verdict, uint64_t points,
                   double error, double tolerance)
{
    char text[400];
    sx_span variant = sx_module_string(v->module, v->module->variant[v->variant].name);
    bool several = v->module->variant_count > 1;
    (void)snprintf(text, sizeof(text), "%.*s%s%.250s", several ? (int)variant.len : 0,
                   (const char *)variant.ptr, several ? ": " : "", name);
    sx_image_add_check(v->image, text, verdict, points, error, tolerance);
}

/* ---- the whole program ---- */

static sxv_reference reference_of(sx_ctx *cx, const sxr_program *program, sxr_pool *pool,
                                  size_t bytes_max)
{
    return (sxv_reference){.pool = pool,
                           .tf32 = sxv_module_rounds(cx, sxr_module(program)),
                           .bytes_max = bytes_max > 0 ? bytes_max : SXR_REFERENCE_BYTES};
}

static const char whole_name[] = "program as sent, all outputs";

/* Launches that are run again find what they have overwritten. */
static sx_code refuse_state(sx_ctx *cx, const sx_module *module)
{
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == SX_TENSOR_STATE ||
            module->tensor[i].alias != SX_MODULE_NONE) {
            bool state = module->tensor[i].place == SX_TENSOR_STATE;
            sx_span name = sx_module_string(module, module->tensor[i].name);
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "%s \"%.*s\" %s: its launches cannot be run again by themselves",
                           state ? "state" : "output", (int)sx_min_i64((int64_t)name.len, 120),
                           (const char *)name.ptr,
                           state ? "is kept from run to run" : "lies in place of an input");
        }
    }
    return SX_OK;
}

/* Of the machine, in bytes. */
static uint64_t machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    return pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : UINT64_MAX;
}

/* A quarter of the memory that the process may have: the reference of a program that cannot be made smaller. */
static uint64_t memory_of_fixed(void)
{
    struct rlimit space;
    uint64_t memory = machine_memory();
    bool limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
    return (limited && space.rlim_cur < memory ? space.rlim_cur : memory) / 4;
}

/* Memory that nobody has would end the process in the middle of a comparison. */
static sx_code refuse_memory(sx_ctx *cx, uint64_t bytes)
{
    struct rlimit space;
    uint64_t machine = machine_memory();
    if (bytes > machine) {
        return SX_FAIL(cx, SX_LIMIT,
                       "verification: %llu MiB of memory wanted, the machine has %llu",
                       (unsigned long long)(bytes >> 20), (unsigned long long)(machine >> 20));
    }
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
        bytes > space.rlim_cur) {
        sx_hint(cx, "Workers of a daemon have what its setting worker_memory_mb says.");
        return SX_FAIL(
            cx, SX_LIMIT, "verification: %llu MiB of memory wanted, this process may have %llu",
            (unsigned long long)(bytes >> 20), (unsigned long long)(space.rlim_cur >> 20));
    }
    return SX_OK;
}

sx_code sxr_check_program(sx_ctx *cx, const sxr_program *program, size_t reference_bytes,
                          sx_module_check *check)
{
    const sx_module *module = sxr_module(program);
    sx_span text = {(const uint8_t *)module->program, (size_t)module->program_count};
    sx_graph *graph;
    sxv_whole whole;
    *check = (sx_module_check){.passed = 1};
    SX_TRY(refuse_memory(cx, reference_bytes));
    SX_TRY(sxv_bound_graph(cx, program, text, &graph));
    sxv_reference reference = reference_of(cx, program, sxr_pool_of(program), reference_bytes);
    sx_code code = sxv_whole_compare(cx, program, graph, &reference, false, &whole);
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

/* Does some operation on floats jump? Then an element may fall on the other side of a step by rounding alone. */
static bool jumps(const sx_graph *graph);

static bool jumps_inside(const sx_graph *graph, const sx_node *node)
{
    const sx_program **program[SX_ATTR_PROGRAMS_MAX];
    sx_attr attr = *sx_graph_attr(graph, node);
    uint32_t count = sx_attr_programs(&attr, program);
    bool found = false;
    for (uint32_t k = 0; k < count && !found; k++) {
        found = jumps((*program[k])->graph);
    }
    return found;
}

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
        if ((floats && (step || to_whole)) || jumps_inside(graph, node)) {
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
static uint32_t copied_from(const sxv_verifier *v, uint32_t output)
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
static sx_code verify_copies(sxv_verifier *v)
{
    uint64_t copied = 0;
    for (uint32_t k = 0; k < v->graph->output_count; k++) {
        sx_span name = v->graph->output[k].name;
        if (v->graph->effects != NULL) { /* what was copied may have been overwritten since */
            continue;
        }
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
        sxv_add_check(v, "every element of what kernels compute is written", SX_CHECK_PASSED,
                      v->written, 0, 0);
    }
    if (copied > 0) {
        sxv_add_check(v, "outputs that are copies", SX_CHECK_PASSED, copied, 0, 0);
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
                             bool proxy, sxv_visit visit, sx_image *image);
static const sxv_visit no_visit = {NULL, NULL};

static sx_code compile_proxy(sxv_verifier *v, sx_ctx *own, const sxr_verify_options *options,
                             const sxv_proxy_wish *wish, sxv_proxy *proxy, sx_buf *module,
                             sx_image *image)
{
    sxr_verify_options how = *options;
    how.program = wish->sent;
    how.targets = wish->targets;
    sx_code code = sxv_proxy_compile(own, v->program, wish, module, proxy);
    if (code != SX_OK && code != SX_NOMEM) { /* no proxy, then: the module is as good as it was */
        size_t used = strlen(proxy->text);
        (void)snprintf(proxy->text + used, sizeof(proxy->text) - used, ": %.80s", own->error.text);
        sx_ctx_reset_error(own);
        proxy->found = false;
        return SX_OK;
    }
    return code == SX_OK && proxy->found
               ? verify_module(own, sx_buf_span(module), &how, true, no_visit, image)
               : code;
}

/* A proxy against the program as sent; *compared: there is one, and its outputs were. */
static sx_code verify_proxy(sxv_verifier *v, const sxr_verify_options *options,
                            const sxv_proxy_wish *wish, bool *compared)
{
    sx_ctx own;
    sx_buf module;
    sx_image image;
    sxv_proxy proxy = {.found = false};
    sx_span name;
    char row[400];
    sx_ctx_init(&own, v->cx->arena.limit_bytes);
    sx_buf_init(&module, (size_t)1 << 30);
    sx_image_init(&image);
    own.fuel = v->cx->fuel;
    sx_code code = compile_proxy(v, &own, options, wish, &proxy, &module, &image);
    const sx_module_check *check = code == SX_OK ? whole_row(&image, &name) : NULL;
    *compared = check != NULL && check->passed != SX_CHECK_ABSENT;
    if (check != NULL) {
        (void)snprintf(row, sizeof(row), "optimised program %s against %.*s", proxy.text,
                       (int)name.len, (const char *)name.ptr);
        sxv_add_check(v, row, (sx_module_verdict)check->passed, check->points, check->error,
                      check->tolerance);
    } else if (code == SX_OK) {
        (void)snprintf(row, sizeof(row), "optimised program %s", proxy.text);
        sxv_add_check(v, row, SX_CHECK_ABSENT, 0, 0, 0);
    } else {
        v->cx->error = own.error;
        code = sx_fail_in(v->cx, "optimised program %s", proxy.text);
    }
    sx_image_fini(&image);
    sx_buf_fini(&module);
    sx_ctx_fini(&own);
    return code;
}

/* The optimised program against the program as sent, where the outputs of the module are not compared. For emulated
 * code it runs on the processor at hand; in both cases symbols become small where that saves time. */
static sx_code verify_optimized(sxv_verifier *v, const sxr_verify_options *options, sx_span sent)
{
    const sx_machine *here = v->executor.emulator != NULL ? sxr_cpu_machine() : NULL;
    double flops_max = v->module->symbol_count > 0 ? fmin(PROXY_FLOPS, v->flops_max) : v->flops_max;
    sxv_proxy_wish wish = {.sent = sent,
                           .machine = here,
                           .targets = here != NULL ? NULL : options->targets,
                           .same_extents = here != NULL && v->flops <= flops_max,
                           .flops_max = options->program_flops};
    bool compared = false;
    if (wish.same_extents) {
        SX_TRY(verify_proxy(v, options, &wish, &compared));
        wish.same_extents = false;
    }
    return compared ? SX_OK : verify_proxy(v, options, &wish, &compared);
}

static sx_code run_draw(sxv_verifier *v, const sx_graph *sent, uint64_t seed)
{
    memset(v->seen, 0, (size_t)v->module->kernel_count * sizeof(*v->seen));
    SX_TRY(sxv_bind_random(v, sent, seed, false));
    return sxv_each_launch(v, sxv_verify_launch);
}

/* A program that keeps state is compared over one run on random state, and so many from the initial values on. */
#define STEPS 3u

/* The outputs of the run that was made, and of further ones where the program leaves something behind: each against
 * the program on the versions that were there before it. */
static sx_code compare_steps(sxv_verifier *v, const sx_graph *sent, sxv_whole *whole)
{
    sxv_reference reference = reference_of(v->cx, v->program, v->pool, v->reference_bytes);
    uint32_t steps = sent->effects != NULL ? STEPS : 0;
    SX_TRY(sxv_whole_compare(v->cx, v->program, sent, &reference, false, whole));
    for (uint32_t step = 0; step < steps; step++) {
        sxv_whole more;
        if (step == 0) {
            sxr_state_reset(v->program);
        }
        SX_TRY(sxr_remember(v->cx, v->program));
        SX_TRY(sxv_each_launch(v, sxv_run_launch));
        sx_code code = sxv_whole_compare(v->cx, v->program, sent, &reference, false, &more);
        sxv_whole_add(whole, &more);
        if (code == SX_MISMATCH) {
            return sx_fail_in(v->cx, "run %u from the initial values", step + 1);
        }
        SX_TRY(code);
    }
    return SX_OK;
}

/* What states begin with, to the bit. */
static sx_code verify_initial(sxv_verifier *v, const sx_graph *sent)
{
    const sx_effects *e = sent->effects;
    uint64_t elements = 0;
    sxr_state_reset(v->program);
    for (uint32_t i = 0; e != NULL && i < e->kept_count; i++) {
        const sx_kept *kept = &e->kept[i];
        const sx_node *node = sx_graph_node(sent, (sx_node_id){kept->node});
        sx_span name = sx_graph_attr(sent, node)->name;
        size_t size = (size_t)sx_tensor_elements(&node->type) * sx_dtype_bytes(node->type.dtype);
        if (kept->role != SX_KEEP_STATE) {
            continue;
        }
        uint32_t tensor = sxr_find(v->program, SX_TENSOR_STATE, name);
        bool same = tensor != UINT32_MAX && sxr_size(v->program, tensor) == size;
        const uint8_t *memory = same ? sxr_memory(v->program, tensor) : NULL;
        for (size_t at = 0; same && at < size; at += kept->initial.len) {
            same = memcmp(memory + at, kept->initial.ptr, kept->initial.len) == 0;
        }
        if (!same) {
            return SX_FAIL(v->cx, SX_INTERNAL, "state %.*s does not begin as the program says",
                           (int)name.len, (const char *)name.ptr);
        }
        elements += size / sx_dtype_bytes(node->type.dtype);
    }
    if (elements > 0) {
        sxv_add_check(v, "initial values of state", SX_CHECK_PASSED, elements, 0, 0);
    }
    return SX_OK;
}

/* The row of a comparison that was made. */
static void add_whole(sxv_verifier *v, const sx_graph *sent, const sxv_whole *whole)
{
    char text[160];
    int used = snprintf(text, sizeof(text), "%s", whole_name);
    if (sent->effects != NULL) {
        used += snprintf(text + used, sizeof(text) - (size_t)used,
                         " and what they leave, over %u runs", STEPS + 1);
    }
    if (whole->imprecise) {
        used += snprintf(text + used, sizeof(text) - (size_t)used,
                         "; rounding alone is off by %.1e", whole->spread);
    }
    if (whole->finite < whole->points) {
        (void)snprintf(text + used, sizeof(text) - (size_t)used, "; %llu are not finite",
                       (unsigned long long)(whole->points - whole->finite));
    }
    sxv_add_check(v, text, whole->imprecise ? SX_CHECK_IMPRECISE : SX_CHECK_PASSED, whole->points,
                  whole->error, whole->bound);
}

/* Is it a while that went on beyond its rounds, in the module or in the reference? */
static bool is_beyond(const sx_ctx *cx, sx_code code)
{
    return code == SX_LIMIT && strstr(cx->error.text, "while:") != NULL;
}

/* A run that ended in a while: that of the program as sent does, too, or the module is wrong. */
static sx_code verify_beyond(sxv_verifier *v, const sx_graph *sent)
{
    char text[320];
    (void)snprintf(text, sizeof(text), "%s: %.200s", whole_name, v->cx->error.text);
    SX_ASSERT(v->beyond || v->endless);
    sx_ctx_reset_error(v->cx);
    if (v->beyond && v->with_whole && !v->replaced) {
        sxv_reference reference = reference_of(v->cx, v->program, v->pool, v->reference_bytes);
        sxv_whole whole;
        sx_code code = sxv_whole_compare(v->cx, v->program, sent, &reference, false, &whole);
        if (code == SX_OK || code == SX_MISMATCH) {
            sx_ctx_reset_error(v->cx);
            return SX_FAIL(v->cx, SX_MISMATCH,
                           "a while goes on beyond its rounds, that of the program as sent ends");
        }
        SX_TRY(code == SX_LIMIT || code == SX_NOMEM ? SX_OK : code);
        sx_ctx_reset_error(v->cx);
    }
    sxv_add_check(v, text, SX_CHECK_ABSENT, 0, 0, 0);
    return SX_OK;
}

/* One draw: inputs, every launch, all outputs. Where these say nothing after all, every launch once more, as of a
 * program that is not compared whole. */
static sx_code verify_draw(sxv_verifier *v, const sx_graph *sent, uint64_t seed, bool *amplifies)
{
    char why[256];
    (void)snprintf(why, sizeof(why),
                   "more operations than verification may take, %.3g, at most %.3g", v->flops,
                   fmax(0, v->flops_max));
    size_t checks = v->image->check.len;
    *amplifies = v->compared = false;
    sx_code ran = run_draw(v, sent, seed);
    if (ran != SX_OK) {
        return is_beyond(v->cx, ran) ? verify_beyond(v, sent) : ran;
    }
    if (v->with_whole && v->replaced) {
        (void)snprintf(why, sizeof(why), "the emulator ran a part only");
    } else if (v->with_whole) {
        sxv_whole whole;
        sx_code code = compare_steps(v, sent, &whole);
        *amplifies = whole.spread > AMPLIFIED;
        if (is_beyond(v->cx, code) && !v->beyond && !v->endless) {
            sx_ctx_reset_error(v->cx);
            return SX_FAIL(v->cx, SX_MISMATCH,
                           "a while ends, that of the program as sent goes on beyond its rounds");
        }
        if (is_beyond(v->cx, code)) { /* in a further run */
            return verify_beyond(v, sent);
        }
        if (code == SX_LIMIT || code == SX_NOMEM) {
            (void)snprintf(why, sizeof(why), "%.250s", v->cx->error.text);
            sx_ctx_reset_error(v->cx);
        } else if (code == SX_OK && sxv_whole_says_nothing(&whole)) {
            (void)snprintf(why, sizeof(why), "every element is NaN on random inputs");
        } else {
            SX_TRY(code);
            add_whole(v, sent, &whole);
            v->compared = true;
            return SX_OK;
        }
        v->with_whole = false;
        v->large = (code == SX_LIMIT || code == SX_NOMEM) && !v->proxy;
        v->image->check.len = checks;
        SX_TRY(run_draw(v, sent, seed));
    }
    char text[320];
    (void)snprintf(text, sizeof(text), "%s: %s", whole_name, why);
    sxv_add_check(v, text, SX_CHECK_ABSENT, 0, 0, 0);
    return SX_OK;
}

/* Magnitudes that differ from part to part of every input and weight, over the whole range of f32. What is
 * found is a warning: the module is right where the numbers stay near to one, but leaves the range, or loses
 * digits, where the program as sent does not. */
static sx_code verify_wide(sxv_verifier *v, const sx_graph *sent, uint64_t seed)
{
    sxv_reference reference = reference_of(v->cx, v->program, v->pool, v->reference_bytes);
    sxv_whole whole = {0};
    uint64_t points = 0;
    char text[160] = "magnitudes from 1e-38 to 1e38";
    for (uint64_t draw = 0; draw < WIDE_DRAWS && whole.wrong == 0; draw++) {
        SX_TRY(sxv_bind_random(v, sent, seed + draw, true));
        sx_code code = sxv_each_launch(v, sxv_run_launch);
        if (is_beyond(v->cx, code)) {
            sx_ctx_reset_error(v->cx);
            continue;
        }
        SX_TRY(code);
        code = sxv_whole_compare(v->cx, v->program, sent, &reference, true, &whole);
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
    sxv_add_check(v, text, whole.wrong > 0 ? SX_CHECK_IMPRECISE : SX_CHECK_PASSED, points,
                  whole.wrong > 0 ? whole.error : 0, whole.bound);
    return SX_OK;
}

/* A draw, and others where rounding alone may lead elsewhere: a fault stays one on other numbers. */
static sx_code verify_draws(sxv_verifier *v, const sx_graph *sent, uint64_t seed)
{
    size_t checks = v->image->check.len;
    bool amplifies;
    sx_code code = verify_draw(v, sent, seed, &amplifies);
    for (uint64_t i = 1; code == SX_MISMATCH && i < DRAWS && (amplifies || jumps(sent)); i++) {
        sx_ctx_reset_error(v->cx);
        v->image->check.len = checks;
        code = verify_draw(v, sent, seed + i, &amplifies);
    }
    return code;
}

/* Launches of a run that no walk went through, and branches that no walk left in both ways. */
static uint32_t not_run(const sxv_verifier *v)
{
    const sx_module_variant *variant = &v->module->variant[v->variant];
    uint32_t count = 0;
    for (uint32_t k = 0; k < variant->launch_count; k++) {
        const sx_module_launch *launch = &v->module->launch[variant->launch_first + k];
        bool runs = launch->prologue == 0 && launch->kind != SX_LAUNCH_LOOP &&
                    launch->kind != SX_LAUNCH_WHILE;
        uint8_t wanted = launch->kind == SX_LAUNCH_BRANCH ? SXV_RAN | SXV_LEFT : SXV_RAN;
        count += runs && v->ran[variant->launch_first + k] != wanted ? 1 : 0;
    }
    return count;
}

/* Other inputs, which may take other branches. The rows of the draws before stay, unless these are the first outputs
 * that are compared. */
static sx_code verify_branches(sxv_verifier *v, const sx_graph *sent, uint64_t seed, size_t checks)
{
    sx_buf *rows = &v->image->check;
    bool compared = v->compared;
    for (uint64_t i = 0; i < BRANCH_DRAWS && v->with_whole && not_run(v) > 0; i++) {
        size_t before = rows->len;
        SX_TRY(verify_draws(v, sent, seed + BRANCH_SEED * (i + 1)));
        if (!compared && v->compared) {
            compared = true;
            memmove(rows->ptr + checks, rows->ptr + before, rows->len - before);
            rows->len -= before - checks;
        } else {
            rows->len = before;
        }
    }
    uint32_t left = not_run(v);
    if (left > 0) {
        char text[120];
        (void)snprintf(text, sizeof(text),
                       "%u launches that no random inputs led to, or in one way only", left);
        sxv_add_check(v, text, SX_CHECK_ABSENT, 0, 0, 0);
    }
    return SX_OK;
}

static sx_code verify_program(sxv_verifier *v, const sxr_verify_options *options)
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
    sxv_places_plan(v);
    if (v->visit.launch != NULL) {
        SX_TRY(sxv_bind_random(v, sent, options->seed, false));
        return sxv_each_launch(v, v->visit.launch);
    }
    SX_TRY(verify_initial(v, sent));
    v->flops = sxv_reference_flops(sent);
    v->flops_max = options->program_flops;
    if (module->symbol_count == 0 && v->flops_max >= 0 && options->fixed_flops > v->flops_max) {
        size_t usual = v->reference_bytes > 0 ? v->reference_bytes : SXR_REFERENCE_BYTES;
        uint64_t more = memory_of_fixed();
        v->flops_max = options->fixed_flops;
        v->reference_bytes = more > usual ? (size_t)more : usual;
    }
    if (sx_module_ranks(module) > 1) {
        sx_code together = sxv_verify_ranks(v, options, text);
        v->cx->error.code = together == SX_MISMATCH ? SX_INTERNAL : v->cx->error.code;
        return v->cx->error.code;
    }
    v->with_whole = v->flops <= v->flops_max;
    if (v->flops <= fmin(WIDE_FLOPS, v->flops_max)) {
        SX_TRY(verify_wide(v, sent, options->seed));
    }
    size_t checks = v->image->check.len;
    memset(v->ran, 0, (size_t)module->launch_count * sizeof(*v->ran)); /* by what decides */
    v->large = !v->with_whole && options->program_flops >= 0 && !v->proxy;
    sx_code code = verify_draws(v, sent, options->seed);
    code = code == SX_OK ? verify_branches(v, sent, options->seed, checks) : code;
    if (code == SX_OK && v->large && v->executor.emulator == NULL) {
        SX_TRY(verify_copies(v));
    }
    if (code == SX_OK && !v->proxy && (v->large || (v->with_whole && v->replaced))) {
        code = verify_optimized(v, options, text);
    }
    if (code == SX_MISMATCH) {
        v->cx->error.code = SX_INTERNAL; /* a wrong module is our fault, not an answer */
        return SX_INTERNAL;
    }
    return code;
}

/* The variant runs as on the least machine that has what it needs: another may take a variant before it. Where the
 * processor is less than that, the variant is emulated. */
static sx_code choose_variant(sxv_verifier *v, const sxr_verify_options *options, uint64_t *next,
                              bool *found)
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
    SX_TRY(sxv_next_extents(v, next, found));
    if (v->executor.program == NULL || v->level != level) {
        sxr_executor_fini(&v->executor);
        SX_TRY(sxr_executor_make(v->cx, options->targets, v->program, &v->executor));
        v->level = level;
    }
    v->image->emulated = v->executor.emulator != NULL;
    return SX_OK;
}

/* At several extents where it serves an interval. */
static sx_code verify_variant(sxv_verifier *v, const sxr_verify_options *options)
{
    uint64_t next = 0;
    bool found;
    v->replaced = false;
    SX_TRY(choose_variant(v, options, &next, &found));
    if (!found) {
        sxv_add_check(v, "no extents were found for which it runs here", SX_CHECK_ABSENT, 0, 0, 0);
    }
    while (found) {
        SX_TRY(verify_program(v, options));
        if (v->visit.launch != NULL) {
            return SX_OK;
        }
        SX_TRY(sxv_next_extents(v, &next, &found));
    }
    return SX_OK;
}

static sx_code verify_variants(sxv_verifier *v, const sxr_verify_options *options)
{
    SX_TRY(v->visit.launch != NULL ? refuse_state(v->cx, v->module) : SX_OK);
    for (v->variant = 0; v->variant < v->module->variant_count; v->variant++) {
        SX_TRY(verify_variant(v, options));
    }
    return SX_OK;
}

static sx_code verify_module(sx_ctx *cx, sx_span module, const sxr_verify_options *options,
                             bool proxy, sxv_visit visit, sx_image *image)
{
    uint32_t points = options->kernel_points == 0 ? KERNEL_POINTS : options->kernel_points;
    sxv_verifier v = {.cx = cx,
                      .rng = {options->seed},
                      .points = points < SXV_KERNEL_POINTS_MAX ? points : SXV_KERNEL_POINTS_MAX,
                      .emulated_max = options->emulated_max == 0 ? EMULATED_INSTRUCTIONS_MAX
                                                                 : options->emulated_max,
                      .reference_bytes = options->reference_bytes,
                      .image = image,
                      .visit = visit,
                      .proxy = proxy};
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
    v.pool = sxr_pool_of(v.program);
    v.seen = calloc((size_t)v.module->kernel_count + 1, sizeof(*v.seen));
    v.ran = calloc((size_t)v.module->launch_count + 1, sizeof(*v.ran));
    sx_code code = v.seen != NULL && v.ran != NULL
                       ? sxv_places_make(&v)
                       : SX_FAIL(cx, SX_NOMEM, "no memory for a list of kernels");
    code = code == SX_OK ? verify_variants(&v, options) : code;
    sx_stage_end(cx, stage, code == SX_OK ? "done" : "failed",
                 v.image->check.len / sizeof(sx_module_check));
    cx->fuel = fuel;
    sxr_executor_fini(&v.executor);
    sxr_close(v.program);
    free(v.result);
    free(v.touched);
    free(v.seen);
    free(v.ran);
    sxv_places_fini(&v);
    return code;
}

sx_code sxr_verify(sx_ctx *cx, sx_span module, const sxr_verify_options *options, sx_image *image)
{
    SX_ASSERT(options != NULL && image != NULL);
    SX_TRY(refuse_memory(cx, options->reference_bytes));
    return verify_module(cx, module, options, false, no_visit, image);
}

sx_code sxv_visit_launches(sx_ctx *cx, sx_span module, const sxr_verify_options *options,
                           sxv_visit visit)
{
    sx_image image; /* nothing is compared */
    SX_ASSERT(options != NULL && visit.launch != NULL);
    sx_image_init(&image);
    sx_code code = verify_module(cx, module, options, false, visit, &image);
    sx_image_fini(&image);
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
    how.program = request->ir;
    how.targets = request->targets;
    how.program_flops = fmax(how.program_flops, (double)request->verify_flops);
    if (request->verify_bytes >
        (how.reference_bytes > 0 ? how.reference_bytes : SXR_REFERENCE_BYTES)) {
        how.reference_bytes = (size_t)request->verify_bytes;
    }
    code = code == SX_OK ? sxr_verify(cx, sx_buf_span(module), &how, &image) : code;
    if (code == SX_OK) {
        sx_buf_clear(module);
        code = sx_image_encode(cx, &image, module);
    }
    sx_image_fini(&image);
    return code;
}

/* The compiler has as many threads as the module will have. */
static sx_code compile_together(sx_ctx *cx, const sx_core_request *request,
                                const sxr_verify_options *options, sx_buf *module)
{
    sxv_team team;
    sxv_team_init(&team, options->threads);
    cx->team = &team.team;
    sx_code code = compile_once(cx, request, options, module);
    cx->team = NULL;
    sxv_team_fini(&team);
    return code;
}

sx_code sxr_compile_verified(sx_ctx *cx, const sx_core_request *request,
                             const sxr_verify_options *options, sx_buf *module)
{
    SX_TRY(refuse_memory(cx, request->verify_bytes));
    sx_code code = compile_together(cx, request, options, module);
    sx_core_library *library = request->library;
    if (code == SX_INTERNAL && library != NULL && library->parts_met > 0) {
        /* what came of a stored program is not what it should be: from nothing, then */
        sx_ctx_reset_error(cx);
        sx_buf_clear(module);
        library->candidate_count = library->parts_met = 0;
        library->met = library->reused = false;
        return compile_together(cx, request, options, module);
    }
    return code;
}
