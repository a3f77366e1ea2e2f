/* Kernels that are the same but for numbers, and numbers that come with the launch: the interpreter gets from the
 * opened kernel what it gets from the text with these numbers in it. */
#include <stdlib.h>

#include "core/base/rng.h"
#include "core/ptx/numbers.h"
#include "tests/core/simt/launches.h"

static sx_ctx cx;
static sx_rng rng;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
    rng.state = sx_test_seed();
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Thread t adds t * factor to `first` `rounds` times, and stores the sum `stride` bytes from that of the next thread,
 * `offset` bytes behind the begin. The loop is entered by a jump, so that a label stands behind the first lines. */
#define NUMBERS 7u
typedef struct {
    int64_t first, factor, rounds, stride, offset;
} numbers;

static sx_ptx_module *parse(const numbers *n, const char *operation)
{
    static char text[2048];
    (void)snprintf(
        text, sizeof(text),
        ".version 7.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 out)\n{\n"
        ".reg .b32 %%r<4>;\n.reg .b64 %%d<3>;\n.reg .pred %%p<1>;\n"
        "ld.param.u64 %%d0, [out];\nmov.u32 %%r0, %%tid.x;\nmov.b32 %%r1, 0;\n"
        "mov.b32 %%r2, %lld;\nbra L1;\n"
        "L0:\nmad.lo.s32 %%r2, %%r0, %lld, %%r2;\n%s.s32 %%r1, %%r1, 1;\n"
        "L1:\nsetp.lt.s32 %%p0, %%r1, %lld;\n@%%p0 bra L0;\n"
        "mad.wide.u32 %%d1, %%r0, %lld, %%d0;\nst.global.u32 [%%d1+%lld], %%r2;\nret;\n}\n",
        (long long)n->first, (long long)n->factor, operation, (long long)n->rounds,
        (long long)n->stride, (long long)n->offset);
    sx_ptx_module *module;
    ck_sx_ok(&cx, sx_ptx_parse(&cx, sx_span_of(text), &module));
    return module;
}

static numbers draw(void)
{
    return (numbers){.first = (int64_t)sx_rng_below(&rng, 100),
                     .factor = (int64_t)sx_rng_below(&rng, 50) - 25,
                     .rounds = (int64_t)sx_rng_below(&rng, 9),
                     .stride = 4 + 4 * (int64_t)sx_rng_below(&rng, 3),
                     .offset = 4 * (int64_t)sx_rng_below(&rng, 5)};
}

static const char *shape_of(sx_ptx_module *module, int64_t *number)
{
    int64_t *taken;
    bool *offset;
    uint32_t count;
    sx_buf text;
    ck_assert_uint_eq(sx_ptx_count_numbers(&module->kernel[0]), NUMBERS);
    ck_sx_ok(&cx, sx_ptx_take_numbers(&cx, &module->kernel[0], &taken, &offset, &count));
    ck_assert_uint_eq(count, NUMBERS);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        ck_assert_int_eq(offset[i], i == NUMBERS - 1);
    }
    memcpy(number, taken, sizeof(*number) * NUMBERS);
    sx_buf_init(&text, 1 << 16);
    sx_ptx_print(module, &text);
    const char *shape = sx_alloc_text(&cx, sx_buf_span(&text));
    sx_buf_fini(&text);
    return shape;
}

/* Numbers are found in the order of the text; what is left is the same for other numbers, not for other operations. */
START_TEST(test_shapes)
{
    const numbers a = draw(), b = draw();
    int64_t of_a[NUMBERS], of_b[NUMBERS];
    const char *shape = shape_of(parse(&a, "add"), of_a);
    ck_assert_str_eq(shape, shape_of(parse(&b, "add"), of_b));
    ck_assert_str_ne(shape, shape_of(parse(&a, "sub"), of_b));
    const int64_t want[NUMBERS] = {0, a.first, a.factor, 1, a.rounds, a.stride, a.offset};
    for (uint32_t i = 0; i < NUMBERS; i++) {
        ck_assert_int_eq(of_a[i], want[i]);
    }
}
END_TEST

#define THREADS 8
#define WORDS 64
static void run(const sx_ptx_module *module, const int64_t *number, uint32_t count, int32_t *out)
{
    launches l;
    launch_begin(&l, module, "k", (sx_ptx_dim){1, 1, 1}, (sx_ptx_dim){THREADS, 1, 1});
    memset(out, 0, WORDS * sizeof(*out));
    launch_out(&l, "out", out, WORDS * sizeof(*out));
    for (uint32_t i = 0; i < count; i++) {
        l.argument[l.launch.argument_count++].value =
            (sx_span){(const uint8_t *)&number[i], sizeof(number[i])};
    }
    ck_sx_ok(&cx, launch_run(&cx, &l, 0, false));
}

/* Some numbers of one text come with the launch, those of another one; two share a parameter where they are equal. That
 * of an offset is added to what stands there. */
START_TEST(test_numbers_that_come)
{
    numbers from = draw(), to = draw();
    int32_t got[WORDS], want[WORDS];
    to.first = to.factor;
    sx_ptx_module *module = parse(&from, "add");
    static const sx_ptx_coming coming[] = {{1, 0}, {2, 0}, {4, 3}, {5, 1}, {6, 2}};
    const int64_t number[] = {to.factor, to.stride, to.offset - from.offset, to.rounds, -1};
    ck_sx_ok(&cx, sx_ptx_open_numbers(&cx, module, 0, coming, SX_COUNT(coming), SX_COUNT(number)));
    run(module, number, SX_COUNT(number), got);
    run(parse(&to, "add"), NULL, 0, want);
    ck_assert_mem_eq(got, want, sizeof(got));
    for (int64_t t = 0; t < THREADS; t++) { /* by hand */
        ck_assert_int_eq(got[(t * to.stride + to.offset) / 4],
                         to.first + to.rounds * t * to.factor);
    }
    sx_buf text; /* and it is text that reads back */
    sx_buf_init(&text, 1 << 16);
    sx_ptx_print(module, &text);
    ck_sx_ok(&cx, sx_ptx_parse(&cx, sx_buf_span(&text), &module));
    ck_assert_uint_eq(module->kernel[0].parameter_count, 1 + SX_COUNT(number));
    run(module, number, SX_COUNT(number), got);
    ck_assert_mem_eq(got, want, sizeof(got));
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ptx numbers");
    TCase *tests = tcase_create("numbers");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, test_shapes, 0, 10);
    tcase_add_loop_test(tests, test_numbers_that_come, 0, 20);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
