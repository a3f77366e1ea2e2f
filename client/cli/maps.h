/* maps.h - what the copy engine of a GPU reads for a kernel, and the extents that its parts are for: for people and as
 * fields of a JSON object. */
#ifndef SX_CLIENT_CLI_MAPS_H
#define SX_CLIENT_CLI_MAPS_H
#include "core/base/buf.h"
#include "protocol/module.h"

/* For each map of a kernel a line, with its end:
 * "  copies     argument 0: bf16 4096 x 2048 in boxes of 128 x 64, swizzled by 128 bytes". */
void sxc_put_maps(const sx_module *module, const sx_module_kernel *kernel, sx_buf *out);
/* A field with an array: the maps of a part, in the order of its parameters. */
void sxc_json_maps(const sx_module *module, uint32_t part, sx_buf *json);
/* The same: for which extents the part is, and its numbers there (docs/MODULE.md, cases). "first" is the number of the
 * part that the first of "numbers" is; each is [scale, offset]. */
void sxc_json_cases(const sx_module *module, uint32_t part, sx_buf *json);
#endif
