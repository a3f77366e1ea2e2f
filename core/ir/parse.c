#include "core/ir/parse.h"

#include <string.h>

#include "core/ir/check.h"
#include "core/ir/collective.h"
#include "core/ir/effect.h"
#include "core/ir/extent.h"
#include "core/ir/origin.h"
#include "core/ir/program.h"

/* Value names seen so far. */
typedef struct {
    sx_span name;
    sx_node_id node;
} value;

typedef struct {
    sx_lexer lex;
    bool named; /* nodes without an origin go by their values */
    sx_graph *graph;
    value *value;
    uint32_t value_count, value_capacity;
    sx_idmap map; /* of value by name */
} parser;

static bool same_value(const void *self, uint32_t id, const void *probe)
{
    const parser *p = self;
    return sx_span_equal(p->value[id].name, *(const sx_span *)probe);
}

static uint32_t find_value(const parser *p, sx_span name)
{
    return sx_idmap_find(&p->map, sx_hash64(name, 0), same_value, p, &name);
}

static sx_code use_value(parser *p, sx_node_id *node)
{
    if (p->lex.token.kind != SX_TOKEN_VALUE) {
        return sx_lex_unexpected(&p->lex, "a value");
    }
    uint32_t found = find_value(p, p->lex.token.text);
    if (found == SX_IDMAP_NONE) {
        return sx_lex_fail(&p->lex, SX_INPUT, "value %%%s is not defined above",
                           sx_short_name(p->lex.token.text).text);
    }
    *node = p->value[found].node;
    return sx_lex_next(&p->lex);
}

static sx_code define_value(parser *p, sx_span name, sx_node_id node)
{
    void *array = p->value;
    SX_TRY(sx_grow(p->lex.cx, &array, &p->value_capacity, p->value_count + 1, sizeof(value)));
    p->value = array;
    p->value[p->value_count] = (value){name, node};
    SX_TRY(sx_idmap_put(p->lex.cx, &p->map, sx_hash64(name, 0), p->value_count));
    p->value_count++;
    return SX_OK;
}

/* "+", "-", or the sign of the number that comes, which belongs to it. */
static sx_code parse_sign(sx_lexer *lex, int64_t *sign, bool *more)
{
    bool minus = lex->token.kind == SX_TOKEN_NUMBER && lex->token.text.ptr[0] == '-';
    bool alone = minus && lex->token.text.len == 1;
    *sign = alone ? -1 : 1;
    *more = minus || sx_lex_is_mark(lex, '+');
    return alone || (*more && !minus) ? sx_lex_next(lex) : SX_OK;
}

static sx_code parse_symbol(sx_lexer *lex, const sx_graph *graph, sx_dim *dim)
{
    sx_span name = lex->token.text;
    sx_lexer at = *lex;
    *dim = sx_dim_of(1);
    if (lex->token.kind == SX_TOKEN_STRING) {
        SX_TRY(sx_lex_string(lex, &name));
    } else if (lex->token.kind == SX_TOKEN_NAME) {
        SX_TRY(sx_lex_next(lex));
    } else {
        return sx_lex_unexpected(lex, "an extent");
    }
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        if (sx_symbol_is_declared(&graph->symbol[i]) &&
            sx_span_equal(graph->symbol[i].name, name)) {
            dim->symbol = i;
            return SX_OK;
        }
    }
    return sx_lex_fail(&at, SX_INPUT, "symbol \"%s\" is not declared", sx_short_name(name).text);
}

/* 2*batch*seq */
static sx_code parse_product(sx_lexer *lex, const sx_graph *graph, sx_polynomial *product)
{
    bool more = true;
    (void)sx_polynomial_of(NULL, sx_dim_of(1), product);
    while (more) {
        sx_lexer at = *lex;
        sx_polynomial factor = {.count = 1, .term = {product->term[0]}};
        sx_dim dim = sx_dim_of(1);
        if (lex->token.kind == SX_TOKEN_NUMBER) {
            SX_TRY(sx_lex_int(lex, &dim.scale));
        } else {
            SX_TRY(parse_symbol(lex, graph, &dim));
        }
        if (!sx_polynomial_of(graph->symbol, dim, &factor) ||
            !sx_polynomial_multiply(product, &factor, product)) {
            return sx_lex_fail(&at, SX_LIMIT, "a product of more than %u symbols, or too large",
                               SX_FACTORS_MAX);
        }
        SX_TRY(sx_lex_accept(lex, '*', &more));
    }
    return SX_OK;
}

sx_code sx_parse_dim(sx_lexer *lex, sx_graph *graph, sx_dim *dim)
{
    sx_lexer at = *lex;
    sx_polynomial sum = {0};
    int64_t sign = 1;
    bool more = true;
    if (lex->token.kind == SX_TOKEN_NUMBER && lex->token.text.len == 1) {
        SX_TRY(parse_sign(lex, &sign, &more));
    }
    for (more = true; more;) {
        sx_polynomial product;
        SX_TRY(parse_product(lex, graph, &product));
        if (!sx_polynomial_add(&sum, &product, sign)) {
            return sx_lex_fail(&at, SX_LIMIT, "a sum of more than %u terms, or too large",
                               SX_TERMS_MAX);
        }
        SX_TRY(parse_sign(lex, &sign, &more));
    }
    if (sx_graph_add_extent(lex->cx, graph, &sum, dim) != SX_OK) {
        return sx_fail_in(lex->cx, "line %u:%u", at.token.line, at.token.column);
    }
    return SX_OK;
}

/* A factor of "(seq*seq)" or "((past + 1)*seq)". */
static sx_code parse_factor(sx_lexer *lex, sx_graph *graph, sx_dim *dim)
{
    if (!sx_lex_is_mark(lex, '(')) {
        return parse_symbol(lex, graph, dim);
    }
    SX_TRY(sx_lex_mark(lex, '('));
    SX_TRY(sx_parse_dim(lex, graph, dim));
    return sx_lex_mark(lex, ')');
}

sx_code sx_parse_step(sx_lexer *lex, sx_graph *graph, sx_dim *dim)
{
    sx_lexer at = *lex, start = *lex;
    sx_dim scale = sx_dim_of(1), left, right;
    bool number = lex->token.kind == SX_TOKEN_NUMBER && lex->token.text.ptr[0] != '-';
    bool times = !number;
    if (number) {
        SX_TRY(sx_lex_int(lex, &scale.scale));
        SX_TRY(sx_lex_accept(lex, '*', &times));
    }
    if (!times || !sx_lex_is_mark(lex, '(')) { /* no product of two symbols */
        *lex = start;
        return sx_parse_dim(lex, graph, dim);
    }
    SX_TRY(sx_lex_mark(lex, '('));
    SX_TRY(parse_factor(lex, graph, &left));
    SX_TRY(sx_lex_mark(lex, '*'));
    SX_TRY(parse_factor(lex, graph, &right));
    SX_TRY(sx_lex_mark(lex, ')'));
    return scale.scale >= 0 && sx_dim_product(scale, left, &scale) &&
                   sx_dim_product(scale, right, dim)
               ? SX_OK
               : sx_lex_fail(&at, SX_LIMIT, "a stride is no product of two symbols, or too large");
}

/* `steps`: strides, which may be products. */
static sx_code parse_list(sx_lexer *lex, sx_graph *graph, bool steps, sx_dim dim[SX_RANK_MAX],
                          uint32_t *count)
{
    *count = 0;
    SX_TRY(sx_lex_mark(lex, '['));
    bool more = !sx_lex_is_mark(lex, ']');
    while (more) {
        if (*count == SX_RANK_MAX) {
            return sx_lex_fail(lex, SX_LIMIT, "more than %d dimensions", SX_RANK_MAX);
        }
        SX_TRY((steps ? sx_parse_step : sx_parse_dim)(lex, graph, &dim[*count]));
        (*count)++;
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    return sx_lex_mark(lex, ']');
}

sx_code sx_parse_dims(sx_lexer *lex, sx_graph *graph, sx_dim dim[SX_RANK_MAX], uint32_t *count)
{
    return parse_list(lex, graph, false, dim, count);
}

sx_code sx_parse_steps(sx_lexer *lex, sx_graph *graph, sx_dim dim[SX_RANK_MAX], uint32_t *count)
{
    return parse_list(lex, graph, true, dim, count);
}

sx_code sx_parse_type(sx_lexer *lex, sx_graph *graph, sx_type *type)
{
    *type = (sx_type){0};
    if (lex->token.kind != SX_TOKEN_NAME || !sx_dtype_parse(lex->token.text, &type->dtype)) {
        return sx_lex_unexpected(lex, "an element type");
    }
    SX_TRY(sx_lex_next(lex));
    return sx_parse_dims(lex, graph, type->dim, &type->rank);
}

/* ---- statements ---- */

static sx_code parse_inputs(parser *p, sx_node_id input[SX_INPUTS_MAX], uint32_t *count)
{
    *count = 0;
    bool taken;
    SX_TRY(sx_lex_accept(&p->lex, '(', &taken));
    if (!taken) {
        return SX_OK;
    }
    bool more = !sx_lex_is_mark(&p->lex, ')');
    while (more) {
        if (*count == SX_INPUTS_MAX) {
            return sx_lex_fail(&p->lex, SX_LIMIT, "more than %d operands", SX_INPUTS_MAX);
        }
        SX_TRY(use_value(p, &input[(*count)++]));
        SX_TRY(sx_lex_accept(&p->lex, ',', &more));
    }
    return sx_lex_mark(&p->lex, ')');
}

/* The type written behind the colon is the one the operation computes. */
static sx_code check_declared(parser *p, const sx_token *at, const sx_type *declared,
                              const sx_type *inferred)
{
    if (sx_type_equal(declared, inferred)) {
        return SX_OK;
    }
    sx_buf text;
    sx_buf_init(&text, 4096);
    sx_type_print(declared, p->graph->symbol, p->graph->symbol_count, &text);
    sx_buf_put_text(&text, " is written, the operation gives ");
    sx_type_print(inferred, p->graph->symbol, p->graph->symbol_count, &text);
    sx_code code = SX_FAIL(p->lex.cx, SX_INPUT, "line %u:%u: type %.*s", at->line, at->column,
                           (int)text.len, text.ptr == NULL ? "" : (const char *)text.ptr);
    sx_buf_fini(&text);
    return code;
}

/* {dp = S(0)} behind the type of a parameter, or nothing */
static sx_code parse_placement(parser *p, sx_node_id id)
{
    sx_lexer *lex = &p->lex;
    sx_token at = lex->token;
    if (!sx_lex_is_mark(lex, '{')) {
        return SX_OK;
    }
    if (p->graph->sharding == NULL || p->graph->node[id.i].op != SX_OP_PARAMETER) {
        return sx_lex_fail(lex, SX_INPUT,
                           p->graph->sharding == NULL ? "a placement, and the graph has no mesh"
                                                      : "a placement of what is no parameter");
    }
    sx_places places;
    SX_TRY(sx_parse_places(lex, p->graph, &places));
    for (uint32_t a = 0; a < SX_MESH_AXES_MAX; a++) {
        if (places.at[a] > SX_PLACE_R) {
            return SX_FAIL(lex->cx, SX_INPUT, "line %u:%u: a parameter cannot be P", at.line,
                           at.column);
        }
    }
    if (sx_graph_place(lex->cx, p->graph, id, &places) != SX_OK) {
        return sx_fail_in(lex->cx, "line %u:%u", at.line, at.column);
    }
    return SX_OK;
}

/* {dp = S(0)} behind the name of an output, or nothing */
static sx_code parse_demand(parser *p)
{
    sx_lexer *lex = &p->lex;
    sx_token at = lex->token;
    if (!sx_lex_is_mark(lex, '{')) {
        return SX_OK;
    }
    if (p->graph->sharding == NULL) {
        return sx_lex_fail(lex, SX_INPUT, "a placement, and the graph has no mesh");
    }
    sx_places places;
    SX_TRY(sx_parse_places(lex, p->graph, &places));
    if (sx_graph_want(lex->cx, p->graph, p->graph->output_count - 1, &places) != SX_OK) {
        return sx_fail_in(lex->cx, "line %u:%u", at.line, at.column);
    }
    return SX_OK;
}

/* state = 0, or donated, behind the type of a parameter; or nothing */
static sx_code parse_role(parser *p, sx_node_id id)
{
    sx_lexer *lex = &p->lex;
    sx_token at = lex->token;
    bool state = sx_lex_is_word(lex, "state");
    sx_span initial = {0};
    if (!state && !sx_lex_is_word(lex, "donated")) {
        return SX_OK;
    }
    const sx_node *node = &p->graph->node[id.i];
    if (node->op != SX_OP_PARAMETER) {
        return sx_lex_fail(lex, SX_INPUT, "what is no parameter cannot be %s",
                           state ? "state" : "donated");
    }
    SX_TRY(sx_lex_next(lex));
    bool given = false;
    SX_TRY(state ? sx_lex_accept(lex, '=', &given) : SX_OK);
    SX_TRY(given ? sx_parse_data(lex, &node->type, &initial) : SX_OK);
    if (sx_graph_keep(lex->cx, p->graph, id, state ? SX_KEEP_STATE : SX_KEEP_DONATED, initial) !=
        SX_OK) {
        return sx_fail_in(lex->cx, "line %u:%u", at.line, at.column);
    }
    return SX_OK;
}

/* into "cache" behind the name of an output, or nothing */
static sx_code parse_into(parser *p)
{
    sx_lexer *lex = &p->lex;
    sx_token at = lex->token;
    sx_span parameter;
    if (!sx_lex_is_word(lex, "into")) {
        return SX_OK;
    }
    SX_TRY(sx_lex_next(lex));
    SX_TRY(sx_lex_string(lex, &parameter));
    if (sx_graph_put_into(lex->cx, p->graph, p->graph->output_count - 1, parameter) != SX_OK) {
        return sx_fail_in(lex->cx, "line %u:%u", at.line, at.column);
    }
    return SX_OK;
}

/* A copy in the arena: the text may not live as long as the graph. */
static sx_code parse_copy(sx_lexer *lex, sx_span *copy)
{
    sx_span text;
    SX_TRY(sx_lex_string(lex, &text));
    char *bytes = sx_alloc(lex->cx, text.len + 1);
    if (bytes == NULL) {
        return lex->cx->error.code;
    }
    if (text.len > 0) {
        memcpy(bytes, text.ptr, text.len);
    }
    *copy = (sx_span){(const uint8_t *)bytes, text.len};
    return SX_OK;
}

/* from "/conv1/Conv" "Conv" 17, or nothing */
static sx_code parse_origin(parser *p, sx_node_id id)
{
    sx_lexer *lex = &p->lex;
    sx_origin origin;
    if (lex->token.kind != SX_TOKEN_NAME || !sx_span_is(lex->token.text, "from")) {
        return SX_OK;
    }
    SX_TRY(sx_lex_next(lex));
    SX_TRY(parse_copy(lex, &origin.name));
    SX_TRY(parse_copy(lex, &origin.op));
    SX_TRY(sx_lex_int(lex, &origin.opset));
    return sx_graph_set_origin(lex->cx, p->graph, id.i, &origin);
}

/* Without an origin the node goes by the name of its value, where that is asked for. */
static sx_code name_by_value(parser *p, sx_span name, sx_node_id id)
{
    const sx_node *node = &p->graph->node[id.i];
    if (!p->named || node->op == SX_OP_PARAMETER ||
        sx_origin_find(p->graph->origins, id.i) != NULL) {
        return SX_OK;
    }
    char *text = sx_alloc(p->lex.cx, name.len + 2);
    if (text == NULL) {
        return p->lex.cx->error.code;
    }
    text[0] = '%';
    memcpy(text + 1, name.ptr, name.len);
    sx_origin origin = {.name = sx_span_of(text), .op = sx_span_of(sx_op_info_of(node->op)->name)};
    return sx_graph_set_origin(p->lex.cx, p->graph, id.i, &origin);
}

/* The values that a statement defines. */
typedef struct {
    sx_span name[SX_PROGRAM_RESULTS_MAX];
    uint32_t count;
} names;

/* %a, %b */
static sx_code parse_names(parser *p, names *n)
{
    sx_lexer *lex = &p->lex;
    bool more = true;
    n->count = 0;
    while (more) {
        sx_span name = lex->token.text;
        if (lex->token.kind != SX_TOKEN_VALUE) {
            return sx_lex_unexpected(lex, "a value");
        }
        bool twice = find_value(p, name) != SX_IDMAP_NONE;
        for (uint32_t i = 0; i < n->count; i++) {
            twice = twice || sx_span_equal(n->name[i], name);
        }
        if (twice) {
            return sx_lex_fail(lex, SX_INPUT, "value %%%s is defined twice",
                               sx_short_name(name).text);
        }
        if (n->count == SX_PROGRAM_RESULTS_MAX) {
            return sx_lex_fail(lex, SX_LIMIT, "more than %u results", SX_PROGRAM_RESULTS_MAX);
        }
        n->name[n->count++] = name;
        SX_TRY(sx_lex_next(lex));
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    return SX_OK;
}

/* A value alone is result 0 unless another one is written; several are the results from 0 on. */
static sx_code check_results(parser *p, sx_op op, uint32_t count, const sx_attr *attr)
{
    bool carries = (sx_op_info_of(op)->attrs & SX_A(result)) != 0;
    if (count > 1 && (!carries || (attr->present & SX_A(result)) != 0)) {
        return sx_lex_fail(&p->lex, SX_INPUT,
                           carries ? "%s: %u values and the attribute result"
                                   : "%s has one result, %u values are written",
                           sx_op_info_of(op)->name, count);
    }
    return SX_OK;
}

/* : type, type {placement} state = data from "name" "operator" opset */
static sx_code parse_results(parser *p, const names *n, const sx_token *op_token, sx_op op,
                             sx_attr *attr, const sx_node_id *input, uint32_t input_count,
                             const sx_lexer *data_at)
{
    sx_lexer *lex = &p->lex;
    sx_node_id id[SX_PROGRAM_RESULTS_MAX];
    for (uint32_t i = 0; i < n->count; i++) {
        SX_TRY(sx_lex_mark(lex, i == 0 ? ':' : ','));
        sx_token type_token = lex->token;
        sx_type type;
        SX_TRY(sx_parse_type(lex, p->graph, &type));
        if (sx_parse_type_is_result(op)) {
            attr->present |= SX_A(type);
            attr->type = type;
        }
        if ((attr->present & SX_A(data)) != 0) {
            sx_lexer data = *data_at;
            SX_TRY(sx_parse_data(&data, &type, &attr->data));
        }
        attr->result += i > 0 ? 1 : 0;
        sx_code code = sx_graph_add(lex->cx, p->graph, op, attr, input, input_count, &id[i]);
        if (code != SX_OK) {
            return sx_fail_in(lex->cx, "line %u:%u", op_token->line, op_token->column);
        }
        SX_TRY(check_declared(p, &type_token, &type, &p->graph->node[id[i].i].type));
    }
    SX_TRY(parse_placement(p, id[0]));
    SX_TRY(parse_role(p, id[0]));
    sx_lexer origin = *lex;
    for (uint32_t i = 0; i < n->count; i++) {
        *lex = origin;
        SX_TRY(parse_origin(p, id[i]));
        SX_TRY(name_by_value(p, n->name[i], id[i]));
        SX_TRY(define_value(p, n->name[i], id[i]));
    }
    return SX_OK;
}

/* %name = op(%a, %b) {attributes} : type {placement} state = data from "name" "operator" opset */
static sx_code parse_node(parser *p)
{
    sx_lexer *lex = &p->lex;
    names n;
    SX_TRY(parse_names(p, &n));
    SX_TRY(sx_lex_mark(lex, '='));
    sx_token op_token = lex->token;
    sx_op op;
    if (op_token.kind != SX_TOKEN_NAME || !sx_op_parse(op_token.text, &op)) {
        return sx_lex_unexpected(lex, "an operation");
    }
    SX_TRY(sx_lex_next(lex));
    sx_node_id input[SX_INPUTS_MAX];
    uint32_t input_count;
    SX_TRY(parse_inputs(p, input, &input_count));
    sx_attr attr = {0};
    sx_lexer data;
    SX_TRY(sx_parse_attrs(lex, p->graph, op, &attr, &data));
    SX_TRY(check_results(p, op, n.count, &attr));
    attr.present |= sx_op_info_of(op)->attrs & SX_A(result);
    return parse_results(p, &n, &op_token, op, &attr, input, input_count, &data);
}

/* return %a as "y", %b as "z" into "cache" */
static sx_code parse_return(parser *p)
{
    SX_TRY(sx_lex_word(&p->lex, "return"));
    bool more = true;
    while (more) {
        sx_node_id node;
        SX_TRY(use_value(p, &node));
        SX_TRY(sx_lex_word(&p->lex, "as"));
        sx_token at = p->lex.token;
        sx_span name;
        SX_TRY(sx_lex_string(&p->lex, &name));
        if (sx_graph_add_output(p->lex.cx, p->graph, name, node) != SX_OK) {
            return sx_fail_in(p->lex.cx, "line %u:%u", at.line, at.column);
        }
        SX_TRY(parse_into(p));
        SX_TRY(parse_demand(p));
        SX_TRY(sx_lex_accept(&p->lex, ',', &more));
    }
    return SX_OK;
}

/* (batch in [1, 4096], "other name" in [2, 2]) */
/* batch in [1, 64], or a sum of symbols declared before it. */
static sx_code parse_declaration(parser *p)
{
    sx_lexer *lex = &p->lex;
    sx_lexer at = *lex;
    sx_span name = at.token.text;
    int64_t low;
    int64_t high;
    uint32_t symbol;
    if (at.token.kind == SX_TOKEN_STRING) {
        SX_TRY(sx_lex_string(lex, &name));
    } else if (at.token.kind == SX_TOKEN_NAME || at.token.kind == SX_TOKEN_NUMBER) {
        SX_TRY(sx_lex_next(lex));
    } else {
        return sx_lex_unexpected(lex, "a symbol");
    }
    bool sum =
        lex->token.kind == SX_TOKEN_NUMBER || sx_lex_is_mark(lex, '*') || sx_lex_is_mark(lex, '+');
    if (sum || at.token.kind == SX_TOKEN_NUMBER) {
        sx_dim dim;
        *lex = at;
        return sum ? sx_parse_dim(lex, p->graph, &dim) : sx_lex_unexpected(lex, "a symbol");
    }
    SX_TRY(sx_lex_word(lex, "in"));
    SX_TRY(sx_lex_mark(lex, '['));
    SX_TRY(sx_lex_int(lex, &low));
    SX_TRY(sx_lex_mark(lex, ','));
    SX_TRY(sx_lex_int(lex, &high));
    SX_TRY(sx_lex_mark(lex, ']'));
    if (sx_graph_add_symbol(lex->cx, p->graph, name, low, high, &symbol) != SX_OK) {
        return sx_fail_in(lex->cx, "line %u:%u", at.token.line, at.token.column);
    }
    return SX_OK;
}

static sx_code parse_symbols(parser *p)
{
    sx_lexer *lex = &p->lex;
    bool more;
    SX_TRY(sx_lex_accept(lex, '(', &more));
    if (!more) {
        return SX_OK;
    }
    more = !sx_lex_is_mark(lex, ')');
    while (more) {
        SX_TRY(parse_declaration(p));
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    return sx_lex_mark(lex, ')');
}

static sx_code parse_version(sx_lexer *lex)
{
    SX_TRY(sx_lex_word(lex, "sx"));
    sx_lexer at = *lex;
    int64_t version;
    SX_TRY(sx_lex_int(lex, &version));
    if (version != SX_TEXT_VERSION) {
        return sx_lex_fail(&at, SX_INPUT, "version %lld of the text form, this reads %d",
                           (long long)version, SX_TEXT_VERSION);
    }
    return SX_OK;
}

/* Nodes and outputs, and the brace behind them. */
static sx_code parse_inside(parser *p, sx_token *end)
{
    while (p->lex.token.kind == SX_TOKEN_VALUE) {
        SX_TRY(parse_node(p));
    }
    SX_TRY(parse_return(p));
    *end = p->lex.token;
    return sx_lex_mark(&p->lex, '}');
}

sx_code sx_parse_program(sx_lexer *lex, sx_graph *graph, const sx_program **program)
{
    parser p = {.lex = *lex};
    SX_TRY(sx_lex_word(&p.lex, "graph"));
    if (p.lex.depth == SX_PROGRAM_DEPTH_MAX) {
        return sx_lex_fail(&p.lex, SX_LIMIT, "more than %u programs inside each other",
                           SX_PROGRAM_DEPTH_MAX);
    }
    p.lex.depth++;
    SX_TRY(sx_lex_mark(&p.lex, '{'));
    SX_TRY(sx_graph_make(lex->cx, (sx_span){0}, NULL, &p.graph));
    SX_TRY(sx_graph_copy_symbols(lex->cx, graph->symbol, graph->symbol_count, p.graph));
    sx_token end;
    SX_TRY(parse_inside(&p, &end));
    SX_TRY(sx_graph_copy_symbols(lex->cx, p.graph->symbol, p.graph->symbol_count,
                                 graph)); /* new sums */
    if (sx_graph_check(lex->cx, p.graph) != SX_OK ||
        sx_program_make(lex->cx, p.graph, program) != SX_OK) {
        return sx_fail_in(lex->cx, "line %u:%u", end.line, end.column);
    }
    p.lex.depth--;
    *lex = p.lex;
    return SX_OK;
}

/* `body`: the mesh is that of the program around it. */
static sx_code parse(sx_ctx *cx, sx_span text, bool named, bool body, sx_graph **graph)
{
    if (text.len > SX_TEXT_BYTES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "line 1:1: text of %zu bytes, at most %zu", text.len,
                       SX_TEXT_BYTES_MAX);
    }
    parser p = {.named = named};
    sx_lexer *lex = &p.lex;
    sx_span name;
    SX_TRY(sx_lex_init(cx, lex, text));
    SX_TRY(parse_version(lex));
    SX_TRY(sx_lex_word(lex, "graph"));
    SX_TRY(sx_lex_string(lex, &name));
    SX_TRY(sx_graph_make(cx, name, NULL, &p.graph));
    SX_TRY(parse_symbols(&p));
    SX_TRY(sx_parse_mesh(lex, p.graph));
    SX_TRY(sx_lex_mark(lex, '{'));
    sx_token end;
    SX_TRY(parse_inside(&p, &end));
    if (lex->token.kind != SX_TOKEN_END) {
        return sx_lex_unexpected(lex, "the end");
    }
    if (sx_graph_check(cx, p.graph) != SX_OK ||
        (!body && sx_collectives_check(cx, p.graph) != SX_OK)) {
        return sx_fail_in(cx, "line %u:%u", end.line, end.column);
    }
    *graph = p.graph;
    return SX_OK;
}

sx_code sx_graph_parse(sx_ctx *cx, sx_span text, sx_graph **graph)
{
    SX_ASSERT(text.ptr != NULL || text.len == 0);
    return parse(cx, text, false, false, graph);
}

sx_code sx_graph_parse_named(sx_ctx *cx, sx_span text, sx_graph **graph)
{
    SX_ASSERT(text.ptr != NULL || text.len == 0);
    return parse(cx, text, true, false, graph);
}

sx_code sx_graph_parse_body(sx_ctx *cx, sx_span text, sx_graph **graph)
{
    SX_ASSERT(text.ptr != NULL || text.len == 0);
    return parse(cx, text, false, true, graph);
}
