/* wiring.h - how a program is put together from its parts (core/roll/roll.h), as bytes to be stored.
 *
 * The parts have entries of their own: an e-graph (library.h), or a wiring again if the part is itself divided. So a
 * model of twelve equal layers is stored as the e-graph of one layer and the wiring that uses it twelve times.
 *
 *   header   sx_wiring_header
 *   parts    part_count rows sx_wiring_part
 *   words    word_count numbers of 32 bits: for each use the number of its part, the number of its arguments, and
 *            for each argument the use and the index of the output it comes from; then use and index for each
 *            output of the program
 *
 * Numbers are in the byte order of the machine. The digest covers everything.
 *
 * A program equals a stored one if it has as many uses, if at each of them its part equals the stored part, and if
 * both are connected in the same way. Parameters and outputs of a part are compared as meet.h has paired them.
 */
#ifndef SX_CORE_STORE_WIRING_H
#define SX_CORE_STORE_WIRING_H
#include "core/store/meet.h"
#include "core/roll/roll.h"

#define SX_WIRING_MAGIC "SXWIRING"
#define SX_WIRING_VERSION 1u
#define SX_WIRING_WORDS_MAX (1u << 22)

typedef struct {
    char magic[8];
    uint32_t version, part_count, use_count, output_count, parameter_count, word_count;
    uint64_t size;
    /* The sx_hash64 of all bytes, taken with zero in its own place. */
    uint64_t digest;
    sx_key rules;
    sx_library_info info;
} sx_wiring_header;
typedef struct {
    /* The sx_graph_key of the stored part. */
    sx_key program;
    /* The family under which it is stored (core/core.h). */
    sx_key family;
} sx_wiring_part;
typedef struct {
    sx_wiring_header header;
    const sx_wiring_part *part;
    const uint32_t *word;
    /* [use_count + 1] where the words of each use begin; the last entry: where those of the outputs do. */
    uint32_t *use_first;
} sx_wiring;

bool sx_wiring_is(sx_span bytes);
/* Everything is checked, so that every number can be followed. `bytes` are borrowed, aligned to 8.
 *   errors   SX_CORRUPT; SX_ABSENT other rules or another form; SX_NOMEM */
sx_code sx_wiring_open(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_wiring *wiring);
/* The digest of the rules that made it. SX_CORRUPT: no wiring. */
sx_code sx_wiring_rules(sx_ctx *cx, sx_span bytes, sx_key *rules);

/* A part of the present program together with the stored part that it equals: its parameter i is the stored parameter
 * parameter_of[i], and outputs likewise. NULL: they correspond in their order. */
typedef struct {
    sx_wiring_part as;
    const uint32_t *parameter_of, *output_of;
} sx_wired_part;
/* `part` [roll->part_count]. The bytes go to the end of `bytes`.
 *   errors   SX_LIMIT too many words, or past the limit of `bytes` */
sx_code sx_wiring_store(sx_ctx *cx, const sx_roll *roll, const sx_wired_part *part,
                        const sx_library_info *info, const sx_key *rules, sx_buf *bytes);
/* Is `roll` the stored program? Then parameter_of and output_of of *whole say how the two are paired. */
sx_code sx_wiring_alike(sx_ctx *cx, const sx_wiring *wiring, const sx_roll *roll,
                        const sx_wired_part *part, sx_meeting *whole, bool *alike);
#endif
