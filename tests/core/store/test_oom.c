/* Memory ends anywhere while stored graphs are written, read, met and exported, and while programs are cut into
 * pieces: SX_NOMEM each time, nothing lost, and the same context with more memory goes on. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/optimize/export.h"
#include "core/optimize/optimize.h"
#include "core/store/meet.h"
#include "core/store/memory.h"
#include "core/store/pair.h"
#include "core/store/pieces.h"
#include "core/store/wiring.h"
#include "tests/lib/gen_transformer.h"
#include "tests/lib/sweep.h"

static const char layer[] = "sx 1\ngraph \"p\" (batch in [1, 64]) {\n"
                            "%x = parameter {name = \"x\", weight = 0} : f32[batch, 8]\n"
                            "%w = parameter {name = \"w\", weight = 1} : f32[8, 6]\n"
                            "%b = parameter {name = \"b\", weight = 1} : f32[6]\n"
                            "%r = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 6]\n"
                            "%p = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : "
                            "f32[batch, 6]\n"
                            "%t = add(%p, %r) : f32[batch, 6]\n"
                            "%y = relu(%t) : f32[batch, 6]\n"
                            "return %y as \"y\"\n}\n";

/* What the sweeps read; made once in `cx`, which has room. */
static sx_ctx cx;
static sx_buf stored;     /* the e-graph of `layer` */
static sx_buf deep;       /* a transformer as text */
static sx_buf wiring;     /* its wiring */
static sx_buf remembered; /* what a search of `layer` leaves */
static const sx_device *device;

static const sx_key rules = {{7}};

static sx_code program_of(sx_ctx *c, sx_span text, const sx_graph **program)
{
    sx_graph *graph, *canonical;
    SX_TRY(sx_graph_parse(c, text, &graph));
    SX_TRY(sx_graph_canon(c, graph, &canonical));
    *program = canonical;
    return SX_OK;
}

static sx_code wire(sx_ctx *c, sx_buf *out)
{
    const sx_graph *program;
    const sx_roll *roll;
    sx_wired_part part[SX_ROLL_PARTS_MAX] = {0};
    sx_library_info info = {0};
    SX_TRY(program_of(c, sx_buf_span(&deep), &program));
    SX_TRY(sx_roll_find(c, program, NULL, &roll));
    ck_assert_ptr_nonnull(roll);
    return sx_wiring_store(c, roll, part, &info, &rules, out);
}

static void setup(void)
{
    const sx_graph *program;
    sx_graph *better;
    sx_optimize_report report;
    sx_optimize_options options = sx_optimize_defaults();
    sx_transformer shape = sx_transformer_default(3);
    sx_memory memory;
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_buf_init(&stored, (size_t)64 << 20);
    sx_buf_init(&deep, (size_t)1 << 20);
    sx_buf_init(&wiring, (size_t)1 << 20);
    sx_buf_init(&remembered, (size_t)64 << 20);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v3"), &device));
    ck_sx_ok(&cx, program_of(&cx, sx_span_of(layer), &program));
    ck_sx_ok(&cx, sx_memory_open(&cx, (sx_span){NULL, 0}, &rules, &remembered, &memory));
    options.whole = true;
    options.snapshot = &stored;
    options.snapshot_rules = rules;
    options.memory = &memory;
    ck_sx_ok(&cx, sx_optimize(&cx, program, device, &options, &better, &report));
    ck_assert(stored.len > 0 && remembered.len > 0 && !memory.full);
    sx_transformer_print(&shape, &deep);
    ck_sx_ok(&cx, wire(&cx, &wiring));
}

static void teardown(void)
{
    sx_buf_fini(&stored);
    sx_buf_fini(&deep);
    sx_buf_fini(&wiring);
    sx_buf_fini(&remembered);
    sx_ctx_fini(&cx);
}

/* ---- the works ---- */

static sx_code load(sx_ctx *c, sx_library_graph *graph)
{
    return sx_library_load(c, sx_buf_span(&stored), &rules, SX_LIBRARY_ALL, graph);
}

static sx_code library_load(sx_ctx *c, void *self)
{
    sx_library_graph graph;
    sx_library_info info;
    (void)self;
    SX_TRY(load(c, &graph));
    SX_TRY(sx_eg_check(c, &graph.t.eg));
    return sx_library_peek(c, sx_buf_span(&stored), &rules, &info);
}

/* Through the record of a search: found, its program bound, and put again. */
static sx_code memory_pass(sx_ctx *c, void *self)
{
    sx_memory memory;
    sx_memory_graph *found = NULL;
    const sx_graph *program = NULL;
    sx_buf after;
    (void)self;
    sx_buf_init(&after, (size_t)64 << 20);
    sx_code code = program_of(c, sx_span_of(layer), &program);
    /* the start of a buffer of malloc is aligned to 16 only */
    uint8_t *copy = code == SX_OK ? sx_alloc(c, remembered.len + SX_MEMORY_ALIGN) : NULL;
    code = copy == NULL ? c->error.code : code;
    if (code == SX_OK) {
        copy += (SX_MEMORY_ALIGN - (uintptr_t)copy % SX_MEMORY_ALIGN) % SX_MEMORY_ALIGN;
        memcpy(copy, remembered.ptr, remembered.len);
        code = sx_memory_open(c, (sx_span){copy, remembered.len}, &rules, &after, &memory);
    }
    code = code == SX_OK ? sx_memory_find(c, &memory, program, &found) : code;
    if (code == SX_OK) {
        ck_assert_ptr_nonnull(found);
        sx_memory_source source = {.t = &found->graph.t,
                                   .set = &found->graph.set,
                                   .program = found->program,
                                   .node = found->node,
                                   .choice = found->graph.choice,
                                   .run = found->run,
                                   .run_count = found->run_count,
                                   .stop = found->graph.stop};
        code = sx_memory_put(c, &memory, &source);
    }
    if (code == SX_OK) {
        ck_assert_uint_eq(after.len, remembered.len);
    }
    sx_buf_fini(&after);
    return code;
}

static sx_code meet(sx_ctx *c, void *self)
{
    sx_library_graph graph;
    sx_meeting meeting;
    const sx_graph *program;
    bool enabled[SX_RULE_COUNT];
    sx_optimize_options options = sx_optimize_defaults();
    (void)self;
    SX_TRY(load(c, &graph));
    SX_TRY(program_of(c, sx_span_of(layer), &program));
    SX_TRY(sx_optimize_rules(c, &options, enabled));
    SX_TRY(sx_meet(c, &graph, program, &(sx_meet_options){enabled, true, true}, &meeting));
    ck_assert(meeting.met && meeting.certificate.len > 0);
    return SX_OK;
}

static sx_code pieces(sx_ctx *c, void *self)
{
    const sx_graph *program;
    sx_pieces found;
    (void)self;
    SX_TRY(program_of(c, sx_buf_span(&deep), &program));
    SX_TRY(sx_pieces_find(c, program, &found));
    ck_assert_uint_gt(found.count, 1);
    return SX_OK;
}

static sx_code wiring_store(sx_ctx *c, void *self)
{
    sx_buf out;
    (void)self;
    sx_buf_init(&out, (size_t)1 << 20);
    sx_code code = wire(c, &out);
    ck_assert(code != SX_OK || sx_span_equal(sx_buf_span(&out), sx_buf_span(&wiring)));
    sx_buf_fini(&out);
    return code;
}

static sx_code wiring_open(sx_ctx *c, void *self)
{
    sx_wiring opened;
    (void)self;
    return sx_wiring_open(c, sx_buf_span(&wiring), &rules, &opened);
}

/* What finds stored programs again: family, value, marks. */
static sx_code keys(sx_ctx *c, void *self)
{
    const sx_graph *program;
    sx_buf text;
    bool known, paired;
    uint64_t value;
    uint32_t *mark, *parameter_of;
    (void)self;
    SX_TRY(program_of(c, sx_span_of(layer), &program));
    SX_TRY(sx_library_value(c, program, 1000000, &known, &value));
    SX_TRY(sx_pair_marks(c, program, &mark));
    SX_TRY(sx_pair_shape(c, program, &value));
    SX_TRY(sx_pair_parameters(c, program, program, mark, false, &parameter_of, &paired));
    ck_assert(known && paired);
    sx_buf_init(&text, 4096);
    sx_code code = sx_library_family(c, program, &text);
    sx_buf_fini(&text);
    return code;
}

typedef sx_code (*exporter)(sx_ctx *, const sx_library_graph *, const uint64_t *, sx_buf *);
static const struct {
    const char *name;
    exporter run;
} exporters[] = {{"JSON", sx_export_json}, {"DOT", sx_export_dot}, {"SVG", sx_export_svg}};

static sx_code export_with(sx_ctx *c, exporter run, size_t limit, size_t *len)
{
    sx_library_graph graph;
    uint64_t *cost;
    sx_buf out;
    sx_optimize_options options = sx_optimize_defaults();
    SX_TRY(load(c, &graph));
    SX_TRY(sx_optimize_node_costs(c, &graph.t, device, &options.objective, &cost));
    sx_buf_init(&out, limit);
    sx_code code = run(c, &graph, cost, &out);
    *len = out.len;
    sx_buf_fini(&out);
    return code;
}

static sx_code export_once(sx_ctx *c, void *self)
{
    size_t len;
    return export_with(c, ((const __typeof__(exporters[0]) *)self)->run, (size_t)16 << 20, &len);
}

static const sx_test_sweep sweeps[] = {
    {.name = "library", .work = library_load, .fails_min = 20},
    {.name = "memory", .work = memory_pass, .part = 0.01, .fails_min = 20},
    {.name = "meet", .work = meet, .part = 0.01, .fails_min = 20},
    {.name = "pieces", .work = pieces, .part = 0.01, .fails_min = 20},
    {.name = "wiring stored", .work = wiring_store, .part = 0.01, .fails_min = 20},
    {.name = "wiring opened", .work = wiring_open, .fails_min = 1},
    {.name = "keys", .work = keys, .fails_min = 20},
};

START_TEST(test_sweep)
{
    (void)sx_test_oom(&sweeps[_i]);
}
END_TEST

/* The arena ends, or the room for the text: at every length short of the whole SX_LIMIT, never half a file. */
START_TEST(test_exports)
{
    size_t whole, len;
    (void)sx_test_oom(&(sx_test_sweep){.name = exporters[_i].name,
                                       .work = export_once,
                                       .self = (void *)(uintptr_t)&exporters[_i],
                                       .fails_min = 20});
    ck_sx_ok(&cx, export_with(&cx, exporters[_i].run, (size_t)16 << 20, &whole));
    for (size_t limit = 0; limit < whole; limit += whole / 7 + 1) {
        ck_sx_fails(&cx, export_with(&cx, exporters[_i].run, limit, &len), SX_LIMIT, "more than");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.store.oom");
    TCase *cases = tcase_create("oom");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_sweep, 0, (int)SX_COUNT(sweeps));
    tcase_add_loop_test(cases, test_exports, 0, (int)SX_COUNT(exporters));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
