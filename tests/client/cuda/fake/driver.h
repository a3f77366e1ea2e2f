/* driver.h - what the functions of the driver of the tests begin with. */
#ifndef SX_TESTS_CLIENT_CUDA_FAKE_DRIVER_H
#define SX_TESTS_CLIENT_CUDA_FAKE_DRIVER_H
#include <stdbool.h>

#define API __attribute__((visibility("default"))) int

_Noreturn void fake_die(const char *why);
/* Counts a call; the error that it has to answer, or 0. */
int fake_enter(const char *name, bool needs_context);
/* Nothing that a graph could not repeat. */
void fake_not_captured(const char *name);

#define NOT_CAPTURED() fake_not_captured(__func__)
#define ENTER(needs_context)                                \
    do {                                                    \
        int entered_ = fake_enter(__func__, needs_context); \
        if (entered_ != 0) {                                \
            return entered_;                                \
        }                                                   \
    } while (0)
#endif
