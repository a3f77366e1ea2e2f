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

/* Is it the next case of a group, or the first one of the next group or part? */
static bool is_next(const sx_module_case *row, const sx_module_case *before)
{
    if (before == NULL || before->part != row->part) {
        return row->group == 0 && row->slot == 0;
    }
    if (before->group != row->group) {
        return row->group == before->group + 1 && row->slot == before->slot + before->number_count;
    }
    return before->slot == row->slot && before->number_count == row->number_count &&
           before->symbol == row->symbol && before->other == row->other;
}

static sx_code check_order(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_case *row = &module->cases[index];
    const sx_module_case *before = index > 0 ? row - 1 : NULL;
    uint64_t first = before != NULL ? before->number_first + before->number_count : 0;
    bool last = index + 1 == module->cases_count || row[1].part != row->part;
    if (row->part >= module->part_count || (before != NULL && before->part > row->part)) {
        return BAD(cx, index, "part %u, behind part %u, of %llu", row->part,
                   before != NULL ? before->part : 0, (unsigned long long)module->part_count);
    }
    if (!is_next(row, before)) {
        return BAD(cx, index, "group %u from number %u on, behind group %u of part %u", row->group,
                   row->slot, before != NULL ? before->group : 0,
                   before != NULL ? before->part : row->part);
    }
    if (row->number_first != first || row->slot > SX_MODULE_NUMBERS_MAX ||
        row->number_count > SX_MODULE_NUMBERS_MAX - row->slot ||
        (last && row->slot + row->number_count < GRID_RANK) ||
        first + row->number_count > module->number_count) {
        return BAD(cx, index, "%u numbers from %llu on, number %u of the part", row->number_count,
                   (unsigned long long)row->number_first, row->slot);
    }
    return SX_OK;
}

sx_code sx_module_check_case(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_case *row = &module->cases[index];
    SX_TRY(check_order(cx, module, index));
    bool product = row->other != SX_MODULE_NONE;
    if (row->symbol >= module->symbol_count || (product && row->other >= module->symbol_count) ||
        row->modulus < 1 || row->low < 1 || row->low > row->high || row->high > SX_EXTENT_MAX ||
        row->remainder < 0 || row->low % row->modulus != row->remainder ||
        row->high % row->modulus != row->remainder) {
        return BAD(cx, index, "values %lld to %lld of symbol %u, those that leave %lld of %lld",
                   I(row->low), I(row->high), row->symbol, I(row->remainder), I(row->modulus));
    }
    uint32_t extents;
    (void)sx_module_extents_of(module, SX_EXTENT_PART, row->part, &extents);
    if (extents > 0) {
        return BAD(cx, index, "of part %u, which has extents", row->part);
    }
    for (uint32_t k = 0; k < row->number_count; k++) { /* affine: in between is what the ends are */
        const sx_module_number *number = &module->number[row->number_first + k];
        int64_t least, most;
        bool fits =
            value_of(number, row, row->low, &least) && value_of(number, row, row->high, &most);
        bool grid = row->slot + k < GRID_RANK;
        int64_t limit = grid ? module->part[row->part].grid[row->slot + k] : INT64_MAX;
        if (!fits || (grid && (sx_min_i64(least, most) < 1 || sx_max_i64(least, most) > limit))) {
            return BAD(cx, index, "number %u, (%lld value + %lld) / %lld, of part %u",
                       row->slot + k, I(number->scale), I(number->offset), I(row->modulus),
                       row->part);
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

uint32_t sx_module_part_numbers(const sx_module *module, uint32_t part)
{
    uint32_t count;
    const sx_module_case *row = sx_module_cases_of(module, part, &count);
    return count > 0 ? row[count - 1].slot + row[count - 1].number_count - GRID_RANK : 0;
}

int64_t sx_module_case_value(const sx_module_case *row, const int64_t *value)
{
    int64_t product = value[row->symbol];
    bool fits = row->other == SX_MODULE_NONE || sx_mul_i64(product, value[row->other], &product);
    return fits ? product : 0; /* no case holds for 0 */
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
