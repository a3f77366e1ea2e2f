/* Extents that are sums of products: their arithmetic against that of their values, their text, what is refused. */
#include <stdio.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/ir/extent.h"
#include "tests/lib/region.h"
#include "tests/lib/test.h"

#define DRAWS 2000u
#define SYMBOLS 3u

static sx_ctx cx;
static sx_graph *graph;

static void setup(void)
{
    static const char *const name[SYMBOLS] = {"a", "b", "c d"};
    sx_ctx_init(&cx, (size_t)64 << 20);
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("g"), NULL, &graph));
    for (uint32_t s = 0; s < SYMBOLS; s++) {
        uint32_t number;
        ck_sx_ok(&cx, sx_graph_add_symbol(&cx, graph, sx_span_of(name[s]), 1 + s, 90, &number));
    }
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Up to `terms` terms of up to `factors` symbols, coefficients from -9 to 9. */
static sx_polynomial draw(sx_rng *rng, uint32_t terms, uint32_t factors)
{
    sx_polynomial sum = {0};
    for (uint32_t i = 0; i < terms; i++) {
        sx_polynomial product, factor;
        int64_t scale = (int64_t)sx_rng_below(rng, 19) - 9;
        ck_assert(sx_polynomial_of(graph->symbol, sx_dim_of(1), &product));
        for (uint32_t k = (uint32_t)sx_rng_below(rng, factors + 1); k > 0; k--) {
            sx_dim symbol = {1, (uint32_t)sx_rng_below(rng, SYMBOLS)};
            ck_assert(sx_polynomial_of(graph->symbol, symbol, &factor));
            ck_assert(sx_polynomial_multiply(&factor, &product, &product));
        }
        ck_assert(sx_polynomial_add(&sum, &product, scale));
    }
    return sum;
}

/* Equal values at these points: no two of the polynomials here that differ have them (degrees and coefficients are
 * small, and the points are powers of a large number). */
static int64_t at_far_point(const sx_polynomial *p)
{
    static const int64_t value[SYMBOLS] = {1000003, 1009, 31};
    int64_t sum = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        int64_t product = p->term[i].scale;
        for (uint32_t k = 0; k < SX_FACTORS_MAX && p->term[i].factor[k] != SX_NO_SYMBOL; k++) {
            product *= value[p->term[i].factor[k]];
        }
        sum += product;
    }
    return sum;
}

START_TEST(arithmetic)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t n = 0; n < DRAWS; n++) {
        sx_polynomial a = draw(&rng, 2, 1), b = draw(&rng, 3, 1), c;
        int64_t x = at_far_point(&a), y = at_far_point(&b);
        ck_assert(sx_polynomial_multiply(&a, &b, &c));
        ck_assert_int_eq(at_far_point(&c), x * y);
        sx_polynomial quotient;
        if (b.count > 0) {
            ck_assert(sx_polynomial_divide(&c, &b, &quotient));
            ck_assert_int_eq(sx_polynomial_compare(&quotient, &a), 0);
        }
        sx_polynomial sum = a, one;
        ck_assert(sx_polynomial_add(&sum, &b, -3));
        ck_assert_int_eq(at_far_point(&sum), x - 3 * y);
        ck_assert(sx_polynomial_of(graph->symbol, sx_dim_of(1), &one));
        bool rest = b.count > 0 && sx_polynomial_add(&c, &one, 1) &&
                    sx_polynomial_divide(&c, &b, &quotient);
        ck_assert(!rest || b.count == 1); /* 1 is a multiple of 1 and -1 alone */
        int64_t value[SYMBOLS] = {7, 11, 13};
        int64_t expected = 0;
        for (uint32_t i = 0; i < sum.count; i++) {
            int64_t product = sum.term[i].scale;
            for (uint32_t k = 0; k < SX_FACTORS_MAX && sum.term[i].factor[k] != SX_NO_SYMBOL; k++) {
                product *= value[sum.term[i].factor[k]];
            }
            expected += product;
        }
        ck_assert_int_eq(sx_polynomial_value(&sum, value), expected);
    }
}
END_TEST

/* Bounds against all values in a small box: none is outside, and without squares they are least and greatest. */
START_TEST(bounds)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t linear = 0;
    for (uint32_t s = 0; s < SYMBOLS; s++) {
        graph->symbol[s].high = graph->symbol[s].low + 3;
    }
    for (uint32_t n = 0; n < DRAWS; n++) {
        sx_polynomial p = draw(&rng, 3, 2);
        int64_t low, high, least = INT64_MAX, most = INT64_MIN;
        bool squares = false;
        for (uint32_t i = 0; i < p.count; i++) {
            squares = squares || (p.term[i].factor[0] != SX_NO_SYMBOL &&
                                  p.term[i].factor[0] == p.term[i].factor[1]);
        }
        for (uint32_t point = 0; point < 64; point++) {
            int64_t value[SYMBOLS];
            for (uint32_t s = 0; s < SYMBOLS; s++) {
                value[s] = graph->symbol[s].low + (int64_t)(point >> 2 * s & 3);
            }
            int64_t here = sx_polynomial_value(&p, value);
            least = here < least ? here : least;
            most = here > most ? here : most;
        }
        ck_assert(sx_polynomial_bounds(graph->symbol, &p, &low, &high));
        ck_assert_int_le(low, least);
        ck_assert_int_ge(high, most);
        ck_assert(squares || (low == least && high == most));
        linear += !squares;
    }
    ck_assert_uint_gt(linear, DRAWS / 4);
}
END_TEST

/* What has a row is found again, printed and read again, and lies within its bounds. */
START_TEST(rows)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t kept = 0;
    for (uint32_t n = 0; n < DRAWS; n++) {
        sx_polynomial p = draw(&rng, 3, 2), back;
        sx_dim dim, again;
        graph->symbol_count = SYMBOLS; /* as it was made */
        if (sx_graph_add_extent(&cx, graph, &p, &dim) != SX_OK) {
            ck_assert(cx.error.code == SX_INPUT || cx.error.code == SX_LIMIT);
            sx_ctx_reset_error(&cx);
            continue;
        }
        kept++;
        ck_assert(sx_extent_find(graph->symbol, graph->symbol_count, &p, &again));
        ck_assert(sx_dim_equal(dim, again));
        ck_assert(sx_polynomial_of(graph->symbol, dim, &back));
        ck_assert_int_eq(sx_polynomial_compare(&back, &p), 0);
        for (uint32_t k = 0; k < 8; k++) {
            int64_t value[SX_SYMBOLS_MAX] = {0};
            for (uint32_t s = 0; s < SYMBOLS; s++) {
                const sx_symbol *own = &graph->symbol[s];
                uint64_t room = k < 2 ? 1 : (uint64_t)(own->high - own->low) + 1;
                value[s] = k == 1 ? own->high : own->low + (int64_t)sx_rng_below(&rng, room);
            }
            sx_symbols_derive(graph->symbol, graph->symbol_count, value);
            if (!sx_dim_is_constant(dim)) {
                const sx_symbol *row = &graph->symbol[dim.symbol];
                ck_assert_int_ge(value[dim.symbol], row->low);
                ck_assert_int_le(value[dim.symbol], row->high);
                ck_assert_int_eq(dim.scale * value[dim.symbol], sx_polynomial_value(&p, value));
            }
        }
        sx_type type = {.dtype = SX_BOOL, .rank = 1, .dim = {dim}};
        sx_buf text;
        sx_graph *read;
        sx_buf_init(&text, 65536);
        sx_buf_put_text(&text,
                        "sx 1 graph \"g\" (a in [1, 90], b in [2, 90], \"c d\" in [3, 90]) { "
                        "%x = parameter {name = \"x\", weight = 0} : ");
        sx_type_print(&type, graph->symbol, graph->symbol_count, &text);
        sx_buf_put_text(&text, " return %x as \"x\" }");
        sx_code code = sx_graph_parse(&cx, sx_buf_span(&text), &read);
        ck_assert_msg(code == SX_OK, "%s\n%.*s", cx.error.text, (int)text.len, (char *)text.ptr);
        ck_assert(sx_polynomial_of(read->symbol, read->node[0].type.dim[0], &back));
        ck_assert_int_eq(sx_polynomial_compare(&back, &p), 0);
        sx_buf_fini(&text);
    }
    ck_assert_uint_gt(kept, DRAWS / 4);
}
END_TEST

#define HEAD                                                                                     \
    "sx 1 graph \"g\" (b in [1, 4], s in [2, 8]) { %x = parameter {name = \"x\", weight = 0} : " \
    "f32["
#define Y "] %y = "
#define TAIL " return %y as \"y\" }"

START_TEST(programs)
{
    static const struct {
        const char *x, *y, *error; /* NULL: it is a program */
    } row[] = {
        {"b, s, 4", "reshape(%x) : f32[s*b, 4]", NULL},
        {"b*s, 4", "reshape(%x) : f32[b, 2, 2*s]", NULL},
        {"b + s, b + s", "reshape(%x) : f32[b*b + 2*b*s + s*s]", NULL},
        {"b + s, 3", "reshape(%x) : f32[3*b + 3*s]", NULL},
        {"b + s, 3", "reshape(%x) : f32[3*b + 2*s]", "operand 0 has 3*b + s elements"},
        {"b, s", "concatenate(%x, %x) {axis = 0} : f32[2*b, s]", NULL},
        {"s - 1", "negate(%x) : f32[s - 1]", NULL},
        {"s - 1", "negate(%x) : f32[-1 + s]", NULL},
        {"10 - s", "negate(%x) : f32[10 - s]", NULL},
        {"b*s - b", "negate(%x) : f32[b*s - b]", NULL},
        {"b*s - 2*b", "negate(%x) : f32[1]", "by the bounds of its symbols from 0 on"},
        {"b - s + s", "negate(%x) : f32[b]", NULL},
        {"0*b", "negate(%x) : f32[0]", NULL},
        {"s - 2", "negate(%x) : f32[s - 2]",
         "extent s - 2: by the bounds of its symbols from 0 on"},
        {"b*b - b*s", "negate(%x) : f32[1]",
         "extent b*b - b*s: by the bounds of its symbols from -31 on"},
        {"3 - 4", "negate(%x) : f32[1]", "extent -1, at least 0"},
        {"b*t", "negate(%x) : f32[1]", "symbol \"t\" is not declared"},
        {"b*b*b*b*s*s*s", "negate(%x) : f32[1]", "a product of more than 6 symbols"},
        {"b +", "negate(%x) : f32[1]", "expected an extent, found ']'"},
        {"1000000000000*b", "negate(%x) : f32[1]", "up to 4000000000000, at most 1099511627776"},
        {"1000000000000*b + 1", "negate(%x) : f32[1]", "its terms are beyond 1099511627776"},
        {"b + s", "slice(%x) {start = [0], limit = [3], stride = [1]} : f32[3]", NULL},
        {"b + s", "slice(%x) {start = [0], limit = [4], stride = [1]} : f32[4]", "which can be 3"},
    };
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        char text[512];
        sx_graph *made;
        (void)snprintf(text, sizeof(text), "%s%s%s%s%s", HEAD, row[i].x, Y, row[i].y, TAIL);
        sx_code code = sx_graph_parse(&cx, sx_span_of(text), &made);
        bool as_said = row[i].error == NULL ? code == SX_OK
                                            : code != SX_OK && strstr(cx.error.text, row[i].error);
        ck_assert_msg(as_said, "%s\n%s", text, cx.error.text);
        sx_ctx_reset_error(&cx);
    }
}
END_TEST

/* Two ways to write one program. The sum that nothing needs is gone, and a body has the rows that come behind it. */
START_TEST(one_key)
{
    static const char *const text[2] = {
        "sx 1 graph \"one\" (n in [1, 4], m in [2, 8]) { "
        "%x = parameter {name = \"x\", weight = 0} : f32[n, m] "
        "%c = parameter {name = \"c\", weight = 0} : f32[m] "
        "%d = parameter {name = \"d\", weight = 0} : f32[m - 1] "
        "%l, %r = scan(%c, %x) {carried = 1, sliced = 1, step = graph { "
        "%c = parameter {name = \"c\", weight = 0} : f32[m] "
        "%x = parameter {name = \"x\", weight = 0} : f32[m] "
        "%t = concatenate(%c, %x, %x) {axis = 0} : f32[3*m] %s = add(%c, %x) : f32[m] "
        "return %s as \"s\", %s as \"t\" }} : f32[m], f32[n, m] "
        "%f = reshape(%r) : f32[n*m] %j = concatenate(%f, %d) {axis = 0} : f32[n*m + m - 1] "
        "return %j as \"j\", %l as \"l\" }",
        "sx 1 graph \"two\" (m in [2, 8], n in [1, 4], m*n - 1 + m, n + 7) { "
        "%x = parameter {name = \"x\", weight = 0} : f32[n, m] "
        "%c = parameter {name = \"c\", weight = 0} : f32[m] "
        "%d = parameter {name = \"d\", weight = 0} : f32[-1 + m] "
        "%dead = iota {axis = 0} : i64[n + 6] "
        "%l, %r = scan(%c, %x) {carried = 1, sliced = 1, step = graph { "
        "%c = parameter {name = \"q\", weight = 0} : f32[m] "
        "%x = parameter {name = \"x\", weight = 0} : f32[m] "
        "%s = add(%c, %x) : f32[m] return %s as \"s\", %s as \"t\" }} : f32[m], f32[n, m] "
        "%f = reshape(%r) : f32[m*n] %j = concatenate(%f, %d) {axis = 0} : f32[m*n + m - 1] "
        "return %j as \"j\", %l as \"l\" }"};
    sx_key key[2];
    for (uint32_t i = 0; i < 2; i++) {
        sx_graph *canonical, *bound;
        const sx_binding binding[] = {{SX_SPAN_LITERAL("m"), 5}, {SX_SPAN_LITERAL("n"), 3}};
        ck_sx_ok(&cx, sx_graph_canon(&cx, sx_test_parse(&cx, text[i]), &canonical));
        ck_sx_ok(&cx, sx_graph_check(&cx, canonical));
        ck_assert_uint_eq(canonical->symbol_count, 5); /* m, n, m*n + m - 1, m*n, m - 1 */
        ck_sx_ok(&cx, sx_graph_key(&cx, canonical, &key[i]));
        ck_sx_ok(&cx, sx_graph_bind(&cx, canonical, binding, 2, &bound));
        sx_node_id joined = bound->output[0].node;
        ck_assert_int_eq(sx_graph_node(bound, joined)->type.dim[0].scale, 3 * 5 + 5 - 1);
    }
    ck_assert(sx_key_equal(&key[0], &key[1]));
}
END_TEST

/* Only declared symbols are bound. */
START_TEST(binding)
{
    sx_graph *bound;
    const sx_graph *made = sx_test_parse(&cx, HEAD "b + s" Y "negate(%x) : f32[b + s]" TAIL);
    sx_binding all[] = {
        {SX_SPAN_LITERAL("b"), 2}, {SX_SPAN_LITERAL("s"), 3}, {SX_SPAN_LITERAL("b + s"), 5}};
    ck_sx_ok(&cx, sx_graph_bind(&cx, made, all, 2, &bound));
    ck_assert_int_eq(bound->node[0].type.dim[0].scale, 5);
    ck_sx_fails(&cx, sx_graph_bind(&cx, made, all, 3, &bound), SX_INPUT, "\"b + s\" is unknown");
    ck_sx_fails(&cx, sx_graph_bind(&cx, made, all, 1, &bound), SX_INPUT, "\"s\" has no value");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.ir.extent");
    TCase *tcase = tcase_create("extent");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, arithmetic);
    tcase_add_test(tcase, rows);
    tcase_add_test(tcase, bounds);
    tcase_add_test(tcase, programs);
    tcase_add_test(tcase, one_key);
    tcase_add_test(tcase, binding);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
