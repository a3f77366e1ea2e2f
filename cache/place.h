/* place.h - the state directory: made, on a local file system, held by one process (flock). */
#ifndef SX_CACHE_PLACE_H
#define SX_CACHE_PLACE_H
#include "core/base/base.h"

/* Makes the directory (0700) where absent, refuses network file systems, takes the lock. The lock goes with
 * the descriptor: a forked child that keeps it open keeps the lock.
 *   errors   SX_BUSY held by another process (its id in the text); SX_INPUT network file system, no directory;
 *            SX_SYSTEM */
sx_code sx_place_open(sx_ctx *cx, const char *dir, int *lock_fd);
void sx_place_close(int lock_fd);

/* Name of a network file system by the f_type of statfs; NULL: a local one. SQLite's locks and maps are not
 * safe on them. */
const char *sx_place_network(uint64_t type);

/* Makes an absent file empty and for the owner's eyes only (artefacts are code); SQLite gives -wal and -shm
 * the same mode. */
void sx_place_make_private(const char *path);

/* Renames the store and its -wal and -shm to <file>.<reason>.<n>, the first free n. SX_SYSTEM when that fails. */
sx_code sx_place_set_aside(sx_ctx *cx, const char *path, const char *reason);
#endif
