/* row_space.c - the schedules of elementwise and row kernels: rows and columns of a grid point. They are bound
 * by memory: points are neither tiny nor few. Where lanes are threads a point costs no call, and as many are wanted
 * as warps run at once: there they may be as small as the vectors in straight line. */
#include <math.h>

#include "core/search/space.h"

#define POINT_BYTES \
    32768.0 /* of a grid point, about: long enough to hide the call, short enough to balance */
#define MAP_COLUMNS_MIN 1024 /* of a grid point, where there are as many */
#define MAP_COLUMNS_MAX 65536

/* Vectors in straight line: more for short programs, whose loop overhead shows. */
static uint32_t copies(const sx_analysis *a)
{
    return a->program_length <= 4 ? 4 : a->program_length <= 12 ? 2 : 1;
}

static bool calls_points(const sx_device *device)
{
    return device->block_threads == 0;
}

/* Grid points of `columns` columns and, from 1 on, powers of two of rows. */
static sx_code price_rows(sx_search_space *space, int64_t columns)
{
    const sx_device *device = space->device;
    const sx_analysis *a = space->a;
    sx_search_result *result = space->result;
    int64_t all = a->extent[SX_ROLE_ROW];
    double tiles = ceil((double)a->extent[SX_ROLE_COLUMN] / (double)columns);
    for (int64_t rows = 1;; rows *= 2) {
        bool last = rows >= all;
        double points = ceil((double)all / (double)rows) * tiles;
        double point_bytes = a->bytes / ((double)all * tiles) * (double)rows;
        if (rows > 1 && point_bytes > device->l2_bytes / 2 && points < 4.0 * device->cores) {
            SX_TRY(sx_search_drop(space, &result->dropped_resources, 1));
        } else if (calls_points(device) && !last && point_bytes < POINT_BYTES / 32 &&
                   points > 64.0 * device->cores) {
            /* the call would cost as much as the work */
            SX_TRY(sx_search_drop(space, &result->dropped_alignment, 1));
        } else {
            sx_schedule schedule;
            if (a->kind == SX_KERNEL_MAP) {
                sx_schedule_map(device->lanes, rows, columns, copies(a), &schedule);
            } else {
                sx_schedule_row(device->lanes, a->lane_bytes, a->along, rows, columns, &schedule);
            }
            SX_TRY(sx_search_price(space, &schedule));
        }
        if (last) {
            return SX_OK;
        }
    }
}

sx_code sx_search_rows(sx_search_space *space)
{
    const sx_analysis *a = space->a;
    int64_t all = a->extent[SX_ROLE_COLUMN];
    bool map = a->kind == SX_KERNEL_MAP;
    int64_t most = map ? MAP_COLUMNS_MAX : SX_EXTENT_MAX;
    int64_t lanes = space->device->lanes;
    int64_t least = !map                          ? lanes
                    : calls_points(space->device) ? MAP_COLUMNS_MIN
                                                  : lanes * copies(a);
    for (int64_t columns = least;; columns *= 4) {
        bool last = columns >= all || columns >= most;
        SX_TRY(price_rows(space, sx_min_i64(columns, all)));
        if (last) {
            return SX_OK;
        }
    }
}
