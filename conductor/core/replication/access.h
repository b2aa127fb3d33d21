/*
 * How often prompts that begin with a block are asked for: a sketch of bounded
 * memory over block keys (space-saving, Metwally et al. 2005, with counts that
 * halve every half_us).
 *
 * A block's key stands for the block and all before it, so that what is counted
 * for a key is how often that beginning of prompts was asked for.
 *
 * Invariants (access_check() asserts them), of a key's true decayed count c:
 *   count - error <= c <= count         for a key that is kept
 *   c <= the least count that is kept   for one that is not, once it is full
 *   the sum of all counts is that of all that was added
 * So a key that was asked for more often than the sum divided by the number of
 * places is kept, whatever else was asked for; and nothing is told of a key but
 * what was asked for (access_rate() is count - error).
 *
 * Pure: time is an argument. All memory is reserved by access_new().
 */
#ifndef CONDUCTOR_CORE_REPLICATION_ACCESS_H
#define CONDUCTOR_CORE_REPLICATION_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Less has no room for a single prompt. */
#define ACCESS_BYTES_MIN 16384u

struct access_config {
    uint64_t max_bytes; /* of all of its memory, ACCESS_BYTES_MIN or more */
    int64_t half_us;    /* in which counts halve, above 0 */
    uint64_t seed;      /* of its hashing */
};

struct access_sketch;

/* Makes an empty one. Returns it, owned, or NULL: no memory, a bad bound. */
[[nodiscard]] struct access_sketch *
access_new(const struct access_config *config);

/* Frees it; NULL is a no-op. */
void access_free(struct access_sketch *sketch);

/*
 * A prompt is asked for.
 *   keys      (n_keys), borrowed: of its full blocks, from the first one on.
 *   n_tokens  of the prompt.
 *   tag       the caller's, of all prompts with these keys.
 * Of a prompt with more blocks than there are places, those are counted.
 * Cost: O(n_keys * log(places)).
 */
void access_add(struct access_sketch *sketch, const uint64_t *keys,
                size_t n_keys, int64_t n_tokens, uint64_t tag, int64_t now_us);

/* How often a second prompts with that block were asked for, lately; at most as
 * often as they were. 0: it is not kept. */
double access_rate(const struct access_sketch *sketch, uint64_t key,
                   int64_t now_us);

/* The end of a beginning that prompts share: fewer than half of those that have
 * this block have the same one behind it. */
struct access_tip {
    uint64_t key;
    uint32_t n_blocks;  /* up to and with this one */
    double per_s;       /* as access_rate() */
    double mean_tokens; /* of those prompts */
    uint64_t tag;       /* as given last */
};

/*
 * The tips that are asked for at least so often.
 *   tips  (max), written: the largest rate times n_blocks first, of equal ones
 *         the lowest key.
 * Returns their number. Cost: O(places).
 */
size_t access_tips(struct access_sketch *sketch, double least_per_s,
                   int64_t now_us, struct access_tip *tips, size_t max);

/*
 * The blocks of a tip.
 *   keys  (n_blocks), written: from the prompt's first one on.
 * Returns whether all of them are kept. Cost: O(n_blocks).
 */
bool access_chain(const struct access_sketch *sketch,
                  const struct access_tip *tip, uint64_t *keys);

/* Keys that there is room for, and the largest number of blocks of a tip. */
uint32_t access_places(const struct access_sketch *sketch);

/* Whether the heap, the chains and the sums hold. For tests. O(places). */
bool access_check(const struct access_sketch *sketch);

#endif
