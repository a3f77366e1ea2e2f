/* target.h - a machine as a struct: what it can compute with, and the functions that make code for it, check
 * the bytes and run them elsewhere.
 *
 * Everything outside the folder of a machine (core/x64) goes through this struct. A new machine is a folder
 * with one constant of this type, a row in targets.def, and its name in protocol/arch.def; no switch anywhere
 * names it. What a machine costs is not here: a device of core/cost names the target whose code it runs, and
 * several devices may name one.
 *
 * The way of a kernel: an analysis and a schedule become a program of the loop IR (lower), the judge proves
 * it, the program becomes bytes (emit), the bytes are checked before anything may execute them (check), and
 * where the machine is not at hand they are emulated.
 */
#ifndef SX_CORE_TARGET_TARGET_H
#define SX_CORE_TARGET_TARGET_H
#include "core/loop/loop.h"
#include "core/target/assembler.h"
#include "core/target/machine.h"

typedef struct sx_target sx_target;

/* ---- what is emitted ---- */
typedef struct {
    /* Where the function of each part begins in the blob. */
    uint32_t entry[SX_PARTS_MAX];
    uint32_t entry_count;
    /* How each entry is launched: as a block program, or not. */
    sx_machine_block block[SX_PARTS_MAX];
    /* What the copy engine reads at each entry. */
    sx_machine_maps maps[SX_PARTS_MAX];
    /* How many vectors and masks live on the stack. */
    uint32_t spill_count;
} sx_target_code;

/* ---- what is the same for several extents ---- */
/* The code of a part apart from its numbers, and these, in the order in which they stand. Parts with equal texts are
 * the same code, which is given other numbers. Both lie in the arena of whoever asks. */
typedef struct {
    sx_span text;
    const int64_t *number;
    const bool *offset; /* of each number: it is added to an address (SX_COMES_CODE_OFFSET) */
    uint32_t count;
} sx_target_shape;

/* ---- what is assembled ---- */
/* The code of a kernel as text, its entries with the blocks that they are launched with, and who assembles it. */
typedef struct {
    sx_span blob;
    const uint32_t *entry;
    const sx_machine_block *block;
    uint32_t entry_count;
    /* The device (core/cost) whose limits count. */
    const struct sx_device *device;
    const sx_assembler *assembler;
} sx_assembling;

/* ---- what is emulated ---- */
typedef struct sx_emulator sx_emulator; /* of the target that made it */

/* Memory that emulated code may reach. */
typedef struct {
    /* What errors call it, for instance "buffer 2". */
    const char *name;
    /* `size` bytes, fewer than 2^47. */
    uint8_t *memory;
    uint64_t size;
    bool writable;
    /* NULL, or `size` bytes that become 1 where code stores. */
    uint8_t *touched;
} sx_region;
#define SX_REGIONS_MAX 80

/* How points were run, where the target can say (core/simt/run.h): hashed, what decided which instructions were
 * executed; and whether all points of a box of the grid have one path if its corners do, and addresses that are the
 * same affine functions of the indices. */
typedef struct {
    uint64_t path;
    bool affine;
    /* Points that run together, of which none runs alone: so many along each index of the grid, all 0 or 1: each by
     * itself. */
    uint32_t cluster[3];
} sx_emulated_path;

/* What is run: `count` points of the grid of a part, counted with the last index fastest, from `first` on. Where blocks
 * walk over them, `count` blocks from `first` on of a launch of `walkers` blocks, at most one for each point: with one
 * for each, block n is point n alone. Where blocks walk in clusters, the launch has as many more as fill the last one,
 * and of a cluster that one is asked for all run. */
typedef struct {
    uint32_t entry;
    int64_t grid[3];
    int64_t first, count;
    const sx_region *buffer;
    uint32_t buffer_count;
    const sx_region *workspace; /* NULL: none */
    /* Of a block program: the threads that work at each point, and what its launch asks for. 0 and 0: none. */
    uint32_t threads, shared_bytes;
    uint32_t walkers;            /* 0: each point is a block */
    const sx_machine_maps *maps; /* of a block program; NULL: none */
    sx_emulated_path *path;      /* NULL: not wanted */
    /* What the code finds behind the index of a point. */
    const int64_t *number;
    uint32_t number_count;
} sx_emulation;
#define SX_EMULATION_NUMBERS_MAX 61u
/* The indices of a point. */
static inline void sx_emulation_index(const sx_emulation *what, int64_t point, int64_t index[3])
{
    index[0] = point / (what->grid[1] * what->grid[2]);
    index[1] = point / what->grid[2] % what->grid[1];
    index[2] = point % what->grid[2];
}

struct sx_target {
    const sx_machine *machine; /* its name, its place among others, and the check of its code */
    /* Its vector instructions; their numerics class is in here. */
    sx_vector_unit vectors;
    /* Its instructions that multiply small matrices. */
    const sx_matrix_instruction *matrix;
    uint32_t matrix_count;
    /* So many behind them round what they multiply (tf32): for devices that allow it (sx_device_allows_tf32). */
    uint32_t rounding_count;
    /* Types of elements that kernels read and write, and that instructions compute with: sets of 1 << sx_dtype. */
    uint32_t memory_types;
    uint32_t lane_types;
    /* Where arguments may be staged, a set of 1 << sx_space. */
    uint32_t spaces;
    /* What the levels of a schedule may be bound to, a set of 1 << sx_bind. */
    uint32_t bindings;

    /* A program of the loop IR under this schedule; callers use sx_target_lower. Machines whose kernels are
     * programs of one thread's vectors take sx_loop_lower.
     *   errors   SX_UNIMPLEMENTED the kernel or the form of the schedule; SX_LIMIT it needs more registers */
    sx_code (*lower)(sx_ctx *cx, const sx_target *target, const sx_lowering *what,
                     sx_kernel **kernel);
    /* Appends the code of a checked program to the blob; on failure the blob is as long as before. `spills`:
     * registers may live on the stack, for a kernel of which no candidate fits.
     *   errors   SX_LIMIT more registers than there are: the search takes the next candidate */
    sx_code (*emit)(sx_ctx *cx, const sx_target *target, const sx_kernel *kernel, bool spills,
                    sx_buf *blob, sx_target_code *code);
    /* NULL: the program of a part says what may come at run time (sx_comes). Else its code does: which part is the same
     * one for other extents, with other numbers. `emit` then takes those that are of its code.
     *   errors   those of `emit` */
    sx_code (*shape)(sx_ctx *cx, const sx_target *target, const sx_kernel *kernel, uint32_t part,
                     sx_target_shape *shape);
    /* NULL: the code is machine code already. Else makes machine code, in cx's arena, of the text of a kernel that
     * this target emitted, and the record of each entry.
     *   errors   SX_LIMIT it spills, uses local memory, or cannot be launched on the device, with the numbers: the
     *            search takes the next candidate; those of the assembler */
    sx_code (*assemble)(sx_ctx *cx, const sx_assembling *what, sx_span *code,
                        sx_target_record *record);
    /* For code that has passed the check with these entries; the emulator lies in cx's arena. */
    sx_code (*emulator_make)(sx_ctx *cx, const sx_target *target, sx_span blob,
                             const uint32_t *entry, uint32_t entry_count, sx_emulator **emulator);
    /* Runs an entry at points of its grid, with the bits of the machine.
     *   errors   SX_INPUT the code does what it may not; SX_QUOTA, SX_CANCELLED */
    sx_code (*emulate)(sx_ctx *cx, sx_emulator *emulator, const sx_emulation *what);
    /* Instructions that this emulator has run so far. */
    uint64_t (*emulated)(const sx_emulator *emulator);
    /* The code of one part as text that the machine's assembler reads; data behind the last instruction too. */
    void (*print)(const sx_target *target, sx_span code, const char *symbol, sx_buf *text);
};

/* ---- the table ---- */
#define SX_TARGET(row) extern const sx_target sx_target_##row;
#include "core/target/targets.def"
#undef SX_TARGET

/* The targets that a compilation knows. */
typedef struct sx_targets {
    const sx_target *const *row;
    uint32_t count;
} sx_targets;
/* Those of targets.def. */
const sx_targets *sx_targets_all(void);
/* NULL: none of this name. `targets` NULL: those of targets.def. */
const sx_target *sx_target_find(const sx_targets *targets, const char *name);
/* The one that makes code for this machine; NULL: none. */
const sx_target *sx_target_of(const sx_targets *targets, const sx_machine *machine);

/* ---- lowering for a machine ---- */
/* Lowers what this machine can take.
 *   errors   SX_UNIMPLEMENTED an element type, a binding or a place of staging that the machine lacks, by
 *            name; SX_INPUT a schedule of another number of lanes; and those of target->lower */
sx_code sx_target_lower(sx_ctx *cx, const sx_target *target, const sx_lowering *what,
                        sx_kernel **kernel);
#endif
