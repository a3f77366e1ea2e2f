/* net.h - connections: requests come in as calls, and each call gets one answer.
 *
 *   stream.h     bytes to and from one peer; unix.c is the transport that there is
 *   principal.h  who the peer is, and what it may do
 *   session.c    one connection: frames, windows, answers, and what a slow or hostile peer may try
 *
 * This folder does not know what the methods mean: it hands a decoded request to the server (sxd_server) and learns
 * nothing but the answer.
 */
#ifndef SX_DAEMON_NET_NET_H
#define SX_DAEMON_NET_NET_H
#include "cache/cache.h"
#include "daemon/base/base.h"
#include "daemon/net/principal.h"
#include "daemon/net/stream.h"
#include "protocol/protocol.h"

typedef struct sxd_net sxd_net;
typedef struct sxd_session sxd_session;
typedef struct sxd_call sxd_call;

/* Who answers.
 *
 *   serve   A request has come. The call belongs to the server until it is answered or dropped, now or later.
 *   leave   The client of a call is gone, which the server has not answered yet. The server forgets the call, which
 *           is freed when this returns. It is not called while the call is `pinned`.
 *   closed  The connection with this number is closed, and its calls have left. */
typedef struct {
    void (*serve)(void *self, SX_TAKE sxd_call *call);
    void (*leave)(void *self, sxd_call *call);
    void (*closed)(void *self, uint64_t peer);
    void *self;
} sxd_server;

typedef struct sxd_listener {
    struct sxd_listener *next;
    /* Stops listening, and frees the listener. */
    void (*close)(SX_TAKE struct sxd_listener *listener);
} sxd_listener;

struct sxd_net {
    sxd_base *base;
    sxd_server server;
    sxd_listener *listeners;
    sxd_session *sessions;
    uint32_t session_count;
    uint64_t next_session, next_call;
};

/* ---- one request, from its frame to its answer ---- */
#define SXD_TRACE_MAX 224
#define SXD_STACK_BYTES_MAX (4 * SX_SP_STACK_MAX)
struct sxd_call {
    sxd_call *prev, *next; /* of its session */
    sxd_net *net;
    sxd_session *session; /* NULL: the client went away while the call was pinned */
    sxd_principal principal;
    uint64_t id;   /* of the request, in the log */
    uint64_t peer; /* number of its connection */
    uint64_t start_ns;
    uint64_t deadline_ms; /* loop time; UINT64_MAX: none */
    sx_buf body;          /* the frame; the decoded request borrows from it */
    sx_ctx cx;
    sx_rpc_request request;
    uint8_t stack[SXD_STACK_BYTES_MAX];
    uint32_t stack_len;
    /* The field "tr" of the request, quoted and cut. The frame may be gone when the call is logged. */
    char trace[SXD_TRACE_MAX];
    /* A pool thread works with the request: the call stays when its client goes. */
    bool pinned;
    void *self; /* the server's; in the arena of `cx` */
};

/* Answers the call and frees it. With `tail`, a reference that becomes ours, its bytes are the last field of the
 * result. */
void sxd_call_result(SX_TAKE sxd_call *call, const void *result, SX_TAKE sx_blob *tail);
/* The same with an error; `after_ms` is when the client may try again, 0 for never. The error may lie in the call. */
void sxd_call_fail(SX_TAKE sxd_call *call, const sx_error *error, int64_t after_ms);
/* The same with an error of one formatted line. */
void sxd_call_refuse(SX_TAKE sxd_call *call, sx_code code, int64_t after_ms, const char *format,
                     ...) SX_PRINTF(4, 5);
/* Frees the call without an answer: nobody waits for one. */
void sxd_call_drop(SX_TAKE sxd_call *call);

/* ---- sessions ---- */
/* Takes over a new connection, or closes it: the principal has no rights, or there are too many. */
void sxd_session_open(sxd_net *net, SX_TAKE sxd_stream *stream, const sxd_principal *principal);
/* Closes what makes no progress. */
void sxd_net_sweep(sxd_net *net);
/* Goes on with the sessions that asked for it; called by way of sxd_base_wake. */
void sxd_net_wake(sxd_net *net);
/* Is there an answer that is not sent yet? */
bool sxd_net_writes(const sxd_net *net);
/* Closes the listeners, so that nobody new comes. */
void sxd_net_deafen(sxd_net *net);
/* Closes the listeners and all sessions. */
void sxd_net_close(sxd_net *net, const char *why);

/* ---- unix.c ---- */
/* Listens on a socket in the file system: looks at its folder, removes what an earlier daemon left, binds with mode
 * 0600. The caller holds the lock of the state directory.
 *   errors   SX_BUSY another daemon answers there; SX_DENIED the folder belongs to another user; SX_USAGE the path
 *            is too long; SX_SYSTEM; SX_NOMEM */
sx_code sxd_unix_listen(sx_ctx *cx, sxd_net *net, const char *path);
#endif
