/* machine.h - the inside of the interpreter: prepared instructions, warps, memory and what is known of it. */
#ifndef SX_CORE_SIMT_MACHINE_H
#define SX_CORE_SIMT_MACHINE_H
#include "core/base/rng.h"
#include "core/simt/alu.h"
#include "core/simt/run.h"

#define SX_PTX_WARPS_MAX 32
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
    uint32_t address[3];  /* memory: words of its bases */
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
} sx_ptx_cell;

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
    uint32_t running, meeting, waiting, ended; /* sets of lanes, disjoint */
    uint32_t waits_for;                        /* the barrier of `waiting` */
    uint32_t index;
    /* Order of accesses: epochs of this warp and its lanes, and the last ones of others that came before. */
    uint32_t epoch, seen[SX_PTX_WARPS_MAX];
    uint32_t lane_epoch[SX_PTX_LANES], lane_seen[SX_PTX_LANES][SX_PTX_LANES];
    uint32_t group[SX_PTX_LANES]; /* of copies that is open */
} sx_ptx_warp;

#define SX_PTX_BARRIERS 16
typedef struct {
    uint32_t expected; /* threads; 0: all of the block */
    uint32_t arrived;
    bool busy;
    uint32_t arrived_warps;
    uint32_t seen[SX_PTX_WARPS_MAX]; /* the latest of those that arrived */
} sx_ptx_barrier;

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
    uint8_t *shared;
    sx_ptx_cell *cell; /* by byte of shared memory */
    uint64_t shared_bytes;
    uint8_t *local, *local_known; /* by thread */
    uint64_t local_bytes;         /* of one */

    sx_ptx_warp *warp;
    uint32_t warp_count, thread_count;
    sx_ptx_dim block;
    uint32_t block_number;
    sx_ptx_barrier barrier[SX_PTX_BARRIERS];
    sx_ptx_copy *copy;
    uint32_t copy_count, copy_capacity;
} sx_ptx_machine;

/* Where addresses of spaces begin. Those of shared and local memory are seen at a window by generic ones. */
#define SX_PTX_SHARED_FIRST 1024
#define SX_PTX_LOCAL_FIRST 64
#define SX_PTX_CONST_FIRST 256
#define SX_PTX_WINDOW_SHARED UINT64_C(0x7f0000000000)
#define SX_PTX_WINDOW_LOCAL UINT64_C(0x7e0000000000)
#define SX_PTX_WINDOW_CONST UINT64_C(0x7d0000000000)
#define SX_PTX_WINDOW_PARAM UINT64_C(0x7c0000000000)
#define SX_PTX_WINDOW_BYTES UINT64_C(0x10000000000)
#define SX_PTX_GLOBAL_FIRST UINT64_C(0x10000000000)
#define SX_PTX_GLOBAL_GAP ((uint64_t)1 << 20)

/* ---- prepare.c ---- */
/* Instructions become micro-operations, variables get addresses. */
sx_code sx_ptx_prepare(sx_ptx_machine *m);

/* ---- lay.c: what the launch gives ---- */
sx_code sx_ptx_lay(sx_ptx_machine *m);

/* ---- fault.c ---- */
/* Stops the kernel: "kernel k, instruction 7 (line 20) ..., block (0,0,0), thread (3,0,0): <text>". */
sx_code sx_ptx_stop(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                    sx_code code, const char *format, ...) SX_PRINTF(6, 7);
/* "instruction 7 (line 20) `add...`" */
#define SX_PTX_INSN_TEXT_MAX 320
const char *sx_ptx_insn_name(const sx_ptx_machine *m, uint32_t insn,
                             char text[SX_PTX_INSN_TEXT_MAX]);
sx_ptx_dim sx_ptx_thread_of(const sx_ptx_machine *m, uint32_t number);

/* ---- access.c ---- */
typedef enum { SX_PTX_IS_LOAD, SX_PTX_IS_STORE, SX_PTX_IS_ATOMIC } sx_ptx_access;
typedef struct {
    uint16_t space;  /* never generic */
    uint8_t *bytes;  /* where it lies */
    uint64_t offset; /* in shared memory, local memory of the thread, or the area */
    sx_ptx_area *area;
} sx_ptx_spot;
/* Where an address points to; faults if not wholly within, or misaligned. */
sx_code sx_ptx_locate(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                      uint16_t space, uint64_t address, uint32_t size, sx_ptx_access access,
                      sx_ptx_spot *place);
/* May the thread access it now? Notes that it did. */
sx_code sx_ptx_touch(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                     const sx_ptx_spot *place, uint32_t size, sx_ptx_access access);

/* ---- race.c: shared memory ---- */
sx_code sx_ptx_touch_shared(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                            uint64_t offset, uint32_t size, sx_ptx_access access, bool strong);
/* A copy ended: from now on the thread has written these bytes. */
void sx_ptx_landed(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                   uint64_t offset, uint32_t size);
void sx_ptx_order_lanes(sx_ptx_warp *w, uint32_t lanes);
void sx_ptx_order_arrive(sx_ptx_warp *w, sx_ptx_barrier *barrier);
void sx_ptx_order_leave(sx_ptx_warp *w, const sx_ptx_barrier *barrier);

/* ---- memory.c, copy.c, together.c, barrier.c: instructions of the lanes `active` ---- */
typedef struct {
    sx_ptx_machine *m;
    sx_ptx_warp *w;
    const sx_ptx_micro *u;
    uint32_t insn;
    uint32_t active;
} sx_ptx_step;
sx_ptx_word *sx_ptx_result(const sx_ptx_step *s, uint32_t index);
const sx_ptx_word *sx_ptx_operand_word(const sx_ptx_step *s, uint32_t index);
uint64_t sx_ptx_address(const sx_ptx_step *s, uint32_t nth, uint32_t lane);
/* Passes of a warp that accesses these bytes of shared memory by `size` each. */
void sx_ptx_count_passes(sx_ptx_machine *m, const uint64_t *offset, uint32_t lanes, uint32_t size);

sx_code sx_ptx_run_memory(const sx_ptx_step *s);   /* LD ST PREFETCH CVTA */
sx_code sx_ptx_run_atomic(const sx_ptx_step *s);   /* ATOM */
sx_code sx_ptx_run_copy(const sx_ptx_step *s);     /* CP_ASYNC CP_COMMIT CP_WAIT */
sx_code sx_ptx_run_together(const sx_ptx_step *s); /* SHFL VOTE REDUX ACTIVEMASK BAR_WARP */
sx_code sx_ptx_run_matrix(const sx_ptx_step *s);   /* LDMATRIX STMATRIX */
/* The lanes that must execute it together with this one. */
sx_code sx_ptx_members(const sx_ptx_step *s, uint32_t lane, uint32_t *members);

/* All threads of the warp that have not ended have arrived; opens the barrier if they were the last. */
sx_code sx_ptx_run_barrier(const sx_ptx_step *s);
/* Threads have ended: opens the barriers that waited for them. */
void sx_ptx_reopen(sx_ptx_machine *m);
sx_code sx_ptx_deadlock(sx_ptx_machine *m);

/* ---- warp.c ---- */
/* Executes up to `steps` instructions of the warp, until it waits. */
sx_code sx_ptx_warp_go(sx_ptx_machine *m, sx_ptx_warp *w, uint32_t steps);
#endif
