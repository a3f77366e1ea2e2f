/* npy.h - NumPy's .npy files, versions 1 to 3, C order, little endian: how tensors enter and leave the command line.
 * Reference: numpy.lib.format. */
#ifndef SX_CLIENT_CLI_NPY_H
#define SX_CLIENT_CLI_NPY_H
#include "core/ir/ir.h"

/* What the file leaves open of the element type: nothing; the elements are 8-bit floats of either kind; they are
 * unsigned, and `type` has the signed type of that size, which has the same bits. */
typedef enum { SXC_NPY_CLOSED, SXC_NPY_FLOAT8, SXC_NPY_UNSIGNED } sxc_npy_open;
typedef struct {
    sxc_npy_open open;
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
/* Reads the elements as the numbers that they are, of type `dtype` where the file leaves that open.
 *   errors   SX_INPUT an unsigned element that the signed type does not hold */
sx_code sxc_npy_as(sx_ctx *cx, const char *name, sx_dtype dtype, sxc_npy *array);
/* Appends the file form. bf16 and f8 are elements of 2 and 1 bytes without a type, as NumPy has none:
 * numpy.load(..).view(ml_dtypes.bfloat16), or .view(numpy.uint16), makes numbers or bits of them. */
sx_code sxc_npy_print(sx_ctx *cx, const sx_type *type, sx_span bytes, sx_buf *file);
#endif
