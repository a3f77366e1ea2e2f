/* cmd_doctor.c - doctor: what this machine offers, what is missing; the answer is no (exit 1) only when
 * something needed is missing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/machine.h"
#include "client/record.h"
#include "client/cli/table.h"

#define REACH_MS 1000
#define PATH_BYTES SXC_FOLDER_MAX

/* ---- daemon ---- */

/* The daemon's state directory when one answers; else `directory` stays as it is. */
static void find_daemon(sxc_cli *cli, sxc_findings *findings, const char *socket, char *directory)
{
    sxc_connection *connection = NULL;
    const void *reply = NULL;
    sx_empty args = {0};
    sx_code code = sxc_connect(cli->cx, socket, REACH_MS, &connection);
    code = code == SX_OK ? sxc_call(cli->cx, connection, SX_METHOD_STATUS, &args, REACH_MS, &reply)
                         : code;
    if (code == SX_OK) {
        const sx_status_result *status = reply;
        sxc_finding_put(findings, "daemon", true, false, "version %.*s, process %lld, %.*s",
                        (int)sx_min_i64((int64_t)status->version.len, 40),
                        (const char *)status->version.ptr, (long long)status->pid,
                        (int)sx_min_i64((int64_t)status->state.len, 40),
                        (const char *)status->state.ptr);
        (void)snprintf(directory, PATH_BYTES, "%.*s",
                       (int)sx_min_i64((int64_t)status->directory.len, PATH_BYTES - 1),
                       (const char *)status->directory.ptr);
    } else {
        sxc_finding_put(findings, "daemon", false, false, "%.200s; compiling works without",
                        cli->cx->error.text);
        sx_ctx_reset_error(cli->cx);
    }
    sxc_disconnect(connection);
}

static void find_socket(sxc_findings *findings, const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        sxc_finding_put(findings, "socket", false, false, "%s: %s", path, strerror(errno));
        return;
    }
    bool ours = status.st_uid == getuid() || status.st_uid == 0;
    bool closed = (status.st_mode & (S_IWOTH | S_IROTH)) == 0;
    sxc_finding_put(findings, "socket", S_ISSOCK(status.st_mode) && ours && closed, false,
                    "%s, mode %04o, owner %u%s%s%s", path, status.st_mode & 07777u, status.st_uid,
                    S_ISSOCK(status.st_mode) ? "" : ", not a socket",
                    ours ? "" : ", another user's", closed ? "" : ", open to everybody");
}

/* ---- state directory ---- */

/* The directory, or the nearest one above it that exists: it would be made there. */
static void find_directory(sxc_findings *findings, const char *directory)
{
    char existing[PATH_BYTES];
    struct stat status;
    (void)snprintf(existing, sizeof(existing), "%s", directory);
    while (stat(existing, &status) != 0) {
        char *slash = strrchr(existing, '/');
        if (slash == NULL || slash == existing) {
            (void)snprintf(existing, sizeof(existing), "/");
            break;
        }
        *slash = '\0';
    }
    struct statvfs space;
    bool writable = access(existing, W_OK | X_OK) == 0;
    char bytes[32] = "unknown";
    if (statvfs(existing, &space) == 0) {
        sxc_human_bytes((double)space.f_bavail * (double)space.f_frsize, bytes);
    }
    sxc_finding_put(findings, "state-directory", writable, false, "%.120s, %s free%s%s", directory,
                    bytes, strcmp(existing, directory) == 0 ? "" : ", not there yet",
                    writable ? "" : ", not writable");
}

/* ---- report ---- */

static void put_json(const sxc_findings *findings, uint32_t missing, sx_buf *json)
{
    sxc_json_begin(json, "doctor");
    sxc_json_bool(json, "well", missing == 0);
    sxc_json_open(json, "findings", '[');
    for (uint32_t i = 0; i < findings->count; i++) {
        const sxc_finding *row = &findings->row[i];
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "name", sx_span_of(row->name));
        sxc_json_bool(json, "found", row->found);
        sxc_json_bool(json, "needed", row->needed);
        sxc_json_text(json, "detail", sx_span_of(row->detail));
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    sxc_json_end(json);
}

static sx_code put_text(sx_ctx *cx, const sxc_findings *findings, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, cx, "WHAT|FOUND|DETAIL");
    for (uint32_t i = 0; i < findings->count; i++) {
        const sxc_finding *row = &findings->row[i];
        sxc_table_put(&table, "%s", row->name);
        sxc_table_put(&table, "%s", row->found ? "yes" : row->needed ? "MISSING" : "no");
        sxc_table_put(&table, "%s", row->detail);
    }
    return sxc_table_print(&table, out);
}

static sx_code report(sxc_cli *cli, const sxc_findings *findings)
{
    uint32_t missing = 0;
    const char *first = "";
    for (uint32_t i = findings->count; i-- > 0;) {
        bool lacks = findings->row[i].needed && !findings->row[i].found;
        missing += lacks;
        first = lacks ? findings->row[i].name : first;
    }
    sx_buf out;
    sx_buf_init(&out, 65536);
    sx_code code = SX_OK;
    if (cli->json) {
        put_json(findings, missing, &out);
    } else {
        code = put_text(cli->cx, findings, &out);
    }
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&out);
    if (code == SX_OK && missing > 0) {
        code = SX_FAIL(cli->cx, SX_ABSENT, "%u of the things needed are missing, first %s", missing,
                       first);
    }
    return code;
}

sx_code sxc_cmd_doctor(sxc_cli *cli)
{
    char socket[SXC_PATH_MAX], directory[PATH_BYTES] = "";
    sxc_findings findings = {.count = 0};
    const char *given = sxc_value(cli, SXC_SOCKET);
    if (given == NULL) {
        SX_TRY(sxc_default_socket(cli->cx, socket));
        given = socket;
    }
    sxc_find_processor(&findings);
    sxc_find_memory(&findings);
    bool known = sxc_state_folder(directory);
    find_socket(&findings, given);
    find_daemon(cli, &findings, given, directory);
    if (known || directory[0] != '\0') {
        find_directory(&findings, directory);
    }
    sxc_find_libraries(&findings);
    sxc_find_cuda(cli->cx, &findings);
    return report(cli, &findings);
}
