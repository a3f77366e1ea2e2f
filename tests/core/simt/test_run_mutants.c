/* Kernels of another compiler with one instruction left out, exchanged with the next one, or with another immediate:
 * each is stopped at a fault, gives another result or never ends, or it is listed with the reason why its result is the
 * same. What is not found here is a gap of the interpreter. */
#include "tests/core/simt/launches.h"
#include "tests/core/simt/mutants.h"

#define KERNELS SX_SOURCE_DIR "/tests/data/ptx/kernels.ptx"
#define EXTENT 32
#define ELEMENTS 2048

static sx_ctx cx;
static sx_ptx_module *module;
static float a[ELEMENTS], b[ELEMENTS], c[ELEMENTS], want[ELEMENTS];

static sx_ptx_kernel *kernel_of(const char *name)
{
    for (uint32_t i = 0; i < module->kernel_count; i++) {
        if (strcmp(module->kernel[i].name, name) == 0) {
            return &module->kernel[i];
        }
    }
    ck_abort_msg("no kernel %s", name);
}

/* A kernel, its launch, and the mutants whose result is the same. */
typedef struct {
    const char *kernel;
    sx_ptx_dim grid, block;
    size_t bytes; /* of each buffer */
    uint32_t buffers, numbers[3], number_count;
    mutants_same same[12];
} subject;

static const subject subjects[] = {
    {.kernel = "matmul_async",
     .grid = {2, 2, 1},
     .block = {16, 16, 1},
     .bytes = ELEMENTS * sizeof(float),
     .buffers = 3,
     .numbers = {EXTENT, 2 * EXTENT},
     .number_count = 2,
     .same = {{"without", "bra", 1, "taken where the depth is 0 only"},
              {"exchange", "bra", 3, "what stands behind is executed before it is left out"},
              {"immediate", "setp.lt", 1, "the depth is far from it"},
              {"immediate", "mov.u32", 1, "it counts rounds, which are as many"},
              {"immediate", "add.s32", 1, "it counts rounds, which are as many"},
              {"exchange", "mov.f32", 1, "the sum is set to zero behind the branch, too"},
              {"immediate", "bar.sync", 2, "another barrier with the same threads"}}},
    {.kernel = "transpose",
     .grid = {2, 2, 1},
     .block = {32, 8, 1},
     .bytes = 37 * 45 * sizeof(float),
     .buffers = 2,
     .numbers = {37, 45},
     .number_count = 2,
     .same = {{"exchange", "bra", 4, "what stands behind is executed before it is left out"},
              {"immediate", "bar.sync", 1, "another barrier with the same threads"}}},
    {.kernel = "vector_add",
     .grid = {8, 1, 1},
     .block = {128, 1, 1},
     .bytes = 1000 * sizeof(float),
     .buffers = 3,
     .numbers = {1000},
     .number_count = 1,
     .same = {{"exchange", "bra", 1, "what stands behind is executed before it is left out"}}},
};

static void prepare(launches *l, const subject *s)
{
    launch_begin(l, module, s->kernel, s->grid, s->block);
    launch_in(l, "a", a, s->bytes);
    if (s->buffers > 2) {
        launch_in(l, "b", b, s->bytes);
    }
    launch_out(l, "c", c, s->bytes);
    for (uint32_t i = 0; i < s->number_count; i++) {
        launch_number(l, s->numbers[i]);
    }
    l->launch.instructions_max = 4000000;
}

/* Is the kernel as it stands found out, in one of the orders? */
static bool is_killed(const subject *s)
{
    static launches l;
    for (uint64_t order = 0; order < 4; order++) {
        prepare(&l, s);
        memset(c, 0, sizeof c);
        sx_code code = launch_run(&cx, &l, order, order % 2 != 0);
        ck_assert_msg(code == SX_OK || code == SX_MISMATCH || code == SX_QUOTA, "%s",
                      cx.error.text);
        sx_ctx_reset_error(&cx);
        if (code != SX_OK || memcmp(c, want, sizeof c) != 0) {
            return true;
        }
    }
    return false;
}

static const subject *current;

static bool current_is_killed(void *self)
{
    (void)self;
    return is_killed(current);
}

static void check_subject(const subject *s)
{
    sx_ptx_kernel *k = kernel_of(s->kernel);
    static launches l;
    uint32_t same = 0;
    prepare(&l, s);
    memset(c, 0, sizeof c);
    ck_sx_ok(&cx, launch_run(&cx, &l, 0, false));
    memcpy(want, c, sizeof c);
    current = s;
    while (same < SX_COUNT(s->same) && s->same[same].how != NULL) {
        same++;
    }
    mutants m = {.cx = &cx,
                 .module = module,
                 .kernel = (uint32_t)(k - module->kernel),
                 .is_killed = current_is_killed,
                 .same = s->same,
                 .same_count = same,
                 .end = k->insn_count - 1}; /* behind it a thread ends anyway */
    mutants_run(&m);
}

START_TEST(test_every_mutant)
{
    sx_rng rng = {.state = 3};
    sx_ctx_init(&cx, (size_t)1 << 28);
    module = launch_module(&cx, KERNELS);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        a[i] = (float)sx_rng_below(&rng, 9) + 1.0F;
        b[i] = (float)sx_rng_below(&rng, 9) + 1.0F;
    }
    check_subject(&subjects[_i]);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ptx mutants");
    TCase *tests = tcase_create("mutants");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, test_every_mutant, 0, (int)SX_COUNT(subjects));
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
