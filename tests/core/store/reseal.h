/* reseal.h - the checksums of an altered snapshot made good again, so that tests and fuzzers reach what lies
 * behind them. */
#ifndef SX_TESTS_CORE_STORE_RESEAL_H
#define SX_TESTS_CORE_STORE_RESEAL_H
#include <string.h>

#include "core/store/snapshot.h"

static inline void sx_test_reseal(uint8_t *bytes, size_t len)
{
    sx_snapshot_header h;
    if (len < SX_SNAPSHOT_PAGE) {
        return;
    }
    memcpy(&h, bytes, sizeof(h));
    h.size = len;
    h.digest = 0;
    for (uint32_t i = 0; i < h.section_count && i < SX_SNAPSHOT_SECTIONS_MAX; i++) {
        sx_snapshot_section s;
        uint8_t *row = bytes + sizeof(h) + i * sizeof(s);
        memcpy(&s, row, sizeof(s));
        if (s.offset <= len && s.size <= len - s.offset) {
            s.digest = sx_hash64((sx_span){bytes + s.offset, (size_t)s.size}, 0);
        }
        memcpy(row, &s, sizeof(s));
    }
    memcpy(bytes, &h, sizeof(h));
    h.digest = sx_hash64((sx_span){bytes, SX_SNAPSHOT_PAGE}, 0);
    memcpy(bytes, &h, sizeof(h));
}
#endif
