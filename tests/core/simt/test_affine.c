/* Kernels whose blocks differ by affine addresses alone, and some whose blocks do not; the paths of blocks. */
#include <stdio.h>

#include "tests/core/simt/launches.h"

#define THREADS 32
#define COLUMNS 4
#define ROWS 3
#define ELEMENTS (COLUMNS * ROWS * THREADS)

#define HEAD                                                                           \
    ".version 7.8\n.target sm_80\n.address_size 64\n"                                  \
    ".visible .entry k(.param .u64 x, .param .u64 y)\n{\n"                             \
    ".reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %d<12>;\n"                        \
    ".shared .align 16 .b8 part[256];\n"                                               \
    "ld.param.u64 %d1, [x];\nld.param.u64 %d2, [y];\n"                                 \
    "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ctaid.y;\nmov.u32 %r3, %tid.x;\n"           \
    "mad.lo.u32 %r4, %r2, 4, %r1;\nmul.lo.u32 %r4, %r4, 32;\nadd.u32 %r4, %r4, %r3;\n" \
    "cvt.u64.u32 %d3, %r4;\nshl.b64 %d3, %d3, 2;\n"                                    \
    "add.u64 %d4, %d1, %d3;\nadd.u64 %d5, %d2, %d3;\nmov.b32 %r5, 1;\n"

static const struct {
    const char *text;
    bool affine;
} row[] = {
    {"st.global.u32 [%d5], %r5;\n", true},
    {"ld.global.u32 %r6, [%d4];\nst.global.u32 [%d5], %r6;\n", true},
    {"setp.lt.u32 %p1, %r4, 300;\n@%p1 st.global.u32 [%d5], %r5;\n", true},
    {"setp.ge.s32 %p1, %r4, 300;\n@%p1 bra L;\nst.global.u32 [%d5], %r5;\nL:\n", true},
    {"min.u32 %r7, %r4, 99;\nmul.wide.u32 %d6, %r7, 4;\nadd.u64 %d6, %d6, %d1;\n"
     "ld.global.u32 %r6, [%d6];\n",
     true},
    /* comparisons of equality, and what is no sum of multiples */
    {"setp.eq.u32 %p1, %r1, 2;\n@%p1 st.global.u32 [%d5], %r5;\n", false},
    {"setp.ne.u32 %p1, %r1, 2;\n@%p1 st.global.u32 [%d5], %r5;\n", false},
    {"and.b32 %r7, %r1, 1;\n", false},
    {"xor.b32 %r7, %r1, 1;\n", false},
    {"shr.u32 %r7, %r1, 1;\n", false},
    {"div.u32 %r7, %r1, 2;\n", false},
    {"rem.u32 %r7, %r1, 2;\n", false},
    {"mul.lo.u32 %r7, %r1, %r2;\n", false},
    {"mul.hi.u32 %r7, %r1, 3;\n", false},
    {"shl.b32 %r7, %r5, %r1;\n", false},
    {"cvt.rn.f32.u32 %r7, %r1;\n", false},
    /* the index in what is stored or told, data in addresses and decisions */
    {"st.global.u32 [%d5], %r1;\n", false},
    {"shfl.sync.idx.b32 %r7, %r1, 0, 31, 0xffffffff;\n", false},
    {"ld.global.u32 %r6, [%d4];\nadd.u32 %r6, %r6, %r1;\n", false},
    {"ld.global.u32 %r6, [%d4];\nmul.wide.u32 %d6, %r6, 4;\nadd.u64 %d6, %d6, %d2;\n"
     "st.global.u32 [%d6], %r5;\n",
     false},
    {"ld.global.u32 %r6, [%d4];\nsetp.lt.u32 %p1, %r6, 5;\n@%p1 st.global.u32 [%d5], %r5;\n",
     false},
    /* a register that is written twice is all that it was */
    {"mov.u32 %r8, %r1;\nmov.u32 %r8, 0;\nxor.b32 %r9, %r8, 1;\n", false},
    {"atom.global.add.u32 %r7, [%d5], 1;\n", false},
};

static sx_ctx cx;
static uint32_t x[ELEMENTS], y[ELEMENTS];

static sx_ptx_module *parse(const char *text)
{
    sx_buf made;
    sx_ptx_module *module;
    sx_buf_init(&made, 4096);
    sx_buf_put_text(&made, HEAD);
    sx_buf_put_text(&made, text);
    sx_buf_put_text(&made, "ret;\n}\n");
    ck_sx_ok(&cx, sx_ptx_parse(&cx, sx_buf_span(&made), &module));
    sx_buf_fini(&made);
    return module;
}

static sx_ptx_outcome run(const sx_ptx_module *module, uint64_t block, bool follow)
{
    launches l;
    launch_begin(&l, module, "k", (sx_ptx_dim){COLUMNS, ROWS, 1}, (sx_ptx_dim){THREADS, 1, 1});
    launch_in(&l, "x", x, sizeof x);
    launch_out(&l, "y", y, sizeof y);
    l.region[1].initialised = true;
    l.launch.follow = follow;
    l.launch.first_block = block;
    l.launch.block_count = 1;
    ck_sx_ok(&cx, launch_run(&cx, &l, 0, false));
    return l.outcome;
}

START_TEST(test_rows)
{
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_ptx_outcome outcome = run(parse(row[_i].text), 0, true);
    ck_assert_msg(outcome.affine == row[_i].affine, "row %d", _i);
    ck_assert(!run(parse(row[_i].text), 0, false).affine);
    sx_ctx_fini(&cx);
}
END_TEST

/* Which blocks take the path of the first one: of 12 blocks of 32 elements. */
static const struct {
    const char *text;
    uint32_t same;
} path[] = {
    {"st.global.u32 [%d5], %r5;\n", 0xfff},
    {"setp.lt.u32 %p1, %r4, 320;\n@%p1 st.global.u32 [%d5], %r5;\n", 0x3ff},
    /* the answer belongs to the path also where nobody acts on it, in every thread */
    {"setp.lt.u32 %p1, %r4, 321;\n", 0x3ff},
    {"setp.le.u32 %p1, %r4, 319;\n", 0x3ff},
    {"setp.gt.s32 %p1, %r4, 319;\n", 0x3ff},
    {"setp.ge.s32 %p1, %r4, 320;\n", 0x3ff},
    {"min.u32 %r4, %r4, 64;\n", 0x003},
    {"max.s32 %r7, %r4, 64;\n", 0x003},
    {"setp.lt.u32 %p1, %r1, 2;\n", 0x333},
};

START_TEST(test_paths)
{
    sx_ctx_init(&cx, (size_t)1 << 26);
    const sx_ptx_module *module = parse(path[_i].text);
    uint64_t first = run(module, 0, true).path;
    for (uint32_t b = 0; b < COLUMNS * ROWS; b++) {
        bool same = run(module, b, true).path == first;
        ck_assert_msg(same == ((path[_i].same >> b & 1) != 0), "row %d, block %u", _i, b);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- blocks along one dimension, which divide ---- */
/* Of 3 x 5 x 4 points. %r8 and %r9 are the last index and what is left. */
#define WALK_HEAD                                                                            \
    "mov.u32 %r7, %r1;\nW:\nrem.u32 %r8, %r7, 4;\ndiv.u32 %r9, %r7, 4;\n"                    \
    "rem.u32 %r10, %r9, 5;\ndiv.u32 %r11, %r9, 5;\nmad.lo.u32 %r12, %r11, 5, %r10;\n"        \
    "mad.lo.u32 %r12, %r12, 4, %r8;\nmul.lo.u32 %r12, %r12, 32;\nadd.u32 %r12, %r12, %r3;\n" \
    "mul.wide.u32 %d6, %r12, 4;\nadd.u64 %d6, %d6, %d2;\nst.global.u32 [%d6], %r5;\n"
#define WALK_TAIL "mov.u32 %r13, %nctaid.x;\nadd.u32 %r7, %r7, %r13;\n"
#define POINTS (3 * 5 * 4)
static const struct {
    const char *text;
    uint32_t blocks;
    bool affine; /* of the last block */
} divided[] = {
    {WALK_HEAD, POINTS, true},
    {WALK_HEAD WALK_TAIL "setp.lt.u32 %p1, %r7, 60;\n@%p1 bra W;\n", POINTS, true},
    /* a block with two points has no indices of its own */
    {WALK_HEAD WALK_TAIL "setp.lt.u32 %p1, %r7, 60;\n@%p1 bra W;\n", POINTS / 2, false},
    {WALK_HEAD "div.u32 %r14, %r7, 20;\n", POINTS, true},
    {WALK_HEAD "rem.u32 %r14, %r7, 20;\n", POINTS, true},
    {WALK_HEAD "div.u32 %r14, %r7, 60;\n", POINTS, true},
    /* by other numbers; of what is not the number of the block */
    {WALK_HEAD "div.u32 %r14, %r7, 5;\n", POINTS, false},
    {WALK_HEAD "rem.u32 %r14, %r7, 5;\n", POINTS, false},
    {WALK_HEAD "rem.u32 %r14, %r9, 2;\n", POINTS, false},
    {WALK_HEAD "div.u32 %r14, %r8, 2;\n", POINTS, false},
    {WALK_HEAD "add.u32 %r14, %r7, 1;\ndiv.u32 %r14, %r14, 4;\n", POINTS, false},
    {WALK_HEAD "mul.lo.u32 %r14, %r7, 2;\ndiv.u32 %r14, %r14, 4;\n", POINTS, false},
    {WALK_HEAD "div.u32 %r14, %r7, %r5;\n", POINTS, false},
};

START_TEST(test_divided)
{
    static uint32_t out[POINTS * THREADS];
    uint64_t taken[2] = {0};
    sx_ctx_init(&cx, (size_t)1 << 26);
    const sx_ptx_module *module = parse(divided[_i].text);
    for (uint32_t i = 0; i < 3; i++) { /* the last time it is not said what the points are */
        launches l;
        launch_begin(&l, module, "k", (sx_ptx_dim){divided[_i].blocks, 1, 1},
                     (sx_ptx_dim){THREADS, 1, 1});
        launch_in(&l, "x", x, sizeof x);
        launch_out(&l, "y", out, sizeof out);
        l.region[1].initialised = true;
        l.launch.follow = true;
        l.launch.points[0] = i < 2 ? 3 : 0;
        l.launch.points[1] = i < 2 ? 5 : 0;
        l.launch.points[2] = i < 2 ? 4 : 0;
        l.launch.first_block = i == 0 ? 7 : divided[_i].blocks - 1;
        l.launch.block_count = 1;
        ck_sx_ok(&cx, launch_run(&cx, &l, 0, false));
        ck_assert_msg(l.outcome.affine == (i < 2 && divided[_i].affine), "row %d, run %u", _i, i);
        taken[i % 2] = i < 2 ? l.outcome.path : taken[i % 2];
    }
    ck_assert(!divided[_i].affine || taken[0] == taken[1]);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- boxes of the copy engine ---- */

/* A box of 32 columns and a row, which a phase of an mbarrier waits for. */
#define BOX_HEAD                                                                        \
    ".version 8.0\n.target sm_90a\n.address_size 64\n"                                  \
    ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 y)\n{\n"              \
    ".reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %d<12>;\n"                         \
    ".shared .align 1024 .b8 box[1024];\n.shared .align 8 .b8 bar[8];\n"                \
    "ld.param.u64 %d2, [y];\nmov.b64 %d1, map;\ncvta.param.u64 %d1, %d1;\n"             \
    "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ctaid.y;\nmov.u32 %r3, %tid.x;\n"            \
    "shl.b32 %r4, %r1, 5;\nmov.b32 %r5, box;\nmov.b32 %r6, bar;\n"                      \
    "setp.ne.u32 %p1, %r3, 0;\n@%p1 bra L0;\nmbarrier.init.shared::cta.b64 [%r6], 1;\n" \
    "fence.mbarrier_init.release.cluster;\n"                                            \
    "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r6], 128;\n"
#define BOX_TAIL                                                                           \
    "L0:\nbar.sync 0;\nL1:\n"                                                              \
    "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r6], 0;\n@!%p2 bra L1;\n" \
    "mad.lo.u32 %r7, %r3, 4, %r5;\nld.shared.u32 %r8, [%r7];\n"
#define COPY(at, x_, y_)                                                               \
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [" at \
    "], [%d1, {" x_ ", " y_ "}], [%r6];\n"

static sx_ptx_outcome run_box(const char *text, uint32_t columns, uint32_t rows, uint64_t block,
                              bool lazy)
{
    sx_buf made;
    sx_ptx_module *module;
    launches l;
    sx_buf_init(&made, 8192);
    sx_buf_put_text(&made, BOX_HEAD);
    sx_buf_put_text(&made, text);
    sx_buf_put_text(&made, BOX_TAIL "ret;\n}\n");
    ck_sx_ok(&cx, sx_ptx_parse(&cx, sx_buf_span(&made), &module));
    sx_buf_fini(&made);
    launch_begin(&l, module, "k", (sx_ptx_dim){COLUMNS, ROWS, 1}, (sx_ptx_dim){THREADS, 1, 1});
    launch_in(&l, "x", x, sizeof x);
    (void)launch_map(&l, 4, columns, rows, THREADS, 1, 0);
    launch_out(&l, "y", y, sizeof y);
    l.region[1].initialised = true;
    l.launch.follow = true;
    l.launch.first_block = block;
    l.launch.block_count = 1;
    ck_sx_ok(&cx, launch_run(&cx, &l, 0, lazy));
    return l.outcome;
}

static const struct {
    const char *text;
    bool affine;
} box_row[] = {
    {COPY("%r5", "%r4", "%r2"), true},
    {"sub.u32 %r4, %r4, 16;\n" COPY("%r5", "%r4", "%r2"), true},
    /* coordinates that are no sums of multiples, or data; a place in shared memory, bytes and phases of the block */
    {"shr.u32 %r9, %r1, 1;\n" COPY("%r5", "%r9", "%r2"), false},
    {"ld.global.u32 %r9, [%d2];\n" COPY("%r5", "%r9", "%r2"), false},
    {"mad.lo.u32 %r9, %r1, 128, %r5;\n" COPY("%r9", "%r4", "%r2"), false},
    {COPY("%r5", "%r4", "%r2") "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r6], %r1;\n",
     false},
};

START_TEST(test_boxes)
{
    sx_ctx_init(&cx, (size_t)1 << 26);
    ck_assert_msg(run_box(box_row[_i].text, 128, 3, 0, false).affine == box_row[_i].affine,
                  "row %d", _i);
    sx_ctx_fini(&cx);
}
END_TEST

/* Which blocks take the path of the first one, by what of their boxes is outside. */
static const struct {
    const char *text;
    uint32_t columns, rows, same;
} box_path[] = {
    {COPY("%r5", "%r4", "%r2"), 128, 3, 0xfff},
    {COPY("%r5", "%r4", "%r2"), 100, 3, 0x777},
    {COPY("%r5", "%r4", "%r2"), 96, 3, 0x777},
    {COPY("%r5", "%r4", "%r2"), 128, 2, 0x0ff},
    {COPY("%r5", "%r4", "%r2"), 64, 1, 0x003},
    {"sub.u32 %r4, %r4, 16;\n" COPY("%r5", "%r4", "%r2"), 128, 3, 0x111},
};

START_TEST(test_paths_of_boxes)
{
    sx_ctx_init(&cx, (size_t)1 << 26);
    uint32_t columns = box_path[_i].columns, rows = box_path[_i].rows;
    for (uint32_t lazy = 0; lazy < 2; lazy++) {
        uint64_t first = run_box(box_path[_i].text, columns, rows, 0, lazy != 0).path;
        for (uint32_t b = 0; b < COLUMNS * ROWS; b++) {
            bool same = run_box(box_path[_i].text, columns, rows, b, lazy != 0).path == first;
            ck_assert_msg(same == ((box_path[_i].same >> b & 1) != 0), "row %d, block %u", _i, b);
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("affine");
    TCase *tests = tcase_create("affine");
    tcase_add_loop_test(tests, test_rows, 0, (int)SX_COUNT(row));
    tcase_add_loop_test(tests, test_divided, 0, (int)SX_COUNT(divided));
    tcase_add_loop_test(tests, test_paths, 0, (int)SX_COUNT(path));
    tcase_add_loop_test(tests, test_boxes, 0, (int)SX_COUNT(box_row));
    tcase_add_loop_test(tests, test_paths_of_boxes, 0, (int)SX_COUNT(box_path));
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
