/* export.h - a tensor e-graph for other tools and for people: JSON in the egraph-serialize format, DOT, and a picture.
 *
 * JSON: "nodes" maps "n<number>" to {"op", "children", "eclass", "cost", "subsumed"}, "root_eclasses" lists
 * the classes of the outputs, "class_data" gives each class its type. "op" is the operation with its
 * attributes as in the text form of the IR; a child names the first node of its class; costs are the model's
 * estimates in nanoseconds, "subsumed" marks nodes that must not be chosen: they have no kernel, and their
 * class is computed without them (one that is not keeps them, at the model's estimate). The least cost of what
 * is left is that of the program extracted, if that is proven least. DOT and the picture show classes as boxes
 * with their nodes; nodes of the extracted program stand out. Format: github.com/egraphs-good/egraph-serialize.
 */
#ifndef SX_CORE_OPTIMIZE_EXPORT_H
#define SX_CORE_OPTIMIZE_EXPORT_H
#include "core/store/library.h"

#define SX_EXPORT_PICTURE_CLASSES_MAX 2000u /* of an SVG */

/* cost[node]: thousandths of a nanosecond, SX_COST_NEVER where a node must not be chosen.  errors  as sx_buf_check */
sx_code sx_export_json(sx_ctx *cx, const sx_library_graph *graph, const uint64_t *cost,
                       sx_buf *out);
sx_code sx_export_dot(sx_ctx *cx, const sx_library_graph *graph, const uint64_t *cost, sx_buf *out);
/*   errors   SX_LIMIT more than SX_EXPORT_PICTURE_CLASSES_MAX classes */
sx_code sx_export_svg(sx_ctx *cx, const sx_library_graph *graph, const uint64_t *cost, sx_buf *out);
#endif
