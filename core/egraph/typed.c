#include "core/egraph/typed.h"

#include <math.h>

#include "core/ir/ir.h"

#define FLOAT (1u << SX_CLASS_FLOAT)
#define INTEGER (1u << SX_CLASS_INT)
#define BOOL (1u << SX_CLASS_BOOL)
#define ANY (FLOAT | INTEGER | BOOL)

/* Classes of the text as variables: the names, then the parts of the left side, then those of the right one. */
typedef struct {
    sx_ctx *cx;
    const char *rule_name;
    const char *side_name;
    const sx_pattern *side;
    uint32_t first;  /* variable of part 0 of the side */
    uint32_t *above; /* towards the representative of those that have one element type */
    uint32_t *fits;  /* of the representative: element types it may have */
} typing;

static uint32_t find(const typing *t, uint32_t v)
{
    while (t->above[v] != v) {
        v = t->above[v];
    }
    return v;
}

static uint32_t variable_of(const typing *t, uint32_t part)
{
    const sx_pattern_part *p = &t->side->part[part];
    return p->kind == SX_PART_NAME ? p->name : t->first + part;
}

static sx_code fail(const typing *t, const char *op_name, const char *what)
{
    return SX_FAIL(t->cx, SX_INPUT, "rule %s: %s side, %s: %s", t->rule_name, t->side_name, op_name,
                   what);
}

static sx_code admit(typing *t, uint32_t v, uint32_t fits, const char *op_name)
{
    uint32_t r = find(t, v);
    t->fits[r] &= fits;
    return t->fits[r] != 0 ? SX_OK : fail(t, op_name, "no element type fits");
}

static sx_code join(typing *t, uint32_t v, uint32_t w, const char *op_name)
{
    uint32_t a = find(t, v);
    uint32_t b = find(t, w);
    t->above[b] = a;
    return a == b ? SX_OK : admit(t, a, t->fits[b], op_name);
}

/* One node of text whose operations are all of class `class_` and work on `fits`. */
static sx_code type_node(typing *t, uint32_t part, sx_op_class class_, uint32_t fits,
                         const char *name)
{
    const sx_pattern_part *p = &t->side->part[part];
    uint32_t self = variable_of(t, part);
    bool compares = class_ == SX_OPCLASS_COMPARE;
    bool selects = class_ == SX_OPCLASS_SELECT;
    if (class_ == SX_OPCLASS_SORT) {
        return SX_OK; /* the attribute says whether it gives elements or indices */
    }
    if (compares) {
        SX_TRY(admit(t, self, BOOL, name));
    }
    SX_TRY(admit(t, self, class_ == SX_OPCLASS_COMPOSITE ? FLOAT : fits, name));
    for (uint32_t k = 0; k < p->arity; k++) {
        uint32_t child = variable_of(t, p->child[k]);
        bool first_of_two = compares && k == 0;
        if (selects && k == 0) {
            SX_TRY(admit(t, child, BOOL, name));
        } else if (k == 1 && (class_ == SX_OPCLASS_GATHER || class_ == SX_OPCLASS_SCATTER)) {
            SX_TRY(admit(t, child, INTEGER, name));
        } else if (class_ == SX_OPCLASS_DYNAMIC && k > 0) {
            continue; /* an update or a start: the operation alone says which */
        } else if (class_ != SX_OPCLASS_CONVERT && !first_of_two) {
            SX_TRY(join(t, compares ? variable_of(t, p->child[0]) : self, child, name));
        }
    }
    return SX_OK;
}

/* Operations of several classes, as in (*any ..), say nothing of types. */
static sx_code check_types(typing *t, uint32_t part)
{
    const sx_pattern_part *p = &t->side->part[part];
    sx_op first = (sx_op)sx_bits_first(&p->ops);
    const sx_op_info *info = sx_op_info_of(first);
    uint32_t fits = 0;
    bool uniform = true;
    for (uint32_t op = first; op < SX_BITS_MAX; op = sx_bits_next(&p->ops, op + 1)) {
        uint32_t classes = sx_op_classes((sx_op)op);
        fits |= classes != 0 ? classes : ANY;
        uniform = uniform && sx_op_info_of((sx_op)op)->op_class == info->op_class;
    }
    return uniform ? type_node(t, part, info->op_class, fits, info->name) : SX_OK;
}

static sx_code check_operands(const typing *t, const sx_pattern_part *p)
{
    const sx_op_info *info = sx_op_info_of((sx_op)sx_bits_first(&p->ops));
    if (sx_bits_count(&p->ops) > 1) {
        return SX_OK; /* of a set those that fit are met */
    }
    if (p->arity > info->input_max) {
        return fail(t, info->name, "more operands than the operation has");
    }
    return p->any_arity || p->arity >= info->input_min
               ? SX_OK
               : fail(t, info->name, "fewer operands than the operation has");
}

/* Of a part of the right side. */
static sx_code check_attributes(const typing *t, const sx_pattern_part *p, const sx_pattern *left)
{
    const sx_op_info *info = sx_op_info_of((sx_op)sx_bits_first(&p->ops));
    if ((p->attr_name != SX_PATTERN_NONE) != (info->attrs != 0)) {
        return fail(t, info->name, info->attrs != 0 ? "without its attributes" : "has none");
    }
    for (uint32_t k = 0; k < left->part_count && info->attrs != 0; k++) {
        const sx_pattern_part *from = &left->part[k];
        if (from->kind == SX_PART_NODE && from->attr_name == p->attr_name &&
            sx_op_info_of((sx_op)sx_bits_first(&from->ops))->attrs != info->attrs) {
            return fail(t, info->name, "attributes of another operation");
        }
    }
    return SX_OK;
}

static sx_code check_side(typing *t, const sx_pattern *left, bool is_right)
{
    for (uint32_t i = 0; i < t->side->part_count; i++) {
        const sx_pattern_part *p = &t->side->part[i];
        if (p->kind == SX_PART_NODE) {
            SX_TRY(check_operands(t, p));
            SX_TRY(is_right ? check_attributes(t, p, left) : SX_OK);
            SX_TRY(check_types(t, i));
        }
        if (p->kind == SX_PART_NODE && p->name != SX_PATTERN_NONE) { /* ?x=(..) */
            SX_TRY(join(t, p->name, t->first + i, "a named part"));
        }
        if (p->kind == SX_PART_VALUE) {
            bool whole = floor(p->value) == p->value && isfinite(p->value) &&
                         !(p->value == 0 && signbit(p->value));
            bool truth = whole && (p->value == 0 || p->value == 1);
            SX_TRY(admit(t, t->first + i,
                         truth   ? ANY
                         : whole ? FLOAT | INTEGER
                                 : FLOAT,
                         "a number"));
        }
    }
    return SX_OK;
}

sx_code sx_rule_typed(sx_ctx *cx, const char *rule_name, const sx_pattern *left,
                      const sx_pattern *right)
{
    SX_ASSERT(left->root < left->part_count);
    uint32_t count = SX_PATTERN_NAMES_MAX + left->part_count;
    count += right != NULL ? right->part_count : 0;
    typing t = {.cx = cx, .rule_name = rule_name, .side_name = "left", .side = left};
    t.first = SX_PATTERN_NAMES_MAX;
    t.above = SX_NEW_ARRAY(cx, uint32_t, count);
    t.fits = SX_NEW_ARRAY(cx, uint32_t, count);
    if (t.above == NULL || t.fits == NULL) {
        return cx->error.code;
    }
    for (uint32_t v = 0; v < count; v++) {
        t.above[v] = v;
        t.fits[v] = ANY;
    }
    SX_TRY(check_side(&t, left, false));
    uint32_t root = variable_of(&t, left->root);
    if (right == NULL) {
        return SX_OK;
    }
    t.side = right;
    t.side_name = "right";
    t.first += left->part_count;
    SX_TRY(check_side(&t, left, true));
    return join(&t, root, variable_of(&t, right->root), "both roots");
}
