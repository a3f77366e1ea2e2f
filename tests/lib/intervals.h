/* intervals.h - modules that serve intervals of symbols, beside those for single values. */
#ifndef SX_TESTS_LIB_INTERVALS_H
#define SX_TESTS_LIB_INTERVALS_H
#include "client/runtime/runtime.h"
#include "core/core.h"

sx_code sx_test_compile_request(sx_ctx *cx, const sx_core_request *request, sx_buf *module);
/* Memory for all inputs and outputs of a program whose extents are set: inputs have the values that sx_test_fill draws,
 * outputs none that a run would write by chance. */
void sx_test_bind_drawn(sx_ctx *cx, sxr_program *program);
/* Which points are compared: `points` that are drawn with sx_test_seed, the ends first; 0: all that there are. Then
 * how many variants the module may have. */
typedef struct {
    uint32_t points, variants;
    /* The size of the module for all values, and of the largest of the others. */
    size_t bytes, alone;
    /* How many cases its parts have. */
    uint32_t cases;
} sx_test_intervals;
/* The module for the intervals of the request, at most two, beside those for single values of them: the outputs have
 * the same bits. Fails the test otherwise. */
void sx_test_compare_intervals(sx_ctx *cx, const sx_core_request *all, sx_test_intervals *t);
/* The encoder of the tests with a symbol, "seq", in the place of its 128 positions. In memory of cx. */
sx_code sx_test_encoder_text(sx_ctx *cx, const char **text);
/* Bytes of its weights, which a client writes into the module. */
#define SX_TEST_ENCODER_WEIGHTS ((size_t)3161088)
#endif
