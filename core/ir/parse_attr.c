#include "core/ir/parse.h"

#include <string.h>

#include "core/ir/check.h"
#include "core/ir/fused.h"
#include "core/ir/num.h"

bool sx_parse_type_is_result(sx_op op)
{
    return (sx_op_info_of(op)->attrs & SX_A(type)) != 0 && op != SX_OP_FUSED;
}

static sx_code parse_ints(sx_lexer *lex, sx_ints *ints)
{
    SX_TRY(sx_lex_mark(lex, '['));
    bool more = !sx_lex_is_mark(lex, ']');
    while (more) {
        if (ints->count == SX_RANK_MAX) {
            return sx_lex_fail(lex, SX_LIMIT, "more than %d numbers", SX_RANK_MAX);
        }
        SX_TRY(sx_lex_int(lex, &ints->v[ints->count++]));
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    return sx_lex_mark(lex, ']');
}

static sx_code parse_double(sx_lexer *lex, double *value)
{
    uint64_t bits;
    SX_TRY(sx_lex_float(lex, SX_F64, &bits));
    *value = sx_num_decode(SX_F64, bits);
    return SX_OK;
}

static sx_code parse_reducer(sx_lexer *lex, sx_reducer *reducer)
{
    if (lex->token.kind != SX_TOKEN_NAME || !sx_reducer_parse(lex->token.text, reducer)) {
        return sx_lex_unexpected(lex, "add, multiply, maximum or minimum");
    }
    return sx_lex_next(lex);
}

static sx_code parse_direction(sx_lexer *lex, sx_direction *direction)
{
    if (lex->token.kind != SX_TOKEN_NAME || !sx_direction_parse(lex->token.text, direction)) {
        return sx_lex_unexpected(lex, "eq, ne, lt, le, gt or ge");
    }
    return sx_lex_next(lex);
}

/* [[0, 1], [1, 2]] */
static sx_code parse_pairs(sx_lexer *lex, sx_rank_pairs *pairs)
{
    void *array = NULL;
    uint32_t capacity = 0;
    uint32_t count = 0;
    SX_TRY(sx_lex_mark(lex, '['));
    bool more = !sx_lex_is_mark(lex, ']');
    while (more) {
        if (count == SX_RANK_PAIRS_MAX) {
            return sx_lex_fail(lex, SX_LIMIT, "more than %u pairs", SX_RANK_PAIRS_MAX);
        }
        sx_rank_pair pair;
        SX_TRY(sx_lex_mark(lex, '['));
        SX_TRY(sx_lex_int(lex, &pair.source));
        SX_TRY(sx_lex_mark(lex, ','));
        SX_TRY(sx_lex_int(lex, &pair.target));
        SX_TRY(sx_lex_mark(lex, ']'));
        SX_TRY(sx_grow(lex->cx, &array, &capacity, count + 1, sizeof(pair)));
        ((sx_rank_pair *)array)[count++] = pair;
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    *pairs = (sx_rank_pairs){array, count};
    return sx_lex_mark(lex, ']');
}

/* ---- constant data ---- */

static sx_code parse_element(sx_lexer *lex, sx_dtype dtype, uint64_t *bits)
{
    if (sx_dtype_class_of(dtype) == SX_CLASS_FLOAT) {
        return sx_lex_float(lex, dtype, bits);
    }
    if (dtype == SX_BOOL) {
        if (!sx_lex_is_word(lex, "true") && !sx_lex_is_word(lex, "false")) {
            return sx_lex_unexpected(lex, "true or false");
        }
        *bits = sx_lex_is_word(lex, "true") ? 1 : 0;
        return sx_lex_next(lex);
    }
    sx_lexer at = *lex;
    int64_t value;
    SX_TRY(sx_lex_int(lex, &value));
    if (value < sx_num_int_min(dtype) || value > sx_num_int_max(dtype)) {
        return sx_lex_fail(&at, SX_INPUT, "%lld does not fit %s", (long long)value,
                           sx_dtype_name(dtype));
    }
    *bits = sx_num_int_encode(dtype, value);
    return SX_OK;
}

static sx_code parse_elements(sx_lexer *lex, sx_dtype dtype, uint32_t *count, sx_span *data)
{
    void *array = NULL;
    uint32_t capacity = 0;
    size_t size = sx_dtype_bytes(dtype);
    *count = 0;
    SX_TRY(sx_lex_mark(lex, '['));
    bool more = !sx_lex_is_mark(lex, ']');
    while (more) {
        uint64_t bits;
        SX_TRY(parse_element(lex, dtype, &bits));
        SX_TRY(sx_grow(lex->cx, &array, &capacity, *count + 1, size));
        sx_num_store(dtype, array, (*count)++, bits);
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    *data = (sx_span){array, *count * size};
    return sx_lex_mark(lex, ']');
}

sx_code sx_parse_data(sx_lexer *lex, const sx_type *type, sx_span *data)
{
    size_t size = sx_dtype_bytes(type->dtype);
    sx_lexer at = *lex;
    if (lex->token.kind == SX_TOKEN_NUMBER || lex->token.kind == SX_TOKEN_NAME) {
        uint64_t bits;
        SX_TRY(parse_element(lex, type->dtype, &bits));
        uint8_t *bytes = sx_alloc(lex->cx, size);
        if (bytes == NULL) {
            return lex->cx->error.code;
        }
        sx_num_store(type->dtype, bytes, 0, bits);
        *data = (sx_span){bytes, size};
        return SX_OK;
    }
    uint64_t count;
    if (lex->token.kind == SX_TOKEN_STRING) {
        SX_TRY(sx_lex_hex(lex, data));
        count = data->len / size;
        if (data->len % size != 0) {
            return sx_lex_fail(&at, SX_INPUT, "%zu bytes are no elements of %s", data->len,
                               sx_dtype_name(type->dtype));
        }
    } else {
        uint32_t listed;
        SX_TRY(parse_elements(lex, type->dtype, &listed, data));
        count = listed;
    }
    sx_dim elements;
    if (!sx_type_elements(type, &elements) || !sx_dim_is_constant(elements) ||
        (uint64_t)elements.scale != count) {
        return sx_lex_fail(&at, SX_INPUT,
                           "%llu elements do not fill the shape; one number fills any",
                           (unsigned long long)count);
    }
    return SX_OK;
}

/* Passes over the value of `data`, which is read when the type is known. */
static sx_code skip_data(sx_lexer *lex)
{
    if (sx_lex_is_mark(lex, '[')) {
        while (!sx_lex_is_mark(lex, ']')) {
            if (lex->token.kind == SX_TOKEN_END) {
                return sx_lex_unexpected(lex, "']'");
            }
            SX_TRY(sx_lex_next(lex));
        }
    } else if (lex->token.kind != SX_TOKEN_NUMBER && lex->token.kind != SX_TOKEN_NAME &&
               lex->token.kind != SX_TOKEN_STRING) {
        return sx_lex_unexpected(lex, "a number, a list or a string");
    }
    return sx_lex_next(lex);
}

/* ---- fused bodies ---- */

/* args = [[1024, 1] + 5, [batch, 1] + 2*batch, ...] */
static sx_code parse_accesses(sx_lexer *lex, sx_graph *graph, uint32_t rank, sx_body *body)
{
    SX_TRY(sx_lex_mark(lex, '='));
    SX_TRY(sx_lex_mark(lex, '['));
    bool more = !sx_lex_is_mark(lex, ']');
    while (more) {
        if (body->arg_count == SX_FUSED_ARGS_MAX) {
            return sx_lex_fail(lex, SX_LIMIT, "more than %d arguments", SX_FUSED_ARGS_MAX);
        }
        sx_access *access = &body->access[body->arg_count++];
        uint32_t count;
        sx_lexer at = *lex;
        SX_TRY(sx_parse_steps(lex, graph, access->stride, &count));
        if (count != rank) {
            return sx_lex_fail(&at, SX_INPUT, "%u strides, the space has rank %u", count, rank);
        }
        bool offset;
        access->offset = sx_dim_of(0);
        SX_TRY(sx_lex_accept(lex, '+', &offset));
        if (offset) {
            SX_TRY(sx_parse_step(lex, graph, &access->offset));
        }
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    return sx_lex_mark(lex, ']');
}

static sx_code parse_axes(sx_lexer *lex, uint32_t *set)
{
    sx_lexer at = *lex;
    sx_ints axes = {0};
    SX_TRY(sx_lex_mark(lex, '='));
    SX_TRY(parse_ints(lex, &axes));
    for (uint32_t i = 0; i < axes.count; i++) {
        if (axes.v[i] < 0 || axes.v[i] >= SX_RANK_MAX || (*set & (1u << axes.v[i])) != 0) {
            return sx_lex_fail(&at, SX_INPUT, "axis %lld is no dimension or named twice",
                               (long long)axes.v[i]);
        }
        *set |= 1u << axes.v[i];
    }
    return SX_OK;
}

static sx_code parse_operand(sx_lexer *lex, uint32_t *operand)
{
    sx_lexer at = *lex;
    int64_t number;
    SX_TRY(sx_lex_int(lex, &number));
    if (number < 0 || number >= SX_FUSED_INSTRS_MAX) {
        return sx_lex_fail(&at, SX_INPUT, "operand %lld, 0 to %d", (long long)number,
                           SX_FUSED_INSTRS_MAX - 1);
    }
    *operand = (uint32_t)number;
    return SX_OK;
}

/* arg 0 | imm 0.5 | index 1 | reduce add 3 | dot 0 1 | online 2 3 | compare lt 1 2 | add 1 2, each with ":
 * dtype" where it is not `dtype` */
static sx_code parse_instr(sx_lexer *lex, sx_dtype dtype, sx_instr *in)
{
    uint32_t operands = 1;
    sx_lexer at = *lex;
    if (lex->token.kind != SX_TOKEN_NAME) {
        return sx_lex_unexpected(lex, "an instruction");
    }
    SX_TRY(sx_lex_next(lex));
    in->dtype = dtype;
    if (sx_lex_is_word(&at, "arg")) {
        in->kind = SX_BODY_ARG;
    } else if (sx_lex_is_word(&at, "index")) {
        in->kind = SX_BODY_INDEX;
    } else if (sx_lex_is_word(&at, "imm")) {
        in->kind = SX_BODY_IMM;
        operands = 0;
        SX_TRY(parse_double(lex, &in->imm));
    } else if (sx_lex_is_word(&at, "reduce")) {
        in->kind = SX_BODY_REDUCE;
        SX_TRY(parse_reducer(lex, &in->reducer));
    } else if (sx_lex_is_word(&at, "dot")) {
        in->kind = SX_BODY_DOT;
        operands = 2;
    } else if (sx_lex_is_word(&at, "online")) {
        in->kind = SX_BODY_ONLINE;
        operands = 2;
    } else if (sx_op_parse(at.token.text, &in->op) && sx_op_is_elementwise(in->op)) {
        in->kind = SX_BODY_APPLY;
        operands = sx_op_info_of(in->op)->input_max;
        if (in->op == SX_OP_COMPARE) {
            SX_TRY(parse_direction(lex, &in->direction));
        }
    } else {
        return sx_lex_unexpected(&at, "an instruction");
    }
    uint32_t *operand[3] = {&in->x, &in->y, &in->z};
    SX_ASSERT(operands <= SX_COUNT(operand));
    for (uint32_t i = 0; i < operands; i++) {
        SX_TRY(parse_operand(lex, operand[i]));
    }
    bool typed;
    SX_TRY(sx_lex_accept(lex, ':', &typed));
    if (typed) {
        if (lex->token.kind != SX_TOKEN_NAME || !sx_dtype_parse(lex->token.text, &in->dtype)) {
            return sx_lex_unexpected(lex, "an element type");
        }
        return sx_lex_next(lex);
    }
    return SX_OK;
}

/* {args = [...], axes = [...], inner = [...], code = [...]} */
static sx_code parse_body(sx_lexer *lex, sx_graph *graph, sx_attr *attr)
{
    if ((attr->present & SX_A(type)) == 0) {
        return sx_lex_fail(lex, SX_INPUT, "type comes before body");
    }
    sx_body *body = SX_NEW(lex->cx, sx_body);
    if (body == NULL) {
        return lex->cx->error.code;
    }
    SX_TRY(sx_lex_mark(lex, '{'));
    if (sx_lex_is_word(lex, "args")) {
        SX_TRY(sx_lex_next(lex));
        SX_TRY(parse_accesses(lex, graph, attr->type.rank, body));
        SX_TRY(sx_lex_mark(lex, ','));
    }
    if (sx_lex_is_word(lex, "axes")) {
        SX_TRY(sx_lex_next(lex));
        SX_TRY(parse_axes(lex, &body->axes));
        SX_TRY(sx_lex_mark(lex, ','));
    }
    if (sx_lex_is_word(lex, "inner")) {
        SX_TRY(sx_lex_next(lex));
        SX_TRY(parse_axes(lex, &body->inner));
        SX_TRY(sx_lex_mark(lex, ','));
    }
    SX_TRY(sx_lex_word(lex, "code"));
    SX_TRY(sx_lex_mark(lex, '='));
    SX_TRY(sx_lex_mark(lex, '['));
    bool more = true;
    while (more) {
        if (body->instr_count == SX_FUSED_INSTRS_MAX) {
            return sx_lex_fail(lex, SX_LIMIT, "more than %d instructions", SX_FUSED_INSTRS_MAX);
        }
        SX_TRY(parse_instr(lex, attr->type.dtype, &body->instr[body->instr_count++]));
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    SX_TRY(sx_lex_mark(lex, ']'));
    attr->body = body;
    return sx_lex_mark(lex, '}');
}

/* ---- the list of attributes ---- */

#define PARSE_INT(field) sx_lex_int(lex, &attr->field)
#define PARSE_INTS(field) parse_ints(lex, &attr->field)
#define PARSE_EXTENTS(field) sx_parse_dims(lex, graph, attr->field.v, &attr->field.count)
#define PARSE_FLOAT(field) parse_double(lex, &attr->field)
#define PARSE_REDUCER(field) parse_reducer(lex, &attr->field)
#define PARSE_DIRECTION(field) parse_direction(lex, &attr->field)
#define PARSE_TYPE(field) sx_parse_type(lex, graph, &attr->field)
#define PARSE_BYTES(field) (*data = *lex, skip_data(lex))
#define PARSE_NAME(field) sx_lex_string(lex, &attr->field)
#define PARSE_BODY(field) parse_body(lex, graph, attr)
#define PARSE_PROGRAM(field) sx_parse_program(lex, graph, &attr->field)
#define PARSE_PAIRS(field) parse_pairs(lex, &attr->field)

static sx_code parse_field(sx_lexer *lex, sx_graph *graph, sx_attr_field field, sx_attr *attr,
                           sx_lexer *data)
{
    switch (field) {
#define SX_ATTR(name_, kind, help) \
    case SX_ATTR_##name_:          \
        return PARSE_##kind(name_);
#include "core/ir/attrs.def"
#undef SX_ATTR
    case SX_ATTR_COUNT: break;
    }
    SX_UNREACHABLE();
}

sx_code sx_parse_attrs(sx_lexer *lex, sx_graph *graph, sx_op op, sx_attr *attr, sx_lexer *data)
{
    const sx_op_info *info = sx_op_info_of(op);
    bool more;
    SX_TRY(sx_lex_accept(lex, '{', &more));
    if (!more) {
        return SX_OK;
    }
    more = !sx_lex_is_mark(lex, '}');
    while (more) {
        sx_attr_field field;
        if (lex->token.kind != SX_TOKEN_NAME || !sx_attr_field_parse(lex->token.text, &field)) {
            return sx_lex_unexpected(lex, "an attribute");
        }
        uint64_t bit = UINT64_C(1) << field;
        const char *name = sx_attr_info_of(field)->name;
        if ((info->attrs & bit) == 0) {
            return sx_lex_fail(lex, SX_INPUT, "%s carries no attribute %s", info->name, name);
        }
        if ((attr->present & bit) != 0) {
            return sx_lex_fail(lex, SX_INPUT, "attribute %s is written twice", name);
        }
        if (field == SX_ATTR_type && sx_parse_type_is_result(op)) {
            return sx_lex_fail(lex, SX_INPUT, "the type of %s is written behind the colon",
                               info->name);
        }
        SX_TRY(sx_lex_next(lex));
        SX_TRY(sx_lex_mark(lex, '='));
        SX_TRY(parse_field(lex, graph, field, attr, data));
        attr->present |= bit;
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    return sx_lex_mark(lex, '}');
}
