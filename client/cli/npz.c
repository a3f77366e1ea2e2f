#include "client/cli/npz.h"

#include <stdio.h>
#include <string.h>

#include "client/file.h"

#define LOCAL_SIGNATURE UINT32_C(0x04034b50)
#define CENTRAL_SIGNATURE UINT32_C(0x02014b50)
#define END_SIGNATURE UINT32_C(0x06054b50)
#define LOCAL_BYTES 30u
#define CENTRAL_BYTES 46u
#define END_BYTES 22u
#define COMMENT_MAX 65535u
#define VERSION 20u             /* of ZIP that a reader needs: 2.0 */
#define DATE UINT32_C(0x210000) /* 1980-01-01, 00:00: equal arrays give equal files */

static uint32_t u16_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | u16_at(p + 2) << 16;
}

/* CRC-32 of ISO-HDLC, reflected, four bits at a time. */
static uint32_t checksum(sx_span bytes)
{
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                       0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                       0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes.len; i++) {
        crc ^= bytes.ptr[i];
        crc = table[crc & 15] ^ crc >> 4;
        crc = table[crc & 15] ^ crc >> 4;
    }
    return ~crc;
}

/* ---- reading ---- */

/* The record at the end of the archive, behind which only a comment stands; NULL: there is none. */
static const uint8_t *find_end(sx_span bytes)
{
    for (size_t back = END_BYTES; back <= bytes.len && back <= END_BYTES + COMMENT_MAX; back++) {
        const uint8_t *p = bytes.ptr + bytes.len - back;
        if (u32_at(p) == END_SIGNATURE && u16_at(p + 20) == back - END_BYTES) {
            return p;
        }
    }
    return NULL;
}

/* The member that a row of the central directory describes. */
static sx_code take_member(sx_ctx *cx, const char *path, sx_span bytes, const uint8_t *row,
                           sx_span name, sxc_npz_array *array)
{
    int shown = (int)sx_min_i64((int64_t)name.len, 100);
    const char *text = (const char *)name.ptr;
    uint32_t size = u32_at(row + 24), offset = u32_at(row + 42);
    if (name.len <= 4 || memcmp(name.ptr + name.len - 4, ".npy", 4) != 0) {
        return SX_FAIL(cx, SX_INPUT, "%s: member %.*s is no .npy file", path, shown, text);
    }
    if ((u16_at(row + 8) & 1) != 0 || u16_at(row + 10) != 0) {
        sx_hint(cx, "numpy.savez writes arrays as they are, numpy.savez_compressed does not.");
        return SX_FAIL(cx, SX_INPUT, "%s: member %.*s is %s", path, shown, text,
                       u16_at(row + 10) != 0 ? "compressed" : "encrypted");
    }
    if (size == UINT32_MAX || offset == UINT32_MAX) {
        return SX_FAIL(cx, SX_INPUT, "%s: member %.*s of 4 GiB or more", path, shown, text);
    }
    bool fits = offset <= bytes.len && bytes.len - offset >= LOCAL_BYTES &&
                u32_at(bytes.ptr + offset) == LOCAL_SIGNATURE;
    size_t start = fits ? (size_t)offset + LOCAL_BYTES + u16_at(bytes.ptr + offset + 26) +
                              u16_at(bytes.ptr + offset + 28)
                        : 0;
    if (!fits || u32_at(row + 20) != size || start > bytes.len || bytes.len - start < size) {
        return SX_FAIL(cx, SX_INPUT, "%s: member %.*s of %u bytes does not lie in the file", path,
                       shown, text, size);
    }
    *array = (sxc_npz_array){{name.ptr, name.len - 4}, {bytes.ptr + start, size}};
    if (checksum(array->file) != u32_at(row + 16)) {
        return SX_FAIL(cx, SX_INPUT, "%s: member %.*s is damaged: its checksum differs", path,
                       shown, text);
    }
    return SX_OK;
}

sx_code sxc_npz_parse(sx_ctx *cx, const char *path, sx_span bytes, sxc_npz *archive)
{
    SX_ASSERT(bytes.ptr != NULL || bytes.len == 0);
    const uint8_t *end = find_end(bytes);
    *archive = (sxc_npz){NULL, 0};
    if (end == NULL || u16_at(end + 4) != 0 || u32_at(end + 16) > bytes.len) {
        return SX_FAIL(cx, SX_INPUT, "%s: not an .npz file", path);
    }
    uint32_t count = u16_at(end + 10);
    size_t at = u32_at(end + 16), last = (size_t)(end - bytes.ptr);
    archive->array = SX_NEW_ARRAY(cx, sxc_npz_array, (size_t)count + 1);
    if (archive->array == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *row = bytes.ptr + at;
        if (at > last || last - at < CENTRAL_BYTES || u32_at(row) != CENTRAL_SIGNATURE ||
            last - at - CENTRAL_BYTES < u16_at(row + 28)) {
            return SX_FAIL(cx, SX_INPUT, "%s: row %u of %u of its directory is damaged", path, i,
                           count);
        }
        sx_span name = {row + CENTRAL_BYTES, u16_at(row + 28)};
        sxc_npz_array *array = &archive->array[archive->count];
        SX_TRY(take_member(cx, path, bytes, row, name, array));
        if (sxc_npz_find(archive, array->name) != NULL) {
            return SX_FAIL(cx, SX_INPUT, "%s: two members are called %.*s", path,
                           (int)sx_min_i64((int64_t)name.len, 100), (const char *)name.ptr);
        }
        archive->count++;
        at += CENTRAL_BYTES + name.len + u16_at(row + 30) + u16_at(row + 32);
    }
    return SX_OK;
}

const sxc_npz_array *sxc_npz_find(const sxc_npz *archive, sx_span name)
{
    for (uint32_t i = 0; i < archive->count; i++) {
        if (sx_span_equal(archive->array[i].name, name)) {
            return &archive->array[i];
        }
    }
    return NULL;
}

sx_code sxc_npz_read(sx_ctx *cx, const char *path, sxc_npz *archive)
{
    FILE *file;
    SX_TRY(sxc_open_input(cx, path, &file));
    off_t size = fseeko(file, 0, SEEK_END) == 0 ? ftello(file) : -1;
    uint8_t *bytes = NULL;
    sx_code code = SX_OK;
    if (size < 0 || (uint64_t)size >= UINT32_MAX || fseeko(file, 0, SEEK_SET) != 0) {
        code = SX_FAIL(cx, SX_INPUT, "%s: not a file of less than 4 GiB", path);
    } else if ((bytes = sx_alloc(cx, (size_t)size + 1)) == NULL) {
        code = cx->error.code;
    } else if (fread(bytes, 1, (size_t)size, file) != (size_t)size) {
        code = SX_FAIL(cx, SX_INPUT, "%s: cannot be read", path);
    }
    (void)fclose(file);
    return code == SX_OK ? sxc_npz_parse(cx, path, (sx_span){bytes, (size_t)size}, archive) : code;
}

/* ---- writing ---- */

/* What a local header and a row of the directory have in common. */
static void put_common(const sxc_npz_array *array, uint32_t crc, sx_buf *to)
{
    sx_buf_put_u16(to, VERSION);
    sx_buf_put_u16(to, 0x800); /* names are UTF-8 */
    sx_buf_put_u16(to, 0);     /* stored */
    sx_buf_put_u32(to, DATE);
    sx_buf_put_u32(to, crc);
    sx_buf_put_u32(to, (uint32_t)array->file.len);
    sx_buf_put_u32(to, (uint32_t)array->file.len);
    sx_buf_put_u16(to, (uint16_t)(array->name.len + 4));
    sx_buf_put_u16(to, 0); /* extra field */
}

static void put_name(const sxc_npz_array *array, sx_buf *to)
{
    sx_buf_put_span(to, array->name);
    sx_buf_put_text(to, ".npy");
}

static void put_row(const sxc_npz_array *array, uint32_t crc, uint32_t offset, sx_buf *to)
{
    sx_buf_put_u32(to, CENTRAL_SIGNATURE);
    sx_buf_put_u16(to, VERSION);
    put_common(array, crc, to);
    sx_buf_put_u16(to, 0); /* comment */
    sx_buf_put_u16(to, 0); /* disk */
    sx_buf_put_u16(to, 0); /* attributes */
    sx_buf_put_u32(to, 0);
    sx_buf_put_u32(to, offset);
    put_name(array, to);
}

sx_code sxc_npz_print(sx_ctx *cx, const sxc_npz *archive, sx_buf *bytes)
{
    SX_ASSERT(bytes->len == 0 && archive->count <= SXC_NPZ_ARRAYS_MAX);
    sx_buf rows;
    uint64_t size = END_BYTES;
    for (uint32_t i = 0; i < archive->count; i++) {
        const sxc_npz_array *array = &archive->array[i];
        SX_ASSERT(array->name.len < 65000);
        size += LOCAL_BYTES + CENTRAL_BYTES + 2 * (array->name.len + 4) + array->file.len;
    }
    if (size >= UINT32_MAX) {
        return SX_FAIL(cx, SX_LIMIT, ".npz file of %llu bytes, less than 4 GiB can be written",
                       (unsigned long long)size);
    }
    sx_buf_init(&rows, UINT32_MAX);
    for (uint32_t i = 0; i < archive->count; i++) {
        const sxc_npz_array *array = &archive->array[i];
        uint32_t crc = checksum(array->file);
        put_row(array, crc, (uint32_t)bytes->len, &rows);
        sx_buf_put_u32(bytes, LOCAL_SIGNATURE);
        put_common(array, crc, bytes);
        put_name(array, bytes);
        sx_buf_put_span(bytes, array->file);
    }
    uint32_t offset = (uint32_t)bytes->len;
    sx_buf_put_span(bytes, sx_buf_span(&rows));
    sx_buf_put_u32(bytes, END_SIGNATURE);
    sx_buf_put_u32(bytes, 0); /* disks */
    sx_buf_put_u16(bytes, (uint16_t)archive->count);
    sx_buf_put_u16(bytes, (uint16_t)archive->count);
    sx_buf_put_u32(bytes, (uint32_t)rows.len);
    sx_buf_put_u32(bytes, offset);
    sx_buf_put_u16(bytes, 0); /* comment */
    sx_code code = sx_buf_check(cx, &rows, ".npz file");
    sx_buf_fini(&rows);
    return code == SX_OK ? sx_buf_check(cx, bytes, ".npz file") : code;
}
