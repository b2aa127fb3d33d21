/* TBT of a request. */
#ifndef BASE_TAIL_MEAN_H
#define BASE_TAIL_MEAN_H

#include <stddef.h>
#include <stdint.h>

/* TBT as in the Mooncake paper (FAST'25, section 5): the mean of the longest 10
 * % (at least one) of the intervals x[0 .. n), which it reorders; -1 if n is
 * 0. O(n) on average. */
int64_t tail_mean(int64_t *x, size_t n);

#endif
