/*
 * Decides what becomes of a request: send it, let it wait for room, or reject
 * it; and when a request is tried again after a failure. The daemon and the
 * simulator report events, and carry out the orders that come back. Pure: time
 * is an argument.
 *
 * First come, first served: while a request waits, later ones wait behind it,
 * and are rejected at once only if no instance could ever serve them. When room
 * may have appeared, the oldest are tried until one finds none. Where the
 * policy's option bypass is B above 0, younger ones are, too, each that needs
 * less room to decode than all that found none in this round (by sizes, a
 * quarter of a power of two wide). They pass the oldest until its TTFT SLO is
 * over or, without one, it has waited for queue_implied_us() of its own
 * prefill; and until those sent since it is the oldest have taken B times the
 * room that it needs. Then it is its turn. Who needs no room to decode stands
 * behind nobody who waits for that. Who waits for the room of one instance
 * (schedule_room()) is not tried before that has more.
 *
 * Who may go to some instances alone (reach.h), as those of a LoRA adapter,
 * holds up those of the same instances, and besides only who would take
 * something there: a younger request that goes elsewhere passes, and what it
 * takes is not counted.
 *
 * Cost of a round, besides who is sent: at most DISPATCH_SIZES decisions and
 * twice DISPATCH_LOOK and DISPATCH_REACHES, a few as a rule, however many wait;
 * each try O(DISPATCH_SIZES). Who waits for a link, for the room of one
 * instance or for instances that others found full is walked over.
 *
 * Who waits for a link (schedule_waits_for_link()) holds up only those who may
 * have to do so, too: not who has no SLO for it, nor who waits for room.
 *
 * Once a second tenant or a priority was seen (share.h), tenants are tried in
 * turn, the one with the least used of its share first, each with its request
 * of the earliest priority. A request whose tenant had its share, or sent
 * earlier priorities, is placed behind short queues only: else it waits here,
 * or is refused if it has a TTFT SLO. So those who had less find room, in
 * whatever order instances serve. Where one waits for room to decode, those
 * take none whose turn is later by more than 2 s of all instances: what one
 * needs would else go to others in small pieces for ever.
 *
 * Invariants: a request is in the wait list exactly from an order to wait
 * until the next order for it or dispatch_forget(); next_expiry_us is at most
 * the time at which the first waiting request misses its SLO.
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
    TAILQ_ENTRY(dispatch_request) by_size; /* of those that need as much room */
    void *owner;                           /* the shell's */
    /* Set once: keys, lengths, slo_tbt_us; for each attempt: request_id. The
     * rest is written by each decision. */
    struct schedule_request ask;
    int64_t arrived_us;
    int64_t slo_ttft_us; /* from arrival on; 0: none */
    int64_t slo_tbt_us;  /* 0: none */
    int64_t passage_us;  /* part of its TTFT that comes after what core
                            estimates */
    bool may_hold;       /* its shell can hold its first token back */
    uint64_t length_key; /* of tenant and model, whose answers' lengths its own
                            is expected by */
    uint64_t tenant;     /* a number of its key; 0: it has none */
    double weight;       /* of the tenant, above 0; 0: 1 */
    int32_t priority;    /* the lowest comes first among its tenant's */
    uint32_t place;      /* of the tenant, in the shares */
    double charged_us;   /* to its tenant, for the last instance it was given;
                            without predictions tokens */
    double charged_decode_us; /* likewise, for its room to decode */
    int64_t charged_length;   /* of its answer, as it was expected */
    int64_t charged_at_us;
    double standing; /* of the tenant, when it was decided on; 0: shares do
                        not matter */
    struct line_node line;
    struct schedule_room room; /* that it waits for */
    uint32_t retries;
    uint32_t reach; /* its place in the dispatch's `reach`, while it waits */
    int64_t patient_until_us; /* absolute: until then others may pass it,
                                 whatever room they take */
    uint32_t size;  /* of the room to decode that it waits with; 0: none */
    bool for_link;  /* it waits for a link, or behind those alone who do */
    bool for_queue; /* for a place in a queue, not for room to decode */
    bool behind;    /* it would be accepted, but others were there before */
    bool priced;    /* its price was asked */
    bool accepted;  /* it was accepted once; from then on no SLO applies */
    bool waits;
    uint32_t excluded[SCHEDULE_EXCLUDE_MAX]; /* instances that failed it, a ring
                                              */
    size_t n_excluded;                       /* ever put into it */
};

TAILQ_HEAD(dispatch_list, dispatch_request);

/* Until when, absolute, a first token is held back that waits for its KV
 * (schedule_decision.holds): a 64th of its TTFT SLO before that is over, for
 * its way to the client. */
static inline int64_t dispatch_holds_until_us(const struct dispatch_request *r)
{
    return r->arrived_us + r->slo_ttft_us - r->slo_ttft_us / 64;
}

/* Sizes of room to decode: quarters of powers of two. */
#define DISPATCH_SIZES 64

struct dispatch {
    struct scheduler *scheduler; /* borrowed; NULL: no instance yet */
    struct dispatch_list waiting;
    struct dispatch_list sizes[DISPATCH_SIZES]; /* the same, by what they need
                                                 */
    uint64_t n_waiting;
    uint64_t n_for_link;  /* of them, who wait for a link */
    uint64_t n_for_queue; /* and for a place in a queue */
    struct reach reach;   /* where they may go */
    bool room;            /* room was freed since the last round began */
    bool for_link;        /* some wait for a link, since the last round began */
    bool keeps;    /* of a round: its instance has room for the oldest alone */
    bool in_round; /* waiting requests are being tried */
    struct dispatch_request *next[DISPATCH_SIZES]; /* in_round: the next one of
                                                      each size; NULL: none */
    uint32_t limit;    /* of this round: sizes from here on find no room */
    uint32_t n_missed; /* that found none in this round, for other reasons */
    uint32_t n_link_missed;     /* or had to wait for a link still */
    int64_t passed_tokens;      /* of those that were sent past the oldest */
    struct lengths lengths;     /* of answers */
    struct forecasts forecasts; /* what came of predicted TTFTs */
    struct share share;         /* of tenants */
    struct line_node *lines[SHARE_TENANTS]; /* who waits, for each of them */
    bool missed[SHARE_TENANTS]; /* whose first found no room in this round */
    double last_turn_us;  /* later turns get no room to decode in this round */
    uint64_t n_waited;    /* ever put into the wait list */
    uint64_t n_decisions; /* ever asked of the scheduler */
    int64_t next_expiry_us;
    int64_t limitless_us; /* when a request without a TTFT SLO last came;
                             INT64_MIN: none did */
    int64_t overhead_us;  /* of a TTFT, outside queue and prefill: hand-over */
    uint32_t max_retries;
    bool unpredicted; /* estimates hold counts, not times: they reject no
                         request, and an SLO applies only to waiting ones */
};

/* Requests that find no place in a queue in one round, or no room on one
 * instance, before it ends; and that have to wait for a link still. */
#define DISPATCH_LOOK 8

enum dispatch_action { DISPATCH_SEND, DISPATCH_WAIT, DISPATCH_REJECT };

enum dispatch_reason {
    DISPATCH_NO_REASON,       /* it is not refused */
    DISPATCH_MISSES_TTFT,     /* no choice within its SLO */
    DISPATCH_MISSES_TBT,      /* likewise */
    DISPATCH_PRICE,           /* its price is above the limit */
    DISPATCH_SHARE,           /* it gives way to others' shares; such a one
                                 may also be told to wait */
    DISPATCH_NO_PREFILL,      /* no prefill instance is ready */
    DISPATCH_NO_DECODE,       /* no decode instance is ready */
    DISPATCH_TOO_LONG,        /* longer than any ready instance's KV */
    DISPATCH_NO_ROOM,         /* and none expected within its TTFT SLO */
    DISPATCH_WAITED_TOO_LONG, /* no room came within its TTFT SLO */
    DISPATCH_LINK_BUSY,       /* nor was the link free that it waited for */
};

/* What to do with a request. */
struct dispatch_order {
    enum dispatch_action action;
    enum dispatch_reason reason; /* of a refusal; DISPATCH_SHARE of a wait */
    int64_t retry_after_us;      /* refused: as in the decision; 0: not known */
    struct forecast forecast;    /* of its TTFT, without the passage */
    bool decided; /* the scheduler was asked; else decision is its verdict */
    /* As it was decided, committed if it is to be sent. */
    struct schedule_decision decision;
};

/* dispatch_init(d): no scheduler, nobody waits, no retries. */
void dispatch_init(struct dispatch *d);

/* Orders what to do with a request that has arrived, or is to be tried again.
 * Cost: a decision, see schedule_decide(). */
void dispatch_place(struct dispatch *d, struct dispatch_request *request,
                    int64_t now_us, struct dispatch_order *order);

/* dispatch_freed(d): a place, memory or an instance has become free. The next
 * dispatch_next() tries the waiting requests. */
void dispatch_freed(struct dispatch *d);

/* dispatch_link_freed(d): a link to a decode instance has less to bring. The
 * same, if any waits for one. */
void dispatch_link_freed(struct dispatch *d);

/*
 * The next order for a waiting request: first for those whose TTFT SLO has
 * passed, unless late requests are admitted; then, after dispatch_freed() or
 * dispatch_link_freed(), for the oldest, if it finds room or never will. The
 * caller carries it out and asks again.
 * Returns the request, which no longer waits; NULL: there is no order.
 */
struct dispatch_request *dispatch_next(struct dispatch *d, int64_t now_us,
                                       struct dispatch_order *order);

/* The first token of a request has come, ttft_us after its arrival, that was
 * given an order with this forecast: the next ones are as sure as it was. */
void dispatch_first_token(struct dispatch *d, const struct forecast *forecast,
                          int64_t ttft_us);

/* A request's answer has ended by itself, with so many tokens: what comes is
 * expected to be as long. */
void dispatch_answered(struct dispatch *d,
                       const struct dispatch_request *request,
                       int64_t output_tokens);

/*
 * What an accepted request was is known: an instance had to compute so many
 * tokens, where it was decided on as if they were `guessed`, at least 1. Its
 * tenant is charged for the rest, or given back what was too much.
 */
void dispatch_told(struct dispatch *d, struct dispatch_request *request,
                   int64_t guessed, int64_t computed, int64_t now_us);

/* The answer of an accepted request has ended by itself, with so many tokens:
 * its tenant is charged for the room that it took, not for what was expected.
 */
void dispatch_decoded(struct dispatch *d, struct dispatch_request *request,
                      int64_t output_tokens, int64_t now_us);

/* dispatch_forget(d, request): it has ended, waiting or not. Requests behind it
 * may find the room that it lacked. */
void dispatch_forget(struct dispatch *d, struct dispatch_request *request);

/* An instance is not to be chosen for a request again, if there is another. */
void dispatch_exclude(struct dispatch_request *request, uint32_t instance);

/*
 * An instance that works for an accepted request has failed.
 *   blamed   pool id, which is not chosen again while there are others;
 *            POOL_NO_INSTANCE: it is gone anyway.
 *   answers  the client already has tokens of the answer.
 * Returns whether it may be placed again; else it fails for good.
 */
bool dispatch_failed(const struct dispatch *d, struct dispatch_request *request,
                     uint32_t blamed, bool answers);

#endif
