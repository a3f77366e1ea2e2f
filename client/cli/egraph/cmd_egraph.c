/* cmd_egraph.c - egraph: all the programs equal to one, for other tools (JSON, DOT) or as a picture. */
#include <string.h>

#include "client/cli/cmd_compile.h"
#include "client/cli/cmd_module.h"
#include "client/cli/entry.h"
#include "client/cli/program.h"
#include "core/core.h"
#include "client/cli/table.h"

#define BYTES_MAX ((size_t)1 << 30)

/* What is shown: the snapshot of an e-graph, or the program whose e-graph is to be made. */
typedef struct {
    sx_buf snapshot;
    sx_buf program;
    sx_buf list; /* of the parts a stored program has, instead */
    sx_span target;
} subject;

static sx_span target_of(sxc_cli *cli)
{
    const char *given = sxc_value(cli, SXC_TARGET);
    return sxc_target(sx_span_of(given != NULL ? given : "native"));
}

/* Bytes where readers of snapshots want them. */
static sx_code align(sx_ctx *cx, sx_span bytes, sx_span *aligned)
{
    uint8_t *copy = sx_alloc(cx, bytes.len + 64);
    if (copy == NULL) {
        return cx->error.code;
    }
    copy += (64 - (uintptr_t)copy % 64) % 64;
    if (bytes.len > 0) {
        memcpy(copy, bytes.ptr, bytes.len);
    }
    *aligned = (sx_span){copy, bytes.len};
    return SX_OK;
}

/* A module tells the program it was made of. */
static sx_code take_module(sxc_cli *cli, sx_span bytes, subject *s)
{
    sxc_module_file file;
    SX_TRY(sxc_module_file_of(cli->cx, bytes, &file));
    sx_buf_put(&s->program, file.module.program, (size_t)file.module.program_count);
    sxc_module_file_close(&file);
    return SX_OK;
}

static sx_code take_bytes(sxc_cli *cli, sx_span bytes, subject *s)
{
    if (bytes.len >= 8 && memcmp(bytes.ptr, SX_MODULE_MAGIC, 8) == 0) {
        return take_module(cli, bytes, s);
    }
    sx_buf_put_span(&s->snapshot, bytes);
    return SX_OK;
}

/* One operation that the options describe. */
static sx_code take_operation(sxc_cli *cli, subject *s)
{
    sxc_source source;
    sx_code code = sxc_program_load(cli, &source);
    sx_buf_put_span(&s->program, sx_buf_span(&source.text));
    sxc_source_fini(&source);
    return code;
}

static sx_code read_file(sxc_cli *cli, const char *path, subject *s)
{
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)4 << 30);
    sx_code code = sxc_read_text(cli->cx, path, &bytes);
    bool is_module = bytes.len >= 8 && memcmp(bytes.ptr, SX_MODULE_MAGIC, 8) == 0;
    if (code == SX_OK && is_module) {
        code = take_module(cli, sx_buf_span(&bytes), s);
    } else if (code == SX_OK) {
        sxc_source source;
        code = sxc_source_load(cli->cx, path, &source);
        sx_buf_put_span(&s->program, sx_buf_span(&source.text));
        sxc_source_fini(&source);
    }
    sx_buf_fini(&bytes);
    return code;
}

/* ---- entries of the daemon ---- */

/* The bytes of an entry, aligned as their reader wants them. */
static sx_code get_entry(sxc_cli *cli, sxc_connection *connection, const sx_key *key,
                         sx_span *bytes)
{
    sx_get_args args = {.key = *key};
    const void *reply;
    SX_TRY(sxc_call(cli->cx, connection, SX_METHOD_GET, &args, SXC_ANSWER_MS, &reply));
    return align(cli->cx, ((const sx_get_result *)reply)->module, bytes);
}

static sx_code put_parts(sxc_cli *cli, const sx_core_wired *part, uint32_t count, sx_buf *out)
{
    char digits[SX_KEY_TEXT_SIZE];
    sxc_table table;
    sxc_table_init(&table, cli->cx, ">PART|>USES|PROGRAM");
    if (cli->json) {
        sxc_json_begin(out, "symplex-egraph-parts");
        sx_buf_put_text(out, ",\"parts\":[");
    }
    for (uint32_t p = 0; p < count; p++) {
        sx_key_print(&part[p].program, digits);
        if (cli->json) {
            sx_buf_print(out, "%s{\"part\":%u,\"uses\":%u,\"program\":\"%s\"}", p > 0 ? "," : "",
                         p + 1, part[p].use_count, digits);
        } else {
            sxc_table_put(&table, "%u", p + 1);
            sxc_table_put(&table, "%u", part[p].use_count);
            sxc_table_put(&table, "%s", digits);
        }
    }
    if (cli->json) {
        sx_buf_put_text(out, "]}\n");
        return SX_OK;
    }
    return sxc_table_print(&table, out);
}

/* The entry of a part: that of its family which was made of it. */
static sx_code get_part(sxc_cli *cli, sxc_connection *connection, const sx_core_wired *part,
                        sx_span *bytes)
{
    for (uint32_t way = 0; way < SX_CORE_WAYS; way++) {
        sx_key program, key = sx_core_entry(&part->family, way);
        sx_code code = get_entry(cli, connection, &key, bytes);
        if (code == SX_ABSENT) {
            sx_ctx_reset_error(cli->cx);
            continue;
        }
        SX_TRY(code);
        SX_TRY(sx_core_egraph_program(cli->cx, *bytes, &program));
        if (sx_key_equal(&program, &part->program)) {
            return SX_OK;
        }
    }
    char digits[SX_KEY_TEXT_SIZE];
    sx_key_print(&part->program, digits);
    return SX_FAIL(cli->cx, SX_ABSENT, "part %.16s: its e-graph is not stored any more", digits);
}

/* One of the parts, or their list. A part may be made of parts itself. */
static sx_code choose_part(sxc_cli *cli, sxc_connection *connection, sx_span *bytes, subject *s)
{
    sx_core_wired *part;
    uint32_t count;
    int64_t number;
    SX_TRY(sx_core_wiring(cli->cx, *bytes, &part, &count));
    if (count == 0) {
        return sxc_given(cli, SXC_PART)
                   ? SX_FAIL(cli->cx, SX_USAGE, "--part: the program was not cut into parts")
                   : SX_OK;
    }
    SX_TRY(sxc_number(cli, SXC_PART, 1, count, 0, &number));
    if (number == 0 && sxc_given(cli, SXC_OUTPUT)) {
        return SX_FAIL(cli->cx, SX_USAGE,
                       "--output: the program is stored in %u parts, --part N is one", count);
    }
    if (number > 0) {
        SX_TRY(get_part(cli, connection, &part[number - 1], bytes));
        SX_TRY(sx_core_wiring(cli->cx, *bytes, &part, &count));
    }
    return count > 0 ? put_parts(cli, part, count, &s->list) : SX_OK;
}

static sx_code read_entry(sxc_cli *cli, const char *key, subject *s)
{
    sxc_connection *connection;
    sx_key wanted;
    sx_span bytes = {NULL, 0};
    SX_TRY(sxc_reach(cli, &connection));
    sx_code code = sxc_read_key(cli, connection, key, &wanted);
    code = code == SX_OK ? get_entry(cli, connection, &wanted, &bytes) : code;
    code = code == SX_OK ? choose_part(cli, connection, &bytes, s) : code;
    code = code == SX_OK && s->list.len == 0 ? take_bytes(cli, bytes, s) : code;
    sxc_disconnect(connection);
    return code;
}

static sx_code make_snapshot(sxc_cli *cli, subject *s)
{
    if (s->snapshot.len > 0) {
        return SX_OK;
    }
    sx_core_request request = {.ir = sx_buf_span(&s->program),
                               .target = s->target,
                               .no_reassociate = sxc_given(cli, SXC_EXACT),
                               .allow_approximate = sxc_given(cli, SXC_APPROXIMATE)};
    SX_TRY(sxc_read_range(cli, &request.range_any));
    SX_TRY(sx_buf_check(cli->cx, &s->program, "program"));
    return sx_core_egraph(cli->cx, &request, &s->snapshot);
}

/* By the ending of the output's name. */
static sx_code choose_form(sxc_cli *cli, sx_core_form *form)
{
    static const char *const ending[] = {
        [SX_CORE_JSON] = ".json", [SX_CORE_DOT] = ".dot", [SX_CORE_SVG] = ".svg"};
    const char *path = sxc_value(cli, SXC_OUTPUT);
    const char *dot = path != NULL ? strrchr(path, '.') : NULL;
    *form = cli->json ? SX_CORE_JSON : SX_CORE_DOT;
    for (uint32_t i = 0; dot != NULL && i < SX_COUNT(ending); i++) {
        if (strcmp(dot, ending[i]) == 0) {
            *form = (sx_core_form)i;
            return SX_OK;
        }
    }
    return path == NULL || strcmp(path, "-") == 0
               ? SX_OK
               : SX_FAIL(cli->cx, SX_USAGE, "--output %.200s: ends in none of .json, .dot, .svg",
                         path);
}

static sx_code print(sxc_cli *cli, const subject *s, sx_core_form form, sx_buf *out)
{
    sx_span bytes;
    SX_TRY(align(cli->cx, sx_buf_span(&s->snapshot), &bytes));
    return sx_core_egraph_print(cli->cx, bytes, s->target, form, out);
}

sx_code sxc_cmd_egraph(sxc_cli *cli)
{
    sx_core_form form;
    const char *name;
    SX_TRY(choose_form(cli, &form));
    SX_TRY(sxc_program_name(cli, &name));
    if (sxc_given(cli, SXC_OUTPUT)) {
        SX_TRY(sxc_check_output(cli->cx, sxc_value(cli, SXC_OUTPUT)));
    }
    subject s = {.target = target_of(cli)};
    sx_buf out;
    sx_buf_init(&s.snapshot, BYTES_MAX);
    sx_buf_init(&s.program, SX_TEXT_BYTES_MAX);
    sx_buf_init(&s.list, SX_TEXT_BYTES_MAX);
    sx_buf_init(&out, BYTES_MAX);
    bool is_operation = cli->argument_count == 0;
    bool is_file = is_operation || sxc_entry_is_file(name);
    sx_code code =
        !is_file ? read_entry(cli, name, &s)
        : sxc_given(cli, SXC_PART)
            ? SX_FAIL(cli->cx, SX_USAGE, "--part: of an entry of the daemon, not of a file")
        : is_operation ? take_operation(cli, &s)
                       : read_file(cli, name, &s);
    if (code == SX_OK && s.list.len > 0) {
        sx_buf_put_span(&out, sx_buf_span(&s.list));
    } else {
        code = code == SX_OK ? make_snapshot(cli, &s) : code;
        code = code == SX_OK ? print(cli, &s, form, &out) : code;
    }
    if (code == SX_OK && sxc_given(cli, SXC_OUTPUT)) {
        code = sxc_write_file(cli->cx, sxc_value(cli, SXC_OUTPUT), sx_buf_span(&out));
    } else if (code == SX_OK) {
        code = sxc_put(cli, &out);
    }
    sx_buf_fini(&s.snapshot);
    sx_buf_fini(&s.program);
    sx_buf_fini(&s.list);
    sx_buf_fini(&out);
    return code;
}
