/* table.c - the rows of targets.def, and what is asked of any row. */
#include <string.h>

#include "core/target/target.h"

static const sx_target *const rows[] = {
#define SX_TARGET(symbol) &(symbol),
#include "core/target/targets.def"
#undef SX_TARGET
};

const sx_targets *sx_targets_all(void)
{
    static const sx_targets all = {rows, (uint32_t)SX_COUNT(rows)};
    return &all;
}

const sx_target *sx_target_find(const sx_targets *targets, const char *name)
{
    SX_ASSERT(name != NULL);
    targets = targets != NULL ? targets : sx_targets_all();
    for (uint32_t i = 0; i < targets->count; i++) {
        if (strcmp(targets->row[i]->name, name) == 0) {
            return targets->row[i];
        }
    }
    return NULL;
}

sx_code sx_target_of_module(sx_ctx *cx, const sx_targets *targets, const char *name,
                            const sx_target **target)
{
    SX_ASSERT(target != NULL);
    *target = sx_target_find(targets, name);
    return *target != NULL ? SX_OK
                           : SX_FAIL(cx, SX_UNIMPLEMENTED,
                                     "module is for machine %s, which is not known here", name);
}

bool sx_target_executes(const sx_target *machine, const sx_target *code)
{
    SX_ASSERT(machine != NULL && code != NULL);
    return strcmp(machine->family, code->family) == 0 && code->level <= machine->level;
}
