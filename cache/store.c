#include "cache/store.h"

#include <stdio.h>
#include <string.h>

static const char *const sql_text[SX_SQL_COUNT] = {
#define SX_SQL(name, text) [SX_SQL_##name] = text,
#include "cache/sql.def"
#undef SX_SQL
};

/* Another program (the sqlite3 shell) may hold the file; the owner's loop must not wait for it. */
#define BUSY_MS_WRITER 2000
#define BUSY_MS_READER 20

void sx_store_note(sx_store *store, const char *what)
{
    store->code = sqlite3_extended_errcode(store->db);
    (void)snprintf(store->text, sizeof(store->text), "%s: %s (%d)", what, sqlite3_errmsg(store->db),
                   store->code);
}

bool sx_store_is_row_fault(int code)
{
    switch (code & 0xff) {
    case SQLITE_ERROR:
    case SQLITE_TOOBIG:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
    case SQLITE_MISUSE: return true;
    default: return false;
    }
}

bool sx_store_is_damage(int code)
{
    return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

sqlite3_stmt *sx_store_statement(sx_store *store, sx_sql sql)
{
    SX_ASSERT(store->db != NULL && sql < SX_SQL_COUNT);
    sqlite3_stmt *statement = store->statement[sql];
    if (statement == NULL) {
        if (sqlite3_prepare_v3(store->db, sql_text[sql], -1, SQLITE_PREPARE_PERSISTENT, &statement,
                               NULL) != SQLITE_OK) {
            sx_store_note(store, "prepare");
            if (store->code == SQLITE_ERROR) {
                store->code =
                    SQLITE_CORRUPT; /* the text is ours: the tables are not what they were */
            }
            return NULL;
        }
        store->statement[sql] = statement;
    }
    (void)sqlite3_reset(statement);
    (void)sqlite3_clear_bindings(statement);
    return statement;
}

bool sx_store_run(sx_store *store, sqlite3_stmt *statement, const char *what)
{
    if (statement == NULL) {
        return false;
    }
    int code;
    do {
        code = sqlite3_step(statement);
    } while (code == SQLITE_ROW); /* pragmas answer with rows */
    if (code != SQLITE_DONE) {
        sx_store_note(store, what);
    }
    (void)sqlite3_reset(statement);
    return code == SQLITE_DONE;
}

static bool execute(sx_store *store, const char *text, const char *what)
{
    if (sqlite3_exec(store->db, text, NULL, NULL, NULL) != SQLITE_OK) {
        sx_store_note(store, what);
        return false;
    }
    return true;
}

/* One number from a query that gives one row. */
static bool query_number(sx_store *store, const char *text, int64_t *value)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(store->db, text, -1, &statement, NULL) != SQLITE_OK) {
        sx_store_note(store, "open");
        return false;
    }
    bool found = sqlite3_step(statement) == SQLITE_ROW;
    if (found) {
        *value = sqlite3_column_int64(statement, 0);
    } else {
        sx_store_note(store, "open");
    }
    (void)sqlite3_finalize(statement);
    return found;
}

static bool connect_file(sx_store *store, const char *path, const char *vfs, int flags, bool map)
{
    *store = (sx_store){0};
    int code = sqlite3_open_v2(path, &store->db, flags | SQLITE_OPEN_NOMUTEX, vfs);
    if (store->db == NULL) {
        store->code = SQLITE_NOMEM;
        (void)snprintf(store->text, sizeof(store->text), "open: no memory");
        return false;
    }
    if (code != SQLITE_OK) {
        sx_store_note(store, "open");
        return false;
    }
    (void)sqlite3_extended_result_codes(store->db, 1);
    (void)sqlite3_busy_timeout(store->db, BUSY_MS_WRITER);
    (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_limit(store->db, SQLITE_LIMIT_LENGTH, (int)SX_CACHE_BLOB_MAX + (1 << 20));
    return !map || execute(store, "PRAGMA mmap_size = 1073741824", "map");
}

/* Page size and vacuum mode are fixed before the first table; the tables and the version come in one transaction. */
static bool make_tables(sx_store *store)
{
    char version[128];
    (void)snprintf(version, sizeof(version), "PRAGMA application_id = %d; PRAGMA user_version = %d",
                   SX_CACHE_APPLICATION_ID, SX_CACHE_SCHEMA_VERSION);
    return execute(store, "PRAGMA page_size = 16384; PRAGMA auto_vacuum = INCREMENTAL;", "make") &&
           execute(store, "PRAGMA journal_mode = WAL", "make") &&
           execute(store, "BEGIN IMMEDIATE", "make") && execute(store, sx_cache_schema, "make") &&
           execute(store, version, "make") && execute(store, "COMMIT", "make");
}

static sx_found judge(sx_store *store)
{
    int64_t version;
    int64_t application;
    int64_t tables;
    if (!query_number(store, "PRAGMA user_version", &version) ||
        !query_number(store, "PRAGMA application_id", &application) ||
        !query_number(store, "SELECT count(*) FROM sqlite_master", &tables)) {
        return sx_store_is_damage(store->code) ? SX_FOUND_UNREADABLE : SX_FOUND_FAILED;
    }
    if (version == 0 && application == 0 && tables == 0) {
        return make_tables(store) ? SX_FOUND_READY : SX_FOUND_FAILED;
    }
    if (application != SX_CACHE_APPLICATION_ID) {
        return SX_FOUND_OTHER;
    }
    if (version != SX_CACHE_SCHEMA_VERSION) {
        return version > SX_CACHE_SCHEMA_VERSION ? SX_FOUND_NEWER : SX_FOUND_OTHER;
    }
    return SX_FOUND_READY;
}

sx_found sx_store_open(sx_store *store, const char *path, const char *vfs, bool map)
{
    sx_found found = SX_FOUND_FAILED;
    if (connect_file(store, path, vfs, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, map)) {
        found = judge(store);
    }
    if (found == SX_FOUND_READY &&
        !execute(store,
                 "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                 "PRAGMA journal_size_limit = 67108864",
                 "open")) {
        found = sx_store_is_damage(store->code) ? SX_FOUND_UNREADABLE : SX_FOUND_FAILED;
    }
    if (found != SX_FOUND_READY) {
        sx_store_close(store);
    }
    return found;
}

bool sx_store_open_reader(sx_store *store, const char *path, const char *vfs, bool map)
{
    int64_t version = 0;
    if (connect_file(store, path, vfs, SQLITE_OPEN_READWRITE, map) &&
        execute(store, "PRAGMA query_only = 1", "open") &&
        query_number(store, "PRAGMA user_version", &version)) {
        (void)sqlite3_busy_timeout(store->db, BUSY_MS_READER);
        store->unpack = ZSTD_createDCtx();
        if (store->unpack != NULL) {
            return true;
        }
        (void)snprintf(store->text, sizeof(store->text), "open: no memory");
    }
    sx_store_close(store);
    return false;
}

/* Keeps code and text: the caller may still want to say why. */
void sx_store_close(sx_store *store)
{
    for (uint32_t i = 0; i < SX_SQL_COUNT; i++) {
        (void)sqlite3_finalize(store->statement[i]);
        store->statement[i] = NULL;
    }
    (void)ZSTD_freeDCtx(store->unpack);
    store->unpack = NULL;
    if (store->db != NULL) {
        int code = sqlite3_close(store->db);
        SX_ASSERT(code == SQLITE_OK); /* all statements are finalized */
        store->db = NULL;
    }
}

void sx_store_bind_ident(sqlite3_stmt *statement, const sx_ident *ident)
{
    (void)sqlite3_bind_blob(statement, 1, ident->key.byte, SX_KEY_BYTES, SQLITE_STATIC);
    (void)sqlite3_bind_int64(statement, 2, ident->ns);
}

void sx_store_bind_span(sqlite3_stmt *statement, int index, sx_span span)
{
    SX_ASSERT(index > 0 && (span.ptr != NULL || span.len == 0));
    if (span.len == 0) {
        (void)sqlite3_bind_zeroblob(statement, index, 0);
    } else {
        (void)sqlite3_bind_blob64(statement, index, span.ptr, span.len, SQLITE_STATIC);
    }
}

void sx_store_bind_u64(sqlite3_stmt *statement, int index, uint64_t value)
{
    SX_ASSERT(index > 0);
    uint64_t capped = value <= INT64_MAX ? value : INT64_MAX;
    (void)sqlite3_bind_int64(statement, index, (sqlite3_int64)capped);
}

sx_span sx_store_column_span(sqlite3_stmt *statement, int column)
{
    SX_ASSERT(column >= 0 && column < sqlite3_column_count(statement));
    const void *bytes = sqlite3_column_blob(statement, column);
    int size = sqlite3_column_bytes(statement, column);
    return (sx_span){bytes, bytes != NULL && size > 0 ? (size_t)size : 0};
}

uint64_t sx_store_column_u64(sqlite3_stmt *statement, int column)
{
    SX_ASSERT(column >= 0 && column < sqlite3_column_count(statement));
    int64_t value = sqlite3_column_int64(statement, column);
    return value > 0 ? (uint64_t)value : 0;
}

bool sx_store_column_info(sqlite3_stmt *statement, sx_cache_info *info)
{
    *info = (sx_cache_info){.stored = true, .tier = SX_TIER_DISK};
    sx_span key = sx_store_column_span(statement, 0);
    uint64_t ns = sx_store_column_u64(statement, 1);
    uint64_t kind = sx_store_column_u64(statement, 2);
    if (key.len != SX_KEY_BYTES || ns > UINT32_MAX || kind > UINT32_MAX) {
        return false;
    }
    memcpy(info->key.byte, key.ptr, SX_KEY_BYTES);
    info->ns = (uint32_t)ns;
    info->kind = (uint32_t)kind;
    info->size = sx_store_column_u64(statement, 3);
    info->stored_size = sx_store_column_u64(statement, 4);
    info->cost_us = sx_store_column_u64(statement, 5);
    info->created_us = sx_store_column_u64(statement, 6);
    info->last_used_us = sx_store_column_u64(statement, 7);
    info->hits = sx_store_column_u64(statement, 8);
    info->pinned = sqlite3_column_int(statement, 9) != 0;
    info->generation = sx_store_column_u64(statement, 10);
    return true;
}

static void put_le(uint8_t *to, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

void sx_store_checksum(const sx_cache_info *info, uint32_t encoding, sx_span stored,
                       uint8_t xxh[16])
{
    SX_ASSERT(stored.ptr != NULL || stored.len == 0);
    uint8_t head[SX_KEY_BYTES + 12 + 56];
    sx_hash128 content = sx_hash128_of(stored);
    memcpy(head, info->key.byte, SX_KEY_BYTES);
    uint8_t *at = head + SX_KEY_BYTES;
    put_le(at, info->ns, 4);
    put_le(at + 4, info->kind, 4);
    put_le(at + 8, encoding, 4);
    put_le(at + 12, info->size, 8);
    put_le(at + 20, info->stored_size, 8);
    put_le(at + 28, info->cost_us, 8);
    put_le(at + 36, info->created_us, 8);
    put_le(at + 44, info->generation, 8);
    put_le(at + 52, content.low, 8);
    put_le(at + 60, content.high, 8);
    sx_hash128 sum = sx_hash128_of((sx_span){head, sizeof(head)});
    put_le(xxh, sum.low, 8);
    put_le(xxh + 8, sum.high, 8);
}

/* Row of LOAD under the cursor -> checked and unpacked blob. */
static sx_code take_row(sx_store *store, sqlite3_stmt *row, const sx_ident *ident, sx_blob **blob,
                        sx_cache_info *info, sx_store_damage *damage)
{
    uint64_t encoding = sx_store_column_u64(row, SX_STORE_INFO_COLUMNS);
    sx_span xxh = sx_store_column_span(row, SX_STORE_INFO_COLUMNS + 1);
    sx_span stored = sx_store_column_span(row, SX_STORE_INFO_COLUMNS + 2);
    damage->has_xxh = xxh.len == sizeof(damage->xxh);
    if (damage->has_xxh) {
        memcpy(damage->xxh, xxh.ptr, xxh.len);
    }
    if (!sx_store_column_info(row, info) || !damage->has_xxh || encoding > SX_ENCODING_ZSTD ||
        memcmp(info->key.byte, ident->key.byte, SX_KEY_BYTES) != 0 || info->ns != ident->ns) {
        damage->why = "row is malformed";
        return SX_CORRUPT;
    }
    if (sqlite3_column_type(row, SX_STORE_INFO_COLUMNS + 2) == SQLITE_NULL) {
        damage->why = "blob is missing";
        return SX_CORRUPT;
    }
    uint8_t sum[16];
    sx_store_checksum(info, (uint32_t)encoding, stored, sum);
    if (stored.len != info->stored_size || memcmp(sum, damage->xxh, sizeof(sum)) != 0 ||
        info->size > SX_CACHE_BLOB_MAX) {
        damage->why = "checksum differs";
        return SX_CORRUPT;
    }
    sx_blob *fresh = sx_blob_new((size_t)info->size);
    if (fresh == NULL) {
        (void)snprintf(store->text, sizeof(store->text), "load: no memory for %llu bytes",
                       (unsigned long long)info->size);
        return SX_NOMEM;
    }
    size_t made = info->size;
    if (encoding == SX_ENCODING_ZSTD) {
        made = ZSTD_decompressDCtx(store->unpack, sx_blob_bytes(fresh), (size_t)info->size,
                                   stored.ptr, stored.len);
    } else if (stored.len == info->size && stored.len > 0) {
        memcpy(sx_blob_bytes(fresh), stored.ptr, stored.len);
    }
    if (ZSTD_isError(made) || made != info->size ||
        (encoding == SX_ENCODING_RAW && stored.len != info->size)) {
        sx_blob_free(fresh);
        damage->why = "does not unpack";
        return SX_CORRUPT;
    }
    *blob = fresh;
    return SX_OK;
}

sx_code sx_store_load(sx_store *store, const sx_ident *ident, sx_blob **blob, sx_cache_info *info,
                      sx_store_damage *damage)
{
    *damage = (sx_store_damage){0};
    sqlite3_stmt *row = sx_store_statement(store, SX_SQL_LOAD);
    if (row == NULL) {
        return SX_SYSTEM;
    }
    sx_store_bind_ident(row, ident);
    sx_code code = SX_ABSENT;
    int step = sqlite3_step(row);
    if (step == SQLITE_ROW) {
        code = take_row(store, row, ident, blob, info, damage);
    } else if (step != SQLITE_DONE) {
        sx_store_note(store, "load");
        bool damaged = sx_store_is_damage(store->code);
        damage->why = damaged ? "page is malformed" : NULL;
        code = damaged ? SX_CORRUPT : SX_SYSTEM;
    }
    (void)sqlite3_reset(row);
    return code;
}
