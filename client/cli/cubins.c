#include "client/cli/cubins.h"

#include "client/cli/cli.h"

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static bool is_of(const sx_module *module, const sx_module_cubin *row,
                  const sx_module_kernel *kernel)
{
    SX_ASSERT(row->kernel < module->kernel_count);
    return &module->kernel[row->kernel] == kernel;
}

sxc_cubin_need sxc_cubin_need_of(const sx_module *module, const sx_module_kernel *kernel)
{
    sxc_cubin_need need = {.count = 0};
    for (uint64_t i = 0; i < module->cubin_count; i++) {
        const sx_module_cubin *row = &module->cubin[i];
        if (is_of(module, row, kernel)) {
            need.count++;
            need.registers = larger(need.registers, row->registers);
            need.local_bytes = larger(need.local_bytes, row->local_bytes);
            need.spills = larger(need.spills, row->spills);
            need.barriers = larger(need.barriers, row->barriers);
            need.shared_bytes =
                row->shared_bytes > need.shared_bytes ? row->shared_bytes : need.shared_bytes;
        }
    }
    return need;
}

static bool has_text(const sx_module *module)
{
    bool text = false;
    for (uint64_t k = 0; k < module->kernel_count; k++) {
        text = text || module->kernel[k].form == SX_FORM_PTX;
    }
    return text;
}

void sxc_put_assembled(const sx_module *module, sx_buf *out)
{
    uint32_t least = UINT32_MAX, most = 0, spills = 0, level = 0;
    if (!has_text(module)) {
        return;
    }
    if (module->cubin_count == 0) {
        sx_buf_put_text(out, "code       PTX alone: registers and spills are not known\n");
        return;
    }
    sx_buf_put_text(out, "code       PTX; machine code for ");
    for (uint64_t i = 0; i < module->cubin_count; i++) {
        const sx_module_cubin *row = &module->cubin[i];
        least = row->registers < least ? row->registers : least;
        most = larger(most, row->registers);
        spills += row->spills;
        if (row->level != level && i < 64) { /* each once, where they follow each other */
            sx_buf_print(out, "%s%s", level != 0 ? ", " : "",
                         sx_level_name(SX_ARCH_NVIDIA, row->level));
            level = row->level;
        }
    }
    sx_span maker = sx_module_string(module, module->cubin[0].toolchain);
    sx_buf_put_text(out, " by ");
    sx_buf_put_span(out, maker);
    sx_buf_print(out, ": %u to %u registers, %u spills\n", least, most, spills);
}

void sxc_json_cubins(const sx_module *module, const sx_module_kernel *kernel, sx_buf *json)
{
    sxc_json_open(json, "cubins", '[');
    for (uint64_t i = 0; i < module->cubin_count; i++) {
        const sx_module_cubin *row = &module->cubin[i];
        if (!is_of(module, row, kernel)) {
            continue;
        }
        sxc_json_open(json, NULL, '{');
        sxc_json_int(json, "part", row->part - kernel->part_first);
        sxc_json_text(json, "level", sx_span_of(sx_level_name(kernel->arch, row->level)));
        sxc_json_int(json, "registers", row->registers);
        sxc_json_int(json, "local_bytes", row->local_bytes);
        sxc_json_int(json, "spills", row->spills);
        sxc_json_int(json, "barriers", row->barriers);
        sxc_json_int(json, "shared_bytes", (int64_t)row->shared_bytes);
        sxc_json_int(json, "parameter_bytes", row->parameter_bytes);
        sxc_json_int(json, "bytes", (int64_t)row->size);
        sxc_json_text(json, "assembler", sx_module_string(module, row->toolchain));
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
}
