/* Pairs of an aggregated pool: groups of prefill-only instances and instances
 * that decode for them. */
#include <string.h>

#include "conductor/core/schedule/internal.h"

/* Notes an instance that decodes for the pairs of its group. */
static void note_taker(struct scheduler *s,
                       const struct schedule_request *request,
                       const struct pool_instance *i, uint32_t usable_blocks)
{
    uint32_t there = schedule_lesser(s->stored.blocks[i->slot], usable_blocks);
    bool first = !(s->takers >> i->pair & 1u);
    int64_t us = 0;

    s->takers |= 1u << i->pair;
    if (i->awaited_tokens == 0 && /* else its room is kept for another one */
        pool_decode_has_room(i, request->n_tokens,
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
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        const struct pool_instance *i = instances[slot];

        if (!ready[slot] || i->pair == 0 || schedule_excluded(request, i))
            continue;
        if (ready[slot] & ROLE_DECODE)
            note_taker(s, request, i, usable_blocks);
        else if (!pool_prefill_full(i))
            s->givers |= 1u << i->pair;
    }
}

/* Whether an instance is in a pair and only prefills. */
static bool gives(const struct pool_instance *i)
{
    return i->pair > 0 && (i->role & ROLE_DECODE) == 0;
}

void schedule_spare(struct scheduler *s, const struct schedule_request *request,
                    size_t n)
{
    uint32_t pairs = s->givers & s->takers & ~request->whole;
    int64_t best_us[POOL_PAIRS];

    if (pairs == 0 || request->max_output_tokens <= 1 ||
        schedule_guards_tbt(s, request))
        return;
    for (size_t p = 0; p < POOL_PAIRS; p++)
        best_us[p] = ESTIMATE_NEVER_US;
    for (size_t c = 0; c < n; c++) {
        const struct prefill_estimate *e = &s->candidates[c];
        const struct pool_instance *i = pool_at(s->pool, e->slot);

        if (gives(i) && !e->queue_full && !e->too_long &&
            e->ttft_us < best_us[i->pair])
            best_us[i->pair] = e->ttft_us;
    }
    for (size_t c = 0; c < n; c++) {
        struct prefill_estimate *e = &s->candidates[c];
        const struct pool_instance *i = pool_at(s->pool, e->slot);

        if (i->pair > 0 && !gives(i) && pairs >> i->pair & 1u)
            e->spared = e->ttft_us + e->prefill_us > best_us[i->pair];
    }
}
