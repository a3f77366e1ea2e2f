#include "tests/lib/gen_cubin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNELS_MAX 64u
#define SECTIONS_MAX (3 * KERNELS_MAX + 5)
enum { NOTHING = 0, CODE = 1, SYMBOLS = 2, STRINGS = 3, NO_BITS = 8, INFO = 0x70000000 };

typedef struct {
    uint32_t name, kind, link, info;
    uint64_t flags, offset, size, entry;
} section;

/* A file that grows: bytes of the sections, and their headers. */
typedef struct {
    sx_buf body, names, strings, symbols, words;
    section table[SECTIONS_MAX];
    uint32_t count;
} file;

static uint32_t put_name(sx_buf *strings, const char *before, sx_span name)
{
    uint32_t at = (uint32_t)strings->len;
    sx_buf_put_text(strings, before);
    sx_buf_put_span(strings, name);
    sx_buf_put_u8(strings, 0);
    return at;
}

static uint32_t put_section(file *f, const char *before, sx_span name, section head, sx_span bytes)
{
    if (f->count == SECTIONS_MAX) {
        abort();
    }
    sx_buf_pad(&f->body, 8);
    head.name = put_name(&f->names, before, name);
    head.offset = 64 + f->body.len;
    head.size = bytes.len;
    sx_buf_put_span(&f->body, bytes);
    f->table[f->count] = head;
    return f->count++;
}

/* An attribute with words behind it. */
static void put_words(sx_buf *out, uint8_t attribute, const uint32_t *word, uint32_t count)
{
    sx_buf_put_u8(out, 4);
    sx_buf_put_u8(out, attribute);
    sx_buf_put_u8(out, (uint8_t)(4 * count));
    sx_buf_put_u8(out, (uint8_t)(4 * count >> 8));
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_put_u32(out, word[i]);
    }
}

static void put_half(sx_buf *out, uint8_t attribute, uint32_t value)
{
    const uint8_t bytes[4] = {3, attribute, (uint8_t)value, (uint8_t)(value >> 8)};
    sx_buf_put(out, bytes, sizeof(bytes));
}

/* The attributes of an entry; `list` is the text of its parameters. */
static void put_attributes(sx_buf *out, sx_span list, const sx_gen_cubin_record *record)
{
    uint32_t offset = 0, ordinal = 0, version = 129;
    put_words(out, 0x37, &version, 1);
    for (size_t i = 0; i + 11 < list.len; i++) {
        if (memcmp(list.ptr + i, ".param .u", 9) == 0) {
            uint32_t size = list.ptr[i + 9] == '6' ? 8 : 4;
            const uint32_t word[3] = {0, ordinal++ | offset << 16, size << 18 | 0x1f000};
            put_words(out, 0x17, word, 3);
            offset += size;
        }
    }
    put_half(out, 0x1b, 255);
    uint32_t spill[64] = {0};
    if (record->spills > 0 && record->spills <= 32) {
        put_words(out, 0x55, spill, 2 * record->spills);
    }
    put_half(out, 0x19, offset);
}

static void put_symbol(file *f, sx_span name, uint32_t code)
{
    const uint8_t kind[4] = {0x12, 0x10, (uint8_t)code, (uint8_t)(code >> 8)};
    const uint64_t place[2] = {0, 128};
    sx_buf_put_u32(&f->symbols, put_name(&f->strings, "", name));
    sx_buf_put(&f->symbols, kind, sizeof(kind));
    sx_buf_put(&f->symbols, place, sizeof(place));
}

static void put_kernel(file *f, sx_span name, sx_span list, const sx_gen_cubin_record *record)
{
    static const uint8_t code[128];
    sx_buf attributes;
    sx_buf_init(&attributes, 1 << 16);
    uint32_t symbol = (uint32_t)(f->symbols.len / 24);
    uint32_t text = put_section(f, ".text.", name,
                                (section){.kind = CODE, .flags = 6, .link = 3, .info = symbol},
                                (sx_span){code, sizeof(code)});
    put_symbol(f, name, text);
    put_attributes(&attributes, list, record);
    (void)put_section(f, ".nv.info.", name,
                      (section){.kind = INFO, .flags = 0x40, .link = 3, .info = text},
                      sx_buf_span(&attributes));
    uint32_t shared =
        put_section(f, ".nv.shared.", name, (section){.kind = NO_BITS, .flags = 0x43, .info = text},
                    (sx_span){NULL, 0});
    f->table[shared].size = record->shared_bytes + (record->arch >= 90 ? 1024 : 0);
    const uint32_t registers[2] = {symbol, record->registers}, frame[2] = {symbol, 0},
                   stack[2] = {symbol, record->stack_bytes};
    put_words(&f->words, 0x2f, registers, 2);
    put_words(&f->words, 0x11, frame, 2);
    put_words(&f->words, 0x12, stack, 2);
    sx_buf_fini(&attributes);
}

static void put_kernels(file *f, sx_span ptx, const sx_gen_cubin_record *record)
{
    static const char word[] = ".visible .entry ";
    const uint8_t *at = ptx.ptr, *end = ptx.ptr + ptx.len;
    while ((at = memmem(at, (size_t)(end - at), word, sizeof(word) - 1)) != NULL) {
        at += sizeof(word) - 1;
        const uint8_t *open = memchr(at, '(', (size_t)(end - at));
        const uint8_t *close = open != NULL ? memchr(open, ')', (size_t)(end - open)) : NULL;
        if (close == NULL) {
            abort();
        }
        sx_span name = {at, (size_t)(open - at)};
        if (record->left_out == NULL || !sx_span_is(name, record->left_out)) {
            put_kernel(f, name, (sx_span){open, (size_t)(close - open)}, record);
        }
    }
}

static void put_head(sx_buf *out, const file *f, uint32_t arch, uint64_t table)
{
    static const uint8_t ident[16] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, 7};
    const uint16_t kind[2] = {2, 190}, sizes[6] = {64, 0, 0, 64, (uint16_t)f->count, 1};
    const uint64_t place[3] = {0, 0, table};
    sx_buf_put(out, ident, sizeof(ident));
    sx_buf_put(out, kind, sizeof(kind));
    sx_buf_put_u32(out, 1);
    sx_buf_put(out, place, sizeof(place));
    sx_buf_put_u32(out, arch | 0x500 | arch << 16);
    sx_buf_put(out, sizes, sizeof(sizes));
}

void sx_gen_cubin(sx_span ptx, const sx_gen_cubin_record *record, sx_buf *cubin)
{
    static file f;
    sx_span none = {NULL, 0};
    sx_buf *const part[] = {&f.body, &f.names, &f.strings, &f.symbols, &f.words};
    static const uint8_t zero[24];
    memset(&f, 0, sizeof(f));
    for (uint32_t i = 0; i < SX_COUNT(part); i++) {
        sx_buf_init(part[i], 1 << 24);
    }
    sx_buf_put_u8(&f.strings, 0);
    sx_buf_put(&f.symbols, zero, sizeof(zero));
    (void)put_section(&f, "", none, (section){.kind = NOTHING}, none);
    f.table[0] = (section){.kind = NOTHING};
    static const char *const name[] = {".shstrtab", ".strtab", ".symtab", ".nv.info"};
    for (uint32_t i = 0; i < SX_COUNT(name); i++) {
        uint32_t kind = i < 2 ? STRINGS : i == 2 ? SYMBOLS : INFO;
        section head = {.kind = kind,
                        .link = i == 2   ? 2
                                : i == 3 ? 3
                                         : 0,
                        .entry = i == 2 ? 24 : 0};
        (void)put_section(&f, name[i], none, head, none);
    }
    put_kernels(&f, ptx, record);
    sx_buf *const late[] = {&f.names, &f.strings, &f.symbols, &f.words};
    for (uint32_t i = 0; i < SX_COUNT(late); i++) { /* now that all of them is known */
        sx_buf_pad(&f.body, 8);
        f.table[1 + i].offset = 64 + f.body.len;
        f.table[1 + i].size = late[i]->len;
        sx_buf_put_span(&f.body, sx_buf_span(late[i]));
    }
    sx_buf_pad(&f.body, 8);
    put_head(cubin, &f, record->arch, 64 + f.body.len);
    sx_buf_put_span(cubin, sx_buf_span(&f.body));
    for (uint32_t i = 0; i < f.count; i++) {
        const section *s = &f.table[i];
        const uint64_t wide[4] = {s->flags, 0, s->offset, s->size};
        const uint64_t tail[2] = {4, s->entry};
        sx_buf_put_u32(cubin, s->name);
        sx_buf_put_u32(cubin, s->kind);
        sx_buf_put(cubin, wide, sizeof(wide));
        sx_buf_put_u32(cubin, s->link);
        sx_buf_put_u32(cubin, s->info);
        sx_buf_put(cubin, tail, sizeof(tail));
    }
    for (uint32_t i = 0; i < SX_COUNT(part); i++) {
        sx_buf_fini(part[i]);
    }
}
