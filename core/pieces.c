/* pieces.c - attention of few queries over many keys: a launch for pieces of the keys before the one of the node. */
#include "core/kernels.h"

#include <stdio.h>
#include <string.h>

#include "core/search/search.h"

/* Tensors for both results of the pieces. */
static sx_code add_results(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                           const sx_pipe_pieces *made, uint32_t result[SX_PIECE_RESULTS])
{
    static const char *const word[] = {
        [SX_PIECE_SUM] = "pieces", [SX_PIECE_STATISTIC] = "statistics"};
    bool constant = true;
    for (uint32_t k = 0; k < made->count; k++) {
        constant = constant && pipe->tensor[s->tensor[made->argument[k]]].constant;
    }
    for (uint32_t k = 0; k < SX_PIECE_RESULTS; k++) {
        const sx_type *type = &made->result[k];
        char name[64];
        uint64_t bytes = (uint64_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
        (void)snprintf(name, sizeof(name), "%s_%u", word[k], s->node);
        SX_TRY(sx_pipe_add_tensor(cx, pipe, sx_span_of(name), type, bytes,
                                  constant ? SX_TENSOR_PERSISTENT : SX_TENSOR_TEMPORARY,
                                  &result[k]));
        pipe->tensor[result[k]].constant = constant;
    }
    return SX_OK;
}

static sx_code compile_pieces(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                              const sx_online_pieces *p, const uint32_t *result)
{
    uint32_t tensor[SX_FUSED_ARGS_MAX + SX_PIECE_RESULTS];
    sx_pipe_choice *c = SX_NEW(cx, sx_pipe_choice);
    if (c == NULL) {
        return cx->error.code;
    }
    for (uint32_t k = 0; k < p->argument_count; k++) {
        tensor[k] = s->tensor[p->argument[k]];
    }
    sx_pipe_subject sums = {.analysis = &p->partial_analysis,
                            .type = p->partial_input,
                            .tensor = tensor,
                            .count = p->argument_count,
                            .node = s->node,
                            .other = {SX_MODULE_NONE},
                            .kind = SX_MODULE_PACK};
    (void)snprintf(sums.name, sizeof(sums.name), "pieces_%u", s->node);
    SX_TRY(sx_pipe_choose(cx, pipe, &sums, c));
    return sx_pipe_finish_fused(cx, pipe, &sums, result, c);
}

sx_code sx_pipe_make_pieces(sx_ctx *cx, sx_pipe *pipe, sx_pipe_subject *s, sx_type *type,
                            sx_analysis *a, sx_pipe_pieces *made)
{
    int64_t piece = sx_search_piece(a, pipe->device);
    if (piece != 0 && pipe->steady != NULL) {
        return sx_pipe_unsteady(cx, pipe, s->name, "its keys are cut in pieces");
    }
    sx_online_pieces *p = piece == 0 ? NULL : SX_NEW(cx, sx_online_pieces);
    uint32_t result[SX_PIECE_RESULTS];
    if (p == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_online_pieces_make(cx, a, piece, p));
    made->count = p->argument_count;
    memcpy(made->argument, p->argument, sizeof(made->argument));
    memcpy(made->result, p->result, sizeof(made->result));
    SX_TRY(add_results(cx, pipe, s, made, result));
    SX_TRY(compile_pieces(cx, pipe, s, p, result));
    made->kernel = pipe->kernel_last;
    s->tensor[a->value] = result[SX_PIECE_SUM];
    s->tensor[a->rhs] = result[SX_PIECE_STATISTIC];
    memcpy(type, p->combine_input, s->count * sizeof(*type));
    return sx_analysis_make(cx, &p->combine, type, s->count, a);
}

sx_code sx_pipe_make_pieces_again(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_pieces *made,
                                  const sx_pipe_subject *s)
{
    uint32_t tensor[SX_FUSED_ARGS_MAX + SX_PIECE_RESULTS], count = made->count;
    if (made->kernel == UINT32_MAX) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < count; k++) {
        tensor[k] = s->tensor[made->argument[k]];
    }
    SX_TRY(add_results(cx, pipe, s, made, tensor + count));
    sx_pipe_launch(pipe, made->kernel, tensor, count + SX_PIECE_RESULTS,
                   pipe->tensor[tensor[count]].constant);
    s->tensor[made->argument[SX_PIECE_VALUE]] = tensor[count + SX_PIECE_SUM];
    s->tensor[made->argument[SX_PIECE_KEY]] = tensor[count + SX_PIECE_STATISTIC];
    return SX_OK;
}
