/* module_case.c - parts that are for some values of a symbol, with numbers that follow it. */
#include "protocol/module_check.h"

#define I(value) ((long long)(value))
#define BAD(cx, index, format, ...) \
    SX_FAIL((cx), SX_CORRUPT, "module case %llu: " format, (unsigned long long)(index), __VA_ARGS__)

#define GRID_RANK 3u

static bool value_of(const sx_module_number *number, const sx_module_case *row, int64_t value,
                     int64_t *result)
{
    int64_t product, sum;
    if (!sx_mul_i64(number->scale, value, &product) || !sx_add_i64(product, number->offset, &sum)) {
        return false;
    }
    *result = sum / row->modulus;
    return sum % row->modulus == 0;
}

static sx_code check_order(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_case *row = &module->cases[index];
    const sx_module_case *before = index > 0 ? row - 1 : NULL;
    uint64_t first = before != NULL ? (uint64_t)before->number_first + before->number_count : 0;
    bool same = before != NULL && before->part == row->part;
    if (row->part >= module->part_count || (before != NULL && before->part > row->part)) {
        return BAD(cx, index, "part %u, behind part %u, of %llu", row->part,
                   before != NULL ? before->part : 0, (unsigned long long)module->part_count);
    }
    if (row->number_first != first || row->number_count < GRID_RANK ||
        row->number_count > SX_MODULE_NUMBERS_MAX ||
        first + row->number_count > module->number_count ||
        (same && (before->number_count != row->number_count || before->symbol != row->symbol))) {
        return BAD(cx, index, "%u numbers from %u on, of symbol %u", row->number_count,
                   row->number_first, row->symbol);
    }
    return SX_OK;
}

sx_code sx_module_check_case(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_case *row = &module->cases[index];
    SX_TRY(check_order(cx, module, index));
    if (row->symbol >= module->symbol_count || row->modulus < 1 || row->low < 1 ||
        row->low > row->high || row->high > SX_EXTENT_MAX || row->remainder < 0 ||
        row->low % row->modulus != row->remainder || row->high % row->modulus != row->remainder) {
        return BAD(cx, index, "values %lld to %lld of symbol %u, those that leave %lld of %lld",
                   I(row->low), I(row->high), row->symbol, I(row->remainder), I(row->modulus));
    }
    uint32_t extents;
    (void)sx_module_extents_of(module, SX_EXTENT_PART, row->part, &extents);
    if (extents > 0 || module->part[row->part].threads > 0) {
        return BAD(cx, index, "of part %u, which has extents or threads", row->part);
    }
    for (uint32_t k = 0; k < row->number_count; k++) { /* affine: in between is what the ends are */
        const sx_module_number *number = &module->number[row->number_first + k];
        int64_t least, most;
        bool fits =
            value_of(number, row, row->low, &least) && value_of(number, row, row->high, &most);
        int64_t limit = k < GRID_RANK ? module->part[row->part].grid[k] : INT64_MAX;
        if (!fits ||
            (k < GRID_RANK && (sx_min_i64(least, most) < 1 || sx_max_i64(least, most) > limit))) {
            return BAD(cx, index, "number %u, (%lld value + %lld) / %lld, of part %u", k,
                       I(number->scale), I(number->offset), I(row->modulus), row->part);
        }
    }
    return SX_OK;
}

const sx_module_case *sx_module_cases_of(const sx_module *module, uint32_t part, uint32_t *count)
{
    uint64_t low = 0, high = module->cases_count;
    SX_ASSERT(count != NULL && part < SX_MODULE_NONE);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        bool before = module->cases[middle].part < part;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    *count = 0;
    while (low + *count < module->cases_count && module->cases[low + *count].part == part) {
        (*count)++;
    }
    return module->cases + low;
}

bool sx_module_case_holds(const sx_module_case *row, int64_t value)
{
    SX_ASSERT(row->modulus >= 1);
    return row->low <= value && value <= row->high && value % row->modulus == row->remainder;
}

int64_t sx_module_number_of(const sx_module *module, const sx_module_case *row, uint32_t number,
                            int64_t value)
{
    int64_t result = 0;
    SX_ASSERT(number < row->number_count && sx_module_case_holds(row, value));
    bool fits = value_of(&module->number[row->number_first + number], row, value, &result);
    SX_ASSERT(fits); /* the check of the module said so */
    return result;
}
