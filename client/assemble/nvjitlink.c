/* nvjitlink.c - the assembler as a library: loaded when it is needed, its functions found by name. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "client/assemble/tools.h"

#if SX_SANITIZED
/* nvJitLink 13.0 leaks 10 KB for each text for sm_100 and above; what LeakSanitizer finds of ours still fails. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libnvJitLink";
}
#endif

/* The functions that are used, with their names: each version of the library has those of the versions before it,
 * as "__nvJitLinkCreate_12_4". Results are 0 or a number of nvJitLinkResult. */
#define INPUT_PTX 2
typedef struct {
    int (*create)(void **handle, uint32_t option_count, const char **options);
    int (*add)(void *handle, int kind, const void *bytes, size_t size, const char *name);
    int (*complete)(void *handle);
    int (*cubin_size)(void *handle, size_t *size);
    int (*cubin)(void *handle, void *bytes);
    int (*error_size)(void *handle, size_t *size);
    int (*error)(void *handle, char *text);
    int (*info_size)(void *handle, size_t *size);
    int (*info)(void *handle, char *text);
    int (*destroy)(void **handle);
} library;
static const struct {
    const char *name;
    size_t offset;
} function[] = {
    {"Create", offsetof(library, create)},
    {"AddData", offsetof(library, add)},
    {"Complete", offsetof(library, complete)},
    {"GetLinkedCubinSize", offsetof(library, cubin_size)},
    {"GetLinkedCubin", offsetof(library, cubin)},
    {"GetErrorLogSize", offsetof(library, error_size)},
    {"GetErrorLog", offsetof(library, error)},
    {"GetInfoLogSize", offsetof(library, info_size)},
    {"GetInfoLog", offsetof(library, info)},
    {"Destroy", offsetof(library, destroy)},
};
_Static_assert(sizeof(library) == SX_COUNT(function) * sizeof(void *), "each function has a name");

/* All functions of one version of the interface. */
static bool resolve_version(void *handle, uint32_t major, uint32_t minor, library *l)
{
    char name[64];
    for (uint32_t i = 0; i < SX_COUNT(function); i++) {
        (void)snprintf(name, sizeof(name), "__nvJitLink%s_%u_%u", function[i].name, major, minor);
        void *address = dlsym(handle, name);
        if (address == NULL) {
            return false;
        }
        memcpy((char *)l + function[i].offset, &address, sizeof(address)); /* as POSIX allows */
    }
    return true;
}

static bool resolve(void *handle, library *l)
{
    for (uint32_t major = 13; major >= 12; major--) {
        for (uint32_t minor = 10; minor-- > 0;) {
            if (resolve_version(handle, major, minor, l)) {
                return true;
            }
        }
    }
    return false;
}

/* Both logs, one after the other: errors, then what it says of the code. */
static sx_code read_logs(sx_ctx *cx, const library *l, void *handle, sx_span *log)
{
    size_t error = 0, info = 0;
    if (l->error_size(handle, &error) != 0 || l->info_size(handle, &info) != 0 ||
        error > SXA_LOG_BYTES_MAX || info > SXA_LOG_BYTES_MAX) {
        return SX_FAIL(cx, SX_SYSTEM, "nvJitLink: logs of %zu and %zu bytes", error, info);
    }
    char *text = sx_alloc(cx, error + info + 3);
    if (text == NULL) {
        return cx->error.code;
    }
    size_t length = error > 0 && l->error(handle, text) == 0 ? strlen(text) : 0;
    text[length++] = '\n';
    text[length] = '\0';
    length += info > 0 && l->info(handle, text + length) == 0 ? strlen(text + length) : 0;
    *log = (sx_span){(const uint8_t *)text, length};
    return SX_OK;
}

static sx_code read_cubin(sx_ctx *cx, const library *l, void *handle, sx_span *cubin)
{
    size_t size = 0;
    if (l->cubin_size(handle, &size) != 0 || size == 0 || size > SX_CUBIN_BYTES_MAX) {
        return SX_FAIL(cx, SX_SYSTEM, "nvJitLink: a cubin of %zu bytes", size);
    }
    void *bytes = sx_alloc(cx, size);
    if (bytes == NULL) {
        return cx->error.code;
    }
    int status = l->cubin(handle, bytes);
    *cubin = (sx_span){bytes, size};
    return status == 0 ? SX_OK : SX_FAIL(cx, SX_SYSTEM, "nvJitLink: error %d", status);
}

static sx_code assemble(sx_ctx *cx, const library *l, void *handle, sx_span ptx, sxa_output *output)
{
    int status = l->add(handle, INPUT_PTX, ptx.ptr, ptx.len, "text.ptx");
    status = status == 0 ? l->complete(handle) : status;
    SX_TRY(read_logs(cx, l, handle, &output->log));
    output->refused = status != 0;
    return status == 0 ? read_cubin(cx, l, handle, &output->cubin) : SX_OK;
}

sx_code sxa_run_nvjitlink(sx_ctx *cx, const char *path, sx_span ptx, const char *target,
                          sxa_output *output)
{
    SX_ASSERT(ptx.len > 0 && target != NULL);
    char arch[48];
    const char *options[] = {arch, "-verbose"};
    library l;
    void *handle = NULL, *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (loaded == NULL) {
        return SX_FAIL(cx, SX_SYSTEM, "nvJitLink: %.300s", dlerror());
    }
    sx_code code = SX_OK;
    (void)snprintf(arch, sizeof(arch), "-arch=%s", target);
    if (!resolve(loaded, &l)) {
        code = SX_FAIL(cx, SX_UNIMPLEMENTED, "%.300s has no interface of version 12 or 13", path);
    } else {
        int status = l.create(&handle, (uint32_t)SX_COUNT(options), options);
        code = status == 0 ? assemble(cx, &l, handle, ptx, output)
                           : SX_FAIL(cx, SX_COMPILE, "nvJitLink does not take target %s (error %d)",
                                     target, status);
        if (handle != NULL) {
            (void)l.destroy(&handle);
        }
    }
    (void)dlclose(loaded);
    return code;
}
