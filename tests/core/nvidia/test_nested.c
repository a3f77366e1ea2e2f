/* Nested contractions by matrix instructions, executed in the interpreter of PTX: bits where the answer is exact, the
 * error of what is rounded where it is not, and the same bits of a row under every schedule and beside any others. */
#include "tests/core/nvidia/nested.h"

#include <math.h>

#include "client/assemble/assemble.h"
#include "core/search/search.h"

static const struct {
    int64_t rows, keys;
    uint32_t depth;
} plans[] = {{16, 16, 2}, {64, 32, 2}, {32, 64, 3}, {128, 16, 4}};

static uint8_t *run(sx_ctx *cx, const node *n, const sx_kernel *kernel, uint64_t seed, bool lazy)
{
    sx_ptx_module *module = tiles_module(cx, kernel, 80);
    uint8_t *out = exact_buffer(cx, bytes_of(&n->result));
    sx_code code = tiles_run(cx, kernel, module, n, seed, lazy, out, NULL);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    return out;
}

/* The verdict on the kernel; the schedule says no more than that weights are rounded. */
static sx_verdict verdict_of(sx_ctx *cx, const node *n, const sx_kernel *kernel)
{
    sx_judge *judge;
    sx_verdict verdict;
    sx_judge_facts facts = {.rounds = true};
    ck_sx_ok(cx, sx_judge_make(cx, &judge));
    ck_sx_ok(cx, sx_judge_kernel(judge, &n->fused, n->input, n->count, &facts, kernel, &verdict));
    return verdict;
}

static nested_case random_case(sx_rng *rng, uint32_t round)
{
    static const int64_t sides[] = {5, 8, 16, 24, 33};
    nested_case c = {.dtype = round % 2 == 0 ? "bf16" : "f16",
                     .batch = 1 + round % 2,
                     .heads = 2,
                     .rows = 2 + (int64_t)sx_rng_below(rng, 70),
                     .keys = 2 + (int64_t)sx_rng_below(rng, 90),
                     .d = sides[sx_rng_below(rng, SX_COUNT(sides))],
                     .columns = sides[sx_rng_below(rng, SX_COUNT(sides))],
                     .two = round % 3 != 0,
                     .grouped = round % 4 == 1,
                     .keys_turned = round % 5 == 4,
                     .along_keys = round % 2 != 0,
                     .value_turned = round % 3 == 2};
    return c;
}

START_TEST(test_exact)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < 6; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        nested_case c = random_case(&rng, round);
        node n = nested_exact_node(&cx, &c);
        sx_kernel *kernel;
        nested_fill_exact(&cx, &n, &c, &rng);
        sx_code code = nested_lower(&cx, &sx_target_sm_80, &n, plans[_i].rows, plans[_i].keys,
                                    plans[_i].depth, &kernel);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        sx_verdict verdict = verdict_of(&cx, &n, kernel);
        ck_assert_msg(verdict.proven, "%s", verdict.text);
        const float *out =
            (const float *)(const void *)run(&cx, &n, kernel, sx_rng_next(&rng), round % 2 != 0);
        double *x = SX_NEW_ARRAY(&cx, double, (size_t)c.keys);
        ck_assert_ptr_nonnull(x);
        for (int64_t i = 0; i < sx_tensor_elements(&n.result); i++) {
            int64_t row = i / c.columns;
            double want = nested_exact(&n, &c, row / c.rows, row % c.rows, i % c.columns, x);
            ck_assert_msg(
                (double)out[i] == want,
                "round %u: %lld rows, %lld keys, %lld x %lld: element %lld is %g, exact %g", round,
                (long long)c.rows, (long long)c.keys, (long long)c.d, (long long)c.columns,
                (long long)i, (double)out[i], want);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* ---- gradients of attention ---- */
/* What an element of the result is, in double, and how far it may be off. */
typedef struct {
    double value, allowed;
} gradient;

/* By the definition, of one batch. Of a product of f32 sums over d terms each is off by d + 4 units at most of the sum
 * of their sizes; the power has an error of a few units, and what its argument has; x is rounded to a unit of its type,
 * the sum over the keys has a unit of each of its terms, and the result one of its type. */
static gradient gradient_of(const node *n, const sx_nested_shape *s, int64_t batch, int64_t row,
                            int64_t column)
{
    const bool dq = s->kind == SX_NESTED_DQ, dv = s->kind == SX_NESTED_DV;
    const uint32_t q = 0, k = 1, lse = 2, g = 3, v = 4, stat = 5;
    const double f32 = ldexp(1, -24), tiny = ldexp(1, -25); /* half of the least f16 */
    const double narrow = ldexp(1, strcmp(s->dtype, "bf16") == 0 ? -8 : -11);
    const int64_t d = s->width, outer = dq ? s->keys : s->rows;
    double sum = 0, sizes = 0, off = 0;
    for (int64_t o = 0; o < outer; o++) {
        int64_t i = batch * s->rows + (dq ? row : o), j = batch * s->keys + (dq ? o : row);
        double dots[2] = {0, 0}, size[2] = {0, 0};
        for (int64_t e = 0; e < d; e++) {
            double x = nested_get(n, q, i * d + e) * nested_get(n, k, j * d + e);
            dots[0] += x;
            size[0] += fabs(x);
            x = dv ? 0 : nested_get(n, g, i * d + e) * nested_get(n, v, j * d + e);
            dots[1] += x;
            size[1] += fabs(x);
        }
        bool hidden = s->causal && i % s->rows < j % s->keys;
        double p = hidden ? 0 : exp(s->scale * dots[0] - nested_get(n, lse, i));
        double difference = dv ? 1 : dots[1] - nested_get(n, stat, i), x = p * difference;
        double units = ((double)d + 4) * f32;
        double p_off = p * (units * s->scale * size[0] + 8 * f32 * (1 + fabs(log(p > 0 ? p : 1))));
        double x_off = p_off * fabs(difference) +
                       p * (dv ? 0 : units * (size[1] + fabs(difference))) +
                       fabs(x) * (narrow + f32) + tiny;
        double y = nested_get(n, dv ? g : dq ? k : q, (dq ? j : i) * d + column);
        sum += x * y;
        sizes += fabs(x * y);
        off += x_off * fabs(y);
    }
    double scale = dv ? 1 : s->scale;
    off += (double)outer * f32 * sizes;
    return (gradient){scale * sum, 1.01 * scale * (off + narrow * fabs(sum)) + tiny};
}

static void fill_gradient(sx_ctx *cx, node *n, const sx_nested_shape *s, sx_rng *rng)
{
    for (uint32_t k = 0; k < n->count; k++) {
        for (int64_t i = 0; i < sx_tensor_elements(&n->input[k]); i++) {
            double value = (double)sx_rng_f32(rng);
            nested_set(cx, n, k, i, k == 2 ? log((double)s->keys) + value : value);
        }
    }
    if (s->kind !=
        SX_NESTED_DV) { /* the y of the outer contraction is the keys, or the queries, once more */
        n->raw[6] = n->raw[s->kind == SX_NESTED_DQ ? 1 : 0];
    }
}

static node gradient_node(sx_ctx *cx, const sx_nested_shape *s)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 14);
    sx_nested_text(s, &text);
    node n = nested_parse(cx, &text);
    sx_buf_fini(&text);
    return n;
}

START_TEST(test_gradients)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    const sx_nested_shape s = {.kind = (sx_nested_kind)(_i % SX_NESTED_COUNT),
                               .batch = 1,
                               .rows = 21,
                               .keys = 37,
                               .width = _i < SX_NESTED_COUNT ? 64 : 128,
                               .scale = 0.125,
                               .causal = _i % 2 != 0,
                               .dtype = _i % 2 == 0 ? "bf16" : "f16",
                               .rounded = _i % 4 < 2    ? NULL
                                          : _i % 2 == 0 ? "bf16"
                                                        : "f16"};
    node n = gradient_node(&cx, &s);
    sx_kernel *kernel;
    fill_gradient(&cx, &n, &s, &rng);
    sx_code code = nested_lower(&cx, &sx_target_sm_80, &n, 32, 32, 2, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx.error.text);
    sx_verdict verdict = verdict_of(&cx, &n, kernel);
    ck_assert_msg(verdict.proven, "%s", verdict.text);
    const uint8_t *out = run(&cx, &n, kernel, 1, true);
    int64_t rows = s.kind == SX_NESTED_DQ ? s.rows : s.keys;
    double largest = 0;
    for (int64_t i = 0; i < sx_tensor_elements(&n.result); i++) {
        int64_t row = i / s.width;
        gradient want = gradient_of(&n, &s, row / rows, row % rows, i % s.width);
        double got = sx_num_decode(n.result.dtype, sx_num_load(n.result.dtype, out, (size_t)i));
        ck_assert_msg(fabs(got - want.value) <= want.allowed,
                      "element %lld is %g, not %g within %g", (long long)i, got, want.value,
                      want.allowed);
        largest = fmax(largest, fabs(got - want.value) / want.allowed);
    }
    ck_assert_msg(largest > 0.01, "errors of %g of what is allowed", largest);
    sx_ctx_fini(&cx);
}
END_TEST

/* A row has the same bits under every schedule, be it the only one or one of many. */
START_TEST(test_rows)
{
    static const int64_t rows_of[] = {1, 2, 16, 17, 70};
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    nested_case c = {.dtype = "bf16",
                     .batch = 1,
                     .heads = 1,
                     .rows = 70,
                     .keys = 101,
                     .d = 40,
                     .columns = 24,
                     .two = true,
                     .along_keys = true};
    node whole = nested_exact_node(&cx, &c);
    for (uint32_t k = 0; k < whole.count; k++) {
        for (int64_t i = 0; i < sx_tensor_elements(&whole.input[k]); i++) {
            nested_set(&cx, &whole, k, i, (double)sx_rng_f32(&rng));
        }
    }
    const float *first = NULL;
    for (uint32_t p = 0; p < SX_COUNT(plans) * SX_COUNT(rows_of); p++) {
        nested_case part = c;
        sx_kernel *kernel;
        part.rows = rows_of[SX_COUNT(rows_of) - 1 - p % SX_COUNT(rows_of)];
        node n = nested_exact_node(&cx, &part);
        memcpy(n.raw, whole.raw, sizeof(n.raw));
        uint32_t plan = p / SX_COUNT(rows_of);
        sx_code code = nested_lower(&cx, &sx_target_sm_80, &n, plans[plan].rows, plans[plan].keys,
                                    plans[plan].depth, &kernel);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        const float *out = (const float *)(const void *)run(&cx, &n, kernel, p, p % 2 != 0);
        first = first == NULL ? out : first;
        ck_assert_mem_eq(out, first, (size_t)(part.rows * c.columns) * sizeof(float));
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- what the judge must see ---- */
static void swap_factors(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    sx_tile_operand left = t->operand[SX_TILE_LEFT];
    t->operand[SX_TILE_LEFT] = t->operand[SX_TILE_SECOND];
    t->operand[SX_TILE_SECOND] = left;
}
static void swap_queries(sx_tile *t, sx_tile_online *o)
{
    (void)t;
    const sx_tile *first = o->query;
    o->query = o->second;
    o->second = first;
}
static void forget_second(sx_tile *t, sx_tile_online *o)
{
    (void)t;
    o->second = NULL;
}
static void keep_wide(sx_tile *t, sx_tile_online *o)
{
    (void)t;
    o->rounded = true;
}
static void claim_horizon(sx_tile *t, sx_tile_online *o)
{
    (void)t;
    o->has_horizon = true;
    o->ahead = 1000;
}
static void fetch_twice(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    t->role[0].item[4].operand = SX_TILE_LEFT;
}
static void fewer_keys(sx_tile *t, sx_tile_online *o)
{
    (void)o;
    t->sum = 64;
    for (uint32_t k = 0; k < SX_TILE_OPERANDS_MAX; k++) {
        t->operand[k].view.sum_extent = 64;
    }
}
static sx_tile faults_second;
static void overlap(sx_tile *t, sx_tile_online *o)
{
    (void)t;
    faults_second = *o->second;
    faults_second.ring.offset = o->query->ring.offset;
    o->second = &faults_second;
}

static const struct {
    void (*make)(sx_tile *, sx_tile_online *);
    const char *said;
} faults[] = {
    {swap_factors, "holds another value"},
    {swap_queries, "holds another value"},
    {forget_second, "read before it is written"},
    {keep_wide, "holds another value"},
    {claim_horizon, "do not fit to each other"},
    {fetch_twice, "not a loop that hands on one stage in each turn"},
    {fewer_keys, "holds another value"},
    {overlap, "do not lie apart from the ring"},
};

/* Each fault alone makes of a proven program one that is not. */
START_TEST(test_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    const sx_nested_shape s = {.kind = SX_NESTED_DK,
                               .batch = 2,
                               .rows = 70,
                               .keys = 40,
                               .width = 32,
                               .scale = 0.5,
                               .causal = true,
                               .dtype = "bf16"};
    node n = gradient_node(&cx, &s);
    sx_kernel *kernel;
    ck_sx_ok(&cx, nested_lower(&cx, &sx_target_sm_80, &n, 32, 32, 2, &kernel));
    sx_tile tile = *kernel->part[0].tile;
    sx_tile_online online = *tile.online;
    tile.online = &online;
    kernel->part[0].tile = &tile;
    sx_verdict verdict = verdict_of(&cx, &n, kernel);
    ck_assert_msg(verdict.proven, "%s", verdict.text);
    faults[_i].make(&tile, &online);
    sx_judge *judge;
    sx_judge_facts facts = {.rounds = true};
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    sx_code code = sx_judge_kernel(judge, &n.fused, n.input, n.count, &facts, kernel, &verdict);
    const char *why = code == SX_OK ? verdict.text : cx.error.text;
    ck_assert_msg(code != SX_OK || !verdict.proven, "fault %d: %s", _i, why);
    ck_assert_msg(strstr(why, faults[_i].said) != NULL, "fault %d: %s", _i, why);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- what the emitter must not forget ---- */
static bool is_essential(const sx_ptx_insn *insn)
{
    switch ((int)insn->op) {
    case SX_PTX_OP_MMA_BF16_K16:
    case SX_PTX_OP_LDMATRIX:
    case SX_PTX_OP_CP_ASYNC:
    case SX_PTX_OP_CP_WAIT:
    case SX_PTX_OP_BAR_SYNC:
    case SX_PTX_OP_CVT_PAIR: return true;
    default: return false;
    }
}

START_TEST(test_nothing_is_left_out)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    nested_case c = {.dtype = "bf16",
                     .batch = 1,
                     .heads = 1,
                     .rows = 16,
                     .keys = 31,
                     .d = 24,
                     .columns = 12,
                     .two = true,
                     .along_keys = true};
    node n = nested_exact_node(&cx, &c);
    sx_kernel *kernel;
    uint32_t tried = 0;
    for (uint32_t k = 0; k < n.count; k++) {
        for (int64_t i = 0; i < sx_tensor_elements(&n.input[k]); i++) {
            nested_set(&cx, &n, k, i, (double)sx_rng_f32(&rng));
        }
    }
    ck_sx_ok(&cx, nested_lower(&cx, &sx_target_sm_80, &n, 16, 16, 2, &kernel));
    sx_ptx_module *module = tiles_module(&cx, kernel, 80);
    uint8_t *want = exact_buffer(&cx, bytes_of(&n.result));
    uint8_t *got = exact_buffer(&cx, bytes_of(&n.result));
    ck_sx_ok(&cx, tiles_run(&cx, kernel, module, &n, 0, false, want, NULL));
    ck_assert(!tiles_are_killed(kernel, module, &n, want, got));
    sx_ptx_kernel *k = &module->kernel[0];
    for (uint32_t i = 0; i < k->insn_count; i++) {
        sx_ptx_insn whole = k->insn[i];
        if (!is_essential(&whole)) {
            continue;
        }
        k->insn[i] =
            (sx_ptx_insn){.op = SX_PTX_OP_FENCE, .modifier = {SX_PTX_ORDER_SC, SX_PTX_SCOPE_CTA}};
        bool killed = tiles_are_killed(kernel, module, &n, want, got);
        k->insn[i] = whole;
        tried++;
        sx_buf line;
        sx_buf_init(&line, 4096);
        sx_ptx_print_insn(module, k, &whole, &line);
        ck_assert_msg(killed, "nobody misses instruction %u, %.*s", i, (int)line.len,
                      (const char *)line.ptr);
        sx_buf_fini(&line);
    }
    ck_assert_uint_ge(tried, 55);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- the search ---- */
/* Where what is multiplied is narrow and weights may be rounded, blocks come first on every GPU, whatever the number of
 * rows: bits must not depend on it. */
START_TEST(test_chosen)
{
    static const char *const names[] = {"h100", "h200", "a100", "rtx4090", "rtx3090", "b200"};
    static const int64_t rows[] = {1, 17, 2048};
    for (uint32_t k = 0; k < SX_COUNT(names) * SX_COUNT(rows); k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        nested_case c = {.dtype = "bf16",
                         .batch = 2,
                         .heads = 4,
                         .rows = rows[k % 3],
                         .keys = 1024,
                         .d = 128,
                         .columns = 128,
                         .two = k % 2 == 0};
        node n = nested_exact_node(&cx, &c);
        const sx_device *device;
        sx_search_result found;
        sx_online_blocks blocks;
        ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(names[k / 3]), &device));
        ck_sx_ok(&cx, sx_search_kernel(&cx, analysis_of(&cx, &n), device, false, 8, &found));
        ck_assert(found.matrix_count > 0 && sx_online_blocks_of(&found.best[0].schedule, &blocks));
        ck_assert(blocks.two == c.two);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* What GPUs want: no assembler spills. */
START_TEST(test_assembles)
{
    static const struct {
        sx_nested_kind kind;
        int64_t side, rows, keys;
    } large[] = {{SX_NESTED_DQ, 64, 128, 64}, {SX_NESTED_DK, 64, 64, 64},
                 {SX_NESTED_DV, 128, 64, 64}, {SX_NESTED_DQ, 128, 64, 32},
                 {SX_NESTED_DK, 128, 64, 32}, {SX_NESTED_DV, 256, 64, 32}};
    static const char *const names[] = {"sm_90", "sm_80", "sm_89", "sm_90", "sm_86"};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    const sx_nested_shape s = {.kind = large[_i].kind,
                               .batch = 8,
                               .rows = 500,
                               .keys = 500,
                               .width = large[_i].side,
                               .scale = 0.125,
                               .causal = true,
                               .dtype = "bf16",
                               .rounded = "bf16"};
    node n = gradient_node(&cx, &s);
    const char *name = names[_i % (int)SX_COUNT(names)];
    const sx_target *target = sx_target_find(NULL, name);
    sx_kernel *kernel;
    sx_buf text;
    sxa_result result;
    sxa_options options = {.with = SXA_PTXAS};
    sx_code code = nested_lower(&cx, target, &n, large[_i].rows, large[_i].keys, 2, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx.error.text);
    sx_buf_init(&text, (size_t)16 << 20);
    sx_ptx_print(tiles_module(&cx, kernel, target->machine->level), &text);
    code = sxa_assemble(&cx, sx_buf_span(&text), name, &options, &result);
    ck_assert_msg(code == SX_OK, "%s", cx.error.text);
    const sx_cubin_kernel *k = &result.record->kernel[0];
    if (getenv("SX_SHOW") != NULL) {
        (void)fprintf(stderr, "%s: %s head %lld, %u registers, %u spills, code %llu\n", name,
                      sx_nested_name(s.kind), (long long)s.width, k->registers, k->spill_count,
                      (unsigned long long)k->code_bytes);
    }
    ck_assert_uint_eq(k->spill_count + k->stack_bytes, 0);
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nested");
    TCase *tcase = tcase_create("nested");
    tcase_set_timeout(tcase, 60); /* assembling on a busy machine */
    tcase_add_loop_test(tcase, test_exact, 0, (int)SX_COUNT(plans));
    tcase_add_loop_test(tcase, test_gradients, 0, 2 * SX_NESTED_COUNT);
    tcase_add_test(tcase, test_rows);
    tcase_add_loop_test(tcase, test_refused, 0, (int)SX_COUNT(faults));
    tcase_add_test(tcase, test_nothing_is_left_out);
    tcase_add_test(tcase, test_chosen);
    tcase_add_loop_test(tcase, test_assembles, 0, 6);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
