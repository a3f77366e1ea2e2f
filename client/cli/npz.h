/* npz.h - NumPy's .npz files: a ZIP archive with an .npy file for each array, stored as they are (numpy.savez).
 *
 * The central directory at the end of the file says what is in it; local headers are passed over. Compressed members
 * (numpy.savez_compressed), encrypted ones, several disks and 4 GiB or more are refused by name.
 * References: numpy.lib.npyio; PKWARE APPNOTE 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16. */
#ifndef SX_CLIENT_CLI_NPZ_H
#define SX_CLIENT_CLI_NPZ_H
#include "client/cli/npy.h"

#define SXC_NPZ_ARRAYS_MAX 65535u
typedef struct {
    sx_span name; /* without ".npy" */
    sx_span file; /* an .npy file */
} sxc_npz_array;
typedef struct {
    sxc_npz_array *array;
    uint32_t count;
} sxc_npz;
/* The arrays of an archive; names and files borrow from `bytes`, checksums are right. `name` is for messages.
 *   errors   SX_INPUT no such archive, damaged, or with something that is refused; one name twice */
sx_code sxc_npz_parse(sx_ctx *cx, const char *name, sx_span bytes, sxc_npz *archive);
/* The same of a file, which lies in cx's arena. */
sx_code sxc_npz_read(sx_ctx *cx, const char *path, sxc_npz *archive);
/* NULL: it has none of that name. */
const sxc_npz_array *sxc_npz_find(const sxc_npz *archive, sx_span name);
/* Appends an archive of these arrays.  errors  SX_LIMIT 4 GiB or more */
sx_code sxc_npz_print(sx_ctx *cx, const sxc_npz *archive, sx_buf *bytes);
#endif
