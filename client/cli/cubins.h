/* cubins.h - what the machine code beside a kernel's PTX needs, for people and as fields of a JSON object. */
#ifndef SX_CLIENT_CLI_CUBINS_H
#define SX_CLIENT_CLI_CUBINS_H
#include "core/base/buf.h"
#include "protocol/module.h"

/* The most that a part of a kernel needs, over all GPUs that it has machine code for. */
typedef struct {
    uint32_t count; /* rows; 0: there is only the text, and nothing is known */
    uint32_t registers, local_bytes, spills, barriers;
    uint64_t shared_bytes;
} sxc_cubin_need;
sxc_cubin_need sxc_cubin_need_of(const sx_module *module, const sx_module_kernel *kernel);

/* "code       PTX; machine code for sm_90 by nvJitLink 13.0.88: 20 to 168 registers, 0 spills", or that there is the
 * PTX alone; nothing where the code is no text. A line, with its end. */
void sxc_put_assembled(const sx_module *module, sx_buf *out);
/* A field with an array: a record for each part and kind of GPU. */
void sxc_json_cubins(const sx_module *module, const sx_module_kernel *kernel, sx_buf *json);
#endif
