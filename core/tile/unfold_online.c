/* unfold_online.c - what a block's online sum or nested contraction computes, element by element, as a program without
 * blocks of threads. */
#include <float.h>
#include <string.h>

#include "core/tile/online.h"
#include "core/tile/unfold.h"

#define NONE SX_NO_REG

typedef struct {
    sx_ctx *cx;
    const sx_tile *tile;
    sx_kernel *kernel;
    sx_loop_builder b;
    /* Holds what goes from stage to stage: the maximum, the sum of the weights and of the weighted values. */
    uint32_t workspace;
} unfolding;

static uint32_t op(unfolding *u, sx_lop lop, uint32_t dst, uint32_t x, uint32_t y, uint32_t z)
{
    return sx_loop_op(&u->b, lop, dst, NULL, x, y, z, 0, 0);
}

/* The instructions of an element's program, its registers behind those in use; register 0 of it is `given`. */
static uint32_t append(unfolding *u, const sx_part *part, uint32_t result, const uint32_t *given,
                       uint32_t given_count)
{
    sx_part *to = u->b.part;
    const uint32_t base[] = {to->vector_count, to->mask_count, to->scalar_count};
    to->vector_count += part->vector_count;
    to->mask_count += part->mask_count;
    to->scalar_count += part->scalar_count;
    for (uint32_t i = 0; i < given_count; i++) {
        (void)op(u, SX_LOP_MOV, base[0] + i, given[i], NONE, NONE);
    }
    for (uint32_t i = 0; i < part->item_count && u->b.code == SX_OK; i++) {
        sx_item item = part->item[i];
        const sx_lop_info *info = sx_lop_info_of(item.op);
        sx_addr address = {.index_reg = NONE};
        uint32_t operand = 0;
        for (const char *p = info->operands; *p != '\0'; p++) {
            if (*p == 'v' || *p == 'm' || *p == 's') {
                item.src[operand++] += base[*p == 'v' ? 0 : *p == 'm' ? 1 : 2];
            }
        }
        item.dst += info->result == 'v'   ? base[0]
                    : info->result == 'm' ? base[1]
                    : info->result == 's' ? base[2]
                                          : 0;
        bool memory = info->operands[0] == 'A';
        if (memory) {
            address = part->addr[item.addr];
            address.index_reg += address.index_reg != NONE ? base[2] : 0;
        }
        (void)sx_loop_op(&u->b, item.op, item.dst, memory ? &address : NULL, item.src[0],
                         item.src[1], item.src[2], item.imm, item.imm2);
        if (u->b.code == SX_OK) {
            u->b.part->item[u->b.part->item_count - 1].mem = item.mem;
        }
    }
    return base[0] + result;
}

/* An element of a view: `side` and `sum` say how far each variable moves along them. */
static uint32_t load(unfolding *u, const sx_tile_view *view, const sx_addr *side,
                     const sx_addr *sum)
{
    int64_t bytes = sx_dtype_bytes(view->element);
    sx_addr a = {.buffer = view->buffer, .index_reg = NONE};
    a.offset =
        (view->offset + side->offset * view->side_stride + sum->offset * view->sum_stride) * bytes;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        a.coef[v] = (side->coef[v] * view->side_stride + sum->coef[v] * view->sum_stride) * bytes;
    }
    for (uint32_t d = 0; d < u->tile->batch_count; d++) {
        a.coef[SX_TILE_VAR_BATCH + d] += view->batch_stride[d] * bytes;
    }
    sx_mem mem = sx_loop_mem(view->element, u->b.kernel->lane_bytes);
    uint32_t raw = sx_loop_access(&u->b, SX_LOP_LOADB, mem, &a, NONE, 0, 0);
    return sx_loop_decode(&u->b, view->element, raw);
}

static sx_addr carried(const unfolding *u, uint32_t which)
{
    return (sx_addr){.buffer = u->workspace, .offset = 4 * (int64_t)which, .index_reg = NONE};
}

static uint32_t take(unfolding *u, uint32_t which)
{
    sx_addr a = carried(u, which);
    return sx_loop_op(&u->b, SX_LOP_LOADB, NONE, &a, NONE, NONE, NONE, 0, 0);
}

static void leave(unfolding *u, uint32_t which, uint32_t value)
{
    sx_addr a = carried(u, which);
    (void)sx_loop_op(&u->b, SX_LOP_STORE, NONE, &a, value, NONE, NONE, 1, 0);
}

static sx_addr along(uint32_t variable)
{
    sx_addr a = {.index_reg = NONE};
    a.coef[variable] = 1;
    return a;
}

/* The score of the key, in the program of whole stages or of the rest. */
static uint32_t put_score(unfolding *u, uint32_t which, const sx_addr *key)
{
    const sx_tile_online *online = u->tile->online;
    uint32_t dot[SX_TILE_PRODUCTS_MAX], products = sx_tile_products(u->tile);
    for (uint32_t i = 0; i < products; i++) {
        uint32_t keys = i == 0 ? SX_TILE_LEFT : SX_TILE_SECOND;
        dot[i] = op(u, SX_LOP_SET, NONE, NONE, NONE, NONE);
        uint32_t d = sx_loop_open(&u->b, u->tile->rows);
        sx_addr row = along(SX_TILE_VAR_ROW), step = along(d);
        uint32_t left =
            load(u, &sx_tile_query(u->tile, i)->operand[SX_TILE_LEFT].view, &row, &step);
        uint32_t right = load(u, &u->tile->operand[keys].view, &step, key);
        (void)op(u, SX_LOP_FMA, dot[i], left, right, dot[i]);
        sx_loop_close(&u->b);
    }
    return append(u, &online->scores[which].part, online->scores[which].result, dot, products);
}

static uint32_t power(unfolding *u, uint32_t x, uint32_t minus)
{
    const sx_tile_value *p = &u->tile->online->power;
    uint32_t difference = op(u, SX_LOP_SUB, NONE, x, minus, NONE);
    return append(u, &p->part, p->result, &difference, 1);
}

/* `count` keys of a stage; `first` is how the number of the first follows from the variables. */
static void put_stage(unfolding *u, uint32_t which, const sx_addr *first, int64_t count)
{
    sx_loop_builder *b = &u->b;
    uint32_t column = SX_TILE_VAR_COLUMN;
    uint32_t maximum = take(u, SX_TILE_MAXIMUM);
    uint32_t key_at = sx_loop_open(b, count);
    sx_addr key = *first, across = along(column);
    key.coef[key_at] = 1;
    (void)op(u, SX_LOP_MAX, maximum, put_score(u, which, &key), maximum, NONE);
    sx_loop_close(b);
    uint32_t factor = power(u, take(u, SX_TILE_MAXIMUM), maximum);
    uint32_t total = op(u, SX_LOP_MUL, NONE, take(u, SX_TILE_WEIGHT_SUM), factor, NONE);
    uint32_t sum = op(u, SX_LOP_MUL, NONE, take(u, SX_TILE_VALUE_SUM), factor, NONE);
    leave(u, SX_TILE_MAXIMUM, maximum);
    (void)sx_loop_open(b, count);
    sx_loop_step round = {.op = SX_OP_CONVERT, .from = SX_F32, .to = u->tile->matrix->factor};
    uint32_t weight = power(u, put_score(u, which, &key), maximum);
    weight = sx_loop_typed(b, &round, weight, NONE, NONE);
    uint32_t value = load(u, &u->tile->operand[SX_TILE_RIGHT].view, &across, &key);
    (void)op(u, SX_LOP_ADD, total, total, weight, NONE);
    (void)op(u, SX_LOP_FMA, sum, value, weight, sum);
    sx_loop_close(b);
    leave(u, SX_TILE_WEIGHT_SUM, total);
    leave(u, SX_TILE_VALUE_SUM, sum);
}

/* The same of a nested contraction, whose sum stays in register `sum`. */
static void put_nested_stage(unfolding *u, uint32_t which, const sx_addr *first, int64_t count,
                             uint32_t sum)
{
    sx_loop_builder *b = &u->b;
    uint32_t key_at = sx_loop_open(b, count);
    sx_addr key = *first, across = along(SX_TILE_VAR_COLUMN);
    key.coef[key_at] = 1;
    sx_loop_step round = {.op = SX_OP_CONVERT, .from = SX_F32, .to = u->tile->matrix->factor};
    uint32_t weight = put_score(u, which, &key);
    weight = u->tile->online->rounded ? weight : sx_loop_typed(b, &round, weight, NONE, NONE);
    uint32_t value = load(u, &u->tile->operand[SX_TILE_RIGHT].view, &across, &key);
    (void)op(u, SX_LOP_FMA, sum, weight, value, sum);
    sx_loop_close(b);
}

/* Loops have the variables in the order of their numbers, so a rest of the keys stands in a loop of one turn. */
static void put_keys(unfolding *u, uint32_t sum)
{
    const sx_tile *tile = u->tile;
    int64_t whole = tile->sum / tile->block_steps, rest = tile->sum % tile->block_steps;
    sx_addr first = {.index_reg = NONE};
    if (whole > 0) {
        uint32_t stage = sx_loop_open(&u->b, whole);
        SX_ASSERT(u->b.code != SX_OK || stage == sx_tile_stage_variable(tile));
        first.coef[stage] = tile->block_steps;
        if (tile->online->nested) {
            put_nested_stage(u, 0, &first, tile->block_steps, sum);
        } else {
            put_stage(u, 0, &first, tile->block_steps);
        }
        sx_loop_close(&u->b);
    }
    if (rest > 0) {
        (void)sx_loop_open(&u->b, 1);
        sx_addr behind = {.offset = whole * tile->block_steps, .index_reg = NONE};
        if (tile->online->nested) {
            put_nested_stage(u, 1, &behind, rest, sum);
        } else {
            put_stage(u, 1, &behind, rest);
        }
        sx_loop_close(&u->b);
    }
}

/* What `map` stores, in each column of each row; or what `map` of rows does, in one. */
static sx_code unfold_map(unfolding *u, const sx_part *map, int64_t columns)
{
    const sx_tile *tile = u->tile;
    sx_loop_begin_part(&u->b, u->cx, u->kernel, 1, 1, 1);
    uint32_t row = sx_loop_open(&u->b, tile->online->query->rows);
    uint32_t column = sx_loop_open(&u->b, columns);
    SX_ASSERT(u->b.code != SX_OK || (row == SX_TILE_VAR_ROW && column == SX_TILE_VAR_COLUMN));
    for (uint32_t k = 0; k < tile->batch_count; k++) {
        (void)sx_loop_open(&u->b, tile->batch[k]);
    }
    uint32_t given[SX_TILE_ONLINE_SUMS];
    if (tile->online->nested) {
        given[0] = sx_loop_set(&u->b, 0.0f);
        put_keys(u, given[0]);
    } else {
        leave(u, SX_TILE_MAXIMUM, sx_loop_set(&u->b, -FLT_MAX));
        leave(u, SX_TILE_WEIGHT_SUM, sx_loop_set(&u->b, 0.0f));
        leave(u, SX_TILE_VALUE_SUM, sx_loop_set(&u->b, 0.0f));
        put_keys(u, NONE);
        for (uint32_t k = 0; k < SX_TILE_ONLINE_SUMS; k++) {
            given[k] = take(u, k);
        }
    }
    (void)append(u, map, 0, given, sx_tile_sums(tile));
    for (uint32_t k = 0; k < 2 + tile->batch_count; k++) {
        sx_loop_close(&u->b);
    }
    return sx_loop_end_part(&u->b);
}

sx_code sx_tile_unfold_online(sx_ctx *cx, const sx_tile *tile, sx_kernel *kernel)
{
    unfolding u = {.cx = cx, .tile = tile, .kernel = kernel};
    _Static_assert(SX_TILE_VAR_BATCH + SX_RANK_MAX + 3 <= SX_LOOP_VARS_MAX, "three loops are left");
    u.workspace = kernel->buffer_count - 1;
    if (!tile->online->nested && kernel->buffer[u.workspace].role != SX_BUFFER_WORKSPACE) {
        u.workspace = sx_kernel_add_buffer(kernel, SX_BUFFER_WORKSPACE, 4 * SX_TILE_ONLINE_SUMS);
    }
    SX_TRY(unfold_map(&u, &tile->map, tile->columns));
    return tile->online->statistic != NULL ? unfold_map(&u, tile->online->statistic, 1) : SX_OK;
}
