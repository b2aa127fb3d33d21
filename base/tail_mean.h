/* TBT of a request. */
#ifndef BASE_TAIL_MEAN_H
#define BASE_TAIL_MEAN_H

#include <stddef.h>
#include <stdint.h>

/* TBT as the Mooncake paper has it (FAST'25, section 5): the mean of the
 * longest 10 % of the intervals x[0 .. n), at least one, whose order changes;
 * -1 without any. O(n) in the mean. */
int64_t tail_mean(int64_t *x, size_t n);

#endif
