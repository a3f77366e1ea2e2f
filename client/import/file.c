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
    int fd;             /* open for it */
    struct stat status; /* when it was mapped */
} mapping;
struct sx_onnx_file {
    char *folder; /* of the model, with '/' at its end, or empty */
    mapping file[FILES_MAX];
    uint32_t count;
};

/* Maps what `fd` is open for, which stays so, unless this fails; -1 is what errno says. */
static sx_code map_open(sx_ctx *cx, const char *path, int fd, mapping *made)
{
    *made = (mapping){.fd = fd};
    if (fd < 0) {
        return SX_FAIL(cx, errno == ENOENT ? SX_ABSENT : SX_SYSTEM, "%s: %s", path,
                       strerror(errno));
    }
    sx_code code = SX_OK;
    if (fstat(fd, &made->status) != 0 || !S_ISREG(made->status.st_mode) ||
        made->status.st_size < 0) {
        code = SX_FAIL(cx, SX_INPUT, "%s: not a regular file", path);
    } else if (made->status.st_size > 0) {
        size_t size = (size_t)made->status.st_size;
        void *memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (memory == MAP_FAILED) {
            code = SX_FAIL(cx, SX_SYSTEM, "%s: mmap of %zu bytes: %s", path, size, strerror(errno));
        } else {
            made->bytes = (sx_span){memory, size};
        }
    }
    if (code != SX_OK) {
        (void)close(fd);
    }
    return code;
}

static void unmap(mapping *made)
{
    if (made->bytes.len > 0) {
        union {
            const uint8_t *from;
            void *to;
        } pointer = {.from = made->bytes.ptr};
        (void)munmap(pointer.to, made->bytes.len);
    }
    (void)close(made->fd);
    free(made->location);
}

void sx_onnx_file_close(sx_onnx_file *file)
{
    if (file == NULL) {
        return;
    }
    for (uint32_t k = 0; k < file->count; k++) {
        unmap(&file->file[k]);
    }
    free(file->folder);
    free(file);
}

sx_onnx_file *sx_onnx_file_open(sx_ctx *cx, const char *path)
{
    mapping model;
    if (map_open(cx, path, open(path, OPEN_FLAGS), &model) != SX_OK) {
        return NULL;
    }
    sx_onnx_file *file = calloc(1, sizeof(*file));
    const char *slash = strrchr(path, '/');
    char *folder = strndup(path, slash == NULL ? 0 : (size_t)(slash + 1 - path));
    if (file == NULL || folder == NULL) {
        (void)SX_FAIL(cx, SX_NOMEM, "%s: out of memory", path);
        free(folder);
        free(file);
        unmap(&model);
        return NULL;
    }
    file->folder = folder;
    file->file[file->count++] = model;
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
        (void)SX_FAIL(cx, SX_INPUT, "external file '%s': %s: %s", location, name, strerror(error));
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
    mapping made;
    sx_code code = fd < 0 ? cx->error.code : map_open(cx, name, fd, &made);
    if (code != SX_OK) {
        free(name);
        return code;
    }
    made.location = name;
    file->file[file->count++] = made;
    *bytes = made.bytes;
    return SX_OK;
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

bool sx_onnx_file_has(const sx_onnx_file *file, sx_span bytes)
{
    bool has = false;
    SX_ASSERT(file != NULL);
    for (uint32_t k = 0; k < file->count; k++) {
        sx_span all = file->file[k].bytes;
        has = has || (all.len > 0 && bytes.ptr >= all.ptr && bytes.ptr < all.ptr + all.len);
    }
    return has;
}

sx_code sx_onnx_file_check(sx_ctx *cx, const sx_onnx_file *file)
{
    struct stat now;
    SX_ASSERT(file != NULL && file->count > 0);
    for (uint32_t k = 0; k < file->count; k++) {
        const mapping *of = &file->file[k];
        if (fstat(of->fd, &now) != 0 || now.st_size != of->status.st_size ||
            now.st_mtim.tv_sec != of->status.st_mtim.tv_sec ||
            now.st_mtim.tv_nsec != of->status.st_mtim.tv_nsec) {
            return SX_FAIL(cx, SX_INPUT, "%s: it was changed since it was read",
                           of->location != NULL ? of->location : "the file of the model");
        }
    }
    return SX_OK;
}
