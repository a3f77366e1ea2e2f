/* module_variant.c - which variant serves which extents on which machine. */
#include <string.h>

#include "protocol/module.h"
#include "protocol/module_check.h"

/* ---- symbols ---- */

static const sx_module_range *ranges_of(const sx_module *module, uint32_t symbol, uint32_t *count)
{
    SX_ASSERT(symbol < module->symbol_count);
    *count = module->symbol[symbol].range_count;
    return module->range + module->symbol[symbol].range_first;
}

bool sx_module_symbol_has(const sx_module *module, uint32_t symbol, int64_t value)
{
    uint32_t count;
    const sx_module_range *range = ranges_of(module, symbol, &count);
    bool has = false;
    for (uint32_t i = 0; i < count && !has; i++) {
        has = range[i].low <= value && value <= range[i].high &&
              (value - range[i].low) % range[i].step == 0;
    }
    return has;
}

int64_t sx_module_symbol_low(const sx_module *module, uint32_t symbol)
{
    uint32_t count;
    return ranges_of(module, symbol, &count)->low;
}

int64_t sx_module_symbol_high(const sx_module *module, uint32_t symbol)
{
    uint32_t count;
    const sx_module_range *range = ranges_of(module, symbol, &count);
    return range[count - 1].high;
}

bool sx_module_symbol_fixed(const sx_module *module, uint32_t symbol)
{
    return sx_module_symbol_low(module, symbol) == sx_module_symbol_high(module, symbol);
}

void sx_module_symbol_print(const sx_module *module, uint32_t symbol, sx_buf *text)
{
    uint32_t count;
    const sx_module_range *range = ranges_of(module, symbol, &count);
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_print(text, "%s%lld", i > 0 ? ", " : "", (long long)range[i].low);
        if (range[i].high > range[i].low) {
            sx_buf_print(text, " to %lld", (long long)range[i].high);
        }
        if (range[i].high > range[i].low && range[i].step > 1) {
            sx_buf_print(text, " step %lld", (long long)range[i].step);
        }
    }
}

const sx_module_cubin *sx_module_cubin_of(const sx_module *module, uint32_t part, uint32_t level)
{
    uint64_t low = 0, high = module->cubin_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const sx_module_cubin *row = &module->cubin[middle];
        bool before = row->part != part ? row->part < part : row->level < level;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    const sx_module_cubin *row = low < module->cubin_count ? &module->cubin[low] : NULL;
    return row != NULL && row->part == part && row->level == level ? row : NULL;
}

bool sx_module_extent_product(const sx_module_extent *extent, int64_t value, int64_t other,
                              int64_t *product)
{
    bool fits = true;
    *product = extent->scale;
    if (extent->symbol != SX_MODULE_NONE) {
        fits = sx_mul_i64(*product, value, product);
    }
    if (extent->other != SX_MODULE_NONE) {
        fits = fits && sx_mul_i64(*product, other, product);
    }
    return fits;
}

int64_t sx_module_extent_of(const sx_module_extent *extent, const int64_t *value)
{
    int64_t product = 0;
    bool fits = sx_module_extent_product(
        extent, extent->symbol != SX_MODULE_NONE ? value[extent->symbol] : 1,
        extent->other != SX_MODULE_NONE ? value[extent->other] : 1, &product);
    SX_ASSERT(fits && extent->divisor > 0); /* the check of the module said so */
    return sx_ceil_div_i64(product, extent->divisor);
}

/* ---- guards ---- */

static bool machine_has(const sx_module_guard *guard, const sx_arch_set *machine)
{
    return guard->subject < SX_ARCH_END && machine->level[guard->subject] != 0 &&
           (int64_t)machine->level[guard->subject] >= guard->low;
}

static bool guard_holds(const sx_module_guard *guard, const int64_t *value,
                        const sx_arch_set *machine)
{
    switch ((sx_module_guard_kind)guard->kind) {
    case SX_GUARD_RANGE:
        return guard->low <= value[guard->subject] && value[guard->subject] <= guard->high;
    case SX_GUARD_DIVISIBLE: return value[guard->subject] % guard->low == 0;
    case SX_GUARD_EQUAL: return value[guard->subject] == guard->low;
    case SX_GUARD_MACHINE: return machine_has(guard, machine);
    case SX_GUARD_KIND_COUNT: break;
    }
    SX_UNREACHABLE();
}

bool sx_module_machine_fits(const sx_module *module, uint32_t index, const sx_arch_set *machine)
{
    SX_ASSERT(index < module->variant_count);
    const sx_module_variant *variant = &module->variant[index];
    bool fits = true;
    for (uint32_t i = 0; i < variant->guard_count; i++) {
        const sx_module_guard *guard = &module->guard[variant->guard_first + i];
        fits = fits && (guard->kind != SX_GUARD_MACHINE || machine_has(guard, machine));
    }
    return fits;
}

uint32_t sx_module_pick(const sx_module *module, const int64_t *value, const sx_arch_set *machine)
{
    for (uint32_t v = 0; v < module->variant_count; v++) {
        const sx_module_guard *guard = module->guard + module->variant[v].guard_first;
        uint32_t held = 0;
        while (held < module->variant[v].guard_count && guard_holds(&guard[held], value, machine)) {
            held++;
        }
        if (held == module->variant[v].guard_count) {
            return v;
        }
    }
    return SX_MODULE_NONE;
}

static void print_guard(const sx_module *module, const sx_module_guard *guard, sx_buf *text)
{
    if (guard->kind == SX_GUARD_MACHINE) {
        const char *level = sx_level_name(guard->subject, (uint32_t)guard->low);
        sx_buf_print(text, "on %s", level != NULL ? level : "unknown");
        return;
    }
    sx_buf_put_span(text, sx_module_string(module, module->symbol[guard->subject].name));
    if (guard->kind == SX_GUARD_RANGE) {
        sx_buf_print(text, " in %lld to %lld", (long long)guard->low, (long long)guard->high);
    } else if (guard->kind == SX_GUARD_DIVISIBLE) {
        sx_buf_print(text, " a multiple of %lld", (long long)guard->low);
    } else {
        sx_buf_print(text, "=%lld", (long long)guard->low);
    }
}

void sx_module_guards_print(const sx_module *module, uint32_t variant, sx_buf *text)
{
    SX_ASSERT(variant < module->variant_count);
    const sx_module_variant *v = &module->variant[variant];
    for (uint32_t i = 0; i < v->guard_count; i++) {
        sx_buf_put_text(text, i > 0 ? ", " : "");
        print_guard(module, &module->guard[v->guard_first + i], text);
    }
}

/* ---- holes ----
 * Between two values at which some guard of a symbol begins or ends, only divisibility tells values apart, and
 * that repeats with the least common multiple of the divisors. So a few values of each symbol stand for all:
 * of every stretch without such a value, as many as the pattern of remainders is long. */

#define GUARDS_MAX 4096u                    /* guards of a module, and ranges of its symbols */
#define PERIOD_MAX 65536                    /* least common multiple of the divisors of a symbol */
#define VALUES_MAX 65536u                   /* that stand for all values of a symbol */
#define EVALUATIONS_MAX (UINT64_C(1) << 24) /* guards looked at */

typedef struct {
    int64_t *value;
    uint32_t count, capacity;
} axis;

static sx_code period_of(sx_ctx *cx, const sx_module *module, uint32_t symbol, int64_t *period)
{
    *period = 1;
    for (uint64_t i = 0; i < module->guard_count; i++) {
        const sx_module_guard *guard = &module->guard[i];
        if (guard->kind != SX_GUARD_DIVISIBLE || guard->subject != symbol) {
            continue;
        }
        int64_t more = guard->low / sx_gcd_i64(guard->low, *period);
        if (more > PERIOD_MAX / *period) {
            return SX_FAIL(cx, SX_CORRUPT,
                           "module guard %llu: the divisors of symbol %u have no common multiple "
                           "up to %d",
                           (unsigned long long)i, symbol, PERIOD_MAX);
        }
        *period *= more;
    }
    return SX_OK;
}

/* The first value behind `value` at which a guard of the symbol begins or ends; INT64_MAX if there is none. */
static int64_t next_cut(const sx_module *module, uint32_t symbol, int64_t value)
{
    int64_t next = INT64_MAX;
    for (uint64_t i = 0; i < module->guard_count; i++) {
        const sx_module_guard *guard = &module->guard[i];
        bool cuts = guard->kind == SX_GUARD_RANGE || guard->kind == SX_GUARD_EQUAL;
        if (!cuts || guard->subject != symbol) {
            continue;
        }
        int64_t end = (guard->kind == SX_GUARD_RANGE ? guard->high : guard->low) + 1;
        next = guard->low > value && guard->low < next ? guard->low : next;
        next = end > value && end < next ? end : next;
    }
    return next;
}

static sx_code put_value(sx_ctx *cx, axis *a, uint32_t symbol, int64_t value)
{
    if (a->count >= VALUES_MAX) {
        return SX_FAIL(cx, SX_CORRUPT, "module symbol %u: more than %u values differ to its guards",
                       symbol, VALUES_MAX);
    }
    void *array = a->value;
    SX_TRY(sx_grow(cx, &array, &a->capacity, a->count + 1, sizeof(*a->value)));
    a->value = array;
    a->value[a->count++] = value;
    return SX_OK;
}

static sx_code collect(sx_ctx *cx, const sx_module *module, uint32_t symbol, axis *a)
{
    uint32_t count;
    int64_t period;
    const sx_module_range *range = ranges_of(module, symbol, &count);
    SX_TRY(period_of(cx, module, symbol, &period));
    for (uint32_t r = 0; r < count; r++) {
        int64_t pattern = period / sx_gcd_i64(period, range[r].step);
        for (int64_t value = range[r].low; value <= range[r].high;) {
            int64_t cut = next_cut(module, symbol, value);
            int64_t end = cut <= range[r].high ? cut - 1 : range[r].high; /* of this stretch */
            int64_t in_stretch = (end - value) / range[r].step + 1;
            for (int64_t k = 0; k < in_stretch && k < pattern; k++) {
                SX_TRY(put_value(cx, a, symbol, value + k * range[r].step));
            }
            value += in_stretch * range[r].step;
        }
    }
    SX_ASSERT(a->count > 0);
    return SX_OK;
}

static sx_code name_hole(sx_ctx *cx, const sx_module *module, const int64_t *value)
{
    char text[512] = "";
    sx_buf line;
    sx_buf_init(&line, sizeof(text) - 1);
    for (uint32_t s = 0; s < module->symbol_count; s++) {
        sx_buf_put_span(&line, sx_module_string(module, module->symbol[s].name));
        sx_buf_print(&line, "=%lld ", (long long)value[s]);
    }
    memcpy(text, line.ptr != NULL ? line.ptr : (const uint8_t *)"", line.len);
    sx_buf_fini(&line);
    return SX_FAIL(cx, SX_CORRUPT, "module variants: a hole, none of %llu serves %son %s",
                   (unsigned long long)module->variant_count, text,
                   sx_level_name(module->info->arch, module->info->level));
}

sx_code sx_module_check_cover(sx_ctx *cx, const sx_module *module)
{
    uint32_t count = (uint32_t)module->symbol_count;
    if (module->variant_count == 0) { /* nothing is run */
        return SX_OK;
    }
    sx_arch_set least = {.level = {0}};
    least.level[module->info->arch] = module->info->level;
    if (module->guard_count > GUARDS_MAX || module->range_count > GUARDS_MAX) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %llu guards and %llu ranges, at most %u of each",
                       (unsigned long long)module->guard_count,
                       (unsigned long long)module->range_count, GUARDS_MAX);
    }
    axis *a = SX_NEW_ARRAY(cx, axis, count + 1);
    uint32_t *at = SX_NEW_ARRAY(cx, uint32_t, count + 1);
    int64_t *value = SX_NEW_ARRAY(cx, int64_t, count + 1);
    if (a == NULL || at == NULL || value == NULL) {
        return cx->error.code;
    }
    uint64_t work = module->guard_count + 1;
    for (uint32_t s = 0; s < count; s++) {
        SX_TRY(collect(cx, module, s, &a[s]));
        value[s] = a[s].value[0];
        work = work > EVALUATIONS_MAX ? work : work * a[s].count;
    }
    if (work > EVALUATIONS_MAX) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module variants: more than %llu guards to look at for all extents",
                       (unsigned long long)EVALUATIONS_MAX);
    }
    for (uint32_t s = 0; s <= count;) { /* the values of all symbols count up like a number */
        if (s == 0 && sx_module_pick(module, value, &least) == SX_MODULE_NONE) {
            return name_hole(cx, module, value);
        }
        if (s == count) {
            break;
        }
        at[s] = at[s] + 1 < a[s].count ? at[s] + 1 : 0;
        value[s] = a[s].value[at[s]];
        s = at[s] != 0 ? 0 : s + 1;
    }
    return SX_OK;
}

/* ---- names ---- */

const char *sx_module_place_name(uint32_t place)
{
    static const char *const name[SX_TENSOR_PLACE_COUNT] = {
#define SX_PLACE(enumerator, text) text,
        SX_MODULE_PLACES(SX_PLACE)
#undef SX_PLACE
    };
    return place < SX_TENSOR_PLACE_COUNT ? name[place] : "unknown";
}

const char *sx_module_kernel_kind_name(uint32_t kind)
{
    static const char *const name[SX_MODULE_KERNEL_KIND_COUNT] = {
#define SX_KERNEL(enumerator, text) text,
        SX_MODULE_KERNELS(SX_KERNEL)
#undef SX_KERNEL
    };
    return kind < SX_MODULE_KERNEL_KIND_COUNT ? name[kind] : "unknown";
}

const char *sx_module_launch_name(uint32_t kind)
{
    static const char *const name[SX_LAUNCH_KIND_COUNT] = {
#define SX_LAUNCH(enumerator, text) text,
        SX_MODULE_LAUNCHES_OF(SX_LAUNCH)
#undef SX_LAUNCH
    };
    return kind < SX_LAUNCH_KIND_COUNT ? name[kind] : "unknown";
}

const char *sx_module_work_name(const sx_module *module, uint64_t launch)
{
    SX_ASSERT(launch < module->launch_count);
    const sx_module_kernel *kernel = sx_module_kernel_of(module, launch);
    return kernel != NULL ? sx_module_kernel_kind_name(kernel->kind)
                          : sx_module_launch_name(module->launch[launch].kind);
}
