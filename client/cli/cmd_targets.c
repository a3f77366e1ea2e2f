/* cmd_targets.c - targets: the devices that are known, whose code they run, and what this machine executes. */
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/cmd_compile.h"
#include "client/cli/table.h"
#include "client/runtime/cpu.h"
#include "client/source.h"
#include "core/core.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)

const char *sxc_target_name(const sxc_cli *cli)
{
    static const char end[] = ".target";
    const char *target = sxc_value(cli, SXC_TARGET);
    size_t length = target != NULL ? strlen(target) : 0;
    bool file = length >= sizeof(end) && strcmp(target + length - strlen(end), end) == 0;
    return file ? NULL : target;
}

sx_code sxc_read_device(sxc_cli *cli, const sx_device **device, sx_span *canonical)
{
    const char *path = sxc_value(cli, SXC_DEVICE);
    if (sxc_value(cli, SXC_TARGET) != NULL && path == NULL && sxc_target_name(cli) == NULL) {
        path = sxc_value(cli, SXC_TARGET);
    }
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

/* ---- one device in full ---- */

/* A rate of the device, or, behind those, that of f32 on lanes, which follows from other values. */
typedef struct {
    sx_rate rate;
    bool follows;
} shown_rate;
static shown_rate rate_at(const sx_device *device, uint32_t index)
{
    SX_ASSERT(index <= device->rate_count);
    return index < device->rate_count
               ? (shown_rate){.rate = device->rate[index]}
               : (shown_rate){
                     .rate = {SX_F32, SX_UNIT_VECTOR, sx_device_rate(device, SX_F32, false)},
                     .follows = true};
}

static const char *rate_source(const sx_device *device, const shown_rate *shown)
{
    bool row = sx_device_row(sx_span_of(device->name)) != NULL;
    bool lanes = shown->rate.unit == SX_UNIT_VECTOR;
    return shown->follows               ? "follows: cores, lanes, fma per cycle, clock"
           : !row                       ? "its description"
           : device->block_threads == 0 ? "lanes of the element type"
           : lanes                      ? "data sheet"
                                        : "data sheet, dense; products added in f32, f64 or i32";
}

static const uint32_t block_sizes[] = {128, 256, 512, 1024};

/* What a block of so many threads may have, and how many of them a core holds at once. */
typedef struct {
    uint32_t threads, registers, blocks, blocks_full;
} block_limit;
static bool limit_at(const sx_device *device, uint32_t index, block_limit *limit)
{
    if (index >= SX_COUNT(block_sizes) || block_sizes[index] > device->block_threads) {
        return false;
    }
    limit->threads = block_sizes[index];
    limit->registers = sx_device_thread_registers(device, limit->threads);
    limit->blocks = sx_device_resident_blocks(device, limit->threads, 32, 0);
    limit->blocks_full = sx_device_resident_blocks(device, limit->threads, limit->registers, 0);
    return true;
}

static sx_code put_constants(sxc_cli *cli, const sx_device *device, sx_buf *out)
{
    sxc_table table;
    sx_device_value value;
    sxc_table_init(&table, cli->cx, "CONSTANT|>VALUE|ALLOWED|MEANING|SOURCE");
    for (uint32_t i = 0; sx_device_value_of(device, i, &value); i++) {
        if (value.number > 0) {
            sxc_table_put(&table, "%s", value.words);
            sxc_table_put(&table, "%s", value.value);
            sxc_table_put(&table, "%s", value.range);
            sxc_table_put(&table, "%s", value.help);
            sxc_table_put(&table, "%s", value.source);
        }
    }
    return sxc_table_print(&table, out);
}

static sx_code put_rates(sxc_cli *cli, const sx_device *device, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, cli->cx, "TYPE|UNIT|>TFLOP/S|>FLOP/BYTE|SOURCE");
    for (uint32_t i = 0; i <= device->rate_count; i++) {
        shown_rate shown = rate_at(device, i);
        sxc_table_put(&table, "%s", sx_dtype_name(shown.rate.dtype));
        sxc_table_put(&table, "%s", sx_unit_name(shown.rate.unit));
        sxc_table_put(&table, "%.5g", shown.rate.flops_per_ns / 1e3);
        sxc_table_put(&table, "%.3g", shown.rate.flops_per_ns / device->memory_bytes_per_ns);
        sxc_table_put(&table, "%s", rate_source(device, &shown));
    }
    return sxc_table_print(&table, out);
}

static sx_code put_limits(sxc_cli *cli, const sx_device *device, sx_buf *out)
{
    sxc_table table;
    block_limit limit;
    sxc_table_init(
        &table, cli->cx,
        ">THREADS OF A BLOCK|>REGISTERS OF EACH|>SUCH BLOCKS ON A CORE|>WITH 32 REGISTERS");
    for (uint32_t i = 0; limit_at(device, i, &limit); i++) {
        sxc_table_put(&table, "%u", limit.threads);
        sxc_table_put(&table, "%u", limit.registers);
        sxc_table_put(&table, "%u", limit.blocks_full);
        sxc_table_put(&table, "%u", limit.blocks);
    }
    return device->block_threads > 0 ? sxc_table_print(&table, out) : SX_OK;
}

static sx_code put_shown(sxc_cli *cli, const sx_device *device, sx_buf *out)
{
    sx_buf types;
    sx_buf_init(&types, 4096);
    put_types(device, &types);
    sxc_put_line(out, "device", sx_span_of(device->name));
    sxc_put_line(out, "is", sx_span_of(device->text));
    sx_buf_print(out, "%-10s %s, %s here\n", "code",
                 device->target != NULL ? device->target : "none", here_of(device));
    sxc_put_line(out, "computes", sx_buf_span(&types));
    sx_buf_fini(&types);
    sx_buf_put_u8(out, '\n');
    SX_TRY(put_constants(cli, device, out));
    sx_buf_put_text(out, "\nrates of the whole device, and the operations for each byte of memory "
                         "from which they bind\n");
    SX_TRY(put_rates(cli, device, out));
    if (device->block_threads > 0) {
        sx_buf_put_u8(out, '\n');
    }
    return put_limits(cli, device, out);
}

static void json_shown(const sx_device *device, sx_buf *json)
{
    sx_device_value value;
    block_limit limit;
    sxc_json_begin(json, "target");
    json_device(json, "device", device);
    sxc_json_open(json, "constants", '[');
    for (uint32_t i = 0; sx_device_value_of(device, i, &value); i++) {
        if (value.number > 0) {
            sxc_json_open(json, NULL, '{');
            sxc_json_text(json, "name", sx_span_of(value.words));
            sxc_json_text(json, "value", sx_span_of(value.value));
            sxc_json_text(json, "allowed", sx_span_of(value.range));
            sxc_json_text(json, "meaning", sx_span_of(value.help));
            sxc_json_text(json, "source", sx_span_of(value.source));
            sxc_json_close(json, '}');
        }
    }
    sxc_json_close(json, ']');
    sxc_json_open(json, "rates", '[');
    for (uint32_t i = 0; i <= device->rate_count; i++) {
        shown_rate shown = rate_at(device, i);
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "type", sx_span_of(sx_dtype_name(shown.rate.dtype)));
        sxc_json_text(json, "unit", sx_span_of(sx_unit_name(shown.rate.unit)));
        sxc_json_real(json, "gflop_per_s", shown.rate.flops_per_ns);
        sxc_json_real(json, "flop_per_byte", shown.rate.flops_per_ns / device->memory_bytes_per_ns);
        sxc_json_text(json, "source", sx_span_of(rate_source(device, &shown)));
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    sxc_json_open(json, "blocks", '[');
    for (uint32_t i = 0; limit_at(device, i, &limit); i++) {
        sxc_json_open(json, NULL, '{');
        sxc_json_int(json, "threads", limit.threads);
        sxc_json_int(json, "registers", limit.registers);
        sxc_json_int(json, "resident", limit.blocks_full);
        sxc_json_int(json, "resident_with_32_registers", limit.blocks);
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    sxc_json_end(json);
}

/* ---- the commands ---- */

/* The device that a name or --device gives; NULL: neither is given. */
static sx_code choose_device(sxc_cli *cli, const sx_device **device)
{
    sx_span canonical;
    SX_TRY(sxc_read_device(cli, device, &canonical));
    if (*device != NULL && cli->argument_count > 0) {
        return SX_FAIL(cli->cx, SX_USAGE, "a name and --device exclude each other");
    }
    return cli->argument_count > 0 ? sx_device_find(cli->cx, sx_span_of(cli->argument[0]), device)
                                   : SX_OK;
}

sx_code sxc_cmd_targets_show(sxc_cli *cli)
{
    const sx_device *device;
    SX_TRY(choose_device(cli, &device));
    if (device == NULL) {
        return SX_FAIL(cli->cx, SX_USAGE, "it needs NAME or --device FILE");
    }
    sx_buf out;
    sx_buf_init(&out, FILE_BYTES_MAX);
    sx_code code = SX_OK;
    if (cli->json) {
        json_shown(device, &out);
    } else {
        code = put_shown(cli, device, &out);
    }
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&out);
    return code;
}

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
    const sx_device *device;
    SX_TRY(choose_device(cli, &device));
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
