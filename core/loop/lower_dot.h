/* lower_dot.h - which dimensions of a contraction are rows, columns and batch; shared by the contraction and its packing. */
#ifndef SX_CORE_LOOP_LOWER_DOT_H
#define SX_CORE_LOOP_LOWER_DOT_H
#include "core/loop/lower.h"

typedef struct {
    uint32_t instr;    /* the DOT */
    uint32_t lhs, rhs; /* arguments after the exchange */
    bool swapped;
    uint32_t m_dim, n_dim; /* view dimensions or SX_NO_DIM */
    bool lhs_by_lane; /* the left argument varies along n_dim as well (batch across the lanes) */
    int64_t packed_bytes; /* of the panels, once packed */
} sx_dot_view;

/* Classifies the dimensions of `view` (fresh from sx_view_make), merges it, exchanges the arguments where only the left one varies
 * along the last dimension of the result. */
sx_code sx_dot_view_make(sx_ctx *cx, const sx_body *body, sx_view *view, sx_dot_view *dot);
/* Replaces the strides of the right argument by those of the packed panels: along n_dim they hold for whole panels only, a vector
 * inside a panel adds its columns. */
sx_code sx_dot_view_pack(sx_ctx *cx, const sx_body *body, sx_view *view, const sx_lower_plan *plan,
                         sx_dot_view *dot);
#endif
