/* local.h - the program that each device runs: a plan (plan.h) as a program with collectives (core/ir/collective.h).
 *
 * It has the parameters and outputs of the program in their order, each of the type of what one device holds. What a
 * device keeps of a value that all have is a slice at its place along the axis, or all of it on the first device and
 * zeros on the others where the value is to be a sum. The values of all ranks put together, as the plan says how they
 * lie, are those of the program, but for the order in which sums are made.
 */
#ifndef SX_CORE_SHARD_LOCAL_H
#define SX_CORE_SHARD_LOCAL_H
#include "core/shard/plan.h"

/* `plan` is of `graph`, whose extents are numbers.
 *   errors   SX_INPUT a symbol has no value; SX_UNIMPLEMENTED a program with state or donated inputs */
sx_code sx_plan_local(sx_ctx *cx, const sx_graph *graph, const sx_plan *plan, sx_graph **local);
#endif
