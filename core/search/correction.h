/* correction.h - what the model gets wrong on one kind of machine, learned from rows of what was measured there.
 *
 * The logarithm of measured over predicted time is a sum of weights times features of the schedule: the logarithms of
 * its smallest steps along rows, columns and depth in the grid, in loops and inside of them, and their squares. Ridge
 * regression finds the weights; what all schedules of a kernel have in common is left out, because a correction only
 * ever chooses among them. It is kept as a text of four lines,
 *
 *     symplex correction 1
 *     MACHINE DEVICE KERNELS ROWS
 *     WEIGHT WEIGHT ...
 *     hash 16 hexadecimal digits, of the lines before
 *
 * Papers: Hoerl, Kennard 1970 (ridge regression). */
#ifndef SX_CORE_SEARCH_CORRECTION_H
#define SX_CORE_SEARCH_CORRECTION_H
#include "core/search/measured.h"

#define SX_CORRECTION_HEAD "symplex correction 1"
#define SX_CORRECTION_FEATURES 18
#define SX_CORRECTION_KERNELS_MIN 8 /* of fewer nothing is learned */
#define SX_CORRECTION_TEXT_MAX 4096
typedef struct {
    char machine[SX_MEASURED_MACHINE_MAX], device[SX_MEASURED_DEVICE_MAX];
    double weight[SX_CORRECTION_FEATURES];
    uint32_t kernels, rows; /* that it was learned from; kernels 0: there is no correction */
} sx_correction;

/* What the predicted time of the schedule is to be multiplied by, but for a factor of its kernel. */
double sx_correction_factor(const sx_correction *correction, const sx_schedule *schedule);
/* Learns from the rows of the device on the machine, without those of the kernel `without` (0: of none).
 *   errors   SX_INPUT too few kernels with several rows */
sx_code sx_correction_fit(sx_ctx *cx, const sx_measured *rows, const char *machine,
                          const char *device, uint64_t without, sx_correction *correction);
/* How near to the fastest schedule of its kernel the first choice is: geometric means and worst cases, of the model,
 * and of corrections learned without the kernel that they are judged by. */
typedef struct {
    uint32_t kernels;
    double model, model_worst, corrected, corrected_worst;
} sx_correction_score;
sx_code sx_correction_judge(sx_ctx *cx, const sx_measured *rows, const char *machine,
                            const char *device, sx_correction_score *score);
void sx_correction_print(const sx_correction *correction, sx_buf *text);
/* An empty text is no correction.
 *   errors   SX_INPUT another version, or no such text; SX_CORRUPT the hash is another one */
sx_code sx_correction_parse(sx_ctx *cx, sx_span text, sx_correction *correction);
/* The rows of the text that were measured on this machine, and the correction learned there, as a text in cx's arena:
 * those of others are of no use here. Empty: there are none. A correction that is damaged, or of another version, is
 * left out: *ignored says why in cx's arena, NULL: nothing was.
 *   errors   as those of parsing rows */
sx_code sx_measured_here(sx_ctx *cx, sx_span text, const char *machine, sx_span *here,
                         const char **ignored);
#endif
