#include "core/ir/extent.h"
#include "core/roll/roll.h"

#include <stdio.h>
#include <string.h>

#include "core/roll/cut.h"

#define NONE UINT32_MAX
#define PEELS_MAX 2u
#define EXTERNAL UINT32_C(0x80000000) /* in a reference: a value from outside */

/* One stretch of levels, written down so that equal ones are equal words. */
typedef struct {
    uint32_t low, high;                  /* its levels: low < level <= high */
    uint32_t word_first, word_count;     /* into roller.word: what is compared */
    uint32_t node_first, node_count;     /* into roller.node: operations, operands first */
    uint32_t outer_first, outer_count;   /* into roller.outer: nodes read from outside */
    uint32_t result_first, result_count; /* into roller.result: nodes read later */
    uint32_t part;
} region;

typedef struct {
    sx_ctx *cx;
    sx_roll_levels level;
    const sx_places *places; /* of every node, or NULL */
    region *region;
    uint32_t region_count;
    uint32_t *word, *node, *outer, *result;
    uint32_t word_count, word_capacity, node_count, node_capacity;
    uint32_t outer_count, outer_capacity, result_count, result_capacity;
    uint32_t *seen; /* per node: 1 + the region whose reference `ref` holds */
    /* number among the region's nodes, or EXTERNAL + number among its outer values */
    uint32_t *ref;
    uint32_t *wanted;    /* per node: 1 where a later region or an output of the program reads it */
    uint32_t *region_of; /* per node that is a result: its region */
    uint32_t *number;    /* and its place among the results */
    uint32_t *stack, *next;
    uint32_t *order, *first; /* nodes by level; where those of each region start */
    uint32_t *image;         /* per node: 1 + the number of the node of a body it stands for */
    sx_idmap part_map;       /* regions by words */
    sx_roll_part *part;
    uint32_t part_count, part_capacity;
    uint32_t *model; /* per part: the first region of it */
    uint32_t model_capacity;
} roller;

static sx_code push(sx_ctx *cx, uint32_t **list, uint32_t *count, uint32_t *capacity,
                    uint32_t value)
{
    void *array = *list;
    SX_TRY(sx_grow(cx, &array, capacity, *count + 1, sizeof(uint32_t)));
    *list = array;
    (*list)[(*count)++] = value;
    return SX_OK;
}

static sx_code put_word(roller *r, uint32_t value)
{
    return push(r->cx, &r->word, &r->word_count, &r->word_capacity, value);
}

/* ---- one region: its operations in an order that depends on its shape alone ---- */

static bool is_inside(const roller *r, const region *g, uint32_t n)
{
    const sx_roll_levels *l = &r->level;
    uint32_t at = l->level[n];
    if (l->graph->node[n].op == SX_OP_PARAMETER) {
        return false;
    }
    return (at > g->low && at <= g->high) || (at == 0 && g->low == 0 && g == r->region) ||
           sx_roll_is_copied(l, n);
}

static sx_code place(roller *r, region *g, uint32_t n)
{
    uint32_t index = (uint32_t)(g - r->region);
    r->seen[n] = index + 1;
    if (is_inside(r, g, n)) {
        r->ref[n] = g->node_count++;
        return push(r->cx, &r->node, &r->node_count, &r->node_capacity, n);
    }
    r->wanted[n] = 1;
    r->ref[n] = EXTERNAL + g->outer_count++;
    return push(r->cx, &r->outer, &r->outer_count, &r->outer_capacity, n);
}

/* Depth first from one result, operands first, in operand order. */
static sx_code walk(roller *r, region *g, uint32_t root)
{
    const sx_graph *graph = r->level.graph;
    uint32_t mark = (uint32_t)(g - r->region) + 1;
    uint32_t depth = 0;
    if (r->seen[root] != mark) {
        r->stack[0] = root;
        r->next[depth++] = 0;
    }
    while (depth > 0) {
        uint32_t n = r->stack[depth - 1];
        const sx_node *node = &graph->node[n];
        if (!is_inside(r, g, n) || r->next[depth - 1] == node->input_count) {
            SX_TRY(place(r, g, n));
            depth--;
            continue;
        }
        uint32_t below = sx_graph_input(graph, node, r->next[depth - 1]++).i;
        if (r->seen[below] != mark) {
            r->stack[depth] = below;
            r->next[depth++] = 0;
        }
    }
    return SX_OK;
}

static sx_code put_type(roller *r, const sx_type *type)
{
    SX_TRY(put_word(r, (uint32_t)type->dtype << 8 | type->rank));
    for (uint32_t d = 0; d < type->rank; d++) {
        SX_TRY(put_word(r, (uint32_t)(uint64_t)type->dim[d].scale));
        SX_TRY(put_word(r, (uint32_t)((uint64_t)type->dim[d].scale >> 32)));
        SX_TRY(put_word(r, type->dim[d].symbol));
    }
    return SX_OK;
}

static sx_code put_places(roller *r, uint32_t n)
{
    for (uint32_t a = 0; r->places != NULL && a < SX_MESH_AXES_MAX; a++) {
        SX_TRY(put_word(r, r->places[n].at[a]));
    }
    return SX_OK;
}

static bool is_weight(const sx_roll_levels *l, uint32_t n)
{
    const sx_node *node = &l->graph->node[n];
    return node->op == SX_OP_PARAMETER ? sx_graph_attr(l->graph, node)->weight != 0 : l->weight[n];
}

static sx_code put_words(roller *r, region *g)
{
    const sx_graph *graph = r->level.graph;
    g->word_first = r->word_count;
    SX_TRY(put_word(r, g->node_count));
    SX_TRY(put_word(r, g->outer_count));
    for (uint32_t i = 0; i < g->node_count; i++) {
        const sx_node *node = &graph->node[r->node[g->node_first + i]];
        SX_TRY(put_word(r, node->op));
        SX_TRY(put_word(r, node->attr.i));
        SX_TRY(put_word(r, node->input_count));
        for (uint32_t k = 0; k < node->input_count; k++) {
            SX_TRY(put_word(r, r->ref[sx_graph_input(graph, node, k).i]));
        }
    }
    for (uint32_t i = 0; i < g->outer_count; i++) {
        uint32_t n = r->outer[g->outer_first + i];
        SX_TRY(put_word(r, is_weight(&r->level, n) ? 1 : 0));
        SX_TRY(put_type(r, &graph->node[n].type));
        SX_TRY(put_places(r, n));
    }
    for (uint32_t i = 0; i < g->result_count; i++) {
        SX_TRY(put_places(r, r->result[g->result_first + i]));
    }
    for (uint32_t i = 0; i < g->result_count; i++) {
        SX_TRY(put_word(r, r->ref[r->result[g->result_first + i]]));
    }
    g->word_count = r->word_count - g->word_first;
    return SX_OK;
}

/* `belonging`: nodes of the region by level. Later regions are done: they have said what they want. */
static sx_code read_region(roller *r, region *g, const uint32_t *belonging, uint32_t count)
{
    uint32_t index = (uint32_t)(g - r->region);
    g->node_first = r->node_count;
    g->outer_first = r->outer_count;
    g->result_first = r->result_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = belonging[i];
        if (r->wanted[n] != 0) {
            r->region_of[n] = index;
            r->number[n] = g->result_count++;
            SX_TRY(push(r->cx, &r->result, &r->result_count, &r->result_capacity, n));
        }
    }
    if (g->result_count > SX_OUTPUTS_MAX) {
        return SX_FAIL(r->cx, SX_LIMIT, "part %u of the program: %u outputs, at most %u", index,
                       g->result_count, SX_OUTPUTS_MAX);
    }
    /* the value on the path comes last: what hangs below it decides the order of everything */
    for (uint32_t i = g->result_count; i-- > 0;) {
        SX_TRY(walk(r, g, r->result[g->result_first + i]));
    }
    return put_words(r, g);
}

/* ---- equal regions are one part ---- */

static bool same_words(const void *self, uint32_t id, const void *probe)
{
    const roller *r = self;
    const region *a = &r->region[id];
    const region *b = probe;
    return a->word_count == b->word_count &&
           memcmp(&r->word[a->word_first], &r->word[b->word_first], a->word_count * 4) == 0;
}

static uint32_t count_operations(const roller *r, const region *g)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        count += r->level.graph->node[r->node[g->node_first + i]].input_count > 0 ? 1 : 0;
    }
    return count;
}

static sx_code find_part(roller *r, region *g)
{
    uint64_t hash =
        sx_hash64((sx_span){(const uint8_t *)&r->word[g->word_first], g->word_count * 4}, 0);
    uint32_t twin = sx_idmap_find(&r->part_map, hash, same_words, r, g);
    if (twin != SX_IDMAP_NONE) {
        g->part = r->region[twin].part;
        r->part[g->part].use_count++;
        return SX_OK;
    }
    g->part = r->part_count;
    void *array = r->part;
    SX_TRY(sx_grow(r->cx, &array, &r->part_capacity, r->part_count + 1, sizeof(*r->part)));
    r->part = array;
    r->part[r->part_count++] = (sx_roll_part){.use_count = 1, .node_count = count_operations(r, g)};
    uint32_t models = g->part;
    SX_TRY(push(r->cx, &r->model, &models, &r->model_capacity, (uint32_t)(g - r->region)));
    return sx_idmap_put(r->cx, &r->part_map, hash, (uint32_t)(g - r->region));
}

sx_code sx_roll_copy_symbols(sx_ctx *cx, const sx_graph *from, sx_graph *to)
{
    SX_ASSERT(to->symbol_count == 0); /* or their numbers would be others */
    SX_TRY(sx_graph_copy_symbols(cx, from->symbol, from->symbol_count, to));
    return SX_OK;
}

sx_code sx_roll_copy_node(sx_ctx *cx, sx_graph *to, const sx_graph *from, const sx_node *node,
                          const sx_node_id *input, sx_node_id *id)
{
    return sx_graph_add_copy(cx, to, from, node, input, id);
}

/* Its interface as it lies. */
static sx_code place_program(roller *r, const region *g, const sx_node_id *outer, sx_graph *graph)
{
    const sx_sharding *s = r->level.graph->sharding;
    for (uint32_t a = 0; r->places != NULL && a < s->axis_count; a++) {
        SX_TRY(sx_mesh_add_axis(r->cx, graph, s->axis[a].name, s->axis[a].size));
    }
    for (uint32_t i = 0; r->places != NULL && i < g->outer_count; i++) {
        SX_TRY(sx_graph_place(r->cx, graph, outer[i], &r->places[r->outer[g->outer_first + i]]));
    }
    for (uint32_t i = 0; r->places != NULL && i < g->result_count; i++) {
        SX_TRY(sx_graph_want(r->cx, graph, i, &r->places[r->result[g->result_first + i]]));
    }
    return SX_OK;
}

/* The region as a program. */
static sx_code make_program(roller *r, const region *g, const sx_graph **program)
{
    sx_ctx *cx = r->cx;
    const sx_graph *whole = r->level.graph;
    sx_graph *graph;
    char name[32];
    SX_TRY(sx_graph_make(cx, SX_SPAN_LITERAL("part"), whole->attrs, &graph));
    SX_TRY(sx_roll_copy_symbols(cx, whole, graph));
    sx_node_id *made = SX_NEW_ARRAY(cx, sx_node_id, (size_t)g->node_count + g->outer_count + 1);
    if (made == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < g->outer_count; i++) {
        uint32_t n = r->outer[g->outer_first + i];
        sx_type type = whole->node[n].type;
        (void)snprintf(name, sizeof(name), "i%u", i);
        SX_TRY(sx_build_parameter(cx, graph, name, is_weight(&r->level, n), &type,
                                  &made[g->node_count + i]));
    }
    /* the words hold the references, also of regions read before others overwrote `ref` */
    const uint32_t *word = &r->word[g->word_first + 2];
    for (uint32_t i = 0; i < g->node_count; i++) {
        const sx_node *node = &whole->node[r->node[g->node_first + i]];
        sx_node_id input[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t ref = word[3 + k];
            input[k] = made[ref < EXTERNAL ? ref : g->node_count + (ref - EXTERNAL)];
        }
        word += 3 + node->input_count;
        SX_TRY(sx_roll_copy_node(cx, graph, whole, node, input, &made[i]));
    }
    word = &r->word[g->word_first + g->word_count - g->result_count];
    for (uint32_t i = 0; i < g->result_count; i++) {
        (void)snprintf(name, sizeof(name), "o%u", i);
        SX_TRY(sx_graph_add_output(cx, graph, sx_span_of(name), made[word[i]]));
    }
    *program = graph;
    return place_program(r, g, &made[g->node_count], graph);
}

/* ---- the whole ---- */

static sx_code roller_init(roller *r)
{
    sx_ctx *cx = r->cx;
    const sx_graph *graph = r->level.graph;
    uint32_t **words[] = {&r->seen,   &r->ref,   &r->wanted, &r->region_of,
                          &r->number, &r->stack, &r->next,   &r->image};
    for (size_t i = 0; i < SX_COUNT(words); i++) {
        *words[i] = SX_NEW_ARRAY(cx, uint32_t, (size_t)graph->node_count + 1);
        if (*words[i] == NULL) {
            return cx->error.code;
        }
    }
    return SX_OK;
}

/* Regions from the cuts, nothing read yet. */
static sx_code begin(roller *r)
{
    const sx_graph *graph = r->level.graph;
    r->region_count = r->level.cut_count + 1;
    r->region = SX_NEW_ARRAY(r->cx, region, r->region_count);
    if (r->region == NULL) {
        return r->cx->error.code;
    }
    uint32_t low = 0;
    for (uint32_t i = 0; i < r->region_count; i++) {
        uint32_t high = i < r->level.cut_count ? r->level.cut[i] : NONE;
        r->region[i].low = low;
        r->region[i].high = high;
        low = high;
    }
    r->word_count = r->node_count = r->outer_count = r->result_count = r->part_count = 0;
    r->part_map = (sx_idmap){0};
    memset(r->wanted, 0, graph->node_count * sizeof(uint32_t));
    memset(r->seen, 0, graph->node_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < graph->output_count; i++) {
        r->wanted[graph->output[i].node.i] = 1;
    }
    return SX_OK;
}

/* Nodes ordered by level (the order of the graph within one): first[i] .. first[i + 1] belong to region i. */
static sx_code sort_nodes(roller *r, uint32_t **order, uint32_t **first)
{
    sx_ctx *cx = r->cx;
    const sx_roll_levels *l = &r->level;
    uint32_t nodes = l->graph->node_count;
    uint32_t levels = l->path_count + 1;
    uint32_t *start = SX_NEW_ARRAY(cx, uint32_t, (size_t)levels + 1);
    *order = SX_NEW_ARRAY(cx, uint32_t, (size_t)nodes + 1);
    *first = SX_NEW_ARRAY(cx, uint32_t, (size_t)r->region_count + 1);
    if (start == NULL || *order == NULL || *first == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < nodes; n++) {
        if (l->live[n] && l->graph->node[n].op != SX_OP_PARAMETER) {
            start[l->level[n] + 1]++;
        }
    }
    for (uint32_t k = 1; k <= levels; k++) {
        start[k] += start[k - 1];
    }
    for (uint32_t i = 0; i < r->region_count; i++) {
        uint32_t high = r->region[i].high < levels ? r->region[i].high + 1 : levels;
        (*first)[i + 1] = start[high];
    }
    for (uint32_t n = 0; n < nodes; n++) {
        if (l->live[n] && l->graph->node[n].op != SX_OP_PARAMETER) {
            (*order)[start[l->level[n]]++] = n;
        }
    }
    return SX_OK;
}

static sx_code read_regions(roller *r)
{
    SX_TRY(begin(r));
    SX_TRY(sort_nodes(r, &r->order, &r->first));
    for (uint32_t i = r->region_count; i-- > 0;) {
        SX_TRY(
            read_region(r, &r->region[i], &r->order[r->first[i]], r->first[i + 1] - r->first[i]));
    }
    for (uint32_t i = 0; i < r->region_count; i++) {
        if (r->region[i].result_count > 0) {
            SX_TRY(find_part(r, &r->region[i]));
        }
    }
    return SX_OK;
}

/* ---- peeling: a layer that starts in the middle of its region ---- */

/* Where the longest path enters a stack sideways (a decoder reads the encoder's result deeper than its own
 * tokens), the first layer shares a region with what comes before. It is found by walking down from the
 * region's last value side by side with the body that follows. */
typedef struct {
    const region *body;
    uint32_t *inner; /* per node of the body: what stands for it */
    uint32_t *outer; /* per outer value of the body */
    bool *bound; /* per node of the body: it is no copy, or a copy of what hangs on such a node */
} likeness;

static bool stands_for(uint32_t *slot, uint32_t n)
{
    bool same = *slot == NONE || *slot == n;
    *slot = n;
    return same;
}

static bool match_node(roller *r, likeness *k, uint32_t i, const uint32_t *word)
{
    const sx_graph *graph = r->level.graph;
    const region *body = k->body;
    const sx_node *model = &graph->node[r->node[body->node_first + i]];
    if (k->inner[i] == NONE) {
        return false;
    }
    const sx_node *node = &graph->node[k->inner[i]];
    if (node->op != model->op || node->attr.i != model->attr.i ||
        node->input_count != model->input_count) {
        return false;
    }
    for (uint32_t a = 0; a < node->input_count; a++) {
        uint32_t below = sx_graph_input(graph, node, a).i;
        uint32_t ref = word[a];
        if (ref < EXTERNAL) {
            if (!stands_for(&k->inner[ref], below)) {
                return false;
            }
            continue;
        }
        uint32_t outer = r->outer[body->outer_first + (ref - EXTERNAL)];
        if (!stands_for(&k->outer[ref - EXTERNAL], below) ||
            is_weight(&r->level, below) != is_weight(&r->level, outer) ||
            !sx_type_equal(&graph->node[below].type, &graph->node[outer].type)) {
            return false;
        }
    }
    return true;
}

/* Whether the marked nodes of region `g` can follow its other ones: none of those reads a marked node (nor a
 * copy of one), all marked ones are of the region, and what is wanted of them is what is wanted of the body. */
static bool can_follow(const roller *r, const region *g, const likeness *k)
{
    const sx_roll_levels *l = &r->level;
    uint32_t index = (uint32_t)(g - r->region);
    uint32_t marked = 0;
    uint32_t wanted = 0;
    uint32_t expected = 0;
    for (uint32_t i = r->first[index]; i < r->first[index + 1]; i++) {
        uint32_t n = r->order[i];
        const sx_node *node = &l->graph->node[n];
        marked += r->image[n] != 0 && !sx_roll_is_copied(l, n) ? 1 : 0;
        wanted += r->image[n] != 0 && r->wanted[n] != 0 ? 1 : 0;
        for (uint32_t a = 0; a < node->input_count && r->image[n] == 0; a++) {
            uint32_t below = sx_graph_input(l->graph, node, a).i;
            if (r->image[below] != 0 && k->bound[r->image[below] - 1]) {
                return false;
            }
        }
    }
    for (uint32_t i = 0; i < k->body->node_count; i++) {
        expected += sx_roll_is_copied(l, r->node[k->body->node_first + i]) ? 0 : 1;
    }
    for (uint32_t i = 0; i < k->body->result_count; i++) {
        uint32_t ref = r->ref[r->result[k->body->result_first + i]];
        wanted -= ref < k->body->node_count && r->wanted[k->inner[ref]] != 0 ? 1 : 0;
    }
    return marked == expected && wanted == 0;
}

/* Gives the image of the body the last level of region `g`, and what else had it the level before. */
static void move_levels(roller *r, const region *g)
{
    sx_roll_levels *l = &r->level;
    uint32_t index = (uint32_t)(g - r->region);
    for (uint32_t i = r->first[index]; i < r->first[index + 1]; i++) {
        uint32_t n = r->order[i];
        bool last = l->level[n] == g->high;
        if (r->image[n] != 0) {
            l->level[n] = g->high;
        } else {
            l->level[n] -= last ? 1 : 0;
        }
    }
}

/* Splits region `index` where its end looks like the region after it; *split true if so. */
static sx_code peel(roller *r, uint32_t index, bool *split)
{
    sx_ctx *cx = r->cx;
    const region *g = &r->region[index];
    const region *body = &r->region[index + 1];
    uint32_t count = body->node_count;
    likeness k = {.body = body};
    *split = false;
    if (g->high < g->low + 2 || body->high == NONE || g->part == body->part || count == 0 ||
        r->part[body->part].use_count < 2 || body->result_count == 0) {
        return SX_OK;
    }
    k.inner = SX_NEW_ARRAY(cx, uint32_t, (size_t)count + 1);
    k.outer = SX_NEW_ARRAY(cx, uint32_t, (size_t)body->outer_count + 1);
    const uint32_t **word = SX_NEW_ARRAY(cx, const uint32_t *, (size_t)count + 1);
    k.bound = SX_NEW_ARRAY(cx, bool, (size_t)count + 1);
    if (k.inner == NULL || k.outer == NULL || k.bound == NULL || word == NULL) {
        return cx->error.code;
    }
    memset(k.inner, 0xFF, count * sizeof(uint32_t));
    memset(k.outer, 0xFF, body->outer_count * sizeof(uint32_t));
    const uint32_t *at = &r->word[body->word_first + 2];
    uint32_t root = NONE;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = r->node[body->node_first + i];
        r->ref[n] = i; /* other regions may have overwritten it */
        root = n == r->level.path[body->high] ? i : root;
        word[i] = at + 3;
        k.bound[i] = !sx_roll_is_copied(&r->level, n);
        for (uint32_t a = 0; a < at[2]; a++) {
            k.bound[i] = k.bound[i] || (at[3 + a] < EXTERNAL && k.bound[at[3 + a]]);
        }
        at += 3 + at[2];
    }
    bool same = root != NONE;
    if (same) {
        k.inner[root] = r->level.path[g->high];
    }
    for (uint32_t i = count; i-- > 0 && same;) {
        same = match_node(r, &k, i, word[i]);
    }
    if (!same) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        r->image[k.inner[i]] = i + 1;
    }
    *split = can_follow(r, g, &k);
    if (*split) {
        move_levels(r, g);
    }
    for (uint32_t i = 0; i < count; i++) {
        r->image[k.inner[i]] = 0;
    }
    return SX_OK;
}

/* Cuts once more wherever a layer can be peeled off; *peeled true if there was one. */
static sx_code peel_regions(roller *r, bool *peeled)
{
    sx_roll_levels *l = &r->level;
    uint32_t *cut = SX_NEW_ARRAY(r->cx, uint32_t, 2 * (size_t)l->cut_count + 1);
    uint32_t count = 0;
    *peeled = false;
    if (cut == NULL) {
        return r->cx->error.code;
    }
    for (uint32_t i = 0; i < l->cut_count; i++) {
        bool split;
        SX_TRY(peel(r, i, &split));
        if (split) {
            cut[count++] = l->cut[i] - 1;
            *peeled = true;
        }
        cut[count++] = l->cut[i];
    }
    l->cut = cut;
    l->cut_count = count;
    return SX_OK;
}

static sx_code fill_use(roller *r, const region *g, const uint32_t *use_of,
                        const uint32_t *parameter, sx_roll_use *use)
{
    sx_roll_value *argument = SX_NEW_ARRAY(r->cx, sx_roll_value, (size_t)g->outer_count + 1);
    if (argument == NULL) {
        return r->cx->error.code;
    }
    for (uint32_t k = 0; k < g->outer_count; k++) {
        uint32_t n = r->outer[g->outer_first + k];
        bool given = r->level.graph->node[n].op == SX_OP_PARAMETER;
        SX_ASSERT(given || &r->region[r->region_of[n]] < g);
        argument[k] = given ? (sx_roll_value){SX_ROLL_PARAMETER, parameter[n]}
                            : (sx_roll_value){use_of[r->region_of[n]], r->number[n]};
    }
    *use = (sx_roll_use){.part = g->part, .argument = argument};
    return SX_OK;
}

static sx_code fill_roll(roller *r, sx_roll *roll)
{
    sx_ctx *cx = r->cx;
    const sx_graph *graph = r->level.graph;
    uint32_t *use_of = SX_NEW_ARRAY(cx, uint32_t, r->region_count);
    uint32_t *parameter = SX_NEW_ARRAY(cx, uint32_t, (size_t)graph->node_count + 1);
    sx_roll_use *use = SX_NEW_ARRAY(cx, sx_roll_use, r->region_count);
    sx_roll_value *output = SX_NEW_ARRAY(cx, sx_roll_value, (size_t)graph->output_count + 1);
    if (use_of == NULL || parameter == NULL || use == NULL || output == NULL) {
        return cx->error.code;
    }
    uint32_t parameters = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        parameter[n] = graph->node[n].op == SX_OP_PARAMETER ? parameters++ : NONE;
    }
    for (uint32_t i = 0; i < r->region_count; i++) {
        if (r->region[i].result_count > 0) {
            use_of[i] = roll->use_count;
            SX_TRY(fill_use(r, &r->region[i], use_of, parameter, &use[roll->use_count++]));
        }
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        uint32_t n = graph->output[i].node.i;
        output[i] = graph->node[n].op == SX_OP_PARAMETER
                        ? (sx_roll_value){SX_ROLL_PARAMETER, parameter[n]}
                        : (sx_roll_value){use_of[r->region_of[n]], r->number[n]};
    }
    for (uint32_t p = 0; p < r->part_count; p++) {
        SX_TRY(make_program(r, &r->region[r->model[p]], &r->part[p].program));
    }
    roll->part = r->part;
    roll->part_count = r->part_count;
    roll->use = use;
    roll->output = output;
    return SX_OK;
}

sx_code sx_roll_find(sx_ctx *cx, const sx_graph *graph, const sx_places *places,
                     const sx_roll **found)
{
    SX_ASSERT(places == NULL || graph->sharding != NULL);
    *found = NULL;
    roller r = {.cx = cx, .places = places};
    if (graph->output_count == 0) {
        return SX_OK;
    }
    SX_TRY(sx_roll_cut(cx, graph, &r.level));
    if (r.level.cut_count == 0) {
        return SX_OK;
    }
    SX_TRY(roller_init(&r));
    SX_TRY(read_regions(&r));
    bool peeled = true;
    for (uint32_t i = 0; i < PEELS_MAX && peeled; i++) {
        SX_TRY(peel_regions(&r, &peeled));
        if (peeled) {
            SX_TRY(read_regions(&r));
        }
    }
    bool worth = false;
    if (r.part_count > SX_ROLL_PARTS_MAX) {
        return SX_OK;
    }
    for (uint32_t p = 0; p < r.part_count; p++) {
        worth = worth || sx_roll_is_worth(r.part[p].node_count, r.part[p].use_count);
    }
    sx_roll *roll = SX_NEW(cx, sx_roll);
    if (roll == NULL) {
        return cx->error.code;
    }
    roll->whole = graph;
    if (worth) {
        SX_TRY(fill_roll(&r, roll));
        *found = roll;
    }
    return SX_OK;
}
