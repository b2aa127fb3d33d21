/* Larger pieces: each holds several blocks, the first of which other pieces may
 * hold, too. */
#include "conductor/core/index/block_key.h"
#include "conductor/link/events/recut/state.h"

void larger_name(struct recut *r, uint32_t at, uint32_t parent, uint64_t seed,
                 const uint32_t *tokens, uint64_t extra)
{
    uint32_t size = r->config.block_tokens;
    uint64_t *keys = recut_words(r, at);
    struct piece *p = &r->pieces[at];

    if (parent != NO_PIECE)
        p->before = r->pieces[parent].last;
    block_keys_continue(p->before, tokens, size, size, seed, keys);
    if (extra != 0)
        keys[0] = block_key_with(keys[0], extra, seed);
    block_keys_continue(keys[0], tokens + size, (size_t)(r->ratio - 1) * size,
                        size, seed, keys + 1);
    p->last = keys[r->ratio - 1];
}

/* Counts one more, or one less, piece that holds a block; tells the sink if it
 * was the first or the last. */
static void count(struct recut *r, bool more, enum block_tier tier,
                  uint64_t before, uint64_t key)
{
    const struct copy_place place = {.tier = (uint8_t)tier};
    struct copies_look look = copies_look(&r->held, key, place);

    if (look.entry && (more || look.entry->count > 1)) {
        look.entry->count += more ? 1 : UINT32_MAX;
        return;
    }
    if (more && !copies_add(&r->held, look.room, key, place, key, 0))
        return;
    if (!more && !look.entry)
        return;
    if (!more)
        copies_remove(&r->held, look.entry);
    recut_say(r, more, tier, before, key);
}

void larger_changed(struct recut *r, uint32_t at, enum block_tier tier)
{
    const struct piece *p = &r->pieces[at];
    bool more = p->tiers & BLOCK_TIER_BIT(tier);
    const uint64_t *keys = recut_words(r, at);

    for (uint32_t i = 0; i < r->ratio; i++) {
        uint32_t k = more ? i : r->ratio - 1 - i;

        count(r, more, tier, k > 0 ? keys[k - 1] : p->before, keys[k]);
    }
}

bool larger_check(const struct recut *r)
{
    uint64_t expected = 0;

    for (uint32_t at = 0; at < r->n_used; at++)
        if (r->pieces[at].used)
            expected +=
                (uint64_t)__builtin_popcount(r->pieces[at].tiers) * r->ratio;
    return expected == copies_counted(&r->held);
}
