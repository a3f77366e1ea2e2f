/* program.h - one block's program: what the threads of a block do together, in tiles.
 *
 * A part of a kernel (core/loop/loop.h) that has a tile runs a block of `threads` threads at each point of its grid,
 * with `shared_bytes` bytes of shared memory. What it computes is a contraction, for each element of the result
 *
 *     x0 = sum over k of left[batch, row, k] * right[batch, k, column]
 *
 * and then `map`, a program of the loop IR that makes of x0 an element of the result and stores it. Without a matrix
 * instruction the sum is one chain of fused multiply-adds in ascending k from +0, the bits of a contraction of
 * core/loop. With one, k is cut in groups of the instruction's steps, in ascending order from 0, and the last group is
 * filled up with zeros; each group is one instruction. Behind it there is none, and without instructions no step behind
 * the last k: a sum of -0 would not stay what it is.
 *
 * Where the program has slices, the sum is made in parts of `slice` steps of k, each as above, and these are added up
 * in ascending order, from +0. The threads hold the total beside the sum of the slice at work. Products that end later
 * than they begin are settled at the end of a slice.
 *
 * The point (b, i, j) of the grid computes the elements of batch b from row i * block_rows and column j * block_columns
 * on, as far as the matrices reach: b counts the points of the batch dimensions, the last one fastest. Which block of a
 * launch is which point says core/base/grid.h; with a horizon (core/tile/online.h) those of the last rows come first.
 * Where `raster` rows of blocks are visited together there is one matrix, and its grid has other points: (g, j, i) is
 * the block in row g * raster + i and column j of the blocks.
 *
 * Where blocks walk (`walkers`), each of them computes several points, one after another: every role executes its items
 * for each of them in turn, and uses of the ring are counted on. So the loading role is ahead of the others across the
 * points, too: it brings the first stages of the next one while they run `map`.
 *
 * Steps of k come through the stages of a ring in shared memory, block_steps of them in each.
 *
 * Warps have roles. A role is a list of items, executed in their order. Roles meet at the ring alone; where two have
 * the same warps, as on GPUs without a copy engine, these warps execute both, the loading one depth - 1 stages ahead.
 * With a copy engine (TMA) the loading role is one warp, and a thread of it starts the copies of whole boxes; the
 * other warps multiply by instructions that read the stages themselves (wgmma) and end later, when they are settled.
 * Layouts, places in shared memory and numbers of arrivals are in the program; barriers, waits and the cutting of the
 * edges follow from it by rule.
 */
#ifndef SX_CORE_TILE_PROGRAM_H
#define SX_CORE_TILE_PROGRAM_H
#include "core/loop/loop.h"
#include "core/tile/descriptor.h"
#include "core/tile/ring.h"

/* An argument as matrices, of which a block reads tiles. "Side" is the row of a left argument, the column of a right
 * one. Beyond the extents there are zeros. */
typedef struct {
    /* The number of the buffer in the kernel. */
    uint32_t buffer;
    sx_dtype element;
    /* All that follows is in elements: where it begins, and how far it is to the next index along the side, along k and
     * along each dimension of the batch; 0 along what it does not vary with. */
    int64_t offset;
    int64_t side_stride, sum_stride;
    int64_t batch_stride[SX_RANK_MAX];
    int64_t side_extent, sum_extent;
} sx_tile_view;

/* A view as the copy engine reads it. Dimension 0 of its map is the one whose elements lie side by side in the slot,
 * dimension 1 the other one of k and the side; then those of the batch along which the view moves, in the order of
 * `batch`, which has their numbers. It begins where the view does. */
typedef struct {
    sx_tensor_map map;
    uint8_t batch[SX_TENSOR_RANK_MAX - 2];
} sx_tile_boxes;

/* A factor: a tile of its view in each stage of the ring, and how threads read it there. Where the copy engine copies
 * it, `boxes` says how; then no thread holds elements of it, and what follows `sum_inner` is 0. */
typedef struct {
    sx_tile_view view;
    sx_tile_boxes boxes;
    /* The rows of its slot (the slot of the ring has the number of the operand) are indices of the side, and k runs
     * along them; otherwise the rows are k. */
    bool sum_inner;
    /* How many bytes are copied at once. 16, 8 and 4 do not pass through registers; fewer: one element, which does. */
    uint32_t copy_bytes;
    /* Which thread copies which element; where several hold the same one, the first copies it. Both layouts are of the
     * slot's rows and columns: [side, k] where k is inner, else [k, side]. */
    sx_layout copied;
    /* How many steps of k threads hold at once, and which thread holds which element of them. */
    uint32_t group;
    sx_layout held;
} sx_tile_operand;
/* The third one is of nested contractions with two inner ones (core/tile/online.h). */
enum { SX_TILE_LEFT, SX_TILE_RIGHT, SX_TILE_SECOND, SX_TILE_OPERANDS_MAX };

typedef enum {
    SX_TILE_ACQUIRE,  /* waits until the next stage of the ring is free */
    SX_TILE_FETCH,    /* copies the tile of `operand` into the stage that was acquired last */
    SX_TILE_PUBLISH,  /* says that the stage acquired last is full */
    SX_TILE_FILL,     /* all sums become 0 */
    SX_TILE_WAIT,     /* waits until the next stage is full */
    SX_TILE_MULTIPLY, /* adds the products of the stage that was waited for last, or begins to */
    SX_TILE_SETTLE,   /* waits until no more than the last `back` multiplications are under way */
    SX_TILE_RELEASE, /* frees the stage waited for `back` waits ago; nothing where there was none */
    SX_TILE_MAP,     /* runs `map` for each element of the block */
    SX_TILE_LOOP,    /* the items up to END, once for each stage of k */
    SX_TILE_END
} sx_tile_op;

typedef struct {
    sx_tile_op op;
    uint32_t operand; /* of a FETCH: SX_TILE_LEFT, SX_TILE_RIGHT or SX_TILE_SECOND */
    uint32_t back;    /* of a RELEASE or SETTLE */
} sx_tile_item;

#define SX_TILE_ITEMS_MAX 16
typedef struct {
    const char *name;
    uint32_t first_warp, warps;
    sx_tile_item item[SX_TILE_ITEMS_MAX];
    uint32_t item_count;
} sx_tile_role;

/* The variables of `map` beside those of the grid: the row and the column of the element in the whole matrix, and its
 * index along each dimension of the batch. These are the loops that would stand around it if one thread did all
 * elements, outermost first. */
enum { SX_TILE_VAR_ROW = 3, SX_TILE_VAR_COLUMN = 4, SX_TILE_VAR_BATCH = 5 };

/* How the copy engine stores the result. Each group of warps that multiplies together has `depth` slots of its own, one
 * behind the other from `offset` on, in the order of the groups. It fills one with the elements that its threads hold
 * of `slot.rows` rows and as many columns as a row of the slot has, and a thread of it has the engine store them; the
 * next ones go into the next slot, when the engine has read it. What lies beyond the edges is not stored. `view` is
 * the result, whose side are the columns and whose sum are the rows. A depth of 0: threads store. */
typedef struct {
    uint32_t depth;
    uint32_t offset;
    sx_slot slot;
    sx_tile_view view;
    sx_tile_boxes boxes;
} sx_tile_store;

/* What makes of a tile an online sum: core/tile/online.h. */
typedef struct sx_tile_online sx_tile_online;

struct sx_tile {
    /* Of a block: whole warps; and its shared memory, from an address on that is a multiple of 1024. */
    uint32_t threads;
    uint32_t shared_bytes;
    /* The matrices: how many rows and columns the result has and how long the sums are; and the batch of them. */
    int64_t rows, columns, sum;
    /* Of matrix instructions: steps of k in a slice, whole stages; the slices are equal. 0: there is one. */
    int64_t slice;
    int64_t batch[SX_RANK_MAX];
    uint32_t batch_count;
    uint32_t block_rows, block_columns, block_steps;
    /* Rows of blocks that are visited together; they divide all of them. 0: one after another. */
    uint32_t raster;
    /* So many blocks walk over the points of the grid (core/base/grid.h), those of a cluster together. With a copy
     * engine alone. 0: each point is a block. */
    uint32_t walkers;
    /* Blocks side by side along the rows, or along the columns, that are a cluster; up to 1: none. They share a factor,
     * the right one along the rows and the left one along the columns. Each fetches its part of the boxes of that one
     * into the stages of all of them, which are full when every part has come, and free for everybody when all blocks
     * have freed them: the barriers of the ring count `empty_arrivals` of each block. No block ends before the others
     * are done with its memory. Everything else of the program is of one block. */
    uint32_t cluster_rows, cluster_columns;
    /* SX_TILE_LEFT, SX_TILE_RIGHT and, where sx_tile_operands says 3, SX_TILE_SECOND. */
    sx_tile_operand operand[SX_TILE_OPERANDS_MAX];
    sx_ring ring;
    /* NULL: fused multiply-adds of threads. */
    const sx_matrix_instruction *matrix;
    /* Factors are copied by the copy engine; else by the threads of the loading role. */
    bool by_engine;
    /* The result is stored by it, too. */
    sx_tile_store store;
    /* Which thread of the role that multiplies holds the sum of which row and column of the block; each once. */
    sx_layout held;
    /* The element's program: no loops, vector registers hold one element of each thread. Loads are LOADB, stores have
     * one lane, addresses depend on the variables above alone. Vector register 0 is the sum, which is written before.
     * The part's grid has no meaning. */
    sx_part map;
    sx_tile_role role[SX_ROLES_MAX];
    uint32_t role_count;
    /* NULL: a contraction, as above. */
    const sx_tile_online *online;
};

/* What blocks are lowered for. */
typedef struct {
    const sx_vector_unit *vectors;
    const sx_matrix_instruction *matrix;
    uint32_t matrix_count;
    /* Of a block; and the 32-bit registers of a multiprocessor, all of which one block may take. */
    uint32_t shared_bytes;
    uint32_t threads;
    uint32_t registers;
} sx_tile_unit;

/* lower_dot.c: a contraction under a schedule of sx_schedule_block, checked. Buffers: arguments in order, result.
 *   errors   SX_UNIMPLEMENTED the kernel or the numbers of the schedule; SX_LIMIT shared memory, registers, threads,
 *            extents of the grid */
sx_code sx_tile_lower_dot(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                          const sx_analysis *analysis, const sx_schedule *schedule,
                          sx_kernel **kernel);

/* engine.c: how the copy engine reads an operand's view into its slot. The slots of the ring have been made.
 *   errors   SX_UNIMPLEMENTED no elements side by side, strides that are no multiples of 16 bytes, or more dimensions
 *            than a map has */
sx_code sx_tile_boxes_of(sx_ctx *cx, const sx_tile *tile, uint32_t which, sx_tile_boxes *boxes);
/* engine.c: how the copy engine stores what `map` stores: its view, its slot and its boxes, in the place of
 * tile->store. `element` is the type of the result. The layout of the sums and the number of slots are known.
 *   errors   SX_UNIMPLEMENTED as above; SX_INPUT a map that stores otherwise than one element at its row and column */
sx_code sx_tile_store_of(sx_ctx *cx, const sx_tile *tile, sx_dtype element, sx_tile_store *store);
/* How many groups of warps multiply. */
uint32_t sx_tile_groups(const sx_tile *tile);
/* A slot as the operand of a matrix instruction that reads shared memory. */
sx_code sx_tile_descriptor_of(sx_ctx *cx, const sx_tile *tile, uint32_t which,
                              sx_wgmma_operand *operand);

/* lower_slices.c: under a schedule whose slices are made by different blocks, the two kernels of sx_slices. First the
 * sums of the slices; buffers are the left argument, the right one and the sums. Then the launch that adds them up;
 * buffers are the arguments in order, with the sums in place of the left one, and the result. Its numerics plan is that
 * of the contraction whose slices one block makes, which has the same bits.
 *   errors   those of sx_tile_lower_dot and sx_slices_make */
sx_code sx_tile_lower_slices(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                             const sx_analysis *analysis, const sx_schedule *schedule,
                             sx_kernel **kernel);
sx_code sx_tile_lower_combine(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                              const sx_analysis *analysis, const sx_schedule *schedule,
                              sx_kernel **kernel);

/* The id of a contraction's plan: by the instruction (NULL: fused multiply-adds), in slices of so many steps, or 0. */
uint64_t sx_tile_numerics(const sx_tile_unit *unit, const sx_analysis *analysis,
                          const sx_matrix_instruction *matrix, int64_t slice);

/* How many operands pass through the ring. */
uint32_t sx_tile_operands(const sx_tile *tile);
/* Is this factor fetched by all blocks of a cluster together, and by how many? */
static inline uint32_t sx_tile_sharers(const sx_tile *tile, uint32_t which)
{
    uint32_t blocks = which == SX_TILE_LEFT ? tile->cluster_columns : tile->cluster_rows;
    return blocks > 1 ? blocks : 1;
}
/* check.c: the blocks of a cluster along each index of the grid, all 1 where there is none; false: they do not divide
 * it, or it is folded (core/base/grid.h). */
bool sx_tile_cluster(const sx_tile *tile, const int64_t grid[3], uint32_t cluster[3]);
/* check.c: can these clusters walk, where blocks do? Blocks that walk are counted along the grid, its last index
 * fastest (core/base/grid.h). So a cluster lies along that index, where its blocks have numbers side by side; and with
 * whole clusters of walkers each goes from one cluster of points to another one. */
bool sx_tile_cluster_walks(const sx_tile *tile, const uint32_t cluster[3]);
/* check.c: the grid of a contraction; false: its rows cannot be visited together so. */
bool sx_tile_grid(const sx_tile *tile, int64_t grid[3]);
/* check.c: a part with a tile is well formed. Its layouts hold every element of the block once; roles meet at the ring
 * without a fault in every interleaving; the matrices and all that `map` touches lie in their buffers; copies are
 * aligned. sx_kernel_check does not look into tiles.
 *   errors   SX_INPUT says what is wrong */
sx_code sx_tile_check(sx_ctx *cx, const sx_kernel *kernel, const sx_part *part);
/* print.c: for people. */
sx_code sx_tile_print(sx_ctx *cx, const sx_part *part, sx_buf *text);
#endif
