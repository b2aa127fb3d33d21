/*
 * A request as the scheduler sees it, and the decision on it: data only.
 */
#ifndef CONDUCTOR_CORE_SCHEDULE_DECISION_H
#define CONDUCTOR_CORE_SCHEDULE_DECISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/index/prefix_index.h"
#include "conductor/core/plan/estimate.h"
#include "conductor/core/plan/load_plan.h"

#define SCHEDULE_EXCLUDE_MAX 8
/* Most peers that a plan loads from, and most sources of it in all. */
#define SCHEDULE_PEERS_MAX 3
#define SCHEDULE_SOURCES_MAX (SCHEDULE_PEERS_MAX + LOAD_TIERS)

/* Most instances lent to one prefill; tokens of a chunk between stages. */
#define SCHEDULE_LENT_MAX 15
#define SCHEDULE_CHUNK_TOKENS 512
/* Most time of a group, or its links, as a share of the leader's time alone. */
#define SCHEDULE_LEND_GAIN 0.9

/* Tokens of a piece of work on unknown prompts. */
#define SCHEDULE_PIECE_TOKENS 8192

struct schedule_request {
    uint64_t request_id;
    const uint64_t *keys; /* (n_keys), of its full blocks; borrowed */
    size_t n_keys;
    int64_t n_tokens;          /* of the prompt, at least 1 */
    int64_t max_output_tokens; /* at least 1; 1 needs no decode */
    uint32_t whole; /* a bit per group whose pairs must not split the request:
                       one instance does all */
    int64_t expected_tokens; /* predicted output; 0 = unknown */
    int64_t median_tokens;   /* median of the predicted output; 0 = unknown */
    int64_t slo_ttft_us;     /* rest of the SLO from now; 0 = no SLO */
    int64_t waited_us;       /* since arrival, not part of slo_ttft_us */
    int64_t slo_tbt_us;      /* 0 = none */
    bool may_hold;           /* its first token can wait for its KV */
    uint64_t n_held;         /* requests waiting in the conductor */
    int64_t due_us; /* absolute: due time of the first token of a request that
                       was accepted before and is no longer refused (slo_ttft_us
                       is 0); 0 = no SLO, or late anyway */
    double price_times;    /* factor on its price */
    int64_t queue_most_us; /* longest queue allowed; 0 = any. Only plan */
    int64_t now_us;
    uint32_t session; /* pool id of the instance that served its session last,
                         slightly preferred by plan; POOL_NO_INSTANCE: none */
    uint32_t only;    /* pool id of the one instance that may take it;
                         POOL_NO_INSTANCE: any */
    const uint64_t *eligible; /* (max_instances / 64, rounded up), borrowed: a
                                 bit per slot whose instance may serve the
                                 request or send blocks; may change between
                                 decisions; NULL = all */
    /* Pool ids that failed this request: neither chosen nor fetched from. */
    uint32_t exclude[SCHEDULE_EXCLUDE_MAX];
    size_t n_exclude;
};

/* Returns when queues count the first token as due, absolute; 0 = never. */
int64_t schedule_deadline_us(const struct schedule_request *request);

/* Returns this time for plan's instance: earlier by the plan's last step, which
 * other prompts may share, as far as the plan still meets it. */
int64_t schedule_due_us(const struct schedule_request *request,
                        const struct prefill_estimate *plan);

enum schedule_verdict {
    SCHEDULE_ACCEPT,
    SCHEDULE_REJECT_TTFT,         /* no choice within the TTFT SLO */
    SCHEDULE_REJECT_TBT,          /* no choice within the TBT SLO */
    SCHEDULE_REJECT_PRICE,        /* too much work for the KV it leaves */
    SCHEDULE_REJECT_SHARE,        /* from dispatch: other tenants had less */
    SCHEDULE_NO_PREFILL_INSTANCE, /* no large enough instance is ready */
    SCHEDULE_NO_DECODE_INSTANCE,  /* no large enough instance is ready */
    SCHEDULE_DECODE_FULL,         /* no decode instance has room now */
    SCHEDULE_LINK_BUSY,           /* too much other KV on the way to decode */
    SCHEDULE_QUEUE_FULL,          /* every prefill queue is at its bound */
    SCHEDULE_TOO_LONG,            /* longer than any instance's KV */
};
#define SCHEDULE_VERDICTS 11

/* A source of blocks [from_block, to_block) of a prompt: another instance, or a
 * slow tier of the prefill instance itself. */
struct schedule_source {
    uint32_t instance;    /* pool id; for an own tier the prefill instance */
    enum block_tier tier; /* own tier; of a peer the slowest one read */
    uint32_t from_block;
    uint32_t to_block;
};

/* Idle instances that compute shares of a prompt's layers behind the chosen
 * one: see lend.c. */
struct schedule_lent {
    uint32_t n;
    uint32_t members[SCHEDULE_LENT_MAX]; /* pool ids */
    double share; /* time of a chunk's longest stage / on one instance */
};

/* The chosen instances, and why. Pool ids are POOL_NO_INSTANCE if none is
 * chosen. */
struct schedule_decision {
    enum schedule_verdict verdict;
    uint32_t prefill; /* pool id; also set if an SLO rejects */
    uint32_t decode;  /* pool id; may equal prefill; none for 1 output token */
    struct prefill_estimate chosen; /* its estimate; all 0 = none chosen */
    uint32_t stored_blocks;         /* how many of chosen.local_blocks were
                                       reported; the others are expected */
    /* If chosen.planned: the plan. Its source indices refer to sources[]. */
    struct load_plan plan;
    struct schedule_source sources[SCHEDULE_SOURCES_MAX];
    size_t n_sources;
    struct schedule_lent lent; /* if lent.n > 0, chosen has the group's times */
    double engine_price; /* if planned: seconds that other requests wait per
                            second of engine time, as estimated */
    double evicted_us;   /* if planned: cost of each token that a candidate
                            evicts, engine price included */
    int64_t equal_us;    /* if planned: scores that differ by no more count as
                            equal */
    int64_t tbt_us;      /* of decode; 0 = none */
    int64_t behind_us;   /* by which other KV delays its own on the link */
    int64_t gap_us;      /* from its prefill's end until its KV has come */
    bool holds;          /* its first token waits for its KV */
    int64_t hold_us;     /* predicted delay of the first token */
    int64_t n_slowed;    /* token intervals that share such a wait in tbt_us */
    double price_us;     /* from schedule_price(): its price, 0 = none; and the
                            limit, 0 = none */
    double price_limit_us;
    int64_t retry_after_us; /* if rejected: time until it would fit, with
                               further arrivals for a missed TTFT or a price,
                               else without; -1 = never or unknown */
    bool never;             /* rejected for its TTFT, which even empty queues
                               and the full SLO would not meet */
    int64_t tested_us;      /* from now: time tested against the TTFT SLO, the
                               TTFT if every prefill allowed to pass it does; 0
                               = not tested */
    /* Every ready instance estimated, by slot. Borrowed from the scheduler
     * until its next schedule_decide(). */
    const struct prefill_estimate *candidates;
    size_t n_candidates;
    const struct decode_estimate *decode_candidates;
    size_t n_decode_candidates;
};

/* Returns the time that the chosen prefill takes of instances, us; with lent
 * ones the group's time, times the number of its instances. */
static inline int64_t schedule_spent_us(const struct schedule_decision *d)
{
    return d->chosen.prefill_us * (1 + (int64_t)d->lent.n);
}

#endif
