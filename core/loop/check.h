/* check.h - what the files share that check kernels. Internal to core/loop. */
#ifndef SX_CORE_LOOP_CHECK_H
#define SX_CORE_LOOP_CHECK_H
#include "core/loop/loop.h"

/* Bytes that an instruction with an address touches from there on: [*low, *high). False: it has no such form. */
bool sx_loop_access_bytes(const sx_item *item, const sx_kernel *kernel, int64_t *low,
                          int64_t *high);
/* check_warps.c: of a part that is well formed otherwise.
 *   errors   SX_INPUT with the item, and the bytes in which iterations meet */
sx_code sx_kernel_check_warps(sx_ctx *cx, const sx_kernel *kernel, uint32_t part);
#endif
