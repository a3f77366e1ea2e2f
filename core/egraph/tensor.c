#include "core/egraph/sharding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ir/num.h"
#include "core/ir/plain.h"

_Static_assert(SX_OP_COUNT <= SX_EG_OPS_MAX, "sets of operations are sx_bits");

/* ---- types ---- */

static bool equal_type(const void *self, uint32_t id, const void *probe)
{
    const sx_tensors *t = self;
    return sx_type_equal(&t->type[id], probe);
}

static sx_code intern_type(sx_ctx *cx, sx_tensors *t, const sx_type *type, uint32_t *id)
{
    int64_t scale[SX_RANK_MAX];
    for (uint32_t d = 0; d < type->rank; d++) {
        scale[d] = type->dim[d].scale;
    }
    uint64_t hash = sx_hash64((sx_span){(const uint8_t *)scale, type->rank * sizeof(*scale)},
                              (uint64_t)type->dtype);
    *id = sx_idmap_find(&t->type_map, hash, equal_type, t, type);
    if (*id != SX_IDMAP_NONE) {
        return SX_OK;
    }
    SX_TRY(sx_grow(cx, (void **)&t->type, &t->type_capacity, t->type_count + 1, sizeof(sx_type)));
    *id = t->type_count;
    t->type[t->type_count++] = *type;
    return sx_idmap_put(cx, &t->type_map, hash, *id);
}

/* ---- facts ---- */

/* All elements of a constant as one number, if they are. */
static bool constant_value(const sx_attr *attr, double *value)
{
    sx_dtype dtype = attr->type.dtype;
    size_t size = sx_dtype_bytes(dtype);
    if (attr->data.len < size || attr->data.len % size != 0) {
        return false;
    }
    for (size_t i = size; i < attr->data.len; i += size) {
        if (memcmp(attr->data.ptr, attr->data.ptr + i, size) != 0) {
            return false;
        }
    }
    uint64_t bits = sx_num_load(dtype, attr->data.ptr, 0);
    if (sx_dtype_class_of(dtype) == SX_CLASS_FLOAT) {
        *value = sx_num_decode(dtype, bits);
        return true;
    }
    int64_t integer = sx_num_int_decode(dtype, bits);
    *value = (double)integer;
    return integer >= -(INT64_C(1) << 53) && integer <= INT64_C(1) << 53;
}

/* The value of an elementwise operation on known float values, rounded once per operation as the interpreter
 * does: the double result of + - * / sqrt on operands of at most 24 bits rounds to the same narrower number. */
static bool folded_value(sx_op op, sx_dtype dtype, const double *x, double *value)
{
    if (sx_dtype_class_of(dtype) != SX_CLASS_FLOAT) {
        return false;
    }
    switch ((int)op) {
    case SX_OP_ADD: *value = x[0] + x[1]; break;
    case SX_OP_SUBTRACT: *value = x[0] - x[1]; break;
    case SX_OP_MULTIPLY: *value = x[0] * x[1]; break;
    case SX_OP_DIVIDE: *value = x[0] / x[1]; break;
    case SX_OP_NEGATE: *value = -x[0]; break;
    case SX_OP_SQRT: *value = sqrt(x[0]); break;
    default: return false;
    }
    *value = sx_num_round(dtype, *value);
    return isfinite(*value);
}

/* What node n is where its children are x[..]; false where that is not known. */
static bool value_of(const sx_tensors *t, uint32_t n, sx_dtype dtype, const double *x,
                     double *value)
{
    sx_op op = sx_tensors_op(t, n);
    sx_dtype from = sx_tensors_type(t, sx_eg_child(&t->eg, n, 0))->dtype;
    if (sx_op_info_of(op)->op_class == SX_OPCLASS_VIEW) {
        *value = x[0];
        return true;
    }
    if (op == SX_OP_CONVERT && sx_dtype_class_of(from) == SX_CLASS_FLOAT &&
        sx_dtype_class_of(dtype) == SX_CLASS_FLOAT) {
        *value = sx_num_round(dtype, x[0]);
        return isfinite(*value);
    }
    return folded_value(op, dtype, x, value);
}

bool sx_tensors_constant(const sx_tensors *t, uint32_t node, double *value)
{
    SX_ASSERT(node < t->eg.node_count);
    return sx_tensors_op(t, node) == SX_OP_CONSTANT &&
           constant_value(sx_tensors_attr(t, node), value);
}

bool sx_tensors_fold(const sx_tensors *t, uint32_t node, const double operand[2], double *value)
{
    SX_ASSERT(node < t->eg.node_count);
    uint32_t arity = t->eg.node[node].arity;
    return arity > 0 && arity <= 2 &&
           value_of(t, node, sx_tensors_type(t, node)->dtype, operand, value);
}

uint32_t sx_tensors_values(const sx_tensors *t, const sx_fact *fact, double value[SX_VALUES_MAX])
{
    uint32_t count = 0;
    if (fact->has_value == 0) {
        return 0;
    }
    value[count++] = fact->value;
    const sx_value_set *set = t->all_values && fact->from != 0 ? &t->values[fact->from] : NULL;
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        if (memcmp(&set->value[i], &fact->value, sizeof(double)) != 0) {
            SX_ASSERT(count < SX_VALUES_MAX);
            value[count++] = set->value[i];
        }
    }
    return count;
}

static int by_bits(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

sx_code sx_tensors_name_values(sx_ctx *cx, sx_tensors *t, const sx_graph *graph)
{
    double *named = SX_NEW_ARRAY(cx, double, graph->node_count + 1);
    uint32_t count = 0;
    if (named == NULL) {
        return cx->error.code;
    }
    SX_ASSERT(t->eg.node_count == 0);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        if (node->op == SX_OP_CONSTANT &&
            constant_value(sx_graph_attr(graph, node), &named[count])) {
            count++;
        }
    }
    qsort(named, count, sizeof(*named), by_bits);
    t->named = named;
    t->named_count = count;
    return SX_OK;
}

static bool is_named(const sx_tensors *t, double value)
{
    return t->named_count > 0 &&
           bsearch(&value, t->named, t->named_count, sizeof(value), by_bits) != NULL;
}

/* Puts a number into a list that is ascending by bits, once. A full list stays as it is, but for a number that
 * a constant names: numbers that steps arrive at are not lost to their neighbours. */
static void put_value(const sx_tensors *t, sx_value_set *set, double value)
{
    uint32_t at = set->count;
    int order = 1;
    SX_ASSERT(set->count <= SX_VALUES_KEPT);
    while (at > 0 && (order = by_bits(&set->value[at - 1], &value)) > 0) {
        at--;
    }
    if (at > 0 && order == 0) {
        return;
    }
    if (set->count == SX_VALUES_KEPT && is_named(t, value)) {
        uint32_t gone = SX_VALUES_KEPT;
        while (gone > 0 && is_named(t, set->value[gone - 1])) {
            gone--;
        }
        if (gone > 0) {
            memmove(&set->value[gone - 1], &set->value[gone], (set->count - gone) * sizeof(double));
            set->count--;
            at -= at >= gone ? 1 : 0;
        }
    }
    if (set->count < SX_VALUES_KEPT) {
        memmove(&set->value[at + 1], &set->value[at], (set->count - at) * sizeof(double));
        set->value[at] = value;
        set->count++;
    }
}

static bool equal_values(const void *self, uint32_t id, const void *probe)
{
    const sx_value_set *held = &((const sx_tensors *)self)->values[id];
    const sx_value_set *set = probe;
    return held->count == set->count &&
           memcmp(held->value, set->value, set->count * sizeof(double)) == 0;
}

/* A place for a set of two or more; of too many sets, the last ones are not kept. */
static sx_code intern_values(sx_ctx *cx, sx_tensors *t, const sx_value_set *set, sx_fact *fact)
{
    if (set->count < 2) {
        return SX_OK;
    }
    uint64_t hash =
        sx_hash64((sx_span){(const uint8_t *)set->value, set->count * sizeof(double)}, 0);
    uint32_t at = sx_idmap_find(&t->values_map, hash, equal_values, t, set);
    if (at == SX_IDMAP_NONE) {
        at = t->values_count > 0 ? t->values_count : 1;
        if (at >= SX_VALUE_SETS_MAX) {
            return SX_OK;
        }
        SX_TRY(sx_grow(cx, (void **)&t->values, &t->values_capacity, at + 1, sizeof(*set)));
        t->values[at] = *set;
        t->values_count = at + 1;
        SX_TRY(sx_idmap_put(cx, &t->values_map, hash, at));
    }
    fact->from = at & SX_FACT_FROM_MAX;
    return SX_OK;
}

/* Both operands of numbers, one of them of several: the first number follows from the first of each, the
 * others from all. */
static sx_code find_values(sx_ctx *cx, sx_tensors *t, uint32_t n, const sx_type *type,
                           const sx_fact *const *below, sx_fact *fact)
{
    double known[2][SX_VALUES_MAX] = {{0}};
    uint32_t count[2] = {1, 1};
    sx_value_set set = {0};
    for (uint32_t k = 0; k < t->eg.node[n].arity; k++) {
        count[k] = sx_tensors_values(t, below[k], known[k]);
    }
    SX_TRY(sx_spend(cx, (uint64_t)count[0] * count[1]));
    for (uint32_t i = 0; i < count[0] * count[1]; i++) {
        double x[2] = {known[0][i / count[1]], known[1][i % count[1]]};
        double value;
        if (!value_of(t, n, type->dtype, x, &value)) {
            continue;
        }
        fact->value = fact->has_value != 0 ? fact->value : value;
        fact->has_value = 1;
        put_value(t, &set, value);
    }
    return intern_values(cx, t, &set, fact);
}

/* Node n is a number by itself, or because its operands are. */
static sx_code note_number(sx_ctx *cx, sx_tensors *t, uint32_t n, const sx_fact *const *below,
                           sx_fact *fact)
{
    if (t->all_values || fact->has_value == 0) {
        return SX_OK;
    }
    SX_ASSERT(n <= SX_FACT_FROM_MAX);
    fact->from = n & SX_FACT_FROM_MAX;
    if (below[0] == NULL) {
        return SX_OK;
    }
    SX_TRY(sx_region_grow(cx, (void **)&t->number, &t->number_capacity, t->number_count + 1,
                          sizeof(*t->number)));
    t->number[t->number_count++] = (sx_number){
        n, {below[0]->from, below[1] != NULL ? below[1]->from : SX_EG_NONE}, fact->value};
    return SX_OK;
}

static sx_code find_value(sx_ctx *cx, sx_tensors *t, uint32_t n, const sx_type *type, sx_fact *fact)
{
    uint32_t arity = t->eg.node[n].arity;
    const sx_fact *below[2] = {NULL, NULL};
    double x[2] = {0, 0};
    bool several = false;
    if (sx_tensors_op(t, n) == SX_OP_CONSTANT) {
        fact->has_value = constant_value(sx_tensors_attr(t, n), &fact->value);
        return note_number(cx, t, n, below, fact);
    }
    if (arity == 0 || arity > 2) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < arity; k++) {
        below[k] = sx_tensors_fact(t, sx_eg_child(&t->eg, n, k));
        if (below[k]->has_value == 0) {
            return SX_OK;
        }
        x[k] = below[k]->value;
        several = several || (t->all_values && below[k]->from != 0);
    }
    if (several) {
        return find_values(cx, t, n, type, below, fact);
    }
    fact->has_value = value_of(t, n, type->dtype, x, &fact->value);
    return note_number(cx, t, n, below, fact);
}

static bool follows_from_weights(const sx_tensors *t, uint32_t n, const sx_type *type)
{
    sx_op op = sx_tensors_op(t, n);
    if (!sx_type_is_static(type)) {
        return false;
    }
    if (op == SX_OP_PARAMETER) {
        return sx_tensors_attr(t, n)->weight != 0;
    }
    for (uint32_t k = 0; k < t->eg.node[n].arity; k++) {
        if (sx_tensors_fact(t, sx_eg_child(&t->eg, n, k))->is_weight == 0) {
            return false;
        }
    }
    return true;
}

#define TYPING_HEAD 4u /* operation, attribute, arity, result */

static bool equal_typing(const void *self, uint32_t id, const void *probe)
{
    const sx_tensors *t = self;
    const uint32_t *held = &t->typing[id];
    const uint32_t *asked = probe;
    bool same = held[0] == asked[0] && held[1] == asked[1] && held[2] == asked[2];
    for (uint32_t k = 0; same && k < asked[2]; k++) {
        same = held[TYPING_HEAD + k] == asked[TYPING_HEAD + k];
    }
    return same;
}

/* The type of a node. Equal layers ask the same question again and again, and inferring the type of a kernel
 * takes its time. */
static sx_code find_type(sx_ctx *cx, sx_tensors *t, const sx_eg *eg, uint32_t n, uint32_t *type)
{
    const sx_eg_node *node = &eg->node[n];
    uint32_t asked[TYPING_HEAD + SX_EG_ARITY_MAX];
    uint32_t words = TYPING_HEAD + node->arity;
    uint64_t hash = ((uint64_t)node->attr << 16 | node->op) * UINT64_C(0x9E3779B97F4A7C15);
    asked[0] = node->op;
    asked[1] = node->attr;
    asked[2] = node->arity;
    for (uint32_t k = 0; k < node->arity; k++) {
        uint32_t below = sx_tensors_fact(t, sx_eg_child(eg, n, k))->type;
        asked[TYPING_HEAD + k] = below;
        hash = (hash ^ (hash >> 29) ^ below) * UINT64_C(0xFF51AFD7ED558CCD);
    }
    hash ^= hash >> 32;
    uint32_t known = sx_idmap_find(&t->typing_map, hash, equal_typing, t, asked);
    if (known != SX_IDMAP_NONE) {
        *type = t->typing[known + 3];
        return SX_OK;
    }
    sx_type input[SX_EG_ARITY_MAX];
    sx_type result;
    for (uint32_t k = 0; k < node->arity; k++) {
        input[k] = t->type[asked[TYPING_HEAD + k]];
    }
    SX_TRY(sx_infer_type(cx, t->symbol, t->symbol_count, (sx_op)node->op, sx_tensors_attr(t, n),
                         input, node->arity, &result));
    if (!sx_node_is_plain((sx_op)node->op, sx_tensors_attr(t, n), input, node->arity, &result)) {
        return SX_FAIL(cx, SX_INPUT, "%s: negative padding or no elements: no rule knows of it",
                       sx_op_info_of((sx_op)node->op)->name);
    }
    SX_TRY(intern_type(cx, t, &result, type));
    SX_TRY(sx_grow(cx, (void **)&t->typing, &t->typing_capacity, t->typing_count + words,
                   sizeof(*asked)));
    asked[3] = *type;
    memcpy(&t->typing[t->typing_count], asked, words * sizeof(*asked));
    SX_TRY(sx_idmap_put(cx, &t->typing_map, hash, t->typing_count));
    t->typing_count += words;
    return SX_OK;
}

/* A kernel whose attribute was not loaded; never the first of its class. */
static bool is_left_out(const sx_tensors *t, const sx_eg *eg, uint32_t n)
{
    return t->partial && eg->node[n].op == SX_OP_FUSED && !sx_eg_is_class(eg, n) &&
           t->attrs->attr[eg->node[n].attr]->present == 0;
}

static sx_code make_fact(sx_ctx *cx, void *self, const sx_eg *eg, uint32_t n, void *record)
{
    sx_tensors *t = self;
    sx_fact *fact = record;
    if (is_left_out(t, eg, n)) {
        fact->type = ((const sx_fact *)sx_eg_record(eg, n))->type;
    } else {
        SX_TRY(find_type(cx, t, eg, n, &fact->type));
    }
    SX_TRY(find_value(cx, t, n, &t->type[fact->type], fact));
    fact->is_weight = follows_from_weights(t, n, &t->type[fact->type]);
    if (t->mesh != NULL) {
        sx_tensors_mesh_sets(t, n, &t->type[fact->type], (uint32_t *)(fact + 1));
    }
    return SX_OK;
}

static bool same_values(const sx_fact *a, const sx_fact *b)
{
    return a->from == b->from && memcmp(&a->value, &b->value, sizeof(a->value)) == 0;
}

/* Two classes of known numbers: all of both are numbers of the one. */
static sx_code join_values(sx_ctx *cx, sx_tensors *t, sx_fact *a, const sx_fact *b, bool *changed)
{
    double value[SX_VALUES_MAX];
    uint32_t others = a->from;
    sx_value_set set = {0};
    const sx_fact *side[2] = {a, b};
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t count = sx_tensors_values(t, side[k], value);
        for (uint32_t i = 0; i < count; i++) {
            put_value(t, &set, value[i]);
        }
    }
    SX_TRY(intern_values(cx, t, &set, a));
    *changed = *changed || others != a->from;
    return SX_OK;
}

static sx_code join_facts(sx_ctx *cx, void *self, void *into, const void *from, bool *changed)
{
    sx_tensors *t = self;
    sx_fact *a = into;
    const sx_fact *b = from;
    if (a->type != b->type) {
        return SX_FAIL(cx, SX_INTERNAL, "a rule unites classes of two types, %u and %u", a->type,
                       b->type);
    }
    if (a->has_value == 0 && b->has_value != 0) {
        a->has_value = 1;
        a->value = b->value;
        a->from = b->from;
        *changed = true;
    } else if (t->all_values && b->has_value != 0 && !same_values(a, b)) {
        SX_TRY(join_values(cx, t, a, b, changed));
    }
    if (a->is_weight == 0 && b->is_weight != 0) {
        a->is_weight = 1;
        *changed = true;
    }
    uint32_t *places = (uint32_t *)(a + 1);
    const uint32_t *others = (const uint32_t *)(b + 1);
    for (uint32_t i = 0; t->mesh != NULL && i < SX_MESH_AXES_MAX; i++) {
        *changed = *changed || (others[i] & ~places[i]) != 0;
        places[i] |= others[i];
    }
    return SX_OK;
}

/* ---- nodes ---- */

void sx_tensors_begin(sx_tensors *t, const sx_graph *graph, sx_eg_analysis *analysis)
{
    SX_ASSERT(graph->attrs != NULL && graph->symbol_count <= SX_SYMBOLS_MAX);
    *t = (sx_tensors){
        .attrs = graph->attrs, .symbol = graph->symbol, .symbol_count = graph->symbol_count};
    *analysis = (sx_eg_analysis){sizeof(sx_fact), t, make_fact, join_facts};
}

sx_code sx_tensors_init(sx_ctx *cx, sx_tensors *t, const sx_graph *graph)
{
    sx_eg_analysis analysis;
    sx_tensors_begin(t, graph, &analysis);
    if (graph->sharding != NULL) {
        SX_TRY(sx_tensors_mesh_make(cx, graph, &t->mesh));
        analysis.size += SX_MESH_AXES_MAX * sizeof(uint32_t);
    }
    return sx_eg_init(cx, &t->eg, &analysis);
}

sx_code sx_tensors_import(sx_ctx *cx, sx_tensors *t, const sx_graph *graph, uint32_t *eg_node)
{
    SX_ASSERT(graph->attrs == t->attrs);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        uint32_t child[SX_EG_ARITY_MAX];
        SX_ASSERT(node->input_count <= SX_EG_ARITY_MAX);
        for (uint32_t k = 0; k < node->input_count; k++) {
            child[k] = eg_node[graph->input[node->input_first + k].i];
        }
        SX_TRY(sx_eg_add(cx, &t->eg, (uint16_t)node->op, node->attr.i, child, node->input_count,
                         &eg_node[i]));
    }
    return SX_OK;
}

sx_code sx_tensors_add_interned(sx_ctx *cx, sx_tensors *t, sx_op op, uint32_t attr,
                                const uint32_t *child, uint32_t arity, uint32_t *node)
{
    SX_ASSERT(op < SX_OP_COUNT && attr < t->attrs->count);
    const sx_op_info *info = sx_op_info_of(op);
    *node = SX_EG_NONE;
    if (arity < info->input_min || arity > info->input_max) {
        return SX_OK;
    }
    sx_code code = sx_eg_add(cx, &t->eg, (uint16_t)op, attr, child, arity, node);
    if (code == SX_INPUT || code == SX_UNIMPLEMENTED) {
        sx_ctx_reset_error(cx);
        *node = SX_EG_NONE;
        return SX_OK;
    }
    return code;
}

sx_code sx_tensors_add(sx_ctx *cx, sx_tensors *t, sx_op op, const sx_attr *attr,
                       const uint32_t *child, uint32_t arity, uint32_t *node)
{
    SX_ASSERT(op < SX_OP_COUNT && (child != NULL || arity == 0));
    sx_attr_id id = {0};
    if (attr != NULL) {
        sx_attr made;
        SX_TRY(sx_attr_intern(cx, t->attrs, sx_attr_normal(op, attr, &made), &id));
    }
    return sx_tensors_add_interned(cx, t, op, id.i, child, arity, node);
}

bool sx_tensors_value_attr(const sx_type *type, double value, uint8_t data[8], sx_attr *attr)
{
    SX_ASSERT(type->dtype < SX_DTYPE_COUNT && type->rank <= SX_RANK_MAX);
    uint64_t bits;
    if (sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT) {
        if (sx_num_round(type->dtype, value) != value) {
            return false;
        }
        bits = sx_num_encode(type->dtype, value);
    } else {
        if (!(value >= (double)sx_num_int_min(type->dtype)) ||
            !(value < (double)sx_num_int_max(type->dtype) + 1) || floor(value) != value) {
            return false;
        }
        bits = sx_num_int_encode(type->dtype, (int64_t)value);
    }
    sx_num_store(type->dtype, data, 0, bits);
    *attr = (sx_attr){.present = SX_A(data) | SX_A(type), .type = *type};
    attr->data = (sx_span){data, sx_dtype_bytes(type->dtype)};
    return true;
}

sx_code sx_tensors_add_value(sx_ctx *cx, sx_tensors *t, const sx_type *type, double value,
                             uint32_t *node)
{
    uint8_t data[8];
    sx_attr attr;
    *node = SX_EG_NONE;
    return sx_tensors_value_attr(type, value, data, &attr)
               ? sx_tensors_add(cx, t, SX_OP_CONSTANT, &attr, NULL, 0, node)
               : SX_OK;
}

/* ---- language ---- */

static bool in_set(sx_op_class op_class, sx_span set)
{
    if (sx_span_is(set, "unary")) {
        return op_class == SX_OPCLASS_UNARY;
    }
    if (sx_span_is(set, "binary")) {
        return op_class == SX_OPCLASS_BINARY;
    }
    if (sx_span_is(set, "elementwise")) {
        return op_class >= SX_OPCLASS_UNARY && op_class <= SX_OPCLASS_CONVERT;
    }
    if (sx_span_is(set, "view")) {
        return op_class == SX_OPCLASS_VIEW;
    }
    if (sx_span_is(set, "sum")) {
        return op_class == SX_OPCLASS_REDUCE || op_class == SX_OPCLASS_DOT;
    }
    return sx_span_is(set, "any");
}

static bool name_ops(void *self, sx_span name, bool is_set, sx_bits *ops)
{
    (void)self;
    sx_op op;
    *ops = (sx_bits){0};
    if (!is_set) {
        if (!sx_op_parse(name, &op)) {
            return false;
        }
        sx_bits_add(ops, op);
        return true;
    }
    for (uint32_t i = 0; i < SX_OP_COUNT; i++) {
        if (in_set(sx_op_info_of((sx_op)i)->op_class, name)) {
            sx_bits_add(ops, i);
        }
    }
    return sx_bits_count(ops) != 0;
}

static bool is_value(void *self, const sx_eg *eg, uint32_t class_, double value)
{
    const sx_tensors *t = self;
    SX_ASSERT(eg == &t->eg);
    const sx_fact *fact = sx_tensors_fact(t, class_);
    return fact->has_value != 0 && memcmp(&fact->value, &value, sizeof(value)) == 0;
}

static uint32_t number_from(const void *self, const sx_eg *eg, uint32_t class_)
{
    const sx_tensors *t = self;
    SX_ASSERT(eg == &t->eg && !t->all_values);
    const sx_fact *fact = sx_tensors_fact(t, class_);
    return fact->has_value != 0 ? fact->from : SX_EG_NONE;
}

static sx_code make_value(sx_ctx *cx, void *self, sx_eg *eg, uint32_t like, double value,
                          uint32_t *node)
{
    sx_tensors *t = self;
    SX_ASSERT(eg == &t->eg);
    sx_type type = *sx_tensors_type(t, like);
    return sx_tensors_add_value(cx, t, &type, value, node);
}

static sx_code make_node(sx_ctx *cx, void *self, sx_eg *eg, uint16_t op, uint32_t attr,
                         const uint32_t *child, uint32_t arity, uint32_t *node)
{
    sx_tensors *t = self;
    SX_ASSERT(eg == &t->eg);
    return sx_tensors_add_interned(cx, t, (sx_op)op, attr, child, arity, node);
}

sx_eg_language sx_tensors_language(sx_tensors *t)
{
    return (sx_eg_language){t, name_ops, is_value, make_value, make_node, number_from};
}

/* ---- text ---- */

static void print_leaf(const sx_tensors *t, uint32_t node, sx_buf *text)
{
    const sx_attr *attr = sx_tensors_attr(t, node);
    const sx_fact *fact = sx_tensors_fact(t, node);
    if (sx_tensors_op(t, node) == SX_OP_PARAMETER) {
        sx_buf_put_text(text, "%");
        sx_buf_put_span(text, attr->name);
    } else if (fact->has_value != 0) {
        sx_buf_print(text, "%.9g", fact->value);
    } else {
        sx_buf_put_text(text, sx_op_info_of(sx_tensors_op(t, node))->name);
    }
}

static void print_body(const sx_attr *attr, sx_buf *text)
{
    static const char *const kind[] = {"map", "row", "dot", "online", "nested"};
    sx_buf_print(text, "[%s", kind[sx_body_kernel_kind(attr->body)]);
    for (uint32_t i = 0; i < attr->body->instr_count; i++) {
        const sx_instr *in = &attr->body->instr[i];
        if (in->kind == SX_BODY_APPLY) {
            sx_buf_print(text, " %s", sx_op_info_of(in->op)->name);
        } else if (in->kind == SX_BODY_REDUCE) {
            sx_buf_print(text, " reduce_%s", sx_reducer_name(in->reducer));
        } else if (in->kind == SX_BODY_DOT) {
            sx_buf_put_text(text, " dot");
        } else if (in->kind == SX_BODY_ONLINE) {
            sx_buf_put_text(text, " online");
        }
    }
    sx_buf_put_text(text, "]");
}

void sx_tensors_print(const sx_tensors *t, const uint32_t *choice, uint32_t node, uint32_t depth,
                      sx_buf *text)
{
    SX_ASSERT(node < t->eg.node_count);
    const sx_eg_node *n = &t->eg.node[node];
    if (n->arity == 0) {
        print_leaf(t, node, text);
        return;
    }
    sx_buf_put_text(text, sx_op_info_of((sx_op)n->op)->name);
    if (n->op == SX_OP_FUSED && sx_tensors_attr(t, node)->body != NULL) {
        print_body(sx_tensors_attr(t, node), text);
    }
    sx_buf_put_text(text, "(");
    for (uint32_t k = 0; k < n->arity; k++) {
        uint32_t class_ = sx_eg_child(&t->eg, node, k);
        uint32_t chosen = choice != NULL && choice[class_] != SX_EG_NONE ? choice[class_] : class_;
        sx_buf_put_text(text, k > 0 ? ", " : "");
        bool is_kernel =
            t->eg.node[chosen].op == SX_OP_FUSED; /* only the outermost shows its program */
        if ((depth > 0 && !is_kernel) || t->eg.node[chosen].arity == 0) {
            sx_tensors_print(t, choice, chosen, depth > 0 ? depth - 1 : 0, text);
        } else {
            sx_buf_print(text, "%%%u", class_);
        }
    }
    sx_buf_put_text(text, ")");
}
