/* apart.h - rows of a contraction or an online sum as a batch of equal groups of rows. A kernel of them has tiles that
 * end with each group, so that it is the same one for any number of groups (variants that serve an interval,
 * core/steady.c). */
#ifndef SX_CORE_KERNEL_APART_H
#define SX_CORE_KERNEL_APART_H
#include "core/kernel/kernel.h"

/* Makes `groups` of the rows, at least one. False, and nothing is changed, where there are no rows to cut evenly, or
 * their index is a value. */
bool sx_analysis_rows_in_groups(sx_analysis *analysis, int64_t groups);
#endif
