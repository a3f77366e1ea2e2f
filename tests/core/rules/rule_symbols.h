/* rule_symbols.h - one rule on random programs of symbolic extents, as it meets them in production.
 *
 * A program is drawn with two extents that no other extent is a multiple of (STAND_INS). Each of them becomes
 * a symbol with an interval of its own, the rule rewrites the symbolic program, and each pair of sides is
 * evaluated at several bindings: both ends of both intervals, 1 where it is inside, and equal values where the
 * intervals meet. A program that cannot be written with symbols (a concatenation of 4 and 7 is no stand-in for
 * 11) is given up. */
#ifndef SX_TESTS_CORE_RULES_RULE_SYMBOLS_H
#define SX_TESTS_CORE_RULES_RULE_SYMBOLS_H
#include "tests/core/rules/instances.h"

#define SYMBOL_COUNT 2u
#define BINDINGS_MAX 6u

/* `dim` with the stand-in of a symbol taken out; false: both symbols are in it. */
static inline bool symbolic_dim(sx_dim *dim)
{
    SX_ASSERT(sx_dim_is_constant(*dim));
    for (uint32_t s = 0; s < SYMBOL_COUNT; s++) {
        if (dim->scale % stand_ins[s] == 0) {
            *dim = (sx_dim){dim->scale / stand_ins[s], s};
            return dim->scale % stand_ins[0] != 0 && dim->scale % stand_ins[1] != 0;
        }
    }
    return true;
}

static inline bool symbolic_type(sx_type *type)
{
    bool possible = true;
    for (uint32_t d = 0; d < type->rank; d++) {
        possible = symbolic_dim(&type->dim[d]) && possible;
    }
    return possible;
}

/* A slice of a symbolic dimension takes a fixed part, or goes to the end. */
static inline void symbolic_slice(const sx_type *constant, const sx_type *symbolic, sx_attr *attr)
{
    for (uint32_t d = 0; d < constant->rank; d++) {
        int64_t extent = constant->dim[d].scale;
        bool to_end = attr->start.v[d] == 0 && attr->limit.v[d] + attr->stride.v[d] > extent;
        if (!sx_dim_is_constant(symbolic->dim[d]) && to_end) {
            attr->limit.v[d] = -1;
        }
    }
}

/* The same program over symbols; SX_LIMIT (GIVE_UP) where there is none. */
static inline sx_code make_symbolic(sx_ctx *cx, sx_rng *rng, const sx_graph *from, sx_graph **to)
{
    static const char *const name[SYMBOL_COUNT] = {"s", "t"};
    sx_node_id *made = SX_NEW_ARRAY(cx, sx_node_id, from->node_count + 1);
    ck_assert_ptr_nonnull(made);
    ck_sx_ok(cx, sx_graph_make(cx, SX_SPAN_LITERAL("symbolic"), from->attrs, to));
    for (uint32_t s = 0; s < SYMBOL_COUNT; s++) {
        uint32_t symbol;
        int64_t low = 1 + (int64_t)sx_rng_below(rng, 3);
        int64_t high = low + (int64_t)sx_rng_below(rng, 5);
        ck_sx_ok(cx, sx_graph_add_symbol(cx, *to, sx_span_of(name[s]), low, high, &symbol));
    }
    for (uint32_t n = 0; n < from->node_count; n++) {
        const sx_node *node = &from->node[n];
        sx_attr attr = *sx_graph_attr(from, node);
        sx_node_id input[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = made[sx_graph_input(from, node, k).i];
        }
        if ((attr.present & SX_A(type)) != 0 && !symbolic_type(&attr.type)) {
            return GIVE_UP;
        }
        if (node->op == SX_OP_SLICE) {
            symbolic_slice(&sx_graph_node(from, sx_graph_input(from, node, 0))->type,
                           &sx_graph_node(*to, input[0])->type, &attr);
        }
        if (sx_graph_add(cx, *to, node->op, &attr, input, node->input_count, &made[n]) != SX_OK) {
            sx_ctx_reset_error(cx);
            return GIVE_UP;
        }
    }
    return SX_OK;
}

/* Has it a symbolic extent, and no value of more than SYMBOLIC_ELEMENTS_MAX elements? */
#define SYMBOLIC_ELEMENTS_MAX 100000
static inline bool is_symbolic(const sx_graph *graph)
{
    bool found = false;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_type *type = &graph->node[n].type;
        int64_t elements = 1;
        for (uint32_t d = 0; d < type->rank && elements <= SYMBOLIC_ELEMENTS_MAX; d++) {
            bool constant = sx_dim_is_constant(type->dim[d]);
            elements *=
                type->dim[d].scale * (constant ? 1 : graph->symbol[type->dim[d].symbol].high);
            found = found || !constant;
        }
        if (elements > SYMBOLIC_ELEMENTS_MAX) {
            return false;
        }
    }
    return found;
}

/* Values of both symbols to evaluate a pair at. */
static inline uint32_t draw_bindings(sx_rng *rng, const sx_symbol *symbol,
                                     int64_t value[BINDINGS_MAX][SYMBOL_COUNT])
{
    uint32_t count = 0;
    for (uint32_t ends = 0; ends < 4; ends++) {
        value[count][0] = (ends & 1) != 0 ? symbol[0].high : symbol[0].low;
        value[count++][1] = (ends & 2) != 0 ? symbol[1].high : symbol[1].low;
    }
    int64_t low = symbol[0].low > symbol[1].low ? symbol[0].low : symbol[1].low;
    int64_t high = symbol[0].high < symbol[1].high ? symbol[0].high : symbol[1].high;
    if (low <= high) {
        value[count][0] = low;
        value[count++][1] = low;
    }
    for (uint32_t s = 0; s < SYMBOL_COUNT; s++) {
        uint64_t values = (uint64_t)(symbol[s].high - symbol[s].low + 1);
        value[count][s] = symbol[s].low + (int64_t)sx_rng_below(rng, values);
    }
    return count + 1;
}

static inline sx_graph *bind_pair(sx_ctx *cx, const sx_graph *pair,
                                  const int64_t value[SYMBOL_COUNT])
{
    sx_binding binding[SYMBOL_COUNT];
    sx_graph *bound;
    for (uint32_t s = 0; s < SYMBOL_COUNT; s++) {
        binding[s] = (sx_binding){pair->symbol[s].name, value[s]};
    }
    ck_sx_ok(cx, sx_graph_bind(cx, pair, binding, SYMBOL_COUNT, &bound));
    return bound;
}
#endif
