/*
 * From an engine's blocks to the index's, where their sizes differ: pools of
 * mixed engines.
 *
 * Here an engine's blocks are called pieces. The map's keys are over pieces,
 * the index's over its own blocks; keys of the two kinds are never compared.
 *
 * Smaller pieces: a block is in a tier when all its pieces are. Larger pieces:
 * each holds several blocks, and a block is in a tier while one of the pieces
 * that hold it is. There may be several: they begin alike and end differently.
 *
 * Pure; memory grows up to a bound.
 */
#ifndef CONDUCTOR_LINK_EVENTS_RECUT_RECUT_H
#define CONDUCTOR_LINK_EVENTS_RECUT_RECUT_H

#include "conductor/link/events/map/block_map.h"

/* Most smaller pieces in a tree, that is in all blocks that begin with the same
 * piece. All are looked at when the first piece comes or goes. */
#define RECUT_TREE_MAX 4096u

struct recut;

struct recut_config {
    uint32_t piece_tokens, block_tokens;
    uint64_t max_pieces; /* limit; fewer at over 16 words for each */
    uint64_t seed;       /* of the tables: random, as clients choose tokens */
};

/* Makes a recut without pieces; arg is given to the sink. Returns owned, or
 * NULL: out of memory or not block_cuts(). recut_free() does not call the sink;
 * NULL is a no-op. */
[[nodiscard]] struct recut *recut_new(const struct recut_config *config,
                                      const struct kv_map_sink *sink,
                                      void *arg);
void recut_free(struct recut *r);

/*
 * Names pieces by their tokens, before they are stored.
 *   parent  key of the piece before the first one, named before; 0 = they begin
 *           a prompt.
 *   seed    of the keys.
 *   tokens  (n * piece_tokens); extras (n), or NULL: as in struct kv_event.
 *   keys    (n): of the pieces.
 */
void recut_name(struct recut *r, uint64_t parent, uint64_t seed,
                const uint32_t *tokens, const uint64_t *extras,
                const uint64_t *keys, uint32_t n);

/* Put pieces into a tier, or take them out, and report the resulting blocks to
 * the sink. Pieces that were not named are ignored. Cost: O(n); for a smaller
 * piece also the pieces behind it in its tree, fewer than RECUT_TREE_MAX. */
void recut_stored(struct recut *r, enum block_tier tier, const uint64_t *keys,
                  size_t n);
void recut_removed(struct recut *r, enum block_tier tier, const uint64_t *keys,
                   size_t n);

/* Forgets pieces that were named but not stored: call it at each event's
 * end. */
void recut_settle(struct recut *r);

/* Forgets all pieces, without calls to the sink. */
void recut_clear(struct recut *r);

/* Returns how many pieces were looked at so far because others changed; each
 * takes about as long as a block. */
uint64_t recut_cost(const struct recut *r);

/* Returns how many pieces, at most, are looked at when one comes or goes. */
uint32_t recut_piece_cost(const struct recut *r);

/* Returns how many pieces were rejected so far: no room, or RECUT_TREE_MAX in
 * their tree. */
uint64_t recut_full(const struct recut *r);

/* Returns how many pieces are known now. */
uint64_t recut_pieces(const struct recut *r);

/* Checks the invariants at the top of state.h. For tests. */
bool recut_check(const struct recut *r);

#endif
