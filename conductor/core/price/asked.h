/*
 * How often blocks of prompts were asked for, and from that how often one will
 * be asked for again.
 *
 * Memory is fixed: a table of `max_blocks` counts in sets of ASKED_WAYS. In a
 * full set the block leaves that was asked for least recently, and begins anew
 * when it comes again. Which set a block belongs to follows from a seed, so
 * nobody who does not know it can aim at the blocks of others: a client that
 * asks for many blocks displaces others in proportion.
 */
#ifndef CONDUCTOR_CORE_PRICE_ASKED_H
#define CONDUCTOR_CORE_PRICE_ASKED_H

#include <stdint.h>

/* Counts stop here, so that repeating one prompt moves what is expected of
 * others only so far. */
#define ASKED_COUNT_MAX 60u
/* Blocks that were asked for more often are expected as often as these. */
#define ASKED_EXPECT_MAX 30u
#define ASKED_WAYS 8u

struct asked {
    uint64_t *sets; /* (n_sets * ASKED_WAYS): most recently asked first; the
                       block's hash with its count in the low byte, 0: none */
    uint64_t n_sets;
    uint64_t seed;
    uint64_t max_blocks;
    uint64_t first_asks;                    /* since the last halving */
    uint64_t at_least[ASKED_COUNT_MAX + 2]; /* H: blocks that were asked for at
                                               least so often; halved when so
                                               many new ones came as the table
                                               holds */
};

/* Makes the table for at least `max_blocks` blocks, 8 bytes each (untouched
 * pages cost nothing). Returns 0, or -ENOMEM; end it with asked_fini(). */
[[nodiscard]] int asked_init(struct asked *a, uint64_t max_blocks,
                             uint64_t seed);
void asked_fini(struct asked *a);

/* asked_count(a, key): a block is asked for. Returns how often it was so far,
 * with this time; at most ASKED_COUNT_MAX. Cost: one cache line. */
uint32_t asked_count(struct asked *a, uint64_t key);

/* asked_fetch(a, key): the next asked_count() of it does not wait for memory.
 */
void asked_fetch(const struct asked *a, uint64_t key);

/* How often a block will be asked for again that was asked for `count` times:
 * writes the answer for each count 1 .. ASKED_EXPECT_MAX, which holds for
 * larger ones too. E(k) = sum of H[m], m > k, / H[k]; 0.5 while H[k] is at most
 * 20. */
void asked_expect(const struct asked *a, double again[ASKED_EXPECT_MAX + 1]);

#endif
