/* events.h - events of the driver of the tests (events.c). */
#ifndef SX_TESTS_CLIENT_CUDA_FAKE_EVENTS_H
#define SX_TESTS_CLIENT_CUDA_FAKE_EVENTS_H
#include <stdint.h>

/* How many there are. */
uint32_t fake_events(void);
#endif
