/* See tenancy.h. */
#include "conductor/core/dispatch/tenancy.h"

#include <math.h>

bool dispatch_shares(const struct dispatch *d)
{
    return d->share.matters && d->scheduler && schedule_shares(d->scheduler);
}

void dispatch_weigh(struct dispatch *d, struct dispatch_request *r,
                    int64_t now_us)
{
    int64_t left_us = r->arrived_us + r->slo_ttft_us - now_us;
    int64_t most_us;

    r->standing = 0.0;
    r->ask.price_times = 1.0;
    r->ask.queue_most_us = 0;
    if (!dispatch_shares(d))
        return;
    r->standing = share_standing(&d->share, r->place, now_us);
    r->ask.price_times = share_price(&d->share, r->place, r->priority, now_us);
    left_us = !r->slo_ttft_us ? 0 : left_us < 4 ? 4 : left_us;
    if (d->unpredicted || r->accepted)
        return;
    most_us = share_queue_us(&d->share, r->place, r->priority, left_us, now_us);
    r->ask.queue_most_us = most_us < INT64_MAX ? most_us : 0;
}

void dispatch_charge(struct dispatch *d, const struct dispatch_request *r,
                     const struct prefill_estimate *e, int64_t now_us)
{
    double work = d->unpredicted ? (double)(r->ask.n_tokens - e->cached_tokens)
                                 : (double)e->prefill_us;

    share_use(&d->share, r->place, fmax(work, 1.0), now_us);
}
