/* folder.c - every folder on the way to a path, links followed by hand so that none is passed over. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trust/trust.h"

#define LINKS_MAX 40

typedef struct {
    sx_ctx *cx;
    const char *what;
    const sx_trust *trust;
    mode_t forbidden; /* on the folder itself */
    char path[PATH_MAX];
    size_t length;
    uint32_t links;
} walk;

static sx_code too_long(const walk *w, size_t length)
{
    return SX_FAIL(w->cx, SX_LIMIT, "%s: folder path of %zu bytes, at most %d", w->what, length,
                   PATH_MAX - 1);
}

/* The absolute path without slashes at its end. */
static sx_code begin(walk *w, const char *path)
{
    char current[PATH_MAX] = "";
    if (path[0] != '/' && getcwd(current, sizeof(current)) == NULL) {
        return SX_FAIL(w->cx, SX_SYSTEM, "%s: working directory: %s", w->what, strerror(errno));
    }
    int length =
        snprintf(w->path, sizeof(w->path), "%s%s%s", current, path[0] == '/' ? "" : "/", path);
    if (length < 0 || (size_t)length >= sizeof(w->path)) {
        return too_long(w, (size_t)length);
    }
    w->length = (size_t)length;
    while (w->length > 1 && w->path[w->length - 1] == '/') {
        w->path[--w->length] = '\0';
    }
    return SX_OK;
}

/* Puts what the link w->path[0..end) says in its place. */
static sx_code follow(walk *w, size_t end)
{
    char target[PATH_MAX], rest[PATH_MAX];
    (void)snprintf(rest, sizeof(rest), "%s", w->path + end);
    w->path[end] = '\0';
    ssize_t size = readlink(w->path, target, sizeof(target) - 1);
    if (size <= 0 || ++w->links > LINKS_MAX) {
        return SX_FAIL(w->cx, SX_SYSTEM, "%s: link %s: %s", w->what, w->path,
                       size <= 0 ? strerror(errno) : "leads to too many others");
    }
    target[size] = '\0';
    size_t folder = target[0] == '/' ? 0 : (size_t)(strrchr(w->path, '/') - w->path) + 1;
    size_t length = folder + (size_t)size + strlen(rest);
    if (length >= sizeof(w->path)) {
        return too_long(w, length);
    }
    memcpy(w->path + folder, target, (size_t)size);
    memcpy(w->path + folder + size, rest, strlen(rest) + 1);
    w->length = length;
    return SX_OK;
}

/* What lstat said of the folder or link `path`: may nobody else exchange what it holds? */
static sx_code check(const walk *w, const char *path, const struct stat *status, bool last)
{
    mode_t mode = status->st_mode & 07777;
    bool link = S_ISLNK(status->st_mode);
    bool ours =
        status->st_uid == 0 || status->st_uid == w->trust->self || status->st_uid == w->trust->also;
    if (!ours) {
        return SX_FAIL(w->cx, SX_DENIED, "%s: %s %s belongs to user %u (mode %04o), we are %u",
                       w->what, link ? "link" : "folder", path, status->st_uid, mode,
                       w->trust->self);
    }
    if (last && link) {
        return SX_FAIL(w->cx, SX_DENIED, "%s: %s is a symbolic link (owner %u), not a folder",
                       w->what, path, status->st_uid);
    }
    if (!link && !S_ISDIR(status->st_mode)) {
        return SX_FAIL(w->cx, SX_DENIED, "%s: %s is not a folder", w->what, path);
    }
    bool open = last ? (mode & w->forbidden) != 0 : (mode & 0022) != 0 && (mode & S_ISVTX) == 0;
    if (!link && open) {
        const char *may = (mode & 0022) == 0 ? "look into it"
                          : last             ? "write to it"
                                             : "exchange what lies in it";
        if ((mode & S_ISVTX) != 0) { /* /tmp is for all */
            sx_hint(w->cx, "Use a folder of your own in it: mkdir -m 700 %s/NAME", path);
        } else {
            sx_hint(w->cx, "Close it: chmod %s %s",
                    last && (w->forbidden & 0055) != 0 ? "700" : "go-w", path);
        }
        return SX_FAIL(w->cx, SX_DENIED, "%s: folder %s has mode %04o (owner %u): others may %s",
                       w->what, path, mode, status->st_uid, may);
    }
    return SX_OK;
}

/* One folder of the way, w->path[0..end); *again when it was a link and the way begins anew. */
static sx_code step(walk *w, size_t end, bool *again)
{
    char path[PATH_MAX];
    memcpy(path, w->path, end);
    path[end] = '\0';
    struct stat status;
    *again = false;
    if (lstat(path, &status) != 0) {
        return SX_FAIL(w->cx, errno == ENOENT ? SX_ABSENT : SX_DENIED, "%s: folder %s: %s", w->what,
                       path, strerror(errno));
    }
    SX_TRY(check(w, path, &status, end == w->length));
    if (S_ISLNK(status.st_mode)) {
        *again = true;
        return follow(w, end);
    }
    return SX_OK;
}

sx_code sx_trust_folder(sx_ctx *cx, const char *what, const char *path, const sx_trust *trust,
                        mode_t forbidden)
{
    SX_ASSERT(path != NULL && (forbidden & ~(mode_t)07777) == 0);
    walk w = {.cx = cx, .what = what, .trust = trust, .forbidden = forbidden};
    SX_TRY(begin(&w, path));
    for (size_t end = 1; end <= w.length; end++) {
        bool again = false;
        bool whole = end == 1 || end == w.length || w.path[end] == '/';
        if (whole && (end == 1 || w.path[end - 1] != '/')) {
            SX_TRY(step(&w, end, &again));
        }
        end = again ? 0 : end;
    }
    return SX_OK;
}

sx_code sx_trust_file(sx_ctx *cx, const char *what, const char *path, const sx_trust *trust)
{
    char folder[PATH_MAX];
    struct stat status;
    SX_ASSERT(path != NULL && path[0] == '/' && trust != NULL);
    int length = snprintf(folder, sizeof(folder), "%s", path);
    if (length < 0 || (size_t)length >= sizeof(folder) || lstat(path, &status) != 0 ||
        !S_ISREG(status.st_mode)) {
        return SX_FAIL(cx, SX_ABSENT, "%s: %.300s is no regular file", what, path);
    }
    bool ours = status.st_uid == 0 || status.st_uid == trust->self || status.st_uid == trust->also;
    if (!ours || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return SX_FAIL(cx, SX_DENIED, "%s: %.300s: mode %04o, owner %u", what, path,
                       status.st_mode & 07777u, status.st_uid);
    }
    char *slash = strrchr(folder, '/');
    slash[slash == folder ? 1 : 0] = '\0';
    return sx_trust_folder(cx, what, folder, trust, S_IWOTH);
}

static sx_code make_all(sx_ctx *cx, const char *what, const char *path)
{
    char part[PATH_MAX];
    int length = snprintf(part, sizeof(part), "%s", path);
    if (length <= 0 || (size_t)length >= sizeof(part)) {
        return SX_FAIL(cx, SX_USAGE, "%s: folder path of %d bytes, allowed are 1 to %d", what,
                       length, PATH_MAX - 1);
    }
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p != '\0') {
            continue;
        }
        char kept = *p;
        *p = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) {
            return SX_FAIL(cx, SX_SYSTEM, "%s: folder %s cannot be made: %s", what, part,
                           strerror(errno));
        }
        *p = kept;
        if (kept == '\0') {
            return SX_OK;
        }
    }
}

sx_code sx_trust_make_folder(sx_ctx *cx, const char *what, const char *path)
{
    SX_ASSERT(what != NULL && path != NULL);
    sx_trust us = {.self = geteuid(), .also = geteuid()};
    struct stat status;
    sx_code code = sx_trust_folder(cx, what, path, &us, 0077);
    if (code ==
        SX_ABSENT) { /* what there is of the way is fine: nothing is made in a stranger's folder */
        sx_ctx_reset_error(cx);
        SX_TRY(make_all(cx, what, path));
        code = sx_trust_folder(cx, what, path, &us, 0077);
    }
    SX_TRY(code);
    if (stat(path, &status) != 0) {
        return SX_FAIL(cx, SX_SYSTEM, "%s: folder %s: %s", what, path, strerror(errno));
    }
    if (status.st_uid != us.self) {
        return SX_FAIL(cx, SX_DENIED, "%s: folder %s belongs to user %u (mode %04o), we are %u",
                       what, path, status.st_uid, status.st_mode & 07777u, us.self);
    }
    return SX_OK;
}
