/* arena.c - the memory of one request. The only file of core/ that calls malloc and free. */
#include "core/base/base.h"

#include <stdlib.h>
#include <string.h>

struct sx_arena_block {
    sx_arena_block *next;
    size_t size; /* payload bytes */
    size_t used;
    size_t pad; /* keeps the payload aligned to 16 */
};
_Static_assert(sizeof(sx_arena_block) % 16 == 0, "payload stays aligned");

#define BLOCK_BYTES_MIN ((size_t)64 << 10)

void sx_arena_init(sx_arena *arena, size_t limit_bytes)
{
    *arena = (sx_arena){.limit_bytes = limit_bytes};
}

void sx_arena_fini(sx_arena *arena)
{
    sx_arena_block *block = arena->head;
    while (block != NULL) {
        sx_arena_block *next = block->next;
        free(block);
        block = next;
    }
    arena->head = NULL;
    arena->used_bytes = 0;
}

static sx_arena_block *block_new(size_t payload, size_t previous)
{
    size_t size = previous * 2 > BLOCK_BYTES_MIN ? previous * 2 : BLOCK_BYTES_MIN;
    if (size > ((size_t)8 << 20)) {
        size = (size_t)8 << 20;
    }
    if (size < payload) {
        size = payload;
    }
    sx_arena_block *block = malloc(sizeof(*block) + size);
    if (block != NULL) {
        *block = (sx_arena_block){.size = size};
    }
    return block;
}

void *sx_alloc(sx_ctx *cx, size_t size)
{
    sx_arena *arena = &cx->arena;
    size_t rounded = (size + 15) & ~(size_t)15;
    if (rounded < size || rounded > arena->limit_bytes - arena->used_bytes) {
        (void)SX_FAIL(cx, SX_NOMEM, "request needs more than %zu bytes of memory",
                      arena->limit_bytes);
        return NULL;
    }
    sx_arena_block *block = arena->head;
    if (block == NULL || block->size - block->used < rounded) {
        sx_arena_block *fresh = block_new(rounded, block != NULL ? block->size : 0);
        if (fresh == NULL) {
            (void)SX_FAIL(cx, SX_NOMEM, "the system has no %zu bytes left", rounded);
            return NULL;
        }
        fresh->next = block;
        arena->head = fresh;
        block = fresh;
    }
    uint8_t *memory = (uint8_t *)(block + 1) + block->used;
    block->used += rounded;
    arena->used_bytes += rounded;
    memset(memory, 0, rounded);
    return memory;
}

void *sx_alloc_array(sx_ctx *cx, size_t count, size_t size)
{
    size_t bytes;
    if (!sx_mul_size(count, size, &bytes)) {
        (void)SX_FAIL(cx, SX_NOMEM, "array of %zu items of %zu bytes overflows", count, size);
        return NULL;
    }
    return sx_alloc(cx, bytes);
}

char *sx_alloc_text(sx_ctx *cx, sx_span text)
{
    char *copy = sx_alloc(cx, text.len + 1);
    if (copy != NULL && text.len > 0) {
        memcpy(copy, text.ptr, text.len);
    }
    return copy;
}

sx_code sx_grow(sx_ctx *cx, void **array, uint32_t *capacity, uint32_t need, size_t item_size)
{
    if (need <= *capacity) {
        return SX_OK;
    }
    uint64_t wanted = *capacity < 8 ? 8 : (uint64_t)*capacity * 2;
    if (wanted < need) {
        wanted = need;
    }
    if (wanted > UINT32_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "array of %u items, at most %u", need, UINT32_MAX);
    }
    void *fresh = sx_alloc_array(cx, (size_t)wanted, item_size);
    if (fresh == NULL) {
        return cx->error.code;
    }
    if (*capacity > 0) {
        memcpy(fresh, *array, *capacity * item_size);
    }
    *array = fresh;
    *capacity = (uint32_t)wanted;
    return SX_OK;
}
