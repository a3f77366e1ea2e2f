/* The distribution's nng, unchanged, as the client of a real daemon process. */
#include "tests/lib/test.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/protocol.h"

extern char **environ;

#define CONTEXTS 8
static char folder[256];
static char socket_path[300];
static pid_t daemon_pid;
static nng_socket client;
static sx_ctx cx;

/* The file is there before the daemon listens: only a connection says that it does. */
static bool socket_answers(void *self)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)self;
    ck_assert_uint_lt(strlen(socket_path), sizeof(address.sun_path));
    memcpy(address.sun_path, socket_path, strlen(socket_path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answers = fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return answers;
}

static void setup(void)
{
    char state[300];
    char url[320];
    sx_test_mkdtemp(folder);
    (void)snprintf(socket_path, sizeof(socket_path), "%s/s", folder);
    (void)snprintf(state, sizeof(state), "%s/state", folder);
    (void)snprintf(url, sizeof(url), "ipc://%s", socket_path);
    char program[] = SX_BINARY_DIR "/bin/sx-fake-symplexd";
    char level[] = "--log-level";
    char none[] = "0";
    char socket_option[] = "--socket";
    char state_option[] = "--state";
    char *arguments[] = {program,     level,        none,  socket_option,
                         socket_path, state_option, state, NULL};
    ck_assert_int_eq(posix_spawn(&daemon_pid, program, NULL, NULL, arguments, environ), 0);
    ck_assert(sx_test_wait(socket_answers, NULL, 10000));
    ck_assert_int_eq(nng_req0_open(&client), 0);
    ck_assert_int_eq(nng_socket_set_ms(client, NNG_OPT_RECVTIMEO, 10000), 0);
    ck_assert_int_eq(nng_dial(client, url, NULL, 0), 0);
    sx_ctx_init(&cx, (size_t)16 << 20);
}

static void teardown(void)
{
    int status = -1;
    (void)nng_close(client);
    ck_assert_int_eq(kill(daemon_pid, SIGTERM), 0);
    ck_assert_int_eq(waitpid(daemon_pid, &status, 0), daemon_pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sx_ctx_fini(&cx);
    sx_test_rmtree(folder);
}

/* Decodes a reply of nng; it is copied into the arena. */
static const sx_rpc_response *decode(sx_method method, nng_msg *reply)
{
    sx_span bytes = {nng_msg_body(reply), nng_msg_len(reply)};
    char *copy = sx_alloc_text(&cx, bytes);
    nng_msg_free(reply);
    sx_rpc_response *response = SX_NEW(&cx, sx_rpc_response);
    ck_sx_ok(&cx, sx_rpc_decode_response(&cx, (sx_span){(const uint8_t *)copy, bytes.len}, method,
                                         response));
    return response;
}

static nng_msg *message_of(sx_method method, uint32_t msgid, const void *args)
{
    sx_buf request;
    nng_msg *message;
    sx_buf_init(&request, 1 << 20);
    sx_rpc_encode_request(&request, msgid, method, args, NULL);
    ck_assert_int_eq(nng_msg_alloc(&message, 0), 0);
    ck_assert_int_eq(nng_msg_append(message, request.ptr, request.len), 0);
    sx_buf_fini(&request);
    return message;
}

static const sx_rpc_response *call(sx_method method, const void *args)
{
    nng_msg *reply;
    ck_assert_int_eq(nng_sendmsg(client, message_of(method, 42, args), 0), 0);
    ck_assert_int_eq(nng_recvmsg(client, &reply, 0), 0);
    const sx_rpc_response *response = decode(method, reply);
    ck_assert_uint_eq(response->msgid, 42);
    return response;
}

START_TEST(hello_ping_compile)
{
    sx_hello_args hello = {0};
    const sx_rpc_response *response = call(SX_METHOD_HELLO, &hello);
    ck_assert(!response->failed);
    const sx_hello_result *server = response->result;
    ck_assert(sx_span_is(server->server, "symplexd"));
    ck_assert_int_eq(server->pid, daemon_pid);
    sx_ping_args ping = {0};
    SX_PUT(&ping, ping_args, data, SX_SPAN_LITERAL("stock"));
    const sx_ping_result *pong = call(SX_METHOD_PING, &ping)->result;
    ck_assert(sx_span_is(pong->data, "stock"));
    for (uint32_t turn = 0; turn < 2; turn++) {
        sx_compile_args compile = {.ir = SX_SPAN_LITERAL("echo nng")};
        const sx_compile_result *result = call(SX_METHOD_COMPILE, &compile)->result;
        ck_assert(sx_span_is(result->module, "compiled:echo nng|"));
        ck_assert(sx_span_is(result->tier, turn == 0 ? "none" : "ram"));
    }
    sx_compile_args wrong = {.ir = SX_SPAN_LITERAL("fail nng")};
    response = call(SX_METHOD_COMPILE, &wrong);
    ck_assert(response->failed);
    ck_assert(sx_span_is(response->error.name, "COMPILE"));
}
END_TEST

/* Several contexts share one pipe: answers come back in any order to whom they belong. */
START_TEST(contexts)
{
    nng_ctx context[CONTEXTS];
    nng_aio *aio[CONTEXTS];
    for (uint32_t i = 0; i < CONTEXTS; i++) {
        char *ir = sx_alloc(&cx, 32);
        (void)snprintf(ir, 32, "echo context %u", i);
        sx_compile_args compile = {.ir = sx_span_of(ir)};
        ck_assert_int_eq(nng_ctx_open(&context[i], client), 0);
        ck_assert_int_eq(nng_aio_alloc(&aio[i], NULL, NULL), 0);
        nng_aio_set_timeout(aio[i], 10000);
        nng_aio_set_msg(aio[i], message_of(SX_METHOD_COMPILE, i, &compile));
        nng_ctx_send(context[i], aio[i]);
    }
    for (uint32_t i = 0; i < CONTEXTS; i++) {
        nng_aio_wait(aio[i]);
        ck_assert_int_eq(nng_aio_result(aio[i]), 0);
        nng_ctx_recv(context[i], aio[i]);
    }
    for (uint32_t i = CONTEXTS; i > 0; i--) {
        char module[64];
        nng_aio_wait(aio[i - 1]);
        ck_assert_int_eq(nng_aio_result(aio[i - 1]), 0);
        const sx_rpc_response *response = decode(SX_METHOD_COMPILE, nng_aio_get_msg(aio[i - 1]));
        const sx_compile_result *result = response->result;
        (void)snprintf(module, sizeof(module), "compiled:echo context %u|", i - 1);
        ck_assert(sx_span_is(result->module, module));
        ck_assert_uint_eq(response->msgid, i - 1);
        nng_aio_free(aio[i - 1]);
        (void)nng_ctx_close(context[i - 1]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stock client");
    TCase *cases = tcase_create("nng");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, hello_ping_compile);
    tcase_add_test(cases, contexts);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
