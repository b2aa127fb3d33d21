/*
 * How much of the instances' time each tenant has had, and which tenants give
 * way.
 *
 * A request's key names its tenant. A tenant's share is its weight over the
 * weights of all that asked in the last minute; its standing is the part that
 * it used of all work given out in the last minute, over its share: below 1 it
 * got less than its share. Prefill time or room to decode counts, whichever it
 * used a larger part of (dominant resource fairness; Ghodsi et al., NSDI 2011).
 *
 * Shares have no effect until a second tenant or a priority is seen.
 *
 * A pure module: time is an argument, memory is fixed. Tenants beyond
 * SHARE_TENANTS - 1, and requests without a key, share the first place.
 */
#ifndef CONDUCTOR_CORE_SHARE_SHARE_H
#define CONDUCTOR_CORE_SHARE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define SHARE_TENANTS 64u
/* Time in which used work fades, and an idle tenant loses its share. */
#define SHARE_WINDOW_US 60000000
/* Least time for which a priority is remembered. */
#define SHARE_PRIORITY_US 600000000
/* Most time of all instances by which a waiting tenant is behind the turn of a
 * tenant that got room to decode. */
#define SHARE_BEHIND_US 4000000
/* The longest queue that a request without an SLO may join. */
#define SHARE_QUEUE_US 2000000
/* From this standing on, part of queues within an SLO is kept for others. */
#define SHARE_GREEDY 1.25

/* Kinds of shared work, both in microseconds of all prefill instances: using
 * all room to decode for a second costs one second. */
enum share_work { SHARE_PREFILL, SHARE_DECODE, SHARE_WORKS };

struct share_tenant {
    uint64_t name; /* 0 = free, or the first place */
    bool seen;
    double weight;               /* above 0 */
    double used_us[SHARE_WORKS]; /* fading */
    double turn_us[SHARE_WORKS]; /* work over weight, not fading */
    int64_t asked_us;            /* last request */
    uint32_t waiting;  /* its requests in the wait list; dispatch counts them */
    uint32_t patient;  /* its requests without an SLO in the wait list */
    int32_t first[2];  /* earliest priority of this period and of the last;
                          INT32_MAX = none */
    int64_t period_us; /* when this period began */
};

struct share {
    struct share_tenant tenants[SHARE_TENANTS];
    int64_t slowdown; /* factor on all times */
    int64_t faded_us;
    double turn_us[SHARE_WORKS]; /* latest turn of any tenant */
    uint32_t n_seen;             /* places ever used */
    bool matters; /* a second tenant or a priority was seen, or is expected
                   */
};

/* share_init(share): sets up an empty share, in real time. */
void share_init(struct share *share);

/*
 * Records a request of a tenant. The tenant keeps its place while it has
 * requests waiting or sent one within SHARE_WINDOW_US.
 *   name      a number made of its key; 0 = none.
 *   weight    above 0; 0 counts as 1. In the first place it is always
 *             1.
 *   priority  lower ones are earlier.
 * Returns its place. Cost: O(SHARE_TENANTS), which is fixed.
 */
uint32_t share_arrived(struct share *share, uint64_t name, double weight,
                       int32_t priority, int64_t now_us);

/* share_is_active(share, place, now_us): returns whether a tenant has a share:
 * it waits, or sent a request within SHARE_WINDOW_US. */
bool share_is_active(const struct share *share, uint32_t place, int64_t now_us);

/* Returns whether priorities count at a place: not in the first one once
 * tenants were seen, since several may use it. */
static inline bool share_orders(const struct share *share, uint32_t place)
{
    return place > 0 || share->n_seen < 2;
}

/* share_use(share, place, work, us, now_us): charges work to a tenant. */
void share_use(struct share *share, uint32_t place, enum share_work work,
               double us, int64_t now_us);

/*
 * Corrects work that share_use() charged at since_us, by `us` more or, below 0,
 * less, as if this had been known then: work that has faded is not given back,
 * nor a turn that other tenants had since. Does nothing if the tenant `name` of
 * share_arrived() no longer has the place.
 */
void share_correct(struct share *share, uint32_t place, uint64_t name,
                   enum share_work work, double us, int64_t since_us,
                   int64_t now_us);

/* Limits how far waiting tenants are behind the turn of the one at `place`, to
 * most_us of its work: otherwise it would get nothing until all have caught up.
 * O(SHARE_TENANTS). */
void share_forgive(struct share *share, uint32_t place, double most_us);

/* Returns a tenant's standing: below 1 it had less than its share. 1 while no
 * work was given out. O(SHARE_TENANTS). */
double share_standing(struct share *share, uint32_t place, int64_t now_us);

/* Returns a tenant's turn; the lowest is next. A tenant with nothing waiting
 * starts at the turn of the others: it gets its share from then on, and nothing
 * extra for its silence. */
static inline double share_turn(const struct share *share, uint32_t place)
{
    const double *turn_us = share->tenants[place].turn_us;

    return turn_us[SHARE_PREFILL] > turn_us[SHARE_DECODE]
               ? turn_us[SHARE_PREFILL]
               : turn_us[SHARE_DECODE];
}

/*
 * Returns the longest queue that a request may be placed behind, in
 * microseconds of an instance, so that tenants with less than their share, or
 * earlier priorities, find room. INT64_MAX = any queue, as for requests with an
 * SLO whose tenant had at most a quarter more than its share. While a tenant
 * that had less waits without an SLO, requests with an SLO get queues as short:
 * otherwise a long SLO would keep that tenant out for ever. O(SHARE_TENANTS).
 *   slo_us  rest of its TTFT SLO; 0 = none.
 */
int64_t share_queue_us(struct share *share, uint32_t place, int32_t priority,
                       int64_t slo_us, int64_t now_us);

/* Returns the factor on a request's price: 0 if its tenant had less than half
 * its share, 1 about its share, at most 3; twice as much if its tenant also
 * sent earlier priorities. */
double share_price(struct share *share, uint32_t place, int32_t priority,
                   int64_t now_us);

#endif
