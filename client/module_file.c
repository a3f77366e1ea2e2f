#include "client/module_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void sxc_module_file_close(sxc_module_file *file)
{
    if (file->mapping != NULL) {
        (void)munmap(file->mapping, file->size);
    }
    *file = (sxc_module_file){.mapping = NULL};
}

static sx_code map_file(sx_ctx *cx, const char *path, sxc_module_file *file)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return SX_FAIL(cx, SX_INPUT, "%s: %s", path, strerror(errno));
    }
    struct stat status;
    sx_code code = SX_OK;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        code = SX_FAIL(cx, SX_INPUT, "%s: not a regular file", path);
    } else if (status.st_size <= 0) {
        code = SX_FAIL(cx, SX_CORRUPT, "%s: not a module: 0 bytes", path);
    } else {
        void *mapping = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (mapping == MAP_FAILED) {
            code = SX_FAIL(cx, SX_SYSTEM, "%s: mapping %lld bytes: %s", path,
                           (long long)status.st_size, strerror(errno));
        } else {
            file->mapping = mapping;
            file->size = (size_t)status.st_size;
        }
    }
    (void)close(fd);
    return code;
}

sx_code sxc_module_file_open(sx_ctx *cx, const char *path, bool checksums, sxc_module_file *file)
{
    *file = (sxc_module_file){.mapping = NULL};
    SX_TRY(map_file(cx, path, file));
    sx_code code =
        sx_module_decode(cx, (sx_span){file->mapping, file->size}, checksums, &file->module);
    if (code != SX_OK) {
        sxc_module_file_close(file);
        return sx_fail_in(cx, "%s", path);
    }
    return SX_OK;
}

sx_code sxc_module_file_of(sx_ctx *cx, sx_span bytes, sxc_module_file *file)
{
    size_t size = bytes.len > 0 ? bytes.len : 1;
    void *mapping = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *file = (sxc_module_file){.mapping = NULL};
    if (mapping == MAP_FAILED) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for a module of %zu bytes", bytes.len);
    }
    *file = (sxc_module_file){.mapping = mapping, .size = size};
    memcpy(mapping, bytes.ptr, bytes.len);
    sx_code code = sx_module_decode(cx, (sx_span){mapping, bytes.len}, true, &file->module);
    if (code != SX_OK) {
        sxc_module_file_close(file);
    }
    return code;
}

sx_code sxc_module_type(sx_ctx *cx, const sx_module *module, uint64_t index, sx_type *type)
{
    const sx_module_tensor *tensor = &module->tensor[index];
    if (tensor->dtype >= SX_DTYPE_COUNT || tensor->rank > SX_RANK_MAX ||
        sx_dtype_bytes((sx_dtype)tensor->dtype) != tensor->element_bytes) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "tensor %llu: element type %u with %u bytes an element, rank %u; known are "
                       "%d types and ranks up to %d",
                       (unsigned long long)index, tensor->dtype, tensor->element_bytes,
                       tensor->rank, SX_DTYPE_COUNT, SX_RANK_MAX);
    }
    *type = (sx_type){.dtype = (sx_dtype)tensor->dtype, .rank = tensor->rank};
    for (uint32_t d = 0; d < tensor->rank; d++) {
        type->dim[d] = sx_dim_of(tensor->dim[d]);
    }
    return SX_OK;
}

uint64_t sxc_module_part_end(const sx_module *module, uint64_t part)
{
    uint64_t end = module->code_count;
    for (uint64_t i = 0; i < module->part_count; i++) {
        uint64_t entry = module->part[i].entry;
        end = entry > module->part[part].entry && entry < end ? entry : end;
    }
    return end;
}
