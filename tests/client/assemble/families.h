/* families.h - a small program for each family of kernels, element type and layout. */
#ifndef SX_TESTS_CLIENT_ASSEMBLE_FAMILIES_H
#define SX_TESTS_CLIENT_ASSEMBLE_FAMILIES_H
#include <string.h>

#include "core/core.h"
#include "tests/lib/test.h"

#define FAMILIES_LAYOUTS 4
#define FLOATS (1u << SX_F32 | 1u << SX_BF16 | 1u << SX_F16)
#define FACTORS (FLOATS | 1u << SX_F64 | 1u << SX_I8 | 1u << SX_U8)
#define REALS (FLOATS | 1u << SX_F64 | 1u << SX_F8E4M3 | 1u << SX_F8E5M2)
#define ALL ((1u << SX_DTYPE_COUNT) - 1)

/* A contraction, [b, m, k] x [b, k, n], of which either side may lie the other way round (four layouts); or the program
 * of each layout, in which $T is the element type, and $R 1, of that type, as a number. */
typedef struct {
    const char *name;
    uint32_t types; /* set of 1 << sx_dtype */
    int64_t b, m, k, n;
    /* 0: nothing; 1: + column, max 0; 2: the sums in f32, + a tensor of f32; 3: the right side is the same for all b */
    uint32_t after;
    const char *text[FAMILIES_LAYOUTS];
} family;

#define X(extents) "%x = parameter {name = \"x\", weight = 0} : $T" extents " "
#define Y(extents) "%y = parameter {name = \"y\", weight = 0} : $T" extents " "
#define I(extents) "%i = parameter {name = \"i\", weight = 0} : i64" extents " "
#define OUT "return %o as \"o\""
#define QKV(heads, rows, keys, d, kv)                                                 \
    "%q0 = parameter {name = \"q\", weight = 0} : $T[2, " heads ", " rows ", " d "] " \
    "%k0 = parameter {name = \"k\", weight = 0} : $T[2, " kv ", " keys ", " d "] "    \
    "%v0 = parameter {name = \"v\", weight = 0} : $T[2, " kv ", " keys ", " d "] "    \
    "%q = convert(%q0) : f32[2, " heads ", " rows ", " d "] "                         \
    "%k1 = convert(%k0) : f32[2, " kv ", " keys ", " d "] "                           \
    "%v1 = convert(%v0) : f32[2, " kv ", " keys ", " d "] "
#define ATTEND(more, heads, rows, d)                                                           \
    "%a = attention(%q, %k, %v" more ") {scale = 0.125} : f32[2, " heads ", " rows ", " d "] " \
    "%o = convert(%a) : $T[2, " heads ", " rows ", " d "] " OUT
#define PLAIN(heads, keys, d)                                 \
    "%k = reshape(%k1) : f32[2, " heads ", " keys ", " d "] " \
    "%v = reshape(%v1) : f32[2, " heads ", " keys ", " d "] "

static const family families[] = {
    {.name = "contraction", .types = FACTORS, .b = 1, .m = 192, .k = 160, .n = 256, .after = 1},
    {.name = "contraction, odd", .types = FACTORS, .b = 1, .m = 37, .k = 43, .n = 29, .after = 1},
    {.name = "split along k", .types = FACTORS, .b = 1, .m = 48, .k = 16384, .n = 64},
    {.name = "few rows", .types = FACTORS, .b = 1, .m = 16, .k = 256, .n = 1024, .after = 1},
    {.name = "one row", .types = FACTORS, .b = 1, .m = 1, .k = 1024, .n = 512},
    {.name = "batched", .types = FACTORS, .b = 6, .m = 48, .k = 64, .n = 40},
    {.name = "groups that share a side",
     .types = FACTORS,
     .b = 4,
     .m = 64,
     .k = 64,
     .n = 64,
     .after = 3},
    {.name = "added in f32", .types = FLOATS, .b = 1, .m = 160, .k = 192, .n = 128, .after = 2},
    {.name = "elementwise",
     .types = ALL,
     .text = {X("[45, 36]") Y("[36]") "%b = broadcast_in_dim(%y) {dims = [1]} : $T[45, 36] "
                                      "%o = add(%x, %b) : $T[45, 36] " OUT,
              X("[45, 35]") "%c = compare(%x, %x) {direction = lt} : bool[45, 35] %z = constant "
                            "{data = $R} : $T[45, 35] %o = select(%c, %x, %z) : $T[45, 35] " OUT}},
    {.name = "transpose",
     .types = ALL,
     .text = {X("[2048, 1040]") "%o = transpose(%x) {perm = [1, 0]} : $T[1040, 2048] " OUT,
              X("[3, 45, 35]") "%o = transpose(%x) {perm = [0, 2, 1]} : $T[3, 35, 45] " OUT,
              X("[6, 20, 64]") "%o = transpose(%x) {perm = [1, 0, 2]} : $T[20, 6, 64] " OUT,
              X("[16, 20, 24]") "%o = transpose(%x) {perm = [2, 1, 0]} : $T[24, 20, 16] " OUT}},
    {.name = "concatenate",
     .types = ALL,
     .text = {X("[16, 64]") Y("[16, 48]") "%o = concatenate(%x, %y) {axis = 1} : $T[16, 112] " OUT,
              X("[16, 35]") Y("[9, 35]") "%o = concatenate(%x, %y) {axis = 0} : $T[25, 35] " OUT}},
    {.name = "pad",
     .types = ALL,
     .text = {X("[45, 36]") "%z = constant {data = $R} : $T[] %o = pad(%x, %z) {low = [1, 4], high "
                            "= [2, 8], interior = [0, 0]} : $T[48, 48] " OUT,
              X("[9, 35]") "%z = constant {data = $R} : $T[] %o = pad(%x, %z) {low = [0, 1], high "
                           "= [0, 1], interior = [1, 2]} : $T[17, 105] " OUT}},
    {.name = "gather",
     .types = ALL,
     .text = {X("[45, 512]") I("[7]") "%o = gather(%x, %i) {axis = 0} : $T[7, 512] " OUT,
              X("[45, 35]") I("[7]") "%o = gather(%x, %i) {axis = 1} : $T[45, 7] " OUT}},
    {.name = "reduction",
     .types = ALL,
     .text = {X("[45, 70]") "%o = reduce(%x) {dims = [1], reducer = add} : $T[45] " OUT,
              X("[45, 70]") "%o = reduce(%x) {dims = [0, 1], reducer = multiply} : $T[] " OUT}},
    {.name = "largest and smallest",
     .types = ALL & ~(1u << SX_BOOL),
     .text = {X("[45, 70]") "%o = reduce(%x) {dims = [0], reducer = maximum} : $T[70] " OUT,
              X("[3, 9000]") "%o = reduce(%x) {dims = [1], reducer = minimum} : $T[3] " OUT}},
    {.name = "softmax",
     .types = REALS,
     .text = {X("[45, 70]") "%o = softmax(%x) {axis = 1} : $T[45, 70] " OUT,
              X("[45, 70]") "%o = softmax(%x) {axis = 0} : $T[45, 70] " OUT,
              X("[3, 9000]") "%o = softmax(%x) {axis = 1} : $T[3, 9000] " OUT,
              X("[45, 256]") "%o = log_softmax(%x) {axis = 1} : $T[45, 256] " OUT}},
    {.name = "layer norm",
     .types = REALS,
     .text = {X("[45, 70]") Y("[70]") "%o = layer_norm(%x, %y, %y) {axis = 1, eps = 1e-5} : $T[45, "
                                      "70] " OUT,
              X("[3, 9000]") Y("[9000]") "%o = layer_norm(%x, %y, %y) {axis = 1, eps = 1e-5} : "
                                         "$T[3, 9000] " OUT}},
    {.name = "root mean square norm",
     .types = REALS,
     .text = {X("[45, 256]") Y("[256]") "%o = rms_norm(%x, %y) {axis = 1, eps = 1e-5} : $T[45, "
                                        "256] " OUT,
              X("[3, 9000]") Y("[9000]") "%o = rms_norm(%x, %y) {axis = 1, eps = 1e-5} : $T[3, "
                                         "9000] " OUT}},
    {.name = "cross-entropy",
     .types = REALS,
     .text = {X("[45, 300]") I("[45]") /* forward */
              "%l = log_softmax(%x) {axis = 1} : $T[45, 300] %n = iota {axis = 1} : i64[45, 300] "
              "%j = broadcast_in_dim(%i) {dims = [0]} : i64[45, 300] "
              "%h = compare(%n, %j) {direction = eq} : bool[45, 300] "
              "%z = constant {data = 0} : $T[45, 300] %s = select(%h, %l, %z) : $T[45, 300] "
              "%r = reduce(%s) {dims = [1], reducer = add} : $T[45] %o = negate(%r) : $T[45] " OUT,
              X("[45, 300]") I("[45]") Y("[45]") /* backward */
              "%l = softmax(%x) {axis = 1} : $T[45, 300] %n = iota {axis = 1} : i64[45, 300] "
              "%j = broadcast_in_dim(%i) {dims = [0]} : i64[45, 300] "
              "%h = compare(%n, %j) {direction = eq} : bool[45, 300] "
              "%w = convert(%h) : $T[45, 300] %d = subtract(%l, %w) : $T[45, 300] "
              "%g = broadcast_in_dim(%y) {dims = [0]} : $T[45, 300] "
              "%o = multiply(%d, %g) : $T[45, 300] " OUT}},
    {.name = "several results",
     .types = REALS,
     .text = {X("[45, 300]") "%m = reduce(%x) {dims = [1], reducer = maximum} : $T[45] "
                             "%o = softmax(%x) {axis = 1} : $T[45, 300] "
                             "return %m as \"m\", %o as \"o\""}},
    {.name = "sort",
     .types = ALL,
     .text = {X("[9, 300]") "%o, %p = sort(%x) {axis = 1, direction = lt, count = -1} : $T[9, "
                            "300], i64[9, 300] return %o as \"o\", %p as \"p\"",
              X("[9, 300]") "%o, %p = sort(%x) {axis = 1, direction = gt, count = 20} : $T[9, 20], "
                            "i64[9, 20] return %o as \"o\", %p as \"p\"",
              X("[64, 9]") "%o, %p = sort(%x) {axis = 0, direction = lt, count = -1} : $T[64, 9], "
                           "i64[64, 9] return %o as \"o\", %p as \"p\"",
              X("[9, 300]") "%o, %p = sort(%x) {axis = 1, direction = gt, count = 1} : $T[9, 1], "
                            "i64[9, 1] return %o as \"o\", %p as \"p\""}},
    {.name = "scatter",
     .types = ALL,
     .text = {X("[45, 64]") I("[20]") Y("[20, 64]") "%o = scatter(%x, %i, %y) {axis = 0, reducer = "
                                                    "add} : $T[45, 64] " OUT,
              X("[45, 35]") I("[7]") Y("[45, 7]") "%o = scatter(%x, %i, %y) {axis = 1, reducer = "
                                                  "set} : $T[45, 35] " OUT}},
    {.name = "update of a slice",
     .types = ALL,
     .text = {X("[45, 64]") Y("[1, 64]") I("[]") "%o = dynamic_update_slice(%x, %y, %i) {dims = "
                                                 "[0]} : $T[45, 64] " OUT}},
    {.name = "random bits",
     .types = 1u << SX_I64,
     .text = {"%k = parameter {name = \"k\", weight = 0} : i64[] %n = iota {axis = 0} : i64[300] "
              "%b = broadcast_in_dim(%k) {dims = []} : i64[300] "
              "%o = random_bits(%n, %b) : i64[300] " OUT}},
    {.name = "shifts",
     .types = 1u << SX_I8 | 1u << SX_U8 | 1u << SX_I16 | 1u << SX_I32 | 1u << SX_I64,
     .text = {X("[3, 300]") Y("[300]") "%b = broadcast_in_dim(%y) {dims = [1]} : $T[3, 300] "
                                       "%l = shift_left(%x, %b) : $T[3, 300] "
                                       "%a = shift_right_arithmetic(%x, %b) : $T[3, 300] "
                                       "%r = shift_right_logical(%x, %b) : $T[3, 300] "
                                       "return %l as \"l\", %a as \"a\", %r as \"r\""}},
    {.name = "attention",
     .types = FLOATS,
     .text = {QKV("3", "48", "80", "64", "3") PLAIN("3", "80", "64") ATTEND("", "3", "48", "64"),
              QKV("2", "40", "40", "128", "2") /* causal */
              PLAIN("2", "40", "128") "%r = iota {axis = 2} : i32[2, 2, 40, 40] %c = iota {axis = "
                                      "3} : i32[2, 2, 40, 40] "
                                      "%s = compare(%r, %c) {direction = ge} : bool[2, 2, 40, 40] "
                                      "%z = constant {data = 0} : f32[2, 2, 40, 40] "
                                      "%i = constant {data = -inf} : f32[2, 2, 40, 40] "
                                      "%m = select(%s, %z, %i) : f32[2, 2, 40, 40] " ATTEND(
                                          ", %m", "2", "40", "128"),
              QKV("4", "48", "80", "32", "2") /* heads share keys */
              "%k2 = broadcast_in_dim(%k1) {dims = [0, 1, 3, 4]} : f32[2, 2, 2, 80, 32] "
              "%k = reshape(%k2) : f32[2, 4, 80, 32] "
              "%v2 = broadcast_in_dim(%v1) {dims = [0, 1, 3, 4]} : f32[2, 2, 2, 80, 32] "
              "%v = reshape(%v2) : f32[2, 4, 80, 32] " ATTEND("", "4", "48", "32"),
              QKV("1", "32", "64", "256", "1") /* masked */
              PLAIN("1", "64",
                    "256") "%m0 = parameter {name = \"m\", weight = 0} : f32[32, 64] "
                           "%m = broadcast_in_dim(%m0) {dims = [2, 3]} : f32[2, 1, 32, 64] " ATTEND(
                               ", %m", "1", "32", "256")}},
    {.name = "decode attention",
     .types = FLOATS,
     .text = {QKV("2", "1", "1024", "64", "2") PLAIN("2", "1024", "64") ATTEND("", "2", "1", "64"),
              QKV("2", "4", "2048", "128", "2") PLAIN("2", "2048", "128")
                  ATTEND("", "2", "4", "128")}},
};

static inline uint32_t family_layouts(const family *f)
{
    uint32_t count = 0;
    while (f->b == 0 && count < FAMILIES_LAYOUTS && f->text[count] != NULL) {
        count++;
    }
    return f->b > 0 ? FAMILIES_LAYOUTS : count;
}

/* Bytes are multiplied as i32. */
static inline void family_contraction(const family *f, sx_dtype dtype, uint32_t layout, sx_buf *out)
{
    const char *type = sx_dtype_name(dtype);
    bool bytes = sx_dtype_class_of(dtype) != SX_CLASS_FLOAT, shared = f->after == 3;
    const char *sum = bytes ? "i32" : f->after == 2 ? "f32" : type;
    bool turned[2] = {layout / 2 != 0, layout % 2 != 0};
    const int64_t side[2][2] = {{f->m, f->k}, {f->k, f->n}};
    sx_buf_put_text(out, "sx 1 graph \"g\" { ");
    for (uint32_t i = 0; i < 2; i++) {
        char extents[64];
        (void)snprintf(extents, sizeof(extents), "[%lld, %lld, %lld]",
                       (long long)(shared && i == 1 ? 1 : f->b), (long long)side[i][turned[i]],
                       (long long)side[i][!turned[i]]);
        sx_buf_print(out, "%%p%u = parameter {name = \"p%u\", weight = 0} : %s%s ", i, i, type,
                     extents);
        sx_buf_print(out, "%%w%u = %s(%%p%u) : %s%s ", i,
                     strcmp(sum, type) != 0 ? "convert" : "reshape", i, sum, extents);
    }
    if (shared) {
        sx_buf_print(out, "%%s = reshape(%%w1) : %s[%lld, %lld] ", sum,
                     (long long)side[1][turned[1]], (long long)side[1][!turned[1]]);
        sx_buf_print(out, "%%d = dot_general(%%w0, %%s) {lhs_contract = [%u], rhs_contract = [%u]}",
                     turned[0] ? 1u : 2u, turned[1] ? 1u : 0u);
    } else {
        sx_buf_print(
            out,
            "%%d = dot_general(%%w0, %%w1) {lhs_batch = [0], rhs_batch = [0], lhs_contract "
            "= [%u], rhs_contract = [%u]}",
            turned[0] ? 1u : 2u, turned[1] ? 2u : 1u);
    }
    char result[64];
    (void)snprintf(result, sizeof(result), "%s[%lld, %lld, %lld]", sum, (long long)f->b,
                   (long long)f->m, (long long)f->n);
    sx_buf_print(out, " : %s ", result);
    if (f->after == 1) {
        sx_buf_print(out, "%%b = parameter {name = \"b\", weight = 0} : %s[%lld] ", sum,
                     (long long)f->n);
        sx_buf_print(out, "%%c = broadcast_in_dim(%%b) {dims = [2]} : %s ", result);
        sx_buf_print(out, "%%e = add(%%d, %%c) : %s %%o = relu(%%e) : %s ", result, result);
    } else if (f->after == 2) {
        sx_buf_print(out, "%%b = parameter {name = \"b\", weight = 0} : %s ", result);
        sx_buf_print(out, "%%o = add(%%b, %%d) : %s ", result);
    }
    sx_buf_print(out, "return %s as \"o\" }", f->after == 1 || f->after == 2 ? "%o" : "%d");
}

static inline void family_print(const family *f, sx_dtype dtype, uint32_t layout, sx_buf *out)
{
    if (f->b > 0) {
        family_contraction(f, dtype, layout, out);
        return;
    }
    sx_buf_put_text(out, "sx 1 graph \"g\" { ");
    for (const char *p = f->text[layout]; *p != 0; p++) {
        if (p[0] == '$') {
            p++;
            sx_buf_put_text(out, *p == 'T'          ? sx_dtype_name(dtype)
                                 : dtype == SX_BOOL ? "true"
                                                    : "1");
        } else {
            sx_buf_put(out, p, 1);
        }
    }
    sx_buf_put_text(out, " }");
}
#endif
