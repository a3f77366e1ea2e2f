/* library.h - a program that has been optimised, stored so that later programs can be compared with it.
 *
 * What is stored is a snapshot (snapshot.h) of the e-graph: all programs that the search found to be equal, not
 * only the best one. A later program that is written differently is inserted into it, and if its outputs fall
 * into the classes of the stored outputs, the two are equal and the stored result can be used (meet.h).
 *
 * To the sections of the snapshot this file adds:
 *
 *   ATTR       every attribute: its length in bytes, then the bytes (sx_attr_encode)
 *   SYMBOL     the interval and the name of every symbol
 *   PARAMETER  the e-node of every parameter, in order
 *   OUTPUT     the names of the outputs
 *   INFO       sx_library_info
 *   MARK       the mark of every parameter (pair.h)
 *
 * Types are not stored; loading infers them again.
 *
 * Most attributes belong to kernels that were tried and not chosen. No rule looks at a kernel, so a reader that only
 * wants to compare a program with the graph may skip these attributes (SX_LIBRARY_CHOSEN). A node without its
 * attribute keeps its number and its class and is given the type of that class. This is safe: the stored reasons
 * claim that equality anyway, whatever is extracted gets its types inferred again, and writing a certificate
 * requires all attributes.
 */
#ifndef SX_CORE_STORE_LIBRARY_H
#define SX_CORE_STORE_LIBRARY_H
#include "core/rules/rules.h"
#include "core/store/snapshot.h"

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
    /* A program that has only the interface of the stored one: symbols, parameters in their order, and outputs, which
     * have the right names but all point to node 0. It shares the attributes of `t`. */
    sx_graph *interface;
    const uint32_t *parameter; /* the e-node of each parameter, in the order of the interface */
    const uint32_t *mark;      /* the mark of each parameter (pair.h) */
    const uint32_t *root;      /* the e-node of each output */
    uint32_t *choice;          /* for each class, the node that was extracted */
} sx_library_graph;

/* Writes the e-graph of `program` to `bytes`. Node i of the program is e-node input_node[i], and `choice` is
 * the program that was extracted.
 *   errors   SX_LIMIT the e-graph does not fit within the limit of `bytes` */
sx_code sx_library_store(sx_ctx *cx, const sx_tensors *t, const sx_eg_ruleset *set,
                         const sx_graph *program, const uint32_t *input_node,
                         const uint32_t *choice, sx_eg_stop stop, const sx_library_info *info,
                         const sx_key *rules, sx_buf *bytes);
/* Which attributes are read. SX_LIBRARY_ALL reads every one. SX_LIBRARY_CHOSEN leaves out those of kernels that are
 * neither the first node of their class nor part of the extracted program. */
typedef enum { SX_LIBRARY_ALL, SX_LIBRARY_CHOSEN } sx_library_kernels;
/* Loads a stored program. All bytes are checked (snapshot.h) and the types are inferred anew. Names and data
 * of constants are borrowed from `bytes`.
 *   errors   SX_CORRUPT, SX_ABSENT as in snapshot.h; SX_NOMEM */
sx_code sx_library_load(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_library_kernels kernels,
                        sx_library_graph *graph);
/* Reads only the digest and the costs of the stored program. */
sx_code sx_library_peek(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_library_info *info);

/* Writes as text what no rule changes: the intervals of the symbols in their order, and the types of parameters and
 * outputs, sorted. Two programs for which the texts differ are not equal. */
sx_code sx_library_family(sx_ctx *cx, const sx_graph *program, sx_buf *text);
/* Evaluates the program at one fixed random point, modulo the prime 2^31 - 1. Two programs that are equal by rules of
 * exact arithmetic have the same value, whatever their parameters are called. If the evaluation takes more
 * than `steps` scalar operations, *known is false and the value is zero. */
sx_code sx_library_value(sx_ctx *cx, const sx_graph *program, uint64_t steps, bool *known,
                         uint64_t *value);
#endif
