/* symplex_report.c - the public library: its compiler, what that did, what the launches of a run take, and whether its
 * results are right. */
#include "client/symplex_inside.h"

#include <stdlib.h>
#include <string.h>

#include "client/job.h"
#include "client/json.h"
#include "client/report.h"
#include "client/spawn.h"
#include "core/request/request.h"

#define REPORT_BYTES_MAX ((size_t)256 << 20)

const char *symplex_toolchain(void)
{
    return sx_core_toolchain();
}

symplex_code symplex_module_report(const symplex_module *module, char **json, size_t *size,
                                   symplex_error *error)
{
    if (module == NULL || json == NULL || size == NULL) {
        return sxc_call_misuse(error, "symplex_module_report: module, json and size are needed");
    }
    sx_ctx cx;
    sx_buf out;
    sxc_call_begin(&cx);
    sx_buf_init(&out, REPORT_BYTES_MAX);
    *json = NULL;
    *size = 0;
    sxc_json_begin(&out, "report");
    sxc_report_json(&out, sxr_module(module->program));
    sxc_json_end(&out);
    size_t length = out.len;
    sx_buf_put_u8(&out, 0);
    sx_code code = sx_buf_check(&cx, &out, "report");
    if (code == SX_OK) {
        SX_ASSERT(strlen((const char *)out.ptr) == length);
        *json = (char *)out.ptr; /* from malloc; the caller's now */
        *size = length;
    } else {
        sx_buf_fini(&out);
    }
    return sxc_call_finish(&cx, code, error);
}

/* NULL while none is chosen. */
static const sx_module_variant *variant_of(const symplex_module *module)
{
    uint32_t chosen = sxr_variant(module->program);
    return chosen != SX_MODULE_NONE ? &sxr_module(module->program)->variant[chosen] : NULL;
}

/* The number in the module of its first launch. */
static uint64_t first_of(const symplex_module *module)
{
    const sx_module_variant *variant = variant_of(module);
    return variant != NULL ? variant->launch_first : 0;
}

size_t symplex_module_launch_count(const symplex_module *module)
{
    const sx_module_variant *variant = variant_of(module);
    SX_ASSERT(variant == NULL ||
              variant->launch_count <= sxr_module(module->program)->launch_count);
    return variant != NULL ? variant->launch_count : 0;
}

symplex_code symplex_module_launch(const symplex_module *module, size_t index,
                                   symplex_launch *launch, symplex_error *error)
{
    if (module == NULL || launch == NULL || index >= symplex_module_launch_count(module)) {
        return sxc_call_misuse(error, "symplex_module_launch: no launch of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    const sx_module *tables = sxr_module(module->program);
    uint64_t inside = first_of(module) + index;
    const sx_module_kernel *kernel = sx_module_kernel_of(tables, inside);
    *launch = (symplex_launch){.kind = sx_module_work_name(tables, inside),
                               .once = tables->launch[inside].prologue != 0};
    SX_ASSERT(inside < tables->launch_count && launch->kind != NULL);
    if (kernel != NULL) {
        sxc_copy_text(launch->kernel, sizeof(launch->kernel),
                      sx_module_string(tables, kernel->name));
        launch->flops = kernel->flops;
        launch->bytes = kernel->bytes;
        launch->estimate_ns = kernel->cost_ns;
        launch->floor_ns = kernel->floor_ns;
    }
    return sxc_call_finish(&cx, SX_OK, error);
}

symplex_code symplex_module_run_timed(symplex_module *module, uint64_t *ns, size_t count,
                                      symplex_error *error)
{
    if (module == NULL || (ns == NULL && count > 0)) {
        return sxc_call_misuse(error, "symplex_module_run_timed: module and times are needed");
    }
    if (count != symplex_module_launch_count(module)) {
        return sxc_call_misuse(error,
                               "symplex_module_run_timed: one time for each launch is needed");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    uint64_t first = first_of(module);
    uint64_t launches = sxr_module(module->program)->launch_count;
    uint64_t *times = SX_NEW_ARRAY(&cx, uint64_t, (size_t)launches + 1);
    sx_code code = times == NULL ? cx.error.code : sxr_run(&cx, module->program, times);
    for (size_t i = 0; code == SX_OK && i < count; i++) {
        ns[i] = times[first + i];
    }
    return sxc_call_finish(&cx, code, error);
}

/* ---- comparing ---- */

/* Every tensor of the interface has memory. */
static sx_code check_bound(sx_ctx *cx, const symplex_module *module)
{
    for (size_t i = 0; i < module->count; i++) {
        if (sxr_memory(module->program, module->tensor[i]) == NULL) {
            return SX_FAIL(cx, SX_INPUT, "tensor %s is not bound%s", module->name[i],
                           sxr_bound(module->program, module->tensor[i]) ? " to memory of the host"
                                                                         : "");
        }
    }
    return SX_OK;
}

symplex_code symplex_module_check(symplex_module *module, symplex_check *check,
                                  symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_check: no module");
    }
    sx_ctx cx;
    sx_module_check made = {.passed = 0};
    static const sxc_worker worker = {.program = NULL};
    sxc_call_begin(&cx);
    sx_code code = sxr_weights_again(&cx, module->program);
    code = code == SX_OK ? check_bound(&cx, module) : code;
    code = code == SX_OK ? sxc_check_here(&cx, module->program, &worker, &made) : code;
    if (check != NULL) {
        *check = (symplex_check){.passed = code == SX_OK,
                                 .elements = made.points,
                                 .error = made.error,
                                 .tolerance = made.tolerance};
    }
    return sxc_call_finish(&cx, code, error);
}
