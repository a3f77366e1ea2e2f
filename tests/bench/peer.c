#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/peer.h"

bool sx_bench_peer_start(sx_bench_peer *p, char *const *argument)
{
    int in[2], out[2];
    (void)signal(SIGPIPE, SIG_IGN); /* one that has ended is noticed at its answer */
    /* Another peer must not hold the ends of this one: it would never see the end of its input. */
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
        return false;
    }
    p->process = fork();
    if (p->process == 0) {
        (void)dup2(in[0], STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        (void)execvp(argument[0], argument);
        _exit(127);
    }
    (void)close(in[0]), (void)close(out[1]);
    p->to = fdopen(in[1], "w");
    p->from = fdopen(out[0], "r");
    bool named = p->process > 0 && fgets(p->name, sizeof(p->name), p->from) != NULL;
    p->name[strcspn(p->name, "\n")] = '\0';
    return named && strcmp(p->name, "none") != 0 && strncmp(p->name, "SKIPPED", 7) != 0;
}

#define NUMBERS_MAX 8

bool sx_bench_peer_start_script(sx_bench_peer *p, const char *script, const int64_t *value,
                                uint32_t count)
{
    char python[] = SX_SOURCE_DIR "/tests/tools/python.sh";
    char path[sizeof(SX_SOURCE_DIR) + 64], number[NUMBERS_MAX][32];
    char *argument[NUMBERS_MAX + 3] = {python, path};
    SX_ASSERT(count <= NUMBERS_MAX);
    (void)snprintf(path, sizeof(path), SX_SOURCE_DIR "/tests/bench/%s", script);
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(number[i], sizeof(number[i]), "%lld", (long long)value[i]);
        argument[2 + i] = number[i];
    }
    return sx_bench_peer_start(p, argument);
}

double sx_bench_peer_run_ns(sx_bench_peer *p)
{
    if (p->failed) {
        return -1;
    }
    char line[64] = "";
    (void)fputs("run\n", p->to);
    (void)fflush(p->to);
    bool answered = fgets(line, sizeof(line), p->from) != NULL;
    line[strcspn(line, "\n")] = '\0';
    char *end = line;
    double ns = strtod(line, &end);
    p->failed = end == line || *end != '\0' || !isfinite(ns) || ns <= 0;
    if (p->failed) {
        (void)fprintf(stderr,
                      answered ? "symplex-bench: %s: \"%s\" is no time in nanoseconds\n"
                               : "symplex-bench: %s: it ended without an answer%s\n",
                      p->name, line);
    }
    return p->failed ? -1 : ns;
}

void sx_bench_peer_stop(sx_bench_peer *p)
{
    (void)fclose(p->to);
    (void)fclose(p->from);
    (void)waitpid(p->process, NULL, 0);
}
