#include "tests/device/data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEP 0x1p-23 /* relative error of an operation in f32 that cuts off */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Significant bits of a type. */
static int precision(sx_dtype dtype)
{
    return dtype == SX_BF16 ? 8 : dtype == SX_F16 ? 11 : 24;
}

double sx_data_round(sx_dtype dtype, double number)
{
    int exponent;
    if (number == 0) {
        return 0;
    }
    (void)frexp(number, &exponent);
    int last = exponent - precision(dtype);
    last = dtype == SX_F16 && last < -24 ? -24 : last;
    return ldexp(nearbyint(ldexp(number, -last)), last);
}

/* The bits of a number that the type has, of magnitude 0 or from 2^-14 to 65504. */
static uint32_t encode(sx_dtype dtype, double value)
{
    uint32_t bits = bits_of((float)value);
    SX_ASSERT((double)(float)value == value);
    if (dtype == SX_F32) {
        return bits;
    }
    if (dtype == SX_BF16) {
        return bits >> 16;
    }
    uint32_t magnitude = bits & 0x7fffffffu;
    return (bits >> 16 & 0x8000u) | (magnitude == 0 ? 0 : (magnitude - (112u << 23)) >> 13);
}

double sx_data_decode(sx_dtype dtype, const uint8_t *bytes)
{
    uint32_t bits = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
    if (dtype == SX_F32) {
        bits |= (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        return (double)float_of(bits);
    }
    if (dtype == SX_BF16) {
        return (double)float_of(bits << 16);
    }
    SX_ASSERT(dtype == SX_F16);
    double sign = bits >> 15 ? -1 : 1;
    int exponent = (int)(bits >> 10 & 31);
    double fraction = (double)(bits & 1023) / 1024;
    if (exponent == 31) {
        return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * (exponent == 0 ? ldexp(fraction, -14) : ldexp(1 + fraction, exponent - 15));
}

bool sx_data_make(sx_data *data, sx_dtype dtype, uint64_t seed, bool exact)
{
    if (dtype != SX_F32 && dtype != SX_BF16 && dtype != SX_F16) {
        return false;
    }
    data->dtype = dtype;
    data->bytes = dtype == SX_F32 ? 4 : 2;
    for (uint32_t i = 0; i < SX_DATA_PERIOD; i++) {
        uint64_t random = next(&seed);
        double uniform = (double)(random >> 11) * 0x1p-52 - 1;
        double value = exact ? (double)(random % 5) - 2 : sx_data_round(dtype, uniform);
        value = fabs(value) < 0x1p-14 || fabs(value) > 2 ? 0 : value;
        uint32_t bits = encode(dtype, value);
        data->value[i] = value;
        memcpy(data->bits + (size_t)i * data->bytes, &bits, data->bytes);
    }
    return true;
}

/* ---- operations ---- */

static int64_t number_of(const char *operation, const char *word, int64_t otherwise)
{
    const char *at = strstr(operation, word);
    long long number;
    return at != NULL && sscanf(at + strlen(word), "%lld", &number) == 1 ? number : otherwise;
}

sx_code sx_judged_read(sx_ctx *cx, const sx_bench_shape *shape, sx_judged *j)
{
    const char *o = shape->operation;
    long long x[4] = {1, 1, 1, 1};
    *j = (sx_judged){.left_turned = shape->layout[0] == 't',
                     .right_turned = shape->layout[1] == 't'};
    j->result = strcmp(shape->dtype, "bf16") == 0  ? SX_BF16
                : strcmp(shape->dtype, "f16") == 0 ? SX_F16
                                                   : SX_F32;
    if (sscanf(o, "gemm:%lldx%lldx%lld", &x[0], &x[1], &x[2]) == 3) {
        j->kind = SX_JUDGE_PRODUCT;
    } else if (sscanf(o, "softmax:%lldx%lld", &x[0], &x[1]) == 2) {
        j->kind = SX_JUDGE_SOFTMAX;
    } else if (sscanf(o, "norm:rms:%lldx%lld", &x[0], &x[1]) == 2) {
        j->kind = SX_JUDGE_RMS;
    } else if (sscanf(o, "norm:layer:%lldx%lld", &x[0], &x[1]) == 2) {
        j->kind = SX_JUDGE_LAYER;
    } else if (sscanf(o, "attention:%lldx%lldx%lldx%lld", &x[0], &x[1], &x[2], &x[3]) == 4) {
        j->kind = SX_JUDGE_ATTENTION;
    } else {
        return SX_FAIL(cx, SX_INPUT, "shape %s: no reference for %s", shape->name, o);
    }
    for (uint32_t i = 0; i < 4; i++) {
        j->x[i] = x[i];
    }
    j->groups = number_of(o, "kv-heads=", x[1]);
    j->keys = number_of(o, "keys=", x[2]);
    j->causal = strstr(o, "causal") != NULL;
    return SX_OK;
}

const char *sx_judged_input(const sx_judged *j, uint32_t index)
{
    static const char *const names[][4] = {[SX_JUDGE_PRODUCT] = {"a", "b"},
                                           [SX_JUDGE_SOFTMAX] = {"x"},
                                           [SX_JUDGE_RMS] = {"x", "scale"},
                                           [SX_JUDGE_LAYER] = {"x", "scale", "bias"},
                                           [SX_JUDGE_ATTENTION] = {"q", "k", "v"}};
    return index < 4 ? names[j->kind][index] : NULL;
}

int64_t sx_judged_results(const sx_judged *j)
{
    return j->kind == SX_JUDGE_ATTENTION ? j->x[0] * j->x[1] * j->x[2] * j->x[3]
                                         : j->x[0] * j->x[1];
}

static void product(const sx_judged *j, const sx_data *const *in, int64_t index, double *value,
                    double *bound)
{
    int64_t m = index / j->x[1], n = index % j->x[1];
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < j->x[2]; k++) {
        double a = sx_data_at(in[0], j->left_turned ? k * j->x[0] + m : m * j->x[2] + k);
        double b = sx_data_at(in[1], j->right_turned ? n * j->x[2] + k : k * j->x[1] + n);
        sum += a * b;
        magnitude += fabs(a * b);
    }
    *value = sum;
    *bound = (double)j->x[2] * STEP * magnitude;
}

static void softmax(const sx_judged *j, const sx_data *const *in, int64_t index, double *value,
                    double *bound)
{
    int64_t first = index / j->x[1] * j->x[1];
    double most = -HUGE_VAL, sum = 0;
    for (int64_t c = 0; c < j->x[1]; c++) {
        most = fmax(most, sx_data_at(in[0], first + c));
    }
    for (int64_t c = 0; c < j->x[1]; c++) {
        sum += exp(sx_data_at(in[0], first + c) - most);
    }
    *value = exp(sx_data_at(in[0], index) - most) / sum;
    *bound = ((double)j->x[1] + 32) * STEP * *value;
}

static void norm(const sx_judged *j, const sx_data *const *in, int64_t index, double *value,
                 double *bound)
{
    int64_t first = index / j->x[1] * j->x[1], column = index % j->x[1];
    double count = (double)j->x[1], mean = 0, squares = 0;
    bool layer = j->kind == SX_JUDGE_LAYER;
    for (int64_t c = 0; layer && c < j->x[1]; c++) {
        mean += sx_data_at(in[0], first + c) / count;
    }
    for (int64_t c = 0; c < j->x[1]; c++) {
        double x = sx_data_at(in[0], first + c) - mean;
        squares += x * x / count;
    }
    double scale = sx_data_at(in[1], column) / sqrt(squares + 1e-5);
    double bias = layer ? sx_data_at(in[2], column) : 0;
    double x = sx_data_at(in[0], index);
    *value = (x - mean) * scale + bias;
    *bound = (count + 32) * STEP * ((fabs(x) + 1) * fabs(scale) + fabs(bias));
}

static double score(const sx_judged *j, const sx_data *const *in, int64_t query, int64_t key,
                    double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (int64_t d = 0; d < j->x[3]; d++) {
        double x = sx_data_at(in[0], query * j->x[3] + d) * sx_data_at(in[1], key * j->x[3] + d);
        sum += x;
        *magnitude += fabs(x);
    }
    return sum / sqrt((double)j->x[3]);
}

/* The error of a weight is that of its score, which is in the exponent, twice: in its own and in their sum's. */
static void attention(const sx_judged *j, const sx_data *const *in, int64_t index, double *value,
                      double *bound)
{
    int64_t size = j->x[3], d = index % size, token = index / size % j->x[2];
    int64_t head = index / size / j->x[2] % j->x[1], batch = index / size / j->x[2] / j->x[1];
    int64_t first = (batch * j->groups + head * j->groups / j->x[1]) * j->keys;
    int64_t seen = j->causal ? token + 1 + j->keys - j->x[2] : j->keys;
    double sum = 0, weighted = 0, magnitude = 0, exponent = 0;
    for (int64_t t = 0; t < seen; t++) {
        double size_of_score;
        double weight = exp(score(j, in, index / size, first + t, &size_of_score));
        double v = sx_data_at(in[2], (first + t) * size + d);
        sum += weight;
        weighted += weight * v;
        magnitude += weight * fabs(v);
        exponent = fmax(exponent, size_of_score);
    }
    *value = weighted / sum;
    double each = 2 * ((double)size + 4) * exponent + 2 * (double)seen + 64;
    *bound = each * STEP * magnitude / sum;
}

void sx_judged_at(const sx_judged *j, const sx_data *const *input, int64_t index, double *value,
                  double *bound)
{
    SX_ASSERT(index >= 0 && index < sx_judged_results(j));
    switch (j->kind) {
    case SX_JUDGE_PRODUCT: product(j, input, index, value, bound); break;
    case SX_JUDGE_SOFTMAX: softmax(j, input, index, value, bound); break;
    case SX_JUDGE_RMS:
    case SX_JUDGE_LAYER: norm(j, input, index, value, bound); break;
    case SX_JUDGE_ATTENTION: attention(j, input, index, value, bound); break;
    }
    *bound += ldexp(fabs(*value) + *bound, -precision(j->result)) + 0x1p-25;
}
