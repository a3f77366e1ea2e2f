/* differences.h - why an interval is served by several variants: what differs between the kernels of two of them. */
#ifndef SX_CLIENT_CLI_DIFFERENCES_H
#define SX_CLIENT_CLI_DIFFERENCES_H
#include "core/base/buf.h"
#include "protocol/module.h"

/* Appends what differs in the first launch whose kernel is another one in `variant` than in `before` (both are numbers
 * of variants of the module), as in
 *
 *     1 of 9 launches is of another kernel than in M=4..1024: dot_2 has m/64 in its schedule, not m/32
 *
 * without an end of line; nothing where the launches of both have the same kernels. */
void sxc_put_difference(const sx_module *module, uint64_t before, uint64_t variant, sx_buf *out);
#endif
