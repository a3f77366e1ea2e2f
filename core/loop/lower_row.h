/* lower_row.h - what the files of row kernels share. Internal to core/loop. */
#ifndef SX_CORE_LOOP_LOWER_ROW_H
#define SX_CORE_LOOP_LOWER_ROW_H
#include "core/loop/lower.h"

typedef enum { SLOT_NONE, SLOT_RESULT, SLOT_WORKSPACE, SLOT_REGISTER } slot_kind;
typedef enum { PASS_REDUCE, PASS_KEEP, PASS_RESULT } pass_kind;
/* Vectors of a line of lanes that have several elements. */
#define LINE_VECTORS_MAX (2 * SX_ROW_LINE_MAX)
typedef struct {
    uint32_t axis[SX_RANK_MAX]; /* reduced dimensions, outermost first */
    uint32_t axis_count;
    bool along;
    uint32_t lanes;   /* of the virtual shape */
    uint32_t halves;  /* registers of a virtual vector, */
    uint32_t share;   /* or virtual vectors side by side in a register: one of the two is 1 */
    uint32_t reduced; /* set of view dimensions */
    slot_kind slot[SX_FUSED_INSTRS_MAX];
    int64_t slot_offset[SX_FUSED_INSTRS_MAX]; /* bytes in the workspace */
    bool filled[SX_FUSED_INSTRS_MAX];         /* the slot holds the values of this row */
    uint32_t workspace;                       /* buffer */
    /* Results that are full: their instructions and numbers; the one that a slot may lie in. */
    uint32_t root[SX_FUSED_RESULTS_MAX], result[SX_FUSED_RESULTS_MAX];
    uint32_t root_count, slot_result;
    /* The running pass: its instruction, and the values that it takes at every element. */
    uint32_t target;
    const uint32_t *value;
    uint32_t value_count;
    pass_kind pass;
    uint32_t acc[SX_ROW_ACCUMULATORS][2];
    /* Elements of a lane side by side. */
    uint32_t width;
    int64_t line; /* elements of the row in straight line, where there are lines */
    bool holds;   /* the line is the row; of lanes with several elements */
    /* By vector of the line and instruction: the register of what was loaded or kept, or SX_NO_REG; SX_NO_REG itself
     * for `vector` where none is worked at. NULL: there are no lines. */
    uint32_t (*held)[SX_FUSED_INSTRS_MAX];
    uint32_t vector;
    uint32_t made[SX_FUSED_RESULTS_MAX][2]; /* values of vectors side by side, of each result */
    uint32_t reached; /* lanes that the end of the row fills up, by the virtual shape */
    /* How the plan cuts the row, and how many warps walk its pieces side by side; 0: one walks them in turn. */
    sx_row_pieces cut;
    uint32_t warps;
    /* What of the row is walked now: so many elements from `begin` on, where the position stands. */
    int64_t begin, length;
    /* Bytes: where in the workspace the sums of pieces lie, of the reduction to come. */
    int64_t sums;
    uint32_t total; /* the register of what the pieces add up to */
} sx_lower_rows;

/* Is the schedule of a form of row kernels, and does it keep the numerics plan? Sets width, line, held, holds, warps.
 *   errors   SX_INPUT it is not, or does not */
sx_code sx_lower_row_match(sx_lower *l, sx_lower_rows *r);
#endif
