/* roll.h - a program as a few distinct parts and how often each is used, so that equal layers are worked on once.
 *
 * A deep program is usually a stack of layers that differ only in their weights. sx_roll_find divides the program into
 * consecutive parts, such that equal layers become equal parts: the same operations, attributes, types and
 * connections. A part is a program of its own. Values that it takes from outside are its parameters "i0", "i1", ... in
 * the order of first use, and values that are read later are its outputs "o0", "o1", ... Names, node numbers and the
 * order of the text do not matter. Once the parts have been improved, sx_roll_expand makes the whole program of them.
 *
 * How the cuts are found:
 *   - The longest path through the program, weights not counted, gives an order of levels. Every other value belongs to
 *     the level where it is first needed or, if more than one layer reads it (a mask, a table of
 *     positions), to the level where its own operands are complete.
 *   - Equal levels at equal distances are runs of layers. A run may be cut at several places; the one is taken where
 *     the fewest values are alive and no chain of elementwise operations is split.
 *   - Every cut is correct, however the levels were found, because levels only grow along edges. Whether two parts are
 *     equal is decided by comparing them word for word.
 *   - Constants, what follows element by element from constants of one value and from positions (a causal mask), and
 *     views are copied into every part that reads them.
 *
 * Papers: Main, Lorentz 1984 (repetitions in strings); Luminal's loop rolling has the same aim.
 */
#ifndef SX_CORE_ROLL_ROLL_H
#define SX_CORE_ROLL_ROLL_H
#include "core/ir/shard.h"

#define SX_ROLL_PARTS_MAX 256u /* distinct parts; a program with more is not divided */
/* A part is worth it with so many operations, if it is used twice; */
#define SX_ROLL_BODY_NODES_MIN 12u
/* or with so many, if it is used SX_ROLL_SHORT_USES_MIN times: a contraction, a bias and an activation. */
#define SX_ROLL_SHORT_NODES_MIN 3u
#define SX_ROLL_SHORT_USES_MIN 8u
#define SX_ROLL_PARAMETER UINT32_MAX /* in sx_roll_value.use */

static inline bool sx_roll_is_worth(uint32_t nodes, uint32_t uses)
{
    return (uses > 1 && nodes >= SX_ROLL_BODY_NODES_MIN) ||
           (uses >= SX_ROLL_SHORT_USES_MIN && nodes >= SX_ROLL_SHORT_NODES_MIN);
}

/* A value of the whole program: output number `index` of use number `use`, or, if `use` is SX_ROLL_PARAMETER, parameter
 * number `index` of the program. */
typedef struct {
    uint32_t use;
    uint32_t index;
} sx_roll_value;
typedef struct {
    uint32_t part;
    /* for each parameter of the part, a value of the program or of an earlier use */
    const sx_roll_value *argument;
} sx_roll_use;
typedef struct {
    const sx_graph *program; /* shares the attributes and symbols of the whole */
    uint32_t use_count;      /* 0: it is used only within parts that were joined (sx_roll_join) */
    uint32_t node_count;     /* operations, without parameters and constants */
} sx_roll_part;
typedef struct {
    const sx_graph *whole;
    const sx_roll_part *part;
    uint32_t part_count;
    const sx_roll_use *use; /* in order of execution */
    uint32_t use_count;
    const sx_roll_value *output; /* of the whole, in its order */
} sx_roll;

/* Divides `graph` into parts. *roll is NULL if no repeated part is large enough (sx_roll_is_worth). The result
 * is in cx's arena and uses the table of attributes of `graph`, which must outlive it. Time and memory are
 * linear in the program, except for 64 passes over the longest path.
 *   places   NULL, or for a program on a mesh of devices how each node is placed. Layers are then equal only if their
 *            inputs and outputs are placed alike, and every part has the mesh and the placements of its parameters and
 *            outputs.
 *   errors   SX_NOMEM; SX_LIMIT a part with more than SX_OUTPUTS_MAX outputs */
sx_code sx_roll_find(sx_ctx *cx, const sx_graph *graph, const sx_places *places,
                     const sx_roll **roll);

/* Builds the whole program with program[p] in place of part p. It has the same parameters and outputs as the
 * part, in the same order, and the same table of attributes. Equal nodes are merged and dead ones dropped. If
 * every program[p] is the part itself, the result has the canonical form of roll->whole.
 *   errors   SX_INPUT the parameters or outputs of a program[p] are not those of the part */
sx_code sx_roll_expand(sx_ctx *cx, const sx_roll *roll, const sx_graph *const *program,
                       sx_graph **whole);

/* Joins the uses `use` and `use` + 1 to one. *outer is `roll` with one more part, the last one, which is used there and
 * nowhere else. *inner is that part, divided into the two it was joined from, with the numbers they have in `roll`.
 * Parts that are no longer used keep their numbers. */
sx_code sx_roll_join(sx_ctx *cx, const sx_roll *roll, uint32_t use, const sx_roll **outer,
                     const sx_roll **inner);
#endif
