/* measured.h - where what was measured here is kept: tune writes it, compile reads it. */
#ifndef SX_CLIENT_CLI_MEASURED_H
#define SX_CLIENT_CLI_MEASURED_H
#include "client/cli/cli.h"
#include "client/tune/tune.h"

#define SXC_TUNE_THREADS_MAX 256
/* The machine with other threads than all (0), as rows of those have it: no machine is called so, and nothing chooses
 * by them. */
void sxc_measured_threads(char machine[SX_MEASURED_MACHINE_MAX], uint32_t threads);
/* --times FILE; else the daemon, if one answers; else the file `measured` of the state folder. */
#define SXC_MEASURED_NAME_MAX 4200
typedef struct {
    char name[SXC_MEASURED_NAME_MAX]; /* the file; or the socket of the daemon */
    sxc_connection *daemon;           /* NULL: the file */
    int64_t turn;                     /* the lease by which one tunes at a time */
} sxc_measured_place;

/* Opens the place for tune. While another tune measures for the same daemon, this one waits: each would measure the
 * other.
 *   errors   SX_USAGE there is no place, or --no-daemon and --daemon-only */
sx_code sxc_measured_open(sxc_cli *cli, const char *machine, sxc_measured_place *place);
/* All that the place has of this machine, in cx's arena; adds what measuring it took to *cost_us. And puts all back. */
sx_code sxc_measured_all(sx_ctx *cx, const sxc_measured_place *place, const char *machine,
                         sx_measured *all, uint64_t *cost_us);
sx_code sxc_measured_replace(sx_ctx *cx, const sxc_measured_place *place, const char *machine,
                             const sx_measured *all, uint64_t cost_us);
/* Adds rows of this machine, or replaces those that they are newer than; measuring them took cost_us. What was best of
 * a kernel is best no longer, unless a row says so. */
sx_code sxc_measured_add(sx_ctx *cx, const sxc_measured_place *place, const char *machine,
                         const sx_measured *rows, uint64_t cost_us);
void sxc_measured_close(sxc_measured_place *place);
/* The rows of this machine in the file, for a compilation in process, in cx's arena. Without --times a file that is not
 * there, or cannot be read, is empty.
 *   errors   SX_INPUT a line that is no row */
sx_code sxc_measured_read(const sxc_cli *cli, sx_span *text);
#endif
