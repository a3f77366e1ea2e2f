/* cmd_egraph.c - egraph: all the programs equal to one, for other tools (JSON, DOT) or as a picture. */
#include <string.h>

#include "client/cmd_module.h"
#include "client/entry.h"
#include "client/source.h"

#define BYTES_MAX ((size_t)1 << 30)

/* What is shown: the snapshot of an e-graph, or the program whose e-graph is to be made. */
typedef struct {
    sx_buf snapshot;
    sx_buf program;
    sx_span target;
} subject;

static sx_span target_of(sxc_cli *cli)
{
    const char *given = sxc_value(cli, SXC_TARGET);
    return sxc_target(sx_span_of(given != NULL ? given : "native"));
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

static sx_code read_entry(sxc_cli *cli, const char *key, subject *s)
{
    sxc_connection *connection;
    sx_get_args args;
    const void *reply;
    memset(&args, 0, sizeof(args));
    SX_TRY(sxc_reach(cli, &connection));
    sx_code code = sxc_read_key(cli, connection, key, &args.key);
    code = code == SX_OK
               ? sxc_call(cli->cx, connection, SX_METHOD_GET, &args, SXC_ANSWER_MS, &reply)
               : code;
    if (code == SX_OK) {
        code = take_bytes(cli, ((const sx_get_result *)reply)->module, s);
    }
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

/* The snapshot aligned as its reader wants it. */
static sx_code print(sxc_cli *cli, const subject *s, sx_core_form form, sx_buf *out)
{
    sx_span bytes = sx_buf_span(&s->snapshot);
    uint8_t *copy = sx_alloc(cli->cx, bytes.len + 64);
    if (copy == NULL) {
        return cli->cx->error.code;
    }
    copy += (64 - (uintptr_t)copy % 64) % 64;
    memcpy(copy, bytes.ptr, bytes.len);
    return sx_core_egraph_print(cli->cx, (sx_span){copy, bytes.len}, s->target, form, out);
}

sx_code sxc_cmd_egraph(sxc_cli *cli)
{
    sx_core_form form;
    SX_TRY(choose_form(cli, &form));
    subject s = {.target = target_of(cli)};
    sx_buf out;
    sx_buf_init(&s.snapshot, BYTES_MAX);
    sx_buf_init(&s.program, SX_TEXT_BYTES_MAX);
    sx_buf_init(&out, BYTES_MAX);
    const char *name = cli->argument[0];
    sx_code code = sxc_entry_is_file(name) ? read_file(cli, name, &s) : read_entry(cli, name, &s);
    code = code == SX_OK ? make_snapshot(cli, &s) : code;
    code = code == SX_OK ? print(cli, &s, form, &out) : code;
    if (code == SX_OK && sxc_given(cli, SXC_OUTPUT)) {
        code = sxc_write_file(cli->cx, sxc_value(cli, SXC_OUTPUT), sx_buf_span(&out));
    } else if (code == SX_OK) {
        code = sxc_put(cli, &out);
    }
    sx_buf_fini(&s.snapshot);
    sx_buf_fini(&s.program);
    sx_buf_fini(&out);
    return code;
}
