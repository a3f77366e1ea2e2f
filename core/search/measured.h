/* measured.h - what kernels took on a device: rows of a text, each for a kernel under a schedule.
 *
 * The text comes from `symplex-client tune`. Its first line is SX_MEASURED_HEAD, the others are
 *
 *     MACHINE DEVICE KERNEL NS PREDICTED RUNS DATE VERDICT SCHEDULE
 *     GenuineIntel-6-143-8-2 x86-64-v4 9f86d081884c7d65 12345 11020 15 2026-11-24 best grid(m/64) loop(m) ...
 *
 * where MACHINE says on what kind of machine (sxr_cpu_identity), KERNEL are 16 hexadecimal digits
 * (sx_measured_kernel), NS is what a quarter of RUNS did not exceed, PREDICTED what the model says
 * (sx_cost_schedule) and DATE when. VERDICT is `best` for the
 * schedule that a kernel is to have, at most one of them, and `tried` for the others, which choose nothing. A later row
 * for the same kernel under the same schedule replaces an earlier one. Rows choose among schedules of one numerics
 * plan, so that they change the time of a module and none of its bits; they are no part of its key. */
#ifndef SX_CORE_SEARCH_MEASURED_H
#define SX_CORE_SEARCH_MEASURED_H
#include "core/base/buf.h"
#include "core/kernel/kernel.h"

#define SX_MEASURED_HEAD "symplex measured 3"
#define SX_MEASURED_ROWS_MAX 4096u
#define SX_MEASURED_TEXT_MAX ((size_t)2 << 20)
#define SX_MEASURED_DEVICE_MAX 48
#define SX_MEASURED_MACHINE_MAX 64
#define SX_MEASURED_DATE 10 /* characters: 2026-11-24 */
typedef struct {
    char machine[SX_MEASURED_MACHINE_MAX];
    char device[SX_MEASURED_DEVICE_MAX];
    char date[SX_MEASURED_DATE + 1];
    uint64_t kernel;
    uint32_t runs;
    double ns, predicted_ns;
    bool best;
    sx_schedule schedule;
} sx_measured_row;
typedef struct {
    sx_measured_row *row;
    uint32_t count;
    /* What was learned from rows (correction.h), behind the last one; may be empty. */
    sx_span correction;
} sx_measured;

/* What a kernel is, whatever node of whatever program it is made for: body, space, types; and whether the right
 * argument of a contraction is constant. */
uint64_t sx_measured_kernel(const sx_analysis *analysis, bool rhs_constant);
/* Rows in cx's arena. An empty text has none.
 *   errors   SX_INPUT the line and what was expected there; SX_LIMIT too many rows */
sx_code sx_measured_parse(sx_ctx *cx, sx_span text, sx_measured *measured);
void sx_measured_print(const sx_measured *measured, sx_buf *text);
/* Adds a row, or replaces the one for the same machine, device, kernel and schedule. What was best before a row that is
 * best was tried. Room for SX_MEASURED_ROWS_MAX: SX_LIMIT. */
sx_code sx_measured_put(sx_ctx *cx, sx_measured *measured, const sx_measured_row *row);
/* Puts all rows of another set; what was best of their kernels is so no longer, unless they say it. */
sx_code sx_measured_merge(sx_ctx *cx, sx_measured *measured, const sx_measured *rows);
/* The best of the kernel on the device; NULL: there is none. */
const sx_measured_row *sx_measured_find(const sx_measured *measured, const char *device,
                                        uint64_t kernel);
#endif
