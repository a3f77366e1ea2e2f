/* kernel.h - what one kernel computes and how it is to be run: the analysis of a fused body, and the schedule
 * as a value.
 *
 * The analysis is made once for a fused node with concrete extents; search, cost, legality, lowering and
 * reports read it and derive nothing of it again. It says which part (role) each dimension of the iteration
 * space plays:
 *
 *   role    letter map kernel      row kernel    contraction                  online sum (attention), nested
 *   BATCH   b      -               -             kept, no other role          kept, no other role
 *   ROW     m      all but COLUMN  kept          longest of the left operand  rows of the scores (queries)
 *   COLUMN  n      contiguous      kept, lanes   last of the result           columns of the values
 *   SUM     k      -               reduced       reduced                      summed with the weights (keys)
 *   INNER   d      -               -             -                            reduced inside the scores
 *
 * A schedule cuts these axes in pieces and says what walks the pieces (core/kernel/schedule.c has the text form):
 *
 *   grid(b, m/112, n/256) loop(n/32, m/14, k/4) register(k, m, n/16) lane(n) stage(arg1: memory)
 *
 * reads: a grid point covers 112 rows and 256 columns; inside it panels of 32 columns, strips of 14 rows and
 * groups of 4 steps of k are loops, outermost first; the 4 steps, 14 rows and 2 vectors of a group are
 * unrolled in registers; a vector is 16 columns; argument 1 is copied to memory in the order it is read (as
 * panels of the 32 columns) by a launch of its own.
 *
 * Compare: roles are the classes of BLAS and of linalg.contraction (MLIR); schedules are linear schedule trees
 * (Verdoolaege 2014). */
#ifndef SX_CORE_KERNEL_KERNEL_H
#define SX_CORE_KERNEL_KERNEL_H
#include "core/ir/fused.h"

#define SX_NO_DIM UINT32_MAX
#define SX_NO_INSTR UINT32_MAX

/* ---- the iteration space as strides (view.c) ---- */
/* The space without dimensions of extent 1, neighbours merged where every argument and the result allow it. */
typedef struct {
    uint32_t rank;
    int64_t extent[SX_RANK_MAX];
    /* Strides and offsets are in elements. */
    int64_t stride[SX_FUSED_ARGS_MAX][SX_RANK_MAX];
    int64_t offset[SX_FUSED_ARGS_MAX];
    /* 0 along dimensions that the result does not have. */
    int64_t out_stride[SX_RANK_MAX];
    int64_t out_offset;
    /* Dimensions of different classes are never merged. */
    uint32_t klass[SX_RANK_MAX];
    bool reduced[SX_RANK_MAX];
    /* Reduced by the DOT under an ONLINE; never merged with other reduced ones. */
    bool inner[SX_RANK_MAX];
    /* Of the space: its last dimension that is kept, or reduced over more than one element, is reduced. */
    bool last_reduced;
    /* For each dimension of the space the dimension of the view; SX_NO_DIM where its extent is 1. */
    uint32_t view_dim[SX_RANK_MAX];
} sx_view;
/* The view of a fused node, nothing merged. `symbol_value`: a value for each symbol; NULL where all extents
 * are constants.
 *   errors   SX_INPUT arguments that do not fit; SX_UNIMPLEMENTED an empty dimension; SX_LIMIT more than
 *            SX_SPACE_MAX points */
sx_code sx_view_make(sx_ctx *cx, const sx_attr *fused, const sx_type *input, uint32_t input_count,
                     const int64_t *symbol_value, sx_view *view);
void sx_view_merge(const sx_body *body, sx_view *view);
/* Strides of a result that has all dimensions, or (`full` false) those that are not reduced; 0 along the others. */
void sx_view_result_strides(const sx_view *view, bool full, int64_t stride[SX_RANK_MAX]);

/* ---- analysis (analysis.c, work.c) ---- */
typedef enum {
    SX_ROLE_BATCH,
    SX_ROLE_ROW,
    SX_ROLE_COLUMN,
    SX_ROLE_SUM,
    SX_ROLE_INNER,
    SX_ROLE_COUNT
} sx_role;
char sx_role_letter(sx_role role);

/* A contraction over inner dimensions, of arguments along rows (lhs) and along keys (rhs): the numbers of its
 * instruction and of the arguments. */
typedef struct {
    uint32_t dot, lhs, rhs;
} sx_inner_product;

/* How a row kernel walks its rows: once for each reduction, and for the result where it is full. */
typedef struct {
    /* Walks that read arguments. */
    uint32_t passes;
    uint32_t reductions;
    /* How many arguments more than one of them reads, and the bytes that all but the first read, of the whole
     * kernel. */
    uint32_t arguments_again;
    double bytes_again;
    /* A long function of an element is used by more than one. */
    bool makes_again;
} sx_row_passes;
typedef struct {
    /* What was analysed; borrowed. */
    const sx_attr *fused;
    /* The body of `fused`. */
    const sx_body *body;
    const sx_type *input;
    uint32_t input_count;
    /* The type of its result; of several one of the shape of the space. */
    sx_type result;
    /* For each result the instruction that is its value, its element type, and whether it has the reduced dimensions. A
     * node has one result, its last instruction. */
    uint32_t result_count;
    uint32_t root[SX_FUSED_RESULTS_MAX];
    sx_dtype root_dtype[SX_FUSED_RESULTS_MAX];
    bool root_full[SX_FUSED_RESULTS_MAX];

    sx_kernel_kind kind;
    sx_view view;
    /* The role of each dimension of the view. */
    sx_role role[SX_RANK_MAX];
    /* The role of each dimension of the space; one of extent 1 counts as batch. */
    sx_role space_role[SX_RANK_MAX];
    /* For each role the product of the extents of its dimensions; 1 where it has none. */
    int64_t extent[SX_ROLE_COUNT];
    /* For each instruction the dimensions of the view along which its value varies, a set of 1 << dimension. */
    uint32_t varies[SX_FUSED_INSTRS_MAX];
    /* The dimensions of the view that are reduced, a set of 1 << dimension. */
    uint32_t reduced;
    /* The result, or one of several, has the reduced dimensions too. */
    bool full;
    /* Of a row kernel: lanes run along the reduced dimensions, and not across the rows. */
    bool along;
    /* The dimension that runs across the lanes, or SX_NO_DIM. */
    uint32_t lane;
    /* How many bytes a lane has: 8 where a value, an input or the result is f64 or i64, and for quotients of
     * i32, which are made of doubles; else 4. */
    uint32_t lane_bytes;

    /* The dimensions that blocks are cut from, or SX_NO_DIM: the longest row dimension, the last column, the keys. */
    uint32_t row, column, keys;
    /* Contraction, and the scores of an online sum: its instruction, or SX_NO_INSTR, and the arguments it
     * multiplies. `lhs` varies along the rows. They are exchanged where only the left one varies along the
     * last dimension of the result (exact: a product commutes). */
    uint32_t dot, lhs, rhs;
    bool swapped;
    /* The left argument varies along the columns as well; then batch runs across the lanes. */
    bool lhs_by_lane;
    /* How many matrices [k, columns] the right argument holds: one for each point of the batch, and of the
     * columns that are not blocked. */
    int64_t rhs_copies;
    /* Columns of the right argument are contiguous, so that panels are optional. */
    bool rhs_direct;
    /* The contraction alone reads the right argument. Otherwise it is read where it lies. */
    bool rhs_packable;
    /* Online sum: the instruction of the scores; the argument that is weighted, or SX_NO_INSTR. Nested contraction:
     * what its outer contraction, the instruction `outer`, multiplies. */
    uint32_t scores, value, outer;
    /* Of both: the contractions inside the scores. `dot`, `lhs` and `rhs` are those of the first. */
    sx_inner_product product[SX_NESTED_DOTS_MAX];
    uint32_t product_count;
    /* Of an online sum of pieces of keys (core/kernel/online_pieces.h): its second result, a value of each row; its
     * body reads nothing but scores. NULL: there is none. And its type. */
    const sx_attr *statistic;
    sx_type statistic_result;
    /* Elements that are read lane by lane, because they lie apart along the lanes; of contractions 0. Of maps and rows
     * the lines from which they come, where several lie on one. */
    double scattered;

    /* What follows is of the whole kernel. */
    /* Useful operations: one for each elementwise instruction and point, two for each step of a contraction. */
    double flops;
    /* Vector instructions, counted in elements: a function counts the length of its sequence. Cost models use
     * it. */
    double work;
    /* Distinct bytes that are read and written. */
    double bytes;
    /* Bytes that are fetched; lines of which a part is read count as whole ones, about. */
    double effort;
    /* Instructions of the program for one element; long functions count 8. */
    uint32_t program_length;
    /* The type that most of it is computed in; of a contraction the type of what it multiplies. */
    sx_dtype arithmetic;
    /* Of a row kernel; else 0. */
    sx_row_passes passes;
    /* The program is to be the one for other extents, too, but for numbers (core/cases.c): loops whose number of
     * iterations follows from extents are there whatever it is. */
    bool steady;
    /* Why no lowering takes the kernel, for people. NULL: nothing is known against it. */
    const char *refusal;
} sx_analysis;

/* Analyses a fused node of which nothing is known yet. `fused` and `input` must outlive *analysis.
 *   errors   those of sx_fused_infer and sx_view_make */
sx_code sx_analysis_make(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                         uint32_t input_count, sx_analysis *analysis);
/* The same for a node that has passed sx_fused_infer with this result; `symbol_value` as sx_view_make. */
sx_code sx_analysis_of_checked(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                               uint32_t input_count, const sx_type *result,
                               const int64_t *symbol_value, sx_analysis *analysis);
/* A kernel with several results (sx_fused_join): `whole` is its program, whose results are the instructions in `root`.
 * The element types of the results are in `dtype`. */
sx_code sx_analysis_of_results(sx_ctx *cx, const sx_attr *whole, const sx_type *input,
                               uint32_t input_count, const uint32_t *root, const sx_dtype *dtype,
                               uint32_t count, sx_analysis *analysis);
/* A contraction as blocks of threads see it: columns are a dimension that only the right argument has, or none, and a
 * batch that runs across the lanes of the loop IR is a batch. So a block has the same roles whatever the extents are:
 * that the last dimension of the result is the batch may follow from a matrix of one row or column. */
void sx_analysis_of_blocks(const sx_analysis *analysis, sx_analysis *blocks);
/* The same product as seen from its other side: rows are the columns and the right argument is the left one, so that
 * result^T = right^T left^T. What is computed is the same, in the same order. */
void sx_analysis_swap(sx_analysis *blocks);
/* The elementwise body over a box whose strides are in analysis->view, all else zero: for moves, which are no
 * fused nodes. */
void sx_analysis_of_box(const sx_body *body, sx_analysis *analysis);
/* How many elements a result has, by its number. */
int64_t sx_analysis_elements(const sx_analysis *analysis, uint32_t result);
/* Is the function a long sequence of instructions: exp, tanh, ...? */
bool sx_op_is_long(sx_op op);
/* Vector instructions of an elementwise operation, about: one instruction counts 1, functions the length of a
 * usual polynomial sequence with its range reduction. */
double sx_op_weight(sx_op op);
/* Do the elements of the argument lie side by side along `dim`, and apart along the rows? (Then squares are
 * turned in registers.) */
bool sx_analysis_is_turned(const sx_analysis *a, uint32_t argument, uint32_t dim);
/* Of an elementwise kernel some of whose arguments lie apart along the lanes: the last of the other dimensions, if all
 * of them lie along that one in elements of a lane, and both fill a vector of `lanes`; else SX_NO_DIM. */
uint32_t sx_analysis_turned_rows(const sx_analysis *a, uint32_t lanes);
/* The innermost reduced dimension, or SX_NO_DIM. */
uint32_t sx_view_inner_reduced(const sx_view *view);

/* ---- extents for which programs are the same (alike.c) ---- */
/* The dimension of an online sum, or of a nested contraction, whose points are a dimension of the grid for itself: the
 * longest batch but for the last one. No lowering sees its extent but as the size of that grid (core/loop/lower.c
 * hides it), so the program is the same one for all of them. SX_NO_DIM: there is none. */
uint32_t sx_analysis_own(const sx_analysis *analysis);
/* What lowerings read of an analysis, as words: two with equal words have the same kernel under any schedule, but for
 * flops and bytes. With `own`, a dimension that sx_analysis_own gave, its extent is no part of them: kernels then
 * differ in that dimension of the grid and in the sizes of arguments and results, too. false: nothing is said of it.
 * The last *numbers words are extents, strides, offsets and sizes, as i64; how many there are, and which is which,
 * follows from the words before. */
#define SX_ALIKE_WORDS                                                                     \
    (7u * SX_FUSED_INSTRS_MAX + (SX_FUSED_ARGS_MAX + 6u) * (SX_RANK_MAX + 1u) + 2u * 64u + \
     2u * SX_FUSED_RESULTS_MAX + 64u)
#define SX_ALIKE_NUMBERS \
    ((SX_FUSED_ARGS_MAX + 2u) * (SX_RANK_MAX + 1u) + 64u + SX_FUSED_RESULTS_MAX + 16u)
bool sx_analysis_alike(const sx_analysis *analysis, uint32_t own, uint64_t word[SX_ALIKE_WORDS],
                       uint32_t *count, uint32_t *numbers);

/* ---- slices (slices.c) ---- */
/* A contraction whose sum is cut in slices of k as two nodes. `partial` has the slices as a dimension of its batch; its
 * arguments are the two that are multiplied, its result is f32. `combine` is a row kernel that adds these sums up in
 * ascending order, from 0, and goes on with them; its arguments are those of the contraction, with the result of
 * `partial` in place of the left one, and it does not read the right one. The bodies lie inside: do not copy it. */
typedef struct {
    sx_attr partial, combine;
    sx_body partial_body, combine_body;
    sx_type partial_input[2], combine_input[SX_FUSED_ARGS_MAX];
    sx_analysis partial_analysis, combine_analysis;
} sx_slices;
/* Can it be written so? The sum goes over one dimension, and nothing else reads what is multiplied. */
bool sx_slices_apart(const sx_analysis *analysis);
/*   errors   SX_UNIMPLEMENTED it cannot, or the slices are not equal */
sx_code sx_slices_make(sx_ctx *cx, const sx_analysis *analysis, int64_t slice, sx_slices *slices);

/* ---- rows side by side (rows.c) ---- */
/* A contraction of a factor whose rows lie side by side, so that its steps are apart by as many elements as there are
 * rows: x in x^T dy. What reads it may need multiples of some number; then the contraction is one of a copy, which is a
 * concatenation of the argument, seen as `count` matrices of `input`. Nobody reads the rows behind the last one. */
#define SX_ROWS_UNIT_MAX 8
typedef struct {
    uint32_t argument;
    sx_type input[SX_ROWS_UNIT_MAX], result;
    uint32_t count;
    /* The contraction with `result` in place of that argument; the body lies inside: do not copy it. */
    sx_attr fused;
    sx_body body;
} sx_rows_copy;
/* How far the steps lie apart, and of which argument; 0: rows do not lie side by side, or other dimensions not at
 * multiples of that. How many rows there are does not change whether it is 0: a single one lies side by side, too. */
int64_t sx_rows_beside(const sx_analysis *analysis, uint32_t *argument);
/* The same where they lie apart by a multiple of `unit`.
 *   errors   SX_UNIMPLEMENTED the argument is no matrix of such rows */
sx_code sx_rows_apart(sx_ctx *cx, const sx_analysis *analysis, int64_t unit, sx_rows_copy *copy);

/* ---- schedule (schedule.c, schedule_text.c, skeleton.c) ---- */
typedef enum {
#define SX_BIND(name, enumerator, help) SX_BIND_##enumerator,
#include "core/kernel/bindings.def"
#undef SX_BIND
    SX_BIND_COUNT
} sx_bind;
/* One level: the pieces of `axis` that the levels before left are cut in pieces of `step` elements, walked by
 * `bind`. */
typedef struct {
    sx_role axis;
    sx_bind bind;
    int64_t step;
} sx_level;
const char *sx_bind_name(sx_bind bind);
typedef enum { SX_SPACE_MEMORY, SX_SPACE_SHARED, SX_SPACE_COUNT } sx_space;
const char *sx_space_name(sx_space space);
/* An argument that is copied to `space` in the order the kernel reads it; `depth` copies are in flight. Or the result,
 * which is written there first, and copied to its place from there. */
#define SX_STAGE_RESULT UINT32_MAX
typedef struct {
    uint32_t argument; /* or SX_STAGE_RESULT */
    sx_space space;
    uint32_t depth;
} sx_stage_place;
#define SX_SCHEDULE_LEVELS_MAX 24
#define SX_SCHEDULE_STAGES_MAX 5
#define SX_SCHEDULE_TEXT_MAX 512
typedef struct {
    /* outermost first; levels of one axis have falling steps, the last step is 1 */
    sx_level level[SX_SCHEDULE_LEVELS_MAX];
    uint32_t level_count;
    sx_stage_place stage[SX_SCHEDULE_STAGES_MAX];
    uint32_t stage_count;
    /* So many blocks of a GPU walk over the points of the grid (core/base/grid.h). 0: each point is a block. */
    uint32_t blocks;
} sx_schedule;
#define SX_SCHEDULE_BLOCKS_MAX 65535

/* The step of level number `nth` (0 first) of an axis under a binding; 0 where there is none. */
int64_t sx_schedule_step(const sx_schedule *s, sx_role axis, sx_bind bind, uint32_t nth);
/* sx_analysis_turned_rows under a schedule whose grid points hold such squares whole, else SX_NO_DIM. */
uint32_t sx_schedule_turned_rows(const sx_analysis *a, const sx_schedule *s);
/* Lanes of a vector register: what the level before the lanes leaves of their axis. */
uint32_t sx_schedule_lanes(const sx_schedule *s);
/* Elements that lie side by side in one lane, which has a register for each: 4 in `lane(n/4) register(n)`; 1 where no
 * level follows that of the lanes. */
#define SX_LANE_WIDTH_MAX 16
uint32_t sx_schedule_width(const sx_schedule *s);
/* The stage of an argument, or NULL. */
const sx_stage_place *sx_schedule_stage(const sx_schedule *s, uint32_t argument);
/* Is this a schedule at all, and one of this kernel? `a` may be NULL: then only the first.
 *   errors   SX_INPUT with the level, its step and what was allowed */
sx_code sx_schedule_check(sx_ctx *cx, const sx_schedule *s, const sx_analysis *a);
/* A schedule of another shape than `form` (its levels without their steps) is not what a lowering can follow.
 *   errors   SX_UNIMPLEMENTED with both shapes; `kernel` names it */
typedef struct {
    sx_role axis;
    sx_bind bind;
} sx_level_form;
sx_code sx_schedule_match(sx_ctx *cx, const sx_schedule *s, const sx_level_form *form,
                          uint32_t form_count, const char *kernel);
bool sx_schedule_equal(const sx_schedule *a, const sx_schedule *b);
uint64_t sx_schedule_hash(const sx_schedule *s);
/* Text that reads back. At most SX_SCHEDULE_TEXT_MAX bytes. */
void sx_schedule_print(const sx_schedule *s, sx_buf *text);
/*   errors   SX_INPUT with the column and what was expected there */
sx_code sx_schedule_parse(sx_ctx *cx, sx_span text, sx_schedule *s);

/* Schedules of the forms that the lowerings of core/loop follow. Extents are those of the kernel's pieces, in
 * elements. */
typedef struct {
    uint32_t lanes;
    /* The rows of the register block, and the vectors of columns that it has. */
    uint32_t block_rows;
    uint32_t block_vectors;
    /* What one point of the grid computes. */
    int64_t tile_rows, tile_columns;
    /* How many steps of k stand in straight line. */
    uint32_t unroll;
    /* The argument that comes in panels, or UINT32_MAX. */
    uint32_t panels;
} sx_contraction_tiles;
void sx_schedule_contraction(const sx_contraction_tiles *tiles, sx_schedule *s);
typedef struct {
    uint32_t lanes;
    /* How many keys, and how many columns, a register block has. */
    uint32_t strip;
    /* How many vectors of rows a register block has; a point of the grid covers as many. */
    uint32_t vectors;
    /* How many keys a block has. This belongs to the numerics plan. */
    int64_t keys;
} sx_online_tiles;
void sx_schedule_online(const sx_online_tiles *tiles, sx_schedule *s);
/* Map kernels and moves: `copies` vectors in straight line. */
void sx_schedule_map(uint32_t lanes, int64_t rows, int64_t columns, uint32_t copies,
                     sx_schedule *s);
/* The same where each lane has `width` elements side by side, a power of two from 2 to SX_LANE_WIDTH_MAX: `copies`
 * times as many vectors in straight line. */
void sx_schedule_map_wide(uint32_t lanes, uint32_t width, int64_t rows, int64_t columns,
                          uint32_t copies, sx_schedule *s);
/* Does the kernel of a scatter go over rows and indices one after the other, in a workspace that has all rows, and not
 * over all indices for each row? x has `rows` along the axis, of `row` elements each (with all dimensions behind it);
 * `picks` indices. */
bool sx_scatter_is_linear(int64_t rows, int64_t row, int64_t picks, bool threads);
/* How many pairs a kernel compares that sorts a row of n elements for the first `count` of them, with so many
 * lanes (core/loop/lower_sort.c). */
#define SX_SORT_PAIR_FLOPS \
    12 /* three comparisons of integers, two choices of a key and a tag each, loads, stores */
double sx_sort_comparisons(int64_t n, int64_t count, int64_t lanes);
/* Row kernels. Along the reduced dimensions the walk is that of the fixed virtual shape (SX_ROW_CHUNK elements
 * at a time). */
#define SX_ROW_BYTES 64       /* bytes of a vector of that shape, on every machine: 16 or 8 lanes */
#define SX_ROW_ACCUMULATORS 4 /* vectors that are summed side by side */
#define SX_ROW_CHUNK(lane_bytes) (SX_ROW_BYTES / (lane_bytes)*SX_ROW_ACCUMULATORS)
void sx_schedule_row(uint32_t lanes, uint32_t lane_bytes, bool along, int64_t rows, int64_t columns,
                     sx_schedule *s);
/* Along the reduced dimensions, where a lane of 4 bytes has two elements side by side: `chunks` steps of the virtual
 * shape in straight line, up to SX_ROW_LINE_MAX. */
#define SX_ROW_LINE_MAX 64
/* Vectors of each argument whose loads stand together, in front of what is made of them. */
#define SX_ROW_LOADED 16

/* A longer row with one reduced dimension is cut in `count` pieces of `length` elements and what is behind them,
 * `rest`. Each is summed up for itself: by the virtual shape where lanes run along it, else in one chain. From the
 * identity on their sums are added in ascending order. The cut belongs to the numerics plan: it follows from the length
 * of the row, never from the number of rows. */
#define SX_ROW_CUT 4096
#define SX_ROW_PIECE_LEAST 1024
#define SX_ROW_PIECES_MAX 32
typedef struct {
    int64_t count, length, rest;
} sx_row_pieces;
sx_row_pieces sx_row_cut(int64_t length, uint32_t lane_bytes);
/* The same schedules where `warps` warps of a block walk the pieces of a row, each as many as the others, side by side:
 * adds the level to one of sx_schedule_row, with lines or without, or sx_schedule_row_wide, with one row in a point. */
void sx_schedule_row_warps(const sx_row_pieces *pieces, uint32_t warps, sx_schedule *s);
void sx_schedule_row_wide(int64_t rows, uint32_t chunks, sx_schedule *s);
/* The schedule of sx_schedule_row across the rows with `line` steps of the chain in straight line, 2 to
 * SX_ROW_LINE_MAX: what they read is loaded before the first of them. */
void sx_schedule_row_line(uint32_t line, sx_schedule *s);

/* An instruction that multiplies small matrices: it adds to [rows, columns] the product of [rows, steps] and [steps,
 * columns]. */
typedef struct {
    const char *name;
    /* The element types of what is multiplied, and of what the products are added to. */
    sx_dtype factor, sum;
    uint32_t rows, columns, steps;
    /* How many warps execute it together: 1, or 4 that read both factors from shared memory (wgmma). */
    uint32_t warps;
    /* How it rounds: kernels of different classes never share a numerics plan. */
    const char *numerics;
    /* Long sums are made in slices of at least so many steps, see sx_matrix_slice; 0: never. */
    uint32_t slice_least;
    /* So many instructions behind it in its table differ from it in their columns alone. */
    uint32_t more;
} sx_matrix_instruction;
/* How many steps of k are summed in one chain where the whole sum has `sum` of them: equal slices, whose sums are then
 * added up in ascending order. 0: the sum is one chain. Part of the numerics plan: it follows from the instruction and
 * the length of the sum, and never from how many rows, columns or batches there are, so that a row has the same bits
 * whether its slices are made one after another or side by side. Slices are the most that sum / SX_SLICE_UNIT can be
 * divided into, SX_SLICES_MAX at most; sums shorter than SX_SLICED_FROM of the least slices have none. */
int64_t sx_matrix_slice(const sx_matrix_instruction *matrix, int64_t sum);
#define SX_SLICES_MAX 8
#define SX_SLICE_UNIT 64 /* steps: stages of a ring end where slices do, and copies stay aligned */
#define SX_SLICED_FROM 4
/* A contraction by blocks of threads that work together, whose arguments pass through a ring of stages in shared
 * memory: the schedule of a tile program (core/tile/program.h). */
typedef struct {
    /* The shape of the matrix instruction; all 0: each thread multiplies and adds by itself. */
    uint32_t matrix_rows, matrix_columns, matrix_steps;
    /* What a block computes, and how many elements of k a stage of the ring holds. */
    int64_t rows, columns, steps;
    /* The sum is made in slices of so many elements of k, whose sums are added up in ascending order; 0: in one. */
    int64_t slice;
    /* Blocks make one slice each, and a launch of its own adds them up; else a block makes one after another. */
    bool apart;
    /* What a warp of the block computes; or all warps together that execute one matrix instruction. */
    int64_t warp_rows, warp_columns;
    /* Without matrix instructions: what a thread of the warp computes; else 0. */
    uint32_t thread_rows, thread_columns;
    /* Stages of the ring, 2 to SX_BLOCK_DEPTH_MAX. */
    uint32_t depth;
    /* The arguments that are multiplied: `lhs` and `rhs` of the analysis. They may be the same. */
    uint32_t left, right;
    /* All of the above is said of the product from its other side (sx_analysis_swap): `rows` are columns, `left` is
     * `rhs`. For few rows, so that the columns fill the longer side of a matrix instruction. */
    bool swapped;
    /* Where a copy engine copies: the slots, of each group of warps, from which it stores the result while the group
     * goes on; 0: threads store it themselves. */
    uint32_t stores;
    /* So many rows of blocks are visited together, column by column, so that those which run at once share both factors
     * in the second level of the cache; 0: one row after another. */
    uint32_t raster;
    /* So many blocks walk over all tiles: while one of them stores the results of a tile, its copy engine brings the
     * first stages of the next one. Usually as many as the device holds at once. 0: each tile is a block. */
    uint32_t walkers;
    /* So many blocks side by side along the rows, or along the columns, are a cluster: each of them fetches its part of
     * the argument that they share (the right one along the rows, the left one along the columns), for all of them. 0:
     * none. One of the two may be SX_BLOCK_CLUSTER, where a copy engine copies; then it divides the blocks there. */
    uint32_t cluster_rows, cluster_columns;
} sx_block_tiles;
#define SX_BLOCK_CLUSTER 2
#define SX_BLOCK_STORES_MAX 2
#define SX_BLOCK_RASTER_MAX 64
/* Rows of a slot of the result have at most so many bytes: one copy stores SX_GROUP_ROWS of them. */
#define SX_STORE_ROW_BYTES 128
/* Bytes of an element of a result that a copy engine can store, of a contraction as blocks see it: elements of 2 or 4
 * bytes, side by side along the columns, in rows and matrices that lie apart by multiples of 16 bytes. 0: it cannot. */
uint32_t sx_block_stored_bytes(const sx_analysis *a);
#define SX_BLOCK_DEPTH_MAX 8
/* Do four warps together execute the matrix instruction (wgmma)? It reads factors that a copy engine has brought. */
#define SX_GROUP_ROWS 64
#define SX_GROUP_WARPS 4
static inline bool sx_block_by_engine(const sx_block_tiles *tiles)
{
    return tiles->matrix_rows >= SX_GROUP_ROWS;
}
/* `grid(b, m/128, n/128) loop(k/32) warp(m/64, n/32) matrix(m/16, n/8, k/16) stage(arg0: shared x3, arg1: shared x3)`;
 * without matrix instructions `... lane(m/8, n/8) register(m, n, k) ...` in their place. Slices stand before the
 * stages, `loop(k/2048, k/32)`; slices of different blocks in the grid, `grid(b, k/2048, m/128, n/128)`. Where the
 * sides are swapped, n stands in the places of m:
 * `grid(b, n/64, m/16) loop(k/64) warp(n/64, m/16) matrix(n/64, m/16, k/16)`.
 * Rows that are visited together stand around the columns, `grid(b, m/1024, n/128, m/128)`. The blocks of a cluster
 * stand inside of the grid, `grid(b, m/128, n/256) cluster(n/128)`.
 * A result that the copy engine stores is staged, too: `stage(arg0: shared x4, arg1: shared x4, result: shared x2)`.
 * Blocks that walk over the tiles are counted at the end, `... blocks(132)`. */
void sx_schedule_block(const sx_block_tiles *tiles, sx_schedule *s);
/* The numbers that a schedule was made of; false: it is not of this form. */
bool sx_block_tiles_of(const sx_schedule *s, sx_block_tiles *tiles);
#endif
