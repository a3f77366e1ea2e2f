/* machine.h - what is known of a machine without the compiler: its name, which others execute its code, and the
 * check of that code. The loader of modules needs no more. */
#ifndef SX_CORE_TARGET_MACHINE_H
#define SX_CORE_TARGET_MACHINE_H
#include "core/base/base.h"

typedef struct sx_machine sx_machine;

/* How the code at an entry is launched. 0 threads: it is a vector program. Else a block of so many threads works at
 * each point of its grid, and the launch asks for so many bytes of shared memory and gives so many maps. Where blocks
 * walk over the points there are `walkers` of them at most (core/base/grid.h); 0: each point is a block. Behind all
 * other parameters stand `numbers` of 8 bytes, which follow the extents of the run. */
typedef struct {
    uint32_t threads, shared_bytes, maps, walkers, numbers;
    int64_t grid[3]; /* of the part; all 0: not known */
} sx_machine_block;

/* An argument or the result of a block program as the copy engine reads or stores it: a parameter of 128 bytes behind
 * the buffers. It is made at the launch, when it is known where the buffer lies. Dimensions from the innermost
 * outwards. */
#define SX_MAP_RANK_MAX 5
#define SX_MAPS_MAX 3 /* both factors, and the result */
typedef struct {
    uint32_t buffer; /* of the kernel */
    uint64_t offset; /* bytes behind its begin, a multiple of 16 */
    uint8_t dtype;   /* number in core/ir/dtypes.def */
    uint8_t rank, element_bytes;
    uint8_t swizzle_bytes; /* 32, 64 or 128; 0: none */
    /* Fetched at once by the second level of the cache; 0: as it likes. */
    uint16_t promoted_bytes;
    uint64_t dims[SX_MAP_RANK_MAX];
    uint64_t strides[SX_MAP_RANK_MAX]; /* bytes; the first one is that of an element */
    uint32_t box[SX_MAP_RANK_MAX];
    /* 0: dims[k] is as it stands. Else it comes with the launch, as number n - 1 of those that the entry is given. */
    uint32_t dim_number[SX_MAP_RANK_MAX];
} sx_machine_map;
typedef struct {
    sx_machine_map map[SX_MAPS_MAX];
    uint32_t count;
} sx_machine_maps;

struct sx_machine {
    /* "x86-64-v3", ...: a level of protocol/arch.def, which is how modules name it. */
    const char *name;
    const char *text; /* for people: what the processor must have */
    /* Machines of one family execute the code of the levels below their own. */
    const char *family;
    uint32_t level;
    /* Shared memory that a block of threads may have, in bytes; 0: the machine has no blocks. */
    uint32_t block_shared_bytes;
    /* Are these bytes code of this machine and nothing else, from every entry on, and is each entry launched as its
     * code says? `block`: by entry; NULL: all are vector programs.
     *   errors   SX_INPUT what is refused, with the offset; SX_LIMIT the size of the blob */
    sx_code (*check)(sx_ctx *cx, const sx_machine *machine, sx_span blob, const uint32_t *entry,
                     const sx_machine_block *block, uint32_t entry_count);
};

#define SX_TARGET(row) extern const sx_machine sx_machine_##row;
#include "core/target/targets.def"
#undef SX_TARGET

/* The machines that a reader of modules knows. */
typedef struct {
    const sx_machine *const *row;
    uint32_t count;
} sx_machines;
/* Those of targets.def. */
const sx_machines *sx_machines_all(void);
/* NULL: none of this name. `machines` NULL: those of targets.def. */
const sx_machine *sx_machine_find(const sx_machines *machines, const char *name);
/* The machine that a module is for, by its name in protocol/arch.def.
 *   errors   SX_UNIMPLEMENTED this program knows no machine of this name */
sx_code sx_machine_of_module(sx_ctx *cx, const sx_machines *machines, const char *name,
                             const sx_machine **machine);
/* Does `machine` execute code that was made for `code`? */
bool sx_machine_executes(const sx_machine *machine, const sx_machine *code);
#endif
