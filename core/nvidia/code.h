/* code.h - PTX in the code of a module: where the text of an entry stands. */
#ifndef SX_CORE_NVIDIA_CODE_H
#define SX_CORE_NVIDIA_CODE_H
#include "core/ptx/ptx.h"

typedef struct {
    uint32_t begin; /* of the text, in the blob */
    sx_span text;   /* of the PTX module, without its NUL; borrowed from the blob */
    sx_span name;   /* of the kernel */
} sx_nvidia_code;

/* What stands at an entry of the blob.
 *   errors   SX_INPUT there is no entry of a PTX module */
sx_code sx_nvidia_code_at(sx_ctx *cx, sx_span blob, uint32_t entry, sx_nvidia_code *code);
/* NULL: none of this name. */
const sx_ptx_kernel *sx_nvidia_find_kernel(const sx_ptx_module *module, sx_span name);
#endif
