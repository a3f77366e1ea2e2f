/* cmd_front.c - the Pareto front of estimated time and peak memory, as a table, as JSON, as a picture. */
#include "client/cli/cmd_module.h"
#include "client/cli/table.h"

sx_code sxc_front_text(sx_ctx *cx, const sx_module *module, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, cx, ">POINT|>TIME US|>PEAK BYTES|>ENERGY UJ");
    for (uint64_t i = 0; i < module->point_count; i++) {
        const sx_module_point *point = &module->point[i];
        sxc_table_put(&table, "%llu", (unsigned long long)i + 1);
        sxc_table_put(&table, "%.3f", point->time_ns / 1e3);
        sxc_table_put(&table, "%llu", (unsigned long long)point->peak_bytes);
        sxc_table_put(&table, "%.3f", point->energy_nj / 1e3);
    }
    return sxc_table_print(&table, out);
}

void sxc_json_front(sx_buf *json, const sx_module *module)
{
    if (module->point_count == 0) {
        return;
    }
    sxc_json_open(json, "points", '[');
    for (uint64_t i = 0; i < module->point_count; i++) {
        const sx_module_point *point = &module->point[i];
        sxc_json_open(json, NULL, '{');
        sxc_json_real(json, "estimate_ns", point->time_ns);
        sxc_json_int(json, "peak_bytes", (int64_t)point->peak_bytes);
        sxc_json_real(json, "energy_nj", point->energy_nj);
        sxc_json_text(json, "program", sx_module_string(module, point->program));
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
}

/* ---- the picture ---- */

#define WIDTH 640
#define HEIGHT 400
#define LEFT 90
#define BOTTOM 60
#define TOP 20
#define RIGHT 20

typedef struct {
    double low, high;
} range;

/* A tenth of room on both sides, nothing below zero. */
static range widen(range r)
{
    double room = r.high > r.low ? (r.high - r.low) / 10 : (r.high > 0 ? r.high / 10 : 1);
    return (range){r.low > room ? r.low - room : 0, r.high + room};
}

static double x_of(range r, double value)
{
    return LEFT + (value - r.low) / (r.high - r.low) * (WIDTH - LEFT - RIGHT);
}

static double y_of(range r, double value)
{
    return HEIGHT - BOTTOM - (value - r.low) / (r.high - r.low) * (HEIGHT - BOTTOM - TOP);
}

static void put_axes(range time, range memory, sx_buf *out)
{
    sx_buf_print(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                 "font-family=\"sans-serif\" font-size=\"12\">\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                 "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"black\"/>\n",
                 WIDTH, HEIGHT, LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (int i = 0; i <= 4; i++) {
        double t = time.low + (time.high - time.low) * i / 4;
        double m = memory.low + (memory.high - memory.low) * i / 4;
        sx_buf_print(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>\n",
                     x_of(time, t), HEIGHT - BOTTOM + 18, t / 1e3);
        sx_buf_print(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n", LEFT - 6,
                     y_of(memory, m) + 4, m / 1024);
    }
    sx_buf_print(out,
                 "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">estimated time, us</text>\n"
                 "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">"
                 "peak memory, KiB</text>\n",
                 (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, (TOP + HEIGHT - BOTTOM) / 2);
}

void sxc_front_svg(const sx_module *module, sx_buf *out)
{
    if (module->point_count == 0) {
        return;
    }
    const sx_module_point *first = &module->point[0];
    range time = {first->time_ns, first->time_ns};
    range memory = {(double)first->peak_bytes, (double)first->peak_bytes};
    for (uint64_t i = 1; i < module->point_count; i++) {
        double t = module->point[i].time_ns;
        double m = (double)module->point[i].peak_bytes;
        time = (range){t < time.low ? t : time.low, t > time.high ? t : time.high};
        memory = (range){m < memory.low ? m : memory.low, m > memory.high ? m : memory.high};
    }
    time = widen(time);
    memory = widen(memory);
    put_axes(time, memory, out);
    sx_buf_put_text(out, "<path fill=\"none\" stroke=\"#1f77b4\" d=\"");
    for (uint64_t i = 0; i < module->point_count; i++) { /* what is reached is a staircase */
        double x = x_of(time, module->point[i].time_ns);
        double y = y_of(memory, (double)module->point[i].peak_bytes);
        sx_buf_print(out, i == 0 ? "M%.1f %.1f" : "H%.1fV%.1f", x, y);
    }
    sx_buf_put_text(out, "\"/>\n");
    for (uint64_t i = 0; i < module->point_count; i++) {
        const sx_module_point *point = &module->point[i];
        double x = x_of(time, point->time_ns);
        double y = y_of(memory, (double)point->peak_bytes);
        sx_buf_print(out,
                     "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#1f77b4\"><title>%llu: %.3f "
                     "us, %llu bytes, %.3f uJ</title></circle>\n",
                     x, y, (unsigned long long)i + 1, point->time_ns / 1e3,
                     (unsigned long long)point->peak_bytes, point->energy_nj / 1e3);
    }
    sx_buf_put_text(out, "</svg>\n");
}
