/* machine_cuda.c - CUDA as it lies on this machine: no library of it is linked, each is opened by name and
 * asked; no program of it is run. */
#include <dlfcn.h>
#include <string.h>

#include "client/assemble/toolkit.h"
#include "client/cli/machine.h"
#include "client/cuda/cuda.h"

#define NAMES_MAX 4

/* Opens the first of the names that is there. It stays loaded: libraries of this kind do not unload cleanly. */
static void *open_first(const char *const names[NAMES_MAX], const char **name)
{
    for (uint32_t i = 0; i < NAMES_MAX && names[i] != NULL; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library != NULL) {
            *name = names[i];
            return library;
        }
    }
    return NULL;
}

/* The address as a function pointer: object to function pointer, as POSIX allows. */
#define FIND(library, name, pointer)                    \
    do {                                                \
        void *address_ = dlsym((library), (name));      \
        memcpy(&(pointer), &address_, sizeof(pointer)); \
    } while (0)

/* ---- the driver ---- */

/* What `run` would take, and nothing that it would not: a library that others could exchange is not opened. */
static void put_driver(sx_ctx *cx, sxc_findings *findings)
{
    sxg_library library;
    sxg_info gpu;
    if (sxg_library_find(cx, &library) != SX_OK) {
        sxc_finding_put(findings, "cuda-driver", false, false, "%.300s", cx->error.text);
        sx_ctx_reset_error(cx);
        return;
    }
    sxc_finding_put(findings, "cuda-driver", true, false, "%.200s, CUDA %u.%u", library.name,
                    library.version / 1000, library.version % 1000 / 10);
    if (sxg_find(cx, 1, &gpu) != SX_OK) {
        sxc_finding_put(findings, "gpu", false, false, "%.300s", cx->error.text);
        sx_ctx_reset_error(cx);
        return;
    }
    sxc_finding_put(findings, "gpu", true, false, "%d devices, first %.120s (sm_%u)", gpu.count,
                    gpu.name, gpu.capability);
}

/* ---- the libraries beside it ---- */

static void put_pair(sxc_findings *findings, const char *what, const char *const names[NAMES_MAX],
                     const char *function)
{
    const char *name;
    void *library = open_first(names, &name);
    if (library == NULL) {
        sxc_finding_put(findings, what, false, false, "no %s", names[0]);
        return;
    }
    int (*get_version)(int *, int *) = NULL, major = 0, minor = 0;
    FIND(library, function, get_version);
    if (get_version != NULL && get_version(&major, &minor) == 0) {
        sxc_finding_put(findings, what, true, false, "%s, %d.%d", name, major, minor);
    } else {
        sxc_finding_put(findings, what, true, false, "%s, version unknown", name);
    }
}

static void put_nccl(sxc_findings *findings)
{
    static const char *const names[NAMES_MAX] = {"libnccl.so.2"};
    const char *name;
    void *library = open_first(names, &name);
    if (library == NULL) {
        sxc_finding_put(findings, "nccl", false, false, "no libnccl.so.2");
        return;
    }
    int (*get_version)(int *) = NULL, version = 0;
    FIND(library, "ncclGetVersion", get_version);
    if (get_version != NULL && get_version(&version) == 0) {
        int unit = version >= 10000 ? 10000 : 1000; /* 2.9 and later: major * 10000 */
        sxc_finding_put(findings, "nccl", true, false, "%s, %d.%d.%d", name, version / unit,
                        version % unit / 100, version % 100);
    } else {
        sxc_finding_put(findings, "nccl", true, false, "%s, version unknown", name);
    }
}

/* ---- assemblers ---- */

/* Those that `ptx assemble` would take; a program is no file to run for a look, so its version is what is written in
 * it. */
static void put_assembler(sx_ctx *cx, sxc_findings *findings, sxa_tool tool)
{
    sxa_found found;
    const char *name = sxa_tool_name(tool);
    bool program = tool == SXA_PTXAS;
    sxa_find(cx, tool, NULL, &found);
    if (found.found) {
        sxc_finding_put(findings, name, true, false, "%.160s, %s%.32s", found.path,
                        program ? "not run; version " : "",
                        found.version[0] != '\0' ? found.version
                        : program                ? "unknown"
                                                 : "version unknown");
    } else {
        sxc_finding_put(findings, name, false, false, "%s; CUDA_HOME names a toolkit%s%.160s",
                        program ? "PATH is not looked at" : "no libnvJitLink.so.13",
                        found.refused[0] != '\0' ? "; refused: " : "", found.refused);
    }
}

void sxc_find_cuda(sx_ctx *cx, sxc_findings *findings)
{
    static const char *const compiler[NAMES_MAX] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                                    "libnvrtc.so.11.2", "libnvrtc.so"};
    put_driver(cx, findings);
    put_assembler(cx, findings, SXA_NVJITLINK);
    put_pair(findings, "nvrtc", compiler, "nvrtcVersion");
    put_assembler(cx, findings, SXA_PTXAS);
    put_nccl(findings);
}
