/* gym.h - the public extraction collection in tests/data/extraction-gym: files, and what is known of them
 * (README.md there). */
#ifndef SX_TESTS_LIB_GYM_H
#define SX_TESTS_LIB_GYM_H
#include "client/cli/egraph/egraph_json.h"
#include "core/base/buf.h"

#define SX_GYM_FILES 43
typedef struct {
    char file[128];
    uint32_t nodes, classes, roots;
    double tree_cost;   /* exact */
    double greedy_cost; /* of the collection's greedy extractor */
    double best_cost;   /* least known */
    uint32_t proofs;    /* of best_cost, independent ones */
} sx_gym_row;

/* The rows of best.csv. SX_INPUT when they are not what is expected. */
sx_code sx_gym_rows(sx_ctx *cx, sx_gym_row row[SX_GYM_FILES]);
/* One file; `text` is initialised here and outlives the graph. */
sx_code sx_gym_load(sx_ctx *cx, const char *file, sx_buf *text, sxc_egraph *egraph);
#endif
