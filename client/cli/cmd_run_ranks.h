/* cmd_run_ranks.h - run, of a module that several ranks run together. */
#ifndef SX_CLIENT_CLI_CMD_RUN_RANKS_H
#define SX_CLIENT_CLI_CMD_RUN_RANKS_H
#include "client/cli/cli.h"
#include "client/record.h"
#include "client/runtime/runtime.h"

typedef struct {
    uint64_t seed;
    uint32_t runs;
    size_t check_bytes; /* of the interpreter; 0: as usual */
    const sxc_record *record;
} sxc_ranks_run;
/* Opens the file of the command once for each rank, runs all of them, writes outputs, compares, reports. `first` is the
 * module opened once, for its mesh and its threads.
 *   errors   as run; of a rank that fails, with its number */
sx_code sxc_run_ranks(sxc_cli *cli, const sxr_program *first, const sxc_ranks_run *how);
#endif
