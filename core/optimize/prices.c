/* prices.c - prices of kernels, remembered: level 2 is asked once for all nodes of one operation, attribute and types
 * of children, in whatever part of a program they are. */
#include "core/optimize/optimizer.h"

#include <string.h>

#include "core/search/search.h"

#define ASK_BYTES ((size_t)1 << 20) /* one question: as much, however much is left */
#define KEY_HEAD \
    3u /* operation and arity, attribute, which children are weights; then the types of the children */

_Static_assert(SX_FUSED_ARGS_MAX <= 32, "arguments that are weights are a set of bits");

typedef struct {
    sx_cost cost;
    /* That the question took. Each part of a program pays for it, whichever part asked. */
    uint64_t fuel;
} price;

struct sx_prices {
    /* Whose memory it takes, and under the lock of whose team parts that are worked on side by side share it. */
    sx_ctx *cx;
    const sx_device *device;
    const sx_symbol *symbol;
    uint32_t symbol_count;
    /* Attributes and types by number. */
    sx_attr_table attrs;
    sx_type *type;
    uint32_t type_count, type_capacity;
    sx_idmap type_map;
    /* A price has a key, its words from key_first on, made of these numbers. */
    uint32_t *word;
    uint32_t word_count, word_capacity;
    uint32_t *key_first;
    uint32_t key_capacity;
    price *price;
    uint32_t price_count, price_capacity;
    sx_idmap map;
};

/* The price of a node, as long as the same of its children are weights. */
typedef struct {
    uint32_t cost; /* its number in the view and 1; 0: not known */
    uint32_t weights;
} node_price;

/* What one e-graph has seen of the table, which it reads without the lock. */
struct sx_price_view {
    struct sx_prices *known;
    /* By the numbers of the e-graph: those of the table, and 1; 0: not known. */
    uint32_t *attr, *type;
    uint32_t attr_capacity, type_capacity;
    node_price *node;
    uint32_t node_capacity;
    sx_cost *cost;
    uint32_t cost_count, cost_capacity;
    uint32_t *of; /* by the numbers of the table: those of `cost`, and 1; 0: not seen yet */
    uint32_t of_capacity;
};

sx_code sx_prices_make(sx_ctx *cx, const sx_device *device, const sx_symbol *symbol,
                       uint32_t symbol_count, struct sx_prices **prices)
{
    SX_ASSERT(device != NULL);
    *prices = SX_NEW(cx, struct sx_prices);
    if (*prices == NULL) {
        return cx->error.code;
    }
    (*prices)->cx = cx;
    (*prices)->device = device;
    (*prices)->symbol = symbol;
    (*prices)->symbol_count = symbol_count;
    return sx_attr_table_init(cx, &(*prices)->attrs);
}

uint32_t sx_prices_count(const struct sx_prices *prices)
{
    SX_ASSERT(prices->price_count <= prices->price_capacity);
    return prices->price_count;
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

static sx_code number_attr(sx_optimizer *o, uint32_t id, uint32_t *number)
{
    struct sx_price_view *view = o->prices;
    struct sx_prices *p = view->known;
    SX_TRY(sx_grow(o->cx, (void **)&view->attr, &view->attr_capacity, id + 1, sizeof(*view->attr)));
    if (view->attr[id] == 0) {
        sx_attr_id found;
        SX_TRY(sx_attr_intern_row(p->cx, &p->attrs, o->t->attrs, id, &found));
        view->attr[id] = found.i + 1;
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
            SX_TRY(
                sx_grow(p->cx, (void **)&p->type, &p->type_capacity, found + 1, sizeof(*p->type)));
            p->type[p->type_count++] = *type;
            SX_TRY(sx_idmap_put(p->cx, &p->type_map, hash, found));
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

uint32_t sx_optimizer_weights(const sx_tensors *t, uint32_t n)
{
    SX_ASSERT(n < t->eg.node_count);
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

/* Level 2 is asked in memory of its own, so that it takes none of a part which of several parts asks. */
static sx_code ask(const sx_optimizer *o, uint32_t n, uint32_t constant, price *answer)
{
    const sx_tensors *t = o->t;
    sx_ctx scratch;
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
    sx_ctx_init_task(&scratch, o->cx);
    scratch.arena.limit_bytes = ASK_BYTES;
    sx_code code =
        sx_price_node(&scratch, o->device, t->symbol, t->symbol_count, &subject, &answer->cost);
    answer->fuel = o->cx->fuel - scratch.fuel;
    if (code != SX_OK) {
        const sx_error *e = &scratch.error;
        (void)sx_fail(o->cx, code, e->file, e->line, "%s", e->text);
    }
    sx_ctx_fini(&scratch);
    return code;
}

static sx_code put_price(struct sx_prices *p, const price_key *key, uint64_t hash,
                         const price *answer)
{
    sx_ctx *cx = p->cx;
    uint32_t at = p->price_count;
    uint32_t words = p->word_count + key->count;
    SX_TRY(sx_grow(cx, (void **)&p->word, &p->word_capacity, words, sizeof(*p->word)));
    SX_TRY(sx_grow(cx, (void **)&p->key_first, &p->key_capacity, at + 1, sizeof(*p->key_first)));
    SX_TRY(sx_grow(cx, (void **)&p->price, &p->price_capacity, at + 1, sizeof(*p->price)));
    memcpy(&p->word[p->word_count], key->word, key->count * sizeof(key->word[0]));
    p->key_first[at] = p->word_count;
    p->word_count = words;
    p->price[at] = *answer;
    p->price_count++;
    return sx_idmap_put(cx, &p->map, hash, at);
}

/* ---- under the lock of the table ---- */

/* The memory of what follows the numbers of the table, which depend on who asked first, is the table's. */
static sx_code see(struct sx_price_view *view, uint32_t number)
{
    return sx_grow(view->known->cx, (void **)&view->of, &view->of_capacity, number + 1,
                   sizeof(*view->of));
}

/* Begins a question; the answer where it is known, else *found is SX_IDMAP_NONE. */
static sx_code look_up(sx_optimizer *o, uint32_t n, uint32_t weights, price_key *key,
                       uint64_t *hash, uint32_t *found, price *answer)
{
    struct sx_prices *prices = o->prices->known;
    SX_TRY(key_of(o, n, weights, key));
    *hash = sx_hash64((sx_span){(const uint8_t *)key->word, key->count * sizeof(key->word[0])}, 0);
    *found = sx_idmap_find(&prices->map, *hash, same_key, prices, key);
    if (*found == SX_IDMAP_NONE) {
        return SX_OK;
    }
    *answer = prices->price[*found];
    return see(o->prices, *found);
}

/* The answer goes into the table, if nobody else has put it there since. */
static sx_code hand_in(struct sx_price_view *view, const price_key *key, uint64_t hash,
                       const price *answer, uint32_t *found)
{
    struct sx_prices *prices = view->known;
    *found = sx_idmap_find(&prices->map, hash, same_key, prices, key);
    if (*found == SX_IDMAP_NONE) {
        *found = prices->price_count;
        SX_TRY(put_price(prices, key, hash, answer));
    }
    return see(view, *found);
}

static void lock(const struct sx_prices *prices)
{
    const sx_team *team = prices->cx->team;
    if (team != NULL) {
        team->lock(team->self);
    }
}

/* A table that found no memory says so to who wanted it to grow. */
static sx_code unlock(const sx_optimizer *o, sx_code code)
{
    const struct sx_prices *prices = o->prices->known;
    const sx_team *team = prices->cx->team;
    if (code != SX_OK && o->cx->error.code == SX_OK) {
        const sx_error *e = &prices->cx->error;
        (void)sx_fail(o->cx, code, e->file, e->line, "%s", e->text);
    }
    if (team != NULL) {
        team->unlock(team->self);
    }
    return code;
}

/* ---- what an e-graph sees ---- */

static sx_code find_price(sx_optimizer *o, uint32_t n, uint32_t weights, uint32_t *found,
                          price *answer)
{
    struct sx_prices *prices = o->prices->known;
    price_key key;
    uint64_t hash = 0;
    lock(prices);
    SX_TRY(unlock(o, look_up(o, n, weights, &key, &hash, found, answer)));
    if (*found == SX_IDMAP_NONE) {
        SX_TRY(ask(o, n, weights, answer));
        lock(prices);
        SX_TRY(unlock(o, hand_in(o->prices, &key, hash, answer, found)));
    }
    return SX_OK;
}

sx_code sx_optimizer_price(sx_optimizer *o, uint32_t n, uint32_t weights, sx_cost *cost)
{
    SX_ASSERT(n < o->t->eg.node_count);
    SX_TRY(o->prices == NULL ? begin(o) : SX_OK);
    struct sx_price_view *view = o->prices;
    if (n < view->node_capacity && view->node[n].cost > 0 && view->node[n].weights == weights) {
        *cost = view->cost[view->node[n].cost - 1];
        return SX_OK;
    }
    uint32_t found = SX_IDMAP_NONE;
    price answer;
    SX_TRY(find_price(o, n, weights, &found, &answer));
    if (view->of[found] == 0) {
        SX_TRY(sx_spend(o->cx, answer.fuel));
        SX_TRY(sx_grow(o->cx, (void **)&view->cost, &view->cost_capacity, view->cost_count + 1,
                       sizeof(*view->cost)));
        view->cost[view->cost_count++] = answer.cost;
        view->of[found] = view->cost_count;
    }
    *cost = answer.cost;
    SX_TRY(sx_grow(o->cx, (void **)&view->node, &view->node_capacity, o->t->eg.node_count,
                   sizeof(*view->node)));
    view->node[n] = (node_price){view->of[found], weights};
    return SX_OK;
}
