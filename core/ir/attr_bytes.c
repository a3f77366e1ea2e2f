/* attr_bytes.c - attributes as bytes: for stored e-graphs, whose readers want them back faster than text is parsed. */
#include <stddef.h>
#include <string.h>

#include "core/ir/fused.h"
#include "core/ir/ir.h"
#include "core/ir/program.h"

_Static_assert(SX_FUSED_INSTRS_MAX <= UINT8_MAX, "an operand is one byte");
_Static_assert(offsetof(sx_body, access) == 4 * sizeof(uint32_t) && SX_BODY_ONLINE == 6,
               "every field and kind of a body is written");

/* ---- writing ---- */

static void put_u64(sx_buf *to, uint64_t value)
{
    sx_buf_put(to, &value, sizeof(value));
}

static void put_dim(sx_buf *to, sx_dim dim)
{
    put_u64(to, (uint64_t)dim.scale);
    sx_buf_put_u32(to, dim.scale == 0 ? SX_NO_SYMBOL : dim.symbol);
}

static void put_int(sx_buf *to, const int64_t *value)
{
    put_u64(to, (uint64_t)*value);
}

static void put_ints(sx_buf *to, const sx_ints *ints)
{
    sx_buf_put_u8(to, (uint8_t)ints->count);
    for (uint32_t i = 0; i < ints->count; i++) {
        put_int(to, &ints->v[i]);
    }
}

static void put_extents(sx_buf *to, const sx_extents *extents)
{
    sx_buf_put_u8(to, (uint8_t)extents->count);
    for (uint32_t i = 0; i < extents->count; i++) {
        put_dim(to, extents->v[i]);
    }
}

static void put_float(sx_buf *to, const double *value)
{
    sx_buf_put(to, value, sizeof(*value));
}

static void put_type(sx_buf *to, const sx_type *type)
{
    sx_buf_put_u8(to, (uint8_t)type->dtype);
    sx_buf_put_u8(to, (uint8_t)type->rank);
    for (uint32_t d = 0; d < type->rank; d++) {
        put_dim(to, type->dim[d]);
    }
}

static void put_span(sx_buf *to, const sx_span *span)
{
    sx_buf_put_u32(to, (uint32_t)span->len);
    sx_buf_put_span(to, *span);
}

static void put_body(sx_buf *to, const sx_body *body, uint32_t rank)
{
    sx_buf_put_u8(to, (uint8_t)body->arg_count);
    sx_buf_put_u8(to, (uint8_t)body->instr_count);
    sx_buf_put_u8(to, (uint8_t)body->axes);
    sx_buf_put_u8(to, (uint8_t)body->inner);
    for (uint32_t a = 0; a < body->arg_count; a++) {
        for (uint32_t d = 0; d < rank; d++) {
            put_dim(to, body->access[a].stride[d]);
        }
        put_dim(to, body->access[a].offset);
    }
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        const uint32_t word[] = {
            in->kind, (uint32_t)in->op, in->direction, in->reducer, in->dtype, in->x, in->y, in->z};
        for (uint32_t k = 0; k < SX_COUNT(word); k++) {
            sx_buf_put_u8(to, (uint8_t)word[k]);
        }
        if (in->kind == SX_BODY_IMM) {
            put_float(to, &in->imm);
        }
    }
}

static void put_program(sx_buf *to, const sx_program *program)
{
    put_span(to, &program->text);
}

static void put_pairs(sx_buf *to, const sx_rank_pairs *pairs)
{
    sx_buf_put_u32(to, pairs->count);
    for (uint32_t i = 0; i < pairs->count; i++) {
        put_int(to, &pairs->pair[i].source);
        put_int(to, &pairs->pair[i].target);
    }
}

#define PUT_INT(field) put_int(to, &attr->field)
#define PUT_INTS(field) put_ints(to, &attr->field)
#define PUT_EXTENTS(field) put_extents(to, &attr->field)
#define PUT_FLOAT(field) put_float(to, &attr->field)
#define PUT_REDUCER(field) sx_buf_put_u8(to, (uint8_t)attr->field)
#define PUT_DIRECTION(field) sx_buf_put_u8(to, (uint8_t)attr->field)
#define PUT_TYPE(field) put_type(to, &attr->field)
#define PUT_BYTES(field) put_span(to, &attr->field)
#define PUT_NAME(field) put_span(to, &attr->field)
#define PUT_BODY(field) put_body(to, attr->field, attr->type.rank)
#define PUT_PROGRAM(field) put_program(to, attr->field)
#define PUT_PAIRS(field) put_pairs(to, &attr->field)

void sx_attr_encode(const sx_attr *attr, sx_buf *to)
{
    SX_ASSERT(attr->present >> SX_ATTR_COUNT == 0);
    put_u64(to, attr->present);
#define SX_ATTR(name, kind, help)          \
    if ((attr->present & SX_A(name)) != 0) \
        PUT_##kind(name);
#include "core/ir/attrs.def"
#undef SX_ATTR
}

/* ---- reading: what the parser of the text refuses is refused here too; the rest is sx_infer_type's ---- */

typedef struct {
    sx_ctx *cx;
    sx_span rest;
    uint32_t symbol_count;
    bool bad;
} reader;

static void take(reader *r, void *value, size_t size)
{
    memset(value, 0, size);
    if (r->bad || r->rest.len < size) {
        r->bad = true;
        return;
    }
    memcpy(value, r->rest.ptr, size);
    r->rest.ptr += size;
    r->rest.len -= size;
}

/* A byte below `limit`. */
static uint32_t take_below(reader *r, uint32_t limit)
{
    uint8_t value;
    take(r, &value, 1);
    r->bad = r->bad || value >= limit;
    return r->bad ? 0 : value;
}

static void take_dim(reader *r, sx_dim *dim)
{
    take(r, &dim->scale, sizeof(dim->scale));
    take(r, &dim->symbol, sizeof(dim->symbol));
    r->bad =
        r->bad || dim->scale < 0 || (dim->symbol != SX_NO_SYMBOL && dim->symbol >= r->symbol_count);
}

static void take_int(reader *r, int64_t *value)
{
    take(r, value, sizeof(*value));
}

static void take_ints(reader *r, sx_ints *ints)
{
    ints->count = take_below(r, SX_RANK_MAX + 1);
    for (uint32_t i = 0; i < ints->count; i++) {
        take_int(r, &ints->v[i]);
    }
}

static void take_extents(reader *r, sx_extents *extents)
{
    extents->count = take_below(r, SX_RANK_MAX + 1);
    for (uint32_t i = 0; i < extents->count; i++) {
        take_dim(r, &extents->v[i]);
    }
}

static void take_float(reader *r, double *value)
{
    take(r, value, sizeof(*value));
}

static void take_reducer(reader *r, sx_reducer *reducer)
{
    *reducer = (sx_reducer)take_below(r, SX_REPLACE + 1);
}

static void take_direction(reader *r, sx_direction *direction)
{
    *direction = (sx_direction)take_below(r, SX_DIRECTION_COUNT);
}

static void take_type(reader *r, sx_type *type)
{
    type->dtype = (sx_dtype)take_below(r, SX_DTYPE_COUNT);
    type->rank = take_below(r, SX_RANK_MAX + 1);
    for (uint32_t d = 0; d < type->rank; d++) {
        take_dim(r, &type->dim[d]);
    }
}

static void take_span(reader *r, sx_span *span)
{
    uint32_t len;
    take(r, &len, sizeof(len));
    r->bad = r->bad || len > r->rest.len;
    if (!r->bad) {
        *span = (sx_span){r->rest.ptr, len};
        r->rest.ptr += len;
        r->rest.len -= len;
    }
}

static void take_name(reader *r, sx_span *name)
{
    take_span(r, name);
    r->bad = r->bad || name->len == 0 || name->len > SX_NAME_MAX;
}

static void take_instr(reader *r, sx_instr *in)
{
    in->kind = (sx_body_kind)take_below(r, SX_BODY_ONLINE + 1);
    in->op = (sx_op)take_below(r, SX_OP_COUNT);
    take_direction(r, &in->direction);
    take_reducer(r, &in->reducer);
    in->dtype = (sx_dtype)take_below(r, SX_DTYPE_COUNT);
    in->x = take_below(r, SX_FUSED_INSTRS_MAX);
    in->y = take_below(r, SX_FUSED_INSTRS_MAX);
    in->z = take_below(r, SX_FUSED_INSTRS_MAX);
    r->bad = r->bad || (in->kind == SX_BODY_APPLY && !sx_op_is_elementwise(in->op));
    if (in->kind == SX_BODY_IMM) {
        take_float(r, &in->imm);
    }
}

static void take_body(reader *r, const sx_body **made, uint32_t rank)
{
    uint32_t arg_count = take_below(r, SX_FUSED_ARGS_MAX + 1);
    uint32_t instr_count = take_below(r, SX_FUSED_INSTRS_MAX + 1);
    sx_body *body = sx_alloc(r->cx, offsetof(sx_body, instr) + instr_count * sizeof(sx_instr));
    *made = body;
    if (body == NULL) {
        r->bad = true;
        return;
    }
    body->arg_count = arg_count;
    body->instr_count = instr_count;
    body->axes = take_below(r, 1u << SX_RANK_MAX);
    body->inner = take_below(r, 1u << SX_RANK_MAX);
    r->bad = r->bad || body->instr_count == 0;
    for (uint32_t a = 0; a < body->arg_count && !r->bad; a++) {
        for (uint32_t d = 0; d < rank; d++) {
            take_dim(r, &body->access[a].stride[d]);
        }
        take_dim(r, &body->access[a].offset);
    }
    for (uint32_t i = 0; i < body->instr_count && !r->bad; i++) {
        take_instr(r, &body->instr[i]);
    }
}

/* The canonical text of a program with the symbols of the graph around it, or with none. */
static void take_program(reader *r, const sx_program **program)
{
    sx_span text = {0};
    sx_graph *graph;
    take_span(r, &text);
    if (r->bad) {
        return;
    }
    if (sx_graph_parse_body(r->cx, text, &graph) != SX_OK ||
        sx_program_make(r->cx, graph, program) != SX_OK) {
        r->bad = r->cx->error.code != SX_NOMEM;
        if (r->bad) {
            sx_ctx_reset_error(r->cx);
        }
        return;
    }
    uint32_t symbols = (*program)->graph->symbol_count;
    r->bad = !sx_span_equal(text, (*program)->text) || (symbols > 0 && symbols != r->symbol_count);
}

static void take_pairs(reader *r, sx_rank_pairs *pairs)
{
    uint32_t count;
    take(r, &count, sizeof(count));
    r->bad = r->bad || count > SX_RANK_PAIRS_MAX || count > r->rest.len / sizeof(sx_rank_pair);
    if (r->bad || count == 0) {
        return;
    }
    sx_rank_pair *pair = SX_NEW_ARRAY(r->cx, sx_rank_pair, count);
    r->bad = pair == NULL;
    for (uint32_t i = 0; i < count && !r->bad; i++) {
        take_int(r, &pair[i].source);
        take_int(r, &pair[i].target);
    }
    *pairs = (sx_rank_pairs){pair, count};
}

#define TAKE_INT(field) take_int(&r, &attr->field)
#define TAKE_INTS(field) take_ints(&r, &attr->field)
#define TAKE_EXTENTS(field) take_extents(&r, &attr->field)
#define TAKE_FLOAT(field) take_float(&r, &attr->field)
#define TAKE_REDUCER(field) take_reducer(&r, &attr->field)
#define TAKE_DIRECTION(field) take_direction(&r, &attr->field)
#define TAKE_TYPE(field) take_type(&r, &attr->field)
#define TAKE_BYTES(field) take_span(&r, &attr->field)
#define TAKE_NAME(field) take_name(&r, &attr->field)
#define TAKE_BODY(field) take_body(&r, &attr->field, attr->type.rank)
#define TAKE_PROGRAM(field) take_program(&r, &attr->field)
#define TAKE_PAIRS(field) take_pairs(&r, &attr->field)

sx_code sx_attr_decode(sx_ctx *cx, sx_span *bytes, uint32_t symbol_count, sx_attr *attr)
{
    SX_ASSERT(symbol_count <= SX_SYMBOLS_MAX);
    reader r = {.cx = cx, .rest = *bytes, .symbol_count = symbol_count};
    *attr = (sx_attr){0};
    take(&r, &attr->present, sizeof(attr->present));
    r.bad = r.bad || attr->present >> SX_ATTR_COUNT != 0 ||
            ((attr->present & SX_A(body)) != 0 && (attr->present & SX_A(type)) == 0);
#define SX_ATTR(name, kind, help)                    \
    if (!r.bad && (attr->present & SX_A(name)) != 0) \
        TAKE_##kind(name);
#include "core/ir/attrs.def"
#undef SX_ATTR
    if (cx->error.code != SX_OK) {
        return cx->error.code;
    }
    if (r.bad) {
        return SX_FAIL(cx, SX_CORRUPT, "attribute: %zu bytes left, of no form that is known",
                       r.rest.len);
    }
    *bytes = r.rest;
    return SX_OK;
}
