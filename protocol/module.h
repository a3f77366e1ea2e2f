/* module.h - the .sxm file: a compiled program as tables, code and data (docs/MODULE.md).
 *
 * Layout, little endian, every offset from the start of the file:
 *   header   64 bytes: sx_module_header
 *   sections section_count rows sx_module_section, then the payloads in file order, each aligned to 64 (CODE to 4096)
 * A table section is an array of one record type below; text lives in STRINGS and is named by sx_module_text.
 * The loader points into the bytes it is given (no copies) after it has checked every offset, count, index,
 * alignment and checksum, so a caller may follow any index of a loaded module without looking.
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

#define SX_MODULE_MAGIC "SXMODULE"
#define SX_MODULE_VERSION 2u
#define SX_MODULE_BYTES_MAX ((uint64_t)64 << 30)
/* Version of the numerics contract: kernels of one version and one numerics id give equal bits. */
#define SX_NUMERICS_VERSION 1u

typedef struct {
    uint8_t magic[8];
    uint32_t version;
    uint32_t section_count;
    uint64_t file_size;
    uint64_t digest[2]; /* XXH3-128 of the section table */
    uint8_t reserved[24];
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
    SX_SECTION(STEPS, "steps", sx_module_step, step, 64)

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
    uint32_t isa;              /* 3: AVX2 + FMA; 4: AVX-512 F, BW, DQ, VL */
    uint32_t numerics;         /* SX_NUMERICS_VERSION */
    uint64_t arena_bytes;      /* temporaries of one run */
    uint64_t persistent_bytes; /* results of the prologue */
    uint64_t workspace_bytes;  /* private to each thread */
    double flops;              /* useful, of one run */
    double cost_ns;            /* estimated time of one run by the model */
    double floor_ns;           /* roofline floor of the same: cost_ns >= floor_ns */
    double input_cost_ns;      /* estimate of the program as it came, one kernel per operation */
} sx_module_info;

typedef struct {
    sx_module_text name;
    int64_t value;
} sx_module_symbol;

typedef enum {
    SX_TENSOR_INPUT, /* bound at each run */
    SX_TENSOR_WEIGHT, /* bound once; `offset` into WEIGHTS, or UINT64_MAX if the file does not carry it */
    SX_TENSOR_OUTPUT,     /* memory given by the caller at each run */
    SX_TENSOR_CONSTANT,   /* `offset` into CONSTANTS */
    SX_TENSOR_PERSISTENT, /* made by the prologue; `offset` into the persistent area */
    SX_TENSOR_TEMPORARY, /* `offset` into the arena; tensors that do not live at the same time may overlap */
    SX_TENSOR_PLACE_COUNT
} sx_module_place;

#define SX_MODULE_RANK_MAX 8
typedef struct {
    sx_module_text name; /* interface name, or the node's name in OPTIMIZED */
    uint32_t place;
    uint32_t dtype; /* row of core/ir/dtypes.def */
    uint32_t rank;
    uint32_t element_bytes;
    int64_t dim[SX_MODULE_RANK_MAX];
    uint64_t offset; /* by place; multiple of 64 */
    uint64_t size;   /* bytes; at least elements * element_bytes (packed tensors are larger) */
} sx_module_tensor;

typedef struct {
    sx_module_text name;
    sx_module_text what; /* the fused program in one line */
    sx_module_text plan; /* tile choice in one line */
    sx_module_text poly; /* what was proven of the kernel, in one line */
    uint64_t numerics;   /* numerics plan id: equal ids give equal bits */
    uint32_t part_first, part_count;
    uint32_t kind;       /* sx_module_kernel_kind */
    uint32_t candidates; /* plans the search looked at */
    uint32_t node;       /* line of OPTIMIZED: node number it computes */
    uint32_t reserved;
    double flops, bytes;
    double cost_ns, floor_ns;
} sx_module_kernel;
typedef enum {
    SX_MODULE_MAP,
    SX_MODULE_ROW,
    SX_MODULE_CONTRACTION,
    SX_MODULE_PACK,
    SX_MODULE_COPY, /* concatenate, gather */
    SX_MODULE_ONLINE,
    SX_MODULE_KERNEL_KIND_COUNT
} sx_module_kernel_kind;

typedef struct {
    uint64_t entry; /* byte offset into CODE */
    int64_t grid[3];
} sx_module_part;

typedef struct {
    uint32_t kernel;
    /* ARGS: tensor numbers, one for each buffer of the kernel but the workspace */
    uint32_t arg_first, arg_count;
    uint32_t prologue; /* 1: runs once at load, 0: at each run */
} sx_module_launch;

typedef struct {
    sx_module_text name, stop;
    uint64_t items, fuel;
    /* 0: a module says nothing of clocks, so that equal requests give equal bytes */
    uint64_t reserved;
} sx_module_stage;

typedef struct {
    sx_module_text rule, before, after;
} sx_module_rewrite;

/* How the e-graph was searched; one record, or none. */
typedef struct {
    sx_module_text stop; /* "saturated", or the limit that bound */
    uint64_t rounds, nodes, classes, fuel;
    /* why there is no certificate; empty if there is, or none was asked for */
    sx_module_text unproved;
    uint64_t proven; /* 1: no cheaper program is in the e-graph */
    double input_cost_ns, cost_ns,
        /* of the program as it came, as it went out, and what no program in the e-graph beats; 0:
         * not known */
        bound_ns;
    uint64_t parts, uses; /* distinct programs searched, and of how many of them the whole is put
                             together: 1 and 1 where nothing repeats */
} sx_module_search;

typedef struct {
    sx_module_text name;
    /* "exact", "reassociating", "approximate"; with ", moves" and the like if the range is not
     * kept */
    sx_module_text rule_class;
    uint64_t matches, unions;
} sx_module_rule;

/* A program on a mesh of devices: how it runs there, for one device. One record, or none without a mesh; all
 * zero but `mesh` where placements are left aside (a module that is code for one device). */
typedef struct {
    sx_module_text mesh; /* "dp = 4, tp = 8" */
    uint32_t planned;    /* 1: the optimised program has the STEPS */
    uint32_t proven;     /* 1: no plan is faster along each axis, given those before */
    uint64_t collectives, input_collectives;         /* of the program, of the input */
    double collective_bytes, input_collective_bytes; /* sent by a device */
    double collective_ns, input_collective_ns;
    double compute_ns, input_compute_ns; /* each operation a kernel */
} sx_module_sharding;
/* A step of the plan: an operation on the pieces, or a collective along an axis. */
typedef struct {
    sx_module_text value;    /* of OPTIMIZED: "%5" */
    sx_module_text what;     /* name of the operation, "all-reduce", ... */
    sx_module_text axis;     /* of a collective, else empty */
    sx_module_text from, to; /* likewise: "P(sum)", "R" */
    sx_module_text places;   /* of the value after it: "{dp = S(0)}" */
    sx_module_text local;    /* what a device holds: "f32[16, 512]" */
    uint64_t local_bytes;
    double sent_bytes, ns;
} sx_module_step;

/* One program of a Pareto front. */
typedef struct {
    sx_module_text program;
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
 * names section, record, value and limit. `checksums` false leaves out the digests of the WEIGHTS and CODE
 * payloads (a pass over the bytes). */
sx_code sx_module_decode(sx_ctx *cx, sx_span bytes, bool checksums, sx_module *module);
static inline sx_span sx_module_string(const sx_module *module, sx_module_text text)
{
    return (sx_span){(const uint8_t *)module->strings + text.offset, text.size};
}

/* Building: text is appended to a buffer that becomes STRINGS. */
sx_module_text sx_module_put_text(sx_buf *strings, sx_span text);
#endif
