/* between.c - kernels that differ in numbers alone, and these on a line. */
#include "core/loop/between.h"

#include <string.h>

int64_t sx_loop_on_way(int64_t from, int64_t to, int64_t at, int64_t of)
{
    int64_t whole = to - from, common = sx_gcd_i64(whole, of), moved = 0, there = 0;
    SX_ASSERT(of != 0 && common != 0);
    SX_ASSERT(at % (of / common) == 0);
    bool fits =
        sx_mul_i64(whole / common, at / (of / common), &moved) && sx_add_i64(from, moved, &there);
    SX_ASSERT(fits);
    return there;
}

/* ---- structure ---- */

static bool same_item(const sx_item *a, const sx_item *b)
{
    return a->kind == b->kind && a->op == b->op && a->mem == b->mem && a->dst == b->dst &&
           memcmp(a->src, b->src, sizeof(a->src)) == 0 && a->addr == b->addr && a->imm == b->imm &&
           a->any_trip == b->any_trip && a->warps == b->warps &&
           (a->imm2 == b->imm2 || (a->kind == SX_ITEM_OP && sx_lop_has_number(a->op)));
}

static bool same_part(const sx_part *a, const sx_part *b)
{
    bool same = a->item_count == b->item_count && a->addr_count == b->addr_count &&
                a->vector_count == b->vector_count && a->mask_count == b->mask_count &&
                a->scalar_count == b->scalar_count && a->var_count == b->var_count &&
                a->warps == b->warps && a->tile == NULL && b->tile == NULL;
    for (uint32_t i = 0; i < a->item_count && same; i++) {
        same = same_item(&a->item[i], &b->item[i]);
    }
    for (uint32_t i = 0; i < a->addr_count && same; i++) {
        same =
            a->addr[i].buffer == b->addr[i].buffer && a->addr[i].index_reg == b->addr[i].index_reg;
    }
    return same;
}

static bool same_structure(const sx_kernel *a, const sx_kernel *b)
{
    bool same = a->lanes == b->lanes && a->lane_bytes == b->lane_bytes &&
                a->numerics == b->numerics && a->part_count == b->part_count &&
                a->buffer_count == b->buffer_count;
    for (uint32_t k = 0; k < a->buffer_count && same; k++) {
        same = a->buffer[k].role == b->buffer[k].role;
    }
    for (uint32_t p = 0; p < a->part_count && same; p++) {
        same = same_part(&a->part[p], &b->part[p]);
    }
    return same;
}

/* ---- numbers ---- */

typedef struct {
    int64_t here, whole; /* from the low end to the kernel, and to the high one */
    int64_t unit;
} way;

static bool lies(const way *w, int64_t low, int64_t some, int64_t high)
{
    int64_t up = high - low, by = some - low, product, other, steps;
    if (up == 0) {
        return by == 0;
    }
    return sx_mul_i64(up, w->here, &product) && sx_mul_i64(by, w->whole, &other) &&
           product == other && sx_mul_i64(up, w->unit, &steps) && steps % w->whole == 0;
}

static bool lies_item(const way *w, const sx_item *low, const sx_item *some, const sx_item *high)
{
    if (low->kind == SX_ITEM_LOOP) {
        bool one = low->any_trip ||
                   ((low->trip > 1) == (some->trip > 1) && (low->trip > 1) == (high->trip > 1));
        return one && lies(w, low->trip, some->trip, high->trip);
    }
    bool number = low->kind == SX_ITEM_OP && sx_lop_has_number(low->op);
    return !number || lies(w, low->imm2, some->imm2, high->imm2);
}

static bool lies_address(const way *w, const sx_addr *low, const sx_addr *some, const sx_addr *high)
{
    bool fits = lies(w, low->offset, some->offset, high->offset);
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX && fits; v++) {
        int64_t a = low->coef[v], b = some->coef[v], c = high->coef[v];
        bool sign = (a < 0) == (c < 0) && (a == 0) == (c == 0) && (a == 0) == (b == 0);
        fits = sign && lies(w, a, b, c);
    }
    return fits;
}

static bool lies_part(const way *w, const sx_part *low, const sx_part *some, const sx_part *high)
{
    bool fits = true;
    for (uint32_t d = 0; d < SX_COUNT(low->grid) && fits; d++) {
        fits = lies(w, low->grid[d], some->grid[d], high->grid[d]);
    }
    for (uint32_t i = 0; i < low->item_count && fits; i++) {
        fits = lies_item(w, &low->item[i], &some->item[i], &high->item[i]);
    }
    for (uint32_t i = 0; i < low->addr_count && fits; i++) {
        fits = lies_address(w, &low->addr[i], &some->addr[i], &high->addr[i]);
    }
    return fits;
}

bool sx_loop_between(const sx_on_line *low, const sx_on_line *some, const sx_on_line *high,
                     int64_t unit)
{
    const way w = {some->value - low->value, high->value - low->value, unit};
    SX_ASSERT(w.whole > 0 && unit > 0);
    bool fits =
        same_structure(low->kernel, some->kernel) && same_structure(low->kernel, high->kernel);
    for (uint32_t k = 0; k < low->kernel->buffer_count && fits; k++) {
        fits = lies(&w, low->kernel->buffer[k].size, some->kernel->buffer[k].size,
                    high->kernel->buffer[k].size);
    }
    for (uint32_t p = 0; p < low->kernel->part_count && fits; p++) {
        fits = lies_part(&w, &low->kernel->part[p], &some->kernel->part[p], &high->kernel->part[p]);
    }
    return fits;
}
