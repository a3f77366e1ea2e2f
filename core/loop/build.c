/* build.c - the instruction table, kernels and the builder that lowerings write programs with. */
#include "core/loop/loop.h"

#include <stdio.h>
#include <string.h>

static const sx_lop_info lop_table[SX_LOP_COUNT] = {
#define SX_LOP(name_, enumerator, operands_, result_, help) \
    [SX_LOP_##enumerator] = {.name = #name_, .operands = operands_, .result = result_},
#include "core/loop/ops.def"
#undef SX_LOP
};

const sx_lop_info *sx_lop_info_of(sx_lop op)
{
    SX_ASSERT(op < SX_LOP_COUNT);
    return &lop_table[op];
}

static const struct {
    const char *name;
    uint8_t bytes[2];
} mem_table[SX_MEM_COUNT] = {
#define SX_MEM(name_, enumerator, narrow, wide, help) \
    [SX_MEM_##enumerator] = {#name_, {(narrow), (wide)}},
#include "core/loop/mems.def"
#undef SX_MEM
};

const char *sx_mem_name(sx_mem mem)
{
    SX_ASSERT(mem < SX_MEM_COUNT);
    return mem_table[mem].name;
}

uint32_t sx_mem_bytes(sx_mem mem, uint32_t lane_bytes)
{
    SX_ASSERT(mem < SX_MEM_COUNT && (lane_bytes == 4 || lane_bytes == 8));
    return mem_table[mem].bytes[lane_bytes == 8];
}

sx_code sx_kernel_check_lanes(sx_ctx *cx, const char *name, uint32_t lanes, uint32_t lane_bytes)
{
    SX_ASSERT(name != NULL);
    uint64_t bytes = (uint64_t)lanes * lane_bytes;
    bool element = lane_bytes == 4 || lane_bytes == 8;
    if (!element || (bytes != 32 && bytes != 64 && lanes != SX_LOOP_LANES_MAX)) {
        return SX_FAIL(cx, SX_INPUT,
                       "kernel %.63s: %u lanes of %u bytes, allowed are 8, 16 and %d of 4, "
                       "4, 8 and %d of 8",
                       name, lanes, lane_bytes, SX_LOOP_LANES_MAX, SX_LOOP_LANES_MAX);
    }
    return SX_OK;
}

sx_code sx_kernel_make(sx_ctx *cx, const char *name, uint32_t lanes, uint32_t lane_bytes,
                       sx_kernel **kernel)
{
    SX_TRY(sx_kernel_check_lanes(cx, name, lanes, lane_bytes));
    sx_kernel *made = SX_NEW(cx, sx_kernel);
    if (made == NULL) {
        return cx->error.code;
    }
    made->part = SX_NEW_ARRAY(cx, sx_part, SX_PARTS_MAX);
    if (made->part == NULL) {
        return cx->error.code;
    }
    (void)snprintf(made->name, sizeof(made->name), "%.63s", name);
    made->lanes = lanes;
    made->lane_bytes = lane_bytes;
    *kernel = made;
    return SX_OK;
}

uint32_t sx_kernel_add_buffer(sx_kernel *kernel, sx_buffer_role role, int64_t size)
{
    SX_ASSERT(kernel->buffer_count < SX_LOOP_BUFFERS_MAX);
    SX_ASSERT(size >= 0);
    kernel->buffer[kernel->buffer_count] = (sx_loop_buffer){.role = role, .size = size};
    return kernel->buffer_count++;
}

/* Records a failure of the builder; later calls do nothing. */
static void fail(sx_loop_builder *b, sx_code code, const char *text, int64_t value, int64_t limit)
{
    if (b->code == SX_OK) {
        b->code = SX_FAIL(b->cx, code, "kernel %s: %s %lld, at most %lld", b->kernel->name, text,
                          (long long)value, (long long)limit);
    }
}

void sx_loop_begin_part(sx_loop_builder *b, sx_ctx *cx, sx_kernel *kernel, int64_t g0, int64_t g1,
                        int64_t g2)
{
    memset(b, 0, sizeof(*b));
    b->cx = cx;
    b->kernel = kernel;
    b->code = cx->error.code;
    if (kernel->part_count >= SX_PARTS_MAX) {
        fail(b, SX_LIMIT, "parts", (int64_t)kernel->part_count + 1, SX_PARTS_MAX);
        return;
    }
    SX_ASSERT(g0 >= 1 && g1 >= 1 && g2 >= 1);
    b->part = &kernel->part[kernel->part_count++];
    *b->part = (sx_part){.grid = {g0, g1, g2}, .var_count = 3};
}

sx_code sx_loop_end_part(sx_loop_builder *b)
{
    SX_ASSERT(b->code != SX_OK || b->open_count == 0);
    return b->code;
}

/* The next free item, or NULL after a failure. */
static sx_item *append(sx_loop_builder *b)
{
    if (b->code != SX_OK) {
        return NULL;
    }
    sx_part *part = b->part;
    if (part->item_count >= SX_LOOP_ITEMS_MAX) {
        fail(b, SX_LIMIT, "instructions", (int64_t)part->item_count + 1, SX_LOOP_ITEMS_MAX);
        return NULL;
    }
    void *items = part->item;
    b->code = sx_grow(b->cx, &items, &part->item_capacity, part->item_count + 1, sizeof(sx_item));
    part->item = items;
    return b->code == SX_OK ? &part->item[part->item_count++] : NULL;
}

uint32_t sx_loop_open(sx_loop_builder *b, int64_t trip)
{
    SX_ASSERT(trip >= 1);
    uint32_t variable = 3 + b->open_count;
    if (variable >= SX_LOOP_VARS_MAX) {
        fail(b, SX_LIMIT, "open loops", b->open_count + 1, SX_LOOP_VARS_MAX - 3);
    }
    sx_item *item = append(b);
    if (item == NULL) {
        return 3;
    }
    *item = (sx_item){.kind = SX_ITEM_LOOP, .dst = variable, .trip = trip};
    b->open[b->open_count++] = b->part->item_count - 1;
    if (variable + 1 > b->part->var_count) {
        b->part->var_count = variable + 1;
    }
    return variable;
}

uint32_t sx_loop_open_any(sx_loop_builder *b, int64_t trip)
{
    SX_ASSERT(trip >= 0);
    uint32_t variable = sx_loop_open(b, trip > 0 ? trip : 1);
    if (b->code == SX_OK) {
        b->part->item[b->part->item_count - 1].trip = trip;
        b->part->item[b->part->item_count - 1].any_trip = true;
    }
    return variable;
}

uint32_t sx_loop_open_warps(sx_loop_builder *b, int64_t trip)
{
    SX_ASSERT(trip >= 1 && trip <= b->part->warps);
    uint32_t variable = sx_loop_open(b, trip);
    if (b->code == SX_OK) {
        b->part->item[b->part->item_count - 1].warps = true;
    }
    return variable;
}

void sx_loop_close(sx_loop_builder *b)
{
    sx_item *item = append(b);
    if (item == NULL) {
        return;
    }
    SX_ASSERT(b->open_count > 0);
    b->open_count--;
    *item = (sx_item){.kind = SX_ITEM_END, .dst = 3 + b->open_count};
}

static uint32_t fresh(sx_loop_builder *b, char kind)
{
    if (b->code != SX_OK) {
        return 0;
    }
    uint32_t *count = kind == 'v'   ? &b->part->vector_count
                      : kind == 'm' ? &b->part->mask_count
                                    : &b->part->scalar_count;
    if (*count >= SX_LOOP_REGS_MAX) {
        fail(b, SX_LIMIT, "registers", (int64_t)*count + 1, SX_LOOP_REGS_MAX);
        return 0;
    }
    return (*count)++;
}

uint32_t sx_loop_vector(sx_loop_builder *b)
{
    return fresh(b, 'v');
}

static bool addr_equal(const sx_addr *a, const sx_addr *b)
{
    return a->buffer == b->buffer && a->offset == b->offset && a->index_reg == b->index_reg &&
           memcmp(a->coef, b->coef, sizeof(a->coef)) == 0;
}

/* The number of `addr` in the part's table; equal addresses share one entry if they follow each other closely. */
static uint32_t intern_address(sx_loop_builder *b, const sx_addr *addr)
{
    sx_part *part = b->part;
    for (uint32_t back = 1; back <= 8 && back <= part->addr_count && !b->apart; back++) {
        if (addr_equal(&part->addr[part->addr_count - back], addr)) {
            return part->addr_count - back;
        }
    }
    void *addresses = part->addr;
    b->code =
        sx_grow(b->cx, &addresses, &part->addr_capacity, part->addr_count + 1, sizeof(sx_addr));
    part->addr = addresses;
    if (b->code != SX_OK) {
        return 0;
    }
    part->addr[part->addr_count] = *addr;
    return part->addr_count++;
}

uint32_t sx_loop_op(sx_loop_builder *b, sx_lop op, uint32_t dst, const sx_addr *addr, uint32_t x,
                    uint32_t y, uint32_t z, uint32_t imm, int64_t imm2)
{
    const sx_lop_info *info = sx_lop_info_of(op);
    SX_ASSERT((addr != NULL) == (info->operands[0] == 'A'));
    if (dst == SX_NO_REG && info->result != '-') {
        dst = fresh(b, info->result);
    }
    sx_item *item = append(b);
    if (item == NULL) {
        return 0;
    }
    *item = (sx_item){
        .kind = SX_ITEM_OP, .op = op, .dst = dst, .src = {x, y, z}, .imm = imm, .imm2 = imm2};
    if (addr != NULL) {
        uint32_t index = intern_address(b, addr);
        b->part->item[b->part->item_count - 1].addr = index;
    }
    return dst;
}

uint32_t sx_loop_access(sx_loop_builder *b, sx_lop op, sx_mem mem, const sx_addr *addr, uint32_t x,
                        uint32_t imm, int64_t imm2)
{
    uint32_t reg = sx_loop_op(b, op, SX_NO_REG, addr, x, SX_NO_REG, SX_NO_REG, imm, imm2);
    if (b->code == SX_OK) {
        b->part->item[b->part->item_count - 1].mem = mem;
    }
    return reg;
}

uint32_t sx_loop_bits(sx_loop_builder *b, uint64_t bits)
{
    SX_ASSERT(b->kernel->lane_bytes == 8 || bits <= UINT32_MAX);
    return sx_loop_op(b, SX_LOP_SET, SX_NO_REG, NULL, SX_NO_REG, SX_NO_REG, SX_NO_REG,
                      (uint32_t)bits, (int64_t)(bits >> 32));
}

uint32_t sx_loop_set(sx_loop_builder *b, float value)
{
    uint32_t bits;
    SX_ASSERT(b->kernel->lane_bytes == 4);
    memcpy(&bits, &value, sizeof(bits));
    return sx_loop_bits(b, bits);
}

uint32_t sx_loop_set_wide(sx_loop_builder *b, double value)
{
    uint64_t bits;
    SX_ASSERT(b->kernel->lane_bytes == 8);
    memcpy(&bits, &value, sizeof(bits));
    return sx_loop_bits(b, bits);
}
