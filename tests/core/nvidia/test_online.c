/* Attention by matrix instructions, executed in the interpreter of PTX: bits where the answer is exact, the error of
 * rounded weights where it is not, the same bits of a row under every schedule and beside any other rows. */
#include "tests/core/nvidia/online.h"

#include "client/assemble/assemble.h"
#include "core/search/search.h"

static const struct {
    int64_t rows, keys;
    uint32_t depth;
} plans[] = {{16, 16, 2}, {64, 32, 2}, {32, 64, 3}, {128, 16, 4}};

static void show(const sx_kernel *kernel, const sx_ptx_module *module)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 26);
    sx_ptx_print(module, &text);
    sx_buf_put(&text, "", 1);
    (void)fprintf(stderr, "%s %s\n", kernel->name,
                  getenv("SX_SHOW") != NULL ? (const char *)text.ptr : "");
    sx_buf_fini(&text);
}

static float *run(sx_ctx *cx, const node *n, const sx_kernel *kernel, uint64_t seed, bool lazy)
{
    sx_ptx_module *module = tiles_module(cx, kernel, 80);
    uint8_t *out = exact_buffer(cx, bytes_of(&n->result));
    sx_code code = tiles_run(cx, kernel, module, n, seed, lazy, out, NULL);
    if (code != SX_OK) {
        show(kernel, module);
    }
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    return (float *)(void *)out;
}

/* The verdict on the kernel; the schedule says no more than how many keys a stage has, and that weights are rounded. */
static sx_verdict verdict_of(sx_ctx *cx, const node *n, int64_t keys, const sx_kernel *kernel)
{
    sx_judge *judge;
    sx_verdict verdict;
    sx_judge_facts facts = {.keys = keys, .rounds = true};
    ck_sx_ok(cx, sx_judge_make(cx, &judge));
    ck_sx_ok(cx, sx_judge_kernel(judge, &n->fused, n->input, n->count, &facts, kernel, &verdict));
    if (getenv("SX_SHOW") != NULL) {
        sx_buf text;
        sx_buf_init(&text, 1 << 24);
        sx_judge_print(judge, &text);
        sx_buf_put(&text, "", 1);
        (void)fprintf(stderr, "%s\n%.20000s\n", verdict.text, (const char *)text.ptr);
        sx_buf_fini(&text);
    }
    return verdict;
}

/* Queries and keys with one 16 each: a score is 256 or 0, so that weights are 1 or vanish, and a row of the result is
 * the mean of some values, small integers: exact but for the quotient. Masks hide what they are said to. */
static void fill_exact(sx_ctx *cx, const online_case *c, online_node *o, sx_rng *rng)
{
    static const uint32_t hot[] = {ONLINE_Q, ONLINE_K};
    for (uint32_t k = 0; k < SX_COUNT(hot); k++) {
        bool turned = hot[k] == ONLINE_K && c->keys_inner;
        int64_t elements = sx_tensor_elements(&o->n.input[o->at[hot[k]]]);
        int64_t lines = elements / c->d, side = turned ? c->keys : 1;
        for (int64_t i = 0; i < elements; i++) {
            online_set(cx, o, hot[k], i, 0);
        }
        for (int64_t i = 0; i < lines; i++) {
            int64_t d = (int64_t)sx_rng_below(rng, 4) * (c->d - 1) / 3;
            online_set(cx, o, hot[k], i / side * side * c->d + d * side + i % side, 16);
        }
    }
    for (int64_t i = 0; i < sx_tensor_elements(&o->n.input[o->at[ONLINE_V]]); i++) {
        online_set(cx, o, ONLINE_V, i, (double)sx_rng_below(rng, 9) - 4);
    }
    for (int64_t i = 0; c->mask && i < c->rows * c->keys; i++) {
        int64_t row = i / c->keys, key = i % c->keys;
        bool there = key <= row + c->keys - c->rows && (row % 3 != 1 || key % 2 == 0 || key < 2);
        online_set(cx, o, ONLINE_MASK, i, there || key == 0 ? 0 : -HUGE_VAL);
    }
}

static online_case random_case(sx_rng *rng, uint32_t round)
{
    static const int64_t sides[] = {32, 64, 40, 16, 72, 33};
    online_case c = {.dtype = round % 2 == 0 ? SX_BF16 : SX_F16,
                     .batch = 1 + round % 2,
                     .heads = 2,
                     .grouped = round % 3 == 0,
                     .rows = 1 + (int64_t)sx_rng_below(rng, 70),
                     .keys = 2 + (int64_t)sx_rng_below(rng, 90),
                     .d = sides[sx_rng_below(rng, SX_COUNT(sides))],
                     .columns = sides[sx_rng_below(rng, SX_COUNT(sides))],
                     .mask = round % 4 > 1,
                     .keys_inner = round % 5 == 4};
    return c;
}

START_TEST(test_exact)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < 6; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        online_case c = random_case(&rng, round);
        online_node o = online_make(&cx, &c);
        sx_kernel *kernel;
        fill_exact(&cx, &c, &o, &rng);
        sx_code code = online_lower(&cx, &sx_target_sm_80, &o.n, plans[_i].rows, plans[_i].keys,
                                    plans[_i].depth, &kernel);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        sx_verdict verdict = verdict_of(&cx, &o.n, plans[_i].keys, kernel);
        ck_assert_msg(verdict.proven, "%s", verdict.text);
        double *weight = online_doubles(&cx, c.keys), *row = online_doubles(&cx, c.columns);
        float *out = run(&cx, &o.n, kernel, sx_rng_next(&rng), round % 2 != 0);
        for (int64_t i = 0; i < c.batch * c.heads * c.rows; i++) {
            online_row(&c, &o, i / c.rows, i % c.rows, weight, row);
            for (int64_t n = 0; n < c.columns; n++) {
                float got = out[i * c.columns + n];
                ck_assert_msg(fabs((double)got - row[n]) <= ldexp(4, -23),
                              "round %u: %lld heads of %lld rows, %lld keys, %lld x %lld: row %lld "
                              "column %lld is %g, exact %g",
                              round, (long long)(c.batch * c.heads), (long long)c.rows,
                              (long long)c.keys, (long long)c.d, (long long)c.columns, (long long)i,
                              (long long)n, (double)got, row[n]);
            }
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* The kernel as if nothing were known of the keys that positions hide. */
static void forget_horizon(sx_kernel *kernel, sx_tile *tile, sx_tile_online *online)
{
    *tile = *kernel->part[0].tile;
    *online = *tile->online;
    online->has_horizon = false;
    online->ahead = 0;
    tile->online = online;
    kernel->part[0].tile = tile;
}

static void fill_random(sx_ctx *cx, const online_case *c, online_node *o, sx_rng *rng)
{
    for (uint32_t k = ONLINE_Q; k <= ONLINE_V; k++) {
        for (int64_t i = 0; i < sx_tensor_elements(&o->n.input[o->at[k]]); i++) {
            online_set(cx, o, k, i, (double)sx_rng_f32(rng));
        }
    }
    for (int64_t i = 0; c->mask && i < c->rows * c->keys; i++) {
        bool there = i % c->keys <= i / c->keys + c->keys - c->rows;
        online_set(cx, o, ONLINE_MASK, i, there ? (double)sx_rng_f32(rng) : -HUGE_VAL);
    }
}

/* Head sizes of models, with and without a causal mask. Each weight is rounded to a unit u of its type, above and below
 * the quotient, so the result is off by at most 2 u of the largest value, 1; scores of f32 sums of d products below 1
 * add d groups of units, and as many again what the sums of the keys lose. */
START_TEST(test_rounded)
{
    static const int64_t sides[] = {64, 128, 64, 128, 256, 32};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    online_case c = {.dtype = _i % 2 == 0 ? SX_BF16 : SX_F16,
                     .batch = 1,
                     .heads = 1,
                     .rows = _i < 4 ? 37 : 17,
                     .keys = _i < 4 ? 101 : 49,
                     .d = sides[_i],
                     .columns = sides[_i],
                     .mask = _i / 2 % 2 != 0};
    online_node o = online_make(&cx, &c);
    sx_kernel *kernel;
    fill_random(&cx, &c, &o, &rng);
    sx_code code = online_lower(&cx, &sx_target_sm_80, &o.n, 32, c.d > 128 ? 32 : 64, 2, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx.error.text);
    float *out = run(&cx, &o.n, kernel, 1, true);
    double unit = c.dtype == SX_BF16 ? ldexp(1, -8) : ldexp(1, -11);
    double sums = (double)c.d * (double)(c.d / 16 + 4) * ldexp(1, -24), allowed = 2 * (unit + sums);
    double *weight = online_doubles(&cx, c.keys), *row = online_doubles(&cx, c.columns);
    double largest = 0;
    for (int64_t i = 0; i < c.rows; i++) {
        online_row(&c, &o, 0, i, weight, row);
        for (int64_t n = 0; n < c.columns; n++) {
            largest = fmax(largest, fabs((double)out[i * c.columns + n] - row[n]));
        }
    }
    ck_assert_msg(largest <= allowed && largest > 0, "error %g, allowed %g", largest, allowed);
    sx_ctx_fini(&cx);
}
END_TEST

/* Instructions of warps that the launch takes, and its result. */
static float *run_counted(sx_ctx *cx, const node *n, const sx_kernel *kernel, uint64_t *insns)
{
    sx_ptx_module *module = tiles_module(cx, kernel, 80);
    uint8_t *out = exact_buffer(cx, bytes_of(&n->result));
    sx_ptx_statistics statistics = {0};
    sx_code code = tiles_run(cx, kernel, module, n, 3, true, out, &statistics);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    *insns = statistics.warp_insns;
    return (float *)(void *)out;
}

/* Stages that a causal mask hides are left out, and every bit of the result is that of the kernel that multiplies them:
 * their weights are 0 and what is scaled is scaled by 1. */
START_TEST(test_horizon)
{
    static const struct {
        int64_t rows, keys, ahead;
    } sides[] = {{50, 50, 0}, {1, 70, 69}, {70, 90, 20}, {33, 64, -1}, {90, 40, 0}, {64, 64, -7}};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < SX_COUNT(sides); round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        online_case c = random_case(&rng, round);
        c.rows = sides[round].rows;
        c.keys = sides[round].keys;
        c.ahead = sides[round].ahead;
        c.causal = true;
        online_node o = online_make(&cx, &c);
        sx_kernel *kernel;
        sx_tile tile;
        sx_tile_online online;
        uint64_t fewer, all;
        fill_random(&cx, &c, &o, &rng);
        sx_code code = online_lower(&cx, &sx_target_sm_80, &o.n, plans[_i].rows, plans[_i].keys,
                                    plans[_i].depth, &kernel);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        ck_assert(kernel->part[0].tile->online->has_horizon == (c.rows > 1));
        sx_verdict verdict = verdict_of(&cx, &o.n, plans[_i].keys, kernel);
        ck_assert_msg(verdict.proven, "%s", verdict.text);
        float *got = run_counted(&cx, &o.n, kernel, &fewer);
        forget_horizon(kernel, &tile, &online);
        float *want = run_counted(&cx, &o.n, kernel, &all);
        for (int64_t i = 0; i < sx_tensor_elements(&o.n.result); i++) {
            bool same = memcmp(&got[i], &want[i], sizeof(float)) == 0;
            ck_assert_msg(same || (isnan(got[i]) && isnan(want[i])),
                          "%lld rows, %lld keys, %lld ahead: element %lld is %a, not %a",
                          (long long)c.rows, (long long)c.keys, (long long)c.ahead, (long long)i,
                          (double)got[i], (double)want[i]);
        }
        ck_assert_msg(c.rows == 1 || c.keys <= plans[_i].keys || fewer < all,
                      "%lld rows, %lld keys: %llu of %llu instructions", (long long)c.rows,
                      (long long)c.keys, (unsigned long long)fewer, (unsigned long long)all);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* However a program writes it: what is said of the horizon is so, is as near as may be, and nothing is said where rows
 * see the last key. */
START_TEST(test_horizons_of_programs)
{
    static const sx_direction directions[] = {SX_GE, SX_GT, SX_LE, SX_LT, SX_NE};
    for (uint32_t i = 0; i < 4 * SX_COUNT(directions); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        online_case c = {.dtype = SX_BF16,
                         .batch = 1,
                         .heads = 1,
                         .rows = 24,
                         .keys = 40,
                         .d = 16,
                         .columns = 16,
                         .causal = true,
                         .ahead = 5,
                         .direction = directions[i / 4],
                         .turned = i % 2 != 0,
                         .hidden = i / 2 % 2 != 0};
        online_node o = online_make(&cx, &c);
        sx_kernel *kernel;
        int64_t ahead;
        bool known = sx_online_horizon(analysis_of(&cx, &o.n), &ahead);
        ck_assert(known != online_hides(&c, 0, 0) || c.direction == SX_NE);
        ck_assert(!known || !online_hides(&c, 3, 3 + ahead));
        for (int64_t k = 0; k < c.rows * c.keys && known; k++) {
            int64_t row = k / c.keys, key = k % c.keys;
            ck_assert(key <= row + ahead || online_hides(&c, row, key));
        }
        ck_sx_ok(&cx, online_lower(&cx, &sx_target_sm_80, &o.n, 32, 16, 2, &kernel));
        sx_verdict verdict = verdict_of(&cx, &o.n, 16, kernel);
        ck_assert_msg(verdict.proven, "case %u: %s", i, verdict.text);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* A row has the same bits whatever rows stand beside it, whatever the threads of a block and the depth of the ring. */
START_TEST(test_rows)
{
    static const struct {
        int64_t rows, block;
        uint32_t depth;
    } other[] = {{1, 16, 2}, {5, 64, 3}, {16, 16, 2}, {50, 32, 4}, {50, 128, 2}};
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    online_case c = {.dtype = SX_BF16,
                     .batch = 1,
                     .heads = 2,
                     .grouped = true,
                     .rows = 50,
                     .keys = 70,
                     .d = 32,
                     .columns = 24};
    online_node all = online_make(&cx, &c);
    sx_kernel *kernel;
    fill_random(&cx, &c, &all, &rng);
    ck_sx_ok(&cx, online_lower(&cx, &sx_target_sm_80, &all.n, 64, 32, 2, &kernel));
    float *want = run(&cx, &all.n, kernel, 1, true);
    for (uint32_t k = 0; k < SX_COUNT(other); k++) {
        online_case few = c;
        few.rows = other[k].rows;
        online_node o = online_make(&cx, &few);
        sx_kernel *own;
        for (int64_t i = 0; i < 2 * few.rows * c.d; i++) {
            int64_t head = i / (few.rows * c.d), rest = i % (few.rows * c.d);
            online_set(&cx, &o, ONLINE_Q, i, all.value[ONLINE_Q][head * c.rows * c.d + rest]);
        }
        o.n.raw[o.at[ONLINE_K]] = all.n.raw[all.at[ONLINE_K]];
        o.n.raw[o.at[ONLINE_V]] = all.n.raw[all.at[ONLINE_V]];
        ck_sx_ok(&cx, online_lower(&cx, &sx_target_sm_80, &o.n, other[k].block, 32, other[k].depth,
                                   &own));
        ck_assert_uint_eq(own->numerics, kernel->numerics);
        float *got = run(&cx, &o.n, own, 2 + k, k % 2 == 0);
        for (int64_t i = 0; i < 2 * few.rows * c.columns; i++) {
            int64_t head = i / (few.rows * c.columns), rest = i % (few.rows * c.columns);
            ck_assert_msg(memcmp(&got[i], &want[head * c.rows * c.columns + rest], 4) == 0,
                          "%lld rows in blocks of %lld: element %lld has other bits",
                          (long long)few.rows, (long long)other[k].block, (long long)i);
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- what the judge refuses ---- */
/* Addresses and instructions of a program that is changed. */
static sx_addr faults_addr[64];
static sx_item faults_item[256];

static void swap_factors(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    sx_tile_view view = t->operand[0].view;
    t->operand[0].view = t->operand[1].view;
    t->operand[1].view = view;
}
static void hold_other_keys(sx_tile *t, sx_tile_online *o)
{
    (void)t;
    o->held.column[2] = o->held.column[3]; /* two registers have the same keys */
}
static void lose_warp(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    t->role[1].warps--;
}
static void overlap(sx_tile *t, sx_tile_online *o)
{
    static sx_tile query;
    query = *o->query;
    query.ring.offset = t->ring.offset;
    o->query = &query;
}
static void early(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    sx_tile_item wait = t->role[1].item[2];
    t->role[1].item[2] = t->role[1].item[4]; /* multiplied before it is there */
    t->role[1].item[4] = wait;
}
static void other_keys(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    t->operand[0].view.offset += t->operand[0].view.sum_stride; /* of the next key */
}
static void no_mask(sx_tile *t, sx_tile_online *o)
{
    (void)t;
    o->scores[0].result = 0; /* the product as it is */
}

/* ... of the next row. */
static void other_mask(sx_tile *t, sx_tile_online *o)
{
    sx_part *part = &o->scores[0].part;
    ck_assert_uint_ge(part->addr_count, 1);
    sx_addr *copy = faults_addr;
    memcpy(copy, part->addr, part->addr_count * sizeof(*copy));
    for (uint32_t i = 0; i < part->addr_count; i++) {
        copy[i].coef[SX_TILE_VAR_ROW] = copy[i].coef[sx_tile_stage_variable(t) + 1];
    }
    part->addr = copy;
}
static void fewer_keys(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    t->sum -= t->block_steps; /* the last stage is left out */
    t->operand[0].view.sum_extent = t->operand[1].view.sum_extent = t->sum;
}
static void other_head(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    int64_t *stride = t->operand[0].view.batch_stride;
    ck_assert(stride[0] != 0 && stride[1] == 0); /* keys are shared by the heads of a batch */
    stride[1] = stride[0];
    stride[0] = 0;
}
static void other_heads_of_values(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    t->operand[1].view.batch_stride[0] = 0; /* those of the first */
}
/* Neither weights nor what sums are scaled by are powers of e. */
static void no_power(sx_tile *t, sx_tile_online *o)
{
    (void)t;
    o->power.result = 0;
}
/* What is divided by is the maximum, not the sum of the weights. */
static void other_divisor(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    uint32_t changed = 0;
    memcpy(faults_item, t->map.item, t->map.item_count * sizeof(*faults_item));
    for (uint32_t i = 0; i < t->map.item_count; i++) {
        sx_item *item = &faults_item[i];
        for (uint32_t k = 0; k < 2 && item->op == SX_LOP_DIV; k++) {
            changed += item->src[k] == SX_TILE_WEIGHT_SUM ? 1 : 0;
            item->src[k] = item->src[k] == SX_TILE_WEIGHT_SUM ? SX_TILE_MAXIMUM : item->src[k];
        }
    }
    ck_assert_uint_ge(changed, 1);
    t->map.item = faults_item;
}

/* The last key that a row sees is taken for one that it does not. */
static void nearer_horizon(sx_tile *t, sx_tile_online *o)
{
    (void)t;
    o->ahead--;
}

static const struct {
    void (*make)(sx_tile *, sx_tile_online *);
    const char *said;
} faults[] = {
    {swap_factors, "touches bytes"},
    {hold_other_keys, "do not hold the factors of their scores"},
    {lose_warp, "warps out of step"},
    {overlap, "do not lie apart from the ring"},
    {early, "not a loop that hands on one stage in each turn"},
    {other_keys, "touches bytes"},
    {no_mask, "holds another value"},
    {other_mask, "holds another value"},
    {fewer_keys, "holds another value"},
    {other_head, "holds another value"},
    {other_heads_of_values, "holds another value"},
    {no_power, "holds another value"},
    {other_divisor, "holds another value"},
    {nearer_horizon, "are not all minus infinity"},
};

/* Each fault alone makes of a proven program one that is not, or that is no program. */
START_TEST(test_refused)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    online_case c = {.dtype = SX_BF16,
                     .batch = 2,
                     .heads = 2,
                     .rows = 40,
                     .keys = 64,
                     .d = 32,
                     .columns = 48,
                     .grouped = true,
                     .mask = true,
                     .causal = faults[_i].make == nearer_horizon,
                     .ahead = 24};
    online_node o = online_make(&cx, &c);
    sx_kernel *kernel;
    sx_judge *judge;
    sx_verdict verdict;
    fill_random(&cx, &c, &o, &rng);
    ck_sx_ok(&cx, online_lower(&cx, &sx_target_sm_80, &o.n, 32, 32, 2, &kernel));
    verdict = verdict_of(&cx, &o.n, 32, kernel);
    ck_assert_msg(verdict.proven, "%s", verdict.text);
    sx_judge_facts facts = {.keys = 32};
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    ck_sx_ok(&cx,
             sx_judge_kernel(judge, &o.n.fused, o.n.input, o.n.count, &facts, kernel, &verdict));
    ck_assert(!verdict.proven); /* weights that no plan rounds */
    sx_tile tile = *kernel->part[0].tile, query = *tile.online->query;
    sx_tile_online online = *tile.online;
    tile.online = &online;
    online.query = &query;
    kernel->part[0].tile = &tile;
    verdict = verdict_of(&cx, &o.n, 32, kernel);
    ck_assert_msg(verdict.proven, "%s", verdict.text); /* a copy is as good */
    faults[_i].make(&tile, &online);
    facts.rounds = true;
    sx_code code =
        sx_judge_kernel(judge, &o.n.fused, o.n.input, o.n.count, &facts, kernel, &verdict);
    const char *why = code == SX_OK ? verdict.text : cx.error.text;
    ck_assert_msg(code != SX_OK || !verdict.proven, "fault %d: %s", _i, why);
    ck_assert_msg(strstr(why, faults[_i].said) != NULL, "fault %d: %s", _i, why);
    sx_ctx_fini(&cx);
}
END_TEST

/* Of a mask in memory nothing is known, whatever it holds. */
START_TEST(test_mask_has_no_horizon)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    online_case c = {.dtype = SX_BF16,
                     .batch = 1,
                     .heads = 1,
                     .rows = 40,
                     .keys = 64,
                     .d = 32,
                     .columns = 32,
                     .mask = true};
    online_node o = online_make(&cx, &c);
    sx_kernel *kernel;
    sx_tile tile;
    sx_tile_online online;
    fill_random(&cx, &c, &o, &rng);
    ck_sx_ok(&cx, online_lower(&cx, &sx_target_sm_80, &o.n, 32, 32, 2, &kernel));
    ck_assert(!kernel->part[0].tile->online->has_horizon);
    forget_horizon(kernel, &tile, &online);
    ck_assert(verdict_of(&cx, &o.n, 32, kernel).proven);
    online.has_horizon = true;
    online.ahead = c.keys;
    sx_verdict verdict = verdict_of(&cx, &o.n, 32, kernel);
    ck_assert(!verdict.proven && strstr(verdict.text, "are not all minus infinity") != NULL);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- what the emitter must not forget ---- */
/* Instructions in which attention differs from other kernels: products, copies, waits, maxima and what is exchanged
 * between lanes, and the products in place that rescale sums. */
static bool is_essential(const sx_ptx_kernel *k, const sx_ptx_insn *insn)
{
    switch ((int)insn->op) {
    case SX_PTX_OP_MMA_BF16_K16:
    case SX_PTX_OP_LDMATRIX:
    case SX_PTX_OP_CP_ASYNC:
    case SX_PTX_OP_CP_WAIT:
    case SX_PTX_OP_BAR_SYNC:
    case SX_PTX_OP_SHFL:
    case SX_PTX_OP_MAX_F:
    case SX_PTX_OP_CVT_PAIR: return true;
    case SX_PTX_OP_MUL_F32: {
        const sx_ptx_arg *arg = &k->arg[insn->arg];
        return arg[1].kind == SX_PTX_ARG_REGISTER && arg[0].form == arg[1].form &&
               arg[0].id == arg[1].id;
    }
    default: return false;
    }
}

/* Maxima grow from stage to stage, so that each rescales. */
static void fill_growing(sx_ctx *cx, const online_case *c, online_node *o, sx_rng *rng)
{
    fill_random(cx, c, o, rng);
    for (int64_t i = 0; i < c->rows * c->keys; i++) {
        double stage = (double)(i % c->keys / 16);
        online_set(cx, o, ONLINE_MASK, i, 2 * stage + 4 * (double)sx_rng_f32(rng));
    }
}

START_TEST(test_nothing_is_left_out)
{
    sx_rng rng = {8}; /* with it each register of scores has the maximum of some row */
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    online_case c = {.dtype = SX_BF16,
                     .batch = 1,
                     .heads = 1,
                     .rows = 41,
                     .keys = 47,
                     .d = 24,
                     .columns = 12,
                     .mask = true};
    online_node o = online_make(&cx, &c);
    sx_kernel *kernel;
    uint32_t tried = 0, rescaled = 0;
    fill_growing(&cx, &c, &o, &rng);
    ck_sx_ok(&cx, online_lower(&cx, &sx_target_sm_80, &o.n, 32, 16, 2, &kernel));
    sx_ptx_module *module = tiles_module(&cx, kernel, 80);
    uint8_t *want = exact_buffer(&cx, bytes_of(&o.n.result));
    uint8_t *got = exact_buffer(&cx, bytes_of(&o.n.result));
    ck_sx_ok(&cx, tiles_run(&cx, kernel, module, &o.n, 0, false, want, NULL));
    ck_assert(!tiles_are_killed(kernel, module, &o.n, want, got));
    sx_ptx_kernel *k = &module->kernel[0];
    for (uint32_t i = 0; i < k->insn_count; i++) {
        sx_ptx_insn whole = k->insn[i];
        sx_buf line;
        if (!is_essential(k, &whole)) {
            continue;
        }
        k->insn[i] =
            (sx_ptx_insn){.op = SX_PTX_OP_FENCE, .modifier = {SX_PTX_ORDER_SC, SX_PTX_SCOPE_CTA}};
        bool killed = tiles_are_killed(kernel, module, &o.n, want, got);
        k->insn[i] = whole;
        tried++;
        rescaled += whole.op == SX_PTX_OP_MUL_F32 ? 1 : 0;
        sx_buf_init(&line, 4096);
        sx_ptx_print_insn(module, k, &whole, &line);
        ck_assert_msg(killed, "nobody misses instruction %u, %.*s", i, (int)line.len,
                      (const char *)line.ptr);
        sx_buf_fini(&line);
    }
    ck_assert_uint_ge(tried, 90);
    ck_assert_uint_ge(rescaled, 2 * (2 + 8)); /* of whole stages, and of the last one */
    sx_ctx_fini(&cx);
}
END_TEST

/* Is this part of counting the stages that are passed? Without a shift more stages are read than need be, and without
 * the jumps over hidden stages, or the maximum for a block that sees nothing, no bit changes; nor without the minimum
 * where the last stage is not whole, since what is copied beyond the keys is 0. */
static bool counts_stages(const sx_ptx_kernel *k, const sx_ptx_insn *insn, bool whole)
{
    const sx_ptx_arg *arg = &k->arg[insn->arg];
    bool adds_one = insn->op == SX_PTX_OP_ADD && insn->modifier[0] == SX_PTX_TYPE_S32 &&
                    arg[2].kind == SX_PTX_ARG_IMMEDIATE && arg[2].value == 1;
    return (insn->op == SX_PTX_OP_MIN && whole) || adds_one;
}

START_TEST(test_no_stage_is_lost)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    online_case c = {.dtype = SX_BF16,
                     .batch = 1,
                     .heads = 1,
                     .rows = 70,
                     .keys = _i == 0 ? 72 : 64,
                     .d = 16,
                     .columns = 16,
                     .causal = true,
                     .ahead = 15};
    online_node o = online_make(&cx, &c);
    sx_kernel *kernel;
    uint32_t tried = 0;
    fill_random(&cx, &c, &o, &rng);
    ck_sx_ok(&cx, online_lower(&cx, &sx_target_sm_80, &o.n, 32, 16, 3, &kernel));
    sx_ptx_module *module = tiles_module(&cx, kernel, 80);
    uint8_t *want = exact_buffer(&cx, bytes_of(&o.n.result));
    uint8_t *got = exact_buffer(&cx, bytes_of(&o.n.result));
    ck_sx_ok(&cx, tiles_run(&cx, kernel, module, &o.n, 0, false, want, NULL));
    sx_ptx_kernel *k = &module->kernel[0];
    for (uint32_t i = 0; i < k->insn_count; i++) {
        sx_ptx_insn whole = k->insn[i];
        if (!counts_stages(k, &whole, c.keys % 16 == 0)) {
            continue;
        }
        k->insn[i] =
            (sx_ptx_insn){.op = SX_PTX_OP_FENCE, .modifier = {SX_PTX_ORDER_SC, SX_PTX_SCOPE_CTA}};
        bool killed = tiles_are_killed(kernel, module, &o.n, want, got);
        k->insn[i] = whole;
        tried++;
        ck_assert_msg(killed, "nobody misses instruction %u", i);
    }
    ck_assert_uint_ge(tried, _i == 0 ? 3 : 5); /* of the warp, the block and the loop; minima */
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- the search ---- */
/* Where all types are narrow, blocks come first on every GPU, whatever the number of rows: bits must not depend on it.
 * A result of f32 keeps weights of f32. */
START_TEST(test_chosen)
{
    static const char *const names[] = {"h100", "a100", "rtx4090"};
    static const int64_t rows[] = {1, 17, 2048};
    for (uint32_t k = 0; k < SX_COUNT(names) * SX_COUNT(rows); k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        online_case c = {.dtype = SX_BF16,
                         .batch = 2,
                         .heads = 4,
                         .rows = rows[k % 3],
                         .keys = 1024,
                         .d = 128,
                         .columns = 128};
        online_node o = online_make(&cx, &c);
        sx_attr to = {.present = SX_A(type), .type = o.n.result};
        to.type.dtype = SX_BF16;
        node convert = lift(&cx, SX_OP_CONVERT, &to, &o.n.result, 1);
        node narrow = inlined(&cx, &convert, 0, &o.n);
        const sx_device *device;
        sx_search_result wide, found;
        sx_online_blocks blocks;
        ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(names[k / 3]), &device));
        ck_sx_ok(&cx, sx_search_kernel(&cx, analysis_of(&cx, &narrow), device, false, 8, &found));
        ck_assert(found.matrix_count > 0 && sx_online_blocks_of(&found.best[0].schedule, &blocks));
        ck_assert_int_eq(blocks.keys, 64);
        ck_sx_ok(&cx, sx_search_kernel(&cx, analysis_of(&cx, &o.n), device, false, 8, &wide));
        ck_assert_uint_eq(wide.matrix_count, 0);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* What GPUs want: no assembler spills. */
START_TEST(test_assembles)
{
    static const struct {
        int64_t side, rows, keys;
        uint32_t depth;
    } large[] = {{64, 128, 64, 2}, {128, 64, 64, 2}, {128, 128, 64, 2}, {256, 64, 32, 2}};
    static const char *const names[] = {"sm_80", "sm_90"};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    int64_t side = large[_i].side;
    online_case c = {.dtype = _i % 2 == 0 ? SX_BF16 : SX_F16,
                     .batch = 1,
                     .heads = 8,
                     .grouped = true,
                     .rows = 500,
                     .keys = 500,
                     .d = side,
                     .columns = side,
                     .mask = true};
    online_node o = online_make(&cx, &c);
    for (uint32_t t = 0; t < SX_COUNT(names); t++) {
        const sx_target *target = sx_target_find(NULL, names[t]);
        sx_kernel *kernel;
        sx_buf text;
        sxa_result result;
        sxa_options options = {.with = SXA_PTXAS};
        sx_code code = online_lower(&cx, target, &o.n, large[_i].rows, large[_i].keys,
                                    large[_i].depth, &kernel);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        sx_buf_init(&text, (size_t)16 << 20);
        sx_ptx_print(tiles_module(&cx, kernel, target->machine->level), &text);
        code = sxa_assemble(&cx, sx_buf_span(&text), names[t], &options, &result);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        const sx_cubin_kernel *k = &result.record->kernel[0];
        if (getenv("SX_SHOW") != NULL) {
            (void)fprintf(stderr, "%s: head %lld, %u registers, %u spills, code %llu\n", names[t],
                          (long long)side, k->registers, k->spill_count,
                          (unsigned long long)k->code_bytes);
        }
        ck_assert_uint_eq(k->spill_count + k->stack_bytes, 0);
        sx_buf_fini(&text);
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("online");
    TCase *tcase = tcase_create("online");
    tcase_set_timeout(tcase, 60); /* assembling on a busy machine */
    tcase_add_loop_test(tcase, test_exact, 0, (int)SX_COUNT(plans));
    tcase_add_loop_test(tcase, test_rounded, 0, 6);
    tcase_add_loop_test(tcase, test_horizon, 0, (int)SX_COUNT(plans));
    tcase_add_test(tcase, test_horizons_of_programs);
    tcase_add_test(tcase, test_rows);
    tcase_add_loop_test(tcase, test_refused, 0, (int)SX_COUNT(faults));
    tcase_add_test(tcase, test_mask_has_no_horizon);
    tcase_add_test(tcase, test_nothing_is_left_out);
    tcase_add_loop_test(tcase, test_no_stage_is_lost, 0, 2);
    tcase_add_test(tcase, test_chosen);
    tcase_add_loop_test(tcase, test_assembles, 0, 4);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
