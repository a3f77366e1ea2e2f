/* kind.h - what a file is, told by its first bytes, so that a file that is no program is refused by what it is. */
#ifndef SX_CLIENT_KIND_H
#define SX_CLIENT_KIND_H
#include "core/base/base.h"

typedef enum {
    /* The text form of a program (docs/IR.md). */
    SXC_KIND_TEXT,
    /* It may be an ONNX model: it is a protocol buffer whose first field is one that a model has. */
    SXC_KIND_ONNX
} sxc_kind;

#define SXC_KIND_BYTES \
    4096 /* of the beginning that are looked at: a text may begin with comments */

/* `name` is that of the file, for the message.
 *   errors   SX_INPUT neither; says what it is where its first bytes tell */
sx_code sxc_kind_of(sx_ctx *cx, const char *name, sx_span head, sxc_kind *kind);
#endif
