#include "client/cli/table.h"

#include <stdarg.h>
#include <string.h>

#define CELL_BYTES_MAX 512

void sxc_table_init(sxc_table *table, sx_ctx *cx, const char *heads)
{
    *table = (sxc_table){.cx = cx};
    while (*heads != '\0') {
        SX_ASSERT(table->column_count < SXC_COLUMNS_MAX);
        if (*heads == '>') {
            table->right |= 1u << table->column_count;
            heads++;
        }
        table->head[table->column_count++] = heads;
        heads += strcspn(heads, "|");
        heads += *heads == '|';
    }
}

void sxc_table_put_span(sxc_table *table, sx_span text)
{
    if (table->code != SX_OK) {
        return;
    }
    void *array = table->cell;
    table->code = sx_grow(table->cx, &array, &table->cell_capacity, table->cell_count + 1,
                          sizeof(*table->cell));
    table->cell = array;
    if (table->code != SX_OK) {
        return;
    }
    char *copy = sx_alloc_text(table->cx, text);
    if (copy == NULL) {
        table->code = table->cx->error.code;
        return;
    }
    table->cell[table->cell_count++] = copy;
}

void sxc_table_put(sxc_table *table, const char *format, ...)
{
    char text[CELL_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    sxc_table_put_span(table, sx_span_of(text));
}

void sxc_put_plain(sx_buf *out, sx_span text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t byte = text.ptr[i];
        sx_buf_put_u8(out, byte < 32 || byte == 127 ? '?' : byte);
    }
}

void sxc_put_line(sx_buf *out, const char *label, sx_span text)
{
    sx_buf_print(out, "%-10s ", label);
    sxc_put_plain(out, text);
    sx_buf_put_u8(out, '\n');
}

/* Code points, which stand for columns of the terminal. */
static uint32_t width_of(sx_span text)
{
    uint32_t width = 0;
    for (size_t i = 0; i < text.len; i++) {
        width += (text.ptr[i] & 0xc0) != 0x80;
    }
    return width;
}

static sx_span head_of(const sxc_table *table, uint32_t column)
{
    const char *head = table->head[column];
    return (sx_span){(const uint8_t *)head, strcspn(head, "|")};
}

static void put_cell(const sxc_table *table, sx_buf *out, uint32_t column, sx_span text,
                     uint32_t width)
{
    uint32_t fill = width - width_of(text);
    bool last = column + 1 == table->column_count, right = (table->right >> column & 1) != 0;
    for (uint32_t i = 0; right && i < fill; i++) {
        sx_buf_put_u8(out, ' ');
    }
    sxc_put_plain(out, text);
    for (uint32_t i = 0; !last && !right && i < fill; i++) {
        sx_buf_put_u8(out, ' ');
    }
    sx_buf_put_text(out, last ? "\n" : "  ");
}

sx_code sxc_table_print(const sxc_table *table, sx_buf *out)
{
    uint32_t width[SXC_COLUMNS_MAX];
    if (table->code != SX_OK) {
        return table->code;
    }
    SX_ASSERT(table->cell_count % table->column_count == 0);
    for (uint32_t c = 0; c < table->column_count; c++) {
        width[c] = width_of(head_of(table, c));
    }
    for (uint32_t i = 0; i < table->cell_count; i++) {
        uint32_t w = width_of(sx_span_of(table->cell[i]));
        uint32_t c = i % table->column_count;
        width[c] = w > width[c] ? w : width[c];
    }
    for (uint32_t c = 0; c < table->column_count; c++) {
        put_cell(table, out, c, head_of(table, c), width[c]);
    }
    for (uint32_t i = 0; i < table->cell_count; i++) {
        uint32_t c = i % table->column_count;
        put_cell(table, out, c, sx_span_of(table->cell[i]), width[c]);
    }
    return sx_buf_check(table->cx, out, "table");
}
