/* Blocks of a cluster in the interpreter: kernels that nvcc made of CUDA C (clusters.cu) against scalar code, and some
 * written by hand (multicast.ptx), in every order, copies early and late; and what must be found where one of their
 * parts is wrong. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "tests/core/simt/launches.h"

#define MADE SX_SOURCE_DIR "/tests/data/ptx/clusters.ptx"
#define BY_HAND SX_SOURCE_DIR "/tests/data/ptx/multicast.ptx"
#define THREADS 64
#define BLOCKS 4
#define ROUNDS 5
#define RUNS 8

static sx_ctx cx;
static launches l;
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

static void fill(uint32_t *at, uint32_t count, uint32_t below)
{
    for (uint32_t i = 0; i < count; i++) {
        at[i] = (uint32_t)sx_rng_below(&rng, below);
    }
}

/* ---- kernels of nvcc ---- */
static sx_ptx_module *made_module(void)
{
    const char *made = getenv("SX_PTX_CLUSTERS"); // of test_run_nvcc.py
    return launch_module(&cx, made == NULL ? MADE : made);
}

START_TEST(test_histogram)
{
    enum { COUNT = 1000, BINS = 64, CLUSTERS = 2 };
    static uint32_t in[COUNT], out[CLUSTERS * 2 * BINS];
    sx_ptx_module *module = made_module();
    fill(in, COUNT, 1 << 20);
    uint32_t often[2 * BINS] = {0};
    for (uint32_t i = 0; i < COUNT; i++) {
        often[in[i] % (2 * BINS)]++;
    }
    for (uint64_t run = 0; run < RUNS; run++) {
        launch_begin(&l, module, "histogram", (sx_ptx_dim){2 * CLUSTERS, 1, 1},
                     (sx_ptx_dim){48, 1, 1});
        launch_in(&l, "in", in, sizeof in);
        launch_out(&l, "out", out, sizeof out);
        launch_number(&l, COUNT);
        memset(out, 0, sizeof out);
        ck_sx_ok(&cx, launch_run(&cx, &l, run, false));
        for (uint32_t i = 0; i < CLUSTERS * 2 * BINS; i++) {
            uint32_t bin = i % (2 * BINS), other = (bin + BINS) % (2 * BINS);
            ck_assert_uint_eq(out[i], often[bin] * 1000 + often[other]);
        }
    }
    ck_assert_uint_eq(l.outcome.statistics.barriers, 3 * CLUSTERS);
}
END_TEST

START_TEST(test_row_sums)
{
    enum { ROWS = 3, COLUMNS = 777 };
    static uint32_t in[ROWS * COLUMNS], out[ROWS];
    static const uint32_t sizes[] = {1, 2, 3, 8, 16};
    uint32_t blocks = sizes[_i];
    sx_ptx_module *module = made_module();
    fill(in, ROWS * COLUMNS, 1 << 16);
    for (uint64_t run = 0; run < RUNS; run++) {
        launch_begin(&l, module, "row_sums", (sx_ptx_dim){ROWS * blocks, 1, 1},
                     (sx_ptx_dim){64, 1, 1});
        l.launch.cluster = (sx_ptx_dim){blocks, 1, 1};
        launch_in(&l, "in", in, sizeof in);
        launch_out(&l, "out", out, sizeof out);
        launch_number(&l, COLUMNS);
        memset(out, 0, sizeof out);
        ck_sx_ok(&cx, launch_run(&cx, &l, run, false));
        for (uint32_t row = 0; row < ROWS; row++) {
            uint32_t sum = 0;
            for (uint32_t i = 0; i < COLUMNS; i++) {
                sum += in[row * COLUMNS + i];
            }
            ck_assert_uint_eq(out[row], sum);
        }
    }
}
END_TEST

/* ---- kernels by hand ---- */
static uint32_t numbers[BLOCKS * THREADS], sums[BLOCKS * THREADS];
static float matrix[ROUNDS * 16 * 32], shared_by[BLOCKS][ROUNDS * 16 * 32];

static void prepare(const sx_ptx_module *module, const char *kernel)
{
    launch_begin(&l, module, kernel, (sx_ptx_dim){BLOCKS, 1, 1}, (sx_ptx_dim){THREADS, 1, 1});
    l.launch.instructions_max = 4000000;
    if (strcmp(kernel, "share") == 0) {
        launch_in(&l, "matrix", matrix, sizeof matrix);
        (void)launch_map(&l, 4, 32, ROUNDS * 16, 32, 8, 0);
        launch_out(&l, "out", shared_by, sizeof shared_by);
        launch_number(&l, ROUNDS);
        return;
    }
    launch_in(&l, "in", numbers, sizeof numbers);
    launch_out(&l, "out", sums, sizeof sums);
}

static void fill_all(void)
{
    fill(numbers, BLOCKS * THREADS, 1 << 20);
    for (uint32_t i = 0; i < SX_COUNT(matrix); i++) {
        matrix[i] = (float)sx_rng_below(&rng, 1 << 20);
    }
}

/* Is the result what it must be? */
static bool is_right(const char *kernel)
{
    bool right = true;
    if (strcmp(kernel, "share") == 0) {
        for (uint32_t b = 0; b < BLOCKS; b++) {
            right = right && memcmp(shared_by[b], matrix, sizeof matrix) == 0;
        }
        return right;
    }
    for (uint32_t i = 0; i < BLOCKS * THREADS; i++) {
        uint32_t own = numbers[i], other = numbers[i ^ THREADS];
        right = right && sums[i] == (strcmp(kernel, "signal") == 0 ? other : other + 2 * own);
    }
    return right;
}

static const char *const kernels[] = {"exchange", "signal", "share"};

START_TEST(test_by_hand)
{
    const char *kernel = kernels[_i];
    sx_ptx_module *module = launch_module(&cx, BY_HAND);
    fill_all();
    for (uint64_t run = 0; run < 2 * RUNS; run++) {
        prepare(module, kernel);
        memset(sums, 0, sizeof sums);
        memset(shared_by, 0, sizeof shared_by);
        ck_sx_ok(&cx, launch_run(&cx, &l, run / 2, run % 2 != 0));
        ck_assert_msg(is_right(kernel), "%s, run %u", kernel, (unsigned)run);
    }
    if (strcmp(kernel, "share") == 0) { // what is multicast is read once
        ck_assert_uint_eq(l.outcome.statistics.op[SX_PTX_OP_CP_TENSOR_LOAD], BLOCKS * ROUNDS);
        ck_assert_uint_eq(l.outcome.statistics.global_read_bytes, BLOCKS / 2 * sizeof matrix);
    }
    /* One cluster alone. */
    prepare(module, kernel);
    l.launch.first_block = 2;
    l.launch.block_count = 2;
    memset(sums, 0, sizeof sums);
    memset(shared_by, 0, sizeof shared_by);
    ck_sx_ok(&cx, launch_run(&cx, &l, 3, false));
    for (uint32_t i = 0; i < 2 * THREADS; i++) {
        ck_assert(sums[i] == 0 && shared_by[0][i] == 0 && shared_by[1][i] == 0);
    }
}
END_TEST

/* ---- planted faults ---- */
typedef struct {
    const char *kernel, *what, *from, *to;
    uint32_t nth; /* which of them, from 0 */
    const char *fault[3];
} planted;

#define FIRST_BARRIER \
    "    barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;\n"
#define ORDERED "    barrier.cluster.arrive.release;\n    barrier.cluster.wait.acquire;\n"
#define LAST "    barrier.cluster.arrive;\n    barrier.cluster.wait;\n"
#define ARRIVE "mbarrier.arrive.release.cluster.shared::cluster.b64 _, "

static const planted faults[] = {
    {"exchange", "the other block may not run yet", FIRST_BARRIER, "", 0, {"may not run yet"}},
    {"exchange", "a race with the other block", ORDERED, "", 0, {"race: ", "nobody wrote"}},
    {"exchange", "the other block may have ended", LAST, "", 0, {"which may have ended"}},
    {"exchange",
     "the barrier hands nothing on",
     "barrier.cluster.arrive.release;",
     "barrier.cluster.arrive.relaxed;",
     0,
     {"race: ", "nobody wrote"}},
    {"exchange",
     "threads that do not arrive",
     LAST,
     "    setp.lt.u32 %p1, %r1, 40;\n    @%p1 barrier.cluster.arrive;\n"
     "    @%p1 barrier.cluster.wait;\nhere:\n    @!%p1 bra here;\n",
     0,
     {"does not end within"}},
    {"exchange",
     "a block that waits elsewhere",
     LAST,
     "    setp.eq.u32 %p1, %r2, 0;\n    @%p1 bar.sync 1, 128;\n" LAST,
     0,
     {"deadlock: barrier 1 waits for 128 threads"}},
    {"exchange",
     "lanes that never come to the aligned barrier",
     FIRST_BARRIER,
     "    setp.lt.u32 %p1, %r1, 8;\n    @%p1 bar.warp.sync 0xffff;\n" FIRST_BARRIER,
     0,
     {"they never meet", "are here and do not agree"}},
    {"exchange",
     "arrives twice",
     LAST,
     "    barrier.cluster.arrive;\n" LAST,
     0,
     {"arrives at the barrier of the cluster twice"}},
    {"exchange",
     "waits without arriving",
     LAST,
     "    barrier.cluster.wait;\n",
     0,
     {"waits at the barrier of the cluster and has not arrived"}},
    {"exchange",
     "an address of the block's own, taken for one of the cluster",
     "st.shared::cluster.u32 [%r10], %r5;",
     "st.shared.u32 [%r10], %r5;",
     0,
     {"behind its end"}},
    {"exchange",
     "a block that there is not",
     "mapa.shared::cluster.u32 %r10, %r8, %r9;",
     "mapa.shared::cluster.u32 %r10, %r8, 2;",
     0,
     {"there is no block 2 in the cluster, which has 2"}},
    {"exchange",
     "no address of shared memory",
     "mapa.shared::cluster.u32 %r10, %r8, %r9;",
     "or.b32 %r8, %r8, 0x40000000; mapa.shared::cluster.u32 %r10, %r8, %r9;",
     0,
     {"is no address of shared memory"}},
    {"exchange",
     "behind the shared memory of the other block",
     "st.shared::cluster.u32 [%r10], %r5;",
     "st.shared::cluster.u32 [%r10+256], %r5;",
     0,
     {"behind its end"}},
    {"signal",
     "the arrival is of the block alone",
     ARRIVE,
     "mbarrier.arrive.shared::cluster.b64 _, ",
     0,
     {"race: "}},
    {"signal",
     "the wait is of the block alone",
     "try_wait.parity.acquire.cluster.shared",
     "try_wait.parity.acquire.cta.shared",
     0,
     {"race: "}},
    {"signal",
     "a barrier that is not initialised",
     "    @%p1 mbarrier.init.shared::cta.b64 [%r13], 64;\n",
     "",
     0,
     {"no mbarrier was initialised at byte 256 of the shared memory of block",
      "no mbarrier was initialised at byte 256 of shared memory"}},
    {"signal",
     "arrivals that are missing",
     "[%r13], 64;",
     "[%r13], 65;",
     0,
     {"deadlock: waits for parity 0 of the mbarrier at byte 256 of shared memory, which is in "
      "phase 0: 1 of 65 arrivals"}},
    {"signal",
     "too few arrivals expected",
     "[%r13], 64;",
     "[%r13], 63;",
     0,
     {"race: ", "arrivals"}},
    {"signal",
     "the arrival before the number",
     "    st.shared::cluster.u32 [%r10], %r5;\n    " ARRIVE "[%r14];\n",
     "    " ARRIVE "[%r14];\n    st.shared::cluster.u32 [%r10], %r5;\n",
     0,
     {"race: ", "nobody wrote"}},
    {"signal", "no barrier behind the initialisation", ORDERED, "", 1, {"may not run yet"}},
    {"signal",
     "waits at the barrier of the other block",
     "again:\n    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r13], 0;",
     "cvt.u64.u32 %rd4, %r13;\n    cvta.shared.u64 %rd4, %rd4;\n    mapa.u64 %rd4, %rd4, %r9;\n"
     "again:\n    mbarrier.try_wait.parity.acquire.cluster.b64 %p2, [%rd4], 0;",
     0,
     {"the mbarrier lies in the shared memory of another block"}},
    {"share",
     "no fence behind the initialisation",
     "fence.mbarrier_init.release.cluster;",
     "",
     0,
     {"does not see the initialisation of the mbarrier"}},
    {"share",
     "no barrier behind the initialisation",
     ORDERED,
     "    bar.sync 0;\n",
     2,
     {"may not run yet"}},
    {"share",
     "the other block gets nothing",
     "mov.b16 %h1, 3;",
     "mov.b16 %h1, 1;",
     0,
     {"deadlock: waits for parity", "race: ", "bytes"}},
    {"share",
     "blocks that there are not",
     "mov.b16 %h1, 3;",
     "mov.b16 %h1, 7;",
     0,
     {"copies to the blocks 0x7, the cluster has 0x3"}},
    {"share",
     "bytes of one block expected",
     "[%r6], 2048;",
     "[%r6], 1024;",
     0,
     {"nobody wrote", "did not wait for that phase", "deadlock"}},
    {"share",
     "the slot is free when one block has read it",
     "    " ARRIVE "[%r9];\n",
     "    " ARRIVE "[%r8];\n",
     0,
     {"arrivals at the mbarrier", "deadlock", "race: "}},
    {"share",
     "one block asks itself alone",
     "mbarrier.init.shared::cta.b64 [%r7], 2;",
     "mbarrier.init.shared::cta.b64 [%r7], 1;",
     0,
     {"race: ", "arrivals at the mbarrier", "deadlock: waits for parity"}},
    {"share",
     "the slot is not waited for",
     "    @%p3 bra fetch;\n",
     "    bra fetch;\n",
     0,
     {"race: ", "arrivals"}},
    {"share", "the other block may have ended", LAST, "", 1, {"which may have ended"}},
    {"share",
     "a mbarrier of another block than the slot",
     "    mov.u32 %r22, 0;\n",
     "    mov.u32 %r22, 0;\n    mov.u32 %r6, full;\n"
     "    xor.b32 %r23, %r2, 1;\n    mapa.shared::cluster.u32 %r6, %r6, %r23;\n",
     0,
     {"its mbarrier lies in another block"}},
};

START_TEST(test_planted_faults)
{
    const planted *p = &faults[_i];
    uint32_t found = 0;
    sx_ptx_module *module = launch_changed(&cx, BY_HAND, p->what, p->from, p->to, p->nth);
    fill_all();
    for (uint64_t run = 0; run < 2 * RUNS; run++) {
        prepare(module, p->kernel);
        memset(sums, 0, sizeof sums);
        memset(shared_by, 0, sizeof shared_by);
        cx.error = (sx_error){.code = SX_OK};
        sx_code code = launch_run(&cx, &l, run / 2, run % 2 != 0);
        bool known = false;
        for (uint32_t i = 0; i < SX_COUNT(p->fault) && p->fault[i] != NULL; i++) {
            known = known || (code != SX_OK && strstr(cx.error.text, p->fault[i]) != NULL);
        }
        if (getenv("SX_SHOW") != NULL) {
            (void)printf("%s: %s\n", p->what, code == SX_OK ? "ends" : cx.error.text);
        }
        ck_assert_msg(known || code == SX_OK, "%s: %s", p->what, cx.error.text);
        found += known;
    }
    ck_assert_msg(found == 2 * RUNS, "%s: found in %u of %u runs", p->what, found, 2 * RUNS);
}
END_TEST

/* ---- launches that are refused ---- */
START_TEST(test_refused)
{
    static const struct {
        const char *kernel;
        sx_ptx_dim grid, cluster;
        uint32_t threads;
        uint64_t first, count;
        sx_code code;
        const char *text;
    } row[] = {
        {"exchange",
         {3, 1, 1},
         {0, 0, 0},
         THREADS,
         0,
         0,
         SX_INPUT,
         "grid 3,1,1: no multiple of clusters of 2,1,1 blocks"},
        {"exchange",
         {4, 1, 1},
         {4, 1, 1},
         THREADS,
         0,
         0,
         SX_INPUT,
         "clusters of 4,1,1 blocks: kernel exchange requires 2,1,1"},
        {"exchange", {4, 1, 1}, {2, 0, 1}, THREADS, 0, 0, SX_INPUT, "requires 2,1,1"},
        {"exchange", {4, 1, 1}, {0, 0, 0}, THREADS, 1, 2, SX_INPUT, "no whole clusters of 2"},
        {"exchange", {4, 1, 1}, {0, 0, 0}, THREADS, 0, 3, SX_INPUT, "no whole clusters of 2"},
        {"row_sums", {32, 1, 1}, {32, 1, 1}, THREADS, 0, 0, SX_LIMIT, "more than 16"},
        {"row_sums", {8, 1, 1}, {8, 1, 1}, 1024, 0, 0, SX_LIMIT, "more than 4096 threads"},
        {"row_sums", {8, 1, 1}, {0, 2, 1}, 64, 0, 0, SX_INPUT, "no multiple of clusters of 0,2,1"},
    };
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        bool made = strcmp(row[i].kernel, "row_sums") == 0;
        prepare(made ? made_module() : launch_module(&cx, BY_HAND), row[i].kernel);
        l.launch.grid = row[i].grid;
        l.launch.cluster = row[i].cluster;
        l.launch.block.x = row[i].threads;
        l.launch.first_block = row[i].first;
        l.launch.block_count = row[i].count;
        cx.error = (sx_error){.code = SX_OK};
        ck_assert_int_eq(launch_run(&cx, &l, 0, false), row[i].code);
        ck_assert_msg(strstr(cx.error.text, row[i].text) != NULL, "%s", cx.error.text);
    }
    sx_ptx_module *old = launch_module(&cx, SX_SOURCE_DIR "/tests/data/ptx/kernels.ptx");
    prepare(old, old->kernel[0].name);
    l.launch.cluster = (sx_ptx_dim){2, 1, 1};
    cx.error = (sx_error){.code = SX_OK};
    ck_assert_int_eq(launch_run(&cx, &l, 0, false), SX_INPUT);
    ck_assert_ptr_nonnull(strstr(cx.error.text, "a target below sm_90 has no clusters"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster");
    TCase *made = tcase_create("clusters");
    tcase_add_checked_fixture(made, setup, teardown);
    tcase_set_timeout(made, 60);
    tcase_add_test(made, test_histogram);
    tcase_add_loop_test(made, test_row_sums, 0, 5);
    suite_add_tcase(suite, made);
    TCase *test = tcase_create("by hand");
    tcase_add_checked_fixture(test, setup, teardown);
    tcase_set_timeout(test, 60);
    tcase_add_loop_test(test, test_by_hand, 0, (int)SX_COUNT(kernels));
    tcase_add_loop_test(test, test_planted_faults, 0, (int)SX_COUNT(faults));
    tcase_add_test(test, test_refused);
    suite_add_tcase(suite, test);
    return sx_test_main(suite);
}
