/* What is lowered for blocks of a GPU, at random schedules: all of it is proven. Faults planted in the numbers of such
 * programs are refused, by the check of the lowering or by the judge, or the block that is emitted all the same gives
 * the same bits. */
#include "tests/core/nvidia/tiles.h"

#include "tests/lib/unit.h"

static const sx_matrix_instruction matrices[] = {
    {"mma.m16n8k16.bf16", SX_BF16, SX_F32, 16, 8, 16, 1, "test-bf16", 0, 0},
    {"mma.m16n8k16.f16", SX_F16, SX_F32, 16, 8, 16, 1, "test-f16", 0, 0},
};

static int64_t power(sx_rng *rng, uint32_t low, uint32_t high)
{
    return INT64_C(1) << (low + sx_rng_below(rng, high - low + 1));
}

/* Extents of a kernel, and blocks that may or may not suit it. */
static tiles_case random_case(sx_rng *rng)
{
    static const sx_dtype types[] = {SX_F32, SX_F32, SX_F64, SX_BF16, SX_F16};
    static const int64_t extents[] = {1, 3, 8, 13, 16, 32, 48, 65, 128, 200};
#define EXTENT extents[sx_rng_below(rng, SX_COUNT(extents))]
    return (tiles_case){.dtype = types[sx_rng_below(rng, SX_COUNT(types))],
                        .b = 1 + (int64_t)sx_rng_below(rng, 3),
                        .m = EXTENT,
                        .k = EXTENT,
                        .n = EXTENT,
                        .left_turned = sx_rng_below(rng, 2) != 0,
                        .right_turned = sx_rng_below(rng, 2) != 0,
                        .after = (uint32_t)sx_rng_below(rng, 4)};
#undef EXTENT
}

static sx_block_tiles random_tiles(sx_rng *rng, bool matrix)
{
    sx_block_tiles t = {.depth = 2 + (uint32_t)sx_rng_below(rng, 4)};
    if (matrix) {
        t.matrix_rows = 16;
        t.matrix_columns = 8;
        t.matrix_steps = 16;
        t.warp_rows = power(rng, 4, 6);
        t.warp_columns = power(rng, 3, 6);
        t.steps = power(rng, 4, 6);
    } else {
        t.thread_rows = (uint32_t)power(rng, 0, 3);
        t.thread_columns = (uint32_t)power(rng, 0, 3);
        uint32_t lanes = (uint32_t)sx_rng_below(rng, 6);
        t.warp_rows = (int64_t)t.thread_rows << lanes;
        t.warp_columns = (int64_t)t.thread_columns << (5 - lanes);
        t.steps = power(rng, 2, 5);
    }
    t.rows = t.warp_rows * power(rng, 0, 2);
    t.columns = t.warp_columns * power(rng, 0, 2);
    return t;
}

/* SX_OK with the kernel, or what the lowering says it does not follow. */
static sx_code lower(sx_ctx *cx, const node *n, sx_block_tiles tiles, sx_kernel **kernel)
{
    const sx_analysis *a = analysis_of(cx, n);
    sx_tile_unit unit = tiles_unit(&sx_target_sm_80);
    unit.matrix = matrices;
    unit.matrix_count = SX_COUNT(matrices);
    sx_schedule s;
    tiles.left = a->lhs;
    tiles.right = a->rhs;
    sx_schedule_block(&tiles, &s);
    return sx_tile_lower_dot(cx, &unit, "block", a, &s, kernel);
}

static bool has_matrix(sx_dtype dtype)
{
    return dtype == SX_BF16 || dtype == SX_F16;
}

START_TEST(test_proven)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    uint32_t lowered = 0, refused = 0;
    for (uint32_t round = 0; round < 30; round++) {
        sx_ctx cx;
        sx_judge *judge;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
        tiles_case c = random_case(&rng);
        node n = tiles_node(&cx, &c);
        for (uint32_t k = 0; k < 6; k++) {
            sx_kernel *kernel;
            sx_judge_facts facts = {0};
            sx_verdict verdict;
            sx_block_tiles tiles = random_tiles(&rng, has_matrix(c.dtype));
            sx_code code = lower(&cx, &n, tiles, &kernel);
            if (code != SX_OK) {
                ck_assert_msg(code == SX_UNIMPLEMENTED || code == SX_LIMIT, "%s", cx.error.text);
                sx_ctx_reset_error(&cx);
                refused++;
                continue;
            }
            lowered++;
            ck_sx_ok(&cx,
                     sx_judge_kernel(judge, &n.fused, n.input, n.count, &facts, kernel, &verdict));
            sx_buf text;
            sx_buf_init(&text, 1 << 20);
            ck_sx_ok(&cx, sx_tile_print(&cx, &kernel->part[0], &text));
            ck_assert_msg(verdict.proven, "%s\n%.*s", verdict.text, (int)text.len,
                          (const char *)text.ptr);
            sx_buf_fini(&text);
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_msg(lowered > 30 && refused > 0, "%u lowered, %u not", lowered, refused);
}
END_TEST

/* ---- planted faults ---- */

static sx_kernel *copy_of(sx_ctx *cx, const sx_kernel *kernel)
{
    sx_kernel *copy = SX_NEW(cx, sx_kernel);
    sx_tile *t = SX_NEW(cx, sx_tile);
    sx_part *part = SX_NEW(cx, sx_part);
    ck_assert(copy != NULL && t != NULL && part != NULL);
    *copy = *kernel;
    *part = kernel->part[0];
    *t = *part->tile;
    t->map.item = SX_NEW_ARRAY(cx, sx_item, t->map.item_count);
    t->map.addr = SX_NEW_ARRAY(cx, sx_addr, t->map.addr_count);
    ck_assert(t->map.item != NULL && t->map.addr != NULL);
    memcpy(t->map.item, part->tile->map.item, t->map.item_count * sizeof(sx_item));
    memcpy(t->map.addr, part->tile->map.addr, t->map.addr_count * sizeof(sx_addr));
    copy->part = part;
    part->tile = t;
    return copy;
}

static int64_t another(sx_rng *rng, int64_t x)
{
    static const int64_t some[] = {0, 1, 2, 4, 16};
    switch (sx_rng_below(rng, 5)) {
    case 0: return x + 1;
    case 1: return x - 1;
    case 2: return 2 * x;
    case 3: return x / 2;
    default: return some[sx_rng_below(rng, SX_COUNT(some))];
    }
}

static void change_layout(sx_rng *rng, sx_layout *layout)
{
    uint32_t bits = sx_layout_input_bits(layout);
    if (bits == 0) {
        return;
    }
    uint32_t *x = &layout->column[sx_rng_below(rng, bits)];
    uint32_t *y = &layout->column[sx_rng_below(rng, bits)], old = *x;
    switch (sx_rng_below(rng, 4)) {
    case 0: *x = *y; break;
    case 1: *x = 0; break;
    default: *x = *y, *y = old;
    }
}

static void change_view(sx_rng *rng, sx_tile_view *v)
{
    int64_t *const of[] = {&v->offset,          &v->side_stride, &v->sum_stride,
                           &v->batch_stride[0], &v->side_extent, &v->sum_extent};
    int64_t *field = of[sx_rng_below(rng, SX_COUNT(of))];
    *field = another(rng, *field);
}

static void change_memory(sx_rng *rng, sx_tile *t)
{
    sx_slot *slot = &t->ring.slot[sx_rng_below(rng, 2)];
    uint32_t *const of[] = {&slot->rows,        &slot->panels,    &slot->panel_bytes,
                            &slot->pitch,       &slot->bytes,     &t->ring.depth,
                            &t->ring.offset,    &t->shared_bytes, &t->ring.barriers,
                            &t->ring.slot_count};
    uint32_t *field = of[sx_rng_below(rng, SX_COUNT(of))];
    if (sx_rng_below(rng, 6) == 0) {
        slot->swizzle = (sx_swizzle)sx_rng_below(rng, SX_SWIZZLE_COUNT);
    } else {
        *field = (uint32_t)another(rng, *field);
    }
}

static void change_block(sx_rng *rng, sx_part *part)
{
    sx_tile *t = part->tile;
    sx_tile_operand *o = &t->operand[sx_rng_below(rng, 2)];
    uint32_t *const of[] = {&t->threads,     &t->block_rows, &t->block_columns,
                            &t->block_steps, &o->copy_bytes, &o->group};
    int64_t *const wide[] = {&t->rows,       &t->columns,    &t->sum,       &t->batch[0],
                             &part->grid[0], &part->grid[1], &part->grid[2]};
    if (sx_rng_below(rng, 2) == 0) {
        uint32_t *field = of[sx_rng_below(rng, SX_COUNT(of))];
        *field = (uint32_t)another(rng, *field);
    } else {
        int64_t *field = wide[sx_rng_below(rng, SX_COUNT(wide))];
        *field = another(rng, *field);
    }
}

static void change_map(sx_rng *rng, sx_part *map)
{
    sx_addr *a = &map->addr[sx_rng_below(rng, map->addr_count)];
    sx_item *item = &map->item[sx_rng_below(rng, map->item_count)];
    switch (sx_rng_below(rng, 4)) {
    case 0: a->offset = another(rng, a->offset); break;
    case 1: item->src[sx_rng_below(rng, 2)] = (uint32_t)sx_rng_below(rng, map->vector_count); break;
    case 2: item->imm = (uint32_t)another(rng, item->imm) & 0xffU; break;
    default: {
        int64_t *c = &a->coef[SX_TILE_VAR_ROW + sx_rng_below(rng, 3)];
        *c = another(rng, *c);
    }
    }
}

static void change_role(sx_rng *rng, sx_tile *t)
{
    sx_tile_role *role = &t->role[sx_rng_below(rng, t->role_count)];
    sx_tile_item *x = &role->item[sx_rng_below(rng, role->item_count)];
    sx_tile_item *y = &role->item[sx_rng_below(rng, role->item_count)], old = *x;
    switch (sx_rng_below(rng, 4)) {
    case 0: *x = *y, *y = old; break;
    case 1: x->back++; break;
    case 2: x->operand ^= 1U; break;
    default: role->warps = (uint32_t)another(rng, role->warps);
    }
}

static void change(sx_rng *rng, sx_kernel *kernel)
{
    sx_tile *t = kernel->part[0].tile;
    sx_tile_operand *o = &t->operand[sx_rng_below(rng, 2)];
    switch (sx_rng_below(rng, 9)) {
    case 0: change_view(rng, &o->view); break;
    case 1: change_layout(rng, &t->held); break;
    case 2: change_layout(rng, &o->held); break;
    case 3: change_layout(rng, &o->copied); break;
    case 4: change_memory(rng, t); break;
    case 5: change_block(rng, &kernel->part[0]); break;
    case 6: change_map(rng, &t->map); break;
    case 7: change_role(rng, t); break;
    default: o->sum_inner = !o->sum_inner;
    }
}

/* The result of the block's program; NULL: right or not, it is of a form that is not emitted. */
static uint8_t *result_of(sx_ctx *cx, const sx_kernel *kernel, const node *n, sx_rng *rng)
{
    sx_ptx_module *module;
    ck_sx_ok(cx, sx_ptx_module_make(cx, 80, 0, &module));
    sx_code code = sx_nvidia_of_tile(cx, kernel, 0, module);
    if (code == SX_UNIMPLEMENTED) {
        sx_ctx_reset_error(cx);
        return NULL;
    }
    ck_sx_ok(cx, code);
    uint8_t *out = exact_buffer(cx, bytes_of(&n->result));
    code = tiles_run(cx, kernel, module, n, sx_rng_next(rng), sx_rng_below(rng, 2) != 0, out, NULL);
    ck_assert_msg(code == SX_OK, "proven, and fails: %s", cx->error.text);
    return out;
}

/* What is proven of a changed program is executed, with copies early or late: the bits are those of the one before. */
START_TEST(test_faults)
{
    sx_rng rng = {sx_test_seed() + 50 + (uint64_t)_i};
    uint32_t refused = 0, equal = 0, not_emitted = 0;
    for (uint32_t round = 0; round < 3; round++) {
        sx_ctx cx;
        sx_judge *judge;
        sx_kernel *kernel = NULL;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
        tiles_case c = random_case(&rng);
        c.m = sx_min_i64(c.m, 32);
        c.n = sx_min_i64(c.n, 32);
        c.k = sx_min_i64(c.k, 32);
        c.b = 2;
        node n = tiles_node(&cx, &c);
        tiles_fill(&cx, &n, &rng, false);
        for (uint32_t k = 0; k < 40 && kernel == NULL; k++) {
            if (lower(&cx, &n, random_tiles(&rng, has_matrix(c.dtype)), &kernel) != SX_OK) {
                sx_ctx_reset_error(&cx);
                kernel = NULL;
            }
        }
        if (kernel == NULL) {
            sx_ctx_fini(&cx);
            continue;
        }
        uint8_t *want = result_of(&cx, kernel, &n, &rng);
        ck_assert_ptr_nonnull(want);
        for (uint32_t k = 0; k < 30; k++) {
            sx_kernel *changed = copy_of(&cx, kernel);
            sx_judge_facts facts = {0};
            sx_verdict verdict;
            change(&rng, changed);
            sx_code code =
                sx_judge_kernel(judge, &n.fused, n.input, n.count, &facts, changed, &verdict);
            if (code != SX_OK || !verdict.proven) {
                ck_assert_msg(code == SX_OK || code == SX_INPUT || code == SX_LIMIT, "%s",
                              cx.error.text);
                sx_ctx_reset_error(&cx);
                refused++;
                continue;
            }
            sx_ptx_module *module;
            if (sx_tile_check(&cx, changed, &changed->part[0]) != SX_OK ||
                changed->part[0].tile->shared_bytes > TILES_SHARED_MAX ||
                tiles_emit(&cx, changed, 80, &module) == SX_UNIMPLEMENTED) {
                sx_ctx_reset_error(&cx); // right, but of a form that is not emitted
                not_emitted++;
                continue;
            }
            uint8_t *got = result_of(&cx, changed, &n, &rng);
            if (got == NULL) {
                not_emitted++;
                continue;
            }
            ck_assert_msg(memcmp(got, want, bytes_of(&n.result)) == 0,
                          "round %u, change %u is proven and has other bits", round, k);
            equal++;
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_msg(refused > 25, "%u refused, %u equal, %u not emitted", refused, equal,
                  not_emitted);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge/tile lowered");
    TCase *tests = tcase_create("lowered");
    tcase_add_loop_test(tests, test_proven, 0, 4);
    tcase_add_loop_test(tests, test_faults, 0, 4);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
