/* cubin.h - what an assembler says of its kernels: the resource record, read from the bytes of a cubin.
 *
 * A cubin is the machine code of an NVIDIA GPU in an ELF64 file. Each kernel has a section with its code and one
 * with attributes: registers, local memory, barriers, launch bounds, parameters. The assemblers have no other
 * report that a program could read. Cubins of the toolkits 12 (ELF ABI version 7) and 13 (version 8) are read;
 * the numbers of the attributes and both layouts were found by looking at cubins of known PTX, as no document
 * lists them.
 *
 * Invariant: the bytes may come from anywhere. Every offset and size is checked before it is followed; what
 * contradicts itself is refused. */
#ifndef SX_CORE_PTX_CUBIN_H
#define SX_CORE_PTX_CUBIN_H
#include "core/base/base.h"

/* One parameter: where it lies in the parameter space, in bytes. */
typedef struct {
    uint32_t offset, size;
} sx_cubin_param;

/* Three extents, as of a block or of a cluster; all 0: nothing is required. */
typedef struct {
    uint32_t x, y, z;
} sx_cubin_dim;

typedef struct {
    sx_span name; /* points into the bytes of the cubin */
    /* Registers of a thread. */
    uint32_t registers;
    /* What the assembler could give a thread: by .maxnreg, by launch bounds, else 255. 0: not written down. */
    uint32_t registers_max;
    /* Local memory of a thread: its own frame, and the deepest stack with all that it calls. */
    uint32_t frame_bytes, stack_bytes;
    /* Instructions that move a register to local memory or back because there were too few registers. */
    uint32_t spill_count;
    /* Shared memory that the kernel itself declares with a size, without what the driver reserves. */
    uint64_t shared_bytes;
    /* What the driver reserves of the shared memory of each block; 0 before sm_90. */
    uint32_t shared_reserved_bytes;
    /* Named barriers (16 where one is chosen by a register), and instructions that initialise an mbarrier. */
    uint32_t barriers, mbarriers;
    /* Launch bounds: .maxntid and .reqntid. */
    sx_cubin_dim block_max, block;
    /* .reqnctapercluster, .maxclusterrank, .explicitcluster. */
    sx_cubin_dim cluster;
    uint32_t cluster_max;
    bool cluster_explicit;
    /* Parameters in their order, and the bytes of all with what lies between them. */
    const sx_cubin_param *param;
    uint32_t param_count, param_bytes;
    uint64_t code_bytes;
} sx_cubin_kernel;

#define SX_CUBIN_TOOL_MAX 32
#define SX_CUBIN_VERSION_MAX 32
typedef struct {
    /* 90 of sm_90a, and whether the code runs on that architecture alone ('a'). Code for a family of
     * architectures ('f') is marked like that for its first member. */
    uint32_t arch;
    bool arch_specific;
    /* ELF ABI version: 7 or 8. */
    uint32_t abi;
    /* "ptxas" or "nvJIT API"; "" where it is not written down. */
    char tool[SX_CUBIN_TOOL_MAX];
    /* "13.0.88"; where that is not written down only "12.9", or "". */
    char toolkit[SX_CUBIN_VERSION_MAX];
    /* By name. */
    const sx_cubin_kernel *kernel;
    uint32_t kernel_count;
} sx_cubin;

#define SX_CUBIN_BYTES_MAX ((size_t)256 << 20)
#define SX_CUBIN_KERNELS_MAX 4096

/* Reads the record of a cubin.
 *   memory   result in cx's arena; names point into `bytes`
 *   errors   SX_INPUT it is no cubin, or one that is not linked; SX_UNIMPLEMENTED its ABI version is unknown;
 *            SX_LIMIT too large; SX_CORRUPT with what contradicts itself */
sx_code sx_cubin_read(sx_ctx *cx, SX_KEEP sx_span bytes, sx_cubin **cubin);

/* The kernel of that name, or NULL. */
const sx_cubin_kernel *sx_cubin_find(const sx_cubin *cubin, sx_span name);

/* "sm_90a". */
#define SX_CUBIN_TARGET_MAX 24
void sx_cubin_target(const sx_cubin *cubin, char text[SX_CUBIN_TARGET_MAX]);
#endif
