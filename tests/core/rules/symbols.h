/* symbols.h - a small language of plain symbols, to test the engine apart from tensors: an operation is its
 * name's place in a list, leaves are (op "leaf", attr number), a value n in a pattern means the leaf with attr
 * 1000 + n. */
#ifndef SX_TESTS_CORE_RULES_SYMBOLS_H
#define SX_TESTS_CORE_RULES_SYMBOLS_H
#include "core/egraph/match.h"

enum { OP_LEAF, OP_ADD, OP_MUL, OP_NEG, OP_F, OP_G, OP_TEST_COUNT };

static inline bool symbol_ops(void *self, sx_span name, bool is_set, sx_bits *ops)
{
    static const char *const known[] = {"leaf", "add", "mul", "neg", "f", "g"};
    (void)self;
    *ops = (sx_bits){0};
    if (is_set) {
        sx_bits_add(ops, OP_ADD);
        sx_bits_add(ops, OP_MUL);
        return sx_span_is(name, "binary");
    }
    for (uint32_t i = 0; i < OP_TEST_COUNT; i++) {
        if (sx_span_is(name, known[i])) {
            sx_bits_add(ops, i);
            return true;
        }
    }
    return false;
}

static inline bool symbol_is_value(void *self, const sx_eg *eg, uint32_t class_, double value)
{
    (void)self;
    uint32_t n = sx_eg_lookup(eg, OP_LEAF, 1000 + (uint32_t)value, NULL, 0);
    return n != SX_EG_NONE && sx_eg_find(eg, n) == class_;
}

static inline sx_code symbol_make_value(sx_ctx *cx, void *self, sx_eg *eg, uint32_t like,
                                        double value, uint32_t *node)
{
    (void)self;
    (void)like;
    return sx_eg_add(cx, eg, OP_LEAF, 1000 + (uint32_t)value, NULL, 0, node);
}

static const sx_eg_language symbols = {NULL, symbol_ops, symbol_is_value, symbol_make_value,
                                       NULL, NULL};
#endif
