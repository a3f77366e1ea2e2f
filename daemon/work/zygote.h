/* zygote.h - the talk between the daemon and the parent of its workers: one struct a packet, SOCK_SEQPACKET. */
#ifndef SX_DAEMON_WORK_ZYGOTE_H
#define SX_DAEMON_WORK_ZYGOTE_H
#include "daemon/work/backend.h"

typedef enum {
    SXD_ZYGOTE_SPAWN,
    SXD_ZYGOTE_KILL,
    SXD_ZYGOTE_SPAWNED,
    SXD_ZYGOTE_FAILED,
    SXD_ZYGOTE_EXITED
} sxd_zygote_op;
typedef struct sxd_zygote_message {
    uint32_t op;
    uint32_t slot;
    int32_t pid;
    int32_t status;        /* EXITED: as from waitpid; FAILED: errno */
    uint64_t memory_bytes; /* SPAWN: limits of the worker */
    uint64_t cpu_s;
} sxd_zygote_message;

#define SXD_WORK_FD 3 /* the worker's end of its pipe; the zygote's end of its socket */

/* The life of a worker. */
SX_NORETURN void sxd_work_main(const sxd_backend *backend, const sxd_zygote_message *limits);
/* Closes everything above `kept`, sets limits, filters system calls. What the host does not have is left out, and
 * the log says so when the daemon starts. */
void sxd_sandbox_enter(const sxd_zygote_message *limits, int kept);
#endif
