/* fuzz_kernel.c - any bytes as text of a loop kernel: an error, or a kernel that prints and reads back. What
 * the checker accepts runs in the interpreter on buffers of exactly the stated sizes (an access outside is
 * seen by the sanitizer), becomes C, and becomes machine code that the verifier accepts, unless the registers
 * do not suffice. */
#include <stdlib.h>
#include <string.h>

#include "core/loop/loop.h"
#include "core/x64/codegen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MAX ((int64_t)1 << 16) /* of a buffer that is really made */

static void read_back(sx_ctx *cx, const sx_kernel *kernel)
{
    sx_buf first, second;
    sx_kernel *again;
    sx_buf_init(&first, (size_t)4 << 20);
    sx_buf_init(&second, (size_t)4 << 20);
    if (sx_kernel_print(cx, kernel, &first) == SX_OK) {
        sx_code code = sx_kernel_parse(cx, sx_buf_span(&first), &again);
        SX_ASSERT(code == SX_OK || code == SX_NOMEM);
        if (code == SX_OK && sx_kernel_print(cx, again, &second) == SX_OK) {
            SX_ASSERT(sx_span_equal(sx_buf_span(&first), sx_buf_span(&second)));
        }
    }
    sx_buf_fini(&first);
    sx_buf_fini(&second);
}

static void run(sx_ctx *cx, const sx_kernel *kernel)
{
    void *buffer[SX_LOOP_BUFFERS_MAX] = {NULL};
    bool made = true;
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        int64_t size = kernel->buffer[k].size;
        buffer[k] = size <= BYTES_MAX ? calloc(1, (size_t)size) : NULL;
        made = made && (buffer[k] != NULL || size == 0);
    }
    if (made) {
        (void)sx_kernel_eval(cx, kernel, buffer);
    }
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        free(buffer[k]);
    }
}

static void compile(sx_ctx *cx, const sx_kernel *kernel)
{
    sx_buf out;
    sx_x64_kernel code;
    sx_buf_init(&out, (size_t)4 << 20);
    if (sx_x64_emit(cx, kernel, &out, &code) == SX_OK) {
        sx_code verdict =
            sx_x64_check(cx, sx_buf_span(&out), code.level, code.entry, code.entry_count);
        SX_ASSERT(verdict == SX_OK || verdict == SX_NOMEM);
    }
    sx_ctx_reset_error(cx);
    sx_buf_clear(&out);
    (void)sx_kernel_emit_c(cx, kernel, &out);
    sx_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)64 << 20);
    cx.fuel = 100000;
    sx_kernel *kernel;
    if (sx_kernel_parse(&cx, (sx_span){data, size}, &kernel) == SX_OK) {
        read_back(&cx, kernel);
        sx_ctx_reset_error(&cx);
        if (sx_kernel_check(&cx, kernel) == SX_OK) {
            run(&cx, kernel);
            sx_ctx_reset_error(&cx);
            cx.fuel = 1000000;
            compile(&cx, kernel);
        }
    }
    sx_ctx_fini(&cx);
    return 0;
}
