/* bench_egraph.c - the e-graph engine on plain terms, against egglog in the same run where its Python package
 * is installed.
 *
 * Every case runs in a child process, so that its peak memory is its own; seconds are processor time of the
 * saturation (user and system, one thread), the program's terms included, reading rules not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/lib/terms.h"

#define POINTS_MAX 64u

typedef struct {
    double seconds;
    uint64_t nodes, classes;
} point;
typedef struct {
    sx_code code;
    char text[SX_ERROR_TEXT_MAX];
    point at[POINTS_MAX]; /* after each iteration */
    uint32_t count;
    uint64_t bytes, rss_bytes, unions, matches;
    char stop[16];
} outcome;

typedef struct {
    const char *name;
    const sx_rule *rules;
    uint32_t rule_count;
    bool folds, by_iteration, unchecked;
    uint32_t iterations, leaves;
} program;

static double cpu_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void note(outcome *out, double start, const sx_eg *eg)
{
    if (out->count < POINTS_MAX) {
        out->at[out->count++] = (point){cpu_seconds() - start, eg->live_count, eg->class_count};
    }
}

static sx_code saturate(sx_ctx *cx, const sx_bench_options *options, const program *p, outcome *out)
{
    sx_terms t;
    sx_eg_ruleset set;
    sx_eg_run run;
    sx_eg_limits limits = {.rounds = p->by_iteration ? 1 : 1000000,
                           .nodes = p->by_iteration ? SX_EG_NODES_MAX : 1000000,
                           .matches = p->by_iteration ? UINT32_MAX : 1000,
                           .fuel = UINT64_MAX,
                           .bytes = SIZE_MAX,
                           .stamps = options->stamps};
    double start = cpu_seconds();
    SX_TRY(sx_terms_init(cx, &t, p->folds));
    t.eg.unproven = options->no_proofs;
    SX_TRY(p->leaves > 0 ? sx_terms_add_sum(&t, p->leaves) : sx_terms_add_micro(&t));
    SX_TRY(sx_eg_ruleset_init(cx, &set, &t.language, p->rules, p->rule_count));
    for (uint32_t i = 0; i < p->iterations; i++) {
        cx->fuel = UINT64_MAX;
        SX_TRY(sx_eg_saturate(cx, &t.eg, &set, &limits, &run));
        note(out, start, &t.eg);
        if (run.stop != SX_STOP_ROUNDS) {
            break;
        }
    }
    (void)snprintf(out->stop, sizeof(out->stop), "%s", sx_eg_stop_name(run.stop));
    out->unions = t.eg.union_count;
    for (uint32_t i = 0; i < set.rule_count; i++) {
        out->matches += set.rule[i].match_count;
    }
    return p->unchecked ? SX_OK : sx_eg_check(cx, &t.eg);
}

/* Runs the program in a child; the answer comes back through a pipe. */
static bool measure(const sx_bench_options *options, const program *p, outcome *out)
{
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) {
        return false;
    }
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        *out = (outcome){0};
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)32 << 30);
        out->code = saturate(&cx, options, p, out);
        (void)memcpy(out->text, cx.error.text, sizeof(out->text));
        out->bytes = cx.arena.used_bytes;
        struct rusage usage;
        (void)getrusage(RUSAGE_SELF, &usage);
        out->rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
        bool sent = write(pipe_ends[1], out, sizeof(*out)) == (ssize_t)sizeof(*out);
        _exit(sent ? 0 : 6);
    }
    (void)close(pipe_ends[1]);
    size_t have = 0;
    while (child > 0 && have < sizeof(*out)) {
        ssize_t got = read(pipe_ends[0], (char *)out + have, sizeof(*out) - have);
        if (got <= 0) {
            break;
        }
        have += (size_t)got;
    }
    (void)close(pipe_ends[0]);
    int status;
    bool ended = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    if (!ended || have != sizeof(*out) || out->code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench: egraph %s: %s\n", p->name,
                      ended && have == sizeof(*out) ? out->text : "the child ended early");
        return false;
    }
    return true;
}

typedef struct {
    char name[64]; /* empty: not installed */
    double seconds, nodes, rss_bytes;
} peer;

static peer ask_egglog(const program *p)
{
    peer out = {{0}, 0, 0, 0};
    char command[1024], line[256];
    (void)snprintf(command, sizeof(command),
                   "'" SX_SOURCE_DIR "/tests/tools/python.sh' '" SX_SOURCE_DIR
                   "/tests/bench/peer_egglog.py' %s %u",
                   p->name, p->leaves > 0 ? p->leaves : p->iterations);
    FILE *stream = popen(command, "r"); /* NOLINT(cert-env33-c): our own script, no input in it */
    if (stream == NULL) {
        return out;
    }
    char name[64];
    bool read =
        fgets(line, sizeof(line), stream) != NULL &&
        sscanf(line, "%63[^;]; %lf; %lf; %lf", name, &out.seconds, &out.nodes, &out.rss_bytes) == 4;
    if (pclose(stream) == 0 && read) {
        memcpy(out.name, name, sizeof(name));
    }
    return out;
}

/* Instructions that valgrind's callgrind counts for this case alone; 0 where the tool is missing. */
static double count_instructions(const program *p)
{
    char command[1024], line[512], self[512];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0) {
        return 0;
    }
    self[length] = '\0';
    (void)snprintf(command, sizeof(command),
                   "valgrind --tool=callgrind --callgrind-out-file=/dev/null --trace-children=no "
                   "'%s' egraph --inner --case %s --iterations %u --leaves %u 2>&1",
                   self, p->name, p->iterations, p->leaves);
    FILE *stream = popen(command, "r"); /* NOLINT(cert-env33-c): our own program, numbers only */
    double instructions = 0;
    while (stream != NULL && fgets(line, sizeof(line), stream) != NULL) {
        const char *found = strstr(line, "Collected : ");
        instructions = found != NULL ? strtod(found + 12, NULL) : instructions;
    }
    return stream != NULL && pclose(stream) == 0 ? instructions : 0;
}

static void put(const sx_bench_options *options, const char *name, const char *metric, double value,
                const char *unit, const peer *other, double other_value)
{
    bool has_peer = other != NULL && other->name[0] != '\0';
    sx_bench_put(options, &(sx_bench_row){"egraph", name, metric, value, unit,
                                          has_peer ? other->name : NULL, other_value});
}

static int run_case(const sx_bench_options *options, const program *p, bool peered)
{
    static outcome out;
    if (options->inner) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)32 << 30);
        out = (outcome){0};
        program inner = *p;
        inner.unchecked = true;
        sx_code code = saturate(&cx, options, &inner, &out);
        sx_ctx_fini(&cx);
        return code == SX_OK ? 0 : 6;
    }
    peer other = {{0}, 0, 0, 0};
    double seconds[15], theirs[15] = {0};
    uint32_t rounds = options->rounds < SX_COUNT(seconds) ? options->rounds : SX_COUNT(seconds);
    for (uint32_t round = 0; round < rounds; round++) {
        if (!measure(options, p, &out)) {
            return 6;
        }
        seconds[round] = out.at[out.count - 1].seconds;
        if (peered && !options->no_peer) { /* interleaved: the machine is the same for both */
            other = ask_egglog(p);
            theirs[round] = other.seconds;
        }
    }
    other.seconds = sx_bench_median(theirs, rounds);
    char metric[48];
    for (uint32_t i = 0; p->by_iteration && i < out.count; i++) {
        (void)snprintf(metric, sizeof(metric), "nodes-after-%u", i + 1);
        put(options, p->name, metric, (double)out.at[i].nodes, "", NULL, 0);
        (void)snprintf(metric, sizeof(metric), "classes-after-%u", i + 1);
        put(options, p->name, metric, (double)out.at[i].classes, "", NULL, 0);
        (void)snprintf(metric, sizeof(metric), "seconds-after-%u", i + 1);
        put(options, p->name, metric, out.at[i].seconds, "s", NULL, 0);
    }
    const point *last = &out.at[out.count - 1];
    put(options, p->name, "matches", (double)out.matches, "", NULL, 0);
    put(options, p->name, "nodes", (double)last->nodes, "", &other, other.nodes);
    put(options, p->name, "classes", (double)last->classes, "", NULL, 0);
    put(options, p->name, "seconds", sx_bench_median(seconds, rounds), "s", &other, other.seconds);
    put(options, p->name, "graph-bytes", (double)out.bytes, "B", NULL, 0);
    put(options, p->name, "peak-bytes", (double)out.rss_bytes, "B", &other, other.rss_bytes);
    if (options->instructions) {
        double instructions = count_instructions(p);
        if (instructions > 0) {
            put(options, p->name, "instructions/node", instructions / (double)last->nodes, "", NULL,
                0);
        }
    }
    return 0;
}

#define LEAVES_MAX 16u /* 43 million nodes */

int sx_bench_egraph(const sx_bench_options *options)
{
    uint32_t iterations = options->iterations > 0 ? options->iterations : 11;
    uint32_t leaves = options->leaves > 0 ? options->leaves : 11;
    if (leaves > LEAVES_MAX) {
        (void)fprintf(
            stderr,
            "symplex-bench: egraph ac: --leaves %u, at most %u: a sum of n leaves has 3^n "
            "nodes\n",
            leaves, LEAVES_MAX);
        return 2; /* usage */
    }
    const program micro = {.name = "math-micro",
                           .rules = sx_terms_micro_rules,
                           .rule_count = 24,
                           .by_iteration = true,
                           .iterations = iterations};
    const program sum = {.name = "ac",
                         .rules = sx_terms_sum_rules,
                         .rule_count = 3,
                         .by_iteration = true,
                         .iterations = 1000,
                         .leaves = leaves};
    const program backoff = {.name = "backoff",
                             .rules = sx_terms_math_rules,
                             .rule_count = sx_terms_math_rule_count,
                             .folds = true,
                             .iterations = 1};
    int status = 0;
    if (sx_bench_wants(options, micro.name)) {
        status = run_case(options, &micro, true);
    }
    if (status == 0 && sx_bench_wants(options, sum.name)) {
        status = run_case(options, &sum, true);
    }
    if (status == 0 && sx_bench_wants(options, backoff.name)) {
        status = run_case(options, &backoff, false);
    }
    if (status == 0 && sx_bench_wants(options, "transformer")) {
        status = sx_bench_transformer(options);
    }
    return status == 0 && sx_bench_wants(options, "snapshot") ? sx_bench_snapshot(options) : status;
}
