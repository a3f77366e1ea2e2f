/* fuse.h - from a program of operations to kernels: lift each operation, then grow it (core/ir/fused.h) until
 * nothing wins any more.
 *
 * One pass over the program, producers first. Steps that always win are taken at once: values and views move
 * into the kernel, equal arguments become one, an elementwise producer with one reader is computed where it is
 * read. Where it depends (a producer with several readers, a row kernel that would recompute, two contractions
 * to choose from for an epilogue) the variants stand side by side in the class and extraction decides by cost.
 * At most SX_FUSE_FORMS variants a class: the pass is linear in the program. Producers that follow from
 * weights are left alone: they run once at load. Only a mask of attention that is made of positions (a causal one) is
 * offered in place, too: its kernel can leave out what is hidden, which a mask in memory does not tell.
 */
#ifndef SX_CORE_OPTIMIZE_FUSE_H
#define SX_CORE_OPTIMIZE_FUSE_H
#include "core/egraph/extract.h"
#include "core/optimize/steps.h"
#include "core/rules/rules.h"

#define SX_FUSE_FORMS 4u
#define SX_FUSE_READERS_MAX \
    4u /* readers of an elementwise producer that may be computed in each of them */
#define SX_FUSE_REPEATED_MAX 16u /* instructions of a producer computed more than once */

typedef struct {
    /* from, to, producer or SX_EG_NONE, rule: equalities found, to be united by the caller */
    uint32_t *word;
    uint32_t count, capacity;
} sx_fuse_pairs;

/* Adds the kernels of the program that `choice` makes (classes in `order`, children first) and appends their
 * equalities.
 *   enabled   [SX_RULE_COUNT], which rules may be used
 *   limits    bytes that may be taken from the arena; operations beyond are left as they are
 *   fuel      what may be spent, less what was: 64 and the square of the kernel's length per step; at zero the
 *             rest is left
 *   steps     of the same e-graph: those tried before are not computed again; the others are added
 *   count     [SX_RULE_COUNT], steps taken by rule, added to */
sx_code sx_fuse(sx_ctx *cx, sx_tensors *t, const uint32_t *choice, const uint32_t *order,
                uint32_t order_count, const uint32_t *root, uint32_t root_count,
                const bool *enabled, const sx_eg_limits *limits, uint64_t *fuel,
                sx_fuse_steps *steps, sx_fuse_pairs *pairs, uint64_t *count);
#endif
