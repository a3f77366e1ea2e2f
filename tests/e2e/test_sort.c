/* Compiled sorts of every element type, bit for bit against the definition written here: equal elements in the order of
 * their indices, zeros of both signs, infinities, NaN. */
#include "tests/lib/compiled.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/ir/num.h"

#define ROWS 3
#define LONG 70 /* many more than the places that are found one after the other */

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};

/* x is [ROWS, LONG] where the axis is 1, else [LONG, ROWS]. */
typedef struct {
    const char *text;
    uint32_t axis, count;
    bool falls;
} request;
static const request requests[] = {
    {"%v, %i = sort(%x) {axis = 1, direction = lt, count = -1} : T[3, 70], i64[3, 70]", 1, LONG,
     false},
    {"%v, %i = sort(%x) {axis = 1, direction = gt, count = 40} : T[3, 40], i64[3, 40]", 1, 40,
     true},
    {"%v, %i = sort(%x) {axis = 0, direction = gt, count = 70} : T[70, 3], i64[70, 3]", 0, LONG,
     true},
    {"%v, %i = sort(%x) {axis = 1, direction = lt, count = 4} : T[3, 4], i64[3, 4]", 1, 4, false},
    {"%v, %i = sort(%x) {axis = 0, direction = gt, count = 4} : T[4, 3], i64[4, 3]", 0, 4, true},
    {"%v, %i = sort(%x) {axis = 0, direction = lt, count = 1} : T[1, 3], i64[1, 3]", 0, 1, false},
    {"%v, %i = sort(%x) {axis = 1, direction = gt, count = 1} : T[3, 1], i64[3, 1]", 1, 1, true},
};

static void write_text(sx_buf *text, const request *r, const char *dtype)
{
    char all[512];
    (void)snprintf(
        all, sizeof(all),
        "sx 1\ngraph \"sort\" {\n%%x = parameter {name = \"x\", weight = 0} : T[%s]\n%s\n"
        "return %%v as \"v\", %%i as \"i\"\n}\n",
        r->axis == 1 ? "3, 70" : "70, 3", r->text);
    for (const char *p = all; *p != '\0'; p++) {
        if (p[0] == 'T' && p[1] == '[') {
            sx_buf_put_text(text, dtype);
        } else {
            sx_buf_put_u8(text, (uint8_t)*p);
        }
    }
}

/* The first row is nothing but NaN, where there is one, and the second nothing but the lowest and NaN. */
static uint64_t draw(sx_rng *rng, sx_dtype dtype, uint32_t row)
{
    static const double special[] = {(double)NAN, HUGE_VAL, -HUGE_VAL, -0.0, 0.0};
    int64_t small = (int64_t)sx_rng_below(rng, 9) - 4;
    uint64_t which = sx_rng_below(rng, 12);
    if (sx_dtype_class_of(dtype) != SX_CLASS_FLOAT) {
        small = dtype == SX_U8 ? small + 4 : dtype == SX_BOOL ? small > 0 : small;
        small = which == 0 && dtype != SX_BOOL ? sx_num_int_min(dtype) : small;
        return sx_num_int_encode(dtype, small);
    }
    if (row < 2) {
        which = row == 0 || which < 4 ? 0 : 2;
    }
    double value = which < SX_COUNT(special) ? special[which] : (double)small / 2;
    bool lacks = dtype == SX_F8E4M3 && isinf(value); /* the type has no infinity */
    return sx_num_encode(dtype, lacks ? copysign(448, value) : value);
}

static bool is_before(sx_dtype dtype, bool falls, uint64_t a, uint64_t b, bool earlier)
{
    uint64_t low = falls ? b : a, high = falls ? a : b;
    if (sx_dtype_class_of(dtype) != SX_CLASS_FLOAT) {
        int64_t x = sx_num_int_decode(dtype, low), y = sx_num_int_decode(dtype, high);
        return x < y || (x == y && earlier);
    }
    double x = sx_num_decode(dtype, low), y = sx_num_decode(dtype, high);
    if (isnan(x) || isnan(y)) {
        return isnan(y) && (!isnan(x) || earlier);
    }
    return x < y || (x == y && earlier);
}

static void check(const request *r, sx_dtype dtype, const void *x, const void *v, const void *index)
{
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t i = 0; i < LONG; i++) {
            uint32_t rank = 0, at = r->axis == 1 ? row * LONG + i : i * ROWS + row;
            uint64_t own = sx_num_load(dtype, x, at);
            for (uint32_t j = 0; j < LONG; j++) {
                uint32_t other = r->axis == 1 ? row * LONG + j : j * ROWS + row;
                rank += is_before(dtype, r->falls, sx_num_load(dtype, x, other), own, j < i);
            }
            if (rank >= r->count) {
                continue;
            }
            uint32_t place = r->axis == 1 ? row * r->count + rank : rank * ROWS + row;
            uint64_t got = sx_num_load(dtype, v, place);
            bool real = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
            double value = real ? sx_num_decode(dtype, own) : 0;
            if (dtype == SX_F8E5M2 && isinf(value)) { /* arithmetic of 8 bits saturates */
                own = sx_num_encode(dtype, copysign(57344, value));
            }
            bool same = real && isnan(value) ? isnan(sx_num_decode(dtype, got)) : got == own;
            ck_assert_msg(same, "%s of %s: place %u is %llx, not %llx", r->text,
                          sx_dtype_name(dtype), place, (unsigned long long)got,
                          (unsigned long long)own);
            ck_assert_msg(((const int64_t *)index)[place] == i,
                          "%s of %s: index %lld at %u, not %u", r->text, sx_dtype_name(dtype),
                          (long long)((const int64_t *)index)[place], place, i);
        }
    }
}

static void try_one(sx_rng *rng, const request *r, sx_dtype dtype, const char *target)
{
    sx_ctx cx;
    sx_buf text, module;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&text, 1 << 12);
    sx_buf_init(&module, (size_t)16 << 20);
    write_text(&text, r, sx_dtype_name(dtype));
    sx_buf_put_u8(&text, 0);
    sx_test_request asked = {.text = (const char *)text.ptr, .target = target};
    ck_sx_ok(&cx, sx_test_compile(&cx, &asked, &module));
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 2, SX_FILL_EXACT);
    void *x = sxr_memory(program, sxr_find(program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("x")));
    for (uint32_t k = 0; k < ROWS * LONG; k++) {
        uint32_t row = r->axis == 1 ? k / LONG : k % ROWS;
        sx_num_store(dtype, x, k, draw(rng, dtype, row));
    }
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    check(r, dtype, x,
          sxr_memory(program, sxr_find(program, SX_TENSOR_OUTPUT, SX_SPAN_LITERAL("v"))),
          sxr_memory(program, sxr_find(program, SX_TENSOR_OUTPUT, SX_SPAN_LITERAL("i"))));
    sxr_close(program);
    sx_buf_fini(&module);
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}

/* The place of the first in order, and nothing else, of rows with all remainders by lanes and accumulators. */
static void try_index_alone(sx_rng *rng, sx_dtype dtype, bool falls, uint32_t length,
                            const char *target)
{
    sx_ctx cx;
    sx_buf module;
    char text[512];
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&module, (size_t)16 << 20);
    const char *name = sx_dtype_name(dtype);
    (void)snprintf(
        text, sizeof(text),
        "sx 1\ngraph \"first\" {\n%%x = parameter {name = \"x\", weight = 0} : %s[%d, %u]\n"
        "%%v, %%i = sort(%%x) {axis = 1, direction = %s, count = 1} : %s[%d, 1], i64[%d, "
        "1]\nreturn %%i as \"i\"\n}\n",
        name, ROWS, length, falls ? "gt" : "lt", name, ROWS, ROWS);
    sx_test_request asked = {.text = text, .target = target};
    ck_sx_ok(&cx, sx_test_compile(&cx, &asked, &module));
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 2, SX_FILL_EXACT);
    void *x = sxr_memory(program, sxr_find(program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("x")));
    for (uint32_t k = 0; k < ROWS * length; k++) {
        sx_num_store(dtype, x, k, draw(rng, dtype, k / length));
    }
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    const int64_t *index =
        sxr_memory(program, sxr_find(program, SX_TENSOR_OUTPUT, SX_SPAN_LITERAL("i")));
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < length; i++) {
            uint64_t here = sx_num_load(dtype, x, row * length + i);
            uint64_t best = sx_num_load(dtype, x, row * length + first);
            first = is_before(dtype, falls, here, best, false) ? i : first;
        }
        ck_assert_msg(index[row] == first, "%s of %s, %u elements: %lld, not %u", asked.text, name,
                      length, (long long)index[row], first);
    }
    sxr_close(program);
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
}

START_TEST(index_alone)
{
    static const uint32_t lengths[] = {7, 17, 33, 40, 48, 50, 63, 64, 65, 100, 130};
    static const sx_dtype dtypes[] = {SX_F32, SX_F64, SX_BF16, SX_I32};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < SX_COUNT(lengths); i++) {
        sx_dtype dtype = dtypes[_i];
        try_index_alone(&rng, dtype, true, lengths[i], targets[i % 2]);
        try_index_alone(&rng, dtype, false, lengths[i], targets[1 - i % 2]);
    }
}
END_TEST

START_TEST(every_type)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t t = 0; t < SX_COUNT(targets); t++) {
        for (uint32_t k = 0; k < SX_COUNT(requests) && sx_test_can_run(targets[t]); k++) {
            try_one(&rng, &requests[k], (sx_dtype)_i, targets[t]);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.sort");
    TCase *tcase = tcase_create("types");
    tcase_set_timeout(tcase, 400);
    tcase_add_loop_test(tcase, every_type, 0, SX_DTYPE_COUNT);
    tcase_add_loop_test(tcase, index_alone, 0, 4);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
