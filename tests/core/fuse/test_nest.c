/* Contractions inside contractions: every step gives what the operations give one by one, bit for bit, and what would
 * be no nested contraction is refused. */
#include <string.h>

#include "core/fuse/fuse.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)256 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* A kernel over nodes of a graph. */
typedef struct {
    sx_attr attr;
    uint32_t child[SX_FUSED_ARGS_MAX], count;
} kernel;

static const sx_type *type_of(const sx_graph *graph, uint32_t node)
{
    return &graph->node[node].type;
}

static void infer(const sx_graph *graph, const kernel *k, sx_type *result)
{
    sx_type input[SX_FUSED_ARGS_MAX];
    for (uint32_t a = 0; a < k->count; a++) {
        input[a] = *type_of(graph, k->child[a]);
    }
    ck_sx_ok(&cx, sx_fused_infer(&cx, &k->attr, input, k->count, result));
}

static kernel lift(const sx_graph *graph, uint32_t n)
{
    const sx_node *node = &graph->node[n];
    sx_type input[SX_FUSED_ARGS_MAX];
    kernel k = {.count = node->input_count};
    for (uint32_t a = 0; a < k.count; a++) {
        k.child[a] = sx_graph_input(graph, node, a).i;
        input[a] = *type_of(graph, k.child[a]);
    }
    ck_sx_ok(&cx, sx_fused_lift(&cx, node->op, sx_graph_attr(graph, node), input, k.count,
                                &node->type, &k.attr));
    return k;
}

/* `inner` computed where `k` reads node n. */
static bool put(const sx_graph *graph, kernel *k, uint32_t n, const kernel *inner)
{
    uint32_t a = 0;
    while (a < k->count && k->child[a] != n) {
        a++;
    }
    ck_assert_uint_lt(a, k->count);
    sx_attr attr;
    bool ok;
    ck_sx_ok(&cx, sx_fused_inline(&cx, &k->attr, a, &inner->attr, type_of(graph, n), &attr, &ok));
    if (ok) {
        k->attr = attr;
        memmove(&k->child[a], &k->child[a + 1], (k->count - a - 1) * sizeof(k->child[0]));
        memcpy(&k->child[k->count - 1], inner->child, inner->count * sizeof(k->child[0]));
        k->count += inner->count - 1;
        sx_type result;
        infer(graph, k, &result);
    }
    return ok;
}

static bool put_lifted(const sx_graph *graph, kernel *k, uint32_t n)
{
    kernel inner = lift(graph, n);
    return put(graph, k, n, &inner);
}

enum { Q, K, G, V, L, S, W, X, P, T, Z, Y }; /* nodes of the program below */

/* p = e^(q k^T - l), z = p (g v^T), y = z k over the keys (along = 0) or z^T q over the rows, as left or right operand;
 * g and v have width e. */
static sx_graph *program(const char *dtype, int64_t b, int64_t n, int64_t m, int64_t d, int64_t e,
                         bool by_rows, bool right)
{
    const long long B = b, N = n, M = m, D = d;
    sx_buf text;
    sx_graph *graph;
    sx_buf_init(&text, 1 << 16);
    sx_buf_print(&text, "sx 1\ngraph \"nest\" {\n");
    const struct {
        const char *name;
        int64_t rows, columns;
    } row[] = {{"q", n, d}, {"k", m, d}, {"g", n, e}, {"v", m, e}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        sx_buf_print(&text, "%%%s = parameter {name = \"%s\", weight = 0} : %s[%lld, %lld, %lld]\n",
                     row[i].name, row[i].name, dtype, B, (long long)row[i].rows,
                     (long long)row[i].columns);
    }
    sx_buf_print(&text, "%%l = parameter {name = \"l\", weight = 0} : %s[%lld, %lld]\n", dtype, B,
                 N);
    static const char last[] =
        "{lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [2]}";
    sx_buf_print(&text, "%%s = dot_general(%%q, %%k) %s : %s[%lld, %lld, %lld]\n", last, dtype, B,
                 N, M);
    sx_buf_print(&text, "%%w = broadcast_in_dim(%%l) {dims = [0, 1]} : %s[%lld, %lld, %lld]\n",
                 dtype, B, N, M);
    sx_buf_print(&text, "%%x = subtract(%%s, %%w) : %s[%lld, %lld, %lld]\n", dtype, B, N, M);
    sx_buf_print(&text, "%%p = exponential(%%x) : %s[%lld, %lld, %lld]\n", dtype, B, N, M);
    sx_buf_print(&text, "%%t = dot_general(%%g, %%v) %s : %s[%lld, %lld, %lld]\n", last, dtype, B,
                 N, M);
    sx_buf_print(&text, "%%z = multiply(%%p, %%t) : %s[%lld, %lld, %lld]\n", dtype, B, N, M);
    const char *other = by_rows ? "q" : "k";
    const long long kept = by_rows ? M : N;
    const int z = by_rows ? 1 : 2;
    sx_buf_print(
        &text,
        "%%y = dot_general(%%%s, %%%s) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [%d], "
        "rhs_contract = [%d]} : %s[%lld, %lld, %lld]\nreturn %%y as \"y\"\n}\n",
        right ? other : "z", right ? "z" : other, right ? 1 : z, right ? z : 1, dtype, B,
        right ? D : kept, right ? kept : D);
    sx_code code = sx_graph_parse(&cx, sx_buf_span(&text), &graph);
    ck_assert_msg(code == SX_OK, "%s\n%.*s", cx.error.text, (int)text.len, (const char *)text.ptr);
    sx_buf_fini(&text);
    return graph;
}

/* z as a kernel: an elementwise program with the contraction s inside. */
static kernel factor(const sx_graph *graph)
{
    kernel z = lift(graph, Z), x = lift(graph, X);
    sx_attr attr;
    bool ok;
    ck_assert(put_lifted(graph, &z, P) && put(graph, &z, X, &x));
    for (uint32_t a = 0; a < z.count; a++) {
        if (z.child[a] == W) {
            ck_sx_ok(&cx, sx_fused_absorb_view(&cx, &z.attr, a, SX_OP_BROADCAST,
                                               sx_graph_attr(graph, &graph->node[W]),
                                               type_of(graph, L), type_of(graph, W), &attr, &ok));
            ck_assert(ok);
            z.attr = attr;
            z.child[a] = L;
        }
    }
    ck_assert(put_lifted(graph, &z, S));
    return z;
}

static void compare(const sx_graph *graph, const kernel *k, const sx_tensor *argument,
                    const char *what)
{
    for (uint32_t mode = 0; mode < 2; mode++) {
        sx_tensor expected, got, input[SX_FUSED_ARGS_MAX];
        sx_type type;
        const sx_eval_mode of = mode == 0 ? SX_EVAL_TYPED : SX_EVAL_F64;
        ck_sx_ok(&cx, sx_graph_eval(&cx, graph, of, argument, 5, &expected, 1));
        sx_tensor gv[2] = {argument[G], argument[V]};
        /* the second factor, where it is not inside yet */
        sx_tensor t =
            sx_test_eval(&cx, SX_OP_DOT_GENERAL, sx_graph_attr(graph, &graph->node[T]), of, gv, 2);
        for (uint32_t a = 0; a < k->count; a++) {
            input[a] = k->child[a] == T ? t : argument[k->child[a]];
        }
        infer(graph, k, &type);
        ck_assert_int_eq(sx_body_kernel_kind(k->attr.body), SX_KERNEL_NESTED);
        got = sx_test_eval(&cx, SX_OP_FUSED, &k->attr, of, input, k->count);
        sx_test_tensor_equal(&expected, &got, what);
    }
}

START_TEST(steps_keep_bits)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 60; round++) {
        const bool by_rows = sx_rng_below(&rng, 2) != 0, right = sx_rng_below(&rng, 2) != 0;
        int64_t extent[4];
        for (uint32_t i = 0; i < 4; i++) {
            extent[i] = 2 + (int64_t)sx_rng_below(&rng, 5);
        }
        const sx_graph *graph = program(round % 3 == 0 ? "f64" : "f32", extent[0], extent[1],
                                        extent[2], extent[3], extent[3], by_rows, right);
        sx_tensor argument[5];
        for (uint32_t i = 0; i < 5; i++) {
            sx_test_tensor(&cx, &rng, SX_EVAL_TYPED, type_of(graph, i), &argument[i]);
        }
        kernel y = lift(graph, Y), z = factor(graph);
        ck_assert(put(graph, &y, Z, &z));
        compare(graph, &y, argument, "one contraction inside");
        ck_assert(put_lifted(graph, &y, T));
        compare(graph, &y, argument, "two contractions inside");
        ck_assert_uint_eq(y.count, 6);
    }
}
END_TEST

/* Other widths cannot share the inner dimension, and one operand of a contraction stays as it lies in memory. */
START_TEST(refusals)
{
    const sx_graph *graph = program("f32", 2, 4, 5, 3, 6, false, false);
    kernel y = lift(graph, Y), z = factor(graph);
    ck_assert(put(graph, &y, Z, &z));
    ck_assert(!put_lifted(graph, &y, T));
    graph = program("f32", 2, 4, 4, 4, 4, false, false);
    kernel gram = lift(graph, S); /* z z^T: only one operand may be computed */
    gram.child[0] = gram.child[1] = Z;
    z = factor(graph);
    ck_assert(put(graph, &gram, Z, &z));
    ck_assert(!put(graph, &gram, Z, &z));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nest");
    TCase *tcase = tcase_create("nest");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, steps_keep_bits);
    tcase_add_test(tcase, refusals);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
