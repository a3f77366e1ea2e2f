/* program.h - programs as attributes: the bodies of scan, while and cond.
 *
 * A body is a whole graph that sees nothing but its parameters, which are bound by position: parameter k of the body
 * is what the operation says of its operand k. It is a value: it is kept in canonical form (sx_graph_canon) with the
 * parameters named p0, p1, .. and the outputs r0, r1, .., so that bodies that differ in names, in the order of nodes
 * or in dead code are equal. A body whose types have symbols has all symbols of the graph around it, under the same
 * numbers; any other body has none. (While a graph is made, rows of sums may be added behind those that a body has:
 * the canonical form has them everywhere.)
 *
 *     %s, %y = scan(%s0, %x) {carried = 1, sliced = 1, step = graph {
 *         %0 = parameter {name = "p0", weight = 0} : f32[4]
 *         %1 = parameter {name = "p1", weight = 0} : f32[4]
 *         %2 = add(%0, %1) : f32[4]
 *         return %2 as "r0", %2 as "r1"
 *     }} : f32[4], f32[10, 4]
 */
#ifndef SX_CORE_IR_PROGRAM_H
#define SX_CORE_IR_PROGRAM_H
#include "core/ir/ir.h"

#define SX_PROGRAM_DEPTH_MAX 8u     /* programs inside each other */
#define SX_PROGRAM_NODES_MAX 65536u /* with those of all programs inside */
#define SX_PROGRAM_RESULTS_MAX 64u  /* a set of results is 64 bits */
#define SX_PROGRAM_ROUNDS_MAX (INT64_C(1) << 31)

struct sx_program {
    const sx_graph *graph; /* canonical; its parameters are nodes 0 .. parameter_count - 1 */
    sx_span text;          /* what sx_graph_print gives; equal programs have equal texts */
    uint32_t parameter_count;
    uint32_t depth;      /* 1, or 1 more than that of the deepest program inside */
    uint32_t node_count; /* with those of all programs inside */
    bool collective;     /* there is a collective in it (core/ir/collective.h) */
};

/* The program that `graph` is; `graph` is borrowed and must be checked.
 *   errors   SX_INPUT a parameter that is a weight, a mesh of devices; SX_LIMIT depth, nodes, parameters, results */
sx_code sx_program_make(sx_ctx *cx, const sx_graph *graph, const sx_program **program);
/* The same program in cx's arena. */
sx_code sx_program_copy(sx_ctx *cx, const sx_program *program, const sx_program **copy);
/* The program with symbol s replaced by image[s], over the symbols of `to`; itself where it has none.
 *   errors   as sx_graph_add; SX_LIMIT where a product overflows */
sx_code sx_program_substitute(sx_ctx *cx, const sx_program *program, const sx_dim *image,
                              const sx_graph *to, const sx_program **result);

static inline const sx_type *sx_program_parameter(const sx_program *program, uint32_t k)
{
    SX_ASSERT(k < program->parameter_count);
    return &program->graph->node[k].type;
}
static inline const sx_type *sx_program_result(const sx_program *program, uint32_t k)
{
    SX_ASSERT(k < program->graph->output_count);
    return &sx_graph_node(program->graph, program->graph->output[k].node)->type;
}

/* parse.c: the text of a program inside, which `program`.text is; its collectives are along axes of the program around
 * it. Errors as sx_graph_parse. */
sx_code sx_graph_parse_body(sx_ctx *cx, sx_span text, sx_graph **graph);

/* The fields of `attr` that are programs and present; how many there are. */
#define SX_ATTR_PROGRAMS_MAX 4u
uint32_t sx_attr_programs(sx_attr *attr, const sx_program **field[SX_ATTR_PROGRAMS_MAX]);
/* The programs of `attr` over the symbols of `graph`, paired by number. */
sx_code sx_attr_over(sx_ctx *cx, const sx_graph *graph, sx_attr *attr);

/* The programs that a node of `graph` carries; how many there are. */
uint32_t sx_node_programs(const sx_graph *graph, const sx_node *node,
                          const sx_program *program[SX_ATTR_PROGRAMS_MAX]);
/* The first collective of `graph` or of a program inside it; false: there is none. */
typedef struct {
    uint32_t node; /* of the graph: the collective, or what carries it */
    sx_op op;      /* of the collective */
    const sx_attr *attr;
} sx_collective;
bool sx_collective_find(const sx_graph *graph, sx_collective *found);

/* How many results a node of scan, while or cond has. */
uint32_t sx_region_result_count(sx_op op, const sx_attr *attr);
/* canon.c: the canonical form of a body, with its symbols as they are or without. */
sx_code sx_graph_canon_program(sx_ctx *cx, const sx_graph *graph, bool symbols,
                               sx_graph **canonical);
#endif
