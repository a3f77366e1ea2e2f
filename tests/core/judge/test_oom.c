/* The judge at every shortage of memory: it answers that memory is short, or it proves; never is a shortage taken
 * for a verdict. */
#include "tests/core/judge/try.h"

#include "core/search/search.h"
#include "tests/lib/unit.h"

#define SWEEP 400u

static sx_code judge_in(size_t bytes, const node *n, const sx_judge_facts *facts,
                        const sx_kernel *kernel, size_t *used, bool *proven)
{
    sx_ctx cx;
    sx_judge *judge;
    sx_verdict verdict = {.proven = false};
    sx_ctx_init(&cx, bytes);
    sx_code code = sx_judge_make(&cx, &judge);
    code = code == SX_OK
               ? sx_judge_kernel(judge, &n->fused, n->input, n->count, facts, kernel, &verdict)
               : code;
    *used = cx.arena.used_bytes;
    *proven = verdict.proven;
    ck_assert_int_eq(code, cx.error.code);
    sx_ctx_fini(&cx);
    return code;
}

static node node_of(sx_ctx *cx, int which)
{
    const int64_t extent[5] = {2, 11, 77, 9, 5};
    switch (which) {
    case 0: return map_node(cx, 3, 5, 21);
    case 1: return dot_node(cx, 9, 20, 37, SX_OP_GELU);
    case 2: return row_node(cx, SX_OP_LAYER_NORM, 5, 90, 1);
    default: return attention_node(cx, true, extent);
    }
}

START_TEST(test_sweep)
{
    sx_ctx cx;
    const sx_device *device;
    sx_search_result result;
    sx_kernel *kernel;
    size_t enough, used;
    bool proven;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = node_of(&cx, _i);
    const sx_analysis *a = analysis_of(&cx, &n);
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of("x86-64-v3"), &device));
    ck_sx_ok(&cx, sx_search_kernel(&cx, a, device, true, 1, &result));
    const sx_schedule *schedule = &result.best[0].schedule;
    sx_judge_facts facts = sx_judge_facts_of(schedule, a->kind);
    ck_sx_ok(&cx, sx_lower_fused(&cx, sx_test_unit(schedule), "oom", a, schedule, &kernel));
    ck_assert_int_eq(judge_in(SX_ARENA_DEFAULT, &n, &facts, kernel, &enough, &proven), SX_OK);
    ck_assert(proven);
    uint32_t short_of = 0;
    for (uint32_t k = 0; k <= SWEEP; k++) {
        sx_code code = judge_in(enough / SWEEP * k, &n, &facts, kernel, &used, &proven);
        ck_assert_msg(code == SX_NOMEM || (code == SX_OK && proven), "%zu bytes: %s, %s",
                      enough / SWEEP * k, sx_code_name(code), proven ? "proven" : "not proven");
        short_of += code == SX_NOMEM ? 1 : 0;
    }
    ck_assert_uint_gt(short_of, SWEEP / 2);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge/oom");
    TCase *cases = tcase_create("oom");
    tcase_add_loop_test(cases, test_sweep, 0, 4);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
