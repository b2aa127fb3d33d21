/*
 * From an engine's blocks to the index's, where these have another number of
 * tokens: pools of mixed engines.
 *
 * Here an engine's blocks are called pieces. The map knows them by keys that
 * are cut as the engine cuts; the index gets keys that are cut as it does. The
 * first kind ends here: keys of different cuts are never compared.
 *
 * Pieces that are smaller: a block is in a tier when all its pieces are.
 * Larger ones: a piece holds several blocks, and a block is in a tier while one
 * of the pieces that hold it is. There may be several: they begin alike and end
 * differently.
 *
 * Pure; memory grows up to a bound.
 */
#ifndef CONDUCTOR_LINK_EVENTS_RECUT_RECUT_H
#define CONDUCTOR_LINK_EVENTS_RECUT_RECUT_H

#include "conductor/link/events/map/block_map.h"

/* Smaller pieces that the index's blocks that begin with one of them may have:
 * when it goes or comes, all of them are looked at. */
#define RECUT_TREE_MAX 4096u

struct recut;

struct recut_config {
    uint32_t piece_tokens, block_tokens;
    uint64_t max_pieces; /* fewer, if they need more than 16 words each */
    uint64_t seed;       /* of its tables: random, strangers choose tokens */
};

/* Makes one without pieces; arg is the sink's. Returns owned, or NULL: out of
 * memory or not block_cuts(). recut_free(NULL) is a no-op, frees silently. */
[[nodiscard]] struct recut *recut_new(const struct recut_config *config,
                                      const struct kv_map_sink *sink,
                                      void *arg);
void recut_free(struct recut *r);

/*
 * Says which tokens pieces have, before they are stored.
 *   parent  key of the piece before the first one, which was told of, too;
 *           0: they begin a prompt.
 *   seed    of the keys.
 *   tokens  (n * piece_tokens); extras (n), or NULL: as in struct kv_event.
 *   keys    (n): of the pieces.
 */
void recut_name(struct recut *r, uint64_t parent, uint64_t seed,
                const uint32_t *tokens, const uint64_t *extras,
                const uint64_t *keys, uint32_t n);

/* Pieces are in a tier now, or are not any more; the sink hears what follows.
 * Those that nobody named are passed over. Cost: O(n); of a smaller piece also
 * all that is known behind it in the blocks that begin with it, less than
 * RECUT_TREE_MAX. */
void recut_stored(struct recut *r, enum block_tier tier, const uint64_t *keys,
                  size_t n);
void recut_removed(struct recut *r, enum block_tier tier, const uint64_t *keys,
                   size_t n);

/* Forgets pieces that were named and then not stored: at the end of each
 * event. */
void recut_settle(struct recut *r);

/* Forgets all, and tells nobody. */
void recut_clear(struct recut *r);

/* Pieces that were looked at because others changed, ever: each takes about as
 * long as a block. */
uint64_t recut_cost(const struct recut *r);

/* Pieces that are looked at, at most, when one goes or comes. */
uint32_t recut_piece_cost(const struct recut *r);

/* Pieces that had no room, ever, or whose blocks had RECUT_TREE_MAX. */
uint64_t recut_full(const struct recut *r);

/* Pieces that are known, now. */
uint64_t recut_pieces(const struct recut *r);

/* Checks the invariants at the top of state.h. For tests. */
bool recut_check(const struct recut *r);

#endif
