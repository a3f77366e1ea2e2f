#include "client/cli/entry.h"

#include <string.h>
#include <unistd.h>

bool sxc_entry_is_file(const char *name)
{
    return strpbrk(name, "./") != NULL || access(name, F_OK) == 0;
}

static sx_code take(sxc_cli *cli, const char *key, sx_span bytes, sxc_module_file *file)
{
    if (bytes.len >= 8 && memcmp(bytes.ptr, SX_MODULE_MAGIC, 8) == 0) {
        return sxc_module_file_of(cli->cx, bytes, file);
    }
    sx_hint(cli->cx, "Its programs are shown by: symplex-client egraph %.64s", key);
    return SX_FAIL(cli->cx, SX_INPUT, "entry %.64s: an e-graph, no module", key);
}

sx_code sxc_entry_open(sxc_cli *cli, const char *key, sxc_module_file *file)
{
    sxc_connection *connection;
    sx_get_args args;
    const void *reply;
    memset(&args, 0, sizeof(args));
    memset(file, 0, sizeof(*file));
    SX_TRY(sxc_reach(cli, &connection));
    sx_code code = sxc_read_key(cli, connection, key, &args.key);
    code = code == SX_OK
               ? sxc_call(cli->cx, connection, SX_METHOD_GET, &args, SXC_ANSWER_MS, &reply)
               : code;
    code = code == SX_OK ? take(cli, key, ((const sx_get_result *)reply)->module, file) : code;
    sxc_disconnect(connection);
    return code;
}
