/* The reader of the egraph-serialize format: what it makes of good text, what it says to bad text, no crash on any. */
#include <math.h>
#include <string.h>

#include "client/cli/egraph/egraph_json.h"
#include "core/base/rng.h"
#include "tests/lib/test.h"

static sx_ctx cx;
static sxc_egraph g;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const char good[] =
    "{ \"comment\": [1, {\"a\": [true, null, -1.5e+3]}, \"\\u00e9\"],\n"
    " \"nodes\": {\n"
    "  \"f\": {\"op\": \"f\", \"children\": [\"a\", \"a2\", \"a\"], \"eclass\": \"F\", \"cost\": "
    "2.5},\n"
    "  \"a\": {\"op\": \"a\", \"eclass\": \"A\", \"cost\": 1e-3, \"subsumed\": false},\n"
    "  \"a2\": {\"op\": \"a2\", \"children\": [], \"eclass\": \"A\", \"subsumed\": true, \"x\": "
    "{}},\n"
    "  \"q\\\"\\u20ac\\ud83d\\ude00\": {\"op\": \"\", \"eclass\": \"F\"}\n"
    " }, \"root_eclasses\": [\"F\", \"F\"], \"class_data\": {}}\n";

START_TEST(test_good)
{
    ck_sx_ok(&cx, sxc_egraph_parse(&cx, sx_span_of(good), &g));
    const sx_xt *p = &g.problem;
    ck_assert_uint_eq(p->class_count, 2);
    ck_assert_uint_eq(p->node_count, 4);
    ck_assert_uint_eq(p->root_count, 1);
    ck_assert(sx_span_is(g.class_name[0], "F") && sx_span_is(g.class_name[1], "A"));
    ck_assert(sx_span_is(g.node_name[0], "f") && sx_span_is(g.node_name[2], "a"));
    ck_assert(sx_span_is(g.node_name[1], "q\"\xe2\x82\xac\xf0\x9f\x98\x80"));
    ck_assert_uint_eq(p->node_first[1], 2);
    ck_assert_uint_eq(p->edge_first[1], 3);
    for (uint32_t e = 0; e < 3; e++) {
        ck_assert_uint_eq(p->child[e], 1);
    }
    ck_assert_double_eq(p->cost[0], 2.5);
    ck_assert_double_eq(p->cost[1], 1); /* the default */
    ck_assert_double_eq(p->cost[2], 1e-3);
    ck_assert(isinf(p->cost[3]));
}
END_TEST

#define NODE(fields) "{\"nodes\": {\"a\": {" fields "}}, \"root_eclasses\": [\"A\"]}"
static const struct {
    const char *text;
    sx_code code;
    const char *part;
} bad[] = {
    {"", SX_INPUT, "byte 0: an object expected"},
    {"[]", SX_INPUT, "byte 0: an object expected"},
    {"{}", SX_INPUT, "no \"nodes\""},
    {"{\"nodes\": {}}", SX_INPUT, "no \"root_eclasses\""},
    {"{\"nodes\": {}, \"root_eclasses\": []}", SX_INPUT, "no root class"},
    {"{\"nodes\": {}, \"root_eclasses\": [\"x\"]}", SX_INPUT, "root 'x' is no class"},
    {"{\"nodes\": {}, \"nodes\": {}}", SX_INPUT, "a second time"},
    {"{\"nodes\": {}, \"root_eclasses\": []} x", SX_INPUT, "bytes after the end"},
    {"{\"nodes\": {} \"root_eclasses\": []}", SX_INPUT, "a comma or a closing bracket"},
    {"{\"a\": [1, 2}", SX_INPUT, "a comma or a closing bracket"},
    {"{\"a\": tru", SX_INPUT, "a value expected"},
    {"{\"a\": 01}", SX_INPUT, "a number expected"},
    {"{\"a\": 1.}", SX_INPUT, "a number expected"},
    {"{\"a\": \"\\q\"}", SX_INPUT, "an escape"},
    {"{\"a\": \"\\ud800\"}", SX_INPUT, "an escape"},
    {"{\"a\": \"\\", SX_INPUT, "a string without end"},
    {"{\"a\": \"\n\"}", SX_INPUT, "a control character"},
    {NODE("\"op\": \"x\""), SX_INPUT, "node 'a': no eclass"},
    {NODE("\"eclass\": \"A\", \"cost\": -0.5"), SX_INPUT, "node 'a': cost -0.5"},
    {NODE("\"eclass\": \"A\", \"cost\": 1e999"), SX_INPUT, "node 'a': cost inf"},
    {NODE("\"eclass\": \"A\", \"cost\": NaN"), SX_INPUT, "a number expected"},
    {NODE("\"eclass\": \"A\", \"cost\": null"), SX_INPUT, "a number expected"},
    {NODE("\"eclass\": \"A\", \"children\": [\"b\"]"), SX_INPUT, "child 'b' is no node"},
    {NODE("\"eclass\": \"A\", \"children\": [1]"), SX_INPUT, "a string expected"},
    {NODE("\"eclass\": \"A\"}, \"a\": {\"eclass\": \"B\""), SX_INPUT, "node 'a' is there twice"},
};

START_TEST(test_bad)
{
    ck_sx_fails(&cx, sxc_egraph_parse(&cx, sx_span_of(bad[_i].text), &g), bad[_i].code,
                bad[_i].part);
}
END_TEST

START_TEST(test_too_deep)
{
    sx_buf text;
    sx_buf_init(&text, 1000000);
    sx_buf_put_text(&text, "{\"a\": ");
    for (uint32_t i = 0; i < 100000; i++) {
        sx_buf_put_u8(&text, '[');
    }
    ck_sx_fails(&cx, sxc_egraph_parse(&cx, sx_buf_span(&text), &g), SX_LIMIT, "deeper than 64");
    sx_buf_clear(&text);
    sx_buf_put_text(&text, "{\"a\": 1");
    for (uint32_t i = 0; i < 1000; i++) {
        sx_buf_put_u8(&text, '0');
    }
    ck_sx_fails(&cx, sxc_egraph_parse(&cx, sx_buf_span(&text), &g), SX_LIMIT, "1001 characters");
    sx_buf_fini(&text);
}
END_TEST

/* Every prefix, and bytes changed at random: an answer or an error, and what is accepted passes the check of a
 * problem. */
START_TEST(test_broken_text)
{
    sx_rng rng = {sx_test_seed()};
    uint8_t text[sizeof(good)];
    uint32_t accepted = 0;
    for (uint32_t trial = 0; trial < 20000; trial++) {
        size_t len = trial < sizeof(good) ? trial : sizeof(good) - 1;
        memcpy(text, good, sizeof(good));
        for (uint32_t k = 0; trial >= sizeof(good) && k <= trial % 4; k++) {
            static const char bytes[] = "{}[]\",:\\0-e.aAf ";
            text[sx_rng_below(&rng, len)] = sx_rng_below(&rng, 4) == 0
                                                ? (uint8_t)sx_rng_below(&rng, 256)
                                                : (uint8_t)bytes[sx_rng_below(&rng, 16)];
        }
        sx_ctx_fini(&cx);
        sx_ctx_init(&cx, (size_t)1 << 26);
        if (sxc_egraph_parse(&cx, (sx_span){text, len}, &g) == SX_OK) {
            ck_sx_ok(&cx, sx_xt_check(&cx, &g.problem));
            accepted++;
        }
    }
    ck_assert_uint_ge(accepted, 100);
    ck_assert_uint_le(accepted, 19000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client.cli.egraph_json");
    TCase *cases = tcase_create("egraph_json");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_good);
    tcase_add_loop_test(cases, test_bad, 0, (int)SX_COUNT(bad));
    tcase_add_test(cases, test_too_deep);
    tcase_add_test(cases, test_broken_text);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
