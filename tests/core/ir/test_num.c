#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/ir/num.h"

static const sx_dtype small[] = {SX_F16, SX_BF16, SX_F8E4M3, SX_F8E5M2};

START_TEST(test_every_small_value)
{
    for (uint32_t t = 0; t < SX_COUNT(small); t++) {
        sx_dtype dtype = small[t];
        uint64_t count = UINT64_C(1) << (8 * sx_dtype_bytes(dtype));
        double last = -1.0;
        for (uint64_t bits = 0; bits < count; bits++) {
            double value = sx_num_decode(dtype, bits);
            if (isnan(value)) {
                ck_assert(isnan(sx_num_decode(dtype, sx_num_encode(dtype, value))));
                continue;
            }
            ck_assert_uint_eq(sx_num_encode(dtype, value), bits);
            if (bits < count / 2) { /* positive: ascending */
                ck_assert(value > last);
                last = value;
            } else {
                ck_assert(value == -sx_num_decode(dtype, bits - count / 2));
                ck_assert(signbit(value) != 0);
            }
        }
    }
}
END_TEST

START_TEST(test_known_values)
{
    ck_assert(sx_num_decode(SX_F8E4M3, 0x7e) == 448.0);
    ck_assert(isnan(sx_num_decode(SX_F8E4M3, 0x7f)) && isnan(sx_num_decode(SX_F8E4M3, 0xff)));
    ck_assert(sx_num_decode(SX_F8E4M3, 0x01) == 0x1p-9);
    ck_assert(sx_num_decode(SX_F8E5M2, 0x7b) == 57344.0);
    ck_assert(isinf(sx_num_decode(SX_F8E5M2, 0x7c)));
    ck_assert(sx_num_decode(SX_F16, 0x7bff) == 65504.0);
    ck_assert(sx_num_decode(SX_F16, 0x0001) == 0x1p-24);
    ck_assert(sx_num_decode(SX_BF16, 0x3f80) == 1.0);
    ck_assert_uint_eq(sx_num_encode(SX_F16, 65519.99), 0x7bff);
    ck_assert_uint_eq(sx_num_encode(SX_F16, 65520.0), 0x7c00); /* the tie goes to infinity */
    ck_assert_uint_eq(sx_num_encode(SX_F8E4M3, 463.9), 0x7e);
    ck_assert_uint_eq(sx_num_encode(SX_F8E4M3, 1e300), 0x7f);
    ck_assert_uint_eq(sx_num_encode(SX_F16, 0x1p-25), 0); /* half the smallest: to even */
    ck_assert_uint_eq(sx_num_encode(SX_F16, 0x1.8p-25), 1);
    ck_assert_uint_eq(sx_num_encode(SX_F16, -1e-300), 0x8000);
    ck_assert_uint_eq(sx_num_encode(SX_BF16, 1.00390625), 0x3f80); /* tie, even below */
    ck_assert_uint_eq(sx_num_encode(SX_BF16, 1.01171875), 0x3f82); /* tie, even above */
}
END_TEST

/* The nearest number of f32, by arithmetic in double precision that is exact but for one rounding. */
static double nearest_f32(double value)
{
    int exponent;
    (void)frexp(value, &exponent);
    double step = ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
    double rounded = nearbyint(value / step) * step;
    return fabs(rounded) > 0x1.fffffep127 ? copysign(HUGE_VAL, value) : rounded;
}

START_TEST(test_f32_is_the_nearest)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < 200000; i++) {
        uint64_t bits = sx_rng_next(&rng);
        if (i % 2 == 0) { /* near the range of float */
            bits = (bits & ~(UINT64_C(0x7ff) << 52)) | ((870 + bits % 290) << 52);
        }
        double value = sx_num_decode(SX_F64, bits);
        float expected = (float)value;
        if (isnan(value)) {
            ck_assert(isnan(sx_num_round(SX_F32, value)));
            continue;
        }
        uint32_t expected_bits;
        memcpy(&expected_bits, &expected, sizeof(expected_bits));
        ck_assert_uint_eq(sx_num_encode(SX_F32, value), expected_bits);
        ck_assert(sx_num_round(SX_F32, value) == (double)expected);
        double nearest = isinf(value) ? value : nearest_f32(value);
        ck_assert_msg(nearest == (double)expected, "%a: %a, nearest is %a", value, (double)expected,
                      nearest);
        ck_assert(sx_num_decode(SX_F32, expected_bits) == nearest);
        ck_assert(sx_num_round(SX_F64, value) == value);
    }
}
END_TEST

/* The nearest of two neighbours, found by halving among all positive numbers of the type, which ascend with their bits;
 * a tie goes to even bits, and behind the last number stands a step as long as the one before it. */
static uint64_t nearest_of_all(sx_dtype dtype, double value)
{
    uint64_t low = 0, high = UINT64_C(1) << (8 * sx_dtype_bytes(dtype) - 1), sign = high;
    while (high > 0 && !isfinite(sx_num_decode(dtype, high - 1))) {
        high--;
    }
    uint64_t largest = high - 1;
    double last = sx_num_decode(dtype, largest);
    double behind = last + (last - sx_num_decode(dtype, largest - 1));
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        *(sx_num_decode(dtype, middle) <= fabs(value) ? &low : &high) = middle;
    }
    double below = sx_num_decode(dtype, low);
    double above = low == largest ? behind : sx_num_decode(dtype, low + 1);
    double down = fabs(value) - below, up = above - fabs(value);
    low += up < down || (up == down && low % 2 == 1) ? 1 : 0;
    return low | (signbit(value) != 0 ? sign : 0);
}

START_TEST(test_narrow_is_the_nearest)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < 200000; i++) {
        sx_dtype dtype = small[i % SX_COUNT(small)];
        uint64_t some = sx_rng_next(&rng);
        uint64_t bits = some % (UINT64_C(1) << (8 * sx_dtype_bytes(dtype)));
        double value = sx_num_decode(dtype, bits);
        if (!isfinite(value)) {
            continue;
        }
        double next = sx_num_decode(dtype, bits ^ 1);
        if (i % 3 == 0 && isfinite(next)) { /* half the way, and a last place beside it */
            value = value / 2 + next / 2;
            value = i % 2 == 0 ? value : nextafter(value, i % 4 == 1 ? HUGE_VAL : -HUGE_VAL);
        } else {
            value *= 1 + ldexp((double)(some >> 40), -30);
        }
        uint64_t expected = nearest_of_all(dtype, value);
        ck_assert_msg(sx_num_encode(dtype, value) == expected, "%s: %a is %llx, nearest is %llx",
                      sx_dtype_name(dtype), value, (unsigned long long)sx_num_encode(dtype, value),
                      (unsigned long long)expected);
    }
}
END_TEST

START_TEST(test_integers)
{
    ck_assert_int_eq(sx_num_int_decode(SX_I8, 0x80), -128);
    ck_assert_int_eq(sx_num_int_decode(SX_U8, 0x80), 128);
    ck_assert_int_eq(sx_num_int_decode(SX_I32, 0xffffffff), -1);
    ck_assert_int_eq(sx_num_int_decode(SX_I64, UINT64_MAX), -1);
    ck_assert_uint_eq(sx_num_int_encode(SX_I8, -1), 0xff);
    ck_assert_uint_eq(sx_num_int_encode(SX_I64, -1), UINT64_MAX);
    ck_assert_int_eq(sx_num_int_min(SX_I32), INT32_MIN);
    ck_assert_int_eq(sx_num_int_max(SX_BOOL), 1);
    uint8_t bytes[24] = {0};
    for (uint32_t t = 0; t < SX_DTYPE_COUNT; t++) {
        uint64_t bits = UINT64_C(0x8877665544332211) >> (64 - 8 * sx_dtype_bytes((sx_dtype)t));
        sx_num_store((sx_dtype)t, bytes, 2, bits);
        ck_assert_uint_eq(sx_num_load((sx_dtype)t, bytes, 2), bits);
        ck_assert_uint_eq(bytes[2 * sx_dtype_bytes((sx_dtype)t)], bits & 255);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/num");
    TCase *tcase = tcase_create("num");
    tcase_add_test(tcase, test_every_small_value);
    tcase_add_test(tcase, test_known_values);
    tcase_add_test(tcase, test_f32_is_the_nearest);
    tcase_add_test(tcase, test_narrow_is_the_nearest);
    tcase_add_test(tcase, test_integers);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
