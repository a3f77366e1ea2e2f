/* Tensors without elements: what each operation gives of them, by definition. */
#include <math.h>
#include <string.h>

#include "core/eval/cell.h"
#include "tests/lib/test.h"

/* `inputs` are parameters %a, %b, .. (those with elements are all 3), then one line that makes %y. */
typedef struct {
    const char *text;
    int64_t elements; /* of %y */
    double value;     /* of each */
} nothing;

#define A "%a = parameter {name = \"a\", weight = 0} : "
#define B "%b = parameter {name = \"b\", weight = 0} : "
#define I "%i = parameter {name = \"i\", weight = 0} : "
#define ONE                                                                                       \
    "{stride = [1, 1], low = [0, 1], high = [0, 2], window = [1, 2], dilation = [1, 1], reducer " \
    "= "

static const nothing cases[] = {
    {A "f32[2, 0]\n %y = negate(%a) : f32[2, 0]", 0, 0},
    {A "f32[2, 0]\n %y = softmax(%a) {axis = 1} : f32[2, 0]", 0, 0},
    {A "f32[0, 5]\n %y = softmax(%a) {axis = 1} : f32[0, 5]", 0, 0},
    {A "f32[2, 0]\n %y = reduce(%a) {dims = [1], reducer = add} : f32[2]", 2, 0},
    {A "f32[2, 0]\n %y = reduce(%a) {dims = [1], reducer = multiply} : f32[2]", 2, 1},
    {A "f32[2, 0]\n %y = reduce(%a) {dims = [1], reducer = maximum} : f32[2]", 2, -HUGE_VAL},
    {A "f32[2, 0]\n %y = reduce(%a) {dims = [1], reducer = minimum} : f32[2]", 2, HUGE_VAL},
    {A "f32[2, 0]\n %y = reduce(%a) {dims = [0], reducer = add} : f32[0]", 0, 0},
    {A "i8[2, 0]\n %y = reduce(%a) {dims = [1], reducer = maximum} : i8[2]", 2, -128},
    {A "u8[0]\n %y = reduce(%a) {dims = [0], reducer = minimum} : u8[]", 1, 255},
    {A "f8e4m3[0]\n %y = reduce(%a) {dims = [0], reducer = maximum} : f8e4m3[]", 1, -448},
    {A "bool[0]\n %y = reduce(%a) {dims = [0], reducer = multiply} : bool[]", 1, 1},
    {A "f32[2, 0]\n" B
       "f32[0, 3]\n %y = dot_general(%a, %b) {lhs_contract = [1], rhs_contract = [0]} : f32[2, 3]",
     6, 0},
    {A "f32[0, 2]\n" B
       "f32[2, 3]\n %y = dot_general(%a, %b) {lhs_contract = [1], rhs_contract = [0]} : f32[0, 3]",
     0, 0},
    {A "f32[0, 4]\n" B "f32[2, 4]\n %y = concatenate(%a, %b, %a) {axis = 0} : f32[2, 4]", 8, 3},
    {A "f32[5, 4]\n" I "i32[0]\n %y = gather(%a, %i) {axis = 0} : f32[0, 4]", 0, 0},
    {A "f32[0, 4]\n" I "i32[0]\n %y = gather(%a, %i) {axis = 0} : f32[0, 4]", 0, 0},
    {A "f32[5]\n" I "i32[0]\n" B
       "f32[0]\n %y = scatter(%a, %i, %b) {axis = 0, reducer = add} : f32[5]",
     5, 3},
    {A "f32[0]\n" I "i32[2]\n" B
       "f32[2]\n %y = scatter(%a, %i, %b) {axis = 0, reducer = add} : f32[0]",
     0, 0},
    {A "f32[5]\n" I "i32[]\n %y = dynamic_slice(%a, %i) {dims = [0], sizes = [0]} : f32[0]", 0, 0},
    {A "f32[5]\n" B "f32[0]\n" I
       "i32[]\n %y = dynamic_update_slice(%a, %b, %i) {dims = [0]} : f32[5]",
     5, 3},
    {A "f32[0]\n" B "f32[]\n %y = pad(%a, %b) {low = [2], high = [1], interior = [4]} : f32[3]", 3,
     3},
    {A "f32[4]\n" B "f32[]\n %y = pad(%a, %b) {low = [-3], high = [-1], interior = [0]} : f32[0]",
     0, 0},
    {A "f32[7]\n %y = slice(%a) {start = [2], limit = [2], stride = [3]} : f32[0]", 0, 0},
    {A "f32[3, 1]\n %y = broadcast_in_dim(%a) {dims = [0, 1]} : f32[3, 0]", 0, 0},
    {A "f32[3, 0]\n %y = reshape(%a) : f32[0, 7, 2]", 0, 0},
    {A "f32[2, 0]\n %y = reduce_window(%a) " ONE "maximum} : f32[2, 2]", 4, -HUGE_VAL},
    {A "f32[2, 0]\n %y = reduce_window(%a) " ONE "add} : f32[2, 2]", 4, 0},
    {A "f32[2, 3, 0]\n" B "f32[4, 3, 2]\n %y = convolution(%a, %b) {stride = [1], low = [2], high "
       "= [1], dilation = [1], "
       "groups = 1} : f32[2, 4, 2]",
     16, 0},
    {A "f32[2, 0, 5]\n" B "f32[4, 0, 2]\n %y = convolution(%a, %b) {stride = [1], low = [0], high "
       "= [0], dilation = [1], "
       "groups = 1} : f32[2, 4, 4]",
     32, 0},
    {A "f32[2, 3]\n" B "f32[0, 3]\n %y = attention(%a, %b, %b) {scale = 1} : f32[2, 3]", 6, 0},
    {A "f32[2, 0]\n" B "f32[5, 3]\n %y = attention(%a, %k, %b) {scale = 1} : f32[2, 3]", 6, 3},
    {A "f32[2, 0]\n %y = sort(%a) {axis = 1, direction = gt, count = -1, result = 0} : f32[2, 0]",
     0, 0},
    {A "f32[0, 5]\n %y = sort(%a) {axis = 1, direction = lt, count = 2, result = 1} : i64[0, 2]", 0,
     0},
    {A "f32[5]\n %y = sort(%a) {axis = 0, direction = gt, count = 0, result = 0} : f32[0]", 0, 0},
    {A "f32[2, 0]\n %y = online_dot(%a) {lhs_contract = [1], form = 2} : f32[2]", 2, -HUGE_VAL},
};

static void evaluate(const nothing *c)
{
    sx_ctx cx;
    sx_buf text;
    sx_graph *graph;
    sx_tensor argument[4], y;
    sx_ctx_init(&cx, (size_t)16 << 20);
    sx_buf_init(&text, 1 << 16);
    sx_buf_print(
        &text,
        "sx 1\ngraph \"g\" {\n%%k = constant {data = 3} : f32[5, 0]\n%s\nreturn %%y as \"y\"\n}\n",
        c->text);
    sx_code code = sx_graph_parse(&cx, sx_buf_span(&text), &graph);
    ck_assert_msg(code == SX_OK, "%s\n%s", cx.error.text, c->text);
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_type *type = &graph->node[n].type;
        if (graph->node[n].op != SX_OP_PARAMETER) {
            continue;
        }
        ck_sx_ok(&cx, sx_tensor_make(&cx, type, &argument[count]));
        for (int64_t k = 0; k < sx_tensor_elements(type); k++) {
            sx_cell *cell = argument[count].data;
            if (sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT) {
                cell[k].f = 3;
            } else {
                cell[k].i = 3;
            }
        }
        count++;
    }
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, argument, count, &y, 1));
    ck_assert_msg(sx_tensor_elements(&y.type) == c->elements, "%s", c->text);
    for (int64_t k = 0; k < c->elements; k++) {
        const sx_cell *cell = y.data;
        bool floats = sx_dtype_class_of(y.type.dtype) == SX_CLASS_FLOAT;
        double got = floats ? cell[k].f : (double)cell[k].i;
        ck_assert_msg(!(got < c->value) && !(got > c->value), "%s: %g, not %g", c->text, got,
                      c->value);
    }
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}

START_TEST(definitions)
{
    evaluate(&cases[_i]);
}
END_TEST

/* The mean of nothing is that of its definition, a sum over a count. */
START_TEST(mean)
{
    sx_ctx cx;
    sx_graph *graph;
    sx_tensor x, y;
    sx_ctx_init(&cx, (size_t)16 << 20);
    ck_sx_ok(&cx, sx_graph_parse(&cx,
                                 sx_span_of("sx 1\ngraph \"mean\" {\n" A "f32[0]\n"
                                            "%s = reduce(%a) {dims = [0], reducer = add} : f32[]\n"
                                            "%n = constant {data = 0} : f32[]\n"
                                            "%y = divide(%s, %n) : f32[]\nreturn %y as \"y\"\n}\n"),
                                 &graph));
    ck_sx_ok(&cx, sx_tensor_make(&cx, &graph->node[0].type, &x));
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, &x, 1, &y, 1));
    ck_assert(isnan(((const double *)y.data)[0]));
    sx_ctx_fini(&cx);
}
END_TEST

/* No rounds: carried values as they came, nothing stacked. A kernel has elements. */
START_TEST(others)
{
    static const char scan[] =
        "sx 1\ngraph \"scan\" {\n" A "f32[2]\n" B "f32[0, 2]\n"
        "%last, %all = scan(%a, %b) {carried = 1, sliced = 1, step = graph {\n"
        "%s = parameter {name = \"s\", weight = 0} : f32[2]\n"
        "%x = parameter {name = \"x\", weight = 0} : f32[2]\n"
        "%t = add(%s, %x) : f32[2]\nreturn %t as \"s\", %t as \"t\"\n}} : f32[2], f32[0, 2]\n"
        "return %last as \"last\", %all as \"all\"\n}\n";
    static const char fused[] =
        "sx 1\ngraph \"f\" {\n" A
        "f32[0]\n%y = fused(%a) {type = f32[4], body = {args = [[0]], code = [arg 0]}} : "
        "f32[4]\nreturn %y as \"y\"\n}\n";
    sx_ctx cx;
    sx_graph *graph;
    sx_tensor x[2], y[2];
    sx_ctx_init(&cx, (size_t)16 << 20);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(scan), &graph));
    ck_sx_ok(&cx, sx_tensor_make(&cx, &graph->node[0].type, &x[0]));
    ck_sx_ok(&cx, sx_tensor_make(&cx, &graph->node[1].type, &x[1]));
    ((double *)x[0].data)[1] = 7;
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, x, 2, y, 2));
    ck_assert(((const double *)y[0].data)[1] > 6.5);
    ck_assert_int_eq(sx_tensor_elements(&y[1].type), 0);
    ck_assert_uint_eq(sx_graph_parse(&cx, sx_span_of(fused), &graph), SX_INPUT);
    ck_assert_ptr_nonnull(strstr(cx.error.text, "an operand: axis 0 has extent 0, at least 1"));
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.eval.nothing");
    TCase *tcase = tcase_create("nothing");
    tcase_add_loop_test(tcase, definitions, 0, (int)SX_COUNT(cases));
    tcase_add_test(tcase, mean);
    tcase_add_test(tcase, others);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
