#include "client/plot/roofline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/plot/svg.h"

#define WIDTH 900u
#define CHART_HEIGHT 520.0
#define ROW_HEIGHT 18.0
#define LISTED 10u
#define NAME_BYTES 64u

/* ---- roofs ---- */

static bool same_rate(double a, double b)
{
    return fabs(a - b) <= 0.005 * b;
}

/* "bf16 f16 tensor, f64 vector": what has the rate, by unit. */
static void name_roof(const sx_device *device, sxc_roof *roof)
{
    double f32 = sx_device_rate(device, SX_F32, false);
    size_t used = 0;
    roof->text[0] = '\0';
    for (uint32_t unit = 0; unit < SX_UNIT_COUNT; unit++) {
        bool any = false;
        for (uint32_t i = 0; i <= device->rate_count; i++) {
            bool lanes =
                i == device->rate_count; /* f32 on lanes, which follows from the other values */
            sx_dtype dtype = lanes ? SX_F32 : device->rate[i].dtype;
            sx_unit own = lanes ? SX_UNIT_VECTOR : device->rate[i].unit;
            double rate = lanes ? f32 : device->rate[i].flops_per_ns;
            if (own != (sx_unit)unit || !same_rate(rate, roof->flops_per_ns) ||
                used + 24 >= sizeof(roof->text)) {
                continue;
            }
            used += (size_t)snprintf(roof->text + used, sizeof(roof->text) - used, "%s%s",
                                     any        ? " "
                                     : used > 0 ? ", "
                                                : "",
                                     sx_dtype_name(dtype));
            any = true;
        }
        if (any && used + 16 < sizeof(roof->text)) {
            used += (size_t)snprintf(roof->text + used, sizeof(roof->text) - used, " %s",
                                     sx_unit_name((sx_unit)unit));
        }
    }
    SX_ASSERT(used < sizeof(roof->text));
}

uint32_t sxc_roofs_of(const sx_device *device, sxc_roof *roof)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i <= device->rate_count; i++) {
        double rate = i == device->rate_count ? sx_device_rate(device, SX_F32, false)
                                              : device->rate[i].flops_per_ns;
        bool known = false;
        for (uint32_t k = 0; k < count; k++) {
            known = known || same_rate(rate, roof[k].flops_per_ns);
        }
        uint32_t at = known ? 0 : count++;
        for (; !known && at > 0 && roof[at - 1].flops_per_ns < rate; at--) {
            roof[at] = roof[at - 1];
        }
        if (!known) {
            roof[at].flops_per_ns = rate;
        }
    }
    for (uint32_t k = 0; k < count; k++) {
        name_roof(device, &roof[k]);
    }
    SX_ASSERT(count >= 1 && count <= SX_RATES_MAX + 1);
    return count;
}

double sxc_roof_total_ns(const sxc_roofline *r)
{
    double total = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        total += r->point[i].ns * r->point[i].launches;
    }
    return total;
}

/* ---- the frame ---- */

typedef struct {
    double low, high;
} range;

static void widen(range *r, double value)
{
    r->low = value < r->low ? value : r->low;
    r->high = value > r->high ? value : r->high;
}

/* Decades that hold the range, at least three. */
static void decades(range r, int *low, int *high)
{
    *low = (int)floor(log10(r.low));
    *high = (int)ceil(log10(r.high * 1.2));
    while (*high - *low < 3) {
        (*low)--;
    }
}

static sxc_frame make_frame(const sxc_roofline *r, const sxc_roof *roof, uint32_t roof_count)
{
    double bandwidth = r->device->memory_bytes_per_ns;
    range x = {roof[roof_count - 1].flops_per_ns / bandwidth, roof[0].flops_per_ns / bandwidth};
    x.high *= 4; /* room for the names of roofs */
    range y = {roof[roof_count - 1].flops_per_ns, roof[0].flops_per_ns};
    for (uint32_t i = 0; i < r->count; i++) {
        const sxc_roof_point *p = &r->point[i];
        if (sxc_roof_shown(p)) {
            widen(&x, p->flops / p->bytes);
            widen(&y, p->flops / p->ns);
        }
    }
    sxc_frame frame = {.left = 80, .right = WIDTH - 30, .top = 50, .bottom = CHART_HEIGHT - 60};
    decades(x, &frame.x_low, &frame.x_high);
    decades(y, &frame.y_low, &frame.y_high);
    return frame;
}

/* ---- lines ---- */

static void put_memory(const sxc_frame *frame, double bandwidth, double peak, sx_buf *out)
{
    double x_low = pow(10, frame->x_low), y_low = pow(10, frame->y_low);
    double from = bandwidth * x_low > y_low ? x_low : y_low / bandwidth;
    double to = peak / bandwidth;
    double x1 = sxc_svg_x(frame, from), y1 = sxc_svg_y(frame, from * bandwidth);
    double x2 = sxc_svg_x(frame, to), y2 = sxc_svg_y(frame, peak);
    double turn = atan2(y2 - y1, x2 - x1) * 180 / 3.14159265358979323846;
    sx_buf_print(out,
                 "<line class=\"roof memory\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n"
                 "<text class=\"small\" transform=\"translate(%.2f %.2f) rotate(%.2f)\">memory "
                 "%.4g GB/s</text>\n",
                 x1, y1, x2, y2, x1 + (x2 - x1) * 0.08 - 4, y1 + (y2 - y1) * 0.08 - 6, turn,
                 bandwidth);
}

static void put_roofs(const sxc_frame *frame, double bandwidth, const sxc_roof *roof,
                      uint32_t roof_count, sx_buf *out)
{
    double last = -100;
    for (uint32_t k = 0; k < roof_count; k++) {
        char rate[32];
        double y = sxc_svg_y(frame, roof[k].flops_per_ns);
        double at = y - 4 > last + 12 ? y - 4 : last + 12; /* labels do not cover each other */
        last = at;
        sxc_svg_giga(roof[k].flops_per_ns, rate);
        sx_buf_print(out,
                     "<line class=\"roof peak\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" "
                     "y2=\"%.2f\"><title>%s: %sFLOP/s</title></line>\n"
                     "<text class=\"small\" x=\"%.2f\" y=\"%.2f\" text-anchor=\"end\">%s %sFLOP/s"
                     "</text>\n",
                     sxc_svg_x(frame, roof[k].flops_per_ns / bandwidth), y, frame->right, y,
                     roof[k].text, rate, frame->right - 4, at, roof[k].text, rate);
    }
}

/* ---- points ---- */

static double radius(double share)
{
    return 3.5 + 14 * sqrt(share);
}

/* "12 %" of what the device allows, or nothing where that is not known. */
static void put_of_roof(const sxc_roof_point *p, sx_buf *out)
{
    if (p->roof_ns > 0) {
        sx_buf_print(out, ", %.0f %% of its roof", 100 * p->roof_ns / p->ns);
    }
}

static void put_point(const sxc_frame *frame, const sxc_roof_point *p, double total,
                      uint32_t number, sx_buf *out)
{
    char rate[32];
    double share = p->ns * p->launches / total;
    double x = sxc_svg_x(frame, p->flops / p->bytes);
    double y = sxc_svg_y(frame, p->flops / p->ns);
    sxc_svg_giga(p->flops / p->ns, rate);
    if (p->roof_ns > 0 && p->roof_ns < p->ns) {
        sx_buf_print(out, "<line class=\"gap\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n",
                     x, y, x, sxc_svg_y(frame, p->flops / p->roof_ns));
    }
    sx_buf_print(out, "<circle class=\"point\" cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\"><title>", x, y,
                 radius(share));
    sxc_svg_put(out, p->name);
    sx_buf_put_text(out, " (");
    sxc_svg_put(out, p->kind);
    sx_buf_put_text(out, p->layer.len > 0 ? ") of " : ")");
    sxc_svg_put(out, p->layer);
    sx_buf_print(out, ": %.3f us, %u launch%s, %.1f %% of the time, %.4g FLOP/byte, %sFLOP/s",
                 p->ns / 1e3, p->launches, p->launches == 1 ? "" : "es", 100 * share,
                 p->flops / p->bytes, rate);
    put_of_roof(p, out);
    sx_buf_put_text(out, "</title></circle>\n");
    if (number > 0) {
        sx_buf_print(out, "<text class=\"small\" x=\"%.2f\" y=\"%.2f\">%u</text>\n",
                     x + radius(share) + 2, y + 4, number);
    }
}

/* ---- the list below ---- */

static void put_cut(sx_span text, sx_buf *out)
{
    size_t size = text.len;
    if (size > NAME_BYTES) {
        size = NAME_BYTES;
        while (size > 0 && (text.ptr[size] & 0xC0) == 0x80) {
            size--; /* not inside a character */
        }
    }
    sxc_svg_put(out, (sx_span){text.ptr, size});
    sx_buf_put_text(out, size < text.len ? "..." : "");
}

static void put_row(const sxc_roof_point *p, double total, uint32_t number, double y, sx_buf *out)
{
    char rate[32];
    sxc_svg_giga(p->flops / p->ns, rate);
    sx_buf_print(out,
                 "<text class=\"small\" x=\"%u\" y=\"%.2f\" text-anchor=\"end\">%u</text>"
                 "<text class=\"small\" x=\"%u\" y=\"%.2f\" text-anchor=\"end\">%.1f %%</text>"
                 "<text class=\"small\" x=\"%u\" y=\"%.2f\">%sFLOP/s",
                 40u, y, number, 100u, y, 100 * p->ns * p->launches / total, 120u, y, rate);
    put_of_roof(p, out);
    sx_buf_print(out, "</text><text class=\"small\" x=\"%u\" y=\"%.2f\">", 360u, y);
    sxc_svg_put(out, p->kind);
    sx_buf_put_u8(out, ' ');
    put_cut(p->layer.len > 0 ? p->layer : p->name, out);
    sx_buf_put_text(out, "</text>\n");
}

static void put_legend(const sxc_roofline *r, double total, double y, sx_buf *out)
{
    static const double share[] = {0.01, 0.1, 0.5};
    double x = 360;
    sx_buf_print(
        out, "<text class=\"small\" x=\"80\" y=\"%.2f\">%s, share of the time by size:</text>\n", y,
        r->measured ? "measured times" : "estimated times");
    for (uint32_t k = 0; k < SX_COUNT(share); k++) {
        sx_buf_print(out,
                     "<circle class=\"point legend\" cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\"/>"
                     "<text class=\"small\" x=\"%.2f\" y=\"%.2f\">%.0f %%</text>\n",
                     x, y - 4, radius(share[k]), x + radius(share[k]) + 4, y, 100 * share[k]);
        x += 80;
    }
    double hidden = 0;
    uint32_t hidden_count = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!sxc_roof_shown(&r->point[i])) {
            hidden += r->point[i].ns * r->point[i].launches;
            hidden_count++;
        }
    }
    if (hidden_count > 0) {
        sx_buf_print(out,
                     "<text class=\"small\" x=\"%.2f\" y=\"%.2f\">%u kernel%s without arithmetic: "
                     "%.1f %% of the time</text>\n",
                     x + 10, y, hidden_count, hidden_count == 1 ? "" : "s", 100 * hidden / total);
    }
}

void sxc_roofline_svg(const sxc_roofline *r, sx_buf *out)
{
    sxc_roof roof[SX_RATES_MAX + 1];
    double bandwidth = r->device->memory_bytes_per_ns, total = sxc_roof_total_ns(r);
    uint32_t roof_count = sxc_roofs_of(r->device, roof);
    uint32_t shown = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        shown += sxc_roof_shown(&r->point[i]) ? 1 : 0;
    }
    SX_ASSERT(shown > 0 && total > 0 && bandwidth > 0);
    uint32_t listed = shown < LISTED ? shown : LISTED;
    sxc_frame frame = make_frame(r, roof, roof_count);
    sxc_svg_begin(WIDTH, (uint32_t)(CHART_HEIGHT + 40 + ROW_HEIGHT * listed), r->title, out);
    sx_buf_put_text(out, "<text class=\"title\" x=\"80\" y=\"28\">");
    put_cut(r->title, out);
    sx_buf_put_text(out, "</text>\n");
    sxc_svg_axes(&frame, "arithmetic intensity, FLOP/byte", "rate, FLOP/s", out);
    put_memory(&frame, bandwidth, roof[0].flops_per_ns, out);
    put_roofs(&frame, bandwidth, roof, roof_count, out);
    for (uint32_t i = 0, number = 0; i < r->count; i++) {
        if (sxc_roof_shown(&r->point[i])) {
            number++;
            put_point(&frame, &r->point[i], total, number <= listed ? number : 0, out);
        }
    }
    put_legend(r, total, CHART_HEIGHT + 4, out);
    for (uint32_t i = 0, number = 0; i < r->count && number < listed; i++) {
        if (sxc_roof_shown(&r->point[i])) {
            number++;
            put_row(&r->point[i], total, number, CHART_HEIGHT + 16 + ROW_HEIGHT * number, out);
        }
    }
    sxc_svg_end(out);
}
