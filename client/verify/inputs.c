/* inputs.c - random inputs and weights of a module, by what its program uses them for (draw.h). */
#include "client/verify/draw.h"
#include "client/verify/verify.h"
#include "client/verify/whole.h"

struct sxr_draws {
    const sxr_program *program;
    sxv_recipe *recipe;
    uint32_t count;
};

sx_code sxr_draws_make(sx_ctx *cx, const sxr_program *program, sxr_draws **made)
{
    const sx_module *module = sxr_module(program);
    sx_span text = {(const uint8_t *)module->program, (size_t)module->program_count};
    sx_graph *graph;
    sxr_draws *draws = SX_NEW(cx, sxr_draws);
    if (draws == NULL) {
        return cx->error.code;
    }
    draws->program = program;
    SX_TRY(sxv_bound_graph(cx, program, text, &graph));
    SX_TRY(sxv_draw_recipes(cx, graph, &draws->recipe, &draws->count));
    *made = draws;
    return SX_OK;
}

void sxr_draws_fill(const sxr_draws *draws, uint32_t index, uint64_t seed, void *memory)
{
    const sx_module *module = sxr_module(draws->program);
    const sx_module_tensor *tensor = &module->tensor[index];
    sx_span name = sx_module_string(module, tensor->name);
    sxv_recipe recipe = sxv_recipe_of(draws->recipe, draws->count, name);
    SX_ASSERT(memory != NULL && tensor->element_bytes > 0);
    sxv_draw(sxr_pool_of(draws->program), &recipe, (sx_dtype)tensor->dtype,
             (int64_t)(sxr_size(draws->program, index) / tensor->element_bytes), seed, memory);
}
