/* NaN through compiled modules: in each place of each operand in turn, of what takes the larger or the smaller
 * of two, or bounds one. The interpreter says where it has to come out, and for plain operations numpy.maximum
 * and the operators of ONNX do: wherever it goes in. */
#include "core/eval/eval.h"
#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

#include "core/base/rng.h"
#include "tests/lib/compiled.h"

#define HEAD "sx 1\ngraph \"nan\" {\n%x = parameter {name = \"x\", weight = 0} : f32[37]\n"
#define TAIL "return %y as \"y\"\n}\n"
#define VALUE(name, number) "%" name " = constant {data = " number "} : f32[37]\n"
#define SECOND "%z = parameter {name = \"z\", weight = 0} : f32[37]\n"
#define TABLE "sx 1\ngraph \"nan\" {\n%x = parameter {name = \"x\", weight = 0} : f32[5, 37]\n"
#define IMAGE "sx 1\ngraph \"nan\" {\n%x = parameter {name = \"x\", weight = 0} : f32[1, 3, 9, 9]\n"
#define POOL(reducer)                                                                            \
    "%y = reduce_window(%x) {window = [1, 1, 3, 3], stride = [1, 1, 2, 2], low = [0, 0, 1, 1], " \
    "high = [0, 0, 1, 1], dilation = [1, 1, 1, 1], reducer = " reducer "} : f32[1, 3, 5, 5]\n"

typedef struct {
    const char *name;
    const char *text;
    bool elementwise; /* NaN comes out where it went in, and there alone */
} nan_program;

static const nan_program programs[] = {
    {"maximum", HEAD SECOND "%y = maximum(%x, %z) : f32[37]\n" TAIL, true},
    {"minimum", HEAD SECOND "%y = minimum(%x, %z) : f32[37]\n" TAIL, true},
    {"relu", HEAD "%y = relu(%x) : f32[37]\n" TAIL, true},
    {"maximum with 0", HEAD VALUE("c", "0") "%y = maximum(%x, %c) : f32[37]\n" TAIL, true},
    {"0 maximum", HEAD VALUE("c", "0") "%y = maximum(%c, %x) : f32[37]\n" TAIL, true},
    {"minimum with 3", HEAD VALUE("c", "3") "%y = minimum(%x, %c) : f32[37]\n" TAIL, true},
    {"3 minimum", HEAD VALUE("c", "3") "%y = minimum(%c, %x) : f32[37]\n" TAIL, true},
    {"clamp",
     HEAD VALUE("l", "-1") VALUE("h", "6") "%a = maximum(%x, %l) : f32[37]\n"
                                           "%y = minimum(%a, %h) : f32[37]\n" TAIL,
     true},
    {"clamp, bounds first",
     HEAD VALUE("l", "-1") VALUE("h", "6") "%a = minimum(%h, %x) : f32[37]\n"
                                           "%y = maximum(%l, %a) : f32[37]\n" TAIL,
     true},
    {"chain of maxima",
     HEAD SECOND VALUE("c", "0.5") "%a = maximum(%x, %c) : f32[37]\n"
                                   "%b = maximum(%a, %z) : f32[37]\n"
                                   "%y = maximum(%x, %b) : f32[37]\n" TAIL,
     true},
    {"larger with its negative",
     HEAD "%n = negate(%x) : f32[37]\n%y = maximum(%x, %n) : f32[37]\n" TAIL, true},
    /* a choice is no maximum: NaN is not larger than anything, so the other comes out */
    {"choice of the larger",
     HEAD SECOND "%p = compare(%x, %z) {direction = gt} : bool[37]\n"
                 "%y = select(%p, %x, %z) : f32[37]\n" TAIL,
     false},
    {"choice of the larger or equal",
     HEAD VALUE("c", "0") "%p = compare(%x, %c) {direction = ge} : bool[37]\n"
                          "%y = select(%p, %x, %c) : f32[37]\n" TAIL,
     false},
    {"largest of a row", TABLE "%y = reduce(%x) {dims = [1], reducer = maximum} : f32[5]\n" TAIL,
     false},
    {"least of a column", TABLE "%y = reduce(%x) {dims = [0], reducer = minimum} : f32[37]\n" TAIL,
     false},
    {"largest of all", TABLE "%y = reduce(%x) {dims = [0, 1], reducer = maximum} : f32[]\n" TAIL,
     false},
    {"largest of relu",
     TABLE "%r = relu(%x) : f32[5, 37]\n"
           "%y = reduce(%r) {dims = [1], reducer = maximum} : f32[5]\n" TAIL,
     false},
    {"softmax", TABLE "%y = softmax(%x) {axis = 1} : f32[5, 37]\n" TAIL, false},
    {"largest of a window", IMAGE POOL("maximum") TAIL, false},
    {"least of a window", IMAGE POOL("minimum") TAIL, false},
};

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
static sx_ctx cx;

static void fill(float *f, uint64_t count, uint64_t seed)
{
    sx_rng rng = {seed};
    for (uint64_t i = 0; i < count; i++) {
        f[i] = sx_rng_below(&rng, 8) == 0 ? (sx_rng_below(&rng, 2) == 0 ? 0.0f : -0.0f)
                                          : 8 * sx_rng_f32(&rng);
    }
}

/* NaN in element `at` of input `which`: the module and the interpreter have the same elements NaN, and the
 * others agree. */
static void compare_at(sxr_program *program, const sx_graph *graph, const nan_program *p,
                       const uint32_t *input, uint32_t inputs, uint32_t which, uint64_t at)
{
    const sx_module *module = sxr_module(program);
    sx_tensor argument[2] = {0};
    sx_tensor wanted;
    for (uint32_t k = 0; k < inputs; k++) {
        float *f = sxr_memory(program, input[k]);
        uint64_t count = module->tensor[input[k]].size / 4;
        fill(f, count, 17 + k);
        if (k == which) {
            f[at] = NAN;
        }
        argument[k].type = graph->node[k].type;
        double *d = sx_alloc_array(&cx, count, sizeof(double));
        ck_assert_ptr_nonnull(d);
        for (uint64_t i = 0; i < count; i++) {
            d[i] = (double)f[i];
        }
        argument[k].data = d;
    }
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, argument, inputs, &wanted, 1));
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    uint32_t y = sxr_find(program, SX_TENSOR_OUTPUT, SX_SPAN_LITERAL("y"));
    const float *got = sxr_memory(program, y);
    const double *want = wanted.data;
    for (uint64_t i = 0; i < module->tensor[y].size / 4; i++) {
        ck_assert_msg((isnan(got[i]) != 0) == (isnan(want[i]) != 0),
                      "%s, NaN in element %llu of input %u: element %llu is %g, not %g", p->name,
                      (unsigned long long)at, which, (unsigned long long)i, (double)got[i],
                      want[i]);
        ck_assert_msg(isnan(got[i]) || fabs((double)got[i] - want[i]) <= 1e-6, "%s: %g, not %g",
                      p->name, (double)got[i], want[i]);
        ck_assert_msg(!p->elementwise || (isnan(got[i]) != 0) == (i == at),
                      "%s: element %llu is %g", p->name, (unsigned long long)i, (double)got[i]);
    }
}

static void try_program(const nan_program *p, const char *target)
{
    sx_test_request request = {.text = p->text, .target = target};
    sx_buf bytes;
    sx_graph *graph;
    sx_buf_init(&bytes, (size_t)1 << 24);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(p->text), &graph));
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&bytes), 1, SX_FILL_EXACT);
    sx_buf_fini(&bytes);
    uint32_t input[2] = {sxr_find(program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("x")), 0};
    uint32_t inputs = strstr(p->text, SECOND) != NULL ? 2 : 1;
    if (inputs == 2) {
        input[1] = sxr_find(program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("z"));
    }
    for (uint32_t which = 0; which < inputs; which++) {
        uint64_t count = sxr_module(program)->tensor[input[which]].size / 4;
        for (uint64_t at = 0; at < count; at++) {
            compare_at(program, graph, p, input, inputs, which, at);
        }
    }
    sxr_close(program);
}

START_TEST(test_nan_stays)
{
    for (uint32_t t = 0; t < SX_COUNT(targets); t++) {
        if (sx_test_can_run(targets[t])) {
            sx_ctx_init(&cx, (size_t)1 << 30);
            try_program(&programs[_i], targets[t]);
            sx_ctx_fini(&cx);
        }
    }
}
END_TEST

/* What comes out of one operation, said without the interpreter. */
START_TEST(test_interpreter_keeps_nan)
{
    static const double x[] = {1, -1, 0, -0.0, HUGE_VAL, -HUGE_VAL, (double)NAN};
    static const char text[] = "sx 1\ngraph \"two\" {\n"
                               "%x = parameter {name = \"x\", weight = 0} : f32[1]\n"
                               "%z = parameter {name = \"z\", weight = 0} : f32[1]\n"
                               "%a = maximum(%x, %z) : f32[1]\n"
                               "%b = minimum(%x, %z) : f32[1]\n"
                               "%j = concatenate(%x, %z) {axis = 0} : f32[2]\n"
                               "%c = reduce(%j) {dims = [0], reducer = maximum} : f32[]\n"
                               "%d = reduce(%j) {dims = [0], reducer = minimum} : f32[]\n"
                               "return %a as \"a\", %b as \"b\", %c as \"c\", %d as \"d\"\n}\n";
    sx_graph *graph;
    sx_ctx_init(&cx, (size_t)1 << 26);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    for (uint32_t i = 0; i < SX_COUNT(x); i++) {
        for (uint32_t j = 0; j < SX_COUNT(x); j++) {
            double pair[2] = {x[i], x[j]};
            sx_tensor argument[2] = {{.type = graph->node[0].type, .data = &pair[0]},
                                     {.type = graph->node[1].type, .data = &pair[1]}};
            sx_tensor result[4];
            ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, argument, 2, result, 4));
            for (uint32_t k = 0; k < 4; k++) {
                double got = *(const double *)result[k].data;
                double want = k % 2 == 0 ? fmax(pair[0], pair[1]) : fmin(pair[0], pair[1]);
                bool nan = isnan(pair[0]) || isnan(pair[1]);
                ck_assert(nan ? isnan(got) != 0 : got == want);
            }
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.nan");
    TCase *cases = tcase_create("nan");
    tcase_add_test(cases, test_interpreter_keeps_nan);
    tcase_add_loop_test(cases, test_nan_stays, 0, (int)SX_COUNT(programs));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
