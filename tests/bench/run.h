/* run.h - a compiled program and another engine in turns: the least time of a few runs of each. */
#ifndef SX_TESTS_BENCH_RUN_H
#define SX_TESTS_BENCH_RUN_H
#include "client/runtime/runtime.h"
#include "tests/bench/peer.h"

#define SX_BENCH_RUNS_PER_ROUND 5u

/* Opens the module with memory of the arena behind every tensor of its interface, and runs it until it is warm. */
sx_code sx_bench_open(sx_ctx *cx, sx_span bytes, uint32_t threads, sxr_program **program);
/* -1: a run failed. */
double sx_bench_least_ns(sx_ctx *cx, sxr_program *program);
double sx_bench_peer_least_ns(sx_bench_peer *peer);
#endif
