/* Plans executed: every device of the mesh runs its steps in the interpreter, collectives are copied about,
 * outputs are put together and compared with the program on one device. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/collective.h"
#include "core/shard/local.h"
#include "core/shard/plan.h"
#include "tests/lib/gen_graph.h"
#include "tests/lib/shard_sim.h"

#define DEVICES_MAX 16u
#define PROGRAMS 800u

typedef struct {
    sx_tensor part[DEVICES_MAX];
} held;
typedef struct {
    sx_ctx *cx;
    sx_rng *rng;
    const sx_graph *graph;
    const sx_plan *plan;
    uint32_t devices;
    uint32_t stride[SX_MESH_AXES_MAX]; /* between neighbours along an axis */
    held *value;                       /* of every step */
} machine;

static uint32_t axis_size(const machine *m, uint32_t axis)
{
    return (uint32_t)m->graph->sharding->axis[axis].size;
}

static bool is_first(const machine *m, uint32_t device, uint32_t axis)
{
    return device / m->stride[axis] % axis_size(m, axis) == 0;
}

static sx_sim group(const machine *m, const held *value, uint32_t first, uint32_t axis)
{
    sx_sim sim;
    for (uint32_t k = 0; k < axis_size(m, axis); k++) {
        sim.part[k] = value->part[first + k * m->stride[axis]];
    }
    return sim;
}

static void spread(const machine *m, const sx_sim *sim, uint32_t first, uint32_t axis, held *value)
{
    for (uint32_t k = 0; k < axis_size(m, axis); k++) {
        value->part[first + k * m->stride[axis]] = sim->part[k];
    }
}

/* A tensor as it lies: cut along the axes in their order. */
static void scatter(const machine *m, const sx_tensor *whole, const sx_places *places, held *value)
{
    for (uint32_t d = 0; d < m->devices; d++) {
        value->part[d] = *whole;
    }
    for (uint32_t a = 0; a < m->graph->sharding->axis_count; a++) {
        for (uint32_t d = 0; d < m->devices; d++) {
            if (is_first(m, d, a)) {
                sx_sim sim;
                sx_sim_split(m->cx, m->rng, SX_EVAL_MODP, &value->part[d], places->at[a],
                             axis_size(m, a), &sim);
                spread(m, &sim, d, a, value);
            }
        }
    }
}

/* The whole again, the axis that was cut last first; false where copies differ. */
static bool gather(const machine *m, const sx_type *type, const sx_places *places,
                   const held *value, sx_tensor *whole)
{
    held now = *value;
    for (uint32_t a = m->graph->sharding->axis_count; a-- > 0;) {
        sx_type partly = *type;
        for (uint32_t b = 0; b < a; b++) {
            sx_shard_local_type(&partly, places->at[b], axis_size(m, b));
        }
        for (uint32_t d = 0; d < m->devices; d++) {
            if (is_first(m, d, a)) {
                sx_sim sim = group(m, &now, d, a);
                if (!sx_sim_join(m->cx, SX_EVAL_MODP, &sim, &partly, places->at[a], axis_size(m, a),
                                 whole)) {
                    return false;
                }
                for (uint32_t k = 0; k < axis_size(m, a); k++) {
                    now.part[d + k * m->stride[a]] = *whole;
                }
            }
        }
    }
    *whole = now.part[0];
    return true;
}

static void transfer(const machine *m, const sx_plan_step *step, const held *from, held *to)
{
    uint32_t a = step->axis;
    uint32_t size = axis_size(m, a);
    for (uint32_t d = 0; d < m->devices; d++) {
        if (!is_first(m, d, a)) {
            continue;
        }
        sx_sim sim = group(m, from, d, a);
        sx_sim after;
        if (step->kind == SX_PLAN_KEEP) {
            sx_sim_weaken(m->cx, &sim, step->to, size, &after);
        } else {
            sx_type whole_type = step->local;
            sx_tensor whole;
            if (step->to < SX_PLACE_R) {
                whole_type.dim[step->to].scale *= size;
            }
            ck_assert(
                sx_sim_join(m->cx, SX_EVAL_MODP, &sim, &whole_type, step->from, size, &whole));
            ck_assert(step->to <= SX_PLACE_R);
            sx_sim_split(m->cx, m->rng, SX_EVAL_MODP, &whole, step->to, size, &after);
        }
        spread(m, &after, d, a, to);
    }
}

static void compute(const machine *m, const sx_plan_step *step, held *to)
{
    for (uint32_t d = 0; d < m->devices; d++) {
        sx_tensor operand[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < step->operand_count; k++) {
            operand[k] = m->value[m->plan->operand[step->operand_first + k]].part[d];
        }
        ck_sx_ok(m->cx, sx_node_eval(m->cx, m->graph->node[step->node].op, step->attr, SX_EVAL_MODP,
                                     operand, step->operand_count, &step->local, &to->part[d]));
    }
}

/* Every step on every device; each value is what the program says it is. */
static void execute(machine *m, const sx_tensor *known)
{
    for (uint32_t i = 0; i < m->plan->step_count; i++) {
        const sx_plan_step *step = &m->plan->step[i];
        sx_tensor whole;
        if (step->kind != SX_PLAN_COMPUTE) {
            transfer(m, step, &m->value[m->plan->operand[step->operand_first]], &m->value[i]);
        } else if (m->graph->node[step->node].op == SX_OP_PARAMETER) {
            scatter(m, &known[step->node], &step->places, &m->value[i]);
        } else {
            compute(m, step, &m->value[i]);
        }
        ck_assert(sx_type_equal(&m->value[i].part[0].type, &step->local));
        ck_assert_msg(
            gather(m, &m->graph->node[step->node].type, &step->places, &m->value[i], &whole) &&
                sx_sim_equal(&whole, &known[step->node]),
            "step %u: %s of node %u (%s)", i, sx_plan_kind_name(step->kind), step->node,
            sx_op_info_of(m->graph->node[step->node].op)->name);
    }
}

/* The program of each device, run by all of them: the outputs, put together, are those of the program. */
static void run_local(const machine *m, const sx_tensor *known, uint32_t *collectives)
{
    const sx_graph *graph = m->graph;
    const sx_graph *each[DEVICES_MAX];
    sx_graph *local;
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    ck_sx_ok(m->cx, sx_plan_local(m->cx, graph, m->plan, &local));
    ck_sx_ok(m->cx, sx_graph_print(m->cx, local, &text));
    ck_sx_ok(m->cx, sx_graph_parse(m->cx, sx_buf_span(&text), &local));
    uint32_t parameters = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        parameters += graph->node[n].op == SX_OP_PARAMETER ? 1 : 0;
    }
    sx_tensor *argument = SX_NEW_ARRAY(m->cx, sx_tensor, (size_t)parameters * m->devices);
    sx_tensor *result = SX_NEW_ARRAY(m->cx, sx_tensor, (size_t)graph->output_count * m->devices);
    ck_assert(argument != NULL && result != NULL);
    for (uint32_t n = 0, k = 0; n < graph->node_count; n++) {
        if (graph->node[n].op == SX_OP_PARAMETER) {
            sx_places places = sx_graph_places(graph, n);
            held value;
            scatter(m, &known[n], &places, &value);
            for (uint32_t d = 0; d < m->devices; d++) {
                argument[d * parameters + k] = value.part[d];
            }
            k++;
        }
    }
    for (uint32_t d = 0; d < m->devices; d++) {
        each[d] = local;
    }
    ck_sx_ok(m->cx, sx_graph_eval_mesh(m->cx, each, m->devices, SX_EVAL_MODP, argument, parameters,
                                       result, graph->output_count));
    for (uint32_t k = 0; k < graph->output_count; k++) {
        uint32_t node = graph->output[k].node.i;
        sx_tensor whole;
        held value;
        for (uint32_t d = 0; d < m->devices; d++) {
            value.part[d] = result[d * graph->output_count + k];
        }
        ck_assert_msg(gather(m, &graph->node[node].type, &m->plan->step[m->plan->output[k]].places,
                             &value, &whole) &&
                          sx_sim_equal(&whole, &known[node]),
                      "output %u of\n%.*s", k, (int)text.len, (const char *)text.ptr);
    }
    for (uint32_t n = 0; n < local->node_count; n++) {
        collectives[local->node[n].op]++;
    }
    sx_buf_fini(&text);
}

static sx_shard_place draw_cut(sx_rng *rng, const sx_type *type, int64_t *pieces, int64_t size)
{
    uint32_t d = (uint32_t)sx_rng_below(rng, SX_PLACE_R);
    if (d < type->rank && type->dim[d].scale % (pieces[d] * size) == 0) {
        pieces[d] *= size;
        return (sx_shard_place)d;
    }
    return SX_PLACE_R;
}

static void decorate(sx_ctx *cx, sx_rng *rng, sx_graph *graph)
{
    static const char *const name[] = {"a", "b", "c"};
    uint32_t axes = 1 + (uint32_t)sx_rng_below(rng, 3);
    for (uint32_t a = 0; a < axes; a++) {
        int64_t size = axes == 1 ? 2 + (int64_t)sx_rng_below(rng, 2) : 2;
        ck_sx_ok(cx, sx_mesh_add_axis(cx, graph, sx_span_of(name[a]), size));
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        sx_places places = sx_places_none();
        int64_t pieces[SX_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1};
        for (uint32_t a = 0; a < axes; a++) {
            places.at[a] =
                draw_cut(rng, &graph->node[n].type, pieces, graph->sharding->axis[a].size);
        }
        if (graph->node[n].op == SX_OP_PARAMETER) {
            ck_sx_ok(cx, sx_graph_place(cx, graph, (sx_node_id){n}, &places));
        }
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        const sx_type *type = &graph->node[graph->output[i].node.i].type;
        sx_places places = sx_places_none();
        int64_t pieces[SX_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1};
        for (uint32_t a = 0; a < axes; a++) {
            places.at[a] = sx_rng_below(rng, 4) == 0 && type->dtype != SX_BOOL
                               ? SX_PLACE_SUM
                               : draw_cut(rng, type, pieces, graph->sharding->axis[a].size);
        }
        if (sx_rng_below(rng, 3) > 0) {
            ck_sx_ok(cx, sx_graph_want(cx, graph, i, &places));
        }
    }
}

/* Residues have no order that arithmetic keeps: no maxima. */
static bool has_order(const sx_graph *graph)
{
    bool found = false;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_attr *attr = sx_graph_attr(graph, &graph->node[n]);
        found = found || ((attr->present & SX_A(reducer)) != 0 && attr->reducer > SX_PRODUCT);
    }
    return found;
}

static void run_program(sx_ctx *cx, sx_rng *rng, const sx_graph *graph, uint32_t *sent,
                        uint32_t *cut, uint32_t *collectives)
{
    sx_plan *plan;
    ck_sx_ok(cx, sx_plan_make(cx, graph, sx_device_at(3), 2000000, &plan));
    machine m = {.cx = cx, .rng = rng, .graph = graph, .plan = plan, .devices = 1};
    for (uint32_t a = graph->sharding->axis_count; a-- > 0;) {
        m.stride[a] = m.devices;
        m.devices *= axis_size(&m, a);
    }
    ck_assert_uint_le(m.devices, DEVICES_MAX);
    sx_tensor *known = SX_NEW_ARRAY(cx, sx_tensor, graph->node_count);
    m.value = SX_NEW_ARRAY(cx, held, (size_t)plan->step_count + 1);
    ck_assert(known != NULL && m.value != NULL);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        sx_tensor operand[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < node->input_count; k++) {
            operand[k] = known[sx_graph_input(graph, node, k).i];
        }
        bool index = sx_dtype_class_of(node->type.dtype) == SX_CLASS_INT;
        if (node->op == SX_OP_PARAMETER) {
            known[n] = sx_sim_random(cx, rng, SX_EVAL_MODP, &node->type, !index);
        } else {
            ck_sx_ok(cx, sx_node_eval(cx, node->op, sx_graph_attr(graph, node), SX_EVAL_MODP,
                                      operand, node->input_count, &node->type, &known[n]));
        }
    }
    execute(&m, known);
    run_local(&m, known, collectives);
    for (uint32_t i = 0; i < graph->output_count; i++) {
        const sx_plan_step *step = &plan->step[plan->output[i]];
        const sx_places *wanted = sx_graph_wanted(graph, i);
        ck_assert_uint_eq(step->node, graph->output[i].node.i);
        for (uint32_t a = 0; a < graph->sharding->axis_count; a++) {
            ck_assert(wanted != NULL ? step->places.at[a] == wanted->at[a]
                                     : step->places.at[a] <= SX_PLACE_R);
            *cut += step->places.at[a] != SX_PLACE_R ? 1 : 0;
        }
    }
    *sent += plan->collective_count;
}

START_TEST(test_plans_compute_the_program)
{
    uint64_t seed = sx_test_seed();
    uint32_t sent = 0;
    uint32_t cut = 0;
    uint32_t collectives[SX_OP_COUNT] = {0};
    for (uint32_t i = 0; i < PROGRAMS; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 1 << 30);
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.symbols = 0;
        options.node_count = 20;
        options.rank_max = 3;
        options.extent_max = 8;
        options.elements_max = 512;
        sx_bits_drop(&options.ops, SX_OP_FUSED);
        sx_bits_drop(&options.ops, SX_OP_MAXIMUM);
        sx_bits_drop(&options.ops, SX_OP_MINIMUM);
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        if (!has_order(graph)) {
            decorate(&cx, &rng, graph);
            run_program(&cx, &rng, graph, &sent, &cut, collectives);
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(sent, PROGRAMS / 10);
    ck_assert_uint_gt(cut, PROGRAMS / 4);
    ck_assert_uint_gt(collectives[SX_OP_ALL_GATHER], 0);
    ck_assert_uint_gt(collectives[SX_OP_ALL_TO_ALL], 0);
    ck_assert_uint_gt(collectives[SX_OP_AXIS_INDEX], 0);
}
END_TEST

/* The example of docs/IR.md: one all-reduce of the sum of the products with w2, and nothing else; or, where it is
 * wanted in pieces, one reduce-scatter. */
START_TEST(test_one_collective)
{
    static const char before[] =
        "sx 1 graph \"mlp\" mesh (dp = 2, tp = 4) { "
        "%x = parameter {name = \"x\", weight = 0} : f32[8, 64] {dp = S(0)} "
        "%w1 = parameter {name = \"w1\", weight = 1} : f32[64, 256] {tp = S(1)} "
        "%w2 = parameter {name = \"w2\", weight = 1} : f32[256, 64] {tp = S(0)} "
        "%0 = dot_general(%x, %w1) {lhs_contract = [1], rhs_contract = [0]} : f32[8, 256] "
        "%1 = relu(%0) : f32[8, 256] "
        "%2 = dot_general(%1, %w2) {lhs_contract = [1], rhs_contract = [0]} : f32[8, 64] "
        "return %2 as \"y\" ";
    static const char *const wanted[] = {"{dp = S(0)} }", "{dp = S(0), tp = S(1)} }"};
    static const sx_op op[] = {SX_OP_ALL_REDUCE, SX_OP_REDUCE_SCATTER};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < SX_COUNT(op); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 1 << 28);
        uint32_t sent = 0;
        uint32_t cut = 0;
        uint32_t collectives[SX_OP_COUNT] = {0};
        char text[1024];
        sx_graph *graph;
        (void)snprintf(text, sizeof(text), "%s%s", before, wanted[i]);
        ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
        run_program(&cx, &rng, graph, &sent, &cut, collectives);
        ck_assert_uint_eq(sent, 1);
        ck_assert_uint_eq(collectives[op[i]], 1);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_no_local_program)
{
    static const char *const text[] = {
        "sx 1 graph \"g\" (n in [1, 4]) mesh (dp = 2) { "
        "%x = parameter {name = \"x\", weight = 0} : f32[2*n] {dp = S(0)} return %x as \"y\" }",
        "sx 1 graph \"g\" mesh (dp = 2) { "
        "%x = parameter {name = \"x\", weight = 0} : f32[2] {dp = S(0)} donated return %x as \"y\" "
        "}"};
    static const char *const error[] = {"symbol \"n\" has no value", "state or donated inputs"};
    for (uint32_t i = 0; i < SX_COUNT(text); i++) {
        sx_ctx cx;
        sx_graph *graph;
        sx_plan *plan;
        sx_graph *local;
        sx_ctx_init(&cx, 1 << 26);
        ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text[i]), &graph));
        ck_sx_ok(&cx, sx_plan_make(&cx, graph, sx_device_at(3), 2000000, &plan));
        ck_sx_fails(&cx, sx_plan_local(&cx, graph, plan, &local),
                    i == 0 ? SX_INPUT : SX_UNIMPLEMENTED, error[i]);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shard/sharding_plan");
    TCase *tcase = tcase_create("plan");
    tcase_set_timeout(tcase, 400);
    tcase_add_test(tcase, test_plans_compute_the_program);
    tcase_add_test(tcase, test_one_collective);
    tcase_add_test(tcase, test_no_local_program);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
