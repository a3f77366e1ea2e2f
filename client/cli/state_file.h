/* state_file.h - the state of a module from and to .npz files: an array for each state, by its name. */
#ifndef SX_CLIENT_CLI_STATE_FILE_H
#define SX_CLIENT_CLI_STATE_FILE_H
#include "client/runtime/runtime.h"

/* How many tensors of the module are state. */
uint32_t sxc_state_count(const sx_module *module);
/* All state gets the elements of the file, which has an array for each and no others.
 *   errors   SX_INPUT the module keeps no state; the file is none, lacks a state, has another name, type or shape */
sx_code sxc_state_load(sx_ctx *cx, sxr_program *program, const char *path);
/* Writes all state as it is now, whole or not at all.  errors  SX_INPUT the module keeps no state; the place */
sx_code sxc_state_save(sx_ctx *cx, const sxr_program *program, const char *path);
#endif
