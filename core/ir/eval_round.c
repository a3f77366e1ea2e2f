#include <math.h>

#include "core/ir/eval.h"
#include "core/ir/num.h"

static double largest(sx_dtype dtype)
{
    return dtype == SX_F8E4M3 ? 448 : 57344;
}

double sx_round(sx_dtype dtype, double value)
{
    if (dtype == SX_F64) {
        return value;
    }
    if (dtype == SX_F32) {
        return (double)(float)value;
    }
    double rounded = sx_num_round(dtype, value);
    bool saturates = dtype == SX_F8E4M3 || dtype == SX_F8E5M2;
    if (saturates && !isnan(value) && !isfinite(rounded)) {
        return copysign(largest(dtype), value);
    }
    return rounded;
}
