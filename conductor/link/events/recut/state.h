/*
 * The inside of a recut, for the files that change it.
 *
 * Invariants:
 * 1. A piece is kept while a tier has it, or a later piece of its block is
 *    kept.
 * 2. Smaller pieces: `whole` has the tiers with the piece and all earlier ones
 *    of its block; for a block's last piece, the tiers that the sink knows.
 * 3. Larger pieces: `held` counts for each block and tier the pieces that hold
 *    it there.
 */
#ifndef CONDUCTOR_LINK_EVENTS_RECUT_STATE_H
#define CONDUCTOR_LINK_EVENTS_RECUT_STATE_H

#include "conductor/link/events/copies.h"
#include "conductor/link/events/recut/recut.h"

#define NO_PIECE UINT32_MAX
#define SAID_BLOCKS 64u

struct piece {
    uint64_t key;    /* the map's */
    uint64_t before; /* key of the block before its first one; 0 = none */
    uint64_t last;   /* key of the block that ends with it; 0 = none */
    /* Smaller pieces: links of their block's tree. */
    uint32_t parent, child, next, prev;
    uint32_t link; /* next in the list of free or of unsettled ones */
    uint32_t tree; /* of a block's first piece: pieces in its tree; of others:
                      the slot of this first piece */
    uint16_t at;   /* its index in its block */
    uint8_t tiers; /* tiers that have the piece */
    uint8_t whole;
    bool used;
    bool unsettled; /* named, and the event has not ended */
    bool odd;       /* it or an earlier one of its block has an `extra` */
};

/* Blocks to report to the sink in one call. */
struct said {
    bool stored;
    enum block_tier tier;
    uint64_t parent;
    uint64_t keys[SAID_BLOCKS];
    uint32_t n;
};

struct recut {
    struct recut_config config;
    struct kv_map_sink sink;
    void *arg;
    uint32_t ratio;              /* pieces in a block, or blocks in a piece */
    bool larger;                 /* pieces are larger than blocks */
    uint32_t n_words;            /* per piece */
    struct piece *pieces;        /* (n_pieces) */
    uint64_t *words;             /* (n_slots, n_words): tokens of a smaller
                                    piece, the block keys of a larger one */
    uint32_t n_pieces;           /* at least n_slots */
    uint32_t n_slots, max_slots; /* room; limit of the room */
    uint32_t n_used;             /* slots ever used */
    uint32_t free, unsettled;    /* lists */
    uint32_t widest;             /* pieces in the widest tree so far */
    struct copies_table by_key;  /* from a piece's key to its slot + 1 */
    struct copies_table held;    /* larger pieces: see invariant 3 */
    uint32_t *tokens;            /* (block_tokens): scratch */
    struct said said;
    uint64_t full, cost;
};

/* Returns the n_words words of a piece: its tokens, or its block keys. */
static inline uint64_t *recut_words(const struct recut *r, uint32_t at)
{
    return r->words + (size_t)at * r->n_words;
}

/* say.c: reports a block to the sink, perhaps later, together with the next
 * ones. */
void recut_say(struct recut *r, bool stored, enum block_tier tier,
               uint64_t before, uint64_t key);

/* Reports the blocks that recut_say() holds back to the sink. */
void recut_say_all(struct recut *r);

/* smaller.c: returns whether one more piece fits behind `parent`; NO_PIECE = as
 * the first one of a prompt. */
bool smaller_fits(const struct recut *r, uint32_t parent);

/* Fills in a new piece `at` behind `parent`, with (piece_tokens) tokens, and
 * puts it into the tree of its block.
 *   extra  digest of content beside the tokens; 0 = none. */
void smaller_name(struct recut *r, uint32_t at, uint32_t parent, uint64_t seed,
                  const uint32_t *tokens, uint64_t extra);

/* Reports to the sink which blocks became whole in a tier, or ceased to be,
 * when it got or lost a piece. Cost: the pieces below it whose state changes,
 * which are added to r->cost. */
void smaller_changed(struct recut *r, uint32_t at, enum block_tier tier);

/* Takes a piece without children out of its tree. */
void smaller_unlink(struct recut *r, uint32_t at);

/* Returns whether invariant 2 holds. O(pieces). */
bool smaller_check(const struct recut *r);

/* larger.c: fills in a new piece `at` behind `parent`: the keys of the blocks
 * in its (piece_tokens) tokens. `extra` as above. */
void larger_name(struct recut *r, uint32_t at, uint32_t parent, uint64_t seed,
                 const uint32_t *tokens, uint64_t extra);

/* Reports to the sink which blocks of a piece got their first holder in a tier,
 * or lost their last, when it got or lost the piece. */
void larger_changed(struct recut *r, uint32_t at, enum block_tier tier);

/* Returns whether invariant 3 holds. O(pieces). */
bool larger_check(const struct recut *r);

#endif
