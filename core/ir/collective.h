/* collective.h - operations that know of other ranks: all_reduce, all_gather, reduce_scatter, all_to_all, permute and
 * axis_index.
 *
 * A program that has one of them is local: every device of its mesh, a rank, runs the same text on parameters of its
 * own, and shapes and values are those of one rank. (A program with placements, core/ir/shard.h, speaks of whole
 * tensors; one program is never both.) Ranks are numbered row-major over the axes, the axis declared first slowest.
 * A collective is along one axis: the ranks that differ in their place along it alone take part, and are numbered by
 * that place, from 0. It says how many they are, so that its type follows from it alone; sx_collectives_check holds
 * that against the mesh. Each is a pure function of what the ranks that take part hold, so equal ones are one value.
 *
 * All ranks reach the same collectives in the same order: none stands in a program of while or cond, whose ways may
 * differ from rank to rank; what they want to know of the place of their rank is an operand. The step of a scan may
 * have them, the number of its rounds being an extent.
 * Sums are made in f32 where the type is narrower, rank 0 first, ascending, and rounded once, as those of reduce.
 */
#ifndef SX_CORE_IR_COLLECTIVE_H
#define SX_CORE_IR_COLLECTIVE_H
#include "core/ir/ir.h"

/* Every collective of a whole program is along an axis of its mesh and has as many ranks as that has devices; where
 * there is one, nothing is placed.
 *   errors   SX_INPUT naming node, operation, axis */
sx_code sx_collectives_check(sx_ctx *cx, const sx_graph *graph);
#endif
