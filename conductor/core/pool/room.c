/* How long an instance's work takes, and where a newcomer would stand in it.
 * Nothing here changes an instance. */
#include <math.h>

#include "conductor/core/pool/internal.h"
#include "conductor/core/pool/pool.h"
#include "conductor/core/step/follow.h"

/* A promise must hold even if predictions are this many standard deviations too
 * low. */
#define SURE_SPREADS 3.0

/* Returns the remaining time (us) of running prefills in line, as sum_running()
 * of work.c has it. If the first one is late, it may end any moment, and those
 * behind it have not begun. */
static int64_t line_left_us(const struct pool_instance *instance,
                            int64_t now_us)
{
    const struct pool_running_load *load = &instance->running_load;
    int64_t end_us = now_us;

    if (instance->n_running == 0)
        return 0;
    if (load->first_us >= now_us)
        return (int64_t)load->ends_us - now_us;
    if (instance->order->preempts)
        return (int64_t)load->ends_us - load->first_us;
    for (size_t i = 1; i < instance->n_running; i++)
        end_us += instance->running[i].item.cost_us;
    return end_us - now_us;
}

int64_t pool_running_left_us(const struct pool_instance *instance,
                             int64_t now_us)
{
    int64_t left_us = 0;

    if (instance->running_load.in_line)
        return line_left_us(instance, now_us);
    if (instance->running_load.first_us >= now_us)
        return (int64_t)(instance->running_load.ends_us -
                         instance->n_running * (uint64_t)now_us);
    for (size_t i = 0; i < instance->n_running; i++) {
        const struct pool_prefill *p = &instance->running[i];
        int64_t end_us = p->started_at_us + p->item.cost_us;

        if (end_us > now_us)
            left_us += end_us - now_us;
    }
    return left_us;
}

/* Returns the time of a chunk of a prefill. */
static int64_t chunk_us(const struct pool *pool, const struct pool_prefill *p)
{
    double tokens = (double)pool->config.step_tokens;

    return tokens > 0.0 && tokens >= (double)p->uncached_tokens
               ? p->item.cost_us
               : (int64_t)((double)p->item.cost_us * tokens /
                           fmax((double)p->uncached_tokens, 1.0));
}

/* Returns how long (us) a newcomer waits for running prefills under an order
 * that interrupts, until the rest yields to it. *behind = how many do. */
static int64_t on_top_wait_us(const struct pool *pool,
                              const struct pool_instance *instance,
                              int64_t cost_us, int64_t now_us, uint32_t *behind)
{
    int64_t after_us = now_us - instance->running_since_us; /* done on top */
    int64_t wait_us = 0, above_us = 0;
    size_t k = instance->n_running;

    for (; k > 0; k--) {
        const struct pool_prefill *p = &instance->running[k - 1];
        int64_t all_us = p->begun.left_us, left_us = all_us;

        if (k == instance->n_running)
            left_us = all_us > after_us ? all_us - after_us : 0;
        if (cost_us <= yield_most_us(p->spare_us - above_us, left_us))
            break;
        above_us += all_us;
        wait_us += left_us;
    }
    *behind = (uint32_t)k;
    /* The newcomer waits for half a chunk on average. */
    if (k > 0 && k == instance->n_running)
        wait_us = chunk_us(pool, &instance->running[k - 1]) / 2;
    return wait_us;
}

/* Returns the item that the instance would begin next, cached for as long as it
 * stays the same. */
static int next_of(struct pool_slot *slot, int64_t now_us)
{
    const struct pool_instance *i = &slot->view;

    if (now_us < slot->picked_from_us || now_us >= slot->picked_until_us) {
        slot->picked = queue_pick_until(i->order, i->queue, i->n_waiting,
                                        now_us, &slot->picked_until_us);
        slot->picked_from_us = now_us;
    }
    return slot->picked;
}

/* Returns the cost of the waiting item that an idle instance begins before a
 * newcomer reaches it, if that item is longer than the newcomer; else 0. */
static int64_t beginning_us(const struct pool *pool,
                            const struct pool_instance *instance,
                            const struct queue_item *item, int64_t now_us)
{
    int next;

    if (instance->order->by_age || instance->n_running > 0 ||
        item->ready_at_us > now_us)
        return 0;
    next = next_of(&pool->slots[instance->slot], now_us);
    return next >= 0 && instance->queue[next].cost_us > item->cost_us
               ? instance->queue[next].cost_us
               : 0;
}

/* Returns in how many us the instance is free for a newcomer. *behind = running
 * prefills that wait for the newcomer. */
static int64_t free_us(const struct pool *pool,
                       const struct pool_instance *instance, int64_t left_us,
                       int64_t cost_us, int64_t now_us, uint32_t *behind)
{
    *behind = 0;
    if (!instance->order->preempts || instance->n_running == 0 ||
        !yield_has_time(left_us + instance->load.cost_us + cost_us,
                        pool->config.patience_us))
        return left_us;
    return on_top_wait_us(pool, instance, cost_us, now_us, behind);
}

/* Returns the us by which work_us of work may exceed its prediction:
 * SURE_SPREADS standard deviations of a sum whose parts were each off by
 * correction_spread(), taken as independent. Under orders that interrupt, the
 * error is of the time that prefills kept the engine, late loads and evicted
 * blocks included. 0 for orders by age: Algorithm 1 tests its plain prediction.
 */
static int64_t doubt_us(const struct pool_instance *instance, int64_t work_us)
{
    bool whole = instance->order->preempts;
    const struct correction *c =
        whole ? &instance->occupancy : &instance->correction;
    double us;

    if (instance->order->by_age || c->square <= 0.0)
        return 0;
    us = SURE_SPREADS * correction_spread(c) *
         sqrt((double)work_us * correction_sum_us(c));
    return (int64_t)us;
}

/* Returns its answer member by member: copying a struct right after its members
 * were written stalls, for a third of a decision over 1,000 instances. */
struct pool_place pool_queue_place(const struct pool *pool,
                                   const struct pool_instance *instance,
                                   int64_t ready_at_us, int64_t cost_us,
                                   int64_t deadline_us, int64_t now_us)
{
    int64_t left_us = pool_running_left_us(instance, now_us);
    int64_t most_us = left_us + instance->load.cost_us;
    int64_t doubt = doubt_us(instance, most_us + cost_us);
    int64_t wait_us, first_us;
    uint32_t behind, interrupted;

    left_us = free_us(pool, instance, left_us, cost_us, now_us, &interrupted);
    if (instance->n_waiting == 0 && ready_at_us != QUEUE_NOT_READY) {
        wait_us =
            ready_at_us - now_us > left_us ? ready_at_us - now_us : left_us;
        return (struct pool_place){.wait_us = wait_us,
                                   .most_us =
                                       wait_us > most_us ? wait_us : most_us,
                                   .doubt_us = doubt,
                                   .behind = interrupted};
    }
    struct queue_item item = {
        .arrival_seq = pool->next_seq,
        .ready_at_us = ready_at_us,
        .cost_us = cost_us,
        .arrived_us = now_us,
        .deadline_us = deadline_us > 0
                           ? deadline_us
                           : now_us + queue_implied_us(cost_us, most_us),
        .has_slo = deadline_us > 0,
    };

    wait_us =
        queue_wait_us(instance->order, instance->queue, instance->n_waiting,
                      &instance->load, &item, left_us, now_us, &behind);
    first_us = beginning_us(pool, instance, &item, now_us);
    wait_us += first_us;
    behind -= first_us > 0 && behind > 0;
    behind += interrupted;
    if (instance->order->by_age || most_us < wait_us)
        most_us = wait_us;
    return (struct pool_place){.wait_us = wait_us,
                               .most_us = most_us,
                               .doubt_us = doubt,
                               .behind = behind};
}

/* Returns the time (us) until a prefill has computed its first n blocks. */
static int64_t blocks_left_us(const struct pool_prefill *p, uint32_t n)
{
    double cached = (double)p->cached_tokens;
    double uncached = (double)p->uncached_tokens;
    double to_do = (cached + uncached) * n / p->n_keys - cached;

    if (uncached <= 0.0 || to_do <= 0.0)
        return 0;
    return (int64_t)((double)p->item.cost_us * fmin(to_do / uncached, 1.0)) -
           p->worked_us;
}

int64_t pool_computed_us(const struct pool *pool,
                         const struct pool_instance *instance,
                         const uint64_t *keys, uint32_t n, int64_t now_us)
{
    int64_t end_us = instance->running_since_us;

    if (!instance->order->preempts)
        return 0;
    for (size_t k = instance->n_running; k > 0; k--) {
        const struct pool_prefill *p = &instance->running[k - 1];

        if (p->n_keys >= n &&
            ((const uint64_t *)arena_at(&pool->keys, p->keys_at))[n - 1] ==
                keys[n - 1]) {
            end_us += blocks_left_us(p, n);
            return end_us > now_us ? end_us : 0;
        }
        end_us += p->begun.left_us;
    }
    return 0;
}

uint32_t pool_blocks_over(const struct pool *pool,
                          const struct pool_instance *instance, uint32_t n_new)
{
    uint32_t n = pending_blocks(pool->pending, instance->slot);
    int64_t left_tokens;

    if (instance->cache_tokens <= 0 || instance->role & ROLE_DECODE || n == 0)
        return 0;
    left_tokens =
        instance->cache_tokens - ((int64_t)n + n_new) * instance->block_tokens;
    return left_tokens < 0 ? (uint32_t)(-left_tokens / instance->block_tokens)
                           : 0;
}

/* Returns when a waiting prefill will have ended, by the present queue. */
static int64_t waiting_end_us(const struct pool_instance *instance, size_t i,
                              int64_t now_us)
{
    const struct queue_item *item = &instance->queue[i];
    int64_t start_us = now_us + pool_running_left_us(instance, now_us);
    uint32_t behind;
    int64_t end_us =
        instance->order->begin_us(instance->order, instance->queue,
                                  instance->n_waiting, item, start_us, &behind);

    /* begin_us() counted it in front of itself, unless it is late. */
    return start_us + item->cost_us <= item->deadline_us
               ? end_us
               : end_us + item->cost_us;
}

int64_t pool_followed_us(const struct pool *pool,
                         const struct pool_instance *instance,
                         const uint64_t *keys, uint32_t n,
                         const struct queue_item *item, int64_t now_us)
{
    if (!instance->order->rank)
        return 0;
    for (size_t i = 0; i < instance->n_waiting; i++) {
        const struct pool_prefill *p = &instance->waiting[i];

        if (p->n_keys < n || p->item.ready_at_us == QUEUE_NOT_READY ||
            ((const uint64_t *)arena_at(&pool->keys, p->keys_at))[n - 1] !=
                keys[n - 1])
            continue;
        return follow_waits(instance->order, &p->item, item,
                            blocks_left_us(p, n))
                   ? waiting_end_us(instance, i, now_us)
                   : 0;
    }
    return 0;
}

int64_t pool_kv_tokens(const struct pool_instance *instance,
                       int64_t prompt_tokens, int64_t max_output_tokens)
{
    int64_t tokens = pool_tokens_at_longest(prompt_tokens, max_output_tokens);

    return (tokens + instance->block_tokens - 1) / instance->block_tokens *
           instance->block_tokens;
}
