/* table.h - prints rows of text in columns: each as wide as its widest cell, two spaces between them, no borders.
 *
 * Cells come from files and from other programs, so bytes below a space and DEL are printed as '?'.
 */
#ifndef SX_CLIENT_CLI_TABLE_H
#define SX_CLIENT_CLI_TABLE_H
#include <stdio.h>

#include "core/base/base.h"
#include "core/base/buf.h"

#define SXC_COLUMNS_MAX 16
typedef struct {
    /* The cells lie in its arena. */
    sx_ctx *cx;
    const char *head[SXC_COLUMNS_MAX];
    uint32_t column_count;
    /* The columns whose cells stand to the right, a set of 1 << column. */
    uint32_t right;
    char **cell;
    uint32_t cell_count, cell_capacity;
    /* The first failure, which sxc_table_print returns. */
    sx_code code;
} sxc_table;

/* `heads` names the columns, separated by '|', and is static: "NAME|>BYTES". '>' puts the cells of its column to the
 * right, as is usual for numbers. */
void sxc_table_init(sxc_table *table, sx_ctx *cx, const char *heads);
/* Fills in the next cell; cells come row by row. */
void sxc_table_put(sxc_table *table, const char *format, ...) SX_PRINTF(2, 3);
void sxc_table_put_span(sxc_table *table, sx_span text);
/* Prints the heads, then the rows. Returns the first failure of all calls since sxc_table_init. */
sx_code sxc_table_print(const sxc_table *table, sx_buf *out);

/* Prints text, with '?' for every byte that could move the cursor of a terminal. */
void sxc_put_plain(sx_buf *out, sx_span text);
/* Prints one line: the label, padded to 11 columns, and the text as sxc_put_plain prints it. */
void sxc_put_line(sx_buf *out, const char *label, sx_span text);
#endif
