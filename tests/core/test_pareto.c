/* The front of estimated time and peak memory: a program where storing is faster and computing again is
 * smaller; every point computes what the input computes; objectives make small what they name. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/optimize/optimize.h"
#include "core/pareto.h"
#include "core/plan/peak.h"

/* Seven functions of one tensor, read by four reductions. */
static const char program[] =
    "sx 1\ngraph \"trade\" (n in [1, 4096]) {\n"
    "  %x = parameter {name = \"x\", weight = 0} : f32[1024, 512]\n"
    "  %a = erf(%x) : f32[1024, 512]\n  %b = tanh(%a) : f32[1024, 512]\n"
    "  %c = erf(%b) : f32[1024, 512]\n  %d = tanh(%c) : f32[1024, 512]\n"
    "  %e = erf(%d) : f32[1024, 512]\n  %f = tanh(%e) : f32[1024, 512]\n"
    "  %g = erf(%f) : f32[1024, 512]\n"
    "  %r0 = reduce(%g) {dims = [0], reducer = add} : f32[512]\n"
    "  %r1 = reduce(%g) {dims = [1], reducer = add} : f32[1024]\n"
    "  %r2 = reduce(%g) {dims = [1], reducer = maximum} : f32[1024]\n"
    "  %r3 = reduce(%g) {dims = [0], reducer = maximum} : f32[512]\n"
    "  return %r0 as \"r0\", %r1 as \"r1\", %r2 as \"r2\", %r3 as \"r3\"\n}\n";

static sx_ctx cx;
static sx_image image;
static const sx_binding n = {.name = {(const uint8_t *)"n", 1}, .value = 8};

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_image_init(&image);
}

static void teardown(void)
{
    sx_image_fini(&image);
    sx_ctx_fini(&cx);
}

static sx_core_request request_of(const char *objective)
{
    return (sx_core_request){.ir = sx_span_of(program),
                             .target = SX_SPAN_LITERAL("x86-64-v3"),
                             .binding = &n,
                             .binding_count = 1,
                             .objective = sx_span_of(objective)};
}

static sx_graph *parse(sx_span text)
{
    sx_graph *graph, *bound;
    ck_sx_ok(&cx, sx_graph_parse(&cx, text, &graph));
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, &n, 1, &bound));
    return bound;
}

static const sx_module_point *front(uint32_t *count)
{
    *count = (uint32_t)(image.point.len / sizeof(sx_module_point));
    return (const sx_module_point *)(const void *)image.point.ptr;
}

START_TEST(test_storing_against_computing_again)
{
    sx_core_request request = request_of("pareto");
    uint32_t count;
    ck_sx_ok(&cx, sx_core_optimize(&cx, &request, &image));
    const sx_module_point *point = front(&count);
    ck_assert_uint_ge(count, 2);
    ck_assert_uint_eq(point[0].peak_bytes, 1024 * 512 * 4); /* the tensor that four read */
    ck_assert_uint_eq(point[count - 1].peak_bytes, 0);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0) {
            ck_assert_double_gt(point[i].time_ns, point[i - 1].time_ns);
            ck_assert_uint_lt(point[i].peak_bytes, point[i - 1].peak_bytes);
            ck_assert_double_gt(point[i].energy_nj, point[i - 1].energy_nj);
        }
        sx_span text = {image.strings.ptr + point[i].program.offset, point[i].program.size};
        sx_graph *graph = parse(text);
        uint64_t peak;
        ck_sx_ok(&cx, sx_plan_peak(&cx, graph, &peak));
        ck_assert_uint_eq(peak, point[i].peak_bytes);
    }
}
END_TEST

/* The extracted program under each objective, and what it needs. */
static void needs(const char *objective, double *time, uint64_t *peak, double *energy)
{
    sx_core_request request = request_of(objective);
    const sx_device *device;
    sx_image one;
    sx_image_init(&one);
    ck_sx_ok(&cx, sx_core_optimize(&cx, &request, &one));
    const sx_module_search *search = (const void *)one.search.ptr;
    ck_assert_uint_eq(one.search.len, sizeof(*search));
    if (strcmp(objective, "time") == 0) { /* a bound on bytes or joules is none on time */
        ck_assert(search->bound_ns > 0 && search->bound_ns <= search->cost_ns);
    } else {
        ck_assert(search->bound_ns == 0);
    }
    sx_graph *graph = parse(sx_buf_span(&one.optimized));
    ck_sx_ok(&cx, sx_device_find(&cx, request.target, &device));
    *time = *energy = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        sx_type input[SX_INPUTS_MAX];
        sx_cost cost;
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = sx_graph_node(graph, sx_graph_input(graph, node, k))->type;
        }
        ck_sx_ok(&cx, sx_cost_node(&cx, device, NULL, 0, node->op, sx_graph_attr(graph, node),
                                   input, node->input_count, &node->type, &cost));
        *time += node->input_count > 0 ? cost.cost_ns : 0;
        *energy += node->input_count > 0 ? cost.energy_nj : 0;
    }
    ck_sx_ok(&cx, sx_plan_peak(&cx, graph, peak));
    sx_image_fini(&one);
}

START_TEST(test_objectives)
{
    static const char *const name[3] = {"time", "memory", "energy"};
    double time[3], energy[3];
    uint64_t peak[3];
    for (uint32_t i = 0; i < 3; i++) {
        needs(name[i], &time[i], &peak[i], &energy[i]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_double_le(time[0], time[i]);
        ck_assert_uint_le(peak[1], peak[i]);
        ck_assert_double_le(energy[2], energy[i]);
    }
    ck_assert_uint_lt(peak[1], peak[0]);
}
END_TEST

/* All searches together stay below the limit of the request: what the first one holds is not there for the others. */
START_TEST(test_memory_is_held)
{
    static const struct {
        uint32_t times;
        sx_code code;
    } limit[] = {{1, SX_NOMEM}, {8, SX_OK}};
    sx_core_request request = request_of("pareto");
    ck_sx_ok(&cx, sx_core_optimize(&cx, &request, &image));
    size_t used = cx.arena.used_bytes;
    for (size_t i = 0; i < SX_COUNT(limit); i++) {
        teardown();
        sx_ctx_init(&cx, limit[i].times * used + 65536);
        sx_image_init(&image);
        ck_assert_int_eq(sx_core_optimize(&cx, &request, &image), limit[i].code);
    }
}
END_TEST

START_TEST(test_refusals)
{
    sx_core_request request = request_of("pareto");
    ck_assert_int_eq(sx_core_compile(&cx, &request, &image), SX_INPUT);
    ck_assert_ptr_nonnull(strstr(cx.error.text, "pareto"));
    sx_ctx_reset_error(&cx);
    request = request_of("speed");
    ck_assert_int_eq(sx_core_optimize(&cx, &request, &image), SX_INPUT);
    ck_assert_str_eq(cx.error.text,
                     "objective \"speed\" is not known, expected time, memory, energy or pareto");
    sx_key time, memory, none;
    sx_span part[SX_PART_COUNT];
    sx_ctx_reset_error(&cx);
    request = request_of("");
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &none, part));
    request = request_of("time");
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &time, part));
    request = request_of("memory");
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &memory, part));
    ck_assert(sx_key_equal(&none, &time) && !sx_key_equal(&time, &memory));
}
END_TEST

/* x -> a -> b -> y and x -> c -> y: a and c live together, b takes the place of none of them. */
START_TEST(test_peak)
{
    static const char chain[] = "sx 1\ngraph \"g\" {\n"
                                "  %x = parameter {name = \"x\", weight = 0} : f32[64]\n"
                                "  %w = parameter {name = \"w\", weight = 1} : f32[64]\n"
                                "  %v = exponential(%w) : f32[64]\n"
                                "  %a = add(%x, %v) : f32[64]\n  %s = reshape(%a) : f32[8, 8]\n"
                                "  %t = reshape(%s) : f32[64]\n  %b = tanh(%t) : f32[64]\n"
                                "  %c = erf(%a) : f32[64]\n  %y = add(%b, %c) : f32[64]\n"
                                "  return %y as \"y\"\n}\n";
    uint64_t peak;
    sx_graph *graph;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(chain), &graph));
    ck_sx_ok(&cx, sx_plan_peak(&cx, graph, &peak));
    ck_assert_uint_eq(peak, 3 * 256); /* a until c is made, b, c */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.pareto");
    TCase *cases = tcase_create("pareto");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_storing_against_computing_again);
    tcase_add_test(cases, test_objectives);
    tcase_add_test(cases, test_memory_is_held);
    tcase_add_test(cases, test_refusals);
    tcase_add_test(cases, test_peak);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
