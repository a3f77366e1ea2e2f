/* apart.c - rows of a contraction or an online sum in groups. */
#include "core/kernel/apart.h"

/* The number that a dimension of the view has behind a new one at `at`. */
static uint32_t moved(uint32_t dim, uint32_t at)
{
    return dim != SX_NO_DIM && dim >= at ? dim + 1 : dim;
}

/* A set of dimensions; what holds of the one that is cut holds of both. */
static uint32_t moved_set(uint32_t set, uint32_t at)
{
    uint32_t below = set & ((1u << at) - 1), above = set >> at;
    return below | above << (at + 1) | (above & 1) << at;
}

static bool has_index(const sx_analysis *a, uint32_t dim)
{
    bool found = false;
    for (uint32_t i = 0; i < a->body->instr_count; i++) {
        const sx_instr *in = &a->body->instr[i];
        found = found || (in->kind == SX_BODY_INDEX && a->view.view_dim[in->x] == dim);
    }
    return found;
}

static void put_dimension(sx_analysis *a, uint32_t at, int64_t groups)
{
    sx_view *view = &a->view;
    int64_t rows = view->extent[at] / groups;
    for (uint32_t d = view->rank; d-- > at;) {
        view->extent[d + 1] = view->extent[d];
        view->out_stride[d + 1] = view->out_stride[d];
        view->klass[d + 1] = view->klass[d];
        view->reduced[d + 1] = view->reduced[d];
        view->inner[d + 1] = view->inner[d];
        a->role[d + 1] = a->role[d];
        for (uint32_t k = 0; k < a->body->arg_count; k++) {
            view->stride[k][d + 1] = view->stride[k][d];
        }
    }
    view->rank++;
    view->extent[at] = groups;
    view->extent[at + 1] = rows;
    view->out_stride[at] *= rows; /* within the space, as the extents are */
    for (uint32_t k = 0; k < a->body->arg_count; k++) {
        view->stride[k][at] *= rows;
    }
    for (uint32_t s = 0; s < SX_RANK_MAX; s++) {
        view->view_dim[s] = moved(view->view_dim[s], at);
    }
}

bool sx_analysis_rows_in_groups(sx_analysis *a, int64_t groups)
{
    uint32_t at = a->row;
    SX_ASSERT(groups >= 1 && (a->kind == SX_KERNEL_DOT || a->kind == SX_KERNEL_ONLINE));
    if (at == SX_NO_DIM || a->view.rank == SX_RANK_MAX || a->view.extent[at] % groups != 0 ||
        has_index(a, at)) {
        return false;
    }
    if (groups == 1) {
        return true;
    }
    put_dimension(a, at, groups);
    a->role[at] = SX_ROLE_BATCH;
    a->extent[SX_ROLE_BATCH] *= groups;
    a->extent[SX_ROLE_ROW] /= groups;
    a->lane = moved(a->lane, at);
    a->row = moved(a->row, at);
    a->column = moved(a->column, at);
    a->keys = moved(a->keys, at);
    a->reduced = moved_set(a->reduced, at);
    for (uint32_t i = 0; i < a->body->instr_count; i++) {
        a->varies[i] = moved_set(a->varies[i], at);
    }
    SX_ASSERT(a->role[a->row] == SX_ROLE_ROW && a->row == at + 1);
    return true;
}
