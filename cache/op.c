#include "cache/op.h"

#include <stdlib.h>
#include <string.h>

void sx_op_free(sx_op *op)
{
    if (op == NULL) {
        return;
    }
    SX_ASSERT(!op->is_pending);
    if (op->type == SX_OP_PUT) {
        sx_blob_free(op->u.put.blob);
    }
    free(op);
}

sx_op *sx_op_new(sx_op_type type, const sx_ident *ident)
{
    SX_ASSERT(type != SX_OP_PUT); /* sx_op_new_put makes those */
    sx_op *op = calloc(1, sizeof(*op));
    if (op != NULL) {
        op->type = type;
        op->ident = *ident;
    }
    return op;
}

static uint8_t *copy_span(uint8_t *to, sx_span *span)
{
    if (span->len > 0) {
        memcpy(to, span->ptr, span->len);
    }
    span->ptr = to;
    return to + span->len;
}

sx_op *sx_op_new_put(sx_blob *blob, const sx_cache_info *info, const sx_cache_item *item)
{
    SX_ASSERT(item->part_count <= SX_CACHE_PART_MAX);
    size_t bytes = sizeof(sx_op) + item->part_count * sizeof(sx_cache_part);
    for (uint32_t i = 0; i < item->part_count; i++) {
        bytes += item->part[i].name.len + item->part[i].value.len;
    }
    sx_op *op = calloc(1, bytes);
    if (op == NULL) {
        return NULL;
    }
    op->type = SX_OP_PUT;
    op->ident = (sx_ident){.key = info->key, .ns = info->ns};
    op->u.put.blob = sx_blob_share(blob);
    op->u.put.info = *info;
    op->u.put.part_count = item->part_count;
    op->u.put.done = item->done;
    op->u.put.done_self = item->done_self;
    sx_cache_part *part = (sx_cache_part *)(op + 1);
    uint8_t *at = (uint8_t *)(part + item->part_count);
    for (uint32_t i = 0; i < item->part_count; i++) {
        part[i] = item->part[i];
        at = copy_span(at, &part[i].name);
        at = copy_span(at, &part[i].value);
    }
    SX_ASSERT(at == (uint8_t *)op + bytes);
    op->u.put.part = part;
    return op;
}

uint64_t sx_op_bytes(const sx_op *op)
{
    return sizeof(*op) + (op->type == SX_OP_PUT ? op->u.put.info.size : 0);
}

void sx_op_list_append(sx_op_list *list, sx_op *op)
{
    SX_ASSERT((list->first == NULL) == (list->last == NULL) &&
              (list->first == NULL) == (list->rows == 0));
    op->next = NULL;
    if (list->last != NULL) {
        list->last->next = op;
    } else {
        list->first = op;
    }
    list->last = op;
    list->rows++;
    list->bytes += sx_op_bytes(op);
}

sx_op *sx_op_list_take(sx_op_list *list)
{
    sx_op *op = list->first;
    if (op == NULL) {
        return NULL;
    }
    SX_ASSERT(list->rows > 0 && list->bytes >= sx_op_bytes(op));
    list->first = op->next;
    if (list->first == NULL) {
        list->last = NULL;
    }
    list->rows--;
    list->bytes -= sx_op_bytes(op);
    op->next = NULL;
    return op;
}

void sx_op_list_move(sx_op_list *from, sx_op_list *to, uint64_t rows, uint64_t bytes)
{
    SX_ASSERT(from != to);
    uint64_t moved_bytes = 0;
    for (uint64_t i = 0; i < rows && from->first != NULL; i++) {
        moved_bytes += sx_op_bytes(from->first);
        if (i > 0 && moved_bytes > bytes) {
            return;
        }
        sx_op_list_append(to, sx_op_list_take(from));
    }
}
