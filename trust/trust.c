#include "trust/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

sx_code sx_trust_of_process(sx_ctx *cx, sx_trust *trust)
{
    *trust = (sx_trust){.self = geteuid(), .also = geteuid()};
    const char *given = secure_getenv(SX_TRUST_UID_VARIABLE);
    if (given == NULL || given[0] == '\0') {
        return SX_OK;
    }
    char *end;
    errno = 0;
    unsigned long long uid = strtoull(given, &end, 10);
    if (given[0] < '0' || given[0] > '9' || *end != '\0' || errno != 0 || uid >= UINT32_MAX) {
        return SX_FAIL(cx, SX_USAGE, SX_TRUST_UID_VARIABLE ": '%.40s' is not a user id", given);
    }
    trust->also = (uid_t)uid;
    return SX_OK;
}

sx_code sx_trust_peer(sx_ctx *cx, const char *path, int fd, const sx_trust *trust)
{
    SX_ASSERT(fd >= 0);
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || size != sizeof(peer)) {
        return SX_FAIL(cx, SX_DENIED, "socket: %s: the system does not say who listens: %s", path,
                       strerror(errno));
    }
    if (peer.uid != 0 && peer.uid != trust->self && peer.uid != trust->also) {
        sx_hint(cx, "If that user's daemon is to be believed: " SX_TRUST_UID_VARIABLE "=%u",
                peer.uid);
        return SX_FAIL(cx, SX_DENIED, "socket: %s: user %u listens there, we are %u", path,
                       peer.uid, trust->self);
    }
    return SX_OK;
}
