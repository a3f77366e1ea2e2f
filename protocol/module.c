#include "protocol/module.h"

#include <string.h>

_Static_assert(sizeof(sx_module_header) == 64, "header layout");
_Static_assert(sizeof(sx_module_section) == 40, "section layout");
_Static_assert(sizeof(sx_module_tensor) == 104, "tensor layout");
_Static_assert(sizeof(sx_module_part) == 32, "part layout");
_Static_assert(sizeof(sx_module_info) % 8 == 0, "info layout");
_Static_assert(sizeof(sx_module_seal) == 104, "seal layout");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "records are written as they lie in memory");

typedef struct {
    const char *name;
    uint32_t record_size;
    uint32_t alignment;
} section_row;
static const section_row section_table[SX_MODULE_SECTION_COUNT] = {
#define SX_SECTION(enumerator, name_, type, field, alignment_) \
    [SX_MODULE_##                                              \
        enumerator] = {.name = name_, .record_size = sizeof(type), .alignment = alignment_},
    SX_MODULE_SECTIONS(SX_SECTION)
#undef SX_SECTION
};

sx_module_text sx_module_put_text(sx_buf *strings, sx_span text)
{
    sx_module_text result = {(uint32_t)strings->len, (uint32_t)text.len};
    sx_buf_put_span(strings, text);
    if (strings->code != SX_OK || strings->len > UINT32_MAX) {
        return (sx_module_text){0, 0};
    }
    return result;
}

/* ---- encode ---- */

static sx_span payload_of(const sx_module *module, uint32_t kind)
{
    switch ((sx_module_section_kind)kind) {
#define SX_SECTION(enumerator, name, type, field, alignment) \
    case SX_MODULE_##enumerator:                             \
        return (sx_span){(const uint8_t *)module->field,     \
                         (size_t)module->field##_count * sizeof(type)};
        SX_MODULE_SECTIONS(SX_SECTION)
#undef SX_SECTION
    case SX_MODULE_SECTION_COUNT: break;
    }
    SX_UNREACHABLE();
}

static uint64_t round_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}

sx_code sx_module_encode(sx_ctx *cx, const sx_module *module, sx_buf *bytes)
{
    SX_ASSERT(module->info_count == 1);
    SX_ASSERT(bytes->len == 0);
    sx_module_section section[SX_MODULE_SECTION_COUNT];
    uint64_t offset = sizeof(sx_module_header) + sizeof(section);
    for (uint32_t kind = 0; kind < SX_MODULE_SECTION_COUNT; kind++) {
        sx_span payload = payload_of(module, kind);
        sx_hash128 digest = sx_hash128_of(payload);
        offset = round_up(offset, section_table[kind].alignment);
        section[kind] = (sx_module_section){.kind = kind,
                                            .record_size = section_table[kind].record_size,
                                            .offset = offset,
                                            .size = payload.len,
                                            .digest = {digest.low, digest.high}};
        offset += payload.len;
    }
    if (offset > SX_MODULE_BYTES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "module: %llu bytes, at most %llu", (unsigned long long)offset,
                       (unsigned long long)SX_MODULE_BYTES_MAX);
    }
    sx_hash128 table = sx_hash128_of((sx_span){(const uint8_t *)section, sizeof(section)});
    sx_module_header header = {.version = SX_MODULE_VERSION,
                               .section_count = SX_MODULE_SECTION_COUNT,
                               .file_size = offset,
                               .digest = {table.low, table.high}};
    memcpy(header.magic, SX_MODULE_MAGIC, sizeof(header.magic));
    sx_buf_put(bytes, &header, sizeof(header));
    sx_buf_put(bytes, section, sizeof(section));
    for (uint32_t kind = 0; kind < SX_MODULE_SECTION_COUNT; kind++) {
        sx_buf_pad(bytes, section_table[kind].alignment);
        sx_buf_put_span(bytes, payload_of(module, kind));
    }
    SX_ASSERT(bytes->code != SX_OK || bytes->len == offset);
    if (module->sealed) {
        sx_buf_put(bytes, &module->seal, sizeof(module->seal));
    }
    return sx_buf_check(cx, bytes, "module");
}

sx_code sx_module_digest(sx_ctx *cx, const sx_module *module, sx_key *digest)
{
    size_t count = (size_t)module->tensor_count;
    sx_module_tensor *tensor = SX_NEW_ARRAY(cx, sx_module_tensor, count + 1);
    sx_span part[SX_MODULE_SECTION_COUNT];
    if (tensor == NULL) {
        return cx->error.code;
    }
    for (size_t i = 0; i < count; i++) {
        tensor[i] = module->tensor[i];
        tensor[i].offset = tensor[i].place == SX_TENSOR_WEIGHT ? UINT64_MAX : tensor[i].offset;
    }
    for (uint32_t kind = 0; kind < SX_MODULE_SECTION_COUNT; kind++) {
        part[kind] = payload_of(module, kind);
    }
    part[SX_MODULE_TENSORS] = (sx_span){(const uint8_t *)tensor, count * sizeof(*tensor)};
    part[SX_MODULE_WEIGHTS] = (sx_span){NULL, 0};
    *digest = sx_key_of("module", part, SX_MODULE_SECTION_COUNT);
    return SX_OK;
}

/* ---- decode ---- */

static sx_code check_section(sx_ctx *cx, sx_span bytes, const sx_module_section *section,
                             uint32_t kind, bool checksums)
{
    const section_row *row = &section_table[kind];
    if (section->kind != kind || section->record_size != row->record_size) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module section %u: kind %u with records of %u bytes, expected %s with %u",
                       kind, section->kind, section->record_size, row->name, row->record_size);
    }
    if (section->offset % row->alignment != 0 || section->offset > bytes.len ||
        section->size > bytes.len - section->offset || section->size % row->record_size != 0) {
        return SX_FAIL(cx, SX_CORRUPT, "module section %s: %llu bytes at %llu, file has %zu",
                       row->name, (unsigned long long)section->size,
                       (unsigned long long)section->offset, bytes.len);
    }
    bool bulk = kind == SX_MODULE_CODE || kind == SX_MODULE_WEIGHTS;
    if (checksums || !bulk) {
        sx_hash128 digest =
            sx_hash128_of((sx_span){bytes.ptr + section->offset, (size_t)section->size});
        if (digest.low != section->digest[0] || digest.high != section->digest[1]) {
            return SX_FAIL(cx, SX_CORRUPT, "module section %s: checksum differs", row->name);
        }
    }
    return SX_OK;
}

static void point_section(sx_module *module, uint32_t kind, const uint8_t *start, uint64_t size)
{
    switch ((sx_module_section_kind)kind) {
#define SX_SECTION(enumerator, name, type, field_, alignment) \
    case SX_MODULE_##enumerator:                              \
        module->field_ = (const type *)(const void *)start;   \
        module->field_##_count = size / sizeof(type);         \
        return;
        SX_MODULE_SECTIONS(SX_SECTION)
#undef SX_SECTION
    case SX_MODULE_SECTION_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* Fails unless `text` lies inside STRINGS. */
static sx_code check_text(sx_ctx *cx, const sx_module *module, const char *table, uint64_t index,
                          sx_module_text text)
{
    if (text.offset > module->strings_count || text.size > module->strings_count - text.offset) {
        return SX_FAIL(cx, SX_CORRUPT, "module %s %llu: text of %u bytes at %u, section has %llu",
                       table, (unsigned long long)index, text.size, text.offset,
                       (unsigned long long)module->strings_count);
    }
    return SX_OK;
}

static uint64_t place_limit(const sx_module *module, uint32_t place)
{
    switch ((sx_module_place)place) {
    case SX_TENSOR_INPUT:
    case SX_TENSOR_OUTPUT: return SX_MODULE_BYTES_MAX;
    case SX_TENSOR_WEIGHT: return module->weights_count;
    case SX_TENSOR_CONSTANT: return module->constants_count;
    case SX_TENSOR_PERSISTENT: return module->info->persistent_bytes;
    case SX_TENSOR_TEMPORARY: return module->info->arena_bytes;
    case SX_TENSOR_PLACE_COUNT: break;
    }
    return 0;
}

static sx_code check_tensor(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_tensor *tensor = &module->tensor[index];
    SX_TRY(check_text(cx, module, "tensor", index, tensor->name));
    if (tensor->place >= SX_TENSOR_PLACE_COUNT || tensor->rank > SX_MODULE_RANK_MAX ||
        tensor->element_bytes == 0 || tensor->element_bytes > 16) {
        return SX_FAIL(cx, SX_CORRUPT, "module tensor %llu: place %u, rank %u, element of %u bytes",
                       (unsigned long long)index, tensor->place, tensor->rank,
                       tensor->element_bytes);
    }
    int64_t bytes = tensor->element_bytes;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (tensor->dim[d] < 1 || !sx_mul_i64(bytes, tensor->dim[d], &bytes)) {
            return SX_FAIL(cx, SX_CORRUPT, "module tensor %llu: extent %lld of dimension %u",
                           (unsigned long long)index, (long long)tensor->dim[d], d);
        }
    }
    bool absent_weight = tensor->place == SX_TENSOR_WEIGHT && tensor->offset == UINT64_MAX;
    uint64_t limit = absent_weight ? SX_MODULE_BYTES_MAX : place_limit(module, tensor->place);
    uint64_t offset = absent_weight ? 0 : tensor->offset;
    if (tensor->size < (uint64_t)bytes || offset % 64 != 0 || offset > limit ||
        tensor->size > limit - offset) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module tensor %llu: %llu bytes at %llu, area has %llu and the shape %lld",
                       (unsigned long long)index, (unsigned long long)tensor->size,
                       (unsigned long long)tensor->offset, (unsigned long long)limit,
                       (long long)bytes);
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
        return SX_FAIL(
            cx, SX_CORRUPT,
            "module part %llu: entry %llu of %llu bytes of code, grid %lld x %lld x %lld",
            (unsigned long long)index, (unsigned long long)part->entry,
            (unsigned long long)module->code_count, (long long)part->grid[0],
            (long long)part->grid[1], (long long)part->grid[2]);
    }
    return SX_OK;
}

static sx_code check_kernel(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_kernel *kernel = &module->kernel[index];
    SX_TRY(check_text(cx, module, "kernel", index, kernel->name));
    SX_TRY(check_text(cx, module, "kernel", index, kernel->what));
    SX_TRY(check_text(cx, module, "kernel", index, kernel->plan));
    SX_TRY(check_text(cx, module, "kernel", index, kernel->poly));
    if (kernel->kind >= SX_MODULE_KERNEL_KIND_COUNT || kernel->part_count == 0 ||
        kernel->part_first > module->part_count ||
        kernel->part_count > module->part_count - kernel->part_first) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module kernel %llu: kind %u, parts %u and %u more, module has %llu",
                       (unsigned long long)index, kernel->kind, kernel->part_first,
                       kernel->part_count, (unsigned long long)module->part_count);
    }
    return SX_OK;
}

static sx_code check_launch(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_launch *launch = &module->launch[index];
    if (launch->kernel >= module->kernel_count || launch->prologue > 1 ||
        launch->arg_first > module->arg_count ||
        launch->arg_count > module->arg_count - launch->arg_first || launch->arg_count > 65) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module launch %llu: kernel %u of %llu, arguments %u and %u more of %llu",
                       (unsigned long long)index, launch->kernel,
                       (unsigned long long)module->kernel_count, launch->arg_first,
                       launch->arg_count, (unsigned long long)module->arg_count);
    }
    return SX_OK;
}

static sx_code check_info(sx_ctx *cx, const sx_module *module)
{
    if (module->info_count != 1) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %llu info records, expected 1",
                       (unsigned long long)module->info_count);
    }
    const sx_module_info *info = module->info;
    SX_TRY(check_text(cx, module, "info", 0, info->name));
    SX_TRY(check_text(cx, module, "info", 0, info->target));
    SX_TRY(check_text(cx, module, "info", 0, info->toolchain));
    if (info->arena_bytes > SX_MODULE_BYTES_MAX || info->persistent_bytes > SX_MODULE_BYTES_MAX ||
        info->workspace_bytes > SX_MODULE_BYTES_MAX) {
        return SX_FAIL(
            cx, SX_CORRUPT,
            "module: arena %llu, persistent %llu, workspace %llu bytes, at most %llu",
            (unsigned long long)info->arena_bytes, (unsigned long long)info->persistent_bytes,
            (unsigned long long)info->workspace_bytes, (unsigned long long)SX_MODULE_BYTES_MAX);
    }
    if (info->numerics != SX_NUMERICS_VERSION || (info->isa != 3 && info->isa != 4)) {
        return SX_FAIL(
            cx, SX_CORRUPT,
            "module: numerics contract %u and ISA level %u, this program has %u and 3 or 4",
            info->numerics, info->isa, SX_NUMERICS_VERSION);
    }
    return SX_OK;
}

static sx_code check_report(sx_ctx *cx, const sx_module *module)
{
    for (uint64_t i = 0; i < module->stage_count; i++) {
        SX_TRY(check_text(cx, module, "stage", i, module->stage[i].name));
        SX_TRY(check_text(cx, module, "stage", i, module->stage[i].stop));
    }
    for (uint64_t i = 0; i < module->rewrite_count; i++) {
        SX_TRY(check_text(cx, module, "rewrite", i, module->rewrite[i].rule));
        SX_TRY(check_text(cx, module, "rewrite", i, module->rewrite[i].before));
        SX_TRY(check_text(cx, module, "rewrite", i, module->rewrite[i].after));
    }
    for (uint64_t i = 0; i < module->search_count; i++) {
        SX_TRY(check_text(cx, module, "search", i, module->search[i].stop));
        SX_TRY(check_text(cx, module, "search", i, module->search[i].unproved));
    }
    for (uint64_t i = 0; i < module->point_count; i++) {
        SX_TRY(check_text(cx, module, "point", i, module->point[i].program));
    }
    for (uint64_t i = 0; i < module->sharding_count; i++) {
        SX_TRY(check_text(cx, module, "sharding", i, module->sharding[i].mesh));
    }
    for (uint64_t i = 0; i < module->step_count; i++) {
        const sx_module_step *step = &module->step[i];
        const sx_module_text text[] = {step->value, step->what,   step->axis, step->from,
                                       step->to,    step->places, step->local};
        for (uint32_t k = 0; k < SX_COUNT(text); k++) {
            SX_TRY(check_text(cx, module, "step", i, text[k]));
        }
    }
    for (uint64_t i = 0; i < module->rule_count; i++) {
        SX_TRY(check_text(cx, module, "rule", i, module->rule[i].name));
        SX_TRY(check_text(cx, module, "rule", i, module->rule[i].rule_class));
    }
    for (uint64_t i = 0; i < module->check_count; i++) {
        SX_TRY(check_text(cx, module, "check", i, module->check[i].name));
    }
    for (uint64_t i = 0; i < module->symbol_count; i++) {
        SX_TRY(check_text(cx, module, "symbol", i, module->symbol[i].name));
    }
    return SX_OK;
}

static sx_code check_records(sx_ctx *cx, const sx_module *module)
{
    SX_TRY(check_info(cx, module));
    SX_TRY(check_report(cx, module));
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        SX_TRY(check_tensor(cx, module, i));
    }
    for (uint64_t i = 0; i < module->part_count; i++) {
        SX_TRY(check_part(cx, module, i));
    }
    for (uint64_t i = 0; i < module->kernel_count; i++) {
        SX_TRY(check_kernel(cx, module, i));
    }
    for (uint64_t i = 0; i < module->arg_count; i++) {
        if (module->arg[i] >= module->tensor_count) {
            return SX_FAIL(cx, SX_CORRUPT, "module argument %llu: tensor %u, module has %llu",
                           (unsigned long long)i, module->arg[i],
                           (unsigned long long)module->tensor_count);
        }
    }
    for (uint64_t i = 0; i < module->launch_count; i++) {
        SX_TRY(check_launch(cx, module, i));
    }
    return SX_OK;
}

sx_code sx_module_decode(sx_ctx *cx, sx_span bytes, bool checksums, sx_module *module)
{
    SX_ASSERT((uintptr_t)bytes.ptr % 64 == 0);
    memset(module, 0, sizeof(*module));
    sx_module_header header;
    sx_module_section section[SX_MODULE_SECTION_COUNT];
    if (bytes.len < sizeof(header) || memcmp(bytes.ptr, SX_MODULE_MAGIC, 8) != 0) {
        return SX_FAIL(cx, SX_CORRUPT, "not a module: %zu bytes without the magic %s", bytes.len,
                       SX_MODULE_MAGIC);
    }
    memcpy(&header, bytes.ptr, sizeof(header));
    if (header.version != SX_MODULE_VERSION) {
        return SX_FAIL(cx, SX_CORRUPT, "module: format version %u, this program reads %u",
                       header.version, SX_MODULE_VERSION);
    }
    if (bytes.len >= sizeof(module->seal) && header.file_size == bytes.len - sizeof(module->seal)) {
        memcpy(&module->seal, bytes.ptr + header.file_size, sizeof(module->seal));
        module->sealed = memcmp(module->seal.magic, SX_MODULE_SEAL_MAGIC, 8) == 0;
        bytes.len -= module->sealed ? sizeof(module->seal) : 0;
    }
    if (header.file_size != bytes.len) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %zu bytes, header says %llu", bytes.len,
                       (unsigned long long)header.file_size);
    }
    if (header.section_count != SX_MODULE_SECTION_COUNT ||
        bytes.len - sizeof(header) < sizeof(section)) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %u sections in %zu bytes, expected %u",
                       header.section_count, bytes.len, SX_MODULE_SECTION_COUNT);
    }
    memcpy(section, bytes.ptr + sizeof(header), sizeof(section));
    sx_hash128 table = sx_hash128_of((sx_span){(const uint8_t *)section, sizeof(section)});
    if (table.low != header.digest[0] || table.high != header.digest[1]) {
        return SX_FAIL(cx, SX_CORRUPT, "module: checksum of the section table differs");
    }
    for (uint32_t kind = 0; kind < SX_MODULE_SECTION_COUNT; kind++) {
        SX_TRY(check_section(cx, bytes, &section[kind], kind, checksums));
        point_section(module, kind, bytes.ptr + section[kind].offset, section[kind].size);
    }
    return check_records(cx, module);
}
