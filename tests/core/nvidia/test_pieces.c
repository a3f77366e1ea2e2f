/* Attention of few queries over many keys, in pieces of keys that different blocks take: by the definition, the same
 * bits however many rows, heads and batches there are and under every schedule; both launches proven, planted faults
 * refused, and each instruction missed that the statistics of the pieces need. */
#include "client/assemble/assemble.h"
#include "core/search/search.h"
#include "tests/core/nvidia/pieces.h"

static sx_verdict verdict_of(pieces_setting *s, const sx_kernel *kernel)
{
    sx_judge *judge;
    sx_verdict verdict;
    const sx_judge_facts facts = {.keys = PIECES_STAGE, .rounds = true};
    ck_sx_ok(&s->cx, sx_judge_make(&s->cx, &judge));
    sx_code code = sx_judge_pieces(judge, &s->nodes->partial, &s->nodes->statistic, s->sums.input,
                                   s->sums.count, &facts, kernel, &verdict);
    if (code != SX_OK) {
        verdict = (sx_verdict){.proven = false};
        (void)snprintf(verdict.text, sizeof(verdict.text), "%.200s", s->cx.error.text);
    }
    return verdict;
}

/* The second launch, proven, on what the first one left. */
static float *combine(pieces_setting *s, uint8_t *const sums[SX_PIECE_RESULTS])
{
    const sx_analysis *a = &s->nodes->combine_analysis;
    const sx_device *device;
    sx_search_result found;
    sx_judge *judge;
    sx_verdict verdict;
    sx_kernel *kernel;
    void *buffer[SX_LOOP_BUFFERS_MAX];
    ck_sx_ok(&s->cx, sx_device_find(&s->cx, sx_span_of("a100"), &device));
    ck_sx_ok(&s->cx, sx_search_kernel(&s->cx, a, device, false, 4, &found));
    sx_lowering what = {.kind = SX_LOWER_FUSED,
                        .name = "combine",
                        .analysis = a,
                        .schedule = &found.best[0].schedule};
    ck_sx_ok(&s->cx, sx_target_lower(&s->cx, &sx_target_sm_80, &what, &kernel));
    ck_sx_ok(&s->cx, sx_judge_make(&s->cx, &judge));
    const sx_judge_facts nothing = {0};
    ck_sx_ok(&s->cx, sx_judge_kernel(judge, &s->nodes->combine, s->nodes->combine_input,
                                     s->o.n.count, &nothing, kernel, &verdict));
    ck_assert_msg(verdict.proven, "%s", verdict.text);
    for (uint32_t k = 0; k < s->o.n.count; k++) {
        buffer[k] = k == s->a->value ? sums[SX_PIECE_SUM]
                    : k == s->a->rhs ? sums[SX_PIECE_STATISTIC]
                                     : s->o.n.raw[k];
    }
    uint8_t *out = exact_buffer(&s->cx, bytes_of(&s->o.n.result));
    buffer[s->o.n.count] = out;
    ck_sx_ok(&s->cx, sx_kernel_eval(&s->cx, kernel, buffer));
    return (float *)(void *)out;
}

static float *run(pieces_setting *s, int64_t rows, uint32_t depth, uint64_t seed, bool lazy)
{
    sx_kernel *kernel = pieces_sums_of(s, rows, depth);
    uint8_t *out[SX_PIECE_RESULTS];
    pieces_make_room(s, kernel, out);
    sx_verdict verdict = verdict_of(s, kernel);
    ck_assert_msg(verdict.proven, "%s", verdict.text);
    sx_ptx_module *module = tiles_module(&s->cx, kernel, 80);
    sx_code code = pieces_run(s, &s->cx, kernel, module, seed, lazy, out);
    ck_assert_msg(code == SX_OK, "%s", s->cx.error.text);
    return combine(s, out);
}

static const online_case cases[] = {
    {.dtype = SX_BF16, .batch = 2, .heads = 2, .rows = 1, .keys = 1024, .d = 32, .columns = 32},
    {.dtype = SX_F16, .batch = 1, .heads = 2, .rows = 4, .keys = 1152, .d = 40, .columns = 24},
    {.dtype = SX_BF16,
     .batch = 2,
     .heads = 3,
     .grouped = true,
     .rows = 2,
     .keys = 1536,
     .d = 16,
     .columns = 72,
     .mask = true},
    {.dtype = SX_BF16,
     .batch = 1,
     .heads = 1,
     .rows = 16,
     .keys = 1024,
     .d = 64,
     .columns = 64,
     .causal = true,
     .ahead = 1008,
     .keys_inner = true},
    {.dtype = SX_F16,
     .batch = 1,
     .heads = 2,
     .rows = 3,
     .keys = 1024,
     .d = 24,
     .columns = 1,
     .mask = true},
};

/* By the definition. What weights and scores are off by says test_online; a statistic, at most d + log keys, is off by
 * four units in the last place of that, so that weights of pieces are, relatively, and both sums. */
START_TEST(test_definition)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    const online_case *c = &cases[_i];
    pieces_setting s;
    pieces_setup(&s, c, &rng);
    float *out = run(&s, 16, 2, sx_rng_next(&rng), false);
    float *other = run(&s, _i % 2 == 0 ? 32 : 16, 3, sx_rng_next(&rng), true);
    double unit = c->dtype == SX_BF16 ? ldexp(1, -8) : ldexp(1, -11);
    double sums = (double)c->d * (double)(c->d / 16 + 4) * ldexp(1, -24);
    double allowed = 2 * (unit + sums) + 2 * ((double)c->d + log((double)c->keys)) * ldexp(1, -22);
    double *weight = online_doubles(&s.cx, c->keys), *row = online_doubles(&s.cx, c->columns);
    for (int64_t i = 0; i < c->batch * c->heads * c->rows; i++) {
        online_row(c, &s.o, i / c->rows, i % c->rows, weight, row);
        bool hidden = c->mask && i % c->rows == 1; /* wholly */
        for (int64_t n = 0; n < c->columns; n++) {
            float got = out[i * c->columns + n], again = other[i * c->columns + n];
            bool right = hidden ? isnan(got) && isnan(again)
                                : fabs((double)got - row[n]) <= allowed &&
                                      memcmp(&got, &again, sizeof(got)) == 0;
            ck_assert_msg(right, "case %d: row %lld column %lld is %g, then %g, exact %g", _i,
                          (long long)i, (long long)n, (double)got, (double)again, row[n]);
        }
    }
    sx_ctx_fini(&s.cx);
}
END_TEST

/* A row has the same bits whatever rows, heads and batches are beside it, and however many keys that nobody sees follow
 * those of its sequence. */
START_TEST(test_same_bits)
{
    static const struct {
        int64_t batch, heads, rows, keys;
    } others[] = {
        {1, 1, 1, 1024}, {3, 1, 1, 1024}, {1, 1, 5, 1024}, {1, 1, 16, 1024}, {1, 1, 1, 2048}};
    sx_rng rng = {sx_test_seed()};
    online_case c = {.dtype = SX_BF16,
                     .batch = 1,
                     .heads = 2,
                     .rows = 3,
                     .keys = 1024,
                     .d = 32,
                     .columns = 16,
                     .mask = true};
    pieces_setting all;
    pieces_setup(&all, &c, &rng);
    float *want = run(&all, 16, 2, 1, false);
    for (uint32_t k = 0; k < SX_COUNT(others); k++) {
        online_case few = c;
        few.batch = others[k].batch;
        few.heads = others[k].heads;
        few.rows = others[k].rows;
        few.keys = others[k].keys;
        pieces_setting s;
        pieces_setup(&s, &few, &rng); /* the first row, and others that are not compared */
        const int64_t most[] = {c.d, c.keys * c.d, c.keys * c.columns};
        for (uint32_t which = ONLINE_Q; which <= ONLINE_V; which++) {
            for (int64_t i = 0; i < most[which]; i++) {
                online_set(&s.cx, &s.o, which, i, all.o.value[which][i]);
            }
        }
        for (int64_t i = 0; i < few.keys; i++) {
            double there = i < c.keys ? all.o.value[ONLINE_MASK][i] : -HUGE_VAL;
            online_set(&s.cx, &s.o, ONLINE_MASK, i, there);
        }
        float *got = run(&s, k % 2 == 0 ? 16 : 32, 2 + k % 2, 5 + k, k % 2 == 0);
        ck_assert_msg(memcmp(got, want, 4 * (size_t)c.columns) == 0, "case %u: other bits", k);
        sx_ctx_fini(&s.cx);
    }
    sx_ctx_fini(&all.cx);
}
END_TEST

/* ---- what the judge refuses ---- */
static sx_part changed;
static sx_addr changed_addr[16];
static sx_item changed_item[256];

static void lose_statistic(sx_tile_online *o)
{
    o->statistic = NULL;
}
static void next_row(sx_tile_online *o)
{
    (void)o;
    for (uint32_t i = 0; i < changed.addr_count; i++) {
        changed_addr[i].offset += 4;
    }
}
static void other_piece(sx_tile_online *o)
{
    (void)o;
    for (uint32_t i = 0; i < changed.addr_count; i++) {
        changed_addr[i].coef[SX_TILE_VAR_BATCH] = 0;
    }
}
/* Without the logarithm. */
static void store_maximum(sx_tile_online *o)
{
    (void)o;
    sx_item *last = &changed_item[changed.item_count - 1];
    ck_assert(last->op == SX_LOP_STORE);
    last->src[0] = SX_TILE_MAXIMUM;
}
static void store_twice(sx_tile_online *o)
{
    (void)o;
    changed_item[changed.item_count] = changed_item[changed.item_count - 1];
    changed.item_count++;
}

static const struct {
    void (*make)(sx_tile_online *);
    const char *said;
} faults[] = {
    {lose_statistic, "are stored"},
    {next_row, "touches bytes"},
    {other_piece, "the map is not of one element alone"},
    {store_maximum, "holds another value"},
    {store_twice, "the map stores 2 times"},
};

START_TEST(test_refused)
{
    sx_rng rng = {sx_test_seed()};
    pieces_setting s;
    pieces_setup(&s, &cases[1], &rng);
    sx_kernel *kernel = pieces_sums_of(&s, 16, 2);
    sx_tile tile = *kernel->part[0].tile;
    sx_tile_online online = *tile.online;
    tile.online = &online;
    kernel->part[0].tile = &tile;
    changed = *online.statistic;
    ck_assert(changed.addr_count <= SX_COUNT(changed_addr));
    ck_assert(changed.item_count < SX_COUNT(changed_item));
    memcpy(changed_addr, changed.addr, changed.addr_count * sizeof(*changed_addr));
    memcpy(changed_item, changed.item, changed.item_count * sizeof(*changed_item));
    changed.addr = changed_addr;
    changed.item = changed_item;
    online.statistic = &changed;
    sx_verdict verdict = verdict_of(&s, kernel);
    ck_assert_msg(verdict.proven, "%s", verdict.text); /* a copy is as good */
    faults[_i].make(&online);
    verdict = verdict_of(&s, kernel);
    ck_assert_msg(!verdict.proven && strstr(verdict.text, faults[_i].said) != NULL, "fault %d: %s",
                  _i, verdict.text);
    sx_ctx_fini(&s.cx);
}
END_TEST

/* ---- what the emitter must not forget ---- */
/* Is it stopped at a fault, or gives it other sums or statistics, in one of two orders? */
static bool is_killed(pieces_setting *s, const sx_kernel *kernel, const sx_ptx_module *module,
                      uint8_t *const want[SX_PIECE_RESULTS], uint8_t *const got[SX_PIECE_RESULTS])
{
    bool killed = false;
    for (uint64_t order = 0; order < 2 && !killed; order++) {
        sx_ctx inner;
        sx_ctx_init(&inner, (size_t)1 << 28);
        for (uint32_t k = 0; k < SX_PIECE_RESULTS; k++) {
            memset(got[k], 0xcc, (size_t)kernel->buffer[s->sums.count + k].size);
        }
        killed = pieces_run(s, &inner, kernel, module, order, order == 0, got) != SX_OK;
        for (uint32_t k = 0; k < SX_PIECE_RESULTS && !killed; k++) {
            size_t size = (size_t)kernel->buffer[s->sums.count + k].size;
            killed = memcmp(got[k], want[k], size) != 0;
        }
        sx_ctx_fini(&inner);
    }
    return killed;
}

/* Statistics are what is computed and stored behind the last product and before the first quotient. The numbers are
 * always the same ones: among some that are drawn nobody misses the last step of a power of two. */
START_TEST(test_nothing_is_left_out)
{
    sx_rng rng = {1};
    pieces_setting s;
    online_case c = cases[0];
    c.batch = 1;
    c.rows = 12; /* of two of the instruction's halves */
    c.d = c.columns = 16;
    pieces_setup(&s, &c, &rng);
    sx_kernel *kernel = pieces_sums_of(&s, 16, 2);
    sx_ptx_module *module = tiles_module(&s.cx, kernel, 80);
    uint8_t *want[SX_PIECE_RESULTS], *got[SX_PIECE_RESULTS];
    pieces_make_room(&s, kernel, want);
    pieces_make_room(&s, kernel, got);
    ck_sx_ok(&s.cx, pieces_run(&s, &s.cx, kernel, module, 0, false, want));
    ck_assert(!is_killed(&s, kernel, module, want, got));
    sx_ptx_kernel *k = &module->kernel[0];
    uint32_t first = 0, stores = 0;
    for (uint32_t i = 0; i < k->insn_count; i++) {
        first = k->insn[i].op == SX_PTX_OP_MMA_BF16_K16 ? i + 1 : first;
    }
    for (uint32_t i = first; i < k->insn_count; i++) {
        sx_ptx_insn whole = k->insn[i];
        bool stored = whole.op == SX_PTX_OP_ST;
        bool guards = whole.op == SX_PTX_OP_SETP && whole.modifier[1] == SX_PTX_TYPE_S32;
        if (!stored && !guards && whole.op != SX_PTX_OP_FMA_F32) {
            continue; /* comparisons for what a function has besides are those of the row before */
        }
        k->insn[i] =
            (sx_ptx_insn){.op = SX_PTX_OP_FENCE, .modifier = {SX_PTX_ORDER_SC, SX_PTX_SCOPE_CTA}};
        bool killed = is_killed(&s, kernel, module, want, got);
        k->insn[i] = whole;
        stores += stored ? 1 : 0;
        sx_buf line;
        sx_buf_init(&line, 4096);
        sx_ptx_print_insn(module, k, &whole, &line);
        ck_assert_msg(killed, "nobody misses instruction %u, %.*s", i, (int)line.len,
                      (const char *)line.ptr);
        sx_buf_fini(&line);
    }
    ck_assert_uint_eq(stores,
                      2 + 2 * 4); /* of both halves: statistics, and two instructions' sums */
    sx_ctx_fini(&s.cx);
}
END_TEST

/* ---- the search ---- */
/* Which keys are cut follows from their number and from the queries that share them, not from batch, heads, device. */
START_TEST(test_chosen)
{
    static const char *const names[] = {"h100", "a100", "rtx4090"};
    static const struct {
        int64_t batch, heads, rows, keys, piece;
    } sides[] = {{1, 1, 1, 1024, 512},   {16, 8, 1, 1024, 512}, {1, 1, 16, 8192, 512},
                 {1, 1, 17, 8192, 0},    {2, 2, 1, 512, 0},     {2, 2, 1, 1152, 576},
                 {300, 2, 1, 1152, 576}, {2, 2, 1, 1025, 0},    {1, 4, 2, 131072, 512},
                 {1, 1, 1, 2112, 704}};
    for (uint32_t k = 0; k < SX_COUNT(sides); k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        online_case c = {.dtype = SX_BF16,
                         .batch = sides[k].batch,
                         .heads = sides[k].heads,
                         .rows = sides[k].rows,
                         .keys = sides[k].keys,
                         .d = 64,
                         .columns = 64};
        online_node o = online_make(&cx, &c);
        sx_attr to = {.present = SX_A(type), .type = o.n.result};
        to.type.dtype = SX_BF16;
        node convert = lift(&cx, SX_OP_CONVERT, &to, &o.n.result, 1);
        node narrow = inlined(&cx, &convert, 0, &o.n);
        for (uint32_t t = 0; t < SX_COUNT(names); t++) {
            const sx_device *device;
            sx_search_result found;
            ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(names[t]), &device));
            const sx_analysis *a = analysis_of(&cx, &narrow);
            ck_assert_int_eq(sx_search_piece(a, device), sides[k].piece);
            ck_assert_int_eq(sx_search_piece(analysis_of(&cx, &o.n), device), 0); /* f32 */
            ck_sx_ok(&cx, sx_search_kernel(&cx, a, device, false, 8, &found));
            ck_assert_double_ge(found.best[0].cost_ns, found.floor_ns);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Few sequences leave most cores without work unless keys are cut: the price says so. */
START_TEST(test_price)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    double cost[2];
    for (uint32_t k = 0; k < 2; k++) { /* one key more is not cut */
        online_case c = {.dtype = SX_BF16,
                         .batch = 1,
                         .heads = 8,
                         .rows = 4,
                         .keys = 8192 + k,
                         .d = 128,
                         .columns = 128};
        online_node o = online_make(&cx, &c);
        sx_attr to = {.present = SX_A(type), .type = o.n.result};
        to.type.dtype = SX_BF16;
        node convert = lift(&cx, SX_OP_CONVERT, &to, &o.n.result, 1);
        node narrow = inlined(&cx, &convert, 0, &o.n);
        const sx_device *device;
        sx_search_result found;
        ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of("h100"), &device));
        ck_sx_ok(&cx, sx_search_kernel(&cx, analysis_of(&cx, &narrow), device, false, 8, &found));
        cost[k] = found.best[0].cost_ns;
    }
    ck_assert_msg(cost[0] < cost[1] / 3, "%g ns in pieces, %g without", cost[0], cost[1]);
    sx_ctx_fini(&cx);
}
END_TEST

/* No assembler spills. */
START_TEST(test_assembles)
{
    static const int64_t heads[] = {64, 128};
    static const char *const names[] = {"sm_80", "sm_86", "sm_89", "sm_90"};
    sx_rng rng = {sx_test_seed()};
    online_case c = {.dtype = _i == 0 ? SX_BF16 : SX_F16,
                     .batch = 1,
                     .heads = 8,
                     .grouped = true,
                     .rows = 4,
                     .keys = 1024,
                     .d = heads[_i],
                     .columns = heads[_i],
                     .mask = true};
    pieces_setting s;
    pieces_setup(&s, &c, &rng);
    for (uint32_t t = 0; t < SX_COUNT(names); t++) {
        const sx_target *target = sx_target_find(NULL, names[t]);
        sx_kernel *kernel;
        sx_buf text;
        sxa_result result;
        sxa_options options = {.with = SXA_PTXAS};
        sx_code code = pieces_lower(&s, target, 16, 2, &kernel);
        ck_assert_msg(code == SX_OK, "%s", s.cx.error.text);
        sx_buf_init(&text, (size_t)16 << 20);
        sx_ptx_print(tiles_module(&s.cx, kernel, target->machine->level), &text);
        code = sxa_assemble(&s.cx, sx_buf_span(&text), names[t], &options, &result);
        ck_assert_msg(code == SX_OK, "%s", s.cx.error.text);
        const sx_cubin_kernel *k = &result.record->kernel[0];
        ck_assert_uint_eq(k->spill_count + k->stack_bytes, 0);
        sx_buf_fini(&text);
    }
    sx_ctx_fini(&s.cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pieces");
    TCase *tcase = tcase_create("pieces");
    tcase_set_timeout(tcase, 60); /* assembling on a busy machine */
    tcase_add_loop_test(tcase, test_definition, 0, (int)SX_COUNT(cases));
    tcase_add_test(tcase, test_same_bits);
    tcase_add_loop_test(tcase, test_refused, 0, (int)SX_COUNT(faults));
    tcase_add_test(tcase, test_nothing_is_left_out);
    tcase_add_test(tcase, test_chosen);
    tcase_add_test(tcase, test_price);
    tcase_add_loop_test(tcase, test_assembles, 0, 2);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
