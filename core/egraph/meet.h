/* meet.h - a program looked for in the e-graph of a stored one: a semantic hit.
 *
 * The parameters of the two are paired (pair.h). The program is inserted bottom up with the stored parameters for its own; what it shares with the graph is found by hashing. Where an
 * output is not in a class of a stored output yet, a few rounds of rewriting follow in which only what is new is looked at. If then every
 * output lies in the class of some stored output, the two compute the same, and the program extracted for the stored one is the answer.
 * Where a certificate is asked for (certificate.h), it is written from the reasons the graph carries, and its checker, which takes nothing
 * from the graph, has to accept that the answer equals the program; else there is no meeting.
 */
#ifndef SX_CORE_EGRAPH_MEET_H
#define SX_CORE_EGRAPH_MEET_H
#include "core/egraph/library.h"

typedef struct sx_meeting {
    bool met;
    sx_graph *better; /* the stored extraction under the names of the program looked for */
    uint32_t *
        parameter_of; /* per parameter of the program: which of the stored one, both in their order */
    uint32_t *output_of; /* per output likewise */
    sx_span
        rules; /* "add-commute, dot-swap": what their equality rests upon; empty if they were one after hashing */
    bool used[SX_RULE_COUNT]; /* the same as a set */
    uint32_t inserted;        /* nodes the graph did not hold */
    uint32_t rounds;          /* of rewriting */
    uint32_t nodes, classes;  /* of the graph at the end */
    uint64_t fuel;
    sx_span certificate; /* where asked for: that `better` equals the program; arena */
    bool refused;        /* equal in the graph, but not by the checker */
} sx_meeting;

/* What of a stored graph the meeting needs (sx_library_load). */
sx_library_kernels sx_meet_kernels(const sx_graph *program, bool certified);
typedef struct {
    const bool *enabled; /* [SX_RULE_COUNT] rules of the request */
    bool certified;      /* a certificate is asked for */
    bool by_name;        /* names of parameters have a meaning: those of a part have none */
} sx_meet_options;
/* `program` is canonical (sx_graph_canon). `graph` takes its names and its nodes, and is of no further use.
 *   errors   SX_CORRUPT the stored extraction is no program; SX_NOMEM. No meeting is no error. */
sx_code sx_meet(sx_ctx *cx, sx_library_graph *graph, const sx_graph *program,
                const sx_meet_options *options, sx_meeting *meeting);

/* meeting->rules from meeting->used. */
sx_code sx_meeting_name_rules(sx_ctx *cx, sx_meeting *meeting);

/* `from` with the interface of `to`: node for node, its k-th parameter standing where the k-th parameter of `to` comes, names of
 * symbols, parameters and outputs as there.
 *   errors   SX_CORRUPT the two have not the same parameters */
sx_code sx_graph_rename(sx_ctx *cx, const sx_graph *from, const sx_graph *to,
                        const uint32_t *parameter_of, const uint32_t *output_of,
                        sx_graph **renamed);
#endif
