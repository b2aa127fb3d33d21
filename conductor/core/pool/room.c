/* What an instance has left: places, time and KV. Nothing here changes an
 * instance. */
#include "conductor/core/pool/internal.h"
#include "conductor/core/pool/pool.h"

bool pool_prefill_full(const struct pool *pool,
                       const struct pool_instance *instance)
{
    return instance->n_waiting >= pool->config.max_waiting;
}

bool pool_decode_full(const struct pool *pool,
                      const struct pool_instance *instance)
{
    return instance->n_decodes >= pool->config.max_decodes ||
           (instance->max_batch > 0 &&
            instance->n_decodes >= instance->max_batch);
}

int64_t pool_running_left_us(const struct pool_instance *instance,
                             int64_t now_us)
{
    int64_t left_us = 0;

    for (size_t i = 0; i < instance->n_running; i++) {
        const struct pool_prefill *p = &instance->running[i];
        int64_t end_us = p->started_at_us + p->item.cost_us;

        if (end_us > now_us)
            left_us += end_us - now_us;
    }
    return left_us;
}

int64_t pool_queue_wait_us(const struct pool *pool,
                           const struct pool_instance *instance,
                           int64_t ready_at_us, int64_t cost_us,
                           int64_t deadline_us, int64_t now_us)
{
    struct queue_item item = {
        .arrival_seq = pool->next_seq,
        .ready_at_us = ready_at_us,
        .cost_us = cost_us,
        .deadline_us = deadline_us,
    };

    return queue_wait_us(pool->config.order, instance->queue,
                         instance->n_waiting, &instance->load, &item,
                         pool_running_left_us(instance, now_us), now_us);
}

/* The last output token is never fed back. */
static int64_t tokens_at_longest(int64_t prompt_tokens,
                                 int64_t max_output_tokens)
{
    return prompt_tokens + (max_output_tokens > 1 ? max_output_tokens - 1 : 0);
}

int64_t pool_kv_tokens(const struct pool_instance *instance,
                       int64_t prompt_tokens, int64_t max_output_tokens)
{
    int64_t tokens = tokens_at_longest(prompt_tokens, max_output_tokens);

    return (tokens + instance->block_tokens - 1) / instance->block_tokens *
           instance->block_tokens;
}

bool pool_too_long(const struct pool_instance *instance, int64_t prompt_tokens,
                   int64_t max_output_tokens)
{
    int64_t tokens = tokens_at_longest(prompt_tokens, max_output_tokens);

    return tokens > instance->kv_whole_tokens ||
           (instance->window_tokens > 0 && tokens > instance->window_tokens);
}

int64_t pool_decode_room_tokens(const struct pool_instance *instance)
{
    return instance->kv_capacity_tokens - instance->decode_reserved_tokens -
           instance->running_kv_tokens;
}

bool pool_decode_fits(const struct pool_instance *instance,
                      int64_t prompt_tokens, int64_t max_output_tokens)
{
    return tokens_at_longest(prompt_tokens, max_output_tokens) <=
           instance->kv_whole_tokens - instance->decode_reserved_tokens -
               instance->running_kv_tokens;
}
