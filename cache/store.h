/* store.h - one SQLite connection of the cache: opening, prepared statements, loading and checking a row.
 *
 * A connection belongs to one thread: the owner reads with one, the writer writes with another. Invariant: no
 * statement stays stepped between calls, so that no reader holds an old snapshot and checkpoints can finish.
 */
#ifndef SX_CACHE_STORE_H
#define SX_CACHE_STORE_H
#include "cache/cache.h"

#include <sqlite3.h>
#include <zstd.h>

#define SX_CACHE_SCHEMA_VERSION 1
#define SX_CACHE_APPLICATION_ID 0x53584331 /* "SXC1" */
#define SX_CACHE_ROW_BYTES \
    256 /* charged for a row over its stored bytes; also in schema.c, sql.def */
#define SX_CACHE_ZSTD_MIN 4096 /* smaller entries are stored as they are */
#define SX_CACHE_PATH_MAX 4096
extern const char sx_cache_schema[];

typedef struct {
    sx_key key;
    uint32_t ns;
} sx_ident; /* what names an entry; hashed and compared as bytes */
_Static_assert(sizeof(sx_ident) == SX_KEY_BYTES + 4, "no padding: the bytes are the identity");

typedef enum {
#define SX_SQL(name, text) SX_SQL_##name,
#include "cache/sql.def"
#undef SX_SQL
    SX_SQL_COUNT
} sx_sql;

typedef struct {
    sqlite3 *db;                           /* NULL: closed */
    sqlite3_stmt *statement[SX_SQL_COUNT]; /* prepared when they are first used */
    ZSTD_DCtx *unpack;
    int code;                      /* SQLite's extended result code of the last failure */
    char text[SX_CACHE_ERROR_MAX]; /* what failed and how */
} sx_store;

typedef enum {
    SX_FOUND_READY,      /* open, of our version */
    SX_FOUND_NEWER,      /* of a newer version; closed again, untouched */
    SX_FOUND_OTHER,      /* of an older version or of another program; closed again */
    SX_FOUND_UNREADABLE, /* not a database or malformed; closed again */
    SX_FOUND_FAILED      /* the system refuses: full, read-only, I/O error; closed again */
} sx_found;

/* Opens the file for writing, makes the tables in an empty one. */
sx_found sx_store_open(sx_store *store, const char *path, const char *vfs, bool map);
/* Opens an existing, READY store for reading. */
bool sx_store_open_reader(sx_store *store, const char *path, const char *vfs, bool map);
void sx_store_close(sx_store *store);

/* The prepared statement, reset and without bindings; NULL when it cannot be prepared (store->code, text). */
sqlite3_stmt *sx_store_statement(sx_store *store, sx_sql sql);
/* Steps a statement that gives no row and resets it; false: failed. */
bool sx_store_run(sx_store *store, sqlite3_stmt *statement, const char *what);
/* Notes the connection's last error under `what`. */
void sx_store_note(sx_store *store, const char *what);
/* Is it the row (too big, constraint) rather than the system that failed? */
bool sx_store_is_row_fault(int code);
/* Is the file itself malformed? */
bool sx_store_is_damage(int code);

void sx_store_bind_ident(sqlite3_stmt *statement, const sx_ident *ident);
void sx_store_bind_span(sqlite3_stmt *statement, int index,
                        sx_span span); /* borrowed until reset */
void sx_store_bind_u64(sqlite3_stmt *statement, int index,
                       uint64_t value);                            /* above INT64_MAX: INT64_MAX */
sx_span sx_store_column_span(sqlite3_stmt *statement, int column); /* until the next step */
uint64_t sx_store_column_u64(sqlite3_stmt *statement, int column);
/* The first columns of LOAD, FIND and LIST; false when they cannot be a row of ours. */
bool sx_store_column_info(sqlite3_stmt *statement, sx_cache_info *info);
#define SX_STORE_INFO_COLUMNS 11

/* Loads, checks and unpacks. SX_OK; SX_ABSENT; SX_CORRUPT (`why` names it, `xxh` holds the row's checksum
 * field); SX_SYSTEM (store->text); SX_NOMEM. */
typedef struct {
    const char *why; /* static storage */
    uint8_t xxh[16]; /* what the row says its checksum is */
    bool has_xxh;    /* the row says so; else `xxh` is not valid */
} sx_store_damage;
sx_code sx_store_load(sx_store *store, const sx_ident *ident, sx_blob **blob, sx_cache_info *info,
                      sx_store_damage *damage);

/* The 16 bytes stored with a row: XXH3-128 over its fields that never change and the hash of its stored bytes. */
void sx_store_checksum(const sx_cache_info *info, uint32_t encoding, sx_span stored,
                       uint8_t xxh[16]);
enum { SX_ENCODING_RAW = 0, SX_ENCODING_ZSTD = 1 };
#endif
