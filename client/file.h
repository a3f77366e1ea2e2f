/* file.h - opening files to read; writing them whole or not at all. */
#ifndef SX_CLIENT_FILE_H
#define SX_CLIENT_FILE_H
#include <stdio.h>

#include "core/base/base.h"

/* A regular file to read (fclose). Never waits: a FIFO, a device and a folder are refused.
 *   errors   SX_INPUT no such file, or none of that kind; names `path` */
sx_code sxc_open_input(sx_ctx *cx, const char *path, FILE **file);
/* Everything, flushed. SX_INPUT names `path` and the reason, as for all functions here: a place that cannot be
 * written is the caller's to change. */
sx_code sxc_write_stream(sx_ctx *cx, const char *path, FILE *file, sx_span bytes);
/* Writes a whole file, or "-" for stdout: a temporary name, then rename, so that no half file is left. What a
 * symbolic link names is replaced, not the link; a device or pipe is written to and never replaced. SX_INPUT,
 * SX_USAGE. */
sx_code sxc_write_file(sx_ctx *cx, const char *path, sx_span bytes);
/* Would sxc_write_file begin? Asked before long work, by making the temporary file and removing it again: a
 * missing or closed folder, a read-only file system and a name that is too long are found now. What can fail
 * later is a disk that is full. */
sx_code sxc_check_output(sx_ctx *cx, const char *path);
#endif
