/* long.h - the state of one lane of a long search as bytes (core/core.h). Internal to core/.
 *
 * The bytes are a sx_long_state, padded to SX_LONG_STATE_BYTES, and then what core/store/memory.h writes.
 * Numbers are in the byte order of the machine, which the field `order` shows. The digest covers all bytes; it
 * is taken with zero in its own place.
 */
#ifndef SX_CORE_LONG_LONG_H
#define SX_CORE_LONG_LONG_H
#include "core/pipeline.h"

#define SX_LONG_MAGIC "SXLANE\0"
#define SX_LONG_VERSION 1u
#define SX_LONG_ORDER 0x01020304u
#define SX_LONG_STATE_BYTES 192u
#define SX_LONG_LEVELS 8u /* the limits of level n are 2^n times the usual ones */
#define SX_LONG_FOUND 1u  /* objective and what follows it are those of a program */
#define SX_LONG_DONE 2u
#define SX_LONG_WHOLE 4u /* the program is searched as one part */
#define SX_LONG_OPENED 8u

typedef struct {
    uint8_t magic[8];
    uint32_t order, version;
    /* How many bytes the whole state has. */
    uint64_t size;
    /* The XXH3-64 of all bytes, taken with zero in this field. */
    uint64_t digest;
    /* A digest of build, request and lane: a state serves no other. */
    sx_key key;
    uint32_t lane, step, level, flags;
    uint64_t fuel, nodes;
    double objective, bound, time_ns;
    /* What the lane makes small, of the best program so far. */
    double goal;
    uint64_t peak_bytes;
    /* How many steps ended without a better program, one after the other. */
    uint32_t idle;
    uint8_t unused[SX_LONG_STATE_BYTES - 140];
} sx_long_state;
_Static_assert(sizeof(sx_long_state) == SX_LONG_STATE_BYTES, "head of a state");

/* The state a step begins with: fresh if there is none.
 *   errors   SX_CORRUPT damaged; SX_ABSENT of another version, build, request or lane */
sx_code sx_long_state_read(sx_ctx *cx, const sx_core_step *step, sx_long_state *state);
/* What follows the head of a state that was read. */
sx_span sx_long_state_rest(sx_span state);
/* Leaves room for the head in the empty `bytes`; fills it in once the rest stands.  errors  SX_LIMIT */
sx_code sx_long_state_begin(sx_ctx *cx, sx_buf *bytes);
sx_code sx_long_state_end(sx_ctx *cx, sx_long_state *state, sx_buf *bytes);
#endif
