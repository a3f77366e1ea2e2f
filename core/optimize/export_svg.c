/* The picture of an e-graph: classes as boxes, one row for each level, operands above their readers. */
#include "core/optimize/export.h"

#include <string.h>

#define LINE 14     /* height of a line of text */
#define LETTER 6.2  /* mean width of a letter */
#define LETTERS 36u /* shown of a node */
#define GAP_X 24.0
#define GAP_Y 48.0
#define ROW_WIDTH 1600.0 /* a level wider than this goes on in a new row */

typedef struct {
    double x, y, width, height;
    uint32_t lines;
    uint32_t level;
} box;

typedef struct {
    const sx_library_graph *graph;
    const sx_eg *eg;
    box *box; /* per class */
    double width, height;
    sx_buf *out;
} picture;

/* Levels: operands lie above their readers where the graph allows it; nodes that close a cycle do not count. A
 * class stands as high as its smallest node does: that one was inserted after its operands, so there is no cycle. */
static void find_levels(picture *p)
{
    for (uint32_t n = 0; n < p->eg->node_count; n++) {
        uint32_t class_ = sx_eg_find(p->eg, n);
        uint32_t level = 0;
        for (uint32_t k = 0; class_ == n && k < p->eg->node[n].arity; k++) {
            uint32_t child = sx_eg_find(p->eg, sx_eg_made_child(p->eg, n, k));
            uint32_t above = child < n ? p->box[child].level + 1 : 0;
            level = above > level ? above : level;
        }
        if (class_ == n) {
            p->box[n].level = level;
        }
        if (p->eg->node[n].dead == 0) {
            p->box[class_].lines++;
        }
    }
}

static void place_boxes(picture *p)
{
    uint32_t last = 0;
    for (uint32_t c = 0; c < p->eg->node_count; c++) {
        last = p->box[c].level > last ? p->box[c].level : last;
    }
    double y = GAP_Y / 2;
    for (uint32_t level = 0; level <= last; level++) {
        double x = GAP_X;
        double tallest = 0;
        for (uint32_t c = 0; c < p->eg->node_count; c++) {
            box *b = &p->box[c];
            if (sx_eg_find(p->eg, c) != c || b->level != level) {
                continue;
            }
            b->width = LETTERS * LETTER + 14;
            b->height = (b->lines + 1) * LINE + 8;
            if (x + b->width > ROW_WIDTH && x > GAP_X) {
                y += tallest + GAP_Y / 3;
                x = GAP_X;
                tallest = 0;
            }
            b->x = x;
            b->y = y;
            x += b->width + GAP_X;
            tallest = b->height > tallest ? b->height : tallest;
            p->width = x > p->width ? x : p->width;
        }
        y += tallest + GAP_Y;
    }
    p->height = y;
}

static void put_text(picture *p, double x, double y, const char *style, sx_span text)
{
    sx_buf_print(p->out, "<text x=\"%.0f\" y=\"%.0f\"%s>", x, y, style);
    for (size_t i = 0; i < text.len && i < LETTERS; i++) {
        uint8_t c = text.ptr[i];
        if (c == '<' || c == '>' || c == '&') {
            sx_buf_put_text(p->out, c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;");
        } else {
            sx_buf_put_u8(p->out, c < 0x20 || c >= 0x7f ? '?' : c);
        }
    }
    sx_buf_put_text(p->out, "</text>\n");
}

/* A line from each operand's class to the line of the node that reads it. */
static void put_edges(picture *p, uint32_t n, const box *b, double y)
{
    for (uint32_t k = 0; k < p->eg->node[n].arity; k++) {
        const box *child = &p->box[sx_eg_child(p->eg, n, k)];
        bool chosen = p->graph->choice[sx_eg_find(p->eg, n)] == n;
        double from_x = child->x + child->width / 2;
        double from_y = child->y + child->height;
        double to_x = b->x + 8 + 12 * k;
        if (child == b) {
            continue; /* an operand of its own class */
        }
        sx_buf_print(p->out,
                     "<path d=\"M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f\" fill=\"none\" "
                     "stroke=\"%s\" stroke-width=\"%s\"/>\n",
                     from_x, from_y, from_x, from_y + GAP_Y / 2, to_x, y - GAP_Y / 2, to_x,
                     y - LINE + 3, chosen ? "#1f77b4" : "#bbbbbb", chosen ? "1.5" : "0.7");
    }
}

static sx_code put_class(sx_ctx *cx, picture *p, uint32_t class_, bool edges)
{
    const box *b = &p->box[class_];
    const sx_tensors *t = &p->graph->t;
    double y = b->y + LINE + 2;
    sx_buf label;
    sx_buf_init(&label, SX_TEXT_BYTES_MAX);
    if (!edges) {
        sx_buf_print(p->out,
                     "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" rx=\"4\" "
                     "fill=\"white\" stroke=\"#888888\"/>\n",
                     b->x, b->y, b->width, b->height);
        sx_type_print(sx_tensors_type(t, class_), t->symbol, t->symbol_count, &label);
        put_text(p, b->x + 6, y, " fill=\"#888888\"", sx_buf_span(&label));
    }
    uint32_t n = class_;
    do {
        if (p->eg->node[n].dead == 0) {
            y += LINE;
            sx_buf_clear(&label);
            sx_buf_put_text(&label, sx_op_info_of(sx_tensors_op(t, n))->name);
            sx_attr_print(sx_tensors_attr(t, n), t->symbol, t->symbol_count, &label);
            if (edges) {
                put_edges(p, n, b, y);
            } else {
                put_text(p, b->x + 6, y,
                         p->graph->choice[class_] == n ? " font-weight=\"bold\" fill=\"#1f77b4\""
                                                       : "",
                         sx_buf_span(&label));
            }
        }
        n = sx_eg_member_next(p->eg, n);
    } while (n != class_);
    sx_code code = sx_buf_check(cx, &label, "label of the picture");
    sx_buf_fini(&label);
    return code;
}

sx_code sx_export_svg(sx_ctx *cx, const sx_library_graph *graph, const uint64_t *cost, sx_buf *out)
{
    SX_ASSERT(sx_eg_is_rebuilt(&graph->t.eg));
    (void)cost;
    picture p = {.graph = graph, .eg = &graph->t.eg, .out = out};
    if (p.eg->class_count > SX_EXPORT_PICTURE_CLASSES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "e-graph of %u classes, a picture shows at most %u",
                       p.eg->class_count, SX_EXPORT_PICTURE_CLASSES_MAX);
    }
    p.box = SX_NEW_ARRAY(cx, box, p.eg->node_count + 1);
    if (p.box == NULL) {
        return cx->error.code;
    }
    find_levels(&p);
    place_boxes(&p);
    sx_buf_print(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                 "font-family=\"monospace\" font-size=\"10\">\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                 p.width, p.height);
    for (uint32_t pass = 0; pass < 2; pass++) { /* boxes cover the lines that pass below them */
        for (uint32_t c = 0; c < p.eg->node_count; c++) {
            if (sx_eg_find(p.eg, c) == c) {
                SX_TRY(put_class(cx, &p, c, pass == 0));
            }
        }
    }
    sx_buf_put_text(out, "</svg>\n");
    return sx_buf_check(cx, out, "picture of the e-graph");
}
