#include "tests/lib/sweep.h"
#include "tests/lib/test.h"

#include <string.h>

#include "core/ir/ir.h"

static void print_of(sx_ctx *cx, const char *source, sx_buf *text)
{
    sx_graph *graph;
    sx_code code = sx_graph_parse(cx, sx_span_of(source), &graph);
    ck_assert_msg(code == SX_OK, "%s:\n%s", cx->error.text, source);
    sx_buf_init(text, 1 << 20);
    ck_sx_ok(cx, sx_graph_print(cx, graph, text));
}

/* ---- what a person may write, and what it is ---- */

START_TEST(test_hand_written)
{
    static const struct {
        const char *source;
        const char *printed;
    } cases[] = {
        {"// a comment first\nsx 1 graph \"\" { %x=constant{data=1}:f32[] return %x as\"y\" } // "
         "end",
         "sx 1\ngraph \"\" {\n    %0 = constant {data = 1} : f32[]\n    return %0 as \"y\"\n}\n"},
        {"sx 1\r\ngraph \"g\"()\t{\r\n%a.b_9 = constant() {data = 0x3f800000} : f32[]\nreturn "
         "%a.b_9 "
         "as \"y\"}",
         "sx 1\ngraph \"g\" {\n    %0 = constant {data = 1} : f32[]\n    return %0 as \"y\"\n}\n"},
        {"sx 1 graph \"g\" (b in [1, 2]) {%x = parameter {weight = 0, name = \"\xc3\xa9\"} : "
         "f32[1*b, 2*b] %y = convert(%x) {} : f16[b, 2*b] return %y as \"y\"}",
         "sx 1\ngraph \"g\" (b in [1, 2]) {\n    %0 = parameter {name = \"\\xc3\\xa9\", weight = "
         "0} : "
         "f32[b, 2*b]\n    %1 = convert(%0) : f16[b, 2*b]\n    return %1 as \"y\"\n}\n"},
        {"sx 1 graph \"g\" (a in [1, 2], b in [1, 2]) {%x = parameter {name = \"x\", weight = 0} : "
         "f32[6, a, b] %y = fused(%x) {type = f32[a, 6, b], body = {args = [[b, 1*(b*a), 1]], "
         "code = [arg 0]}} : f32[a, 6, b] return %y as \"y\"}",
         "sx 1\ngraph \"g\" (a in [1, 2], b in [1, 2]) {\n    %0 = parameter {name = \"x\", weight "
         "= "
         "0} : f32[6, a, b]\n    %1 = fused(%0) {type = f32[a, 6, b], body = {args = [[b, (a*b), "
         "1]], "
         "code = [arg 0]}} : f32[a, 6, b]\n    return %1 as \"y\"\n}\n"},
        {"sx 1 graph \"g\" {%x = constant {data = \"0000803f00000040\"} : f32[2] return %x as "
         "\"y\"}",
         "sx 1\ngraph \"g\" {\n    %0 = constant {data = [1, 2]} : f32[2]\n    return %0 as "
         "\"y\"\n}\n"},
        {"sx 1 graph \"g\" {%x = constant {data = [2.50e0, 25E-1]} : f32[2] return %x as \"y\"}",
         "sx 1\ngraph \"g\" {\n    %0 = constant {data = 2.5} : f32[2]\n    return %0 as "
         "\"y\"\n}\n"},
        {"sx 1 graph \"g\" {%x = fused {type = i32[3], body = {code = [index 0 : i32]}} : i32[3] "
         "return %x as \"y\"}",
         "sx 1\ngraph \"g\" {\n    %0 = fused {type = i32[3], body = {code = [index 0]}} : "
         "i32[3]\n    "
         "return %0 as \"y\"\n}\n"},
    };
    for (uint32_t i = 0; i < SX_COUNT(cases); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 1 << 24);
        sx_buf text;
        print_of(&cx, cases[i].source, &text);
        sx_buf_put_u8(&text, 0);
        ck_assert_str_eq((const char *)text.ptr, cases[i].printed);
        sx_buf_fini(&text);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* ---- errors ---- */

typedef struct {
    const char *source;
    const char *error; /* part of the text */
    sx_code code;      /* SX_OK stands for SX_INPUT */
} bad_case;

static void run_bad(const char *before, const bad_case *cases, uint32_t count, const char *behind)
{
    for (uint32_t i = 0; i < count; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 1 << 24);
        sx_buf text;
        sx_buf_init(&text, 1 << 20);
        sx_buf_put_text(&text, before);
        sx_buf_put_text(&text, cases[i].source);
        sx_buf_put_text(&text, behind);
        sx_graph *graph;
        sx_code expected = cases[i].code == SX_OK ? SX_INPUT : cases[i].code;
        sx_code code = sx_graph_parse(&cx, sx_buf_span(&text), &graph);
        ck_assert_msg(code == expected, "case %u '%s': %s (%s)", i, cases[i].source,
                      sx_code_name(code), cx.error.text);
        ck_assert_msg(strstr(cx.error.text, cases[i].error) != NULL, "case %u '%s': text is '%s'",
                      i, cases[i].source, cx.error.text);
        sx_buf_fini(&text);
        sx_ctx_fini(&cx);
    }
}

START_TEST(test_bad_frame)
{
    static const bad_case cases[] = {
        {"", "line 1:1: expected sx, found the end", SX_OK},
        {"\n\n graph", "line 3:2: expected sx, found 'graph'", SX_OK},
        {"sx 2 graph", "line 1:4: version 2 of the text form, this reads 1", SX_OK},
        {"sx x", "line 1:4: expected an integer, found 'x'", SX_OK},
        {"sx 1 graph g", "expected a string, found 'g'", SX_OK},
        {"sx 1 graph \"g\" (b in [0, 1]) {", "line 1:17: symbol \"b\": interval [0, 1], within",
         SX_OK},
        {"sx 1 graph \"g\" (b in [1, 1], b in [1, 1]) {",
         "line 1:30: symbol \"b\" is declared twice", SX_OK},
        {"sx 1 graph \"g\" (b in [1 1]) {", "expected ',', found '1'", SX_OK},
        {"sx 1 graph \"g\" (7 in [1, 1]) {", "expected a symbol, found '7'", SX_OK},
        {"sx 1 graph \"g\" {", "line 1:17: expected return, found the end", SX_OK},
        {"sx 1 graph \"g\" { return %0", "line 1:25: value %0 is not defined above", SX_OK},
        {"sx 1 graph \"g\" { return x", "expected a value, found 'x'", SX_OK},
        {"sx 1 graph \"g\" { return % x", "value name of 0 bytes", SX_OK},
        {"sx 1 graph \"g", "string without closing quote on its line", SX_OK},
        {"sx 1 graph \"g\n\"", "string without closing quote", SX_OK},
        {"sx 1 graph \"\\q\"", "escape at byte 1 of the string", SX_OK},
        {"sx 1 graph \"\\xG0\"", "escape at byte 1", SX_OK},
        {"sx 1 graph \"\\x4\"", "escape at byte 1", SX_OK},
        {"sx 1 graph \"g\" @", "line 1:16: unexpected byte 0x40", SX_OK},
        {"sx 1 graph \"g\" /", "unexpected byte 0x2f", SX_OK},
        {"sx 99999999999999999999", "expected an integer of 64 bits", SX_OK},
    };
    run_bad("", cases, SX_COUNT(cases), "");
    char name[400];
    memset(name, 'a', sizeof(name));
    memcpy(name, "sx 1 graph \"", 12);
    name[12 + 256] = '"';
    name[12 + 257] = '\0';
    bad_case longer = {name, "name of more than 255 bytes", SX_OK};
    run_bad("", &longer, 1, "");
}
END_TEST

#define BEFORE                                                                     \
    "sx 1\ngraph \"g\" (b in [2, 8]) {\n%x = parameter {name = \"x\", weight = 0}" \
    " : f32[b, 4]\n"
#define BEHIND "\nreturn %x as \"y\"\n}"

START_TEST(test_bad_statements)
{
    static const bad_case cases[] = {
        {"%x = negate(%x) : f32[b, 4]", "line 4:1: value %x is defined twice", SX_OK},
        {"%y = frob(%x) : f32[b, 4]", "line 4:6: expected an operation, found 'frob'", SX_OK},
        {"%y = negate(%z) : f32[b, 4]", "line 4:13: value %z is not defined above", SX_OK},
        {"%y = negate(%y) : f32[b, 4]", "value %y is not defined above", SX_OK},
        {"%y = negate(%x : f32[b, 4]", "expected ')', found ':'", SX_OK},
        {"%y = negate : f32[b, 4]", "line 4:6: node 1: negate: 0 operands, takes 1 to 1", SX_OK},
        {"%y = negate(%x)", "line 5:1: expected ':', found 'return'", SX_OK},
        {"%y = negate(%x) : f33[b]", "line 4:19: expected an element type, found 'f33'", SX_OK},
        {"%y = negate(%x) : f32[c]", "line 4:23: symbol \"c\" is not declared", SX_OK},
        {"%y = negate(%x) : f32[2*]", "expected an extent, found ']'", SX_OK},
        {"%y = negate(%x) : f32[-1]", "extent -1, at least 0", SX_OK},
        {"%y = negate(%x) : f32[b, 5]",
         "line 4:19: type f32[b, 5] is written, the operation gives f32[b, 4]", SX_OK},
        {"%y = negate(%x) : f32[1, 1, 1, 1, 1, 1, 1, 1, 1]", "more than 8 dimensions", SX_LIMIT},
        {"%y = add(%x, %x) {axis = 1} : f32[b, 4]", "line 4:19: add carries no attribute axis",
         SX_OK},
        {"%y = softmax(%x) : f32[b, 4]",
         "line 4:6: node 1 (%0 \"x\"): softmax: attribute axis is missing", SX_OK},
        {"%y = softmax(%x) {axis = 2} : f32[b, 4]", "softmax: axis 2 of a tensor of rank 2", SX_OK},
        {"%y = softmax(%x) {axis = 1, axis = 1} : f32[b, 4]", "attribute axis is written twice",
         SX_OK},
        {"%y = softmax(%x) {axis = 1.5} : f32[b, 4]", "expected an integer of 64 bits, found '1.5'",
         SX_OK},
        {"%y = softmax(%x) {axis} : f32[b, 4]", "expected '=', found '}'", SX_OK},
        {"%y = softmax(%x) {frob = 1} : f32[b, 4]", "expected an attribute, found 'frob'", SX_OK},
        {"%y = convert(%x) {type = f16[]} : f16[b, 4]",
         "the type of convert is written behind the colon", SX_OK},
        {"%y = transpose(%x) {perm = [1, 0, 2, 3, 4, 5, 6, 7, 8]} : f32[4, b]",
         "more than 8 numbers", SX_LIMIT},
        {"%y = compare(%x, %x) {direction = xx} : bool[b, 4]",
         "expected eq, ne, lt, le, gt or ge, found 'xx'", SX_OK},
        {"%y = reduce(%x) {dims = [0], reducer = max} : f32[4]",
         "expected add, multiply, maximum or minimum, found 'max'", SX_OK},
        {"%y = parameter {name = \"x\", weight = 0} : f32[]",
         "line 6:1: nodes 0 and 1: both are parameter \"x\"", SX_OK},
        {"%y = parameter {name = \"y\", weight = 0} : f32[1099511627777]", "at most 1099511627776",
         SX_LIMIT},
        {"%y = parameter {name = \"y\", weight = 0} : f32[9223372036854775808]",
         "expected an integer of 64 bits", SX_OK},
        {"%y = rms_norm(%x, %x) {axis = 0, eps = nan} : f32[b, 4]", "eps is not finite", SX_OK},
        {"%y = rms_norm(%x, %x) {axis = 0, eps = 1e999} : f32[b, 4]", "1e999 does not fit f64",
         SX_OK},
        {"%y = slice(%x) {start = [1, 0], limit = [-1, 4], stride = [1, 1]} : f32[b, 4]",
         "is no multiple of a symbol", SX_UNIMPLEMENTED},
        {"return %x as \"y\", %x as \"y\" } {", "line 4:25: output \"y\" is named twice", SX_OK},
        {"return %x as \"\" } {", "output name of 0 bytes", SX_OK},
        {"return %x \"y\" }", "expected as, found \"y\"", SX_OK},
        {"return %x as \"y\" } }", "expected the end, found '}'", SX_OK},
    };
    run_bad(BEFORE, cases, SX_COUNT(cases), BEHIND);
}
END_TEST

START_TEST(test_bad_data)
{
    static const bad_case cases[] = {
        {"%y = constant {data = [1, 2]} : f32[3]", "line 4:23: 2 elements do not fill the shape",
         SX_OK},
        {"%y = constant {data = [1]} : f32[3]", "1 elements do not fill", SX_OK},
        {"%y = constant {data = []} : f32[3]", "0 elements do not fill", SX_OK},
        {"%y = constant {data = [1, 2]} : f32[b]", "2 elements do not fill", SX_OK},
        {"%y = constant {data = \"0000803f\"} : f32[3]", "1 elements do not fill", SX_OK},
        {"%y = constant {data = \"00008\"} : f32[]", "data of 5 characters is not pairs", SX_OK},
        {"%y = constant {data = \"0000803F\"} : f32[]", "not pairs of hex digits", SX_OK},
        {"%y = constant {data = \"000080\"} : f32[]", "3 bytes are no elements of f32", SX_OK},
        {"%y = constant {data = 256} : u8[]", "256 does not fit u8", SX_OK},
        {"%y = constant {data = -1} : u8[]", "-1 does not fit u8", SX_OK},
        {"%y = constant {data = 1.5} : i8[]", "expected an integer", SX_OK},
        {"%y = constant {data = 1} : bool[]", "expected true or false, found '1'", SX_OK},
        {"%y = constant {data = true} : f32[]", "expected a number, found 'true'", SX_OK},
        {"%y = constant {data = 1e39} : f32[]", "1e39 does not fit f32", SX_OK},
        {"%y = constant {data = inf} : f8e4m3[]", "inf does not fit f8e4m3", SX_OK},
        {"%y = constant {data = 465} : f8e4m3[]", "465 does not fit f8e4m3", SX_OK},
        {"%y = constant {data = 0x3f80} : f32[]", "bits of f32 are 0x and 8", SX_OK},
        {"%y = constant {data = 0x3F800000} : f32[]", "bits of f32 are 0x and 8", SX_OK},
        {"%y = constant {data = 1.2.3} : f32[]", "expected a number, found '1.2.3'", SX_OK},
        {"%y = constant {data = 1e} : f32[]", "expected a number", SX_OK},
        {"%y = constant {data = -} : f32[]", "expected a number", SX_OK},
        {"%y = constant {data = 0x1p4} : f32[]", "bits of f32", SX_OK},
        {"%y = constant {data = infinity} : f32[]", "expected a number", SX_OK},
        {"%y = constant {data = {} : f32[]", "expected a number, a list or a string", SX_OK},
        {"%y = constant {data = [1, 2 : f32[]", "expected", SX_OK},
        {"%y = constant {data = [1 2]} : f32[2]", "expected ']', found '2'", SX_OK},
        {"%y = constant : f32[2]", "constant: attribute data is missing", SX_OK},
    };
    run_bad(BEFORE, cases, SX_COUNT(cases), BEHIND);
}
END_TEST

START_TEST(test_bad_bodies)
{
    static const bad_case cases[] = {
        {"{body = {code = [index 0]}} : f32[3]", "type comes before body", SX_OK},
        {"{type = f32[3], body = {}} : f32[3]", "expected code, found '}'", SX_OK},
        {"{type = f32[3], body = {code = []}} : f32[3]", "expected an instruction, found ']'",
         SX_OK},
        {"{type = f32[3], body = {code = [frob 0]}} : f32[3]",
         "expected an instruction, found 'frob'", SX_OK},
        {"{type = f32[3], body = {code = [reshape 0]}} : f32[3]", "expected an instruction", SX_OK},
        {"{type = f32[3], body = {code = [add 0]}} : f32[3]", "expected an integer, found ']'",
         SX_OK},
        {"{type = f32[3], body = {code = [arg 96]}} : f32[3]", "operand 96, 0 to 95", SX_OK},
        {"{type = f32[3], body = {code = [arg -1]}} : f32[3]", "operand -1, 0 to 95", SX_OK},
        {"{type = f32[3], body = {code = [arg 0]}} : f32[3]", "node 1: fused: instruction 0",
         SX_OK},
        {"{type = f32[3], body = {code = [abs 0]}} : f32[3]", "fused: instruction 0: operand 0",
         SX_OK},
        {"{type = f32[3], body = {code = [index 1]}} : f32[3]", "fused: instruction 0", SX_OK},
        {"{type = f32[3], body = {args = [[1]], code = [arg 0]}} : f32[3]",
         "fused: 0 inputs for 1 arguments", SX_OK},
        {"{type = f32[3], body = {args = [[1, 2]], code = [arg 0]}} : f32[3]",
         "2 strides, the space has rank 1", SX_OK},
        {"{type = f32[3], body = {args = [[1] + -1], code = [arg 0]}} : f32[3]",
         "extent -1, at least 0", SX_OK},
        {"{type = f32[3], body = {axes = [8], code = [arg 0]}} : f32[3]", "axis 8 is no dimension",
         SX_OK},
        {"{type = f32[3], body = {axes = [0, 0], code = [arg 0]}} : f32[3]", "named twice", SX_OK},
        {"{type = f32[3], body = {code = [imm x]}} : f32[3]", "expected a number, found 'x'",
         SX_OK},
        {"{type = f32[3], body = {code = [imm 1 : f33]}} : f32[3]", "expected an element type",
         SX_OK},
        {"{type = f32[0], body = {code = [imm 1]}} : f32[3]", "type: axis 0 has extent 0", SX_OK},
        {"{type = f32[3], body = 7} : f32[3]", "expected '{', found '7'", SX_OK},
    };
    run_bad(BEFORE "%y = fused ", cases, SX_COUNT(cases), BEHIND);
}
END_TEST

/* ---- limits ---- */

START_TEST(test_limits)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_graph *graph;
    sx_span huge = {(const uint8_t *)"", SX_TEXT_BYTES_MAX + 1};
    ck_sx_fails(&cx, sx_graph_parse(&cx, huge, &graph), SX_LIMIT, "at most 67108864");
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    sx_buf_put_text(&text, BEFORE "%y = concatenate(%x");
    for (uint32_t i = 0; i < SX_INPUTS_MAX; i++) {
        sx_buf_put_text(&text, ", %x");
    }
    ck_sx_fails(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph), SX_LIMIT,
                "more than 64 operands");
    sx_buf_clear(&text);
    sx_buf_put_text(&text, BEFORE "%y = fused {type = f32[2], body = {code = [imm 0");
    for (uint32_t i = 0; i < 96; i++) {
        sx_buf_put_text(&text, ", imm 0");
    }
    ck_sx_fails(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph), SX_LIMIT,
                "more than 96 instructions");
    sx_buf_clear(&text);
    sx_buf_put_text(&text, "sx 1 graph \"g\" (");
    for (uint32_t i = 0; i < 100000; i++) { /* no depth to exhaust */
        sx_buf_put_text(&text, "({[");
    }
    ck_sx_fails(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph), SX_INPUT, "line 1:17");
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

static sx_code parse_once(sx_ctx *cx, void *self)
{
    sx_graph *graph;
    return sx_graph_parse(cx, *(const sx_span *)self, &graph);
}

/* A text that needs more than the memory of the request. */
START_TEST(test_memory)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 22);
    sx_buf_put_text(&text, BEFORE);
    for (uint32_t i = 0; i < 20000; i++) {
        sx_buf_print(&text, "%%%u = negate(%%x) : f32[b, 4]\n", i);
    }
    sx_buf_put_text(&text, BEHIND);
    sx_span span = sx_buf_span(&text);
    (void)sx_test_oom(&(sx_test_sweep){
        .name = "long text", .work = parse_once, .self = &span, .from = 1 << 12, .part = 1});
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/parse");
    TCase *tcase = tcase_create("parse");
    tcase_add_test(tcase, test_hand_written);
    tcase_add_test(tcase, test_bad_frame);
    tcase_add_test(tcase, test_bad_statements);
    tcase_add_test(tcase, test_bad_data);
    tcase_add_test(tcase, test_bad_bodies);
    tcase_add_test(tcase, test_limits);
    tcase_add_test(tcase, test_memory);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
