/* work.h - operations and bytes of a kernel. Internal to core/kernel. */
#ifndef SX_CORE_KERNEL_WORK_H
#define SX_CORE_KERNEL_WORK_H
#include "core/kernel/kernel.h"

/* Fills in flops, work, bytes, effort and program_length from the rest. */
void sx_analysis_count_work(sx_analysis *a);
#endif
