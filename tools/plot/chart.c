/* See chart.h. */
#include "tools/plot/chart.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/plot/gnuplot.h"
#include "tools/plot/range.h"
#include "tools/result_file.h"

/* Of a frame, in pixels; then what stands around it. */
#define WIDTH 340.0
#define HEIGHT 250.0
#define BAR_WIDTH 36.0 /* with its number above */
#define LEFT 80.0
#define RIGHT 30.0
#define ABOVE 40.0
#define BELOW 60.0
#define HEAD 34.0 /* the title of the whole */
#define LETTER 7.0
#define GAP 8.0     /* between a frame and its key */
#define SAMPLE 60.0 /* what the key shows beside a name */

/* Colours that differ for the colour-blind too; dashes differ besides. */
static const char *const colours[] = {"#1f6fb4", "#d95f02", "#1b9e77",
                                      "#a6357f", "#7f7f7f", "#b8860b",
                                      "#4b3f9e", "#c8372d"};

#define COLOURS (sizeof colours / sizeof colours[0])

/* gnuplot reads more than text between quotes (escapes, commands): all but
 * letters and blanks is written as octal numbers. */
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

static bool has_bars(const struct chart *c)
{
    return c->groups;
}

static double x_at(const struct chart *c, const struct chart_series *s,
                   size_t i)
{
    return s->x ? s->x[i] : c->x ? c->x[i] : (double)i;
}

static void find_ranges(const struct chart *c, struct range *x, struct range *y)
{
    *x = *y = RANGE_EMPTY;
    for (size_t s = 0; s < c->n_series; s++) {
        const struct chart_series *one = &c->series[s];

        for (size_t i = 0; i < one->n && one->mark != CHART_RULE; i++) {
            range_widen(x, x_at(c, one, i), c->x_log);
            range_widen(y, one->y[i], c->y_log);
        }
    }
    if (!c->y_log && !c->square)
        range_widen(y, 0, false);
    if (c->y_max > 0)
        range_widen(y, c->y_max, c->y_log);
    if (has_bars(c)) /* numbers stand above them */
        y->max *= 1.08;
    if (c->y_min > 0)
        range_widen(y, c->y_min, c->y_log);
    if (c->square) {
        *x = (struct range){fmin(x->min, y->min), fmax(x->max, y->max)};
        *y = *x;
    }
    if (c->whole) {
        x->min -= 1;
        x->max += 1;
    } else {
        range_round(x, c->x_log);
    }
    if (c->whole && c->square)
        *y = *x;
    else
        range_round(y, c->y_log);
}

/* Few enough decades ask for 2 and 5 between their powers of ten. */
static void put_log_ticks(FILE *f, char axis, const struct range *r)
{
    double decades = log10(r->max / r->min);
    const char *separator = "";

    fprintf(f, "set logscale %c\nset %ctics (", axis, axis);
    for (double tick = r->min; tick <= r->max * (1 + 1e-9);
         tick = range_step(tick * 2.5)) {
        bool power = fabs(tick / pow(10, round(log10(tick))) - 1) < 1e-6;

        if (power || decades <= 3) {
            fprintf(f, "%s'%g' %g", separator, tick, tick);
            separator = ", ";
        }
    }
    fputs(")\n", f);
}

static double frame_width(const struct chart *c)
{
    double bars = 0;

    for (size_t s = 0; s < c->n_series && has_bars(c); s++)
        bars += (double)c->series[s].n;
    return c->square ? HEIGHT : fmax(WIDTH, BAR_WIDTH * bars);
}

/* What a text takes. */
static double text_width(const char *text)
{
    return LETTER * (double)strlen(text);
}

/* What the key takes beside the frame. */
static double key_width(const struct chart *c)
{
    double widest = 0;

    for (size_t s = 0; s < c->n_series && !c->no_key; s++)
        if (c->series[s].name)
            widest = fmax(widest, SAMPLE + text_width(c->series[s].name));
    return widest;
}

/* On the frame's edge where the value is infinite. */
static double within(double value, const struct range *r, bool log)
{
    if (isinf(value))
        return value < 0 ? r->min : r->max;
    return log ? fmax(value, r->min) : value;
}

/* A block of data by name: a line "x y" each. */
static void put_data(FILE *f, const struct chart *c, size_t s,
                     const struct range *x, const struct range *y)
{
    const struct chart_series *one = &c->series[s];
    double width = 0.8 / (double)c->n_series;

    fprintf(f, "$data%zu << END\n", s);
    for (size_t i = 0; i < one->n; i++) {
        double at = has_bars(c) ? (double)i + 0.1 + width * ((double)s + 0.5)
                                : within(x_at(c, one, i), x, c->x_log);

        if (!isnan(one->y[i]))
            fprintf(f, "%.9g %.9g\n", at, within(one->y[i], y, c->y_log));
    }
    fputs("END\n", f);
}

static bool has_points(const struct chart_series *s)
{
    size_t i = 0;

    while (i < s->n && isnan(s->y[i]))
        i++;
    return i < s->n;
}

/* A series as part of a plot command. */
static void put_series(FILE *f, const struct chart *c, size_t s)
{
    static const char *const styles[] = {[CHART_LINE] = "linespoints ps 0.5",
                                         [CHART_CURVE] = "lines",
                                         [CHART_STAIRS] = "steps",
                                         [CHART_DOTS] = "points ps 0.4",
                                         [CHART_CROSSES] = "points ps 0.7",
                                         [CHART_RULE] = "lines"};
    static const int marks[] = {7, 5, 9, 11, 13, 15}; /* filled ones */
    const struct chart_series *one = &c->series[s];

    if (!has_points(one)) { /* gnuplot would warn of it */
        fputs("NaN notitle", f);
        return;
    }
    bool points = one->mark == CHART_DOTS || one->mark == CHART_CROSSES;

    if (has_bars(c)) {
        fprintf(f, "$data%zu with boxes fs solid 0.8 lc '%s' ", s,
                colours[s % COLOURS]);
    } else {
        fprintf(f, "$data%zu with %s lc '%s' ", s, styles[one->mark],
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
    if (has_bars(c)) {
        fprintf(f,
                ", $data%zu using 1:2:(sprintf('%%.3g', $2)) with labels "
                "offset 0,0.5 font ',9' notitle",
                s);
    }
}

/* A little more than the range: gnuplot leaves out ticks on a logarithmic edge.
 */
static void put_range(FILE *f, char axis, const struct range *r, bool log)
{
    fprintf(f, "set %crange [%.9g:%.9g]\n", axis,
            log ? r->min * (1 - 1e-5) : r->min,
            log ? r->max * (1 + 1e-5) : r->max);
}

static double whole_step(const struct range *r)
{
    return fmax(1, range_step((r->max - r->min) / 4));
}

static void put_axes(FILE *f, const struct chart *c, const struct range *x,
                     const struct range *y)
{
    fputs("set autoscale\nunset logscale\nset xtics auto\nset ytics auto\n"
          "set label 1 ",
          f);
    put_text(f, c->title);
    fputs(" at graph 0, graph 1.06 left\nset xlabel ", f);
    put_text(f, c->x_label ? c->x_label : "");
    fputs("\nset ylabel ", f);
    put_text(f, c->y_label);
    fputc('\n', f);
    if (c->x_log)
        put_log_ticks(f, 'x', x);
    if (c->y_log)
        put_log_ticks(f, 'y', y);
    if (!has_bars(c)) {
        put_range(f, 'x', x, c->x_log);
        if (c->whole)
            fprintf(f, "set xtics %g\n", whole_step(x));
        if (c->whole && c->square)
            fprintf(f, "set ytics %g\n", whole_step(y));
    } else {
        fprintf(f, "set xrange [0:%zu]\nset boxwidth %.6g\nset xtics (",
                c->series[0].n, 0.74 / (double)c->n_series);
        for (size_t i = 0; i < c->series[0].n; i++) {
            fputs(i > 0 ? ", " : "", f);
            put_text(f, c->groups[i]);
            fprintf(f, " %zu.5", i);
        }
        fputs(")\n", f);
    }
    put_range(f, 'y', y, c->y_log);
}

struct place {
    double left, top;     /* of the frame, in pixels from the top */
    double width, height; /* of the whole */
};

static void put_chart(FILE *f, const struct chart *c, const struct place *at)
{
    struct range x;
    struct range y;
    double bottom = at->top + HEIGHT;

    find_ranges(c, &x, &y);
    fprintf(f,
            "set lmargin at screen %.6f\nset rmargin at screen %.6f\n"
            "set tmargin at screen %.6f\nset bmargin at screen %.6f\n"
            "set key at screen %.6f, screen %.6f left top\n",
            at->left / at->width, (at->left + frame_width(c)) / at->width,
            1 - at->top / at->height, 1 - bottom / at->height,
            (at->left + frame_width(c) + GAP) / at->width,
            1 - at->top / at->height);
    put_axes(f, c, &x, &y);
    for (size_t s = 0; s < c->n_series; s++)
        put_data(f, c, s, &x, &y);
    fputs("plot ", f);
    for (size_t s = 0; s < c->n_series; s++) {
        fputs(s > 0 ? ", " : "", f);
        put_series(f, c, s);
    }
    fputc('\n', f);
}

/* The left edge of each column, and behind them that of the whole. */
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
            "set encoding utf8\nset clip two\nset style data lines\n"
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

static int copy(FILE *from, const char *path)
{
    char bytes[16384];
    size_t n;

    if (fseek(from, 0, SEEK_SET) != 0)
        return -errno;
    FILE *to = result_open(path);
    if (!to)
        return -errno;
    while ((n = fread(bytes, 1, sizeof bytes, from)) > 0)
        (void)fwrite(bytes, 1, n, to);
    bool failed = ferror(from) != 0;
    return result_close(to) != 0 || failed ? -EIO : 0;
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
        rc = gnuplot_run(script, picture);
    }
    if (rc == 0)
        rc = copy(picture, path);
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
