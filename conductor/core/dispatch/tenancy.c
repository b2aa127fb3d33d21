/* See tenancy.h. */
#include "conductor/core/dispatch/tenancy.h"

#include <math.h>
#include <stddef.h>

bool dispatch_shares(const struct dispatch *d)
{
    return d->share.matters && d->scheduler && schedule_shares(d->scheduler);
}

/* The first that waits of a tenant; NULL: none does. */
static struct dispatch_request *first_of(const struct dispatch *d, uint32_t t)
{
    char *line = (char *)d->lines[t];

    return line ? (void *)(line - offsetof(struct dispatch_request, line))
                : NULL;
}

/* Whether the first one of a tenant's line holds up a new one behind it. */
static bool holds_up(const struct dispatch *d, uint32_t t,
                     const struct dispatch_request *r)
{
    const struct dispatch_request *first = first_of(d, t);

    return first && (!first->for_link || dispatch_may_wait_for_link(r));
}

/* Likewise where tenants do not take turns. */
static bool by_age(const struct dispatch *d, const struct dispatch_request *r)
{
    if (r->ask.max_output_tokens <= 1 && d->scheduler &&
        schedule_bypass(d->scheduler) > 0)
        return d->n_for_queue > 0 || !TAILQ_EMPTY(&d->sizes[0]);
    return d->n_waiting > (dispatch_may_wait_for_link(r) ? 0 : d->n_for_link);
}

bool dispatch_stands_behind(const struct dispatch *d,
                            const struct dispatch_request *r)
{
    if (!dispatch_shares(d) || d->n_waiting == 0)
        return by_age(d, r);
    if (holds_up(d, r->place, r) && line_before(d->lines[r->place], &r->line))
        return true;
    for (uint32_t t = 0; t < SHARE_TENANTS; t++)
        if (t != r->place && holds_up(d, t, r) &&
            share_turn(&d->share, t) < share_turn(&d->share, r->place))
            return true;
    return false;
}

struct dispatch_request *dispatch_next_by_share(const struct dispatch *d)
{
    uint32_t best = SHARE_TENANTS;

    for (uint32_t t = 0; t < SHARE_TENANTS; t++)
        if (d->lines[t] && !d->missed[t] &&
            (best == SHARE_TENANTS ||
             share_turn(&d->share, t) < share_turn(&d->share, best)))
            best = t;
    return best < SHARE_TENANTS ? first_of(d, best) : NULL;
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

void dispatch_charge(struct dispatch *d, struct dispatch_request *r,
                     const struct prefill_estimate *e, int64_t now_us)
{
    double work = d->unpredicted ? (double)(r->ask.n_tokens - e->cached_tokens)
                                 : (double)e->prefill_us;

    r->charged_us = fmax(work, 1.0);
    r->charged_at_us = now_us;
    share_use(&d->share, r->place, r->charged_us, now_us);
}

/* By the costs of the model, as their ratio holds for unlike instances. */
void dispatch_told(struct dispatch *d, struct dispatch_request *request,
                   int64_t guessed, int64_t computed, int64_t now_us)
{
    int64_t n = computed > 1 ? computed : 1;
    double times = (double)n / (double)guessed;
    double more_us;

    if (!d->scheduler)
        return;
    if (!d->unpredicted)
        times = schedule_work_us(d->scheduler, n) /
                schedule_work_us(d->scheduler, guessed);
    more_us = request->charged_us * (times - 1.0);
    share_correct(&d->share, request->place, request->tenant, more_us,
                  request->charged_at_us, now_us);
    request->charged_us += more_us;
}
