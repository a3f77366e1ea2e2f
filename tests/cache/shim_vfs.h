/* shim_vfs.h - a SQLite VFS that fails on command and can lose power.
 *
 * Changes (write, sync, truncate, delete) are counted; from the n-th on, or only at the n-th, they fail with a
 * chosen code. Power loss: for each file the shim keeps what was synced (durable) and the changes since
 * (pending); after the crash every file is made of its durable bytes and a random subset of its pending
 * changes, writes torn into sectors of 512 bytes. Mapped reads are off.
 */
#ifndef SX_TESTS_CACHE_SHIM_VFS_H
#define SX_TESTS_CACHE_SHIM_VFS_H
#include "tests/lib/test.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/rng.h"

#define SHIM_SECTOR 512
#define SHIM_FILES 8

typedef struct shim_change shim_change;
struct shim_change {
    shim_change *next;
    bool truncate;
    uint64_t offset; /* of a truncate: the new size */
    size_t size;
    uint8_t bytes[];
};

typedef struct {
    char path[512];
    uint8_t *durable;
    size_t durable_size;
    shim_change *first;
    shim_change *last;
} shim_disk;

static struct {
    pthread_mutex_t mutex; /* guards all below: owner and writer thread both come here */
    sqlite3_vfs *real;
    sqlite3_vfs vfs;
    uint64_t changes;  /* so far */
    uint64_t fail_at;  /* first change to fail; 0: none */
    bool fail_on;      /* all later ones, too */
    int fail_code;     /* what they return */
    int read_code;     /* what reads return; 0: they work */
    uint64_t failures; /* so far */
    bool keeps;        /* keep durable and pending for a power loss */
    bool lies;         /* a sync does nothing */
    shim_disk disk[SHIM_FILES];
} shim = {.mutex = PTHREAD_MUTEX_INITIALIZER};

typedef struct {
    sqlite3_file base;
    sqlite3_file *real;
    shim_disk *disk; /* NULL: not of interest */
} shim_file;

static shim_disk *shim_disk_of(const char *path)
{
    for (uint32_t i = 0; i < SHIM_FILES; i++) {
        if (shim.disk[i].path[0] == '\0') {
            (void)snprintf(shim.disk[i].path, sizeof(shim.disk[i].path), "%s", path);
        }
        if (strcmp(shim.disk[i].path, path) == 0) {
            return &shim.disk[i];
        }
    }
    return NULL;
}

static void shim_forget_pending(shim_disk *disk)
{
    while (disk->first != NULL) {
        shim_change *next = disk->first->next;
        free(disk->first);
        disk->first = next;
    }
    disk->last = NULL;
}

static void shim_resize(shim_disk *disk, size_t size)
{
    uint8_t *bytes = realloc(disk->durable, size + 1);
    ck_assert_ptr_nonnull(bytes);
    if (size > disk->durable_size) {
        memset(bytes + disk->durable_size, 0, size - disk->durable_size);
    }
    disk->durable = bytes;
    disk->durable_size = size;
}

/* A write reaches the medium sector by sector; `rng` NULL: all of them. */
static void shim_carry_out(shim_disk *disk, const shim_change *change, sx_rng *rng)
{
    if (change->truncate) {
        if (rng == NULL || sx_rng_below(rng, 2) == 0) {
            shim_resize(disk, change->offset);
        }
        return;
    }
    bool torn = rng != NULL && sx_rng_below(rng, 4) == 0;
    if (rng != NULL && !torn && sx_rng_below(rng, 2) == 0) {
        return; /* lost as a whole */
    }
    for (size_t at = 0; at < change->size; at += SHIM_SECTOR) {
        size_t left = change->size - at;
        size_t size = left < SHIM_SECTOR ? left : SHIM_SECTOR;
        if (torn && sx_rng_below(rng, 2) == 0) {
            continue;
        }
        if (change->offset + at + size > disk->durable_size) {
            shim_resize(disk, change->offset + at + size);
        }
        memcpy(disk->durable + change->offset + at, change->bytes + at, size);
    }
}

static void shim_note(shim_disk *disk, bool truncate, const void *bytes, size_t size,
                      uint64_t offset)
{
    shim_change *change = calloc(1, sizeof(*change) + size);
    ck_assert_ptr_nonnull(change);
    change->truncate = truncate;
    change->offset = offset;
    change->size = size;
    if (size > 0) {
        memcpy(change->bytes, bytes, size);
    }
    if (disk->last != NULL) {
        disk->last->next = change;
    } else {
        disk->first = change;
    }
    disk->last = change;
}

/* Counts one change; the code with which it fails, or SQLITE_OK. The mutex is held. */
static int shim_count(void)
{
    shim.changes++;
    bool fails = shim.fail_at != 0 &&
                 (shim.fail_on ? shim.changes >= shim.fail_at : shim.changes == shim.fail_at);
    shim.failures += fails ? 1 : 0;
    return fails ? shim.fail_code : SQLITE_OK;
}

static sqlite3_file *shim_real(sqlite3_file *file)
{
    return ((shim_file *)file)->real;
}

static int shim_close(sqlite3_file *file)
{
    sqlite3_file *real = shim_real(file);
    int code = real->pMethods->xClose(real);
    free(real);
    return code;
}

static int shim_read(sqlite3_file *file, void *to, int size, sqlite3_int64 offset)
{
    (void)pthread_mutex_lock(&shim.mutex);
    int code = shim.read_code;
    (void)pthread_mutex_unlock(&shim.mutex);
    return code != SQLITE_OK ? code
                             : shim_real(file)->pMethods->xRead(shim_real(file), to, size, offset);
}

static int shim_write(sqlite3_file *file, const void *from, int size, sqlite3_int64 offset)
{
    shim_file *self = (shim_file *)file;
    (void)pthread_mutex_lock(&shim.mutex);
    int code = shim_count();
    if (code == SQLITE_OK) {
        code = self->real->pMethods->xWrite(self->real, from, size, offset);
        if (code == SQLITE_OK && shim.keeps && self->disk != NULL) {
            shim_note(self->disk, false, from, (size_t)size, (uint64_t)offset);
        }
    }
    (void)pthread_mutex_unlock(&shim.mutex);
    return code;
}

static int shim_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    shim_file *self = (shim_file *)file;
    (void)pthread_mutex_lock(&shim.mutex);
    int code = shim_count();
    if (code == SQLITE_OK) {
        code = self->real->pMethods->xTruncate(self->real, size);
        if (code == SQLITE_OK && shim.keeps && self->disk != NULL) {
            shim_note(self->disk, true, NULL, 0, (uint64_t)size);
        }
    }
    (void)pthread_mutex_unlock(&shim.mutex);
    return code;
}

static int shim_sync(sqlite3_file *file, int flags)
{
    (void)flags; /* the medium is ours: a real sync would only cost time */
    shim_file *self = (shim_file *)file;
    (void)pthread_mutex_lock(&shim.mutex);
    int code = shim_count();
    if (code == SQLITE_OK && shim.keeps && !shim.lies && self->disk != NULL) {
        for (const shim_change *c = self->disk->first; c != NULL; c = c->next) {
            shim_carry_out(self->disk, c, NULL);
        }
        shim_forget_pending(self->disk);
    }
    (void)pthread_mutex_unlock(&shim.mutex);
    return code;
}

static int shim_file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return shim_real(file)->pMethods->xFileSize(shim_real(file), size);
}
static int shim_lock(sqlite3_file *file, int level)
{
    return shim_real(file)->pMethods->xLock(shim_real(file), level);
}
static int shim_unlock(sqlite3_file *file, int level)
{
    return shim_real(file)->pMethods->xUnlock(shim_real(file), level);
}
static int shim_check_lock(sqlite3_file *file, int *held)
{
    return shim_real(file)->pMethods->xCheckReservedLock(shim_real(file), held);
}
static int shim_control(sqlite3_file *file, int what, void *argument)
{
    return shim_real(file)->pMethods->xFileControl(shim_real(file), what, argument);
}
static int shim_sector_size(sqlite3_file *file)
{
    (void)file;
    return SHIM_SECTOR;
}
static int shim_traits(sqlite3_file *file)
{
    (void)file;
    return 0; /* no atomic writes, no safe append */
}
static int shim_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **map)
{
    return shim_real(file)->pMethods->xShmMap(shim_real(file), page, size, extend, map);
}
static int shim_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    return shim_real(file)->pMethods->xShmLock(shim_real(file), offset, n, flags);
}
static void shim_shm_barrier(sqlite3_file *file)
{
    shim_real(file)->pMethods->xShmBarrier(shim_real(file));
}
static int shim_shm_unmap(sqlite3_file *file, int remove)
{
    return shim_real(file)->pMethods->xShmUnmap(shim_real(file), remove);
}

static const sqlite3_io_methods shim_methods = {.iVersion = 2,
                                                .xClose = shim_close,
                                                .xRead = shim_read,
                                                .xWrite = shim_write,
                                                .xTruncate = shim_truncate,
                                                .xSync = shim_sync,
                                                .xFileSize = shim_file_size,
                                                .xLock = shim_lock,
                                                .xUnlock = shim_unlock,
                                                .xCheckReservedLock = shim_check_lock,
                                                .xFileControl = shim_control,
                                                .xSectorSize = shim_sector_size,
                                                .xDeviceCharacteristics = shim_traits,
                                                .xShmMap = shim_shm_map,
                                                .xShmLock = shim_shm_lock,
                                                .xShmBarrier = shim_shm_barrier,
                                                .xShmUnmap = shim_shm_unmap};

static int shim_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *out)
{
    (void)vfs;
    shim_file *self = (shim_file *)file;
    *self = (shim_file){0};
    self->real = calloc(1, (size_t)shim.real->szOsFile);
    if (self->real == NULL) {
        return SQLITE_NOMEM;
    }
    int code = shim.real->xOpen(shim.real, path, self->real, flags, out);
    if (code != SQLITE_OK) {
        free(self->real);
        return code;
    }
    (void)pthread_mutex_lock(&shim.mutex);
    self->disk = path != NULL && shim.keeps ? shim_disk_of(path) : NULL;
    (void)pthread_mutex_unlock(&shim.mutex);
    self->base.pMethods = &shim_methods;
    return SQLITE_OK;
}

/* A file deleted is deleted: the directory is taken to be synced. */
static int shim_delete(sqlite3_vfs *vfs, const char *path, int sync)
{
    (void)vfs;
    (void)sync;
    (void)pthread_mutex_lock(&shim.mutex);
    int code = shim_count();
    if (code == SQLITE_OK) {
        code = shim.real->xDelete(shim.real, path, 0);
        shim_disk *disk = shim.keeps ? shim_disk_of(path) : NULL;
        if (disk != NULL) {
            shim_forget_pending(disk);
            shim_resize(disk, 0);
        }
    }
    (void)pthread_mutex_unlock(&shim.mutex);
    return code;
}

/* Registers the VFS "shim" once. */
static inline void shim_install(void)
{
    if (shim.real == NULL) {
        shim.real = sqlite3_vfs_find(NULL);
        shim.vfs = *shim.real;
        shim.vfs.pNext = NULL;
        shim.vfs.zName = "shim";
        shim.vfs.szOsFile = (int)sizeof(shim_file);
        shim.vfs.xOpen = shim_open;
        shim.vfs.xDelete = shim_delete;
        ck_assert_int_eq(sqlite3_vfs_register(&shim.vfs, 0), SQLITE_OK);
    }
}

/* From the `at`-th change from now on (once or for ever) changes fail with `code`; 0 heals. */
static inline void shim_fail(uint64_t at, bool for_ever, int code)
{
    (void)pthread_mutex_lock(&shim.mutex);
    shim.fail_at = at == 0 ? 0 : shim.changes + at;
    shim.fail_on = for_ever;
    shim.fail_code = code;
    (void)pthread_mutex_unlock(&shim.mutex);
}

static inline void shim_fail_reads(int code)
{
    (void)pthread_mutex_lock(&shim.mutex);
    shim.read_code = code;
    (void)pthread_mutex_unlock(&shim.mutex);
}

static inline uint64_t shim_changes(void)
{
    (void)pthread_mutex_lock(&shim.mutex);
    uint64_t changes = shim.changes;
    (void)pthread_mutex_unlock(&shim.mutex);
    return changes;
}

/* Starts keeping what a power loss needs; all connections are closed. */
static inline void shim_watch(bool lies)
{
    for (uint32_t i = 0; i < SHIM_FILES; i++) {
        shim_forget_pending(&shim.disk[i]);
        free(shim.disk[i].durable);
        shim.disk[i] = (shim_disk){0};
    }
    shim.keeps = true;
    shim.lies = lies;
    shim.changes = 0;
    shim.fail_at = 0;
}

/* After the crash, with all connections closed: makes the files what the medium holds. */
static inline void shim_lose_power(sx_rng *rng)
{
    for (uint32_t i = 0; i < SHIM_FILES && shim.disk[i].path[0] != '\0'; i++) {
        shim_disk *disk = &shim.disk[i];
        for (const shim_change *c = disk->first; c != NULL; c = c->next) {
            shim_carry_out(disk, c, rng);
        }
        (void)unlink(disk->path);
        if (disk->durable_size > 0) {
            FILE *file = fopen(disk->path, "wb");
            ck_assert_ptr_nonnull(file);
            ck_assert_uint_eq(fwrite(disk->durable, 1, disk->durable_size, file),
                              disk->durable_size);
            ck_assert_int_eq(fclose(file), 0);
        }
        char shared[520];
        (void)snprintf(shared, sizeof(shared), "%s-shm", disk->path);
        (void)unlink(shared);
    }
    shim.keeps = false;
    shim.fail_at = 0;
}
#endif
