/* See tenancy.h. */
#include "conductor/core/dispatch/tenancy.h"

#include <math.h>
#include <stddef.h>

bool dispatch_shares(const struct dispatch *d)
{
    return d->share.matters && d->scheduler &&
           schedule_rules_of(d->scheduler)->shares;
}

/* The first waiting request of a tenant; NULL = none. */
static struct dispatch_request *first_of(const struct dispatch *d, uint32_t t)
{
    char *line = (char *)d->lines[t];

    return line ? (void *)(line - offsetof(struct dispatch_request, line))
                : NULL;
}

/* Whether the first waiting request of a tenant holds up a new one. */
static bool holds_up(const struct dispatch *d, uint32_t t,
                     const struct dispatch_request *r)
{
    const struct dispatch_request *first = first_of(d, t);

    return first && (!first->for_link || dispatch_may_wait_for_link(r)) &&
           (r->ask.max_output_tokens > 1 || first->size == 0 ||
            first->for_queue);
}

/* Whether waiting requests hold up a new one if tenants take no turns. */
static bool by_age(const struct dispatch *d, const struct dispatch_request *r)
{
    if (r->ask.max_output_tokens <= 1 && d->scheduler &&
        schedule_rules_of(d->scheduler)->bypass > 0)
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

/* Total capacity of all ready instances. */
struct capacity {
    uint32_t prefills; /* instances that prefill */
    double kv_tokens;  /* of decode instances */
    double batch;      /* of decode instances; INFINITY = unlimited */
};

static struct capacity capacity(const struct dispatch *d)
{
    const struct pool *pool = schedule_pool(d->scheduler);
    const struct pool_instance *const *instances = pool_instances(pool);
    const uint8_t *ready = pool_ready_roles(pool);
    struct capacity all = {.prefills = 0};

    for (uint32_t slot = 0; slot < pool_slots(pool); slot++) {
        all.prefills += (ready[slot] & ROLE_PREFILL) != 0;
        if ((ready[slot] & ROLE_DECODE) == 0)
            continue;
        all.kv_tokens += (double)instances[slot]->kv_capacity_tokens;
        all.batch += instances[slot]->max_batch > 0
                         ? (double)instances[slot]->max_batch
                         : INFINITY;
    }
    return all;
}

/* Time that a decode takes of all prefill instances: its duration times its
 * share of all KV or of all places, whichever is larger. */
static double decode_us(const struct dispatch *d,
                        const struct dispatch_request *r, int64_t length,
                        int64_t tbt_us)
{
    struct capacity all = capacity(d);
    double tokens = (double)(r->ask.n_tokens + length);

    if (all.kv_tokens <= 0.0)
        return 0.0;
    return (double)all.prefills * (double)length * (double)tbt_us *
           fmax(tokens / all.kv_tokens, 1.0 / all.batch);
}

/* `us` of all prefill instances. */
static double of_all_us(const struct dispatch *d, int64_t us)
{
    return (double)capacity(d).prefills * (double)(d->share.slowdown * us);
}

void dispatch_missed(struct dispatch *d, const struct dispatch_request *r,
                     enum schedule_verdict verdict)
{
    double most_us = of_all_us(d, SHARE_QUEUE_US);

    if (verdict == SCHEDULE_DECODE_FULL)
        d->last_turn_us = fmin(d->last_turn_us,
                               share_turn(&d->share, r->place) +
                                   most_us / d->share.tenants[r->place].weight);
}

bool dispatch_is_too_late(const struct dispatch *d,
                          const struct dispatch_request *r)
{
    return r->size > 0 && share_turn(&d->share, r->place) > d->last_turn_us;
}

static void charge_decode(struct dispatch *d, struct dispatch_request *r,
                          const struct schedule_decision *decision,
                          int64_t now_us)
{
    const struct schedule_request *ask = &r->ask;

    r->charged_decode_us = 0.0;
    if (d->unpredicted || !dispatch_shares(d) || ask->max_output_tokens <= 1)
        return;
    r->charged_length = ask->expected_tokens > 0 ? ask->expected_tokens
                                                 : ask->max_output_tokens;
    r->charged_decode_us = decode_us(d, r, r->charged_length, decision->tbt_us);
    share_use(&d->share, r->place, SHARE_DECODE, r->charged_decode_us, now_us);
    share_forgive(&d->share, r->place, of_all_us(d, SHARE_BEHIND_US));
}

void dispatch_charge(struct dispatch *d, struct dispatch_request *r,
                     const struct schedule_decision *decision, int64_t now_us)
{
    const struct prefill_estimate *e = &decision->chosen;
    double work = d->unpredicted ? (double)(r->ask.n_tokens - e->cached_tokens)
                                 : (double)schedule_spent_us(decision);

    r->charged_us = fmax(work, 1.0);
    r->charged_at_us = now_us;
    share_use(&d->share, r->place, SHARE_PREFILL, r->charged_us, now_us);
    charge_decode(d, r, decision, now_us);
}

void dispatch_decoded(struct dispatch *d, struct dispatch_request *request,
                      int64_t output_tokens, int64_t now_us)
{
    double was, is, more_us;

    if (!d->scheduler || request->charged_decode_us <= 0.0)
        return;
    /* Assume a TBT of 1 us: only the ratio of the two counts. */
    was = decode_us(d, request, request->charged_length, 1);
    is = decode_us(d, request, output_tokens, 1);
    if (was <= 0.0)
        return;
    more_us = request->charged_decode_us * (is / was - 1.0);
    share_correct(&d->share, request->place, request->tenant, SHARE_DECODE,
                  more_us, request->charged_at_us, now_us);
    share_forgive(&d->share, request->place, of_all_us(d, SHARE_BEHIND_US));
    request->charged_decode_us += more_us;
    request->charged_length = output_tokens;
}

/* Uses the model's costs: their ratio holds on unlike instances, too. */
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
    share_correct(&d->share, request->place, request->tenant, SHARE_PREFILL,
                  more_us, request->charged_at_us, now_us);
    request->charged_us += more_us;
}
