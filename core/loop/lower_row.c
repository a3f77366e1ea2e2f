#include "core/loop/lower.h"
sx_code sx_lower_row(sx_lower *l)
{
    return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "kernel %s: row kernel", l->kernel->name);
}
