/* map.h - a tensor as the copy engine reads it, as the fake driver encodes it. What a real map holds is not known. */
#ifndef SX_TESTS_CLIENT_CUDA_FAKE_MAP_H
#define SX_TESTS_CLIENT_CUDA_FAKE_MAP_H
#include <stdbool.h>
#include <stdint.h>

#define FAKE_MAP_BYTES 128
typedef struct {
    uint64_t made, at, dim[5], stride[4]; /* the last one without that of an element */
    uint16_t box[5];
    uint8_t rank, bytes, swizzle;
} fake_map;

/* `word`: type, interleave, swizzle, promotion and fill. False where the rules of cuTensorMapEncodeTiled in cuda.h are
 * not kept, for elements that are neither packed nor interleaved. */
bool fake_map_encode(void *map, const int word[5], unsigned rank, void *at, const uint64_t *dim,
                     const uint64_t *stride, const unsigned *box, const unsigned *every);
/* False: these bytes were not encoded here. */
bool fake_map_read(const uint8_t *bytes, fake_map *map);
#endif
