/* Files of a figure, and our numbers beside the paper's. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/replay/paper/figures/figures.h"

void figure_path(const struct figure_run *run, const char *id,
                 const char *ending, char path[FIGURE_PATH_BYTES])
{
    snprintf(path, FIGURE_PATH_BYTES, "%s/%s/figure-%s.%s", run->out, run->name,
             id, ending);
}

FILE *figure_csv(struct figure_run *run, const char *id, const char *header)
{
    char path[FIGURE_PATH_BYTES];

    figure_path(run, id, "csv", path);
    FILE *file = fopen(path, "w");
    if (!file) {
        snprintf(run->error, sizeof run->error, "%.900s: %s", path,
                 strerror(errno));
        return NULL;
    }
    fprintf(file, "%s\n", header);
    return file;
}

int figure_csv_close(struct figure_run *run, FILE *file)
{
    bool failed = ferror(file) != 0;

    if (fclose(file) != 0 || failed) {
        snprintf(run->error, sizeof run->error, "cannot write a CSV file");
        return -EIO;
    }
    return 0;
}

int figure_drawn(struct figure_run *run, const char *path, int rc)
{
    if (rc == -ENOPKG) {
        if (!*run->undrawn)
            fprintf(stderr, "%s: %s\n", path, chart_error(rc));
        *run->undrawn = true;
        return 0;
    }
    if (rc != 0)
        snprintf(run->error, sizeof run->error, "%.900s: %s", path,
                 chart_error(rc));
    return rc;
}

int figure_chart(struct figure_run *run, const char *id, const char *title,
                 const struct chart *charts, size_t n_charts)
{
    char path[FIGURE_PATH_BYTES];
    char full[FIGURE_PATH_BYTES + 128];

    figure_path(run, id, "svg", path);
    snprintf(full, sizeof full, "%s: %s", run->name, title);
    int rc = chart_write(path, full, charts, n_charts, n_charts);
    return figure_drawn(run, path, rc);
}

int figure_simulate(struct figure_run *run, struct replay_case *cases, size_t n)
{
    return replay_study_run(&run->study, cases, n, run->error);
}

void figure_verdict(const struct figure_run *run, bool agrees,
                    const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(run->verdicts, "- %s: %s: ", run->name,
            agrees ? "agrees" : "differs");
    vfprintf(run->verdicts, format, args);
    fputs(".\n", run->verdicts);
    va_end(args);
}

void figure_verdict_percent(const struct figure_run *run, const char *what,
                            double ours, double paper)
{
    double off = ours - paper;

    if (!isfinite(ours)) {
        figure_verdict(run, false,
                       "%s: nothing to relate it to, %+.0f %% in the paper",
                       what, paper);
        return;
    }
    figure_verdict(run, fabs(off) <= FIGURE_AGREES_POINTS,
                   "%s %+.0f %%, %+.0f %% in the paper, %.0f points %s", what,
                   ours, paper, fabs(off), off < 0 ? "lower" : "higher");
}
