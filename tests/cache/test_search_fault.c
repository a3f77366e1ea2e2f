/* search.db on a disk that fails: every change of the file fails once, as a full disk and as a broken one, and so does
 * every allocation of SQLite.
 *
 * A search is stored in stages: search, lanes, states, modules. Whatever fails, an operation is done as a whole or
 * not at all, says so, and succeeds when it is asked for again. The file fails from outside (shim_vfs.h), so that no
 * place where the product writes can be forgotten. */
#include "tests/lib/test.h"

#include "cache/search_db.h"
#include "tests/cache/shim_vfs.h"

/* What the store holds after operation i is contents number i + 1; nothing is number 0. */
enum { ADD, FIRST_STEP, SECOND_STEP, USED, OTHER_LANE, REMOVE, OPERATIONS };
#define POINTS_MAX 1000u

static uint8_t state[3][50000];
static char dir[256];
static sx_ctx cx;
static sx_search_db *db;

/* ---- memory of SQLite ---- */
static struct {
    sqlite3_mem_methods real;
    uint64_t left;  /* allocations until the first that fails, it included; 0: none fails */
    uint64_t burst; /* how many fail one after the other */
    uint64_t failures;
} memory;

static bool memory_fails(void)
{
    bool fails = memory.left > 0 && memory.left <= memory.burst;
    memory.left -= memory.left > 0 ? 1 : 0;
    memory.failures += fails ? 1 : 0;
    return fails;
}

static void *memory_malloc(int size)
{
    return memory_fails() ? NULL : memory.real.xMalloc(size);
}

static void *memory_realloc(void *old, int size)
{
    return memory_fails() ? NULL : memory.real.xRealloc(old, size);
}

/* For what the test itself asks; put back afterwards. */
static uint64_t pause_memory(void)
{
    uint64_t left = memory.left;
    memory.left = 0;
    return left;
}

static void install(void)
{
    sqlite3_mem_methods ours;
    ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory.real), SQLITE_OK);
    ours = memory.real;
    ours.xMalloc = memory_malloc;
    ours.xRealloc = memory_realloc;
    ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_MALLOC, &ours), SQLITE_OK);
    ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), SQLITE_OK);
    shim_install();
    ck_assert_int_eq(sqlite3_vfs_register(&shim.vfs, 1), SQLITE_OK);
}

/* ---- what is stored ---- */
static const sx_span best = {(const uint8_t *)"the best module", 15};

static sx_span state_of(uint32_t i)
{
    static const size_t size[] = {20000, 50000, 7};
    return (sx_span){state[i], size[i]};
}

static sx_search_record row_of(uint32_t contents)
{
    return (sx_search_record){.id = 1,
                              .state = 1,
                              .used_us = contents > USED ? 77 : 0,
                              .build = "a build",
                              .request = SX_SPAN_LITERAL("a request")};
}

static sx_search_lane_record lane_of(uint32_t contents, uint32_t lane)
{
    sx_search_lane_record row = {.lane = lane, .state = 1};
    row.step = lane == 1                 ? contents > OTHER_LANE
               : contents <= SECOND_STEP ? contents > FIRST_STEP
                                         : 2;
    return row;
}

/* One operation, which leads from contents i to i + 1. */
static sx_code operate(uint32_t i)
{
    sx_search_record row = row_of(i + 1);
    sx_search_lane_record *lane, fresh[2] = {lane_of(0, 0), lane_of(0, 1)};
    sx_span bytes[3] = {state_of(0), state_of(1), state_of(2)};
    uint32_t count;
    if (i == ADD) {
        return sx_search_db_add(&cx, db, &row, fresh, 2);
    }
    uint64_t left = pause_memory();
    ck_sx_ok(&cx, sx_search_db_lanes(&cx, db, 1, &lane, &count)); /* sizes and hashes of states */
    memory.left = left;
    ck_assert_uint_eq(count, 2);
    lane[0].step = lane_of(i + 1, 0).step;
    lane[1].step = lane_of(i + 1, 1).step;
    switch (i) {
    case FIRST_STEP: return sx_search_db_put_lane(&cx, db, &row, &lane[0], &bytes[0], &best);
    case SECOND_STEP: return sx_search_db_put_lane(&cx, db, &row, &lane[0], &bytes[1], NULL);
    case USED: return sx_search_db_put(&cx, db, &row);
    case OTHER_LANE: return sx_search_db_put_lane(&cx, db, &row, &lane[1], &bytes[2], NULL);
    default: return sx_search_db_remove(&cx, db, 1);
    }
}

static void check_blob(const sx_search_lane_record *lane, sx_search_part part, sx_span wanted)
{
    sx_blob *blob;
    ck_sx_ok(&cx, sx_search_db_load(&cx, db, 1, lane, part, &blob));
    ck_assert(blob != NULL ? sx_span_equal(sx_blob_span(blob), wanted) : wanted.len == 0);
    sx_blob_free(blob);
}

static void check_search(const sx_search_found *found, uint32_t contents)
{
    ck_assert(!found->damaged);
    ck_assert_uint_eq(found->lane_count, 2);
    ck_assert_uint_eq(found->row.used_us, row_of(contents).used_us);
    for (uint32_t i = 0; i < 2; i++) {
        sx_search_lane_record wanted = lane_of(contents, i);
        ck_assert_uint_eq(found->lane[i].step, wanted.step);
        sx_span bytes = i == 1 ? state_of(2) : state_of(wanted.step == 2 ? 1 : 0);
        check_blob(&found->lane[i], SX_SEARCH_STATE, wanted.step > 0 ? bytes : (sx_span){0});
        check_blob(&found->lane[i], SX_SEARCH_BEST,
                   i == 0 && wanted.step > 0 ? best : (sx_span){0});
    }
}

/* The store holds exactly this. */
static void check_contents(uint32_t contents)
{
    sx_search_found *found;
    uint32_t count;
    uint64_t left = pause_memory();
    ck_sx_ok(&cx, sx_search_db_list(&cx, db, &found, &count));
    ck_assert_uint_eq(count, contents > ADD && contents <= REMOVE ? 1 : 0);
    if (count > 0) {
        check_search(found, contents);
    }
    memory.left = left;
}

/* Opens the store; true at once, or after the failure that was planted. */
static bool open_store(void)
{
    bool aside = true;
    sx_code code = sx_search_db_open(&cx, dir, &db, &aside);
    if (code != SX_OK) {
        ck_assert_msg(code == SX_SYSTEM || code == SX_NOMEM, "open: %s (%s)", sx_code_name(code),
                      cx.error.text);
        sx_ctx_reset_error(&cx);
        memory.left = 0;
        ck_sx_ok(&cx, sx_search_db_open(&cx, dir, &db, &aside));
    }
    ck_assert(!aside); /* a disk that fails is no damaged file */
    return code == SX_OK;
}

/* All operations with number `at` failing, of the changes, or of the allocations for SQLITE_NOMEM; how many of the
 * operations said so. */
static uint32_t run(uint64_t at, int code, bool *failed)
{
    uint32_t said = 0;
    uint64_t before = shim.failures + memory.failures;
    sx_ctx_init(&cx, (size_t)16 << 20);
    sx_test_mkdtemp(dir);
    if (code == SQLITE_NOMEM) {
        memory.left = at + memory.burst - 1;
    } else {
        shim_fail(at, false, code);
    }
    said += open_store() ? 0 : 1;
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        sx_code got = operate(i);
        if (got != SX_OK) {
            ck_assert_msg(got == SX_SYSTEM || got == SX_NOMEM, "point %llu, operation %u: %s (%s)",
                          (unsigned long long)at, i, sx_code_name(got), cx.error.text);
            sx_ctx_reset_error(&cx);
            said++;
            memory.left = 0; /* there is room again */
            check_contents(i);
            ck_sx_ok(&cx, operate(i));
        }
        check_contents(i + 1);
        if (i == USED) { /* another process goes on with the file */
            sx_search_db_close(db);
            said += open_store() ? 0 : 1;
            check_contents(i + 1);
        }
    }
    sx_search_db_close(db);
    shim_fail(0, false, SQLITE_OK);
    memory.left = 0;
    *failed = shim.failures + memory.failures > before;
    sx_test_rmtree(dir);
    sx_ctx_fini(&cx);
    return said;
}

static const struct {
    int code;
    uint64_t burst; /* allocations that fail one after the other: taking back fails, too */
} modes[] = {{SQLITE_FULL, 1}, {SQLITE_IOERR_WRITE, 1}, {SQLITE_NOMEM, 1}, {SQLITE_NOMEM, 50}};

START_TEST(everything_fails_once)
{
    uint32_t said = 0;
    bool failed = true;
    install();
    memory.burst = modes[_i].burst;
    for (uint32_t i = 0; i < SX_COUNT(state); i++) {
        memset(state[i], (int)i + 1, sizeof(state[i]));
    }
    uint32_t points = 0;
    uint32_t stride =
        modes[_i].code == SQLITE_NOMEM ? 5 : 1; /* allocations are many: a fifth of them */
    sx_rng rng = {.state = sx_test_seed()};
    for (uint64_t at = 1 + sx_rng_below(&rng, stride); failed; at += stride) {
        ck_assert_uint_lt(points, POINTS_MAX);
        said += run(at, modes[_i].code, &failed);
        points += failed ? 1 : 0;
    }
    printf("%u points, %u failures told\n", points, said);
    /* most changes belong to an operation; the rest to what SQLite tidies up by itself */
    ck_assert_uint_gt(said, points / 2);
    ck_assert_uint_gt(points, 50);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache.search_fault");
    TCase *cases = tcase_create("fault");
    tcase_add_loop_test(cases, everything_fails_once, 0, SX_COUNT(modes));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
