/* cmd_targets.c - targets: the devices that are known, whose code they run, and what this machine executes. */
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/cmd_compile.h"
#include "client/cli/table.h"
#include "client/runtime/cpu.h"
#include "client/source.h"
#include "core/core.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)

sx_code sxc_read_device(sxc_cli *cli, const sx_device **device, sx_span *canonical)
{
    const char *path = sxc_value(cli, SXC_DEVICE);
    *device = NULL;
    *canonical = (sx_span){NULL, 0};
    if (path == NULL) {
        return SX_OK;
    }
    sx_buf file, text;
    sx_buf_init(&file, FILE_BYTES_MAX);
    sx_buf_init(&text, FILE_BYTES_MAX);
    sx_code code = sxc_read_text(cli->cx, path, &file);
    if (code == SX_OK) {
        code = sx_device_parse(cli->cx, sx_buf_span(&file), device);
        code = code == SX_OK ? SX_OK : sx_fail_in(cli->cx, "%s", path);
    }
    if (code == SX_OK) {
        sx_device_print(*device, &text);
        code = sx_buf_check(cli->cx, &text, "device");
    }
    if (code == SX_OK) {
        *canonical = sx_span_of(sx_alloc_text(cli->cx, sx_buf_span(&text)));
        code = canonical->ptr != NULL ? SX_OK : cli->cx->error.code;
    }
    sx_buf_fini(&file);
    sx_buf_fini(&text);
    return code;
}

/* ---- one device ---- */

/* "executed" by this processor or a GPU, "emulated" where there is none that can, "none": there is no code to run. */
static const char *here_of(const sx_device *device)
{
    const sx_target *target = device->target != NULL ? sx_target_find(NULL, device->target) : NULL;
    return target == NULL                          ? "none"
           : sxr_machine_executes(target->machine) ? "executed"
                                                   : "emulated";
}

static void put_types(const sx_device *device, sx_buf *text)
{
    const sx_target *target = device->target != NULL ? sx_target_find(NULL, device->target) : NULL;
    for (uint32_t t = 0; target != NULL && t < SX_DTYPE_COUNT; t++) {
        if ((target->lane_types >> t & 1) != 0) {
            sx_buf_print(text, "%s%s", text->len > 0 ? " " : "", sx_dtype_name((sx_dtype)t));
        }
    }
}

/* "vector", "vector tensor", ... */
static void put_units(const sx_device *device, sx_buf *text)
{
    sx_buf_put_text(text, sx_unit_name(SX_UNIT_VECTOR));
    for (uint32_t u = SX_UNIT_VECTOR + 1; u < SX_UNIT_COUNT; u++) {
        bool has = false;
        for (uint32_t i = 0; i < device->rate_count; i++) {
            has = has || device->rate[i].unit == (sx_unit)u;
        }
        if (has) {
            sx_buf_print(text, " %s", sx_unit_name((sx_unit)u));
        }
    }
}

static void json_device(sx_buf *json, const char *name, const sx_device *device)
{
    const sx_target *target = device->target != NULL ? sx_target_find(NULL, device->target) : NULL;
    sxc_json_open(json, name, '{');
    sxc_json_text(json, "name", sx_span_of(device->name));
    sxc_json_text(json, "text", sx_span_of(device->text));
    sxc_json_text(json, "target", sx_span_of(device->target != NULL ? device->target : "none"));
    sxc_json_text(json, "here", sx_span_of(here_of(device)));
    sxc_json_open(json, "types", '[');
    for (uint32_t t = 0; target != NULL && t < SX_DTYPE_COUNT; t++) {
        if ((target->lane_types >> t & 1) != 0) {
            sxc_json_text(json, NULL, sx_span_of(sx_dtype_name((sx_dtype)t)));
        }
    }
    sxc_json_close(json, ']');
    sxc_json_open(json, "rates", '[');
    for (uint32_t i = 0; i <= device->rate_count; i++) {
        bool f32 = i == device->rate_count; /* it follows from the others */
        sx_dtype dtype = f32 ? SX_F32 : device->rate[i].dtype;
        sx_unit unit = f32 ? SX_UNIT_VECTOR : device->rate[i].unit;
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "type", sx_span_of(sx_dtype_name(dtype)));
        sxc_json_text(json, "unit", sx_span_of(sx_unit_name(unit)));
        sxc_json_real(json, "gflop_per_s",
                      f32 ? sx_device_rate(device, SX_F32, false) : device->rate[i].flops_per_ns);
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
#define SX_DEVICE_FIELD(member, type, words, unit, least, most, need, help) \
    sxc_json_real(json, #member, (double)device->member);
#include "core/cost/device_fields.def"
    sxc_json_close(json, '}');
}

/* ---- the command ---- */

static sx_code put_table(sxc_cli *cli, sx_buf *out)
{
    sxc_table table;
    sx_buf text;
    sx_buf_init(&text, 4096);
    sxc_table_init(&table, cli->cx, "DEVICE|CODE|HERE|UNITS|COMPUTES WITH|WHAT IT IS");
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        const sx_device *device = sx_device_at(i);
        sxc_table_put(&table, "%s", device->name);
        sxc_table_put(&table, "%s", device->target != NULL ? device->target : "none");
        sxc_table_put(&table, "%s", here_of(device));
        sx_buf_clear(&text);
        put_units(device, &text);
        sxc_table_put_span(&table, sx_buf_span(&text));
        sx_buf_clear(&text);
        put_types(device, &text);
        sxc_table_put(&table, "%.*s", text.len > 0 ? (int)text.len : 1,
                      text.len > 0 ? (const char *)text.ptr : "-");
        sxc_table_put(&table, "%s", device->text);
    }
    sx_buf_fini(&text);
    return sxc_table_print(&table, out);
}

sx_code sxc_cmd_targets(sxc_cli *cli)
{
    const sx_device *device = NULL;
    sx_span canonical;
    SX_TRY(sxc_read_device(cli, &device, &canonical));
    if (device != NULL && cli->argument_count > 0) {
        return SX_FAIL(cli->cx, SX_USAGE, "a name and --device exclude each other");
    }
    if (cli->argument_count > 0) {
        SX_TRY(sx_device_find(cli->cx, sx_span_of(cli->argument[0]), &device));
    }
    sx_buf out;
    sx_buf_init(&out, FILE_BYTES_MAX);
    sx_code code = SX_OK;
    if (cli->json) {
        sxc_json_begin(&out, "targets");
        sxc_json_open(&out, "devices", '[');
        for (uint32_t i = 0; device == NULL && i < sx_device_count(); i++) {
            json_device(&out, NULL, sx_device_at(i));
        }
        if (device != NULL) {
            json_device(&out, NULL, device);
        }
        sxc_json_close(&out, ']');
        sxc_json_end(&out);
    } else if (device != NULL) {
        sx_device_print(device, &out);
        out.len -= out.len > 0 ? 1 : 0; /* the end of the last line comes with the output */
    } else {
        code = put_table(cli, &out);
    }
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&out);
    return code;
}
