/* search.db: what is put comes back, what is damaged is noticed, and numbers are never given twice. */
#include "tests/lib/test.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/search_db.h"
#include "core/base/rng.h"

static char dir[256];
static sx_ctx cx;
static sx_search_db *db;

static void open_db(bool expect_aside)
{
    bool aside;
    ck_sx_ok(&cx, sx_search_db_open(&cx, dir, &db, &aside));
    ck_assert_int_eq(aside, expect_aside);
}

static void shut(void)
{
    sx_search_db_close(db);
    db = NULL;
}

static void setup(void)
{
    sx_test_mkdtemp(dir);
    sx_ctx_init(&cx, (size_t)256 << 20);
    open_db(false);
}

static void teardown(void)
{
    shut();
    sx_ctx_fini(&cx);
    sx_test_rmtree(dir);
}

static void run_sql(const char *text)
{
    char path[512];
    char *error = NULL;
    sqlite3 *file = NULL;
    (void)snprintf(path, sizeof(path), "%s/search.db", dir);
    ck_assert_int_eq(sqlite3_open(path, &file), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(file, text, NULL, NULL, &error) == SQLITE_OK, "%s: %s", text, error);
    ck_assert_int_eq(sqlite3_close(file), SQLITE_OK);
}

static sx_search_record add(uint32_t lane_count)
{
    static const char request[] = "a request\0with a NUL";
    sx_search_record row = {
        .uid = 7,
        .state = 1,
        .created_ms = 1234,
        .budget_us = 5000000,
        .fuel = 9,
        .build = "a build",
        .request = {(const uint8_t *)request, sizeof(request)},
    };
    row.key.byte[31] = 5;
    sx_search_lane_record lane[SX_SEARCH_LANES_MAX];
    for (uint32_t i = 0; i < lane_count; i++) {
        lane[i] = (sx_search_lane_record){.lane = i, .state = 1};
        (void)snprintf(lane[i].name, sizeof(lane[i].name), "lane %u", i);
    }
    ck_sx_ok(&cx, sx_search_db_add(&cx, db, &row, lane, lane_count));
    return row;
}

static sx_search_found *list(uint32_t expected)
{
    sx_search_found *found;
    uint32_t count;
    ck_sx_ok(&cx, sx_search_db_list(&cx, db, &found, &count));
    ck_assert_uint_eq(count, expected);
    return found;
}

static void put_step(const sx_search_record *row, sx_search_lane_record *lane, sx_span state,
                     sx_span best)
{
    lane->step++;
    lane->objective = 1.5;
    lane->worked_us += 10;
    ck_sx_ok(&cx, sx_search_db_put_lane(&cx, db, row, lane, &state, best.len > 0 ? &best : NULL));
}

START_TEST(what_is_put_comes_back)
{
    sx_search_record row = add(3);
    ck_assert_int_eq(row.id, 1);
    uint64_t seed = sx_test_seed();
    sx_rng rng = {.state = seed};
    static uint8_t state[300000];
    for (size_t i = 0; i < sizeof(state); i++) {
        state[i] = (uint8_t)sx_rng_next(&rng);
    }
    sx_search_lane_record lane = list(1)[0].lane[1];
    row.used_us = 77;
    (void)snprintf(row.why, sizeof(row.why), "because");
    put_step(&row, &lane, (sx_span){state, sizeof(state)}, SX_SPAN_LITERAL("best one"));
    put_step(&row, &lane, (sx_span){state, 100000}, (sx_span){0});
    shut();
    open_db(false);
    sx_search_found *found = list(1);
    ck_assert(!found->damaged);
    ck_assert_uint_eq(found->lane_count, 3);
    ck_assert_uint_eq(found->row.used_us, 77);
    ck_assert_str_eq(found->row.why, "because");
    ck_assert_str_eq(found->row.build, "a build");
    ck_assert(sx_span_equal(found->row.request, row.request));
    ck_assert(sx_key_equal(&found->row.key, &row.key));
    const sx_search_lane_record *back = &found->lane[1];
    ck_assert_str_eq(back->name, "lane 1");
    ck_assert_uint_eq(back->step, 2);
    ck_assert_uint_eq(back->worked_us, 20);
    ck_assert(back->objective > 1.4 && back->objective < 1.6);
    sx_blob *blob;
    ck_sx_ok(&cx, sx_search_db_load(&cx, db, row.id, back, SX_SEARCH_STATE, &blob));
    ck_assert(sx_span_equal(sx_blob_span(blob), (sx_span){state, 100000}));
    sx_blob_free(blob);
    ck_sx_ok(&cx, sx_search_db_load(&cx, db, row.id, back, SX_SEARCH_BEST, &blob));
    ck_assert(sx_span_is(sx_blob_span(blob), "best one"));
    sx_blob_free(blob);
    ck_sx_ok(&cx, sx_search_db_load(&cx, db, row.id, &found->lane[0], SX_SEARCH_BEST, &blob));
    ck_assert_ptr_null(blob);
}
END_TEST

START_TEST(numbers_are_not_given_twice)
{
    sx_search_record first = add(1), second = add(64);
    ck_assert_int_eq(second.id, first.id + 1);
    ck_sx_ok(&cx, sx_search_db_remove(&cx, db, second.id));
    ck_assert_int_eq(list(1)->row.id, first.id);
    shut();
    open_db(false);
    ck_assert_int_eq(add(1).id, second.id + 1);
    sx_search_lane_record *lane;
    uint32_t count;
    ck_sx_fails(&cx, sx_search_db_lanes(&cx, db, second.id, &lane, &count), SX_ABSENT, "search 2");
}
END_TEST

START_TEST(damage_is_noticed)
{
    sx_search_record row = add(2), other = add(1);
    sx_search_lane_record lane = list(2)[0].lane[0];
    put_step(&row, &lane, SX_SPAN_LITERAL("state"), SX_SPAN_LITERAL("best"));
    run_sql("UPDATE search_blob SET data = x'00' WHERE part = 0");
    sx_blob *blob;
    ck_sx_fails(&cx, sx_search_db_load(&cx, db, row.id, &lane, SX_SEARCH_STATE, &blob), SX_CORRUPT,
                "state of lane 0 is damaged");
    ck_sx_ok(&cx, sx_search_db_load(&cx, db, row.id, &lane, SX_SEARCH_BEST, &blob));
    sx_blob_free(blob);
    run_sql("DELETE FROM search_blob WHERE part = 1");
    ck_sx_fails(&cx, sx_search_db_load(&cx, db, row.id, &lane, SX_SEARCH_BEST, &blob), SX_CORRUPT,
                "is gone");
    run_sql("UPDATE search SET budget = budget + 1 WHERE id = 1");
    sx_search_found *found = list(2);
    ck_assert(found[0].damaged && !found[1].damaged);
    run_sql("UPDATE search_lane SET row = zeroblob(length(row)) WHERE search = 2");
    found = list(2);
    ck_assert(found[1].damaged);
    ck_assert_int_eq(found[1].row.id, other.id);
}
END_TEST

START_TEST(other_files_are_left_or_set_aside)
{
    (void)add(1);
    run_sql("PRAGMA user_version = 2");
    shut();
    bool aside;
    ck_sx_fails(&cx, sx_search_db_open(&cx, dir, &db, &aside), SX_UNIMPLEMENTED,
                "version 2, at most 1");
    run_sql("PRAGMA user_version = 1");
    open_db(false);
    ck_assert_uint_eq(list(1)->lane_count, 1);
    run_sql("PRAGMA application_id = 5");
    shut();
    open_db(true);
    (void)list(0);
    char path[512];
    struct stat info;
    (void)snprintf(path, sizeof(path), "%s/search.db", dir);
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0600);
    (void)snprintf(path, sizeof(path), "%s/search.db.damaged.1", dir);
    ck_assert_int_eq(stat(path, &info), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache/search_db");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, what_is_put_comes_back);
    tcase_add_test(tcase, numbers_are_not_given_twice);
    tcase_add_test(tcase, damage_is_noticed);
    tcase_add_test(tcase, other_files_are_left_or_set_aside);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
