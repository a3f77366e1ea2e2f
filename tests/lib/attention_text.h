/* attention_text.h - attention spelled out in steps, as exporters and people write it: programs as text for
 * several tests. */
#ifndef SX_TESTS_LIB_ATTENTION_TEXT_H
#define SX_TESTS_LIB_ATTENTION_TEXT_H
#include <stdint.h>
#include <stdio.h>

#include "core/base/buf.h"

typedef enum {
    SX_ATTENTION_PLAIN,  /* softmax(q k^T) v */
    SX_ATTENTION_SCALED, /* scores times 1/4 */
    SX_ATTENTION_MASKED, /* plus a mask [s, t] that is a parameter */
    SX_ATTENTION_CAUSAL, /* -inf above the diagonal, by comparing indices */
    SX_ATTENTION_PREFIX, /* -inf below the diagonal: the first keys of late rows are masked, blocks of them whole */
    SX_ATTENTION_LOW,   /* the same with the lowest finite number */
    SX_ATTENTION_HEADS, /* q, k, v [b, s, h, d], transposed before and after */
    SX_ATTENTION_GROUPED, /* four query heads, two of keys and values: two heads of queries are rows of one */
    SX_ATTENTION_REPEATED, /* four heads of queries, two of keys and values, repeated before they are used */
    SX_ATTENTION_COMPOSITE, /* the operation `softmax` in the middle */
    SX_ATTENTION_COUNT
} sx_attention_kind;

static inline const char *sx_attention_name(sx_attention_kind kind)
{
    static const char *const name[SX_ATTENTION_COUNT] = {
        "plain", "scaled", "masked",  "causal",   "prefix",
        "low",   "heads",  "grouped", "repeated", "composite"};
    return name[kind];
}

/* Softmax of %x : f32[dims] along the last dimension in its steps: %p. */
static inline void sx_attention_softmax(sx_buf *text, const char *dims, const char *rows)
{
    sx_buf_print(text,
                 "    %%m = reduce(%%x) {dims = [3], reducer = maximum} : f32[%s]\n"
                 "    %%mb = broadcast_in_dim(%%m) {dims = [0, 1, 2]} : f32[%s]\n"
                 "    %%low = subtract(%%x, %%mb) : f32[%s]\n"
                 "    %%e = exponential(%%low) : f32[%s]\n"
                 "    %%l = reduce(%%e) {dims = [3], reducer = add} : f32[%s]\n"
                 "    %%lb = broadcast_in_dim(%%l) {dims = [0, 1, 2]} : f32[%s]\n"
                 "    %%p = divide(%%e, %%lb) : f32[%s]\n",
                 rows, dims, dims, dims, rows, dims, dims);
}

/* Scores [batch, 2, s, t] of heads of width d. */
static inline void sx_attention_text(sx_attention_kind kind, int64_t s, int64_t t, int64_t d,
                                     sx_buf *text)
{
    char dims[96], rows[96];
    long long S = (long long)s, T = (long long)t, D = (long long)d;
    long long R = kind == SX_ATTENTION_GROUPED ? 2 * S : S; /* rows of a head of keys */
    int heads = kind == SX_ATTENTION_REPEATED ? 4 : 2;
    (void)snprintf(dims, sizeof(dims), "batch, %d, %lld, %lld", heads, R, T);
    (void)snprintf(rows, sizeof(rows), "batch, %d, %lld", heads, R);
    sx_buf_print(text, "sx 1\ngraph \"%s\" (batch in [1, 64]) {\n", sx_attention_name(kind));
    if (kind == SX_ATTENTION_HEADS) {
        sx_buf_print(
            text,
            "    %%q0 = parameter {name = \"q\", weight = 0} : f32[batch, %lld, 2, %lld]\n"
            "    %%k0 = parameter {name = \"k\", weight = 0} : f32[batch, %lld, 2, %lld]\n"
            "    %%v0 = parameter {name = \"v\", weight = 0} : f32[batch, %lld, 2, %lld]\n"
            "    %%q = transpose(%%q0) {perm = [0, 2, 1, 3]} : f32[batch, 2, %lld, %lld]\n"
            "    %%k = transpose(%%k0) {perm = [0, 2, 1, 3]} : f32[batch, 2, %lld, %lld]\n"
            "    %%v = transpose(%%v0) {perm = [0, 2, 1, 3]} : f32[batch, 2, %lld, %lld]\n",
            S, D, T, D, T, D, S, D, T, D, T, D);
    } else if (kind == SX_ATTENTION_GROUPED) {
        sx_buf_print(text,
                     "    %%q0 = parameter {name = \"q\", weight = 0} : f32[batch, 4, %lld, %lld]\n"
                     "    %%q = reshape(%%q0) : f32[batch, 2, %lld, %lld]\n"
                     "    %%k = parameter {name = \"k\", weight = 0} : f32[batch, 2, %lld, %lld]\n"
                     "    %%v = parameter {name = \"v\", weight = 0} : f32[batch, 2, %lld, %lld]\n",
                     S, D, 2 * S, D, T, D, T, D);
    } else if (kind == SX_ATTENTION_REPEATED) {
        sx_buf_print(text,
                     "    %%q = parameter {name = \"q\", weight = 0} : f32[batch, 4, %lld, %lld]\n",
                     S, D);
        for (uint32_t i = 0; i < 2; i++) {
            char n = "kv"[i];
            sx_buf_print(
                text,
                "    %%%c0 = parameter {name = \"%c\", weight = 0} : f32[batch, 2, %lld, %lld]\n"
                "    %%%c1 = broadcast_in_dim(%%%c0) {dims = [0, 1, 3, 4]} : "
                "f32[batch, 2, 2, %lld, %lld]\n"
                "    %%%c = reshape(%%%c1) : f32[batch, 4, %lld, %lld]\n",
                n, n, T, D, n, n, T, D, n, n, T, D);
        }
    } else {
        sx_buf_print(text,
                     "    %%q = parameter {name = \"q\", weight = 0} : f32[batch, 2, %lld, %lld]\n"
                     "    %%k = parameter {name = \"k\", weight = 0} : f32[batch, 2, %lld, %lld]\n"
                     "    %%v = parameter {name = \"v\", weight = 0} : f32[batch, 2, %lld, %lld]\n",
                     S, D, T, D, T, D);
    }
    sx_buf_print(text,
                 "    %%s = dot_general(%%q, %%k) {lhs_batch = [0, 1], rhs_batch = [0, 1], "
                 "lhs_contract = [3], rhs_contract = [3]} : f32[%s]\n",
                 dims);
    bool indexed =
        kind == SX_ATTENTION_CAUSAL || kind == SX_ATTENTION_PREFIX || kind == SX_ATTENTION_LOW;
    sx_buf_print(text, "    %%quarter = constant {data = %s} : f32[%s]\n",
                 kind == SX_ATTENTION_PLAIN ? "1" : "0.25", dims);
    sx_buf_print(text, "    %%%s = multiply(%%s, %%quarter) : f32[%s]\n",
                 indexed || kind == SX_ATTENTION_MASKED ? "y" : "x", dims);
    if (kind == SX_ATTENTION_MASKED) {
        sx_buf_print(text,
                     "    %%mask = parameter {name = \"mask\", weight = 0} : f32[%lld, %lld]\n"
                     "    %%maskb = broadcast_in_dim(%%mask) {dims = [2, 3]} : f32[%s]\n"
                     "    %%x = add(%%y, %%maskb) : f32[%s]\n",
                     S, T, dims, dims);
    } else if (indexed) {
        sx_buf_print(text,
                     "    %%row = iota {axis = 0} : i32[%lld, %lld]\n"
                     "    %%key = iota {axis = 1} : i32[%lld, %lld]\n"
                     "    %%seen0 = compare(%%row, %%key) {direction = %s} : bool[%lld, %lld]\n"
                     "    %%seen = broadcast_in_dim(%%seen0) {dims = [2, 3]} : bool[%s]\n"
                     "    %%none = constant {data = %s} : f32[%s]\n"
                     "    %%x = select(%%seen, %%y, %%none) : f32[%s]\n",
                     S, T, S, T, kind == SX_ATTENTION_CAUSAL ? "ge" : "le", S, T, dims,
                     kind == SX_ATTENTION_LOW ? "-3.4028234663852886e+38" : "-inf", dims, dims);
    }
    if (kind == SX_ATTENTION_COMPOSITE) {
        sx_buf_print(text, "    %%p = softmax(%%x) {axis = 3} : f32[%s]\n", dims);
    } else {
        sx_attention_softmax(text, dims, rows);
    }
    sx_buf_print(text,
                 "    %%o = dot_general(%%p, %%v) {lhs_batch = [0, 1], rhs_batch = [0, 1], "
                 "lhs_contract = [3], rhs_contract = [2]} : f32[batch, %d, %lld, %lld]\n",
                 heads, R, D);
    if (kind == SX_ATTENTION_HEADS) {
        sx_buf_print(text,
                     "    %%z = transpose(%%o) {perm = [0, 2, 1, 3]} : f32[batch, %lld, 2, %lld]\n",
                     S, D);
    }
    if (kind == SX_ATTENTION_GROUPED) {
        sx_buf_print(text, "    %%z = reshape(%%o) : f32[batch, 4, %lld, %lld]\n", S, D);
    }
    bool moved = kind == SX_ATTENTION_HEADS || kind == SX_ATTENTION_GROUPED;
    sx_buf_print(text, "    return %%%s as \"y\"\n}\n", moved ? "z" : "o");
    sx_buf_put_u8(text, 0);
}
#endif
