/* certificate_eval.h - what a certificate claims, evaluated by the interpreter on random arguments
 * (inner header of the checker).
 *
 * The checker of steps trusts the table of rules; this trusts nothing but the interpreter. The input,
 * the output and the terms of a part are evaluated in doubles, twice: at arguments of both signs and
 * at positive ones, symbols bound to two small values each. Outputs of one name must agree, and the
 * two terms of every step. The cost is bounded by SX_PROOF_WORK operations of the interpreter for a
 * whole certificate: what does not fit is not evaluated, and counted so.
 *
 * Values below which there is a quotient by zero, a maximum or minimum of a NaN, or a number beyond
 * the range of doubles are not compared: over the reals there is neither, and reassociating rules may
 * make another infinity or NaN of it (rules.def). But the right side of a step must not divide by zero
 * where its left side does not.
 *
 * Deviation of two tensors: the greatest |x - y| / (1 + m), with m the largest finite magnitude in
 * either; a NaN is infinitely far from a number, an infinity from every other value. Allowed: a rule
 * may store a number that is off by 2^-21 (sx_rewrite_near), or by half of the last place of a narrow
 * type; functions may make 64 times that of it. A part with APPROXIMATE steps is allowed 64 times
 * 2^-10, which covers their bounds. */
#ifndef SX_CORE_PROOF_CERTIFICATE_EVAL_H
#define SX_CORE_PROOF_CERTIFICATE_EVAL_H
#include "core/proof/certificate.h"

#define SX_PROOF_WORK UINT64_C(4000000000)
#define SX_PROOF_BYTES ((size_t)1 << 30) /* of values that are kept at one time */

/* A step as the certificate has it: its rule, the numbers of its two terms, and that of the term its left side
 * was matched at. */
typedef struct {
    uint32_t rule, from, to, left;
} sx_proof_claim;

/* Evaluates one part. `terms` NULL: it has no steps. Adds to *done, whose `work` is what is left.
 *   errors   SX_INTERNAL two values that should be equal differ: which, where and by what; SX_NOMEM */
sx_code sx_proof_evaluate(sx_ctx *cx, const sx_graph *input, const sx_graph *output,
                          const sx_graph *terms, const sx_proof_claim *claim, uint32_t claim_count,
                          sx_evaluation *done);
#endif
