/* general.h - the number of rows of a program as a symbol.
 *
 * A program for 16 images and one for 64 are different programs, for which level 1 may choose sums in another order:
 * the same image then has other bits. Of a program whose batch is a symbol it chooses once, whatever the value. So a
 * program with numbers is *generalised*: the dimension that its results begin with becomes the symbol "rows", in every
 * tensor that has it. Programs of one function for different batches become the same program, but for the value.
 *
 *     %x = parameter {name = "x", weight = 0} : f32[16, 128]        %x = parameter {..} : f32[rows, 128]
 *     %y = reshape(%x) : f32[64, 32]                          ->    %y = reshape(%x) : f32[4*rows, 32]
 *     return %y as "y"                                              return %y as "y"
 *
 * Which dimensions those are follows from the operations alone and not from sizes: a width that equals the batch stays
 * a number. With the value in place of the symbol the general program is the one that it was made of, node by node.
 */
#ifndef SX_CORE_IR_GENERAL_H
#define SX_CORE_IR_GENERAL_H
#include "core/ir/ir.h"

#define SX_GENERAL_SYMBOL "rows"

typedef struct {
    /* NULL: the program cannot be generalised, and `why` says so in a sentence without a full stop. */
    sx_graph *graph;
    const char *why;
    int64_t rows; /* the value of the symbol for which it is the program that was given */
} sx_general;

/* Generalises `graph`, whose nodes keep their numbers, names and origins. The interval of the symbol depends on the
 * program and not on its number of rows. Cannot be generalised: programs with symbols, placements on a mesh, regions or
 * collectives; results without dimensions, or whose first dimension comes from weights or from no input; what the
 * checker refuses with the symbol in place, such as rows that are taken by their number.
 *   errors   SX_NOMEM */
sx_code sx_graph_generalise(sx_ctx *cx, const sx_graph *graph, sx_general *general);
#endif
