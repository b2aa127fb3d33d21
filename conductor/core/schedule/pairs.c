/*
 * Pairs of an aggregated pool: instances of a group that prefill alone, and
 * those that decode what these have prefilled.
 */
#include <string.h>

#include "conductor/core/schedule/internal.h"

/* One that decodes, for pairs of its group. */
static void note_taker(struct scheduler *s,
                       const struct schedule_request *request,
                       const struct pool_instance *i, uint32_t usable_blocks)
{
    uint32_t there = schedule_lesser(s->stored.blocks[i->slot], usable_blocks);
    bool first = !(s->takers >> i->pair & 1u);
    int64_t us = 0;

    s->takers |= 1u << i->pair;
    if (pool_decode_has_room(i, request->n_tokens,
                             request->max_output_tokens)) {
        if (there > s->there[i->pair])
            s->there[i->pair] = there;
    } else {
        us = beside_room_us(estimate_cost(&s->model, i), i, request->n_tokens,
                            request->max_output_tokens);
    }
    if (first || us < s->room_us[i->pair])
        s->room_us[i->pair] = us;
}

void schedule_find_pairs(struct scheduler *s,
                         const struct schedule_request *request,
                         uint32_t usable_blocks)
{
    const struct pool_instance *const *instances = pool_instances(s->pool);
    const uint8_t *ready = pool_ready_roles(s->pool);
    uint32_t n_slots = pool_slots(s->pool);

    s->givers = s->takers = 0;
    memset(s->there, 0, sizeof(s->there));
    memset(s->given, 0, sizeof(s->given));
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        const struct pool_instance *i = instances[slot];

        if (!ready[slot] || i->pair == 0 || schedule_excluded(request, i->id))
            continue;
        if (ready[slot] & ROLE_DECODE) {
            note_taker(s, request, i, usable_blocks);
        } else if (!pool_prefill_full(i)) {
            uint32_t has = schedule_local_blocks(s, slot, usable_blocks);

            s->givers |= 1u << i->pair;
            if (has > s->given[i->pair])
                s->given[i->pair] = has;
        }
    }
}

/* How much longer those that prefill would compute. */
static int64_t longer_us(const struct scheduler *s,
                         const struct schedule_request *request, uint8_t pair,
                         const struct prefill_estimate *e)
{
    int64_t cached = (int64_t)s->given[pair] * s->model.block_tokens;
    int64_t us;

    if (cached >= e->cached_tokens)
        return 0;
    us = cost_model_prefill_us(s->model.cost, request->n_tokens - cached,
                               cached, NULL);
    return us > e->predicted_us ? us - e->predicted_us : 0;
}

bool schedule_spares(const struct scheduler *s,
                     const struct schedule_request *request,
                     const struct pool_instance *i,
                     const struct prefill_estimate *e)
{
    if (!s->model.coupled || i->pair == 0 || (i->role & ROLE_DECODE) == 0 ||
        !((s->givers & ~request->whole) >> i->pair & 1u) ||
        request->max_output_tokens <= 1)
        return false;
    return e->prefill_us >
           longer_us(s, request, i->pair, e) +
               estimate_push_us(&s->model, schedule_push_tokens(
                                               s, request, s->there[i->pair]));
}
