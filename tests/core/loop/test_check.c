/* Illegal kernels, one seeded fault each, are refused with the fact that is wrong; the legal one passes. */
#include "tests/core/loop/harness.h"

static const char legal[] = "kernel \"k\" lanes 8 numerics 0x0 flops 0 bytes 0 {\n"
                            "  buffer in 1024\n"
                            "  buffer out 512\n"
                            "  buffer workspace 64\n"
                            "  part 4 2 1 registers 3 1 3 {\n"
                            "    s0 = sload32 b0[0 + 4*v0]\n"
                            "    s1 = sclamp s0, 16\n"
                            "    s2 = smul s1, 32\n"
                            "    x0 = load b0[512 + s2], 8\n"
                            "    loop v3 4 {\n"
                            "      x1 = load b0[0 + 256*v0 + 8*v1 + 32*v3], 8\n"
                            "      x0 = fma x1, x1, x0\n"
                            "    }\n"
                            "    m0 = cmp x0, x1, 2\n"
                            "    x2 = blend m0, x0, x1\n"
                            "    x2 = swap x2, 4\n"
                            "    store b2[32], x2, 8\n"
                            "    loop v3 2 {\n"
                            "      store b1[0 + 128*v0 + 64*v1 + 32*v3], x2, 8\n"
                            "    }\n"
                            "  }\n"
                            "}\n";

typedef struct {
    const char *from, *to, *error;
} fault;
static const fault faults[] = {
    {"256*v0 + 8*v1", "257*v0 + 160*v1", "load touches bytes [0, 1059) of buffer 0"},
    {"b0[0 + 256*v0", "b0[-1 + 256*v0", "load touches bytes [-1, "},
    {"b0[0 + 256*v0", "b0[0 + -1*v0", "load touches bytes [-3, "},
    {"b0[512 + s2]", "b0[513 + s2]", "load touches bytes [513, 1025) of buffer 0"},
    {"s1 = sclamp s0, 16", "s1 = swrap s0, 16", "load touches bytes"},
    {"sclamp s0, 16", "sclamp s0, 17", "load touches bytes [512, 1056)"},
    {"sclamp s0, 16", "sclamp s0, 0", "sclamp: immediate"},
    {"b1[0 + 128*v0", "b1[1 + 128*v0", "store touches bytes [1, 513) of buffer 1"},
    {"b1[0 + 128*v0", "b0[0 + 128*v0", "store into input buffer 0"},
    {"b1[0 + 128*v0", "b3[0 + 128*v0", "buffer 3 of 3"},
    {"store b2[32], x2, 8", "store b2[33], x2, 8", "store touches bytes [33, 65) of buffer 2"},
    {"x0 = load b0[512 + s2], 8", "x2 = load b0[512 + s2], 8", "register v0 read before"},
    {"x0 = load b0[512 + s2], 8", "x0 = load b0[512 + s1], 9", "load: 9 lanes"},
    {"m0 = cmp x0, x1, 2", "m0 = cmp x0, x1, 6", "cmp: immediate 6"},
    {"m0 = cmp x0, x1, 2", "m0 = mnot m0", "register m0 read before"},
    {"b0[512 + s2]", "b0[512 + s1 + 4*v3]", "variable 3, which is not in scope"},
    {"load b0[512 + s2], 8", "load.i32 b0[512 + s2], 8", "load: 8 lanes"}, /* no such lanes */
    {"store b2[32], x2, 8", "store.u16 b2[49], x2, 8", "store touches bytes [49, 65) of buffer 2"},
    {"x2 = swap x2, 4", "x2 = set 0x100000000", "set: immediate"},
    {"swap x2, 4", "swap x2, 8", "swap: immediate 8"},
    {"swap x2, 4", "swap x2, 3", "swap: immediate 3"},
    {"registers 3 1 3", "registers 2 1 3", "result register v2 of 2"},
    {"store b2[32], x2, 8\n    loop v3 2 {", "loop v3 2 { }\n    loop v3 2 {", "empty loop"},
    {"loop v3 4 {", "loop v4 4 {", "loop over variable 4, expected 3"},
    {"part 4 2 1", "part 5 2 1", "touches bytes"},
    {"part 4 2 1", "part 1099511627776 1099511627776 1", "grid dimension 1"},
    {"loop v3 4 {", "loop v3 1099511627776 {", "touches bytes"},
    {"buffer workspace 64\n", "buffer workspace 64\n  buffer in 4\n", "workspace is buffer 2 of 4"},
    {"buffer in 1024", "buffer in 70368744177665", "70368744177665, allowed 0 to"},
    {"lanes 8", "lanes 4", "4 lanes of 4 bytes"},
    /* the bound of s2 is proved before the loop but lost inside it */
    {"x1 = load b0[0 + 256*v0 + 8*v1 + 32*v3], 8",
     "x1 = load b0[512 + s2], 8 s0 = sload64 b0[0] s2 = smul s0, 4", "load touches bytes"},
};

static void replace(const char *from, const char *to, char *text, size_t size)
{
    const char *at = strstr(legal, from);
    ck_assert_msg(at != NULL, "%s", from);
    (void)snprintf(text, size, "%.*s%s%s", (int)(at - legal), legal, to, at + strlen(from));
}

START_TEST(test_legal_kernel_passes)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_kernel *kernel;
    ck_sx_ok(&cx, sx_kernel_parse(&cx, sx_span_of(legal), &kernel));
    ck_sx_ok(&cx, sx_kernel_check(&cx, kernel));
    sx_ctx_fini(&cx);
}
END_TEST

/* What a kernel with 32 lanes may do and one with 16 may not, and lanes that no kernel has. */
START_TEST(test_lane_counts)
{
    static const struct {
        uint32_t lanes, bytes, access, exchange;
        const char *error;
    } rows[] = {
        {8, 4, 8, 4, NULL},
        {16, 4, 16, 8, NULL},
        {32, 4, 32, 16, NULL},
        {4, 8, 4, 2, NULL},
        {8, 8, 8, 4, NULL},
        {32, 8, 32, 16, NULL},
        {32, 4, 33, 16, "load: 33 lanes"},
        {32, 8, 33, 16, "load: 33 lanes"},
        {32, 4, 32, 32, "swap: immediate 32"},
        {16, 4, 17, 8, "load: 17 lanes"},
        {16, 4, 16, 16, "swap: immediate 16"},
        {64, 4, 4, 4, "64 lanes of 4 bytes, allowed are 8, 16 and 32 of 4, 4, 8 and 32 of 8"},
        {16, 8, 4, 4, "16 lanes of 8 bytes"},
        {24, 4, 4, 4, "24 lanes of 4 bytes"},
        {4, 4, 4, 4, "4 lanes of 4 bytes"},
        {2, 8, 1, 1, "2 lanes of 8 bytes"},
        {32, 2, 4, 4, "32 lanes of 2 bytes"},
        {0, 4, 1, 1, "0 lanes of 4 bytes"},
    };
    for (uint32_t k = 0; k < SX_COUNT(rows); k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 1 << 22);
        sx_kernel *kernel, *of_eight;
        sx_loop_builder b;
        uint32_t none = SX_NO_REG;
        sx_addr a = {.buffer = 0, .index_reg = none};
        sx_code code = sx_kernel_make(&cx, "k", rows[k].lanes, rows[k].bytes, &kernel);
        if (code == SX_OK) {
            (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, 1024);
            sx_loop_begin_part(&b, &cx, kernel, 1, 1, 1);
            uint32_t x = sx_loop_op(&b, SX_LOP_LOAD, none, &a, none, none, none, rows[k].access, 0);
            (void)sx_loop_op(&b, SX_LOP_SWAP, none, NULL, x, none, none, rows[k].exchange, 0);
            ck_sx_ok(&cx, sx_loop_end_part(&b));
            code = sx_kernel_check(&cx, kernel);
        }
        ck_assert_msg((code == SX_OK) == (rows[k].error == NULL), "row %u: %s", k, cx.error.text);
        ck_assert_msg(code == SX_OK || strstr(cx.error.text, rows[k].error) != NULL, "row %u: %s",
                      k, cx.error.text);
        sx_ctx_reset_error(&cx); /* the checker looks for itself */
        ck_sx_ok(&cx, sx_kernel_make(&cx, "k", 8, 4, &of_eight));
        sx_loop_begin_part(&b, &cx, of_eight, 1, 1, 1);
        of_eight->lanes = rows[k].lanes;
        of_eight->lane_bytes = rows[k].bytes;
        bool there = code == SX_OK || strstr(rows[k].error, "lanes of") == NULL;
        ck_assert_msg((sx_kernel_check(&cx, of_eight) == SX_OK) == there, "row %u", k);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_fault_is_refused)
{
    const fault *f = &faults[_i];
    char text[2048];
    replace(f->from, f->to, text, sizeof(text));
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_kernel *kernel;
    sx_code code = sx_kernel_parse(&cx, sx_span_of(text), &kernel);
    if (code == SX_OK) {
        code = sx_kernel_check(&cx, kernel);
    }
    ck_assert_msg(code != SX_OK, "accepted: %s", f->to);
    ck_assert_msg(strstr(cx.error.text, f->error) != NULL, "%s: %s", f->to, cx.error.text);
    sx_ctx_fini(&cx);
}
END_TEST

/* The largest offset that passes is the last that stays inside: the proof is tight at both ends. */
START_TEST(test_bounds_are_tight)
{
    for (uint32_t n = 1; n <= 8; n++) {
        for (int32_t slack = 0; slack <= 1; slack++) {
            sx_ctx cx;
            sx_ctx_init(&cx, 1 << 22);
            sx_kernel *kernel;
            sx_loop_builder b;
            ck_sx_ok(&cx, sx_kernel_make(&cx, "t", 8, 4, &kernel));
            (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, 7 * 9 * 4 + 4 * (int64_t)n - slack);
            sx_loop_begin_part(&b, &cx, kernel, 3, 1, 1);
            uint32_t v = sx_loop_open(&b, 10);
            sx_addr a = {.buffer = 0, .offset = 8, .index_reg = SX_NO_REG};
            a.coef[0] = -4;
            a.coef[v] = 28;
            (void)sx_loop_op(&b, SX_LOP_LOAD, SX_NO_REG, &a, 0, 0, 0, n, 0);
            sx_loop_close(&b);
            ck_sx_ok(&cx, sx_loop_end_part(&b));
            kernel->buffer[0].size += 8;
            ck_assert_int_eq(sx_kernel_check(&cx, kernel), slack == 0 ? SX_OK : SX_INPUT);
            sx_ctx_fini(&cx);
        }
    }
}
END_TEST

START_TEST(test_builder_limits)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)256 << 20);
    sx_kernel *kernel;
    sx_loop_builder b;
    ck_sx_fails(&cx, sx_kernel_make(&cx, "t", 4, 4, &kernel), SX_INPUT, "4 lanes");
    ck_sx_ok(&cx, sx_kernel_make(&cx, "t", 8, 4, &kernel));
    sx_loop_begin_part(&b, &cx, kernel, 1, 1, 1);
    for (uint32_t k = 0; k < 14; k++) {
        (void)sx_loop_open(&b, 2);
    }
    ck_sx_fails(&cx, sx_loop_end_part(&b), SX_LIMIT, "open loops 14, at most 13");
    sx_loop_begin_part(&b, &cx, kernel, 1, 1, 1);
    for (uint32_t k = 0; k <= SX_LOOP_REGS_MAX; k++) {
        (void)sx_loop_vector(&b);
    }
    ck_sx_fails(&cx, sx_loop_end_part(&b), SX_LIMIT, "registers 65537, at most 65536");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.check");
    TCase *cases = tcase_create("check");
    tcase_add_test(cases, test_legal_kernel_passes);
    tcase_add_test(cases, test_lane_counts);
    tcase_add_loop_test(cases, test_fault_is_refused, 0, (int)SX_COUNT(faults));
    tcase_add_test(cases, test_bounds_are_tight);
    tcase_add_test(cases, test_builder_limits);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
