/* extents.c - values of symbolic extents, and what follows from them: variant, shapes, grids, rounds. */
#include <stdio.h>
#include <string.h>

#include "client/runtime/device.h"

/* The extents of the file, which are the largest. */
static void take_largest(sxr_program *program)
{
    const sx_module *module = &program->module;
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        program->bytes[i] = module->tensor[i].size;
        memcpy(program->dim[i], module->tensor[i].dim, sizeof(program->dim[i]));
    }
    for (uint64_t i = 0; i < module->launch_count; i++) {
        program->rounds[i] = module->launch[i].value;
    }
    if (module->part_count > 0) {
        memcpy(program->part, module->part, (size_t)module->part_count * sizeof(*program->part));
    }
}

static uint64_t bytes_of(const sx_module_tensor *tensor, const int64_t *dim)
{
    uint64_t bytes = tensor->element_bytes;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        bytes *= (uint64_t)dim[d]; /* at most the size in the file */
    }
    return bytes;
}

static void follow_symbols(sxr_program *program)
{
    const sx_module *module = &program->module;
    program->apart = false;
    for (uint64_t i = 0; i < module->extent_count; i++) {
        const sx_module_extent *row = &module->extent[i];
        int64_t extent = sx_module_extent_of(row, program->value);
        bool more = i > 0 && row[-1].what == row->what && row[-1].index == row->index &&
                    row[-1].dimension == row->dimension;
        switch ((sx_module_extent_kind)row->what) {
        case SX_EXTENT_TENSOR: /* several rows of a dimension add up */
            program->dim[row->index][row->dimension] =
                extent + (more ? program->dim[row->index][row->dimension] : 0);
            program->bytes[row->index] =
                bytes_of(&module->tensor[row->index], program->dim[row->index]);
            break;
        case SX_EXTENT_PART: program->part[row->index].grid[row->dimension] = extent; break;
        case SX_EXTENT_LOOP: program->rounds[row->index] = (uint64_t)extent; break;
        case SX_EXTENT_KIND_COUNT: SX_UNREACHABLE();
        }
    }
}

/* The numbers of a part, from where those of its first case are on: one case of each group. */
static void follow_part(sxr_program *program, const sx_module_case *cases, uint32_t count)
{
    const sx_module *module = &program->module;
    const sx_module_case *last = &cases[count - 1];
    int64_t *number = program->number + cases->number_first;
    uint32_t groups = 0; /* that have a case */
    for (uint32_t i = 0; i < count; i++) {
        const sx_module_case *row = &cases[i];
        int64_t value = sx_module_case_value(row, program->value);
        if (row->group != groups || !sx_module_case_holds(row, value)) {
            continue; /* the first one that holds counts */
        }
        for (uint32_t k = 0; k < row->number_count; k++) {
            number[row->slot + k] = sx_module_number_of(module, row, k, value);
        }
        groups++;
    }
    if (groups == last->group + 1) {
        memcpy(program->part[cases->part].grid, number, sizeof(program->part->grid));
        program->part_case[cases->part] = (uint32_t)(cases - module->cases);
    }
}

/* What the cases give the parts that have some. */
static void follow_cases(sxr_program *program)
{
    const sx_module *module = &program->module;
    for (uint64_t i = 0; i < module->cases_count; i++) {
        sx_module_part *part = &program->part[module->cases[i].part];
        memset(part->grid, 0, sizeof(part->grid));
        program->part_case[module->cases[i].part] = SX_MODULE_NONE;
    }
    for (uint64_t i = 0; i < module->cases_count;) {
        uint32_t count;
        const sx_module_case *row = sx_module_cases_of(module, module->cases[i].part, &count);
        follow_part(program, row, count);
        i += count;
    }
}

const sx_module_part *sxr_part(const sxr_program *program, uint32_t part)
{
    SX_ASSERT(part < program->module.part_count);
    return &program->part[part];
}

const int64_t *sxr_part_numbers(const sxr_program *program, uint32_t part, uint32_t *count)
{
    SX_ASSERT(part < program->module.part_count && count != NULL);
    uint32_t which = program->part_case[part];
    const sx_module_case *row = which != SX_MODULE_NONE ? &program->module.cases[which] : NULL;
    *count = row != NULL ? sx_module_part_numbers(&program->module, part) : 0;
    return row != NULL ? program->number + row->number_first + 3 : NULL;
}

/* Once all symbols have values. */
void sxr_extents_follow(sxr_program *program)
{
    const sx_module *module = &program->module;
    program->usual = false;
    for (uint32_t s = 0; s < module->symbol_count; s++) {
        if (program->value[s] == 0) {
            return;
        }
    }
    if (module->variant_count > 0) {
        program->variant = sx_module_pick(module, program->value, &program->machine);
        SX_ASSERT(program->variant < module->variant_count); /* the module has no hole */
    }
    take_largest(program);
    follow_symbols(program);
    follow_cases(program);
}

void sxr_extents_init(sxr_program *program)
{
    const sx_module *module = &program->module;
    take_largest(program);
    for (uint64_t p = 0; p < module->part_count; p++) {
        program->part_case[p] = SX_MODULE_NONE;
    }
    program->variant = SX_MODULE_NONE;
    for (uint32_t s = 0; s < module->symbol_count; s++) {
        if (sx_module_symbol_fixed(module, s)) {
            program->value[s] = sx_module_symbol_low(module, s);
        }
    }
    sxr_extents_follow(program);
}

/* `value` NULL: none was given. */
static sx_code refuse_value(sx_ctx *cx, const sxr_program *program, uint32_t symbol,
                            const int64_t *value)
{
    sx_buf domain;
    sx_buf_init(&domain, 65536);
    sx_module_symbol_print(&program->module, symbol, &domain);
    sx_span name = sx_module_string(&program->module, program->module.symbol[symbol].name);
    int shown = domain.len < 200 ? (int)domain.len : 200;
    char given[32] = "no value";
    if (value != NULL) {
        (void)snprintf(given, sizeof(given), "%lld", (long long)*value);
    }
    sx_code code =
        SX_FAIL(cx, SX_INPUT, "extent %.*s has %s; the module serves %.*s", (int)name.len,
                (const char *)name.ptr, given, shown, (const char *)domain.ptr);
    sx_buf_fini(&domain);
    return code;
}

sx_code sxr_extents_check(sx_ctx *cx, const sxr_program *program)
{
    for (uint32_t s = 0; s < program->module.symbol_count; s++) {
        if (program->value[s] == 0) {
            return refuse_value(cx, program, s, NULL);
        }
    }
    return SX_OK;
}

/* The number of the symbol of this name, if it may have this value. */
static sx_code find_symbol(sx_ctx *cx, const sxr_program *program, sx_span name, int64_t value,
                           uint32_t *symbol)
{
    const sx_module *module = &program->module;
    uint32_t s = 0;
    while (s < module->symbol_count &&
           !sx_span_equal(sx_module_string(module, module->symbol[s].name), name)) {
        s++;
    }
    if (s == module->symbol_count) {
        return SX_FAIL(cx, SX_INPUT, "extent %.*s: the module has no symbol of that name",
                       (int)sx_min_i64((int64_t)name.len, 200), (const char *)name.ptr);
    }
    if (value < 1 || !sx_module_symbol_has(module, s, value)) {
        return refuse_value(cx, program, s, &value);
    }
    *symbol = s;
    return SX_OK;
}

sx_code sxr_extent_allowed(sx_ctx *cx, const sxr_program *program, sx_span name, int64_t value)
{
    uint32_t symbol;
    return find_symbol(cx, program, name, value, &symbol);
}

sx_code sxr_set_extent(sx_ctx *cx, sxr_program *program, sx_span name, int64_t value)
{
    const sx_module *module = &program->module;
    uint32_t symbol = 0;
    SX_TRY(find_symbol(cx, program, name, value, &symbol));
    if (program->value[symbol] == value) {
        return SX_OK;
    }
    program->value[symbol] = value;
    for (uint64_t i = 0; i < module->extent_count; i++) {
        const sx_module_extent *row = &module->extent[i];
        if (row->what == SX_EXTENT_TENSOR && (row->symbol == symbol || row->other == symbol)) {
            program->tensor[row->index] = NULL;
            if (program->device != NULL) {
                sxr_device_bound(program, row->index);
            }
        }
    }
    sxr_extents_follow(program);
    return SX_OK;
}

int64_t sxr_extent(const sxr_program *program, uint32_t symbol)
{
    SX_ASSERT(symbol < program->module.symbol_count);
    return program->value[symbol];
}

uint32_t sxr_variant(const sxr_program *program)
{
    return program->variant;
}

uint64_t sxr_size(const sxr_program *program, uint32_t tensor)
{
    SX_ASSERT(tensor < program->module.tensor_count);
    return program->bytes[tensor];
}

const int64_t *sxr_shape(const sxr_program *program, uint32_t tensor)
{
    SX_ASSERT(tensor < program->module.tensor_count);
    return program->dim[tensor];
}
