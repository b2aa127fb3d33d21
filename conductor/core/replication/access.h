/*
 * How often prompts that begin with a block are asked for: a sketch of bounded
 * memory over block keys (space-saving, Metwally et al. 2005, with counts that
 * halve every half_us).
 *
 * A block's key stands for the block and all before it, so a key's count says
 * how often that beginning of prompts was asked for.
 *
 * Invariants (access_check() asserts them), of a key's true decayed count c:
 *   count - error <= c <= count     for a key that is kept
 *   c <= the least count kept       for any other key, once the sketch is full
 *   the sum of all counts = the sum of all additions
 * So a key that was asked for more often than the sum divided by the number of
 * places is kept, whatever else was asked for; and access_rate(), which is
 * count - error, never exceeds the true rate.
 *
 * Pure: time is an argument. All memory is reserved by access_new().
 */
#ifndef CONDUCTOR_CORE_REPLICATION_ACCESS_H
#define CONDUCTOR_CORE_REPLICATION_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Less would not hold a single prompt. */
#define ACCESS_BYTES_MIN 16384u

struct access_config {
    uint64_t max_bytes; /* bound of all its memory, at least ACCESS_BYTES_MIN */
    int64_t half_us;    /* time in which counts halve; above 0 */
    uint64_t seed;      /* of hashing */
};

struct access_sketch;

/* Makes an empty sketch. Returns it, owned, or NULL: no memory, a bad bound. */
[[nodiscard]] struct access_sketch *
access_new(const struct access_config *config);

/* Frees it; NULL is a no-op. */
void access_free(struct access_sketch *sketch);

/*
 * Counts a request for a prompt.
 *   keys      (n_keys), of its full blocks from the first one on;
 *             borrowed.
 *   n_tokens  of the prompt.
 *   tag       the caller's number for prompts with these keys.
 * Counts at most as many leading blocks as there are places.
 * Cost: O(n_keys * log(places)).
 */
void access_add(struct access_sketch *sketch, const uint64_t *keys,
                size_t n_keys, int64_t n_tokens, uint64_t tag, int64_t now_us);

/* Returns the recent requests per second for prompts with this block, at most
 * the true rate; 0 = the key is not kept. */
double access_rate(const struct access_sketch *sketch, uint64_t key,
                   int64_t now_us);

/* The end of a hot beginning of prompts: a block that many prompts have, fewer
 * than half of which have the same next block. */
struct access_tip {
    uint64_t key;
    uint32_t n_blocks;  /* from the prompt's first block to this one */
    double per_s;       /* as access_rate() */
    double mean_tokens; /* of prompts with this block */
    uint64_t tag;       /* of the latest access_add() */
};

/*
 * Finds the tips with at least least_per_s requests a second.
 *   tips  (max), written: the largest rate times n_blocks first, of equal
 *         ones the lowest key.
 * Returns their number. Cost: O(places).
 */
size_t access_tips(struct access_sketch *sketch, double least_per_s,
                   int64_t now_us, struct access_tip *tips, size_t max);

/*
 * Writes the block keys of a tip.
 *   keys  (n_blocks), written: from the prompt's first one on.
 * Returns whether all of them are kept. Cost: O(n_blocks).
 */
bool access_chain(const struct access_sketch *sketch,
                  const struct access_tip *tip, uint64_t *keys);

/* Returns the most keys that fit, which is also the most blocks of a tip. */
uint32_t access_places(const struct access_sketch *sketch);

/* Returns whether heap, chains and sums are consistent. For tests. O(places).
 */
bool access_check(const struct access_sketch *sketch);

#endif
