/* gen.h - what the files of the code generator share: live.c (analysis), regalloc.c, select.c (vectors),
 * emit.c (the rest).
 *
 * Positions: item i executes at 2i + 1; what is set up once before an outermost loop (or before an item
 * outside all loops) that starts at item i happens at 2i. A live interval is [start, end] in positions,
 * without holes, extended over every loop that it enters with a value.
 */
#ifndef SX_CORE_X64_GEN_H
#define SX_CORE_X64_GEN_H
#include "core/x64/codegen.h"

#define SX_GEN_NONE UINT32_MAX
#define SX_GEN_STREAMS_MAX 1024u
#define SX_GEN_CONSTANTS_MAX 1024u
#define SX_GEN_SLOTS_MAX 32768u

/* The live interval of a value, and the register that it gets. */
typedef struct {
    /* Positions; `start` is SX_GEN_NONE where the value is never used. */
    uint32_t start, end;
    /* While the part is analysed: the last item so far in which the value occurs. */
    uint32_t last;
    /* How often it is used, each use times 8 for every loop around it. */
    uint64_t weight;
    /* Intervals whose register suits this one, if they end where it starts; SX_GEN_NONE: fewer. */
    uint32_t hint[3];
    /* The register that it should have, or SX_GEN_NONE. */
    uint32_t want;
    /* It may live on the stack. */
    bool spillable;
    /* -1: it is in memory, in stack slot `slot` or among the constants. */
    int32_t reg;
    uint32_t slot;
} sx_live;

/* The intervals that share one class of registers. */
typedef struct {
    sx_live *live;
    uint32_t count;
    /* The registers that may be taken, and those that were, sets of 1 << register. */
    uint32_t allowed;
    uint32_t used;
} sx_live_set;

typedef struct {
    /* Its LOOP and END items. */
    uint32_t start, end;
    /* The number of the loop around it, or SX_GEN_NONE; how many loops there are with it, 1 for an outermost one. */
    uint32_t parent;
    uint32_t depth;
    uint32_t variable;
    int64_t trip;
    /* One more than the slot in which the trip count comes; 0: it is `trip`. */
    uint32_t trip_slot;
    /* It is a loop however many iterations it has, which may be none. */
    bool any_trip;
    /* The first of the streams that this loop advances, a number in `step` of sx_gen. */
    uint32_t first_step;
    /* The label of its first instruction, and that behind it of a loop that may have no iterations. */
    uint32_t label, behind;
    bool innermost;
} sx_gen_loop;

/* Is there a counter and a jump back? */
static inline bool sx_gen_is_loop(const sx_gen_loop *loop)
{
    return loop->trip > 1 || loop->any_trip;
}

/* A pointer that loops advance: buffer + base + sum of coefficient * variable, in bytes. Where `buffer` is
 * SX_STREAM_VALUE it is an integer, the sum alone. Slots are one more than those of sx_comes, and 0 where a number is
 * in the program: what is added to the base, and what stands for a coefficient. */
#define SX_STREAM_VALUE UINT32_MAX
typedef struct {
    uint32_t buffer;
    int64_t base;
    int64_t coef[SX_LOOP_VARS_MAX];
    uint32_t base_slot;
    uint32_t coef_slot[SX_LOOP_VARS_MAX];
} sx_stream;
/* A stream in the list of a loop, and the number of the next one, or SX_GEN_NONE. */
typedef struct {
    uint32_t stream, next;
} sx_step;

typedef enum { SX_CONSTANT_SET, SX_CONSTANT_IOTA } sx_constant_kind;
typedef struct {
    sx_constant_kind kind;
    /* SET: the bits of every lane. IOTA: those of lane 0; each lane has one more than the lane before it. */
    uint64_t bits;
} sx_constant;

typedef enum { SX_SETUP_CONSTANT, SX_SETUP_TAIL, SX_SETUP_STREAM } sx_setup_kind;
/* What is put into a register before the item at a position. */
typedef struct {
    uint32_t position;
    sx_setup_kind kind;
    /* By kind: the number of a constant, how many lanes a tail mask has, or the number of a stream. */
    uint32_t index;
} sx_setup;

/* Order of intervals in the sets: vectors: registers, masks (32 bytes), constants. masks (64 bytes): registers,
 * tail masks by lane count. general: the three arguments, streams, counters of loops, integer registers. */
enum { SX_ARG_BUFFER, SX_ARG_INDEX, SX_ARG_WORKSPACE, SX_ARG_COUNT };
#define SX_GEN_SCRATCH_MAX 4
typedef struct {
    sx_ctx *cx;
    const sx_kernel *kernel;
    const sx_part *part;
    uint32_t part_index;
    uint32_t lanes;
    /* Lanes have 8 bytes, not 4. */
    bool wide;
    /* Vectors have 64 bytes, and masks registers of their own. Otherwise vectors have 32 bytes. */
    bool zmm;
    sx_x64_asm *as;
    sx_gen_loop *loop;
    uint32_t loop_count;
    /* For each item the innermost loop around it; LOOP and END have their own. */
    uint32_t *item_loop;
    /* [item] one more than the slot in which the number of an integer instruction comes; 0: it is in the program. */
    uint32_t *item_slot;
    sx_stream *stream;
    uint32_t stream_count, stream_capacity;
    /* For each OP item with an address, and each svar, its stream. */
    uint32_t *item_stream;
    sx_step *step;
    uint32_t step_count, step_capacity;
    sx_constant *constant;
    uint32_t constant_count, constant_capacity;
    /* For each virtual vector register its constant, or SX_GEN_NONE. */
    uint32_t *constant_of;
    /* For each virtual vector register the load that its one reader takes as memory operand, or SX_GEN_NONE. */
    uint32_t *fold_of;
    sx_setup *setup;
    uint32_t setup_count;
    sx_live_set vector, mask, general;
    /* Where the kinds of intervals begin: in `vector`, in `mask`, and in `general`. */
    uint32_t first_mask, first_constant;
    uint32_t first_tail;
    uint32_t first_stream, first_counter, first_scalar;
    uint32_t slot_count, spill_count;
    /* Scratch registers, vectors and masks: how many are set aside, how many the instructions turned out to need (if
     * that is more, the part is generated again), and how many the instruction in hand has taken. */
    uint32_t vector_scratch, mask_scratch;
    uint32_t vector_need, mask_need;
    uint32_t vector_taken, mask_taken;
    /* The scratch register of a result that lives on the stack, or SX_GEN_NONE. */
    uint32_t result_taken;
    /* Vectors and masks may live on the stack. */
    bool spills;
} sx_gen;

#define SX_RAX_SCRATCH SX_RAX
#define SX_RCX_SCRATCH SX_RCX

/* live.c: loops, streams, constants, foldable loads, live intervals. */
sx_code sx_gen_analyse(sx_gen *g);
/* Does a load or store of so many elements go through a mask register (vectors of 64 bytes)? */
bool sx_gen_needs_tail(const sx_gen *g, const sx_item *item);
/* regalloc.c: a register or memory for every interval of a set. SX_LIMIT names `what`. */
sx_code sx_gen_allocate(const sx_gen *g, sx_live_set *set, const char *what);
/* select.c: vector and mask instructions. */
void sx_gen_vector_op(sx_gen *g, const sx_item *item, uint32_t index);
void sx_gen_load_constant(sx_gen *g, uint32_t constant, uint32_t reg);
void sx_gen_load_tail(sx_gen *g, uint32_t lanes, uint32_t k);
/* emit.c: the memory operand of the address of item `index`, `extra` bytes on; may use rax and rcx. */
sx_x64_arg sx_gen_address(sx_gen *g, uint32_t index, int64_t extra);
sx_x64_arg sx_gen_slot(const sx_live *live);
#endif
