#include "client/assemble/toolkit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trust/trust.h"

#define STANDARD "/usr/local/cuda"
_Static_assert(SXA_PATH_MAX >= PATH_MAX, "realpath fits");

static const char *const names[SXA_TOOL_COUNT] = {
    [SXA_ANY] = "any", [SXA_NVJITLINK] = "nvjitlink", [SXA_PTXAS] = "ptxas"};

const char *sxa_tool_name(sxa_tool tool)
{
    SX_ASSERT(tool < SXA_TOOL_COUNT);
    return names[tool];
}

sx_code sxa_tool_parse(sx_ctx *cx, sx_span name, sxa_tool *tool)
{
    for (uint32_t i = 0; i < SXA_TOOL_COUNT; i++) {
        if (sx_span_is(name, names[i])) {
            *tool = (sxa_tool)i;
            return SX_OK;
        }
    }
    return SX_FAIL(cx, SX_INPUT, "no assembler %.*s; there are any, nvjitlink and ptxas",
                   (int)(name.len < 40 ? name.len : 40), (const char *)name.ptr);
}

/* ---- may it be used? ---- */

static void refuse(sxa_found *found, const char *why)
{
    size_t length = strlen(found->refused);
    (void)snprintf(found->refused + length, sizeof(found->refused) - length, "%s%s",
                   length > 0 ? "; " : "", why);
}

/* Is it a file that nobody else can exchange? */
static bool is_trusted(sx_ctx *cx, const char *path, bool program, sxa_found *found)
{
    char why[PATH_MAX + 80];
    struct stat status;
    sx_trust trust = {geteuid(), geteuid()};
    sx_code code = sx_trust_file(cx, "toolkit", path, &trust);
    if (code != SX_OK) {
        if (code != SX_ABSENT) {
            refuse(found, cx->error.text);
        }
        sx_ctx_reset_error(cx);
        return false;
    }
    if (program && access(path, X_OK) != 0) {
        unsigned mode = stat(path, &status) == 0 ? status.st_mode & 07777u : 0;
        (void)snprintf(why, sizeof(why), "%s: mode %04o", path, mode);
        refuse(found, why);
        return false;
    }
    return true;
}

/* FOLDER/PLACE/NAME, with all links resolved, if it may be used. */
static bool try_file(sx_ctx *cx, const char *folder, const char *place, const char *name,
                     sxa_found *found)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s/%s", folder, place, name) >= (int)sizeof(path)) {
        return false;
    }
    char *real = realpath(path, NULL);
    bool fits = real != NULL && is_trusted(cx, real, strcmp(place, "bin") == 0, found);
    if (fits) {
        (void)snprintf(found->path, sizeof(found->path), "%s", real);
    }
    free(real);
    return fits;
}

/* ---- ptxas ---- */

/* What follows a mark in the bytes, of digits and dots. */
static bool version_behind(sx_span bytes, const char *mark, char version[32])
{
    size_t length = strlen(mark);
    const uint8_t *at = bytes.len > length ? memmem(bytes.ptr, bytes.len, mark, length) : NULL;
    size_t count = 0, rest = at != NULL ? bytes.len - (size_t)(at - bytes.ptr) - length : 0;
    while (
        at != NULL && count < 31 && count < rest &&
        (at[length + count] == '.' || (at[length + count] >= '0' && at[length + count] <= '9'))) {
        version[count] = (char)at[length + count];
        count++;
    }
    version[count] = '\0';
    return count > 0;
}

/* Programs and libraries have their version in them, as they would print it:
 * "Cuda compilation tools, release 13.0, V13.0.88". */
static void read_version(const char *path, char version[32])
{
    static const char mark[] = "Cuda compilation tools, release ";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    void *bytes = MAP_FAILED;
    version[0] = '\0';
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (bytes != MAP_FAILED) {
        sx_span all = {bytes, (size_t)status.st_size};
        const uint8_t *at = memmem(all.ptr, all.len, mark, sizeof(mark) - 1);
        size_t rest = at != NULL ? all.len - (size_t)(at - all.ptr) : 0;
        (void)version_behind((sx_span){at, rest < 80 ? rest : 80}, ", V", version);
        (void)munmap(bytes, (size_t)status.st_size);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* ---- nvJitLink ---- */

static const char *const library_names[] = {"libnvJitLink.so.13", "libnvJitLink.so.12"};

/* Opens it, for its version; it stays loaded, as such libraries do not unload cleanly. */
static bool open_library(const char *path, char version[32])
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    int (*get_version)(unsigned *, unsigned *) = NULL;
    unsigned major = 0, minor = 0;
    if (library == NULL) {
        return false;
    }
    void *address = dlsym(library, "nvJitLinkVersion");
    memcpy(&get_version, &address, sizeof(get_version)); /* as POSIX allows */
    if (get_version != NULL && get_version(&major, &minor) == 0) {
        (void)snprintf(version, 32, "%u.%u", major, minor);
    }
    (void)dlclose(library);
    return true;
}

static const char *const library_places[] = {"lib64", "lib", "targets/x86_64-linux/lib",
                                             "lib/x86_64-linux-gnu"};

/* One of the places where a folder may have it. */
static bool try_place(sx_ctx *cx, const char *folder, uint32_t index, sxa_found *found)
{
    const char *name = library_names[index / SX_COUNT(library_places)];
    return try_file(cx, folder, library_places[index % SX_COUNT(library_places)], name, found);
}

static bool try_library(sx_ctx *cx, const char *folder, sxa_found *found)
{
    for (uint32_t i = 0; i < SX_COUNT(library_names) * SX_COUNT(library_places); i++) {
        if (try_place(cx, folder, i, found) && open_library(found->path, found->version)) {
            return true;
        }
    }
    return false;
}

static bool try_system_library(sxa_found *found)
{
    for (uint32_t i = 0; i < SX_COUNT(library_names); i++) {
        if (open_library(library_names[i], found->version)) {
            (void)snprintf(found->path, sizeof(found->path), "%s", library_names[i]);
            return true;
        }
    }
    return false;
}

/* ---- all places ---- */

static bool try_folder(sx_ctx *cx, sxa_tool tool, const char *folder, sxa_found *found)
{
    if (folder == NULL || folder[0] == '\0') {
        return false;
    }
    if (tool == SXA_NVJITLINK) {
        return try_library(cx, folder, found);
    }
    bool there = try_file(cx, folder, "bin", "ptxas", found);
    if (there) {
        read_version(found->path, found->version);
    }
    return there;
}

void sxa_find(sx_ctx *cx, sxa_tool tool, const char *folder, sxa_found *found)
{
    SX_ASSERT((tool == SXA_NVJITLINK || tool == SXA_PTXAS) && cx->error.code == SX_OK);
    *found = (sxa_found){.found = false};
    if (folder != NULL) {
        found->found = try_folder(cx, tool, folder, found);
        return;
    }
    found->found = try_folder(cx, tool, secure_getenv("CUDA_HOME"), found) ||
                   try_folder(cx, tool, secure_getenv("CUDA_PATH"), found) ||
                   (tool == SXA_NVJITLINK && try_system_library(found)) ||
                   try_folder(cx, tool, STANDARD, found);
    SX_ASSERT(!found->found || found->path[0] != '\0');
}

/* "nvJitLink 13.0.88", by what is written in the file. */
static bool name_library(sx_ctx *cx, const char *folder, sxa_found *found, sxa_identity *identity)
{
    for (uint32_t i = 0; i < SX_COUNT(library_names) * SX_COUNT(library_places); i++) {
        read_version(try_place(cx, folder, i, found) ? found->path : "", found->version);
        if (found->version[0] != '\0') {
            identity->tool = SXA_NVJITLINK;
            (void)snprintf(identity->name, sizeof(identity->name), "nvJitLink %s", found->version);
            (void)snprintf(identity->path, sizeof(identity->path), "%s", found->path);
            return true;
        }
    }
    return false;
}

void sxa_identify(sx_ctx *cx, bool programs, sxa_identity *identity)
{
    const char *const folder[] = {secure_getenv("CUDA_HOME"), secure_getenv("CUDA_PATH"), "/usr",
                                  STANDARD};
    sxa_found found = {.found = false};
    *identity = (sxa_identity){.tool = SXA_ANY};
    for (uint32_t i = 0; i < SX_COUNT(folder); i++) {
        if (folder[i] != NULL && folder[i][0] != '\0' &&
            name_library(cx, folder[i], &found, identity)) {
            return;
        }
    }
    if (programs) {
        sxa_find(cx, SXA_PTXAS, NULL, &found);
    }
    if (found.found && found.version[0] != '\0') {
        identity->tool = SXA_PTXAS;
        (void)snprintf(identity->name, sizeof(identity->name), "ptxas %s", found.version);
        (void)snprintf(identity->path, sizeof(identity->path), "%s", found.path);
    }
}

sx_code sxa_absent(sx_ctx *cx, const char *folder, const char *what, const char *refused)
{
    sx_hint(cx, "Install the CUDA toolkit 12 or 13 (nvJitLink or ptxas of it are enough) and name "
                "its folder "
                "in CUDA_HOME. PTX can also stay text, which the driver compiles where it runs.");
    return SX_FAIL(cx, SX_ABSENT, "%s in %.300s%s%.400s", what,
                   folder != NULL ? folder
                                  : "$CUDA_HOME, $CUDA_PATH, the system's libraries or " STANDARD,
                   refused[0] != '\0' ? "; refused: " : "", refused);
}
