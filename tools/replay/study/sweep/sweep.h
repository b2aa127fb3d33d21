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
    SWEEP_P99,       /* its p99 */
    SWEEP_EFFECTIVE, /* effective share of the requests where all ask for it */
    SWEEP_TOKENS,    /* of their input tokens */
};
#define SWEEP_METRICS 4

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
    SWEEP_CACHES,     /* less memory than the hardware has */
};
#define SWEEP_CAUSES 9

struct sweep {
    const struct sweep_description *description;
    const char *again; /* the command line of a case, without --case */
    struct replay_names policies; /* the first one is judged */
    const struct policy_settings *settings;
    uint64_t seed;
    uint64_t first, n_cases;
    uint64_t seeds;   /* that a loss is confirmed on, at least 1 */
    double threshold; /* a loss is more than this, of p99 five times it */
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

/* A policy in a case. */
struct sweep_values {
    double at[SWEEP_METRICS]; /* NaN: none */
    uint64_t promised, late;  /* requests accepted with the SLO; those of them
                                 whose first token came after it, */
    double latest_s;          /* by so much at most */
    double predicted_ratio;   /* of those without an SLO: predicted over actual
                                 mean TTFT; and the share of first tokens */
    double p90_held_ratio;    /* within the 90th percentile predicted; NaN */
};

/* What became of a case. */
struct sweep_result {
    struct sweep_case one;
    struct sweep_values own[SWEEP_POLICIES_MAX]; /* with the case's own seed */
    struct sweep_values all[SWEEP_POLICIES_MAX]; /* sums over all seeds */
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

/* By how much a value is worse than another: 0.1 is a tenth longer, or ten
 * points less effective. 0 if either is NaN. Below 0: it is better. */
double sweep_worse_by(enum sweep_metric metric, double value, double other);

/* The policy that the first one of n loses to most; *loss is by how much. */
size_t sweep_worst(enum sweep_metric metric, const struct sweep_values *values,
                   size_t n, double *loss);

/* Whether a case counts as lost by a metric. By p99 it does at loads up to 1:
 * above, who comes last is a choice. */
bool sweep_loses(const struct sweep *sweep, const struct sweep_result *result,
                 enum sweep_metric metric);

/* Whether a metric is of the simulations whose requests ask for an SLO, and a
 * share. */
static inline bool sweep_metric_is_share(enum sweep_metric metric)
{
    return metric == SWEEP_EFFECTIVE || metric == SWEEP_TOKENS;
}

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
