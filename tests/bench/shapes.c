#include "tests/bench/shapes.h"

#include <stdio.h>
#include <string.h>

#include "client/operation/operation.h"
#include "client/source.h"

static sx_code read_line(sx_ctx *cx, const char *line, uint32_t number, sx_bench_shape *shape)
{
    int fields = sscanf(line, "%47s %79s %7s %7s %119[^\n]", shape->name, shape->operation,
                        shape->dtype, shape->layout, shape->origin);
    if (fields != 5 || strchr(shape->operation, ':') == NULL) {
        return SX_FAIL(cx, SX_INPUT, "line %u: not NAME OPERATION TYPE LAYOUT ORIGIN", number);
    }
    return SX_OK;
}

sx_code sx_bench_shapes_read(sx_ctx *cx, const char *path, sx_bench_shape *shape, uint32_t *count)
{
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 20);
    sx_code code = sxc_read_text(cx, path, &text);
    sx_span rest = sx_buf_span(&text);
    *count = 0;
    for (uint32_t number = 1; code == SX_OK && rest.len > 0; number++) {
        char line[400];
        const uint8_t *end = memchr(rest.ptr, '\n', rest.len);
        size_t length = end != NULL ? (size_t)(end - rest.ptr) : rest.len;
        (void)snprintf(line, sizeof(line), "%.*s", (int)(length < 399 ? length : 399),
                       (const char *)rest.ptr);
        size_t taken = length + (end != NULL ? 1 : 0);
        rest = (sx_span){rest.ptr + taken, rest.len - taken};
        if (line[0] == '#' || line[0] == '\0') {
            continue;
        }
        if (*count == SX_BENCH_SHAPES_MAX) {
            code = SX_FAIL(cx, SX_INPUT, "%s: more than %u shapes", path, SX_BENCH_SHAPES_MAX);
        } else {
            code = read_line(cx, line, number, &shape[*count]);
            *count += code == SX_OK ? 1 : 0;
        }
    }
    sx_buf_fini(&text);
    return code;
}

/* Sums of rows or of columns, which are no operation of the command line. */
static bool put_reduction(const sx_bench_shape *shape, sx_buf *text)
{
    char along[8];
    long long m, n;
    if (sscanf(shape->operation, "reduce:%7[a-z]:%lldx%lld", along, &m, &n) != 3) {
        return false;
    }
    bool rows = strcmp(along, "rows") == 0;
    sx_buf_print(
        text,
        "sx 1\ngraph \"reduce\" () {\n%%x = parameter {name = \"x\", weight = 0} : %s[%lld, %lld]\n"
        "%%y = reduce(%%x) {dims = [%d], reducer = add} : %s[%lld]\n"
        "return %%y as \"y\"\n}\n",
        shape->dtype, m, n, rows ? 1 : 0, shape->dtype, rows ? m : n);
    return rows || strcmp(along, "columns") == 0;
}

sx_code sx_bench_shape_text(sx_ctx *cx, const sx_bench_shape *shape, sx_buf *text)
{
    if (put_reduction(shape, text)) {
        return SX_OK;
    }
    sxc_operation operation = {.dtype = shape->dtype,
                               .layout = shape->layout[0] != '-' ? shape->layout : NULL};
    const char *colon = strchr(shape->operation, ':');
    size_t length = (size_t)(colon - shape->operation);
    sx_graph *graph;
    for (uint32_t k = 0; k < SXC_OPERATION_COUNT; k++) {
        const char *name = sxc_operation_name((sxc_operation_kind)k);
        if (strlen(name) == length && memcmp(name, shape->operation, length) == 0) {
            operation.kind = (sxc_operation_kind)k;
            operation.shape = colon + 1;
        }
    }
    if (operation.shape == NULL) {
        return SX_FAIL(cx, SX_INPUT, "shape %s: no operation %s", shape->name, shape->operation);
    }
    SX_TRY(sxc_operation_make(cx, &operation, &graph));
    return sx_graph_print(cx, graph, text);
}

/* The number behind a word of an operation, or what stands for it. */
static double number_of(const char *operation, const char *word, double otherwise)
{
    const char *at = strstr(operation, word);
    double number;
    return at != NULL && sscanf(at + strlen(word), "%lf", &number) == 1 ? number : otherwise;
}

/* Scores of causal attention are as many as there are pairs of a token and one that is not behind it. */
static void attention_work(const char *o, const double *x, double element, sx_bench_work *work)
{
    double groups = number_of(o, "kv-heads=", x[1]), keys = number_of(o, "keys=", x[2]);
    double pairs = strstr(o, "causal") != NULL ? x[2] * (x[2] + 1) / 2 : x[2] * keys;
    work->flops = 4 * x[0] * x[1] * pairs * x[3];
    work->bytes = element * 2 * x[0] * x[3] * (x[1] * x[2] + groups * keys);
    work->product = true;
}

sx_code sx_bench_shape_work(sx_ctx *cx, const sx_bench_shape *shape, sx_bench_work *work)
{
    double x[4];
    const char *o = shape->operation;
    double element = strcmp(shape->dtype, "f32") == 0 ? 4 : 2;
    *work = (sx_bench_work){0};
    if (sscanf(o, "gemm:%lfx%lfx%lf", &x[0], &x[1], &x[2]) == 3) {
        work->flops = 2 * x[0] * x[1] * x[2];
        work->bytes = element * (x[0] * x[2] + x[1] * x[2] + x[0] * x[1]);
        work->product = true;
    } else if (sscanf(o, "softmax:%lfx%lf", &x[0], &x[1]) == 2 ||
               sscanf(o, "norm:%*[a-z]:%lfx%lf", &x[0], &x[1]) == 2) {
        work->flops = 2 * x[0] * x[1];
        work->bytes = element * 2 * x[0] * x[1];
    } else if (sscanf(o, "reduce:%*[a-z]:%lfx%lf", &x[0], &x[1]) == 2) {
        work->flops = x[0] * x[1];
        work->bytes = element * (x[0] * x[1] + (strncmp(o, "reduce:rows", 11) == 0 ? x[0] : x[1]));
    } else if (sscanf(o, "attention:%lfx%lfx%lfx%lf", &x[0], &x[1], &x[2], &x[3]) == 4) {
        attention_work(o, x, element, work);
    } else {
        return SX_FAIL(cx, SX_INPUT, "shape %s: nothing is known of %s", shape->name, o);
    }
    return SX_OK;
}

double sx_bench_floor_ns(const sx_device *device, const sx_bench_shape *shape,
                         const sx_bench_work *work)
{
    double lanes = 2.0 * device->cores * device->lanes * device->fma_per_cycle * device->ghz;
    sx_dtype dtype = strcmp(shape->dtype, "bf16") == 0  ? SX_BF16
                     : strcmp(shape->dtype, "f16") == 0 ? SX_F16
                                                        : SX_F32;
    double rate = lanes;
    for (uint32_t i = 0; work->product && i < device->rate_count; i++) {
        const sx_rate *row = &device->rate[i];
        rate = row->dtype == dtype && row->flops_per_ns > rate ? row->flops_per_ns : rate;
    }
    double computing = work->flops / rate, moving = work->bytes / device->memory_bytes_per_ns;
    SX_ASSERT(rate > 0 && device->memory_bytes_per_ns > 0);
    return computing > moving ? computing : moving;
}
