#include "tests/client/cuda/fake/map.h"

#include <string.h>

#define MADE UINT64_C(0x70616d20656b6166)
_Static_assert(sizeof(fake_map) <= FAKE_MAP_BYTES, "a map has 128 bytes");

static bool fits(const fake_map *e, const int word[5], const unsigned *every)
{
    unsigned inner = (unsigned)e->box[0] * e->bytes;
    bool fine = e->at % 16 == 0 && word[1] == 0 && word[2] >= 0 && word[2] <= 3 && word[3] >= 0 &&
                word[3] <= 3 && word[4] == 0 && inner % 16 == 0 &&
                (word[2] == 0 || inner <= 16U << word[2]);
    for (unsigned d = 0; fine && d < e->rank; d++) {
        fine = e->dim[d] >= 1 && e->dim[d] <= UINT64_C(1) << 32 && e->box[d] >= 1 &&
               e->box[d] <= 256 && every[d] == 1 &&
               (d == 0 || (e->stride[d - 1] % 16 == 0 && e->stride[d - 1] < UINT64_C(1) << 40));
    }
    return fine;
}

bool fake_map_encode(void *map, const int word[5], unsigned rank, void *at, const uint64_t *dim,
                     const uint64_t *stride, const unsigned *box, const unsigned *every)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    fake_map e = {.made = MADE, .rank = (uint8_t)rank};
    if ((uintptr_t)map % 64 != 0 || rank < 1 || rank > 5 || word[0] < 0 || word[0] > 12) {
        return false;
    }
    memcpy(&e.at, &at, sizeof(e.at));
    memcpy(e.dim, dim, rank * sizeof(*dim));
    memcpy(e.stride, stride, (rank - 1) * sizeof(*stride));
    for (unsigned d = 0; d < rank; d++) {
        e.box[d] = (uint16_t)(box[d] < UINT16_MAX ? box[d] : UINT16_MAX);
    }
    e.bytes = bytes[word[0]];
    e.swizzle = (uint8_t)(word[2] <= 0 || word[2] > 3 ? 0 : 16 << word[2]);
    if (!fits(&e, word, every)) {
        return false;
    }
    memset(map, 0, FAKE_MAP_BYTES);
    memcpy(map, &e, sizeof(e));
    return true;
}

bool fake_map_read(const uint8_t *bytes, fake_map *map)
{
    memcpy(map, bytes, sizeof(*map));
    return map->made == MADE;
}
