/* numbers.h - kernels that are the same but for numbers, and numbers that come with the launch.
 *
 * A number of a kernel is a whole number that stands in its text where a register could stand: an immediate of an
 * operand of 32 or 64 bits, or what is added to a register of 64 bits inside the brackets of an address. Numbers are
 * counted in the order of the text. Everything else (opcodes, registers, labels, immediates that must be immediates) is
 * its shape: kernels of one shape are the same kernel, which is given other numbers.
 */
#ifndef SX_CORE_PTX_NUMBERS_H
#define SX_CORE_PTX_NUMBERS_H
#include "core/ptx/ptx.h"

uint32_t sx_ptx_count_numbers(sx_ptx_kernel *kernel);
/* The numbers of a kernel, and for each whether it is an offset: what is added inside of brackets. The memory is cx's;
 * in the kernel they are 0 from then on, so that the text of its module is its shape. */
sx_code sx_ptx_take_numbers(sx_ctx *cx, sx_ptx_kernel *kernel, int64_t **number, bool **offset,
                            uint32_t *count);

/* A number that comes with the launch, as parameter `slot` of those that are added. */
typedef struct {
    uint32_t at, slot;
} sx_ptx_coming;
/* The kernel gets parameters `number_0` .. of 8 bytes each, `slot_count` of them, behind those that it has, and has
 * their values in place of these numbers, which ascend by `at`; for an offset it is added to what stands there. One of
 * 32 bits takes the low half. Kernel `index` of the module has been ended, and is checked again.
 *   errors   SX_LIMIT too many registers; SX_INTERNAL a number that the check refuses as a register */
sx_code sx_ptx_open_numbers(sx_ctx *cx, sx_ptx_module *module, uint32_t index,
                            const sx_ptx_coming *coming, uint32_t count, uint32_t slot_count);
#endif
