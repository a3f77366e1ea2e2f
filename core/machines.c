/* machines.c - the machines of a request: one, or several levels of one architecture. */
#include "core/pipeline.h"

/* The machine of one name of the request. */
static sx_code machine_of(sx_ctx *cx, const sx_core_request *request, sx_span name,
                          sx_pipe_machine *machine)
{
    const sx_device *d;
    SX_TRY(request->device.len > 0 ? sx_device_parse(cx, request->device, &d)
                                   : sx_device_find(cx, name, &d));
    if (d->target == NULL) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "device %s: no code generator for target none",
                       d->name);
    }
    const sx_target *t = sx_target_find(request->targets, d->target);
    if (t == NULL) {
        return SX_FAIL(cx, SX_INPUT, "device %s: target %s is unknown", d->name, d->target);
    }
    if (d->lanes != t->vectors.lanes || d->registers != t->vectors.registers) {
        return SX_FAIL(cx, SX_INPUT,
                       "device %s: lanes %u and registers %u, its target %s has %u and %u", d->name,
                       d->lanes, d->registers, t->machine->name, t->vectors.lanes,
                       t->vectors.registers);
    }
    uint32_t shared = t->machine->block_shared_bytes;
    bool blocks = shared > 0 && d->block_threads > 0;
    if (blocks && (d->shared_block_bytes > shared || d->block_threads > SX_MODULE_THREADS_MAX)) {
        return SX_FAIL(
            cx, SX_INPUT,
            "device %s: %u threads and %.0f bytes of shared memory per block, its target "
            "%s has %u and %u",
            d->name, d->block_threads, d->shared_block_bytes, t->machine->name,
            SX_MODULE_THREADS_MAX, shared);
    }
    uint32_t wide = sx_device_lanes(d, 8);
    if (wide != sx_vector_unit_lanes(&t->vectors, 8)) {
        return SX_FAIL(
            cx, SX_INPUT,
            "device %s: %u lanes of 8 bytes, its target %s has %u: devices whose lanes are "
            "threads have the laws of blocks, others have none",
            d->name, wide, t->machine->name, sx_vector_unit_lanes(&t->vectors, 8));
    }
    *machine = (sx_pipe_machine){.device = d, .target = t};
    bool known = sx_level_find(t->machine->name, &machine->arch, &machine->level);
    SX_ASSERT(known); /* every target has a row in protocol/arch.def */
    return SX_OK;
}

/* Puts a machine into the list, which descends by level. */
static sx_code put_machine(sx_ctx *cx, sx_pipe_machine *list, uint32_t *count,
                           const sx_pipe_machine *machine)
{
    uint32_t at = *count;
    while (at > 0 && list[at - 1].level <= machine->level) {
        at--;
    }
    for (uint32_t i = 0; i < *count; i++) {
        if (list[i].arch != machine->arch || list[i].level == machine->level) {
            return SX_FAIL(
                cx, SX_INPUT, "targets %s and %s: %s", list[i].device->name, machine->device->name,
                list[i].arch != machine->arch ? "one module holds code of one architecture"
                                              : "nothing tells their machines apart");
        }
    }
    for (uint32_t i = *count; i > at; i--) {
        list[i] = list[i - 1];
    }
    list[at] = *machine;
    (*count)++;
    return SX_OK;
}

sx_code sx_pipe_machines(sx_ctx *cx, const sx_core_request *request, sx_pipe_machine **machine,
                         uint32_t *count)
{
    sx_span *name;
    uint32_t names;
    SX_TRY(sx_core_target_names(cx, request, &name, &names));
    SX_ASSERT(names > 0);
    *machine = SX_NEW_ARRAY(cx, sx_pipe_machine, names);
    *count = 0;
    if (*machine == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < names; i++) {
        sx_pipe_machine one;
        SX_TRY(machine_of(cx, request, name[i], &one));
        SX_TRY(put_machine(cx, *machine, count, &one));
    }
    return SX_OK;
}

sx_code sx_core_device(sx_ctx *cx, const sx_core_request *request, const sx_device **device,
                       const sx_target **target)
{
    sx_pipe_machine *machine;
    uint32_t count;
    SX_TRY(sx_pipe_machines(cx, request, &machine, &count));
    if (count > 1) {
        return SX_FAIL(cx, SX_INPUT,
                       "targets %s and %s: only compile takes several, this takes one",
                       machine[0].device->name, machine[1].device->name);
    }
    *device = machine->device;
    *target = machine->target;
    return SX_OK;
}

bool sx_core_assembles(const sx_core_request *request)
{
    sx_ctx cx;
    sx_span *name;
    uint32_t count = 0;
    sx_pipe_machine machine;
    sx_ctx_init(&cx, (size_t)1 << 20);
    bool text = sx_core_target_names(&cx, request, &name, &count) == SX_OK &&
                machine_of(&cx, request, name[0], &machine) == SX_OK &&
                machine.target->assemble != NULL;
    sx_ctx_fini(&cx);
    return text;
}
