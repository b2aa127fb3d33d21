/*
 * The sets of instances that waiting requests may go to, if not to all: those
 * with a LoRA adapter, or the one that keeps an object of the request. A
 * waiting request holds up a younger one only if the younger one takes an
 * instance of its set. Private to this folder.
 *
 * Requests with the same set are counted together. Beyond DISPATCH_REACHES
 * sets, further requests count as going anywhere. A request that found no room,
 * though its set has all ready instances, counts as going anywhere, too: no
 * instance joins within a round.
 */
#ifndef CONDUCTOR_CORE_DISPATCH_REACH_H
#define CONDUCTOR_CORE_DISPATCH_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/schedule/schedule.h"

#define DISPATCH_REACHES 16u

/* All zero = no requests. */
struct reach {
    struct reach_set {
        const uint64_t *eligible; /* as in schedule_request; borrowed */
        uint32_t only;            /* as in schedule_request */
        uint64_t n;               /* requests; 0 = a free place */
        bool missed;              /* one of n found no room in this round */
    } sets[DISPATCH_REACHES];
    uint64_t n_anywhere;  /* requests that may go to all instances */
    bool missed_anywhere; /* such a request found no room in this round */
};

/* Waiting requests whose room a younger request must leave alone: none, all,
 * those that found no room in this round, or the oldest (dispatch.c checks the
 * oldest one's room; reach_takes() does not know it). */
enum reach_of { REACH_NONE, REACH_WAITING, REACH_MISSED, REACH_OLDEST };

/* reach_add(reach, ask): adds a waiting request. Borrows ask->eligible until
 * reach_remove(). Returns its place. O(DISPATCH_REACHES). */
uint32_t reach_add(struct reach *reach, const struct schedule_request *ask);

/* reach_remove(reach, place): removes the request at `place`. With its last
 * request, a set and its `missed` are removed. */
void reach_remove(struct reach *reach, uint32_t place);

/* reach_begin(reach): begins a round, in which no request was tried yet. */
void reach_begin(struct reach *reach);

/* reach_miss(reach, pool, ask, place): notes that the waiting request at
 * `place` found no room in this round. O(slots of the pool). */
void reach_miss(struct reach *reach, const struct pool *pool,
                const struct schedule_request *ask, uint32_t place);

/* reach_missed(reach, ask): returns whether a request for the same set of
 * instances found no room in this round. */
bool reach_missed(const struct reach *reach,
                  const struct schedule_request *ask);

/* reach_takes(reach, of, pool, decision): returns whether a decision uses an
 * instance that a waiting request of the kind `of` may use. */
bool reach_takes(const struct reach *reach, enum reach_of of,
                 const struct pool *pool,
                 const struct schedule_decision *decision);

/* Returns the same for one waiting request. */
bool reach_takes_of(const struct schedule_request *ask, const struct pool *pool,
                    const struct schedule_decision *decision);

#endif
