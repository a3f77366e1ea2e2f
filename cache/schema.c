/* schema.c - the tables of the store. A change here is a new SX_CACHE_SCHEMA_VERSION.
 *
 * Blobs live in a rowid table of their own (long rows in a WITHOUT ROWID index were 4x slower to read).
 * `usage` is kept by the triggers, in the transaction of the change, so that limits need no scan, and counted
 * afresh with the first batch after an open. A row is charged 256 bytes over its stored bytes. `quarantine.id`
 * names the blob that was kept; the entry is gone. */
#include "cache/store.h"

const char sx_cache_schema[] =
    "CREATE TABLE meta (k TEXT PRIMARY KEY, v) WITHOUT ROWID;"
    "CREATE TABLE blob (id INTEGER PRIMARY KEY, data BLOB NOT NULL);"
    "CREATE TABLE entry ("
    " key BLOB NOT NULL, ns INTEGER NOT NULL, id INTEGER NOT NULL REFERENCES blob(id),"
    " kind INTEGER NOT NULL, enc INTEGER NOT NULL, size INTEGER NOT NULL, csize INTEGER NOT NULL,"
    " xxh BLOB NOT NULL, cost_us INTEGER NOT NULL, score REAL NOT NULL, created INTEGER NOT NULL,"
    " last_used INTEGER NOT NULL, hits INTEGER NOT NULL, pinned INTEGER NOT NULL,"
    " gen INTEGER NOT NULL, PRIMARY KEY (key, ns)) WITHOUT ROWID;"
    "CREATE INDEX entry_evict ON entry (pinned, score, last_used);"
    "CREATE INDEX entry_ns ON entry (ns, pinned, score, last_used, csize);"
    "CREATE TABLE part (id INTEGER NOT NULL, n INTEGER NOT NULL, ns INTEGER NOT NULL,"
    " name BLOB NOT NULL, value BLOB NOT NULL, key BLOB NOT NULL, PRIMARY KEY (id, n))"
    " WITHOUT ROWID;"
    "CREATE INDEX part_value ON part (ns, name, value);"
    "CREATE TABLE quarantine (id INTEGER PRIMARY KEY, key BLOB NOT NULL, ns INTEGER NOT NULL,"
    " kind INTEGER NOT NULL, size INTEGER NOT NULL, created INTEGER NOT NULL,"
    " at INTEGER NOT NULL, reason TEXT NOT NULL);"
    "CREATE TABLE strike (key BLOB PRIMARY KEY, count INTEGER NOT NULL, at INTEGER NOT NULL,"
    " signature TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE usage (ns INTEGER PRIMARY KEY, entries INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL);"
    "CREATE TRIGGER entry_added AFTER INSERT ON entry BEGIN"
    " INSERT INTO usage VALUES (new.ns, 1, new.csize + 256) ON CONFLICT (ns) DO UPDATE"
    "  SET entries = entries + 1, bytes = bytes + excluded.bytes;"
    " END;"
    "CREATE TRIGGER entry_gone AFTER DELETE ON entry BEGIN"
    " UPDATE usage SET entries = entries - 1, bytes = bytes - old.csize - 256"
    "  WHERE ns = old.ns;"
    " DELETE FROM usage WHERE ns = old.ns AND entries = 0;"
    " DELETE FROM part WHERE id = old.id;"
    " DELETE FROM blob WHERE id = old.id"
    "  AND NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.id = old.id);"
    " END;";
