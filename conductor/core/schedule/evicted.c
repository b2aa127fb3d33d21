/* Learns the cost of evictions. Tokens of a prompt that were asked for before
 * and that no instance holds any more have been evicted. The time to compute
 * them again, over the tokens that accepted prompts evicted, is the cost of
 * evicting one more.
 *
 * Both sums are halved when they pass what the instances hold, so that they
 * follow the load. */
#include "conductor/core/price/price.h"
#include "conductor/core/schedule/internal.h"

/* Pieces of prompts that are remembered: 500 million tokens. */
#define SEEN_PIECES (UINT64_C(1) << 20)

int schedule_evicted_init(struct scheduler *s)
{
    if (!s->rules.weighs_evicted)
        return 0;
    return asked_init(&s->evicted.seen, SEEN_PIECES,
                      pool_config(s->pool)->seed);
}

int64_t schedule_evicted_tokens(const struct scheduler *s,
                                const struct schedule_request *request,
                                uint32_t usable_blocks, uint32_t slot)
{
    const struct pool_instance *i = pool_at(s->pool, slot);
    int64_t more = (int64_t)request->n_keys -
                   schedule_local_blocks(s, slot, usable_blocks);
    int64_t room = pool_decode_room_tokens(i) / s->model.block_tokens -
                   (int64_t)prefix_index_held(s->index, slot);

    if (i->cache_tokens > i->kv_capacity_tokens) /* it has slower tiers */
        room +=
            (i->cache_tokens - i->kv_capacity_tokens) / s->model.block_tokens;
    if (room < 0 || i->kv_capacity_tokens >= POOL_KV_UNKNOWN)
        room = 0;
    return more > room ? (more - room) * s->model.block_tokens : 0;
}

/* Returns the most leading blocks that any instance has or will have. */
static uint32_t most_blocks(const struct scheduler *s, uint32_t usable_blocks)
{
    uint32_t most = 0;

    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        uint32_t n = schedule_local_blocks(s, slot, usable_blocks);

        if (n > most)
            most = n;
    }
    return most;
}

/* Counts a prompt's pieces, and those that are computed again: they were seen
 * before and lie beyond the first `held` tokens. */
static void count_pieces(struct scheduler *s,
                         const struct schedule_request *request, int64_t held)
{
    struct schedule_evicted *e = &s->evicted;
    int64_t block = s->model.block_tokens;
    size_t step =
        block < PRICE_PIECE_TOKENS ? PRICE_PIECE_TOKENS / (size_t)block : 1;
    int64_t piece = (int64_t)step * block;

    for (size_t i = step; i <= request->n_keys; i += step)
        asked_fetch(&e->seen, request->keys[i - 1]);
    for (size_t i = step; i <= request->n_keys; i += step) {
        int64_t before = (int64_t)i * block - piece;

        if (asked_count(&e->seen, request->keys[i - 1]) < 2 || before < held)
            continue;
        e->again_tokens += (double)piece;
        e->again_us +=
            (double)cost_model_prefill_us(s->model.cost, piece, before, NULL);
    }
}

void schedule_evicted_count(struct scheduler *s,
                            const struct schedule_request *request,
                            uint32_t slot)
{
    struct schedule_evicted *e = &s->evicted;
    uint32_t usable_blocks =
        estimate_usable_blocks(&s->model, UINT32_MAX, request->n_tokens);
    double held = (double)prefix_index_stats(s->index).holders *
                  (double)s->model.block_tokens;

    if (!s->rules.weighs_evicted)
        return;
    e->tokens +=
        (double)schedule_evicted_tokens(s, request, usable_blocks, slot);
    count_pieces(s, request,
                 (int64_t)most_blocks(s, usable_blocks) *
                     s->model.block_tokens);
    if (e->tokens > held || e->again_tokens > held) {
        e->tokens /= 2.0;
        e->again_tokens /= 2.0;
        e->again_us /= 2.0;
    }
}

double schedule_evicted_us(const struct scheduler *s)
{
    const struct schedule_evicted *e = &s->evicted;
    double tokens = e->tokens > e->again_tokens ? e->tokens : e->again_tokens;

    return tokens > 0.0 ? e->again_us / tokens : 0.0;
}
