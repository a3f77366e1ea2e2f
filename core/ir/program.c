#include "core/ir/program.h"

#include <string.h>

#include "core/ir/check.h"
#include "core/ir/extent.h"
#include "core/ir/substitute.h"

#define FIELD_INT(name)
#define FIELD_INTS(name)
#define FIELD_EXTENTS(name)
#define FIELD_FLOAT(name)
#define FIELD_REDUCER(name)
#define FIELD_DIRECTION(name)
#define FIELD_TYPE(name)
#define FIELD_BYTES(name)
#define FIELD_NAME(name)
#define FIELD_BODY(name)
#define FIELD_PAIRS(name)
#define FIELD_PROGRAM(name)                                        \
    if ((attr->present & SX_A(name)) != 0 && attr->name != NULL) { \
        SX_ASSERT(count < SX_ATTR_PROGRAMS_MAX);                   \
        field[count++] = &attr->name;                              \
    }

uint32_t sx_attr_programs(sx_attr *attr, const sx_program **field[SX_ATTR_PROGRAMS_MAX])
{
    uint32_t count = 0;
#define SX_ATTR(name, kind, help) FIELD_##kind(name)
#include "core/ir/attrs.def"
#undef SX_ATTR
    return count;
}

uint32_t sx_region_result_count(sx_op op, const sx_attr *attr)
{
    SX_ASSERT(sx_op_info_of(op)->op_class == SX_OPCLASS_REGION);
    return (op == SX_OP_COND ? attr->then : attr->step)->graph->output_count;
}

uint32_t sx_node_programs(const sx_graph *graph, const sx_node *node,
                          const sx_program *program[SX_ATTR_PROGRAMS_MAX])
{
    if (sx_op_info_of(node->op)->op_class != SX_OPCLASS_REGION) {
        return 0;
    }
    sx_attr attr = *sx_graph_attr(graph, node);
    const sx_program **field[SX_ATTR_PROGRAMS_MAX];
    uint32_t count = sx_attr_programs(&attr, field);
    for (uint32_t k = 0; k < count; k++) {
        program[k] = *field[k];
    }
    return count;
}

bool sx_collective_find(const sx_graph *graph, sx_collective *found)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        const sx_program *inner[SX_ATTR_PROGRAMS_MAX];
        uint32_t count = sx_node_programs(graph, node, inner);
        if (sx_op_info_of(node->op)->op_class == SX_OPCLASS_COLLECTIVE) {
            *found = (sx_collective){n, node->op, sx_graph_attr(graph, node)};
            return true;
        }
        for (uint32_t k = 0; k < count; k++) { /* SX_PROGRAM_DEPTH_MAX deep */
            if (inner[k]->collective && sx_collective_find(inner[k]->graph, found)) {
                found->node = n;
                return true;
            }
        }
    }
    return false;
}

static bool has_symbols(const sx_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        sx_attr attr = *sx_graph_attr(graph, &graph->node[i]);
        const sx_program **inner[SX_ATTR_PROGRAMS_MAX];
        uint32_t count = sx_attr_programs(&attr, inner);
        bool inside = false;
        for (uint32_t k = 0; k < count; k++) {
            inside = inside || (*inner[k])->graph->symbol_count > 0;
        }
        if (inside || !sx_type_is_static(&graph->node[i].type)) {
            return true;
        }
    }
    return false;
}

/* What a body may hold, and how large it is. */
static sx_code measure(sx_ctx *cx, const sx_graph *graph, sx_program *program)
{
    uint64_t nodes = graph->node_count;
    program->depth = 1;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        sx_attr attr = *sx_graph_attr(graph, node);
        const sx_program **inner[SX_ATTR_PROGRAMS_MAX];
        uint32_t count = sx_attr_programs(&attr, inner);
        for (uint32_t k = 0; k < count; k++) {
            uint32_t depth = (*inner[k])->depth + 1;
            program->depth = depth > program->depth ? depth : program->depth;
            nodes += (*inner[k])->node_count;
        }
        if (node->op == SX_OP_PARAMETER) {
            program->parameter_count++;
            if (attr.weight != 0) {
                return SX_FAIL(cx, SX_INPUT, "parameter \"%s\" of a program inside is a weight",
                               sx_short_name(attr.name).text);
            }
        }
    }
    if (graph->sharding != NULL) {
        return SX_FAIL(cx, SX_INPUT, "a program inside has a mesh");
    }
    if (graph->effects != NULL) {
        return SX_FAIL(cx, SX_INPUT, "a program inside has a parameter that is state or donated");
    }
    if (program->depth > SX_PROGRAM_DEPTH_MAX || nodes > SX_PROGRAM_NODES_MAX ||
        program->parameter_count > SX_INPUTS_MAX || graph->output_count > SX_PROGRAM_RESULTS_MAX) {
        return SX_FAIL(cx, SX_LIMIT,
                       "a program inside: depth %u, %llu nodes, %u parameters, %u results, at most "
                       "%u, %u, %d, %u",
                       program->depth, (unsigned long long)nodes, program->parameter_count,
                       graph->output_count, SX_PROGRAM_DEPTH_MAX, SX_PROGRAM_NODES_MAX,
                       SX_INPUTS_MAX, SX_PROGRAM_RESULTS_MAX);
    }
    sx_collective first;
    program->node_count = (uint32_t)nodes;
    program->collective = sx_collective_find(graph, &first);
    return SX_OK;
}

sx_code sx_program_make(sx_ctx *cx, const sx_graph *graph, const sx_program **program)
{
    SX_ASSERT(graph->output_count > 0);
    sx_program *made = SX_NEW(cx, sx_program);
    if (made == NULL) {
        return cx->error.code;
    }
    SX_TRY(measure(cx, graph, made));
    sx_graph *canonical;
    SX_TRY(sx_graph_canon_program(cx, graph, has_symbols(graph), &canonical));
    made->graph = canonical;
    made->parameter_count = 0;
    SX_TRY(measure(cx, canonical, made)); /* what is dead is gone */
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_code code = sx_graph_print(cx, canonical, &text);
    if (code == SX_OK) {
        made->text.ptr = (const uint8_t *)sx_alloc_text(cx, sx_buf_span(&text));
        made->text.len = text.len;
        code = made->text.ptr != NULL ? SX_OK : cx->error.code;
    }
    sx_buf_fini(&text);
    *program = made;
    SX_ASSERT(code != SX_OK || made->parameter_count <= SX_INPUTS_MAX);
    return code;
}

/* `graph` with symbol s as image[s], over the symbols of `to`; image NULL: as it is, over its own. */
static sx_code rebuild(sx_ctx *cx, const sx_graph *graph, const sx_dim *image, const sx_graph *to,
                       sx_graph **out)
{
    SX_TRY(sx_graph_make(cx, (sx_span){0}, NULL, out));
    SX_TRY(sx_graph_copy_symbols(cx, to->symbol, to->symbol_count, *out));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        const sx_node_id *input = node->input_count > 0 ? &graph->input[node->input_first] : NULL;
        const sx_type *operand = input != NULL ? &(*out)->node[input[0].i].type : NULL;
        sx_attr attr = *sx_graph_attr(graph, node);
        if (image != NULL) {
            SX_TRY(sx_substitute(cx, node->op, sx_graph_attr(graph, node), operand, image, *out,
                                 &attr));
        }
        sx_op op = node->op;
        sx_crop_settle(operand, &op, &attr);
        sx_node_id id;
        SX_TRY(sx_graph_add(cx, *out, op, &attr, input, node->input_count, &id));
        SX_ASSERT(id.i == i);
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        SX_TRY(sx_graph_add_output(cx, *out, graph->output[i].name, graph->output[i].node));
    }
    return SX_OK;
}

sx_code sx_program_copy(sx_ctx *cx, const sx_program *program, const sx_program **copy)
{
    SX_ASSERT(program != NULL && program->text.len > 0);
    sx_program *made = SX_NEW(cx, sx_program);
    const char *text = sx_alloc_text(cx, program->text);
    sx_graph *graph;
    if (made == NULL || text == NULL) {
        return cx->error.code;
    }
    SX_TRY(rebuild(cx, program->graph, NULL, program->graph, &graph));
    *made = *program;
    made->graph = graph;
    made->text.ptr = (const uint8_t *)text;
    *copy = made;
    return SX_OK;
}

static bool same_symbols(const sx_graph *a, const sx_graph *b)
{
    return a->symbol_count == b->symbol_count &&
           sx_symbols_equal(a->symbol, b->symbol, a->symbol_count, true);
}

sx_code sx_program_substitute(sx_ctx *cx, const sx_program *program, const sx_dim *image,
                              const sx_graph *to, const sx_program **result)
{
    SX_ASSERT(program != NULL && to != NULL);
    sx_graph *graph;
    bool as_it_is = program->graph->symbol_count == 0 || same_symbols(program->graph, to);
    for (uint32_t s = 0; s < program->graph->symbol_count && as_it_is; s++) {
        as_it_is = image[s].scale == 1 && image[s].symbol == s;
    }
    if (as_it_is) {
        *result = program;
        return SX_OK;
    }
    SX_TRY(rebuild(cx, program->graph, image, to, &graph));
    return sx_program_make(cx, graph, result);
}

sx_code sx_attr_over(sx_ctx *cx, const sx_graph *graph, sx_attr *attr)
{
    const sx_program **field[SX_ATTR_PROGRAMS_MAX];
    uint32_t count = sx_attr_programs(attr, field);
    for (uint32_t k = 0; k < count; k++) {
        const sx_graph *from = (*field[k])->graph;
        if (from->symbol_count == 0 || same_symbols(from, graph)) {
            continue;
        }
        if (from->symbol_count > graph->symbol_count) {
            return SX_FAIL(cx, SX_INPUT, "a program inside has %u symbols, the graph around it %u",
                           from->symbol_count, graph->symbol_count);
        }
        sx_dim image[SX_SYMBOLS_MAX];
        for (uint32_t s = 0; s < from->symbol_count; s++) {
            image[s] = (sx_dim){1, s};
        }
        SX_TRY(sx_program_substitute(cx, *field[k], image, graph, field[k]));
    }
    return SX_OK;
}
