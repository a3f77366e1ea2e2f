/* effect.h - what a run leaves behind: parameters that are state or donated, and outputs that go into them.
 *
 * A *state* lives from run to run: a run reads the version that the run before left, the first one its initial value.
 * A *donated* parameter is an input whose memory an output may take. An output that goes *into* such a parameter is an
 * ordinary value of the program, the parameter's new version, and nothing that the program computes can see that it
 * is written: whatever reads the parameter reads the version from before the run. So rewriting knows nothing of
 * effects; like a sharding they are beside the graph, are taken off before level 1 and put back behind it.
 *
 * Text form:   %k = parameter {name = "cache", weight = 0} : f32[64, 8] state = 0
 *              %x = parameter {name = "x", weight = 0} : f32[64] donated
 *              return %y as "y" into "x", %k2 as "cache" into "cache"
 */
#ifndef SX_CORE_IR_EFFECT_H
#define SX_CORE_IR_EFFECT_H
#include "core/ir/ir.h"

typedef enum { SX_KEEP_PLAIN, SX_KEEP_STATE, SX_KEEP_DONATED } sx_keep_role;
typedef struct {
    uint32_t node;     /* the parameter */
    sx_keep_role role; /* state or donated */
    /* Of a state: little-endian elements in row-major order, or exactly one that fills it. */
    sx_span initial;
} sx_kept;
typedef struct {
    uint32_t output; /* its number */
    uint32_t node;   /* the parameter whose new version it is */
} sx_update;
typedef struct sx_effects {
    sx_kept *kept; /* by ascending node; plain parameters are not listed */
    uint32_t kept_count, kept_capacity;
    sx_update *update; /* by ascending output; outputs that go nowhere are not listed */
    uint32_t update_count, update_capacity;
} sx_effects;

/* Makes a parameter state or donated; in ascending order of nodes. `initial` is copied into cx's arena.
 *   errors   SX_INPUT it is a weight, a state without an initial value or with one that does not fit, a donated
 *            parameter with one */
sx_code sx_graph_keep(sx_ctx *cx, sx_graph *graph, sx_node_id parameter, sx_keep_role role,
                      sx_span initial);
/* The output goes into the parameter of that name; in ascending order of outputs.
 *   errors   SX_INPUT no parameter of that name, one that is neither state nor donated, of another type, or that
 *            an output goes into already */
sx_code sx_graph_put_into(sx_ctx *cx, sx_graph *graph, uint32_t output, sx_span parameter);
/* NULL: the node is an ordinary parameter, or none. */
const sx_kept *sx_graph_kept(const sx_graph *graph, uint32_t node);
static inline sx_keep_role sx_graph_role(const sx_graph *graph, uint32_t node)
{
    const sx_kept *kept = sx_graph_kept(graph, node);
    return kept != NULL ? kept->role : SX_KEEP_PLAIN;
}
/* The parameter that an output goes into; SX_NOWHERE: none. */
#define SX_NOWHERE UINT32_MAX
uint32_t sx_graph_into(const sx_graph *graph, uint32_t output);
/* The output that is the new version of a parameter; SX_NOWHERE: it stays as it is. */
uint32_t sx_graph_version(const sx_graph *graph, uint32_t node);

/* `to` gets the effects of `from`: node n of it is image[n] of `to` (NULL: the same number), outputs have the same
 * numbers. */
sx_code sx_effects_copy(sx_ctx *cx, const sx_graph *from, const uint32_t *image, sx_graph *to);
/* The same where `to` has the parameters and outputs of `from` in their order, among other nodes (what an
 * optimiser gives). */
sx_code sx_effects_restore(sx_ctx *cx, const sx_graph *from, sx_graph *to);
/* The effects of a graph once more, as sx_graph_check does. */
sx_code sx_effects_check(sx_ctx *cx, const sx_graph *graph);
#endif
