/*
 * Decides what becomes of a request: send it, let it wait for room, or reject
 * it; and when a request is tried again after a failure. The daemon and the
 * simulator report events, and carry out the orders that come back. Pure: time
 * is an argument.
 *
 * First come, first served: while a request waits, later ones wait behind it,
 * and are rejected at once only if no instance could ever serve them. When room
 * may have appeared, a round tries the oldest requests until one finds none.
 * With the policy's option bypass = B above 0 it goes on with younger requests,
 * each that needs less room to decode than all that found none (by sizes, a
 * quarter of a power of two wide). These pass the oldest until two things have
 * happened: its TTFT SLO is over or, without one, it has waited for
 * queue_implied_us() of its own prefill; and requests sent past it have taken B
 * times the room that it needs. Then it is its turn. A request that needs no
 * room to decode waits behind none that does. A request that waits for the room
 * of one instance (schedule_room()) is tried again only when that has more.
 *
 * A request that only some instances may serve (reach.h), such as those with
 * its LoRA adapter, holds up requests for the same instances, and others only
 * if they would take something there: a younger request that goes elsewhere
 * passes, and what it takes is not counted.
 *
 * Cost of a round, sent requests aside: at most DISPATCH_SIZES + 2
 * DISPATCH_LOOK + DISPATCH_REACHES decisions, a few as a rule, however many
 * requests wait; each try O(DISPATCH_SIZES). Requests for a link, for the room
 * of one instance or for instances found full are walked over.
 *
 * A request that waits for a link (schedule_waits_for_link()) holds up only
 * requests that may have to wait for one, too: none without both SLOs, and none
 * that waits for room.
 *
 * Once a second tenant or a priority was seen (share.h), tenants are tried in
 * turn, the one with the least used of its share first, each with its request
 * of the earliest priority. A request whose tenant had its share, or sent
 * earlier priorities, is placed behind short queues only: else it waits here,
 * or is refused if it has a TTFT SLO. So tenants that had less find room, in
 * whatever order instances serve. While one waits for room to decode, requests
 * whose turn is later by more than 2 s of all instances take none: else its
 * room would go to others in small pieces for ever.
 *
 * Invariants: a request is in the wait list exactly from an order to wait until
 * the next order for it or dispatch_forget(); next_expiry_us is at most the
 * time at which the first waiting request misses its SLO.
 */
#ifndef CONDUCTOR_CORE_DISPATCH_DISPATCH_H
#define CONDUCTOR_CORE_DISPATCH_DISPATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "conductor/core/dispatch/line.h"
#include "conductor/core/dispatch/reach.h"
#include "conductor/core/observation/forecast.h"
#include "conductor/core/observation/lengths.h"
#include "conductor/core/schedule/schedule.h"
#include "conductor/core/share/share.h"

/* A request that has not ended; the caller keeps it. */
struct dispatch_request {
    TAILQ_ENTRY(dispatch_request) entry;   /* of the wait list */
    TAILQ_ENTRY(dispatch_request) by_size; /* of the list of its size */
    void *owner;                           /* the shell's */
    /* The caller sets keys and lengths once, request_id for each attempt; each
     * decision sets times, SLOs and excluded instances. */
    struct schedule_request ask;
    int64_t arrived_us;
    int64_t slo_ttft_us; /* from arrival on; 0 = none */
    int64_t slo_tbt_us;  /* 0 = none */
    int64_t passage_us;  /* transit, which core does not estimate */
    bool may_hold;       /* the caller can delay its first token */
    uint64_t length_key; /* of tenant and model: answers with the same key
                            predict this one's length */
    uint64_t tenant;     /* a number made of the tenant's key; 0 = none */
    double weight;       /* of the tenant, above 0; 0 counts as 1 */
    int32_t priority;    /* lowest first among its tenant's requests */
    uint32_t place;      /* of its tenant in dispatch.share */
    double charged_us;   /* prefill charged to its tenant for the last attempt,
                            in us; in tokens if there are no predictions */
    double charged_decode_us; /* the same for its room to decode */
    int64_t charged_length;   /* charged length of the answer, tokens */
    int64_t charged_at_us;
    double standing; /* its tenant's standing at the decision; 0 = no shares */
    struct line_node line;
    struct schedule_room room; /* room it waits for */
    uint32_t retries;
    uint32_t reach;           /* its place in dispatch.reach while it waits */
    int64_t patient_until_us; /* absolute: until then younger requests may take
                                 any room */
    uint32_t size;            /* held_size() of its room to decode; 0 = none */
    bool for_link;  /* it waits for a link, or behind a request that does */
    bool for_queue; /* it waits for a shorter queue, not for room to decode */
    bool behind;    /* it waits only because older requests do */
    bool priced;    /* its price was asked */
    bool accepted;  /* it was accepted before, so no SLO refuses it */
    bool waits;
    uint32_t excluded[SCHEDULE_EXCLUDE_MAX]; /* instances that failed it: a
                                                ring */
    size_t n_excluded;                       /* failures in all */
};

TAILQ_HEAD(dispatch_list, dispatch_request);

/* Returns the absolute time until which a first token may be held back for its
 * KV (schedule_decision.holds): when 1/64 of its TTFT SLO is left, to reach the
 * client. */
static inline int64_t dispatch_holds_until_us(const struct dispatch_request *r)
{
    return r->arrived_us + r->slo_ttft_us - r->slo_ttft_us / 64;
}

/* Sizes of room to decode: quarters of powers of two. */
#define DISPATCH_SIZES 64

struct dispatch {
    struct scheduler *scheduler; /* borrowed; NULL: no instance yet */
    struct dispatch_list waiting;
    struct dispatch_list sizes[DISPATCH_SIZES]; /* waiting requests by size */
    uint64_t n_waiting;
    uint64_t n_for_link;  /* waiting requests with for_link */
    uint64_t n_for_queue; /* waiting requests with for_queue */
    struct reach reach;   /* instances that waiting requests may use */
    bool room;            /* room was freed since the last round began */
    bool for_link; /* since the last round began, a request was ordered to wait
                      for a link */
    bool keeps;    /* in_round: room of an instance is kept for the oldest */
    bool in_round; /* waiting requests are being tried */
    struct dispatch_request *next[DISPATCH_SIZES]; /* in_round: next request of
                                                      each size; NULL = none */
    uint32_t limit;         /* of this round: sizes from here on lack room */
    uint32_t n_missed;      /* in_round: requests without room, by no size */
    uint32_t n_link_missed; /* in_round: requests still waiting for a link */
    int64_t passed_tokens;  /* tokens taken by requests sent past the oldest */
    struct lengths lengths; /* of answers */
    struct forecasts forecasts;             /* how predicted TTFTs came true */
    struct share share;                     /* of tenants */
    struct line_node *lines[SHARE_TENANTS]; /* first request of each tenant */
    bool missed[SHARE_TENANTS]; /* in_round: the first request found no room */
    double last_turn_us;  /* later turns get no room to decode in this round */
    uint64_t n_waited;    /* requests placed so far: gives line.seq */
    uint64_t n_decisions; /* decisions so far */
    int64_t next_expiry_us;
    int64_t limitless_us; /* arrival of the latest request without a TTFT SLO;
                             INT64_MIN = none came */
    int64_t overhead_us;  /* hand-over, in a TTFT beside queue and prefill */
    uint32_t max_retries;
    bool unpredicted; /* estimates are counts, not times: they refuse no
                         request, and an SLO applies only to requests that
                         wait */
};

/* Most requests that a round tries without finding a place in a queue or room
 * on their only instance; also most that it tries for a link. */
#define DISPATCH_LOOK 8

enum dispatch_action { DISPATCH_SEND, DISPATCH_WAIT, DISPATCH_REJECT };

enum dispatch_reason {
    DISPATCH_NO_REASON,       /* not refused */
    DISPATCH_MISSES_TTFT,     /* no choice meets its TTFT SLO */
    DISPATCH_MISSES_TBT,      /* no choice meets its TBT SLO */
    DISPATCH_PRICE,           /* its price is above the limit */
    DISPATCH_SHARE,           /* it gives way to other tenants */
    DISPATCH_NO_PREFILL,      /* no prefill instance is ready */
    DISPATCH_NO_DECODE,       /* no decode instance is ready */
    DISPATCH_TOO_LONG,        /* longer than any ready instance's KV */
    DISPATCH_NO_ROOM,         /* no room, none expected within its SLO */
    DISPATCH_WAITED_TOO_LONG, /* no room came within its TTFT SLO */
    DISPATCH_LINK_BUSY,       /* its link was not free within its TTFT SLO */
    DISPATCH_REASONS,
};

/* How a refused request ends: rejected for the load or its own limits, or
 * failed. */
struct dispatch_refusal {
    bool rejects;
    const char *name; /* in reports; NULL = the verdict's */
};

/* Returns how; static. */
const struct dispatch_refusal *dispatch_refusal(enum dispatch_reason reason);

/* The decision about a request, for the caller to carry out. */
struct dispatch_order {
    enum dispatch_action action;
    enum dispatch_reason reason; /* of a refusal, or DISPATCH_SHARE */
    int64_t retry_after_us;      /* of a refusal: when to retry; 0 = unknown */
    struct forecast forecast;    /* of its TTFT, without transit */
    bool decided;                /* false: the scheduler was not asked */
    /* Committed if action is DISPATCH_SEND. */
    struct schedule_decision decision;
};

/* dispatch_init(d): starts without scheduler, waiting requests and retries. */
void dispatch_init(struct dispatch *d);

/* Decides about a request that has arrived, or is to be tried again. Cost: a
 * decision, see schedule_decide(). */
void dispatch_place(struct dispatch *d, struct dispatch_request *request,
                    int64_t now_us, struct dispatch_order *order);

/* dispatch_freed(d): reports that a place, memory or an instance is free. The
 * next dispatch_next() tries the waiting requests. */
void dispatch_freed(struct dispatch *d);

/* dispatch_link_freed(d): reports that a link to a decode instance has less KV
 * to bring. Like dispatch_freed(), if a request waits for a link. */
void dispatch_link_freed(struct dispatch *d);

/*
 * Gives the next order for a waiting request: first for those whose TTFT SLO
 * has passed, unless late requests are admitted; then, after dispatch_freed()
 * or dispatch_link_freed(), for the oldest that finds room or never will. The
 * caller carries it out and asks again.
 * Returns the request, which no longer waits; NULL: there is no order.
 */
struct dispatch_request *dispatch_next(struct dispatch *d, int64_t now_us,
                                       struct dispatch_order *order);

/* Records that a first token came ttft_us after arrival, where an order had
 * this forecast: later forecasts learn from it. */
void dispatch_first_token(struct dispatch *d, const struct forecast *forecast,
                          int64_t ttft_us);

/* Records the length of an answer that ended by itself: it predicts later ones
 * of the same length_key. */
void dispatch_answered(struct dispatch *d,
                       const struct dispatch_request *request,
                       int64_t output_tokens);

/* Corrects a tenant's charge for an accepted request: it computed `computed`
 * prompt tokens, where its decision assumed `guessed`, at least 1. */
void dispatch_told(struct dispatch *d, struct dispatch_request *request,
                   int64_t guessed, int64_t computed, int64_t now_us);

/* Corrects a tenant's charge for an accepted request's room to decode: its
 * answer has ended by itself, with this length. */
void dispatch_decoded(struct dispatch *d, struct dispatch_request *request,
                      int64_t output_tokens, int64_t now_us);

/* dispatch_forget(d, request): removes a request that has ended, waiting or
 * not. Requests behind it may now find room. */
void dispatch_forget(struct dispatch *d, struct dispatch_request *request);

/* Keeps an instance from a request's next choices, unless it is the last. */
void dispatch_exclude(struct dispatch_request *request, uint32_t instance);

/*
 * Reports that an instance failed an accepted request.
 *   blamed   pool id, not chosen again while there are others; POOL_NO_INSTANCE
 *            = it is gone.
 *   answers  the client already has tokens of the answer.
 * Returns whether it may be placed again; else it fails for good.
 */
bool dispatch_failed(const struct dispatch *d, struct dispatch_request *request,
                     uint32_t blamed, bool answers);

#endif
