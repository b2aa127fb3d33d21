/* Prefills and decodes beside each other. See beside.h. */
#include "conductor/core/plan/beside.h"

#include <math.h>

#include "conductor/core/pool/pool.h"

struct beside beside_of(const struct cost_model *cost, uint32_t step_tokens,
                        const struct pool_instance *i)
{
    int64_t n = (int64_t)i->n_decodes + i->other_decodes;
    int64_t kv_tokens = i->decode_kv_tokens + i->other_kv_tokens;
    double left_tokens = (double)step_tokens - (double)n;
    double add_us;

    if (n == 0)
        return (struct beside){0};
    add_us = cost_model_decodes_add_us(cost, n, kv_tokens);
    return (struct beside){
        .prompt_us = add_us / 2.0,
        .token_us = step_tokens > 0
                        ? add_us / (left_tokens > 1.0 ? left_tokens : 1.0)
                        : 0.0,
        .step_us = cost_model_decode_step_us(cost, n, kv_tokens, NULL) / 2,
    };
}

int64_t beside_room_us(const struct cost_model *cost,
                       const struct pool_instance *i, int64_t n_tokens,
                       int64_t max_output_tokens)
{
    double n = (double)i->n_decodes;
    double reserved = (double)i->decode_reserved_tokens;
    double missing = (double)(pool_kv_tokens(i, n_tokens, max_output_tokens) -
                              pool_decode_room_tokens(i) + i->awaited_tokens);
    /* Reservations are in whole blocks. */
    double left = reserved - (double)i->decode_kv_tokens -
                  n * (double)i->block_tokens / 2.0;
    double twice_mean = left > n ? 2.0 * left / n : 2.0;
    double steps = twice_mean / (n + 1.0);

    if (i->n_decodes == 0)
        return 0;
    if (steps < twice_mean * missing / reserved)
        steps = twice_mean * missing / reserved;
    steps *= (double)cost_model_decode_step_us(
        cost, (int64_t)i->n_decodes + i->other_decodes,
        i->decode_kv_tokens + i->other_kv_tokens, NULL);
    return steps < (double)COST_MODEL_MAX_US ? (int64_t)steps
                                             : COST_MODEL_MAX_US;
}

int64_t beside_shared_us(const struct cost_model *cost, uint32_t step_tokens,
                         const struct pool_instance *i,
                         const struct beside *beside, int64_t wait_us,
                         int64_t prefill_us, int64_t now_us)
{
    int64_t left_us = pool_running_left_us(i, now_us);
    int64_t ahead_us = wait_us > left_us ? wait_us - left_us : 0;
    int64_t behind_us = i->load.cost_us - ahead_us;
    int64_t step_us, rest_us;

    if (behind_us <= 0 || step_tokens == 0 || i->order->by_age)
        return 0;
    step_us = correction_apply_us(
        &i->correction,
        cost_model_prefill_beside_us(cost, step_tokens, 0, beside->prompt_us,
                                     beside->token_us));
    if (step_us <= 0)
        return 0;
    rest_us = (step_us - (ahead_us + prefill_us) % step_us) % step_us;
    return rest_us < behind_us ? rest_us : behind_us;
}

int64_t beside_step_us(uint32_t step_tokens, const struct pool_instance *i,
                       int64_t step_us)
{
    double left_tokens =
        (double)step_tokens - (double)i->n_decodes - (double)i->other_decodes;
    double tokens = 0.0, cost_us = 0.0;

    for (size_t k = 0; k < i->n_running; k++) {
        tokens += (double)i->running[k].uncached_tokens;
        cost_us += (double)i->running[k].item.cost_us;
    }
    for (size_t k = 0; k < i->n_waiting; k++) {
        tokens += (double)i->waiting[k].uncached_tokens;
        cost_us += (double)i->waiting[k].item.cost_us;
    }
    if (left_tokens > tokens)
        left_tokens = tokens;
    if (tokens < 1.0 || left_tokens < 1.0)
        return step_us;
    cost_us *= left_tokens / tokens;
    return cost_us > (double)step_us ? (int64_t)cost_us : step_us;
}

/* Tokens of accepted prefills that are not computed yet. */
static double tokens_to_come(const struct pool_instance *i, int64_t now_us)
{
    double tokens = 0.0, running = 0.0, cost_us = 0.0;

    for (size_t k = 0; k < i->n_waiting; k++)
        tokens += (double)i->waiting[k].uncached_tokens;
    for (size_t k = 0; k < i->n_running; k++) {
        running += (double)i->running[k].uncached_tokens;
        cost_us += (double)i->running[k].item.cost_us;
    }
    if (cost_us > 0.0)
        running *= fmin(1.0, (double)pool_running_left_us(i, now_us) / cost_us);
    return tokens + running;
}

struct pool_work beside_work_of(const struct cost_model *cost,
                                uint32_t step_tokens,
                                const struct pool_instance *i,
                                int64_t uncached_tokens, int64_t cached_tokens)
{
    double u = (double)uncached_tokens;
    double us, slope, own;

    if (uncached_tokens <= 0)
        return (struct pool_work){0};
    us = (double)correction_apply_us(
        &i->correction,
        cost_model_prefill_us(cost, uncached_tokens, cached_tokens, NULL));
    slope = 2.0 * cost->prefill[2] * correction_factor(&i->correction);
    own = fmin(1.0, u / (double)step_tokens);
    return (struct pool_work){
        .tokens = uncached_tokens,
        .us = (int64_t)us,
        .own_tokens = own * u,
        .own_us = own * us,
        .own_square = own * (us * us / u + slope * slope * u * u * u / 12.0),
    };
}

/* Steps of an instance. */
struct steps {
    double tokens;   /* most prompt tokens of a step */
    double alone_us; /* a step without prompt tokens */
    double add_us;   /* added to a chunk by the decodes */
};

/* Returns the mean of the longest tenth of the intervals, some of which have a
 * chunk of `work`. */
static double tail_us(const struct pool_work *work, const struct steps *steps,
                      double intervals)
{
    double tail = ceil(intervals / 10.0);
    double n = (double)work->tokens / steps->tokens;
    double mean_us, rate, spread;

    if (n <= 0.0)
        return steps->alone_us;
    rate = (double)work->us / (double)work->tokens;
    mean_us = fmax(rate * steps->tokens + steps->add_us, steps->alone_us);
    if (n <= tail)
        return (n * mean_us + (tail - n) * steps->alone_us) / tail;
    spread = (work->own_square - 2.0 * rate * work->own_us +
              rate * rate * work->own_tokens) /
             (double)work->tokens;
    return mean_us +
           steps->tokens * sqrt(3.0 * fmax(spread, 0.0)) * (1.0 - tail / n);
}

/* Returns the work beside a decode, without work to come after its end. */
static struct pool_work work_beside(const struct pool_decode *decode,
                                    struct pool_work accepted, double to_come,
                                    double most_to_come)
{
    struct pool_work work = pool_work_less(accepted, decode->before);
    double tokens = (double)work.tokens, keep;

    if (to_come > tokens)
        to_come = tokens;
    if (to_come <= most_to_come)
        return work;
    keep = (tokens - to_come + most_to_come) / tokens;
    return (struct pool_work){
        (int64_t)(tokens * keep), (int64_t)((double)work.us * keep),
        work.own_tokens * keep, work.own_us * keep, work.own_square * keep};
}

int64_t beside_tbt_us(const struct cost_model *cost, uint32_t step_tokens,
                      const struct pool_instance *i,
                      const struct beside_request *request)
{
    struct pool_work accepted = pool_work_add(i->accepted, request->work);
    int64_t n = (int64_t)i->n_decodes + i->other_decodes;
    int64_t kv_tokens = i->decode_kv_tokens + i->other_kv_tokens;
    int64_t step_us = cost_model_decode_step_us(cost, n + 1, kv_tokens, NULL);
    const struct steps steps = {
        .tokens = fmax((double)step_tokens - (double)n, 1.0),
        .alone_us = (double)step_us,
        .add_us = cost_model_decodes_add_us(cost, n + 1, kv_tokens),
    };
    double to_come =
        tokens_to_come(i, request->now_us) + (double)request->work.tokens;
    int64_t worst_us = step_us;

    for (size_t k = 0; k < i->n_decodes; k++) {
        const struct pool_decode *d = &i->decodes[k];
        int64_t left = d->likely_tokens - d->produced_tokens;
        struct pool_work work;
        int64_t us;

        if (d->likely_tokens <= 1)
            continue;
        if (left < 1)
            left = 1;
        work = work_beside(d, accepted, to_come, (double)left * steps.tokens);
        us = (int64_t)tail_us(&work, &steps,
                              (double)(d->produced_tokens + left - 1));
        if (us > worst_us)
            worst_us = us;
    }
    return step_us + (int64_t)((double)(worst_us - step_us) *
                               (1.0 + correction_spread(&i->correction)));
}
