/* Block programs with one instruction left out, exchanged with the next one, or with another immediate: each is stopped
 * at a fault, gives another result or never ends, or is listed with the reason why its result is the same. */
#include "tests/core/simt/mutants.h"
#include "tests/core/nvidia/tiles.h"

#define RUNS 3

static const struct {
    tiles_case c;
    sx_block_tiles plan;
    uint32_t level; /* 0: 80 */
} subjects[] = {
    {.c = {.dtype = SX_F32, .b = 1, .m = 25, .k = 42, .n = 40},
     .plan = {.rows = 16,
              .columns = 32,
              .steps = 8,
              .warp_rows = 16,
              .warp_columns = 16,
              .thread_rows = 2,
              .thread_columns = 4,
              .depth = 3}},
    {.c = {.dtype = SX_BF16, .b = 1, .m = 25, .k = 84, .n = 20},
     .plan = {.matrix_rows = 16,
              .matrix_columns = 8,
              .matrix_steps = 16,
              .rows = 16,
              .columns = 16,
              .steps = 16,
              .warp_rows = 16,
              .warp_columns = 8,
              .depth = 3}},
    /* A block that walks over three tiles, with the copy engine. */
    {.c = {.dtype = SX_BF16, .b = 1, .m = 150, .k = 40, .n = 16, .widened = true},
     .plan = {.matrix_rows = 64,
              .matrix_columns = 8,
              .matrix_steps = 16,
              .rows = 64,
              .columns = 8,
              .steps = 16,
              .warp_rows = 64,
              .warp_columns = 8,
              .depth = 2,
              .stores = 1,
              .walkers = 1},
     .level = 90},
    /* A cluster of two blocks: the first one fetches half of the factor that both share. */
    {.c = {.dtype = SX_BF16, .b = 1, .m = 40, .k = 72, .n = 56, .widened = true},
     .plan = {.matrix_rows = 64,
              .matrix_columns = 32,
              .matrix_steps = 16,
              .rows = 64,
              .columns = 32,
              .steps = 16,
              .warp_rows = 64,
              .warp_columns = 32,
              .depth = 2,
              .cluster_columns = SX_BLOCK_CLUSTER},
     .level = 90},
    /* The same, which walks over three pairs of tiles. */
    {.c = {.dtype = SX_BF16, .b = 1, .m = 40, .k = 40, .n = 48, .widened = true},
     .plan = {.matrix_rows = 64,
              .matrix_columns = 8,
              .matrix_steps = 16,
              .rows = 64,
              .columns = 8,
              .steps = 16,
              .warp_rows = 64,
              .warp_columns = 8,
              .depth = 2,
              .stores = 1,
              .walkers = SX_BLOCK_CLUSTER,
              .cluster_columns = SX_BLOCK_CLUSTER},
     .level = 90},
};

/* Mutants whose results are the same and of which mutants.h derives no reason: what is done, the text of the
 * instruction, how many of each subject, and why. */
static const struct {
    const char *how, *text;
    uint32_t count[SX_COUNT(subjects)];
    const char *why;
} same[] = {
    {"without",
     "add.u32",
     {7, 0, 0, 0},
     "pointers to steps of k that the last stage does not have"},
    {"without", "bra", {1, 1, 0, 0}, "a stage beyond the last is filled, with zeros, and not read"},
    {"exchange", "bra", {2, 2, 0, 0}, "a stage is filled, or waited for, once more"},
    {"exchange", "max.s32", {4, 4, 0, 0}, "bounds from both sides commute"},
    {"immediate", "max.s32", {2, 2, 0, 0}, "columns beyond the edge are summed up, but not stored"},
    {"immediate", "bar.sync", {2, 2, 3, 0, 2}, "another barrier with the same threads"},
    {"immediate", "setp.ge.s32", {1, 1, 0, 0}, "a stage beyond the last is filled and not read"},
    {"immediate", "setp.gt", {3, 2, 0, 12}, "no thread begins so near to the edge"},
    /* Blocks with a copy engine: one that walks, and a cluster. */
    {"without",
     "add.u32",
     {0, 0, 1, 1},
     "a barrier that is noted anew before it is read; there is one row of clusters"},
    {"without", "and.b32", {0, 0, 1, 1, 1}, "bits that no thread of the group has"},
    {"without",
     "ret",
     {0, 0, 1, 1, 1},
     "threads that do not load end where the others begin to load"},
    {"without", "wgmma.fence", {0, 0, 1, 1, 1}, "no thread writes sums before the last stage"},
    {"without", "wgmma.wait_group", {0, 0, 0, 1}, "nobody fills the stage that it frees"},
    {"without",
     "mbarrier.arrive",
     {0, 0, 0, 4},
     "nobody fills the last two stages, of either block"},
    {"without", "mov.b32", {0, 0, 0, 1}, "the stage that it frees is not filled any more"},
    {"exchange", "add.u32", {0, 0, 0, 1}, "there is one row of clusters"},
    {"exchange", "and.b32", {0, 0, 0, 1}, "bits that no thread of the group has"},
    {"exchange",
     "bra",
     {0, 0, 6, 4, 5},
     "what stands behind is done more often, or by more threads, to the same end"},
    {"exchange",
     "fence.proxy",
     {0, 0, 1, 0, 1},
     "the thread that speaks has its fence behind the barrier"},
    {"exchange",
     "mbarrier.init",
     {0, 0, 1, 1, 1},
     "the last barrier is one that the engine does not use"},
    {"exchange", "wgmma.commit_group", {0, 0, 0, 1}, "the wait before it asks for less"},
    {"exchange",
     "wgmma.wait_group",
     {0, 0, 0, 2},
     "nobody fills the stage that is freed behind it"},
    {"exchange", "st.global", {0, 0, 0, 1}, "nobody waits for a result at the end of the cluster"},
    {"immediate", "mul.lo.u32", {0, 0, 0, 1, 2}, "there is one row of clusters"},
    {"exchange",
     "barrier.cluster.arrive",
     {0, 0, 0, 0, 1},
     "the engine reads the last slot before or behind it"},
    {"exchange",
     "cp.async.bulk.wait_group",
     {0, 0, 0, 0, 1},
     "a block ends when both are waited for, in either order"},
    {"immediate",
     "wgmma.wait_group",
     {0, 0, 0, 1},
     "nobody fills the stage that is freed behind it"},
    {"immediate",
     "mbarrier.arrive",
     {0, 0, 0, 2},
     "nobody fills the last two stages, of either block"},
    {"immediate",
     "add.u32",
     {0, 0, 9, 8, 9},
     "the last four bits of an address are in no descriptor"},
    {"immediate", "selp", {0, 0, 2, 1, 2}, "the last four bits of an address are in no descriptor"},
    {"immediate",
     "mov.b32",
     {0, 0, 1, 1, 1},
     "the last four bits of an address are in no descriptor"},
    {"immediate", "and.b32", {0, 0, 1, 0}, "every thread has the engine store the same"},
    {"immediate", "setp.lt", {0, 0, 1, 1, 1}, "no stage begins so near to the end of k"},
    {"immediate", "setp.eq", {0, 0, 2, 1, 2}, "another thread of the four warps speaks"},
    {"immediate",
     "setp.ne",
     {0, 0, 2, 2, 2},
     "another thread of the warp makes the barriers, or loads"},
};

static sx_ctx cx;
static const sx_kernel *kernel;
static sx_ptx_module *module;
static node input;
static uint8_t *want, *got;
static uint64_t most; /* instructions of the whole kernel */

static bool is_killed(void *self)
{
    uint32_t bytes = bytes_of(&input.result);
    (void)self;
    for (uint64_t run = 0; run < RUNS; run++) {
        memset(got, 0xCC, bytes);
        sx_ctx inner;
        sx_ctx_init(&inner, (size_t)1 << 28);
        sx_code code =
            tiles_run_within(&inner, kernel, module, &input, run, run != 1, got, most, NULL);
        sx_ctx_fini(&inner);
        if (code != SX_OK || memcmp(got, want, bytes) != 0) {
            return true;
        }
    }
    return false;
}

/* Where the programs of the elements begin: they are instructions of the loop IR, which others test. */
static uint32_t block_end(void)
{
    const sx_ptx_kernel *k = &module->kernel[0];
    uint32_t last = 0;
    for (uint32_t i = 0; i < k->insn_count; i++) {
        uint8_t unit = sx_ptx_row_of((sx_ptx_op)k->insn[i].op)->unit;
        last = unit == SX_PTX_UNIT_TENSOR || k->insn[i].op == SX_PTX_OP_FMA_F32 ? i : last;
    }
    mutants_registers sums = mutants_registers_of(k, &k->insn[last]);
    for (uint32_t i = last + 1; i < k->insn_count; i++) {
        mutants_registers r = mutants_registers_of(k, &k->insn[i]);
        for (uint32_t n = 0; n < r.count; n++) {
            if (!r.of[n].written && r.of[n].form == sums.of[0].form &&
                r.of[n].id == sums.of[0].id) {
                while (k->insn[i - 1].op ==
                       SX_PTX_OP_MOV) { /* constants of the element's program */
                    i--;
                }
                return i;
            }
        }
    }
    return k->insn_count - 1;
}

START_TEST(test_mutants)
{
    sx_rng rng = {7};
    sx_kernel *made;
    sx_ptx_statistics statistics;
    const uint32_t subject = (uint32_t)_i;
    mutants_same listed[SX_COUNT(same)];
    sx_ctx_init(&cx, (size_t)1 << 30);
    input = tiles_node(&cx, &subjects[subject].c);
    tiles_fill(&cx, &input, &rng, false);
    bool hopper = subjects[subject].level == 90;
    const sx_target *target = hopper ? &sx_target_sm_90 : &sx_target_sm_80;
    sx_code code = tiles_lower(&cx, target, &input, subjects[subject].plan, &made);
    ck_assert_msg(code == SX_OK, "%s", cx.error.text);
    kernel = made;
    module = tiles_module(&cx, kernel, target->machine->level);
    want = exact_buffer(&cx, bytes_of(&input.result));
    got = exact_buffer(&cx, bytes_of(&input.result));
    ck_sx_ok(&cx, tiles_run_within(&cx, kernel, module, &input, 0, false, want, 0, &statistics));
    most = 2 * statistics.thread_insns;
    for (uint32_t n = 0; n < SX_COUNT(same); n++) {
        listed[n] = (mutants_same){same[n].how, same[n].text, same[n].count[subject], same[n].why};
    }
    mutants m = {.cx = &cx,
                 .module = module,
                 .is_killed = is_killed,
                 .same = listed,
                 .same_count = SX_COUNT(listed),
                 .end = hopper ? module->kernel[0].insn_count - 1 : block_end()};
    mutants_run(&m);
    ck_assert_uint_gt(m.tried, 250);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tile mutants");
    TCase *tcase = tcase_create("mutants");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_mutants, 0, (int)SX_COUNT(subjects));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
