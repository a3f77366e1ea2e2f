/* Magnitudes at which values in between may overflow or vanish: compiled as a program comes out of `compile`
 * by default, the result is that of the program that was sent, computed in doubles. */
#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

#include "tests/lib/compiled.h"

typedef struct {
    const char *name;
    const char *text;
    const char *input[3];
    double magnitude[3];
    double result; /* of every element */
    bool free;     /* with range_any it is another: what the rules may do then */
} range_program;

static const range_program programs[] = {
    {"sum of quotients",
     "sx 1\ngraph \"sum\" {\n"
     "%x = parameter {name = \"x\", weight = 0} : f32[3, 64]\n"
     "%c = constant {data = 64} : f32[3, 64]\n"
     "%q = divide(%x, %c) : f32[3, 64]\n"
     "%y = reduce(%q) {dims = [1], reducer = add} : f32[3]\n"
     "return %y as \"y\"\n}\n",
     {"x"},
     {3e37},
     3e37,
     true},
    {"quotient of a quotient, large",
     "sx 1\ngraph \"quotient\" {\n"
     "%x = parameter {name = \"x\", weight = 0} : f32[64]\n"
     "%a = parameter {name = \"a\", weight = 0} : f32[64]\n"
     "%b = parameter {name = \"b\", weight = 0} : f32[64]\n"
     "%q = divide(%x, %a) : f32[64]\n"
     "%y = divide(%q, %b) : f32[64]\n"
     "return %y as \"y\"\n}\n",
     {"x", "a", "b"},
     {1e38, 1e20, 1e20},
     1e-2,
     true},
    {"quotient of a quotient, small",
     "sx 1\ngraph \"quotient\" {\n"
     "%x = parameter {name = \"x\", weight = 0} : f32[64]\n"
     "%a = parameter {name = \"a\", weight = 0} : f32[64]\n"
     "%b = parameter {name = \"b\", weight = 0} : f32[64]\n"
     "%q = divide(%x, %a) : f32[64]\n"
     "%y = divide(%q, %b) : f32[64]\n"
     "return %y as \"y\"\n}\n",
     {"x", "a", "b"},
     {1e-38, 1e-25, 1e-25},
     1e12,
     true},
    {"contraction of what is scaled",
     "sx 1\ngraph \"contraction\" {\n"
     "%x = parameter {name = \"x\", weight = 0} : f32[8, 64]\n"
     "%w = parameter {name = \"w\", weight = 0} : f32[64, 16]\n"
     "%c = constant {data = 9.5367431640625e-07} : f32[8, 64]\n"
     "%s = multiply(%x, %c) : f32[8, 64]\n"
     "%y = dot_general(%s, %w) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = "
     "[0]} : f32[8, 16]\n"
     "return %y as \"y\"\n}\n",
     {"x", "w"},
     {3e37, 1},
     64 * 3e37 / 1048576,
     true},
    {"product of three",
     "sx 1\ngraph \"product\" {\n"
     "%a = parameter {name = \"a\", weight = 0} : f32[64]\n"
     "%b = parameter {name = \"b\", weight = 0} : f32[64]\n"
     "%d = parameter {name = \"d\", weight = 0} : f32[64]\n"
     "%p = multiply(%a, %b) : f32[64]\n"
     "%y = multiply(%p, %d) : f32[64]\n"
     "return %y as \"y\"\n}\n",
     {"a", "b", "d"},
     {1e-30, 1e30, 1e30},
     1e30,
     false},
    {"chain of matrices",
     "sx 1\ngraph \"chain\" {\n"
     "%a = parameter {name = \"a\", weight = 0} : f32[512, 512]\n"
     "%b = parameter {name = \"b\", weight = 0} : f32[512, 512]\n"
     "%d = parameter {name = \"d\", weight = 0} : f32[512, 1]\n"
     "%p = dot_general(%a, %b) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = "
     "[0]} : f32[512, 512]\n"
     "%y = dot_general(%p, %d) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = "
     "[0]} : f32[512, 1]\n"
     "return %y as \"y\"\n}\n",
     {"a", "b", "d"},
     {1e-30, 1e30, 1e30},
     512.0 * 512 * 1e30,
     true},
};

static sx_ctx cx;

/* Compiled and run on numbers of these magnitudes; the first element of the result. */
static double run(const range_program *p, bool range_any)
{
    sx_test_request request = {.text = p->text, .target = "x86-64-v3", .range_any = range_any};
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 24);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&bytes), 1, SX_FILL_EXACT);
    sx_buf_fini(&bytes);
    const sx_module *module = sxr_module(program);
    uint32_t y = sxr_find(program, SX_TENSOR_OUTPUT, SX_SPAN_LITERAL("y"));
    for (uint32_t k = 0; k < 3 && p->input[k] != NULL; k++) {
        uint32_t tensor = sxr_find(program, SX_TENSOR_INPUT, sx_span_of(p->input[k]));
        float *f = sxr_memory(program, tensor);
        for (uint64_t i = 0; i < module->tensor[tensor].size / 4; i++) {
            f[i] = (float)p->magnitude[k];
        }
    }
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    const float *result = sxr_memory(program, y);
    double first = (double)result[0];
    for (uint64_t i = 1; i < module->tensor[y].size / 4; i++) {
        ck_assert_double_eq((double)result[i], first);
    }
    sxr_close(program);
    return first;
}

START_TEST(test_range_is_kept)
{
    const range_program *p = &programs[_i];
    if (!sx_test_can_run("x86-64-v3")) {
        return;
    }
    sx_ctx_init(&cx, (size_t)1 << 30);
    double kept = run(p, false);
    /* roundings of sums of 512 twice over, of operands and of products */
    ck_assert_msg(fabs(kept - p->result) <= 1100 * 0x1p-24 * p->result, "%s: %g, not %g", p->name,
                  kept, p->result);
    if (p->free) { /* the rules do reach it: without the class of their rows they would break it */
        double any = run(p, true);
        ck_assert_msg(!(fabs(any - p->result) <= 1100 * 0x1p-24 * p->result),
                      "%s: nothing is moved where that is allowed", p->name);
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.range");
    TCase *cases = tcase_create("range");
    tcase_add_loop_test(cases, test_range_is_kept, 0, (int)SX_COUNT(programs));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
