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

int main(void)
{
    Suite *suite = suite_create("affine");
    TCase *tests = tcase_create("affine");
    tcase_add_loop_test(tests, test_rows, 0, (int)SX_COUNT(row));
    tcase_add_loop_test(tests, test_paths, 0, (int)SX_COUNT(path));
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
