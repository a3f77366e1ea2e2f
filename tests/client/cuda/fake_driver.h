/* fake_driver.h - the driver of fake/driver.c, made the one that the process opens. */
#ifndef SX_TESTS_CLIENT_CUDA_FAKE_DRIVER_H
#define SX_TESTS_CLIENT_CUDA_FAKE_DRIVER_H
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Another user of the GPU in this process, as a framework is: its functions, a context, a stream, memory. */
typedef struct {
    void *context, *stream, *graph;
    int (*alloc)(uint64_t *at, size_t bytes);
    int (*free)(uint64_t at);
    int (*upload)(uint64_t to, const void *from, size_t bytes, void *stream);
    int (*download)(void *to, uint64_t from, size_t bytes, void *stream);
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*launch)(void *graph, void *stream);
    uint64_t memory[8];
    uint32_t count;
} fake_user;

static inline void fake_find(const char *name, void *function)
{
    void *library = dlopen(getenv("SYMPLEX_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    void *address = library != NULL ? dlsym(library, name) : NULL;
    ck_assert_msg(address != NULL, "%s", name);
    memcpy(function, &address, sizeof(address)); /* as POSIX allows */
}

/* A program must be open on the GPU. */
static inline void fake_user_begin(fake_user *u)
{
    int (*retain)(void **, int), (*push)(void *), (*create)(void **, unsigned);
    *u = (fake_user){.context = NULL};
    fake_find("cuDevicePrimaryCtxRetain", &retain);
    fake_find("cuCtxPushCurrent_v2", &push);
    fake_find("cuStreamCreate", &create);
    fake_find("cuMemAlloc_v2", &u->alloc);
    fake_find("cuMemFree_v2", &u->free);
    fake_find("cuMemcpyHtoDAsync_v2", &u->upload);
    fake_find("cuMemcpyDtoHAsync_v2", &u->download);
    fake_find("cuStreamBeginCapture_v2", &u->begin);
    fake_find("cuStreamEndCapture", &u->end);
    fake_find("cuGraphLaunch", &u->launch);
    ck_assert(retain(&u->context, 0) == 0 && push(u->context) == 0 && create(&u->stream, 1) == 0);
}

/* Memory of the GPU with these bytes in it. */
static inline uint64_t fake_user_memory(fake_user *u, const void *from, size_t bytes)
{
    uint64_t at = 0;
    ck_assert_uint_lt(u->count, SX_COUNT(u->memory));
    ck_assert(u->alloc(&at, bytes) == 0 && u->upload(at, from, bytes, u->stream) == 0);
    u->memory[u->count++] = at;
    return at;
}

static inline void fake_user_capture(fake_user *u)
{
    ck_assert_int_eq(u->begin(u->stream, 0), 0);
}

static inline void fake_user_captured(fake_user *u)
{
    ck_assert_int_eq(u->end(u->stream, &u->graph), 0);
}

static inline void fake_user_end(fake_user *u)
{
    int (*release)(int), (*pop)(void **), (*destroy)(void *), (*destroy_graph)(void *);
    void *context;
    fake_find("cuDevicePrimaryCtxRelease_v2", &release);
    fake_find("cuCtxPopCurrent_v2", &pop);
    fake_find("cuStreamDestroy_v2", &destroy);
    fake_find("cuGraphExecDestroy", &destroy_graph);
    while (u->count > 0) {
        (void)u->free(u->memory[--u->count]);
    }
    if (u->graph != NULL) {
        (void)destroy_graph(u->graph);
    }
    (void)destroy(u->stream);
    (void)pop(&context);
    (void)release(0);
}
#endif
