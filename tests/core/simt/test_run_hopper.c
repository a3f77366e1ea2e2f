/* Kernels that nvcc made of CUDA C with the instructions of Hopper, against scalar code: copies of the engine, barriers
 * in shared memory, products of warpgroups, in every order, early and late; and what must be found where one of its
 * parts is wrong. Elements are small integers, so that every sum is exact. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "tests/core/simt/launches.h"

#define KERNELS SX_SOURCE_DIR "/tests/data/ptx/hopper.ptx"
#define ROWS 100
#define COLUMNS 72
#define DEPTH_MAX 328
#define RUNS 6

static sx_ctx cx;
static sx_ptx_module *module;
static launches l;
static uint16_t a[ROWS * DEPTH_MAX], b[COLUMNS * DEPTH_MAX];
static float c[ROWS * COLUMNS], want[ROWS * COLUMNS];

static void setup(void)
{
    const char *made = getenv("SX_PTX_HOPPER"); // of test_run_nvcc.py
    sx_ctx_init(&cx, (size_t)1 << 28);
    module = launch_module(&cx, made == NULL ? KERNELS : made);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* An integer of a few bits as bf16. */
static uint16_t bf16_of(int32_t value)
{
    float exact = (float)value;
    uint32_t bits;
    memcpy(&bits, &exact, sizeof bits);
    ck_assert_uint_eq(bits & 0xFFFF, 0);
    return (uint16_t)(bits >> 16);
}

static float number_of(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static void fill(uint32_t depth, uint64_t seed)
{
    sx_rng rng = {.state = seed};
    for (uint32_t i = 0; i < ROWS * depth; i++) {
        a[i] = bf16_of((int32_t)sx_rng_below(&rng, 15) - 7);
    }
    for (uint32_t i = 0; i < COLUMNS * depth; i++) {
        b[i] = bf16_of((int32_t)sx_rng_below(&rng, 15) - 7);
    }
    for (uint32_t m = 0; m < ROWS; m++) {
        for (uint32_t n = 0; n < COLUMNS; n++) {
            float sum = 0.0F;
            for (uint32_t k = 0; k < depth; k++) {
                sum += number_of(a[m * depth + k]) * number_of(b[n * depth + k]);
            }
            want[m * COLUMNS + n] = sum;
        }
    }
}

static void prepare(const char *kernel, uint32_t depth)
{
    launch_begin(&l, module, kernel, (sx_ptx_dim){2, 2, 1}, (sx_ptx_dim){160, 1, 1});
    launch_in(&l, "a", a, (size_t)ROWS * depth * sizeof *a);
    (void)launch_map(&l, 2, depth, ROWS, 64, 64, 128);
    launch_in(&l, "b", b, (size_t)COLUMNS * depth * sizeof *b);
    (void)launch_map(&l, 2, depth, COLUMNS, 64, 64, 128);
    launch_out(&l, "c", c, sizeof c);
    (void)launch_map(&l, 4, COLUMNS, ROWS, 32, 64, 128);
    launch_number(&l, (depth + 63) / 64);
    l.launch.dynamic_shared_bytes = 49152;
    l.launch.instructions_max = 40000000;
}

static const uint32_t depths[] = {64, 128, 136, 192, 328};

START_TEST(test_products)
{
    uint32_t depth = depths[_i];
    fill(depth, 7 + depth);
    for (uint64_t run = 0; run < RUNS; run++) {
        prepare("ring", depth);
        memset(c, 0, sizeof c);
        ck_sx_ok(&cx, launch_run(&cx, &l, run / 2, run % 2 != 0));
        ck_assert_mem_eq(c, want, sizeof c);
    }
    ck_assert_uint_eq(l.outcome.statistics.op[SX_PTX_OP_CP_TENSOR_LOAD],
                      4 * 2 * ((depth + 63) / 64));
    /* Pairs of f32 on rows of 128 bytes: two passes where one would do. */
    ck_assert_uint_eq(l.outcome.statistics.shared_passes,
                      2 * l.outcome.statistics.shared_passes_least);
}
END_TEST

/* ---- planted faults ---- */
/* The text of the kernel with one thing changed, and how each run of it ends: at a fault with this text, or, `wrong`,
 * with another result in some orders at least. */
typedef struct {
    const char *what, *from, *to;
    uint32_t nth; /* which of them, from 0 */
    const char *fault[3];
} planted;

static const planted faults[] = {
    {"no fence behind the initialisation",
     "fence.mbarrier_init.release.cluster;",
     "",
     0,
     {"does not see the initialisation of the mbarrier"}},
    {"no barrier behind the initialisation",
     "bar.sync \t0;",
     "",
     0,
     {"no mbarrier was initialised", "race: the mbarrier at byte", "race: "}},
    {"a barrier that is not initialised",
     "mbarrier.init.shared::cta.b64 [%r19], %r20;",
     "",
     0,
     {"no mbarrier was initialised at byte"}},
    {"a barrier initialised twice",
     "mbarrier.init.shared::cta.b64 [%r19], %r20;",
     "mbarrier.init.shared::cta.b64 [%r17], %r20;",
     0,
     {"once more"}},
    {"one more arrival expected",
     "mbarrier.init.shared::cta.b64 [%r13], %r20;",
     "mbarrier.init.shared::cta.b64 [%r13], 2;",
     0,
     {"in phase 0: 1 of 2 arrivals and"}},
    {"fewer bytes expected",
     "mov.u32 \t%r143, 16384;",
     "mov.u32 \t%r143, 8192;",
     0,
     {"did not wait for that phase", "deadlock"}},
    {"more bytes expected",
     "mov.u32 \t%r143, 16384;",
     "mov.u32 \t%r143, 16400;",
     0,
     {"0 of 1 arrivals and 16 bytes are missing"}},
    {"no bytes expected",
     "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r151], %r143;",
     "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r151];",
     0,
     {"did not wait for that phase", "arrivals at the mbarrier"}},
    {"the consumer's parity",
     "and.b32  \t%r23, %r30, 1;",
     "not.b32 %r23, %r30; and.b32 %r23, %r23, 1;",
     0,
     {"which nobody wrote", "did not wait for that phase", "deadlock"}},
    {"the producer's parity",
     "and.b32  \t%r141, %r155, 1;",
     "and.b32  \t%r141, %r154, 1;",
     0,
     {"deadlock: waits for parity 0"}},
    {"a wait that is not repeated",
     "bra again;",
     "",
     1,
     {"did not wait for that phase", "which nobody wrote"}},
    {"no wait for the copy",
     "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%r22], %r23;\n@over bra done;\n"
     "bra again;",
     "",
     0,
     {"did not wait for that phase", "which nobody wrote"}},
    {"no wait for the slot",
     "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%r140], %r141;\n@over bra "
     "done;\nbra again;",
     "",
     0,
     {"nobody waited for its group", "did not wait for that phase", "arrivals at the mbarrier"}},
    {"the slot is free too early",
     "wgmma.wait_group.sync.aligned 1;",
     "wgmma.wait_group.sync.aligned 2;",
     0,
     {"nobody waited for its group"}},
    {"the slot is never free",
     "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r60];",
     "",
     0,
     {"deadlock: waits for parity"}},
    {"no fence before the products",
     "wgmma.fence.sync.aligned;",
     "",
     0,
     {"was written after the last wgmma.fence"}},
    {"an accumulator written behind the fence",
     "wgmma.fence.sync.aligned;",
     "wgmma.fence.sync.aligned; mov.f32 %f417, %f417;",
     0,
     {"was written after the last wgmma.fence", "a register of a wgmma that is under way"}},
    {"products that are not committed",
     "wgmma.commit_group.sync.aligned;",
     "",
     0,
     {"nobody waited for its group", "a register of a wgmma that is under way"}},
    {"products that are not waited for",
     "wgmma.wait_group.sync.aligned 0;",
     "",
     0,
     {"a register of a wgmma that is under way"}},
    {"one warp multiplies alone",
     "wgmma.fence.sync.aligned;",
     "setp.lt.u32 %p2, %r3, 32; @%p2 bra $L__BB0_14; wgmma.fence.sync.aligned;",
     0,
     {"the four never meet", "never come here"}},
    {"another swizzle of A",
     "or.b64  \t%rd6, %rd14, 4611686293305360384;",
     "or.b64  \t%rd6, %rd14, -9223371761976836096;",
     0,
     {NULL}},
    {"no swizzle of B",
     "or.b64  \t%rd9, %rd17, 4611686293305360384;",
     "or.b64  \t%rd9, %rd17, 274877972480;",
     0,
     {NULL}},
    {"another stride of B",
     "or.b64  \t%rd9, %rd17, 4611686293305360384;",
     "or.b64  \t%rd9, %rd17, 4611686155866406912;",
     0,
     {NULL}},
    {"a step of K that is missed",
     "add.s32 \t%r42, %r35, 32;",
     "add.s32 \t%r42, %r35, 0;",
     0,
     {NULL}},
    {"A is transposed",
     "%rd6, %rd7, adds, 1, 1, 0, 0;",
     "%rd6, %rd7, adds, 1, 1, 1, 0;",
     0,
     {NULL}},
    {"A is negated", "%rd6, %rd7, adds, 1, 1, 0, 0;", "%rd6, %rd7, adds, -1, 1, 0, 0;", 0, {NULL}},
    {"the first product adds", "selp.u32 \t%r24, 1, 0, %p4;", "mov.u32 %r24, 0;", 0, {NULL}},
    {"no fence before the store",
     "fence.proxy.async.shared::cta;",
     "",
     0,
     {"no fence.proxy.async lies between"}},
    {"no barrier before the store",
     "bar.sync 1, 128;",
     "",
     0,
     {"race: reads byte", "which nobody wrote", "no fence.proxy.async lies between"}},
    {"the fence behind the barrier",
     "fence.proxy.async.shared::cta;\n\tbar.sync 1, 128;",
     "bar.sync 1, 128;",
     0,
     {"no fence.proxy.async lies between"}},
    {"stores that are not committed",
     "cp.async.bulk.commit_group;",
     "",
     0,
     {"ends while a bulk copy of its shared memory is under way"}},
    {"stores that are not waited for",
     "cp.async.bulk.wait_group.read 0;",
     "",
     0,
     {"ends while a bulk copy of its shared memory is under way"}},
    {"an ordinary access to a barrier",
     "wgmma.fence.sync.aligned;",
     "ld.shared.u32 %r27, [%r22]; mov.u32 %r27, 1; wgmma.fence.sync.aligned;",
     0,
     {"which belongs to an mbarrier"}},
    {"a copy to an address that is not aligned",
     "add.s32 \t%r144, %r160, %r153;",
     "add.s32 \t%r144, %r160, %r153; add.s32 %r144, %r144, 64;",
     0,
     {"which 128 does not divide"}},
    {"the address of a map that is none",
     "cvta.param.u64 \t%rd25, %rd3;",
     "mov.b64 %rd25, %rd3;",
     0,
     {"no tensor map lies at address"}},
};

START_TEST(test_planted_faults)
{
    const planted *p = &faults[_i];
    uint32_t found = 0, wrong = 0;
    fill(192, 5);
    module = launch_changed(&cx, KERNELS, p->what, p->from, p->to, p->nth);
    for (uint64_t run = 0; run < 8; run++) {
        prepare("ring", 192);
        l.launch.grid = (sx_ptx_dim){1, 1, 1};
        memset(c, 0, sizeof c);
        sx_code code = launch_run(&cx, &l, run / 2, run % 2 != 0);
        bool known = code == SX_OK;
        for (uint32_t i = 0; i < SX_COUNT(p->fault) && p->fault[i] != NULL; i++) {
            known = known || (code == SX_MISMATCH && strstr(cx.error.text, p->fault[i]) != NULL);
        }
        if (getenv("SX_SHOW") != NULL) {
            (void)printf("%s: %s\n", p->what, code == SX_OK ? "ends" : cx.error.text);
        }
        ck_assert_msg(known, "%s: %s", p->what, cx.error.text);
        found += code == SX_MISMATCH;
        for (uint32_t m = 0; m < 64 && code == SX_OK; m++) {
            if (memcmp(c + m * COLUMNS, want + m * COLUMNS, 64 * sizeof *c) != 0) {
                wrong++;
                break;
            }
        }
        sx_ctx_reset_error(&cx);
    }
    ck_assert_msg(p->fault[0] != NULL ? found == 8 || (p->nth == 1 && found > 0)
                                      : found == 0 && wrong == 8,
                  "%s: %u faults, %u wrong results of 8", p->what, found, wrong);
}
END_TEST

/* ---- one instruction less ---- */
/* Instructions without which the result is the same, and why; by a part of their text. */
static const struct {
    const char *text;
    const char *why;
} survivors[] = {
    {"mov.f32", "the first product of a tile replaces its accumulators, whatever they hold"},
    {"@%p3 bra", "taken where there are no steps only"},
    {"@%p1 bra L3", "then every thread stores the same boxes"},
};

/* Is the kernel as it stands found out, in one of the orders? */
static bool is_killed(void)
{
    for (uint64_t run = 0; run < 6; run++) {
        prepare("ring", 192);
        l.launch.grid = (sx_ptx_dim){1, 1, 1};
        l.launch.instructions_max = 2000000;
        memset(c, 0, sizeof c);
        sx_code code = launch_run(&cx, &l, run, run % 2 != 0);
        ck_assert_msg(code == SX_OK || code == SX_MISMATCH || code == SX_QUOTA, "%s",
                      cx.error.text);
        sx_ctx_reset_error(&cx);
        bool wrong = code != SX_OK;
        for (uint32_t m = 0; m < 64 && !wrong; m++) {
            wrong = memcmp(c + m * COLUMNS, want + m * COLUMNS, 64 * sizeof *c) != 0;
        }
        if (wrong) {
            return true;
        }
    }
    return false;
}

#define SHARDS 64
START_TEST(test_every_deletion)
{
    sx_ptx_kernel *k = &module->kernel[0];
    fill(192, 5);
    ck_assert(!is_killed());
    for (uint32_t i = (uint32_t)_i; i + 1 < k->insn_count; i += SHARDS) {
        sx_ptx_insn whole = k->insn[i];
        sx_buf text;
        bool zero = whole.op == SX_PTX_OP_MOV && i > 0 && k->insn[i - 1].op == SX_PTX_OP_MOV &&
                    whole.modifier[0] == SX_PTX_TYPE_F32;
        if (zero) {
            continue; // accumulators are set to zero one like the other: the first stands for all
        }
        sx_buf_init(&text, 4096);
        sx_ptx_print_insn(module, k, &whole, &text);
        sx_buf_put_u8(&text, 0);
        k->insn[i] = (sx_ptx_insn){.op = SX_PTX_OP_FENCE,
                                   .modifier = {SX_PTX_ORDER_SC, SX_PTX_SCOPE_CTA},
                                   .line = whole.line};
        bool known = is_killed();
        k->insn[i] = whole;
        for (uint32_t n = 0; !known && n < SX_COUNT(survivors); n++) {
            known = strstr((const char *)text.ptr, survivors[n].text) != NULL;
        }
        if (!known && getenv("SX_SHOW") != NULL) {
            (void)printf("line %u %.100s\n", whole.line, (const char *)text.ptr);
            known = true;
        }
        ck_assert_msg(known, "nobody misses line %u, %.100s", whole.line, (const char *)text.ptr);
        sx_buf_fini(&text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ptx of hopper");
    TCase *tests = tcase_create("hopper");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, test_products, 0, (int)SX_COUNT(depths));
    suite_add_tcase(suite, tests);
    TCase *planting = tcase_create("faults");
    tcase_add_checked_fixture(planting, setup, teardown);
    tcase_add_loop_test(planting, test_planted_faults, 0, (int)SX_COUNT(faults));
    suite_add_tcase(suite, planting);
    TCase *deleting = tcase_create("mutants");
    tcase_add_checked_fixture(deleting, setup, teardown);
    tcase_add_loop_test(deleting, test_every_deletion, 0, SHARDS);
    suite_add_tcase(suite, deleting);
    return sx_test_main(suite);
}
