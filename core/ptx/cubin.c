#include "core/ptx/cubin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ELF, as far as it is needed: sizes of its records, kinds of sections, bits. */
#define ELF_HEADER 64
#define ELF_SECTION 64
#define ELF_SYMBOL 24
#define ELF_EXECUTABLE 2
#define MACHINE_CUDA 190
#define OSABI_12 0x33
#define OSABI_13 0x41
#define SECTION_CODE 1
#define SECTION_SYMBOLS 2
#define SECTION_STRINGS 3
#define SECTION_NOTES 7
#define SECTION_NO_BITS 8
#define SECTION_INFO 0x70000000u
#define SECTION_COMPAT 0x70000086u
#define FLAG_EXECUTE 4u
#define SYMBOL_FUNCTION 2
#define SYMBOL_ENTRY 0x10
#define NONE UINT32_MAX

/* Attributes of .nv.info and .nv.compat: how the value is held, and what it is. */
enum { HOLDS_NONE = 1, HOLDS_BYTE = 2, HOLDS_HALF = 3, HOLDS_PAYLOAD = 4 };
enum {
    INFO_MAX_BLOCK = 0x05,
    INFO_REQUIRED_BLOCK = 0x10,
    INFO_FRAME = 0x11,
    INFO_STACK = 0x12,
    INFO_PARAM = 0x17,
    INFO_PARAM_BYTES = 0x19,
    INFO_MAX_REGISTERS = 0x1b,
    INFO_REGISTERS = 0x2f,
    INFO_API_VERSION = 0x37,
    INFO_MBARRIERS = 0x38,
    INFO_CLUSTER = 0x3d,
    INFO_CLUSTER_EXPLICIT = 0x3e,
    INFO_CLUSTER_MAX = 0x3f,
    INFO_LARGE_PARAM = 0x45,
    INFO_BARRIERS = 0x4c,
    INFO_SPILLS = 0x55,
};
#define COMPAT_ARCH_SPECIFIC 0x09

typedef struct {
    sx_span name, data; /* no data: it has none in the file */
    uint64_t flags, size;
    uint32_t type, link, info;
} section;

typedef struct {
    sx_ctx *cx;
    sx_span bytes;
    section *section;
    uint32_t section_count, api_version;
    sx_span symbols, symbol_names;
    /* The kernel of a section of code, and of a symbol; NONE. */
    uint32_t *kernel_of_section, *kernel_of_symbol;
    sx_cubin *cubin;
    sx_cubin_kernel *kernel;
} reader;

/* ---- bytes ---- */

static uint32_t get16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | get16(p + 2) << 16;
}

static uint64_t get64(const uint8_t *p)
{
    return (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32;
}

/* `size` bytes at `offset`, if they are there. */
static bool slice(sx_span all, uint64_t offset, uint64_t size, sx_span *part)
{
    if (offset > all.len || size > all.len - offset) {
        return false;
    }
    *part = (sx_span){size > 0 ? all.ptr + offset : NULL, (size_t)size};
    return true;
}

/* The text at `offset` of a section of strings, up to its NUL; it is printed, so it is plain ASCII. */
static bool string_at(sx_span strings, uint64_t offset, sx_span *text)
{
    if (offset >= strings.len) {
        return false;
    }
    const uint8_t *from = strings.ptr + offset;
    const uint8_t *end = memchr(from, 0, strings.len - (size_t)offset);
    bool plain = end != NULL;
    for (const uint8_t *p = from; plain && p < end; p++) {
        plain = *p >= ' ' && *p < 127;
    }
    *text = plain ? (sx_span){from, (size_t)(end - from)} : (sx_span){NULL, 0};
    return plain;
}

static bool begins(sx_span text, const char *prefix, sx_span *rest)
{
    size_t length = strlen(prefix);
    if (text.len < length || memcmp(text.ptr, prefix, length) != 0) {
        return false;
    }
    *rest = (sx_span){text.ptr + length, text.len - length};
    return true;
}

#define SHOWN(span) (int)((span).len < 200 ? (span).len : 200), (const char *)(span).ptr

/* ---- sections ---- */

static sx_code read_header(reader *r)
{
    static const uint8_t magic[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    const uint8_t *p = r->bytes.ptr;
    if (r->bytes.len > SX_CUBIN_BYTES_MAX) {
        return SX_FAIL(r->cx, SX_LIMIT, "a cubin of %zu bytes, at most %zu", r->bytes.len,
                       SX_CUBIN_BYTES_MAX);
    }
    if (r->bytes.len < ELF_HEADER || memcmp(p, magic, sizeof(magic)) != 0 ||
        get16(p + 18) != MACHINE_CUDA) {
        return SX_FAIL(r->cx, SX_INPUT, "this is no cubin: no ELF64 file for CUDA");
    }
    uint32_t abi = p[8], flags = get32(p + 48);
    if ((abi != 7 || p[7] != OSABI_12) && (abi != 8 || p[7] != OSABI_13)) {
        return SX_FAIL(r->cx, SX_UNIMPLEMENTED,
                       "a cubin of ABI %u version %u, known are 51 version 7 and 65 version 8",
                       p[7], abi);
    }
    if (get16(p + 16) != ELF_EXECUTABLE) {
        return SX_FAIL(r->cx, SX_INPUT, "the cubin is of ELF type %u, not linked (%d)",
                       get16(p + 16), ELF_EXECUTABLE);
    }
    r->cubin->abi = abi;
    r->cubin->arch = abi == 7 ? flags & 0xff : flags >> 8 & 0xff;
    r->cubin->arch_specific = (flags & (abi == 7 ? 0x800u : 0x8u)) != 0;
    return SX_OK;
}

static sx_code read_sections(reader *r)
{
    const uint8_t *p = r->bytes.ptr;
    uint32_t count = get16(p + 60), names_at = get16(p + 62);
    sx_span table, names = {NULL, 0};
    if (get16(p + 58) != ELF_SECTION || names_at >= count ||
        !slice(r->bytes, get64(p + 40), (uint64_t)count * ELF_SECTION, &table)) {
        return SX_FAIL(r->cx, SX_CORRUPT, "cubin: %u section headers of %u bytes do not fit", count,
                       get16(p + 58));
    }
    r->section_count = count;
    r->section = SX_NEW_ARRAY(r->cx, section, count);
    if (r->section == NULL) {
        return r->cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *h = table.ptr + (size_t)i * ELF_SECTION;
        section *s = &r->section[i];
        *s = (section){.type = get32(h + 4),
                       .flags = get64(h + 8),
                       .size = get64(h + 32),
                       .link = get32(h + 40),
                       .info = get32(h + 44)};
        if (s->type != 0 && s->type != SECTION_NO_BITS &&
            !slice(r->bytes, get64(h + 24), s->size, &s->data)) {
            return SX_FAIL(r->cx, SX_CORRUPT, "cubin: section %u lies outside the file", i);
        }
    }
    names = r->section[names_at].data;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = get32(table.ptr + (size_t)i * ELF_SECTION);
        if (r->section[names_at].type != SECTION_STRINGS ||
            !string_at(names, at, &r->section[i].name)) {
            return SX_FAIL(r->cx, SX_CORRUPT, "cubin: section %u has no name", i);
        }
    }
    return SX_OK;
}

static sx_code find_symbols(reader *r)
{
    uint32_t found = NONE;
    for (uint32_t i = 0; i < r->section_count; i++) {
        if (r->section[i].type == SECTION_SYMBOLS) {
            if (found != NONE) {
                return SX_FAIL(r->cx, SX_CORRUPT, "cubin: sections %u and %u are symbol tables",
                               found, i);
            }
            found = i;
        }
    }
    const section *s = found != NONE ? &r->section[found] : NULL;
    if (s == NULL || s->data.len % ELF_SYMBOL != 0 || s->link >= r->section_count ||
        r->section[s->link].type != SECTION_STRINGS) {
        return SX_FAIL(r->cx, SX_CORRUPT, "cubin: there is no symbol table that can be read");
    }
    r->symbols = s->data;
    r->symbol_names = r->section[s->link].data;
    return SX_OK;
}

/* ---- kernels ---- */

static int by_name(const void *a, const void *b)
{
    const sx_cubin_kernel *left = a, *right = b;
    return sx_span_compare(left->name, right->name);
}

/* A symbol that is the entry of a kernel: its name and its section of code. */
static sx_code put_kernel(reader *r, const uint8_t *symbol, sx_span name, uint32_t *at)
{
    uint32_t index = get16(symbol + 6);
    sx_span rest;
    const section *s = index < r->section_count ? &r->section[index] : NULL;
    if (s == NULL || s->type != SECTION_CODE || (s->flags & FLAG_EXECUTE) == 0 ||
        !begins(s->name, ".text.", &rest) || !sx_span_equal(rest, name) || name.len == 0) {
        return SX_FAIL(r->cx, SX_CORRUPT, "cubin: kernel %.*s has no section of code", SHOWN(name));
    }
    if (r->kernel_of_section[index] != NONE) {
        return SX_FAIL(r->cx, SX_CORRUPT, "cubin: kernel %.*s is there twice", SHOWN(name));
    }
    if (r->cubin->kernel_count == SX_CUBIN_KERNELS_MAX) {
        return SX_FAIL(r->cx, SX_LIMIT, "cubin: more than %d kernels", SX_CUBIN_KERNELS_MAX);
    }
    *at = r->kernel_of_section[index] = r->cubin->kernel_count++;
    /* With ABI version 7 the barriers stand in the flags of the section, later in an attribute. */
    r->kernel[*at] =
        (sx_cubin_kernel){.name = name,
                          .code_bytes = s->size,
                          .barriers = r->cubin->abi == 7 ? (uint32_t)(s->flags >> 20 & 0x7f) : 0,
                          .shared_reserved_bytes = r->cubin->arch >= 90 ? 1024 : 0};
    return SX_OK;
}

static sx_code find_kernels(reader *r)
{
    uint32_t count = (uint32_t)(r->symbols.len / ELF_SYMBOL), entries = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *symbol = r->symbols.ptr + (size_t)i * ELF_SYMBOL;
        entries += (symbol[4] & 15) == SYMBOL_FUNCTION && (symbol[5] & SYMBOL_ENTRY) != 0;
    }
    entries = entries < SX_CUBIN_KERNELS_MAX ? entries : SX_CUBIN_KERNELS_MAX;
    r->kernel = SX_NEW_ARRAY(r->cx, sx_cubin_kernel, entries);
    r->kernel_of_symbol = SX_NEW_ARRAY(r->cx, uint32_t, count);
    r->kernel_of_section = SX_NEW_ARRAY(r->cx, uint32_t, r->section_count);
    if (r->kernel == NULL || r->kernel_of_symbol == NULL || r->kernel_of_section == NULL) {
        return r->cx->error.code;
    }
    memset(r->kernel_of_section, 0xff, r->section_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *symbol = r->symbols.ptr + (size_t)i * ELF_SYMBOL;
        sx_span name;
        r->kernel_of_symbol[i] = NONE;
        if ((symbol[4] & 15) != SYMBOL_FUNCTION || (symbol[5] & SYMBOL_ENTRY) == 0) {
            continue;
        }
        if (!string_at(r->symbol_names, get32(symbol), &name)) {
            return SX_FAIL(r->cx, SX_CORRUPT, "cubin: symbol %u has no name", i);
        }
        SX_TRY(put_kernel(r, symbol, name, &r->kernel_of_symbol[i]));
    }
    return SX_OK;
}

/* ---- attributes ---- */

typedef struct {
    uint32_t holds, id, value;
    sx_span payload;
} attribute;

/* Takes the next one from `rest`. */
static bool next_attribute(sx_span *rest, attribute *a)
{
    if (rest->len < 4) {
        return false;
    }
    *a = (attribute){.holds = rest->ptr[0], .id = rest->ptr[1], .value = get16(rest->ptr + 2)};
    sx_span all = {rest->ptr + 4, rest->len - 4};
    size_t size = a->holds == HOLDS_PAYLOAD ? a->value : 0;
    size_t padded = (size + 3) & ~(size_t)3;
    if (a->holds < HOLDS_NONE || a->holds > HOLDS_PAYLOAD || padded > all.len) {
        return false;
    }
    a->value = a->holds == HOLDS_BYTE ? a->value & 0xff : a->value;
    a->payload = (sx_span){size > 0 ? all.ptr : NULL, size};
    *rest = (sx_span){all.ptr + padded, all.len - padded};
    return true;
}

static sx_code bad_attribute(reader *r, sx_span where, uint32_t id)
{
    return SX_FAIL(r->cx, SX_CORRUPT, "cubin: attribute 0x%02x of %.*s is damaged", id,
                   SHOWN(where));
}

static bool as_dim(const attribute *a, sx_cubin_dim *dim)
{
    if (a->payload.len != 12) {
        return false;
    }
    const uint8_t *p = a->payload.ptr;
    *dim = (sx_cubin_dim){get32(p), get32(p + 4), get32(p + 8)};
    return dim->x > 0 && dim->y > 0 && dim->z > 0;
}

/* The attributes of the whole cubin that are about a kernel: {symbol, value}. Those of other functions are skipped. */
static sx_code read_global(reader *r, const section *s)
{
    sx_span rest = s->data;
    attribute a = {.id = 0};
    while (rest.len > 0) {
        if (!next_attribute(&rest, &a)) {
            return bad_attribute(r, s->name, a.id);
        }
        if (a.id != INFO_REGISTERS && a.id != INFO_FRAME && a.id != INFO_STACK) {
            continue;
        }
        uint32_t symbol = a.payload.len == 8 ? get32(a.payload.ptr) : NONE;
        if (symbol >= r->symbols.len / ELF_SYMBOL) {
            return bad_attribute(r, s->name, a.id);
        }
        uint32_t index = r->kernel_of_symbol[symbol], value = get32(a.payload.ptr + 4);
        sx_cubin_kernel *kernel = index != NONE ? &r->kernel[index] : NULL;
        if (kernel != NULL && a.id == INFO_REGISTERS) {
            if (value == 0 || value > 255 || kernel->registers != 0) {
                return bad_attribute(r, s->name, a.id);
            }
            kernel->registers = value;
        } else if (kernel != NULL && a.id == INFO_FRAME) {
            kernel->frame_bytes = value;
        } else if (kernel != NULL) {
            kernel->stack_bytes = value;
        }
    }
    return SX_OK;
}

/* One attribute of a kernel, but for its parameters. */
static bool take(reader *r, sx_cubin_kernel *kernel, const attribute *a)
{
    bool whole = a->payload.len == 4;
    uint32_t word = whole ? get32(a->payload.ptr) : 0;
    switch (a->id) {
    case INFO_MAX_BLOCK: return as_dim(a, &kernel->block_max);
    case INFO_REQUIRED_BLOCK: return as_dim(a, &kernel->block);
    case INFO_CLUSTER: return as_dim(a, &kernel->cluster);
    case INFO_CLUSTER_MAX: kernel->cluster_max = word; return whole;
    case INFO_CLUSTER_EXPLICIT: kernel->cluster_explicit = true; return true;
    case INFO_MAX_REGISTERS: kernel->registers_max = a->value; return a->holds == HOLDS_HALF;
    case INFO_PARAM_BYTES: kernel->param_bytes = a->value; return a->holds == HOLDS_HALF;
    case INFO_MBARRIERS: kernel->mbarriers = a->value; return a->holds == HOLDS_HALF;
    case INFO_BARRIERS: kernel->barriers = a->value; return a->holds == HOLDS_BYTE;
    case INFO_API_VERSION: r->api_version = word; return whole;
    case INFO_SPILLS:
        kernel->spill_count += (uint32_t)(a->payload.len / 8);
        return a->holds == HOLDS_PAYLOAD && a->payload.len % 8 == 0;
    case INFO_PARAM:
    case INFO_LARGE_PARAM: kernel->param_count++; return a->payload.len == 12;
    default: return true;
    }
}

/* The parameters, in any order, each once. Small ones have their size in the upper 14 bits of a word. */
static sx_code read_params(reader *r, const section *s, sx_cubin_kernel *kernel)
{
    sx_span rest = s->data;
    attribute a;
    sx_cubin_param *param = SX_NEW_ARRAY(r->cx, sx_cubin_param, kernel->param_count);
    if (param == NULL) {
        return r->cx->error.code;
    }
    kernel->param = param;
    while (rest.len > 0) {
        bool there = next_attribute(&rest, &a);
        SX_ASSERT(there); /* read_kernel has been here */
        if (a.id != INFO_PARAM && a.id != INFO_LARGE_PARAM) {
            continue;
        }
        uint32_t ordinal = get16(a.payload.ptr + 4), offset = get16(a.payload.ptr + 6);
        uint32_t size = get32(a.payload.ptr + 8);
        size = a.id == INFO_PARAM ? size >> 18 : size;
        if (ordinal >= kernel->param_count || param[ordinal].size != 0 || size == 0 ||
            offset > kernel->param_bytes || size > kernel->param_bytes - offset) {
            return bad_attribute(r, s->name, a.id);
        }
        param[ordinal] = (sx_cubin_param){offset, size};
    }
    return SX_OK;
}

static sx_code read_kernel(reader *r, const section *s, sx_cubin_kernel *kernel)
{
    sx_span rest = s->data;
    attribute a = {.id = 0};
    if (kernel->param != NULL || kernel->param_bytes != 0) {
        return SX_FAIL(r->cx, SX_CORRUPT, "cubin: %.*s is there twice", SHOWN(s->name));
    }
    while (rest.len > 0) {
        if (!next_attribute(&rest, &a) || !take(r, kernel, &a)) {
            return bad_attribute(r, s->name, a.id);
        }
    }
    return read_params(r, s, kernel);
}

/* The kernel that a section ".nv.info.NAME" belongs to; NULL: it belongs to none. */
static sx_code owner(reader *r, const section *s, sx_span name, sx_cubin_kernel **kernel)
{
    uint32_t index = s->info < r->section_count ? r->kernel_of_section[s->info] : NONE;
    *kernel = index != NONE ? &r->kernel[index] : NULL;
    if (*kernel != NULL && !sx_span_equal((*kernel)->name, name)) {
        return SX_FAIL(r->cx, SX_CORRUPT, "cubin: section %.*s belongs to kernel %.*s",
                       SHOWN(s->name), SHOWN((*kernel)->name));
    }
    return SX_OK;
}

static sx_code read_section(reader *r, const section *s)
{
    sx_cubin_kernel *kernel = NULL;
    sx_span name;
    if (s->type == SECTION_INFO && sx_span_is(s->name, ".nv.info")) {
        return read_global(r, s);
    }
    if (s->type == SECTION_INFO && begins(s->name, ".nv.info.", &name)) {
        SX_TRY(owner(r, s, name, &kernel));
        return kernel != NULL ? read_kernel(r, s, kernel) : SX_OK;
    }
    if (s->type == SECTION_NO_BITS && begins(s->name, ".nv.shared.", &name)) {
        SX_TRY(owner(r, s, name, &kernel));
        if (kernel != NULL) { /* the section has the reserved bytes in front, where it is there */
            uint64_t reserved = kernel->shared_reserved_bytes;
            kernel->shared_bytes = s->size >= reserved ? s->size - reserved : s->size;
        }
    }
    return SX_OK;
}

/* ---- who made it ---- */

static void copy_text(char *to, size_t size, sx_span text)
{
    size_t length = text.len < size ? text.len : size - 1;
    if (length > 0) {
        memcpy(to, text.ptr, length);
    }
    to[length] = '\0';
}

/* "Cuda compilation tools, release 13.0, V13.0.88" */
static void take_version(sx_cubin *cubin, sx_span text)
{
    static const char mark[] = ", V";
    for (size_t i = 0; i + sizeof(mark) - 1 < text.len; i++) {
        if (memcmp(text.ptr + i, mark, sizeof(mark) - 1) == 0) {
            size_t from = i + sizeof(mark) - 1;
            copy_text(cubin->toolkit, sizeof(cubin->toolkit),
                      (sx_span){text.ptr + from, text.len - from});
            return;
        }
    }
}

/* The first note: {size of name, size of description, kind}, name, description = six words and strings. */
static void read_tool(reader *r, const section *s)
{
    sx_span name, description, strings, tool = {NULL, 0}, version = {NULL, 0};
    if (s->data.len < 12 || get32(s->data.ptr) != 12 || !slice(s->data, 12, 12, &name) ||
        !slice(s->data, 24, get32(s->data.ptr + 4), &description) ||
        !slice(description, 24, description.len - (description.len < 24 ? description.len : 24),
               &strings)) {
        return; /* nothing depends on it */
    }
    if (string_at(strings, get32(description.ptr + 8), &tool) &&
        string_at(strings, get32(description.ptr + 12), &version)) {
        copy_text(r->cubin->tool, sizeof(r->cubin->tool), tool);
        take_version(r->cubin, version);
    }
}

static sx_code read_maker(reader *r)
{
    for (uint32_t i = 0; i < r->section_count; i++) {
        const section *s = &r->section[i];
        sx_span rest = s->data;
        attribute a = {.id = 0};
        if (s->type == SECTION_NOTES && sx_span_is(s->name, ".note.nv.tkinfo")) {
            read_tool(r, s);
        }
        while (s->type == SECTION_COMPAT && rest.len > 0) {
            if (!next_attribute(&rest, &a)) {
                return bad_attribute(r, s->name, a.id);
            }
            r->cubin->arch_specific |= a.id == COMPAT_ARCH_SPECIFIC && a.value == 1;
        }
    }
    if (r->cubin->toolkit[0] == '\0' && r->api_version > 0) {
        (void)snprintf(r->cubin->toolkit, sizeof(r->cubin->toolkit), "%u.%u", r->api_version / 10,
                       r->api_version % 10);
    }
    return SX_OK;
}

/* ---- the whole ---- */

sx_code sx_cubin_read(sx_ctx *cx, sx_span bytes, sx_cubin **cubin)
{
    SX_ASSERT(cubin != NULL && (bytes.ptr != NULL || bytes.len == 0));
    reader r = {.cx = cx, .bytes = bytes, .cubin = SX_NEW(cx, sx_cubin)};
    if (r.cubin == NULL) {
        return cx->error.code;
    }
    SX_TRY(read_header(&r));
    SX_TRY(read_sections(&r));
    SX_TRY(find_symbols(&r));
    SX_TRY(find_kernels(&r));
    for (uint32_t i = 0; i < r.section_count; i++) {
        SX_TRY(read_section(&r, &r.section[i]));
    }
    SX_TRY(read_maker(&r));
    for (uint32_t i = 0; i < r.cubin->kernel_count; i++) {
        if (r.kernel[i].registers == 0 || r.kernel[i].param == NULL) {
            return SX_FAIL(cx, SX_CORRUPT, "cubin: kernel %.*s has no record of its registers",
                           SHOWN(r.kernel[i].name));
        }
    }
    qsort(r.kernel, r.cubin->kernel_count, sizeof(*r.kernel), by_name);
    r.cubin->kernel = r.kernel;
    *cubin = r.cubin;
    return SX_OK;
}

const sx_cubin_kernel *sx_cubin_find(const sx_cubin *cubin, sx_span name)
{
    SX_ASSERT(cubin != NULL);
    for (uint32_t i = 0; i < cubin->kernel_count; i++) {
        if (sx_span_equal(cubin->kernel[i].name, name)) {
            return &cubin->kernel[i];
        }
    }
    return NULL;
}

void sx_cubin_target(const sx_cubin *cubin, char text[SX_CUBIN_TARGET_MAX])
{
    SX_ASSERT(cubin != NULL && text != NULL);
    (void)snprintf(text, SX_CUBIN_TARGET_MAX, "sm_%u%s", cubin->arch,
                   cubin->arch_specific ? "a" : "");
}
