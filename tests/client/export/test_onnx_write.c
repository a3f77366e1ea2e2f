/* Programs written as ONNX and read back by the importer: equal values in exact arithmetic for random
 * programs, for every committed model as it is and as level 1 leaves it; refusals. */
#include "tests/lib/sweep.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "client/export/onnx_write.h"
#include "core/optimize/optimize.h"
#include "tests/core/rules/values.h"
#include "tests/lib/gen_graph.h"

static sx_ctx cx;
static sx_buf file;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)3 << 30);
    sx_buf_init(&file, SX_ONNX_FILE_MAX);
}

static void teardown(void)
{
    sx_buf_fini(&file);
    sx_ctx_fini(&cx);
}

typedef struct {
    sx_graph *graph;
    sx_weights *weights;
} program;

/* What is in `file`, with the intervals of `like`; false where the importer says that it cannot. */
static bool read_back(const sx_graph *like, program *back)
{
    sx_onnx_interval interval[SX_SYMBOLS_MAX];
    for (uint32_t s = 0; s < like->symbol_count; s++) {
        interval[s] =
            (sx_onnx_interval){like->symbol[s].name, like->symbol[s].low, like->symbol[s].high};
    }
    sx_onnx_options options = {.interval = interval, .interval_count = like->symbol_count};
    sx_code code = sx_onnx_import(&cx, sx_buf_span(&file), &options, &back->graph, &back->weights);
    ck_assert_msg(code == SX_OK || code == SX_UNIMPLEMENTED, "%s", cx.error.text);
    if (code == SX_OK) {
        ck_sx_ok(&cx, sx_graph_check(&cx, back->graph));
    }
    sx_ctx_reset_error(&cx);
    return code == SX_OK;
}

/* The values that `from` has for the parameters, by name, or of the weights of the file. */
static void match_arguments(const sx_graph *from, const sx_tensor *argument, const program *to,
                            const sx_graph *bound, sx_eval_mode mode, sx_tensor *matched)
{
    uint32_t at = 0;
    for (uint32_t n = 0; n < bound->node_count; n++) {
        if (bound->node[n].op != SX_OP_PARAMETER) {
            continue;
        }
        sx_span name = sx_graph_attr(bound, &bound->node[n])->name;
        bool found = false;
        for (uint32_t k = 0, i = 0; k < from->node_count; k++) {
            if (from->node[k].op == SX_OP_PARAMETER) {
                if (sx_span_equal(sx_graph_attr(from, &from->node[k])->name, name)) {
                    matched[at] = argument[i];
                    found = true;
                }
                i++;
            }
        }
        const sx_weight *weight = sx_weights_find(to->weights, name);
        ck_assert(found || weight != NULL);
        if (!found) {
            ck_sx_ok(&cx, sx_tensor_unpack(&cx, &bound->node[n].type, mode, weight->bytes,
                                           &matched[at]));
        }
        at++;
    }
}

/* Greatest deviation of both programs on random arguments, symbols bound alike. */
static double differ(const sx_graph *graph, const program *back, const sx_binding *binding,
                     sx_eval_mode mode, uint64_t seed)
{
    sx_graph *one;
    sx_graph *other;
    sx_tensor *argument;
    uint32_t count;
    sx_rng rng = {seed};
    sx_binding used[SX_SYMBOLS_MAX];
    uint32_t used_count = 0;
    for (uint32_t s = 0; s < back->graph->symbol_count; s++) {
        for (uint32_t k = 0; k < graph->symbol_count; k++) {
            if (sx_span_equal(binding[k].name, back->graph->symbol[s].name)) {
                used[used_count++] = binding[k];
            }
        }
    }
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, binding, graph->symbol_count, &one));
    ck_sx_ok(&cx, sx_graph_bind(&cx, back->graph, used, used_count, &other));
    ck_sx_ok(&cx, random_arguments(&cx, &rng, one, mode, FILL_PLAIN, &argument, &count));
    sx_tensor *matched = SX_NEW_ARRAY(&cx, sx_tensor, (size_t)other->node_count + 1);
    ck_assert_ptr_nonnull(matched);
    match_arguments(one, argument, back, other, mode, matched);
    uint32_t other_count = 0;
    for (uint32_t n = 0; n < other->node_count; n++) {
        other_count += other->node[n].op == SX_OP_PARAMETER ? 1 : 0;
    }
    sx_tensor result[2][8];
    ck_assert_uint_le(graph->output_count, 8);
    ck_assert_uint_eq(graph->output_count, back->graph->output_count);
    ck_sx_ok(&cx, sx_graph_eval(&cx, one, mode, argument, count, result[0], one->output_count));
    ck_sx_ok(&cx,
             sx_graph_eval(&cx, other, mode, matched, other_count, result[1], one->output_count));
    double worst = 0;
    for (uint32_t i = 0; i < graph->output_count; i++) {
        ck_assert(sx_span_equal(graph->output[i].name, back->graph->output[i].name));
        ck_assert(sx_type_equal(&result[0][i].type, &result[1][i].type));
        double gap = deviation(&result[0][i], &result[1][i], mode);
        worst = gap > worst ? gap : worst;
    }
    return worst;
}

/* ---- random programs ---- */

#define PROGRAMS 300

static uint32_t written[SX_OP_COUNT];

static void print_both(const sx_graph *one, const sx_graph *other)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    ck_sx_ok(&cx, sx_graph_print(&cx, one, &text));
    ck_sx_ok(&cx, sx_graph_print(&cx, other, &text));
    printf("%.*s", (int)text.len, (const char *)text.ptr);
    (void)fflush(stdout);
    sx_buf_fini(&text);
}

START_TEST(test_random_programs)
{
    uint64_t seed = sx_test_seed();
    sx_rng rng = {seed};
    uint32_t count = 0;
    for (uint32_t i = 0; i < PROGRAMS; i++) {
        sx_gen_options options = sx_gen_default();
        options.node_count = 3 + i % 14;
        options.symbols = i % 3;
        options.elements_max = 512;
        options.dtypes = 1u << SX_F32 | 1u << SX_I64 | (i % 4 == 0 ? 1u << SX_F64 : 0);
        sx_bits_drop(&options.ops, SX_OP_FUSED);
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        sx_binding binding[SX_SYMBOLS_MAX];
        (void)sx_gen_binding(&rng, graph, binding);
        sx_buf_clear(&file);
        sx_code code = sx_onnx_write(&cx, graph, NULL, &file);
        if (code != SX_OK) {
            ck_assert_msg(code == SX_UNIMPLEMENTED, "program %u: %s", i, cx.error.text);
            sx_ctx_reset_error(&cx);
            continue;
        }
        program back;
        if (!read_back(graph, &back)) {
            continue;
        }
        double gap = differ(graph, &back, binding, SX_EVAL_MODP, seed + i);
        if (gap != 0) { /* known integers are ordered by the importer, not as residues */
            gap = differ(graph, &back, binding, SX_EVAL_F64, seed + i);
            gap = gap <= 1e-9 ? 0 : gap;
        }
        if (gap != 0) {
            print_both(graph, back.graph);
        }
        ck_assert_msg(gap == 0, "program %u deviates by %g", i, gap);
        for (uint32_t n = 0; n < graph->node_count; n++) {
            written[graph->node[n].op]++;
        }
        count++;
    }
    printf("%u of %u programs written and read\n", count, PROGRAMS);
    ck_assert_uint_ge(count, PROGRAMS / 4);
    static const sx_op often[] = {SX_OP_ADD,     SX_OP_BROADCAST,   SX_OP_DOT_GENERAL,
                                  SX_OP_RESHAPE, SX_OP_CONCATENATE, SX_OP_REDUCE,
                                  SX_OP_SLICE,   SX_OP_SELECT,      SX_OP_GATHER};
    for (uint32_t i = 0; i < SX_COUNT(often); i++) {
        ck_assert_msg(written[often[i]] > 0, "%s was never written", sx_op_info_of(often[i])->name);
    }
}
END_TEST

/* ---- models ---- */

static const char *const models[] = {"mlp", "encoder", "cnn"};

static void check_model(const char *name, bool better)
{
    char path[512];
    program in;
    const sx_device *device;
    sx_graph *out;
    (void)snprintf(path, sizeof(path), "%s/tests/models/%s.onnx", SX_SOURCE_DIR, name);
    sx_onnx_file *model = sx_onnx_file_open(&cx, path);
    ck_assert_ptr_nonnull(model);
    ck_sx_ok(&cx, sx_onnx_file_import(&cx, model, NULL, &in.graph, &in.weights));
    out = in.graph;
    if (better) {
        sx_optimize_options options = sx_optimize_defaults();
        sx_optimize_report *report = SX_NEW(&cx, sx_optimize_report);
        ck_assert_ptr_nonnull(report);
        options.unfused = true;
        ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
        ck_sx_ok(&cx, sx_optimize(&cx, in.graph, device, &options, &out, report));
    }
    ck_sx_ok(&cx, sx_onnx_write(&cx, out, in.weights, &file));
    program back;
    ck_assert(read_back(in.graph, &back));
    sx_binding batch = {SX_SPAN_LITERAL("batch"), 1};
    for (uint32_t i = 0; i < in.weights->count; i++) {
        const sx_weight *weight = &in.weights->weight[i];
        const sx_weight *same = sx_weights_find(back.weights, weight->name);
        ck_assert_ptr_nonnull(same);
        ck_assert(sx_span_equal(weight->bytes, same->bytes));
    }
    double gap = differ(in.graph, &back, &batch, SX_EVAL_F64, sx_test_seed());
    ck_assert_msg(gap <= 1e-6, "%s deviates by %g", name, gap);
    sx_onnx_file_close(model);
}

START_TEST(test_models)
{
    check_model(models[_i], false);
}
END_TEST

START_TEST(test_better_models)
{
    check_model(models[_i], true);
}
END_TEST

/* ---- refusals ---- */

START_TEST(test_refusals)
{
    static const struct {
        const char *text, *why;
    } refused[] = {
        {"sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : f32[4]\n"
         "%0 = constant {data = 0} : f32[]\n"
         "%1 = pad(%x, %0) {low = [0], high = [0], interior = [1]} : f32[7]\n return %1 as \"y\" }",
         "node 2 (pad) as ONNX: axis 0 has 1 elements between neighbours"},
        {"sx 1 graph \"g\" (n in [1, 8]) { %x = parameter {name = \"x\", weight = 0} : f32[2*n]\n"
         "%1 = negate(%x) : f32[2*n]\n return %1 as \"y\" }",
         "axis 0 has 2 times an extent with a name"},
        {"sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : i64[4]\n"
         "%1 = divide(%x, %x) : i64[4]\n return %1 as \"y\" }",
         "i64 by what may be 0 or -1"},
        {"sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : u8[4]\n"
         "%1 = shift_right_arithmetic(%x, %x) : u8[4]\n return %1 as \"y\" }",
         "no operator of opset 20 for u8"},
        {"sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : f32[4]\n"
         "%1 = negate(%x) : f32[4]\n return %1 as \"x\" }",
         "input and output are both called \"x\""},
        {"sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : bf16[4]\n"
         "%1 = sine(%x) : bf16[4]\n return %1 as \"y\" }",
         "(sine) as ONNX: no operator of opset 20 for bf16"},
        {"sx 1 graph \"g\" { %x = parameter {name = \"x\", weight = 0} : f32[4]\n"
         "%1 = fused(%x) {type = f32[4], body = {args = [[1]], code = [arg 0]}} : f32[4]\n"
         "return %1 as \"y\" }",
         "a kernel is no operator"},
    };
    for (uint32_t i = 0; i < SX_COUNT(refused); i++) {
        sx_graph *graph;
        ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(refused[i].text), &graph));
        ck_sx_fails(&cx, sx_onnx_write(&cx, graph, NULL, &file), SX_UNIMPLEMENTED, refused[i].why);
        ck_assert_uint_eq(file.len, 0);
    }
}
END_TEST

static sx_code write_once(sx_ctx *c, void *self)
{
    sx_graph *graph;
    sx_buf out;
    SX_TRY(sx_graph_parse(c, *(const sx_span *)self, &graph));
    sx_buf_init(&out, SX_ONNX_FILE_MAX);
    sx_code code = sx_onnx_write(c, graph, NULL, &out);
    ck_assert(code != SX_OK || out.len > 0);
    sx_buf_fini(&out);
    return code;
}

/* Memory and room for the file end at every place: a code, and no file that is cut short. */
START_TEST(test_out_of_memory)
{
    sx_rng rng = {sx_test_seed()};
    sx_gen_options options = sx_gen_default();
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 20);
    sx_graph *graph;
    sx_code code;
    do { /* one that ONNX can say */
        sx_buf_clear(&file);
        sx_ctx_reset_error(&cx);
        graph = sx_gen_graph(&cx, &rng, &options);
        code = sx_onnx_write(&cx, graph, NULL, &file);
        ck_assert(code == SX_OK || code == SX_UNIMPLEMENTED);
    } while (code != SX_OK);
    ck_sx_ok(&cx, sx_graph_print(&cx, graph, &text));
    sx_span span = sx_buf_span(&text);
    (void)sx_test_oom(
        &(sx_test_sweep){.name = "write", .work = write_once, .self = &span, .fails_min = 20});
    for (size_t limit = 0; limit < file.len; limit += 1 + file.len / 97) {
        sx_buf out;
        sx_buf_init(&out, limit);
        ck_sx_fails(&cx, sx_onnx_write(&cx, graph, NULL, &out), SX_LIMIT, "more than");
        sx_buf_fini(&out);
    }
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client.export.onnx_write");
    TCase *cases = tcase_create("onnx_write");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_random_programs);
    tcase_add_loop_test(cases, test_models, 0, (int)SX_COUNT(models));
    tcase_add_loop_test(cases, test_better_models, 0, (int)SX_COUNT(models));
    tcase_add_test(cases, test_refusals);
    tcase_add_test(cases, test_out_of_memory);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
