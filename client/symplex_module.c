/* symplex_module.c - the public library: modules, their tensors, symbols and memory, and runs. */
#include "client/symplex_inside.h"

#include <stdlib.h>
#include <string.h>

#include "client/job.h"
#include "client/runtime/pool.h"

/* ---- modules ---- */

void symplex_module_close(symplex_module *module)
{
    if (module == NULL) {
        return;
    }
    for (size_t i = 0; module->name != NULL && i < module->count; i++) {
        free(module->name[i]);
    }
    for (size_t i = 0; i < module->symbol_count; i++) {
        free(module->symbol_name[i]);
    }
    sxr_close(module->program);
    free(module->symbol_name);
    free(module->symbol);
    free(module->range);
    free(module->name);
    free(module->tensor);
    free(module->weight);
    free(module);
}

/* Numbers and names of the tensors of the interface. */
static sx_code list_tensors(sx_ctx *cx, symplex_module *module)
{
    const sx_module *tables = sxr_module(module->program);
    size_t most = (size_t)tables->tensor_count + 1;
    module->tensor = calloc(most, sizeof(*module->tensor));
    module->name = calloc(most, sizeof(*module->name));
    module->weight = calloc(most, sizeof(*module->weight));
    if (module->tensor == NULL || module->name == NULL || module->weight == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %zu tensors", most);
    }
    for (uint32_t i = 0; i < tables->tensor_count; i++) {
        const sx_module_tensor *tensor = &tables->tensor[i];
        if (!sxc_is_interface(tensor) && tensor->place != SX_TENSOR_STATE) {
            continue;
        }
        sx_span name = sx_module_string(tables, tensor->name);
        module->name[module->count] = strndup((const char *)name.ptr, name.len);
        module->tensor[module->count] = i;
        if (module->name[module->count] == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "no memory for the name of tensor %u", i);
        }
        module->count++;
    }
    return SX_OK;
}

/* Names of the symbols, and the values that they may have. */
static sx_code list_symbols(sx_ctx *cx, symplex_module *module)
{
    const sx_module *tables = sxr_module(module->program);
    module->symbol = calloc((size_t)tables->symbol_count + 1, sizeof(*module->symbol));
    module->range = calloc((size_t)tables->range_count + 1, sizeof(*module->range));
    module->symbol_name = calloc((size_t)tables->symbol_count + 1, sizeof(*module->symbol_name));
    if (module->symbol == NULL || module->range == NULL || module->symbol_name == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %llu symbols",
                       (unsigned long long)tables->symbol_count);
    }
    for (uint64_t i = 0; i < tables->range_count; i++) {
        const sx_module_range *from = &tables->range[i];
        module->range[i] = (symplex_range){from->low, from->high, from->step};
    }
    for (uint64_t i = 0; i < tables->symbol_count; i++) {
        const sx_module_symbol *from = &tables->symbol[i];
        sx_span name = sx_module_string(tables, from->name);
        module->symbol_name[i] = strndup((const char *)name.ptr, name.len);
        module->symbol[i] = (symplex_symbol){.name = module->symbol_name[i],
                                             .range = module->range + from->range_first,
                                             .range_count = from->range_count};
        module->symbol_count++;
        if (module->symbol_name[i] == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "no memory for the name of symbol %llu",
                           (unsigned long long)i);
        }
    }
    return SX_OK;
}

sx_code sxc_module_make(sx_ctx *cx, sxr_program *program, symplex_module **module)
{
    symplex_module *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        sxr_close(program);
        return SX_FAIL(cx, SX_NOMEM, "no memory for a module");
    }
    made->program = program;
    sx_code code = list_tensors(cx, made);
    code = code == SX_OK ? list_symbols(cx, made) : code;
    if (code == SX_OK) {
        *module = made;
    } else {
        symplex_module_close(made);
    }
    return code;
}

static symplex_code open_module(const char *path, sx_span bytes, uint32_t threads,
                                symplex_module **module, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_open: no place for the module");
    }
    *module = NULL;
    if (threads > SXR_THREADS_MAX) {
        return sxc_call_misuse(error, "symplex_module_open: more than 256 threads");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    sxr_options options = {.threads = threads};
    sxr_program *program = NULL;
    sx_code code = path != NULL ? sxr_open_file(&cx, path, &options, &program)
                                : sxr_open_bytes(&cx, bytes, &options, &program);
    code = code == SX_OK ? sxc_module_make(&cx, program, module) : code;
    return sxc_call_finish(&cx, code, error);
}

symplex_code symplex_module_open(const void *bytes, size_t size, uint32_t threads,
                                 symplex_module **module, symplex_error *error)
{
    if (bytes == NULL) {
        return sxc_call_misuse(error, "symplex_module_open: no bytes");
    }
    return open_module(NULL, (sx_span){bytes, size}, threads, module, error);
}

symplex_code symplex_module_open_file(const char *path, uint32_t threads, symplex_module **module,
                                      symplex_error *error)
{
    if (path == NULL) {
        return sxc_call_misuse(error, "symplex_module_open_file: no path");
    }
    return open_module(path, (sx_span){NULL, 0}, threads, module, error);
}

void symplex_module_describe(const symplex_module *module, symplex_module_info *info)
{
    const sx_module *tables = sxr_module(module->program);
    *info = (symplex_module_info){.threads = sxr_threads(module->program),
                                  .flops = tables->info->flops,
                                  .estimate_ns = tables->info->cost_ns,
                                  .floor_ns = tables->info->floor_ns,
                                  .variant_count = (uint32_t)tables->variant_count,
                                  .gpu = sxr_gpu_ordinal(module->program)};
    if (info->gpu >= 0) {
        sxc_copy_text(info->gpu_name, sizeof(info->gpu_name), sx_span_of(sxr_gpu(module->program)));
    }
    uint32_t chosen = sxr_variant(module->program);
    if (chosen != SX_MODULE_NONE) {
        const sx_module_variant *variant = &tables->variant[chosen];
        info->flops = variant->flops;
        info->estimate_ns = variant->cost_ns;
        info->floor_ns = variant->floor_ns;
        sxc_copy_text(info->variant, sizeof(info->variant),
                      sx_module_string(tables, variant->name));
    }
    sx_key key;
    memcpy(key.byte, tables->info->key, sizeof(key.byte));
    sx_key_print(&key, info->key);
    sxc_copy_text(info->target, sizeof(info->target),
                  sx_module_string(tables, tables->info->target));
}

size_t symplex_module_tensor_count(const symplex_module *module)
{
    return module->count;
}

static symplex_role role_of(const sx_module_tensor *tensor)
{
    return tensor->place == SX_TENSOR_INPUT    ? SYMPLEX_INPUT_TENSOR
           : tensor->place == SX_TENSOR_OUTPUT ? SYMPLEX_OUTPUT_TENSOR
           : tensor->place == SX_TENSOR_STATE  ? SYMPLEX_STATE_TENSOR
                                               : SYMPLEX_WEIGHT_TENSOR;
}

/* The number in the interface of tensor `index` of the module. */
static size_t number_of(const symplex_module *module, uint32_t index)
{
    size_t number = 0;
    while (number < module->count && module->tensor[number] != index) {
        number++;
    }
    return number < module->count ? number : SYMPLEX_NO_TENSOR;
}

symplex_code symplex_module_tensor(const symplex_module *module, size_t index,
                                   symplex_tensor *tensor, symplex_error *error)
{
    if (module == NULL || tensor == NULL || index >= module->count) {
        return sxc_call_misuse(error, "symplex_module_tensor: no tensor of that number");
    }
    uint32_t inside = module->tensor[index];
    const sx_module_tensor *from = &sxr_module(module->program)->tensor[inside];
    *tensor = (symplex_tensor){.name = module->name[index],
                               .role = role_of(from),
                               .dtype = (symplex_dtype)from->dtype,
                               .dtype_name = sx_dtype_name((sx_dtype)from->dtype),
                               .rank = from->rank,
                               .size = (size_t)sxr_size(module->program, inside),
                               .bound = sxr_bound(module->program, inside),
                               .alias = number_of(module, sxr_alias(module->program, inside))};
    for (uint32_t d = 0; d < from->rank; d++) {
        tensor->shape[d] = sxr_shape(module->program, inside)[d];
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, SX_OK, error);
}

size_t symplex_module_find(const symplex_module *module, symplex_role role, const char *name)
{
    const sx_module *tables = sxr_module(module->program);
    for (size_t i = 0; i < module->count; i++) {
        if (role_of(&tables->tensor[module->tensor[i]]) == role &&
            strcmp(module->name[i], name) == 0) {
            return i;
        }
    }
    return SYMPLEX_NO_TENSOR;
}

/* ---- symbols ---- */

size_t symplex_module_symbol_count(const symplex_module *module)
{
    return module->symbol_count;
}

symplex_code symplex_module_symbol(const symplex_module *module, size_t index,
                                   symplex_symbol *symbol, symplex_error *error)
{
    if (module == NULL || symbol == NULL || index >= module->symbol_count) {
        return sxc_call_misuse(error, "symplex_module_symbol: no symbol of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    *symbol = module->symbol[index];
    symbol->value = sxr_extent(module->program, (uint32_t)index);
    return sxc_call_finish(&cx, SX_OK, error);
}

symplex_code symplex_module_axis(const symplex_module *module, size_t index, uint32_t axis,
                                 symplex_axis *result, symplex_error *error)
{
    if (module == NULL || result == NULL || index >= module->count) {
        return sxc_call_misuse(error, "symplex_module_axis: no tensor of that number");
    }
    const sx_module *tables = sxr_module(module->program);
    uint32_t inside = module->tensor[index];
    if (axis >= tables->tensor[inside].rank) {
        return sxc_call_misuse(error, "symplex_module_axis: no dimension of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    *result = (symplex_axis){.symbol = SYMPLEX_NO_TENSOR, .other = SYMPLEX_NO_TENSOR};
    if (symplex_module_terms(module, index, axis, result, 1) > 1) {
        result->scale = 0;
        result->other = SYMPLEX_NO_TENSOR;
    }
    return sxc_call_finish(&cx, SX_OK, error);
}

static size_t symbol_number(uint32_t symbol)
{
    return symbol == SX_MODULE_NONE ? SYMPLEX_NO_TENSOR : symbol;
}

size_t symplex_module_terms(const symplex_module *module, size_t index, uint32_t axis,
                            symplex_axis *terms, size_t count)
{
    size_t found = 0;
    uint32_t rows = 0;
    const sx_module_extent *row = NULL;
    if (module != NULL && index < module->count) {
        row = sx_module_extents_of(sxr_module(module->program), SX_EXTENT_TENSOR,
                                   module->tensor[index], &rows);
    }
    for (uint32_t i = 0; i < rows; i++) {
        if (row[i].dimension != axis) {
            continue;
        }
        if (found < count) {
            terms[found] = (symplex_axis){.symbol = symbol_number(row[i].symbol),
                                          .scale = row[i].scale,
                                          .other = symbol_number(row[i].other)};
        }
        found++;
    }
    return found;
}

/* Nothing is set before everything may be. */
static sx_code check_choice(sx_ctx *cx, const symplex_module *module, const symplex_dim *dims,
                            size_t dim_count)
{
    for (size_t i = 0; i < dim_count; i++) {
        if (dims[i].name == NULL) {
            return SX_FAIL(cx, SX_USAGE, "dimension without a name: %lld",
                           (long long)dims[i].value);
        }
        SX_TRY(sxr_extent_allowed(cx, module->program, sx_span_of(dims[i].name), dims[i].value));
        for (size_t k = 0; k < i; k++) {
            if (strcmp(dims[k].name, dims[i].name) == 0) {
                return SX_FAIL(cx, SX_USAGE, "dimension %.200s: given twice, %lld and %lld",
                               dims[i].name, (long long)dims[k].value, (long long)dims[i].value);
            }
        }
    }
    return SX_OK;
}

static sx_code choose(sx_ctx *cx, const symplex_module *module, const symplex_dim *dims,
                      size_t dim_count)
{
    SX_TRY(check_choice(cx, module, dims, dim_count));
    for (size_t i = 0; i < dim_count; i++) {
        SX_TRY(sxr_set_extent(cx, module->program, sx_span_of(dims[i].name), dims[i].value));
    }
    return SX_OK;
}

symplex_code symplex_module_choose(symplex_module *module, const symplex_dim *dims,
                                   size_t dim_count, symplex_error *error)
{
    if (module == NULL || (dims == NULL && dim_count > 0)) {
        return sxc_call_misuse(error, "symplex_module_choose: module and dimensions are needed");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, choose(&cx, module, dims, dim_count), error);
}

/* ---- memory ---- */

static sx_code check_bindable(sx_ctx *cx, const symplex_module *module, const char *call,
                              size_t index)
{
    if (index >= module->count) {
        return SX_FAIL(cx, SX_USAGE, "%s: no tensor of that number", call);
    }
    if (sxr_module(module->program)->tensor[module->tensor[index]].place == SX_TENSOR_STATE) {
        return SX_FAIL(cx, SX_USAGE,
                       "%s: state lies in the module; it is read and written by "
                       "symplex_module_state_read and _write",
                       call);
    }
    return SX_OK;
}

static sx_code bind(sx_ctx *cx, symplex_module *module, const char *call, size_t index,
                    void *memory, size_t size)
{
    SX_TRY(check_bindable(cx, module, call, index));
    module->weight[index].known = false;
    return sxr_bind(cx, module->program, module->tensor[index], memory, size);
}

symplex_code symplex_module_bind(symplex_module *module, size_t index, void *memory, size_t size,
                                 symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_bind: no tensor of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, bind(&cx, module, "symplex_module_bind", index, memory, size),
                           error);
}

symplex_code symplex_module_bind_device(symplex_module *module, size_t index, uint64_t address,
                                        size_t size, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_bind_device: no tensor of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    sx_code code = check_bindable(&cx, module, "symplex_module_bind_device", index);
    if (code == SX_OK) {
        module->weight[index].known = false;
    }
    code = code == SX_OK
               ? sxr_bind_device(&cx, module->program, module->tensor[index], address, size)
               : code;
    return sxc_call_finish(&cx, code, error);
}

symplex_code symplex_module_prepare(symplex_module *module, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_prepare: no module");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, sxr_prepare(&cx, module->program), error);
}

symplex_code symplex_module_enqueue(symplex_module *module, void *stream, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_enqueue: no module");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, sxr_enqueue(&cx, module->program, stream), error);
}

symplex_code symplex_module_run(symplex_module *module, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_run: no module");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, sxr_run(&cx, module->program, NULL), error);
}

void symplex_module_watch(symplex_module *module, int (*stop)(void *self), void *self)
{
    if (module != NULL) {
        sxr_watch(module->program, stop, self);
    }
}

static sx_code call(sx_ctx *cx, symplex_module *module, const symplex_dim *dims, size_t dim_count,
                    const symplex_memory *memory, size_t memory_count)
{
    SX_TRY(dim_count > 0 ? choose(cx, module, dims, dim_count) : SX_OK);
    for (size_t i = 0; i < memory_count; i++) {
        const symplex_memory *m = &memory[i];
        SX_TRY(bind(cx, module, "symplex_module_call", m->index, m->memory, m->size));
    }
    return sxr_run(cx, module->program, NULL);
}

/* A call as nearly all are, without a context. False: the long way goes on from the beginning. */
static bool call_usual(const symplex_module *module, const symplex_memory *memory, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const symplex_memory *m = &memory[i];
        if (m->index >= module->count ||
            !sxr_bind_usual(module->program, module->tensor[m->index], m->memory, m->size)) {
            return false;
        }
    }
    return sxr_run_usual(module->program);
}

symplex_code symplex_module_call(symplex_module *module, const symplex_dim *dims, size_t dim_count,
                                 const symplex_memory *memory, size_t memory_count,
                                 symplex_error *error)
{
    if (module == NULL || (dims == NULL && dim_count > 0) || (memory == NULL && memory_count > 0)) {
        return sxc_call_misuse(error,
                               "symplex_module_call: module, dimensions and memory are needed");
    }
    if (dim_count == 0 && call_usual(module, memory, memory_count)) {
        return sxc_call_tell(error, SX_OK);
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, call(&cx, module, dims, dim_count, memory, memory_count), error);
}
