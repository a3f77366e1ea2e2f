/* Races on shared memory alone: every byte has a value, so that nothing else can be found. Each pair of accesses
 * without its barrier is stopped in every order, and passes with it. */
#include <stdio.h>

#include "tests/core/simt/launches.h"

#define HEAD                                                           \
    ".version 7.8\n.target sm_80\n.address_size 64\n"                  \
    ".visible .entry k()\n{\n"                                         \
    ".reg .pred %%p<3>;\n.reg .b32 %%r<16>;\n"                         \
    ".shared .align 4 .b8 part[512];\n"                                \
    "mov.u32 %%r1, %%tid.x;\nmov.u32 %%r2, part;\n"                    \
    "shl.b32 %%r3, %%r1, 2;\nadd.s32 %%r4, %%r2, %%r3;\n"  /* own */   \
    "xor.b32 %%r5, %%r3, %u;\nadd.s32 %%r6, %%r2, %%r5;\n" /* other */ \
    "setp.lt.u32 %%p1, %%r1, 32;\n"                                    \
    "st.shared.u32 [%%r4], %%r1;\nst.shared.u32 [%%r4+256], %%r1;\n"   \
    "bar.sync 0;\n"
#define OTHER_WARP (32 * 4)
#define OTHER_LANE 4

#define READ "ld.shared.u32 %r7, [%r6];\n"
#define WRITE "st.shared.u32 [%r4], %r1;\n"
#define UPDATE "atom.shared.add.u32 %r8, [%r6], 1;\n"

static const struct {
    const char *first, *order, *second;
    uint32_t other;   /* bytes that tell the own element from the other one */
    const char *race; /* what is found; NULL: nothing */
} row[] = {
    {WRITE, "", READ, OTHER_WARP, "race: "},
    {WRITE, "bar.sync 0;\n", READ, OTHER_WARP, NULL},
    {WRITE, "bar.sync 3, 64;\n", READ, OTHER_WARP, NULL},
    {WRITE, "bar.warp.sync 0xffffffff;\n", READ, OTHER_WARP, "race: "},
    {READ, "", WRITE, OTHER_WARP, "race: "},
    {READ, "bar.sync 0;\n", WRITE, OTHER_WARP, NULL},
    {WRITE, "", "st.shared.u32 [%r6], %r1;\n", OTHER_WARP, "race: writes"},
    {WRITE, "bar.sync 0;\n", "st.shared.u32 [%r6], %r1;\n", OTHER_WARP, NULL},
    {WRITE, "", READ, OTHER_LANE, "race: reads"},
    {WRITE, "bar.warp.sync 0xffffffff;\n", READ, OTHER_LANE, NULL},
    {WRITE, "bar.sync 0;\n", READ, OTHER_LANE, NULL},
    {READ, "", WRITE, OTHER_LANE, "race: writes"},
    {READ, "bar.warp.sync 0xffffffff;\n", WRITE, OTHER_LANE, NULL},
    /* Parts of one word are told apart where some access takes a part alone. */
    {"st.shared.u8 [%r4+1], %r1;\n", "", "st.shared.u8 [%r6+2], %r1;\n", OTHER_WARP, NULL},
    {"st.shared.u8 [%r4+3], %r1;\n", "", READ, OTHER_WARP, "race: "},
    {"st.shared.u8 [%r4+3], %r1;\n", "bar.sync 0;\n", READ, OTHER_WARP, NULL},
    {"st.shared.u16 [%r4+2], %r1;\n", "", "ld.shared.u16 %r7, [%r6];\n", OTHER_WARP, NULL},
    {"st.shared.u16 [%r4+2], %r1;\n", "", "ld.shared.u16 %r7, [%r6+2];\n", OTHER_WARP, "race: "},
    /* a shuffle orders no memory */
    {WRITE, "shfl.sync.bfly.b32 %r9, %r1, 1, 31, 0xffffffff;\n", READ, OTHER_LANE, "race: reads"},
    {UPDATE, "", UPDATE, OTHER_WARP, NULL},
    {UPDATE, "", WRITE, OTHER_WARP, "race: "},
    {UPDATE, "bar.sync 0;\n", WRITE, OTHER_WARP, NULL},
    /* The first warp writes and only arrives, the second one waits and reads; not the other way round. */
    {"@%p1 st.shared.u32 [%r4], %r1;\n@%p1 bar.arrive 1, 64;\n@!%p1 bar.sync 1, 64;\n", "",
     "@!%p1 ld.shared.u32 %r7, [%r6];\n", OTHER_WARP, NULL},
    {"@%p1 bar.arrive 1, 64;\n@%p1 st.shared.u32 [%r4], %r1;\n@!%p1 bar.sync 1, 64;\n", "",
     "@!%p1 ld.shared.u32 %r7, [%r6];\n", OTHER_WARP, "race: "},
};

START_TEST(test_pairs)
{
    sx_ctx cx;
    sx_buf text;
    sx_ptx_module *module;
    launches l;
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_buf_init(&text, 4096);
    sx_buf_print(&text, HEAD, row[_i].other);
    sx_buf_put_text(&text, row[_i].first);
    sx_buf_put_text(&text, row[_i].order);
    sx_buf_put_text(&text, row[_i].second);
    sx_buf_put_text(&text, "ret;\n}\n");
    ck_sx_ok(&cx, sx_ptx_parse(&cx, sx_buf_span(&text), &module));
    for (uint64_t seed = 0; seed < 16; seed++) {
        launch_begin(&l, module, "k", (sx_ptx_dim){1, 1, 1}, (sx_ptx_dim){64, 1, 1});
        sx_code code = launch_run(&cx, &l, seed, false);
        if (row[_i].race == NULL) {
            ck_assert_msg(code == SX_OK, "row %d, seed %llu: %s", _i, (unsigned long long)seed,
                          cx.error.text);
            continue;
        }
        ck_assert_msg(code == SX_MISMATCH, "row %d, seed %llu: no race", _i,
                      (unsigned long long)seed);
        ck_assert_msg(strstr(cx.error.text, row[_i].race) != NULL, "row %d: %s", _i, cx.error.text);
        sx_ctx_reset_error(&cx);
    }
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ptx races");
    TCase *tests = tcase_create("races");
    tcase_add_loop_test(tests, test_pairs, 0, (int)SX_COUNT(row));
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
