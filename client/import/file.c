#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/import/import.h"

#define FILES_MAX 64 /* the model and the files of its external data */

typedef struct {
    char *location; /* relative path as the model writes it; NULL for the model */
    sx_span bytes;
} mapping;
struct sx_onnx_file {
    char *folder; /* of the model, with '/' at its end, or empty */
    mapping file[FILES_MAX];
    uint32_t count;
};

static sx_code map_file(sx_ctx *cx, const char *path, sx_span *bytes)
{
    *bytes = (sx_span){NULL, 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return SX_FAIL(cx, errno == ENOENT ? SX_ABSENT : SX_SYSTEM, "%s: %s", path,
                       strerror(errno));
    }
    struct stat status;
    sx_code code = SX_OK;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < 0) {
        code = SX_FAIL(cx, SX_INPUT, "%s: not a regular file", path);
    } else if (status.st_size > 0) {
        size_t size = (size_t)status.st_size;
        void *memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (memory == MAP_FAILED) {
            code = SX_FAIL(cx, SX_SYSTEM, "%s: mmap of %zu bytes: %s", path, size, strerror(errno));
        } else {
            *bytes = (sx_span){memory, size};
        }
    }
    (void)close(fd);
    return code;
}

static void unmap(sx_span bytes)
{
    if (bytes.len > 0) {
        union {
            const uint8_t *from;
            void *to;
        } pointer = {.from = bytes.ptr};
        (void)munmap(pointer.to, bytes.len);
    }
}

void sx_onnx_file_close(sx_onnx_file *file)
{
    if (file == NULL) {
        return;
    }
    for (uint32_t k = 0; k < file->count; k++) {
        unmap(file->file[k].bytes);
        free(file->file[k].location);
    }
    free(file->folder);
    free(file);
}

sx_onnx_file *sx_onnx_file_open(sx_ctx *cx, const char *path)
{
    sx_span bytes;
    if (map_file(cx, path, &bytes) != SX_OK) {
        return NULL;
    }
    sx_onnx_file *file = calloc(1, sizeof(*file));
    const char *slash = strrchr(path, '/');
    char *folder = strndup(path, slash == NULL ? 0 : (size_t)(slash + 1 - path));
    if (file == NULL || folder == NULL) {
        (void)SX_FAIL(cx, SX_NOMEM, "%s: out of memory", path);
        free(folder);
        free(file);
        unmap(bytes);
        return NULL;
    }
    file->folder = folder;
    file->file[file->count++] = (mapping){.bytes = bytes};
    return file;
}

/* `location` was checked by the importer: relative, without "..". */
static sx_code find_external(void *self, sx_ctx *cx, sx_span location, sx_span *bytes)
{
    sx_onnx_file *file = self;
    for (uint32_t k = 1; k < file->count; k++) {
        if (sx_span_is(location, file->file[k].location)) {
            *bytes = file->file[k].bytes;
            return SX_OK;
        }
    }
    if (file->count == FILES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "more than %d files of external data", FILES_MAX - 1);
    }
    size_t room = strlen(file->folder) + location.len + 1;
    char *path = malloc(room);
    char *name = strndup((const char *)location.ptr, location.len);
    sx_code code = SX_NOMEM;
    if (path == NULL || name == NULL) {
        code = SX_FAIL(cx, SX_NOMEM, "external data: out of memory");
    } else {
        (void)snprintf(path, room, "%s%s", file->folder, name);
        code = map_file(cx, path, bytes);
    }
    if (code == SX_OK) {
        file->file[file->count++] = (mapping){name, *bytes};
        name = NULL;
    }
    free(name);
    free(path);
    return code;
}

sx_code sx_onnx_file_import(sx_ctx *cx, sx_onnx_file *file, const sx_onnx_options *options,
                            sx_graph **graph, sx_weights **weights)
{
    sx_onnx_options with = {0};
    if (options != NULL) {
        with = *options;
    }
    with.external = find_external;
    with.external_self = file;
    return sx_onnx_import(cx, file->file[0].bytes, &with, graph, weights);
}
