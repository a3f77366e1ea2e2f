#include "tests/lib/region.h"

#include "tests/lib/test.h"

static sx_op some_binary(sx_rng *rng, sx_dtype dtype)
{
    static const sx_op truth[] = {SX_OP_AND, SX_OP_OR, SX_OP_XOR};
    static const sx_op number[] = {SX_OP_MAXIMUM, SX_OP_MINIMUM, SX_OP_ADD};
    return (dtype == SX_BOOL ? truth : number)[sx_rng_below(rng, 3)];
}

/* A body of two parameters; the first result has the type of the first parameter. */
typedef struct {
    sx_ctx *cx;
    sx_graph *graph;
    sx_node_id parameter[2];
} body;

static body open_body(sx_ctx *cx, const sx_type *first, const sx_type *second)
{
    body b = {.cx = cx};
    ck_sx_ok(cx, sx_graph_make(cx, sx_span_of("body"), NULL, &b.graph));
    ck_sx_ok(cx, sx_build_parameter(cx, b.graph, "first", false, first, &b.parameter[0]));
    if (second != NULL) {
        ck_sx_ok(cx, sx_build_parameter(cx, b.graph, "second", false, second, &b.parameter[1]));
    }
    return b;
}

static const sx_program *close_body(body *b, sx_node_id first, const sx_node_id *second)
{
    const sx_program *program;
    ck_sx_ok(b->cx, sx_graph_add_output(b->cx, b->graph, sx_span_of("one"), first));
    if (second != NULL) {
        ck_sx_ok(b->cx, sx_graph_add_output(b->cx, b->graph, sx_span_of("two"), *second));
    }
    ck_sx_ok(b->cx, sx_program_make(b->cx, b->graph, &program));
    return program;
}

static void make_scan(sx_ctx *cx, sx_rng *rng, const sx_type *x, sx_attr *attr, sx_type *input)
{
    sx_type slice = {.dtype = x->dtype, .rank = x->rank - 1};
    for (uint32_t d = 1; d < x->rank; d++) {
        slice.dim[d - 1] = x->dim[d];
    }
    body b = open_body(cx, &slice, &slice);
    sx_node_id sum;
    ck_sx_ok(cx, sx_build_binary(cx, b.graph, some_binary(rng, x->dtype), b.parameter[0],
                                 b.parameter[1], &sum));
    attr->carried = attr->sliced = 1;
    attr->step = close_body(&b, sum, &b.parameter[sx_rng_below(rng, 2)]);
    input[0] = slice;
}

static void make_while(sx_ctx *cx, sx_rng *rng, const sx_type *x, sx_attr *attr, sx_type *input)
{
    const sx_type truth = {.dtype = SX_BOOL};
    body condition = open_body(cx, &truth, x);
    body step = open_body(cx, &truth, x);
    sx_node_id value;
    sx_node_id no;
    ck_sx_ok(cx, sx_build_scalar(cx, step.graph, &truth, 0, &no));
    ck_sx_ok(cx, sx_build_binary(cx, step.graph, some_binary(rng, x->dtype), step.parameter[1],
                                 step.parameter[1], &value));
    attr->carried = 2;
    attr->rounds = 1 + (int64_t)sx_rng_below(rng, 3);
    attr->condition = close_body(&condition, condition.parameter[0], NULL);
    attr->step = close_body(&step, no, &value);
    input[0] = truth;
}

static void make_cond(sx_ctx *cx, sx_rng *rng, const sx_type *x, sx_attr *attr, sx_type *input)
{
    body then = open_body(cx, x, NULL);
    body otherwise = open_body(cx, x, NULL);
    sx_node_id value;
    ck_sx_ok(cx, sx_build_binary(cx, then.graph, some_binary(rng, x->dtype), then.parameter[0],
                                 then.parameter[0], &value));
    attr->then = close_body(&then, value, &then.parameter[0]);
    attr->otherwise = close_body(&otherwise, otherwise.parameter[0], &otherwise.parameter[0]);
    input[0] = (sx_type){.dtype = SX_BOOL};
}

bool sx_test_region(sx_ctx *cx, sx_rng *rng, sx_op op, const sx_type *x, sx_attr *attr,
                    sx_type input[2])
{
    if (!sx_type_is_static(x) || (op == SX_OP_SCAN && x->rank == 0)) {
        return false;
    }
    *attr = (sx_attr){.present = sx_op_info_of(op)->attrs, .result = (int64_t)sx_rng_below(rng, 2)};
    input[1] = *x;
    if (op == SX_OP_SCAN) {
        make_scan(cx, rng, x, attr, input);
    } else if (op == SX_OP_WHILE) {
        make_while(cx, rng, x, attr, input);
    } else {
        make_cond(cx, rng, x, attr, input);
    }
    return true;
}

sx_graph *sx_test_parse(sx_ctx *cx, const char *text)
{
    sx_graph *graph;
    sx_code code = sx_graph_parse(cx, sx_span_of(text), &graph);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    return graph;
}
