#include "tests/lib/sweep.h"

#include "tests/lib/test.h"

#define LIMIT_MAX ((size_t)1 << 30)

/* One run: was the memory enough? If not, *enough is what the allocation that failed would have needed. */
static bool run_once(const sx_test_sweep *sweep, size_t limit, size_t *enough)
{
    sx_ctx cx;
    sx_ctx_init(&cx, limit);
    sx_code code = sweep->work(&cx, sweep->self);
    ck_assert_msg(code == SX_OK || code == SX_NOMEM, "%s at %zu bytes: %s (%s)", sweep->name, limit,
                  sx_code_name(code), cx.error.text);
    ck_assert_msg(code == cx.error.code, "%s at %zu bytes: %s returned, %s recorded", sweep->name,
                  limit, sx_code_name(code), sx_code_name(cx.error.code));
    ck_assert_msg(cx.arena.used_bytes <= limit && cx.arena.limit_bytes == limit,
                  "%s at %zu bytes: %zu in use, limit %zu left behind", sweep->name, limit,
                  cx.arena.used_bytes, cx.arena.limit_bytes);
    *enough = cx.arena.used_bytes + cx.arena.refused_bytes;
    if (code == SX_NOMEM) {
        sx_ctx_reset_error(&cx);
        cx.arena.limit_bytes = LIMIT_MAX;
        sx_test_work after = sweep->after != NULL ? sweep->after : sweep->work;
        code = after(&cx, sweep->self);
        ck_assert_msg(code == SX_OK, "%s after %zu bytes: %s (%s)", sweep->name, limit,
                      sx_code_name(code), cx.error.text);
        code = SX_NOMEM;
    }
    sx_ctx_fini(&cx);
    return code == SX_OK;
}

uint32_t sx_test_oom(const sx_test_sweep *sweep)
{
    uint32_t fails_min = sweep->fails_min > 0 ? sweep->fails_min : 4;
    uint32_t fails = 0;
    size_t enough;
    for (size_t limit = sweep->from; !run_once(sweep, limit, &enough); fails++) {
        size_t least = limit + 16 + (size_t)((double)limit * sweep->part);
        limit = enough > least ? enough : least;
        ck_assert_msg(limit < LIMIT_MAX, "%s: %zu bytes are not enough", sweep->name, limit);
    }
    ck_assert_msg(fails >= fails_min, "%s: %u runs failed, %u wanted", sweep->name, fails,
                  fails_min);
    return fails;
}
