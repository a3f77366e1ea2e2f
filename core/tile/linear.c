#include "core/tile/linear.h"

#include <string.h>

/* Rows of an elimination: `value` is the exclusive or of the columns in `inputs`, and `top` is the highest bit of
 * `value`, which no later row has. */
typedef struct {
    uint32_t value[32]; /* by highest bit; 0: none */
    uint32_t inputs[32];
} basis;

static uint32_t top_bit(uint32_t value)
{
    return 31U - (uint32_t)__builtin_clz(value);
}

/* Takes from `value` what the basis explains, and puts into `inputs` which columns that was. */
static uint32_t reduce(const basis *rows, uint32_t value, uint32_t *inputs)
{
    for (uint32_t bit = 32; bit-- > 0;) {
        if ((value >> bit & 1U) != 0 && rows->value[bit] != 0) {
            value ^= rows->value[bit];
            *inputs ^= rows->inputs[bit];
        }
    }
    return value;
}

/* Adds the columns in `inputs`, low bits first; gives those that were independent of lower ones. */
static uint32_t fill(const sx_linear *map, uint32_t inputs, basis *rows)
{
    uint32_t pivots = 0;
    memset(rows, 0, sizeof(*rows));
    for (uint32_t i = 0; i < map->input_bits; i++) {
        uint32_t from = 1U << i;
        uint32_t rest = (inputs & from) == 0 ? 0 : reduce(rows, map->column[i], &from);
        if (rest != 0) {
            rows->value[top_bit(rest)] = rest;
            rows->inputs[top_bit(rest)] = from;
            pivots |= 1U << i;
        }
    }
    return pivots;
}

static void demand_map(const sx_linear *map)
{
    SX_ASSERT(map->input_bits <= SX_LINEAR_INPUTS_MAX);
    SX_ASSERT(map->output_bits <= 32);
}

sx_linear sx_linear_identity(uint32_t bits)
{
    SX_ASSERT(bits <= SX_LINEAR_INPUTS_MAX);
    sx_linear map = {.input_bits = (uint8_t)bits, .output_bits = (uint8_t)bits};
    for (uint32_t i = 0; i < bits; i++) {
        map.column[i] = 1U << i;
    }
    return map;
}

uint32_t sx_linear_apply(const sx_linear *map, uint32_t x)
{
    demand_map(map);
    SX_ASSERT(x >> map->input_bits == 0);
    uint32_t y = 0;
    for (uint32_t i = 0; i < map->input_bits; i++) {
        y ^= (x >> i & 1U) != 0 ? map->column[i] : 0;
    }
    return y;
}

sx_linear sx_linear_compose(const sx_linear *outer, const sx_linear *inner)
{
    demand_map(inner);
    SX_ASSERT(outer->input_bits == inner->output_bits);
    sx_linear map = {.input_bits = inner->input_bits, .output_bits = outer->output_bits};
    for (uint32_t i = 0; i < inner->input_bits; i++) {
        map.column[i] = sx_linear_apply(outer, inner->column[i]);
    }
    return map;
}

bool sx_linear_equal(const sx_linear *a, const sx_linear *b)
{
    demand_map(a);
    demand_map(b);
    return a->input_bits == b->input_bits && a->output_bits == b->output_bits &&
           memcmp(a->column, b->column, a->input_bits * sizeof(a->column[0])) == 0;
}

uint32_t sx_linear_rank(const sx_linear *map)
{
    demand_map(map);
    return sx_linear_rank_of(map->column, map->input_bits, UINT32_MAX);
}

uint32_t sx_linear_rank_of(const uint32_t *column, uint32_t count, uint32_t mask)
{
    SX_ASSERT(count <= 32);
    uint32_t rows[32] = {0}, rank = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t value = column[i] & mask;
        while (value != 0 && rows[top_bit(value)] != 0) {
            value ^= rows[top_bit(value)];
        }
        if (value != 0) {
            rows[top_bit(value)] = value;
            rank++;
        }
    }
    SX_ASSERT(rank <= count);
    return rank;
}

uint32_t sx_linear_pivots(const sx_linear *map)
{
    demand_map(map);
    basis rows;
    return fill(map, UINT32_MAX, &rows);
}

bool sx_linear_solve(const sx_linear *map, uint32_t inputs, uint32_t y, uint32_t *x)
{
    demand_map(map);
    basis rows;
    fill(map, inputs, &rows);
    uint32_t found = 0;
    if (reduce(&rows, y, &found) != 0) {
        return false;
    }
    SX_ASSERT((found & ~inputs) == 0 && sx_linear_apply(map, found) == y);
    *x = found;
    return true;
}

bool sx_linear_find_inverse(const sx_linear *map, sx_linear *inverse)
{
    demand_map(map);
    if (map->output_bits > SX_LINEAR_INPUTS_MAX || sx_linear_rank(map) != map->output_bits) {
        return false;
    }
    basis rows;
    fill(map, UINT32_MAX, &rows);
    *inverse = (sx_linear){.input_bits = map->output_bits, .output_bits = map->input_bits};
    for (uint32_t bit = 0; bit < map->output_bits; bit++) {
        uint32_t rest = reduce(&rows, 1U << bit, &inverse->column[bit]);
        SX_ASSERT(rest == 0);
    }
    return true;
}
