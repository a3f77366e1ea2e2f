/* rows.h - what tests of row kernels on NVIDIA targets share: arguments, values, faults that the judge must see. */
#ifndef SX_TESTS_CORE_NVIDIA_ROWS_H
#define SX_TESTS_CORE_NVIDIA_ROWS_H
#include "core/ir/num.h"
#include "tests/core/nvidia/lanes.h"

SX_UNUSED static void fill(sx_ctx *cx, node *n, uint64_t seed)
{
    sx_rng rng = {seed};
    for (uint32_t k = 0; k < n->count; k++) {
        sx_dtype dtype = n->input[k].dtype;
        uint32_t size = sx_dtype_bytes(dtype);
        int64_t elements = sx_tensor_elements(&n->input[k]);
        n->raw[k] = sx_alloc(cx, (size_t)elements * size);
        for (int64_t i = 0; i < elements; i++) {
            uint64_t bits = sx_num_encode(dtype, (double)sx_rng_f32(&rng) * 4);
            memcpy(n->raw[k] + (size_t)i * size, &bits, size);
        }
    }
}

SX_UNUSED static double at(const uint8_t *raw, sx_dtype dtype, int64_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, raw + (size_t)i * sx_dtype_bytes(dtype), sx_dtype_bytes(dtype));
    return sx_num_decode(dtype, bits);
}

SX_UNUSED static uint32_t count_of(const sx_buf *text, const char *word)
{
    uint32_t n = 0;
    for (const char *p = (const char *)text->ptr; (p = strstr(p, word)) != NULL; p++) {
        n++;
    }
    return n;
}

/* Is the kernel proven to be the node? One that is not well formed is not. */
SX_UNUSED static bool is_proven(sx_ctx *cx, sx_judge *judge, const node *n, const sx_kernel *kernel)
{
    sx_verdict verdict;
    sx_judge_facts facts = {0};
    sx_code code = sx_judge_kernel(judge, &n->fused, n->input, n->count, &facts, kernel, &verdict);
    ck_assert(code == SX_OK || code == SX_INPUT);
    sx_ctx_reset_error(cx);
    return code == SX_OK && verdict.proven;
}

#define FAULTS 4
#define FAULT_PIECE 2
/* Changes one item of the program, if there is such a fault of it. */
SX_UNUSED static bool plant(uint32_t fault, sx_part *part, sx_item *item)
{
    bool access = item->op == SX_LOP_LOADS || item->op == SX_LOP_STORES;
    /* sums of pieces; across the rows the rows, too */
    bool one = item->op == SX_LOP_LOADB || item->op == SX_LOP_STORE || item->op == SX_LOP_LOAD;
    switch (fault) {
    case 0: /* lanes are folded twice over one distance, and never over another */
        item->imm = item->imm == 1 ? 2 : item->imm / 2;
        return item->op == SX_LOP_SWAP;
    case 1: /* an element of its neighbour */
        part->addr[item->addr].offset += access || one ? 4 : 0;
        return access || one;
    case FAULT_PIECE: /* the sum of the next piece, across the rows */
        part->addr[item->addr].offset += one ? 128 : 0;
        return one;
    default: /* a lane more or less */ item->imm += item->imm < 32 ? 1 : UINT32_MAX; return access;
    }
}

/* Has another kind of access the same address? Both would be off by the same. */
SX_UNUSED static bool shares_address(const sx_part *part, uint32_t index)
{
    bool shares = false;
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        shares = shares || (item->kind == SX_ITEM_OP && item->op != part->item[index].op &&
                            sx_lop_info_of(item->op)->operands[0] == 'A' &&
                            item->addr == part->item[index].addr);
    }
    return shares;
}

/* Plants the fault in each item of the kernel that can have it: none is proven then. How many there are. */
SX_UNUSED static uint32_t plant_all(sx_ctx *cx, sx_judge *judge, const node *n,
                                    const sx_schedule *s, uint32_t fault)
{
    uint32_t planted = 0;
    sx_kernel *kernel;
    sx_lowering what = {.name = "k", .schedule = s, .analysis = analysis_of(cx, n)};
    ck_sx_ok(cx, sx_target_lower(cx, sx_target_find(NULL, "sm_80"), &what, &kernel));
    ck_assert(is_proven(cx, judge, n, kernel));
    sx_part *part = &kernel->part[0];
    for (uint32_t i = 0; i < part->item_count; i++) {
        sx_item item = part->item[i];
        sx_addr addr = part->addr[item.addr];
        if (item.kind == SX_ITEM_OP && !shares_address(part, i) &&
            plant(fault, part, &part->item[i])) {
            ck_assert_msg(!is_proven(cx, judge, n, kernel), "fault %u, item %u", fault, i);
            planted++;
        }
        part->item[i] = item;
        part->addr[item.addr] = addr;
    }
    return planted;
}
#endif
