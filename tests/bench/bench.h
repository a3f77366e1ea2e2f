/* bench.h - the benchmark program: `symplex-bench NAME [--case C] [--threads N] [--rounds N] [--json]`,
 * `symplex-bench list`.
 *
 * Every figure is a row {bench, case, metric, value, unit, peer, peer_value, ratio}; a figure with a peer was
 * measured in the same run, interleaved with it. ratio = value / peer_value; below 1 ours is smaller. Medians
 * over the rounds.
 */
#ifndef SX_TESTS_BENCH_BENCH_H
#define SX_TESTS_BENCH_BENCH_H
#include "core/base/base.h"

typedef struct {
    const char *case_name; /* NULL: all cases */
    uint32_t threads;      /* 0: all cores of the process */
    uint32_t rounds;
    bool json;
    bool list;           /* name the cases, measure nothing */
    uint32_t iterations; /* egraph: rounds of math-micro; 0: 11 */
    uint32_t leaves;     /* egraph: leaves of the sum; 0: 11 */
    uint32_t layers;     /* egraph: of the transformer; 0: 1, 4, 24, 32 and 64 */
    bool instructions;   /* egraph: count them with valgrind where it is installed */
    bool no_proofs;      /* egraph: without the log of unions, to see what it costs */
    bool stamps;         /* egraph: with the matcher that the tests compare with */
    bool no_peer;        /* egraph: egglog is not asked */
    bool inner; /* egraph: run the case in this process, print nothing (what valgrind runs) */
    /* search: name of a built-in program, or a file; NULL: all built-in ones */
    const char *program;
    uint32_t steps;     /* search: of each lane; 0: 4; ablation: 0: 2 */
    uint64_t fuel;      /* search: of a step; 0: 400 million; ablation: 0: 50 million */
    const char *target; /* ptx: devices of the suite, with commas; NULL: h100 */
    const char *shapes; /* ptx: the list of the suite; NULL: tests/data/shapes/gpu.txt */
    /* ptx: a folder that modules for the shapes are written to, and nothing is measured */
    const char *modules;
    const char *plant; /* ptx: "below" or "spill": as if a kernel of the suite were so */
    const char *shape; /* ptx: only shapes whose names begin so */
} sx_bench_options;
typedef struct {
    const char *bench, *case_name, *metric;
    double value;
    const char *unit;
    const char *peer; /* name and version of what it was measured against; NULL: none */
    double peer_value;
} sx_bench_row;

/* Prints one row. A value that is not finite or is negative ends the program: it is no measurement. */
void sx_bench_put(const sx_bench_options *options, const sx_bench_row *row);
uint64_t sx_bench_now_ns(void);
double sx_bench_median(double *sample, uint32_t count); /* sorts */
/* Is this case to be measured? Every case is asked about before anything is set up for it: this is how cases
 * are listed. */
bool sx_bench_wants(const sx_bench_options *options, const char *case_name);

/* One function for each benchmark; 0, or an exit status after a message on stderr. */
int sx_bench_ablation(const sx_bench_options *options);
int sx_bench_adamw(const sx_bench_options *options);
int sx_bench_rows(const sx_bench_options *options);
int sx_bench_attention(const sx_bench_options *options);
int sx_bench_backward(const sx_bench_options *options);
int sx_bench_call(const sx_bench_options *options);
int sx_bench_compile(const sx_bench_options *options);
int sx_bench_egraph(const sx_bench_options *options);
int sx_bench_emulate(const sx_bench_options *options);
int sx_bench_encoder(const sx_bench_options *options);
int sx_bench_extract(const sx_bench_options *options);
int sx_bench_hit(const sx_bench_options *options);
int sx_bench_interval(const sx_bench_options *options);
int sx_bench_jax(const sx_bench_options *options);
int sx_bench_first(const sx_bench_options *options);
int sx_bench_legality(const sx_bench_options *options);
int sx_bench_ptx(const sx_bench_options *options);
int sx_bench_recompute(
    const sx_bench_options *options); /* cases "backward-..." of sx_bench_attention */
int sx_bench_suite(const sx_bench_options *options);  /* cases "suite-..." of sx_bench_ptx */
int sx_bench_select(const sx_bench_options *options); /* cases "select-..." of sx_bench_ptx */
struct sx_device;
/* ptx: `run`, until one fails, for each GPU of the table that is asked for and whose case "PREFIX-DEVICE", the label,
 * is. The exit status. */
int sx_bench_each_gpu(const sx_bench_options *options, const char *prefix,
                      int (*run)(const sx_bench_options *options, const char *label,
                                 const struct sx_device *device));
int sx_bench_exported(const sx_bench_options *options); /* cases "exported-GPU" of sx_bench_ptx */
int sx_bench_skinny(const sx_bench_options *options);   /* case "skinny" of sx_bench_ptx */
int sx_bench_search(const sx_bench_options *options);
int sx_bench_sort(const sx_bench_options *options);
int sx_bench_store(const sx_bench_options *options);
int sx_bench_torch(const sx_bench_options *options);
/* Cases "transformer" and "snapshot" of sx_bench_egraph. */
int sx_bench_transformer(const sx_bench_options *options);
int sx_bench_snapshot(const sx_bench_options *options);
int sx_bench_meet(const sx_bench_options *options); /* the second half of "snapshot" */
#endif
