/*
 * A sweep: runs policies on random clusters, traces and loads, and finds the
 * cases where the first policy loses to another one.
 */
#ifndef TOOLS_REPLAY_STUDY_SWEEP_SWEEP_H
#define TOOLS_REPLAY_STUDY_SWEEP_SWEEP_H

#include "tools/replay/options.h"
#include "tools/replay/study/sweep/draw.h"

#define SWEEP_POLICIES_MAX 16

/* The measures by which policies are compared. */
enum sweep_metric {
    SWEEP_TTFT,      /* mean TTFT, without SLOs */
    SWEEP_P99,       /* p99 of the TTFT, without SLOs */
    SWEEP_EFFECTIVE, /* effective share of requests, all with SLOs */
    SWEEP_TOKENS,    /* effective share of input tokens, all with SLOs */
};
#define SWEEP_METRICS 4

/* Causes of a loss, as bit numbers. It is a cause if without it the loss is
 * less than half. */
enum sweep_cause {
    SWEEP_ERRORS,     /* predictions are wrong */
    SWEEP_LINKS,      /* slow links */
    SWEEP_UNEQUAL,    /* slow nodes */
    SWEEP_DISKS,      /* disks */
    SWEEP_OVERLOAD,   /* a load above 0.6 */
    SWEEP_AGGREGATED, /* nodes that prefill and decode */
    SWEEP_MIXED,      /* nodes of two kinds */
    SWEEP_ASKS,       /* more tokens requested than answered */
    SWEEP_CACHES,     /* less cache than the hardware's */
};
#define SWEEP_CAUSES 9

struct sweep {
    const struct sweep_description *description;
    const char *again; /* command line that repeats a case, without --case */
    struct replay_names policies; /* the first one is judged */
    const struct policy_settings *settings;
    uint64_t seed;
    uint64_t first, n_cases;
    uint64_t seeds;   /* to confirm a loss, at least 1 */
    double threshold; /* smallest loss; for p99 five times this */
    bool causes;      /* look for causes */
    uint64_t jobs;    /* simulations at once; 0 = number of cores */
    bool quiet;
};

/* A case's loss of the first policy, by one metric. */
struct sweep_loss {
    size_t other;   /* policy that is best there */
    double first;   /* with the case's own seed */
    double loss;    /* with all seeds; confirmed if above the threshold */
    unsigned tried; /* bits of causes that the case has */
    unsigned causes;
};

/* Results of one policy in a case. */
struct sweep_values {
    double at[SWEEP_METRICS]; /* NaN = none */
    uint64_t promised, late;  /* requests accepted with an SLO; of these, TTFT
                                 above it */
    double latest_s;          /* largest excess of these */
    double predicted_ratio;   /* predicted / actual mean TTFT, without SLOs */
    double p90_held_ratio;    /* share of TTFTs within the predicted 90th
                                 percentile; NaN = none */
};

/* The result of a case. */
struct sweep_result {
    struct sweep_case one;
    struct sweep_values own[SWEEP_POLICIES_MAX]; /* with the case's own seed */
    struct sweep_values all[SWEEP_POLICIES_MAX]; /* sums over all seeds */
    uint64_t seeds;
    struct sweep_loss loss[SWEEP_METRICS]; /* loss 0 = no loss */
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

/* Returns how much worse a value is than another: 0.1 = a tenth longer, or ten
 * points less effective; below 0 = better; 0 if either is NaN. */
double sweep_worse_by(enum sweep_metric metric, double value, double other);

/* Returns the policy that the first of n loses most to; *loss: by how much. */
size_t sweep_worst(enum sweep_metric metric, const struct sweep_values *values,
                   size_t n, double *loss);

/* Returns whether the first policy loses the case by a metric. Loads above 1 do
 * not count for p99: there someone must come last. */
bool sweep_loses(const struct sweep *sweep, const struct sweep_result *result,
                 enum sweep_metric metric);

/* Returns whether a metric is a share, from simulations with SLOs. */
static inline bool sweep_metric_is_share(enum sweep_metric metric)
{
    return metric == SWEEP_EFFECTIVE || metric == SWEEP_TOKENS;
}

/* Returns the causes that a case has, as bits. */
unsigned sweep_causes_of(const struct sweep_draw *draw);

/* Has sweep.py print the losses, worst first, and their number by kind of case.
 * Returns 0 or an error of plot_script(). */
[[nodiscard]] int sweep_print(const struct sweep *sweep,
                              const struct sweep_result *results);

/* Write a line per case and policy; everything as JSON. Return 0 or a negative
 * errno. */
[[nodiscard]] int sweep_csv(const struct sweep *sweep,
                            const struct sweep_result *results,
                            const char *path);
[[nodiscard]] int sweep_json(const struct sweep *sweep,
                             const struct sweep_result *results,
                             const char *path);

#endif
