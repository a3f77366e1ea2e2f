/* proof.h - why the program that comes out equals the one that went in: a chain of rewrites, each by named
 * rules, one place at a time.
 *
 * First the values of the input that turned out equal are merged, each into the earlier one. From then on a
 * program is a choice of one node per class (extract.h), and the chain goes from the choice of the input to
 * the extracted one, class by class, children first; each step replaces the node chosen for one class by
 * another node of it. Every step names the rules on the path between its two nodes in the forest of reasons
 * (Nieuwenhuis, Oliveras 2005), and those by which their left sides came to match. After every step there is a
 * whole program again, which sx_proof_program builds, so that a reader (or a test) can evaluate all of them
 * and find each equal to the one before. A step carries more than one rule only where a program in between
 * would be cyclic.
 */
#ifndef SX_CORE_PROOF_PROOF_H
#define SX_CORE_PROOF_PROOF_H
#include "core/egraph/extract.h"
#include "core/rules/rules.h"

#define SX_PROOF_STEPS_MAX 4096u

typedef struct {
    /* The class that is rewritten. SX_EG_NONE: all uses of the node `from` become uses of the earlier node `to`. */
    uint32_t place;
    /* The node that is chosen for the class before the step, and the one after it. */
    uint32_t from, to;
    /* The rules of the step are sx_proof.rule[rule_first] and those behind it, rule_count in all. The first
     * rule_direct of them rewrite this place; the others made their left sides match below it. */
    uint32_t rule_first, rule_count;
    uint32_t rule_direct;
    /* Both as text, in the arena. */
    sx_span before, after;
} sx_proof_step;
typedef struct {
    /* It must outlive the proof. */
    const sx_tensors *tensors;
    const sx_graph *input;
    /* The e-node of each node of the input. */
    const uint32_t *input_node;
    /* The e-nodes of the outputs. */
    const uint32_t *root;
    /* For each class: the node that is chosen once equal values are merged. */
    const uint32_t *start;
    /* How many steps merge equal values; they come first. */
    uint32_t merge_count;
    sx_proof_step *step;
    uint32_t step_count, step_capacity;
    uint32_t *rule;
    uint32_t rule_count, rule_capacity;
} sx_proof;

/* The chain from the input, whose node i is e-node input_node[i], to `target`, a complete choice for its outputs.
 *   errors   SX_LIMIT more than SX_PROOF_STEPS_MAX steps */
sx_code sx_proof_make(sx_ctx *cx, const sx_tensors *t, const sx_eg_ruleset *set,
                      const sx_graph *input, const uint32_t *input_node, const uint32_t *target,
                      sx_proof **proof);
/* The program after the first `step_count` steps: 0 gives the input again, proof->step_count what was extracted. */
sx_code sx_proof_program(sx_ctx *cx, const sx_proof *proof, uint32_t step_count, sx_graph **graph);
/* "1. layer-norm (exact), using power-two (reassociating): add(..) = layer_norm(..)", a line for each step. */
void sx_proof_print(const sx_proof *proof, sx_buf *text);

/* The program of a choice as a graph: the parameters of `input` in their order, then what the outputs (e-nodes
 * `root`) need. With `lift`, whatever is a single loop nest becomes a fused node. node_of (may be NULL): the
 * e-node of every node of the result. */
sx_code sx_choice_graph(sx_ctx *cx, const sx_tensors *t, const sx_graph *input,
                        const uint32_t *root, const uint32_t *choice, bool lift, sx_graph **graph,
                        uint32_t **node_of);
#endif
