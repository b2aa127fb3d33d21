/* Random numbers that nobody can guess. */
#ifndef BASE_ENTROPY_H
#define BASE_ENTROPY_H

#include <stdint.h>

/* entropy_u64(): from the kernel's generator. The program ends where the kernel
 * has none: seeds of hashing must not be known to others. */
uint64_t entropy_u64(void);

#endif
