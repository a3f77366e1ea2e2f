/* cmd_sharding.c - how a program runs on its mesh, for people and as JSON; sharding: the program of each device. */
#include "client/cli/cmd_compile.h"
#include "client/cli/cmd_module.h"
#include "client/cli/program.h"
#include "client/cli/table.h"
#include "core/core.h"

static void put_side(sx_buf *out, const char *label, uint64_t collectives, double bytes,
                     double collective_ns, double compute_ns)
{
    char sent[32], work[32];
    sxc_human_ns(collective_ns, sent);
    sxc_human_ns(compute_ns, work);
    sx_buf_print(out, "%-10s %llu collective%s, %.0f bytes sent by a device, %s; work %s\n", label,
                 (unsigned long long)collectives, collectives == 1 ? "" : "s", bytes, sent, work);
}

static bool is_collective(const sx_module_step *step)
{
    return step->sent_bytes > 0;
}

sx_code sxc_sharding_text(sx_ctx *cx, const sx_module *module, sx_buf *out)
{
    if (module->axis_count > 0) {
        sx_buf_put_text(out, "mesh       ");
        for (uint32_t a = 0; a < module->axis_count; a++) {
            sx_buf_put_text(out, a > 0 ? ", " : "");
            sxc_put_plain(out, sx_module_string(module, module->axis[a].name));
            sx_buf_print(out, " = %llu", (unsigned long long)module->axis[a].size);
        }
        sx_buf_print(out, ": %u ranks run it together\n", sx_module_ranks(module));
    }
    if (module->sharding_count == 0) {
        return SX_OK;
    }
    const sx_module_sharding *sharding = &module->sharding[0];
    sxc_put_line(out, "mesh", sx_module_string(module, sharding->mesh));
    if (sharding->planned == 0) {
        sx_buf_put_text(out, "placement  left aside: code for one device, values are whole\n");
        return SX_OK;
    }
    put_side(out, "input", sharding->input_collectives, sharding->input_collective_bytes,
             sharding->input_collective_ns, sharding->input_compute_ns);
    put_side(out, "optimised", sharding->collectives, sharding->collective_bytes,
             sharding->collective_ns, sharding->compute_ns);
    sxc_table table;
    sxc_table_init(&table, cx, "VALUE|COLLECTIVE|AXIS|FROM|TO|HOLDS|>SENT BYTES|>TIME US");
    for (uint64_t i = 0; i < module->step_count; i++) {
        const sx_module_step *step = &module->step[i];
        if (is_collective(step)) {
            sxc_table_put_span(&table, sx_module_string(module, step->value));
            sxc_table_put_span(&table, sx_module_string(module, step->what));
            sxc_table_put_span(&table, sx_module_string(module, step->axis));
            sxc_table_put_span(&table, sx_module_string(module, step->from));
            sxc_table_put_span(&table, sx_module_string(module, step->to));
            sxc_table_put_span(&table, sx_module_string(module, step->local));
            sxc_table_put(&table, "%.0f", step->sent_bytes);
            sxc_table_put(&table, "%.2f", step->ns / 1e3);
        }
    }
    return sharding->collectives > 0 ? sxc_table_print(&table, out) : SX_OK;
}

static sx_code put_local(sxc_cli *cli, sx_span text)
{
    if (!cli->json) {
        const char *path = sxc_given(cli, SXC_OUTPUT) ? sxc_value(cli, SXC_OUTPUT) : "-";
        return sxc_write_file(cli->cx, path, text);
    }
    if (sxc_given(cli, SXC_OUTPUT)) {
        SX_TRY(sxc_write_file(cli->cx, sxc_value(cli, SXC_OUTPUT), text));
    }
    sx_buf json;
    sx_buf_init(&json, 8 * SX_TEXT_BYTES_MAX);
    sxc_json_begin(&json, "sharding");
    sxc_json_text(&json, "program", text);
    sxc_json_end(&json);
    sx_code code = sxc_put(cli, &json);
    sx_buf_fini(&json);
    return code;
}

sx_code sxc_cmd_sharding(sxc_cli *cli)
{
    sx_core_request request;
    sxc_compile_options options;
    sxc_source source;
    if (sxc_given(cli, SXC_OUTPUT)) {
        SX_TRY(sxc_check_output(cli->cx, sxc_value(cli, SXC_OUTPUT)));
    }
    SX_TRY(sxc_read_request(cli, &request, &options));
    SX_TRY(sxc_read_dims(cli, &request.binding, &request.binding_count));
    request.target = sxc_target(request.target);
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_code code = sxc_program_load(cli, &source);
    request.ir = sx_buf_span(&source.text);
    code = code == SX_OK ? sx_core_local(cli->cx, &request, &text) : code;
    sxc_progress_end(&cli->progress);
    code = code == SX_OK ? put_local(cli, sx_buf_span(&text)) : code;
    sxc_source_fini(&source);
    sx_buf_fini(&text);
    return code;
}
