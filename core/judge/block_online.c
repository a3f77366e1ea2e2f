/* block_online.c - online sums and nested contractions of blocks: whole heads, queries beside the ring, and scores that
 * are the left factor of the last product where they stand. */
#include "core/judge/block.h"

#include "core/tile/online.h"

/* A block has all of d and all columns, and the queries are those of its keys: beyond the last d both are zero. */
static bool check_heads(const sx_block *b)
{
    const sx_tile *t = b->t;
    const sx_matrix_instruction *m = t->matrix;
    bool ok = m != NULL && t->batch_count <= SX_RANK_MAX && t->rows <= t->block_rows &&
              t->columns <= t->block_columns && b->kernel->lane_bytes == 4 && m->sum == SX_F32 &&
              t->block_steps % m->steps == 0 &&
              (t->online->nested ? !t->online->has_horizon && t->online->statistic == NULL
                                 : t->online->second == NULL);
    for (uint32_t i = 0; ok && i < sx_tile_products(t); i++) {
        const sx_tile *q = sx_tile_query(t, i);
        ok = q->matrix == m && q->threads == t->threads && q->sum == t->rows &&
             q->rows == t->online->query->rows && q->block_rows == t->online->query->block_rows &&
             q->block_steps == t->block_rows && q->batch_count == t->batch_count &&
             q->operand[0].view.element == m->factor && q->operand[0].group == m->steps;
        for (uint32_t d = 0; ok && d < t->batch_count; d++) {
            ok = q->batch[d] == t->batch[d];
        }
    }
    for (uint32_t k = 0; ok && k < sx_tile_operands(t); k++) {
        ok = t->operand[k].view.element == m->factor && t->operand[k].group == m->steps;
    }
    if (!ok) {
        (void)sx_refuse(b->g, "queries, keys and values do not fit to each other in a block");
    }
    return ok;
}

/* The queries lie beside the ring and its barriers, and beside those of the product before. */
static bool check_query_slot(const sx_block *b, uint32_t product)
{
    const sx_ring *own = &sx_tile_query(b->t, product)->ring, *ring = &b->t->ring;
    const sx_ring *other = &b->t->online->query->ring;
    uint64_t begin = own->offset, first = ring->offset, barriers = ring->barriers;
    uint64_t end = begin + own->slot[0].bytes;
    uint64_t last = first + (uint64_t)sx_ring_stage_bytes(ring) * ring->depth;
    bool apart = (end <= first || begin >= last) &&
                 (end <= barriers || begin >= barriers + UINT64_C(16) * ring->depth);
    apart = apart && (product == 0 || end <= other->offset ||
                      begin >= (uint64_t)other->offset + other->slot[0].bytes);
    if (own->slot_count != 1 || own->depth != 1 || begin % SX_SLOT_UNIT != 0 || !apart ||
        end > b->t->shared_bytes) {
        (void)sx_refuse(b->g, "the queries do not lie apart from the ring");
        return false;
    }
    return true;
}

/* A program of an element that only reads inputs. */
static bool check_reads(const sx_block *b, const sx_tile_value *value)
{
    bool ok = value->part.item_count == 0 || value->result < value->part.vector_count;
    for (uint32_t i = 0; ok && i < value->part.item_count; i++) {
        const sx_item *item = &value->part.item[i];
        bool memory = sx_lop_info_of(item->op)->operands[0] == 'A';
        ok = item->kind == SX_ITEM_OP && item->op != SX_LOP_SWAP && item->op != SX_LOP_BCAST0 &&
             item->op != SX_LOP_IOTA &&
             (!memory ||
              (item->op == SX_LOP_LOADB &&
               b->kernel->buffer[value->part.addr[item->addr].buffer].role == SX_BUFFER_IN));
    }
    if (!ok) {
        (void)sx_refuse(b->g, "a program of scores does more than read");
    }
    return ok;
}

/* An inner product: threads hold the factors of their scores. */
static sx_code check_inner(const sx_block *b, uint32_t product, const sx_layout *scores,
                           uint32_t warps, bool *ok)
{
    const sx_tile *t = b->t, *q = sx_tile_query(t, product);
    const sx_tile_operand *keys = &t->operand[product == 0 ? SX_TILE_LEFT : SX_TILE_SECOND];
    uint32_t group = t->matrix->steps;
    sx_layout query = q->operand[0].held, key = keys->held;
    SX_TRY(sx_layout_check(b->j->cx, &query));
    SX_TRY(sx_layout_check(b->j->cx, &key));
    query = q->operand[0].sum_inner ? query : sx_layout_transpose(&query);
    key = keys->sum_inner ? key : sx_layout_transpose(&key);
    *ok = *ok && sx_block_has_sides(&query, warps, q->block_rows, group) &&
          sx_block_has_sides(&key, warps, group, t->block_steps) &&
          sx_block_in_fragments(b, SX_OPERAND_A, &query, &query) &&
          sx_block_in_fragments(b, SX_OPERAND_B, &key, &key) &&
          sx_block_holds_factors(scores, &query, SX_SIDE_ROW) &&
          sx_block_holds_factors(scores, &key, SX_SIDE_COLUMN);
    return SX_OK;
}

/* All products: threads hold their factors, and the scores of a thread are its left factor of the last one. */
static sx_code check_products(const sx_block *b, uint32_t warps)
{
    const sx_tile *t = b->t;
    const sx_tile_operand *values = &t->operand[SX_TILE_RIGHT];
    const uint32_t rows = t->online->query->block_rows, stage = t->block_steps;
    sx_layout scores = t->online->held, sums = t->held, weights = scores, value = values->held;
    SX_TRY(sx_layout_check(b->j->cx, &scores));
    SX_TRY(sx_layout_check(b->j->cx, &sums));
    SX_TRY(sx_layout_check(b->j->cx, &value));
    value = values->sum_inner ? sx_layout_transpose(&value) : value;
    bool ok = sx_block_has_sides(&scores, warps, rows, stage) &&
              sx_block_has_sides(&sums, warps, rows, t->block_columns) &&
              sx_block_has_sides(&value, warps, t->matrix->steps, t->block_columns) &&
              sx_layout_covers(&scores) && sx_layout_unique(&scores) && sx_layout_covers(&sums) &&
              sx_layout_unique(&sums) &&
              sx_block_in_fragments(b, SX_OPERAND_A, &weights, &weights) &&
              sx_block_in_fragments(b, SX_OPERAND_C, &scores, &scores) &&
              sx_block_in_fragments(b, SX_OPERAND_C, &sums, &sums) &&
              sx_block_in_fragments(b, SX_OPERAND_B, &value, &value) &&
              sx_block_holds_factors(&sums, &weights, SX_SIDE_ROW) &&
              sx_block_holds_factors(&sums, &value, SX_SIDE_COLUMN);
    for (uint32_t i = 0; ok && i < sx_tile_products(t); i++) {
        SX_TRY(check_inner(b, i, &scores, warps, &ok));
    }
    if (!ok) {
        (void)sx_refuse(b->g, "threads do not hold the factors of their scores and sums");
    }
    return b->j->cx->error.code;
}

/* The program of each row, beside that of each element: one store a row, whoever of its threads makes it. */
static bool check_statistic(const sx_block *b)
{
    sx_tile rows = *b->t;
    const sx_block stored = {b->j, b->g, b->kernel, b->part, &rows};
    rows.rows = b->t->online->query->rows;
    rows.columns = 1;
    return b->t->online->statistic == NULL || sx_block_check_map(&stored, b->t->online->statistic);
}

/* What lies in shared memory and how it comes there: of the ring, and of the queries of a product. */
static bool check_places(const sx_block *b)
{
    const sx_tile *t = b->t;
    bool ok = sx_block_check_shared(b);
    for (uint32_t k = 0; ok && k < sx_tile_operands(t); k++) {
        ok = sx_block_check_view(b, k) && sx_block_check_copies(b, k);
    }
    for (uint32_t i = 0; ok && i < sx_tile_products(t); i++) {
        const sx_block query = {b->j, b->g, b->kernel, b->part, sx_tile_query(t, i)};
        ok = sx_block_check_grid(&query) && sx_block_check_view(&query, SX_TILE_LEFT) &&
             sx_block_check_slot(&query, SX_TILE_LEFT) && check_query_slot(b, i) &&
             sx_block_check_copies(&query, SX_TILE_LEFT);
    }
    return ok;
}

static sx_code check_all_copied(const sx_block *b, uint32_t warps)
{
    for (uint32_t k = 0; k < sx_tile_operands(b->t) && !b->g->refused; k++) {
        SX_TRY(sx_block_check_copied(b, k, warps));
    }
    for (uint32_t i = 0; i < sx_tile_products(b->t) && !b->g->refused; i++) {
        const sx_block query = {b->j, b->g, b->kernel, b->part, sx_tile_query(b->t, i)};
        SX_TRY(sx_block_check_copied(&query, SX_TILE_LEFT, warps));
    }
    return SX_OK;
}

sx_code sx_block_prove_online(const sx_block *b)
{
    const sx_tile *t = b->t;
    sx_tile result = *t; /* what `map` stores: rows are those of the queries */
    result.rows = t->online->query->rows;
    const sx_block stored = {b->j, b->g, b->kernel, b->part, &result};
    sx_block_crew warps = {0};
    bool ok = check_heads(b) && check_places(b) && sx_block_check_map(&stored, &t->map) &&
              check_statistic(b) && check_reads(b, &t->online->scores[0]) &&
              check_reads(b, &t->online->scores[1]) &&
              (t->online->nested || check_reads(b, &t->online->power));
    if (ok) {
        SX_TRY(sx_block_check_roles(b, &warps));
    }
    uint32_t all = t->threads / SX_BLOCK_WARP;
    bool every = warps.multiply == all;
    for (uint32_t k = 0; k < sx_tile_operands(t); k++) {
        every = every && warps.load[k] == all;
    }
    if (!b->g->refused && !every) {
        (void)sx_refuse(b->g, "not all warps of the block load and multiply");
    }
    if (!b->g->refused) {
        SX_TRY(check_all_copied(b, all));
    }
    if (!b->g->refused) {
        SX_TRY(check_products(b, all));
    }
    return b->g->refused || !t->online->has_horizon ? SX_OK : sx_prove_horizon(b->j, t);
}
