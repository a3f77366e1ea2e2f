#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/import/import.h"
#include "core/base/rng.h"
#include "tests/client/import/onnx_make.h"
#include "tests/lib/sweep.h"
#include "tests/lib/test.h"

/* What is not a model, or not one that can be imported: an error that names the thing, never a crash. */

#define F SX_ONNX_FLOAT

/* ---- models with one thing wrong ---- */

static void x_to_y(onnx_make *m, const char *dims)
{
    make_input(m, "x", F, dims);
    make_output(m, "y", F, "?");
}

static void cycle(onnx_make *m)
{
    x_to_y(m, "3");
    make_node(m, "Add", "x,b", "a");
    make_node(m, "Add", "x,a", "b");
    make_node(m, "Relu", "a", "y");
}

static void duplicate_output(onnx_make *m)
{
    x_to_y(m, "3");
    make_node(m, "Relu", "x", "y");
    make_node(m, "Abs", "x", "y");
}

static void duplicate_input(onnx_make *m)
{
    x_to_y(m, "3");
    make_input(m, "x", F, "3");
    make_node(m, "Relu", "x", "y");
}

static void duplicate_initializer(onnx_make *m)
{
    x_to_y(m, "3");
    make_ints(m, "s", "1");
    make_ints(m, "s", "1");
    make_node(m, "Reshape", "x,s", "y");
}

static void listed_twice(onnx_make *m)
{
    x_to_y(m, "3");
    make_output(m, "y", F, "3");
    make_node(m, "Relu", "x", "y");
}

static void no_output(onnx_make *m)
{
    make_input(m, "x", F, "3");
    make_node(m, "Relu", "x", "y");
}

static void output_of_nobody(onnx_make *m)
{
    x_to_y(m, "3");
    make_node(m, "Relu", "x", "z");
}

static void huge_input(onnx_make *m)
{
    x_to_y(m, "1099511627776,1099511627776");
    make_node(m, "Relu", "x", "y");
}

static void huge_extent(onnx_make *m)
{
    x_to_y(m, "3,9223372036854775807");
    make_node(m, "Relu", "x", "y");
}

static void huge_initializer(onnx_make *m)
{
    x_to_y(m, "3");
    make_initializer(m, "w", F, "4294967296,4294967296,4294967296", "", 0);
    make_node(m, "Add", "x,w", "y");
}

static void huge_result(onnx_make *m)
{
    x_to_y(m, "3");
    make_ints(m, "s", "1099511627776,1099511627776,3");
    make_node(m, "Expand", "x,s", "y");
}

static void negative_input(onnx_make *m)
{
    x_to_y(m, "4,-1");
    make_node(m, "Relu", "x", "y");
}

static void zero_initializer(onnx_make *m)
{
    x_to_y(m, "3");
    make_initializer(m, "w", F, "3,0", "", 0);
    make_node(m, "Add", "x,w", "y");
}

static void negative_initializer(onnx_make *m)
{
    x_to_y(m, "3");
    make_initializer(m, "w", F, "-3", "", 0);
    make_node(m, "Add", "x,w", "y");
}

static void unknown_dtype(onnx_make *m)
{
    make_input(m, "x", 99, "3");
    make_output(m, "y", 99, "3");
    make_node(m, "Relu", "x", "y");
}

static void unsupported_dtype(onnx_make *m)
{
    x_to_y(m, "3");
    make_initializer(m, "w", SX_ONNX_UINT64, "1", "12345678", 8);
    make_node(m, "Add", "x,w", "y");
}

static void short_data(onnx_make *m)
{
    x_to_y(m, "3");
    make_initializer(m, "w", F, "3", "12345678", 8);
    make_node(m, "Add", "x,w", "y");
}

static void typed_data_missing(onnx_make *m)
{
    x_to_y(m, "3");
    sx_buf tensor = make_buf();
    make_int(&tensor, 1, 3);
    make_int(&tensor, 2, F);
    make_text(&tensor, 8, "w");
    make_bytes(&tensor, 4, "abcdefgh", 8); /* float_data, packed: two of three */
    make_message(&m->graph, 5, &tensor);
    make_node(m, "Add", "x,w", "y");
}

static void bool_of_two(onnx_make *m)
{
    x_to_y(m, "3");
    make_initializer(m, "c", SX_ONNX_BOOL, "3", "\0\1\2", 3);
    make_node(m, "Where", "c,x,x", "y");
}

static void rank_nine(onnx_make *m)
{
    x_to_y(m, "1,1,1,1,1,1,1,1,1");
    make_node(m, "Relu", "x", "y");
}

static void unknown_operator(onnx_make *m)
{
    x_to_y(m, "3");
    make_node(m, "Frobnicate", "x", "y");
}

static void resize(onnx_make *m, const char *attribute, const char *value, bool sizes)
{
    static const float scale[2] = {2.0f, 0.1f};
    x_to_y(m, "2,4");
    make_initializer(m, "s", F, "2", scale, sizeof(scale));
    make_ints(m, "z", "4,0");
    make_attr_text(m, attribute, value);
    make_node(m, "Resize", sizes ? "x,,,z" : "x,,s", "y");
}

static void resize_cubic(onnx_make *m)
{
    resize(m, "mode", "cubic", false);
}

static void resize_crop(onnx_make *m)
{
    resize(m, "coordinate_transformation_mode", "tf_crop_and_resize", false);
}

static void resize_policy(onnx_make *m)
{
    resize(m, "keep_aspect_ratio_policy", "not_larger", true);
}

static void resize_antialias(onnx_make *m)
{
    make_attr_int(m, "antialias", 1);
    resize(m, "mode", "linear", false);
}

static void resize_misspelt(onnx_make *m)
{
    resize(m, "nearest_mode", "round", false);
}

static void resize_to_nothing(onnx_make *m)
{
    resize(m, "mode", "nearest", false);
}

static void resize_to_size_nothing(onnx_make *m)
{
    resize(m, "mode", "linear", true);
}

static void resize_unknown(onnx_make *m)
{
    make_input(m, "s", F, "2");
    x_to_y(m, "2,4");
    make_node(m, "Resize", "x,,s", "y");
}

static void resize_nowhere(onnx_make *m)
{
    x_to_y(m, "2,4");
    make_node(m, "Resize", "x", "y");
}

static void upsample_one_scale(onnx_make *m)
{
    static const float scale = 2.0f;
    x_to_y(m, "2,4");
    make_initializer(m, "s", F, "1", &scale, sizeof(scale));
    make_node(m, "Upsample", "x,s", "y");
}

static void upsample_nan(onnx_make *m)
{
    static const uint32_t scale[2] = {0x3f800000, 0x7fc00000};
    x_to_y(m, "2,4");
    make_initializer(m, "s", F, "2", scale, sizeof(scale));
    make_node(m, "Upsample", "x,s", "y");
}

static void kernel_too_long(onnx_make *m)
{
    x_to_y(m, "1,1,5,5");
    make_input(m, "w", F, "1,1,3,7");
    make_node(m, "Conv", "x,w", "y");
}

static void kernel_too_flat(onnx_make *m)
{
    x_to_y(m, "1,1,5,5");
    make_input(m, "w", F, "1,1,3");
    make_node(m, "Conv", "x,w", "y");
}

static void pool_without_kernel(onnx_make *m)
{
    x_to_y(m, "1,1,5,5");
    make_node(m, "MaxPool", "x", "y");
}

static void pool_of_a_symbol(onnx_make *m)
{
    x_to_y(m, "1,1,side");
    make_attr_ints(m, "kernel_shape", "3");
    make_node(m, "AveragePool", "x", "y");
}

static void operator_too_new(onnx_make *m)
{
    x_to_y(m, "3");
    make_node(m, "Gelu", "x", "y");
}

static void foreign_domain(onnx_make *m)
{
    x_to_y(m, "3");
    make_node_in(m, "com.example", "Relu", "x", "y");
}

static void unknown_attribute(onnx_make *m)
{
    x_to_y(m, "3");
    make_attr_int(m, "sideways", 1);
    make_node(m, "Relu", "x", "y");
}

static void wrong_attribute_type(onnx_make *m)
{
    x_to_y(m, "3");
    make_attr_text(m, "axis", "one");
    make_node(m, "Softmax", "x", "y");
}

static void subgraph(onnx_make *m)
{
    x_to_y(m, "3");
    sx_buf attr = make_buf();
    make_text(&attr, 1, "body");
    make_text(&attr, 6, "");
    make_int(&attr, 20, SX_ONNX_ATTR_GRAPH);
    make_message(&m->attrs, 5, &attr);
    make_node(m, "Identity", "x", "y");
}

/* The node y = If(p) with branches of these nodes; NULL: the branch is left out. */
static void put_if(onnx_make *m, const char *name, const char *op, const char *from, bool cut)
{
    onnx_make inner;
    make_begin(&inner);
    make_node(&inner, op, from, "r");
    make_output(&inner, "r", SX_ONNX_FLOAT, "3");
    sx_buf attr = make_buf();
    make_text(&attr, 1, name);
    make_bytes(&attr, 6, inner.graph.ptr, inner.graph.len - (cut ? 1 : 0));
    make_int(&attr, 20, SX_ONNX_ATTR_GRAPH);
    make_message(&m->attrs, 5, &attr);
    make_free(&inner);
}

static void conditional(onnx_make *m, const char *type)
{
    x_to_y(m, "3");
    make_input(m, "p", strcmp(type, "bool") == 0 ? SX_ONNX_BOOL : SX_ONNX_FLOAT, "1");
}

static void if_without_else(onnx_make *m)
{
    conditional(m, "bool");
    put_if(m, "then_branch", "Identity", "x", false);
    make_node(m, "If", "p", "y");
}

static void if_of_a_number(onnx_make *m)
{
    conditional(m, "float");
    put_if(m, "then_branch", "Identity", "x", false);
    put_if(m, "else_branch", "Neg", "x", false);
    make_node(m, "If", "p", "y");
}

static void if_cut_off(onnx_make *m)
{
    conditional(m, "bool");
    put_if(m, "then_branch", "Identity", "x", false);
    put_if(m, "else_branch", "Neg", "x", true);
    make_node(m, "If", "p", "y");
}

static void if_of_nothing(onnx_make *m)
{
    conditional(m, "bool");
    put_if(m, "then_branch", "Identity", "z", false);
    put_if(m, "else_branch", "Neg", "x", false);
    make_node(m, "If", "p", "y");
}

static void if_of_many(onnx_make *m)
{
    conditional(m, "bool");
    put_if(m, "then_branch", "Identity", "x", false);
    put_if(m, "else_branch", "Neg", "x", false);
    make_node(m, "If", "p", "y,z");
}

static void if_inside_itself(onnx_make *m)
{
    conditional(m, "bool");
    sx_buf graph = make_buf();
    for (uint32_t depth = 0; depth < 10; depth++) {
        onnx_make inner;
        make_begin(&inner);
        for (uint32_t k = 0; depth > 0 && k < 2; k++) {
            sx_buf attr = make_buf();
            make_text(&attr, 1, k == 0 ? "then_branch" : "else_branch");
            make_bytes(&attr, 6, graph.ptr, graph.len);
            make_int(&attr, 20, SX_ONNX_ATTR_GRAPH);
            make_message(&inner.attrs, 5, &attr);
        }
        make_node(&inner, depth == 0 ? "Identity" : "If", depth == 0 ? "x" : "p", "r");
        make_output(&inner, "r", SX_ONNX_FLOAT, "3");
        sx_buf_clear(&graph);
        sx_buf_put_span(&graph, sx_buf_span(&inner.graph));
        make_free(&inner);
    }
    for (uint32_t k = 0; k < 2; k++) {
        sx_buf attr = make_buf();
        make_text(&attr, 1, k == 0 ? "then_branch" : "else_branch");
        make_bytes(&attr, 6, graph.ptr, graph.len);
        make_int(&attr, 20, SX_ONNX_ATTR_GRAPH);
        make_message(&m->attrs, 5, &attr);
    }
    sx_buf_fini(&graph);
    make_node(m, "If", "p", "y");
}

static void axis_outside(onnx_make *m)
{
    x_to_y(m, "3,4");
    make_attr_int(m, "axis", 2);
    make_node(m, "Softmax", "x", "y");
}

static void unequal_extents(onnx_make *m)
{
    x_to_y(m, "3,4");
    make_input(m, "b", F, "5");
    make_node(m, "Add", "x,b", "y");
}

static void symbol_and_number(onnx_make *m)
{
    x_to_y(m, "3,batch");
    make_input(m, "b", F, "5");
    make_node(m, "Add", "x,b", "y");
}

static void unequal_types(onnx_make *m)
{
    x_to_y(m, "3");
    make_input(m, "b", SX_ONNX_INT64, "3");
    make_node(m, "Add", "x,b", "y");
}

static void unequal_contraction(onnx_make *m)
{
    x_to_y(m, "3,4");
    make_input(m, "b", F, "5,6");
    make_node(m, "MatMul", "x,b", "y");
}

static void too_few_inputs(onnx_make *m)
{
    x_to_y(m, "3");
    make_node(m, "Add", "x", "y");
}

static void input_left_out(onnx_make *m)
{
    x_to_y(m, "3");
    make_node(m, "Add", ",x", "y");
}

static void declared_otherwise(onnx_make *m)
{
    make_input(m, "x", F, "3,4");
    make_output(m, "y", F, "4,3");
    make_node(m, "Relu", "x", "y");
}

static void declared_other_type(onnx_make *m)
{
    make_input(m, "x", F, "3");
    make_output(m, "y", SX_ONNX_INT64, "3");
    make_node(m, "Relu", "x", "y");
}

static void reshape_misfit(onnx_make *m)
{
    x_to_y(m, "3,4");
    make_ints(m, "s", "5,-1");
    make_node(m, "Reshape", "x,s", "y");
}

static void gather_outside(onnx_make *m)
{
    x_to_y(m, "3,4");
    make_int_scalar(m, "i", 3);
    make_node(m, "Gather", "x,i", "y");
}

static void extreme_of_nothing(onnx_make *m)
{
    x_to_y(m, "3,0");
    make_attr_int(m, "axis", 1);
    make_node(m, "ArgMax", "x", "y");
}

static void runtime_shape(onnx_make *m)
{
    x_to_y(m, "3,4");
    make_input(m, "s", SX_ONNX_INT64, "2");
    make_node(m, "Reshape", "x,s", "y");
}

static void equation_garbage(onnx_make *m)
{
    x_to_y(m, "3,4");
    make_attr_text(m, "equation", "i%->.");
    make_node(m, "Einsum", "x", "y");
}

static void name_not_utf8(onnx_make *m)
{
    x_to_y(m, "3");
    make_node(m, "Relu", "x", "y\xc3(");
}

static void external_data(onnx_make *m)
{
    x_to_y(m, "3");
    sx_buf entry = make_buf();
    make_text(&entry, 1, "location");
    make_text(&entry, 2, "weights.bin");
    sx_buf tensor = make_buf();
    make_int(&tensor, 1, 3);
    make_int(&tensor, 2, F);
    make_text(&tensor, 8, "w");
    make_message(&tensor, 13, &entry);
    make_int(&tensor, 14, 1);
    make_message(&m->graph, 5, &tensor);
    make_node(m, "Add", "x,w", "y");
}

static const struct {
    void (*build)(onnx_make *m);
    int64_t opset;
    sx_code code;
    const char *text;
} bad[] = {
    {cycle, 13, SX_INPUT, "node 0 'here' (Add, opset 13): input 'b' is made by no earlier node"},
    {duplicate_output, 13, SX_INPUT, "node 1 'here' (Abs, opset 13): tensor 'y' is defined twice"},
    {duplicate_input, 13, SX_INPUT, "tensor 'x' is defined twice"},
    {duplicate_initializer, 13, SX_INPUT, "tensor 's' is defined twice"},
    {listed_twice, 13, SX_INPUT, "output 'y' is listed twice"},
    {no_output, 13, SX_INPUT, "the graph has no outputs"},
    {output_of_nobody, 13, SX_INPUT, "output 'y' is made by no node"},
    {huge_input, 13, SX_LIMIT, "more than 4398046511104 elements at axis 1"},
    {huge_extent, 13, SX_LIMIT, "input 'x': axis 1 has extent 9223372036854775807"},
    {huge_initializer, 13, SX_LIMIT, "tensor 'w': axis 1 has extent 4294967296"},
    {huge_result, 13, SX_LIMIT, "node 0 'here' (Expand, opset 13)"},
    {negative_input, 13, SX_INPUT, "input 'x': axis 1 has extent -1"},
    {zero_initializer, 13, SX_INPUT, "node 0 'here' (Add, opset 13)"},
    {negative_initializer, 13, SX_INPUT, "tensor 'w': axis 0 has extent -3"},
    {unknown_dtype, 13, SX_INPUT, "input 'x': element type 99 is not one of ONNX"},
    {unsupported_dtype, 13, SX_UNIMPLEMENTED, "initializer 0 'w': elements of type uint64"},
    {short_data, 13, SX_INPUT, "tensor 'w': 8 bytes of data, 3 elements of 4 bytes wanted"},
    {typed_data_missing, 13, SX_INPUT, "tensor 'w': 2 elements of data, 3 wanted"},
    {bool_of_two, 13, SX_INPUT, "tensor 'c': element 2 is 2, a bool is 0 or 1"},
    {rank_nine, 13, SX_LIMIT, "'x': rank over 8"},
    {unknown_operator, 13, SX_UNIMPLEMENTED,
     "node 0 'here' (Frobnicate, opset 13): operator Frobnicate is not supported"},
    {resize_cubic, 13, SX_UNIMPLEMENTED, "node 0 'here' (Resize, opset 13): mode cubic"},
    {resize_crop, 13, SX_UNIMPLEMENTED, "coordinate_transformation_mode tf_crop_and_resize"},
    {resize_policy, 18, SX_UNIMPLEMENTED, "keep_aspect_ratio_policy not_larger"},
    {resize_antialias, 18, SX_UNIMPLEMENTED, "antialias 1"},
    {resize_misspelt, 13, SX_INPUT, "nearest_mode 'round'"},
    {resize_to_nothing, 13, SX_INPUT, "axis 1: extent 4 becomes 0"},
    {resize_to_size_nothing, 13, SX_INPUT, "axis 1: extent 4 becomes 0"},
    {resize_unknown, 13, SX_UNIMPLEMENTED, "scales 's' is not known before the run"},
    {resize_nowhere, 13, SX_INPUT, "one of scales and sizes is wanted"},
    {upsample_one_scale, 9, SX_INPUT, "(Upsample, opset 9): 1 scales for 2 axes"},
    {upsample_nan, 9, SX_INPUT, "axis 1: scale nan of extent 4"},
    {kernel_too_long, 13, SX_INPUT, "axis 3: the window covers 7 elements, the padded extent is 5"},
    {kernel_too_flat, 13, SX_INPUT, "weights of rank 3 for an input of rank 4, from 3 to 5"},
    {pool_without_kernel, 13, SX_INPUT, "(MaxPool, opset 13): attribute kernel_shape is missing"},
    {pool_of_a_symbol, 13, SX_UNIMPLEMENTED, "axis 2: windows of 3 by 1 on extent side"},
    {operator_too_new, 13, SX_UNIMPLEMENTED,
     "(Gelu, opset 13): operator Gelu is not supported at this opset"},
    {cycle, -1, SX_UNIMPLEMENTED, "opset -1, 1 to 28 supported"},
    {cycle, 99, SX_UNIMPLEMENTED, "opset 99, 1 to 28 supported"},
    {foreign_domain, 13, SX_UNIMPLEMENTED, "operator of the domain 'com.example'"},
    {unknown_attribute, 13, SX_UNIMPLEMENTED, "attribute 'sideways' is not supported"},
    {wrong_attribute_type, 13, SX_INPUT, "attribute 'axis' is of type 3, 2 wanted"},
    {subgraph, 13, SX_UNIMPLEMENTED, "attribute 'body' is a subgraph"},
    {if_without_else, 13, SX_INPUT, "attribute 'else_branch' is missing, or no graph"},
    {if_of_a_number, 13, SX_INPUT, "the condition is of f32 and rank 1, one bool is wanted"},
    {if_cut_off, 13, SX_INPUT, "(If, opset 13): onnx: "},
    {if_of_nothing, 13, SX_INPUT, "node 0 'here' (Identity, opset 13): input 'z' is made by"},
    {if_of_many, 13, SX_INPUT, "then_branch: 0 inputs, none wanted; 1 outputs, 2 wanted"},
    {if_inside_itself, 13, SX_LIMIT, "more than 8 subgraphs inside each other"},
    {axis_outside, 13, SX_INPUT, "axis 2 of a tensor of rank 2"},
    {unequal_extents, 13, SX_INPUT, "operands of extents 4 and 5 on axis 1 of 2"},
    {symbol_and_number, 13, SX_UNIMPLEMENTED, "operands of extents batch and 5 on axis 1 of 2"},
    {unequal_types, 13, SX_INPUT, "operand 1 is i64, operand 0 is f32"},
    {unequal_contraction, 13, SX_INPUT, "(MatMul, opset 13)"},
    {too_few_inputs, 13, SX_INPUT, "1 inputs, 2 to 2 wanted"},
    {input_left_out, 13, SX_INPUT, "input 0 is left out"},
    {declared_otherwise, 13, SX_INPUT, "output 'y': axis 0 is declared 4, it is 3"},
    {declared_other_type, 13, SX_INPUT, "output 'y' is declared i64, it is f32"},
    {reshape_misfit, 13, SX_INPUT, "shape: element 1 is -1 and does not follow"},
    {gather_outside, 13, SX_INPUT, "index 3, axis 0 has extent 3"},
    {extreme_of_nothing, 13, SX_INPUT, "axis 1 has no elements: none is the largest"},
    {runtime_shape, 13, SX_UNIMPLEMENTED, "shape 's' is not known before the run"},
    {equation_garbage, 13, SX_INPUT, "equation: "},
    {name_not_utf8, 13, SX_INPUT, "name is not printable UTF-8"},
    {external_data, 13, SX_UNIMPLEMENTED, "its data is in the file 'weights.bin'"},
};

START_TEST(test_bad_model)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 64 << 20);
    onnx_make m;
    make_begin(&m);
    bad[_i].build(&m);
    sx_graph *graph;
    sx_weights *weights;
    sx_span file = make_end(&m, bad[_i].opset);
    ck_sx_fails(&cx, sx_onnx_import(&cx, file, NULL, &graph, &weights), bad[_i].code, bad[_i].text);
    make_free(&m);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- bytes ---- */

static const struct {
    const char *bytes;
    size_t len;
    const char *text;
} garbage[] = {
    {"", 0, "without a graph: not an ONNX model"},
    {"\x08\x07", 2, "without a graph"},
    {"\x08", 1, "byte 1: number cut off"},
    {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, "more than 64 bits"},
    {"\x3a\x05hell", 6, "field 7 has 5 bytes, 4 left"},
    {"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "field 7 has 18446744073709551615 bytes"},
    {"\x3b\x3c", 2, "wire type 3 of field 7"},
    {"\x02\x01x", 3, "field number 0"},
    {"\x38\x01", 2, "field 7 has wire type 0"},
    {"\x3a\x00\x3a\x00", 4, "a second graph"},
    {"\x3a\x00", 2, "the model imports no opset"},
    {"\x3a\x00\x42\x02\x10\x0d\xca\x01\x00", 9, "1 local functions"},
    {"\x0d\x01\x02", 3, "4 bytes wanted, 2 left"},
};

START_TEST(test_garbage)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    sx_graph *graph;
    sx_weights *weights;
    sx_span file = {(const uint8_t *)garbage[_i].bytes, garbage[_i].len};
    sx_code code = sx_onnx_import(&cx, file, NULL, &graph, &weights);
    ck_assert_msg(code == SX_INPUT || code == SX_UNIMPLEMENTED, "%s", sx_code_name(code));
    ck_assert_msg(strstr(cx.error.text, garbage[_i].text) != NULL, "text is '%s'", cx.error.text);
    sx_ctx_fini(&cx);
}
END_TEST

static const char *const model_path[] = {SX_SOURCE_DIR "/tests/models/mlp.onnx",
                                         SX_SOURCE_DIR "/tests/models/encoder.onnx"};

static sx_code import_once(sx_span file)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 64 << 20);
    cx.fuel = 10000000;
    sx_graph *graph;
    sx_weights *weights;
    sx_code code = sx_onnx_import(&cx, file, NULL, &graph, &weights);
    if (code == SX_OK) {
        ck_sx_ok(&cx, sx_graph_check(&cx, graph));
    } else {
        ck_assert_int_ne(cx.error.text[0], '\0');
    }
    sx_ctx_fini(&cx);
    return code;
}

/* Every prefix of the first 4 KiB, then one every 1,999 bytes, and the last 64. */
START_TEST(test_truncation)
{
    sx_buf buf;
    sx_buf_init(&buf, 8 << 20);
    sx_test_read_file(model_path[_i], &buf);
    ck_assert_int_eq(import_once(sx_buf_span(&buf)), SX_OK);
    for (size_t len = 0; len < buf.len;) {
        /* an exact copy on the heap, so that a sanitizer sees the end */
        uint8_t *copy = malloc(len + 1);
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, buf.ptr, len);
        ck_assert_int_eq(import_once((sx_span){copy, len}), SX_INPUT);
        free(copy);
        len += len < 4096 || len + 64 >= buf.len ? 1
               : len + 64 + 1999 < buf.len       ? 1999
                                                 : buf.len - 64 - len;
    }
    sx_buf_fini(&buf);
}
END_TEST

/* One to three bytes changed, where structure is: the first 8 KiB and the last 1 KiB, and anywhere. */
START_TEST(test_flips)
{
    sx_buf buf;
    sx_buf_init(&buf, 8 << 20);
    sx_test_read_file(model_path[1], &buf);
    sx_rng rng = {sx_test_seed()};
    uint32_t accepted = 0;
    for (uint32_t round = 0; round < 2000; round++) {
        size_t at[3];
        uint8_t old[3];
        uint32_t count = 1 + (uint32_t)sx_rng_below(&rng, 3);
        for (uint32_t k = 0; k < count; k++) {
            uint64_t where = sx_rng_below(&rng, 8);
            at[k] = where < 6   ? (size_t)sx_rng_below(&rng, 8192)
                    : where < 7 ? buf.len - 1 - (size_t)sx_rng_below(&rng, 1024)
                                : (size_t)sx_rng_below(&rng, buf.len);
            old[k] = buf.ptr[at[k]];
            buf.ptr[at[k]] = (uint8_t)sx_rng_next(&rng);
        }
        accepted += import_once(sx_buf_span(&buf)) == SX_OK;
        for (uint32_t k = count; k-- > 0;) {
            buf.ptr[at[k]] = old[k];
        }
    }
    ck_assert_uint_lt(accepted, 2000);
    ck_assert_int_eq(import_once(sx_buf_span(&buf)), SX_OK);
    sx_buf_fini(&buf);
}
END_TEST

static sx_code import_bytes(sx_ctx *cx, void *self)
{
    sx_graph *graph;
    sx_weights *weights;
    return sx_onnx_import(cx, *(const sx_span *)self, NULL, &graph, &weights);
}

/* Runs out of memory or fuel at every stage: an error each time. */
START_TEST(test_small_budgets)
{
    sx_buf buf;
    sx_buf_init(&buf, 8 << 20);
    sx_test_read_file(model_path[1], &buf);
    sx_span span = sx_buf_span(&buf);
    (void)sx_test_oom(&(sx_test_sweep){
        .name = model_path[1], .work = import_bytes, .self = &span, .part = 0.02, .fails_min = 50});
    for (uint64_t fuel = 0; fuel < 200; fuel += 7) {
        sx_ctx cx;
        sx_ctx_init(&cx, 64 << 20);
        cx.fuel = fuel;
        sx_graph *graph;
        sx_weights *weights;
        ck_sx_fails(&cx, sx_onnx_import(&cx, sx_buf_span(&buf), NULL, &graph, &weights), SX_QUOTA,
                    "fuel");
        sx_ctx_fini(&cx);
    }
    sx_buf_fini(&buf);
}
END_TEST

/* ---- external data through a file ---- */

static void write_file(const char *folder, const char *name, sx_span bytes)
{
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes.ptr, 1, bytes.len, file), bytes.len);
    (void)fclose(file);
}

/* x + w with w in `location` from `offset`; fails unless the code is as wanted. */
static void import_external(const char *folder, const char *location, const char *offset,
                            sx_code wanted, const char *text)
{
    onnx_make m;
    make_begin(&m);
    x_to_y(&m, "3");
    sx_buf tensor = make_buf();
    make_int(&tensor, 1, 3);
    make_int(&tensor, 2, F);
    make_text(&tensor, 8, "w");
    const char *pair[2][2] = {{"location", location}, {"offset", offset}};
    for (uint32_t k = 0; k < 2; k++) {
        sx_buf entry = make_buf();
        make_text(&entry, 1, pair[k][0]);
        make_text(&entry, 2, pair[k][1]);
        make_message(&tensor, 13, &entry);
    }
    make_int(&tensor, 14, 1);
    make_message(&m.graph, 5, &tensor);
    make_node(&m, "Add", "x,w", "y");
    write_file(folder, "model.onnx", make_end(&m, 13));
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/model.onnx", folder);
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    sx_onnx_file *file = sx_onnx_file_open(&cx, path);
    ck_assert_msg(file != NULL, "%s", cx.error.text);
    sx_graph *graph;
    sx_weights *weights;
    if (wanted == SX_OK) {
        ck_sx_ok(&cx, sx_onnx_file_import(&cx, file, NULL, &graph, &weights));
        const sx_weight *w = sx_weights_find(weights, SX_SPAN_LITERAL("w"));
        ck_assert_ptr_nonnull(w);
        ck_assert(sx_span_is(w->bytes, text));
    } else {
        ck_sx_fails(&cx, sx_onnx_file_import(&cx, file, NULL, &graph, &weights), wanted, text);
    }
    sx_onnx_file_close(file);
    sx_ctx_fini(&cx);
    make_free(&m);
}

START_TEST(test_external)
{
    char folder[256];
    sx_test_mkdtemp(folder);
    write_file(folder, "weights.bin", SX_SPAN_LITERAL("....abcdefghijkl"));
    import_external(folder, "weights.bin", "4", SX_OK, "abcdefghijkl");
    import_external(folder, "weights.bin", "8", SX_INPUT, "8 bytes of data, 3 elements");
    import_external(folder, "weights.bin", "99", SX_INPUT, "of 'weights.bin', which has 16");
    import_external(folder, "weights.bin", "9999999999999999999999", SX_INPUT, "is not an offset");
    import_external(folder, "absent.bin", "0", SX_INPUT, "absent.bin");
    import_external(folder, "../weights.bin", "0", SX_INPUT, "is not below the model");
    import_external(folder, "/etc/hostname", "0", SX_INPUT, "is not below the model");
    import_external(folder, ".", "0", SX_INPUT, "not a regular file");
    import_external(folder, "a..b", "0", SX_INPUT, "tensor 'w': external file 'a..b'");
    import_external(folder, "sub/..", "0", SX_INPUT, "is not below the model");
    import_external(folder, "sub/../../x", "0", SX_INPUT, "is not below the model");
    import_external(folder, "", "0", SX_INPUT, "is not below the model");
    sx_test_rmtree(folder);
}
END_TEST

/* Nothing but regular files of the model's folder and below is opened, by whatever name. */
START_TEST(test_external_stays_below)
{
    char folder[256], path[600], outside[256];
    sx_test_mkdtemp(folder);
    sx_test_mkdtemp(outside);
    write_file(outside, "secret.bin", SX_SPAN_LITERAL("....abcdefghijkl"));
    (void)snprintf(path, sizeof(path), "%s/sub", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    write_file(path, "weights.bin", SX_SPAN_LITERAL("....abcdefghijkl"));
    import_external(folder, "sub/weights.bin", "4", SX_OK, "abcdefghijkl");
    import_external(folder, "./sub//weights.bin", "4", SX_OK, "abcdefghijkl");
    import_external(folder, "sub/weights.bin/x", "4", SX_INPUT, "tensor 'w': external file");
    (void)snprintf(path, sizeof(path), "%s/way", folder);
    ck_assert_int_eq(symlink(outside, path), 0);
    import_external(folder, "way/secret.bin", "4", SX_INPUT, "way is a symbolic link");
    char target[600];
    (void)snprintf(target, sizeof(target), "%s/secret.bin", outside);
    (void)snprintf(path, sizeof(path), "%s/direct.bin", folder);
    ck_assert_int_eq(symlink(target, path), 0);
    import_external(folder, "direct.bin", "4", SX_INPUT,
                    "tensor 'w': external file 'direct.bin': direct.bin is a symbolic link");
    (void)snprintf(path, sizeof(path), "%s/fifo", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    import_external(folder, "fifo", "0", SX_INPUT, "tensor 'w': fifo: not a regular file");
    import_external(folder, "sub/weights.bin", "5", SX_INPUT, "tensor 'w'");
    sx_test_rmtree(outside);
    sx_test_rmtree(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("onnx hostile");
    TCase *tcase = tcase_create("hostile");
    tcase_set_timeout(tcase, 400);
    tcase_add_loop_test(tcase, test_bad_model, 0, SX_COUNT(bad));
    tcase_add_loop_test(tcase, test_garbage, 0, SX_COUNT(garbage));
    tcase_add_loop_test(tcase, test_truncation, 0, 2);
    tcase_add_test(tcase, test_flips);
    tcase_add_test(tcase, test_small_budgets);
    tcase_add_test(tcase, test_external);
    tcase_add_test(tcase, test_external_stays_below);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
