/*
 * What a request's tenant had, and what follows for the request. Private to
 * this folder.
 */
#ifndef CONDUCTOR_CORE_DISPATCH_TENANCY_H
#define CONDUCTOR_CORE_DISPATCH_TENANCY_H

#include "conductor/core/dispatch/dispatch.h"

/* dispatch_shares(d): tenants take turns. */
bool dispatch_shares(const struct dispatch *d);

/* Whether links hold a request up, if they have much to send: it decodes, and
 * both SLOs apply to it. */
static inline bool dispatch_may_wait_for_link(const struct dispatch_request *r)
{
    return r->slo_ttft_us && r->slo_tbt_us && !r->accepted &&
           r->ask.max_output_tokens > 1;
}

/* Whether others that wait come before one that has just come. */
bool dispatch_stands_behind(const struct dispatch *d,
                            const struct dispatch_request *r);

/* Who is tried next in a round where tenants take turns: the first of the one
 * that had the least of its share, of those not yet tried; NULL: nobody. */
struct dispatch_request *dispatch_next_by_share(const struct dispatch *d);

/* Before it is decided on: what its tenant had decides on its price, and on the
 * queues that it may stand in. */
void dispatch_weigh(struct dispatch *d, struct dispatch_request *r,
                    int64_t now_us);

/* In a round where tenants take turns a request that was tried waits still. If
 * it lacks room to decode, later turns are to leave that. */
void dispatch_missed(struct dispatch *d, const struct dispatch_request *r,
                     enum schedule_verdict verdict);

/* Whether it has to leave it. */
bool dispatch_is_too_late(const struct dispatch *d,
                          const struct dispatch_request *r);

/* It was given to instances, as decided: its work counts as used, and the room
 * to decode for as long as its answer is expected to take. Without predictions
 * tokens of the prompt are counted. O(instances). */
void dispatch_charge(struct dispatch *d, struct dispatch_request *r,
                     const struct schedule_decision *decision, int64_t now_us);

#endif
