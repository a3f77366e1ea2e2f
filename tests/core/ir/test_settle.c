/* Conds with a known predicate: gone where constants decide, still there where something else does, and equal to what
 * they were, to the bit. In the texts `$x:f32[4];` is a parameter. */
#include "tests/lib/test.h"

#include "core/eval/eval.h"
#include "core/ir/program.h"
#include "core/ir/settle.h"
#include "tests/lib/ir.h"
#include "tests/lib/region.h"

#define P(name, type) "%" name " = parameter {name = \"" name "\", weight = 0} : " type "\n"
#define K(name, type, value) "%" name " = constant {data = " value "} : " type "\n"
#define X P("x", "f32[4]")
/* sine(x), or x */
#define BRANCHES                                                          \
    "{then = graph {\n" X "%s = sine(%x) : f32[4]\nreturn %s as \"y\"}, " \
    "otherwise = graph {\n" X "return %x as \"y\"}} : f32[4]\nreturn %y as \"y\"\n"
#define COND "%y = cond(%p, %x) " BRANCHES

static const struct {
    const char *text;
    uint32_t conds; /* that are left */
    uint32_t sines;
} programs[] = {
    {X K("p", "bool[]", "true") COND, 0, 1},
    {X K("p", "bool[]", "false") COND, 0, 0},
    {X P("p", "bool[]") COND, 1, 1},
    {X K("a", "i32[]", "1") K("b", "i32[]", "2") "%m = minimum(%a, %b) : i32[]\n" K(
         "z", "i32[]", "0") "%p = compare(%m, %z) {direction = gt} : bool[]\n" COND,
     0, 1},
    {X K("a", "i32[]", "1")
         K("b", "i32[]", "2") "%m = maximum(%a, %b) : i32[]\n"
                              "%p = compare(%m, %b) {direction = lt} : bool[]\n" COND,
     0, 0},
    /* 200 is more than 100 in u8, and has no place in i8 */
    {X K("a", "u8[]", "200")
         K("b", "u8[]", "100") "%p = compare(%a, %b) {direction = ge} : bool[]\n" COND,
     0, 1},
    {X K("a", "u8[]", "200")
         K("z", "i8[]", "0") "%b = convert(%a) : i8[]\n"
                             "%p = compare(%b, %z) {direction = lt} : bool[]\n" COND,
     1, 1},
    {X K("a", "i64[]", "-9000000000000000001")
         K("b", "i64[]", "-9000000000000000000") "%q = compare(%a, %b) {direction = ne} : "
                                                 "bool[]\n%r = not(%q) : bool[]\n"
                                                 "%p = or(%r, %q) : bool[]\n" COND,
     0, 1},
    {X K("a", "i32[1, 1]", "3") "%b = reshape(%a) : i32[]\n" K(
         "k", "i32[]", "2") "%c = and(%b, %k) : i32[]\n%d = xor(%c, %k) : i32[]\n"
                            "%p = convert(%d) : bool[]\n" COND,
     0, 0},
    /* arithmetic and fractions are not followed */
    {X K("a", "f32[]", "0.5")
         K("z", "f32[]", "0") "%p = compare(%a, %z) {direction = gt} : bool[]\n" COND,
     1, 1},
    /* a switch: what the outer one gives the inner one decides there; two results, one twice */
    {X K("i", "i32[]", "1")
         K("z", "i32[]",
           "0") "%p = compare(%i, %z) {direction = gt} : bool[]\n"
                "%y, %u = cond(%p, %i, %x) {then = graph {\n" P("i", "i32[]") X K(
                    "k", "i32[]",
                    "1") "%q = compare(%i, %k) {direction = gt} : bool[]\n"
                         "%t = cond(%q, %x) {then = graph {\n" X
                         "%s = sine(%x) : f32[4]\nreturn %s as \"y\"}, "
                         "otherwise = graph {\n" X
                         "%s = multiply(%x, %x) : f32[4]\nreturn %s as \"y\"}} : f32[4]\n"
                         "return %t as \"y\", %x as \"u\"}, otherwise = graph {\n" P("i", "i32[]") X
     "return %x as \"y\", %x as \"u\"}} : f32[4], f32[4]\n"
     "return %y as \"y\", %u as \"u\", %y as \"again\"",
     0, 0},
    /* in the body of a scan, where the predicate of the other cond is sliced */
    {P("s", "f32[4]")
         P("q", "bool[3]") "%y = scan(%s, %q) {carried = 1, sliced = 1, step = graph {\n" P(
             "s", "f32[4]") P("q", "bool[]")
             K("p", "bool[]", "true") "%a = cond(%p, %s) {then = graph {\n" X
                                      "%s = sine(%x) : f32[4]\nreturn %s as \"y\"}, "
                                      "otherwise = graph {\n" X "return %x as \"y\"}} : f32[4]\n"
                                      "%b = cond(%q, %a) {then = graph {\n" X
                                      "%s = negate(%x) : f32[4]\nreturn %s as \"y\"}, "
                                      "otherwise = graph {\n" X "return %x as \"y\"}} : f32[4]\n"
                                      "return %b as \"s\"}} : f32[4]\nreturn %y as \"y\"",
     1, 1},
};

static uint32_t count_op(const sx_graph *graph, sx_op op)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_program *program[SX_ATTR_PROGRAMS_MAX];
        uint32_t programs_inside = sx_node_programs(graph, &graph->node[n], program);
        count += graph->node[n].op == op ? 1 : 0;
        for (uint32_t k = 0; k < programs_inside; k++) {
            count += count_op(program[k]->graph, op);
        }
    }
    return count;
}

static sx_graph *parse(sx_ctx *cx, const char *body)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 16);
    sx_buf_print(&text, "sx 1\ngraph \"g\" {\n%s\n}\n", body);
    const char *whole = sx_alloc_text(cx, sx_buf_span(&text));
    sx_buf_fini(&text);
    ck_assert_ptr_nonnull(whole);
    return sx_test_parse(cx, whole);
}

/* Both programs on the same inputs. */
static void expect_equal(sx_ctx *cx, sx_rng *rng, const sx_graph *graph, const sx_graph *settled,
                         const char *text)
{
    ck_assert_uint_eq(graph->output_count, settled->output_count);
    sx_tensor x[2], a[3], b[3];
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->node[n].op == SX_OP_PARAMETER) {
            ck_assert_uint_lt(count, SX_COUNT(x));
            sx_test_tensor(cx, rng, SX_EVAL_TYPED, &graph->node[n].type, &x[count++]);
        }
    }
    ck_sx_ok(cx, sx_graph_eval(cx, graph, SX_EVAL_TYPED, x, count, a, graph->output_count));
    ck_sx_ok(cx, sx_graph_eval(cx, settled, SX_EVAL_TYPED, x, count, b, graph->output_count));
    for (uint32_t k = 0; k < graph->output_count; k++) {
        ck_assert(sx_span_equal(graph->output[k].name, settled->output[k].name));
        sx_test_tensor_equal(&a[k], &b[k], text);
    }
}

START_TEST(equals_what_it_was)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_rng rng = {sx_test_seed()};
    const sx_graph *graph = parse(&cx, programs[_i].text), *settled;
    ck_sx_ok(&cx, sx_graph_settle(&cx, graph, &settled));
    ck_sx_ok(&cx, sx_graph_check(&cx, settled));
    ck_assert_uint_eq(count_op(settled, SX_OP_COND), programs[_i].conds);
    ck_assert_uint_eq(count_op(settled, SX_OP_SIN), programs[_i].sines);
    ck_assert((settled == graph) == (count_op(graph, SX_OP_COND) == programs[_i].conds));
    expect_equal(&cx, &rng, graph, settled, programs[_i].text);
    sx_ctx_fini(&cx);
}
END_TEST

/* Predicates of operations on small numbers of one type, and of what they are in a wider one. */
START_TEST(predicates_are_those_of_the_interpreter)
{
    static const char *const type[] = {"bool", "u8", "i8", "i32", "i64"};
    static const char *const op[] = {"minimum", "maximum", "and", "or", "xor"};
    static const char *const direction[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < sx_test_trials(300); trial++) {
        sx_ctx cx;
        sx_buf text;
        sx_ctx_init(&cx, (size_t)1 << 24);
        sx_buf_init(&text, 1 << 16);
        uint32_t t = (uint32_t)sx_rng_below(&rng, SX_COUNT(type)), last = 3;
        sx_buf_put_text(&text, X);
        for (uint32_t k = 0; k < 4; k++) {
            int64_t value = (int64_t)sx_rng_below(&rng, t == 0 ? 2 : 9) - (t > 1 ? 4 : 0);
            sx_buf_print(&text, "%%v%u = constant {data = ", k);
            if (t == 0) {
                sx_buf_put_text(&text, value != 0 ? "true" : "false");
            } else {
                sx_buf_print(&text, "%lld", (long long)value);
            }
            sx_buf_print(&text, "} : %s[]\n", type[t]);
        }
        for (uint32_t k = 0; k < 4; k++, last++) {
            sx_buf_print(&text, "%%v%u = %s(%%v%u, %%v%u) : %s[]\n", last + 1,
                         op[t == 0 ? 2 + sx_rng_below(&rng, 3) : sx_rng_below(&rng, SX_COUNT(op))],
                         (uint32_t)sx_rng_below(&rng, last + 1),
                         (uint32_t)sx_rng_below(&rng, last + 1), type[t]);
        }
        sx_buf_print(&text,
                     "%%a = convert(%%v%u) : i64[]\n%%b = convert(%%v%u) : i64[]\n"
                     "%%q = compare(%%a, %%b) {direction = %s} : bool[]\n%%p = %s(%%q) : bool[]\n",
                     last, (uint32_t)sx_rng_below(&rng, last),
                     direction[sx_rng_below(&rng, SX_COUNT(direction))],
                     sx_rng_below(&rng, 2) == 0 ? "not" : "reshape");
        sx_buf_put_text(&text, COND);
        const char *body = sx_alloc_text(&cx, sx_buf_span(&text));
        const sx_graph *graph = parse(&cx, body), *settled;
        ck_sx_ok(&cx, sx_graph_settle(&cx, graph, &settled));
        ck_assert_uint_eq(count_op(settled, SX_OP_COND), 0);
        expect_equal(&cx, &rng, graph, settled, body);
        sx_buf_fini(&text);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("settle");
    TCase *tcase = tcase_create("conds");
    tcase_add_loop_test(tcase, equals_what_it_was, 0, SX_COUNT(programs));
    tcase_add_test(tcase, predicates_are_those_of_the_interpreter);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
