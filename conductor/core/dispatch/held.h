/*
 * The wait list: by age, and by the room to decode that each request needs.
 * Private to this folder.
 *
 * Sizes are quarters of powers of two, so that a round needs few decisions,
 * however many requests wait: once one finds no room, its size and all larger
 * ones are left out.
 */
#ifndef CONDUCTOR_CORE_DISPATCH_HELD_H
#define CONDUCTOR_CORE_DISPATCH_HELD_H

#include "conductor/core/dispatch/dispatch.h"

/* Returns the size of a need for `tokens` of room to decode; 0 = none. Rises
 * with tokens, and is below DISPATCH_SIZES. */
uint32_t held_size(int64_t tokens);

/* held_init(d): starts with an empty wait list. */
void held_init(struct dispatch *d);

/* Appends a request with for_link, for_queue and line set. O(1). */
void held_add(struct dispatch *d, struct dispatch_request *request);

/* Removes a request. Amortised O(log n), for its tenant's line. */
void held_remove(struct dispatch *d, struct dispatch_request *request);

/* Sets what a request waits for, as decided now; counts it if it waits. */
void held_lacks(struct dispatch *d, struct dispatch_request *request,
                bool for_link, bool for_queue);

/* Updates a request's reach after ask.only or eligible changed. O(1). */
void held_reaches(struct dispatch *d, struct dispatch_request *request);

/* Begins a round, in which all are to be tried. O(DISPATCH_SIZES). */
void held_begin(struct dispatch *d);

/* Returns the oldest request not tried in this round, of sizes below `limit` or
 * the oldest of all; NULL = none. O(DISPATCH_SIZES). */
struct dispatch_request *held_next(const struct dispatch *d, uint32_t limit);

/* Notes that a request was tried in this round. */
void held_tried(struct dispatch *d, const struct dispatch_request *request);

/* Returns the oldest request that has waited past its SLO; NULL = none. Cost:
 * O(1), or O(n) if the earliest of these times is over. */
struct dispatch_request *held_expired(struct dispatch *d, int64_t now_us);

#endif
