/* print.c - a kernel as text that reads back (core/loop/parse.c):
 *
 * A part for a block of warps is "part 4 1 1 warps 8 registers ...", its loops over them are "loop v3 8 warps {".
 * Lanes of 8 bytes are "lanes 8 wide"; loads and stores whose elements are not as wide as lanes name their type.
 *
 *   kernel "dot_17" lanes 16 numerics 0x00000000000000ab flops 1.5 bytes 2.5 {
 *     buffer in 4096
 *     part 4 1 1 registers 3 0 1 {
 *       loop v3 10 {
 *         x0 = load.u8 b0[16 + 4*v3 + s0], 16
 *         x2 = fma x0, x1, x2
 *         store b1[0], x2, 16
 *       }
 *     }
 *   } */
#include "core/loop/loop.h"

static void print_address(sx_buf *text, const sx_addr *addr)
{
    sx_buf_print(text, "b%u[%lld", addr->buffer, (long long)addr->offset);
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        if (addr->coef[v] != 0) {
            sx_buf_print(text, " + %lld*v%u", (long long)addr->coef[v], v);
        }
    }
    if (addr->index_reg != SX_NO_REG) {
        sx_buf_print(text, " + s%u", addr->index_reg);
    }
    sx_buf_put_text(text, "]");
}

static bool imm_is_wide(sx_lop op)
{
    return op >= SX_LOP_SWRAP && op <= SX_LOP_SMUL; /* of integers */
}

static void print_op(sx_buf *text, const sx_part *part, const sx_item *item)
{
    const sx_lop_info *info = sx_lop_info_of(item->op);
    if (info->result != '-') {
        sx_buf_print(text, "%c%u = ", info->result == 'v' ? 'x' : info->result, item->dst);
    }
    sx_buf_put_text(text, info->name);
    if (item->mem != SX_MEM_LANE) {
        sx_buf_print(text, ".%s", sx_mem_name(item->mem));
    }
    uint32_t operand = 0;
    uint32_t immediate = 0;
    const char *separator = " ";
    for (const char *p = info->operands; *p != '\0'; p++) {
        sx_buf_put_text(text, separator);
        separator = ", ";
        switch (*p) {
        case 'A': print_address(text, &part->addr[item->addr]); break;
        case 'f': sx_buf_print(text, "0x%08llx", (unsigned long long)sx_item_bits(item)); break;
        case 'n':
            if (immediate++ == 0 && !imm_is_wide(item->op)) {
                sx_buf_print(text, "%u", item->imm);
            } else {
                sx_buf_print(text, "%lld", (long long)item->imm2);
            }
            break;
        default: sx_buf_print(text, "%c%u", *p == 'v' ? 'x' : *p, item->src[operand++]); break;
        }
    }
    sx_buf_put_text(text, "\n");
}

static void print_part(sx_buf *text, const sx_part *part)
{
    sx_buf_print(text, "  part %lld %lld %lld ", (long long)part->grid[0], (long long)part->grid[1],
                 (long long)part->grid[2]);
    if (part->warps > 0) {
        sx_buf_print(text, "warps %u ", part->warps);
    }
    sx_buf_print(text, "registers %u %u %u {\n", part->vector_count, part->mask_count,
                 part->scalar_count);
    uint32_t depth = 0;
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        if (item->kind == SX_ITEM_END && depth > 0) {
            depth--;
        }
        sx_buf_print(text, "%*s", (int)(4 + 2 * (depth % 32)), "");
        switch (item->kind) {
        case SX_ITEM_OP: print_op(text, part, item); break;
        case SX_ITEM_LOOP:
            sx_buf_print(text, "loop v%u %lld %s{\n", item->dst, (long long)item->trip,
                         item->warps ? "warps " : "");
            depth++;
            break;
        case SX_ITEM_END: sx_buf_put_text(text, "}\n"); break;
        }
    }
    sx_buf_put_text(text, "  }\n");
}

sx_code sx_kernel_print(sx_ctx *cx, const sx_kernel *kernel, sx_buf *text)
{
    static const char *const role_name[] = {"in", "out", "workspace"};
    sx_buf_print(text, "kernel \"%s\" lanes %u%s numerics 0x%016llx flops %.17g bytes %.17g {\n",
                 kernel->name, kernel->lanes, kernel->lane_bytes == 8 ? " wide" : "",
                 (unsigned long long)kernel->numerics, kernel->flops, kernel->bytes);
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        sx_buf_print(text, "  buffer %s %lld\n", role_name[kernel->buffer[k].role],
                     (long long)kernel->buffer[k].size);
    }
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        print_part(text, &kernel->part[p]);
    }
    sx_buf_put_text(text, "}\n");
    return sx_buf_check(cx, text, "kernel text");
}
