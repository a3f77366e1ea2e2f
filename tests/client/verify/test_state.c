/* Verification of modules that keep state: right ones pass, with what they leave over several runs; what begins, goes
 * on or is written wrongly is found. */
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#include "client/verify/verify.h"
#include "tests/lib/compiled.h"

#define S "%s = parameter {name = \"s\", weight = 0} : f32[8, 40] state = 3\n"
#define PROGRAM(returned)                                                              \
    "sx 1\ngraph \"g\" {\n%x = parameter {name = \"x\", weight = 0} : f32[8, 40]\n" S  \
    "%m = parameter {name = \"m\", weight = 0} : f32[8, 40] state = 0\n"               \
    "%d = parameter {name = \"d\", weight = 0} : f32[8, 40] donated\n"                 \
    "%a = tanh(%x) : f32[8, 40]\n%b = add(%a, %s) : f32[8, 40]\n"                      \
    "%r = reverse(%m) {dims = [1]} : f32[8, 40]\n%c = subtract(%r, %a) : f32[8, 40]\n" \
    "%e = reverse(%d) {dims = [0]} : f32[8, 40]\nreturn " returned "\n}\n"
#define RIGHT "%a as \"y\", %b as \"s\" into \"s\", %c as \"m\" into \"m\", %e as \"e\" into \"d\""

typedef struct {
    sx_ctx cx;
    sx_buf bytes;
    void *copy;
    sx_module module;
    sx_module_tensor tensor[32];
    uint32_t arg[64];
} fixture;

static void fixture_make(fixture *f)
{
    sx_ctx_init(&f->cx, SX_ARENA_DEFAULT);
    sx_buf_init(&f->bytes, (size_t)1 << 26);
    sx_test_request request = {.text = PROGRAM(RIGHT), .target = "x86-64-v3"};
    ck_sx_ok(&f->cx, sx_test_compile(&f->cx, &request, &f->bytes));
    f->copy = aligned_alloc(64, (f->bytes.len + 63) & ~(size_t)63);
    ck_assert_ptr_nonnull(f->copy);
    memcpy(f->copy, f->bytes.ptr, f->bytes.len);
    ck_sx_ok(&f->cx, sx_module_decode(&f->cx, (sx_span){f->copy, f->bytes.len}, true, &f->module));
    ck_assert_uint_le(f->module.tensor_count, SX_COUNT(f->tensor));
    ck_assert_uint_le(f->module.arg_count, SX_COUNT(f->arg));
    memcpy(f->tensor, f->module.tensor, f->module.tensor_count * sizeof(*f->tensor));
    memcpy(f->arg, f->module.arg, f->module.arg_count * sizeof(*f->arg));
    f->module.tensor = f->tensor;
    f->module.arg = f->arg;
}

static void fixture_fini(fixture *f)
{
    free(f->copy);
    sx_buf_fini(&f->bytes);
    sx_ctx_fini(&f->cx);
}

static sx_code verify(fixture *f, const char *program, uint32_t *checks)
{
    sxr_verify_options options = {.seed = 5, .program_flops = 1e12, .program = sx_span_of(program)};
    sx_image image;
    sx_image_init(&image);
    sx_buf_clear(&f->bytes);
    ck_sx_ok(&f->cx, sx_module_encode(&f->cx, &f->module, &f->bytes));
    sx_code code = sxr_verify(&f->cx, sx_buf_span(&f->bytes), &options, &image);
    *checks = (uint32_t)(image.check.len / sizeof(sx_module_check));
    sx_image_fini(&image);
    return code;
}

static uint32_t tensor_named(const fixture *f, sx_module_place place, const char *name)
{
    for (uint32_t i = 0; i < f->module.tensor_count; i++) {
        sx_span its = sx_module_string(&f->module, f->tensor[i].name);
        if (f->tensor[i].place == (uint32_t)place && sx_span_is(its, name)) {
            return i;
        }
    }
    ck_abort_msg("no tensor %s", name);
    return 0;
}

/* The argument that is the result of the launch which writes the tensor. */
static uint32_t *writer_of(fixture *f, uint32_t tensor)
{
    for (uint32_t i = 0; i < f->module.launch_count; i++) {
        const sx_module_launch *launch = &f->module.launch[i];
        uint32_t results = sx_module_results(&f->module, launch);
        for (uint32_t k = 0; k < results; k++) {
            uint32_t *result = &f->arg[launch->arg_first + launch->arg_count - 1 - k];
            if (*result == tensor) {
                return result;
            }
        }
    }
    ck_abort_msg("nothing writes tensor %u", tensor);
    return NULL;
}

static void right(fixture *f, const char **text)
{
    (void)f;
    *text = NULL;
}

static void begins_as_zeros(fixture *f, const char **text)
{
    f->tensor[tensor_named(f, SX_TENSOR_STATE, "s")].initial = UINT64_MAX;
    *text = "state s does not begin as the program says";
}

static void states_exchanged(fixture *f, const char **text)
{
    uint32_t *s = writer_of(f, tensor_named(f, SX_TENSOR_STATE, "s"));
    uint32_t *m = writer_of(f, tensor_named(f, SX_TENSOR_STATE, "m"));
    uint32_t other = *s;
    *s = *m;
    *m = other;
    *text = "output s";
}

static void not_in_place(fixture *f, const char **text)
{
    uint32_t *e = writer_of(f, tensor_named(f, SX_TENSOR_OUTPUT, "e"));
    *e = tensor_named(f, SX_TENSOR_OUTPUT, "y");
    *text = "output";
}

static void (*const faults[])(fixture *f, const char **text) = {right, begins_as_zeros,
                                                                states_exchanged, not_in_place};

START_TEST(test_faults)
{
    static fixture f;
    const char *text;
    uint32_t checks;
    fixture_make(&f);
    faults[_i](&f, &text);
    if (text == NULL) {
        ck_sx_ok(&f.cx, verify(&f, PROGRAM(RIGHT), &checks));
        ck_assert_uint_ge(checks, 5);
    } else {
        ck_sx_fails(&f.cx, verify(&f, PROGRAM(RIGHT), &checks), SX_INTERNAL, text);
    }
    fixture_fini(&f);
}
END_TEST

/* The program as it came lets other values go on, or begins with others. */
START_TEST(test_other_program)
{
    static const char *const other[] = {
        PROGRAM(
            "%a as \"y\", %b as \"s\" into \"s\", %a as \"m\" into \"m\", %e as \"e\" into \"d\""),
        PROGRAM(
            "%a as \"y\", %b as \"s\" into \"s\", %c as \"m\" into \"m\", %d as \"e\" into \"d\""),
        PROGRAM(
            "%a as \"y\", %s as \"s\" into \"s\", %c as \"m\" into \"m\", %e as \"e\" into \"d\"")};
    for (uint32_t i = 0; i < SX_COUNT(other); i++) {
        static fixture f;
        uint32_t checks;
        fixture_make(&f);
        ck_sx_fails(&f.cx, verify(&f, other[i], &checks), SX_INTERNAL, "output");
        fixture_fini(&f);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client.verify.state");
    TCase *cases = tcase_create("state");
    tcase_add_loop_test(cases, test_faults, 0, SX_COUNT(faults));
    tcase_add_test(cases, test_other_program);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
