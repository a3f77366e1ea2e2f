#include "core/store/pair.h"

#include <string.h>

#include "core/ir/extent.h"

sx_code sx_pair_list(sx_ctx *cx, const sx_graph *graph, uint32_t **list, uint32_t *count)
{
    *list = SX_NEW_ARRAY(cx, uint32_t, (size_t)graph->node_count + 1);
    *count = 0;
    if (*list == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->node[i].op == SX_OP_PARAMETER) {
            (*list)[(*count)++] = i;
        }
    }
    return SX_OK;
}

bool sx_pair_same_kind(const sx_graph *a, uint32_t x, const sx_graph *b, uint32_t y)
{
    SX_ASSERT(x < a->node_count && y < b->node_count);
    return sx_graph_attr(a, &a->node[x])->weight == sx_graph_attr(b, &b->node[y])->weight &&
           sx_type_equal(&a->node[x].type, &b->node[y].type);
}

static uint64_t mixed(uint64_t a, uint64_t b)
{
    const uint64_t word[] = {a, b};
    return sx_hash64((sx_span){(const uint8_t *)word, sizeof(word)}, 0);
}

/* ---- where a parameter stands ---- */

static bool commutes(sx_op op)
{
    return op == SX_OP_ADD || op == SX_OP_MULTIPLY || op == SX_OP_MAXIMUM || op == SX_OP_MINIMUM;
}

/* The operation without its operands; names play no role. */
static uint64_t kind_of(const sx_graph *graph, const sx_node *node)
{
    sx_attr attr = *sx_graph_attr(graph, node);
    attr.name = (sx_span){NULL, 0};
    return mixed(node->op, sx_attr_hash(&attr));
}

/* up: of what a node is made; down: of what is made of it. */
static void hash_places(const sx_graph *graph, uint64_t *up, uint64_t *down)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        uint64_t sum = 0;
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint64_t operand = up[graph->input[node->input_first + k].i];
            sum += commutes(node->op) ? operand : mixed(operand, k);
        }
        up[i] = mixed(kind_of(graph, node), sum);
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        down[graph->output[i].node.i] += 1;
    }
    for (uint32_t i = graph->node_count; i-- > 0;) {
        const sx_node *node = &graph->node[i];
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint64_t place = commutes(node->op) ? 0 : k;
            down[graph->input[node->input_first + k].i] += mixed(mixed(down[i], up[i]), place);
        }
    }
}

sx_code sx_pair_marks(sx_ctx *cx, const sx_graph *graph, uint32_t **mark)
{
    uint64_t *up = SX_NEW_ARRAY(cx, uint64_t, (size_t)graph->node_count + 1);
    uint64_t *down = SX_NEW_ARRAY(cx, uint64_t, (size_t)graph->node_count + 1);
    uint32_t *list, count;
    *mark = SX_NEW_ARRAY(cx, uint32_t, (size_t)graph->node_count + 1);
    if (up == NULL || down == NULL || *mark == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_pair_list(cx, graph, &list, &count));
    hash_places(graph, up, down);
    for (uint32_t p = 0; p < count; p++) {
        (*mark)[p] = (uint32_t)mixed(up[list[p]], down[list[p]]);
    }
    return SX_OK;
}

sx_code sx_pair_shape(sx_ctx *cx, const sx_graph *graph, uint64_t *shape)
{
    uint64_t *up = SX_NEW_ARRAY(cx, uint64_t, (size_t)graph->node_count + 1);
    uint64_t *down = SX_NEW_ARRAY(cx, uint64_t, (size_t)graph->node_count + 1);
    if (up == NULL || down == NULL) {
        return cx->error.code;
    }
    hash_places(graph, up, down);
    *shape = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        *shape += mixed(up[i], down[i]);
    }
    return SX_OK;
}

/* ---- pairing ---- */

typedef struct {
    const sx_graph *here, *there;
    uint32_t *here_list, *there_list;
    uint32_t count;
    uint32_t *parameter_of; /* UINT32_MAX: not paired yet */
    bool *taken;
    uint64_t *here_tag, *there_tag; /* only parameters of one tag are paired */
    uint32_t *next, *first; /* queues of parameters not taken: `first` by the number in the map */
} pairing;

typedef struct {
    const sx_graph *graph;
    uint32_t node;
    uint64_t tag;
} probe;

static bool same_queue(const void *self, uint32_t id, const void *wanted)
{
    const pairing *p = self;
    const probe *w = wanted;
    return p->there_tag[id] == w->tag &&
           sx_pair_same_kind(p->there, p->there_list[id], w->graph, w->node);
}

static uint64_t hash_of(const probe *p)
{
    const sx_node *node = &p->graph->node[p->node];
    const sx_attr kind = {.present = SX_A(type) | SX_A(weight),
                          .type = node->type,
                          .weight = sx_graph_attr(p->graph, node)->weight};
    return mixed(sx_attr_hash(&kind), p->tag);
}

/* Pairs what is not paired yet by type and tag, in their order. */
static sx_code pair_tagged(sx_ctx *cx, pairing *p)
{
    sx_idmap map = {0};
    for (uint32_t j = p->count; j-- > 0;) { /* the first of them ends at the head */
        probe wanted = {p->there, p->there_list[j], p->there_tag[j]};
        if (p->taken[j]) {
            continue;
        }
        uint32_t queue = sx_idmap_find(&map, hash_of(&wanted), same_queue, p, &wanted);
        if (queue == SX_IDMAP_NONE) {
            SX_TRY(sx_idmap_put(cx, &map, hash_of(&wanted), j));
            queue = j;
            p->first[queue] = UINT32_MAX;
        }
        p->next[j] = p->first[queue];
        p->first[queue] = j;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        probe wanted = {p->here, p->here_list[i], p->here_tag[i]};
        if (p->parameter_of[i] != UINT32_MAX) {
            continue;
        }
        uint32_t queue = sx_idmap_find(&map, hash_of(&wanted), same_queue, p, &wanted);
        uint32_t j = queue != SX_IDMAP_NONE ? p->first[queue] : UINT32_MAX;
        if (j != UINT32_MAX) {
            p->first[queue] = p->next[j];
            p->taken[j] = true;
            p->parameter_of[i] = j;
        }
    }
    return SX_OK;
}

static void begin(pairing *p)
{
    memset(p->parameter_of, 0xff, p->count * sizeof(*p->parameter_of));
    memset(p->taken, 0, p->count * sizeof(*p->taken));
}

static bool all_paired(const pairing *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        if (p->parameter_of[i] == UINT32_MAX) {
            return false;
        }
    }
    return true;
}

static void tag_names(const sx_graph *graph, const uint32_t *list, uint32_t count, uint64_t *tag)
{
    for (uint32_t i = 0; i < count; i++) {
        tag[i] = sx_hash64(sx_graph_attr(graph, &graph->node[list[i]])->name, 0);
    }
}

static sx_code pair_all(sx_ctx *cx, pairing *p, const uint32_t *there_mark, bool by_name)
{
    if (by_name) {
        begin(p);
        tag_names(p->here, p->here_list, p->count, p->here_tag);
        tag_names(p->there, p->there_list, p->count, p->there_tag);
        SX_TRY(pair_tagged(cx, p));
        if (all_paired(p)) {
            return SX_OK;
        }
    }
    begin(p);
    if (there_mark != NULL) {
        uint32_t *mark;
        SX_TRY(sx_pair_marks(cx, p->here, &mark));
        for (uint32_t i = 0; i < p->count; i++) {
            p->here_tag[i] = mark[i];
            p->there_tag[i] = there_mark[i];
        }
        SX_TRY(pair_tagged(cx, p));
    }
    memset(p->here_tag, 0, p->count * sizeof(*p->here_tag));
    memset(p->there_tag, 0, p->count * sizeof(*p->there_tag));
    return pair_tagged(cx, p);
}

static bool same_symbols(const sx_graph *a, const sx_graph *b)
{
    return a->symbol_count == b->symbol_count &&
           sx_symbols_equal(a->symbol, b->symbol, a->symbol_count, false);
}

sx_code sx_pair_parameters(sx_ctx *cx, const sx_graph *here, const sx_graph *there,
                           const uint32_t *there_mark, bool by_name, uint32_t **parameter_of,
                           bool *paired)
{
    pairing p = {.here = here, .there = there};
    uint32_t there_count;
    *paired = false;
    SX_TRY(sx_pair_list(cx, here, &p.here_list, &p.count));
    SX_TRY(sx_pair_list(cx, there, &p.there_list, &there_count));
    SX_ASSERT(p.count <= here->node_count && there_count <= there->node_count);
    p.parameter_of = SX_NEW_ARRAY(cx, uint32_t, (size_t)p.count + 1);
    p.taken = SX_NEW_ARRAY(cx, bool, (size_t)p.count + 1);
    p.here_tag = SX_NEW_ARRAY(cx, uint64_t, (size_t)p.count + 1);
    p.there_tag = SX_NEW_ARRAY(cx, uint64_t, (size_t)p.count + 1);
    p.next = SX_NEW_ARRAY(cx, uint32_t, (size_t)p.count + 1);
    p.first = SX_NEW_ARRAY(cx, uint32_t, (size_t)p.count + 1);
    *parameter_of = p.parameter_of;
    if (p.parameter_of == NULL || p.taken == NULL || p.here_tag == NULL || p.there_tag == NULL ||
        p.next == NULL || p.first == NULL) {
        return cx->error.code;
    }
    if (p.count == there_count && same_symbols(here, there)) {
        SX_TRY(pair_all(cx, &p, there_mark, by_name));
        *paired = all_paired(&p);
    }
    return SX_OK;
}
