/* See chart.h. */
#include "tools/plot/chart.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tools/result_file.h"

/* Size of a frame, in pixels; then its surroundings. */
#define WIDTH 340.0
#define HEIGHT 250.0
#define BAR_WIDTH 36.0 /* with the number above it */
#define LEFT 80.0
#define RIGHT 30.0
#define ABOVE 40.0
#define BELOW 60.0
#define HEAD 34.0 /* title of the picture */
#define LETTER 7.0
#define GAP 8.0     /* between a frame and its key */
#define SAMPLE 60.0 /* line sample in the key */

/* Colours that the colour-blind can distinguish; dashes differ, too. */
static const char *const colours[] = {"#1f6fb4", "#d95f02", "#1b9e77",
                                      "#a6357f", "#7f7f7f", "#b8860b",
                                      "#4b3f9e", "#c8372d"};

#define COLOURS (sizeof colours / sizeof colours[0])

/* Between quotes gnuplot also reads escapes and commands: writes everything but
 * letters and blanks as octal numbers. */
static void put_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (const char *c = text; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c < ' ' ? ' ' : (unsigned char)*c;

        if (byte == ' ' || (byte < 128 && isalpha(byte)))
            fputc(byte, f);
        else
            fprintf(f, "\\%03o", byte);
    }
    fputc('"', f);
}

static double x_at(const struct chart *c, const struct chart_series *s,
                   size_t i)
{
    return s->x ? s->x[i] : c->x ? c->x[i] : (double)i;
}

/* Returns whether the axes can show the point. */
static bool is_shown(const struct chart *c, const struct chart_series *s,
                     size_t i)
{
    return !isnan(s->y[i]) && !(c->y_log && s->y[i] <= 0) &&
           !(c->x_log && x_at(c, s, i) <= 0);
}

static double frame_width(const struct chart *c)
{
    double bars = 0;

    for (size_t s = 0; s < c->n_series && c->groups; s++)
        bars += (double)c->series[s].n;
    return c->square ? HEIGHT : fmax(WIDTH, BAR_WIDTH * bars);
}

/* Returns the width of a text, in pixels. */
static double text_width(const char *text)
{
    return LETTER * (double)strlen(text);
}

/* Returns the width of the key beside the frame, in pixels. */
static double key_width(const struct chart *c)
{
    double widest = 0;

    for (size_t s = 0; s < c->n_series && !c->no_key; s++)
        if (c->series[s].name)
            widest = fmax(widest, SAMPLE + text_width(c->series[s].name));
    return widest;
}

/* Maps an infinite value to its end of a second axis, see axes_of(). */
static double within(double value)
{
    return isinf(value) ? value > 0 : value;
}

/* Writes a named block of data: one line "x y" per point. */
static void put_data(FILE *f, const struct chart *c, size_t s)
{
    const struct chart_series *one = &c->series[s];
    double width = 0.8 / (double)c->n_series;

    fprintf(f, "$data%zu << END\n", s);
    for (size_t i = 0; i < one->n; i++) {
        double at = c->groups ? (double)i + 0.1 + width * ((double)s + 0.5)
                              : within(x_at(c, one, i));

        if (is_shown(c, one, i) || one->mark == CHART_RULE)
            fprintf(f, "%.9g %.9g\n", at, within(one->y[i]));
    }
    fputs("END\n", f);
}

static bool has_points(const struct chart *c, const struct chart_series *s)
{
    size_t i = 0;

    while (s->mark != CHART_RULE && i < s->n && !is_shown(c, s, i))
        i++;
    return i < s->n;
}

/* Returns the axes of a series: the hidden second axes go from 0 to 1. */
static const char *axes_of(const struct chart *c, const struct chart_series *s)
{
    bool x = isinf(x_at(c, s, 0));

    return isinf(s->y[0]) ? x ? "x2y2" : "x1y2" : x ? "x2y1" : "x1y1";
}

/* Writes a series as part of a plot command. */
static void put_series(FILE *f, const struct chart *c, size_t s)
{
    static const char *const styles[] = {[CHART_LINE] = "linespoints ps 0.5",
                                         [CHART_CURVE] = "lines",
                                         [CHART_STAIRS] = "steps",
                                         [CHART_DOTS] = "points ps 0.4",
                                         [CHART_CROSSES] = "points ps 0.7",
                                         [CHART_RULE] = "lines"};
    static const int marks[] = {7, 5, 9, 11, 13, 15}; /* filled marks */
    const struct chart_series *one = &c->series[s];

    if (!has_points(c, one)) { /* gnuplot would print a warning */
        fputs("NaN notitle", f);
        return;
    }
    bool points = one->mark == CHART_DOTS || one->mark == CHART_CROSSES;

    if (c->groups) {
        fprintf(f, "$data%zu with boxes fs solid 0.8 lc '%s' ", s,
                colours[s % COLOURS]);
    } else {
        fprintf(f, "$data%zu axes %s%s with %s lc '%s' ", s, axes_of(c, one),
                one->mark == CHART_RULE ? " noautoscale" : "",
                styles[one->mark],
                one->mark == CHART_RULE ? "#777777" : colours[s % COLOURS]);
        if (one->mark == CHART_LINE || points)
            fprintf(f, "pt %d ", one->mark == CHART_CROSSES ? 2 : marks[s % 6]);
        if (!points)
            fprintf(f, "dt %zu ",
                    one->mark == CHART_RULE ? s % 3 + 2 : s % 5 + 1);
    }
    if (one->name && !c->no_key) {
        fputs("title ", f);
        put_text(f, one->name);
    } else {
        fputs("notitle", f);
    }
    if (c->groups) {
        fprintf(f,
                ", $data%zu using 1:2:(sprintf('%%.3g', $2)) with labels "
                "offset 0,0.5 font ',9' notitle",
                s);
    }
}

static void widen(double range[2], double value)
{
    if (isfinite(value)) {
        range[0] = fmin(range[0], value);
        range[1] = fmax(range[1], value);
    }
}

/* Widens a range that gnuplot would consider empty. */
static void fill_range(double range[2])
{
    if (range[0] > range[1])
        range[0] = range[1] = 1;
    if (range[0] == range[1])
        range[1] = range[0] > 0 ? 2 * range[0] : range[0] + 1;
}

/* Sets the ranges for autoscaling, as a block of two points that are not drawn:
 * the data shown, 0 on a linear y axis, and the chart's y_min and y_max. */
static void put_ranges(FILE *f, const struct chart *c)
{
    double x[2] = {INFINITY, -INFINITY};
    double y[2] = {INFINITY, -INFINITY};

    for (size_t s = 0; s < c->n_series; s++) {
        const struct chart_series *one = &c->series[s];

        for (size_t i = 0; i < one->n && one->mark != CHART_RULE; i++) {
            if (is_shown(c, one, i)) {
                widen(x, x_at(c, one, i));
                widen(y, one->y[i]);
            }
        }
    }
    if (!c->y_log && !c->square)
        widen(y, 0);
    if (c->y_min > 0)
        widen(y, c->y_min);
    if (c->y_max > 0)
        widen(y, c->y_max);
    if (c->square) {
        widen(x, y[0]);
        widen(x, y[1]);
        widen(y, x[0]);
        widen(y, x[1]);
    }
    fill_range(x);
    fill_range(y);
    double step = fmax(1, ceil((x[1] - x[0]) / 8));
    fprintf(f, "$ranges << END\n%.9g %.9g\n%.9g %.9g\n", x[0], y[0], x[1],
            y[1]);
    fputs("END\n", f);
    if (c->groups) /* room for the numbers above the bars */
        fputs("set offsets 0, 0, graph 0.08, 0\n", f);
    else if (c->whole)
        fprintf(f, "set offsets 1, 1, %d, %d\nset xtics %g\n", c->square,
                c->square, step);
    if (c->whole && c->square)
        fprintf(f, "set ytics %g\n", step);
}

static void put_axes(FILE *f, const struct chart *c)
{
    fputs("set autoscale\nset x2range [0:1]\nset y2range [0:1]\n"
          "unset logscale\nunset offsets\nset xtics auto\nset ytics auto\n"
          "set label 1 ",
          f);
    put_text(f, c->title);
    fputs(" at graph 0, graph 1.06 left\nset xlabel ", f);
    put_text(f, c->x_label ? c->x_label : "");
    fputs("\nset ylabel ", f);
    put_text(f, c->y_label);
    fputc('\n', f);
    if (c->x_log)
        fputs("set logscale x\n", f);
    if (c->y_log)
        fputs("set logscale y\n", f);
    put_ranges(f, c);
    if (c->groups) {
        fprintf(f, "set xrange [0:%zu]\nset boxwidth %.6g\nset xtics (",
                c->series[0].n, 0.74 / (double)c->n_series);
        for (size_t i = 0; i < c->series[0].n; i++) {
            fputs(i > 0 ? ", " : "", f);
            put_text(f, c->groups[i]);
            fprintf(f, " %zu.5", i);
        }
        fputs(")\n", f);
    }
}

struct place {
    double left, top;     /* of the frame, in pixels */
    double width, height; /* of the picture */
};

static void put_chart(FILE *f, const struct chart *c, const struct place *at)
{
    double bottom = at->top + HEIGHT;

    fprintf(f,
            "set lmargin at screen %.6f\nset rmargin at screen %.6f\n"
            "set tmargin at screen %.6f\nset bmargin at screen %.6f\n"
            "set key at screen %.6f, screen %.6f left top\n",
            at->left / at->width, (at->left + frame_width(c)) / at->width,
            1 - at->top / at->height, 1 - bottom / at->height,
            (at->left + frame_width(c) + GAP) / at->width,
            1 - at->top / at->height);
    put_axes(f, c);
    for (size_t s = 0; s < c->n_series; s++)
        put_data(f, c, s);
    fputs("plot $ranges with lines lt nodraw notitle", f);
    for (size_t s = 0; s < c->n_series; s++) {
        fputs(", ", f);
        put_series(f, c, s);
    }
    fputc('\n', f);
}

/* Returns the left edge of a column; of column `columns`, the total width. */
static double column_at(const struct chart *charts, size_t n, size_t columns,
                        size_t column)
{
    double left = 0;

    for (size_t i = 0; i < column; i++) {
        double widest = 0;

        for (size_t k = i; k < n; k += columns) {
            const struct chart *c = &charts[k];

            widest = fmax(widest, frame_width(c) + key_width(c));
            widest = fmax(widest, text_width(c->title));
        }
        left += LEFT + widest + RIGHT;
    }
    return left;
}

static void put_script(FILE *f, const char *title, const struct chart *charts,
                       size_t n, size_t columns)
{
    size_t rows = (n + columns - 1) / columns;
    struct place at = {.width = fmax(column_at(charts, n, columns, columns),
                                     1.2 * text_width(title)),
                       .height =
                           HEAD + (ABOVE + HEIGHT + BELOW) * (double)rows};

    fprintf(f,
            "set terminal svg noenhanced size %.0f,%.0f font 'sans-serif,12' "
            "background 'white' name 'chart'\n"
            "set encoding utf8\nset format '%%g'\nset clip two\nset style data "
            "lines\n"
            "set key Left reverse samplen 3\nset tics nomirror scale 0.6\n"
            "set grid lc '#dddddd' dt 1 lw 0.5\nset border lc '#333333'\n"
            "set multiplot title ",
            at.width, at.height);
    put_text(f, title);
    fputs(" font ',14'\n", f);
    for (size_t i = 0; i < n; i++) {
        at.left = column_at(charts, n, columns, i % columns) + LEFT;
        at.top =
            HEAD + ABOVE + (ABOVE + HEIGHT + BELOW) * (double)(i / columns);
        put_chart(f, &charts[i], &at);
    }
    fputs("unset multiplot\n", f);
}

/* Lets gnuplot read the script and write the picture, both open files. */
static int run_gnuplot(FILE *script, FILE *picture)
{
    char command[128];

    if (fflush(script) != 0)
        return -errno;
    /* -d: ignores the user's settings file */
    snprintf(command, sizeof command,
             "command -v gnuplot >/dev/null || exit 127; "
             "exec gnuplot -d </dev/fd/%d >/dev/fd/%d",
             fileno(script), fileno(picture));
    int status = system(command);
    if (WIFSIGNALED(status) &&
        (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGQUIT))
        raise(WTERMSIG(status)); /* system() hides it from this process */
    return status == 0                                       ? 0
           : WIFEXITED(status) && WEXITSTATUS(status) == 127 ? -ENOPKG
                                                             : -EPROTO;
}

void chart_line(struct chart *chart, const char *name, const double *y,
                size_t n)
{
    chart->series[chart->n_series++] =
        (struct chart_series){.name = name, .y = y, .n = n};
}

int chart_write(const char *path, const char *title, const struct chart *charts,
                size_t n, size_t columns)
{
    FILE *script = tmpfile();
    FILE *picture = tmpfile();
    int rc = script && picture ? 0 : -errno;

    if (rc == 0) {
        put_script(script, title, charts, n, columns);
        rc = run_gnuplot(script, picture);
    }
    if (rc == 0)
        rc = result_copy(picture, path);
    if (script)
        fclose(script);
    if (picture)
        fclose(picture);
    return rc;
}

const char *chart_error(int rc)
{
    return rc == -ENOPKG   ? "not drawn, gnuplot is missing: install Debian's "
                             "gnuplot-nox"
           : rc == -EPROTO ? "not drawn, gnuplot failed"
                           : strerror(-rc);
}
