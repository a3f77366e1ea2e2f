/* launches.h - kernels of tests/data/ptx, launched in the interpreter with buffers of the test. */
#ifndef SX_TESTS_CORE_SIMT_LAUNCHES_H
#define SX_TESTS_CORE_SIMT_LAUNCHES_H
#include <stdio.h>
#include <string.h>

#include "core/simt/run.h"
#include "tests/lib/test.h"

#define LAUNCH_ARGUMENTS_MAX 8

typedef struct {
    sx_ptx_launch launch;
    sx_ptx_region region[LAUNCH_ARGUMENTS_MAX];
    sx_ptx_argument argument[LAUNCH_ARGUMENTS_MAX];
    uint32_t number[LAUNCH_ARGUMENTS_MAX];
    sx_ptx_tensor_map map[LAUNCH_ARGUMENTS_MAX];
    sx_ptx_outcome outcome;
} launches;

static inline void launch_begin(launches *l, const sx_ptx_module *module, const char *kernel,
                                sx_ptx_dim grid, sx_ptx_dim block)
{
    memset(l, 0, sizeof *l);
    l->launch = (sx_ptx_launch){.module = module,
                                .kernel = kernel,
                                .grid = grid,
                                .block = block,
                                .region = l->region,
                                .argument = l->argument};
}

static inline void launch_buffer(launches *l, const char *name, const void *bytes, size_t size,
                                 bool writable)
{
    union {
        const void *in;
        uint8_t *out;
    } both = {.in = bytes};
    ck_assert_uint_lt(l->launch.argument_count, LAUNCH_ARGUMENTS_MAX);
    l->region[l->launch.region_count++] = (sx_ptx_region){.name = name,
                                                          .bytes = both.out,
                                                          .size = size,
                                                          .writable = writable,
                                                          .initialised = !writable};
    l->argument[l->launch.argument_count++].region = l->launch.region_count;
}

static inline void launch_in(launches *l, const char *name, const void *bytes, size_t size)
{
    launch_buffer(l, name, bytes, size, false);
}

static inline void launch_out(launches *l, const char *name, void *bytes, size_t size)
{
    launch_buffer(l, name, bytes, size, true);
}

static inline void launch_number(launches *l, uint32_t value)
{
    uint32_t i = l->launch.argument_count++;
    ck_assert_uint_lt(i, LAUNCH_ARGUMENTS_MAX);
    l->number[i] = value;
    l->argument[i].value = (sx_span){(const uint8_t *)&l->number[i], sizeof l->number[i]};
}

/* The last buffer becomes a matrix of `rows` rows of `columns` elements, copied in boxes. */
static inline sx_ptx_tensor_map *launch_map(launches *l, uint32_t element_bytes, uint32_t columns,
                                            uint32_t rows, uint32_t box_columns, uint32_t box_rows,
                                            uint8_t swizzle)
{
    uint32_t i = l->launch.argument_count - 1;
    sx_ptx_tensor_map *map = &l->map[i];
    *map = (sx_ptx_tensor_map){.region = l->launch.region_count,
                               .rank = 2,
                               .element_bytes = (uint8_t)element_bytes,
                               .dims = {columns, rows},
                               .strides = {element_bytes, (uint64_t)columns * element_bytes},
                               .box = {box_columns, box_rows},
                               .swizzle_bytes = swizzle};
    l->argument[i] = (sx_ptx_argument){.map = map};
    return map;
}

/* The memory of a launch lies in a context of its own. `code`, and the text in cx's error. */
static inline sx_code launch_run(sx_ctx *cx, launches *l, uint64_t seed, bool lazy)
{
    sx_ctx run;
    sx_ctx_init(&run, (size_t)1 << 28);
    l->launch.seed = seed;
    l->launch.lazy = lazy;
    sx_code code = sx_ptx_run(&run, &l->launch, &l->outcome);
    if (code != SX_OK) {
        (void)SX_FAIL(cx, code, "%s", run.error.text);
    }
    sx_ctx_fini(&run);
    return code;
}

static inline sx_ptx_module *launch_module(sx_ctx *cx, const char *path)
{
    sx_buf text;
    sx_ptx_module *module;
    sx_buf_init(&text, (size_t)1 << 22);
    sx_test_read_file(path, &text);
    ck_sx_ok(cx, sx_ptx_parse(cx, sx_buf_span(&text), &module));
    sx_buf_fini(&text);
    return module;
}

/* The kernels of a small file with one thing changed: the nth place, from 0, of a text. */
static inline sx_ptx_module *launch_changed(sx_ctx *cx, const char *path, const char *what,
                                            const char *from, const char *to, uint32_t nth)
{
    static char text[1 << 16], other[1 << 16];
    sx_buf file;
    sx_buf_init(&file, sizeof text);
    sx_test_read_file(path, &file);
    ck_assert_uint_lt(file.len, sizeof text / 2);
    memcpy(text, file.ptr, file.len);
    text[file.len] = 0;
    sx_buf_fini(&file);
    char *at = strstr(text, from);
    for (uint32_t i = 0; i < nth && at != NULL; i++) {
        at = strstr(at + 1, from);
    }
    ck_assert_msg(at != NULL, "%s: the kernel has no such text", what);
    int n =
        snprintf(other, sizeof other, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    sx_ptx_module *made;
    ck_sx_ok(cx, sx_ptx_parse(cx, (sx_span){(const uint8_t *)other, (size_t)n}, &made));
    return made;
}
#endif
