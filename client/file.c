#include "client/file.h"

#include <errno.h>
#include <string.h>
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

sx_code sxc_write_file(sx_ctx *cx, const char *path, sx_span bytes)
{
    if (strcmp(path, "-") == 0) {
        return sxc_write_stream(cx, "standard output", stdout, bytes);
    }
    char temporary[4096];
    if (snprintf(temporary, sizeof(temporary), "%s.%ld.part", path, (long)getpid()) >=
        (int)sizeof(temporary)) {
        return SX_FAIL(cx, SX_USAGE, "path of %zu bytes, at most %zu", strlen(path),
                       sizeof(temporary) - 20);
    }
    FILE *file = fopen(temporary, "wb");
    if (file == NULL) {
        return SX_FAIL(cx, SX_SYSTEM, "%s: %s", path, strerror(errno));
    }
    sx_code code = sxc_write_stream(cx, path, file, bytes);
    if (fclose(file) != 0 && code == SX_OK) {
        code = SX_FAIL(cx, SX_SYSTEM, "%s: %s", path, strerror(errno));
    }
    if (code == SX_OK && rename(temporary, path) != 0) {
        code = SX_FAIL(cx, SX_SYSTEM, "%s: %s", path, strerror(errno));
    }
    if (code != SX_OK) {
        (void)unlink(temporary);
    }
    return code;
}
