/* target.c - NVIDIA GPUs as rows of core/target. Kernels go the way of the loop IR, with 32 lanes, or are programs of
 * blocks where the schedule says so. */
#include "core/target/target.h"

#include <string.h>

#include "core/base/grid.h"
#include "core/nvidia/assemble.h"
#include "core/nvidia/code.h"
#include "core/nvidia/loop.h"
#include "core/nvidia/tile.h"
#include "core/ptx/numbers.h"
#include "core/simt/run.h"
#include "core/tile/online.h"

#define TEXT_MAX ((size_t)64 << 20)
#define CODE_ALIGN 64
#define BLOCKS_MAX 16

/* Shared memory that a block can have: NVIDIA, "CUDA C++ Programming Guide", technical specifications by compute
 * capability. */
static uint32_t shared_bytes_of(const sx_target *target)
{
    uint32_t level = target->machine->level;
    uint32_t kib = level == 80 ? 163 : level >= 90 && level < 120 ? 227 : 99;
    return kib << 10;
}

static sx_code lower(sx_ctx *cx, const sx_target *target, const sx_lowering *what,
                     sx_kernel **kernel)
{
    sx_block_tiles tiles;
    sx_online_blocks online;
    bool block = what->kind != SX_LOWER_MOVE && sx_block_tiles_of(what->schedule, &tiles);
    bool sums =
        !block && what->kind == SX_LOWER_FUSED && sx_online_blocks_of(what->schedule, &online);
    if (!sums && (!block || (what->kind == SX_LOWER_PACK && !tiles.apart))) {
        return sx_loop_lower(cx, &target->vectors, what, kernel);
    }
    sx_tile_unit unit = {.vectors = &target->vectors,
                         .matrix = target->matrix,
                         .matrix_count = target->matrix_count + target->rounding_count,
                         .shared_bytes = shared_bytes_of(target),
                         .threads = 1024,
                         .registers = 65536};
    bool nested = sums && what->analysis->kind == SX_KERNEL_NESTED;
    return (nested                        ? sx_tile_lower_nested
            : sums                        ? sx_tile_lower_online
            : what->kind == SX_LOWER_PACK ? sx_tile_lower_slices
            : tiles.apart
                ? sx_tile_lower_combine
                : sx_tile_lower_dot)(cx, &unit, what->name, what->analysis, what->schedule, kernel);
}

/* ---- emission ---- */
/* Where each entry stands in the text, in the order of the parts. */
static void find_entries(const sx_buf *text, uint32_t base, uint32_t count, uint32_t *entry)
{
    static const char word[] = ".visible .entry ";
    const char *at = (const char *)text->ptr;
    for (uint32_t p = 0; p < count; p++) {
        at = strstr(at, word);
        SX_ASSERT(at != NULL);
        entry[p] = base + (uint32_t)(at - (const char *)text->ptr);
        at += sizeof(word) - 1;
    }
}

/* Rows of a slot are up to 128 bytes, and the next box of k has what lies behind them: two are fetched at once. */
#define PROMOTED_BYTES 256

static void add_map(sx_machine_maps *maps, const sx_tile_view *view, const sx_tensor_map *map,
                    uint16_t promoted_bytes)
{
    _Static_assert(SX_MAP_RANK_MAX == SX_TENSOR_RANK_MAX, "maps of all ranks");
    SX_ASSERT(maps->count < SX_MAPS_MAX && map->fill == SX_FILL_ZERO && view->offset >= 0);
    sx_machine_map *to = &maps->map[maps->count++];
    bool swizzles = map->swizzle != SX_SWIZZLE_NONE;
    *to =
        (sx_machine_map){.buffer = view->buffer,
                         .offset = (uint64_t)view->offset * sx_dtype_bytes(map->element),
                         .dtype = (uint8_t)map->element,
                         .promoted_bytes = promoted_bytes,
                         .rank = map->rank,
                         .element_bytes = (uint8_t)sx_dtype_bytes(map->element),
                         .swizzle_bytes = (uint8_t)(swizzles ? sx_swizzle_bytes(map->swizzle) : 0)};
    memcpy(to->dims, map->dims, sizeof(to->dims));
    memcpy(to->strides, map->strides, sizeof(to->strides));
    memcpy(to->box, map->box, sizeof(to->box));
}

/* The maps of a tile's arguments, left one first, and of a result that the engine stores, as the parameters stand. */
static void find_maps(const sx_tile *tile, sx_machine_maps *maps)
{
    *maps = (sx_machine_maps){.count = 0};
    for (uint32_t i = 0; i < 2 && tile != NULL && tile->by_engine; i++) {
        const sx_tile_operand *o = &tile->operand[i];
        add_map(maps, &o->view, &o->boxes.map, PROMOTED_BYTES);
    }
    if (tile != NULL && tile->store.depth > 0) {
        add_map(maps, &tile->store.view, &tile->store.boxes.map, 0);
    }
}

/* How a part is launched. */
static sx_machine_block block_of(const sx_kernel *kernel, uint32_t part, uint32_t maps)
{
    const sx_tile *tile = kernel->part[part].tile;
    uint32_t warps = kernel->part[part].warps;
    if (tile != NULL) {
        return (sx_machine_block){.threads = tile->threads,
                                  .shared_bytes = tile->shared_bytes,
                                  .maps = maps,
                                  .walkers = tile->walkers};
    }
    const sx_loop_buffer *last = &kernel->buffer[kernel->buffer_count - 1];
    bool works = warps > 0 && last->role == SX_BUFFER_WORKSPACE;
    SX_ASSERT(!works || last->size <= UINT32_MAX);
    return (sx_machine_block){.threads = warps * SX_NVIDIA_LANES,
                              .shared_bytes = works ? (uint32_t)last->size : 0,
                              .numbers = kernel->part[part].slot_count};
}

/* The entries of all parts, each with the numbers of the program that it was lowered from. */
static sx_code make_module(sx_ctx *cx, const sx_target *target, const sx_kernel *kernel,
                           sx_ptx_module **module)
{
    char feature = 0;
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        feature = sx_nvidia_tile_feature(kernel->part[p].tile, feature);
    }
    SX_TRY(sx_ptx_module_make(cx, target->machine->level, feature, module));
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        bool block = kernel->part[p].tile != NULL;
        SX_TRY((block ? sx_nvidia_of_tile : sx_nvidia_of_loop)(cx, kernel, p, *module));
    }
    return SX_OK;
}

/* ---- what is the same for several extents ---- */
/* Numbers of an entry are those of its text, and behind them the dimensions of its maps, which are none of the text. */
static uint32_t map_numbers(const sx_machine_maps *maps)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < maps->count; i++) {
        count += maps->map[i].rank;
    }
    return count;
}

static void print_map(const sx_machine_map *map, sx_buf *text)
{
    sx_buf_print(text, "map of buffer %u from %llu, type %u, %u bytes, swizzle %u, promotion %u\n",
                 map->buffer, (unsigned long long)map->offset, map->dtype, map->element_bytes,
                 map->swizzle_bytes, map->promoted_bytes);
    for (uint32_t d = 0; d < map->rank; d++) {
        sx_buf_print(text, "stride %llu, box %u\n", (unsigned long long)map->strides[d],
                     map->box[d]);
    }
}

static sx_code shape(sx_ctx *cx, const sx_target *target, const sx_kernel *kernel, uint32_t part,
                     sx_target_shape *shape)
{
    sx_kernel alone = *kernel;
    sx_ptx_module *module;
    sx_machine_maps maps;
    int64_t *of_text;
    bool *is_offset;
    uint32_t count;
    alone.part = &kernel->part[part];
    alone.part_count = 1;
    SX_TRY(make_module(cx, target, &alone, &module));
    SX_TRY(sx_ptx_take_numbers(cx, &module->kernel[0], &of_text, &is_offset, &count));
    find_maps(alone.part->tile, &maps);
    size_t capacity = (size_t)count + map_numbers(&maps) + 1;
    int64_t *number = SX_NEW_ARRAY(cx, int64_t, capacity);
    bool *offset = SX_NEW_ARRAY(cx, bool, capacity); /* dimensions of maps are none */
    if (number == NULL || offset == NULL) {
        return cx->error.code;
    }
    memcpy(number, of_text, count * sizeof(*number));
    memcpy(offset, is_offset, count * sizeof(*offset));
    sx_buf text;
    sx_buf_init(&text, TEXT_MAX);
    sx_ptx_print(module, &text);
    const sx_machine_block block = block_of(&alone, 0, maps.count);
    sx_buf_print(&text, "%u threads, %u bytes, %u walkers\n", block.threads, block.shared_bytes,
                 block.walkers);
    for (uint32_t i = 0; i < maps.count; i++) {
        print_map(&maps.map[i], &text);
        for (uint32_t d = 0; d < maps.map[i].rank; d++) {
            number[count++] = (int64_t)maps.map[i].dims[d];
        }
    }
    sx_code status = sx_buf_check(cx, &text, "PTX");
    uint8_t *bytes = status == SX_OK ? sx_alloc(cx, text.len + 1) : NULL;
    if (bytes != NULL) {
        memcpy(bytes, text.ptr, text.len);
        *shape = (sx_target_shape){{bytes, text.len}, number, offset, count};
    }
    sx_buf_fini(&text);
    return cx->error.code;
}

/* The numbers of part `index` that come with the launch become parameters, or are noted in its maps. */
static sx_code open_numbers(sx_ctx *cx, const sx_part *part, sx_ptx_module *module, uint32_t index,
                            sx_machine_maps *maps)
{
    sx_ptx_coming *coming = SX_NEW_ARRAY(cx, sx_ptx_coming, (size_t)part->comes_count + 1);
    sx_ptx_kernel *kernel = &module->kernel[index];
    uint32_t all = sx_ptx_count_numbers(kernel), count = 0;
    if (coming == NULL) {
        return cx->error.code;
    }
    for (uint32_t k = 0; k < part->comes_count; k++) {
        const sx_comes *comes = &part->comes[k];
        bool code = comes->kind == SX_COMES_CODE || comes->kind == SX_COMES_CODE_OFFSET;
        SX_ASSERT(code && comes->slot < part->slot_count);
        if (comes->at < all) {
            coming[count++] = (sx_ptx_coming){comes->at, comes->slot};
            continue;
        }
        uint32_t d = comes->at - all, i = 0;
        for (; i < maps->count && d >= maps->map[i].rank; i++) {
            d -= maps->map[i].rank;
        }
        SX_ASSERT(i < maps->count);
        maps->map[i].dim_number[d] = 1 + comes->slot;
    }
    return sx_ptx_open_numbers(cx, module, index, coming, count, part->slot_count);
}

/* The assembler gives out registers: nothing here can lie on a stack. */
static sx_code emit(sx_ctx *cx, const sx_target *target, const sx_kernel *kernel, bool spills,
                    sx_buf *blob, sx_target_code *code)
{
    (void)spills;
    sx_ptx_module *module;
    *code = (sx_target_code){.entry_count = kernel->part_count};
    SX_TRY(make_module(cx, target, kernel, &module));
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const sx_part *part = &kernel->part[p];
        find_maps(part->tile, &code->maps[p]);
        code->block[p] = block_of(kernel, p, code->maps[p].count);
        SX_TRY(part->slot_count == 0 ? SX_OK : open_numbers(cx, part, module, p, &code->maps[p]));
    }
    sx_buf text;
    sx_buf_init(&text, TEXT_MAX);
    sx_ptx_print(module, &text);
    sx_buf_put_u8(&text, 0);
    sx_code status = sx_buf_check(cx, &text, "PTX");
    if (status == SX_OK) {
        sx_buf_pad(blob, CODE_ALIGN);
        find_entries(&text, (uint32_t)blob->len, kernel->part_count, code->entry);
        sx_buf_put(blob, text.ptr, text.len);
        status = sx_buf_check(cx, blob, "code");
    }
    sx_buf_fini(&text);
    return status;
}

/* ---- interpretation ---- */
typedef struct {
    uint32_t begin; /* of its text in the blob */
    sx_ptx_module *module;
} loaded;

typedef struct {
    const sx_machine *machine;
    sx_span blob;
    loaded *module;
    uint32_t module_count, module_capacity;
    /* Instructions of warps, with as many for one of a group as warps alone would take. */
    uint64_t run;
} interpreter;

static sx_code emulator_make(sx_ctx *cx, const sx_target *target, sx_span blob,
                             const uint32_t *entry, uint32_t entry_count, sx_emulator **emulator)
{
    (void)entry, (void)entry_count;
    interpreter *made = SX_NEW(cx, interpreter);
    if (made == NULL) {
        return cx->error.code;
    }
    made->machine = target->machine;
    made->blob = blob;
    *emulator = (sx_emulator *)(void *)made;
    return SX_OK;
}

static sx_code load(sx_ctx *cx, interpreter *in, const sx_nvidia_code *code, sx_ptx_module **module)
{
    for (uint32_t m = 0; m < in->module_count; m++) {
        if (in->module[m].begin == code->begin) {
            *module = in->module[m].module;
            return SX_OK;
        }
    }
    void *array = in->module;
    if (in->module_count == in->module_capacity) {
        SX_TRY(sx_grow(cx, &array, &in->module_capacity, in->module_count + 1, sizeof(loaded)));
        in->module = array;
    }
    SX_TRY(sx_ptx_parse(cx, code->text, module));
    in->module[in->module_count++] = (loaded){.begin = code->begin, .module = *module};
    return SX_OK;
}

/* ---- a launch ---- */
static sx_ptx_region region_of(const sx_region *region)
{
    return (sx_ptx_region){.name = region->name,
                           .bytes = region->memory,
                           .size = region->size,
                           .writable = region->writable,
                           .initialised = true,
                           .unwatched = true,
                           .touched = region->touched};
}

/* Warps for so many points: one where there is memory for one, else enough to see that points are independent. */
static sx_ptx_dim blocks_for(const sx_emulation *what, sx_ptx_dim *block)
{
    *block = (sx_ptx_dim){SX_NVIDIA_LANES, 1, 1};
    if (what->workspace != NULL && what->workspace->size > 0) {
        return (sx_ptx_dim){1, 1, 1};
    }
    return (sx_ptx_dim){(uint32_t)sx_min_i64(what->count, BLOCKS_MAX), 1, 1};
}

/* Runs the launch with memory of its own, which is given back: a module has many points. */
static sx_code run(sx_ctx *cx, interpreter *in, const sx_ptx_launch *launch, sx_emulated_path *path)
{
    sx_ctx inner = *cx;
    sx_ptx_outcome outcome = {0};
    sx_arena_init(&inner.arena, cx->arena.limit_bytes);
    sx_code status = sx_ptx_run(&inner, launch, &outcome);
    sx_arena_fini(&inner.arena);
    in->run += outcome.statistics.warp_insns + outcome.statistics.group_products;
    if (path != NULL) {
        path->path = outcome.path;
        path->affine = status == SX_OK && outcome.affine;
    }
    cx->fuel = inner.fuel;
    if (status != SX_OK) {
        cx->error = inner.error;
        if (status == SX_MISMATCH) { /* a fault of the code */
            status = cx->error.code = SX_INPUT;
        }
    }
    return status;
}

/* What a launch is given. Its pointers are those of the buffers, and of the workspace where there is one. */
typedef struct {
    sx_ptx_region region[SX_REGIONS_MAX + 1];
    sx_ptx_argument argument[SX_REGIONS_MAX + 3 + SX_EMULATION_NUMBERS_MAX];
    sx_ptx_tensor_map map[SX_MAPS_MAX];
    uint8_t number[2][4];
    uint8_t coming[SX_EMULATION_NUMBERS_MAX][8];
    uint32_t pointers;
} given;

static void put_bytes(uint8_t *to, uint64_t value, uint32_t count)
{
    for (uint32_t b = 0; b < count; b++) {
        to[b] = (uint8_t)(value >> (8 * b));
    }
}

/* The map as the driver would encode it. */
static sx_ptx_tensor_map map_of(const sx_machine_map *from)
{
    sx_ptx_tensor_map map = {.region = from->buffer + 1,
                             .offset = from->offset,
                             .rank = from->rank,
                             .element_bytes = from->element_bytes,
                             .swizzle_bytes = from->swizzle_bytes};
    _Static_assert(SX_MAP_RANK_MAX == SX_PTX_TENSOR_RANK_MAX, "maps of all ranks");
    memcpy(map.dims, from->dims, sizeof(map.dims));
    memcpy(map.strides, from->strides, sizeof(map.strides));
    memcpy(map.box, from->box, sizeof(map.box));
    return map;
}

static sx_code give(sx_ctx *cx, const sx_emulation *what, const sx_ptx_kernel *kernel, given *g)
{
    uint32_t numbers = what->threads > 0 ? 0 : 2, workspaces = what->threads > 0 ? 0 : 1;
    uint32_t maps = what->maps != NULL ? what->maps->count : 0;
    uint32_t behind = numbers + maps + what->number_count;
    SX_ASSERT(what->buffer_count <= SX_REGIONS_MAX);
    SX_ASSERT(what->number_count <= SX_EMULATION_NUMBERS_MAX);
    SX_ASSERT(maps <= SX_MAPS_MAX && (maps == 0 || what->threads > 0));
    if (kernel->parameter_count < behind) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: %u parameters, it is given %u maps and %u numbers",
                       kernel->name, kernel->parameter_count, maps, what->number_count);
    }
    uint32_t pointers = kernel->parameter_count - behind;
    if (pointers < what->buffer_count || pointers > what->buffer_count + workspaces) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: %u buffers, it is given %u", kernel->name,
                       pointers, what->buffer_count);
    }
    for (uint32_t k = 0; k < pointers; k++) {
        SX_ASSERT(k < what->buffer_count || what->workspace != NULL);
        g->region[k] = region_of(k < what->buffer_count ? &what->buffer[k] : what->workspace);
        g->argument[k] = (sx_ptx_argument){.region = k + 1};
    }
    for (uint32_t i = 0; i < maps; i++) {
        SX_ASSERT(what->maps->map[i].buffer < what->buffer_count);
        g->map[i] = map_of(&what->maps->map[i]);
        g->argument[pointers + i] = (sx_ptx_argument){.map = &g->map[i]};
    }
    g->pointers = pointers;
    for (uint32_t i = 0; i < numbers; i++) {
        put_bytes(g->number[i], (uint64_t)(i == 0 ? what->first : what->count), 4);
        g->argument[pointers + i] = (sx_ptx_argument){.value = {g->number[i], 4}};
    }
    for (uint32_t i = 0; i < what->number_count; i++) {
        put_bytes(g->coming[i], (uint64_t)what->number[i], 8);
        g->argument[pointers + numbers + maps + i] = (sx_ptx_argument){.value = {g->coming[i], 8}};
    }
    return SX_OK;
}

/* A block for each point, or those that walk over them, in clusters of so many along x. Copies end as late as they may,
 * so that a wait that is missing is seen. */
static void launch_blocks(const interpreter *in, const sx_emulation *what, uint32_t cluster,
                          sx_ptx_launch *launch)
{
    uint32_t blocks[3], rest = what->walkers % cluster;
    sx_grid_launched_by(what->grid, what->walkers + (rest > 0 ? cluster - rest : 0), blocks);
    launch->grid = (sx_ptx_dim){blocks[0], blocks[1], blocks[2]};
    launch->block = (sx_ptx_dim){what->threads, 1, 1};
    launch->first_block = (uint64_t)what->first;
    launch->block_count = (uint64_t)what->count;
    launch->dynamic_shared_bytes = what->shared_bytes;
    launch->shared_bytes_max = in->machine->block_shared_bytes;
    launch->lazy = true;
    launch->follow = what->path != NULL;
    if (blocks[1] == 1 && blocks[2] == 1) {
        memcpy(launch->points, what->grid, sizeof(launch->points));
    }
}

/* The number of a point's cluster, in the order of sx_ptx_launch: clusters along x, y and z, each with all of its
 * blocks. */
static uint64_t cluster_of(const sx_ptx_launch *launch, sx_ptx_dim c, uint64_t point)
{
    uint64_t x = launch->grid.x, y = launch->grid.y;
    uint64_t at[3] = {point % x / c.x, point / x % y / c.y, point / x / y / c.z};
    return (at[2] * (y / c.y) + at[1]) * (x / c.x) + at[0];
}

/* Blocks of a cluster run together: of those asked for, each cluster that one belongs to, once. */
static sx_code run_clusters(sx_ctx *cx, interpreter *in, sx_ptx_launch *launch, sx_ptx_dim cluster,
                            sx_emulated_path *path)
{
    uint64_t blocks = (uint64_t)cluster.x * cluster.y * cluster.z, first = launch->first_block;
    uint64_t end = first + launch->block_count;
    uint64_t all = (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z / blocks;
    if (launch->block_count == all * blocks) {
        return run(cx, in, launch, path);
    }
    uint8_t *asked = sx_alloc(cx, all + 1); /* and one that nobody asks for */
    if (asked == NULL) {
        return cx->error.code;
    }
    for (uint64_t point = first; point < end; point++) {
        uint64_t n = cluster_of(launch, cluster, point);
        SX_ASSERT(n < all);
        asked[n] = 1;
    }
    for (uint64_t n = 0, begin = 0; n <= all; n++) { /* those that follow each other at once */
        if (asked[n] != 0) {
            continue;
        }
        if (n > begin) {
            launch->first_block = begin * blocks;
            launch->block_count = (n - begin) * blocks;
            SX_TRY(run(cx, in, launch, path));
        }
        begin = n + 1;
    }
    return SX_OK;
}

static sx_code emulate(sx_ctx *cx, sx_emulator *emulator, const sx_emulation *what)
{
    interpreter *in = (interpreter *)(void *)emulator;
    sx_nvidia_code code;
    sx_ptx_module *module;
    given g;
    SX_ASSERT(what->first >= 0 && what->count >= 1);
    SX_TRY(sx_nvidia_code_at(cx, in->blob, what->entry, &code));
    SX_TRY(load(cx, in, &code, &module));
    const sx_ptx_kernel *kernel = sx_nvidia_find_kernel(module, code.name);
    SX_ASSERT(kernel != NULL);
    SX_TRY(give(cx, what, kernel, &g));
    sx_ptx_launch launch = {.module = module,
                            .kernel = kernel->name,
                            .region = g.region,
                            .region_count = g.pointers,
                            .argument = g.argument,
                            .argument_count = kernel->parameter_count};
    if (what->threads > 0) {
        const sx_ptx_block *c = &kernel->cluster;
        launch_blocks(in, what, c->x > 0 ? c->x : 1, &launch);
        if (c->x * c->y * c->z > 1) {
            bool divides =
                launch.grid.x % c->x == 0 && launch.grid.y % c->y == 0 && launch.grid.z % c->z == 0;
            if (what->path != NULL) {
                memcpy(what->path->cluster, (const uint32_t[]){c->z, c->y, c->x},
                       sizeof(what->path->cluster));
            }
            return divides
                       ? run_clusters(cx, in, &launch, (sx_ptx_dim){c->x, c->y, c->z}, what->path)
                       : SX_FAIL(cx, SX_INPUT,
                                 "kernel %s: clusters of %u,%u,%u blocks do not "
                                 "divide the grid",
                                 kernel->name, c->x, c->y, c->z);
        }
    } else {
        launch.grid = blocks_for(what, &launch.block);
    }
    return run(cx, in, &launch, what->path);
}

static uint64_t emulated(const sx_emulator *emulator)
{
    return ((const interpreter *)(const void *)emulator)->run;
}

static void print(const sx_target *target, sx_span code, const char *symbol, sx_buf *text)
{
    const uint8_t *end = memchr(code.ptr, 0, code.len);
    sx_buf_print(text, "// %s, %s\n", symbol, target->machine->name);
    sx_buf_put(text, code.ptr, end != NULL ? (size_t)(end - code.ptr) : code.len);
}

/* ---- the rows ---- */
/* Every instruction of the loop IR is one IEEE operation here, too, so kernels give the bits of x86-64. How a matrix
 * instruction adds up its products is not documented and was seen to differ between architectures, so each has a
 * numerics class of its own. Those of integers are exact: their sums have the bits of lanes. */
#define EXACT "ieee-fma"
/* Sums of 8192 products and more are cut: a product of few rows by so long columns has too few blocks otherwise to read
 * its weights at the speed of memory. In slices this long the launch that adds them up is little beside them. */
#define SLICE_LEAST 2048
#define MMA(element, TYPE, number)                                                     \
    {                                                                                  \
        .name = "mma.m16n8k16." #element, .factor = (TYPE), .sum = SX_F32, .rows = 16, \
        .columns = 8, .steps = 16, .warps = 1, .slice_least = SLICE_LEAST,             \
        .numerics = "mma.m16n8k16." #element " of sm_" #number                         \
    }
#define MMA_BYTES(element, TYPE)                                                       \
    {                                                                                  \
        .name = "mma.m16n8k32." #element, .factor = (TYPE), .sum = SX_I32, .rows = 16, \
        .columns = 8, .steps = 32, .warps = 1, .numerics = EXACT                       \
    }
/* Factors of f32 are rounded to 11 bits (ties away from 0) before they are multiplied. */
#define MMA_TF32(number)                                                                       \
    {                                                                                          \
        .name = "mma.m16n8k8.tf32", .factor = SX_F32, .sum = SX_F32, .rows = 16, .columns = 8, \
        .steps = 8, .warps = 1, .slice_least = SLICE_LEAST,                                    \
        .numerics = "cvt.rna.tf32 mma.m16n8k8.tf32 of sm_" #number                             \
    }
/* How many columns an instruction has does not change how it adds up along k. */
#define WGMMA(element, TYPE, n, wider)                                                             \
    {                                                                                              \
        .name = "wgmma.m64n" #n "k16." #element, .factor = (TYPE), .sum = SX_F32,                  \
        .rows = SX_GROUP_ROWS, .columns = (n), .steps = 16, .warps = SX_GROUP_WARPS,               \
        .slice_least = SLICE_LEAST, .more = (wider), .numerics = "wgmma.k16." #element " of sm_90" \
    }
#define WGMMAS(element, TYPE)                                                             \
    WGMMA(element, TYPE, 8, 5), WGMMA(element, TYPE, 16, 4), WGMMA(element, TYPE, 32, 3), \
        WGMMA(element, TYPE, 64, 2), WGMMA(element, TYPE, 128, 1), WGMMA(element, TYPE, 256, 0)
#define TARGET(number, ...)                                                            \
    static const sx_matrix_instruction matrix_##number[] = {                           \
        MMA(bf16, SX_BF16, number), MMA(f16, SX_F16, number), MMA_BYTES(s8, SX_I8),    \
        MMA_BYTES(u8, SX_U8), __VA_ARGS__ MMA_TF32(number)};                           \
    const sx_target sx_target_sm_##number = {                                          \
        .machine = &sx_machine_sm_##number,                                            \
        .vectors = {.lanes = SX_NVIDIA_LANES,                                          \
                    .threads = true,                                                   \
                    .registers = 255,                                                  \
                    .mask_registers = true,                                            \
                    .numerics = EXACT},                                                \
        .matrix = matrix_##number,                                                     \
        .matrix_count = SX_COUNT(matrix_##number) - 1,                                 \
        .rounding_count = 1,                                                           \
        .memory_types = (1u << SX_DTYPE_COUNT) - 1,                                    \
        .lane_types = (1u << SX_DTYPE_COUNT) - 1,                                      \
        .spaces = 1u << SX_SPACE_MEMORY | 1u << SX_SPACE_SHARED,                       \
        .bindings = 1u << SX_BIND_GRID | 1u << SX_BIND_LOOP | 1u << SX_BIND_REGISTER | \
                    1u << SX_BIND_LANE | 1u << SX_BIND_WARP | 1u << SX_BIND_MATRIX |   \
                    1u << SX_BIND_CLUSTER,                                             \
        .lower = lower,                                                                \
        .emit = emit,                                                                  \
        .shape = shape,                                                                \
        .assemble = sx_nvidia_assemble,                                                \
        .emulator_make = emulator_make,                                                \
        .emulate = emulate,                                                            \
        .emulated = emulated,                                                          \
        .print = print}
TARGET(80, );
TARGET(86, );
TARGET(89, );
TARGET(90, WGMMAS(bf16, SX_BF16), WGMMAS(f16, SX_F16), );
TARGET(100, );
TARGET(120, );
