/* over.c - may one of several results lie over an argument?
 *
 * The value of one result may be made of an element that another result's store overwrites. It is enough that each
 * load of the argument has a store to the result behind it in the same block of the text, under the same loops and at
 * the same address. Say some element is loaded at some iteration: in that iteration the matching store to the element
 * comes later. As each element is stored one time in all, this is the only store to it, so all loads of the element
 * come before it, whatever grid points they are of. */
#include "core/judge/judge.h"

#include <string.h>

static bool same_place(const sx_addr *a, const sx_addr *b)
{
    return a->offset == b->offset && a->index_reg == SX_NO_REG && b->index_reg == SX_NO_REG &&
           memcmp(a->coef, b->coef, sizeof(a->coef)) == 0;
}

/* Does the store write at least what the load reads? */
static bool covers(const sx_item *load, const sx_item *store, uint32_t lane_bytes)
{
    bool one =
        load->op == SX_LOP_LOADB && (store->op == SX_LOP_STORE || store->op == SX_LOP_STORES);
    bool line = load->op == SX_LOP_LOAD && store->op == SX_LOP_STORE && load->imm <= store->imm;
    bool apart = load->op == SX_LOP_LOADS && store->op == SX_LOP_STORES &&
                 load->imm <= store->imm && load->imm2 == store->imm2;
    return (one || line || apart) &&
           sx_mem_bytes(load->mem, lane_bytes) == sx_mem_bytes(store->mem, lane_bytes);
}

/* Is there such a store behind item `at`, before the innermost loop around it ends? */
static bool stored_behind(const sx_kernel *kernel, const sx_part *part, uint32_t at,
                          uint32_t result)
{
    const sx_item *load = &part->item[at];
    uint32_t depth = 0;
    for (uint32_t i = at + 1; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        if (item->kind == SX_ITEM_END && depth == 0) {
            return false;
        }
        depth += item->kind == SX_ITEM_LOOP ? 1 : 0;
        depth -= item->kind == SX_ITEM_END ? 1 : 0;
        bool stores = item->kind == SX_ITEM_OP && depth == 0 &&
                      (item->op == SX_LOP_STORE || item->op == SX_LOP_STORES);
        if (stores && part->addr[item->addr].buffer == result &&
            same_place(&part->addr[load->addr], &part->addr[item->addr]) &&
            covers(load, item, kernel->lane_bytes)) {
            return true;
        }
    }
    return false;
}

bool sx_judge_reads_first(const sx_kernel *kernel, uint32_t argument, uint32_t result)
{
    SX_ASSERT(argument < kernel->buffer_count && result < kernel->buffer_count);
    SX_ASSERT(kernel->buffer[argument].role == SX_BUFFER_IN);
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const sx_part *part = &kernel->part[p];
        if (part->tile != NULL || part->warps > 0) {
            return false;
        }
        for (uint32_t i = 0; i < part->item_count; i++) {
            const sx_item *item = &part->item[i];
            bool reads = item->kind == SX_ITEM_OP && item->op != SX_LOP_PREFETCH &&
                         sx_lop_info_of(item->op)->operands[0] == 'A' &&
                         part->addr[item->addr].buffer == argument;
            if (reads && !stored_behind(kernel, part, i, result)) {
                return false;
            }
        }
    }
    return true;
}
