/* execute.h - runs the kernels of a module: on the processor where it has the instructions, else by the
 * emulator of its target.
 *
 * Both give the same bits. Emulated code touches nothing but the tensors of its launch: an access outside is
 * an error that names the instruction, the byte and the tensor.
 */
#ifndef SX_CLIENT_VERIFY_EXECUTE_H
#define SX_CLIENT_VERIFY_EXECUTE_H
#include "client/runtime/runtime.h"
#include "core/target/target.h"

typedef struct {
    sx_ctx *cx;
    sxr_program *program;
    const sx_target *target;
    sx_emulator *emulator; /* NULL: the processor runs the code */
    /* [threads] What each thread of the program's pool has to itself; NULL: nothing. */
    struct sxv_emulating *emulating;
    uint32_t threads;
} sxr_executor;

/* For a program opened with `any_level`, which outlives the executor; `targets` as in sx_core_request. */
void sxr_executor_fini(sxr_executor *executor);
sx_code sxr_executor_make(sx_ctx *cx, const sx_targets *targets, sxr_program *program,
                          sxr_executor *executor);

/* The same, but the code is emulated wherever the module could run. */
sx_code sxr_executor_emulate(sx_ctx *cx, const sx_targets *targets, sxr_program *program,
                             sxr_executor *executor);

/* Where each result of a launch of a kernel lies in memory for all of them, at multiples of 64 bytes; the size of that
 * memory, which has room for the largest extents. One result begins it. */
size_t sxr_results_room(const sxr_executor *executor, uint32_t launch,
                        size_t offset[SX_MODULE_RESULTS_MAX]);

/* One launch on these buffers, one for each of its arguments. SX_INTERNAL: emulated code does what it may not. */
sx_code sxr_execute(sxr_executor *executor, uint32_t launch, void *const *buffer);

/* Emulates some points of a launch, evenly over its grid and as many as the instructions allow, but the first
 * and the last always.
 *   buffer   as above; the last are the results
 *   touched  a byte for each byte of sxr_results_room, zeros: 1 where the points stored
 *   whole    all points were emulated */
sx_code sxr_execute_some(sxr_executor *executor, uint32_t launch, void *const *buffer,
                         uint64_t instructions_max, uint8_t *touched, bool *whole);

/* What was emulated of a launch. */
typedef struct {
    int64_t points, ran; /* of all its parts; a block that ran twice counts twice */
    bool whole;          /* all of them */
    bool blocks;         /* a block program of one part */
    /* Those that ran stand for all blocks (cover.h), which store each byte of the result once. */
    bool covers, partition;
} sxr_emulated;

/* The same, but of a block program that would take more instructions these points: the first, the last but one and the
 * last along each dimension, in all combinations. Where they do not cover the others, points evenly as well. The last
 * result has `result_bytes` for the extents of the run: what the program does not know of a tensor of its own. */
sx_code sxr_execute_covering(sxr_executor *executor, uint32_t launch, void *const *buffer,
                             uint64_t result_bytes, uint64_t instructions_max, uint8_t *touched,
                             sxr_emulated *emulated);

/* Emulates points of a launch from the last to the first, in pieces, until all are done or about so many instructions
 * have run; `touched` as above. */
sx_code sxr_execute_backwards(sxr_executor *executor, uint32_t launch, void *const *buffer,
                              uint64_t instructions_max, uint8_t *touched);
#endif
