/* Analyses with equal words have equal kernels: at every pair of extents each kernel is lowered, and compared in all
 * its numbers with that of the first pair whose words are the same. And words are equal where that saves work: rows by
 * their product, online sums for all lengths of the batch. */
#include "tests/core/loop/nodes.h"

#define BATCHES 9
#define LENGTHS 21
#define PAIRS (BATCHES * LENGTHS)
#define PRODUCTS 97 /* different ones */

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
}
static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- programs ---- */

/* e^(x + y), y along the last dimension. */
static node map_node(int64_t b, int64_t s)
{
    sx_type x = TYPE(SX_F32, b, s, 24);
    sx_attr none = {.present = 0};
    node n = lift(&cx, SX_OP_EXP, &none, &x, 1);
    return with_tensor(&cx, SX_OP_ADD, &n, TYPE(SX_F32, 24));
}

static node row_node(int64_t b, int64_t s)
{
    sx_type x = TYPE(SX_F32, b, s, 40);
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .dims = {1, {2}}, .reducer = SX_SUM};
    return lift(&cx, SX_OP_REDUCE, &attr, &x, 1);
}

static node dot_node(int64_t b, int64_t s)
{
    sx_type x[2] = {TYPE(SX_F32, b, s, 12), TYPE(SX_F32, 12, 33)};
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {2}};
    attr.rhs_contract = (sx_ints){1, {0}};
    return lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

/* Heads are the third dimension of what is multiplied, as models have them, so that they stay apart from the batch. */
static node online_node(int64_t b, int64_t s)
{
    sx_type x[2] = {TYPE(SX_F32, b, 3, s, s), TYPE(SX_F32, b, 3, s, 20)};
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract) | SX_A(form)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){2, {0, 1}};
    attr.lhs_contract = (sx_ints){1, {3}};
    attr.rhs_contract = (sx_ints){1, {2}};
    node n = {.count = 2, .input = {x[0], x[1]}};
    ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, SX_OP_ONLINE_DOT, &attr, x, 2, &n.result));
    ck_sx_ok(&cx, sx_fused_lift_online(&cx, &attr, x, 2, &n.result, &n.fused));
    sx_type mask = TYPE(SX_F32, b, s, s), wide = x[0];
    sx_attr view = {.present = SX_A(dims) | SX_A(type), .type = wide, .dims = {3, {0, 2, 3}}};
    node spread = lift(&cx, SX_OP_BROADCAST, &view, &mask, 1);
    sx_attr none = {.present = 0};
    node sum = lift(&cx, SX_OP_ADD, &none, (const sx_type[]){wide, wide}, 2);
    sum = inlined(&cx, &sum, 1, &spread);
    return inlined(&cx, &n, 0, &sum);
}

static const struct {
    const char *name;
    node (*make)(int64_t b, int64_t s);
    test_tiles tiles;
    uint32_t most; /* kernels that are lowered, of PAIRS */
} programs[] = {{"map",
                 map_node,
                 {.lanes = 16, .block_m = 1, .block_nv = 1, .tile_m = 2, .tile_n = 16},
                 PRODUCTS},
                {"row",
                 row_node,
                 {.lanes = 16, .block_m = 1, .block_nv = 1, .tile_m = 2, .tile_n = 16},
                 PRODUCTS},
                {"dot",
                 dot_node,
                 {.lanes = 16, .block_m = 3, .block_nv = 2, .tile_m = 6, .tile_n = 32},
                 PRODUCTS},
                {"online",
                 online_node,
                 {.lanes = 16, .block_m = 6, .block_nv = 1, .tile_m = 1, .tile_n = 8},
                 2 * LENGTHS}};

/* ---- comparing kernels ---- */

static void compare_parts(const sx_part *a, const sx_part *b, const char *what)
{
    ck_assert_msg(memcmp(a->grid, b->grid, sizeof(a->grid)) == 0, "%s: another grid", what);
    ck_assert_msg(a->item_count == b->item_count && a->addr_count == b->addr_count &&
                      a->vector_count == b->vector_count && a->mask_count == b->mask_count &&
                      a->scalar_count == b->scalar_count && a->var_count == b->var_count &&
                      a->warps == b->warps,
                  "%s: another part", what);
    for (uint32_t i = 0; i < a->item_count; i++) {
        const sx_item *x = &a->item[i], *y = &b->item[i];
        ck_assert_msg(x->kind == y->kind && x->op == y->op && x->mem == y->mem &&
                          x->dst == y->dst && memcmp(x->src, y->src, sizeof(x->src)) == 0 &&
                          x->imm == y->imm && x->imm2 == y->imm2 && x->addr == y->addr &&
                          x->trip == y->trip && x->any_trip == y->any_trip && x->warps == y->warps,
                      "%s: item %u differs", what, i);
    }
    for (uint32_t i = 0; i < a->addr_count; i++) {
        const sx_addr *x = &a->addr[i], *y = &b->addr[i];
        ck_assert_msg(x->buffer == y->buffer && x->offset == y->offset &&
                          x->index_reg == y->index_reg &&
                          memcmp(x->coef, y->coef, sizeof(x->coef)) == 0,
                      "%s: address %u differs", what, i);
    }
}

static void compare_kernels(const sx_kernel *a, const sx_kernel *b, const char *what)
{
    ck_assert_msg(a->lanes == b->lanes && a->lane_bytes == b->lane_bytes &&
                      a->numerics == b->numerics && a->part_count == b->part_count &&
                      a->buffer_count == b->buffer_count,
                  "%s: another kernel", what);
    for (uint32_t k = 0; k < a->buffer_count; k++) {
        ck_assert_msg(a->buffer[k].role == b->buffer[k].role &&
                          a->buffer[k].size == b->buffer[k].size,
                      "%s: buffer %u differs", what, k);
    }
    for (uint32_t p = 0; p < a->part_count; p++) {
        compare_parts(&a->part[p], &b->part[p], what);
    }
}

typedef struct {
    uint64_t word[SX_ALIKE_WORDS];
    uint32_t count;
    sx_kernel *kernel;
} known;

static known all[PAIRS];

static void check_pair(uint32_t program, int64_t b, int64_t s, bool steady, uint32_t *known_count)
{
    char what[96];
    (void)snprintf(what, sizeof(what), "%s at %lld, %lld", programs[program].name, (long long)b,
                   (long long)s);
    node n = programs[program].make(b, s);
    sx_analysis a = *analysis_of(&cx, &n);
    a.steady = steady;
    sx_schedule schedule = schedule_of(&a, &programs[program].tiles);
    sx_kernel *kernel;
    ck_sx_ok(&cx, sx_lower_fused(&cx, sx_test_unit(&schedule), "k", &a, &schedule, &kernel));
    known *mine = &all[*known_count];
    uint32_t own = sx_analysis_own(&a), found = 0, numbers;
    ck_assert(sx_analysis_alike(&a, own, mine->word, &mine->count, &numbers));
    while (found < *known_count &&
           (all[found].count != mine->count ||
            memcmp(all[found].word, mine->word, mine->count * sizeof(*mine->word)) != 0)) {
        found++;
    }
    mine->kernel = kernel;
    if (found == *known_count) {
        (*known_count)++;
        return;
    }
    sx_kernel like = *all[found].kernel;
    for (uint32_t k = 0; k < like.buffer_count && own != SX_NO_DIM; k++) {
        like.buffer[k].size = kernel->buffer[k].size;
    }
    for (uint32_t p = 0; p < like.part_count && own != SX_NO_DIM; p++) {
        like.part[p].grid[0] = a.view.extent[own];
    }
    compare_kernels(&like, kernel, what);
}

START_TEST(test_equal_words)
{
    uint32_t program = (uint32_t)_i / 2, known_count = 0;
    for (int64_t b = 1; b <= BATCHES; b++) {
        for (int64_t s = 1; s <= LENGTHS; s++) {
            check_pair(program, b, s, _i % 2 != 0, &known_count);
        }
    }
    ck_assert_uint_le(known_count, programs[program].most);
}
END_TEST

/* A kernel whose numbers follow the place in the batch has no dimension of its own. */
START_TEST(test_place_in_batch)
{
    node n = online_node(4, 8);
    sx_analysis a = *analysis_of(&cx, &n);
    sx_body body = {0};
    ck_assert_uint_eq(sx_analysis_own(&a), 0);
    sx_body_copy(&body, a.body);
    uint32_t arg = 0;
    while (body.instr[arg].kind != SX_BODY_ARG) {
        arg++;
    }
    body.instr[arg].kind = SX_BODY_INDEX;
    body.instr[arg].x = 0;
    a.body = &body;
    ck_assert_uint_eq(sx_analysis_own(&a), SX_NO_DIM);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("alike");
    TCase *cases = tcase_create("alike");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_equal_words, 0, 2 * (int)SX_COUNT(programs));
    tcase_add_test(cases, test_place_in_batch);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
