/* Kernels with one instruction left out: each is stopped at a fault, gives another result or never ends, or it is
 * listed with the reason why its result is the same. What is not found here is a gap of the interpreter. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "tests/core/simt/launches.h"

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

/* A kernel, its launch, and the instructions without which its result is the same. */
typedef struct {
    const char *kernel;
    sx_ptx_dim grid, block;
    size_t bytes; /* of each buffer */
    uint32_t buffers, numbers[3], number_count;
    /* By the text of an instruction: how many of those that begin so may be missed, and why. */
    struct {
        const char *text;
        uint32_t count;
        const char *why;
    } same[6];
} subject;

static const subject subjects[] = {
    {.kernel = "matmul_async",
     .grid = {2, 2, 1},
     .block = {16, 16, 1},
     .bytes = ELEMENTS * sizeof(float),
     .buffers = 3,
     .numbers = {EXTENT, 2 * EXTENT},
     .number_count = 2,
     .same = {{"mov.f32", 2, "the sum is set to zero twice, before and behind the branch"},
              {"@%p1 bra", 1, "taken where the depth is 0 only"}}},
    {.kernel = "transpose",
     .grid = {2, 2, 1},
     .block = {32, 8, 1},
     .bytes = 37 * 45 * sizeof(float),
     .buffers = 2,
     .numbers = {37, 45},
     .number_count = 2},
    {.kernel = "vector_add",
     .grid = {8, 1, 1},
     .block = {128, 1, 1},
     .bytes = 1000 * sizeof(float),
     .buffers = 3,
     .numbers = {1000},
     .number_count = 1},
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

static void check_subject(const subject *s)
{
    sx_ptx_kernel *k = kernel_of(s->kernel);
    uint32_t missed[SX_COUNT(s->same)] = {0};
    static launches l;
    prepare(&l, s);
    memset(c, 0, sizeof c);
    ck_sx_ok(&cx, launch_run(&cx, &l, 0, false));
    memcpy(want, c, sizeof c);
    ck_assert(!is_killed(s));
    for (uint32_t i = 0; i < k->insn_count; i++) {
        sx_ptx_insn whole = k->insn[i];
        sx_buf text;
        if (whole.op == SX_PTX_OP_RET && i + 1 == k->insn_count) {
            continue; // a thread ends there anyway
        }
        sx_buf_init(&text, 4096);
        sx_ptx_print_insn(module, k, &whole, &text);
        sx_buf_put_u8(&text, 0);
        /* Nothing is left where it stood: a branch to the next instruction. */
        k->insn[i] = (sx_ptx_insn){.op = SX_PTX_OP_FENCE,
                                   .modifier = {SX_PTX_ORDER_SC, SX_PTX_SCOPE_CTA},
                                   .line = whole.line};
        bool killed = is_killed(s);
        k->insn[i] = whole;
        bool listed = false;
        for (uint32_t n = 0; !killed && !listed && n < SX_COUNT(s->same) && s->same[n].text != NULL;
             n++) {
            listed = strstr((const char *)text.ptr, s->same[n].text) != NULL &&
                     missed[n]++ < s->same[n].count;
        }
        if (!killed && !listed && getenv("SX_SHOW") != NULL) {
            (void)printf("%s: %u (line %u) %s\n", s->kernel, i, whole.line, (const char *)text.ptr);
            listed = true;
        }
        ck_assert_msg(killed || listed, "%s: nobody misses instruction %u (line %u) %s", s->kernel,
                      i, whole.line, (const char *)text.ptr);
        sx_buf_fini(&text);
    }
    for (uint32_t n = 0; n < SX_COUNT(s->same) && s->same[n].text != NULL; n++) {
        ck_assert_msg(missed[n] == s->same[n].count, "%s: %u of %u times %s are not missed",
                      s->kernel, missed[n], s->same[n].count, s->same[n].text);
    }
}

START_TEST(test_every_deletion)
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
    tcase_add_loop_test(tests, test_every_deletion, 0, (int)SX_COUNT(subjects));
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
