#include "tests/bench/step.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ir/ir.h"
#include "tests/bench/networks.h"

static void put(sx_buf *text, const char *format, ...) SX_PRINTF(2, 3);
static void put(sx_buf *text, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    SX_ASSERT(length >= 0 && (size_t)length < sizeof(line));
    sx_buf_put_text(text, line);
}

static const char *type_text(const sx_graph *graph, const sx_type *type, char out[128])
{
    sx_buf text;
    sx_buf_init(&text, 128);
    sx_type_print(type, graph->symbol, graph->symbol_count, &text);
    (void)snprintf(out, 128, "%.*s", (int)text.len, (const char *)text.ptr);
    sx_buf_fini(&text);
    return out;
}

/* Where the results stand. */
static size_t returns_at(const sx_buf *text)
{
    static const char word[] = "\n    return ";
    size_t at = text->len - strlen(word);
    while (at > 0 && memcmp(text->ptr + at, word, strlen(word)) != 0) {
        at--;
    }
    return at;
}

/* In place of the first result the sum of its squares. */
static sx_code add_loss(sx_ctx *cx, sx_buf *text)
{
    sx_graph *graph;
    char type[128], dims[64] = "0";
    SX_TRY(sx_graph_parse(cx, sx_buf_span(text), &graph));
    sx_buf made;
    sx_buf_init(&made, SX_TEXT_BYTES_MAX);
    sx_code code = sx_graph_print(cx, graph, &made);
    const sx_type *of = &graph->node[graph->output[0].node.i].type;
    for (uint32_t d = 1; d < of->rank; d++) {
        (void)snprintf(dims + strlen(dims), sizeof(dims) - strlen(dims), ", %u", d);
    }
    made.len = returns_at(&made);
    put(&made, "\n    %%square = multiply(%%%u, %%%u) : %s\n", graph->output[0].node.i,
        graph->output[0].node.i, type_text(graph, of, type));
    put(&made, "    %%loss = reduce(%%square) {dims = [%s], reducer = add} : f32[]\n", dims);
    put(&made, "    return %%loss as \"loss\"\n}\n");
    sx_buf_clear(text);
    sx_buf_put_span(text, sx_buf_span(&made));
    sx_buf_fini(&made);
    return code;
}

/* The running mean `m` or `v` of `%value`, and what of it is divided by the weight that it has in so few steps. */
static void put_mean(sx_buf *text, uint32_t w, const char *name, const char *type, char which,
                     const char *value, const char *decay, const char *rest)
{
    put(text, "    %%%c%u = parameter {name = \"%s.%c\", weight = 0} : %s state = 0\n", which, w,
        name, which, type);
    put(text, "    %%%cd%u = constant {data = %s} : %s\n", which, w, decay, type);
    put(text, "    %%%cr%u = constant {data = %s} : %s\n", which, w, rest, type);
    put(text, "    %%%ca%u = multiply(%%%c%u, %%%cd%u) : %s\n", which, w, which, w, which, w, type);
    put(text, "    %%%cb%u = multiply(%s, %%%cr%u) : %s\n", which, w, value, which, w, type);
    put(text, "    %%%cn%u = add(%%%ca%u, %%%cb%u) : %s\n", which, w, which, w, which, w, type);
    put(text, "    %%%cw%u = broadcast_in_dim(%%left_%c) {dims = []} : %s\n", which, w, which,
        type);
    put(text, "    %%%ch%u = divide(%%%cn%u, %%%cw%u) : %s\n", which, w, which, w, which, w, type);
}

/* AdamW (Loshchilov and Hutter 2019), for a weight with its gradient. */
static void put_update(sx_buf *text, uint32_t w, uint32_t slope, const char *name, const char *type)
{
    char value[32];
    (void)snprintf(value, sizeof(value), "%%%u", slope);
    put_mean(text, w, name, type, 'm', value, "0.875", "0.125");
    put(text, "    %%sq%u = multiply(%%%u, %%%u) : %s\n", w, slope, slope, type);
    (void)snprintf(value, sizeof(value), "%%sq%u", w);
    put_mean(text, w, name, type, 'v', value, "0.96875", "0.03125");
    put(text, "    %%ro%u = sqrt(%%vh%u) : %s\n", w, w, type);
    put(text, "    %%ep%u = constant {data = 1e-6} : %s\n", w, type);
    put(text, "    %%be%u = add(%%ro%u, %%ep%u) : %s\n", w, w, w, type);
    put(text, "    %%st%u = divide(%%mh%u, %%be%u) : %s\n", w, w, w, type);
    put(text, "    %%dc%u = constant {data = 0.0078125} : %s\n", w, type);
    put(text, "    %%de%u = multiply(%%%u, %%dc%u) : %s\n", w, w, w, type);
    put(text, "    %%su%u = add(%%st%u, %%de%u) : %s\n", w, w, w, type);
    put(text, "    %%ra%u = constant {data = 0.015625} : %s\n", w, type);
    put(text, "    %%mv%u = multiply(%%su%u, %%ra%u) : %s\n", w, w, w, type);
    put(text, "    %%nw%u = subtract(%%%u, %%mv%u) : %s\n", w, w, w, type);
}

/* What a mean that began at 0 lacks after so many steps, a state. */
static void put_left(sx_buf *text, char which, const char *decay)
{
    put(text, "    %%power_%c = parameter {name = \"power_%c\", weight = 0} : f32[] state = 1\n",
        which, which);
    put(text, "    %%decay_%c = constant {data = %s} : f32[]\n", which, decay);
    put(text, "    %%next_%c = multiply(%%power_%c, %%decay_%c) : f32[]\n", which, which, which);
    put(text, "    %%one_%c = constant {data = 1} : f32[]\n", which);
    put(text, "    %%left_%c = subtract(%%one_%c, %%next_%c) : f32[]\n", which, which, which);
}

/* The node that is the gradient of the parameter. */
static uint32_t slope_of(const sx_graph *graph, sx_span name)
{
    char wanted[160];
    (void)snprintf(wanted, sizeof(wanted), "grad(%.*s)", (int)name.len, (const char *)name.ptr);
    for (uint32_t k = 0; k < graph->output_count; k++) {
        if (sx_span_is(graph->output[k].name, wanted)) {
            return graph->output[k].node.i;
        }
    }
    return UINT32_MAX;
}

/* The lines of `made`, up to the results; weights become state. */
static void put_lines(const sx_buf *made, size_t end, sx_buf *text)
{
    static const char mark[] = ", weight = 1} : ";
    for (size_t at = 0; at < end;) {
        const uint8_t *line = made->ptr + at;
        const uint8_t *next = memchr(line, '\n', end - at);
        size_t length = next != NULL ? (size_t)(next - line) : end - at;
        const uint8_t *is = memmem(line, length, mark, strlen(mark));
        if (is != NULL) {
            size_t before = (size_t)(is - line), behind = before + strlen(mark);
            sx_buf_put(text, line, before);
            sx_buf_put_text(text, ", weight = 0} : ");
            sx_buf_put(text, line + behind, length - behind);
            sx_buf_put_text(text, " state = 0.03125");
        } else {
            sx_buf_put(text, line, length);
        }
        sx_buf_put_u8(text, '\n');
        at += length + 1;
    }
}

sx_code sx_bench_make_step(sx_ctx *cx, sx_buf *text)
{
    sx_graph *graph;
    SX_TRY(add_loss(cx, text));
    SX_TRY(sx_bench_add_gradients(cx, text));
    SX_TRY(sx_graph_parse(cx, sx_buf_span(text), &graph));
    sx_buf made, results;
    sx_buf_init(&made, SX_TEXT_BYTES_MAX);
    sx_buf_init(&results, SX_TEXT_BYTES_MAX);
    sx_code code = sx_graph_print(cx, graph, &made);
    sx_buf_clear(text);
    put_lines(&made, returns_at(&made), text);
    put_left(text, 'm', "0.875");
    put_left(text, 'v', "0.96875");
    put(&results, "    return %%%u as \"loss\"", graph->output[0].node.i);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_attr *attr = sx_graph_attr(graph, &graph->node[n]);
        if (graph->node[n].op != SX_OP_PARAMETER || !attr->weight) {
            continue;
        }
        char type[128], name[128];
        (void)snprintf(name, sizeof(name), "%.*s", (int)attr->name.len,
                       (const char *)attr->name.ptr);
        uint32_t slope = slope_of(graph, attr->name);
        if (slope == UINT32_MAX) {
            code = SX_FAIL(cx, SX_INPUT, "weight %s has no gradient", name);
            break;
        }
        put_update(text, n, slope, name, type_text(graph, &graph->node[n].type, type));
        put(&results, ", %%nw%u as \"%s\" into \"%s\"", n, name, name);
        put(&results, ", %%mn%u as \"%s.m\" into \"%s.m\"", n, name, name);
        put(&results, ", %%vn%u as \"%s.v\" into \"%s.v\"", n, name, name);
    }
    put(&results, ", %%next_m as \"power_m\" into \"power_m\", %%next_v as \"power_v\" into "
                  "\"power_v\"\n}\n");
    sx_buf_put_span(text, sx_buf_span(&results));
    sx_buf_fini(&made);
    sx_buf_fini(&results);
    return code;
}
