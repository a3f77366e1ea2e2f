/* shared_memory.h - what the hardware does with addresses of shared memory, written down for the tests a second time:
 * chunks and lines by division, nothing of core/tile. */
#ifndef SX_TESTS_CORE_TILE_SHARED_MEMORY_H
#define SX_TESTS_CORE_TILE_SHARED_MEMORY_H
#include <stdint.h>
#include <string.h>

/* Memory is lines of 128 bytes, which are 8 chunks of 16. The mode `width` bytes exchanges chunks within as many bytes,
 * by the number of the line. */
static inline uint32_t hw_swizzle(uint32_t width, uint32_t address)
{
    static const uint8_t other[8][8] = {
        {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5},
        {3, 2, 1, 0, 7, 6, 5, 4}, {4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2},
        {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0},
    };
    uint32_t line = address / 128, chunk = address / 16 % 8;
    uint32_t period = width == 128 ? 8 : width == 64 ? 4 : width == 32 ? 2 : 1;
    return line * 128 + other[line % period][chunk] * 16U + address % 16;
}

/* Wavefronts of a phase: words of 4 bytes that differ, in the bank that has most. */
static inline uint32_t hw_wavefronts(const uint32_t *address, uint32_t count)
{
    static uint32_t met[1 << 16], now; /* by word: when it was last seen */
    uint32_t bank[32] = {0}, most = 0;
    now++;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t word = address[i] / 4 % (1 << 16);
        bank[word % 32] += met[word] != now;
        met[word] = now;
        most = bank[word % 32] > most ? bank[word % 32] : most;
    }
    return most;
}
#endif
