/* roofline.h - the kernels of a module under the roofs of a device.
 *
 * Across: operations for each byte that a kernel has to move (arithmetic intensity). Up: operations a second. What the
 * memory passes is a slope, what each unit computes a level; a kernel stands below both. The size of a point is its
 * share of the time.
 * Paper: Williams, Waterman, Patterson 2009.
 */
#ifndef SX_CLIENT_PLOT_ROOFLINE_H
#define SX_CLIENT_PLOT_ROOFLINE_H
#include "core/cost/device.h"

typedef struct {
    sx_span name, kind, layer; /* layer: empty where it is not known */
    /* Of one launch. Both are 0 or more; without operations or bytes the kernel has no place in the picture. */
    double flops, bytes;
    double ns;      /* above 0 */
    double roof_ns; /* what the device allows at best; 0: not known */
    uint32_t launches;
} sxc_roof_point;

/* One level: all that the device computes at this rate. */
typedef struct {
    double flops_per_ns;
    char text[120]; /* "bf16 f16 tensor" */
} sxc_roof;

typedef struct {
    sx_span title;
    const sx_device *device;
    bool measured; /* the times are of a run, not estimates */
    const sxc_roof_point *point;
    uint32_t count;
} sxc_roofline;

/* The levels of a device, highest first; `roof` has room for SX_RATES_MAX + 1. Returns how many there are. */
uint32_t sxc_roofs_of(const sx_device *device, sxc_roof *roof);
/* Can the kernel be shown? */
static inline bool sxc_roof_shown(const sxc_roof_point *point)
{
    return point->flops > 0 && point->bytes > 0;
}
/* The time of all launches of all kernels. */
double sxc_roof_total_ns(const sxc_roofline *roofline);
/* The picture. Points are shown in their order, the first ones with a number and a line in the list below.
 *   shape    at least one kernel can be shown */
void sxc_roofline_svg(const sxc_roofline *roofline, sx_buf *out);
#endif
