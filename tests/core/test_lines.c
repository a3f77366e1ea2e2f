/* Kernels that follow from two others are those that the lowering makes: each one is lowered here, and all its numbers
 * are compared with what lies between those of the two. So it is where lowerings do what lines cannot know: change at
 * some extent, or count in a period of their own. */
#include "core/lines.h"

#include "core/base/rewind.h"
#include "core/loop/between.h"
#include "tests/core/loop/nodes.h"

#define ROWS_MAX 300
#define WORDS_MAX (1u << 16)

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
}
static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- programs of so many rows ---- */

static node map_of(sx_ctx *of, int64_t rows)
{
    sx_type x = TYPE(SX_F32, rows, 24);
    sx_attr none = {.present = 0};
    node n = lift(of, SX_OP_EXP, &none, &x, 1);
    return with_tensor(of, SX_OP_ADD, &n, TYPE(SX_F32, 24));
}

static node row_of(sx_ctx *of, int64_t rows)
{
    sx_type x = TYPE(SX_F32, rows, 40);
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .dims = {1, {1}}, .reducer = SX_SUM};
    return lift(of, SX_OP_REDUCE, &attr, &x, 1);
}

static node dot_of(sx_ctx *of, int64_t rows)
{
    sx_type x[2] = {TYPE(SX_F32, rows, 12), TYPE(SX_F32, 12, 33)};
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    return lift(of, SX_OP_DOT_GENERAL, &attr, x, 2);
}

/* The left factor lies with its rows side by side, so that its strides follow them. */
static node turned_of(sx_ctx *of, int64_t rows)
{
    sx_type x[2] = {TYPE(SX_F32, 12, rows), TYPE(SX_F32, 12, 33)};
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {0}};
    attr.rhs_contract = (sx_ints){1, {0}};
    return lift(of, SX_OP_DOT_GENERAL, &attr, x, 2);
}

/* Sums of as many elements. */
static node sums_of(sx_ctx *of, int64_t length)
{
    sx_type x = TYPE(SX_F32, 5, length);
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .dims = {1, {1}}, .reducer = SX_SUM};
    return lift(of, SX_OP_REDUCE, &attr, &x, 1);
}

static const struct {
    const char *name;
    node (*make)(sx_ctx *of, int64_t rows);
    test_tiles tiles;
    int64_t period;
    uint32_t least; /* of 1,000 kernels follow from others */
} programs[] = {
    {"map", map_of, {.lanes = 16, .block_m = 1, .block_nv = 1, .tile_m = 2, .tile_n = 16}, 2, 850},
    {"row", row_of, {.lanes = 16, .block_m = 1, .block_nv = 1, .tile_m = 2, .tile_n = 16}, 2, 850},
    {"dot", dot_of, {.lanes = 16, .block_m = 3, .block_nv = 2, .tile_m = 6, .tile_n = 32}, 6, 600},
    {"uneven",
     dot_of,
     {.lanes = 8, .block_m = 5, .block_nv = 1, .tile_m = 15, .tile_n = 16},
     15,
     400},
    {"tall",
     dot_of,
     {.lanes = 16, .block_m = 6, .block_nv = 2, .tile_m = 12, .tile_n = 32},
     12,
     400},
    {"turned",
     turned_of,
     {.lanes = 16, .block_m = 3, .block_nv = 2, .tile_m = 6, .tile_n = 32},
     6,
     600},
    {"sums", sums_of, {.lanes = 16, .block_m = 1, .block_nv = 1, .tile_m = 1, .tile_n = 16}, 2, 0},
};

/* ---- lowering ---- */

/* What the lowering does that no reading says. */
typedef enum { PLAIN, CHANGES, COUNTS, HAS_NONE, DEFECTS } defect;
#define AT 177 /* the extent from which on it does */

typedef struct {
    uint32_t program;
    bool steady;
    defect defect;
} lowered_as;

static sx_code lower_rows(sx_ctx *of, const lowered_as *as, int64_t rows,
                          const sx_analysis **analysis, sx_kernel **kernel)
{
    static node n;
    n = programs[as->program].make(of, rows);
    sx_analysis *a = SX_NEW(of, sx_analysis);
    *a = *analysis_of(of, &n);
    a->steady = as->steady;
    *analysis = a;
    sx_schedule schedule = schedule_of(a, &programs[as->program].tiles);
    SX_TRY(sx_lower_fused(of, sx_test_unit(&schedule), "k", a, &schedule, kernel));
    sx_part *part = &(*kernel)->part[(*kernel)->part_count - 1];
    part->addr[0].offset += as->defect == COUNTS ? 4 * (rows % 7) : 0;
    part->grid[2] += as->defect == CHANGES && rows >= AT ? 1 : 0;
    return as->defect == HAS_NONE && rows >= AT
               ? SX_FAIL(of, SX_UNIMPLEMENTED, "none of %d rows", (int)rows)
               : SX_OK;
}

static sx_code lower_reading(void *self, sx_ctx *of, const sx_reading *reading, sx_kernel **kernel)
{
    const sx_analysis *a;
    return lower_rows(of, self, ROWS_MAX - reading->point, &a, kernel);
}

/* Structure and numbers of a kernel. */
typedef struct {
    int64_t *same, *number;
    uint32_t same_count, number_count;
} flat;

static void put_same(flat *f, int64_t word)
{
    ck_assert_uint_lt(f->same_count, WORDS_MAX);
    f->same[f->same_count++] = word;
}
static void put_number(flat *f, int64_t number)
{
    ck_assert_uint_lt(f->number_count, WORDS_MAX);
    f->number[f->number_count++] = number;
}

static void flatten_part(const sx_part *part, flat *f)
{
    put_same(f, part->item_count);
    put_same(f, part->addr_count);
    put_same(f, part->vector_count);
    put_same(f, part->var_count);
    for (uint32_t d = 0; d < 3; d++) {
        put_number(f, part->grid[d]);
    }
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        bool number = item->kind == SX_ITEM_OP && sx_lop_has_number(item->op);
        put_same(f, item->kind);
        put_same(f, item->op);
        put_same(f, item->dst);
        put_same(f, item->imm);
        put_same(f, item->addr);
        put_same(f, item->src[0]);
        put_same(f, item->src[1]);
        put_same(f, item->src[2]);
        put_same(f, number ? 0 : item->imm2);
        put_same(f, item->kind == SX_ITEM_LOOP && !item->any_trip && item->trip > 1);
        put_number(f, number ? item->imm2 : 0);
        put_number(f, item->kind == SX_ITEM_LOOP ? item->trip : 0);
    }
    for (uint32_t i = 0; i < part->addr_count; i++) {
        put_same(f, part->addr[i].buffer);
        put_number(f, part->addr[i].offset);
        for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
            put_same(f, part->addr[i].coef[v] != 0);
            put_number(f, part->addr[i].coef[v]);
        }
    }
}

static flat flatten(const sx_kernel *kernel)
{
    static int64_t same[WORDS_MAX], number[WORDS_MAX];
    flat f = {.same = same, .number = number};
    put_same(&f, kernel->part_count);
    put_same(&f, (int64_t)kernel->numerics);
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        put_number(&f, kernel->buffer[k].size);
    }
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        flatten_part(&kernel->part[p], &f);
    }
    flat out = {.same = SX_NEW_ARRAY(&cx, int64_t, f.same_count),
                .number = SX_NEW_ARRAY(&cx, int64_t, f.number_count),
                .same_count = f.same_count,
                .number_count = f.number_count};
    ck_assert(out.same != NULL && out.number != NULL);
    memcpy(out.same, f.same, f.same_count * sizeof(*f.same));
    memcpy(out.number, f.number, f.number_count * sizeof(*f.number));
    return out;
}

/* ---- */

static sx_reading reading[ROWS_MAX];
static sx_way way[ROWS_MAX];
static flat kernel_of[ROWS_MAX];

/* Rows fall from point to point, as a module's points do. */
static void read_rows(sx_ctx *of, const lowered_as *as, uint32_t point)
{
    static uint64_t word[SX_ALIKE_WORDS];
    const sx_analysis *a = NULL;
    sx_kernel *kernel = NULL;
    sx_reading *r = &reading[point];
    sx_code code = lower_rows(of, as, ROWS_MAX - point, &a, &kernel);
    ck_assert(code == SX_OK || as->defect == HAS_NONE);
    sx_ctx_reset_error(of);
    kernel_of[point] = code == SX_OK ? flatten(kernel) : (flat){.same_count = 0};
    ck_assert(sx_analysis_alike(a, SX_NO_DIM, word, &r->count, &r->number_count));
    r->point = point;
    r->word = SX_NEW_ARRAY(&cx, uint64_t, r->count);
    ck_assert(r->word != NULL);
    memcpy(r->word, word, r->count * sizeof(*word));
}

static void compare(const char *name, uint32_t point)
{
    const flat *a = &kernel_of[way[point].from], *b = &kernel_of[way[point].to],
               *c = &kernel_of[point];
    ck_assert_msg(way[way[point].from].of == 0 && way[way[point].to].of == 0 &&
                      way[point].from < point && way[point].to < point,
                  "%s: %u follows from what follows itself", name, point);
    ck_assert_msg(a->same_count == c->same_count && b->same_count == c->same_count &&
                      a->number_count == c->number_count &&
                      memcmp(a->same, c->same, c->same_count * sizeof(*c->same)) == 0 &&
                      memcmp(b->same, c->same, c->same_count * sizeof(*c->same)) == 0,
                  "%s: %u has another structure", name, point);
    for (uint32_t k = 0; k < c->number_count; k++) {
        int64_t from = a->number[k], to = b->number[k];
        ck_assert_msg((c->number[k] - from) * way[point].of == (to - from) * way[point].at,
                      "%s: number %u of %u is %lld", name, k, point, (long long)c->number[k]);
        ck_assert_int_eq(sx_loop_on_way(from, to, way[point].at, way[point].of), c->number[k]);
    }
}

static uint32_t check_program(const lowered_as *as)
{
    sx_lines lines;
    uint32_t follow = 0;
    const sx_line_lowering how = {(void *)(uintptr_t)as, lower_reading};
    sx_ctx task;
    sx_ctx_init(&task, SX_ARENA_DEFAULT);
    task.fuel = SX_FUEL_DEFAULT;
    memset(way, 0, sizeof(way));
    for (uint32_t point = 0; point < ROWS_MAX; point++) {
        read_rows(&task, as, point);
        sx_arena_rewind(&task.arena);
    }
    ck_sx_ok(&cx, sx_lines_make(&cx, reading, ROWS_MAX, programs[as->program].period, &lines));
    for (uint32_t k = 0; k < lines.line_count; k++) {
        ck_sx_ok(&task, sx_line_walk(&task, &lines, k, &how, way));
    }
    for (uint32_t point = 0; point < ROWS_MAX; point++) {
        if (way[point].of != 0) {
            follow++;
            compare(programs[as->program].name, point);
        }
    }
    sx_ctx_fini(&task);
    return follow;
}

START_TEST(test_kernels_between_others)
{
    const lowered_as as = {.program = (uint32_t)_i, .steady = _i % 2 == 0};
    uint32_t follow = check_program(&as);
    ck_assert_msg(follow * 1000 >= programs[as.program].least * ROWS_MAX, "%s: %u of %d follow",
                  programs[as.program].name, follow, ROWS_MAX);
}
END_TEST

START_TEST(test_what_no_reading_says)
{
    const lowered_as as = {.program = 2, .steady = true, .defect = (defect)_i};
    (void)check_program(&as);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lines");
    TCase *cases = tcase_create("lines");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_kernels_between_others, 0, (int)SX_COUNT(programs));
    tcase_add_loop_test(cases, test_what_no_reading_says, CHANGES, DEFECTS);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
