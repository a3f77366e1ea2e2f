/* alu_mma.c - products of matrices that the 32 threads of a warp hold together: D = A B + C, 16 x 8.
 *
 * Lane 4 g + t holds, where a register has e elements (1 of tf32, 2 of 16 bits, 4 of 8 bits):
 *     A   register r, element j: row g + 8 (r mod 2), column e t + j + 4 e (r / 2)
 *     B   register r, element j: row e t + j + 4 e r, column g
 *     C   register r: row g + 8 (r / 2), column 2 t + (r mod 2)
 * which is what the figures of the manual say of every shape.
 */
#include <math.h>

#include "core/simt/alu_inside.h"

#define ROWS 16
#define COLUMNS 8
#define DEPTH_MAX 32

/* Elements as integers, or as numbers of f64, which holds all of them. */
typedef struct {
    int32_t a[ROWS][DEPTH_MAX], b[COLUMNS][DEPTH_MAX];
} integers;
typedef struct {
    double a[ROWS][DEPTH_MAX], b[DEPTH_MAX][COLUMNS];
} numbers;

/* Words of A, B and C among the operands. */
typedef struct {
    uint32_t depth, per_register, a_count, b_count;
} shape;

static shape shape_of(const sx_ptx_alu *alu)
{
    uint32_t bytes = sx_ptx_modifier_of(alu->type2)->value;
    shape s = {.depth = sx_ptx_modifier_of(alu->shape)->value, .per_register = 4 / bytes};
    s.b_count = s.depth / (4 * s.per_register);
    s.a_count = 2 * s.b_count;
    SX_ASSERT(s.depth <= DEPTH_MAX && s.b_count > 0);
    return s;
}

static uint64_t element(const shape *s, uint64_t word, uint32_t j)
{
    uint32_t bits = 32 / s->per_register;
    return word >> (bits * j) & ((UINT64_C(1) << bits) - 1);
}

static int32_t byte_of(sx_ptx_modifier type, uint64_t bits)
{
    int32_t value = (int32_t)bits;
    return type == SX_PTX_TYPE_S8 && value >= 128 ? value - 256 : value;
}

static inline double number_of(sx_ptx_modifier type, uint64_t bits)
{
    if (type == SX_PTX_TYPE_BF16) {
        return (double)sx_ptx_f32(bits << 16);
    }
    bool normal = (bits & 0x7C00) != 0 && (bits & 0x7C00) != 0x7C00;
    if (type == SX_PTX_TYPE_F16 && normal) {
        uint64_t wide = (bits & 0x8000) << 48 | ((bits & 0x7FFF) + (UINT64_C(1008) << 10)) << 42;
        double value;
        memcpy(&value, &wide, sizeof(value));
        return value;
    }
    bits = type == SX_PTX_TYPE_TF32 ? bits >> 13 : bits;
    sx_ptx_exact x = sx_ptx_exact_of(sx_ptx_format_of(type), bits);
    uint64_t wide = sx_ptx_exact_round(x, &sx_ptx_f64_format, SX_PTX_TO_NEAREST, false);
    double value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

/* ---- integers ---- */
static uint64_t sum_integers(const sx_ptx_alu *alu, const integers *m, uint32_t depth, uint32_t row,
                             uint32_t column, uint64_t c)
{
    int64_t sum = (int32_t)(uint32_t)c;
    for (uint32_t k = 0; k < depth; k++) {
        sum += (int64_t)m->a[row][k] * m->b[column][k];
    }
    if (alu->saturate) {
        sum = sum < INT32_MIN ? INT32_MIN : sum > INT32_MAX ? INT32_MAX : sum;
    }
    return (uint32_t)sum;
}

/* ---- floats ---- */
/* A sum as an integer times 2^-320, in limbs of 32 bits held in 64, so that many may be added before they carry.
 * Products of elements are multiples of 2^-272 below 2^257. */
#define LIMBS 20
#define LOWEST (-320)

static void add_exactly(int64_t limb[LIMBS], double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    sx_ptx_exact x = sx_ptx_exact_of(&sx_ptx_f64_format, bits);
    if (x.kind != SX_PTX_FINITE) {
        return;
    }
    uint32_t zeros = (uint32_t)__builtin_ctzll((uint64_t)x.digits);
    uint64_t digits = (uint64_t)x.digits >> zeros; /* of a product: at most 48 */
    uint32_t place = (uint32_t)(x.exponent + (int32_t)zeros - LOWEST);
    sx_u128 moved = (sx_u128)digits << place % 32;
    for (uint32_t k = place / 32; moved != 0; k++) {
        SX_ASSERT(k < LIMBS);
        int64_t part = (int64_t)(uint32_t)moved;
        limb[k] += x.negative ? -part : part;
        moved >>= 32;
    }
}

/* The sum rounded to f32. */
static uint64_t round_limbs(int64_t limb[LIMBS])
{
    int64_t carry = 0;
    for (uint32_t k = 0; k < LIMBS; k++) {
        int64_t value = limb[k] + carry;
        limb[k] = value & UINT32_MAX;
        carry = (value - limb[k]) / (INT64_C(1) << 32);
    }
    sx_ptx_exact x = {.kind = SX_PTX_ZERO, .negative = carry < 0};
    if (x.negative) {
        carry = 1; /* the two's complement */
        for (uint32_t k = 0; k < LIMBS; k++) {
            int64_t value = (limb[k] ^ UINT32_MAX) + carry;
            limb[k] = value & UINT32_MAX;
            carry = value >> 32;
        }
    }
    for (uint32_t k = LIMBS; k-- > 0;) {
        if (x.digits >> 64 != 0) { /* further limbs matter only by not being zero */
            x.sticky = x.sticky || limb[k] != 0;
        } else {
            x.digits = x.digits << 32 | (sx_u128)(uint64_t)limb[k];
            x.exponent = LOWEST + (int32_t)(32 * k);
        }
    }
    x.kind = x.digits != 0 ? SX_PTX_FINITE : SX_PTX_ZERO;
    return sx_ptx_exact_round(x, &sx_ptx_f32_format, SX_PTX_TO_NEAREST, false);
}

static uint64_t sum_slowly(const double *a, const double *b, uint32_t depth, uint32_t column,
                           double c)
{
    int64_t limb[LIMBS] = {0};
    add_exactly(limb, c);
    for (uint32_t k = 0; k < depth; k++) {
        add_exactly(limb, a[k] * b[k * COLUMNS + column]);
    }
    return round_limbs(limb);
}

/* A row of D. The products are exact in f64, of at most 22 digits; sums in f64 are exact where their errors are zero,
 * as they nearly always are. */
static void sum_numbers(const double *a, const double *b, uint32_t depth, const double c[COLUMNS],
                        uint64_t d[COLUMNS])
{
    double sum[COLUMNS], error[COLUMNS] = {0};
    memcpy(sum, c, sizeof(sum));
    for (uint32_t k = 0; k < depth; k++) {
        for (uint32_t n = 0; n < COLUMNS; n++) {
            double term = a[k] * b[k * COLUMNS + n];
            double next = sum[n] + term;
            double part = next - sum[n];
            error[n] += fabs((sum[n] - (next - part)) + (term - part));
            sum[n] = next;
        }
    }
    for (uint32_t n = 0; n < COLUMNS; n++) {
        bool finite = sum[n] - sum[n] == 0.0;
        d[n] = sum[n] != sum[n]            ? sx_ptx_f32_format.nan
               : finite && error[n] != 0.0 ? sum_slowly(a, b, depth, n, c[n])
                                           : sx_ptx_f32_bits((float)sum[n]);
    }
}

/* ---- sums that are exact for sure ---- */
/* Of some numbers: all are multiples of 2^low below 2^high; of none, and of zeros, low is above high. */
typedef struct {
    int32_t low, high;
} span_of_bits;
#define NO_BITS ((span_of_bits){.low = INT32_MAX / 16, .high = INT32_MIN / 16})
/* Of what is not finite: so much that zeros on the other side do not make up for it. */
#define ALL_BITS ((span_of_bits){.low = INT32_MIN / 8, .high = INT32_MAX / 8})
#define ELEMENT_DIGITS 10 /* behind the first one: f16 and tf32 have 10, bf16 7 */
#define F32_DIGITS 23

static span_of_bits both(span_of_bits a, span_of_bits b)
{
    return (span_of_bits){a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}

/* Of a value with so many digits. f64 has room for the small ones of all narrow types. */
static span_of_bits bits_of(double value, int32_t digits)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    int32_t exponent = (int32_t)(bits >> 52 & 0x7FF) - 1023;
    span_of_bits own = {exponent - digits, exponent + 1};
    return exponent == 1024 ? ALL_BITS : exponent == -1023 ? NO_BITS : own;
}

static span_of_bits bits_of_all(const double *value, uint32_t count, int32_t digits)
{
    span_of_bits all = NO_BITS;
    for (uint32_t i = 0; i < count; i++) {
        all = both(all, bits_of(value[i], digits));
    }
    return all;
}

/* Every partial sum is a multiple of the lowest bit and needs no more than the 53 bits of f64. */
static bool is_exact(span_of_bits a, span_of_bits b, span_of_bits c)
{
    const span_of_bits products = {a.low + b.low, a.high + b.high + 5}; /* DEPTH_MAX of them */
    const span_of_bits all = both(products, c);
    return all.high + 1 - all.low <= 53;
}
_Static_assert(DEPTH_MAX <= 1 << 5, "the sum of all products has at most five digits more");

/* A row of D where no sum rounds. Two columns at a time are what every x86-64 computes at once. */
typedef double pair __attribute__((vector_size(16)));
static inline pair pair_at(const double *at)
{
    pair both_of;
    memcpy(&both_of, at, sizeof(both_of));
    return both_of;
}
static void sum_plainly(const double *a, const double *b, uint32_t depth, const double c[COLUMNS],
                        uint64_t d[COLUMNS])
{
    pair s0 = pair_at(c), s1 = pair_at(c + 2), s2 = pair_at(c + 4), s3 = pair_at(c + 6);
    _Static_assert(COLUMNS == 8, "four pairs");
    for (uint32_t k = 0; k < depth; k++, b += COLUMNS) {
        const pair factor = {a[k], a[k]};
        s0 += factor * pair_at(b);
        s1 += factor * pair_at(b + 2);
        s2 += factor * pair_at(b + 4);
        s3 += factor * pair_at(b + 6);
    }
    const pair sum[COLUMNS / 2] = {s0, s1, s2, s3};
    for (uint32_t n = 0; n < COLUMNS; n++) {
        d[n] = sx_ptx_f32_bits((float)sum[n / 2][n % 2]);
    }
}

/* ---- whole matrices ---- */
static void mma_integers(const sx_ptx_alu *alu, const sx_ptx_word *const *operand, integers *m)
{
    shape s = shape_of(alu);
    SX_PTX_EACH_LANE(lane)
    {
        uint32_t g = lane / 4, t = lane % 4, e = s.per_register;
        for (uint32_t j = 0; j < e; j++) {
            for (uint32_t r = 0; r < s.a_count; r++) {
                m->a[g + 8 * (r % 2)][e * t + j + 4 * e * (r / 2)] =
                    byte_of(alu->type2, element(&s, operand[r]->lane[lane], j));
            }
            for (uint32_t r = 0; r < s.b_count; r++) {
                m->b[g][e * t + j + 4 * e * r] =
                    byte_of(alu->type3, element(&s, operand[s.a_count + r]->lane[lane], j));
            }
        }
    }
}

static void mma_numbers(const sx_ptx_alu *alu, const sx_ptx_word *const *operand, numbers *m)
{
    shape s = shape_of(alu);
    SX_PTX_EACH_LANE(lane)
    {
        uint32_t g = lane / 4, t = lane % 4, e = s.per_register;
        for (uint32_t j = 0; j < e; j++) {
            for (uint32_t r = 0; r < s.a_count; r++) {
                m->a[g + 8 * (r % 2)][e * t + j + 4 * e * (r / 2)] =
                    number_of(alu->type2, element(&s, operand[r]->lane[lane], j));
            }
            for (uint32_t r = 0; r < s.b_count; r++) {
                m->b[e * t + j + 4 * e * r][g] =
                    number_of(alu->type3, element(&s, operand[s.a_count + r]->lane[lane], j));
            }
        }
    }
}

/* Where lane and register of C and D lie. */
static uint32_t row_of(uint32_t lane, uint32_t r)
{
    return lane / 4 + 8 * (r / 2);
}
static uint32_t column_of(uint32_t lane, uint32_t r)
{
    return 2 * (lane % 4) + r % 2;
}

static void run_integers(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                         const sx_ptx_word *const *operand, uint32_t active)
{
    shape s = shape_of(alu);
    integers m;
    sx_ptx_word out[4];
    mma_integers(alu, operand, &m);
    for (uint32_t r = 0; r < 4; r++) {
        SX_PTX_EACH_LANE(lane)
        {
            uint64_t c = operand[s.a_count + s.b_count + r]->lane[lane];
            out[r].lane[lane] =
                sum_integers(alu, &m, s.depth, row_of(lane, r), column_of(lane, r), c);
        }
    }
    for (uint32_t r = 0; r < 4; r++) {
        sx_ptx_put_lanes(result[r], &out[r], active);
    }
}

static void run_numbers(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                        const sx_ptx_word *const *operand, uint32_t active)
{
    shape s = shape_of(alu);
    numbers m;
    double c[ROWS][COLUMNS];
    uint64_t d[ROWS][COLUMNS];
    mma_numbers(alu, operand, &m);
    for (uint32_t r = 0; r < 4; r++) {
        SX_PTX_EACH_LANE(lane)
        {
            float value = sx_ptx_f32(operand[s.a_count + s.b_count + r]->lane[lane]);
            c[row_of(lane, r)][column_of(lane, r)] = (double)value;
        }
    }
    const span_of_bits of_b = bits_of_all(m.b[0], s.depth * COLUMNS, ELEMENT_DIGITS);
    for (uint32_t row = 0; row < ROWS; row++) {
        bool exact = is_exact(bits_of_all(m.a[row], s.depth, ELEMENT_DIGITS), of_b,
                              bits_of_all(c[row], COLUMNS, F32_DIGITS));
        (exact ? sum_plainly : sum_numbers)(m.a[row], m.b[0], s.depth, c[row], d[row]);
    }
    for (uint32_t r = 0; r < 4; r++) {
        sx_ptx_word out;
        SX_PTX_EACH_LANE(lane)
        {
            out.lane[lane] = d[row_of(lane, r)][column_of(lane, r)];
        }
        sx_ptx_put_lanes(result[r], &out, active);
    }
}

/* ---- products of warpgroups ---- */
void sx_ptx_lines_begin(sx_ptx_lines *lines, uint32_t group)
{
    SX_ASSERT((group & (group - 1)) == 0 && SX_PTX_LINE_ELEMENTS / group <= SX_PTX_LINE_GROUPS);
    lines->group_shift = (uint32_t)__builtin_ctz(group);
    for (uint32_t i = 0; i < SX_PTX_LINE_ELEMENTS / group; i++) {
        lines->low[i] = NO_BITS.low;
        lines->high[i] = NO_BITS.high;
    }
}

static void put_numbers(const sx_ptx_line_run *p, sx_ptx_modifier type, const uint8_t *bytes,
                        bool negated)
{
    uint32_t size = sx_ptx_modifier_of(type)->value;
    double sign = negated ? -1 : 1;
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t bits = 0, index = p->first + i * p->step, group = index >> p->to->group_shift;
        memcpy(&bits, bytes + (size_t)i * size, size);
        double value = number_of(type, bits);
        span_of_bits own = bits_of(value, ELEMENT_DIGITS);
        p->to->number[index] = sign * value;
        p->to->low[group] = own.low < p->to->low[group] ? own.low : p->to->low[group];
        p->to->high[group] = own.high > p->to->high[group] ? own.high : p->to->high[group];
    }
}

void sx_ptx_line_put(const sx_ptx_line_run *p, sx_ptx_modifier type, const uint8_t *bytes,
                     bool negated)
{
    SX_ASSERT(p->first + (p->count - 1) * p->step < SX_PTX_LINE_ELEMENTS);
    if (type != SX_PTX_TYPE_S8 && type != SX_PTX_TYPE_U8) {
        put_numbers(p, type, bytes, negated);
        return;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        p->to->integer[p->first + i * p->step] = byte_of(type, bytes[i]);
    }
}

/* Of eight words that are numbers of f32. */
static span_of_bits bits_of_words(const uint64_t word[COLUMNS])
{
    int32_t low = 255, high = 0;
    for (uint32_t n = 0; n < COLUMNS; n++) {
        int32_t exponent = (int32_t)(word[n] >> F32_DIGITS & 255);
        bool zero = (word[n] & INT32_MAX) == 0;
        low = zero || low < exponent ? low : exponent;
        high = zero || high > exponent ? high : exponent;
    }
    span_of_bits own = {(low > 1 ? low : 1) - 127 - F32_DIGITS, (high > 1 ? high : 1) - 126};
    return high == 255 ? ALL_BITS : low == 255 ? NO_BITS : own;
}

void sx_ptx_line_multiply(const sx_ptx_line_product *p, uint32_t row, uint32_t first,
                          const uint64_t c[8], uint64_t d[8])
{
    SX_ASSERT(p->depth <= DEPTH_MAX && first % COLUMNS == 0);
    size_t a = (size_t)row * DEPTH_MAX, b = (size_t)first * DEPTH_MAX;
    if (!p->integers) {
        uint32_t of_a = row * DEPTH_MAX >> p->a->group_shift,
                 of_b = first * DEPTH_MAX >> p->b->group_shift;
        double sum[COLUMNS];
        for (uint32_t n = 0; n < COLUMNS; n++) {
            sum[n] = (double)sx_ptx_f32(c[n]);
        }
        bool exact = is_exact((span_of_bits){p->a->low[of_a], p->a->high[of_a]},
                              (span_of_bits){p->b->low[of_b], p->b->high[of_b]}, bits_of_words(c));
        (exact ? sum_plainly : sum_numbers)(p->a->number + a, p->b->number + b, p->depth, sum, d);
        return;
    }
    for (uint32_t n = 0; n < COLUMNS; n++) {
        int64_t sum = (int32_t)(uint32_t)c[n];
        for (uint32_t k = 0; k < p->depth; k++) {
            sum += (int64_t)p->a->integer[a + k] * p->b->integer[b + k * COLUMNS + n];
        }
        if (p->saturates) {
            sum = sum < INT32_MIN ? INT32_MIN : sum > INT32_MAX ? INT32_MAX : sum;
        }
        d[n] = (uint32_t)sum;
    }
}

sx_ptx_run sx_ptx_mma_of(const sx_ptx_alu *alu)
{
    if (alu->handler != SX_PTX_RUN_MMA) {
        return NULL;
    }
    return alu->type == SX_PTX_TYPE_S32 ? run_integers : run_numbers;
}
