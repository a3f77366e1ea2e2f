/* prices.c - prices of kernels, remembered: level 2 is asked once for all nodes of one operation, attribute
 * and types of children. Types and attributes are interned for as long as the e-graph lives, so that their
 * numbers say which they are. */
#include <string.h>

#include "core/optimize/optimizer.h"
#include "core/search/search.h"

typedef struct {
    uint32_t word
        [3 +
         SX_EG_ARITY_MAX]; /* operation and arity, attribute, which children are weights, types */
    uint32_t count;
} price_key;
typedef struct {
    price_key key;
    sx_cost cost;
} price_entry;
struct sx_prices {
    sx_idmap map;
    price_entry *entry;
    uint32_t entry_count, entry_capacity;
};
_Static_assert(SX_FUSED_ARGS_MAX <= 32, "arguments that are weights are a set of bits");

static price_key key_of(const sx_tensors *t, uint32_t n)
{
    const sx_eg_node *node = &t->eg.node[n];
    price_key key = {.word = {(uint32_t)node->op << 16 | node->arity, node->attr, 0}, .count = 3};
    for (uint32_t k = 0; k < node->arity; k++) {
        const sx_fact *fact = sx_tensors_fact(t, sx_eg_child(&t->eg, n, k));
        key.word[2] |= k < SX_FUSED_ARGS_MAX && fact->is_weight != 0 ? 1u << k : 0;
        key.word[key.count++] = fact->type;
    }
    return key;
}

static bool same_key(const void *self, uint32_t id, const void *probe)
{
    const struct sx_prices *prices = self;
    const price_key *a = &prices->entry[id].key;
    const price_key *b = probe;
    return a->count == b->count && memcmp(a->word, b->word, a->count * sizeof(a->word[0])) == 0;
}

static sx_code ask(sx_optimizer *o, uint32_t n, uint32_t constant, sx_cost *cost)
{
    const sx_tensors *t = o->t;
    sx_type input[SX_EG_ARITY_MAX];
    uint32_t arity = t->eg.node[n].arity;
    for (uint32_t k = 0; k < arity; k++) {
        input[k] = *sx_tensors_type(t, sx_eg_child(&t->eg, n, k));
    }
    sx_price_subject subject = {.op = sx_tensors_op(t, n),
                                .attr = sx_tensors_attr(t, n),
                                .input = input,
                                .input_count = arity,
                                .result = sx_tensors_type(t, n),
                                .constant = constant};
    return sx_price_node(o->cx, o->device, t->symbol, t->symbol_count, &subject, cost);
}

sx_code sx_optimizer_price(sx_optimizer *o, uint32_t n, sx_cost *cost)
{
    SX_ASSERT(n < o->t->eg.node_count);
    if (o->prices == NULL) {
        o->prices = SX_NEW(o->cx, struct sx_prices);
        if (o->prices == NULL) {
            return o->cx->error.code;
        }
    }
    struct sx_prices *prices = o->prices;
    price_key key = key_of(o->t, n);
    uint64_t hash =
        sx_hash64((sx_span){(const uint8_t *)key.word, key.count * sizeof(key.word[0])}, 0);
    uint32_t found = sx_idmap_find(&prices->map, hash, same_key, prices, &key);
    if (found != SX_IDMAP_NONE) {
        *cost = prices->entry[found].cost;
        return SX_OK;
    }
    SX_TRY(ask(o, n, key.word[2], cost));
    void *array = prices->entry;
    SX_TRY(sx_grow(o->cx, &array, &prices->entry_capacity, prices->entry_count + 1,
                   sizeof(prices->entry[0])));
    prices->entry = array;
    prices->entry[prices->entry_count] = (price_entry){key, *cost};
    return sx_idmap_put(o->cx, &prices->map, hash, prices->entry_count++);
}
