/* npy.h - NumPy's .npy files, versions 1 to 3, C order, little endian: how tensors enter and leave the command line.
 * Reference: numpy.lib.format. */
#ifndef SX_CLIENT_CLI_NPY_H
#define SX_CLIENT_CLI_NPY_H
#include "core/ir/ir.h"

typedef struct {
    /* All of its extents are numbers. */
    sx_type type;
    /* The elements in row-major order; they lie in cx's arena. */
    sx_span bytes;
} sxc_npy;
/* SX_INPUT: missing file, malformed header, Fortran order, big endian, element type without counterpart, size
 * that does not fit. */
sx_code sxc_npy_read(sx_ctx *cx, const char *path, sxc_npy *array);
sx_code sxc_npy_parse(sx_ctx *cx, const char *name, sx_span file,
                      sxc_npy *array); /* bytes borrow from `file` */
/* Appends the file form. SX_UNIMPLEMENTED: an element type NumPy has not (bf16, f8). */
sx_code sxc_npy_print(sx_ctx *cx, const sx_type *type, sx_span bytes, sx_buf *file);
#endif
