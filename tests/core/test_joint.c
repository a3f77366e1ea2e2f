/* Nodes that share a kernel, in modules: what is made of optimizer steps and gradients, and that it is compared. */
#include "tests/lib/test.h"

#include <string.h>

#include "client/verify/determinism.h"
#include "client/verify/verify.h"
#include "tests/lib/compiled.h"

#define T " : f32[24, 40] "
#define IN(name) "%" name " = parameter {name = \"" name "\", weight = 0}" T
#define FILL(name, value) "%" name " = constant {data = " value "}" T
#define BYTES (24 * 40 * 4)

static sx_ctx cx;
static sx_buf bytes;

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&bytes, (size_t)1 << 26);
}

static void teardown(void)
{
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}

/* Opened, and not run: targets need not be this machine. */
static const sx_module *compile(const char *text, const char *target)
{
    sx_test_request request = {.text = text, .target = target};
    sx_module *module = SX_NEW(&cx, sx_module);
    ck_assert_ptr_nonnull(module);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    uint8_t *aligned = sx_alloc(&cx, bytes.len + 64);
    ck_assert_ptr_nonnull(aligned);
    aligned += 64 - (uintptr_t)aligned % 64;
    memcpy(aligned, bytes.ptr, bytes.len);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){aligned, bytes.len}, true, module));
    return module;
}

/* The kernel with several results, if there is one alone. */
static const sx_module_kernel *joint_of(const sx_module *module)
{
    const sx_module_kernel *found = NULL;
    for (uint32_t k = 0; k < module->kernel_count; k++) {
        if (module->kernel[k].result_count > 1) {
            ck_assert_ptr_null(found);
            found = &module->kernel[k];
        }
    }
    return found;
}

static sx_code verify(const sx_module *module)
{
    sx_buf encoded;
    sx_image image;
    sx_buf_init(&encoded, (size_t)1 << 26);
    sx_image_init(&image);
    ck_sx_ok(&cx, sx_module_encode(&cx, module, &encoded));
    sxr_verify_options options = {.seed = 7, .program_flops = 1e9};
    sx_code code = sxr_verify(&cx, sx_buf_span(&encoded), &options, &image);
    sx_image_fini(&image);
    sx_buf_fini(&encoded);
    return code;
}

#define MOMENT        \
    FILL("b1", "0.9") \
    FILL("c1", "0.1") \
    "%m0 = multiply(%b1, %m)" T "%m1 = multiply(%c1, %g)" T "%m2 = add(%m0, %m1)" T
#define SQUARES                                                                         \
    FILL("b2", "0.75")                                                                  \
    FILL("c2", "0.25")                                                                  \
    "%gg = multiply(%g, %g)" T "%v0 = multiply(%b2, %v)" T "%v1 = multiply(%c2, %gg)" T \
    "%v2 = add(%v0, %v1)" T
#define UPDATE                                                                                     \
    FILL("eps", "1e-3")                                                                            \
    FILL("r", "0.5")                                                                               \
    "%q = sqrt(%v2)" T "%re = add(%q, %eps)" T "%d = divide(%m2, %re)" T "%s = multiply(%r, %d)" T \
    "%w2 = subtract(%w, %s)" T
#define STEP MOMENT SQUARES UPDATE
#define STATES IN("w") "state = 0.5 " IN("m") "state = 0 " IN("v") "state = 0 "
#define ADAMW                                    \
    "sx 1 graph \"step\" { " IN("g") STATES STEP \
        "return %w2 as \"w\" into \"w\", "       \
        "%m2 as \"m\" into \"m\", %v2 as \"v\" into \"v\" }"
#define OUTPUTS                                                   \
    "sx 1 graph \"step\" { " IN("g") IN("w") IN("m") IN("v") STEP \
        "return %w2 as \"a\", %m2 as \"b\", %v2 as \"c\" }"
static const char adamw[] = ADAMW, outputs[] = OUTPUTS;

/* Parameter and both moments in one kernel, which moves each tensor once and writes over the old versions; on every
 * kind of machine. */
START_TEST(test_adamw)
{
    static const char *const target[] = {"x86-64-v3", "x86-64-v4", "a100", "h100"};
    const sx_module *module = compile(adamw, target[_i]);
    const sx_module_kernel *kernel = joint_of(module);
    ck_assert_ptr_nonnull(kernel);
    ck_assert_uint_eq(kernel->result_count, 3);
    ck_assert_uint_eq(kernel->arg_count, 7);
    ck_assert_double_eq(kernel->bytes, 7.0 * BYTES);
    ck_assert_uint_eq(module->launch_count, 1);
    for (uint32_t t = 0; t < module->tensor_count; t++) {
        ck_assert_uint_ne(module->tensor[t].place, SX_TENSOR_TEMPORARY);
    }
    ck_sx_ok(&cx, verify(module));
}
END_TEST

/* The two gradients of a product, of a quotient, a product and the sums of its rows; and what must not share: other
 * shapes, other rows. */
static const struct {
    const char *text;
    uint32_t results; /* of the kernel that is shared; 0: there is none */
} programs[] = {
    {"sx 1 graph \"g\" { " IN("x") IN("y") IN("d") "%a = multiply(%d, %y)" T
                                                   "%b = multiply(%d, %x)" T
                                                   "return %a as \"a\", %b as \"b\" }",
     2},
    {"sx 1 graph \"g\" { " IN("x") IN("y") IN("d") "%a = divide(%d, %y)" T "%q = divide(%x, %y)" T
                                                   "%p = multiply(%a, %q)" T "%b = negate(%p)" T
                                                   "return %a as \"a\", %b as \"b\" }",
     2},
    /* columns are no rows: only the first two share */
    {"sx 1 graph \"g\" { " IN("x")
         IN("y") "%a = multiply(%x, %y)" T "%s = reduce(%a) {dims = [1], reducer = add} : f32[24] "
                 "%t = reduce(%a) {dims = [0], reducer = maximum} : f32[40] "
                 "return %a as \"a\", %s as \"s\", %t as \"t\" }",
     2},
    {"sx 1 graph \"g\" { " IN("x") "%t = transpose(%x) {perm = [1, 0]} : f32[40, 24] "
                                   "%a = negate(%t) : f32[40, 24] %b = exponential(%x)" T
                                   "return %a as \"a\", %b as \"b\" }",
     0},
    /* nothing is read twice */
    {"sx 1 graph \"g\" { " IN("x") IN("y") "%a = negate(%x)" T "%b = exponential(%y)" T
                                           "return %a as \"a\", %b as \"b\" }",
     0},
};

START_TEST(test_programs)
{
    const sx_module *module = compile(programs[_i].text, "x86-64-v3");
    const sx_module_kernel *kernel = joint_of(module);
    ck_assert_uint_eq(kernel != NULL ? kernel->result_count : 0, programs[_i].results);
    ck_sx_ok(&cx, verify(module));
}
END_TEST

/* Two states that need each other's old version are written in place by one kernel, as it reads both before. */
START_TEST(test_exchange)
{
    static const char text[] = "sx 1 graph \"g\" { " IN("a") "state = 2 " IN(
        "b") "state = 3 %c = add(%a, %b)" T "%d = multiply(%a, %b)" T
             "return %c as \"a\" into \"a\", %d as \"b\" into \"b\" }";
    const sx_module *module = compile(text, "x86-64-v3");
    ck_sx_ok(&cx, verify(module));
}
END_TEST

/* Like groups share a kernel: one for each shape. */
START_TEST(test_twins)
{
    static const char text[] = "sx 1 graph \"g\" { " IN("x") IN("y") IN("d")
        IN("e") "%a = multiply(%d, %y)" T "%b = multiply(%d, %x)" T "%p = multiply(%e, %y)" T
                "%q = multiply(%e, %e)" T "%r = subtract(%p, %e)" T
                "return %a as \"a\", %b as \"b\", %r as \"r\", %q as \"q\" }";
    const sx_module *module = compile(text, "x86-64-v3");
    ck_sx_ok(&cx, verify(module));
}
END_TEST

/* Results of which the module says that they are each other's nodes are found by the comparison, whatever runs them. */
START_TEST(test_swapped)
{
    static const char *const target[] = {"x86-64-v3", "x86-64-v4", "h100"};
    sx_module *module = SX_NEW(&cx, sx_module);
    *module = *compile(outputs, target[_i]);
    const sx_module_kernel *kernel = joint_of(module);
    ck_assert_ptr_nonnull(kernel);
    uint32_t *arg = sx_alloc(&cx, module->arg_count * sizeof(*arg));
    ck_assert_ptr_nonnull(arg);
    memcpy(arg, module->arg, module->arg_count * sizeof(*arg));
    const sx_module_launch *launch = &module->launch[0];
    ck_assert_uint_eq(module->launch_count, 1);
    uint32_t *result = arg + launch->arg_first + launch->arg_count - 3;
    uint32_t first = result[0];
    result[0] = result[2];
    result[2] = first;
    module->arg = arg;
    ck_sx_fails(&cx, verify(module), SX_INTERNAL, "");
}
END_TEST

/* The bits of each result are those of its node alone, under other extents and schedules. */
START_TEST(test_determinism)
{
    sx_buf rows;
    sx_test_request request = {.text = outputs, .target = "x86-64-v3"};
    sxr_verify_options options = {.seed = 11};
    sx_buf_init(&rows, 1 << 20);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    ck_sx_ok(&cx, sxr_determinism(&cx, sx_buf_span(&bytes), &options, 0, &rows));
    ck_assert_uint_eq(rows.len, sizeof(sxr_kernel_evidence));
    const sxr_kernel_evidence *row = (const void *)rows.ptr;
    ck_assert_msg(!row->differs, "%s", row->difference);
    ck_assert_uint_gt(row->extents, 0);
    ck_assert_uint_gt(row->schedules, 3);
    sx_buf_fini(&rows);
}
END_TEST

/* ---- rows ---- */
#define R " : f32[24] "
#define ROWS(name, of) "%" name " = broadcast_in_dim(%" of ") {dims = [0]}" T
#define REDUCED(name, of, how) "%" name " = reduce(%" of ") {dims = [1], reducer = " how "}" R
#define NUMBER(name, value) "%" name " = constant {data = " value "}" R
#define MEAN REDUCED("s", "x", "add") NUMBER("n", "40") "%mean = divide(%s, %n)" R
#define CENTRED ROWS("mb", "mean") "%c = subtract(%x, %mb)" T
#define VARIANCE "%cc = multiply(%c, %c)" T REDUCED("ss", "cc", "add") "%var = divide(%ss, %n)" R
#define ROOT NUMBER("eps", "1e-5") "%ve = add(%var, %eps)" R "%rstd = rsqrt(%ve)" R
#define NORM ROWS("rb", "rstd") "%y = multiply(%c, %rb)" T
#define SHIFTED                  \
    REDUCED("m", "x", "maximum") \
    ROWS("mb", "m") "%d = subtract(%x, %mb)" T "%e = exponential(%d)" T
#define SOFTMAX SHIFTED REDUCED("s", "e", "add") ROWS("sb", "s") "%y = divide(%e, %sb)" T
#define WIDE " : i64[24, 40] "
#define INDEX                                                                                 \
    "%i = iota {axis = 1}" WIDE "%far = constant {data = 40}" WIDE                            \
    "%is = compare(%x, %mb) {direction = eq} : bool[24, 40] %at = select(%is, %i, %far)" WIDE \
    "%first = reduce(%at) {dims = [1], reducer = minimum} : i64[24] "
#define LOSS                            \
    IN("t")                             \
    "%l = log_softmax(%x) {axis = 1}" T \
    "%p = multiply(%t, %l)" T REDUCED("s", "p", "add") "%loss = negate(%s)" R
#define RESIDUAL                                                             \
    IN("r")                                                                  \
    "%g = parameter {name = \"g\", weight = 1} : f32[40] %h = add(%x, %r)" T \
    "%y = rms_norm(%h, %g) {axis = 1, eps = 1e-5}" T
#define GRAPH(nodes, outputs) "sx 1 graph \"g\" { " IN("x") nodes "return " outputs " }"

/* What reads the same rows is one launch with at least these results. */
static const struct {
    const char *text;
    uint32_t results;
} rows[] = {
    {GRAPH(MEAN CENTRED VARIANCE ROOT NORM, "%y as \"y\", %mean as \"mean\", %rstd as \"rstd\""),
     3},
    {GRAPH(MEAN CENTRED VARIANCE, "%mean as \"mean\", %var as \"variance\""), 2},
    {GRAPH(SOFTMAX, "%y as \"y\", %m as \"maximum\""), 2},
    {GRAPH(SHIFTED INDEX, "%m as \"maximum\", %first as \"index\""), 2},
    {GRAPH(LOSS, "%loss as \"loss\", %l as \"logp\""), 2},
    {GRAPH(RESIDUAL, "%h as \"h\", %y as \"y\""), 2},
};

START_TEST(test_rows)
{
    static const char *const target[] = {"x86-64-v3", "x86-64-v4", "h100"};
    const sx_module *module =
        compile(rows[_i % (int)SX_COUNT(rows)].text, target[_i / (int)SX_COUNT(rows)]);
    const sx_module_kernel *kernel = joint_of(module);
    ck_assert_ptr_nonnull(kernel);
    ck_assert_uint_eq(module->launch_count, 1);
    ck_assert_uint_ge(kernel->result_count, rows[_i % (int)SX_COUNT(rows)].results);
    ck_assert_uint_eq(kernel->kind, SX_MODULE_ROW);
    ck_sx_ok(&cx, verify(module));
}
END_TEST

/* The bits of each result are those of its node alone, also where lanes are wider than it needs. */
START_TEST(test_bits_of_rows)
{
    sx_buf found;
    sx_test_request request = {.text = rows[_i].text, .target = "x86-64-v3"};
    sxr_verify_options options = {.seed = 11};
    sx_buf_init(&found, 1 << 20);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    ck_sx_ok(&cx, sxr_determinism(&cx, sx_buf_span(&bytes), &options, 0, &found));
    ck_assert_uint_eq(found.len, sizeof(sxr_kernel_evidence));
    const sxr_kernel_evidence *row = (const void *)found.ptr;
    ck_assert_msg(!row->differs, "%s", row->difference);
    ck_assert_uint_gt(row->extents, 0);
    ck_assert_uint_gt(row->schedules, 3);
    sx_buf_fini(&found);
}
END_TEST

/* A group may stand behind a node that comes after its first one, as an iota or a product: what it needs is put before
 * it. */
START_TEST(test_what_comes_between)
{
    static const char text[] = "sx 1 graph \"g\" { " IN("x")
        IN("y") "%w = parameter {name = \"w\", weight = 1} : f32[40, 40]" REDUCED(
            "m", "x",
            "maximum") "%d = dot_general(%y, %w) {lhs_contract = [1], rhs_contract = [0]}" T
                       "%p = multiply(%x, %d)" T REDUCED(
                           "s", "p", "add") "return %m as \"m\", %d as \"d\", %s as \"s\" }";
    const sx_module *module = compile(text, "x86-64-v3");
    const sx_module_kernel *kernel = joint_of(module);
    ck_assert_ptr_nonnull(kernel);
    ck_assert_uint_eq(kernel->result_count, 2);
    ck_sx_ok(&cx, verify(module));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.joint");
    TCase *cases = tcase_create("joint");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_adamw, 0, 4);
    tcase_add_loop_test(cases, test_programs, 0, SX_COUNT(programs));
    tcase_add_test(cases, test_exchange);
    tcase_add_test(cases, test_twins);
    tcase_add_loop_test(cases, test_swapped, 0, 3);
    tcase_add_test(cases, test_determinism);
    tcase_add_loop_test(cases, test_rows, 0, 3 * SX_COUNT(rows));
    tcase_add_loop_test(cases, test_bits_of_rows, 0, SX_COUNT(rows));
    tcase_add_test(cases, test_what_comes_between);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
