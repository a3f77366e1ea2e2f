/* lines.h - kernels that follow from two others, because all numbers that a lowering reads lie on a line. Internal to
 * core/. */
#ifndef SX_CORE_LINES_H
#define SX_CORE_LINES_H
#include "core/loop/loop.h"

/* What lowerings read (sx_analysis_alike): words that are not numbers, and numbers behind them. */
typedef struct {
    uint64_t *word;
    uint32_t count, number_count;
    uint32_t point; /* the first that has it; readings ascend by their points */
} sx_reading;

/* How the kernel of a reading follows from those of two earlier ones, `from` and `to`: each number lies `at` of `of`
 * on the way. of == 0: it is to be lowered. */
typedef struct {
    uint32_t from, to; /* points */
    int64_t at, of;
} sx_way;

/* Readings on a line, by the value of one of their numbers. */
typedef struct {
    int64_t value;
    uint32_t reading;
} sx_line_member;
typedef struct {
    sx_line_member *member; /* ascending */
    uint32_t count;
    int64_t unit; /* all values differ by multiples of it */
} sx_line;
typedef struct {
    const sx_reading *reading;
    uint32_t count;
    sx_line *line;
    uint32_t line_count;
} sx_lines;

/* The lines that readings lie on. Of one line all words that are no numbers are equal, and numbers have the same
 * remainders for `period`, which every step of the schedule along an extent that varies divides: what a lowering cuts
 * in pieces of these steps leaves the same rests. A line has SX_LINE_MEMBERS_MIN readings at least.
 *   memory   of cx; `reading` is borrowed */
#define SX_LINE_MEMBERS_MIN 12u
sx_code sx_lines_make(sx_ctx *cx, const sx_reading *reading, uint32_t count, int64_t period,
                      sx_lines *lines);

/* The kernel of a reading. */
typedef struct {
    void *self;
    sx_code (*lower)(void *self, sx_ctx *cx, const sx_reading *reading, sx_kernel **kernel);
} sx_line_lowering;
/* Sets the ways of a line's readings, [reading]. Kernels are lowered at both ends of it, beside these, in between,
 * and for the two earliest points; where they have the same structure and all numbers lie on a line, so do those of
 * the others. Where not, either half is looked at for itself.
 *   memory   what cx's arena has is given up
 *   errors   those of lowerings that are no matter of the kernel; others have no way */
sx_code sx_line_walk(sx_ctx *cx, const sx_lines *lines, uint32_t line,
                     const sx_line_lowering *lowering, sx_way *way);
#endif
