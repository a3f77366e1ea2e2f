/* The substitutions of TASO (tests/data/taso-rules.txt): for each, an e-graph grown from its left side alone
 * by the rules of this project is searched for its right side; where it is not there, both sides are grown
 * together. What was found once must stay found. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/rules/rules.h"

#define LINES_MAX 160u
#define OUTPUTS_MAX 2u
#define VARIABLES_MAX 32u
#define TRIES 20000u
#define LEFT_FLOOR 120u /* right sides found from the left side alone, at the least */
#define BOTH_FLOOR 133u /* equal in one way or the other */

typedef enum { FOUND_NONE, FOUND_BOTH, FOUND_LEFT } found;
static const char *const found_name[] = {"none", "both", "left"};

typedef struct {
    uint32_t id;
    found expected, actual;
    char condition[16];
    char text[400];
} line;
static line lines[LINES_MAX];
static uint32_t line_count;
static sx_buf heading;

static void read_lines(const char *path)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    sx_buf_init(&heading, 1 << 16);
    sx_test_read_file(path, &text);
    sx_buf_put_u8(&text, 0);
    for (char *at = (char *)text.ptr; *at != 0;) {
        char *end = strchr(at, '\n');
        ck_assert_ptr_nonnull(end);
        *end = 0;
        if (*at == '#') {
            sx_buf_print(&heading, "%s\n", at);
        } else {
            char status[16];
            line *l = &lines[line_count++];
            ck_assert_uint_le(line_count, LINES_MAX);
            ck_assert_int_eq(
                sscanf(at, "%u %15s %15s %399[^\n]", &l->id, status, l->condition, l->text), 4);
            l->expected = strcmp(status, "left") == 0   ? FOUND_LEFT
                          : strcmp(status, "both") == 0 ? FOUND_BOTH
                                                        : FOUND_NONE;
        }
        at = end + 1;
    }
    sx_buf_fini(&text);
}

/* ---- one side as a program ---- */

typedef struct {
    sx_ctx *cx;
    sx_graph *graph;
    const char *at;
    bool weights;        /* parameters are weights */
    const sx_type *type; /* of each variable */
    bool has[VARIABLES_MAX];
    sx_node_id variable[VARIABLES_MAX];
    int64_t cut;           /* of the last concatenation: extent of its first part */
    bool grouped, unequal; /* convolutions that break a condition */
    int64_t outputs;
} reader;

static bool build(reader *r, sx_node_id *id);

static bool add(reader *r, sx_op op, const sx_attr *attr, const sx_node_id *input, uint32_t count,
                sx_node_id *id)
{
    if (sx_graph_add(r->cx, r->graph, op, attr, input, count, id) == SX_OK) {
        return true;
    }
    sx_ctx_reset_error(r->cx);
    return false;
}

static const sx_type *type_of(const reader *r, sx_node_id id)
{
    return &sx_graph_node(r->graph, id)->type;
}

static bool add_convolution(reader *r, const sx_node_id *input, sx_node_id *id)
{
    const sx_type *x = type_of(r, input[0]);
    const sx_type *w = type_of(r, input[1]);
    sx_attr attr = {.present = sx_op_info_of(SX_OP_CONVOLUTION)->attrs};
    if (x->rank != 4 || w->rank != 4 || x->dim[1].scale % w->dim[1].scale != 0) {
        return false;
    }
    attr.groups = x->dim[1].scale / w->dim[1].scale;
    attr.stride = attr.low = attr.high = attr.dilation = (sx_ints){2, {1, 1}};
    r->grouped = r->grouped || attr.groups != 1;
    r->unequal = r->unequal || (r->outputs != 0 && r->outputs != w->dim[0].scale);
    r->outputs = w->dim[0].scale;
    return w->dim[0].scale % attr.groups == 0 && add(r, SX_OP_CONVOLUTION, &attr, input, 2, id);
}

static bool add_split(reader *r, int64_t axis, sx_node_id x, sx_node_id *id)
{
    const sx_type *type = type_of(r, x);
    sx_attr attr = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
    attr.start.count = attr.limit.count = attr.stride.count = type->rank;
    for (uint32_t d = 0; d < type->rank; d++) {
        attr.stride.v[d] = 1;
        attr.limit.v[d] = type->dim[d].scale;
    }
    if (*r->at++ != '[' || axis >= (int64_t)type->rank) {
        return false;
    }
    attr.start.v[axis] = *r->at == '0' ? 0 : r->cut;
    attr.limit.v[axis] = *r->at == '0' ? r->cut : attr.limit.v[axis];
    r->at += 2; /* the number and ']' */
    return add(r, SX_OP_SLICE, &attr, &x, 1, id);
}

static bool apply(reader *r, const char *name, size_t length, const sx_node_id *input,
                  sx_node_id *id)
{
    sx_attr dot = {.present =
                       SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) | SX_A(rhs_contract),
                   .lhs_contract = {1, {1}},
                   .rhs_contract = {1, {0}}};
    sx_attr none = {0};
    sx_attr axis = {.present = SX_A(axis), .axis = name[length - 1] - '0'};
    if (strncmp(name, "matmul", length) == 0) {
        return type_of(r, input[0])->rank == 2 && add(r, SX_OP_DOT_GENERAL, &dot, input, 2, id);
    }
    if (strncmp(name, "add", length) == 0) {
        return add(r, SX_OP_ADD, &none, input, 2, id);
    }
    if (strncmp(name, "mul", length) == 0) {
        return add(r, SX_OP_MULTIPLY, &none, input, 2, id);
    }
    if (strncmp(name, "relu", length) == 0) {
        return add(r, SX_OP_RELU, &none, input, 1, id);
    }
    if (strncmp(name, "concat", 6) == 0) {
        if (axis.axis < (int64_t)type_of(r, input[0])->rank) {
            r->cut = type_of(r, input[0])->dim[axis.axis].scale;
        }
        return add(r, SX_OP_CONCATENATE, &axis, input, 2, id);
    }
    if (strncmp(name, "split", 5) == 0) {
        return add_split(r, axis.axis, input[0], id);
    }
    ck_assert(strncmp(name, "conv2d", 6) == 0);
    return add_convolution(r, input, id) && (length == 6 || add(r, SX_OP_RELU, &none, id, 1, id));
}

static bool build_variable(reader *r, sx_node_id *id)
{
    uint32_t number = 0;
    for (r->at++; *r->at >= '0' && *r->at <= '9'; r->at++) {
        number = 10 * number + (uint32_t)(*r->at - '0');
    }
    ck_assert_uint_lt(number, VARIABLES_MAX);
    if (!r->has[number]) {
        char name[16];
        (void)snprintf(name, sizeof(name), "x%u", number);
        r->has[number] = true;
        ck_sx_ok(r->cx, sx_build_parameter(r->cx, r->graph, name, r->weights, &r->type[number],
                                           &r->variable[number]));
    }
    *id = r->variable[number];
    return true;
}

/* name(a, b), xN, splitK(a)[i] */
static bool build(reader *r, sx_node_id *id)
{
    if (*r->at == 'x') {
        return build_variable(r, id);
    }
    const char *name = r->at;
    size_t length = strcspn(name, "(");
    sx_node_id input[2];
    uint32_t count = 0;
    r->at += length;
    do {
        r->at += strspn(r->at, "(, ");
        ck_assert_uint_lt(count, 2);
        if (!build(r, &input[count++])) {
            return false;
        }
    } while (*r->at == ',');
    ck_assert_int_eq(*r->at, ')');
    r->at++;
    return apply(r, name, length, input, id);
}

/* Both sides of every output of the rule. */
typedef struct {
    sx_graph *side[2];
    sx_node_id output[2][OUTPUTS_MAX];
    uint32_t output_count;
} instance;

static bool build_sides(sx_ctx *cx, const line *l, const sx_type *type, bool weights, instance *in)
{
    reader r[2] = {{.cx = cx, .type = type, .weights = weights},
                   {.cx = cx, .type = type, .weights = weights}};
    ck_sx_ok(cx, sx_graph_make(cx, SX_SPAN_LITERAL("left"), NULL, &r[0].graph));
    ck_sx_ok(cx, sx_graph_make(cx, SX_SPAN_LITERAL("right"), r[0].graph->attrs, &r[1].graph));
    const char *at = l->text;
    in->output_count = 0;
    for (;;) {
        uint32_t k = in->output_count++;
        ck_assert_uint_lt(k, OUTPUTS_MAX);
        for (uint32_t s = 0; s < 2; s++) {
            r[s].at = at;
            if (!build(&r[s], &in->output[s][k])) {
                return false;
            }
            at = r[s].at;
            at += strspn(at, " =>");
        }
        if (!sx_type_equal(type_of(&r[0], in->output[0][k]), type_of(&r[1], in->output[1][k]))) {
            return false;
        }
        if (*at != ';') {
            break;
        }
        at += strspn(at, "; ");
    }
    in->side[0] = r[0].graph;
    in->side[1] = r[1].graph;
    return (strcmp(l->condition, "groups") != 0 || !r[0].grouped) &&
           (strcmp(l->condition, "outputs") != 0 || (!r[0].grouped && !r[0].unequal));
}

/* Shapes at random until both sides are well-typed; all equal in the end. */
static bool draw(sx_ctx *cx, sx_rng *rng, const line *l, bool weights, instance *in)
{
    sx_type type[VARIABLES_MAX];
    bool images = strstr(l->text, "conv2d") != NULL;
    for (uint32_t i = 0; i <= TRIES; i++) {
        sx_ctx scratch;
        sx_ctx_init(&scratch, (size_t)1 << 24);
        for (uint32_t v = 0; v < VARIABLES_MAX; v++) {
            type[v] = (sx_type){.dtype = SX_F32, .rank = images ? 4 : 2};
            for (uint32_t d = 0; d < 4; d++) {
                int64_t extent = i == TRIES ? 2 : 1 + (int64_t)sx_rng_below(rng, 3);
                type[v].dim[d] = sx_dim_of(d < 2 ? extent : 3);
            }
        }
        bool fits = build_sides(&scratch, l, type, weights, in);
        sx_ctx_fini(&scratch);
        if (fits) {
            return build_sides(cx, l, type, weights, in);
        }
    }
    return false;
}

/* ---- growing and searching ---- */

static void grow(sx_ctx *cx, sx_tensors *t, sx_eg_ruleset *set)
{
    sx_eg_limits limits = {
        .rounds = 20, .nodes = 6000, .matches = 4000, .fuel = 10000000, .bytes = (size_t)400 << 20};
    sx_eg_run run;
    ck_sx_ok(cx, sx_eg_saturate(cx, &t->eg, set, &limits, &run));
}

/* The e-node of each node of a program, if all are there. */
static bool look_up(const sx_tensors *t, const sx_graph *graph, uint32_t *node)
{
    bool all = true;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *n = &graph->node[i];
        uint32_t child[2] = {0, 0};
        bool has = true;
        for (uint32_t k = 0; k < n->input_count; k++) {
            child[k] = node[graph->input[n->input_first + k].i];
            has = has && child[k] != SX_EG_NONE;
            child[k] = child[k] == SX_EG_NONE ? 0 : sx_eg_find(&t->eg, child[k]);
        }
        node[i] = has ? sx_eg_lookup(&t->eg, (uint16_t)n->op, n->attr.i, child, n->input_count)
                      : SX_EG_NONE;
        all = all && node[i] != SX_EG_NONE;
    }
    return all;
}

static bool are_equal(const sx_tensors *t, const instance *in, const uint32_t *left,
                      const uint32_t *right)
{
    bool equal = true;
    for (uint32_t k = 0; k < in->output_count; k++) {
        equal = equal && sx_eg_find(&t->eg, left[in->output[0][k].i]) ==
                             sx_eg_find(&t->eg, right[in->output[1][k].i]);
    }
    return equal;
}

static found search(sx_ctx *cx, const instance *in)
{
    sx_tensors t;
    sx_eg_ruleset set;
    ck_sx_ok(cx, sx_tensors_init(cx, &t, in->side[0]));
    sx_eg_language language = sx_tensors_language(&t);
    ck_sx_ok(cx, sx_eg_ruleset_init(cx, &set, &language, sx_rules, SX_RULE_ROUNDS_COUNT));
    for (uint32_t r = 0; r < SX_RULE_ROUNDS_COUNT; r++) {
        set.rule[r].enabled = sx_rules[r].rule_class != SX_RULE_APPROXIMATE;
    }
    uint32_t *node[2];
    for (uint32_t s = 0; s < 2; s++) {
        node[s] = SX_NEW_ARRAY(cx, uint32_t, in->side[s]->node_count + 1);
        ck_assert_ptr_nonnull(node[s]);
    }
    ck_sx_ok(cx, sx_tensors_import(cx, &t, in->side[0], node[0]));
    grow(cx, &t, &set);
    if (look_up(&t, in->side[1], node[1]) && are_equal(&t, in, node[0], node[1])) {
        return FOUND_LEFT;
    }
    ck_sx_ok(cx, sx_tensors_import(cx, &t, in->side[1], node[1]));
    grow(cx, &t, &set);
    return are_equal(&t, in, node[0], node[1]) ? FOUND_BOTH : FOUND_NONE;
}

static void try_line(line *l, uint64_t seed)
{
    sx_rng rng = {seed + l->id};
    for (uint32_t weights = 0; weights < 2 && l->actual != FOUND_LEFT; weights++) {
        sx_ctx cx;
        instance in;
        sx_ctx_init(&cx, (size_t)1 << 30);
        ck_assert_msg(draw(&cx, &rng, l, weights != 0, &in), "rule %u: no shapes fit", l->id);
        found outcome = search(&cx, &in);
        l->actual = outcome > l->actual ? outcome : l->actual;
        sx_ctx_fini(&cx);
    }
}

static void write_lines(const char *path)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(heading.ptr, 1, heading.len, file), heading.len);
    for (uint32_t i = 0; i < line_count; i++) {
        (void)fprintf(file, "%u %s %s %s\n", lines[i].id, found_name[lines[i].actual],
                      lines[i].condition, lines[i].text);
    }
    (void)fclose(file);
}

START_TEST(test_substitutions_are_derivable)
{
    uint32_t count[3] = {0, 0, 0};
    uint64_t seed = 20; /* shapes must not change what is found from run to run */
    const char *path = SX_SOURCE_DIR "/tests/data/taso-rules.txt";
    const char *update = getenv("SX_GOLDEN");
    read_lines(path);
    ck_assert_uint_eq(line_count, 133);
    for (uint32_t i = 0; i < line_count; i++) {
        try_line(&lines[i], seed);
        count[lines[i].actual]++;
    }
    printf("%u found from the left side, %u with both, %u not\n", count[FOUND_LEFT],
           count[FOUND_BOTH], count[FOUND_NONE]);
    if (update != NULL && strcmp(update, "update") == 0) {
        write_lines(path);
    }
    for (uint32_t i = 0; i < line_count; i++) {
        bool kept = lines[i].actual >= lines[i].expected;
        ck_assert_msg(kept || update != NULL, "rule %u fell from %s to %s: %s", lines[i].id,
                      found_name[lines[i].expected], found_name[lines[i].actual], lines[i].text);
    }
    ck_assert_uint_ge(count[FOUND_LEFT], LEFT_FLOOR);
    ck_assert_uint_ge(count[FOUND_LEFT] + count[FOUND_BOTH], BOTH_FLOOR);
    sx_buf_fini(&heading);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.rules.taso");
    TCase *cases = tcase_create("taso");
    tcase_add_test(cases, test_substitutions_are_derivable);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
