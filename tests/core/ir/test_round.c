/* Rounding to the stored float types, and elements to and from bytes, over every pattern of the small types. */
#include <math.h>
#include <string.h>

#include "core/ir/num.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

typedef struct {
    sx_dtype dtype;
    uint32_t pattern_count;
    uint32_t positive_count; /* patterns 0..count-1 are the finite values >= 0, ascending */
    double max;
    double over; /* what a value far too large becomes */
} small_type;

static const small_type small_types[] = {
    {SX_F16, 65536, 0x7C00, 65504, HUGE_VAL},
    {SX_BF16, 65536, 0x7F80, 0x1.fep127, HUGE_VAL},
    {SX_F8E4M3, 256, 0x7F, 448, 448},
    {SX_F8E5M2, 256, 0x7C, 57344, 57344},
};

/* The value of a pattern from the definition of the format, by repeated doubling. */
static double value_of(const small_type *t, uint32_t pattern)
{
    int fraction_bits = t->dtype == SX_F16      ? 10
                        : t->dtype == SX_BF16   ? 7
                        : t->dtype == SX_F8E4M3 ? 3
                                                : 2;
    int bias = t->dtype == SX_BF16 ? 127 : t->dtype == SX_F8E4M3 ? 7 : 15;
    int exponent = (int)(pattern >> fraction_bits);
    double value = (double)(pattern & ((1u << fraction_bits) - 1));
    for (int k = 0; k < fraction_bits; k++) {
        value /= 2;
    }
    value += exponent > 0 ? 1 : 0;
    exponent = exponent > 0 ? exponent : 1;
    for (; exponent > bias; exponent--) {
        value *= 2;
    }
    for (; exponent < bias; exponent++) {
        value /= 2;
    }
    return value;
}

START_TEST(every_pattern_is_kept)
{
    for (uint32_t i = 0; i < SX_COUNT(small_types); i++) {
        const small_type *t = &small_types[i];
        for (uint32_t bits = 0; bits < t->pattern_count; bits++) {
            double value = sx_num_decode(t->dtype, bits);
            bool infinite = isinf(value);
            if (isnan(value)) {
                ck_assert(isnan(sx_round(t->dtype, value)));
                continue;
            }
            ck_assert(infinite || sx_round(t->dtype, value) == value);
            ck_assert_uint_eq(sx_num_encode(t->dtype, value), bits);
        }
        for (uint32_t bits = 0; bits < t->positive_count; bits++) {
            double value = value_of(t, bits);
            ck_assert(sx_num_decode(t->dtype, bits) == value);
            ck_assert(sx_num_decode(t->dtype, bits | t->pattern_count / 2) == -value);
        }
    }
}
END_TEST

/* Between neighbours a < b: the middle goes to the even pattern, everything nearer to a goes to a, nearer to b to b. */
START_TEST(every_middle_goes_to_even)
{
    for (uint32_t i = 0; i < SX_COUNT(small_types); i++) {
        const small_type *t = &small_types[i];
        for (uint32_t bits = 0; bits + 1 < t->positive_count; bits++) {
            double a = value_of(t, bits);
            double b = value_of(t, bits + 1);
            double middle = (a + b) / 2;
            double even = bits % 2 == 0 ? a : b;
            ck_assert(sx_round(t->dtype, middle) == even);
            ck_assert(sx_round(t->dtype, -middle) == -even);
            ck_assert(sx_round(t->dtype, nextafter(middle, 0)) == a);
            ck_assert(sx_round(t->dtype, nextafter(middle, HUGE_VAL)) == b);
        }
    }
}
END_TEST

START_TEST(overflow)
{
    for (uint32_t i = 0; i < SX_COUNT(small_types); i++) {
        const small_type *t = &small_types[i];
        double below = value_of(t, t->positive_count - 2);
        double edge = t->max + (t->max - below) / 2; // the first value that would round up
        ck_assert(value_of(t, t->positive_count - 1) == t->max);
        ck_assert(sx_round(t->dtype, nextafter(edge, 0)) == t->max);
        ck_assert(sx_round(t->dtype, edge) == t->over);
        ck_assert(sx_round(t->dtype, -1e300) == -t->over);
        ck_assert(sx_round(t->dtype, -HUGE_VAL) == -t->over);
        ck_assert(isnan(sx_round(t->dtype, (double)NAN)));
        ck_assert(signbit(sx_round(t->dtype, -0.0)) != 0);
        ck_assert(sx_round(t->dtype, 1e-300) == 0);
    }
    ck_assert(sx_round(SX_F32, 0.1) == (double)0.1f);
    ck_assert(sx_round(SX_F32, 1e300) == HUGE_VAL);
    ck_assert(sx_round(SX_F64, 0.1) == 0.1);
}
END_TEST

/* bytes -> tensor -> the same bytes, for every type. */
START_TEST(pack_and_unpack)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)64 << 20);
    for (sx_dtype dtype = 0; dtype < SX_DTYPE_COUNT; dtype++) {
        uint8_t raw[512 * 8];
        uint32_t size = sx_dtype_bytes(dtype);
        sx_type type = {dtype, 2, {{2, SX_NO_SYMBOL}, {256, SX_NO_SYMBOL}}};
        for (uint32_t k = 0; k < sizeof(raw); k++) {
            raw[k] = (uint8_t)(dtype == SX_BOOL ? k % 2 : sx_rng_next(&rng));
        }
        for (uint32_t k = 0; k < 512 && sx_dtype_class_of(dtype) == SX_CLASS_FLOAT; k++) {
            if (isnan(sx_num_decode(dtype, sx_num_load(dtype, raw, k)))) {
                memset(raw + k * size, 0, size);
            }
        }
        sx_tensor tensor;
        sx_buf buf;
        sx_buf_init(&buf, sizeof(raw));
        sx_span span = {raw, 512 * size};
        ck_sx_ok(&cx, sx_tensor_unpack(&cx, &type, SX_EVAL_F64, span, &tensor));
        ck_sx_ok(&cx, sx_tensor_pack(&cx, &tensor, &buf));
        ck_assert(sx_span_equal(sx_buf_span(&buf), span));
        sx_buf_fini(&buf);
        span.len--;
        ck_sx_fails(&cx, sx_tensor_unpack(&cx, &type, SX_EVAL_F64, span, &tensor), SX_INPUT,
                    "512 elements");
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("round");
    TCase *tcase = tcase_create("round");
    tcase_add_test(tcase, every_pattern_is_kept);
    tcase_add_test(tcase, every_middle_goes_to_even);
    tcase_add_test(tcase, overflow);
    tcase_add_test(tcase, pack_and_unpack);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
