/* describe.h - the tables of docs/PROTOCOL.md, printed from messages.def and codes.def. */
#ifndef SX_PROTOCOL_DESCRIBE_H
#define SX_PROTOCOL_DESCRIBE_H
#include "core/base/buf.h"

/* Markdown: methods, messages, error codes; failure sticks in buf */
void sx_protocol_describe(sx_buf *buf);
#endif
