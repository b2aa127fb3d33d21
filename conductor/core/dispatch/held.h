/*
 * The wait list: by age, and by the room to decode that each needs. Private to
 * this folder.
 *
 * Sizes are quarters of powers of two, so that a round of tries needs few
 * decisions, however many wait: who needs as much as one that found no room,
 * or more, is left out with its whole size.
 */
#ifndef CONDUCTOR_CORE_DISPATCH_HELD_H
#define CONDUCTOR_CORE_DISPATCH_HELD_H

#include "conductor/core/dispatch/dispatch.h"

/* The size of so many tokens to decode with; 0: none are needed. Rises with
 * them, and is below DISPATCH_SIZES. */
uint32_t held_size(int64_t tokens);

/* held_init(d): nobody waits. */
void held_init(struct dispatch *d);

/* A request begins to wait, as the last one. Its for_link, for_queue and line
 * are set. O(1). */
void held_add(struct dispatch *d, struct dispatch_request *request);

/* It does not wait any more. Amortised O(log n), for its tenant's line. */
void held_remove(struct dispatch *d, struct dispatch_request *request);

/* What a request that may wait lacks, as decided now; counts who waits. */
void held_lacks(struct dispatch *d, struct dispatch_request *request,
                bool for_link, bool for_queue);

/* Where it may go has changed. O(1). */
void held_reaches(struct dispatch *d, struct dispatch_request *request);

/* A round begins: all are to be tried. O(DISPATCH_SIZES). */
void held_begin(struct dispatch *d);

/* The oldest one not tried in this round, of sizes below a limit or the oldest
 * of all; NULL: none. O(DISPATCH_SIZES). */
struct dispatch_request *held_next(const struct dispatch *d, uint32_t limit);

/* It was tried, and waits still. */
void held_tried(struct dispatch *d, const struct dispatch_request *request);

/* The first that has waited past its SLO; NULL: none. Looks at all, but only
 * when one may have. */
struct dispatch_request *held_expired(struct dispatch *d, int64_t now_us);

#endif
