/* Applies a batch in pieces, and forgets blocks in pieces. */
#include <string.h>

#include "conductor/link/events/map/state.h"

/* Events to prefetch ahead. */
#define AHEAD_EVENTS 8u
/* Most cost of a piece, in blocks, unless one block alone costs more. */
#define PIECE_COST 1024u
/* Slots that a clear looks at in one piece, and slots that take as long as a
 * block. An entry removed costs one block more. */
#define PIECE_LOOKS 4096u
#define BLOCK_LOOKS 64u

static void forget_all(struct kv_map *map)
{
    map->n_gone = 0;
    map->stats.unkept = 0;
    map->clears = (struct map_clears){0};
    waiting_clear(&map->waiting);
    copies_clear(&map->copies);
    memset(map->n_of, 0, sizeof(map->n_of));
    if (map->recut)
        recut_clear(map->recut);
    map->sink.cleared(map->arg);
}

void kv_map_clear(struct kv_map *map)
{
    kv_map_abandon(map);
    forget_all(map);
}

static uint64_t cost_so_far(const struct kv_map *map)
{
    return map->work.cost + (map->recut ? recut_cost(map->recut) : 0) +
           (map->config.room_cost ? map->config.room_cost(map->arg) : 0);
}

/* How many entries a rank has in some tiers. */
static uint64_t entries_of(const struct kv_map *map, uint16_t rank,
                           unsigned tiers)
{
    uint64_t n = 0;

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        if (tiers & BLOCK_TIER_BIT(t))
            n += map->n_of[rank][t];
    return n;
}

/* Removes a rank's entries in these tiers, from slot *at on; looks again at
 * slots that entries move into. Returns whether some are left. */
static bool clear_part(struct kv_map *map, uint16_t rank, unsigned tiers,
                       uint64_t *at)
{
    uint64_t left = entries_of(map, rank, tiers), from = cost_so_far(map);
    uint64_t looks = 0;

    while (left > 0 && cost_so_far(map) - from < MAP_PIECE_BLOCKS) {
        struct copies *entry =
            copies_seek(&map->copies, at, rank, tiers, &looks, PIECE_LOOKS);

        if (!entry)
            break;
        map_remove_entry(map, entry);
        if (map->recut)
            map_say_gone(map);
        map->work.cost++;
        left--;
    }
    map->work.cost += looks / BLOCK_LOOKS;
    map_say_gone(map);
    return left > 0;
}

/* Whether all known entries are of this rank. */
static bool has_only(const struct kv_map *map, uint16_t rank)
{
    return !map->several_ranks && rank == map->rank;
}

void kv_map_clear_rank(struct kv_map *map, uint16_t rank)
{
    if (has_only(map, rank)) {
        kv_map_clear(map);
        return;
    }
    if (map->work.batch && map->work.rank == rank)
        kv_map_abandon(map);
    map->work.slot = 0; /* the clear moves entries */
    waiting_clear(&map->waiting);
    map->clears.at = 0;
    map->clears.n += !map->clears.of[rank];
    map->clears.of[rank] = true;
}

bool kv_map_forgets(const struct kv_map *map)
{
    return map->clears.n > 0 || waiting_sweeps(&map->waiting);
}

/* Forgets a piece. Returns whether there was anything to forget. */
static bool forget_part(struct kv_map *map)
{
    struct map_clears *c = &map->clears;
    uint16_t rank = 0;

    if (waiting_sweep(&map->waiting)) {
        map->work.cost++;
        return true;
    }
    if (c->n == 0)
        return false;
    while (!c->of[rank])
        rank++;
    map->work.cost++;
    if (clear_part(map, rank, BLOCK_TIERS_ALL, &c->at))
        return true;
    c->of[rank] = false;
    c->n--;
    c->at = 0;
    return true;
}

/* Clears a piece. Returns whether more is left. */
static bool cleared(struct kv_map *map, const struct kv_event *e, uint16_t rank)
{
    bool all = map->config.parts || (!e->has_tier && has_only(map, rank));

    if (map->work.slot == 0) {
        map->stats.cleared++;
        if (!all && !e->has_tier)
            waiting_clear(&map->waiting);
    }
    if (!all)
        return clear_part(
            map, rank, e->has_tier ? BLOCK_TIER_BIT(e->tier) : BLOCK_TIERS_ALL,
            &map->work.slot);
    forget_all(map);
    return false;
}

/* Sets an event's tier, groups and rank to those that count here. Returns false
 * if the event does not count. */
static bool counts(struct kv_map *map, struct kv_event *e, uint16_t *rank)
{
    if (map->config.parts) {
        *rank = e->part;
        e->tier = e->has_tier ? e->tier : TIER_DISK;
    } else if (e->unknown_medium) {
        map->stats.other_media++;
        return false;
    }
    if (e->kind == KV_CLEARED)
        return true;
    if (e->windowed)
        map->windowed_groups |= e->groups;
    e->groups &= ~map->windowed_groups;
    map->stats.windowed += e->groups == 0;
    return e->groups != 0 && (e->kind == KV_REMOVED || map_fits(map, e));
}

/* Returns the cost of one of the event's blocks: its copies, times the index's
 * blocks in it. */
static uint32_t block_cost(const struct kv_map *map, const struct kv_event *e)
{
    uint32_t cut_into = map->block_tokens / map->config.block_tokens;

    return (uint32_t)__builtin_popcountll(e->groups) *
           (cut_into > 1 ? cut_into : 1);
}

/* Returns the most that one of the event's blocks may cost. */
static uint32_t block_cost_max(const struct kv_map *map,
                               const struct kv_event *e)
{
    uint32_t cost = block_cost(map, e);
    uint32_t behind = map->recut ? recut_piece_cost(map->recut) : 0;

    return cost > behind ? cost : behind;
}

/* Cuts an event to the piece that begins at block `from`. The parent of a later
 * piece is the last block before it. */
static void cut(struct kv_event *e, uint32_t from, uint32_t cost)
{
    uint32_t most = cost < PIECE_COST ? PIECE_COST / cost : 1;
    uint32_t left = e->n_hashes - from;

    if (from > 0) {
        e->has_parent = true;
        e->parent = e->hashes[from - 1];
    }
    if (most > MAP_PIECE_BLOCKS)
        most = MAP_PIECE_BLOCKS;
    if (left > most)
        left = most;
    e->hashes += from;
    if (e->extras)
        e->extras += from;
    if (e->n_tokens > 0) {
        e->tokens += (size_t)from * e->block_size;
        e->n_tokens = left * e->block_size;
    }
    e->n_hashes = left;
}

/* Takes the next piece of the batch. Returns whether its event has more. */
static bool take_piece(struct kv_map *map)
{
    struct map_work *w = &map->work;
    struct kv_event e = w->batch->events[w->event];
    uint64_t full = map->stats.full;
    uint32_t n = e.n_hashes, cost;
    uint16_t rank = w->rank;

    w->cost++;
    if (!counts(map, &e, &rank))
        return false;
    if (e.kind == KV_CLEARED)
        return cleared(map, &e, rank);
    if (n == 0)
        return false;
    cost = block_cost(map, &e);
    cut(&e, w->block, block_cost_max(map, &e));
    w->block += e.n_hashes;
    w->cost += (uint64_t)e.n_hashes * cost;
    if (e.kind == KV_REMOVED)
        map_removed(map, &e, rank);
    else if (!map_stored(map, &e, rank)) {
        if (map->stats.full > full)
            map_unkept(map, n - w->block);
        return false;
    }
    if (map->recut)
        map_say_gone(map);
    return w->block < n;
}

static void work_on(struct kv_map *map)
{
    struct map_work *w = &map->work;
    uint32_t ahead = w->event + AHEAD_EVENTS;

    if (w->block == 0 && ahead < w->batch->n_events &&
        w->batch->events[ahead].n_hashes > 0)
        copies_prefetch(&map->copies, w->batch->events[ahead].hashes[0]);
    if (take_piece(map))
        return;
    w->event++;
    w->block = 0;
    w->slot = 0;
}

void kv_map_begin(struct kv_map *map, uint16_t rank,
                  const struct kv_batch *batch)
{
    map->several_ranks |= map->heard && rank != map->rank;
    if (!map->heard)
        map->rank = rank;
    map->heard = true;
    map->work.batch = batch;
    map->work.rank = rank;
}

bool kv_map_work(struct kv_map *map, uint32_t max_blocks)
{
    struct map_work *w = &map->work;
    uint64_t from;
    bool more = true;

    w->cost = 0;
    from = cost_so_far(map);
    while (more && cost_so_far(map) - from < max_blocks) {
        more = forget_part(map) || map_adopt(map);
        if (!more && w->batch && w->event < w->batch->n_events) {
            work_on(map);
            more = true;
        }
    }
    map_say_gone(map);
    if (!more)
        kv_map_abandon(map);
    return more;
}
