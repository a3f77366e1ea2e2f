#include "core/ir/origin.h"

#include <string.h>

#include "core/ir/fused.h"

#define NONE SX_ORIGIN_NONE
#define ROOTS_MAX 16u /* nodes of the original that one merged node stands for */

/* ---- names of nodes ---- */

sx_code sx_graph_set_origin(sx_ctx *cx, sx_graph *graph, uint32_t node, const sx_origin *origin)
{
    sx_origins *all = graph->origins != NULL ? graph->origins : SX_NEW(cx, sx_origins);
    if (all == NULL) {
        return cx->error.code;
    }
    graph->origins = all;
    const sx_origin *last = all->count > 0 ? &all->origin[all->count - 1] : NULL;
    bool again = last != NULL && sx_span_equal(last->name, origin->name) &&
                 sx_span_equal(last->op, origin->op) && last->opset == origin->opset;
    if (!again) {
        void *rows = all->origin;
        SX_TRY(sx_grow(cx, &rows, &all->capacity, all->count + 1, sizeof(*origin)));
        all->origin = rows;
        all->origin[all->count++] = *origin;
    }
    void *of_node = all->of_node;
    SX_TRY(sx_grow(cx, &of_node, &all->of_capacity, node + 1, sizeof(*all->of_node)));
    all->of_node = of_node;
    while (all->of_count <= node) {
        all->of_node[all->of_count++] = NONE;
    }
    all->of_node[node] = all->count - 1;
    return SX_OK;
}

const sx_origin *sx_origin_find(const sx_origins *origins, uint32_t node)
{
    bool known = origins != NULL && node < origins->of_count && origins->of_node[node] != NONE;
    return known ? &origins->origin[origins->of_node[node]] : NULL;
}

/* ---- an optimised program beside its original ---- */

typedef struct {
    sx_ctx *cx;
    const sx_graph *from, *to;
    uint32_t words;              /* of a set of parameters of `from` */
    uint64_t *from_set, *to_set; /* [nodes][words] parameters that a node depends on */
    uint64_t *inputs;            /* [words] those that are no weights */
    bool *joined;                /* [nodes of `from`] see find_joined */
    uint32_t *equal_last;        /* heads of the lists of nodes of `from` with equal sets, */
    uint32_t *equal_next;        /* [nodes] linked from the last node to the first */
    sx_idmap equal_map;
    uint32_t *limit; /* [nodes of `to`] the root is before this one */
    uint32_t *seen;  /* [nodes of `from`] the last visit, to walk each once */
    bool *is_root;   /* [nodes of `from`] */
    uint32_t *extra; /* [nodes of `to`][ROOTS_MAX] roots besides the first; NONE ends */
    sx_descent *out;
    uint32_t cover_capacity;
} finder;

/* ---- sets of parameters ---- */

static const uint64_t *set_of(const finder *f, const uint64_t *sets, uint32_t node)
{
    return sets + (size_t)node * f->words;
}

static bool is_subset(const finder *f, const uint64_t *a, const uint64_t *b)
{
    for (uint32_t w = 0; w < f->words; w++) {
        if ((a[w] & ~b[w]) != 0) {
            return false;
        }
    }
    return true;
}

static bool is_equal(const finder *f, const uint64_t *a, const uint64_t *b)
{
    return memcmp(a, b, f->words * sizeof(*a)) == 0;
}

static bool is_empty(const finder *f, const uint64_t *a)
{
    for (uint32_t w = 0; w < f->words; w++) {
        if (a[w] != 0) {
            return false;
        }
    }
    return true;
}

/* The number of the parameter of `from` with this name: mostly the `guess`-th. */
static uint32_t find_parameter(const sx_graph *from, const uint32_t *parameter, uint32_t count,
                               sx_span name, uint32_t guess)
{
    for (uint32_t k = 0; k < count; k++) {
        uint32_t at = (guess + k) % count;
        const sx_node *node = &from->node[parameter[at]];
        if (sx_span_equal(sx_graph_attr(from, node)->name, name)) {
            return at;
        }
    }
    return NONE;
}

static void fill_sets(const finder *f, const sx_graph *graph, const uint32_t *parameter,
                      uint32_t count, uint64_t *sets)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        uint64_t *set = sets + (size_t)i * f->words;
        if (node->op == SX_OP_PARAMETER && count > 0) {
            uint32_t at = find_parameter(f->from, parameter, count,
                                         sx_graph_attr(graph, node)->name, seen++ % count);
            if (at != NONE) {
                set[at / 64] |= UINT64_C(1) << (at % 64);
            }
        }
        for (uint32_t k = 0; k < node->input_count; k++) {
            const uint64_t *input = set_of(f, sets, sx_graph_input(graph, node, k).i);
            for (uint32_t w = 0; w < f->words; w++) {
                set[w] |= input[w];
            }
        }
    }
}

static uint64_t hash_of(const finder *f, const uint64_t *set)
{
    return sx_hash64((sx_span){(const uint8_t *)set, f->words * sizeof(*set)}, 0);
}

static bool same_set(const void *self, uint32_t id, const void *probe)
{
    const finder *f = self;
    return is_equal(f, set_of(f, f->from_set, f->equal_last[id]), probe);
}

static bool is_leaf(const sx_node *node)
{
    return node->op == SX_OP_PARAMETER || node->op == SX_OP_CONSTANT;
}

/* Nodes of `from` with equal sets are linked. */
static sx_code link_equal(finder *f)
{
    uint32_t lists = 0;
    for (uint32_t i = 0; i < f->from->node_count; i++) {
        const uint64_t *set = set_of(f, f->from_set, i);
        f->equal_next[i] = NONE;
        if (is_leaf(&f->from->node[i])) {
            continue;
        }
        uint64_t hash = hash_of(f, set);
        uint32_t list = sx_idmap_find(&f->equal_map, hash, same_set, f, set);
        if (list == SX_IDMAP_NONE) {
            list = lists++;
            f->equal_last[list] = i;
            SX_TRY(sx_idmap_put(f->cx, &f->equal_map, hash, list));
        } else {
            f->equal_next[i] = f->equal_last[list];
            f->equal_last[list] = i;
        }
    }
    return SX_OK;
}

static sx_code make_sets(finder *f)
{
    uint32_t from_count = f->from->node_count, to_count = f->to->node_count, count = 0;
    uint32_t *parameter = SX_NEW_ARRAY(f->cx, uint32_t, from_count + 1);
    if (parameter == NULL) {
        return f->cx->error.code;
    }
    for (uint32_t i = 0; i < from_count; i++) {
        if (f->from->node[i].op == SX_OP_PARAMETER) {
            parameter[count++] = i;
        }
    }
    f->words = count / 64 + 1;
    f->inputs = SX_NEW_ARRAY(f->cx, uint64_t, f->words);
    f->joined = SX_NEW_ARRAY(f->cx, bool, from_count + 1);
    f->from_set = SX_NEW_ARRAY(f->cx, uint64_t, (size_t)(from_count + 1) * f->words);
    f->to_set = SX_NEW_ARRAY(f->cx, uint64_t, (size_t)(to_count + 1) * f->words);
    f->equal_last = SX_NEW_ARRAY(f->cx, uint32_t, from_count + 1);
    f->equal_next = SX_NEW_ARRAY(f->cx, uint32_t, from_count + 1);
    if (f->from_set == NULL || f->to_set == NULL || f->equal_last == NULL ||
        f->equal_next == NULL || f->inputs == NULL || f->joined == NULL) {
        return f->cx->error.code;
    }
    for (uint32_t k = 0; k < count; k++) {
        bool weight = sx_graph_attr(f->from, &f->from->node[parameter[k]])->weight != 0;
        f->inputs[k / 64] |= (uint64_t)!weight << (k % 64);
    }
    fill_sets(f, f->from, parameter, count, f->from_set);
    fill_sets(f, f->to, parameter, count, f->to_set);
    return link_equal(f);
}

/* ---- roots ---- */

static bool same_elements(const sx_type *a, const sx_type *b)
{
    sx_dim x, y;
    return sx_type_elements(a, &x) && sx_type_elements(b, &y) && sx_dim_equal(x, y);
}

/* The operation that makes the result: of a fused node the last of its body. */
static sx_op last_op(const sx_graph *graph, const sx_node *node)
{
    if (node->op != SX_OP_FUSED) {
        return node->op;
    }
    const sx_body *body = sx_graph_attr(graph, node)->body;
    const sx_instr *last = &body->instr[body->instr_count - 1];
    switch (last->kind) {
    case SX_BODY_APPLY: return last->op;
    case SX_BODY_REDUCE: return SX_OP_REDUCE;
    case SX_BODY_DOT:
    case SX_BODY_ONLINE: return SX_OP_DOT_GENERAL;
    case SX_BODY_ARG:
    case SX_BODY_IMM:
    case SX_BODY_INDEX: break;
    }
    return SX_OP_FUSED;
}

/* How well a node of `from` that depends on the same parameters fits: the type counts most. Composites may end
 * in anything. */
static uint32_t fit_of(const sx_node *from, const sx_node *to, sx_op last)
{
    uint32_t fit =
        sx_type_equal(&from->type, &to->type) ? 4 : (same_elements(&from->type, &to->type) ? 2 : 0);
    return fit + (from->op == last || sx_op_is_composite(from->op) ? 1 : 0);
}

/* The best of the nodes that depend on the same parameters, before what reads t. */
static uint32_t find_equal(const finder *f, uint32_t t, uint32_t fit_min)
{
    const uint64_t *set = set_of(f, f->to_set, t);
    const sx_node *node = &f->to->node[t];
    uint32_t list = sx_idmap_find(&f->equal_map, hash_of(f, set), same_set, f, set);
    uint32_t best = NONE, best_fit = 0;
    sx_op last = last_op(f->to, node);
    for (uint32_t c = list == SX_IDMAP_NONE ? NONE : f->equal_last[list]; c != NONE;
         c = f->equal_next[c]) {
        uint32_t fit = fit_of(&f->from->node[c], node, last);
        if (c < f->limit[t] && fit >= fit_min && (best == NONE || fit > best_fit)) {
            best = c;
            best_fit = fit;
        }
    }
    return best;
}

/* Does an operand of the node depend on all of `set` already? */
static bool is_before(const finder *f, const sx_node *node, const uint64_t *set)
{
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t input = sx_graph_input(f->to, node, k).i;
        if (f->to->node[input].op != SX_OP_PARAMETER &&
            is_subset(f, set, set_of(f, f->to_set, input))) {
            return true;
        }
    }
    return false;
}

static bool is_live(const finder *f, const uint64_t *set)
{
    for (uint32_t w = 0; w < f->words; w++) {
        if ((set[w] & f->inputs[w]) != 0) {
            return true;
        }
    }
    return false;
}

/* Nodes of `from` where results come together that were made apart from what node t reads, and all behind
 * them: what a node merges was side by side, so it is before them. An example: of three contractions with the
 * same left side, the products of two. */
static void find_joined(const finder *f, uint32_t t)
{
    const sx_node *reader = &f->to->node[t];
    for (uint32_t c = 0; c < f->from->node_count; c++) {
        const sx_node *node = &f->from->node[c];
        const uint64_t *first = NULL;
        f->joined[c] = false;
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t input = sx_graph_input(f->from, node, k).i;
            const uint64_t *set = set_of(f, f->from_set, input);
            f->joined[c] = f->joined[c] || f->joined[input];
            if (!is_live(f, set) || is_before(f, reader, set)) {
                continue;
            }
            bool apart = first != NULL && !is_subset(f, first, set) && !is_subset(f, set, first);
            f->joined[c] = f->joined[c] || apart;
            first = set;
        }
    }
}

/* Several nodes merged into one: those of `from` that depend on most of its parameters, and on nothing else. */
static void find_below(const finder *f, uint32_t t, uint32_t *root)
{
    const uint64_t *set = set_of(f, f->to_set, t);
    bool live = is_live(f, set);
    uint32_t count = 0;
    find_joined(f, t);
    for (uint32_t c = f->from->node_count; c-- > 0 && count < ROOTS_MAX;) {
        const uint64_t *other = set_of(f, f->from_set, c);
        if (is_leaf(&f->from->node[c]) || c >= f->limit[t] || is_empty(f, other) ||
            is_live(f, other) != live || !is_subset(f, other, set) || f->joined[c] ||
            is_before(f, &f->to->node[t], other)) {
            continue;
        }
        bool covered = false;
        for (uint32_t k = 0; k < count && !covered; k++) {
            covered = is_subset(f, other, set_of(f, f->from_set, root[k]));
        }
        if (!covered) {
            root[count++] = c;
        }
    }
}

/* The root of the first node that reads this one: consumers come later and have theirs. */
static uint32_t root_of_reader(const finder *f, uint32_t t)
{
    for (uint32_t u = t + 1; u < f->to->node_count; u++) {
        const sx_node *node = &f->to->node[u];
        for (uint32_t k = 0; k < node->input_count; k++) {
            if (sx_graph_input(f->to, node, k).i == t && f->out->root[u] != NONE) {
                return f->out->root[u];
            }
        }
    }
    return NONE;
}

static uint32_t through_reshapes(const sx_graph *graph, uint32_t node)
{
    while (graph->node[node].op == SX_OP_RESHAPE) {
        node = sx_graph_input(graph, &graph->node[node], 0).i;
    }
    return node;
}

/* What reads it has a root: its own comes before that. */
static void limit_operands(finder *f, uint32_t t)
{
    const sx_node *node = &f->to->node[t];
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t input = through_reshapes(f->to, sx_graph_input(f->to, node, k).i);
        bool equal = is_equal(f, set_of(f, f->to_set, input), set_of(f, f->to_set, t));
        if (equal && f->out->root[t] < f->limit[input]) {
            f->limit[input] = f->out->root[t];
        }
    }
}

/* Outputs are paired by name: what they are needs no guess. */
static void root_outputs(finder *f)
{
    for (uint32_t k = 0; k < f->to->output_count; k++) {
        uint32_t t = through_reshapes(f->to, f->to->output[k].node.i);
        for (uint32_t j = 0; j < f->from->output_count; j++) {
            uint32_t root = f->from->output[j].node.i;
            if (sx_span_equal(f->from->output[j].name, f->to->output[k].name) &&
                !is_leaf(&f->from->node[root]) && !is_leaf(&f->to->node[t]) &&
                f->out->root[t] == NONE) {
                f->out->root[t] = root;
            }
        }
    }
}

static void find_roots(finder *f)
{
    root_outputs(f);
    for (uint32_t t = f->to->node_count; t-- > 0;) {
        const sx_node *node = &f->to->node[t];
        uint32_t *root = &f->out->root[t];
        if (is_leaf(node) || node->op == SX_OP_RESHAPE) {
            continue;
        }
        *root = *root != NONE ? *root : find_equal(f, t, 2);
        if (*root == NONE) {
            uint32_t merged[ROOTS_MAX];
            memset(merged, 0xff, sizeof(merged));
            find_below(f, t, merged);
            *root = merged[0];
            memcpy(f->extra + (size_t)t * ROOTS_MAX, merged, sizeof(merged));
            for (uint32_t k = 0; k < ROOTS_MAX && merged[k] != NONE; k++) {
                f->is_root[merged[k]] = true;
            }
        }
        /* made for what reads it, as a padded copy is */
        *root = *root != NONE ? *root : root_of_reader(f, t);
        *root = *root != NONE ? *root : find_equal(f, t, 0);
        if (*root != NONE) {
            f->is_root[*root] = true;
            limit_operands(f, t);
        }
    }
}

/* ---- covers ---- */

static sx_code add_cover(finder *f, uint32_t node)
{
    void *array = f->out->cover;
    SX_TRY(sx_grow(f->cx, &array, &f->cover_capacity, f->out->cover_count + 1, sizeof(node)));
    f->out->cover = array;
    f->out->cover[f->out->cover_count++] = node;
    return SX_OK;
}

/* Backwards from a root to what other nodes of `to` stand for. */
static sx_code cover_from(finder *f, uint32_t t, uint32_t root)
{
    uint32_t next = f->out->cover_count;
    if (f->seen[root] == t) {
        return SX_OK;
    }
    f->seen[root] = t;
    SX_TRY(add_cover(f, root));
    for (; next < f->out->cover_count; next++) {
        const sx_node *node = &f->from->node[f->out->cover[next]];
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t input = sx_graph_input(f->from, node, k).i;
            if (!is_leaf(&f->from->node[input]) && !f->is_root[input] && f->seen[input] != t) {
                f->seen[input] = t;
                SX_TRY(add_cover(f, input));
            }
        }
    }
    return SX_OK;
}

static void sort(uint32_t *id, uint32_t count)
{
    for (uint32_t gap = count / 2; gap > 0; gap /= 2) { /* Shell's */
        for (uint32_t i = gap; i < count; i++) {
            uint32_t value = id[i], at = i;
            for (; at >= gap && id[at - gap] > value; at -= gap) {
                id[at] = id[at - gap];
            }
            id[at] = value;
        }
    }
}

static sx_code find_covers(finder *f)
{
    sx_descent *out = f->out;
    for (uint32_t t = 0; t < f->to->node_count; t++) {
        out->cover_first[t] = out->cover_count;
        if (out->root[t] != NONE) {
            SX_TRY(cover_from(f, t, out->root[t]));
        }
        const uint32_t *extra = f->extra + (size_t)t * ROOTS_MAX;
        for (uint32_t k = 0; k < ROOTS_MAX && extra[k] != NONE; k++) {
            SX_TRY(cover_from(f, t, extra[k]));
        }
        if (out->cover_count > out->cover_first[t]) {
            sort(out->cover + out->cover_first[t], out->cover_count - out->cover_first[t]);
        }
    }
    out->cover_first[f->to->node_count] = out->cover_count;
    return SX_OK;
}

sx_code sx_descent_find(sx_ctx *cx, const sx_graph *original, const sx_graph *optimised,
                        sx_descent *descent)
{
    uint32_t from_count = original->node_count, to_count = optimised->node_count;
    *descent = (sx_descent){.root = SX_NEW_ARRAY(cx, uint32_t, to_count + 1),
                            .cover_first = SX_NEW_ARRAY(cx, uint32_t, to_count + 1)};
    finder f = {.cx = cx, .from = original, .to = optimised, .out = descent};
    f.limit = SX_NEW_ARRAY(cx, uint32_t, to_count + 1);
    f.seen = SX_NEW_ARRAY(cx, uint32_t, from_count + 1);
    f.is_root = SX_NEW_ARRAY(cx, bool, from_count + 1);
    f.extra = SX_NEW_ARRAY(cx, uint32_t, (size_t)(to_count + 1) * ROOTS_MAX);
    if (descent->root == NULL || descent->cover_first == NULL || f.limit == NULL ||
        f.seen == NULL || f.is_root == NULL || f.extra == NULL) {
        return cx->error.code;
    }
    memset(descent->root, 0xff, (to_count + 1) * sizeof(uint32_t));
    memset(f.limit, 0xff, (to_count + 1) * sizeof(uint32_t));
    memset(f.seen, 0xff, (from_count + 1) * sizeof(uint32_t));
    memset(f.extra, 0xff, (size_t)(to_count + 1) * ROOTS_MAX * sizeof(uint32_t));
    SX_TRY(make_sets(&f));
    find_roots(&f);
    return find_covers(&f);
}
