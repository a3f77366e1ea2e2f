/* tensor_map.h - tensors as the copy engine (TMA) sees them, and the boxes that fill a slot.
 *
 * A tensor map is encoded by the driver when a module is loaded; this is what it is encoded from, without a driver.
 * Dimensions are listed from the innermost outwards. The engine copies one box at a time, and all of it: what lies
 * outside of the tensor arrives as the fill, and counts in the bytes that a barrier expects.
 */
#ifndef SX_CORE_TILE_TENSOR_MAP_H
#define SX_CORE_TILE_TENSOR_MAP_H
#include "core/ir/ir.h"
#include "core/tile/memory.h"

#define SX_TENSOR_RANK_MAX 5
#define SX_BOX_MAX 256U

typedef enum { SX_FILL_ZERO, SX_FILL_NAN } sx_fill;

typedef struct {
    sx_dtype element;
    uint8_t rank;
    uint64_t dims[SX_TENSOR_RANK_MAX];    /* elements */
    uint64_t strides[SX_TENSOR_RANK_MAX]; /* bytes; the innermost is the size of an element */
    uint32_t box[SX_TENSOR_RANK_MAX];     /* elements */
    /* Every how many-th element is taken; the first one is 1. */
    uint32_t element_strides[SX_TENSOR_RANK_MAX];
    sx_swizzle swizzle;
    sx_fill fill;
} sx_tensor_map;

/* Everything that the driver refuses, and what the engine would do without a word: SX_INPUT names the field, its value
 * and its range. */
sx_code sx_tensor_map_check(sx_ctx *cx, const sx_tensor_map *map);
/* Of the address of a tensor, known only where the module runs. */
sx_code sx_tensor_map_check_address(sx_ctx *cx, uint64_t address);
/* Bytes that arrive for each box, whatever part of it is inside the tensor. */
uint32_t sx_tensor_map_box_bytes(const sx_tensor_map *map);

/* The boxes of a slot, all alike. */
typedef struct {
    uint32_t columns, rows; /* of one box, in elements and rows */
    uint32_t down, across;  /* how many, along the rows and along the panels */
    uint32_t bytes;         /* of one box; down * across * bytes is what the barrier expects */
} sx_boxes;
/* SX_INPUT where the slot has padding, panels that are not as wide as the swizzle, or rows that cannot be cut into
 * boxes of at most 256 at multiples of the pattern. */
sx_code sx_slot_boxes(sx_ctx *cx, const sx_slot *slot, sx_dtype element, sx_boxes *boxes);
/* The same where `parts` blocks bring an equal part of the boxes each: those that follow each other in the order below.
 * The boxes of a part begin where those of the part before do, all moved alike.
 *   errors   SX_INPUT too: a slot that cannot be cut so */
sx_code sx_slot_boxes_shared(sx_ctx *cx, const sx_slot *slot, sx_dtype element, uint32_t parts,
                             sx_boxes *boxes);
/* Where box `index` begins: row and column (in elements) of the tile, and its offset in the slot. */
typedef struct {
    uint32_t row, column, offset;
} sx_box_start;
sx_box_start sx_box_at(const sx_slot *slot, const sx_boxes *boxes, uint32_t index);

/* The map of a tensor of `rank` dims whose two innermost are the columns and rows of the slot; checked. Outer dims are
 * taken one at a time. */
sx_code sx_slot_tensor_map(sx_ctx *cx, const sx_slot *slot, sx_dtype element, uint32_t rank,
                           const uint64_t *dims, const uint64_t *strides, sx_fill fill,
                           sx_tensor_map *map);
#endif
