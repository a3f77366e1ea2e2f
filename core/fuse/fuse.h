/* fuse.h - making and growing fused nodes: an operation becomes one, a view or a producer goes into one.
 *
 * The rewrites never change the order or the rounding of arithmetic, so results are equal bit for bit. They return a
 * body without duplicate or unused instructions, but an argument may be left that no instruction reads. The result
 * passes sx_fused_infer, with one exception: with two symbols in a shape the proof that reads stay inside can fail.
 * Callers treat SX_INPUT there as "the rewrite does not apply". What to fuse is decided elsewhere
 * (core/optimize/fuse.h).
 */
#ifndef SX_CORE_FUSE_FUSE_H
#define SX_CORE_FUSE_FUSE_H
#include "core/ir/fused.h"

/* Turns one operation into a fused node over its own inputs. A fused node is returned as it is.
 *
 *   softmax, layer_norm, rms_norm, reduce   row kernels
 *   reduce_window   a row kernel over [result without its last dimension, window, last dimension]
 *   dot_general     a contraction over [batch, left free, right free, contracted in the order of the attribute]
 *   convolution     a contraction over [n, o, places .., c, window ..]
 *   views           copies whose access does the work
 *   online_dot      with v an online kernel; without v the row kernel of its definition, or an online kernel by
 *                   sx_fused_lift_online
 *
 * Window dimensions of extent 1 are left out. A sum over nothing gets a last dimension of extent 1.
 *   errors   SX_UNIMPLEMENTED for what is not a single loop nest: parameter, constant that is not one repeated value,
 *            reshape, concatenate, gather, reverse, pad, attention; a stride with three symbols, a slice whose offset
 *            is no multiple of one symbol, a window with padding, a convolution with groups of several output
 *            channels, and a space of more than SX_RANK_MAX dimensions */
sx_code sx_fused_lift(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *input,
                      uint32_t input_count, const sx_type *result, sx_attr *fused);
sx_code sx_fused_lift_online(sx_ctx *cx, const sx_attr *attr, const sx_type *input,
                             uint32_t input_count, const sx_type *result, sx_attr *fused);

/* Argument `a` of `consumer` is the result, of type `through`, of the view operation `op` with attribute `view` on a
 * tensor of type `source`. Returns the consumer with an access that reads the source directly. *ok is false if the
 * combined access is not affine. */
sx_code sx_fused_absorb_view(sx_ctx *cx, const sx_attr *consumer, uint32_t a, sx_op op,
                             const sx_attr *view, const sx_type *source, const sx_type *through,
                             sx_attr *fused, bool *ok);

/* Argument `a` of `consumer` is the result, of type `through`, of the fused node `producer`. Returns one node
 * that computes both. Its arguments are those of the consumer without `a`, then those of the producer; equal
 * ones are not merged (sx_fused_merge_args does that). *ok is false where it would compute a reduction more
 * than once, or where results would have other bits than those of two nodes (fused_bits.c). It is allowed for:
 *
 *   - a producer that is a map, under any affine access. Into an operand of a DOT, or the second operand of an
 *     ONLINE, it goes only if it is a copy; in a body with an ONLINE of f32 also if it widens bf16 or f16.
 *   - a producer that is a row kernel or a contraction, if the consumer is a map that reads each element once. A
 *     straight read keeps the space of the producer. A permuted read, or one through a reshape that splits
 *     dimensions or merges dimensions that the producer reads contiguously, gives the space [dimensions of the
 *     consumer, reduced dimensions]; for a row kernel with a full result only if the order of summation stays.
 *   - a contraction that computes the scores of an ONLINE, unless both its operands vary along the keys. Its reduced
 *     dimensions come last and become `inner`.
 *   - a contraction, with what follows it, that computes an operand of a contraction, which becomes a nested one; or
 *     another value that the summed factor of a nested one is made of, if it sums over as many elements as the inner
 *     sum that is there. It is computed again for each column of the result, unless the kernel keeps it. */
sx_code sx_fused_inline(sx_ctx *cx, const sx_attr *consumer, uint32_t a, const sx_attr *producer,
                        const sx_type *through, sx_attr *fused, bool *ok);

/* Replaces argument `a`, all of whose elements are `imm`, by that constant; the argument disappears.
 *   errors   SX_UNIMPLEMENTED for an operand of a DOT, or if the result would no longer vary along the reduced
 *            dimensions */
sx_code sx_fused_inline_splat(sx_ctx *cx, const sx_attr *consumer, uint32_t a, double imm,
                              sx_attr *fused);

/* Merges arguments `keep` and `drop` (keep < drop), which are the same tensor. *ok is false if their accesses
 * differ. */
sx_code sx_fused_merge_args(sx_ctx *cx, const sx_attr *attr, uint32_t keep, uint32_t drop,
                            sx_attr *fused, bool *ok);

/* A node that is to share a kernel with others. Tensors have the numbers that the caller gives them. */
typedef struct {
    const sx_attr *fused;
    /* The type of its result. */
    const sx_type *type;
    /* For each argument its tensor, and the tensor of its result. */
    const uint32_t *tensor;
    uint32_t result;
} sx_join_node;
/* Several nodes as one program with a result for each. */
typedef struct {
    uint32_t count;
    /* What all of them compute, each value once. It is no fused node: its results are the instructions in `root`. */
    sx_attr whole;
    uint32_t root[SX_FUSED_RESULTS_MAX];
    /* Each node by itself, over the arguments of the whole; what it reads of an earlier result is computed. */
    sx_attr member[SX_FUSED_RESULTS_MAX];
    /* The tensor of each argument of the whole; one that is read in two ways is two arguments. */
    uint32_t tensor[SX_FUSED_ARGS_MAX];
} sx_join;
/* Joins up to SX_FUSED_RESULTS_MAX nodes with constant extents, in an order in which results are made before they are
 * read: maps over one space, or row kernels over one space and the same reduced dimensions with maps over that space or
 * over its rows. *ok is false where one of them is none of these, reads an earlier result at other elements than its
 * own, or would have other bits; or where there are too many arguments or instructions. */
sx_code sx_fused_join(sx_ctx *cx, const sx_join_node *node, uint32_t count, sx_join *join,
                      bool *ok);
/* The same of fused nodes of a graph; tensors are numbers of nodes. So who knows which nodes a kernel computes knows
 * what its arguments are. */
sx_code sx_fused_join_nodes(sx_ctx *cx, const sx_graph *graph, const uint32_t *member,
                            uint32_t count, sx_join *join, bool *ok);

/* The access with which a copy over `through` reads `source`: transpose, broadcast_in_dim, slice. False:
 * an offset or strides that cannot be written. (reshape has none: it keeps flat indices.) */
bool sx_view_access(sx_op op, const sx_attr *view, const sx_type *source, const sx_type *through,
                    sx_access *access);
#endif
