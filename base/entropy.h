/* Random numbers that nobody can guess. */
#ifndef BASE_ENTROPY_H
#define BASE_ENTROPY_H

#include <stdint.h>

/* entropy_u64(): from the kernel's generator. The program ends where the kernel
 * has none: seeds of hashing must not be known to others. */
uint64_t entropy_u64(void);

/* Numbers that were asked for ahead: where one is needed for each request, a
 * call of the kernel for each is dear. All zero is an empty store. */
#define ENTROPY_AHEAD 32
struct entropy_store {
    unsigned left;
    uint64_t numbers[ENTROPY_AHEAD]; /* (left) */
};

/* entropy_next(store): a number as entropy_u64() gives, which the store
 * forgets. Not for a process that forks: both would hand out the same. */
uint64_t entropy_next(struct entropy_store *store);

#endif
