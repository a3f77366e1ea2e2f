/* walk.h - one part of a kernel walked with symbolic variables: every register a term, every store a record.
 * Internal to core/judge. */
#ifndef SX_CORE_JUDGE_WALK_H
#define SX_CORE_JUDGE_WALK_H
#include "core/judge/record.h"

#define SX_UNROLL_MAX 64
/* What a register holds, lane by lane: pieces of lanes with one term each, which may use the lane variable. */
#define SX_LANE_OWN 0xFFu
typedef struct {
    uint8_t count;
    bool moved;                     /* some lane of `at` is not SX_LANE_OWN */
    uint8_t end[SX_LOOP_LANES_MAX]; /* first lane behind the piece */
    /* The lane at which the term is meant: the lane itself (SX_LANE_OWN), or, in a piece of one lane, another one,
     * from where the lane was moved. */
    uint8_t at[SX_LOOP_LANES_MAX];
    uint32_t term[SX_LOOP_LANES_MAX];
} sx_lanes;

typedef struct {
    uint32_t item;
    uint32_t var;
    int64_t trip;
    uint32_t first_record, first_read;
    uint32_t first_table, end_table;
} sx_walk_loop;

/* A set of places that a loop carries: found by the first walk of the loop, made a state by the next. */
typedef struct {
    uint32_t item; /* LOOP */
    sx_record places;
} sx_carried_places;
typedef struct {
    sx_record places; /* each with its state */
    uint32_t first, step,
        behind; /* terms over the store variables: before the loop, of an iteration, behind it */
} sx_table;

typedef enum { SX_WALK_ONCE, SX_WALK_STATES, SX_WALK_UNROLLED } sx_walk_mode;
typedef struct {
    uint32_t reg; /* class << 28 | number */
    uint32_t hole;
    uint32_t before; /* register value at the start of the loop */
} sx_carried;

/* Of an instruction: classes of the registers that it reads (0 vector, 1 mask, 2 integer), of its result. */
typedef struct {
    uint8_t reads, class[4];
    char result; /* as in ops.def; never 0 */
    bool memory; /* it has an address */
} sx_walk_op;

/* Items that read and write a register last, in a loop; item 0 is the start. */
typedef struct {
    uint32_t read, written;
} sx_reg_scan;
typedef struct {
    uint32_t loop, reg;
} sx_loop_read;
/* Of a LOOP item: its registers among `carried_reg`. */
typedef struct {
    uint32_t first, count;
} sx_loop_carries;

/* What was found for a term at single lanes: sums across lanes ask for each of them several times. */
#define SX_FIXED_LANES 64u
typedef struct {
    uint32_t term, generation;
    uint32_t at[SX_LOOP_LANES_MAX]; /* by lane; 0: not asked yet */
} sx_fixed_lanes;

/* The last rows of a block that was turned, and what they are as one term: 0, if they are not. */
typedef struct {
    uint32_t generation, count, one;
    uint32_t row[SX_LOOP_LANES_MAX];
} sx_rows;

typedef struct {
    sx_algebra *g;
    const sx_kernel *kernel;
    const sx_part *part;
    uint32_t lanes;
    uint32_t *reg[2];  /* vectors and masks: a term, or SX_MANY | index into `many`; 0: not known */
    uint32_t *integer; /* terms */
    sx_reg_scan *seen[2]; /* of the registers, for the scan for what loops carry */
    uint32_t hole_count;
    uint32_t reg_capacity[2], seen_capacity[2], integer_capacity;
    sx_lanes *many;
    uint32_t many_count, many_capacity;
    sx_records stores, reads;
    uint32_t *end_of; /* of each LOOP item: its END */
    uint8_t *mode;    /* of each LOOP item: sx_walk_mode */
    uint32_t item_capacity, mode_capacity;
    sx_loop_carries *carries; /* of each LOOP item */
    uint32_t *carried_reg;    /* class << 28 | number, in the order in which they are read */
    sx_loop_read *read;       /* scratch: read before they were written, in loops that are open */
    uint32_t carries_capacity, carried_reg_capacity, carried_reg_count, read_capacity;
    sx_carried_places *places;
    uint32_t places_count, places_capacity;
    /* of the open loops that are walked with states; the number of a table is that of its states */
    sx_table *table;
    uint32_t table_count, table_capacity;
    sx_carried *carried;
    uint32_t carried_count, carried_capacity;
    bool known[SX_LOOP_VARS_MAX]; /* the variable has one value: */
    int64_t value[SX_LOOP_VARS_MAX];
    uint32_t loop_of[SX_LOOP_VARS_MAX]; /* LOOP item of the variable where that is free */
    bool again; /* a loop needs another `mode`, which it has now: walk the part once more */
    uint32_t loop_first; /* first record of the innermost open loop */
    uint32_t read_first; /* and its first read */
    uint32_t last_cut;   /* lane at which a read fell in two */
    uint32_t open;       /* symbolic loops */
    uint32_t at;         /* item */
    sx_walk_op op[SX_LOP_COUNT];
    sx_fixed_lanes fixed[SX_FIXED_LANES];
    sx_rows rows;
    sx_subst whole; /* of stores from lane 0 on: the lane as a store variable */
} sx_walk;

#define SX_MANY 0x80000000u

/* The stores of the part at a grid point (variables 0 to 2 free where the grid has several points) are in
 * walk->stores. */
void sx_walk_part(sx_walk *w, sx_algebra *g, const sx_kernel *kernel, const sx_part *part);
/* One elementwise instruction on register values (walk_op.c). */
uint32_t sx_walk_elementwise(sx_walk *w, sx_lop op, uint32_t imm, const uint32_t operand[3]);
/* ---- lanes (walk_lanes.c) ---- */
/* A value of these pieces, none of which is moved. */
uint32_t sx_walk_put(sx_walk *w, const sx_lanes *lanes);
/* The pieces of a value, none moved: where they stand until the next value is put, or in `whole`; or a copy. */
const sx_lanes *sx_walk_view(sx_walk *w, uint32_t value, sx_lanes *whole);
void sx_walk_get(sx_walk *w, uint32_t value, sx_lanes *lanes);
/* The same for the first `count` lanes, where pieces that differ by their lane alone are one. */
void sx_walk_get_joined(sx_walk *w, uint32_t value, uint32_t count, sx_lanes *lanes);
/* Lane i of the result is lane i ^ distance of the value. */
uint32_t sx_walk_swap(sx_walk *w, uint32_t value, uint32_t distance);
/* Lanes of x where the mask is set, of y elsewhere; 0 where the mask is not known. */
uint32_t sx_walk_choose(sx_walk *w, uint32_t mask, uint32_t x, uint32_t y);
/* The term with the lane fixed. */
uint32_t sx_walk_at(sx_walk *w, uint32_t term, uint32_t lane);
void sx_walk_memory(sx_walk *w, const sx_item *item);

/* ---- memory that loops carry (walk_state.c) ---- */
/* Notes the places that the body stores anew in each iteration after it has read what was there. */
void sx_walk_find_places(sx_walk *w, const sx_walk_loop *loop);
/* At the start of an iteration these places hold states. False: what they hold before the loop is not known. */
bool sx_walk_open_states(sx_walk *w, sx_walk_loop *loop);
/* Finds what the tables hold behind the loop. False: they are no recurrence. */
bool sx_walk_close_states(sx_walk *w, const sx_walk_loop *loop);
/* Stores that, once all other stores of the body are closed. */
void sx_walk_leave_states(sx_walk *w, const sx_walk_loop *loop, uint32_t outer_first);
bool sx_walk_room(sx_walk *w, void **array, uint32_t *capacity, uint32_t need, size_t size);
#endif
