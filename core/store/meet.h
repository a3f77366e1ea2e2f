/* meet.h - finds out whether a program meets a stored one, which then answers for it: a hit by meaning.
 *
 * First the parameters of the two programs are paired (pair.h). Then the new program is inserted into the stored
 * e-graph, operands first, with the stored parameters in place of its own; hashing finds the nodes that are already
 * there. If an output is not in the class of a stored output yet, a few rounds of rewriting follow that look at
 * new nodes only. If in the end every output is in the class of some stored output, the two programs compute the
 * same values: the new one has "met" the stored one, and the program extracted for the stored one is the answer.
 *
 * If a certificate is wanted (certificate.h), it is written from the reasons in the e-graph. Its checker takes nothing
 * from the e-graph, and if it does not accept that the answer equals the program, the two have not met.
 */
#ifndef SX_CORE_STORE_MEET_H
#define SX_CORE_STORE_MEET_H
#include "core/store/library.h"

typedef struct sx_meeting {
    bool met;
    sx_graph *better; /* the stored result, under the names of the new program */
    /* For each parameter of the new program, the number of the stored parameter that corresponds to it. */
    uint32_t *parameter_of;
    uint32_t *output_of; /* the same for outputs */
    /* The rules that make the two programs equal, such as "add-commute, dot-swap". Empty if hashing alone did. */
    sx_span rules;
    bool used[SX_RULE_COUNT]; /* the same rules as a set */
    uint32_t inserted;        /* nodes that were not in the stored e-graph */
    uint32_t rounds;          /* rounds of rewriting that were needed */
    uint32_t nodes, classes;  /* of the e-graph at the end */
    uint64_t fuel;            /* spent */
    /* If it was asked for: the certificate that `better` equals the new program; in the arena. */
    sx_span certificate;
} sx_meeting;

/* Which attributes of the stored e-graph sx_meet needs (sx_library_load). */
sx_library_kernels sx_meet_kernels(const sx_graph *program, bool certified);
typedef struct {
    const bool *enabled; /* [SX_RULE_COUNT] rules of the request */
    bool certified;      /* a certificate is asked for */
    bool by_name;        /* names of parameters have a meaning: those of a part have none */
} sx_meet_options;
/* Looks for `program`, which is canonical (sx_graph_canon), in the stored e-graph `graph`. The graph is
 * changed by that and cannot be used again. It is not an error if the two are not equal: meeting->met is then false.
 *   errors   SX_CORRUPT the stored result is not a program; SX_NOMEM */
sx_code sx_meet(sx_ctx *cx, sx_library_graph *graph, const sx_graph *program,
                const sx_meet_options *options, sx_meeting *meeting);

/* Sets meeting->rules to the names of the rules in meeting->used. */
sx_code sx_meeting_name_rules(sx_ctx *cx, sx_meeting *meeting);

/* Copies `from`, node for node, with the names of `to`: symbols, parameters and outputs are called as there, and the
 * parameters come in the order of `to`.
 *   errors   SX_CORRUPT the two do not have the same parameters */
sx_code sx_graph_rename(sx_ctx *cx, const sx_graph *from, const sx_graph *to,
                        const uint32_t *parameter_of, const uint32_t *output_of,
                        sx_graph **renamed);
#endif
