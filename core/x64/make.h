/* make.h - what a row of core/target/targets.def does to make code, to run it elsewhere and to show it; inside
 * core/x64. */
#ifndef SX_CORE_X64_MAKE_H
#define SX_CORE_X64_MAKE_H
#include "core/target/target.h"

/* As the fields of sx_target say. */
sx_code sx_x64_target_lower(sx_ctx *cx, const sx_target *target, const sx_lowering *what,
                            sx_kernel **kernel);
sx_code sx_x64_target_emit(sx_ctx *cx, const sx_target *target, const sx_kernel *kernel,
                           bool spills, sx_buf *blob, sx_target_code *code);
sx_code sx_x64_target_emulator_make(sx_ctx *cx, const sx_target *target, sx_span blob,
                                    const uint32_t *entry, uint32_t entry_count,
                                    sx_emulator **emulator);
sx_code sx_x64_target_emulate(sx_ctx *cx, sx_emulator *emulator, uint32_t entry,
                              const sx_region *buffer, uint32_t buffer_count,
                              const int64_t index[3], const sx_region *workspace);
uint64_t sx_x64_target_emulated(const sx_emulator *emulator);
void sx_x64_target_print(const sx_target *target, sx_span code, const char *symbol, sx_buf *text);
#endif
