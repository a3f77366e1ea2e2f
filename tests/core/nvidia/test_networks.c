/* Networks compiled for GPUs: what is emitted is PTX that the parser takes back, and that an assembler takes. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/assemble/assemble.h"
#include "core/core.h"
#include "core/nvidia/code.h"
#include "tests/lib/model.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)4 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const char *const networks[] = {"mlp", "encoder"};
static const struct {
    const char *device, *target;
} devices[] = {{"a100", "sm_80"}, {"h100", "sm_90"}};

/* Each text once, in the order of the code. */
typedef void text_visitor(const sx_module *module, const sx_module_kernel *kernel, sx_span text);
static void each_text(const sx_module *module, text_visitor *visit)
{
    for (uint64_t k = 0; k < module->kernel_count; k++) {
        const sx_module_kernel *kernel = &module->kernel[k];
        sx_span blob = {module->code, (size_t)module->code_count};
        sx_nvidia_code code;
        ck_sx_ok(&cx, sx_nvidia_code_at(&cx, blob, (uint32_t)module->part[kernel->part_first].entry,
                                        &code));
        visit(module, kernel, code.text);
    }
}

static uint32_t visited;

static void read_back(const sx_module *module, const sx_module_kernel *kernel, sx_span text)
{
    sx_ptx_module *read;
    sx_buf again;
    sx_buf_init(&again, (size_t)1 << 24);
    ck_sx_ok(&cx, sx_ptx_parse(&cx, text, &read));
    ck_assert_uint_eq(read->kernel_count, kernel->part_count);
    sx_ptx_print(read, &again);
    ck_assert_uint_eq(again.len, text.len);
    ck_assert_mem_eq(again.ptr, text.ptr, text.len);
    sx_buf_fini(&again);
    (void)module;
    visited++;
}

static const char *assembled_for;

static void assemble(const sx_module *module, const sx_module_kernel *kernel, sx_span text)
{
    sxa_result result;
    sxa_options options = {.with = SXA_ANY};
    sx_span name = sx_module_string(module, kernel->name);
    ck_sx_ok(&cx, sxa_assemble(&cx, text, assembled_for, &options, &result));
    ck_assert_uint_eq(result.record->kernel_count, kernel->part_count);
    for (uint32_t i = 0; i < result.record->kernel_count; i++) {
        const sx_cubin_kernel *k = &result.record->kernel[i];
        if (getenv("SX_SHOW") != NULL) {
            (void)fprintf(stderr, "%.*s %.*s: %u registers, frame %u, code %llu\n", (int)name.len,
                          (const char *)name.ptr, (int)k->name.len, (const char *)k->name.ptr,
                          k->registers, k->frame_bytes, (unsigned long long)k->code_bytes);
        }
    }
    visited++;
}

/* Without verification, which has tests of its own. */
static void compile(const char *network, const char *device, sx_buf *bytes)
{
    sx_buf program;
    sx_image image;
    sx_buf_init(&program, (size_t)64 << 20);
    sx_image_init(&image);
    ck_sx_ok(&cx, sx_test_model_text(&cx, network, &program));
    sx_binding binding = {SX_SPAN_LITERAL("batch"), 4};
    sx_core_request request = {.ir = sx_buf_span(&program),
                               .target = sx_span_of(device),
                               .binding = &binding,
                               .binding_count = 1};
    ck_sx_ok(&cx, sx_core_compile(&cx, &request, &image));
    ck_sx_ok(&cx, sx_image_encode(&cx, &image, bytes));
    sx_image_fini(&image);
    sx_buf_fini(&program);
}

START_TEST(test_code_of_networks)
{
    sx_buf bytes;
    sx_module module;
    sx_buf_init(&bytes, (size_t)1 << 30);
    compile(networks[_i / 2], devices[_i % 2].device, &bytes);
    uint8_t *copy = sx_alloc(&cx, bytes.len + 64);
    ck_assert_ptr_nonnull(copy);
    copy += (64 - (uintptr_t)copy % 64) % 64;
    memcpy(copy, bytes.ptr, bytes.len);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module));
    visited = 0;
    each_text(&module, read_back);
    assembled_for = devices[_i % 2].target;
    each_text(&module, assemble);
    ck_assert_uint_eq(visited, 2 * module.kernel_count);
    sx_buf_fini(&bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("networks");
    TCase *tcase = tcase_create("networks");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_code_of_networks, 0, 4);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
