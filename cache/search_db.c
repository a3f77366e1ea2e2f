/* search_db.c - rows of searches and their lanes in SQLite. */
#include "cache/search_db.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/place.h"
#include "core/base/buf.h"

#define SCHEMA_VERSION 1
#define APPLICATION_ID 0x53585331 /* "SXS1" */
#define BUSY_MS 2000
#define PATH_MAX_BYTES 4096
#define LIST_ROWS_MAX 100000

static const char schema[] =
    "CREATE TABLE search (id INTEGER PRIMARY KEY AUTOINCREMENT, uid INTEGER NOT NULL,"
    " state INTEGER NOT NULL, created INTEGER NOT NULL, budget INTEGER NOT NULL,"
    " used INTEGER NOT NULL, fuel INTEGER NOT NULL, key BLOB NOT NULL, build TEXT NOT NULL,"
    " why TEXT NOT NULL, request BLOB NOT NULL, xxh BLOB NOT NULL);"
    "CREATE TABLE search_lane (search INTEGER NOT NULL REFERENCES search(id), lane INTEGER NOT "
    "NULL,"
    " row BLOB NOT NULL, xxh BLOB NOT NULL, UNIQUE (search, lane));"
    /* apart, so that a changed row does not write megabytes again */
    "CREATE TABLE search_blob (search INTEGER NOT NULL, lane INTEGER NOT NULL,"
    " part INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (search, lane, part));";

typedef enum {
    ADD,
    PUT,
    LIST,
    REMOVE,
    PUT_LANE,
    PUT_BLOB,
    LANES,
    BLOB,
    REMOVE_LANES,
    REMOVE_BLOBS,
    STATEMENT_COUNT
} statement;
static const char *const text[STATEMENT_COUNT] = {
    [ADD] = "INSERT INTO search (uid, state, created, budget, used, fuel, key, build, why, request,"
            " xxh) VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?12, ?11)",
    [PUT] =
        "UPDATE search SET uid = ?2, state = ?3, created = ?4, budget = ?5, used = ?6, fuel = ?7,"
        " key = ?8, build = ?9, why = ?10, xxh = ?11 WHERE id = ?1",
    [LIST] = "SELECT id, uid, state, created, budget, used, fuel, key, build, why, xxh, request"
             " FROM search ORDER BY id",
    [REMOVE] = "DELETE FROM search WHERE id = ?1",
    [PUT_LANE] = "INSERT INTO search_lane (search, lane, row, xxh) VALUES (?1, ?2, ?3, ?4)"
                 " ON CONFLICT (search, lane) DO UPDATE SET row = excluded.row, xxh = excluded.xxh",
    [PUT_BLOB] = "INSERT INTO search_blob (search, lane, part, data) VALUES (?1, ?2, ?3, ?4)"
                 " ON CONFLICT (search, lane, part) DO UPDATE SET data = excluded.data",
    [LANES] = "SELECT lane, row, xxh FROM search_lane WHERE search = ?1 ORDER BY lane",
    [BLOB] = "SELECT data FROM search_blob WHERE search = ?1 AND lane = ?2 AND part = ?3",
    [REMOVE_LANES] = "DELETE FROM search_lane WHERE search = ?1",
    [REMOVE_BLOBS] = "DELETE FROM search_blob WHERE search = ?1",
};

struct sx_search_db {
    sqlite3 *db;
    sqlite3_stmt *statement[STATEMENT_COUNT];
};

static sx_code fail(sx_ctx *cx, sx_search_db *db, const char *what)
{
    int code = sqlite3_extended_errcode(db->db);
    sx_code as = (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB ? SX_CORRUPT
                 : (code & 0xff) == SQLITE_NOMEM                                   ? SX_NOMEM
                                                                                   : SX_SYSTEM;
    return SX_FAIL(cx, as, "search.db: %s: %s (%d)", what, sqlite3_errmsg(db->db), code);
}

static sx_code execute(sx_ctx *cx, sx_search_db *db, const char *sql, const char *what)
{
    return sqlite3_exec(db->db, sql, NULL, NULL, NULL) == SQLITE_OK ? SX_OK : fail(cx, db, what);
}

/* No transaction is open. One is left over only where there was no memory to take it back; that is done now. */
static sx_code idle(sx_ctx *cx, sx_search_db *db)
{
    SX_ASSERT(db->db != NULL);
    return sqlite3_get_autocommit(db->db) != 0 ? SX_OK : execute(cx, db, "ROLLBACK", "take back");
}

static sx_code begin(sx_ctx *cx, sx_search_db *db)
{
    SX_TRY(idle(cx, db));
    return execute(cx, db, "BEGIN IMMEDIATE", "begin");
}

/* Reset and without bindings; NULL: cx->error says why. */
static sqlite3_stmt *prepare(sx_ctx *cx, sx_search_db *db, statement which)
{
    sqlite3_stmt **s = &db->statement[which];
    if (*s == NULL && sqlite3_prepare_v3(db->db, text[which], -1, SQLITE_PREPARE_PERSISTENT, s,
                                         NULL) != SQLITE_OK) {
        (void)fail(cx, db, "prepare");
        return NULL;
    }
    (void)sqlite3_reset(*s);
    (void)sqlite3_clear_bindings(*s);
    return *s;
}

static sx_code run(sx_ctx *cx, sx_search_db *db, sqlite3_stmt *s, const char *what)
{
    int code = sqlite3_step(s);
    sx_code result = code == SQLITE_DONE ? SX_OK : fail(cx, db, what);
    (void)sqlite3_reset(s);
    (void)sqlite3_clear_bindings(s);
    return result;
}

static void bind_span(sqlite3_stmt *s, int index, sx_span span)
{
    if (span.len == 0) {
        (void)sqlite3_bind_zeroblob(s, index, 0);
    } else {
        (void)sqlite3_bind_blob64(s, index, span.ptr, span.len, SQLITE_STATIC);
    }
}

static void bind_u64(sqlite3_stmt *s, int index, uint64_t value)
{
    (void)sqlite3_bind_int64(s, index,
                             value <= INT64_MAX ? (sqlite3_int64)value : (sqlite3_int64)INT64_MAX);
}

static sx_span column(sqlite3_stmt *s, int index)
{
    const void *bytes = sqlite3_column_blob(s, index);
    int size = sqlite3_column_bytes(s, index);
    return (sx_span){bytes, bytes != NULL && size > 0 ? (size_t)size : 0};
}

static uint64_t column_u64(sqlite3_stmt *s, int index)
{
    int64_t value = sqlite3_column_int64(s, index);
    return value > 0 ? (uint64_t)value : 0;
}

static void column_text(sqlite3_stmt *s, int index, char *out, size_t size)
{
    sx_span bytes = column(s, index);
    size_t n = bytes.len < size - 1 ? bytes.len : size - 1;
    if (n > 0) {
        memcpy(out, bytes.ptr, n);
    }
    out[n] = '\0';
}

/* ---- rows as bytes: what the checksums are of ---- */
static void put_u64(sx_buf *buf, uint64_t value)
{
    sx_buf_put_u32(buf, (uint32_t)value);
    sx_buf_put_u32(buf, (uint32_t)(value >> 32));
}

static void put_real(sx_buf *buf, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_u64(buf, bits);
}

static void put_hash(sx_buf *buf, sx_hash128 hash)
{
    put_u64(buf, hash.low);
    put_u64(buf, hash.high);
}

#define ONCE_DEATHS \
    0u /* earlier builds counted dead workers here; the cache does (cache.h, strikes) */
#define LANE_ROW_BYTES (4 * 5 + 8 * 9 + 2 * SX_SEARCH_NAME_MAX + SX_SEARCH_TEXT_MAX + 32)

static void encode_lane(const sx_search_lane_record *lane, sx_buf *buf)
{
    const uint32_t small[] = {lane->lane, lane->state, lane->step, ONCE_DEATHS, lane->restarts};
    const uint64_t large[] = {lane->peak_bytes, lane->nodes,       lane->fuel,
                              lane->worked_us,  lane->state_bytes, lane->best_bytes};
    for (size_t i = 0; i < SX_COUNT(small); i++) {
        sx_buf_put_u32(buf, small[i]);
    }
    put_real(buf, lane->objective);
    put_real(buf, lane->bound);
    put_real(buf, lane->time_ns);
    for (size_t i = 0; i < SX_COUNT(large); i++) {
        put_u64(buf, large[i]);
    }
    put_hash(buf, lane->state_hash);
    put_hash(buf, lane->best_hash);
    sx_buf_put(buf, lane->name, sizeof(lane->name));
    sx_buf_put(buf, lane->stop, sizeof(lane->stop));
    sx_buf_put(buf, lane->why, sizeof(lane->why));
}

static uint32_t take_u32(const uint8_t **at)
{
    const uint8_t *p = *at;
    *at += 4;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t take_u64(const uint8_t **at)
{
    uint64_t low = take_u32(at);
    return low | (uint64_t)take_u32(at) << 32;
}

static double take_real(const uint8_t **at)
{
    uint64_t bits = take_u64(at);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void take_text(const uint8_t **at, char *out, size_t size)
{
    memcpy(out, *at, size);
    out[size - 1] = '\0';
    *at += size;
}

static bool decode_lane(sx_span bytes, sx_search_lane_record *lane)
{
    const uint8_t *at = bytes.ptr;
    if (bytes.len != LANE_ROW_BYTES) {
        return false;
    }
    uint32_t once_deaths;
    uint32_t *small[] = {&lane->lane, &lane->state, &lane->step, &once_deaths, &lane->restarts};
    uint64_t *large[] = {&lane->peak_bytes, &lane->nodes,       &lane->fuel,
                         &lane->worked_us,  &lane->state_bytes, &lane->best_bytes};
    for (size_t i = 0; i < SX_COUNT(small); i++) {
        *small[i] = take_u32(&at);
    }
    lane->objective = take_real(&at);
    lane->bound = take_real(&at);
    lane->time_ns = take_real(&at);
    for (size_t i = 0; i < SX_COUNT(large); i++) {
        *large[i] = take_u64(&at);
    }
    lane->state_hash.low = take_u64(&at);
    lane->state_hash.high = take_u64(&at);
    lane->best_hash.low = take_u64(&at);
    lane->best_hash.high = take_u64(&at);
    take_text(&at, lane->name, sizeof(lane->name));
    take_text(&at, lane->stop, sizeof(lane->stop));
    take_text(&at, lane->why, sizeof(lane->why));
    return true;
}

typedef struct {
    uint8_t byte[16];
} checksum;

static checksum checksum_of(sx_span bytes)
{
    checksum sum;
    sx_hash128 hash = sx_hash128_of(bytes);
    for (uint32_t i = 0; i < 8; i++) {
        sum.byte[i] = (uint8_t)(hash.low >> (8 * i));
        sum.byte[8 + i] = (uint8_t)(hash.high >> (8 * i));
    }
    return sum;
}

/* Of everything but the number, which a new row does not have yet. */
static bool search_checksum(const sx_search_record *row, checksum *sum)
{
    sx_buf buf;
    sx_buf_init(&buf, 4096);
    sx_buf_put_u32(&buf, row->uid);
    sx_buf_put_u32(&buf, row->state);
    put_u64(&buf, row->created_ms);
    put_u64(&buf, row->budget_us);
    put_u64(&buf, row->used_us);
    put_u64(&buf, row->fuel);
    sx_buf_put(&buf, row->key.byte, SX_KEY_BYTES);
    sx_buf_put(&buf, row->build, strlen(row->build) + 1);
    sx_buf_put(&buf, row->why, strlen(row->why) + 1);
    put_hash(&buf, sx_hash128_of(row->request));
    bool fine = buf.code == SX_OK;
    *sum = checksum_of(sx_buf_span(&buf));
    sx_buf_fini(&buf);
    return fine;
}

/* ---- opening ---- */
void sx_search_db_close(sx_search_db *db)
{
    if (db == NULL) {
        return;
    }
    for (uint32_t i = 0; i < STATEMENT_COUNT; i++) {
        (void)sqlite3_finalize(db->statement[i]);
    }
    if (db->db != NULL) {
        int code = sqlite3_close(db->db);
        SX_ASSERT(code == SQLITE_OK);
    }
    free(db);
}

static sx_code query_number(sx_ctx *cx, sx_search_db *db, const char *sql, int64_t *value)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(db->db, sql, -1, &s, NULL) != SQLITE_OK) {
        return fail(cx, db, "open");
    }
    bool found = sqlite3_step(s) == SQLITE_ROW;
    *value = found ? sqlite3_column_int64(s, 0) : 0;
    sx_code code = found ? SX_OK : fail(cx, db, "open");
    (void)sqlite3_finalize(s);
    return code;
}

static sx_code make_tables(sx_ctx *cx, sx_search_db *db)
{
    char version[128];
    (void)snprintf(version, sizeof(version), "PRAGMA application_id = %d; PRAGMA user_version = %d",
                   APPLICATION_ID, SCHEMA_VERSION);
    SX_TRY(execute(cx, db, "PRAGMA page_size = 16384; PRAGMA auto_vacuum = INCREMENTAL;", "make"));
    SX_TRY(execute(cx, db, "PRAGMA journal_mode = WAL", "make"));
    SX_TRY(execute(cx, db, "BEGIN IMMEDIATE", "make"));
    SX_TRY(execute(cx, db, schema, "make"));
    SX_TRY(execute(cx, db, version, "make"));
    return execute(cx, db, "COMMIT", "make");
}

/* SX_CORRUPT: not a file of ours. */
static sx_code open_file(sx_ctx *cx, sx_search_db *db, const char *path)
{
    int64_t version, application, tables;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int code = sqlite3_open_v2(path, &db->db, flags, NULL);
    if (db->db == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "search.db: no memory");
    }
    if (code != SQLITE_OK) {
        return fail(cx, db, "open");
    }
    (void)sqlite3_extended_result_codes(db->db, 1);
    (void)sqlite3_busy_timeout(db->db, BUSY_MS);
    (void)sqlite3_db_config(db->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    SX_TRY(query_number(cx, db, "PRAGMA user_version", &version));
    SX_TRY(query_number(cx, db, "PRAGMA application_id", &application));
    SX_TRY(query_number(cx, db, "SELECT count(*) FROM sqlite_master", &tables));
    if (version == 0 && application == 0 && tables == 0) {
        SX_TRY(make_tables(cx, db));
    } else if (application != APPLICATION_ID || version < SCHEMA_VERSION) {
        return SX_FAIL(cx, SX_CORRUPT, "search.db: application %lld, version %lld",
                       (long long)application, (long long)version);
    } else if (version > SCHEMA_VERSION) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "search.db: version %lld, at most %d",
                       (long long)version, SCHEMA_VERSION);
    }
    return execute(cx, db,
                   "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                   "PRAGMA journal_size_limit = 67108864",
                   "open");
}

sx_code sx_search_db_open(sx_ctx *cx, const char *dir, sx_search_db **opened, bool *aside)
{
    char path[PATH_MAX_BYTES];
    *aside = false;
    if (snprintf(path, sizeof(path), "%s/search.db", dir) >= (int)sizeof(path)) {
        return SX_FAIL(cx, SX_INPUT, "search.db: path too long");
    }
    for (uint32_t attempt = 0;; attempt++) {
        sx_search_db *db = calloc(1, sizeof(*db));
        if (db == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "search.db: no memory");
        }
        sx_place_make_private(path);
        sx_code code = open_file(cx, db, path);
        if (code == SX_OK) {
            *opened = db;
            return SX_OK;
        }
        sx_search_db_close(db);
        if (code != SX_CORRUPT || attempt > 0) {
            return code;
        }
        sx_ctx_reset_error(cx);
        SX_TRY(sx_place_set_aside(cx, path, "damaged"));
        *aside = true;
    }
}

/* ---- reading ---- */
static sx_code list_lanes(sx_ctx *cx, sx_search_db *db, sx_search_found *found)
{
    sqlite3_stmt *s = prepare(cx, db, LANES);
    found->lane = SX_NEW_ARRAY(cx, sx_search_lane_record, SX_SEARCH_LANES_MAX);
    if (s == NULL || found->lane == NULL) {
        return cx->error.code;
    }
    (void)sqlite3_bind_int64(s, 1, found->row.id);
    int step;
    while ((step = sqlite3_step(s)) == SQLITE_ROW) {
        sx_search_lane_record *lane = &found->lane[found->lane_count];
        sx_span row = column(s, 1);
        checksum sum = checksum_of(row);
        sx_span stored = column(s, 2);
        bool fine = found->lane_count < SX_SEARCH_LANES_MAX && stored.len == sizeof(sum.byte) &&
                    memcmp(stored.ptr, sum.byte, sizeof(sum.byte)) == 0 && decode_lane(row, lane) &&
                    lane->lane == found->lane_count &&
                    column_u64(s, 0) == (uint64_t)found->lane_count;
        if (!fine) {
            found->damaged = true;
            break;
        }
        found->lane_count++;
    }
    (void)sqlite3_reset(s);
    found->damaged = found->damaged || found->lane_count == 0;
    return step == SQLITE_ROW || step == SQLITE_DONE ? SX_OK : fail(cx, db, "read lanes");
}

sx_code sx_search_db_lanes(sx_ctx *cx, sx_search_db *db, int64_t id, sx_search_lane_record **lane,
                           uint32_t *count)
{
    SX_ASSERT(id > 0);
    sx_search_found found = {.row = {.id = id}};
    SX_TRY(idle(cx, db));
    SX_TRY(list_lanes(cx, db, &found));
    *lane = found.lane;
    *count = found.lane_count;
    if (found.damaged) {
        return SX_FAIL(cx, found.lane_count == 0 ? SX_ABSENT : SX_CORRUPT,
                       "search %lld: lane %u is damaged in the store", (long long)id,
                       found.lane_count);
    }
    return SX_OK;
}

static sx_code take_search(sx_ctx *cx, sqlite3_stmt *s, sx_search_found *found)
{
    sx_search_record *row = &found->row;
    *row = (sx_search_record){.id = sqlite3_column_int64(s, 0)};
    row->uid = (uint32_t)column_u64(s, 1);
    row->state = (uint32_t)column_u64(s, 2);
    row->created_ms = column_u64(s, 3);
    row->budget_us = column_u64(s, 4);
    row->used_us = column_u64(s, 5);
    row->fuel = column_u64(s, 6);
    sx_span key = column(s, 7);
    if (key.len == SX_KEY_BYTES) {
        memcpy(row->key.byte, key.ptr, SX_KEY_BYTES);
    }
    column_text(s, 8, row->build, sizeof(row->build));
    column_text(s, 9, row->why, sizeof(row->why));
    sx_span stored = column(s, 10);
    sx_span request = column(s, 11);
    const char *copy = sx_alloc_text(cx, request);
    if (copy == NULL) {
        return cx->error.code;
    }
    row->request = (sx_span){(const uint8_t *)copy, request.len};
    checksum sum;
    found->damaged = !search_checksum(row, &sum) || stored.len != sizeof(sum.byte) ||
                     memcmp(stored.ptr, sum.byte, sizeof(sum.byte)) != 0;
    return SX_OK;
}

sx_code sx_search_db_list(sx_ctx *cx, sx_search_db *db, sx_search_found **found, uint32_t *count)
{
    uint32_t capacity = 0;
    *found = NULL;
    *count = 0;
    SX_TRY(idle(cx, db));
    sqlite3_stmt *s = prepare(cx, db, LIST);
    if (s == NULL) {
        return cx->error.code;
    }
    int step = SQLITE_DONE;
    sx_code code = SX_OK;
    while (code == SX_OK && *count < LIST_ROWS_MAX && (step = sqlite3_step(s)) == SQLITE_ROW) {
        code = sx_grow(cx, (void **)found, &capacity, *count + 1, sizeof(**found));
        if (code == SX_OK) {
            (*found)[*count] = (sx_search_found){0};
            code = take_search(cx, s, &(*found)[*count]);
            *count += 1;
        }
    }
    if (code == SX_OK && step != SQLITE_DONE && step != SQLITE_ROW) {
        code = fail(cx, db, "read searches");
    }
    (void)sqlite3_reset(s);
    for (uint32_t i = 0; code == SX_OK && i < *count; i++) {
        code = list_lanes(cx, db, &(*found)[i]);
    }
    return code;
}

sx_code sx_search_db_load(sx_ctx *cx, sx_search_db *db, int64_t id,
                          const sx_search_lane_record *lane, sx_search_part part, sx_blob **blob)
{
    SX_ASSERT(id > 0 && lane->lane < SX_SEARCH_LANES_MAX && part <= SX_SEARCH_BEST);
    uint64_t size = part == SX_SEARCH_STATE ? lane->state_bytes : lane->best_bytes;
    sx_hash128 hash = part == SX_SEARCH_STATE ? lane->state_hash : lane->best_hash;
    const char *name = part == SX_SEARCH_STATE ? "state" : "best";
    *blob = NULL;
    if (size == 0) {
        return SX_OK;
    }
    SX_TRY(idle(cx, db));
    sqlite3_stmt *s = prepare(cx, db, BLOB);
    if (s == NULL) {
        return cx->error.code;
    }
    (void)sqlite3_bind_int64(s, 1, id);
    bind_u64(s, 2, lane->lane);
    bind_u64(s, 3, (uint64_t)part);
    int step = sqlite3_step(s);
    sx_code code = SX_OK;
    if (step == SQLITE_ROW) {
        sx_span bytes = column(s, 0);
        sx_hash128 found = sx_hash128_of(bytes);
        if (bytes.len != size || found.low != hash.low || found.high != hash.high) {
            code = SX_FAIL(cx, SX_CORRUPT, "search %lld: %s of lane %u is damaged in the store",
                           (long long)id, name, lane->lane);
        } else if ((*blob = sx_blob_new(bytes.len)) == NULL) {
            code = SX_FAIL(cx, SX_NOMEM, "search %lld: no memory for %zu bytes", (long long)id,
                           bytes.len);
        } else {
            memcpy(sx_blob_bytes(*blob), bytes.ptr, bytes.len);
        }
    } else {
        code = step == SQLITE_DONE ? SX_FAIL(cx, SX_CORRUPT, "search %lld: lane %u is gone",
                                             (long long)id, lane->lane)
                                   : fail(cx, db, "load");
    }
    (void)sqlite3_reset(s);
    return code;
}

/* ---- writing ---- */
static sx_code put_search(sx_ctx *cx, sx_search_db *db, const sx_search_record *row,
                          statement which)
{
    checksum sum;
    sqlite3_stmt *s = prepare(cx, db, which);
    if (s == NULL) {
        return cx->error.code;
    }
    if (!search_checksum(row, &sum)) {
        return SX_FAIL(cx, SX_NOMEM, "search.db: no memory");
    }
    (void)sqlite3_bind_int64(s, 1, row->id);
    bind_u64(s, 2, row->uid);
    bind_u64(s, 3, row->state);
    bind_u64(s, 4, row->created_ms);
    bind_u64(s, 5, row->budget_us);
    bind_u64(s, 6, row->used_us);
    bind_u64(s, 7, row->fuel);
    bind_span(s, 8, (sx_span){row->key.byte, SX_KEY_BYTES});
    (void)sqlite3_bind_text(s, 9, row->build, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(s, 10, row->why, -1, SQLITE_STATIC);
    bind_span(s, 11, (sx_span){sum.byte, sizeof(sum.byte)});
    if (which == ADD) {
        bind_span(s, 12, row->request);
    }
    return run(cx, db, s, "put search");
}

static sx_code put_lane_row(sx_ctx *cx, sx_search_db *db, int64_t id,
                            const sx_search_lane_record *lane)
{
    sx_buf buf;
    sx_buf_init(&buf, 4096);
    encode_lane(lane, &buf);
    sx_code code = sx_buf_check(cx, &buf, "lane");
    sqlite3_stmt *s = code == SX_OK ? prepare(cx, db, PUT_LANE) : NULL;
    if (s != NULL) {
        SX_ASSERT(buf.len == LANE_ROW_BYTES);
        checksum sum = checksum_of(sx_buf_span(&buf));
        (void)sqlite3_bind_int64(s, 1, id);
        bind_u64(s, 2, lane->lane);
        bind_span(s, 3, sx_buf_span(&buf));
        bind_span(s, 4, (sx_span){sum.byte, sizeof(sum.byte)});
        code = run(cx, db, s, "put lane");
    } else {
        code = cx->error.code;
    }
    sx_buf_fini(&buf);
    return code;
}

static sx_code put_blob(sx_ctx *cx, sx_search_db *db, int64_t id, uint32_t lane,
                        sx_search_part part, const sx_span *bytes)
{
    sqlite3_stmt *s = bytes != NULL ? prepare(cx, db, PUT_BLOB) : NULL;
    if (s == NULL) {
        return bytes != NULL ? cx->error.code : SX_OK;
    }
    (void)sqlite3_bind_int64(s, 1, id);
    bind_u64(s, 2, lane);
    bind_u64(s, 3, (uint64_t)part);
    bind_span(s, 4, *bytes);
    return run(cx, db, s, "put blob");
}

/* COMMIT, or back to what was. */
static sx_code finish(sx_ctx *cx, sx_search_db *db, sx_code code)
{
    if (code == SX_OK) {
        code = execute(cx, db, "COMMIT", "commit");
    }
    if (code != SX_OK) {
        (void)sqlite3_exec(db->db, "ROLLBACK", NULL, NULL, NULL); /* where it fails, see idle */
    }
    return code;
}

sx_code sx_search_db_add(sx_ctx *cx, sx_search_db *db, sx_search_record *row,
                         const sx_search_lane_record *lane, uint32_t lane_count)
{
    SX_ASSERT(lane_count > 0 && lane_count <= SX_SEARCH_LANES_MAX);
    SX_TRY(begin(cx, db));
    sx_code code = put_search(cx, db, row, ADD);
    row->id = sqlite3_last_insert_rowid(db->db);
    for (uint32_t i = 0; code == SX_OK && i < lane_count; i++) {
        SX_ASSERT(lane[i].lane == i && lane[i].state_bytes == 0 && lane[i].best_bytes == 0);
        code = put_lane_row(cx, db, row->id, &lane[i]);
    }
    return finish(cx, db, code);
}

sx_code sx_search_db_put(sx_ctx *cx, sx_search_db *db, const sx_search_record *row)
{
    SX_ASSERT(row->id > 0);
    SX_TRY(idle(cx, db));
    return put_search(cx, db, row, PUT);
}

sx_code sx_search_db_put_lane(sx_ctx *cx, sx_search_db *db, const sx_search_record *row,
                              sx_search_lane_record *lane, const sx_span *state,
                              const sx_span *best)
{
    SX_ASSERT(row->id > 0 && lane->lane < SX_SEARCH_LANES_MAX);
    if (state != NULL) {
        lane->state_bytes = state->len;
        lane->state_hash = sx_hash128_of(*state);
    }
    if (best != NULL) {
        lane->best_bytes = best->len;
        lane->best_hash = sx_hash128_of(*best);
    }
    SX_TRY(begin(cx, db));
    sx_code code = put_search(cx, db, row, PUT);
    code = code == SX_OK ? put_lane_row(cx, db, row->id, lane) : code;
    code = code == SX_OK ? put_blob(cx, db, row->id, lane->lane, SX_SEARCH_BEST, best) : code;
    code = code == SX_OK ? put_blob(cx, db, row->id, lane->lane, SX_SEARCH_STATE, state) : code;
    return finish(cx, db, code);
}

sx_code sx_search_db_remove(sx_ctx *cx, sx_search_db *db, int64_t id)
{
    SX_ASSERT(id > 0);
    static const statement each[] = {REMOVE_BLOBS, REMOVE_LANES, REMOVE};
    SX_TRY(begin(cx, db));
    sx_code code = SX_OK;
    for (uint32_t i = 0; code == SX_OK && i < SX_COUNT(each); i++) {
        sqlite3_stmt *s = prepare(cx, db, each[i]);
        if (s == NULL) {
            code = cx->error.code;
        } else {
            (void)sqlite3_bind_int64(s, 1, id);
            code = run(cx, db, s, "remove");
        }
    }
    code = finish(cx, db, code);
    (void)sqlite3_exec(db->db, "PRAGMA incremental_vacuum", NULL, NULL, NULL);
    return code;
}
