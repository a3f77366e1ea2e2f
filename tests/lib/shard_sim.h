/* shard_sim.h - devices along one mesh axis, played by the interpreter: tensors split and joined by their placement.
 *
 * Values are exact: residues mod p (SX_EVAL_MODP), or doubles and integers in SX_EVAL_F64 with small multiples
 * of a quarter. */
#ifndef SX_TESTS_LIB_SHARD_SIM_H
#define SX_TESTS_LIB_SHARD_SIM_H
#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/ir/shard.h"

#define SX_SIM_DEVICES_MAX 4u

typedef struct {
    sx_tensor part[SX_SIM_DEVICES_MAX];
} sx_sim;

/* Random elements; integers of the whole range where `wide`, else within [-8, 8]. */
sx_tensor sx_sim_random(sx_ctx *cx, sx_rng *rng, sx_eval_mode mode, const sx_type *type, bool wide);
/* What each of `size` devices holds of `whole` under `place`; partial values are drawn. */
void sx_sim_split(sx_ctx *cx, sx_rng *rng, sx_eval_mode mode, const sx_tensor *whole,
                  sx_shard_place place, uint32_t size, sx_sim *sim);
/* From R, without looking at other devices: a slice, itself, or itself and zeros. */
void sx_sim_weaken(sx_ctx *cx, const sx_sim *from, sx_shard_place place, uint32_t size, sx_sim *to);
/* The whole that the parts are under `place`; false where it is R and they differ. */
bool sx_sim_join(sx_ctx *cx, sx_eval_mode mode, const sx_sim *sim, const sx_type *type,
                 sx_shard_place place, uint32_t size, sx_tensor *whole);
bool sx_sim_equal(const sx_tensor *a, const sx_tensor *b);
#endif
