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

/* A loop that is walked with its variable free. */
typedef struct {
    /* Its LOOP item, its variable, and how many iterations it has. */
    uint32_t item;
    uint32_t var;
    int64_t trip;
    /* Where the stores and the reads of its body begin in the lists of the walk. */
    uint32_t first_record, first_read;
    /* Its tables, if it is walked with states: first_table .. end_table - 1. */
    uint32_t first_table, end_table;
} sx_walk_loop;

/* A set of places that a loop carries: found by the first walk of the loop, made a state by the next. */
typedef struct {
    /* The LOOP item. */
    uint32_t item;
    sx_record places;
} sx_carried_places;
/* Such places while their loop is walked with states. */
typedef struct {
    /* The value of each place is its state. */
    sx_record places;
    /* Terms over the store variables of `places`: what a place holds before the loop, what an iteration makes of it,
     * and what it holds behind the loop. */
    uint32_t first, step, behind;
} sx_table;

/* How a loop is walked: once; once, with states for the memory that it carries; or iteration by iteration. */
typedef enum { SX_WALK_ONCE, SX_WALK_STATES, SX_WALK_UNROLLED } sx_walk_mode;
/* A register that a loop carries from one iteration to the next. */
typedef struct {
    /* Its class (0 vector, 1 mask) << 28 | its number. */
    uint32_t reg;
    /* The number of its hole. */
    uint32_t hole;
    /* The value that it had before the loop. */
    uint32_t before;
} sx_carried;

/* What the table of instructions says of one. */
typedef struct {
    /* How many registers it reads, and the class of each: 0 vector, 1 mask, 2 integer. */
    uint8_t reads, class[4];
    /* The class of its result, as a letter of ops.def; never 0. */
    char result;
    /* It has an address. */
    bool memory;
} sx_walk_op;

/* The last items that read and that wrote a register; 0: none so far. */
typedef struct {
    uint32_t read, written;
} sx_reg_scan;
/* A register that the open loop number `loop` (0 is the outermost) reads before it writes it. */
typedef struct {
    uint32_t loop, reg;
} sx_loop_read;
/* The registers that a loop carries: `count` of `carried_reg`, from `first` on. */
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

/* A read of a place that an integer of the inputs names, of which only a store to that place may make use. */
typedef struct {
    /* The integer: which of the places it is. */
    uint32_t place;
    /* How many stores were walked before it, and the innermost loop that was open. */
    uint32_t serial, inner;
} sx_named_read;

/* The walk over one part. The arrays lie in the arena of the algebra and are used again for the next part. */
typedef struct {
    sx_algebra *g;
    const sx_kernel *kernel;
    const sx_part *part;
    uint32_t lanes;
    /* What vector and mask registers hold: a term, or SX_MANY | index into `many`; 0: nobody knows. */
    uint32_t *reg[2];
    /* What integer registers hold: terms; 0: nobody knows. */
    uint32_t *integer;
    /* For each vector and mask register, while it is found out what loops carry. */
    sx_reg_scan *seen[2];
    /* The number of the next hole. */
    uint32_t hole_count;
    uint32_t reg_capacity[2], seen_capacity[2], integer_capacity;
    /* Values whose lanes are not alike. */
    sx_lanes *many;
    uint32_t many_count, many_capacity;
    /* What the part has stored so far, and what it has read of its own stores inside open loops. */
    sx_records stores, reads;
    /* For each LOOP item: its END item; its sx_walk_mode; what it carries in registers. */
    uint32_t *end_of;
    uint8_t *mode;
    sx_loop_carries *carries;
    uint32_t item_capacity, mode_capacity, carries_capacity;
    /* Registers that loops carry (class << 28 | number), loop by loop, in the order in which they are read. */
    uint32_t *carried_reg;
    /* While that is found out: registers that were read before they were written, in the loops that are open. */
    sx_loop_read *read;
    uint32_t carried_reg_capacity, carried_reg_count, read_capacity;
    /* Memory that loops carry, as far as walks of the part have found it. */
    sx_carried_places *places;
    uint32_t places_count, places_capacity;
    /* Tables of the open loops that are walked with states; states name them by their number. */
    sx_table *table;
    uint32_t table_count, table_capacity;
    /* Registers that the open loops carry. */
    sx_carried *carried;
    uint32_t carried_count, carried_capacity;
    /* Reads of named places: the state number SX_NAMED + k is what read number k gave. */
    sx_named_read *named;
    uint32_t named_count, named_capacity;
    /* How many stores were walked; the LOOP item of the innermost open loop with a free variable, or UINT32_MAX. */
    uint32_t serial, inner;
    /* Whether a variable of the program has one value (its loop is unrolled, or has one iteration), and which. */
    bool known[SX_LOOP_VARS_MAX];
    int64_t value[SX_LOOP_VARS_MAX];
    /* The LOOP item of each variable that is free; UINT32_MAX: it is no loop's. */
    uint32_t loop_of[SX_LOOP_VARS_MAX];
    /* A loop needs another mode, which it has by now: the part is to be walked once more. */
    bool again;
    /* Where the stores and the reads of the innermost open loop begin. */
    uint32_t loop_first;
    uint32_t read_first;
    /* The lane at which a read fell into two records last: the next one often does so at the same. */
    uint32_t last_cut;
    /* How many loops with a free variable are open. */
    uint32_t open;
    /* The item that is walked. */
    uint32_t at;
    sx_walk_op op[SX_LOP_COUNT];
    sx_fixed_lanes fixed[SX_FIXED_LANES];
    sx_rows rows;
    /* What makes the lane a store variable, for stores from lane 0 on. */
    sx_subst whole;
} sx_walk;

#define SX_MANY 0x80000000u
#define SX_NAMED 0x80000000u

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

/* ---- places that integers of the inputs name (walk_named.c) ---- */
/* What the part itself stored at `form` plus the integer `index`, a value that is good for a store there alone. */
uint32_t sx_walk_named_load(sx_walk *w, uint32_t form, uint32_t index);
/* Stores `value` there. `r`: buffer, width and mem; `s` makes the lanes first .. end - 1 store variable 0. */
void sx_walk_named_store(sx_walk *w, const sx_record *r, uint32_t form, uint32_t index,
                         uint32_t value, const sx_subst *s);
/* Is it, or is it made of, what a read of a named place gave? */
bool sx_walk_is_named(sx_walk *w, uint32_t value);

/* ---- memory that loops carry (walk_state.c) ---- */
/* What the places of `r` hold after the stores first .. end - 1, the newest first; APART: none of them meets it. */
sx_read sx_walk_content(sx_walk *w, const sx_record *r, uint32_t first, uint32_t end,
                        uint32_t *value, uint32_t *from);
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
