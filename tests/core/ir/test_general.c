/* Programs whose number of rows becomes a symbol: the same one for every number, with the number in its place the one
 * that it was made of; and programs that cannot be generalised, with the reason. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/base/rng.h"
#include "core/ir/general.h"
#include "tests/lib/gen_graph.h"
#include "tests/lib/region.h"

#define HEAD "sx 1\ngraph \"g\" {\n"
#define P(name, type) "%" name " = parameter {name = \"" name "\", weight = 0} : " type "\n"
#define W(name, type) "%" name " = parameter {name = \"" name "\", weight = 1} : " type "\n"

/* `@` stands for the number of rows, `$` for 4 times as many, `#` for 5 times. */
static const struct {
    const char *name, *text;
    const char *rows; /* what stands in the general program for sure */
    uint32_t first;   /* place in rows_tried: of one row alone it would be another program */
} families[] = {
    {"a layer",
     P("x", "f32[@, 8]") P("w", "f32[8, 4]") P(
         "b",
         "f32[4]") "%0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[@, 4]\n"
                   "%1 = broadcast_in_dim(%b) {dims = [1]} : f32[@, 4]\n%2 = add(%0, %1) : f32[@, "
                   "4]\n"
                   "%3 = softmax(%2) {axis = 1} : f32[@, 4]\nreturn %3 as \"y\"\n",
     "add(%3, %4) : f32[rows, 4]", 0},
    {"a width that equals a batch of 3",
     P("x", "f32[@, 3]") P("w", "f32[3, 3]") "%0 = dot_general(%x, %w) {lhs_contract = [1], "
                                             "rhs_contract = [0]} : f32[@, 3]\n"
                                             "return %0 as \"y\"\n",
     "%1 = parameter {name = \"w\", weight = 0} : f32[3, 3]", 0},
    {"rows and places as one dimension, apart again",
     P("x", "f32[@, 5, 6]")
         P("w", "f32[6, 6]") "%0 = reshape(%x) : f32[#, 6]\n"
                             "%1 = dot_general(%0, %w) {lhs_contract = [1], rhs_contract = [0]} : "
                             "f32[#, 6]\n"
                             "%2 = reshape(%1) : f32[@, 5, 2, 3]\n"
                             "%3 = transpose(%2) {perm = [0, 2, 1, 3]} : f32[@, 2, 5, 3]\n"
                             "%4 = reshape(%3) : f32[@, 10, 3]\nreturn %4 as \"y\"\n",
     "reshape(%0) : f32[5*rows, 6]", 0},
    {"places before rows, as heads of attention are cut by PyTorch",
     P("x", "f32[@, 4, 6]")
         P("w", "f32[6, 6]") "%0 = transpose(%x) {perm = [1, 0, 2]} : f32[4, @, 6]\n"
                             "%1 = reshape(%0) : f32[$, 6]\n"
                             "%2 = dot_general(%1, %w) {lhs_contract = [1], rhs_contract = [0]} : "
                             "f32[$, 6]\n"
                             "%3 = reshape(%2) : f32[4, @, 6]\n"
                             "%4 = transpose(%3) {perm = [1, 0, 2]} : f32[@, 4, 6]\n"
                             "%5 = add(%4, %x) : f32[@, 4, 6]\nreturn %5 as \"y\"\n",
     "reshape(%2) : f32[4*rows, 6]", 1},
    {"results that begin with rows and places",
     P("x", "i64[@, 5]") P("t", "f32[20, 6]") "%0 = gather(%t, %x) {axis = 0} : f32[@, 5, 6]\n%1 = "
                                              "reshape(%0) : f32[#, 6]\n"
                                              "return %1 as \"y\"\n",
     "f32[5*rows, 6]", 0},
    {"an image",
     P("x", "f32[@, 3, 8, 8]")
         P("w", "f32[4, 3, 3, 3]") "%0 = convolution(%x, %w) {stride = [1, 1], low = [1, 1], high "
                                   "= [1, 1], dilation = [1, 1], groups = 1} "
                                   ": f32[@, 4, 8, 8]\n"
                                   "%1 = reduce_window(%0) {window = [1, 1, 2, 2], stride = [1, 1, "
                                   "2, 2], low = [0, 0, 0, 0], "
                                   "high = [0, 0, 0, 0], dilation = [1, 1, 1, 1], reducer = "
                                   "maximum} : f32[@, 4, 4, 4]\n"
                                   "%2 = reduce(%1) {dims = [2, 3], reducer = add} : f32[@, 4]\n"
                                   "%3 = slice(%2) {start = [0, 1], limit = [@, 3], stride = [1, "
                                   "1]} : f32[@, 2]\n"
                                   "return %3 as \"y\"\n",
     "limit = [-1, 3]", 0},
    {"attention with a mask of each row",
     P("q", "f32[@, 2, 5, 4]") P("k", "f32[@, 2, 6, 4]") P("v", "f32[@, 2, 6, 4]")
         P("m",
           "f32[@, 1, 5, 6]") "%0 = broadcast_in_dim(%m) {dims = [0, 1, 2, 3]} : f32[@, 2, 5, 6]\n"
                              "%1 = attention(%q, %k, %v, %0) {scale = 0.5} : f32[@, 2, 5, "
                              "4]\nreturn %1 as \"y\"\n",
     "f32[rows, 2, 5, 6]", 1},
    {"each row sorted, rows turned around, values put at places of a row",
     P("x", "f32[@, 7]") P("i", "i64[2]") P(
         "u", "f32[@, 2]") "%0 = sort(%x) {axis = 1, count = 7, direction = lt, result = 0} : "
                           "f32[@, 7]\n"
                           "%1 = reverse(%0) {dims = [0]} : f32[@, 7]\n"
                           "%2 = scatter(%1, %i, %u) {axis = 1, reducer = add} : f32[@, 7]\n"
                           "%3 = concatenate(%2, %x) {axis = 1} : f32[@, 14]\nreturn %3 as \"y\"\n",
     "f32[rows, 14]", 0},
    {"sums over the rows beside them",
     P("x", "f32[@, 4]") "%0 = reduce(%x) {dims = [0], reducer = add} : f32[4]\n"
                         "%1 = dot_general(%x, %x) {lhs_contract = [0], rhs_contract = [0]} : "
                         "f32[4, 4]\n"
                         "%2 = negate(%x) : f32[@, 4]\n"
                         "return %2 as \"y\", %0 as \"sum\", %1 as \"square\"\n",
     "f32[rows, 4]", 0},
    {"a program without a batch in its second result, and numbers first",
     P("x", "f32[@, 4]")
         P("w", "f32[4]") "%0 = reduce(%x) {dims = [0, 1], reducer = add} : f32[]\n"
                          "%1 = layer_norm(%x, %w, %w) {axis = 1, eps = 1e-05} : f32[@, 4]\n"
                          "return %0 as \"loss\", %1 as \"y\", %w as \"w\"\n",
     "f32[rows, 4]", 0},
    {"all pairs of rows",
     P("x", "f32[@, 4]") "%0 = dot_general(%x, %x) {lhs_contract = [1], rhs_contract = [1]} : "
                         "f32[@, @]\n"
                         "return %0 as \"y\"\n",
     "f32[rows, rows]", 0},
};
static const int64_t rows_tried[] = {1, 2, 3, 7, 16, 64};

static char *with_rows(sx_ctx *cx, const char *text, int64_t rows)
{
    sx_buf out;
    sx_buf_init(&out, 1 << 16);
    sx_buf_put_text(&out, HEAD);
    for (const char *p = text; *p != '\0'; p++) {
        int64_t times = *p == '@' ? 1 : *p == '$' ? 4 : *p == '#' ? 5 : 0;
        if (times > 0) {
            sx_buf_print(&out, "%lld", (long long)(times * rows));
        } else {
            sx_buf_put(&out, p, 1);
        }
    }
    sx_buf_put_text(&out, "}\n");
    char *copy = sx_alloc_text(cx, sx_buf_span(&out));
    ck_assert_ptr_nonnull(copy);
    sx_buf_fini(&out);
    return copy;
}

/* With the number in place of the symbol it is the program that was given. */
static void expect_same(sx_ctx *cx, const sx_graph *graph, const sx_general *general)
{
    sx_graph *bound;
    sx_key was, is;
    const sx_binding binding = {SX_SPAN_LITERAL(SX_GENERAL_SYMBOL), general->rows};
    ck_sx_ok(cx, sx_graph_bind(cx, general->graph, &binding, 1, &bound));
    ck_sx_ok(cx, sx_graph_key(cx, graph, &was));
    ck_sx_ok(cx, sx_graph_key(cx, bound, &is));
    ck_assert_mem_eq(was.byte, is.byte, sizeof(was.byte));
}

START_TEST(programs_for_all_batches_are_one)
{
    sx_ctx cx;
    sx_buf first, text;
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_buf_init(&first, 1 << 16);
    sx_buf_init(&text, 1 << 16);
    for (uint32_t i = families[_i].first; i < SX_COUNT(rows_tried); i++) {
        sx_general general;
        const sx_graph *graph =
            sx_test_parse(&cx, with_rows(&cx, families[_i].text, rows_tried[i]));
        ck_sx_ok(&cx, sx_graph_generalise(&cx, graph, &general));
        ck_assert_msg(general.graph != NULL, "%s, %lld rows: %s", families[_i].name,
                      (long long)rows_tried[i], general.why);
        ck_assert_int_eq(general.rows, rows_tried[i]);
        expect_same(&cx, graph, &general);
        sx_buf_clear(&text);
        ck_sx_ok(&cx, sx_graph_print(&cx, general.graph, first.len == 0 ? &first : &text));
        ck_assert_msg(text.len == 0 || sx_span_equal(sx_buf_span(&first), sx_buf_span(&text)),
                      "%s: of few rows\n%.*s\nof %lld rows\n%.*s", families[_i].name,
                      (int)first.len, (const char *)first.ptr, (long long)rows_tried[i],
                      (int)text.len, (const char *)text.ptr);
    }
    sx_buf_put(&first, "", 1);
    ck_assert_msg(strstr((const char *)first.ptr, families[_i].rows) != NULL, "%s: %s in\n%s",
                  families[_i].name, families[_i].rows, (const char *)first.ptr);
    sx_buf_fini(&first);
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

/* A state of [layers, batch, width], as those of recurrent networks are: from two rows on. */
START_TEST(ones_in_front_of_the_rows)
{
    static const char *const text =
        P("x", "f32[@, 4]") P("h", "f32[1, @, 4]") "%0 = reshape(%h) : f32[@, 4]\n"
                                                   "%1 = add(%x, %0) : f32[@, 4]\n"
                                                   "%2 = reshape(%1) : f32[1, @, 4]\n"
                                                   "return %1 as \"y\", %2 as \"h\"\n";
    for (int64_t rows = 2; rows < 9; rows++) {
        sx_ctx cx;
        sx_general general;
        sx_ctx_init(&cx, (size_t)1 << 24);
        const sx_graph *graph = sx_test_parse(&cx, with_rows(&cx, text, rows));
        ck_sx_ok(&cx, sx_graph_generalise(&cx, graph, &general));
        ck_assert_msg(general.graph != NULL, "%s", general.why);
        ck_assert_int_eq(general.rows, rows);
        const sx_type *h = &general.graph->node[1].type;
        ck_assert(sx_dim_is_constant(h->dim[0]) && !sx_dim_is_constant(h->dim[1]));
        expect_same(&cx, graph, &general);
        sx_ctx_fini(&cx);
    }
}
END_TEST

static const struct {
    const char *text, *why;
} refused[] = {
    {P("x", "f32[]") "return %x as \"y\"\n", "single numbers"},
    {W("w", "f32[4, 8]")
         P("x",
           "f32[8]") "%0 = dot_general(%w, %x) {lhs_contract = [1], rhs_contract = [0]} : f32[4]\n"
                     "return %0 as \"y\"\n",
     "one of weights"},
    {P("x", "f32[]") "%0 = broadcast_in_dim(%x) {dims = []} : f32[4]\nreturn %0 as \"y\"\n",
     "one of no input"},
    {P("x", "f32[0, 4]") "return %x as \"y\"\n", "no rows"},
    /* what one row has depends on how many there are */
    {P("x", "f32[2, 2]") "%0 = constant {data = [1, 2, 3, 4]} : f32[2, 2]\n%1 = add(%x, %0) : "
                         "f32[2, 2]\n"
                         "return %1 as \"y\"\n",
     "data"},
    /* a row is taken by its number, and is put beside all */
    {P("x",
       "f32[4, 2]") "%0 = slice(%x) {start = [1, 0], limit = [3, 2], stride = [1, 1]} : f32[2, 2]\n"
                    "%1 = concatenate(%0, %0) {axis = 0} : f32[4, 2]\n%2 = add(%1, %x) : f32[4, "
                    "2]\n"
                    "return %2 as \"y\"\n",
     "slice"},
    {P("x", "f32[4]") "%0 = cond(%p, %x) {then = graph {\n" P(
         "x", "f32[4]") "return %x as \"y\"}, "
                        "otherwise = graph {\n" P("x", "f32[4]") "return %x as \"y\"}} : f32[4]\n"
                                                                 "return %0 as \"y\"\n",
     "inside"},
};

START_TEST(what_has_no_rows_says_why)
{
    sx_ctx cx;
    sx_general general;
    sx_buf text;
    sx_ctx_init(&cx, (size_t)1 << 24);
    sx_buf_init(&text, 1 << 16);
    bool cond = strstr(refused[_i].text, "cond") != NULL;
    sx_buf_print(&text, "%s%s%s}\n", HEAD, cond ? P("p", "bool[]") : "", refused[_i].text);
    const sx_graph *graph = sx_test_parse(&cx, sx_alloc_text(&cx, sx_buf_span(&text)));
    ck_sx_ok(&cx, sx_graph_generalise(&cx, graph, &general));
    ck_assert(general.graph == NULL && cx.error.code == SX_OK);
    ck_assert_msg(general.why != NULL && strstr(general.why, refused[_i].why) != NULL, "%s: %s",
                  refused[_i].why, general.why);
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

/* Programs of all operations at random: what is generalised is the same program. */
START_TEST(random_programs_stay_what_they_are)
{
    sx_rng rng = {sx_test_seed()};
    sx_gen_options options = sx_gen_default();
    uint32_t trials = sx_test_trials(400), count = 0;
    options.symbols = 0;
    options.node_count = 8;
    options.empties = true;
    for (uint32_t op = 0; op < SX_OP_COUNT; op++) {
        sx_op_class op_class = sx_op_info_of((sx_op)op)->op_class;
        if (op_class == SX_OPCLASS_COLLECTIVE || op_class == SX_OPCLASS_FUSED) {
            sx_bits_drop(&options.ops, op);
        }
    }
    for (uint32_t trial = 0; trial < trials; trial++) {
        sx_ctx cx;
        sx_general general;
        sx_ctx_init(&cx, (size_t)1 << 26);
        const sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        ck_sx_ok(&cx, sx_graph_generalise(&cx, graph, &general));
        ck_assert((general.graph == NULL) == (general.why != NULL));
        if (general.graph != NULL) {
            count++;
            expect_same(&cx, graph, &general);
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_msg(count > trials / 20, "%u of %u programs were generalised", count, trials);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("general");
    TCase *tcase = tcase_create("rows");
    tcase_add_loop_test(tcase, programs_for_all_batches_are_one, 0, SX_COUNT(families));
    tcase_add_test(tcase, ones_in_front_of_the_rows);
    tcase_add_loop_test(tcase, what_has_no_rows_says_why, 0, SX_COUNT(refused));
    tcase_add_test(tcase, random_programs_stay_what_they_are);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
