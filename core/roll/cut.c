#include "core/roll/cut.h"

#include <string.h>

#define NONE UINT32_MAX
#define PERIODS_MAX 64u
#define RUNS_MAX 1024u
#define RUNS_KEPT_MAX 64u /* of one program; what is left over can be cut in its turn */
#define LOOKS_MAX 32u     /* phases of one run that are compared */

/* A repetition: levels first .. first + length - 1 have period `period`. */
typedef struct {
    uint32_t first, length, period;
    uint32_t saved; /* operations that need not be looked at */
} run;

typedef struct {
    sx_ctx *cx;
    sx_roll_levels *l;
    /* per node: lowest and highest level that reads it, through copies */
    uint32_t *read_first, *read_last;
    uint64_t *type;    /* per node: a hash of its type */
    uint64_t *hash;    /* per node: its shape within its level */
    uint64_t *label;   /* per level */
    uint64_t *window;  /* per level: labels of one period from there */
    uint32_t *ops;     /* [path_count + 2] operations in the levels before */
    uint32_t *dots;    /* contractions in the levels before */
    uint32_t *width;   /* per level: values read after it */
    uint32_t *readers; /* per node, through copies */
    bool *soft;        /* per node: an elementwise operation reads it */
    bool *is_cut;      /* per level */
    run run[RUNS_MAX];
    uint32_t run_count;
} finder;

static bool is_leaf(const sx_graph *graph, uint32_t n)
{
    return graph->node[n].input_count == 0;
}

static uint32_t operand(const sx_graph *graph, uint32_t n, uint32_t k)
{
    return sx_graph_input(graph, &graph->node[n], k).i;
}

/* ---- what is known of every node ---- */

static void find_live(sx_roll_levels *l)
{
    const sx_graph *g = l->graph;
    for (uint32_t i = 0; i < g->output_count; i++) {
        l->live[g->output[i].node.i] = true;
    }
    for (uint32_t n = g->node_count; n-- > 0;) {
        for (uint32_t k = 0; l->live[n] && k < g->node[n].input_count; k++) {
            l->live[operand(g, n, k)] = true;
        }
    }
}

static bool one_value(const sx_attr *attr)
{
    size_t size = sx_dtype_bytes(attr->type.dtype);
    return attr->data.len <= size ||
           memcmp(attr->data.ptr, attr->data.ptr + size, attr->data.len - size) == 0;
}

static void find_facts(sx_roll_levels *l)
{
    const sx_graph *g = l->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        const sx_node *node = &g->node[n];
        const sx_attr *attr = sx_graph_attr(g, node);
        bool view = sx_op_info_of(node->op)->op_class == SX_OPCLASS_VIEW;
        bool made = node->op == SX_OP_CONSTANT
                        ? one_value(attr)
                        : view || sx_op_is_elementwise(node->op) || node->op == SX_OP_IOTA;
        bool weight = node->op != SX_OP_PARAMETER || attr->weight != 0;
        uint32_t depth = 0;
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t below = operand(g, n, k);
            made = made && l->made[below];
            weight = weight && l->weight[below];
            depth = l->depth[below] > depth ? l->depth[below] : depth;
        }
        l->made[n] = made;
        l->weight[n] = weight && sx_type_is_static(&node->type);
        l->depth[n] = is_leaf(g, n) || made || l->weight[n] ? 0 : depth + 1;
    }
}

/* The longest path to an output: one node of each depth. */
static sx_code find_path(sx_ctx *cx, sx_roll_levels *l)
{
    const sx_graph *g = l->graph;
    uint32_t top = g->output[0].node.i;
    for (uint32_t i = 1; i < g->output_count; i++) {
        uint32_t node = g->output[i].node.i;
        top = l->depth[node] > l->depth[top] ? node : top;
    }
    l->path_count = l->depth[top];
    l->path = SX_NEW_ARRAY(cx, uint32_t, (size_t)l->path_count + 1);
    if (l->path == NULL) {
        return cx->error.code;
    }
    for (uint32_t level = l->path_count; level > 0; level--) {
        SX_ASSERT(l->depth[top] == level);
        l->path[level] = top;
        for (uint32_t k = 0; k < g->node[top].input_count && level > 1; k++) {
            if (l->depth[operand(g, top, k)] == level - 1) {
                top = operand(g, top, k);
                break;
            }
        }
    }
    for (uint32_t n = 0; n < g->node_count; n++) {
        l->after[n] = 0;
        for (uint32_t k = 0; k < g->node[n].input_count; k++) {
            uint32_t below = l->after[operand(g, n, k)];
            l->after[n] = below > l->after[n] ? below : l->after[n];
        }
        uint32_t depth = l->depth[n];
        l->after[n] =
            depth > 0 && depth <= l->path_count && l->path[depth] == n ? depth : l->after[n];
    }
    return SX_OK;
}

/* Levels from the outputs down: first need, unless levels `spread` apart read it (then as soon as possible;
 * NONE: any two levels read it and it does not hang on the path), or the path does not need it at all (likewise). */
static void find_levels(finder *f, uint32_t spread)
{
    sx_roll_levels *l = f->l;
    const sx_graph *g = l->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        f->read_first[n] = NONE;
        f->read_last[n] = 0;
        l->level[n] = NONE; /* until a reader that the path needs is seen */
    }
    for (uint32_t n = g->node_count; n-- > 0;) {
        if (!l->live[n]) {
            continue;
        }
        uint32_t depth = l->depth[n];
        bool on_path = depth > 0 && depth <= l->path_count && l->path[depth] == n;
        uint32_t apart = f->read_first[n] != NONE ? f->read_last[n] - f->read_first[n] : 0;
        bool shared = apart >= spread || (spread == NONE && apart > 0 && l->after[n] == 0);
        if (on_path) {
            l->level[n] = depth;
        } else if (l->level[n] == NONE || shared) {
            l->level[n] = l->after[n];
        }
        SX_ASSERT(l->level[n] >= l->after[n]);
        bool copied = sx_roll_is_copied(l, n);
        uint32_t first = copied ? f->read_first[n] : l->level[n];
        uint32_t last = copied ? f->read_last[n] : l->level[n];
        for (uint32_t k = 0; k < g->node[n].input_count; k++) {
            uint32_t below = operand(g, n, k);
            f->read_first[below] = first < f->read_first[below] ? first : f->read_first[below];
            f->read_last[below] = last > f->read_last[below] ? last : f->read_last[below];
            l->level[below] = l->level[n] < l->level[below] ? l->level[n] : l->level[below];
        }
    }
}

/* ---- labels: levels that look alike have equal ones ---- */

static uint64_t type_hash(const sx_type *type)
{
    uint64_t word[2 + 2 * SX_RANK_MAX];
    word[0] = type->dtype;
    word[1] = type->rank;
    for (uint32_t d = 0; d < type->rank; d++) {
        word[2 + 2 * d] = (uint64_t)type->dim[d].scale;
        word[3 + 2 * d] = type->dim[d].symbol;
    }
    return sx_hash64((sx_span){(const uint8_t *)word, (2 + 2 * (size_t)type->rank) * 8}, 0);
}

static void find_labels(finder *f)
{
    sx_roll_levels *l = f->l;
    const sx_graph *g = l->graph;
    memset(f->label, 0, ((size_t)l->path_count + 1) * sizeof(*f->label));
    memset(f->ops, 0, ((size_t)l->path_count + 2) * sizeof(*f->ops));
    memset(f->dots, 0, ((size_t)l->path_count + 2) * sizeof(*f->dots));
    for (uint32_t n = 0; n < g->node_count; n++) {
        const sx_node *node = &g->node[n];
        uint64_t word[2 + SX_INPUTS_MAX];
        word[0] = (uint64_t)node->op << 32 | node->attr.i;
        word[1] = f->type[n];
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t below = operand(g, n, k);
            bool inside = l->made[below] || (l->level[below] == l->level[n] && !is_leaf(g, below));
            word[2 + k] = inside ? f->hash[below] : f->type[below] + (l->weight[below] ? 1 : 0);
        }
        f->hash[n] =
            sx_hash64((sx_span){(const uint8_t *)word, (2 + (size_t)node->input_count) * 8}, 1);
        bool counts = l->live[n] && !is_leaf(g, n) && !l->made[n];
        if (counts && l->level[n] > 0) {
            f->label[l->level[n]] += f->hash[n];
            f->ops[l->level[n] + 1]++;
            sx_op_class op_class = sx_op_info_of(node->op)->op_class;
            bool heavy = op_class == SX_OPCLASS_DOT || op_class == SX_OPCLASS_CONV;
            f->dots[l->level[n] + 1] += heavy ? 1 : 0;
        }
    }
    for (uint32_t k = 1; k < l->path_count + 2; k++) {
        f->ops[k] += f->ops[k - 1];
        f->dots[k] += f->dots[k - 1];
    }
}

/* ---- runs ---- */

static bool same_label(const void *self, uint32_t id, const void *probe)
{
    return ((const uint64_t *)self)[id] == *(const uint64_t *)probe;
}

/* distance[d]: how often a label comes again d levels later, and not sooner. */
static sx_code find_distances(finder *f, uint32_t *distance)
{
    const sx_roll_levels *l = f->l;
    sx_idmap map = {0};
    uint32_t *last = SX_NEW_ARRAY(f->cx, uint32_t, (size_t)l->path_count + 1);
    if (last == NULL) {
        return f->cx->error.code;
    }
    for (uint32_t k = 1; k <= l->path_count; k++) {
        uint32_t id = sx_idmap_find(&map, f->label[k], same_label, f->label, &f->label[k]);
        if (id == SX_IDMAP_NONE) {
            SX_TRY(sx_idmap_put(f->cx, &map, f->label[k], k));
            id = k;
        } else {
            distance[k - last[id]]++;
        }
        last[id] = k;
    }
    return SX_OK;
}

/* Keeps a run that is worth it, in order of what it saves. */
static void keep_run(finder *f, run found)
{
    uint32_t end = found.first + found.length;
    uint32_t body = f->ops[end] - f->ops[end - found.period];
    uint32_t dots = f->dots[end] - f->dots[end - found.period];
    found.saved = f->ops[end] - f->ops[found.first] - body;
    if (found.length < 2 * found.period || dots == 0 ||
        !sx_roll_is_worth(body, found.length / found.period)) {
        return;
    }
    if (f->run_count == RUNS_MAX && f->run[RUNS_MAX - 1].saved >= found.saved) {
        return;
    }
    uint32_t at = f->run_count < RUNS_MAX ? f->run_count++ : RUNS_MAX - 1;
    while (at > 0 && f->run[at - 1].saved < found.saved) {
        f->run[at] = f->run[at - 1];
        at--;
    }
    f->run[at] = found;
}

static void find_runs_of(finder *f, uint32_t period)
{
    const uint64_t *label = f->label;
    const uint64_t *later = f->label + period;
    uint32_t end = f->l->path_count - period; /* the last level that has one a period later */
    for (uint32_t k = 1; k <= end; k++) {
        uint32_t first = k;
        while (k <= end && label[k] == later[k]) {
            k++;
        }
        if (k > first) {
            keep_run(f, (run){.first = first, .length = k - first + period, .period = period});
        }
    }
}

/* Runs of the most frequent distances, the best first. */
static sx_code find_runs(finder *f)
{
    uint32_t count = f->l->path_count;
    uint32_t *distance = SX_NEW_ARRAY(f->cx, uint32_t, (size_t)count + 1);
    uint32_t *met = SX_NEW_ARRAY_UNSET(f->cx, uint32_t, (size_t)count + 1); /* those there are */
    uint32_t met_count = 0;
    if (distance == NULL || met == NULL) {
        return f->cx->error.code;
    }
    SX_TRY(find_distances(f, distance));
    SX_TRY(sx_spend(f->cx, (uint64_t)PERIODS_MAX * count));
    for (uint32_t d = 1; d <= count; d++) {
        met[met_count] = d;
        met_count += distance[d] > 0 ? 1 : 0;
    }
    f->run_count = 0;
    for (uint32_t i = 0; i < PERIODS_MAX && i < met_count; i++) {
        uint32_t best = 0; /* distance[0] is 0 */
        for (uint32_t k = 0; k < met_count; k++) {
            best = distance[met[k]] > distance[best] ? met[k] : best;
        }
        distance[best] = 0;
        find_runs_of(f, best);
    }
    return SX_OK;
}

/* Drops runs that overlap better ones; returns the shortest period left, or 0. */
static uint32_t choose_runs(finder *f)
{
    uint32_t kept = 0;
    uint32_t shortest = 0;
    for (uint32_t i = 0; i < f->run_count && kept < RUNS_KEPT_MAX; i++) {
        run r = f->run[i];
        bool overlaps = false;
        for (uint32_t j = 0; j < kept; j++) {
            overlaps = overlaps || (r.first < f->run[j].first + f->run[j].length &&
                                    f->run[j].first < r.first + r.length);
        }
        if (!overlaps) {
            f->run[kept++] = r;
            shortest = shortest == 0 || r.period < shortest ? r.period : shortest;
        }
    }
    f->run_count = kept;
    return shortest;
}

/* ---- where to cut a run ---- */

/* width[k]: values of levels up to k that levels beyond read. */
static void find_widths(finder *f)
{
    sx_roll_levels *l = f->l;
    const sx_graph *g = l->graph;
    memset(f->width, 0, ((size_t)l->path_count + 2) * sizeof(*f->width));
    memset(f->readers, 0, g->node_count * sizeof(*f->readers));
    memset(f->soft, 0, g->node_count * sizeof(*f->soft));
    for (uint32_t n = g->node_count; n-- > 0;) {
        if (!l->live[n] || is_leaf(g, n)) {
            continue;
        }
        bool copied = sx_roll_is_copied(l, n);
        for (uint32_t k = 0; k < g->node[n].input_count; k++) {
            uint32_t below = operand(g, n, k);
            f->readers[below] += copied ? f->readers[n] : 1;
            f->soft[below] =
                f->soft[below] || (copied ? f->soft[n] : sx_op_is_elementwise(g->node[n].op));
        }
        if (!copied && f->read_first[n] != NONE && f->read_last[n] > l->level[n]) {
            f->width[l->level[n]]++;
            f->width[f->read_last[n]]--;
        }
    }
    for (uint32_t k = 1; k < l->path_count + 2; k++) {
        f->width[k] += f->width[k - 1];
    }
}

/* How much is lost by a cut after level k: the values that cross it count most; then whether one more
 * elementwise step would have followed, and whether a step of another kind comes last, which an elementwise
 * one could have followed. */
static uint32_t loss(const finder *f, uint32_t k)
{
    uint32_t n = f->l->path[k];
    if (sx_roll_is_copied(f->l, n)) {
        return NONE;
    }
    bool single = f->readers[n] == 1 && f->soft[n];
    bool hard = !sx_op_is_elementwise(f->l->graph->node[n].op);
    uint32_t width = f->width[k] < 1000000 ? f->width[k] : 1000000;
    return 4 * width + (single ? 2u : 0) + (hard ? 1u : 0);
}

/* window[k]: hash of the labels of levels k .. k + period - 1 (polynomial, so that the next follows from the last). */
static void find_windows(finder *f, uint32_t period)
{
    const uint64_t base = UINT64_C(0x9E3779B97F4A7C15);
    uint32_t count = f->l->path_count;
    uint64_t hash = 0;
    uint64_t power = 1; /* of the label that leaves */
    for (uint32_t k = 1; k <= count; k++) {
        hash = hash * base + f->label[k];
        if (k > period) {
            hash -= f->label[k - period] * power * base;
        } else if (k > 1) {
            power *= base;
        }
        if (k >= period) {
            f->window[k + 1 - period] = hash;
        }
    }
}

/* Stretches of one period anywhere in the program that look like the one from level k on. */
static uint32_t count_windows(const finder *f, uint32_t k, uint32_t period)
{
    uint32_t count = 0;
    for (uint32_t at = 1; at + period <= f->l->path_count + 1; at++) {
        count += f->window[at] == f->window[k] ? 1 : 0;
    }
    return count;
}

/* Marks the cuts of one run: between whole bodies, and before the first and after the last. At equal loss the
 * phase that the rest of the program has most often, then the last one. */
static sx_code cut_run(finder *f, const run *r)
{
    sx_roll_levels *l = f->l;
    uint32_t phases = r->length - 2 * r->period + 1;
    uint32_t least = NONE;
    uint32_t best = NONE;
    uint32_t best_count = 0;
    uint32_t looks = 0;
    phases = phases < r->period ? phases : r->period;
    SX_TRY(sx_spend(f->cx, phases + (uint64_t)LOOKS_MAX * l->path_count));
    find_windows(f, r->period);
    for (uint32_t phase = 0; phase < phases; phase++) {
        uint32_t lost = loss(f, r->first - 1 + phase + r->period);
        least = lost < least ? lost : least;
    }
    for (uint32_t phase = 0; phase < phases && looks < LOOKS_MAX; phase++) {
        if (loss(f, r->first - 1 + phase + r->period) == least && least != NONE) {
            uint32_t count = count_windows(f, r->first + phase, r->period);
            best = best == NONE || count >= best_count ? phase : best;
            best_count = count > best_count ? count : best_count;
            looks++;
        }
    }
    for (uint32_t i = 0; best != NONE && i <= (r->length - best) / r->period; i++) {
        f->is_cut[r->first - 1 + best + i * r->period] = true;
    }
    return SX_OK;
}

/* Every level marked as a cut, in order. */
static void collect_cuts(finder *f)
{
    sx_roll_levels *l = f->l;
    for (uint32_t k = 0; k < l->path_count; k++) {
        if (f->is_cut[k]) {
            l->cut[l->cut_count++] = k;
        }
    }
}

static sx_code finder_init(finder *f)
{
    size_t nodes = f->l->graph->node_count;
    size_t levels = (size_t)f->l->path_count + 2;
    uint32_t **words[] = {&f->read_first, &f->read_last, &f->readers};
    uint32_t **marks[] = {&f->ops, &f->dots, &f->width, &f->l->cut};
    for (size_t i = 0; i < SX_COUNT(words); i++) {
        *words[i] = SX_NEW_ARRAY(f->cx, uint32_t, nodes);
        if (*words[i] == NULL) {
            return f->cx->error.code;
        }
    }
    for (size_t i = 0; i < SX_COUNT(marks); i++) {
        *marks[i] = SX_NEW_ARRAY(f->cx, uint32_t, levels);
        if (*marks[i] == NULL) {
            return f->cx->error.code;
        }
    }
    f->type = SX_NEW_ARRAY_UNSET(f->cx, uint64_t, nodes);
    f->hash = SX_NEW_ARRAY_UNSET(f->cx, uint64_t, nodes);
    f->label = SX_NEW_ARRAY(f->cx, uint64_t, levels);
    f->window = SX_NEW_ARRAY(f->cx, uint64_t, levels);
    f->soft = SX_NEW_ARRAY(f->cx, bool, nodes);
    f->is_cut = SX_NEW_ARRAY(f->cx, bool, levels);
    bool made = f->type != NULL && f->hash != NULL && f->label != NULL && f->window != NULL &&
                f->soft != NULL && f->is_cut != NULL;
    for (size_t n = 0; made && n < nodes; n++) {
        f->type[n] = type_hash(&f->l->graph->node[n].type);
    }
    return made ? SX_OK : f->cx->error.code;
}

static sx_code levels_init(sx_ctx *cx, const sx_graph *graph, sx_roll_levels *l)
{
    size_t nodes = graph->node_count;
    *l = (sx_roll_levels){.graph = graph,
                          .live = SX_NEW_ARRAY(cx, bool, nodes),
                          .weight = SX_NEW_ARRAY(cx, bool, nodes),
                          .made = SX_NEW_ARRAY(cx, bool, nodes),
                          .depth = SX_NEW_ARRAY(cx, uint32_t, nodes),
                          .after = SX_NEW_ARRAY(cx, uint32_t, nodes),
                          .level = SX_NEW_ARRAY(cx, uint32_t, nodes)};
    bool made = l->live != NULL && l->weight != NULL && l->made != NULL && l->depth != NULL &&
                l->after != NULL && l->level != NULL;
    return made ? SX_OK : cx->error.code;
}

sx_code sx_roll_cut(sx_ctx *cx, const sx_graph *graph, sx_roll_levels *l)
{
    SX_TRY(levels_init(cx, graph, l));
    find_live(l);
    find_facts(l);
    SX_TRY(find_path(cx, l));
    finder *f = SX_NEW(cx, finder);
    if (f == NULL) {
        return cx->error.code;
    }
    f->cx = cx;
    f->l = l;
    SX_TRY(finder_init(f));
    /* the first look tells how long a layer is; the second knows which values more than one layer reads */
    uint32_t spread = NONE;
    for (uint32_t look = 0; look < 2; look++) {
        find_levels(f, spread);
        find_labels(f);
        SX_TRY(find_runs(f));
        spread = choose_runs(f);
        if (spread == 0) {
            return SX_OK;
        }
    }
    find_widths(f);
    for (uint32_t i = 0; i < f->run_count; i++) {
        SX_TRY(cut_run(f, &f->run[i]));
    }
    collect_cuts(f);
    return SX_OK;
}
