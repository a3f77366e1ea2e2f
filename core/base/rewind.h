/* rewind.h - memory on the way: an arena that is emptied many times keeps its last block, so that the same memory
 * serves again instead of going back to the system.
 */
#ifndef SX_CORE_BASE_REWIND_H
#define SX_CORE_BASE_REWIND_H
#include "core/base/base.h"

/* Empties the arena, which has no arrays that grow in place. */
void sx_arena_rewind(sx_arena *arena);
#endif
