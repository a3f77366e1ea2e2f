/* gen_graph.h - random well-typed graphs over all operations, for round trips and differential tests.
 *
 * Same seed and options, same graph. Shapes are small: at most `elements_max` elements per tensor for the
 * largest values of the symbols. Every graph passes sx_graph_check.
 */
#ifndef SX_TESTS_LIB_GEN_GRAPH_H
#define SX_TESTS_LIB_GEN_GRAPH_H
#include "core/base/bits.h"
#include "core/base/rng.h"
#include "core/ir/ir.h"

typedef struct {
    uint32_t node_count;  /* operations to add, about; operands that are missing come on top */
    uint32_t symbols;     /* 0 for static shapes, at most 3 */
    uint32_t rank_max;    /* of fresh tensors, at most 5; operations may add to it */
    int64_t extent_max;   /* of fresh dimensions */
    int64_t elements_max; /* of any tensor */
    uint32_t dtypes;      /* set of 1 << SX_F32 etc. that fresh tensors have */
    sx_bits ops;          /* which operations are drawn; leaves always may appear */
    bool sums;            /* extents may be sums of products of symbols, of which there are some */
    bool empties;         /* tensors may have no elements, likewise */
    bool crops; /* padding may be negative: then graphs need not be plain (core/ir/plain.h) */
} sx_gen_options;
_Static_assert(SX_OP_COUNT <= SX_BITS_MAX, "sets of operations are sx_bits");
#define SX_GEN_ALL_DTYPES ((1u << SX_DTYPE_COUNT) - 1)

/* 24 operations, 2 symbols, rank 4, extents to 5, 4096 elements, every element type, every operation but those with
 * programs inside (SX_OPCLASS_REGION), of which some passes make nothing. */
sx_gen_options sx_gen_default(void);
sx_bits sx_gen_all_ops(void);
/* Fails the running test if the graph cannot be made. One to three outputs. */
sx_graph *sx_gen_graph(sx_ctx *cx, sx_rng *rng, const sx_gen_options *options);
/* A random value inside the interval of each symbol that is declared, and how many these are; `binding` has room for
 * graph->symbol_count. */
uint32_t sx_gen_binding(sx_rng *rng, const sx_graph *graph, sx_binding *binding);
/* The same program written differently: nodes in another order (parameters keep theirs), duplicates, dead
 * code, symbols in another order, another graph name. */
sx_graph *sx_gen_disguise(sx_ctx *cx, sx_rng *rng, const sx_graph *graph);
#endif
