/* A request that gives symbols several values makes one module with a variant for each combination: each
 * computes the program, bit for bit what the module for these extents alone computes. */
#include "tests/lib/test.h"

#include <string.h>

#include "client/runtime/cpu.h"
#include "client/verify/verify.h"
#include "core/base/rng.h"
#include "tests/lib/compiled.h"
#include "tests/lib/intervals.h"

/* A constant, a weight that is packed, an output that is an input, and one that two symbols shape. */
static const char text[] =
    "sx 1\ngraph \"layer\" (batch in [1, 64], n in [1, 100]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[batch, 48]\n"
    "%s = parameter {name = \"s\", weight = 0} : f32[n]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[48, 32]\n"
    "%c = constant {data = 0x3f000000} : f32[32]\n"
    "%0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 32]\n"
    "%1 = broadcast_in_dim(%c) {dims = [1]} : f32[batch, 32]\n"
    "%2 = add(%0, %1) : f32[batch, 32]\n"
    "%3 = tanh(%2) : f32[batch, 32]\n"
    "%4 = exponential(%s) : f32[n]\n"
    "return %3 as \"y\", %4 as \"e\", %x as \"same\"\n}\n";

#define BINDING(name_, value_)                            \
    {                                                     \
        .name = SX_SPAN_LITERAL(name_), .value = (value_) \
    }

static sx_code compile(sx_ctx *cx, const sx_binding *binding, uint32_t count, bool verified,
                       sx_buf *module)
{
    cx->stage_count = 0; /* several requests, one context */
    sx_core_request request = {.ir = sx_span_of(text),
                               .target = SX_SPAN_LITERAL("x86-64-v3"),
                               .binding = binding,
                               .binding_count = count};
    if (verified) {
        sxr_verify_options options = SXR_VERIFY_DEFAULT;
        return sxr_compile_verified(cx, &request, &options, module);
    }
    sx_image image;
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, &request, &image);
    code = code == SX_OK ? sx_image_encode(cx, &image, module) : code;
    sx_image_fini(&image);
    return code;
}

/* Runs a program for these extents on the values that sx_test_fill draws; all outputs into one buffer. */
static void run(sx_ctx *cx, sxr_program *program, int64_t batch, int64_t n, sx_buf *out)
{
    ck_sx_ok(cx, sxr_set_extent(cx, program, SX_SPAN_LITERAL("batch"), batch));
    ck_sx_ok(cx, sxr_set_extent(cx, program, SX_SPAN_LITERAL("n"), n));
    sx_test_bind_drawn(cx, program);
    ck_sx_ok(cx, sxr_run(cx, program, NULL));
    static const char *const names[] = {"y", "e", "same"};
    for (uint32_t k = 0; k < 3; k++) {
        uint32_t index = sxr_find(program, SX_TENSOR_OUTPUT, sx_span_of(names[k]));
        sx_buf_put(out, sxr_memory(program, index), (size_t)sxr_size(program, index));
    }
    sx_module_check check;
    ck_sx_ok(cx, sxr_check_program(cx, program, 0, &check));
    ck_assert_uint_eq(check.points, (uint64_t)(batch * 32 + n + batch * 48));
}

START_TEST(test_each_variant_is_the_program)
{
    const sx_binding several[] = {BINDING("batch", 33), BINDING("n", 7), BINDING("batch", 1),
                                  BINDING("n", 100), BINDING("batch", 4)};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
    sx_buf bytes, got, want;
    sx_buf_init(&bytes, (size_t)1 << 26);
    sx_buf_init(&got, (size_t)1 << 26);
    sx_buf_init(&want, (size_t)1 << 26);
    ck_sx_ok(&cx, compile(&cx, several, 5, false, &bytes));
    sxr_program *program;
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, &program));
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(module->variant_count, 6);
    ck_assert(sx_span_is(sx_module_string(module, module->variant[3].name), "batch=4 n=100"));
    static const int64_t batches[] = {1, 4, 33}, sizes[] = {7, 100};
    uint32_t weights = 0;
    for (uint32_t i = 0; i < module->tensor_count; i++) { /* all variants have the same */
        weights += module->tensor[i].place == SX_TENSOR_WEIGHT ? 1 : 0;
    }
    ck_assert_uint_eq(weights, 1);
    for (uint32_t round = 0; round < 12; round++) { /* in some order, each twice */
        uint32_t v = round * 5 % 6;
        sx_binding alone[] = {BINDING("batch", batches[v / 2]), BINDING("n", sizes[v % 2])};
        sx_buf_clear(&got);
        sx_buf_clear(&want);
        run(&cx, program, alone[0].value, alone[1].value, &got);
        ck_assert_uint_eq(sxr_variant(program), v);
        sxr_program *other;
        sx_buf single;
        sx_buf_init(&single, (size_t)1 << 26);
        ck_sx_ok(&cx, compile(&cx, alone, 2, false, &single));
        ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&single), NULL, &other));
        run(&cx, other, alone[0].value, alone[1].value, &want);
        ck_assert(sx_span_equal(sx_buf_span(&got), sx_buf_span(&want)));
        sxr_close(other);
        sx_buf_fini(&single);
    }
    ck_sx_fails(&cx, sxr_set_extent(&cx, program, SX_SPAN_LITERAL("batch"), 2), SX_INPUT,
                "extent batch has 2; the module serves 1, 4, 33");
    sxr_close(program);
    sx_buf_fini(&bytes);
    sx_buf_fini(&got);
    sx_buf_fini(&want);
    sx_ctx_fini(&cx);
}
END_TEST

/* Each variant is compared with the program as sent, and says so; a fault in one alone is found. */
START_TEST(test_each_variant_is_verified)
{
    const sx_binding two[] = {BINDING("batch", 4), BINDING("batch", 8), BINDING("n", 3)};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    ck_sx_ok(&cx, compile(&cx, two, 3, true, &bytes));
    sxr_program *program;
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, &program));
    const sx_module *module = sxr_module(program);
    uint32_t whole[2] = {0, 0};
    for (uint64_t i = 0; i < module->check_count; i++) {
        sx_span name = sx_module_string(module, module->check[i].name);
        whole[0] += sx_span_is(name, "batch=4: program as sent, all outputs") ? 1 : 0;
        whole[1] += sx_span_is(name, "batch=8: program as sent, all outputs") ? 1 : 0;
        ck_assert_uint_eq(module->check[i].passed, SX_CHECK_PASSED);
    }
    ck_assert_uint_eq(whole[0], 1);
    ck_assert_uint_eq(whole[1], 1);
    sx_module altered = *module; /* the tanh of the second variant reads what it is not given */
    uint32_t arg[256];
    ck_assert_uint_le(module->arg_count, SX_COUNT(arg));
    memcpy(arg, module->arg, module->arg_count * sizeof(*arg));
    altered.arg = arg;
    uint32_t x = sxr_find(program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("s"));
    uint32_t changed = 0;
    for (uint32_t i = module->variant[1].launch_first; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        uint32_t to = module->arg[launch->arg_first + launch->arg_count - 1];
        if (to == sxr_find(program, SX_TENSOR_OUTPUT, SX_SPAN_LITERAL("e"))) {
            arg[launch->arg_first] = sxr_find(program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("x"));
            changed += x != arg[launch->arg_first] ? 1 : 0;
        }
    }
    ck_assert_uint_eq(changed, 1);
    sx_buf wrong;
    sx_buf_init(&wrong, (size_t)1 << 26);
    ck_sx_ok(&cx, sx_module_encode(&cx, &altered, &wrong));
    sx_image image;
    sx_image_init(&image);
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    ck_sx_fails(&cx, sxr_verify(&cx, sx_buf_span(&wrong), &options, &image), SX_INTERNAL, "");
    sx_image_fini(&image);
    sxr_close(program);
    sx_buf_fini(&wrong);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- what variants have in common is there once ---- */

/* y = tanh(x k) with a constant matrix k of 48 * 64 numbers, and z = x w with a weight. */
static void put_heavy(sx_buf *out)
{
    sx_buf_put_text(out, "sx 1\ngraph \"heavy\" (batch in [1, 64]) {\n"
                         "%x = parameter {name = \"x\", weight = 0} : f32[batch, 48]\n"
                         "%w = parameter {name = \"w\", weight = 1} : f32[48, 64]\n"
                         "%k = constant {data = \"");
    sx_rng rng = {7};
    for (uint32_t i = 0; i < 48 * 64; i++) {
        float value = sx_rng_f32(&rng);
        uint8_t byte[4];
        memcpy(byte, &value, sizeof(byte));
        for (uint32_t k = 0; k < 4; k++) {
            sx_buf_print(out, "%02x", byte[k]);
        }
    }
    sx_buf_put_text(out, "\"} : f32[48, 64]\n"
                         "%0 = dot_general(%x, %k) {lhs_contract = [1], rhs_contract = [0]} : "
                         "f32[batch, 64]\n"
                         "%1 = tanh(%0) : f32[batch, 64]\n"
                         "%2 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : "
                         "f32[batch, 64]\n"
                         "return %1 as \"y\", %2 as \"z\"\n}\n");
}

#define HEAVY_BYTES ((uint64_t)48 * 64 * 4)

static void compile_heavy(sx_ctx *cx, const sx_binding *binding, uint32_t count, sx_buf *module,
                          sxr_program **program)
{
    sx_buf heavy;
    sx_image image;
    sx_buf_init(&heavy, (size_t)1 << 20);
    put_heavy(&heavy);
    cx->stage_count = 0;
    sx_core_request request = {.ir = sx_buf_span(&heavy),
                               .target = SX_SPAN_LITERAL("x86-64-v3"),
                               .binding = binding,
                               .binding_count = count};
    sx_image_init(&image);
    ck_sx_ok(cx, sx_core_compile(cx, &request, &image));
    ck_sx_ok(cx, sx_image_encode(cx, &image, module));
    ck_sx_ok(cx, sxr_open_bytes(cx, sx_buf_span(module), NULL, program));
    sx_image_fini(&image);
    sx_buf_fini(&heavy);
}

/* Constants, packed constants and packed weights of three variants are those of one. */
START_TEST(test_variants_share_constants_and_packed_weights)
{
    const sx_binding three[] = {BINDING("batch", 32), BINDING("batch", 48), BINDING("batch", 64)};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
    sx_buf one_bytes, bytes;
    sxr_program *one, *several;
    sx_buf_init(&one_bytes, (size_t)1 << 26);
    sx_buf_init(&bytes, (size_t)1 << 26);
    compile_heavy(&cx, three, 1, &one_bytes, &one);
    compile_heavy(&cx, three, 3, &bytes, &several);
    const sx_module *alone = sxr_module(one), *together = sxr_module(several);
    ck_assert_uint_eq(together->variant_count, 3);
    ck_assert_uint_ge(alone->constants_count, HEAVY_BYTES);
    ck_assert_uint_eq(together->constants_count, alone->constants_count);
    ck_assert_uint_ge(alone->info->persistent_bytes, 2 * HEAVY_BYTES);
    ck_assert_uint_eq(together->info->persistent_bytes, alone->info->persistent_bytes);
    uint32_t packs = 0, shared = 0;
    for (uint64_t i = 0; i < together->kernel_count; i++) {
        packs += together->kernel[i].kind == SX_MODULE_PACK ? 1 : 0;
    }
    for (uint64_t i = 0; i < together->tensor_count; i++) {
        const sx_module_tensor *tensor = &together->tensor[i];
        bool persistent = tensor->place == SX_TENSOR_PERSISTENT;
        shared += persistent && tensor->variant == SX_MODULE_NONE ? 1 : 0;
    }
    ck_assert_uint_eq(packs, 2);
    ck_assert_uint_ge(shared, 2);
    sxr_close(one);
    sxr_close(several);
    sx_buf_fini(&one_bytes);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* The packed weight of the second variant is said to be the packed constant, which has the same shape. */
START_TEST(test_wrong_sharing_is_caught)
{
    const sx_binding two[] = {BINDING("batch", 32), BINDING("batch", 64)};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
    sx_buf bytes, wrong;
    sxr_program *program, *none;
    sx_buf_init(&bytes, (size_t)1 << 26);
    sx_buf_init(&wrong, (size_t)1 << 26);
    compile_heavy(&cx, two, 2, &bytes, &program);
    sx_module altered = *sxr_module(program);
    uint32_t arg[256], packed[2], count = 0;
    ck_assert_uint_le(altered.arg_count, SX_COUNT(arg));
    memcpy(arg, altered.arg, altered.arg_count * sizeof(*arg));
    altered.arg = arg;
    const sx_module_variant *second = &altered.variant[1];
    for (uint32_t i = 0; i < second->launch_count; i++) {
        const sx_module_launch *launch = &altered.launch[second->launch_first + i];
        if (altered.kernel[launch->kernel].kind == SX_MODULE_PACK) {
            ck_assert_uint_lt(count, 2);
            packed[count++] = launch->arg_first + 1;
        }
    }
    ck_assert_uint_eq(count, 2);
    uint32_t kept = arg[packed[0]]; /* each takes the place of the other, as two equal ones would */
    arg[packed[0]] = arg[packed[1]];
    arg[packed[1]] = kept;
    ck_sx_ok(&cx, sx_module_encode(&cx, &altered, &wrong));
    ck_sx_fails(&cx, sxr_open_bytes(&cx, sx_buf_span(&wrong), NULL, &none), SX_CORRUPT,
                "which all variants share, otherwise than launch");
    sxr_close(program);
    sx_buf_fini(&bytes);
    sx_buf_fini(&wrong);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- several machines ---- */

static sx_key key_for(sx_ctx *cx, const char *targets)
{
    sx_key key;
    sx_span part[SX_PART_COUNT];
    sx_core_request request = {.ir = sx_span_of(text), .target = sx_span_of(targets)};
    ck_sx_ok(cx, sx_core_key(cx, &request, &key, part));
    return key;
}

START_TEST(test_order_of_machines_is_not_in_the_key)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_key both = key_for(&cx, "x86-64-v3,x86-64-v4"), turned = key_for(&cx, "x86-64-v4,x86-64-v3");
    sx_key one = key_for(&cx, "x86-64-v3"), other = key_for(&cx, "x86-64-v4");
    ck_assert_mem_eq(both.byte, turned.byte, SX_KEY_BYTES);
    ck_assert_mem_ne(both.byte, one.byte, SX_KEY_BYTES);
    ck_assert_mem_ne(both.byte, other.byte, SX_KEY_BYTES);
    sx_ctx_fini(&cx);
}
END_TEST

/* In this variant exp(s) is computed of x, which has other elements. How many launches were changed. */
static uint32_t read_another(const sx_module *module, uint32_t variant, uint32_t x, uint32_t s,
                             uint32_t *arg)
{
    const sx_module_variant *v = &module->variant[variant];
    uint32_t changed = 0;
    for (uint32_t i = v->launch_first; i < v->launch_first + v->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        if (module->arg[launch->arg_first] == s) {
            arg[launch->arg_first] = x;
            changed++;
        }
    }
    return changed;
}

/* A fault in the code of one machine alone is found, whatever machine looks for it. */
START_TEST(test_each_machine_is_verified)
{
    const sx_binding one[] = {BINDING("batch", 4), BINDING("n", 3)};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
    sx_core_request request = {.ir = sx_span_of(text),
                               .target = SX_SPAN_LITERAL("x86-64-v3,x86-64-v4"),
                               .binding = one,
                               .binding_count = 2};
    sx_image image;
    sx_buf bytes;
    sxr_program *program;
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    sx_buf_init(&bytes, (size_t)1 << 26);
    sx_image_init(&image);
    ck_sx_ok(&cx, sx_core_compile(&cx, &request, &image));
    ck_sx_ok(&cx, sx_image_encode(&cx, &image, &bytes));
    ck_sx_ok(&cx, sxr_verify(&cx, sx_buf_span(&bytes), &options, &image));
    sx_image_fini(&image);
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, &program));
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(module->variant_count, 2);
    ck_assert_uint_eq(sxr_variant(program), sxr_cpu_executes(&sx_machine_x86_64_v4) ? 0 : 1);
    for (uint32_t v = 0; v < 2; v++) {
        uint32_t arg[256];
        sx_module altered = *module;
        sx_buf wrong;
        ck_assert_uint_le(module->arg_count, SX_COUNT(arg));
        memcpy(arg, module->arg, module->arg_count * sizeof(*arg));
        altered.arg = arg;
        uint32_t x = sxr_find(program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("x"));
        uint32_t s = sxr_find(program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("s"));
        ck_assert_uint_eq(read_another(module, v, x, s, arg), 1);
        sx_buf_init(&wrong, (size_t)1 << 26);
        sx_image_init(&image);
        ck_sx_ok(&cx, sx_module_encode(&cx, &altered, &wrong));
        ck_sx_fails(&cx, sxr_verify(&cx, sx_buf_span(&wrong), &options, &image), SX_INTERNAL, "");
        sx_image_fini(&image);
        sx_buf_fini(&wrong);
    }
    sxr_close(program);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_refusals)
{
    const sx_binding twice[] = {BINDING("batch", 4), BINDING("batch", 4), BINDING("n", 3)};
    const sx_binding outside[] = {BINDING("batch", 4), BINDING("batch", 65), BINDING("n", 3)};
    sx_binding many[130];
    for (uint32_t i = 0; i < 128; i++) {
        many[i] = i < 64 ? (sx_binding)BINDING("batch", 1 + i) : (sx_binding)BINDING("n", i - 63);
    }
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    ck_sx_fails(&cx, compile(&cx, twice, 3, false, &bytes), SX_INPUT,
                "symbol \"batch\" has the value 4 twice");
    ck_sx_fails(&cx, compile(&cx, outside, 3, false, &bytes), SX_INPUT, "65");
    ck_sx_fails(&cx, compile(&cx, many, 128, false, &bytes), SX_LIMIT,
                "symbol \"n\" with 64 values makes more than 64 variants");
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.variants");
    TCase *cases = tcase_create("variants");
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_each_variant_is_the_program);
    tcase_add_test(cases, test_each_variant_is_verified);
    tcase_add_test(cases, test_variants_share_constants_and_packed_weights);
    tcase_add_test(cases, test_wrong_sharing_is_caught);
    tcase_add_test(cases, test_order_of_machines_is_not_in_the_key);
    tcase_add_test(cases, test_each_machine_is_verified);
    tcase_add_test(cases, test_refusals);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
