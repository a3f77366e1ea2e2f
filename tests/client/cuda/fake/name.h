/* name.h - what the GPUs of the driver of the tests are called. */
#ifndef SX_TESTS_CLIENT_CUDA_FAKE_NAME_H
#define SX_TESTS_CLIENT_CUDA_FAKE_NAME_H
#include <stddef.h>

/* By name= of the settings, with spaces for _; else "Fake 0", "Fake 1", ... */
void fake_name(const char *settings, int device, char *name, size_t size);
#endif
