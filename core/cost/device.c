#include "core/cost/cost.h"

#include <string.h>

static const sx_device device_table[] = {
#define SX_DEVICE(name_, target_, class_, cores_, lanes_, registers_, fma_, latency_, ghz_, l1_, \
                  l2_, l3_, l2b_, memory_, launch_, link_, link_ns_, flop_pj_, byte_pj_, text_)  \
    {.name = name_,                                                                              \
     .text = text_,                                                                              \
     .target = target_,                                                                          \
     .program_class = class_,                                                                    \
     .cores = cores_,                                                                            \
     .lanes = lanes_,                                                                            \
     .registers = registers_,                                                                    \
     .fma_per_cycle = fma_,                                                                      \
     .fma_latency = latency_,                                                                    \
     .ghz = ghz_,                                                                                \
     .l1_bytes = l1_,                                                                            \
     .l2_bytes = l2_,                                                                            \
     .l3_bytes = l3_,                                                                            \
     .l2_bytes_per_ns = l2b_,                                                                    \
     .memory_bytes_per_ns = memory_,                                                             \
     .launch_ns = launch_,                                                                       \
     .link_bytes_per_ns = link_,                                                                 \
     .link_ns = link_ns_,                                                                        \
     .flop_pj = flop_pj_,                                                                        \
     .byte_pj = byte_pj_},
#include "core/cost/devices.def"
#undef SX_DEVICE
};

uint32_t sx_device_count(void)
{
    return (uint32_t)SX_COUNT(device_table);
}

const sx_device *sx_device_at(uint32_t index)
{
    SX_ASSERT(index < SX_COUNT(device_table));
    return &device_table[index];
}

sx_code sx_device_find(sx_ctx *cx, sx_span name, const sx_device **device)
{
    char known[256];
    size_t used = 0;
    for (uint32_t i = 0; i < SX_COUNT(device_table); i++) {
        const sx_device *candidate = &device_table[i];
        if (sx_span_is(name, candidate->name)) {
            if (candidate->target == NULL) {
                return SX_FAIL(cx, SX_UNIMPLEMENTED, "target %s: no code generator for this device",
                               candidate->name);
            }
            *device = candidate;
            return SX_OK;
        }
        size_t len = strlen(candidate->name);
        SX_ASSERT(used + len + 2 < sizeof(known));
        known[used] = ' ';
        memcpy(&known[used + 1], candidate->name, len + 1);
        used += len + 1;
    }
    int shown = name.len < SX_NAME_MAX ? (int)name.len : SX_NAME_MAX;
    return SX_FAIL(cx, SX_INPUT, "target '%.*s' is unknown; known are%s", shown,
                   name.ptr != NULL ? (const char *)name.ptr : "", known);
}

const sx_device *sx_device_class(const sx_device *device)
{
    const sx_device *row = NULL; /* with its target */
    for (uint32_t i = 0; device->target != NULL && row == NULL && i < SX_COUNT(device_table); i++) {
        const char *target = device_table[i].target;
        row = target != NULL && strcmp(target, device->target) == 0 ? &device_table[i] : NULL;
    }
    for (uint32_t i = 0; row != NULL && i < SX_COUNT(device_table); i++) {
        const char *name = device_table[i].program_class;
        if (name != NULL && strcmp(name, row->program_class) == 0) {
            return &device_table[i];
        }
    }
    return device;
}

double sx_device_compute_ns(const sx_device *device, double flops)
{
    double peak = 2.0 * device->cores * device->lanes * device->fma_per_cycle * device->ghz;
    SX_ASSERT(peak > 0);
    return flops / peak;
}

double sx_device_move_ns(const sx_device *device, double bytes)
{
    SX_ASSERT(device->memory_bytes_per_ns > 0);
    return bytes / device->memory_bytes_per_ns;
}

double sx_device_floor_ns(const sx_device *device, double flops, double bytes)
{
    double compute = sx_device_compute_ns(device, flops);
    double move = sx_device_move_ns(device, bytes);
    return compute > move ? compute : move;
}
