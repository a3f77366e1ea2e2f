#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "client/runtime/pool.h"
#include "client/runtime/runtime.h"
#include "tests/lib/gen_module.h"

typedef struct {
    uint8_t *hit;
    uint32_t threads;
} cover;

static void mark(void *self, uint32_t thread, int64_t first, int64_t last)
{
    cover *c = self;
    ck_assert_uint_lt(thread, c->threads);
    for (int64_t i = first; i < last; i++) {
        c->hit[i]++;
    }
}

START_TEST(test_pool_covers_every_point_once)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    static uint8_t hit[3000];
    for (uint32_t threads = 1; threads <= 5; threads++) {
        sxr_pool *pool;
        ck_sx_ok(&cx, sxr_pool_new(&cx, threads, &pool));
        for (int64_t points = 0; points < 300; points += 1 + points / 20) {
            memset(hit, 0, sizeof(hit));
            cover c = {hit, threads};
            sxr_pool_run(pool, mark, &c, points);
            for (int64_t i = 0; i < 3000; i++) {
                ck_assert_uint_eq(hit[i], i < points ? 1 : 0);
            }
        }
        sxr_pool_free(pool);
    }
    sxr_pool *none;
    ck_sx_fails(&cx, sxr_pool_new(&cx, 0, &none), SX_LIMIT, "0 threads");
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_run_touches_every_grid_point)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module(&cx, &bytes);
    sxr_options options = {.threads = 3};
    sxr_program *program;
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), &options, &program));
    float x[4] = {0}, y[SX_GEN_POINTS] = {0};
    ck_sx_fails(&cx, sxr_run(&cx, program, NULL), SX_INPUT, "tensor x is not bound");
    uint32_t input = sxr_find(program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("x"));
    uint32_t output = sxr_find(program, SX_TENSOR_OUTPUT, SX_SPAN_LITERAL("y"));
    ck_sx_fails(&cx, sxr_bind(&cx, program, input, x, 15), SX_INPUT, "15 bytes given, it has 16");
    ck_sx_ok(&cx, sxr_bind(&cx, program, input, x, sizeof(x)));
    ck_sx_ok(&cx, sxr_bind(&cx, program, output, y, sizeof(y)));
    sxr_mxcsr_set(SXR_MXCSR_DEFAULT | 0x8040); /* flush to zero: the runtime must give it back */
    for (uint32_t round = 1; round <= 3; round++) {
        ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
        for (uint32_t i = 0; i < SX_GEN_POINTS; i++) {
            ck_assert_uint_eq((uint32_t)y[i], round);
        }
    }
    ck_assert_uint_eq(sxr_mxcsr_get() & 0x8040u, 0x8040u);
    sxr_mxcsr_set(SXR_MXCSR_DEFAULT);
    sxr_close(program);
    ck_sx_fails(&cx, sxr_open_bytes(&cx, SX_SPAN_LITERAL("garbage"), NULL, &program), SX_CORRUPT,
                "not a module");
    ck_sx_fails(&cx, sxr_open_file(&cx, "/nonexistent.sxm", NULL, &program), SX_INPUT,
                "nonexistent");
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* Checksums are right, but the code holds what no kernel of ours does: it must not be mapped executable. */
START_TEST(test_foreign_code_is_refused)
{
    static const uint8_t foreign[][4] = {{0x0f, 0x05, 0xc3, 0xc3} /* syscall */,
                                         {0xff, 0xe0, 0xc3, 0xc3} /* jmp *rax */,
                                         {0xcd, 0x80, 0xc3, 0xc3} /* int 0x80 */,
                                         {0xeb, 0x7f, 0xc3, 0xc3} /* jump off the blob */};
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_gen_module_tables tables;
    sx_gen_module_make(&tables);
    memcpy(tables.code, foreign[_i], sizeof(foreign[_i]));
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module_encode(&cx, &tables, &bytes);
    sxr_program *program;
    sx_code code = sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, &program);
    ck_assert_msg(code == SX_CORRUPT, "case %d: %s", _i, cx.error.text);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client.runtime");
    TCase *cases = tcase_create("runtime");
    tcase_add_test(cases, test_pool_covers_every_point_once);
    tcase_add_test(cases, test_run_touches_every_grid_point);
    tcase_add_loop_test(cases, test_foreign_code_is_refused, 0, 4);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
