#include "client/file.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

sx_code sxc_write_stream(sx_ctx *cx, const char *path, FILE *file, sx_span bytes)
{
    bool written = bytes.len == 0 || fwrite(bytes.ptr, 1, bytes.len, file) == bytes.len;
    if (!written || fflush(file) != 0) {
        return SX_FAIL(cx, SX_SYSTEM, "%s: writing %zu bytes: %s", path, bytes.len,
                       strerror(errno));
    }
    return SX_OK;
}

/* A device, pipe or socket: written to, never replaced. */
static bool is_special(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

static sx_code write_to(sx_ctx *cx, const char *path, const char *name, sx_span bytes)
{
    FILE *file = fopen(name, "wb");
    if (file == NULL) {
        return SX_FAIL(cx, SX_SYSTEM, "%s: %s", path, strerror(errno));
    }
    sx_code code = sxc_write_stream(cx, path, file, bytes);
    if (fclose(file) != 0 && code == SX_OK) {
        code = SX_FAIL(cx, SX_SYSTEM, "%s: %s", path, strerror(errno));
    }
    return code;
}

sx_code sxc_write_file(sx_ctx *cx, const char *path, sx_span bytes)
{
    if (strcmp(path, "-") == 0) {
        return sxc_write_stream(cx, "standard output", stdout, bytes);
    }
    if (is_special(path)) {
        return write_to(cx, path, path, bytes);
    }
    char target[PATH_MAX]; /* of a symbolic link: the link stays */
    const char *real = realpath(path, target) != NULL ? target : path;
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof(temporary), "%s.%ld.part", real, (long)getpid()) >=
        (int)sizeof(temporary)) {
        return SX_FAIL(cx, SX_USAGE, "path of %zu bytes, at most %zu", strlen(path),
                       sizeof(temporary) - 20);
    }
    sx_code code = write_to(cx, path, temporary, bytes);
    if (code == SX_OK && rename(temporary, real) != 0) {
        code = SX_FAIL(cx, SX_SYSTEM, "%s: %s", path, strerror(errno));
    }
    if (code != SX_OK) {
        (void)unlink(temporary);
    }
    return code;
}
