/* svg.h - pictures as SVG text: a page that is readable on light and dark paper, text from anywhere, logarithmic axes.
 *
 * A picture stands alone: no scripts, no fonts or styles fetched. Names of the user's may hold any bytes; what XML does
 * not allow is printed as "?".
 */
#ifndef SX_CLIENT_PLOT_SVG_H
#define SX_CLIENT_PLOT_SVG_H
#include "core/base/base.h"
#include "core/base/buf.h"

/* Where the axes stand, in pixels from the left and upper edge of the page, and the decades that they show: powers of
 * ten from 10^x_low to 10^x_high. */
typedef struct {
    double left, right, top, bottom;
    int x_low, x_high, y_low, y_high;
} sxc_frame;

void sxc_svg_begin(uint32_t width, uint32_t height, sx_span title, sx_buf *out);
void sxc_svg_end(sx_buf *out);
/* Text between tags or quotes, escaped, as UTF-8. */
void sxc_svg_put(sx_buf *out, sx_span text);
/* Lines and labels at each decade; values of the y axis are counted in units of 10^9. */
void sxc_svg_axes(const sxc_frame *frame, const char *x_title, const char *y_title, sx_buf *out);
/* The pixel of a value above 0. */
double sxc_svg_x(const sxc_frame *frame, double value);
double sxc_svg_y(const sxc_frame *frame, double value);
/* "989 T": three digits and the prefix of a value that is counted in units of 10^9. */
void sxc_svg_giga(double value, char text[32]);
#endif
