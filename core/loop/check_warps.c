/* check_warps.c - iterations that the warps of a block run at once take nothing from each other.
 *
 * All warps run the program side by side and meet before and behind each loop over warps. So it computes what one would
 * that runs the iterations in turn, if no iteration touches bytes that another one of its loop stores, and if nothing
 * is stored outside of such loops, where all warps would store it. The first is shown by intervals: all accesses of a
 * loop to a buffer that it stores to lie in a window of bytes, which moves from iteration to iteration by its own
 * length at least. Registers are each warp's own: check.c takes what an iteration has written from the others. */
#include "core/loop/check.h"

/* What a loop over warps touches of a buffer. */
typedef struct {
    bool touched, stored;
    /* Its address is not known from the text, or moves otherwise than those before with what is outside the loop. */
    bool anywhere;
    /* The window of the first iteration, with all variables outside of the loop at 0. */
    int64_t low, high;
    /* What the loop's own variable and those outside are multiplied by, all alike. */
    int64_t coef[SX_LOOP_VARS_MAX];
} window;

typedef struct {
    sx_ctx *cx;
    const sx_kernel *kernel;
    const sx_part *part;
    uint32_t part_index;
    uint32_t own; /* the variable of the loop */
    int64_t trip[SX_LOOP_VARS_MAX];
    window of[SX_LOOP_BUFFERS_MAX];
} warps_walk;

static bool is_store(const sx_item *item)
{
    return item->kind == SX_ITEM_OP && sx_lop_info_of(item->op)->result == '-' &&
           item->op != SX_LOP_PREFETCH;
}

static bool touches(const sx_item *item)
{
    return item->kind == SX_ITEM_OP && item->op != SX_LOP_PREFETCH &&
           sx_lop_info_of(item->op)->operands[0] == 'A';
}

/* Adds an access to the window of its buffer. */
static void add_access(warps_walk *w, const sx_item *item)
{
    const sx_addr *addr = &w->part->addr[item->addr];
    window *of = &w->of[addr->buffer];
    int64_t low, high;
    bool known = sx_loop_access_bytes(item, w->kernel, &low, &high);
    known = known && addr->index_reg == SX_NO_REG && sx_add_i64(low, addr->offset, &low) &&
            sx_add_i64(high, addr->offset, &high);
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        if (v <= w->own) {
            known = known && (!of->touched || of->coef[v] == addr->coef[v]);
            of->coef[v] = addr->coef[v];
        } else if (addr->coef[v] != 0) {
            int64_t reach;
            known = known && sx_mul_i64(addr->coef[v], w->trip[v] - 1, &reach) &&
                    (reach < 0 ? sx_add_i64(low, reach, &low) : sx_add_i64(high, reach, &high));
        }
    }
    of->low = of->touched ? sx_min_i64(of->low, low) : low;
    of->high = of->touched ? sx_max_i64(of->high, high) : high;
    of->touched = true;
    of->stored = of->stored || is_store(item);
    of->anywhere = of->anywhere || !known;
}

/* The loop over warps at item `first`; *last: its END. */
static sx_code check_loop(warps_walk *w, uint32_t first, uint32_t *last)
{
    const sx_item *loop = &w->part->item[first];
    uint32_t at = first + 1;
    w->own = loop->dst;
    for (uint32_t depth = 1; depth > 0; at++) {
        const sx_item *item = &w->part->item[at];
        SX_ASSERT(at < w->part->item_count);
        depth += item->kind == SX_ITEM_LOOP;
        depth -= item->kind == SX_ITEM_END;
        if (item->kind == SX_ITEM_LOOP && item->warps) {
            return SX_FAIL(w->cx, SX_INPUT,
                           "kernel %s: part %u: item %u: a loop over warps inside of another",
                           w->kernel->name, w->part_index, at);
        }
        if (item->kind == SX_ITEM_LOOP) {
            w->trip[item->dst] = item->trip;
        } else if (touches(item)) {
            add_access(w, item);
        }
    }
    *last = at - 1;
    for (uint32_t b = 0; b < w->kernel->buffer_count; b++) {
        const window *of = &w->of[b];
        int64_t length = 0;
        bool known = !of->anywhere && sx_sub_i64(of->high, of->low, &length);
        if (of->stored && loop->trip > 1 && !known) {
            return SX_FAIL(w->cx, SX_INPUT,
                           "kernel %s: part %u: item %u: accesses to buffer %u, which warps store "
                           "to, move with their iterations in different ways",
                           w->kernel->name, w->part_index, first, b);
        }
        if (of->stored && loop->trip > 1 && length > of->coef[w->own]) {
            return SX_FAIL(w->cx, SX_INPUT,
                           "kernel %s: part %u: item %u: iterations of warps meet in buffer %u: "
                           "each touches %lld bytes, %lld from the next",
                           w->kernel->name, w->part_index, first, b, (long long)length,
                           (long long)of->coef[w->own]);
        }
    }
    return SX_OK;
}

sx_code sx_kernel_check_warps(sx_ctx *cx, const sx_kernel *kernel, uint32_t index)
{
    SX_ASSERT(index < kernel->part_count && kernel->buffer_count <= SX_LOOP_BUFFERS_MAX);
    const sx_part *part = &kernel->part[index];
    if (part->warps > SX_PART_WARPS_MAX) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: part %u: %u warps, at most %d", kernel->name,
                       index, part->warps, SX_PART_WARPS_MAX);
    }
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        if (item->kind == SX_ITEM_LOOP && item->warps) {
            if (item->trip > part->warps) {
                return SX_FAIL(cx, SX_INPUT,
                               "kernel %s: part %u: item %u: a loop over %lld warps of %u",
                               kernel->name, index, i, (long long)item->trip, part->warps);
            }
            warps_walk w = {.cx = cx, .kernel = kernel, .part = part, .part_index = index};
            SX_TRY(check_loop(&w, i, &i));
        } else if (part->warps > 0 && is_store(item)) {
            return SX_FAIL(cx, SX_INPUT,
                           "kernel %s: part %u: item %u: all warps of a block store the same",
                           kernel->name, index, i);
        }
    }
    return SX_OK;
}
