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

typedef struct {
    uint32_t start, end; /* start == SX_GEN_NONE: never used */
    uint32_t last;       /* item of the latest occurrence during analysis */
    uint64_t weight;     /* uses, times 8 per loop around them */
    uint32_t hint[3];    /* intervals whose register suits if they end where this starts */
    uint32_t want;       /* register preferred; NONE */
    bool spillable;
    int32_t reg;   /* -1: in memory (constant pool or stack) */
    uint32_t slot; /* stack slot when reg is -1 */
} sx_live;

typedef struct {
    sx_live *live;
    uint32_t count;
    uint32_t allowed; /* set of 1 << register */
    uint32_t used;
} sx_live_set;

typedef struct {
    uint32_t start, end; /* items LOOP and END */
    uint32_t parent;     /* loop index or NONE */
    uint32_t depth;      /* 1 outermost */
    uint32_t variable;
    int64_t trip;
    uint32_t first_step; /* head of the list of streams that this loop advances: index into steps */
    uint32_t label;
    bool innermost;
} sx_gen_loop;

/* A pointer: buffer + base + sum of coefficient * variable; with no buffer, the value of a variable. */
#define SX_STREAM_VALUE UINT32_MAX
typedef struct {
    uint32_t buffer;
    int64_t base;
    int64_t coef[SX_LOOP_VARS_MAX];
} sx_stream;
typedef struct {
    uint32_t stream, next;
} sx_step;

typedef enum { SX_CONSTANT_SET, SX_CONSTANT_IOTA } sx_constant_kind;
typedef struct {
    sx_constant_kind kind;
    uint64_t bits; /* SET: all lanes; IOTA: lane 0 */
} sx_constant;

typedef enum { SX_SETUP_CONSTANT, SX_SETUP_TAIL, SX_SETUP_STREAM } sx_setup_kind;
typedef struct {
    uint32_t position;
    sx_setup_kind kind;
    uint32_t index; /* constant, lane count or stream */
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
    bool wide; /* lanes of 8 bytes */
    bool zmm;  /* vectors of 64 bytes, masks in registers of their own; else 32 bytes */
    sx_x64_asm *as;
    sx_gen_loop *loop;
    uint32_t loop_count;
    uint32_t *item_loop; /* innermost loop around each item; LOOP and END: their own */
    sx_stream *stream;
    uint32_t stream_count, stream_capacity;
    uint32_t *item_stream; /* of OP items with an address and of svar */
    sx_step *step;
    uint32_t step_count, step_capacity;
    sx_constant *constant;
    uint32_t constant_count, constant_capacity;
    uint32_t *constant_of; /* by vector register: its constant, or NONE */
    /* by vector register: the load item that its one reader takes as memory operand, or NONE */
    uint32_t *fold_of;
    sx_setup *setup;
    uint32_t setup_count;
    sx_live_set vector, mask, general;
    uint32_t first_mask, first_constant;                /* in vector */
    uint32_t first_tail;                                /* in mask */
    uint32_t first_stream, first_counter, first_scalar; /* in general */
    uint32_t slot_count, spill_count;
    uint32_t vector_scratch, mask_scratch; /* how many registers are set aside */
    uint32_t vector_need, mask_need;       /* found while selecting; a retry sets them aside */
    uint32_t vector_taken, mask_taken;     /* by the instruction in hand */
    uint32_t result_taken; /* scratch register of a result that lives on the stack, or NONE */
    bool spills;           /* vectors and masks may live on the stack */
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
