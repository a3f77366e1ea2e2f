#include "client/cuda/driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trust/trust.h"

#define LIBRARY "libcuda.so.1"
#define ERROR_NO_DEVICE 100 /* CUDA_ERROR_NO_DEVICE */

static const struct {
    const char *symbol;
    size_t offset;
} function[] = {
#define SXG_FUNCTION(field, symbol, arguments) {(symbol), offsetof(sxg_driver, field)},
#include "client/cuda/functions.def"
#undef SXG_FUNCTION
};

/* The file that the variable names, with all links resolved; NULL: the variable is not set. */
static sx_code named_library(sx_ctx *cx, char real[PATH_MAX], const char **path)
{
    const char *name = secure_getenv(SXG_DRIVER_VARIABLE);
    sx_trust trust = {.self = geteuid(), .also = geteuid()};
    *path = NULL;
    if (name == NULL || name[0] == '\0') {
        return SX_OK;
    }
    if (name[0] != '/' || realpath(name, real) == NULL) {
        return SX_FAIL(cx, SX_ABSENT, "$" SXG_DRIVER_VARIABLE ": %.300s: %s", name,
                       name[0] != '/' ? "not a whole path" : "no such file");
    }
    *path = real;
    return sx_trust_file(cx, "$" SXG_DRIVER_VARIABLE, real, &trust);
}

static sx_code open_library(sx_ctx *cx, sxg_driver *driver, void **library)
{
    char real[PATH_MAX];
    const char *path = NULL;
    SX_TRY(named_library(cx, real, &path));
    (void)snprintf(driver->library, sizeof(driver->library), "%.255s",
                   path != NULL ? path : LIBRARY);
    *library = dlopen(path != NULL ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (*library == NULL) {
        const char *why = dlerror();
        sx_hint(cx, "Install the NVIDIA driver, run it on a machine with one, or compile for this "
                    "processor with --target native.");
        return SX_FAIL(cx, SX_ABSENT, "no CUDA driver: %.300s", why != NULL ? why : LIBRARY);
    }
    return SX_OK;
}

/* Only graphs and maps of the copy engine need them: graph.c and map.c say so. */
static bool may_miss(const char *symbol)
{
    return strcmp(symbol, "cuGraphInstantiateWithFlags") == 0 ||
           strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
}

static sx_code find_functions(sx_ctx *cx, void *library, sxg_driver *driver)
{
    for (uint32_t i = 0; i < SX_COUNT(function); i++) {
        void *address = dlsym(library, function[i].symbol);
        if (address == NULL && may_miss(function[i].symbol)) {
            continue;
        }
        if (address == NULL) {
            sx_hint(cx, "Drivers of CUDA 11.0 and later have it.");
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "the CUDA driver has no function %s",
                           function[i].symbol);
        }
        memcpy((char *)driver + function[i].offset, &address,
               sizeof(address)); /* as POSIX allows */
    }
    return SX_OK;
}

sx_code sxg_driver_fail(sx_ctx *cx, const sxg_driver *driver, const char *what, int status)
{
    const char *name = NULL, *text = NULL;
    SX_ASSERT(status != 0);
    bool known = driver->error_name(status, &name) == 0 && name != NULL &&
                 driver->error_text(status, &text) == 0 && text != NULL;
    return SX_FAIL(cx, SX_SYSTEM, "%s: CUDA error %d, %.60s: %.200s", what, status,
                   known ? name : "unknown", known ? text : "the driver has no name for it");
}

sx_code sxg_driver_find(sx_ctx *cx, sxg_driver *driver)
{
    void *library = NULL;
    SX_ASSERT(cx != NULL && driver != NULL);
    SX_TRY(open_library(cx, driver, &library));
    SX_TRY(find_functions(cx, library, driver));
    int status = driver->driver_version(&driver->version);
    return status == 0 ? SX_OK : sxg_driver_fail(cx, driver, "asking the CUDA driver", status);
}

sx_code sxg_driver_open(sx_ctx *cx, sxg_driver *driver)
{
    SX_TRY(sxg_driver_find(cx, driver));
    int status = driver->init(0);
    if (status == ERROR_NO_DEVICE) {
        sx_hint(cx, "`symplex-client doctor` shows the GPUs. A container sees those it was given.");
        return SX_FAIL(cx, SX_ABSENT, "the CUDA driver finds no GPU");
    }
    return status == 0 ? SX_OK : sxg_driver_fail(cx, driver, "starting the CUDA driver", status);
}
