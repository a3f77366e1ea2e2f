/* cmd_service.c - what the daemon tells about itself and its cache: cache ls, show, verify, evict; jobs,
 * status, ping, shutdown. --json prints the reply message as it came. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/cli/table.h"

#define REACH_MS \
    1000 /* to a daemon that was asked for: longer than the decision between daemon and process */
#define VERIFY_MS 3600000 /* reading the whole store */
#define COMPLETE_MAX \
    10000 /* entries looked at for a key given by its beginning: the most that cache.list gives */
#define PREFIX_DIGITS_MIN 4 /* as in cache/cache.h */
#define LIST_MAX 10000
#define JSON_BYTES_MAX ((size_t)256 << 20)

/* ---- calls ---- */

sx_code sxc_reach(sxc_cli *cli, sxc_connection **connection)
{
    char path[SXC_PATH_MAX];
    const char *given = sxc_value(cli, SXC_SOCKET);
    if (given == NULL) {
        SX_TRY(sxc_default_socket(cli->cx, path));
        given = path;
    }
    sx_code code = sxc_connect(cli->cx, given, REACH_MS, connection);
    if (code == SX_NODAEMON) {
        sx_hint(cli->cx, "Start one with 'symplexd', or name its socket with --socket.");
    }
    return code;
}

/* One call on an open connection; the reply as JSON or by `print`. */
static sx_code ask(sxc_cli *cli, sxc_connection *connection, sx_method method, const void *args,
                   int timeout_ms, sxc_printer print)
{
    const void *reply;
    SX_TRY(sxc_call(cli->cx, connection, method, args, timeout_ms, &reply));
    sx_buf out;
    sx_buf_init(&out, JSON_BYTES_MAX);
    sx_code code = SX_OK;
    if (cli->json) {
        sx_message_json(&out, sx_method_get(method)->result, reply);
    } else {
        code = print(cli, reply, &out);
    }
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&out);
    return code;
}

sx_code sxc_ask(sxc_cli *cli, sx_method method, const void *args, int timeout_ms, sxc_printer print)
{
    sxc_connection *connection;
    SX_TRY(sxc_reach(cli, &connection));
    sx_code code = ask(cli, connection, method, args, timeout_ms, print);
    sxc_disconnect(connection);
    return code;
}

/* ---- cache ---- */

static void put_time(sxc_table *table, int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;
    char text[32];
    if (gmtime_r(&seconds, &parts) == NULL ||
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
        (void)snprintf(text, sizeof(text), "%lld ms", (long long)ms);
    }
    sxc_table_put(table, "%s", text);
}

#define ENTRY_HEADS "KEY|KIND|TIER|>BYTES|>STORED|>COST MS|>HITS|LAST USED|>UID|PINNED"
static void put_entry(sxc_table *table, const sx_entry_row *entry, int key_digits)
{
    char key[SX_KEY_TEXT_SIZE];
    sx_key_print(&entry->key, key);
    sxc_table_put(table, "%.*s", key_digits, key);
    sxc_table_put_span(table, entry->kind);
    sxc_table_put_span(table, entry->tier);
    sxc_table_put(table, "%lld", (long long)entry->size);
    sxc_table_put(table, "%lld", (long long)entry->stored);
    sxc_table_put(table, "%.1f", (double)entry->cost_us / 1e3);
    sxc_table_put(table, "%lld", (long long)entry->hits);
    put_time(table, entry->used_ms);
    sxc_table_put(table, "%lld", (long long)entry->uid);
    sxc_table_put(table, "%s", entry->pinned ? "yes" : "no");
}

static sx_code print_list(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_cache_list_result *list = reply;
    sxc_table table;
    sxc_table_init(&table, cli->cx, ENTRY_HEADS);
    for (uint32_t i = 0; i < list->entries.count; i++) {
        put_entry(&table, &list->entries.items[i], 16);
    }
    SX_TRY(sxc_table_print(&table, out));
    if (list->more) {
        (void)fprintf(stderr, "%u entries shown; there are more (--limit)\n", list->entries.count);
    }
    return SX_OK;
}

sx_code sxc_cmd_cache_ls(sxc_cli *cli)
{
    int64_t limit;
    SX_TRY(sxc_number(cli, SXC_LIMIT, 1, LIST_MAX, 1000, &limit));
    sx_cache_list_args args = {0};
    SX_PUT(&args, cache_list_args, limit, limit);
    return sxc_ask(cli, SX_METHOD_CACHE_LIST, &args, SXC_ANSWER_MS, print_list);
}

/* The one key that begins with these digits, among the entries that cache.list gives. */
static sx_code complete(sxc_cli *cli, sxc_connection *connection, const char *digits, sx_key *key)
{
    const void *reply;
    sx_cache_list_args args = {0};
    SX_PUT(&args, cache_list_args, limit, COMPLETE_MAX);
    SX_TRY(sxc_call(cli->cx, connection, SX_METHOD_CACHE_LIST, &args, SXC_ANSWER_MS, &reply));
    const sx_cache_list_result *list = reply;
    uint32_t found = 0;
    for (uint32_t i = 0; i < list->entries.count; i++) {
        char text[SX_KEY_TEXT_SIZE];
        sx_key_print(&list->entries.items[i].key, text);
        if (strncmp(text, digits, strlen(digits)) == 0) {
            *key = list->entries.items[i].key;
            found++;
        }
    }
    if (found == 1) {
        return SX_OK;
    }
    if (list->more) {
        sx_hint(cli->cx, "Only the %d entries used last were looked at; give all 64 digits.",
                COMPLETE_MAX);
    }
    return found > 1 ? SX_FAIL(cli->cx, SX_INPUT, "key %s: %u entries begin so", digits, found)
                     : SX_FAIL(cli->cx, SX_ABSENT, "key %s: no entry begins so", digits);
}

/* 64 hex digits, or the beginning of a key that is there. */
sx_code sxc_read_key(sxc_cli *cli, sxc_connection *connection, const char *given, sx_key *key)
{
    size_t length = strlen(given);
    char digits[SX_KEY_TEXT_SIZE];
    for (size_t i = 0; i < length && i < sizeof(digits) - 1; i++) {
        digits[i] = given[i] >= 'A' && given[i] <= 'F' ? (char)(given[i] - 'A' + 'a') : given[i];
    }
    digits[length < sizeof(digits) ? length : sizeof(digits) - 1] = '\0';
    bool hex = strspn(digits, "0123456789abcdef") == length;
    if (!hex || length < PREFIX_DIGITS_MIN || length >= sizeof(digits)) {
        return SX_FAIL(cli->cx, SX_USAGE, "key '%.70s': not %d to %zu hex digits", given,
                       PREFIX_DIGITS_MIN, sizeof(digits) - 1);
    }
    return sx_key_parse(sx_span_of(digits), key) ? SX_OK : complete(cli, connection, digits, key);
}

static bool is_text(sx_span bytes)
{
    for (size_t i = 0; i < bytes.len; i++) {
        if (bytes.ptr[i] < 32 || bytes.ptr[i] > 126) {
            return false;
        }
    }
    return true;
}

static sx_code print_entry(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_cache_show_result *shown = reply;
    sxc_table table, parts;
    sxc_table_init(&table, cli->cx, ENTRY_HEADS);
    for (uint32_t i = 0; i < shown->entry.count; i++) {
        put_entry(&table, &shown->entry.items[i], SX_KEY_TEXT_SIZE);
    }
    SX_TRY(sxc_table_print(&table, out));
    sxc_table_init(&parts, cli->cx, "PART|VALUE");
    for (uint32_t i = 0; i < shown->parts.count; i++) {
        const sx_part_row *part = &shown->parts.items[i];
        sxc_table_put_span(&parts, part->name);
        if (is_text(part->value)) {
            sxc_table_put_span(&parts, part->value);
            continue;
        }
        sx_buf hex;
        sx_buf_init(&hex, 65536);
        for (size_t k = 0; k < part->value.len; k++) {
            sx_buf_print(&hex, "%02x", part->value.ptr[k]);
        }
        sxc_table_put_span(&parts, sx_buf_span(&hex));
        sx_buf_fini(&hex);
    }
    sx_buf_put_u8(out, '\n');
    return sxc_table_print(&parts, out);
}

sx_code sxc_cmd_cache_show(sxc_cli *cli)
{
    sxc_connection *connection;
    sx_get_args args;
    SX_TRY(sxc_reach(cli, &connection));
    sx_code code = sxc_read_key(cli, connection, cli->argument[0], &args.key);
    args.has = 0;
    code = code == SX_OK
               ? ask(cli, connection, SX_METHOD_CACHE_SHOW, &args, SXC_ANSWER_MS, print_entry)
               : code;
    sxc_disconnect(connection);
    return code;
}

static sx_code print_verification(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_cache_verify_result *r = reply;
    (void)cli;
    sx_buf_print(out, "%lld entries read, %lld damaged, %lld bytes without an owner%s",
                 (long long)r->checked, (long long)r->bad, (long long)r->orphans,
                 r->pages_bad != 0 ? ", database file malformed" : "");
    return SX_OK;
}

/* The answer is no (exit 1) when anything was damaged. */
sx_code sxc_cmd_cache_verify(sxc_cli *cli)
{
    sxc_connection *connection;
    sx_empty args = {0};
    const void *reply;
    SX_TRY(sxc_reach(cli, &connection));
    sx_code code = sxc_call(cli->cx, connection, SX_METHOD_CACHE_VERIFY, &args, VERIFY_MS, &reply);
    sx_buf out;
    sx_buf_init(&out, 65536);
    if (code == SX_OK) {
        const sx_cache_verify_result *r = reply;
        if (cli->json) {
            sx_message_json(&out, &sx_message_cache_verify_result, r);
        } else {
            (void)print_verification(cli, r, &out);
        }
        code = sxc_put(cli, &out);
        if (code == SX_OK && (r->bad != 0 || r->pages_bad != 0)) {
            code = SX_FAIL(cli->cx, SX_MISMATCH, "cache: %lld of %lld entries were damaged",
                           (long long)r->bad, (long long)r->checked);
        }
    }
    sx_buf_fini(&out);
    sxc_disconnect(connection);
    return code;
}

static sx_code print_evicted(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_cache_evict_result *r = reply;
    (void)cli;
    sx_buf_print(out, "%lld entries removed", (long long)r->entries);
    return SX_OK;
}

sx_code sxc_cmd_cache_evict(sxc_cli *cli)
{
    sxc_connection *connection;
    sx_cache_evict_args args = {0};
    if ((cli->argument_count == 1) == sxc_given(cli, SXC_ALL)) {
        return SX_FAIL(cli->cx, SX_USAGE, "cache evict: either a KEY or --all");
    }
    SX_TRY(sxc_reach(cli, &connection));
    sx_code code = SX_OK;
    if (cli->argument_count == 1) {
        code = sxc_read_key(cli, connection, cli->argument[0], &args.key);
        args.has |= SX_BIT(cache_evict_args, key);
    } else {
        SX_PUT(&args, cache_evict_args, all, true);
    }
    code = code == SX_OK
               ? ask(cli, connection, SX_METHOD_CACHE_EVICT, &args, SXC_ANSWER_MS, print_evicted)
               : code;
    sxc_disconnect(connection);
    return code;
}

sx_code sxc_cmd_cache_rm(sxc_cli *cli)
{
    sx_cache_evict_args args = {0};
    SX_PUT(&args, cache_evict_args, cache, sx_span_of(cli->argument[0]));
    return sxc_ask(cli, SX_METHOD_CACHE_EVICT, &args, SXC_ANSWER_MS, print_evicted);
}

static sx_code print_caches(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_artefact_caches_result *r = reply;
    sxc_table table;
    int64_t stored = 0;
    sxc_table_init(&table, cli->cx, "CACHE|>UID|>ENTRIES|>BYTES|>STORED|>HITS|>COST S");
    for (uint32_t i = 0; i < r->caches.count; i++) {
        const sx_artefact_cache_row *row = &r->caches.items[i];
        sxc_table_put_span(&table, row->cache);
        sxc_table_put(&table, "%lld", (long long)row->uid);
        sxc_table_put(&table, "%lld", (long long)row->entries);
        sxc_table_put(&table, "%lld", (long long)row->size);
        sxc_table_put(&table, "%lld", (long long)row->stored);
        sxc_table_put(&table, "%lld", (long long)row->hits);
        sxc_table_put(&table, "%.1f", (double)row->cost_us / 1e6);
        stored += row->stored;
    }
    SX_TRY(sxc_table_print(&table, out));
    sx_buf_print(out, "\n%lld of %lld bytes, %lld being made, %lld waiting", (long long)stored,
                 (long long)r->quota, (long long)r->leases, (long long)r->waiting);
    return SX_OK;
}

sx_code sxc_cmd_cache_stats(sxc_cli *cli)
{
    sx_empty args = {0};
    return sxc_ask(cli, SX_METHOD_ARTEFACT_CACHES, &args, SXC_ANSWER_MS, print_caches);
}

/* ---- sessions ---- */

#define SESSION_HEADS ">SESSION|JOB|>RANKS|>OPEN|>GONE|>AT CHECK|>CHECKS|>PINS|>BYTES|>IDLE S|>UID"
static void put_session(sxc_table *table, const sx_session_row *row)
{
    sxc_table_put(table, "%lld", (long long)row->session);
    sxc_table_put_span(table, row->job);
    sxc_table_put(table, "%lld", (long long)row->world);
    sxc_table_put(table, "%lld", (long long)row->open);
    sxc_table_put(table, "%lld", (long long)row->gone);
    sxc_table_put(table, "%lld", (long long)row->waiting);
    sxc_table_put(table, "%lld", (long long)row->round);
    sxc_table_put(table, "%lld", (long long)row->pins);
    sxc_table_put(table, "%lld", (long long)row->bytes);
    sxc_table_put(table, "%.1f", (double)row->idle_ms / 1e3);
    sxc_table_put(table, "%lld", (long long)row->uid);
}

static sx_code print_sessions(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_session_list_result *r = reply;
    sxc_table table;
    sxc_table_init(&table, cli->cx, SESSION_HEADS);
    for (uint32_t i = 0; i < r->sessions.count; i++) {
        put_session(&table, &r->sessions.items[i]);
    }
    return sxc_table_print(&table, out);
}

sx_code sxc_cmd_session(sxc_cli *cli)
{
    sx_empty args = {0};
    return sxc_ask(cli, SX_METHOD_SESSION_LIST, &args, SXC_ANSWER_MS, print_sessions);
}

static sx_code print_session(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_session_show_result *r = reply;
    sxc_table table, ranks;
    sxc_table_init(&table, cli->cx, SESSION_HEADS);
    for (uint32_t i = 0; i < r->session.count; i++) {
        put_session(&table, &r->session.items[i]);
    }
    SX_TRY(sxc_table_print(&table, out));
    sxc_table_init(&ranks, cli->cx, ">RANK|STATE|>SINCE S|>PROCESS");
    for (uint32_t i = 0; i < r->ranks.count; i++) {
        sxc_table_put(&ranks, "%lld", (long long)r->ranks.items[i].rank);
        sxc_table_put_span(&ranks, r->ranks.items[i].state);
        sxc_table_put(&ranks, "%.1f", (double)r->ranks.items[i].since_ms / 1e3);
        sxc_table_put(&ranks, "%lld", (long long)r->ranks.items[i].pid);
    }
    sx_buf_put_u8(out, '\n');
    return sxc_table_print(&ranks, out);
}

sx_code sxc_cmd_session_show(sxc_cli *cli)
{
    sx_session_args args = {0};
    SX_TRY(sxc_parse_i64(cli->cx, "session", sx_span_of(cli->argument[0]), 1, INT64_MAX,
                         &args.session));
    return sxc_ask(cli, SX_METHOD_SESSION_SHOW, &args, SXC_ANSWER_MS, print_session);
}

/* ---- jobs, status ---- */

static sx_code print_jobs(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_jobs_result *jobs = reply;
    sxc_table table;
    sxc_table_init(&table, cli->cx,
                   ">JOB|METHOD|TARGET|STATE|STAGE|>WAITERS|>JOINED|>AGE MS|>WORKER|KEY");
    for (uint32_t i = 0; i < jobs->jobs.count; i++) {
        const sx_job_row *job = &jobs->jobs.items[i];
        char key[SX_KEY_TEXT_SIZE];
        sx_key_print(&job->key, key);
        sxc_table_put(&table, "%lld", (long long)job->job);
        sxc_table_put_span(&table, job->method);
        sxc_table_put_span(&table, job->target);
        sxc_table_put_span(&table, job->state);
        sxc_table_put_span(&table, job->stage);
        sxc_table_put(&table, "%lld", (long long)job->waiters);
        sxc_table_put(&table, "%lld", (long long)job->coalesced);
        sxc_table_put(&table, "%lld", (long long)job->age_ms);
        sxc_table_put(&table, "%lld", (long long)job->worker);
        sxc_table_put(&table, "%.16s", key);
    }
    return sxc_table_print(&table, out);
}

sx_code sxc_cmd_jobs(sxc_cli *cli)
{
    sx_empty args = {0};
    return sxc_ask(cli, SX_METHOD_JOBS, &args, SXC_ANSWER_MS, print_jobs);
}

static void put_status_head(const sx_status_result *status, sx_buf *out)
{
    sxc_put_line(out, "server", status->server);
    sxc_put_line(out, "version", status->version);
    sxc_put_line(out, "build", status->build);
    sxc_put_line(out, "state", status->state);
    sx_buf_print(out, "process    %lld, up %.1f s\n", (long long)status->pid,
                 (double)status->uptime_ms / 1e3);
    sxc_put_line(out, "socket", status->socket);
    sxc_put_line(out, "directory", status->directory);
    sxc_put_line(out, "store", status->store);
    if (status->store_error.len > 0) {
        sxc_put_line(out, "error", status->store_error);
    }
}

static sx_code print_status(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_status_result *status = reply;
    sxc_table workers, counters;
    put_status_head(status, out);
    sxc_table_init(&workers, cli->cx, ">WORKER|STATE|>JOBS|>JOB|>SEARCH|STEP OF ANOTHER");
    for (uint32_t i = 0; i < status->workers.count; i++) {
        const sx_worker_row *worker = &status->workers.items[i];
        sxc_table_put(&workers, "%lld", (long long)worker->pid);
        sxc_table_put_span(&workers, worker->state);
        sxc_table_put(&workers, "%lld", (long long)worker->jobs);
        sxc_table_put(&workers, "%lld", (long long)worker->job);
        sxc_table_put(&workers, "%lld", (long long)worker->search);
        sxc_table_put_span(&workers,
                           SX_HAS(worker, worker_row, task) ? worker->task : SX_SPAN_LITERAL(""));
    }
    sx_buf_put_u8(out, '\n');
    SX_TRY(sxc_table_print(&workers, out));
    sxc_table_init(&counters, cli->cx, "COUNTER|>VALUE");
    for (uint32_t i = 0; i < status->counters.count; i++) {
        sxc_table_put_span(&counters, status->counters.items[i].name);
        sxc_table_put(&counters, "%lld", (long long)status->counters.items[i].integer);
    }
    sx_buf_put_u8(out, '\n');
    return sxc_table_print(&counters, out);
}

sx_code sxc_cmd_status(sxc_cli *cli)
{
    sx_empty args = {0};
    return sxc_ask(cli, SX_METHOD_STATUS, &args, SXC_ANSWER_MS, print_status);
}

/* ---- ping, shutdown ---- */

static sx_code print_pong(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_ping_result *pong = reply;
    (void)cli;
    sx_buf_put_text(out, "alive, start ");
    sxc_put_plain(out, pong->boot_id);
    return SX_OK;
}

sx_code sxc_cmd_ping(sxc_cli *cli)
{
    sx_ping_args args = {0};
    return sxc_ask(cli, SX_METHOD_PING, &args, REACH_MS, print_pong);
}

static sx_code print_shutdown(sxc_cli *cli, const void *reply, sx_buf *out)
{
    const sx_shutdown_result *r = reply;
    (void)cli;
    sxc_put_plain(out, r->state);
    return SX_OK;
}

sx_code sxc_cmd_shutdown(sxc_cli *cli)
{
    sx_shutdown_args args = {0};
    SX_PUT(&args, shutdown_args, fast, sxc_given(cli, SXC_FAST));
    return sxc_ask(cli, SX_METHOD_SHUTDOWN, &args, SXC_ANSWER_MS, print_shutdown);
}
