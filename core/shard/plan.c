#include "core/shard/plan.h"

#include <math.h>
#include <string.h>

#include "core/egraph/extract.h"
#include "core/extract/extract.h"
#include "core/ir/extent.h"
#include "core/ir/substitute.h"

#define NONE UINT32_MAX
#define TRIFLE_NS 1e-3 /* of every step: fewer are better */

/* ---- a program, or many equal ones, as it lies along the axes planned so far ---- */

typedef struct {
    sx_type type; /* static: what a device holds */
    sx_places places;
} place_value;
typedef struct {
    uint32_t value;
    sx_plan_kind kind;
    sx_op op; /* COMPUTE: and what it runs on its pieces */
    const sx_attr *attr;
    const sx_attr *whole; /* and on everything */
    sx_places given;      /* of a parameter */
    double cost_ns;       /* COMPUTE: on one device, and by core/cost alone */
    double whole_ns;
    uint32_t axis; /* others */
    sx_shard_place from, to;
    uint32_t child_first, child_count;
    uint32_t origin; /* node of the graph or e-graph */
} place_node;
typedef struct {
    sx_ctx *cx;
    const sx_device *device;
    const sx_graph *program; /* whose sharding and outputs are meant */
    place_value *value;
    uint32_t value_count, value_capacity;
    place_node *node; /* children's nodes may come later */
    uint32_t node_count, node_capacity;
    uint32_t *child; /* values */
    uint32_t child_count, child_capacity;
    uint32_t *root; /* [output_count] values */
    double ns;      /* of the last plan */
    bool proven;
} place_program;

static sx_code put_value(place_program *p, const sx_type *type, const sx_places *places)
{
    SX_TRY(sx_grow(p->cx, (void **)&p->value, &p->value_capacity, p->value_count + 1,
                   sizeof(place_value)));
    p->value[p->value_count++] = (place_value){*type, *places};
    return SX_OK;
}

static sx_code put_node(place_program *p, const place_node *node)
{
    SX_TRY(sx_grow(p->cx, (void **)&p->node, &p->node_capacity, p->node_count + 1,
                   sizeof(place_node)));
    p->node[p->node_count++] = *node;
    return SX_OK;
}

static sx_code put_child(place_program *p, uint32_t value)
{
    SX_TRY(sx_grow(p->cx, (void **)&p->child, &p->child_capacity, p->child_count + 1,
                   sizeof(uint32_t)));
    p->child[p->child_count++] = value;
    return SX_OK;
}

static sx_code program_init(sx_ctx *cx, const sx_graph *program, const sx_device *device,
                            place_program *p)
{
    *p = (place_program){.cx = cx, .device = device, .program = program, .proven = true};
    p->root = SX_NEW_ARRAY(cx, uint32_t, (size_t)program->output_count + 1);
    return p->root == NULL ? cx->error.code : SX_OK;
}

/* ---- symbols as numbers ---- */

static sx_code number_symbols(sx_ctx *cx, const sx_graph *program, sx_dim *image)
{
    int64_t multiple[SX_SYMBOLS_MAX], number[SX_SYMBOLS_MAX] = {0};
    sx_sharding_multiples(program, multiple);
    for (uint32_t i = 0; i < program->symbol_count; i++) {
        const sx_symbol *s = &program->symbol[i];
        int64_t m = multiple[i];
        if (!sx_symbol_is_declared(s)) {
            SX_ASSERT(m == 1); /* no parameter is cut along it */
            continue;
        }
        int64_t value = (sx_cost_reference(program->symbol, i) + m - 1) / m * m;
        value = value > s->high ? s->high / m * m : value;
        if (value < s->low) {
            return SX_FAIL(
                cx, SX_INPUT,
                "symbol %u: no multiple of %lld within [%lld, %lld], as the mesh cuts it", i,
                (long long)m, (long long)s->low, (long long)s->high);
        }
        number[i] = value;
    }
    sx_symbols_derive(program->symbol, program->symbol_count, number);
    for (uint32_t i = 0; i < program->symbol_count; i++) {
        image[i] = sx_dim_of(number[i]);
    }
    return SX_OK;
}

static sx_type number_type(const sx_type *type, const sx_dim *image)
{
    sx_type out = *type;
    for (uint32_t d = 0; d < out.rank; d++) {
        if (!sx_dim_is_constant(out.dim[d])) {
            out.dim[d] = sx_dim_of(out.dim[d].scale * image[out.dim[d].symbol].scale);
        }
    }
    return out;
}

static sx_code copy_attr(sx_ctx *cx, const sx_attr *attr, const sx_attr **copy)
{
    sx_attr *a = SX_NEW(cx, sx_attr);
    if (a == NULL) {
        return cx->error.code;
    }
    *a = *attr;
    *copy = a;
    return SX_OK;
}

static sx_code number_attr(place_program *p, sx_op op, const sx_attr *attr, const sx_type *operand,
                           const sx_dim *image, const sx_attr **numbered)
{
    sx_attr out;
    *numbered = attr;
    if (p->program->symbol_count == 0 || (op != SX_OP_SLICE && (attr->present & SX_A(type)) == 0)) {
        return SX_OK;
    }
    SX_TRY(sx_substitute(p->cx, op, attr, operand, image, p->program, &out));
    return copy_attr(p->cx, &out, numbered);
}

/* ---- costs ---- */

static sx_code work_ns(place_program *p, sx_op op, const sx_attr *attr, const sx_type *operand,
                       uint32_t count, const sx_type *result, double *ns)
{
    sx_cost cost;
    SX_TRY(sx_cost_node(p->cx, p->device, NULL, 0, op, attr, operand, count, result, &cost));
    *ns = cost.cost_ns;
    return SX_OK;
}

/* Bytes a device sends. `from` and `to` are what it holds before and after. */
static double sent_bytes(sx_plan_kind kind, const sx_type *from, const sx_type *to, int64_t size)
{
    double share = (double)(size - 1) / (double)size;
    switch (kind) {
    case SX_PLAN_ALL_GATHER: return share * sx_cost_bytes(NULL, 0, to);
    case SX_PLAN_REDUCE_SCATTER:
    case SX_PLAN_ALL_TO_ALL: return share * sx_cost_bytes(NULL, 0, from);
    case SX_PLAN_ALL_REDUCE: return 2 * share * sx_cost_bytes(NULL, 0, from);
    case SX_PLAN_COMPUTE:
    case SX_PLAN_KEEP:
    case SX_PLAN_KIND_COUNT: break;
    }
    return 0;
}

static double transfer_ns(const sx_device *device, sx_plan_kind kind, double bytes, int64_t size)
{
    if (kind == SX_PLAN_KEEP || kind == SX_PLAN_COMPUTE) {
        return 0;
    }
    double steps = ceil(log2((double)size)) * (kind == SX_PLAN_ALL_REDUCE ? 2 : 1);
    return device->launch_ns + steps * device->link_ns + bytes / device->link_bytes_per_ns;
}

/* ---- from one placement to another ---- */

/* COMPUTE: there is no way but over R. */
static sx_plan_kind way(sx_shard_place from, sx_shard_place to)
{
    if (from == SX_PLACE_R) {
        return SX_PLAN_KEEP;
    }
    if (from < SX_PLACE_R) {
        return to == SX_PLACE_R  ? SX_PLAN_ALL_GATHER
               : to < SX_PLACE_R ? SX_PLAN_ALL_TO_ALL
                                 : SX_PLAN_COMPUTE;
    }
    return to == SX_PLACE_R  ? SX_PLAN_ALL_REDUCE
           : to < SX_PLACE_R ? SX_PLAN_REDUCE_SCATTER
                             : SX_PLAN_COMPUTE;
}

const char *sx_plan_kind_name(sx_plan_kind kind)
{
    static const char *const name[] = {"compute",        "keep",       "all-gather",
                                       "reduce-scatter", "all-reduce", "all-to-all"};
    SX_ASSERT(kind < SX_PLAN_KIND_COUNT);
    return name[kind];
}

/* Rows along `axis` of a transfer along another one: sums are moved and summed further, in any order. Where
 * both cut one dimension the axis declared first cuts first: the pieces of the second can be put together
 * within each of its pieces, not the other way round. */
static void list_transfer(const place_node *node, uint32_t axis, const sx_type *type, int64_t size,
                          sx_shard_rows *rows)
{
    uint32_t possible = sx_shard_possible(type, size, NULL);
    bool orders = node->from > SX_PLACE_SUM || node->to > SX_PLACE_SUM;
    bool sums = node->from == SX_PLACE_SUM || node->to == SX_PLACE_SUM;
    rows->count = 0;
    for (uint32_t p = 0; p < SX_PLACE_COUNT; p++) {
        bool apart = axis < node->axis || (p != node->from && p != node->to);
        bool kept = p < SX_PLACE_R      ? apart
                    : p == SX_PLACE_R   ? true
                    : p == SX_PLACE_SUM ? !orders
                                        : !orders && !sums;
        if (kept && (possible & SX_PLACE_BIT(p)) != 0) {
            rows->row[rows->count++] = (sx_shard_row){{(sx_shard_place)p}, (sx_shard_place)p};
        }
    }
}

/* Dimensions that axes declared later cut already: no transfer along `axis` can touch them. */
static uint32_t cut_within(const sx_places *places, uint32_t axis)
{
    uint32_t set = 0;
    for (uint32_t a = axis + 1; a < SX_MESH_AXES_MAX; a++) {
        set |= places->at[a] < SX_PLACE_R ? SX_PLACE_BIT(places->at[a]) : 0;
    }
    return set;
}

/* ---- the problem along one axis ---- */

typedef struct {
    uint32_t class_; /* of the problem */
    /* of the program; NONE: a transfer from class `from` of the same value, or an output */
    uint32_t node;
    sx_shard_place from, to;
    uint32_t edge_first, edge_count;
    double ns;
} option;
typedef struct {
    place_program *p;
    uint32_t axis;
    int64_t size;
    bool late; /* an axis declared later is planned */
    option *option;
    uint32_t option_count, option_capacity;
    uint32_t *edge;
    uint32_t edge_count, edge_capacity;
    uint32_t *order; /* options by class, as the problem numbers them */
    sx_xt problem;
    uint32_t *image; /* [class_count] values of the next program */
} planner;

static uint32_t class_of(uint32_t value, sx_shard_place place)
{
    return value * SX_PLACE_COUNT + place;
}

static sx_code put_option(planner *q, const option *o)
{
    SX_TRY(sx_region_grow(q->p->cx, (void **)&q->option, &q->option_capacity, q->option_count + 1,
                          sizeof(option)));
    q->option[q->option_count++] = *o;
    return SX_OK;
}

static sx_code put_edge(planner *q, uint32_t class_)
{
    SX_TRY(sx_region_grow(q->p->cx, (void **)&q->edge, &q->edge_capacity, q->edge_count + 1,
                          sizeof(uint32_t)));
    q->edge[q->edge_count++] = class_;
    return SX_OK;
}

/* The operation of a node with types as they lie now. */
static sx_shard_op shard_op(const planner *q, const place_node *node, sx_type *operand)
{
    const place_program *p = q->p;
    for (uint32_t k = 0; k < node->child_count; k++) {
        operand[k] = p->value[p->child[node->child_first + k]].type;
    }
    return (sx_shard_op){.op = node->op,
                         .attr = node->attr,
                         .operand = operand,
                         .result = &p->value[node->value].type,
                         .operand_count = node->child_count,
                         .size = q->size};
}

/* What a device works on under a row. */
typedef struct {
    sx_type operand[SX_INPUTS_MAX];
    sx_type result;
    sx_attr attr;
} piece;

static void cut(const sx_shard_op *op, const sx_shard_row *row, piece *to)
{
    sx_shard_local_attr(op, row, &to->attr);
    to->result = *op->result;
    sx_shard_local_type(&to->result, row->result, op->size);
    for (uint32_t k = 0; k < op->operand_count; k++) {
        to->operand[k] = op->operand[k];
        sx_shard_local_type(&to->operand[k], row->operand[k], op->size);
    }
}

static sx_type whole_type(const place_program *p, uint32_t value)
{
    const sx_sharding *s = p->program->sharding;
    const place_value *v = &p->value[value];
    sx_type type = v->type;
    for (uint32_t a = 0; a < s->axis_count; a++) {
        if (v->places.at[a] < SX_PLACE_R) {
            type.dim[v->places.at[a]].scale *= s->axis[a].size;
        }
    }
    return type;
}

static bool is_listed(const sx_shard_op *op, const sx_shard_row *row)
{
    sx_shard_rows rows;
    bool found = false;
    sx_shard_list(op, &rows);
    for (uint32_t i = 0; i < rows.count && !found; i++) {
        found = rows.row[i].result == row->result &&
                memcmp(rows.row[i].operand, row->operand, op->operand_count) == 0;
    }
    return found;
}

/* Axes cut in the order of their declaration, whatever order they are planned in: does the row, beside the
 * rows chosen for later axes, hold so too? A reshape, say, goes on with the dimension that the axes before
 * have left. */
static bool holds_in_order(const planner *q, const place_node *node, const sx_shard_row *row,
                           piece *now, piece *next)
{
    const place_program *p = q->p;
    const sx_sharding *s = p->program->sharding;
    bool later = false;
    bool held = true;
    now->attr = *node->whole;
    now->result = whole_type(p, node->value);
    for (uint32_t k = 0; k < node->child_count; k++) {
        now->operand[k] = whole_type(p, p->child[node->child_first + k]);
    }
    for (uint32_t a = 0; a < s->axis_count; a++) {
        sx_shard_row at = {.result = p->value[node->value].places.at[a]};
        bool cuts = at.result != SX_PLACE_R;
        for (uint32_t k = 0; k < node->child_count; k++) {
            at.operand[k] = p->value[p->child[node->child_first + k]].places.at[a];
            cuts = cuts || at.operand[k] != SX_PLACE_R;
        }
        later = later || (a > q->axis && cuts);
        const sx_shard_row *chosen = a == q->axis ? row : &at;
        if (!cuts && a != q->axis) {
            continue;
        }
        const sx_shard_op op = {.op = node->op,
                                .attr = &now->attr,
                                .operand = now->operand,
                                .result = &now->result,
                                .operand_count = node->child_count,
                                .size = s->axis[a].size};
        held = held && is_listed(&op, chosen);
        if (held) {
            cut(&op, chosen, next);
            *now = *next;
        }
    }
    return held || !later;
}

static sx_code put_row(planner *q, uint32_t index, const sx_shard_row *row, double ns)
{
    const place_node *node = &q->p->node[index];
    option o = {.class_ = class_of(node->value, row->result),
                .node = index,
                .to = row->result,
                .edge_first = q->edge_count,
                .edge_count = node->child_count,
                .ns = ns + TRIFLE_NS};
    for (uint32_t k = 0; k < node->child_count; k++) {
        SX_TRY(put_edge(q, class_of(q->p->child[node->child_first + k], row->operand[k])));
    }
    return put_option(q, &o);
}

/* Does some axis declared later cut anything already? */
static bool comes_late(const planner *q)
{
    bool late = false;
    for (uint32_t v = 0; v < q->p->value_count && !late; v++) {
        late = cut_within(&q->p->value[v].places, q->axis) != 0;
    }
    return late;
}

static sx_code put_operation(planner *q, uint32_t index, piece *scratch)
{
    const place_node *node = &q->p->node[index];
    sx_type operand[SX_INPUTS_MAX];
    sx_shard_rows rows;
    sx_shard_op op = shard_op(q, node, operand);
    sx_shard_list(&op, &rows);
    for (uint32_t i = 0; i < rows.count; i++) {
        double ns = node->cost_ns;
        if (q->late && !holds_in_order(q, node, &rows.row[i], &scratch[1], &scratch[2])) {
            continue;
        }
        if (node->whole_ns > 0) {
            double local;
            cut(&op, &rows.row[i], scratch);
            SX_TRY(work_ns(q->p, node->op, &scratch->attr, scratch->operand, node->child_count,
                           &scratch->result, &local));
            ns *= local / node->whole_ns;
        }
        SX_TRY(put_row(q, index, &rows.row[i], ns));
    }
    return SX_OK;
}

/* A transfer along an axis planned before, of what lies there along this one. */
static sx_code put_planned(planner *q, uint32_t index)
{
    place_program *p = q->p;
    const place_node *node = &p->node[index];
    const sx_mesh_axis *axis = &p->program->sharding->axis[node->axis];
    sx_shard_rows rows;
    list_transfer(node, q->axis, &p->value[node->value].type, q->size, &rows);
    for (uint32_t i = 0; i < rows.count; i++) {
        sx_type from = p->value[p->child[node->child_first]].type;
        sx_type to = p->value[node->value].type;
        sx_shard_place place = rows.row[i].result;
        if ((sx_shard_possible(&from, q->size, NULL) & SX_PLACE_BIT(place)) == 0) {
            continue;
        }
        sx_shard_local_type(&from, place, q->size);
        sx_shard_local_type(&to, place, q->size);
        double bytes = sent_bytes(node->kind, &from, &to, axis->size);
        SX_TRY(
            put_row(q, index, &rows.row[i], transfer_ns(p->device, node->kind, bytes, axis->size)));
    }
    return SX_OK;
}

static sx_code put_parameter(planner *q, uint32_t index)
{
    const place_node *node = &q->p->node[index];
    sx_shard_row row = {.result = node->given.at[q->axis]};
    return put_row(q, index, &row, 0);
}

static sx_code put_transfers(planner *q, uint32_t value)
{
    const sx_type *type = &q->p->value[value].type;
    uint32_t possible =
        sx_shard_possible(type, q->size, NULL) & ~cut_within(&q->p->value[value].places, q->axis);
    for (uint32_t from = 0; from < SX_PLACE_COUNT; from++) {
        for (uint32_t to = 0; to < SX_PLACE_COUNT; to++) {
            sx_plan_kind kind = way((sx_shard_place)from, (sx_shard_place)to);
            if (from == to || kind == SX_PLAN_COMPUTE || (possible & SX_PLACE_BIT(from)) == 0 ||
                (possible & SX_PLACE_BIT(to)) == 0) {
                continue;
            }
            sx_type before = *type;
            sx_type after = *type;
            sx_shard_local_type(&before, (sx_shard_place)from, q->size);
            sx_shard_local_type(&after, (sx_shard_place)to, q->size);
            double bytes = sent_bytes(kind, &before, &after, q->size);
            option o = {.class_ = class_of(value, (sx_shard_place)to),
                        .node = NONE,
                        .from = (sx_shard_place)from,
                        .to = (sx_shard_place)to,
                        .edge_first = q->edge_count,
                        .edge_count = 1,
                        .ns = transfer_ns(q->p->device, kind, bytes, q->size) + TRIFLE_NS};
            SX_TRY(put_edge(q, class_of(value, (sx_shard_place)from)));
            SX_TRY(put_option(q, &o));
        }
    }
    return SX_OK;
}

/* An output as it is wanted, or in any way but P. */
static sx_code put_output(planner *q, uint32_t output)
{
    place_program *p = q->p;
    const sx_places *wanted = sx_graph_wanted(p->program, output);
    uint32_t value = p->root[output];
    uint32_t set = wanted != NULL ? SX_PLACE_BIT(wanted->at[q->axis]) : (2u << SX_PLACE_R) - 1;
    set &= sx_shard_possible(&p->value[value].type, q->size, NULL);
    for (uint32_t place = 0; place < SX_PLACE_COUNT; place++) {
        if ((set & SX_PLACE_BIT(place)) != 0) {
            option o = {.class_ = p->value_count * SX_PLACE_COUNT + output,
                        .node = NONE,
                        .from = (sx_shard_place)place,
                        .to = (sx_shard_place)place,
                        .edge_first = q->edge_count,
                        .edge_count = 1};
            SX_TRY(put_edge(q, class_of(value, (sx_shard_place)place)));
            SX_TRY(put_option(q, &o));
        }
    }
    return SX_OK;
}

static sx_code list_options(planner *q)
{
    place_program *p = q->p;
    piece *scratch = SX_NEW_ARRAY(p->cx, piece, 3);
    if (scratch == NULL) {
        return p->cx->error.code;
    }
    q->late = comes_late(q);
    for (uint32_t i = 0; i < p->node_count; i++) {
        SX_TRY(p->node[i].kind != SX_PLAN_COMPUTE ? put_planned(q, i)
               : p->node[i].op == SX_OP_PARAMETER ? put_parameter(q, i)
                                                  : put_operation(q, i, scratch));
    }
    for (uint32_t v = 0; v < p->value_count; v++) {
        SX_TRY(put_transfers(q, v));
    }
    for (uint32_t i = 0; i < p->program->output_count; i++) {
        SX_TRY(put_output(q, i));
    }
    return SX_OK;
}

/* Options by class, in the order they were listed, as flat arrays. */
static sx_code make_problem(planner *q)
{
    place_program *p = q->p;
    sx_xt *x = &q->problem;
    uint32_t outputs = p->program->output_count;
    uint32_t classes = p->value_count * SX_PLACE_COUNT + outputs;
    SX_TRY(sx_xt_init(p->cx, x, classes, q->option_count, q->edge_count, outputs));
    q->order = SX_NEW_ARRAY(p->cx, uint32_t, (size_t)q->option_count + 1);
    uint32_t *next = SX_NEW_ARRAY(p->cx, uint32_t, (size_t)classes + 1);
    if (q->order == NULL || next == NULL) {
        return p->cx->error.code;
    }
    for (uint32_t i = 0; i < q->option_count; i++) {
        x->node_first[q->option[i].class_ + 1]++;
    }
    for (uint32_t c = 0; c < classes; c++) {
        x->node_first[c + 1] += x->node_first[c];
        next[c] = x->node_first[c];
    }
    for (uint32_t i = 0; i < q->option_count; i++) {
        q->order[next[q->option[i].class_]++] = i;
    }
    uint32_t edges = 0;
    for (uint32_t n = 0; n < q->option_count; n++) {
        const option *o = &q->option[q->order[n]];
        x->cost[n] = o->ns;
        for (uint32_t k = 0; k < o->edge_count; k++) {
            x->child[edges++] = q->edge[o->edge_first + k];
        }
        x->edge_first[n + 1] = edges;
    }
    for (uint32_t i = 0; i < outputs; i++) {
        x->root[i] = p->value_count * SX_PLACE_COUNT + i;
    }
    return sx_xt_check(p->cx, x);
}

static sx_code solve(planner *q, uint64_t fuel, sx_xt_answer *answer, sx_xt_walk *walk)
{
    sx_xt_options options = {.fuel = fuel};
    SX_TRY(list_options(q));
    SX_TRY(make_problem(q));
    SX_TRY(sx_xt_solve(q->p->cx, &q->problem, &options, answer));
    SX_TRY(sx_xt_walk_run(q->p->cx, &q->problem, answer->choice, walk));
    SX_ASSERT(walk->whole);
    return SX_OK;
}

/* ---- the program as it lies along one axis more ---- */

static sx_code keep_node(planner *q, place_program *to, const option *o, piece *scratch)
{
    const place_program *p = q->p;
    uint32_t value = o->class_ / SX_PLACE_COUNT;
    place_value made = p->value[value];
    place_node node = {.kind = way(o->from, o->to), .axis = q->axis, .from = o->from, .to = o->to};
    made.places.at[q->axis] = o->to;
    sx_shard_local_type(&made.type, o->to, q->size);
    if (o->node != NONE) {
        node = p->node[o->node];
        if (node.kind == SX_PLAN_COMPUTE && node.op != SX_OP_PARAMETER) {
            sx_type operand[SX_INPUTS_MAX];
            sx_shard_op op = shard_op(q, &p->node[o->node], operand);
            sx_shard_row row = {.result = o->to};
            for (uint32_t k = 0; k < node.child_count; k++) {
                row.operand[k] = (sx_shard_place)(q->edge[o->edge_first + k] % SX_PLACE_COUNT);
            }
            cut(&op, &row, scratch);
            if (!sx_attr_equal(&scratch->attr, node.attr)) {
                SX_TRY(copy_attr(p->cx, &scratch->attr, &node.attr));
            }
        }
    }
    node.value = to->value_count;
    node.child_first = to->child_count;
    node.child_count = o->edge_count;
    for (uint32_t k = 0; k < o->edge_count; k++) {
        uint32_t below = q->image[q->edge[o->edge_first + k]];
        SX_ASSERT(below != NONE);
        SX_TRY(put_child(to, below));
        if (o->node == NONE) {
            node.origin = to->node[below].origin; /* one node for each value, in their order */
        }
    }
    q->image[o->class_] = to->value_count;
    SX_TRY(put_value(to, &made.type, &made.places));
    return put_node(to, &node);
}

/* `cost_ns` goes on meaning one device: whole_ns is kept with it. SX_INPUT where an output cannot be had as it
 * is wanted, which happens only when a later axis is planned already. */
static sx_code plan_axis(place_program *p, uint32_t axis, uint64_t fuel)
{
    sx_ctx *cx = p->cx;
    planner q = {.p = p, .axis = axis, .size = p->program->sharding->axis[axis].size};
    place_program to;
    sx_xt_answer answer;
    sx_xt_walk walk;
    piece *scratch = SX_NEW(cx, piece);
    SX_TRY(solve(&q, fuel, &answer, &walk));
    SX_TRY(program_init(cx, p->program, p->device, &to));
    q.image = SX_NEW_ARRAY(cx, uint32_t, (size_t)q.problem.class_count + 1);
    if (q.image == NULL || scratch == NULL) {
        return cx->error.code;
    }
    memset(q.image, 0xff, q.problem.class_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < walk.order_count; i++) {
        const option *o = &q.option[q.order[answer.choice[walk.order[i]]]];
        uint32_t first_output = p->value_count * SX_PLACE_COUNT;
        if (o->class_ >= first_output) {
            to.root[o->class_ - first_output] = q.image[q.edge[o->edge_first]];
        } else {
            SX_TRY(keep_node(&q, &to, o, scratch));
        }
    }
    to.ns = answer.dag_cost;
    to.proven = p->proven && answer.proven;
    *p = to;
    return SX_OK;
}

static bool is_used(const sx_sharding *s, uint32_t axis)
{
    bool used = false;
    for (uint32_t i = 0; i < s->parameter_count; i++) {
        used = used || s->parameter[i].places.at[axis] != SX_PLACE_R;
    }
    for (uint32_t i = 0; i < s->output_count; i++) {
        used = used || s->output[i].places.at[axis] != SX_PLACE_R;
    }
    return used && s->axis[axis].size > 1;
}

/* The next order of `order` in the order of words; false after the last. */
static bool next_order(uint32_t *order, uint32_t count)
{
    uint32_t i = count;
    while (i > 1 && order[i - 2] > order[i - 1]) {
        i--;
    }
    if (i < 2) {
        return false;
    }
    uint32_t k = count;
    while (order[k - 1] < order[i - 2]) {
        k--;
    }
    uint32_t moved = order[i - 2];
    order[i - 2] = order[k - 1];
    order[k - 1] = moved;
    for (uint32_t low = i - 1, high = count - 1; low < high; low++, high--) {
        moved = order[low];
        order[low] = order[high];
        order[high] = moved;
    }
    return true;
}

/* In every order; the first of the fastest stays. */
static sx_code plan_axes(place_program *p, uint64_t fuel)
{
    const sx_sharding *s = p->program->sharding;
    const place_program start = *p;
    uint32_t order[SX_MESH_AXES_MAX];
    uint32_t count = 0;
    uint32_t tried = 0;
    for (uint32_t a = 0; a < s->axis_count; a++) {
        order[count] = a;
        count += is_used(s, a) ? 1 : 0;
    }
    for (uint32_t i = 0; i < p->node_count; i++) {
        p->ns += p->node[i].cost_ns;
    }
    do {
        place_program now = start;
        sx_code code = SX_OK;
        for (uint32_t k = 0; k < count && code == SX_OK; k++) {
            code = plan_axis(&now, order[k], fuel);
        }
        if (code == SX_INPUT && tried > 0) {
            sx_ctx_reset_error(p->cx);
            continue;
        }
        SX_TRY(code);
        if (count > 0 && (tried++ == 0 || now.ns < p->ns)) {
            *p = now;
        }
    } while (next_order(order, count));
    return SX_OK;
}

/* ---- a graph ---- */

static sx_code add_node(place_program *p, const sx_graph *graph, uint32_t n, const sx_dim *image)
{
    const sx_node *from = &graph->node[n];
    const sx_places none = sx_places_none();
    sx_type type = number_type(&from->type, image);
    sx_type operand[SX_INPUTS_MAX];
    place_node node = {.value = n,
                       .op = from->op,
                       .given = sx_graph_places(graph, n),
                       .child_first = p->child_count,
                       .child_count = from->input_count,
                       .origin = n};
    for (uint32_t k = 0; k < from->input_count; k++) {
        uint32_t below = sx_graph_input(graph, from, k).i;
        operand[k] = p->value[below].type;
        SX_TRY(put_child(p, below));
    }
    SX_TRY(number_attr(p, from->op, sx_graph_attr(graph, from), operand, image, &node.attr));
    node.whole = node.attr;
    SX_TRY(work_ns(p, from->op, node.attr, operand, from->input_count, &type, &node.whole_ns));
    node.cost_ns = node.whole_ns;
    SX_TRY(put_value(p, &type, &none));
    return put_node(p, &node);
}

static void put_step(const place_program *p, uint32_t i, sx_plan *plan, double local_ns)
{
    const place_node *node = &p->node[i];
    const place_value *value = &p->value[node->value];
    sx_plan_step *step = &plan->step[i];
    *step = (sx_plan_step){.node = node->origin,
                           .kind = node->kind,
                           .axis = node->axis,
                           .from = node->from,
                           .to = node->to,
                           .places = value->places,
                           .local = value->type,
                           .ns = local_ns,
                           .attr = node->attr,
                           .operand_first = node->child_first,
                           .operand_count = node->child_count};
    if (node->kind != SX_PLAN_COMPUTE) {
        int64_t size = p->program->sharding->axis[node->axis].size;
        const sx_type *from = &p->value[p->child[node->child_first]].type;
        step->bytes = sent_bytes(node->kind, from, &value->type, size);
        step->ns = transfer_ns(p->device, node->kind, step->bytes, size);
        plan->collective_ns += step->ns;
        plan->collective_bytes += step->bytes;
        plan->collective_count += node->kind != SX_PLAN_KEEP ? 1 : 0;
    } else {
        plan->compute_ns += step->ns;
    }
}

sx_code sx_plan_make(sx_ctx *cx, const sx_graph *graph, const sx_device *device, uint64_t fuel,
                     sx_plan **plan)
{
    place_program p;
    sx_dim image[SX_SYMBOLS_MAX];
    SX_ASSERT(graph->sharding != NULL);
    SX_TRY(program_init(cx, graph, device, &p));
    SX_TRY(number_symbols(cx, graph, image));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        SX_TRY(add_node(&p, graph, n, image));
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        p.root[i] = graph->output[i].node.i;
    }
    SX_TRY(plan_axes(&p, fuel));
    sx_plan *made = SX_NEW(cx, sx_plan);
    if (made == NULL) {
        return cx->error.code;
    }
    *made = (sx_plan){
        .step_count = p.node_count, .operand = p.child, .output = p.root, .proven = p.proven};
    made->step = SX_NEW_ARRAY(cx, sx_plan_step, (size_t)p.node_count + 1);
    if (made->step == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < p.node_count; i++) {
        const place_node *node = &p.node[i];
        sx_type operand[SX_INPUTS_MAX];
        double local = 0;
        for (uint32_t k = 0; k < node->child_count; k++) {
            operand[k] = p.value[p.child[node->child_first + k]].type;
        }
        if (node->kind == SX_PLAN_COMPUTE) {
            SX_TRY(work_ns(&p, node->op, node->attr, operand, node->child_count,
                           &p.value[node->value].type, &local));
        }
        put_step(&p, i, made, local);
    }
    *plan = made;
    return SX_OK;
}

/* ---- an e-graph ---- */

static sx_code add_member(place_program *p, const sx_plan_space *space, uint32_t n,
                          const uint32_t *value_of, const sx_dim *image)
{
    const sx_tensors *t = space->t;
    const sx_eg_node *from = &t->eg.node[n];
    sx_type operand[SX_INPUTS_MAX];
    place_node node = {.value = value_of[sx_eg_find(&t->eg, n)],
                       .op = (sx_op)from->op,
                       .given = sx_places_none(),
                       .child_first = p->child_count,
                       .child_count = from->arity,
                       .origin = n,
                       .cost_ns = (double)space->cost[n] / 1000};
    for (uint32_t k = 0; k < from->arity; k++) {
        uint32_t below = value_of[sx_eg_child(&t->eg, n, k)];
        operand[k] = p->value[below].type;
        SX_TRY(put_child(p, below));
    }
    if (node.op == SX_OP_PARAMETER && from->attr < t->mesh->attr_count &&
        t->mesh->parameter_of[from->attr] != SX_EG_NONE) {
        node.given = sx_graph_places(t->mesh->program, t->mesh->parameter_of[from->attr]);
    }
    SX_TRY(number_attr(p, node.op, sx_tensors_attr(t, n), operand, image, &node.attr));
    node.whole = node.attr;
    SX_TRY(work_ns(p, node.op, node.attr, operand, from->arity, &p->value[node.value].type,
                   &node.whole_ns));
    return put_node(p, &node);
}

/* All classes and members, or those of a choice (`order`: its classes). */
static sx_code read_space(sx_ctx *cx, const sx_plan_space *space, const uint32_t *choice,
                          const uint32_t *order, uint32_t order_count, place_program *p)
{
    const sx_tensors *t = space->t;
    const sx_places none = sx_places_none();
    sx_dim image[SX_SYMBOLS_MAX];
    uint32_t *value_of = SX_NEW_ARRAY(cx, uint32_t, (size_t)t->eg.node_count + 1);
    if (value_of == NULL) {
        return cx->error.code;
    }
    SX_TRY(program_init(cx, t->mesh->program, space->device, p));
    SX_TRY(number_symbols(cx, p->program, image));
    for (uint32_t i = 0; i < (choice != NULL ? order_count : t->eg.node_count); i++) {
        uint32_t c = choice != NULL ? order[i] : i;
        if (sx_eg_is_class(&t->eg, c)) {
            sx_type type = number_type(sx_tensors_type(t, c), image);
            value_of[c] = p->value_count;
            SX_TRY(put_value(p, &type, &none));
        }
    }
    for (uint32_t i = 0; i < (choice != NULL ? order_count : t->eg.node_count); i++) {
        uint32_t n = choice != NULL ? choice[order[i]] : i;
        if (t->eg.node[n].dead == 0 && space->cost[n] != SX_COST_NEVER) {
            SX_TRY(add_member(p, space, n, value_of, image));
        }
    }
    for (uint32_t i = 0; i < p->program->output_count; i++) {
        p->root[i] = value_of[sx_eg_find(&t->eg, space->root[i])];
    }
    return SX_OK;
}

sx_code sx_plan_cost(sx_ctx *cx, const sx_plan_space *space, const uint32_t *choice, double *ns)
{
    SX_ASSERT(space->t->mesh != NULL && sx_eg_is_rebuilt(&space->t->eg));
    const sx_tensors *t = space->t;
    sx_walker walker;
    uint64_t total;
    place_program p;
    *ns = (double)INFINITY;
    SX_TRY(sx_walker_init(cx, &t->eg, &walker));
    if (!sx_walker_run(&walker, &t->eg, NULL, space->root, t->mesh->program->output_count, choice,
                       &total)) {
        return SX_OK;
    }
    SX_TRY(read_space(cx, space, choice, walker.order, walker.order_count, &p));
    SX_TRY(plan_axes(&p, space->fuel));
    *ns = p.ns;
    return SX_OK;
}

sx_code sx_plan_propose(sx_ctx *cx, const sx_plan_space *space, uint32_t axis, uint32_t *choice,
                        bool *found)
{
    SX_ASSERT(space->t->mesh != NULL && sx_eg_is_rebuilt(&space->t->eg));
    const sx_tensors *t = space->t;
    place_program p;
    *found = is_used(t->mesh->program->sharding, axis);
    if (!*found) {
        return SX_OK;
    }
    SX_TRY(read_space(cx, space, NULL, NULL, 0, &p));
    SX_TRY(plan_axis(&p, axis, space->fuel));
    for (uint32_t c = 0; c < t->eg.node_count; c++) {
        choice[c] = SX_EG_NONE;
    }
    for (uint32_t i = 0; i < p.node_count; i++) {
        const place_node *node = &p.node[i];
        uint32_t c = sx_eg_find(&t->eg, node->origin);
        if (node->kind == SX_PLAN_COMPUTE && choice[c] == SX_EG_NONE) {
            choice[c] = node->origin;
        }
    }
    sx_walker walker;
    uint64_t total;
    SX_TRY(sx_walker_init(cx, &t->eg, &walker));
    *found = sx_walker_run(&walker, &t->eg, NULL, space->root, t->mesh->program->output_count,
                           choice, &total);
    return SX_OK;
}
