#include <stdio.h>
#include <string.h>

#include "client/import/import.h"
#include "core/eval/eval.h"
#include "tests/client/import/onnx_make.h"
#include "tests/lib/test.h"

/* Shape computations folded while importing, also over symbolic extents; what becomes a constant and what a weight. */

typedef struct {
    sx_ctx cx;
    onnx_make m;
    sx_graph *graph;
    sx_weights *weights;
} fixture;

static void begin(fixture *f)
{
    sx_ctx_init(&f->cx, 64 << 20);
    make_begin(&f->m);
}

static void end(fixture *f)
{
    make_free(&f->m);
    sx_ctx_fini(&f->cx);
}

static sx_code import(fixture *f, int64_t opset)
{
    return sx_onnx_import(&f->cx, make_end(&f->m, opset), NULL, &f->graph, &f->weights);
}

/* Output 0 has this type as text. */
static void want_type(fixture *f, const char *wanted)
{
    sx_buf text;
    sx_buf_init(&text, 4096);
    const sx_node *node = sx_graph_node(f->graph, f->graph->output[0].node);
    sx_type_print(&node->type, f->graph->symbol, f->graph->symbol_count, &text);
    ck_assert_msg(sx_span_is(sx_buf_span(&text), wanted), "type is %.*s, %s wanted", (int)text.len,
                  (const char *)text.ptr, wanted);
    ck_sx_ok(&f->cx, sx_graph_check(&f->cx, f->graph));
    sx_buf_fini(&text);
}

/* The graph in its text form contains `part`. */
static void want_text(fixture *f, const char *part, bool present)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    ck_sx_ok(&f->cx, sx_graph_print(&f->cx, f->graph, &text));
    sx_buf_put_u8(&text, 0);
    ck_assert_msg((strstr((const char *)text.ptr, part) != NULL) == present, "'%s' in:\n%s", part,
                  (const char *)text.ptr);
    sx_buf_fini(&text);
}

/* A known extent cast to float, as in the scale of attention, is a number and no i64 tensor. */
START_TEST(test_cast)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,3,24");
    make_node(&f.m, "Shape", "x", "shape");
    make_ints(&f.m, "places", "2,1");
    make_node(&f.m, "Gather", "shape,places", "extent");
    make_attr_int(&f.m, "to", SX_ONNX_FLOAT);
    make_node(&f.m, "Cast", "extent", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "2");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[2]");
    want_text(&f, "constant {data = [24, 3]} : f32[2]", true);
    want_text(&f, "i64", false);
    end(&f);
}
END_TEST

/* batch and sequence from the input, as exporters split heads. */
START_TEST(test_two_symbols)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,seq,32");
    make_int_scalar(&f.m, "zero", 0);
    make_int_scalar(&f.m, "one", 1);
    make_ints(&f.m, "axis0", "0");
    make_ints(&f.m, "heads", "4");
    make_ints(&f.m, "rest", "-1");
    make_node(&f.m, "Shape", "x", "s");
    make_node(&f.m, "Gather", "s,zero", "b");
    make_node(&f.m, "Gather", "s,one", "q");
    make_node(&f.m, "Unsqueeze", "b,axis0", "b1");
    make_node(&f.m, "Unsqueeze", "q,axis0", "q1");
    make_attr_int(&f.m, "axis", 0);
    make_node(&f.m, "Concat", "b1,q1,heads,rest", "t");
    make_node(&f.m, "Reshape", "x,t", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "batch,seq,4,8");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[batch, seq, 4, 8]");
    want_text(&f, "constant", false);
    end(&f);
}
END_TEST

/* expand of older exporters: Where(shape == -1, 1, shape). */
START_TEST(test_where_equal_expand)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,1");
    make_input(&f.m, "like", SX_ONNX_FLOAT, "batch,7");
    make_ints(&f.m, "minus", "-1");
    make_node(&f.m, "Shape", "like", "s");
    make_node(&f.m, "Shape", "s", "n");
    sx_buf one = make_tensor("", SX_ONNX_INT64, "1", &(int64_t){1}, sizeof(int64_t));
    make_attr_tensor(&f.m, "value", &one);
    make_node(&f.m, "ConstantOfShape", "n", "ones");
    make_node(&f.m, "Mul", "ones,minus", "minuses");
    make_node(&f.m, "Equal", "s,minuses", "e");
    make_node(&f.m, "Where", "e,ones,s", "t");
    make_node(&f.m, "Expand", "x,t", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "batch,7");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[batch, 7]");
    end(&f);
}
END_TEST

START_TEST(test_arithmetic)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,6");
    make_ints(&f.m, "two", "2");
    make_ints(&f.m, "six", "6");
    make_ints(&f.m, "first", "0");
    make_ints(&f.m, "second", "1");
    make_ints(&f.m, "three", "3");
    make_node(&f.m, "Shape", "x", "s");
    make_node(&f.m, "Slice", "s,first,second", "b");
    make_node(&f.m, "Mul", "b,six", "b6");     /* 6 batch */
    make_node(&f.m, "Div", "b6,two", "b3");    /* 3 batch */
    make_node(&f.m, "Sub", "b3,b", "b2");      /* 2 batch */
    make_node(&f.m, "Max", "b2,second", "m2"); /* batch >= 1 */
    make_attr_int(&f.m, "axis", 0);
    make_node(&f.m, "Concat", "m2,three", "t");
    make_node(&f.m, "Reshape", "x,t", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "?,3");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[2*batch, 3]");
    end(&f);
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,6");
    make_ints(&f.m, "three", "3");
    make_ints(&f.m, "axis0", "0");
    make_node(&f.m, "Size", "x", "n");      /* 6 batch */
    make_node(&f.m, "Div", "n,three", "h"); /* 2 batch */
    make_attr_int(&f.m, "axis", 0);
    make_node(&f.m, "Concat", "h,three", "t");
    make_node(&f.m, "Reshape", "x,t", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "?,3");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[2*batch, 3]");
    end(&f);
}
END_TEST

/* As a framework writes the third part of a tensor that holds three: from 2 mod 3 on. */
START_TEST(test_remainder)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "6,4");
    make_ints(&f.m, "five", "5");
    make_ints(&f.m, "three", "3");
    make_ints(&f.m, "axis0", "0");
    make_node(&f.m, "Mod", "five,three", "rest");
    make_node(&f.m, "Slice", "x,rest,five,axis0", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "3,4");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_text(&f, "start = [2, 0], limit = [5, 4]", true);
    end(&f);
}
END_TEST

START_TEST(test_flatten)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,3,4");
    make_node(&f.m, "Flatten", "x", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "batch,12");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[batch, 12]");
    end(&f);
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,seq,4");
    make_attr_int(&f.m, "axis", 2);
    make_node(&f.m, "Flatten", "x", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "?,4");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[batch*seq, 4]");
    end(&f);
}
END_TEST

/* What exporters write for rows of a batch, and for a cache that what comes is put behind. */
START_TEST(test_sums)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,seq,4");
    make_ints(&f.m, "rows", "-1,4");
    make_node(&f.m, "Reshape", "x,rows", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "batch*seq,4");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[batch*seq, 4]");
    end(&f);
    begin(&f);
    make_input(&f.m, "cache", SX_ONNX_FLOAT, "batch,past,4");
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,seq,4");
    make_input(&f.m, "mask", SX_ONNX_FLOAT, "batch,seq + past,1");
    make_attr_int(&f.m, "axis", 1);
    make_node(&f.m, "Concat", "cache,x", "keys");
    make_node(&f.m, "Mul", "keys,mask", "masked");
    make_ints(&f.m, "rows", "-1,2");
    make_node(&f.m, "Reshape", "masked,rows", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "n,2");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[2*batch*past + 2*batch*seq, 2]");
    end(&f);
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "past + 1,2*heads");
    make_ints(&f.m, "one", "1");
    make_ints(&f.m, "first", "0");
    make_node(&f.m, "Shape", "x", "shape");
    make_node(&f.m, "Gather", "shape,first", "all");
    make_node(&f.m, "Sub", "all,one", "past");
    make_node(&f.m, "Mul", "past,all", "square");
    make_node(&f.m, "ConstantOfShape", "square", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "n");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[past*past + past]");
    end(&f);
}
END_TEST

/* A name that merely has such letters in it, and a sum that may be nothing, are names. */
START_TEST(test_names_of_sums)
{
    static const struct {
        const char *dim, *type;
    } row[] = {{"batch-size", "f32[batch_size]"},
               {"a+b", "f32[a_b]"},
               {"floor(a/2) + 1", "f32[floor_a_2____1]"},
               {"a - 1", "f32[a___1]"},
               {"a + 2 - 1", "f32[a + 1]"},
               {"a*3*b + a", "f32[3*a*b + a]"},
               {"a*2", "f32[2*a]"},
               {"a * b", "f32[a___b]"}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        fixture f;
        begin(&f);
        make_input(&f.m, "x", SX_ONNX_FLOAT, row[i].dim);
        make_node(&f.m, "Relu", "x", "y");
        make_output(&f.m, "y", SX_ONNX_FLOAT, row[i].dim);
        ck_sx_ok(&f.cx, import(&f, 13));
        want_type(&f, row[i].type);
        end(&f);
    }
}
END_TEST

START_TEST(test_symbolic_slice)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,6");
    make_ints(&f.m, "zero", "0,1");
    make_ints(&f.m, "far", "9223372036854775807,5");
    make_node(&f.m, "Slice", "x,zero,far", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "batch,4");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[batch, 4]");
    end(&f);
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,6");
    make_ints(&f.m, "one", "1");
    make_ints(&f.m, "far", "9223372036854775807");
    make_node(&f.m, "Slice", "x,one,far", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "?,6");
    ck_sx_fails(&f.cx, import(&f, 13), SX_UNIMPLEMENTED,
                "a part of the extent batch that is not inside");
    end(&f);
}
END_TEST

/* A cache grows by what comes; then parts of it are taken, whose ends are extents, count from the end, or are of a
 * table. Each as numbers that say the same in NumPy. */
START_TEST(test_slices_of_sums)
{
    static const struct {
        const char *x, *start, *end, *type;
        int64_t first, count; /* where past is 5 and seq is 3 */
    } row[] = {{"all", "0", "past", "f32[past]", 0, 5},
               {"all", "past", "far", "f32[seq]", 5, 3},
               {"all", "past", "sum", "f32[seq]", 5, 3},
               {"all", "-1", "far", "f32[1]", 7, 1},
               {"all", "1", "far", "f32[past + seq - 1]", 1, 7},
               {"all", "0", "-1", "f32[past + seq - 1]", 0, 7},
               {"all", "-100", "past", "f32[past]", 0, 5},
               {"all", "0", "sum", "f32[past + seq]", 0, 8},
               {"table", "past", "sum", "f32[seq]", 5, 3},
               {"table", "1", "sum", "f32[past + seq - 1]", 1, 7}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        fixture f;
        begin(&f);
        make_input(&f.m, "old", SX_ONNX_FLOAT, "past");
        make_input(&f.m, "new", SX_ONNX_FLOAT, "seq");
        make_input(&f.m, "table", SX_ONNX_FLOAT, "400");
        make_ints(&f.m, "0", "0");
        make_ints(&f.m, "1", "1");
        make_ints(&f.m, "-1", "-1");
        make_ints(&f.m, "-100", "-1000");
        make_ints(&f.m, "far", "9223372036854775807");
        make_attr_int(&f.m, "axis", 0);
        make_node(&f.m, "Concat", "old,new", "all");
        make_node(&f.m, "Shape", "old", "past");
        make_node(&f.m, "Shape", "all", "sum");
        char inputs[64];
        (void)snprintf(inputs, sizeof(inputs), "%s,%s,%s", row[i].x, row[i].start, row[i].end);
        make_node(&f.m, "Slice", inputs, "y");
        make_output(&f.m, "y", SX_ONNX_FLOAT, "?");
        const sx_onnx_interval interval[] = {{SX_SPAN_LITERAL("past"), 1, 200},
                                             {SX_SPAN_LITERAL("seq"), 1, 200}};
        const sx_onnx_options options = {.interval = interval, .interval_count = 2};
        ck_sx_ok(&f.cx, sx_onnx_import(&f.cx, make_end(&f.m, 13), &options, &f.graph, &f.weights));
        want_type(&f, row[i].type);
        const sx_binding binding[] = {{SX_SPAN_LITERAL("past"), 5}, {SX_SPAN_LITERAL("seq"), 3}};
        sx_graph *bound;
        ck_sx_ok(&f.cx, sx_graph_bind(&f.cx, f.graph, binding, 2, &bound));
        double data[3][400];
        sx_tensor x[3], y;
        for (uint32_t k = 0; k < 3; k++) {
            for (uint32_t e = 0; e < 400; e++) {
                data[k][e] = k == 2 ? e : 5 * k + e; /* each element of a sum is its place */
            }
            x[k] = (sx_tensor){bound->node[k].type, data[k]};
        }
        ck_sx_ok(&f.cx, sx_graph_eval(&f.cx, bound, SX_EVAL_TYPED, x, 3, &y, 1));
        ck_assert_int_eq(y.type.dim[0].scale, row[i].count);
        for (int64_t e = 0; e < row[i].count; e++) {
            ck_assert_double_eq(((double *)y.data)[e], (double)(row[i].first + e));
        }
        end(&f);
    }
}
END_TEST

/* The mean over a symbolic extent divides by a sum of ones. */
START_TEST(test_symbolic_mean)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,2");
    make_attr_ints(&f.m, "axes", "0");
    make_attr_int(&f.m, "keepdims", 0);
    make_node(&f.m, "ReduceMean", "x", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "2");
    ck_sx_ok(&f.cx, import(&f, 13));
    sx_binding binding = {SX_SPAN_LITERAL("batch"), 4};
    sx_graph *bound;
    ck_sx_ok(&f.cx, sx_graph_bind(&f.cx, f.graph, &binding, 1, &bound));
    double data[8] = {1, 10, 2, 20, 3, 30, 6, 40};
    sx_tensor x = {bound->node[0].type, data};
    sx_tensor y;
    ck_sx_ok(&f.cx, sx_graph_eval(&f.cx, bound, SX_EVAL_TYPED, &x, 1, &y, 1));
    ck_assert_double_eq(((double *)y.data)[0], 3.0);
    ck_assert_double_eq(((double *)y.data)[1], 25.0);
    end(&f);
}
END_TEST

START_TEST(test_extent_as_data)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,2");
    make_node(&f.m, "Shape", "x", "s");
    make_attr_int(&f.m, "to", SX_ONNX_FLOAT);
    make_node(&f.m, "Cast", "s", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "2");
    ck_sx_fails(&f.cx, import(&f, 13), SX_UNIMPLEMENTED,
                "node 1 'here' (Cast, opset 13): tensor 's': the extent batch is used as data");
    end(&f);
}
END_TEST

START_TEST(test_names_of_dimensions)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "a.b/c,?");
    make_node(&f.m, "Relu", "x", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "other,names");
    ck_sx_ok(&f.cx, import(&f, 13));
    want_type(&f, "f32[a_b_c, dim0]");
    end(&f);
}
END_TEST

/* Floats of more than one element are weights, whatever their size; single floats and integers are constants. */
START_TEST(test_weights_and_constants)
{
    fixture f;
    begin(&f);
    float two[2] = {1.5f, 2.5f};
    float one = 4.0f;
    make_input(&f.m, "x", SX_ONNX_FLOAT, "2");
    make_initializer(&f.m, "w", SX_ONNX_FLOAT, "2", two, sizeof(two));
    make_initializer(&f.m, "c", SX_ONNX_FLOAT, "", &one, sizeof(one));
    make_initializer(&f.m, "unused", SX_ONNX_FLOAT, "2", two, sizeof(two));
    make_node(&f.m, "Mul", "x,w", "t");
    make_node(&f.m, "Add", "t,c", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "2");
    ck_sx_ok(&f.cx, import(&f, 13));
    ck_assert_uint_eq(f.weights->count, 1);
    ck_assert(sx_span_is(f.weights->weight[0].name, "w"));
    ck_assert_uint_eq(f.weights->weight[0].bytes.len, sizeof(two));
    ck_assert_int_eq(memcmp(f.weights->weight[0].bytes.ptr, two, sizeof(two)), 0);
    ck_assert_ptr_null(sx_weights_find(f.weights, SX_SPAN_LITERAL("unused")));
    want_text(&f, "1.5", false);
    want_text(&f, "data = 4", true);
    end(&f);
}
END_TEST

/* An input that the caller fixes is folded and no parameter. */
START_TEST(test_fixed_input)
{
    fixture f;
    begin(&f);
    make_input(&f.m, "x", SX_ONNX_FLOAT, "batch,6");
    make_input(&f.m, "shape", SX_ONNX_INT64, "3");
    make_node(&f.m, "Reshape", "x,shape", "y");
    make_output(&f.m, "y", SX_ONNX_FLOAT, "?,2,3");
    ck_sx_fails(&f.cx, import(&f, 13), SX_UNIMPLEMENTED, "shape 'shape' is not known before");
    int64_t shape[3] = {-1, 2, 3};
    sx_onnx_fixed fixed = {SX_SPAN_LITERAL("shape"), {(const uint8_t *)shape, sizeof(shape)}};
    sx_onnx_options options = {.fixed = &fixed, .fixed_count = 1};
    ck_sx_ok(&f.cx, sx_onnx_import(&f.cx, make_end(&f.m, 13), &options, &f.graph, &f.weights));
    want_type(&f, "f32[batch, 2, 3]");
    end(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("onnx fold");
    TCase *tcase = tcase_create("fold");
    tcase_add_test(tcase, test_cast);
    tcase_add_test(tcase, test_two_symbols);
    tcase_add_test(tcase, test_where_equal_expand);
    tcase_add_test(tcase, test_arithmetic);
    tcase_add_test(tcase, test_remainder);
    tcase_add_test(tcase, test_flatten);
    tcase_add_test(tcase, test_sums);
    tcase_add_test(tcase, test_names_of_sums);
    tcase_add_test(tcase, test_symbolic_slice);
    tcase_add_test(tcase, test_slices_of_sums);
    tcase_add_test(tcase, test_symbolic_mean);
    tcase_add_test(tcase, test_extent_as_data);
    tcase_add_test(tcase, test_names_of_dimensions);
    tcase_add_test(tcase, test_weights_and_constants);
    tcase_add_test(tcase, test_fixed_input);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
