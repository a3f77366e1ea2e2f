#include "core/ir/ir.h"

#include <stddef.h>
#include <string.h>

#include "core/ir/fused.h"
#include "core/ir/program.h"

#define ROWS_MORE 64u /* room in a restored table for what is soon added */

static uint64_t hash_bytes(const void *bytes, size_t len, uint64_t seed)
{
    return sx_hash64((sx_span){bytes, len}, seed);
}

static uint64_t hash_int(const int64_t *value, uint64_t seed)
{
    return hash_bytes(value, sizeof(*value), seed);
}

static uint64_t hash_ints(const sx_ints *value, uint64_t seed)
{
    SX_ASSERT(value->count <= SX_RANK_MAX);
    return hash_bytes(value->v, value->count * sizeof(value->v[0]), seed + value->count);
}

static uint64_t hash_extents(const sx_extents *value, uint64_t seed)
{
    SX_ASSERT(value->count <= SX_RANK_MAX);
    int64_t words[2 * SX_RANK_MAX];
    for (uint32_t i = 0; i < value->count; i++) {
        words[2 * i] = value->v[i].scale;
        words[2 * i + 1] = value->v[i].scale == 0 ? SX_NO_SYMBOL : value->v[i].symbol;
    }
    return hash_bytes(words, 2 * value->count * sizeof(words[0]), seed + value->count);
}

static uint64_t hash_float(const double *value, uint64_t seed)
{
    return hash_bytes(value, sizeof(*value), seed);
}

static uint64_t hash_reducer(const sx_reducer *value, uint64_t seed)
{
    return hash_int(&(int64_t){*value}, seed);
}

static uint64_t hash_direction(const sx_direction *value, uint64_t seed)
{
    return hash_int(&(int64_t){*value}, seed);
}

static uint64_t hash_type(const sx_type *value, uint64_t seed)
{
    SX_ASSERT(value->rank <= SX_RANK_MAX);
    int64_t words[2 + 2 * SX_RANK_MAX] = {value->dtype, value->rank};
    for (uint32_t i = 0; i < value->rank; i++) {
        words[2 + 2 * i] = value->dim[i].scale;
        words[3 + 2 * i] = value->dim[i].scale == 0 ? SX_NO_SYMBOL : value->dim[i].symbol;
    }
    return hash_bytes(words, (2 + 2 * (size_t)value->rank) * sizeof(words[0]), seed);
}

static uint64_t hash_span(const sx_span *value, uint64_t seed)
{
    return sx_hash64(*value, seed + value->len);
}

static uint64_t hash_body(const sx_body *const *value, uint64_t seed)
{
    return sx_body_place(*value, seed);
}

static uint64_t hash_program(const sx_program *const *value, uint64_t seed)
{
    return hash_span(&(*value)->text, seed);
}

static uint64_t hash_pairs(const sx_rank_pairs *value, uint64_t seed)
{
    return hash_bytes(value->pair, value->count * sizeof(sx_rank_pair), seed + value->count);
}

static bool equal_ints(const sx_ints *a, const sx_ints *b)
{
    return a->count == b->count && memcmp(a->v, b->v, a->count * sizeof(a->v[0])) == 0;
}

static bool equal_extents(const sx_extents *a, const sx_extents *b)
{
    bool same = a->count == b->count;
    for (uint32_t i = 0; i < a->count && same; i++) {
        same = sx_dim_equal(a->v[i], b->v[i]);
    }
    return same;
}

static bool equal_body(const sx_body *const *a, const sx_body *const *b)
{
    return *a == *b || sx_body_equal(*a, *b);
}

static bool equal_program(const sx_program *const *a, const sx_program *const *b)
{
    return *a == *b || sx_span_equal((*a)->text, (*b)->text);
}

static bool equal_pairs(const sx_rank_pairs *a, const sx_rank_pairs *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->pair, b->pair, a->count * sizeof(sx_rank_pair)) == 0);
}

/* One row per kind of attribute, used by the three walks over attrs.def below. */
#define HASH_INT(field) hash_int(&attr->field, hash)
#define HASH_INTS(field) hash_ints(&attr->field, hash)
#define HASH_EXTENTS(field) hash_extents(&attr->field, hash)
#define HASH_FLOAT(field) hash_float(&attr->field, hash)
#define HASH_REDUCER(field) hash_reducer(&attr->field, hash)
#define HASH_DIRECTION(field) hash_direction(&attr->field, hash)
#define HASH_TYPE(field) hash_type(&attr->field, hash)
#define HASH_BYTES(field) hash_span(&attr->field, hash)
#define HASH_NAME(field) hash_span(&attr->field, hash)
#define HASH_BODY(field) hash_body(&attr->field, hash)
#define HASH_PROGRAM(field) hash_program(&attr->field, hash)
#define HASH_PAIRS(field) hash_pairs(&attr->field, hash)
#define EQUAL_INT(field) (a->field == b->field)
#define EQUAL_INTS(field) equal_ints(&a->field, &b->field)
#define EQUAL_EXTENTS(field) equal_extents(&a->field, &b->field)
#define EQUAL_FLOAT(field) (memcmp(&a->field, &b->field, sizeof(a->field)) == 0)
#define EQUAL_REDUCER(field) (a->field == b->field)
#define EQUAL_DIRECTION(field) (a->field == b->field)
#define EQUAL_TYPE(field) sx_type_equal(&a->field, &b->field)
#define EQUAL_BYTES(field) sx_span_equal(a->field, b->field)
#define EQUAL_NAME(field) sx_span_equal(a->field, b->field)
#define EQUAL_BODY(field) equal_body(&a->field, &b->field)
#define EQUAL_PROGRAM(field) equal_program(&a->field, &b->field)
#define EQUAL_PAIRS(field) equal_pairs(&a->field, &b->field)

uint64_t sx_attr_hash(const sx_attr *attr)
{
    uint64_t hash = attr->present;
#define SX_ATTR(name, kind, help)          \
    if ((attr->present & SX_A(name)) != 0) \
        hash = HASH_##kind(name);
#include "core/ir/attrs.def"
#undef SX_ATTR
    return hash;
}

bool sx_attr_equal(const sx_attr *a, const sx_attr *b)
{
    if (a->present != b->present) {
        return false;
    }
#define SX_ATTR(name, kind, help)                                \
    if ((a->present & SX_A(name)) != 0 && !(EQUAL_##kind(name))) \
        return false;
#include "core/ir/attrs.def"
#undef SX_ATTR
    return true;
}

bool sx_attr_is_sibling(const sx_attr *a, const sx_attr *b)
{
    sx_attr other = *b;
    other.result = a->result;
    return (a->present & SX_A(result)) != 0 && sx_attr_equal(a, &other);
}

static bool same(const void *self, uint32_t id, const void *probe)
{
    const sx_attr_table *table = self;
    return sx_attr_equal(table->attr[id], probe);
}

static sx_code copy_span(sx_ctx *cx, sx_span *span)
{
    if (span->len == 0) {
        *span = (sx_span){0};
        return SX_OK;
    }
    uint8_t *bytes = sx_alloc(cx, span->len);
    if (bytes == NULL) {
        return cx->error.code;
    }
    memcpy(bytes, span->ptr, span->len);
    span->ptr = bytes;
    return SX_OK;
}

/* How many rows are looked through for an equal program: results of one computation come one after the other. */
#define PROGRAM_ROWS 64

/* The program in cx's arena: that of a row not long before where it is equal, so that all results of a computation
 * share one, or a copy. */
static sx_code keep_program(sx_ctx *cx, sx_attr_table *table, const sx_program **program)
{
    uint32_t low = table->count > PROGRAM_ROWS ? table->count - PROGRAM_ROWS : 0;
    for (uint32_t i = table->count; i-- > low;) {
        const sx_program **own[SX_ATTR_PROGRAMS_MAX];
        uint32_t count = sx_attr_programs(table->attr[i], own);
        for (uint32_t k = 0; k < count; k++) {
            if (equal_program(own[k], program)) {
                *program = *own[k];
                return SX_OK;
            }
        }
    }
    return sx_program_copy(cx, *program, program);
}

static sx_code copy_pairs(sx_ctx *cx, sx_rank_pairs *pairs)
{
    SX_ASSERT(pairs->count <= SX_RANK_PAIRS_MAX);
    sx_span bytes = {(const uint8_t *)pairs->pair, pairs->count * sizeof(sx_rank_pair)};
    SX_TRY(copy_span(cx, &bytes));
    pairs->pair = (const sx_rank_pair *)(const void *)bytes.ptr;
    return SX_OK;
}

/* The fields that are present, owned by cx's arena; all others zero, and zero beyond the counts of lists. */
static sx_code copy_attr(sx_ctx *cx, sx_attr_table *table, const sx_attr *attr, sx_attr *copy)
{
    *copy = (sx_attr){.present = attr->present};
#define SX_ATTR(name, kind, help)          \
    if ((attr->present & SX_A(name)) != 0) \
        copy->name = attr->name;
#include "core/ir/attrs.def"
#undef SX_ATTR
    SX_TRY(copy_span(cx, &copy->data));
    SX_TRY(copy_span(cx, &copy->name));
    SX_TRY(copy_span(cx, &copy->along));
    SX_TRY(copy_pairs(cx, &copy->pairs));
    if (copy->body != NULL) {
        sx_body *body = sx_alloc_unset(cx, offsetof(sx_body, instr) +
                                               copy->body->instr_count * sizeof(sx_instr));
        if (body == NULL) {
            return cx->error.code;
        }
        sx_body_copy(body, copy->body);
        copy->body = body;
    }
    const sx_program **program[SX_ATTR_PROGRAMS_MAX];
    uint32_t count = sx_attr_programs(copy, program);
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(keep_program(cx, table, program[i]));
    }
    return SX_OK;
}

static sx_code intern(sx_ctx *cx, sx_attr_table *table, const sx_attr *attr, uint64_t hash,
                      sx_attr_id *id)
{
    SX_ASSERT((attr->present & SX_A(body)) == 0 || attr->body != NULL);
    SX_ASSERT(attr->present >> SX_ATTR_COUNT == 0);
    uint32_t found = sx_idmap_find(&table->map, hash, same, table, attr);
    if (found != SX_IDMAP_NONE) {
        id->i = found;
        return SX_OK;
    }
    void *rows = table->attr;
    sx_attr *row = sx_alloc_unset(cx, sizeof(*row));
    if (row == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_grow(cx, &rows, &table->capacity, table->count + 1, sizeof(*table->attr)));
    table->attr = rows;
    SX_TRY(sx_grow(cx, (void **)&table->hash, &table->hash_capacity, table->count + 1,
                   sizeof(*table->hash)));
    SX_TRY(copy_attr(cx, table, attr, row));
    table->attr[table->count] = row;
    table->hash[table->count] = hash;
    SX_TRY(sx_idmap_put(cx, &table->map, hash, table->count));
    id->i = table->count++;
    return SX_OK;
}

sx_code sx_attr_intern(sx_ctx *cx, sx_attr_table *table, const sx_attr *attr, sx_attr_id *id)
{
    return intern(cx, table, attr, sx_attr_hash(attr), id);
}

sx_code sx_attr_intern_row(sx_ctx *cx, sx_attr_table *table, const sx_attr_table *from,
                           uint32_t row, sx_attr_id *id)
{
    SX_ASSERT(row < from->count);
    const sx_attr *attr = from->attr[row];
    uint64_t hash = row < from->hash_capacity ? from->hash[row] : 0;
    return intern(cx, table, attr, hash != 0 ? hash : sx_attr_hash(attr), id);
}

sx_code sx_attr_table_init(sx_ctx *cx, sx_attr_table *table)
{
    *table = (sx_attr_table){0};
    sx_attr_id empty;
    SX_TRY(sx_attr_intern(cx, table, &(sx_attr){0}, &empty));
    SX_ASSERT(empty.i == 0);
    return SX_OK;
}

sx_code sx_attr_table_restore(sx_ctx *cx, sx_attr_table *table, uint32_t count)
{
    SX_ASSERT(count > 0);
    *table = (sx_attr_table){0};
    void *rows = NULL;
    uint32_t room = 0;
    SX_TRY(sx_region_grow(cx, &rows, &room, count, sizeof(sx_attr)));
    void *attr = NULL;
    SX_TRY(sx_grow(cx, &attr, &table->capacity, count + ROWS_MORE, sizeof(*table->attr)));
    table->attr = attr;
    table->count = count;
    for (uint32_t i = 0; i < count; i++) { /* what is not present is not looked at */
        table->attr[i] = (sx_attr *)rows + i;
        table->attr[i]->present = 0;
        table->attr[i]->body = NULL;
    }
    return SX_OK;
}

sx_code sx_attr_table_index(sx_ctx *cx, sx_attr_table *table)
{
    table->map = (sx_idmap){0};
    for (uint32_t i = 0; i < table->count; i++) {
        const sx_attr *attr = table->attr[i];
        if (i > 0 && attr->present == 0) {
            continue;
        }
        uint64_t hash = sx_attr_hash(attr);
        uint32_t other = sx_idmap_find(&table->map, hash, same, table, attr);
        if (other != SX_IDMAP_NONE) {
            return SX_FAIL(cx, SX_CORRUPT, "attribute %u: equal to attribute %u", i, other);
        }
        SX_TRY(sx_idmap_put(cx, &table->map, hash, i));
    }
    return SX_OK;
}

sx_code sx_attr_table_rename(sx_ctx *cx, sx_attr_table *table, uint32_t id, sx_span name)
{
    SX_ASSERT(id < table->count && (table->attr[id]->present & SX_A(name)) != 0);
    table->attr[id]->name = name;
    if (id < table->hash_capacity) {
        table->hash[id] = 0;
    }
    return sx_idmap_put(cx, &table->map, sx_attr_hash(table->attr[id]), id);
}
