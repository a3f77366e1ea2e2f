/* cmd_extract.c - extract: the cheapest program of an e-graph that another tool wrote. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/cli/egraph/egraph_json.h"
#include "client/source.h"
#include "client/cli/table.h"

#define SECONDS_MAX 1e6

typedef struct {
    uint64_t start_ns, end_ns; /* end 0: no deadline */
} deadline;

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static bool is_expired(void *self)
{
    const deadline *d = self;
    return now_ns() >= d->end_ns;
}

static sx_code parse_seconds(sxc_cli *cli, double *seconds)
{
    const char *text = sxc_value(cli, SXC_SECONDS);
    char *end = NULL;
    *seconds = 0;
    if (text != NULL) {
        *seconds = strtod(text, &end);
        if (end == text || *end != '\0' || !(*seconds > 0) || *seconds > SECONDS_MAX) {
            return SX_FAIL(cli->cx, SX_USAGE, "--seconds %.40s: a number above 0, at most %g", text,
                           SECONDS_MAX);
        }
    }
    return SX_OK;
}

/* Sums that a double does not hold count as the largest one: null in JSON. */
static double json_sum(double sum)
{
    return sum < DBL_MAX ? sum : (double)INFINITY;
}

static void put_sum(sx_buf *out, const char *name, double sum, const char *note)
{
    if (sum < DBL_MAX) {
        sx_buf_print(out, "%-13s%.12g%s\n", name, sum, note);
    } else {
        sx_buf_print(out, "%-13smore than 1.79e308, not to be told as a number%s\n", name, note);
    }
}

static void put_json(sx_buf *out, const char *path, const sxc_egraph *g, const sx_xt_answer *a,
                     double seconds)
{
    sxc_json_begin(out, "extract");
    sxc_json_text(out, "file", sx_span_of(path));
    sxc_json_int(out, "nodes", g->problem.node_count);
    sxc_json_int(out, "classes", g->problem.class_count);
    sxc_json_int(out, "roots", g->problem.root_count);
    sxc_json_real(out, "dag_cost", json_sum(a->dag_cost));
    sxc_json_real(out, "tree_cost", json_sum(a->tree_cost));
    sxc_json_real(out, "greedy_cost", json_sum(a->greedy_cost));
    sxc_json_real(out, "lower_bound", json_sum(a->lower_bound));
    sxc_json_bool(out, "proven", a->proven);
    sxc_json_text(out, "stop", sx_span_of(sx_xt_stop_name(a->stop)));
    sxc_json_bool(out, "reproducible", a->stop != SX_XT_DEADLINE);
    sxc_json_int(out, "fuel", (int64_t)(a->fuel < INT64_MAX ? a->fuel : INT64_MAX));
    if (seconds > 0) {
        sxc_json_real(out, "seconds", seconds);
    }
    sxc_json_open(out, "choices", '[');
    for (uint32_t c = 0; c < g->problem.class_count; c++) {
        if (a->choice[c] != SX_XT_NONE) {
            sxc_json_open(out, NULL, '{');
            sxc_json_text(out, "eclass", g->class_name[c]);
            sxc_json_text(out, "node", g->node_name[a->choice[c]]);
            sxc_json_close(out, '}');
        }
    }
    sxc_json_close(out, ']');
    sxc_json_end(out);
}

static sx_code put_text(sxc_cli *cli, sx_buf *out, const sxc_egraph *g, const sx_xt_answer *a,
                        double seconds)
{
    sxc_table table;
    sx_buf_print(out, "e-graph      %u nodes, %u classes, %u roots\n", g->problem.node_count,
                 g->problem.class_count, g->problem.root_count);
    put_sum(out, "dag cost", a->dag_cost, a->proven ? ", proven least" : "");
    put_sum(out, "lower bound", a->lower_bound, "");
    put_sum(out, "tree cost", a->tree_cost, "");
    put_sum(out, "greedy", a->greedy_cost, "");
    sx_buf_print(out, "stop         %s after %.3g million steps", sx_xt_stop_name(a->stop),
                 (double)a->fuel / 1e6);
    sx_buf_print(out, seconds > 0 ? ", %.3g s\n\n" : "\n\n", seconds);
    sxc_table_init(&table, cli->cx, "CLASS|NODE");
    for (uint32_t c = 0; c < g->problem.class_count; c++) {
        if (a->choice[c] != SX_XT_NONE) {
            sxc_table_put_span(&table, g->class_name[c]);
            sxc_table_put_span(&table, g->node_name[a->choice[c]]);
        }
    }
    return sxc_table_print(&table, out);
}

static sx_code extract(sxc_cli *cli, const char *path, sx_buf *text, sx_buf *out)
{
    sx_ctx *cx = cli->cx;
    sxc_egraph egraph;
    sx_xt_answer answer;
    double seconds;
    int64_t fuel;
    SX_TRY(parse_seconds(cli, &seconds));
    SX_TRY(sxc_number(cli, SXC_FUEL, 0, INT64_MAX,
                      seconds > 0 ? INT64_MAX : (int64_t)SX_XT_FUEL_DEFAULT, &fuel));
    SX_TRY(sxc_read_text(cx, path, text));
    sx_code code = sxc_egraph_parse(cx, sx_buf_span(text), &egraph);
    if (code != SX_OK) {
        return sx_fail_in(cx, "%s", path);
    }
    deadline limit = {.start_ns = now_ns()};
    limit.end_ns = limit.start_ns + (uint64_t)(seconds * 1e9);
    sx_xt_options options = {.fuel = (uint64_t)fuel};
    if (seconds > 0) {
        options.expired = is_expired;
        options.expired_self = &limit;
    }
    code = sx_xt_solve(cx, &egraph.problem, &options, &answer);
    if (code != SX_OK) {
        return sx_fail_in(cx, "%s", path);
    }
    double spent = seconds > 0 ? (double)(now_ns() - limit.start_ns) * 1e-9 : 0;
    if (cli->json) {
        put_json(out, path, &egraph, &answer, spent);
        return SX_OK;
    }
    return put_text(cli, out, &egraph, &answer, spent);
}

sx_code sxc_cmd_extract(sxc_cli *cli)
{
    sx_buf text;
    sx_buf out;
    sx_buf_init(&text, SXC_EGRAPH_BYTES_MAX);
    sx_buf_init(&out, SXC_EGRAPH_BYTES_MAX);
    sx_code code = extract(cli, cli->argument[0], &text, &out);
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&out);
    sx_buf_fini(&text);
    return code;
}
