/* machine_cuda.c - CUDA as it lies on this machine: no library of it is linked, each is opened by name and
 * asked; no program of it is run. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/machine.h"

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

static void put_devices(sxc_findings *findings, void *library)
{
    int (*device_get)(int *, int) = NULL, (*device_name)(char *, int, int) = NULL;
    int (*init)(unsigned) = NULL, (*device_count)(int *) = NULL;
    FIND(library, "cuInit", init);
    FIND(library, "cuDeviceGetCount", device_count);
    FIND(library, "cuDeviceGet", device_get);
    FIND(library, "cuDeviceGetName", device_name);
    if (init == NULL || device_count == NULL || device_get == NULL || device_name == NULL) {
        sxc_finding_put(findings, "gpu", false, false, "the driver library lacks functions");
        return;
    }
    int status = init(0), count = 0, device = 0;
    char name[128] = "";
    status = status == 0 ? device_count(&count) : status;
    if (status == 0 && count > 0 && device_get(&device, 0) == 0) {
        (void)device_name(name, (int)sizeof(name), device);
    }
    if (status != 0) {
        sxc_finding_put(findings, "gpu", false, false, "the driver answers with error %d", status);
    } else {
        sxc_finding_put(findings, "gpu", count > 0, false, "%d devices%s%s", count,
                        name[0] != '\0' ? ", first " : "", name);
    }
}

static void put_driver(sxc_findings *findings)
{
    static const char *const names[NAMES_MAX] = {"libcuda.so.1"};
    const char *name;
    void *library = open_first(names, &name);
    if (library == NULL) {
        sxc_finding_put(findings, "cuda-driver", false, false, "no libcuda.so.1");
        return;
    }
    int (*get_version)(int *) = NULL, version = 0;
    FIND(library, "cuDriverGetVersion", get_version);
    if (get_version != NULL && get_version(&version) == 0) {
        sxc_finding_put(findings, "cuda-driver", true, false, "%s, CUDA %d.%d", name,
                        version / 1000, version % 1000 / 10);
    } else {
        sxc_finding_put(findings, "cuda-driver", true, false, "%s, version unknown", name);
    }
    put_devices(findings, library);
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

/* ---- ptxas ---- */

static bool find_program(const char *program, char *path, size_t size)
{
    const char *at = getenv("PATH");
    while (at != NULL && *at != '\0') {
        size_t length = strcspn(at, ":");
        if (length > 0 && snprintf(path, size, "%.*s/%s", (int)length, at, program) < (int)size &&
            access(path, X_OK) == 0) {
            return true;
        }
        at += length + (at[length] == ':');
    }
    return false;
}

/* Reads a file of a few kilobytes as text; "" if there is none. */
static void read_small(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd >= 0 ? read(fd, text, size - 1) : 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
}

/* The version of the compiler in a toolkit's version.json: {"cuda_nvcc": {..., "version": "13.0.48"}}. */
static bool version_of(char *text, char version[32])
{
    char *at = strstr(text, "\"cuda_nvcc\"");
    at = at != NULL ? strstr(at, "\"version\"") : NULL;
    at = at != NULL ? strchr(at + sizeof("\"version\"") - 1, '"') : NULL;
    size_t length = at != NULL ? strspn(at + 1, "0123456789.") : 0;
    if (length == 0 || length >= 32 || at[1 + length] != '"') {
        return false;
    }
    (void)snprintf(version, 32, "%.*s", (int)length, at + 1);
    return true;
}

/* Says where it lies; a program is no file to run for a look, so the version is what its toolkit has written down. */
static void put_ptxas(sxc_findings *findings)
{
    char path[PATH_MAX], real[PATH_MAX], file[PATH_MAX + 32], text[65536], version[32];
    if (!find_program("ptxas", path, sizeof(path))) {
        sxc_finding_put(findings, "ptxas", false, false, "not in PATH");
        return;
    }
    (void)snprintf(real, sizeof(real), "%s", path);
    char *resolved = realpath(path, NULL);
    if (resolved != NULL) {
        (void)snprintf(real, sizeof(real), "%s", resolved);
        free(resolved);
    }
    char *slash = strrchr(real, '/');
    SX_ASSERT(slash != NULL); /* find_program puts one in */
    *slash = '\0';
    (void)snprintf(file, sizeof(file), "%s/../version.json", real);
    read_small(file, text, sizeof(text));
    bool known = version_of(text, version);
    sxc_finding_put(findings, "ptxas", true, false, "%.160s, not run; version %s", path,
                    known ? version : "unknown: no version.json above it");
}

void sxc_find_cuda(sxc_findings *findings)
{
    static const char *const linker[NAMES_MAX] = {"libnvJitLink.so.13", "libnvJitLink.so.12",
                                                  "libnvJitLink.so"};
    static const char *const compiler[NAMES_MAX] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                                    "libnvrtc.so.11.2", "libnvrtc.so"};
    put_driver(findings);
    put_pair(findings, "nvjitlink", linker, "nvJitLinkVersion");
    put_pair(findings, "nvrtc", compiler, "nvrtcVersion");
    put_ptxas(findings);
    put_nccl(findings);
}
