#include "core/roll/roll.h"

#include <stdio.h>
#include <string.h>

#include "core/roll/cut.h"

typedef struct {
    sx_ctx *cx;
    const sx_roll *roll;
    const sx_graph *const *program;
    sx_graph *to;
    sx_node_id *parameter; /* of the whole, in `to` */
    sx_node_id **result;   /* per use */
    sx_idmap map;          /* of to->node by content */
} expander;

/* Operation, attribute and operands. */
typedef struct {
    sx_op op;
    sx_attr_id attr;
    const sx_node_id *input;
    uint32_t input_count;
} content;

static bool same_content(const void *self, uint32_t id, const void *probe)
{
    const sx_graph *graph = self;
    const content *c = probe;
    const sx_node *node = &graph->node[id];
    return node->op == c->op && node->attr.i == c->attr.i && node->input_count == c->input_count &&
           (c->input_count == 0 || memcmp(&graph->input[node->input_first], c->input,
                                          c->input_count * sizeof(*c->input)) == 0);
}

static sx_code add_once(expander *e, const sx_graph *from, const sx_node *node,
                        const sx_node_id *input, sx_node_id *id)
{
    content probe = {node->op, node->attr, input, node->input_count};
    uint64_t hash = sx_hash64((sx_span){(const uint8_t *)input, node->input_count * sizeof(*input)},
                              (uint64_t)node->op << 32 | node->attr.i);
    uint32_t twin = sx_idmap_find(&e->map, hash, same_content, e->to, &probe);
    if (twin != SX_IDMAP_NONE) {
        id->i = twin;
        return SX_OK;
    }
    SX_TRY(sx_roll_copy_node(e->cx, e->to, from, node, input, id));
    return sx_idmap_put(e->cx, &e->map, hash, id->i);
}

static sx_node_id value_of(const expander *e, sx_roll_value value)
{
    return value.use == SX_ROLL_PARAMETER ? e->parameter[value.index]
                                          : e->result[value.use][value.index];
}

static sx_code check_interface(sx_ctx *cx, const sx_roll_part *part, const sx_graph *program,
                               uint32_t number)
{
    const sx_graph *model = part->program;
    uint32_t count[2] = {0, 0};
    for (uint32_t i = 0; i < model->node_count; i++) {
        count[0] += model->node[i].op == SX_OP_PARAMETER ? 1 : 0;
    }
    for (uint32_t i = 0; i < program->node_count; i++) {
        count[1] += program->node[i].op == SX_OP_PARAMETER ? 1 : 0;
    }
    if (count[0] != count[1] || model->output_count != program->output_count ||
        model->attrs != program->attrs) {
        return SX_FAIL(cx, SX_INPUT, "part %u: %u parameters and %u outputs, not %u and %u", number,
                       count[1], program->output_count, count[0], model->output_count);
    }
    return SX_OK;
}

static sx_code expand_use(expander *e, uint32_t index)
{
    sx_ctx *cx = e->cx;
    const sx_roll_use *use = &e->roll->use[index];
    const sx_graph *from = e->program[use->part];
    sx_node_id *made = SX_NEW_ARRAY(cx, sx_node_id, (size_t)from->node_count + 1);
    e->result[index] = SX_NEW_ARRAY(cx, sx_node_id, (size_t)from->output_count + 1);
    if (made == NULL || e->result[index] == NULL) {
        return cx->error.code;
    }
    uint32_t parameters = 0;
    for (uint32_t i = 0; i < from->node_count; i++) {
        const sx_node *node = &from->node[i];
        sx_node_id input[SX_INPUTS_MAX] = {{0}};
        if (node->op == SX_OP_PARAMETER) {
            made[i] = value_of(e, use->argument[parameters++]);
            continue;
        }
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = made[sx_graph_input(from, node, k).i];
        }
        SX_TRY(add_once(e, from, node, input, &made[i]));
    }
    for (uint32_t i = 0; i < from->output_count; i++) {
        e->result[index][i] = made[from->output[i].node.i];
    }
    return SX_OK;
}

/* Nodes that no output needs go, parameters stay. */
static sx_code sweep(sx_ctx *cx, sx_graph *g)
{
    bool *live = SX_NEW_ARRAY(cx, bool, (size_t)g->node_count + 1);
    uint32_t *image = SX_NEW_ARRAY(cx, uint32_t, (size_t)g->node_count + 1);
    if (live == NULL || image == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < g->output_count; i++) {
        live[g->output[i].node.i] = true;
    }
    for (uint32_t n = g->node_count; n-- > 0;) {
        for (uint32_t k = 0; live[n] && k < g->node[n].input_count; k++) {
            live[sx_graph_input(g, &g->node[n], k).i] = true;
        }
    }
    uint32_t count = 0;
    uint32_t inputs = 0;
    for (uint32_t n = 0; n < g->node_count; n++) {
        sx_node node = g->node[n];
        if (!live[n] && node.op != SX_OP_PARAMETER) {
            continue;
        }
        uint32_t from = node.input_first;
        node.input_first = inputs;
        for (uint32_t k = 0; k < node.input_count; k++) {
            g->input[inputs++].i = image[g->input[from + k].i];
        }
        image[n] = count;
        g->node[count++] = node;
    }
    for (uint32_t i = 0; i < g->output_count; i++) {
        g->output[i].node.i = image[g->output[i].node.i];
    }
    g->node_count = count;
    g->input_count = inputs;
    return SX_OK;
}

static sx_code expander_init(expander *e, sx_span name)
{
    const sx_graph *from = e->roll->whole;
    e->result = SX_NEW_ARRAY(e->cx, sx_node_id *, (size_t)e->roll->use_count + 1);
    if (e->result == NULL) {
        return e->cx->error.code;
    }
    SX_TRY(sx_graph_make(e->cx, name, from->attrs, &e->to));
    return sx_roll_copy_symbols(e->cx, from, e->to);
}

sx_code sx_roll_expand(sx_ctx *cx, const sx_roll *roll, const sx_graph *const *program,
                       sx_graph **whole)
{
    const sx_graph *from = roll->whole;
    expander e = {.cx = cx, .roll = roll, .program = program};
    for (uint32_t p = 0; p < roll->part_count; p++) {
        SX_TRY(check_interface(cx, &roll->part[p], program[p], p));
    }
    SX_TRY(expander_init(&e, from->name));
    e.parameter = SX_NEW_ARRAY(cx, sx_node_id, (size_t)from->node_count + 1);
    if (e.parameter == NULL) {
        return cx->error.code;
    }
    uint32_t parameters = 0;
    for (uint32_t n = 0; n < from->node_count; n++) {
        if (from->node[n].op == SX_OP_PARAMETER) {
            SX_TRY(sx_roll_copy_node(cx, e.to, from, &from->node[n], NULL,
                                     &e.parameter[parameters++]));
        }
    }
    for (uint32_t u = 0; u < roll->use_count; u++) {
        SX_TRY(expand_use(&e, u));
    }
    for (uint32_t i = 0; i < from->output_count; i++) {
        SX_TRY(sx_graph_add_output(cx, e.to, from->output[i].name, value_of(&e, roll->output[i])));
    }
    SX_TRY(sweep(cx, e.to));
    *whole = e.to;
    return SX_OK;
}

/* ---- two uses as one ---- */

typedef struct {
    sx_ctx *cx;
    const sx_roll *roll;
    uint32_t use; /* the first of the two */
    /* values from outside, in order of first use: arguments of the joined use */
    sx_roll_value *given;
    uint32_t given_count;
    sx_roll_value *argument[2]; /* of the two, seen from inside */
    sx_roll_value *wanted;      /* values of the two that are read outside: {0 or 1, output} */
    uint32_t wanted_count;
    uint32_t *number[2]; /* per output of the two: its place in `wanted`, or UINT32_MAX */
} joiner;

static bool same_value(sx_roll_value a, sx_roll_value b)
{
    return a.use == b.use && a.index == b.index;
}

static uint32_t count_parameters(const sx_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        count += graph->node[i].op == SX_OP_PARAMETER ? 1 : 0;
    }
    return count;
}

static const sx_roll_part *part_of(const joiner *j, uint32_t side)
{
    return &j->roll->part[j->roll->use[j->use + side].part];
}

/* The joined program's parameters, and the arguments of the two uses inside it. */
static sx_code join_arguments(joiner *j, expander *e)
{
    sx_ctx *cx = j->cx;
    for (uint32_t side = 0; side < 2; side++) {
        const sx_graph *program = part_of(j, side)->program;
        const sx_roll_value *argument = j->roll->use[j->use + side].argument;
        uint32_t k = 0;
        for (uint32_t n = 0; n < program->node_count; n++) {
            if (program->node[n].op != SX_OP_PARAMETER) {
                continue;
            }
            sx_roll_value value = argument[k];
            uint32_t at = 0;
            if (value.use == j->use) {
                j->argument[side][k++] = (sx_roll_value){0, value.index};
                continue;
            }
            while (at < j->given_count && !same_value(j->given[at], value)) {
                at++;
            }
            if (at == j->given_count) {
                char name[32];
                sx_type type = program->node[n].type;
                bool weight = sx_graph_attr(program, &program->node[n])->weight != 0;
                (void)snprintf(name, sizeof(name), "i%u", at);
                SX_TRY(sx_build_parameter(cx, e->to, name, weight, &type, &e->parameter[at]));
                j->given[j->given_count++] = value;
            }
            j->argument[side][k++] = (sx_roll_value){SX_ROLL_PARAMETER, at};
        }
    }
    return SX_OK;
}

static void want(joiner *j, sx_roll_value value)
{
    if (value.use != j->use && value.use != j->use + 1) {
        return;
    }
    uint32_t side = value.use - j->use;
    if (j->number[side][value.index] == UINT32_MAX) {
        j->number[side][value.index] = j->wanted_count;
        j->wanted[j->wanted_count++] = (sx_roll_value){side, value.index};
    }
}

static void find_wanted(joiner *j)
{
    const sx_roll *roll = j->roll;
    for (uint32_t u = j->use + 2; u < roll->use_count; u++) {
        uint32_t count = count_parameters(roll->part[roll->use[u].part].program);
        for (uint32_t k = 0; k < count; k++) {
            want(j, roll->use[u].argument[k]);
        }
    }
    for (uint32_t i = 0; i < roll->whole->output_count; i++) {
        want(j, roll->output[i]);
    }
}

/* A value as the joined roll names it. */
static sx_roll_value renamed(const joiner *j, sx_roll_value value)
{
    if (value.use == SX_ROLL_PARAMETER || value.use < j->use) {
        return value;
    }
    if (value.use <= j->use + 1) {
        uint32_t number = j->number[value.use - j->use][value.index];
        SX_ASSERT(number != UINT32_MAX);
        return (sx_roll_value){j->use, number};
    }
    return (sx_roll_value){value.use - 1, value.index};
}

static sx_code make_inner(joiner *j, const sx_graph *program, const sx_roll **inner)
{
    sx_roll *roll = SX_NEW(j->cx, sx_roll);
    sx_roll_use *use = SX_NEW_ARRAY(j->cx, sx_roll_use, 2);
    sx_roll_part *part = SX_NEW_ARRAY(j->cx, sx_roll_part, j->roll->part_count);
    if (roll == NULL || use == NULL || part == NULL) {
        return j->cx->error.code;
    }
    for (uint32_t p = 0; p < j->roll->part_count; p++) {
        part[p] = j->roll->part[p];
        part[p].use_count = 0;
    }
    for (uint32_t side = 0; side < 2; side++) {
        use[side] = (sx_roll_use){j->roll->use[j->use + side].part, j->argument[side]};
        part[use[side].part].use_count++;
    }
    *roll = (sx_roll){.whole = program,
                      .part = part,
                      .part_count = j->roll->part_count,
                      .use = use,
                      .use_count = 2,
                      .output = j->wanted};
    *inner = roll;
    return SX_OK;
}

static sx_code make_outer(joiner *j, const sx_graph *program, const sx_roll **outer)
{
    sx_ctx *cx = j->cx;
    const sx_roll *from = j->roll;
    uint32_t outputs = from->whole->output_count;
    sx_roll *roll = SX_NEW(cx, sx_roll);
    sx_roll_use *use = SX_NEW_ARRAY(cx, sx_roll_use, from->use_count);
    sx_roll_part *part = SX_NEW_ARRAY(cx, sx_roll_part, (size_t)from->part_count + 1);
    sx_roll_value *output = SX_NEW_ARRAY(cx, sx_roll_value, (size_t)outputs + 1);
    if (roll == NULL || use == NULL || part == NULL || output == NULL) {
        return cx->error.code;
    }
    memcpy(part, from->part, from->part_count * sizeof(*part));
    part[from->part_count] = (sx_roll_part){.program = program, .use_count = 1};
    for (uint32_t side = 0; side < 2; side++) {
        sx_roll_part *old = &part[from->use[j->use + side].part];
        old->use_count--;
        part[from->part_count].node_count += old->node_count;
    }
    uint32_t count = 0;
    for (uint32_t u = 0; u < from->use_count; u++) {
        if (u == j->use) {
            use[count++] = (sx_roll_use){from->part_count, j->given};
        }
        if (u == j->use || u == j->use + 1) {
            continue;
        }
        uint32_t arguments = count_parameters(from->part[from->use[u].part].program);
        sx_roll_value *argument = SX_NEW_ARRAY(cx, sx_roll_value, (size_t)arguments + 1);
        if (argument == NULL) {
            return cx->error.code;
        }
        for (uint32_t k = 0; k < arguments; k++) {
            argument[k] = renamed(j, from->use[u].argument[k]);
        }
        use[count++] = (sx_roll_use){from->use[u].part, argument};
    }
    for (uint32_t i = 0; i < outputs; i++) {
        output[i] = renamed(j, from->output[i]);
    }
    *roll = (sx_roll){.whole = from->whole,
                      .part = part,
                      .part_count = from->part_count + 1,
                      .use = use,
                      .use_count = count,
                      .output = output};
    *outer = roll;
    return SX_OK;
}

static sx_code joiner_init(joiner *j, expander *e)
{
    uint32_t inputs = 0;
    uint32_t results = 0;
    for (uint32_t side = 0; side < 2; side++) {
        const sx_graph *program = part_of(j, side)->program;
        uint32_t count = count_parameters(program);
        j->argument[side] = SX_NEW_ARRAY(j->cx, sx_roll_value, (size_t)count + 1);
        j->number[side] = SX_NEW_ARRAY(j->cx, uint32_t, (size_t)program->output_count + 1);
        if (j->argument[side] == NULL || j->number[side] == NULL) {
            return j->cx->error.code;
        }
        memset(j->number[side], 0xFF, program->output_count * sizeof(uint32_t));
        inputs += count;
        results += program->output_count;
    }
    j->given = SX_NEW_ARRAY(j->cx, sx_roll_value, (size_t)inputs + 1);
    j->wanted = SX_NEW_ARRAY(j->cx, sx_roll_value, (size_t)results + 1);
    e->parameter = SX_NEW_ARRAY(j->cx, sx_node_id, (size_t)inputs + 1);
    bool made = j->given != NULL && j->wanted != NULL && e->parameter != NULL;
    return made ? SX_OK : j->cx->error.code;
}

sx_code sx_roll_join(sx_ctx *cx, const sx_roll *roll, uint32_t use, const sx_roll **outer,
                     const sx_roll **inner)
{
    SX_ASSERT(use + 1 < roll->use_count);
    joiner j = {.cx = cx, .roll = roll, .use = use};
    expander e = {.cx = cx, .roll = roll};
    const sx_graph **program = SX_NEW_ARRAY(cx, const sx_graph *, roll->part_count);
    if (program == NULL) {
        return cx->error.code;
    }
    for (uint32_t p = 0; p < roll->part_count; p++) {
        program[p] = roll->part[p].program;
    }
    e.program = program;
    SX_TRY(expander_init(&e, SX_SPAN_LITERAL("part")));
    SX_TRY(joiner_init(&j, &e));
    SX_TRY(join_arguments(&j, &e));
    find_wanted(&j);
    SX_TRY(make_inner(&j, e.to, inner));
    e.roll = *inner;
    for (uint32_t side = 0; side < 2; side++) {
        SX_TRY(expand_use(&e, side));
    }
    for (uint32_t i = 0; i < j.wanted_count; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "o%u", i);
        SX_TRY(sx_graph_add_output(cx, e.to, sx_span_of(name), value_of(&e, j.wanted[i])));
    }
    SX_TRY(sweep(cx, e.to));
    return make_outer(&j, e.to, outer);
}
