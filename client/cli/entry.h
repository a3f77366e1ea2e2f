/* entry.h - a module by its file, or by its key in the cache of the daemon. */
#ifndef SX_CLIENT_CLI_ENTRY_H
#define SX_CLIENT_CLI_ENTRY_H
#include "client/cli/cli.h"
#include "client/module_file.h"

/* Is `name` a file? It has a dot or a slash, or there is one of that name; else it is a key, or how one begins. */
bool sxc_entry_is_file(const char *name);
/* The module of an entry: of compile, or of optimize. *file is closed by the caller.
 *   errors   SX_NODAEMON; SX_USAGE no key; SX_ABSENT no such entry; SX_INPUT several begin so, or an e-graph;
 *            SX_CORRUPT */
sx_code sxc_entry_open(sxc_cli *cli, const char *key, sxc_module_file *file);
#endif
