/* sharding.h - programs on a mesh in the e-graph: what placements each class can have without communication.
 *
 * The analysis. For every class and mesh axis the set of placements (core/ir/shard.h) that some member yields
 * along this axis without communication, the parameters lying as the program says and everything whole along
 * the other axes. Nothing is known at first (the empty set); equal classes know what either knows (the union:
 * each placement is one way of computing the value); the transfer of an operation is monotone. The sets are
 * computed as types are, when nodes are added and carried upwards by rebuild, never by rules. They live behind
 * the fact of a class, and only in graphs of programs with a mesh.
 *
 * Papers: Willsey et al. 2021 (analyses); Xu et al. 2021 (GSPMD). */
#ifndef SX_CORE_EGRAPH_SHARDING_H
#define SX_CORE_EGRAPH_SHARDING_H
#include "core/egraph/tensor.h"
#include "core/ir/shard.h"

/* ---- sharding.c: the analysis ---- */
typedef struct sx_tensors_mesh {
    const sx_graph *program;
    int64_t multiple[SX_SYMBOLS_MAX];
    /* [attr_count] by attribute: node of the program, SX_EG_NONE for others */
    uint32_t *parameter_of;
    uint32_t attr_count;
} sx_tensors_mesh;

sx_code sx_tensors_mesh_make(sx_ctx *cx, const sx_graph *program, sx_tensors_mesh **mesh);
/* Sets of node n along every axis, from those of its children; [SX_MESH_AXES_MAX]. */
void sx_tensors_mesh_sets(const sx_tensors *t, uint32_t n, const sx_type *type, uint32_t *set);
/* What is known of a class; [SX_MESH_AXES_MAX], of a graph with a mesh. */
static inline uint32_t *sx_tensors_places(const sx_tensors *t, uint32_t node)
{
    SX_ASSERT(t->mesh != NULL);
    return (uint32_t *)((sx_fact *)sx_eg_record(&t->eg, node) + 1);
}
#endif
