/* Smaller pieces: several make a block. Pieces that begin alike form a tree,
 * since prompts may part within a block. */
#include <string.h>

#include "conductor/core/index/block_key.h"
#include "conductor/link/events/recut/state.h"

/* Returns the key of the block that ends with a piece, from the tokens of all
 * its pieces. */
static uint64_t block_key(const struct recut *r, uint32_t last, uint64_t seed)
{
    uint32_t size = r->config.piece_tokens, at = last;
    uint64_t key;

    for (uint32_t i = r->ratio; i-- > 0; at = r->pieces[at].parent)
        memcpy(r->tokens + (size_t)i * size, recut_words(r, at),
               size * sizeof(*r->tokens));
    block_keys_continue(r->pieces[last].before, r->tokens,
                        r->config.block_tokens, r->config.block_tokens, seed,
                        &key);
    return r->pieces[last].odd ? block_key_with(key, r->pieces[last].key, seed)
                               : key;
}

/* Returns the first piece of a piece's block. */
static uint32_t top_of(const struct recut *r, uint32_t at)
{
    return r->pieces[at].parent == NO_PIECE ? at : r->pieces[at].tree;
}

static bool in_its_block(const struct recut *r, uint32_t parent)
{
    return parent != NO_PIECE && r->pieces[parent].at + 1u < r->ratio;
}

bool smaller_fits(const struct recut *r, uint32_t parent)
{
    return !in_its_block(r, parent) ||
           r->pieces[top_of(r, parent)].tree < RECUT_TREE_MAX;
}

static void link_child(struct recut *r, uint32_t at, uint32_t parent)
{
    struct piece *p = &r->pieces[at], *above = &r->pieces[parent];
    uint32_t top = top_of(r, parent);

    p->tree = top;
    if (++r->pieces[top].tree > r->widest)
        r->widest = r->pieces[top].tree;

    p->parent = parent;
    p->next = above->child;
    if (p->next != NO_PIECE)
        r->pieces[p->next].prev = at;
    above->child = at;
}

void smaller_unlink(struct recut *r, uint32_t at)
{
    const struct piece *p = &r->pieces[at];

    if (p->parent != NO_PIECE)
        r->pieces[p->tree].tree--;
    if (p->next != NO_PIECE)
        r->pieces[p->next].prev = p->prev;
    if (p->prev != NO_PIECE)
        r->pieces[p->prev].next = p->next;
    else if (p->parent != NO_PIECE)
        r->pieces[p->parent].child = p->next;
}

void smaller_name(struct recut *r, uint32_t at, uint32_t parent, uint64_t seed,
                  const uint32_t *tokens, uint64_t extra)
{
    struct piece *p = &r->pieces[at];

    p->odd = extra != 0;
    p->tree = 1;
    memcpy(recut_words(r, at), tokens,
           r->config.piece_tokens * sizeof(*tokens));
    if (in_its_block(r, parent)) {
        const struct piece *above = &r->pieces[parent];

        p->at = (uint16_t)(above->at + 1);
        p->before = above->before;
        p->odd |= above->odd;
        link_child(r, at, parent);
    } else if (parent != NO_PIECE) {
        p->before = r->pieces[parent].last;
    }
    if (p->at + 1u == r->ratio)
        p->last = block_key(r, at, seed);
}

static bool is_whole(const struct recut *r, const struct piece *p, unsigned bit)
{
    return (p->tiers & bit) &&
           (p->parent == NO_PIECE || (r->pieces[p->parent].whole & bit));
}

/* Returns the next piece below `top`, depth first; children of `at` only if
 * `deeper`. NO_PIECE = none. */
static uint32_t next_below(const struct recut *r, uint32_t top, uint32_t at,
                           bool deeper)
{
    if (deeper && r->pieces[at].child != NO_PIECE)
        return r->pieces[at].child;
    while (at != top && r->pieces[at].next == NO_PIECE)
        at = r->pieces[at].parent;
    return at == top ? NO_PIECE : r->pieces[at].next;
}

void smaller_changed(struct recut *r, uint32_t top, enum block_tier tier)
{
    uint8_t bit = (uint8_t)BLOCK_TIER_BIT(tier);
    bool changed;

    for (uint32_t at = top; at != NO_PIECE;
         at = next_below(r, top, at, changed)) {
        struct piece *p = &r->pieces[at];
        bool whole = is_whole(r, p, bit);

        r->cost += at != top;
        changed = whole != !!(p->whole & bit);
        if (!changed)
            continue;
        p->whole ^= bit;
        if (p->at + 1u == r->ratio)
            recut_say(r, whole, tier, p->before, p->last);
    }
}

bool smaller_check(const struct recut *r)
{
    for (uint32_t at = 0; at < r->n_used; at++) {
        const struct piece *p = &r->pieces[at];

        if (!p->used)
            continue;
        for (unsigned t = 0; t < BLOCK_TIERS; t++)
            if (is_whole(r, p, BLOCK_TIER_BIT(t)) !=
                !!(p->whole & BLOCK_TIER_BIT(t)))
                return false;
        if (p->at >= r->ratio || (p->at > 0) != (p->parent != NO_PIECE) ||
            (p->child != NO_PIECE && r->pieces[p->child].parent != at) ||
            (p->next != NO_PIECE && r->pieces[p->next].prev != at) ||
            r->pieces[top_of(r, at)].tree > RECUT_TREE_MAX)
            return false;
    }
    return true;
}
