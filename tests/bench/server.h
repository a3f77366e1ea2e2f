/* server.h - a daemon of this build for a benchmark: its own socket and state folder, gone when it is stopped. */
#ifndef SX_TESTS_BENCH_SERVER_H
#define SX_TESTS_BENCH_SERVER_H
#include <stdbool.h>
#include <sys/types.h>

#define SX_BENCH_PATH_MAX 256

typedef struct {
    pid_t pid;
    char folder[SX_BENCH_PATH_MAX];
    char socket[SX_BENCH_PATH_MAX + 8];
} sx_bench_server;

/* A connected stream socket, or -1. */
int sx_bench_connect(const char *path);
/* A fresh folder with mode 0700 under $TMPDIR; false, with a message: there is none. */
bool sx_bench_folder_make(const char *bench, char folder[SX_BENCH_PATH_MAX]);
/* Starts `program` of this build's bin folder and waits until it answers, 5 s at most; false, with a message:
 * it does not, and nothing of it is left. */
bool sx_bench_server_start(const char *bench, const char *program, sx_bench_server *server);
/* Ends it and removes its folder. */
void sx_bench_server_stop(sx_bench_server *server);
#endif
