/* lower_keys.h - rows across the lanes, keys in blocks: what sums over keys share whose factors are made on the way
 * from contractions (attention and its gradients). Internal to core/loop.
 *
 * A grid point covers `width` rows, which stay in their lanes: no lane ever meets another, and a row has the same bits
 * whatever rows stand beside it. For a block of keys each product of queries and keys is a table [key][row] in the
 * workspace, made in register blocks of keys x rows: key elements broadcast, rows from a transposed copy. What the
 * lowering makes of these tables is the weight of each key and row, which replaces the first table; weights times value
 * elements, broadcast, are added to the table of results [column][row], in ascending order of the keys. At the end each
 * row leaves with lanes along the columns, through the rest of the program. */
#ifndef SX_CORE_LOOP_LOWER_KEYS_H
#define SX_CORE_LOOP_LOWER_KEYS_H
#include "core/loop/lower.h"

/* A contraction over the inner dimensions. */
typedef struct {
    uint32_t dot;        /* its instruction */
    uint32_t query, key; /* its arguments: along rows, along keys */
    int64_t query_at,
        score_at; /* tables: the copy of the rows, and the products of a block of keys */
} sx_keys_product;

typedef struct sx_keys sx_keys;
struct sx_keys {
    uint32_t x; /* instruction of the weights, before the lowering makes more of them */
    sx_keys_product product[SX_NESTED_DOTS_MAX];
    uint32_t product_count;
    uint32_t value;               /* argument that is weighted, or SX_NO_REG */
    uint32_t row, column, keys;   /* view dimensions or SX_NO_DIM */
    uint32_t around[SX_RANK_MAX]; /* other dimensions that are summed over, outside of the keys */
    uint32_t around_count;
    uint32_t sum[SX_RANK_MAX]; /* inner dimensions, outermost first */
    uint32_t sum_count;
    int64_t rows;  /* of this part, at most `width` */
    int64_t width; /* rows of a block: vectors of lanes */
    uint32_t vectors;
    int64_t block;   /* keys */
    bool last;       /* in the block of any length of a steady program */
    sx_affine local; /* key inside its block */
    int64_t strip;   /* keys, and columns, of a register block */
    int64_t columns; /* of the running one */
    uint32_t acc[SX_BLOCK_REGISTERS_MAX];
    uint32_t workspace;
    /* instructions whose elements lie along the keys: turned per block of keys */
    uint32_t turned[SX_FUSED_ARGS_MAX];
    uint32_t turned_count;
    int64_t turned_at[SX_FUSED_ARGS_MAX]; /* bytes */
    uint32_t mask[SX_TURN_STAGES];
    /* Bytes: weights that no product makes room for; results; of each row the factor by which its results are rescaled
     * before a block is added to them, or SX_KEYS_NO_TABLE. */
    int64_t weight_at, result_at, rescale_at;
    int64_t size; /* bytes of the workspace that are taken */
    /* What a grid point does besides, before its first block of keys; NULL: nothing. */
    void (*begin)(sx_lower *l, sx_keys *o);
    /* What the lowering makes of the products of a block: the weights. */
    void (*weigh)(sx_lower *l, sx_keys *o, int64_t length);
    /* Gives the reductions their values at the position, for one row in all lanes (`line` is its number) or for vector
     * `v` of the rows (line NULL). */
    void (*give)(sx_lower *l, const sx_keys *o, const sx_affine *line, uint32_t v);
};
#define SX_KEYS_NO_TABLE INT64_C(-1)

/* ---- what the analysis and the schedule say ---- */
/* All but the functions. */
void sx_keys_take_roles(const sx_lower *l, sx_keys *o);
/*   errors   SX_LIMIT too few registers; SX_UNIMPLEMENTED another form of schedule */
sx_code sx_keys_take_schedule(sx_lower *l, sx_keys *o);
/* Room in the workspace: for the tables of products, weights and results; for another one of `lines` lines; for turned
 * arguments, behind which there is none.
 *   errors   SX_UNIMPLEMENTED a workspace that is too large */
sx_code sx_keys_place_tables(sx_lower *l, sx_keys *o);
sx_code sx_keys_place(sx_lower *l, sx_keys *o, int64_t lines, int64_t *table);
sx_code sx_keys_end_tables(sx_lower *l, sx_keys *o);
sx_code sx_keys_emit(sx_lower *l, sx_keys *o); /* all parts */

/* ---- inside ---- */
/* Line `line` of a table of lines of `width` numbers, vector `v` of it. */
sx_addr sx_keys_at(const sx_lower *l, const sx_keys *o, int64_t table, const sx_affine *line,
                   uint32_t v);
/* The column number, or 0 where there is one column. */
sx_affine sx_keys_column(const sx_lower *l, const sx_keys *o);
/* The position at vector `v` of the rows, and back. */
void sx_keys_to_vector(sx_lower *l, const sx_keys *o, uint32_t v);
void sx_keys_from_vector(sx_lower *l, const sx_keys *o, uint32_t v);
/* `body` for the keys of a block, `step` at a time and then what is left. */
typedef void (*sx_keys_body)(sx_lower *l, sx_keys *o, int64_t count);
void sx_keys_each(sx_lower *l, sx_keys *o, int64_t length, int64_t step, sx_keys_body body);
/* Values of turned arguments and of the products, at the key and vector `v` of the rows. */
void sx_keys_give(sx_lower *l, const sx_keys *o, uint32_t v);
/* What a table holds as `give` needs it. `column`: its line, of results; NULL: it has one line. */
uint32_t sx_keys_held(sx_lower *l, const sx_keys *o, int64_t table, const sx_affine *line,
                      uint32_t v, const sx_affine *column);

/* lower_keys_leave.c: the rows of the point, from the tables to the result. */
void sx_keys_leave(sx_lower *l, const sx_keys *o);

/* Moves the position along a dimension, if there is one. */
static inline void sx_keys_shift(sx_lower *l, uint32_t dim, int64_t by)
{
    if (dim != SX_NO_DIM) {
        l->at[dim].constant += by;
    }
}

/* Instructions on whole vectors of the kernel's lanes. */
static inline uint32_t sx_keys_op(sx_lower *l, sx_lop op, uint32_t x, uint32_t y, uint32_t z)
{
    return sx_loop_op(&l->b, op, SX_NO_REG, NULL, x, y, z, 0, 0);
}

static inline void sx_keys_into(sx_lower *l, sx_lop op, uint32_t dst, uint32_t x, uint32_t y,
                                uint32_t z)
{
    (void)sx_loop_op(&l->b, op, dst, NULL, x, y, z, 0, 0);
}

static inline uint32_t sx_keys_load(sx_lower *l, const sx_addr *a)
{
    return sx_loop_op(&l->b, SX_LOP_LOAD, SX_NO_REG, a, SX_NO_REG, SX_NO_REG, SX_NO_REG, l->lanes,
                      0);
}

static inline void sx_keys_store(sx_lower *l, const sx_addr *a, uint32_t value)
{
    (void)sx_loop_op(&l->b, SX_LOP_STORE, SX_NO_REG, a, value, SX_NO_REG, SX_NO_REG, l->lanes, 0);
}
#endif
