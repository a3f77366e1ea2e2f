/* protocol.h - the wire of symplexd: SP frames, MessagePack-RPC, the table of messages. docs/PROTOCOL.md
 * describes it. */
#ifndef SX_PROTOCOL_PROTOCOL_H
#define SX_PROTOCOL_PROTOCOL_H
#include "protocol/json.h"
#include "protocol/message.h"
#include "protocol/rpc.h"
#include "protocol/scan.h"
#include "protocol/sp.h"
#endif
