/* time.h - how long work takes on the GPU of the tests. */
#ifndef SX_TESTS_CLIENT_CUDA_FAKE_TIME_H
#define SX_TESTS_CLIENT_CUDA_FAKE_TIME_H
#include <stdint.h>

/* Milliseconds of a launch of so many blocks, the last one before. `settings` may say jitter=SEED: then the work takes
 * 2 microseconds for each block (with alike=1: for all of them), up to twice as long by chance, and now and then, for
 * several launches on end, ten times as long, as where others use the GPU, too. Else every piece takes 2 microseconds.
 */
float fake_time(const char *settings, uint32_t blocks);
#endif
