/* cmd_search.c - optimize --budget and search: long optimizations that the daemon does in the background. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cmd_compile.h"
#include "client/cli/interrupt.h"
#include "client/cli/table.h"

#define POLL_MS 500      /* one long poll: Ctrl-C is noticed after it */
#define RESULT_MS 120000 /* reading and merging programs */
#define BUDGET_DAYS_MAX 30

/* ---- arguments ---- */

/* "90s", "10m", "2h", "1d" to milliseconds. */
static sx_code read_budget(sxc_cli *cli, int64_t *budget_ms)
{
    static const struct {
        char letter;
        int64_t ms;
    } units[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', 86400000}};
    const char *given = sxc_value(cli, SXC_BUDGET);
    if (given == NULL) {
        return SX_FAIL(cli->cx, SX_USAGE, "--budget TIME is missing: 90s, 10m, 2h, 1d");
    }
    size_t length = strlen(given);
    for (size_t i = 0; length > 1 && i < SX_COUNT(units); i++) {
        if (given[length - 1] == units[i].letter) {
            int64_t count;
            sx_span digits = {(const uint8_t *)given, length - 1};
            SX_TRY(sxc_parse_i64(cli->cx, "--budget", digits, 1,
                                 BUDGET_DAYS_MAX * INT64_C(86400000) / units[i].ms, &count));
            *budget_ms = count * units[i].ms;
            return SX_OK;
        }
    }
    return SX_FAIL(cli->cx, SX_USAGE, "--budget %.60s: not a number and s, m, h or d", given);
}

static sx_code read_search(sxc_cli *cli, int64_t *search)
{
    return sxc_parse_i64(cli->cx, "search", sx_span_of(cli->argument[0]), 1, INT64_MAX, search);
}

/* ---- rows ---- */

static void human_objective(sx_span objective, double value, char text[32])
{
    if (sx_span_is(objective, "memory")) {
        sxc_human_bytes(value, text);
    } else if (sx_span_is(objective, "energy")) {
        (void)snprintf(text, 32, "%.4g", value);
    } else {
        sxc_human_ns(value, text);
    }
}

static void human_ms(int64_t ms, char text[32])
{
    int64_t s = ms / 1000;
    if (s >= 3600) {
        (void)snprintf(text, 32, "%lldh%02lldm", (long long)(s / 3600), (long long)(s / 60 % 60));
    } else if (s >= 60) {
        (void)snprintf(text, 32, "%lldm%02llds", (long long)(s / 60), (long long)(s % 60));
    } else {
        (void)snprintf(text, 32, "%.1fs", (double)ms / 1e3);
    }
}

static void put_search(sxc_table *table, const sx_search_row *row)
{
    char best[32] = "-", used[32], left[32];
    if (SX_HAS(row, search_row, best)) {
        human_objective(row->objective, row->best, best);
    }
    human_ms(row->used_ms, used);
    human_ms(sx_max_i64(row->budget_ms - row->used_ms, 0), left);
    sxc_table_put(table, "%lld", (long long)row->search);
    sxc_table_put_span(table, row->state);
    sxc_table_put_span(table, row->objective);
    sxc_table_put_span(table, row->target);
    sxc_table_put(table, "%s", best);
    sxc_table_put(table, "%lld/%lld", (long long)row->lanes_ended, (long long)row->lanes);
    sxc_table_put(table, "%lld", (long long)row->lanes_active);
    sxc_table_put(table, "%lld", (long long)row->steps);
    sxc_table_put(table, "%s", used);
    sxc_table_put(table, "%s", left);
    sxc_table_put(table, "%lld", (long long)row->bytes);
    sxc_table_put_span(table, SX_HAS(row, search_row, why) ? row->why : SX_SPAN_LITERAL(""));
}

static sx_code put_searches(sxc_cli *cli, const sx_search_row *rows, uint32_t count, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, cli->cx,
                   ">SEARCH|STATE|OBJECTIVE|TARGET|>BEST|>ENDED|>ACTIVE|>STEPS|>USED|>LEFT|>BYTES|"
                   "WHY");
    for (uint32_t i = 0; i < count; i++) {
        put_search(&table, &rows[i]);
    }
    return sxc_table_print(&table, out);
}

static sx_code print_list(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_search_list_result *list = reply;
    return put_searches(cli, list->searches.items, list->searches.count, out);
}

static void put_lane(sxc_table *table, const sx_search_row *search, const sx_lane_row *lane)
{
    char best[32] = "-", bound[32] = "-", worked[32];
    if (SX_HAS(lane, lane_row, objective)) {
        human_objective(search->objective, lane->objective, best);
    }
    if (SX_HAS(lane, lane_row, bound) && lane->bound > 0) {
        human_objective(search->objective, lane->bound, bound);
    }
    human_ms(lane->worked_ms, worked);
    sxc_table_put(table, "%lld", (long long)lane->lane);
    sxc_table_put_span(table, lane->name);
    sxc_table_put_span(table, lane->state);
    sxc_table_put(table, "%lld", (long long)lane->steps);
    sxc_table_put(table, "%s", best);
    sxc_table_put(table, "%s", bound);
    sxc_table_put(table, "%lld", (long long)lane->nodes);
    sxc_table_put(table, "%s", worked);
    sxc_table_put(table, "%lld", (long long)lane->bytes);
    if (SX_HAS(lane, lane_row, where)) {
        sxc_table_put_span(table, lane->where);
    } else if (lane->worker > 0) {
        sxc_table_put(table, "%lld", (long long)lane->worker);
    } else {
        sxc_table_put(table, "-");
    }
    sxc_table_put_span(table, SX_HAS(lane, lane_row, why) ? lane->why : SX_SPAN_LITERAL(""));
}

static sx_code print_show(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_search_show_result *shown = reply;
    if (shown->search.count != 1) {
        return SX_FAIL(cli->cx, SX_INPUT, "the daemon shows %u searches", shown->search.count);
    }
    SX_TRY(put_searches(cli, shown->search.items, 1, out));
    sx_buf_put_u8(out, '\n');
    sxc_table table;
    sxc_table_init(&table, cli->cx,
                   ">LANE|NAME|STATE|>STEPS|>BEST|>BOUND|>NODES|>WORKED|>BYTES|>WORKER|WHY");
    for (uint32_t i = 0; i < shown->lanes.count; i++) {
        put_lane(&table, &shown->search.items[0], &shown->lanes.items[i]);
    }
    return sxc_table_print(&table, out);
}

sx_code sxc_cmd_search(sxc_cli *cli)
{
    sx_empty args = {0};
    return sxc_ask(cli, SX_METHOD_SEARCH_LIST, &args, SXC_ANSWER_MS, print_list);
}

sx_code sxc_cmd_search_show(sxc_cli *cli)
{
    sx_search_args args = {0};
    SX_TRY(read_search(cli, &args.search));
    return sxc_ask(cli, SX_METHOD_SEARCH_SHOW, &args, SXC_ANSWER_MS, print_show);
}

/* ---- the result ---- */

static sx_code fetch(sxc_cli *cli, sxc_connection *connection, int64_t search,
                     const sx_weights *weights)
{
    const void *reply;
    sx_search_args args = {.search = search};
    SX_TRY(sxc_call(cli->cx, connection, SX_METHOD_SEARCH_RESULT, &args, RESULT_MS, &reply));
    const sx_search_result_result *result = reply;
    sxc_compile_info info = {.key = result->key, .tier = "none"};
    if (sx_span_is(result->state, "running")) {
        (void)fprintf(stderr, "search %lld is still running: this is its best so far\n",
                      (long long)search);
    }
    return sxc_deliver(cli, weights, result->module, &info);
}

/* The model named after the number, for its weights. */
static sx_code load_model(sxc_cli *cli, sxc_source *source)
{
    *source = (sxc_source){0};
    SX_TRY(sxc_check_outputs(cli));
    return cli->argument_count > 1 ? sxc_source_load(cli->cx, cli->argument[1], source) : SX_OK;
}

sx_code sxc_cmd_search_result(sxc_cli *cli)
{
    int64_t search;
    sxc_source source;
    sxc_connection *connection = NULL;
    SX_TRY(read_search(cli, &search));
    sx_code code = load_model(cli, &source);
    code = code == SX_OK ? sxc_reach(cli, &connection) : code;
    code = code == SX_OK ? fetch(cli, connection, search, source.weights) : code;
    sxc_disconnect(connection);
    sxc_source_fini(&source);
    return code;
}

/* ---- waiting ---- */

/* One line that is written over, on a terminal only. */
static void show_progress(const sx_search_row *row)
{
    char best[32] = "none yet", used[32], budget[32], bound[48] = "";
    if (!isatty(STDERR_FILENO)) {
        return;
    }
    if (SX_HAS(row, search_row, best)) {
        human_objective(row->objective, row->best, best);
    }
    if (SX_HAS(row, search_row, bound) && row->bound > 0) {
        char text[32];
        human_objective(row->objective, row->bound, text);
        (void)snprintf(bound, sizeof(bound), " (its bound %s)", text);
    }
    human_ms(row->used_ms, used);
    human_ms(row->budget_ms, budget);
    (void)fprintf(stderr,
                  "\r\033[Ksearch %lld: best %s%s, %lld steps, %lld of %lld lanes ended, %s of %s",
                  (long long)row->search, best, bound, (long long)row->steps,
                  (long long)row->lanes_ended, (long long)row->lanes, used, budget);
}

static sx_code come_back(sxc_cli *cli, int64_t search, sx_code code, const char *what)
{
    sx_hint(cli->cx, "It goes on. To come back: symplex-client search wait %lld",
            (long long)search);
    return SX_FAIL(cli->cx, code, "search %lld: %s", (long long)search, what);
}

static void put_end(const sx_search_row *row)
{
    char best[32] = "nothing", used[32];
    if (SX_HAS(row, search_row, best)) {
        human_objective(row->objective, row->best, best);
    }
    human_ms(row->used_ms, used);
    (void)fprintf(stderr, "search %lld: %.*s after %s, %lld steps, best %s%s%.*s\n",
                  (long long)row->search, (int)row->state.len, (const char *)row->state.ptr, used,
                  (long long)row->steps, best, SX_HAS(row, search_row, why) ? ": " : "",
                  SX_HAS(row, search_row, why) ? (int)row->why.len : 0,
                  SX_HAS(row, search_row, why) ? (const char *)row->why.ptr : "");
}

/* Until it does not run any more, or Ctrl-C. */
static sx_code wait_for(sxc_cli *cli, sxc_connection *connection, int64_t search)
{
    sxc_interrupt interrupt;
    sx_search_wait_args args = {.search = search};
    sxc_interrupt_begin(cli->cx, &interrupt);
    cli->cx->cancelled = NULL; /* an answer under way is read */
    sx_code code = SX_OK;
    bool running = true;
    while (code == SX_OK && running && !sxc_interrupted()) {
        const void *reply;
        SX_PUT(&args, search_wait_args, wait_ms, POLL_MS);
        code = sxc_call(cli->cx, connection, SX_METHOD_SEARCH_WAIT, &args, SXC_ANSWER_MS, &reply);
        if (code != SX_OK) {
            break;
        }
        const sx_search_wait_result *answer = reply;
        SX_PUT(&args, search_wait_args, seq, answer->seq);
        if (answer->search.count != 1) {
            code =
                SX_FAIL(cli->cx, SX_INPUT, "the daemon tells of %u searches", answer->search.count);
            break;
        }
        running = sx_span_is(answer->search.items[0].state, "running");
        show_progress(&answer->search.items[0]);
        if (!running) {
            (void)fputs(isatty(STDERR_FILENO) ? "\r\033[K" : "", stderr);
            put_end(&answer->search.items[0]);
        }
    }
    sxc_interrupt_end(cli->cx, &interrupt);
    if (code == SX_OK && running) {
        (void)fputs(isatty(STDERR_FILENO) ? "\r\033[K" : "", stderr);
        return come_back(cli, search, SX_CANCELLED, "left alone");
    }
    if (code == SX_NODAEMON) {
        char why[SX_ERROR_TEXT_MAX];
        (void)snprintf(why, sizeof(why), "%s", cli->cx->error.text);
        sx_ctx_reset_error(cli->cx);
        return come_back(cli, search, SX_NODAEMON, why);
    }
    return code;
}

sx_code sxc_cmd_search_wait(sxc_cli *cli)
{
    int64_t search;
    sxc_source source;
    sxc_connection *connection = NULL;
    SX_TRY(read_search(cli, &search));
    sx_code code = load_model(cli, &source);
    code = code == SX_OK ? sxc_reach(cli, &connection) : code;
    code = code == SX_OK ? wait_for(cli, connection, search) : code;
    code = code == SX_OK ? fetch(cli, connection, search, source.weights) : code;
    sxc_disconnect(connection);
    sxc_source_fini(&source);
    return code;
}

/* ---- optimize --budget ---- */

static sx_code start(sxc_cli *cli, sxc_connection *connection, const sx_compile_args *request,
                     int64_t budget_ms, const sx_search_start_result **started)
{
    const void *reply;
    sx_search_start_args args = {.ir = request->ir, .budget_ms = budget_ms};
    SX_PUT(&args, search_start_args, target, request->target);
    SX_PUT(&args, search_start_args, dims, request->dims);
    SX_PUT(&args, search_start_args, options, request->options);
    SX_TRY(sxc_call(cli->cx, connection, SX_METHOD_SEARCH_START, &args, SXC_ANSWER_MS, &reply));
    *started = reply;
    return SX_OK;
}

static sx_code print_started(sxc_cli *cli, const sx_search_start_result *started)
{
    sx_buf out;
    sx_buf_init(&out, 65536);
    if (cli->json) {
        sx_message_json(&out, &sx_message_search_start_result, started);
    } else {
        sx_buf_print(&out, "%lld", (long long)started->search);
    }
    sx_code code = sxc_put(cli, &out);
    sx_buf_fini(&out);
    return code;
}

sx_code sxc_optimize_long(sxc_cli *cli, const sxc_source *source, const sx_core_request *request,
                          const sxc_compile_options *options)
{
    int64_t budget_ms;
    sx_compile_args args;
    sxc_connection *connection;
    const sx_search_start_result *started;
    SX_TRY(read_budget(cli, &budget_ms));
    if (options->daemon == SXC_MODE_NEVER) {
        return SX_FAIL(cli->cx, SX_USAGE, "--budget is for the daemon: not with --no-daemon");
    }
    SX_TRY(sxc_compile_args(cli->cx, source, request, &args));
    SX_TRY(sxc_reach(cli, &connection));
    sx_code code = start(cli, connection, &args, budget_ms, &started);
    if (code == SX_OK && sxc_given(cli, SXC_BACKGROUND)) {
        code = print_started(cli, started);
    } else if (code == SX_OK) {
        int64_t search = started->search;
        (void)fprintf(stderr, "search %lld: %lld lanes\n", (long long)search,
                      (long long)started->lanes);
        code = wait_for(cli, connection, search);
        code = code == SX_OK ? fetch(cli, connection, search, source->weights) : code;
    }
    sxc_disconnect(connection);
    return code;
}

/* ---- cancel, extend, remove ---- */

static sx_code print_changed(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_search_changed_result *changed = reply;
    (void)cli;
    sx_buf_print(out, "search %lld: ", (long long)changed->search);
    sxc_put_plain(out, changed->state);
    return SX_OK;
}

static sx_code change(sxc_cli *cli, sx_method method)
{
    sx_search_args args = {0};
    SX_TRY(read_search(cli, &args.search));
    return sxc_ask(cli, method, &args, SXC_ANSWER_MS, print_changed);
}

sx_code sxc_cmd_search_cancel(sxc_cli *cli)
{
    return change(cli, SX_METHOD_SEARCH_CANCEL);
}

sx_code sxc_cmd_search_remove(sxc_cli *cli)
{
    return change(cli, SX_METHOD_SEARCH_REMOVE);
}

sx_code sxc_cmd_search_extend(sxc_cli *cli)
{
    sx_search_extend_args args = {0};
    SX_TRY(read_search(cli, &args.search));
    SX_TRY(read_budget(cli, &args.budget_ms));
    return sxc_ask(cli, SX_METHOD_SEARCH_EXTEND, &args, SXC_ANSWER_MS, print_changed);
}
