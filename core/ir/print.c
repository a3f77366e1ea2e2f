#include "core/ir/check.h"
#include "core/ir/effect.h"
#include "core/ir/extent.h"
#include "core/ir/fused.h"
#include "core/ir/num.h"
#include "core/ir/origin.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_ELEMENTS_MAX 64 /* longer constants are written in hex */

static void print_quoted(sx_span text, sx_buf *out)
{
    size_t plain = 0; /* bytes before the next that stand for themselves */
    sx_buf_put_u8(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (plain > 0 && (c == '"' || c == '\\' || c < 0x20 || c >= 0x7f)) {
            sx_buf_put(out, text.ptr + i - plain, plain);
        }
        if (c == '"' || c == '\\') {
            sx_buf_put_u8(out, '\\');
            sx_buf_put_u8(out, c);
        } else if (c < 0x20 || c >= 0x7f) {
            sx_buf_print(out, "\\x%02x", c);
        } else {
            plain++;
            continue;
        }
        plain = 0;
    }
    if (plain > 0) {
        sx_buf_put(out, text.ptr + text.len - plain, plain);
    }
    sx_buf_put_u8(out, '"');
}

/* A symbol bare where the lexer reads it as one name. */
void sx_symbol_print(sx_span name, sx_buf *out)
{
    bool bare = name.len > 0 && !(name.ptr[0] >= '0' && name.ptr[0] <= '9');
    for (size_t i = 0; i < name.len && bare; i++) {
        uint8_t c = name.ptr[i];
        bare =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    }
    if (bare) {
        sx_buf_put_span(out, name);
    } else {
        print_quoted(name, out);
    }
}

/* A factor of "(seq*seq)" or "((past + 1)*seq)". */
static void print_factor(sx_dim dim, const sx_symbol *symbols, uint32_t symbol_count, sx_buf *out)
{
    bool sum = dim.symbol < symbol_count && !sx_symbol_is_declared(&symbols[dim.symbol]);
    sx_buf_put_text(out, sum ? "(" : "");
    if (sum) {
        sx_polynomial_print(symbols[dim.symbol].sum, 1, symbols, out);
    } else if (dim.symbol < symbol_count) {
        sx_symbol_print(symbols[dim.symbol].name, out);
    } else {
        sx_buf_print(out, "symbol%u", dim.symbol);
    }
    sx_buf_put_text(out, sum ? ")" : "");
}

static void print_dim(sx_dim dim, const sx_symbol *symbols, uint32_t symbol_count, sx_buf *out)
{
    sx_dim factor[2];
    if (sx_dim_is_constant(dim) || dim.scale == 0) {
        sx_buf_put_number(out, dim.scale);
        return;
    }
    if (dim.symbol < symbol_count && !sx_symbol_is_declared(&symbols[dim.symbol])) {
        sx_polynomial_print(symbols[dim.symbol].sum, dim.scale, symbols, out);
        return;
    }
    if (dim.scale != 1) {
        sx_buf_print(out, "%lld*", (long long)dim.scale);
    }
    if (sx_dim_factors(dim, factor)) {
        sx_buf_put_u8(out, '(');
        print_factor(factor[0], symbols, symbol_count, out);
        sx_buf_put_u8(out, '*');
        print_factor(factor[1], symbols, symbol_count, out);
        sx_buf_put_u8(out, ')');
    } else if (dim.symbol < symbol_count) {
        sx_symbol_print(symbols[dim.symbol].name, out);
    } else {
        sx_buf_print(out, "symbol%u", dim.symbol);
    }
}

static void print_dims(const sx_dim *dim, uint32_t count, const sx_symbol *symbols,
                       uint32_t symbol_count, sx_buf *out)
{
    SX_ASSERT(count <= SX_RANK_MAX);
    sx_buf_put_u8(out, '[');
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_put_text(out, i > 0 ? ", " : "");
        print_dim(dim[i], symbols, symbol_count, out);
    }
    sx_buf_put_u8(out, ']');
}

void sx_type_print(const sx_type *type, const sx_symbol *symbols, uint32_t symbol_count,
                   sx_buf *text)
{
    SX_ASSERT(type->rank <= SX_RANK_MAX && (symbols != NULL || symbol_count == 0));
    sx_buf_put_text(text, sx_dtype_name(type->dtype));
    print_dims(type->dim, type->rank, symbols, symbol_count, text);
}

/* A whole number as it is, else the shortest decimal that reads back to the same bits; inf, -inf, nan; bits of
 * any other NaN. */
static void print_float(sx_dtype dtype, uint64_t bits, sx_buf *out)
{
    double value = sx_num_decode(dtype, bits);
    if (isnan(value)) {
        if (bits == sx_num_encode(dtype, (double)NAN)) {
            sx_buf_put_text(out, "nan");
        } else {
            sx_buf_print(out, "0x%0*llx", (int)sx_dtype_bytes(dtype) * 2, (unsigned long long)bits);
        }
        return;
    }
    if (isinf(value)) {
        sx_buf_put_text(out, value < 0.0 ? "-inf" : "inf");
        return;
    }
    if (fabs(value) < 0x1p53 && value == floor(value)) {
        sx_buf_print(out, "%.0f", value);
        return;
    }
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, value);
        if (sx_num_encode(dtype, strtod(text, NULL)) == bits) {
            break;
        }
    }
    sx_buf_put_text(out, text);
}

static void print_element(sx_dtype dtype, uint64_t bits, sx_buf *out)
{
    switch (sx_dtype_class_of(dtype)) {
    case SX_CLASS_FLOAT: print_float(dtype, bits, out); break;
    case SX_CLASS_INT: sx_buf_print(out, "%lld", (long long)sx_num_int_decode(dtype, bits)); break;
    case SX_CLASS_BOOL: sx_buf_put_text(out, bits != 0 ? "true" : "false"); break;
    }
}

static void print_data(sx_dtype dtype, sx_span data, sx_buf *out)
{
    size_t count = data.len / sx_dtype_bytes(dtype);
    if (count == 1) {
        print_element(dtype, sx_num_load(dtype, data.ptr, 0), out);
        return;
    }
    if (count > LIST_ELEMENTS_MAX) {
        static const char digit[] = "0123456789abcdef";
        sx_buf_put_u8(out, '"');
        for (size_t i = 0; i < data.len; i++) {
            char pair[2] = {digit[data.ptr[i] >> 4], digit[data.ptr[i] & 15]};
            sx_buf_put(out, pair, 2);
        }
        sx_buf_put_u8(out, '"');
        return;
    }
    sx_buf_put_u8(out, '[');
    for (size_t i = 0; i < count; i++) {
        sx_buf_put_text(out, i > 0 ? ", " : "");
        print_element(dtype, sx_num_load(dtype, data.ptr, i), out);
    }
    sx_buf_put_u8(out, ']');
}

static void print_ints(const sx_ints *ints, sx_buf *out)
{
    sx_buf_put_u8(out, '[');
    for (uint32_t i = 0; i < ints->count; i++) {
        sx_buf_put_text(out, i > 0 ? ", " : "");
        sx_buf_put_number(out, ints->v[i]);
    }
    sx_buf_put_u8(out, ']');
}

static void print_pairs(const sx_rank_pairs *pairs, sx_buf *out)
{
    sx_buf_put_u8(out, '[');
    for (uint32_t i = 0; i < pairs->count; i++) {
        sx_buf_print(out, "%s[%lld, %lld]", i > 0 ? ", " : "", (long long)pairs->pair[i].source,
                     (long long)pairs->pair[i].target);
    }
    sx_buf_put_u8(out, ']');
}

/* ---- fused bodies ---- */

static void print_double(double value, sx_buf *out)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    print_float(SX_F64, bits, out);
}

static void print_instr(const sx_instr *in, sx_dtype dtype, sx_buf *out)
{
    uint32_t operands = 0;
    switch (in->kind) {
    case SX_BODY_ARG:
        sx_buf_put_text(out, "arg");
        operands = 1;
        break;
    case SX_BODY_INDEX:
        sx_buf_put_text(out, "index");
        operands = 1;
        break;
    case SX_BODY_IMM:
        sx_buf_put_text(out, "imm ");
        print_double(in->imm, out);
        break;
    case SX_BODY_REDUCE:
        sx_buf_print(out, "reduce %s", sx_reducer_name(in->reducer));
        operands = 1;
        break;
    case SX_BODY_DOT:
    case SX_BODY_ONLINE:
        sx_buf_put_text(out, in->kind == SX_BODY_DOT ? "dot" : "online");
        operands = 2;
        break;
    case SX_BODY_APPLY:
        sx_buf_put_text(out, sx_op_info_of(in->op)->name);
        if (in->op == SX_OP_COMPARE) {
            sx_buf_print(out, " %s", sx_direction_name(in->direction));
        }
        operands = sx_op_info_of(in->op)->input_max;
        break;
    }
    const uint32_t operand[3] = {in->x, in->y, in->z};
    for (uint32_t i = 0; i < operands && i < SX_COUNT(operand); i++) {
        sx_buf_print(out, " %u", operand[i]);
    }
    if (in->dtype != dtype) {
        sx_buf_print(out, " : %s", sx_dtype_name(in->dtype));
    }
}

static void print_axes(const char *name, uint32_t set, sx_buf *out)
{
    sx_ints axes = {0};
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        if ((set & (1u << d)) != 0) {
            axes.v[axes.count++] = d;
        }
    }
    if (set != 0) {
        sx_buf_print(out, "%s = ", name);
        print_ints(&axes, out);
        sx_buf_put_text(out, ", ");
    }
}

static void print_body(const sx_attr *attr, const sx_symbol *symbols, uint32_t symbol_count,
                       sx_buf *out)
{
    const sx_body *body = attr->body;
    sx_buf_put_u8(out, '{');
    for (uint32_t a = 0; a < body->arg_count; a++) {
        sx_buf_put_text(out, a == 0 ? "args = [" : ", ");
        print_dims(body->access[a].stride, attr->type.rank, symbols, symbol_count, out);
        if (body->access[a].offset.scale != 0) {
            sx_buf_put_text(out, " + ");
            print_dim(body->access[a].offset, symbols, symbol_count, out);
        }
    }
    sx_buf_put_text(out, body->arg_count > 0 ? "], " : "");
    print_axes("axes", body->axes, out);
    print_axes("inner", body->inner, out);
    sx_buf_put_text(out, "code = [");
    for (uint32_t i = 0; i < body->instr_count; i++) {
        sx_buf_put_text(out, i > 0 ? ", " : "");
        print_instr(&body->instr[i], attr->type.dtype, out);
    }
    sx_buf_put_text(out, "]}");
}

/* ---- programs inside ---- */

static void print_inside(const sx_graph *graph, sx_buf *out);

/* Its lines are one step further to the right than those around it. */
static void print_program(const sx_program *program, sx_buf *out)
{
    sx_buf inside;
    sx_buf_init(&inside, SX_TEXT_BYTES_MAX);
    print_inside(program->graph, &inside);
    sx_buf_put_text(out, "graph {\n");
    for (size_t i = 0; i < inside.len; i++) {
        if (i == 0 || inside.ptr[i - 1] == '\n') {
            sx_buf_put_text(out, "    ");
        }
        sx_buf_put_u8(out, inside.ptr[i]);
    }
    sx_buf_put_text(out, "    }");
    sx_buf_fini(&inside);
}

/* ---- the graph ---- */

#define PRINT_INT(field) sx_buf_put_number(out, (int64_t)attr->field)
#define PRINT_INTS(field) print_ints(&attr->field, out)
#define PRINT_EXTENTS(field) \
    print_dims(attr->field.v, attr->field.count, symbols, symbol_count, out)
#define PRINT_FLOAT(field) print_double(attr->field, out)
#define PRINT_REDUCER(field) sx_buf_put_text(out, sx_reducer_name(attr->field))
#define PRINT_DIRECTION(field) sx_buf_put_text(out, sx_direction_name(attr->field))
#define PRINT_TYPE(field) sx_type_print(&attr->field, symbols, symbol_count, out)
#define PRINT_BYTES(field) print_data(attr->type.dtype, attr->field, out)
#define PRINT_NAME(field) print_quoted(attr->field, out)
#define PRINT_BODY(field) print_body(attr, symbols, symbol_count, out)
#define PRINT_PROGRAM(field) print_program(attr->field, out)
#define PRINT_PAIRS(field) print_pairs(&attr->field, out)
#define EMPTY_INT(field) false
#define EMPTY_INTS(field) (attr->field.count == 0)
#define EMPTY_EXTENTS(field) false
#define EMPTY_FLOAT(field) false
#define EMPTY_REDUCER(field) false
#define EMPTY_DIRECTION(field) false
#define EMPTY_TYPE(field) ((attr->present & SX_A(body)) == 0) /* written behind the colon */
#define EMPTY_BYTES(field) false
#define EMPTY_NAME(field) false
#define EMPTY_BODY(field) false
#define EMPTY_PROGRAM(field) false
#define EMPTY_PAIRS(field) (attr->field.count == 0)

void sx_attr_print(const sx_attr *attr, const sx_symbol *symbols, uint32_t symbol_count,
                   sx_buf *out)
{
    SX_ASSERT(symbols != NULL || symbol_count == 0);
    bool first = true;
#define SX_ATTR(field, kind, help)                                           \
    if ((attr->present & SX_A(field)) != 0 && !EMPTY_##kind(field)) {        \
        sx_buf_put_text(out, first ? " {" #field " = " : ", " #field " = "); \
        PRINT_##kind(field);                                                 \
        first = false;                                                       \
    }
#include "core/ir/attrs.def"
#undef SX_ATTR
    sx_buf_put_text(out, first ? "" : "}");
}

/* " state = 0", " donated", or nothing */
static void print_role(const sx_graph *graph, uint32_t index, sx_buf *out)
{
    const sx_kept *kept = sx_graph_kept(graph, index);
    if (kept != NULL && kept->role == SX_KEEP_STATE) {
        sx_buf_put_text(out, " state = ");
        print_data(graph->node[index].type.dtype, kept->initial, out);
    } else if (kept != NULL) {
        sx_buf_put_text(out, " donated");
    }
}

static void print_output(const sx_graph *graph, uint32_t index, sx_buf *out)
{
    sx_buf_print(out, "%%%u as ", graph->output[index].node.i);
    print_quoted(graph->output[index].name, out);
    uint32_t into = sx_graph_into(graph, index);
    if (into != SX_NOWHERE) {
        sx_buf_put_text(out, " into ");
        print_quoted(sx_graph_attr(graph, &graph->node[into])->name, out);
    }
    const sx_places *wanted = sx_graph_wanted(graph, index);
    if (wanted != NULL) {
        sx_buf_put_u8(out, ' ');
        sx_places_print(graph->sharding, wanted, out);
    }
}

static bool same_origin(const sx_origin *a, const sx_origin *b)
{
    return a == b || (a != NULL && b != NULL && sx_span_equal(a->name, b->name) &&
                      sx_span_equal(a->op, b->op) && a->opset == b->opset);
}

/* How many nodes from `index` on are results 0, 1, .. of one computation; 1 for all others. */
static uint32_t run_of(const sx_graph *graph, uint32_t index)
{
    const sx_node *node = &graph->node[index];
    const sx_attr *attr = sx_graph_attr(graph, node);
    const sx_places none = sx_places_none();
    uint32_t count = 1;
    if ((attr->present & SX_A(result)) == 0 || attr->result != 0) {
        return 1;
    }
    while (index + count < graph->node_count) {
        const sx_node *next = &graph->node[index + count];
        const sx_attr *its = sx_graph_attr(graph, next);
        const sx_places places = sx_graph_places(graph, index + count);
        bool same = next->op == node->op && next->input_count == node->input_count &&
                    its->result == count && sx_attr_is_sibling(attr, its) &&
                    sx_places_equal(&places, &none) &&
                    same_origin(sx_origin_find(graph->origins, index),
                                sx_origin_find(graph->origins, index + count));
        for (uint32_t k = 0; k < node->input_count && same; k++) {
            same = sx_graph_input(graph, node, k).i == sx_graph_input(graph, next, k).i;
        }
        if (!same) {
            break;
        }
        count++;
    }
    return count;
}

/* Nodes index .. index + count - 1 as one statement. */
static void print_node(const sx_graph *graph, uint32_t index, uint32_t count, sx_buf *out)
{
    const sx_node *node = &graph->node[index];
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_put_text(out, i == 0 ? "    %" : ", %");
        sx_buf_put_number(out, index + i);
    }
    sx_buf_put_text(out, " = ");
    sx_buf_put_text(out, sx_op_info_of(node->op)->name);
    for (uint32_t k = 0; k < node->input_count; k++) {
        sx_buf_put_text(out, k == 0 ? "(%" : ", %");
        sx_buf_put_number(out, sx_graph_input(graph, node, k).i);
    }
    sx_buf_put_text(out, node->input_count > 0 ? ")" : "");
    sx_attr attr = *sx_graph_attr(graph, node);
    attr.present &= count > 1 ? ~SX_A(result) : UINT64_MAX;
    sx_attr_print(&attr, graph->symbol, graph->symbol_count, out);
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_put_text(out, i == 0 ? " : " : ", ");
        sx_type_print(&graph->node[index + i].type, graph->symbol, graph->symbol_count, out);
    }
    const sx_places places = sx_graph_places(graph, index);
    const sx_places none = sx_places_none();
    if (!sx_places_equal(&places, &none)) {
        sx_buf_put_u8(out, ' ');
        sx_places_print(graph->sharding, &places, out);
    }
    print_role(graph, index, out);
    const sx_origin *origin = sx_origin_find(graph->origins, index);
    if (origin != NULL) {
        sx_buf_put_text(out, " from ");
        print_quoted(origin->name, out);
        sx_buf_put_u8(out, ' ');
        print_quoted(origin->op, out);
        sx_buf_put_u8(out, ' ');
        sx_buf_put_number(out, origin->opset);
    }
    sx_buf_put_u8(out, '\n');
}

/* What stands between the braces: nodes and outputs. */
static void print_inside(const sx_graph *graph, sx_buf *text)
{
    uint32_t count;
    for (uint32_t i = 0; i < graph->node_count; i += count) {
        count = run_of(graph, i);
        print_node(graph, i, count, text);
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        sx_buf_put_text(text, i == 0 ? "    return " : ", ");
        print_output(graph, i, text);
    }
    sx_buf_put_u8(text, '\n');
}

sx_code sx_graph_print(sx_ctx *cx, const sx_graph *graph, sx_buf *text)
{
    sx_buf_print(text, "sx %d\ngraph ", SX_TEXT_VERSION);
    print_quoted(graph->name, text);
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        const sx_symbol *s = &graph->symbol[i];
        sx_buf_put_text(text, i == 0 ? " (" : ", ");
        if (!sx_symbol_is_declared(s)) {
            sx_polynomial_print(s->sum, 1, graph->symbol, text);
            continue;
        }
        sx_symbol_print(s->name, text);
        sx_buf_print(text, " in [%lld, %lld]", (long long)s->low, (long long)s->high);
    }
    sx_buf_put_text(text, graph->symbol_count > 0 ? ")" : "");
    if (graph->sharding != NULL) {
        sx_mesh_print(graph->sharding, text);
    }
    sx_buf_put_text(text, " {\n");
    print_inside(graph, text);
    sx_buf_put_text(text, "}\n");
    return sx_buf_check(cx, text, "text of the graph");
}
