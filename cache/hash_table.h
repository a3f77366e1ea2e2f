/* hash_table.h - uthash with our hash and without abort: a failed insert leaves hh.tbl NULL in the element. */
#ifndef SX_CACHE_HASH_TABLE_H
#define SX_CACHE_HASH_TABLE_H
#include "core/base/hash.h"

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(keyptr, keylen, hashv) \
    (hashv) = (unsigned)sx_hash64((sx_span){(const uint8_t *)(keyptr), (size_t)(keylen)}, 0)
#include <uthash.h>
#include <utlist.h>
#endif
