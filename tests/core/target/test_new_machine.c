/* Machines that the product does not know, from the request to the verified module: a new machine is a row and
 * a folder, and no switch anywhere. One of them is a warp of 32 lanes. */
#include "tests/core/target/toy.h"
#include "tests/lib/test.h"

#include <stdio.h>

#include "client/verify/verify.h"
#include "core/core.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    toy_emitted = toy_run = 0;
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const char program[] =
    "sx 1\n"
    "graph \"layers\" () {\n"
    "  %x = parameter {name = \"x\", weight = 0} : f32[19, 40]\n"
    "  %w = parameter {name = \"w\", weight = 1} : f32[40, 36]\n"
    "  %b = parameter {name = \"b\", weight = 0} : f32[36]\n"
    "  %d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[19, 36]\n"
    "  %v = broadcast_in_dim(%b) {dims = [1]} : f32[19, 36]\n"
    "  %s = add(%d, %v) : f32[19, 36]\n"
    "  %t = tanh(%s) : f32[19, 36]\n"
    "  %p = softmax(%t) {axis = 1} : f32[19, 36]\n"
    "  %c = concatenate(%p, %t) {axis = 0} : f32[38, 36]\n"
    "  return %c as \"y\"\n"
    "}\n";

/* What it costs: the figures of the first row, with the name of its target. */
static sx_device toy_device(void)
{
    const sx_device *row;
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v3"), &row));
    sx_device device = *row;
    device.name = "toybox";
    device.target = toy_machine.name;
    device.program_class = NULL;
    return device;
}

/* Kernels of every kind but contractions, on elements of 8 bytes and on narrow ones. */
static const char typed_program[] = "sx 1\n"
                                    "graph \"typed\" () {\n"
                                    "  %x = parameter {name = \"x\", weight = 0} : f64[19, 45]\n"
                                    "  %h = parameter {name = \"h\", weight = 0} : bf16[19, 45]\n"
                                    "  %i = parameter {name = \"i\", weight = 0} : i64[7]\n"
                                    "  %s = reduce(%x) {dims = [1], reducer = add} : f64[19]\n"
                                    "  %m = reduce(%h) {dims = [1], reducer = maximum} : bf16[19]\n"
                                    "  %w = convert(%m) : f64[19]\n"
                                    "  %t = multiply(%s, %w) : f64[19]\n"
                                    "  %g = gather(%x, %i) {axis = 0} : f64[7, 45]\n"
                                    "  %r = reverse(%g) {dims = [1]} : f64[7, 45]\n"
                                    "  %p = softmax(%h) {axis = 1} : bf16[19, 45]\n"
                                    "  %c = concatenate(%p, %h) {axis = 0} : bf16[38, 45]\n"
                                    "  return %t as \"t\", %r as \"r\", %c as \"c\"\n"
                                    "}\n";

/* A GPU of the table, with the name of a target. */
static sx_device warp_device(void)
{
    const sx_device *row;
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("h100"), &row));
    sx_device device = *row;
    device.name = "warpbox";
    device.target = toy_warp_machine.name;
    return device;
}

/* `device` NULL: the request names one. */
static sx_core_request request_for(const sx_device *device, const sx_targets *targets)
{
    sx_core_request request = {.ir = sx_span_of(program), .targets = targets};
    if (device != NULL) {
        sx_buf text;
        sx_buf_init(&text, 65536);
        sx_device_print(device, &text);
        const char *copy = sx_alloc_text(&cx, sx_buf_span(&text));
        ck_assert_ptr_nonnull(copy);
        request.device = sx_span_of(copy);
        request.target = sx_span_of(device->name);
        sx_buf_fini(&text);
    }
    return request;
}

static const sxr_verify_options verify_all = {.seed = 1, .program_flops = 1e9};

static void decode(const sx_buf *bytes, sx_module *module)
{
    uint8_t *copy = sx_alloc(&cx, bytes->len + 64);
    ck_assert_ptr_nonnull(copy);
    copy += (64 - (uintptr_t)copy % 64) % 64;
    memcpy(copy, bytes->ptr, bytes->len);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes->len}, true, module));
}

START_TEST(test_from_request_to_verified_module)
{
    sx_device device = _i == 0 ? toy_device() : warp_device();
    sx_core_request request = request_for(&device, &toy_targets);
    char why[64];
    sx_buf bytes;
    sx_module module;
    sx_buf_init(&bytes, (size_t)1 << 28);
    ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &verify_all, &bytes));
    decode(&bytes, &module);
    ck_assert(sx_span_is(sx_module_string(&module, module.info->target), device.name));
    ck_assert_uint_eq(toy_emitted, module.kernel_count);
    ck_assert_uint_ge(module.kernel_count, 3);
    ck_assert_uint_ge(toy_run, module.part_count);
    ck_assert_uint_ge(module.check_count, 2);
    for (uint64_t i = 0; i < module.check_count; i++) {
        ck_assert(module.check[i].passed == SX_CHECK_ABSENT || module.check[i].emulated == 1);
    }
    ck_assert_uint_eq(module.check[0].passed, SX_CHECK_PASSED);
    ck_assert(module.check[0].points > 0 && module.check[0].points % (38 * 36) == 0);
    /* A program that does not know the machine says so, and runs nothing. */
    sxr_program *loaded;
    (void)snprintf(why, sizeof(why), "module is for %s (PTX text), this processor executes",
                   device.target);
    ck_sx_fails(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, &loaded), SX_UNIMPLEMENTED,
                why);
    sx_buf_fini(&bytes);
}
END_TEST

START_TEST(test_types_of_a_warp)
{
    sx_device device = warp_device();
    sx_core_request request = request_for(&device, &toy_targets);
    sx_buf bytes;
    sx_module module;
    request.ir = sx_span_of(typed_program);
    sx_buf_init(&bytes, (size_t)1 << 28);
    ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &verify_all, &bytes));
    decode(&bytes, &module);
    ck_assert_uint_ge(module.kernel_count, 5);
    ck_assert_uint_eq(module.check[0].passed, SX_CHECK_PASSED);
    ck_assert_uint_ge(module.check[0].points, 19 + 7 * 45 + 38 * 45);
    sx_buf_fini(&bytes);
}
END_TEST

/* The machine computes something else: no module. */
static sx_code emulate_wrong(sx_ctx *wrong, sx_emulator *emulator, const sx_emulation *what)
{
    SX_TRY(toy_emulate(wrong, emulator, what));
    const sx_region *result = &what->buffer[what->buffer_count - 1];
    float first;
    memcpy(&first, result->memory, sizeof(first));
    first = first * 1.25f + 1;
    memcpy(result->memory, &first, sizeof(first));
    return SX_OK;
}

START_TEST(test_wrong_machine_is_refused)
{
    sx_target wrong = toy_target;
    const sx_target *row = &wrong;
    const sx_targets targets = {&row, 1};
    wrong.emulate = emulate_wrong;
    sx_device device = toy_device();
    sx_core_request request = request_for(&device, &targets);
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 28);
    ck_sx_fails(&cx, sxr_compile_verified(&cx, &request, &verify_all, &bytes), SX_INTERNAL, "");
    sx_buf_fini(&bytes);
}
END_TEST

/* Ids of numerics plans of a module, in the order of its kernels. */
static uint32_t ids_of(const sx_core_request *request, uint64_t id[16])
{
    sx_image image;
    sx_image_init(&image);
    ck_sx_ok(&cx, sx_core_compile(&cx, request, &image));
    uint32_t count = (uint32_t)(image.kernel.len / sizeof(sx_module_kernel));
    ck_assert_uint_le(count, 16);
    for (uint32_t k = 0; k < count; k++) {
        sx_module_kernel kernel;
        memcpy(&kernel, image.kernel.ptr + k * sizeof(kernel), sizeof(kernel));
        bool rounds = kernel.kind != SX_MODULE_PACK && kernel.kind != SX_MODULE_COPY;
        id[k] = rounds ? kernel.numerics : 0;
    }
    sx_image_fini(&image);
    return count;
}

/* Two instruction classes never share an id; two vector widths of one class always do. */
START_TEST(test_ids_hold_the_class)
{
    sx_device device = toy_device();
    sx_core_request toy = request_for(&device, &toy_targets);
    sx_device warp_row = warp_device();
    sx_core_request warp = request_for(&warp_row, &toy_targets);
    sx_core_request v3 = request_for(NULL, NULL), v4 = v3;
    v3.target = SX_SPAN_LITERAL("x86-64-v3");
    v4.target = SX_SPAN_LITERAL("x86-64-v4");
    uint64_t a[16], b[16], c[16], d[16];
    uint32_t shared = 0, rounding = 0;
    uint32_t na = ids_of(&v3, a), nb = ids_of(&v4, b), nc = ids_of(&toy, c);
    uint32_t nd = ids_of(&warp, d);
    for (uint32_t i = 0; i < na; i++) {
        bool found = a[i] == 0;
        for (uint32_t k = 0; k < nb; k++) {
            found = found || a[i] == b[k];
        }
        ck_assert(found);
        found = a[i] == 0;
        for (uint32_t k = 0; k < nd; k++) {
            found = found || a[i] == d[k];
        }
        ck_assert_msg(found, "kernel %u of x86-64 has another plan than that of 32 lanes", i);
        rounding += a[i] != 0;
        for (uint32_t k = 0; k < nc; k++) {
            shared += a[i] != 0 && a[i] == c[k];
        }
    }
    ck_assert_uint_ge(rounding, 2);
    ck_assert_uint_eq(shared, 0);
}
END_TEST

START_TEST(test_devices_that_contradict_their_target)
{
    sx_device device = toy_device();
    const sx_device *found;
    const sx_target *target;
    sx_core_request request = request_for(&device, NULL);
    ck_sx_fails(&cx, sx_core_device(&cx, &request, &found, &target), SX_INPUT,
                "device toybox: target sm_75 is unknown");
    request.targets = &toy_targets;
    ck_sx_ok(&cx, sx_core_device(&cx, &request, &found, &target));
    ck_assert_ptr_eq(target, &toy_target);
    device.lanes = 16;
    request = request_for(&device, &toy_targets);
    ck_sx_fails(&cx, sx_core_device(&cx, &request, &found, &target), SX_INPUT,
                "lanes 16 and registers 16, its target sm_75 has 8 and 16");
    device.lanes = 8;
    sx_device gpu = warp_device(); /* its lanes are threads, those of the target are not */
    gpu.target = toy_machine.name;
    gpu.lanes = 8;
    gpu.registers = 16;
    request = request_for(&gpu, &toy_targets);
    ck_sx_fails(&cx, sx_core_device(&cx, &request, &found, &target), SX_INPUT,
                "8 lanes of 8 bytes, its target sm_75 has 4");
    device = toy_device();
    device.cores = 70000;
    request = request_for(&device, &toy_targets);
    ck_sx_fails(&cx, sx_core_device(&cx, &request, &found, &target), SX_INPUT,
                "cores 70000: 1 to 65536 wanted");
    device.cores = 8;
    device.target = NULL;
    request = request_for(&device, &toy_targets);
    ck_sx_fails(&cx, sx_core_device(&cx, &request, &found, &target), SX_UNIMPLEMENTED,
                "device toybox: no code generator");
}
END_TEST

/* A change of any value is another key. */
START_TEST(test_key_holds_the_values)
{
    sx_device device = toy_device();
    sx_core_request request = request_for(&device, &toy_targets);
    sx_key key, other;
    sx_span part[SX_PART_COUNT];
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &key, part));
    sx_device same = device;
    request = request_for(&same, &toy_targets);
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &other, part));
    ck_assert_mem_eq(key.byte, other.byte, sizeof(key.byte));
    same.memory_bytes_per_ns += 1e-6;
    request = request_for(&same, &toy_targets);
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &other, part));
    ck_assert_mem_ne(key.byte, other.byte, sizeof(key.byte));
    same = device;
    same.rate[0].flops_per_ns += 1;
    request = request_for(&same, &toy_targets);
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &other, part));
    ck_assert_mem_ne(key.byte, other.byte, sizeof(key.byte));
    request = request_for(NULL, NULL);
    request.target = SX_SPAN_LITERAL("toybox");
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &other, part));
    ck_assert_mem_ne(key.byte, other.byte, sizeof(key.byte));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.target.new_machine");
    TCase *cases = tcase_create("new_machine");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_from_request_to_verified_module, 0, 2);
    tcase_add_test(cases, test_types_of_a_warp);
    tcase_add_test(cases, test_wrong_machine_is_refused);
    tcase_add_test(cases, test_ids_hold_the_class);
    tcase_add_test(cases, test_devices_that_contradict_their_target);
    tcase_add_test(cases, test_key_holds_the_values);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
