/* loop_inside.h - what loop.c and loop_ops.c share of a part that becomes PTX. */
#ifndef SX_CORE_NVIDIA_LOOP_INSIDE_H
#define SX_CORE_NVIDIA_LOOP_INSIDE_H
#include "core/loop/loop.h"
#include "core/ptx/ptx.h"

/* The moving part of some addresses: buffer + sum of coef * variable + lane * step. */
typedef struct {
    uint32_t buffer;
    int64_t step; /* bytes from a lane to the next */
    int64_t coef[SX_LOOP_VARS_MAX];
    sx_ptx_arg at; /* its register where the text stands */
} sx_nvidia_pointer;

/* An open loop. */
typedef struct {
    uint32_t item;
    sx_ptx_arg label;
    sx_ptx_arg *outer; /* by pointer: its register outside of the loop */
} sx_nvidia_open;

#define SX_NVIDIA_GROUP_MAX 8
/* Elements of a thread that lie side by side, in registers that follow each other (tile_group.c). */
typedef struct {
    uint32_t width;
    uint32_t element; /* the one whose program is written now */
    /* By item: the words that its load has read. */
    sx_ptx_arg (*word)[SX_NVIDIA_GROUP_MAX];
    sx_ptx_arg stored[SX_NVIDIA_GROUP_MAX];
    /* The words of the group's store are kept for somebody else, who stores them; how many there are. */
    bool keeps;
    sx_ptx_arg kept[SX_NVIDIA_GROUP_MAX];
    uint32_t kept_count;
} sx_nvidia_group;

typedef struct {
    sx_ctx *cx;
    const sx_kernel *kernel;
    const sx_part *part;
    sx_ptx_builder b;
    sx_ptx_arg *vector, *mask, *scalar; /* by virtual register */
    sx_ptx_arg buffer[SX_LOOP_BUFFERS_MAX];
    bool shared_by_lanes[SX_LOOP_BUFFERS_MAX]; /* written and read in this part */
    /* Grid variables have 64 bits, loop variables 32. */
    sx_ptx_arg variable[SX_LOOP_VARS_MAX];
    sx_ptx_arg lane, lane_wide; /* the number of the lane, 32 and 64 bits */
    sx_ptx_arg warp; /* the number of the warp in its block, where a block works at a point */
    bool in_shared[SX_LOOP_BUFFERS_MAX];   /* the buffer lies in the block's shared memory */
    sx_ptx_arg partial[SX_LOOP_LANES_MAX]; /* by n: lane < n */
    /* Each thread has an element of its own, for which partial[1] says that it is there, if all do not; every variable
     * is that of a base element and `shift`. */
    bool by_element;
    int64_t shift[SX_LOOP_VARS_MAX];
    sx_nvidia_group *group; /* NULL: elements for themselves */
    sx_nvidia_pointer *pointer;
    uint32_t pointer_count;
    uint32_t *pointer_of; /* by item */
    sx_nvidia_open open[SX_LOOP_VARS_MAX];
    uint32_t open_count;
} sx_nvidia_lowering;

/* The address of this item's access, and where it points. */
sx_ptx_arg sx_nvidia_address(sx_nvidia_lowering *l, uint32_t index);
static inline uint16_t sx_nvidia_space(const sx_nvidia_lowering *l, const sx_item *item)
{
    bool shared = l->in_shared[l->part->addr[item->addr].buffer];
    return shared ? SX_PTX_SPACE_SHARED : SX_PTX_SPACE_GLOBAL;
}
/* One instruction. */
void sx_nvidia_op(sx_nvidia_lowering *l, uint32_t index);
/* The load or store of an element of the group, where one access serves all; false: it is an access of its own. */
bool sx_nvidia_load_group(sx_nvidia_lowering *l, uint32_t index);
bool sx_nvidia_store_group(sx_nvidia_lowering *l, uint32_t index);
/* loop_wide.c: from this item on, neighbouring elements of each lane as one access of up to 16 bytes, where the program
 * proves that its address is aligned. The items that it takes the place of; 0: none. */
uint32_t sx_nvidia_wide(sx_nvidia_lowering *l, uint32_t index);
/* Pointers as many as there are different ones, and which one each item uses. */
sx_code sx_nvidia_find_pointers(sx_nvidia_lowering *l);
/* Virtual registers of the part, by number. */
sx_code sx_nvidia_make_registers(sx_nvidia_lowering *l);
/* Pointers to global memory from the parameters, one for each buffer. */
void sx_nvidia_read_buffers(sx_nvidia_lowering *l);
sx_ptx_arg sx_nvidia_special(sx_nvidia_lowering *l, sx_ptx_special which);
/* 32 bits as 64, without sign. */
sx_ptx_arg sx_nvidia_widened(sx_nvidia_lowering *l, sx_ptx_arg x);
#endif
