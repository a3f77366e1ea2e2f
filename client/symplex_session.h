/* symplex_session.h - what compiling has to do with a session: the module that a key is pinned to. */
#ifndef SX_CLIENT_SYMPLEX_SESSION_H
#define SX_CLIENT_SYMPLEX_SESSION_H
#include "client/symplex.h"
#include "core/base/buf.h"
#include "core/base/hash.h"

/* The pinned module of a key, appended to `module`; SX_ABSENT: none is pinned. It counts as used. */
sx_code sxc_session_find(sx_ctx *cx, symplex_session *session, const sx_key *key, sx_buf *module);
/* This rank has compiled `module`, or found it: it is pinned if none is yet, else replaced by the one that is. It
 * counts as used.
 *   errors   SX_MISMATCH another one is pinned, whose bytes are not kept */
sx_code sxc_session_commit(sx_ctx *cx, symplex_session *session, const sx_key *key, sx_buf *module);
#endif
