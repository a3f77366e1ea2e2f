/* cmd_worker.c - the compile process: what the C library, and this program itself, start where no daemon
 * compiles. */
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/worker/worker.h"

const sxc_worker sxc_own_worker = {.program = "/proc/self/exe"};

sx_code sxc_cmd_worker(sxc_cli *cli)
{
    struct stat status;
    if (fstat(STDIN_FILENO, &status) != 0 || !S_ISSOCK(status.st_mode)) {
        return SX_FAIL(cli->cx, SX_USAGE,
                       "worker: standard input is no socket; the C library starts this command");
    }
    cli->printed = true; /* whatever there is to say goes over the socket */
    return sxc_work(STDIN_FILENO) == 0
               ? SX_OK
               : SX_FAIL(cli->cx, SX_WORKER, "worker: nobody waits for the answer");
}
