/* Code generation refuses in the words of the program that came, all nodes at once. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/pipeline.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Two maps apart by a look-up, so that they are two kernels. */
static const char program[] =
    "sx 1\ngraph \"ids\" {\n"
    "%ids = parameter {name = \"ids\", weight = 0} : i64[4]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[100, 8]\n"
    "%twice = add(%ids, %ids) : i64[4] from \"/emb/Add\" \"Add\" 17\n"
    "%ratio = power(%twice, %ids) : i64[4] from \"/emb/Pow\" \"Pow\" 17\n"
    "%e = gather(%w, %ratio) {axis = 0} : f32[4, 8] from \"/emb/Gather\" \"Gather\" 17\n"
    "%s = sine(%e) : f32[4, 8]\n"
    "return %s as \"s\", %twice as \"t\"\n}\n";

/* There is no kernel that looks up by indices of 8 bits. */
static const char short_indices[] =
    "sx 1\ngraph \"ids\" {\n"
    "%ids = parameter {name = \"ids\", weight = 0} : i8[4]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[100, 8]\n"
    "%twice = add(%ids, %ids) : i8[4] from \"/emb/Add\" \"Add\" 17\n"
    "%e = gather(%w, %twice) {axis = 0} : f32[4, 8] from \"/emb/Gather\" \"Gather\" 17\n"
    "return %e as \"e\"\n}\n";

static sx_code compile(const char *text)
{
    sx_core_request request = {.ir = sx_span_of(text), .target = sx_span_of("x86-64-v3")};
    sx_image image;
    sx_image_init(&image);
    sx_code code = sx_core_compile(&cx, &request, &image);
    sx_image_fini(&image);
    return code;
}

START_TEST(test_names_of_the_user)
{
    ck_assert_int_eq((int)compile(short_indices), (int)SX_UNIMPLEMENTED);
    ck_assert_msg(strstr(cx.error.text, "/emb/Gather") != NULL, "text is '%s'", cx.error.text);
    ck_assert_msg(strstr(cx.error.text, "opset 17") != NULL, "text is '%s'", cx.error.text);
    ck_assert_msg(strstr(cx.error.text, "kernel ") == NULL, "text is '%s'", cx.error.text);
}
END_TEST

/* A program of several ranks has code; level 1 alone proves nothing of it. Of one rank it is as any other. */
#define RANKS(n)                                                                                \
    "sx 1 graph \"g\" mesh (tp = " n ") { %x = parameter {name = \"x\", weight = 0} : f32[64] " \
    "%e = exponential(%x) : f32[64] %sum = all_reduce(%e) {reducer = add, along = \"tp\", "     \
    "ranks = " n "} : f32[64] %y = negate(%sum) : f32[64] return %y as \"y\" }"

START_TEST(test_ranks)
{
    const sx_core_request request = {.ir = sx_span_of(RANKS("4")),
                                     .target = sx_span_of("x86-64-v3")};
    sx_image image;
    sx_image_init(&image);
    ck_sx_ok(&cx, compile(RANKS("4")));
    ck_sx_fails(&cx, sx_core_optimize(&cx, &request, &image), SX_UNIMPLEMENTED,
                "(all_reduce): 4 ranks take part: certificates and searches are of programs");
    sx_image_fini(&image);
    ck_sx_ok(&cx, compile(RANKS("1")));
}
END_TEST

/* What the stages say of nodes of the optimised program is said of the user's. */
START_TEST(test_refuse_a_node)
{
    sx_graph *graph, *canonical;
    sx_origins *origins;
    ck_sx_ok(&cx, sx_graph_parse_named(&cx, sx_span_of(program), &graph));
    ck_sx_ok(&cx, sx_graph_canon_origins(&cx, graph, &canonical, &origins));
    sx_pipe pipe = {
        .graph = canonical, .program = canonical, .better = canonical, .origins = origins};
    uint32_t noted = 0;
    for (uint32_t i = 0; i < canonical->node_count; i++) {
        if (canonical->node[i].input_count > 0) {
            (void)SX_FAIL(&cx, SX_UNIMPLEMENTED, "kernel map_%u: no vector form", i);
            ck_sx_ok(&cx, sx_pipe_refuse(&cx, &pipe, (sx_node_id){i}, SX_UNIMPLEMENTED));
            noted++;
        }
    }
    ck_assert_uint_eq(noted, 4);
    ck_sx_fails(&cx, sx_refusals_end(&cx, &pipe.refusals), SX_UNIMPLEMENTED, "4 nodes");
    ck_assert_uint_eq(pipe.refusals.count, 4);
    static const char *const names[] = {"/emb/Add", "/emb/Pow", "/emb/Gather", "%s"};
    for (uint32_t k = 0; k < SX_COUNT(names); k++) {
        bool there = false;
        for (uint32_t i = 0; i < pipe.refusals.count; i++) {
            there = there || sx_span_is(pipe.refusals.refusal[i].origin.name, names[k]);
        }
        ck_assert_msg(there, "%s is missing", names[k]);
        ck_assert(sx_span_is(pipe.refusals.refusal[k].reason, "no vector form"));
    }
    uint32_t last = canonical->node_count - 1;
    (void)SX_FAIL(&cx, SX_COMPILE, "kernel map_%u: none of 3 candidates is usable", last);
    ck_sx_fails(&cx, sx_pipe_refuse(&cx, &pipe, (sx_node_id){last}, SX_COMPILE), SX_COMPILE,
                "node '%s' (sine): none of 3");
    (void)SX_FAIL(&cx, SX_QUOTA, "out of fuel");
    ck_assert_int_eq((int)sx_pipe_refuse(&cx, &pipe, (sx_node_id){last}, SX_QUOTA), (int)SX_QUOTA);
    ck_assert_str_eq(cx.error.text, "out of fuel");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refuse");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, test_names_of_the_user);
    tcase_add_test(all, test_ranks);
    tcase_add_test(all, test_refuse_a_node);
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
