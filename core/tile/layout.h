/* layout.h - which register of which thread holds which element of a tile.
 *
 * A layout is a linear map over GF(2) times outer modes. Each bit of the index of a register, a lane, a warp and a
 * block of the cluster (its rank) has a column: the row and the column of the tile that this bit adds, by exclusive
 * or. A zero column means that both values of the bit hold the same elements (replication). The linear part covers
 * a tile whose sides are powers of two; an outer mode repeats it `extent` times along one side, which takes care of
 * all other sizes. The index of a mode is the high part of the index of its home.
 *
 * Example: the accumulator of mma.m16n8 is `tile 16x8 reg c1 r8 lane c2 c4 r1 r2 r4`. Lane 5 (bits 0 and 2) holds
 * in its register 3 (bits 0 and 1) the element at row 8 ^ 1 = 9 and column 1 ^ 2 = 3.
 *
 * A register here is one element; several narrow elements share a register of 32 bits, low ones first.
 * Invariant: sx_layout_check holds. Papers: Zhou 2025 (linear layouts); Ding 2025 (Tilus) for the outer modes.
 */
#ifndef SX_CORE_TILE_LAYOUT_H
#define SX_CORE_TILE_LAYOUT_H
#include "core/base/buf.h"
#include "core/tile/linear.h"

typedef enum { SX_HOME_REGISTER, SX_HOME_LANE, SX_HOME_WARP, SX_HOME_RANK, SX_HOME_COUNT } sx_home;
typedef enum { SX_SIDE_ROW, SX_SIDE_COLUMN } sx_side;

#define SX_LAYOUT_BITS_MAX 20
#define SX_LAYOUT_MODES_MAX 3
#define SX_LAYOUT_COUNT_MAX (1U << SX_LAYOUT_BITS_MAX) /* registers of a thread, warps, ranks */
#define SX_LAYOUT_SIDE_BITS_MAX 15                     /* of each side of the linear part */
#define SX_LAYOUT_SIDE_MAX 32768                       /* of each side of the whole tile */

/* A position in the tile: row in the high half. */
#define SX_AT(row, column) ((uint32_t)(row) << 16 | (uint32_t)(column))
static inline uint32_t sx_at_row(uint32_t at)
{
    return at >> 16;
}
static inline uint32_t sx_at_column(uint32_t at)
{
    return at & 0xffffU;
}

/* The index i of a mode adds i * row or i * column; both are 0 where the mode repeats the same elements. */
typedef struct {
    uint8_t home; /* an sx_home, not a lane */
    uint16_t extent;
    uint16_t row;
    uint16_t column;
} sx_layout_mode;

typedef struct {
    uint8_t bits[SX_HOME_COUNT]; /* of registers, lanes, warps and ranks; lanes have at most 5 */
    uint8_t side_bits[2]; /* the linear part covers 2^side_bits[SX_SIDE_ROW] rows, and so on */
    uint8_t mode_count;
    sx_layout_mode mode[SX_LAYOUT_MODES_MAX];
    /* SX_AT of registers, low bits first, then of lanes, warps and ranks. */
    uint32_t column[SX_LAYOUT_BITS_MAX];
} sx_layout;

/* A thread's register: an index for each home. */
typedef struct {
    uint32_t of[SX_HOME_COUNT];
} sx_place;

const char *sx_home_name(sx_home home); /* "reg", "lane", "warp", "rank" */

/* Columns within the tile, no more bits than there are, modes in order: those of each side step over the linear
 * part and then over each other, without holes. SX_INPUT names the column or mode that breaks it. */
sx_code sx_layout_check(sx_ctx *cx, const sx_layout *layout);
bool sx_layout_equal(const sx_layout *a, const sx_layout *b);
/* `tile 16x8 reg c1 r8 lane c2 c4 r1 r2 r4 mode 3 reg c8`: the sides of the linear part, the columns of each home that
 * has bits, then each mode. A column is 0, rN, cN or rNcN. */
void sx_layout_print(const sx_layout *layout, sx_buf *out);
sx_code sx_layout_parse(sx_ctx *cx, sx_span text, sx_layout *layout);

uint32_t sx_layout_side(const sx_layout *layout, sx_side side); /* of the whole tile */
uint32_t sx_layout_count(const sx_layout *layout,
                         sx_home home); /* registers of a thread, warps, ...; lanes: 32 or 1 */
uint32_t sx_layout_input_bits(const sx_layout *layout);
/* The first column of a home. */
uint32_t sx_layout_first(const sx_layout *layout, sx_home home);
/* The linear part as a map from the bits of the place to row << column bits | column. */
sx_linear sx_layout_linear(const sx_layout *layout);

/* What `place` holds, as SX_AT. */
uint32_t sx_layout_apply(const sx_layout *layout, const sx_place *place);
/* The smallest place that holds `at`, where only the homes of `homes` (a bit 1 << sx_home for each) may be chosen
 * and `place` gives the others; false if there is none. All homes: the representative of all that hold it. */
bool sx_layout_find(const sx_layout *layout, uint32_t at, uint32_t homes, sx_place *place);
#define SX_HOMES_ALL 15U
#define SX_HOMES_THREAD (1U << SX_HOME_REGISTER)
#define SX_HOMES_WARP (1U << SX_HOME_REGISTER | 1U << SX_HOME_LANE)
#define SX_HOMES_BLOCK (SX_HOMES_WARP | 1U << SX_HOME_WARP)

/* Proofs. Every element is held: rank = number of coordinate bits, and the modes step without holes. */
bool sx_layout_covers(const sx_layout *layout);
/* No element is held twice: rank = number of place bits, and no mode stands still. */
bool sx_layout_unique(const sx_layout *layout);
/* How many places hold each element. */
uint32_t sx_layout_replicas(const sx_layout *layout);
/* The bits of `home` that are zero in every representative place: who stores, and who takes part in a sum. */
uint32_t sx_layout_replica_bits(const sx_layout *layout, sx_home home);
/* The longest power of two of elements that neighbour along the columns and are held in registers that neighbour,
 * starting at a multiple of it: how wide a vector access can be. */
uint32_t sx_layout_vector(const sx_layout *layout);

/* Rows and columns exchanged. */
sx_layout sx_layout_transpose(const sx_layout *layout);
/* The same values after coordinates were renamed: `map` goes from the packed coordinates of sx_layout_linear to
 * themselves, and renames no coordinates beyond the linear part. */
sx_layout sx_layout_rename(const sx_layout *layout, const sx_linear *map);
/* The layout of what remains when `side` is reduced away: that side becomes 1, registers that repeat others are
 * dropped, lanes and warps that repeat others stay as replicas. */
sx_layout sx_layout_slice(const sx_layout *layout, sx_side side);
/* Modes whose extent has factors of two give them to the linear part, as far as this changes no index. */
sx_layout sx_layout_normal(const sx_layout *layout);

/* atom x repeats: each element of `repeats` becomes one atom, whose bits are the low ones of each home. An atom with
 * modes along a side takes repeats along that side as modes only. SX_LIMIT where bits, modes or sides do not suffice,
 * SX_INPUT where the lanes of both count. */
sx_code sx_layout_product(sx_ctx *cx, const sx_layout *atom, const sx_layout *repeats,
                          sx_layout *product);

/* layout / atom: which register bits of the layout are those of the atom, and how the atoms repeat. */
typedef struct {
    sx_layout repeats;
    /* Register bits of the layout, for each one of the atom and of the repeats. */
    uint8_t atom_bit[SX_LAYOUT_BITS_MAX];
    uint8_t repeat_bit[SX_LAYOUT_BITS_MAX];
} sx_quotient;
/* False unless an instruction with this atom, repeated, covers the layout: product(atom, repeats) is the layout with
 * its register bits in the order atom_bit, repeat_bit. */
bool sx_layout_divide(const sx_layout *layout, const sx_layout *atom, sx_quotient *quotient);

/* What it takes to give each place of `to` what it holds, out of `from`; each kind includes the ones before. */
typedef enum {
    SX_CONVERT_NONE,    /* every register is right already */
    SX_CONVERT_MOVES,   /* other registers of the same thread, the same ones for all threads */
    SX_CONVERT_SHUFFLE, /* other lanes of the same warp, or registers that depend on the lane */
    SX_CONVERT_SHARED,  /* other warps: through shared memory */
    SX_CONVERT_CLUSTER  /* other blocks of the cluster */
} sx_convert;
const char *sx_convert_name(sx_convert convert); /* "none", "moves", ... */
/* SX_INPUT unless both are of one tile and one set of threads, and `from` holds all of the tile. Exact but where modes
 * with odd extents differ: then the answer is shared memory, or the cluster. */
sx_code sx_layout_convert(sx_ctx *cx, const sx_layout *from, const sx_layout *to,
                          sx_convert *convert);
#endif
