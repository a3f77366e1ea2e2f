/* work.h - what the files of the analysis share. Internal to core/kernel. */
#ifndef SX_CORE_KERNEL_WORK_H
#define SX_CORE_KERNEL_WORK_H
#include "core/kernel/kernel.h"

/* Fills in flops, work, bytes, effort and program_length from the rest. */
void sx_analysis_count_work(sx_analysis *a);
/* analysis.c: what varies along what, in the view as it is. */
void sx_analysis_find_varies(sx_analysis *a);
/* A contraction of two arguments under a sum over keys, which are the dimensions that are reduced and not inner. The
 * left argument becomes the one that does not run along the keys. */
void sx_analysis_add_product(sx_analysis *a, uint32_t dot);
/* Rows: the longest kept dimension along which scores vary, and factors that are read key by key and values do not.
 * Columns: the last one along which values vary and scores do not. What is neither is a loop around the kernel. */
void sx_analysis_find_rows_and_columns(sx_analysis *a);
/* nested.c */
void sx_analysis_of_nested(sx_analysis *a);
#endif
