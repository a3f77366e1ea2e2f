/* fake_driver.h - the driver of fake/driver.c, made the one that the process opens. */
#ifndef SX_TESTS_CLIENT_CUDA_FAKE_DRIVER_H
#define SX_TESTS_CLIENT_CUDA_FAKE_DRIVER_H
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"

/* Copies build/cuda-WHICH/libcuda.so.1 into `folder`, which nobody else can write to, as build folders need not
 * be, and names it in the environment, with the settings of the fake driver. */
static inline void fake_driver(const char *folder, const char *which, const char *settings)
{
    char from[512], to[512];
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 28);
    (void)snprintf(from, sizeof(from), SX_BINARY_DIR "/cuda-%s/libcuda.so.1", which);
    (void)snprintf(to, sizeof(to), "%s/lib%s.so", folder, which);
    if (access(to, F_OK) != 0) { /* a library that is loaded must not be written again */
        sx_test_read_file(from, &bytes);
        FILE *file = fopen(to, "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert(fwrite(bytes.ptr, 1, bytes.len, file) == bytes.len && fclose(file) == 0);
    }
    sx_buf_fini(&bytes);
    ck_assert(chmod(to, 0600) == 0 && setenv("SYMPLEX_CUDA_DRIVER", to, 1) == 0 &&
              setenv("SX_FAKE_CUDA", settings, 1) == 0);
}
#endif
