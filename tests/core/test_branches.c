/* Programs with while and cond as machine code, against the interpreter: both ways of a branch, rounds from none to
 * the limit and beyond, carried values that change places, regions inside each other in any order, and what is left
 * outside of a while. In the texts here `$x:f32[4];` is a parameter x that is no weight, `$w!f32[4];` one that is. */
#include <stdio.h>
#include <string.h>

#include "client/verify/verify.h"
#include "core/base/rng.h"
#include "tests/lib/compiled.h"
#include "tests/lib/ir.h"
#include "tests/lib/region.h"
#include "tests/lib/test.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* The text of a program: parameters written out. */
static const char *program_of(const char *symbols, const char *text)
{
    sx_buf out;
    sx_buf_init(&out, 1 << 20);
    sx_buf_print(&out, "sx 1\ngraph \"g\" %s{\n", symbols);
    for (const char *p = text; *p != 0;) {
        size_t plain = strcspn(p, "$");
        sx_buf_put(&out, p, plain);
        p += plain;
        if (*p == '$') {
            size_t name = strcspn(p + 1, ":!");
            size_t type = strcspn(p + 2 + name, ";");
            sx_buf_print(&out, "%%%.*s = parameter {name = \"%.*s\", weight = %d} : %.*s\n",
                         (int)name, p + 1, (int)name, p + 1, p[1 + name] == '!' ? 1 : 0, (int)type,
                         p + 2 + name);
            p += 3 + name + type;
        }
    }
    sx_buf_put_text(&out, "\n}\n");
    const char *made = sx_alloc_text(&cx, sx_buf_span(&out));
    ck_assert_ptr_nonnull(made);
    sx_buf_fini(&out);
    return made;
}

/* ---- programs ---- */

/* i counts to n, at most `rounds` times; a and b change places, and x is added to one of them. */
#define COUNT(rounds)                                          \
    "$i:i64[]; $n:i64[]; $a:i32[5]; $b:i32[5]; $x:i32[5];\n"   \
    "%zero = constant {data = 0} : i64[]\n"                    \
    "%j, %c, %d = while(%zero, %a, %b, %n, %x) {carried = 3, " \
    "rounds = " rounds ", condition = graph {\n"               \
    "$i:i64[]; $a:i32[5]; $b:i32[5]; $n:i64[]; $x:i32[5];\n"   \
    "%m = compare(%i, %n) {direction = lt} : bool[]\n"         \
    "return %m as \"m\"}, step = graph {\n"                    \
    "$i:i64[]; $a:i32[5]; $b:i32[5]; $n:i64[]; $x:i32[5];\n"   \
    "%one = constant {data = 1} : i64[]\n"                     \
    "%j = add(%i, %one) : i64[]\n"                             \
    "%y = multiply(%x, %x) : i32[5]\n"                         \
    "%c = add(%b, %y) : i32[5]\n"                              \
    "return %j as \"i\", %c as \"a\", %a as \"b\"}} : i64[], i32[5], i32[5]\n"

#define IDENTITY(type) "graph {\n$x:" type ";\nreturn %x as \"x\"}"

/* While p: the step changes nothing. */
#define FOR_EVER(p)                                                       \
    "%e = while(%s, " p ") {carried = 1, rounds = 7, condition = graph {" \
    "$s:i32[5]; $p:bool[]; return %p as \"p\"}, step = graph {"           \
    "$s:i32[5]; $p:bool[]; return %s as \"s\"}} : i32[5]\n"

/* %p: is the sum of %w odd? */
#define ODD                                                                                       \
    "%sum = reduce(%w) {dims = [0], reducer = add} : i32[]\n%one = constant {data = 1} : i32[]\n" \
    "%bit = and(%sum, %one) : i32[]\n%p = compare(%bit, %one) {direction = eq} : bool[]\n"

/* What runs of a program come to. */
typedef enum {
    ENDS,
    BEYOND, /* some inputs lead to a while that goes on beyond its rounds */
    IDLE    /* some launches run for no inputs: nothing can be said of their results */
} outcome;

static const struct {
    const char *name, *text;
    uint32_t branches, whiles, loops;
    const char *symbols;
    outcome outcome;
} programs[] = {
    {"one operand in both branches, and unchanged",
     "$p:bool[]; $x:f32[4, 8];\n"
     "%y, %z = cond(%p, %x) {then = graph {\n"
     "$x:f32[4, 8]; %e = exponential(%x) : f32[4, 8]\n"
     "return %e as \"y\", %x as \"z\"}, otherwise = graph {\n"
     "$x:f32[4, 8]; %n = negate(%x) : f32[4, 8]\n"
     "return %x as \"y\", %n as \"z\"}} : f32[4, 8], f32[4, 8]\n"
     "return %y as \"y\", %z as \"z\"",
     1, 0, 0, "", ENDS},
    /* weights are packed before, and constants are results; what is made goes on */
    {"weights",
     "$p:bool[]; $x:f32[4, 16]; $w!f32[16, 16];\n"
     "%a = tanh(%x) : f32[4, 16]\n"
     "%y, %z = cond(%p, %a, %w) {then = graph {\n"
     "$x:f32[4, 16]; $w:f32[16, 16];\n"
     "%d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[4, 16]\n"
     "%e = exponential(%w) : f32[16, 16]\n"
     "return %d as \"y\", %e as \"z\"}, otherwise = graph {\n"
     "$x:f32[4, 16]; $w:f32[16, 16];\n"
     "%d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [1]} : f32[4, 16]\n"
     "%k = constant {data = 3} : f32[16, 16]\n"
     "return %d as \"y\", %k as \"z\"}} : f32[4, 16], f32[16, 16]\n"
     "%f = add(%y, %a) : f32[4, 16]\n"
     "return %f as \"f\", %z as \"z\"",
     1, 0, 0, "", ENDS},
    {"one result, nobody asks for the other",
     "$p:bool[]; $x:i32[6];\n"
     "%y, %z = cond(%p, %x) {then = graph {\n"
     "$x:i32[6]; %n = negate(%x) : i32[6]\nreturn %n as \"y\", %x as \"z\"}, otherwise = graph {\n"
     "$x:i32[6]; %n = multiply(%x, %x) : i32[6]\nreturn %x as \"y\", %n as \"z\"}}\n"
     ": i32[6], i32[6]\nreturn %z as \"z\"",
     1, 0, 0, "", ENDS},
    /* temporaries come and go in both branches, beside one that both read and one that lives across */
    {"temporaries",
     "$p:bool[]; $x:f32[64];\n"
     "%a = exponential(%x) : f32[64]\n%b = reverse(%a) {dims = [0]} : f32[64]\n"
     "%k = reverse(%x) {dims = [0]} : f32[64]\n"
     "%y = cond(%p, %b, %k) {then = graph {\n"
     "$b:f32[64]; $k:f32[64]; %c = add(%b, %k) : f32[64]\n%d = reverse(%c) {dims = [0]} : f32[64]\n"
     "%s = softmax(%d) {axis = 0} : f32[64]\n%e = multiply(%s, %b) : f32[64]\n"
     "%f = reverse(%e) {dims = [0]} : f32[64]\nreturn %f as \"f\"}, otherwise = graph {\n"
     "$b:f32[64]; $k:f32[64]; %c = softmax(%b) {axis = 0} : f32[64]\n"
     "%d = reverse(%c) {dims = [0]} : f32[64]\n%e = subtract(%d, %k) : f32[64]\n"
     "return %e as \"e\"}} : f32[64]\n"
     "%z = multiply(%y, %b) : f32[64]\n%r = reverse(%z) {dims = [0]} : f32[64]\n"
     "%s = add(%r, %k) : f32[64]\nreturn %s as \"s\"",
     1, 0, 0, "", ENDS},
    {"symbolic",
     "$p:bool[]; $x:f32[batch, 8];\n"
     "%y = cond(%p, %x) {then = graph {$x:f32[batch, 8];\n"
     "%s = softmax(%x) {axis = 1} : f32[batch, 8]\nreturn %s as \"y\"}, otherwise = graph {\n"
     "$x:f32[batch, 8]; %s = logistic(%x) : f32[batch, 8]\nreturn %s as \"y\"}} : f32[batch, 8]\n"
     "%zero = constant {data = 0} : i64[]\n"
     "%n, %z = while(%zero, %y) {carried = 2, rounds = 9, condition = graph {\n"
     "$i:i64[]; $y:f32[batch, 8]; %m = constant {data = 4} : i64[]\n"
     "%c = compare(%i, %m) {direction = lt} : bool[]\nreturn %c as \"c\"}, step = graph {\n"
     "$i:i64[]; $y:f32[batch, 8]; %one = constant {data = 1} : i64[]\n"
     "%j = add(%i, %one) : i64[]\n%z = sine(%y) : f32[batch, 8]\n"
     "return %j as \"i\", %z as \"y\"}} : i64[], f32[batch, 8]\nreturn %z as \"z\"",
     1, 1, 0, "(batch in [1, 64]) ", ENDS},
    {"count", COUNT("100") "return %j as \"j\", %c as \"c\", %d as \"d\"", 0, 1, 0, "", ENDS},
    {"count, one result", COUNT("20") "return %d as \"d\"", 0, 1, 0, "", ENDS},
    {"count to the limit and beyond", COUNT("3") "return %c as \"c\"", 0, 1, 0, "", BEYOND},
    {"no rounds",
     "$s:i32[5]; %f = constant {data = false} : bool[]\n" FOR_EVER("%f") "return %e as \"e\"", 0, 1,
     0, "", ENDS},
    {"no rounds, or no end", "$s:i32[5]; $p:bool[];\n" FOR_EVER("%p") "return %e as \"e\"", 0, 1, 0,
     "", BEYOND},
    /* the inner one never ends, and nothing in it changes: only the rounds of the outer one may begin it */
    {"no end inside no rounds",
     "$s:i32[5]; $t:i32[5]; $q:bool[]; %f = constant {data = false} : bool[]\n"
     "%y = while(%t, %s, %f) {carried = 1, rounds = 7, condition = graph {\n"
     "$t:i32[5]; $s:i32[5]; $p:bool[]; return %p as \"p\"}, step = graph {\n"
     "$t:i32[5]; $s:i32[5]; $p:bool[]; %true = constant {data = true} : bool[]\n" FOR_EVER(
         "%true") "%n = add(%e, %t) : i32[5]\nreturn %n as \"t\"}} : i32[5]\nreturn %y as \"y\"",
     0, 2, 0, "", IDLE},
    /* the condition is a carried value */
    {"carried condition",
     "$p:bool[]; $x:i32[3];\n"
     "%e, %y = while(%p, %x) {carried = 2, rounds = 40, condition = graph {\n"
     "$p:bool[]; $x:i32[3]; return %p as \"p\"}, step = graph {\n"
     "$p:bool[]; $x:i32[3]; %k = constant {data = 5} : i32[3]\n%y = add(%x, %k) : i32[3]\n"
     "%s = reduce(%y) {dims = [0], reducer = add} : i32[]\n%m = constant {data = 200} : i32[]\n"
     "%c = compare(%s, %m) {direction = lt} : bool[]\n"
     "return %c as \"p\", %y as \"x\"}} : bool[], i32[3]\nreturn %e as \"e\", %y as \"y\"",
     0, 1, 0, "", ENDS},
    /* the square root of two by Newton's method */
    {"root",
     "$x:f64[]; %one = constant {data = 1} : f64[]\n%y = multiply(%x, %x) : f64[]\n"
     "%t = add(%y, %one) : f64[]\n"
     "%root = while(%one, %t) {carried = 1, rounds = 100, condition = graph {\n"
     "$r:f64[]; $t:f64[]; %square = multiply(%r, %r) : f64[]\n"
     "%error = subtract(%square, %t) : f64[]\n%size = abs(%error) : f64[]\n"
     "%small = constant {data = 1e-12} : f64[]\n"
     "%more = compare(%size, %small) {direction = gt} : bool[]\nreturn %more as \"more\"},\n"
     "step = graph {$r:f64[]; $t:f64[]; %half = constant {data = 0.5} : f64[]\n"
     "%quotient = divide(%t, %r) : f64[]\n%sum = add(%r, %quotient) : f64[]\n"
     "%mean = multiply(%sum, %half) : f64[]\nreturn %mean as \"r\"}} : f64[]\n"
     "return %root as \"root\"",
     0, 1, 0, "", ENDS},
    /* each round reads what was made before the first one, and has temporaries of that size behind */
    {"read in each round",
     "$x:f32[64]; %k = reverse(%x) {dims = [0]} : f32[64]\n%zero = constant {data = 0} : i64[]\n"
     "%i, %y = while(%zero, %x, %k) {carried = 2, rounds = 9, condition = graph {\n"
     "$i:i64[]; $s:f32[64]; $k:f32[64]; %m = constant {data = 5} : i64[]\n"
     "%c = compare(%i, %m) {direction = lt} : bool[]\nreturn %c as \"c\"}, step = graph {\n"
     "$i:i64[]; $s:f32[64]; $k:f32[64]; %one = constant {data = 1} : i64[]\n"
     "%j = add(%i, %one) : i64[]\n%q = softmax(%k) {axis = 0} : f32[64]\n"
     "%a = subtract(%s, %k) : f32[64]\n%e = multiply(%a, %q) : f32[64]\n"
     "%b = softmax(%e) {axis = 0} : f32[64]\n%c = reverse(%b) {dims = [0]} : f32[64]\n"
     "%d = softmax(%c) {axis = 0} : f32[64]\n%f = reverse(%d) {dims = [0]} : f32[64]\n"
     "return %j as \"i\", %f as \"s\"}} : i64[], f32[64]\nreturn %y as \"y\"",
     0, 1, 0, "", ENDS},
    /* a cond in a scan in a while: rows where the round is odd, sums where it is not */
    {"cond in scan in while",
     "$s:i32[4]; $x:i32[3, 4]; $n:i64[];\n"
     "%zero = constant {data = 0} : i64[]\n"
     "%i, %t = while(%zero, %s, %x, %n) {carried = 2, rounds = 20, condition = graph {\n"
     "$i:i64[]; $s:i32[4]; $x:i32[3, 4]; $n:i64[];\n"
     "%m = compare(%i, %n) {direction = lt} : bool[]\nreturn %m as \"m\"}, step = graph {\n"
     "$i:i64[]; $s:i32[4]; $x:i32[3, 4]; $n:i64[];\n"
     "%one = constant {data = 1} : i64[]\n%j = add(%i, %one) : i64[]\n"
     "%bit = and(%i, %one) : i64[]\n%odd = compare(%bit, %one) {direction = eq} : bool[]\n"
     "%t, %rows = scan(%s, %x, %odd) {carried = 1, sliced = 1, step = graph {\n"
     "$s:i32[4]; $x:i32[4]; $odd:bool[];\n"
     "%y = cond(%odd, %s, %x) {then = graph {$s:i32[4]; $x:i32[4];\n"
     "%r = reverse(%x) {dims = [0]} : i32[4]\n%y = subtract(%s, %r) : i32[4]\n"
     "return %y as \"y\"}, otherwise = graph {$s:i32[4]; $x:i32[4];\n"
     "%y = add(%s, %x) : i32[4]\nreturn %y as \"y\"}} : i32[4]\n"
     "return %y as \"s\", %y as \"row\"}} : i32[4], i32[3, 4]\n"
     "%sum = reduce(%rows) {dims = [0], reducer = maximum} : i32[4]\n"
     "%u = add(%sum, %t) : i32[4]\n"
     "return %j as \"i\", %u as \"s\"}} : i64[], i32[4]\nreturn %i as \"i\", %t as \"t\"",
     1, 1, 1, "", ENDS},
    /* a while in a cond in a scan: each row is doubled until it is large, or left */
    {"while in cond in scan",
     "$s:i32[]; $x:i32[6, 2];\n"
     "%t, %rows = scan(%s, %x) {carried = 1, sliced = 1, step = graph {\n"
     "$s:i32[]; $x:i32[2]; %a = reduce(%x) {dims = [0], reducer = add} : i32[]\n"
     "%k = constant {data = 6} : i32[]\n%p = compare(%a, %k) {direction = gt} : bool[]\n"
     "%y, %b = cond(%p, %x, %a) {then = graph {$x:i32[2]; $a:i32[];\n"
     "%y, %b = while(%x, %a) {carried = 2, rounds = 9, condition = graph {$x:i32[2]; $a:i32[];\n"
     "%k = constant {data = 100} : i32[]\n%c = compare(%a, %k) {direction = lt} : bool[]\n"
     "return %c as \"c\"}, step = graph {$x:i32[2]; $a:i32[];\n"
     "%y = add(%x, %x) : i32[2]\n%b = add(%a, %a) : i32[]\n"
     "return %y as \"x\", %b as \"a\"}} : i32[2], i32[]\n"
     "return %y as \"y\", %b as \"b\"}, otherwise = graph {$x:i32[2]; $a:i32[];\n"
     "return %x as \"y\", %a as \"b\"}} : i32[2], i32[]\n"
     "%n = add(%s, %b) : i32[]\nreturn %n as \"s\", %y as \"row\"}} : i32[], i32[6, 2]\n"
     "return %t as \"t\", %rows as \"rows\"",
     1, 1, 1, "", ENDS},
    /* the condition has a branch and a scan of its own */
    {"regions in the condition",
     "$x:i32[4]; $p:bool[];\n"
     "%y = while(%x, %p) {carried = 1, rounds = 30, condition = graph {$x:i32[4]; $p:bool[];\n"
     "%zero = constant {data = 0} : i32[]\n"
     "%s = scan(%zero, %x) {carried = 1, sliced = 1, step = graph {$s:i32[]; $x:i32[];\n"
     "%n = add(%s, %x) : i32[]\nreturn %n as \"s\"}} : i32[]\n"
     "%l = cond(%p, %s) {then = graph {$s:i32[]; %k = constant {data = 90} : i32[]\n"
     "return %k as \"k\"}, otherwise = graph {$s:i32[]; %k = constant {data = 50} : i32[]\n"
     "return %k as \"k\"}} : i32[]\n"
     "%c = compare(%s, %l) {direction = lt} : bool[]\nreturn %c as \"c\"}, step = graph {\n"
     "$x:i32[4]; $p:bool[]; %k = constant {data = [1, 2, 3, 4]} : i32[4]\n"
     "%y = add(%x, %k) : i32[4]\nreturn %y as \"x\"}} : i32[4]\nreturn %y as \"y\"",
     1, 1, 1, "", ENDS},
    /* known when it is compiled: no branch */
    {"constants decide",
     "$x:f32[4]; %a = constant {data = 1} : i32[]\n%b = constant {data = 2} : i32[]\n"
     "%m = minimum(%a, %b) : i32[]\n%p = compare(%m, %b) {direction = lt} : bool[]\n"
     "%y = cond(%p, %x) {then = graph {$x:f32[4]; %e = tanh(%x) : f32[4]\n"
     "return %e as \"y\"}, otherwise = graph {$x:f32[4]; return %x as \"y\"}} : f32[4]\n"
     "return %y as \"y\"",
     0, 0, 0, "", ENDS},
    /* what decides is made once, when weights are bound */
    {"weights decide",
     "$x:f32[4]; $w!i32[5]; " ODD
     "%y = cond(%p, %x) {then = graph {$x:f32[4]; %e = tanh(%x) : f32[4]\n"
     "return %e as \"y\"}, otherwise = graph {$x:f32[4]; return %x as \"y\"}} : f32[4]\n"
     "return %y as \"y\"",
     1, 0, 0, "", ENDS},
    {"weights decide in each round",
     "$x:i32[3, 5]; $w!i32[5];\n"
     "%r, %rows = scan(%w, %x, %w) {carried = 1, sliced = 1, step = graph {\n"
     "$s:i32[5]; $x:i32[5]; $w:i32[5]; " ODD
     "%y = cond(%p, %s, %x) {then = graph {$s:i32[5]; $x:i32[5]; %y = add(%s, %x) : i32[5]\n"
     "return %y as \"y\"}, otherwise = graph {$s:i32[5]; $x:i32[5];\n"
     "%y = subtract(%s, %x) : i32[5]\nreturn %y as \"y\"}} : i32[5]\n"
     "return %y as \"s\", %y as \"row\"}} : i32[5], i32[3, 5]\n"
     "return %r as \"r\", %rows as \"rows\"",
     1, 0, 1, "", ENDS},
    {"weights decide that there are no rounds, or no end",
     "$s:i32[5]; $w!i32[5];\n" ODD FOR_EVER("%p") "return %e as \"e\"", 0, 1, 0, "", BEYOND},
};

/* ---- tests ---- */

static uint32_t count_kind(const sx_module *module, sx_module_launch_kind kind)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < module->launch_count; i++) {
        count += module->launch[i].kind == (uint32_t)kind ? 1 : 0;
    }
    return count;
}

/* The value of an input of one element; false: there is none of that name. */
static bool set_input(sxr_program *program, const char *name, uint64_t value)
{
    const sx_module *module = sxr_module(program);
    uint32_t tensor = sxr_find(program, SX_TENSOR_INPUT, sx_span_of(name));
    if (tensor == UINT32_MAX) {
        return false;
    }
    memcpy(sxr_memory(program, tensor), &value, module->tensor[tensor].element_bytes);
    return true;
}

/* Runs it, and compares it with the interpreter, which may say that a while goes on. */
static void run_and_compare(sxr_program *program, bool beyond)
{
    sx_module_check check;
    sx_code code = sxr_run(&cx, program, NULL);
    if (beyond && code != SX_OK) {
        ck_sx_fails(&cx, code, SX_LIMIT, "while: the condition is true after");
        sx_ctx_reset_error(&cx);
        code = sxr_check_program(&cx, program, 0, &check);
        ck_sx_fails(&cx, code, SX_LIMIT, "while: the condition is true after");
        sx_ctx_reset_error(&cx);
        return;
    }
    ck_sx_ok(&cx, code);
    ck_sx_ok(&cx, sxr_check_program(&cx, program, 0, &check));
}

START_TEST(equals_the_interpreter)
{
    static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
    const char *text = program_of(programs[_i].symbols, programs[_i].text);
    for (uint32_t t = 0; t < 2 * SX_COUNT(targets); t++) {
        const sx_test_request request = {
            .text = text, .target = targets[t / 2], .batch = programs[_i].symbols[0] != 0 ? 6 : 0};
        sx_buf module;
        if (!sx_test_can_run(request.target)) {
            continue;
        }
        sx_buf_init(&module, (size_t)1 << 30);
        ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
        sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 1 + t % 2, SX_FILL_SMOOTH);
        ck_assert_uint_eq(count_kind(sxr_module(program), SX_LAUNCH_BRANCH), programs[_i].branches);
        ck_assert_uint_eq(count_kind(sxr_module(program), SX_LAUNCH_WHILE), programs[_i].whiles);
        ck_assert_uint_eq(count_kind(sxr_module(program), SX_LAUNCH_LOOP), programs[_i].loops);
        for (uint64_t value = 0; value < 6; value++) {
            bool is_set = set_input(program, "n", value);
            is_set = set_input(program, "p", value % 2) || is_set;
            run_and_compare(program, programs[_i].outcome == BEYOND);
        }
        sxr_close(program);
        sx_buf_fini(&module);
    }
}
END_TEST

/* Every number of rounds up to the limit is right, and the next is an error. */
START_TEST(the_limit_is_exact)
{
    const sx_test_request request = {.text = program_of("", COUNT("3") "return %j as \"j\""),
                                     .target = "x86-64-v3"};
    sx_buf module;
    if (!sx_test_can_run(request.target)) {
        return;
    }
    sx_buf_init(&module, (size_t)1 << 30);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 1, SX_FILL_SMOOTH);
    for (uint64_t n = 0; n < 6; n++) {
        ck_assert(set_input(program, "n", n));
        if (n > 3) {
            ck_sx_fails(&cx, sxr_run(&cx, program, NULL), SX_LIMIT,
                        "while: the condition is true after 3 rounds");
            sx_ctx_reset_error(&cx);
            continue;
        }
        ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
        uint64_t counted;
        uint32_t output = sxr_find(program, SX_TENSOR_OUTPUT, sx_span_of("j"));
        memcpy(&counted, sxr_memory(program, output), sizeof(counted));
        ck_assert_uint_eq(counted, n);
    }
    sxr_close(program);
    sx_buf_fini(&module);
}
END_TEST

/* Verifies a module as before it is handed out. No check may be missing, unless `incomplete`. */
static void verify(const char *name, sx_span module, bool incomplete)
{
    sx_image image;
    sx_image_init(&image);
    const sxr_verify_options options = {.seed = sx_test_seed(), .program_flops = 1e9};
    ck_sx_ok(&cx, sxr_verify(&cx, module, &options, &image));
    const sx_module_check *check = (const void *)image.check.ptr;
    size_t count = image.check.len / sizeof(*check);
    ck_assert_uint_gt(count, 0);
    for (size_t i = 0; i < count && !incomplete; i++) {
        ck_assert_msg(check[i].passed != SX_CHECK_ABSENT, "%s: %.*s", name, (int)check[i].name.size,
                      (const char *)image.strings.ptr + check[i].name.offset);
    }
    sx_image_fini(&image);
}

/* On both instruction sets: emulated where the processor lacks one. */
START_TEST(is_verified)
{
    static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
    const char *text = program_of(programs[_i].symbols, programs[_i].text);
    for (uint32_t t = 0; t < SX_COUNT(targets); t++) {
        sx_buf module;
        sx_buf_init(&module, (size_t)1 << 30);
        const sx_test_request request = {
            .text = text, .target = targets[t], .batch = programs[_i].symbols[0] != 0 ? 6 : 0};
        ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
        verify(programs[_i].name, sx_buf_span(&module), programs[_i].outcome != ENDS);
        sx_buf_fini(&module);
    }
}
END_TEST

/* ---- wrong modules ---- */

static void end_early(sx_module_launch *launch)
{
    launch->value = launch->kind == SX_LAUNCH_WHILE ? 3 : launch->value;
}
static void go_on(sx_module_launch *launch)
{
    launch->value = launch->kind == SX_LAUNCH_WHILE ? 1000 : launch->value;
}
static void skip_then(sx_module_launch *launch)
{
    launch->first = launch->kind == SX_LAUNCH_BRANCH ? 0 : launch->first;
}
static void skip_otherwise(sx_module_launch *launch)
{
    launch->first = launch->kind == SX_LAUNCH_BRANCH ? launch->body : launch->first;
}

static const struct {
    const char *name; /* of the program */
    void (*plant)(sx_module_launch *launch);
    const char *text;
} plants[] = {
    {"symbolic", end_early, "a while goes on beyond its rounds, that of the program as sent ends"},
    {"beyond", go_on, "a while ends, that of the program as sent goes on beyond its rounds"},
    {"symbolic", skip_then, "the program as sent gives"},
    {"symbolic", skip_otherwise, "the program as sent gives"},
};

static const char counts_far[] =
    "$x:i64[];\n%zero = constant {data = 0} : i64[]\n"
    "%n, %y = while(%zero, %x) {carried = 2, rounds = 9, condition = graph {\n$i:i64[]; $x:i64[];\n"
    "%m = constant {data = 100} : i64[]\n%c = compare(%i, %m) {direction = lt} : bool[]\n"
    "return %c as \"c\"}, step = graph {\n$i:i64[]; $x:i64[]; %one = constant {data = 1} : i64[]\n"
    "%j = add(%i, %one) : i64[]\n%y = add(%x, %j) : i64[]\n"
    "return %j as \"i\", %y as \"x\"}} : i64[], i64[]\nreturn %y as \"y\"";

/* A branch that leaves something out in one of its ways, a while with another limit: found, whatever inputs are drawn
 * first. */
START_TEST(wrong_is_found)
{
    const char *text = program_of("", counts_far);
    int64_t batch = 0;
    for (uint32_t i = 0; i < SX_COUNT(programs); i++) {
        if (strcmp(programs[i].name, plants[_i].name) == 0) {
            text = program_of(programs[i].symbols, programs[i].text);
            batch = 6;
        }
    }
    const sx_test_request request = {.text = text, .target = "x86-64-v3", .batch = batch};
    sx_buf bytes;
    sx_module module;
    sx_module_launch launch[64];
    sx_buf_init(&bytes, (size_t)1 << 26);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    void *copy = sx_alloc(&cx, bytes.len + 64);
    ck_assert_ptr_nonnull(copy);
    copy = (uint8_t *)copy + (64 - (uintptr_t)copy % 64) % 64;
    memcpy(copy, bytes.ptr, bytes.len);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module));
    ck_assert_uint_le(module.launch_count, SX_COUNT(launch));
    memcpy(launch, module.launch, module.launch_count * sizeof(*launch));
    for (uint32_t i = 0; i < module.launch_count; i++) {
        plants[_i].plant(&launch[i]);
    }
    module.launch = launch;
    sx_buf_clear(&bytes);
    ck_sx_ok(&cx, sx_module_encode(&cx, &module, &bytes));
    sx_image image;
    sx_image_init(&image);
    const sxr_verify_options options = {.seed = sx_test_seed(), .program_flops = 1e9};
    ck_sx_fails(&cx, sxr_verify(&cx, sx_buf_span(&bytes), &options, &image), SX_INTERNAL,
                plants[_i].text);
    sx_image_fini(&image);
    sx_buf_fini(&bytes);
}
END_TEST

/* ---- random programs ---- */

/* A program text that grows: values of i32[3] are %v0, %v1, ..; in a body the first two are its parameters. What
 * decides may follow from weights and constants alone. */
typedef struct {
    sx_rng *rng;
    sx_buf text;
    uint32_t next; /* names are never used twice */
    uint32_t regions;
} writer;

static uint32_t pick(writer *w, const uint32_t *value, uint32_t count)
{
    return value[sx_rng_below(w->rng, count)];
}

static void write_body(writer *w, uint32_t depth);

/* %pN: is a bit of the sum of a value set? */
static uint32_t write_truth(writer *w, uint32_t of)
{
    uint32_t n = w->next++;
    sx_buf_print(&w->text,
                 "%%s%u = reduce(%%v%u) {dims = [0], reducer = add} : i32[]\n"
                 "%%k%u = constant {data = %u} : i32[]\n%%b%u = and(%%s%u, %%k%u) : i32[]\n"
                 "%%p%u = compare(%%b%u, %%k%u) {direction = eq} : bool[]\n",
                 n, of, n, 1U << sx_rng_below(w->rng, 3), n, n, n, n, n, n);
    return n;
}

static void write_cond(writer *w, uint32_t a, uint32_t b, uint32_t depth)
{
    uint32_t truth = write_truth(w, a), y = w->next++, z = w->next++;
    sx_buf_print(&w->text, "%%v%u, %%v%u = cond(%%p%u, %%v%u, %%v%u) {then = graph {\n", y, z,
                 truth, a, b);
    write_body(w, depth);
    sx_buf_put_text(&w->text, "}, otherwise = graph {\n");
    write_body(w, depth);
    sx_buf_put_text(&w->text, "}} : i32[3], i32[3]\n");
}

/* The first operand is a slice of a tensor that is made of two values. */
static void write_scan(writer *w, uint32_t a, uint32_t b, uint32_t depth)
{
    uint32_t n = w->next++, y = w->next++, z = w->next++;
    sx_buf_print(&w->text,
                 "%%e%u = reshape(%%v%u) : i32[1, 3]\n%%f%u = reshape(%%v%u) : i32[1, 3]\n"
                 "%%x%u = concatenate(%%e%u, %%f%u, %%e%u) {axis = 0} : i32[3, 3]\n"
                 "%%v%u, %%r%u = scan(%%v%u, %%x%u) {carried = 1, sliced = 1, step = graph {\n",
                 n, a, n, b, n, n, n, n, y, n, b, n);
    write_body(w, depth);
    sx_buf_print(&w->text,
                 "}} : i32[3], i32[3, 3]\n"
                 "%%v%u = reduce(%%r%u) {dims = [0], reducer = add} : i32[3]\n",
                 z, n);
}

/* Some rounds, which a counter or what the values are brings to an end. */
static void write_while(writer *w, uint32_t a, uint32_t b, uint32_t depth)
{
    uint32_t n = w->next++, y = w->next++, z = w->next++, j = w->next++;
    sx_buf_print(&w->text,
                 "%%i%u = constant {data = 0} : i64[]\n"
                 "%%i%u, %%v%u, %%v%u = while(%%i%u, %%v%u, %%v%u) {carried = 3, rounds = 5, "
                 "condition = graph {\n"
                 "$c:i64[]; $v%u:i32[3]; $v%u:i32[3];\n%%l = constant {data = %u} : i64[]\n"
                 "%%m = compare(%%c, %%l) {direction = lt} : bool[]\n",
                 n, j, y, z, n, a, b, y, z, (uint32_t)sx_rng_below(w->rng, 5));
    uint32_t truth = write_truth(w, sx_rng_below(w->rng, 2) == 0 ? y : z);
    sx_buf_print(&w->text,
                 "%%q = or(%%p%u, %%m) : bool[]\n%%h = and(%%q, %%m) : bool[]\n"
                 "return %%%s as \"more\"}, step = graph {\n$c:i64[];\n",
                 truth, sx_rng_below(w->rng, 2) == 0 ? "m" : "h");
    write_body(w, depth);
    /* the counter is the first result of the step */
    sx_buf_put_text(&w->text, "}} : i64[], i32[3], i32[3]\n");
}

static void write_step(writer *w, uint32_t *value, uint32_t *count, uint32_t depth)
{
    static void (*const region[])(writer *, uint32_t, uint32_t, uint32_t) = {write_cond, write_scan,
                                                                             write_while};
    static const char *const binary[] = {"add", "subtract", "multiply", "maximum", "xor"};
    uint32_t a = pick(w, value, *count), b = pick(w, value, *count);
    if (depth > 0 && sx_rng_below(w->rng, 2) == 0) {
        uint32_t which = (uint32_t)sx_rng_below(w->rng, SX_COUNT(region));
        uint32_t before = w->next;
        region[which](w, a, b, depth - 1);
        /* its two results are the second and third name, but the condition of a cond takes the first */
        value[(*count)++] = before + 1;
        value[(*count)++] = before + 2;
        w->regions++;
        return;
    }
    uint32_t n = w->next++;
    if (sx_rng_below(w->rng, 6) == 0) {
        sx_buf_print(&w->text, "%%v%u = constant {data = [%u, 3, 4]} : i32[3]\n", n,
                     (uint32_t)sx_rng_below(w->rng, 9));
    } else if (sx_rng_below(w->rng, 3) == 0) {
        sx_buf_print(&w->text, "%%v%u = reverse(%%v%u) {dims = [0]} : i32[3]\n", n, a);
    } else {
        sx_buf_print(&w->text, "%%v%u = %s(%%v%u, %%v%u) : i32[3]\n", n,
                     binary[sx_rng_below(w->rng, SX_COUNT(binary))], a, b);
    }
    value[(*count)++] = n;
}

/* Parameters, operations, two results; in the step of a while, which has a parameter by now, one more for the count. */
static void write_body(writer *w, uint32_t depth)
{
    static const char counter[] = "$c:i64[];\n";
    size_t tail = sizeof(counter) - 1;
    bool counts =
        w->text.len >= tail && memcmp(w->text.ptr + w->text.len - tail, counter, tail) == 0;
    uint32_t value[64], count = 2;
    value[0] = w->next++;
    value[1] = w->next++;
    bool weighs = w->text.len == 0 && sx_rng_below(w->rng, 2) == 0; /* else it is an input */
    sx_buf_print(&w->text, "$v%u%ci32[3]; $v%u:i32[3];\n", value[0], weighs ? '!' : ':', value[1]);
    for (uint32_t steps = (uint32_t)sx_rng_below(w->rng, 5); steps-- > 0;) {
        write_step(w, value, &count, depth);
    }
    if (counts) {
        sx_buf_put_text(&w->text,
                        "%one = constant {data = 1} : i64[]\n%d = add(%c, %one) : i64[]\n");
    }
    uint32_t first = pick(w, value, count), second = pick(w, value, count);
    sx_buf_print(&w->text, "return %s%%v%u as \"y\", %%v%u as \"z\"", counts ? "%d as \"c\", " : "",
                 first, second);
}

START_TEST(random_regions)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t regions = 0;
    for (uint32_t trial = 0; trial < sx_test_trials(40); trial++) {
        writer w = {.rng = &rng};
        teardown();
        setup();
        sx_buf_init(&w.text, 1 << 20);
        while (w.regions == 0) {
            sx_buf_clear(&w.text);
            w.next = 0;
            write_body(&w, 3);
        }
        sx_buf_put_u8(&w.text, 0);
        const sx_test_request request = {.text = program_of("", (const char *)w.text.ptr),
                                         .target = "x86-64-v3"};
        sx_buf_fini(&w.text);
        regions += w.regions;
        sx_buf module;
        sx_buf_init(&module, (size_t)1 << 30);
        ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
        verify(request.text, sx_buf_span(&module), true);
        if (sx_test_can_run(request.target)) {
            sxr_program *program =
                sx_test_open(&cx, sx_buf_span(&module), 1 + trial % 2, SX_FILL_SMOOTH);
            run_and_compare(program, false);
            sxr_close(program);
        }
        sx_buf_fini(&module);
    }
    ck_assert_uint_gt(regions, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("branches");
    TCase *tcase = tcase_create("while and cond");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, equals_the_interpreter, 0, SX_COUNT(programs));
    tcase_add_test(tcase, the_limit_is_exact);
    tcase_add_loop_test(tcase, is_verified, 0, SX_COUNT(programs));
    tcase_add_loop_test(tcase, wrong_is_found, 0, SX_COUNT(plants));
    tcase_add_test(tcase, random_regions);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
