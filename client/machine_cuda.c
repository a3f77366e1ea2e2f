/* machine_cuda.c - CUDA libraries as they lie on this machine: none of them is linked, each is opened by name and asked. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/machine.h"

#define PTXAS_MS 3000
#define NAMES_MAX 4

extern char **environ;

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

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What the process writes, up to the deadline or the end of `text`. */
static void read_output(int fd, char *text, size_t size)
{
    int64_t deadline = now_ms() + PTXAS_MS;
    size_t used = 0;
    while (used + 1 < size && now_ms() < deadline) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, (int)(deadline - now_ms())) <= 0) {
            continue;
        }
        ssize_t n = read(fd, text + used, size - 1 - used);
        if (n <= 0 && errno != EINTR) {
            break;
        }
        used += n > 0 ? (size_t)n : 0;
    }
    text[used] = '\0';
}

/* Runs `path --version`; false when it cannot be started. */
static bool ask_version(char *path, char *text, size_t size)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return false;
    }
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    char option[] = "--version";
    char *arguments[] = {path, option, NULL};
    pid_t child;
    bool started = posix_spawn(&child, path, &actions, NULL, arguments, environ) == 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(pipes[1]);
    if (started) {
        read_output(pipes[0], text, size);
        (void)kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    (void)close(pipes[0]);
    return started;
}

static void put_ptxas(sxc_findings *findings)
{
    char path[4096], text[4096] = "";
    if (!find_program("ptxas", path, sizeof(path))) {
        sxc_finding_put(findings, "ptxas", false, false, "not in PATH");
        return;
    }
    bool started = ask_version(path, text, sizeof(text));
    const char *release = started ? strstr(text, "release ") : NULL;
    sxc_finding_put(findings, "ptxas", started, false, "%.160s, %.*s", path,
                    release != NULL ? (int)strcspn(release, ",\n") : 15,
                    release != NULL ? release : "version unknown");
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
