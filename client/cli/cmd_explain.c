/* cmd_explain.c - explain: what the compiler did to a program, from the report that the module carries; a
 * file, or an entry of the cache. */
#include <stdio.h>
#include <string.h>

#include "client/cli/cmd_module.h"
#include "client/cli/cubins.h"
#include "client/cli/estimate.h"
#include "client/cli/entry.h"
#include "client/cli/layers.h"
#include "client/cli/machine.h"
#include "client/cli/maps.h"
#include "client/cli/table.h"
#include "core/base/grid.h"
#include "core/cost/cost.h"

#define TEXT_BYTES_MAX ((size_t)256 << 20)

static sx_span text_of(const sx_module *module, sx_module_text text)
{
    return sx_module_string(module, text);
}

/* ---- for people, everything ---- */

static void put_totals(const sx_module *module, const sxc_estimate *estimate, sx_buf *out)
{
    const sx_module_info *info = module->info;
    char before[32], key[SX_KEY_TEXT_SIZE];
    sxc_human_ns(info->input_cost_ns, before);
    sxc_module_key(module, key);
    sxc_put_line(out, "program", text_of(module, info->name));
    sxc_put_line(out, "target", text_of(module, info->target));
    sxc_put_line(out, "key", sx_span_of(key));
    sxc_put_line(out, "compiler", text_of(module, info->toolchain));
    sxc_estimate_print(module, estimate, out);
    if (info->input_cost_ns > 0) {
        sxc_estimate_print_before(estimate, before, out);
    }
    sx_buf_print(out, "\nwork       %.4g MFLOP\n", info->flops / 1e6);
}

static sx_code put_stages(sx_ctx *cx, const sx_module *module, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, cx, "STAGE|>ITEMS|>FUEL|STOP");
    for (uint64_t i = 0; i < module->stage_count; i++) {
        const sx_module_stage *stage = &module->stage[i];
        sxc_table_put_span(&table, text_of(module, stage->name));
        sxc_table_put(&table, "%llu", (unsigned long long)stage->items);
        sxc_table_put(&table, "%llu", (unsigned long long)stage->fuel);
        sxc_table_put_span(&table, text_of(module, stage->stop));
    }
    sx_buf_put_u8(out, '\n');
    return sxc_table_print(&table, out);
}

static sx_code put_search(sx_ctx *cx, const sx_module *module, sx_buf *out)
{
    for (uint64_t i = 0; i < module->search_count; i++) {
        const sx_module_search *search = &module->search[i];
        char cost[32], bound[32];
        sxc_human_ns(search->cost_ns, cost);
        sxc_human_ns(search->bound_ns, bound);
        sx_span stop = text_of(module, search->stop);
        sx_buf_print(out,
                     "\nsearch     %llu nodes in %llu classes after %llu rounds, %llu fuel; "
                     "stopped: %.*s\n",
                     (unsigned long long)search->nodes, (unsigned long long)search->classes,
                     (unsigned long long)search->rounds, (unsigned long long)search->fuel,
                     (int)stop.len, (const char *)stop.ptr);
        if (search->uses > search->parts) {
            sx_buf_print(out, "parts      %llu distinct, used %llu times\n",
                         (unsigned long long)search->parts, (unsigned long long)search->uses);
        }
        sx_buf_print(out, "extracted  %s by the model of single kernels%s%s%s\n", cost,
                     search->bound_ns > 0 ? ", at least " : "", search->bound_ns > 0 ? bound : "",
                     search->proven != 0 ? ": proven least" : "");
    }
    if (module->rule_count == 0) {
        return SX_OK;
    }
    sxc_table table;
    sxc_table_init(&table, cx, "RULE|CLASS|>MATCHES|>UNIONS");
    for (uint64_t i = 0; i < module->rule_count; i++) {
        const sx_module_rule *rule = &module->rule[i];
        sxc_table_put_span(&table, text_of(module, rule->name));
        sxc_table_put_span(&table, text_of(module, rule->rule_class));
        sxc_table_put(&table, "%llu", (unsigned long long)rule->matches);
        sxc_table_put(&table, "%llu", (unsigned long long)rule->unions);
    }
    sx_buf_put_u8(out, '\n');
    return sxc_table_print(&table, out);
}

/* Rewrites that name the rule: their list is names between commas. */
static uint64_t count_uses(const sx_module *module, sx_span rule)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < module->rewrite_count; i++) {
        sx_span list = text_of(module, module->rewrite[i].rule);
        for (size_t first = 0, k = 0; k <= list.len; k++) {
            if (k == list.len || list.ptr[k] == ',') {
                count += sx_span_equal((sx_span){list.ptr + first, k - first}, rule) ? 1 : 0;
                first = k + 2; /* ", " */
            }
        }
    }
    return count;
}

/* The rules used that do not keep the range of intermediate values: their class says so after a comma. */
void sxc_put_range(const sx_module *module, const char *before, sx_buf *out)
{
    bool any = false;
    for (uint64_t i = 0; i < module->rule_count; i++) {
        sx_span name = text_of(module, module->rule[i].name);
        sx_span class_ = text_of(module, module->rule[i].rule_class);
        size_t comma = 0;
        while (comma < class_.len && class_.ptr[comma] != ',') {
            comma++;
        }
        uint64_t uses = comma < class_.len ? count_uses(module, name) : 0;
        if (uses > 0) {
            sx_buf_print(out, "%s%s%.*s (%.*s) %llu", any ? "" : before, any ? ", " : "range      ",
                         (int)name.len, (const char *)name.ptr, (int)(class_.len - comma - 2),
                         (const char *)class_.ptr + comma + 2, (unsigned long long)uses);
            any = true;
        }
    }
    sx_buf_put_text(out, any ? "\n" : "");
}

static void put_rewrites(const sx_module *module, sx_buf *out)
{
    sx_buf_print(out, "\n%llu rewrites\n", (unsigned long long)module->rewrite_count);
    for (uint64_t i = 0; i < module->rewrite_count; i++) {
        const sx_module_rewrite *rewrite = &module->rewrite[i];
        sx_buf_print(out, "%4llu  ", (unsigned long long)i + 1);
        sxc_put_plain(out, text_of(module, rewrite->rule));
        sx_buf_put_text(out, "\n      - ");
        sxc_put_plain(out, text_of(module, rewrite->before));
        sx_buf_put_text(out, "\n      + ");
        sxc_put_plain(out, text_of(module, rewrite->after));
        sx_buf_put_u8(out, '\n');
    }
}

/* Layers of a model that are equal share their kernels. */
static uint64_t count_launches(const sx_module *module, uint64_t kernel)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < module->launch_count; i++) {
        count += module->launch[i].kernel == kernel ? 1 : 0;
    }
    return count;
}

static bool is_prologue(const sx_module *module, uint64_t kernel)
{
    for (uint64_t i = 0; i < module->launch_count; i++) {
        if (module->launch[i].kernel == kernel && !module->launch[i].prologue) {
            return false;
        }
    }
    return true;
}

static void put_if_any(sx_buf *out, const char *label, sx_span text)
{
    if (text.len > 0) {
        sxc_put_line(out, label, text);
    }
}

/* Results of what is prepared for another launch are those of no node. */
static uint32_t nodes_of(const sx_module_kernel *kernel)
{
    return kernel->kind == SX_MODULE_PACK ? 1 : kernel->result_count;
}

/* Where fewer blocks than tiles are launched, and walk over them. */
static void put_walk(const sx_module *module, const sx_module_kernel *kernel, sx_buf *out)
{
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const sx_module_part *part = &module->part[kernel->part_first + p];
        char text[160];
        uint32_t blocks[3];
        if (part->walkers > 0) {
            sx_grid_launched_by(part->grid, part->walkers, blocks);
            (void)snprintf(text, sizeof(text),
                           "%u blocks walk over %lld tiles: the first stages of the next one come "
                           "while results are stored",
                           blocks[0], (long long)(part->grid[0] * part->grid[1] * part->grid[2]));
            sxc_put_line(out, "  launch", sx_span_of(text));
        }
    }
}

/* Where blocks are clusters, which their schedule says. */
static void put_clusters(sx_span plan, sx_buf *out)
{
    static const char said[] = " cluster(";
    size_t length = sizeof(said) - 1;
    bool found = false;
    for (size_t i = 0; !found && i + length <= plan.len; i++) {
        found = memcmp(plan.ptr + i, said, length) == 0;
    }
    if (found) {
        sxc_put_line(
            out, "  launch",
            sx_span_of("clusters of 2 blocks side by side: each fetches half of the factor "
                       "that they share, for both"));
    }
}

static sx_code put_kernels(sx_ctx *cx, const sx_module *module, const sxc_estimate *e, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(
        &table, cx,
        ">KERNEL|KIND|WHEN|>LAUNCHES|>ESTIMATE US|>FLOOR US|>RATIO|>MFLOP|>KBYTES|>PLANS|NUMERICS|"
        "NAME");
    for (uint64_t i = 0; i < module->kernel_count; i++) {
        const sx_module_kernel *kernel = &module->kernel[i];
        sxc_table_put(&table, "%llu", (unsigned long long)i);
        sxc_table_put(&table, "%s", sx_module_kernel_kind_name(kernel->kind));
        sxc_table_put(&table, "%s", is_prologue(module, i) ? "load" : "run");
        sxc_table_put(&table, "%llu", (unsigned long long)count_launches(module, i));
        sxc_table_put(&table, "%.2f", e->cost_ns[i] / 1e3);
        sxc_table_put(&table, "%.2f", e->floor_ns[i] / 1e3);
        sxc_table_put(&table, "%.2f", e->floor_ns[i] > 0 ? e->cost_ns[i] / e->floor_ns[i] : 0.0);
        sxc_table_put(&table, "%.3f", kernel->flops / 1e6);
        sxc_table_put(&table, "%.1f", kernel->bytes / 1e3);
        sxc_table_put(&table, "%u", kernel->candidates);
        sxc_table_put(&table, "%016llx", (unsigned long long)kernel->numerics);
        sxc_table_put_span(&table, text_of(module, kernel->name));
    }
    sx_buf_put_u8(out, '\n');
    SX_TRY(sxc_table_print(&table, out));
    for (uint64_t i = 0; i < module->kernel_count; i++) {
        const sx_module_kernel *kernel = &module->kernel[i];
        sx_buf_print(out, "\nkernel %llu", (unsigned long long)i);
        if (kernel->node != SX_MODULE_NONE) { /* else a copy, or of a body */
            sx_buf_print(out, ", node%s %%%u", nodes_of(kernel) > 1 ? "s" : "", kernel->node);
        }
        for (uint32_t k = 1; k < nodes_of(kernel); k++) {
            sx_buf_print(out, " %%%u", kernel->other[k - 1]);
        }
        sx_buf_put_u8(out, '\n');
        sxc_put_line(out, "  program", text_of(module, kernel->what));
        put_if_any(out, "  plan", text_of(module, kernel->plan));
        put_if_any(out, "  legal", text_of(module, kernel->verdict));
        put_walk(module, kernel, out);
        put_clusters(text_of(module, kernel->plan), out);
        sxc_put_maps(module, kernel, out);
    }
    return SX_OK;
}

static sx_code explain_text(sx_ctx *cx, const sx_module *module, const sxc_record *record,
                            sx_buf *out)
{
    sxc_estimate estimate;
    SX_TRY(sxc_estimate_make(cx, module, record, 0, &estimate));
    put_totals(module, &estimate, out);
    SX_TRY(sxc_sharding_text(cx, module, out));
    SX_TRY(put_stages(cx, module, out));
    SX_TRY(put_search(cx, module, out));
    sxc_put_range(module, "\n", out);
    put_rewrites(module, out);
    SX_TRY(put_kernels(cx, module, &estimate, out));
    SX_TRY(sxc_put_checks(cx, module, record, out));
    return sx_buf_check(cx, out, "explanation");
}

/* ---- JSON ---- */

static void json_kernel(const sx_module *module, uint64_t index, sx_buf *json)
{
    const sx_module_kernel *kernel = &module->kernel[index];
    char numerics[20];
    (void)snprintf(numerics, sizeof(numerics), "%016llx", (unsigned long long)kernel->numerics);
    sxc_json_open(json, NULL, '{');
    sxc_json_text(json, "name", text_of(module, kernel->name));
    sxc_json_text(json, "kind", sx_span_of(sx_module_kernel_kind_name(kernel->kind)));
    sxc_json_bool(json, "prologue", is_prologue(module, index));
    sxc_json_int(json, "launches", (int64_t)count_launches(module, index));
    sxc_json_int(json, "node", kernel->node);
    sxc_json_open(json, "nodes", '[');
    sxc_json_int(json, NULL, kernel->node);
    for (uint32_t k = 1; k < nodes_of(kernel); k++) {
        sxc_json_int(json, NULL, kernel->other[k - 1]);
    }
    sxc_json_close(json, ']');
    sxc_json_text(json, "program", text_of(module, kernel->what));
    sxc_json_text(json, "plan", text_of(module, kernel->plan));
    sxc_json_text(json, "legal", text_of(module, kernel->verdict));
    sxc_json_text(json, "numerics", sx_span_of(numerics));
    sxc_json_int(json, "plans", kernel->candidates);
    sxc_json_cubins(module, kernel, json);
    sxc_json_real(json, "flops", kernel->flops);
    sxc_json_real(json, "bytes", kernel->bytes);
    sxc_json_real(json, "estimate_ns", kernel->cost_ns);
    sxc_json_real(json, "floor_ns", kernel->floor_ns);
    if (kernel->floor_ns > 0) {
        sxc_json_real(json, "ratio", kernel->cost_ns / kernel->floor_ns);
    }
    sxc_json_close(json, '}');
}

/* Which nodes of the model each launch does the work of. */
static sx_code json_launches(sx_ctx *cx, sx_buf *json, const sx_module *module)
{
    sxc_layers layers;
    SX_TRY(sxc_layers_find(cx, module, &layers));
    sxc_json_open(json, "launches", '[');
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_origin **origin;
        uint32_t count;
        SX_TRY(sxc_layers_of_launch(cx, &layers, i, &origin, &count));
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "kind", sx_span_of(sx_module_launch_name(module->launch[i].kind)));
        if (sx_module_kernel_of(module, i) != NULL) {
            sxc_json_int(json, "kernel", module->launch[i].kernel);
        }
        sxc_json_bool(json, "prologue", module->launch[i].prologue != 0);
        sxc_json_open(json, "nodes", '[');
        for (uint32_t k = 0; k < count; k++) {
            sxc_json_open(json, NULL, '{');
            sxc_json_text(json, "name", origin[k]->name);
            sxc_json_text(json, "op", origin[k]->op);
            sxc_json_close(json, '}');
        }
        sxc_json_close(json, ']');
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    return SX_OK;
}

/* What the estimates are for. */
static void json_machine(sx_buf *json, const sx_module *module)
{
    const sx_device *device = sxc_device_of(text_of(module, module->info->target));
    if (device == NULL) {
        return;
    }
    sxc_json_open(json, "estimated_for", '{');
    sxc_json_text(json, "name", sx_span_of(device->name));
    sxc_json_int(json, "cores", device->cores);
    sxc_json_real(json, "ghz", device->ghz);
    sxc_json_real(json, "memory_gb_per_s", device->memory_bytes_per_ns);
    sxc_json_int(json, "cores_here", sxc_cores());
    sxc_json_close(json, '}');
}

static sx_code explain_json(sx_ctx *cx, const sx_module *module, const sxc_record *record,
                            sx_buf *json)
{
    const sx_module_info *info = module->info;
    sxc_json_begin(json, "explain");
    sxc_json_module_info(json, module);
    sxc_json_real(json, "flops", info->flops);
    sxc_json_real(json, "estimate_ns", info->cost_ns);
    sxc_json_real(json, "floor_ns", info->floor_ns);
    sxc_estimate here;
    SX_TRY(sxc_estimate_make(cx, module, record, 0, &here));
    if (here.adapted) {
        sxc_json_real(json, "estimate_here_ns", here.run_cost_ns);
        sxc_json_real(json, "floor_here_ns", here.run_floor_ns);
    }
    sxc_json_real(json, "input_estimate_ns", info->input_cost_ns);
    json_machine(json, module);
    sxc_report_json(json, module);
    sxc_json_open(json, "kernels", '[');
    for (uint64_t i = 0; i < module->kernel_count; i++) {
        json_kernel(module, i, json);
    }
    sxc_json_close(json, ']');
    SX_TRY(json_launches(cx, json, module));
    sxc_json_checks(json, module, record);
    sxc_json_end(json);
    return sx_buf_check(cx, json, "JSON of the explanation");
}

sx_code sxc_cmd_explain(sxc_cli *cli)
{
    sxc_module_file file;
    sxc_record record;
    const char *name = cli->argument[0];
    SX_TRY(sxc_entry_is_file(name) ? sxc_module_file_open(cli->cx, name, true, &file)
                                   : sxc_entry_open(cli, name, &file));
    sx_buf out;
    sx_buf_init(&out, TEXT_BYTES_MAX);
    sx_code code = sxc_record_read(cli->cx, &file.module, sxc_value(cli, SXC_SOCKET), &record);
    if (code == SX_OK && cli->json) {
        code = explain_json(cli->cx, &file.module, &record, &out);
    } else if (code == SX_OK && sxc_given(cli, SXC_ALL)) {
        code = explain_text(cli->cx, &file.module, &record, &out);
    } else if (code == SX_OK) {
        code = sxc_explain_screen(cli->cx, &file.module, &record, &out);
    }
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&out);
    sxc_module_file_close(&file);
    return code;
}
