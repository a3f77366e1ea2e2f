/* file.h - writing files whole or not at all. */
#ifndef SX_CLIENT_FILE_H
#define SX_CLIENT_FILE_H
#include <stdio.h>

#include "core/base/base.h"

/* Everything, flushed. SX_SYSTEM names `path`. */
sx_code sxc_write_stream(sx_ctx *cx, const char *path, FILE *file, sx_span bytes);
/* Writes a whole file, or "-" for stdout: a temporary name, then rename, so that no half file is left. What a symbolic link names is
 * replaced, not the link; a device or pipe is written to and never replaced. SX_SYSTEM, SX_USAGE. */
sx_code sxc_write_file(sx_ctx *cx, const char *path, sx_span bytes);
#endif
