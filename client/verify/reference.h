/* reference.h - the program as it was sent, evaluated one operation at a time.
 *
 * `typed` is the interpreter's TYPED mode: each result rounded to its element type, sums carried in f32.
 * `exact`, where it is asked for, is its F64 mode beside it: floats in double precision. Their difference is what
 * rounding alone does to the program, so it is the measure of how far a right module may be off. Nothing of the
 * compiler takes part: operations are plain C (element by element, multiply.h for contractions and convolutions) or
 * the interpreter's own; composites are their decompositions. Tests hold every operation here to the interpreter.
 *
 * A tensor is freed after its last reader, so the memory is that of the tensors alive at once: for each element of
 * f32 4 bytes, and 8 with `exact`; for each element of other types 8 for each of the two.
 */
#ifndef SX_CLIENT_VERIFY_REFERENCE_H
#define SX_CLIENT_VERIFY_REFERENCE_H
#include "client/runtime/pool.h"
#include "core/eval/cell.h"

/* Results of one node: cells as the interpreter has them, but `typed` of f32 as floats. */
typedef struct {
    const sx_type *type;
    const sx_cell *exact; /* NULL: not asked for */
    const sx_cell *typed; /* one of the two */
    const float *typed_f32;
    /* The machine rounds factors of f32 to tf32 (rounded.h). */
    bool tf32;
} sxv_pair;

/* Who asks for a reference: it gives the elements of parameters and takes outputs, each as soon as it is there. */
typedef struct {
    void *self;
    /* The stored elements of parameter `attr`, which stay where they are until the end. */
    sx_code (*parameter)(sx_ctx *cx, void *self, const sx_attr *attr, const sx_type *type,
                         sx_span *raw);
    sx_code (*output)(sx_ctx *cx, void *self, const sx_output *output, const sxv_pair *value);
} sxv_reader;

typedef struct {
    sxr_pool *pool;
    /* Tensors that are alive at once may have this many bytes together. */
    size_t bytes_max;
    /* In double precision, too: three times the work. */
    bool exact;
    /* Rounded results are those of a machine that rounds factors of f32 to tf32 (rounded.h). */
    bool tf32;
    /* With `exact`: rounded results of f64 are moved by a unit in the last place, so that the two differ there, too;
     * from the second on also those of f32, while what jumps (moved.h) is as in double precision. 0: nothing is moved;
     * each number moves in another way. */
    uint32_t moved;
} sxv_reference;

/* `graph` is static.  errors  SX_LIMIT more than bytes_max; SX_NOMEM; those of the interpreter and of the reader */
sx_code sxv_reference_run(sx_ctx *cx, const sxv_reference *reference, const sx_graph *graph,
                          const sxv_reader *reader);
/* Multiplications and additions that the reference does for the program, about. */
double sxv_reference_flops(const sx_graph *graph);
#endif
