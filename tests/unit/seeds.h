/* Plays of many seeds in virtual time, for tests whose play() ends with a hash
 * of everything that happened. */
#ifndef TESTS_UNIT_SEEDS_H
#define TESTS_UNIT_SEEDS_H

#include <CUnit/CUnit.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Plays seeds 1 to n, with or without faults, and every tenth twice: both
 * hashes must be equal. play() adds the broken connections to *broken; there
 * must be some with faults, and none without. Prints the seeds that fail. */
static inline void seeds_play(uint64_t n, bool faults,
                              uint64_t (*play)(uint64_t seed, bool faults,
                                               unsigned *broken))
{
    unsigned broken = 0, again = 0;

    for (uint64_t seed = 1; seed <= n; seed++) {
        unsigned failed = CU_get_number_of_failures();
        uint64_t hash = play(seed, faults, &broken);

        if (seed % 10 == 0)
            CU_ASSERT_EQUAL(hash, play(seed, faults, &again));
        if (CU_get_number_of_failures() != failed)
            printf("seed %u\n", (unsigned)seed);
    }
    CU_ASSERT_EQUAL(broken > 0, faults);
}

#endif
