/* Alarms on a real loop: order, one timer for all, stopping from inside a ring. */
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "daemon/base/alarm.h"

#define ALARMS 64

static sxd_base *base;
static sxd_alarm alarm_[ALARMS];
static uint32_t rung[4 * ALARMS];
static uint32_t rung_count;

static void setup(void)
{
    base = calloc(1, sizeof(*base));
    ck_assert_ptr_nonnull(base);
    ck_assert_int_eq(uv_loop_init(&base->loop), 0);
    ck_assert_int_eq(uv_timer_init(&base->loop, &base->clock), 0);
    base->clock.data = base;
    memset(alarm_, 0, sizeof(alarm_));
    rung_count = 0;
}

static void teardown(void)
{
    ck_assert_ptr_null(base->alarms);
    uv_close((uv_handle_t *)&base->clock, NULL);
    ck_assert_int_eq(uv_run(&base->loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&base->loop), 0);
    free(base);
}

static void note(sxd_alarm *alarm)
{
    ck_assert(!sxd_alarm_is_set(alarm));
    rung[rung_count++] = (uint32_t)(alarm - alarm_);
}

/* Those of earlier times ring first, those of the same time in the order in which they were set, stopped ones never. */
START_TEST(order)
{
    sx_rng rng = {sx_test_seed()};
    uint64_t now = sxd_base_now(base);
    bool stopped[ALARMS];
    for (uint32_t i = 0; i < ALARMS; i++) {
        sxd_alarm_set(base, &alarm_[i], now + sx_rng_next(&rng) % 8, note);
    }
    uint32_t left = ALARMS;
    for (uint32_t i = 0; i < ALARMS; i++) {
        stopped[i] = sx_rng_next(&rng) % 4 == 0;
        if (stopped[i]) {
            sxd_alarm_stop(base, &alarm_[i]);
            sxd_alarm_stop(base, &alarm_[i]); /* twice does nothing */
            left--;
        }
    }
    (void)uv_run(&base->loop, UV_RUN_DEFAULT); /* until no timer runs */
    ck_assert_uint_eq(rung_count, left);
    for (uint32_t i = 0; i < rung_count; i++) {
        ck_assert(!stopped[rung[i]]);
        if (i > 0) {
            const sxd_alarm *a = &alarm_[rung[i - 1]], *b = &alarm_[rung[i]];
            ck_assert(a->at_ms < b->at_ms || (a->at_ms == b->at_ms && a < b));
        }
    }
}
END_TEST

/* Stops the next one, and sets itself again once. */
static void stop_next(sxd_alarm *alarm)
{
    note(alarm);
    sxd_alarm_stop(base, &alarm[1]);
    if (rung_count == 1) {
        sxd_alarm_set(base, alarm, sxd_base_now(base) + 1, note);
    }
}

START_TEST(from_inside_a_ring)
{
    uint64_t now = sxd_base_now(base);
    sxd_alarm_set(base, &alarm_[0], now, stop_next);
    sxd_alarm_set(base, &alarm_[1], now, note);
    sxd_alarm_set(base, &alarm_[2], UINT64_MAX, note); /* never */
    ck_assert(!sxd_alarm_is_set(&alarm_[2]));
    (void)uv_run(&base->loop, UV_RUN_DEFAULT);
    ck_assert_uint_eq(rung_count, 2);
    ck_assert_uint_eq(rung[0], 0);
    ck_assert_uint_eq(rung[1], 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("alarm");
    TCase *cases = tcase_create("alarm");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, order);
    tcase_add_test(cases, from_inside_a_ring);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
