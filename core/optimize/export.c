#include "core/optimize/export.h"

#include <string.h>

#include "core/egraph/extract.h"
#include "core/optimize/optimize.h"

/* ---- what all three forms show ---- */

typedef struct {
    sx_ctx *cx;
    const sx_library_graph *graph;
    const sx_eg *eg;
    const uint64_t *cost;
    sx_buf *out;
    sx_buf label; /* of the node at hand */
} exporter;

static bool is_live(const sx_eg *eg, uint32_t n)
{
    return eg->node[n].dead == 0;
}

/* The first live node of a class. */
static uint32_t first_node(const sx_eg *eg, uint32_t class_)
{
    uint32_t n = class_;
    while (!is_live(eg, n)) {
        n = sx_eg_member_next(eg, n);
    }
    return n;
}

static bool is_chosen(const exporter *e, uint32_t n)
{
    return e->graph->choice[sx_eg_find(e->eg, n)] == n;
}

/* Text in a quoted string of JSON, DOT or XML: `escape` says how a special character is written. */
static void put_escaped(sx_buf *out, sx_span text, bool xml)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (xml && (c == '<' || c == '>' || c == '&')) {
            sx_buf_put_text(out, c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;");
        } else if (!xml && (c == '"' || c == '\\')) {
            sx_buf_put_u8(out, '\\');
            sx_buf_put_u8(out, c);
        } else if (c < 0x20 || c >= 0x7f) {
            sx_buf_put_text(out, "?");
        } else {
            sx_buf_put_u8(out, c);
        }
    }
}

/* "transpose {perm = [1, 0]}" */
static sx_span label_of(exporter *e, uint32_t n)
{
    const sx_tensors *t = &e->graph->t;
    sx_buf_clear(&e->label);
    sx_buf_put_text(&e->label, sx_op_info_of(sx_tensors_op(t, n))->name);
    sx_attr_print(sx_tensors_attr(t, n), t->symbol, t->symbol_count, &e->label);
    return sx_buf_span(&e->label);
}

static void put_type(exporter *e, uint32_t class_, sx_buf *out)
{
    const sx_tensors *t = &e->graph->t;
    sx_type_print(sx_tensors_type(t, class_), t->symbol, t->symbol_count, out);
}

static exporter start(sx_ctx *cx, const sx_library_graph *graph, const uint64_t *cost, sx_buf *out)
{
    exporter e = {.cx = cx, .graph = graph, .eg = &graph->t.eg, .cost = cost, .out = out};
    sx_buf_init(&e.label, SX_TEXT_BYTES_MAX);
    return e;
}

static sx_code finish(exporter *e, const char *what)
{
    sx_code code = sx_buf_check(e->cx, &e->label, what);
    sx_buf_fini(&e->label);
    return code == SX_OK ? sx_buf_check(e->cx, e->out, what) : code;
}

/* ---- JSON ---- */

/* A node without a kernel is not to be picked where kernels alone can compute its class, else it costs what
 * the model says. */
static void put_json_node(exporter *e, uint32_t n, bool first)
{
    sx_buf *out = e->out;
    bool never = e->cost[n] >= SX_COST_LAST_RESORT;
    sx_buf_print(out, "%s\n\"n%u\":{\"op\":\"", first ? "" : ",", n);
    put_escaped(out, label_of(e, n), false);
    sx_buf_put_text(out, "\",\"children\":[");
    for (uint32_t k = 0; k < e->eg->node[n].arity; k++) {
        sx_buf_print(out, "%s\"n%u\"", k > 0 ? "," : "",
                     first_node(e->eg, sx_eg_child(e->eg, n, k)));
    }
    sx_buf_print(out, "],\"eclass\":\"c%u\",\"cost\":%.3f,\"subsumed\":%s}", sx_eg_find(e->eg, n),
                 never ? 0.0 : (double)e->cost[n] / 1000, never ? "true" : "false");
}

sx_code sx_export_json(sx_ctx *cx, const sx_library_graph *graph, const uint64_t *cost, sx_buf *out)
{
    SX_ASSERT(sx_eg_is_rebuilt(&graph->t.eg));
    exporter e = start(cx, graph, cost, out);
    bool first = true;
    sx_buf_put_text(out, "{\"nodes\":{");
    for (uint32_t n = 0; n < e.eg->node_count; n++) {
        if (is_live(e.eg, n)) {
            put_json_node(&e, n, first);
            first = false;
        }
    }
    sx_buf_put_text(out, "\n},\n\"root_eclasses\":[");
    for (uint32_t i = 0; i < graph->interface->output_count; i++) {
        sx_buf_print(out, "%s\"c%u\"", i > 0 ? "," : "", sx_eg_find(e.eg, graph->root[i]));
    }
    sx_buf_put_text(out, "],\n\"class_data\":{");
    first = true;
    for (uint32_t c = 0; c < e.eg->node_count; c++) {
        if (sx_eg_find(e.eg, c) == c) {
            sx_buf_print(out, "%s\n\"c%u\":{\"type\":\"", first ? "" : ",", c);
            put_type(&e, c, out);
            sx_buf_put_text(out, "\"}");
            first = false;
        }
    }
    sx_buf_put_text(out, "\n}}\n");
    return finish(&e, "JSON of the e-graph");
}

/* ---- DOT ---- */

static void put_dot_class(exporter *e, uint32_t class_)
{
    sx_buf *out = e->out;
    sx_buf_print(out, "  subgraph cluster_%u {\n    style=dashed; label=\"", class_);
    put_type(e, class_, out);
    sx_buf_put_text(out, "\";\n");
    uint32_t n = class_;
    do {
        if (is_live(e->eg, n)) {
            sx_buf_print(out, "    n%u [shape=box%s, label=\"", n,
                         is_chosen(e, n) ? ", style=filled, fillcolor=lightblue" : "");
            put_escaped(out, label_of(e, n), false);
            sx_buf_put_text(out, "\"];\n");
        }
        n = sx_eg_member_next(e->eg, n);
    } while (n != class_);
    sx_buf_put_text(out, "  }\n");
}

sx_code sx_export_dot(sx_ctx *cx, const sx_library_graph *graph, const uint64_t *cost, sx_buf *out)
{
    SX_ASSERT(sx_eg_is_rebuilt(&graph->t.eg));
    exporter e = start(cx, graph, cost, out);
    sx_buf_put_text(out, "digraph egraph {\n  compound=true; rankdir=BT; fontname=sans;\n");
    for (uint32_t c = 0; c < e.eg->node_count; c++) {
        if (sx_eg_find(e.eg, c) == c) {
            put_dot_class(&e, c);
        }
    }
    for (uint32_t n = 0; n < e.eg->node_count; n++) {
        for (uint32_t k = 0; is_live(e.eg, n) && k < e.eg->node[n].arity; k++) {
            uint32_t child = sx_eg_child(e.eg, n, k);
            bool own = child == sx_eg_find(e.eg, n);
            sx_buf_print(out, "  n%u -> n%u", first_node(e.eg, child), n);
            sx_buf_print(out, own ? ";\n" : " [ltail=cluster_%u];\n", child);
        }
    }
    sx_buf_put_text(out, "}\n");
    return finish(&e, "DOT of the e-graph");
}
