/* cmd_ptx.c - ptx assemble, ptx show: PTX to machine code by the CUDA toolkit, and what a cubin says of its kernels.
 * The assembler runs in a process of its own, which may die of it. */
#include <stdio.h>

#include "client/assemble/assemble.h"
#include "client/cli/cli.h"
#include "client/cli/table.h"
#include "client/source.h"
#include "core/ptx/limits.h"

#define PRINT_BYTES_MAX ((size_t)16 << 20)

/* What is printed. */
typedef struct {
    sxc_cli *cli;
    const sx_cubin *record;
    sx_span cubin;
    /* NULL: the cubin was there before. */
    const sxa_result *result;
    /* NULL: launches are not looked at. */
    const sx_device *device;
    uint64_t dynamic_shared_bytes;
} view;

/* ---- text ---- */

/* "64x2x1", "at most 256x1x1", or "-". */
static void put_dims(sxc_table *table, sx_cubin_dim exact, sx_cubin_dim most)
{
    const sx_cubin_dim *dim = exact.x > 0 ? &exact : &most;
    if (dim->x == 0) {
        sxc_table_put(table, "-");
    } else {
        sxc_table_put(table, "%s%ux%ux%u", exact.x > 0 ? "" : "<= ", dim->x, dim->y, dim->z);
    }
}

static sx_code put_table(const view *v, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, v->cli->cx,
                   "KERNEL|>REGISTERS|>MOST|>LOCAL|>SPILLS|>SHARED|>BARRIERS|>MBARRIERS|BLOCK|"
                   "CLUSTER|>PARAMETERS|>BYTES|>CODE");
    for (uint32_t i = 0; i < v->record->kernel_count; i++) {
        const sx_cubin_kernel *k = &v->record->kernel[i];
        sxc_table_put_span(&table, k->name);
        sxc_table_put(&table, "%u", k->registers);
        sxc_table_put(&table, "%u", k->registers_max);
        sxc_table_put(&table, "%u", k->stack_bytes);
        sxc_table_put(&table, "%u", k->spill_count);
        sxc_table_put(&table, "%llu", (unsigned long long)k->shared_bytes);
        sxc_table_put(&table, "%u", k->barriers);
        sxc_table_put(&table, "%u", k->mbarriers);
        put_dims(&table, k->block, k->block_max);
        put_dims(&table, k->cluster, (sx_cubin_dim){k->cluster_max, k->cluster_max > 0, 1});
        sxc_table_put(&table, "%u", k->param_count);
        sxc_table_put(&table, "%u", k->param_bytes);
        sxc_table_put(&table, "%llu", (unsigned long long)k->code_bytes);
    }
    return sxc_table_print(&table, out);
}

static sx_code put_text(const view *v, sx_buf *out)
{
    char target[SX_CUBIN_TARGET_MAX], bytes[32], line[256];
    const char *tool = v->result != NULL ? sxa_tool_name(v->result->tool) : v->record->tool;
    sx_cubin_target(v->record, target);
    sxc_human_bytes((double)v->cubin.len, bytes);
    (void)snprintf(line, sizeof(line), "%s, %s%s%s, CUDA %s, %u kernels", target, bytes,
                   tool[0] != '\0' ? ", by " : "", tool,
                   v->record->toolkit[0] != '\0' ? v->record->toolkit : "of unknown version",
                   v->record->kernel_count);
    sxc_put_line(out, "cubin", sx_span_of(line));
    for (uint32_t i = 0; v->result != NULL && i < v->result->finding_count; i++) {
        const sxa_finding *f = &v->result->finding[i];
        (void)snprintf(line, sizeof(line), "%s: %.*s", f->name,
                       (int)(f->text.len < 220 ? f->text.len : 220), (const char *)f->text.ptr);
        sxc_put_line(out, f->severity == SXA_FAILURE ? "failure" : "note", sx_span_of(line));
    }
    sx_buf_put_text(out, "\n");
    return put_table(v, out);
}

/* ---- JSON ---- */

static void json_dim(sx_buf *json, const char *name, sx_cubin_dim dim)
{
    sxc_json_open(json, name, '[');
    const uint32_t extent[] = {dim.x, dim.y, dim.z};
    for (uint32_t i = 0; dim.x > 0 && i < SX_COUNT(extent); i++) {
        sxc_json_int(json, NULL, extent[i]);
    }
    sxc_json_close(json, ']');
}

static void json_kernel(sx_buf *json, const sx_cubin_kernel *k)
{
    sxc_json_open(json, NULL, '{');
    sxc_json_text(json, "name", k->name);
    sxc_json_int(json, "registers", k->registers);
    sxc_json_int(json, "registers_max", k->registers_max);
    sxc_json_int(json, "frame_bytes", k->frame_bytes);
    sxc_json_int(json, "stack_bytes", k->stack_bytes);
    sxc_json_int(json, "spills", k->spill_count);
    sxc_json_int(json, "shared_bytes", (int64_t)k->shared_bytes);
    sxc_json_int(json, "shared_reserved_bytes", k->shared_reserved_bytes);
    sxc_json_int(json, "barriers", k->barriers);
    sxc_json_int(json, "mbarriers", k->mbarriers);
    json_dim(json, "block", k->block);
    json_dim(json, "block_max", k->block_max);
    json_dim(json, "cluster", k->cluster);
    sxc_json_int(json, "cluster_max", k->cluster_max);
    sxc_json_bool(json, "cluster_explicit", k->cluster_explicit);
    sxc_json_int(json, "parameter_bytes", k->param_bytes);
    sxc_json_open(json, "parameters", '[');
    for (uint32_t i = 0; i < k->param_count; i++) {
        sxc_json_open(json, NULL, '{');
        sxc_json_int(json, "offset", k->param[i].offset);
        sxc_json_int(json, "size", k->param[i].size);
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    sxc_json_int(json, "code_bytes", (int64_t)k->code_bytes);
    sxc_json_close(json, '}');
}

static void put_json(const view *v, sx_buf *json)
{
    char target[SX_CUBIN_TARGET_MAX];
    sx_cubin_target(v->record, target);
    sxc_json_begin(json, "cubin");
    sxc_json_text(json, "target", sx_span_of(target));
    sxc_json_text(json, "tool", sx_span_of(v->record->tool));
    sxc_json_text(json, "toolkit", sx_span_of(v->record->toolkit));
    sxc_json_int(json, "bytes", (int64_t)v->cubin.len);
    if (v->result != NULL) {
        sxc_json_text(json, "with", sx_span_of(sxa_tool_name(v->result->tool)));
        sxc_json_int(json, "failures", v->result->failure_count);
        sxc_json_open(json, "findings", '[');
        for (uint32_t i = 0; i < v->result->finding_count; i++) {
            const sxa_finding *f = &v->result->finding[i];
            sxc_json_open(json, NULL, '{');
            sxc_json_text(json, "name", sx_span_of(f->name));
            sxc_json_bool(json, "failure", f->severity == SXA_FAILURE);
            sxc_json_text(json, "text", f->text);
            sxc_json_close(json, '}');
        }
        sxc_json_close(json, ']');
    }
    sxc_json_open(json, "kernels", '[');
    for (uint32_t i = 0; i < v->record->kernel_count; i++) {
        json_kernel(json, &v->record->kernel[i]);
    }
    sxc_json_close(json, ']');
    sxc_json_end(json);
}

/* ---- what both do ---- */

/* Reads --on and --shared, which say for what launch the kernels are looked at. */
static sx_code read_launch(view *v)
{
    sx_ctx *cx = v->cli->cx;
    const char *name = sxc_value(v->cli, SXC_ON);
    int64_t bytes = 0;
    SX_TRY(sxc_number(v->cli, SXC_SHARED, 0, INT64_C(1) << 40, 0, &bytes));
    v->dynamic_shared_bytes = (uint64_t)bytes;
    if (name == NULL) {
        return sxc_given(v->cli, SXC_SHARED)
                   ? SX_FAIL(cx, SX_USAGE, "--shared says nothing without --on DEVICE")
                   : SX_OK;
    }
    SX_TRY(sx_device_find(cx, sx_span_of(name), &v->device));
    return v->device->block_threads > 0
               ? SX_OK
               : SX_FAIL(cx, SX_USAGE, "--on %s: a device without blocks of threads", name);
}

/* Every kernel on the device; the first that cannot be launched is the answer. One whose block nobody has told is
 * looked at with a single thread. */
static sx_code check_launches(const view *v)
{
    for (uint32_t i = 0; v->device != NULL && i < v->record->kernel_count; i++) {
        const sx_cubin_kernel *k = &v->record->kernel[i];
        bool told = k->block.x > 0 || k->block_max.x > 0;
        sx_cubin_launch launch = {.dynamic_shared_bytes = v->dynamic_shared_bytes,
                                  .block = {!told, !told, !told}};
        sx_cubin_need need;
        SX_TRY(sx_cubin_check_launch(v->cli->cx, k, v->device, &launch, &need));
    }
    return SX_OK;
}

static sx_code put(const view *v)
{
    sx_buf out;
    sx_buf_init(&out, PRINT_BYTES_MAX);
    sx_code code = SX_OK;
    if (v->cli->json) {
        put_json(v, &out);
    } else {
        code = put_text(v, &out);
    }
    code = code == SX_OK ? sxc_put(v->cli, &out) : code;
    sx_buf_fini(&out);
    return code;
}

/* ---- the commands ---- */

static sx_code assemble(view *v, const char *target, sx_buf *ptx, sx_buf *bytes)
{
    sx_ctx *cx = v->cli->cx;
    const char *output = sxc_value(v->cli, SXC_OUTPUT), *with = sxc_value(v->cli, SXC_WITH);
    sxa_tool tool = SXA_ANY;
    sxa_result result;
    SX_TRY(with != NULL ? sxa_tool_parse(cx, sx_span_of(with), &tool) : SX_OK);
    SX_TRY(output != NULL ? sxc_check_output(cx, output) : SX_OK);
    SX_TRY(sxc_read_text(cx, v->cli->argument[0], ptx));
    sxc_assembling what = {.ptx = sx_buf_span(ptx),
                           .target = sx_span_of(target),
                           .toolkit = sx_span_of(sxc_value(v->cli, SXC_TOOLKIT)),
                           .tool = (uint32_t)tool};
    sx_code code = sxc_assemble_here(cx, &what, &sxc_own_worker, bytes);
    if (code != SX_OK) {
        if (code == SX_WORKER) {
            sx_hint(cx, "nvJitLink runs in that process and some texts crash it; --with ptxas "
                        "assembles without it.");
        }
        return sx_fail_in(cx, "%s", v->cli->argument[0]);
    }
    SX_TRY(sxa_result_decode(cx, sx_buf_span(bytes), &result));
    v->result = &result;
    v->record = result.record;
    v->cubin = result.cubin;
    SX_TRY(put(v));
    SX_TRY(sxa_refuse(cx, &result));
    SX_TRY(check_launches(v));
    return output != NULL ? sxc_write_file(cx, output, result.cubin) : SX_OK;
}

sx_code sxc_cmd_ptx_assemble(sxc_cli *cli)
{
    const char *target = sxc_value(cli, SXC_TARGET);
    view v = {.cli = cli};
    sx_buf ptx, bytes;
    if (target == NULL || sxa_target_number(sx_span_of(target)) == 0) {
        return SX_FAIL(cli->cx, SX_USAGE, "ptx assemble: --target %.40s is not one as sm_90a is",
                       target != NULL ? target : "(none)");
    }
    SX_TRY(read_launch(&v));
    sx_buf_init(&ptx, SXA_PTX_BYTES_MAX);
    sx_buf_init(&bytes, SX_CUBIN_BYTES_MAX);
    sx_code code = assemble(&v, target, &ptx, &bytes);
    sx_buf_fini(&ptx);
    sx_buf_fini(&bytes);
    return code;
}

static sx_code show(view *v, sx_buf *bytes)
{
    sx_cubin *record;
    SX_TRY(sxc_read_text(v->cli->cx, v->cli->argument[0], bytes));
    v->cubin = sx_buf_span(bytes);
    if (sx_cubin_read(v->cli->cx, v->cubin, &record) != SX_OK) {
        return sx_fail_in(v->cli->cx, "%s", v->cli->argument[0]);
    }
    v->record = record;
    SX_TRY(put(v));
    return check_launches(v);
}

sx_code sxc_cmd_ptx_show(sxc_cli *cli)
{
    view v = {.cli = cli};
    sx_buf bytes;
    SX_TRY(read_launch(&v));
    sx_buf_init(&bytes, SX_CUBIN_BYTES_MAX);
    sx_code code = show(&v, &bytes);
    sx_buf_fini(&bytes);
    return code;
}
