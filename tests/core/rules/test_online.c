/* The reduction behind online_dot over exact numbers: values are residues mod q, weights residues mod p = 2 q
 * + 1, and e^x is g^x mod p with g of order q, so that e^(a + b) = e^a e^b holds and false identities show.
 * The maximum is replaced by an arbitrary shift: what holds for every shift holds for the maximum (two fields
 * as in Wu 2025, Mirage). */
#include "tests/lib/test.h"

#include "core/base/rng.h"

#define P UINT64_C(2147483579)
#define Q UINT64_C(1073741789)
#define G UINT64_C(4)
#define INSTANCES 1000
#define WIDTH 3
#define KEYS_MAX 12

static uint64_t seed;

static uint64_t power(uint64_t base, uint64_t exponent)
{
    uint64_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        result = (exponent & 1) != 0 ? result * base % P : result;
        base = base * base % P;
    }
    return result;
}

static uint64_t e_to(uint64_t x) /* x mod q */
{
    return power(G, x);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return (a + Q - b) % Q;
}

/* (m, l, o); `none` is the neutral element, whose weight e^(-inf - m) is 0. */
typedef struct {
    bool none;
    uint64_t m; /* mod q */
    uint64_t l; /* mod p */
    uint64_t o[WIDTH];
} triple;

/* Any shift may stand where the maximum stood: `to` is it. */
static triple shifted(const triple *a, uint64_t to)
{
    uint64_t weight = a->none ? 0 : e_to(minus(a->m, to));
    triple r = {.m = to, .l = a->l * weight % P};
    for (uint32_t k = 0; k < WIDTH; k++) {
        r.o[k] = a->o[k] * weight % P;
    }
    return r;
}

static triple combine(const triple *a, const triple *b, uint64_t to)
{
    triple x = shifted(a, to);
    triple y = shifted(b, to);
    x.none = a->none && b->none;
    x.l = (x.l + y.l) % P;
    for (uint32_t k = 0; k < WIDTH; k++) {
        x.o[k] = (x.o[k] + y.o[k]) % P;
    }
    return x;
}

static bool equal(const triple *a, const triple *b, uint64_t at)
{
    triple x = shifted(a, at);
    triple y = shifted(b, at);
    bool same = a->none == b->none && x.l == y.l;
    for (uint32_t k = 0; k < WIDTH; k++) {
        same = same && x.o[k] == y.o[k];
    }
    return same;
}

static triple leaf(sx_rng *rng)
{
    triple t = {.m = sx_rng_below(rng, Q), .l = 1};
    for (uint32_t k = 0; k < WIDTH; k++) {
        t.o[k] = sx_rng_below(rng, P);
    }
    return t;
}

static triple any(sx_rng *rng)
{
    triple t = leaf(rng);
    t.l = sx_rng_below(rng, P);
    t.none = sx_rng_below(rng, 8) == 0;
    return t.none ? (triple){.none = true} : t;
}

static uint64_t shift(sx_rng *rng)
{
    return sx_rng_below(rng, Q);
}

START_TEST(test_monoid)
{
    sx_rng rng = {seed};
    for (uint32_t i = 0; i < INSTANCES; i++) {
        triple a = any(&rng), b = any(&rng), c = any(&rng);
        triple none = {.none = true};
        triple ab = combine(&a, &b, shift(&rng)), ba = combine(&b, &a, shift(&rng));
        triple bc = combine(&b, &c, shift(&rng));
        triple left = combine(&ab, &c, shift(&rng)), right = combine(&a, &bc, shift(&rng));
        triple same = combine(&a, &none, shift(&rng));
        ck_assert(equal(&ab, &ba, shift(&rng)));
        ck_assert(equal(&left, &right, shift(&rng)));
        ck_assert(equal(&a, &same, shift(&rng)));
    }
}
END_TEST

/* Steps 1 to 5 together: blocks of any size, each with its own shift, against exp, sums and the division after
 * the contraction. */
START_TEST(test_blocks_give_softmax)
{
    sx_rng rng = {seed};
    for (uint32_t i = 0; i < INSTANCES; i++) {
        uint32_t keys = 1 + (uint32_t)sx_rng_below(&rng, KEYS_MAX);
        triple key[KEYS_MAX];
        uint64_t whole = shift(&rng);
        uint64_t sum = 0;
        uint64_t weighted[WIDTH] = {0};
        for (uint32_t j = 0; j < keys; j++) {
            key[j] = leaf(&rng);
            uint64_t weight = e_to(minus(key[j].m, whole));
            sum = (sum + weight) % P;
            for (uint32_t k = 0; k < WIDTH; k++) {
                weighted[k] = (weighted[k] + weight * key[j].o[k]) % P;
            }
        }
        triple running = {.none = true};
        for (uint32_t j = 0; j < keys;) {
            uint32_t end = j + 1 + (uint32_t)sx_rng_below(&rng, keys - j);
            triple block = {.none = true};
            uint64_t own = shift(&rng);
            for (; j < end; j++) {
                block = combine(&block, &key[j], own);
            }
            running = combine(&running, &block, shift(&rng));
        }
        uint64_t inverse = power(running.l, P - 2);
        uint64_t sum_inverse = power(sum, P - 2);
        for (uint32_t k = 0; k < WIDTH; k++) {
            ck_assert_uint_eq(running.o[k] * inverse % P, weighted[k] * sum_inverse % P);
        }
        triple last = shifted(&running, whole);
        ck_assert_uint_eq(last.l, sum);
    }
}
END_TEST

/* The arithmetic can tell: forgetting to rescale one block is seen. */
START_TEST(test_missing_rescale_is_seen)
{
    sx_rng rng = {seed};
    uint32_t seen = 0;
    for (uint32_t i = 0; i < INSTANCES; i++) {
        triple a = leaf(&rng), b = leaf(&rng);
        triple right = combine(&a, &b, b.m);
        triple wrong = b;
        wrong.l = (a.l + b.l) % P;
        for (uint32_t k = 0; k < WIDTH; k++) {
            wrong.o[k] = (a.o[k] + b.o[k]) % P;
        }
        seen += equal(&right, &wrong, shift(&rng)) ? 0 : 1;
    }
    ck_assert_uint_eq(seen, INSTANCES);
}
END_TEST

/* R17: e^a e^b = e^(a + b), e^a / e^b = e^(a - b), 1 / e^a = e^-a. */
START_TEST(test_exponential_algebra)
{
    sx_rng rng = {seed};
    for (uint32_t i = 0; i < INSTANCES; i++) {
        uint64_t a = shift(&rng), b = shift(&rng);
        uint64_t inverse = power(e_to(b), P - 2);
        ck_assert_uint_eq(e_to(a) * e_to(b) % P, e_to((a + b) % Q));
        ck_assert_uint_eq(e_to(a) * inverse % P, e_to(minus(a, b)));
        ck_assert_uint_eq(inverse, e_to(minus(0, b)));
    }
    ck_assert_uint_eq(power(G, Q), 1);
}
END_TEST

int main(void)
{
    seed = sx_test_seed();
    Suite *suite = suite_create("core.rules.online");
    TCase *cases = tcase_create("monoid");
    tcase_add_test(cases, test_monoid);
    tcase_add_test(cases, test_blocks_give_softmax);
    tcase_add_test(cases, test_missing_rescale_is_seen);
    tcase_add_test(cases, test_exponential_algebra);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
