/* ranks.h - tensors of the ranks of a mesh from the command line.
 *
 * --input NAME=FILE gives every rank the array; NAME@2=FILE gives rank 2 its own; NAME=FILE,dp:0 cuts a whole array
 * along dimension 0 into as many pieces as the axis dp has ranks, and gives each rank its piece. Where several axes
 * cut one dimension (FILE,dp:0,tp:0), the one named first cuts first.
 */
#ifndef SX_CLIENT_CLI_RANKS_H
#define SX_CLIENT_CLI_RANKS_H
#include "client/cli/cli.h"
#include "client/runtime/runtime.h"

typedef struct {
    const char *path;
    /* Pieces along each dimension of the whole array, and which one of them it is. */
    int64_t pieces[SX_MODULE_RANK_MAX], place[SX_MODULE_RANK_MAX];
} sxc_source_of_rank;

/* What the option gives the tensor of this name on a rank; *found is false where it gives nothing.
 *   errors   SX_USAGE an axis that the module has not, a dimension that the tensor has not, twice the same axis */
sx_code sxc_rank_source(sx_ctx *cx, const sx_module *module, const sxc_values *values,
                        uint32_t tensor, uint32_t rank, bool *found, sxc_source_of_rank *source);
/* Every value names a tensor of that place, and a rank that there is.  errors  SX_USAGE names the value */
sx_code sxc_rank_names(sx_ctx *cx, const sxr_program *program, const char *option,
                       const sxc_values *values, sx_module_place place);
/* Reads it into memory of the tensor of this program.
 *   errors   SX_INPUT names the file, its type and the one that it would have to have */
sx_code sxc_rank_load(sx_ctx *cx, const sxr_program *program, uint32_t tensor,
                      const sxc_source_of_rank *source, void *memory);
#endif
