/* Random programs: compiled for every target and run, against the interpreter; and every kernel of them as C
 * by the system's compiler, against its machine code, bit for bit.
 *
 * The reference is computed twice, with and without rounding to the element type: where the two differ an element is as
 * uncertain as their difference, and where they agree on whole numbers the result must be equal. */
#include "core/eval/eval.h"
#include "tests/core/loop/harness.h"

#include "client/verify/verify.h"
#include "core/cost/cost.h"
#include "core/ir/num.h"
#include "core/poly/poly.h"
#include "core/search/search.h"
#include "core/x64/codegen.h"
#include "tests/lib/compiled.h"
#include "tests/lib/gen_graph.h"

#define BYTES_MAX ((size_t)1 << 26)
#define GRAPHS 120
static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};

/* Operations that no small change of an operand makes jump; sine and cosine are NaN beyond 2^20 and are left
 * to their own tests. */
static const sx_op smooth[] = {SX_OP_NEGATE,        SX_OP_ABS,
                               SX_OP_EXP,           SX_OP_LOG,
                               SX_OP_SQRT,          SX_OP_RSQRT,
                               SX_OP_TANH,          SX_OP_ERF,
                               SX_OP_LOGISTIC,      SX_OP_RELU,
                               SX_OP_GELU,          SX_OP_GELU_TANH,
                               SX_OP_SILU,          SX_OP_ADD,
                               SX_OP_SUBTRACT,      SX_OP_MULTIPLY,
                               SX_OP_DIVIDE,        SX_OP_MAXIMUM,
                               SX_OP_MINIMUM,       SX_OP_SELECT,
                               SX_OP_RESHAPE,       SX_OP_TRANSPOSE,
                               SX_OP_BROADCAST,     SX_OP_SLICE,
                               SX_OP_REDUCE,        SX_OP_DOT_GENERAL,
                               SX_OP_SOFTMAX,       SX_OP_LOG_SOFTMAX,
                               SX_OP_LAYER_NORM,    SX_OP_RMS_NORM,
                               SX_OP_BATCH_NORM,    SX_OP_ATTENTION,
                               SX_OP_PAD,           SX_OP_REVERSE,
                               SX_OP_REDUCE_WINDOW, SX_OP_CONVOLUTION,
                               SX_OP_DYNAMIC_SLICE, SX_OP_DYNAMIC_UPDATE_SLICE};
/* Operations that are exact on small whole numbers. */
static const sx_op exact[] = {SX_OP_NEGATE,        SX_OP_ABS,           SX_OP_FLOOR,
                              SX_OP_CEIL,          SX_OP_ROUND,         SX_OP_SIGN,
                              SX_OP_NOT,           SX_OP_RELU,          SX_OP_ADD,
                              SX_OP_SUBTRACT,      SX_OP_MULTIPLY,      SX_OP_MAXIMUM,
                              SX_OP_MINIMUM,       SX_OP_AND,           SX_OP_OR,
                              SX_OP_XOR,           SX_OP_COMPARE,       SX_OP_SELECT,
                              SX_OP_CONVERT,       SX_OP_RESHAPE,       SX_OP_TRANSPOSE,
                              SX_OP_BROADCAST,     SX_OP_SLICE,         SX_OP_REDUCE,
                              SX_OP_DOT_GENERAL,   SX_OP_IOTA,          SX_OP_CONCATENATE,
                              SX_OP_GATHER,        SX_OP_PAD,           SX_OP_REVERSE,
                              SX_OP_REDUCE_WINDOW, SX_OP_CONVOLUTION,   SX_OP_SCATTER,
                              SX_OP_SORT,          SX_OP_DYNAMIC_SLICE, SX_OP_DYNAMIC_UPDATE_SLICE};

typedef struct {
    uint32_t compiled, refused, kernels, elements, uncertain;
} tally;

static sx_graph *generate(sx_ctx *cx, uint64_t seed, bool whole)
{
    sx_rng rng = {seed};
    sx_gen_options options = sx_gen_default();
    options.symbols = 0;
    options.crops = true;
    options.empties = seed % 4 == 3;
    options.rank_max = 3;
    options.extent_max = seed % 3 == 0 ? 40 : 9;
    options.elements_max = 3000;
    options.node_count = 2 + (uint32_t)(seed % 12);
    options.dtypes = 1u << SX_F32;
    options.dtypes |= whole ? 1u << SX_BOOL | 1u << SX_I32 : 0;
    options.ops = (sx_bits){0};
    for (uint32_t i = 0; i < (whole ? SX_COUNT(exact) : SX_COUNT(smooth)); i++) {
        sx_bits_add(&options.ops, whole ? exact[i] : smooth[i]);
    }
    return sx_gen_graph(cx, &rng, &options);
}

/* ---- against the interpreter ---- */

typedef struct {
    double f64, typed;
} pair;

static pair element_of(const sx_tensor *f64, const sx_tensor *typed, int64_t i)
{
    if (sx_dtype_class_of(f64->type.dtype) == SX_CLASS_FLOAT) {
        return (pair){((const double *)f64->data)[i], ((const double *)typed->data)[i]};
    }
    return (pair){(double)((const int64_t *)f64->data)[i],
                  (double)((const int64_t *)typed->data)[i]};
}

static double value_of(const sx_type *type, const uint8_t *memory, int64_t i)
{
    uint64_t bits = sx_num_load(type->dtype, memory, (size_t)i);
    return sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT
               ? sx_num_decode(type->dtype, bits)
               : (double)sx_num_int_decode(type->dtype, bits);
}

static void compare_output(const sx_tensor *f64, const sx_tensor *typed, const uint8_t *memory,
                           const char *label, tally *t)
{
    int64_t count = sx_tensor_elements(&f64->type);
    double scale = 0;
    for (int64_t i = 0; i < count; i++) {
        double v = fabs(element_of(f64, typed, i).f64);
        scale = isfinite(v) && v > scale ? v : scale;
    }
    for (int64_t i = 0; i < count; i++) {
        pair want = element_of(f64, typed, i);
        double got = value_of(&f64->type, memory, i);
        bool same = want.f64 == want.typed || (isnan(want.f64) && isnan(want.typed));
        double spread = fabs(want.f64 - want.typed);
        t->elements++;
        if (!isfinite(want.f64) || !isfinite(want.typed)) {
            bool equal = got == want.f64 || (isnan(got) && isnan(want.f64));
            ck_assert_msg(equal || !same || fabs(want.f64) > 3e38,
                          "%s: element %lld is %.9g, the interpreter has %.9g", label, (long long)i,
                          got, want.f64);
            t->uncertain += !equal;
            continue;
        }
        double allowed = 2e-5 * scale + 64 * spread;
        ck_assert_msg(fabs(got - want.f64) <= allowed || fabs(want.f64) > 3e38,
                      "%s: element %lld is %.9g, the interpreter has %.9g (typed %.9g)", label,
                      (long long)i, got, want.f64, want.typed);
        t->uncertain += spread > 1e-3 * scale;
    }
}

static void check_program(sx_ctx *cx, const sx_graph *graph, const sxr_program *program,
                          const char *label, tally *t)
{
    sx_tensor *f64 = SX_NEW_ARRAY(cx, sx_tensor, graph->node_count + 1);
    sx_tensor *typed = SX_NEW_ARRAY(cx, sx_tensor, graph->node_count + 1);
    sx_tensor want[2][8];
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        if (node->op != SX_OP_PARAMETER) {
            continue;
        }
        const sx_attr *attr = sx_graph_attr(graph, node);
        uint32_t index =
            sxr_find(program, attr->weight ? SX_TENSOR_WEIGHT : SX_TENSOR_INPUT, attr->name);
        ck_assert_uint_ne(index, UINT32_MAX);
        size_t size = (size_t)(sx_tensor_elements(&node->type) * sx_dtype_bytes(node->type.dtype));
        sx_span raw = {sxr_memory(program, index), size};
        ck_sx_ok(cx, sx_tensor_unpack(cx, &node->type, SX_EVAL_F64, raw, &f64[count]));
        ck_sx_ok(cx, sx_tensor_unpack(cx, &node->type, SX_EVAL_TYPED, raw, &typed[count++]));
    }
    ck_assert_uint_le(graph->output_count, 8);
    ck_sx_ok(cx, sx_graph_eval(cx, graph, SX_EVAL_F64, f64, count, want[0], graph->output_count));
    ck_sx_ok(cx,
             sx_graph_eval(cx, graph, SX_EVAL_TYPED, typed, count, want[1], graph->output_count));
    for (uint32_t k = 0; k < graph->output_count; k++) {
        uint32_t index = sxr_find(program, SX_TENSOR_OUTPUT, graph->output[k].name);
        ck_assert_uint_ne(index, UINT32_MAX);
        compare_output(&want[0][k], &want[1][k], sxr_memory(program, index), label, t);
    }
}

static char *text_of(sx_ctx *cx, const sx_graph *graph)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    ck_sx_ok(cx, sx_graph_print(cx, graph, &text));
    char *copy = sx_alloc_text(cx, sx_buf_span(&text));
    ck_assert_ptr_nonnull(copy);
    sx_buf_fini(&text);
    return copy;
}

/* Compiles and runs a graph; false if it is refused. */
static bool check_graph(uint64_t seed, bool whole, const char *target, tally *t)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_graph *graph = generate(&cx, seed, whole);
    char *text = text_of(&cx, graph);
    sx_test_request request = {.text = text, .target = target};
    sx_buf module;
    sx_buf_init(&module, BYTES_MAX);
    char label[64];
    (void)snprintf(label, sizeof(label), "%s graph %llu, %s", whole ? "exact" : "smooth",
                   (unsigned long long)seed, target);
    sx_code code = sx_test_compile(&cx, &request, &module);
    ck_assert_msg(code == SX_OK || code == SX_UNIMPLEMENTED, "%s: %s\n%s", label, cx.error.text,
                  text);
    if (code == SX_OK) {
        sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 1 + (uint32_t)(seed & 1),
                                            whole ? SX_FILL_EXACT : SX_FILL_SMOOTH);
        ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
        check_program(&cx, graph, program, label, t);
        t->kernels += (uint32_t)sxr_module(program)->kernel_count;
        sxr_close(program);
    } else {
        printf("%s: refused: %s\n", label, cx.error.text);
    }
    *(code == SX_OK ? &t->compiled : &t->refused) += 1;
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
    return code == SX_OK;
}

/* Seeds are fixed, so that a run is a verdict; SX_SEED moves them to look for more. */
static uint64_t first_seed(void)
{
    const char *text = getenv("SX_SEED");
    return text != NULL ? strtoull(text, NULL, 10) : 1;
}

START_TEST(test_programs)
{
    bool whole = _i / 2 != 0;
    tally t = {0};
    if (!sx_test_can_run(targets[_i % 2])) {
        return;
    }
    for (uint64_t g = 0; g < GRAPHS; g++) {
        (void)check_graph(first_seed() + g, whole, targets[_i % 2], &t);
    }
    printf("%s, %s operations: %u programs compiled to %u kernels, %u refused; %u elements, %u "
           "uncertain\n",
           targets[_i % 2], whole ? "exact" : "smooth", t.compiled, t.kernels, t.refused,
           t.elements, t.uncertain);
    ck_assert_uint_ge(t.compiled, whole ? GRAPHS * 3 / 4 : GRAPHS * 9 / 10);
    ck_assert_uint_lt(t.uncertain, t.elements / 10);
}
END_TEST

/* ---- every kernel as C, against its machine code ---- */

#define CASES_MAX 400
typedef struct {
    sx_kernel *kernel;
    void *buffer[SX_LOOP_BUFFERS_MAX];
    uint8_t *machine[SX_LOOP_BUFFERS_MAX]; /* results of the machine code */
} one_case;
typedef struct {
    sx_ctx cx; /* owns kernels and buffers */
    harness h;
    one_case list[CASES_MAX];
    uint32_t count;
} collection;

/* The schedule that core/kernels.c took: the first that is legal and fits the registers. */
static const sx_schedule *chosen(const sx_module *module, const sx_module_kernel *kernel,
                                 const sx_search_result *search)
{
    sx_span want = sx_module_string(module, kernel->plan);
    for (uint32_t c = 0; c < search->best_count; c++) {
        sx_buf text;
        sx_buf_init(&text, 1024);
        sx_schedule_print(&search->best[c].schedule, &text);
        bool same = sx_span_equal(sx_buf_span(&text), want);
        sx_buf_fini(&text);
        if (same) {
            return &search->best[c].schedule;
        }
    }
    return NULL;
}

static void add_case(collection *all, sx_kernel *kernel, void *const *buffer, uint32_t count)
{
    if (all->count == CASES_MAX) {
        return;
    }
    one_case *c = &all->list[all->count];
    *c = (one_case){.kernel = kernel};
    (void)snprintf(kernel->name, sizeof(kernel->name), "k%u", all->count);
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        size_t size = (size_t)kernel->buffer[k].size;
        c->buffer[k] = sx_alloc(&all->cx, size + 64);
        ck_assert_ptr_nonnull(c->buffer[k]);
        if (k < count && kernel->buffer[k].role == SX_BUFFER_IN) {
            memcpy(c->buffer[k], buffer[k], size);
        } else if (k < count) {
            c->machine[k] = sx_alloc(&all->cx, size);
            memcpy(c->machine[k], buffer[k], size);
        }
    }
    all->count++;
    harness_add(&all->h, &all->cx, kernel);
}

/* Runs one launch on memory of its own and adds its kernel, lowered once more, with inputs and results. */
static void collect_launch(collection *all, sxr_program *program, const sx_graph *graph,
                           uint32_t index, void **memory)
{
    const sx_module *module = sxr_module(program);
    const sx_module_launch *launch = &module->launch[index];
    const sx_module_kernel *record = &module->kernel[launch->kernel];
    void *buffer[SX_LOOP_BUFFERS_MAX];
    ck_assert_uint_le(launch->arg_count, SX_COUNT(buffer));
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        buffer[k] = memory[module->arg[launch->arg_first + k]];
    }
    sxr_run_launch(program, index, buffer);
    if (record->node >= graph->node_count || record->kind == SX_MODULE_PACK ||
        graph->node[record->node].op != SX_OP_FUSED || record->result_count > 1) {
        return; /* several results: core.test_joint */
    }
    const sx_node *node = &graph->node[record->node];
    sx_type type[SX_INPUTS_MAX];
    for (uint32_t k = 0; k < node->input_count; k++) {
        type[k] = graph->node[sx_graph_input(graph, node, k).i].type;
    }
    const sx_attr *fused = sx_graph_attr(graph, node);
    sx_analysis *a = SX_NEW(&all->cx, sx_analysis);
    ck_assert_ptr_nonnull(a);
    ck_sx_ok(&all->cx, sx_analysis_make(&all->cx, fused, type, node->input_count, a));
    const sx_schedule *plan = NULL;
    sx_search_result search;
    const sx_device *device;
    ck_sx_ok(&all->cx,
             sx_device_find(&all->cx, sx_module_string(module, module->info->target), &device));
    for (uint32_t constant = 0; constant < 2 && plan == NULL; constant++) {
        ck_sx_ok(&all->cx,
                 sx_search_kernel(&all->cx, a, device, constant != 0, SX_SEARCH_KEEP, &search));
        plan = chosen(module, record, &search);
    }
    sx_span text = sx_module_string(module, record->plan);
    ck_assert_msg(plan != NULL, "no plan %.*s", (int)text.len, (const char *)text.ptr);
    sx_kernel *kernel;
    const sx_target *target = sx_target_find(NULL, device->name);
    ck_assert_ptr_nonnull(target);
    ck_sx_ok(&all->cx, sx_lower_fused(&all->cx, &target->vectors, "k", a, plan, &kernel));
    ck_assert_uint_eq(kernel->numerics, record->numerics);
    add_case(all, kernel, buffer, launch->arg_count);
}

/* All launches of a program, each tensor with memory of its own, so that no reuse of memory can hide anything. */
static void collect_program(collection *all, sxr_program *program)
{
    const sx_module *module = sxr_module(program);
    sx_graph *graph;
    sx_span text = {(const uint8_t *)module->optimized, (size_t)module->optimized_count};
    ck_sx_ok(&all->cx, sx_graph_parse(&all->cx, text, &graph));
    void **memory = SX_NEW_ARRAY(&all->cx, void *, (size_t)module->tensor_count);
    ck_assert_ptr_nonnull(memory);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        sx_module_place place = (sx_module_place)module->tensor[i].place;
        bool given =
            place == SX_TENSOR_INPUT || place == SX_TENSOR_WEIGHT || place == SX_TENSOR_CONSTANT;
        memory[i] = given ? sxr_memory(program, i)
                          : sx_alloc(&all->cx, (size_t)module->tensor[i].size + 64);
        ck_assert_ptr_nonnull(memory[i]);
    }
    for (uint32_t phase = 2; phase-- > 0;) {
        for (uint32_t i = 0; i < module->launch_count; i++) {
            if (module->launch[i].prologue == phase) {
                collect_launch(all, program, graph, i, memory);
            }
        }
    }
    ck_sx_ok(&all->cx, sxr_run(&all->cx, program, NULL));
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == SX_TENSOR_OUTPUT) {
            ck_assert_msg(
                memcmp(sxr_memory(program, i), memory[i], (size_t)module->tensor[i].size) == 0,
                "output %u: other bits when memory is reused", i);
        }
    }
}

static void compare_case(const collection *all, uint32_t index)
{
    const one_case *c = &all->list[index];
    harness_run(&all->h, c->kernel, c->buffer);
    for (uint32_t k = 0; k < c->kernel->buffer_count; k++) {
        size_t size = (size_t)c->kernel->buffer[k].size;
        for (size_t i = 0; c->machine[k] != NULL && i < size; i += 4) {
            bool word = size % 4 == 0;
            bool same = word ? harness_same((uint8_t *)c->buffer[k] + i, c->machine[k] + i)
                             : memcmp((uint8_t *)c->buffer[k] + i, c->machine[k] + i,
                                      size - i < 4 ? size - i : 4) == 0;
            ck_assert_msg(same, "kernel %u, buffer %u, byte %zu: C and machine code differ", index,
                          k, i);
        }
    }
}

#define GRAPHS_IN_C 30
START_TEST(test_kernels_as_c)
{
    bool whole = _i / 2 != 0;
    static collection all;
    if (!sx_test_can_run(targets[_i % 2])) {
        return;
    }
    sx_ctx_init(&all.cx, (size_t)2 << 30);
    harness_init(&all.h);
    for (uint64_t g = 0; g < GRAPHS_IN_C; g++) {
        sx_test_request request = {.target = targets[_i % 2]};
        request.text = text_of(&all.cx, generate(&all.cx, first_seed() + g, whole));
        sx_buf module;
        sx_buf_init(&module, BYTES_MAX);
        all.cx.stage_count = 0; /* one context for many requests */
        sx_code code = sx_test_compile(&all.cx, &request, &module);
        if (code == SX_OK) {
            sxr_program *program = sx_test_open(&all.cx, sx_buf_span(&module), 1,
                                                whole ? SX_FILL_EXACT : SX_FILL_SMOOTH);
            collect_program(&all, program);
            sxr_close(program);
        }
        sx_ctx_reset_error(&all.cx);
        sx_buf_fini(&module);
    }
    harness_build(&all.h, "-O2");
    for (uint32_t i = 0; i < all.count; i++) {
        compare_case(&all, i);
    }
    printf("%s, %s operations: %u kernels as C give the bits of the machine code\n",
           targets[_i % 2], whole ? "exact" : "smooth", all.count);
    ck_assert_uint_ge(all.count, 20);
    harness_fini(&all.h);
    sx_ctx_fini(&all.cx);
}
END_TEST

/* Verification must not refuse a right module: programs whose results are all rounding, or leave the range of
 * their type. */
START_TEST(test_verified)
{
    bool whole = _i != 0;
    uint32_t verified = 0;
    for (uint64_t g = 0; g < GRAPHS && sx_test_can_run(targets[0]); g++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        char *text = text_of(&cx, generate(&cx, first_seed() + 500 + g, whole));
        sx_core_request request = {.ir = sx_span_of(text), .target = sx_span_of(targets[0])};
        sxr_verify_options options = {.seed = 1 + g, .program_flops = 1e9};
        sx_buf module;
        sx_buf_init(&module, BYTES_MAX);
        sx_code code = sxr_compile_verified(&cx, &request, &options, &module);
        ck_assert_msg(code == SX_OK || code == SX_UNIMPLEMENTED, "graph %llu: %s\n%s",
                      (unsigned long long)(first_seed() + 500 + g), cx.error.text, text);
        verified += code == SX_OK;
        sx_buf_fini(&module);
        sx_ctx_fini(&cx);
    }
    ck_assert(verified >= GRAPHS * 3 / 4 || !sx_test_can_run(targets[0]));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.random");
    TCase *cases = tcase_create("random");
    tcase_set_timeout(cases, 400); /* two of them wait for the system compiler */
    tcase_add_loop_test(cases, test_programs, 0, 4);
    tcase_add_loop_test(cases, test_kernels_as_c, 0, 4);
    tcase_add_loop_test(cases, test_verified, 0, 2);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
