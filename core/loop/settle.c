/* settle.c - a program that is to serve other extents, too, as it is for its own. */
#include "core/loop/loop.h"

#include <string.h>

/* The item behind the loop that opens at item `first`. */
static uint32_t behind(const sx_part *part, uint32_t first)
{
    uint32_t depth = 0, i = first;
    do {
        SX_ASSERT(i < part->item_count);
        depth += part->item[i].kind == SX_ITEM_LOOP ? 1 : 0;
        depth -= part->item[i].kind == SX_ITEM_END ? 1 : 0;
        i++;
    } while (depth > 0);
    return i;
}

static sx_code settle_part(sx_ctx *cx, const sx_part *from, sx_part *to)
{
    *to = *from;
    to->item = SX_NEW_ARRAY(cx, sx_item, from->item_count + 1);
    if (to->item == NULL) {
        return cx->error.code;
    }
    to->item_count = 0;
    to->item_capacity = from->item_count;
    for (uint32_t i = 0; i < from->item_count;) {
        const sx_item *item = &from->item[i];
        bool loop = item->kind == SX_ITEM_LOOP;
        if (loop && item->trip == 0) {
            i = behind(from, i);
            continue;
        }
        to->item[to->item_count] = *item;
        to->item[to->item_count++].any_trip = false;
        i++;
    }
    return SX_OK;
}

sx_code sx_kernel_settle(sx_ctx *cx, const sx_kernel *kernel, sx_kernel **settled)
{
    sx_kernel *out = SX_NEW(cx, sx_kernel);
    sx_part *part = SX_NEW_ARRAY(cx, sx_part, kernel->part_count);
    if (out == NULL || part == NULL) {
        return cx->error.code;
    }
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        part[p] = kernel->part[p]; /* a block's program is that of its extents alone */
        SX_TRY(part[p].tile == NULL ? settle_part(cx, &kernel->part[p], &part[p]) : SX_OK);
    }
    *out = *kernel;
    out->part = part;
    *settled = out;
    return SX_OK;
}
