/* cmd_plot.c - plot roofline: the kernels of a module under the roofs of its device, as a picture or as numbers. */
#include <string.h>

#include "client/cli/cmd_compile.h"
#include "client/cli/cmd_module.h"
#include "client/cli/entry.h"
#include "client/cli/estimate.h"
#include "client/cli/layers.h"
#include "client/json_scan.h"
#include "client/plot/roofline.h"
#include "client/source.h"

#define TIMES_BYTES_MAX ((size_t)64 << 20)
#define PICTURE_BYTES_MAX ((size_t)64 << 20)

typedef struct {
    sxc_cli *cli;
    const sx_module *module;
    const sx_module_variant *variant;
    sxc_estimate estimate;
    /* [kernels, then kinds of launches without one] */
    sxc_roof_point *point;
    uint32_t count;
    /* Of --times: nanoseconds of each launch of the variant, its threads, whether a GPU ran it. NULL: estimates. */
    double *launch_ns;
    uint32_t threads;
    bool gpu;
    sx_device scaled; /* the device with as many cores as the run had threads */
    sxc_roofline line;
} plot;

/* ---- which variant ---- */

static sx_code read_extent(plot *p, uint32_t symbol, int64_t *value)
{
    const sx_binding *binding;
    uint32_t count;
    sx_span name = sx_module_string(p->module, p->module->symbol[symbol].name);
    SX_TRY(sxc_read_dims(p->cli, &binding, &count));
    bool given = false;
    for (uint32_t i = 0; i < count; i++) {
        if (sx_span_equal(binding[i].name, name)) {
            *value = binding[i].value;
            given = true;
        }
    }
    if (given && sx_module_symbol_has(p->module, symbol, *value)) {
        return SX_OK;
    }
    sx_buf values;
    sx_buf_init(&values, 200);
    sx_module_symbol_print(p->module, symbol, &values);
    sx_hint(p->cli->cx, "The module serves %.*s.", (int)values.len, (const char *)values.ptr);
    sx_buf_fini(&values);
    return SX_FAIL(p->cli->cx, SX_USAGE, "dimension %.*s has %s: --dim %.*s=N", (int)name.len,
                   (const char *)name.ptr, given ? "another value" : "no value", (int)name.len,
                   (const char *)name.ptr);
}

/* The only variant, or that of --dim on the best machine. */
static sx_code pick_variant(plot *p)
{
    const sx_module *m = p->module;
    sx_arch_set any;
    uint32_t index = 0;
    int64_t value[SX_SYMBOLS_MAX];
    memset(&any, 0xff, sizeof(any));
    if (m->variant_count == 0) {
        return SX_FAIL(p->cli->cx, SX_INPUT, "a module without kernels, as optimize makes");
    }
    SX_ASSERT(m->symbol_count <= SX_SYMBOLS_MAX);
    for (uint32_t i = 0; i < m->symbol_count && m->variant_count > 1; i++) {
        value[i] = sx_module_symbol_low(m, i);
        if (!sx_module_symbol_fixed(m, i)) {
            SX_TRY(read_extent(p, i, &value[i]));
        }
    }
    if (m->variant_count > 1) {
        index = sx_module_pick(m, value, &any);
        SX_ASSERT(index != SX_MODULE_NONE);
    }
    p->variant = &m->variant[index];
    return SX_OK;
}

/* ---- times of a run ---- */

/* One launch of the file, which must be launch `index` of the variant. */
static sx_code read_launch(plot *p, sxc_scan *scan, uint32_t index)
{
    bool more;
    sx_span key, name = {NULL, 0};
    double ns = -1;
    SX_TRY(sxc_scan_open(scan, '{', '}', "a launch expected", &more));
    while (more) {
        SX_TRY(sxc_scan_key(scan, &key));
        SX_TRY(sx_span_is(key, "kernel") ? sxc_scan_text(scan, &name)
               : sx_span_is(key, "ns")   ? sxc_scan_number(scan, &ns)
                                         : sxc_scan_skip(scan));
        SX_TRY(sxc_scan_more(scan, '}', &more));
    }
    if (index >= p->variant->launch_count) {
        return SX_FAIL(p->cli->cx, SX_INPUT, "more launches than the %u of the module",
                       p->variant->launch_count);
    }
    const sx_module_kernel *kernel =
        sx_module_kernel_of(p->module, p->variant->launch_first + index);
    sx_span own = kernel != NULL ? sx_module_string(p->module, kernel->name) : (sx_span){NULL, 0};
    if (!sx_span_equal(own, name) || !(ns >= 0 && ns < 1e18)) {
        return SX_FAIL(p->cli->cx, SX_INPUT,
                       "launch %u is of kernel '%.*s' with %g ns, that of the module is of '%.*s'",
                       index, (int)sx_min_i64((int64_t)name.len, 60), (const char *)name.ptr, ns,
                       (int)sx_min_i64((int64_t)own.len, 60), (const char *)own.ptr);
    }
    p->launch_ns[index] = ns > 0 ? ns : 1; /* shorter than what the clock tells */
    return SX_OK;
}

static sx_code read_field(plot *p, sxc_scan *scan, sx_span key, uint32_t *launches)
{
    sx_span text;
    double number;
    bool more;
    if (sx_span_is(key, "threads")) {
        SX_TRY(sxc_scan_number(scan, &number));
        p->threads = number >= 1 && number <= 65536 ? (uint32_t)number : 0;
        return SX_OK;
    }
    if (sx_span_is(key, "gpu")) {
        p->gpu = true;
        return sxc_scan_text(scan, &text);
    }
    if (!sx_span_is(key, "launches")) {
        return sxc_scan_skip(scan);
    }
    SX_TRY(sxc_scan_open(scan, '[', ']', "a list of launches expected", &more));
    while (more) {
        SX_TRY(read_launch(p, scan, (*launches)++));
        SX_TRY(sxc_scan_more(scan, ']', &more));
    }
    return SX_OK;
}

static sx_code parse_times(plot *p, sx_span text)
{
    sxc_scan scan = sxc_scan_of(p->cli->cx, text);
    uint32_t launches = 0;
    bool more;
    SX_TRY(sxc_scan_open(&scan, '{', '}', "an object expected", &more));
    while (more) {
        sx_span key;
        SX_TRY(sxc_scan_key(&scan, &key));
        SX_TRY(read_field(p, &scan, key, &launches));
        SX_TRY(sxc_scan_more(&scan, '}', &more));
    }
    if (launches != p->variant->launch_count || p->threads == 0) {
        return SX_FAIL(p->cli->cx, SX_INPUT,
                       "%u launches with %u threads, the module has %u launches", launches,
                       p->threads, p->variant->launch_count);
    }
    return SX_OK;
}

/* --times: what run --json printed. */
static sx_code read_times(plot *p)
{
    sx_ctx *cx = p->cli->cx;
    const char *path = sxc_value(p->cli, SXC_TIMES);
    if (path == NULL) {
        return SX_OK;
    }
    p->launch_ns = SX_NEW_ARRAY(cx, double, (size_t)p->variant->launch_count + 1);
    if (p->launch_ns == NULL) {
        return cx->error.code;
    }
    sx_buf text;
    sx_buf_init(&text, TIMES_BYTES_MAX);
    sx_code code = sxc_read_text(cx, path, &text);
    sx_span copy = {NULL, 0};
    if (code == SX_OK) {
        copy = sx_span_of(sx_alloc_text(cx, sx_buf_span(&text)));
        code = copy.ptr != NULL ? SX_OK : cx->error.code;
    }
    sx_buf_fini(&text);
    if (code == SX_OK && parse_times(p, copy) != SX_OK) {
        sx_hint(cx, "--times takes what 'symplex-client run MODULE --json' prints of this module.");
        return sx_fail_in(cx, "%.200s", path);
    }
    return code;
}

/* ---- which device ---- */

static sx_code choose_device(plot *p)
{
    sx_ctx *cx = p->cli->cx;
    const char *name = sxc_target_name(p->cli);
    const sx_device *device;
    sx_span canonical, own = sx_module_string(p->module, p->module->info->target);
    const sx_device *of_module = sxc_device_of(own);
    SX_TRY(sxc_read_device(p->cli, &device, &canonical));
    if (device != NULL && name != NULL) {
        return SX_FAIL(cx, SX_USAGE, "--target and --device exclude each other");
    }
    if (name != NULL) {
        SX_TRY(sx_device_find(cx, sx_span_of(name), &device));
    }
    p->line.device = device != NULL ? device : of_module;
    if (p->line.device == NULL) {
        sx_hint(cx, "--device FILE says what the device offers.");
        return SX_FAIL(cx, SX_USAGE, "the module is for %.*s, which is no row of targets",
                       (int)sx_min_i64((int64_t)own.len, 60), (const char *)own.ptr);
    }
    const char *estimated = of_module != NULL ? of_module->name : NULL;
    bool same = estimated != NULL ? strcmp(p->line.device->name, estimated) == 0
                                  : sx_span_is(own, p->line.device->name);
    if (!same && p->launch_ns == NULL) {
        sx_hint(cx, "Compile for it, or give --times of a run there.");
        return SX_FAIL(cx, SX_USAGE, "the estimates of the module are for %.*s, not for %s",
                       (int)sx_min_i64((int64_t)own.len, 60), (const char *)own.ptr,
                       p->line.device->name);
    }
    return SX_OK;
}

/* A run on a processor had as many cores as threads. */
static void scale_device(plot *p)
{
    const sx_device *device = p->line.device;
    if (p->launch_ns == NULL || p->gpu || device->block_threads > 0 ||
        p->threads == device->cores) {
        return;
    }
    p->scaled = *device;
    p->scaled.cores = p->threads;
    for (uint32_t i = 0; i < device->rate_count; i++) {
        p->scaled.rate[i].flops_per_ns *= (double)p->threads / device->cores;
    }
    p->line.device = &p->scaled;
}

/* ---- points ---- */

static sx_code add_launch(plot *p, const sxc_layers *layers, uint32_t index)
{
    const sx_module *m = p->module;
    uint64_t launch = p->variant->launch_first + index;
    const sx_module_kernel *kernel = sx_module_kernel_of(m, launch);
    uint32_t row = kernel != NULL ? m->launch[launch].kernel
                                  : (uint32_t)m->kernel_count + m->launch[launch].kind;
    sxc_roof_point *point = &p->point[row];
    double ns = p->launch_ns != NULL ? p->launch_ns[index]
                : kernel != NULL     ? p->estimate.cost_ns[row]
                                     : 0;
    if (m->launch[launch].prologue != 0 || !(ns > 0)) {
        return SX_OK;
    }
    if (point->launches == 0) {
        const sx_origin *layer = sxc_layers_main(layers, launch);
        sx_span work = sx_span_of(sx_module_work_name(m, launch));
        *point = (sxc_roof_point){.name = kernel != NULL ? sx_module_string(m, kernel->name) : work,
                                  .kind = work,
                                  .layer = layer != NULL ? layer->name : (sx_span){NULL, 0},
                                  .flops = kernel != NULL ? kernel->flops : 0,
                                  .bytes = kernel != NULL ? kernel->bytes : 0,
                                  .roof_ns = kernel != NULL ? p->estimate.floor_ns[row] : 0};
    }
    point->ns += (ns - point->ns) / (point->launches + 1); /* the mean of its launches */
    point->launches++;
    return SX_OK;
}

/* Kernels that a run launches, dearest first. */
static sx_code make_points(plot *p)
{
    sx_ctx *cx = p->cli->cx;
    size_t rows = (size_t)p->module->kernel_count + SX_LAUNCH_KIND_COUNT;
    sxc_layers layers;
    SX_TRY(sxc_layers_find(cx, p->module, &layers));
    p->point = SX_NEW_ARRAY(cx, sxc_roof_point, rows);
    if (p->point == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < p->variant->launch_count; i++) {
        SX_TRY(add_launch(p, &layers, i));
    }
    bool shown = false;
    for (size_t k = 0; k < rows; k++) {
        sxc_roof_point moved = p->point[k];
        if (moved.launches == 0) {
            continue;
        }
        uint32_t at = p->count++;
        for (;
             at > 0 && p->point[at - 1].ns * p->point[at - 1].launches < moved.ns * moved.launches;
             at--) {
            p->point[at] = p->point[at - 1];
        }
        p->point[at] = moved;
        shown = shown || sxc_roof_shown(&moved);
    }
    return shown ? SX_OK
                 : SX_FAIL(cx, SX_INPUT,
                           "no kernel of a run computes and moves memory: there is "
                           "nothing to plot");
}

/* Roofs of kernels are those of the module's own device, on the cores that the run had. */
static sx_code make_estimate(plot *p)
{
    sxc_record record;
    const sx_device *own = sxc_device_of(sx_module_string(p->module, p->module->info->target));
    uint32_t cores = own != NULL ? own->cores : 1;
    uint32_t wanted = p->launch_ns != NULL && !p->gpu ? p->threads : cores;
    SX_TRY(sxc_record_read(p->cli->cx, p->module, sxc_value(p->cli, SXC_SOCKET), &record));
    SX_TRY(sxc_estimate_make(p->cli->cx, p->module, &record, wanted, &p->estimate));
    bool known = own == NULL || strcmp(own->name, p->line.device->name) == 0;
    known = known && (p->estimate.adapted || wanted == cores);
    for (uint64_t k = 0; k < p->module->kernel_count && !known; k++) {
        p->estimate.floor_ns[k] = 0;
    }
    return SX_OK;
}

/* ---- output ---- */

static void json_points(const plot *p, sx_buf *json)
{
    double total = sxc_roof_total_ns(&p->line);
    sxc_json_open(json, "kernels", '[');
    for (uint32_t i = 0; i < p->count; i++) {
        const sxc_roof_point *point = &p->point[i];
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "name", point->name);
        sxc_json_text(json, "kind", point->kind);
        sxc_json_text(json, "layer", point->layer);
        sxc_json_int(json, "launches", point->launches);
        sxc_json_real(json, "flops", point->flops);
        sxc_json_real(json, "bytes", point->bytes);
        sxc_json_real(json, "ns", point->ns);
        sxc_json_real(json, "share", point->ns * point->launches / total);
        if (point->roof_ns > 0) {
            sxc_json_real(json, "roof_ns", point->roof_ns);
        }
        if (sxc_roof_shown(point)) {
            sxc_json_real(json, "flop_per_byte", point->flops / point->bytes);
            sxc_json_real(json, "gflop_per_s", point->flops / point->ns);
        }
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
}

static sx_code print_json(const plot *p)
{
    sxc_roof roof[SX_RATES_MAX + 1];
    uint32_t count = sxc_roofs_of(p->line.device, roof);
    sx_buf json;
    sx_buf_init(&json, PICTURE_BYTES_MAX);
    sxc_json_begin(&json, "plot-roofline");
    sxc_json_text(&json, "title", p->line.title);
    sxc_json_text(&json, "device", sx_span_of(p->line.device->name));
    sxc_json_int(&json, "cores", p->line.device->cores);
    sxc_json_text(&json, "times", sx_span_of(p->line.measured ? "measured" : "estimated"));
    sxc_json_real(&json, "memory_gb_per_s", p->line.device->memory_bytes_per_ns);
    sxc_json_open(&json, "roofs", '[');
    for (uint32_t k = 0; k < count; k++) {
        sxc_json_open(&json, NULL, '{');
        sxc_json_text(&json, "name", sx_span_of(roof[k].text));
        sxc_json_real(&json, "gflop_per_s", roof[k].flops_per_ns);
        sxc_json_close(&json, '}');
    }
    sxc_json_close(&json, ']');
    json_points(p, &json);
    sxc_json_end(&json);
    sx_code code = sxc_put(p->cli, &json);
    sx_buf_fini(&json);
    return code;
}

static sx_code draw(const plot *p, const char *path)
{
    sx_buf picture;
    sx_buf_init(&picture, PICTURE_BYTES_MAX);
    sxc_roofline_svg(&p->line, &picture);
    sx_code code = sx_buf_check(p->cli->cx, &picture, "picture");
    if (code == SX_OK) {
        code = path != NULL ? sxc_write_file(p->cli->cx, path, sx_buf_span(&picture))
                            : sxc_put(p->cli, &picture);
    }
    sx_buf_fini(&picture);
    return code;
}

static sx_code make_title(plot *p)
{
    const sx_module *m = p->module;
    sx_buf title;
    sx_buf_init(&title, 65536);
    sx_buf_put_span(&title, sx_module_string(m, m->info->name));
    if (p->variant->name.size > 0) {
        sx_buf_put_text(&title, " ");
        sx_buf_put_span(&title, sx_module_string(m, p->variant->name));
    }
    const sx_device *device = p->line.device;
    sx_buf_print(&title, " on %s, %u core%s", device->name, device->cores,
                 device->cores == 1 ? "" : "s");
    sx_code code = sx_buf_check(p->cli->cx, &title, "title");
    const char *copy = code == SX_OK ? sx_alloc_text(p->cli->cx, sx_buf_span(&title)) : NULL;
    p->line.title = sx_span_of(copy);
    sx_buf_fini(&title);
    return code == SX_OK && copy == NULL ? p->cli->cx->error.code : code;
}

static sx_code make(plot *p)
{
    const char *path = sxc_value(p->cli, SXC_OUTPUT);
    if (path != NULL) {
        SX_TRY(sxc_check_output(p->cli->cx, path));
    }
    SX_TRY(pick_variant(p));
    SX_TRY(read_times(p));
    SX_TRY(choose_device(p));
    scale_device(p);
    SX_TRY(make_estimate(p));
    SX_TRY(make_points(p));
    SX_TRY(make_title(p));
    p->line.measured = p->launch_ns != NULL;
    p->line.point = p->point;
    p->line.count = p->count;
    if (path != NULL || !p->cli->json) {
        SX_TRY(draw(p, path));
    }
    return p->cli->json ? print_json(p) : SX_OK;
}

sx_code sxc_cmd_plot_roofline(sxc_cli *cli)
{
    sxc_module_file file;
    plot p = {.cli = cli};
    const char *name = cli->argument[0];
    SX_TRY(sxc_entry_is_file(name) ? sxc_module_file_open(cli->cx, name, true, &file)
                                   : sxc_entry_open(cli, name, &file));
    p.module = &file.module;
    sx_code code = make(&p);
    sxc_module_file_close(&file);
    return code;
}
