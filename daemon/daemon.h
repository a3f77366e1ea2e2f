/* daemon.h - the service: one loop thread that owns all state, compile workers in processes of their own.
 *
 * main.c calls sxd_main with the real compiler; tests call it with theirs. Everything else in this folder is internal.
 */
#ifndef SX_DAEMON_DAEMON_H
#define SX_DAEMON_DAEMON_H
#include "daemon/work/backend.h"

extern const sxd_backend sxd_backend_core; /* backend.c: the compiler of core/ */

/* Runs the daemon (or, started as `--zygote`, the parent of its workers) until it is told to stop; the exit status. */
int sxd_main(int argc, char **argv, const sxd_backend *backend);
#endif
