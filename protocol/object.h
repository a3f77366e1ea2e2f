/* object.h - inside protocol/ only: decoding of a MessagePack tree that msgpack-c built from scanned bytes. */
#ifndef SX_PROTOCOL_OBJECT_H
#define SX_PROTOCOL_OBJECT_H
#include "protocol/message.h"

#include <msgpack.h>

/* Scan, then unpack. `unpacked` is initialised in every case; release it with msgpack_unpacked_destroy. Text
 * and bytes of the tree point into `bytes` and outlive it. */
sx_code sx_object_unpack(sx_ctx *cx, sx_span bytes, msgpack_unpacked *unpacked);

/* Decode one map of the tree into `out` (zeroed struct of `message`).
 *   memory   arrays in cx's arena; spans point into the bytes that the tree was made of
 *   errors   SX_INPUT not a map, missing or double key, wrong type, text not UTF-8; names message and key */
sx_code sx_object_decode(sx_ctx *cx, const sx_message *message, const msgpack_object *object,
                         void *out);

/* A packer that appends to `buf`. */
void sx_object_packer(msgpack_packer *packer, sx_buf *buf);
void sx_object_pack_text(msgpack_packer *packer, sx_span text);
/* sx_message_encode on a packer. */
void sx_object_encode(msgpack_packer *packer, const sx_message *message, const void *in,
                      sx_span *tail);
#endif
