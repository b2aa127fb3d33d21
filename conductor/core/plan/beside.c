/* Decodes beside a prefill. See beside.h. */
#include "conductor/core/plan/beside.h"

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
