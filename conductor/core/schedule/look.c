/* Lookups without a request: the blocks of a prompt that instances hold. */
#include "conductor/core/schedule/internal.h"

struct pool *schedule_pool(const struct scheduler *scheduler)
{
    return scheduler->pool;
}

const struct schedule_rules *
schedule_rules_of(const struct scheduler *scheduler)
{
    return &scheduler->rules;
}

const struct estimate_model *schedule_model(const struct scheduler *scheduler)
{
    return &scheduler->model;
}

struct schedule_look schedule_look(struct scheduler *s, const uint64_t *keys,
                                   size_t n_keys, int64_t n_tokens, bool shared)
{
    const struct schedule_request request = {
        .keys = keys, .n_keys = n_keys, .n_tokens = n_tokens};

    schedule_match(
        s, &request,
        estimate_usable_blocks(&s->model, UINT32_MAX, request.n_tokens),
        shared);
    return (struct schedule_look){
        .pool = s->pool,
        .model = &s->model,
        .index = s->index,
        .stored = s->stored.blocks,
        .expected = s->expected.blocks,
    };
}

bool schedule_looked_slow(const struct schedule_look *look,
                          const struct pool_instance *instance,
                          const uint64_t *keys, uint32_t n)
{
    unsigned fast = 0, tiers;

    if (!schedule_has_slow_tier(instance))
        return false;
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        if (instance->tier_bytes_per_s[t] == 0.0)
            fast |= BLOCK_TIER_BIT(t);
    for (uint32_t b = 0; b < n; b++) {
        tiers = prefix_index_tiers(look->index, instance->slot, keys[b]);
        if (tiers != 0 && (tiers & fast) == 0)
            return true;
    }
    return false;
}

int schedule_accept_piece(struct scheduler *s,
                          const struct pool_prefill_request *request,
                          uint32_t instance)
{
    struct pool_prefill_request piece = *request;

    if (s->model.simulated.expected || s->model.assumes_stored)
        piece.n_keys = 0;
    return pool_prefill_accept(s->pool, instance, &piece);
}
