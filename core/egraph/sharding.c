#include "core/egraph/sharding.h"

#include <string.h>

sx_code sx_tensors_mesh_make(sx_ctx *cx, const sx_graph *program, sx_tensors_mesh **mesh)
{
    SX_ASSERT(program->sharding != NULL);
    sx_tensors_mesh *m = SX_NEW(cx, sx_tensors_mesh);
    if (m == NULL) {
        return cx->error.code;
    }
    m->program = program;
    m->attr_count = program->attrs->count;
    m->parameter_of = SX_NEW_ARRAY(cx, uint32_t, m->attr_count);
    if (m->parameter_of == NULL) {
        return cx->error.code;
    }
    memset(m->parameter_of, 0xff, m->attr_count * sizeof(uint32_t));
    for (uint32_t n = 0; n < program->node_count; n++) {
        if (program->node[n].op == SX_OP_PARAMETER) {
            m->parameter_of[program->node[n].attr.i] = n;
        }
    }
    sx_sharding_multiples(program, m->multiple);
    *mesh = m;
    return SX_OK;
}

void sx_tensors_mesh_sets(const sx_tensors *t, uint32_t n, const sx_type *type, uint32_t *set)
{
    SX_ASSERT(t->mesh != NULL && n < t->eg.node_count);
    const sx_tensors_mesh *mesh = t->mesh;
    const sx_eg_node *node = &t->eg.node[n];
    const sx_sharding *sharding = mesh->program->sharding;
    sx_type operand[SX_EG_ARITY_MAX];
    sx_shard_op op = {.op = (sx_op)node->op,
                      .attr = sx_tensors_attr(t, n),
                      .operand = operand,
                      .result = type,
                      .operand_count = node->arity,
                      .multiple = mesh->multiple};
    for (uint32_t k = 0; k < node->arity; k++) {
        operand[k] = *sx_tensors_type(t, sx_eg_child(&t->eg, n, k));
    }
    for (uint32_t a = 0; a < sharding->axis_count; a++) {
        op.size = sharding->axis[a].size;
        if (op.op == SX_OP_PARAMETER) {
            uint32_t p =
                node->attr < mesh->attr_count ? mesh->parameter_of[node->attr] : SX_EG_NONE;
            if (p != SX_EG_NONE) { /* of others nothing is said */
                sx_places places = sx_graph_places(mesh->program, p);
                set[a] = sx_shard_closure(SX_PLACE_BIT(places.at[a]),
                                          sx_shard_possible(type, op.size, mesh->multiple));
            }
            continue;
        }
        uint32_t below[SX_EG_ARITY_MAX];
        for (uint32_t k = 0; k < node->arity; k++) {
            below[k] = sx_tensors_places(t, sx_eg_child(&t->eg, n, k))[a];
        }
        set[a] = sx_shard_transfer(&op, below);
    }
}
