/* ranks.h - inside client/verify: a module that several ranks run together, against the program that was sent, which
 * the interpreter evaluates for all ranks of the mesh.
 *
 * All ranks run in one thread: each goes on to its next collective, then all exchange. So code that is emulated is
 * verified as any other, and whoever does not come to a collective is an error that names the rank.
 */
#ifndef SX_CLIENT_VERIFY_RANKS_H
#define SX_CLIENT_VERIFY_RANKS_H
#include "client/verify/verifier.h"
#include "client/verify/whole.h"

/* What the interpreter may do for all ranks, in operations: some seconds. */
#define SXV_RANKS_FLOPS 1e9
/* The variant that is chosen, at the extents that are chosen, on random inputs of every rank. Adds the rows of what was
 * compared, or says why nothing was.
 *   errors   SX_MISMATCH names output, rank, element; those of the executor */
sx_code sxv_verify_ranks(sxv_verifier *v, const struct sxr_verify_options *options, sx_span sent);
#endif
