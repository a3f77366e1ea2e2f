/* Programs of blocks before the judge: right ones are proven, and each fault that is planted in one is refused. */
#include "tests/core/judge/tiles.h"

static const tile_case cases[] = {
    {"f32", SX_F32, 1, 64, 96, 40, .depth = 3},
    {"f32, edges", SX_F32, 1, 65, 33, 13, .depth = 3},
    {"f32, less than a block", SX_F32, 1, 3, 5, 2, .depth = 2},
    {"f32, a vector", SX_F32, 1, 1, 77, 64, .depth = 2},
    {"f32, batches and an epilogue", SX_F32, 5, 40, 50, 60, .epilogue = true, .depth = 4},
    {"f32, left turned", SX_F32, 2, 40, 50, 60, .left_turned = true, .depth = 3},
    {"f32, right turned", SX_F32, 2, 40, 50, 60, .right_turned = true, .depth = 3},
    {"f32, both turned", SX_F32, 2, 40, 50, 60, true, true, true, .depth = 8},
    {"f32, a role that loads", SX_F32, 2, 40, 50, 60, .loader = true, .depth = 3},
    {"bf16 by lanes", SX_BF16, 2, 40, 50, 60, .epilogue = true, .depth = 3},
    {"bf16 by lanes, more threads than copies", SX_BF16, 1, 64, 64, 64, .depth = 2},
    {"f16 by lanes", SX_F16, 1, 33, 31, 7, .right_turned = true, .depth = 3},
    {"bf16 matrices", SX_BF16, 1, 64, 96, 64, .matrix = true, .depth = 3},
    {"bf16 matrices, edges", SX_BF16, 3, 65, 33, 13, false, true, true, true, .depth = 2},
    {"bf16 matrices, left turned", SX_BF16, 3, 65, 34, 14, true, false, true, true, .depth = 4},
    {"bf16 matrices, both turned, a role that loads", SX_BF16, 3, 66, 34, 14, true, true, false,
     true, true, .depth = 4},
};

typedef struct {
    sx_ctx cx;
    sx_judge *judge;
    node n;
    sx_kernel *kernel;
} subject;

static void setup(subject *s, const tile_case *c)
{
    sx_ctx_init(&s->cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&s->cx, sx_judge_make(&s->cx, &s->judge));
    s->n = tile_node(&s->cx, c);
    s->kernel = tile_kernel(&s->cx, c, &s->n);
}

static bool proven(subject *s, sx_verdict *verdict)
{
    sx_judge_facts facts = {0};
    sx_code code =
        sx_judge_kernel(s->judge, &s->n.fused, s->n.input, s->n.count, &facts, s->kernel, verdict);
    if (code != SX_OK) {
        (void)snprintf(verdict->text, sizeof(verdict->text), "%.200s", s->cx.error.text);
        sx_ctx_reset_error(&s->cx);
        return false;
    }
    return verdict->proven;
}

/* A stage is freed a turn later, when all that was read from it has surely been read; and before the products of the
 * turn, so that warps which load as well can do so in between. */
START_TEST(test_released_a_turn_later)
{
    for (uint32_t k = 0; k < SX_COUNT(cases); k++) {
        subject s;
        sx_verdict verdict;
        setup(&s, &cases[k]);
        sx_tile_role *role = &s.kernel->part[0].tile->role[1];
        static const sx_tile_item items[] = {
            {.op = SX_TILE_FILL},     {.op = SX_TILE_LOOP},
            {.op = SX_TILE_WAIT},     {.op = SX_TILE_RELEASE, .back = 1},
            {.op = SX_TILE_MULTIPLY}, {.op = SX_TILE_END},
            {.op = SX_TILE_RELEASE},  {.op = SX_TILE_MAP}};
        memcpy(role->item, items, sizeof(items));
        role->item_count = SX_COUNT(items);
        ck_assert_msg(proven(&s, &verdict), "%s: %s", cases[k].what, verdict.text);
        sx_ctx_fini(&s.cx);
    }
}
END_TEST

/* A ring that was found right says nothing of one with other stages, arrivals or roles. */
START_TEST(test_known_rings)
{
    subject s;
    sx_verdict verdict;
    setup(&s, &cases[8]); // a role that loads; three stages
    sx_tile *t = s.kernel->part[0].tile;
    static const sx_tile_item late[] = {{.op = SX_TILE_FILL},
                                        {.op = SX_TILE_LOOP},
                                        {.op = SX_TILE_WAIT},
                                        {.op = SX_TILE_RELEASE, .back = 2},
                                        {.op = SX_TILE_MULTIPLY},
                                        {.op = SX_TILE_END},
                                        {.op = SX_TILE_RELEASE, .back = 1},
                                        {.op = SX_TILE_RELEASE},
                                        {.op = SX_TILE_MAP}};
    memcpy(t->role[1].item, late, sizeof(late));
    t->role[1].item_count = SX_COUNT(late);
    ck_assert_msg(proven(&s, &verdict), "%s", verdict.text);
    const sx_tile right = *t;
    t->ring.depth = 2; // deadlock: two stages are held, and a third is waited for
    ck_assert_msg(!proven(&s, &verdict), "two stages");
    *t = right;
    t->ring.full_arrivals = 2;
    ck_assert_msg(!proven(&s, &verdict), "two arrivals");
    *t = right;
    t->role[1].item[3].back = 1;
    ck_assert_msg(!proven(&s, &verdict), "another release");
    *t = right;
    ck_assert_msg(proven(&s, &verdict), "%s", verdict.text);
    sx_ctx_fini(&s.cx);
}
END_TEST

START_TEST(test_proven)
{
    subject s;
    sx_verdict verdict;
    setup(&s, &cases[_i]);
    ck_assert_msg(proven(&s, &verdict), "%s: %s", cases[_i].what, verdict.text);
    ck_assert_ptr_nonnull(strstr(verdict.text, "blocks hold each sum once"));
    size_t end = strlen(verdict.text) - strlen(tile_mma.name);
    ck_assert((strcmp(verdict.text + end, tile_mma.name) == 0) == cases[_i].matrix);
    ck_assert_msg(proven(&s, &verdict), "the second time: %s", verdict.text);
    sx_ctx_fini(&s.cx);
}
END_TEST

/* ---- planted faults ---- */

/* Plants one; false where the program has no place for it. */
typedef bool (*plant)(const tile_case *c, sx_kernel *kernel, sx_tile *t);
typedef struct {
    const char *what;
    plant plant;
} fault;

#define FAULT(name) static bool name(const tile_case *c, sx_kernel *kernel, sx_tile *t)
#define UNUSED_FAULT (void)c, (void)kernel, (void)t

/* The first item of this kind, and its role; every program here has each. */
static sx_tile_item *find_item(sx_tile *t, sx_tile_op op, sx_tile_role **role)
{
    for (*role = t->role; *role < t->role + t->role_count; (*role)++) {
        for (uint32_t i = 0; i < (*role)->item_count; i++) {
            if ((*role)->item[i].op == op) {
                return &(*role)->item[i];
            }
        }
    }
    ck_abort_msg("no item %d", (int)op);
    *role = t->role;
    return t->role[0].item;
}

static sx_tile_item *item_of(sx_tile *t, sx_tile_op op)
{
    sx_tile_role *role;
    return find_item(t, op, &role);
}

static bool drop(sx_tile *t, sx_tile_op op)
{
    sx_tile_role *role;
    sx_tile_item *at = find_item(t, op, &role), *end = role->item + role->item_count;
    memmove(at, at + 1, (size_t)(end - at - 1) * sizeof(*at));
    role->item_count--;
    return true;
}

static bool twice(sx_tile *t, sx_tile_op op)
{
    sx_tile_role *role;
    sx_tile_item *at = find_item(t, op, &role), *end = role->item + role->item_count;
    memmove(at + 1, at, (size_t)(end - at) * sizeof(*at));
    role->item_count++;
    return true;
}

static bool exchange(sx_tile *t, sx_tile_op a, sx_tile_op b)
{
    sx_tile_item *x = item_of(t, a), *y = item_of(t, b), copy = *x;
    *x = *y;
    *y = copy;
    return true;
}

#define DROP(name, op)                \
    FAULT(name)                       \
    {                                 \
        UNUSED_FAULT;                 \
        return drop(t, SX_TILE_##op); \
    }
DROP(no_acquire, ACQUIRE)
DROP(no_fetch, FETCH)
DROP(no_publish, PUBLISH)
DROP(no_fill, FILL)
DROP(no_wait, WAIT)
DROP(no_multiply, MULTIPLY)
DROP(no_release, RELEASE)
DROP(no_map, MAP)
#define TWICE(name, op)                \
    FAULT(name)                        \
    {                                  \
        UNUSED_FAULT;                  \
        return twice(t, SX_TILE_##op); \
    }
TWICE(acquired_twice, ACQUIRE)
TWICE(fetched_twice, FETCH)
TWICE(published_twice, PUBLISH)
TWICE(waited_twice, WAIT)
TWICE(multiplied_twice, MULTIPLY)
TWICE(released_twice, RELEASE)
TWICE(mapped_twice, MAP)
#define EXCHANGE(name, a, b)                          \
    FAULT(name)                                       \
    {                                                 \
        UNUSED_FAULT;                                 \
        return exchange(t, SX_TILE_##a, SX_TILE_##b); \
    }
EXCHANGE(fetch_before_acquire, ACQUIRE, FETCH)
EXCHANGE(publish_before_fetch, FETCH, PUBLISH)
EXCHANGE(multiply_before_wait, WAIT, MULTIPLY)
EXCHANGE(release_before_multiply, MULTIPLY, RELEASE)
EXCHANGE(map_in_the_loop, MAP, END)
EXCHANGE(fill_in_the_loop, FILL, LOOP)

FAULT(released_late)
{
    UNUSED_FAULT;
    item_of(t, SX_TILE_RELEASE)->back = 1; // and the last one never
    return true;
}
/* Warps that load depth - 1 stages ahead would wait for a stage that they free themselves a turn later. */
FAULT(released_late_by_who_loads)
{
    UNUSED_FAULT;
    sx_tile_role *role;
    find_item(t, SX_TILE_RELEASE, &role)->back = 2;
    sx_tile_item *map = &role->item[role->item_count - 1];
    map[2] = map[0];
    map[0] = (sx_tile_item){.op = SX_TILE_RELEASE, .back = 1};
    map[1] = (sx_tile_item){.op = SX_TILE_RELEASE};
    role->item_count += 2;
    return !c->loader;
}
FAULT(right_twice)
{
    UNUSED_FAULT;
    item_of(t, SX_TILE_FETCH)->operand = SX_TILE_RIGHT;
    return true;
}
FAULT(two_full_arrivals)
{
    UNUSED_FAULT;
    t->ring.full_arrivals++;
    return true;
}
FAULT(two_empty_arrivals)
{
    UNUSED_FAULT;
    t->ring.empty_arrivals++;
    return true;
}
FAULT(warps_shared_in_part)
{
    UNUSED_FAULT;
    t->role[0].first_warp = 1;
    t->role[0].warps = 1;
    return true;
}
FAULT(warps_beyond)
{
    UNUSED_FAULT;
    t->role[0].first_warp = t->threads / 32;
    return true;
}
FAULT(another_warp)
{
    UNUSED_FAULT;
    t->role[0].warps = t->role[1].warps = 1;
    return true;
}

#define CHANGE(name, place, by) \
    FAULT(name)                 \
    {                           \
        UNUSED_FAULT;           \
        (place) += (by);        \
        return true;            \
    }
CHANGE(left_side_stride, t->operand[0].view.side_stride, c->m > 1 ? 1 : INT64_MIN / 2)
CHANGE(right_side_stride, t->operand[1].view.side_stride, -1)
CHANGE(left_sum_stride, t->operand[0].view.sum_stride, 1)
CHANGE(right_sum_stride, t->operand[1].view.sum_stride, -1)
CHANGE(left_side_extent, t->operand[0].view.side_extent, -1)
CHANGE(right_side_extent, t->operand[1].view.side_extent, 1)
CHANGE(left_sum_extent, t->operand[0].view.sum_extent, 1)
CHANGE(right_sum_extent, t->operand[1].view.sum_extent, -1)
CHANGE(left_offset, t->operand[0].view.offset, 1)
CHANGE(right_offset, t->operand[1].view.offset, -1)
CHANGE(right_buffer, t->operand[1].view.buffer, UINT32_MAX)
CHANGE(result_as_argument, t->operand[1].view.buffer, 1)
CHANGE(less_rows, t->rows, -1)
CHANGE(more_columns, t->columns, 1)
CHANGE(less_k, t->sum, -1)
CHANGE(more_matrices, t->batch[0], 1)
CHANGE(grid_rows_short, kernel->part[0].grid[1], -1)
CHANGE(grid_columns_long, kernel->part[0].grid[2], 1)
CHANGE(grid_matrices_long, kernel->part[0].grid[0], 1)
CHANGE(fewer_threads, t->threads, UINT32_MAX)
CHANGE(shared_short, t->shared_bytes, UINT32_MAX)
CHANGE(ring_not_aligned, t->ring.offset, 16)
CHANGE(stage_on_barriers, t->ring.barriers, t->ring.offset)
CHANGE(one_stage_more, t->ring.depth, 1)
CHANGE(block_rows, t->block_rows, 32)
CHANGE(block_steps, t->block_steps, 8)
CHANGE(slot_rows, t->ring.slot[0].rows, UINT32_MAX)
CHANGE(slot_pitch, t->ring.slot[1].pitch, UINT32_MAX - 31)
CHANGE(slot_bytes, t->ring.slot[0].bytes, UINT32_MAX - 1023)
CHANGE(slot_panels, t->ring.slot[1].panels, UINT32_MAX)
CHANGE(copy_bytes, t->operand[0].copy_bytes, 1)
CHANGE(left_group, t->operand[0].group, 4)
CHANGE(right_group, t->operand[1].group, UINT32_MAX)
#undef CHANGE

FAULT(k_not_inner)
{
    UNUSED_FAULT;
    t->operand[0].sum_inner = !t->operand[0].sum_inner;
    return true;
}
FAULT(batch_stride)
{
    UNUSED_FAULT;
    t->operand[0].view.batch_stride[0] -= 1;
    return c->batch > 1;
}
FAULT(batch_stride_of_the_result)
{
    UNUSED_FAULT;
    t->map.addr[t->map.addr_count - 1].coef[SX_TILE_VAR_BATCH] = 0;
    return c->batch > 1;
}
FAULT(copies_too_wide)
{
    UNUSED_FAULT;
    uint32_t *bytes = &t->operand[1].copy_bytes;
    *bytes = *bytes < 16 ? 16 : 32;
    return c->n != 1 && c->k != 1;
}
FAULT(another_type)
{
    UNUSED_FAULT;
    t->operand[0].view.element = c->dtype == SX_BF16 ? SX_F16 : SX_BF16;
    return true;
}
FAULT(another_matrix)
{
    static const sx_matrix_instruction other = {
        "mma.m16n8k16.f16", SX_F16, SX_F32, 16, 8, 16, 1, "test", 0, 0};
    UNUSED_FAULT;
    t->matrix = &other;
    return c->matrix;
}
FAULT(sums_in_narrow_floats)
{
    static const sx_matrix_instruction other = {
        "mma.m16n8k16.bf16", SX_BF16, SX_BF16, 16, 8, 16, 1, "test", 0, 0};
    UNUSED_FAULT;
    t->matrix = &other;
    return c->matrix;
}
FAULT(more_steps_than_are_held)
{
    static const sx_matrix_instruction other = {"mma.m16n8k32", SX_BF16, SX_F32, 16, 8, 32, 1,
                                                "test",         0,       0};
    UNUSED_FAULT;
    t->matrix = &other;
    return c->matrix;
}
FAULT(matrices_without)
{
    UNUSED_FAULT;
    t->matrix = &tile_mma;
    return !c->matrix && c->dtype != SX_BF16;
}
FAULT(held_turned)
{
    UNUSED_FAULT;
    t->held = sx_layout_transpose(&t->held);
    return true;
}
FAULT(held_twice)
{
    UNUSED_FAULT;
    t->held.column[0] = t->held.column[1];
    return true;
}
FAULT(not_held)
{
    UNUSED_FAULT;
    t->held.column[2] = 0;
    return true;
}
FAULT(left_of_another_lane)
{
    UNUSED_FAULT;
    uint32_t *lane = &t->operand[0].held.column[t->operand[0].held.bits[SX_HOME_REGISTER] + 3];
    uint32_t low = lane[0];
    lane[0] = lane[1];
    lane[1] = low;
    return true;
}
FAULT(right_for_all)
{
    UNUSED_FAULT;
    sx_layout *held = &t->operand[1].held;
    held->column[held->bits[SX_HOME_REGISTER] + (c->matrix ? 3 : 1)] = 0;
    return true;
}

FAULT(copied_by_two)
{
    UNUSED_FAULT;
    sx_layout *copied = &t->operand[0].copied;
    copied->column[sx_layout_input_bits(copied) - 1] = copied->column[copied->bits[0]];
    return true;
}
FAULT(not_copied)
{
    UNUSED_FAULT;
    sx_layout *copied = &t->operand[1].copied;
    copied->column[copied->bits[0]] = 0;
    return true;
}
FAULT(copied_by_other_warps)
{
    UNUSED_FAULT;
    sx_layout *copied = &t->operand[1].copied;
    copied->column[sx_layout_input_bits(copied)] = 0;
    copied->bits[SX_HOME_WARP]++;
    return true;
}
FAULT(copies_not_side_by_side)
{
    UNUSED_FAULT;
    sx_layout *copied = &t->operand[0].copied;
    uint32_t low = copied->column[0], at = copied->bits[0];
    copied->column[0] = copied->column[at];
    copied->column[at] = low;
    return at > 0 && t->operand[0].copy_bytes > (uint32_t)sx_dtype_bytes(c->dtype);
}

/* A thread that has nothing to copy copies what another one does; all elements are copied still. */
FAULT(copied_again)
{
    UNUSED_FAULT;
    for (uint32_t k = 0; k < 2; k++) {
        sx_layout *copied = &t->operand[k].copied;
        uint32_t *last = &copied->column[sx_layout_input_bits(copied) - 1];
        if (*last == 0) {
            *last = copied->column[copied->bits[0]];
            return true;
        }
    }
    return false;
}
/* Four warps hold what two do: all sums are there, and stored twice. */
FAULT(held_by_more_warps)
{
    UNUSED_FAULT;
    sx_layout *const layouts[] = {&t->held, &t->operand[0].held, &t->operand[1].held,
                                  &t->operand[0].copied, &t->operand[1].copied};
    for (uint32_t i = 0; i < SX_COUNT(layouts); i++) {
        layouts[i]->column[sx_layout_input_bits(layouts[i])] = 0;
        layouts[i]->bits[SX_HOME_WARP]++;
    }
    t->threads *= 2;
    t->role[0].warps = t->role[1].warps = 4;
    return !c->loader;
}

/* Where k is not what lies side by side, but is copied as if it were. */
FAULT(copies_across)
{
    UNUSED_FAULT;
    sx_tile_operand *o = &t->operand[0];
    sx_slot *slot = &t->ring.slot[0];
    uint32_t element = (uint32_t)sx_dtype_bytes(c->dtype);
    uint32_t row = t->block_rows * element;
    if (!o->sum_inner || o->copy_bytes != 16 || t->block_steps * (row + 16) > slot->bytes) {
        return false;
    }
    o->sum_inner = false;
    o->held = sx_layout_transpose(&o->held);
    o->copied = tile_copied(t->block_steps, t->block_rows, 16 / element, c->loader ? 0 : 1);
    *slot = (sx_slot){t->block_steps, 1, row, row + 16, SX_SWIZZLE_NONE, slot->align, slot->bytes};
    return true;
}
FAULT(ring_not_aligned_though_there_is_room)
{
    UNUSED_FAULT;
    t->ring.offset += 16;
    t->shared_bytes += 1024;
    return true;
}

static sx_addr *result_address(sx_tile *t)
{
    return &t->map.addr[t->map.addr_count - 1];
}
FAULT(row_off)
{
    UNUSED_FAULT;
    result_address(t)->offset += c->n * sx_dtype_bytes(c->dtype);
    return true;
}
FAULT(rows_and_columns_exchanged)
{
    UNUSED_FAULT;
    sx_addr *a = result_address(t);
    int64_t row = a->coef[SX_TILE_VAR_ROW];
    a->coef[SX_TILE_VAR_ROW] = a->coef[SX_TILE_VAR_COLUMN];
    a->coef[SX_TILE_VAR_COLUMN] = row;
    return c->m > 1 && c->n > 1;
}
FAULT(all_rows_in_one)
{
    UNUSED_FAULT;
    result_address(t)->coef[SX_TILE_VAR_ROW] = 0;
    return c->m > 1;
}
/* Two blocks compute and store the same elements: nothing of it shows where one thread does all of them in turn. */
FAULT(computed_twice)
{
    UNUSED_FAULT;
    t->batch[0] = kernel->part[0].grid[0] = 2;
    t->operand[0].view.batch_stride[0] = t->operand[1].view.batch_stride[0] = 0;
    result_address(t)->coef[SX_TILE_VAR_BATCH] = 0;
    return c->batch == 1;
}
FAULT(bias_of_another_column)
{
    UNUSED_FAULT;
    t->map.addr[0].coef[SX_TILE_VAR_COLUMN] *= c->n > 1 ? 0 : 2;
    return c->epilogue;
}
FAULT(bias_from_the_result)
{
    UNUSED_FAULT;
    t->map.addr[0].buffer = 3;
    return c->epilogue;
}
FAULT(two_lanes)
{
    UNUSED_FAULT;
    t->map.item[t->map.item_count - 1].imm = 2;
    return true;
}
#define MAP_ITEMS 256
/* All lanes are alike where one thread does all elements, so that nothing of this shows in the unfolded form. */
FAULT(lanes_exchanged)
{
    UNUSED_FAULT;
    sx_part *map = &t->map;
    static sx_item item[MAP_ITEMS];
    ck_assert(map->item_count < MAP_ITEMS);
    memcpy(item + 1, map->item, map->item_count * sizeof(sx_item));
    item[0] = (sx_item){.kind = SX_ITEM_OP, .op = SX_LOP_SWAP, .imm = 1};
    map->item = item;
    map->item_count++;
    return true;
}
FAULT(stored_twice)
{
    UNUSED_FAULT;
    sx_part *map = &t->map;
    static sx_item item[MAP_ITEMS];
    ck_assert(map->item_count < MAP_ITEMS);
    memcpy(item, map->item, map->item_count * sizeof(sx_item));
    item[map->item_count] = item[map->item_count - 1];
    map->item = item;
    map->item_count++;
    return true;
}
FAULT(not_stored)
{
    UNUSED_FAULT;
    t->map.item_count--;
    return true;
}
FAULT(slices_of_half_stages)
{
    UNUSED_FAULT;
    t->slice = t->block_steps + t->block_steps / 2;
    return true;
}
FAULT(a_slice_that_ends_nowhere)
{
    UNUSED_FAULT;
    t->slice = (t->sum / t->block_steps + 1) * t->block_steps;
    return true;
}
FAULT(slices_of_one_chain)
{
    UNUSED_FAULT;
    t->slice = t->block_steps;
    return t->matrix == NULL;
}
FAULT(no_epilogue)
{
    UNUSED_FAULT;
    uint32_t store = t->map.item_count - 1;
    t->map.item[store].src[0] = 0;
    return c->epilogue;
}

#define ROW(name)   \
    {               \
#name, name \
    }
static const fault faults[] = {ROW(no_acquire),
                               ROW(no_fetch),
                               ROW(no_publish),
                               ROW(no_fill),
                               ROW(no_wait),
                               ROW(no_multiply),
                               ROW(no_release),
                               ROW(no_map),
                               ROW(acquired_twice),
                               ROW(fetched_twice),
                               ROW(published_twice),
                               ROW(waited_twice),
                               ROW(multiplied_twice),
                               ROW(released_twice),
                               ROW(mapped_twice),
                               ROW(fetch_before_acquire),
                               ROW(publish_before_fetch),
                               ROW(multiply_before_wait),
                               ROW(release_before_multiply),
                               ROW(map_in_the_loop),
                               ROW(fill_in_the_loop),
                               ROW(released_late),
                               ROW(released_late_by_who_loads),
                               ROW(right_twice),
                               ROW(two_full_arrivals),
                               ROW(two_empty_arrivals),
                               ROW(warps_shared_in_part),
                               ROW(warps_beyond),
                               ROW(another_warp),
                               ROW(left_side_stride),
                               ROW(right_side_stride),
                               ROW(left_sum_stride),
                               ROW(right_sum_stride),
                               ROW(left_side_extent),
                               ROW(right_side_extent),
                               ROW(left_sum_extent),
                               ROW(right_sum_extent),
                               ROW(left_offset),
                               ROW(right_offset),
                               ROW(right_buffer),
                               ROW(result_as_argument),
                               ROW(less_rows),
                               ROW(more_columns),
                               ROW(less_k),
                               ROW(more_matrices),
                               ROW(grid_rows_short),
                               ROW(grid_columns_long),
                               ROW(grid_matrices_long),
                               ROW(fewer_threads),
                               ROW(shared_short),
                               ROW(ring_not_aligned),
                               ROW(stage_on_barriers),
                               ROW(one_stage_more),
                               ROW(block_rows),
                               ROW(block_steps),
                               ROW(slot_rows),
                               ROW(slot_pitch),
                               ROW(slot_bytes),
                               ROW(slot_panels),
                               ROW(copy_bytes),
                               ROW(left_group),
                               ROW(right_group),
                               ROW(k_not_inner),
                               ROW(batch_stride),
                               ROW(batch_stride_of_the_result),
                               ROW(copies_too_wide),
                               ROW(another_type),
                               ROW(another_matrix),
                               ROW(sums_in_narrow_floats),
                               ROW(more_steps_than_are_held),
                               ROW(matrices_without),
                               ROW(held_turned),
                               ROW(held_twice),
                               ROW(not_held),
                               ROW(left_of_another_lane),
                               ROW(right_for_all),
                               ROW(copied_by_two),
                               ROW(copies_across),
                               ROW(ring_not_aligned_though_there_is_room),
                               ROW(computed_twice),
                               ROW(copied_again),
                               ROW(held_by_more_warps),
                               ROW(not_copied),
                               ROW(copied_by_other_warps),
                               ROW(copies_not_side_by_side),
                               ROW(row_off),
                               ROW(rows_and_columns_exchanged),
                               ROW(all_rows_in_one),
                               ROW(bias_of_another_column),
                               ROW(bias_from_the_result),
                               ROW(two_lanes),
                               ROW(lanes_exchanged),
                               ROW(stored_twice),
                               ROW(not_stored),
                               ROW(slices_of_half_stages),
                               ROW(a_slice_that_ends_nowhere),
                               ROW(slices_of_one_chain),
                               ROW(no_epilogue)};

START_TEST(test_faults)
{
    const fault *f = &faults[_i];
    uint32_t planted = 0;
    for (uint32_t k = 0; k < SX_COUNT(cases); k++) {
        subject s;
        sx_verdict verdict;
        setup(&s, &cases[k]);
        if (f->plant(&cases[k], s.kernel, s.kernel->part[0].tile)) {
            planted++;
            ck_assert_msg(!proven(&s, &verdict), "%s: %s is proven", cases[k].what, f->what);
        }
        sx_ctx_fini(&s.cx);
    }
    ck_assert_msg(planted > 0, "%s: nowhere", f->what);
}
END_TEST

/* ---- layouts at random, against counting ---- */

#define SIDE 32U

static uint32_t held_at(const sx_layout *layout, uint32_t reg, uint32_t thread)
{
    return sx_layout_apply(layout, &(sx_place){{reg, thread % 32, thread / 32}});
}

/* Is there a register in which each thread has the factor of its sum in register `sum`, at this step of the group? */
static bool has_factor(const sx_tile *t, uint32_t k, uint32_t sum, uint32_t step)
{
    const sx_tile_operand *o = &t->operand[k];
    for (uint32_t r = 0; r < sx_layout_count(&o->held, SX_HOME_REGISTER); r++) {
        bool all = true;
        for (uint32_t thread = 0; all && thread < 64; thread++) {
            uint32_t at = held_at(&t->held, sum, thread);
            uint32_t side = k == SX_TILE_LEFT ? sx_at_row(at) : sx_at_column(at);
            all = held_at(&o->held, r, thread) ==
                  (o->sum_inner ? SX_AT(side, step) : SX_AT(step, side));
        }
        if (all) {
            return true;
        }
    }
    return false;
}

/* Is each sum held once, and does each thread have all factors of its sums? By looking at every place. */
static bool counted_right(const sx_tile *t)
{
    uint32_t sums[SIDE][SIDE] = {{0}};
    bool right = true;
    for (uint32_t r = 0; right && r < sx_layout_count(&t->held, SX_HOME_REGISTER); r++) {
        for (uint32_t thread = 0; thread < 64; thread++) {
            uint32_t at = held_at(&t->held, r, thread);
            right = right && ++sums[sx_at_row(at)][sx_at_column(at)] == 1;
        }
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t step = 0; right && step < t->operand[k].group; step++) {
                right = has_factor(t, k, r, step);
            }
        }
    }
    for (uint32_t i = 0; i < t->block_rows * t->block_columns; i++) {
        right = right && sums[i / t->block_columns][i % t->block_columns] == 1;
    }
    return right;
}

/* Two columns exchanged, one set to another, or one moved elsewhere; the same in two layouts now and then, so that
 * some of them fit together again. */
static void change_layout(sx_rng *rng, sx_layout *layout)
{
    uint32_t bits = sx_layout_input_bits(layout);
    uint32_t *x = &layout->column[sx_rng_below(rng, bits)];
    uint32_t *y = &layout->column[sx_rng_below(rng, bits)], old = *x;
    switch (sx_rng_below(rng, 4)) {
    case 0:
        *x = *y;
        *y = old;
        break;
    case 1: *x = *y; break;
    case 2: *x ^= *y; break;
    default:
        *x = SX_AT(sx_rng_below(rng, 1U << layout->side_bits[0]),
                   sx_rng_below(rng, 1U << layout->side_bits[1]));
    }
}

START_TEST(test_layouts)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    uint32_t right = 0, wrong = 0;
    for (uint32_t round = 0; round < 12; round++) {
        subject s;
        setup(&s, &cases[round % 2 * 4]);
        sx_tile *t = s.kernel->part[0].tile;
        const sx_tile before = *t;
        for (uint32_t k = 0; k < 60; k++) {
            sx_verdict verdict;
            *t = before;
            for (uint64_t n = 1 + sx_rng_below(&rng, 2); n > 0; n--) {
                uint64_t which = sx_rng_below(&rng, 3);
                change_layout(&rng, which == 2 ? &t->held : &t->operand[which].held);
            }
            bool holds = counted_right(t);
            ck_assert_msg(proven(&s, &verdict) == holds, "round %u of %u: %s", k, round,
                          verdict.text);
            right += holds;
            wrong += !holds;
        }
        sx_ctx_fini(&s.cx);
    }
    ck_assert_msg(right > 20 && wrong > 200, "%u right, %u wrong", right, wrong);
}
END_TEST

/* ---- roles at random, against a machine that executes them ---- */

#define STEPS_MAX 12U
typedef struct {
    const sx_tile *t;
    /* By stage and operand: the turn whose elements are there; -1: none, -2: being read or written by others. */
    int64_t holds[SX_RING_DEPTH_MAX][2];
    /* How many have arrived at the barriers of each stage. */
    uint32_t full[SX_RING_DEPTH_MAX], empty[SX_RING_DEPTH_MAX];
    uint32_t turns;
    int64_t multiplied;
    bool filled, mapped, wrong;
} machine;

typedef struct {
    uint32_t at, turn, loop;
    uint32_t acquired, waited;
    bool done;
} thread;

/* One item of a role, if it need not wait. */
static bool execute(machine *m, const sx_tile_role *role, thread *h)
{
    const sx_ring *ring = &m->t->ring;
    const sx_tile_item *item = &role->item[h->at];
    uint32_t depth = ring->depth;
    uint32_t in = (h->acquired + depth - 1) % depth, out = (h->waited + depth - 1) % depth;
    switch (item->op) {
    case SX_TILE_ACQUIRE:
        if (h->acquired >= depth &&
            m->empty[h->acquired % depth] < h->acquired / depth * ring->empty_arrivals) {
            return false;
        }
        h->acquired++;
        break;
    case SX_TILE_FETCH:
        m->wrong |= h->acquired == 0;
        m->holds[in][item->operand] = (int64_t)h->acquired - 1;
        break;
    case SX_TILE_PUBLISH: m->full[in]++; break;
    case SX_TILE_WAIT:
        if (m->full[h->waited % depth] < (h->waited / depth + 1) * ring->full_arrivals) {
            return false;
        }
        h->waited++;
        break;
    case SX_TILE_FILL:
        m->filled = true;
        m->wrong |= m->multiplied != 0;
        break;
    case SX_TILE_MULTIPLY:
        m->wrong |= h->waited == 0 || !m->filled || m->holds[out][0] != m->multiplied ||
                    m->holds[out][1] != m->multiplied;
        m->multiplied++;
        break;
    case SX_TILE_RELEASE:
        if (h->waited > item->back) {
            m->empty[(h->waited - 1 - item->back) % depth]++;
        }
        break;
    case SX_TILE_SETTLE: break; /* products of threads are done at once */
    case SX_TILE_MAP:
        m->wrong |= m->mapped || m->multiplied != m->turns;
        m->mapped = true;
        break;
    case SX_TILE_LOOP: h->loop = h->at; break;
    case SX_TILE_END:
        if (++h->turn < m->turns) {
            h->at = h->loop;
        }
        break;
    }
    h->done = ++h->at == role->item_count;
    return true;
}

/* Does the block end with each stage multiplied once, in order, and mapped, with roles in this order? */
static bool executed_right(const sx_tile *t, uint32_t turns, sx_rng *rng)
{
    machine m = {.t = t, .turns = turns};
    thread h[SX_ROLES_MAX] = {{0}};
    memset(m.holds, 0xff, sizeof(m.holds));
    for (uint32_t left = 400; left > 0; left--) {
        uint32_t r = (uint32_t)sx_rng_below(rng, t->role_count);
        bool moved = !h[r].done && execute(&m, &t->role[r], &h[r]);
        for (uint32_t k = 0; !moved && k < t->role_count; k++) {
            moved = !h[k].done && execute(&m, &t->role[k], &h[k]);
        }
        if (!moved) {
            break;
        }
    }
    return !m.wrong && m.mapped && m.multiplied == turns && h[0].done && h[1].done;
}

/* An item goes, comes twice, changes its place or what it says. */
static void change_roles(sx_rng *rng, sx_tile *t)
{
    sx_tile_role *role = &t->role[sx_rng_below(rng, t->role_count)];
    sx_tile_item *x = &role->item[sx_rng_below(rng, role->item_count)];
    sx_tile_item *y = &role->item[sx_rng_below(rng, role->item_count)];
    sx_tile_item *end = role->item + role->item_count, old = *x;
    switch (sx_rng_below(rng, 6)) {
    case 0:
        memmove(x, x + 1, (size_t)(end - x - 1) * sizeof(*x));
        role->item_count--;
        break;
    case 1:
        memmove(x + 1, x, (size_t)(end - x) * sizeof(*x));
        role->item_count++;
        break;
    case 2:
        *x = *y;
        *y = old;
        break;
    case 3: x->back ^= 1U; break;
    case 4: x->operand ^= 1U; break;
    default:
        if (sx_rng_below(rng, 2) == 0) {
            t->ring.full_arrivals ^= 3U;
        } else {
            t->ring.empty_arrivals ^= 3U;
        }
    }
}

/* What is proven is executed right in every order that is tried. */
START_TEST(test_roles)
{
    sx_rng rng = {sx_test_seed() + 100 + (uint64_t)_i};
    uint32_t right = 0, wrong = 0, failed = 0;
    subject s;
    setup(&s, &cases[8]);
    sx_tile *t = s.kernel->part[0].tile;
    const sx_tile before = *t;
    for (uint32_t k = 0; k < 400; k++) {
        sx_verdict verdict;
        *t = before;
        for (uint64_t n = 1 + sx_rng_below(&rng, 3); n > 0; n--) {
            change_roles(&rng, t);
        }
        bool is_proven = proven(&s, &verdict), ends = true;
        for (uint32_t turns = 1; turns < STEPS_MAX; turns++) {
            ends = ends && executed_right(t, turns, &rng);
        }
        ck_assert_msg(!is_proven || ends, "mutant %u is proven and wrong", k);
        right += is_proven;
        wrong += !is_proven;
        failed += !ends;
    }
    ck_assert_msg(right > 20 && wrong > 200 && failed > 200, "%u, %u, %u", right, wrong, failed);
    sx_ctx_fini(&s.cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge/tile");
    TCase *tests = tcase_create("tile");
    tcase_add_loop_test(tests, test_proven, 0, (int)SX_COUNT(cases));
    tcase_add_test(tests, test_released_a_turn_later);
    tcase_add_test(tests, test_known_rings);
    tcase_add_loop_test(tests, test_faults, 0, (int)SX_COUNT(faults));
    tcase_add_loop_test(tests, test_layouts, 0, 2);
    tcase_add_loop_test(tests, test_roles, 0, 2);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
