/* The digest an e-graph is stored under tells every rule that was left out, however many are named. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/core.h"
#include "core/store/snapshot.h"

#define NAMES 120000u /* more than a megabyte of them */

static sx_ctx cx;

/* The digest after so many names of one rule and then this one. */
static sx_key digest(uint32_t count, const char *last)
{
    static const char program[] = "sx 1\ngraph \"g\" {\n"
                                  "  %x = parameter {name = \"x\", weight = 0} : f32[8]\n"
                                  "  %y = tanh(%x) : f32[8]\n  return %y as \"y\"\n}\n";
    sx_buf names, snapshot;
    sx_key key;
    sx_ctx_init(&cx, (size_t)1 << 28);
    sx_buf_init(&names, (size_t)1 << 22);
    sx_buf_init(&snapshot, (size_t)1 << 24);
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_put_text(&names, "relu-relu,");
    }
    sx_buf_put_text(&names, last);
    sx_core_request request = {.ir = sx_span_of(program),
                               .target = SX_SPAN_LITERAL("x86-64-v3"),
                               .disabled_rules = sx_buf_span(&names)};
    ck_sx_ok(&cx, sx_core_egraph(&cx, &request, &snapshot));
    ck_sx_ok(&cx, sx_snapshot_rules(&cx, sx_buf_span(&snapshot), &key));
    sx_buf_fini(&names);
    sx_buf_fini(&snapshot);
    sx_ctx_fini(&cx);
    return key;
}

START_TEST(test_long_lists)
{
    sx_key first = digest(NAMES, "add-commute");
    sx_key second = digest(NAMES, "relu-of-abs");
    sx_key again = digest(NAMES, "add-commute");
    ck_assert(!sx_key_equal(&first, &second));
    ck_assert(sx_key_equal(&first, &again));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.rules_digest");
    TCase *cases = tcase_create("rules_digest");
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_long_lists);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
