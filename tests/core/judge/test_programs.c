/* Programs written by hand: values that loops carry through memory and registers, reads of what nobody stored,
 * grid points that meet. */
#include "tests/core/judge/try.h"

/* Not proven; proven, with each element stored one time in all; or with some stored more than once. */
typedef enum { WRONG, ONCE, AGAIN } expected;
typedef struct {
    const char *what;
    /* of the one part; elements of the sum of b0 and b1 go to b2, b3 is the workspace */
    const char *body;
    int64_t grid;
    expected verdict;
} program;

static const program programs[] = {
    {"straight",
     "x0 = load b0[0 + 32*v0], 8\nx1 = load b1[0 + 32*v0], 8\nx2 = add x0, x1\nstore b2[0 + "
     "32*v0], x2, 8\n",
     2, ONCE},
    {"by a loop",
     "loop v3 2 {\nx0 = load b0[0 + 32*v3], 8\nx1 = load b1[0 + 32*v3], 8\nx2 = add x0, x1\nstore "
     "b2[0 + 32*v3], x2, 8\n}\n",
     1, ONCE},
    {"exchanged",
     "x0 = load b0[0 + 32*v0], 8\nx1 = load b1[0 + 32*v0], 8\nx2 = add x1, x0\nstore b2[0 + "
     "32*v0], x2, 8\n",
     2, WRONG},
    {"through memory, one iteration inside",
     "loop v3 2 {\nx0 = load b0[0 + 32*v3], 8\nstore b3[0 + 32*v3], x0, 8\nx1 = load b3[0 + "
     "32*v3], 8\nloop v4 "
     "1 {\n"
     "x2 = load b3[0 + 32*v3], 8\nx3 = load b1[0 + 32*v3], 8\nx4 = add x2, x3\nstore b3[0 + "
     "32*v3], x4, 8\n}\n"
     "x5 = load b3[0 + 32*v3], 8\nstore b2[0 + 32*v3], x5, 8\n}\n",
     1, ONCE},
    {"through memory, two iterations inside: b1 is added twice, and the read before the loop is "
     "the same",
     "loop v3 2 {\nx0 = load b0[0 + 32*v3], 8\nstore b3[0 + 32*v3], x0, 8\nx1 = load b3[0 + "
     "32*v3], 8\nloop v4 "
     "2 {\n"
     "x2 = load b3[0 + 32*v3], 8\nx3 = load b1[0 + 32*v3], 8\nx4 = add x2, x3\nstore b3[0 + "
     "32*v3], x4, 8\n}\n"
     "x5 = load b3[0 + 32*v3], 8\nstore b2[0 + 32*v3], x5, 8\n}\n",
     1, WRONG},
    {"the same in a register",
     "loop v3 2 {\nx0 = load b0[0 + 32*v3], 8\nloop v4 2 {\nx3 = load b1[0 + 32*v3], 8\nx0 = add "
     "x0, "
     "x3\n}\nstore b2[0 + 32*v3], x0, 8\n}\n",
     1, WRONG},
    {"an iteration late: the store of the last iteration is read",
     "x0 = load b0[0], 8\nstore b3[0], x0, 8\nloop v3 2 {\nx1 = load b3[0], 8\nx2 = load "
     "b1[0 + 32*v3], 8\nx3 = add x1, x2\n"
     "store b2[0 + 32*v3], x3, 8\nx4 = load b0[32], 8\nstore b3[0], x4, 8\n}\n",
     1, ONCE},
    {"an iteration late, of another element",
     "x0 = load b0[0], 8\nstore b3[0], x0, 8\nloop v3 2 {\nx1 = load b3[0], 8\nx2 = load "
     "b1[0 + 32*v3], 8\nx3 = add x1, x2\n"
     "store b2[0 + 32*v3], x3, 8\nx4 = load b0[0], 8\nstore b3[0], x4, 8\n}\n",
     1, WRONG},
    {"never stored",
     "x0 = load b3[0 + 32*v0], 8\nx1 = load b1[0 + 32*v0], 8\nx2 = add x0, x1\nstore b2[0 + "
     "32*v0], x2, 8\n",
     2, WRONG},
    {"grid points that store the same",
     "x0 = load b0[0], 8\nx1 = load b1[0], 8\nx2 = add x0, x1\nstore b2[0], x2, 8\n"
     "x3 = load b0[32], 8\nx4 = load b1[32], 8\nx5 = add x3, x4\nstore b2[32], x5, 8\n",
     2, WRONG},
    {"overwritten with the right value",
     "x0 = load b0[0 + 32*v0], 8\nstore b2[0 + 32*v0], x0, 8\nx1 = load b2[0 + 32*v0], 8\nx2 = "
     "load b1[0 + 32*v0], "
     "8\nx3 = add x1, x2\n"
     "store b2[0 + 32*v0], x3, 8\n",
     2, AGAIN},
    {"stored by one iteration and again by the next",
     "loop v3 3 {\nx0 = load b0[0 + 32*v0], 8\nx1 = load b1[0 + 32*v0], 8\nx2 = add x0, x1\nstore "
     "b2[0 + 32*v0], x2, 8\n}\n",
     2, AGAIN},
    {"overwritten with the right value in a loop",
     "loop v3 2 {\nx0 = load b0[0 + 32*v3], 8\nstore b2[0 + 32*v3], x0, 8\nx1 = load b2[0 + "
     "32*v3], 8\nx2 = load b1[0 + 32*v3], 8\nx3 = add x1, x2\nstore b2[0 + 32*v3], x3, 8\n}\n",
     1, AGAIN},
    {"overwritten with a wrong value",
     "x0 = load b0[0 + 32*v0], 8\nx2 = load b1[0 + 32*v0], 8\nx3 = add x0, x2\nstore b2[0 + "
     "32*v0], x3, "
     "8\nstore b2[0 + 32*v0], x0, 8\n",
     2, WRONG},
    {"half of it overwritten with a wrong value",
     "x0 = load b0[0 + 32*v0], 8\nx2 = load b1[0 + 32*v0], 8\nx3 = add x0, x2\nstore b2[0 + "
     "32*v0], x3, "
     "8\nstore b2[0 + 32*v0], x0, 4\n",
     2, WRONG},
};

START_TEST(test_programs)
{
    const program *p = &programs[_i];
    sx_ctx cx;
    sx_judge *judge;
    sx_verdict verdict;
    sx_kernel *kernel;
    sx_buf text;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&text, 1 << 20);
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    sx_attr none = {.present = 0};
    sx_type x[2] = {TYPE(SX_F32, 16), TYPE(SX_F32, 16)};
    node n = lift(&cx, SX_OP_ADD, &none, x, 2);
    sx_judge_facts facts = {0};
    sx_buf_print(&text,
                 "kernel \"hand\" lanes 8 numerics 0x0 flops 0 bytes 0 {\nbuffer in 64\nbuffer in "
                 "64\nbuffer out 64\n"
                 "buffer workspace 64\npart %lld 1 1 registers 8 0 0 {\n%s}\n}\n",
                 (long long)p->grid, p->body);
    ck_sx_ok(&cx, sx_kernel_parse(&cx, sx_buf_span(&text), &kernel));
    ck_sx_ok(&cx, sx_judge_kernel(judge, &n.fused, n.input, n.count, &facts, kernel, &verdict));
    ck_assert_msg(verdict.proven == (p->verdict != WRONG), "%s: %s", p->what, verdict.text);
    ck_assert_msg(verdict.once == (p->verdict == ONCE), "%s: stored once?", p->what);
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge/programs");
    TCase *cases = tcase_create("programs");
    tcase_add_loop_test(cases, test_programs, 0, (int)SX_COUNT(programs));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
