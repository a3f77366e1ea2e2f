#include "client/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

sx_code sxc_open_input(sx_ctx *cx, const char *path, FILE **file)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) != 0) {
        sx_code code = SX_FAIL(cx, SX_INPUT, "%s: %s", path, strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return code;
    }
    *file = S_ISREG(status.st_mode) ? fdopen(fd, "rb") : NULL;
    if (*file == NULL) {
        (void)close(fd);
        return SX_FAIL(cx, SX_INPUT, "%s: %s", path,
                       S_ISDIR(status.st_mode)    ? "is a folder"
                       : S_ISFIFO(status.st_mode) ? "is a FIFO, not a regular file"
                                                  : "is not a regular file");
    }
    return SX_OK;
}

sx_code sxc_write_stream(sx_ctx *cx, const char *path, FILE *file, sx_span bytes)
{
    bool written = bytes.len == 0 || fwrite(bytes.ptr, 1, bytes.len, file) == bytes.len;
    if (!written || fflush(file) != 0) {
        return SX_FAIL(cx, SX_INPUT, "%s: writing %zu bytes: %s", path, bytes.len, strerror(errno));
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
        return SX_FAIL(cx, SX_INPUT, "%s: %s", path, strerror(errno));
    }
    sx_code code = sxc_write_stream(cx, path, file, bytes);
    if (fclose(file) != 0 && code == SX_OK) {
        code = SX_FAIL(cx, SX_INPUT, "%s: %s", path, strerror(errno));
    }
    return code;
}

/* Where the bytes go before they have the name `path`: "<file>.PID.part", beside what a symbolic link names. */
static sx_code temporary_of(sx_ctx *cx, const char *path, char real[PATH_MAX],
                            char temporary[PATH_MAX])
{
    if (realpath(path, real) == NULL && snprintf(real, PATH_MAX, "%s", path) >= PATH_MAX) {
        return SX_FAIL(cx, SX_USAGE, "path of %zu bytes, at most %d", strlen(path), PATH_MAX - 1);
    }
    if (snprintf(temporary, PATH_MAX, "%s.%ld.part", real, (long)getpid()) >= PATH_MAX) {
        return SX_FAIL(cx, SX_USAGE, "path of %zu bytes, at most %d", strlen(path), PATH_MAX - 20);
    }
    return SX_OK;
}

sx_code sxc_check_output(sx_ctx *cx, const char *path)
{
    char real[PATH_MAX], temporary[PATH_MAX];
    struct stat status;
    if (strcmp(path, "-") == 0) {
        return SX_OK;
    }
    if (is_special(path)) {
        return access(path, W_OK) == 0 ? SX_OK
                                       : SX_FAIL(cx, SX_INPUT, "%s: %s", path, strerror(errno));
    }
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        return SX_FAIL(cx, SX_INPUT, "%s: is a folder, the name of a file is wanted", path);
    }
    SX_TRY(temporary_of(cx, path, real, temporary));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return SX_FAIL(cx, SX_INPUT, "%s: cannot be written: %s", path, strerror(errno));
    }
    (void)close(fd);
    (void)unlink(temporary);
    return SX_OK;
}

sx_code sxc_write_file(sx_ctx *cx, const char *path, sx_span bytes)
{
    char real[PATH_MAX], temporary[PATH_MAX];
    if (strcmp(path, "-") == 0) {
        return sxc_write_stream(cx, "standard output", stdout, bytes);
    }
    if (is_special(path)) {
        return write_to(cx, path, path, bytes);
    }
    SX_TRY(temporary_of(cx, path, real, temporary));
    sx_code code = write_to(cx, path, temporary, bytes);
    if (code == SX_OK && rename(temporary, real) != 0) {
        code = SX_FAIL(cx, SX_INPUT, "%s: %s", path, strerror(errno));
    }
    if (code != SX_OK) {
        (void)unlink(temporary);
    }
    return code;
}
