/* bundle.h - what is stored of a program of equal layers: how its parts make it (core/ir/roll.h), and the snapshot of each (library.h).
 *
 *   header   sx_bundle_header
 *   tables   part_count rows sx_bundle_part; word_count u32: for each use its part, the number of its arguments, and of each argument
 *            use, index and mark of the parameter it is for (sx_bundle_marks); then use and index of each output. Then zeros up to a multiple of SX_SNAPSHOT_PAGE
 *   parts    snapshots, each at a multiple of SX_SNAPSHOT_PAGE, zeros between. Equal rows share one
 * Words in the order of the machine, as in a snapshot. The digest covers header and tables; each snapshot has its own.
 *
 * A program equals a stored one if it is cut into as many uses, each part equals the stored part used at its place (meet.h), and both
 * are wired alike once parameters and outputs of the parts are paired as they met.
 */
#ifndef SX_CORE_EGRAPH_BUNDLE_H
#define SX_CORE_EGRAPH_BUNDLE_H
#include "core/egraph/meet.h"
#include "core/ir/roll.h"

#define SX_BUNDLE_MAGIC "SXBUNDLE"
#define SX_BUNDLE_VERSION 1u
#define SX_BUNDLE_WORDS_MAX (1u << 22)

typedef struct {
    char magic[8];
    uint32_t version, part_count, use_count, output_count, parameter_count, word_count;
    uint64_t size;   /* of all */
    uint64_t digest; /* sx_hash64 of header, taken with zero here, and tables */
    sx_key rules;
    sx_library_info info;
} sx_bundle_header;
typedef struct {
    uint64_t offset, size;
} sx_bundle_part;
typedef struct {
    sx_span bytes;
    sx_bundle_header header;
    const sx_bundle_part *part;
    const uint32_t *word;
    uint32_t
        *use_first; /* [use_count + 1] where the words of each begin; the last: of the outputs */
} sx_bundle;

bool sx_bundle_is(sx_span bytes);
/* Header and tables are checked, so that every number in them can be followed. `bytes` are borrowed, aligned to 64.
 *   errors   SX_CORRUPT; SX_ABSENT other rules or another form; SX_NOMEM */
sx_code sx_bundle_open(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_bundle *bundle);
sx_span sx_bundle_snapshot(const sx_bundle *bundle, uint32_t part);

/* Per parameter of `graph` where it stands: a hash of what is made of it that names, their order and the order of the operands of sums,
 * products, maxima and minima do not change. */
sx_code sx_bundle_marks(sx_ctx *cx, const sx_graph *graph, uint32_t **mark);
/* The parameters of the stored part, as loaded into `graph`, take the names of those of `program` that stand where they do, which
 * sx_meet then pairs; the others are taken in their order. A guess: sx_meet decides. */
sx_code sx_bundle_names(sx_ctx *cx, const sx_bundle *bundle, uint32_t use, const sx_graph *program,
                        sx_library_graph *graph);

/* Leaves room for header and tables of `roll` in the empty `bytes`; the snapshots are then appended with sx_buf_put, each after
 * sx_buf_pad to SX_SNAPSHOT_PAGE; sx_bundle_end fills the room. A failure of the buffer stays in it. */
sx_code sx_bundle_begin(sx_ctx *cx, const sx_roll *roll, sx_buf *bytes);
sx_code sx_bundle_end(sx_ctx *cx, const sx_roll *roll, const sx_bundle_part *part,
                      const sx_library_info *info, const sx_key *rules, sx_buf *bytes);

/* Are the uses of `roll` wired as the stored ones, part p as meeting[p] says? Then parameter_of and output_of of *whole say how the
 * two programs are paired. */
sx_code sx_bundle_wired(sx_ctx *cx, const sx_bundle *bundle, const sx_roll *roll,
                        const sx_meeting *const *meeting, sx_meeting *whole, bool *alike);
#endif
