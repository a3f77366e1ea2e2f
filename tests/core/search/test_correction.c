/* Corrections of prices learned from rows: what is hidden in made-up times is found, of kernels that were left out; the
 * text, and texts that are damaged. */
#include "core/search/correction.h"

#include <math.h>

#include "core/base/rng.h"
#include "tests/core/loop/nodes.h"

#define KERNELS 24
#define TRIED 8

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_schedule plan_of(uint32_t rows, uint32_t columns, uint32_t registers)
{
    char text[128];
    sx_schedule schedule;
    (void)snprintf(text, sizeof(text),
                   "grid(b, m/%u, n/%u) loop(n/32, m/%u, k/4) register(k, m, n/16) lane(n)", rows,
                   columns, registers);
    ck_sx_ok(&cx, sx_schedule_parse(&cx, sx_span_of(text), &schedule));
    return schedule;
}

/* Kernels of sizes of their own, whose model knows nothing of registers: more rows of them are faster here. */
static sx_measured made_up(uint64_t seed, double noise)
{
    sx_rng rng = {seed};
    sx_measured m = {.count = 0};
    for (uint32_t k = 0; k < KERNELS; k++) {
        double size = 1000.0 * (1 + (double)sx_rng_below(&rng, 1000));
        for (uint32_t i = 0; i < TRIED; i++) {
            uint32_t registers = 2 + (uint32_t)sx_rng_below(&rng, 13);
            sx_measured_row row = {.machine = "here",
                                   .device = "x86-64-v4",
                                   .date = "2026-11-24",
                                   .kernel = 1 + k,
                                   .runs = 9};
            row.schedule =
                plan_of(32U << sx_rng_below(&rng, 3), 32U << sx_rng_below(&rng, 3), registers);
            row.predicted_ns = floor(size);
            double jitter = noise * (double)sx_rng_below(&rng, 1000) / 1000;
            row.ns = floor(size * 3 * pow(registers, -0.5) * (1 + jitter));
            ck_sx_ok(&cx, sx_measured_put(&cx, &m, &row));
        }
    }
    return m;
}

/* What a block has of the grid counts, be it a block of a cluster or not. */
START_TEST(test_blocks_of_clusters)
{
    static const char inside[] = "loop(k/64) warp(m/64, n/256) matrix(m/64, n/256, k/16) "
                                 "stage(arg0: shared x4, arg1: shared x4)";
    static const char *const grid[] = {
        "grid(b, m/128, n/256) ", "grid(b, m/256, n/256) cluster(m/128) ",
        "grid(b, m/128, n/512) cluster(n/256) ", "grid(b, m/256, n/256) "};
    sx_correction c = {.kernels = 0};
    double factor[SX_COUNT(grid)];
    for (uint32_t i = 0; i < SX_CORRECTION_FEATURES; i++) {
        c.weight[i] = 1e-4 * (1 + i);
    }
    for (uint32_t i = 0; i < SX_COUNT(grid); i++) {
        char text[256];
        sx_schedule schedule;
        (void)snprintf(text, sizeof(text), "%s%s", grid[i], inside);
        ck_sx_ok(&cx, sx_schedule_parse(&cx, sx_span_of(text), &schedule));
        factor[i] = sx_correction_factor(&c, &schedule);
    }
    ck_assert_double_eq(factor[0], factor[1]);
    ck_assert_double_eq(factor[0], factor[2]);
    ck_assert_double_ne(factor[0], factor[3]);
}
END_TEST

START_TEST(test_what_is_hidden_is_found)
{
    sx_measured m = made_up(sx_test_seed(), 0.02);
    sx_correction c;
    sx_correction_score score;
    ck_sx_ok(&cx, sx_correction_fit(&cx, &m, "here", "x86-64-v4", 0, &c));
    ck_assert_uint_eq(c.kernels, KERNELS);
    /* Twice the registers take the root of the time: the ratio of what is learned is near it. */
    sx_schedule few = plan_of(64, 64, 4), many = plan_of(64, 64, 12);
    double ratio = sx_correction_factor(&c, &many) / sx_correction_factor(&c, &few);
    ck_assert_msg(ratio > 0.45 && ratio < 0.75, "%g, by the rule 0.58", ratio);
    ck_sx_ok(&cx, sx_correction_judge(&cx, &m, "here", "x86-64-v4", &score));
    ck_assert_uint_eq(score.kernels, KERNELS);
    /* Jitter is 2 %, and a step of registers between 12 and 14 is 4 %. */
    ck_assert_msg(score.corrected > 0.96 && score.model < 0.9, "%g %g", score.corrected,
                  score.model);
    ck_assert(score.corrected_worst <= score.corrected && score.model_worst <= score.model);
}
END_TEST

/* A kernel says nothing of itself: with its rows exchanged for nonsense, what is learned without it stays the same. */
START_TEST(test_left_out)
{
    sx_measured m = made_up(7, 0.02);
    sx_correction c, again;
    ck_sx_ok(&cx, sx_correction_fit(&cx, &m, "here", "x86-64-v4", 3, &c));
    ck_assert_uint_eq(c.kernels, KERNELS - 1);
    for (uint32_t i = 0; i < m.count; i++) {
        m.row[i].ns = m.row[i].kernel == 3 ? 5 + i : m.row[i].ns;
    }
    ck_sx_ok(&cx, sx_correction_fit(&cx, &m, "here", "x86-64-v4", 3, &again));
    ck_assert_mem_eq(c.weight, again.weight, sizeof(c.weight));
    ck_sx_fails(&cx, sx_correction_fit(&cx, &m, "there", "x86-64-v4", 0, &c), SX_INPUT,
                "0 kernels");
    ck_sx_fails(&cx, sx_correction_fit(&cx, &m, "here", "x86-64-v3", 0, &c), SX_INPUT,
                "8 are needed");
}
END_TEST

START_TEST(test_text)
{
    sx_measured m = made_up(9, 0.02);
    sx_correction c, again;
    sx_buf text;
    sx_buf_init(&text, SX_CORRECTION_TEXT_MAX);
    ck_sx_ok(&cx, sx_correction_fit(&cx, &m, "here", "x86-64-v4", 0, &c));
    sx_correction_print(&c, &text);
    ck_sx_ok(&cx, sx_correction_parse(&cx, sx_buf_span(&text), &again));
    ck_assert_mem_eq(&c, &again, sizeof(c));
    for (size_t i = 0; i < text.len; i++) { /* a bit of each byte, and every shorter text */
        text.ptr[i] ^= 1;
        ck_assert_int_ne(sx_correction_parse(&cx, sx_buf_span(&text), &again), SX_OK);
        sx_ctx_reset_error(&cx);
        text.ptr[i] ^= 1;
        ck_assert_msg(i == 0 || sx_correction_parse(&cx, (sx_span){text.ptr, i}, &again) != SX_OK,
                      "%zu of %zu bytes", i, text.len);
        sx_ctx_reset_error(&cx);
    }
    ck_sx_fails(&cx, sx_correction_parse(&cx, sx_span_of("symplex correction 2\n"), &again),
                SX_INPUT, "'symplex correction 1'");
    ck_sx_ok(&cx, sx_correction_parse(&cx, sx_span_of(""), &again));
    ck_assert_uint_eq(again.kernels, 0);
    sx_buf_fini(&text);
}
END_TEST

/* Behind rows it stays where it is, is taken on its machine alone, and left out where it is damaged. */
START_TEST(test_behind_rows)
{
    sx_measured m = made_up(11, 0.02), read;
    sx_correction c;
    sx_buf text, all;
    sx_span here;
    const char *ignored;
    sx_buf_init(&text, SX_CORRECTION_TEXT_MAX);
    sx_buf_init(&all, SX_MEASURED_TEXT_MAX);
    ck_sx_ok(&cx, sx_correction_fit(&cx, &m, "here", "x86-64-v4", 0, &c));
    sx_correction_print(&c, &text);
    m.correction = sx_buf_span(&text);
    sx_measured_print(&m, &all);
    ck_sx_ok(&cx, sx_measured_parse(&cx, sx_buf_span(&all), &read));
    ck_assert_uint_eq(read.count, m.count);
    ck_assert_uint_eq(read.correction.len, text.len);
    ck_sx_ok(&cx, sx_measured_here(&cx, sx_buf_span(&all), "here", &here, &ignored));
    ck_assert(here.len == all.len && ignored == NULL);
    ck_sx_ok(&cx, sx_measured_here(&cx, sx_buf_span(&all), "there", &here, &ignored));
    ck_assert(here.len == 0 && ignored == NULL);
    all.ptr[all.len - text.len + 60] ^= 1;
    ck_sx_ok(&cx, sx_measured_here(&cx, sx_buf_span(&all), "here", &here, &ignored));
    ck_assert_uint_eq(here.len, all.len - text.len);
    ck_assert(ignored != NULL && strstr(ignored, "damaged") != NULL);
    sx_buf_fini(&text);
    sx_buf_fini(&all);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.search.correction");
    TCase *tcase = tcase_create("correction");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_what_is_hidden_is_found);
    tcase_add_test(tcase, test_blocks_of_clusters);
    tcase_add_test(tcase, test_left_out);
    tcase_add_test(tcase, test_text);
    tcase_add_test(tcase, test_behind_rows);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
