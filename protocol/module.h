/* module.h - the .sxm file: a compiled program as tables, code and data (docs/MODULE.md).
 *
 * Layout, little endian, every offset from the start of the file:
 *   header   64 bytes: sx_module_header
 *   sections section_count rows sx_module_section, then the payloads in file order, each aligned to 64 (CODE to 4096)
 * A table section is an array of one record type below; text lives in STRINGS and is named by sx_module_text.
 * Payloads stand in the order of their sections, and bytes between them are zero, so that equal tables give
 * equal bytes. The loader points into the bytes it is given (no copies) after it has checked every offset,
 * count, index, alignment and checksum, so a caller may follow any index of a loaded module without looking.
 *
 * A module has one or more *variants*: lists of launches, each with guards that say for which values of the
 * symbolic extents and for which machines it serves. Inputs, weights, outputs, constants and state belong to
 * all variants, temporary tensors to one; persistent tensors to one, or to all that make them in the same way.
 *
 * A seal may follow the file; it is no part of it (file_size does not count it), so two files are the same
 * module where the bytes before are.
 *
 * A module without kernels is the answer to `optimize`: the programs, the report, and the certificate
 * (core/proof/certificate.h) in PROOF.
 */
#ifndef SX_PROTOCOL_MODULE_H
#define SX_PROTOCOL_MODULE_H
#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/hash.h"
#include "protocol/arch.h"

#define SX_MODULE_MAGIC "SXMODULE"
#define SX_MODULE_VERSION 12u
#define SX_MODULE_BYTES_MAX ((uint64_t)64 << 30)
/* Version of the numerics contract: kernels of one version and one numerics id give equal bits. */
#define SX_NUMERICS_VERSION 1u
#define SX_MODULE_NONE UINT32_MAX                /* an index that names nothing */
#define SX_MODULE_ARGS_MAX 65u                   /* of one launch */
#define SX_MODULE_LOOPS_MAX 8u                   /* loops, whiles and branches inside each other */
#define SX_MODULE_ROUNDS_MAX (UINT64_C(1) << 31) /* of a while */
#define SX_MODULE_TRUTH 10u                      /* bool in core/ir/dtypes.def */
/* Of a block of threads on a GPU: what the largest that there is may have. A machine may have less. */
#define SX_MODULE_LANES 32u
#define SX_MODULE_THREADS_MAX 1024u
#define SX_MODULE_SHARED_BYTES_MAX (227u << 10)

typedef struct {
    uint8_t magic[8];
    uint32_t version;
    uint32_t section_count;
    uint64_t file_size;
    uint64_t digest[2]; /* XXH3-128 of the section table */
    uint8_t zero[24];
} sx_module_header;

/* SX_SECTION(ENUMERATOR, name in listings, record type, field of sx_module, alignment) */
#define SX_MODULE_SECTIONS(SX_SECTION)                                 \
    SX_SECTION(INFO, "info", sx_module_info, info, 64)                 \
    SX_SECTION(STRINGS, "strings", char, strings, 64)                  \
    SX_SECTION(SYMBOLS, "symbols", sx_module_symbol, symbol, 64)       \
    SX_SECTION(TENSORS, "tensors", sx_module_tensor, tensor, 64)       \
    SX_SECTION(KERNELS, "kernels", sx_module_kernel, kernel, 64)       \
    SX_SECTION(PARTS, "parts", sx_module_part, part, 64)               \
    SX_SECTION(LAUNCHES, "launches", sx_module_launch, launch, 64)     \
    SX_SECTION(ARGS, "args", uint32_t, arg, 64)                        \
    SX_SECTION(STAGES, "stages", sx_module_stage, stage, 64)           \
    SX_SECTION(REWRITES, "rewrites", sx_module_rewrite, rewrite, 64)   \
    SX_SECTION(CHECKS, "checks", sx_module_check, check, 64)           \
    SX_SECTION(SEARCH, "search", sx_module_search, search, 64)         \
    SX_SECTION(RULES, "rules", sx_module_rule, rule, 64)               \
    SX_SECTION(PROOF, "proof", char, proof, 64)                        \
    SX_SECTION(PROGRAM, "program", char, program, 64)                  \
    SX_SECTION(OPTIMIZED, "optimized", char, optimized, 64)            \
    SX_SECTION(CODE, "code", uint8_t, code, 4096)                      \
    SX_SECTION(CONSTANTS, "constants", uint8_t, constants, 64)         \
    SX_SECTION(WEIGHTS, "weights", uint8_t, weights, 64)               \
    SX_SECTION(POINTS, "points", sx_module_point, point, 64)           \
    SX_SECTION(SHARDING, "sharding", sx_module_sharding, sharding, 64) \
    SX_SECTION(STEPS, "steps", sx_module_step, step, 64)               \
    SX_SECTION(RANGES, "ranges", sx_module_range, range, 64)           \
    SX_SECTION(VARIANTS, "variants", sx_module_variant, variant, 64)   \
    SX_SECTION(GUARDS, "guards", sx_module_guard, guard, 64)           \
    SX_SECTION(EXTENTS, "extents", sx_module_extent, extent, 64)       \
    SX_SECTION(CUBINS, "cubins", sx_module_cubin, cubin, 64)           \
    SX_SECTION(MAPS, "maps", sx_module_map, map, 64)                   \
    SX_SECTION(CASES, "cases", sx_module_case, cases, 64)              \
    SX_SECTION(NUMBERS, "numbers", sx_module_number, number, 64)       \
    SX_SECTION(AXES, "axes", sx_module_axis, axis, 64)                 \
    SX_SECTION(PAIRS, "pairs", sx_module_pair, pair, 64)

typedef enum {
#define SX_SECTION(enumerator, name, type, field, alignment) SX_MODULE_##enumerator,
    SX_MODULE_SECTIONS(SX_SECTION)
#undef SX_SECTION
        SX_MODULE_SECTION_COUNT
} sx_module_section_kind;

typedef struct {
    uint32_t kind;
    uint32_t record_size; /* bytes of one record: a reader refuses another size */
    uint64_t offset;
    uint64_t size;      /* bytes */
    uint64_t digest[2]; /* XXH3-128 of the payload */
} sx_module_section;

typedef struct {
    uint32_t offset, size; /* into STRINGS, not NUL-terminated */
} sx_module_text;

typedef struct {
    sx_module_text name;      /* of the program */
    sx_module_text target;    /* "x86-64-v3", "x86-64-v4" */
    sx_module_text toolchain; /* compiler version and rule-set digest */
    uint8_t key[SX_KEY_BYTES];
    uint32_t arch, level;      /* protocol/arch.def: the least machine that the module is for */
    uint64_t numerics;         /* SX_NUMERICS_VERSION */
    uint64_t arena_bytes;      /* temporaries of one run; all variants use the same memory */
    uint64_t persistent_bytes; /* results of the prologues, of each variant its own */
    uint64_t state_bytes;
    uint64_t workspace_bytes; /* private to each thread */
    /* The next four are of the first variant, or of the optimised program where there is no code. */
    double flops;         /* useful, of one run */
    double cost_ns;       /* estimated time of one run by the model */
    double floor_ns;      /* roofline floor of the same: cost_ns >= floor_ns */
    double input_cost_ns; /* estimate of the program as it came, one kernel per operation */
} sx_module_info;

/* ---- symbolic extents and variants ---- */

/* The values low, low + step, ..., high. */
typedef struct {
    int64_t low, high, step;
} sx_module_range;
/* A symbolic extent and the values that it may have: those of its ranges, which ascend and lie apart. */
typedef struct {
    sx_module_text name;
    uint32_t range_first, range_count;
} sx_module_symbol;

typedef enum {
    SX_GUARD_RANGE,     /* low <= value of symbol `subject` <= high */
    SX_GUARD_DIVISIBLE, /* the value of symbol `subject` is a multiple of `low` */
    SX_GUARD_EQUAL,     /* the value of symbol `subject` is `low` */
    SX_GUARD_MACHINE,   /* the machine has architecture `subject` at level `low` or above */
    SX_GUARD_KIND_COUNT
} sx_module_guard_kind;
typedef struct {
    uint32_t kind, subject;
    int64_t low, high; /* `high` is 0 where it says nothing above */
} sx_module_guard;

/* One way to run the program. The first variant all of whose guards hold is the one that runs; for all values
 * that the symbols may have there is one, on the least machine. LAUNCHES are those of variant 0, then those of
 * variant 1, and so on. */
typedef struct {
    sx_module_text name; /* "batch=8"; empty where there is only one */
    uint32_t guard_first, guard_count;
    uint32_t launch_first, launch_count;
    /* Its part of the persistent area, behind the shared tensors and the parts of the variants before. */
    uint64_t persistent_offset, persistent_bytes;
    double flops, cost_ns, floor_ns; /* of one run; as in sx_module_info */
} sx_module_variant;

/* What follows symbols: its extent is scale * value / divisor, rounded up. The value is that of `symbol`, or the
 * product of it and that of `other`, which is no lesser number and may be the same; SX_MODULE_NONE: there is none. In
 * the record itself stands the largest that this can be. Rows ascend by (what, index, dimension, symbol, other). A
 * dimension of a tensor may have several rows, with different symbols, and a last one with SX_MODULE_NONE in place of
 * them, whose scale is a number that may be below 0: its extent is the sum of them all, as batch * seq + seq - 1. */
typedef enum {
    SX_EXTENT_TENSOR, /* dimension `dimension` of tensor `index`, an input or output; at least 1; divisor 1 */
    SX_EXTENT_PART, /* grid dimension `dimension` of part `index`; a single symbol */
    SX_EXTENT_LOOP, /* how often launch `index` repeats its body; dimension 0; a single symbol */
    SX_EXTENT_KIND_COUNT
} sx_module_extent_kind;
typedef struct {
    uint32_t what, index, dimension, symbol;
    int64_t scale;
    uint32_t divisor, other;
} sx_module_extent;

/* A number that follows the value of its case: (scale * value + offset) / modulus, which leaves no remainder. */
typedef struct {
    int64_t scale, offset;
} sx_module_number;
/* A part may be for some values of symbols alone, and take numbers at run time: it then has cases. Its numbers are
 * the grid (in the record of the part stands the largest), and what the code finds behind the index of the point; of
 * PTX, in its last parameters, which have 8 bytes each. They come in groups, 0, 1 ...: `number_count` of them from
 * number `slot` of the part on. A case gives those of a group, for the values from `low` to `high` that leave
 * `remainder` when divided by `modulus`; both ends are such values. They are values of `symbol`, or products of its
 * value and that of `other`. All cases of a group are of the same symbols and numbers; the first one that holds
 * counts. Where none does in one of the groups, the part has no points. Rows ascend by part and group, and their
 * numbers lie one behind the other. */
#define SX_MODULE_NUMBERS_MAX 64u /* of a part */
typedef struct {
    uint32_t part, group, slot, number_count, symbol, other;
    uint64_t number_first;
    int64_t low, high, modulus, remainder;
} sx_module_case;

/* ---- tensors ---- */

/* SX_PLACE(ENUMERATOR, name in listings) */
#define SX_MODULE_PLACES(SX_PLACE)                                                                 \
    SX_PLACE(INPUT, "input")           /* memory of the caller, at each run */                     \
    SX_PLACE(WEIGHT, "weight")         /* bound once; in WEIGHTS, or nowhere: offset UINT64_MAX */ \
    SX_PLACE(OUTPUT, "output")         /* memory of the caller, at each run */                     \
    SX_PLACE(CONSTANT, "constant")     /* `offset` into CONSTANTS */                               \
    SX_PLACE(PERSISTENT, "persistent") /* made by the prologue; `offset` into that area */         \
    SX_PLACE(TEMPORARY, "temporary")   /* `offset` into the arena; may overlap in turn */          \
    SX_PLACE(STATE, "state")           /* kept from run to run; `offset` into the state area */
typedef enum {
#define SX_PLACE(enumerator, name) SX_TENSOR_##enumerator,
    SX_MODULE_PLACES(SX_PLACE)
#undef SX_PLACE
        SX_TENSOR_PLACE_COUNT
} sx_module_place;

#define SX_MODULE_RANK_MAX 8
typedef struct {
    sx_module_text name; /* interface name, or the node's name in OPTIMIZED */
    uint32_t place;
    uint32_t dtype; /* number in core/ir/dtypes.def */
    uint32_t rank;
    uint32_t element_bytes;
    int64_t dim[SX_MODULE_RANK_MAX];
    uint64_t offset; /* by place; multiple of 64 */
    uint64_t size;   /* bytes; at least elements * element_bytes (packed tensors are larger) */
    /* Of a temporary or persistent tensor: whose it is. SX_MODULE_NONE for all others, and for a persistent one
     * that several variants share: all launches that write it are of one kernel on the same weights, constants
     * and shared tensors, and each variant that reads it has such a launch in its prologue. */
    uint32_t variant;
    /* An output may lie in the memory of an input, which the run then overwrites: the number of that input, of
     * the same element type and size; else SX_MODULE_NONE. */
    uint32_t alias;
    /* Of state: where its first value lies in CONSTANTS; UINT64_MAX: it is zeros, and for all other tensors. */
    uint64_t initial;
} sx_module_tensor;

/* ---- kernels and launches ---- */

/* SX_KERNEL(ENUMERATOR, name in listings) */
#define SX_MODULE_KERNELS(SX_KERNEL)                  \
    SX_KERNEL(MAP, "map")                             \
    SX_KERNEL(ROW, "row")                             \
    SX_KERNEL(CONTRACTION, "contraction")             \
    SX_KERNEL(PACK, "pack")                           \
    SX_KERNEL(COPY, "copy") /* concatenate, gather */ \
    SX_KERNEL(ONLINE, "online")                       \
    SX_KERNEL(NESTED, "nested")
typedef enum {
#define SX_KERNEL(enumerator, name) SX_MODULE_##enumerator,
    SX_MODULE_KERNELS(SX_KERNEL)
#undef SX_KERNEL
        SX_MODULE_KERNEL_KIND_COUNT
} sx_module_kernel_kind;

#define SX_MODULE_RESULTS_MAX 4u /* of a kernel */
typedef struct {
    sx_module_text name;
    sx_module_text what;    /* the fused program in one line */
    sx_module_text plan;    /* the schedule in one line */
    sx_module_text verdict; /* what was proven of the emitted program, in one line */
    uint64_t numerics;      /* numerics plan id: equal ids give equal bits */
    uint32_t part_first, part_count;
    uint32_t kind;       /* sx_module_kernel_kind */
    uint32_t candidates; /* plans the search looked at */
    uint32_t node;       /* line of OPTIMIZED: node number it computes, as its first result */
    uint32_t form;       /* of its code: sx_code_form */
    uint32_t arch, level;
    uint32_t arg_count;    /* buffers of each launch */
    uint32_t result_count; /* the last so many of them are written, the others only read */
    /* Of a kernel with several results the nodes of all but the first, in their order; else SX_MODULE_NONE. Each reads
     * arguments of the launch, and results before its own. */
    uint32_t other[SX_MODULE_RESULTS_MAX - 1];
    uint32_t zero;
    uint64_t code_offset, code_size; /* into CODE; holds the entries of its parts */
    double flops, bytes;      /* of one launch: operations, and bytes read and written at least */
    double cost_ns, floor_ns; /* of one launch: the estimate, and what the machine allows at best */
} sx_module_kernel;

typedef struct {
    uint64_t entry; /* byte offset into CODE */
    /* How many points it is run for along each dimension, independent of each other. */
    int64_t grid[3];
    /* Of a block program, which is code of a GPU: a block of so many threads, a multiple of SX_MODULE_LANES, works at
     * each point, and its launch asks for so many bytes of shared memory. 0 and 0: a vector program, whose points are
     * the work of a thread of the processor or of a warp of the GPU. */
    uint32_t threads, shared_bytes;
    /* So many blocks at most are launched, and walk over the points (core/base/grid.h); 0: a block for each point. */
    uint32_t walkers;
    uint32_t zero;
} sx_module_part;

/* An argument as the copy engine (TMA) reads it, or a result as it writes it, at the entry of a block program, which
 * takes it as a parameter of 128 bytes behind the buffers. Whoever launches it has the driver encode it
 * (cuTensorMapEncodeTiled), as only then it is known where the argument lies. Rows ascend by part; those of a part are
 * its parameters, in their order. Dimensions from the innermost outwards, and zeros behind the last. Elements are not
 * interleaved, every one of them is taken, and what lies outside of the tensor arrives as zeros, or is not written. */
#define SX_MODULE_MAP_RANK_MAX 5u
#define SX_MODULE_MAPS_MAX 3u /* of a part */
#define SX_MODULE_MAP_ALIGN 16u
typedef struct {
    uint32_t kernel, part;  /* part: of all parts of the module, one of this kernel */
    uint32_t arg;           /* of a launch of the kernel: one that it reads, or a result */
    uint32_t dtype;         /* that of the argument: number in core/ir/dtypes.def */
    uint32_t element_bytes; /* 1, 2, 4 or 8 */
    uint32_t rank;          /* 1 to 5 */
    uint32_t swizzle_bytes; /* 0, 32, 64 or 128: the span in which 16 bytes change places */
    /* 0, 64, 128 or 256: what the second level of the cache fetches at once. */
    uint32_t promoted_bytes;
    uint64_t offset; /* bytes from the begin of the argument, a multiple of 16 */
    uint64_t dim[SX_MODULE_MAP_RANK_MAX]; /* elements, 1 to 2^32 */
    /* Bytes: of an element, then multiples of 16 below 2^40. */
    uint64_t stride[SX_MODULE_MAP_RANK_MAX];
    uint32_t box[SX_MODULE_MAP_RANK_MAX]; /* elements that are copied at once, 1 to 256 */
    /* 0: dim[k] is as it stands. Else it follows extents: it is this number of the part, in whose cases it is from 1 to
     * dim[k]. */
    uint32_t dim_number[SX_MODULE_MAP_RANK_MAX];
} sx_module_map;

/* What the PTX of a part became for GPUs of one compute capability, which alone run it: all others take the PTX. The
 * figures are those that the cubin itself says of the entry. Rows ascend by (part, level). */
typedef struct {
    uint32_t kernel, part;    /* part: of all parts of the module, one of this kernel */
    uint32_t level;           /* of the GPUs: 90 is compute capability 9.0 */
    uint32_t registers;       /* of a thread */
    uint32_t local_bytes;     /* of a thread: the deepest stack with all that is called */
    uint32_t spills;          /* instructions that move a register to local memory or back */
    uint32_t barriers;        /* named ones */
    uint32_t parameter_bytes; /* of all parameters with what lies between them */
    uint64_t shared_bytes;    /* that the entry itself declares */
    uint64_t offset, size;    /* of the cubin in CODE; those of several parts may be one */
    sx_module_text toolchain; /* what made it: "nvJitLink 13.0.88" */
} sx_module_cubin;

/* SX_LAUNCH(ENUMERATOR, name in listings) */
#define SX_MODULE_LAUNCHES_OF(SX_LAUNCH) \
    SX_LAUNCH(KERNEL, "kernel")          \
    SX_LAUNCH(COPY, "copy")              \
    SX_LAUNCH(FILL, "fill")              \
    SX_LAUNCH(COLLECTIVE, "collective")  \
    SX_LAUNCH(LOOP, "loop")              \
    SX_LAUNCH(HOST, "host call")         \
    SX_LAUNCH(SLICE, "slice")            \
    SX_LAUNCH(ROW, "row")                \
    SX_LAUNCH(BRANCH, "branch")          \
    SX_LAUNCH(WHILE, "while")
typedef enum {
#define SX_LAUNCH(enumerator, name) SX_LAUNCH_##enumerator,
    SX_MODULE_LAUNCHES_OF(SX_LAUNCH)
#undef SX_LAUNCH
        SX_LAUNCH_KIND_COUNT
} sx_module_launch_kind;
/* SX_COLLECTIVE(ENUMERATOR, name). What ranks exchange are tensors in order of memory: pieces of equal size, one behind
 * the other. */
#define SX_MODULE_COLLECTIVES(SX_COLLECTIVE)        \
    SX_COLLECTIVE(ALL_REDUCE, "all-reduce")         \
    SX_COLLECTIVE(ALL_GATHER, "all-gather")         \
    SX_COLLECTIVE(REDUCE_SCATTER, "reduce-scatter") \
    SX_COLLECTIVE(ALL_TO_ALL, "all-to-all")         \
    SX_COLLECTIVE(PERMUTE, "permute")               \
    SX_COLLECTIVE(AXIS_INDEX, "axis-index")
typedef enum {
#define SX_COLLECTIVE(enumerator, name) SX_COLLECTIVE_##enumerator,
    SX_MODULE_COLLECTIVES(SX_COLLECTIVE)
#undef SX_COLLECTIVE
        SX_COLLECTIVE_COUNT
} sx_module_collective;
/* SX_COMBINE(ENUMERATOR, name): how elements of ranks are combined, that of rank 0 first. */
#define SX_MODULE_COMBINES(SX_COMBINE) \
    SX_COMBINE(SUM, "sum")             \
    SX_COMBINE(PRODUCT, "product")     \
    SX_COMBINE(MAX, "max")             \
    SX_COMBINE(MIN, "min")
typedef enum {
#define SX_COMBINE(enumerator, name) SX_COMBINE_##enumerator,
    SX_MODULE_COMBINES(SX_COMBINE)
#undef SX_COMBINE
        SX_COMBINE_COUNT
} sx_module_combine;

/* An axis of the mesh whose every device, a rank, runs the module. Ranks are numbered row-major over the axes, the
 * first one slowest. */
#define SX_MODULE_AXES_MAX 4u
#define SX_MODULE_RANKS_MAX ((uint64_t)1 << 20)
typedef struct {
    sx_module_text name;
    uint64_t size;
} sx_module_axis;
/* Of a permute: places along its axis. */
typedef struct {
    uint32_t source, target;
} sx_module_pair;

/* What each kind of launch does with its arguments:
 *   kernel      runs it over its grid
 *   copy        from argument 0 to argument 1, all of the latter
 *   fill        each element of argument 0 gets the low bytes of `value`
 *   collective  from argument 0 to argument 1, with the other ranks along the mesh axis `name`; axis-index has the
 *               second of them alone
 *   loop        runs the `body` launches behind it `value` times; argument 0, if there is one, is an i64
 *               scalar that counts the rounds from 0
 *   host call   the function `name` of the caller; the last `value` arguments are its results
 *   slice       from argument 0 to argument 1, all of the latter: piece number r of argument 0, cut into pieces of
 *               that size, where r is the round of the innermost loop around it
 *   row         from argument 0, all of it, to piece number r of argument 1, likewise
 *   branch      of the `body` launches behind it, the first `first` if argument 0 is true, else the others; argument 0
 *               is one bool
 *   while       of the `body` launches behind it, the first `first`; then, if argument 0 is true, the others, and all
 *               of that again; else it ends. Argument 0 is one bool. The others run at most `value` times: a run in
 *               which argument 0 is true once more fails */
typedef struct {
    uint32_t kind;   /* sx_module_launch_kind */
    uint32_t kernel; /* of a kernel launch; else SX_MODULE_NONE */
    /* ARGS: tensor numbers, one for each buffer of the kernel but the workspace */
    uint32_t arg_first, arg_count;
    uint32_t prologue; /* 1: runs once at load, 0: at each run */
    uint32_t body;     /* of a loop, branch or while; else 0 */
    uint32_t first;    /* of a branch or while; else 0 */
    uint32_t combine;  /* of an all-reduce and a reduce-scatter: its sx_module_combine; else 0 */
    /* Of a fill, a loop, a while and a host call, see above; of a collective its sx_module_collective; else 0. */
    uint64_t value;
    sx_module_text name; /* of a collective and a host call; else empty */
    /* Of a permute: who sends to whom, in PAIRS; else 0. Sources ascend. */
    uint32_t pair_first, pair_count;
} sx_module_launch;

/* ---- the report ---- */

typedef struct {
    sx_module_text name;  /* "saturate", "search", ... */
    sx_module_text stop;  /* why it ended */
    uint64_t items, fuel; /* what it went through, in its own unit, and the operations it spent */
} sx_module_stage;

typedef struct {
    sx_module_text rule; /* its name */
    sx_module_text before,
        after; /* the operation that it replaced, and the one it put there, as text */
} sx_module_rewrite;

/* How the e-graph was searched; one record, or none. */
typedef struct {
    sx_module_text stop; /* "saturated", or the limit that bound */
    /* Rounds of rewriting; nodes and classes of the e-graph at the end; operations spent. */
    uint64_t rounds, nodes, classes, fuel;
    /* why there is no certificate; empty if there is, or none was asked for */
    sx_module_text unproved;
    uint64_t proven; /* 1: no cheaper program is in the e-graph */
    /* Estimates of a run of the program as it came, and as it went out; and what no program in the e-graph beats, 0:
     * not known. */
    double input_cost_ns, cost_ns, bound_ns;
    /* How many distinct programs were searched, and of how many of them the whole is put together: 1 and 1 where
     * nothing repeats. */
    uint64_t parts, uses;
} sx_module_search;

typedef struct {
    sx_module_text name;
    /* "exact", "reassociating", "approximate"; with ", moves" and the like if the range of intermediate values is not
     * kept (docs/RULES.md). */
    sx_module_text rule_class;
    uint64_t matches, unions; /* how often it matched, and how often that made two classes one */
} sx_module_rule;

/* A program on a mesh of devices: how it runs there, for one device. One record, or none without a mesh; all
 * zero but `mesh` where placements are left aside (a module that is code for one device). */
typedef struct {
    sx_module_text mesh; /* "dp = 4, tp = 8" */
    uint32_t planned;    /* 1: the optimised program has the STEPS */
    uint32_t proven;     /* 1: no plan is faster along each axis, given those before */
    /* Each figure twice, of one run: of the optimised program, and of the program as it came. */
    uint64_t collectives, input_collectives;         /* how many collectives it has */
    double collective_bytes, input_collective_bytes; /* what one device sends for them */
    double collective_ns, input_collective_ns;       /* and how long that takes, by the model */
    double compute_ns, input_compute_ns; /* everything else, each operation a kernel of its own */
} sx_module_sharding;
/* A step of the plan: an operation on the pieces, or a collective along an axis. */
typedef struct {
    sx_module_text value;    /* of OPTIMIZED: "%5" */
    sx_module_text what;     /* name of the operation, "all-reduce", ... */
    sx_module_text axis;     /* of a collective, else empty */
    sx_module_text from, to; /* likewise: "P(sum)", "R" */
    sx_module_text places;   /* of the value after it: "{dp = S(0)}" */
    sx_module_text local;    /* what a device holds: "f32[16, 512]" */
    uint64_t local_bytes;    /* the same in bytes */
    double sent_bytes,
        ns; /* what one device sends for the step; how long the step takes, by the model */
} sx_module_step;

/* One program of a Pareto front. */
typedef struct {
    sx_module_text program;    /* its text (docs/IR.md) */
    double time_ns, energy_nj; /* of a run, by the model */
    uint64_t peak_bytes;       /* of temporaries, as they are placed */
} sx_module_point;

typedef enum {
    SX_CHECK_ABSENT,   /* it did not run; a check that fails makes no module */
    SX_CHECK_PASSED,   /* within what rounding explains */
    SX_CHECK_IMPRECISE /* likewise, but rounding explains much: the result has few digits */
} sx_module_verdict;
typedef struct {
    sx_module_text name; /* what was compared with what */
    uint32_t passed;     /* sx_module_verdict */
    uint32_t emulated;   /* 1: the code was emulated, 0: the processor executed it */
    uint64_t points;     /* compared elements */
    double error; /* of the element furthest out, relative to the largest magnitude of the result */
    double tolerance; /* what would have been refused there */
} sx_module_check;

/* What may follow the file: who signs that the comparisons in CHECKS were made of these bytes (trust/seal.c). */
#define SX_MODULE_SEAL_MAGIC "SXSEAL1\n"
typedef struct {
    uint8_t magic[8];
    uint8_t key[32];       /* public, Ed25519 */
    uint8_t signature[64]; /* of "symplex module 1", then the digest of the module */
} sx_module_seal;

/* A module in memory: record arrays with counts. `info` has exactly one record. */
typedef struct {
#define SX_SECTION(enumerator, name, type, field, alignment) \
    const type *field;                                       \
    uint64_t field##_count;
    SX_MODULE_SECTIONS(SX_SECTION)
#undef SX_SECTION
    bool sealed;
    sx_module_seal seal; /* if `sealed` */
} sx_module;

/* BLAKE2b-256 of what a module does and says: every section but the weights, which do not travel with it, and
 * where they lie. */
sx_code sx_module_digest(sx_ctx *cx, const sx_module *module, sx_key *digest);
/* Writes the file form, and the seal behind it if there is one. SX_LIMIT past SX_MODULE_BYTES_MAX. */
sx_code sx_module_encode(sx_ctx *cx, const sx_module *module, sx_buf *bytes);
/* Checks everything and points into `bytes`, which must be aligned to 64 and outlive the module. SX_CORRUPT
 * names section, record, value and limit, or the extents that no variant serves; SX_NOMEM. `checksums` false
 * leaves out the digests of the WEIGHTS and CODE payloads (a pass over the bytes). */
sx_code sx_module_decode(sx_ctx *cx, sx_span bytes, bool checksums, sx_module *module);
static inline sx_span sx_module_string(const sx_module *module, sx_module_text text)
{
    return (sx_span){(const uint8_t *)module->strings + text.offset, text.size};
}

/* ---- what a reader of a checked module asks (module_variant.c) ---- */

/* Is `value` one of those that the symbol may have? */
bool sx_module_symbol_has(const sx_module *module, uint32_t symbol, int64_t value);
/* The smallest value of a symbol, the largest, and whether they are the same. */
int64_t sx_module_symbol_low(const sx_module *module, uint32_t symbol);
int64_t sx_module_symbol_high(const sx_module *module, uint32_t symbol);
bool sx_module_symbol_fixed(const sx_module *module, uint32_t symbol);
/* "8", "1, 4, 8", "1 to 64 step 4". */
void sx_module_symbol_print(const sx_module *module, uint32_t symbol, sx_buf *text);
/* Does the machine have what variant `index` is guarded by, whatever the extents? */
bool sx_module_machine_fits(const sx_module *module, uint32_t index, const sx_arch_set *machine);
/* The variant that runs for these values of all symbols on this machine; SX_MODULE_NONE if there is none. */
uint32_t sx_module_pick(const sx_module *module, const int64_t *value, const sx_arch_set *machine);
/* "batch in 1 to 8, batch a multiple of 4, on x86-64-v4"; empty without guards. */
void sx_module_guards_print(const sx_module *module, uint32_t variant, sx_buf *text);
/* The rows of EXTENTS for a tensor, part or loop, by dimension. */
const sx_module_extent *sx_module_extents_of(const sx_module *module, sx_module_extent_kind what,
                                             uint32_t index, uint32_t *count);
/* The extent that a row gives, or adds to one, where symbol s has value[s]. */
int64_t sx_module_extent_of(const sx_module_extent *extent, const int64_t *value);
/* The value that a case is of, from those of all symbols. */
int64_t sx_module_case_value(const sx_module_case *row, const int64_t *value);
/* The cases of a part. */
const sx_module_case *sx_module_cases_of(const sx_module *module, uint32_t part, uint32_t *count);
/* How many numbers the code of a part is given: those of its cases but for the grid. */
uint32_t sx_module_part_numbers(const sx_module *module, uint32_t part);
bool sx_module_case_holds(const sx_module_case *row, int64_t value);
int64_t sx_module_number_of(const sx_module *module, const sx_module_case *row, uint32_t number,
                            int64_t value);
/* The machine code of a part for GPUs of this compute capability; NULL: there is none. */
const sx_module_cubin *sx_module_cubin_of(const sx_module *module, uint32_t part, uint32_t level);
/* What the copy engine reads at the entry of a part, in the order of the parameters. */
const sx_module_map *sx_module_maps_of(const sx_module *module, uint32_t part, uint32_t *count);
/* The kernel of a launch; NULL for a launch of another kind. */
static inline const sx_module_kernel *sx_module_kernel_of(const sx_module *module, uint64_t launch)
{
    uint32_t kernel = module->launch[launch].kernel;
    return kernel == SX_MODULE_NONE ? NULL : &module->kernel[kernel];
}
/* How many of the last arguments a launch writes. */
uint32_t sx_module_results(const sx_module *module, const sx_module_launch *launch);
/* Does the launch make a tensor that all variants share? Then it need not be done again for another of them. */
bool sx_module_shares_result(const sx_module *module, const sx_module_launch *launch);
/* Names of numbers in a checked module; "unknown" for others. */
const char *sx_module_place_name(uint32_t place);
const char *sx_module_kernel_kind_name(uint32_t kind);
const char *sx_module_launch_name(uint32_t kind);
/* What a launch does in a word: the kind of its kernel, or its own. */
const char *sx_module_work_name(const sx_module *module, uint64_t launch);
const char *sx_module_collective_name(uint64_t collective);
const char *sx_module_combine_name(uint32_t combine);
/* How many ranks run the module together; 1: it has no mesh. */
uint32_t sx_module_ranks(const sx_module *module);
/* The axis of a collective, by number. */
uint32_t sx_module_axis_of(const sx_module *module, const sx_module_launch *launch);
/* How many ranks lie between two that are neighbours along the axis. */
uint32_t sx_module_axis_stride(const sx_module *module, uint32_t axis);
/* "all-reduce sum along dp" */
void sx_module_collective_print(const sx_module *module, const sx_module_launch *launch,
                                sx_buf *text);

/* Building: text is appended to a buffer that becomes STRINGS. */
sx_module_text sx_module_put_text(sx_buf *strings, sx_span text);
#endif
