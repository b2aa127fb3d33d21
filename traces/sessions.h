/*
 * Workloads of sessions that live by their own clock: what starts is drawn from
 * a process that a rate scales, and the gaps within a session stay what they
 * are. At another rate the same sessions come, nearer to each other or farther
 * apart. Internal to traces/; the numbers are in kinds.c.
 */
#ifndef TRACES_SESSIONS_H
#define TRACES_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/generate.h"
#include "traces/quantile.h"

/* What the sessions of one kind are like. */
struct session_kind {
    /* The prefix that a session shares with others: one of `prefixes`, the
     * i-th drawn as 1 / i; 0: none. */
    uint32_t prefixes;
    struct quantile_table prefix_blocks;
    struct quantile_table first_tokens; /* own part of a first prompt */
    struct quantile_table turn_tokens;  /* what a later turn adds beside the
                                           last answer */
    struct quantile_table output_tokens;
    struct quantile_table turns;    /* requests of a session */
    struct quantile_table pause_ms; /* from an answer to the next turn */
    /* Of a prompt that is the turn before, per mille: drawn between both, in
     * place of turn_tokens; all 0: it is not. */
    uint32_t repeat_least, repeat_most;
    /* Each turn asks about the prefix and what the first prompt added to it,
     * and adds nothing to either. */
    bool asks;
    uint32_t input_max_tokens; /* a session ends before a longer prompt */
    /* Sessions that a turn starts beside its own, in so many of 1,000 turns;
     * their number. The turn after it waits for them. */
    const struct session_kind *children;
    uint32_t children_per_mille, children_least, children_most;
};

#define CURVE_SLOTS 24

/* How sessions of a kind start. */
struct session_stream {
    const struct session_kind *kind;
    uint32_t share_per_mille; /* of the requests of all streams */
    /* The rate by the hour of a day, 1,000: its mean. NULL: even. A day has
     * day_requests of the workload, whatever its rate is. */
    const uint16_t *curve; /* (CURVE_SLOTS) */
    /* Sessions that start together, and the mean gap between them as a share of
     * that between all; 0: they start alone. */
    struct quantile_table burst;
    uint32_t burst_gap_per_mille;
    /* Those of one burst share a prefix of their own. */
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

/* A generator of a workload: see generate.h, whose functions of a generator
 * these stand behind. `rate` is above 0. NULL: no memory. */
struct sessions;
[[nodiscard]] struct sessions *
sessions_new(const struct session_workload *workload, uint64_t seed,
             double rate);
void sessions_free(struct sessions *sessions);
[[nodiscard]] int sessions_next(struct sessions *sessions,
                                struct trace_request *request);

#endif
