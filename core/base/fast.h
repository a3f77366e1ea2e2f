/* fast.h - what lets plain loops run as fast as the machine can. The results are the same on every machine: each
 * operation is one IEEE operation, and none is contracted. */
#ifndef SX_CORE_BASE_FAST_H
#define SX_CORE_BASE_FAST_H

/* Before a function with such loops: it is compiled for each level of vectors, and the processor takes its own when the
 * program is loaded. Only gcc knows it, and sanitizers start too late for it. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SX_LEVELS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SX_LEVELS
#endif
#endif
