/* cmd_dump.c - module dump: a module as a folder of files that other programs read.
 *
 *   manifest.txt                  the tables, as module show prints them, and a list of the files
 *   program.sx, optimized.sx      the program as it came and as it was compiled
 *   code.bin                      the whole code section
 *   kernels/kNNN_NAME.ptx         code that is text, and beside it
 *   kernels/kNNN_NAME.cubin       its machine code; kNNN_NAME.sm_90.cubin and so on where it is there for several GPUs
 *   kernels.json                  of each such kernel: its files, launch, what it needs, numerics plan, schedule,
 *                                 estimate
 *   kernels/kNNN_NAME_pP.bin      code and constants of one part
 *   kernels/kNNN_NAME_pP.s        the same for an assembler: .byte lines with the instruction behind, so that
 *                                 they give equal bytes
 *   constants/NNN_NAME.npy        elements; .bin where NumPy has no such element type
 *   weights/NNN_NAME.npy
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/cmd_module.h"
#include "client/cli/cubins.h"
#include "client/cli/maps.h"
#include "client/cli/npy.h"
#include "client/cli/table.h"
#include "core/target/target.h"

#define TEXT_BYTES_MAX ((size_t)1 << 30)
#define PATH_BYTES 4096

typedef struct {
    sx_ctx *cx;
    const sx_module *module;
    const sx_target *target; /* of the module */
    const char *folder;
    sx_buf list; /* of the files, for the manifest */
    uint32_t file_count;
    uint64_t byte_count;
} dump;

/* ---- files ---- */

static sx_code make_folder(sx_ctx *cx, const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        return SX_FAIL(cx, SX_INPUT, "%s: %s", path, strerror(errno));
    }
    return SX_OK;
}

static sx_code make_subfolder(dump *d, const char *name)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof(path), "%s/%s", d->folder, name) >= (int)sizeof(path)) {
        return SX_FAIL(d->cx, SX_USAGE, "folder name longer than %d bytes", PATH_BYTES);
    }
    return make_folder(d->cx, path);
}

static sx_code put_file(dump *d, const char *name, sx_span bytes)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof(path), "%s/%s", d->folder, name) >= (int)sizeof(path)) {
        return SX_FAIL(d->cx, SX_USAGE, "folder name longer than %d bytes", PATH_BYTES);
    }
    SX_TRY(sxc_write_file(d->cx, path, bytes));
    sx_buf_print(&d->list, "%12zu  %s\n", bytes.len, name);
    d->file_count++;
    d->byte_count += bytes.len;
    return SX_OK;
}

/* A name from the module as part of a file name: letters, digits, '_' and '-', at most 80. */
static void safe_name(sx_span name, char out[81])
{
    size_t n = name.len < 80 ? name.len : 80;
    for (size_t i = 0; i < n; i++) {
        char c = (char)name.ptr[i];
        bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
        out[i] = plain ? c : '_';
    }
    out[n] = '\0';
}

/* ---- code ---- */

static sx_code put_part(dump *d, uint64_t kernel, uint32_t part)
{
    const sx_module *module = d->module;
    uint64_t index = module->kernel[kernel].part_first + part;
    uint64_t entry = module->part[index].entry;
    sx_span code = {module->code + entry, (size_t)(sxc_module_part_end(module, index) - entry)};
    char safe[81], symbol[128], name[160];
    safe_name(sx_module_string(module, module->kernel[kernel].name), safe);
    (void)snprintf(symbol, sizeof(symbol), "k%03llu_%s_p%u", (unsigned long long)kernel, safe,
                   part);
    for (char *p = symbol; *p != '\0'; p++) {
        *p = *p == '-' ? '_' : *p;
    }
    (void)snprintf(name, sizeof(name), "kernels/%s.bin", symbol);
    SX_TRY(put_file(d, name, code));
    sx_buf text;
    sx_buf_init(&text, TEXT_BYTES_MAX);
    d->target->print(d->target, code, symbol, &text);
    (void)snprintf(name, sizeof(name), "kernels/%s.s", symbol);
    sx_code result = sx_buf_check(d->cx, &text, "assembly text");
    result = result == SX_OK ? put_file(d, name, sx_buf_span(&text)) : result;
    sx_buf_fini(&text);
    return result;
}

/* A kernel whose code is text, as an assembler reads it. */
static sx_code put_text(dump *d, uint64_t kernel, const char *name)
{
    const sx_module_kernel *k = &d->module->kernel[kernel];
    const uint8_t *begin = d->module->code + k->code_offset;
    const uint8_t *end = begin + k->code_size;
    while (begin < end && *begin == 0) { /* the text is aligned */
        begin++;
    }
    const uint8_t *nul = memchr(begin, 0, (size_t)(end - begin));
    return put_file(d, name, (sx_span){begin, (size_t)((nul != NULL ? nul : end) - begin)});
}

/* The cubins of a kernel, which its parts have in common: one for each kind of GPU. */
static sx_code put_cubins(dump *d, uint64_t kernel, sx_buf *json)
{
    const sx_module *module = d->module;
    const sx_module_kernel *k = &module->kernel[kernel];
    uint32_t levels = 0;
    for (uint64_t i = 0; i < module->cubin_count; i++) {
        levels += module->cubin[i].part == k->part_first ? 1 : 0;
    }
    sxc_json_open(json, "cubin", '[');
    for (uint64_t i = 0; i < module->cubin_count; i++) {
        const sx_module_cubin *row = &module->cubin[i];
        char safe[81], name[160];
        if (row->part != k->part_first) {
            continue;
        }
        safe_name(sx_module_string(module, k->name), safe);
        (void)snprintf(name, sizeof(name), "kernels/k%03llu_%s%s%s.cubin",
                       (unsigned long long)kernel, safe, levels > 1 ? "." : "",
                       levels > 1 ? sx_level_name(k->arch, row->level) : "");
        SX_TRY(put_file(d, name, (sx_span){module->code + row->offset, (size_t)row->size}));
        sxc_json_text(json, NULL, sx_span_of(name));
    }
    sxc_json_close(json, ']');
    return SX_OK;
}

/* How each part is launched: its grid, and the threads and shared memory of a block of a block program, and what the
 * copy engine reads for it. */
static void json_launch(const sx_module *module, const sx_module_kernel *k, sx_buf *json)
{
    sxc_json_open(json, "launch", '[');
    for (uint32_t p = 0; p < k->part_count; p++) {
        const sx_module_part *part = &module->part[k->part_first + p];
        sxc_json_open(json, NULL, '{');
        sxc_json_open(json, "grid", '[');
        for (uint32_t dim = 0; dim < 3; dim++) {
            sxc_json_int(json, NULL, part->grid[dim]);
        }
        sxc_json_close(json, ']');
        sxc_json_text(json, "program", sx_span_of(part->threads > 0 ? "block" : "vector"));
        sxc_json_int(json, "threads", part->threads);
        sxc_json_int(json, "walkers", part->walkers);
        sxc_json_int(json, "dynamic_shared_bytes", part->shared_bytes);
        sxc_json_maps(module, k->part_first + p, json);
        sxc_json_int(json, "numbers", sx_module_part_numbers(module, k->part_first + p));
        sxc_json_cases(module, k->part_first + p, json);
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
}

/* A kernel of text: its files, and all that is known of it. */
static sx_code put_text_kernel(dump *d, uint64_t kernel, sx_buf *json)
{
    const sx_module *module = d->module;
    const sx_module_kernel *k = &module->kernel[kernel];
    char safe[81], name[160], numerics[20];
    safe_name(sx_module_string(module, k->name), safe);
    (void)snprintf(name, sizeof(name), "kernels/k%03llu_%s.ptx", (unsigned long long)kernel, safe);
    (void)snprintf(numerics, sizeof(numerics), "%016llx", (unsigned long long)k->numerics);
    SX_TRY(put_text(d, kernel, name));
    sxc_json_open(json, NULL, '{');
    sxc_json_text(json, "name", sx_module_string(module, k->name));
    sxc_json_text(json, "kind", sx_span_of(sx_module_kernel_kind_name(k->kind)));
    sxc_json_text(json, "what", sx_module_string(module, k->what));
    sxc_json_text(json, "target", sx_span_of(sx_level_name(k->arch, k->level)));
    sxc_json_text(json, "ptx", sx_span_of(name));
    SX_TRY(put_cubins(d, kernel, json));
    json_launch(module, k, json);
    sxc_json_cubins(module, k, json);
    sxc_json_text(json, "numerics", sx_span_of(numerics));
    sxc_json_text(json, "schedule", sx_module_string(module, k->plan));
    sxc_json_real(json, "predicted_ns", k->cost_ns);
    sxc_json_real(json, "floor_ns", k->floor_ns);
    sxc_json_close(json, '}');
    return SX_OK;
}

/* The kernels of text, and kernels.json, if there is one. */
static sx_code put_text_kernels(dump *d)
{
    sx_buf json;
    uint32_t count = 0;
    sx_buf_init(&json, TEXT_BYTES_MAX);
    sxc_json_begin(&json, "kernels");
    sxc_json_open(&json, "kernels", '[');
    sx_code code = SX_OK;
    for (uint64_t k = 0; code == SX_OK && k < d->module->kernel_count; k++) {
        if (d->module->kernel[k].form == SX_FORM_PTX) {
            code = put_text_kernel(d, k, &json);
            count++;
        }
    }
    sxc_json_close(&json, ']');
    sxc_json_end(&json);
    code = code == SX_OK ? sx_buf_check(d->cx, &json, "kernels.json") : code;
    code = code == SX_OK && count > 0 ? put_file(d, "kernels.json", sx_buf_span(&json)) : code;
    sx_buf_fini(&json);
    return code;
}

static sx_code put_kernels(dump *d)
{
    SX_TRY(make_subfolder(d, "kernels"));
    for (uint64_t k = 0; k < d->module->kernel_count; k++) {
        bool text = d->module->kernel[k].form == SX_FORM_PTX;
        for (uint32_t p = 0; !text && p < d->module->kernel[k].part_count; p++) {
            SX_TRY(put_part(d, k, p));
        }
    }
    return put_text_kernels(d);
}

/* ---- elements ---- */

static sx_code put_tensor(dump *d, uint64_t index, const uint8_t *base, const char *folder)
{
    const sx_module_tensor *tensor = &d->module->tensor[index];
    char safe[81], name[160];
    sx_type type;
    sx_dim elements;
    safe_name(sx_module_string(d->module, tensor->name), safe);
    SX_TRY(sxc_module_type(d->cx, d->module, index, &type));
    sx_span bytes = {base + tensor->offset, (size_t)tensor->size};
    bool dense = sx_type_elements(&type, &elements) &&
                 (uint64_t)elements.scale * tensor->element_bytes == tensor->size;
    sx_buf file;
    sx_buf_init(&file, (size_t)16 << 30);
    bool npy = dense && sxc_npy_print(d->cx, &type, bytes, &file) == SX_OK;
    if (!npy) {
        sx_ctx_reset_error(d->cx);
    }
    (void)snprintf(name, sizeof(name), "%s/%03llu_%s.%s", folder, (unsigned long long)index, safe,
                   npy ? "npy" : "bin");
    sx_code code = put_file(d, name, npy ? sx_buf_span(&file) : bytes);
    sx_buf_fini(&file);
    return code;
}

static sx_code put_tensors(dump *d, sx_module_place place, const uint8_t *base, const char *folder)
{
    bool any = false;
    for (uint64_t i = 0; i < d->module->tensor_count; i++) {
        const sx_module_tensor *tensor = &d->module->tensor[i];
        if (tensor->place != (uint32_t)place || tensor->offset == UINT64_MAX) {
            continue;
        }
        if (!any) {
            SX_TRY(make_subfolder(d, folder));
        }
        any = true;
        SX_TRY(put_tensor(d, i, base, folder));
    }
    return SX_OK;
}

/* ---- the whole ---- */

static sx_code put_manifest(dump *d)
{
    sx_buf text;
    sx_buf_init(&text, TEXT_BYTES_MAX);
    sxc_record record;
    sx_code code = sxc_record_read(d->cx, d->module, NULL, &record);
    code = code == SX_OK ? sxc_module_text(d->cx, d->module, &record, &text) : code;
    sx_buf_put_text(&text, "\n       BYTES  FILE\n");
    sx_buf_put_span(&text, sx_buf_span(&d->list));
    code = code == SX_OK ? sx_buf_check(d->cx, &text, "manifest") : code;
    code = code == SX_OK ? put_file(d, "manifest.txt", sx_buf_span(&text)) : code;
    sx_buf_fini(&text);
    return code;
}

static sx_code put_all(dump *d)
{
    const sx_module *module = d->module;
    SX_TRY(make_folder(d->cx, d->folder));
    SX_TRY(put_file(d, "program.sx",
                    (sx_span){(const uint8_t *)module->program, (size_t)module->program_count}));
    SX_TRY(
        put_file(d, "optimized.sx",
                 (sx_span){(const uint8_t *)module->optimized, (size_t)module->optimized_count}));
    SX_TRY(put_file(d, "code.bin", (sx_span){module->code, (size_t)module->code_count}));
    SX_TRY(put_kernels(d));
    SX_TRY(put_tensors(d, SX_TENSOR_CONSTANT, module->constants, "constants"));
    SX_TRY(put_tensors(d, SX_TENSOR_WEIGHT, module->weights, "weights"));
    return put_manifest(d);
}

static sx_code report(sxc_cli *cli, const dump *d)
{
    sx_buf out;
    sx_buf_init(&out, 65536);
    if (cli->json) {
        sxc_json_begin(&out, "module_dump");
        sxc_json_text(&out, "folder", sx_span_of(d->folder));
        sxc_json_int(&out, "files", d->file_count);
        sxc_json_int(&out, "bytes", (int64_t)d->byte_count);
        sxc_json_end(&out);
    } else {
        char bytes[32];
        sxc_human_bytes((double)d->byte_count, bytes);
        sx_buf_print(&out, "%s: %u files, %s", d->folder, d->file_count, bytes);
    }
    sx_code code = sxc_put(cli, &out);
    sx_buf_fini(&out);
    return code;
}

sx_code sxc_cmd_module_dump(sxc_cli *cli)
{
    char folder[PATH_BYTES];
    const char *given = sxc_value(cli, SXC_OUTPUT), *path = cli->argument[0];
    if (snprintf(folder, sizeof(folder), given != NULL ? "%s" : "%s.dump",
                 given != NULL ? given : path) >= (int)sizeof(folder)) {
        return SX_FAIL(cli->cx, SX_USAGE, "folder name longer than %d bytes", PATH_BYTES);
    }
    sxc_module_file file;
    SX_TRY(sxc_module_file_open(cli->cx, path, true, &file));
    dump d = {.cx = cli->cx, .module = &file.module, .folder = folder};
    sx_buf_init(&d.list, TEXT_BYTES_MAX);
    const sx_module_info *info = file.module.info;
    const sx_machine *machine;
    sx_code code =
        sx_machine_of_module(cli->cx, NULL, sx_level_name(info->arch, info->level), &machine);
    d.target = code == SX_OK ? sx_target_of(NULL, machine) : NULL;
    SX_ASSERT(code != SX_OK || d.target != NULL);
    code = code == SX_OK ? put_all(&d) : code;
    code = code == SX_OK ? report(cli, &d) : code;
    sx_buf_fini(&d.list);
    sxc_module_file_close(&file);
    return code;
}
