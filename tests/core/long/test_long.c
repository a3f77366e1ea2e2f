/* Long searches: a lane in steps, its state as bytes, what longer search finds, the better of two modules. */
#include "tests/lib/test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/core.h"
#include "core/store/memory.h"
#include "core/ir/check.h"
#include "core/long/long.h"
#include "tests/core/store/reseal.h"
#include "tests/lib/gen_transformer.h"
#include "tests/lib/ir.h"

/* Chains of matrices: all ways to put the parentheses. The first is more than the usual limits hold; the last
 * saturates at once, but no best program is proven. */
static const uint32_t chains[][13] = {
    {32, 8, 8, 8, 32, 16, 32, 32, 16, 8, 16, 64, 64},
    {32, 4, 128, 8, 64, 16, 256, 4, 32, 128, 8},
};
enum { LONG_CHAIN, CHAIN };

static sx_ctx cx;
static sx_rng rng;
static sx_buf text, state[2], module[2];

static void print_chain(uint32_t which)
{
    const uint32_t *dim = chains[which];
    uint32_t count = 0;
    sx_buf_clear(&text);
    sx_buf_put_text(&text, "sx 1\ngraph \"chain\" {\n");
    while (count + 1 < SX_COUNT(chains[0]) && dim[count + 1] != 0) {
        sx_buf_print(&text, "  %%a%u = parameter {name = \"a%u\", weight = 0} : f32[%u, %u]\n",
                     count, count, dim[count], dim[count + 1]);
        count++;
    }
    for (uint32_t i = 1; i < count; i++) {
        sx_buf_print(&text, "  %%m%u = dot_general(%%%s%u, %%a%u) ", i, i == 1 ? "a" : "m", i - 1,
                     i);
        sx_buf_print(&text, "{lhs_contract = [1], rhs_contract = [0]} : f32[%u, %u]\n", dim[0],
                     dim[i + 1]);
    }
    sx_buf_print(&text, "  return %%m%u as \"r\"\n}\n", count - 1);
}

static void setup(void)
{
    rng.state = sx_test_seed();
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_buf_init(&text, (size_t)1 << 20);
    for (uint32_t i = 0; i < 2; i++) {
        sx_buf_init(&state[i], (size_t)256 << 20);
        sx_buf_init(&module[i], (size_t)64 << 20);
    }
    print_chain(CHAIN);
}

static void teardown(void)
{
    sx_buf_fini(&text);
    for (uint32_t i = 0; i < 2; i++) {
        sx_buf_fini(&state[i]);
        sx_buf_fini(&module[i]);
    }
    sx_ctx_fini(&cx);
}

static sx_core_request request_of(const char *objective)
{
    return (sx_core_request){.ir = sx_buf_span(&text),
                             .target = SX_SPAN_LITERAL("x86-64-v3"),
                             .range_any = true, /* chains of matrices, in any order */
                             .objective = sx_span_of(objective)};
}

static sx_span aligned(sx_span bytes)
{
    uint8_t *copy = sx_alloc(&cx, bytes.len + 64);
    ck_assert_ptr_nonnull(copy);
    copy += (64 - (uintptr_t)copy % 64) % 64;
    if (bytes.len > 0) {
        memcpy(copy, bytes.ptr, bytes.len);
    }
    return (sx_span){copy, bytes.len};
}

#define FUEL UINT64_C(120000000)
#define LONG_FUEL UINT64_C(400000000)

static sx_code step_of(const sx_core_request *request, uint32_t lane, uint64_t fuel, uint32_t to,
                       sx_span from, sx_core_step_result *result)
{
    sx_core_step step = {.request = request, .lane = lane, .fuel = fuel, .state = from};
    sx_buf_clear(&state[to]);
    sx_buf_clear(&module[to]);
    *result = (sx_core_step_result){.state = &state[to], .module = &module[to]};
    return sx_core_long_step(&cx, &step, result);
}

/* One step of a lane that is not done after the first, into state[to], module[to]. */
#define LANE 1u
static sx_code step_to(uint32_t to, sx_span from, sx_core_step_result *result)
{
    sx_core_request request = request_of("");
    return step_of(&request, LANE, FUEL, to, from, result);
}

static void decode(sx_span bytes, sx_module *m)
{
    ck_sx_ok(&cx, sx_module_decode(&cx, aligned(bytes), true, m));
}

static sx_span text_of(const char *chars, uint64_t count)
{
    return (sx_span){(const uint8_t *)chars, (size_t)count};
}

static sx_graph *parse(sx_span program, const sx_core_request *request)
{
    sx_graph *graph, *bound;
    ck_sx_ok(&cx, sx_graph_parse(&cx, program, &graph));
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, request->binding, request->binding_count, &bound));
    return bound;
}

/* The program of the module computes what the request's does, on random residues, and the certificate says why. */
static void check_module(const sx_core_request *request, sx_span bytes)
{
    sx_module m;
    sx_core_proof proof;
    decode(bytes, &m);
    ck_assert_uint_gt(m.proof_count, 0);
    ck_sx_ok(&cx, sx_core_prove(&cx, text_of(m.proof, m.proof_count), &proof));
    sx_key proved, written;
    sx_graph *better;
    ck_sx_ok(&cx, sx_graph_parse(&cx, text_of(m.optimized, m.optimized_count), &better));
    ck_sx_ok(&cx, sx_graph_key(&cx, proof.output, &proved));
    ck_sx_ok(&cx, sx_graph_key(&cx, better, &written));
    ck_assert(sx_key_equal(&proved, &written));
    const sx_graph *graph[2] = {parse(request->ir, request),
                                parse(text_of(m.optimized, m.optimized_count), request)};
    sx_tensor argument[64], result[2][4];
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph[0]->node_count; i++) {
        if (graph[0]->node[i].op == SX_OP_PARAMETER) {
            ck_assert_uint_lt(count, SX_COUNT(argument));
            sx_test_tensor(&cx, &rng, SX_EVAL_MODP, &graph[0]->node[i].type, &argument[count++]);
        }
    }
    ck_assert_uint_le(graph[0]->output_count, 4);
    for (uint32_t g = 0; g < 2; g++) {
        cx.fuel = SX_FUEL_DEFAULT;
        ck_sx_ok(&cx, sx_graph_eval(&cx, graph[g], SX_EVAL_MODP, argument, count, result[g],
                                    graph[g]->output_count));
    }
    for (uint32_t k = 0; k < graph[0]->output_count; k++) {
        sx_test_tensor_equal(&result[0][k], &result[1][k], "output");
    }
}

START_TEST(test_first_step_is_the_usual_search)
{
    sx_core_request request = request_of("");
    sx_core_step_result result;
    ck_sx_ok(&cx, step_to(0, (sx_span){NULL, 0}, &result));
    ck_assert_uint_eq(result.step, 1);
    ck_assert(result.objective > 0 && result.bound > 0 && result.bound <= result.objective);
    ck_assert_uint_gt(result.peak_bytes, 0);
    ck_sx_ok(&cx, sx_core_optimize_module(&cx, &request, &module[1]));
    sx_module a, b;
    ck_sx_ok(&cx, sx_module_decode(&cx, aligned(sx_buf_span(&module[0])), true, &a));
    ck_sx_ok(&cx, sx_module_decode(&cx, aligned(sx_buf_span(&module[1])), true, &b));
    ck_assert_uint_eq(a.optimized_count, b.optimized_count);
    ck_assert_mem_eq(a.optimized, b.optimized, a.optimized_count);
    ck_assert_mem_eq(a.proof, b.proof, a.proof_count);
    ck_assert_double_eq(a.info->cost_ns, result.objective);
}
END_TEST

static sx_hash128 hash_of(const sx_buf *bytes)
{
    return sx_hash128_of(sx_buf_span(bytes));
}

/* The second step made by another process, from the state as bytes. */
static void step_elsewhere(sx_span from, sx_hash128 *hash)
{
    int ends[2];
    int status;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        sx_core_step_result result;
        bool ok = step_to(1, from, &result) == SX_OK;
        *hash = hash_of(&state[1]);
        ok = ok && write(ends[1], hash, sizeof(*hash)) == (ssize_t)sizeof(*hash);
        _exit(ok ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(read(ends[0], hash, sizeof(*hash)), (ssize_t)sizeof(*hash));
    (void)close(ends[0]);
    (void)close(ends[1]);
}

START_TEST(test_same_bytes_again)
{
    sx_core_step_result result;
    sx_hash128 elsewhere;
    ck_sx_ok(&cx, step_to(0, (sx_span){NULL, 0}, &result));
    sx_span first = aligned(sx_buf_span(&state[0]));
    ck_assert(!result.done);
    ck_sx_ok(&cx, step_to(0, first, &result));
    ck_assert_uint_eq(result.step, 2);
    ck_sx_ok(&cx, step_to(1, (sx_span){NULL, 0}, &result));
    ck_assert(sx_span_equal(first, sx_buf_span(&state[1])));
    ck_sx_ok(&cx, step_to(1, first, &result));
    ck_assert(sx_span_equal(sx_buf_span(&state[0]), sx_buf_span(&state[1])));
    step_elsewhere(first, &elsewhere);
    sx_hash128 here = hash_of(&state[0]);
    ck_assert_mem_eq(&here, &elsewhere, sizeof(here));
}
END_TEST

/* Steps until the lane is done, at most `steps`: nothing gets worse, every module holds. The objective at the
 * first and the last. */
static void run_lane(const sx_core_request *request, uint32_t lane, uint64_t fuel, uint32_t steps,
                     double *first, double *last)
{
    sx_span from = {NULL, 0};
    sx_core_step_result result = {.done = false};
    uint64_t used = 0;
    for (uint32_t i = 0; i < steps && !result.done; i++) {
        ck_sx_ok(&cx, step_of(request, lane, fuel, 0, from, &result));
        ck_assert_uint_eq(result.step, i + 1);
        uint64_t most = fuel > SX_CORE_STEP_FUEL_MIN ? fuel : SX_CORE_STEP_FUEL_MIN;
        ck_assert_uint_le(result.fuel - used, most + most / 8);
        used = result.fuel;
        ck_assert(i == 0 ? module[0].len > 0 : result.objective <= *last);
        if (module[0].len > 0) {
            ck_assert(i == 0 || result.objective < *last ||
                      sx_span_is(request->objective, "pareto"));
            check_module(request, sx_buf_span(&module[0]));
        }
        *last = result.objective;
        *first = i == 0 ? result.objective : *first;
        from = aligned(sx_buf_span(&state[0]));
    }
}

/* x0 w0 + x1 w1 + x2 w0 + x3 w1: whoever opens sums that others read needs two products. */
static const char products[] =
    "sx 1\ngraph \"products\" {\n"
    "  %x0 = parameter {name = \"x0\", weight = 0} : f32[8, 64]\n"
    "  %x1 = parameter {name = \"x1\", weight = 0} : f32[8, 64]\n"
    "  %x2 = parameter {name = \"x2\", weight = 0} : f32[8, 64]\n"
    "  %x3 = parameter {name = \"x3\", weight = 0} : f32[8, 64]\n"
    "  %w0 = parameter {name = \"w0\", weight = 1} : f32[64, 64]\n"
    "  %w1 = parameter {name = \"w1\", weight = 1} : f32[64, 64]\n"
    "  %d0 = dot_general(%x0, %w0) {lhs_contract = [1], rhs_contract = [0]} : f32[8, 64]\n"
    "  %d1 = dot_general(%x1, %w1) {lhs_contract = [1], rhs_contract = [0]} : f32[8, 64]\n"
    "  %d2 = dot_general(%x2, %w0) {lhs_contract = [1], rhs_contract = [0]} : f32[8, 64]\n"
    "  %d3 = dot_general(%x3, %w1) {lhs_contract = [1], rhs_contract = [0]} : f32[8, 64]\n"
    "  %s1 = add(%d0, %d1) : f32[8, 64]\n  %s2 = add(%s1, %d2) : f32[8, 64]\n"
    "  %s3 = add(%s2, %d3) : f32[8, 64]\n  return %s3 as \"y\"\n}\n";

/* What the usual search has proven to be its best is not the best there is. */
START_TEST(test_other_lanes_find_more)
{
    sx_core_request request = request_of("");
    uint32_t count, better = 0;
    request.ir = sx_span_of(products);
    ck_sx_ok(&cx, sx_core_long_lanes(&cx, &request, &count));
    for (uint32_t lane = 0; lane < count; lane++) {
        double first, last;
        run_lane(&request, lane, 20000000, 3, &first, &last);
        better += last < 0.8 * first ? 1 : 0;
    }
    ck_assert_uint_ge(better, 1);
}
END_TEST

START_TEST(test_little_fuel)
{
    double first, last;
    sx_core_request request;
    print_chain(LONG_CHAIN);
    request = request_of("");
    run_lane(&request, 0, 0, 1, &first, &last);
    run_lane(&request, 0, 5000000, 3, &first, &last);
}
END_TEST

/* Two equal layers: the lanes go on with each of the parts. */
static const sx_binding batch = {.name = {(const uint8_t *)"batch", 5}, .value = 2};

START_TEST(test_every_lane)
{
    sx_transformer shape = sx_transformer_default(2);
    sx_core_request request;
    uint32_t count;
    shape.hidden = 16;
    shape.heads = 2;
    shape.ffn = 32;
    shape.seq = 4;
    sx_buf_clear(&text);
    sx_transformer_print(&shape, &text);
    request = request_of("");
    request.binding = &batch;
    request.binding_count = 1;
    ck_sx_ok(&cx, sx_core_long_lanes(&cx, &request, &count));
    ck_assert_uint_ge(count, 2);
    ck_assert_uint_le(count, SX_CORE_LANES_MAX);
    for (uint32_t lane = 0; lane < count; lane++) {
        double first, last;
        for (uint32_t k = 0; k < lane; k++) {
            ck_assert_str_ne(sx_core_long_lane_name(&request, k),
                             sx_core_long_lane_name(&request, lane));
        }
        run_lane(&request, lane, 20000000, 3, &first, &last);
    }
}
END_TEST

START_TEST(test_foreign_and_damaged_states)
{
    sx_core_step_result result;
    ck_sx_ok(&cx, step_to(0, (sx_span){NULL, 0}, &result));
    sx_span good = aligned(sx_buf_span(&state[0]));
    uint8_t *byte = (uint8_t *)(uintptr_t)good.ptr;
    byte[good.len / 2] ^= 1;
    ck_assert_int_eq(step_to(0, good, &result), SX_CORRUPT);
    sx_ctx_reset_error(&cx);
    byte[good.len / 2] ^= 1;
    ck_assert_int_eq(step_to(0, (sx_span){good.ptr, good.len - 64}, &result), SX_CORRUPT);
    sx_ctx_reset_error(&cx);
    ck_assert_int_eq(step_to(0, (sx_span){good.ptr, 7}, &result), SX_CORRUPT);
    sx_ctx_reset_error(&cx);
    sx_core_request other = request_of("energy");
    sx_core_step step = {.request = &other, .lane = LANE, .fuel = FUEL, .state = good};
    ck_assert_int_eq(sx_core_long_step(&cx, &step, &result), SX_ABSENT);
    sx_ctx_reset_error(&cx);
    other = request_of("");
    step.lane = LANE + 1;
    ck_assert_int_eq(sx_core_long_step(&cx, &step, &result), SX_ABSENT);
    sx_ctx_reset_error(&cx);
    step.lane = SX_CORE_LANES_MAX;
    ck_assert_int_eq(sx_core_long_step(&cx, &step, &result), SX_INPUT);
}
END_TEST

/* The digests of a damaged state made good again, those of the snapshots in it too. */
static void reseal(uint8_t *bytes, size_t len)
{
    sx_long_state head;
    size_t at = SX_LONG_STATE_BYTES;
    while (at + sizeof(sx_memory_record) <= len) {
        sx_memory_record record;
        memcpy(&record, bytes + at, sizeof(record));
        size_t words =
            sizeof(record) + (size_t)record.node_count * 4 + (size_t)record.run_count * 8;
        size_t snapshot = (at + words + 63) / 64 * 64;
        if (snapshot >= len || record.size > len - snapshot) {
            break;
        }
        sx_test_reseal(bytes + snapshot, (size_t)record.size);
        at = (snapshot + (size_t)record.size + 63) / 64 * 64;
    }
    memcpy(&head, bytes, sizeof(head));
    head.size = len;
    head.digest = 0;
    uint64_t seed = sx_hash64((sx_span){(const uint8_t *)&head, sizeof(head)}, 0);
    head.digest =
        sx_hash64((sx_span){bytes + SX_LONG_STATE_BYTES, len - SX_LONG_STATE_BYTES}, seed);
    memcpy(bytes, &head, sizeof(head));
}

#define DAMAGES 60u

/* Damage that no digest shows: an error, or a step whose program is certified all the same. */
START_TEST(test_sealed_damage)
{
    static const char program[] =
        "sx 1\ngraph \"small\" {\n"
        "  %x = parameter {name = \"x\", weight = 0} : f32[8, 4]\n"
        "  %w = parameter {name = \"w\", weight = 1} : f32[4, 4]\n"
        "  %y = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[8, 4]\n"
        "  %z = add(%y, %x) : f32[8, 4]\n  %t = tanh(%z) : f32[8, 4]\n"
        "  %u = multiply(%t, %t) : f32[8, 4]\n  return %u as \"u\"\n}\n";
    sx_core_request request = request_of("");
    sx_core_step_result result;
    request.ir = sx_span_of(program);
    ck_sx_ok(&cx, step_of(&request, 1, FUEL, 0, (sx_span){NULL, 0}, &result));
    ck_assert(!result.done);
    sx_span good = aligned(sx_buf_span(&state[0]));
    sx_span bad = aligned(good);
    uint8_t *byte = (uint8_t *)(uintptr_t)bad.ptr;
    double best = result.objective;
    for (uint32_t i = 0; i < DAMAGES; i++) {
        memcpy(byte, good.ptr, good.len);
        size_t len = sx_rng_below(&rng, 4) == 0 ? good.len - 64 * sx_rng_below(&rng, 8) : good.len;
        for (uint64_t k = sx_rng_below(&rng, 4); k < 4; k++) {
            size_t range = sx_rng_below(&rng, 2) == 0 ? 512 : len - 36;
            byte[36 + sx_rng_below(&rng, range)] = (uint8_t)sx_rng_next(&rng);
        }
        reseal(byte, len);
        sx_code code = step_of(&request, 1, FUEL, 0, (sx_span){byte, len}, &result);
        ck_assert(code == SX_OK || code == SX_CORRUPT || code == SX_ABSENT);
        if (code == SX_OK && module[0].len > 0) {
            check_module(&request, sx_buf_span(&module[0]));
        }
        sx_ctx_reset_error(&cx);
    }
    ck_assert(best > 0);
}
END_TEST

START_TEST(test_full_state)
{
    sx_core_step_result result;
    sx_core_request request = request_of("");
    sx_core_step step = {.request = &request, .fuel = FUEL};
    sx_buf_fini(&state[0]);
    sx_buf_init(&state[0], 100000);
    result = (sx_core_step_result){.state = &state[0], .module = &module[0]};
    ck_sx_fails(&cx, sx_core_long_step(&cx, &step, &result), SX_LIMIT, "more than 100000 bytes");
    ck_assert_uint_eq(state[0].len, 0);
    ck_assert_uint_eq(result.step, 1);
    check_module(&request, sx_buf_span(&module[0]));
}
END_TEST

START_TEST(test_longer_is_better_and_merge)
{
    sx_core_step_result result;
    sx_core_request request, plain;
    double objective[2];
    print_chain(LONG_CHAIN);
    request = request_of("");
    plain = request;
    plain.no_reassociate = true; /* another key, and a worse program */
    ck_sx_ok(&cx, step_of(&request, 0, LONG_FUEL, 0, (sx_span){NULL, 0}, &result));
    sx_span first = aligned(sx_buf_span(&module[0]));
    objective[0] = result.objective;
    ck_sx_ok(&cx, step_of(&request, 0, LONG_FUEL, 1, aligned(sx_buf_span(&state[0])), &result));
    sx_span second = aligned(sx_buf_span(&module[1]));
    objective[1] = result.objective;
    ck_assert_uint_gt(second.len, 0);
    ck_assert(objective[1] < objective[0]);
    check_module(&request, first);
    check_module(&request, second);
    sx_span better = second, worse = first;
    sx_span none = {NULL, 0};
    const struct {
        sx_span a, b, out;
    } rows[] = {{better, worse, better},
                {worse, better, better},
                {worse, none, worse},
                {none, worse, worse},
                {better, better, better}};
    for (uint32_t i = 0; i < SX_COUNT(rows); i++) {
        sx_buf_clear(&state[0]);
        ck_sx_ok(&cx, sx_core_long_merge(&cx, &request, rows[i].a, rows[i].b, &state[0]));
        ck_assert(sx_span_equal(rows[i].out, sx_buf_span(&state[0])));
    }
    sx_buf_clear(&state[0]);
    ck_sx_fails(&cx, sx_core_long_merge(&cx, &plain, better, worse, &state[0]), SX_ABSENT,
                "another request");
    ck_assert_int_eq(
        sx_core_long_merge(&cx, &request, (sx_span){better.ptr, better.len - 64}, worse, &state[0]),
        SX_CORRUPT);
}
END_TEST

/* Storing against computing again, as in test_pareto.c. */
static const char trade[] =
    "sx 1\ngraph \"trade\" {\n"
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

/* First steps of all lanes together: the front that one call gives. */
START_TEST(test_front)
{
    sx_core_request request = request_of("pareto");
    sx_core_step_result result;
    uint32_t count;
    sx_module merged, whole;
    request.ir = sx_span_of(trade);
    ck_sx_ok(&cx, sx_core_long_lanes(&cx, &request, &count));
    sx_span front = {NULL, 0};
    for (uint32_t lane = 0; lane < count; lane++) {
        ck_sx_ok(&cx, step_of(&request, lane, FUEL, 0, (sx_span){NULL, 0}, &result));
        sx_module m;
        decode(sx_buf_span(&module[0]), &m);
        ck_assert_uint_eq(m.point_count, 1);
        ck_assert_double_eq(m.point[0].time_ns, result.objective);
        sx_buf_clear(&module[1]);
        ck_sx_ok(&cx, sx_core_long_merge(&cx, &request, front, aligned(sx_buf_span(&module[0])),
                                         &module[1]));
        front = aligned(sx_buf_span(&module[1]));
    }
    sx_buf_clear(&module[0]);
    ck_sx_ok(&cx, sx_core_optimize_module(&cx, &request, &module[0]));
    decode(front, &merged);
    decode(sx_buf_span(&module[0]), &whole);
    ck_assert_uint_ge(whole.point_count, 2);
    ck_assert_uint_eq(merged.point_count, whole.point_count);
    for (uint64_t i = 0; i < whole.point_count; i++) {
        ck_assert_double_eq(merged.point[i].time_ns, whole.point[i].time_ns);
        ck_assert_uint_eq(merged.point[i].peak_bytes, whole.point[i].peak_bytes);
        sx_span program = sx_module_string(&merged, merged.point[i].program);
        ck_assert(sx_span_equal(program, sx_module_string(&whole, whole.point[i].program)));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.long");
    TCase *steps = tcase_create("steps");
    tcase_add_checked_fixture(steps, setup, teardown);
    tcase_add_test(steps, test_first_step_is_the_usual_search);
    tcase_add_test(steps, test_same_bytes_again);
    tcase_set_timeout(steps, 400);
    tcase_add_test(steps, test_other_lanes_find_more);
    tcase_add_test(steps, test_little_fuel);
    tcase_add_test(steps, test_every_lane);
    tcase_add_test(steps, test_foreign_and_damaged_states);
    tcase_add_test(steps, test_sealed_damage);
    tcase_add_test(steps, test_full_state);
    tcase_add_test(steps, test_longer_is_better_and_merge);
    tcase_add_test(steps, test_front);
    suite_add_tcase(suite, steps);
    return sx_test_main(suite);
}
