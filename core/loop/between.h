/* between.h - is a kernel another one with other numbers, and do these lie on a line?
 *
 * Numbers are what may come at run time (sx_comes), the grid, and the sizes of buffers; all else of a kernel is its
 * structure. A value along the line is known of each kernel, an extent for instance.
 */
#ifndef SX_CORE_LOOP_BETWEEN_H
#define SX_CORE_LOOP_BETWEEN_H
#include "core/loop/loop.h"

/* A kernel, and its value. */
typedef struct {
    const sx_kernel *kernel;
    int64_t value;
} sx_on_line;
/* Have `low`, `some` and `high` the same structure, and is each number of `some` where the line through those of `low`
 * and `high` has it? low.value < high.value. All values differ by multiples of `unit`; numbers are whole at each of
 * these, and no coefficient is 0, and no loop changes to one of a single iteration, between both ends. */
bool sx_loop_between(const sx_on_line *low, const sx_on_line *some, const sx_on_line *high,
                     int64_t unit);
/* The number that lies `at` of `of` on the way from `from` to `to`: a whole one. */
int64_t sx_loop_on_way(int64_t from, int64_t to, int64_t at, int64_t of);
#endif
