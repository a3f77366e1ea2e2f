#include "tests/lib/terms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 200u

typedef struct {
    uint64_t known;
    double value;
} fact;

static uint32_t op_of(sx_terms *t, sx_span word)
{
    for (uint32_t i = 0; i < t->op_count; i++) {
        if (sx_span_equal(t->op[i], word)) {
            return i;
        }
    }
    if (t->op_count >= SX_EG_OPS_MAX || word.len == 0) {
        return SX_EG_NONE;
    }
    t->op[t->op_count] = word;
    return t->op_count++;
}

static bool language_ops(void *self, sx_span name, bool is_set, sx_bits *ops)
{
    if (is_set) {
        memset(ops, 0xFF, sizeof(*ops));
        return sx_span_is(name, "any");
    }
    uint32_t op = op_of(self, name);
    *ops = (sx_bits){0};
    if (op != SX_EG_NONE) {
        sx_bits_add(ops, op);
    }
    return op != SX_EG_NONE;
}

static uint32_t *place_of(sx_terms *t, double value)
{
    bool is_common = value == -1 || value == 0 || value == 1 || value == 2;
    return is_common ? &t->value_node[(int)value + 1] : NULL;
}

sx_code sx_terms_add_value(sx_terms *t, double value, uint32_t *node)
{
    uint32_t *place = place_of(t, value);
    if (place != NULL && *place != SX_EG_NONE) {
        *node = *place;
        return SX_OK;
    }
    uint32_t attr = 0;
    while (attr < t->leaf_count && (t->leaf[attr].name.len > 0 || t->leaf[attr].value != value)) {
        attr++;
    }
    if (attr == t->leaf_count) {
        if (attr >= SX_TERMS_LEAVES_MAX) {
            *node = SX_EG_NONE; /* such a node cannot be */
            return SX_OK;
        }
        SX_TRY(sx_grow(t->cx, (void **)&t->leaf, &t->leaf_capacity, attr + 1, sizeof(*t->leaf)));
        t->leaf[t->leaf_count++] = (sx_terms_leaf){.value = value};
    }
    SX_TRY(sx_eg_add(t->cx, &t->eg, SX_TERMS_LEAF, attr, NULL, 0, node));
    if (place != NULL) {
        *place = *node;
    }
    return SX_OK;
}

static sx_code add_symbol(sx_terms *t, sx_span name, uint32_t *node)
{
    uint32_t attr = 0;
    while (attr < t->leaf_count && !sx_span_equal(t->leaf[attr].name, name)) {
        attr++;
    }
    if (attr == t->leaf_count) {
        SX_TRY(sx_grow(t->cx, (void **)&t->leaf, &t->leaf_capacity, attr + 1, sizeof(*t->leaf)));
        t->leaf[t->leaf_count++] = (sx_terms_leaf){.name = name};
    }
    return sx_eg_add(t->cx, &t->eg, SX_TERMS_LEAF, attr, NULL, 0, node);
}

bool sx_terms_value(const sx_terms *t, uint32_t class_, double *value)
{
    if (t->eg.analysis.size > 0) {
        const fact *f = sx_eg_record(&t->eg, class_);
        *value = f->value;
        return f->known != 0;
    }
    const sx_eg_node *node = &t->eg.node[class_];
    if (node->op != SX_TERMS_LEAF || t->leaf[node->attr].name.len > 0) {
        return false;
    }
    *value = t->leaf[node->attr].value;
    return true;
}

static bool language_is_value(void *self, const sx_eg *eg, uint32_t class_, double value)
{
    sx_terms *t = self;
    if (eg->analysis.size > 0) {
        const fact *f = sx_eg_record(eg, class_);
        return f->known != 0 && f->value == value;
    }
    const uint32_t *place = place_of(t, value);
    SX_ASSERT(place != NULL); /* the rules here name no other numbers */
    return *place != SX_EG_NONE && sx_eg_find(eg, *place) == class_;
}

static sx_code language_make_value(sx_ctx *cx, void *self, sx_eg *eg, uint32_t like, double value,
                                   uint32_t *node)
{
    (void)cx;
    (void)eg;
    (void)like;
    return sx_terms_add_value(self, value, node);
}

/* Folds + - * / and powers; a result that is no small whole or half number is not kept (rounding would merge
 * neighbours). */
static sx_code fact_make(sx_ctx *cx, void *self, const sx_eg *eg, uint32_t n, void *record)
{
    (void)cx;
    const sx_terms *t = self;
    const sx_eg_node *node = &eg->node[n];
    fact *f = record;
    if (node->op == SX_TERMS_LEAF) {
        f->known = t->leaf[node->attr].name.len == 0;
        f->value = f->known != 0 ? t->leaf[node->attr].value : 0;
        return SX_OK;
    }
    if (node->arity != 2) {
        return SX_OK;
    }
    const fact *a = sx_eg_record(eg, sx_eg_child(eg, n, 0));
    const fact *b = sx_eg_record(eg, sx_eg_child(eg, n, 1));
    sx_span op = t->op[node->op];
    if (a->known == 0 || b->known == 0) {
        return SX_OK;
    }
    double value = sx_span_is(op, "add")                    ? a->value + b->value
                   : sx_span_is(op, "sub")                  ? a->value - b->value
                   : sx_span_is(op, "mul")                  ? a->value * b->value
                   : sx_span_is(op, "div") && b->value != 0 ? a->value / b->value
                                                            : (double)NAN;
    if (fabs(value) <= 1024 && value * 2 == floor(value * 2)) {
        *f = (fact){1, value == 0 ? 0.0 : value};
    }
    return SX_OK;
}

static sx_code fact_join(sx_ctx *cx, void *self, void *into, const void *from, bool *changed)
{
    (void)self;
    fact *a = into;
    const fact *b = from;
    if (a->known != 0 && b->known != 0 && a->value != b->value) {
        return SX_FAIL(cx, SX_INTERNAL, "%g and %g in one class", a->value, b->value);
    }
    *changed = a->known == 0 && b->known != 0;
    if (*changed) {
        *a = *b;
    }
    return SX_OK;
}

sx_code sx_terms_init(sx_ctx *cx, sx_terms *t, bool folds)
{
    *t = (sx_terms){.cx = cx, .op_count = 1, .op = {SX_SPAN_LITERAL("leaf")}};
    memset(t->value_node, 0xFF, sizeof(t->value_node));
    t->language =
        (sx_eg_language){t, language_ops, language_is_value, language_make_value, NULL, NULL};
    sx_eg_analysis analysis = {sizeof(fact), t, fact_make, fact_join};
    return sx_eg_init(cx, &t->eg, folds ? &analysis : NULL);
}

typedef struct {
    sx_terms *t;
    const char *text, *at;
    uint32_t depth;
} reader;

static sx_span read_word(reader *r)
{
    const char *start = r->at;
    while (*r->at != '\0' && strchr(" ()", *r->at) == NULL) {
        r->at++;
    }
    return (sx_span){(const uint8_t *)start, (size_t)(r->at - start)};
}

static sx_code bad(reader *r, const char *expected)
{
    return SX_FAIL(r->t->cx, SX_INPUT, "column %d of '%s': expected %s", (int)(r->at - r->text) + 1,
                   r->text, expected);
}

static sx_code read_term(reader *r, uint32_t *node)
{
    r->at += strspn(r->at, " ");
    if (*r->at != '(') {
        char *end;
        double value = strtod(r->at, &end);
        sx_span word = read_word(r);
        if (word.len == 0) {
            return bad(r, "a symbol, a number or '('");
        }
        return end == r->at ? sx_terms_add_value(r->t, value, node) : add_symbol(r->t, word, node);
    }
    r->at++;
    uint32_t op = op_of(r->t, read_word(r));
    if (op == SX_EG_NONE || ++r->depth > DEPTH_MAX) {
        return bad(r, "an operation, at most 64 of them and 200 levels");
    }
    uint32_t child[SX_PATTERN_NAMES_MAX];
    uint32_t arity = 0;
    for (r->at += strspn(r->at, " "); *r->at != ')'; r->at += strspn(r->at, " ")) {
        if (arity >= SX_COUNT(child)) {
            return bad(r, "at most 16 operands");
        }
        SX_TRY(read_term(r, &child[arity++]));
    }
    r->at++;
    r->depth--;
    return sx_eg_add(r->t->cx, &r->t->eg, (uint16_t)op, 0, child, arity, node);
}

sx_code sx_terms_add(sx_terms *t, const char *text, uint32_t *node)
{
    reader r = {t, text, text, 0};
    SX_TRY(read_term(&r, node));
    return *r.at == '\0' ? SX_OK : bad(&r, "the end");
}
