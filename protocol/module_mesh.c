/* module_mesh.c - modules that several ranks run together: the axes of their mesh, and what they exchange. */
#include "protocol/module_check.h"

#include <string.h>

#define U(value) ((unsigned long long)(value))

const char *sx_module_collective_name(uint64_t collective)
{
    static const char *const name[SX_COLLECTIVE_COUNT] = {
#define SX_COLLECTIVE(enumerator, text) text,
        SX_MODULE_COLLECTIVES(SX_COLLECTIVE)
#undef SX_COLLECTIVE
    };
    return collective < SX_COLLECTIVE_COUNT ? name[collective] : "unknown";
}

const char *sx_module_combine_name(uint32_t combine)
{
    static const char *const name[SX_COMBINE_COUNT] = {
#define SX_COMBINE(enumerator, text) text,
        SX_MODULE_COMBINES(SX_COMBINE)
#undef SX_COMBINE
    };
    return combine < SX_COMBINE_COUNT ? name[combine] : "unknown";
}

static bool combines(const sx_module_launch *launch)
{
    return launch->value == SX_COLLECTIVE_ALL_REDUCE ||
           launch->value == SX_COLLECTIVE_REDUCE_SCATTER;
}

void sx_module_collective_print(const sx_module *module, const sx_module_launch *launch,
                                sx_buf *text)
{
    SX_ASSERT(launch->kind == SX_LAUNCH_COLLECTIVE);
    sx_span name = sx_module_string(module, launch->name);
    sx_buf_print(text, "%s%s%s along %.*s", sx_module_collective_name(launch->value),
                 combines(launch) ? " " : "",
                 combines(launch) ? sx_module_combine_name(launch->combine) : "", (int)name.len,
                 (const char *)name.ptr);
}

/* ---- the mesh ---- */

uint32_t sx_module_ranks(const sx_module *module)
{
    uint64_t ranks = 1;
    for (uint32_t a = 0; a < module->axis_count; a++) {
        ranks *= module->axis[a].size;
    }
    SX_ASSERT(ranks >= 1 && ranks <= SX_MODULE_RANKS_MAX);
    return (uint32_t)ranks;
}

/* axis_count: there is none of this name. */
static uint32_t find_axis(const sx_module *module, sx_module_text name)
{
    uint32_t a = 0;
    while (a < module->axis_count && !sx_span_equal(sx_module_string(module, module->axis[a].name),
                                                    sx_module_string(module, name))) {
        a++;
    }
    return a;
}

uint32_t sx_module_axis_of(const sx_module *module, const sx_module_launch *launch)
{
    uint32_t axis = find_axis(module, launch->name);
    SX_ASSERT(launch->kind == SX_LAUNCH_COLLECTIVE && axis < module->axis_count);
    return axis;
}

uint32_t sx_module_axis_stride(const sx_module *module, uint32_t axis)
{
    uint32_t stride = 1;
    SX_ASSERT(axis < module->axis_count);
    for (uint32_t a = axis + 1; a < module->axis_count; a++) {
        stride *= (uint32_t)module->axis[a].size;
    }
    return stride;
}

sx_code sx_module_check_axes(sx_ctx *cx, const sx_module *module)
{
    uint64_t ranks = 1;
    if (module->axis_count > SX_MODULE_AXES_MAX) {
        return SX_FAIL(cx, SX_CORRUPT, "module axes: %llu, at most %u", U(module->axis_count),
                       SX_MODULE_AXES_MAX);
    }
    for (uint32_t a = 0; a < module->axis_count; a++) {
        const sx_module_axis *axis = &module->axis[a];
        if (axis->name.size == 0 || find_axis(module, axis->name) != a) {
            return SX_FAIL(cx, SX_CORRUPT, "module axis %u: its name is empty, or another's", a);
        }
        if (axis->size < 1 || axis->size > SX_MODULE_RANKS_MAX / ranks) {
            return SX_FAIL(cx, SX_CORRUPT, "module axis %u: %llu ranks, at most %llu in all", a,
                           U(axis->size), U(SX_MODULE_RANKS_MAX));
        }
        ranks *= axis->size;
    }
    return SX_OK;
}

/* ---- launches ---- */

#define BAD(cx, index, format, ...) \
    SX_FAIL((cx), SX_CORRUPT, "module launch %u (collective): " format, (index), __VA_ARGS__)

/* No place is twice a source or twice a target. */
static sx_code check_pairs(sx_ctx *cx, const sx_module *module, uint32_t index, uint64_t ranks)
{
    const sx_module_launch *launch = &module->launch[index];
    const sx_module_pair *pair = module->pair + launch->pair_first;
    uint8_t *target = SX_NEW_ARRAY(cx, uint8_t, ranks + 1);
    if (target == NULL) {
        return cx->error.code;
    }
    for (uint32_t k = 0; k < launch->pair_count; k++) {
        bool bad = pair[k].source >= ranks || pair[k].target >= ranks ||
                   (k > 0 && pair[k].source <= pair[k - 1].source) || target[pair[k].target] != 0;
        if (bad) {
            return BAD(cx, index, "pair %u is %u to %u, of %llu ranks", k, pair[k].source,
                       pair[k].target, U(ranks));
        }
        target[pair[k].target] = 1;
    }
    return SX_OK;
}

/* What the tensors of each collective have in bytes, for the largest extents; which are those of a run is seen then. */
static bool sizes_fit(const sx_module_launch *launch, const sx_module_tensor *from,
                      const sx_module_tensor *to, uint64_t ranks)
{
    switch ((sx_module_collective)launch->value) {
    case SX_COLLECTIVE_ALL_REDUCE:
    case SX_COLLECTIVE_PERMUTE: return from->size == to->size;
    case SX_COLLECTIVE_ALL_GATHER: return to->size % ranks == 0 && to->size / ranks == from->size;
    case SX_COLLECTIVE_REDUCE_SCATTER:
        return from->size % ranks == 0 && from->size / ranks == to->size;
    case SX_COLLECTIVE_ALL_TO_ALL: return from->size == to->size && from->size % ranks == 0;
    case SX_COLLECTIVE_AXIS_INDEX: return to->size == 8 && to->element_bytes == 8;
    case SX_COLLECTIVE_COUNT: break;
    }
    SX_UNREACHABLE();
}

sx_code sx_module_check_collective(sx_ctx *cx, const sx_module *module, uint32_t index)
{
    const sx_module_launch *launch = &module->launch[index];
    const uint32_t *arg = module->arg + launch->arg_first;
    bool alone = launch->value == SX_COLLECTIVE_AXIS_INDEX;
    if (launch->value >= SX_COLLECTIVE_COUNT || launch->arg_count != (alone ? 1 : 2)) {
        return BAD(cx, index, "collective %llu of %u arguments", U(launch->value),
                   launch->arg_count);
    }
    uint32_t axis = find_axis(module, launch->name);
    if (axis == module->axis_count) {
        return BAD(cx, index, "along an axis of %u letters, which the module has not",
                   launch->name.size);
    }
    uint64_t ranks = module->axis[axis].size;
    const sx_module_tensor *from = &module->tensor[arg[0]],
                           *to = &module->tensor[arg[launch->arg_count - 1]];
    if (launch->combine >= (combines(launch) ? (uint32_t)SX_COMBINE_COUNT : 1) ||
        launch->pair_first > module->pair_count ||
        launch->pair_count > module->pair_count - launch->pair_first ||
        (launch->value != SX_COLLECTIVE_PERMUTE && launch->pair_count > 0)) {
        return BAD(cx, index, "%s combines by %u; %u pairs from %u on of %llu",
                   sx_module_collective_name(launch->value), launch->combine, launch->pair_count,
                   launch->pair_first, U(module->pair_count));
    }
    if ((!alone && (arg[0] == arg[1] || from->dtype != to->dtype)) ||
        !sizes_fit(launch, from, to, ranks)) {
        return BAD(cx, index,
                   "%s of %llu ranks from tensor %u of %llu bytes to tensor %u of %llu, element "
                   "types %u and %u",
                   sx_module_collective_name(launch->value), U(ranks), arg[0], U(from->size),
                   arg[launch->arg_count - 1], U(to->size), from->dtype, to->dtype);
    }
    return launch->pair_count > 0 ? check_pairs(cx, module, index, ranks) : SX_OK;
}
