/* device.h - inside client/runtime: what a program has on a GPU.
 *
 * Temporaries, persistent tensors and state lie there alone; constants are copied there once, weights when they were
 * bound, inputs and outputs before, outputs after each run. A tensor that is bound to memory of the GPU is used where
 * it lies.
 */
#ifndef SX_CLIENT_RUNTIME_DEVICE_H
#define SX_CLIENT_RUNTIME_DEVICE_H
#include "client/runtime/program.h"

/* Does the module hold code that a GPU may run? */
bool sxr_device_wanted(const sx_module *module, const sx_machine *machine);
/* The first GPU that is enough for the module, and its memory; `capability` of that GPU.
 *   errors   SX_UNIMPLEMENTED there is none, or no driver: what is there; SX_NOMEM; SX_SYSTEM */
sx_code sxr_device_find(sx_ctx *cx, const sx_module *module, uint32_t *capability);
sx_code sxr_device_open(sx_ctx *cx, sxr_program *program);
void sxr_device_close(sxr_program *program); /* without one: nothing */

/* The tensor, and an output in its place, has memory of the host, or none; a weight is copied before the next run. */
void sxr_device_bound(sxr_program *program, uint32_t tensor);
/* It has memory of the GPU, which the caller owns.
 *   errors   SX_INPUT the address is not a multiple of SXR_DEVICE_ALIGN, or not memory of this GPU; an output that lies
 *            in the memory of an input, elsewhere */
sx_code sxr_device_bind(sx_ctx *cx, sxr_program *program, uint32_t tensor, uint64_t address);
bool sxr_device_has(const sxr_program *program, uint32_t tensor);
/* Where the tensor is on the GPU. */
uint64_t sxr_device_address(const sxr_program *program, uint32_t tensor);

/* What comes before the launches of a run, and is not done again: code is loaded, weights and state are copied.
 * Launches of the prologue may follow; sxr_device_prepare_end waits for all of it. */
sx_code sxr_device_prepare_begin(sx_ctx *cx, sxr_program *program);
sx_code sxr_device_prepare_end(sx_ctx *cx, sxr_program *program, sx_code code);
/* May the launches of a run be put on a stream of the caller?
 *   errors   SX_INPUT an input or output is not in memory of the GPU; SX_USAGE the module is not prepared */
sx_code sxr_device_check_enqueue(sx_ctx *cx, const sxr_program *program);
sx_code sxr_device_check_prepared(sx_ctx *cx, const sxr_program *program);
/* Launches in between are kept as a graph. sxr_device_graph_time launches it `count` times, and frees it; both that and
 * sxr_device_graph_end pass on the failure of what came before. */
sx_code sxr_device_graph_begin(sx_ctx *cx, sxr_program *program);
sx_code sxr_device_graph_end(sx_ctx *cx, sxr_program *program, sx_code code, void **graph);
sx_code sxr_device_graph_time(sx_ctx *cx, sxr_program *program, sx_code code, void *graph,
                              uint32_t count, uint64_t *ns);
sx_code sxr_device_enter(sx_ctx *cx, sxr_program *program, void *stream);
void sxr_device_leave(sxr_program *program);
/* State gets its first values before the next run. */
void sxr_device_state_reset(sxr_program *program);
sx_code sxr_device_state_read(sx_ctx *cx, const sxr_program *program, uint32_t tensor, void *memory,
                              uint64_t size);
sx_code sxr_device_state_write(sx_ctx *cx, sxr_program *program, uint32_t tensor,
                               const void *memory, uint64_t size);
#endif
