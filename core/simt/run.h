/* run.h - executes a kernel of stored PTX without a GPU, and says what is wrong with it.
 *
 * Warps of 32 threads are executed one instruction at a time, each thread at its own place in the program.
 * Clusters of blocks are executed one after the other, the blocks of one at the same time; a block without a
 * cluster is one by itself. The seed chooses the order of blocks and warps, and which of the
 * threads of a warp that stand at different places go on; a right kernel gives the same result for every
 * seed. What the hardware does by itself (cp.async, bulk and tensor copies, wgmma) ends at once, or as late as
 * the program allows.
 *
 * A kernel is stopped at the first of: an address outside of what it was given, or misaligned; a store to
 * what is read-only; a value that nobody wrote, in a register, shared, local or global memory; two threads of
 * a block at the same byte of shared memory, one writing, that no barrier orders; the same between blocks and
 * global memory, unless both are atomic; shared memory used while a copy into it is under way; threads that
 * must execute an instruction together and cannot; a deadlock; an mbarrier that is not initialised, has too many
 * arrivals or passes a phase that somebody waits for; shared memory that an engine (bulk copies, wgmma) reads or
 * writes with neither proxy fence nor barrier behind the threads; registers of a wgmma under way; threads that end
 * before their bulk copies; shared memory of another block of the cluster that is accessed before that block is known
 * to run, or when it may have ended. The fault names the instruction, the block and the thread.
 *
 * Not modelled: clusters that wait for other clusters, blocks of a cluster that exchange data through global memory
 * (refused as a race), and that fences and atomics order the
 * accesses of different threads (a kernel that relies on it is refused as a race). Of more than two threads
 * that read a byte at once without an order among them, a race detector of two readings remembers two.
 *
 * Source: "PTX ISA", version 9.0, chapters 8 (memory) and 9 (instructions). The races are found by the epochs
 * of Flanagan, Freund 2009 (FastTrack).
 */
#ifndef SX_CORE_SIMT_RUN_H
#define SX_CORE_SIMT_RUN_H
#include "core/ptx/ptx.h"

/* Global memory: a buffer of the caller. Kernels see it at an address of its own, far from all others. */
typedef struct {
    const char *name; /* for people */
    uint8_t *bytes;   /* borrowed; stores go here */
    uint64_t size;
    bool writable;
    bool initialised; /* else it holds no values before the kernel stores them */
    /* No account is kept of which block accesses its bytes: races between blocks are not seen. For those who
     * know that there are none, and run few blocks on large buffers. Then it must be initialised. */
    bool unwatched;
    uint8_t *touched; /* NULL, or `size` bytes that become 1 where the kernel stores */
} sx_ptx_region;

/* What the driver encodes in the 128 bytes of a tensor map (CUtensorMap). Dimensions from the innermost outwards. */
#define SX_PTX_TENSOR_RANK_MAX 5
typedef struct {
    uint32_t region; /* 1 + its index */
    uint64_t offset; /* bytes behind its begin; 16 divides the address */
    uint8_t rank, element_bytes;
    uint64_t dims[SX_PTX_TENSOR_RANK_MAX]; /* elements */
    /* Bytes; the first one is not read: elements lie densely. */
    uint64_t strides[SX_PTX_TENSOR_RANK_MAX];
    uint32_t box[SX_PTX_TENSOR_RANK_MAX]; /* elements, 1 to 256 */
    uint8_t swizzle_bytes;                /* 0, 32, 64 or 128 */
    bool nan_fill;     /* what lies outside of the tensor arrives as `nan_bits`, else as zero */
    uint64_t nan_bits; /* of an element */
} sx_ptx_tensor_map;

/* The value of a parameter: a tensor map, the address of a region, or bytes. */
typedef struct {
    const sx_ptx_tensor_map *map; /* of a parameter of 128 bytes; NULL: none */
    sx_span value;                /* where `region` is 0 */
    uint32_t region;              /* 1 + its index */
    uint64_t offset;              /* bytes behind its begin */
} sx_ptx_argument;

typedef struct {
    uint32_t x, y, z;
} sx_ptx_dim;

typedef struct {
    const sx_ptx_module *module;
    const char *kernel;
    sx_ptx_dim grid, block;
    /* Blocks of a cluster along each dimension, which must divide the grid; all 0: what the kernel requires, else one
     * block. */
    sx_ptx_dim cluster;
    /* Only these blocks of the grid are run, counted with x fastest, then y. A count of 0: all from the first on. With
     * clusters of several blocks: counted cluster by cluster, and whole ones. */
    uint64_t first_block, block_count;
    uint64_t dynamic_shared_bytes;
    sx_ptx_region *region;
    uint32_t region_count;
    const sx_ptx_argument *argument;
    uint32_t argument_count;
    uint64_t seed; /* 0: in the order of their numbers */
    bool lazy;     /* asynchronous copies end as late as allowed */
    /* Limits of the device, 0 for those of compute capability 8.0: 166912 bytes (163 KiB), 1024 threads. */
    uint64_t shared_bytes_max;
    uint32_t threads_max;
    uint64_t instructions_max; /* of all threads; 0: no limit but the fuel of the context */
    /* `path` and `affine` of the outcome are wanted; without a seed. */
    bool follow;
    /* Blocks that all lie along x and find the indices of a point in their number, the last one fastest: how many there
     * are along each dimension. Then what is said of the index of a block is meant of those of its point. All 0: no. */
    int64_t points[3];
} sx_ptx_launch;

/* Where a kernel was stopped. */
typedef struct {
    bool found;
    uint32_t insn; /* of the kernel */
    uint32_t line; /* of the text, 0: none */
    sx_ptx_dim block, thread;
} sx_ptx_fault;

typedef struct {
    uint64_t thread_insns, warp_insns; /* executed */
    uint64_t op[SX_PTX_OP_COUNT];      /* warp instructions by row */
    uint64_t divergent;                /* branches that part the threads of a warp */
    uint64_t global_read_bytes, global_written_bytes;
    uint64_t global_sectors; /* of 32 bytes, each counted once in an instruction of a warp */
    /* Passes through the 32 banks, and what they would be without conflicts. */
    uint64_t shared_passes, shared_passes_least;
    uint64_t barriers;         /* completed */
    uint64_t register_changes; /* setmaxnreg, by warp */
    /* Of wgmma, each counted as the products of a warp (16 rows, 8 columns) that it is. */
    uint64_t group_products;
    uint64_t shared_bytes;
} sx_ptx_statistics;

typedef struct {
    sx_ptx_fault fault;
    sx_ptx_statistics statistics;
    /* What decides which instructions the blocks that were run have executed, hashed: guards, and comparisons with the
     * index of a block. */
    uint64_t path;
    /* The blocks of the kernel differ by addresses, which are affine in the index of the block, and by their paths; no
     * data decides either. If all corners of a box of blocks have one path, all its blocks have it (affine.c). */
    bool affine;
} sx_ptx_outcome;

/* Executes the kernel; `module` has passed its check.
 *   fuel     one for each instruction of a warp
 *   errors   SX_ABSENT no such kernel; SX_INPUT arguments, grid or block do not fit the kernel;
 *            SX_LIMIT shared memory or threads of a block exceed the device; SX_UNIMPLEMENTED an
 *            instruction or space that is not interpreted; SX_MISMATCH the kernel has a fault, which
 *            `outcome` locates; SX_QUOTA it does not end within its instructions */
sx_code sx_ptx_run(sx_ctx *cx, const sx_ptx_launch *launch, sx_ptx_outcome *outcome);
#endif
