/* seed_modules.c - writes the seeds of fuzz_module and fuzz_code: the hand-made module of the tests, modules
 * compiled from small programs, and the code in them.
 *
 *   sx-seed-modules tests/fuzz/seeds        (after a change of the format; commit what it writes)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "tests/lib/gen_block.h"
#include "tests/lib/gen_boxes.h"
#include "tests/lib/test.h"

static bool write_file(const char *where, const char *name, const sx_buf *bytes)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s", where, name);
    FILE *file = fopen(path, "wb");
    bool fine =
        file != NULL && bytes->len > 0 && fwrite(bytes->ptr, 1, bytes->len, file) == bytes->len;
    fine = file != NULL && fclose(file) == 0 && fine;
    printf("%s: %zu bytes%s\n", path, bytes->len, fine ? "" : " NOT WRITTEN");
    return fine;
}

static bool write_both(const char *where, const char *name, const sx_buf *module,
                       const sx_buf *code)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "fuzz_module/%s.sxm", name);
    bool fine = write_file(where, path, module);
    (void)snprintf(path, sizeof(path), "fuzz_code/%s.code", name);
    return write_file(where, path, code) && fine;
}

/* Compiles a program of tests/golden for the value 2 of its symbol. */
static bool compile(const char *where, const char *name, const char *symbol, const char *target)
{
    sx_ctx cx;
    sx_image image;
    sx_buf bytes;
    sx_buf text;
    char path[4096];
    sx_buf_init(&text, (size_t)1 << 20);
    (void)snprintf(path, sizeof(path), SX_SOURCE_DIR "/tests/golden/%s.sx", name);
    sx_test_read_file(path, &text);
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
    sx_image_init(&image);
    sx_buf_init(&bytes, (size_t)16 << 20);
    sx_binding binding = {.name = sx_span_of(symbol), .value = 2};
    sx_core_request request = {.ir = sx_buf_span(&text),
                               .target = sx_span_of(target),
                               .binding = &binding,
                               .binding_count = 1};
    bool fine = sx_core_compile(&cx, &request, &image) == SX_OK &&
                sx_image_encode(&cx, &image, &bytes) == SX_OK &&
                write_both(where, strrchr(name, '/') + 1, &bytes, &image.code);
    if (!fine) {
        (void)fprintf(stderr, "%s: %s\n", name, cx.error.text);
    }
    sx_buf_fini(&text);
    sx_buf_fini(&bytes);
    sx_image_fini(&image);
    sx_ctx_fini(&cx);
    return fine;
}

static const char *folder;

START_TEST(test_write)
{
    sx_ctx cx;
    sx_buf bytes;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&bytes, (size_t)1 << 20);
    sx_gen_module(&cx, &bytes);
    ck_assert(write_file(folder, "fuzz_module/hand_made.sxm", &bytes));
    static sx_gen_module_tables rich;
    sx_gen_module_make_rich(&rich);
    sx_buf_clear(&bytes);
    sx_gen_module_encode(&cx, &rich, &bytes);
    ck_assert(write_file(folder, "fuzz_module/variants.sxm", &bytes));
    sx_gen_module_make_choices(&rich);
    sx_buf_clear(&bytes);
    sx_gen_module_encode(&cx, &rich, &bytes);
    ck_assert(write_file(folder, "fuzz_module/choices.sxm", &bytes));
    sx_gen_module_make_rich(&rich);
    char path[4096];
    sx_buf cubin;
    sx_buf_init(&cubin, (size_t)1 << 16);
    (void)snprintf(path, sizeof(path), "%s/fuzz_cubin/add.cubin", folder);
    sx_test_read_file(path, &cubin);
    sx_gen_module_for_gpu(&rich, sx_buf_span(&cubin));
    sx_buf_clear(&bytes);
    sx_gen_module_encode(&cx, &rich, &bytes);
    ck_assert(write_file(folder, "fuzz_module/gpu.sxm", &bytes));
    sx_buf_fini(&cubin);
    const int64_t grid[3] = {2, 3, 4};
    sx_gen_block_make(grid, 4096, &rich);
    sx_buf_clear(&bytes);
    sx_gen_module_encode(&cx, &rich, &bytes);
    ck_assert(write_file(folder, "fuzz_module/block.sxm", &bytes));
    sx_gen_boxes_make(&rich);
    sx_buf_clear(&bytes);
    sx_gen_module_encode(&cx, &rich, &bytes);
    ck_assert(write_file(folder, "fuzz_module/boxes.sxm", &bytes));
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
    ck_assert(compile(folder, "ir/mlp", "batch", "x86-64-v3"));
    ck_assert(compile(folder, "egraph/relu_matmul_bias", "batch", "x86-64-v4"));
    ck_assert(compile(folder, "egraph/softmax", "batch", "x86-64-v3"));
    ck_assert(compile(folder, "ir/collectives", "n", "x86-64-v3"));
}
END_TEST

/* A Check program, because the helpers of the tests are. */
int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: sx-seed-modules FOLDER\n");
        return EXIT_FAILURE;
    }
    folder = argv[1];
    Suite *suite = suite_create("seed_modules");
    TCase *cases = tcase_create("write");
    tcase_add_test(cases, test_write);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
