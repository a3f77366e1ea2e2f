/* prices.c - prices of kernels, remembered: level 2 is asked once for all nodes of one operation, attribute and types
 * of children, in whatever part of a program they are. */
#include "core/optimize/optimizer.h"

#include <string.h>

#include "core/search/search.h"

#define KEY_HEAD \
    3u /* operation and arity, attribute, which children are weights; then the types of the children */

_Static_assert(SX_FUSED_ARGS_MAX <= 32, "arguments that are weights are a set of bits");

struct sx_prices {
    const sx_device *device;
    const sx_symbol *symbol;
    uint32_t symbol_count;
    /* Attributes and types by number. An attribute stays in the table of the e-graph where it was met first. */
    const sx_attr **attr;
    uint32_t attr_count, attr_capacity;
    sx_idmap attr_map;
    sx_type *type;
    uint32_t type_count, type_capacity;
    sx_idmap type_map;
    /* A price has a key, its words from key_first on, made of these numbers. */
    uint32_t *word;
    uint32_t word_count, word_capacity;
    uint32_t *key_first;
    uint32_t key_capacity;
    sx_cost *cost;
    uint32_t cost_count, cost_capacity;
    sx_idmap map;
};

/* The price of a node, as long as the same of its children are weights. */
typedef struct {
    uint32_t price; /* its number and 1; 0: not known */
    uint32_t weights;
} node_price;

struct sx_price_view {
    struct sx_prices *known;
    /* By the numbers of the e-graph: those of the table, and 1; 0: not known. */
    uint32_t *attr, *type;
    uint32_t attr_capacity, type_capacity;
    node_price *node;
    uint32_t node_capacity;
};

sx_code sx_prices_make(sx_ctx *cx, const sx_device *device, const sx_symbol *symbol,
                       uint32_t symbol_count, struct sx_prices **prices)
{
    SX_ASSERT(device != NULL);
    *prices = SX_NEW(cx, struct sx_prices);
    if (*prices == NULL) {
        return cx->error.code;
    }
    (*prices)->device = device;
    (*prices)->symbol = symbol;
    (*prices)->symbol_count = symbol_count;
    return SX_OK;
}

uint32_t sx_prices_count(const struct sx_prices *prices)
{
    SX_ASSERT(prices->cost_count <= prices->cost_capacity);
    return prices->cost_count;
}

/* Do the prices hold for this device, where symbols count as these do? */
static bool holds(const struct sx_prices *prices, const sx_optimizer *o)
{
    const sx_tensors *t = o->t;
    bool same = prices->device == o->device && prices->symbol_count == t->symbol_count;
    for (uint32_t k = 0; same && k < t->symbol_count; k++) {
        same = sx_cost_reference(prices->symbol, k) == sx_cost_reference(t->symbol, k);
    }
    return same;
}

static sx_code begin(sx_optimizer *o)
{
    struct sx_prices *known = o->options->prices;
    o->prices = SX_NEW(o->cx, struct sx_price_view);
    if (o->prices == NULL) {
        return o->cx->error.code;
    }
    if (known == NULL || !holds(known, o)) {
        SX_TRY(sx_prices_make(o->cx, o->device, o->t->symbol, o->t->symbol_count, &known));
    }
    o->prices->known = known;
    return SX_OK;
}

/* ---- numbers that all parts share ---- */

static bool same_attr(const void *self, uint32_t id, const void *probe)
{
    return sx_attr_equal(((const struct sx_prices *)self)->attr[id], probe);
}

static sx_code number_attr(sx_optimizer *o, uint32_t id, uint32_t *number)
{
    sx_ctx *cx = o->cx;
    struct sx_price_view *view = o->prices;
    struct sx_prices *p = view->known;
    SX_TRY(sx_grow(cx, (void **)&view->attr, &view->attr_capacity, id + 1, sizeof(*view->attr)));
    if (view->attr[id] == 0) {
        const sx_attr *attr = o->t->attrs->attr[id];
        uint64_t hash = sx_attr_hash(attr);
        uint32_t found = sx_idmap_find(&p->attr_map, hash, same_attr, p, attr);
        if (found == SX_IDMAP_NONE) {
            found = p->attr_count;
            SX_TRY(sx_grow(cx, (void **)&p->attr, &p->attr_capacity, found + 1, sizeof(*p->attr)));
            p->attr[p->attr_count++] = attr;
            SX_TRY(sx_idmap_put(cx, &p->attr_map, hash, found));
        }
        view->attr[id] = found + 1;
    }
    *number = view->attr[id] - 1;
    return SX_OK;
}

static uint64_t hash_type(const sx_type *type)
{
    uint64_t hash = (uint64_t)type->dtype << 8 | type->rank;
    for (uint32_t d = 0; d < type->rank; d++) {
        hash = (hash ^ (uint64_t)type->dim[d].scale) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return hash;
}

static bool same_type(const void *self, uint32_t id, const void *probe)
{
    return sx_type_equal(&((const struct sx_prices *)self)->type[id], probe);
}

static sx_code number_type(sx_optimizer *o, uint32_t id, uint32_t *number)
{
    sx_ctx *cx = o->cx;
    struct sx_price_view *view = o->prices;
    struct sx_prices *p = view->known;
    SX_TRY(sx_grow(cx, (void **)&view->type, &view->type_capacity, id + 1, sizeof(*view->type)));
    if (view->type[id] == 0) {
        const sx_type *type = &o->t->type[id];
        uint64_t hash = hash_type(type);
        uint32_t found = sx_idmap_find(&p->type_map, hash, same_type, p, type);
        if (found == SX_IDMAP_NONE) {
            found = p->type_count;
            SX_TRY(sx_grow(cx, (void **)&p->type, &p->type_capacity, found + 1, sizeof(*p->type)));
            p->type[p->type_count++] = *type;
            SX_TRY(sx_idmap_put(cx, &p->type_map, hash, found));
        }
        view->type[id] = found + 1;
    }
    *number = view->type[id] - 1;
    return SX_OK;
}

/* ---- prices ---- */

typedef struct {
    uint32_t word[KEY_HEAD + SX_EG_ARITY_MAX];
    uint32_t count;
} price_key;

static uint32_t weights_of(const sx_tensors *t, uint32_t n)
{
    const sx_eg_node *node = &t->eg.node[n];
    uint32_t weights = 0;
    for (uint32_t k = 0; k < node->arity && k < SX_FUSED_ARGS_MAX; k++) {
        weights |=
            sx_tensors_fact(t, sx_eg_child(&t->eg, n, k))->is_weight != 0 ? UINT32_C(1) << k : 0;
    }
    return weights;
}

static sx_code key_of(sx_optimizer *o, uint32_t n, uint32_t weights, price_key *key)
{
    const sx_tensors *t = o->t;
    const sx_eg_node *node = &t->eg.node[n];
    key->word[0] = (uint32_t)node->op << 16 | node->arity;
    SX_TRY(number_attr(o, node->attr, &key->word[1]));
    key->word[2] = weights;
    key->count = KEY_HEAD;
    for (uint32_t k = 0; k < node->arity; k++) {
        uint32_t type = sx_tensors_fact(t, sx_eg_child(&t->eg, n, k))->type;
        SX_TRY(number_type(o, type, &key->word[key->count++]));
    }
    return SX_OK;
}

/* The arity, which a key begins with, says how long it is. */
static bool same_key(const void *self, uint32_t id, const void *probe)
{
    const struct sx_prices *prices = self;
    const uint32_t *held = &prices->word[prices->key_first[id]];
    const price_key *key = probe;
    return held[0] == key->word[0] &&
           memcmp(held, key->word, key->count * sizeof(key->word[0])) == 0;
}

static sx_code ask(const sx_optimizer *o, uint32_t n, uint32_t constant, sx_cost *cost)
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

static sx_code put_price(sx_ctx *cx, struct sx_prices *p, const price_key *key, uint64_t hash,
                         const sx_cost *cost)
{
    uint32_t at = p->cost_count;
    uint32_t words = p->word_count + key->count;
    SX_TRY(sx_grow(cx, (void **)&p->word, &p->word_capacity, words, sizeof(*p->word)));
    SX_TRY(sx_grow(cx, (void **)&p->key_first, &p->key_capacity, at + 1, sizeof(*p->key_first)));
    SX_TRY(sx_grow(cx, (void **)&p->cost, &p->cost_capacity, at + 1, sizeof(*p->cost)));
    memcpy(&p->word[p->word_count], key->word, key->count * sizeof(key->word[0]));
    p->key_first[at] = p->word_count;
    p->word_count = words;
    p->cost[at] = *cost;
    p->cost_count++;
    return sx_idmap_put(cx, &p->map, hash, at);
}

sx_code sx_optimizer_price(sx_optimizer *o, uint32_t n, sx_cost *cost)
{
    SX_ASSERT(n < o->t->eg.node_count);
    SX_TRY(o->prices == NULL ? begin(o) : SX_OK);
    struct sx_price_view *view = o->prices;
    struct sx_prices *prices = view->known;
    uint32_t weights = weights_of(o->t, n);
    if (n < view->node_capacity && view->node[n].price > 0 && view->node[n].weights == weights) {
        *cost = prices->cost[view->node[n].price - 1];
        return SX_OK;
    }
    price_key key;
    SX_TRY(key_of(o, n, weights, &key));
    uint64_t hash =
        sx_hash64((sx_span){(const uint8_t *)key.word, key.count * sizeof(key.word[0])}, 0);
    uint32_t found = sx_idmap_find(&prices->map, hash, same_key, prices, &key);
    if (found == SX_IDMAP_NONE) {
        SX_TRY(ask(o, n, weights, cost));
        found = prices->cost_count;
        SX_TRY(put_price(o->cx, prices, &key, hash, cost));
    }
    *cost = prices->cost[found];
    SX_TRY(sx_grow(o->cx, (void **)&view->node, &view->node_capacity, o->t->eg.node_count,
                   sizeof(*view->node)));
    view->node[n] = (node_price){found + 1, weights};
    return SX_OK;
}
