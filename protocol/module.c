#include "protocol/module.h"

#include <string.h>

#include "protocol/module_check.h"

_Static_assert(sizeof(sx_module_header) == 64, "header layout");
_Static_assert(sizeof(sx_module_section) == 40, "section layout");
_Static_assert(sizeof(sx_module_info) == 136, "info layout");
_Static_assert(sizeof(sx_module_symbol) == 16, "symbol layout");
_Static_assert(sizeof(sx_module_range) == 24, "range layout");
_Static_assert(sizeof(sx_module_variant) == 64, "variant layout");
_Static_assert(sizeof(sx_module_guard) == 24, "guard layout");
_Static_assert(sizeof(sx_module_case) == 64 && sizeof(sx_module_number) == 16, "case layout");
_Static_assert(sizeof(sx_module_extent) == 32, "extent layout");
_Static_assert(sizeof(sx_module_tensor) == 120, "tensor layout");
_Static_assert(sizeof(sx_module_kernel) == 144, "kernel layout");
_Static_assert(sizeof(sx_module_part) == 48, "part layout");
_Static_assert(sizeof(sx_module_launch) == 56, "launch layout");
_Static_assert(sizeof(sx_module_cubin) == 64, "cubin layout");
_Static_assert(sizeof(sx_module_map) == 160, "map layout");
_Static_assert(sizeof(sx_module_stage) == 32, "stage layout");
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

const char *sx_module_section_name(uint32_t kind)
{
    SX_ASSERT(kind < SX_MODULE_SECTION_COUNT);
    return section_table[kind].name;
}

sx_span sx_module_payload(const sx_module *module, uint32_t kind)
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
        sx_span payload = sx_module_payload(module, kind);
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
        sx_buf_put_span(bytes, sx_module_payload(module, kind));
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
        part[kind] = sx_module_payload(module, kind);
    }
    part[SX_MODULE_TENSORS] = (sx_span){(const uint8_t *)tensor, count * sizeof(*tensor)};
    part[SX_MODULE_WEIGHTS] = (sx_span){NULL, 0};
    *digest = sx_key_of("module", part, SX_MODULE_SECTION_COUNT);
    return SX_OK;
}

/* ---- decode ---- */

/* Sections stand one behind the other, with zeros up to the alignment of the next. `end` is that of the section
 * before. */
static sx_code check_section(sx_ctx *cx, sx_span bytes, const sx_module_section *section,
                             uint32_t kind, uint64_t *end)
{
    const section_row *row = &section_table[kind];
    if (section->kind != kind || section->record_size != row->record_size) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module section %u: kind %u with records of %u bytes, expected %s with %u",
                       kind, section->kind, section->record_size, row->name, row->record_size);
    }
    if (section->offset != round_up(*end, row->alignment) || section->offset > bytes.len ||
        section->size > bytes.len - section->offset || section->size % row->record_size != 0) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module section %s: %llu bytes at %llu, the one before ends at %llu, file "
                       "has %zu",
                       row->name, (unsigned long long)section->size,
                       (unsigned long long)section->offset, (unsigned long long)*end, bytes.len);
    }
    for (uint64_t i = *end; i < section->offset; i++) {
        if (bytes.ptr[i] != 0) {
            return SX_FAIL(cx, SX_CORRUPT, "module section %s: byte %llu before it is not zero",
                           row->name, (unsigned long long)i);
        }
    }
    *end = section->offset + section->size;
    return SX_OK;
}

static sx_code check_digest(sx_ctx *cx, sx_span bytes, const sx_module_section *section)
{
    sx_hash128 digest =
        sx_hash128_of((sx_span){bytes.ptr + section->offset, (size_t)section->size});
    if (digest.low != section->digest[0] || digest.high != section->digest[1]) {
        return SX_FAIL(cx, SX_CORRUPT, "module section %s: checksum differs",
                       section_table[section->kind].name);
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

static sx_code check_header(sx_ctx *cx, sx_span bytes, sx_module_header *header)
{
    if (bytes.len < sizeof(*header) || memcmp(bytes.ptr, SX_MODULE_MAGIC, 8) != 0) {
        return SX_FAIL(cx, SX_CORRUPT, "not a module: %zu bytes without the magic %s", bytes.len,
                       SX_MODULE_MAGIC);
    }
    memcpy(header, bytes.ptr, sizeof(*header));
    if (header->version != SX_MODULE_VERSION) {
        return SX_FAIL(cx, SX_CORRUPT, "module format %u, this program reads %u; %s",
                       header->version, SX_MODULE_VERSION,
                       header->version < SX_MODULE_VERSION ? "compile it again"
                                                           : "it was made by a newer program");
    }
    for (uint32_t i = 0; i < sizeof(header->zero); i++) {
        if (header->zero[i] != 0) {
            return SX_FAIL(cx, SX_CORRUPT, "module: byte %zu of the header is not zero",
                           offsetof(sx_module_header, zero) + i);
        }
    }
    return SX_OK;
}

static void take_seal(sx_span *bytes, const sx_module_header *header, sx_module *module)
{
    if (bytes->len >= sizeof(module->seal) &&
        header->file_size == bytes->len - sizeof(module->seal)) {
        memcpy(&module->seal, bytes->ptr + header->file_size, sizeof(module->seal));
        module->sealed = memcmp(module->seal.magic, SX_MODULE_SEAL_MAGIC, 8) == 0;
        bytes->len -= module->sealed ? sizeof(module->seal) : 0;
    }
}

sx_code sx_module_decode(sx_ctx *cx, sx_span bytes, bool checksums, sx_module *module)
{
    SX_ASSERT((uintptr_t)bytes.ptr % 64 == 0);
    memset(module, 0, sizeof(*module));
    sx_module_header header;
    sx_module_section section[SX_MODULE_SECTION_COUNT];
    SX_TRY(check_header(cx, bytes, &header));
    take_seal(&bytes, &header, module);
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
    uint64_t end = sizeof(header) + sizeof(section);
    for (uint32_t kind = 0; kind < SX_MODULE_SECTION_COUNT; kind++) {
        SX_TRY(check_section(cx, bytes, &section[kind], kind, &end));
        if (checksums || (kind != SX_MODULE_CODE && kind != SX_MODULE_WEIGHTS)) {
            SX_TRY(check_digest(cx, bytes, &section[kind]));
        }
        point_section(module, kind, bytes.ptr + section[kind].offset, section[kind].size);
    }
    if (end != bytes.len) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %zu bytes, the last section ends at %llu",
                       bytes.len, (unsigned long long)end);
    }
    return sx_module_check_records(cx, module);
}
