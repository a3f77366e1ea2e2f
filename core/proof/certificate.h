/* certificate.h - the proof of an optimised program as a text that stands by itself, and its checker.
 *
 * A certificate holds the program that went in and the one that came out, in parts. A proved part shows two
 * programs equal by a list of equalities between terms; each is an instance of one rule of the table, and
 * rests on those before it. What follows from equal operands (congruence) is not written down. A divided part
 * is put together from earlier parts, each used as often as there are equal layers.
 *
 *   symplex-proof 1
 *   parts COUNT        the last part is the whole program
 *   part proved
 *   input BYTES        the program that went in, in the text form of the IR (docs/IR.md), BYTES bytes from the
 *                      next line
 *   output BYTES       the program that came out
 *   terms BYTES        a program whose nodes %0, %1, .. are the terms
 *   steps COUNT        a line for each:  RULE FROM TO NODE..  or  RULE FROM TO NODE.. as CONSTANT..
 *   part divided
 *   input BYTES, output BYTES
 *   uses COUNT         a line for each:  use PART VALUE..   with a value for each parameter of that part
 *   outputs VALUE..    one for each output of the program
 *   part chained A B   from the input of part A to the output of part B, whose input is the output of A
 *   end
 *
 * RULE is a name of rules.def or fusion.def, FROM and TO are the terms it makes equal, NODE.. the terms its
 * left side matched, in the order of its text, then the members of classes it picked (sx_rewrite_pick)
 * (fusion: the kernel before, the kernel after, the node computed inside if there is one). VALUE is "parameter
 * K", of the divided program, or "U K", output K of an earlier use. CONSTANT.. are terms: the rule reads the
 * class of each as this number. "fold-value FROM TO NODE as CONSTANT.." says that NODE is the number TO, its
 * operands read as these.
 *
 * The checker knows rules and terms. It takes nothing from the saturation: types are inferred anew by the
 * reader of the IR; every left side is matched again, node by node, modulo the equalities checked so far,
 * which it closes under congruence by itself; right sides are built again by the rule. A term that
 * reassociating rules make several numbers (0 and -0, or neighbours) is each of them, whichever the search
 * went by; of very many, those that stand as constants among the terms are remembered first. Where that is
 * not enough, steps say which numbers they read, after steps that show where these come from. It ends by
 * finding every output of the first program equal to that of the same name of the second. A divided part
 * holds if its pieces, as they went in, make its input, and as they came out, its output, at the types they
 * were proved for. Whoever reads a certificate also has both programs and every step evaluated, which asks
 * nothing of the rules.
 */
#ifndef SX_CORE_PROOF_CERTIFICATE_H
#define SX_CORE_PROOF_CERTIFICATE_H
#include "core/rules/rules.h"

#define SX_CERTIFICATE_STEPS_MAX 1000000u
#define SX_CERTIFICATE_PARTS_MAX 4096u

/* Writes what follows "part proved": that `output` equals `input`, whose nodes are the e-nodes input_node[];
 * node i of the output is e-node output_node[i], or that as a kernel. Checked before it is handed out.
 *   errors   SX_COMPILE no argument was found that the checker accepts (the step is named); SX_NOMEM; SX_LIMIT */
sx_code sx_certificate_print(sx_ctx *cx, const sx_tensors *t, const sx_eg_ruleset *set,
                             const sx_graph *input, const uint32_t *input_node,
                             const sx_graph *output, const uint32_t *output_node, sx_buf *text);

/* What the interpreter found (certificate_eval.h): of each proved part the outputs and the two terms
 * of each step, of the whole program its outputs once more. Something counts as evaluated if numbers
 * were compared, not NaN and infinities alone. */
typedef struct {
    uint64_t work; /* operations that were left */
    uint32_t step_count, step_evaluated;
    uint32_t output_count, output_evaluated;
    double worst;   /* the greatest deviation */
    double allowed; /* the greatest that was allowed */
} sx_evaluation;

typedef struct {
    const sx_graph *input;
    const sx_graph *output;
    uint32_t part_count;
    uint32_t step_count;
    uint32_t term_count;
    uint32_t rule_count[SX_RULE_COUNT]; /* steps by rule */
    sx_evaluation evaluation;
} sx_certificate;
/* Checks every step, and evaluates programs and steps on random arguments.
 *   errors   SX_INPUT malformed, or a step that does not hold: its number, its rule and what is wrong;
 *            SX_INTERNAL a step that the checker accepts, or the programs, have different values: a
 *            rule is wrong */
sx_code sx_certificate_check(sx_ctx *cx, sx_span text, sx_certificate *certificate);
#endif
