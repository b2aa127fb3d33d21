/*
 * The process of the Cake paper with varying resources, for which no plan can
 * be made: an engine that steps, and a loader whose bandwidth changes. Two
 * experiments. Simulated, with the costs of a struct cake_engine of utilisation
 * 1. Pure.
 */
#ifndef TOOLS_REPLAY_PAPER_CAKE_PROCESS_H
#define TOOLS_REPLAY_PAPER_CAKE_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "tools/replay/paper/cake/model.h"

/* Most points recorded of the two pointers. */
#define CAKE_COURSE_POINTS 512

/* The engine draws its tokens for the prompt before every step; the link draws
 * its bandwidth every period. The same seed gives every way of filling the
 * cache the same draws. */
struct cake_fluctuation {
    const struct cake_engine *engine; /* borrowed; utilisation 1 */
    int64_t budget_max_tokens;        /* uniform in 0 .. this, at least 1 */
    double gbps_max;                  /* uniform in 0 .. this, above 0 */
    double period_s;                  /* of the link, above 0 */
    uint64_t seed;
    int64_t split_tokens; /* computed part of a plan made from the means */
};

/* Seconds to the first token of a fully cached prompt. */
struct cake_fluctuated {
    double compute_s;   /* computed alone */
    double load_s;      /* loaded alone */
    double split_s;     /* computed up to split_tokens, the rest loaded */
    double cake_s;      /* two pointers that stop where they meet */
    double ideal_s;     /* like cake_s, without steps, pieces and last step */
    int64_t met_tokens; /* tokens computed when they met */
    /* The pointers at the start, and at the ends of the first steps. */
    size_t n_course;
    double course_s[CAKE_COURSE_POINTS];
    double computed_tokens[CAKE_COURSE_POINTS]; /* from the front */
    double unloaded_tokens[CAKE_COURSE_POINTS]; /* from here on all tokens are
                                                   loaded */
};

/* Runs all ways. Returns 0, or -ERANGE if one takes more than a day. Linear in
 * steps and periods. */
[[nodiscard]] int cake_fluctuate(const struct cake_fluctuation *f,
                                 struct cake_fluctuated *r);

#define CAKE_SHORT_MAX 1000

/* A fully cached prompt, followed by short prompts that are not cached, all
 * present from the start. */
struct cake_mix {
    const struct cake_engine *engine; /* borrowed; utilisation 1 */
    const int64_t *short_tokens;      /* (n_short), borrowed, each above 0 */
    size_t n_short;                   /* at most CAKE_SHORT_MAX */
    const char *order;                /* name in conductor/core/queue */
};

struct cake_mixed {
    double done_s;          /* end of the last prompt */
    double cached_s;        /* first token of the cached prompt */
    double short_mean_s;    /* mean first token of the short prompts */
    double computed_tokens; /* of the cached prompt */
    double tokens_per_s;    /* prompt tokens of all / done_s */
};

/* Serves the prompts in steps of the engine's step_tokens. Returns 0, -EINVAL
 * (unknown order, too many prompts) or -ENOMEM. O(steps short prompts). */
[[nodiscard]] int cake_mix_run(const struct cake_mix *mix,
                               struct cake_mixed *mixed);

#endif
