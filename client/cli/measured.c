#include "client/cli/measured.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/file.h"
#include "client/record.h"
#include "client/runtime/cpu.h"
#include "core/core.h"
#include "core/search/correction.h"

#define TURN "turn" /* never put: whoever has its lease tunes */
#define TURN_MS 3600000
#define HOLD_MS 2000
#define CALL_MS 30000

void sxc_measured_threads(char machine[SX_MEASURED_MACHINE_MAX], uint32_t threads)
{
    size_t used = strlen(machine);
    if (threads > 0) {
        (void)snprintf(machine + used, SX_MEASURED_MACHINE_MAX - used, "/%u", threads);
    }
}

/* ---- the file ---- */
static sx_code file_name(const sxc_cli *cli, char name[SXC_MEASURED_NAME_MAX])
{
    const char *given = sxc_value(cli, SXC_TIMES);
    char folder[SXC_FOLDER_MAX];
    int length = 0;
    if (given != NULL) {
        length = snprintf(name, SXC_MEASURED_NAME_MAX, "%s", given);
    } else if (sxc_state_folder(folder)) {
        length = snprintf(name, SXC_MEASURED_NAME_MAX, "%s/measured", folder);
    }
    if (length <= 0 || length >= SXC_MEASURED_NAME_MAX) {
        sx_hint(cli->cx, "Name a file with --times.");
        return SX_FAIL(cli->cx, SX_USAGE, "no place for what is measured: no home is known");
    }
    return SX_OK;
}

static bool is_there(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0;
}

/* Before anything is measured: the state folder is made, and the folder of the file takes files. */
static sx_code prepare_file(const sxc_cli *cli, const char *name)
{
    char folder[SXC_MEASURED_NAME_MAX];
    if (!sxc_given(cli, SXC_TIMES) && sxc_state_folder(folder)) {
        sx_code code = sxc_state_folder_make(cli->cx, "what is measured", folder);
        if (code != SX_OK) {
            sx_hint(cli->cx, "Name another file with --times.");
            return code;
        }
    }
    (void)snprintf(folder, sizeof(folder), "%s", name);
    char *last = strrchr(folder, '/');
    if (last != NULL) {
        last[last == folder ? 1 : 0] = '\0';
    }
    if (access(last != NULL ? folder : ".", W_OK) != 0) {
        const char *why = strerror(errno);
        sx_hint(cli->cx, "Name another file with --times.");
        return SX_FAIL(cli->cx, SX_INPUT, "%s: what is measured cannot be kept there: %s", name,
                       why);
    }
    return SX_OK;
}

static sx_code read_file(sx_ctx *cx, const char *path, sx_buf *text)
{
    FILE *file;
    SX_TRY(sxc_open_input(cx, path, &file));
    uint8_t piece[4096];
    size_t got;
    while ((got = fread(piece, 1, sizeof(piece), file)) > 0) {
        sx_buf_put(text, piece, got);
    }
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    return failed ? SX_FAIL(cx, SX_INPUT, "%s: cannot be read", path)
                  : sx_buf_check(cx, text, "measured rows");
}

sx_code sxc_measured_read(const sxc_cli *cli, sx_span *text)
{
    char path[SXC_MEASURED_NAME_MAX], machine[SXR_IDENTITY_MAX];
    *text = (sx_span){NULL, 0};
    bool given = sxc_given(cli, SXC_TIMES);
    if (file_name(cli, path) != SX_OK || (!given && !is_there(path))) {
        sx_ctx_reset_error(cli->cx);
        return SX_OK;
    }
    sx_buf bytes;
    sxr_identity(machine);
    sx_buf_init(&bytes, SX_MEASURED_TEXT_MAX);
    sx_code code = read_file(cli->cx, path, &bytes);
    const char *ignored = NULL;
    code = code == SX_OK ? sx_measured_here(cli->cx, sx_buf_span(&bytes), machine, text, &ignored)
                         : code;
    if (ignored != NULL) {
        (void)fprintf(stderr, "warning: %s: %s; prices are the model's\n", path, ignored);
    }
    sx_buf_fini(&bytes);
    if (code == SX_INPUT && !given) {
        sx_hint(cli->cx, "Remove %s, or name another file with --times.", path);
    }
    return code;
}

/* ---- the daemon ---- */
/* One at a time: the lease of an artefact that nobody ever puts. */
static sx_code take_turn(const sxc_cli *cli, sxc_measured_place *place)
{
    sx_artefact_get_args args = {.cache = SX_SPAN_LITERAL(SX_CORE_KEPT_CACHE),
                                 .name = SX_SPAN_LITERAL(TURN)};
    SX_PUT(&args, artefact_get_args, claim_ms, TURN_MS);
    SX_PUT(&args, artefact_get_args, wait_ms, HOLD_MS);
    for (uint32_t i = 0; i < TURN_MS / HOLD_MS; i++) {
        const void *reply;
        SX_TRY(sxc_call(cli->cx, place->daemon, SX_METHOD_ARTEFACT_GET, &args, CALL_MS, &reply));
        const sx_artefact_get_result *got = reply;
        if (!sx_span_is(got->state, "held")) {
            place->turn = SX_HAS(got, artefact_get_result, lease) ? got->lease : 0;
            return SX_OK;
        }
        if (i == 0) {
            (void)fprintf(stderr, "another tune measures here; this one waits for it\n");
        }
    }
    return SX_FAIL(cli->cx, SX_BUSY, "tune: another one has measured here for an hour");
}

static sx_code add_to_daemon(sx_ctx *cx, const sxc_measured_place *place, sx_span machine,
                             sx_span text, uint64_t cost_us)
{
    const void *reply;
    sx_artefact_put_args args = {
        .cache = SX_SPAN_LITERAL(SX_CORE_KEPT_CACHE), .name = machine, .value = text};
    SX_PUT(&args, artefact_put_args, cost_us, (int64_t)(cost_us & INT64_MAX));
    return sxc_call(cx, place->daemon, SX_METHOD_ARTEFACT_PUT, &args, CALL_MS, &reply);
}

/* What is kept there already into `text`, and what making it took. */
static sx_code read_daemon(sx_ctx *cx, const sxc_measured_place *place, sx_span machine,
                           sx_buf *text, uint64_t *cost_us)
{
    const void *reply;
    sx_artefact_get_args args = {.cache = SX_SPAN_LITERAL(SX_CORE_KEPT_CACHE), .name = machine};
    SX_TRY(sxc_call(cx, place->daemon, SX_METHOD_ARTEFACT_GET, &args, CALL_MS, &reply));
    const sx_artefact_get_result *got = reply;
    if (SX_HAS(got, artefact_get_result, value)) {
        sx_buf_put_span(text, got->value);
        *cost_us += SX_HAS(got, artefact_get_result, cost_us) ? (uint64_t)got->cost_us : 0;
    }
    return sx_buf_check(cx, text, "measured rows");
}

/* ---- either ---- */
sx_code sxc_measured_open(sxc_cli *cli, const char *machine, sxc_measured_place *place)
{
    char path[SXC_PATH_MAX];
    bool never = sxc_given(cli, SXC_NO_DAEMON), only = sxc_given(cli, SXC_DAEMON_ONLY);
    *place = (sxc_measured_place){.daemon = NULL};
    SX_ASSERT(strlen(machine) < SX_MEASURED_MACHINE_MAX);
    if (never && only) {
        return SX_FAIL(cli->cx, SX_USAGE, "--no-daemon and --daemon-only exclude each other");
    }
    if (!never && !sxc_given(cli, SXC_TIMES)) {
        SX_TRY(sxc_socket_of(cli->cx, sxc_value(cli, SXC_SOCKET), path));
        sx_code code = sxc_connect(cli->cx, path, SXC_DECIDE_MS, &place->daemon);
        if (code == SX_OK) {
            (void)snprintf(place->name, sizeof(place->name), "%s", path);
            return take_turn(cli, place);
        }
        if (only || (code != SX_NODAEMON && code != SX_DENIED)) {
            return code;
        }
        sx_ctx_reset_error(cli->cx);
    }
    SX_TRY(file_name(cli, place->name));
    return prepare_file(cli, place->name);
}

void sxc_measured_close(sxc_measured_place *place)
{
    sxc_disconnect(place->daemon); /* the turn ends with it */
    place->daemon = NULL;
}

sx_code sxc_measured_all(sx_ctx *cx, const sxc_measured_place *place, const char *machine,
                         sx_measured *all, uint64_t *cost_us)
{
    sx_buf text;
    sx_buf_init(&text, SX_MEASURED_TEXT_MAX);
    sx_code code = SX_OK;
    if (place->daemon != NULL) {
        code = read_daemon(cx, place, sx_span_of(machine), &text, cost_us);
    } else if (is_there(place->name)) {
        code = read_file(cx, place->name, &text);
    }
    sx_span all_text = sx_buf_span(&text); /* rows and correction borrow from it */
    const char *copy = code == SX_OK ? sx_alloc_text(cx, all_text) : NULL;
    code = code == SX_OK && copy == NULL ? cx->error.code : code;
    all_text.ptr = (const uint8_t *)copy;
    code = code == SX_OK ? sx_measured_parse(cx, all_text, all) : code;
    sx_buf_fini(&text);
    return code;
}

sx_code sxc_measured_replace(sx_ctx *cx, const sxc_measured_place *place, const char *machine,
                             const sx_measured *all, uint64_t cost_us)
{
    sx_buf text;
    sx_buf_init(&text, SX_MEASURED_TEXT_MAX);
    sx_measured_print(all, &text);
    sx_code code = sx_buf_check(cx, &text, "measured rows");
    if (code == SX_OK && place->daemon != NULL) {
        code = add_to_daemon(cx, place, sx_span_of(machine), sx_buf_span(&text), cost_us);
    } else if (code == SX_OK) {
        code = sxc_write_file(cx, place->name, sx_buf_span(&text));
    }
    sx_buf_fini(&text);
    return code;
}

sx_code sxc_measured_add(sx_ctx *cx, const sxc_measured_place *place, const char *machine,
                         const sx_measured *rows, uint64_t cost_us)
{
    sx_measured all = {.count = 0};
    SX_TRY(sxc_measured_all(cx, place, machine, &all, &cost_us));
    SX_TRY(sx_measured_merge(cx, &all, rows));
    return sxc_measured_replace(cx, place, machine, &all, cost_us);
}
