/* Unpredictable random numbers. */
#ifndef BASE_ENTROPY_H
#define BASE_ENTROPY_H

#include <stdint.h>

/* entropy_u64(): returns a number from the kernel's generator. Exits the
 * program if the kernel has none, because hash seeds must not be guessable. */
uint64_t entropy_u64(void);

/* Numbers fetched ahead, since a system call for each request would be
 * expensive. All zero is an empty store. */
#define ENTROPY_AHEAD 32
struct entropy_store {
    unsigned left;
    uint64_t numbers[ENTROPY_AHEAD]; /* (left) */
};

/* entropy_next(store): does entropy_u64() from the store. Not for a process
 * that forks: both processes would return the same numbers. */
uint64_t entropy_next(struct entropy_store *store);

#endif
