/* spawn.h - work in a compile process of our own: `symplex-client worker` is started, asked one thing, and ends.
 * Its death is SX_WORKER. Where cx->cancelled says that the caller gives up, it is killed, and that is SX_CANCELLED. */
#ifndef SX_CLIENT_SPAWN_H
#define SX_CLIENT_SPAWN_H
#include "client/runtime/runtime.h"
#include "core/request/request.h"

typedef struct {
    /* The program that is started. NULL: sxc_find_program looks for it. */
    const char *program;
    /* Is called in the thread that waits, as the work goes on. It may be NULL. */
    void (*progress)(void *self, const char *stage, uint64_t done, uint64_t total);
    void *self;
} sxc_worker;

#define SXC_PROGRAM_PATH_MAX 4160
/* Finds symplex-client: $SYMPLEX_CLIENT, else in the folder of the library (of the running program, where it is
 * linked into one), in ../bin or in ../../bin from there.
 *   errors   SX_NODAEMON there is none: without a daemon nobody can compile */
sx_code sxc_find_program(sx_ctx *cx, char path[SXC_PROGRAM_PATH_MAX]);

/* Compiles and verifies a request whose text and target are filled in; or, with `optimize`, does level 1 alone. */
sx_code sxc_compile_here(sx_ctx *cx, const sx_core_request *request, const sxc_worker *worker,
                         bool optimize, sx_buf *result);

/* How a module is verified again. */
typedef struct {
    /* Inputs, weights and the elements that are sampled follow from it. */
    uint64_t seed;
    /* As in sx_core_request. */
    uint64_t verify_flops, verify_bytes;
    /* The emulator runs every point of every launch, however long that takes. */
    bool all;
} sxc_verifying;
/* One comparison, with a name as in the record of a module. */
typedef struct {
    char name[320];
    sx_module_check check;
} sxc_comparison;
typedef struct {
    /* How many comparisons were made, and how many were left out because they are beyond the limits. */
    uint32_t ran, left_out;
    uint64_t elements;
    /* The largest one. */
    double error;
    /* This processor lacks the instructions of the module. */
    bool emulated;
    /* The process could reach nothing; false in builds with sanitizers. */
    bool confined;
    /* In the arena. */
    const sxc_comparison *comparison;
    uint32_t comparison_count;
} sxc_verified;
/* Verifies the code of a module again, confined (client/worker/confine.h): it is run on random tensors and compared
 * with the programs that the module carries.
 *   errors   SX_MISMATCH it computes something else, with what; SX_CORRUPT; SX_WORKER the process died */
sx_code sxc_verify_here(sx_ctx *cx, sx_span module, const sxc_verifying *how,
                        const sxc_worker *worker, sxc_verified *verified);

/* Appends an sxr_kernel_evidence (client/verify/determinism.h) for each kernel of the module to `rows`, made by a
 * confined process.
 *   fuel     instructions that are emulated for one kernel; 0: as usual
 *   errors   SX_CORRUPT; SX_WORKER the process died; those of sxr_determinism */
sx_code sxc_determinism_here(sx_ctx *cx, sx_span module, uint64_t seed, uint64_t fuel,
                             const sxc_worker *worker, sx_buf *rows);

typedef struct {
    sx_span ptx, target;
    /* Folder of the CUDA toolkit; empty: where client/assemble/toolkit.h looks. */
    sx_span toolkit;
    /* The number of an sxa_tool. */
    uint32_t tool;
} sxc_assembling;
/* Assembles PTX text; the result as bytes, for sxa_result_decode.
 *   errors   those of sxa_assemble; SX_WORKER the process died, as nvJitLink can let it */
sx_code sxc_assemble_here(sx_ctx *cx, const sxc_assembling *what, const sxc_worker *worker,
                          sx_buf *result);

/* Compares the outputs that are bound now with the program that the module carries, on the inputs and weights that
 * are bound now. Every tensor of the interface is bound.
 *   errors   SX_MISMATCH, as sxr_check_program in client/verify/verify.h */
sx_code sxc_check_here(sx_ctx *cx, const sxr_program *program, const sxc_worker *worker,
                       sx_module_check *check);
#endif
