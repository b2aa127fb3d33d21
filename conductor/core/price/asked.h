/*
 * How often blocks of prompts were asked for, and from that how often one will
 * be asked for again.
 *
 * Memory is fixed: a table of `max_blocks` counts in sets of ASKED_WAYS. A full
 * set drops the block asked for least recently, whose count begins anew when it
 * comes again. A seed decides a block's set, so a client that does not know it
 * cannot aim at the blocks of others: one that asks for many blocks displaces
 * others in proportion.
 */
#ifndef CONDUCTOR_CORE_PRICE_ASKED_H
#define CONDUCTOR_CORE_PRICE_ASKED_H

#include <stdint.h>

/* Highest count: it bounds how much repeats of one prompt can raise the
 * expectation for other blocks. */
#define ASKED_COUNT_MAX 60u
/* Blocks with a higher count have the expectation of this one. */
#define ASKED_EXPECT_MAX 30u
#define ASKED_WAYS 8u

struct asked {
    uint64_t *sets; /* (n_sets * ASKED_WAYS): most recently asked first; the
                       block's hash with its count in the low byte, 0 = empty */
    uint64_t n_sets;
    uint64_t seed;
    uint64_t max_blocks;
    uint64_t first_asks;                    /* new, since the last halving */
    uint64_t at_least[ASKED_COUNT_MAX + 2]; /* H[k]: blocks asked for at least k
                                               times; halved after every
                                               max_blocks new blocks */
};

/* Makes the table for at least `max_blocks` blocks, 8 bytes each (untouched
 * pages cost nothing). Returns 0, or -ENOMEM; end it with asked_fini(). */
[[nodiscard]] int asked_init(struct asked *a, uint64_t max_blocks,
                             uint64_t seed);
void asked_fini(struct asked *a);

/* asked_count(a, key): counts a request for a block. Returns its count, this
 * request included; at most ASKED_COUNT_MAX. Cost: one cache line. */
uint32_t asked_count(struct asked *a, uint64_t key);

/* asked_fetch(a, key): prefetches the memory that asked_count() of it reads. */
void asked_fetch(const struct asked *a, uint64_t key);

/* Writes how often a block that was asked for k times will be asked for again,
 * for k = 1 .. ASKED_EXPECT_MAX, the last for larger k, too: E(k) = sum of
 * H[m], m > k, / H[k]; 0.5 while H[k] is at most 20. */
void asked_expect(const struct asked *a, double again[ASKED_EXPECT_MAX + 1]);

#endif
