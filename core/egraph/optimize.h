/* optimize.h - level 1 as one stage: a program in, the cheapest equal program found out, with its report and its proof.
 *
 * 1. rounds of rewriting with the rules allowed (rules.def); 2. two programs are extracted, one under the costs of single kernels,
 * one under costs that foresee fusion; 3. both, and the input, are fused (fusion.def) into the same e-graph; 4. the cheapest program
 * is extracted, never worse than the input; 5. whatever single loop nest is left outside a kernel is lifted, so that the
 * result holds parameter, constant, reshape, concatenate, gather and fused nodes only.
 * Parameters and outputs keep their names and order. Same input, same options, same bytes out; symbolic extents count as
 * sx_cost_reference of their interval, so the program does not depend on the batch size bound later.
 */
#ifndef SX_CORE_EGRAPH_OPTIMIZE_H
#define SX_CORE_EGRAPH_OPTIMIZE_H
#include "core/cost/cost.h"
#include "core/egraph/proof.h"

typedef struct {
    bool allow_reassociating; /* default true */
    bool allow_approximate;   /* default false */
    const sx_span *disabled;  /* names of rules not to use */
    uint32_t disabled_count;
    sx_eg_limits limits;   /* of the rounds */
    uint64_t extract_fuel; /* steps of each extraction */
    bool with_proof;       /* default true */
    sx_buf *certificate;   /* where the certificate (certificate.h) goes, empty; NULL for none */
} sx_optimize_options;
sx_optimize_options sx_optimize_defaults(void);

typedef struct {
    sx_eg_stop stop;
    uint32_t rounds;
    uint32_t nodes, classes; /* at the end */
    uint64_t fuel;
    uint64_t match_count[SX_RULE_COUNT]; /* sx_rule_name names them */
    uint64_t union_count[SX_RULE_COUNT];
    double cost_before_ns,
        cost_after_ns; /* by the cost model, each operation of the input a kernel of its own */
    bool proven;       /* no cheaper program in the e-graph */
    sx_proof *proof;   /* NULL without */
} sx_optimize_report;

/*   errors   SX_INPUT unknown rule name; SX_NOMEM, SX_LIMIT. Limits of the rounds are no errors: report->stop says. */
sx_code sx_optimize(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                    const sx_optimize_options *options, sx_graph **out, sx_optimize_report *report);
#endif
