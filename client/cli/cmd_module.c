/* cmd_module.c - module show, module check: the tables of a module for people and as JSON. */
#include <stdio.h>
#include <string.h>

#include "client/cli/cmd_module.h"
#include "client/cli/cubins.h"
#include "client/cli/maps.h"
#include "client/cli/table.h"
#include "client/runtime/runtime.h"

#define TEXT_BYTES_MAX ((size_t)256 << 20)

static sx_span text_of(const sx_module *module, sx_module_text text)
{
    return sx_module_string(module, text);
}

static sx_code put_type(sx_ctx *cx, const sx_module *module, uint64_t tensor, sx_buf *text)
{
    sx_type type;
    SX_TRY(sxc_module_type(cx, module, tensor, &type));
    sx_type_print(&type, NULL, 0, text);
    return SX_OK;
}

void sxc_module_key(const sx_module *module, char text[SX_KEY_TEXT_SIZE])
{
    sx_key key;
    memcpy(key.byte, module->info->key, sizeof(key.byte));
    sx_key_print(&key, text);
}

/* ---- for people ---- */

static void put_head(const sx_module *module, sx_buf *out)
{
    const sx_module_info *info = module->info;
    char key[SX_KEY_TEXT_SIZE], arena[32], persistent[32], state[32], workspace[32];
    sxc_module_key(module, key);
    sxc_put_line(out, "program", text_of(module, info->name));
    sxc_put_line(out, "target", text_of(module, info->target));
    sxc_put_line(out, "key", sx_span_of(key));
    sxc_put_line(out, "compiler", text_of(module, info->toolchain));
    sx_buf_put_text(out, "extents   ");
    for (uint32_t i = 0; i < module->symbol_count; i++) {
        sx_buf_put_text(out, i > 0 ? "; " : " ");
        sxc_put_plain(out, text_of(module, module->symbol[i].name));
        sx_buf_put_u8(out, '=');
        sx_module_symbol_print(module, i, out);
    }
    sxc_human_bytes((double)info->arena_bytes, arena);
    sxc_human_bytes((double)info->persistent_bytes, persistent);
    sxc_human_bytes((double)info->workspace_bytes, workspace);
    sxc_human_bytes((double)info->state_bytes, state);
    sx_buf_print(out, "\nnumerics   contract %llu\nmachine    %s, from %s on\n",
                 (unsigned long long)info->numerics, sx_arch_name(info->arch),
                 sx_level_name(info->arch, info->level));
    sx_buf_print(out, "memory     temporaries %s, persistent %s, state %s, each thread %s\n", arena,
                 persistent, state, workspace);
}

static void put_offset(sxc_table *table, bool bound, uint64_t offset)
{
    if (bound) {
        sxc_table_put(table, "-");
    } else {
        sxc_table_put(table, "%llu", (unsigned long long)offset);
    }
}

/* "in place of x", "begins as constants at 64", "begins as zeros", "variant 1", "all variants". */
static void put_note(const sx_module *module, const sx_module_tensor *tensor, sxc_table *table)
{
    if (tensor->alias != SX_MODULE_NONE) {
        sx_span input = text_of(module, module->tensor[tensor->alias].name);
        sxc_table_put(table, "in place of %.*s", (int)input.len, (const char *)input.ptr);
    } else if (tensor->initial != UINT64_MAX) {
        sxc_table_put(table, "begins as constants at %llu", (unsigned long long)tensor->initial);
    } else if (tensor->place == SX_TENSOR_STATE) {
        sxc_table_put(table, "begins as zeros");
    } else if (tensor->variant != SX_MODULE_NONE && module->variant_count > 1) {
        sxc_table_put(table, "variant %u", tensor->variant);
    } else if (tensor->place == SX_TENSOR_PERSISTENT && module->variant_count > 1) {
        sxc_table_put(table, "all variants");
    } else {
        sxc_table_put(table, "-");
    }
}

/* Extents that follow symbols: "tensor 0 dimension 0 = batch". */
static void put_extents(const sx_module *module, sx_buf *out)
{
    static const char *const what[SX_EXTENT_KIND_COUNT] = {"tensor", "part", "loop"};
    for (uint64_t i = 0; i < module->extent_count; i++) {
        const sx_module_extent *row = &module->extent[i];
        bool more = i > 0 && row[-1].what == row->what && row[-1].index == row->index &&
                    row[-1].dimension == row->dimension;
        if (more) { /* one more of a sum */
            out->len--;
            sx_buf_put_text(out, " + ");
        } else {
            sx_buf_print(out, "%s%s %u dimension %u = ", i == 0 ? "\n" : "", what[row->what],
                         row->index, row->dimension);
        }
        if (row->symbol == SX_MODULE_NONE) {
            sx_buf_print(out, "%lld\n", (long long)row->scale);
            continue;
        }
        if (row->scale > 1) {
            sx_buf_print(out, "%lld * ", (long long)row->scale);
        }
        sxc_put_plain(out, text_of(module, module->symbol[row->symbol].name));
        if (row->other != SX_MODULE_NONE) {
            sx_buf_put_text(out, " * ");
            sxc_put_plain(out, text_of(module, module->symbol[row->other].name));
        }
        if (row->divisor > 1) {
            sx_buf_print(out, " / %u, rounded up", row->divisor);
        }
        sx_buf_put_u8(out, '\n');
    }
}

static sx_code put_variants(sx_ctx *cx, const sx_module *module, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, cx, ">VARIANT|>LAUNCHES|>ESTIMATE US|NAME|WHEN");
    for (uint32_t v = 0; v < module->variant_count; v++) {
        const sx_module_variant *variant = &module->variant[v];
        sx_buf guards;
        sx_buf_init(&guards, 65536);
        sx_module_guards_print(module, v, &guards);
        sxc_table_put(&table, "%u", v);
        sxc_table_put(&table, "%u", variant->launch_count);
        sxc_table_put(&table, "%.1f", variant->cost_ns / 1e3);
        sxc_table_put_span(&table, variant->name.size > 0 ? text_of(module, variant->name)
                                                          : SX_SPAN_LITERAL("-"));
        sxc_table_put_span(&table,
                           guards.len > 0 ? sx_buf_span(&guards) : SX_SPAN_LITERAL("always"));
        sx_buf_fini(&guards);
    }
    sx_buf_put_u8(out, '\n');
    return sxc_table_print(&table, out);
}

static sx_code put_tensors(sx_ctx *cx, const sx_module *module, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, cx, ">TENSOR|PLACE|>OFFSET|>BYTES|TYPE|NOTE|NAME");
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        bool bound = tensor->place == SX_TENSOR_INPUT || tensor->place == SX_TENSOR_OUTPUT ||
                     tensor->offset == UINT64_MAX;
        sx_buf type;
        sx_buf_init(&type, 4096);
        sx_code code = put_type(cx, module, i, &type);
        sxc_table_put(&table, "%llu", (unsigned long long)i);
        sxc_table_put(&table, "%s", sx_module_place_name(tensor->place));
        put_offset(&table, bound, tensor->offset);
        sxc_table_put(&table, "%llu", (unsigned long long)tensor->size);
        sxc_table_put_span(&table, sx_buf_span(&type));
        put_note(module, tensor, &table);
        sxc_table_put_span(&table, text_of(module, tensor->name));
        sx_buf_fini(&type);
        SX_TRY(code);
    }
    sx_buf_put_u8(out, '\n');
    return sxc_table_print(&table, out);
}

/* Threads and bytes of shared memory of the largest block among its parts; "-": none is a block program. */
static void put_block(const sx_module *module, const sx_module_kernel *kernel, sxc_table *table)
{
    uint32_t threads = 0, shared_bytes = 0;
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const sx_module_part *part = &module->part[kernel->part_first + p];
        threads = part->threads > threads ? part->threads : threads;
        shared_bytes = part->shared_bytes > shared_bytes ? part->shared_bytes : shared_bytes;
    }
    SX_ASSERT(threads > 0 || shared_bytes == 0);
    if (threads == 0) {
        sxc_table_put(table, "-");
        sxc_table_put(table, "-");
        return;
    }
    sxc_table_put(table, "%u", threads);
    sxc_table_put(table, "%u", shared_bytes);
}

/* Registers and spills of the machine code beside a text; "-": there is none. */
static void put_need(const sx_module *module, const sx_module_kernel *kernel, sxc_table *table)
{
    sxc_cubin_need need = sxc_cubin_need_of(module, kernel);
    if (need.count == 0) {
        sxc_table_put(table, "-");
        sxc_table_put(table, "-");
        return;
    }
    sxc_table_put(table, "%u", need.registers);
    sxc_table_put(table, "%u", need.spills);
}

static sx_code put_kernels(sx_ctx *cx, const sx_module *module, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, cx,
                   ">KERNEL|KIND|>PARTS|>RESULTS|>THREADS|>SHARED|>REGISTERS|>SPILLS|>CODE BYTES|"
                   "MACHINE|CODE|NUMERICS|NAME");
    for (uint64_t i = 0; i < module->kernel_count; i++) {
        const sx_module_kernel *kernel = &module->kernel[i];
        sxc_table_put(&table, "%llu", (unsigned long long)i);
        sxc_table_put(&table, "%s", sx_module_kernel_kind_name(kernel->kind));
        sxc_table_put(&table, "%u", kernel->part_count);
        sxc_table_put(&table, "%u", kernel->result_count);
        put_block(module, kernel, &table);
        put_need(module, kernel, &table);
        sxc_table_put(&table, "%llu", (unsigned long long)kernel->code_size);
        sxc_table_put(&table, "%s", sx_level_name(kernel->arch, kernel->level));
        sxc_table_put(&table, "%s", sx_form_name(kernel->form));
        sxc_table_put(&table, "%016llx", (unsigned long long)kernel->numerics);
        sxc_table_put_span(&table, text_of(module, kernel->name));
    }
    sx_buf_put_u8(out, '\n');
    return sxc_table_print(&table, out);
}

/* The kernel of a launch, or what takes its place: "0x3f800000", "4 times, 2 launches", "all-reduce sum along dp". */
static void put_work(const sx_module *module, uint64_t index, sx_buf *text)
{
    const sx_module_launch *launch = &module->launch[index];
    sx_span name = text_of(module, launch->name);
    switch ((sx_module_launch_kind)launch->kind) {
    case SX_LAUNCH_KERNEL:
        sx_buf_print(text, "%u ", launch->kernel);
        sxc_put_plain(text, text_of(module, module->kernel[launch->kernel].name));
        return;
    case SX_LAUNCH_FILL: sx_buf_print(text, "0x%llx", (unsigned long long)launch->value); return;
    case SX_LAUNCH_LOOP:
        sx_buf_print(text, "%llu times the next %u", (unsigned long long)launch->value,
                     launch->body);
        return;
    case SX_LAUNCH_COLLECTIVE: sx_module_collective_print(module, launch, text); return;
    case SX_LAUNCH_HOST: sxc_put_plain(text, name); return;
    case SX_LAUNCH_SLICE:
    case SX_LAUNCH_ROW: sx_buf_put_text(text, "of the round"); return;
    case SX_LAUNCH_BRANCH:
        sx_buf_print(text, "the next %u, or the %u behind", launch->first,
                     launch->body - launch->first);
        return;
    case SX_LAUNCH_WHILE:
        sx_buf_print(text, "the next %u, then the %u behind, at most %llu times", launch->first,
                     launch->body - launch->first, (unsigned long long)launch->value);
        return;
    case SX_LAUNCH_COPY:
    case SX_LAUNCH_KIND_COUNT: sx_buf_put_text(text, "-"); return;
    }
}

static sx_code put_launches(sx_ctx *cx, const sx_module *module, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, cx, ">LAUNCH|>VARIANT|KIND|WHEN|WHAT|TENSORS");
    for (uint32_t v = 0; v < module->variant_count; v++) {
        const sx_module_variant *variant = &module->variant[v];
        for (uint32_t n = 0; n < variant->launch_count; n++) {
            uint64_t i = variant->launch_first + n;
            const sx_module_launch *launch = &module->launch[i];
            sx_buf args, work;
            sx_buf_init(&args, 4096);
            sx_buf_init(&work, 4096);
            for (uint32_t k = 0; k < launch->arg_count; k++) {
                sx_buf_print(&args, "%s%u", k > 0 ? " " : "", module->arg[launch->arg_first + k]);
            }
            put_work(module, i, &work);
            sxc_table_put(&table, "%llu", (unsigned long long)i);
            sxc_table_put(&table, "%u", v);
            sxc_table_put(&table, "%s", sx_module_launch_name(launch->kind));
            sxc_table_put(&table, "%s", launch->prologue ? "load" : "run");
            sxc_table_put_span(&table, sx_buf_span(&work));
            sxc_table_put_span(&table, sx_buf_span(&args));
            sx_buf_fini(&args);
            sx_buf_fini(&work);
        }
    }
    sx_buf_put_u8(out, '\n');
    return sxc_table_print(&table, out);
}

/* How the code of a check was run. */
static const char *code_of(const sx_module_check *check)
{
    return !check->passed ? "-" : check->emulated ? "emulated" : "executed";
}

void sxc_put_check(sxc_table *table, sx_span name, const sx_module_check *check, bool verified)
{
    sxc_table_put_span(table, name);
    sxc_table_put(table, "%s",
                  check->passed == SX_CHECK_ABSENT      ? "did not run"
                  : !verified                           ? "claimed"
                  : check->passed == SX_CHECK_IMPRECISE ? "imprecise"
                                                        : "passed");
    sxc_table_put(table, "%s", code_of(check));
    sxc_table_put(table, "%llu", (unsigned long long)check->points);
    sxc_table_put(table, "%.1e", check->error);
    sxc_table_put(table, "%.0e", check->tolerance);
}

sx_code sxc_put_checks(sx_ctx *cx, const sx_module *module, const sxc_record *record, sx_buf *out)
{
    bool verified = record->state == SXC_RECORD_VERIFIED;
    sx_buf_put_text(out, "\nrecord     ");
    sxc_record_print(record, out);
    sx_buf_put_u8(out, '\n');
    sxc_table table;
    sxc_table_init(&table, cx, SXC_CHECK_COLUMNS);
    for (uint64_t i = 0; i < module->check_count; i++) {
        const sx_module_check *check = &module->check[i];
        sxc_put_check(&table, text_of(module, check->name), check, verified);
    }
    sx_buf_put_u8(out, '\n');
    return sxc_table_print(&table, out);
}

sx_code sxc_module_text(sx_ctx *cx, const sx_module *module, const sxc_record *record, sx_buf *out)
{
    put_head(module, out);
    SX_TRY(put_variants(cx, module, out));
    SX_TRY(put_tensors(cx, module, out));
    put_extents(module, out);
    SX_TRY(put_kernels(cx, module, out));
    SX_TRY(put_launches(cx, module, out));
    return sxc_put_checks(cx, module, record, out);
}

/* ---- JSON ---- */

static sx_code json_tensor(sx_ctx *cx, const sx_module *module, uint64_t index, sx_buf *json)
{
    const sx_module_tensor *tensor = &module->tensor[index];
    sx_type type;
    SX_TRY(sxc_module_type(cx, module, index, &type));
    sxc_json_open(json, NULL, '{');
    sxc_json_text(json, "name", text_of(module, tensor->name));
    sxc_json_text(json, "place", sx_span_of(sx_module_place_name(tensor->place)));
    sxc_json_text(json, "dtype", sx_span_of(sx_dtype_name(type.dtype)));
    sxc_json_open(json, "shape", '[');
    for (uint32_t d = 0; d < tensor->rank; d++) {
        sxc_json_int(json, NULL, tensor->dim[d]);
    }
    sxc_json_close(json, ']');
    if (tensor->place != SX_TENSOR_INPUT && tensor->place != SX_TENSOR_OUTPUT) {
        sxc_json_bool(json, "carried", tensor->offset != UINT64_MAX);
        if (tensor->offset != UINT64_MAX) {
            sxc_json_int(json, "offset", (int64_t)tensor->offset);
        }
    }
    sxc_json_int(json, "bytes", (int64_t)tensor->size);
    if (tensor->variant != SX_MODULE_NONE) {
        sxc_json_int(json, "variant", tensor->variant);
    }
    if (tensor->alias != SX_MODULE_NONE) {
        sxc_json_text(json, "in_place_of", text_of(module, module->tensor[tensor->alias].name));
    }
    if (tensor->initial != UINT64_MAX) {
        sxc_json_int(json, "initial", (int64_t)tensor->initial);
    }
    sxc_json_close(json, '}');
    return SX_OK;
}

static void json_guard(const sx_module *module, const sx_module_guard *guard, sx_buf *json)
{
    static const char *const kind[SX_GUARD_KIND_COUNT] = {"range", "divisible", "equal", "machine"};
    sxc_json_open(json, NULL, '{');
    sxc_json_text(json, "kind", sx_span_of(kind[guard->kind]));
    if (guard->kind == SX_GUARD_MACHINE) {
        sxc_json_text(json, "architecture", sx_span_of(sx_arch_name(guard->subject)));
        sxc_json_text(json, "level",
                      sx_span_of(sx_level_name(guard->subject, (uint32_t)guard->low)));
    } else {
        sxc_json_text(json, "extent", text_of(module, module->symbol[guard->subject].name));
        sxc_json_int(json, guard->kind == SX_GUARD_RANGE ? "low" : "value", guard->low);
    }
    if (guard->kind == SX_GUARD_RANGE) {
        sxc_json_int(json, "high", guard->high);
    }
    sxc_json_close(json, '}');
}

void sxc_json_variants(sx_buf *json, const sx_module *module)
{
    sxc_json_open(json, "variants", '[');
    for (uint64_t v = 0; v < module->variant_count; v++) {
        const sx_module_variant *variant = &module->variant[v];
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "name", text_of(module, variant->name));
        sxc_json_int(json, "first_launch", variant->launch_first);
        sxc_json_int(json, "launches", variant->launch_count);
        sxc_json_real(json, "estimate_ns", variant->cost_ns);
        sxc_json_real(json, "floor_ns", variant->floor_ns);
        sxc_json_real(json, "flops", variant->flops);
        sxc_json_open(json, "guards", '[');
        for (uint32_t i = 0; i < variant->guard_count; i++) {
            json_guard(module, &module->guard[variant->guard_first + i], json);
        }
        sxc_json_close(json, ']');
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
}

static void json_kernel(const sx_module *module, const sx_module_kernel *kernel, sx_buf *json)
{
    char numerics[20];
    (void)snprintf(numerics, sizeof(numerics), "%016llx", (unsigned long long)kernel->numerics);
    sxc_json_open(json, NULL, '{');
    sxc_json_text(json, "name", text_of(module, kernel->name));
    sxc_json_text(json, "kind", sx_span_of(sx_module_kernel_kind_name(kernel->kind)));
    sxc_json_text(json, "numerics", sx_span_of(numerics));
    sxc_json_text(json, "code", sx_span_of(sx_form_name(kernel->form)));
    sxc_json_text(json, "architecture", sx_span_of(sx_arch_name(kernel->arch)));
    sxc_json_text(json, "level", sx_span_of(sx_level_name(kernel->arch, kernel->level)));
    sxc_json_int(json, "arguments", kernel->arg_count);
    sxc_json_int(json, "results", kernel->result_count);
    sxc_json_open(json, "parts", '[');
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        uint64_t index = kernel->part_first + p;
        const sx_module_part *part = &module->part[index];
        sxc_json_open(json, NULL, '{');
        sxc_json_int(json, "entry", (int64_t)part->entry);
        sxc_json_int(json, "bytes", (int64_t)(sxc_module_part_end(module, index) - part->entry));
        sxc_json_open(json, "grid", '[');
        for (uint32_t d = 0; d < 3; d++) {
            sxc_json_int(json, NULL, part->grid[d]);
        }
        sxc_json_close(json, ']');
        sxc_json_int(json, "threads", part->threads);
        sxc_json_int(json, "walkers", part->walkers);
        sxc_json_int(json, "shared_bytes", part->shared_bytes);
        sxc_json_maps(module, (uint32_t)index, json);
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    sxc_json_cubins(module, kernel, json);
    sxc_json_close(json, '}');
}

static void json_launch(const sx_module *module, const sx_module_launch *launch, sx_buf *json)
{
    sxc_json_open(json, NULL, '{');
    sxc_json_text(json, "kind", sx_span_of(sx_module_launch_name(launch->kind)));
    if (launch->kind == SX_LAUNCH_KERNEL) {
        sxc_json_int(json, "kernel", launch->kernel);
    }
    if (launch->kind == SX_LAUNCH_LOOP || launch->kind == SX_LAUNCH_BRANCH ||
        launch->kind == SX_LAUNCH_WHILE) {
        sxc_json_int(json, "body", launch->body);
    }
    if (launch->kind == SX_LAUNCH_BRANCH || launch->kind == SX_LAUNCH_WHILE) {
        sxc_json_int(json, "first", launch->first);
    }
    if (launch->kind == SX_LAUNCH_LOOP || launch->kind == SX_LAUNCH_WHILE ||
        launch->kind == SX_LAUNCH_FILL) {
        sxc_json_int(json, "value", (int64_t)launch->value);
    }
    if (launch->kind == SX_LAUNCH_COLLECTIVE) {
        sxc_json_text(json, "collective", sx_span_of(sx_module_collective_name(launch->value)));
        if (launch->value == SX_COLLECTIVE_ALL_REDUCE ||
            launch->value == SX_COLLECTIVE_REDUCE_SCATTER) {
            sxc_json_text(json, "combine", sx_span_of(sx_module_combine_name(launch->combine)));
        }
    }
    if (launch->name.size > 0) {
        sxc_json_text(json, "name", text_of(module, launch->name));
    }
    sxc_json_bool(json, "prologue", launch->prologue != 0);
    sxc_json_variants(json, module);
    sxc_json_open(json, "tensors", '[');
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        sxc_json_int(json, NULL, module->arg[launch->arg_first + k]);
    }
    sxc_json_close(json, ']');
    sxc_json_close(json, '}');
}

void sxc_json_check(sx_buf *json, sx_span name, const sx_module_check *check)
{
    sxc_json_open(json, NULL, '{');
    sxc_json_text(json, "name", name);
    sxc_json_bool(json, "passed", check->passed != SX_CHECK_ABSENT);
    sxc_json_bool(json, "imprecise", check->passed == SX_CHECK_IMPRECISE);
    sxc_json_text(json, "code", sx_span_of(code_of(check)));
    sxc_json_int(json, "elements", (int64_t)check->points);
    sxc_json_real(json, "error", check->error);
    sxc_json_real(json, "tolerance", check->tolerance);
    sxc_json_close(json, '}');
}

void sxc_json_checks(sx_buf *json, const sx_module *module, const sxc_record *record)
{
    sxc_json_text(json, "record", sx_span_of(sxc_record_name(record)));
    sxc_json_text(json, "record_key", sx_span_of(record->key));
    sxc_json_open(json, "checks", '[');
    for (uint64_t i = 0; i < module->check_count; i++) {
        const sx_module_check *check = &module->check[i];
        sxc_json_check(json, text_of(module, check->name), check);
    }
    sxc_json_close(json, ']');
}

void sxc_json_module_info(sx_buf *json, const sx_module *module)
{
    const sx_module_info *info = module->info;
    char key[SX_KEY_TEXT_SIZE];
    sxc_module_key(module, key);
    sxc_json_text(json, "program", text_of(module, info->name));
    sxc_json_text(json, "target", text_of(module, info->target));
    sxc_json_text(json, "key", sx_span_of(key));
    sxc_json_text(json, "toolchain", text_of(module, info->toolchain));
    sxc_json_text(json, "architecture", sx_span_of(sx_arch_name(info->arch)));
    sxc_json_text(json, "level", sx_span_of(sx_level_name(info->arch, info->level)));
    sxc_json_int(json, "numerics", (int64_t)info->numerics);
    sxc_json_open(json, "extents", '{');
    for (uint32_t i = 0; i < module->symbol_count; i++) {
        bool fixed = sx_module_symbol_fixed(module, i); /* then a number, else text: "1, 4 to 8" */
        sxc_json_item(json);
        sx_json_text(json, text_of(module, module->symbol[i].name));
        sx_buf_put_text(json, fixed ? ":" : ":\"");
        sx_module_symbol_print(module, i, json);
        sx_buf_put_text(json, fixed ? "" : "\"");
    }
    sxc_json_close(json, '}');
}

static sx_code module_json(sx_ctx *cx, const sx_module *module, const sxc_record *record,
                           sx_buf *json)
{
    const sx_module_info *info = module->info;
    sxc_json_begin(json, "module");
    sxc_json_module_info(json, module);
    sxc_json_int(json, "arena_bytes", (int64_t)info->arena_bytes);
    sxc_json_int(json, "persistent_bytes", (int64_t)info->persistent_bytes);
    sxc_json_int(json, "state_bytes", (int64_t)info->state_bytes);
    sxc_json_int(json, "workspace_bytes", (int64_t)info->workspace_bytes);
    sxc_json_int(json, "code_bytes", (int64_t)module->code_count);
    sxc_json_int(json, "constant_bytes", (int64_t)module->constants_count);
    sxc_json_int(json, "weight_bytes", (int64_t)module->weights_count);
    sxc_json_variants(json, module);
    sxc_json_open(json, "tensors", '[');
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        SX_TRY(json_tensor(cx, module, i, json));
    }
    sxc_json_close(json, ']');
    sxc_json_open(json, "kernels", '[');
    for (uint64_t i = 0; i < module->kernel_count; i++) {
        json_kernel(module, &module->kernel[i], json);
    }
    sxc_json_close(json, ']');
    sxc_json_open(json, "launches", '[');
    for (uint64_t i = 0; i < module->launch_count; i++) {
        json_launch(module, &module->launch[i], json);
    }
    sxc_json_close(json, ']');
    sxc_json_checks(json, module, record);
    sxc_json_end(json);
    return sx_buf_check(cx, json, "JSON of the module");
}

/* ---- commands ---- */

sx_code sxc_cmd_module_show(sxc_cli *cli)
{
    sxc_module_file file;
    sxc_record record;
    SX_TRY(sxc_module_file_open(cli->cx, cli->argument[0], true, &file));
    sx_buf out;
    sx_buf_init(&out, TEXT_BYTES_MAX);
    sx_code code = sxc_record_read(cli->cx, &file.module, sxc_value(cli, SXC_SOCKET), &record);
    if (code == SX_OK) {
        code = cli->json ? module_json(cli->cx, &file.module, &record, &out)
                         : sxc_module_text(cli->cx, &file.module, &record, &out);
    }
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&out);
    sxc_module_file_close(&file);
    return code;
}

static sx_code check_types(sx_ctx *cx, const sx_module *module)
{
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        sx_type type;
        SX_TRY(sxc_module_type(cx, module, i, &type));
    }
    return SX_OK;
}

static void print_findings(const sxc_cli *cli, const sxc_module_file *file,
                           const sxc_record *record, sx_buf *out)
{
    const sx_module *module = &file->module;
    if (cli->json) {
        sxc_json_begin(out, "module_check");
        sxc_json_bool(out, "valid", true);
        sxc_json_int(out, "bytes", (int64_t)file->size);
        sxc_json_int(out, "code_bytes", (int64_t)module->code_count);
        sxc_json_int(out, "parts", (int64_t)module->part_count);
        sxc_json_text(out, "record", sx_span_of(sxc_record_name(record)));
        sxc_json_text(out, "record_key", sx_span_of(record->key));
        sxc_json_end(out);
        return;
    }
    sx_buf_print(out, "%s: valid, %zu bytes, %llu of code in %llu parts\nrecord     ",
                 cli->argument[0], file->size, (unsigned long long)module->code_count,
                 (unsigned long long)module->part_count);
    sxc_record_print(record, out);
}

/* Everything that makes the answer no; a record of other bytes does. */
static sx_code examine(sxc_cli *cli, const sxc_module_file *file, sxc_record *record)
{
    const sx_module *module = &file->module;
    SX_TRY(check_types(cli->cx, module));
    SX_TRY(sxr_check_code(cli->cx, NULL, module));
    SX_TRY(sxc_record_read(cli->cx, module, sxc_value(cli, SXC_SOCKET), record));
    if (record->state == SXC_RECORD_ALTERED) {
        sx_hint(cli->cx, "What it computes: symplex-client verify (runs it, confined)");
        return SX_FAIL(cli->cx, SX_CORRUPT,
                       "the verification record, signed by %s, does not fit these bytes",
                       record->key);
    }
    return SX_OK;
}

sx_code sxc_cmd_module_check(sxc_cli *cli)
{
    sxc_module_file file;
    sxc_record record;
    SX_TRY(sxc_module_file_open(cli->cx, cli->argument[0], true, &file));
    sx_code code = examine(cli, &file, &record);
    code = code == SX_OK ? SX_OK : sx_fail_in(cli->cx, "%s", cli->argument[0]);
    sx_buf out;
    sx_buf_init(&out, 65536);
    if (code == SX_OK) {
        print_findings(cli, &file, &record, &out);
        code = sxc_put(cli, &out);
    }
    sx_buf_fini(&out);
    sxc_module_file_close(&file);
    return code;
}
