/* bench_snapshot.c - stored e-graphs: what it takes to store and load a million nodes. What a stored program
 * saves: bench_meet.c. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/store/snapshot.h"
#include "tests/bench/bench.h"
#include "tests/lib/terms.h"

#define ROUNDS_MAX 15u
#define MICRO_ITERATIONS 11u
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

int sx_bench_snapshot(const sx_bench_options *options)
{
    uint32_t rounds = options->rounds < ROUNDS_MAX ? options->rounds : ROUNDS_MAX;
    int status = options->layers > 0 ? 0 : run_micro(options, rounds == 0 ? 1 : rounds);
    return status == 0 ? sx_bench_meet(options) : status;
}
