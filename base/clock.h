/* The only reader of the time. conductor/core does not use it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* clock_now_us(): returns monotonic time in us, from an arbitrary start. */
int64_t clock_now_us(void);

#endif
