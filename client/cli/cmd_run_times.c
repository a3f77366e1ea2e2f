/* cmd_run_times.c - what the launches of a run took, by kernel and by layer of the model. */
#include "client/cli/cmd_module.h"
#include "client/cli/layers.h"
#include "client/cli/table.h"

#define KERNELS_SHOWN 10u
#define NAME_BYTES 56u
#define OPERATOR_BYTES 40u

typedef struct {
    uint32_t work; /* the number of a kernel; behind them, of a kind of launch without one */
    uint32_t launches;
    uint64_t first; /* launch */
    uint64_t ns;    /* of all its launches */
} row;

static void put_cut(sx_buf *out, sx_span text)
{
    bool cut = text.len > NAME_BYTES;
    sxc_put_plain(out, (sx_span){text.ptr, cut ? NAME_BYTES - 3 : text.len});
    sx_buf_put_text(out, cut ? "..." : "");
}

static sx_code put_row(sx_ctx *cx, const sxc_layers *layers, const row *r, uint64_t total,
                       sxc_table *table)
{
    const sx_module *module = layers->module;
    const sx_module_kernel *kernel = sx_module_kernel_of(module, r->first);
    const sx_origin *layer = sxc_layers_main(layers, r->first);
    sx_buf name, operators;
    sx_buf_init(&name, 4096);
    sx_buf_init(&operators, 4096);
    sx_span own = kernel != NULL ? sx_module_string(module, kernel->name) : SX_SPAN_LITERAL("-");
    put_cut(&name, layer != NULL ? layer->name : own);
    if (r->launches > 1) {
        sx_buf_print(&name, " and %u more", r->launches - 1);
    }
    sx_code code = sxc_layers_operators(cx, layers, r->first, OPERATOR_BYTES, &operators);
    sxc_table_put(table, "%.1f", (double)r->ns / 1e3);
    sxc_table_put(table, "%.0f", total > 0 ? 100.0 * (double)r->ns / (double)total : 0.0);
    sxc_table_put(table, "%u", r->launches);
    sxc_table_put(table, "%s", module->launch[r->first].prologue != 0 ? "load" : "run");
    if (kernel != NULL) {
        sxc_table_put(table, "%u", r->work);
    } else {
        sxc_table_put(table, "-");
    }
    sxc_table_put(table, "%s", sx_module_work_name(module, r->first));
    sxc_table_put_span(table, operators.len > 0 ? sx_buf_span(&operators) : SX_SPAN_LITERAL("-"));
    sxc_table_put_span(table, sx_buf_span(&name));
    sx_buf_fini(&name);
    sx_buf_fini(&operators);
    return code;
}

static uint32_t work_of(const sx_module *module, uint64_t launch)
{
    const sx_module_launch *l = &module->launch[launch];
    return l->kernel != SX_MODULE_NONE ? l->kernel : (uint32_t)module->kernel_count + l->kind;
}

/* Launches of a run, one row for each kernel or kind of launch, dearest first. */
static uint32_t by_kernel(const sx_module *module, const sx_module_variant *ran,
                          const uint64_t *launch_ns, row *rows)
{
    uint32_t count = 0;
    for (uint32_t i = ran->launch_first + ran->launch_count; i-- > ran->launch_first;) {
        row *r = &rows[work_of(module, i)];
        if (module->launch[i].prologue == 0) {
            r->first = i;
            r->launches++;
            r->ns += launch_ns[i];
        }
    }
    for (uint32_t k = 0; k < module->kernel_count + SX_LAUNCH_KIND_COUNT; k++) {
        row moved = rows[k];
        moved.work = k;
        if (moved.launches > 0) {
            uint32_t at = count++;
            for (; at > 0 && rows[at - 1].ns < moved.ns; at--) {
                rows[at] = rows[at - 1];
            }
            rows[at] = moved;
        }
    }
    return count;
}

sx_code sxc_put_times(sx_ctx *cx, const sx_module *module, const sx_module_variant *ran,
                      const uint64_t *launch_ns, bool all, sx_buf *out)
{
    sxc_layers layers;
    SX_TRY(sxc_layers_find(cx, module, &layers));
    uint64_t total = 0;
    uint32_t end = ran->launch_first + ran->launch_count;
    for (uint32_t i = ran->launch_first; i < end; i++) {
        total += module->launch[i].prologue == 0 ? launch_ns[i] : 0;
    }
    sxc_table table;
    sxc_table_init(&table, cx, ">TIME US|>%|>LAUNCHES|WHEN|>KERNEL|KIND|FOR|LAYER");
    row *rows = SX_NEW_ARRAY(cx, row, (size_t)module->kernel_count + SX_LAUNCH_KIND_COUNT);
    if (rows == NULL) {
        return cx->error.code;
    }
    uint32_t count = all ? 0 : by_kernel(module, ran, launch_ns, rows);
    for (uint32_t i = 0; i < count && i < KERNELS_SHOWN; i++) {
        SX_TRY(put_row(cx, &layers, &rows[i], total, &table));
    }
    for (uint32_t i = ran->launch_first; all && i < end; i++) {
        row one = {work_of(module, i), 1, i, launch_ns[i]};
        SX_TRY(put_row(cx, &layers, &one, total, &table));
    }
    sx_buf_put_u8(out, '\n');
    SX_TRY(sxc_table_print(&table, out));
    uint64_t rest = 0;
    for (uint32_t i = KERNELS_SHOWN; i < count; i++) {
        rest += rows[i].ns;
    }
    if (count > KERNELS_SHOWN) {
        sx_buf_print(out, "and %u kernels with %.1f us together; --all shows every launch\n",
                     count - KERNELS_SHOWN, (double)rest / 1e3);
    }
    return sx_buf_check(cx, out, "times");
}

sx_code sxc_json_times(sx_ctx *cx, const sx_module *module, const sx_module_variant *ran,
                       const uint64_t *launch_ns, sx_buf *json)
{
    sxc_layers layers;
    SX_TRY(sxc_layers_find(cx, module, &layers));
    sxc_json_open(json, "launches", '[');
    for (uint32_t i = ran->launch_first; i < ran->launch_first + ran->launch_count; i++) {
        const sx_module_kernel *kernel = sx_module_kernel_of(module, i);
        const sx_origin *layer = sxc_layers_main(&layers, i);
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "kind", sx_span_of(sx_module_launch_name(module->launch[i].kind)));
        sxc_json_text(json, "kernel",
                      kernel != NULL ? sx_module_string(module, kernel->name)
                                     : SX_SPAN_LITERAL(""));
        sxc_json_text(json, "layer", layer != NULL ? layer->name : SX_SPAN_LITERAL(""));
        sxc_json_text(json, "op", layer != NULL ? layer->op : SX_SPAN_LITERAL(""));
        sxc_json_bool(json, "prologue", module->launch[i].prologue != 0);
        sxc_json_int(json, "ns", (int64_t)launch_ns[i]);
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    return SX_OK;
}
