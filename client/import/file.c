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
/* Without waiting: a FIFO opens at once and is then refused. */
#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

typedef struct {
    char *location; /* relative path as the model writes it; NULL for the model */
    sx_span bytes;
} mapping;
struct sx_onnx_file {
    char *folder; /* of the model, with '/' at its end, or empty */
    mapping file[FILES_MAX];
    uint32_t count;
};

/* Maps what `fd` is open for, and closes it; -1 is what errno says. */
static sx_code map_open(sx_ctx *cx, const char *path, int fd, sx_span *bytes)
{
    *bytes = (sx_span){NULL, 0};
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
    if (map_open(cx, path, open(path, OPEN_FLAGS), &bytes) != SX_OK) {
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

/* One step down from the folder `from`, which is closed: `last` is the file, the others are folders. A
 * symbolic link is refused whatever it names, for it may lead out of the model's folder. The descriptor, or -1
 * with cx->error set. */
static int step_down(sx_ctx *cx, const char *location, int from, const char *name, bool last)
{
    int flags = last ? OPEN_FLAGS | O_NOFOLLOW : O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
    struct stat status;
    int fd = openat(from, name, flags);
    int error = errno;
    if (fd < 0 && fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(status.st_mode)) {
        sx_hint(cx, "Data of a model lies in its folder or below; copy the file there.");
        (void)SX_FAIL(cx, SX_INPUT, "external file '%s': %s is a symbolic link", location, name);
    } else if (fd < 0) {
        (void)SX_FAIL(cx, error == ENOENT ? SX_ABSENT : SX_INPUT, "external file '%s': %s: %s",
                      location, name, strerror(error));
    }
    (void)close(from);
    return fd;
}

/* Opens the file below `folder` without leaving it: `location`, which is cut up, is relative and has no "..".
 * -1 as above. */
static int open_below(sx_ctx *cx, const char *folder, const char *location)
{
    char *rest = strdup(location);
    int fd = open(folder[0] == '\0' ? "." : folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (rest == NULL || fd < 0) {
        (void)SX_FAIL(cx, SX_SYSTEM, "external file '%s': folder %s: %s", location, folder,
                      strerror(errno));
    }
    for (char *name = rest; fd >= 0 && name != NULL;) {
        char *slash = strchr(name, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
        bool last = slash == NULL;
        fd = step_down(cx, location, fd, name[0] == '\0' ? "." : name, last);
        name = last ? NULL : slash + 1;
    }
    free(rest);
    return fd;
}

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
    char *name = strndup((const char *)location.ptr, location.len);
    if (name == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "external data: out of memory");
    }
    int fd = open_below(cx, file->folder, name);
    sx_code code = fd < 0 ? cx->error.code : map_open(cx, name, fd, bytes);
    if (code == SX_OK) {
        file->file[file->count++] = (mapping){name, *bytes};
        name = NULL;
    }
    free(name);
    return code;
}

sx_code sx_onnx_file_import(sx_ctx *cx, sx_onnx_file *file, const sx_onnx_options *options,
                            sx_graph **graph, sx_weights **weights)
{
    SX_ASSERT(file != NULL); /* it could not be opened */
    sx_onnx_options with = {0};
    if (options != NULL) {
        with = *options;
    }
    with.external = find_external;
    with.external_self = file;
    return sx_onnx_import(cx, file->file[0].bytes, &with, graph, weights);
}
