#include "protocol/module_check.h"

#include <string.h>

#include "core/base/grid.h"

/* Fails with SX_CORRUPT: table, number of the record, and what is wrong with it. */
#define BAD(cx, table, index, format, ...)                                                   \
    SX_FAIL((cx), SX_CORRUPT, "module " table " %llu: " format, (unsigned long long)(index), \
            __VA_ARGS__)
#define U(value) ((unsigned long long)(value))
#define I(value) ((long long)(value))

/* ---- text: every field that names a piece of STRINGS ---- */

#define TEXTS(TEXT)                           \
    TEXT(INFO, sx_module_info, name)          \
    TEXT(INFO, sx_module_info, target)        \
    TEXT(INFO, sx_module_info, toolchain)     \
    TEXT(SYMBOLS, sx_module_symbol, name)     \
    TEXT(VARIANTS, sx_module_variant, name)   \
    TEXT(TENSORS, sx_module_tensor, name)     \
    TEXT(KERNELS, sx_module_kernel, name)     \
    TEXT(KERNELS, sx_module_kernel, what)     \
    TEXT(KERNELS, sx_module_kernel, plan)     \
    TEXT(KERNELS, sx_module_kernel, verdict)  \
    TEXT(LAUNCHES, sx_module_launch, name)    \
    TEXT(CUBINS, sx_module_cubin, toolchain)  \
    TEXT(STAGES, sx_module_stage, name)       \
    TEXT(STAGES, sx_module_stage, stop)       \
    TEXT(REWRITES, sx_module_rewrite, rule)   \
    TEXT(REWRITES, sx_module_rewrite, before) \
    TEXT(REWRITES, sx_module_rewrite, after)  \
    TEXT(CHECKS, sx_module_check, name)       \
    TEXT(SEARCH, sx_module_search, stop)      \
    TEXT(SEARCH, sx_module_search, unproved)  \
    TEXT(RULES, sx_module_rule, name)         \
    TEXT(RULES, sx_module_rule, rule_class)   \
    TEXT(POINTS, sx_module_point, program)    \
    TEXT(SHARDING, sx_module_sharding, mesh)  \
    TEXT(STEPS, sx_module_step, value)        \
    TEXT(STEPS, sx_module_step, what)         \
    TEXT(STEPS, sx_module_step, axis)         \
    TEXT(STEPS, sx_module_step, from)         \
    TEXT(STEPS, sx_module_step, to)           \
    TEXT(STEPS, sx_module_step, places)       \
    TEXT(STEPS, sx_module_step, local)        \
    TEXT(AXES, sx_module_axis, name)

static sx_code check_texts(sx_ctx *cx, const sx_module *module)
{
    static const struct {
        uint32_t section;
        size_t record, offset;
        const char *field;
    } row[] = {
#define TEXT(section_, type, field_) \
    {SX_MODULE_##section_, sizeof(type), offsetof(type, field_), #field_},
        TEXTS(TEXT)
#undef TEXT
    };
    for (uint32_t k = 0; k < SX_COUNT(row); k++) {
        sx_span payload = sx_module_payload(module, row[k].section);
        for (size_t i = 0; i < payload.len / row[k].record; i++) {
            sx_module_text text;
            memcpy(&text, payload.ptr + i * row[k].record + row[k].offset, sizeof(text));
            if (text.offset > module->strings_count ||
                text.size > module->strings_count - text.offset) {
                return SX_FAIL(cx, SX_CORRUPT,
                               "module %s %zu: %s is text of %u bytes at %u, section has %llu",
                               sx_module_section_name(row[k].section), i, row[k].field, text.size,
                               text.offset, U(module->strings_count));
            }
        }
    }
    return SX_OK;
}

/* ---- info ---- */

static sx_code check_info(sx_ctx *cx, const sx_module *module)
{
    const sx_module_info *info = module->info;
    const struct {
        const char *name;
        uint64_t bytes;
    } area[] = {{"arena", info->arena_bytes},
                {"persistent area", info->persistent_bytes},
                {"state", info->state_bytes},
                {"workspace", info->workspace_bytes}};
    for (uint32_t i = 0; i < SX_COUNT(area); i++) {
        if (area[i].bytes > SX_MODULE_BYTES_MAX) {
            return SX_FAIL(cx, SX_CORRUPT, "module: %s of %llu bytes, at most %llu", area[i].name,
                           U(area[i].bytes), U(SX_MODULE_BYTES_MAX));
        }
    }
    if (info->numerics != SX_NUMERICS_VERSION) {
        return SX_FAIL(cx, SX_CORRUPT, "module: numerics contract %llu, this program has %u",
                       U(info->numerics), SX_NUMERICS_VERSION);
    }
    if (sx_level_name(info->arch, info->level) == NULL) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module: architecture %u, level %u: no such machine is known", info->arch,
                       info->level);
    }
    bool bare = module->tensor_count == 0 && module->kernel_count == 0 && module->launch_count == 0;
    if (module->variant_count == 0 && !bare) {
        return SX_FAIL(cx, SX_CORRUPT, "module: no variant for %llu launches of %llu kernels",
                       U(module->launch_count), U(module->kernel_count));
    }
    return SX_OK;
}

/* ---- symbols, variants, guards ---- */

static sx_code check_symbol(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_symbol *symbol = &module->symbol[index];
    if (symbol->range_count == 0 || symbol->range_first > module->range_count ||
        symbol->range_count > module->range_count - symbol->range_first) {
        return BAD(cx, "symbol", index, "ranges %u and %u more, module has %llu",
                   symbol->range_first, symbol->range_count, U(module->range_count));
    }
    int64_t last = 0;
    for (uint32_t i = 0; i < symbol->range_count; i++) {
        const sx_module_range *range = &module->range[symbol->range_first + i];
        if (range->low <= last || range->high < range->low || range->high > SX_EXTENT_MAX ||
            range->step < 1 || range->step > SX_EXTENT_MAX ||
            (range->high - range->low) % range->step != 0) {
            return BAD(cx, "symbol", index, "range %u is %lld to %lld step %lld, behind %lld", i,
                       I(range->low), I(range->high), I(range->step), I(last));
        }
        last = range->high;
    }
    return SX_OK;
}

static sx_code check_guard(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_guard *guard = &module->guard[index];
    bool machine = guard->kind == SX_GUARD_MACHINE;
    bool fits = guard->kind < SX_GUARD_KIND_COUNT && guard->low >= 1 &&
                guard->low <= SX_EXTENT_MAX && (machine || guard->subject < module->symbol_count);
    if (fits && machine) {
        fits =
            guard->low <= UINT32_MAX && sx_level_name(guard->subject, (uint32_t)guard->low) != NULL;
    }
    bool range = guard->kind == SX_GUARD_RANGE;
    fits = fits &&
           (range ? guard->high >= guard->low && guard->high <= SX_EXTENT_MAX : guard->high == 0);
    if (!fits) {
        return BAD(cx, "guard", index, "kind %u of subject %u, %lld to %lld", guard->kind,
                   guard->subject, I(guard->low), I(guard->high));
    }
    return SX_OK;
}

static sx_code check_variants(sx_ctx *cx, const sx_module *module)
{
    uint64_t launches = 0, persistent = 0;
    for (uint64_t i = 0; i < module->variant_count; i++) {
        const sx_module_variant *v = &module->variant[i];
        if (v->guard_first > module->guard_count ||
            v->guard_count > module->guard_count - v->guard_first) {
            return BAD(cx, "variant", i, "guards %u and %u more, module has %llu", v->guard_first,
                       v->guard_count, U(module->guard_count));
        }
        if (v->launch_first != launches || v->launch_count > module->launch_count - launches) {
            return BAD(cx, "variant", i, "launches %u and %u more, expected from %llu of %llu",
                       v->launch_first, v->launch_count, U(launches), U(module->launch_count));
        }
        if (v->persistent_offset < persistent || v->persistent_offset % 64 != 0 ||
            v->persistent_offset > module->info->persistent_bytes ||
            v->persistent_bytes > module->info->persistent_bytes - v->persistent_offset) {
            return BAD(cx, "variant", i,
                       "%llu persistent bytes at %llu, the variants before end at %llu of %llu",
                       U(v->persistent_bytes), U(v->persistent_offset), U(persistent),
                       U(module->info->persistent_bytes));
        }
        launches += v->launch_count;
        persistent = v->persistent_offset + v->persistent_bytes;
    }
    if (launches != module->launch_count) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %llu launches, its variants have %llu",
                       U(module->launch_count), U(launches));
    }
    return SX_OK;
}

/* ---- tensors ---- */

/* The bytes from `base` to `limit` in which a tensor of this place lies. */
static void area_of(const sx_module *module, const sx_module_tensor *tensor, uint64_t *base,
                    uint64_t *limit)
{
    *base = 0;
    switch ((sx_module_place)tensor->place) {
    case SX_TENSOR_INPUT:
    case SX_TENSOR_OUTPUT: *limit = SX_MODULE_BYTES_MAX; return;
    case SX_TENSOR_WEIGHT:
        *limit = tensor->offset == UINT64_MAX ? UINT64_MAX : module->weights_count;
        return;
    case SX_TENSOR_CONSTANT: *limit = module->constants_count; return;
    case SX_TENSOR_TEMPORARY: *limit = module->info->arena_bytes; return;
    case SX_TENSOR_STATE: *limit = module->info->state_bytes; return;
    case SX_TENSOR_PERSISTENT:
        if (tensor->variant == SX_MODULE_NONE) { /* before those of the first variant */
            *limit = module->variant[0].persistent_offset;
            return;
        }
        *base = module->variant[tensor->variant].persistent_offset;
        *limit = *base + module->variant[tensor->variant].persistent_bytes;
        return;
    case SX_TENSOR_PLACE_COUNT: break;
    }
    SX_UNREACHABLE();
}

static sx_code check_place(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_tensor *tensor = &module->tensor[index];
    bool may_be_all = tensor->place != SX_TENSOR_TEMPORARY;
    bool may_be_own = !may_be_all || tensor->place == SX_TENSOR_PERSISTENT;
    if (tensor->variant == SX_MODULE_NONE
            ? !may_be_all
            : !may_be_own || tensor->variant >= module->variant_count) {
        return BAD(cx, "tensor", index, "%s of variant %u, module has %llu",
                   sx_module_place_name(tensor->place), tensor->variant, U(module->variant_count));
    }
    uint64_t base, limit;
    area_of(module, tensor, &base, &limit);
    bool absent = tensor->place == SX_TENSOR_WEIGHT && tensor->offset == UINT64_MAX;
    uint64_t offset = absent ? 0 : tensor->offset;
    if (offset % 64 != 0 || offset < base || offset > limit || tensor->size > limit - offset ||
        tensor->size > SX_MODULE_BYTES_MAX) {
        return BAD(cx, "tensor", index, "%llu bytes at %llu, its area is %llu to %llu",
                   U(tensor->size), U(tensor->offset), U(base), U(limit));
    }
    bool zeros = tensor->initial == UINT64_MAX;
    if (!zeros && (tensor->place != SX_TENSOR_STATE || tensor->initial % 64 != 0 ||
                   tensor->initial > module->constants_count ||
                   tensor->size > module->constants_count - tensor->initial)) {
        return BAD(cx, "tensor", index,
                   "first value of a %s: %llu bytes at %llu, constants have %llu",
                   sx_module_place_name(tensor->place), U(tensor->size), U(tensor->initial),
                   U(module->constants_count));
    }
    return SX_OK;
}

static sx_code check_tensor(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_tensor *tensor = &module->tensor[index];
    if (tensor->place >= SX_TENSOR_PLACE_COUNT || tensor->rank > SX_MODULE_RANK_MAX ||
        tensor->element_bytes == 0 || tensor->element_bytes > 16) {
        return BAD(cx, "tensor", index, "place %u, rank %u, element of %u bytes", tensor->place,
                   tensor->rank, tensor->element_bytes);
    }
    int64_t bytes = tensor->element_bytes;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (tensor->dim[d] < 0 || !sx_mul_i64(bytes, tensor->dim[d], &bytes)) {
            return BAD(cx, "tensor", index, "extent %lld of dimension %u", I(tensor->dim[d]), d);
        }
    }
    if (tensor->size < (uint64_t)bytes) {
        return BAD(cx, "tensor", index, "%llu bytes, its shape has %lld", U(tensor->size),
                   I(bytes));
    }
    return check_place(cx, module, index);
}

const sx_module_extent *sx_module_extents_of(const sx_module *module, sx_module_extent_kind what,
                                             uint32_t index, uint32_t *count)
{
    uint64_t low = 0, high = module->extent_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const sx_module_extent *row = &module->extent[middle];
        bool before = row->what != what ? row->what < what : row->index < index;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    const sx_module_extent *first = module->extent + low;
    *count = 0;
    while (low + *count < module->extent_count && first[*count].what == what &&
           first[*count].index == index) {
        (*count)++;
    }
    return first;
}

/* Do both have the same extents, whatever the values of the symbols? */
static bool same_shape(const sx_module *module, uint32_t a, uint32_t b)
{
    const sx_module_tensor *x = &module->tensor[a], *y = &module->tensor[b];
    uint32_t of_x, of_y;
    const sx_module_extent *p = sx_module_extents_of(module, SX_EXTENT_TENSOR, a, &of_x);
    const sx_module_extent *q = sx_module_extents_of(module, SX_EXTENT_TENSOR, b, &of_y);
    bool same = x->rank == y->rank && of_x == of_y;
    for (uint32_t d = 0; same && d < x->rank; d++) {
        same = x->dim[d] == y->dim[d];
    }
    for (uint32_t k = 0; same && k < of_x; k++) {
        same = p[k].dimension == q[k].dimension && p[k].symbol == q[k].symbol &&
               p[k].other == q[k].other && p[k].scale == q[k].scale;
    }
    return same;
}

bool sx_module_follows_symbol(const sx_module *module, uint32_t tensor)
{
    uint32_t count;
    (void)sx_module_extents_of(module, SX_EXTENT_TENSOR, tensor, &count);
    return count > 0;
}

bool sx_module_same_bytes(const sx_module *module, uint32_t a, uint32_t b)
{
    bool fixed = !sx_module_follows_symbol(module, a) && !sx_module_follows_symbol(module, b);
    return fixed ? module->tensor[a].size == module->tensor[b].size : same_shape(module, a, b);
}

static sx_code check_alias(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_tensor *tensor = &module->tensor[index];
    uint32_t input = tensor->alias;
    if (input == SX_MODULE_NONE) {
        return SX_OK;
    }
    if (tensor->place != SX_TENSOR_OUTPUT || input >= module->tensor_count ||
        module->tensor[input].place != SX_TENSOR_INPUT) {
        return BAD(cx, "tensor", index, "a %s in place of tensor %u; an output takes an input's",
                   sx_module_place_name(tensor->place), input);
    }
    const sx_module_tensor *from = &module->tensor[input];
    if (from->dtype != tensor->dtype || from->element_bytes != tensor->element_bytes ||
        !sx_module_same_bytes(module, (uint32_t)index, input)) {
        return BAD(cx, "tensor", index,
                   "in place of tensor %u: element type %u and %llu bytes, that has %u and %llu",
                   input, tensor->dtype, U(tensor->size), from->dtype, U(from->size));
    }
    for (uint64_t i = 0; i < index; i++) {
        if (module->tensor[i].alias == input) {
            return BAD(cx, "tensor", index, "in place of tensor %u, as tensor %llu is", input,
                       U(i));
        }
    }
    return SX_OK;
}

/* ---- extents that follow symbols ---- */

/* What stands in the record for the extent of a row; NULL: the row names nothing. */
static const int64_t *record_of(const sx_module *module, const sx_module_extent *row,
                                int64_t *repeats)
{
    switch ((sx_module_extent_kind)row->what) {
    case SX_EXTENT_TENSOR: {
        bool there = row->index < module->tensor_count &&
                     row->dimension < module->tensor[row->index].rank &&
                     (module->tensor[row->index].place == SX_TENSOR_INPUT ||
                      module->tensor[row->index].place == SX_TENSOR_OUTPUT) &&
                     row->divisor == 1;
        return there ? &module->tensor[row->index].dim[row->dimension] : NULL;
    }
    case SX_EXTENT_PART:
        return row->index < module->part_count && row->dimension < 3
                   ? &module->part[row->index].grid[row->dimension]
                   : NULL;
    case SX_EXTENT_LOOP:
        if (row->index >= module->launch_count || row->dimension != 0 ||
            module->launch[row->index].kind != SX_LAUNCH_LOOP ||
            module->launch[row->index].value > (uint64_t)SX_EXTENT_MAX) {
            return NULL;
        }
        *repeats = (int64_t)module->launch[row->index].value;
        return repeats;
    case SX_EXTENT_KIND_COUNT: break;
    }
    return NULL;
}

static bool is_same_extent(const sx_module_extent *a, const sx_module_extent *b)
{
    return a->what == b->what && a->index == b->index && a->dimension == b->dimension;
}

static bool ascends(const sx_module_extent *a, const sx_module_extent *b)
{
    const uint32_t x[] = {a->what, a->index, a->dimension, a->symbol, a->other};
    const uint32_t y[] = {b->what, b->index, b->dimension, b->symbol, b->other};
    uint32_t k = 0;
    while (k < 4 && x[k] == y[k]) {
        k++;
    }
    return x[k] < y[k] && (k < 3 || a->what == SX_EXTENT_TENSOR);
}

/* The least or the highest value of a symbol; 1 where there is none. */
static int64_t end_of(const sx_module *module, uint32_t symbol, bool most)
{
    return symbol == SX_MODULE_NONE ? 1
           : most                   ? sx_module_symbol_high(module, symbol)
                                    : sx_module_symbol_low(module, symbol);
}

/* What the rows of one extent add up to, of which `last` is the last one and all have been looked at, for the least or
 * the highest values of their symbols; false: overflow. */
static bool add_rows(const sx_module *module, uint64_t last, bool most, int64_t *sum)
{
    bool fits = true, more = true;
    *sum = 0;
    for (uint64_t i = last; fits && more; i--) {
        const sx_module_extent *row = &module->extent[i];
        int64_t product;
        fits = sx_module_extent_product(row, end_of(module, row->symbol, most),
                                        end_of(module, row->other, most), &product) &&
               sx_add_i64(*sum, product, sum);
        more = i > 0 && is_same_extent(row, row - 1);
    }
    return fits;
}

/* Symbols that there are, the lesser number first, and two only for tensors; a number has none. */
static bool has_symbols(const sx_module *module, const sx_module_extent *row, bool number)
{
    if (row->other != SX_MODULE_NONE &&
        (row->what != SX_EXTENT_TENSOR || row->other >= module->symbol_count ||
         row->other < row->symbol)) {
        return false;
    }
    return number || (row->symbol < module->symbol_count && row->scale >= 1);
}

static sx_code check_extent(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_extent *row = &module->extent[index];
    int64_t repeats = 0, least = 0, most = 0;
    bool again = index > 0 && is_same_extent(&module->extent[index - 1], row);
    bool number = again && row->symbol == SX_MODULE_NONE && row->scale != 0;
    bool fits =
        row->what < SX_EXTENT_KIND_COUNT && row->divisor >= 1 && has_symbols(module, row, number);
    const int64_t *record = fits ? record_of(module, row, &repeats) : NULL;
    if (record == NULL || (index > 0 && !ascends(&module->extent[index - 1], row))) {
        return BAD(cx, "extent", index,
                   "row %u of dimension %u of kind %u follows symbols %u and %u by %lld / %u",
                   row->index, row->dimension, row->what, row->symbol, row->other, I(row->scale),
                   row->divisor);
    }
    if (index + 1 < module->extent_count && is_same_extent(row, row + 1)) {
        return SX_OK; /* looked at with the last of them */
    }
    if (!add_rows(module, index, true, &most) || !add_rows(module, index, false, &least) ||
        most > INT64_MAX - row->divisor || sx_ceil_div_i64(most, row->divisor) != *record ||
        least < 1) {
        return BAD(cx, "extent", index,
                   "%lld / %u of symbols %u and %u: %lld to %lld, the record has %lld",
                   I(row->scale), row->divisor, row->symbol, row->other, I(least), I(most),
                   I(*record));
    }
    return SX_OK;
}

/* ---- kernels ---- */

/* A block that some GPU can launch, or none. */
static sx_code check_block(sx_ctx *cx, const sx_module_part *part, uint64_t index)
{
    bool vector = part->threads == 0 && part->shared_bytes == 0;
    bool block = part->threads > 0 && part->threads <= SX_MODULE_THREADS_MAX &&
                 part->threads % SX_MODULE_LANES == 0;
    if (!vector && (!block || part->shared_bytes > SX_MODULE_SHARED_BYTES_MAX)) {
        return BAD(cx, "part", index,
                   "a block of %u threads with %u bytes of shared memory: threads are a multiple "
                   "of %u and at most %u, bytes at most %u",
                   part->threads, part->shared_bytes, SX_MODULE_LANES, SX_MODULE_THREADS_MAX,
                   SX_MODULE_SHARED_BYTES_MAX);
    }
    if (block && !sx_grid_fits(part->grid)) {
        return BAD(cx, "part", index,
                   "%lld x %lld x %lld blocks, a launch has at most %d x %d x %d", I(part->grid[0]),
                   I(part->grid[1]), I(part->grid[2]), SX_GRID_YZ_MAX, SX_GRID_YZ_MAX,
                   SX_GRID_X_MAX);
    }
    int64_t points;
    bool walks = part->walkers == 0 ||
                 (block && part->walkers <= SX_GRID_X_MAX && sx_grid_can_walk(part->grid, &points));
    if (!walks || part->zero != 0) {
        return BAD(cx, "part", index,
                   "%u blocks of %u threads that walk over %lld x %lld x %lld points, zero is %u",
                   part->walkers, part->threads, I(part->grid[0]), I(part->grid[1]),
                   I(part->grid[2]), part->zero);
    }
    return SX_OK;
}

static sx_code check_part(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_part *part = &module->part[index];
    bool grid = true;
    int64_t points = 1;
    for (uint32_t d = 0; d < 3; d++) {
        grid = grid && part->grid[d] >= 1 && sx_mul_i64(points, part->grid[d], &points) &&
               points <= SX_EXTENT_MAX;
    }
    if (!grid || part->entry >= module->code_count) {
        return BAD(cx, "part", index, "entry %llu of %llu bytes of code, grid %lld x %lld x %lld",
                   U(part->entry), U(module->code_count), I(part->grid[0]), I(part->grid[1]),
                   I(part->grid[2]));
    }
    return check_block(cx, part, index);
}

static sx_code check_code(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_kernel *kernel = &module->kernel[index];
    if (sx_form_name(kernel->form) == NULL || sx_form_arch(kernel->form) != kernel->arch ||
        sx_level_name(kernel->arch, kernel->level) == NULL) {
        return BAD(cx, "kernel", index, "code of form %u for architecture %u, level %u",
                   kernel->form, kernel->arch, kernel->level);
    }
    if (kernel->code_offset > module->code_count ||
        kernel->code_size > module->code_count - kernel->code_offset) {
        return BAD(cx, "kernel", index, "%llu bytes of code at %llu, section has %llu",
                   U(kernel->code_size), U(kernel->code_offset), U(module->code_count));
    }
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const sx_module_part *part = &module->part[kernel->part_first + p];
        uint64_t entry = part->entry;
        if (entry < kernel->code_offset || entry - kernel->code_offset >= kernel->code_size) {
            return BAD(cx, "kernel", index,
                       "part %u begins at %llu, its code is %llu bytes at %llu", p, U(entry),
                       U(kernel->code_size), U(kernel->code_offset));
        }
        if (part->threads > 0 && kernel->arch != SX_ARCH_NVIDIA) {
            return BAD(cx, "kernel", index, "part %u: a block of %u threads, in code for %s", p,
                       part->threads, sx_arch_name(kernel->arch));
        }
    }
    return SX_OK;
}

/* A kernel with several results names a node for each, different ones; what it prepares for another launch is no node's
 * result. */
static sx_code check_nodes(sx_ctx *cx, const sx_module_kernel *kernel, uint64_t index)
{
    if (kernel->result_count > SX_MODULE_RESULTS_MAX || kernel->zero != 0) {
        return BAD(cx, "kernel", index, "%u results, at most %u", kernel->result_count,
                   SX_MODULE_RESULTS_MAX);
    }
    for (uint32_t k = 0; k + 1 < SX_MODULE_RESULTS_MAX; k++) {
        bool there = k + 1 < kernel->result_count && kernel->kind != SX_MODULE_PACK;
        bool again = there && kernel->other[k] == kernel->node;
        for (uint32_t j = 0; j < k && there; j++) {
            again = again || kernel->other[j] == kernel->other[k];
        }
        if (there != (kernel->other[k] != SX_MODULE_NONE) || again) {
            return BAD(cx, "kernel", index, "result %u of %u is node %u", k + 1,
                       kernel->result_count, kernel->other[k]);
        }
    }
    return SX_OK;
}

static sx_code check_kernel(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_kernel *kernel = &module->kernel[index];
    if (kernel->kind >= SX_MODULE_KERNEL_KIND_COUNT || kernel->part_count == 0 ||
        kernel->part_first > module->part_count ||
        kernel->part_count > module->part_count - kernel->part_first) {
        return BAD(cx, "kernel", index, "kind %u, parts %u and %u more, module has %llu",
                   kernel->kind, kernel->part_first, kernel->part_count, U(module->part_count));
    }
    if (kernel->arg_count > SX_MODULE_ARGS_MAX || kernel->result_count == 0 ||
        kernel->result_count > kernel->arg_count) {
        return BAD(cx, "kernel", index, "%u results of %u arguments, at most %u",
                   kernel->result_count, kernel->arg_count, SX_MODULE_ARGS_MAX);
    }
    SX_TRY(check_nodes(cx, kernel, index));
    return check_code(cx, module, index);
}

static sx_code check_cubin(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_cubin *row = &module->cubin[index], *before = index > 0 ? row - 1 : NULL;
    const sx_module_kernel *kernel =
        row->kernel < module->kernel_count ? &module->kernel[row->kernel] : NULL;
    if (kernel == NULL || kernel->form != SX_FORM_PTX || row->part < kernel->part_first ||
        row->part - kernel->part_first >= kernel->part_count ||
        sx_level_name(kernel->arch, row->level) == NULL || row->level < kernel->level) {
        return BAD(cx, "cubin", index, "of kernel %u, part %u, for level %u", row->kernel,
                   row->part, row->level);
    }
    if (row->size == 0 || row->offset % 64 != 0 || row->offset > module->code_count ||
        row->size > module->code_count - row->offset) {
        return BAD(cx, "cubin", index, "%llu bytes at %llu, code has %llu", U(row->size),
                   U(row->offset), U(module->code_count));
    }
    if (before != NULL &&
        (before->part != row->part ? before->part > row->part : before->level >= row->level)) {
        return BAD(cx, "cubin", index, "part %u for level %u, behind part %u for level %u",
                   row->part, row->level, before->part, before->level);
    }
    return SX_OK;
}

/* ---- all of it ---- */

typedef sx_code (*record_check)(sx_ctx *cx, const sx_module *module, uint64_t index);

static sx_code check_each(sx_ctx *cx, const sx_module *module, record_check check, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        SX_TRY(check(cx, module, i));
    }
    return SX_OK;
}

static sx_code check_arg(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    return module->arg[index] < module->tensor_count
               ? SX_OK
               : BAD(cx, "argument", index, "tensor %u, module has %llu", module->arg[index],
                     U(module->tensor_count));
}

static sx_code check_counts(sx_ctx *cx, const sx_module *module)
{
    for (uint32_t kind = 0; kind < SX_MODULE_SECTION_COUNT; kind++) {
        bool bytes = kind == SX_MODULE_STRINGS || kind == SX_MODULE_PROOF ||
                     kind == SX_MODULE_PROGRAM || kind == SX_MODULE_OPTIMIZED ||
                     kind == SX_MODULE_CODE || kind == SX_MODULE_CONSTANTS ||
                     kind == SX_MODULE_WEIGHTS;
        uint64_t size = sx_module_payload(module, kind).len;
        if (!bytes && size > UINT32_MAX) { /* records are numbered in 32 bits */
            return SX_FAIL(cx, SX_CORRUPT, "module section %s: %llu bytes, at most %u",
                           sx_module_section_name(kind), U(size), UINT32_MAX);
        }
    }
    if (module->info_count != 1) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %llu info records, expected 1",
                       U(module->info_count));
    }
    return SX_OK;
}

/* Every number is one of a case. */
static sx_code check_numbers(sx_ctx *cx, const sx_module *module)
{
    const sx_module_case *last =
        module->cases_count > 0 ? &module->cases[module->cases_count - 1] : NULL;
    uint64_t used = last != NULL ? (uint64_t)last->number_first + last->number_count : 0;
    return module->number_count == used
               ? SX_OK
               : SX_FAIL(cx, SX_CORRUPT, "module numbers: %llu, the cases have %llu",
                         U(module->number_count), U(used));
}

sx_code sx_module_check_records(sx_ctx *cx, const sx_module *module)
{
    SX_TRY(check_counts(cx, module));
    SX_TRY(check_texts(cx, module));
    SX_TRY(check_info(cx, module));
    SX_TRY(sx_module_check_axes(cx, module));
    SX_TRY(check_each(cx, module, check_symbol, module->symbol_count));
    SX_TRY(check_each(cx, module, check_guard, module->guard_count));
    SX_TRY(check_variants(cx, module));
    SX_TRY(check_each(cx, module, check_tensor, module->tensor_count));
    SX_TRY(check_each(cx, module, check_part, module->part_count));
    SX_TRY(check_each(cx, module, check_kernel, module->kernel_count));
    SX_TRY(check_each(cx, module, check_cubin, module->cubin_count));
    SX_TRY(check_each(cx, module, check_extent, module->extent_count));
    SX_TRY(check_each(cx, module, sx_module_check_case, module->cases_count));
    SX_TRY(check_each(cx, module, sx_module_check_map, module->map_count));
    SX_TRY(check_numbers(cx, module));
    SX_TRY(check_each(cx, module, check_alias, module->tensor_count));
    SX_TRY(check_each(cx, module, check_arg, module->arg_count));
    SX_TRY(sx_module_check_launches(cx, module));
    return sx_module_check_cover(cx, module);
}
