/*
 * The process of the Cake paper where its resources are not steady, so that no
 * plan can be made of it: an engine that steps and a loader whose bandwidth
 * changes, each going on from where it is. Two experiments on them. Simulated,
 * with the costs of a struct cake_engine of utilisation 1. Pure.
 */
#ifndef TOOLS_REPLAY_PAPER_CAKE_PROCESS_H
#define TOOLS_REPLAY_PAPER_CAKE_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "tools/replay/paper/cake/model.h"

/* Of the two pointers over time. */
#define CAKE_COURSE_POINTS 512

/* Before every step the engine draws how many tokens it has for the prompt,
 * and after every period the link what it gives. The same seed means the same
 * draws for every way of filling the cache. */
struct cake_fluctuation {
    const struct cake_engine *engine; /* borrowed; utilisation 1 */
    int64_t budget_max_tokens;        /* uniform in 0 .. this, at least 1 */
    double gbps_max;                  /* uniform in 0 .. this, above 0 */
    double period_s;                  /* of the link, above 0 */
    uint64_t seed;
    int64_t split_tokens; /* that a plan from the means computes */
};

/* Seconds to the first token of a prompt that is all cached. */
struct cake_fluctuated {
    double compute_s;   /* computed alone */
    double load_s;      /* loaded alone */
    double split_s;     /* computed up to split_tokens, the rest loaded */
    double cake_s;      /* two pointers that stop where they meet */
    double ideal_s;     /* the same without steps, pieces and last step */
    int64_t met_tokens; /* where they met */
    /* The pointers at the ends of the first steps, and before them. */
    size_t n_course;
    double course_s[CAKE_COURSE_POINTS];
    double computed_tokens[CAKE_COURSE_POINTS]; /* from the front */
    double unloaded_tokens[CAKE_COURSE_POINTS]; /* down to here is loaded */
};

/* Runs them. Returns 0, or -ERANGE: it would take more than a day. Linear in
 * steps and periods. */
[[nodiscard]] int cake_fluctuate(const struct cake_fluctuation *f,
                                 struct cake_fluctuated *r);

#define CAKE_SHORT_MAX 1000

/* One prompt that is all cached, and right behind it short ones that are not,
 * all there from the start. */
struct cake_mix {
    const struct cake_engine *engine; /* borrowed; utilisation 1 */
    const int64_t *short_tokens;      /* (n_short), borrowed, each above 0 */
    size_t n_short;                   /* at most CAKE_SHORT_MAX */
    const char *order;                /* of conductor/core/queue */
};

struct cake_mixed {
    double done_s;          /* all of them */
    double cached_s;        /* to the first token of the cached prompt */
    double short_mean_s;    /* to those of the others */
    double computed_tokens; /* of the cached prompt */
    double tokens_per_s;    /* prompt tokens of all / done_s */
};

/* Serves them in engine steps of the engine's step_tokens. Returns 0, -EINVAL
 * (no such order, too many) or -ENOMEM. O(steps short prompts). */
[[nodiscard]] int cake_mix_run(const struct cake_mix *mix,
                               struct cake_mixed *mixed);

#endif
