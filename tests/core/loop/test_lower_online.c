/* Online sums: against the interpreter, every plan with the same bits, rows with the same bits whatever stands
 * beside them, masks of every kind, and machine code against the loop interpreter. */
#include <float.h>

#include "core/ir/num.h"
#include "tests/core/loop/nodes.h"
#include "tests/core/x64/machine.h"

static const test_tiles plans[] = {
    {.lanes = 16, .block_m = 12, .block_nv = 2, .tile_m = 1, .tile_n = 24},
    {.lanes = 8, .block_m = 6, .block_nv = 2, .tile_m = 1, .tile_n = 24},
    {.lanes = 16, .block_m = 6, .block_nv = 4, .tile_m = 1, .tile_n = 24},
    {.lanes = 8, .block_m = 1, .block_nv = 1, .tile_m = 1, .tile_n = 24},
    {.lanes = 16, .block_m = 24, .block_nv = 1, .tile_m = 3, .tile_n = 24},
    {.lanes = 32, .block_m = 6, .block_nv = 2, .tile_m = 1, .tile_n = 24},
};

typedef struct {
    int64_t batch, rows, keys, inner, columns; /* columns 0: no values */
    int64_t form;
    bool scores; /* computed inside */
    bool mask;
} shape;

static sx_attr dot_attr(uint32_t lhs_contract, uint32_t rhs_contract)
{
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {lhs_contract}};
    attr.rhs_contract = (sx_ints){1, {rhs_contract}};
    return attr;
}

/* online_dot(scores + mask, v). The mask, where there is one, comes before q and k among the inputs. */
static node online_node(sx_ctx *cx, const shape *s)
{
    sx_type x[2] = {TYPE(SX_F32, s->batch, s->rows, s->keys),
                    TYPE(SX_F32, s->batch, s->keys, s->columns == 0 ? 1 : s->columns)};
    sx_attr attr = dot_attr(2, 1);
    uint32_t count = s->columns == 0 ? 1 : 2;
    attr.present |= SX_A(form);
    attr.form = s->form;
    if (count == 1) {
        attr.lhs_batch.count = attr.rhs_batch.count = attr.rhs_contract.count = 0;
    }
    node n = {.count = count, .input = {x[0], x[1]}};
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, SX_OP_ONLINE_DOT, &attr, x, count, &n.result));
    ck_sx_ok(cx, sx_fused_lift_online(cx, &attr, x, count, &n.result, &n.fused));
    node scores = {.count = 1};
    if (s->scores) {
        sx_type qk[2] = {TYPE(SX_F32, s->batch, s->rows, s->inner),
                         TYPE(SX_F32, s->batch, s->keys, s->inner)};
        attr = dot_attr(2, 2);
        scores = lift(cx, SX_OP_DOT_GENERAL, &attr, qk, 2);
    }
    if (s->mask && s->scores) {
        scores = with_tensor(cx, SX_OP_ADD, &scores, TYPE(SX_F32, s->rows, s->keys));
    }
    return s->scores ? inlined(cx, &n, 0, &scores) : n;
}

/* Rows of the mask: none, a prefix longer than a block, every other key, all but the last, all of it; and
 * finite ones that swallow every score, up to the lowest number. */
static void fill_mask(node *n, uint32_t a, int64_t rows, int64_t keys)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < keys; k++) {
            float value = 0;
            bool some = r % 8 == 1 ? k < 30 : r % 8 == 2 ? k % 2 == 0 : k + 1 < keys;
            switch (r % 8) {
            case 1:
            case 2:
            case 3: value = some ? -HUGE_VALF : 0; break;
            case 4: value = -HUGE_VALF; break;
            case 5: value = -FLT_MAX; break;
            case 6: value = k < 30 ? -1e30F : 0; break;
            case 7: value = -1e9F; break;
            default: break;
            }
            memcpy(n->raw[a] + 4 * (r * keys + k), &value, sizeof(value));
        }
    }
}

static uint32_t mask_of(const node *n, const shape *s)
{
    for (uint32_t a = 0; a < n->count; a++) {
        if (n->input[a].rank == 2) {
            return a;
        }
    }
    ck_abort_msg("no mask among %u inputs of %lld keys", n->count, (long long)s->keys);
}

/* The interpreter with the rounding of f32: a mask of -1e9 swallows the scores. */
static sx_tensor typed_oracle(sx_ctx *cx, const node *n)
{
    sx_tensor in[SX_FUSED_ARGS_MAX];
    sx_tensor out;
    for (uint32_t k = 0; k < n->count; k++) {
        ck_sx_ok(cx, sx_tensor_unpack(cx, &n->input[k], SX_EVAL_TYPED,
                                      (sx_span){n->raw[k], bytes_of(&n->input[k])}, &in[k]));
    }
    ck_sx_ok(cx, sx_node_eval(cx, SX_OP_FUSED, &n->fused, SX_EVAL_TYPED, in, n->count, &n->result,
                              &out));
    return out;
}

static void check_node(sx_ctx *cx, node *n, const shape *s, const char *what)
{
    if (s->mask && s->scores) {
        fill_mask(n, mask_of(n, s), s->rows, s->keys);
    }
    sx_tensor exact = typed_oracle(cx, n);
    void *bits = NULL;
    uint64_t numerics = 0;
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        sx_kernel *kernel;
        void *out = run_node(cx, n, &plans[p], run_eval, NULL, &kernel);
        compare_result(n, out, &exact, 2e-5, what);
        ck_assert_msg(bits == NULL || memcmp(out, bits, bytes_of(&n->result)) == 0,
                      "%s: plan %u has other bits", what, p);
        ck_assert(bits == NULL || kernel->numerics == numerics);
        numerics = kernel->numerics;
        bits = out;
    }
}

static shape random_shape(sx_rng *rng, uint32_t round)
{
    shape s = {.batch = 1 + (int64_t)sx_rng_below(rng, 3),
               .rows = 1 + (int64_t)sx_rng_below(rng, 40),
               .keys = 1 + (int64_t)sx_rng_below(rng, 70),
               .inner = 1 + (int64_t)sx_rng_below(rng, 12),
               .columns = 1 + (int64_t)sx_rng_below(rng, 40),
               .form = (int64_t)sx_rng_below(rng, 2),
               .scores = round % 4 != 0,
               .mask = round % 2 != 0};
    if (round % 5 == 4) {
        s.columns = 0;
        s.form *= 2;
    }
    return s;
}

static void against_interpreter(uint64_t seed)
{
    sx_rng rng = {seed};
    for (uint32_t round = 0; round < 24; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        shape s = random_shape(&rng, round);
        char what[128];
        (void)snprintf(what, sizeof(what), "round %u: %lld x %lld x %lld, inner %lld, columns %lld",
                       round, (long long)s.batch, (long long)s.rows, (long long)s.keys,
                       (long long)s.inner, (long long)s.columns);
        node n = online_node(&cx, &s);
        fill_inputs(&cx, &n, &rng, false);
        check_node(&cx, &n, &s, what);
        sx_ctx_fini(&cx);
    }
}

START_TEST(test_against_interpreter)
{
    against_interpreter(sx_test_seed());
}
END_TEST

/* Here a loop reads stores that have no common form: those of its first iteration were joined with others. */
START_TEST(test_reads_without_common_form)
{
    against_interpreter(UINT64_C(1795393818008678));
}
END_TEST

/* The body means what the operation means: no element is NaN where the definition has a number, and a row
 * masked whole is NaN. */
START_TEST(test_masked_rows)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    shape s = {.batch = 1, .rows = 16, .keys = 61, .inner = 8, .columns = 5, .form = 1};
    s.scores = s.mask = true;
    node n = online_node(&cx, &s);
    fill_inputs(&cx, &n, &rng, false);
    check_node(&cx, &n, &s, "masked");
    sx_tensor exact = typed_oracle(&cx, &n);
    const double *value = exact.data;
    for (int64_t r = 0; r < s.rows; r++) {
        ck_assert_int_eq(isnan(value[r * s.columns]) != 0, r % 8 == 4);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Queries, keys and values of two bytes are widened where they are read: the bits of the kernel that is given them
 * widened, and a proof. */
START_TEST(test_narrow)
{
    static const sx_dtype narrow[] = {SX_BF16, SX_F16};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < SX_COUNT(narrow) * 3; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        shape s = {.batch = 2, .rows = 19, .keys = 61, .inner = 12, .columns = 20, .form = 1};
        s.scores = true;
        node wide = online_node(&cx, &s);
        node n = wide;
        uint32_t which = k / SX_COUNT(narrow); /* q, k or v; it becomes the last input */
        sx_type own = wide.input[which];
        own.dtype = narrow[k % SX_COUNT(narrow)];
        sx_attr to = {.present = SX_A(type), .type = wide.input[which]};
        node convert = lift(&cx, SX_OP_CONVERT, &to, &own, 1);
        n = inlined(&cx, &n, which, &convert);
        fill_inputs(&cx, &wide, &rng, false);
        uint32_t last = n.count - 1;
        ck_assert_int_eq(n.input[last].dtype, own.dtype);
        n.raw[last] = exact_buffer(&cx, bytes_of(&own));
        for (int64_t i = 0; i < sx_tensor_elements(&own); i++) {
            float value;
            memcpy(&value, wide.raw[which] + 4 * i, 4);
            uint64_t bits = sx_num_encode(own.dtype, (double)value);
            value = (float)sx_num_decode(own.dtype, bits);
            memcpy(wide.raw[which] + 4 * i, &value, 4);
            memcpy(n.raw[last] + 2 * i, &bits, 2);
        }
        for (uint32_t i = 0, to_next = 0; i < wide.count; i++) {
            if (i != which) {
                n.raw[to_next++] = wide.raw[i];
            }
        }
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            void *want = run_node(&cx, &wide, &plans[p], run_eval, NULL, NULL);
            void *got = run_node(&cx, &n, &plans[p], run_eval, NULL, NULL);
            ck_assert_int_eq(memcmp(want, got, bytes_of(&n.result)), 0);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* A row has the same bits alone and among others. */
START_TEST(test_rows_alone)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    shape s = {.batch = 1, .rows = 37, .keys = 55, .inner = 9, .columns = 21, .form = 1};
    s.scores = true;
    node all = online_node(&cx, &s);
    fill_inputs(&cx, &all, &rng, false);
    const uint8_t *whole = run_node(&cx, &all, &plans[0], run_eval, NULL, NULL);
    uint32_t q = 0;
    while (all.input[q].dim[1].scale != s.rows) {
        q++;
    }
    for (int64_t r = 0; r < s.rows; r += 7) {
        shape one = s;
        one.rows = 1 + r % 3;
        if (r + one.rows > s.rows) {
            continue;
        }
        node n = online_node(&cx, &one);
        memcpy(n.raw, all.raw, sizeof(n.raw));
        n.raw[q] = all.raw[q] + 4 * r * s.inner;
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            const uint8_t *out = run_node(&cx, &n, &plans[p], run_eval, NULL, NULL);
            ck_assert_int_eq(
                memcmp(out, whole + 4 * r * s.columns, (size_t)(4 * one.rows * s.columns)), 0);
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_machine_code)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 20; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        shape s = random_shape(&rng, round);
        node n = online_node(&cx, &s);
        fill_inputs(&cx, &n, &rng, false);
        (void)run_node(&cx, &n, &plans[round % SX_COUNT(plans)], machine_run_both, NULL, NULL);
        sx_ctx_fini(&cx);
    }
}
END_TEST

static void mutate(sx_rng *rng, node *n, sx_body *body)
{
    uint32_t i = (uint32_t)sx_rng_below(rng, body->instr_count);
    uint32_t a = (uint32_t)sx_rng_below(rng, body->arg_count);
    uint32_t d = (uint32_t)sx_rng_below(rng, n->fused.type.rank);
    sx_instr *in = &body->instr[i];
    switch (sx_rng_below(rng, 8)) {
    case 0: in->x = (uint32_t)sx_rng_below(rng, body->instr_count); break;
    case 1: in->y = (uint32_t)sx_rng_below(rng, body->instr_count); break;
    case 2: in->kind = (sx_body_kind)sx_rng_below(rng, SX_BODY_ONLINE + 1); break;
    case 3: body->axes ^= 1u << d; break;
    case 4: body->inner ^= 1u << d; break;
    case 5: body->access[a].stride[d] = sx_dim_of((int64_t)sx_rng_below(rng, 3)); break;
    case 6: in->reducer = (sx_reducer)sx_rng_below(rng, SX_REDUCER_COUNT); break;
    default:
        in->op = sx_rng_below(rng, 2) == 0 ? SX_OP_ADD : SX_OP_MAXIMUM;
        in->imm = (double)sx_rng_below(rng, 3);
        break;
    }
}

/* Bodies changed at random: refused, or lowered to what they mean. */
START_TEST(test_random_bodies)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t accepted = 0, lowered = 0;
    for (uint32_t round = 0; round < 3000; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        shape s = {.batch = 2, .rows = 5, .keys = 27, .inner = 4, .columns = 3, .form = 1};
        s.scores = round % 3 != 0;
        s.mask = round % 2 == 0;
        node n = online_node(&cx, &s);
        sx_body body = {0};
        sx_body_copy(&body, n.fused.body);
        for (uint64_t k = 1 + sx_rng_below(&rng, 2); k > 0; k--) {
            mutate(&rng, &n, &body);
        }
        n.fused.body = &body;
        sx_code code =
            sx_infer_type(&cx, NULL, 0, SX_OP_FUSED, &n.fused, n.input, n.count, &n.result);
        ck_assert(code == SX_OK || code == SX_INPUT || code == SX_UNIMPLEMENTED ||
                  code == SX_LIMIT);
        if (code == SX_OK && sx_body_kernel_kind(&body) == SX_KERNEL_ONLINE) {
            sx_kernel *kernel;
            fill_inputs(&cx, &n, &rng, false);
            accepted++;
            code = lower_node(&cx, "node", &n, &plans[1], &kernel);
            ck_assert_msg(code == SX_OK || code == SX_UNIMPLEMENTED || code == SX_LIMIT, "%s",
                          cx.error.text);
            if (code == SX_OK) {
                sx_tensor exact = typed_oracle(&cx, &n);
                compare_result(&n, run_node(&cx, &n, &plans[1], run_eval, NULL, NULL), &exact, 1e-4,
                               "changed body");
                lowered++;
            }
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(accepted, 50);
    ck_assert_uint_gt(lowered, 30);
}
END_TEST

/* Plans and programs that have no form say so. */
START_TEST(test_refusals)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    shape s = {.batch = 1, .rows = 4, .keys = 4, .inner = 4, .columns = 4, .scores = true};
    node n = online_node(&cx, &s);
    sx_kernel *kernel;
    test_tiles wide = {.lanes = 8, .block_m = 12, .block_nv = 2, .tile_n = 24};
    ck_sx_fails(&cx, lower_node(&cx, "node", &n, &wide, &kernel), SX_LIMIT, "registers");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.loop.lower_online");
    TCase *cases = tcase_create("online");
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_against_interpreter);
    tcase_add_test(cases, test_reads_without_common_form);
    tcase_add_test(cases, test_masked_rows);
    tcase_add_test(cases, test_narrow);
    tcase_add_test(cases, test_rows_alone);
    tcase_add_test(cases, test_machine_code);
    tcase_add_test(cases, test_random_bodies);
    tcase_add_test(cases, test_refusals);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
