/* Random numbers that nobody can guess. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stdint.h>

/* random_u64(): from the kernel's generator. The program ends where the kernel
 * has none: seeds of hashing must not be known to others. */
uint64_t random_u64(void);

#endif
