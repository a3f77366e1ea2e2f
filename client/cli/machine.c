#include "client/cli/machine.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/runtime/cpu.h"

void sxc_finding_put(sxc_findings *findings, const char *name, bool found, bool needed,
                     const char *format, ...)
{
    SX_ASSERT(findings->count < SXC_FINDINGS_MAX);
    sxc_finding *row = &findings->row[findings->count++];
    *row = (sxc_finding){.name = name, .found = found, .needed = needed};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(row->detail, sizeof(row->detail), format, arguments);
    va_end(arguments);
}

/* What follows "key" and a colon in the first line of a /proc file that begins with it; false: no such line. */
static bool proc_value(const char *path, const char *key, char *value, size_t size)
{
    FILE *file = fopen(path, "re");
    char line[512];
    bool found = false;
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon != NULL && strncmp(line, key, strlen(key)) == 0) {
            colon += 1 + strspn(colon + 1, " \t");
            (void)snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
            found = true;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

/* ---- processor ---- */

uint32_t sxc_cores(void)
{
    cpu_set_t set;
    int usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
    return usable > 0 ? (uint32_t)usable : 0;
}

void sxc_find_processor(sxc_findings *findings)
{
    char model[200] = "unknown";
    bool known = proc_value("/proc/cpuinfo", "model name", model, sizeof(model));
    sxc_finding_put(findings, "processor", known, false, "%s", model);
    const sx_machine *target = sxr_cpu_machine();
    const char *limit = getenv("SYMPLEX_ISA_MAX");
    sxc_finding_put(findings, "isa", target != NULL, true, "%s%s%s%s%s",
                    target != NULL ? target->name : "no target: modules do not run here",
                    target != NULL ? ": " : "", target != NULL ? target->text : "",
                    limit != NULL ? "; at most SYMPLEX_ISA_MAX=" : "", limit != NULL ? limit : "");
    sxc_finding_put(findings, "cores", sxc_cores() > 0, false, "%u usable of %ld", sxc_cores(),
                    sysconf(_SC_NPROCESSORS_ONLN));
}

/* ---- memory ---- */

static int run_answer(void *address)
{
    int (*function)(void);
    memcpy(&function, &address, sizeof(function)); /* object to function pointer, as POSIX allows */
    return function();
}

/* The way the module loader takes: a memory file, written, sealed, mapped to execute. The step that failed, or NULL. */
static const char *try_execute(void)
{
    const char *failed = NULL;
    sx_span code = sxr_cpu_answer();
    if (code.len == 0) {
        return "no code for this processor";
    }
    int fd = memfd_create("symplex-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return "memfd_create";
    }
    void *mapping = MAP_FAILED;
    if (write(fd, code.ptr, code.len) != (ssize_t)code.len) {
        failed = "write";
    } else if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        failed = "seal";
    } else {
        mapping = mmap(NULL, code.len, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
        failed = mapping == MAP_FAILED ? "mmap" : NULL;
    }
    if (mapping != MAP_FAILED) {
        errno = 0;
        failed = run_answer(mapping) == 42 ? NULL : "call";
        (void)munmap(mapping, code.len);
    }
    (void)close(fd);
    return failed;
}

void sxc_find_memory(sxc_findings *findings)
{
    char total[64] = "?", available[64] = "?";
    bool known = proc_value("/proc/meminfo", "MemTotal", total, sizeof(total));
    known = proc_value("/proc/meminfo", "MemAvailable", available, sizeof(available)) && known;
    sxc_finding_put(findings, "memory", known, false, "%s, %s available", total, available);
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        sxc_finding_put(findings, "memory-limit", true, false, "%llu bytes of address space",
                        (unsigned long long)limit.rlim_cur);
    }
    const char *failed = try_execute();
    if (failed == NULL) {
        sxc_finding_put(findings, "executable-memory", true, true, "a sealed memory file runs");
    } else {
        sxc_finding_put(findings, "executable-memory", false, true,
                        "%s: %s; vm.memfd_noexec or a service profile may forbid it", failed,
                        strerror(errno));
    }
}

/* ---- libraries ---- */

/* A function of no argument that gives text, among the libraries already loaded; NULL: not there. */
static const char *text_function(const char *name)
{
    const char *(*function)(void);
    void *address = dlsym(RTLD_DEFAULT, name);
    memcpy(&function, &address, sizeof(function));
    return address != NULL ? function() : NULL;
}

void sxc_find_libraries(sxc_findings *findings)
{
    static const struct {
        const char *name, *function;
    } library[] = {{"libc", "gnu_get_libc_version"},
                   {"libsodium", "sodium_version_string"},
                   {"msgpack-c", "msgpack_version"},
                   {"isl", "isl_version"}};
    for (uint32_t i = 0; i < SX_COUNT(library); i++) {
        const char *version = text_function(library[i].function);
        int length = version != NULL ? (int)strcspn(version, "\n") : 0;
        sxc_finding_put(findings, library[i].name, true, false, "%.*s",
                        version != NULL ? length : 8, version != NULL ? version : "built in");
    }
}
