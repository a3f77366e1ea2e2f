/* sweep.h - out-of-memory sweeps: the same work again and again, with more memory each time, until it is enough.
 *
 * Every run has a context of its own, whose arena has room for nothing at first. A run that ends for want of memory
 * must say so (SX_NOMEM, in cx->error too) and hold its limit; then the context gets room, its error is
 * forgotten, and `after` must succeed in it: whatever the failed work left behind is usable. What the work takes
 * from malloc it must give back, which the sanitizers see.
 *
 *     static sx_code parse(sx_ctx *cx, void *self) { sx_graph *g; return sx_graph_parse(cx, *(sx_span *)self, &g); }
 *     sx_test_oom(&(sx_test_sweep){.name = "parse", .work = parse, .self = &text});
 */
#ifndef SX_TESTS_LIB_SWEEP_H
#define SX_TESTS_LIB_SWEEP_H
#include "core/base/base.h"

typedef sx_code (*sx_test_work)(sx_ctx *cx, void *self);
typedef struct {
    const char *name;
    sx_test_work work;
    sx_test_work after; /* after each run that failed; NULL: the work itself */
    void *self;
    /* The next limit lets the allocation pass that failed, so that each of them fails once; where there are too
     * many for that, the limit grows by this part of itself at least. */
    double part;
    /* bytes of the first limit */
    size_t from;
    /* So many runs must fail; 0: 4. A sweep that starts too high sees nothing. */
    uint32_t fails_min;
} sx_test_sweep;
/* Fails the running test, with name and limit, on any other end than SX_OK or SX_NOMEM.  Result: runs that failed */
uint32_t sx_test_oom(const sx_test_sweep *sweep);
#endif
