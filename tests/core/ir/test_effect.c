/* State, donated parameters and the outputs that go into them: in the text, the canonical form, the key and binding. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/ir/effect.h"

#define STATE "%s = parameter {name = \"s\", weight = 0} : i32[n, 2] "
#define PROGRAM(role, result)                                                  \
    "sx 1 graph \"\" (n in [2, 3]) { " STATE role                              \
    " %x = parameter {name = \"x\", weight = 0} : i32[n, 2] %y = add(%x, %s) " \
    ": i32[n, 2] %z = convert(%y) : f32[n, 2] return " result " }"
#define INTO "%y as \"y\" into \"s\""

static const struct {
    const char *text;
    const char *error; /* NULL: read */
} cases[] = {
    {PROGRAM("state = 7", INTO), NULL},
    {PROGRAM("state = 0", INTO ", %z as \"z\""), NULL},
    {PROGRAM("donated", INTO), NULL},
    {PROGRAM("state = -1", "%y as \"y\""), NULL},
    {PROGRAM("state", INTO), "state \"s\" has no initial value: state = 0 fills it"},
    {PROGRAM("state = ", INTO), "expected"},
    {PROGRAM("state = [1, 2]", INTO), "2 elements do not fill the shape; one number fills any"},
    {PROGRAM("state = 0.5", INTO), "expected"},
    {PROGRAM("", INTO), "output \"y\" goes into \"s\", which is neither state nor donated"},
    {PROGRAM("donated", "%y as \"y\" into \"x\""),
     "output \"y\" goes into \"x\", which is neither state nor donated"},
    {PROGRAM("donated", "%y as \"y\" into \"t\""),
     "output \"y\" goes into \"t\", and no parameter has that name"},
    {PROGRAM("state = 0", "%z as \"y\" into \"s\""),
     "output \"y\" goes into \"s\": it is f32[n, 2], that is i32[n, 2]"},
    {PROGRAM("state = 0", INTO ", %x as \"z\" into \"s\""),
     "outputs \"y\" and \"z\" both go into state \"s\""},
    {PROGRAM("donated", INTO ", %x as \"z\" into \"s\""),
     "outputs \"y\" and \"z\" both go into the donated \"s\""},
    {PROGRAM("donated = 0", INTO), "expected return, found '='"},
    {"sx 1 graph \"\" { %w = parameter {name = \"w\", weight = 1} : f32[2] state = 0 return %w as "
     "\"y\" }",
     "parameter \"w\" is a weight, and cannot be state"},
    {"sx 1 graph \"\" { %w = parameter {name = \"w\", weight = 1} : f32[2] donated return %w as "
     "\"y\" }",
     "parameter \"w\" is a weight, and cannot be donated"},
    {"sx 1 graph \"\" { %w = iota {axis = 0} : f32[2] state = 0 return %w as \"y\" }",
     "what is no parameter cannot be state"},
};

START_TEST(test_text)
{
    for (size_t i = 0; i < SX_COUNT(cases); i++) {
        sx_ctx cx;
        sx_graph *graph, *again;
        sx_buf text, twice;
        sx_ctx_init(&cx, 16 << 20);
        sx_buf_init(&text, 1 << 20);
        sx_buf_init(&twice, 1 << 20);
        sx_code code = sx_graph_parse(&cx, sx_span_of(cases[i].text), &graph);
        if (cases[i].error == NULL) {
            ck_assert_msg(code == SX_OK, "%s: %s", cases[i].text, cx.error.text);
            ck_sx_ok(&cx, sx_graph_print(&cx, graph, &text));
            ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &again));
            ck_sx_ok(&cx, sx_graph_print(&cx, again, &twice));
            ck_assert(sx_span_equal(sx_buf_span(&text), sx_buf_span(&twice)));
            ck_assert_uint_eq(again->effects->kept_count, 1);
        } else {
            ck_assert_msg(code != SX_OK, "%s is read", cases[i].text);
            ck_assert_msg(strncmp(cx.error.text, "line 1:", 7) == 0 &&
                              strstr(cx.error.text, cases[i].error) != NULL,
                          "%s: %s", cases[i].text, cx.error.text);
        }
        sx_buf_fini(&text);
        sx_buf_fini(&twice);
        sx_ctx_fini(&cx);
    }
}
END_TEST

static sx_key key_of(sx_ctx *cx, const char *text)
{
    sx_graph *graph;
    sx_key key;
    ck_sx_ok(cx, sx_graph_parse(cx, sx_span_of(text), &graph));
    ck_sx_ok(cx, sx_graph_key(cx, graph, &key));
    return key;
}

/* The role, the first value and where outputs go are part of the key; how a value is written is not. */
START_TEST(test_key)
{
    static const char *const other[] = {
        PROGRAM("", "%y as \"y\""), PROGRAM("donated", "%y as \"y\""),
        PROGRAM("donated", INTO),   PROGRAM("state = 0", "%y as \"y\""),
        PROGRAM("state = 0", INTO), PROGRAM("state = 1", INTO),
    };
    sx_ctx cx;
    sx_ctx_init(&cx, 64 << 20);
    for (size_t i = 0; i < SX_COUNT(other); i++) {
        for (size_t k = 0; k < i; k++) {
            sx_key a = key_of(&cx, other[i]), b = key_of(&cx, other[k]);
            ck_assert_msg(!sx_key_equal(&a, &b), "%s\n%s", other[i], other[k]);
        }
    }
#define FIXED(data)                                                                     \
    "sx 1 graph \"\" { %s = parameter {name = \"s\", weight = 0} : i8[4] state = " data \
    " return %s as \"y\" }"
    sx_key list = key_of(&cx, FIXED("[3, 3, 3, 3]")), one = key_of(&cx, FIXED("3"));
    sx_key hex = key_of(&cx, FIXED("\"03030303\"")), apart = key_of(&cx, FIXED("[3, 3, 3, 4]"));
    ck_assert(sx_key_equal(&list, &one) && sx_key_equal(&hex, &one) && !sx_key_equal(&apart, &one));
    sx_ctx_fini(&cx);
}
END_TEST

/* Binding and the canonical form keep effects, the latter under other numbers; an optimised program gets them back. */
START_TEST(test_passes)
{
    sx_ctx cx;
    sx_graph *graph, *canonical, *bound, *alone;
    sx_binding binding = {SX_SPAN_LITERAL("n"), 3};
    static const char text[] =
        "sx 1 graph \"g\" (n in [2, 3]) { %d = iota {axis = 0} : i32[n] "
        "%a = parameter {name = \"a\", weight = 0} : i32[n] %e = add(%d, %a) : i32[n] "
        "%b = parameter {name = \"b\", weight = 0} : i32[n] state = 5 "
        "return %a as \"p\" , %e as \"q\" into \"b\" }";
    sx_ctx_init(&cx, 16 << 20);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    ck_assert_uint_eq(sx_graph_into(graph, 1), 3);
    ck_assert_uint_eq(sx_graph_into(graph, 0), SX_NOWHERE);
    ck_assert_uint_eq(sx_graph_version(graph, 3), 1);
    ck_assert_uint_eq(sx_graph_version(graph, 1), SX_NOWHERE);
    ck_sx_ok(&cx, sx_graph_canon(&cx, graph, &canonical));
    ck_assert_uint_eq(sx_graph_into(canonical, 1), 1); /* parameters come first */
    ck_assert_int_eq(sx_graph_role(canonical, 1), SX_KEEP_STATE);
    ck_sx_ok(&cx, sx_graph_bind(&cx, canonical, &binding, 1, &bound));
    ck_assert_uint_eq(sx_graph_into(bound, 1), 1);
    ck_assert_uint_eq(sx_graph_kept(bound, 1)->initial.len, 4);
    ck_sx_ok(&cx, sx_graph_check(&cx, bound));
    sx_graph plain = *canonical;
    plain.effects = NULL;
    ck_sx_ok(&cx, sx_graph_canon(&cx, &plain, &alone));
    ck_assert_ptr_null(alone->effects);
    ck_sx_ok(&cx, sx_effects_restore(&cx, graph, alone));
    ck_assert_uint_eq(sx_graph_into(alone, 1), 1);
    ck_assert_int_eq(sx_graph_role(alone, 0), SX_KEEP_PLAIN);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.ir.effect");
    TCase *cases_ = tcase_create("effect");
    tcase_add_test(cases_, test_text);
    tcase_add_test(cases_, test_key);
    tcase_add_test(cases_, test_passes);
    suite_add_tcase(suite, cases_);
    return sx_test_main(suite);
}
