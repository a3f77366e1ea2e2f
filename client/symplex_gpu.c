/* symplex_gpu.c - GPUs for callers without a CUDA library: which one it is, memory of it, streams in order. */
#include "client/symplex_inside.h"

#include <stdio.h>
#include <string.h>

#include "client/cuda/cuda.h"
#include "core/cost/device.h"
#include "protocol/arch.h"

/* ---- which GPU ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Letters and digits alone, in small letters: "GeForce RTX 4090" is "geforcertx4090". Numbers stay apart: "H100 80GB"
 * is "h100 80gb". */
static void squeeze(const char *name, char *to, size_t size)
{
    size_t used = 0;
    bool apart = false; /* something else stood in between */
    for (; *name != '\0' && used + 2 < size; name++) {
        bool capital = *name >= 'A' && *name <= 'Z';
        if (!capital && !(*name >= 'a' && *name <= 'z') && !is_digit(*name)) {
            apart = true;
            continue;
        }
        if (apart && used > 0 && is_digit(to[used - 1]) && is_digit(*name)) {
            to[used++] = ' ';
        }
        to[used++] = capital ? (char)(*name - 'A' + 'a') : *name;
        apart = false;
    }
    to[used] = '\0';
}

/* The name of a GPU names this row: it has its letters and digits, and no digit behind them ("h100" is not in
 * "H1000"). */
static bool names_row(const char *gpu, const char *row)
{
    char whole[128], part[SX_DEVICE_NAME_MAX + 2];
    squeeze(gpu, whole, sizeof(whole));
    squeeze(row, part, sizeof(part));
    const char *at = strstr(whole, part);
    return at != NULL && part[0] != '\0' && !is_digit(at[strlen(part)]);
}

/* The row of the table of devices that this GPU is; NULL: none. */
static const sx_device *find_row(const sxg_info *gpu)
{
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        const sx_device *row = sx_device_at(i);
        uint32_t arch, level;
        if (row->target != NULL && sx_level_find(row->target, &arch, &level) &&
            arch == SX_ARCH_NVIDIA && level == gpu->capability && names_row(gpu->name, row->name)) {
            return row;
        }
    }
    return NULL;
}

symplex_code symplex_gpu_describe(int gpu, symplex_gpu_info *info, symplex_error *error)
{
    if (info == NULL) {
        return sxc_call_misuse(error, "symplex_gpu_describe: no place for the answer");
    }
    sx_ctx cx;
    sxg_info found;
    sxc_call_begin(&cx);
    sx_code code = sxg_describe(&cx, gpu, &found);
    *info = (symplex_gpu_info){.gpu = gpu};
    if (code == SX_OK) {
        const sx_device *row = find_row(&found);
        info->capability = found.capability;
        memcpy(info->name, found.name, sizeof(info->name));
        (void)snprintf(info->target, sizeof(info->target), "%s", row != NULL ? row->name : "");
    }
    return sxc_call_finish(&cx, code, error);
}

/* ---- memory and streams of the GPU that runs a module ---- */

/* What is done while the GPU is current. */
typedef sx_code (*action)(sx_ctx *cx, sxg_gpu *gpu, void *self);

static symplex_code on_gpu(symplex_module *module, const char *call, action act, void *self,
                           symplex_error *error)
{
    char text[96];
    sx_ctx cx;
    sxg_gpu *gpu = module != NULL ? sxr_gpu_of(module->program) : NULL;
    if (gpu == NULL) {
        (void)snprintf(text, sizeof(text), "%s: %s", call,
                       module == NULL ? "no module" : "the module runs on the processor");
        return sxc_call_misuse(error, text);
    }
    sxc_call_begin(&cx);
    sx_code code = sxg_enter(&cx, gpu);
    if (code == SX_OK) {
        code = act(&cx, gpu, self);
        sxg_leave(gpu);
    }
    return sxc_call_finish(&cx, code, error);
}

typedef struct {
    uint64_t address, size;
    void *memory;
} area;

static sx_code alloc(sx_ctx *cx, sxg_gpu *gpu, void *self)
{
    area *a = self;
    return sxg_alloc(cx, gpu, "memory of the caller", a->size > 0 ? a->size : 1, &a->address);
}

symplex_code symplex_module_device_alloc(symplex_module *module, size_t size, uint64_t *address,
                                         symplex_error *error)
{
    area a = {.size = size};
    if (address == NULL) {
        return sxc_call_misuse(error, "symplex_module_device_alloc: no place for the address");
    }
    symplex_code code = on_gpu(module, "symplex_module_device_alloc", alloc, &a, error);
    *address = a.address;
    return code;
}

static sx_code give_back(sx_ctx *cx, sxg_gpu *gpu, void *self)
{
    const area *a = self;
    (void)cx;
    sxg_free(gpu, a->address);
    return SX_OK;
}

symplex_code symplex_module_device_free(symplex_module *module, uint64_t address,
                                        symplex_error *error)
{
    area a = {.address = address};
    return on_gpu(module, "symplex_module_device_free", give_back, &a, error);
}

static sx_code read_area(sx_ctx *cx, sxg_gpu *gpu, void *self)
{
    const area *a = self;
    SX_TRY(sxg_check_address(cx, gpu, a->address));
    SX_TRY(sxg_follow_own(cx, gpu));
    SX_TRY(sxg_download(cx, gpu, a->memory, a->address, a->size));
    return sxg_sync(cx, gpu);
}

symplex_code symplex_module_device_read(symplex_module *module, uint64_t address, void *memory,
                                        size_t size, symplex_error *error)
{
    area a = {.address = address, .memory = memory, .size = size};
    if (memory == NULL) {
        return sxc_call_misuse(error, "symplex_module_device_read: no memory");
    }
    return on_gpu(module, "symplex_module_device_read", read_area, &a, error);
}

typedef struct {
    void *first, *then;
} pair;

static sx_code mark(sx_ctx *cx, sxg_gpu *gpu, void *self)
{
    return sxg_mark(cx, gpu, ((const pair *)self)->first);
}

symplex_code symplex_module_mark(symplex_module *module, void *stream, symplex_error *error)
{
    pair p = {.first = stream};
    return on_gpu(module, "symplex_module_mark", mark, &p, error);
}

static sx_code follow(sx_ctx *cx, sxg_gpu *gpu, void *self)
{
    return sxg_follow(cx, gpu, ((const pair *)self)->then);
}

symplex_code symplex_module_follow(symplex_module *module, void *stream, symplex_error *error)
{
    pair p = {.then = stream};
    return on_gpu(module, "symplex_module_follow", follow, &p, error);
}

static sx_code order(sx_ctx *cx, sxg_gpu *gpu, void *self)
{
    const pair *p = self;
    return sxg_order(cx, gpu, p->first, p->then);
}

symplex_code symplex_module_order(symplex_module *module, void *first, void *then,
                                  symplex_error *error)
{
    pair p = {first, then};
    return on_gpu(module, "symplex_module_order", order, &p, error);
}
