/* extent.h - extents that are sums of products of symbols: past + 1, batch*seq.
 *
 * An extent is a number times one symbol (sx_dim). What is more than that has a row among the symbols of its graph: a
 * *derived* symbol, which nobody binds and which stands for a polynomial over declared ones. So an extent stays two
 * words, equal extents are equal words, and whoever knows nothing of polynomials sees a symbol like any other.
 *
 *     f32[2*batch*seq + 2*batch]      2 times the row of batch*seq + batch
 *
 * Canonical: terms in the lexicographic order of their factors, no two with the same ones, no coefficient 0; that of a
 * row has no common divisor of its coefficients, is at least 1 for all values of the symbols (by the bounds of its
 * terms), and is not one symbol alone. One row for each polynomial, behind the symbols it is made of.
 */
#ifndef SX_CORE_IR_EXTENT_H
#define SX_CORE_IR_EXTENT_H
#include "core/ir/ir.h"

#define SX_TERMS_MAX 8u
#define SX_FACTORS_MAX 6u
typedef struct {
    int64_t scale;
    uint32_t factor[SX_FACTORS_MAX]; /* declared symbols, ascending; SX_NO_SYMBOL behind the last */
} sx_term;
struct sx_polynomial {
    uint32_t count;
    sx_term term[SX_TERMS_MAX];
};
typedef struct sx_polynomial sx_polynomial;

/* false: overflow, or more terms or factors than there is room for. */
bool sx_polynomial_of(const sx_symbol *symbols, sx_dim dim, sx_polynomial *p);
/* sum += scale * p */
bool sx_polynomial_add(sx_polynomial *sum, const sx_polynomial *p, int64_t scale);
bool sx_polynomial_multiply(const sx_polynomial *a, const sx_polynomial *b, sx_polynomial *product);
/* The quotient, where it has integer coefficients and nothing is left. */
bool sx_polynomial_divide(const sx_polynomial *a, const sx_polynomial *b, sx_polynomial *quotient);
int sx_polynomial_compare(const sx_polynomial *a, const sx_polynomial *b);
/* Elements of a type. */
bool sx_polynomial_elements(const sx_symbol *symbols, const sx_type *type, sx_polynomial *p);
/* The same with image[s] for symbol s, another declared symbol. */
bool sx_polynomial_rename(const sx_polynomial *p, const sx_dim *image, sx_polynomial *renamed);
/* Between which numbers it lies: the least and the greatest value where no product has a symbol twice; else each term
 * by itself is at the values of its symbols that make it least or greatest, which may be wider. false: overflow. */
bool sx_polynomial_bounds(const sx_symbol *symbols, const sx_polynomial *p, int64_t *low,
                          int64_t *high);
/* Its value where symbol s is value[s]. */
int64_t sx_polynomial_value(const sx_polynomial *p, const int64_t *value);
/* scale * p, the first term that is not subtracted first: "2*batch*seq + 6". */
void sx_polynomial_print(const sx_polynomial *p, int64_t scale, const sx_symbol *symbols,
                         sx_buf *text);

/* The extent that equals `p` and can be written with these symbols; false: there is none. */
bool sx_extent_find(const sx_symbol *symbols, uint32_t symbol_count, const sx_polynomial *p,
                    sx_dim *dim);
/* The same, with a new row where it needs one.
 *   errors   SX_INPUT a value below 0, or below 1 with a symbol; SX_LIMIT too large, too many symbols */
sx_code sx_graph_add_extent(sx_ctx *cx, sx_graph *graph, const sx_polynomial *p, sx_dim *dim);
/* Those of the symbols that `to` lacks; it has all before them, and gives these the same numbers. */
sx_code sx_graph_copy_symbols(sx_ctx *cx, const sx_symbol *symbols, uint32_t symbol_count,
                              sx_graph *to);
/* Is it declared: has it a name that is bound to a value? */
static inline bool sx_symbol_is_declared(const sx_symbol *symbol)
{
    return symbol->sum == NULL;
}
/* Are they the same rows: intervals and polynomials, and names where asked? */
bool sx_symbols_equal(const sx_symbol *a, const sx_symbol *b, uint32_t count, bool names);
/* Puts the values of derived symbols behind those of the declared ones. */
void sx_symbols_derive(const sx_symbol *symbols, uint32_t symbol_count, int64_t *value);
#endif
