/* Verdicts that theory dictates, legal and illegal, each illegal one with the violated dependence printed. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/poly/poly.h"

enum { I = 0, J = 1, K = 2 };

static sx_affine var(uint32_t d)
{
    sx_affine form = {0};
    form.coef[d] = 1;
    return form;
}
static sx_affine minus(uint32_t d)
{
    sx_affine form = {0};
    form.coef[d] = -1;
    return form;
}
static sx_affine constant(int64_t value)
{
    return (sx_affine){.constant = value};
}
static sx_affine tile(uint32_t d, int64_t size)
{
    sx_affine form = var(d);
    form.div = size;
    return form;
}
static sx_affine flat(int64_t a, uint32_t d, int64_t b, uint32_t e)
{
    sx_affine form = {0};
    form.coef[d] += a;
    form.coef[e] += b;
    return form;
}
static void set(sx_affine *time, uint32_t count, const sx_affine *forms)
{
    memcpy(time, forms, count * sizeof(*forms));
}
static void touch(sx_poly_statement *s, uint32_t array, bool write, sx_affine index)
{
    s->access[s->access_count++] = (sx_poly_access){.array = array, .write = write, .index = index};
}

#define M 512
#define N 768
#define KK 1024
/* A: C = 0; C += A B; C += bias; C = relu C over 512 x 768 x 1024; arrays 0 A, 1 B, 2 C, 3 bias */
static void matmul(sx_poly_program *p)
{
    memset(p, 0, sizeof(*p));
    p->statement_count = 4;
    p->order_dims = 4;
    sx_affine c = flat(N, I, 1, J);
    for (uint32_t n = 0; n < 4; n++) {
        sx_poly_statement *s = &p->statement[n];
        (void)snprintf(s->name, sizeof(s->name), "S%u", n);
        s->rank = n == 1 ? 3 : 2;
        s->extent[0] = M;
        s->extent[1] = N;
        s->extent[2] = KK;
        set(s->order, 4, (sx_affine[]){constant(n), var(I), var(J), n == 1 ? var(K) : constant(0)});
        touch(s, 2, true, c);
        if (n > 0) {
            touch(s, 2, false, c);
        }
    }
    p->statement[1].reduction = true;
    touch(&p->statement[1], 0, false, flat(KK, I, 1, K));
    touch(&p->statement[1], 1, false, flat(N, K, 1, J));
    touch(&p->statement[2], 3, false, var(J));
}

typedef struct {
    const char *name;
    bool legal;
    bool licence;
    uint32_t dims;
    uint32_t parallel;
    sx_affine time[4][8];
} candidate;

START_TEST(test_matmul_candidates)
{
    const sx_affine z = constant(0), one = constant(1), two = constant(2), three = constant(3);
    const candidate list[] = {
        {"tile 64x64x32, epilogue after",
         true,
         false,
         7,
         0,
         {{tile(I, 64), tile(J, 64), z, z, var(I), var(J), z},
          {tile(I, 64), tile(J, 64), one, tile(K, 32), var(I), var(J), var(K)},
          {tile(I, 64), tile(J, 64), two, z, var(I), var(J), z},
          {tile(I, 64), tile(J, 64), two, z, var(I), var(J), one}}},
        {"row and column tiles to threads",
         true,
         false,
         7,
         3,
         {{tile(I, 64), tile(J, 64), z, z, var(I), var(J), z},
          {tile(I, 64), tile(J, 64), one, tile(K, 32), var(I), var(J), var(K)},
          {tile(I, 64), tile(J, 64), two, z, var(I), var(J), z},
          {tile(I, 64), tile(J, 64), two, z, var(I), var(J), one}}},
        {"relu inside the k loop",
         false,
         false,
         4,
         0,
         {{var(I), var(J), z, z},
          {var(I), var(J), var(K), one},
          {var(I), var(J), constant(KK), z},
          {var(I), var(J), constant(5), two}}},
        {"epilogue after the k loop, same i and j",
         true,
         false,
         4,
         0,
         {{var(I), var(J), z, z},
          {var(I), var(J), one, var(K)},
          {var(I), var(J), two, z},
          {var(I), var(J), three, z}}},
        {"relu before bias",
         false,
         false,
         4,
         0,
         {{var(I), var(J), z, z},
          {var(I), var(J), one, var(K)},
          {var(I), var(J), three, z},
          {var(I), var(J), two, z}}},
        {"k reversed",
         false,
         false,
         4,
         0,
         {{var(I), var(J), z, z},
          {var(I), var(J), one, minus(K)},
          {var(I), var(J), two, z},
          {var(I), var(J), three, z}}},
        {"k reversed with the licence to reassociate",
         true,
         true,
         4,
         0,
         {{var(I), var(J), z, z},
          {var(I), var(J), one, minus(K)},
          {var(I), var(J), two, z},
          {var(I), var(J), three, z}}},
        {"i reversed",
         true,
         false,
         4,
         0,
         {{minus(I), var(J), z, z},
          {minus(I), var(J), one, var(K)},
          {minus(I), var(J), two, z},
          {minus(I), var(J), three, z}}},
        {"k outermost, initialisation before, epilogue after",
         true,
         false,
         4,
         0,
         {{z, z, var(I), var(J)},
          {one, var(K), var(I), var(J)},
          {two, z, var(I), var(J)},
          {three, z, var(I), var(J)}}},
        {"parts of k at the same time (split-K)",
         false,
         false,
         5,
         1,
         {{z, var(I), var(J), z, z},
          {tile(K, 256), var(I), var(J), one, var(K)},
          {z, var(I), var(J), two, z},
          {z, var(I), var(J), three, z}}},
        {"epilogue before the sum",
         false,
         false,
         4,
         0,
         {{var(I), var(J), z, z},
          {var(I), var(J), two, var(K)},
          {var(I), var(J), one, z},
          {var(I), var(J), three, z}}},
        {"initialisation forgotten until later",
         false,
         false,
         4,
         0,
         {{var(I), var(J), two, z},
          {var(I), var(J), one, var(K)},
          {var(I), var(J), three, z},
          {var(I), var(J), constant(4), z}}},
    };
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    static sx_poly_program program;
    for (uint32_t n = 0; n < SX_COUNT(list); n++) {
        matmul(&program);
        program.schedule_dims = list[n].dims;
        program.parallel = list[n].parallel;
        program.may_reassociate = list[n].licence;
        for (uint32_t s = 0; s < 4; s++) {
            set(program.statement[s].schedule, list[n].dims, list[n].time[s]);
        }
        sx_poly_verdict verdict;
        ck_sx_ok(&cx, sx_poly_legal(&cx, &program, &verdict));
        printf("%-52s %s\n", list[n].name, verdict.text);
        ck_assert_msg(verdict.legal == list[n].legal, "%s: %s", list[n].name, verdict.text);
        ck_assert_msg(verdict.legal || strstr(verdict.text, "->") != NULL,
                      "%s: no dependence printed: %s", list[n].name, verdict.text);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* a[i][j] = a[i-1][j+1]: distance (1,-1): interchange is illegal, skewing first makes it legal */
START_TEST(test_stencil_interchange)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    static sx_poly_program program;
    memset(&program, 0, sizeof(program));
    program.statement_count = 1;
    program.order_dims = 2;
    program.schedule_dims = 2;
    sx_poly_statement *s = &program.statement[0];
    (void)snprintf(s->name, sizeof(s->name), "S0");
    s->rank = 2;
    s->extent[0] = s->extent[1] = 100;
    sx_affine to = flat(102, I, 1, J), from = flat(102, I, 1, J);
    to.constant = 103;
    from.constant = 2;
    touch(s, 0, true, to);
    touch(s, 0, false, from);
    set(s->order, 2, (sx_affine[]){var(I), var(J)});
    sx_poly_verdict verdict;
    set(s->schedule, 2, (sx_affine[]){var(J), var(I)});
    ck_sx_ok(&cx, sx_poly_legal(&cx, &program, &verdict));
    ck_assert_msg(!verdict.legal, "%s", verdict.text);
    set(s->schedule, 2, (sx_affine[]){var(I), var(J)});
    ck_sx_ok(&cx, sx_poly_legal(&cx, &program, &verdict));
    ck_assert_msg(verdict.legal, "%s", verdict.text);
    set(s->schedule, 2, (sx_affine[]){flat(2, I, 1, J), var(I)});
    ck_sx_ok(&cx, sx_poly_legal(&cx, &program, &verdict));
    ck_assert_msg(verdict.legal, "%s", verdict.text);
    program.parallel = 1; /* rows at the same time */
    set(s->schedule, 2, (sx_affine[]){var(I), var(J)});
    ck_sx_ok(&cx, sx_poly_legal(&cx, &program, &verdict));
    ck_assert_msg(!verdict.legal && strstr(verdict.text, "between threads") != NULL, "%s",
                  verdict.text);
    program.parallel =
        2; /* columns of one row at the same time: all dependences are carried by i */
    ck_sx_ok(&cx, sx_poly_legal(&cx, &program, &verdict));
    ck_assert_msg(verdict.legal, "%s", verdict.text);
    sx_ctx_fini(&cx);
}
END_TEST

/* A reduction whose update does not touch its accumulator is a mistake of ours, not a proof. */
START_TEST(test_reduction_without_dependence)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    static sx_poly_program program;
    memset(&program, 0, sizeof(program));
    program.statement_count = 1;
    program.order_dims = program.schedule_dims = 1;
    sx_poly_statement *s = &program.statement[0];
    (void)snprintf(s->name, sizeof(s->name), "S0");
    s->rank = 1;
    s->extent[0] = 10;
    s->reduction = true;
    touch(s, 0, true, var(I));
    touch(s, 1, false, var(I));
    s->order[0] = s->schedule[0] = var(I);
    sx_poly_verdict verdict;
    ck_sx_fails(&cx, sx_poly_legal(&cx, &program, &verdict), SX_INPUT, "without a dependence");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.poly");
    TCase *cases = tcase_create("legal");
    tcase_add_test(cases, test_matmul_candidates);
    tcase_add_test(cases, test_stencil_interchange);
    tcase_add_test(cases, test_reduction_without_dependence);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
