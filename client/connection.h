/* connection.h - one blocking connection to a daemon: SP frames over a Unix socket, MessagePack-RPC inside. No threads.
 *
 * Every wait has a deadline. A connection that failed is of no use: close it. What a daemon answers is code
 * that runs with our rights, so nothing is said to a process of another user, nor through a folder in which
 * others may put a socket (trust/trust.h).
 */
#ifndef SX_CLIENT_CONNECTION_H
#define SX_CLIENT_CONNECTION_H
#include "protocol/rpc.h"
#include "trust/trust.h"

#define SXC_DECIDE_MS 50 /* longest time to find out that no daemon answers */
#define SXC_ASK_MS \
    20 /* between two questions whether the caller gives up, while something is waited for */
#define SXC_PATH_MAX 104 /* a socket path that fits sun_path */

typedef struct sxc_connection sxc_connection;

/* $SYMPLEX_SOCKET, else $XDG_RUNTIME_DIR/symplex/d.sock, else /tmp/symplex-UID/d.sock: where the daemon
 * listens by default. */
sx_code sxc_default_socket(sx_ctx *cx, char path[SXC_PATH_MAX]);
/* The same, unless `given` names one. */
sx_code sxc_socket_of(sx_ctx *cx, const char *given, char path[SXC_PATH_MAX]);

void sxc_disconnect(SX_TAKE sxc_connection *connection); /* NULL is allowed */
/* SX_NODAEMON: nothing listens, or what listens does not say hello within `timeout_ms`; names the path.
 * SX_DENIED: the folder of the socket, or who listens, is not to be believed; names folder or uid. */
sx_code sxc_connect(sx_ctx *cx, const char *path, int timeout_ms, sxc_connection **connection);
/* The same for somebody else than this process. */
sx_code sxc_connect_as(sx_ctx *cx, const char *path, int timeout_ms, const sx_trust *trust,
                       sxc_connection **connection);

/* One call. *result is the struct of the method's result, in cx's arena; its spans are valid until the next
 * call on the connection. Errors of the server come back as themselves; SX_TIMEOUT after `timeout_ms` (-1:
 * never); SX_NODAEMON when the peer goes away; SX_INPUT when it does not speak the protocol; SX_CANCELLED when
 * cx->cancelled says so, after which other calls may be made. */
sx_code sxc_call(sx_ctx *cx, sxc_connection *connection, sx_method method, const void *args,
                 int timeout_ms, const void **result);
#endif
