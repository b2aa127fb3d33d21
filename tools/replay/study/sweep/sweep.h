/*
 * A sweep: policies on clusters, traces and loads that are drawn at random, and
 * where the first of them loses to another.
 */
#ifndef TOOLS_REPLAY_STUDY_SWEEP_SWEEP_H
#define TOOLS_REPLAY_STUDY_SWEEP_SWEEP_H

#include <stdio.h>

#include "tools/replay/list.h"
#include "tools/replay/study/sweep/draw.h"

#define SWEEP_POLICIES_MAX 16

/* What policies are judged by. */
enum sweep_metric {
    SWEEP_TTFT,      /* mean TTFT where no request asks for an SLO */
    SWEEP_EFFECTIVE, /* effective share where all ask for it */
};
#define SWEEP_METRICS 2

/* What a case may lose by, as bits: without it the loss is less than half. */
enum sweep_cause {
    SWEEP_ERRORS,     /* predictions are wrong */
    SWEEP_LINKS,      /* slow links */
    SWEEP_UNEQUAL,    /* slow nodes */
    SWEEP_DISKS,      /* disks */
    SWEEP_OVERLOAD,   /* a load above 0.6 */
    SWEEP_AGGREGATED, /* nodes that prefill and decode */
    SWEEP_MIXED,      /* nodes of two kinds */
    SWEEP_ASKS,       /* more tokens asked for than answers have */
};
#define SWEEP_CAUSES 8

struct sweep {
    const struct sweep_description *description;
    struct replay_names policies; /* the first one is judged */
    const struct policy_settings *settings;
    uint64_t seed;
    uint64_t first, n_cases;
    uint64_t seeds;   /* that a loss is confirmed on, at least 1 */
    double threshold; /* a loss is more than this share */
    bool causes;      /* to be found */
    uint64_t jobs;    /* simulations at once; 0: as many as there are cores */
    bool quiet;
};

/* A metric of a case, in which the first policy loses to another. */
struct sweep_loss {
    size_t other;   /* policy that it loses most to */
    double first;   /* with the case's own seed */
    double loss;    /* with all seeds; above the threshold: confirmed */
    unsigned tried; /* causes that the case has, as bits */
    unsigned causes;
};

/* What became of a case. */
struct sweep_result {
    struct sweep_case one;
    double value[SWEEP_METRICS][SWEEP_POLICIES_MAX]; /* NaN: none */
    double sum[SWEEP_METRICS][SWEEP_POLICIES_MAX];   /* over all seeds */
    uint64_t seeds;
    struct sweep_loss loss[SWEEP_METRICS]; /* loss 0: it does not lose */
};

/*
 * Runs all cases.
 *   results  (sweep->n_cases), written.
 *   error    a message of one line that names the case.
 * Returns 0 or a negative errno.
 */
[[nodiscard]] int sweep_run(const struct sweep *sweep,
                            struct sweep_result *results,
                            char error[SWEEP_ERROR_BYTES]);

/* By how much a value is worse than another: 0.1 is a tenth longer, or a tenth
 * less effective. 0 if either is NaN. Below 0: it is better. */
double sweep_worse_by(enum sweep_metric metric, double value, double other);

/* The policy that the first one of n loses to most; *loss is by how much. */
size_t sweep_worst(enum sweep_metric metric, const double *values, size_t n,
                   double *loss);

/* "ttft", "effective"; "slow links": what a metric and a cause are called. */
const char *sweep_metric_name(enum sweep_metric metric);
const char *sweep_cause_name(enum sweep_cause cause);

/* Which causes a case has, as bits. */
unsigned sweep_causes_of(const struct sweep_draw *draw);

/* Losses, the worst first, and in how many cases of which kind there are. */
void sweep_print(const struct sweep *sweep, const struct sweep_result *results,
                 FILE *file);

/* A line for each case and policy; everything as JSON. 0 or a negative errno.
 */
[[nodiscard]] int sweep_csv(const struct sweep *sweep,
                            const struct sweep_result *results,
                            const char *path);
[[nodiscard]] int sweep_json(const struct sweep *sweep,
                             const struct sweep_result *results,
                             const char *path);

#endif
