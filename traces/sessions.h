/* Workloads made of sessions. The rate scales when sessions start; the pauses
 * between the turns of a session do not depend on it. So at another rate the
 * same sessions come, nearer to each other or farther apart. Internal to
 * traces/; the numbers are in kinds.c. */
#ifndef TRACES_SESSIONS_H
#define TRACES_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/generate.h"
#include "traces/quantile.h"

/* What the sessions of one kind are like. */
struct session_kind {
    /* How many prefixes there are, of which each session has one; the i-th is
     * drawn with weight 1 / i. 0: none. */
    uint32_t prefixes;
    struct quantile_table prefix_blocks;
    struct quantile_table first_tokens; /* own part of a first prompt */
    struct quantile_table turn_tokens;  /* what a later turn adds beside the
                                           last answer */
    struct quantile_table output_tokens;
    struct quantile_table turns;    /* requests of a session */
    struct quantile_table pause_ms; /* from an answer to the next turn */
    /* How much of a later prompt is the prompt before it, per mille: drawn
     * between these two. The rest is new, in place of turn_tokens. Both 0:
     * turn_tokens say how much is new. */
    uint32_t repeat_least, repeat_most;
    /* Each turn asks about the prefix and what the first prompt added to it,
     * and adds nothing to either. */
    bool asks;
    uint32_t input_max_tokens; /* a session ends before a longer prompt */
    /* In children_per_mille of 1,000 turns children_least to children_most sub-
     * agents of this kind start; the next turn waits for them. NULL: none. */
    const struct session_kind *children;
    uint32_t children_per_mille, children_least, children_most;
};

#define CURVE_SLOTS 24

/* How sessions of a kind start. */
struct session_stream {
    const struct session_kind *kind;
    uint32_t share_per_mille; /* of the requests of all streams */
    /* The rate in each hour of a day; its mean is 1,000. NULL: the same all
     * day. A day has day_requests requests of the workload, at any rate. */
    const uint16_t *curve; /* (CURVE_SLOTS) */
    /* How many sessions start together, and the mean gap between these, per
     * mille of the mean gap between all; 0: each starts alone. */
    struct quantile_table burst;
    uint32_t burst_gap_per_mille;
    /* The sessions of one burst share a prefix that no others have. */
    bool burst_shares;
};

#define SESSION_STREAMS_MAX 2

struct session_workload {
    struct trace_workload_facts facts;
    uint32_t day_requests;
    size_t n_streams;
    struct session_stream streams[SESSION_STREAMS_MAX]; /* (n_streams) */
};

/* The i-th workload, or NULL behind the last one. */
const struct session_workload *session_workload_at(size_t i);

/* A generator of a workload of sessions; trace_generator_new() and its like
 * (generate.h) call these functions. `rate` is above 0. NULL: no memory. */
struct sessions;
[[nodiscard]] struct sessions *
sessions_new(const struct session_workload *workload, uint64_t seed,
             double rate);
void sessions_free(struct sessions *sessions);
[[nodiscard]] int sessions_next(struct sessions *sessions,
                                struct trace_request *request);

#endif
