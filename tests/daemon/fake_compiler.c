/* fake_compiler.c - the daemon with a compiler that does what the program text says: the first word is the order.
 *
 *   echo ...    a module that repeats program, target, dims and options       fail ...   an error of the program
 *   hold ...    goes on when the worker gets SIGUSR1                          spin ...   never ends
 *   crash ...   aborts          exit ...   leaves with status 3
 *   alloc ...   takes memory until there is none
 *   big N ...   a module of N bytes      wrong ...  a module that the check refuses
 *   fork ...    starts a process         open ...   opens a file              garbage ...  talks nonsense on its pipe
 *   mute ...    closes its pipe and lives on
 *   search LANES STEPS [words]   a search. A step digests the state before it; its objective is a number made
 *                                of the digest.
 *       hold        each step goes on when its worker gets SIGUSR1      crash=L:S  step S of lane L aborts
 *       fail=L:S    ... is an error of the program
 *       wrong=L:S   ... leaves a module that the check refuses
 *       huge=N      states of N bytes                                   deaf=L:S   ... answers with another step
 *       limit=L:S   ... finds its state too large, done with it         spin=L:S   ... never ends
 *   $FAKE_LOOK is a folder: the daemon looks for stored programs, which are none. Look-up N, from 1, makes the file N
 *       there and goes on when there is a file N.go.
 *   $FAKE_BUILD is another name of the build: states of one are of no use to the other
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/daemon.h"

#define PIPE_FD 3

static volatile sig_atomic_t released;

static void on_release(int number)
{
    (void)number;
    released = 1;
}

static bool starts(sx_span text, const char *word)
{
    size_t len = strlen(word);
    return text.len >= len && memcmp(text.ptr, word, len) == 0;
}

static sx_code fake_key(sx_ctx *cx, const sx_compile_args *args, sxd_key *key)
{
    if (starts(args->ir, "bad")) {
        return SX_FAIL(cx, SX_INPUT, "line 1: 'bad' is no operation");
    }
    sx_buf *text = SX_NEW(cx, sx_buf);
    if (text == NULL) {
        return cx->error.code;
    }
    sx_buf_init(text, 1 << 16);
    for (uint32_t i = 0; i < args->dims.count; i++) {
        sx_buf_print(text, "%.*s=%lld ", (int)args->dims.items[i].name.len,
                     (const char *)args->dims.items[i].name.ptr,
                     (long long)args->dims.items[i].integer);
    }
    char *dims = sx_alloc_text(cx, sx_buf_span(text));
    sx_buf_fini(text);
    sx_key program = sx_key_of("program", &args->ir, 1);
    uint8_t *digest = sx_alloc(cx, SX_KEY_BYTES);
    if (dims == NULL || digest == NULL) {
        return cx->error.code;
    }
    memcpy(digest, program.byte, SX_KEY_BYTES);
    sx_cache_key_fields fields = {
        .program = {digest, SX_KEY_BYTES},
        .target = args->target,
        .dims = sx_span_of(dims),
        .toolchain = SX_SPAN_LITERAL("fake"),
    };
    key->key = sx_cache_key_make(&fields, key->part);
    key->part_count = SX_KEY_FIELD_COUNT;
    return SX_OK;
}

static void echo(const sx_compile_args *args, sx_buf *module)
{
    sx_buf_put_text(module, "compiled:");
    sx_buf_put_span(module, args->ir);
    sx_buf_put_text(module, "|");
    sx_buf_put_span(module, args->target);
    for (uint32_t i = 0; i < args->dims.count; i++) {
        sx_buf_print(module, "|%.*s=%lld", (int)args->dims.items[i].name.len,
                     (const char *)args->dims.items[i].name.ptr,
                     (long long)args->dims.items[i].integer);
    }
}

static void hold(sx_ctx *cx)
{
    struct sigaction action = {.sa_handler = on_release};
    (void)sigaction(SIGUSR1, &action, NULL);
    cx->progress(cx->progress_self, "hold", 1, 2);
    struct timespec pause = {.tv_nsec = 1000000};
    while (released == 0) {
        (void)nanosleep(&pause, NULL);
    }
    released = 0;
    cx->progress(cx->progress_self, "released", 2, 2);
}

static sx_code take_all_memory(sx_ctx *cx)
{
    for (;;) {
        uint8_t *block = malloc((size_t)8 << 20);
        if (block == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "malloc: no memory");
        }
        memset(block, 1, (size_t)8 << 20);
    }
}

static sx_code misbehave(sx_ctx *cx, const sx_compile_args *args)
{
    if (starts(args->ir, "crash")) {
        abort();
    } else if (starts(args->ir, "exit")) {
        _exit(3);
    } else if (starts(args->ir, "spin")) {
        cx->progress(cx->progress_self, "spin", 0, 0);
        for (volatile uint64_t turn = 0;; turn++) {
        }
    } else if (starts(args->ir, "alloc")) {
        return take_all_memory(cx);
    } else if (starts(args->ir, "fork")) {
        pid_t pid = fork();
        if (pid == 0) {
            _exit(0);
        }
        return SX_FAIL(cx, SX_COMPILE, "fork gave %d", pid > 0);
    } else if (starts(args->ir, "open")) {
        int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
        return SX_FAIL(cx, SX_COMPILE, "open gave %s", fd >= 0 ? "a file" : strerror(errno));
    } else if (starts(args->ir, "garbage")) {
        (void)!write(PIPE_FD, "\x01\xff\xff\xff\xff\xff\xff\xff\xff nonsense", 18);
        for (;;) {
            (void)usleep(1000);
        }
    } else if (starts(args->ir, "mute")) {
        (void)close(PIPE_FD);
        for (;;) {
            (void)usleep(1000);
        }
    }
    return SX_OK;
}

static sx_code fake_compile(sx_ctx *cx, const sx_compile_args *args, sx_core_library *library,
                            sx_buf *module)
{
    (void)library;
    SX_TRY(misbehave(cx, args));
    if (starts(args->ir, "fail")) {
        sx_hint(cx, "Ask for less.");
        return SX_FAIL(cx, SX_COMPILE, "program refused: %.*s", (int)args->ir.len,
                       (const char *)args->ir.ptr);
    }
    if (starts(args->ir, "hold")) {
        hold(cx);
    }
    if (starts(args->ir, "wrong")) {
        sx_buf_put_text(module, "not a module");
        return SX_OK;
    }
    echo(args, module);
    if (starts(args->ir, "big ")) {
        char *text = sx_alloc_text(cx, args->ir);
        for (size_t size = strtoull(text + 4, NULL, 10);
             module->len < size && module->code == SX_OK;) {
            sx_buf_put_text(module,
                            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
        }
    }
    return SX_OK;
}

static sx_code fake_optimize(sx_ctx *cx, const sx_compile_args *args, sx_core_library *library,
                             sx_buf *text)
{
    (void)library;
    SX_TRY(misbehave(cx, args));
    sx_buf_put_text(text, "better ");
    sx_buf_put_span(text, args->ir);
    return SX_OK;
}

static sx_code fake_check(sx_ctx *cx, sx_span module)
{
    return starts(module, "compiled:") ? SX_OK
                                       : SX_FAIL(cx, SX_CORRUPT, "module: %zu bytes", module.len);
}

static sx_code fake_places(sx_ctx *cx, const sx_compile_args *args, const void *program,
                           sx_core_place *place, uint32_t *count)
{
    static _Atomic uint32_t looks;
    char path[4096];
    const struct timespec pause = {.tv_nsec = 1000000};
    uint32_t number = ++looks;
    (void)args, (void)program, (void)place;
    *count = 0;
    (void)snprintf(path, sizeof(path), "%s/%u", getenv("FAKE_LOOK"), number);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    SX_ASSERT(fd >= 0);
    (void)close(fd);
    (void)snprintf(path, sizeof(path), "%s/%u.go", getenv("FAKE_LOOK"), number);
    while (access(path, F_OK) != 0) {
        (void)nanosleep(&pause, NULL);
    }
    return SX_FAIL(cx, SX_UNIMPLEMENTED, "no stored programs");
}

static const char *fake_build(void)
{
    const char *build = getenv("FAKE_BUILD");
    return build != NULL ? build : "fake-1";
}

/* ---- searches ---- */
static bool read_search(sx_ctx *cx, sx_span ir, unsigned *lanes, unsigned *steps)
{
    const char *text = sx_alloc_text(cx, ir);
    return text != NULL && sscanf(text, "search %u %u", lanes, steps) == 2;
}

/* The word "NAME=A:B" of the program, for this lane and step. */
static bool told(sx_ctx *cx, sx_span ir, const char *name, uint32_t lane, uint32_t step)
{
    char word[64];
    const char *text = sx_alloc_text(cx, ir);
    (void)snprintf(word, sizeof(word), " %s=%u:%u", name, lane, step);
    const char *at = text != NULL ? strstr(text, word) : NULL;
    return at != NULL && (at[strlen(word)] == ' ' || at[strlen(word)] == '\0');
}

static sx_code fake_lanes(sx_ctx *cx, const sx_compile_args *args, sx_span **names, uint32_t *count)
{
    unsigned steps;
    if (!read_search(cx, args->ir, count, &steps)) {
        return SX_FAIL(cx, SX_INPUT, "line 1: no search");
    }
    *names = SX_NEW_ARRAY(cx, sx_span, *count + 1);
    for (uint32_t i = 0; *names != NULL && i < *count && i < 1000; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "lane-%u", i);
        const char *copy = sx_alloc_text(cx, sx_span_of(name));
        (*names)[i] = sx_span_of(copy);
    }
    return *names != NULL ? SX_OK : cx->error.code;
}

static sx_code read_state(sx_ctx *cx, const sxd_step *step, uint32_t *done, unsigned *best)
{
    unsigned lane;
    char build[32] = "";
    *done = 0;
    *best = 1000;
    if (step->state.len == 0) {
        return SX_OK;
    }
    const char *text = sx_alloc_text(cx, step->state);
    if (text == NULL || sscanf(text, "%31s %u %u %u", build, &lane, done, best) != 4 ||
        lane != step->lane) {
        return SX_FAIL(cx, SX_CORRUPT, "state: malformed");
    }
    return strcmp(build, fake_build()) == 0
               ? SX_OK
               : SX_FAIL(cx, SX_ABSENT, "state: of build %s, this is %s", build, fake_build());
}

static sx_code disturb(sx_ctx *cx, const sx_compile_args *args, const sxd_step *step,
                       uint32_t number)
{
    if (told(cx, args->ir, "crash", step->lane, number)) {
        abort();
    }
    if (told(cx, args->ir, "fail", step->lane, number)) {
        return SX_FAIL(cx, SX_COMPILE, "lane %u refuses step %u", step->lane, number);
    }
    if (told(cx, args->ir, "spin", step->lane, number)) {
        for (volatile uint64_t turn = 0;; turn++) {
        }
    }
    const char *text = sx_alloc_text(cx, args->ir);
    if (text != NULL && strstr(text, " hold") != NULL) {
        hold(cx);
    }
    return SX_OK;
}

static void put_hex(sx_buf *buf, const sx_key *key)
{
    char text[SX_KEY_TEXT_SIZE];
    sx_key_print(key, text);
    sx_buf_put_text(buf, text);
}

static sx_code fake_step(sx_ctx *cx, const sx_compile_args *args, const sxd_step *step,
                         sx_core_step_result *result)
{
    unsigned lanes, steps, best;
    uint32_t done;
    if (!read_search(cx, args->ir, &lanes, &steps) || step->lane >= lanes) {
        return SX_FAIL(cx, SX_INPUT, "line 1: no search");
    }
    SX_TRY(read_state(cx, step, &done, &best));
    uint32_t number = done + 1;
    SX_TRY(disturb(cx, args, step, number));
    uint8_t lane = (uint8_t)step->lane;
    const sx_span part[] = {args->ir, step->state, {&lane, 1}};
    sx_key digest = sx_key_of("fake step", part, SX_COUNT(part));
    unsigned found = 100 + ((unsigned)digest.byte[0] << 8 | digest.byte[1]) % 900;
    if (found < best) {
        best = found;
        sx_buf_print(result->module, "%s %u %u %u ",
                     told(cx, args->ir, "wrong", step->lane, number) ? "wrong" : "compiled:",
                     step->lane, number, best);
        put_hex(result->module, &digest);
    }
    sx_buf_print(result->state, "%s %u %u %u ", fake_build(), step->lane, number, best);
    put_hex(result->state, &digest);
    const char *huge = strstr(sx_alloc_text(cx, args->ir), "huge=");
    for (size_t size = huge != NULL ? strtoull(huge + 5, NULL, 10) : 0;
         result->state->len < size && result->state->code == SX_OK;) {
        put_hex(result->state, &digest);
    }
    result->objective = best;
    result->bound = 50;
    result->time_ns = best * 10.0;
    result->peak_bytes = 4096;
    result->nodes = 10 * number;
    result->fuel = step->fuel * number;
    result->step = told(cx, args->ir, "deaf", step->lane, number) ? number + 1 : number;
    result->done = number >= steps;
    result->stop = result->done ? "proven" : "fuel";
    return told(cx, args->ir, "limit", step->lane, number)
               ? SX_FAIL(cx, SX_LIMIT, "state: too large")
               : SX_OK;
}

/* The front: both, one after the other. */
static sx_code fake_merge(sx_ctx *cx, const sx_compile_args *args, sx_span a, sx_span b,
                          sx_buf *out)
{
    (void)cx;
    (void)args;
    sx_buf_put_span(out, a);
    sx_buf_put_text(out, "+");
    sx_buf_put_span(out, b);
    return SX_OK;
}

int main(int argc, char **argv)
{
    static sxd_backend fake = {
        .build = fake_build,
        .key = fake_key,
        .compile = fake_compile,
        .optimize = fake_optimize,
        .check = fake_check,
        .lanes = fake_lanes,
        .step = fake_step,
        .merge = fake_merge,
    };
    fake.places = getenv("FAKE_LOOK") != NULL ? fake_places : NULL;
    return sxd_main(argc, argv, &fake);
}
