/* Decodes beside a prefill. See beside.h. */
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
                              pool_decode_room_tokens(i));
    /* Reservations are in whole blocks. */
    double left = reserved - (double)i->decode_kv_tokens -
                  n * (double)i->block_tokens / 2.0;
    double twice_mean = left > n ? 2.0 * left / n : 2.0;
    double steps = twice_mean / (n + 1.0);

    if (i->n_decodes == 0)
        return 0;
    if (steps < twice_mean * missing / reserved)
        steps = twice_mean * missing / reserved;
    steps *= (double)cost_model_decode_step_us(cost, (int64_t)i->n_decodes,
                                               i->decode_kv_tokens, NULL);
    return steps < (double)COST_MODEL_MAX_US ? (int64_t)steps
                                             : COST_MODEL_MAX_US;
}

int64_t beside_step_us(uint32_t step_tokens, const struct pool_instance *i,
                       int64_t step_us)
{
    double left_tokens = (double)step_tokens - (double)i->n_decodes;
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

/* The mean of the longest tenth of so many intervals, of which `work` makes
 * some longer: `tokens` of it fit into each. */
static double tail_us(const struct pool_work *work, double tokens,
                      double intervals, double step_us)
{
    double tail = ceil(intervals / 10.0), n = (double)work->tokens / tokens;
    double mean_us, variance;

    if (n <= 0.0)
        return step_us;
    mean_us = fmax((double)work->us / n, step_us);
    if (n <= tail)
        return (n * mean_us + (tail - n) * step_us) / tail;
    variance = work->us_square * tokens / n - mean_us * mean_us;
    return mean_us + sqrt(3.0 * fmax(variance, 0.0)) * (1.0 - tail / n);
}

/* All the work that is beside a decode, without what comes after its end. */
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
    return (struct pool_work){(int64_t)(tokens * keep),
                              (int64_t)((double)work.us * keep),
                              work.us_square * keep};
}

int64_t beside_tbt_us(const struct cost_model *cost, uint32_t step_tokens,
                      const struct pool_instance *i,
                      const struct beside_request *request)
{
    struct pool_work accepted =
        pool_work_add(i->accepted, pool_work_of(request->uncached_tokens,
                                                request->prefill_us));
    int64_t n = (int64_t)i->n_decodes + i->other_decodes;
    int64_t step_us = cost_model_decode_step_us(
        cost, n + 1, i->decode_kv_tokens + i->other_kv_tokens, NULL);
    double tokens = fmax((double)step_tokens - (double)n, 1.0);
    double to_come =
        tokens_to_come(i, request->now_us) + (double)request->uncached_tokens;
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
        work = work_beside(d, accepted, to_come, (double)left * tokens);
        us = (int64_t)tail_us(&work, tokens,
                              (double)(d->produced_tokens + left - 1),
                              (double)step_us);
        if (us > worst_us)
            worst_us = us;
    }
    return worst_us;
}
