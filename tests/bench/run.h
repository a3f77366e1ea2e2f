/* run.h - a compiled program and another engine in turns: the least time of a few runs of each. */
#ifndef SX_TESTS_BENCH_RUN_H
#define SX_TESTS_BENCH_RUN_H
#include "client/runtime/runtime.h"
#include "tests/bench/peer.h"

#define SX_BENCH_RUNS_PER_ROUND 5u

/* Opens the module with memory of the arena behind every tensor of its interface, and runs it until it is warm.
 * Inputs and weights are f32; weights lie within 1/8, so that no score of attention is so far below another that its
 * power of e is subnormal, which takes a processor a hundred times as long to multiply. */
sx_code sx_bench_open(sx_ctx *cx, sx_span bytes, uint32_t threads, sxr_program **program);
/* -1: a run failed. */
double sx_bench_least_ns(sx_ctx *cx, sxr_program *program);
double sx_bench_peer_least_ns(sx_bench_peer *peer);
#endif
