/* symplex_ranks.c - the public library: modules that several ranks run together. */
#include "client/symplex_inside.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)SYMPLEX_ALL_REDUCE == (int)SX_COLLECTIVE_ALL_REDUCE &&
                   (int)SYMPLEX_ALL_GATHER == (int)SX_COLLECTIVE_ALL_GATHER &&
                   (int)SYMPLEX_REDUCE_SCATTER == (int)SX_COLLECTIVE_REDUCE_SCATTER &&
                   (int)SYMPLEX_ALL_TO_ALL == (int)SX_COLLECTIVE_ALL_TO_ALL &&
                   (int)SYMPLEX_PERMUTE == (int)SX_COLLECTIVE_PERMUTE,
               "collectives have the numbers of the module");
_Static_assert((int)SYMPLEX_SUM == (int)SX_COMBINE_SUM &&
                   (int)SYMPLEX_PRODUCT == (int)SX_COMBINE_PRODUCT &&
                   (int)SYMPLEX_MAX == (int)SX_COMBINE_MAX &&
                   (int)SYMPLEX_MIN == (int)SX_COMBINE_MIN,
               "and so has what combines");
_Static_assert(sizeof(symplex_pair) == sizeof(sx_module_pair), "pairs are those of the module");

static symplex_exchanger function_of(const symplex_communicator *c, sx_module_collective kind)
{
    switch (kind) {
    case SX_COLLECTIVE_ALL_REDUCE: return c->all_reduce;
    case SX_COLLECTIVE_ALL_GATHER: return c->all_gather;
    case SX_COLLECTIVE_REDUCE_SCATTER: return c->reduce_scatter;
    case SX_COLLECTIVE_ALL_TO_ALL: return c->all_to_all;
    case SX_COLLECTIVE_PERMUTE: return c->permute;
    case SX_COLLECTIVE_AXIS_INDEX:
    case SX_COLLECTIVE_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* What the caller said, as a failure of the run. */
static sx_code take_failure(sx_ctx *cx, symplex_code code, const symplex_error *error)
{
    sx_code found = sx_code_from_wire((int64_t)code);
    return SX_FAIL(cx, found, "communicator: %.400s",
                   error->text[0] != '\0' ? error->text : "it failed, and does not say why");
}

/* ---- do the ranks run the same module? ---- */

/* What a rank says of its module. */
typedef struct {
    sx_key program, module;
} passport;

static sx_code name_difference(sx_ctx *cx, const passport *of, uint32_t rank)
{
    char key[2][SX_KEY_TEXT_SIZE];
    bool same_program = sx_key_equal(&of[rank].program, &of[0].program);
    sx_key_print(same_program ? &of[0].module : &of[0].program, key[0]);
    sx_key_print(same_program ? &of[rank].module : &of[rank].program, key[1]);
    const char *hint = "one module for all ranks: compile once and send it, or a session";
    sx_code code =
        SX_FAIL(cx, SX_MISMATCH, "ranks disagree: rank %u runs %s %.16s, rank 0 %.16s", rank,
                same_program ? "another build of the program: module" : "program", key[1], key[0]);
    (void)snprintf(cx->error.hint, sizeof(cx->error.hint), "%s", hint);
    return code;
}

/* Before the first collective: other modules could still agree on every collective, and give wrong results. */
static sx_code agree(sx_ctx *cx, symplex_module *module)
{
    const sx_module *own = sxr_module(module->program);
    const symplex_communicator *c = &module->caller;
    passport mine, *all = SX_NEW_ARRAY(cx, passport, c->rank_count);
    symplex_error error = {.code = SYMPLEX_OK};
    if (all == NULL) {
        return cx->error.code;
    }
    memcpy(mine.program.byte, own->info->key, sizeof(mine.program.byte));
    SX_TRY(sx_module_digest(cx, own, &mine.module));
    const symplex_exchange told = {.kind = SYMPLEX_ALL_GATHER,
                                   .axis = "",
                                   .stride = 1,
                                   .count = c->rank_count,
                                   .place = c->rank,
                                   .launch = SYMPLEX_NO_LAUNCH,
                                   .dtype = SYMPLEX_U8,
                                   .combine = SYMPLEX_SUM,
                                   .from = &mine,
                                   .from_size = sizeof(mine),
                                   .to = all,
                                   .to_size = sizeof(mine) * c->rank_count};
    symplex_code code = c->all_gather(c->self, &told, &error);
    if (code != SYMPLEX_OK) {
        return take_failure(cx, code, &error);
    }
    for (uint32_t r = 1; r < c->rank_count; r++) {
        if (!sx_key_equal(&all[r].module, &all[0].module)) {
            return name_difference(cx, all, r);
        }
    }
    module->agreed = true;
    return SX_OK;
}

/* ---- collectives ---- */

static sx_code exchange(sx_ctx *cx, void *self, const sxr_exchange *x)
{
    symplex_module *module = self;
    SX_TRY(module->agreed ? SX_OK : agree(cx, module));
    char axis[SX_NAME_MAX + 1];
    symplex_error error = {.code = SYMPLEX_OK};
    (void)snprintf(axis, sizeof(axis), "%.*s", (int)x->axis.len, (const char *)x->axis.ptr);
    const symplex_exchange told = {.kind = (symplex_collective)x->kind,
                                   .axis = axis,
                                   .first = x->first,
                                   .stride = x->stride,
                                   .count = x->count,
                                   .place = x->place,
                                   .launch = x->launch,
                                   .dtype = (symplex_dtype)x->dtype,
                                   .combine = (symplex_combine)x->combine,
                                   .pair = (const symplex_pair *)(const void *)x->pair,
                                   .pair_count = x->pair_count,
                                   .from = x->from,
                                   .from_size = (size_t)x->from_bytes,
                                   .to = x->to,
                                   .to_size = (size_t)x->to_bytes};
    symplex_code code = function_of(&module->caller, x->kind)(module->caller.self, &told, &error);
    return code == SYMPLEX_OK ? SX_OK : take_failure(cx, code, &error);
}

static void give_up(void *self, const sx_error *error)
{
    const symplex_module *module = self;
    symplex_error told = {.code = (symplex_code)sx_code_wire(error->code),
                          .name = sx_code_name(error->code)};
    sxc_copy_text(told.text, sizeof(told.text), sx_span_of(error->text));
    sxc_copy_text(told.hint, sizeof(told.hint), sx_span_of(error->hint));
    module->caller.abort(module->caller.self, &told);
}

uint32_t symplex_module_ranks(const symplex_module *module)
{
    return module != NULL ? sx_module_ranks(sxr_module(module->program)) : 1;
}

symplex_code symplex_module_join(symplex_module *module, const symplex_communicator *communicator,
                                 symplex_error *error)
{
    const symplex_communicator *c = communicator;
    if (module == NULL || c == NULL || c->all_reduce == NULL || c->all_gather == NULL ||
        c->reduce_scatter == NULL || c->all_to_all == NULL || c->permute == NULL) {
        return sxc_call_misuse(error, "symplex_module_join: module and communicator are needed, "
                                      "with a function for each collective");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    const sxr_communicator own = {.self = module,
                                  .rank = c->rank,
                                  .rank_count = c->rank_count,
                                  .all_reduce = exchange,
                                  .all_gather = exchange,
                                  .reduce_scatter = exchange,
                                  .all_to_all = exchange,
                                  .permute = exchange,
                                  .abort = c->abort != NULL ? give_up : NULL};
    sx_code code = sxr_join(&cx, module->program, &own);
    if (code == SX_OK) {
        module->caller = *c;
        module->agreed = false;
        module->communicator = own;
        code = sxr_join(&cx, module->program, &module->communicator);
    }
    return sxc_call_finish(&cx, code, error);
}

void symplex_exchange_run(const symplex_exchange *x, const void *const *from)
{
    const sxr_exchange told = {.kind = (sx_module_collective)x->kind,
                               .count = x->count,
                               .place = x->place,
                               .dtype = (uint32_t)x->dtype,
                               .combine = (sx_module_combine)x->combine,
                               .pair = (const sx_module_pair *)(const void *)x->pair,
                               .pair_count = x->pair_count,
                               .from_bytes = x->from_size,
                               .to = x->to,
                               .to_bytes = x->to_size};
    sxr_exchange_run(&told, from);
}
