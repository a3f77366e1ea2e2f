/* Statements and schedules of fused nodes: legal under every plan that the search returns; with a fault put
 * in, refused with the dependence that is violated. */
#include "tests/core/loop/nested.h"

#include "core/poly/poly.h"
#include "core/search/search.h"

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};

static node row_node(sx_ctx *cx, sx_op op, int64_t rows, int64_t length, int64_t axis)
{
    sx_type x[3] = {TYPE(SX_F32, rows, length), TYPE(SX_F32, length), TYPE(SX_F32, length)};
    sx_attr attr = {.present = SX_A(axis), .axis = axis, .eps = 1e-5};
    attr.present |= op == SX_OP_LAYER_NORM ? SX_A(eps) : 0;
    return lift(cx, op, &attr, x, op == SX_OP_LAYER_NORM ? 3 : 1);
}

static node dot_node(sx_ctx *cx, int64_t m, int64_t k, int64_t n, sx_op function)
{
    sx_type x[2] = {TYPE(SX_F32, m, k), TYPE(SX_F32, k, n)};
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    node d = lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    d = with_tensor(cx, SX_OP_ADD, &d, TYPE(SX_F32, n));
    return unary(cx, function, &d);
}

static node map_node(sx_ctx *cx)
{
    sx_type x = TYPE(SX_F32, 30, 7, 20);
    sx_attr none = {.present = 0};
    node n = lift(cx, SX_OP_GELU, &none, &x, 1);
    return with_tensor(cx, SX_OP_MULTIPLY, &n, TYPE(SX_F32, 20));
}

/* Attention, its scores computed inside or read. */
static node online_node(sx_ctx *cx, bool inside)
{
    sx_type x[2] = {TYPE(SX_F32, 3, 40, 100), TYPE(SX_F32, 3, 100, 21)};
    sx_type qk[2] = {TYPE(SX_F32, 3, 40, 9), TYPE(SX_F32, 3, 100, 9)};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_ONLINE_DOT)->attrs, .form = 1};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {2}};
    attr.rhs_contract = (sx_ints){1, {1}};
    node n = lift(cx, SX_OP_ONLINE_DOT, &attr, x, 2);
    attr.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs;
    attr.form = 0;
    attr.rhs_contract = (sx_ints){1, {2}};
    node scores = lift(cx, SX_OP_DOT_GENERAL, &attr, qk, 2);
    return inside ? inlined(cx, &n, 0, &scores) : n;
}

static sx_search_result plans_of(sx_ctx *cx, const node *n, const char *target)
{
    const sx_device *device;
    sx_search_result result;
    ck_sx_ok(cx, sx_device_find(cx, sx_span_of(target), &device));
    ck_sx_ok(cx, sx_search_kernel(cx, analysis_of(cx, n), device, true, SX_SEARCH_KEEP, &result));
    ck_assert_uint_gt(result.best_count, 0);
    return result;
}

/* The gradient of keys, or that of values. */
static node nested(sx_ctx *cx, bool of_keys)
{
    nested_shape s = nested_gradient(2, 20, 90, 8, true);
    s.extent[N_AROUND] = 2;
    s.products = of_keys ? 2 : 1;
    return nested_node(cx, &s);
}

static node make(sx_ctx *cx, uint32_t which)
{
    switch (which) {
    case 0: return map_node(cx);
    case 1: return row_node(cx, SX_OP_SOFTMAX, 12, 33, 1);
    case 2: return row_node(cx, SX_OP_SOFTMAX, 12, 33, 0);
    case 3: return row_node(cx, SX_OP_LAYER_NORM, 5, 100, 1);
    case 4: return row_node(cx, SX_OP_LOG_SOFTMAX, 1, 1, 1);
    case 5: return dot_node(cx, 64, 128, 96, SX_OP_RELU);
    case 6: return dot_node(cx, 1, 30, 5, SX_OP_GELU);
    case 7: return dot_node(cx, 31, 1, 17, SX_OP_TANH);
    case 8:
    case 9: return online_node(cx, which == 8);
    default: return nested(cx, which == 10);
    }
}
#define NODES 12

START_TEST(test_plans_are_legal)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = make(&cx, (uint32_t)_i / 2);
    sx_search_result plans = plans_of(&cx, &n, targets[_i % 2]);
    for (uint32_t p = 0; p < plans.best_count && p < 3; p++) {
        sx_poly_verdict verdict;
        ck_sx_ok(&cx,
                 sx_poly_check_fused(&cx, analysis_of(&cx, &n), &plans.best[p].schedule, &verdict));
        ck_assert_msg(verdict.legal && strncmp(verdict.text, "legal: ", 7) == 0, "plan %u: %s", p,
                      verdict.text);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* The statements and the schedule of a node under the best plan. */
static sx_poly_program *program_of(sx_ctx *cx, const node *n)
{
    sx_search_result plans = plans_of(cx, n, "x86-64-v3");
    sx_poly_program *program = SX_NEW(cx, sx_poly_program);
    ck_assert_ptr_nonnull(program);
    ck_sx_ok(cx, sx_poly_of_fused(cx, analysis_of(cx, n), &plans.best[0].schedule, program));
    return program;
}

static void refused(sx_ctx *cx, const sx_poly_program *program, const char *text)
{
    sx_poly_verdict verdict;
    ck_sx_ok(cx, sx_poly_legal(cx, program, &verdict));
    ck_assert_msg(!verdict.legal, "accepted: %s", verdict.text);
    ck_assert_msg(strstr(verdict.text, text) != NULL && strstr(verdict.text, "->") != NULL, "%s",
                  verdict.text);
}

static bool is_constant(const sx_affine *form)
{
    bool constant = form->div <= 1;
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        constant = constant && form->coef[d] == 0;
    }
    return constant;
}

/* The first time dimension that is a number in every statement, and not the same one. */
static uint32_t sequence_dim(const sx_poly_program *program)
{
    for (uint32_t t = 0; t < program->schedule_dims; t++) {
        bool constant = true, differs = false;
        for (uint32_t s = 0; s < program->statement_count; s++) {
            const sx_affine *form = &program->statement[s].schedule[t];
            constant = constant && is_constant(form);
            differs = differs || form->constant != program->statement[0].schedule[t].constant;
        }
        if (constant && differs) {
            return t;
        }
    }
    ck_abort_msg("no sequence");
    return 0;
}

/* The time dimension that is the reduced dimension `d` of the statement. */
static uint32_t dim_time(const sx_poly_program *program, const sx_poly_statement *statement,
                         uint32_t d)
{
    for (uint32_t t = 0; t < program->schedule_dims; t++) {
        if (statement->schedule[t].coef[d] == 1 && statement->schedule[t].div <= 1) {
            return t;
        }
    }
    ck_abort_msg("dimension %u is not in the schedule", d);
    return 0;
}

static sx_poly_statement *find(sx_poly_program *program, char kind)
{
    for (uint32_t s = 0; s < program->statement_count; s++) {
        if (program->statement[s].name[0] == kind) {
            return &program->statement[s];
        }
    }
    ck_abort_msg("no statement %c", kind);
    return NULL;
}

/* The last dimension is reduced: softmax, layer_norm, the sum of a contraction. */
static const uint32_t reducing[] = {1, 3, 5};
START_TEST(test_parallel_reduction)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = make(&cx, reducing[_i]);
    sx_poly_program *program = program_of(&cx, &n);
    sx_poly_statement *update = find(program, 'U');
    ck_assert(update->reduction);
    program->parallel |= 1u << dim_time(program, update, update->rank - 1);
    refused(&cx, program, "between threads");
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_epilogue_before_sum)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = make(&cx, 5);
    sx_poly_program *program = program_of(&cx, &n);
    uint32_t t = sequence_dim(program);
    find(program, 'E')->schedule[t].constant = -1;
    refused(&cx, program, "violated dependence");
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_passes_exchanged)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = make(&cx, 1 + 2 * (uint32_t)_i); /* softmax, layer_norm */
    sx_poly_program *program = program_of(&cx, &n);
    uint32_t t = sequence_dim(program);
    for (uint32_t s = 0; s < program->statement_count; s++) {
        int64_t *level = &program->statement[s].schedule[t].constant;
        *level = *level == 0 ? 1 : *level == 1 ? 0 : *level;
    }
    refused(&cx, program, "violated dependence");
    sx_ctx_fini(&cx);
}
END_TEST

/* The sum of a contraction is one chain in ascending order: no licence to turn it round. Rows have one. */
START_TEST(test_reversed_sum)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = make(&cx, 5);
    sx_poly_program *program = program_of(&cx, &n);
    sx_poly_statement *update = find(program, 'U');
    uint32_t d = update->rank - 1;
    update->schedule[dim_time(program, update, d)].coef[d] = -1;
    refused(&cx, program, "violated dependence");
    sx_ctx_fini(&cx);
}
END_TEST

/* Statements of an online sum, and of a nested contraction: keys on several threads, weights used before they are made,
 * keys in descending order, the second products made behind what reads them. */
START_TEST(test_online_faults)
{
    static const struct {
        char kind;
        uint32_t number, time;
    } fault[] = {{'U', 4, 6}, {'E', 2, 4}, {'U', 4, 6}, {'U', 7, 4}};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    uint32_t which = (uint32_t)_i % SX_COUNT(fault);
    node n = make(&cx, _i < 3 ? 8 : 10);
    sx_poly_program *program = program_of(&cx, &n);
    char name[8];
    (void)snprintf(name, sizeof(name), "%c%u", fault[which].kind, fault[which].number);
    sx_poly_statement *statement = NULL;
    for (uint32_t s = 0; s < program->statement_count; s++) {
        bool found = strcmp(program->statement[s].name, name) == 0;
        statement = found ? &program->statement[s] : statement;
    }
    ck_assert_ptr_nonnull(statement);
    if (which == 0) {
        program->parallel |= 1u << 3; /* blocks of keys */
        refused(&cx, program, "between threads");
    } else if (which != 2) {
        statement->schedule[fault[which].time].constant = 3; /* after the values */
        refused(&cx, program, "violated dependence");
    } else {
        statement->schedule[fault[which].time].coef[3] = -1;
        refused(&cx, program, "violated dependence");
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Operations run out at any step: never an answer that says legal, never an error. */
START_TEST(test_quota)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = make(&cx, reducing[_i]);
    sx_poly_program *program = program_of(&cx, &n);
    uint32_t proven = 0, refusals = 0;
    for (program->operations_max = 1; program->operations_max < 200000;
         program->operations_max *= 4) {
        sx_poly_verdict verdict;
        ck_sx_ok(&cx, sx_poly_legal(&cx, program, &verdict));
        ck_assert_msg(verdict.legal || proven == 0, "%u operations: %s", program->operations_max,
                      verdict.text);
        ck_assert_msg(verdict.legal || strstr(verdict.text, "operations") != NULL, "%s",
                      verdict.text);
        *(verdict.legal ? &proven : &refusals) += 1;
    }
    ck_assert_uint_ge(refusals, 3);
    ck_assert_uint_ge(proven, 1);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("poly.of_fused");
    TCase *cases = tcase_create("of_fused");
    tcase_add_loop_test(cases, test_plans_are_legal, 0, 2 * NODES);
    tcase_add_loop_test(cases, test_parallel_reduction, 0, (int)SX_COUNT(reducing));
    tcase_add_test(cases, test_epilogue_before_sum);
    tcase_add_loop_test(cases, test_passes_exchanged, 0, 2);
    tcase_add_test(cases, test_reversed_sum);
    tcase_add_loop_test(cases, test_online_faults, 0, 7);
    tcase_add_loop_test(cases, test_quota, 0, (int)SX_COUNT(reducing));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
