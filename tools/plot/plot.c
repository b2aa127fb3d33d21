/* See plot.h. */
#include "tools/plot/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define INK "#333"
#define GRID "#e4e4e4"
/* Vertical guides nearer than this would write over each other: a text to the
 * right of the left one and one to the left of the other. */
#define GUIDE_TEXT_WIDTH 170

struct plot {
    FILE *file;
};

static void put_text(struct plot *plot, double x, double y, const char *anchor,
                     const char *style, const char *text)
{
    fprintf(plot->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>", x,
            y, anchor, style);
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", plot->file);
            break;
        case '>':
            fputs("&gt;", plot->file);
            break;
        case '&':
            fputs("&amp;", plot->file);
            break;
        default:
            fputc(*text, plot->file);
        }
    }
    fputs("</text>\n", plot->file);
}

static void put_line(struct plot *plot, double x1, double y1, double x2,
                     double y2, const char *colour, const char *more)
{
    fprintf(plot->file,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
            "stroke=\"%s\" %s/>\n",
            x1, y1, x2, y2, colour, more);
}

int plot_open(const char *path, int width, int height, const char *title,
              struct plot **plot)
{
    struct plot *p = calloc(1, sizeof *p);

    if (!p)
        return -ENOMEM;
    p->file = fopen(path, "w");
    if (!p->file) {
        int rc = -errno;

        free(p);
        return rc;
    }
    fprintf(p->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
            "font-size=\"12\" fill=\"" INK "\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
    put_text(p, 20, 28, "start", "font-size=\"16\" font-weight=\"bold\"",
             title);
    *plot = p;
    return 0;
}

int plot_close(struct plot *plot)
{
    fputs("</svg>\n", plot->file);
    bool failed = ferror(plot->file) != 0;
    failed = fclose(plot->file) != 0 || failed;
    free(plot);
    return failed ? -EIO : 0;
}

/* 1, 2 or 5 times a power of ten: the step for about `count` ticks. */
static double nice_step(double range, int count)
{
    double raw = range / count;
    double power = pow(10, floor(log10(raw)));
    double digit = raw / power;

    return (digit > 5 ? 10 : digit > 2 ? 5 : digit > 1 ? 2 : 1) * power;
}

static const int log_digits[] = {1, 2, 5, 10};

static double log_below(double x)
{
    double power = pow(10, floor(log10(x)));
    int i = 3;

    while (i > 0 && log_digits[i] * power > x * (1 + 1e-9))
        i--;
    return log_digits[i] * power;
}

void plot_nice_range(double *min, double *max, bool log)
{
    if (log) {
        *min = log_below(*min);
        double low = log_below(*max);
        int i = 0;
        double power = pow(10, floor(log10(low) + 1e-9));
        while (i < 3 && log_digits[i] * power < *max * (1 - 1e-9))
            i++;
        *max = log_digits[i] * power;
        if (*max <= *min)
            *max = *min * 10;
        return;
    }
    if (*max <= *min)
        *max = *min + 1;
    double step = nice_step(*max - *min, 6);
    *min = floor(*min / step + 1e-9) * step;
    *max = ceil(*max / step - 1e-9) * step;
}

static double share(double value, double min, double max, bool log)
{
    return log ? (log10(value) - log10(min)) / (log10(max) - log10(min))
               : (value - min) / (max - min);
}

static double at_x(const struct plot_panel *p, double x)
{
    return p->left + p->width * share(x, p->x_min, p->x_max, p->x_log);
}

static double at_y(const struct plot_panel *p, double y)
{
    return p->top + p->height * (1 - share(y, p->y_min, p->y_max, p->y_log));
}

static void tick(struct plot *plot, const struct plot_panel *p, double value,
                 bool vertical, bool labelled)
{
    char text[32];

    snprintf(text, sizeof text, "%g", value);
    if (vertical) {
        double x = at_x(p, value);

        put_line(plot, x, p->top, x, p->top + p->height, GRID, "");
        if (labelled)
            put_text(plot, x, p->top + p->height + 18, "middle", "", text);
    } else {
        double y = at_y(p, value);

        put_line(plot, p->left, y, p->left + p->width, y, GRID, "");
        if (labelled)
            put_text(plot, p->left - 8, y + 4, "end", "", text);
    }
}

static void linear_ticks(struct plot *plot, const struct plot_panel *p,
                         bool vertical)
{
    double min = vertical ? p->x_min : p->y_min;
    double max = vertical ? p->x_max : p->y_max;
    double step = nice_step(max - min, vertical ? 6 : 8);
    long first = lround(ceil(min / step - 1e-9));
    long last = lround(floor(max / step + 1e-9));

    for (long i = first; i <= last; i++)
        tick(plot, p, (double)i * step, vertical, true);
}

static void log_ticks(struct plot *plot, const struct plot_panel *p,
                      bool vertical)
{
    double min = vertical ? p->x_min : p->y_min;
    double max = vertical ? p->x_max : p->y_max;
    bool wide = log10(max / min) > 3.5; /* then only powers of ten get text */
    int low = (int)floor(log10(min) + 1e-9);
    int high = (int)ceil(log10(max) - 1e-9);

    for (int e = low; e <= high; e++) {
        for (size_t d = 0; d < 3; d++) {
            double value = log_digits[d] * pow(10, e);

            if (value >= min * (1 - 1e-9) && value <= max * (1 + 1e-9))
                tick(plot, p, value, vertical, d == 0 || !wide);
        }
    }
}

static void put_rect(struct plot *plot, const struct plot_panel *p)
{
    fprintf(plot->file,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "fill=\"none\" stroke=\"" INK "\"/>\n",
            p->left, p->top, p->width, p->height);
}

void plot_title(struct plot *plot, const struct plot_panel *p)
{
    if (p->title[0] != '\0') {
        put_text(plot, p->left, p->top - 10, "start", "font-weight=\"bold\"",
                 p->title);
    }
}

static void put_frame(struct plot *plot, const struct plot_panel *p)
{
    put_rect(plot, p);
    plot_title(plot, p);
    put_text(plot, p->left + p->width / 2, p->top + p->height + 40, "middle",
             "", p->x_label);
    char turned[96];
    snprintf(turned, sizeof turned, "transform=\"rotate(-90 %.1f %.1f)\"",
             p->left - 48, p->top + p->height / 2);
    put_text(plot, p->left - 48, p->top + p->height / 2, "middle", turned,
             p->y_label);
}

void plot_axes(struct plot *plot, const struct plot_panel *p)
{
    (p->x_log ? log_ticks : linear_ticks)(plot, p, true);
    (p->y_log ? log_ticks : linear_ticks)(plot, p, false);
    put_frame(plot, p);
}

void plot_axes_named(struct plot *plot, const struct plot_panel *p,
                     const char *const *names, size_t count)
{
    (p->y_log ? log_ticks : linear_ticks)(plot, p, false);
    for (size_t i = 0; i < count; i++) {
        put_text(plot, at_x(p, (double)i + 0.5), p->top + p->height + 18,
                 "middle", "", names[i]);
    }
    put_frame(plot, p);
}

static void put_mark(struct plot *plot, double x, double y, enum plot_mark mark,
                     const char *colour)
{
    if (mark == PLOT_DOT) {
        fprintf(plot->file,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\" "
                "fill-opacity=\"0.6\"/>\n",
                x, y, colour);
    } else {
        fprintf(plot->file,
                "<path d=\"M%.1f %.1fl6 6m0 -6l-6 6\" stroke=\"%s\" "
                "stroke-width=\"1.5\"/>\n",
                x - 3, y - 3, colour);
    }
}

void plot_points(struct plot *plot, const struct plot_panel *p, const double *x,
                 const double *y, size_t count, enum plot_mark mark,
                 const char *colour)
{
    for (size_t i = 0; i < count; i++)
        if (x[i] >= p->x_min && x[i] <= p->x_max && y[i] >= p->y_min &&
            y[i] <= p->y_max)
            put_mark(plot, at_x(p, x[i]), at_y(p, y[i]), mark, colour);
}

static double clamp(double value, double min, double max)
{
    return value < min ? min : value > max ? max : value;
}

void plot_line(struct plot *plot, const struct plot_panel *p, const double *x,
               const double *y, size_t count, bool step, const char *colour)
{
    fprintf(plot->file,
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" "
            "points=\"",
            colour);
    double last = 0;
    for (size_t i = 0; i < count; i++) {
        double px = at_x(p, clamp(x[i], p->x_min, p->x_max));
        double py = at_y(p, clamp(y[i], p->y_min, p->y_max));

        if (step && i > 0)
            fprintf(plot->file, "%.1f,%.1f ", px, last);
        fprintf(plot->file, "%.1f,%.1f ", px, py);
        last = py;
    }
    fputs("\"/>\n", plot->file);
}

void plot_lane(struct plot *plot, const struct plot_panel *p, const double *x,
               size_t count, const char *colour)
{
    put_rect(plot, p);
    for (size_t i = 0; i < count; i++) {
        if (x[i] >= p->x_min && x[i] <= p->x_max) {
            put_mark(plot, at_x(p, x[i]), p->top + p->height / 2, PLOT_CROSS,
                     colour);
        }
    }
    put_text(plot, p->left - 8, p->top + p->height / 2 + 4, "end",
             "font-size=\"11\"", p->title);
}

/* A guide with its text, if vertical, `lift` pixels above the lowest place. */
static void put_guide(struct plot *plot, const struct plot_panel *p,
                      double value, bool vertical, double lift,
                      const char *text, const char *colour)
{
    double min = vertical ? p->x_min : p->y_min;
    double max = vertical ? p->x_max : p->y_max;

    if (!(value >= min && value <= max))
        return;
    char style[64];
    snprintf(style, sizeof style, "font-size=\"11\" fill=\"%s\"", colour);
    if (vertical) {
        double x = at_x(p, value);

        put_line(plot, x, p->top, x, p->top + p->height, colour,
                 "stroke-dasharray=\"4 3\"");
        bool right = x > p->left + 0.8 * p->width;
        put_text(plot, right ? x - 4 : x + 4, p->top + p->height - 8 - lift,
                 right ? "end" : "start", style, text);
    } else {
        double y = at_y(p, value);

        put_line(plot, p->left, y, p->left + p->width, y, colour,
                 "stroke-dasharray=\"4 3\"");
        put_text(plot, p->left + p->width - 4, y - 4, "end", style, text);
    }
}

void plot_guide(struct plot *plot, const struct plot_panel *p, double value,
                bool vertical, const char *text, const char *colour)
{
    put_guide(plot, p, value, vertical, 0, text, colour);
}

void plot_guide_above(struct plot *plot, const struct plot_panel *p,
                      double value, double below, const char *text,
                      const char *colour)
{
    bool near = fabs(at_x(p, value) - at_x(p, below)) < GUIDE_TEXT_WIDTH;

    put_guide(plot, p, value, true, near ? 14 : 0, text, colour);
}

const char *plot_colour(size_t i)
{
    static const char *const colours[] = {"#1f6fb4", "#c8372d", "#2f9147",
                                          "#e08a1e", "#7a4fb0", "#4a4a4a",
                                          "#16a3ad", "#c25a9c"};

    return colours[i % (sizeof colours / sizeof colours[0])];
}

void plot_key(struct plot *plot, const struct plot_panel *p,
              enum plot_corner corner, size_t i, size_t count, const char *text,
              const char *colour)
{
    bool left = corner == PLOT_TOP_LEFT || corner == PLOT_BOTTOM_LEFT;
    bool top = corner == PLOT_TOP_LEFT || corner == PLOT_TOP_RIGHT;
    double line = 16;
    double x = left ? p->left + 10 : p->left + p->width - 10;
    double y = top ? p->top + 18 + line * (double)i
                   : p->top + p->height - 10 - line * (double)(count - 1 - i);
    double in = left ? 1 : -1;

    put_line(plot, x, y - 4, x + in * 18, y - 4, colour, "stroke-width=\"3\"");
    put_text(plot, x + in * 24, y, in > 0 ? "start" : "end", "font-size=\"11\"",
             text);
}

void plot_bar(struct plot *plot, const struct plot_panel *p, double x,
              double width, double y, const char *text, const char *colour)
{
    double left = at_x(p, x - width / 2);
    double top = at_y(p, clamp(y, p->y_min, p->y_max));

    fprintf(plot->file,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "fill=\"%s\"/>\n",
            left, top, at_x(p, x + width / 2) - left, p->top + p->height - top,
            colour);
    if (text)
        put_text(plot, at_x(p, x), top - 4, "middle", "font-size=\"10\"", text);
}
