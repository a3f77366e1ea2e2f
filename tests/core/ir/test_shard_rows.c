/* Placements through operations: every row against the interpreter, device by device; rows that are missing
 * are counted. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/shard.h"
#include "tests/lib/gen_graph.h"
#include "tests/lib/shard_sim.h"

#define COMBOS_MAX 150u /* placements of the operands tried for one node */
#define FAILED SX_PLACE_COUNT

/* An operation with its types, on an axis. */
typedef struct {
    sx_ctx *cx;
    sx_rng *rng;
    sx_shard_op op;
} trial;

static bool is_order(sx_shard_place place)
{
    return place == SX_PLACE_MAX || place == SX_PLACE_MIN;
}

/* Order is tried on numbers, everything else mod p. */
static sx_eval_mode mode_of(const trial *t, const sx_shard_row *row)
{
    bool order = is_order(row->result);
    for (uint32_t k = 0; k < t->op.operand_count; k++) {
        order = order || is_order(row->operand[k]);
    }
    return order ? SX_EVAL_F64 : SX_EVAL_MODP;
}

/* Can the operation be run on the parts at all, giving parts of the result? */
static bool runs(const trial *t, const sx_shard_row *row, sx_attr *attr, sx_type *operand,
                 sx_type *result)
{
    const sx_shard_op *op = &t->op;
    sx_ctx scratch;
    sx_type inferred;
    sx_shard_local_attr(op, row, attr);
    for (uint32_t k = 0; k < op->operand_count; k++) {
        operand[k] = op->operand[k];
        sx_shard_local_type(&operand[k], row->operand[k], op->size);
    }
    *result = *op->result;
    sx_shard_local_type(result, row->result, op->size);
    sx_ctx_init(&scratch, 1 << 20);
    sx_code code =
        sx_infer_type(&scratch, NULL, 0, op->op, attr, operand, op->operand_count, &inferred);
    sx_ctx_fini(&scratch);
    return code == SX_OK && sx_type_equal(&inferred, result);
}

static bool is_shift(sx_op op)
{
    return op == SX_OP_SHIFT_LEFT || op == SX_OP_SHIFT_RIGHT_ARITHMETIC ||
           op == SX_OP_SHIFT_RIGHT_LOGICAL;
}

/* Does it hold on one drawing? */
static bool holds_once(const trial *t, const sx_shard_row *row)
{
    const sx_shard_op *op = &t->op;
    uint32_t size = (uint32_t)op->size;
    sx_eval_mode mode = mode_of(t, row);
    sx_attr attr;
    sx_type operand[SX_INPUTS_MAX], result;
    sx_tensor whole[SX_INPUTS_MAX], expected, got;
    sx_sim split[SX_INPUTS_MAX], made;
    if (!runs(t, row, &attr, operand, &result)) {
        return false;
    }
    for (uint32_t k = 0; k < op->operand_count; k++) {
        bool dynamic = op->op == SX_OP_DYNAMIC_SLICE || op->op == SX_OP_DYNAMIC_UPDATE_SLICE;
        bool index = dynamic ? k >= (op->op == SX_OP_DYNAMIC_SLICE ? 1 : 2)
                             : k == 1 && (op->op == SX_OP_GATHER || op->op == SX_OP_SCATTER ||
                                          is_shift(op->op)); /* else all bits would be gone */
        whole[k] = sx_sim_random(t->cx, t->rng, mode, &op->operand[k], !index);
        sx_sim_split(t->cx, t->rng, mode, &whole[k], row->operand[k], size, &split[k]);
    }
    ck_sx_ok(t->cx, sx_node_eval(t->cx, op->op, op->attr, mode, whole, op->operand_count,
                                 op->result, &expected));
    for (uint32_t device = 0; device < size; device++) {
        sx_tensor local[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < op->operand_count; k++) {
            local[k] = split[k].part[device];
        }
        ck_sx_ok(t->cx, sx_node_eval(t->cx, op->op, &attr, mode, local, op->operand_count, &result,
                                     &made.part[device]));
    }
    return sx_sim_join(t->cx, mode, &made, op->result, row->result, size, &got) &&
           sx_sim_equal(&expected, &got);
}

static bool holds(const trial *t, const sx_shard_row *row, uint32_t times)
{
    bool all = true;
    for (uint32_t i = 0; i < times && all; i++) {
        all = holds_once(t, row);
    }
    return all;
}

static void print_row(const trial *t, const sx_shard_row *row, sx_buf *text)
{
    const sx_shard_op *op = &t->op;
    sx_buf_print(text, "%s on %lld:", sx_op_info_of(op->op)->name, (long long)op->size);
    for (uint32_t k = 0; k <= op->operand_count; k++) {
        bool last = k == op->operand_count;
        sx_buf_put_text(text, last ? " -> " : " ");
        sx_type_print(last ? op->result : &op->operand[k], NULL, 0, text);
        sx_buf_put_text(text, " ");
        sx_place_print(last ? row->result : row->operand[k], text);
    }
    sx_attr_print(op->attr, NULL, 0, text);
    sx_buf_put_u8(text, 0);
}

/* ---- operations drawn ---- */

typedef void visit(trial *t, void *self);

/* Every node of random static graphs as a trial on axes of 2 and 3 devices. */
static void draw(uint64_t seed, uint32_t graphs, uint32_t dtypes, visit *look, void *self)
{
    for (uint32_t i = 0; i < graphs; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 512 << 20);
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.symbols = 0;
        options.rank_max = 3;
        options.extent_max = 6;
        options.elements_max = 256;
        options.dtypes = dtypes;
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        for (uint32_t n = 0; n < graph->node_count; n++) {
            const sx_node *node = &graph->node[n];
            sx_type operand[SX_INPUTS_MAX];
            for (uint32_t k = 0; k < node->input_count; k++) {
                operand[k] = graph->node[sx_graph_input(graph, node, k).i].type;
            }
            trial t = {&cx,
                       &rng,
                       {.op = node->op,
                        .attr = sx_graph_attr(graph, node),
                        .operand = operand,
                        .result = &node->type,
                        .operand_count = node->input_count,
                        .size = 2 + n % 2}};
            if (node->op != SX_OP_PARAMETER && node->input_count > 0) {
                look(&t, self);
            }
        }
        sx_ctx_fini(&cx);
    }
}

static bool is_listed(const sx_shard_rows *rows, const sx_shard_row *row, uint32_t operand_count)
{
    bool found = false;
    for (uint32_t i = 0; i < rows->count; i++) {
        found = found || (rows->row[i].result == row->result &&
                          memcmp(rows->row[i].operand, row->operand, operand_count) == 0);
    }
    return found;
}

/* ---- every row holds ---- */

typedef struct {
    uint64_t seed;
    uint32_t by_op[SX_OP_COUNT];
    uint32_t by_result[SX_PLACE_COUNT];
} tally;

static void check_rows(trial *t, void *self)
{
    tally *count = self;
    sx_shard_rows rows;
    sx_shard_list(&t->op, &rows);
    for (uint32_t i = 0; i < rows.count; i++) {
        const sx_shard_row *row = &rows.row[i];
        bool again = false;
        for (uint32_t k = 0; k < i; k++) {
            again = again || (rows.row[k].result == row->result &&
                              memcmp(rows.row[k].operand, row->operand, t->op.operand_count) == 0);
        }
        sx_buf text;
        sx_buf_init(&text, 1 << 16);
        if (again || (t->op.op != SX_OP_FUSED && !holds(t, row, 1))) {
            print_row(t, row, &text);
            ck_abort_msg("seed %llu: %s: %s", (unsigned long long)count->seed,
                         again ? "listed twice" : "does not hold", (const char *)text.ptr);
        }
        count->by_op[t->op.op]++;
        count->by_result[row->result]++;
        sx_buf_fini(&text);
    }
}

/* The first operation with ten rows or fewer, or SX_OP_COUNT. */
static sx_op seldom(const tally *count)
{
    for (uint32_t op = 0; op < SX_OP_COUNT; op++) {
        bool leaf = sx_op_info_of((sx_op)op)->input_max == 0 || op == SX_OP_FUSED ||
                    sx_op_info_of((sx_op)op)->op_class == SX_OPCLASS_REGION ||
                    sx_op_info_of((sx_op)op)->op_class == SX_OPCLASS_COLLECTIVE;
        if (!leaf && count->by_op[op] <= 10) {
            return (sx_op)op;
        }
    }
    return SX_OP_COUNT;
}

/* Which operations are drawn is chance: it goes on until each was there, within a limit. */
START_TEST(test_rows_hold)
{
    tally count = {.seed = sx_test_seed()};
    draw(count.seed, 150, SX_GEN_ALL_DTYPES, check_rows, &count);
    draw(count.seed + 1000, 150, 1u << SX_F32, check_rows, &count);
    for (uint32_t more = 1; more <= 6 && seldom(&count) != SX_OP_COUNT; more++) {
        draw(count.seed + 1000 + 1000 * more, 50, SX_GEN_ALL_DTYPES, check_rows, &count);
    }
    sx_op op = seldom(&count);
    if (op != SX_OP_COUNT) {
        ck_abort_msg("%s: %u rows", sx_op_info_of(op)->name, count.by_op[op]);
    }
    for (uint32_t p = 0; p < SX_PLACE_COUNT; p++) {
        ck_assert_msg((p > 3 && p < SX_PLACE_R) || count.by_result[p] > 0, "placement %u: %u rows",
                      p, count.by_result[p]);
    }
}
END_TEST

/* ---- no row is missing but those known ---- */

/* What brute force finds beyond the rows, by operation: true, and left out for a reason. */
static const struct {
    sx_op op;
    bool integers;
    const char *why;
} beyond[] = {
    {SX_OP_CONVERT, false, "a sum of narrower floats would round each part"},
    {SX_OP_COMPARE, false, "residues drawn are never equal"},
    {SX_OP_RSQRT, false, "of zeros of two signs either may be the least"},
    {SX_OP_NEGATE, true, "the least integer is its own negative"},
};

typedef struct {
    uint64_t seed;
    uint32_t tried, found;
    sx_buf text;
} hunt;

static bool is_known(const trial *t)
{
    bool integers = sx_dtype_class_of(t->op.result->dtype) == SX_CLASS_INT;
    bool known = false;
    for (size_t i = 0; i < SX_COUNT(beyond); i++) {
        known = known || (t->op.op == beyond[i].op && (integers || !beyond[i].integers));
    }
    /* what a window reads beyond its piece may be padding at every place */
    for (uint32_t d = 0; d < t->op.attr->low.count && t->op.op != SX_OP_PAD; d++) {
        known = known || t->op.attr->low.v[d] + t->op.attr->high.v[d] > 0;
    }
    return known;
}

/* Rows that follow from another by the closure: an operand that is R would do as well. */
static bool follows(const trial *t, const sx_shard_rows *rows, const sx_shard_row *row)
{
    bool any = false;
    for (uint32_t i = 0; i < rows->count; i++) {
        bool weaker = rows->row[i].result == row->result || rows->row[i].result == SX_PLACE_R;
        for (uint32_t k = 0; k < t->op.operand_count; k++) {
            weaker = weaker &&
                     (rows->row[i].operand[k] == row->operand[k] || row->operand[k] == SX_PLACE_R);
        }
        any = any || weaker;
    }
    return any;
}

static sx_shard_place draw_place(sx_rng *rng, const sx_type *type, int64_t size)
{
    uint32_t possible = sx_shard_possible(type, size, NULL);
    for (;;) {
        sx_shard_place place = (sx_shard_place)sx_rng_below(rng, SX_PLACE_COUNT);
        if ((possible & SX_PLACE_BIT(place)) != 0) {
            return place;
        }
    }
}

/* On few elements and extents of 1 much holds by chance. */
static bool is_degenerate(const trial *t)
{
    const sx_attr *attr = t->op.attr;
    bool poor = sx_tensor_elements(t->op.result) < 12;
    bool padded = t->op.op != SX_OP_PAD;
    for (uint32_t d = 0; d < attr->low.count; d++) {
        padded = padded || attr->low.v[d] + attr->high.v[d] + attr->interior.v[d] > 0;
    }
    poor = poor || !padded;
    uint32_t box = t->op.op == SX_OP_DYNAMIC_UPDATE_SLICE ? 1 : t->op.operand_count;
    bool dynamic = sx_op_info_of(t->op.op)->op_class == SX_OPCLASS_DYNAMIC;
    for (uint32_t k = 0; dynamic && k < attr->dims.count; k++) { /* no start but 0 */
        int64_t d = attr->dims.v[k];
        const sx_type *of = box == 1 ? &t->op.operand[1] : t->op.result;
        poor = poor || of->dim[d].scale == t->op.operand[0].dim[d].scale;
    }
    for (uint32_t k = 0; k <= t->op.operand_count; k++) {
        const sx_type *type = k == t->op.operand_count ? t->op.result : &t->op.operand[k];
        for (uint32_t d = 0; d < type->rank; d++) {
            poor = poor || type->dim[d].scale < 2;
        }
    }
    return poor;
}

static void hunt_rows(trial *t, void *self)
{
    hunt *h = self;
    sx_shard_rows rows;
    if (t->op.op == SX_OP_FUSED || t->op.operand_count > 5 || is_degenerate(t)) {
        return;
    }
    sx_shard_list(&t->op, &rows);
    for (uint32_t c = 0; c < COMBOS_MAX; c++) {
        sx_shard_row row = {.result = draw_place(t->rng, t->op.result, t->op.size)};
        bool order = is_order(row.result);
        for (uint32_t k = 0; k < t->op.operand_count; k++) {
            row.operand[k] = draw_place(t->rng, &t->op.operand[k], t->op.size);
            order = order || is_order(row.operand[k]);
        }
        bool exact = !order || sx_op_is_elementwise(t->op.op) || t->op.op == SX_OP_REDUCE;
        if (!exact || is_listed(&rows, &row, t->op.operand_count) || follows(t, &rows, &row)) {
            continue;
        }
        h->tried++;
        if (holds(t, &row, 30) && !is_known(t)) {
            h->found++;
            print_row(t, &row, &h->text);
            h->text.len--;
            sx_buf_put_text(&h->text, "\n");
        }
    }
}

START_TEST(test_none_is_missing)
{
    hunt h = {.seed = 20261121}; /* always the same: what holds by chance is no row */
    sx_buf_init(&h.text, 4 << 20);
    draw(h.seed, 60, 1u << SX_F32, hunt_rows, &h);
    sx_buf_put_u8(&h.text, 0);
    ck_assert_uint_gt(h.tried, 1000);
    ck_assert_msg(h.found == 0, "seed %llu: %u rows beyond the table:\n%.3000s",
                  (unsigned long long)h.seed, h.found, (const char *)h.text.ptr);
    sx_buf_fini(&h.text);
}
END_TEST

/* ---- an entry that is wrong is seen ---- */

static const struct {
    sx_op op;
    sx_shard_place operand[3], result;
} wrong[] = {
    {SX_OP_EXP, {SX_PLACE_SUM}, SX_PLACE_SUM},
    {SX_OP_RELU, {SX_PLACE_SUM}, SX_PLACE_SUM},
    {SX_OP_NEGATE, {SX_PLACE_MAX}, SX_PLACE_MAX},
    {SX_OP_ABS, {SX_PLACE_MAX}, SX_PLACE_MAX},
    {SX_OP_ADD, {SX_PLACE_SUM, SX_PLACE_R}, SX_PLACE_SUM},
    {SX_OP_ADD, {SX_PLACE_MAX, SX_PLACE_MAX}, SX_PLACE_MAX},
    {SX_OP_SUBTRACT, {SX_PLACE_R, SX_PLACE_MAX}, SX_PLACE_MAX},
    {SX_OP_MULTIPLY, {SX_PLACE_SUM, SX_PLACE_SUM}, SX_PLACE_SUM},
    {SX_OP_MULTIPLY, {SX_PLACE_MAX, SX_PLACE_R}, SX_PLACE_MAX},
    {SX_OP_DIVIDE, {SX_PLACE_R, SX_PLACE_SUM}, SX_PLACE_SUM},
    {SX_OP_SHIFT_RIGHT_ARITHMETIC, {SX_PLACE_R, SX_PLACE_MAX}, SX_PLACE_MAX},
    {SX_OP_SHIFT_LEFT, {SX_PLACE_MAX, SX_PLACE_R}, SX_PLACE_MAX},
    {SX_OP_MAXIMUM, {SX_PLACE_MIN, SX_PLACE_MIN}, SX_PLACE_MIN},
    {SX_OP_MINIMUM, {SX_PLACE_SUM, SX_PLACE_SUM}, SX_PLACE_SUM},
    {SX_OP_DOT_GENERAL, {SX_PLACE_SUM, SX_PLACE_SUM}, SX_PLACE_SUM},
    {SX_OP_DOT_GENERAL, {SX_PLACE_SUM, SX_PLACE_R}, SX_PLACE_R},
    {SX_OP_CONVOLUTION, {SX_PLACE_SUM, SX_PLACE_SUM}, SX_PLACE_SUM},
    {SX_OP_SOFTMAX, {SX_PLACE_SUM}, SX_PLACE_SUM},
    {SX_OP_TRANSPOSE, {SX_PLACE_SUM}, SX_PLACE_R},
    {SX_OP_CONCATENATE, {SX_PLACE_MAX, SX_PLACE_MAX}, SX_PLACE_MIN},
    {SX_OP_SCATTER, {SX_PLACE_SUM, SX_PLACE_SUM, SX_PLACE_R}, SX_PLACE_SUM},
    {SX_OP_DYNAMIC_SLICE, {SX_PLACE_SUM, SX_PLACE_SUM, SX_PLACE_R}, SX_PLACE_SUM},
};

static void check_wrong(trial *t, void *self)
{
    uint32_t *seen = self;
    for (size_t i = 0; i < SX_COUNT(wrong); i++) {
        uint32_t arity = t->op.operand_count;
        if (wrong[i].op != t->op.op || arity > 3 || t->op.result->dtype == SX_BOOL ||
            is_degenerate(t) || (t->op.op == SX_OP_CONCATENATE && arity != 2)) {
            continue;
        }
        sx_shard_rows rows;
        sx_shard_row row = {.result = wrong[i].result};
        memcpy(row.operand, wrong[i].operand, arity);
        sx_shard_list(&t->op, &rows);
        ck_assert(!is_listed(&rows, &row, arity));
        ck_assert_msg(!holds(t, &row, 30), "wrong entry %zu is not seen", i);
        seen[i]++;
    }
}

START_TEST(test_wrong_entries_are_seen)
{
    uint32_t seen[SX_COUNT(wrong)] = {0};
    uint64_t seed = sx_test_seed();
    size_t tried = 0;
    for (uint32_t i = 0; i < 20 && tried < SX_COUNT(wrong); i++) {
        draw(seed + 1000 * i, 60, 1u << SX_F32, check_wrong, seen);
        for (tried = 0; tried < SX_COUNT(wrong) && seen[tried] > 0;) {
            tried++;
        }
    }
    ck_assert_msg(tried == SX_COUNT(wrong), "wrong entry %zu was not tried", tried);
}
END_TEST

/* ---- whole programs: placements spread from the parameters, every device runs its part ---- */

typedef struct {
    sx_sim sim;
    sx_tensor whole;
    sx_shard_place place;
} value;

/* A row whose operands can be had from what the values are; -1: none but all R. */
static int pick_row(sx_rng *rng, const sx_shard_op *op, const sx_shard_rows *rows,
                    const value *held, const sx_node_id *input)
{
    int found = -1;
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        bool met = !is_order(rows->row[i].result); /* residues have no order that + keeps */
        for (uint32_t k = 0; k < op->operand_count; k++) {
            uint32_t set = sx_shard_closure(SX_PLACE_BIT(held[input[k].i].place),
                                            sx_shard_possible(&op->operand[k], op->size, NULL));
            met = met && (set & SX_PLACE_BIT(rows->row[i].operand[k])) != 0 &&
                  !is_order(rows->row[i].operand[k]);
        }
        if (met && sx_rng_below(rng, ++count) == 0) {
            found = (int)i;
        }
    }
    return found;
}

static void run_node(sx_ctx *cx, sx_rng *rng, const sx_graph *graph, uint32_t n, uint32_t size,
                     value *held, uint32_t *spread)
{
    const sx_node *node = &graph->node[n];
    const sx_node_id *input = node->input_count > 0 ? &graph->input[node->input_first] : NULL;
    const sx_attr *attr = sx_graph_attr(graph, node);
    const sx_eval_mode mode = SX_EVAL_MODP;
    sx_type operand[SX_INPUTS_MAX];
    sx_tensor whole[SX_INPUTS_MAX], joined;
    sx_shard_rows rows;
    for (uint32_t k = 0; k < node->input_count; k++) {
        operand[k] = graph->node[input[k].i].type;
        whole[k] = held[input[k].i].whole;
    }
    value *v = &held[n];
    ck_sx_ok(cx, sx_node_eval(cx, node->op, attr, mode, whole, node->input_count, &node->type,
                              &v->whole));
    const sx_shard_op op = {node->op, attr, operand, &node->type, node->input_count, size, NULL};
    sx_shard_list(&op, &rows);
    int picked = pick_row(rng, &op, &rows, held, input);
    v->place = SX_PLACE_R;
    if (picked < 0 || node->input_count == 0) { /* communication: everybody gets all */
        sx_sim_split(cx, rng, mode, &v->whole, SX_PLACE_R, size, &v->sim);
        return;
    }
    const sx_shard_row *row = &rows.row[picked];
    sx_attr local;
    sx_type result = node->type;
    sx_sim from[SX_INPUTS_MAX];
    sx_shard_local_attr(&op, row, &local);
    sx_shard_local_type(&result, row->result, size);
    for (uint32_t k = 0; k < node->input_count; k++) {
        const value *below = &held[input[k].i];
        from[k] = below->sim;
        if (below->place != row->operand[k]) {
            sx_sim_weaken(cx, &below->sim, row->operand[k], size, &from[k]);
        }
    }
    for (uint32_t device = 0; device < size; device++) {
        for (uint32_t k = 0; k < node->input_count; k++) {
            whole[k] = from[k].part[device];
        }
        ck_sx_ok(cx, sx_node_eval(cx, node->op, &local, mode, whole, node->input_count, &result,
                                  &v->sim.part[device]));
    }
    v->place = row->result;
    *spread += v->place != SX_PLACE_R ? 1 : 0;
    ck_assert_msg(sx_sim_join(cx, mode, &v->sim, &node->type, v->place, size, &joined) &&
                      sx_sim_equal(&joined, &v->whole),
                  "node %u: %s", n, sx_op_info_of(node->op)->name);
}

START_TEST(test_programs)
{
    uint64_t seed = sx_test_seed();
    uint32_t spread = 0;
    for (uint32_t i = 0; i < 150; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 512 << 20);
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.symbols = 0;
        options.extent_max = 6;
        options.elements_max = 512;
        sx_bits_drop(&options.ops, SX_OP_FUSED);
        sx_graph *graph = sx_gen_graph(&cx, &rng, &options);
        value *held = SX_NEW_ARRAY(&cx, value, graph->node_count);
        uint32_t size = 2 + i % 2;
        ck_assert_ptr_nonnull(held);
        for (uint32_t n = 0; n < graph->node_count; n++) {
            const sx_type *type = &graph->node[n].type;
            if (graph->node[n].op != SX_OP_PARAMETER) {
                run_node(&cx, &rng, graph, n, size, held, &spread);
                continue;
            }
            bool index = sx_dtype_class_of(type->dtype) == SX_CLASS_INT;
            held[n].whole = sx_sim_random(&cx, &rng, SX_EVAL_MODP, type, !index);
            do {
                held[n].place = draw_place(&rng, type, size);
            } while (is_order(held[n].place) || (index && held[n].place == SX_PLACE_SUM));
            sx_sim_split(&cx, &rng, SX_EVAL_MODP, &held[n].whole, held[n].place, size,
                         &held[n].sim);
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(spread, 300);
}
END_TEST

/* More is possible for the operands, more is for the result. */
static void check_monotone(trial *t, void *self)
{
    (void)self;
    uint32_t small[SX_INPUTS_MAX], large[SX_INPUTS_MAX];
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t k = 0; k < t->op.operand_count; k++) {
            uint32_t possible = sx_shard_possible(&t->op.operand[k], t->op.size, NULL);
            small[k] = (uint32_t)sx_rng_next(t->rng) & possible;
            large[k] = small[k] | ((uint32_t)sx_rng_next(t->rng) & possible);
            ck_assert_uint_eq(sx_shard_closure(large[k], possible) & ~possible, 0);
        }
        uint32_t a = sx_shard_transfer(&t->op, small);
        uint32_t b = sx_shard_transfer(&t->op, large);
        ck_assert_uint_eq(a & ~b, 0);
        ck_assert_uint_eq(b & ~sx_shard_possible(t->op.result, t->op.size, NULL), 0);
    }
}

START_TEST(test_monotone)
{
    draw(sx_test_seed(), 100, SX_GEN_ALL_DTYPES, check_monotone, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/shard_rows");
    TCase *tcase = tcase_create("rows");
    tcase_set_timeout(tcase, 400);
    tcase_add_test(tcase, test_rows_hold);
    tcase_add_test(tcase, test_none_is_missing);
    tcase_add_test(tcase, test_wrong_entries_are_seen);
    tcase_add_test(tcase, test_programs);
    tcase_add_test(tcase, test_monotone);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
