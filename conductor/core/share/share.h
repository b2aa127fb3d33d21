/*
 * Who has had how much of the instances' time, and who therefore gives way.
 *
 * A tenant is whoever a request's key names. Its weight over the weights of all
 * that asked in the last minute is its share; its standing is what it used of
 * what was given out in the last minute, over its share. Below 1 it got less
 * than its share. Of prefill time and of room to decode that counts of which it
 * used the larger part (dominant resource fairness; Ghodsi et al., NSDI 2011).
 *
 * Nothing here has an effect until a second tenant or a priority was seen.
 *
 * A pure module: time is an argument, memory is fixed. Tenants beyond
 * SHARE_TENANTS - 1, and requests without a key, share the first place.
 */
#ifndef CONDUCTOR_CORE_SHARE_SHARE_H
#define CONDUCTOR_CORE_SHARE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define SHARE_TENANTS 64u
/* What was used fades over so long, and who did not ask for so long has no
 * share. */
#define SHARE_WINDOW_US 60000000
/* How long a priority is remembered, at least. */
#define SHARE_PRIORITY_US 600000000
/* By so much of all instances' time a tenant that waits is behind another one's
 * turn at most, where that was given room to decode. */
#define SHARE_BEHIND_US 4000000
/* Without an SLO: the longest queue of an instance that takes more. */
#define SHARE_QUEUE_US 2000000
/* A standing from which on part of each queue within an SLO is kept for the
 * other tenants that have a share. */
#define SHARE_GREEDY 1.25

/* What is shared. Both are counted in microseconds of prefill instances: room
 * as much as all of them have in the time in which it is all the room there is.
 */
enum share_work { SHARE_PREFILL, SHARE_DECODE, SHARE_WORKS };

struct share_tenant {
    uint64_t name; /* 0: free, or the first place */
    bool seen;
    double weight;               /* above 0 */
    double used_us[SHARE_WORKS]; /* fading */
    double turn_us[SHARE_WORKS]; /* work over weight, not fading */
    int64_t asked_us;            /* the last time */
    uint32_t waiting;  /* requests of it in the wait list, kept by its owner */
    uint32_t patient;  /* of these without an SLO, likewise */
    int32_t first[2];  /* the earliest priority of this period, and of the one
                          before; INT32_MAX: none */
    int64_t period_us; /* its begin */
};

struct share {
    struct share_tenant tenants[SHARE_TENANTS];
    int64_t slowdown; /* so many times longer than real ones are all times */
    int64_t faded_us;
    double turn_us[SHARE_WORKS]; /* the latest turn that anybody had */
    uint32_t n_seen;             /* places ever used */
    bool matters; /* a second tenant or a priority was seen, or is expected
                   */
};

/* share_init(share): nobody was seen; times are real. */
void share_init(struct share *share);

/*
 * A request of a tenant comes. Its place is the tenant's until it has nothing
 * waiting and has not asked for SHARE_WINDOW_US.
 *   name      a number of its key; 0: it has none.
 *   weight    above 0; 0: 1. Requests in the first place have weight 1.
 *   priority  earlier ones are lower.
 * Returns its place. Cost: O(SHARE_TENANTS), which is fixed.
 */
uint32_t share_arrived(struct share *share, uint64_t name, double weight,
                       int32_t priority, int64_t now_us);

/* share_is_active(share, place, now_us): its tenant has a share: it waits, or
 * has asked within SHARE_WINDOW_US. */
bool share_is_active(const struct share *share, uint32_t place, int64_t now_us);

/* Whether priorities count at that place: all there are one tenant. Nobody
 * knows who is in the first place once tenants were seen. */
static inline bool share_orders(const struct share *share, uint32_t place)
{
    return place > 0 || share->n_seen < 2;
}

/* share_use(share, place, work, us, now_us): so much was given to a request of
 * the tenant. */
void share_use(struct share *share, uint32_t place, enum share_work work,
               double us, int64_t now_us);

/*
 * Work that share_use() counted at since_us was more than said; below 0: it was
 * less. It counts as if that had been known then: what has faded since is not
 * given back, nor a turn that others have had since. Nothing if the place is
 * no longer that of the tenant `name`, as share_arrived() had it.
 */
void share_correct(struct share *share, uint32_t place, uint64_t name,
                   enum share_work work, double us, int64_t since_us,
                   int64_t now_us);

/* Nobody who waits is behind a tenant's turn by more than so much of his own
 * work: what was given for long at once is not made up for at once, or the one
 * would get nothing meanwhile. O(SHARE_TENANTS). */
void share_forgive(struct share *share, uint32_t place, double most_us);

/* A tenant's standing: below 1 it had less than its share. 1 as long as nothing
 * was given out. O(SHARE_TENANTS). */
double share_standing(struct share *share, uint32_t place, int64_t now_us);

/* Whose turn it is: the lowest first. A tenant that had nothing waiting begins
 * with the turn that others are at, so that it gets its share from then on, and
 * no more for having been silent. */
static inline double share_turn(const struct share *share, uint32_t place)
{
    const double *turn_us = share->tenants[place].turn_us;

    return turn_us[SHARE_PREFILL] > turn_us[SHARE_DECODE]
               ? turn_us[SHARE_PREFILL]
               : turn_us[SHARE_DECODE];
}

/*
 * The longest queue that a request may be placed behind, so that those find
 * room that had less than their share, or have an earlier priority.
 *   slo_us  of its TTFT, what is left of it; 0: none.
 * Returns microseconds of an instance; INT64_MAX: any queue, as for those with
 * an SLO whose tenant had at most a quarter more than its share. While a tenant
 * that had less waits without an SLO, those with one find queues as short as
 * it does: else a long SLO would keep it out for ever. O(SHARE_TENANTS).
 */
int64_t share_queue_us(struct share *share, uint32_t place, int32_t priority,
                       int64_t slo_us, int64_t now_us);

/* By how much the price of a request is multiplied: 0 where its tenant had less
 * than half its share, 1 about its share, at most 3; twice as much for those
 * whose tenant also sent earlier priorities. */
double share_price(struct share *share, uint32_t place, int32_t priority,
                   int64_t now_us);

#endif
