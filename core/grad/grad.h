/* grad.h - reverse mode: a program, one of its outputs and some of its parameters become the program that also has
 * the gradients.
 *
 * The result is a program like any other. It has the outputs of the original, then for each parameter P that was
 * asked for an output "grad(P)" of the type of P (where that name is taken, "grad(OUTPUT, P)"). The differentiated
 * output is a scalar, or the result has one parameter more, "cotangent(OUTPUT)" of the type of the output: then
 * grad(P) is the sum over the elements of the output of cotangent times derivative.
 *
 * Of a program that each rank of a mesh runs (core/ir/collective.h) the sum of the output over all ranks is
 * differentiated: grad(P) on a rank is by the P of that rank, and its cotangent multiplies the output of that rank.
 *
 * Composites that lie between the parameters and the output are taken apart (sx_decompose), all others stay. The
 * rules, one for each primitive, are listed in rules.def; docs/GRADIENTS.md says what is defined where a derivative is
 * not. Cotangents of one value are added in descending order of the node that reads it and within a node in ascending
 * order of its operands, in the element type of the value. The result is in canonical form, so that it holds nothing
 * that no output needs.
 */
#ifndef SX_CORE_GRAD_GRAD_H
#define SX_CORE_GRAD_GRAD_H
#include "core/ir/ir.h"

typedef struct {
    sx_span output;     /* the output to differentiate; empty: the program has one output */
    const sx_span *wrt; /* names of parameters of a float type */
    uint32_t wrt_count;
    bool weights; /* behind these also all weights of a float type, in the order of the program */
} sx_grad_request;

typedef struct {
    sx_graph *graph;
    sx_span cotangent; /* the parameter that was added; empty: the output is a scalar */
    /* Parameters on which the output does not depend: their gradient is a constant zero. */
    sx_span *zero;
    uint32_t zero_count;
    /* Weights that sx_grad_request.weights left out, as they are not of a float type. */
    sx_span *skipped;
    uint32_t skipped_count;
} sx_gradient;

/* Differentiates `graph`, which is checked and borrowed; symbolic extents stay symbolic.
 *   memory   the result is in cx's arena, with an attribute table of its own; names may point into `graph`
 *   errors   SX_INPUT no such output or parameter, not of a float type, named twice; SX_UNIMPLEMENTED an operation that
 *            has a derivative but no rule here, in the words of the model ("node '/a' (Gather, opset 17): ..."), or
 *            a program with placements */
sx_code sx_grad_make(sx_ctx *cx, const sx_graph *graph, const sx_grad_request *request,
                     sx_gradient *gradient);
#endif
