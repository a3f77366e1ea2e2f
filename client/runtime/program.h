/* program.h - inside client/runtime: what a loaded module owns. */
#ifndef SX_CLIENT_RUNTIME_PROGRAM_H
#define SX_CLIENT_RUNTIME_PROGRAM_H
#include "client/runtime/pool.h"
#include "client/runtime/runtime.h"

struct sxr_program {
    sx_module module;
    uint8_t *file; /* the module's bytes: a mapping */
    size_t file_size;
    uint8_t *code; /* executable mapping of the CODE section */
    size_t code_size;
    uint8_t *memory; /* arena, persistent area, state, workspaces: one mapping */
    size_t memory_size;
    uint8_t *workspace;
    uint64_t workspace_stride;
    sxr_pool *pool;
    void **tensor;              /* [tensor_count] where each lies; NULL while unbound */
    bool *prologue_done;        /* [variant_count] */
    bool *made;                 /* [tensor_count] of those that all variants share: by a prologue */
    const sx_machine *made_for; /* the machine that the module is for */
    const sx_machines *machines; /* those that may be named; NULL: all of core/target */
    bool runs_here;              /* the processor executes its code */
    /* What variants are chosen for: this machine, or, where it lacks the module's instructions and the module
     * was opened all the same, the least machine that has them. */
    sx_arch_set machine;
    int64_t *value; /* [symbol_count] 0 while none is given */
    /* The variant for these values; SX_MODULE_NONE until all symbols have one. Before, what follows here is as
     * in the file: the largest. */
    uint32_t variant;
    uint64_t *bytes;                    /* [tensor_count] */
    int64_t (*dim)[SX_MODULE_RANK_MAX]; /* [tensor_count] */
    sx_module_part *part;               /* [part_count] the grids */
    uint64_t *rounds;                   /* [launch_count] of loops */
};

/* extents.c: what does not follow a symbol, and a value for each symbol that can have but one. */
void sxr_extents_init(sxr_program *program);
/* SX_INPUT names the first symbol without a value, and those that it may have. */
sx_code sxr_extents_check(sx_ctx *cx, const sxr_program *program);
/* load.c. SX_UNIMPLEMENTED: the machine that the module is for, and what this one has. */
sx_code sxr_refuse_machine(sx_ctx *cx, const sx_module *module);
#endif
