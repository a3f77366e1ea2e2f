/* origin.h - where the nodes of a program come from, for people: names that the user wrote, and which nodes of
 * the original program an optimised one computes.
 *
 * The text form carries origins (`from "/conv1/Conv" "Conv" 17`), the canonical form and the key do not:
 * whoever wants to name the nodes of the canonical program asks sx_graph_canon_origins. Everything that makes
 * a graph out of another drops them.
 *
 * An optimised program is related to the original by what its nodes depend on: a node of it stands for a node
 * of the original that depends on the same parameters, of the same type where there is one. Parameters are
 * paired by name. That needs no record of the rewrites, so it works for programs that were put together from
 * parts or taken over from a stored one. Among several such nodes the choice is a good guess, for the eyes of
 * people: no decision of the compiler may rest upon it.
 */
#ifndef SX_CORE_IR_ORIGIN_H
#define SX_CORE_IR_ORIGIN_H
#include "core/ir/ir.h"

#define SX_ORIGIN_NONE UINT32_MAX

/* A node of the model that a program was imported from. */
typedef struct {
    sx_span name;  /* "/layer1/conv1/Conv" */
    sx_span op;    /* "Conv" */
    int64_t opset; /* of the operator set that gives `op` its meaning */
} sx_origin;

typedef struct sx_origins {
    sx_origin *origin;
    uint32_t count, capacity;
    uint32_t *of_node; /* [of_count] by node of the graph: row of `origin`, or SX_ORIGIN_NONE */
    uint32_t of_count, of_capacity;
} sx_origins;

/* Says where a node comes from; the spans are borrowed. */
sx_code sx_graph_set_origin(sx_ctx *cx, sx_graph *graph, uint32_t node, const sx_origin *origin);
/* NULL: not known. */
const sx_origin *sx_origin_find(const sx_origins *origins, uint32_t node);
/* parse.c: as sx_graph_parse; a node that says nothing of its origin goes by the name of its value. */
sx_code sx_graph_parse_named(sx_ctx *cx, sx_span text, sx_graph **graph);
/* canon.c: as sx_graph_canon, with the origins of the canonical nodes; of merged nodes the first one's. NULL:
 * there are none. */
sx_code sx_graph_canon_origins(sx_ctx *cx, const sx_graph *graph, sx_graph **canonical,
                               sx_origins **origins);

/* What the nodes of an optimised program stand for. */
typedef struct {
    /* [nodes of the optimised program] the node of the original whose value it has, or else the nearest;
     * SX_ORIGIN_NONE for parameters and constants, and where nothing is near. */
    uint32_t *root;
    /* The nodes of the original whose work node k does: cover[cover_first[k]] to cover[cover_first[k + 1]],
     * ascending, `root` among them. Nodes that were rewritten away belong to none, and a node that is computed
     * twice belongs to both. */
    uint32_t *cover, *cover_first;
    uint32_t cover_count;
} sx_descent;

/* The order of nodes in both graphs is topological, as in every graph.  errors  SX_NOMEM */
sx_code sx_descent_find(sx_ctx *cx, const sx_graph *original, const sx_graph *optimised,
                        sx_descent *descent);
#endif
