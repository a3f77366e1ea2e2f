/* tensor.h - the e-graph of a tensor program: operations of ops.def, attributes interned in the program's
 * table, and what is known of each class: its type, whether it follows from weights alone, and its value where
 * all elements are one known number.
 *
 * Types are the analysis, not rules: each node gets its type by sx_infer_type when it is added, and two
 * classes of different type never unite (SX_INTERNAL: an unsound rule). Value: by views, by conversion, and by
 * + - * / sqrt rounded as the interpreter rounds. Weights: functions of weights and constants only, of static
 * shape; computed once at load, hence almost free.
 */
#ifndef SX_CORE_EGRAPH_TENSOR_H
#define SX_CORE_EGRAPH_TENSOR_H
#include "core/egraph/match.h"
#include "core/ir/fused.h"
#include "core/ir/ir.h"

typedef struct {
    /* The number of its type in sx_tensors.type. */
    uint32_t type;
    uint32_t has_value : 1;
    uint32_t is_weight : 1;
    /* Where the number comes from. The node that gave it; with sx_tensors.all_values 0, or where
     * sx_tensors.values holds the other numbers that the class was shown to be. */
    uint32_t from : 30;
    /* The first number that the class was known to be. */
    double value;
} sx_fact;
_Static_assert(sizeof(sx_fact) == 16, "a fact is 16 bytes");

#define SX_FACT_FROM_MAX ((UINT32_C(1) << 30) - 1)

/* How a node came to be a number: an operation on numbers, which its operands then were. A node has at most one
 * such entry that counts, the first: when its class is a number, it never becomes another. */
typedef struct {
    uint32_t node;
    uint32_t below[2]; /* by which its operands had their numbers */
    double value;
} sx_number;

/* Reassociating rules make one class both 0 and -0, or neighbouring numbers. Searching goes by the first
 * number known of a class; a checker must know all of them, whatever the order in which it learns them. */
#define SX_VALUES_MAX 32u /* of one class; of more, those that a constant names are kept first */
#define SX_VALUES_KEPT (SX_VALUES_MAX - 1) /* in a set, beside the first number known */
#define SX_VALUE_SETS_MAX 65000u
typedef struct {
    /* At least 2; the numbers ascend by their bits. */
    uint32_t count;
    double value[SX_VALUES_KEPT];
} sx_value_set;

typedef struct {
    sx_eg eg;
    sx_attr_table *attrs;
    const sx_symbol *symbol;
    uint32_t symbol_count;
    /* Each type stands here once. */
    sx_type *type;
    uint32_t type_count, type_capacity;
    sx_idmap type_map;
    /* What was inferred before. A row has operation, attribute, arity, result, and the types of the children. */
    uint32_t *typing;
    uint32_t typing_count, typing_capacity;
    /* Finds a row of `typing` by its contents. */
    sx_idmap typing_map;
    /* Without all_values: of the numbers of classes those that are no constants, in the order in which they
     * became known. */
    sx_number *number;
    uint32_t number_count, number_capacity;
    /* All numbers of a class are kept, and not the first one alone. It is set before the first node. */
    bool all_values;
    /* With all_values: the numbers that stand somewhere as constants, ascending by their bits. */
    const double *named;
    uint32_t named_count;
    /* The first of them stands for "no other number". */
    sx_value_set *values;
    uint32_t values_count, values_capacity;
    sx_idmap values_map;
    /* Attributes of kernels may be missing. Such a node has the type of its class (library.h). */
    bool partial;
    /* The mesh of devices (sharding.h); NULL: there is one device. */
    struct sx_tensors_mesh *mesh;
} sx_tensors;

/* An empty e-graph over the attributes and symbols of `graph`, which must outlive it. */
sx_code sx_tensors_init(sx_ctx *cx, sx_tensors *t, const sx_graph *graph);
/* All but the engine, and the analysis to give it: for a graph that is loaded (library.c). */
void sx_tensors_begin(sx_tensors *t, const sx_graph *graph, sx_eg_analysis *analysis);
/* Adds every node of `graph`; eg_node[i] is the e-node of node i. */
sx_code sx_tensors_import(sx_ctx *cx, sx_tensors *t, const sx_graph *graph, uint32_t *eg_node);

/* A typed node; *node is SX_EG_NONE (and no error) where the operation does not accept these children. */
sx_code sx_tensors_add(sx_ctx *cx, sx_tensors *t, sx_op op, const sx_attr *attr,
                       const uint32_t *child, uint32_t arity, uint32_t *node);
/* The same with an attribute of the table. */
sx_code sx_tensors_add_interned(sx_ctx *cx, sx_tensors *t, sx_op op, uint32_t attr,
                                const uint32_t *child, uint32_t arity, uint32_t *node);
/* The constant of type `type` that is `value` everywhere; SX_EG_NONE where the element type cannot hold it exactly. */
sx_code sx_tensors_add_value(sx_ctx *cx, sx_tensors *t, const sx_type *type, double value,
                             uint32_t *node);

static inline const sx_fact *sx_tensors_fact(const sx_tensors *t, uint32_t node)
{
    return (const sx_fact *)sx_eg_record(&t->eg, node);
}
/* The number that a node is by itself: of a constant whose elements are one number. */
bool sx_tensors_constant(const sx_tensors *t, uint32_t node, double *value);
/* The number that a node is where its operands are these; false where its operation is none on numbers. */
bool sx_tensors_fold(const sx_tensors *t, uint32_t node, const double operand[2], double *value);
/* The constant of type `type` that is `value` everywhere, as an attribute over `data`; false where the element
 * type cannot hold it exactly. */
bool sx_tensors_value_attr(const sx_type *type, double value, uint8_t data[8], sx_attr *attr);
/* The numbers a class was shown to be, the first known one first.  Result: how many, 0 where none is known */
/* Sets `named` to the numbers of the constants of `graph`, which will be added. */
sx_code sx_tensors_name_values(sx_ctx *cx, sx_tensors *t, const sx_graph *graph);
uint32_t sx_tensors_values(const sx_tensors *t, const sx_fact *fact, double value[SX_VALUES_MAX]);
static inline const sx_type *sx_tensors_type(const sx_tensors *t, uint32_t node)
{
    return &t->type[sx_tensors_fact(t, node)->type];
}
static inline const sx_attr *sx_tensors_attr(const sx_tensors *t, uint32_t node)
{
    return t->attrs->attr[t->eg.node[node].attr];
}
static inline sx_op sx_tensors_op(const sx_tensors *t, uint32_t node)
{
    return (sx_op)t->eg.node[node].op;
}

/* The language of patterns over tensors. Sets: *unary *binary *elementwise *view *sum (reduce,
 * dot_general) *any. */
sx_eg_language sx_tensors_language(sx_tensors *t);

/* One node as text, its children spelled out for `depth` levels as `choice` has them (NULL or SX_EG_NONE: the
 * smallest node of the class), then (and kernels always) named by their classes: "add(negate(%3), %x)". */
void sx_tensors_print(const sx_tensors *t, const uint32_t *choice, uint32_t node, uint32_t depth,
                      sx_buf *text);
#endif
