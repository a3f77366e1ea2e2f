/* device.h - inside client/runtime: what a program has on a GPU.
 *
 * Temporaries, persistent tensors and state lie there alone; constants are copied there once, weights when they were
 * bound, inputs and outputs before, outputs after each run. Memory of the caller is memory of the host.
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

/* The weight has other memory, whose bytes are copied before the next run. */
void sxr_device_rebound(sxr_program *program, uint32_t weight);
/* State gets its first values before the next run. */
void sxr_device_state_reset(sxr_program *program);
sx_code sxr_device_state_read(sx_ctx *cx, const sxr_program *program, uint32_t tensor, void *memory,
                              uint64_t size);
sx_code sxr_device_state_write(sx_ctx *cx, sxr_program *program, uint32_t tensor,
                               const void *memory, uint64_t size);
#endif
