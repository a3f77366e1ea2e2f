/* price.c - one node as a kernel of its own, priced under the schedule that the search would choose. */
#include <math.h>

#include "core/fuse/fuse.h"
#include "core/search/search.h"
#include "core/target/target.h"

#define SCRATCH_BYTES ((size_t)1 << 20) /* one lifted body */
#define NO_LOWERING_NS 1e15             /* a kernel that no lowering takes */
#define NS_MAX 1e18

static bool is_constant(const sx_price_subject *s, uint32_t argument)
{
    return argument < s->input_count && (s->constant >> argument & 1) != 0;
}

/* How much dearer a contraction counts whose lanes follow a symbol and whose rows do not; turned over it has lanes that
 * are the same for all values. Priced at one value, its lanes are all filled, or nearly so; for other values they are
 * not, and what is left over is other code for each of them, so that no kernel serves an interval of the symbol. */
#define LANES_OF_SYMBOL 2.0

static bool follows_symbol(const sx_analysis *a, sx_role role)
{
    bool follows = false;
    for (uint32_t d = 0; d < a->result.rank; d++) {
        follows = follows || (a->space_role[d] == role && !sx_dim_is_constant(a->result.dim[d]));
    }
    return follows;
}

/* `fused` has passed sx_fused_infer with the subject's result. */
static sx_code price_fused(sx_ctx *cx, const sx_device *device, const int64_t *symbol_value,
                           const sx_price_subject *s, const sx_attr *fused, sx_cost *cost)
{
    sx_analysis a;
    sx_search_result found;
    SX_TRY(
        sx_analysis_of_checked(cx, fused, s->input, s->input_count, s->result, symbol_value, &a));
    cost->floor_ns = sx_cost_floor(device, &a);
    if (!isfinite(cost->floor_ns) || cost->floor_ns > NS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "%s: would take %g s, at most 1e9 s",
                       sx_op_info_of(s->op)->name, cost->floor_ns * 1e-9);
    }
    bool constant = a.kind == SX_KERNEL_DOT && is_constant(s, a.rhs);
    if (a.refusal != NULL) {
        cost->cost_ns = NO_LOWERING_NS;
        return SX_OK;
    }
    SX_TRY(sx_search_first(cx, &a, device, constant, 1, &found));
    cost->arithmetic = a.arithmetic;
    cost->flops = a.work;
    cost->bytes = a.bytes;
    cost->energy_nj = (a.work * device->flop_pj + a.bytes * device->byte_pj) / 1000;
    cost->floor_ns = found.floor_ns;
    cost->cost_ns = found.best[0].cost_ns;
    const sx_target *target = sx_target_find(NULL, device->target);
    bool vectors = target != NULL && !target->vectors.threads; /* only they serve intervals */
    if (vectors && a.kind == SX_KERNEL_DOT && follows_symbol(&a, SX_ROLE_COLUMN) &&
        !follows_symbol(&a, SX_ROLE_ROW)) {
        cost->cost_ns *= LANES_OF_SYMBOL;
    }
    uint32_t matrices = target != NULL ? sx_search_matrices(device, target) : 0;
    if (target != NULL && sx_search_copies_rows(&a, target->matrix, matrices) != 0) {
        uint32_t argument; /* a launch of its own copies it */
        (void)sx_rows_beside(&a, &argument);
        const sx_type *type = &a.input[argument];
        double bytes = 2 * (double)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
        cost->cost_ns += sx_device_move_ns(device, bytes) + device->launch_ns;
    }
    return SX_OK;
}

/* The tensor that a padded window walks; false where its extents cannot be written. */
static bool padded_type(const sx_price_subject *s, sx_type *padded)
{
    uint32_t first = s->op == SX_OP_CONVOLUTION ? 2 : 0;
    *padded = s->input[0];
    bool ok = true;
    for (uint32_t i = 0; ok && i < s->attr->low.count; i++) {
        sx_dim *dim = &padded->dim[first + i];
        int64_t more = s->attr->low.v[i] + s->attr->high.v[i];
        ok = more == 0 || (more > 0 && sx_dim_add(*dim, sx_dim_of(more), dim));
    }
    return ok;
}

static sx_code price_node(sx_ctx *cx, const sx_device *device, const sx_symbol *symbols,
                          uint32_t symbol_count, const sx_price_subject *s, sx_cost *cost);

/* A window with padding is two kernels: one pads, one walks the result. */
static sx_code price_padded(sx_ctx *cx, const sx_device *device, const sx_symbol *symbols,
                            uint32_t symbol_count, const sx_price_subject *s, sx_cost *cost)
{
    sx_type input[SX_INPUTS_MAX];
    sx_attr attr = *s->attr;
    sx_price_subject walk = *s;
    if (!padded_type(s, &input[0])) {
        return SX_OK;
    }
    for (uint32_t k = 1; k < s->input_count; k++) {
        input[k] = s->input[k];
    }
    for (uint32_t i = 0; i < attr.low.count; i++) {
        attr.low.v[i] = attr.high.v[i] = 0;
    }
    walk.attr = &attr;
    walk.input = input;
    SX_TRY(price_node(cx, device, symbols, symbol_count, &walk, cost));
    double bytes = sx_cost_bytes(symbols, symbol_count, &s->input[0]) +
                   sx_cost_bytes(symbols, symbol_count, &input[0]);
    cost->bytes += bytes;
    cost->energy_nj += bytes * device->byte_pj / 1000;
    cost->floor_ns += sx_device_move_ns(device, bytes);
    cost->cost_ns += sx_device_move_ns(device, bytes) + device->launch_ns;
    return SX_OK;
}

static bool has_padding(const sx_price_subject *s)
{
    bool any = false;
    bool walks = s->op == SX_OP_CONVOLUTION || s->op == SX_OP_REDUCE_WINDOW;
    for (uint32_t i = 0; walks && i < s->attr->low.count; i++) {
        any = any || s->attr->low.v[i] != 0 || s->attr->high.v[i] != 0;
    }
    return any;
}

static sx_code price_node(sx_ctx *cx, const sx_device *device, const sx_symbol *symbols,
                          uint32_t symbol_count, const sx_price_subject *s, sx_cost *cost)
{
    int64_t value[SX_SYMBOLS_MAX];
    SX_ASSERT(symbol_count <= SX_SYMBOLS_MAX);
    for (uint32_t k = 0; k < symbol_count; k++) {
        value[k] = sx_cost_reference(symbols, k);
    }
    if (s->op == SX_OP_FUSED && device->target != NULL) { /* analysed once */
        *cost = (sx_cost){0};
        return price_fused(cx, device, value, s, s->attr, cost);
    }
    SX_TRY(sx_cost_node(cx, device, symbols, symbol_count, s->op, s->attr, s->input, s->input_count,
                        s->result, cost));
    if (cost->cost_ns == 0 || device->target == NULL) {
        return SX_OK;
    }
    if (has_padding(s)) {
        return price_padded(cx, device, symbols, symbol_count, s, cost);
    }
    sx_ctx scratch;
    sx_attr lifted;
    sx_ctx_init(&scratch, SCRATCH_BYTES);
    sx_code code =
        sx_fused_lift(&scratch, s->op, s->attr, s->input, s->input_count, s->result, &lifted);
    code = code == SX_OK ? price_fused(cx, device, value, s, &lifted, cost) : SX_OK;
    sx_ctx_fini(&scratch);
    return code;
}

/* "dot_general of f32[4, 8], f32[8, 4]" in front of the message: the program has no other name for it. */
static sx_code fail_in_node(sx_ctx *cx, const sx_symbol *symbols, uint32_t symbol_count,
                            const sx_price_subject *s)
{
    sx_buf types;
    sx_buf_init(&types, 256);
    for (uint32_t k = 0; k < s->input_count && k < 3; k++) {
        sx_buf_put_text(&types, k > 0 ? ", " : "");
        sx_type_print(&s->input[k], symbols, symbol_count, &types);
    }
    sx_code code = sx_fail_in(cx, "%s of %.*s", sx_op_info_of(s->op)->name, (int)types.len,
                              (const char *)types.ptr);
    sx_buf_fini(&types);
    return code;
}

sx_code sx_price_node(sx_ctx *cx, const sx_device *device, const sx_symbol *symbols,
                      uint32_t symbol_count, const sx_price_subject *s, sx_cost *cost)
{
    sx_code code = price_node(cx, device, symbols, symbol_count, s, cost);
    return code == SX_LIMIT ? fail_in_node(cx, symbols, symbol_count, s) : code;
}

sx_code sx_price_program(sx_ctx *cx, const sx_device *device, const sx_graph *graph, sx_cost *sum)
{
    bool *constant = SX_NEW_ARRAY(cx, bool, graph->node_count + 1);
    *sum = (sx_cost){.flops = 0};
    if (constant == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        sx_type input[SX_INPUTS_MAX];
        sx_price_subject subject = {.op = node->op,
                                    .attr = sx_graph_attr(graph, node),
                                    .input = input,
                                    .input_count = node->input_count,
                                    .result = &node->type};
        constant[n] = node->op == SX_OP_PARAMETER ? subject.attr->weight != 0 : true;
        for (uint32_t k = 0; k < node->input_count; k++) {
            sx_node_id from = sx_graph_input(graph, node, k);
            input[k] = sx_graph_node(graph, from)->type;
            subject.constant |= k < SX_FUSED_ARGS_MAX && constant[from.i] ? 1u << k : 0;
            constant[n] = constant[n] && constant[from.i];
        }
        sx_cost cost;
        if (constant[n] || node->input_count == 0) {
            continue;
        }
        SX_TRY(sx_price_node(cx, device, graph->symbol, graph->symbol_count, &subject, &cost));
        sum->flops += cost.flops;
        sum->bytes += cost.bytes;
        sum->floor_ns += cost.floor_ns;
        sum->energy_nj += cost.energy_nj;
        sum->cost_ns += cost.cost_ns;
    }
    return SX_OK;
}
