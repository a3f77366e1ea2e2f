/* unit.h - the vectors of the target with so many lanes, for tests that lower by themselves. */
#ifndef SX_TESTS_LIB_UNIT_H
#define SX_TESTS_LIB_UNIT_H
#include "core/target/target.h"

/* Of so many lanes of 4 bytes; where no target has as many, the vectors of the first one. */
SX_UNUSED static const sx_vector_unit *sx_test_unit_of(uint32_t lanes)
{
    const sx_targets *all = sx_targets_all();
    const sx_vector_unit *unit = &all->row[0]->vectors;
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
