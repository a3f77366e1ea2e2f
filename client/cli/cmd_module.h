/* cmd_module.h - what module show, module dump and explain print in common. */
#ifndef SX_CLIENT_CLI_CMD_MODULE_H
#define SX_CLIENT_CLI_CMD_MODULE_H
#include "client/cli/cli.h"
#include "client/cli/table.h"
#include "client/module_file.h"
#include "client/record.h"
#include "client/report.h"
#include "core/cost/cost.h"
#include "protocol/json.h"

void sxc_module_key(const sx_module *module, char text[SX_KEY_TEXT_SIZE]);
/* Tables of a module for people: head, tensors, kernels, launches, checks. SX_CORRUPT: an element type this
 * program does not know. */
sx_code sxc_module_text(sx_ctx *cx, const sx_module *module, const sxc_record *record, sx_buf *out);
/* What the record is worth, then its comparisons: as passed only where it fits these bytes. */
sx_code sxc_put_checks(sx_ctx *cx, const sx_module *module, const sxc_record *record, sx_buf *out);
/* Fields of a JSON object: name, target, key, compiler, extents; and the verification record. */
void sxc_json_module_info(sx_buf *json, const sx_module *module);
/* Each variant with its guards. */
void sxc_json_variants(sx_buf *json, const sx_module *module);
#define SXC_CHECK_COLUMNS "CHECK|RESULT|CODE|>ELEMENTS|>ERROR|>ALLOWED"
/* A row of a table with these columns; `verified` false: nobody who is believed says so. */
void sxc_put_check(sxc_table *table, sx_span name, const sx_module_check *check, bool verified);
void sxc_json_check(sx_buf *json, sx_span name, const sx_module_check *check);
void sxc_json_checks(sx_buf *json, const sx_module *module, const sxc_record *record);
/* cmd_front.c: the Pareto front of a module: for people, as fields of a JSON object, as a picture. */
sx_code sxc_front_text(sx_ctx *cx, const sx_module *module, sx_buf *out);
void sxc_json_front(sx_buf *json, const sx_module *module);
void sxc_front_svg(const sx_module *module, sx_buf *out);
/* The rules used that do not keep the range of intermediate values, in one line; nothing where all do. */
/* A line after `before`, or nothing. */
void sxc_put_range(const sx_module *module, const char *before, sx_buf *out);
/* cmd_explain_screen.c: what was made of the program, in the user's names, on one screen. */
sx_code sxc_explain_screen(sx_ctx *cx, const sx_module *module, const sxc_record *record,
                           sx_buf *out);
/* The machine that the estimates of a module are for: "8 cores of x86-64-v4 at 2.6 GHz with 41 GB/s; this
 * machine has 2". */
void sxc_put_machine(const sx_module *module, bool with_here, sx_buf *out);
/* The device of this name, or the last of several; NULL: of another build. */
const sx_device *sxc_device_of(sx_span target);
/* cmd_run_times.c: what each launch of the variant that ran took, by kernel (the ten dearest), or all of them one
 * by one; as fields of a JSON object. */
sx_code sxc_put_times(sx_ctx *cx, const sx_module *module, const sx_module_variant *ran,
                      const uint64_t *launch_ns, bool all, sx_buf *out);
sx_code sxc_json_times(sx_ctx *cx, const sx_module *module, const sx_module_variant *ran,
                       const uint64_t *launch_ns, sx_buf *json);
/* cmd_sharding.c: how it runs on a mesh; nothing without one. */
sx_code sxc_sharding_text(sx_ctx *cx, const sx_module *module, sx_buf *out);
#endif
