/* measured.h - the file of what was measured here: tune writes it, compile reads it. */
#ifndef SX_CLIENT_CLI_MEASURED_H
#define SX_CLIENT_CLI_MEASURED_H
#include "client/cli/cli.h"
#include "client/tune/tune.h"

#define SXC_MEASURED_PATH_MAX 4200
/* --times FILE, else `measured` in the state folder.  errors  SX_USAGE there is neither */
sx_code sxc_measured_path(const sxc_cli *cli, char path[SXC_MEASURED_PATH_MAX]);
/* Its text in cx's arena. Without --times a file that is not there, or cannot be read, is empty.
 *   errors   SX_INPUT a line that is no row */
sx_code sxc_measured_read(const sxc_cli *cli, sx_span *text);
/* Adds rows to the file, or replaces those that they are newer than; it is made if it is missing. */
sx_code sxc_measured_add(sx_ctx *cx, const char *path, const sx_measured *rows);
#endif
