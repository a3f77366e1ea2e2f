#include "client/plot/svg.h"

#include <math.h>
#include <stdio.h>

static const char style[] = "<style>\n"
                            ".paper{fill:#ffffff}\n"
                            "text{fill:#1a1a1a;font-family:sans-serif;font-size:12px}\n"
                            ".axis{stroke:#1a1a1a;fill:none}\n"
                            ".grid{stroke:#dddddd;fill:none}\n"
                            ".roof{stroke:#8a5a00;stroke-width:1.5;fill:none}\n"
                            ".gap{stroke:#1f77b4;stroke-width:1;stroke-dasharray:2 3}\n"
                            ".point{fill:#1f77b4;fill-opacity:0.75;stroke:#ffffff}\n"
                            ".small{font-size:11px}\n"
                            ".title{font-size:15px}\n"
                            "@media (prefers-color-scheme: dark){\n"
                            ".paper{fill:#15181c}\n"
                            "text{fill:#e6e6e6}\n"
                            ".axis{stroke:#e6e6e6}\n"
                            ".grid{stroke:#333940}\n"
                            ".roof{stroke:#e0a030}\n"
                            ".gap{stroke:#6cb4ee}\n"
                            ".point{fill:#6cb4ee;stroke:#15181c}\n"
                            "}\n"
                            "</style>\n";

void sxc_svg_begin(uint32_t width, uint32_t height, sx_span title, sx_buf *out)
{
    SX_ASSERT(width > 0 && height > 0);
    sx_buf_print(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" width=\"%u\" "
                 "height=\"%u\" role=\"img\">\n<title>",
                 width, height, width, height);
    sxc_svg_put(out, title);
    sx_buf_put_text(out, "</title>\n");
    sx_buf_put_text(out, style);
    sx_buf_put_text(out, "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n");
}

void sxc_svg_end(sx_buf *out)
{
    sx_buf_put_text(out, "</svg>\n");
}

/* ---- text ---- */

/* Bytes of the UTF-8 character that `text` begins with, if XML allows it; 0: it does not. */
static size_t character(sx_span text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t lead = text.ptr[0];
    size_t size = lead < 0x80   ? 1
                  : lead < 0xC0 ? 0
                  : lead < 0xE0 ? 2
                  : lead < 0xF0 ? 3
                  : lead < 0xF8 ? 4
                                : 0;
    if (size <= 1) {
        return size == 1 && lead >= 32 && lead != 127 ? 1 : 0;
    }
    uint32_t value = lead & (0xFFu >> (size + 1));
    for (size_t i = 1; i < size; i++) {
        if (i >= text.len || (text.ptr[i] & 0xC0) != 0x80) {
            return 0;
        }
        value = value << 6 | (text.ptr[i] & 0x3Fu);
    }
    bool surrogate = value >= 0xD800 && value < 0xE000;
    bool control = value < 0xA0; /* C1 */
    return value < least[size] || value > 0x10FFFF || surrogate || control ||
                   (value & 0xFFFE) == 0xFFFE
               ? 0
               : size;
}

void sxc_svg_put(sx_buf *out, sx_span text)
{
    for (size_t i = 0; i < text.len;) {
        sx_span rest = {text.ptr + i, text.len - i};
        size_t size = character(rest);
        switch (size == 1 ? rest.ptr[0] : 0) {
        case '&': sx_buf_put_text(out, "&amp;"); break;
        case '<': sx_buf_put_text(out, "&lt;"); break;
        case '>': sx_buf_put_text(out, "&gt;"); break;
        case '"': sx_buf_put_text(out, "&quot;"); break;
        case '\'': sx_buf_put_text(out, "&#39;"); break;
        default:
            if (size > 0) {
                sx_buf_put(out, rest.ptr, size);
            } else {
                sx_buf_put_u8(out, '?');
            }
        }
        i += size > 0 ? size : 1;
    }
}

void sxc_svg_giga(double value, char text[32])
{
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
    uint32_t p = 3;
    while (value >= 999.5 && p + 1 < SX_COUNT(prefix)) {
        value /= 1000;
        p++;
    }
    while (value < 0.9995 && value > 0 && p > 0) {
        value *= 1000;
        p--;
    }
    (void)snprintf(text, 32, "%.3g %s", value, prefix[p]);
}

/* ---- axes ---- */

double sxc_svg_x(const sxc_frame *frame, double value)
{
    SX_ASSERT(value > 0 && frame->x_high > frame->x_low);
    double share = (log10(value) - frame->x_low) / (frame->x_high - frame->x_low);
    return frame->left + share * (frame->right - frame->left);
}

double sxc_svg_y(const sxc_frame *frame, double value)
{
    SX_ASSERT(value > 0 && frame->y_high > frame->y_low);
    double share = (log10(value) - frame->y_low) / (frame->y_high - frame->y_low);
    return frame->bottom - share * (frame->bottom - frame->top);
}

static void put_line(const char *class_, double x1, double y1, double x2, double y2, sx_buf *out)
{
    sx_buf_print(out, "<line class=\"%s\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n",
                 class_, x1, y1, x2, y2);
}

void sxc_svg_axes(const sxc_frame *frame, const char *x_title, const char *y_title, sx_buf *out)
{
    for (int e = frame->x_low; e <= frame->x_high; e++) {
        double x = sxc_svg_x(frame, pow(10, e));
        put_line(e == frame->x_low ? "axis" : "grid", x, frame->top, x, frame->bottom, out);
        sx_buf_print(out,
                     "<text class=\"small x\" x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\">%g"
                     "</text>\n",
                     x, frame->bottom + 16, pow(10, e));
    }
    for (int e = frame->y_low; e <= frame->y_high; e++) {
        double y = sxc_svg_y(frame, pow(10, e));
        char text[32];
        sxc_svg_giga(pow(10, e), text);
        put_line(e == frame->y_low ? "axis" : "grid", frame->left, y, frame->right, y, out);
        sx_buf_print(
            out, "<text class=\"small y\" x=\"%.2f\" y=\"%.2f\" text-anchor=\"end\">%s</text>\n",
            frame->left - 6, y + 4, text);
    }
    sx_buf_print(out, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\">%s</text>\n",
                 (frame->left + frame->right) / 2, frame->bottom + 36, x_title);
    sx_buf_print(out,
                 "<text transform=\"translate(18 %.2f) rotate(-90)\" text-anchor=\"middle\">%s"
                 "</text>\n",
                 (frame->top + frame->bottom) / 2, y_title);
}
