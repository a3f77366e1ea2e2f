/* trust.h - whom this process believes: owners of folders, and the process at the other end of a Unix socket.
 *
 * Who may replace a socket, a state directory or a key can hand out code that we run. A folder is believed
 * when nobody but the superuser and the uids of `sx_trust` can put something else in its place: it is no
 * symbolic link, one of them owns it and each folder above it, and others can rename nothing on the way (not
 * writable by group and others, or sticky).
 */
#ifndef SX_TRUST_TRUST_H
#define SX_TRUST_TRUST_H
#include <sys/types.h>

#include "core/base/base.h"

#define SX_TRUST_UID_VARIABLE "SYMPLEX_TRUST_UID"

/* Uid 0 is always believed. */
typedef struct {
    uid_t self; /* whose rights the code that comes would have */
    uid_t also; /* another one that the user names; equal to `self` if there is none */
} sx_trust;

/* The effective uid, and the one that $SYMPLEX_TRUST_UID names: for a client of a daemon that runs as a user
 * of its own. SX_USAGE: not a uid. The variable does not count in a program with more rights than its caller. */
sx_code sx_trust_of_process(sx_ctx *cx, sx_trust *trust);

/* May this folder be believed? `what` begins the message ("socket"); none of the mode bits `forbidden` may be
 * set on it.
 *   errors   SX_ABSENT it is not there; SX_DENIED, with folder, owner and mode; SX_SYSTEM */
sx_code sx_trust_folder(sx_ctx *cx, const char *what, const char *path, const sx_trust *trust,
                        mode_t forbidden);

/* May this file be believed? `path` is absolute, without links: what realpath says. It is a regular file of the
 * superuser or of `trust`, which others cannot write to, in a folder that may be believed.
 *   errors   SX_ABSENT it is no regular file; SX_DENIED, with owner and mode; SX_SYSTEM */
sx_code sx_trust_file(sx_ctx *cx, const char *what, const char *path, const sx_trust *trust);

/* A folder that is the effective user's own and closed to everybody else: made with mode 0700 where it is
 * missing, its parents too.
 *   errors   SX_DENIED, with path, owner and mode, as above and when it belongs to root instead of us;
 *            SX_SYSTEM it cannot be made */
sx_code sx_trust_make_folder(sx_ctx *cx, const char *what, const char *path);

/* Who listens at the other end of a connected Unix socket? SX_DENIED names path and uid. */
sx_code sx_trust_peer(sx_ctx *cx, const char *path, int fd, const sx_trust *trust);
#endif
