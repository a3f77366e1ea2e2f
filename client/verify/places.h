/* places.h - inside client/verify: where the tensors of a module lie while it is verified.
 *
 * Temporaries lie where the module says, so that a wrong plan of memory shows. Weights, and what is packed of them,
 * are most of the memory of a network, and a page of memory costs as much as the computation on it. So
 *
 *   - large weights are windows on one run of random elements, each begins SHIFT bytes behind the one before. No two
 *     of them are equal at any element but by chance, and rows of one are no rows of another (places.c).
 *   - what the prologue makes of weights alone (packed ones, joined ones) is made just before the first launch that
 *     reads it, or the first branch or while that asks it, in memory that is used again after the last one. This is
 *     sound where nothing else could see the difference: the launch reads weights, constants and other such tensors
 *     alone, it is the only one that writes its result, and no other tensor of the persistent area overlaps that. All
 *     other launches of the prologue run first and write where the module says.
 */
#ifndef SX_CLIENT_VERIFY_PLACES_H
#define SX_CLIENT_VERIFY_PLACES_H
#include "client/verify/draw.h"
#include "client/verify/verifier.h"

/* Lists for the tensors of the module; inputs, outputs and small weights.  errors  SX_NOMEM */
sx_code sxv_places_make(sxv_verifier *v);
void sxv_places_fini(sxv_verifier *v);
/* Which tensors of the variant are made when they are read.  Call before anything of a variant runs. */
void sxv_places_plan(sxv_verifier *v);

/* Random inputs and weights on which the program `sent` means something (draw.h); `wide`: of all magnitudes, and each
 * weight has elements of its own. Whatever is to be written begins as a pattern. */
sx_code sxv_bind_random(sxv_verifier *v, const sx_graph *sent, uint64_t seed, bool wide);

/* Calls `work` once for every launch of the variant, each after those whose results it reads; what the prologue makes
 * and nobody reads is left out. */
sx_code sxv_each_launch(sxv_verifier *v, sx_code (*work)(sxv_verifier *v, uint32_t launch));
#endif
