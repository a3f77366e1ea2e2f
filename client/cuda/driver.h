/* driver.h - inside client/cuda: the functions of the CUDA driver, found in its library when they are needed.
 *
 * The library is code that this user is about to run. It is libcuda.so.1 as the system's loader finds it, or the
 * file that $SYMPLEX_CUDA_DRIVER names with its whole path, for a driver in an unusual place and for tests; that
 * file counts only where nobody but this user and the superuser can exchange it (trust/trust.h). */
#ifndef SX_CLIENT_CUDA_DRIVER_H
#define SX_CLIENT_CUDA_DRIVER_H
#include "core/base/base.h"

#define SXG_DRIVER_VARIABLE "SYMPLEX_CUDA_DRIVER"

typedef struct {
#define SXG_FUNCTION(field, symbol, arguments) int(*field) arguments;
#include "client/cuda/functions.def"
#undef SXG_FUNCTION
    int version; /* 12040: CUDA 12.4 */
    char library[256];
} sxg_driver;

/* Opens the library, which stays loaded, and finds all functions and its version.
 *   errors   SX_ABSENT no library; SX_DENIED others can exchange the file; SX_UNIMPLEMENTED a function is missing, by
 *            name; SX_SYSTEM the driver fails */
sx_code sxg_driver_find(sx_ctx *cx, sxg_driver *driver);
/* The same, and starts it.  errors  the same, and SX_ABSENT no GPU that it could drive */
sx_code sxg_driver_open(sx_ctx *cx, sxg_driver *driver);
/* A call of the driver has failed: what was tried, the number of the error, its name and its text. */
sx_code sxg_driver_fail(sx_ctx *cx, const sxg_driver *driver, const char *what, int status);
#endif
