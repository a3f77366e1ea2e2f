/* compiled.h - a program text compiled, its tensors filled by coordinates, run: for end-to-end tests.
 *
 * A tensor's element depends on the tensor's name and the element's coordinates alone, so that the same
 * program at another extent sees the same values wherever both have the element, whatever the layout.
 */
#ifndef SX_TESTS_LIB_COMPILED_H
#define SX_TESTS_LIB_COMPILED_H
#include "client/runtime/runtime.h"
#include "core/core.h"

typedef enum {
    /* floats in [-1, 1), weights scaled so that sums over their second-last dimension stay of order
     * one */
    SX_FILL_SMOOTH,
    SX_FILL_EXACT, /* whole numbers -2 .. 2: sums and products of a few are exact */
    /* as run --random draws them: positive under a root; elements do not follow coordinates */
    SX_FILL_DRAWN
} sx_test_filling;

typedef struct {
    const char *text;   /* the program */
    const char *target; /* "x86-64-v3" */
    int64_t batch;      /* value of the symbol "batch"; 0: the program has no symbol */
    const char *disabled;
    bool range_any;        /* also rules that move the range of values in between */
    const char *objective; /* NULL: "time" */
    bool drawn;            /* sx_test_run: SX_FILL_DRAWN instead of SX_FILL_SMOOTH */
} sx_test_request;

/* One module without verification; `module` is initialised by the caller. */
sx_code sx_test_compile(sx_ctx *cx, const sx_test_request *request, sx_buf *module);
void sx_test_fill(const sx_module *module, uint32_t tensor, sx_test_filling filling, void *memory);
/* Opens a module and binds memory of the arena to inputs, weights and outputs (outputs hold a pattern). Fails
 * the test otherwise. */
sxr_program *sx_test_open(sx_ctx *cx, sx_span module, uint32_t threads, sx_test_filling filling);
/* Compile, open, run, compare with the interpreter (sxr_check_program); the program is left open. */
sxr_program *sx_test_run(sx_ctx *cx, const sx_test_request *request, uint32_t threads);
/* Kernels of a kind in the module. */
uint32_t sx_test_kernels(const sx_module *module, sx_module_kernel_kind kind);
#endif
