/* Placements in the e-graph: the analysis against a fixpoint computed anew, and plans of whole programs. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/optimize/optimize.h"
#include "core/shard/plan.h"
#include "tests/lib/gen_graph.h"

#define S(d) SX_PLACE_BIT(d)
#define R SX_PLACE_BIT(SX_PLACE_R)
#define SUM SX_PLACE_BIT(SX_PLACE_SUM)

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_graph *read(const char *text)
{
    sx_graph *graph;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    return graph;
}

/* The e-graph of a program after some rounds of all rules. */
static uint32_t *saturate(sx_tensors *t, const sx_graph *graph, uint32_t rounds, uint32_t nodes)
{
    uint32_t *node = SX_NEW_ARRAY(&cx, uint32_t, graph->node_count + 1);
    sx_eg_ruleset set;
    sx_eg_run run;
    sx_eg_limits limits = {
        .rounds = rounds, .nodes = nodes, .matches = 500, .fuel = 20000000, .bytes = SIZE_MAX};
    ck_assert_ptr_nonnull(node);
    ck_sx_ok(&cx, sx_tensors_init(&cx, t, graph));
    ck_sx_ok(&cx, sx_tensors_import(&cx, t, graph, node));
    sx_eg_language language = sx_tensors_language(t);
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &language, sx_rules, SX_RULE_ROUNDS_COUNT));
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &t->eg, &set, &limits, &run));
    return node;
}

/* ---- the analysis ---- */

/* From nothing known, all nodes again and again until nothing is learnt. */
static uint32_t *fixpoint(const sx_tensors *t)
{
    const sx_eg *eg = &t->eg;
    const sx_tensors_mesh *mesh = t->mesh;
    const sx_sharding *sharding = mesh->program->sharding;
    uint32_t *known = SX_NEW_ARRAY(&cx, uint32_t, (size_t)eg->node_count * SX_MESH_AXES_MAX);
    ck_assert_ptr_nonnull(known);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t n = eg->node_count; n-- > 0;) { /* another order than that of the engine */
            uint32_t *mine = &known[sx_eg_find(eg, n) * SX_MESH_AXES_MAX];
            const sx_type *type = sx_tensors_type(t, n);
            sx_type operand[SX_EG_ARITY_MAX];
            sx_op op = sx_tensors_op(t, n);
            for (uint32_t k = 0; k < eg->node[n].arity; k++) {
                operand[k] = *sx_tensors_type(t, sx_eg_child(eg, n, k));
            }
            for (uint32_t a = 0; a < sharding->axis_count && eg->node[n].dead == 0; a++) {
                const sx_shard_op at = {.op = op,
                                        .attr = sx_tensors_attr(t, n),
                                        .operand = operand,
                                        .result = type,
                                        .operand_count = eg->node[n].arity,
                                        .size = sharding->axis[a].size,
                                        .multiple = mesh->multiple};
                uint32_t below[SX_EG_ARITY_MAX], learnt;
                for (uint32_t k = 0; k < eg->node[n].arity; k++) {
                    below[k] = known[sx_eg_child(eg, n, k) * SX_MESH_AXES_MAX + a];
                }
                if (op == SX_OP_PARAMETER) {
                    uint32_t p = mesh->parameter_of[eg->node[n].attr];
                    learnt = sx_shard_closure(SX_PLACE_BIT(sx_graph_places(mesh->program, p).at[a]),
                                              sx_shard_possible(type, at.size, mesh->multiple));
                } else {
                    learnt = sx_shard_transfer(&at, below);
                }
                changed = changed || (learnt & ~mine[a]) != 0;
                mine[a] |= learnt;
            }
        }
    }
    return known;
}

static void compare(const sx_tensors *t, uint64_t seed, uint32_t *some)
{
    const uint32_t *known = fixpoint(t);
    for (uint32_t c = 0; c < t->eg.node_count; c++) {
        if (sx_eg_is_class(&t->eg, c)) {
            const uint32_t *held = sx_tensors_places(t, c);
            for (uint32_t a = 0; a < t->mesh->program->sharding->axis_count; a++) {
                ck_assert_msg(held[a] == known[c * SX_MESH_AXES_MAX + a],
                              "seed %llu: class %u, axis %u: %x, not %x", (unsigned long long)seed,
                              c, a, held[a], known[c * SX_MESH_AXES_MAX + a]);
                *some += held[a] != 0 && (held[a] & R) == 0 ? 1 : 0;
            }
        }
    }
}

static void decorate(sx_rng *rng, sx_graph *graph)
{
    static const char *const name[] = {"dp", "tp", "pp"};
    uint32_t axes = 1 + (uint32_t)sx_rng_below(rng, 3);
    for (uint32_t a = 0; a < axes; a++) {
        ck_sx_ok(&cx, sx_mesh_add_axis(&cx, graph, sx_span_of(name[a]),
                                       1 + (int64_t)sx_rng_below(rng, 3)));
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_type *type = &graph->node[n].type;
        sx_places places = sx_places_none();
        int64_t pieces[SX_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1};
        for (uint32_t a = 0; a < axes && type->rank > 0; a++) {
            uint32_t d = (uint32_t)sx_rng_below(rng, type->rank);
            pieces[d] *= graph->sharding->axis[a].size;
            if (sx_dim_is_constant(type->dim[d]) && type->dim[d].scale % pieces[d] == 0) {
                places.at[a] = (sx_shard_place)d;
            } else {
                pieces[d] /= graph->sharding->axis[a].size;
            }
        }
        if (graph->node[n].op == SX_OP_PARAMETER) {
            ck_sx_ok(&cx, sx_graph_place(&cx, graph, (sx_node_id){n}, &places));
        }
    }
}

START_TEST(test_analysis_is_the_fixpoint)
{
    uint64_t seed = sx_test_seed();
    uint32_t some = 0;
    for (uint32_t i = 0; i < 60; i++) {
        teardown();
        setup();
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.symbols = i % 2;
        options.extent_max = 6;
        sx_bits_drop(&options.ops, SX_OP_FUSED);
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        decorate(&rng, graph);
        sx_tensors t;
        saturate(&t, graph, 4, 3000);
        ck_sx_ok(&cx, sx_eg_check(&cx, &t.eg));
        compare(&t, seed + i, &some);
    }
    ck_assert_uint_gt(some, 500);
}
END_TEST

/* x w1 by columns, relu, w2 by rows. */
#define MLP(more)                                                                         \
    "sx 1 graph \"mlp\" mesh (dp = 2, tp = 4) { "                                         \
    "%x = parameter {name = \"x\", weight = 0} : f32[64, 256] {dp = S(0)} "               \
    "%w1 = parameter {name = \"w1\", weight = 1} : f32[256, 1024] {tp = S(1)} "           \
    "%w2 = parameter {name = \"w2\", weight = 1} : f32[1024, 256] {tp = S(0)} "           \
    "%0 = dot_general(%x, %w1) {lhs_contract = [1], rhs_contract = [0]} : f32[64, 1024] " \
    "%1 = relu(%0) : f32[64, 1024] "                                                      \
    "%2 = dot_general(%1, %w2) {lhs_contract = [1], rhs_contract = [0]} : f32[64, 256] " more " }"

START_TEST(test_sets_of_a_block)
{
    sx_graph *graph = read(MLP("return %2 as \"y\" {dp = S(0)}"));
    sx_tensors t;
    uint32_t *node = saturate(&t, graph, 0, 1000);
    const uint32_t *x = sx_tensors_places(&t, node[0]);
    const uint32_t *hidden = sx_tensors_places(&t, node[4]);
    const uint32_t *y = sx_tensors_places(&t, node[5]);
    ck_assert_uint_eq(x[0], S(0));
    ck_assert_uint_eq(x[1] & (R | S(0) | S(1) | SUM), R | S(0) | S(1) | SUM);
    ck_assert_uint_eq(hidden[0], S(0));
    ck_assert_uint_eq(hidden[1], S(1));
    ck_assert_uint_eq(y[0], S(0));
    ck_assert_uint_eq(y[1], SUM);
}
END_TEST

/* What one member cannot be without communication another can: the class knows it, and so does what reads it. */
START_TEST(test_equal_forms_know_more)
{
    sx_graph *graph = read("sx 1 graph \"\" mesh (tp = 4) { "
                           "%x = parameter {name = \"x\", weight = 0} : f32[8, 16] {tp = S(1)} "
                           "%y = parameter {name = \"y\", weight = 0} : f32[8, 16] {tp = S(1)} "
                           "%0 = reduce(%x) {dims = [1], reducer = add} : f32[8] "
                           "%1 = exponential(%0) : f32[8] "
                           "%2 = reduce(%y) {dims = [1], reducer = add} : f32[8] "
                           "%3 = add(%0, %2) : f32[8] return %1 as \"a\", %3 as \"b\" }");
    sx_tensors t;
    uint32_t *node = saturate(&t, graph, 0, 1000);
    ck_assert_uint_eq(sx_tensors_places(&t, node[2])[0], SUM);
    ck_assert_uint_eq(sx_tensors_places(&t, node[3])[0], 0); /* e^(a sum) of no placement */
    ck_assert_uint_eq(sx_tensors_places(&t, node[5])[0], SUM);
    ck_sx_ok(&cx, sx_eg_union(&cx, &t.eg, node[3], node[5], SX_EG_RULE_GIVEN));
    ck_sx_ok(&cx, sx_eg_rebuild(&cx, &t.eg));
    ck_assert_uint_eq(sx_tensors_places(&t, node[3])[0], SUM); /* as one class they know it */
    ck_sx_ok(&cx, sx_eg_check(&cx, &t.eg));
}
END_TEST

/* ---- plans ---- */

static const sx_device *device(const char *name)
{
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        if (strcmp(sx_device_at(i)->name, name) == 0) {
            return sx_device_at(i);
        }
    }
    ck_abort_msg("device %s", name);
    return NULL;
}

static const sx_plan *plan_of(const sx_graph *graph)
{
    sx_plan *plan;
    ck_sx_ok(&cx, sx_plan_make(&cx, graph, device("h100"), 4000000, &plan));
    return plan;
}

static uint32_t count(const sx_plan *plan, sx_plan_kind kind)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        found += plan->step[i].kind == kind ? 1 : 0;
    }
    return found;
}

START_TEST(test_one_all_reduce)
{
    const sx_plan *plan = plan_of(read(MLP("return %2 as \"y\" {dp = S(0)}")));
    ck_assert_uint_eq(plan->collective_count, 1);
    ck_assert_uint_eq(count(plan, SX_PLAN_ALL_REDUCE), 1);
    ck_assert(plan->proven);
    /* 32 rows of 256 floats on each of 4: 2 * 3/4 of them are sent */
    ck_assert_double_eq(plan->collective_bytes, 2 * 0.75 * 32 * 256 * 4);
    const sx_plan_step *y = &plan->step[plan->output[0]];
    ck_assert_int_eq(y->kind, SX_PLAN_ALL_REDUCE);
    ck_assert_uint_eq(y->node, 5);
    ck_assert_uint_eq(y->axis, 1);
    ck_assert_uint_eq(y->from, SX_PLACE_SUM);
    ck_assert_uint_eq(y->to, SX_PLACE_R);
    ck_assert_int_eq(y->local.dim[0].scale, 32);
    ck_assert_int_eq(y->local.dim[1].scale, 256);
}
END_TEST

START_TEST(test_wanted_places)
{
    const sx_plan *plan = plan_of(read(MLP("return %2 as \"y\" {dp = S(0), tp = S(1)}")));
    ck_assert_uint_eq(plan->collective_count, 1);
    ck_assert_uint_eq(count(plan, SX_PLAN_REDUCE_SCATTER), 1);
    plan = plan_of(read(MLP("return %2 as \"y\" {dp = S(0), tp = P(sum)}")));
    ck_assert_uint_eq(plan->collective_count, 0);
    plan = plan_of(read(MLP("return %2 as \"y\" {}"))); /* whole on every device */
    ck_assert_uint_eq(plan->collective_count, 2);
    ck_assert_uint_eq(count(plan, SX_PLAN_ALL_GATHER), 1);
}
END_TEST

/* ---- what the optimiser makes of it ---- */

static sx_graph *optimize(const sx_graph *graph, sx_optimize_report *report)
{
    sx_optimize_options options = sx_optimize_defaults();
    sx_graph *out;
    options.unfused = true;
    options.with_proof = false;
    ck_sx_ok(&cx, sx_optimize(&cx, graph, device("h100"), &options, &out, report));
    ck_sx_ok(&cx, sx_graph_check(&cx, out));
    ck_assert_ptr_nonnull(out->sharding);
    return out;
}

/* Two products by rows, each brought together before it goes on: the sum of the partial sums is brought
 * together once. */
START_TEST(test_sum_before_collective)
{
    sx_optimize_report report;
    sx_graph *graph =
        read("sx 1 graph \"\" mesh (tp = 4) { "
             "%x = parameter {name = \"x\", weight = 0} : f32[512, 1024] {tp = S(1)} "
             "%w = parameter {name = \"w\", weight = 1} : f32[1024, 1024] {tp = S(0)} "
             "%b = parameter {name = \"b\", weight = 0} : f32[512, 2048] "
             "%0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[512, 1024] "
             "%1 = concatenate(%0, %0) {axis = 1} : f32[512, 2048] "
             "%2 = add(%1, %b) : f32[512, 2048] "
             "%3 = reduce(%2) {dims = [0], reducer = add} : f32[2048] "
             "%4 = negate(%3) : f32[2048] "
             "%5 = exponential(%4) : f32[2048] return %5 as \"y\" {} }");
    sx_graph *better = optimize(graph, &report);
    const sx_plan *before = plan_of(graph);
    const sx_plan *after = plan_of(better);
    ck_assert_uint_eq(after->collective_count, 1);
    ck_assert_double_le(after->collective_bytes, before->collective_bytes);
    ck_assert_double_le(report.mesh_after_ns, report.mesh_before_ns);
}
END_TEST

/* (x + y) w, y a sum over parts: on one device the sum first. Where the parts of y lie on different devices
 * and x lies in rows, x w + y w brings together sixteen columns instead of a thousand. */
START_TEST(test_equal_form_with_less_communication)
{
    sx_optimize_report report;
    sx_graph *graph =
        read("sx 1 graph \"\" mesh (tp = 4) { "
             "%x = parameter {name = \"x\", weight = 0} : f32[4096, 1024] {tp = S(0)} "
             "%z = parameter {name = \"z\", weight = 0} : f32[4, 4096, 1024] {tp = S(0)} "
             "%w = parameter {name = \"w\", weight = 1} : f32[1024, 16] "
             "%0 = reduce(%z) {dims = [0], reducer = add} : f32[4096, 1024] "
             "%1 = add(%x, %0) : f32[4096, 1024] "
             "%2 = dot_general(%1, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[4096, 16] "
             "return %2 as \"y\" {tp = S(0)} }");
    const sx_plan *before = plan_of(graph);
    const sx_plan *after = plan_of(optimize(graph, &report));
    ck_assert_uint_eq(before->collective_count, 1);
    ck_assert_double_eq(before->collective_bytes, 0.75 * 4096 * 1024 * 4);
    ck_assert_uint_eq(after->collective_count, 1);
    ck_assert_double_eq(after->collective_bytes, 0.75 * 4096 * 16 * 4);
    ck_assert_double_lt(report.mesh_after_ns, report.mesh_before_ns);
    /* on one device it stays as it was */
    sx_graph plain = *graph;
    sx_graph *out;
    sx_optimize_options options = sx_optimize_defaults();
    plain.sharding = NULL;
    options.unfused = true;
    ck_sx_ok(&cx, sx_optimize(&cx, &plain, device("h100"), &options, &out, &report));
    ck_sx_ok(&cx, sx_sharding_restore(&cx, graph, out));
    ck_assert_double_eq(plan_of(out)->collective_bytes, before->collective_bytes);
}
END_TEST

/* ---- equal layers ---- */

/* x + gelu(norm(x) w1 + b1) w2 + b2, `layers` times two such blocks of different width; w1 by columns, w2 by
 * rows along tp, of layer `odd` the other way round. */
static sx_graph *stack(uint32_t layers, uint32_t odd)
{
    sx_buf text;
    uint32_t before = 0;
    sx_buf_init(&text, 1 << 20);
    sx_buf_put_text(&text, "sx 1 graph \"\" mesh (dp = 2, tp = 4) { %h0 = parameter {name = \"x\", "
                           "weight = 0} : f32[256, 512] {dp = S(0)}\n");
    for (uint32_t i = 0; i < 2 * layers; i++) {
        uint32_t wide = i % 2 == 0 ? 2048 : 1024;
        bool turned = i / 2 == odd;
        sx_buf_print(&text,
                     "%%s%u = parameter {name = \"s%u\", weight = 1} : f32[512] "
                     "%%t%u = parameter {name = \"t%u\", weight = 1} : f32[512] "
                     "%%a%u = parameter {name = \"a%u\", weight = 1} : f32[512, %u] {tp = S(%d)} "
                     "%%b%u = parameter {name = \"b%u\", weight = 1} : f32[%u] %s "
                     "%%c%u = parameter {name = \"c%u\", weight = 1} : f32[%u, 512] {tp = S(%d)} "
                     "%%d%u = parameter {name = \"d%u\", weight = 1} : f32[512]\n",
                     i, i, i, i, i, i, wide, turned ? 0 : 1, i, i, wide,
                     turned ? "" : "{tp = S(0)}", i, i, wide, turned ? 1 : 0, i, i);
        sx_buf_print(
            &text,
            "%%n%u = layer_norm(%%h%u, %%s%u, %%t%u) {axis = 1, eps = 1e-5} : f32[256, 512] "
            "%%p%u = dot_general(%%n%u, %%a%u) {lhs_contract = [1], rhs_contract = [0]} : "
            "f32[256, %u] "
            "%%q%u = broadcast_in_dim(%%b%u) {dims = [1]} : f32[256, %u] "
            "%%r%u = add(%%p%u, %%q%u) : f32[256, %u] "
            "%%g%u = gelu(%%r%u) : f32[256, %u]\n",
            i, before, i, i, i, i, i, wide, i, i, wide, i, i, i, wide, i, i, wide);
        sx_buf_print(&text,
                     "%%u%u = dot_general(%%g%u, %%c%u) {lhs_contract = [1], rhs_contract = [0]} : "
                     "f32[256, 512] "
                     "%%v%u = broadcast_in_dim(%%d%u) {dims = [1]} : f32[256, 512] "
                     "%%w%u = add(%%u%u, %%v%u) : f32[256, 512] "
                     "%%h%u = add(%%h%u, %%w%u) : f32[256, 512]\n",
                     i, i, i, i, i, i, i, i, i + 1, before, i);
        before = i + 1;
    }
    sx_buf_print(&text, "return %%h%u as \"y\" {dp = S(0)} }", before);
    sx_graph *graph;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph));
    sx_buf_fini(&text);
    return graph;
}

static uint32_t uses_of_most(const sx_optimize_report *report)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < report->part_count; i++) {
        most = report->part[i].use_count > most ? report->part[i].use_count : most;
    }
    return (uint32_t)most;
}

START_TEST(test_equal_layers_once)
{
    sx_optimize_report few, many, mixed;
    optimize(stack(3, 99), &few);
    const sx_plan *plan = plan_of(optimize(stack(6, 99), &many));
    ck_assert_uint_eq(plan->collective_count, 12); /* one all-reduce for each block */
    ck_assert_uint_eq(count(plan, SX_PLAN_ALL_REDUCE), 12);
    ck_assert_uint_ge(uses_of_most(&many), 4);
    ck_assert_uint_lt(many.nodes, 2 * few.nodes);
    ck_assert_double_le(many.mesh_after_ns, many.mesh_before_ns);
    /* the layer that lies in another way is no use of the same part */
    optimize(stack(6, 2), &mixed);
    ck_assert_uint_lt(uses_of_most(&mixed), uses_of_most(&many));
    ck_assert_double_le(mixed.mesh_after_ns, mixed.mesh_before_ns);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shard/sharding");
    TCase *tcase = tcase_create("analysis");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 400);
    tcase_add_test(tcase, test_analysis_is_the_fixpoint);
    tcase_add_test(tcase, test_sets_of_a_block);
    tcase_add_test(tcase, test_equal_forms_know_more);
    tcase_add_test(tcase, test_one_all_reduce);
    tcase_add_test(tcase, test_wanted_places);
    tcase_add_test(tcase, test_sum_before_collective);
    tcase_add_test(tcase, test_equal_form_with_less_communication);
    tcase_add_test(tcase, test_equal_layers_once);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
