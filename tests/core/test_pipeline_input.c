/* Requests that cannot be served get an error that names the object, the value and the limit; odd ones that
 * can be are right. */
#include "tests/lib/sweep.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/compiled.h"

#define HEAD "sx 1\ngraph \"g\" (batch in [1, 64]) {\n"
#define X "%x = parameter {name = \"x\", weight = 0} : f32[batch, 32]\n"
#define W "%w = parameter {name = \"w\", weight = 1} : f32[32, 24]\n"
#define END "return %y as \"y\"\n}\n"
#define GOOD                                                                        \
    HEAD X W "%d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : " \
             "f32[batch, 24]\n%y = softmax(%d) {axis = 1} : f32[batch, 24]\n" END

typedef struct {
    const char *ir;
    const char *target;
    const char *name[2]; /* of bindings */
    int64_t value[2];
    const char *disabled;
    sx_code code;
    const char *text; /* part of the error */
} refusal;

static const refusal refusals[] = {
    {"", "x86-64-v3", {"batch"}, {8}, NULL, SX_INPUT, "line 1"},
    {"sx 1\ngraph \"g\" () {\n", "x86-64-v3", {NULL}, {0}, NULL, SX_INPUT, "line"},
    /* a value that is used before it is made: the only way to write a cycle */
    {HEAD X "%a = add(%x, %b) : f32[batch, 32]\n%b = negate(%a) : f32[batch, 32]\n"
            "return %b as \"y\"\n}\n",
     "x86-64-v3",
     {"batch"},
     {8},
     NULL,
     SX_INPUT,
     "line 4"},
    {HEAD X "%y = negate(%y) : f32[batch, 32]\n" END,
     "x86-64-v3",
     {"batch"},
     {8},
     NULL,
     SX_INPUT,
     "line 4"},
    /* types that do not fit */
    {HEAD X W "%y = add(%x, %w) : f32[batch, 32]\n" END,
     "x86-64-v3",
     {"batch"},
     {8},
     NULL,
     SX_INPUT,
     "add"},
    {HEAD X W "%y = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [1]} : "
              "f32[batch, 32]\n" END,
     "x86-64-v3",
     {"batch"},
     {8},
     NULL,
     SX_INPUT,
     "24"},
    {HEAD X "%y = tanh(%x) : f32[batch, 33]\n" END,
     "x86-64-v3",
     {"batch"},
     {8},
     NULL,
     SX_INPUT,
     "33"},
    {HEAD X "%y = frobnicate(%x) : f32[batch, 32]\n" END,
     "x86-64-v3",
     {"batch"},
     {8},
     NULL,
     SX_INPUT,
     "frobnicate"},
    {HEAD X "}\n", "x86-64-v3", {"batch"}, {8}, NULL, SX_INPUT, "return"},
    /* extents */
    {GOOD, "x86-64-v3", {NULL}, {0}, NULL, SX_INPUT, "batch"},
    {GOOD, "x86-64-v3", {"batch"}, {65}, NULL, SX_INPUT, "64"},
    {GOOD, "x86-64-v3", {"batch"}, {0}, NULL, SX_INPUT, "batch"},
    {GOOD, "x86-64-v3", {"batch"}, {-3}, NULL, SX_INPUT, "-3"},
    {GOOD, "x86-64-v3", {"batch"}, {INT64_MAX}, NULL, SX_INPUT, "batch"},
    {GOOD, "x86-64-v3", {"batch", "heads"}, {8, 2}, NULL, SX_INPUT, "heads"},
    {GOOD, "x86-64-v3", {"batch", "batch"}, {8, 8}, NULL, SX_INPUT, "batch"},
    {"sx 1\ngraph \"g\" (n in [1, 4000000000]) {\n"
     "%x = parameter {name = \"x\", weight = 0} : f32[n, 4000000000]\n"
     "%y = tanh(%x) : f32[n, 4000000000]\n" END,
     "x86-64-v3",
     {"n"},
     {4000000000},
     NULL,
     SX_LIMIT,
     "elements"},
    {"sx 1\ngraph \"g\" () {\n"
     "%x = parameter {name = \"x\", weight = 0} : f32[9223372036854775807, 3]\n"
     "%y = tanh(%x) : f32[9223372036854775807, 3]\n" END,
     "x86-64-v3",
     {NULL},
     {0},
     NULL,
     SX_LIMIT,
     "9223372036854775807"},
    /* more bytes than a module can say */
    {"sx 1\ngraph \"g\" () {\n%x = parameter {name = \"x\", weight = 0} : f32[4294967296, 16]\n"
     "%y = negate(%x) : f32[4294967296, 16]\n" END,
     "x86-64-v3",
     {NULL},
     {0},
     NULL,
     SX_LIMIT,
     "tensor 0 'x': 274877906944 bytes, at most 68719476736"},
    /* targets */
    {GOOD, "z80", {"batch"}, {8}, NULL, SX_INPUT, "x86-64-v4"},
    {GOOD, "", {"batch"}, {8}, NULL, SX_INPUT, "x86-64-v3"},
    /* rules */
    {GOOD, "x86-64-v3", {"batch"}, {8}, "no-such-rule", SX_INPUT, "no-such-rule"},
    {GOOD, "x86-64-v3", {"batch"}, {8}, "softmax,,no-such", SX_INPUT, "no-such"},
    /* operations without machine code */
    {HEAD X "%i = parameter {name = \"i\", weight = 0} : i8[4]\n"
            "%y = gather(%x, %i) {axis = 0} : f32[4, 32]\n" END,
     "x86-64-v3",
     {"batch"},
     {8},
     NULL,
     SX_UNIMPLEMENTED,
     "indices of i8"},
};

static sx_code compile(sx_ctx *cx, const refusal *r)
{
    sx_binding binding[2];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 2 && r->name[i] != NULL; i++) {
        binding[count++] = (sx_binding){sx_span_of(r->name[i]), r->value[i]};
    }
    sx_core_request request = {.ir = sx_span_of(r->ir),
                               .target = sx_span_of(r->target),
                               .binding = binding,
                               .binding_count = count,
                               .disabled_rules = sx_span_of(r->disabled)};
    sx_image image;
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, &request, &image);
    sx_image_fini(&image);
    return code;
}

START_TEST(test_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    const refusal *r = &refusals[_i];
    ck_sx_fails(&cx, compile(&cx, r), r->code, r->text);
    sx_ctx_fini(&cx);
}
END_TEST

/* The key of the first of two values must not answer for both, and their order says nothing. */
START_TEST(test_key_of_repeated_symbol)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_binding binding[2] = {{SX_SPAN_LITERAL("batch"), 8}, {SX_SPAN_LITERAL("batch"), 9}};
    sx_core_request request = {.ir = sx_span_of(GOOD),
                               .target = SX_SPAN_LITERAL("x86-64-v3"),
                               .binding = binding,
                               .binding_count = 1};
    sx_key key;
    sx_span part[SX_PART_COUNT];
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &key, part));
    request.binding_count = 2;
    sx_key both, turned;
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &both, part));
    ck_assert(!sx_key_equal(&both, &key) && sx_span_is(part[SX_PART_EXTENTS], "batch=8 batch=9"));
    binding[0].value = 9;
    binding[1].value = 8;
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &turned, part));
    ck_assert(sx_key_equal(&both, &turned));
    binding[1].value = 9;
    ck_sx_fails(&cx, sx_core_key(&cx, &request, &key, part), SX_INPUT,
                "symbol \"batch\" is bound twice");
    sx_ctx_fini(&cx);
}
END_TEST

static const refusal good = {GOOD, "x86-64-v3", {"batch"}, {8}, NULL, SX_OK, ""};

static sx_code compile_good(sx_ctx *cx, void *self)
{
    (void)self;
    return compile(cx, &good);
}

/* Memory ends at every size up to what is enough: SX_NOMEM each time. */
START_TEST(test_memory)
{
    (void)sx_test_oom(&(sx_test_sweep){
        .name = "pipeline", .work = compile_good, .from = 1024, .part = 1.0 / 3, .fails_min = 10});
}
END_TEST

/* Fuel ends at every amount: SX_QUOTA, or a module where only the search for a better program was cut short. */
START_TEST(test_fuel)
{
    uint32_t refused = 0;
    bool enough = false;
    for (uint64_t fuel = 1; !enough; fuel += 1 + fuel / 2) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        cx.fuel = fuel;
        sx_code code = compile(&cx, &good);
        ck_assert_msg(code == SX_OK || code == SX_QUOTA, "%llu: %s (%s)", (unsigned long long)fuel,
                      sx_code_name(code), cx.error.text);
        enough = code == SX_OK;
        refused += !enough;
        ck_assert_uint_lt(fuel, SX_FUEL_DEFAULT);
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_ge(refused, 5);
}
END_TEST

static bool no(void *self)
{
    (void)self;
    return true;
}

START_TEST(test_cancelled)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.cancelled = no;
    ck_assert_int_eq(compile(&cx, &good), SX_CANCELLED);
    sx_ctx_fini(&cx);
}
END_TEST

/* Interfaces that hold no work, or the same work twice. */
typedef struct {
    const char *text;
    uint32_t outputs;
} odd;
static const odd odds[] = {
    {HEAD X "return %x as \"y\"\n}\n", 1},
    {HEAD X W "return %w as \"y\", %x as \"z\"\n}\n", 2},
    {HEAD X "%c = constant {data = 0.25} : f32[3, 5]\nreturn %c as \"y\"\n}\n", 1},
    {HEAD X W "%y = tanh(%w) : f32[32, 24]\nreturn %y as \"y\"\n}\n", 1}, /* weights alone */
    {HEAD X W "%t = transpose(%w) {perm = [1, 0]} : f32[24, 32]\n%y = exponential(%t) : "
              "f32[24, 32]\n%z = reshape(%y) : f32[768]\nreturn %y as \"y\", %z as "
              "\"z\"\n}\n",
     2},
    {HEAD X "%y = tanh(%x) : f32[batch, 32]\nreturn %y as \"y\", %y as \"z\"\n}\n", 2},
    {HEAD X "%y = tanh(%x) : f32[batch, 32]\n%r = reshape(%y) : f32[batch, 4, 8]\n"
            "return %r as \"y\", %y as \"z\", %r as \"v\"\n}\n",
     3},
    {HEAD X W "%y = tanh(%x) : f32[batch, 32]\n" END, 1}, /* w is not used */
    {HEAD X "%y = tanh(%x) : f32[batch, 32]\n%z = negate(%y) : f32[batch, 32]\n"
            "return %y as \"y\", %z as \"z\"\n}\n",
     2},
    {HEAD X "%r = reshape(%x) : f32[batch, 8, 4]\n%t = transpose(%r) {perm = [2, 0, 1]} : "
            "f32[4, batch, 8]\nreturn %t as \"y\", %r as \"z\"\n}\n",
     2},
    {HEAD "%i = iota {axis = 1} : f32[2, 9]\n%y = sine(%i) : f32[2, 9]\n" END, 1}, /* no input */
    {HEAD "%x = parameter {name = \"x\", weight = 0} : f32[]\n%y = exponential(%x) : f32[]\n" END,
     1},
    {HEAD X "%s = reduce(%x) {dims = [0, 1], reducer = add} : f32[]\n%b = broadcast_in_dim(%s) "
            "{dims = []} : f32[batch, 32]\n%y = multiply(%x, %b) : f32[batch, 32]\n" END,
     1},
};

START_TEST(test_odd_interfaces)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    for (uint32_t b = 1; b <= 8; b += 7) {
        sx_test_request request = {
            .text = odds[_i].text, .target = "x86-64-v3", .batch = (int64_t)b};
        sxr_program *program = sx_test_run(&cx, &request, 2);
        const sx_module *module = sxr_module(program);
        uint32_t outputs = 0;
        for (uint32_t t = 0; t < module->tensor_count; t++) {
            outputs += module->tensor[t].place == SX_TENSOR_OUTPUT;
        }
        ck_assert_uint_eq(outputs, odds[_i].outputs);
        sxr_close(program);
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.pipeline_input");
    TCase *cases = tcase_create("input");
    tcase_add_loop_test(cases, test_refused, 0, (int)SX_COUNT(refusals));
    tcase_add_test(cases, test_key_of_repeated_symbol);
    tcase_add_test(cases, test_memory);
    tcase_add_test(cases, test_fuel);
    tcase_add_test(cases, test_cancelled);
    tcase_add_loop_test(cases, test_odd_interfaces, 0, (int)SX_COUNT(odds));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
