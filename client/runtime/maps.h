/* maps.h - what the copy engine reads at the entries of a module, for those who execute it. */
#ifndef SX_CLIENT_RUNTIME_MAPS_H
#define SX_CLIENT_RUNTIME_MAPS_H
#include "client/cuda/cuda.h"
#include "core/target/machine.h"
#include "protocol/module.h"

/* Those of a part, for an interpreter. `number` as sxr_part_numbers gives it for the extents of the run. */
void sxr_maps_of(const sx_module *module, uint32_t part, const int64_t *number,
                 sx_machine_maps *maps);
/* One of them for the driver, of an argument that lies there. */
void sxr_map_at(const sx_module_map *map, const int64_t *number, uint64_t argument, sxg_map *at);
#endif
