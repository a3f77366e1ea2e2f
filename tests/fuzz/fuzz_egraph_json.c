/* fuzz_egraph_json.c - any bytes as an e-graph in JSON: an error, or a problem whose answer is a program not
 * below its bound. */
#include "client/cli/egraph/egraph_json.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sx_ctx cx;
    sxc_egraph egraph;
    sx_ctx_init(&cx, (size_t)64 << 20);
    if (sxc_egraph_parse(&cx, (sx_span){data, size}, &egraph) == SX_OK) {
        sx_xt_options options = {.fuel = 2000000};
        sx_xt_answer answer;
        sx_xt_walk walk;
        sx_code code = sx_xt_solve(&cx, &egraph.problem, &options, &answer);
        SX_ASSERT(code == SX_OK || code == SX_NOMEM || code == SX_INPUT);
        if (code == SX_OK && sx_xt_walk_run(&cx, &egraph.problem, answer.choice, &walk) == SX_OK) {
            SX_ASSERT(walk.whole && answer.lower_bound <= answer.dag_cost);
        }
    }
    sx_ctx_fini(&cx);
    return 0;
}
