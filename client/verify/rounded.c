#include "client/verify/rounded.h"

#include <string.h>

#include "client/verify/verifier.h"
#include "core/kernel/kernel.h"

void sxv_round_tf32(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bool finite = (bits & 0x7F800000u) != 0x7F800000u;
        bits = finite ? (bits + 0x1000u) & ~0x1FFFu : bits;
        memcpy(&x[i], &bits, sizeof(bits));
    }
}

/* The schedule that a plan ends with. */
static bool tiles_of(sx_ctx *cx, sx_span plan, sx_block_tiles *tiles)
{
    sx_schedule schedule;
    while (plan.len > 0 && plan.ptr[plan.len - 1] != ')') {
        plan.len--;
    }
    sx_code code = plan.len > 0 ? sx_schedule_parse(cx, plan, &schedule) : SX_INPUT;
    if (code != SX_OK) {
        sx_ctx_reset_error(cx);
        return false;
    }
    return sx_block_tiles_of(&schedule, tiles) && tiles->matrix_rows != 0;
}

bool sxv_rounds_factors(sx_ctx *cx, const sx_module *module, const sx_module_launch *launch,
                        uint32_t factor[2])
{
    const sx_module_kernel *kernel = &module->kernel[launch->kernel];
    sx_block_tiles tiles;
    if (kernel->kind != SX_MODULE_CONTRACTION ||
        !tiles_of(cx, sx_module_string(module, kernel->plan), &tiles)) {
        return false;
    }
    factor[0] = tiles.left;
    factor[1] = tiles.right;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t tensor = factor[k] < launch->arg_count
                              ? sxv_unpacked(module, module->arg[launch->arg_first + factor[k]])
                              : SX_MODULE_NONE;
        if (tensor == SX_MODULE_NONE || module->tensor[tensor].dtype != SX_F32) {
            return false;
        }
    }
    return true;
}

bool sxv_module_rounds(sx_ctx *cx, const sx_module *module)
{
    uint32_t factor[2];
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        if (launch->kind == SX_LAUNCH_KERNEL && sxv_rounds_factors(cx, module, launch, factor)) {
            return true;
        }
    }
    return false;
}
