/* shard.h - how the tensors of a program lie on a mesh of devices: declaration, text, transfer of placements
 * through operations.
 *
 * A mesh has named axes; a device has one coordinate on each. A tensor has one placement per axis (words of
 * PyTorch's DTensor):
 *   S(d)    dimension d is cut into as many equal pieces as the axis has devices, piece k lies at coordinate k
 *   R       every device of the axis has all of it
 *   P(sum)  it is the sum, P(max) the maximum, P(min) the minimum of what the devices hold
 * Where several axes cut the same dimension, the axis declared first cuts first. What a program computes does
 * not depend on placements: values are global. The sharding of a graph says how its parameters lie (R where
 * nothing is said) and how its outputs are wanted.
 *
 * Along one axis, with everything as it lies along the others, an operation maps placements of its operands to
 * a placement of its result that needs no communication: a row. sx_shard_list gives them (a table for
 * arithmetic, dimension by dimension for the rest), and sx_shard_local_attr the operation that each device
 * runs then. A value that is R is also S(d) (a device keeps its slice), P(max), P(min), and P(sum) (all but
 * the first device hold zeros): sx_shard_closure.
 * Papers: Xu et al. 2021 (GSPMD); Wang et al. 2019 (partial sums as a state of a tensor: SBP of OneFlow, Yuan
 * et al. 2021).
 */
#ifndef SX_CORE_IR_SHARD_H
#define SX_CORE_IR_SHARD_H
#include "core/ir/ir.h"

#define SX_MESH_AXES_MAX 4u
#define SX_MESH_DEVICES_MAX (INT64_C(1) << 20)

/* S(d) is d itself. */
typedef enum {
    SX_PLACE_R = SX_RANK_MAX,
    SX_PLACE_SUM,
    SX_PLACE_MAX,
    SX_PLACE_MIN,
    SX_PLACE_COUNT
} sx_place_kind;
typedef uint8_t sx_shard_place;
#define SX_PLACE_BIT(place) (1u << (place))

typedef struct {
    sx_shard_place at[SX_MESH_AXES_MAX]; /* SX_PLACE_R beyond the axes of the mesh */
} sx_places;
typedef struct {
    sx_span name;
    int64_t size; /* devices along it, at least 1 */
} sx_mesh_axis;
typedef struct {
    uint32_t index; /* node of a parameter, or number of an output */
    sx_places places;
} sx_placed;
typedef struct sx_sharding {
    sx_mesh_axis axis[SX_MESH_AXES_MAX];
    uint32_t axis_count;
    sx_placed *parameter; /* by ascending index; those that are R along every axis are not listed */
    uint32_t parameter_count, parameter_capacity;
    sx_placed *output; /* by ascending index; those of which nothing is asked are not listed */
    uint32_t output_count, output_capacity;
} sx_sharding;

/* ---- shard.c ---- */
sx_places sx_places_none(void); /* R along every axis */
bool sx_places_equal(const sx_places *a, const sx_places *b);
/* The mesh of `graph` gets one more axis.  errors  SX_INPUT named twice, size below 1; SX_LIMIT axes, devices */
sx_code sx_mesh_add_axis(sx_ctx *cx, sx_graph *graph, sx_span name, int64_t size);
/* The axis of that name; SX_MESH_AXES_MAX where there is none. */
uint32_t sx_mesh_find_axis(const sx_graph *graph, sx_span name);
/* Says how a parameter lies, or how an output is wanted; each in ascending order.
 *   errors   SX_INPUT a dimension the tensor does not have or that is not cut into equal pieces, a bool that
 *            is P (the text form refuses other parameters too; those of parts of a program may be). The
 *            extent of a symbolic dimension must have a value that is; sx_graph_bind looks at the one it gets. */
sx_code sx_graph_place(sx_ctx *cx, sx_graph *graph, sx_node_id parameter, const sx_places *places);
sx_code sx_graph_want(sx_ctx *cx, sx_graph *graph, uint32_t output, const sx_places *places);
/* How a node that is a parameter lies; R without a sharding. */
sx_places sx_graph_places(const sx_graph *graph, uint32_t parameter);
/* What is asked of an output; NULL: nothing. */
const sx_places *sx_graph_wanted(const sx_graph *graph, uint32_t output);
/* `to` gets the sharding of `from`: node n of it is image[n] of `to` (NULL: the same number), outputs have the
 * same numbers. */
sx_code sx_sharding_copy(sx_ctx *cx, const sx_graph *from, const uint32_t *image, sx_graph *to);
/* The same where `to` has the parameters and outputs of `from` in their order, among other nodes (what an
 * optimiser gives). */
sx_code sx_sharding_restore(sx_ctx *cx, const sx_graph *from, sx_graph *to);
/* The sharding of a graph once more, as sx_graph_check does. */
sx_code sx_sharding_check(sx_ctx *cx, const sx_graph *graph);
/* The multiple that each symbol's value is known to be, from the parameters that are cut along it; [SX_SYMBOLS_MAX]. */
void sx_sharding_multiples(const sx_graph *graph, int64_t *multiple);

/* ---- shard_rows.c: one operation along one axis ---- */
typedef struct {
    sx_op op;
    const sx_attr *attr;
    const sx_type *operand, *result;
    uint32_t operand_count;
    int64_t size;            /* devices along the axis */
    const int64_t *multiple; /* sx_sharding_multiples; NULL: types are static */
} sx_shard_op;
typedef struct {
    sx_shard_place operand[SX_INPUTS_MAX];
    sx_shard_place result;
} sx_shard_row;
#define SX_SHARD_ROWS_MAX 40u
typedef struct {
    uint32_t count;
    sx_shard_row row[SX_SHARD_ROWS_MAX];
} sx_shard_rows;
/* All rows of an operation other than parameter, each of its own (none follows from another by the closure). */
void sx_shard_list(const sx_shard_op *op, sx_shard_rows *rows);
/* Placements a tensor of this type can have at all, as a set of SX_PLACE_BIT. */
uint32_t sx_shard_possible(const sx_type *type, int64_t size, const int64_t *multiple);
/* `set` and what it has without communication: all possible ones where it holds R. */
uint32_t sx_shard_closure(uint32_t set, uint32_t possible);
/* Placements of the result, closed, when operand k can have those in set[k]; monotone. */
uint32_t sx_shard_transfer(const sx_shard_op *op, const uint32_t *set);

/* What each device runs under a row: attribute and types with the pieces' extents. Types must be static.
 * Rows of a broadcast and a convolution in groups need their attributes changed, so does a slice; everything
 * else runs as it is. */
void sx_shard_local_type(sx_type *type, sx_shard_place place, int64_t size);
void sx_shard_local_attr(const sx_shard_op *op, const sx_shard_row *row, sx_attr *local);

/* ---- shard_text.c: "{dp = S(0), tp = P(sum)}", " mesh (dp = 4, tp = 8)" ---- */
void sx_place_print(sx_shard_place place, sx_buf *text);
void sx_places_print(const sx_sharding *sharding, const sx_places *places, sx_buf *text);
void sx_mesh_print(const sx_sharding *sharding, sx_buf *text);
#endif
