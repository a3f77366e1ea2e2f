/* fake_toolkit.h - the nvJitLink of fake/nvjitlink.c, made the one that is found. */
#ifndef SX_TESTS_CLIENT_ASSEMBLE_FAKE_TOOLKIT_H
#define SX_TESTS_CLIENT_ASSEMBLE_FAKE_TOOLKIT_H
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/lib/test.h"

/* Copies it into FOLDER/lib64, which nobody else can write to, as build folders need not be, and names the folder in
 * the environment. */
static inline void fake_toolkit(const char *folder)
{
    char path[512];
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 28);
    sx_test_read_file(SX_BINARY_DIR "/nvjitlink-fake/libnvJitLink.so.13", &bytes);
    (void)snprintf(path, sizeof(path), "%s/lib64", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/lib64/libnvJitLink.so.13", folder);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert(fwrite(bytes.ptr, 1, bytes.len, file) == bytes.len && fclose(file) == 0);
    sx_buf_fini(&bytes);
    ck_assert(chmod(path, 0600) == 0 && setenv("CUDA_HOME", folder, 1) == 0 &&
              setenv("SX_FAKE_NVJITLINK", "", 1) == 0);
}
#endif
