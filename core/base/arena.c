/* arena.c - the memory of one request. The only file of core/ that calls malloc and free. */
#include "core/base/base.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/rewind.h"

struct sx_arena_block {
    sx_arena_block *next;
    size_t size; /* payload bytes */
    size_t used;
    size_t pad; /* keeps the payload aligned to 16 */
};
_Static_assert(sizeof(sx_arena_block) % 16 == 0, "payload stays aligned");

/* In front of the items of an array that grows in place. */
struct sx_arena_region {
    sx_arena_region *next, *before;
    size_t size; /* bytes of the items */
    size_t pad;
};
_Static_assert(sizeof(sx_arena_region) % 16 == 0, "items stay aligned");

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
    while (arena->region != NULL) {
        sx_arena_region *next = arena->region->next;
        free(arena->region);
        arena->region = next;
    }
    arena->head = NULL;
    arena->used_bytes = 0;
}

void sx_arena_rewind(sx_arena *arena)
{
    sx_arena_block *kept = arena->head;
    SX_ASSERT(arena->region == NULL);
    if (kept == NULL) {
        return;
    }
    while (kept->next != NULL) {
        sx_arena_block *next = kept->next;
        kept->next = next->next;
        free(next);
    }
    kept->used = 0;
    arena->used_bytes = 0;
}

/* Behind the block that `to` is filling, so that its room is not lost. */
static void adopt_blocks(sx_arena *to, sx_arena *from)
{
    sx_arena_block **at = to->head != NULL ? &to->head->next : &to->head;
    sx_arena_block *rest = *at;
    *at = from->head;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = rest;
}

static void adopt_regions(sx_arena *to, sx_arena *from)
{
    sx_arena_region *last = from->region;
    if (last == NULL) {
        return;
    }
    while (last->next != NULL) {
        last = last->next;
    }
    last->next = to->region;
    if (to->region != NULL) {
        to->region->before = last;
    }
    to->region = from->region;
}

void sx_arena_adopt(sx_arena *to, sx_arena *from)
{
    SX_ASSERT(from->used_bytes <= to->limit_bytes - to->used_bytes);
    adopt_blocks(to, from);
    adopt_regions(to, from);
    to->used_bytes += from->used_bytes;
    *from = (sx_arena){.limit_bytes = from->limit_bytes};
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

void *sx_alloc_unset(sx_ctx *cx, size_t size)
{
    sx_arena *arena = &cx->arena;
    SX_ASSERT(arena->used_bytes <= arena->limit_bytes);
    size_t rounded = (size + 15) & ~(size_t)15;
    if (rounded < size || rounded > arena->limit_bytes - arena->used_bytes) {
        arena->refused_bytes = rounded;
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
    return memory;
}

void *sx_alloc(sx_ctx *cx, size_t size)
{
    void *memory = sx_alloc_unset(cx, size);
    if (memory != NULL) {
        memset(memory, 0, (size + 15) & ~(size_t)15);
    }
    return memory;
}

void *sx_alloc_array_unset(sx_ctx *cx, size_t count, size_t size)
{
    SX_ASSERT(size > 0);
    size_t bytes;
    if (!sx_mul_size(count, size, &bytes)) {
        (void)SX_FAIL(cx, SX_NOMEM, "array of %zu items of %zu bytes overflows", count, size);
        return NULL;
    }
    return sx_alloc_unset(cx, bytes);
}

void *sx_alloc_array(sx_ctx *cx, size_t count, size_t size)
{
    void *memory = sx_alloc_array_unset(cx, count, size);
    if (memory != NULL) {
        memset(memory, 0, count * size);
    }
    return memory;
}

char *sx_alloc_text(sx_ctx *cx, sx_span text)
{
    SX_ASSERT(text.ptr != NULL || text.len == 0);
    char *copy = sx_alloc(cx, text.len + 1);
    if (copy != NULL && text.len > 0) {
        memcpy(copy, text.ptr, text.len);
    }
    return copy;
}

sx_code sx_grow_to(sx_ctx *cx, void **array, uint32_t *capacity, uint32_t need, size_t item_size)
{
    SX_ASSERT(item_size > 0 && (*array != NULL || *capacity == 0) && need > *capacity);
    uint64_t wanted = *capacity < 8 ? 8 : (uint64_t)*capacity * 2;
    if (wanted < need) {
        wanted = need;
    }
    if (wanted > UINT32_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "array of %u items, at most %u", need, UINT32_MAX);
    }
    size_t held = *capacity * item_size;
    size_t bytes;
    if (!sx_mul_size((size_t)wanted, item_size, &bytes)) {
        return SX_FAIL(cx, SX_NOMEM, "array of %zu items of %zu bytes overflows", (size_t)wanted,
                       item_size);
    }
    uint8_t *fresh = sx_alloc_unset(cx, bytes);
    if (fresh == NULL) {
        return cx->error.code;
    }
    if (held > 0) {
        memcpy(fresh, *array, held);
    }
    memset(fresh + held, 0, bytes - held);
    *array = fresh;
    *capacity = (uint32_t)wanted;
    return SX_OK;
}

sx_code sx_region_resize(sx_ctx *cx, void **array, uint32_t *capacity, uint32_t count,
                         size_t item_size)
{
    SX_ASSERT(item_size > 0 && (*array != NULL || *capacity == 0));
    sx_arena *arena = &cx->arena;
    SX_ASSERT(arena->used_bytes <= arena->limit_bytes);
    sx_arena_region *old = *array == NULL ? NULL : (sx_arena_region *)*array - 1;
    size_t old_size = old == NULL ? 0 : old->size;
    SX_ASSERT(old_size >= *capacity * item_size);
    size_t size;
    if (!sx_mul_size(count, item_size, &size) || size > SIZE_MAX - sizeof(*old) - 16) {
        return SX_FAIL(cx, SX_NOMEM, "array of %u items of %zu bytes overflows", count, item_size);
    }
    size = (size + 15) & ~(size_t)15;
    if (size > old_size && size - old_size > arena->limit_bytes - arena->used_bytes) {
        arena->refused_bytes = size - old_size;
        return SX_FAIL(cx, SX_NOMEM, "request needs more than %zu bytes of memory",
                       arena->limit_bytes);
    }
    sx_arena_region *fresh = realloc(old, sizeof(*fresh) + size);
    if (fresh == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "the system has no %zu bytes left", size);
    }
    if (old == NULL) {
        fresh->before = NULL;
        fresh->next = arena->region;
    }
    fresh->size = size;
    if (fresh->before != NULL) {
        fresh->before->next = fresh;
    } else {
        arena->region = fresh;
    }
    if (fresh->next != NULL) {
        fresh->next->before = fresh;
    }
    if (size < old_size) {
        sx_arena_needed(arena, 0);
    }
    arena->used_bytes = arena->used_bytes - old_size + size;
    *array = fresh + 1;
    *capacity = count;
    return SX_OK;
}

sx_code sx_region_grow(sx_ctx *cx, void **array, uint32_t *capacity, uint32_t need,
                       size_t item_size)
{
    SX_ASSERT(item_size > 0 && (*array != NULL || *capacity == 0));
    if (need <= *capacity) {
        return SX_OK;
    }
    uint64_t wanted = *capacity < 32 ? 64 : (uint64_t)*capacity + *capacity / 2;
    wanted = wanted < need ? need : wanted;
    wanted = wanted > UINT32_MAX ? UINT32_MAX : wanted;
    size_t room = cx->arena.limit_bytes - cx->arena.used_bytes;
    if ((wanted - *capacity) > room / item_size) {
        wanted = need; /* no more than needed where the limit is near */
    }
    return sx_region_resize(cx, array, capacity, (uint32_t)wanted, item_size);
}
