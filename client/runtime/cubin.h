/* cubin.h - inside client/runtime: machine code for one kind of GPU that a module carries beside its PTX. */
#ifndef SX_CLIENT_RUNTIME_CUBIN_H
#define SX_CLIENT_RUNTIME_CUBIN_H
#include "core/base/base.h"
#include "protocol/module.h"

/* Is every cubin of the module one, for the GPU that its row names, with the entry of its part, and does the record
 * that is read from it say what the row says?
 *   errors   SX_CORRUPT with the row and what differs; SX_UNIMPLEMENTED a layout that is not known */
sx_code sxr_check_cubins(sx_ctx *cx, const sx_module *module);

/* The cubin of a kernel for GPUs of this compute capability, if every part has its entry in one and the driver, as
 * CUDA numbers it (13000), is not older than the toolkit's major version; else an empty span: the PTX is taken. */
sx_span sxr_cubin_for(const sx_module *module, uint32_t kernel, uint32_t capability,
                      uint32_t driver);
#endif
