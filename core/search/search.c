#include "core/search/search.h"

#include <string.h>

#include "core/kernel/online_pieces.h"
#include "core/search/space.h"
#include "core/target/target.h"

static void keep(sx_search_result *result, const sx_schedule *schedule, double cost_ns)
{
    uint32_t at = result->best_count;
    while (at > 0 && result->best[at - 1].cost_ns > cost_ns) {
        at--;
    }
    if (at == result->keep) {
        return;
    }
    uint32_t last = result->best_count < result->keep ? result->best_count++ : result->keep - 1;
    for (uint32_t i = last; i > at; i--) {
        result->best[i] = result->best[i - 1];
    }
    result->best[at] = (sx_search_candidate){*schedule, cost_ns};
}

sx_code sx_search_drop(sx_search_space *space, uint32_t *phase, uint32_t count)
{
    space->result->considered += count;
    *phase += count;
    return sx_spend(space->cx, 1);
}

sx_code sx_search_keep(sx_search_space *space, const sx_schedule *schedule, double ns)
{
    SX_TRY(sx_spend(space->cx, 1));
    space->result->considered++;
    keep(space->result, schedule, ns);
    return SX_OK;
}

sx_code sx_search_price(sx_search_space *space, const sx_schedule *schedule)
{
    double ns = sx_cost_schedule(space->device, space->a, schedule, space->rhs_constant);
    return sx_search_keep(space, schedule, ns);
}

/* ---- blocks of threads ---- */

/* The stride of an argument along a dimension of the space; -1: it is not known. Dimensions of one element have theirs,
 * too. */
static int64_t stride_of(const sx_analysis *a, uint32_t argument, uint32_t dim)
{
    sx_dim stride = a->body->access[argument].stride[dim];
    return sx_dim_is_constant(stride) ? stride.scale : -1;
}

#define ENGINE_ELEMENTS 8 /* of two bytes: what the copy engine reads begins at multiples of 16 */
#define ENGINE_STEPS_LEAST 16 /* an instruction; a sum of one step has no stride */
#define ENGINE_KEPT_MAX 3 /* dimensions beside the sum, so that the rank of a map is at most 5 */

/* Can the copy engine read a factor, whatever the extents of rows and batch are? The sum lies side by side, or the last
 * kept dimension, the columns, which then only this factor has. Rows that lie side by side would put their number into
 * the stride of the sum. */
static bool engine_reads(const sx_analysis *a, uint32_t argument, uint32_t other)
{
    const sx_dim offset = a->body->access[argument].offset;
    uint32_t side_by_side = 0, kept = 0, last = SX_NO_DIM;
    bool reads = sx_dim_is_constant(offset) && offset.scale % ENGINE_ELEMENTS == 0;
    for (uint32_t d = 0; d < a->fused->type.rank; d++) {
        last = (a->body->axes >> d & 1) == 0 ? d : last;
    }
    for (uint32_t d = 0; reads && d < a->fused->type.rank; d++) {
        int64_t stride = stride_of(a, argument, d);
        bool sum = (a->body->axes >> d & 1) != 0;
        kept += !sum && stride != 0 ? 1 : 0;
        if (stride == 1) {
            side_by_side++;
            reads = sum || (d == last && stride_of(a, other, d) == 0);
        } else {
            reads = stride >= 0 && stride % ENGINE_ELEMENTS == 0;
        }
    }
    return reads && side_by_side == 1 && kept <= ENGINE_KEPT_MAX;
}

/* A factor whose rows lie side by side is read so, too, or from a copy whose steps are multiples of 16 bytes apart
 * (sx_search_copies_rows): how many rows there are does not matter. */
static bool engine_reads_rows(const sx_analysis *a, uint32_t argument)
{
    const sx_dim offset = a->body->access[argument].offset;
    uint32_t kept = 0, of;
    int64_t apart = sx_rows_beside(a, &of);
    for (uint32_t d = 0; d < a->fused->type.rank; d++) {
        kept += (a->body->axes >> d & 1) == 0 && stride_of(a, argument, d) != 0 ? 1 : 0;
    }
    return apart > 0 && of == argument && sx_dim_is_constant(offset) &&
           offset.scale % apart % ENGINE_ELEMENTS == 0 && kept <= ENGINE_KEPT_MAX;
}

/* Is the code of the operation free of calls? Divisions and roots are calls to the assembler, and beside these it makes
 * the products of groups of warps wait for each other (its advisory C7509), for a multiple of their time. */
static bool is_inline(sx_op op)
{
    switch ((int)op) {
    case SX_OP_NEGATE:
    case SX_OP_ABS:
    case SX_OP_EXP:
    case SX_OP_ADD:
    case SX_OP_SUBTRACT:
    case SX_OP_MULTIPLY:
    case SX_OP_MAXIMUM:
    case SX_OP_MINIMUM:
    case SX_OP_COMPARE:
    case SX_OP_SELECT:
    case SX_OP_CONVERT:
    case SX_OP_NOT:
    case SX_OP_AND:
    case SX_OP_OR:
    case SX_OP_XOR:
    case SX_OP_SHIFT_LEFT:
    case SX_OP_SHIFT_RIGHT_ARITHMETIC:
    case SX_OP_SHIFT_RIGHT_LOGICAL:
    case SX_OP_FLOOR:
    case SX_OP_CEIL:
    case SX_OP_ROUND:
    case SX_OP_SIGN: return true;
    default: return false;
    }
}

static bool is_all_inline(const sx_body *body)
{
    bool inlined = true;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        inlined = inlined && (body->instr[i].kind != SX_BODY_APPLY || is_inline(body->instr[i].op));
    }
    return inlined;
}

uint32_t sx_search_matrices(const sx_device *device, const struct sx_target *target)
{
    SX_ASSERT(device != NULL && target != NULL);
    return target->matrix_count + (sx_device_allows_tf32(device) ? target->rounding_count : 0);
}

const sx_matrix_instruction *sx_search_matrix(const sx_analysis *a,
                                              const sx_matrix_instruction *matrix, uint32_t count)
{
    SX_ASSERT(a->kind == SX_KERNEL_DOT);
    const sx_matrix_instruction *found = NULL;
    bool engine = a->extent[SX_ROLE_SUM] >= ENGINE_STEPS_LEAST &&
                  (engine_reads(a, a->lhs, a->rhs) || engine_reads_rows(a, a->lhs)) &&
                  (engine_reads(a, a->rhs, a->lhs) || engine_reads_rows(a, a->rhs)) &&
                  is_all_inline(a->body);
    sx_dtype left = a->input[a->lhs].dtype, right = a->input[a->rhs].dtype;
    for (uint32_t i = 0; i < count; i++) {
        /* What follows a sum is computed in its type. */
        bool sums = sx_dtype_bytes(matrix[i].sum) == a->lane_bytes;
        if (matrix[i].factor != left || left != right || !sums) {
            continue;
        }
        if (found == NULL ? matrix[i].warps == 1
                          : found->warps == 1 && matrix[i].warps > 1 && engine) {
            found = &matrix[i];
        }
    }
    return found;
}

int64_t sx_search_copies_rows(const sx_analysis *a, const sx_matrix_instruction *matrix,
                              uint32_t count)
{
    uint32_t argument;
    int64_t apart = sx_rows_beside(a, &argument);
    const sx_matrix_instruction *found = apart == 0 ? NULL : sx_search_matrix(a, matrix, count);
    bool by_engine = found != NULL && found->warps > 1;
    return by_engine && apart % ENGINE_ELEMENTS != 0 ? ENGINE_ELEMENTS : 0;
}

static sx_code search_block(const sx_search_space *of, const sx_matrix_instruction *matrix,
                            uint32_t keep_count, sx_search_result *result)
{
    SX_ASSERT(keep_count >= 1 && keep_count <= SX_SEARCH_KEEP && of->device->block_threads > 0);
    *result = (sx_search_result){.keep = keep_count, .floor_ns = sx_cost_floor(of->device, of->a)};
    if (sx_search_takes_blocks(of->a)) {
        sx_analysis blocks;
        sx_analysis_of_blocks(of->a, &blocks);
        sx_search_space space = *of;
        space.a = &blocks;
        space.result = result;
        SX_TRY(sx_search_blocks(&space, matrix));
    }
    return SX_OK;
}

sx_code sx_search_block(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                        const sx_matrix_instruction *matrix, sx_search_sides sides,
                        uint32_t keep_count, sx_search_result *result)
{
    const sx_search_space space = {.cx = cx, .device = device, .a = a, .sides = sides};
    return search_block(&space, matrix, keep_count, result);
}

static bool runs_blocks(const sx_target *target)
{
    uint32_t bindings = 1u << SX_BIND_WARP | 1u << SX_BIND_LANE;
    return target != NULL && (target->bindings & bindings) == bindings &&
           (target->spaces >> SX_SPACE_SHARED & 1) != 0;
}

/* Block schedules have half of the places. With a matrix instruction they come first, and those of the loop IR are left
 * for sx_search_rest; without one, those of the loop IR come in between, as cheap as they are, and what is dearer than
 * half of the places is left: prices of blocks are the bound of the others then. */
static sx_code search_contractions(sx_search_space *space)
{
    const sx_analysis *a = space->a;
    const sx_target *target = sx_target_find(NULL, space->device->target);
    sx_search_result *result = space->result;
    if (!runs_blocks(target) || space->device->block_threads == 0 || !sx_search_takes_blocks(a)) {
        return sx_search_dot(space);
    }
    const sx_matrix_instruction *matrix =
        sx_search_matrix(a, target->matrix, sx_search_matrices(space->device, target));
    sx_dtype lane = a->lane_bytes == 8 ? SX_F64 : SX_F32;
    bool lanes = a->input[a->lhs].dtype == lane && a->input[a->rhs].dtype == lane;
    if (matrix == NULL && !lanes) {
        return sx_search_dot(space);
    }
    uint32_t places = result->keep;
    SX_TRY(search_block(space, matrix, (places + 1) / 2, result));
    result->keep = places;
    if (result->best_count == 0 || (matrix == NULL && space->rest)) {
        return sx_search_dot(space);
    }
    if (matrix == NULL) {
        result->keep = result->best_count;
        SX_TRY(sx_search_dot(space));
        result->keep = places;
    }
    result->matrix_count = matrix != NULL ? result->best_count : 0;
    result->more = result->best_count < places;
    result->dearer = matrix == NULL;
    return SX_OK;
}

/* The instruction of an online sum by blocks, or NULL: it is made without. */
static const sx_matrix_instruction *online_matrix(const sx_analysis *a, const sx_device *device)
{
    const sx_target *target = sx_target_find(NULL, device->target);
    return runs_blocks(target) && device->block_threads > 0
               ? sx_search_online_matrix(a, target->matrix, target->matrix_count)
               : NULL;
}

int64_t sx_search_piece(const sx_analysis *a, const sx_device *device)
{
    return a->kind == SX_KERNEL_ONLINE ? sx_search_online_piece(a, device, online_matrix(a, device))
                                       : 0;
}

static sx_code search(sx_search_space *space);

/* An online sum in pieces: the schedules are those of the pieces, the price is that of both launches. */
static sx_code search_pieces(sx_search_space *space, const sx_matrix_instruction *matrix,
                             int64_t piece)
{
    sx_online_pieces p; /* large, and for each price another one: not in memory of the request */
    sx_search_result *result = space->result, both = {.keep = 1};
    SX_TRY(sx_online_pieces_of_price(space->cx, space->a, piece, &p));
    sx_search_space of = *space;
    of.a = &p.partial_analysis;
    SX_TRY(sx_search_online_blocks(&of, matrix));
    of.a = &p.combine_analysis;
    of.result = &both;
    both.floor_ns = sx_cost_floor(space->device, of.a);
    SX_TRY(search(&of));
    result->considered += both.considered;
    for (uint32_t i = 0; i < result->best_count; i++) {
        double ns = result->best[i].cost_ns + both.best[0].cost_ns;
        result->best[i].cost_ns = ns > result->floor_ns ? ns : result->floor_ns;
    }
    result->matrix_count = result->best_count;
    return SX_OK;
}

/* The same for online sums: blocks only multiply by matrix instructions. */
static sx_code search_online(sx_search_space *space)
{
    sx_search_result *result = space->result;
    const sx_matrix_instruction *matrix = online_matrix(space->a, space->device);
    int64_t piece = sx_search_online_piece(space->a, space->device, matrix);
    if (piece != 0) {
        return search_pieces(space, matrix, piece);
    }
    if (matrix == NULL) {
        return sx_search_online(space);
    }
    uint32_t places = result->keep;
    result->keep = (places + 1) / 2;
    SX_TRY(sx_search_online_blocks(space, matrix));
    result->keep = places;
    if (result->best_count == 0) {
        return sx_search_online(space);
    }
    result->matrix_count = result->best_count;
    /* the loop IR has no second results */
    result->more = result->best_count < places && space->a->statistic == NULL;
    return SX_OK;
}

static sx_code search(sx_search_space *space)
{
    sx_search_result *result = space->result;
    switch (space->a->kind) {
    case SX_KERNEL_DOT: SX_TRY(search_contractions(space)); break;
    case SX_KERNEL_ONLINE:
    case SX_KERNEL_NESTED: SX_TRY(search_online(space)); break;
    case SX_KERNEL_MAP:
    case SX_KERNEL_ROW: SX_TRY(sx_search_rows(space)); break;
    }
    SX_ASSERT(result->best_count > 0);
    SX_ASSERT(result->best[0].cost_ns >= result->floor_ns);
    return SX_OK;
}

static bool is_among(const sx_search_result *result, const sx_schedule *schedule)
{
    bool among = false;
    for (uint32_t i = 0; i < result->best_count && !among; i++) {
        among = sx_schedule_equal(&result->best[i].schedule, schedule);
    }
    return among;
}

/* The schedules of all places, behind those that were found first. */
static sx_code search_places(sx_search_space *space)
{
    sx_search_result *result = space->result, all = {.keep = result->keep};
    all.floor_ns = result->floor_ns;
    space->result = &all;
    space->rest = true;
    sx_code code = search(space);
    space->result = result;
    for (uint32_t i = 0; code == SX_OK && i < all.best_count; i++) {
        if (result->best_count < result->keep && !is_among(result, &all.best[i].schedule)) {
            result->best[result->best_count++] = all.best[i];
        }
    }
    result->considered += all.considered;
    result->more = result->dearer = false;
    return code;
}

/* Schedules of the loop IR, behind those of blocks whatever they cost. */
static sx_code search_rest(sx_search_space *space)
{
    sx_search_result *result = space->result, others = *result;
    SX_ASSERT(result->more && result->best_count < result->keep);
    others.best_count = 0;
    others.keep = result->keep - result->best_count;
    others.more = false;
    space->result = &others;
    bool online = space->a->kind == SX_KERNEL_ONLINE || space->a->kind == SX_KERNEL_NESTED;
    sx_code code = online ? sx_search_online(space) : sx_search_dot(space);
    space->result = result;
    if (code != SX_OK) {
        return code;
    }
    sx_search_result both = others; /* with the counts of all */
    both.keep = result->keep;
    both.best_count = result->best_count + others.best_count;
    memcpy(both.best, result->best, result->best_count * sizeof(both.best[0]));
    memcpy(both.best + result->best_count, others.best, others.best_count * sizeof(both.best[0]));
    *result = both;
    return SX_OK;
}

static sx_code search_some(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                           bool rhs_constant, bool all, uint32_t keep_count,
                           sx_search_result *result)
{
    SX_ASSERT(keep_count >= 1 && keep_count <= SX_SEARCH_KEEP);
    sx_device of_lanes = *device; /* f64 and i64: half as many in a vector register */
    of_lanes.lanes = sx_device_lanes(device, a->lane_bytes);
    *result = (sx_search_result){.keep = keep_count, .floor_ns = sx_cost_floor(&of_lanes, a)};
    if (device->target == NULL) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "target %s: no code generator", device->name);
    }
    sx_search_space space = {cx, &of_lanes, a, rhs_constant, result, all, 0, SX_SIDES_BOTH, false};
    return search(&space);
}

sx_code sx_search_first(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                        bool rhs_constant, uint32_t keep_count, sx_search_result *result)
{
    return search_some(cx, a, device, rhs_constant, false, keep_count, result);
}

sx_code sx_search_rest(sx_ctx *cx, const sx_analysis *a, const sx_device *device, bool rhs_constant,
                       sx_search_result *result)
{
    sx_device of_lanes = *device;
    of_lanes.lanes = sx_device_lanes(device, a->lane_bytes);
    sx_search_space space = {cx, &of_lanes,     a,    rhs_constant, result, false,
                             0,  SX_SIDES_BOTH, false};
    if (!result->more) {
        return SX_OK;
    }
    return result->dearer ? search_places(&space) : search_rest(&space);
}

sx_code sx_search_smaller(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                          sx_search_result *result)
{
    const sx_target *target = sx_target_find(NULL, device->target);
    sx_search_space space = {.cx = cx, .device = device, .a = a, .held_max = INT64_MAX};
    sx_block_tiles t;
    SX_ASSERT(result->matrix_count > 0 && result->matrix_count == result->best_count);
    for (uint32_t i = 0; i < result->best_count && a->kind == SX_KERNEL_DOT; i++) {
        bool blocks = sx_block_tiles_of(&result->best[i].schedule, &t);
        SX_ASSERT(blocks);
        space.held_max = sx_min_i64(space.held_max, t.warp_rows * t.warp_columns / 2);
    }
    result->best_count = result->matrix_count = 0;
    result->more = true;
    if (a->kind == SX_KERNEL_DOT) { /* warps of an online sum hold the same whatever the schedule */
        const sx_matrix_instruction *matrix =
            sx_search_matrix(a, target->matrix, sx_search_matrices(device, target));
        sx_search_result smaller;
        SX_TRY(search_block(&space, matrix, result->keep, &smaller));
        smaller.considered += result->considered;
        smaller.matrix_count = smaller.best_count;
        smaller.more = smaller.best_count < smaller.keep;
        *result = smaller;
    }
    return SX_OK;
}

sx_code sx_search_kernel(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                         bool rhs_constant, uint32_t keep_count, sx_search_result *result)
{
    SX_TRY(sx_search_first(cx, a, device, rhs_constant, keep_count, result));
    return sx_search_rest(cx, a, device, rhs_constant, result);
}

sx_code sx_search_exhaustive(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                             bool rhs_constant, uint32_t keep_count, sx_search_result *result)
{
    return search_some(cx, a, device, rhs_constant, true, keep_count, result);
}
