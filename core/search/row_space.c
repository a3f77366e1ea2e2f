/* row_space.c - the schedules of elementwise and row kernels: rows and columns of a grid point. They are bound
 * by memory: points are neither tiny nor few. Where lanes are threads a point costs no call, and as many are wanted
 * as warps run at once: there they may be as small as the vectors in straight line. */
#include <math.h>

#include "core/search/space.h"

#define POINT_BYTES \
    32768.0 /* of a grid point, about: long enough to hide the call, short enough to balance */
#define MAP_COLUMNS_MIN 1024 /* of a grid point, where there are as many */
#define MAP_COLUMNS_MAX 65536
#define LINE_MAX 16     /* elements of a thread in straight line, where it has several */
#define ACCESS_BYTES 16 /* that a thread reads or writes at once */

/* Vectors in straight line, or as many times `width` vectors: more for short programs, whose loop overhead shows. Wide
 * ones are as many as leave no rest of the columns, if some do: a rest is a launch of its own. */
static uint32_t copies(const sx_analysis *a, uint32_t lanes, uint32_t width)
{
    uint32_t count = a->program_length <= 4 ? 4 : a->program_length <= 12 ? 2 : 1;
    if (width == 1) {
        return count;
    }
    count = count * width > LINE_MAX ? LINE_MAX / width : count;
    uint32_t whole = count;
    while (whole > 1 && a->extent[SX_ROLE_COLUMN] % ((int64_t)lanes * width * whole) != 0) {
        whole /= 2;
    }
    bool none = a->extent[SX_ROLE_COLUMN] % ((int64_t)lanes * width * whole) != 0;
    return none ? count : whole;
}

static bool calls_points(const sx_device *device)
{
    return device->block_threads == 0;
}

/* ---- rows whose lanes have two elements side by side ---- */
#define HELD_MAX 128     /* registers of a thread for elements of its row */
#define GRID_MAX 65535   /* points of a grid of blocks along a dimension, but the last */
#define LOOP_CHUNKS 8    /* steps of a row's virtual shape in straight line, where it is not held */
#define LINE_STEPS_MIN 8 /* of a chain across the rows in straight line */
#define LINE_HELD_MAX 64 /* registers of a thread for what they read */
#define SHARED_SUMS_MAX 49152.0 /* bytes of a block for the sums of pieces of a chain */

/* Steps of the virtual shape in straight line: the whole row where its elements fit into registers; 0: no such form. */
static uint32_t row_chunks(const sx_device *device, const sx_analysis *a, bool holds)
{
    int64_t chunk = SX_ROW_CHUNK(4);
    uint32_t inner = sx_view_inner_reduced(&a->view);
    if (calls_points(device) || a->kind != SX_KERNEL_ROW || !a->along || a->lane_bytes != 4 ||
        2 * device->lanes != chunk || inner == SX_NO_DIM) {
        return 0;
    }
    int64_t length = a->view.extent[inner];
    int64_t all = sx_ceil_div_i64(length, chunk);
    bool alone = (a->reduced & (a->reduced - 1)) == 0;
    if (!holds) {
        return all > LOOP_CHUNKS ? LOOP_CHUNKS : 0;
    }
    bool fits = alone && all <= SX_ROW_LINE_MAX && 2 * all * a->passes.arguments_again <= HELD_MAX;
    return fits ? (uint32_t)all : 0;
}

static sx_code price_wide_rows(sx_search_space *space, uint32_t chunks)
{
    int64_t all = space->a->extent[SX_ROLE_ROW];
    for (int64_t rows = 1; rows <= 4; rows *= 2) {
        sx_schedule schedule;
        sx_schedule_row_wide(rows, chunks, &schedule);
        SX_TRY(sx_search_price(space, &schedule));
        if (rows >= all) {
            break;
        }
    }
    return SX_OK;
}

/* How the plan cuts rows whose pieces blocks of warps may walk, one row in a point; count 1: they may not. */
static sx_row_pieces pieces_of(const sx_search_space *space)
{
    const sx_analysis *a = space->a;
    uint32_t inner = sx_view_inner_reduced(&a->view);
    bool may = !calls_points(space->device) && a->kind == SX_KERNEL_ROW && inner != SX_NO_DIM &&
               (a->reduced & (a->reduced - 1)) == 0;
    for (uint32_t d = 0; may && d < a->view.rank; d++) {
        may = d == inner || a->view.extent[d] <= GRID_MAX;
    }
    return may ? sx_row_cut(a->view.extent[inner], a->lane_bytes) : (sx_row_pieces){.count = 1};
}

/* Blocks of warps for the pieces of a long row along the lanes. */
static sx_code price_blocks_of_rows(sx_search_space *space)
{
    const sx_device *device = space->device;
    const sx_analysis *a = space->a;
    const sx_row_pieces cut = pieces_of(space);
    if (!a->along) {
        return SX_OK;
    }
    bool wide = a->lane_bytes == 4 && 2 * device->lanes == SX_ROW_CHUNK(4);
    for (uint32_t warps = (uint32_t)cut.count; warps > 1; warps /= 2) {
        sx_schedule schedule;
        if (warps * device->lanes > device->block_threads) {
            continue;
        }
        if (wide) {
            sx_schedule_row_wide(1, LOOP_CHUNKS, &schedule);
        } else {
            sx_schedule_row(device->lanes, a->lane_bytes, true, 1, 1, &schedule);
        }
        sx_schedule_row_warps(&cut, warps, &schedule);
        SX_TRY(sx_search_price(space, &schedule));
    }
    return SX_OK;
}

/* Grid points of `columns` columns and, from 1 on, powers of two of rows. `width`: elements of a lane side by side;
 * `line`: steps of a row's chain in straight line. */
static sx_code price_rows(sx_search_space *space, uint32_t width, uint32_t line, int64_t columns)
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
            if (a->kind == SX_KERNEL_MAP && width > 1) {
                sx_schedule_map_wide(device->lanes, width, rows, columns,
                                     copies(a, device->lanes, width), &schedule);
            } else if (a->kind == SX_KERNEL_MAP) {
                sx_schedule_map(device->lanes, rows, columns, copies(a, device->lanes, width),
                                &schedule);
            } else {
                sx_schedule_row(device->lanes, a->lane_bytes, a->along, rows, columns, &schedule);
                if (line > 1) {
                    sx_schedule_row_line(line, &schedule);
                }
            }
            SX_TRY(sx_search_price(space, &schedule));
        }
        if (last) {
            return SX_OK;
        }
    }
}

/* Are the extents that rows are summed up over the same for every value of a symbol? */
static bool sums_constant(const sx_analysis *a)
{
    bool constant = true;
    for (uint32_t d = 0; d < a->fused->type.rank; d++) {
        bool reduced = (a->body->axes >> d & 1) != 0;
        constant = constant && (!reduced || sx_dim_is_constant(a->fused->type.dim[d]));
    }
    return constant;
}

/* The same across the rows, for as many rows as there are lanes, with `line` steps of a piece's chain in straight line.
 * The sums of all pieces lie in shared memory. */
static sx_code price_blocks_of_chains(sx_search_space *space, uint32_t line)
{
    const sx_device *device = space->device;
    const sx_analysis *a = space->a;
    const sx_row_pieces cut = pieces_of(space);
    double sums = a->passes.reductions * (double)(cut.count + 1) * a->lane_bytes;
    for (uint32_t warps = (uint32_t)cut.count; warps > 1; warps /= 2) {
        sx_schedule schedule;
        if (warps * device->lanes > device->block_threads ||
            sums * device->lanes > SHARED_SUMS_MAX) {
            continue;
        }
        sx_schedule_row(device->lanes, a->lane_bytes, false, 1, device->lanes, &schedule);
        if (line > 1) {
            sx_schedule_row_line(line, &schedule);
        }
        sx_schedule_row_warps(&cut, warps, &schedule);
        SX_TRY(sx_search_price(space, &schedule));
    }
    return SX_OK;
}

/* Chains across the rows, by warps and by blocks of them, in lines whose elements fit into registers; a program for
 * several extents has none of those along which its lines would end elsewhere. */
static sx_code price_lines(sx_search_space *space)
{
    const sx_analysis *a = space->a;
    uint32_t inner = sx_view_inner_reduced(&a->view);
    if (calls_points(space->device) || a->kind != SX_KERNEL_ROW || a->along || inner == SX_NO_DIM ||
        (a->steady && !sums_constant(a))) {
        return SX_OK;
    }
    if (a->lane_bytes != 4) { /* there are no lines */
        return price_blocks_of_chains(space, 1);
    }
    int64_t columns = sx_min_i64(space->device->lanes, a->extent[SX_ROLE_COLUMN]);
    for (uint32_t line = LINE_STEPS_MIN; line <= SX_ROW_LINE_MAX; line *= 2) {
        if (line <= a->view.extent[inner] && line * a->input_count <= LINE_HELD_MAX) {
            SX_TRY(price_rows(space, 1, line, columns));
            SX_TRY(price_blocks_of_chains(space, line));
        }
    }
    return SX_OK;
}

/* Elements that a thread reads or writes by one access of 16 bytes, of the narrowest tensor; 1 where lanes are no
 * threads, or where a tensor's rows do not begin at multiples of so many, or where elements side by side in it are not
 * side by side in the kernel. */
static uint32_t lane_width(const sx_device *device, const sx_analysis *a)
{
    const sx_view *view = &a->view;
    uint32_t narrowest = sx_dtype_bytes(a->result.dtype);
    if (calls_points(device) || a->kind != SX_KERNEL_MAP || a->lane == SX_NO_DIM) {
        return 1;
    }
    for (uint32_t k = 0; k < a->input_count; k++) {
        narrowest = (uint32_t)sx_min_i64(narrowest, sx_dtype_bytes(a->input[k].dtype));
    }
    for (uint32_t k = 0; k < a->result_count; k++) {
        narrowest = (uint32_t)sx_min_i64(narrowest, sx_dtype_bytes(a->root_dtype[k]));
    }
    uint32_t width = (uint32_t)sx_min_i64(SX_LANE_WIDTH_MAX, ACCESS_BYTES / narrowest);
    for (uint32_t k = 0; k <= a->input_count; k++) {
        bool result = k == a->input_count;
        const int64_t *stride = result ? view->out_stride : view->stride[k];
        int64_t along = stride[a->lane];
        int64_t all = result ? view->out_offset : view->offset[k];
        for (uint32_t d = 0; d < view->rank; d++) {
            all |= d == a->lane ? 0 : stride[d];
        }
        while (width > 1 && along != 0 && all % width != 0) {
            width /= 2;
        }
        width = along > 1 || along < 0 ? 1 : width;
    }
    return width;
}

/* Squares that a warp turns in registers, where a tensor lies along the rows. */
static sx_code price_squares(sx_search_space *space)
{
    uint32_t lanes = space->device->lanes;
    sx_schedule schedule;
    if (calls_points(space->device) || sx_analysis_turned_rows(space->a, lanes) == SX_NO_DIM) {
        return SX_OK;
    }
    sx_schedule_map(lanes, lanes, lanes, 1, &schedule);
    return sx_search_price(space, &schedule);
}

sx_code sx_search_rows(sx_search_space *space)
{
    const sx_analysis *a = space->a;
    int64_t all = a->extent[SX_ROLE_COLUMN];
    bool map = a->kind == SX_KERNEL_MAP;
    int64_t most = map ? MAP_COLUMNS_MAX : SX_EXTENT_MAX;
    int64_t lanes = space->device->lanes;
    /* Of equally cheap schedules the first wins: the one with the fewest instructions, or reads. */
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t chunks = row_chunks(space->device, a, k == 0);
        if (chunks > 0) {
            SX_TRY(price_wide_rows(space, chunks));
        }
    }
    SX_TRY(price_blocks_of_rows(space));
    SX_TRY(price_squares(space));
    SX_TRY(price_lines(space));
    for (uint32_t width = lane_width(space->device, a); width >= 1; width /= 2) {
        int64_t line = lanes * copies(a, space->device->lanes, width) * width;
        int64_t least = !map ? lanes : calls_points(space->device) ? MAP_COLUMNS_MIN : line;
        if (width > 1 && line > all) {
            continue;
        }
        for (int64_t columns = least;; columns *= 4) {
            bool last = columns >= all || columns >= most;
            SX_TRY(price_rows(space, width, 1, sx_min_i64(columns, all)));
            if (last) {
                break;
            }
        }
    }
    return SX_OK;
}
