/*
 * The inside of a recut, for the files that change it.
 *
 * Invariants:
 * 1. A piece is kept as long as a tier has it, or one behind it in its block is
 *    kept.
 * 2. Smaller pieces: `whole` are the tiers that have the piece and all before
 *    it in its block, and of a block's last piece those that the sink heard of.
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
    uint64_t before; /* key of the index's block before its first one; 0: none
                        is */
    uint64_t last;   /* of the block that ends with it; 0: none does */
    /* Smaller pieces: those of the same block. */
    uint32_t parent, child, next, prev;
    uint32_t link; /* of the list of free ones, or of unsettled ones */
    uint32_t tree; /* of the first one of a block: pieces that begin with it;
                      of others: the first one */
    uint16_t at;   /* its place in its block */
    uint8_t tiers; /* that have it */
    uint8_t whole;
    bool used;
    bool unsettled; /* named, and its event is not over */
    bool odd;       /* more than tokens tells it, or one before it, apart */
};

/* What the sink is to hear, in one piece. */
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
    bool larger;                 /* the pieces */
    uint32_t n_words;            /* of each piece */
    struct piece *pieces;        /* (n_pieces) */
    uint64_t *words;             /* (n_slots, n_words): tokens of a smaller
                                    piece, the block keys of a larger one */
    uint32_t n_pieces;           /* at least n_slots */
    uint32_t n_slots, max_slots; /* room, and how much it may grow to */
    uint32_t n_used;             /* slots that were ever used */
    uint32_t free, unsettled;    /* lists */
    uint32_t widest;             /* of the trees there were */
    struct copies_table by_key;  /* its key is the slot + 1 */
    struct copies_table held;    /* larger pieces */
    uint32_t *tokens;            /* (block_tokens): scratch */
    struct said said;
    uint64_t full, cost;
};

/* What belongs to a piece, n_words of them: tokens, or block keys. */
static inline uint64_t *recut_words(const struct recut *r, uint32_t at)
{
    return r->words + (size_t)at * r->n_words;
}

/* say.c: tells the sink of a block, together with those next to it, and
 * so perhaps later. */
void recut_say(struct recut *r, bool stored, enum block_tier tier,
               uint64_t before, uint64_t key);

/* Tells it of what was not told yet. */
void recut_say_all(struct recut *r);

/* smaller.c: whether one more piece may stand behind `parent`, which is
 * NO_PIECE for the first one of a prompt. */
bool smaller_fits(const struct recut *r, uint32_t parent);

/* Fills in a new piece `at` behind `parent`, with (piece_tokens) tokens, and
 * puts it into the tree of its block.
 *   extra  what tells it apart besides; 0: nothing. */
void smaller_name(struct recut *r, uint32_t at, uint32_t parent, uint64_t seed,
                  const uint32_t *tokens, uint64_t extra);

/* A tier has a piece now, or lost it: says which blocks are whole there that
 * were not, or the other way round. Cost: the pieces below it whose state
 * changes, which are added to r->cost. */
void smaller_changed(struct recut *r, uint32_t at, enum block_tier tier);

/* Takes a piece without children out of its tree. */
void smaller_unlink(struct recut *r, uint32_t at);

/* Whether invariant 2 holds. O(pieces). */
bool smaller_check(const struct recut *r);

/* larger.c: fills in a new piece `at` behind `parent`: the keys of the blocks
 * in its (piece_tokens) tokens. `extra` as above. */
void larger_name(struct recut *r, uint32_t at, uint32_t parent, uint64_t seed,
                 const uint32_t *tokens, uint64_t extra);

/* A tier has a piece now, or lost it: says which of its blocks nobody held
 * there before, or holds any more. */
void larger_changed(struct recut *r, uint32_t at, enum block_tier tier);

/* Whether invariant 3 holds. O(pieces). */
bool larger_check(const struct recut *r);

#endif
