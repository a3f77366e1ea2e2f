/* program.h - the program that a command is about: a file, or one operation that options describe. */
#ifndef SX_CLIENT_CLI_PROGRAM_H
#define SX_CLIENT_CLI_PROGRAM_H
#include "client/cli/cli.h"
#include "client/source.h"

/* The name of the file as it was given, or that of the operation: "gemm".
 *   errors   SX_USAGE neither is given, or both are, or two operations, or words that belong to another operation */
sx_code sxc_program_name(sxc_cli *cli, const char **name);
/* Fills `source`, which the caller ends with sxc_source_fini, also on failure.
 *   errors   those of sxc_program_name, sxc_source_load and sxc_operation_make */
sx_code sxc_program_load(sxc_cli *cli, sxc_source *source);
/* With --batch-invariant: sxc_source_generalise of what was loaded, and a line on stderr where that cannot be. */
sx_code sxc_program_generalise(sxc_cli *cli, sxc_source *source, sx_core_request *request);
/* --print-program: the text, or with --json an object. */
sx_code sxc_program_print(sxc_cli *cli, const sxc_source *source);
#endif
