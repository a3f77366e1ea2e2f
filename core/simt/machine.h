/* machine.h - the inside of the interpreter: prepared instructions, warps, memory and what is known of it. */
#ifndef SX_CORE_SIMT_MACHINE_H
#define SX_CORE_SIMT_MACHINE_H
#include "core/base/rng.h"
#include "core/simt/alu.h"
#include "core/simt/run.h"

#define SX_PTX_WARPS_MAX 32          /* of a block */
#define SX_PTX_CLUSTER_WARPS_MAX 128 /* of the blocks of a cluster together */
#define SX_PTX_CLUSTER_BLOCKS_MAX 16
#define SX_PTX_ALL UINT32_MAX /* all lanes */
#define SX_PTX_WORDS_MAX 144  /* registers that an instruction names: a wgmma has 128 results */

/* ---- prepared instructions ---- */
/* A word of registers: an index of the warp's file, or of the constants with this bit. */
#define SX_PTX_CONSTANT 0x80000000U
#define SX_PTX_NO_WORD UINT32_MAX

typedef struct {
    uint8_t handler; /* sx_ptx_handler */
    bool computes;   /* by `alu` */
    bool together;   /* threads of a warp execute it together */
    bool decides;    /* its guard or its order of operands belongs to the path of a block */
    bool guard_negated;
    bool strong;   /* memory: atomic, volatile, relaxed or stronger */
    bool constant; /* memory: ld.global.nc */
    bool extends;  /* memory: loads extend the sign */
    uint8_t result_count, operand_count;
    uint16_t space;        /* memory: sx_ptx_modifier of class SPACE, 0: generic */
    uint8_t element_bytes; /* memory */
    uint8_t elements;
    uint8_t result_bytes; /* memory: of a register that is loaded into */
    uint32_t guard;       /* SX_PTX_NO_WORD: none */
    uint32_t word;        /* first in sx_ptx_machine.word: results, then operands */
    uint8_t address_count;
    uint32_t address[3]; /* memory: words of its bases */
    int64_t offset[3];
    uint32_t target; /* branches */
    sx_ptx_alu alu;
} sx_ptx_micro;

/* ---- who accessed a byte of shared memory, and when ---- */
typedef struct {
    uint32_t warp_epoch, lane_epoch;
    uint32_t insn;
    uint16_t thread; /* 1 + its number in the block; 0: nobody */
    bool strong;
} sx_ptx_stamp;

typedef struct {
    sx_ptx_stamp write, read[2];
    uint16_t flight; /* 1 + the thread that copies into it */
    bool known;
    bool barrier; /* of an mbarrier that is valid */
} sx_ptx_cell;

/* clock.c: epochs by warp, then by thread, then by actor. */
typedef struct {
    uint32_t *seen;   /* what comes before now */
    uint32_t *fenced; /* and before a proxy fence that does */
} sx_ptx_clock;

/* What accesses memory by itself. The copies that complete on an mbarrier have its phases as epochs, the others the
 * groups that they are committed in. */
typedef enum { SX_PTX_ACTOR_COPIES, SX_PTX_ACTOR_STORES, SX_PTX_ACTOR_PRODUCTS } sx_ptx_actor_kind;
typedef struct {
    uint8_t kind; /* sx_ptx_actor_kind */
    uint32_t of;  /* offset of the mbarrier, number of the thread, of the warpgroup */
} sx_ptx_actor;
#define SX_PTX_ACTORS_MAX 192

#define SX_PTX_MBARRIERS_MAX 128
typedef struct {
    uint32_t offset; /* in the shared memory of the cluster */
    uint32_t count, pending, phase;
    /* Bytes that are expected and have not come; below 0: that came before they were expected. */
    int64_t tx;
    bool valid;
    uint32_t actor; /* of the copies that complete on it */
    sx_ptx_clock next,
        done; /* what came before the arrivals of this phase, and of those that are over */
    /* The same of arrivals from other blocks of the cluster, for waits with its scope alone. */
    sx_ptx_clock far_next, far_done;
    sx_ptx_stamp init;  /* who initialised it */
    sx_ptx_stamp fence; /* a fence behind that; thread 0: none */
    /* The last phase that bytes from another block came for, and the copy; 0: none. */
    uint32_t far_epoch, far_insn, far_warp, far_lane;
} sx_ptx_mbarrier;

/* A copy of the engine that is under way. */
typedef struct {
    bool busy, load;
    uint32_t insn, warp, lane;
    uint32_t shared, bytes; /* offset in shared memory */
    uint8_t swizzle;
    uint32_t barrier; /* loads: the mbarrier */
    uint32_t group;   /* stores */
    uint64_t address, tensor;
    const sx_ptx_tensor_map *map;
    int32_t at[SX_PTX_TENSOR_RANK_MAX];
    uint8_t *data; /* the box without its swizzle */
    uint32_t capacity;
} sx_ptx_bulk;

/* The bulk stores of a thread. */
typedef struct {
    uint32_t actor;
    uint32_t open;         /* number of the group that is not committed; 0: it has none yet */
    uint32_t last, waited; /* group of the last store, and the last one it waited for */
} sx_ptx_bulk_groups;

/* A product of a warpgroup that was begun and is not computed yet. */
typedef struct {
    uint32_t insn, group; /* number of the warpgroup */
    uint32_t number;      /* of the group that it is committed in */
    uint64_t a, b;        /* descriptors */
    bool adds;            /* to the accumulators */
} sx_ptx_product;

/* A byte of global memory that may be written: 1 + the block that did so, SX_PTX_MANY: several. */
#define SX_PTX_MANY UINT32_MAX
enum { SX_PTX_KNOWN = 1, SX_PTX_STORED = 2, SX_PTX_READ_CONSTANT = 4 };
typedef struct {
    uint32_t *writer, *reader, *atomic; /* by byte; NULL: read-only */
    uint8_t *mark;                      /* NULL: read-only and initialised */
    uint64_t address;
    const sx_ptx_region *of;
} sx_ptx_area;

/* A copy under way. */
typedef struct {
    uint64_t from; /* address */
    uint32_t to;   /* byte of shared memory */
    uint32_t size, source_size;
    uint32_t thread, group, insn;
    bool done;
} sx_ptx_copy;

/* ---- warps ---- */
typedef struct {
    sx_ptx_word *file; /* special registers, registers, one that nobody reads */
    uint32_t *known;   /* by register: lanes that were written */
    uint32_t pc[SX_PTX_LANES];
    /* Sets of lanes, disjoint. `meeting` wait for lanes of the warp, `waiting` at a barrier of the block, `stalled`
     * for a phase of an mbarrier, `parked` for the other warps of their warpgroup. */
    uint32_t running, meeting, waiting, stalled, parked, ended;
    uint32_t waits_for; /* the barrier of `waiting`, among those of the cluster */
    uint32_t index;     /* in the cluster */
    uint32_t block;     /* its rank there */
    /* Lanes that arrived at the barrier of the cluster: it is not open yet; it is, and they have not waited. */
    uint32_t arrived, passed;
    uint16_t met[SX_PTX_LANES]; /* bit r: has seen that block r runs */
    uint32_t woken; /* of `running`: those whose phase is over, and that do not know yet */
    uint32_t stalled_on[SX_PTX_LANES];    /* the mbarrier */
    uint32_t stalled_value[SX_PTX_LANES]; /* parity or phase */
    sx_ptx_clock clock[SX_PTX_LANES];     /* where the machine tracks */
    sx_ptx_bulk_groups bulk[SX_PTX_LANES];
    /* Where the kernel has wgmma, by register: was it written since the last fence; the group of the product under way
     * that has it; 1 + the instruction of that. */
    uint8_t *changed;
    uint16_t *lock;
    uint32_t *lock_insn;
    uint32_t registers;                    /* what setmaxnreg said last; 0: nothing */
    uint32_t product_group, product_actor; /* the group that is not committed; 1 + the actor */
    /* Order of accesses: epochs of this warp and its lanes, and the last ones of others that came before. */
    uint32_t epoch, seen[SX_PTX_CLUSTER_WARPS_MAX];
    uint32_t lane_epoch[SX_PTX_LANES], lane_seen[SX_PTX_LANES][SX_PTX_LANES];
    uint32_t group[SX_PTX_LANES]; /* of copies that is open */
} sx_ptx_warp;

#define SX_PTX_BARRIERS 16
typedef struct {
    uint32_t expected; /* threads; 0: all of the block */
    uint32_t arrived;
    bool busy;
    uint32_t arrived_warps;
    uint32_t seen[SX_PTX_CLUSTER_WARPS_MAX]; /* the latest of those that arrived */
    sx_ptx_clock clock;                      /* likewise, where the machine tracks */
} sx_ptx_barrier;

/* The barrier of the threads of a cluster. */
#define SX_PTX_ON_CLUSTER UINT32_MAX /* `stalled_on` of who waits at it */
typedef struct {
    sx_ptx_clock next, done; /* as those of an mbarrier */
} sx_ptx_cluster_barrier;

/* A block of the cluster that is executed. */
typedef struct {
    sx_ptx_dim at; /* in the grid */
    uint32_t number;
    sx_ptx_clock ended; /* what its threads that have ended had seen */
} sx_ptx_block_place;

typedef struct {
    sx_ctx *cx;
    const sx_ptx_launch *launch;
    const sx_ptx_kernel *kernel;
    sx_ptx_outcome *outcome;
    sx_rng rng;
    uint64_t instructions_left;

    sx_ptx_micro *micro;
    uint32_t *word;
    uint32_t word_count, word_capacity;
    sx_ptx_word *constant;
    uint32_t constant_count, constant_capacity;
    uint32_t class_first[SX_PTX_REGISTER_CLASSES]; /* in the file */
    uint32_t sink, file_count;

    /* Addresses of variables: by index, of the kernel and of the module. */
    uint64_t *kernel_address, *module_address;
    sx_ptx_area *area;
    uint32_t area_count, area_last;
    uint8_t *parameter;
    uint64_t parameter_bytes;
    uint64_t *parameter_offset;
    uint8_t *constants; /* bytes of .const */
    uint64_t constants_bytes;
    uint8_t *shared; /* of the blocks of the cluster, shared_stride apart */
    /* Of shared memory, one for 2^cell_shift bytes, which every access of the kernel takes wholly or not at all. */
    sx_ptx_cell *cell;
    uint32_t cell_shift;
    uint64_t shared_bytes; /* of one block */
    uint64_t shared_stride;
    uint8_t *local, *local_known; /* by thread */
    uint64_t local_bytes;         /* of one */

    /* Warps of all blocks of the cluster, block after block, block_warps of each. In a cluster that is whole
     * warpgroups: behind the threads of a block warps may follow that have none. */
    sx_ptx_warp *warp;
    uint32_t warp_count, block_warps, thread_count; /* threads of a block */
    sx_ptx_dim cluster;
    uint32_t block_count; /* of a cluster */
    sx_ptx_block_place *block;
    sx_ptx_barrier *barrier; /* SX_PTX_BARRIERS of each block */
    sx_ptx_cluster_barrier together;
    /* By thread and block: its last access of the shared memory of that other block. */
    sx_ptx_stamp *far;
    sx_ptx_copy *copy;
    uint32_t copy_count, copy_capacity;

    bool follows;        /* the path of what is executed is wanted */
    const int64_t *mark; /* affine.c */

    /* Of kernels with mbarriers, engines or wgmma. */
    bool tracks;     /* clocks by thread */
    bool multiplies; /* wgmma */
    uint32_t clock_words;
    uint32_t *clocks; /* of all lanes and barriers, for one clearing */
    size_t clocks_bytes;
    sx_ptx_actor actor[SX_PTX_ACTORS_MAX];
    uint32_t actor_count;
    sx_ptx_mbarrier mbarrier[SX_PTX_MBARRIERS_MAX];
    uint32_t mbarrier_count;
    uint32_t fruitless; /* tests of mbarriers that failed since something happened */
    sx_ptx_bulk *bulk;
    uint32_t bulk_count, bulk_capacity, bulk_busy;
    uint8_t *box; /* what a load has read */
    uint32_t box_capacity;
    sx_ptx_product *product;
    uint32_t product_count, product_capacity;
    sx_ptx_lines *lines;
} sx_ptx_machine;

/* An instruction of the lanes `active`. */
typedef struct {
    sx_ptx_machine *m;
    sx_ptx_warp *w;
    const sx_ptx_micro *u;
    uint32_t insn;
    uint32_t active;
} sx_ptx_step;

/* Where addresses of spaces begin. Those of shared and local memory are seen at a window by generic ones. */
#define SX_PTX_SHARED_FIRST 1024
/* Addresses of .shared::cluster: (rank + 1) times this, and the address in that block. */
#define SX_PTX_SHARED_OF_RANK (UINT64_C(1) << 24)
#define SX_PTX_SHARED_ALIGN 1024 /* of each block's; swizzles act on the bits below */
#define SX_PTX_LOCAL_FIRST 64
#define SX_PTX_CONST_FIRST 256
#define SX_PTX_WINDOW_SHARED UINT64_C(0x7f0000000000)
#define SX_PTX_WINDOW_LOCAL UINT64_C(0x7e0000000000)
#define SX_PTX_WINDOW_CONST UINT64_C(0x7d0000000000)
#define SX_PTX_WINDOW_PARAM UINT64_C(0x7c0000000000)
#define SX_PTX_WINDOW_BYTES UINT64_C(0x10000000000)
#define SX_PTX_GLOBAL_FIRST UINT64_C(0x10000000000)
#define SX_PTX_GLOBAL_GAP ((uint64_t)1 << 20)

/* ---- lay.c ---- */
/* The cluster of the launch. */
sx_code sx_ptx_choose_cluster(sx_ptx_machine *m);

/* ---- prepare.c ---- */
/* Instructions become micro-operations, variables get addresses. */
sx_code sx_ptx_prepare(sx_ptx_machine *m);

/* ---- affine.c ---- */
/* May blocks be compared by their paths? Marks the instructions that belong to them. */
sx_code sx_ptx_follow(sx_ptx_machine *m, bool *affine);
/* An instruction that decides is about to be executed; `lanes` stand at it, those of `active` execute it. */
void sx_ptx_note_path(const sx_ptx_step *s, uint32_t lanes);
/* Of a box that is copied, so many indices of a dimension lie before the tensor, and so many behind it. */
void sx_ptx_note_outside(sx_ptx_machine *m, uint32_t before, uint32_t behind);

/* ---- lay.c: what the launch gives ---- */
sx_code sx_ptx_lay(sx_ptx_machine *m);

/* ---- fault.c ---- */
/* Stops the kernel: "kernel k, instruction 7 (line 20) ..., block (0,0,0), thread (3,0,0): <text>". */
sx_code sx_ptx_stop(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                    sx_code code, const char *format, ...) SX_PRINTF(6, 7);
/* "instruction 7 (line 20) `add...`" */
#define SX_PTX_INSN_TEXT_MAX 200
const char *sx_ptx_insn_name(const sx_ptx_machine *m, uint32_t insn,
                             char text[SX_PTX_INSN_TEXT_MAX]);
/* The place in its block of a thread of the cluster. */
sx_ptx_dim sx_ptx_thread_of(const sx_ptx_machine *m, uint32_t number);
/* "thread (3,0,0)", or "thread (3,0,0) of block (1,0,0)" where that is another one than the warp's; NULL: always. */
#define SX_PTX_THREAD_TEXT_MAX 96
const char *sx_ptx_thread_name(const sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t number,
                               char text[SX_PTX_THREAD_TEXT_MAX]);
/* "shared memory", or "the shared memory of block (1,0,0)" where the byte lies in another block than the warp. */
#define SX_PTX_SHARED_TEXT_MAX 80
const char *sx_ptx_shared_name(const sx_ptx_machine *m, const sx_ptx_warp *w, uint64_t offset,
                               char text[SX_PTX_SHARED_TEXT_MAX]);
/* An offset in the shared memory of the cluster as one in that of its block. */
uint32_t sx_ptx_byte_of(const sx_ptx_machine *m, uint64_t offset);
/* The first byte of the shared memory of the block with this rank. */
uint64_t sx_ptx_shared_base(const sx_ptx_machine *m, uint32_t rank);

/* ---- access.c ---- */
typedef enum { SX_PTX_IS_LOAD, SX_PTX_IS_STORE, SX_PTX_IS_ATOMIC } sx_ptx_access;
typedef struct {
    uint16_t space; /* never generic */
    uint8_t *bytes; /* where it lies */
    /* In the shared memory of the cluster, local memory of the thread, or the area. */
    uint64_t offset;
    sx_ptx_area *area;
} sx_ptx_spot;
/* Where an address points to; faults if not wholly within, or misaligned. */
sx_code sx_ptx_locate(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                      uint16_t space, uint64_t address, uint32_t size, sx_ptx_access access,
                      sx_ptx_spot *place);
/* May the thread access it now? Notes that it did. */
sx_code sx_ptx_touch(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                     const sx_ptx_spot *place, uint32_t size, sx_ptx_access access);

/* The same for bytes that need no alignment. */
sx_code sx_ptx_locate_run(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                          uint16_t space, uint64_t address, uint32_t size, sx_ptx_access access,
                          sx_ptx_spot *place);

/* ---- race.c: shared memory ---- */
/* Has the thread seen the access? */
bool sx_ptx_comes_before(const sx_ptx_machine *m, const sx_ptx_stamp *stamp, const sx_ptx_warp *w,
                         uint32_t lane);
sx_ptx_stamp sx_ptx_stamp_of(const sx_ptx_warp *w, uint32_t lane, uint32_t insn, bool strong);
/* An engine writes the bytes of a cell for the lane, `offset` is the first: all earlier accesses must come before. The
 * caller puts the stamp. */
sx_code sx_ptx_engine_writes(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                             uint64_t offset);
/* An engine reads the bytes of a cell for the lane, which must have seen what was written; `stamp` notes it, NULL: does
 * not. */
sx_code sx_ptx_engine_reads(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                            uint64_t offset, const sx_ptx_stamp *stamp);
void sx_ptx_note_read(const sx_ptx_machine *m, sx_ptx_cell *cell, const sx_ptx_stamp *stamp,
                      const sx_ptx_warp *w, uint32_t lane);
sx_code sx_ptx_touch_shared(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                            uint64_t offset, uint32_t size, sx_ptx_access access, bool strong);
/* The same for all lanes of `lanes`, one by one, where the bytes at offset[lane] lie in shared memory. */
sx_code sx_ptx_touch_lanes(const sx_ptx_step *s, const uint64_t offset[SX_PTX_LANES], uint32_t size,
                           sx_ptx_access access);
/* A copy into these bytes begins. */
void sx_ptx_in_flight(sx_ptx_machine *m, uint32_t thread, uint64_t offset, uint32_t size);
/* A copy ended: from now on the thread has written these bytes. */
void sx_ptx_landed(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                   uint64_t offset, uint32_t size);
void sx_ptx_order_lanes(const sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lanes);
void sx_ptx_order_arrive(const sx_ptx_machine *m, sx_ptx_warp *w, sx_ptx_barrier *barrier);
void sx_ptx_order_leave(const sx_ptx_machine *m, sx_ptx_warp *w, const sx_ptx_barrier *barrier);

/* ---- clock.c: by thread ---- */
sx_code sx_ptx_clock_make(sx_ptx_machine *m, sx_ptx_clock *clock);
void sx_ptx_clock_clear(const sx_ptx_machine *m, sx_ptx_clock *clock);
void sx_ptx_clock_join(const sx_ptx_machine *m, sx_ptx_clock *to, const sx_ptx_clock *from);
/* The lane hands on what it has seen, and begins a new epoch; takes what others handed on. */
void sx_ptx_release(const sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lane, sx_ptx_clock *to);
void sx_ptx_acquire(const sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lane,
                    const sx_ptx_clock *from);
void sx_ptx_fence_proxy(const sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lane);
void sx_ptx_clock_order_lanes(const sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lanes);
bool sx_ptx_clock_holds(const sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane,
                        const sx_ptx_stamp *stamp);
bool sx_ptx_clock_includes(const sx_ptx_machine *m, const sx_ptx_clock *clock,
                           const sx_ptx_stamp *stamp);
/* May an engine that the lane starts see this access of a thread? */
bool sx_ptx_is_fenced(const sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane,
                      const sx_ptx_stamp *stamp);
sx_code sx_ptx_actor_make(sx_ptx_machine *m, sx_ptx_actor_kind kind, uint32_t of, uint32_t *actor);
uint32_t sx_ptx_actor_word(const sx_ptx_machine *m, uint32_t actor);
sx_ptx_stamp sx_ptx_actor_stamp(const sx_ptx_machine *m, uint32_t actor, uint32_t epoch,
                                uint32_t insn);

/* ---- memory.c, copy.c, together.c, barrier.c ---- */
sx_ptx_word *sx_ptx_result(const sx_ptx_step *s, uint32_t index);
const sx_ptx_word *sx_ptx_operand_word(const sx_ptx_step *s, uint32_t index);
uint64_t sx_ptx_address(const sx_ptx_step *s, uint32_t nth, uint32_t lane);
/* Passes of a warp that accesses these bytes of shared memory by `size` each. */
void sx_ptx_count_passes(sx_ptx_machine *m, const uint64_t *offset, uint32_t lanes, uint32_t size);

sx_code sx_ptx_run_memory(const sx_ptx_step *s);      /* LD ST PREFETCH CVTA */
sx_code sx_ptx_run_atomic(const sx_ptx_step *s);      /* ATOM */
sx_code sx_ptx_run_copy(const sx_ptx_step *s);        /* CP_ASYNC CP_COMMIT CP_WAIT */
sx_code sx_ptx_run_together(const sx_ptx_step *s);    /* SHFL VOTE REDUX ACTIVEMASK BAR_WARP */
sx_code sx_ptx_run_matrix(const sx_ptx_step *s);      /* LDMATRIX STMATRIX */
sx_code sx_ptx_run_mbarrier(const sx_ptx_step *s);    /* MBARRIER FENCE_MBARRIER FENCE_PROXY */
sx_code sx_ptx_run_bulk(const sx_ptx_step *s);        /* BULK BULK_GROUP PREFETCH_MAP */
sx_code sx_ptx_run_wgmma_group(const sx_ptx_step *s); /* WGMMA_GROUP */
/* The warp waits for the others of its warpgroup; the last of them begins the product. */
sx_code sx_ptx_run_wgmma(const sx_ptx_step *s);
/* The mbarrier at this byte of the shared memory of the cluster, whose initialisation the lane has seen. */
sx_code sx_ptx_mbarrier_at(const sx_ptx_step *s, uint32_t lane, uint64_t offset,
                           sx_ptx_mbarrier **found);
/* That at the nth address of the instruction; and the byte alone. */
sx_code sx_ptx_mbarrier_find(const sx_ptx_step *s, uint32_t lane, uint32_t nth,
                             sx_ptx_mbarrier **found);
sx_code sx_ptx_mbarrier_locate(const sx_ptx_step *s, uint32_t lane, uint32_t nth, uint64_t *offset);
/* More bytes are expected, or, below 0, have come. */
sx_code sx_ptx_mbarrier_bytes(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                              sx_ptx_mbarrier *b, int64_t bytes);
/* One of the loads under way arrives; `landed` false: there is none. */
sx_code sx_ptx_bulk_land_one(sx_ptx_machine *m, bool *landed);
/* Threads end: is anything of theirs under way? */
sx_code sx_ptx_bulk_check_end(const sx_ptx_step *s);
sx_code sx_ptx_wgmma_check_end(const sx_ptx_step *s);
/* Does the instruction touch registers of a product under way? */
sx_code sx_ptx_check_unlocked(const sx_ptx_step *s);
/* The address under a swizzle of `width` bytes; 0: none. */
uint32_t sx_ptx_swizzled(uint32_t width, uint32_t address);

/* The lanes that must execute it together with this one. */
sx_code sx_ptx_members(const sx_ptx_step *s, uint32_t lane, uint32_t *members);

/* All threads of the warp that have not ended have arrived; opens the barrier if they were the last. */
sx_code sx_ptx_run_barrier(const sx_ptx_step *s);
/* Threads have ended: opens the barriers that waited for them. */
void sx_ptx_reopen(sx_ptx_machine *m);
sx_code sx_ptx_deadlock(sx_ptx_machine *m);

/* ---- cluster.c ---- */
/* A cluster begins whose first block is here. */
void sx_ptx_cluster_begin(sx_ptx_machine *m, sx_ptx_dim first);
/* The registers that tell a warp where its block is in cluster and grid. */
void sx_ptx_fill(sx_ptx_warp *w, sx_ptx_special special, uint32_t value);
void sx_ptx_cluster_fill(const sx_ptx_machine *m, sx_ptx_warp *w);
/* The lane accesses the shared memory of block `rank`, another one than its own: has that begun? Notes it. */
sx_code sx_ptx_cluster_access(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                              uint32_t rank);
sx_code sx_ptx_run_cluster(const sx_ptx_step *s); /* MAPA CLUSTER_BARRIER */
/* Lanes end: their block is gone once all have; who waits for them at the barrier of the cluster goes on. */
void sx_ptx_cluster_leave(sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lanes);
/* A lane waits at the barrier of the cluster for ever. */
sx_code sx_ptx_cluster_deadlock(sx_ptx_machine *m, const sx_ptx_warp *w);
/* All blocks have ended: did each still have its shared memory when others accessed it? */
sx_code sx_ptx_cluster_end(sx_ptx_machine *m);

/* ---- warp.c ---- */
/* Executes up to `steps` instructions of the warp, until it waits. */
sx_code sx_ptx_warp_go(sx_ptx_machine *m, sx_ptx_warp *w, uint32_t steps);
#endif
