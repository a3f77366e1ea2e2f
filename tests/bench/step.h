/* step.h - a step of training of a network, as text. */
#ifndef SX_TESTS_BENCH_STEP_H
#define SX_TESTS_BENCH_STEP_H
#include "core/base/buf.h"

/* In place of the program in `text`: its loss, the sum of the squares of its first result, and AdamW on all weights
 * (learning rate, decays and eps are constants), which with both of their means are state in place. */
sx_code sx_bench_make_step(sx_ctx *cx, sx_buf *text);
#endif
