/*
 * The Mooncake paper's figures (FAST'25) from our simulator: each runs the
 * simulations that it needs for one trace, writes FIGURE.svg and FIGURE.csv,
 * and adds a row to its table in RESULTS.md.
 */
#ifndef TOOLS_REPLAY_PAPER_FIGURES_FIGURES_H
#define TOOLS_REPLAY_PAPER_FIGURES_FIGURES_H

#include <stdio.h>

#include "tools/plot/chart.h"
#include "tools/replay/study/study.h"
#include "tools/replay/trace/workload.h"

#define FIGURE_PATH_BYTES 1024

/* Which of the paper's workloads a trace is, or is made after. */
enum figure_workload {
    FIGURE_CONVERSATION,
    FIGURE_TOOLAGENT,
    FIGURE_SYNTHETIC,
    FIGURE_OTHER,
};

/* A trace and where its figures go. */
struct figure_run {
    struct replay_study study; /* of this trace */
    const char *name;          /* of the trace, for titles and paths */
    enum figure_workload workload;
    struct replay_workload *facts;
    const char *out;          /* folder; files are OUT/NAME/FIGURE.* */
    struct cluster reference; /* prefill nodes of the reference values */
    struct cluster paper;     /* prefill and decode nodes */
    struct cluster coupled;
    FILE *table;    /* RESULTS.md: one row is written for the trace */
    bool *undrawn;  /* set when gnuplot is missing: no pictures */
    FILE *verdicts; /* lines on how that compares with the paper */
    char error[REPLAY_STUDY_ERROR_BYTES];
};

struct figure {
    const char *id; /* "05": names its files */
    const char *title;
    const char *paper;  /* what the paper states */
    const char *setup;  /* what we simulate */
    const char *header; /* of the table, cells behind the trace's name */
    const char *notes;  /* on the method: what explains differences */
    /* Returns 0, or a negative errno with the message in run->error. */
    int (*run)(struct figure_run *run);
};

/* The i-th figure, NULL behind the last. */
const struct figure *figure_at(size_t i);

/* Each in its file; see struct figure. */
int figure_capacity(struct figure_run *run);  /* 1, 6, 7 */
int figure_policies(struct figure_run *run);  /* 5 */
int figure_prefill(struct figure_run *run);   /* 8 */
int figure_lru(struct figure_run *run);       /* 9 */
int figure_global(struct figure_run *run);    /* 10 */
int figure_replicas(struct figure_run *run);  /* 11 */
int figure_bandwidth(struct figure_run *run); /* 13 */
int figure_ratio(struct figure_run *run);     /* 15 */
int figure_goodput(struct figure_run *run);   /* ours: the SLO holds */

/* A share or gain agrees with the paper's within so many points. */
#define FIGURE_AGREES_POINTS 5.0

/* For them: adds a line that the trace agrees with the paper, or differs, and
 * in what numbers; printf-style, without a full stop. Only for workloads that
 * the paper has numbers of. */
void figure_verdict(const struct figure_run *run, bool agrees,
                    const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For them: the same for percentages; `what` begins the sentence. */
void figure_verdict_percent(const struct figure_run *run, const char *what,
                            double ours, double paper);

/* For them: the path of the figure's file with this ending. */
void figure_path(const struct figure_run *run, const char *id,
                 const char *ending, char path[FIGURE_PATH_BYTES]);

/* For them: opens the CSV file and writes its header line. NULL with
 * run->error filled. */
FILE *figure_csv(struct figure_run *run, const char *id, const char *header);

/* For them: closes it. 0, or -EIO with run->error filled. */
int figure_csv_close(struct figure_run *run, FILE *file)
    __attribute__((warn_unused_result));

/* For them: what became of a picture: without gnuplot the figures go on, and
 * say so once. 0, or rc with run->error filled. */
int figure_drawn(struct figure_run *run, const char *path, int rc)
    __attribute__((warn_unused_result));

/* For them: writes the chart as the figure's SVG, the trace's name in the
 * title. 0, or a negative errno with run->error filled. */
int figure_chart(struct figure_run *run, const char *id, const char *title,
                 const struct chart *charts, size_t n_charts)
    __attribute__((warn_unused_result));

/* For them: runs the cases, 0 or a negative errno with run->error filled. */
int figure_simulate(struct figure_run *run, struct replay_case *cases, size_t n)
    __attribute__((warn_unused_result));

#endif
