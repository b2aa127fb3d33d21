/*
 * From a request's arrival to the order what to do with it: send it, let it
 * wait for room, or refuse it; and who is tried again when, after what failed.
 * The daemon and the simulator tell events and carry the orders out. Pure: the
 * time is an argument.
 *
 * First come, first served: while somebody waits, whoever comes later waits
 * behind, and is refused at once only if nothing could ever serve him. When
 * room may have appeared, the oldest are tried until one finds none.
 *
 * Invariants: a request is in the wait list exactly from an order to wait
 * until the next order for it or dispatch_forget(); next_expiry_us is not
 * above the time at which the first of the waiting misses its SLO.
 */
#ifndef CONDUCTOR_CORE_DISPATCH_DISPATCH_H
#define CONDUCTOR_CORE_DISPATCH_DISPATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "conductor/core/schedule/schedule.h"

/* A request as long as it is not ended; the shell keeps it. */
struct dispatch_request {
    TAILQ_ENTRY(dispatch_request) entry; /* of the wait list */
    void *owner;                         /* the shell's */
    /* Set once: keys, lengths, slo_tbt_us; for each attempt: request_id. The
     * rest is written by each decision. */
    struct schedule_request ask;
    int64_t arrived_us;
    int64_t slo_ttft_us; /* from arrival on; 0: none */
    int64_t slo_tbt_us;  /* 0: none */
    int64_t passage_us;  /* of its TTFT, behind what the core estimates */
    uint32_t retries;
    bool accepted; /* once; from then on it is held to no SLO */
    bool waits;
    uint32_t excluded[SCHEDULE_EXCLUDE_MAX]; /* what failed it, a ring */
    size_t n_excluded;                       /* ever put into it */
};

TAILQ_HEAD(dispatch_list, dispatch_request);

struct dispatch {
    struct scheduler *scheduler; /* borrowed; NULL: no instance yet */
    struct dispatch_list waiting;
    uint64_t n_waiting;
    bool room;            /* something was freed since the last round began */
    bool in_round;        /* those who wait are being tried */
    uint64_t n_decisions; /* ever asked of the scheduler */
    int64_t next_expiry_us;
    int64_t overhead_us; /* of a TTFT, outside queue and prefill: hand-over */
    uint32_t max_retries;
    bool unpredicted; /* estimates hold counts, no times: they refuse nobody,
                         and only who waits is held to his SLO */
};

enum dispatch_action { DISPATCH_SEND, DISPATCH_WAIT, DISPATCH_REJECT };

enum dispatch_reason {
    DISPATCH_NO_REASON,       /* it is not refused */
    DISPATCH_MISSES_TTFT,     /* no choice within its SLO */
    DISPATCH_MISSES_TBT,      /* likewise */
    DISPATCH_NO_PREFILL,      /* no prefill instance is ready */
    DISPATCH_NO_DECODE,       /* no decode instance is ready */
    DISPATCH_TOO_LONG,        /* longer than any ready instance's KV */
    DISPATCH_NO_ROOM,         /* and none expected within its TTFT SLO */
    DISPATCH_WAITED_TOO_LONG, /* no room came within its TTFT SLO */
};

/* What to do with a request. */
struct dispatch_order {
    enum dispatch_action action;
    enum dispatch_reason reason;
    int64_t retry_after_us;    /* refused: as in the decision; 0: not known */
    int64_t predicted_ttft_us; /* from arrival, without the passage; 0: not
                                  known */
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

/* dispatch_freed(d): a place, memory or an instance has become free: who waits
 * is tried by the next dispatch_next(). */
void dispatch_freed(struct dispatch *d);

/*
 * The next order for one of those who wait: first for those whose TTFT SLO has
 * gone by, unless such are admitted, then, after dispatch_freed(), for the
 * oldest, if it finds room or will never. The caller carries it out and asks
 * again.
 * Returns whom it is for, not waiting any more; NULL: nobody, order is void.
 */
struct dispatch_request *dispatch_next(struct dispatch *d, int64_t now_us,
                                       struct dispatch_order *order);

/* dispatch_forget(d, request): it has ended, waiting or not. Who waits behind
 * it may find the room that it lacked. */
void dispatch_forget(struct dispatch *d, struct dispatch_request *request);

/*
 * An instance that works for an accepted request has failed.
 *   blamed   pool id, not to be chosen again while there are others;
 *            POOL_NO_INSTANCE: it is gone anyway.
 *   answers  tokens of the answer are with the client already.
 * Returns whether it may be placed again; else it fails for good.
 */
bool dispatch_failed(const struct dispatch *d, struct dispatch_request *request,
                     uint32_t blamed, bool answers);

#endif
