/* Damaged, foreign, older and newer stores: never a wrong hit, never a lost neighbour, never a deleted file. */
#include "tests/cache/fixture.h"

#include <stdio.h>
#include <sqlite3.h>
#include <sys/statfs.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/place.h"

/* The file system the cache believes to stand on: replaces libc's function in this program. */
static uint64_t pretended_type = 0xEF53;
int statfs(const char *path, struct statfs *info)
{
    (void)path;
    memset(info, 0, sizeof(*info));
    info->f_type = (__fsword_t)pretended_type;
    return 0;
}

static void path_of(const bench *b, const char *name, char path[512])
{
    (void)snprintf(path, 512, "%s/%s", b->dir, name);
}

static void shut(bench *b)
{
    sx_cache_close(b->cache);
    b->cache = NULL;
}

static void run_sql(const bench *b, const char *text)
{
    char path[512];
    sqlite3 *db = NULL;
    path_of(b, "cache.db", path);
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    char *error = NULL;
    ck_assert_msg(sqlite3_exec(db, text, NULL, NULL, &error) == SQLITE_OK, "%s: %s", text, error);
    ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

static void read_store(const bench *b, sx_buf *file)
{
    char path[512];
    path_of(b, "cache.db", path);
    sx_buf_init(file, (size_t)64 << 20);
    sx_test_read_file(path, file);
}

static void write_store(const bench *b, const uint8_t *bytes, size_t size)
{
    char path[512];
    path_of(b, "cache.db", path);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

#define ENTRIES 24
static const uint32_t size_of[4] = {300, 5000, 20000, 100000};

static uint8_t *entry_bytes(uint32_t i)
{
    sx_rng rng = {i};
    return make_bytes(&rng, size_of[i % 4], i % 3 == 0);
}

static void fill(bench *b)
{
    for (uint32_t i = 0; i < ENTRIES; i++) {
        uint8_t *bytes = entry_bytes(i);
        put_ok(b, i % 2, key_of(i, 0), bytes, size_of[i % 4], 100 + i);
        free(bytes);
    }
    ck_sx_ok(&b->cx, sx_cache_flush(&b->cx, b->cache, SX_CACHE_SYNCED));
}

/* How many entries are served; one that is served has the bytes that were put. */
static uint32_t count_served(bench *b, bool served[ENTRIES])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        sx_blob *blob = NULL;
        sx_cache_info info;
        sx_key key = key_of(i, 0);
        served[i] = sx_cache_get(b->cache, i % 2, &key, &blob, &info) == SX_OK;
        if (served[i]) {
            uint8_t *bytes = entry_bytes(i);
            ck_assert(sx_span_equal(sx_blob_span(blob), (sx_span){bytes, size_of[i % 4]}));
            ck_assert_uint_eq(info.kind, 1);
            ck_assert_uint_eq(info.cost_us, 100 + i);
            free(bytes);
            sx_blob_free(blob);
            count++;
        }
    }
    return count;
}

START_TEST(test_flipped_bit_is_a_miss_and_quarantined)
{
    bench b = bench_open(NULL);
    bool served[ENTRIES];
    fill(&b);
    shut(&b);
    sx_buf file;
    read_store(&b, &file);
    uint8_t *bytes = entry_bytes(5); /* not compressible: found as it is */
    uint8_t *at = memmem(file.ptr, file.len, bytes + 100, 64);
    ck_assert_ptr_nonnull(at);
    at[13] ^= 0x10;
    write_store(&b, file.ptr, file.len);
    bench_reopen(&b);
    ck_assert_uint_eq(count_served(&b, served), ENTRIES - 1);
    ck_assert(!served[5]);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.corrupt, 1);
    ck_assert_uint_eq(stats.misses, 1);
    ck_assert_uint_eq(count_served(&b, served), ENTRIES - 1);
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.corrupt, 1); /* seen once, on its way out */
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.quarantined, 1);
    ck_assert_uint_eq(stats.entries, ENTRIES - 1);
    bench_restart(&b);
    ck_assert_uint_eq(count_served(&b, served), ENTRIES - 1);
    put_ok(&b, 5 % 2, key_of(5, 0), bytes, size_of[5 % 4], 105); /* made again */
    bench_restart(&b);
    ck_assert_uint_eq(count_served(&b, served), ENTRIES);
    sx_cache_verification check = {.deep = true};
    ck_sx_ok(&b.cx, sx_cache_verify(&b.cx, b.cache, 0, &check));
    ck_assert_uint_eq(check.ok, ENTRIES);
    ck_assert_uint_eq(check.corrupt + check.orphans + check.damaged_pages, 0);
    sx_buf_fini(&file);
    free(bytes);
    bench_close(&b);
}
END_TEST

/* Rows that are whole for SQLite and wrong all the same. */
static const struct {
    const char *sql;
    uint32_t lost;
} forged[] = {
    {"DELETE FROM blob WHERE id = 3", 1},
    {"UPDATE blob SET data = x'' WHERE id = 3", 1},
    {"UPDATE blob SET data = (SELECT data FROM blob WHERE id = 4) WHERE id = 3", 1},
    {"UPDATE entry SET id = CASE id WHEN 5 THEN 9 ELSE 5 END WHERE id IN (5, 9)", 2},
    {"UPDATE entry SET kind = 2 WHERE id = 7", 1},
    {"UPDATE entry SET cost_us = cost_us + 1 WHERE id = 7", 1},
    {"UPDATE entry SET size = 1 << 40 WHERE id = 7", 1},
    {"UPDATE entry SET size = -5 WHERE id = 7", 1},
    {"UPDATE entry SET size = 'text' WHERE id = 7", 1},
    {"UPDATE entry SET csize = csize - 1 WHERE id = 8", 1},
    {"UPDATE entry SET enc = 1 - enc WHERE id = 8", 1},
    {"UPDATE entry SET enc = 77 WHERE id = 8", 1},
    {"UPDATE entry SET xxh = x'00' WHERE id = 8", 1},
    {"UPDATE entry SET xxh = zeroblob(16) WHERE id = 8", 1},
    {"UPDATE entry SET ns = 5 WHERE id = 8", 1},
    {"UPDATE entry SET gen = gen + 1 WHERE id = 8", 1},
    {"UPDATE usage SET bytes = 1 << 60", 0},
    {"UPDATE usage SET bytes = -1, entries = -1", 0},
    {"UPDATE entry SET score = 1e300 WHERE id = 8", 0},
    {"DELETE FROM usage", 0},
};

START_TEST(test_forged_row)
{
    bench b = bench_open(NULL);
    bool served[ENTRIES];
    fill(&b);
    shut(&b);
    run_sql(&b, forged[_i].sql);
    bench_reopen(&b);
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    ck_assert_msg(count_served(&b, served) == ENTRIES - forged[_i].lost, "%s", forged[_i].sql);
    sx_blob *blob = NULL;
    sx_key key = key_of(7, 0);
    ck_assert_int_eq(sx_cache_get(b.cache, 5, &key, &blob, NULL), SX_ABSENT); /* not in ns 5 */
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    sx_cache_verification check = {.deep = true};
    ck_sx_ok(&b.cx, sx_cache_verify(&b.cx, b.cache, 0, &check));
    ck_assert(check.finished);
    ck_assert_uint_eq(check.ok, ENTRIES - forged[_i].lost);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.entries, ENTRIES - forged[_i].lost);
    bench_close(&b);
}
END_TEST

START_TEST(test_verify_finds_what_get_would)
{
    bench b = bench_open(NULL);
    fill(&b);
    shut(&b);
    run_sql(&b, "UPDATE blob SET data = zeroblob(length(data)) WHERE id % 5 = 0");
    bench_reopen(&b);
    sx_cache_verification check = {0};
    while (!check.finished) {
        ck_sx_ok(&b.cx, sx_cache_verify(&b.cx, b.cache, 3, &check));
    }
    ck_assert_uint_eq(check.corrupt, ENTRIES / 5);
    ck_assert_uint_eq(check.ok, ENTRIES - ENTRIES / 5);
    ck_assert_uint_eq(check.orphans, 0); /* kept in quarantine */
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.quarantined, ENTRIES / 5);
    bench_close(&b);
}
END_TEST

START_TEST(test_quarantine_is_bounded)
{
    bench b = bench_open(NULL);
    for (uint32_t i = 0; i < 150; i++) {
        put_ok(&b, 0, key_of(i, 9), (const uint8_t *)"0123456789", 10, 1);
    }
    shut(&b);
    run_sql(&b, "UPDATE blob SET data = x'00'");
    bench_reopen(&b);
    sx_cache_verification check = {.deep = true};
    ck_sx_ok(&b.cx, sx_cache_verify(&b.cx, b.cache, 0, &check));
    ck_assert_uint_eq(check.corrupt, 150);
    ck_assert_uint_eq(check.orphans + check.damaged_pages, 0);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.quarantined, 64);
    ck_assert_uint_eq(stats.entries, 0);
    bench_close(&b);
}
END_TEST

/* Any bits anywhere in the file: what is served is right, and the cache goes on. */
START_TEST(test_random_flips)
{
    bench b = bench_open(NULL);
    bool served[ENTRIES];
    fill(&b);
    shut(&b);
    sx_buf file;
    read_store(&b, &file);
    uint8_t *copy = malloc(file.len);
    ck_assert_ptr_nonnull(copy);
    sx_rng rng = {sx_test_seed()};
    uint32_t whole = 0;
    uint32_t total = 0;
    for (uint32_t round = 0; round < 150; round++) {
        memcpy(copy, file.ptr, file.len);
        uint64_t flips = 1 + sx_rng_below(&rng, 6);
        /* half of the rounds aim at the front: header, schema, index pages */
        uint64_t range = round % 2 == 0 ? file.len : 8 * 16384;
        for (uint64_t i = 0; i < flips; i++) {
            copy[sx_rng_below(&rng, range)] ^= (uint8_t)(1 << sx_rng_below(&rng, 8));
        }
        size_t size = sx_rng_below(&rng, 10) == 0 ? sx_rng_below(&rng, file.len) : file.len;
        write_store(&b, copy, size);
        bench_reopen(&b);
        uint32_t count = count_served(&b, served);
        whole += count == ENTRIES ? 1 : 0;
        total += count;
        put_ok(&b, 3, key_of(round, 3), (const uint8_t *)"new", 3, 1);
        sx_cache_verification check = {.deep = true};
        (void)sx_cache_verify(&b.cx, b.cache, 0, &check);
        sx_ctx_reset_error(&b.cx);
        (void)sx_cache_flush(&b.cx, b.cache, SX_CACHE_SYNCED);
        sx_ctx_reset_error(&b.cx);
        ck_assert(has(&b, 3, key_of(round, 3)));
        shut(&b);
        sx_test_rmtree(b.dir);
        ck_assert_int_eq(mkdir(b.dir, 0700), 0);
    }
    printf("flips: %u of 150 rounds whole, %u of %u entries served\n", whole, total, 150 * ENTRIES);
    ck_assert_uint_gt(total, 150 * ENTRIES / 4); /* damage stays local */
    ck_assert_uint_lt(whole, 150);
    free(copy);
    sx_buf_fini(&file);
    bench_close(&b);
}
END_TEST

START_TEST(test_newer_schema_is_not_touched)
{
    bench b = bench_open(NULL);
    bool served[ENTRIES];
    fill(&b);
    shut(&b);
    run_sql(&b, "PRAGMA user_version = 99; ALTER TABLE entry ADD COLUMN future INTEGER");
    sx_buf before;
    read_store(&b, &before);
    bench_reopen(&b);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_int_eq(stats.store, SX_STORE_NEWER);
    ck_assert_ptr_nonnull(strstr(stats.error_text, "newer version"));
    ck_assert_uint_eq(count_served(&b, served), 0);
    fill(&b); /* in RAM */
    ck_assert_uint_eq(count_served(&b, served), ENTRIES);
    sx_key key = key_of(0, 0);
    ck_sx_ok(&b.cx, sx_cache_strike(&b.cx, b.cache, &key, SX_SPAN_LITERAL("x"), NULL));
    ck_sx_ok(&b.cx, sx_cache_evict(&b.cx, b.cache, &(sx_cache_filter){0}, NULL));
    sx_cache_verification check = {0};
    ck_sx_fails(&b.cx, sx_cache_verify(&b.cx, b.cache, 0, &check), SX_ABSENT, "newer");
    shut(&b);
    sx_buf after;
    read_store(&b, &after);
    ck_assert(sx_span_equal(sx_buf_span(&before), sx_buf_span(&after)));
    run_sql(&b, "ALTER TABLE entry DROP COLUMN future; PRAGMA user_version = 1");
    bench_reopen(&b);
    ck_assert_uint_eq(count_served(&b, served), ENTRIES);
    sx_buf_fini(&before);
    sx_buf_fini(&after);
    bench_close(&b);
}
END_TEST

static bool exists(const bench *b, const char *name)
{
    char path[512];
    path_of(b, name, path);
    return access(path, F_OK) == 0;
}

START_TEST(test_what_is_not_ours_is_set_aside)
{
    bench b = bench_open(NULL);
    bool served[ENTRIES];
    fill(&b);
    shut(&b);
    run_sql(&b, "PRAGMA user_version = 0");
    bench_reopen(&b);
    ck_assert(exists(&b, "cache.db.other.1"));
    ck_assert_uint_eq(count_served(&b, served), 0);
    fill(&b);
    shut(&b);
    run_sql(&b, "PRAGMA application_id = 5");
    bench_reopen(&b);
    ck_assert(exists(&b, "cache.db.other.2"));
    shut(&b);
    write_store(&b,
                (const uint8_t *)"this is a text file, long enough to be read as a header of "
                                 "a database, which it certainly is not, not at all",
                100);
    bench_reopen(&b);
    ck_assert(exists(&b, "cache.db.unreadable.1"));
    ck_assert_uint_eq(count_served(&b, served), 0);
    fill(&b);
    bench_restart(&b);
    ck_assert_uint_eq(count_served(&b, served), ENTRIES);
    bench_close(&b);
}
END_TEST

START_TEST(test_malformed_tables_stop_the_writer_only)
{
    bench b = bench_open(NULL);
    bool served[ENTRIES];
    fill(&b);
    shut(&b);
    run_sql(&b, "DROP TABLE part");
    bench_reopen(&b);
    ck_assert_uint_eq(count_served(&b, served), ENTRIES);
    sx_cache_part part = {SX_SPAN_LITERAL("program"), SX_SPAN_LITERAL("abc")};
    sx_cache_item item = {
        .key = key_of(100, 0), .bytes = SX_SPAN_LITERAL("bytes"), .part = &part, .part_count = 1};
    ck_sx_ok(&b.cx, sx_cache_put(&b.cx, b.cache, &item));
    ck_sx_fails(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED), SX_SYSTEM, "part");
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_int_eq(stats.store, SX_STORE_DAMAGED);
    ck_assert_uint_eq(stats.queue_rows, 0);
    ck_assert(has(&b, 0, item.key));
    ck_assert_uint_eq(count_served(&b, served), ENTRIES);
    bench_restart(&b); /* starts a new one; the malformed one is kept */
    ck_assert(exists(&b, "cache.db.damaged.1"));
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_int_eq(stats.store, SX_STORE_OK);
    fill(&b);
    bench_restart(&b);
    ck_assert_uint_eq(count_served(&b, served), ENTRIES);
    bench_close(&b);
}
END_TEST

START_TEST(test_network_file_system_is_refused)
{
    bench b = bench_open(NULL);
    shut(&b);
    static const struct {
        uint64_t type;
        const char *text;
    } refused[] = {{0x6969, "on nfs"}, {0xFF534D42, "on cifs"}, {0x0BD00BD0, "on lustre"}};
    for (uint32_t i = 0; i < SX_COUNT(refused); i++) {
        pretended_type = refused[i].type;
        ck_sx_fails(&b.cx, sx_cache_open(&b.cx, &b.options, &b.cache), SX_INPUT, refused[i].text);
        ck_assert_ptr_null(b.cache);
    }
    static const uint64_t local[] = {0xEF53, 0x01021994, 0x9123683E, 0x58465342, 0x794C7630};
    for (uint32_t i = 0; i < SX_COUNT(local); i++) {
        ck_assert_ptr_null(sx_place_network(local[i]));
    }
    pretended_type = 0xEF53;
    bench_reopen(&b);
    bench_close(&b);
}
END_TEST

START_TEST(test_directory_that_cannot_be)
{
    bench b = bench_open(NULL);
    char path[512];
    char below[600];
    path_of(&b, "file", path);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    (void)fclose(file);
    (void)snprintf(below, sizeof(below), "%s/x", path);
    sx_cache *cache = NULL;
    ck_sx_fails(&b.cx, sx_cache_open(&b.cx, &(sx_cache_options){.dir = below}, &cache), SX_INPUT,
                "file/x");
    path_of(&b, "made/on/the/way", path);
    ck_sx_ok(&b.cx, sx_cache_open(&b.cx, &(sx_cache_options){.dir = path}, &cache));
    struct stat status;
    path_of(&b, "made/on/the/way/cache.db", path);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 0777, 0600);
    sx_cache_close(cache);
    bench_close(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("damage");
    TCase *cases = tcase_create("damage");
    tcase_add_test(cases, test_flipped_bit_is_a_miss_and_quarantined);
    tcase_add_loop_test(cases, test_forged_row, 0, (int)SX_COUNT(forged));
    tcase_add_test(cases, test_verify_finds_what_get_would);
    tcase_add_test(cases, test_quarantine_is_bounded);
    tcase_add_test(cases, test_random_flips);
    tcase_add_test(cases, test_newer_schema_is_not_touched);
    tcase_add_test(cases, test_what_is_not_ours_is_set_aside);
    tcase_add_test(cases, test_malformed_tables_stop_the_writer_only);
    tcase_add_test(cases, test_network_file_system_is_refused);
    tcase_add_test(cases, test_directory_that_cannot_be);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
