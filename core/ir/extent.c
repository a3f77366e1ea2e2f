#include "core/ir/extent.h"

#include <string.h>

#include "core/ir/check.h"

/* ---- terms ---- */

static sx_term constant_term(int64_t scale)
{
    sx_term t = {.scale = scale};
    memset(t.factor, 0xff, sizeof(t.factor)); /* SX_NO_SYMBOL */
    return t;
}

/* Before, equal, behind: the larger power of the smaller symbol first, a number last. */
static int compare_factors(const sx_term *a, const sx_term *b)
{
    for (uint32_t i = 0; i < SX_FACTORS_MAX; i++) {
        if (a->factor[i] != b->factor[i]) {
            return a->factor[i] < b->factor[i] ? -1 : 1;
        }
    }
    return 0;
}

static bool multiply_terms(const sx_term *a, const sx_term *b, sx_term *product)
{
    uint32_t i = 0, k = 0, count = 0;
    *product = constant_term(0);
    while ((i < SX_FACTORS_MAX && a->factor[i] != SX_NO_SYMBOL) ||
           (k < SX_FACTORS_MAX && b->factor[k] != SX_NO_SYMBOL)) {
        uint32_t x = i < SX_FACTORS_MAX ? a->factor[i] : SX_NO_SYMBOL;
        uint32_t y = k < SX_FACTORS_MAX ? b->factor[k] : SX_NO_SYMBOL;
        if (count == SX_FACTORS_MAX) {
            return false;
        }
        product->factor[count++] = x <= y ? x : y;
        i += x <= y ? 1 : 0;
        k += x <= y ? 0 : 1;
    }
    return sx_mul_i64(a->scale, b->scale, &product->scale);
}

static bool divide_terms(const sx_term *a, const sx_term *b, sx_term *quotient)
{
    uint32_t k = 0, count = 0;
    *quotient = constant_term(0);
    if (b->scale == 0 || (a->scale == INT64_MIN && b->scale == -1) || a->scale % b->scale != 0) {
        return false;
    }
    for (uint32_t i = 0; i < SX_FACTORS_MAX && a->factor[i] != SX_NO_SYMBOL; i++) {
        if (k < SX_FACTORS_MAX && b->factor[k] == a->factor[i]) {
            k++;
        } else {
            quotient->factor[count++] = a->factor[i];
        }
    }
    quotient->scale = a->scale / b->scale;
    return k == SX_FACTORS_MAX || b->factor[k] == SX_NO_SYMBOL;
}

/* ---- polynomials ---- */

static bool add_term(sx_polynomial *sum, const sx_term *t)
{
    uint32_t at = 0;
    SX_ASSERT(sum->count <= SX_TERMS_MAX);
    while (at < sum->count && compare_factors(&sum->term[at], t) < 0) {
        at++;
    }
    if (at < sum->count && compare_factors(&sum->term[at], t) == 0) {
        if (!sx_add_i64(sum->term[at].scale, t->scale, &sum->term[at].scale)) {
            return false;
        }
        if (sum->term[at].scale == 0) {
            memmove(&sum->term[at], &sum->term[at + 1], (--sum->count - at) * sizeof(*t));
        }
        return true;
    }
    if (t->scale == 0 || sum->count == SX_TERMS_MAX) {
        return t->scale == 0;
    }
    memmove(&sum->term[at + 1], &sum->term[at], (sum->count++ - at) * sizeof(*t));
    sum->term[at] = *t;
    return true;
}

bool sx_polynomial_of(const sx_symbol *symbols, sx_dim dim, sx_polynomial *p)
{
    sx_term t = constant_term(dim.scale);
    *p = (sx_polynomial){0};
    if (sx_dim_is_constant(dim) || dim.scale == 0) {
        return add_term(p, &t);
    }
    if (!sx_symbol_is_declared(&symbols[dim.symbol])) {
        return sx_polynomial_add(p, symbols[dim.symbol].sum, dim.scale);
    }
    t.factor[0] = dim.symbol;
    return add_term(p, &t);
}

bool sx_polynomial_add(sx_polynomial *sum, const sx_polynomial *p, int64_t scale)
{
    bool ok = true;
    for (uint32_t i = 0; i < p->count && ok; i++) {
        sx_term t = p->term[i];
        ok = sx_mul_i64(t.scale, scale, &t.scale) && add_term(sum, &t);
    }
    return ok;
}

bool sx_polynomial_multiply(const sx_polynomial *a, const sx_polynomial *b, sx_polynomial *product)
{
    sx_polynomial out = {0};
    bool ok = true;
    for (uint32_t i = 0; i < a->count && ok; i++) {
        for (uint32_t k = 0; k < b->count && ok; k++) {
            sx_term t;
            ok = multiply_terms(&a->term[i], &b->term[k], &t) && add_term(&out, &t);
        }
    }
    *product = out;
    return ok;
}

/* The first term of a sum is the product of the first terms, as the order of terms is one of monomials. */
bool sx_polynomial_divide(const sx_polynomial *a, const sx_polynomial *b, sx_polynomial *quotient)
{
    sx_polynomial rest = *a, out = {0};
    bool ok = b->count > 0;
    for (uint32_t round = 0; ok && rest.count > 0; round++) {
        sx_polynomial part = {.count = 1};
        sx_polynomial taken;
        ok = round < SX_TERMS_MAX && divide_terms(&rest.term[0], &b->term[0], &part.term[0]) &&
             sx_polynomial_multiply(&part, b, &taken) && sx_polynomial_add(&rest, &taken, -1) &&
             add_term(&out, &part.term[0]);
    }
    *quotient = out;
    return ok;
}

int sx_polynomial_compare(const sx_polynomial *a, const sx_polynomial *b)
{
    for (uint32_t i = 0; i < a->count && i < b->count; i++) {
        int order = compare_factors(&a->term[i], &b->term[i]);
        if (order != 0) {
            return order;
        }
        if (a->term[i].scale != b->term[i].scale) {
            return a->term[i].scale < b->term[i].scale ? -1 : 1;
        }
    }
    return (int)(a->count > b->count) - (int)(a->count < b->count);
}

bool sx_polynomial_elements(const sx_symbol *symbols, const sx_type *type, sx_polynomial *p)
{
    sx_polynomial factor;
    bool ok = sx_polynomial_of(symbols, sx_dim_of(1), p);
    for (uint32_t d = 0; d < type->rank; d++) {
        if (type->dim[d].scale == 0) {
            *p = (sx_polynomial){0};
            return true;
        }
    }
    for (uint32_t d = 0; d < type->rank && ok; d++) {
        ok = sx_polynomial_of(symbols, type->dim[d], &factor) &&
             sx_polynomial_multiply(p, &factor, p);
    }
    return ok;
}

bool sx_polynomial_rename(const sx_polynomial *p, const sx_dim *image, sx_polynomial *renamed)
{
    bool ok = true;
    *renamed = (sx_polynomial){0};
    for (uint32_t i = 0; i < p->count && ok; i++) {
        sx_polynomial product = {.count = 1, .term = {constant_term(p->term[i].scale)}};
        for (uint32_t k = 0; k < SX_FACTORS_MAX && p->term[i].factor[k] != SX_NO_SYMBOL; k++) {
            sx_polynomial factor = {.count = 1, .term = {constant_term(1)}};
            factor.term[0].factor[0] = image[p->term[i].factor[k]].symbol;
            ok = ok && sx_polynomial_multiply(&product, &factor, &product);
        }
        ok = ok && sx_polynomial_add(renamed, &product, 1);
    }
    return ok;
}

int64_t sx_polynomial_value(const sx_polynomial *p, const int64_t *value)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        int64_t product = p->term[i].scale;
        bool fits = true;
        for (uint32_t k = 0; k < SX_FACTORS_MAX && p->term[i].factor[k] != SX_NO_SYMBOL; k++) {
            fits = fits && sx_mul_i64(product, value[p->term[i].factor[k]], &product);
        }
        fits = fits && sx_add_i64(sum, product, &sum);
        SX_ASSERT(fits); /* the bounds of a row are numbers */
    }
    return sum;
}

void sx_polynomial_print(const sx_polynomial *p, int64_t scale, const sx_symbol *symbols,
                         sx_buf *text)
{
    uint32_t first = 0;
    while (first + 1 < p->count && p->term[first].scale < 0) {
        first++;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        const sx_term *t = &p->term[i == 0 ? first : i <= first ? i - 1 : i];
        int64_t factor = t->scale * scale;
        bool number = t->factor[0] == SX_NO_SYMBOL;
        sx_buf_put_text(text, i == 0 ? "" : factor < 0 ? " - " : " + ");
        factor = i > 0 && factor < 0 ? -factor : factor;
        if (number || factor != 1) {
            sx_buf_print(text, "%lld%s", (long long)factor, number ? "" : "*");
        }
        for (uint32_t k = 0; k < SX_FACTORS_MAX && t->factor[k] != SX_NO_SYMBOL; k++) {
            sx_buf_put_text(text, k > 0 ? "*" : "");
            sx_symbol_print(symbols[t->factor[k]].name, text);
        }
    }
}

/* ---- rows ---- */

/* p as a number times what has no common divisor; 0 of nothing. */
static int64_t take_content(sx_polynomial *p)
{
    int64_t divisor = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        int64_t a = p->term[i].scale < 0 ? -p->term[i].scale : p->term[i].scale;
        while (a != 0) {
            int64_t rest = divisor % a;
            divisor = a;
            a = rest;
        }
    }
    for (uint32_t i = 0; i < p->count; i++) {
        p->term[i].scale /= divisor;
    }
    return divisor;
}

static bool is_number(const sx_polynomial *p)
{
    return p->count == 0 || (p->count == 1 && p->term[0].factor[0] == SX_NO_SYMBOL);
}

bool sx_extent_find(const sx_symbol *symbols, uint32_t symbol_count, const sx_polynomial *p,
                    sx_dim *dim)
{
    sx_polynomial rest = *p;
    *dim = sx_dim_of(p->count > 0 ? p->term[0].scale : 0);
    if (is_number(p)) {
        return dim->scale >= 0;
    }
    dim->scale = take_content(&rest);
    dim->symbol = rest.term[0].factor[0];
    if (rest.count == 1 && rest.term[0].factor[1] == SX_NO_SYMBOL) {
        return rest.term[0].scale > 0;
    }
    for (dim->symbol = 0; dim->symbol < symbol_count; dim->symbol++) {
        const sx_polynomial *own = symbols[dim->symbol].sum;
        if (own != NULL && sx_polynomial_compare(own, &rest) == 0) {
            return true;
        }
    }
    return false;
}

/* Each term at the values of its symbols that make it least or greatest. */
static bool bounds_of_terms(const sx_symbol *symbols, const sx_polynomial *p, int64_t *low,
                            int64_t *high)
{
    bool ok = true;
    *low = *high = 0;
    for (uint32_t i = 0; i < p->count && ok; i++) {
        int64_t least = p->term[i].scale, most = p->term[i].scale;
        for (uint32_t k = 0; k < SX_FACTORS_MAX && ok; k++) {
            if (p->term[i].factor[k] == SX_NO_SYMBOL) {
                break;
            }
            const sx_symbol *s = &symbols[p->term[i].factor[k]];
            bool falls = p->term[i].scale < 0;
            ok = sx_mul_i64(least, falls ? s->high : s->low, &least) &&
                 sx_mul_i64(most, falls ? s->low : s->high, &most);
        }
        ok = ok && sx_add_i64(*low, least, low) && sx_add_i64(*high, most, high);
    }
    return ok;
}

/* The symbols of p, where no product has one twice: then it is linear in each of them. false: it has, or there are more
 * than BOUND_SYMBOLS_MAX. */
enum { BOUND_SYMBOLS_MAX = 6 };

static bool linear_symbols(const sx_polynomial *p, uint32_t *found, uint32_t *count)
{
    *count = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const uint32_t *factor = p->term[i].factor;
        for (uint32_t k = 0; k < SX_FACTORS_MAX && factor[k] != SX_NO_SYMBOL; k++) {
            uint32_t at = 0;
            if (k > 0 && factor[k] == factor[k - 1]) {
                return false;
            }
            while (at < *count && found[at] != factor[k]) {
                at++;
            }
            if (at == BOUND_SYMBOLS_MAX) {
                return false;
            }
            found[at] = factor[k];
            *count += at == *count;
        }
    }
    return true;
}

/* p where bit `at` of `corner` says whether symbol found[at] is at its highest value; false: overflow. */
static bool value_at_corner(const sx_symbol *symbols, const sx_polynomial *p, const uint32_t *found,
                            uint32_t corner, int64_t *value)
{
    bool ok = true;
    *value = 0;
    for (uint32_t i = 0; i < p->count && ok; i++) {
        const uint32_t *factor = p->term[i].factor;
        int64_t product = p->term[i].scale;
        for (uint32_t k = 0; k < SX_FACTORS_MAX && factor[k] != SX_NO_SYMBOL && ok; k++) {
            uint32_t at = 0;
            while (found[at] != factor[k]) {
                at++;
            }
            const sx_symbol *s = &symbols[factor[k]];
            ok = sx_mul_i64(product, (corner >> at & 1) != 0 ? s->high : s->low, &product);
        }
        ok = ok && sx_add_i64(*value, product, value);
    }
    return ok;
}

/* A polynomial that is linear in each symbol is least and greatest at corners of the box of their values. */
bool sx_polynomial_bounds(const sx_symbol *symbols, const sx_polynomial *p, int64_t *low,
                          int64_t *high)
{
    uint32_t found[BOUND_SYMBOLS_MAX], count;
    int64_t least = INT64_MAX, most = INT64_MIN;
    if (!bounds_of_terms(symbols, p, low, high)) {
        return false;
    }
    if (!linear_symbols(p, found, &count)) {
        return true;
    }
    for (uint32_t corner = 0; corner < 1u << count; corner++) {
        int64_t value;
        if (!value_at_corner(symbols, p, found, corner, &value)) {
            return true;
        }
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    SX_ASSERT(*low <= least && most <= *high); /* those of the terms are never nearer */
    *low = least;
    *high = most;
    return true;
}

static sx_code put_row(sx_ctx *cx, sx_graph *graph, const sx_polynomial *p)
{
    sx_symbol row = {.low = 0};
    sx_polynomial *own = SX_NEW(cx, sx_polynomial);
    sx_buf text;
    if (own == NULL) {
        return cx->error.code;
    }
    *own = *p;
    row.sum = own;
    sx_buf_init(&text, 65536);
    sx_polynomial_print(p, 1, graph->symbol, &text);
    char *name = sx_alloc_text(cx, sx_buf_span(&text));
    row.name = (sx_span){(const uint8_t *)name, text.len};
    sx_buf_fini(&text);
    if (name == NULL) {
        return cx->error.code;
    }
    if (!sx_polynomial_bounds(graph->symbol, p, &row.low, &row.high) || row.high > SX_EXTENT_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "extent %s: its terms are beyond %lld",
                       sx_short_name(row.name).text, (long long)SX_EXTENT_MAX);
    }
    if (row.low < 1) {
        return SX_FAIL(cx, SX_INPUT,
                       "extent %s: by the bounds of its symbols from %lld on, at least 1",
                       sx_short_name(row.name).text, (long long)row.low);
    }
    if (graph->symbol_count >= SX_SYMBOLS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "extent %s: more than %u symbols, sums of them included",
                       sx_short_name(row.name).text, SX_SYMBOLS_MAX);
    }
    void *array = graph->symbol;
    SX_TRY(sx_grow(cx, &array, &graph->symbol_capacity, graph->symbol_count + 1, sizeof(row)));
    graph->symbol = array;
    graph->symbol[graph->symbol_count++] = row;
    return SX_OK;
}

sx_code sx_graph_add_extent(sx_ctx *cx, sx_graph *graph, const sx_polynomial *p, sx_dim *dim)
{
    sx_polynomial rest = *p;
    if (sx_extent_find(graph->symbol, graph->symbol_count, p, dim)) {
        return SX_OK;
    }
    if (is_number(p)) {
        return SX_FAIL(cx, SX_INPUT, "extent %lld, at least 0", (long long)dim->scale);
    }
    int64_t scale = take_content(&rest);
    SX_TRY(put_row(cx, graph, &rest));
    *dim = (sx_dim){scale, graph->symbol_count - 1};
    return SX_OK;
}

sx_code sx_graph_copy_symbols(sx_ctx *cx, const sx_symbol *symbols, uint32_t symbol_count,
                              sx_graph *to)
{
    SX_ASSERT(to->symbol_count <= symbol_count); /* or their numbers would be others */
    for (uint32_t s = to->symbol_count; s < symbol_count; s++) {
        const sx_symbol *symbol = &symbols[s];
        uint32_t index;
        sx_dim dim;
        if (sx_symbol_is_declared(symbol)) {
            SX_TRY(sx_graph_add_symbol(cx, to, symbol->name, symbol->low, symbol->high, &index));
        } else {
            SX_TRY(sx_graph_add_extent(cx, to, symbol->sum, &dim));
        }
        SX_ASSERT(to->symbol_count == s + 1);
    }
    return SX_OK;
}

bool sx_symbols_equal(const sx_symbol *a, const sx_symbol *b, uint32_t count, bool names)
{
    bool same = true;
    for (uint32_t s = 0; s < count && same; s++) {
        bool declared = sx_symbol_is_declared(&a[s]);
        same = declared == sx_symbol_is_declared(&b[s]) && a[s].low == b[s].low &&
               a[s].high == b[s].high && (!names || sx_span_equal(a[s].name, b[s].name)) &&
               (declared || sx_polynomial_compare(a[s].sum, b[s].sum) == 0);
    }
    return same;
}

void sx_symbols_derive(const sx_symbol *symbols, uint32_t symbol_count, int64_t *value)
{
    for (uint32_t s = 0; s < symbol_count; s++) {
        if (!sx_symbol_is_declared(&symbols[s])) {
            value[s] = sx_polynomial_value(symbols[s].sum, value);
        }
    }
}
