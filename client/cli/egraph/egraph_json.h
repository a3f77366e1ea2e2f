/* egraph_json.h - reads an e-graph in the egraph-serialize format, for extraction only.
 *
 * One object: "nodes" maps a node id to {"op", "children": [node id...], "eclass": class id, "cost": number,
 * "subsumed": bool}; "root_eclasses" lists class ids. A child names a node and means its class. "children" may
 * be missing (none), "cost" too (1); a node that is subsumed is not to be picked. Other keys are skipped.
 * Classes are numbered as they first occur; nodes by class, then as they occur. Ids are opaque bytes.
 * Format: github.com/egraphs-good/egraph-serialize; JSON: RFC 8259.
 */
#ifndef SX_CLIENT_CLI_EGRAPH_EGRAPH_JSON_H
#define SX_CLIENT_CLI_EGRAPH_EGRAPH_JSON_H
#include "core/base/base.h"
#include "core/extract/extract.h"

#define SXC_EGRAPH_BYTES_MAX ((size_t)1 << 30)

typedef struct {
    /* It has passed sx_xt_check. */
    sx_xt problem;
    /* [class_count] and [node_count]: the ids that the text gave them. */
    sx_span *class_name;
    sx_span *node_name;
} sxc_egraph;

/* Everything in cx's arena, or borrowed from `text`.
 *   errors   SX_INPUT bad JSON (with the byte), an id unknown or twice, a cost that is negative or no number, no roots;
 *            SX_LIMIT too deep, too many; SX_NOMEM */
sx_code sxc_egraph_parse(sx_ctx *cx, sx_span text, sxc_egraph *egraph);
#endif
