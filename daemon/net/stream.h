/* stream.h - bytes to and from one peer, whatever carries them.
 *
 * A transport makes a stream for each connection that it accepts and hands it to sxd_session_open together with the
 * principal that it found behind it. The session reads and writes by way of `class` alone.
 */
#ifndef SX_DAEMON_NET_STREAM_H
#define SX_DAEMON_NET_STREAM_H
#include <uv.h>

#include "core/base/base.h"

typedef struct sxd_stream sxd_stream;

/* One write. It and its bytes stay where they are until `done` is called. */
typedef struct sxd_write {
    sx_span part[2]; /* sent one after the other; the second may be empty */
    /* `error` is NULL if everything was sent, or else static text. */
    void (*done)(struct sxd_write *write, const char *error);
    uv_write_t request; /* for the transport */
} sxd_write;

/* What a transport does.
 *
 *   start    Calls user->bytes for what comes, until `stop`. False: the stream is of no use.
 *   stop     Reads nothing more. The peer may be gone without user->end being called.
 *   write    Begins a write. False: it was not begun, and `done` will not be called.
 *   waiting  How many bytes of writes are not sent yet.
 *   gone     Has the peer closed the connection? It is asked while nothing is read.
 *   close    When the loop turns: ends all writes with an error, calls user->closed if there is a user, and frees the
 *            stream. Nothing is called before this returns. */
typedef struct {
    bool (*start)(sxd_stream *stream);
    void (*stop)(sxd_stream *stream);
    bool (*write)(sxd_stream *stream, sxd_write *write);
    size_t (*waiting)(const sxd_stream *stream);
    bool (*gone)(sxd_stream *stream);
    void (*close)(SX_TAKE sxd_stream *stream);
} sxd_stream_class;

/* What the owner of a stream is told.
 *
 *   bytes   Something came. The bytes are valid until this returns.
 *   end     Nothing more will come; `why` is static text.
 *   closed  `close` has been carried out; no other call follows. */
typedef struct {
    void (*bytes)(void *self, sx_span bytes);
    void (*end)(void *self, const char *why);
    void (*closed)(void *self);
} sxd_stream_user;

/* The head of every stream; a transport puts its own fields behind it. */
struct sxd_stream {
    const sxd_stream_class *class;
    const sxd_stream_user *user; /* NULL: nobody is told anything */
    void *self;                  /* of the user */
};
#endif
