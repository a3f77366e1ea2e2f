/* device.c - devices found by name, and the laws that follow from their values. */
#include "core/cost/device.h"

#include <string.h>

const char *sx_unit_name(sx_unit unit)
{
    static const char *const name[SX_UNIT_COUNT] = {
        [SX_UNIT_VECTOR] = "vector", [SX_UNIT_TENSOR] = "tensor", [SX_UNIT_AMX] = "amx"};
    SX_ASSERT(unit < SX_UNIT_COUNT);
    return name[unit];
}

/* ---- the table ---- */

/* Is it a name that adds to that of a row? */
static bool adds_tf32(sx_span name)
{
    size_t added = sizeof(SX_DEVICE_TF32) - 1;
    return name.len > added && memcmp(name.ptr + name.len - added, SX_DEVICE_TF32, added) == 0;
}

static sx_span without_tf32(sx_span name)
{
    return (sx_span){name.ptr, name.len - (adds_tf32(name) ? sizeof(SX_DEVICE_TF32) - 1 : 0)};
}

const sx_device *sx_device_row(sx_span name)
{
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        if (sx_span_is(without_tf32(name), sx_device_at(i)->name)) {
            return sx_device_at(i);
        }
    }
    return NULL;
}

/* Tensor cores take two elements of 16 bits in the place of one of tf32. */
static double tf32_rate(const sx_device *row)
{
    for (uint32_t i = 0; i < row->rate_count; i++) {
        if (row->rate[i].dtype == SX_BF16 && row->rate[i].unit == SX_UNIT_TENSOR) {
            return row->rate[i].flops_per_ns / 2;
        }
    }
    return 0;
}

/* The row with what the name adds to it. */
static sx_code find_tf32(sx_ctx *cx, sx_span name, const sx_device **device)
{
    const sx_device *row = sx_device_row(name);
    double rate = tf32_rate(row);
    if (rate == 0) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "target %s" SX_DEVICE_TF32 ": %s has no tensor cores, it multiplies f32 in "
                       "f32 alone",
                       row->name, row->name);
    }
    sx_device *made = SX_NEW(cx, sx_device);
    char *text = sx_alloc_text(cx, name);
    if (made == NULL || text == NULL) {
        return cx->error.code;
    }
    *made = *row;
    made->name = text;
    SX_ASSERT(made->rate_count < SX_RATES_MAX && name.len <= SX_DEVICE_NAME_MAX);
    made->rate[made->rate_count++] = (sx_rate){SX_F32, SX_UNIT_TENSOR, rate};
    *device = made;
    return SX_OK;
}

sx_code sx_device_find(sx_ctx *cx, sx_span name, const sx_device **device)
{
    char known[256];
    size_t used = 0;
    *device = sx_device_row(name);
    if (*device != NULL) {
        return adds_tf32(name) ? find_tf32(cx, name, device) : SX_OK;
    }
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        const char *text = sx_device_at(i)->name;
        size_t len = strlen(text);
        SX_ASSERT(used + len + 2 < sizeof(known));
        known[used] = ' ';
        memcpy(&known[used + 1], text, len + 1);
        used += len + 1;
    }
    int shown = name.len < SX_NAME_MAX ? (int)name.len : SX_NAME_MAX;
    return SX_FAIL(cx, SX_INPUT, "target '%.*s' is unknown; known are%s", shown,
                   name.ptr != NULL ? (const char *)name.ptr : "", known);
}

const sx_device *sx_device_class(const sx_device *device)
{
    const sx_device *row = NULL; /* with its target */
    SX_ASSERT(device != NULL);
    for (uint32_t i = 0; device->target != NULL && row == NULL && i < sx_device_count(); i++) {
        const char *target = sx_device_at(i)->target;
        row = target != NULL && strcmp(target, device->target) == 0 ? sx_device_at(i) : NULL;
    }
    for (uint32_t i = 0; row != NULL && i < sx_device_count(); i++) {
        const char *name = sx_device_at(i)->program_class;
        if (name != NULL && strcmp(name, row->program_class) == 0) {
            return sx_device_at(i);
        }
    }
    return device;
}

bool sx_device_allows_tf32(const sx_device *device)
{
    for (uint32_t i = 0; i < device->rate_count; i++) {
        if (device->rate[i].dtype == SX_F32 && device->rate[i].unit == SX_UNIT_TENSOR) {
            return true;
        }
    }
    return false;
}

/* ---- rates ---- */

/* The best rate of this very type; 0: none. */
static double rate_of(const sx_device *device, sx_dtype dtype, bool contraction)
{
    double best = 0;
    for (uint32_t i = 0; i < device->rate_count; i++) {
        const sx_rate *rate = &device->rate[i];
        bool bytes = rate->dtype == SX_I8 && dtype == SX_U8; /* no unit knows only one of them */
        bool fits =
            (rate->dtype == dtype || bytes) && (contraction || rate->unit == SX_UNIT_VECTOR);
        best = fits && rate->flops_per_ns > best ? rate->flops_per_ns : best;
    }
    return best;
}

uint32_t sx_device_lanes(const sx_device *device, uint32_t bytes)
{
    SX_ASSERT(bytes == 4 || bytes == 8);
    return device->block_threads != 0 ? device->lanes : device->lanes * 4 / bytes;
}

double sx_device_points(const sx_device *device)
{
    SX_ASSERT(device->cores > 0 && device->lanes > 0);
    uint32_t warps = device->core_threads / device->lanes; /* 0: cores have no threads */
    return (double)device->cores * (warps > 0 ? warps : 1);
}

/* The type in which lanes compute with elements of a narrow one. */
static sx_dtype widened(sx_dtype dtype)
{
    switch (dtype) {
    case SX_BF16:
    case SX_F16:
    case SX_F8E4M3:
    case SX_F8E5M2: return SX_F32;
    case SX_I16:
    case SX_I8:
    case SX_U8:
    case SX_BOOL: return SX_I32;
    default: return dtype;
    }
}

/* Of f32 on lanes: the product, not the rounded figure of a data sheet. */
static double lanes_rate(const sx_device *device)
{
    double peak = 2.0 * device->cores * device->lanes * device->fma_per_cycle * device->ghz;
    SX_ASSERT(peak > 0);
    return peak;
}

double sx_device_rate(const sx_device *device, sx_dtype dtype, bool contraction)
{
    double rate = rate_of(device, dtype, contraction);
    if (rate > 0 && dtype != SX_F32) {
        return rate;
    }
    dtype = widened(dtype);
    rate = rate_of(device, dtype, contraction);
    double lanes = lanes_rate(device);
    if (dtype == SX_F32) {
        return rate > lanes ? rate : lanes; /* a matrix unit may take f32 */
    }
    return rate > 0 ? rate : sx_dtype_bytes(dtype) > 4 ? lanes / 2 : lanes;
}

double sx_device_compute_ns(const sx_device *device, sx_dtype dtype, bool contraction, double flops)
{
    SX_ASSERT(flops >= 0);
    return flops / sx_device_rate(device, dtype, contraction);
}

double sx_device_slower(const sx_device *device, sx_dtype dtype)
{
    return dtype == SX_F32 ? 1 : lanes_rate(device) / sx_device_rate(device, dtype, false);
}

double sx_device_move_ns(const sx_device *device, double bytes)
{
    SX_ASSERT(device->memory_bytes_per_ns > 0);
    return bytes / device->memory_bytes_per_ns;
}

double sx_device_floor_ns(const sx_device *device, sx_dtype dtype, bool contraction, double flops,
                          double bytes)
{
    double compute = sx_device_compute_ns(device, dtype, contraction, flops);
    double move = sx_device_move_ns(device, bytes);
    return compute > move ? compute : move;
}

/* ---- blocks of threads ---- */

uint32_t sx_device_thread_registers(const sx_device *device, uint32_t threads)
{
    SX_ASSERT(device->block_threads > 0 && threads > 0);
    if (threads > device->block_threads) {
        return 0;
    }
    uint32_t each = device->register_file / threads / device->register_step * device->register_step;
    return each < device->registers ? each : device->registers;
}

uint32_t sx_device_resident_blocks(const sx_device *device, uint32_t threads, uint32_t registers,
                                   double shared_bytes)
{
    uint32_t step = device->register_step;
    SX_ASSERT(step > 0 && threads > 0);
    uint32_t taken = (registers + step - 1) / step * step * threads;
    if (threads > device->block_threads || registers > device->registers ||
        taken > device->register_file || shared_bytes > device->shared_block_bytes) {
        return 0;
    }
    uint32_t blocks = device->core_blocks;
    uint32_t by_threads = device->core_threads / threads;
    uint32_t by_registers = taken > 0 ? device->register_file / taken : blocks;
    double by_shared = shared_bytes > 0 ? device->shared_bytes / shared_bytes : (double)blocks;
    blocks = by_threads < blocks ? by_threads : blocks;
    blocks = by_registers < blocks ? by_registers : blocks;
    return by_shared < (double)blocks ? (uint32_t)by_shared : blocks;
}
