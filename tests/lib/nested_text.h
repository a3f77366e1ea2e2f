/* nested_text.h - the three gradients of attention by recomputation, as nested contractions (core/ir/fused.h):
 * programs as text for several tests.
 *
 * Arguments: q and do [b, n, d], k and v [b, m, d], lse (logarithms of the sums of a row's powers) and D (row sums of
 * do times the output) [b, n]. With s = scale q k^T and p = e^(s - lse):
 *
 *   dq   sum over the keys of p (do v^T - D) k, times scale
 *   dk   sum over the queries of p (do v^T - D) q, times scale
 *   dv   sum over the queries of p do
 */
#ifndef SX_TESTS_LIB_NESTED_TEXT_H
#define SX_TESTS_LIB_NESTED_TEXT_H
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/base/buf.h"

typedef enum { SX_NESTED_DQ, SX_NESTED_DK, SX_NESTED_DV, SX_NESTED_COUNT } sx_nested_kind;
typedef struct {
    sx_nested_kind kind;
    int64_t batch, rows, keys, width; /* b, n, m, d */
    double scale;
    bool causal;         /* a query sees the keys up to its own number */
    const char *dtype;   /* of q, k, v, do and the result; lse and D are f32 */
    const char *rounded; /* to this type x is rounded before the outer sum, or NULL */
} sx_nested_shape;

static inline const char *sx_nested_name(sx_nested_kind kind)
{
    static const char *const name[SX_NESTED_COUNT] = {"dq", "dk", "dv"};
    return name[kind];
}

static inline void sx_nested_text(const sx_nested_shape *s, sx_buf *text)
{
    const bool dq = s->kind == SX_NESTED_DQ, dv = s->kind == SX_NESTED_DV;
    const long long n = s->rows, m = s->keys, d = s->width, b = s->batch;
    /* along [b, rows of the result, columns of the result, summed, inner] */
    char by_n[80], by_m[80], outer[80], stat[80];
    const int at = dq ? 1 : 3; /* where the queries stand */
    (void)snprintf(by_n, sizeof(by_n), "[%lld, %lld, 0, %lld, 1]", n * d, at == 1 ? d : 0,
                   at == 3 ? d : 0);
    (void)snprintf(by_m, sizeof(by_m), "[%lld, %lld, 0, %lld, 1]", m * d, at == 3 ? d : 0,
                   at == 1 ? d : 0);
    (void)snprintf(outer, sizeof(outer), "[%lld, 0, 1, %lld, 0]", (dq ? m : n) * d, d);
    (void)snprintf(stat, sizeof(stat), "[%lld, %d, 0, %d, 0]", n, at == 1 ? 1 : 0, at == 3 ? 1 : 0);
    sx_buf_print(text, "sx 1\ngraph \"%s\" {\n", sx_nested_name(s->kind));
    sx_buf_print(text, "    %%q = parameter {name = \"q\", weight = 0} : %s[%lld, %lld, %lld]\n",
                 s->dtype, b, n, d);
    sx_buf_print(text, "    %%k = parameter {name = \"k\", weight = 0} : %s[%lld, %lld, %lld]\n",
                 s->dtype, b, m, d);
    sx_buf_print(text, "    %%v = parameter {name = \"v\", weight = 0} : %s[%lld, %lld, %lld]\n",
                 s->dtype, b, m, d);
    sx_buf_print(text, "    %%g = parameter {name = \"do\", weight = 0} : %s[%lld, %lld, %lld]\n",
                 s->dtype, b, n, d);
    sx_buf_print(text, "    %%l = parameter {name = \"lse\", weight = 0} : f32[%lld, %lld]\n", b,
                 n);
    sx_buf_print(text, "    %%r = parameter {name = \"D\", weight = 0} : f32[%lld, %lld]\n", b, n);
    sx_buf_print(text,
                 "    %%0 = fused(%%q, %%k, %%l, %s%s) {type = %s[%lld, %lld, %lld, %lld, %lld], ",
                 dv ? "%g" : "%g, %v, %r, ",
                 dv   ? ""
                 : dq ? "%k"
                      : "%q",
                 s->dtype, b, dq ? n : m, d, dq ? m : n, d);
    sx_buf_print(text, "body = {args = [%s, %s, %s, ", by_n, by_m, stat);
    if (!dv) {
        sx_buf_print(text, "%s, %s, %s, ", by_n, by_m, stat);
    }
    sx_buf_print(text, "%s], axes = [3, 4], inner = [4], code = [", outer);
    sx_buf_print(text,
                 "arg 0 : %s, arg 1 : %s, dot 0 1 : f32, imm %.17g : f32, multiply 2 3 : f32, ",
                 s->dtype, s->dtype, s->scale);
    sx_buf_print(text, "arg 2 : f32, subtract 4 5 : f32, exponential 6 : f32");
    uint32_t x = 7, count = 8;
    if (s->causal) {
        sx_buf_print(text,
                     ", index %d : i32, index %d : i32, compare ge 8 9 : bool, imm 0 : f32, "
                     "select 10 7 11 : f32",
                     at, at == 1 ? 3 : 1);
        x = 12;
        count = 13;
    }
    if (!dv) {
        sx_buf_print(text, ", arg 3 : %s, arg 4 : %s, dot %u %u : f32, arg 5 : f32, ", s->dtype,
                     s->dtype, count, count + 1);
        sx_buf_print(text, "subtract %u %u : f32, multiply %u %u : f32", count + 2, count + 3, x,
                     count + 4);
        x = count + 5;
        count += 6;
    }
    if (s->rounded != NULL) {
        sx_buf_print(text, ", convert %u : %s", x, s->rounded);
        x = count++;
    }
    sx_buf_print(text, ", arg %d : %s, dot %u %u : f32", dv ? 3 : 6, s->dtype, x, count);
    x = count + 1;
    count += 2;
    if (!dv) {
        sx_buf_print(text, ", multiply %u 3 : f32", x);
        x = count++;
    }
    if (strcmp(s->dtype, "f32") != 0) {
        sx_buf_print(text, ", convert %u : %s", x, s->dtype);
    }
    sx_buf_print(text, "]}} : %s[%lld, %lld, %lld]\n    return %%0 as \"y\"\n}\n", s->dtype, b,
                 dq ? n : m, d);
}
#endif
