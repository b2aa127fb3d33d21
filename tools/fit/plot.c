/* Draws predicted against measured times as an SVG. See plot.h. */
#include "tools/fit/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PANEL 360.0 /* side of a panel, in pixels */
#define LEFT 80.0
#define TOP 84.0
#define GAP 100.0

/* A panel's place and the powers of ten that its two axes span. */
struct panel {
    FILE *file;
    double left;
    double low;
    double high;
};

static double x_of(const struct panel *p, double us)
{
    return p->left + PANEL * (log10(us) - p->low) / (p->high - p->low);
}

static double y_of(const struct panel *p, double us)
{
    return TOP + PANEL * (p->high - log10(us)) / (p->high - p->low);
}

static void write_escaped(FILE *file, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '<')
            (void)fputs("&lt;", file);

        else if (*text == '&')
            (void)fputs("&amp;", file);
        else
            (void)fputc(*text, file);
}

/* 10^power microseconds in a fitting unit. */
static void write_time(FILE *file, int power)
{
    static const char *const units[] = {"us", "ms", "s"};
    int unit = power < 3 ? 0 : power < 6 ? 1 : 2;

    (void)fprintf(file, "%g %s", pow(10.0, power - 3 * unit), units[unit]);
}

/* The line on which predicted is `ratio` times measured. */
static void write_diagonal(const struct panel *p, double ratio,
                           const char *class)
{
    double least = pow(10.0, p->low), most = pow(10.0, p->high);
    double from = ratio < 1.0 ? least / ratio : least;
    double to = ratio > 1.0 ? most / ratio : most;

    (void)fprintf(p->file,
                  "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                  "y2=\"%.1f\"/>\n",
                  class, x_of(p, from), y_of(p, from * ratio), x_of(p, to),
                  y_of(p, to * ratio));
}

static void write_axes(const struct panel *p, const char *title)
{
    FILE *file = p->file;

    (void)fprintf(file,
                  "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                  "height=\"%.1f\"/>\n",
                  p->left, TOP, PANEL, PANEL);
    for (int power = (int)p->low; power <= (int)p->high; power++) {
        double x = x_of(p, pow(10.0, power)), y = y_of(p, pow(10.0, power));

        (void)fprintf(file,
                      "<path class=\"grid\" d=\"M%.1f %.1fv%.1fM%.1f "
                      "%.1fh%.1f\"/>\n",
                      x, TOP, PANEL, p->left, y, PANEL);
        (void)fprintf(file,
                      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", x,
                      TOP + PANEL + 18.0);
        write_time(file, power);
        (void)fprintf(file,
                      "</text>\n<text x=\"%.1f\" y=\"%.1f\" "
                      "text-anchor=\"end\">",
                      p->left - 6.0, y + 4.0);
        write_time(file, power);
        (void)fputs("</text>\n", file);
    }
    (void)fprintf(file,
                  "<text class=\"title\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                  p->left, TOP - 26.0, title);
    (void)fprintf(file,
                  "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">"
                  "measured</text>\n",
                  p->left + PANEL / 2.0, TOP + PANEL + 38.0);
    (void)fprintf(file,
                  "<text transform=\"translate(%.1f,%.1f) rotate(-90)\" "
                  "text-anchor=\"middle\">predicted</text>\n",
                  p->left - 58.0, TOP + PANEL / 2.0);
}

static void write_points(const struct panel *p, const struct fit_part *part)
{
    bool prefill = strcmp(part->form->name, "prefill") == 0;
    double least = pow(10.0, p->low), most = pow(10.0, p->high);

    for (size_t i = 0; i < part->count; i++) {
        const struct fit_point *point = &part->points[i];
        double us = fit_predict_us(part->form, &part->result, (double)point->a,
                                   (double)point->b);
        double drawn_us = fmin(fmax(us, least), most);

        (void)fprintf(p->file,
                      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%s "
                      "%lld, %s %lld: measured %.6g us (%zu times), "
                      "predicted %.6g us, %+.1f %%</title></circle>\n",
                      x_of(p, point->us), y_of(p, drawn_us),
                      prefill ? "uncached" : "batch", (long long)point->a,
                      prefill ? "cached" : "kv_tokens", (long long)point->b,
                      point->us, point->repeats, us,
                      100.0 * (us - point->us) / point->us);
    }
}

/* The axes span whole powers of ten around the measured times; a prediction
 * outside of them is drawn on the frame. */
static void write_panel(FILE *file, double left, const struct fit_part *part)
{
    double least = INFINITY, most = 0.0;

    for (size_t i = 0; i < part->count; i++) {
        least = fmin(least, part->points[i].us);
        most = fmax(most, part->points[i].us);
    }
    struct panel p = {file, left, floor(log10(least)), ceil(log10(most))};
    if (p.high <= p.low)
        p.high = p.low + 1.0;
    write_axes(&p, strcmp(part->form->name, "prefill") == 0
                       ? "Prefill of a prompt"
                       : "One decode step");
    write_diagonal(&p, 1.0, "exact");
    write_diagonal(&p, 0.9, "near");
    write_diagonal(&p, 1.0 / 0.9, "near");
    write_points(&p, part);
    (void)fprintf(file,
                  "<text x=\"%.1f\" y=\"%.1f\">%zu points, cross-validated "
                  "error: median %.1f %%, p95 %.1f %%</text>\n",
                  left, TOP - 8.0, part->count, 100.0 * part->errors.median_rel,
                  100.0 * part->errors.p95_rel);
}

static void write_svg(FILE *file, const struct cost_model *m,
                      const struct fit_report *report)
{
    const double width = LEFT + 2.0 * PANEL + GAP + 30.0;
    const double height = TOP + PANEL + 56.0;

    (void)fprintf(file,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                  "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n",
                  width, height, width, height);
    (void)fputs("<style>\n"
                "text { font: 12px sans-serif; fill: #333 }\n"
                ".title { font: bold 14px sans-serif }\n"
                ".frame { fill: none; stroke: #333 }\n"
                ".grid { fill: none; stroke: #ddd }\n"
                ".exact { stroke: #333 }\n"
                ".near { stroke: #999; stroke-dasharray: 4 4 }\n"
                "circle { fill: #1f77b4; fill-opacity: 0.6 }\n"
                "</style>\n"
                "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                file);
    (void)fprintf(file, "<text class=\"title\" x=\"%.1f\" y=\"28\">", LEFT);
    write_escaped(file, m->model);
    (void)fputs(" on ", file);
    write_escaped(file, m->engine);
    (void)fputs(", ", file);
    write_escaped(file, m->machine);
    (void)fputs(", ", file);
    write_escaped(file, m->date);
    (void)fputs(" (dashed: 10 % off)</text>\n", file);
    write_panel(file, LEFT, &report->prefill);
    write_panel(file, LEFT + PANEL + GAP, &report->decode);
    (void)fputs("</svg>\n", file);
}

int fit_plot_save(const char *path, const struct cost_model *m,
                  const struct fit_report *report, char *err, size_t err_size)
{
    int rc = 0;
    FILE *file = fopen(path, "we");

    if (!file) {
        rc = -errno;
        goto say;
    }
    write_svg(file, m, report);
    errno = 0;
    if (fflush(file) != 0 || ferror(file) != 0)
        rc = errno != 0 ? -errno : -EIO;
    if (fclose(file) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0)
        return 0;
say:
    (void)snprintf(err, err_size, "plot %s: %s", path, strerror(-rc));
    return rc;
}
