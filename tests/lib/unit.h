/* unit.h - the vectors of the target with so many lanes, for tests that lower by themselves, and a machine of 32
 * lanes, which are threads, for those that need no more of one than this. */
#ifndef SX_TESTS_LIB_UNIT_H
#define SX_TESTS_LIB_UNIT_H
#include "core/cost/device.h"
#include "core/target/target.h"

/* Of a warp: IEEE instructions, so the bits and the numerics plans of x86-64. */
static const sx_vector_unit sx_test_warp = {
    .lanes = 32, .threads = true, .registers = 255, .mask_registers = true, .numerics = "ieee-fma"};
/* What it costs: a GPU of the table, with the name of a target. */
SX_UNUSED static sx_device sx_test_warp_device(sx_ctx *cx)
{
    const sx_device *row;
    SX_ASSERT(sx_device_find(cx, SX_SPAN_LITERAL("h100"), &row) == SX_OK);
    sx_device device = *row;
    device.target = "warp";
    device.program_class = NULL;
    return device;
}

/* Of so many lanes of 4 bytes; where no target has as many, the vectors of the first one. */
SX_UNUSED static const sx_vector_unit *sx_test_unit_of(uint32_t lanes)
{
    const sx_targets *all = sx_targets_all();
    const sx_vector_unit *unit = lanes == 32 ? &sx_test_warp : &all->row[0]->vectors;
    for (uint32_t i = 0; i < all->count; i++) {
        bool fits = all->row[i]->vectors.lanes == lanes;
        unit = fits ? &all->row[i]->vectors : unit;
    }
    return unit;
}

/* For a kernel with lanes of 4 bytes. */
SX_UNUSED static const sx_vector_unit *sx_test_unit(const sx_schedule *schedule)
{
    return sx_test_unit_of(sx_schedule_lanes(schedule));
}
#endif
