/* unit.h - the vectors of the target with so many lanes, for tests that lower by themselves. */
#ifndef SX_TESTS_LIB_UNIT_H
#define SX_TESTS_LIB_UNIT_H
#include "core/target/target.h"

/* Of a schedule that no target takes: the vectors of the first target. */
SX_UNUSED static const sx_vector_unit *sx_test_unit(const sx_schedule *schedule)
{
    const sx_targets *all = sx_targets_all();
    const sx_vector_unit *unit = &all->row[0]->vectors;
    for (uint32_t i = 0; i < all->count; i++) {
        bool fits = all->row[i]->vectors.lanes == sx_schedule_lanes(schedule);
        unit = fits ? &all->row[i]->vectors : unit;
    }
    return unit;
}
#endif
