/* What is emitted for GPUs goes through a real assembler: every form of the table of PTX instructions, and kernels of
 * every family of kernels, element type, layout and target. Nothing spills. Skipped where there is no CUDA toolkit. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/assemble/assemble.h"
#include "core/core.h"
#include "core/ptx/ptx.h"
#include "core/base/hash.h"
#include "core/base/rng.h"
#include "tests/client/assemble/families.h"
#include "tests/core/ptx/forms.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
    cx.fuel = SX_FUEL_DEFAULT;
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- the table ---- */

static const struct {
    uint32_t target;
    char feature;
    const char *name;
} machines[] = {{80, 0, "sm_80"}, {89, 0, "sm_89"}, {90, 'a', "sm_90a"}};

/* An instruction of the table with every modifier, in a kernel of its own; false: the target lacks it. */
static bool make_form(sx_ptx_op op, uint32_t machine, sx_buf *text)
{
    sx_ptx_module *module;
    sx_forms f = {.turn = 0};
    ck_sx_ok(&cx,
             sx_ptx_module_make(&cx, machines[machine].target, machines[machine].feature, &module));
    sx_ptx_begin(&f.b, &cx, module, "forms");
    (void)sx_ptx_parameter(&f.b, "data", SX_PTX_TYPE_U64);
    f.shared = sx_ptx_shared(&f.b, "tile", 128, 1024);
    f.pointer = sx_ptx_register(&f.b, SX_PTX_B64);
    f.label = sx_ptx_label(&f.b);
    sx_ptx_place(&f.b, f.label);
    uint32_t before = f.b.kernel->insn_count;
    forms_sweep(&f, op);
    bool some = f.b.kernel->insn_count > before;
    sx_ptx_put(&f.b, SX_PTX_OP_EXIT, SX_PTX_M(0), NULL, 0);
    ck_sx_ok(&cx, sx_ptx_end(&f.b));
    sx_buf_clear(text);
    sx_ptx_print(module, text);
    return some;
}

START_TEST(test_every_form_assembles)
{
    const sxa_options options = {.with = SXA_ANY};
    uint32_t assembled = 0, refused = 0;
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 24);
    for (uint32_t op = 0; op < SX_PTX_OP_COUNT; op++) {
        sxa_result result;
        if (make_form((sx_ptx_op)op, (uint32_t)_i, &text)) {
            sx_code code =
                sxa_assemble(&cx, sx_buf_span(&text), machines[_i].name, &options, &result);
            if (code != SX_OK) {
                (void)fprintf(stderr, "%s for %s: %s\n", sx_ptx_row_of((sx_ptx_op)op)->text,
                              machines[_i].name, cx.error.text);
                sx_ctx_reset_error(&cx);
                refused++;
            }
            assembled++;
        }
    }
    ck_assert_uint_eq(refused, 0);
    ck_assert_uint_ge(assembled, 80);
    sx_buf_fini(&text);
}
END_TEST

/* ---- kernels of every family ---- */

#define KNOWN_MAX 4096
#define TARGET_MAX 16
static uint32_t texts;

/* What was assembled already: devices of one architecture often have the same text, and assembling takes the time. */
static struct {
    uint64_t hash[2]; /* of the text */
    char target[TARGET_MAX];
    sx_span code;
} known[KNOWN_MAX];
static uint32_t known_count;

static bool is_known(sx_span text, const char *target, sx_span *code)
{
    uint64_t hash[2] = {sx_hash64(text, 0), sx_hash64(text, 1)};
    for (uint32_t i = 0; i < known_count; i++) {
        if (memcmp(known[i].hash, hash, sizeof(hash)) == 0 &&
            strcmp(known[i].target, target) == 0) {
            *code = known[i].code;
            return true;
        }
    }
    return false;
}

static void keep(sx_span text, const char *target, sx_span code)
{
    uint8_t *copy = malloc(code.len);
    ck_assert(copy != NULL && known_count < KNOWN_MAX && strlen(target) < TARGET_MAX);
    memcpy(copy, code.ptr, code.len);
    known[known_count].hash[0] = sx_hash64(text, 0);
    known[known_count].hash[1] = sx_hash64(text, 1);
    (void)snprintf(known[known_count].target, TARGET_MAX, "%s", target);
    known[known_count++].code = (sx_span){copy, code.len};
}

/* In this process, which may die: it is the test's own. Whatever would be refused fails the test at once. */
static sx_code assemble(void *self, sx_ctx *c, sx_span text, const char *target, sx_span *code)
{
    const sxa_options options = {.with = SXA_ANY};
    sxa_result result;
    (void)self;
    texts++;
    if (is_known(text, target, code)) {
        return SX_OK;
    }
    ck_sx_ok(c, sxa_assemble(c, text, target, &options, &result));
    ck_assert_uint_ge(result.record->kernel_count, 1);
    for (uint32_t k = 0; k < result.record->kernel_count; k++) {
        const sx_cubin_kernel *kernel = &result.record->kernel[k];
        ck_assert_msg(kernel->spill_count == 0 && kernel->stack_bytes == 0,
                      "%.*s for %s: %u spills, %u bytes of local memory", (int)kernel->name.len,
                      (const char *)kernel->name.ptr, target, kernel->spill_count,
                      kernel->stack_bytes);
    }
    ck_assert_uint_eq(result.failure_count, 0);
    keep(text, target, result.cubin);
    *code = result.cubin;
    return SX_OK;
}

static void compile(const family *f, sx_dtype dtype, uint32_t layout, const char *device)
{
    sx_buf text;
    sx_image image;
    const sx_assembler assembler = {.assemble = assemble};
    teardown(); /* the compilation before */
    setup();
    sx_buf_init(&text, 1 << 16);
    family_print(f, dtype, layout, &text);
    sx_core_request request = {.ir = sx_buf_span(&text),
                               .target = sx_span_of(device),
                               .assembler = SX_SPAN_LITERAL("that of the test"),
                               .assemble = &assembler};
    sx_image_init(&image);
    sx_code code = sx_core_compile(&cx, &request, &image);
    ck_assert_msg(code == SX_OK, "%s of %s, layout %u, for %s: %s\n%.*s", f->name,
                  sx_dtype_name(dtype), layout, device, cx.error.text, (int)text.len,
                  (const char *)text.ptr);
    ck_assert_uint_ge(image.cubin.len / sizeof(sx_module_cubin), 1);
    sx_image_fini(&image);
    sx_buf_fini(&text);
}

/* Devices for which this type and layout of a family are compiled. Products of f32 may also be rounded. */
static const char *const devices[] = {
    "a100",      "rtx3090",      "rtx4090",   "h100",         "h200",
    "b200",      "generic-sm80", "a100+tf32", "rtx3090+tf32", "rtx4090+tf32",
    "h100+tf32", "h200+tf32",    "b200+tf32",
};
#define DEVICES 7 /* without tf32 */

static bool is_family(const char *name)
{
    bool is = false;
    for (uint32_t i = 0; i < SX_COUNT(families); i++) {
        is = is || strcmp(families[i].name, name) == 0;
    }
    return is;
}

/* Every family x type x layout x target: one of each family, by the seed. With SX_FAMILIES=all it is all of them, with
 * the name of a family (SX_FAMILIES=sort) all of that one, and none of the others. */
START_TEST(test_every_family_type_layout_and_target_assembles)
{
    const family *f = &families[_i];
    const char *asked = getenv("SX_FAMILIES");
    const bool named = asked != NULL && strcmp(asked, f->name) == 0;
    const bool all = named || (asked != NULL && strcmp(asked, "all") == 0);
    if (asked != NULL && !all) {
        ck_assert_msg(is_family(asked), "SX_FAMILIES=%s: neither all nor a family's name", asked);
        return;
    }
    uint32_t count = 0, compiled = 0;
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t pass = 0; pass < 2; pass++) { /* the first one counts */
        const uint64_t chosen = pass == 0 ? UINT64_MAX : sx_rng_below(&rng, count);
        uint32_t number = 0;
        for (uint32_t t = 0; t < SX_DTYPE_COUNT; t++) {
            bool rounds = t == SX_F32 && f->b > 0;
            uint32_t kinds = rounds ? (uint32_t)SX_COUNT(devices) : DEVICES;
            uint32_t cases = (f->types >> t & 1) != 0 ? family_layouts(f) * kinds : 0;
            for (uint32_t i = 0; i < cases; i++, number++) {
                if (pass == 1 && (all || number == chosen)) {
                    compile(f, (sx_dtype)t, i / kinds, devices[i % kinds]);
                    compiled++;
                }
            }
        }
        count = number;
    }
    (void)printf("%s: %u of %u\n", f->name, compiled, count);
    ck_assert_uint_eq(compiled, all ? count : 1);
    ck_assert_uint_ge(texts, compiled);
}
END_TEST

int main(void)
{
    sxa_found found;
    sx_ctx_init(&cx, (size_t)1 << 24);
    sxa_find(&cx, SXA_NVJITLINK, NULL, &found);
    if (!found.found) {
        sxa_find(&cx, SXA_PTXAS, NULL, &found);
    }
    sx_ctx_fini(&cx);
    if (!found.found) {
        printf("SKIPPED: CUDA toolkit: no assembler\n");
        return SX_TEST_SKIPPED;
    }
    Suite *suite = suite_create("client.assemble.families");
    TCase *cases = tcase_create("forms");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_every_form_assembles, 0, (int)SX_COUNT(machines));
    tcase_set_timeout(cases, 300);
    suite_add_tcase(suite, cases);
    cases = tcase_create("families");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 3600); /* all of them, by hand */
    tcase_add_loop_test(cases, test_every_family_type_layout_and_target_assembles, 0,
                        (int)SX_COUNT(families));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
