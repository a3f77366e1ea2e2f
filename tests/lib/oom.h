/* oom.h - allocations that fail when a test says so, also under sanitizers.
 *
 * A program that uses this is listed in tests/CMakeLists.txt (sx_tests_oom): its linker sends malloc, calloc, realloc,
 * aligned_alloc and free of our own code to the functions in oom.c. Calls inside shared libraries are not touched.
 */
#ifndef SX_TESTS_LIB_OOM_H
#define SX_TESTS_LIB_OOM_H
#include <stdbool.h>
#include <stdint.h>

/* From now on allocations are counted, and number `at` fails, the first being 1; 0: none. */
void sx_oom_arm(uint64_t at);
/* No allocation fails any more. Returns how many there were since sx_oom_arm. */
uint64_t sx_oom_disarm(void);
/* Blocks that were allocated and not freed, since the program began. */
int64_t sx_oom_live(void);
#endif
