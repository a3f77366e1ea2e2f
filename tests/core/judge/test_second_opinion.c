/* isl on the facts that the judge has abstracted: the store records of proven kernels as statements that write
 * one array, all of their dimensions run by unsynchronised threads. isl finds no element written twice; with a
 * record moved onto its neighbour it does. */
#include "tests/core/judge/try.h"

#include "core/judge/prove.h"
#include "core/poly/poly.h"
#include "core/search/search.h"
#include "tests/core/judge/tiles.h"
#include "tests/lib/unit.h"

/* Records as statements; false: one of more dimensions than a statement has. */
static bool program_of(const sx_judge *j, sx_poly_program *p)
{
    memset(p, 0, sizeof(*p));
    p->order_dims = p->schedule_dims = 1 + SX_RANK_MAX;
    p->parallel = (1u << p->schedule_dims) - 1;
    for (uint32_t i = 0; i < j->live.count; i++) {
        const sx_record *r = &j->live.record[i];
        sx_lin lin;
        if (r->dims > SX_RANK_MAX || i >= SX_POLY_STATEMENTS_MAX) {
            return false;
        }
        sx_lin_get(&j->algebra, r->address, &lin);
        sx_poly_statement *s = &p->statement[p->statement_count++];
        (void)snprintf(s->name, sizeof(s->name), "S%u", i);
        s->rank = r->dims;
        s->access_count = 1;
        s->access[0] = (sx_poly_access){.write = true};
        s->access[0].index.constant = lin.constant / r->width;
        s->order[0].constant = s->schedule[0].constant = i;
        for (uint32_t d = 0; d < r->dims; d++) {
            s->extent[d] = r->count[d];
            s->access[0].index.coef[d] = lin.coef[SX_VAR_STORE + d] / r->width;
            s->order[1 + d].coef[d] = s->schedule[1 + d].coef[d] = 1;
        }
    }
    return true;
}

static bool written_once(sx_ctx *cx, const sx_poly_program *p)
{
    sx_poly_verdict verdict;
    ck_sx_ok(cx, sx_poly_legal(cx, p, &verdict));
    return verdict.legal;
}

START_TEST(test_agrees)
{
    static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
    static sx_poly_program program;
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    uint32_t asked = 0;
    for (uint32_t round = 0; round < 12; round++) {
        sx_ctx cx;
        sx_judge *judge;
        const sx_device *device;
        sx_search_result result;
        sx_kernel *kernel;
        sx_verdict verdict;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
        int64_t a = 2 + (int64_t)sx_rng_below(&rng, 12);
        int64_t b = 2 + (int64_t)sx_rng_below(&rng, 20);
        int64_t c = 2 + (int64_t)sx_rng_below(&rng, 60);
        node n = round % 3 == 0   ? map_node(&cx, a, b, c)
                 : round % 3 == 1 ? dot_node(&cx, a, b, c, SX_OP_RELU)
                                  : row_node(&cx, SX_OP_SOFTMAX, a, c, (int64_t)round / 3 % 2);
        const sx_analysis *analysis = analysis_of(&cx, &n);
        ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(targets[round % 2]), &device));
        ck_sx_ok(&cx, sx_search_kernel(&cx, analysis, device, true, 1, &result));
        const sx_schedule *schedule = &result.best[0].schedule;
        sx_judge_facts facts = sx_judge_facts_of(schedule, analysis->kind);
        ck_sx_ok(&cx,
                 sx_lower_fused(&cx, sx_test_unit(schedule), "node", analysis, schedule, &kernel));
        ck_sx_ok(&cx, sx_judge_kernel(judge, &n.fused, n.input, n.count, &facts, kernel, &verdict));
        ck_assert(verdict.proven);
        if (program_of(judge, &program)) {
            asked++;
            ck_assert_msg(written_once(&cx, &program), "round %u", round);
            uint32_t last = program.statement_count;
            if (last <
                SX_POLY_STATEMENTS_MAX) { /* planted: the last record once more, one element on */
                program.statement[last] = program.statement[last - 1];
                program.statement[last].access[0].index.constant++;
                program.statement[last].order[0].constant = last;
                program.statement[last].schedule[0].constant = last;
                program.statement_count++;
                ck_assert_msg(!written_once(&cx, &program), "round %u: planted", round);
            }
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(asked, 6);
}
END_TEST

/* The elements of programs of blocks: each point of rows, columns and batches stores a place of its own. */
START_TEST(test_blocks)
{
    static const tile_case c[] = {
        {"f32", SX_F32, 3, 33, 17, 5, .epilogue = true, .depth = 2},
        {"bf16", SX_BF16, 2, 40, 9, 16, .matrix = true, .depth = 3},
    };
    static sx_poly_program program;
    sx_ctx cx;
    sx_judge *judge;
    sx_verdict verdict;
    sx_judge_facts facts = {0};
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    node n = tile_node(&cx, &c[_i]);
    sx_kernel *kernel = tile_kernel(&cx, &c[_i], &n);
    ck_sx_ok(&cx, sx_judge_kernel(judge, &n.fused, n.input, n.count, &facts, kernel, &verdict));
    ck_assert(verdict.proven && program_of(judge, &program));
    ck_assert(written_once(&cx, &program));
    for (uint32_t d = 0; d < program.statement[0].rank;
         d++) { /* rows or columns an element closer */
        sx_poly_program planted = program;
        planted.statement[0].access[0].index.coef[d]--;
        ck_assert_msg(!written_once(&cx, &planted), "dimension %u", d);
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge/second_opinion");
    TCase *cases = tcase_create("second_opinion");
    tcase_add_loop_test(cases, test_agrees, 0, 2);
    tcase_add_loop_test(cases, test_blocks, 0, 2);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
