/* harness.h - kernels of the loop IR run through the system's C compiler, compared with the interpreter;
 * shared by these tests. */
#ifndef SX_TESTS_CORE_LOOP_HARNESS_H
#define SX_TESTS_CORE_LOOP_HARNESS_H
#include "tests/lib/test.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "core/base/rng.h"
#include "core/loop/loop.h"

typedef struct {
    char folder[256];
    char sources[8192]; /* names of the C files written so far */
    uint32_t count;
    void *library;
} harness;

SX_UNUSED static void harness_init(harness *h)
{
    memset(h, 0, sizeof(*h));
    sx_test_mkdtemp(h->folder);
}

SX_UNUSED static void harness_fini(harness *h)
{
    if (h->library != NULL) {
        (void)dlclose(h->library);
    }
    sx_test_rmtree(h->folder);
}

/* Adds a kernel to the library to build; kernel names must differ. */
SX_UNUSED static void harness_add(harness *h, sx_ctx *cx, const sx_kernel *kernel)
{
    sx_buf text;
    sx_buf_init(&text, (size_t)64 << 20);
    ck_sx_ok(cx, sx_kernel_emit_c(cx, kernel, &text));
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/k%u.c", h->folder, h->count);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text.ptr, 1, text.len, file), text.len);
    (void)fclose(file);
    size_t used = strlen(h->sources);
    ck_assert_uint_lt(used + 32, sizeof(h->sources));
    (void)snprintf(h->sources + used, sizeof(h->sources) - used, " k%u.c", h->count++);
    sx_buf_fini(&text);
}

SX_UNUSED static void harness_build(harness *h, const char *optimise)
{
    char command[10240];
    (void)snprintf(
        command, sizeof(command),
        "cd %s && gcc %s -w -Wno-psabi -shared -fPIC -ffp-contract=off -fno-strict-aliasing "
        "-fno-math-errno %s -o all.so %s -lm",
        h->folder, optimise,
        sxr_cpu_executes(&sx_machine_x86_64_v4)
            ? "-mfma -mavx2 -mavx512f -mavx512vl -mavx512bw -mavx512dq"
        : sxr_cpu_executes(&sx_machine_x86_64_v3) ? "-mfma -mavx2"
                                                  : "",
        h->sources);
    ck_assert_msg(system(command) == 0, "failed: %s", command);
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/all.so", h->folder);
    h->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(h->library != NULL, "%s", dlerror());
}

typedef void (*harness_entry)(void *const *buffer, const long long *index, void *workspace);

/* Runs all grid points of all parts, the last first: order must not matter. */
SX_UNUSED static void harness_run(const harness *h, const sx_kernel *kernel, void *const *buffer)
{
    for (uint32_t p = kernel->part_count; p-- > 0;) {
        char name[128];
        (void)snprintf(name, sizeof(name), "%s_p%u", kernel->name, p);
        harness_entry entry;
        void *symbol = dlsym(h->library, name);
        ck_assert_msg(symbol != NULL, "%s", name);
        memcpy(&entry, &symbol, sizeof(entry));
        const int64_t *grid = kernel->part[p].grid;
        void *workspace = kernel->buffer_count == 0 ? NULL : buffer[kernel->buffer_count - 1];
        for (int64_t i = grid[0] * grid[1] * grid[2]; i-- > 0;) {
            long long index[3] = {i / (grid[1] * grid[2]), i / grid[2] % grid[1], i % grid[2]};
            entry(buffer, index, workspace);
        }
    }
}

/* Equal bits, any NaN equal to any NaN. */
SX_UNUSED static bool harness_same(const void *a, const void *b)
{
    float x, y;
    memcpy(&x, a, 4);
    memcpy(&y, b, 4);
    return memcmp(a, b, 4) == 0 || (isnan(x) && isnan(y));
}
#endif
