/* library.h - an optimised program kept as a snapshot (snapshot.h): the e-graph with its tensor tables, the interface of the program and
 * the program extracted for it; and what another program must share with it to be looked up there.
 *
 * Sections beside those of the graph: ATTR, every attribute in its order, its bytes (sx_attr_encode) after their number; SYMBOL, interval
 * and name; PARAMETER, the e-node of each in order; OUTPUT, names; INFO; MARK, of each parameter (pair.h). Types are not stored: loading infers them again.
 *
 * Most attributes are of kernels that were not chosen, and no rule looks at a kernel. Who meets the graph may leave them out: such a node
 * keeps its place and its class, and its type is taken to be that of its class. Nothing but the equality that the stored reasons claim
 * anyway rests on it: whatever is extracted is typed again, and a certificate wants them all.
 */
#ifndef SX_CORE_EGRAPH_LIBRARY_H
#define SX_CORE_EGRAPH_LIBRARY_H
#include "core/egraph/rules.h"
#include "core/egraph/snapshot.h"

#define SX_LIBRARY_OUTPUTS_MAX SX_OUTPUTS_MAX

typedef struct {
    sx_key program; /* sx_graph_key of the stored program */
    double cost_before_ns, cost_after_ns;
} sx_library_info;

/* A stored program as loaded. */
typedef struct {
    sx_tensors t;
    sx_eg_ruleset set;
    sx_library_info info;
    sx_eg_stop stop;
    sx_graph *
        interface; /* symbols, parameters in order and named outputs (all of node 0); shares t.attrs */
    const uint32_t *parameter; /* e-nodes, in the order of the interface */
    const uint32_t *mark;      /* likewise (pair.h) */
    const uint32_t *root;      /* e-nodes of the outputs */
    uint32_t *choice;          /* per class; complete for the outputs */
} sx_library_graph;

/* Stores the graph of `program`, whose node i is e-node input_node[i], with `choice` extracted for its outputs.
 *   errors   SX_LIMIT past the limit of `bytes` */
sx_code sx_library_store(sx_ctx *cx, const sx_tensors *t, const sx_eg_ruleset *set,
                         const sx_graph *program, const uint32_t *input_node,
                         const uint32_t *choice, sx_eg_stop stop, const sx_library_info *info,
                         const sx_key *rules, sx_buf *bytes);
/* Which attributes are read: all, or those of nodes that are no kernels, or the first of their class, or chosen. */
typedef enum { SX_LIBRARY_ALL, SX_LIBRARY_CHOSEN } sx_library_kernels;
/* Everything is checked (snapshot.h), types are inferred; names and data of `bytes` are borrowed.
 *   errors   SX_CORRUPT, SX_ABSENT as in snapshot.h; SX_NOMEM */
sx_code sx_library_load(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_library_kernels kernels,
                        sx_library_graph *graph);
/* Only who is in there. */
sx_code sx_library_peek(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_library_info *info);

/* What no rule changes, as text: intervals of the symbols, types of parameters and outputs, each sorted. Programs that differ in
 * it are not equal. */
sx_code sx_library_family(sx_ctx *cx, const sx_graph *program, sx_buf *text);
/* The program's value at one fixed random point, mod 2^31 - 1: equal for programs that rules of exact arithmetic make equal, whatever
 * their names. `*known` is false, and the value zero, where it takes more than `steps` scalar operations. */
sx_code sx_library_value(sx_ctx *cx, const sx_graph *program, uint64_t steps, bool *known,
                         uint64_t *value);
#endif
