/* assemble.h - the PTX of a kernel made machine code by an assembler, and refused where it could not be run well. */
#ifndef SX_CORE_NVIDIA_ASSEMBLE_H
#define SX_CORE_NVIDIA_ASSEMBLE_H
#include "core/target/target.h"

/* As sx_target.assemble. */
sx_code sx_nvidia_assemble(sx_ctx *cx, const sx_assembling *what, sx_span *code,
                           sx_target_record *record);
#endif
