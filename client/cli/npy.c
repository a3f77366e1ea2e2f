#include "client/cli/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/file.h"

#define HEADER_MAX 65536u
#define FILE_BYTES_MAX ((size_t)16 << 30)

/* The first code of a type is the one that is written. bfloat16 and the 8-bit floats are elements without meaning to
 * NumPy, and so they are in files that it writes of ml_dtypes, but for f8e5m2. */
static const struct {
    const char *code;
    sx_dtype dtype;
    sxc_npy_open open;
} kinds[] = {{"<f8", SX_F64, SXC_NPY_CLOSED},    {"<f4", SX_F32, SXC_NPY_CLOSED},
             {"<f2", SX_F16, SXC_NPY_CLOSED},    {"<i8", SX_I64, SXC_NPY_CLOSED},
             {"<i4", SX_I32, SXC_NPY_CLOSED},    {"<i2", SX_I16, SXC_NPY_CLOSED},
             {"|i1", SX_I8, SXC_NPY_CLOSED},     {"|u1", SX_U8, SXC_NPY_CLOSED},
             {"|b1", SX_BOOL, SXC_NPY_CLOSED},   {"|V2", SX_BF16, SXC_NPY_CLOSED},
             {"<V2", SX_BF16, SXC_NPY_CLOSED},   {"|V1", SX_F8E4M3, SXC_NPY_FLOAT8},
             {"<V1", SX_F8E4M3, SXC_NPY_FLOAT8}, {"|V1", SX_F8E5M2, SXC_NPY_FLOAT8},
             {"<f1", SX_F8E5M2, SXC_NPY_CLOSED}, {"<u8", SX_I64, SXC_NPY_UNSIGNED},
             {"<u4", SX_I32, SXC_NPY_UNSIGNED},  {"<u2", SX_I16, SXC_NPY_UNSIGNED}};

/* ---- header: a Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } ---- */

/* The text behind 'key': or an empty span. */
static sx_span value_of(sx_span header, const char *key)
{
    char quoted[32];
    int length = snprintf(quoted, sizeof(quoted), "'%s':", key);
    for (size_t i = 0; i + (size_t)length <= header.len; i++) {
        if (memcmp(header.ptr + i, quoted, (size_t)length) == 0) {
            size_t at = i + (size_t)length;
            while (at < header.len && header.ptr[at] == ' ') {
                at++;
            }
            return (sx_span){header.ptr + at, header.len - at};
        }
    }
    return (sx_span){NULL, 0};
}

static bool begins(sx_span text, const char *prefix)
{
    size_t length = strlen(prefix);
    return text.len >= length && memcmp(text.ptr, prefix, length) == 0;
}

/* How much of `text` is its first value, as '>f4' is of "'>f4', 'fortran_order': ..."; at most 24 bytes. */
static int quoted_length(sx_span text)
{
    int length = 0;
    bool quoted = text.len > 0 && text.ptr[0] == '\'';
    while (length < 24 && (size_t)length < text.len &&
           !(quoted && length > 0 && text.ptr[length - 1] == '\'' && length > 1)) {
        length++;
    }
    return length;
}

static sx_code parse_kind(sx_ctx *cx, const char *name, sx_span text, sxc_npy *array)
{
    for (uint32_t i = 0; i < SX_COUNT(kinds); i++) {
        char quoted[8];
        (void)snprintf(quoted, sizeof(quoted), "'%s'", kinds[i].code);
        if (begins(text, quoted)) {
            array->type.dtype = kinds[i].dtype;
            array->open = kinds[i].open;
            return SX_OK;
        }
    }
    sx_hint(cx, "NumPy converts, as with x.astype('<f4').");
    return SX_FAIL(cx, SX_INPUT,
                   "%s: element type %.*s; read are <f8 <f4 <f2 <i8 <i4 <i2 i1 <u8 <u4 "
                   "<u2 u1 b1 V2 V1",
                   name, quoted_length(text), (const char *)text.ptr);
}

static sx_code parse_shape(sx_ctx *cx, const char *name, sx_span text, sx_type *type)
{
    size_t at = 0;
    if (text.len == 0 || text.ptr[at++] != '(') {
        return SX_FAIL(cx, SX_INPUT, "%s: no shape in the header", name);
    }
    for (;;) {
        while (at < text.len && (text.ptr[at] == ' ' || text.ptr[at] == ',')) {
            at++;
        }
        if (at < text.len && text.ptr[at] == ')') {
            return SX_OK;
        }
        int64_t extent = 0;
        size_t digits = 0;
        for (;
             at < text.len && text.ptr[at] >= '0' && text.ptr[at] <= '9' && extent <= SX_EXTENT_MAX;
             at++, digits++) {
            extent = extent * 10 + (text.ptr[at] - '0');
        }
        if (digits == 0 || extent > SX_EXTENT_MAX || type->rank == SX_RANK_MAX) {
            return SX_FAIL(
                cx, SX_INPUT,
                "%s: extent %lld of dimension %u, allowed are 0 to %lld in at most %d dimensions",
                name, (long long)extent, type->rank, (long long)SX_EXTENT_MAX, SX_RANK_MAX);
        }
        type->dim[type->rank++] = sx_dim_of(extent);
    }
}

sx_code sxc_npy_parse(sx_ctx *cx, const char *name, sx_span file, sxc_npy *array)
{
    *array = (sxc_npy){.bytes = {NULL, 0}};
    if (file.len < 12 || memcmp(file.ptr, "\x93NUMPY", 6) != 0 || file.ptr[6] < 1 ||
        file.ptr[6] > 3) {
        return SX_FAIL(cx, SX_INPUT, "%s: not an .npy file of version 1 to 3", name);
    }
    bool wide = file.ptr[6] > 1;
    size_t start = wide ? 12 : 10;
    size_t length = (size_t)file.ptr[8] | (size_t)file.ptr[9] << 8;
    if (wide) {
        length |= (size_t)file.ptr[10] << 16 | (size_t)file.ptr[11] << 24;
    }
    if (length > HEADER_MAX || length > file.len - start) {
        return SX_FAIL(cx, SX_INPUT, "%s: header of %zu bytes in a file of %zu", name, length,
                       file.len);
    }
    sx_span header = {file.ptr + start, length};
    if (!begins(value_of(header, "fortran_order"), "False")) {
        sx_hint(cx, "numpy.ascontiguousarray puts the elements into C order.");
        return SX_FAIL(cx, SX_INPUT, "%s: not in C order", name);
    }
    SX_TRY(parse_kind(cx, name, value_of(header, "descr"), array));
    SX_TRY(parse_shape(cx, name, value_of(header, "shape"), &array->type));
    sx_dim elements;
    bool fits = sx_type_elements(&array->type, &elements);
    size_t left = file.len - start - length;
    if (!fits || (uint64_t)elements.scale * sx_dtype_bytes(array->type.dtype) != left) {
        return SX_FAIL(cx, SX_INPUT, "%s: %zu bytes of elements, the shape has %lld elements of %u",
                       name, left, fits ? (long long)elements.scale : -1,
                       sx_dtype_bytes(array->type.dtype));
    }
    array->bytes = (sx_span){file.ptr + start + length, left};
    return SX_OK;
}

sx_code sxc_npy_as(sx_ctx *cx, const char *name, sx_dtype dtype, sxc_npy *array)
{
    uint32_t size = sx_dtype_bytes(array->type.dtype);
    if (array->open == SXC_NPY_FLOAT8 && dtype == SX_F8E5M2) {
        array->type.dtype = dtype;
    }
    for (size_t at = 0; array->open == SXC_NPY_UNSIGNED && at < array->bytes.len; at += size) {
        if (array->bytes.ptr[at + size - 1] >= 128) {
            return SX_FAIL(cx, SX_INPUT,
                           "%s: element %zu of u%u is larger than any %s; unsigned elements are "
                           "read where they fit",
                           name, at / size, size * 8, sx_dtype_name(array->type.dtype));
        }
    }
    return SX_OK;
}

sx_code sxc_npy_read(sx_ctx *cx, const char *path, sxc_npy *array)
{
    FILE *file;
    SX_TRY(sxc_open_input(cx, path, &file));
    sx_code code = SX_OK;
    uint8_t *bytes = NULL;
    off_t size = fseeko(file, 0, SEEK_END) == 0 ? ftello(file) : -1;
    if (size < 0 || (uint64_t)size > FILE_BYTES_MAX || fseeko(file, 0, SEEK_SET) != 0) {
        code = SX_FAIL(cx, SX_INPUT, "%s: not a file of at most %zu bytes", path, FILE_BYTES_MAX);
    } else if ((bytes = sx_alloc(cx, (size_t)size + 1)) == NULL) {
        code = cx->error.code;
    } else if (fread(bytes, 1, (size_t)size, file) != (size_t)size) {
        code = SX_FAIL(cx, SX_INPUT, "%s: cannot be read", path);
    }
    (void)fclose(file);
    return code == SX_OK ? sxc_npy_parse(cx, path, (sx_span){bytes, (size_t)size}, array) : code;
}

sx_code sxc_npy_print(sx_ctx *cx, const sx_type *type, sx_span bytes, sx_buf *file)
{
    const char *code = NULL;
    for (uint32_t i = 0; i < SX_COUNT(kinds) && code == NULL; i++) {
        code = kinds[i].dtype == type->dtype ? kinds[i].code : NULL;
    }
    SX_ASSERT(code != NULL);
    sx_buf header;
    sx_buf_init(&header, 4096);
    sx_buf_print(&header, "{'descr': '%s', 'fortran_order': False, 'shape': (", code);
    for (uint32_t d = 0; d < type->rank; d++) {
        sx_buf_print(&header, "%lld,%s", (long long)type->dim[d].scale,
                     d + 1 < type->rank ? " " : "");
    }
    sx_buf_put_text(&header, "), }");
    while ((10 + header.len + 1) % 64 != 0) {
        sx_buf_put_u8(&header, ' ');
    }
    sx_buf_put_u8(&header, '\n');
    sx_buf_put(file, "\x93NUMPY\x01\x00", 8);
    sx_buf_put_u16(file, (uint16_t)header.len);
    sx_buf_put_span(file, sx_buf_span(&header));
    sx_buf_put_span(file, bytes);
    sx_buf_fini(&header);
    return sx_buf_check(cx, file, ".npy file");
}
