/* table.c - the targets of targets.def. */
#include "core/target/target.h"

#include <string.h>

static const sx_target *const rows[] = {
#define SX_TARGET(row) &sx_target_##row,
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
        if (strcmp(targets->row[i]->machine->name, name) == 0) {
            return targets->row[i];
        }
    }
    return NULL;
}

const sx_target *sx_target_of(const sx_targets *targets, const sx_machine *machine)
{
    SX_ASSERT(machine != NULL);
    targets = targets != NULL ? targets : sx_targets_all();
    for (uint32_t i = 0; i < targets->count; i++) {
        if (strcmp(targets->row[i]->machine->name, machine->name) == 0) {
            return targets->row[i];
        }
    }
    return NULL;
}
