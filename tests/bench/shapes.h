/* shapes.h - the shapes of tests/data/shapes, and what no kernel for one can do without. */
#ifndef SX_TESTS_BENCH_SHAPES_H
#define SX_TESTS_BENCH_SHAPES_H
#include "core/cost/device.h"
#include "core/ir/ir.h"

typedef struct {
    char name[48], operation[80], dtype[8], layout[8], origin[120];
} sx_bench_shape;
#define SX_BENCH_SHAPES_MAX 128u
/* The suite: the first so many of the file. */
#define SX_BENCH_SUITE_COUNT 60u

/* Reads the file; `shape` has room for SX_BENCH_SHAPES_MAX.
 *   errors   SX_INPUT a line of another form, with its number; those of reading */
sx_code sx_bench_shapes_read(sx_ctx *cx, const char *path, sx_bench_shape *shape, uint32_t *count);
/* The program of a shape, as text. */
sx_code sx_bench_shape_text(sx_ctx *cx, const sx_bench_shape *shape, sx_buf *text);

/* Operations, and bytes that are read and written at least, counted from the extents alone: this shares nothing with
 * the prices of core/cost. */
typedef struct {
    double flops, bytes;
    bool product; /* tensor units may do the operations */
} sx_bench_work;
sx_code sx_bench_shape_work(sx_ctx *cx, const sx_bench_shape *shape, sx_bench_work *work);
/* No kernel takes less: bytes over bandwidth, operations over the best rate of the table for the type. */
double sx_bench_floor_ns(const sx_device *device, const sx_bench_shape *shape,
                         const sx_bench_work *work);
#endif
