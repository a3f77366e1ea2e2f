/* ring.h - rings of slots between roles: places, barriers, phases, and a check over all interleavings.
 *
 * A ring has `depth` stages, each with the same slots and two barriers: "full" completes when every producer has
 * published the stage (and the bytes of the copy engine have arrived), "empty" when every consumer has released it. Use
 * number n of the ring, counted over all loops of the kernel, is of stage n % depth and of phase n / depth of its
 * barriers; a wait names the parity of the phase. The counter never begins anew, whatever the loops do.
 *
 * A role (a set of warps) is given by the order in which it acquires, publishes, waits and releases. The check tries
 * every interleaving of the roles on barriers as the hardware has them, with parities and arrival counts.
 */
#ifndef SX_CORE_TILE_RING_H
#define SX_CORE_TILE_RING_H
#include "core/tile/tensor_map.h"

#define SX_RING_SLOTS_MAX 4
#define SX_RING_DEPTH_MAX 16
#define SX_RINGS_MAX 4
#define SX_ROLES_MAX 4

typedef struct {
    uint32_t slot_count;
    sx_slot slot[SX_RING_SLOTS_MAX];
    uint32_t depth;
    /* How many arrivals complete a phase: one for each producing role, and for each consuming one. */
    uint32_t full_arrivals;
    uint32_t empty_arrivals;
    uint32_t tx_bytes; /* of a stage, from the copy engine: whole boxes; 0 where threads write */
    uint32_t offset;   /* of stage 0 in shared memory */
    /* Offset of the full barrier of stage 0; its empty one follows, then those of the next stage, 8 bytes each. */
    uint32_t barriers;
} sx_ring;

/* Adds a slot; with an element type it is filled by the copy engine and its boxes count in tx_bytes. SX_LIMIT for too
 * many, SX_INPUT for a slot that has no boxes. */
sx_code sx_ring_add(sx_ctx *cx, sx_ring *ring, const sx_slot *slot, const sx_dtype *element);
uint32_t sx_ring_stage_bytes(const sx_ring *ring);

/* Places barriers, rings and then the slabs one after the other, all aligned; `slab_offset` has room for each. SX_LIMIT
 * says by how much a block has too little, with the depth that would fit where there is one ring. */
sx_code sx_smem_place(sx_ctx *cx, sx_ring *ring, uint32_t rings, const sx_slot *slab,
                      uint32_t slabs, uint32_t *slab_offset, uint32_t *bytes);
/* The greatest depth at which one ring of these slots leaves `other_bytes`; 0: none. */
uint32_t sx_ring_depth_that_fits(const sx_ring *ring, uint32_t other_bytes);

uint32_t sx_ring_slot_offset(const sx_ring *ring, uint32_t stage, uint32_t slot);
uint32_t sx_ring_full_barrier(const sx_ring *ring, uint32_t stage);
uint32_t sx_ring_empty_barrier(const sx_ring *ring, uint32_t stage);
/* The parity that a consumer waits for on the full barrier in use `number`, and a producer on the empty barrier: for
 * the first `depth` uses one that a fresh barrier has passed. */
uint32_t sx_ring_full_parity(const sx_ring *ring, uint32_t number);
uint32_t sx_ring_empty_parity(const sx_ring *ring, uint32_t number);

typedef enum {
    SX_STEP_ACQUIRE, /* wait until the next stage is empty */
    SX_STEP_PUBLISH, /* say that the stage acquired last but not yet published is full */
    SX_STEP_WAIT,    /* wait until the next stage is full */
    SX_STEP_READ,    /* begin to read the stage waited for last, asynchronously (wgmma) */
    SX_STEP_SETTLE,  /* wait until no more than `back` reads are under way */
    SX_STEP_RELEASE /* free the stage waited for `back` waits ago in this tile; nothing where there was none */
} sx_step_op;

typedef struct {
    uint8_t op; /* an sx_step_op */
    uint8_t ring;
    uint8_t back;
} sx_step;

/* For each tile: `body` once for each step of k, then `tail`. */
typedef struct {
    const char *name;
    const sx_step *body;
    uint32_t body_count;
    const sx_step *tail;
    uint32_t tail_count;
} sx_role_steps;

/* Runs the roles for two tiles of 0, 1, depth - 1, depth and depth + 1 steps, in every interleaving. SX_INPUT names
 * the role, the ring and the fault: a deadlock; a stage that is acquired before all have released it, or read before
 * all have published it; a parity that names another phase; an arrival in a phase that is not its own; a stage released
 * twice, out of order, never, or while it is read. SX_LIMIT: more states than SX_RING_STATES_MAX; SX_QUOTA: fuel, one
 * for each state. */
#define SX_RING_STATES_MAX (1U << 24)
sx_code sx_rings_check(sx_ctx *cx, const sx_ring *ring, uint32_t rings, const sx_role_steps *role,
                       uint32_t roles);
#endif
