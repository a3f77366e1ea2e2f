/* cmd_compile.h - what compile, optimize and search have in common. */
#ifndef SX_CLIENT_CLI_CMD_COMPILE_H
#define SX_CLIENT_CLI_CMD_COMPILE_H
#include "client/cli/cli.h"
#include "core/cost/device.h"

/* The request and the way to the daemon, from --target, --dim, --objective, ... */
/* --dim NAME=N and NAME=N,N,...: every value, in the order given. An interval, NAME=LOW..HIGH, is refused. */
sx_code sxc_read_dims(sxc_cli *cli, const sx_binding **bindings, uint32_t *count);
/* --range: keep or any */
sx_code sxc_read_range(sxc_cli *cli, bool *any);
/* A number with K, M, G, T or P behind it, each `kilo` times the one before; 0 where the option is not given. */
sx_code sxc_read_amount(sxc_cli *cli, sxc_option option, uint64_t kilo, uint64_t *amount);
/* cmd_targets.c: --target, NULL where it is not given or names a file FILE.target. */
const char *sxc_target_name(const sxc_cli *cli);
/* --device, or --target with a file, as a device and as its text, both in cx's arena; NULL and empty where neither is
 * given. */
sx_code sxc_read_device(sxc_cli *cli, const sx_device **device, sx_span *canonical);
sx_code sxc_read_request(sxc_cli *cli, sx_core_request *request, sxc_compile_options *options);
/* sxc_compile, with its progress shown, until a signal ends it: SX_CANCELLED. */
sx_code sxc_compile_until(sxc_cli *cli, const sxc_source *source, const sx_core_request *request,
                          const sxc_compile_options *options, sx_buf *module,
                          sxc_compile_info *info);
/* The progress of a compile process; `self` is an sxc_progress. */
void sxc_show_stage(void *self, const char *stage, uint64_t done, uint64_t total);
/* Can --output, --onnx and --proof be written? SX_INPUT names the one that cannot. */
sx_code sxc_check_outputs(sxc_cli *cli);
/* What optimize answers, written where --output, --proof and --onnx say, or printed. `weights` NULL: there are none. */
sx_code sxc_deliver(sxc_cli *cli, const sx_weights *weights, sx_span bytes,
                    const sxc_compile_info *info);
/* cmd_search.c: optimize as a search in the background, with --budget. */
sx_code sxc_optimize_long(sxc_cli *cli, const sxc_source *source, const sx_core_request *request,
                          const sxc_compile_options *options);
#endif
