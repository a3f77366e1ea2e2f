/* table.h - rows of text in columns as wide as they need: two spaces between columns, numbers to the right, no borders.
 *
 * Bytes below a space and DEL print as '?': cells come from files and from other programs.
 */
#ifndef SX_CLIENT_CLI_TABLE_H
#define SX_CLIENT_CLI_TABLE_H
#include <stdio.h>

#include "core/base/base.h"
#include "core/base/buf.h"

#define SXC_COLUMNS_MAX 16
typedef struct {
    sx_ctx *cx; /* its arena holds the cells */
    const char *head[SXC_COLUMNS_MAX];
    uint32_t column_count;
    uint32_t right; /* set of columns whose cells stand to the right */
    char **cell;
    uint32_t cell_count, cell_capacity;
    sx_code code; /* the first failure sticks */
} sxc_table;

/* `heads`: names of the columns separated by '|', "NAME|>BYTES": '>' puts a column to the right. Static storage. */
void sxc_table_init(sxc_table *table, sx_ctx *cx, const char *heads);
/* The next cell, row by row. */
void sxc_table_put(sxc_table *table, const char *format, ...) SX_PRINTF(2, 3);
void sxc_table_put_span(sxc_table *table, sx_span text);
/* Heads, then rows. Returns the sticky failure. */
sx_code sxc_table_print(const sxc_table *table, sx_buf *out);

/* Text with what could move a terminal's cursor made visible. */
void sxc_put_plain(sx_buf *out, sx_span text);
/* "label      text" and a newline, the text plain. */
void sxc_put_line(sx_buf *out, const char *label, sx_span text);
#endif
