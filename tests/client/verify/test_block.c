/* Block programs in the interpreter: each point of the grid is a block of threads that share memory. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/verify/execute.h"
#include "client/verify/verify.h"
#include "tests/lib/compiled.h"
#include "tests/lib/gen_block.h"

#define POINTS 30
#define ELEMENTS (POINTS * SX_GEN_BLOCK_THREADS)
static const int64_t grid[3] = {2, 3, 5};
static const float one = 1;

static sx_ctx cx;
static sx_buf bytes;
static sxr_program *program;
static sxr_executor executor;
static float x[ELEMENTS], y[ELEMENTS];

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)256 << 20);
    sx_buf_init(&bytes, (size_t)1 << 24);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        x[i] = (float)i;
        y[i] = -1;
    }
}

static void teardown(void)
{
    sxr_executor_fini(&executor);
    sxr_close(program);
    program = NULL;
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}

/* The text with the first `from` in it replaced by `to`. */
static sx_span changed(sx_span text, const char *from, const char *to)
{
    const char *begin = (const char *)text.ptr, *at = strstr(begin, from);
    ck_assert_ptr_nonnull(at);
    sx_buf made;
    sx_buf_init(&made, (size_t)1 << 20);
    sx_buf_put(&made, begin, (size_t)(at - begin));
    sx_buf_put_text(&made, to);
    sx_buf_put_text(&made, at + strlen(from));
    sx_buf_put_u8(&made, 0);
    uint8_t *kept = sx_alloc(&cx, made.len);
    memcpy(kept, made.ptr, made.len);
    sx_span result = {kept, made.len};
    sx_buf_fini(&made);
    return result;
}

static void open_threads(sx_span text, uint32_t shared_bytes, uint32_t threads)
{
    sx_gen_module_tables tables;
    const sxr_options options = {.threads = threads, .any_level = true};
    sx_gen_block_make(grid, shared_bytes, &tables);
    tables.text = text;
    tables.kernel[0].code_size = text.len;
    sx_buf_clear(&bytes);
    sx_gen_module_encode(&cx, &tables, &bytes);
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), &options, &program));
    sxr_executor_fini(&executor);
    ck_sx_ok(&cx, sxr_executor_make(&cx, sx_targets_all(), program, &executor));
    ck_assert_ptr_nonnull(executor.emulator);
}

static void open_with(sx_span text, uint32_t shared_bytes)
{
    open_threads(text, shared_bytes, 1);
}

static sx_code execute(uint8_t *touched, uint64_t instructions_max, bool *whole)
{
    float w = one;
    void *buffer[] = {x, &w, y};
    return touched == NULL
               ? sxr_execute(&executor, 0, buffer)
               : sxr_execute_some(&executor, 0, buffer, instructions_max, touched, whole);
}

START_TEST(test_every_point_is_a_block)
{
    static const uint32_t shared[] = {256, 4096, 163 << 10};
    for (uint32_t s = 0; s < SX_COUNT(shared); s++) {
        open_with(sx_gen_block_text(), shared[s]);
        memset(y, 0, sizeof(y));
        ck_sx_ok(&cx, execute(NULL, 0, NULL));
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            ck_assert_msg(y[i] == sx_gen_block_expected(grid, x, one, i), "element %u", i);
        }
        sxr_close(program);
        program = NULL;
    }
}
END_TEST

/* Some blocks of a grid: what they store is what is said to be touched, and it is right. */
START_TEST(test_some_points)
{
    uint8_t touched[sizeof(y)] = {0};
    bool whole = true;
    uint32_t stored = 0;
    open_with(sx_gen_block_text(), 1024);
    ck_sx_ok(&cx, execute(touched, 300, &whole));
    ck_assert(!whole);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        bool here = touched[4 * i] != 0;
        ck_assert_uint_eq(touched[4 * i + 3], here ? 1 : 0);
        ck_assert(y[i] == (here ? sx_gen_block_expected(grid, x, one, i) : -1));
        ck_assert(here == (touched[4 * (i - i % SX_GEN_BLOCK_THREADS)] != 0)); /* whole blocks */
        stored += here ? 1 : 0;
    }
    ck_assert_uint_gt(stored, SX_GEN_BLOCK_THREADS);
    ck_assert_uint_lt(stored, ELEMENTS / 2);
    ck_assert(touched[0] != 0 && touched[sizeof(y) - 1] != 0); /* the first and the last */
    memset(touched, 0, sizeof(touched));
    ck_sx_ok(&cx, execute(touched, UINT64_MAX, &whole));
    ck_assert(whole && memchr(touched, 0, sizeof(touched)) == NULL);
}
END_TEST

/* Faults of a block program end its interpretation, by name. */
static const struct {
    const char *from, *to;
    uint32_t shared_bytes;
    const char *says;
} fault[] = {
    {"    bar.sync 0;\n", "", 1024, "`ld.shared"},
    {"    cp.async.wait_group 0;\n", "", 1024, "a copy"},
    {"    sub.u32 %r6, %r6, 256;\n", "", 1024, "4 bytes behind its end"},
    {"    sub.u32 %r6, %r6, 256;\n", "    sub.u32 %r6, %r6, 254;\n", 1024,
     "which 4 does not divide"},
    {"", "", 128, "128 bytes before its begin"},
};

START_TEST(test_faults)
{
    sx_span text = sx_gen_block_text();
    open_with(fault[_i].from[0] != '\0' ? changed(text, fault[_i].from, fault[_i].to) : text,
              fault[_i].shared_bytes);
    ck_sx_fails(&cx, execute(NULL, 0, NULL), SX_INTERNAL, fault[_i].says);
}
END_TEST

/* Blocks are shared by threads: what is stored, and which fault is told of where each block has one, follow from the
 * blocks alone. */
START_TEST(test_threads)
{
    static const uint32_t threads[] = {1, 2, 5};
    char told[SX_ERROR_TEXT_MAX];
    for (uint32_t t = 0; t < SX_COUNT(threads); t++) {
        uint8_t touched[sizeof(y)] = {0};
        bool whole;
        uint64_t fuel = cx.fuel;
        memset(y, 0, sizeof(y));
        open_threads(sx_gen_block_text(), 1024, threads[t]);
        ck_sx_ok(&cx, execute(touched, UINT64_MAX, &whole));
        ck_assert(whole && memchr(touched, 0, sizeof(touched)) == NULL);
        ck_assert_uint_lt(cx.fuel, fuel);
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            ck_assert_msg(y[i] == sx_gen_block_expected(grid, x, one, i), "element %u", i);
        }
        sxr_executor_fini(&executor);
        sxr_close(program);
        open_threads(changed(sx_gen_block_text(), fault[2].from, fault[2].to), 1024, threads[t]);
        ck_sx_fails(&cx, execute(touched, UINT64_MAX, &whole), SX_INTERNAL, "block (4,2,1)");
        sx_ctx_reset_error(&cx);
        ck_sx_fails(&cx, execute(NULL, 0, NULL), SX_INTERNAL, "block (0,0,0)");
        if (t == 0) {
            memcpy(told, cx.error.text, sizeof(told));
        }
        ck_assert_str_eq(cx.error.text, told);
        sx_ctx_reset_error(&cx);
        sxr_executor_fini(&executor);
        sxr_close(program);
        program = NULL;
    }
}
END_TEST

/* ---- a block program in place of a kernel of the compiler ---- */

static const char sum_text[] = "sx 1\ngraph \"g\" () {\n"
                               "%x = parameter {name = \"x\", weight = 0} : f32[30, 64]\n"
                               "%c = parameter {name = \"c\", weight = 0} : f32[30, 64]\n"
                               "%y = add(%x, %c) : f32[30, 64]\n"
                               "return %y as \"y\"\n}\n";

/* `covered`: the record says that the blocks that were not run are like those that were. */
static sx_code verify_module(const sx_module *module, const sxr_verify_options *options,
                             bool *covered)
{
    static const char says[] = "which the others are like";
    sx_image image;
    sx_buf_clear(&bytes);
    ck_sx_ok(&cx, sx_module_encode(&cx, module, &bytes));
    sx_image_init(&image);
    sx_code code = sxr_verify(&cx, sx_buf_span(&bytes), options, &image);
    *covered = image.strings.len > 0 &&
               memmem(image.strings.ptr, image.strings.len, says, sizeof(says) - 1) != NULL;
    sx_image_fini(&image);
    return code;
}

/* The text as the block program of y = x + c, in the module that was compiled for that; `walkers` blocks walk. */
static sx_code verify_walk(sx_span text, uint32_t walkers, uint64_t instructions_max, bool *covered)
{
    bool clusters = strstr((const char *)text.ptr, "cluster") != NULL;
    const sx_test_request request = {.text = sum_text, .target = clusters ? "h100" : "a100"};
    const sxr_verify_options options = {
        .seed = 1, .program = sx_span_of(sum_text), .emulated_max = instructions_max};
    sx_module module;
    sx_buf_clear(&bytes);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    void *copy = aligned_alloc(64, (bytes.len + 63) & ~(size_t)63);
    memcpy(copy, bytes.ptr, bytes.len);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module));
    ck_assert_uint_eq(module.kernel_count, 1);
    sx_module_kernel kernel = *module.kernel;
    const sx_module_part part = {.entry = sx_gen_block_entry(),
                                 .grid = {1, 6, 5},
                                 .threads = SX_GEN_BLOCK_THREADS,
                                 .shared_bytes = 512,
                                 .walkers = walkers};
    kernel.part_count = 1;
    module.part_count = 1;
    kernel.code_offset = 0;
    kernel.code_size = module.code_count = text.len;
    module.kernel = &kernel;
    module.part = &part;
    module.code = text.ptr;
    sx_code code = verify_module(&module, &options, covered);
    free(copy);
    return code;
}

static sx_code verify_text(sx_span text, uint64_t instructions_max, bool *covered)
{
    return verify_walk(text, 0, instructions_max, covered);
}

/* `load` is how a thread gets its element of c. */
static sx_code verify_sum(const char *load)
{
    bool covered;
    sx_span text = changed(sx_gen_block_text(), "    ld.global.f32 %f2, [%rd2];\n", load);
    return verify_text(changed(text, "[%r9+252]", "[%r8]"), 0, &covered);
}

START_TEST(test_verification)
{
    ck_sx_ok(&cx, verify_sum("    add.u64 %rd2, %rd2, %rd4;\n    ld.global.f32 %f2, [%rd2];\n"));
    ck_sx_fails(&cx, verify_sum("    ld.global.f32 %f2, [%rd2];\n"), SX_INTERNAL, "");
}
END_TEST

/* ---- some blocks that stand for all ---- */

/* A row of the sum by each block, whose elements are exchanged between its threads. */
static const char rows_text[] = ".version 7.0\n"
                                ".target sm_80\n"
                                ".address_size 64\n"
                                "\n"
                                ".extern .shared .align 1024 .b8 pool[];\n"
                                "\n"
                                ".visible .entry turn(.param .u64 x, .param .u64 w, "
                                ".param .u64 y)\n"
                                ".reqntid 64, 1, 1\n"
                                "{\n"
                                "    .reg .pred %p<4>;\n"
                                "    .reg .b32 %r<16>;\n"
                                "    .reg .b64 %rd<12>;\n"
                                "    .reg .f32 %f<4>;\n"
                                "    ld.param.u64 %rd1, [x];\n"
                                "    ld.param.u64 %rd2, [w];\n"
                                "    ld.param.u64 %rd3, [y];\n"
                                "    mov.u32 %r1, %ctaid.y;\n"
                                "    mov.u32 %r2, %ctaid.x;\n"
                                "    mov.u32 %r3, %tid.x;\n"
                                "    mad.lo.u32 %r4, %r1, 5, %r2;\n"
                                "    mad.lo.u32 %r5, %r4, 64, %r3;\n"
                                "    mul.wide.u32 %rd4, %r5, 4;\n"
                                "    add.u64 %rd5, %rd1, %rd4;\n"
                                "    mov.u32 %r6, pool;\n"
                                "    shl.b32 %r7, %r3, 2;\n"
                                "    add.u32 %r8, %r6, %r7;\n"
                                "    cp.async.ca.shared.global [%r8], [%rd5], 4;\n"
                                "    cp.async.commit_group;\n"
                                "    cp.async.wait_group 0;\n"
                                "    bar.sync 0;\n"
                                "    sub.u32 %r9, %r6, %r7;\n"
                                "    ld.shared.f32 %f1, [%r9+252];\n"
                                "    sub.u32 %r10, 63, %r3;\n"
                                "    mad.lo.u32 %r11, %r4, 64, %r10;\n"
                                "    mul.wide.u32 %rd6, %r11, 4;\n"
                                "    add.u64 %rd7, %rd2, %rd6;\n"
                                "    ld.global.f32 %f2, [%rd7];\n"
                                "    add.rn.f32 %f1, %f1, %f2;\n"
                                "    add.u64 %rd8, %rd3, %rd6;\n"
                                "    setp.lt.u32 %p1, %r4, 30;\n"
                                "    @%p1 st.global.f32 [%rd8], %f1;\n"
                                "    ret;\n"
                                "}\n";

/* What is wrong with it. Refused: SX_INTERNAL with this text; else it is only not said that blocks stand for others. */
static const struct {
    const char *from, *to, *says;
} wrong[] = {
    {"%r1, 5, %r2", "%r1, 4, %r2",
     "each byte of the result once"}, /* an address grows too slowly from block to block */
    {"add.rn.f32 %f1, %f1, %f2", "sub.rn.f32 %f1, %f1, %f2", "element"},
    {"    bar.sync 0;\n", "", "`ld.shared"},
    {"    cp.async.wait_group 0;\n", "", "a copy"},
    {"%p1, %r4, 30", "%p1, %r4, 29", "each byte of the result once"},
    {"setp.lt.u32 %p1, %r4, 30", "setp.lt.u32 %p1, %r2, 4", "each byte of the result once"},
    /* single blocks are wrong that are at no end */
    {"setp.lt.u32 %p1, %r4, 30", "setp.ne.u32 %p1, %r4, 12", NULL},
    {"setp.lt.u32 %p1, %r4, 30", "setp.lt.u32 %p1, %r2, 2", NULL},
    {"    bar.sync 0;\n", "    setp.eq.u32 %p2, %r4, 12;\n    @!%p2 bar.sync 0;\n", NULL},
    {"    mul.wide.u32 %rd6, %r11, 4;\n",
     "    mul.wide.u32 %rd6, %r11, 4;\n    and.b32 %r12, %r4, 8;\n    cvt.u64.u32 %rd9, %r12;\n"
     "    add.u64 %rd6, %rd6, %rd9;\n    sub.u64 %rd6, %rd6, %rd9;\n",
     NULL},
};

START_TEST(test_ends_stand_for_all)
{
    bool covered;
    sx_span text = {(const uint8_t *)rows_text, sizeof(rows_text)};
    ck_sx_ok(&cx, verify_text(text, 1, &covered));
    ck_assert(covered);
    ck_sx_ok(&cx, verify_text(text, 0, &covered)); /* all blocks */
    ck_assert(!covered);
}
END_TEST

START_TEST(test_wrong_blocks)
{
    bool covered;
    sx_span text = {(const uint8_t *)rows_text, sizeof(rows_text)};
    sx_code code = verify_text(changed(text, wrong[_i].from, wrong[_i].to), 1, &covered);
    ck_assert(!covered);
    if (wrong[_i].says != NULL) {
        ck_assert_msg(code == SX_INTERNAL && strstr(cx.error.text, wrong[_i].says) != NULL,
                      "row %d: %s", _i, cx.error.text);
    }
}
END_TEST

/* ---- blocks that walk ---- */

/* The same rows by blocks that walk over them. */
static sx_span walking(void)
{
    static const char *const change[][2] = {
        {"    mov.u32 %r1, %ctaid.y;\n    mov.u32 %r2, %ctaid.x;\n",
         "    mov.f32 %f3, 0f00000000;\n    mov.u32 %r12, %ctaid.x;\nWALK:\n"
         "    div.u32 %r1, %r12, 5;\n    rem.u32 %r2, %r12, 5;\n"},
        {"    ret;\n",
         "    bar.sync 0;\n    mov.u32 %r13, %nctaid.x;\n    add.u32 %r12, %r12, %r13;\n"
         "    setp.lt.u32 %p3, %r12, 30;\n    @%p3 bra WALK;\n    ret;\n"},
        {"    add.rn.f32 %f1, %f1, %f2;\n",
         "    add.rn.f32 %f1, %f1, %f2;\n    add.rn.f32 %f1, %f1, %f3;\n"}};
    sx_span text = {(const uint8_t *)rows_text, sizeof(rows_text)};
    for (uint32_t i = 0; i < SX_COUNT(change); i++) {
        text = changed(text, change[i][0], change[i][1]);
    }
    return text;
}

/* What is wrong with it, how many of its blocks pay for all instructions (0: all), and what is said. */
static const struct {
    const char *from, *to;
    uint64_t instructions_max;
    const char *says;
} wrong_walks[] = {
    /* A point leaves something behind for the next one. Each point alone is right. */
    {"    @%p3 bra WALK;\n", "    mov.f32 %f3, 0f40000000;\n    @%p3 bra WALK;\n", 0, "element"},
    {"    @%p3 bra WALK;\n", "    mov.f32 %f3, 0f40000000;\n    @%p3 bra WALK;\n", 1,
     "stores otherwise than at each of them alone"},
    /* Shared memory is written for the next point while threads read it for this one. */
    {"    bar.sync 0;\n    mov.u32 %r13", "    mov.u32 %r13", 0, "%r9"},
    {"    bar.sync 0;\n    mov.u32 %r13", "    mov.u32 %r13", 1, "%r9"},
    /* Blocks stop early, or go on by another number than theirs. */
    {"setp.lt.u32 %p3, %r12, 30", "setp.lt.u32 %p3, %r12, 20", 0, "element"},
    {"    @%p3 bra WALK;\n", "", 0, "element"},
    {"    @%p3 bra WALK;\n", "", 1, "stores otherwise"},
    {"add.u32 %r12, %r12, %r13", "add.u32 %r12, %r12, 7", 0, "element"},
    /* Another row length than that of the grid: it is still a way to count rows, but none that is followed. */
    {"div.u32 %r1, %r12, 5", "div.u32 %r1, %r12, 6", 0, "element"},
};

START_TEST(test_walk)
{
    bool covered;
    for (uint32_t walkers = 1; walkers < 40; walkers += 9) {
        ck_sx_ok(&cx, verify_walk(walking(), walkers, 1, &covered));
        ck_assert(covered);
        ck_sx_ok(&cx, verify_walk(walking(), walkers, 0, &covered)); /* all points */
        ck_assert(!covered);
        teardown(); /* each compile has a context of its own */
        setup();
    }
}
END_TEST

START_TEST(test_wrong_walks)
{
    bool covered;
    sx_span text = changed(walking(), wrong_walks[_i].from, wrong_walks[_i].to);
    sx_code code = verify_walk(text, 4, wrong_walks[_i].instructions_max, &covered);
    ck_assert_msg(code == SX_INTERNAL && strstr(cx.error.text, wrong_walks[_i].says) != NULL,
                  "row %d: %s", _i, cx.error.text);
}
END_TEST

/* The same by clusters of two blocks, one below the other: each gets its elements from the memory of the other one. */
static sx_span clustered(const char *from, const char *to)
{
    sx_span text = {(const uint8_t *)rows_text, sizeof(rows_text)};
    text = changed(text, ".version 7.0\n.target sm_80\n", ".version 8.0\n.target sm_90\n");
    text = changed(text, ".reqntid 64, 1, 1\n", ".reqntid 64, 1, 1\n.reqnctapercluster 1, 2, 1\n");
    text = changed(text, "    mad.lo.u32 %r5, %r4, 64, %r3;\n",
                   "    mov.u32 %r13, %cluster_ctarank;\n    xor.b32 %r14, %r13, 1;\n"
                   "    sub.u32 %r15, %r1, %r13;\n    add.u32 %r15, %r15, %r14;\n"
                   "    mad.lo.u32 %r15, %r15, 5, %r2;\n    mad.lo.u32 %r5, %r15, 64, %r3;\n");
    text = changed(text, "    bar.sync 0;\n",
                   "    barrier.cluster.arrive;\n    barrier.cluster.wait;\n");
    text = changed(text, "    ld.shared.f32 %f1, [%r9+252];\n",
                   "    mapa.shared::cluster.u32 %r9, %r9, %r14;\n"
                   "    ld.shared::cluster.f32 %f1, [%r9+252];\n"
                   "    barrier.cluster.arrive;\n    barrier.cluster.wait;\n");
    return from == NULL ? text : changed(text, from, to);
}

/* The clusters at the ends stand for all; a block that is wrong is found, or it is not said. */
START_TEST(test_clusters_stand_for_all)
{
    bool covered;
    ck_sx_ok(&cx, verify_text(clustered(NULL, NULL), 1, &covered));
    ck_assert(covered);
    ck_sx_ok(&cx, verify_text(clustered(NULL, NULL), 0, &covered)); /* all blocks */
    ck_assert(!covered);
    (void)verify_text(clustered("setp.lt.u32 %p1, %r4, 30", "setp.ne.u32 %p1, %r4, 12"), 1,
                      &covered);
    ck_assert(!covered);
    sx_ctx_reset_error(&cx);
    ck_sx_fails(&cx, verify_text(clustered("%p1, %r4, 30", "%p1, %r4, 29"), 1, &covered),
                SX_INTERNAL, "each byte of the result once");
    sx_ctx_reset_error(&cx);
}
END_TEST

/* A module whose kernel requires clusters that its grid is no multiple of is not opened. */
START_TEST(test_clusters_that_do_not_fit)
{
    bool covered;
    ck_sx_fails(&cx,
                verify_text(clustered(".reqnctapercluster 1, 2, 1", ".reqnctapercluster 2, 1, 1"),
                            1, &covered),
                SX_CORRUPT, "requires clusters of 2x1x1 blocks");
}
END_TEST

/* ---- products by the copy engine ---- */

static const char product_text[] =
    "sx 1\ngraph \"g\" () {\n"
    "%x = parameter {name = \"x\", weight = 0} : bf16[900, 64]\n"
    "%c = parameter {name = \"c\", weight = 0} : bf16[64, 1080]\n"
    "%y = dot_general(%x, %c) {lhs_contract = [1], rhs_contract = [0]} : bf16[900, 1080]\n"
    "return %y as \"y\"\n}\n";

/* So many tiles that blocks walk, 289 for 132 cores; there are no pairs of them, whatever their size. */
static const char walked_text[] =
    "sx 1\ngraph \"g\" () {\n"
    "%x = parameter {name = \"x\", weight = 0} : bf16[2112, 128]\n"
    "%c = parameter {name = \"c\", weight = 0} : bf16[128, 4160]\n"
    "%y = dot_general(%x, %c) {lhs_contract = [1], rhs_contract = [0]} : bf16[2112, 4160]\n"
    "return %y as \"y\"\n}\n";

/* 306 pairs of tiles, over which clusters of two blocks walk. */
static const char paired_text[] =
    "sx 1\ngraph \"g\" () {\n"
    "%x = parameter {name = \"x\", weight = 0} : bf16[2304, 128]\n"
    "%c = parameter {name = \"c\", weight = 0} : bf16[128, 4352]\n"
    "%y = dot_general(%x, %c) {lhs_contract = [1], rhs_contract = [0]} : bf16[2304, 4352]\n"
    "return %y as \"y\"\n}\n";

/* Verifies the product with the block at every end alone. `moved`: the first index of a block is multiplied by one less
 * than the rows or columns of its tile. */
static sx_code verify_product(const char *of, bool moved, bool *covered)
{
    const sx_test_request request = {.text = of, .target = "h100"};
    const sxr_verify_options options = {
        .seed = 1, .program = sx_span_of(of), .program_flops = 1, .emulated_max = 1};
    sx_module module;
    sx_buf_clear(&bytes);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    void *copy = aligned_alloc(64, (bytes.len + 63) & ~(size_t)63);
    memcpy(copy, bytes.ptr, bytes.len);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module));
    ck_assert(module.map_count == 3 && module.part_count == 1 && module.part->grid[1] > 3 &&
              module.part->grid[2] > 3);
    ck_assert_uint_eq(module.part->walkers, of != product_text ? 132 : 0);
    bool clusters = memmem(module.code, module.code_count, "cluster_ctarank", 15) != NULL;
    ck_assert_int_eq(clusters, of != walked_text);
    char *text = sx_alloc(&cx, module.code_count);
    memcpy(text, module.code, module.code_count);
    char *product = strstr(text, "mul.lo.u32 ");
    ck_assert_ptr_nonnull(product);
    char *digit = strchr(product, ';') - 1;
    ck_assert(*digit > '0' && *digit <= '9');
    *digit = (char)(*digit - (moved ? 1 : 0));
    module.code = (const uint8_t *)text;
    sx_code code = verify_module(&module, &options, covered);
    free(copy);
    return code;
}

START_TEST(test_boxes_of_products)
{
    const char *of = _i == 0 ? product_text : _i == 1 ? walked_text : paired_text;
    bool covered;
    ck_sx_ok(&cx, verify_product(of, false, &covered));
    ck_assert(covered);
    ck_sx_fails(&cx, verify_product(of, true, &covered), SX_INTERNAL, "");
    ck_assert(!covered);
}
END_TEST

/* ---- rows side by side ---- */

/* Two gradients x^T dy of `rows` rows each. */
static char *gradients(int64_t rows)
{
    char *text = sx_alloc(&cx, 2048);
    ck_assert_ptr_nonnull(text);
    (void)snprintf(text, 2048,
                   "sx 1\ngraph \"g\" () {\n"
                   "%%x = parameter {name = \"x\", weight = 0} : bf16[40, %lld]\n"
                   "%%u = parameter {name = \"u\", weight = 0} : bf16[40, %lld]\n"
                   "%%d = parameter {name = \"d\", weight = 0} : bf16[40, 24]\n"
                   "%%e = parameter {name = \"e\", weight = 0} : bf16[40, 24]\n"
                   "%%y = dot_general(%%x, %%d) {lhs_contract = [0], rhs_contract = [0]} : "
                   "bf16[%lld, 24]\n"
                   "%%z = dot_general(%%u, %%e) {lhs_contract = [0], rhs_contract = [0]} : "
                   "bf16[%lld, 24]\n"
                   "return %%y as \"y\", %%z as \"z\"\n}\n",
                   (long long)rows, (long long)rows, (long long)rows, (long long)rows);
    return text;
}

/* Verifies them; `planted`: the second product reads a copy of the rows of the first one. Both are launches of one
 * kernel by wgmma, whose plan is given. */
static sx_code verify_gradients(int64_t rows, bool planted, uint64_t *numerics)
{
    const char *text = gradients(rows);
    const sx_test_request request = {.text = text, .target = "h100"};
    const sxr_verify_options options = {
        .seed = 1, .program = sx_span_of(text), .program_flops = 1e9};
    sx_module module;
    bool covered;
    sx_buf_clear(&bytes);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    void *copy = aligned_alloc(64, (bytes.len + 63) & ~(size_t)63);
    memcpy(copy, bytes.ptr, bytes.len);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module));
    bool copies = rows % 8 != 0;
    ck_assert_uint_eq(sx_test_kernels(&module, SX_MODULE_PACK), copies ? 1 : 0);
    ck_assert_uint_eq(sx_test_kernels(&module, SX_MODULE_CONTRACTION), 1);
    ck_assert_uint_eq(module.launch_count, copies ? 4 : 2);
    const sx_module_kernel *product = &module.kernel[copies ? 1 : 0];
    ck_assert_ptr_nonnull(strstr((const char *)module.code + module.part[product->part_first].entry,
                                 "wgmma.mma_async"));
    *numerics = product->numerics;
    uint32_t *arg = sx_alloc(&cx, module.arg_count * sizeof(*arg));
    memcpy(arg, module.arg, module.arg_count * sizeof(*arg));
    const sx_module_launch *first = &module.launch[0], *third = &module.launch[2 * copies];
    for (uint32_t i = 0; planted && i + 1 < first->arg_count; i++) {
        arg[third->arg_first + i] = arg[first->arg_first + i];
    }
    module.arg = arg;
    sx_code code = verify_module(&module, &options, &covered);
    free(copy);
    return code;
}

/* The same plan for any number of rows; a copy for every launch where the copy engine cannot read them. */
START_TEST(test_rows_side_by_side)
{
    static const int64_t rows[] = {64, 1, 83, 2, 3, 5, 8};
    uint32_t count = SX_SANITIZED ? 3 : SX_COUNT(rows); /* ten times slower there */
    uint64_t plan, numerics;
    for (uint32_t i = 0; i < count; i++) {
        ck_sx_ok(&cx, verify_gradients(rows[i], false, &numerics));
        plan = i == 0 ? numerics : plan;
        ck_assert_msg(numerics == plan, "%lld rows: another plan", (long long)rows[i]);
        teardown(); /* each compile has a context of its own */
        setup();
    }
    ck_sx_fails(&cx, verify_gradients(83, true, &numerics), SX_INTERNAL, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("block");
    TCase *tcase = tcase_create("block");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_clusters_stand_for_all);
    tcase_add_test(tcase, test_clusters_that_do_not_fit);
    tcase_add_test(tcase, test_every_point_is_a_block);
    tcase_add_test(tcase, test_some_points);
    tcase_add_loop_test(tcase, test_faults, 0, (int)SX_COUNT(fault));
    tcase_add_test(tcase, test_threads);
    tcase_add_test(tcase, test_verification);
    tcase_add_test(tcase, test_ends_stand_for_all);
    tcase_add_loop_test(tcase, test_wrong_blocks, 0, (int)SX_COUNT(wrong));
    tcase_add_test(tcase, test_walk);
    tcase_add_loop_test(tcase, test_wrong_walks, 0, (int)SX_COUNT(wrong_walks));
    tcase_add_loop_test(tcase, test_boxes_of_products, 0, 3);
    tcase_add_test(tcase, test_rows_side_by_side);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
