/* Workloads made of sessions. The rate scales the starts of sessions, not the
 * pauses between their turns: another rate gives the same sessions, closer
 * together or farther apart. Internal to traces/; the numbers are in
 * kinds.c. */
#ifndef TRACES_SESSIONS_H
#define TRACES_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/generate.h"
#include "traces/quantile.h"

/* Parameters of one kind of sessions. */
struct session_kind {
    /* Number of shared prefixes; each session draws one, the i-th with weight
     * 1 / i. 0 = none. */
    uint32_t prefixes;
    struct quantile_table prefix_blocks;
    struct quantile_table first_tokens; /* own part of a first prompt */
    struct quantile_table turn_tokens;  /* new text of a later turn */
    struct quantile_table output_tokens;
    struct quantile_table turns;    /* requests of a session */
    struct quantile_table pause_ms; /* from an answer to the next turn */
    /* Share of a later prompt that repeats the previous prompt, per mille:
     * drawn between these two; the rest is new. Both 0 = use turn_tokens. */
    uint32_t repeat_least, repeat_most;
    /* Each turn asks about the same text, the prefix and the first prompt's
     * own part; later prompts do not include earlier turns. */
    bool asks;
    uint32_t input_max_tokens; /* a session ends before a longer prompt */
    /* children_per_mille of 1,000 turns start children_least to children_most
     * sub-agents of this kind; the next turn waits for them. NULL = none. */
    const struct session_kind *children;
    uint32_t children_per_mille, children_least, children_most;
};

#define CURVE_SLOTS 24

/* The starts of the sessions of a kind. */
struct session_stream {
    const struct session_kind *kind;
    uint32_t share_per_mille; /* share of all streams' requests */
    /* Relative rate in each hour of a day, with mean 1,000. NULL = constant.
     * At any rate, a day lasts as long as day_requests of the workload. */
    const uint16_t *curve; /* (CURVE_SLOTS) */
    /* Sessions in a burst, and the mean gap within a burst, per mille of the
     * mean gap of all sessions; 0 = each starts alone. */
    struct quantile_table burst;
    uint32_t burst_gap_per_mille;
    /* The sessions of a burst share a prefix of their own. */
    bool burst_shares;
};

#define SESSION_STREAMS_MAX 2

struct session_workload {
    struct trace_workload_facts facts;
    uint32_t day_requests;
    size_t n_streams;
    struct session_stream streams[SESSION_STREAMS_MAX]; /* (n_streams) */
};

/* Returns the i-th workload, or NULL after the last one. */
const struct session_workload *session_workload_at(size_t i);

/* Makes a generator of a workload of sessions, for the functions of generate.h.
 * `rate` is above 0. Returns NULL: out of memory. */
struct sessions;
[[nodiscard]] struct sessions *
sessions_new(const struct session_workload *workload, uint64_t seed,
             double rate);
void sessions_free(struct sessions *sessions);
[[nodiscard]] int sessions_next(struct sessions *sessions,
                                struct trace_request *request);

#endif
