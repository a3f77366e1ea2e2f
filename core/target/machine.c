/* machine.c - the machines of targets.def, and what is asked of any. */
#include "core/target/machine.h"

#include <string.h>

static const sx_machine *const rows[] = {
#define SX_TARGET(row) &sx_machine_##row,
#include "core/target/targets.def"
#undef SX_TARGET
};

const sx_machines *sx_machines_all(void)
{
    static const sx_machines all = {rows, (uint32_t)SX_COUNT(rows)};
    return &all;
}

const sx_machine *sx_machine_find(const sx_machines *machines, const char *name)
{
    SX_ASSERT(name != NULL);
    machines = machines != NULL ? machines : sx_machines_all();
    for (uint32_t i = 0; i < machines->count; i++) {
        if (strcmp(machines->row[i]->name, name) == 0) {
            return machines->row[i];
        }
    }
    return NULL;
}

sx_code sx_machine_of_module(sx_ctx *cx, const sx_machines *machines, const char *name,
                             const sx_machine **machine)
{
    SX_ASSERT(machine != NULL);
    *machine = sx_machine_find(machines, name);
    return *machine != NULL ? SX_OK
                            : SX_FAIL(cx, SX_UNIMPLEMENTED,
                                      "module is for machine %s, which is not known here", name);
}

bool sx_machine_executes(const sx_machine *machine, const sx_machine *code)
{
    SX_ASSERT(machine != NULL && code != NULL);
    return strcmp(machine->family, code->family) == 0 && code->level <= machine->level;
}
