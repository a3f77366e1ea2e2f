/* bench_snapshot.c - stored e-graphs: what it takes to store and load a million nodes, and what a stored transformer saves: loading its
 * graph and finding an equal program in it (every sum and product with its operands exchanged), against saturating that program. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/egraph/meet.h"
#include "core/egraph/optimize.h"
#include "tests/bench/bench.h"
#include "tests/lib/gen_transformer.h"
#include "tests/lib/terms.h"

#define ROUNDS_MAX 15u
#define MICRO_ITERATIONS 11u
#define CERTIFIED_LAYERS_MAX 4u
#define SNAPSHOT_BYTES_MAX ((size_t)1 << 30)

static double cpu_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void put(const sx_bench_options *options, const char *case_name, const char *metric,
                double value, const char *unit)
{
    sx_bench_put(options, &(sx_bench_row){.bench = "egraph",
                                          .case_name = case_name,
                                          .metric = metric,
                                          .value = value,
                                          .unit = unit});
}

/* Bytes where a file would be mapped: aligned to a page. */
static sx_span page_aligned(sx_ctx *cx, const sx_buf *buf)
{
    uint8_t *copy = sx_alloc(cx, buf->len + SX_SNAPSHOT_PAGE);
    if (copy == NULL) {
        return (sx_span){NULL, 0};
    }
    copy += (SX_SNAPSHOT_PAGE - (uintptr_t)copy % SX_SNAPSHOT_PAGE) % SX_SNAPSHOT_PAGE;
    memcpy(copy, buf->ptr, buf->len);
    return (sx_span){copy, buf->len};
}

/* ---- a million nodes ---- */

typedef struct {
    double store[ROUNDS_MAX], open[ROUNDS_MAX], load[ROUNDS_MAX], ready[ROUNDS_MAX];
    size_t bytes;
    uint32_t nodes;
} million;

static sx_code micro_round(const sx_terms *t, const sx_eg_ruleset *set, bool proofs, uint32_t round,
                           million *out)
{
    sx_ctx cx;
    sx_buf bytes;
    sx_snapshot snapshot;
    sx_eg loaded;
    sx_key rules = sx_key_of("bench", NULL, 0);
    sx_snapshot_source source = {.rules = rules, .with_proofs = proofs, .set = set};
    sx_ctx_init(&cx, (size_t)16 << 30);
    sx_buf_init(&bytes, SNAPSHOT_BYTES_MAX);
    double start = cpu_seconds();
    sx_code code = sx_snapshot_store(&cx, &t->eg, &source, &bytes);
    out->store[round] = cpu_seconds() - start;
    sx_span mapped = page_aligned(&cx, &bytes);
    out->bytes = bytes.len;
    start = cpu_seconds();
    code = code == SX_OK ? sx_snapshot_open(&cx, mapped, &rules, &snapshot) : code;
    out->open[round] = cpu_seconds() - start;
    code = code == SX_OK ? sx_snapshot_load(&cx, &snapshot, NULL, &loaded) : code;
    out->load[round] = cpu_seconds() - start;
    if (code == SX_OK) {
        uint32_t leaf; /* the first look into the hash table, which is built when it is asked for */
        code = sx_eg_add(&cx, &loaded, 0, UINT32_MAX - 1, NULL, 0, &leaf);
        out->ready[round] = cpu_seconds() - start;
        out->nodes = loaded.live_count - 1;
    }
    if (code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench: snapshot: %s\n", cx.error.text);
    }
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
    return code;
}

static sx_code grow_micro(sx_ctx *cx, sx_terms *t, sx_eg_ruleset *set)
{
    sx_eg_run run;
    sx_eg_limits limits = {.rounds = MICRO_ITERATIONS,
                           .nodes = SX_EG_NODES_MAX,
                           .matches = UINT32_MAX,
                           .fuel = UINT64_MAX,
                           .bytes = SIZE_MAX};
    cx->fuel = UINT64_MAX;
    SX_TRY(sx_terms_init(cx, t, false));
    SX_TRY(sx_terms_add_micro(t));
    SX_TRY(sx_eg_ruleset_init(cx, set, &t->language, sx_terms_micro_rules, 24));
    return sx_eg_saturate(cx, &t->eg, set, &limits, &run);
}

static int run_micro(const sx_bench_options *options, uint32_t rounds)
{
    static million out;
    sx_ctx cx;
    sx_terms t;
    sx_eg_ruleset set;
    sx_ctx_init(&cx, (size_t)16 << 30);
    double start = cpu_seconds();
    sx_code code = grow_micro(&cx, &t, &set);
    double grown = cpu_seconds() - start;
    for (uint32_t proofs = 0; proofs < 2 && code == SX_OK; proofs++) {
        const char *name = proofs != 0 ? "snapshot-micro-proofs" : "snapshot-micro";
        for (uint32_t round = 0; round < rounds && code == SX_OK; round++) {
            code = micro_round(&t, &set, proofs != 0, round, &out);
        }
        put(options, name, "nodes", out.nodes, "count");
        put(options, name, "bytes", (double)out.bytes, "B");
        put(options, name, "saturate", grown, "s");
        put(options, name, "store", sx_bench_median(out.store, rounds), "s");
        put(options, name, "checksums", sx_bench_median(out.open, rounds), "s");
        put(options, name, "load", sx_bench_median(out.load, rounds), "s");
        put(options, name, "load-and-add", sx_bench_median(out.ready, rounds), "s");
    }
    sx_ctx_fini(&cx);
    return sx_code_exit(code);
}

/* ---- a transformer ---- */

/* The same program with the operands of every sum and product exchanged. */
static sx_code exchange(sx_ctx *cx, const sx_graph *graph, sx_graph **exchanged)
{
    sx_graph *copy;
    SX_TRY(sx_graph_canon(cx, graph, &copy));
    for (uint32_t i = 0; i < copy->node_count; i++) {
        const sx_node *node = &copy->node[i];
        if (node->op == SX_OP_ADD || node->op == SX_OP_MULTIPLY) {
            sx_node_id *input = &copy->input[node->input_first];
            sx_node_id swap = input[0];
            input[0] = input[1];
            input[1] = swap;
        }
    }
    return sx_graph_canon(cx, copy, exchanged);
}

typedef struct {
    double saturate, load, meet, certified; /* seconds */
    size_t bytes;
    uint32_t nodes, inserted, rounds;
    bool met;
} transformer;

static sx_code measure(sx_ctx *cx, uint32_t layers, transformer *out)
{
    sx_transformer shape = sx_transformer_default(layers);
    sx_optimize_options options = sx_optimize_defaults();
    bool enabled[SX_RULE_COUNT];
    const sx_device *device;
    sx_graph *graph, *stored, *better, *asked;
    sx_optimize_report report;
    sx_library_graph *library = SX_NEW(cx, sx_library_graph);
    sx_meeting meeting;
    sx_buf bytes;
    SX_TRY(sx_device_find(cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
    SX_TRY(sx_transformer_make(cx, &shape, &graph));
    SX_TRY(sx_graph_canon(cx, graph, &stored));
    SX_TRY(exchange(cx, graph, &asked));
    SX_TRY(sx_optimize_rules(cx, &options, enabled));
    sx_buf_init(&bytes, SNAPSHOT_BYTES_MAX);
    options.whole = true;
    options.snapshot = &bytes;
    sx_code code = sx_optimize(cx, stored, device, &options, &better, &report);
    sx_span mapped = page_aligned(cx, &bytes);
    out->bytes = bytes.len;
    out->nodes = report.nodes;
    sx_buf_fini(&bytes);
    SX_TRY(code);
    options.snapshot = NULL;
    double start = cpu_seconds();
    SX_TRY(sx_optimize(cx, asked, device, &options, &better, &report));
    out->saturate = cpu_seconds() - start;
    start = cpu_seconds();
    SX_TRY(sx_library_load(cx, mapped, &options.snapshot_rules, sx_meet_kernels(asked, false),
                           library));
    out->load = cpu_seconds() - start;
    start = cpu_seconds();
    SX_TRY(sx_meet(cx, library, asked, enabled, false, &meeting));
    out->meet = cpu_seconds() - start;
    out->inserted = meeting.inserted;
    out->rounds = meeting.rounds;
    out->met = meeting.met;
    if (layers > CERTIFIED_LAYERS_MAX) {
        return SX_OK;
    }
    SX_TRY(sx_library_load(cx, mapped, &options.snapshot_rules, SX_LIBRARY_ALL, library));
    start = cpu_seconds();
    SX_TRY(sx_meet(cx, library, asked, enabled, true, &meeting));
    out->certified = cpu_seconds() - start;
    out->met = out->met && meeting.met;
    return SX_OK;
}

static int run_transformer(const sx_bench_options *options, uint32_t layers, uint32_t rounds)
{
    double saturate[ROUNDS_MAX], load[ROUNDS_MAX], meet[ROUNDS_MAX];
    transformer out = {0};
    char name[48];
    (void)snprintf(name, sizeof(name), "snapshot-transformer-%u", layers);
    for (uint32_t i = 0; i < rounds; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)16 << 30);
        cx.fuel = UINT64_MAX;
        sx_code code = measure(&cx, layers, &out);
        if (code != SX_OK || !out.met) {
            (void)fprintf(stderr, "symplex-bench: %s: %s\n", name,
                          code != SX_OK ? cx.error.text : "the equal program was not found");
            sx_ctx_fini(&cx);
            return 6;
        }
        saturate[i] = out.saturate;
        load[i] = out.load;
        meet[i] = out.meet;
        sx_ctx_fini(&cx);
    }
    put(options, name, "nodes", out.nodes, "count");
    put(options, name, "bytes", (double)out.bytes, "B");
    put(options, name, "inserted", out.inserted, "count");
    put(options, name, "rounds", out.rounds, "count");
    double all = sx_bench_median(saturate, rounds);
    double loaded = sx_bench_median(load, rounds);
    double found = sx_bench_median(meet, rounds);
    put(options, name, "saturate-and-extract", all, "s");
    put(options, name, "load", loaded, "s");
    put(options, name, "insert", found, "s");
    if (layers <= CERTIFIED_LAYERS_MAX) {
        put(options, name, "insert-and-certify", out.certified, "s");
    }
    put(options, name, "share", (loaded + found) / all, "ratio");
    return 0;
}

int sx_bench_snapshot(const sx_bench_options *options)
{
    uint32_t rounds = options->rounds < ROUNDS_MAX ? options->rounds : ROUNDS_MAX;
    rounds = rounds == 0 ? 1 : rounds;
    int status = options->layers > 0 ? 0 : run_micro(options, rounds);
    static const uint32_t usual[] = {1, 4, 24};
    uint32_t count = options->layers > 0 ? 1 : SX_COUNT(usual);
    for (uint32_t i = 0; i < count && status == 0; i++) {
        status = run_transformer(options, options->layers > 0 ? options->layers : usual[i], rounds);
    }
    return status;
}
