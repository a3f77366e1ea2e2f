/* symplex_state.c - state of a module, which lies in it from run to run: read, written, as it was at first. */
#include "client/symplex_inside.h"

symplex_code symplex_module_state_read(const symplex_module *module, size_t index, void *memory,
                                       size_t size, symplex_error *error)
{
    if (module == NULL || index >= module->count) {
        return sxc_call_misuse(error, "symplex_module_state_read: no tensor of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    sx_code code = sxr_state_read(&cx, module->program, module->tensor[index], memory, size);
    return sxc_call_finish(&cx, code, error);
}

symplex_code symplex_module_state_write(symplex_module *module, size_t index, const void *memory,
                                        size_t size, symplex_error *error)
{
    if (module == NULL || index >= module->count) {
        return sxc_call_misuse(error, "symplex_module_state_write: no tensor of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    sx_code code = sxr_state_write(&cx, module->program, module->tensor[index], memory, size);
    return sxc_call_finish(&cx, code, error);
}

symplex_code symplex_module_state_reset(symplex_module *module, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_state_reset: no module");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    sxr_state_reset(module->program);
    return sxc_call_finish(&cx, SX_OK, error);
}
