#include "client/runtime/cubin.h"

#include "core/nvidia/code.h"
#include "core/ptx/cubin.h"

#define U(value) ((unsigned long long)(value))

/* ---- does a row say what its cubin says? ---- */

static sx_code differs(sx_ctx *cx, uint64_t row, const char *what, uint64_t said, uint64_t found)
{
    return SX_FAIL(cx, SX_CORRUPT, "module cubin %llu: %llu %s, the cubin itself has %llu", U(row),
                   U(said), what, U(found));
}

static sx_code check_row(sx_ctx *cx, const sx_module *module, uint64_t index, const sx_cubin *cubin)
{
    const sx_module_cubin *row = &module->cubin[index];
    const sx_module_kernel *kernel = &module->kernel[row->kernel];
    sx_span blob = {module->code + kernel->code_offset, (size_t)kernel->code_size};
    sx_nvidia_code code;
    uint64_t entry = module->part[row->part].entry - kernel->code_offset;
    SX_ASSERT(entry < kernel->code_size);
    SX_TRY(sx_nvidia_code_at(cx, blob, (uint32_t)entry, &code));
    const sx_cubin_kernel *found = sx_cubin_find(cubin, code.name);
    if (found == NULL) {
        return SX_FAIL(cx, SX_CORRUPT, "module cubin %llu: no entry %.*s", U(index),
                       (int)sx_min_i64((int64_t)code.name.len, 80), (const char *)code.name.ptr);
    }
    const struct {
        const char *what;
        uint64_t said, found;
    } figure[] = {{"registers", row->registers, found->registers},
                  {"bytes of local memory", row->local_bytes, found->stack_bytes},
                  {"spills", row->spills, found->spill_count},
                  {"barriers", row->barriers, found->barriers},
                  {"bytes of parameters", row->parameter_bytes, found->param_bytes},
                  {"bytes of shared memory", row->shared_bytes, found->shared_bytes}};
    for (uint32_t i = 0; i < SX_COUNT(figure); i++) {
        if (figure[i].said != figure[i].found) {
            return differs(cx, index, figure[i].what, figure[i].said, figure[i].found);
        }
    }
    return cubin->arch == row->level
               ? SX_OK
               : SX_FAIL(cx, SX_CORRUPT, "module cubin %llu: for sm_%u, its code is for sm_%u",
                         U(index), row->level, cubin->arch);
}

static sx_span bytes_of(const sx_module *module, const sx_module_cubin *row)
{
    SX_ASSERT(row->offset <= module->code_count && row->size <= module->code_count - row->offset);
    return (sx_span){module->code + row->offset, (size_t)row->size};
}

sx_code sxr_check_cubins(sx_ctx *cx, const sx_module *module)
{
    sx_cubin *cubin = NULL;
    for (uint64_t i = 0; i < module->cubin_count; i++) {
        const sx_module_cubin *row = &module->cubin[i], *before = i > 0 ? row - 1 : NULL;
        bool same = before != NULL && before->offset == row->offset && before->size == row->size;
        sx_code code = same ? SX_OK : sx_cubin_read(cx, bytes_of(module, row), &cubin);
        if (code == SX_INPUT) { /* the bytes come from a file or a wire, not from the caller */
            code = cx->error.code = SX_CORRUPT;
        }
        if (code != SX_OK) {
            return sx_fail_in(cx, "module cubin %llu", U(i));
        }
        code = check_row(cx, module, i, cubin);
        if (code == SX_INPUT) {
            code = cx->error.code = SX_CORRUPT;
        }
        SX_TRY(code);
    }
    return SX_OK;
}

/* ---- which code a GPU gets ---- */

/* A driver loads cubins of toolkits of its own major version, and of older ones: 13 of "nvJitLink 13.0.88". */
static uint32_t toolkit_major(sx_span toolchain)
{
    uint32_t major = 0;
    size_t i = 0;
    while (i < toolchain.len && (toolchain.ptr[i] < '0' || toolchain.ptr[i] > '9')) {
        i++;
    }
    for (; i < toolchain.len && toolchain.ptr[i] >= '0' && toolchain.ptr[i] <= '9' && major < 1000;
         i++) {
        major = 10 * major + (uint32_t)(toolchain.ptr[i] - '0');
    }
    return major;
}

sx_span sxr_cubin_for(const sx_module *module, uint32_t kernel, uint32_t capability,
                      uint32_t driver)
{
    SX_ASSERT(kernel < module->kernel_count);
    const sx_module_kernel *k = &module->kernel[kernel];
    const sx_module_cubin *first = sx_module_cubin_of(module, k->part_first, capability);
    for (uint32_t p = 0; first != NULL && p < k->part_count; p++) {
        const sx_module_cubin *row = sx_module_cubin_of(module, k->part_first + p, capability);
        if (row == NULL || row->offset != first->offset || row->size != first->size) {
            first = NULL;
        }
    }
    if (first == NULL ||
        toolkit_major(sx_module_string(module, first->toolchain)) > driver / 1000) {
        return (sx_span){NULL, 0};
    }
    return bytes_of(module, first);
}
