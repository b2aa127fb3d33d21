/* Adds and removes pieces; smaller.c and larger.c derive the index's blocks. */
#include "conductor/link/events/recut/recut.h"

#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/block_cut.h"
#include "conductor/core/index/zeroed.h"
#include "conductor/link/events/recut/state.h"

#define SLOTS_MIN 64u
/* Average words for each of the most pieces. */
#define WORDS_EACH 16u

static uint32_t slots_max(const struct recut *r)
{
    uint64_t max = r->config.max_pieces;

    if (r->n_words > WORDS_EACH)
        max = max * WORDS_EACH / r->n_words + 1;
    return max < NO_PIECE ? (uint32_t)max : NO_PIECE - 1;
}

/* Makes the tables and the scratch memory. */
static int set_up(struct recut *r)
{
    const struct recut_config *c = &r->config;

    r->max_slots = slots_max(r);
    r->tokens = malloc(c->block_tokens * sizeof(*r->tokens));
    return !r->tokens || copies_init(&r->by_key, r->max_slots, c->seed) ||
           copies_init(&r->held, UINT64_MAX, ~c->seed);
}

struct recut *recut_new(const struct recut_config *config,
                        const struct kv_map_sink *sink, void *arg)
{
    uint32_t p = config->piece_tokens, b = config->block_tokens;
    struct recut *r;

    if (!block_cuts(p, b))
        return NULL;
    r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->config = *config;
    r->sink = *sink;
    r->arg = arg;
    r->larger = p > b;
    r->ratio = r->larger ? p / b : b / p;
    r->n_words = r->larger ? r->ratio : (p + 1) / 2;
    r->free = r->unsettled = NO_PIECE;
    if (set_up(r)) {
        recut_free(r);
        return NULL;
    }
    return r;
}

static void free_pieces(struct recut *r)
{
    table_free(r->pieces, r->n_pieces, sizeof(*r->pieces));
    table_free(r->words, r->n_slots, r->n_words * sizeof(*r->words));
}

void recut_free(struct recut *r)
{
    if (!r)
        return;
    copies_fini(&r->by_key);
    copies_fini(&r->held);
    free(r->tokens);
    free_pieces(r);
    free(r);
}

static uint32_t find(const struct recut *r, uint64_t key)
{
    const struct copies *entry = copies_first(&r->by_key, key);

    return entry ? (uint32_t)(entry->key - 1) : NO_PIECE;
}

static bool grow(struct recut *r)
{
    uint64_t n = r->n_slots ? 2 * (uint64_t)r->n_slots : SLOTS_MIN;
    struct piece *pieces;
    uint64_t *words;

    n = n < r->max_slots ? n : r->max_slots;
    if (n == r->n_slots)
        return false;
    if (r->n_pieces < n) {
        pieces = table_resized(r->pieces, r->n_pieces, n, sizeof(*pieces));
        if (!pieces)
            return false;
        r->pieces = pieces;
        r->n_pieces = (uint32_t)n;
    }
    words = table_resized(r->words, r->n_slots, n, r->n_words * sizeof(*words));
    if (!words)
        return false;
    r->words = words;
    r->n_slots = (uint32_t)n;
    return true;
}

/* Adds a piece, unsettled at first. Returns its slot, or NO_PIECE: no room. */
static uint32_t add(struct recut *r, uint64_t key)
{
    const struct copy_place place = {0};
    struct copies_look look;
    uint32_t at = r->free;

    if (at == NO_PIECE && r->n_used == r->n_slots && !grow(r))
        return NO_PIECE;
    if (at == NO_PIECE)
        at = r->n_used;
    look = copies_look(&r->by_key, key, place);
    if (!copies_add(&r->by_key, look.room, key, place, at + UINT64_C(1), 0))
        return NO_PIECE;
    if (at == r->n_used)
        r->n_used++;
    else
        r->free = r->pieces[at].link;
    r->pieces[at] = (struct piece){.key = key,
                                   .parent = NO_PIECE,
                                   .child = NO_PIECE,
                                   .next = NO_PIECE,
                                   .prev = NO_PIECE,
                                   .link = r->unsettled,
                                   .used = true,
                                   .unsettled = true};
    r->unsettled = at;
    return at;
}

/* Frees a piece that is no longer needed, and earlier ones that were kept for
 * it alone. */
static void drop_idle(struct recut *r, uint32_t at)
{
    while (at != NO_PIECE) {
        struct piece *p = &r->pieces[at];
        uint32_t parent = p->parent;

        if (p->tiers || p->unsettled || p->child != NO_PIECE)
            return;
        smaller_unlink(r, at);
        copies_remove(&r->by_key, copies_first(&r->by_key, p->key));
        *p = (struct piece){.link = r->free};
        r->free = at;
        at = parent;
    }
}

void recut_name(struct recut *r, uint64_t parent, uint64_t seed,
                const uint32_t *tokens, const uint64_t *extras,
                const uint64_t *keys, uint32_t n)
{
    uint32_t before = parent ? find(r, parent) : NO_PIECE, i = 0;

    for (; i < n && !(parent && before == NO_PIECE); i++) {
        uint32_t at = find(r, keys[i]);
        uint64_t extra = extras ? extras[i] : 0;

        if (at == NO_PIECE) {
            if (r->larger || smaller_fits(r, before))
                at = add(r, keys[i]);
            if (at == NO_PIECE)
                break;
            (r->larger ? larger_name : smaller_name)(
                r, at, before, seed,
                tokens + (size_t)i * r->config.piece_tokens, extra);
        }
        parent = keys[i];
        before = at;
    }
    r->full += n - i;
}

/* Puts pieces into a tier (has), or takes them out. */
static void change(struct recut *r, enum block_tier tier, const uint64_t *keys,
                   size_t n, bool has)
{
    uint8_t bit = (uint8_t)BLOCK_TIER_BIT(tier);

    for (size_t i = 0; i < n; i++) {
        uint32_t at = find(r, keys[i]);

        if (at == NO_PIECE || !!(r->pieces[at].tiers & bit) == has)
            continue;
        r->pieces[at].tiers ^= bit;
        (r->larger ? larger_changed : smaller_changed)(r, at, tier);
        drop_idle(r, at);
    }
    recut_say_all(r);
}

void recut_stored(struct recut *r, enum block_tier tier, const uint64_t *keys,
                  size_t n)
{
    change(r, tier, keys, n, true);
}

void recut_removed(struct recut *r, enum block_tier tier, const uint64_t *keys,
                   size_t n)
{
    change(r, tier, keys, n, false);
}

void recut_settle(struct recut *r)
{
    while (r->unsettled != NO_PIECE) {
        uint32_t at = r->unsettled;

        r->unsettled = r->pieces[at].link;
        r->pieces[at].unsettled = false;
        drop_idle(r, at);
    }
}

void recut_clear(struct recut *r)
{
    copies_clear(&r->by_key);
    copies_clear(&r->held);
    free_pieces(r);
    r->pieces = NULL;
    r->words = NULL;
    r->n_pieces = r->n_slots = r->n_used = r->widest = 0;
    r->free = r->unsettled = NO_PIECE;
}

uint64_t recut_cost(const struct recut *r)
{
    return r->cost;
}

uint32_t recut_piece_cost(const struct recut *r)
{
    return r->larger ? r->ratio : r->widest;
}

uint64_t recut_full(const struct recut *r)
{
    return r->full;
}

uint64_t recut_pieces(const struct recut *r)
{
    return r->by_key.n;
}

bool recut_check(const struct recut *r)
{
    uint64_t n = 0;

    for (uint32_t at = 0; at < r->n_used; at++) {
        const struct piece *p = &r->pieces[at];

        if (!p->used)
            continue;
        n++;
        if (find(r, p->key) != at || p->unsettled ||
            (!p->tiers && p->child == NO_PIECE))
            return false;
    }
    return n == r->by_key.n && r->unsettled == NO_PIECE && r->said.n == 0 &&
           copies_check(&r->by_key) && copies_check(&r->held) &&
           (r->larger ? larger_check : smaller_check)(r);
}
