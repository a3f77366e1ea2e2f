/* nested.h - gradients of attention by blocks of threads: nodes, schedules, and answers that share no code with the
 * compiler. */
#ifndef SX_TESTS_CORE_NVIDIA_NESTED_H
#define SX_TESTS_CORE_NVIDIA_NESTED_H
#include "core/tile/online.h"
#include "tests/core/nvidia/tiles.h"
#include "tests/lib/nested_text.h"

/* The only fused node of a program. */
static inline node nested_parse(sx_ctx *cx, const sx_buf *text)
{
    sx_graph *graph;
    node n = {.count = 0};
    sx_code code = sx_graph_parse(cx, sx_buf_span(text), &graph);
    ck_assert_msg(code == SX_OK, "%s in\n%.*s", cx->error.text, (int)text->len,
                  (const char *)text->ptr);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *at = &graph->node[i];
        if (at->op == SX_OP_FUSED) {
            n.fused = *sx_graph_attr(graph, at);
            n.count = at->input_count;
            n.result = at->type;
            for (uint32_t k = 0; k < n.count; k++) {
                n.input[k] = graph->node[sx_graph_input(graph, at, k).i].type;
            }
        }
    }
    ck_assert_uint_gt(n.count, 0);
    return n;
}

/* The schedule of the products that the analysis finds. */
static inline void nested_schedule(const sx_analysis *a, int64_t rows, int64_t keys, uint32_t depth,
                                   sx_schedule *s)
{
    sx_online_blocks blocks = {.matrix_rows = 16,
                               .matrix_columns = 8,
                               .matrix_steps = 16,
                               .rows = rows,
                               .warp_rows = 16,
                               .keys = keys,
                               .depth = depth};
    ck_assert(sx_online_blocks_take(a, &blocks));
    sx_schedule_online_blocks(&blocks, s);
}

static inline sx_code nested_lower(sx_ctx *cx, const sx_target *target, const node *n, int64_t rows,
                                   int64_t keys, uint32_t depth, sx_kernel **kernel)
{
    const sx_analysis *a = analysis_of(cx, n);
    sx_schedule s;
    nested_schedule(a, rows, keys, depth, &s);
    sx_lowering what = {.kind = SX_LOWER_FUSED, .name = "nested", .analysis = a, .schedule = &s};
    return sx_target_lower(cx, target, &what, kernel);
}

static inline void nested_set(sx_ctx *cx, node *n, uint32_t input, int64_t i, double value)
{
    const sx_type *type = &n->input[input];
    uint32_t bytes = sx_dtype_bytes(type->dtype);
    if (n->raw[input] == NULL) {
        n->raw[input] = sx_alloc(cx, bytes_of(type) + 16);
        ck_assert_ptr_nonnull(n->raw[input]);
    }
    uint64_t bits = sx_num_encode(type->dtype, value);
    memcpy(n->raw[input] + bytes * i, &bits, bytes);
}

static inline double nested_get(const node *n, uint32_t input, int64_t i)
{
    sx_dtype dtype = n->input[input].dtype;
    return sx_num_decode(dtype, sx_num_load(dtype, n->raw[input], (size_t)i));
}

/* ---- sums that are exact ---- */
/* y[b, h, m, n] = half the sum over k of x[m, k] * value[b, k, n], x = (s * stat[k or m]) * (t - 1) where s and t are
 * the inner products of a [b, h, m, d] and c [b, (h,) k, d], and of a second pair. */
typedef struct {
    const char *dtype;
    int64_t batch, heads, rows, keys, d, columns;
    bool two;         /* there is a second inner product */
    bool grouped;     /* heads share keys and values */
    bool keys_turned; /* c lies as [.., d, k] */
    bool along_keys;  /* the statistic is of the keys, not of the rows */
    bool value_turned;
} nested_case;
enum { NESTED_A, NESTED_C, NESTED_STAT, NESTED_VALUE, NESTED_A2, NESTED_C2 };

static inline void nested_strides(sx_buf *text, int64_t batch, int64_t head, int64_t m, int64_t n,
                                  int64_t k, int64_t d)
{
    sx_buf_print(text, "[%lld, %lld, %lld, %lld, %lld, %lld]", (long long)batch, (long long)head,
                 (long long)m, (long long)n, (long long)k, (long long)d);
}

static inline node nested_exact_node(sx_ctx *cx, const nested_case *c)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 14);
    const int64_t own = c->grouped ? 1 : c->heads, side = c->along_keys ? c->keys : c->rows;
    const int64_t kd = c->keys * c->d, kn = c->keys * c->columns, md = c->rows * c->d;
    sx_buf_print(&text, "sx 1\ngraph \"exact\" {\n");
    for (uint32_t i = 0; i < (c->two ? 2 : 1); i++) {
        sx_buf_print(
            &text,
            "    %%a%u = parameter {name = \"a%u\", weight = 0} : %s[%lld, %lld, %lld, %lld]\n"
            "    %%c%u = parameter {name = \"c%u\", weight = 0} : %s[%lld, %lld, %lld, %lld]\n",
            i, i, c->dtype, (long long)c->batch, (long long)c->heads, (long long)c->rows,
            (long long)c->d, i, i, c->dtype, (long long)c->batch, (long long)own,
            (long long)c->keys, (long long)c->d);
    }
    sx_buf_print(&text,
                 "    %%s = parameter {name = \"s\", weight = 0} : f32[%lld, %lld]\n"
                 "    %%v = parameter {name = \"v\", weight = 0} : %s[%lld, %lld, %lld, %lld]\n",
                 (long long)c->batch, (long long)side, c->dtype, (long long)c->batch,
                 (long long)own, (long long)c->keys, (long long)c->columns);
    sx_buf_print(
        &text,
        "    %%0 = fused(%%a0, %%c0, %%s, %%v%s) {type = f32[%lld, %lld, %lld, %lld, %lld, %lld], ",
        c->two ? ", %a1, %c1" : "", (long long)c->batch, (long long)c->heads, (long long)c->rows,
        (long long)c->columns, (long long)c->keys, (long long)c->d);
    sx_buf_print(&text, "body = {args = [");
    for (uint32_t i = 0; i < (c->two ? 2 : 1); i++) {
        if (i == 1) {
            sx_buf_print(&text, ", ");
        }
        nested_strides(&text, c->heads * md, md, c->d, 0, 0, 1);
        sx_buf_print(&text, ", ");
        nested_strides(&text, own * kd, c->grouped ? 0 : kd, 0, 0, c->keys_turned ? 1 : c->d,
                       c->keys_turned ? c->keys : 1);
        if (i == 0) {
            sx_buf_print(&text, ", ");
            nested_strides(&text, side, 0, c->along_keys ? 0 : 1, 0, c->along_keys ? 1 : 0, 0);
            sx_buf_print(&text, ", ");
            nested_strides(&text, own * kn, c->grouped ? 0 : kn, 0, c->value_turned ? c->keys : 1,
                           c->value_turned ? 1 : c->columns, 0);
        }
    }
    sx_buf_print(&text,
                 "], axes = [4, 5], inner = [5], code = [arg 0 : %s, arg 1 : %s, dot 0 1 : f32, "
                 "arg 2 : f32, multiply 2 3 : f32, ",
                 c->dtype, c->dtype);
    uint32_t x = 4, count = 5;
    if (c->two) {
        sx_buf_print(&text,
                     "arg 4 : %s, arg 5 : %s, dot 5 6 : f32, imm 1 : f32, subtract 7 8 : f32, "
                     "multiply 4 9 : f32, ",
                     c->dtype, c->dtype);
        x = 10;
        count = 11;
    }
    sx_buf_print(
        &text,
        "convert %u : %s, arg 3 : %s, dot %u %u : f32, imm 0.5 : f32, multiply %u %u : f32]}} "
        ": f32[%lld, %lld, %lld, %lld]\n    return %%0 as \"y\"\n}\n",
        x, c->dtype, c->dtype, count, count + 1, count + 2, count + 3, (long long)c->batch,
        (long long)c->heads, (long long)c->rows, (long long)c->columns);
    node n = nested_parse(cx, &text);
    sx_buf_fini(&text);
    return n;
}

/* Two steps of d are 1 or -1 and all others 0, so that inner products are small integers, and so is all that is made of
 * them: x is at most 2 * 3 * 3, which both narrow types hold. */
static inline void nested_fill_exact(sx_ctx *cx, node *n, const nested_case *c, sx_rng *rng)
{
    for (uint32_t k = 0; k < n->count; k++) {
        int64_t elements = sx_tensor_elements(&n->input[k]);
        bool sparse = k != NESTED_STAT && k != NESTED_VALUE;
        bool turned = c->keys_turned && (k == NESTED_C || k == NESTED_C2);
        int64_t side = turned ? c->keys : 1;
        for (int64_t i = 0; i < elements; i++) {
            nested_set(cx, n, k, i, sparse ? 0 : (double)sx_rng_below(rng, 7) - 3);
        }
        for (int64_t i = 0; sparse && i < elements / c->d; i++) {
            for (uint32_t twice = 0; twice < 2; twice++) {
                int64_t d = (int64_t)sx_rng_below(rng, 3) * (c->d - 1) / 2;
                nested_set(cx, n, k, i / side * side * c->d + d * side + i % side,
                           sx_rng_below(rng, 3) == 0 ? -1 : 1);
            }
        }
    }
}

static inline double nested_inner(const node *n, const nested_case *c, uint32_t a, uint32_t key,
                                  int64_t head, int64_t row, int64_t k)
{
    int64_t own = c->grouped ? head / c->heads : head;
    double sum = 0;
    for (int64_t d = 0; d < c->d; d++) {
        int64_t at =
            c->keys_turned ? (own * c->d + d) * c->keys + k : (own * c->keys + k) * c->d + d;
        sum += nested_get(n, a, (head * c->rows + row) * c->d + d) * nested_get(n, key, at);
    }
    return sum;
}

/* An element of the result. `x`: room for the keys, made anew for column 0. */
static inline double nested_exact(const node *n, const nested_case *c, int64_t head, int64_t row,
                                  int64_t column, double *x)
{
    int64_t own = c->grouped ? head / c->heads : head, batch = head / c->heads;
    double sum = 0;
    for (int64_t k = 0; k < c->keys; k++) {
        if (column == 0) {
            int64_t side = c->along_keys ? batch * c->keys + k : batch * c->rows + row;
            x[k] = nested_inner(n, c, NESTED_A, NESTED_C, head, row, k) *
                   nested_get(n, NESTED_STAT, side);
            x[k] *= c->two ? nested_inner(n, c, NESTED_A2, NESTED_C2, head, row, k) - 1 : 1;
        }
        int64_t at = c->value_turned ? (own * c->columns + column) * c->keys + k
                                     : (own * c->keys + k) * c->columns + column;
        sum += x[k] * nested_get(n, NESTED_VALUE, at);
    }
    return sum / 2;
}
#endif
