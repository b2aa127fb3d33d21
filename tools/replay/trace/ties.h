/*
 * Draws the order of requests with one timestamp. Published traces round their
 * timestamps, which hides the real order; each seed gives a possible one.
 */
#ifndef TOOLS_REPLAY_TRACE_TIES_H
#define TOOLS_REPLAY_TRACE_TIES_H

#include <stddef.h>
#include <stdint.h>

#include "traces/random.h"
#include "traces/trace.h"

/* Most requests of one timestamp ordered together. */
#define REPLAY_TIES_MAX 4096

struct replay_ties {
    struct random_state random;
    struct trace_request *at; /* (capacity): n with one timestamp, then the next
                                 one */
    size_t capacity;
    size_t n, given; /* with one timestamp; already returned */
    int ahead;       /* result of reading the next one */
};

/* Sets the seed of a zeroed struct. */
void replay_ties_init(struct replay_ties *ties, uint64_t seed);

/* Frees what it owns. */
void replay_ties_fini(struct replay_ties *ties);

/* Returns the next request in the drawn order, reading with `next` and `arg`;
 * usable as `next` of sim_io. Returns what `next` did, or -ENOMEM. */
[[nodiscard]] int replay_ties_next(struct replay_ties *ties,
                                   int (*next)(void *arg,
                                               struct trace_request *request),
                                   void *arg, struct trace_request *request);

#endif
