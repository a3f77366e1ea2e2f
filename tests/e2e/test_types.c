/* Programs of every element type, compiled for both levels and compared whole with the program that was sent; and the
 * look-up of a network that people export, with indices of i64. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "client/verify/verify.h"

/* T is the type. */
typedef struct {
    const char *name, *text;
    bool floats; /* has a meaning for floats alone */
} program;

static const program programs[] = {
    {"contraction",
     "%x = parameter {name = \"x\", weight = 0} : T[9, 40]\n"
     "%w = parameter {name = \"w\", weight = 1} : T[40, 50]\n"
     "%b = parameter {name = \"b\", weight = 1} : T[50]\n"
     "%0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : T[9, 50]\n"
     "%1 = broadcast_in_dim(%b) {dims = [1]} : T[9, 50]\n"
     "%2 = add(%0, %1) : T[9, 50]\n"
     "%3 = maximum(%2, %1) : T[9, 50]\n"
     "%4 = reduce(%3) {dims = [1], reducer = maximum} : T[9]\n"
     "return %3 as \"y\", %4 as \"m\"\n",
     false},
    {"moves",
     "%x = parameter {name = \"x\", weight = 0} : T[7, 13]\n"
     "%i = parameter {name = \"i\", weight = 0} : i64[5]\n"
     "%z = constant {data = 1} : T[]\n"
     "%0 = transpose(%x) {perm = [1, 0]} : T[13, 7]\n"
     "%1 = gather(%0, %i) {axis = 0} : T[5, 7]\n"
     "%2 = concatenate(%0, %1) {axis = 0} : T[18, 7]\n"
     "%3 = pad(%2, %z) {low = [1, 0], high = [0, 2], interior = [0, 1]} : T[19, 15]\n"
     "%4 = reverse(%3) {dims = [0]} : T[19, 15]\n"
     "%5 = add(%4, %3) : T[19, 15]\n"
     "return %5 as \"y\"\n",
     false},
    {"attention",
     "%q = parameter {name = \"q\", weight = 0} : T[2, 20, 16]\n"
     "%k = parameter {name = \"k\", weight = 0} : T[2, 24, 16]\n"
     "%v = parameter {name = \"v\", weight = 0} : T[2, 24, 16]\n"
     "%0 = attention(%q, %k, %v) {scale = 0.25} : T[2, 20, 16]\n"
     "%1 = softmax(%0) {axis = 2} : T[2, 20, 16]\n"
     "return %1 as \"y\"\n",
     true},
    {"convolution",
     "%x = parameter {name = \"x\", weight = 0} : T[1, 4, 9, 9]\n"
     "%w = parameter {name = \"w\", weight = 1} : T[8, 4, 3, 3]\n"
     "%0 = convolution(%x, %w) {stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], "
     "groups = 1} : T[1, 8, 9, 9]\n"
     "%1 = relu(%0) : T[1, 8, 9, 9]\n"
     "return %1 as \"y\"\n",
     true},
    {"grouped convolution", /* the weights are the left factor */
     "%x = parameter {name = \"x\", weight = 0} : T[1, 4, 1, 1]\n"
     "%w = parameter {name = \"w\", weight = 1} : T[4, 1, 3, 1]\n"
     "%0 = convolution(%x, %w) {stride = [3, 1], low = [0, 1], high = [2, 0], dilation = [1, 1], "
     "groups = 4} : T[1, 4, 1, 2]\n"
     "return %0 as \"y\"\n",
     false},
    {"functions",
     "%x = parameter {name = \"x\", weight = 0} : T[5, 33]\n"
     "%y = parameter {name = \"y\", weight = 0} : T[5, 33]\n"
     "%0 = erf(%x) : T[5, 33]\n"
     "%1 = gelu(%y) : T[5, 33]\n"
     "%2 = gelu_tanh(%x) : T[5, 33]\n"
     "%3 = sine(%x) : T[5, 33]\n"
     "%4 = cosine(%y) : T[5, 33]\n"
     "%5 = abs(%x) : T[5, 33]\n"
     "%6 = power(%5, %y) : T[5, 33]\n"
     "%7 = remainder(%x, %y) : T[5, 33]\n"
     "return %0 as \"a\", %1 as \"b\", %2 as \"c\", %3 as \"d\", %4 as \"e\", %6 as \"f\", %7 as "
     "\"g\"\n",
     true},
    {"integers",
     "%x = parameter {name = \"x\", weight = 0} : T[5, 33]\n"
     "%y = parameter {name = \"y\", weight = 0} : T[5, 33]\n"
     "%0 = remainder(%x, %y) : T[5, 33]\n"
     "%1 = reduce(%x) {dims = [1], reducer = multiply} : T[5]\n"
     "return %0 as \"a\", %1 as \"b\"\n",
     false},
    {"sort", /* by ranks and by turns, along either axis; of integers many are equal */
     "%x = parameter {name = \"x\", weight = 0} : T[37, 3]\n"
     "%a, %b = sort(%x) {axis = 0, direction = lt, count = -1} : T[37, 3], i64[37, 3]\n"
     "%c, %d = sort(%x) {axis = 1, direction = gt, count = 2} : T[37, 2], i64[37, 2]\n"
     "%e, %f = sort(%x) {axis = 0, direction = gt, count = 2} : T[2, 3], i64[2, 3]\n"
     "%h = sort(%x) {axis = 1, direction = lt, count = 1, result = 1} : i64[37, 1]\n"
     "return %a as \"a\", %b as \"b\", %c as \"c\", %d as \"d\", %e as \"e\", %f as \"f\", %h as "
     "\"h\"\n",
     false},
    {"conversions",
     "%x = parameter {name = \"x\", weight = 0} : T[5, 33]\n"
     "%0 = convert(%x) : f32[5, 33]\n"
     "%1 = convert(%x) : i64[5, 33]\n"
     "%2 = convert(%1) : bf16[5, 33]\n"
     "%3 = convert(%0) : f16[5, 33]\n"
     "%4 = convert(%0) : T[5, 33]\n"
     "return %2 as \"a\", %3 as \"b\", %4 as \"c\"\n",
     false},
};

static const struct {
    const char *name;
    bool is_float;
} types[] = {{"f64", true},    {"f32", true},    {"bf16", true}, {"f16", true},
             {"f8e4m3", true}, {"f8e5m2", true}, {"i64", false}, {"i32", false},
             {"i16", false},   {"i8", false},    {"u8", false}};

/* The text with the type in the place of each T in front of an extent. */
static void write_text(sx_buf *text, const char *body, const char *type)
{
    sx_buf_put_text(text, "sx 1\ngraph \"g\" () {\n");
    for (const char *p = body; *p != '\0'; p++) {
        if (p[0] == 'T' && p[1] == '[') {
            sx_buf_put_text(text, type);
        } else {
            sx_buf_put_u8(text, (uint8_t)*p);
        }
    }
    sx_buf_put_text(text, "}\n");
}

static void compile(sx_span text, const char *target, const char *what)
{
    sx_ctx cx;
    sx_buf module;
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_buf_init(&module, (size_t)1 << 24);
    sx_core_request request = {.ir = text, .target = sx_span_of(target)};
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    options.seed = sx_test_seed();
    sx_code code = sxr_compile_verified(&cx, &request, &options, &module);
    ck_assert_msg(code == SX_OK, "%s for %s: %s", what, target, cx.error.text);
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
}

START_TEST(test_types)
{
    static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
    for (uint32_t p = 0; p < SX_COUNT(programs); p++) {
        if (programs[p].floats && !types[_i].is_float) {
            continue;
        }
        for (uint32_t t = 0; t < SX_COUNT(targets); t++) {
            char what[64];
            sx_buf text;
            sx_buf_init(&text, 1 << 16);
            write_text(&text, programs[p].text, types[_i].name);
            (void)snprintf(what, sizeof(what), "%s of %s", programs[p].name, types[_i].name);
            compile(sx_buf_span(&text), targets[t], what);
            sx_buf_fini(&text);
        }
    }
}
END_TEST

/* Negative indices are mended as exporters write it, and a mask of i64 goes into the scores. */
START_TEST(test_embedding)
{
    static const char text[] = "sx 1\ngraph \"emb\" () {\n"
                               "%ids = parameter {name = \"ids\", weight = 0} : i64[2, 12]\n"
                               "%mask = parameter {name = \"mask\", weight = 0} : i64[2, 12]\n"
                               "%w = parameter {name = \"w\", weight = 1} : f32[100, 16]\n"
                               "%zero = constant {data = 0} : i64[2, 12]\n"
                               "%n = constant {data = 100} : i64[2, 12]\n"
                               "%neg = compare(%ids, %zero) {direction = lt} : bool[2, 12]\n"
                               "%up = add(%ids, %n) : i64[2, 12]\n"
                               "%at = select(%neg, %up, %ids) : i64[2, 12]\n"
                               "%e = gather(%w, %at) {axis = 0} : f32[2, 12, 16]\n"
                               "%m = convert(%mask) : f32[2, 12]\n"
                               "%far = constant {data = -10000} : f32[2, 12]\n"
                               "%bias = multiply(%m, %far) : f32[2, 12]\n"
                               "%wide = broadcast_in_dim(%bias) {dims = [0, 2]} : f32[2, 12, 12]\n"
                               "%a = attention(%e, %e, %e, %wide) {scale = 0.25} : f32[2, 12, 16]\n"
                               "return %a as \"y\"\n}\n";
    compile(sx_span_of(text), _i == 0 ? "x86-64-v3" : "x86-64-v4", "embedding");
}
END_TEST

/* Positions in a product of 64 bits, whose upper halves are nothing, and in a comparison that is true for the first one
 * alone: of each lane of a short row, and of a loop. And positions between bounds, that a comparison then asks for what
 * the bounds exclude. */
START_TEST(test_positions)
{
    static const int extents[] = {5, 7, 64, 1000};
    static const char *const bodies[] = {
        "arg 0 : i64, imm 4, index 0, multiply 2 1, add 0 3, multiply 4 2, imm 0 : i64, compare ge "
        "6 2 : bool, select 7 5 0",
        "imm 4, imm 3, imm 0, imm -2, index 0, add 4 3, maximum 5 2, minimum 6 1, add 7 0, compare "
        "lt 7 2 : bool, arg 0, select 9 8 10",
        "imm 0, index 0, maximum 1 0, compare lt 2 0 : bool, arg 0, select 3 2 4",
        "imm 3, index 0, minimum 1 0, imm -2, add 2 3, imm 0, compare lt 4 5 : bool, arg 0, select "
        "6 4 7",
        "imm 3, index 0, minimum 1 0, imm 2, subtract 3 2, imm 0, compare lt 4 5 : bool, arg 0, "
        "select 6 4 7",
    };
    for (uint32_t k = 0; k < SX_COUNT(extents) * SX_COUNT(bodies); k++) {
        char text[512];
        int extent = extents[k / SX_COUNT(bodies)];
        (void)snprintf(
            text, sizeof(text),
            "sx 1\ngraph \"places\" () {\n%%x = parameter {name = \"x\", weight = 0} : i64[%d]\n"
            "%%y = fused(%%x) {type = i64[%d], body = {args = [[1]], code = [%s]}} : i64[%d]\n"
            "return %%y as \"y\"\n}\n",
            extent, extent, bodies[k % SX_COUNT(bodies)], extent);
        compile(sx_span_of(text), _i == 0 ? "x86-64-v3" : "x86-64-v4", "positions");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.types");
    TCase *cases = tcase_create("types");
    tcase_set_timeout(cases, 400);
    tcase_add_loop_test(cases, test_types, 0, (int)SX_COUNT(types));
    tcase_add_loop_test(cases, test_embedding, 0, 2);
    tcase_add_loop_test(cases, test_positions, 0, 2);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
