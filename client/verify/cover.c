#include "client/verify/cover.h"

#include <stdlib.h>
#include <string.h>

/* Bytes that a block stores, one behind the other. */
typedef struct {
    int64_t at, bytes;
} span;

/* A block that ran. */
typedef struct {
    int64_t index[3];
    uint32_t kind; /* the set of dimensions along which it is the last */
    uint64_t path;
    uint32_t first, count; /* its spans */
} block;

struct sxv_cover {
    int64_t grid[3];
    size_t bytes; /* of the result */
    uint8_t *own; /* what all blocks store */
    block ran[SXV_ENDS_MAX];
    uint32_t ran_count;
    span *span;
    uint32_t span_count, span_capacity;
    bool affine;
};

/* Indices along a dimension, each once. */
static uint32_t ends_of(int64_t extent, int64_t end[3])
{
    uint32_t count = 0;
    SX_ASSERT(extent >= 1);
    end[count++] = 0;
    if (extent > 2) {
        end[count++] = extent - 2;
    }
    if (extent > 1) {
        end[count++] = extent - 1;
    }
    return count;
}

uint32_t sxv_cover_ends(const int64_t grid[3], int64_t index[SXV_ENDS_MAX][3])
{
    int64_t end[3][3];
    uint32_t count[3], total = 0;
    for (uint32_t d = 0; d < 3; d++) {
        count[d] = ends_of(grid[d], end[d]);
    }
    for (uint32_t n = 0; n < count[0] * count[1] * count[2]; n++) {
        const uint32_t at[3] = {n / (count[1] * count[2]), n / count[2] % count[1], n % count[2]};
        for (uint32_t d = 0; d < 3; d++) {
            index[total][d] = end[d][at[d]];
        }
        total++;
    }
    SX_ASSERT(total <= SXV_ENDS_MAX);
    return total;
}

sx_code sxv_cover_make(sx_ctx *cx, const int64_t grid[3], size_t bytes, sxv_cover **made)
{
    sxv_cover *c = SX_NEW(cx, sxv_cover);
    if (c == NULL) {
        return cx->error.code;
    }
    *c = (sxv_cover){.grid = {grid[0], grid[1], grid[2]}, .bytes = bytes, .affine = true};
    c->own = malloc(bytes);
    *made = c;
    return c->own != NULL ? SX_OK
                          : SX_FAIL(cx, SX_NOMEM, "no memory for a result of %zu bytes", bytes);
}

void sxv_cover_fini(sxv_cover *cover)
{
    free(cover->own);
    cover->own = NULL;
}

static uint32_t kind_of(const sxv_cover *c, const int64_t index[3])
{
    uint32_t kind = 0;
    for (uint32_t d = 0; d < 3; d++) {
        kind |= (uint32_t)(c->grid[d] > 1 && index[d] + 1 == c->grid[d]) << d;
    }
    return kind;
}

sx_code sxv_cover_add(sx_ctx *cx, sxv_cover *c, const int64_t index[3],
                      const sx_emulated_path *took, const uint8_t *stored, uint8_t *touched)
{
    SX_ASSERT(c->ran_count < SXV_ENDS_MAX);
    block *b = &c->ran[c->ran_count++];
    *b = (block){.path = took->path, .first = c->span_count};
    c->affine = c->affine && took->affine;
    for (uint32_t d = 0; d < 3; d++) {
        b->index[d] = index[d];
    }
    b->kind = kind_of(c, index);
    const uint8_t *begin = stored, *end = stored + c->bytes;
    for (const uint8_t *p = begin; (p = memchr(p, 1, (size_t)(end - p))) != NULL;) {
        const uint8_t *q = memchr(p, 0, (size_t)(end - p));
        q = q != NULL ? q : end;
        void *array = c->span;
        SX_TRY(sx_grow(cx, &array, &c->span_capacity, c->span_count + 1, sizeof(*c->span)));
        c->span = array;
        c->span[c->span_count++] = (span){p - begin, q - p};
        memset(touched + (p - begin), 1, (size_t)(q - p));
        p = q;
        if (p == end) {
            break;
        }
    }
    b->count = c->span_count - b->first;
    return SX_OK;
}

/* The first block of a kind that ran, whose indices are the lowest. */
static const block *first_of(const sxv_cover *c, uint32_t kind)
{
    for (uint32_t i = 0; i < c->ran_count; i++) {
        if (c->ran[i].kind == kind) {
            return &c->ran[i];
        }
    }
    return NULL;
}

/* By how many bytes what is stored moves from one block to the next along each dimension. */
static bool find_steps(const sxv_cover *c, int64_t step[3])
{
    const block *origin = first_of(c, 0);
    step[0] = step[1] = step[2] = 0;
    for (uint32_t i = 0; origin != NULL && i < c->ran_count; i++) {
        const block *b = &c->ran[i];
        uint32_t moved = 0, along = 0;
        for (uint32_t d = 0; d < 3; d++) {
            moved += b->index[d] != 0 ? 1 : 0;
            along = b->index[d] != 0 ? d : along;
        }
        if (b->kind == 0 && moved == 1 && b->count > 0 && origin->count > 0) {
            int64_t away = c->span[b->first].at - c->span[origin->first].at;
            step[along] = away / b->index[along];
            if (step[along] * b->index[along] != away) {
                return false;
            }
        }
    }
    return true;
}

/* How far what block `index` stores lies behind what the first of its kind stores. */
static int64_t moved_by(const sxv_cover *c, const int64_t index[3], const int64_t step[3])
{
    int64_t by = 0;
    for (uint32_t d = 0; d < 3; d++) {
        by += index[d] + 1 == c->grid[d] ? 0 : index[d] * step[d];
    }
    return by;
}

/* Is a block like the first of its kind, but moved? */
static bool is_like(const sxv_cover *c, const block *b, const int64_t step[3])
{
    const block *first = first_of(c, b->kind);
    int64_t by = moved_by(c, b->index, step);
    SX_ASSERT(first != NULL);
    bool like = b->path == first->path && b->count == first->count;
    for (uint32_t i = 0; like && i < b->count; i++) {
        const span *x = &c->span[b->first + i], *y = &c->span[first->first + i];
        like = x->at == y->at + by && x->bytes == y->bytes;
    }
    return like;
}

/* Marks what a block stores; false: outside, or stored before. */
static bool mark(sxv_cover *c, const int64_t index[3], const int64_t step[3], uint64_t *stored)
{
    const block *first = first_of(c, kind_of(c, index));
    int64_t by = moved_by(c, index, step);
    SX_ASSERT(first != NULL);
    for (uint32_t i = 0; i < first->count; i++) {
        const span *s = &c->span[first->first + i];
        int64_t at = s->at + by;
        if (at < 0 || at > (int64_t)c->bytes - s->bytes ||
            memchr(c->own + at, 1, (size_t)s->bytes) != NULL) {
            return false;
        }
        memset(c->own + at, 1, (size_t)s->bytes);
        *stored += (uint64_t)s->bytes;
    }
    return true;
}

bool sxv_cover_holds(sxv_cover *c, bool *partition)
{
    int64_t step[3];
    uint64_t stored = 0;
    bool once = true;
    if (!c->affine || !find_steps(c, step)) {
        return false;
    }
    for (uint32_t i = 0; i < c->ran_count; i++) {
        if (!is_like(c, &c->ran[i], step)) {
            return false;
        }
    }
    memset(c->own, 0, c->bytes);
    int64_t blocks = c->grid[0] * c->grid[1] * c->grid[2];
    for (int64_t i = 0; i < blocks && once; i++) {
        const int64_t index[3] = {i / (c->grid[1] * c->grid[2]), i / c->grid[2] % c->grid[1],
                                  i % c->grid[2]};
        once = mark(c, index, step, &stored);
    }
    *partition = once && stored == c->bytes;
    return true;
}
