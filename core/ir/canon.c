#include "core/ir/substitute.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/check.h"
#include "core/ir/effect.h"
#include "core/ir/extent.h"
#include "core/ir/fused.h"
#include "core/ir/origin.h"
#include "core/ir/plain.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"

#define UNSEEN UINT32_MAX

typedef struct {
    sx_ctx *cx;
    const sx_graph *from;
    sx_graph *to;
    uint32_t *image; /* [from->node_count]: node of `to`, or UNSEEN */
    sx_dim symbol[SX_SYMBOLS_MAX];
    sx_idmap map; /* of to->node by content */
    bool program; /* the interface goes by position, symbols keep their numbers */
    bool symbols; /* of a program: they stay */
} canon;

typedef struct {
    uint32_t node;
    uint32_t next; /* operand to visit */
} visit;

/* Operation, attribute and operands of a node of `to`. */
typedef struct {
    sx_op op;
    sx_attr_id attr;
    const sx_node_id *input;
    uint32_t input_count;
} content;

static uint64_t content_hash(const content *c)
{
    uint64_t seed = (uint64_t)c->op << 32 | c->attr.i;
    return sx_hash64((sx_span){(const uint8_t *)c->input, c->input_count * sizeof(*c->input)},
                     seed);
}

static bool same_content(const void *self, uint32_t id, const void *probe)
{
    const sx_graph *graph = self;
    const content *c = probe;
    const sx_node *node = &graph->node[id];
    if (node->op != c->op || node->attr.i != c->attr.i || node->input_count != c->input_count) {
        return false;
    }
    for (uint32_t k = 0; k < c->input_count; k++) {
        if (graph->input[node->input_first + k].i != c->input[k].i) {
            return false;
        }
    }
    return true;
}

static sx_attr zeros(const sx_type *type)
{
    static const uint8_t zero[8] = {0};
    SX_ASSERT(sx_dtype_bytes(type->dtype) <= sizeof(zero));
    return (sx_attr){.present = SX_A(data) | SX_A(type),
                     .type = *type,
                     .data = {zero, sx_dtype_bytes(type->dtype)}};
}

/* The node of `to` that is `index` of `from`; its operands are there. A collective of one rank is its operand, or
 * zeros: nobody else has a part in it. */
static sx_code place(canon *c, uint32_t index)
{
    const sx_node *node = &c->from->node[index];
    sx_node_id input[SX_INPUTS_MAX];
    SX_ASSERT(node->input_count <= SX_INPUTS_MAX);
    for (uint32_t k = 0; k < node->input_count; k++) {
        input[k].i = c->image[sx_graph_input(c->from, node, k).i];
        SX_ASSERT(input[k].i != UNSEEN);
    }
    const sx_type *operand = node->input_count > 0 ? &c->to->node[input[0].i].type : NULL;
    sx_attr attr;
    SX_TRY(sx_substitute(c->cx, node->op, sx_graph_attr(c->from, node), operand, c->symbol, c->to,
                         &attr));
    char name[16];
    if (c->program && node->op == SX_OP_PARAMETER) {
        (void)snprintf(name, sizeof(name), "p%u", c->to->node_count);
        attr.name = sx_span_of(name);
    }
    sx_op op = node->op;
    sx_crop_settle(operand, &op, &attr);
    uint32_t input_count = node->input_count;
    if (sx_op_info_of(op)->op_class == SX_OPCLASS_COLLECTIVE && attr.ranks == 1) {
        if (input_count > 0 && (op != SX_OP_PERMUTE || attr.pairs.count == 1)) {
            c->image[index] = input[0].i;
            return SX_OK;
        }
        const sx_type place = {.dtype = SX_I64};
        attr = zeros(input_count > 0 ? operand : &place);
        op = SX_OP_CONSTANT;
        input_count = 0;
    }
    sx_node_id id;
    SX_TRY(sx_graph_add(c->cx, c->to, op, &attr, input, input_count, &id));
    /* The node is there with its attribute in normal form. If it has a twin it is taken away again. */
    const sx_node *added = &c->to->node[id.i];
    content probe = {added->op, added->attr, input, added->input_count};
    uint64_t hash = content_hash(&probe);
    uint32_t twin = sx_idmap_find(&c->map, hash, same_content, c->to, &probe);
    if (twin != SX_IDMAP_NONE) {
        c->to->node_count--;
        c->to->input_count -= input_count;
        c->image[index] = twin;
        return SX_OK;
    }
    c->image[index] = id.i;
    return sx_idmap_put(c->cx, &c->map, hash, id.i);
}

/* Depth first from one output, operands before their node, in operand order. */
static sx_code walk(canon *c, uint32_t root, visit *stack)
{
    uint32_t depth = 0;
    if (c->image[root] == UNSEEN) {
        stack[depth++] = (visit){root, 0};
    }
    while (depth > 0) {
        SX_ASSERT(depth <= c->from->node_count);
        visit *top = &stack[depth - 1];
        const sx_node *node = &c->from->node[top->node];
        if (top->next == node->input_count) {
            SX_TRY(place(c, top->node));
            depth--;
            continue;
        }
        uint32_t input = sx_graph_input(c->from, node, top->next++).i;
        SX_ASSERT(input < top->node);
        if (c->image[input] == UNSEEN) {
            stack[depth++] = (visit){input, 0};
        }
    }
    return SX_OK;
}

/* Symbols under their numbers, those of a program; where none is used they are left behind. */
static sx_code keep_symbols(canon *c)
{
    for (uint32_t i = 0; i < c->from->symbol_count; i++) {
        c->symbol[i] = (sx_dim){1, i};
    }
    return c->symbols ? sx_graph_copy_symbols(c->cx, c->from->symbol, c->from->symbol_count, c->to)
                      : SX_OK;
}

static void mark_type(const sx_type *type, bool *used)
{
    for (uint32_t d = 0; d < type->rank; d++) {
        if (!sx_dim_is_constant(type->dim[d])) {
            sx_dim factor[2]; /* strides of a fused node come as a type */
            bool both = sx_dim_factors(type->dim[d], factor);
            used[both ? factor[0].symbol : type->dim[d].symbol] = true;
            used[both ? factor[1].symbol : type->dim[d].symbol] = true;
        }
    }
}

/* The symbols that a node needs, with those of its programs. */
static void mark_node(const sx_graph *graph, const sx_node *node, bool *used)
{
    const sx_attr *attr = sx_graph_attr(graph, node);
    const sx_program *inner[SX_ATTR_PROGRAMS_MAX];
    uint32_t count = sx_node_programs(graph, node, inner);
    mark_type(&node->type, used);
    mark_type(&attr->type, used);
    if ((attr->present & SX_A(origin)) != 0) {
        sx_type origin = {.rank = attr->origin.count};
        memcpy(origin.dim, attr->origin.v, sizeof(origin.dim));
        mark_type(&origin, used);
    }
    for (uint32_t a = 0; attr->body != NULL && a < attr->body->arg_count; a++) {
        sx_type access = {.rank = SX_RANK_MAX};
        memcpy(access.dim, attr->body->access[a].stride, sizeof(access.dim));
        access.rank = attr->type.rank;
        mark_type(&access, used);
        access = (sx_type){.rank = 1, .dim = {attr->body->access[a].offset}};
        mark_type(&access, used);
    }
    for (uint32_t k = 0; k < count; k++) {
        for (uint32_t n = 0; n < inner[k]->graph->node_count; n++) {
            mark_node(inner[k]->graph, &inner[k]->graph->node[n], used);
        }
    }
}

/* The symbols of all that is not dead. */
static sx_code mark_used(canon *c, bool *used)
{
    const sx_graph *graph = c->from;
    bool *alive = SX_NEW_ARRAY(c->cx, bool, graph->node_count + 1);
    if (alive == NULL) {
        return c->cx->error.code;
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        alive[graph->output[k].node.i] = true;
    }
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const sx_node *node = &graph->node[n];
        for (uint32_t k = 0; k < node->input_count && alive[n]; k++) {
            alive[sx_graph_input(graph, node, k).i] = true;
        }
        if (alive[n] || node->op == SX_OP_PARAMETER) {
            mark_node(graph, node, used);
        }
    }
    return SX_OK;
}

/* Sums over the new numbers, those that are used, in their order behind the declared symbols. */
static sx_code sort_sums(canon *c)
{
    const sx_graph *from = c->from;
    sx_polynomial *sum = SX_NEW_ARRAY(c->cx, sx_polynomial, SX_SYMBOLS_MAX);
    uint32_t order[SX_SYMBOLS_MAX];
    uint32_t count = 0;
    bool used[SX_SYMBOLS_MAX] = {false};
    if (sum == NULL) {
        return c->cx->error.code;
    }
    SX_TRY(mark_used(c, used));
    for (uint32_t s = 0; s < from->symbol_count; s++) {
        if (sx_symbol_is_declared(&from->symbol[s]) || !used[s]) {
            continue;
        }
        bool same = sx_polynomial_rename(from->symbol[s].sum, c->symbol, &sum[s]);
        SX_ASSERT(same); /* as many terms of as many factors */
        uint32_t at = count++;
        while (at > 0 && sx_polynomial_compare(&sum[order[at - 1]], &sum[s]) > 0) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = s;
    }
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(sx_graph_add_extent(c->cx, c->to, &sum[order[i]], &c->symbol[order[i]]));
        SX_ASSERT(c->symbol[order[i]].scale == 1);
    }
    return SX_OK;
}

/* Symbols in the order of their names. */
static sx_code sort_symbols(canon *c)
{
    uint32_t order[SX_SYMBOLS_MAX];
    uint32_t count = 0;
    SX_ASSERT(c->from->symbol_count <= SX_SYMBOLS_MAX);
    for (uint32_t i = 0; i < c->from->symbol_count; i++) {
        if (!sx_symbol_is_declared(&c->from->symbol[i])) {
            continue;
        }
        uint32_t at = count++;
        while (at > 0 &&
               sx_span_compare(c->from->symbol[order[at - 1]].name, c->from->symbol[i].name) > 0) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        const sx_symbol *s = &c->from->symbol[order[i]];
        uint32_t symbol;
        SX_TRY(sx_graph_add_symbol(c->cx, c->to, s->name, s->low, s->high, &symbol));
        c->symbol[order[i]] = (sx_dim){1, symbol};
    }
    return count < c->from->symbol_count ? sort_sums(c) : SX_OK;
}

/* The canonical form in c->to; c->from is made plain, and c->image says which node of c->to each of its nodes
 * became, or UNSEEN. */
static sx_code make_canonical(canon *c)
{
    SX_TRY(sx_graph_plain(c->cx, c->from, &c->from));
    const sx_graph *graph = c->from;
    SX_TRY(sx_graph_make(c->cx, (sx_span){0}, NULL, &c->to));
    c->image = SX_NEW_ARRAY(c->cx, uint32_t, graph->node_count);
    visit *stack = SX_NEW_ARRAY(c->cx, visit, graph->node_count);
    if (c->image == NULL || stack == NULL) {
        return c->cx->error.code;
    }
    memset(c->image, 0xff, graph->node_count * sizeof(*c->image)); /* all UNSEEN */
    SX_TRY(c->program ? keep_symbols(c) : sort_symbols(c));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->node[i].op == SX_OP_PARAMETER) {
            SX_TRY(place(c, i));
        }
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        SX_TRY(walk(c, graph->output[i].node.i, stack));
        sx_node_id node = {c->image[graph->output[i].node.i]};
        char name[16];
        (void)snprintf(name, sizeof(name), "r%u", i);
        SX_TRY(sx_graph_add_output(c->cx, c->to,
                                   c->program ? sx_span_of(name) : graph->output[i].name, node));
    }
    SX_TRY(sx_effects_copy(c->cx, graph, c->image, c->to));
    return sx_sharding_copy(c->cx, graph, c->image, c->to);
}

sx_code sx_graph_canon(sx_ctx *cx, const sx_graph *graph, sx_graph **canonical)
{
    canon c = {.cx = cx, .from = graph};
    SX_TRY(make_canonical(&c));
    *canonical = c.to;
    SX_ASSERT((*canonical)->node_count <= c.from->node_count &&
              (*canonical)->output_count == graph->output_count);
    return SX_OK;
}

sx_code sx_graph_canon_program(sx_ctx *cx, const sx_graph *graph, bool symbols,
                               sx_graph **canonical)
{
    canon c = {.cx = cx, .from = graph, .program = true, .symbols = symbols};
    SX_TRY(make_canonical(&c));
    *canonical = c.to;
    SX_ASSERT((*canonical)->output_count == graph->output_count);
    return SX_OK;
}

sx_code sx_graph_canon_origins(sx_ctx *cx, const sx_graph *graph, sx_graph **canonical,
                               sx_origins **origins)
{
    canon c = {.cx = cx, .from = graph};
    SX_TRY(make_canonical(&c));
    *canonical = c.to;
    SX_ASSERT((*canonical)->output_count == graph->output_count);
    sx_graph names = {0};                             /* takes the origins alone */
    for (uint32_t i = c.from->node_count; i-- > 0;) { /* of merged nodes the first is the last */
        const sx_origin *origin = sx_origin_find(c.from->origins, i);
        if (origin != NULL && c.image[i] != UNSEEN) {
            SX_TRY(sx_graph_set_origin(cx, &names, c.image[i], origin));
        }
    }
    *origins = names.origins;
    return SX_OK;
}

sx_code sx_graph_key(sx_ctx *cx, const sx_graph *graph, sx_key *key)
{
    sx_graph *canonical;
    SX_TRY(sx_graph_canon(cx, graph, &canonical));
    return sx_graph_key_canonical(cx, canonical, key);
}

sx_code sx_graph_key_canonical(sx_ctx *cx, const sx_graph *canonical, sx_key *key)
{
    sx_buf text;
    sx_buf_init(&text, 2 * SX_TEXT_BYTES_MAX);
    sx_code code = sx_graph_print(cx, canonical, &text);
    if (code == SX_OK) {
        sx_span part = sx_buf_span(&text);
        *key = sx_key_of("program", &part, 1);
    }
    sx_buf_fini(&text);
    return code;
}
