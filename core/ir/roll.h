/* roll.h - a program as a few distinct parts and how often each is used, so that equal layers are worked on once.
 *
 * A deep program is a stack of layers that differ in their weights only. sx_roll_find cuts the program into consecutive parts such
 * that equal layers become equal parts: same operations, attributes, types and wiring, with what comes from outside abstracted as
 * parameters "i0", "i1", ... in the order of first use and what is read later as outputs "o0", "o1", ... Names, numbers of nodes and the order
 * of the text play no role. A part is a program of its own; whoever improves the parts gets the whole back from sx_roll_expand.
 *
 * How the cuts are found: the longest path (weights aside) orders the program; every other value belongs to the level of the path where it
 * is first needed, or, if more than one layer reads it (a mask, a table of positions), where its own operands are complete.
 * Equal levels at equal distance are runs of layers; of the places where a run may be cut, the one with the fewest live values
 * that splits no elementwise chain is taken. Every cut is legal whatever the labels say, since levels only grow along edges;
 * equality of parts is decided by comparing them word for word. Constants, what follows from constants of one value, and views are copied into
 * every part that reads them.
 * Papers: Main, Lorentz 1984 (repetitions in strings); Luminal's loop rolling has the same aim.
 */
#ifndef SX_CORE_IR_ROLL_H
#define SX_CORE_IR_ROLL_H
#include "core/ir/shard.h"

#define SX_ROLL_PARTS_MAX 256u     /* distinct ones; with more, the program is left whole */
#define SX_ROLL_BODY_NODES_MIN 12u /* operations of a part that is worth rolling */
#define SX_ROLL_SHORT_NODES_MIN 3u /* the same of a part that is used */
#define SX_ROLL_SHORT_USES_MIN \
    8u /* so often: a layer that is a contraction, a bias and an activation */
#define SX_ROLL_PARAMETER UINT32_MAX /* in sx_roll_value.use */

static inline bool sx_roll_is_worth(uint32_t nodes, uint32_t uses)
{
    return (uses > 1 && nodes >= SX_ROLL_BODY_NODES_MIN) ||
           (uses >= SX_ROLL_SHORT_USES_MIN && nodes >= SX_ROLL_SHORT_NODES_MIN);
}

/* A value of the whole program: output `index` of a use, or parameter `index` of the program. */
typedef struct {
    uint32_t use;
    uint32_t index;
} sx_roll_value;
typedef struct {
    uint32_t part;
    const sx_roll_value *argument; /* one for each parameter of the part; from earlier uses only */
} sx_roll_use;
typedef struct {
    const sx_graph *program; /* shares the attributes and symbols of the whole */
    uint32_t use_count;      /* 0: only within joined parts */
    uint32_t node_count;     /* operations in it, without leaves */
} sx_roll_part;
typedef struct {
    const sx_graph *whole;
    const sx_roll_part *part;
    uint32_t part_count;
    const sx_roll_use *use; /* in order of execution */
    uint32_t use_count;
    const sx_roll_value *output; /* of the whole, in its order */
} sx_roll;

/* Cuts `graph`; *roll is NULL where no part that repeats is worth it (sx_roll_is_worth). Result in cx's
 * arena; `graph` must outlive it and lends its table of attributes. Time and memory are linear in the program but for 64 passes over
 * the longest path.
 *   errors   SX_NOMEM; SX_LIMIT a part with more than SX_OUTPUTS_MAX outputs */
sx_code sx_roll_find(sx_ctx *cx, const sx_graph *graph, const sx_roll **roll);
/* The same for a program on a mesh whose node n lies as places[n]: layers are equal only if what they read and give lies alike, and each part
 * has the mesh, its parameters and outputs lying so. */
sx_code sx_roll_find_placed(sx_ctx *cx, const sx_graph *graph, const sx_places *places,
                            const sx_roll **roll);

/* The whole program with part p replaced by program[p], which has the part's parameters and outputs in the same order and its table of
 * attributes. Equal nodes are merged, dead ones dropped; parameters and outputs are those of the whole. With the parts' own
 * programs the result has the canonical form of roll->whole.
 *   errors   SX_INPUT a program whose interface is not the part's */
sx_code sx_roll_expand(sx_ctx *cx, const sx_roll *roll, const sx_graph *const *program,
                       sx_graph **whole);

/* Uses `use` and `use` + 1 as one: *outer is `roll` with a part more, its last one, which is used there and nowhere else; *inner is
 * that part as the two parts it came of (same numbers as in `roll`). Parts that are left without a use keep their numbers. */
sx_code sx_roll_join(sx_ctx *cx, const sx_roll *roll, uint32_t use, const sx_roll **outer,
                     const sx_roll **inner);
#endif
