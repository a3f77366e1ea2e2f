/* bench_ablation.c - what level 1 is worth: a network as it came, fused only, with all rules, after a long
 * search, with all rules for its batch as a number (elsewhere it is a symbol), and with all rules but those of
 * one group. All variants are open in one process and take turns, in every round in another order; the model's
 * estimates stand beside the times. A group without which the same program comes out is named and not measured.
 * The network as it came is measured twice, so that a reader sees what noise does.
 *
 * "As it came": every operation is a kernel of its own. Rules without which an operation has no kernel at
 * all stay (`needed`). Inputs and weights are the same memory for all variants. Their outputs are compared:
 * a variant that computes something else ends the program, as its time says nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "core/base/hash.h"
#include "core/base/rng.h"
#include "core/core.h"
#include "core/ir/ir.h"
#include "tests/bench/bench.h"
#include "tests/bench/networks.h"
#include "tests/lib/model.h"

#define CX_BYTES ((size_t)12 << 30)
#define MODULE_BYTES_MAX ((size_t)1 << 30)
#define STATE_BYTES_MAX ((size_t)256 << 20)
#define ALIGNMENT 64u
#define WARM_RUNS 2u
#define RUNS_PER_ROUND 3u
#define THREADS 2u
#define STEPS 2u
#define STEP_FUEL UINT64_C(50000000)
#define VARIANTS_MAX 16u
/* Of the largest magnitude of an output. Rounding is orders below, another program above it; it is no test
 * of accuracy. */
#define DIFFERENCE_MAX 1e-2

/* ---- which rules ---- */

#define SX_RULE(id, name, rule_class, left, right) name ","
#define SX_RULE_BUILD(id, name, rule_class, left, build) name ","
#define SX_RULE_FUSION(id, name, rule_class, help) name ","
static const char merging[] =
#include "core/rules/merge.def"
    ;
static const char online[] =
#include "core/rules/online.def"
    "attention-scaled-query,attention-scaled-key,fuse-scores,";
static const char convolutions[] =
#include "core/rules/conv.def"
    ;
static const char fusion[] =
#include "core/rules/fusion.def"
    ;
#undef SX_RULE
#undef SX_RULE_BUILD
#undef SX_RULE_FUSION
static const char composites[] =
    "relu,relu-swapped,logistic,logistic-quotient,logistic-complement,logistic-of-tanh,"
    "logistic-of-halves,tanh-of-logistic,tanh-of-exp,silu,silu-divide,gelu-half-last,"
    "gelu-half-first,gelu-half-inner,softmax,log-softmax,softmax-plain,log-softmax-plain,"
    "log-softmax-shifted,layer-norm,layer-norm-plain,rms-norm,rms-norm-plain,"
    "rms-norm-gain-first,batch-norm,";
static const char needed[] = "lift,conv-padding,window-padding,conv-deep,conv-groups,"
                             "attention-definition,batch-norm-definition,layer-norm-definition,"
                             "rms-norm-definition,softmax-definition,log-softmax-definition,"
                             "online-definition,";

typedef struct {
    const char *name;
    const char *without; /* rules not used; NULL: all but those in `with` and `needed` */
    const char *with;
    bool exact;  /* no reassociating rule */
    bool search; /* what a long search found */
    /* The batch is a number before level 1: a row may have other bits than in another batch. */
    bool alone;
} variant;
static const variant variants[] = {
    {"as it came", NULL, "", false, false, false},
    {"fused only", NULL, fusion, false, false, false},
    {"all rules", "", NULL, false, false, false},
    {"long search", NULL, "", false, true, false},
    {"for this batch alone", "", NULL, false, false, true},
    {"without composites", composites, NULL, false, false, false},
    {"without attention", online, NULL, false, false, false},
    {"without merging", merging, NULL, false, false, false},
    {"without convolutions", convolutions, NULL, false, false, false},
    {"without reassociation", "", NULL, true, false, false},
    {"as it came, again", NULL, "", false, false, false}, /* its ratio is what noise does */
};
_Static_assert(SX_COUNT(variants) <= VARIANTS_MAX, "one slot for each");
enum { AS_IT_CAME, ALL_RULES = 2, GROUPS = 5 };

/* Is `name` in the list "a,b,"? */
static bool is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length) {
        if ((at == list || at[-1] == ',') && at[length] == ',') {
            return true;
        }
    }
    return false;
}

static void print_disabled(const variant *v, sx_buf *names)
{
    sx_core_rule rule;
    for (uint32_t r = 0; sx_core_rule_find(r, &rule); r++) {
        bool kept =
            is_listed(needed, rule.name) || (v->without != NULL ? !is_listed(v->without, rule.name)
                                                                : is_listed(v->with, rule.name));
        if (!kept) {
            sx_buf_print(names, "%s%s", names->len > 0 ? "," : "", rule.name);
        }
    }
}

/* ---- one module for each variant ---- */

typedef struct {
    bool same; /* the program is that of all rules: it is not measured */
    sxr_program *program;
    sx_key optimized;  /* digest of the program that came out */
    double *sample;    /* ns, one for each round */
    double difference; /* from the outputs of the program as it came, of their largest magnitude */
} measured;
typedef struct {
    const sx_bench_options *options;
    const char *name;
    const sx_bench_network *network;
    int64_t batch;
    const char *target;
    sx_buf text;
    measured variant[VARIANTS_MAX];
} ablation;

static sx_span aligned(sx_ctx *cx, const sx_buf *bytes)
{
    uint8_t *copy = bytes->len == 0 ? NULL : sx_alloc(cx, bytes->len + ALIGNMENT);
    if (copy == NULL) {
        return (sx_span){NULL, 0};
    }
    copy += (ALIGNMENT - (uintptr_t)copy % ALIGNMENT) % ALIGNMENT;
    memcpy(copy, bytes->ptr, bytes->len);
    return (sx_span){copy, bytes->len};
}

typedef struct {
    sx_buf state[2], module, best, merged;
} search_room;

static sx_code run_lane(sx_ctx *cx, const ablation *a, const sx_core_request *request,
                        uint32_t lane, search_room *room)
{
    uint32_t steps = a->options->steps > 0 ? a->options->steps : STEPS;
    uint64_t fuel = a->options->fuel > 0 ? a->options->fuel : STEP_FUEL;
    bool done = false;
    sx_buf_clear(&room->state[0]);
    for (uint32_t i = 0; i < steps && !done; i++) {
        sx_buf *to = &room->state[(i + 1) % 2];
        sx_core_step step = {request, lane, fuel, aligned(cx, &room->state[i % 2])};
        sx_core_step_result result = {.state = to, .module = &room->module};
        sx_buf_clear(to);
        sx_buf_clear(&room->module);
        SX_TRY(cx->error.code);
        SX_TRY(sx_core_long_step(cx, &step, &result));
        done = result.done || to->len == 0;
        if (room->module.len == 0) {
            continue;
        }
        sx_buf_clear(&room->merged);
        SX_TRY(sx_core_long_merge(cx, request, aligned(cx, &room->best), aligned(cx, &room->module),
                                  &room->merged));
        sx_buf_clear(&room->best);
        sx_buf_put_span(&room->best, sx_buf_span(&room->merged));
    }
    return SX_OK;
}

/* Takes all lanes `--steps` steps further and writes the best program of them. */
static sx_code search(sx_ctx *cx, const ablation *a, const sx_core_request *request,
                      search_room *room, sx_buf *program)
{
    uint32_t lanes = 0;
    sx_module module;
    SX_TRY(sx_core_long_lanes(cx, request, &lanes));
    for (uint32_t lane = 0; lane < lanes; lane++) {
        SX_TRY(run_lane(cx, a, request, lane, room));
    }
    SX_TRY(sx_module_decode(cx, aligned(cx, &room->best), true, &module));
    sx_buf_put(program, module.optimized, (size_t)module.optimized_count);
    return sx_buf_check(cx, program, "the program found");
}

static sx_code long_search(sx_ctx *cx, const ablation *a, const sx_core_request *request,
                           sx_buf *program)
{
    search_room room;
    sx_buf_init(&room.state[0], STATE_BYTES_MAX);
    sx_buf_init(&room.state[1], STATE_BYTES_MAX);
    sx_buf_init(&room.module, MODULE_BYTES_MAX);
    sx_buf_init(&room.best, MODULE_BYTES_MAX);
    sx_buf_init(&room.merged, MODULE_BYTES_MAX);
    sx_code code = search(cx, a, request, &room, program);
    sx_buf_fini(&room.state[0]);
    sx_buf_fini(&room.state[1]);
    sx_buf_fini(&room.module);
    sx_buf_fini(&room.best);
    sx_buf_fini(&room.merged);
    return code;
}

static sx_code compile_text(sx_ctx *cx, const ablation *a, const variant *v, sx_span text,
                            sx_buf *module)
{
    sx_binding binding = {SX_SPAN_LITERAL("batch"), a->batch};
    sx_buf disabled;
    sx_buf_init(&disabled, 1 << 16);
    print_disabled(v, &disabled);
    sx_core_request request = {.ir = text,
                               .target = sx_span_of(a->target),
                               .binding = &binding,
                               .binding_count = v->alone ? 0 : 1,
                               .no_reassociate = v->exact,
                               .disabled_rules = sx_buf_span(&disabled)};
    sx_image image;
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, &request, &image);
    code = code == SX_OK ? sx_image_encode(cx, &image, module) : code;
    sx_image_fini(&image);
    sx_buf_fini(&disabled);
    return code;
}

static sx_code compile_alone(sx_ctx *cx, const ablation *a, const variant *v, sx_buf *module)
{
    const sx_binding binding = {SX_SPAN_LITERAL("batch"), a->batch};
    sx_graph *graph, *bound;
    sx_buf text;
    SX_TRY(sx_graph_parse(cx, sx_buf_span(&a->text), &graph));
    SX_TRY(sx_graph_bind(cx, graph, &binding, 1, &bound));
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_code code = sx_graph_print(cx, bound, &text);
    code = code == SX_OK ? compile_text(cx, a, v, sx_buf_span(&text), module) : code;
    sx_buf_fini(&text);
    return code;
}

static sx_code compile(sx_ctx *cx, const ablation *a, const variant *v, sx_buf *module)
{
    if (v->alone) {
        return compile_alone(cx, a, v, module);
    }
    if (!v->search) {
        return compile_text(cx, a, v, sx_buf_span(&a->text), module);
    }
    sx_buf found;
    sx_buf_init(&found, SX_TEXT_BYTES_MAX);
    sx_binding binding = {SX_SPAN_LITERAL("batch"), a->batch};
    sx_core_request request = {.ir = sx_buf_span(&a->text),
                               .target = sx_span_of(a->target),
                               .binding = &binding,
                               .binding_count = 1};
    sx_code code = long_search(cx, a, &request, &found);
    code = code == SX_OK ? compile_text(cx, a, v, sx_buf_span(&found), module) : code;
    sx_buf_fini(&found);
    return code;
}

/* ---- memory and values ---- */

static bool is_interface(const sx_module_tensor *tensor)
{
    return tensor->place == SX_TENSOR_INPUT || tensor->place == SX_TENSOR_OUTPUT ||
           tensor->place == SX_TENSOR_WEIGHT;
}

/* Of a matrix [rows, columns] or a window [channels, inside, ..]: weights that keep sums of order one. */
static double scale_of(const sx_module_tensor *tensor, uint64_t elements)
{
    bool weight = tensor->place == SX_TENSOR_WEIGHT && tensor->rank >= 2;
    uint64_t first = (uint64_t)tensor->dim[0];
    return weight ? sqrt(3.0 / (double)(tensor->rank == 2 ? first : elements / first)) : 1.0;
}

static void fill(const sx_module *module, const sx_module_tensor *tensor, void *memory)
{
    sx_rng rng = {sx_hash64(sx_module_string(module, tensor->name), 7)};
    uint64_t count = tensor->size / tensor->element_bytes;
    double scale = tensor->rank > 0 ? scale_of(tensor, count) : 1.0;
    for (uint64_t i = 0; i < count; i++) {
        if (tensor->dtype == SX_F32) {
            ((float *)memory)[i] = (float)((double)sx_rng_f32(&rng) * scale);
        } else {
            uint64_t number = sx_rng_below(&rng, 2);
            memcpy((uint8_t *)memory + i * tensor->element_bytes, &number, tensor->element_bytes);
        }
    }
}

/* Inputs and weights of the first program, as the model has them or drawn; outputs. */
static sx_code bind_first(sx_ctx *cx, const ablation *a, sxr_program *program)
{
    const sx_module *module = sxr_module(program);
    if (a->network->model != NULL) {
        return sx_test_model_bind(cx, a->network->model, program, 7);
    }
    for (uint32_t t = 0; t < module->tensor_count; t++) {
        const sx_module_tensor *tensor = &module->tensor[t];
        if (is_interface(tensor)) {
            void *memory = sx_alloc(cx, (size_t)tensor->size);
            if (memory == NULL) {
                return cx->error.code;
            }
            fill(module, tensor, memory);
            SX_TRY(sxr_bind(cx, program, t, memory, tensor->size));
        }
    }
    return SX_OK;
}

/* The memory of the first program, and outputs of its own. */
static sx_code bind_like(sx_ctx *cx, const sxr_program *first, sxr_program *program)
{
    const sx_module *module = sxr_module(program);
    for (uint32_t t = 0; t < module->tensor_count; t++) {
        const sx_module_tensor *tensor = &module->tensor[t];
        if (!is_interface(tensor)) {
            continue;
        }
        void *memory;
        if (tensor->place == SX_TENSOR_OUTPUT) {
            memory = sx_alloc(cx, (size_t)tensor->size);
        } else {
            sx_span name = sx_module_string(module, tensor->name);
            uint32_t other = sxr_find(first, (sx_module_place)tensor->place, name);
            SX_ASSERT(other != UINT32_MAX && sxr_module(first)->tensor[other].size == tensor->size);
            memory = sxr_memory(first, other);
        }
        if (memory == NULL) {
            return cx->error.code;
        }
        SX_TRY(sxr_bind(cx, program, t, memory, tensor->size));
    }
    return SX_OK;
}

/* The largest difference of any output of type f32, of the largest magnitude of that output; infinite where
 * one has a NaN. */
static double difference(const sxr_program *first, const sxr_program *program)
{
    const sx_module *module = sxr_module(program);
    double worst = 0;
    for (uint32_t t = 0; t < module->tensor_count; t++) {
        const sx_module_tensor *tensor = &module->tensor[t];
        if (tensor->place != SX_TENSOR_OUTPUT || tensor->dtype != SX_F32) {
            continue;
        }
        uint32_t other = sxr_find(first, SX_TENSOR_OUTPUT, sx_module_string(module, tensor->name));
        SX_ASSERT(other != UINT32_MAX);
        const float *x = sxr_memory(first, other), *y = sxr_memory(program, t);
        double most = 0, apart = 0;
        for (uint64_t i = 0; i < tensor->size / sizeof(float); i++) {
            double gap = fabs((double)x[i] - (double)y[i]);
            most = fabs((double)x[i]) > most ? fabs((double)x[i]) : most;
            apart = gap <= apart ? apart : gap;
            if (!isfinite(gap)) {
                return HUGE_VAL;
            }
        }
        worst = apart > worst * most ? apart / most : worst;
    }
    return worst;
}

/* ---- measuring ---- */

static double run_ns(sx_ctx *cx, sxr_program *program)
{
    double best = 1e18;
    for (uint32_t i = 0; i < RUNS_PER_ROUND; i++) {
        uint64_t start = sx_bench_now_ns();
        if (sxr_run(cx, program, NULL) != SX_OK) {
            return HUGE_VAL; /* sx_bench_put refuses it */
        }
        double elapsed = (double)(sx_bench_now_ns() - start);
        best = elapsed < best ? elapsed : best;
    }
    return best;
}

static sx_code open_variant(sx_ctx *cx, ablation *a, uint32_t index, sx_span module)
{
    measured *m = &a->variant[index];
    sxr_options open = {.threads = a->options->threads > 0 ? a->options->threads : THREADS};
    SX_TRY(sxr_open_bytes(cx, module, &open, &m->program));
    const sxr_program *first = a->variant[AS_IT_CAME].program;
    const sx_module *opened = sxr_module(m->program);
    sx_span text = {(const uint8_t *)opened->optimized, (size_t)opened->optimized_count};
    m->optimized = sx_key_of("ablation", &text, 1);
    m->same = index >= GROUPS &&
              memcmp(&m->optimized, &a->variant[ALL_RULES].optimized, sizeof(sx_key)) == 0;
    if (m->same) {
        return SX_OK;
    }
    SX_TRY(index == AS_IT_CAME ? bind_first(cx, a, m->program) : bind_like(cx, first, m->program));
    for (uint32_t i = 0; i < WARM_RUNS; i++) {
        SX_TRY(sxr_run(cx, m->program, NULL));
    }
    m->difference = difference(first, m->program);
    if (!(m->difference <= DIFFERENCE_MAX)) {
        return SX_FAIL(cx, SX_INTERNAL, "%s, %s: the outputs differ by %.3g of their largest",
                       a->name, variants[index].name, m->difference);
    }
    return SX_OK;
}

static sx_code prepare(sx_ctx *cx, ablation *a)
{
    for (uint32_t i = 0; i < SX_COUNT(variants); i++) {
        sx_buf module;
        sx_buf_init(&module, MODULE_BYTES_MAX);
        cx->fuel = SX_FUEL_DEFAULT;
        cx->stage_count = 0;
        sx_code code = compile(cx, a, &variants[i], &module);
        code = code == SX_OK ? open_variant(cx, a, i, sx_buf_span(&module)) : code;
        sx_buf_fini(&module);
        if (code != SX_OK) {
            return code;
        }
        a->variant[i].sample = calloc(a->options->rounds, sizeof(double));
        SX_ASSERT(a->variant[i].sample != NULL);
    }
    return SX_OK;
}

/* Without those that only load does. */
static uint32_t count_launches(const sx_module *module)
{
    uint32_t count = 0;
    for (uint64_t l = 0; l < module->launch_count; l++) {
        count += module->launch[l].prologue == 0;
    }
    return count;
}

static void put(const ablation *a, const char *what, const variant *v, double value,
                const char *unit, const double *peer)
{
    char metric[64];
    (void)snprintf(metric, sizeof(metric), "%s: %s", what, v->name);
    const char *name = peer != NULL ? variants[AS_IT_CAME].name : NULL;
    sx_bench_put(a->options, &(sx_bench_row){"ablation", a->name, metric, value, unit, name,
                                             peer != NULL ? *peer : 0});
}

static void put_rows(const ablation *a)
{
    double run_first = 0, model_first = 0;
    for (uint32_t i = 0; i < SX_COUNT(variants); i++) {
        const measured *m = &a->variant[i];
        if (m->same) {
            put(a, "the same program", &variants[i], 1, "", NULL);
            continue;
        }
        const sx_module *module = sxr_module(m->program);
        double run = sx_bench_median(m->sample, a->options->rounds) / 1e3;
        double model = module->info->cost_ns / 1e3;
        put(a, "run", &variants[i], run, "us", i == AS_IT_CAME ? NULL : &run_first);
        put(a, "model", &variants[i], model, "us", i == AS_IT_CAME ? NULL : &model_first);
        put(a, "launches", &variants[i], count_launches(module), "", NULL);
        put(a, "difference", &variants[i], m->difference, "", NULL);
        run_first = i == AS_IT_CAME ? run : run_first;
        model_first = i == AS_IT_CAME ? model : model_first;
    }
}

static sx_code measure(sx_ctx *cx, ablation *a)
{
    uint32_t count = SX_COUNT(variants);
    SX_TRY(sx_bench_network_text(cx, a->network, &a->text));
    SX_TRY(prepare(cx, a));
    for (uint32_t round = 0; round < a->options->rounds; round++) {
        for (uint32_t k = 0; k < count; k++) {
            measured *m = &a->variant[(k + round) % count];
            if (!m->same) {
                m->sample[round] = run_ns(cx, m->program);
            }
        }
    }
    put_rows(a);
    return SX_OK;
}

int sx_bench_ablation(const sx_bench_options *options)
{
    static const struct {
        const char *name, *network;
        int64_t batch;
    } cases[] = {{"mlp-batch64", "mlp", 64},
                 {"encoder-batch8", "encoder", 8},
                 {"cnn-batch8", "cnn", 8},
                 {"resnet50-batch1", "resnet50", 1},
                 {"gpt2_4_small-batch1", "gpt2_4_small", 1}};
    int status = 0;
    for (uint32_t i = 0; i < SX_COUNT(cases) && status == 0; i++) {
        if (!sx_bench_wants(options, cases[i].name) || sxr_cpu_machine() == NULL) {
            continue;
        }
        sx_ctx cx;
        sx_ctx_init(&cx, CX_BYTES);
        ablation a = {.options = options,
                      .name = cases[i].name,
                      .network = sx_bench_network_find(cases[i].network),
                      .batch = cases[i].batch,
                      .target = sxr_cpu_machine()->name};
        SX_ASSERT(a.network != NULL);
        sx_buf_init(&a.text, SX_TEXT_BYTES_MAX);
        sx_code code = measure(&cx, &a);
        if (code != SX_OK) {
            (void)fprintf(stderr, "symplex-bench: %s: %s\n", a.name, cx.error.text);
            status = sx_code_exit(code);
        }
        for (uint32_t v = 0; v < SX_COUNT(variants); v++) {
            sxr_close(a.variant[v].program);
            free(a.variant[v].sample);
        }
        sx_buf_fini(&a.text);
        sx_ctx_fini(&cx);
    }
    return status;
}
