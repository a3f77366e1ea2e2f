/* peer.h - another engine in a process of its own: it says its name on one line, then runs once for each line
 * it gets and answers with the nanoseconds it took. */
#ifndef SX_TESTS_BENCH_PEER_H
#define SX_TESTS_BENCH_PEER_H
#include <stdio.h>
#include <sys/types.h>

#include "core/base/base.h"

typedef struct {
    pid_t process;
    FILE *to, *from;
    char name[128];
    bool failed; /* it gave an answer that is no time, or none */
} sx_bench_peer;
/* `argument` as execvp wants it. False: there is none; stop it all the same. */
bool sx_bench_peer_start(sx_bench_peer *peer, char *const *argument);
/* A script of tests/bench in the Python of tests/tools/python.sh, with numbers as its arguments. */
bool sx_bench_peer_start_script(sx_bench_peer *peer, const char *script, const int64_t *value,
                                uint32_t count);
/* -1 once it has failed; the first time a line on stderr says how. */
double sx_bench_peer_run_ns(sx_bench_peer *peer);
void sx_bench_peer_stop(sx_bench_peer *peer);
#endif
