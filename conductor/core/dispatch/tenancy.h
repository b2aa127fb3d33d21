/* The share that a request's tenant has used, and its effect on the request's
 * turn. Private to this folder. */
#ifndef CONDUCTOR_CORE_DISPATCH_TENANCY_H
#define CONDUCTOR_CORE_DISPATCH_TENANCY_H

#include "conductor/core/dispatch/dispatch.h"

/* dispatch_shares(d): returns whether tenants take turns. */
bool dispatch_shares(const struct dispatch *d);

/* Returns whether a request may wait for a link: a decode with both SLOs. */
static inline bool dispatch_may_wait_for_link(const struct dispatch_request *r)
{
    return r->slo_ttft_us && r->slo_tbt_us && !r->accepted &&
           r->ask.max_output_tokens > 1;
}

/* Returns whether waiting requests go before a new one. */
bool dispatch_stands_behind(const struct dispatch *d,
                            const struct dispatch_request *r);

/* Returns the request to try next where tenants take turns: the first one of
 * the untried tenant that used least of its share; NULL = none. */
struct dispatch_request *dispatch_next_by_share(const struct dispatch *d);

/* Sets a request's price factor and longest queue before its decision, from the
 * share its tenant has used. */
void dispatch_weigh(struct dispatch *d, struct dispatch_request *r,
                    int64_t now_us);

/* Notes that a tried request still waits, where tenants take turns. If it lacks
 * room to decode, tenants with much later turns must leave such room free. */
void dispatch_missed(struct dispatch *d, const struct dispatch_request *r,
                     enum schedule_verdict verdict);

/* Returns whether a request's turn is too late for room in this round. */
bool dispatch_is_too_late(const struct dispatch *d,
                          const struct dispatch_request *r);

/* Charges a sent request to its tenant: its work, and its room to decode for as
 * long as its answer is expected to take. Without predictions it charges tokens
 * of the prompt. O(instances). */
void dispatch_charge(struct dispatch *d, struct dispatch_request *r,
                     const struct schedule_decision *decision, int64_t now_us);

#endif
