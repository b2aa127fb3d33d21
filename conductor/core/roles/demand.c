/*
 * The time of engines that requests need; see roles.h. * Sums are taken per
 * second, so that the spread of the means is between seconds, however many
 * requests come together in one.
 */
#include <math.h>

#include "conductor/core/roles/internal.h"

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

double roles_decode_us(const struct cost_model *cost, double prompt_tokens,
                       double output_tokens, double kv_capacity_tokens,
                       double max_batch, double slo_tbt_us)
{
    double steps = output_tokens - 1.0; /* the prefill has the first token */
    double kv = prompt_tokens + output_tokens / 2.0;
    double own_us = cost->decode[1] + cost->decode[2] * kv;
    double share = (prompt_tokens + output_tokens) / kv_capacity_tokens;

    if (steps <= 0.0)
        return 0.0;
    if (max_batch >= 1.0)
        share = most(share, 1.0 / max_batch);
    if (slo_tbt_us > 0.0)
        share = slo_tbt_us > cost->decode[0]
                    ? most(share, own_us / (slo_tbt_us - cost->decode[0]))
                    : 1.0;
    return most(0.0, steps * (least(share, 1.0) * cost->decode[0] + own_us));
}

/* The mean KV and batch of decode instances. Returns false without any. */
static bool mean_decode(const struct pool *pool, double *kv, double *batch)
{
    uint32_t n = 0;

    *kv = *batch = 0.0;
    for (uint32_t slot = 0; slot < pool_slots(pool); slot++) {
        const struct pool_instance *i = pool_at(pool, slot);

        if (!i || (i->role & ROLE_DECODE) == 0)
            continue;
        *kv += (double)i->kv_capacity_tokens;
        *batch += (double)i->max_batch;
        n++;
    }
    *kv /= n > 0 ? n : 1;
    *batch /= n > 0 ? n : 1;
    return n > 0;
}

static double prefill_us(struct roles_demand *d, double prompt_tokens,
                         const struct dispatch_order *order)
{
    const struct prefill_estimate *chosen = &order->decision.chosen;

    if (chosen->instance == POOL_NO_INSTANCE)
        return d->tokens > 0.0 ? d->token_us / d->tokens * prompt_tokens : 0.0;
    d->tokens += prompt_tokens;
    d->token_us += (double)schedule_spent_us(&order->decision);
    return (double)schedule_spent_us(&order->decision);
}

void roles_demand_placed(struct roles_demand *d,
                         const struct scheduler *scheduler,
                         const struct dispatch_request *request,
                         const struct dispatch_order *order)
{
    const struct schedule_request *ask = &request->ask;
    double output = (double)(ask->expected_tokens > 0 ? ask->expected_tokens
                                                      : ask->max_output_tokens);
    double kv, batch;

    d->prefill.sum += prefill_us(d, (double)ask->n_tokens, order);
    if (mean_decode(schedule_pool(scheduler), &kv, &batch))
        d->decode.sum += roles_decode_us(schedule_model(scheduler)->cost,
                                         (double)ask->n_tokens, output, kv,
                                         batch, (double)request->slo_tbt_us);
}

static void fold(struct roles_mean *m, double part, double seconds)
{
    double x = m->sum / seconds;

    m->mean += part * (x - m->mean);
    m->square += part * (x * x - m->square);
    m->sum = 0.0;
}

void roles_demand_pass(struct roles_demand *d, double tau_us, int64_t now_us)
{
    double us, part;

    if (d->at_us < 0)
        d->at_us = now_us; /* the first pass: no time to average over yet */
    us = (double)(now_us - d->at_us);
    if (us <= 0.0)
        return;
    part = 1.0 - exp(-us / tau_us);
    fold(&d->prefill, part, us);
    fold(&d->decode, part, us);
    d->weight += part * (1.0 - d->weight);
    d->tokens *= 1.0 - part;
    d->token_us *= 1.0 - part;
    d->at_us = now_us;
}

double roles_needed(const struct roles_demand *d, const struct roles_mean *m)
{
    return d->weight > 0.0 ? m->mean / d->weight : 0.0;
}

double roles_error(const struct roles_demand *d, const struct roles_mean *m,
                   double passes)
{
    double mean = roles_needed(d, m), spread;

    if (!(mean > 0.0))
        return 0.0;
    spread = m->square / d->weight - mean * mean;
    return sqrt(most(0.0, spread) / (2.0 * most(1.0, passes))) / mean;
}
