/*
 * Requests of one timestamp in another order. Timestamps of published traces
 * are rounded, so nobody knows in which order those of one came: a seed draws
 * one that may have been.
 */
#ifndef TOOLS_REPLAY_TRACE_TIES_H
#define TOOLS_REPLAY_TRACE_TIES_H

#include <stddef.h>
#include <stdint.h>

#include "traces/random.h"
#include "traces/trace.h"

/* More of one timestamp are put into order in parts. */
#define REPLAY_TIES_MAX 4096

struct replay_ties {
    struct random_state random;
    struct trace_request *at; /* (capacity), n of one timestamp and the one
                                 behind them */
    size_t capacity;
    size_t n, given; /* of these, handed out */
    int ahead;       /* what reading the one behind them returned */
};

/* Starts with a seed; all zero before. */
void replay_ties_init(struct replay_ties *ties, uint64_t seed);

/* Frees what it owns. */
void replay_ties_fini(struct replay_ties *ties);

/* The next request, drawn from those that `next` reads with `arg`; as sim_io's
 * `next`. Returns what `next` did, or -ENOMEM. */
[[nodiscard]] int replay_ties_next(struct replay_ties *ties,
                                   int (*next)(void *arg,
                                               struct trace_request *request),
                                   void *arg, struct trace_request *request);

#endif
