/*
 * How long answers turn out to be: the mean length of finished answers, and the
 * mean share of their max_tokens, for each key (a tenant and model) and for all
 * together. Pure; of a fixed size.
 *
 * Some clients set max_tokens far above the answer's length, others close to
 * it: the mean that has been closer predicts.
 *
 * The median is kept, too: many answers are far shorter than the mean, and a
 * stall is a larger part of them.
 *
 * Invariants: n_entries <= LENGTHS_KEYS; no two entries have the same key; the
 * expected length of any key is at least 1.
 */
#ifndef CONDUCTOR_CORE_OBSERVATION_LENGTHS_H
#define CONDUCTOR_CORE_OBSERVATION_LENGTHS_H

#include <stddef.h>
#include <stdint.h>

/* Keys that are remembered; the one that was seen longest ago gives way. */
#define LENGTHS_KEYS 64
/* About how many answers a mean reaches back. */
#define LENGTHS_MEMORY 256
/* Fewest answers to go by; this many of one key weigh as much as all others. */
#define LENGTHS_LEAST 8

struct lengths_mean {
    double tokens;
    double share;      /* of max_tokens */
    double tokens_off; /* smoothed error of `tokens` */
    double share_off;  /* likewise of `share`, both in tokens */
    double median;     /* estimate, moved by its 50th part or more */
    uint64_t n;        /* answers seen */
};

struct lengths_entry {
    uint64_t key;
    uint64_t seen; /* number of its last answer among all */
    struct lengths_mean mean;
};

struct lengths {
    struct lengths_entry entries[LENGTHS_KEYS];
    size_t n_entries;
    struct lengths_mean all;
};

/* Takes in the length of an answer, if 1 <= tokens <= max_tokens. A zeroed
 * struct has seen none. Cost: O(LENGTHS_KEYS). */
void lengths_observe(struct lengths *lengths, uint64_t key, int64_t tokens,
                     int64_t max_tokens);

/*
 * Returns the expected length of a key's next answer: what its means predict,
 * drawn towards those of all keys as long as few of its own answers were seen.
 *   max_tokens  at least 1.
 * Returns 1..max_tokens; max_tokens while fewer than LENGTHS_LEAST answers were
 * seen in all. Cost: O(LENGTHS_KEYS).
 */
int64_t lengths_expected(const struct lengths *lengths, uint64_t key,
                         int64_t max_tokens);

/* Returns the median length of a key's next answer, drawn towards all keys and
 * bounded as in lengths_expected(). Returns lengths_expected() where the share
 * of max_tokens predicts better than the length. Cost: O(LENGTHS_KEYS). */
int64_t lengths_median(const struct lengths *lengths, uint64_t key,
                       int64_t max_tokens);

#endif
