/* lower.h - shared by the lowerings of this folder: positions in the space of the analysis, and program values there.
 *
 * A lowering walks the space by loops and grid variables. The position is an affine form per dimension of the
 * view; addresses of arguments and of the result follow from it. At a position, `vector_dim` runs across the
 * lanes (SX_NO_DIM: all lanes equal) and `valid` lanes are inside.
 */
#ifndef SX_CORE_LOOP_LOWER_H
#define SX_CORE_LOOP_LOWER_H
#include "core/loop/loop.h"

/* An integer that moves with loops: a constant, and a coefficient for each variable of the program. */
typedef struct {
    int64_t constant;
    int64_t coef[SX_LOOP_VARS_MAX];
} sx_affine;

typedef struct sx_lower sx_lower;
struct sx_lower {
    sx_ctx *cx;
    sx_kernel *kernel;
    sx_loop_builder b;
    const sx_analysis *analysis;
    /* Elements keep their bits, because nothing is computed. */
    bool moves;
    const sx_schedule *schedule;
    /* NULL where panels are packed and in moves, which neither round nor have register blocks. */
    const sx_vector_unit *unit;
    const sx_body *body;
    /* That of the analysis; where an argument is packed, with the strides of its panels. */
    sx_view view;
    /* For each argument its type, and the buffer of the kernel in which it lies. */
    sx_dtype arg_dtype[SX_FUSED_ARGS_MAX];
    uint32_t arg_buffer[SX_FUSED_ARGS_MAX];
    /* The result that is written, its type and its buffer; the view has its strides. Of several it is the one that was
     * chosen last, at first the first one; their buffers follow each other. */
    sx_dtype out_dtype;
    uint32_t out_buffer, out_result;
    uint32_t lanes;
    /* The dimension that sx_analysis_own gives, and its extent, 0 where there is none: `view` and `analysis` have
     * SX_LOWER_HIDDEN there. */
    uint32_t own;
    int64_t own_extent;
    /* The position: an index along each dimension of the view. */
    sx_affine at[SX_RANK_MAX];
    /* The dimension that runs across the lanes, or SX_NO_DIM. */
    uint32_t vector_dim;
    /* How many elements of it lie from one lane to the next, at least 1. */
    int64_t lane_step;
    /* How many lanes, from the first on, are inside the space. */
    uint32_t valid;
    /* For each instruction of the body: the register of its value, and whether it is written at this position. */
    uint32_t reg[SX_FUSED_INSTRS_MAX];
    bool have[SX_FUSED_INSTRS_MAX];
    /* It stays written when the position moves along the vector dimension or along reduced dimensions. */
    bool pinned[SX_FUSED_INSTRS_MAX];
    /* What the lowering at work keeps beside this; its own type. */
    void *self;
};

/* In place of an extent that no program may depend on. A loop of as many iterations is refused, and so is a buffer. */
#define SX_LOWER_HIDDEN (SX_EXTENT_MAX + 1)

/* numerics.c: the id of the numerics plan; `extent`: what of the reduced dimensions the bits depend on. */
uint64_t sx_lower_numerics(const sx_lower *l, sx_kernel_kind kind, const int64_t *extent,
                           uint32_t extent_count);

/* lower_program.c: values of the program at the position. */
sx_addr sx_lower_arg_address(const sx_lower *l, uint32_t argument);
sx_addr sx_lower_out_address(const sx_lower *l);
void sx_lower_move(sx_lower *l); /* the position moved: forgets all values but the pinned ones */
uint32_t sx_lower_value(sx_lower *l, uint32_t instr);
/* An argument's elements as they lie in memory, and their values. */
uint32_t sx_lower_load_raw(sx_lower *l, uint32_t argument);
uint32_t sx_lower_loaded(sx_lower *l, uint32_t argument, uint32_t raw);
uint32_t sx_lower_load(sx_lower *l, uint32_t argument);
/* `count` elements of the argument that lie side by side from the position on. */
uint32_t sx_lower_load_along(sx_lower *l, uint32_t argument, uint32_t count);
/* The same as its bits lie in memory, for sx_lower_loaded. */
uint32_t sx_lower_load_raw_along(sx_lower *l, uint32_t argument, uint32_t count);
void sx_lower_store_out(sx_lower *l, uint32_t value,
                        sx_dtype dtype); /* `valid` lanes to the result */
/* The same in two: as elements of the result lie in memory, and there. */
uint32_t sx_lower_stored(sx_lower *l, uint32_t value, sx_dtype dtype);
void sx_lower_store_raw(sx_lower *l, uint32_t raw, sx_dtype dtype);
/* From here on the result of this number is written. */
void sx_lower_choose_result(sx_lower *l, uint32_t result);
uint32_t sx_lower_constant(sx_lower *l, sx_dtype dtype, double value);
/* The result of a reduction or contraction, of a lane's own float or integer: rounded to the type, or wrapped. */
uint32_t sx_lower_rounded(sx_lower *l, sx_dtype dtype, uint32_t value);
/* The float type that fills a lane: elements of it can hold what was not rounded yet. */
bool sx_lower_is_lane_float(const sx_lower *l, sx_dtype dtype);

/* lower_parts.c: the outer dimensions as grid and loops. A part has up to three grid variables: a dimension of
 * its own (0), and two axes that are cut in pieces (1, 2). `body` is called with the position at the start of
 * the piece, inside all loops; `length` is what it covers of the inner dimension. */
typedef void (*sx_lower_body)(sx_lower *l, int64_t length);
typedef struct {
    /* The dimension that is cut; SX_NO_DIM: there is one point. */
    uint32_t dim;
    /* The index of the first point, how many points there are, and how many elements lie from one to the next. */
    int64_t start;
    int64_t count;
    int64_t step;
} sx_grid_axis;
/* What one part covers. */
typedef struct {
    /* The dimension that has grid variable 0 for itself, or SX_NO_DIM. */
    uint32_t own;
    /* What grid variables 1 and 2 walk. */
    sx_grid_axis axis[2];
    /* The dimensions that loops walk, outermost first, and how many iterations each loop has. */
    uint32_t loop[SX_RANK_MAX];
    int64_t trip[SX_RANK_MAX];
    uint32_t loop_count;
} sx_part_plan;
sx_code sx_lower_part(sx_lower *l, const sx_part_plan *plan, int64_t length, sx_lower_body body);
/* All points of `outer` x tiles of `inner`: `rows` outer iterations per grid point (at least 1); the inner
 * dimension (or SX_NO_DIM) is cut in tiles of `tile` elements (0: all). Uneven cuts give up to four parts. */
sx_code sx_lower_parts(sx_lower *l, const uint32_t *outer, uint32_t outer_count, int64_t rows,
                       uint32_t inner, int64_t tile, sx_lower_body body);
/* Opens a loop that moves `dim` by `step` elements per iteration, unless trip is 1. */
bool sx_lower_open(sx_lower *l, uint32_t dim, int64_t trip, int64_t step);
void sx_lower_close(sx_lower *l, uint32_t dim, bool opened);

/* Registers that the blocks of contractions and online sums may take, where a machine has more. */
#define SX_BLOCK_REGISTERS_MAX 256

/* lower_pack.c: replaces the strides of the right argument in `view` by those of panels of `width` columns:
 * along the columns they hold for whole panels only, a vector inside a panel adds its columns. */
sx_code sx_lower_pack_view(sx_ctx *cx, const sx_analysis *analysis, int64_t width, sx_view *view,
                           int64_t *packed_bytes);
/* Square blocks turned in registers. Row i of `lanes` registers has lane j; afterwards row j has lane i. The masks are
 * those of the stages: stage s exchanges what differs in bit s of row and lane. */
#define SX_TURN_STAGES 5
_Static_assert(1 << SX_TURN_STAGES == SX_LOOP_LANES_MAX, "a stage for each bit of a lane's number");
void sx_lower_turn_masks(sx_lower *l, uint32_t mask[SX_TURN_STAGES]);
void sx_lower_turn(sx_lower *l, uint32_t row[SX_LOOP_LANES_MAX],
                   const uint32_t mask[SX_TURN_STAGES]);

/* The form of schedule that elementwise kernels and moves take. */
sx_code sx_lower_match_map(sx_ctx *cx, const sx_schedule *schedule, const char *name);
/* The same with several elements of each lane side by side (sx_schedule_map_wide). */
sx_code sx_lower_match_map_wide(sx_ctx *cx, const sx_schedule *schedule, const char *name);
sx_code sx_lower_map(sx_lower *l);
sx_code sx_lower_row(sx_lower *l);
sx_code sx_lower_dot(sx_lower *l);
sx_code sx_lower_online(sx_lower *l);
sx_code sx_lower_nested(sx_lower *l);
#endif
