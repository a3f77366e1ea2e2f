#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/import/import.h"
#include "client/import/onnx_wire.h"
#include "core/eval/eval.h"
#include "core/proof/certificate.h"
#include "core/optimize/optimize.h"
#include "tests/lib/test.h"

/* The test data that comes with ONNX (package libonnx-testdata): each case is a model with inputs and expected
 * outputs. Every case is imported and run by the interpreter in typed mode. Refused (SX_UNIMPLEMENTED) is
 * counted by itself and never as passed; everything else that is not a correct result has failed. Tolerances
 * are those of ONNX's own runner. SX_ONNX_CASE=name runs one case and prints what happened; SX_ONNX_VERBOSE=1
 * prints the reason of each refusal; SX_ONNX_DATA=folder takes other data of the same layout, without floors.
 * With SX_ONNX_PROVE=1 every case that passed is optimised as well, to operations and to kernels: there must
 * be a certificate of either, and the checker must accept it. */

#define DATA "/usr/share/libonnx-testdata/data"
#define RELATIVE 1e-3
#define ABSOLUTE 1e-7
#define TENSORS_MAX 64

typedef enum { PASSED, PASSED_FIXED, REFUSED, FAILED, OUTCOME_COUNT } outcome;

typedef struct {
    sx_ctx *cx;
    char folder[512];
    sx_buf model;
    sx_buf file[2 * TENSORS_MAX];
    uint32_t file_count;
    sx_onnx_tensor input[TENSORS_MAX];
    uint32_t input_count;
    sx_onnx_tensor output[TENSORS_MAX];
    uint32_t output_count;
    char why[SX_ERROR_TEXT_MAX + 64];
} onnx_case;

static const char *data_folder(void)
{
    const char *other = getenv("SX_ONNX_DATA");
    return other != NULL ? other : DATA;
}

static bool exists(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0;
}

/* NAME_0.pb, NAME_1.pb, ... of the first data set; false where one is no tensor (a sequence, an optional). */
static bool read_tensors(onnx_case *c, const char *name, sx_onnx_tensor *tensor, uint32_t *count)
{
    for (*count = 0; *count < TENSORS_MAX; ++*count) {
        char path[640];
        (void)snprintf(path, sizeof(path), "%s/test_data_set_0/%s_%u.pb", c->folder, name, *count);
        if (!exists(path)) {
            return true;
        }
        sx_buf *buf = &c->file[c->file_count++];
        sx_buf_init(buf, 64 << 20);
        sx_test_read_file(path, buf);
        if (sx_onnx_read_tensor(c->cx, sx_buf_span(buf), &tensor[*count]) != SX_OK) {
            return false;
        }
    }
    return true;
}

static bool element_size(int64_t data_type, sx_dtype *dtype)
{
    switch (data_type) {
    case SX_ONNX_FLOAT: *dtype = SX_F32; return true;
    case SX_ONNX_DOUBLE: *dtype = SX_F64; return true;
    case SX_ONNX_FLOAT16: *dtype = SX_F16; return true;
    case SX_ONNX_BFLOAT16: *dtype = SX_BF16; return true;
    case SX_ONNX_FLOAT8E4M3FN: *dtype = SX_F8E4M3; return true;
    case SX_ONNX_FLOAT8E5M2: *dtype = SX_F8E5M2; return true;
    case SX_ONNX_INT64: *dtype = SX_I64; return true;
    case SX_ONNX_INT32: *dtype = SX_I32; return true;
    case SX_ONNX_INT16: *dtype = SX_I16; return true;
    case SX_ONNX_INT8: *dtype = SX_I8; return true;
    case SX_ONNX_UINT8: *dtype = SX_U8; return true;
    case SX_ONNX_BOOL: *dtype = SX_BOOL; return true;
    default: return false;
    }
}

/* A tensor of the test data in the interpreter's form. The data has bfloat16 as uint16 with the same bits. */
static bool load_tensor(onnx_case *c, const sx_onnx_tensor *tensor, sx_dtype wanted, sx_tensor *out)
{
    sx_type type = {.rank = tensor->rank};
    sx_span bytes;
    if (wanted == SX_BF16 && tensor->data_type == SX_ONNX_UINT16) {
        type.dtype = SX_BF16;
    } else if (!element_size(tensor->data_type, &type.dtype)) {
        (void)snprintf(c->why, sizeof(c->why), "test data of type %s",
                       sx_onnx_dtype_name(tensor->data_type));
        return false;
    }
    for (uint32_t k = 0; k < tensor->rank; k++) {
        type.dim[k] = sx_dim_of(tensor->dim[k]);
    }
    return sx_onnx_tensor_bytes(c->cx, tensor, sx_dtype_bytes(type.dtype), &bytes) == SX_OK &&
           sx_tensor_unpack(c->cx, &type, SX_EVAL_TYPED, bytes, out) == SX_OK;
}

/* The data cuts bfloat16 off where conversion rounds to nearest: a unit in the last place is granted. */
static bool same_element(const sx_tensor *got, const sx_tensor *wanted, int64_t k)
{
    double relative = got->type.dtype == SX_BF16 ? 0.0078125 : RELATIVE;
    if (sx_dtype_class_of(got->type.dtype) != SX_CLASS_FLOAT) {
        return ((const int64_t *)got->data)[k] == ((const int64_t *)wanted->data)[k];
    }
    double a = ((const double *)got->data)[k];
    double b = ((const double *)wanted->data)[k];
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= ABSOLUTE + relative * fabs(b);
}

static bool same_tensor(onnx_case *c, const sx_tensor *got, const sx_tensor *wanted, uint32_t index)
{
    if (!sx_type_equal(&got->type, &wanted->type)) {
        (void)snprintf(c->why, sizeof(c->why), "output %u has another type", index);
        return false;
    }
    int64_t elements = sx_tensor_elements(&got->type);
    bool is_float = sx_dtype_class_of(got->type.dtype) == SX_CLASS_FLOAT;
    for (int64_t k = 0; k < elements; k++) {
        if (!same_element(got, wanted, k)) {
            double a =
                is_float ? ((const double *)got->data)[k] : (double)((const int64_t *)got->data)[k];
            double b = is_float ? ((const double *)wanted->data)[k]
                                : (double)((const int64_t *)wanted->data)[k];
            (void)snprintf(c->why, sizeof(c->why), "output %u element %lld is %.9g, %.9g expected",
                           index, (long long)k, a, b);
            return false;
        }
    }
    return true;
}

/* The position among the inputs of the model of the input called `name`. */
static uint32_t input_index(const sx_onnx_model *model, sx_span name)
{
    uint32_t k = 0;
    while (k < model->graph.input_count && !sx_span_equal(model->graph.input[k].name, name)) {
        k++;
    }
    return k;
}

static bool is_used(const sx_graph *graph, uint32_t id)
{
    for (uint32_t k = 0; k < graph->input_count; k++) {
        if (graph->input[k].i == id) {
            return true;
        }
    }
    return false;
}

/* The argument for parameter `id`. The second operand of CastLike gives its element type only, and some data
 * have another shape there than the model says: zeros do for what no node reads. */
static bool load_argument(onnx_case *c, const sx_onnx_model *model, const sx_graph *graph,
                          uint32_t id, sx_tensor *out)
{
    const sx_type *type = &graph->node[id].type;
    uint32_t index = input_index(model, sx_graph_attr(graph, &graph->node[id])->name);
    if (index >= c->input_count || !load_tensor(c, &c->input[index], type->dtype, out)) {
        return false;
    }
    if (!sx_type_equal(&out->type, type) && !is_used(graph, id)) {
        out->type = *type;
        out->data = SX_NEW_ARRAY(c->cx, double, (size_t)sx_tensor_elements(type));
    }
    return out->data != NULL;
}

/* Runs the imported graph and compares. */
static outcome evaluate(onnx_case *c, const sx_onnx_model *model, const sx_graph *graph,
                        const sx_weights *weights, outcome good)
{
    sx_tensor argument[TENSORS_MAX];
    sx_tensor result[TENSORS_MAX];
    uint32_t count = 0;
    for (uint32_t k = 0; k < graph->node_count; k++) {
        const sx_node *node = &graph->node[k];
        if (node->op != SX_OP_PARAMETER) {
            continue;
        }
        const sx_attr *attr = sx_graph_attr(graph, node);
        ck_assert_uint_lt(count, TENSORS_MAX);
        if (attr->weight == 1) {
            const sx_weight *weight = sx_weights_find(weights, attr->name);
            ck_assert_ptr_nonnull(weight);
            if (sx_tensor_unpack(c->cx, &node->type, SX_EVAL_TYPED, weight->bytes,
                                 &argument[count++]) != SX_OK) {
                return FAILED;
            }
            continue;
        }
        if (!load_argument(c, model, graph, k, &argument[count++])) {
            return FAILED;
        }
    }
    if (graph->output_count != c->output_count || c->output_count > TENSORS_MAX) {
        (void)snprintf(c->why, sizeof(c->why), "%u outputs, %u expected", graph->output_count,
                       c->output_count);
        return FAILED;
    }
    sx_code code =
        sx_graph_eval(c->cx, graph, SX_EVAL_TYPED, argument, count, result, graph->output_count);
    if (code != SX_OK) {
        return code == SX_UNIMPLEMENTED ? REFUSED : FAILED;
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        sx_tensor wanted;
        if (!load_tensor(c, &c->output[k], result[k].type.dtype, &wanted) ||
            !same_tensor(c, &result[k], &wanted, k)) {
            return FAILED;
        }
    }
    return good;
}

/* All integer inputs, and scales, as values known when importing: shapes, axes, indices of the operator tests come as
 * inputs. */
static uint32_t fix_inputs(onnx_case *c, const sx_onnx_model *model, sx_onnx_fixed *fixed)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < c->input_count && k < model->graph.input_count; k++) {
        int64_t type = c->input[k].data_type;
        sx_span bytes;
        bool is_scales = type == SX_ONNX_FLOAT && sx_span_is(model->graph.input[k].name, "scales");
        if ((type == SX_ONNX_INT64 || type == SX_ONNX_INT32 || type == SX_ONNX_BOOL || is_scales) &&
            sx_onnx_tensor_bytes(c->cx, &c->input[k],
                                 type == SX_ONNX_INT64  ? 8
                                 : type == SX_ONNX_BOOL ? 1
                                                        : 4,
                                 &bytes) == SX_OK) {
            fixed[count++] = (sx_onnx_fixed){model->graph.input[k].name, bytes};
        }
    }
    return count;
}

static outcome prove_as(onnx_case *c, const sx_graph *graph, bool unfused, outcome good)
{
    sx_optimize_options options = sx_optimize_defaults();
    sx_optimize_report report;
    sx_certificate found;
    const sx_device *device;
    sx_graph *canonical, *out;
    sx_buf text;
    options.with_certificate = true;
    options.unfused = unfused;
    options.limits.nodes = 2000;
    options.limits.fuel = 500000;
    options.extract_fuel = 20000;
    sx_buf_init(&text, (size_t)256 << 20);
    sx_code code = sx_device_find(c->cx, SX_SPAN_LITERAL("x86-64-v4"), &device);
    code = code == SX_OK ? sx_graph_canon(c->cx, graph, &canonical) : code;
    code = code == SX_OK ? sx_optimize(c->cx, canonical, device, &options, &out, &report) : code;
    if (code == SX_OK && report.unproved != NULL) {
        (void)snprintf(c->why, sizeof(c->why), "%s", report.unproved);
        code = SX_COMPILE;
    }
    code = code == SX_OK ? sx_optimize_certificate(c->cx, &report, &text) : code;
    code = code == SX_OK ? sx_certificate_check(c->cx, sx_buf_span(&text), &found) : code;
    sx_buf_fini(&text);
    return code == SX_OK ? good : FAILED;
}

static outcome prove(onnx_case *c, const sx_graph *graph, outcome good)
{
    if (getenv("SX_ONNX_PROVE") == NULL || (good != PASSED && good != PASSED_FIXED)) {
        return good;
    }
    outcome out = prove_as(c, graph, true, good);
    return out == good ? prove_as(c, graph, false, good) : out;
}

static outcome run_loaded(onnx_case *c)
{
    sx_graph *graph;
    sx_weights *weights;
    sx_onnx_model model;
    sx_code code = sx_onnx_import(c->cx, sx_buf_span(&c->model), NULL, &graph, &weights);
    outcome good = PASSED;
    if (code != SX_OK) {
        sx_error first = c->cx->error;
        sx_ctx_reset_error(c->cx);
        if (sx_onnx_read_model(c->cx, sx_buf_span(&c->model), &model) != SX_OK) {
            return FAILED;
        }
        sx_onnx_fixed fixed[TENSORS_MAX];
        sx_onnx_options options = {.fixed = fixed};
        options.fixed_count = fix_inputs(c, &model, fixed);
        if (code != SX_UNIMPLEMENTED || options.fixed_count == 0 ||
            strstr(first.text, "not known before the run") == NULL) {
            c->cx->error = first;
            return code == SX_UNIMPLEMENTED ? REFUSED : FAILED;
        }
        code = sx_onnx_import(c->cx, sx_buf_span(&c->model), &options, &graph, &weights);
        good = PASSED_FIXED;
    }
    if (code != SX_OK) {
        return code == SX_UNIMPLEMENTED ? REFUSED : FAILED;
    }
    if (sx_onnx_read_model(c->cx, sx_buf_span(&c->model), &model) != SX_OK) {
        return FAILED;
    }
    return prove(c, graph, evaluate(c, &model, graph, weights, good));
}

static outcome run_case(const char *folder, char *why, size_t why_size)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)512 << 20);
    onnx_case *c = calloc(1, sizeof(*c));
    ck_assert_ptr_nonnull(c);
    c->cx = &cx;
    (void)snprintf(c->folder, sizeof(c->folder), "%s", folder);
    char path[640];
    (void)snprintf(path, sizeof(path), "%s/model.onnx", folder);
    sx_buf_init(&c->model, 64 << 20);
    sx_test_read_file(path, &c->model);
    bool tensors = read_tensors(c, "input", c->input, &c->input_count) &&
                   read_tensors(c, "output", c->output, &c->output_count);
    sx_ctx_reset_error(&cx);
    outcome out = run_loaded(c);
    if (out == FAILED && !tensors) {
        (void)snprintf(c->why, sizeof(c->why), "the test data are no tensors");
    }
    (void)snprintf(why, why_size, "%s", cx.error.code != SX_OK ? cx.error.text : c->why);
    for (uint32_t k = 0; k < c->file_count; k++) {
        sx_buf_fini(&c->file[k]);
    }
    sx_buf_fini(&c->model);
    free(c);
    sx_ctx_fini(&cx);
    return out;
}

static void run_group(const char *group, uint32_t count[OUTCOME_COUNT])
{
    char folder[256];
    (void)snprintf(folder, sizeof(folder), "%s/%s", data_folder(), group);
    struct dirent **entry;
    int entries = scandir(folder, &entry, NULL, alphasort);
    if (entries <= 0 && getenv("SX_ONNX_DATA") != NULL) {
        return;
    }
    ck_assert_int_gt(entries, 0);
    const char *only = getenv("SX_ONNX_CASE");
    bool verbose = getenv("SX_ONNX_VERBOSE") != NULL || only != NULL;
    for (int k = 0; k < entries; k++) {
        char path[512];
        char model[600];
        char why[SX_ERROR_TEXT_MAX + 64];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry[k]->d_name);
        (void)snprintf(model, sizeof(model), "%s/model.onnx", path);
        bool skip = entry[k]->d_name[0] == '.' || !exists(model) ||
                    (only != NULL && strcmp(only, entry[k]->d_name) != 0);
        if (!skip) {
            outcome out = run_case(path, why, sizeof(why));
            count[out]++;
            if (out == FAILED || (verbose && out == REFUSED)) {
                printf("%s %s: %s\n", out == FAILED ? "FAILED" : "refused", entry[k]->d_name, why);
            }
        }
        free(entry[k]);
    }
    free(entry);
    printf("%-18s passed %u, passed with integer inputs known %u, refused %u, failed %u\n", group,
           count[PASSED], count[PASSED_FIXED], count[REFUSED], count[FAILED]);
    (void)fflush(stdout);
}

/* Floors: what is reached; lower counts are a regression. */
static const struct {
    const char *group;
    uint32_t passed;
    uint32_t passed_fixed;
} groups[] = {
    {"node", 668, 90}, {"simple", 3, 4}, {"pytorch-operator", 21, 0}, {"pytorch-converted", 71, 0}};

START_TEST(test_group)
{
    ck_assert_msg(exists(data_folder()),
                  DATA " is not installed (package libonnx-testdata): run deploy/install-deps.sh");
    uint32_t count[OUTCOME_COUNT] = {0};
    run_group(groups[_i].group, count);
    ck_assert_uint_eq(count[FAILED], 0);
    if (getenv("SX_ONNX_CASE") == NULL && getenv("SX_ONNX_DATA") == NULL) {
        ck_assert_uint_ge(count[PASSED], groups[_i].passed);
        ck_assert_uint_ge(count[PASSED_FIXED], groups[_i].passed_fixed);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("onnx conformance");
    TCase *tcase = tcase_create("groups");
    tcase_set_timeout(tcase, 400);
    tcase_add_loop_test(tcase, test_group, 0, SX_COUNT(groups));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
