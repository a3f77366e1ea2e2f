/* machine.c - NVIDIA GPUs as machines: names, and the check of their code.
 *
 * The code of a kernel in a module is the text of one PTX module that ends with a NUL; an entry is the place of
 * a directive ".visible .entry" in it. */
#include "core/target/machine.h"

#include <string.h>

#include "core/base/grid.h"
#include "core/nvidia/code.h"

#define VERSION ".version "
#define ENTRY ".visible .entry "

/* Where the text begins that holds this place; false: none does. */
static bool text_begin(sx_span blob, uint32_t place, uint32_t *begin)
{
    size_t n = sizeof(VERSION) - 1;
    for (uint32_t at = place + 1; at-- > 0;) {
        bool first = at == 0 || blob.ptr[at - 1] == 0;
        if (first && blob.len - at >= n && memcmp(blob.ptr + at, VERSION, n) == 0) {
            *begin = at;
            return true;
        }
        if (at < place && blob.ptr[at] == 0) {
            return false;
        }
    }
    return false;
}

static bool is_name(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

sx_code sx_nvidia_code_at(sx_ctx *cx, sx_span blob, uint32_t entry, sx_nvidia_code *code)
{
    SX_ASSERT(cx != NULL && code != NULL);
    size_t n = sizeof(ENTRY) - 1;
    uint32_t begin;
    if (blob.len > UINT32_MAX || entry >= blob.len || blob.len - entry <= n ||
        memcmp(blob.ptr + entry, ENTRY, n) != 0 || !text_begin(blob, entry, &begin)) {
        return SX_FAIL(cx, SX_INPUT, "PTX code at %u: no entry of a module", entry);
    }
    const uint8_t *end = memchr(blob.ptr + entry, 0, blob.len - entry);
    if (end == NULL) {
        return SX_FAIL(cx, SX_INPUT, "PTX code at %u: the text does not end", entry);
    }
    const uint8_t *name = blob.ptr + entry + n;
    size_t length = 0;
    while (name + length < end && is_name(name[length])) {
        length++;
    }
    *code = (sx_nvidia_code){.begin = begin,
                             .text = {blob.ptr + begin, (size_t)(end - (blob.ptr + begin))},
                             .name = {name, length}};
    return SX_OK;
}

const sx_ptx_kernel *sx_nvidia_find_kernel(const sx_ptx_module *module, sx_span name)
{
    for (uint32_t k = 0; k < module->kernel_count; k++) {
        if (sx_span_is(name, module->kernel[k].name)) {
            return &module->kernel[k];
        }
    }
    return NULL;
}

/* Shared memory that the text itself declares for a kernel; `dynamic`: it also names what a launch asks for. */
static uint64_t declared_shared(const sx_ptx_variable *variable, uint32_t count, bool *dynamic)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (variable[i].space == SX_PTX_SPACE_SHARED) {
            bytes += variable[i].external ? 0 : sx_ptx_variable_bytes(&variable[i]);
            *dynamic = *dynamic || variable[i].external;
        }
    }
    return bytes;
}

#define MAP_BYTES 128 /* CUtensorMap */
#define MAP_ALIGN 64

/* Behind the buffers stand as many maps as the launch gives, and behind them its numbers. */
static sx_code check_maps(sx_ctx *cx, const sx_ptx_kernel *kernel, uint32_t entry, uint32_t maps,
                          uint32_t numbers)
{
    uint32_t behind = 0, count = kernel->parameter_count;
    bool fits = count >= maps && count - maps >= numbers;
    for (uint32_t i = 0; fits && i < numbers; i++) {
        fits = sx_ptx_variable_bytes(&kernel->parameter[count - 1 - i]) == sizeof(uint64_t);
    }
    for (uint32_t i = 0; fits && i < count - numbers; i++) {
        const sx_ptx_variable *p = &kernel->parameter[i];
        bool map = sx_ptx_variable_bytes(p) > sizeof(uint64_t);
        fits = map ? sx_ptx_variable_bytes(p) == MAP_BYTES && p->align == MAP_ALIGN : behind == 0;
        behind += map ? 1 : 0;
    }
    if (!fits || behind != maps) {
        return SX_FAIL(
            cx, SX_INPUT,
            "PTX code at %u: %u parameters of %d bytes behind its buffers, launched with "
            "%u maps and %u numbers",
            entry, behind, MAP_BYTES, maps, numbers);
    }
    return SX_OK;
}

/* Does the kernel read how many blocks there are? Else each of its blocks is one point. */
static bool walks(const sx_ptx_kernel *kernel)
{
    bool found = false;
    for (uint32_t i = 0; i < kernel->arg_count && !found; i++) {
        const sx_ptx_arg *arg = &kernel->arg[i];
        found = arg->kind == SX_PTX_ARG_SPECIAL && arg->id == SX_PTX_SPECIAL_NCTAID_X;
    }
    return found;
}

/* More blocks in a cluster need a device that allows it (CUDA C++ Programming Guide, thread block clusters). */
#define CLUSTER_BLOCKS_MAX 8

/* A kernel that requires clusters is launched with whole ones. Where they walk, their points are neighbours, too. */
static sx_code check_cluster(sx_ctx *cx, const sx_machine *machine, const sx_ptx_kernel *kernel,
                             uint32_t entry, const sx_machine_block *block)
{
    const sx_ptx_block *c = &kernel->cluster;
    uint32_t grid[3] = {block->walkers, 0, 0};
    if (c->x == 0 && !kernel->explicit_cluster) {
        return SX_OK;
    }
    int64_t points;
    if (block->walkers > 0 ? sx_grid_can_walk(block->grid, &points)
                           : block->grid[0] > 0 && sx_grid_fits(block->grid)) {
        sx_grid_launched_by(block->grid, block->walkers, grid);
    }
    bool some = c->x > 0 && c->y > 0 && c->z > 0 && block->threads > 0 && machine->level >= 90;
    bool few = some && c->x <= CLUSTER_BLOCKS_MAX && c->y <= CLUSTER_BLOCKS_MAX / c->x &&
               c->z <= CLUSTER_BLOCKS_MAX / c->x / c->y;
    bool together = few && (block->walkers == 0 || block->grid[2] % c->x == 0);
    return together && grid[0] % c->x == 0 && grid[1] % c->y == 0 && grid[2] % c->z == 0
               ? SX_OK
               : SX_FAIL(cx, SX_INPUT,
                         "PTX code at %u: requires clusters of %ux%ux%u blocks, launched on %s "
                         "with a grid of %ux%ux%u",
                         entry, c->x, c->y, c->z, machine->name, grid[0], grid[1], grid[2]);
}

/* A kernel that is launched otherwise than it was written for computes something else, or does not start. */
static sx_code check_block(sx_ctx *cx, const sx_machine *machine, const sx_ptx_module *module,
                           const sx_ptx_kernel *kernel, uint32_t entry, sx_machine_block block)
{
    const sx_ptx_block *required = &kernel->required;
    bool dynamic = false;
    uint64_t shared = declared_shared(module->variable, module->variable_count, &dynamic);
    shared += declared_shared(kernel->variable, kernel->variable_count, &dynamic);
    if (block.threads == 0 ? required->x != 0
                           : required->x != block.threads || required->y != 1 || required->z != 1) {
        return SX_FAIL(cx, SX_INPUT,
                       "PTX code at %u: requires blocks of %ux%ux%u threads, launched "
                       "with %u",
                       entry, required->x, required->y, required->z, block.threads);
    }
    if (block.walkers > 0 && !walks(kernel)) {
        return SX_FAIL(cx, SX_INPUT,
                       "PTX code at %u: launched with %u blocks that walk over the grid, it does "
                       "not ask how many they are",
                       entry, block.walkers);
    }
    if (block.shared_bytes > 0 && !dynamic) {
        return SX_FAIL(cx, SX_INPUT,
                       "PTX code at %u: launched with %u bytes of shared memory, it "
                       "names none",
                       entry, block.shared_bytes);
    }
    if (shared + block.shared_bytes > machine->block_shared_bytes) {
        return SX_FAIL(cx, SX_INPUT,
                       "PTX code at %u: %llu bytes of shared memory and %u at the "
                       "launch, a block of %s has at most %u",
                       entry, (unsigned long long)shared, block.shared_bytes, machine->name,
                       machine->block_shared_bytes);
    }
    SX_TRY(check_cluster(cx, machine, kernel, entry, &block));
    return check_maps(cx, kernel, entry, block.maps, block.numbers);
}

static sx_code check(sx_ctx *cx, const sx_machine *machine, sx_span blob, const uint32_t *entry,
                     const sx_machine_block *block, uint32_t entry_count)
{
    sx_ptx_module *module = NULL;
    uint32_t begin = UINT32_MAX;
    for (uint32_t i = 0; i < entry_count; i++) {
        sx_nvidia_code code;
        SX_TRY(sx_nvidia_code_at(cx, blob, entry[i], &code));
        if (code.begin != begin) {
            SX_TRY(sx_ptx_parse(cx, code.text, &module));
            begin = code.begin;
        }
        bool there = module->feature == 0
                         ? module->target <= machine->level
                         : module->feature == 'a' && module->target == machine->level;
        if (!there) {
            return SX_FAIL(cx, SX_INPUT, "PTX code at %u: for sm_%u%c, the machine is %s", entry[i],
                           module->target, module->feature == 0 ? ' ' : module->feature,
                           machine->name);
        }
        const sx_ptx_kernel *kernel = sx_nvidia_find_kernel(module, code.name);
        if (kernel == NULL) {
            return SX_FAIL(cx, SX_INPUT, "PTX code at %u: no kernel %.*s", entry[i],
                           (int)(code.name.len < 80 ? code.name.len : 80),
                           (const char *)code.name.ptr);
        }
        sx_machine_block how = block != NULL ? block[i] : (sx_machine_block){0};
        SX_TRY(check_block(cx, machine, module, kernel, entry[i], how));
    }
    return SX_OK;
}

/* "CUDA C++ Programming Guide", technical specifications by compute capability: shared memory of a block. */
#define MACHINE(number, kib, words)                                               \
    const sx_machine sx_machine_sm_##number = {.name = "sm_" #number,             \
                                               .text = (words),                   \
                                               .family = "nvidia",                \
                                               .level = (number),                 \
                                               .block_shared_bytes = (kib) << 10, \
                                               .check = check}
MACHINE(80, 163, "compute capability 8.0: A100");
MACHINE(86, 99, "compute capability 8.6: RTX 30");
MACHINE(89, 99, "compute capability 8.9: RTX 40, L40");
MACHINE(90, 227, "compute capability 9.0: H100, H200");
MACHINE(100, 227, "compute capability 10.0: B200");
MACHINE(120, 99, "compute capability 12.0: RTX 50");
