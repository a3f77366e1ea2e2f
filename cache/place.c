#include "cache/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define ASIDE_MAX 1000

static const struct {
    uint64_t type;
    const char *name;
} network_table[] = {
    {0x6969, "nfs"},        {0x517B, "smb"},        {0xFF534D42, "cifs"},  {0xFE534D42, "smb2"},
    {0x01021997, "9p"},     {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},  {0x00C36400, "ceph"},
    {0x5346414F, "afs"},    {0x6B414653, "afs"},    {0x73757245, "coda"},  {0x564C, "ncp"},
    {0x19830326, "beegfs"}, {0xAAD7AAEA, "panfs"},  {0x7461636F, "ocfs2"}, {0x01161970, "gfs2"},
};

const char *sx_place_network(uint64_t type)
{
    for (size_t i = 0; i < SX_COUNT(network_table); i++) {
        if (network_table[i].type == type) {
            return network_table[i].name;
        }
    }
    return NULL;
}

/* mkdir -p */
static int make_folders(const char *dir)
{
    char path[PATH_MAX];
    size_t length = strlen(dir);
    if (length == 0 || length >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(path, dir, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        char kept = path[i];
        path[i] = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST) {
            return -1;
        }
        path[i] = kept;
    }
    return 0;
}

/* The process id written by the holder; 0 when unreadable. */
static long holder_of(int fd)
{
    char text[32] = {0};
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
    return got > 0 ? strtol(text, NULL, 10) : 0;
}

sx_code sx_place_open(sx_ctx *cx, const char *dir, int *lock_fd)
{
    if (make_folders(dir) != 0) {
        return SX_FAIL(cx, errno == ENOTDIR ? SX_INPUT : SX_SYSTEM, "cache directory %s: %s", dir,
                       strerror(errno));
    }
    struct statfs system_info;
    if (statfs(dir, &system_info) != 0) {
        return SX_FAIL(cx, SX_SYSTEM, "cache directory %s: %s", dir, strerror(errno));
    }
    const char *network = sx_place_network((uint64_t)system_info.f_type & UINT32_MAX);
    if (network != NULL) {
        return SX_FAIL(cx, SX_INPUT, "cache directory %s: on %s, needs a local file system", dir,
                       network);
    }
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/lock", dir);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return SX_FAIL(cx, SX_INPUT, "cache directory: path of %d bytes, at most %d", length,
                       PATH_MAX - 1);
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return SX_FAIL(cx, SX_SYSTEM, "cache lock %s: %s", path, strerror(errno));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        long holder = holder_of(fd);
        (void)close(fd);
        if (error == EWOULDBLOCK) {
            return SX_FAIL(cx, SX_BUSY, "cache directory %s: in use by process %ld", dir, holder);
        }
        return SX_FAIL(cx, SX_SYSTEM, "cache lock %s: %s", path, strerror(error));
    }
    char text[32];
    int size = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    /* information only: a full disk is no reason not to start */
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)size, 0) != size) {
        (void)ftruncate(fd, 0);
    }
    *lock_fd = fd;
    return SX_OK;
}

void sx_place_close(int lock_fd)
{
    if (lock_fd >= 0) {
        (void)close(lock_fd);
    }
}

void sx_place_make_private(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) {
        (void)close(fd); /* a failure shows when SQLite opens it */
    }
}

sx_code sx_place_set_aside(sx_ctx *cx, const char *path, const char *reason)
{
    static const char *const suffix[] = {"-wal", "-shm", ""}; /* the file itself last */
    char to[PATH_MAX];
    for (uint32_t n = 1; n <= ASIDE_MAX; n++) {
        int length = snprintf(to, sizeof(to), "%s.%s.%u", path, reason, n);
        if (length < 0 || (size_t)length >= sizeof(to) - 8) {
            return SX_FAIL(cx, SX_SYSTEM, "store %s: name too long to set aside", path);
        }
        if (access(to, F_OK) == 0) {
            continue;
        }
        for (uint32_t i = 0; i < SX_COUNT(suffix); i++) {
            char from_part[PATH_MAX + 8];
            char to_part[PATH_MAX + 8];
            (void)snprintf(from_part, sizeof(from_part), "%s%s", path, suffix[i]);
            (void)snprintf(to_part, sizeof(to_part), "%s%s", to, suffix[i]);
            if (rename(from_part, to_part) != 0 && errno != ENOENT) {
                return SX_FAIL(cx, SX_SYSTEM, "store %s: cannot be set aside: %s", path,
                               strerror(errno));
            }
        }
        return SX_OK;
    }
    return SX_FAIL(cx, SX_SYSTEM, "store %s: %d older ones are set aside already", path, ASIDE_MAX);
}
